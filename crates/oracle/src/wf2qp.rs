// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy wf2q+: the exact model (docs/notes/algorithms.md §2.3 and §2.4 with late commit of what
//! is sent, in rationals), in lockstep with the core. Its theorems are in [`crate::link`].

use std::collections::BTreeMap;

use num_traits::{Signed, Zero};

use crate::core::{Build, Core, FIFO, Id, ONE, Op, QUEUE, ROOT, SCHED, Setup, WF2QP, id};
use crate::model::{Q, q, ulps};
use crate::rng::Rng;
use crate::tiny::Tiny;

#[derive(Clone, Debug)]
struct Node {
    parent: Id,
    weight: u32,
    /// Start tag; the finish tag while idle.
    s: Q,
    /// The busy period of the parent in which it was set.
    epoch: u64,
    /// As a parent: virtual time, and which busy period this is.
    v: Q,
    busy: u64,
    /// Of the step in service, what V has.
    done: u64,
    /// The finish tag, for that head (0: to be found anew), and what it does not fall below, since
    /// which pick of the parent.
    finish: Q,
    head: u64,
    floor: Option<Q>,
    mark: u64,
    /// As a parent: picks among its children.
    picks: u64,
    item: Option<u32>,
}

impl Node {
    fn step(&self, work: u64) -> Q {
        q(u128::from(work) * 1000, self.weight)
    }
}

/// What a queue's item does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Idle,
    Waits,
    Served,
}

/// A tree of wf2q+ nodes, and the core.
#[derive(Debug)]
pub struct Pair {
    core: Core,
    nodes: BTreeMap<Id, Node>,
    leaves: Vec<Id>,
    what: BTreeMap<Id, (What, u32)>,
    drift: u64,
    now: u64,
}

const TOP: Id = id(2, 1);

impl Pair {
    /// A tree in which node k + 2 has that parent (0: the root), weight, and is a scheduler or not;
    /// the first one is a scheduler.
    fn new(build: Build, start: u64, shape: &[(u32, u32, bool)]) -> Self {
        let mut core = Core::new(Setup { build, start, ..Setup::default() });
        let mut nodes = BTreeMap::new();
        let mut leaves = Vec::new();
        let mut what = BTreeMap::new();
        for (k, &(parent, weight, sched)) in (2..).zip(shape) {
            let (node, parent) = (id(k, 1), if parent == 0 { ROOT } else { id(parent, 1) });
            let (kind, alg) = if sched { (SCHED, WF2QP) } else { (QUEUE, FIFO) };
            core.must(0, Op::Create { node, parent, kind, alg });
            core.must(0, Op::Reweight { node, weight });
            let item = (!sched).then(|| core.item_new(node, ONE, 0).expect("room"));
            if !sched {
                leaves.push(node);
                what.insert(node, (What::Idle, 0));
            }
            let zero = Q::zero;
            nodes.insert(
                node,
                Node {
                    parent,
                    weight,
                    s: zero(),
                    epoch: 0,
                    v: zero(),
                    busy: 1,
                    done: 0,
                    finish: zero(),
                    head: 0,
                    floor: None,
                    mark: 0,
                    picks: 0,
                    item,
                },
            );
        }
        Self { core, nodes, leaves, what, drift: 8, now: 0 }
    }

    fn random(build: Build, r: &mut Rng) -> Self {
        let mut shape = vec![(0, ONE, true)];
        let mut schedulers = vec![2];
        let weight = |r: &mut Rng| u32::try_from(r.range(1, 9)).expect("small") * ONE;
        for _ in 0..r.below(4) {
            let parent = *r.pick(&schedulers);
            let index = 2 + u32::try_from(shape.len()).expect("few");
            shape.push((parent, weight(r), true));
            schedulers.push(index);
        }
        // Some scheduler may stay empty.
        for _ in 0..r.range(2, 6) {
            shape.push((*r.pick(&schedulers), weight(r), false));
        }
        let start = *r.pick(&[0, 0, u64::MAX - 3000, (1 << 63) - 3000]);
        Self::new(build, start, &shape)
    }

