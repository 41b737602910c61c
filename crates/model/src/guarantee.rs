// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a queue is guaranteed whoever else wants: the ground on which threads with deadlines are
//! admitted.
//!
//! From the root down: a child has `weight / Σ weights of all children that exist` of its parent's
//! guarantee, and no more than its cap. Below a `prio` node only a child whose priority is above
//! all others' by more than usage decay can move two of them (one level each,
//! docs/notes/algorithms.md §8.1) has the whole; the others have nothing. Background has nothing.
//!
//! Integers: ns of CPU per second of the whole machine, rounded down at every level; rates of
//! threads are rounded up. So what is admitted fits, and what is refused may have fitted by as many
//! ns/s as there are levels and threads.

use crate::{Kind, Node, NodeId, Policy, ThreadParams, Tree, TuneKey};

/// Levels by which usage decay can change the order of two priorities.
const DECAY_LEVELS: u64 = 2;

impl Tree {
    /// Guaranteed CPU time of a live node in ns per second, of a machine with `capacity` ns per
    /// second; 0 for a node that is gone.
    pub fn guarantee(&self, id: NodeId, capacity: u64) -> u64 {
        let siblings = |parent: &Node| {
            parent
                .children
                .values()
                .filter_map(|&c| self.get(c))
                .map(|n| u64::from(n.weight.milli()))
                .sum()
        };
        self.guarantee_of(id, capacity, siblings)
    }

    /// The same with the sums of the children's weights, in thousandths, at hand.
    pub(crate) fn guarantee_of(
        &self,
        id: NodeId,
        capacity: u64,
        weights: impl Fn(&Node) -> u64,
    ) -> u64 {
        let mut up: Vec<&Node> =
            std::iter::successors(self.get(id), |n| n.parent.and_then(|p| self.get(p))).collect();
        let mut sure = if up.is_empty() { 0 } else { capacity };
        while let Some(node) = up.pop() {
            if let Some(parent) = node.parent.and_then(|p| self.get(p)) {
                sure = self.part(parent, node, sure, &weights);
            }
            sure = node.cap.map_or(sure, |cap| sure.min(cap.per_second()));
        }
        sure
    }

    fn part(&self, parent: &Node, node: &Node, sure: u64, weights: impl Fn(&Node) -> u64) -> u64 {
        let siblings = || parent.children.values().filter_map(|&c| self.get(c));
        if parent.kind == Kind::Scheduler(Policy::Prio) {
            let priority = |n: &Node| {
                n.tune.get(&TuneKey::Priority).copied().unwrap_or(TuneKey::Priority.default_value())
            };
            let above = siblings().filter(|n| n.id != node.id).all(|n| {
                priority(n) == 0 && priority(node) > 0
                    || priority(node) > priority(n) + DECAY_LEVELS
            });
            return if above { sure } else { 0 };
        }
        let all = weights(parent);
        if all == 0 {
            return 0;
        }
        let part = u128::from(sure) * u128::from(node.weight.milli()) / u128::from(all);
        u64::try_from(part).unwrap_or(sure)
    }
}

/// What threads are promised together, in ns per second.
pub fn promised<'a>(params: impl IntoIterator<Item = &'a ThreadParams>) -> u64 {
    params.into_iter().fold(0, |sum, p| sum.saturating_add(p.rate_ns_per_s()))
}
