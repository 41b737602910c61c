// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a node is: a scheduler with a policy, or a queue with a class.
//!
//! The lists are generated once, here; the numbers are those of `sched/registry.h` and a test compares them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{Error, ErrorKind};

/// An enum whose words, list and numbers come from one place.
macro_rules! words {
    ($(#[$outer:meta])* $name:ident, $what:literal: $first:ident $($rest:tt)*) => {
        words!(@ [$(#[$outer])*] $name, $what, $first; $first $($rest)*);
    };
    (@ [$($outer:tt)*] $name:ident, $what:literal, $default:ident;
     $($variant:ident = $number:literal $word:literal $doc:literal),+ $(,)?) => {
        $($outer)*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = $doc] $variant = $number,)+
        }
        impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }
        impl $name {
            /// All of them, in order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
            /// The word that stands in files.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
        impl FromStr for $name {
            type Err = Error;
            fn from_str(word: &str) -> Result<Self, Error> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(Error::new(ErrorKind::Invalid, format!("{} is not a {}", quoted(word), $what))
                        .hint(concat!("one of:" $(, " ", $word)+))),
                }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }
    };
}

words! {
    /// How a scheduler node orders its children.
    Policy, "policy":
    Sfq = 0 "sfq" "Start-time fair queueing, composed hierarchically (QLinux §2.2).",
}

words! {
    /// How a queue orders the threads in it.
    Class, "class":
    Ts = 0 "ts" "Time sharing: nice, `SCHED_BATCH` and `SCHED_IDLE` honoured, interactive threads responsive.",
    Sfq = 1 "sfq" "Start-time fair queueing over threads, equal weights unless set.",
    Rr = 2 "rr" "Round robin by quantum.",
    Fifo = 3 "fifo" "First come, first served: a thread keeps its place until it blocks.",
}

/// Scheduler (interior) or queue (leaf).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Has children.
    Scheduler(Policy),
    /// Has threads.
    Queue(Class),
}

impl Kind {
    /// Whether it has children.
    pub const fn is_scheduler(self) -> bool {
        matches!(self, Self::Scheduler(_))
    }

    /// Whether it has threads.
    pub const fn is_queue(self) -> bool {
        matches!(self, Self::Queue(_))
    }

    /// `scheduler` or `queue`, as configuration and `mk` write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Scheduler(_) => "scheduler",
            Self::Queue(_) => "queue",
        }
    }
}
