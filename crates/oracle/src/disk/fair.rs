// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hierarchical YFQ and SFQ(D): the exact model (docs/notes/algorithms.md §1 and §5, in rationals),
//! in lockstep with the core. Their theorems are in [`super::bounds`].

use std::collections::{BTreeMap, VecDeque};

use num_traits::{Signed, Zero};

use crate::core::{Build, Core, FIFO, Id, ONE, Op, QUEUE, QUEUED, ROOT, SCHED, Setup, YFQ, id};
use crate::model::{Q, q, ulps};
use crate::rng::Rng;
use crate::tiny::Tiny;

/// Policy start-time fair queueing.
const SFQ: u32 = 0;

#[derive(Clone, Debug)]
struct Node {
    parent: Id,
    weight: u32,
    alg: u32,
    leaf: bool,
    /// Start tag of what is dispatched next; the finish tag while idle.
    s: Q,
    /// The busy period of the parent in which it was set.
    epoch: u64,
    /// As a parent: virtual time, and which busy period this is.
    v: Q,
    busy: u64,
    /// A queue's requests that wait.
    waits: VecDeque<u32>,
    /// Requests in service below, and whether anything was waiting or in service when last looked
    /// at.
    served: u64,
    was_ready: bool,
    was_runnable: bool,
}

/// A tree of nodes with both policies, and the core.
#[derive(Debug)]
pub struct Pair {
    core: Core,
    nodes: BTreeMap<Id, Node>,
    /// Length of each request that waits or is in service.
    length: BTreeMap<u32, u32>,
    /// Request and slot of what is in service.
    slots: Vec<Option<(u32, Id)>>,
    gens: u32,
    /// What the core said of the heads of schedulers before it was asked to pick.
    heads: BTreeMap<Id, u32>,
    drift: u64,
    now: u64,
}

const TOP: Id = id(2, 1);

impl Pair {
    /// A device of `units` slots; node k + 2 has that parent (0: the root), weight, and a policy or
    /// is a queue. The first is a scheduler.
    fn new(build: Build, units: u32, start: u64, shape: &[(u32, u32, Option<u32>)]) -> Self {
        let core =
            Core::new(Setup { build, start, units, quantum: 1, items: 512, ..Setup::default() });
        let slots = vec![None; units as usize];
        let (nodes, length) = (BTreeMap::new(), BTreeMap::new());
        let mut pair =
            Self { core, nodes, length, slots, gens: 1, heads: BTreeMap::new(), drift: 4, now: 0 };
        if units > 1 {
            pair.core.device();
        }
        for (k, &(parent, weight, policy)) in (2..).zip(shape) {
            let parent = if parent == 0 { ROOT } else { id(parent, 1) };
            pair.create(id(k, 1), parent, weight, policy);
        }
        pair
    }

    fn random(build: Build, r: &mut Rng) -> Self {
        let policy = |r: &mut Rng| Some(if r.chance(70) { YFQ } else { SFQ });
        let weight = |r: &mut Rng| u32::try_from(r.range(1, 9)).expect("small") * ONE;
        let units = *r.pick(&[1, 2, 4, 9]);
        // One unit under sfq is the CPU's, and has its own model.
        let policy = |r: &mut Rng| if units == 1 { Some(YFQ) } else { policy(r) };
        let mut shape = vec![(0, ONE, policy(r))];
        let mut schedulers = vec![2];
        for _ in 0..r.below(4) {
            let index = 2 + u32::try_from(shape.len()).expect("few");
            shape.push((*r.pick(&schedulers), weight(r), policy(r)));
            schedulers.push(index);
        }
        for _ in 0..r.range(2, 6) {
            shape.push((*r.pick(&schedulers), weight(r), None));
        }
        let start = *r.pick(&[0, 0, u64::MAX - 3000, (1 << 63) - 3000, (1 << 60) - 3000]);
        Self::new(build, units, start, &shape)
    }

    fn several(&self) -> bool {
        self.slots.len() > 1
    }

