// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which nodes are garbage (Eclipse/BSD §2.6): nobody refers to them, and they may go.
//!
//! A node may go when its flag is on, nobody refers to it, it does not drain, and every node below
//! it may go too. What refers to it (open files, current directories, tags, lists) is the caller's
//! to say. Where a node's last reference went, its subtree is tried, and then the nodes above it,
//! as far as they have nothing else left.

use std::collections::{BTreeMap, BTreeSet};

use crate::{NodeId, Tree};

/// Open files of the name space by handle, and how many each node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handles {
    nodes: BTreeMap<u64, NodeId>,
    counts: BTreeMap<NodeId, u32>,
}

impl Handles {
    /// A file of a node was opened. The same handle again is the same open file.
    pub fn open(&mut self, handle: u64, node: NodeId) {
        self.close(handle);
        self.nodes.insert(handle, node);
        *self.counts.entry(node).or_default() += 1;
    }

    /// It was closed: which node has one less. Unknown handles are closed already.
    pub fn close(&mut self, handle: u64) -> Option<NodeId> {
        let node = self.nodes.remove(&handle)?;
        if let Some(count) = self.counts.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&node);
            }
        }
        Some(node)
    }

    /// Whether it is open.
    pub fn has(&self, handle: u64) -> bool {
        self.nodes.contains_key(&handle)
    }

    /// Open files of a node.
    pub fn count(&self, node: NodeId) -> u32 {
        self.counts.get(&node).copied().unwrap_or(0)
    }

    /// Handles of a node.
    pub fn of(&self, node: NodeId) -> impl Iterator<Item = u64> + '_ {
        self.nodes.iter().filter(move |(_, of)| **of == node).map(|(handle, _)| *handle)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u64, NodeId)> + '_ {
        self.nodes.iter().map(|(handle, node)| (*handle, *node))
    }
}

impl Tree {
    /// Whether the node itself may go, whatever refers to it and hangs below it.
    pub fn may_be_garbage(&self, id: NodeId) -> bool {
        id != NodeId::ROOT && id != NodeId::Q0 && self.get(id).is_some_and(|n| n.gc && !n.draining)
    }

    /// The nodes whose references decide about these: of [`Tree::garbage`] for the same nodes,
    /// which looks at no others.
    pub fn around(&self, triggers: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
        let (mut at_or_below, mut above) = (BTreeSet::new(), BTreeSet::new());
        for trigger in triggers {
            let mut below = vec![trigger];
            while let Some(id) = below.pop() {
                if let Some(node) = self.get(id).filter(|_| self.may_be_garbage(id))
                    && at_or_below.insert(id)
                {
                    below.extend(node.children.values());
                }
            }
            let mut at = self.get(trigger).and_then(|n| n.parent);
            while let Some(id) = at.filter(|id| self.may_be_garbage(*id) && above.insert(*id)) {
                at = self.get(id).and_then(|n| n.parent);
            }
        }
        at_or_below.append(&mut above);
        at_or_below
    }

    /// The garbage at these nodes, below and above them; children stand before their parents.
    /// `used` says what is referred to. Siblings are not tried: each was itself looked at when its
    /// last reference went.
    pub fn garbage(
        &self,
        triggers: impl IntoIterator<Item = NodeId>,
        used: impl Fn(NodeId) -> bool,
    ) -> Vec<NodeId> {
        let mut go = Go { tree: self, used, verdicts: BTreeMap::new(), garbage: Vec::new() };
        let parent = |id| self.get(id).and_then(|n| n.parent);
        let mut above: BTreeSet<NodeId> =
            triggers.into_iter().filter(|id| go.decide(*id)).filter_map(parent).collect();
        while let Some(id) = above.pop_first() {
            if go.left_empty(id) {
                above.extend(parent(id));
            }
        }
        go.garbage
    }
}

struct Go<'t, F> {
    tree: &'t Tree,
    used: F,
    /// Final: everything below was looked at.
    verdicts: BTreeMap<NodeId, bool>,
    garbage: Vec<NodeId>,
}

impl<F: Fn(NodeId) -> bool> Go<'_, F> {
    /// Whether a node goes; what goes below it is noted before it. The depth of trees is bounded,
    /// so is the recursion.
    fn decide(&mut self, id: NodeId) -> bool {
        if let Some(verdict) = self.verdicts.get(&id) {
            return *verdict;
        }
        let Some(node) = self.tree.get(id).filter(|_| self.tree.may_be_garbage(id)) else {
            return false;
        };
        // All children are tried, also when one of them stays.
        let mut empty = true;
        for &child in node.children.values() {
            empty &= self.decide(child);
        }
        let verdict = empty && !(self.used)(id);
        self.verdicts.insert(id, verdict);
        if verdict {
            self.garbage.push(id);
        }
        verdict
    }

    /// Whether a node goes because all its children do.
    fn left_empty(&mut self, id: NodeId) -> bool {
        if let Some(verdict) = self.verdicts.get(&id) {
            return *verdict;
        }
        let Some(node) = self.tree.get(id).filter(|_| self.tree.may_be_garbage(id)) else {
            return false;
        };
        let empty = node.children.values().all(|child| self.verdicts.get(child) == Some(&true));
        let verdict = empty && !(self.used)(id);
        if verdict {
            self.verdicts.insert(id, true);
            self.garbage.push(id);
        }
        verdict
    }
}
