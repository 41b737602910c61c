// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests, and the plans that they become.
//!
//! The order of one change: [`Tree::plan`] (refuses, changes nothing) → the journal writes [`Plan::record`] →
//! the plane applies [`Plan::batch`] → [`Tree::commit`]. A plan that the plane refused is dropped; its record is
//! cancelled in the journal. A [`DeleteMode::Drain`] leaves the node in the tree, marked; when the plane says that
//! it is gone, at once ([`Plan::drained`]) or later, [`Tree::plan_gone`] makes the plan that forgets it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::edit::Edit;
use crate::error::quoted;
use crate::fixed::{self, Unsolved};
use crate::{
    AccessChange, Amount, Batch, Caller, Cap, Class, DEPTH_MAX, DeleteMode, Error, ErrorKind, FIXED_MAX,
    Fixed, Kind, Name, NewKind, Node, NodeId, NodePath, Op, Outcome, Personality, Policy, Record,
    ResourceKind, Share, Tree, TuneChange, TuneKey, Weight, check_tune,
};

/// A node as a request names it: by handle (files), or by path (configuration; may be made by an earlier
/// request of the same plan).
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
    /// Make a node. No name: the lowest free `qN` or `rN`, and it is collected when nothing refers to it. No policy or class: the personality's. No share: weight 0, which
    /// breaks no promise.
    Create { parent: NodeRef, name: Option<Name>, kind: NewKind, share: Option<Share> },
    /// Remove a node without children.
    Delete { node: NodeRef, mode: DeleteMode },
    /// Says that the node is not draining; refused if it is. (What the `state` file reads can be written.)
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
    /// Set the limits of a queue, of members (packets) and, on links, of bytes; 0 is none of its own.
    SetLimit { node: NodeRef, members_max: u32, bytes_max: u32 },
    /// Reset the counters that `backlog` shows.
    ResetCounters { node: NodeRef },
    /// Set the collection flag.
    SetGc { node: NodeRef, gc: bool },
    /// Change an access list.
    SetAccess { node: NodeRef, change: AccessChange },
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
                    Edit::Create { id, parent, .. } => {
                        Some(Edit::Made { id, maker: who.uid, through: tree.made_through(who, parent) })
                    }
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

    /// For the plane, with the record's number. Its `ops` may be empty (a rename): then the plane need not be called.
    pub fn batch(&self) -> Batch {
        Batch { seq: self.base + 1, ops: self.ops() }
    }

    /// Which drained queues the plane removed at once, from its outcomes (one per op of the batch): forget them
    /// with [`Tree::plan_gone`] after the commit.
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
    /// Whether the plane could not yet move all members of a queue that is deleted with them, from its outcomes.
    pub fn left_members(&self, outcomes: &[Outcome]) -> bool {
        let flush = |op: &Op| matches!(op, Op::Delete { mode: DeleteMode::Flush, .. });
        self.ops().iter().zip(outcomes).any(|(op, outcome)| flush(op) && *outcome == Outcome::Draining)
    }
}

/// Whether rights may end, or come to another place, by these edits.
fn moves_rights(edits: &[Edit]) -> bool {
    edits.iter().any(|e| matches!(e, Edit::Access { .. } | Edit::Move { .. }))
}

/// Parents whose children change, each with the child whose fixed share is new there.
type Touched = BTreeMap<NodeId, Option<NodeId>>;

impl Tree {
    /// Check requests, in order, each against the tree as the ones before it leave it. All or none. Promises have to hold when all is
    /// done, not in between: so weights that fit in no order one by one fit together.
    pub fn plan(&self, requests: &[Request]) -> Result<Plan, Error> {
        self.plan_with(requests, true)
    }

    /// A plan for a part of a larger change, the whole of which was admitted: promises are not looked at.
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
                let drained = plan.edits.iter().filter(|e| matches!(e, Edit::Drain { .. })).map(Edit::id);
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
            // A queue without members goes as soon as it is told to drain: nothing later in the batch may name it.
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

