// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random requests against a flat list of nodes that is searched naively, a plane that believes
//! nothing, and a journal.
//!
//! After every step: tree and list agree, the tree's invariants hold, the plane could carry the
//! batch out by its own contract and has the same nodes; what was refused changed nothing. At the
//! end the journal, as text, gives the identical tree from the beginning and from a snapshot in the
//! middle.

mod common;

use std::collections::BTreeMap;

use common::{Step, config, request, steps};
use num_rational::BigRational;
use proptest::prelude::*;
use reserv_model::*;

/// A node of the naive list.
#[derive(Clone, Debug, PartialEq)]
struct Flat {
    id: NodeId,
    parent: Option<NodeId>,
    name: String,
    kind: Kind,
    share: Share,
    cap: Option<Cap>,
    limit: u32,
    gc: bool,
    tune: Tune,
    draining: bool,
}

/// The naive model: all nodes in a list, and the last generation of every slot.
#[derive(Clone, Debug, PartialEq)]
struct Naive {
    nodes: Vec<Flat>,
    generations: Vec<u32>,
}

impl Naive {
    fn new() -> Self {
        let flat = |id, parent, name: &str, kind| Flat {
            id,
            parent,
            name: name.into(),
            kind,
            share: Share::of(Weight::DEFAULT),
            cap: None,
            limit: 0,
            gc: false,
            tune: Tune::new(),
            draining: false,
        };
        let mut root = flat(NodeId::ROOT, None, "cpu", Kind::Scheduler(Policy::Sfq));
        root.share.minimum = Minimum(common::CAPACITY);
        let q0 = flat(NodeId::Q0, Some(NodeId::ROOT), "q0", Kind::Queue(Class::Ts));
        Self { nodes: vec![root, q0], generations: vec![1, 1] }
    }

    fn at(&self, id: NodeId) -> Option<usize> {
        self.nodes.iter().position(|n| n.id == id)
    }

    fn children(&self, id: NodeId) -> Vec<&Flat> {
        self.nodes.iter().filter(|n| n.parent == Some(id)).collect()
    }

    fn depth(&self, id: NodeId) -> usize {
        let node = &self.nodes[self.at(id).unwrap()];
        1 + node.parent.map_or(0, |p| self.depth(p))
    }

    fn height(&self, id: NodeId) -> usize {
        1 + self.children(id).iter().map(|c| self.height(c.id)).max().unwrap_or(0)
    }

    fn below(&self, id: NodeId, top: NodeId) -> bool {
        let mut at = Some(id);
        while let Some(id) = at {
            if id == top {
                return true;
            }
            at = self.nodes[self.at(id).unwrap()].parent;
        }
        false
    }

    fn find(&self, node: &NodeRef) -> Result<usize, ErrorKind> {
        match node {
            NodeRef::Id(id) => self.at(*id).ok_or(ErrorKind::Stale),
            NodeRef::Path(path) => {
                let mut at = 0;
                for name in path.names() {
                    let here = &self.nodes[at];
                    if here.kind.is_queue() {
                        return Err(ErrorKind::NotScheduler);
                    }
                    at = self
                        .nodes
                        .iter()
                        .position(|n| n.parent == Some(here.id) && n.name == name.as_str())
                        .ok_or(ErrorKind::NotFound)?;
                }
                Ok(at)
            }
            NodeRef::Child(parent, name) => {
                let parent = self.nodes[self.at(*parent).ok_or(ErrorKind::Stale)?].id;
                let here = |n: &Flat| n.parent == Some(parent) && n.name == name.as_str();
                self.nodes.iter().position(here).ok_or(ErrorKind::NotFound)
            }
        }
    }

    fn name_taken(&self, parent: NodeId, name: &str) -> bool {
        self.children(parent).iter().any(|c| c.name == name)
    }

