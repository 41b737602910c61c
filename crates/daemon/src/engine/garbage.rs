// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that nobody refers to go (`crate::collect` says when they are looked at).

use std::collections::BTreeSet;
use std::time::Duration;

use reserv_model::{Caller, DeleteMode, Edit, NodeId, Record, Request};

use super::record::Entry;
use super::{Engine, Refusal};
use crate::collect::Due;

/// Nodes that go in one edit: others than root cause it, and each is a piece of one section of the
/// plane's lock with interrupts off (docs/notes/net.md).
const AT_ONCE: usize = 8;

impl Engine {
    /// A file of a node was opened by somebody. It counts if he has a right there.
    pub fn opened(&mut self, handle: u64, node: NodeId, who: &Caller) -> Result<(), Refusal> {
        if !self.tree.concerns(who, node) {
            return Ok(());
        }
        let keeps = self.tree.may_be_garbage(node);
        if let Err(refusal) = self.note_opened(handle, node, who, keeps) {
            if keeps {
                self.collector.trigger(node);
            }
            return Err(refusal);
        }
        let by = Some(who).filter(|who| who.uid != 0);
        self.collector.opened(&mut self.extras.collect, handle, node, by);
        Ok(())
    }

    fn note_opened(
        &mut self,
        handle: u64,
        node: NodeId,
        who: &Caller,
        keeps: bool,
    ) -> Result<(), Refusal> {
        self.admit_file(Some(handle), who)?;
        if keeps {
            let by = self.extras.collect.told(who);
            self.append(&Entry::Opened { handle, node, who: None, by: by.clone() })?;
            self.extras.collect.opened(handle, node, by);
            self.compact_when_long();
        }
        Ok(())
    }

    /// Whether somebody may have one more file open of those that are kept. `handle`: unless it is
    /// this one.
    pub fn admit_file(&self, handle: Option<u64>, who: &Caller) -> Result<(), Refusal> {
        self.extras.collect.admit(handle, who)
    }

    /// A file was opened to write by who is not root. The next daemon knows it too: what is written
    /// there is bounded by his rights.
    pub fn writes(&mut self, handle: u64, who: &Caller) -> Result<(), Refusal> {
        self.admit_file(Some(handle), who)?;
        let Some(by) = self.extras.collect.told(who) else { return Ok(()) };
        self.append(&Entry::Writes { handle, by: by.clone() })?;
        self.extras.collect.writes(handle, by);
        self.compact_when_long();
        Ok(())
    }

    /// Who opened a file to write; `None`: root.
    pub fn writer(&self, handle: u64) -> Option<Caller> {
        self.extras.collect.writer(handle)
    }

    /// It was closed.
    pub fn writes_no_more(&mut self, handle: u64) {
        if self.extras.collect.writer(handle).is_some() {
            if let Err(error) = self.append(&Entry::Writer { handle, who: None }) {
                tracing::warn!(%error, "not journaled: the next daemon will know a closed file's writer");
            }
            self.extras.collect.writes_no_more(handle);
            self.compact_when_long();
        }
    }

    /// Whether that is the handle of an open file that counts.
    pub fn has_open(&self, handle: u64) -> bool {
        self.collector.handles.has(handle)
    }

    /// Whether a node has open files that count.
    pub fn has_open_files(&self, node: NodeId) -> bool {
        self.collector.handles.count(node) > 0
    }

    /// Rights have changed, or nodes have gone elsewhere: what those opened who have none there any
    /// more is as good as closed.
    pub(super) fn disown(&mut self, record: &Record) {
        if record.edits.iter().any(|e| matches!(e, Edit::Access { .. } | Edit::Move { .. })) {
            for handle in self.collector.disowned(&self.tree, &self.extras.collect) {
                self.closed(handle);
            }
        }
    }

    /// It was closed. Answers whether its node may be garbage now.
    pub fn closed(&mut self, handle: u64) -> bool {
        if self.extras.collect.knows(handle) {
            if let Err(error) = self.append(&Entry::Closed { handle }) {
                tracing::warn!(%error, "not journaled: the next daemon will count a closed file as open");
            }
            self.extras.collect.closed(handle);
            self.compact_when_long();
        }
        self.collector.closed(&self.tree, &mut self.extras.collect, handle)
    }

