// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the journal of a tree holds, and what it tells the next daemon.

use std::collections::{BTreeMap, VecDeque};

use reserv_model::{
    Caller, Class, DeleteMode, Edit, Kind, Name, NodeId, Op, Record, Rule, Snapshot, Tree, Weight,
};
use serde::{Deserialize, Serialize};

use super::whole::Undo;
use crate::collect::{Kept, NOBODY};
use crate::openers::OpenedBy;
use crate::refusal::Refusal;

/// Answered edits that are remembered: more than requests can be under way in the kernel at once.
const ANSWERED_MAX: usize = 4096;

/// Which request of the name space an edit answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The request's number in its session.
    pub unique: u64,
    /// The fresh inode that becomes the node which the edit makes.
    pub fresh: Option<u64>,
}

impl Origin {
    /// Numbers below this may be chosen.
    pub const CHOSEN_END: u64 = reserv_control::NUMBER_END;

    /// The request's number where its client chose one (`fs/by_path.rs`): odd, while the kernel's
    /// are even (`FUSE_REQ_ID_STEP`), so neither is ever taken for the other.
    pub const fn chosen(number: u64) -> u64 {
        number << 1 | 1
    }

    /// Whether a request's number is such a one: the kernel then knows nothing of the request.
    pub const fn is_chosen(unique: u64) -> bool {
        unique & 1 == 1
    }
}

/// What the journal keeps beside the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extras {
    /// Requests of this session whose edits happened, oldest first, with the node that was made.
    pub(super) answered: VecDeque<(u64, Option<NodeId>)>,
    /// Fresh inodes of this session that were opened.
    pub(super) fresh: BTreeMap<u64, NodeId>,
    /// No number of a fresh inode from here on was given out.
    pub(super) fresh_end: u32,
    pub(super) rules: Vec<Rule>,
    /// A change in several edits that has not ended.
    #[serde(default)]
    pub(super) unfinished: Option<Undo>,
    /// What the collector must know.
    #[serde(default)]
    pub(super) collect: Kept,
}

/// One record of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Entry {
    /// All there is; the first record.
    Whole { tree: Snapshot, extras: Box<Extras> },
    /// An intent.
    Edit { record: Record, origin: Option<Origin> },
    /// A new mount: numbers of requests and fresh inodes begin anew.
    Session,
    /// A block of numbers of fresh inodes is taken.
    Fresh { end: u32 },
    /// Fresh inode that nobody refers to any more.
    Forgotten { fresh: u64 },
    /// The rules were replaced.
    Rules { rules: Vec<Rule> },
    /// A change in several edits begins …
    Begin { undo: Box<Undo> },
    /// … and has ended, or was undone.
    End,
    /// A file was opened to write by who is not root …
    Writes { handle: u64, by: OpenedBy },
    /// … and closed. With him: opened, by a worker of an earlier version.
    Writer { handle: u64, who: Option<Caller> },
    /// A file of a node that may be collected was opened …
    Opened {
        handle: u64,
        node: NodeId,
        /// By whom, but root …
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<OpenedBy>,
        /// … as a worker of an earlier version says it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        who: Option<Caller>,
    },
    /// … and closed.
    Closed { handle: u64 },
    /// A node that the configuration made has been used.
    Used { node: NodeId },
}

impl Extras {
    /// What the kernel's numbers meant is void. Those that clients chose are random, and go on.
    pub(super) fn new_session(&mut self) {
        self.answered.retain(|(unique, _)| Origin::is_chosen(*unique));
        self.fresh.clear();
        self.collect.new_session();
    }

    pub(super) fn note(&mut self, origin: Option<Origin>, record: &Record) {
        self.collect.note(origin.is_some(), record);
        let Some(origin) = origin else { return };
        let made = made(record);
        if self.answered.len() == ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back((origin.unique, made));
        if let (Some(fresh), Some(made)) = (origin.fresh, made) {
            self.fresh.insert(fresh, made);
        }
    }
}

/// What the journal says, before it is compared with the plane.
pub(super) struct Told {
    /// Without the last edit, if that is the journal's last record.
    pub(super) tree: Tree,
    pub(super) extras: Extras,
    /// The journal's last record, if it is an edit: it may not have happened.
    pub(super) last: Option<(Record, Option<Origin>)>,
}

pub(super) fn encode(entry: &Entry) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(entry).map_err(|e| Refusal::new(libc::EIO, format!("journal: {e}")))
}

pub(super) fn made(record: &Record) -> Option<NodeId> {
    record.edits.iter().find_map(|edit| match edit {
        Edit::Create { id, .. } => Some(*id),
        _ => None,
    })
}

/// Whether members are moved away by it.
pub(super) fn flushes(record: &Record) -> bool {
    record.edits.iter().any(|edit| matches!(edit, Edit::Delete { mode: DeleteMode::Flush, .. }))
}

pub(super) fn corrupt(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(libc::EIO, format!("journal: {why}"))
}

