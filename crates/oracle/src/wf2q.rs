// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy wf2q: the fluid system as defined (docs/notes/algorithms.md §2.1 and §2.2, packet by
//! packet, in rationals, with lists and linear search), in lockstep with the core; and what WF-1
//! promises: how far what is sent may be from it.

use std::collections::{BTreeMap, VecDeque};

use num_traits::{Signed, Zero};

use crate::core::{Build, Core, FIFO, Id, ONE, Op, QUEUE, ROOT, SCHED, Setup, WF2Q, id};
use crate::model::{Q, q, ulps};
use crate::rng::Rng;

/// Work that came at once.
#[derive(Clone, Debug)]
struct Arrival {
    /// When the fluid begins with it.
    start: Q,
    work: u64,
}

#[derive(Clone, Debug)]
struct Node {
    parent: Id,
    weight: u32,
    /// What has not been sent whole.
    arrivals: VecDeque<Arrival>,
    /// Of the first, sent.
    sent: u64,
    /// Where the fluid has served all; none: it has nothing.
    end: Option<Q>,
    /// As a parent: virtual time, what it has of the step in service, and for how much work it
    /// stands still.
    v: Q,
    done: u64,
    defer: Q,
    longest: u64,
    item: Option<u32>,
}

impl Node {
    fn span(&self, work: &Q) -> Q {
        work * q(1000, self.weight)
    }

    fn whole(&self, work: u64) -> Q {
        self.span(&q(work, 1))
    }

    /// Told, and not sent.
    fn waiting(&self) -> u64 {
        self.arrivals.iter().map(|a| a.work).sum::<u64>() - self.sent
    }

    /// The tag of what is `ahead` behind what has been sent; at a joint the earlier one.
    fn tag(&self, ahead: u64) -> Option<Q> {
        let mut to = self.sent + ahead;
        for a in &self.arrivals {
            if to <= a.work {
                return Some(&a.start + self.whole(to));
            }
            to -= a.work;
        }
        None
    }
}

/// A tree of wf2q nodes, and the core.
#[derive(Debug)]
pub struct Pair {
    core: Core,
    nodes: BTreeMap<Id, Node>,
    leaves: Vec<Id>,
    queues: BTreeMap<Id, VecDeque<u32>>,
    served: Option<Id>,
    drift: u64,
    now: u64,
}

const TOP: Id = id(2, 1);

impl Pair {
    /// A tree in which node k + 2 has that parent (0: the root), weight, and is a scheduler or not;
    /// the first one is a scheduler.
    fn new(build: Build, start: u64, shape: &[(u32, u32, bool)]) -> Self {
        let mut core = Core::new(Setup { build, start, ..Setup::default() });
        let (mut nodes, mut leaves, mut queues) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (k, &(parent, weight, sched)) in (2..).zip(shape) {
            let (node, parent) = (id(k, 1), if parent == 0 { ROOT } else { id(parent, 1) });
            let (kind, alg) = if sched { (SCHED, WF2Q) } else { (QUEUE, FIFO) };
            core.must(0, Op::Create { node, parent, kind, alg });
            core.must(0, Op::Reweight { node, weight });
            let item = (!sched).then(|| core.item_new(node, ONE, 0).expect("room"));
            if !sched {
                leaves.push(node);
                queues.insert(node, VecDeque::new());
            }
            let (arrivals, sent, end, done, longest) = (VecDeque::new(), 0, None, 0, 0);
            let (v, defer) = (Q::zero(), Q::zero());
            nodes.insert(
                node,
                Node { parent, weight, arrivals, sent, end, v, done, defer, longest, item },
            );
        }
        Self { core, nodes, leaves, queues, served: None, drift: 8, now: 0 }
    }

