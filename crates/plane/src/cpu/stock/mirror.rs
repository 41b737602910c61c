// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree as the driver knows it: pure bookkeeping, no cgroup is touched here.
//!
//! A batch is applied to a copy first; only when every op is valid are the cgroups changed to
//! match.

use std::collections::{BTreeMap, BTreeSet};

use reserv_model::{Cap, Class, DeleteMode, Kind, NODES_MAX, NodeId, Op, Outcome, Policy, Weight};
use serde::{Deserialize, Serialize};

use crate::PlaneError;
use crate::cgroup::component;
use crate::cgroup::weights::{self, Range, Share};

/// Service that a node received in cgroups that are gone (a move makes a new one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    pub(super) service_ns: u64,
    pub(super) throttled_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) id: NodeId,
    /// `None` for the root alone.
    pub(super) parent: Option<NodeId>,
    pub(super) scheduler: bool,
    pub(super) weight: Weight,
    pub(super) cap: Option<Cap>,
    /// 0: no limit of its own.
    pub(super) members_max: u32,
    pub(super) draining: bool,
    pub(super) carried: Carried,
    /// Service at the last reset of the counters.
    pub(super) reset_service_ns: u64,
}

impl Node {
    fn new(id: NodeId, parent: Option<NodeId>, scheduler: bool, weight: Weight) -> Self {
        Self {
            id,
            parent,
            scheduler,
            weight,
            cap: None,
            members_max: 0,
            draining: false,
            carried: Carried::default(),
            reset_service_ns: 0,
        }
    }
}

impl Node {
    /// What its cgroup may use: its own cap, or its parent's where a child may not have more.
    fn quota(&self, above: Option<Quota>, shape: &Shape) -> Option<Quota> {
        let rate = |q: Quota| u128::from(q.quota_us) * 1_000_000 / u128::from(q.period_us);
        match (self.cap.and_then(Quota::of), above) {
            (Some(own), Some(parent)) if shape.quotas_nest && rate(own) > rate(parent) => {
                Some(parent)
            }
            (own, _) => own,
        }
    }
}

/// The part of a tree that a change can touch: an edit of one node costs no more than its siblings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// Scheduler nodes whose children are set anew.
    pub(super) sets: BTreeSet<NodeId>,
    /// Nodes whose directories are looked at.
    pub(super) nodes: BTreeSet<NodeId>,
}

/// What the tree needs to know about the world to judge an edit.
pub(super) trait Facts {
    /// Threads in a queue.
    fn members(&self, id: NodeId) -> Result<usize, PlaneError>;
    /// Service since the node was made.
    fn service_ns(&self, id: NodeId) -> Result<u64, PlaneError>;
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mirror {
    nodes: BTreeMap<u32, Node>,
    /// The last generation of slots whose node is gone.
    gone: BTreeMap<u32, u32>,
}

/// See [`Mirror::since`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    changed: Vec<Node>,
    gone: Vec<(u32, u32)>,
}

/// A bandwidth limit in the kernel's words.
#[expect(clippy::struct_field_names, reason = "units come last in names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    pub(super) quota_us: u64,
    pub(super) period_us: u64,
    pub(super) burst_us: u64,
}

impl Quota {
    /// The period is the kernel's usual 100 ms, or 1 s where the quota would fall below its least,
    /// 1 ms.
    pub(super) fn of(cap: Cap) -> Option<Self> {
        let (quota_us, period_us) = match cap.rate_ns_per_s / 10_000 {
            0..1_000 => (cap.rate_ns_per_s / 1_000, 1_000_000),
            quota => (quota, 100_000),
        };
        // The kernel accepts no burst above the quota.
        let burst_us = (cap.burst_ns / 1_000).min(quota_us);
        // Its own ceiling is 2^44 - 1 µs for quota and burst together.
        (quota_us >= 1_000 && quota_us + burst_us < 1 << 44).then_some(Self {
            quota_us,
            period_us,
            burst_us,
        })
    }
}

/// What a node's cgroup is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr {
    pub(super) share: Share,
    pub(super) quota: Option<Quota>,
}

/// What the mechanism asks of attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) range: Range,
    /// The kernel has `cpu.idle`.
    pub(super) idle: bool,
    /// A child's quota may not exceed its parent's (v1).
    pub(super) quotas_nest: bool,
    /// Weight of everything beside our tree.
    pub(super) outside: u32,
}