pub(super) fn tell(name: Name, payloads: &[Vec<u8>]) -> Result<Told, Refusal> {
    let mut told = Told { tree: Tree::new(name), extras: Extras::default(), last: None };
    for payload in payloads {
        if let Some((record, origin)) = told.last.take() {
            told.tree.replay(&record)?;
            told.extras.note(origin, &record);
        }
        match serde_json::from_slice(payload).map_err(corrupt)? {
            Entry::Whole { tree, extras } => {
                told.tree = tree.restore()?;
                told.extras = *extras;
            }
            Entry::Edit { record, origin } => told.last = Some((record, origin)),
            Entry::Session => {
                told.extras.new_session();
            }
            Entry::Fresh { end } => told.extras.fresh_end = end,
            Entry::Forgotten { fresh } => {
                told.extras.fresh.remove(&fresh);
            }
            Entry::Rules { rules } => told.extras.rules = rules,
            Entry::Begin { undo } => told.extras.unfinished = Some(*undo),
            Entry::End => told.extras.unfinished = None,
            Entry::Opened { handle, node, who: Some(who), .. } => {
                told.extras.collect.opened_by(handle, node, &who);
            }
            Entry::Opened { handle, node, who: None, by } => {
                told.extras
                    .collect
                    .opened(handle, node, by)
                    .then_some(())
                    .ok_or(corrupt(NOBODY))?;
            }
            Entry::Writes { handle, by } => {
                told.extras.collect.writes(handle, by).then_some(()).ok_or(corrupt(NOBODY))?;
            }
            Entry::Writer { handle, who: Some(who) } => {
                told.extras.collect.written_by(handle, &who);
            }
            Entry::Writer { handle, who: None } => told.extras.collect.writes_no_more(handle),
            Entry::Closed { handle } => told.extras.collect.closed(handle),
            Entry::Used { node } => told.extras.collect.used(node),
        }
    }
    Ok(told)
}

/// The ops that make `tree` out of root and q0, ids included.
pub(super) fn from_nothing(tree: &Tree) -> Vec<Op> {
    let mut ops = Vec::new();
    for (_, node) in tree.walk() {
        let id = node.id;
        if let (Some(parent), true) = (node.parent, id != NodeId::Q0) {
            ops.push(Op::Create { id, parent, kind: node.kind });
        } else {
            match node.kind {
                Kind::Queue(class) if class != Class::default() => {
                    ops.push(Op::SetClass { id, class });
                }
                Kind::Scheduler(policy) if policy != reserv_model::Policy::default() => {
                    ops.push(Op::SetPolicy { id, policy });
                }
                _ => {}
            }
        }
        if id != NodeId::ROOT && node.weight != Weight::BACKGROUND {
            ops.push(Op::Reweight { id, weight: node.weight });
        }
        if node.cap.is_some() {
            ops.push(Op::SetCap { id, cap: node.cap });
        }
        if (node.members_max, node.bytes_max) != (0, 0) {
            let (members_max, bytes_max) = (node.members_max, node.bytes_max);
            ops.push(Op::SetLimit { id, members_max, bytes_max });
        }
        let tune =
            node.tune.iter().map(|(&key, &value)| Edit::Tune { id, key, value: Some(value) });
        ops.extend(tune.filter_map(|edit| edit.op()));
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(records: &[&str]) -> Result<Extras, Refusal> {
        let records: Vec<Vec<u8>> = records.iter().map(|text| text.as_bytes().to_vec()).collect();
        tell(Name::new("cpu")?, &records).map(|told| told.extras)
    }

    /// As version 2 wrote them.
    #[test]
    fn who_opened_files_under_an_earlier_version_is_known() {
        let who = r#"{"uid":7,"gid":8,"groups":[9,5,9],"pid":10,"start":11}"#;
        let node = r#"{"index":2,"generation":1}"#;
        let extras = told(&[
            &format!(r#"{{"Writer":{{"handle":4,"who":{who}}}}}"#),
            &format!(r#"{{"Writer":{{"handle":6,"who":{who}}}}}"#),
            &format!(r#"{{"Opened":{{"handle":8,"node":{node},"who":{who}}}}}"#),
            &format!(r#"{{"Opened":{{"handle":12,"node":{node}}}}}"#),
            r#"{"Writer":{"handle":6,"who":null}}"#,
        ]);
        let kept = extras.unwrap().collect;
        let groups = vec![5, 9].into();
        let caller = Caller { uid: 7, gid: 8, groups, pid: 10, start: 11, unseen: false };
        assert_eq!((kept.writer(4), kept.writer(6)), (Some(caller), None));
        assert!(kept.knows(8) && kept.knows(12));
        let snapshot = format!(
            r#"{{"handles":{{"8":{node},"12":{node}}},"owners":{{"8":{who}}},
            "writers":{{"4":{who}}},"untouched":[],"uncertain":[]}}"#
        );
        let read: Kept = serde_json::from_str(&snapshot).unwrap();
        assert_eq!(read, kept);
        let again = serde_json::to_string(&read).unwrap();
        assert_eq!(again.matches("groups").count(), 1, "{again}");
        assert_eq!(serde_json::from_str::<Kept>(&again).unwrap(), kept);
    }

    #[test]
    fn a_file_that_nobody_opened_is_damage() {
        let of_nobody = r#"{"Writes":{"handle":4,"by":{"by":[3,10,11]}}}"#;
        let refusal = told(&[of_nobody]).err().unwrap();
        assert!(refusal.text.contains("opened by nobody"), "{refusal}");
        let snapshot =
            r#"{"handles":{},"openers":{"writing":{"4":[3,10,11]}},"untouched":[],"uncertain":[]}"#;
        assert!(serde_json::from_str::<Kept>(snapshot).is_err());
    }
}