    fn check_share(id: NodeId, share: Share) -> Result<(), ErrorKind> {
        if id == NodeId::ROOT {
            Err(ErrorKind::Protected)
        } else if id == NodeId::Q0 && share.fixed.is_none() && share.weight.milli() == 0 {
            Err(ErrorKind::Invalid)
        } else {
            Ok(())
        }
    }

    /// Whether a node has a tunable, by kind and place.
    fn has(&self, at: usize, key: TuneKey) -> bool {
        let own = self.nodes[at].kind;
        let above = self.nodes[at].parent.map(|p| self.nodes[self.at(p).unwrap()].kind);
        match key.word() {
            "quantum" => true,
            "lag" => own == Kind::Scheduler(Policy::Eevdf),
            "turn" => matches!(own, Kind::Scheduler(Policy::Mtrls | Policy::Wrr)),
            "decay" => own == Kind::Scheduler(Policy::Prio),
            "priority" => above == Some(Kind::Scheduler(Policy::Prio)),
            "request" => above == Some(Kind::Scheduler(Policy::Eevdf)),
            "batch" | "anticipate" | "cost" => {
                above.is_none() && own == Kind::Scheduler(Policy::Yfq)
            }
            "deadline" => matches!(own, Kind::Queue(Class::ScanEdf | Class::RealTime)),
            "round" => above.is_none() && own == Kind::Scheduler(Policy::Cello),
            "receive" | "receive-burst" => false, // a link's
            other => panic!("{other}"),
        }
    }

    fn scheduler(&self, node: &NodeRef) -> Result<NodeId, ErrorKind> {
        let at = self.find(node)?;
        let found = &self.nodes[at];
        if found.kind.is_scheduler() { Ok(found.id) } else { Err(ErrorKind::NotScheduler) }
    }

    fn still(&self, node: &NodeRef) -> Result<usize, ErrorKind> {
        let at = self.find(node)?;
        if self.nodes[at].draining { Err(ErrorKind::Busy) } else { Ok(at) }
    }

    fn queue(&self, node: &NodeRef) -> Result<usize, ErrorKind> {
        let at = self.still(node)?;
        if self.nodes[at].kind.is_queue() { Ok(at) } else { Err(ErrorKind::NotQueue) }
    }