fn text(id: NodeId) -> String {
    format!("{}.{}", id.index, id.generation)
}

fn unsupported<T>(reason: &str) -> Result<T, PlaneError> {
    Err(PlaneError::Unsupported(reason.to_owned()))
}

fn invalid<T>(reason: String) -> Result<T, PlaneError> {
    Err(PlaneError::Invalid(reason))
}

/// Why a class is refused, if it is.
pub(super) fn class_refused(class: Class) -> Option<String> {
    (class != Class::Ts).then(|| {
        format!("class {class:?}: the kernel's own scheduler orders the threads of a cgroup (class ts only)")
            .to_lowercase()
    })
}

pub(super) fn policy_refused(policy: Policy) -> Option<String> {
    (policy != Policy::Sfq).then(|| {
        format!("policy {policy:?}: cgroups are ordered by the kernel's fair scheduler only")
            .to_lowercase()
    })
}

const NO_TUNABLES: &str =
    "tunables: the kernel's fair scheduler has no settings of a cgroup but weight and cap";
const Q0_UNLIMITED: &str = "q0 has no limit of members: it is everyone without another tag";

/// What this driver cannot do, in words.
pub(crate) fn refused(op: &Op) -> Option<String> {
    match *op {
        Op::SetClass { class, .. } | Op::Create { kind: Kind::Queue(class), .. } => {
            class_refused(class)
        }
        Op::SetPolicy { policy, .. } | Op::Create { kind: Kind::Scheduler(policy), .. } => {
            policy_refused(policy)
        }
        Op::Tune { .. } | Op::NodeParam { .. } => Some(NO_TUNABLES.to_owned()),
        Op::SetLimit { id: NodeId::Q0, members_max: 1.., .. } => Some(Q0_UNLIMITED.to_owned()),
        _ => None,
    }
}

impl Mirror {
    /// The empty tree: root and q0.
    pub(super) fn new() -> Self {
        let root = Node::new(NodeId::ROOT, None, true, Weight::DEFAULT);
        let q0 = Node::new(NodeId::Q0, Some(NodeId::ROOT), false, Weight::DEFAULT);
        Self {
            nodes: [root, q0].into_iter().map(|n| (n.id.index, n)).collect(),
            gone: BTreeMap::new(),
        }
    }

    pub(super) fn get(&self, id: NodeId) -> Result<&Node, PlaneError> {
        self.nodes.get(&id.index).filter(|n| n.id == id).ok_or_else(|| PlaneError::NoNode(text(id)))
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Result<&mut Node, PlaneError> {
        self.nodes
            .get_mut(&id.index)
            .filter(|n| n.id == id)
            .ok_or_else(|| PlaneError::NoNode(text(id)))
    }

    /// In order of index.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    fn children(&self, id: NodeId) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(move |n| n.parent == Some(id))
    }

    /// Puts a node that was found in cgroupfs.
    pub(super) fn insert(
        &mut self,
        id: NodeId,
        parent: NodeId,
        scheduler: bool,
        weight: Weight,
    ) -> &mut Node {
        self.nodes.insert(id.index, Node::new(id, Some(parent), scheduler, weight));
        self.nodes.get_mut(&id.index).expect("just inserted")
    }

    /// Takes a drained node out.
    pub(super) fn forget(&mut self, id: NodeId) {
        if self.get(id).is_ok() {
            self.nodes.remove(&id.index);
            self.gone.insert(id.index, id.generation);
        }
    }

    /// Where a node's cgroup lies below the root's: `""` for the root itself, else `/s4.1/q7.2`.
    pub(super) fn path(&self, id: NodeId) -> Result<String, PlaneError> {
        let mut parts = Vec::new();
        let mut node = self.get(id)?;
        while let Some(parent) = node.parent {
            parts.push(component(node.id, node.scheduler));
            node = self.get(parent)?;
        }
        Ok(parts.iter().rev().fold(String::new(), |path, part| path + "/" + part))
    }

