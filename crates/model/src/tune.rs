// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tunables of a node: what its policy, or its place under its parent's policy, can be set to.
//!
//! ```text
//! tune     = key value {key value}        each key once; those that are not named keep their values
//! value    = "default" | duration | number | "bytes" | "requests" | "time" | number "/s"
//! ```
//!
//! | key | of | means |
//! |---|---|---|
//! | `quantum` | every node | length of a step of what is served through it; the nearest node upwards that has one decides |
//! | `lag` | a scheduler with `eevdf` | the largest request, so the bound of the lag |
//! | `turn` | a scheduler with `mtrls` or `wrr` | `T`, the time in which each child has its share once |
//! | `decay` | a scheduler with `prio` | half-life of the usage that lowers a priority |
//! | `priority` | a child of a `prio` node | 0: idle class; 1 to 100, higher first; 50 |
//! | `request` | a child of an `eevdf` node | `r`, its execution time per request; by default estimated |
//! | `batch` | a disk with `yfq` | most requests that are dispatched and not done: of these the disk has its depth, in the order of sectors; by default the depth |
//! | `anticipate` | a disk with `yfq` | how long a queue keeps its turn that asks for one request at a time; by default 2 ms on a disk with an arm that gets one at a time, else 0 |
//! | `cost` | a disk with `yfq` | what shares are shares of: bytes (the default), requests or time of the disk |
//! | `deadline` | a queue with `scan-edf` or `real-time` | its requests are due so long after they came; by default never, under `cello` after a round |
//! | `round` | a disk with `cello` | the time over which its classes have their shares; by default 1 s |
//! | `receive` | a queue of a link with an entrance | packets a second that come in for it; what is more is dropped; by default any number |
//! | `receive-burst` | the same | so many of them may come at once; by default 32, without a rate of no effect |
//!
//! What is set for a policy that the node does not have now is kept, not shown, and counts again
//! with that policy.

use std::collections::BTreeMap;

use reserv_facts::{receive, tree};
use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::units::Duration;
use crate::{Class, Error, ErrorKind, Kind, Policy, ResourceKind};

/// The name of a tunable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the table above")]
pub enum TuneKey {
    Quantum,
    Lag,
    Turn,
    Decay,
    Priority,
    Request,
    Batch,
    Anticipate,
    Cost,
    Deadline,
    Round,
    Receive,
    ReceiveBurst,
}

/// Words of [`TuneKey::Cost`], by value.
const COSTS: [&str; 3] = ["bytes", "requests", "time"];

/// Values that are set; a key that is not in it has its default.
pub type Tune = BTreeMap<TuneKey, u64>;

/// A change of some of them: `None` is the default again.
pub type TuneChange = Vec<(TuneKey, Option<u64>)>;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

impl TuneKey {
    /// All of them, in the order in which they are printed.
    pub const ALL: [Self; 13] = [
        Self::Quantum,
        Self::Lag,
        Self::Turn,
        Self::Decay,
        Self::Priority,
        Self::Request,
        Self::Batch,
        Self::Anticipate,
        Self::Cost,
        Self::Deadline,
        Self::Round,
        Self::Receive,
        Self::ReceiveBurst,
    ];

