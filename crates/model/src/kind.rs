// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a node is: a scheduler with a policy, or a queue with a class.
//!
//! The lists are generated once, here; a test compares them with those of `sched/registry.h`.

use std::fmt;
use std::str::FromStr;

use reserv_facts::tree::{class, policy};
use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{Error, ErrorKind, ResourceKind, Tune, TuneKey};

/// An enum whose words, list and numbers come from one place.
macro_rules! words {
    ($(#[$outer:meta])* $name:ident, $what:literal: $first:ident $($rest:tt)*) => {
        words!(@ [$(#[$outer])*] $name, $what, $first; $first $($rest)*);
    };
    (@ [$($outer:tt)*] $name:ident, $what:literal, $default:ident;
     $($variant:ident = $number:tt $word:literal $doc:literal),+ $(,)?) => {
        $($outer)*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = $doc] #[serde(rename = $word)] $variant = $number,)+
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

pub(crate) use words;

words! {
    /// How a scheduler node orders its children.
    Policy, "policy":
    Sfq = (policy::SFQ) "sfq" "Start-time fair queueing, composed hierarchically (QLinux §2.2).",
    Eevdf = (policy::EEVDF) "eevdf" "Proportional share with lag: the earliest eligible virtual deadline first (RTSS'96, RTSS'98).",
    Mtrls = (policy::MTRLS) "mtrls" "Move-to-rear list scheduling: cumulative service guaranteed to who sleeps and wakes (Eclipse).",
    Prio = (policy::PRIO) "prio" "Strict priority with usage decay, and an idle class (resource containers).",
    Wrr = (policy::WRR) "wrr" "Weighted round robin: who blocks loses its place and what was left; to compare mtrls with.",
    Wf2qPlus = (policy::WF2QP) "wf2q+" "Worst-case fair weighted fair queueing plus, composed hierarchically; for links.",
    Yfq = (policy::YFQ) "yfq" "Yet another fair queueing: the smallest finish tag first, in batches that are put in the disk's order (Eclipse); for disks.",
    Wf2q = (policy::WF2Q) "wf2q" "Worst-case fair weighted fair queueing with the fluid system followed exactly (Eclipse); for links.",
    Cello = (policy::CELLO) "cello" "Cello: rounds of the disk's time for the classes interactive, throughput and real-time, and one queue in the order of their needs (QLinux); for a disk's root.",
}

words! {
    /// How a queue orders the threads in it.
    Class, "class":
    Ts = (class::TS) "ts" "Time sharing: nice, `SCHED_BATCH` and `SCHED_IDLE` honoured, interactive threads responsive.",
    Sfq = (class::SFQ) "sfq" "Start-time fair queueing over threads, equal weights unless set.",
    Rr = (class::RR) "rr" "Round robin by quantum.",
    Fifo = (class::FIFO) "fifo" "First come, first served: a thread keeps its place until it blocks.",
    Edf = (class::EDF) "edf" "Earliest deadline first, over threads with period and budget; others when none of them wants.",
    Drr = (class::DRR) "drr" "Deficit round robin over flows: many connections in one queue share it fairly; for links.",
    Scan = (class::SCAN) "scan" "The next sector upwards, then back to the lowest (C-LOOK); for disks.",
    ScanEdf = (class::SCAN_EDF) "scan-edf" "The earliest deadline, within 10 ms of deadlines the lowest sector; for disks.",
    Interactive = (class::INTERACTIVE) "interactive" "Cello's interactive class: as soon as the others' deadlines leave slack; under other policies as fifo; for disks.",
    Throughput = (class::THROUGHPUT) "throughput" "Cello's throughput-intensive class: in the order of the disk; under other policies as scan; for disks.",
    RealTime = (class::REAL_TIME) "real-time" "Cello's soft real-time class: the earliest deadline; under other policies as scan-edf; for disks.",
}

words! {
    /// What new nodes are, and the root's policy: each paper's system as itself, or our mix.
    Personality, "personality":
    Default = 0 "default" "Start-time fair queueing, time sharing in the queues.",
    Qlinux = 1 "qlinux" "QLinux: hierarchical start-time fair queueing, over threads too, quantum 100 ms.",
    Eclipse = 2 "eclipse" "Eclipse: MTR-LS with T = 100 ms, round robin in the queues.",
    Rtss98 = 3 "rtss98" "Proportional share with lag (EEVDF), quantum 1 ms, round robin in the queues.",
    Containers = 4 "containers" "Resource containers: as default, and what a bound thread starts is bound as it is.",
}

impl Personality {
    /// All words, for people to choose from.
    pub const WORDS: &str = "one word: default, qlinux, eclipse, rtss98 or containers";

    /// Of the root. Cello has one queue for the whole disk.
    pub const fn root_policy(self, of: ResourceKind) -> Policy {
        match (self, of) {
            (Self::Qlinux, ResourceKind::Disk) => Policy::Cello,
            _ => self.policy(of),
        }
    }

    /// Of new scheduler nodes. Turns and requests are a CPU's, a link or disk has work that comes
    /// in pieces.
    pub const fn policy(self, of: ResourceKind) -> Policy {
        match (self, of) {
            (Self::Eclipse, ResourceKind::Cpu) => Policy::Mtrls,
            (Self::Eclipse, ResourceKind::Link) => Policy::Wf2q,
            (Self::Eclipse, ResourceKind::Disk) => Policy::Yfq,
            (Self::Rtss98, ResourceKind::Cpu) => Policy::Eevdf,
            (Self::Default | Self::Qlinux | Self::Rtss98 | Self::Containers, _) => Policy::Sfq,
        }
    }

    /// Of new queues. q0 keeps time sharing: it serves who knows nothing of reservations.
    pub const fn class(self, of: ResourceKind) -> Class {
        match self {
            _ if !of.is_cpu() => Class::Ts,
            Self::Default | Self::Containers => Class::Ts,
            Self::Qlinux => Class::Sfq,
            Self::Eclipse | Self::Rtss98 => Class::Rr,
        }
    }

    /// Whether a new process of a thread that is bound to a container begins bound as it is
    /// (Resource Containers §4.2), and not where its parent's child list says (Eclipse/BSD §2.5).
    pub const fn binds_children(self) -> bool {
        matches!(self, Self::Containers)
    }

    /// Of the root; what is not in it has its default.
    pub fn tune(self, of: ResourceKind) -> Tune {
        match self {
            _ if !of.is_cpu() => Tune::new(),
            Self::Default | Self::Containers => Tune::new(),
            Self::Qlinux => Tune::from([(TuneKey::Quantum, 100_000_000)]),
            Self::Eclipse => Tune::from([(TuneKey::Turn, 100_000_000)]),
            Self::Rtss98 => Tune::from([(TuneKey::Quantum, 1_000_000)]),
        }
    }
}

/// What a node is to be; without policy or class the tree's personality decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewKind {
    /// Has children.
    Scheduler(Option<Policy>),
    /// Has threads.
    Queue(Option<Class>),
}

impl NewKind {
    /// With what it leaves open, in a tree of this resource.
    pub fn or(self, personality: Personality, of: ResourceKind) -> Kind {
        match self {
            Self::Scheduler(policy) => Kind::Scheduler(policy.unwrap_or(personality.policy(of))),
            Self::Queue(class) => Kind::Queue(class.unwrap_or(personality.class(of))),
        }
    }
}

impl From<Kind> for NewKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Scheduler(policy) => Self::Scheduler(Some(policy)),
            Kind::Queue(class) => Self::Queue(Some(class)),
        }
    }
}

/// Scheduler (interior) or queue (leaf).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Has children.
    Scheduler(Policy),
    /// Has threads.
    Queue(Class),
}

impl Policy {
    /// All words, for people to choose from.
    pub const WORDS: &str = "one word: sfq, eevdf, mtrls or prio; for a link also wf2q+ or wf2q, for a disk wf2q+ or yfq, for its root cello";

    /// Whether it orders by the length of what is served next, which is not known of a thread: the
    /// CPU's program does not have it.
    pub const fn by_length(self) -> bool {
        matches!(self, Self::Wf2qPlus | Self::Yfq | Self::Wf2q | Self::Cello)
    }

    /// Whether it goes by places on a disk.
    pub const fn of_disks(self) -> bool {
        matches!(self, Self::Yfq | Self::Cello)
    }
}

impl Class {
    /// All words, for people to choose from.
    pub const WORDS: &str = "one word: ts, sfq, rr, fifo or edf; for a link also drr, for a disk scan, scan-edf, interactive, throughput or real-time";

    /// As of a policy.
    pub const fn by_length(self) -> bool {
        matches!(self, Self::Drr) || self.of_disks()
    }

    /// As of a policy.
    pub const fn of_disks(self) -> bool {
        matches!(
            self,
            Self::Scan | Self::ScanEdf | Self::Interactive | Self::Throughput | Self::RealTime
        )
    }
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
