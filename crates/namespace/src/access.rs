// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which right each file needs (Eclipse/BSD §2.7), and the text of a reservation domain.
//!
//! | file of a node | to write (open, and again at each write) | to read (open, and each time from the beginning) |
//! |---|---|---|
//! | directory of a queue | – | `use` |
//! | directory of a scheduler | `mkdir`: `create`; `rmdir`: `delete`; `mv`: `modify`, to elsewhere `delete` here and `create` there | totals; names of what one sees |
//! | `share`, `cap` | `modify` at the parent, or it is one's own node | totals |
//! | `gc` | the same | `read` |
//! | `policy`, `class` | `modify` | totals |
//! | `shares`, `backlog` | `modify` | `read` |
//! | `tune` | `modify`; at the parent for what counts there | `read` |
//! | `newqueue`, `newsched`, `mk` | `create` | `create` (`mk`: nobody) |
//! | `state` | `delete` at the parent, or it is one's own node | totals |
//! | `members` | `use`; and whom one tags is of one's own uid | `read`; totals: the threads of who asks |
//! | `access` | `grant` | `read` |
//! | `stat` | nobody | totals |
//! | `default`, `cdefault` of a process | it is of one's own uid; `use` of each queue | it is of one's own uid, or oneself |
//! | `domain` of a process | nobody | it is of one's own uid, or oneself |
//! | `fds` of a process | it is of one's own uid; `use` of the queue | it is of one's own uid |
//! | `listen` of a process | it is of one's own uid; of another's port, that he allows it | it is of one's own uid |
//!
//! *Totals* is what everybody has at the root, and for the rest `reserv_model::Sight` says who has
//! it.
//!
//! A name is not listed to whom it is not shown, but whoever says it is told that it is there: the
//! kernel keeps names for all users together, and one whose lookup failed would be taken from those
//! who work in it (their current directory would have no path).

use std::fmt::Write as _;

use reserv_model::{Caller, Decision, Error, ErrorKind, NodeId, Right, Sight, Tree, Why};

use crate::directory::DirItem;
use crate::ino::{FileKind, Object};
use crate::table::{Place, entry};

/// Whether a file says no more of a node than its totals: what it is, has and uses as one.
const fn of_totals(file: FileKind) -> bool {
    matches!(
        file,
        FileKind::SchedulerDir
            | FileKind::Share
            | FileKind::Cap
            | FileKind::Policy
            | FileKind::Class
            | FileKind::State
            | FileKind::Stat
    )
}

/// Whether somebody may open a file or directory of a node. `within` says in which queues he is
/// himself; it is asked only where that decides.
pub fn permit_open(
    tree: &Tree,
    who: &Caller,
    id: NodeId,
    file: FileKind,
    (read, write): (bool, bool),
    within: impl FnOnce() -> Vec<NodeId>,
) -> Result<(), Error> {
    if who.uid == 0 {
        return Ok(());
    }
    let never = |word: &str| {
        Error::new(ErrorKind::NotPermitted, format!("{}: it is not {word}", tree.shown(id)))
    };
    if read {
        match file {
            FileKind::QueueDir => tree.require(who, id, Right::Use)?,
            FileKind::NewQueue | FileKind::NewSched => tree.require(who, id, Right::Create)?,
            FileKind::Mk => return Err(never("read")),
            _ if tree.decide(who, id, Right::Read).allowed => {}
            file if of_totals(file) => {
                // The root's totals are everybody's.
                if id != NodeId::ROOT {
                    tree.sight(who, &within()).require(id)?;
                }
            }
            FileKind::Members if within().contains(&id) => {}
            _ => tree.require(who, id, Right::Read)?,
        }
    }
    if !write {
        return Ok(());
    }
    match file {
        FileKind::Share | FileKind::Cap | FileKind::Gc => {
            tree.require_above(who, id, Right::Modify)
        }
        FileKind::Shares | FileKind::Policy | FileKind::Class | FileKind::Backlog => {
            tree.require(who, id, Right::Modify)
        }
        FileKind::Tune => tree
            .require(who, id, Right::Modify)
            .or_else(|_| tree.require_above(who, id, Right::Modify)),
        FileKind::NewQueue | FileKind::NewSched | FileKind::Mk => {
            tree.require(who, id, Right::Create)
        }
        FileKind::State => tree.require_above(who, id, Right::Delete),
        FileKind::Members => tree.require(who, id, Right::Use),
        FileKind::Access => tree.require(who, id, Right::Grant),
        _ => Err(never("written")),
    }
}

/// Of what a directory lists, that which somebody sees.
pub fn shown(sight: &Sight<'_>, dir: NodeId, items: Vec<DirItem>) -> Vec<DirItem> {
    let sees = |item: &DirItem| match item.ino.object() {
        Some(Object::Node { id, .. }) => id == dir || sight.has(id),
        _ => true,
    };
    items.into_iter().filter(sees).collect()
}

/// Whether everybody may open a file that is no node's, by its mode.
pub fn mode_allows(file: FileKind, place: Place, (read, write): (bool, bool)) -> bool {
    let mode = entry(file, place).map_or(0o555, |e| e.mode);
    (!read || mode & 4 != 0) && (!write || mode & 2 != 0)
}

/// What a process may do in one resource and why (its file has the text of every resource): a line
/// `PATH RIGHT yes|no REASON` for the root, and for each node below wherever right or reason are
/// not those of its parent. So the line of the nearest node upwards holds.
pub fn render_domain(tree: &Tree, who: &Caller) -> String {
    let mut out = String::new();
    let mut way: Vec<(usize, Vec<Decision>)> = Vec::new();
    for (level, node) in tree.walk() {
        way.retain(|(above, _)| *above < level);
        let all: Vec<Decision> =
            Right::ALL.into_iter().map(|right| tree.decide(who, node.id, right)).collect();
        for (at, (right, decision)) in Right::ALL.into_iter().zip(&all).enumerate() {
            // What is so for one node only is not what its children have.
            let inherited = way.last().map(|(_, above)| &above[at]).filter(|d| d.why != Why::Maker);
            if inherited != Some(decision) {
                let answer = if decision.allowed { "yes" } else { "no" };
                let _ = writeln!(
                    out,
                    "{} {} {answer} {}",
                    tree.shown(node.id),
                    right.word(),
                    decision.words(tree)
                );
            }
        }
        way.push((level, all));
    }
    out
}