    /// As it stands in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Quantum => "quantum",
            Self::Lag => "lag",
            Self::Turn => "turn",
            Self::Decay => "decay",
            Self::Priority => "priority",
            Self::Request => "request",
            Self::Batch => "batch",
            Self::Anticipate => "anticipate",
            Self::Cost => "cost",
            Self::Deadline => "deadline",
            Self::Round => "round",
            Self::Receive => "receive",
            Self::ReceiveBurst => "receive-burst",
        }
    }

    /// Whether a node of this kind, below a parent with this policy, has it.
    pub const fn fits(self, of: ResourceKind, kind: Kind, parent: Option<Policy>) -> bool {
        match self {
            Self::Receive | Self::ReceiveBurst => {
                matches!((of, kind), (ResourceKind::Link, Kind::Queue(_)))
            }
            Self::Quantum => true,
            Self::Lag => matches!(kind, Kind::Scheduler(Policy::Eevdf)),
            Self::Turn => matches!(kind, Kind::Scheduler(Policy::Mtrls | Policy::Wrr)),
            Self::Decay => matches!(kind, Kind::Scheduler(Policy::Prio)),
            Self::Priority => matches!(parent, Some(Policy::Prio)),
            Self::Request => matches!(parent, Some(Policy::Eevdf)),
            // The policy is a disk's, and its root's are the whole disk's.
            Self::Batch | Self::Anticipate | Self::Cost => {
                parent.is_none() && matches!(kind, Kind::Scheduler(Policy::Yfq))
            }
            Self::Deadline => matches!(kind, Kind::Queue(Class::ScanEdf | Class::RealTime)),
            Self::Round => parent.is_none() && matches!(kind, Kind::Scheduler(Policy::Cello)),
        }
    }

    /// Where it is to be had, for an error.
    const fn place(self) -> &'static str {
        match self {
            Self::Quantum => "every node has it",
            Self::Lag => "a scheduler node with policy eevdf has it",
            Self::Turn => "a scheduler node with policy mtrls or wrr has it",
            Self::Decay => "a scheduler node with policy prio has it",
            Self::Priority => "a child of a node with policy prio has it",
            Self::Request => "a child of a node with policy eevdf has it",
            Self::Batch | Self::Anticipate | Self::Cost => "a disk with policy yfq has it",
            Self::Deadline => "a disk's queue with class scan-edf or real-time has it",
            Self::Round => "a disk with policy cello has it",
            Self::Receive | Self::ReceiveBurst => "a link's queue has it",
        }
    }

    /// Whether it is a property of a child under its parent's policy (`RS_OP_NODE_PARAM`), not of a
    /// policy (`RS_OP_TUNE`).
    pub const fn is_of_child(self) -> bool {
        matches!(self, Self::Priority | Self::Request)
    }

    /// Its number among those of its operation.
    pub const fn code(self) -> u64 {
        match self {
            Self::Quantum => tree::tune::QUANTUM,
            Self::Lag => tree::tune::LAG,
            Self::Turn => tree::tune::TURN,
            Self::Decay => tree::tune::DECAY,
            Self::Batch => tree::tune::BATCH,
            Self::Anticipate => tree::tune::ANTICIPATE,
            Self::Cost => tree::tune::COST,
            Self::Deadline => tree::tune::DEADLINE,
            Self::Round => tree::tune::ROUND,
            Self::Receive => tree::tune::RECEIVE,
            Self::ReceiveBurst => tree::tune::RECEIVE_BURST,
            Self::Priority => tree::param::PRIORITY,
            Self::Request => tree::param::REQUEST,
        }
    }

    /// What a data plane is told for the default.
    pub const fn default_value(self) -> u64 {
        match self {
            Self::Priority => tree::PRIORITY_DEFAULT as u64,
            // 0 is none.
            Self::Anticipate => tree::AUTO,
            _ => 0,
        }
    }

    /// Least and largest value that can be set.
    const fn range(self) -> (u64, u64) {
        match self {
            Self::Quantum => (MS / 10, 100 * MS),
            Self::Lag | Self::Turn => (MS, 10 * S),
            Self::Decay => (10 * MS, 1000 * S),
            Self::Priority => (0, tree::PRIORITY_MAX as u64),
            Self::Request => (MS / 100, 10 * S),
            Self::Batch => (1, tree::WINDOW_MAX as u64),
            Self::Anticipate => (0, 100 * MS),
            Self::Cost => (0, COSTS.len() as u64 - 1),
            Self::Deadline => (MS, 1000 * S),
            Self::Round => (*tree::ROUNDS.start(), *tree::ROUNDS.end()),
            Self::Receive => (1, receive::RATE_MAX),
            Self::ReceiveBurst => (1, receive::BURST_MAX),
        }
    }

    /// As it is written.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Priority | Self::Batch | Self::ReceiveBurst => value.to_string(),
            Self::Receive => format!("{value}/s"),
            Self::Cost => usize::try_from(value)
                .ok()
                .and_then(|v| COSTS.get(v))
                .map_or_else(|| value.to_string(), |&word| word.to_owned()),
            _ => Duration(value).to_string(),
        }
    }

    fn hint(self) -> String {
        if self == Self::Cost {
            return format!("{} is {}, or default", self.word(), COSTS.join(", "));
        }
        let (low, high) = self.range();
        format!("{} is from {} to {}, or default", self.word(), self.show(low), self.show(high))
    }

    /// Refuses a value out of range.
    pub fn check(self, value: u64) -> Result<u64, Error> {
        let (low, high) = self.range();
        if (low..=high).contains(&value) {
            return Ok(value);
        }
        let why = format!("{} {} is out of range", self.word(), self.show(value));
        Err(Error::new(ErrorKind::Invalid, why).hint(self.hint()))
    }

    fn value(self, word: &str) -> Result<Option<u64>, Error> {
        if word == "default" {
            return Ok(None);
        }
        let value = match self {
            Self::Cost => {
                let found = COSTS.iter().position(|&cost| cost == word).map(|at| at as u64);
                found.ok_or_else(|| {
                    Error::new(ErrorKind::Invalid, format!("{} is no cost", quoted(word)))
                        .hint(self.hint())
                })?
            }
            Self::Priority | Self::Batch | Self::Receive | Self::ReceiveBurst => {
                let number = if self == Self::Receive { word.strip_suffix("/s") } else { None };
                let number = number.unwrap_or(word);
                let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
                let number = if digits { number.parse::<u64>().ok() } else { None };
                number.ok_or_else(|| {
                    Error::new(
                        ErrorKind::Invalid,
                        format!(
                            "{} is no {}",
                            quoted(word),
                            match self {
                                Self::Priority => "priority",
                                Self::Receive => "number of packets a second",
                                _ => "number",
                            }
                        ),
                    )
                    .hint(self.hint())
                })?
            }
            _ => word.parse::<Duration>()?.0,
        };
        self.check(value).map(Some)
    }
}