    fn random(build: Build, r: &mut Rng, flat: bool) -> Self {
        let mut shape = vec![(0, ONE, true)];
        let mut schedulers = vec![2];
        let weight = |r: &mut Rng| u32::try_from(r.range(1, 9)).expect("small") * ONE;
        for _ in 0..if flat { 0 } else { r.below(4) } {
            let parent = *r.pick(&schedulers);
            let index = 2 + u32::try_from(shape.len()).expect("few");
            shape.push((parent, weight(r), true));
            schedulers.push(index);
        }
        for _ in 0..r.range(2, 6) {
            shape.push((*r.pick(&schedulers), weight(r), false));
        }
        let start = *r.pick(&[0, 0, u64::MAX - 3000, (1 << 63) - 3000]);
        Self::new(build, start, &shape)
    }

    fn below(&self, n: Id, top: Id) -> bool {
        let mut at = n;
        while at != top {
            match self.nodes.get(&at) {
                Some(node) => at = node.parent,
                None => return false,
            }
        }
        true
    }

    fn ready(&self, n: Id) -> bool {
        let waits = |leaf: &Id| self.queues[leaf].len() > usize::from(self.served == Some(*leaf));
        // A queue in service waits for its end, whatever is behind.
        self.leaves.iter().any(|l| waits(l) && self.served != Some(*l) && self.below(*l, n))
    }

    fn serves(&self, n: Id) -> bool {
        self.served.is_some_and(|leaf| self.below(leaf, n))
    }