    fn below(&self, n: Id, top: Id) -> bool {
        let mut at = n;
        loop {
            if at == top {
                return true;
            }
            match self.nodes.get(&at) {
                Some(node) => at = node.parent,
                None => return false,
            }
        }
    }

    fn some(&self, n: Id, what: impl Fn(What) -> bool) -> bool {
        self.what.iter().any(|(&leaf, &(w, _))| what(w) && self.below(leaf, n))
    }

    fn ready(&self, n: Id) -> bool {
        self.some(n, |w| w == What::Waits)
    }

    fn served(&self, n: Id) -> bool {
        self.some(n, |w| w == What::Served)
    }

    fn runnable(&self, n: Id) -> bool {
        self.some(n, |w| w != What::Idle)
    }

    fn children(&self, p: Id) -> Vec<Id> {
        self.nodes.iter().filter(|(_, n)| n.parent == p).map(|(&i, _)| i).collect()
    }

    fn path(&self, leaf: Id) -> Vec<Id> {
        let mut out = vec![leaf];
        while out[out.len() - 1] != TOP {
            out.push(self.nodes[&out[out.len() - 1]].parent);
        }
        out
    }

    /// The core's answer to what ties and roundings decide: which head a node has. It must be
    /// right.
    fn head(&self, n: Id) -> Result<u64, String> {
        if let Some(&(_, length)) = self.what.get(&n) {
            return Ok(length.into());
        }
        let head = u64::from(self.core.node(n).head);
        let best = self.best(n);
        for c in best {
            if self.head(c)? == head {
                return Ok(head);
            }
        }
        Err(format!("node {n:x}: head of {head}"))
    }

    /// The children that p may serve next.
    fn best(&self, p: Id) -> Vec<Id> {
        let (v, slack) = (&self.nodes[&p].v, ulps(self.drift));
        let mut out = Vec::new();
        for c in self.children(p).into_iter().filter(|&c| self.ready(c)) {
            let n = &self.nodes[&c];
            out.push((c, n.s.clone(), n.finish.clone()));
        }
        let sure = out.iter().filter(|x| x.1 <= v - &slack).map(|x| &x.2).min().cloned();
        out.into_iter()
            .filter(|x| x.1 <= v + &slack && sure.as_ref().is_none_or(|f| x.2 <= f + &slack))
            .map(|x| x.0)
            .collect()
    }

    /// V goes on to the smallest start tag where nobody is eligible.
    fn jump(&mut self) {
        let parents: Vec<Id> =
            self.nodes.keys().copied().filter(|n| !self.what.contains_key(n)).collect();
        for p in parents {
            if self.served(p) {
                continue;
            }
            let least = self
                .children(p)
                .into_iter()
                .filter(|&c| self.ready(c))
                .map(|c| self.nodes[&c].s.clone())
                .min();
            let node = self.nodes.get_mut(&p).expect("a node");
            if let Some(least) = least
                && least > node.v
            {
                node.v = least;
            }
        }
        self.commit();
    }

    /// The finish tag is the parent's to go by, and no more to be had sooner once that has picked.
    fn commit(&mut self) {
        let mut nodes: Vec<Id> = self.nodes.keys().copied().filter(|&n| n != TOP).collect();
        nodes.sort_by_key(|&n| std::cmp::Reverse(self.path(n).len()));
        for n in nodes {
            if !self.ready(n) || self.served(n) {
                continue;
            }
            let Ok(head) = self.head(n) else { continue };
            let picks = self.nodes[&self.nodes[&n].parent].picks;
            let node = self.nodes.get_mut(&n).expect("a node");
            if head == node.head {
                continue;
            }
            if node.mark != picks {
                (node.floor, node.mark) = (Some(node.finish.clone()), picks);
            }
            node.head = head;
            node.finish = &node.s + node.step(head);
            if let Some(floor) = &node.floor {
                node.finish = node.finish.clone().max(floor.clone());
            }
        }
    }

    /// S has changed.
    fn anew(&mut self, n: Id, floor: Option<Q>) {
        let picks = self.nodes.get(&self.nodes[&n].parent).map_or(0, |p| p.picks);
        let node = self.nodes.get_mut(&n).expect("a node");
        (node.floor, node.mark, node.head) = (floor, picks, 0);
    }

