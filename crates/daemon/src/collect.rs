// SPDX-License-Identifier: MIT OR Apache-2.0
//! Garbage collection (Eclipse/BSD §2.6): who refers to nodes through files, and when to look. What
//! is garbage is the model's (`Tree::garbage`), what threads, descriptors and lists refer to is the
//! plane's (`Plane::refs`).
//!
//! * An open file is known by its handle, which is the same when the request that opened it is sent
//!   again. Those of nodes whose flag is on are in the journal, so that the next daemon knows them
//!   when it takes the session over.
//! * The trigger is the release of the last open file; the kernel sends it at once, also for a
//!   client that was killed. It also comes when a child has gone. For threads, descriptors and
//!   lists there is no such news: a node that they keep is tried again, less and less often.
//! * Who has no right at a node keeps nothing: neither does a file that he opened (who may only
//!   read may) nor his current directory, and what he opened no longer keeps it when his rights are
//!   taken back. Else anybody could fill the tree with what others have left.
//! * The current directory of a process keeps a node; an `O_PATH` descriptor, a bind mount, and a
//!   current directory that one thread has for itself do not: none tells the file system when it
//!   goes, and only the first is quickly looked up in `/proc`.
//! * A file of a node whose flag was off when the worker died, and on afterwards, is looked up in
//!   `/proc` too: under way over a socket it keeps nothing.
//! * A node that the configuration made, with the flag on, is kept until it has had a thread, a
//!   descriptor or a list once: looking at it is no use of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reserv_model::{Caller, Edit, Handles, Name, NodeId, Record, Tree};
use serde::{Deserialize, Serialize};

/// Until a node that is in use is looked at again: first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the journal keeps for the collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Open files of nodes that may be collected.
    handles: BTreeMap<u64, NodeId>,
    /// Who opened them, but root.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    owners: BTreeMap<u64, Caller>,
    /// Who but root opened files to write, whatever becomes of his rights: until they are closed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    writers: BTreeMap<u64, Caller>,
    /// Nodes that the configuration made, with the flag on, and that nobody has used yet.
    pub(crate) untouched: BTreeSet<NodeId>,
    /// Nodes whose files were perhaps opened under a daemon that died without telling.
    pub(crate) uncertain: BTreeSet<NodeId>,
}

impl Kept {
    /// A new mount: no file of the old one can be used.
    pub(crate) fn new_session(&mut self) {
        self.handles.clear();
        self.owners.clear();
        self.writers.clear();
        self.uncertain.clear();
    }

    pub(crate) fn knows(&self, handle: u64) -> bool {
        self.handles.contains_key(&handle)
    }

    /// Who opened a file to write; `None`: root.
    pub(crate) fn writer(&self, handle: u64) -> Option<&Caller> {
        self.writers.get(&handle)
    }

    pub(crate) fn writes(&mut self, handle: u64, who: Option<Caller>) {
        self.writers.remove(&handle);
        self.writers.extend(who.map(|who| (handle, who)));
    }

    pub(crate) fn opened(&mut self, handle: u64, node: NodeId, who: Option<Caller>) {
        self.handles.insert(handle, node);
        self.owners.extend(who.map(|who| (handle, who)));
    }

    pub(crate) fn closed(&mut self, handle: u64) {
        self.handles.remove(&handle);
        self.owners.remove(&handle);
    }

    pub(crate) fn used(&mut self, node: NodeId) {
        self.untouched.remove(&node);
    }