    /// Carry a request out, or say why not.
    #[expect(clippy::too_many_lines, reason = "one arm per request")]
    fn take(&mut self, request: &Request) -> Result<(), ErrorKind> {
        let special = |id: NodeId| id == NodeId::ROOT || id == NodeId::Q0;
        match request {
            Request::Create { parent, name, kind, share } => {
                let kind = kind.or(Personality::Default, ResourceKind::Cpu);
                let parent = self.scheduler(parent)?;
                let letter = if kind.is_queue() { 'q' } else { 'r' };
                let numbered = || {
                    (0..NODES_MAX)
                        .map(|n| format!("{letter}{n}"))
                        .find(|n| !self.name_taken(parent, n))
                };
                // What newqueue makes is collected when nobody refers to it.
                let gc = name.is_none();
                let name = name.as_ref().map(ToString::to_string).or_else(numbered).unwrap();
                if self.name_taken(parent, &name) {
                    return Err(ErrorKind::Exists);
                }
                if self.depth(parent) == DEPTH_MAX {
                    return Err(ErrorKind::TooDeep);
                }
                if let Some(share) = share {
                    Self::check_share(NodeId { index: 2, generation: 1 }, *share)?;
                }
                let free = (0..self.generations.len())
                    .find(|&i| self.nodes.iter().all(|n| n.id.index as usize != i));
                let index = free.unwrap_or(self.generations.len());
                if index == self.generations.len() {
                    self.generations.push(0);
                }
                self.generations[index] += 1;
                let id = NodeId {
                    index: u32::try_from(index).unwrap(),
                    generation: self.generations[index],
                };
                let share = share.unwrap_or_default();
                let parent = Some(parent);
                self.nodes.push(Flat {
                    id,
                    parent,
                    name,
                    kind,
                    share,
                    cap: None,
                    limit: 0,
                    gc,
                    tune: Tune::new(),
                    draining: false,
                });
            }
            Request::Delete { node, mode } => {
                let at = self.find(node)?;
                let id = self.nodes[at].id;
                if special(id) {
                    return Err(ErrorKind::Protected);
                }
                if !self.children(id).is_empty() {
                    return Err(ErrorKind::NotEmpty);
                }
                if *mode == DeleteMode::Drain && self.nodes[at].kind.is_queue() {
                    self.nodes[at].draining = true;
                } else {
                    self.nodes.remove(at);
                }
            }
            Request::Active { node } => drop(self.still(node)?),
            Request::SetShare { node, share } => {
                let at = self.find(node)?;
                Self::check_share(self.nodes[at].id, *share)?;
                self.nodes[at].share = *share;
            }
            Request::SetCap { node, cap } => {
                let at = self.find(node)?;
                if let Some(cap) = cap {
                    if special(self.nodes[at].id) {
                        return Err(ErrorKind::Protected);
                    }
                    let possible = (1_000_000..=8_192_000_000_000).contains(&cap.rate_ns_per_s);
                    if !possible || cap.burst_ns > 10_000_000_000 {
                        return Err(ErrorKind::Invalid);
                    }
                }
                self.nodes[at].cap = *cap;
            }
            Request::SetClass { node, class } => {
                let at = self.queue(node)?;
                self.nodes[at].kind = Kind::Queue(*class);
            }
            Request::SetPolicy { node, policy } => {
                self.scheduler(node)?;
                let at = self.find(node)?;
                self.nodes[at].kind = Kind::Scheduler(*policy);
            }
            Request::SetTune { node, change } => {
                let at = self.still(node)?;
                if change.iter().any(|(key, value)| !self.has(at, *key) || *value == Some(u64::MAX))
                {
                    return Err(ErrorKind::Invalid);
                }
                for (key, value) in change {
                    match value {
                        Some(value) => self.nodes[at].tune.insert(*key, *value),
                        None => self.nodes[at].tune.remove(key),
                    };
                }
            }
            Request::SetPersonality { .. }
            | Request::SetAccess { .. }
            | Request::PutBackAccess { .. } => {}
            Request::SetLimit { node, members_max, .. } => {
                let at = self.queue(node)?;
                if self.nodes[at].id == NodeId::Q0 && *members_max > 0 {
                    return Err(ErrorKind::Protected);
                }
                self.nodes[at].limit = *members_max;
            }
            Request::ResetCounters { node } => drop(self.queue(node)?),
            Request::SetGc { node, gc } => {
                let at = self.find(node)?;
                if *gc && special(self.nodes[at].id) {
                    return Err(ErrorKind::Protected);
                }
                self.nodes[at].gc = *gc;
            }
            Request::Rename { node, name } => {
                let at = self.still(node)?;
                if special(self.nodes[at].id) {
                    return Err(ErrorKind::Protected);
                }
                self.relocate(at, self.nodes[at].parent.unwrap(), name.as_str())?;
            }
            Request::Move { node, parent, name } => {
                let at = self.still(node)?;
                let parent = self.scheduler(parent)?;
                if special(self.nodes[at].id) {
                    return Err(ErrorKind::Protected);
                }
                let name =
                    name.as_ref().map_or_else(|| self.nodes[at].name.clone(), ToString::to_string);
                self.relocate(at, parent, &name)?;
            }
        }
        Ok(())
    }

    fn relocate(&mut self, at: usize, parent: NodeId, name: &str) -> Result<(), ErrorKind> {
        let node = &self.nodes[at];
        if node.parent == Some(parent) && node.name == name {
            return Ok(());
        }
        if self.below(parent, node.id) {
            return Err(ErrorKind::Invalid);
        }
        if self.name_taken(parent, name) {
            return Err(ErrorKind::Exists);
        }
        if node.parent != Some(parent) && self.depth(parent) + self.height(node.id) > DEPTH_MAX {
            return Err(ErrorKind::TooDeep);
        }
        self.nodes[at].parent = Some(parent);
        self.nodes[at].name = name.into();
        Ok(())
    }