    fn create(&mut self, node: Id, parent: Id, weight: u32, policy: Option<u32>) {
        let (kind, alg) = policy.map_or((QUEUE, FIFO), |p| (SCHED, p));
        self.core.must(self.now, Op::Create { node, parent, kind, alg });
        self.core.must(self.now, Op::Reweight { node, weight });
        if self.nodes.contains_key(&parent) {
            self.look(parent, None); // a new child starts at v
        }
        let zero = Q::zero;
        let (waits, leaf) = (VecDeque::new(), policy.is_none());
        self.nodes.insert(
            node,
            Node {
                parent,
                weight,
                alg,
                leaf,
                s: zero(),
                epoch: 0,
                v: zero(),
                busy: 1,
                waits,
                served: 0,
                was_ready: false,
                was_runnable: false,
            },
        );
    }

    fn at(&mut self, n: Id) -> &mut Node {
        self.nodes.get_mut(&n).expect("a node")
    }

    fn children(&self, p: Id) -> impl Iterator<Item = (Id, &Node)> {
        self.nodes.iter().filter(move |(_, n)| n.parent == p).map(|(&i, n)| (i, n))
    }

    fn ready(&self, n: Id) -> bool {
        let node = &self.nodes[&n];
        if node.leaf {
            !node.waits.is_empty()
        } else {
            self.children(n).any(|(c, _)| self.ready(c))
        }
    }

    fn runnable(&self, n: Id) -> bool {
        self.nodes[&n].served > 0 || self.ready(n)
    }

    /// Those of a child whose start tags hold v: who waits, and with one slot also who is in
    /// service.
    fn holds_v(&self, c: Id) -> bool {
        self.ready(c) || (!self.several() && self.nodes[&c].served > 0)
    }

    fn path(&self, leaf: Id) -> Vec<Id> {
        let mut out = vec![leaf];
        while out[out.len() - 1] != TOP {
            out.push(self.nodes[&out[out.len() - 1]].parent);
        }
        out
    }

    /// v = max(v, min S). Under sfq only while nothing is in service, which holds it otherwise.
    fn look(&mut self, p: Id, chosen: Option<Id>) {
        if self.nodes[&p].alg == SFQ && self.nodes[&p].served > 0 && chosen.is_none() {
            return;
        }
        let of = self.children(p).filter(|&(c, _)| self.holds_v(c) || Some(c) == chosen);
        let least = of.map(|(_, n)| n.s.clone()).min();
        let node = self.at(p);
        if let Some(least) = least
            && least > node.v
        {
            node.v = least;
        }
    }

    /// Something waits at a leaf that did not: who begins to wait on the path starts at max(v, F).
    fn begins_to_wait(&mut self, leaf: Id) {
        for n in self.path(leaf) {
            let p = self.nodes[&n].parent;
            if !self.nodes.contains_key(&p) {
                break;
            }
            let (ready, runnable) = (self.nodes[&n].was_ready, self.nodes[&n].was_runnable);
            if !ready {
                // As it is without n, which does not wait yet.
                self.mask(n, |pair| pair.look(p, None));
                let (v, busy) = (self.nodes[&p].v.clone(), self.nodes[&p].busy);
                let node = self.at(n);
                if (!runnable && node.epoch != busy) || node.s < v {
                    node.s = v;
                }
                node.epoch = busy;
            }
        }
        self.remember();
    }

    /// Do something as if nothing waited at or below n.
    fn mask(&mut self, n: Id, what: impl FnOnce(&mut Self)) {
        let leaves: Vec<Id> = self.nodes.iter().filter(|(_, x)| x.leaf).map(|(&i, _)| i).collect();
        let mut kept = Vec::new();
        for l in leaves {
            if self.path_has(l, n) {
                let waits = std::mem::take(&mut self.at(l).waits);
                kept.push((l, waits));
            }
        }
        what(self);
        for (l, waits) in kept {
            self.at(l).waits = waits;
        }
    }

