// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared library carries the version of its binary interface.

fn main() {
    // Changes whenever a call or a structure of include/reserv.h changes incompatibly.
    // scripts/install reads it off the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libreserv.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
