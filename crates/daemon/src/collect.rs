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
//! * Who opened a file is kept with it, in places that each user has his portion of (`openers.rs`).
//! * A node that the configuration made, with the flag on, is kept until it has had a thread, a
//!   descriptor or a list once: looking at it is no use of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reserv_model::{Caller, Edit, Handles, Name, NodeId, Record, Tree};
use serde::{Deserialize, Serialize};

use crate::openers::{self, OpenedBy, Openers, Use};
use crate::refusal::Refusal;

/// A file's opener is said nowhere: what was read is damaged.
pub(crate) const NOBODY: &str = "a file was opened by nobody";

/// Until a node that is in use is looked at again: first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the journal keeps for the collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Saved", into = "Saved")]
pub(crate) struct Kept {
    /// Open files of nodes that may be collected.
    handles: BTreeMap<u64, NodeId>,
    /// Who opened them, and files to write, but root.
    openers: Openers,
    /// Nodes that the configuration made, with the flag on, and that nobody has used yet.
    pub(crate) untouched: BTreeSet<NodeId>,
    /// Nodes whose files were perhaps opened under a daemon that died without telling.
    pub(crate) uncertain: BTreeSet<NodeId>,
}

impl Kept {
    /// A new mount: no file of the old one can be used.
    pub(crate) fn new_session(&mut self) {
        self.handles.clear();
        self.openers.clear();
        self.uncertain.clear();
    }

    pub(crate) fn knows(&self, handle: u64) -> bool {
        self.handles.contains_key(&handle)
    }

    /// Whether somebody may have one more file open. `handle`: unless it is this one.
    pub(crate) fn admit(&self, handle: Option<u64>, who: &Caller) -> Result<(), Refusal> {
        self.openers.admit(handle, who)
    }

    /// Somebody, as the journal is told; `None`: root.
    pub(crate) fn told(&self, who: &Caller) -> Option<OpenedBy> {
        (who.uid != 0).then(|| self.openers.told(who))
    }

    /// Who opened a file that counts, as the journal is told; `None`: root.
    pub(crate) fn counts(&self, handle: u64) -> Option<OpenedBy> {
        Some(self.openers.told(&self.openers.get(handle, Use::Counts)?))
    }

    /// Who opened a file to write; `None`: root.
    pub(crate) fn writer(&self, handle: u64) -> Option<Caller> {
        self.openers.get(handle, Use::Writes)
    }

    /// A file was opened to write. False: the journal has not said by whom.
    pub(crate) fn writes(&mut self, handle: u64, by: OpenedBy) -> bool {
        self.openers.add(handle, Use::Writes, by)
    }

    /// The same as a worker of an earlier version says it.
    pub(crate) fn written_by(&mut self, handle: u64, who: &Caller) {
        self.openers.add_caller(handle, Use::Writes, who);
    }

    pub(crate) fn writes_no_more(&mut self, handle: u64) {
        self.openers.remove(handle, Use::Writes);
    }

    /// A file of a node that may be collected was opened; of root, if nobody is named. False: the
    /// journal has not said by whom.
    pub(crate) fn opened(&mut self, handle: u64, node: NodeId, by: Option<OpenedBy>) -> bool {
        self.handles.insert(handle, node);
        by.is_none_or(|by| self.openers.add(handle, Use::Keeps, by))
    }

    /// The same as a worker of an earlier version says it.
    pub(crate) fn opened_by(&mut self, handle: u64, node: NodeId, who: &Caller) {
        self.handles.insert(handle, node);
        self.openers.add_caller(handle, Use::Keeps, who);
    }

    pub(crate) fn closed(&mut self, handle: u64) {
        self.handles.remove(&handle);
        self.openers.remove(handle, Use::Keeps);
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

/// The same as it stands in a snapshot.
#[derive(Serialize, Deserialize)]
struct Saved {
    handles: BTreeMap<u64, NodeId>,
    #[serde(default)]
    openers: openers::Saved,
    /// By a worker of an earlier version: who opened which.
    #[serde(default, skip_serializing)]
    owners: BTreeMap<u64, Caller>,
    /// The same of those who opened them to write.
    #[serde(default, skip_serializing)]
    writers: BTreeMap<u64, Caller>,
    untouched: BTreeSet<NodeId>,
    uncertain: BTreeSet<NodeId>,
}

impl From<Kept> for Saved {
    fn from(kept: Kept) -> Self {
        let Kept { handles, openers, untouched, uncertain } = kept;
        let (owners, writers) = Default::default();
        Self { handles, openers: openers.saved(), owners, writers, untouched, uncertain }
    }
}

impl TryFrom<Saved> for Kept {
    type Error = &'static str;

    fn try_from(saved: Saved) -> Result<Self, Self::Error> {
        let Saved { handles, openers, owners, writers, untouched, uncertain } = saved;
        let mut openers = Openers::read(openers).ok_or(NOBODY)?;
        for (files, what) in [(owners, Use::Keeps), (writers, Use::Writes)] {
            for (handle, who) in files {
                openers.add_caller(handle, what, &who);
            }
        }
        Ok(Self { handles, openers, untouched, uncertain })
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
    /// Those that not root opened.
    owned: BTreeMap<u64, NodeId>,
    /// Nodes that may be garbage, and when they are looked at.
    candidates: BTreeMap<NodeId, Retry>,
}

impl Collector {
    /// After the death of another worker. What it knew of nodes that could not be collected then is
    /// lost.
    pub(crate) fn taken_over(tree: &Tree, kept: &mut Kept) -> Self {
        let mut collector = Self::default();
        for (handle, node) in std::mem::take(&mut kept.handles) {
            let who = kept.openers.get(handle, Use::Keeps);
            // A right may have been taken back just before that worker died.
            let counts =
                tree.get(node).is_some() && who.as_ref().is_none_or(|who| tree.concerns(who, node));
            if counts {
                kept.handles.insert(handle, node);
                collector.opened(kept, handle, node, who.as_ref());
            } else {
                kept.closed(handle);
            }
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

    /// By root, if nobody is named.
    pub(crate) fn opened(
        &mut self,
        kept: &mut Kept,
        handle: u64,
        node: NodeId,
        who: Option<&Caller>,
    ) {
        self.handles.open(handle, node);
        if let Some(who) = who {
            self.owned.insert(handle, node);
            kept.openers.add_caller(handle, Use::Counts, who);
        }
    }

    /// Open files of those who have no right at their node any more.
    pub(crate) fn disowned(&self, tree: &Tree, kept: &Kept) -> Vec<u64> {
        let lost = |(handle, node): &(&u64, &NodeId)| {
            let who = kept.openers.get(**handle, Use::Counts);
            who.is_some_and(|who| !tree.concerns(&who, **node))
        };
        self.owned.iter().filter(lost).map(|(handle, _)| *handle).collect()
    }

    /// Answers whether there is something to look at.
    pub(crate) fn closed(&mut self, tree: &Tree, kept: &mut Kept, handle: u64) -> bool {
        self.owned.remove(&handle);
        kept.openers.remove(handle, Use::Counts);
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