    fn path_has(&self, leaf: Id, n: Id) -> bool {
        let mut at = leaf;
        loop {
            if at == n {
                return true;
            }
            match self.nodes.get(&at) {
                Some(node) => at = node.parent,
                None => return false,
            }
        }
    }

    fn remember(&mut self) {
        let all: Vec<Id> = self.nodes.keys().copied().collect();
        for n in all {
            let (ready, runnable) = (self.ready(n), self.runnable(n));
            let node = self.at(n);
            (node.was_ready, node.was_runnable) = (ready, runnable);
        }
    }

    /// Bottom up: who is idle now, and was not.
    fn goes_idle(&mut self, leaf: Id) {
        for n in self.path(leaf) {
            let p = self.nodes[&n].parent;
            if self.runnable(n) || !self.nodes.contains_key(&p) {
                continue;
            }
            if self.runnable(p) {
                self.look(p, None);
            } else {
                self.at(p).busy += 1;
            }
        }
        self.remember();
    }

    fn arrive(&mut self, leaf: Id, length: u32) -> Result<(), String> {
        let item = self.core.item_new(leaf, ONE, 0).ok_or("no item")?;
        self.core.item_request(item, length, 0, 0);
        self.core.wake(item, self.now);
        self.length.insert(item, length);
        self.at(leaf).waits.push_back(item);
        self.begins_to_wait(leaf);
        Ok(())
    }

    /// The length of what a node would dispatch; where two are as good, the core's word, which must
    /// be one of them.
    fn head(&self, n: Id) -> Result<u32, String> {
        if let Some(first) = self.nodes[&n].waits.front() {
            return Ok(self.length[first]);
        }
        let head = self.heads.get(&n).copied().unwrap_or_else(|| self.core.node(n).head);
        for c in self.best(n)? {
            if self.head(c)? == head {
                return Ok(head);
            }
        }
        Err(format!("node {n:x}: head of {head}"))
    }

    fn step(&self, n: Id, work: u64) -> Q {
        q(u128::from(work) * 1000, self.nodes[&n].weight)
    }

    /// The children that p may dispatch from next.
    fn best(&self, p: Id) -> Result<Vec<Id>, String> {
        let mut out = Vec::new();
        for (c, n) in self.children(p).filter(|&(c, _)| self.ready(c)) {
            let length = if self.nodes[&p].alg == SFQ { 0 } else { self.head(c)?.into() };
            out.push((c, &n.s + self.step(c, length)));
        }
        let Some(least) = out.iter().map(|x| &x.1).min().cloned() else { return Ok(Vec::new()) };
        let most = least + ulps(self.drift);
        Ok(out.into_iter().filter(|x| x.1 <= most).map(|x| x.0).collect())
    }

    fn pick(&mut self, slot: usize) -> Result<(), String> {
        let schedulers = self.nodes.iter().filter(|(_, n)| !n.leaf);
        self.heads = schedulers.map(|(&i, _)| (i, self.core.node(i).head)).collect();
        let done = self.pick_one(slot);
        self.heads.clear();
        done
    }

    fn pick_one(&mut self, slot: usize) -> Result<(), String> {
        let Some(item) = self.core.pick(u32::try_from(slot).expect("few"), self.now) else {
            return if self.ready(TOP) {
                Err("nothing picked, though something waits".into())
            } else {
                Ok(())
            };
        };
        let leaf = self.core.item(item).queue;
        for pair in self.path(leaf).windows(2) {
            let best = self.best(pair[1])?;
            if !best.contains(&pair[0]) {
                return Err(format!("{:x} picked below {:x}, of {best:x?}", pair[0], pair[1]));
            }
        }
        if self.nodes[&leaf].waits.front() != Some(&item) {
            return Err(format!("queue {leaf:x}: not first come, first served"));
        }
        let work = u64::from(self.length[&item]);
        for n in self.path(leaf) {
            let p = self.nodes[&n].parent;
            if self.nodes.contains_key(&p) {
                self.look(p, Some(n));
            }
        }
        self.at(leaf).waits.pop_front();
        for n in self.path(leaf) {
            let step = self.step(n, work);
            let several = self.several();
            let node = self.at(n);
            node.served += 1;
            if several {
                node.s += step;
            }
        }
        self.slots[slot] = Some((item, leaf));
        self.remember();
        Ok(())
    }