    fn runnable(&self, n: Id) -> bool {
        self.ready(n) || self.serves(n)
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

    fn at(&mut self, n: Id) -> &mut Node {
        self.nodes.get_mut(&n).expect("a node")
    }

    /// The fluid of p serves `work` more.
    fn advance(&mut self, p: Id, mut work: Q) {
        let still = work.clone().min(self.nodes[&p].defer.clone());
        self.at(p).defer -= &still;
        work -= still;
        loop {
            let v = self.nodes[&p].v.clone();
            let of: Vec<Id> = self
                .children(p)
                .into_iter()
                .filter(|c| self.nodes[c].end.as_ref().is_some_and(|e| *e > v))
                .collect();
            let total: u64 = of.iter().map(|c| u64::from(self.nodes[c].weight)).sum();
            let Some(first) = of.iter().filter_map(|c| self.nodes[c].end.clone()).min() else {
                return;
            };
            if work.is_zero() {
                return;
            }
            let need = (&first - &v) * q(total, 1000);
            if need > work {
                self.at(p).v += work * q(1000, total);
                return;
            }
            work -= need;
            self.at(p).v = first;
        }
    }

    /// The step in service below p has done `work` by now.
    fn progress(&mut self, p: Id, work: u64) {
        let more = work.saturating_sub(self.nodes[&p].done);
        if more > 0 {
            self.advance(p, q(more, 1));
            self.at(p).done = work;
        }
    }

    /// V goes on to the smallest start tag where nobody is eligible.
    fn jump(&mut self) {
        let parents: Vec<Id> =
            self.nodes.keys().copied().filter(|n| !self.queues.contains_key(n)).collect();
        for p in parents.into_iter().filter(|p| !self.serves(*p)).collect::<Vec<_>>() {
            let ready = self.children(p).into_iter().filter(|c| self.ready(*c));
            let least = ready.filter_map(|c| self.nodes[&c].tag(0)).min();
            if let Some(least) = least
                && least > self.nodes[&p].v
            {
                self.at(p).v = least;
            }
        }
    }

    fn arrive(&mut self, leaf: Id, length: u32, done: Option<u32>) {
        let first = self.queues[&leaf].is_empty();
        let full = self.served.map_or(0, |l| self.queues[&l][0]);
        for n in self.path(leaf) {
            let p = self.nodes[&n].parent;
            if !self.nodes.contains_key(&p) {
                continue;
            }
            if self.serves(p) {
                self.progress(p, u64::from(done.map_or(full, |d| d.min(full))));
            }
            let v = self.nodes[&p].v.clone();
            let node = self.at(n);
            let start = node.end.clone().filter(|e| *e > v).unwrap_or(v);
            node.end = Some(&start + node.whole(length.into()));
            node.arrivals.push_back(Arrival { start, work: length.into() });
            node.longest = node.longest.max(length.into());
        }
        self.queues.get_mut(&leaf).expect("a leaf").push_back(length);
        let item = self.nodes[&leaf].item.expect("a leaf");
        self.core.progress(done.unwrap_or(u32::MAX));
        self.core.arrive(item, length);
        if first {
            self.core.item_length(item, length);
            self.core.wake(item, self.now);
        }
        self.drift += 2;
    }

    /// n goes out of its parent's fluid, with what it has there.
    fn flush(&mut self, n: Id) {
        let p = self.nodes[&n].parent;
        let v = self.nodes[&p].v.clone();
        let node = self.at(n);
        let fluid = node
            .end
            .take()
            .filter(|e| *e > v)
            .map_or_else(Q::zero, |e| (e - v) * q(node.weight, 1000));
        let lag = q(node.waiting(), 1) - fluid;
        node.arrivals.clear();
        node.sent = 0;
        if lag.is_positive() {
            self.advance(p, lag);
        } else {
            self.at(p).defer -= lag;
        }
    }

    fn gone_idle(&mut self, leaf: Id) {
        for n in self.path(leaf) {
            let p = self.nodes[&n].parent;
            if self.runnable(n) {
                break;
            }
            if !self.nodes.contains_key(&p) {
                continue;
            }
            if self.runnable(p) {
                if self.nodes[&n].waiting() > 0 {
                    self.flush(n);
                }
                continue;
            }
            self.at(p).defer = Q::zero();
            for c in self.children(p) {
                let node = self.at(c);
                (node.end, node.sent) = (None, 0);
                node.arrivals.clear();
            }
        }
    }

    fn remove(&mut self, leaf: Id) {
        self.queues.get_mut(&leaf).expect("a leaf").clear();
        self.gone_idle(leaf);
        self.core.remove(self.nodes[&leaf].item.expect("a leaf"));
        self.drift += 8;
    }

    /// The core's answer to what ties and roundings decide: which head a node has. It must be
    /// right.
    fn head(&self, n: Id) -> Result<u64, String> {
        if let Some(queue) = self.queues.get(&n) {
            return queue.front().map(|l| u64::from(*l)).ok_or_else(|| "an empty queue".into());
        }
        let head = u64::from(self.core.node(n).head);
        for c in self.best(n)? {
            if self.head(c)? == head {
                return Ok(head);
            }
        }
        Err(format!("node {n:x}: head of {head}"))
    }

    /// The children that p may serve next.
    fn best(&self, p: Id) -> Result<Vec<Id>, String> {
        let (v, slack) = (&self.nodes[&p].v, ulps(self.drift));
        let mut out = Vec::new();
        for c in self.children(p).into_iter().filter(|&c| self.ready(c)) {
            let child = &self.nodes[&c];
            let (s, f) = (child.tag(0), child.tag(self.head(c)?));
            let (Some(s), Some(f)) = (s, f) else { return Err(format!("node {c:x} has nothing")) };
            // Where two arrivals meet the next begins.
            let s = if child.arrivals.front().is_some_and(|a| a.work == child.sent) {
                child.arrivals[1].start.clone()
            } else {
                s
            };
            out.push((c, s, f));
        }
        let sure = out.iter().filter(|x| x.1 <= v - &slack).map(|x| &x.2).min().cloned();
        let fits =
            |x: &&(Id, Q, Q)| x.1 <= v + &slack && sure.as_ref().is_none_or(|f| x.2 <= f + &slack);
        Ok(out.iter().filter(fits).map(|x| x.0).collect())
    }

    fn pick(&mut self) -> Result<Option<Id>, String> {
        let Some(item) = self.core.pick(0, self.now) else {
            let waits = self.ready(TOP);
            return if waits {
                Err("nothing picked, though something waits".into())
            } else {
                Ok(None)
            };
        };
        let leaf =
            *self.leaves.iter().find(|l| self.nodes[l].item == Some(item)).ok_or("which item?")?;
        for pair in self.path(leaf).windows(2) {
            let best = self.best(pair[1])?;
            if !best.contains(&pair[0]) {
                return Err(format!("{:x} picked below {:x}, of {best:x?}", pair[0], pair[1]));
            }
        }
        self.compare()?;
        self.served = Some(leaf);
        Ok(Some(leaf))
    }

    fn compare(&self) -> Result<(), String> {
        for (&c, n) in &self.nodes {
            let Some(p) = self.nodes.get(&n.parent) else { continue };
            if !self.ready(c) {
                continue;
            }
            let (node, parent) = (self.core.node(c), self.core.node(n.parent));
            let got = q(node.tag.wrapping_sub(parent.v).cast_signed(), 1);
            let want = (n.tag(0).ok_or("no tag")? - &p.v) / ulps(1);
            if (&got - &want).abs() > q(self.drift, 1) {
                return Err(format!(
                    "node {c:x}: {got} ahead of V, expected {}",
                    want.to_integer()
                ));
            }
        }
        Ok(())
    }

    /// The packet in service has left. `next`: one more comes before the queue is looked at again.
    fn settle(&mut self) {
        let Some(leaf) = self.served.take() else { return };
        let queue = self.queues.get_mut(&leaf).expect("a leaf");
        let work = queue.pop_front().expect("a packet");
        let next = queue.front().copied();
        for pair in self.path(leaf).windows(2) {
            self.progress(pair[1], work.into());
            self.at(pair[1]).done = 0;
            let node = self.at(pair[0]);
            node.sent += u64::from(work);
            while node.arrivals.front().is_some_and(|a| a.work <= node.sent) {
                node.sent -= node.arrivals.pop_front().expect("it is there").work;
            }
        }
        if next.is_none() {
            self.gone_idle(leaf);
        }
        let item = self.nodes[&leaf].item.expect("a leaf");
        if let Some(length) = next {
            self.core.item_length(item, length);
        }
        self.core.settle(item, work.into(), next.is_some(), self.now);
        self.drift += 2;
    }

    fn reweight(&mut self, n: Id, weight: u32) {
        let p = self.nodes[&n].parent;
        if let Some(v) = self.nodes.get(&p).map(|p| p.v.clone()) {
            let node = self.at(n);
            let by = q(node.weight, weight);
            let ghost = node.end.as_ref().is_some_and(|e| *e > v);
            for a in &mut node.arrivals {
                a.start = &v + (&a.start - &v) * &by;
            }
            node.end = if ghost { node.end.as_ref().map(|e| &v + (e - &v) * &by) } else { None };
            let more = 2 + 4 * u64::from(node.weight / weight);
            self.drift += more;
        }
        self.at(n).weight = weight;
        self.core.must(self.now, Op::Reweight { node: n, weight });
    }

    fn verify(&self) -> Result<(), String> {
        self.core.check()?;
        let sum = self.core.node(TOP).service;
        let parts: u64 = self.leaves.iter().map(|&l| self.core.node(l).service).sum();
        if sum == parts { Ok(()) } else { Err(format!("{parts} of {sum} served")) }
    }

    /// WF-1: of each child of the top, which are queues. Answers the worst of both as parts of
    /// their bounds.
    fn near(&self, ahead_too: bool) -> Result<[f64; 2], String> {
        let top = &self.nodes[&TOP];
        let of = self.children(TOP);
        let sum: u64 = of.iter().map(|c| u64::from(self.nodes[c].weight)).sum();
        let longest = of.iter().map(|c| self.nodes[c].longest).max().unwrap_or(0);
        let real = |x: &Q| {
            use num_traits::ToPrimitive as _;
            x.to_f64().unwrap_or(f64::NAN)
        };
        let slack = ulps(self.drift) * q(sum, 1000);
        let mut worst = [0.0_f64; 2];
        for c in of {
            let n = &self.nodes[&c];
            let fluid = n.end.as_ref().filter(|e| **e > top.v);
            let fluid = fluid.map_or_else(Q::zero, |e| (e - &top.v) * q(n.weight, 1000));
            let behind = q(n.waiting(), 1) - fluid;
            let room = q(n.longest, 1) * (q(1, 1) - q(n.weight, sum));
            worst[0] = worst[0].max(real(&(&behind / q(longest.max(1), 1))));
            if behind > q(longest, 1) + &slack {
                return Err(format!(
                    "WF-1: {c:x} is {} behind the fluid, at most {longest}",
                    real(&behind)
                ));
            }
            if ahead_too && n.longest > 0 && room.is_positive() {
                worst[1] = worst[1].max(real(&(-&behind / &room)));
                if -&behind > &room + &slack {
                    return Err(format!(
                        "WF-1: {c:x} is {} ahead of the fluid, at most {}",
                        real(&-behind),
                        real(&room)
                    ));
                }
            }
        }
        Ok(worst)
    }

    fn waiting_leaf(&self, r: &mut Rng) -> Option<Id> {
        let waits = |l: &Id| !self.queues[l].is_empty() && self.served != Some(*l);
        let of: Vec<Id> = self.leaves.iter().copied().filter(waits).collect();
        (!of.is_empty()).then(|| *r.pick(&of))
    }
}

/// Random events, compared after each.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x69b5);
    let mut pair = Pair::random(build, &mut r, false);
    let most = *r.pick(&[20, 1500, 65_000]);
    for step in 0..250 {
        let said = |e: String| format!("step {step}: {e}");
        pair.now += 1;
        match r.below(20) {
            0..=8 => {
                if pair.served.is_some() {
                    pair.settle();
                } else {
                    pair.jump();
                    pair.pick().map_err(said)?;
                }
            }
            9..=16 => {
                let leaf = *r.pick(&pair.leaves);
                if pair.queues[&leaf].len() < 6 {
                    pair.jump();
                    let length = u32::try_from(r.range(1, most)).expect("small");
                    let done = r.chance(70).then(|| u32::try_from(r.below(most)).expect("small"));
                    pair.arrive(leaf, length, done);
                }
            }
            17 if r.chance(30) => {
                if let Some(leaf) = pair.waiting_leaf(&mut r) {
                    pair.remove(leaf);
                }
            }
            18 if r.chance(40) => {
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

/// WF-1 on one node; with `reweights` only that nobody falls behind. Answers the worst of both
/// sides as parts of the bounds.
pub fn nearness(build: Build, seed: u64, reweights: bool) -> Result<[f64; 2], String> {
    let mut r = Rng::new(seed ^ 0x17f1);
    let mut pair = Pair::random(build, &mut r, true);
    let most = *r.pick(&[20, 1500, 65_000]);
    let mut worst = [0.0_f64; 2];
    for step in 0..300 {
        let said = |e: String| format!("step {step}: {e}");
        pair.now += 1;
        pair.jump();
        for leaf in pair.leaves.clone() {
            if r.chance(35) && pair.queues[&leaf].len() < 8 {
                let length = u32::try_from(r.range(1, most)).expect("small");
                let done = pair
                    .served
                    .map(|l| u32::try_from(r.below(pair.queues[&l][0].into())).expect("small"));
                pair.arrive(leaf, length, done);
            }
        }
        if pair.served.is_some() {
            pair.settle();
            let near = pair.near(!reweights).map_err(said)?;
            worst = [worst[0].max(near[0]), worst[1].max(near[1])];
        }
        if reweights && r.chance(10) {
            let leaf = *r.pick(&pair.leaves);
            pair.reweight(leaf, u32::try_from(r.range(1, 9)).expect("small") * ONE);
        }
        pair.jump();
        pair.pick().map_err(said)?;
    }
    Ok(worst)
}

/// WF-1, and under reweights.
pub fn wf1(build: Build, seed: u64) -> Result<(), String> {
    nearness(build, seed, false)?;
    nearness(build, seed, true).map(drop)
}

/// The example of policy_wf2q.c.
pub fn example(build: Build) -> String {
    let mut pair = Pair::new(build, 0, &[(0, ONE, true), (2, ONE, false), (2, 2 * ONE, false)]);
    let (a, b) = (pair.leaves[0], pair.leaves[1]);
    for _ in 0..3 {
        pair.arrive(a, 6, None);
        pair.arrive(b, 6, None);
    }
    let mut out = String::new();
    for _ in 0..6 {
        pair.jump();
        let Ok(Some(leaf)) = pair.pick() else { return out };
        out.push(if leaf == a { 'A' } else { 'B' });
        pair.settle();
    }
    out
}