    /// W of p: who is runnable, and who is idle ahead of V.
    fn total(&self, p: Id) -> u64 {
        let parent = &self.nodes[&p];
        let counts = |c: &Id| {
            let n = &self.nodes[c];
            if self.runnable(*c) {
                return true;
            }
            if n.epoch != parent.busy {
                return false;
            }
            let ahead = &n.s - &parent.v;
            // Too near for rounding to tell: the core's word.
            if ahead.abs() <= ulps(self.drift) {
                self.core.node(*c).client != 0
            } else {
                ahead.is_positive()
            }
        };
        self.children(p).iter().filter(|c| counts(c)).map(|c| u64::from(self.nodes[c].weight)).sum()
    }

    /// The step in service below p has done `work` by now.
    fn advance(&mut self, p: Id, work: u64) {
        let more = work.saturating_sub(self.nodes[&p].done);
        if more > 0 {
            let v = q(u128::from(more) * 1000, self.total(p));
            let node = self.nodes.get_mut(&p).expect("a node");
            node.v += v;
            node.done = work;
        }
    }

    fn wake(&mut self, leaf: Id, length: u32, done: Option<u32>) {
        let served = self.what.iter().find(|(_, w)| w.0 == What::Served).map(|(&l, w)| (l, w.1));
        for n in self.path(leaf) {
            if self.runnable(n) {
                break;
            }
            let p = self.nodes[&n].parent;
            if self.nodes.contains_key(&p) {
                if let Some((l, full)) = served
                    && self.below(l, p)
                {
                    let work = u64::from(done.map_or(full, |d| d.min(full)));
                    self.advance(p, work);
                }
                let (now, busy) = (self.nodes[&p].v.clone(), self.nodes[&p].busy);
                let node = self.nodes.get_mut(&n).expect("a node");
                if node.epoch != busy || node.s < now {
                    node.s = now;
                }
                node.epoch = busy;
                self.anew(n, None);
            }
        }
        self.what.insert(leaf, (What::Waits, length));
        let item = self.nodes[&leaf].item.expect("a leaf");
        self.core.progress(done.unwrap_or(u32::MAX));
        self.core.item_length(item, length);
        self.core.wake(item, self.now);
        self.drift += 2;
    }

    fn gone_idle(&mut self, leaf: Id) {
        for n in self.path(leaf) {
            let p = self.nodes[&n].parent;
            if self.runnable(n) {
                break;
            }
            if self.nodes.contains_key(&p) && !self.runnable(p) {
                self.nodes.get_mut(&p).expect("a node").busy += 1;
            }
        }
    }

    fn remove(&mut self, leaf: Id) {
        self.what.insert(leaf, (What::Idle, 0));
        self.gone_idle(leaf);
        self.core.remove(self.nodes[&leaf].item.expect("a leaf"));
    }

    fn pick(&mut self) -> Result<Option<Id>, String> {
        let got = self.core.pick(0, self.now);
        let Some(item) = got else {
            return if self.ready(TOP) {
                Err("nothing picked, though something waits".into())
            } else {
                Ok(None)
            };
        };
        let leaf =
            *self.leaves.iter().find(|l| self.nodes[l].item == Some(item)).ok_or("which item?")?;
        for pair in self.path(leaf).windows(2) {
            let best = self.best(pair[1]);
            if !best.contains(&pair[0]) {
                let told: Vec<String> =
                    self.children(pair[1]).into_iter().map(|c| self.told(c)).collect();
                return Err(format!(
                    "{:x} picked below {:x}, of {best:x?}: {}",
                    pair[0],
                    pair[1],
                    told.join("; ")
                ));
            }
        }
        self.compare()?;
        for p in self.path(leaf).into_iter().skip(1) {
            self.nodes.get_mut(&p).expect("a node").picks += 1;
        }
        let length = self.what[&leaf].1;
        self.what.insert(leaf, (What::Served, length));
        Ok(Some(leaf))
    }