    /// A request ends after `work`.
    fn settle(&mut self, slot: usize, work: u64) {
        let Some((item, leaf)) = self.slots[slot].take() else { return };
        let told = u64::from(self.length.remove(&item).expect("told"));
        for n in self.path(leaf) {
            let (step, told) = (self.step(n, work), self.step(n, told));
            let several = self.several();
            let node = self.at(n);
            node.served -= 1;
            node.s += step;
            if several {
                node.s -= told;
            }
        }
        self.goes_idle(leaf);
        self.core.settle(item, work, false, self.now);
        self.core.item_leave(item);
    }

    fn remove(&mut self, leaf: Id) {
        let Some(item) = self.at(leaf).waits.pop_back() else { return };
        self.length.remove(&item);
        self.goes_idle(leaf);
        self.core.remove(item);
        self.core.item_leave(item);
    }

    fn reweight(&mut self, n: Id, weight: u32) {
        let p = self.nodes[&n].parent;
        if self.nodes[&n].weight != weight && self.nodes.contains_key(&p) {
            self.look(p, None);
            let (v, busy) = (self.nodes[&p].v.clone(), self.nodes[&p].busy);
            let runnable = self.runnable(n);
            let node = self.at(n);
            if runnable || (node.epoch == busy && node.s > v) {
                node.s = &v + (&node.s - &v) * q(node.weight, weight);
            }
            self.drift += 2 + 4 * u64::from(self.nodes[&n].weight / weight);
        }
        self.at(n).weight = weight;
        self.core.must(self.now, Op::Reweight { node: n, weight });
    }

    /// An idle queue goes, or hangs elsewhere; or a new one comes.
    fn reshape(&mut self, r: &mut Rng) -> Result<(), String> {
        let leaves: Vec<Id> = self.nodes.iter().filter(|(_, n)| n.leaf).map(|(&i, _)| i).collect();
        let schedulers: Vec<Id> =
            self.nodes.iter().filter(|(_, n)| !n.leaf).map(|(&i, _)| i).collect();
        let (leaf, to) = (*r.pick(&leaves), *r.pick(&schedulers));
        match r.below(3) {
            0 if self.nodes.len() < 14 => {
                self.gens += 1;
                let index = (2..u64::from(u32::MAX))
                    .find(|&i| self.core.nodes().iter().all(|n| n.id & 0xffff_ffff != i));
                let node = id(u32::try_from(index.expect("a slot")).expect("small"), self.gens);
                self.create(node, to, u32::try_from(r.range(1, 9)).expect("small") * ONE, None);
            }
            1 if leaves.len() > 2 => {
                let idle = !self.runnable(leaf);
                let answer =
                    self.core.edit(0, self.now, &[Op::Delete { node: leaf, drain: false }]);
                if answer.is_ok() != idle {
                    return Err(format!("queue {leaf:x}, idle: {idle}, deleted: {answer:?}"));
                }
                if idle {
                    self.nodes.remove(&leaf);
                }
            }
            2 if !self.runnable(leaf) && self.nodes[&leaf].parent != to => {
                self.core.must(self.now, Op::Move { node: leaf, parent: to });
                let node = self.at(leaf);
                (node.parent, node.epoch) = (to, 0);
            }
            _ => {}
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), String> {
        for (&c, n) in &self.nodes {
            let Some(p) = self.nodes.get(&n.parent) else { continue };
            if !self.ready(c) {
                continue;
            }
            let (node, parent) = (self.core.node(c), self.core.node(n.parent));
            let ahead = q(node.tag.wrapping_sub(parent.v).cast_signed(), 1);
            let res = if self.several() { self.step(c, node.res) / ulps(1) } else { Q::zero() };
            let want = (&n.s - &p.v) / ulps(1);
            if (&ahead + &res - &want).abs() > q(self.drift, 1) {
                return Err(format!("node {c:x}: {} ahead of v, expected {want}", ahead + res));
            }
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), String> {
        self.core.check()?;
        self.compare()
    }

    fn leaves(&self) -> Vec<Id> {
        self.nodes.iter().filter(|(_, n)| n.leaf).map(|(&i, _)| i).collect()
    }
}

/// Random events, compared after each.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xd15c);
    let mut pair = Pair::random(build, &mut r);
    let most = *r.pick(&[20, 1 << 20]);
    let exact = r.chance(60);
    for step in 0..250 {
        let said = |e: String| format!("step {step}: {e}");
        pair.now += 1;
        let slot = r.index(pair.slots.len());
        let leaf = *r.pick(&pair.leaves());
        match r.below(20) {
            0..=10 => match pair.slots[slot] {
                Some((item, _)) => {
                    let told = u64::from(pair.length[&item]);
                    let work = if exact || r.chance(70) { told } else { r.range(0, 2 * told) };
                    pair.settle(slot, work);
                }
                None => pair.pick(slot).map_err(said)?,
            },
            11..=16 => {
                let length = u32::try_from(r.range(1, most)).expect("small");
                pair.arrive(leaf, length).map_err(said)?;
            }
            17 if r.chance(30) => pair.remove(leaf),
            18 if r.chance(40) => {
                let nodes: Vec<Id> = pair.nodes.keys().copied().collect();
                pair.reweight(*r.pick(&nodes), u32::try_from(r.range(1, 9)).expect("small") * ONE);
            }
            19 if r.chance(40) => pair.reshape(&mut r).map_err(said)?,
            _ => {}
        }
        pair.verify().map_err(said)?;
    }
    Ok(())
}

impl Tiny for Pair {
    fn options(&self) -> u32 {
        let leaves = u32::try_from(self.leaves().len()).expect("few");
        u32::try_from(self.slots.len()).expect("few") + 2 * leaves + 1
    }

