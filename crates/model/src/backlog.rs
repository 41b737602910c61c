// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of backlogs are admitted against memory (docs/notes/algorithms.md §10): what may wait in
//! the queues that have a limit of their own fits into what is set apart for it.
//!
//! Rule: `Σ cost(limits) ≤ budget`, over all queues of a resource with a limit of their own, those
//! that drain too; and the sum of their packets `≤ units`, what the driver can hold at once. `cost`
//! is the most memory that so many packets can take: each has a part of its own beside its bytes,
//! and a queue holds no more bytes than the driver lets it, and one packet. Queues without a limit
//! are promised nothing: they have the driver's own and what it has left.
//!
//! * Only a limit that grows can break it, so only that is refused, by the name of its queue.
//!   Deleting, lowering and taking a limit away are always taken.
//! * The budget is told by who knows the machine and the configuration; it is no part of the
//!   journal. Where it falls below what was admitted, nothing is scaled, and no limit may grow.
//!
//! Worked example (a test): 1 KiB beside each packet, packets of 64 KiB at most and queues of 128
//! KiB: a limit of one packet costs 65 KiB, of 100 292 KiB. So a budget of 600 KiB takes 100, 100
//! and no third.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{Edit, Error, ErrorKind, Fixed, Node, NodeId, Tree};

/// What one more unit in a queue of a driver costs, and what all may cost. Bytes of memory, but for
/// `units`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// For all queues with a limit.
    pub budget: u64,
    /// Beside the bytes of each packet.
    pub each: u64,
    /// Most bytes of one packet.
    pub longest: u64,
    /// Bytes from which on a queue takes no more, where its limit names none.
    pub most: u64,
    /// Packets likewise.
    pub usual: u64,
    /// Packets that the driver holds at once, in all queues.
    pub units: u64,
}

/// Bytes of the shortest packet: a link's header and an address's.
const SHORTEST: u64 = 32;

impl Backlog {
    /// Most packets that wait in a queue with these limits of packets and bytes; 0 for one that has
    /// neither.
    pub const fn units_of(self, packets: u32, bytes: u32) -> u64 {
        let named = if packets == 0 { self.usual } else { packets as u64 };
        let fit = if bytes == 0 { u64::MAX } else { bytes as u64 / SHORTEST + 1 };
        let least = if fit < named { fit } else { named };
        if packets == 0 && bytes == 0 { 0 } else { least }
    }

    /// Most memory that such a queue can take.
    pub const fn cost(self, packets: u32, bytes: u32) -> u64 {
        let units = self.units_of(packets, bytes);
        let most = if bytes == 0 { self.most } else { bytes as u64 };
        let (full, all) = (most.saturating_add(self.longest), units.saturating_mul(self.longest));
        let data = if all < full { all } else { full };
        if units == 0 { 0 } else { data.saturating_add(units.saturating_mul(self.each)) }
    }
}

/// A part of the machine's memory: `12.5%`, or an amount: `256MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Memory {
    /// In millionths of what the machine has.
    Part(u32),
    /// Bytes.
    Bytes(u64),
}

const HINT: &str = "a part of the machine's memory, 12.5%, or an amount from 1MiB on, 256MiB";
const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Memory {
    /// An eighth, where nobody says anything.
    pub const DEFAULT: Self = Self::Part(125_000);

    /// In bytes, of a machine that has so many.
    pub fn bytes(self, machine: u64) -> u64 {
        match self {
            Self::Part(ppm) => {
                u64::try_from(u128::from(machine) * u128::from(ppm) / u128::from(Fixed::ALL))
                    .unwrap_or(u64::MAX)
            }
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl FromStr for Memory {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(ErrorKind::Invalid, format!("{} is no amount of memory", quoted(text)))
                .hint(HINT)
        };
        if text.ends_with('%') {
            let part: Fixed = format!("={text}").parse().map_err(|_| wrong())?;
            return Ok(Self::Part(part.ppm()));
        }
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
            .ok_or_else(wrong)?;
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let bytes = number.parse::<u64>().ok().filter(|_| digits).and_then(|n| n.checked_mul(unit));
        bytes.filter(|&bytes| bytes >= 1 << 20).map(Self::Bytes).ok_or_else(wrong)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Part(ppm) => f.write_str(&crate::units::show_percent(ppm.into())),
            Self::Bytes(bytes) => show(f, bytes),
        }
    }
}