    /// All paths, parents before children.
    pub(super) fn paths(&self) -> Vec<(NodeId, String)> {
        let mut below: BTreeMap<NodeId, Vec<&Node>> = BTreeMap::new();
        for node in self.nodes.values() {
            if let Some(parent) = node.parent {
                below.entry(parent).or_default().push(node);
            }
        }
        let mut out = vec![(NodeId::ROOT, String::new())];
        let mut at = 0;
        while let Some((id, path)) = out.get(at).cloned() {
            for child in below.get(&id).into_iter().flatten() {
                out.push((child.id, format!("{path}/{}", component(child.id, child.scheduler))));
            }
            at += 1;
        }
        out
    }

    /// What cgroups are set to, and the scheduler nodes whose children's ratios are not kept
    /// exactly: of the children of `sets` (and of the root itself, if it is one of them), or of
    /// all.
    pub(super) fn attributes(
        &self,
        shape: &Shape,
        sets: Option<&BTreeSet<NodeId>>,
    ) -> (BTreeMap<NodeId, Attr>, Vec<NodeId>) {
        let mut siblings: BTreeMap<NodeId, Vec<&Node>> = BTreeMap::new();
        for node in self.nodes.values() {
            if let Some(parent) = node.parent
                && sets.is_none_or(|sets| sets.contains(&parent))
            {
                siblings.entry(parent).or_default().push(node);
            }
        }
        let mut out = BTreeMap::new();
        if sets.is_none_or(|sets| sets.contains(&NodeId::ROOT)) {
            let (q0, others) = (self.q0_weight(), self.others_milli());
            let top = weights::against_outside(shape.outside, q0, others, shape.range);
            out.insert(NodeId::ROOT, Attr { share: Share::Weight(top), quota: None });
        }
        let mut inexact = Vec::new();
        for (id, set) in siblings {
            let above = self.bound(id, shape);
            let scaled = weights::scale(
                &set.iter().map(|n| n.weight).collect::<Vec<_>>(),
                shape.range,
                shape.idle,
            );
            if !scaled.exact {
                inexact.push(id);
            }
            for (node, share) in set.iter().zip(scaled.shares) {
                out.insert(node.id, Attr { share, quota: node.quota(above, shape) });
            }
        }
        (out, inexact)
    }

    /// The tightest quota on the way from the root down to a node, its own included.
    fn bound(&self, id: NodeId, shape: &Shape) -> Option<Quota> {
        let node = self.nodes.get(&id.index)?;
        let above = self.bound(node.parent?, shape);
        node.quota(above, shape).or(above)
    }

    /// What of the cgroups may differ between this tree and another.
    pub(super) fn scope(&self, other: &Self, shape: &Shape) -> Scope {
        let mut scope = Scope::default();
        // Nodes with all below them: their directories are other ones, or their quotas may be.
        let mut deep = BTreeSet::new();
        for (one, two) in [(self, other), (other, self)] {
            for node in one.nodes.values() {
                let twin = two.nodes.get(&node.id.index).filter(|twin| twin.id == node.id);
                let place = |n: &Node| (n.parent, n.scheduler);
                let moved = twin.is_none_or(|twin| place(twin) != place(node));
                let capped = twin.is_none_or(|twin| twin.cap != node.cap);
                if moved || capped || twin.is_none_or(|twin| twin.weight != node.weight) {
                    // The siblings' weights are scaled as a set. The root's own depends on its
                    // children's.
                    scope.sets.extend(node.parent);
                }
                if moved || capped && shape.quotas_nest {
                    deep.insert(node.id);
                }
            }
        }
        for tree in [self, other] {
            let mut grown = !deep.is_empty();
            while grown {
                let below =
                    tree.nodes.values().filter(|n| n.parent.is_some_and(|p| deep.contains(&p)));
                let more: Vec<NodeId> =
                    below.map(|n| n.id).filter(|id| !deep.contains(id)).collect();
                grown = !more.is_empty();
                deep.extend(more);
            }
        }
        scope.sets.extend(deep);
        for tree in [self, other] {
            let children =
                tree.nodes.values().filter(|n| n.parent.is_some_and(|p| scope.sets.contains(&p)));
            scope.nodes.extend(children.map(|n| n.id));
        }
        if scope.sets.contains(&NodeId::ROOT) {
            scope.nodes.insert(NodeId::ROOT);
        }
        scope
    }