    fn take(&mut self, option: u32) -> Result<(), String> {
        let mut k = option as usize;
        let leaves = self.leaves();
        if k < self.slots.len() {
            match self.slots[k] {
                Some((item, _)) => self.settle(k, self.length[&item].into()),
                None => self.pick(k)?,
            }
        } else {
            k -= self.slots.len();
            if k < 2 * leaves.len() {
                self.arrive(leaves[k / 2], [6, 3][k % 2])?;
            } else {
                let weight = if self.nodes[&leaves[0]].weight == ONE { 3 * ONE } else { ONE };
                self.reweight(leaves[0], weight);
            }
        }
        self.verify()
    }
}

/// Tiny trees for [`crate::tiny::every`]: two queues, or three in two levels.
pub fn tiny(policy: u32, units: u32, levels: bool) -> Pair {
    let p = Some(policy);
    if levels {
        let shape =
            [(0, ONE, p), (2, 2 * ONE, p), (3, ONE, None), (3, 2 * ONE, None), (2, ONE, None)];
        return Pair::new(Build::Real, units, 0, &shape);
    }
    Pair::new(Build::Real, units, 0, &[(0, ONE, p), (2, ONE, None), (2, 2 * ONE, None)])
}

/// The example of policy_yfq.c.
pub fn example(build: Build) -> String {
    let mut pair =
        Pair::new(build, 1, 0, &[(0, ONE, Some(YFQ)), (2, ONE, None), (2, 2 * ONE, None)]);
    let leaves = pair.leaves();
    for _ in 0..9 {
        for &l in &leaves {
            pair.arrive(l, 6).expect("room");
        }
    }
    let mut out = String::new();
    for _ in 0..9 {
        if let Err(e) = pair.pick(0) {
            return e;
        }
        let (item, leaf) = pair.slots[0].expect("work");
        debug_assert_ne!(pair.core.item(item).state, QUEUED);
        out.push(if leaf == leaves[0] { 'A' } else { 'B' });
        pair.settle(0, 6);
    }
    out
}