/// Bytes in the largest unit that they are a whole number of, from KiB on.
fn show(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    match UNITS.iter().find(|(_, unit)| bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => write!(f, "{}{name}", bytes / unit),
        None => write!(f, "{}KiB", bytes.div_ceil(1 << 10)),
    }
}

impl TryFrom<String> for Memory {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Memory> for String {
    fn from(memory: Memory) -> Self {
        memory.to_string()
    }
}

struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0)
    }
}

impl Tree {
    /// What limits are admitted against; `None`, as a new tree has it: nothing waits in this
    /// resource's queues that would take memory by a limit.
    pub const fn set_backlog(&mut self, backlog: Option<Backlog>) {
        self.backlog = backlog;
    }

    /// See [`Tree::set_backlog`].
    pub const fn backlog(&self) -> Option<Backlog> {
        self.backlog
    }

    /// Memory and packets that the limits admitted may take.
    pub fn backlog_promised(&self) -> (u64, u64) {
        let Some(backlog) = self.backlog else { return (0, 0) };
        self.iter().fold((0, 0), |(memory, units): (u64, u64), node| {
            let limit = (node.members_max, node.bytes_max);
            (
                memory.saturating_add(backlog.cost(limit.0, limit.1)),
                units.saturating_add(backlog.units_of(limit.0, limit.1)),
            )
        })
    }

    /// Whether the limits that were admitted still fit where a driver lets its queues hold more.
    pub fn admit_backlog(&self, backlog: Option<Backlog>) -> Result<(), Error> {
        let (now, _) = self.backlog_promised();
        let mut then = self.clone();
        then.set_backlog(backlog);
        let Some(backlog) = backlog else { return Ok(()) };
        let (memory, units) = then.backlog_promised();
        let costs = |n: &Node| backlog.cost(n.members_max, n.bytes_max);
        let largest = then.iter().max_by_key(|node| costs(node));
        match largest.filter(|_| memory > backlog.budget && memory > now) {
            Some(node) => Err(then.refuse_limit(node, backlog, memory, units)),
            None => Ok(()),
        }
    }

    /// Whether an edit gives a queue a limit that has to be admitted.
    pub(crate) fn limits(&self, edit: &Edit) -> bool {
        self.backlog.is_some() && matches!(edit, Edit::Limit { .. })
    }

    /// Whether the limits fit, or are no worse than `before`.
    pub(crate) fn admit_limits(&self, before: &Self) -> Result<(), Error> {
        let Some(backlog) = self.backlog else { return Ok(()) };
        let (memory, units) = self.backlog_promised();
        if memory <= backlog.budget && units <= backlog.units {
            return Ok(());
        }
        let costs = |n: &Node| backlog.cost(n.members_max, n.bytes_max);
        let holds = |n: &Node| backlog.units_of(n.members_max, n.bytes_max);
        let grown = self.iter().filter(|n| {
            let was = before.get(n.id);
            costs(n) > was.map_or(0, costs) || holds(n) > was.map_or(0, holds)
        });
        let grown = grown.last();
        match grown {
            Some(node) => Err(self.refuse_limit(node, backlog, memory, units)),
            None => Ok(()),
        }
    }

    fn refuse_limit(&self, node: &Node, backlog: Backlog, memory: u64, units: u64) -> Error {
        let (at, of) = (self.shown(node.id), self.shown(NodeId::ROOT));
        let limit = match (node.members_max, node.bytes_max) {
            (packets, 0) => format!("{packets} packets"),
            (0, bytes) => Bytes(bytes.into()).to_string(),
            (packets, bytes) => format!("{packets} packets and {}", Bytes(bytes.into())),
        };
        let why = if memory > backlog.budget {
            let (cost, all) =
                (Bytes(backlog.cost(node.members_max, node.bytes_max)), Bytes(memory));
            format!(
                "{at}: its limit of {limit} may take {cost} of memory; all limits together {all}, and {of} has {} for them",
                Bytes(backlog.budget)
            )
        } else {
            format!(
                "{at}: with its limit of {limit} all limits together are {units}, and {of} holds {}",
                backlog.units
            )
        };
        Error::new(ErrorKind::Overcommitted, why).hint(
            "a smaller limit, smaller ones of others, or more memory: backlog in the configuration",
        )
    }
}