    /// The exact weights, in thousandths, of the children with fixed shares (RTSS'96 §4).
    fn exact(&self, parent: NodeId) -> Result<Vec<(NodeId, BigRational)>, ErrorKind> {
        let ratio = |n: u32, of: u32| BigRational::new(n.into(), of.into());
        let fixed: Vec<(NodeId, BigRational)> = self
            .children(parent)
            .iter()
            .filter_map(|c| Some((c.id, ratio(c.share.fixed?.ppm(), 1_000_000))))
            .collect();
        let sum: BigRational = fixed.iter().map(|(_, f)| f).sum();
        let others = self
            .children(parent)
            .iter()
            .map(|c| ratio(c.share.weight.milli(), 1))
            .sum::<BigRational>();
        let one = ratio(1, 1);
        if sum >= one {
            return Err(ErrorKind::Overcommitted);
        }
        let zero = ratio(0, 1);
        // Where nobody has a weight there is no T: the shares themselves are taken for weights.
        let all = if others == zero { ratio(1_000_000_000, 1) } else { others / (one - sum) };
        let weights: Vec<_> = fixed.into_iter().map(|(id, f)| (id, f * &all)).collect();
        let most = ratio(1_000_000_000, 1) + ratio(1, 2);
        if weights.iter().any(|(_, w)| *w >= most) {
            Err(ErrorKind::Overcommitted)
        } else {
            Ok(weights)
        }
    }

    fn check_fixed(&self) -> Result<(), ErrorKind> {
        self.nodes
            .iter()
            .filter(|n| n.kind.is_scheduler())
            .try_for_each(|n| self.exact(n.id).map(drop))
    }

    /// Every promise in the whole tree, by the definition.
    fn check_promises(&self) -> Result<(), ErrorKind> {
        let ratio = |n: u64, of: u64| BigRational::new(n.into(), of.into());
        for parent in self.nodes.iter().filter(|n| n.kind.is_scheduler()) {
            let whole = parent.share.minimum.0;
            let children = self.children(parent.id);
            let weights: u64 = children.iter().map(|c| u64::from(c.share.weight.milli())).sum();
            let fixed: u64 =
                children.iter().filter_map(|c| c.share.fixed).map(|f| u64::from(f.ppm())).sum();
            for child in children.iter().filter(|c| c.share.minimum.0 > 0) {
                let part = match (child.share.fixed, child.share.weight.milli()) {
                    (Some(fixed), _) => ratio(fixed.ppm().into(), 1_000_000),
                    (None, 0) => ratio(0, 1),
                    (None, weight) => {
                        ratio(weight.into(), weights) * ratio(1_000_000 - fixed, 1_000_000)
                    }
                };
                let minimum = ratio(child.share.minimum.0, 1);
                let capped = child.cap.is_some_and(|cap| cap.rate_ns_per_s < child.share.minimum.0);
                let prio = parent.kind == Kind::Scheduler(Policy::Prio);
                if prio || capped || minimum > part * ratio(whole, 1) {
                    return Err(ErrorKind::Overcommitted);
                }
            }
        }
        Ok(())
    }

    /// Solved weights are the exact ones but for rounding.
    fn assert_solved(&self, tree: &Tree) {
        let ratio = |n: u32, of: u32| BigRational::new(n.into(), of.into());
        for scheduler in self.nodes.iter().filter(|n| n.kind.is_scheduler()) {
            for (id, exact) in self.exact(scheduler.id).unwrap() {
                let node = tree.get(id).unwrap();
                if node.draining {
                    // solved when it goes, if the plan that let it drain changed its siblings
                    continue;
                }
                let off = ratio(node.weight.milli(), 1) - &exact;
                let half = ratio(1, 2);
                let small = exact < half && node.weight.milli() == 1;
                assert!(
                    small || (off <= half && off >= -half),
                    "{id:?}: {} for {exact}",
                    node.weight.milli()
                );
            }
        }
    }

