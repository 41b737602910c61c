// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs of Reserv must agree on, each fact once: what daemon, planes, block server,
//! command line, client libraries and the programs in the kernel say to each other. Numbers and
//! layouts of bytes only: no file, clock, thread, or memory from the heap; no other crate.
//!
//! What stands in a C header too is listed with its name there, and a test has the compiler compare
//! them (`shared`). So a number that differs fails the suite, and a new one is compared by being
//! written down.

/// Numbers that C has too: a module, `"PREFIX_" mod name: type { NAME = value }`, whose numbers are
/// called `PREFIX_NAME` in C; or single ones, each with its name there.
macro_rules! shared {
    (
        $(#[$outer:meta])*
        $prefix:literal mod $module:ident: $type:ty {
            $($(#[$doc:meta])* $name:ident = $value:expr),+ $(,)?
        }
    ) => {
        $(#[$outer])*
        #[allow(missing_docs, reason = "named as in C")]
        pub mod $module {
            $($(#[$doc])* pub const $name: $type = $value;)+
            #[cfg(test)]
            pub(crate) const IN_C: &[(&str, i128)] =
                &[$((concat!($prefix, stringify!($name)), $name as i128)),+];
        }
    };
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr, $in_c:literal;)+) => {
        $($(#[$doc])* pub const $name: $type = $value;)+
        #[cfg(test)]
        pub(crate) const IN_C: &[(&str, i128)] = &[$(($in_c, $name as i128)),+];
    };
}

pub mod call;
pub mod cpu;
pub mod fuse;
pub mod ino;
pub mod listen;
pub mod net;
pub mod place;
pub mod receive;
pub mod tag;
pub mod time;
pub mod tree;

#[cfg(test)]
#[path = "../headers.rs"]
mod headers;