    /// Paths of those of these nodes that are there, parents before children.
    pub(super) fn paths_of(&self, nodes: &BTreeSet<NodeId>) -> Vec<(NodeId, String)> {
        let mut out: Vec<_> =
            nodes.iter().filter_map(|id| Some((*id, self.path(*id).ok()?))).collect();
        out.sort_by_key(|(_, path)| path.bytes().filter(|b| *b == b'/').count());
        out
    }

    pub(super) fn q0_weight(&self) -> Weight {
        self.nodes.get(&NodeId::Q0.index).map_or(Weight::BACKGROUND, |n| n.weight)
    }

    /// Weights of q0's siblings together.
    pub(super) fn others_milli(&self) -> u64 {
        self.children(NodeId::ROOT)
            .filter(|n| n.id != NodeId::Q0)
            .map(|n| u64::from(n.weight.milli()))
            .sum()
    }

    /// What makes this tree out of an older one: nodes that are new or other than they were, and
    /// the slots whose last generation has gone since.
    pub(super) fn since(&self, old: &Self) -> Change {
        let changed = self.nodes.iter().filter(|(index, node)| old.nodes.get(index) != Some(node));
        let gone =
            self.gone.iter().filter(|(index, generation)| old.gone.get(index) != Some(generation));
        Change {
            changed: changed.map(|(_, node)| node.clone()).collect(),
            gone: gone.map(|(index, generation)| (*index, *generation)).collect(),
        }
    }

    /// The reverse of [`Mirror::since`].
    pub(super) fn catch_up(&mut self, change: Change) {
        for (index, generation) in change.gone {
            self.nodes.remove(&index);
            self.gone.insert(index, generation);
        }
        self.nodes.extend(change.changed.into_iter().map(|node| (node.id.index, node)));
    }

    fn scheduler(&self, id: NodeId) -> Result<&Node, PlaneError> {
        let node = self.get(id)?;
        if node.scheduler {
            Ok(node)
        } else {
            invalid(format!("{} is a queue and has no children", text(id)))
        }
    }

    fn queue(&self, id: NodeId) -> Result<&Node, PlaneError> {
        let node = self.get(id)?;
        if node.scheduler {
            invalid(format!("{} is a scheduler node, not a queue", text(id)))
        } else {
            Ok(node)
        }
    }

    /// Applies one op to the bookkeeping. `replay`: what is already so is no error (used where it
    /// is not known which batches are in effect).
    pub(super) fn edit(
        &mut self,
        op: &Op,
        facts: &dyn Facts,
        replay: bool,
    ) -> Result<Outcome, PlaneError> {
        match *op {
            Op::Create { id, parent, kind } => self.create(id, parent, kind, replay)?,
            Op::Delete { id, mode } => return self.delete(id, mode, facts, replay),
            Op::Reweight { id, weight } => {
                if id == NodeId::ROOT {
                    return invalid("the share of the whole resource is read-only".into());
                }
                self.get_mut(id)?.weight = weight;
            }
            Op::SetCap { id, cap } => self.set_cap(id, cap)?,
            Op::SetClass { id, class } => {
                self.queue(id)?;
                if let Some(reason) = class_refused(class) {
                    return Err(PlaneError::Unsupported(reason));
                }
            }
            Op::SetPolicy { id, policy } => {
                self.scheduler(id)?;
                if let Some(reason) = policy_refused(policy) {
                    return Err(PlaneError::Unsupported(reason));
                }
            }
            Op::Tune { .. } | Op::NodeParam { .. } => {
                return unsupported(NO_TUNABLES);
            }
            Op::SetLimit { id, members_max, .. } => {
                self.queue(id)?;
                if id == NodeId::Q0 && members_max != 0 {
                    return unsupported(Q0_UNLIMITED);
                }
                self.get_mut(id)?.members_max = members_max;
            }
            Op::ResetCounters { id } => {
                self.queue(id)?;
                let now = facts.service_ns(id)?;
                self.get_mut(id)?.reset_service_ns = now;
            }
            Op::Move { id, parent } => self.hang(id, parent)?,
        }
        Ok(Outcome::Done)
    }