    /// A child's tags, from its parent's V on, in the core's units.
    fn told(&self, c: Id) -> String {
        let (n, p) = (&self.nodes[&c], &self.nodes[&self.nodes[&c].parent]);
        let of = |x: &Q| ((x - &p.v) / ulps(1)).to_integer();
        format!(
            "{c:x}: weight {}, waits {}, S {}, F {}, not before {:?}, head {} since pick {} of {}",
            n.weight,
            self.ready(c),
            of(&n.s),
            of(&n.finish),
            n.floor.as_ref().map(of),
            n.head,
            n.mark,
            p.picks
        )
    }

    fn compare(&self) -> Result<(), String> {
        for (&c, n) in &self.nodes {
            let Some(p) = self.nodes.get(&n.parent) else { continue };
            if !self.ready(c) {
                continue;
            }
            let (node, parent) = (self.core.node(c), self.core.node(n.parent));
            let got = q(node.tag.wrapping_sub(parent.v).cast_signed(), 1);
            let want = (&n.s - &p.v) / ulps(1);
            if (&got - &want).abs() > q(self.drift, 1) {
                return Err(format!(
                    "node {c:x}: {got} ahead of V, expected {}",
                    want.to_integer()
                ));
            }
        }
        Ok(())
    }

    fn settle(&mut self, leaf: Id, work: u64, next: Option<u32>) {
        for pair in self.path(leaf).windows(2) {
            let step = self.nodes[&pair[0]].step(work);
            self.advance(pair[1], work);
            self.nodes.get_mut(&pair[1]).expect("a node").done = 0;
            self.nodes.get_mut(&pair[0]).expect("a node").s += step;
            let floor = self.nodes[&pair[0]].finish.clone();
            self.anew(pair[0], Some(floor));
        }
        self.what.insert(leaf, next.map_or((What::Idle, 0), |l| (What::Waits, l)));
        if next.is_none() {
            self.gone_idle(leaf);
        }
        let item = self.nodes[&leaf].item.expect("a leaf");
        if let Some(length) = next {
            self.core.item_length(item, length);
        }
        self.core.settle(item, work, next.is_some(), self.now);
        self.drift += 2;
    }

    fn reweight(&mut self, n: Id, weight: u32) {
        let p = self.nodes[&n].parent;
        if let Some(parent) = self.nodes.get(&p) {
            let (v, busy) = (parent.v.clone(), parent.busy);
            let counts = self.runnable(n) || (self.nodes[&n].epoch == busy && self.nodes[&n].s > v);
            let node = self.nodes.get_mut(&n).expect("a node");
            if counts && node.epoch == busy {
                node.s = &v + (&node.s - &v) * q(node.weight, weight);
            }
            self.drift += 2 + 4 * u64::from(node.weight / weight);
            if counts && weight != self.nodes[&n].weight {
                let head = self.nodes[&n].head;
                self.anew(n, None);
                let node = self.nodes.get_mut(&n).expect("a node");
                (node.head, node.weight) = (head, weight);
                node.finish = &node.s + node.step(head);
            }
        }
        self.nodes.get_mut(&n).expect("a node").weight = weight;
        self.core.must(self.now, Op::Reweight { node: n, weight });
    }

    fn relength(&mut self, leaf: Id, length: u32) {
        self.what.insert(leaf, (What::Waits, length));
        self.core.item_length(self.nodes[&leaf].item.expect("a leaf"), length);
    }

    fn verify(&self) -> Result<(), String> {
        self.core.check()?;
        let sum = self.core.node(TOP).service;
        let parts: u64 = self.leaves.iter().map(|&l| self.core.node(l).service).sum();
        if sum == parts { Ok(()) } else { Err(format!("{parts} of {sum} served")) }
    }

    fn leaf(&self, r: &mut Rng, what: What) -> Option<Id> {
        let of: Vec<Id> = self.leaves.iter().copied().filter(|l| self.what[l].0 == what).collect();
        (!of.is_empty()).then(|| *r.pick(&of))
    }
}