    /// Compare everything.
    fn assert_is(&self, tree: &Tree) {
        self.assert_solved(tree);
        let mut mine = self.nodes.clone();
        mine.sort_by_key(|n| n.id);
        let theirs = tree.iter().map(|n| Flat {
            id: n.id,
            parent: n.parent,
            name: n.name.to_string(),
            kind: n.kind,
            share: n.share(),
            cap: n.cap,
            limit: n.members_max,
            gc: n.gc,
            tune: n.tune.clone(),
            draining: n.draining,
        });
        assert_eq!(mine, theirs.collect::<Vec<_>>());
        assert_eq!(tree.len(), mine.len());
        for node in &mine {
            assert_eq!(
                (tree.depth(node.id), tree.height(node.id)),
                (self.depth(node.id), self.height(node.id))
            );
            assert_eq!(tree.resolve(&tree.path(node.id).unwrap()), Ok(node.id));
        }
    }
}

/// A plane by the contract in `edit.rs`: ids fresh, parents there, deletions of leaves only.
#[derive(Clone, Debug, Default)]
struct Plane {
    seq: u64,
    nodes: BTreeMap<NodeId, (NodeId, Kind, Weight, Option<Cap>, u32)>,
    generations: BTreeMap<u32, u32>,
}

impl Plane {
    fn new() -> Self {
        let mut plane = Self::default();
        plane.nodes.insert(
            NodeId::ROOT,
            (NodeId::ROOT, Kind::Scheduler(Policy::Sfq), Weight::DEFAULT, None, 0),
        );
        plane
            .nodes
            .insert(NodeId::Q0, (NodeId::ROOT, Kind::Queue(Class::Ts), Weight::DEFAULT, None, 0));
        plane.generations = BTreeMap::from([(0, 1), (1, 1)]);
        plane
    }

    fn node(&mut self, id: NodeId) -> &mut (NodeId, Kind, Weight, Option<Cap>, u32) {
        self.nodes.get_mut(&id).expect("the op names a node that exists")
    }

