// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which right each file needs (Eclipse/BSD §2.7), and the text of a reservation domain.
//!
//! | file of a node | to write (open, and again at each write) | to read |
//! |---|---|---|
//! | directory of a queue | – | `use` |
//! | directory of a scheduler | `mkdir`: `create`; `rmdir`: `delete`; `mv`: `modify`, to elsewhere `delete` here and `create` there | all |
//! | `share`, `cap`, `gc` | `modify` at the parent, or it is one's own node | all |
//! | `shares`, `policy`, `class`, `backlog` | `modify` | all |
//! | `tune` | `modify`; at the parent for what counts there | all |
//! | `newqueue`, `newsched`, `mk` | `create` | `create` (`mk`: nobody) |
//! | `state` | `delete` at the parent, or it is one's own node | all |
//! | `members` | `use`; and whom one tags is of one's own uid | all |
//! | `access` | `grant` | all |
//! | `stat` | nobody | all |
//! | `default`, `cdefault` of a process | it is of one's own uid; `use` of each queue | all |
//! | `fds` of a process | it is of one's own uid; `use` of the queue | it is of one's own uid |

use std::fmt::Write as _;

use reserv_model::{Caller, Decision, Error, ErrorKind, NodeId, Right, Tree, Why};

use crate::ino::FileKind;
use crate::table::{Place, entry};

/// Whether somebody may open a file or directory of a node.
pub fn permit_open(
    tree: &Tree,
    who: &Caller,
    id: NodeId,
    file: FileKind,
    (read, write): (bool, bool),
) -> Result<(), Error> {
    if who.uid == 0 {
        return Ok(());
    }
    let never =
        |word: &str| Error::new(ErrorKind::NotPermitted, format!("{}: it is not {word}", tree.shown(id)));
    if read {
        match file {
            FileKind::QueueDir => tree.require(who, id, Right::Use)?,
            FileKind::NewQueue | FileKind::NewSched => tree.require(who, id, Right::Create)?,
            FileKind::Mk => return Err(never("read")),
            _ => {}
        }
    }
    if !write {
        return Ok(());
    }
    match file {
        FileKind::Share | FileKind::Cap | FileKind::Gc => tree.require_above(who, id, Right::Modify),
        FileKind::Shares | FileKind::Policy | FileKind::Class | FileKind::Backlog => {
            tree.require(who, id, Right::Modify)
        }
        FileKind::Tune => {
            tree.require(who, id, Right::Modify).or_else(|_| tree.require_above(who, id, Right::Modify))
        }
        FileKind::NewQueue | FileKind::NewSched | FileKind::Mk => tree.require(who, id, Right::Create),
        FileKind::State => tree.require_above(who, id, Right::Delete),
        FileKind::Members => tree.require(who, id, Right::Use),
        FileKind::Access => tree.require(who, id, Right::Grant),
        _ => Err(never("written")),
    }
}

/// Whether everybody may open a file that is no node's, by its mode.
pub fn mode_allows(file: FileKind, place: Place, (read, write): (bool, bool)) -> bool {
    let mode = entry(file, place).map_or(0o555, |e| e.mode);
    (!read || mode & 4 != 0) && (!write || mode & 2 != 0)
}

/// What a process may do in one resource and why (its file has the text of every resource): a line `PATH RIGHT yes|no REASON` for the root,
/// and for each node below wherever right or reason are not those of its parent. So the line of the nearest node upwards holds.
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
