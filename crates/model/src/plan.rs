// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests, and the plans that they become.
//!
//! The order of one change: [`Tree::plan`] (refuses, changes nothing) → the journal writes
//! [`Plan::record`] → the plane applies [`Plan::batch`] → [`Tree::commit`]. A plan that the plane
//! refused is dropped; its record is cancelled in the journal. A [`DeleteMode::Drain`] leaves the
//! node in the tree, marked; when the plane says that it is gone, at once ([`Plan::drained`]) or
//! later, [`Tree::plan_gone`] makes the plan that forgets it.

mod requests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::edit::Edit;
use crate::fixed::{self, Unsolved};
use crate::{
    AccessChange, Batch, Caller, Cap, ChangedAccess, Class, DeleteMode, Error, ErrorKind,
    FIXED_MAX, Fixed, Name, NewKind, Node, NodeId, NodePath, Op, Outcome, Personality, Policy,
    Record, Share, Tree, TuneChange, Weight,
};

/// A node as a request names it: by handle (files), or by path (configuration; may be made by an
/// earlier request of the same plan).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRef {
    /// By handle.
    Id(NodeId),
    /// By path below the resource.
    Path(NodePath),
    /// A child by name.
    Child(NodeId, Name),
}

impl From<NodeId> for NodeRef {
    fn from(id: NodeId) -> Self {
        Self::Id(id)
    }
}

impl From<NodePath> for NodeRef {
    fn from(path: NodePath) -> Self {
        Self::Path(path)
    }
}

/// What somebody wants changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it: which node, and its new value")]
pub enum Request {
    /// Make a node. No name: the lowest free `qN` or `rN`, and it is collected when nothing refers
    /// to it. No policy or class: the personality's. No share: weight 0, which breaks no promise.
    Create { parent: NodeRef, name: Option<Name>, kind: NewKind, share: Option<Share> },
    /// Remove a node without children.
    Delete { node: NodeRef, mode: DeleteMode },
    /// Says that the node is not draining; refused if it is. (What the `state` file reads can be
    /// written.)
    Active { node: NodeRef },
    /// Set weight and minimum.
    SetShare { node: NodeRef, share: Share },
    /// Set or clear the cap.
    SetCap { node: NodeRef, cap: Option<Cap> },
    /// Set a queue's class.
    SetClass { node: NodeRef, class: Class },
    /// Set a scheduler node's policy.
    SetPolicy { node: NodeRef, policy: Policy },
    /// Set what new nodes are, and the root's policy and tunables with it.
    SetPersonality { personality: Personality },
    /// Set tunables, those that are named.
    SetTune { node: NodeRef, change: TuneChange },
    /// Set the limits of a queue, of members (packets) and, on links, of bytes; 0 is none of its
    /// own.
    SetLimit { node: NodeRef, members_max: u32, bytes_max: u32 },
    /// Reset the counters that `backlog` shows.
    ResetCounters { node: NodeRef },
    /// Set the collection flag.
    SetGc { node: NodeRef, gc: bool },
    /// Change an access list.
    SetAccess { node: NodeRef, change: AccessChange },
    /// Make access lists what they were, as far as their nodes are still there.
    PutBackAccess { lists: Vec<ChangedAccess> },
    /// Give another name within the same parent.
    Rename { node: NodeRef, name: Name },
    /// Hang a node with all below it under another scheduler node; without a name it keeps its own.
    Move { node: NodeRef, parent: NodeRef, name: Option<Name> },
}

/// A change that has been checked against the tree as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    base: u64,
    edits: Vec<Edit>,
    created: Vec<NodeId>,
}

impl Plan {
    /// With a note on the new nodes of who made them, and through which entry.
    #[must_use]
    pub fn made_by(mut self, tree: &Tree, who: &Caller) -> Self {
        if who.uid != 0 {
            let made: Vec<Edit> = self
                .edits
                .iter()
                .filter_map(|edit| match *edit {
                    Edit::Create { id, parent, .. } => Some(Edit::Made {
                        id,
                        maker: who.uid,
                        through: tree.made_through(who, parent),
                    }),
                    _ => None,
                })
                .collect();
            self.edits.extend(made);
        }
        self
    }

    /// Whether nothing is to be done: everything is as asked for. Needs no record and no batch.
    pub const fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// In order.
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }

    /// The new nodes, in order of the `Create` requests.
    pub fn created(&self) -> &[NodeId] {
        &self.created
    }

    /// Edits for the plane, in order.
    pub fn ops(&self) -> Vec<Op> {
        self.edits.iter().filter_map(Edit::op).collect()
    }

    /// For the journal.
    pub fn record(&self) -> Record {
        Record { seq: self.base + 1, edits: self.edits.clone() }
    }

    /// For the plane, with the record's number. Its `ops` may be empty (a rename): then the plane
    /// need not be called.
    pub fn batch(&self) -> Batch {
        Batch { seq: self.base + 1, ops: self.ops() }
    }

    /// Which drained queues the plane removed at once, from its outcomes (one per op of the batch):
    /// forget them with [`Tree::plan_gone`] after the commit.
    pub fn drained(&self, outcomes: &[Outcome]) -> Vec<NodeId> {
        let ops = self.ops();
        ops.iter()
            .zip(outcomes)
            .filter_map(|(op, outcome)| match (op, outcome) {
                (&Op::Delete { id, mode: DeleteMode::Drain }, Outcome::Done) => Some(id),
                _ => None,
            })
            .collect()
    }
}