    /// `busy`: whether a queue that is to drain has members.
    fn apply(&mut self, batch: &Batch, busy: bool) -> Vec<Outcome> {
        assert!(batch.seq > self.seq, "numbers grow");
        self.seq = batch.seq;
        let mut outcomes = Vec::new();
        for op in &batch.ops {
            let mut outcome = Outcome::Done;
            match *op {
                Op::Create { id, parent, kind } => {
                    assert!(self.nodes.keys().all(|n| n.index != id.index), "the slot is free");
                    assert!(
                        id.generation
                            > self.generations.insert(id.index, id.generation).unwrap_or(0)
                    );
                    assert!(id.index < NODES_MAX && self.node(parent).1.is_scheduler());
                    self.nodes.insert(id, (parent, kind, Weight::BACKGROUND, None, 0));
                }
                Op::Delete { id, mode } => {
                    assert!(self.nodes.values().all(|n| n.0 != id), "no children");
                    assert!(id != NodeId::Q0);
                    self.node(id);
                    if mode == DeleteMode::Drain && busy {
                        outcome = Outcome::Draining;
                    } else {
                        self.nodes.remove(&id);
                    }
                }
                Op::Reweight { id, weight } => self.node(id).2 = weight,
                Op::SetCap { id, cap } => self.node(id).3 = cap,
                Op::SetClass { id, class } => {
                    assert!(self.node(id).1.is_queue());
                    self.node(id).1 = Kind::Queue(class);
                }
                Op::SetPolicy { id, policy } => {
                    assert!(self.node(id).1.is_scheduler());
                    self.node(id).1 = Kind::Scheduler(policy);
                }
                Op::Tune { id, key, .. } | Op::NodeParam { id, key, .. } => {
                    assert_eq!(key.is_of_child(), matches!(op, Op::NodeParam { .. }));
                    self.node(id);
                }
                Op::SetLimit { id, members_max, .. } => self.node(id).4 = members_max,
                Op::ResetCounters { id } => assert!(self.node(id).1.is_queue()),
                Op::Move { id, parent } => {
                    assert!(self.node(parent).1.is_scheduler());
                    self.node(id).0 = parent;
                }
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn assert_is(&self, tree: &Tree) {
        let theirs = tree.iter().map(|n| {
            (n.id, (n.parent.unwrap_or(NodeId::ROOT), n.kind, n.weight, n.cap, n.members_max))
        });
        assert_eq!(self.nodes, theirs.collect());
    }
}

/// The daemon in small: tree, journal and plane move together.
struct Run {
    tree: Tree,
    naive: Naive,
    plane: Plane,
    journal: Vec<String>,
    snapshot: Option<(usize, String)>,
}

impl Run {
    fn new() -> Self {
        let mut tree = Tree::new(Name::new("cpu").unwrap());
        tree.set_capacity(common::CAPACITY);
        Self { tree, naive: Naive::new(), plane: Plane::new(), journal: Vec::new(), snapshot: None }
    }

    /// Begin with a chain of schedulers, so that the deepest level is often met.
    fn begin(&mut self, levels: usize) {
        let requests = common::chain(levels.min(DEPTH_MAX - 1));
        for request in &requests {
            self.naive.take(request).unwrap();
        }
        let plan = self.tree.plan(&requests).unwrap();
        self.commit(&plan, false);
    }

    fn commit(&mut self, plan: &Plan, busy: bool) {
        if plan.is_empty() {
            assert_eq!(self.tree.commit(plan), Ok(self.tree.seq()));
            return;
        }
        self.journal.push(serde_json::to_string(&plan.record()).unwrap());
        assert_eq!(plan.record().batch(), plan.batch());
        let outcomes = self.plane.apply(&plan.batch(), busy);
        let before = self.tree.seq();
        assert_eq!(self.tree.commit(plan), Ok(before + 1));
        let gone = self.tree.plan_gone(&plan.drained(&outcomes));
        if !gone.is_empty() {
            self.forget(&gone);
        }
        // The same plan does not fit a second time.
        let now = self.tree.clone();
        assert_eq!(self.tree.commit(plan).unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!(self.tree, now);
    }

    /// The plane has removed them itself.
    fn forget(&mut self, gone: &Plan) {
        self.journal.push(serde_json::to_string(&gone.record()).unwrap());
        for edit in gone.edits() {
            match *edit {
                Edit::Gone { id } => {
                    self.plane.nodes.remove(&id);
                    self.naive.nodes.retain(|n| n.id != id);
                }
                Edit::Solve { .. } => {}
                _ => panic!("only Gone and what is solved anew here"),
            }
        }
        self.plane.apply(&gone.batch(), false);
        self.tree.commit(gone).unwrap();
    }

    fn step(&mut self, steps: &[Step]) {
        let requests: Vec<_> = steps.iter().map(|s| request(&self.tree, *s)).collect();
        self.take(&requests, steps.iter().any(|s| s.3.is_multiple_of(2)));
    }

    fn take(&mut self, requests: &[Request], busy: bool) {
        let before = self.tree.clone();
        let mut naive = self.naive.clone();
        // What drains in this plan may be gone at once: nothing later in it may change it.
        let mut drained: Vec<Flat> = Vec::new();
        let wanted = requests.iter().try_for_each(|r| {
            let before = naive.clone();
            naive.take(r)?;
            let did = |id| before.nodes.iter().any(|n| n.id == id && n.draining);
            drained.extend(naive.nodes.iter().filter(|n| n.draining && !did(n.id)).cloned());
            if drained.iter().all(|d| naive.nodes.contains(d)) {
                Ok(())
            } else {
                Err(ErrorKind::Busy)
            }
        });
        // Fixed shares have to fit when all is done, not in between.
        let wanted =
            wanted.and_then(|()| naive.check_fixed()).and_then(|()| naive.check_promises());
        let plan = self.tree.plan(requests);
        assert_eq!(plan.as_ref().map(drop).map_err(|e| e.kind), wanted, "{requests:?}");
        match plan {
            Ok(plan) => {
                self.naive = naive;
                self.commit(&plan, busy);
            }
            Err(e) => assert!(!e.context.contains('\n')),
        }
        if wanted.is_err() {
            assert_eq!(self.tree, before, "a refused request changes nothing");
        }
    }

    fn drained(&mut self, n: u16) {
        let draining: Vec<_> = self.tree.iter().filter(|n| n.draining).map(|n| n.id).collect();
        let some: Vec<_> =
            draining.iter().copied().filter(|d| (n >> (d.index % 16)) & 1 == 1).collect();
        // A report may come twice, and may name strangers.
        let report =
            [some.clone(), vec![NodeId::Q0, NodeId { index: 9999, generation: 3 }], some].concat();
        let plan = self.tree.plan_gone(&report);
        if !plan.is_empty() {
            self.forget(&plan);
        }
    }

    fn check(&self) {
        self.tree.check().unwrap();
        self.naive.assert_is(&self.tree);
        self.plane.assert_is(&self.tree);
    }

    fn check_journal(&self) {
        let replay = |mut tree: Tree, records: &[String]| {
            for text in records {
                tree.replay(&serde_json::from_str::<Record>(text).unwrap()).unwrap();
            }
            tree
        };
        let mut new = Tree::new(Name::new("cpu").unwrap());
        new.set_capacity(common::CAPACITY);
        let from_start = replay(new, &self.journal);
        assert_eq!(from_start, self.tree);
        if let Some((at, text)) = &self.snapshot {
            let restored = serde_json::from_str::<Snapshot>(text).unwrap().restore().unwrap();
            assert_eq!(replay(restored, &self.journal[*at..]), self.tree);
        }
    }
}

/// Every sequence of three requests of those that two names and two levels allow.
#[test]
fn every_short_sequence() {
    let name = |n: &str| Name::new(n).unwrap();
    let path = |p: &str| NodeRef::from(p.parse::<NodePath>().unwrap());
    let queue = Kind::Queue(Class::Ts);
    let mut requests = Vec::new();
    for (parent, child, kind) in [
        ("", "a", queue),
        ("", "a", Kind::Scheduler(Policy::Sfq)),
        ("a", "b", queue),
        ("", "b", queue),
    ] {
        requests.push(Request::Create {
            parent: path(parent),
            name: Some(name(child)),
            kind: kind.into(),
            share: None,
        });
    }
    requests.push(Request::Create {
        parent: path("a"),
        name: None,
        kind: queue.into(),
        share: Some(Share::of(Weight::MAX)),
    });
    requests.push(Request::Create {
        parent: path(""),
        name: None,
        kind: queue.into(),
        share: None,
    });
    for at in ["a", "b", "a/b"] {
        requests.push(Request::Delete { node: path(at), mode: DeleteMode::Drain });
        requests.push(Request::Delete { node: path(at), mode: DeleteMode::Flush });
        requests.push(Request::SetClass { node: path(at), class: Class::Rr });
    }
    for (from, to, by) in [
        ("b", "a", None),
        ("a", "b", None),
        ("a/b", "", None),
        ("b", "a", Some("q0")),
        ("a", "a", None),
    ] {
        requests.push(Request::Move { node: path(from), parent: path(to), name: by.map(name) });
    }
    requests.push(Request::Rename { node: path("a"), name: name("b") });
    requests.push(Request::Active { node: path("b") });
    let mut made = 0;
    for first in &requests {
        for second in &requests {
            for third in &requests {
                for busy in [false, true] {
                    let mut run = Run::new();
                    for request in [first, second, third] {
                        run.take(std::slice::from_ref(request), busy);
                    }
                    run.check();
                    made += run.tree.seq();
                }
            }
        }
    }
    assert!(made > 10_000, "most sequences do something: {made}");
}

proptest! {
    #![proptest_config(config(2))]

    #[test]
    fn trees_agree_with_the_naive_model_plane_and_journal(
        all in steps(160), middle in 0..100_usize, deep in 0..32_usize,
    ) {
        let mut run = Run::new();
        run.begin(deep.saturating_sub(16));
        let mut rest = &all[..];
        while let Some(first) = rest.first() {
            // Mostly one request, sometimes several in one plan, sometimes a drained queue goes.
            let together = if first.1.is_multiple_of(5) { rest.len().min(1 + first.2 as usize % 6) } else { 1 };
            let (now, later) = rest.split_at(together);
            rest = later;
            if first.0 >= 250 {
                run.drained(first.1);
            } else {
                run.step(now);
            }
            run.check();
            if run.snapshot.is_none() && all.len() - rest.len() > middle {
                let text = serde_json::to_string(&run.tree.snapshot()).unwrap();
                run.snapshot = Some((run.journal.len(), text));
            }
        }
        run.check_journal();
    }

    /// A damaged snapshot or record is refused or gives a tree that holds together; it never
    /// panics.
    #[test]
    fn damage_is_found(all in steps(40), at in any::<u32>(), digit in 0..10_u8) {
        let tree = common::grown(&all);
        let mut text = serde_json::to_string(&tree.snapshot()).unwrap().into_bytes();
        let digits: Vec<usize> = (0..text.len()).filter(|&i| text[i].is_ascii_digit()).collect();
        text[digits[at as usize % digits.len()]] = b'0' + digit;
        if let Ok(snapshot) = serde_json::from_slice::<Snapshot>(&text)
            && let Ok(restored) = snapshot.restore()
        {
            restored.check().unwrap();
        }
    }

    /// Any edits in any order: refused or carried out, and the tree holds together.
    #[test]
    fn strange_records_are_refused(all in steps(40), strange in steps(40)) {
        let mut tree = common::grown(&all);
        for (what, a, b, c) in strange {
            let id = |n: u16| NodeId { index: u32::from(n % 24), generation: 1 + u32::from(n / 24 % 16 / 14) };
            let edit = match what % 16 {
                0 => Edit::Create { id: id(a), parent: id(b), name: common::name(c), kind: common::kind(c / 16) },
                1 => Edit::Share { id: id(a), share: common::share(c) },
                2 => Edit::Cap { id: id(a), cap: common::cap(c) },
                3 => Edit::Class { id: id(a), class: common::class(c) },
                4 => Edit::Policy { id: id(a), policy: Policy::Sfq },
                5 => Edit::Limit { id: id(a), members_max: c, bytes_max: 0 },
                6 => Edit::Gc { id: id(a), gc: c.is_multiple_of(2) },
                7 => Edit::Reset { id: id(a) },
                8 => Edit::Rename { id: id(a), name: common::name(c) },
                9 => Edit::Move { id: id(a), parent: id(b), name: common::name(c) },
                10 => Edit::Drain { id: id(a) },
                11 => Edit::Delete { id: id(a), mode: common::mode(c) },
                12 => Edit::Solve { id: id(a), weight: common::weight(c) },
                13 => Edit::Tune { id: id(a), key: TuneKey::ALL[b as usize % TuneKey::ALL.len()], value: (c % 3 > 0).then_some(c.into()) },
                14 => Edit::Personality { personality: Personality::ALL[c as usize % Personality::ALL.len()] },
                _ => Edit::Gone { id: id(a) },
            };
            let before = tree.clone();
            let record = Record { seq: tree.seq() + 1, edits: vec![edit] };
            match tree.replay(&record) {
                Ok(()) => tree.check().unwrap(),
                Err(e) => {
                    prop_assert!(matches!(e.kind, ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Full), "{e:?}");
                    prop_assert_eq!(&tree, &before);
                }
            }
        }
    }
}