    /// Nodes may be collected from now on: the next daemon must know their handles. Where no file
    /// will tell by its end, they are looked at: one that was opened by who has no right at the
    /// node itself will not.
    pub(super) fn may_go(&mut self, record: &Record, through_a_file: bool) {
        for edit in &record.edits {
            let Edit::Gc { id, gc: true } = *edit else { continue };
            if !through_a_file || self.collector.handles.count(id) == 0 {
                self.collector.trigger(id);
            }
            let handles: Vec<u64> = self.collector.handles.of(id).collect();
            for handle in handles {
                let by = self.extras.collect.counts(handle);
                let opened = Entry::Opened { handle, node: id, who: None, by: by.clone() };
                if let Err(error) = self.append(&opened) {
                    tracing::warn!(%error, "not journaled: the next daemon will count an open file as closed");
                }
                self.extras.collect.opened(handle, id, by);
            }
        }
    }

    /// Collects what is garbage of the nodes that are due. `weak` are nodes that processes stand
    /// in, and of nodes whose open files are not all known, those that have descriptors.
    pub fn sweep(
        &mut self,
        now: Duration,
        due: &[NodeId],
        weak: &BTreeSet<NodeId>,
    ) -> Result<(), Refusal> {
        let mut refused = BTreeSet::new();
        let done = self.collect_garbage(due, weak, &mut refused);
        self.collector.settle(&self.tree, now, due, &refused);
        done
    }

    fn collect_garbage(
        &mut self,
        due: &[NodeId],
        weak: &BTreeSet<NodeId>,
        refused: &mut BTreeSet<NodeId>,
    ) -> Result<(), Refusal> {
        let around: Vec<NodeId> = self.tree.around(due.iter().copied()).into_iter().collect();
        let refs = if around.is_empty() { Vec::new() } else { self.plane.refs(&around)? };
        let mut used: BTreeSet<NodeId> = weak.clone();
        for (id, refs) in around.iter().zip(refs) {
            if refs.sum() > 0 && self.extras.collect.untouched.contains(id) {
                self.append(&Entry::Used { node: *id })?;
                self.extras.collect.used(*id);
            }
            if refs.sum() > 0 || self.collector.handles.count(*id) > 0 {
                used.insert(*id);
            }
        }
        let untouched = &self.extras.collect.untouched;
        let garbage = self.tree.garbage(due.iter().copied(), |id| {
            used.contains(&id) || untouched.contains(&id) || around.binary_search(&id).is_err()
        });
        for part in garbage.chunks((self.plane.batch_max() / 2).clamp(1, AT_ONCE)) {
            self.delete_all(part, refused);
        }
        Ok(())
    }

    /// Each by itself where not all can go at once: somebody may have come meanwhile.
    fn delete_all(&mut self, nodes: &[NodeId], refused: &mut BTreeSet<NodeId>) {
        let request =
            |id: &NodeId| Request::Delete { node: (*id).into(), mode: DeleteMode::Refuse };
        let requests: Vec<Request> = nodes.iter().map(request).collect();
        match self.edit(&requests, None) {
            Ok(_) => {}
            Err(refusal) if nodes.len() == 1 => {
                tracing::debug!(%refusal, "not collected yet");
                refused.extend(nodes);
            }
            Err(_) => nodes.iter().for_each(|id| self.delete_all(&[*id], refused)),
        }
    }

    /// What the collector looks at now.
    pub fn due(&self, now: Duration) -> Due {
        let nodes = self.collector.due(now);
        let around = self.tree.around(nodes.iter().copied());
        let uncertain = around.iter().any(|id| self.extras.collect.uncertain.contains(id));
        let names = around.iter().filter_map(|id| Some(self.tree.get(*id)?.name.clone())).collect();
        Due { nodes, names, uncertain }
    }
}