impl Plan {
    /// Whether the plane could not yet move all members of a queue that is deleted with them, from
    /// its outcomes.
    pub fn left_members(&self, outcomes: &[Outcome]) -> bool {
        let flush = |op: &Op| matches!(op, Op::Delete { mode: DeleteMode::Flush, .. });
        self.ops()
            .iter()
            .zip(outcomes)
            .any(|(op, outcome)| flush(op) && *outcome == Outcome::Draining)
    }
}

/// Whether rights may end, or come to another place, by these edits.
fn moves_rights(edits: &[Edit]) -> bool {
    edits.iter().any(|e| matches!(e, Edit::Access { .. } | Edit::Move { .. }))
}

/// Parents whose children change, each with the child whose fixed share is new there.
type Touched = BTreeMap<NodeId, Option<NodeId>>;

impl Tree {
    /// Check requests, in order, each against the tree as the ones before it leave it. All or none.
    /// Promises have to hold when all is done, not in between: so weights that fit in no order one
    /// by one fit together.
    pub fn plan(&self, requests: &[Request]) -> Result<Plan, Error> {
        self.plan_with(requests, true)
    }

    /// A plan for a part of a larger change, the whole of which was admitted: promises are not
    /// looked at.
    pub fn plan_part(&self, requests: &[Request]) -> Result<Plan, Error> {
        self.plan_with(requests, false)
    }

    fn plan_with(&self, requests: &[Request], admit: bool) -> Result<Plan, Error> {
        let mut parents = BTreeSet::new();
        let mut plan = Plan { base: self.seq, edits: Vec::new(), created: Vec::new() };
        if let [request] = requests {
            plan.edits = self.edits_for(request)?;
            let breaks = admit && self.may_break(&plan.edits);
            let lists = moves_rights(&plan.edits);
            if breaks || lists || self.may_unsolve(&plan.edits) {
                let mut scratch = self.clone();
                let mut touched = Touched::new();
                for edit in &plan.edits {
                    scratch.touch(edit, &mut touched);
                    scratch.touches(edit, &mut parents);
                    scratch.apply(edit)?;
                }
                let drained =
                    plan.edits.iter().filter(|e| matches!(e, Edit::Drain { .. })).map(Edit::id);
                plan.edits.extend(scratch.solve(&touched, &drained.collect())?);
                if breaks {
                    scratch.admit(self, &parents)?;
                }
                if lists {
                    plan.edits.extend(scratch.prune_access()?);
                }
            }
        } else {
            let mut scratch = self.clone();
            let mut touched = Touched::new();
            // A queue without members goes as soon as it is told to drain: nothing later in the
            // batch may name it.
            let mut drained = BTreeSet::new();
            for request in requests {
                let edits = scratch.edits_for(request)?;
                for edit in &edits {
                    if drained.contains(&edit.id()) {
                        let at = scratch.shown(edit.id());
                        let why = format!("{at}: an earlier part of the same change lets it drain");
                        return Err(Error::new(ErrorKind::Busy, why).hint("make two changes of it"));
                    }
                    if let Edit::Drain { id } = *edit {
                        drained.insert(id);
                    }
                    scratch.touch(edit, &mut touched);
                    scratch.touches(edit, &mut parents);
                    scratch.apply(edit)?;
                }
                plan.edits.extend(edits);
            }
            plan.edits.extend(scratch.solve(&touched, &drained)?);
            if admit {
                scratch.admit(self, &parents)?;
            }
            if moves_rights(&plan.edits) {
                plan.edits.extend(scratch.prune_access()?);
            }
        }
        let created = plan.edits.iter().filter_map(|e| match e {
            Edit::Create { id, .. } => Some(*id),
            _ => None,
        });
        plan.created = created.collect();
        Ok(plan)
    }

    /// The plan that forgets drained queues which the plane reported gone. Ids that the tree does
    /// not know, or that do not drain, are skipped: after a crash the same report may come twice.
    pub fn plan_gone(&self, ids: &[NodeId]) -> Plan {
        let mut edits: Vec<Edit> = Vec::new();
        for &id in ids {
            let edit = Edit::Gone { id };
            if self.get(id).is_some_and(|n| n.draining) && !edits.contains(&edit) {
                edits.push(edit);
            }
        }
        if self.may_unsolve(&edits) {
            let mut scratch = self.clone();
            let mut touched = Touched::new();
            let fits = edits.iter().try_for_each(|edit| {
                scratch.touch(edit, &mut touched);
                scratch.apply(edit)
            });
            // Fewer siblings need no larger weights, except where only fixed shares are left: that
            // always has a solution.
            if let Ok(solved) = fits.and_then(|()| scratch.solve(&touched, &BTreeSet::new())) {
                edits.extend(solved);
            }
        }
        Plan { base: self.seq, edits, created: Vec::new() }
    }