impl std::str::FromStr for TuneKey {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|k| k.word() == word).ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|k| k.word()).collect();
            Error::new(ErrorKind::Invalid, format!("{} is no tunable", quoted(word)))
                .hint(format!("one of: {}", words.join(" ")))
        })
    }
}

/// What a `tune` file is written.
pub fn parse_tune(text: &str) -> Result<TuneChange, Error> {
    let mut change: TuneChange = Vec::new();
    let mut words = text.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let key: TuneKey = word.parse()?;
        if change.iter().any(|(earlier, _)| *earlier == key) {
            let why = format!("{} stands twice", quoted(word));
            return Err(Error::new(ErrorKind::Invalid, why).hint("each key once"));
        }
        let value = words.next().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("{} without a value", quoted(word)))
                .hint(key.hint())
        })?;
        change.push((key, key.value(value)?));
    }
    if change.is_empty() {
        let why = "nothing where tunables should be";
        return Err(Error::new(ErrorKind::Invalid, why).hint("a key and a value: quantum 4ms"));
    }
    Ok(change)
}

/// Refuses a key that a node of this kind and place does not have.
pub fn check_tune(
    change: &TuneChange,
    of: ResourceKind,
    kind: Kind,
    parent: Option<Policy>,
) -> Result<(), Error> {
    for (key, value) in change {
        if !key.fits(of, kind, parent) {
            let fits = TuneKey::ALL.iter().filter(|k| k.fits(of, kind, parent));
            let here: Vec<&str> = fits.map(|k| k.word()).collect();
            let why = format!("{} is no tunable here: {}", quoted(key.word()), key.place());
            return Err(
                Error::new(ErrorKind::Invalid, why).hint(format!("here: {}", here.join(" ")))
            );
        }
        if let Some(value) = value {
            key.check(*value)?;
        }
    }
    Ok(())
}

/// What is set, as [`parse_tune`] takes it; nothing where nothing is.
pub fn tune_text(tune: &Tune) -> String {
    let words: Vec<String> =
        tune.iter().map(|(key, value)| format!("{} {}", key.word(), key.show(*value))).collect();
    words.join(" ")
}

/// What a `tune` file reads: every key that the node has, in one line that can be written.
pub fn show_tune(tune: &Tune, of: ResourceKind, kind: Kind, parent: Option<Policy>) -> String {
    let words: Vec<String> = TuneKey::ALL
        .into_iter()
        .filter(|k| k.fits(of, kind, parent))
        .map(|k| {
            let value = tune.get(&k).map_or_else(|| "default".to_owned(), |v| k.show(*v));
            format!("{} {value}", k.word())
        })
        .collect();
    words.join(" ")
}