    /// An edit happened. One that no file asked for leaves no open file behind.
    pub(crate) fn note(&mut self, through_a_file: bool, record: &Record) {
        for edit in &record.edits {
            match *edit {
                Edit::Gc { id, gc: true } if !through_a_file => {
                    self.untouched.insert(id);
                }
                Edit::Gc { id, gc: false } => {
                    self.untouched.remove(&id);
                }
                Edit::Delete { id, .. } | Edit::Gone { id } => {
                    self.untouched.remove(&id);
                    self.uncertain.remove(&id);
                }
                _ => {}
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retry {
    at: Duration,
    pause: Duration,
}

/// What is looked at now.
#[derive(Debug)]
pub struct Due {
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// What they, and those above and below them, are called.
    pub names: Vec<Name>,
    /// Not all open files of them are known.
    pub uncertain: bool,
}

/// What this worker knows.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    /// Open files of all nodes.
    pub(crate) handles: Handles,
    /// Who opened them, but root.
    owners: BTreeMap<u64, (NodeId, Caller)>,
    /// Nodes that may be garbage, and when they are looked at.
    candidates: BTreeMap<NodeId, Retry>,
}

impl Collector {
    /// After the death of another worker. What it knew of nodes that could not be collected then is
    /// lost.
    pub(crate) fn taken_over(tree: &Tree, kept: &mut Kept) -> Self {
        let mut collector = Self::default();
        let Kept { handles, owners, .. } = kept;
        // A right may have been taken back just before that worker died.
        handles.retain(|handle, node| {
            tree.get(*node).is_some()
                && owners.get(handle).is_none_or(|who| tree.concerns(who, *node))
        });
        owners.retain(|handle, _| handles.contains_key(handle));
        for (&handle, &node) in &*handles {
            collector.opened(handle, node, owners.get(&handle).cloned());
        }
        for node in tree.iter() {
            if tree.may_be_garbage(node.id) {
                collector.trigger(node.id);
            } else {
                kept.uncertain.insert(node.id);
            }
        }
        collector
    }

    pub(crate) fn trigger(&mut self, node: NodeId) {
        self.candidates.insert(node, Retry { at: Duration::ZERO, pause: PAUSE_MIN });
    }

    pub(crate) fn opened(&mut self, handle: u64, node: NodeId, who: Option<Caller>) {
        self.handles.open(handle, node);
        self.owners.extend(who.map(|who| (handle, (node, who))));
    }

    /// Who opened a file that counts; `None`: root.
    pub(crate) fn owner(&self, handle: u64) -> Option<&Caller> {
        self.owners.get(&handle).map(|(_, who)| who)
    }

    /// Open files of those who have no right at their node any more.
    pub(crate) fn disowned(&self, tree: &Tree) -> Vec<u64> {
        let lost = |(node, who): &(NodeId, Caller)| !tree.concerns(who, *node);
        self.owners.iter().filter(|(_, owner)| lost(owner)).map(|(handle, _)| *handle).collect()
    }

    /// Answers whether there is something to look at.
    pub(crate) fn closed(&mut self, tree: &Tree, handle: u64) -> bool {
        self.owners.remove(&handle);
        let Some(node) = self.handles.close(handle) else { return false };
        let last = self.handles.count(node) == 0 && tree.may_be_garbage(node);
        if last {
            self.trigger(node);
        }
        last
    }

    /// Whoever loses a child may be garbage.
    pub(crate) fn before(&mut self, tree: &Tree, record: &Record) {
        for edit in &record.edits {
            let (Edit::Delete { id, .. } | Edit::Gone { id } | Edit::Move { id, .. }) = *edit
            else {
                continue;
            };
            if let Some(parent) =
                tree.get(id).and_then(|n| n.parent).filter(|id| tree.may_be_garbage(*id))
            {
                self.trigger(parent);
            }
        }
    }

    pub(crate) fn due(&self, now: Duration) -> Vec<NodeId> {
        self.candidates.iter().filter(|(_, retry)| retry.at <= now).map(|(id, _)| *id).collect()
    }

    /// After a sweep: what is still there and not kept by an open file, which tells when it goes,
    /// is tried again.
    pub(crate) fn settle(
        &mut self,
        tree: &Tree,
        now: Duration,
        due: &[NodeId],
        refused: &BTreeSet<NodeId>,
    ) {
        for id in due.iter().chain(refused) {
            let Some(retry) = self.candidates.get_mut(id) else {
                if tree.may_be_garbage(*id) {
                    self.candidates
                        .insert(*id, Retry { at: now + PAUSE_MIN, pause: 2 * PAUSE_MIN });
                }
                continue;
            };
            if !tree.may_be_garbage(*id) || self.handles.count(*id) > 0 {
                self.candidates.remove(id);
                continue;
            }
            // At round times, so that many are looked at together.
            let pause = retry.pause.as_millis().max(1);
            let at = ((now.as_millis() + pause) / pause + 1) * pause;
            let at = Duration::from_millis(u64::try_from(at).unwrap_or(u64::MAX));
            *retry = Retry { at, pause: (2 * retry.pause).min(PAUSE_MAX) };
        }
    }
}