    fn create(
        &mut self,
        id: NodeId,
        parent: NodeId,
        kind: Kind,
        replay: bool,
    ) -> Result<(), PlaneError> {
        let scheduler = match kind {
            Kind::Scheduler(policy) => {
                if let Some(reason) = policy_refused(policy) {
                    return Err(PlaneError::Unsupported(reason));
                }
                true
            }
            Kind::Queue(class) => {
                if let Some(reason) = class_refused(class) {
                    return Err(PlaneError::Unsupported(reason));
                }
                false
            }
        };
        self.scheduler(parent)?;
        if id.index >= NODES_MAX {
            return Err(PlaneError::Full(format!("a tree has at most {NODES_MAX} nodes")));
        }
        if let Some(node) = self.nodes.get(&id.index) {
            if replay && node.id == id && node.parent == Some(parent) && node.scheduler == scheduler
            {
                return Ok(());
            }
            return invalid(format!("slot {} is taken by {}", id.index, text(node.id)));
        }
        let last = self.gone.get(&id.index).copied().unwrap_or(0);
        // A replay may make again what its own later op deletes.
        if id.generation < last || id.generation == 0 || (id.generation == last && !replay) {
            return invalid(format!(
                "{} is not newer than generation {last} of its slot",
                text(id)
            ));
        }
        self.nodes.insert(id.index, Node::new(id, Some(parent), scheduler, Weight::BACKGROUND));
        Ok(())
    }

    fn delete(
        &mut self,
        id: NodeId,
        mode: DeleteMode,
        facts: &dyn Facts,
        replay: bool,
    ) -> Result<Outcome, PlaneError> {
        if id == NodeId::ROOT || id == NodeId::Q0 {
            return invalid(format!(
                "{} cannot be deleted",
                if id == NodeId::ROOT { "the root" } else { "q0" }
            ));
        }
        if replay && self.get(id).is_err() {
            return Ok(Outcome::Done);
        }
        let node = self.get(id)?;
        if self.children(id).next().is_some() {
            return Err(PlaneError::Busy(format!("{} has children", text(id))));
        }
        let members = if node.scheduler { 0 } else { facts.members(id)? };
        match mode {
            DeleteMode::Refuse if members > 0 => {
                let noun = if members == 1 { "member" } else { "members" };
                Err(PlaneError::Busy(format!("{} has {members} {noun}", text(id))))
            }
            DeleteMode::Drain if members > 0 => {
                self.get_mut(id)?.draining = true;
                Ok(Outcome::Draining)
            }
            _ => {
                self.forget(id);
                Ok(Outcome::Done)
            }
        }
    }

    fn set_cap(&mut self, id: NodeId, cap: Option<Cap>) -> Result<(), PlaneError> {
        self.get(id)?;
        if id == NodeId::ROOT || id == NodeId::Q0 {
            if cap.is_none() {
                return Ok(());
            }
            return unsupported(
                "a cap on the root or on q0: most of q0's threads live in cgroups that are not ours",
            );
        }
        if let Some(cap) = cap
            && Quota::of(cap).is_none()
        {
            return unsupported("the kernel's caps lie between 1ms/s and 2^44 us of quota");
        }
        self.get_mut(id)?.cap = cap;
        Ok(())
    }

    fn hang(&mut self, id: NodeId, parent: NodeId) -> Result<(), PlaneError> {
        self.get(id)?;
        if id == NodeId::ROOT {
            return invalid("the root cannot be moved".into());
        }
        if id == NodeId::Q0 {
            return unsupported("moving q0: most of its threads live in cgroups that are not ours");
        }
        let mut above = Some(self.scheduler(parent)?.id);
        while let Some(at) = above {
            if at == id {
                return invalid(format!("{} lies in {} itself", text(parent), text(id)));
            }
            above = self.get(at)?.parent;
        }
        self.get_mut(id)?.parent = Some(parent);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        let of = |rate, burst| Quota::of(Cap { rate_ns_per_s: rate, burst_ns: burst });
        assert_eq!(
            of(250_000_000, 0),
            Some(Quota { quota_us: 25_000, period_us: 100_000, burst_us: 0 })
        );
        assert_eq!(
            of(1_000_000, 9_000_000),
            Some(Quota { quota_us: 1_000, period_us: 1_000_000, burst_us: 1_000 })
        );
        assert_eq!(of(999_999, 0), None);
        assert_eq!(of(0, 0), None);
        assert_eq!(of(u64::MAX, 0), None);
    }
}