    /// The plan that forgets drained queues which the plane reported gone. Ids that the tree does not know, or
    /// that do not drain, are skipped: after a crash the same report may come twice.
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
            // Fewer siblings need no larger weights, except where only fixed shares are left: that always has a solution.
            if let Ok(solved) = fits.and_then(|()| scratch.solve(&touched, &BTreeSet::new())) {
                edits.extend(solved);
            }
        }
        Plan { base: self.seq, edits, created: Vec::new() }
    }

    /// Bring a plan into effect after the plane accepted it. `Conflict` when the tree has changed since the plan
    /// was made; then nothing changes. Answers the journal's number.
    pub fn commit(&mut self, plan: &Plan) -> Result<u64, Error> {
        if plan.base != self.seq {
            let why = format!("the plan was made at edit {}, the tree is at {}", plan.base, self.seq);
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

    /// Note whose children an edit is about to change, and the child with a fixed share that it is about.
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

    /// The weights that keep the fixed shares below these parents; none for a queue that drains in the same plan (it may be
    /// gone before its weight could be set; it is solved with its siblings when it goes).
    fn solve(&self, touched: &Touched, drained: &BTreeSet<NodeId>) -> Result<Vec<Edit>, Error> {
        let mut edits = Vec::new();
        for (&parent, &cause) in touched {
            let Some(parent) = self.get(parent).filter(|p| p.fixed_children > 0) else { continue };
            let children = || parent.children.values().filter_map(|&c| self.get(c));
            let fixed: Vec<(&Node, Fixed)> = children().filter_map(|c| Some((c, c.fixed?))).collect();
            let weights = children().filter(|c| c.fixed.is_none()).map(|c| u64::from(c.weight.milli())).sum();
            let shares: Vec<Fixed> = fixed.iter().map(|(_, f)| *f).collect();
            let solved = fixed::solve(&shares, weights).map_err(|why| {
                let breaks = cause.and_then(|id| self.get(id)).unwrap_or(fixed[0].0);
                let shown = |n: &Node| format!("{}: {}", self.shown(n.id), n.share().part());
                match why {
                    Unsolved::Sum(sum) => {
                        let own = breaks.fixed.map_or(0, |f| u64::from(f.ppm()));
                        let others = crate::units::show_percent(sum - own);
                        let why = format!("{} does not fit: its siblings have {others}", shown(breaks));
                        Error::new(ErrorKind::Overcommitted, why)
                            .hint("fixed shares below one node add up to less than 100%")
                    }
                    Unsolved::Weight(at) => {
                        let (node, beside) = (fixed[at].0, fixed[at].0.id != breaks.id);
                        let beside =
                            if beside { format!(" ({})", self.shown(breaks.id)) } else { String::new() };
                        let why =
                            format!("{} would need a weight beyond {}{beside}", shown(node), Weight::MAX);
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

    fn find(&self, node: &NodeRef) -> Result<&Node, Error> {
        match node {
            NodeRef::Id(id) => self.node(*id),
            NodeRef::Path(path) => self.resolve(path).and_then(|id| self.node(id)),
            NodeRef::Child(parent, name) => {
                let parent = self.node(*parent)?;
                let child = parent.children.get(name).ok_or_else(|| {
                    let why = format!("no {} in {}", quoted(name.as_str()), self.shown(parent.id));
                    Error::new(ErrorKind::NotFound, why)
                })?;
                self.node(*child)
            }
        }
    }

    /// Find a node that may be changed in `what`.
    fn find_free(&self, node: &NodeRef, what: &str) -> Result<&Node, Error> {
        let node = self.find(node)?;
        if node.draining {
            let why = format!("{} is draining: no change of its {what}", self.shown(node.id));
            return Err(Error::new(ErrorKind::Busy, why).hint("it goes when its last member has left"));
        }
        Ok(node)
    }

    fn find_queue(&self, node: &NodeRef, what: &str) -> Result<&Node, Error> {
        let node = self.find_free(node, what)?;
        if node.kind.is_queue() {
            return Ok(node);
        }
        let why = format!("{} is a scheduler node and has no {what}", self.shown(node.id));
        Err(Error::new(ErrorKind::NotQueue, why).hint(format!("a queue has a {what}")))
    }

    fn find_scheduler(&self, node: &NodeRef, why: &str) -> Result<&Node, Error> {
        let node = self.find(node)?;
        if node.kind.is_scheduler() {
            return Ok(node);
        }
        Err(Error::new(ErrorKind::NotScheduler, format!("{} is a queue: {why}", self.shown(node.id))))
    }

    fn protect(&self, id: NodeId, root: &str, q0: &str) -> Result<(), Error> {
        let why = match id {
            NodeId::ROOT if !root.is_empty() => root,
            NodeId::Q0 if !q0.is_empty() => q0,
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Protected, format!("{}: {why}", self.shown(id))))
    }

    /// The edits of one request; none when all is as asked for.
    fn edits_for(&self, request: &Request) -> Result<Vec<Edit>, Error> {
        let one = |changed: bool, edit: Edit| if changed { vec![edit] } else { Vec::new() };
        Ok(match *request {
            Request::Create { ref parent, ref name, kind, share } => {
                return self.edits_for_create(parent, name.as_ref(), kind, share);
            }
            Request::Delete { ref node, mode } => self.edits_for_delete(node, mode)?,
            Request::Active { ref node } => {
                self.find_free(node, "state")?;
                Vec::new()
            }
            Request::SetShare { ref node, share } => {
                let node = self.find(node)?;
                self.check_share(node.id, share)?;
                one(node.share() != share, Edit::Share { id: node.id, share })
            }
            Request::SetCap { ref node, cap } => {
                let node = self.find(node)?;
                if let Some(cap) = cap {
                    let q0 = "init, the kernel's own work and reservd run here and cannot be capped";
                    self.protect(node.id, "the resource itself has no cap", q0)?;
                    self.check_unit(cap.is_link(), Amount(cap.rate_ns_per_s))?;
                    cap.check().map_err(|e| e.at(self.shown(node.id)))?;
                }
                one(node.cap != cap, Edit::Cap { id: node.id, cap })
            }
            Request::SetClass { ref node, class } => {
                let node = self.find_queue(node, "class")?;
                self.check_known(Kind::Queue(class))?;
                one(node.kind != Kind::Queue(class), Edit::Class { id: node.id, class })
            }
            Request::SetPolicy { ref node, policy } => {
                let node = self.find_scheduler(node, "it has a class, no policy")?;
                self.check_known(Kind::Scheduler(policy))?;
                Self::check_place(policy, node.id)?;
                one(node.kind != Kind::Scheduler(policy), Edit::Policy { id: node.id, policy })
            }
            Request::SetPersonality { personality } => self.edits_for_personality(personality),
            Request::SetTune { ref node, ref change } => {
                let node = self.find_free(node, "tunables")?;
                let above = self.policy_above(node.id);
                check_tune(change, node.kind, above).map_err(|e| e.at(self.shown(node.id)))?;
                let new = change.iter().filter(|(key, value)| node.tune.get(key) != value.as_ref());
                new.map(|&(key, value)| Edit::Tune { id: node.id, key, value }).collect()
            }
            Request::SetLimit { ref node, members_max, bytes_max } => {
                let node = self.find_queue(node, "limit")?;
                if bytes_max > 0 && self.is_cpu() {
                    let why = format!("{bytes_max}: a CPU queue has no limit of enqueued service");
                    return Err(Error::new(ErrorKind::Unsupported, why).hint("leave it out, or write 0"));
                }
                if members_max > 0 && self.is_cpu() {
                    self.protect(node.id, "", "it takes whoever has no other queue, without limit")?;
                }
                let changed = (node.members_max, node.bytes_max) != (members_max, bytes_max);
                one(changed, Edit::Limit { id: node.id, members_max, bytes_max })
            }
            Request::ResetCounters { ref node } => {
                let node = self.find_queue(node, "backlog")?;
                vec![Edit::Reset { id: node.id }]
            }
            Request::SetGc { ref node, gc } => {
                let node = self.find(node)?;
                if gc {
                    self.protect(node.id, "the resource is never collected", "it is never collected")?;
                }
                one(node.gc != gc, Edit::Gc { id: node.id, gc })
            }
            Request::SetAccess { ref node, ref change } => self.edits_for_access(self.find(node)?, change)?,
            Request::Rename { ref node, ref name } => {
                let node = self.find_free(node, "name")?;
                self.edits_for_move(node, node.parent, name)?
            }
            Request::Move { ref node, ref parent, ref name } => {
                let node = self.find_free(node, "place")?;
                let parent = self.find_scheduler(parent, "nothing can be put into it")?;
                self.edits_for_move(node, Some(parent.id), name.as_ref().unwrap_or(&node.name))?
            }
        })
    }

    fn check_share(&self, id: NodeId, share: Share) -> Result<(), Error> {
        self.protect(id, "a resource's own share is read-only", "")?;
        if id == NodeId::Q0 && share.fixed.is_none() && share.weight == Weight::BACKGROUND {
            let why = "q0 serves init and the kernel's own work: its weight must be positive";
            return Err(Error::new(ErrorKind::Invalid, why).hint("at least 0.001"));
        }
        if share.minimum.0 == 0 {
            return Ok(());
        }
        self.check_unit(share.minimum.is_link(), Amount(share.minimum.0))
    }

    /// CPU time is the CPU's, bits are the others'.
    fn check_unit(&self, link: bool, amount: Amount) -> Result<(), Error> {
        if link != self.is_cpu() {
            return Ok(());
        }
        let (why, hint) = if link {
            ("is an amount of a link's, and this is the CPU", "250ms/s, 1.5cpu or 25%")
        } else {
            ("is an amount of CPU, and this is none", "of a link: 10mbit")
        };
        Err(Error::new(ErrorKind::Invalid, format!("{amount} {why}")).hint(hint))
    }

    fn check_name_free(&self, parent: &Node, name: &Name) -> Result<(), Error> {
        let Some(&taken) = parent.children.get(name) else { return Ok(()) };
        let state = if self.get(taken).is_some_and(|n| n.draining) { " and is draining" } else { "" };
        Err(Error::new(ErrorKind::Exists, format!("{} exists{state}", self.shown(taken))))
    }

    fn too_deep(&self, parent: NodeId) -> Error {
        let why = format!("below {} there would be more than {DEPTH_MAX} levels", self.shown(parent));
        Error::new(ErrorKind::TooDeep, why)
    }

    /// Policies and classes that the resource's program does not have are refused before it is asked.
    fn check_known(&self, kind: Kind) -> Result<(), Error> {
        let (what, by_length, of_disks, of_cpu) = match kind {
            Kind::Scheduler(p) => {
                (format!("policy {p}"), p.by_length(), p.of_disks(), "sfq, eevdf, mtrls, prio or wrr")
            }
            Kind::Queue(c) => (format!("class {c}"), c.by_length(), c.of_disks(), "ts, sfq, rr, fifo or edf"),
        };
        let refused = |why: String, hint: String| Err(Error::new(ErrorKind::Unsupported, why).hint(hint));
        if by_length && self.is_cpu() {
            let why =
                format!("{what} goes by how long the next step will be, which nobody knows of a thread");
            let whose = if of_disks { "disks" } else { "links" };
            return refused(why, format!("it is for {whose}; for the CPU: {of_cpu}"));
        }
        if of_disks && self.resource() == ResourceKind::Link {
            return refused(
                format!("{what} goes by places on a disk, and this is a link"),
                Policy::WORDS.into(),
            );
        }
        Ok(())
    }

    /// One queue for the whole disk has no place below others.
    fn check_place(policy: Policy, id: NodeId) -> Result<(), Error> {
        if policy != Policy::Cello || id == NodeId::ROOT {
            return Ok(());
        }
        let why = "policy cello puts all of a disk's requests into one queue: it is the disk's own, not one of a node in it";
        Err(Error::new(ErrorKind::Unsupported, why)
            .hint("set it on the disk itself; below it sfq, wf2q+ or yfq"))
    }

    fn edits_for_create(
        &self,
        parent: &NodeRef,
        name: Option<&Name>,
        kind: NewKind,
        share: Option<Share>,
    ) -> Result<Vec<Edit>, Error> {
        let kind = kind.or(self.personality, self.resource);
        self.check_known(kind)?;
        let parent = self.find_scheduler(parent, "nothing can be made in it")?;
        let numbered = name.is_none();
        let name = name.cloned().unwrap_or_else(|| parent.next_name(kind));
        self.check_name_free(parent, &name)?;
        if self.depth(parent.id) >= DEPTH_MAX {
            return Err(self.too_deep(parent.id));
        }
        let id = self.next_id()?;
        if let Kind::Scheduler(policy) = kind {
            Self::check_place(policy, id)?;
        }
        let mut edits = vec![Edit::Create { id, parent: parent.id, name, kind }];
        if let Some(share) = share {
            self.check_share(id, share)?;
            if share != Share::default() {
                edits.push(Edit::Share { id, share });
            }
        }
        if numbered {
            edits.push(Edit::Gc { id, gc: true });
        }
        Ok(edits)
    }

    /// New nodes are other ones from now on; of what is there only the root changes.
    fn edits_for_personality(&self, personality: Personality) -> Vec<Edit> {
        let (root, id) = (self.root(), NodeId::ROOT);
        let mut edits = Vec::new();
        if self.personality != personality {
            edits.push(Edit::Personality { personality });
        }
        let policy = personality.root_policy(self.resource);
        if root.kind != Kind::Scheduler(policy) {
            edits.push(Edit::Policy { id, policy });
        }
        let tune = personality.tune(self.resource);
        for key in TuneKey::ALL.into_iter().filter(|k| !k.is_of_child()) {
            let value = tune.get(&key).copied();
            if root.tune.get(&key).copied() != value {
                edits.push(Edit::Tune { id, key, value });
            }
        }
        edits
    }

    fn edits_for_delete(&self, node: &NodeRef, mode: DeleteMode) -> Result<Vec<Edit>, Error> {
        let node = self.find(node)?;
        self.protect(node.id, "a resource cannot be deleted", "it cannot be deleted")?;
        if !node.children.is_empty() {
            let why = format!("{} has {} children", self.shown(node.id), node.children.len());
            return Err(Error::new(ErrorKind::NotEmpty, why).hint("delete them first"));
        }
        Ok(match mode {
            // Only queues have members to wait for.
            DeleteMode::Drain if node.kind.is_queue() => {
                if node.draining {
                    Vec::new()
                } else {
                    vec![Edit::Drain { id: node.id }]
                }
            }
            DeleteMode::Drain | DeleteMode::Refuse | DeleteMode::Flush => {
                let mode = if mode == DeleteMode::Drain { DeleteMode::Refuse } else { mode };
                vec![Edit::Delete { id: node.id, mode }]
            }
        })
    }

    fn edits_for_move(&self, node: &Node, parent: Option<NodeId>, name: &Name) -> Result<Vec<Edit>, Error> {
        let q0 = "it keeps its place and name";
        self.protect(node.id, "a resource keeps its place and name", q0)?;
        let Some(parent) = parent else { return Ok(Vec::new()) };
        let same_parent = node.parent == Some(parent);
        if same_parent && node.name == *name {
            return Ok(Vec::new());
        }
        if self.is_within(parent, node.id) {
            let why = format!("{} cannot be moved into {}", self.shown(node.id), self.shown(parent));
            return Err(Error::new(ErrorKind::Invalid, why).hint("a node does not fit below itself"));
        }
        self.check_name_free(self.node(parent)?, name)?;
        if same_parent {
            return Ok(vec![Edit::Rename { id: node.id, name: name.clone() }]);
        }
        if self.depth(parent) + self.height(node.id) > DEPTH_MAX {
            return Err(self.too_deep(parent));
        }
        Ok(vec![Edit::Move { id: node.id, parent, name: name.clone() }])
    }
}