/// Random events, compared after each.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x3f2);
    let mut pair = Pair::random(build, &mut r);
    let most = *r.pick(&[20, 1500, 65_000]);
    for step in 0..250 {
        let said = |e: String| format!("step {step}: {e}");
        pair.now += 1;
        let length = u32::try_from(r.range(1, most)).expect("small");
        let served = pair.leaf(&mut r, What::Served);
        match r.below(20) {
            0..=9 => {
                if let Some(leaf) = served {
                    // Now and then less or more than was said.
                    let said = u64::from(pair.what[&leaf].1);
                    let work = if r.chance(10) { r.range(0, 2 * said) } else { said };
                    pair.settle(leaf, work, r.chance(70).then_some(length));
                } else {
                    pair.jump();
                    pair.pick().map_err(said)?;
                }
            }
            10..=15 => {
                if let Some(leaf) = pair.leaf(&mut r, What::Idle) {
                    pair.jump();
                    let done = r.chance(70).then(|| u32::try_from(r.below(most)).expect("small"));
                    pair.wake(leaf, length, done);
                }
            }
            16 => {
                if let Some(leaf) = pair.leaf(&mut r, What::Waits) {
                    if r.chance(50) {
                        pair.remove(leaf);
                    } else {
                        pair.relength(leaf, length);
                    }
                }
            }
            17 if r.chance(40) => {
                pair.jump();
                let nodes: Vec<Id> = pair.nodes.keys().copied().collect();
                pair.reweight(*r.pick(&nodes), u32::try_from(r.range(1, 9)).expect("small") * ONE);
            }
            _ => {}
        }
        pair.jump();
        pair.verify().map_err(said)?;
    }
    Ok(())
}

impl Tiny for Pair {
    fn options(&self) -> u32 {
        let count =
            |w| u32::try_from(self.what.values().filter(|x| x.0 == w).count()).expect("few");
        let turn = if count(What::Served) > 0 { 3 } else { 1 };
        turn + 2 * count(What::Idle) + count(What::Waits) + 1
    }

    fn take(&mut self, option: u32) -> Result<(), String> {
        let of = |p: &Self, w| -> Vec<Id> {
            p.leaves.iter().copied().filter(|l| p.what[l].0 == w).collect()
        };
        let (idle, waits, served) =
            (of(self, What::Idle), of(self, What::Waits), of(self, What::Served).first().copied());
        let mut k = option as usize;
        self.jump();
        let turn = if served.is_some() { 3 } else { 1 };
        if k < turn {
            match served {
                Some(leaf) => {
                    let next = [Some(6), Some(3), None][k];
                    self.settle(leaf, self.what[&leaf].1.into(), next);
                }
                None => drop(self.pick()?),
            }
        } else {
            k -= turn;
            if k < 2 * idle.len() {
                self.wake(idle[k / 2], [6, 3][k % 2], Some(3));
            } else if k - 2 * idle.len() < waits.len() {
                self.remove(waits[k - 2 * idle.len()]);
            } else {
                let leaf = self.leaves[0];
                let weight = if self.nodes[&leaf].weight == ONE { 3 * ONE } else { ONE };
                self.reweight(leaf, weight);
            }
        }
        self.jump();
        self.verify()
    }
}

/// Tiny trees for [`crate::tiny::every`]: two queues, or three in two levels.
pub fn tiny(levels: bool) -> Pair {
    if levels {
        let shape = [
            (0, ONE, true),
            (2, 2 * ONE, true),
            (3, ONE, false),
            (3, 2 * ONE, false),
            (2, ONE, false),
        ];
        return Pair::new(Build::Real, 0, &shape);
    }
    Pair::new(Build::Real, 0, &[(0, ONE, true), (2, ONE, false), (2, 2 * ONE, false)])
}

/// The example of policy_wf2qp.c.
pub fn example(build: Build) -> String {
    let mut pair = Pair::new(build, 0, &[(0, ONE, true), (2, ONE, false), (2, 2 * ONE, false)]);
    let (a, b) = (pair.leaves[0], pair.leaves[1]);
    pair.wake(a, 6, None);
    pair.wake(b, 6, None);
    let mut out = String::new();
    for _ in 0..6 {
        pair.jump();
        let Ok(Some(leaf)) = pair.pick() else { return out };
        out.push(if leaf == a { 'A' } else { 'B' });
        pair.settle(leaf, 6, Some(6));
    }
    out
}