    /// Bring a plan into effect after the plane accepted it. `Conflict` when the tree has changed
    /// since the plan was made; then nothing changes. Answers the journal's number.
    pub fn commit(&mut self, plan: &Plan) -> Result<u64, Error> {
        if plan.base != self.seq {
            let why =
                format!("the plan was made at edit {}, the tree is at {}", plan.base, self.seq);
            return Err(Error::new(ErrorKind::Conflict, why).hint("plan again"));
        }
        if !plan.is_empty() {
            self.replay(&plan.record())?;
        }
        Ok(self.seq)
    }

    /// Whether some fixed share below these edits' parents may have another weight after them.
    fn may_unsolve(&self, edits: &[Edit]) -> bool {
        let fixed = |id: NodeId| self.get(id).is_some_and(|n| n.fixed_children > 0);
        let below_fixed = |id: NodeId| self.get(id).and_then(|n| n.parent).is_some_and(fixed);
        edits.iter().any(|edit| match *edit {
            Edit::Create { parent, .. } => fixed(parent),
            Edit::Share { id, share } => share.fixed.is_some() || below_fixed(id),
            Edit::Move { id, parent, .. } => fixed(parent) || below_fixed(id),
            Edit::Delete { id, .. } | Edit::Gone { id } => below_fixed(id),
            _ => false,
        })
    }

    /// Note whose children an edit is about to change, and the child with a fixed share that it is
    /// about.
    fn touch(&self, edit: &Edit, touched: &mut Touched) {
        let parent = |id: NodeId| self.get(id).and_then(|n| n.parent);
        match *edit {
            Edit::Create { parent, .. } => {
                touched.entry(parent).or_default();
            }
            Edit::Share { id, share } => {
                if let Some(parent) = parent(id) {
                    let cause = touched.entry(parent).or_default();
                    *cause = share.fixed.map(|_| id).or(*cause);
                }
            }
            Edit::Move { id, parent: new, .. } => {
                if let Some(old) = parent(id) {
                    touched.entry(old).or_default();
                }
                let cause = touched.entry(new).or_default();
                *cause = self.get(id).and_then(|n| n.fixed).map(|_| id).or(*cause);
            }
            Edit::Delete { id, .. } | Edit::Gone { id } => {
                if let Some(parent) = parent(id) {
                    touched.entry(parent).or_default();
                }
            }
            _ => {}
        }
    }

    /// The weights that keep the fixed shares below these parents; none for a queue that drains in
    /// the same plan (it may be gone before its weight could be set; it is solved with its siblings
    /// when it goes).
    fn solve(&self, touched: &Touched, drained: &BTreeSet<NodeId>) -> Result<Vec<Edit>, Error> {
        let mut edits = Vec::new();
        for (&parent, &cause) in touched {
            let Some(parent) = self.get(parent).filter(|p| p.fixed_children > 0) else { continue };
            let children = || parent.children.values().filter_map(|&c| self.get(c));
            let fixed: Vec<(&Node, Fixed)> =
                children().filter_map(|c| Some((c, c.fixed?))).collect();
            let weights =
                children().filter(|c| c.fixed.is_none()).map(|c| u64::from(c.weight.milli())).sum();
            let shares: Vec<Fixed> = fixed.iter().map(|(_, f)| *f).collect();
            let solved = fixed::solve(&shares, weights).map_err(|why| {
                let breaks = cause.and_then(|id| self.get(id)).unwrap_or(fixed[0].0);
                let shown = |n: &Node| format!("{}: {}", self.shown(n.id), n.share().part());
                match why {
                    Unsolved::Sum(sum) => {
                        let own = breaks.fixed.map_or(0, |f| u64::from(f.ppm()));
                        let others = crate::units::show_percent(sum - own);
                        let why =
                            format!("{} does not fit: its siblings have {others}", shown(breaks));
                        Error::new(ErrorKind::Overcommitted, why)
                            .hint("fixed shares below one node add up to less than 100%")
                    }
                    Unsolved::Weight(at) => {
                        let (node, beside) = (fixed[at].0, fixed[at].0.id != breaks.id);
                        let beside = if beside {
                            format!(" ({})", self.shown(breaks.id))
                        } else {
                            String::new()
                        };
                        let why = format!(
                            "{} would need a weight beyond {}{beside}",
                            shown(node),
                            Weight::MAX
                        );
                        Error::new(ErrorKind::Overcommitted, why)
                            .hint("give its siblings smaller weights: only their ratios count")
                    }
                    Unsolved::Count => {
                        let why = format!(
                            "{}: more than {FIXED_MAX} children with fixed shares",
                            self.shown(parent.id)
                        );
                        Error::new(ErrorKind::Full, why).hint("weights have no such limit")
                    }
                }
            })?;
            for ((node, _), weight) in fixed.into_iter().zip(solved) {
                if node.weight != weight && !drained.contains(&node.id) {
                    edits.push(Edit::Solve { id: node.id, weight });
                }
            }
        }
        Ok(edits)
    }
}
