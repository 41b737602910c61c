// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exact model: ALGORITHMS §1 and §8.2 as written, in rationals, with lists and linear search.
//!
//! Tags are in work per weight of one.
//!
//! The model never chooses by itself: it is asked which answers are right
//! ([`Model::judge`]) and then told what was chosen, because fixed point may see two tags as equal whose exact values
//! differ by less than its unit.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, Zero};

use crate::core::{APART, BACKGROUND, BATCH, Id, ONE, Op, QUEUE, ROOT, SCHED, SFQ, TS};
use crate::eevdf::{Eevdf, Terms};

/// An exact number.
pub type Q = BigRational;

/// An exact number from whole ones.
///
/// # Panics
/// When `den` is 0.
pub fn q(num: impl Into<BigInt>, den: impl Into<BigInt>) -> Q {
    Q::new(num.into(), den.into())
}

/// Work at a weight in thousandths; background counts as weight one.
fn at_weight(work: u64, weight: u32) -> Q {
    q(u128::from(work) * 1000, if weight == 0 { ONE } else { weight })
}

/// What an item does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in sched.h")]
pub enum State {
    Idle,
    Queued,
    Service,
}

#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct Item {
    pub queue: Id,
    pub weight: u32,
    pub flags: u32,
    pub state: State,
    pub unit: u32,
    pub slice: u64,
    /// Start tag, or finish tag while idle; none: as a newcomer.
    pub tag: Option<Q>,
    /// Busy period of the queue in which the tag was valid.
    pub period: u64,
    pub seq: u64,
    pub queued_at: u64,
    pub order: u64,
    pub mask: Option<[u64; 4]>,
    pub service: u64,
}

#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct Node {
    pub parent: Option<Id>,
    pub kind: u32,
    pub alg: u32,
    pub weight: u32,
    pub dying: bool,
    pub members_max: u64,
    pub service: u64,
    pub served: u64,
    pub cap_ppm: u64,
    pub cap_burst: u64,
    /// Tokens in millionths of a unit of work.
    pub tok: i128,
    pub tok_at: u64,
    /// When a node that is held back may go on.
    pub due: Option<u64>,
    pub due_seq: u64,
    pub tag: Option<Q>,
    pub seq: u64,
    pub ready: bool,
    pub runnable: bool,
    pub v: Q,
    pub maxf: Q,
    pub vb: Q,
    pub period: u64,
    pub quantum: u64,
    pub lag: u64,
    pub request: u64,
    /// Its children, if its policy is eevdf.
    pub ev: Eevdf,
}

/// What the model says of an answer of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The only right answer, or tied by less than the fixed point's unit.
    Right,
    /// Wrong, and why.
    Wrong(String),
}

/// The model of one tree.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct Model {
    pub nodes: BTreeMap<Id, Node>,
    pub items: BTreeMap<u32, Item>,
    pub gens: BTreeMap<u32, u32>,
    pub units: u32,
    pub quantum: u64,
    pub starve_ns: u64,
    pub starve_gap_ns: u64,
    pub starved_at: u64,
    pub stamp: u64,
    /// How far fixed point may be off, in its units: grows with each operation that rounds.
    pub drift: u64,
    /// All tags are exact in fixed point too: ties must be broken by order.
    pub strict: bool,
    /// What the core says of its clients of eevdf after the event: decides where a lag is 0 but for rounding.
    pub told: BTreeMap<Id, bool>,
}

/// Policy eevdf.
pub const EEVDF: u32 = 1;

fn max(a: Q, b: &Q) -> Q {
    if a < *b { b.clone() } else { a }
}

impl Model {
    /// The root and q0.
    pub fn new(units: u32, quantum: u64) -> Self {
        let mut m = Self {
            nodes: BTreeMap::new(),
            items: BTreeMap::new(),
            gens: BTreeMap::new(),
            units,
            quantum,
            starve_ns: 0,
            starve_gap_ns: 0,
            starved_at: 0,
            stamp: 0,
            drift: 2,
            strict: false,
            told: BTreeMap::new(),
        };
        m.nodes.insert(ROOT, Node { weight: ONE, ..Self::fresh(None, SCHED, 0) });
        m.gens.insert(0, 1);
        m.create(crate::core::Q0, ROOT, QUEUE, TS);
        m.nodes.get_mut(&crate::core::Q0).expect("just made").weight = 100 * ONE;
        m
    }

    fn fresh(parent: Option<Id>, kind: u32, alg: u32) -> Node {
        Node {
            parent,
            kind,
            alg,
            weight: 0,
            dying: false,
            members_max: 0,
            service: 0,
            served: 0,
            cap_ppm: 0,
            cap_burst: 0,
            tok: 0,
            tok_at: 0,
            due: None,
            due_seq: 0,
            tag: None,
            seq: 0,
            ready: false,
            runnable: false,
            v: Q::zero(),
            maxf: Q::zero(),
            vb: Q::zero(),
            period: 1,
            quantum: 0,
            lag: 0,
            request: 0,
            ev: Eevdf::default(),
        }
    }

    fn create(&mut self, node: Id, parent: Id, kind: u32, alg: u32) {
        let mut n = Self::fresh(Some(parent), kind, alg);
        n.tag = Some(self.nodes[&parent].vb.clone());
        self.nodes.insert(node, n);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of an id")]
        self.gens.insert(node as u32, (node >> 32) as u32);
    }

    fn stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    fn n(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node")
    }

    fn it(&mut self, item: u32) -> &mut Item {
        self.items.get_mut(&item).expect("an item")
    }

    /// A node and its ancestors.
    pub fn path(&self, id: Id) -> Vec<Id> {
        let mut path = vec![id];
        while let Some(p) = self.nodes[path.last().expect("not empty")].parent {
            path.push(p);
        }
        path
    }

    /// Children of a node.
    pub fn children(&self, id: Id) -> Vec<Id> {
        self.nodes.iter().filter(|(_, n)| n.parent == Some(id)).map(|(&c, _)| c).collect()
    }

    fn members(&self, id: Id) -> Vec<u32> {
        self.items.iter().filter(|(_, i)| i.queue == id).map(|(&i, _)| i).collect()
    }

    fn below(&self, id: Id, top: Id) -> bool {
        self.path(id).contains(&top)
    }

    /// Steps in service below a node, and the work reserved for them.
    pub fn in_service(&self, id: Id) -> (u32, u64) {
        let mine = self.items.values().filter(|i| i.state == State::Service && self.below(i.queue, id));
        mine.fold((0, 0), |(n, w), i| (n + 1, w + i.slice))
    }

    fn waiting(&self, id: Id) -> bool {
        if self.nodes[&id].kind == QUEUE {
            return self.items.values().any(|i| i.queue == id && i.state == State::Queued);
        }
        self.children(id).iter().any(|c| self.nodes[c].ready)
    }

    fn keyed(&self, id: Id) -> bool {
        matches!(self.nodes[&id].alg, TS | SFQ)
    }

    fn tag_of(&self, id: Id) -> Q {
        self.nodes[&id].tag.clone().expect("a runnable node has a tag")
    }

    /// A child's place: its tag, as if the steps in service had taken what was reserved.
    fn key(&self, id: Id) -> Q {
        self.tag_of(id) + at_weight(self.in_service(id).1, self.nodes[&id].weight)
    }

    /// Virtual times after an event: the tag dispatched last ([`Model::begin`]); and where nothing is served, the least
    /// that waits. On one unit this is the published rule, the least tag among those who wait or are served,
    /// as long as the tags decide who is served.
    fn update_v(&mut self) {
        let ids: Vec<Id> = self.nodes.keys().copied().collect();
        for id in ids {
            self.update_v_of(id);
        }
    }

    fn update_v_of(&mut self, id: Id) {
        if self.fair_clock(id) || self.in_service(id).0 > 0 {
            return;
        }
        let least = if self.nodes[&id].kind == SCHED {
            let kids = self.children(id);
            let ready = kids.iter().filter(|c| self.nodes[c].weight > 0 && self.nodes[c].ready);
            ready.map(|&c| self.key(c)).min()
        } else if self.keyed(id) {
            let waiting = self.items.values().filter(|i| i.queue == id && i.state == State::Queued);
            waiting.map(|i| i.tag.clone().expect("a tag")).min()
        } else {
            None
        };
        if let Some(least) = least {
            let n = self.n(id);
            n.v = max(n.v.clone(), &least);
        }
    }

    fn wake_node(&mut self, p: Id, c: Id) {
        if self.fair_clock(p) && self.nodes[&c].weight > 0 {
            return self.ev_wake(p, c, self.nodes[&c].weight);
        }
        let (v, vb) = (self.nodes[&p].v.clone(), self.nodes[&p].vb.clone());
        let n = self.n(c);
        let from = if n.weight == 0 { vb } else { v };
        n.tag = Some(n.tag.take().map_or(from.clone(), |f| max(f, &from)));
        self.drift += 1;
    }

    fn idle_node(&mut self, p: Id, c: Id) {
        if self.nodes[&c].weight == 0 {
            return;
        }
        let kids = self.children(p);
        let busy = kids.iter().any(|k| *k != c && self.nodes[k].runnable && self.nodes[k].weight > 0);
        if self.fair_clock(p) {
            return self.ev_idle(p, c, busy);
        }
        let tag = self.tag_of(c);
        let n = self.n(p);
        n.maxf = max(n.maxf.clone(), &tag);
        if !busy {
            n.v = max(n.v.clone(), &n.maxf.clone());
            n.maxf = n.v.clone();
            n.period += 1;
        }
    }

    /// Bring a path up to date, from the bottom.
    fn refresh(&mut self, from: Id) {
        for c in self.path(from) {
            self.refresh_one(c);
        }
        self.update_v();
    }

    fn refresh_one(&mut self, c: Id) {
        let Some(p) = self.nodes[&c].parent else { return };
        let ready = self.waiting(c) && self.nodes[&c].due.is_none();
        let runnable = ready || self.in_service(c).0 > 0;
        if runnable && !self.nodes[&c].runnable {
            self.wake_node(p, c);
            self.n(c).runnable = true;
        }
        if ready && !self.nodes[&c].ready {
            self.n(c).seq = self.stamp();
        }
        self.n(c).ready = ready;
        if !runnable && self.nodes[&c].runnable {
            self.n(c).runnable = false;
            self.idle_node(p, c);
            self.update_v_of(p);
        }
    }

    fn reinsert(&mut self, id: Id) {
        if self.nodes[&id].ready {
            self.n(id).seq = self.stamp();
        }
    }

    // --- caps ---

    fn refill(&mut self, id: Id, now: u64) {
        let n = self.n(id);
        let dt = now.saturating_sub(n.tok_at);
        n.tok_at = n.tok_at.max(now);
        n.tok += i128::from(dt) * i128::from(n.cap_ppm);
        if n.tok.div_euclid(1_000_000) > i128::from(n.cap_burst) {
            n.tok = i128::from(n.cap_burst) * 1_000_000;
        }
    }

    fn whole(&self, id: Id) -> i128 {
        self.nodes[&id].tok.div_euclid(1_000_000)
    }

    /// The first instant at which the bucket surely holds a whole unit.
    fn due(&self, id: Id) -> u64 {
        let n = &self.nodes[&id];
        let wait = (1 - self.whole(id).min(0)) * 1_000_000 / i128::from(n.cap_ppm) + 1;
        n.tok_at + u64::try_from(wait).expect("a wait that fits")
    }

    fn throttle(&mut self, id: Id) {
        let due = self.due(id);
        let seq = self.stamp();
        let n = self.n(id);
        n.due = Some(due);
        n.due_seq = seq;
    }

    fn unthrottle_due(&mut self, now: u64) {
        loop {
            let first = self
                .nodes
                .iter()
                .filter_map(|(&id, n)| n.due.filter(|&d| d <= now).map(|d| (d, n.due_seq, id)))
                .min();
            let Some((_, _, id)) = first else { break };
            self.refill(id, now);
            if self.whole(id) > 0 || self.nodes[&id].cap_ppm == 0 {
                self.n(id).due = None;
                self.refresh(id);
            } else {
                self.throttle(id);
            }
        }
    }

    /// When a cap lets go next; 0: none holds.
    pub fn next_ns(&self) -> u64 {
        self.nodes.values().filter_map(|n| n.due).min().unwrap_or(0)
    }

    // --- items ---

    /// An item joins a queue.
    pub fn item_new(&mut self, item: u32, queue: Id, weight: u32, flags: u32) {
        self.items.insert(
            item,
            Item {
                queue,
                weight,
                flags,
                state: State::Idle,
                unit: 0,
                slice: 0,
                tag: None,
                period: 0,
                seq: 0,
                queued_at: 0,
                order: 0,
                mask: None,
                service: 0,
            },
        );
    }

    /// Whether a queue takes one more.
    pub fn takes(&self, queue: Id) -> bool {
        self.nodes.get(&queue).is_some_and(|n| {
            n.kind == QUEUE
                && !n.dying
                && (n.members_max == 0 || (self.members(queue).len() as u64) < n.members_max)
        })
    }

    fn left(&mut self, queue: Id) {
        if self.nodes[&queue].dying && self.members(queue).is_empty() {
            self.gone(queue);
        }
    }

    /// An idle item leaves.
    pub fn item_leave(&mut self, item: u32) {
        let queue = self.items.remove(&item).expect("an item").queue;
        self.left(queue);
    }

    fn enqueue(&mut self, item: u32, again: bool, newcomer: bool, now: u64) {
        let queue = self.items[&item].queue;
        let (class, v, period) = {
            let n = &self.nodes[&queue];
            (n.alg, n.v.clone(), n.period)
        };
        if !again {
            self.drift += 1;
            let interactive = class == TS && self.items[&item].flags & (BATCH | BACKGROUND) == 0;
            let credit = if interactive { q(self.quantum / 2, 1) } else { Q::zero() };
            let i = self.it(item);
            i.tag = Some(match i.tag.take() {
                Some(f) if i.period == period && !newcomer => max(f, &(v - credit)),
                _ => v,
            });
        }
        let stamp = self.stamp();
        let i = self.it(item);
        i.state = State::Queued;
        i.queued_at = now;
        i.order = stamp;
        if !(again && class == crate::core::FIFO) {
            i.seq = stamp;
        }
        self.update_v_of(queue);
    }

    fn item_idle(&mut self, item: u32) {
        let queue = self.items[&item].queue;
        let busy = self.items.values().any(|i| i.queue == queue && i.state != State::Idle);
        let tag = self.items[&item].tag.clone();
        let period = self.nodes[&queue].period;
        self.it(item).period = period;
        let n = self.n(queue);
        if let Some(tag) = tag {
            n.maxf = max(n.maxf.clone(), &tag);
        }
        if !busy {
            n.v = max(n.v.clone(), &n.maxf.clone());
            n.maxf = n.v.clone();
            n.period += 1;
        }
        self.update_v_of(queue);
    }

    /// An idle item wants service.
    pub fn wake(&mut self, item: u32, now: u64) {
        self.enqueue(item, false, false, now);
        self.refresh(self.items[&item].queue);
    }

    /// A waiting item wants service no longer.
    pub fn remove(&mut self, item: u32) {
        self.it(item).state = State::Idle;
        self.item_idle(item);
        self.refresh(self.items[&item].queue);
    }

    /// An item goes into service.
    pub fn begin(&mut self, item: u32, unit: u32) {
        let queue = self.items[&item].queue;
        if self.keyed(queue) {
            let waiting = self.items.values().filter(|i| i.queue == queue && i.state == State::Queued);
            let least = waiting.map(|i| i.tag.clone().expect("a tag")).min().expect("this one");
            let n = self.n(queue);
            n.v = max(n.v.clone(), &least);
        }
        let slice = self.quantum_of(queue);
        let i = self.it(item);
        i.unit = unit;
        i.slice = 0;
        i.state = State::Service;
        for c in self.path(queue) {
            let Some(p) = self.nodes[&c].parent else { break };
            // The core reserves level by level; the model has the slice below and here at once, hence 0 above.
            self.refresh(c);
            let key = self.key(c);
            if self.nodes[&c].weight == 0 {
                let n = self.n(p);
                n.vb = max(n.vb.clone(), &key);
            } else if !self.fair_clock(p) {
                let kids = self.children(p);
                let others = kids
                    .iter()
                    .filter(|k| self.nodes[k].ready && self.nodes[k].weight > 0)
                    .map(|&k| self.key(k));
                let s = others.chain([key]).min().expect("this one");
                let n = self.n(p);
                n.v = max(n.v.clone(), &s);
            }
            self.reinsert(c);
        }
        self.it(item).slice = slice;
        self.drift += 1;
        self.update_v();
    }

    /// A step ended.
    pub fn settle(&mut self, item: u32, work: u64, more: bool, now: u64) {
        let queue = self.items[&item].queue;
        let i = self.it(item);
        i.state = State::Idle;
        i.service += work;
        let tag = i.tag.clone().expect("served") + at_weight(work, i.weight);
        self.it(item).tag = Some(tag.clone());
        let n = self.n(queue);
        n.maxf = max(n.maxf.clone(), &tag);
        for c in self.path(queue) {
            let n = self.n(c);
            n.service += work;
            n.served += 1;
            if n.cap_ppm > 0 {
                self.refill(c, now);
                self.n(c).tok -= i128::from(work) * 1_000_000;
                if self.whole(c) <= 0 && self.nodes[&c].due.is_none() {
                    self.throttle(c);
                }
            }
            let Some(p) = self.nodes[&c].parent else { break };
            let weight = self.nodes[&c].weight;
            if self.fair_clock(p) && weight > 0 {
                self.ev_charge(p, c, work);
                self.reinsert(c);
                continue;
            }
            let tag = self.tag_of(c) + at_weight(work, weight);
            self.n(c).tag = Some(tag.clone());
            if weight > 0 {
                let n = self.n(p);
                n.maxf = max(n.maxf.clone(), &tag);
            }
            self.reinsert(c);
        }
        if more {
            self.enqueue(item, true, false, now);
        } else {
            self.item_idle(item);
        }
        self.refresh(queue);
    }

    /// An item changes queue.
    pub fn item_move(&mut self, item: u32, to: Id, work: u64, now: u64) -> bool {
        let from = self.items[&item].queue;
        if from == to {
            return true;
        }
        if !self.takes(to) {
            return false;
        }
        let (state, unit) = (self.items[&item].state, self.items[&item].unit);
        match state {
            State::Queued => self.remove(item),
            State::Service => self.settle(item, work, false, now),
            State::Idle => {}
        }
        let i = self.it(item);
        i.queue = to;
        i.tag = None;
        if state != State::Idle {
            self.enqueue(item, false, true, now);
            self.refresh(to);
        }
        if state == State::Service {
            self.begin(item, unit);
        }
        self.left(from);
        true
    }

    /// The units an item may use.
    pub fn item_units(&mut self, item: u32, mask: Option<[u64; 4]>) {
        self.it(item).mask = mask;
    }

    /// An item's weight.
    pub fn item_reweight(&mut self, item: u32, weight: u32) {
        let weight = weight.max(1);
        let i = &self.items[&item];
        let n = &self.nodes[&i.queue];
        if weight != i.weight
            && let Some(tag) = &i.tag
        {
            let (d, old) = (tag - &n.v, i.weight);
            if d.is_positive() && (i.state != State::Idle || i.period == n.period) {
                let tag = &n.v + d * q(i.weight, weight);
                let queue = i.queue;
                let n = self.n(queue);
                n.maxf = max(n.maxf.clone(), &tag);
                self.it(item).tag = Some(tag);
                self.magnified(old, weight);
            }
        }
        self.it(item).weight = weight;
        self.update_v();
    }

    /// A tag was rescaled from one weight to another: that rounds, and a smaller weight magnifies the error that was there.
    ///
    /// In the worst case it magnifies all of the drift each time; but the errors have either sign, and a part of it has held for
    /// thousands of seeds. The bound is a thousandth of a quantum at weight 1: far below any mistake in a decision.
    fn magnified(&mut self, from: u32, to: u32) {
        let ratio = u64::from(from / to);
        self.drift = (self.drift + 1 + ratio + self.drift * ratio / 16).min(self.drift.max(1 << 22));
    }

    // --- edits that the core accepted ---

    /// Apply an accepted edit.
    pub fn edit(&mut self, op: Op, now: u64) {
        match op {
            Op::Create { node, parent, kind, alg } => self.create(node, parent, kind, alg),
            Op::Delete { node, .. } => {
                if self.members(node).is_empty() {
                    self.gone(node);
                } else {
                    self.n(node).dying = true;
                }
            }
            Op::Reweight { node, weight } => self.reweight(node, weight),
            Op::Cap { node, ppm, burst } => self.cap(node, ppm, burst, now),
            Op::Class { node, class } => self.class(node, class),
            Op::Limit { node, members } => self.n(node).members_max = members,
            Op::Reset { node } => self.n(node).served = 0,
            Op::Move { node, parent } => self.move_node(node, parent),
            Op::Policy { node, policy } => self.policy(node, policy),
            Op::Tune { node, which: 1, value } => self.n(node).quantum = value,
            Op::Tune { node, which: 2, value } => self.n(node).lag = value,
            Op::Param { node, which: 2, value } => self.n(node).request = value,
            Op::Tune { .. } | Op::Param { .. } | Op::Raw { .. } => {}
        }
    }

    fn reweight(&mut self, id: Id, w: u32) {
        let n = &self.nodes[&id];
        let old = n.weight;
        if w == old {
            return;
        }
        let p = n.parent.expect("not the root");
        let runnable = n.runnable;
        if old > 0 && w == 0 && runnable {
            self.n(id).runnable = false;
            self.idle_node(p, id);
            self.n(id).runnable = true;
            self.n(id).weight = 0;
            self.update_v();
        }
        let (v, vb) = (self.nodes[&p].v.clone(), self.nodes[&p].vb.clone());
        if self.fair_clock(p) {
            self.ev_reweight(p, id, w, runnable);
        } else if old == 0 || w == 0 {
            self.n(id).tag = Some(if w == 0 { vb } else { v });
        } else if let Some(tag) = self.nodes[&id].tag.clone()
            && tag > v
        {
            let tag = &v + (tag - &v) * q(old, w);
            let n = self.n(p);
            n.maxf = max(n.maxf.clone(), &tag);
            self.n(id).tag = Some(tag);
        }
        self.magnified(old, w.max(1));
        self.n(id).weight = w;
        self.reinsert(id);
        self.update_v();
    }

    fn cap(&mut self, id: Id, ppm: u64, burst: u64, now: u64) {
        let burst = if burst == 0 { (ppm * 10).max(2 * self.quantum) } else { burst };
        if self.nodes[&id].cap_ppm > 0 {
            self.refill(id, now);
        }
        if self.nodes[&id].due.is_some() {
            self.n(id).due = None;
            self.refresh(id);
        }
        let whole = self.whole(id);
        let n = self.n(id);
        let tok = if n.cap_ppm == 0 { i128::from(burst) } else { whole.min(i128::from(burst)) };
        n.tok = tok * 1_000_000;
        n.cap_ppm = ppm;
        n.cap_burst = burst;
        n.tok_at = now;
        if ppm > 0 && tok <= 0 {
            self.throttle(id);
            self.refresh(id);
        }
    }

    fn class(&mut self, id: Id, class: u32) {
        if self.nodes[&id].alg == class {
            return;
        }
        let mut waiting: Vec<u32> =
            self.members(id).into_iter().filter(|i| self.items[i].state == State::Queued).collect();
        if self.keyed(id) {
            waiting.sort_by_key(|i| (self.items[i].tag.clone(), self.items[i].seq));
        } else {
            waiting.sort_by_key(|i| self.items[i].seq);
        }
        let n = self.n(id);
        n.alg = class;
        n.period += 1;
        let v = n.v.clone();
        for i in self.members(id) {
            let idle = self.items[&i].state == State::Idle;
            self.it(i).tag = if idle { None } else { Some(v.clone()) };
        }
        for i in waiting {
            self.it(i).seq = self.stamp();
        }
        self.update_v();
    }

    fn move_node(&mut self, id: Id, to: Id) {
        let from = self.nodes[&id].parent.expect("not the root");
        if from == to {
            return;
        }
        let mut left_idle = false;
        if self.nodes[&id].runnable {
            let n = self.n(id);
            n.runnable = false;
            n.ready = false;
            self.idle_node(from, id);
            left_idle = true;
        }
        self.n(from).ev.forget(id);
        self.ev_sync(from);
        let busy = self.in_service(id).1 > 0;
        // Common ancestors see nothing of it. Below them, whose reserved work changes is inserted anew.
        let (mut before, mut after) = (self.path(from), self.path(to));
        before.retain(|a| !self.path(to).contains(a));
        after.retain(|a| !self.path(from).contains(a));
        if busy {
            for &a in &before {
                self.reinsert(a);
            }
        }
        self.n(id).parent = Some(to);
        if left_idle {
            self.update_v_of(from);
        }
        for a in before {
            self.refresh_one(a);
        }
        if busy {
            for &a in &after {
                self.reinsert(a);
            }
        }
        let vb = self.nodes[&to].vb.clone();
        let n = self.n(id);
        n.tag = if n.weight == 0 { Some(vb) } else { None };
        self.refresh(id);
    }

    // --- policy eevdf, and a change of policy ---

    fn fair_clock(&self, p: Id) -> bool {
        self.nodes[&p].kind == SCHED && self.nodes[&p].alg == EEVDF
    }

    /// The quantum in force at a node.
    pub fn quantum_of(&self, id: Id) -> u64 {
        self.path(id).iter().map(|n| self.nodes[n].quantum).find(|&x| x > 0).unwrap_or(self.quantum)
    }

    fn terms(&self, p: Id, c: Id) -> Terms {
        Terms { quantum: self.quantum_of(c), lag: self.nodes[&p].lag, request: self.nodes[&c].request }
    }

    /// How far fixed point may be off, as work per weight of one.
    fn slack(&self) -> Q {
        q(self.drift * 1000, 1u64 << 20)
    }

    fn gone(&mut self, id: Id) {
        let p = self.nodes[&id].parent.expect("not the root");
        self.nodes.remove(&id);
        self.n(p).ev.forget(id);
        self.ev_sync(p);
    }

    /// What is compared of a node and its clients.
    fn ev_sync(&mut self, p: Id) {
        if !self.fair_clock(p) {
            return;
        }
        let n = self.n(p);
        n.v = n.ev.v();
        let tags: Vec<(Id, Q)> = n.ev.clients.iter().map(|(&c, x)| (c, x.v.clone())).collect();
        for (c, v) in tags {
            self.n(c).tag = Some(v);
        }
    }

    /// V as if the steps in service had taken what is reserved for them.
    fn ev_after(&self, p: Id) -> Q {
        let (ev, res) = (&self.nodes[&p].ev, self.in_service(p).1);
        if ev.total() == 0 { ev.v() } else { ev.v() + q(u128::from(res) * 1000, ev.total()) }
    }

    fn ev_wake(&mut self, p: Id, c: Id, weight: u32) {
        self.drift += 1;
        if !self.nodes[&p].ev.clients.contains_key(&c) {
            let (v, terms) = (self.ev_after(p), self.terms(p, c));
            self.n(p).ev.join(c, weight, v, terms);
        }
        self.ev_sync(p);
    }

    /// Whether a client that is not runnable goes: its lag is not negative.
    fn ev_goes(&self, p: Id, c: Id) -> bool {
        let ev = &self.nodes[&p].ev;
        let lag = ev.v() - &ev.clients[&c].v;
        if lag.abs() <= self.slack() {
            return !self.told.get(&c).copied().unwrap_or(false);
        }
        !lag.is_negative()
    }

    fn ev_idle(&mut self, p: Id, c: Id, busy: bool) {
        let terms = self.terms(p, c);
        self.n(p).ev.boundary(c, terms);
        if !busy {
            self.n(p).ev.all_idle();
        } else if self.ev_goes(p, c) {
            self.n(p).ev.drop_client(c);
        }
        self.ev_sync(p);
    }

    fn ev_release(&mut self, p: Id) {
        loop {
            let ghosts = self.nodes[&p].ev.clients.keys().copied().filter(|c| !self.nodes[c].runnable);
            let Some(c) = ghosts.into_iter().find(|&c| self.ev_goes(p, c)) else { break };
            self.n(p).ev.drop_client(c);
        }
    }

    fn ev_charge(&mut self, p: Id, c: Id, work: u64) {
        let terms = self.terms(p, c);
        self.n(p).ev.charge(c, work, terms);
        self.ev_release(p);
        self.ev_sync(p);
    }

    /// A pick looks at ghosts again, on the way that it takes.
    fn ev_picked(&mut self) {
        let all: Vec<Id> = self.nodes.keys().copied().filter(|&p| self.fair_clock(p)).collect();
        for p in all {
            loop {
                let ev = &self.nodes[&p].ev;
                let limit = ev.v() + self.slack();
                let gone = ev.clients.iter().find(|(c, x)| {
                    !self.nodes[c].runnable && x.v <= limit && !self.told.get(c).copied().unwrap_or(false)
                });
                let Some((&c, _)) = gone else { break };
                self.n(p).ev.drop_client(c);
            }
            self.ev_sync(p);
        }
    }

    fn ev_reweight(&mut self, p: Id, c: Id, w: u32, runnable: bool) {
        let old = self.nodes[&c].weight;
        // The core counts a child that leaves for the background as idle before.
        let client = self.nodes[&p].ev.clients.contains_key(&c);
        if old > 0 && w > 0 {
            if client {
                self.n(p).ev.reweight(c, w);
            }
        } else {
            self.n(p).ev.drop_client(c);
            let vb = self.nodes[&p].vb.clone();
            self.n(c).tag = Some(vb);
            if w > 0 && runnable {
                self.ev_wake(p, c, w);
            }
        }
        self.ev_sync(p);
    }

    fn ev_judge(&self, p: Id, serves: &[Id], got: Id, unit: u32) -> Verdict {
        let ev = &self.nodes[&p].ev;
        let (v, slack) = (ev.v(), self.slack());
        if !serves.contains(&got) {
            return Verdict::Wrong(format!("node: {got:x} is no candidate"));
        }
        let kids = self.children(p);
        if kids.iter().any(|c| self.nodes[c].ready && self.nodes[c].weight > 0 && !self.serves(*c, unit)) {
            return Verdict::Right; // some may not be served here: of eligibility nothing is promised
        }
        let mine = &ev.clients[&got];
        if mine.v > &v + &slack {
            return Verdict::Wrong(format!("node: {got:x} has had {} too much", &mine.v - &v));
        }
        let sure = serves.iter().map(|c| &ev.clients[c]).filter(|c| c.v <= &v - &slack);
        let least = sure.map(|c| &c.d).min();
        match least {
            Some(d) if mine.d > d + &slack => {
                Verdict::Wrong(format!("node: {got:x} has its deadline {} after another", &mine.d - d))
            }
            _ => Verdict::Right,
        }
    }

    /// Another policy: who is ahead of whom, and by how much, is carried over.
    fn policy(&mut self, p: Id, policy: u32) {
        if self.nodes[&p].alg == policy {
            return;
        }
        self.update_v_of(p);
        let kids = self.children(p);
        let runs: Vec<Id> =
            kids.iter().copied().filter(|c| self.nodes[c].runnable && self.nodes[c].weight > 0).collect();
        let v = self.nodes[&p].v.clone();
        let tag = |m: &Self, c: &Id| m.tag_of(*c) - &v;
        let low = runs.iter().map(|c| tag(self, c)).min().unwrap_or_else(Q::zero);
        let offsets: Vec<(Id, Q)> = runs.iter().map(|c| (*c, tag(self, c) - &low)).collect();
        let n = self.n(p);
        n.alg = policy;
        n.ev = Eevdf::default();
        n.period += 1;
        for c in kids {
            if self.nodes[&c].weight > 0 && !self.nodes[&c].runnable {
                self.n(c).tag = None;
            }
        }
        for (c, offset) in offsets {
            let tag = &v + offset;
            if policy == EEVDF {
                let (weight, terms) = (self.nodes[&c].weight, self.terms(p, c));
                self.n(p).ev.join(c, weight, tag, terms);
            } else {
                let n = self.n(p);
                n.maxf = max(n.maxf.clone(), &tag);
                self.n(c).tag = Some(tag);
            }
        }
        self.drift += 1;
        self.ev_sync(p);
        self.update_v_of(p);
    }

    // --- judgement ---

    fn item_allows(&self, item: u32, unit: u32) -> bool {
        self.items[&item].mask.is_none_or(|m| m[unit as usize / 64] >> (unit % 64) & 1 == 1)
    }

    /// Whether something that waits below a node, and is not held back, may be served by a unit.
    fn serves(&self, id: Id, unit: u32) -> bool {
        if self.nodes[&id].kind == QUEUE {
            return self
                .members(id)
                .iter()
                .any(|&i| self.items[&i].state == State::Queued && self.item_allows(i, unit));
        }
        self.children(id).iter().any(|&c| self.nodes[&c].ready && self.serves(c, unit))
    }

    fn first(&self, of: &[(Q, u64, u64)], got: u64, what: &str) -> Verdict {
        // Fixed point sees tags in units of 1000 / 2^20.
        let slack = q(self.drift * 1000, 1u64 << 20);
        let least = of.iter().map(|c| &c.0).min().expect("not empty");
        let Some(mine) = of.iter().find(|c| c.2 == got) else {
            return Verdict::Wrong(format!("{what}: {got:x} is no candidate"));
        };
        if &mine.0 - least > slack {
            return Verdict::Wrong(format!("{what}: {got:x} is {} behind the first", &mine.0 - least));
        }
        let near = of.iter().any(|c| c.0 != *least && &c.0 - least <= slack);
        let first = of.iter().filter(|c| c.0 == *least).min_by_key(|c| c.1).expect("not empty");
        if self.strict && !near && first.2 != got {
            return Verdict::Wrong(format!("{what}: {got:x} came after {:x} with the same tag", first.2));
        }
        Verdict::Right
    }

    /// Of the items with this APART bit, the one that waited too long.
    fn starving(&self, kind: u32, unit: u32, now: u64) -> Option<u32> {
        let of_kind = |i: &Item| i.state == State::Queued && i.flags & APART == kind;
        let mut waiting: Vec<u32> = self.items.iter().filter(|(_, i)| of_kind(i)).map(|(&i, _)| i).collect();
        waiting.sort_by_key(|i| self.items[i].order);
        let soon = now - self.starved_at < self.starve_gap_ns;
        let limit = if soon { 2 * self.starve_ns } else { self.starve_ns };
        let late = |i: &u32| now - self.items[i].queued_at >= limit;
        waiting.into_iter().take(8).take_while(late).find(|&i| self.item_allows(i, unit))
    }

    /// Is this what a unit should serve now? `None`: nothing. Call [`Model::begin`] next when there is an item.
    pub fn judge(&mut self, unit: u32, now: u64, got: Option<u32>) -> Verdict {
        self.unthrottle_due(now);
        // Whoever waited too long comes first: of the eight oldest of either kind, the first that this unit may serve.
        if self.starve_ns > 0 {
            let first = [0, APART].map(|kind| self.starving(kind, unit, now));
            if let Some(i) = first.into_iter().flatten().min_by_key(|i| self.items[i].queued_at) {
                self.starved_at = now;
                let waited = now - self.items[&i].queued_at;
                return if got == Some(i) {
                    Verdict::Right
                } else {
                    Verdict::Wrong(format!("{got:?} instead of {i}, which waited for {waited}"))
                };
            }
        }
        self.ev_picked();
        let Some(got) = got else {
            return if self.serves(ROOT, unit) {
                Verdict::Wrong("nothing, though an item waits".into())
            } else {
                Verdict::Right
            };
        };
        let mut path = self.path(self.items[&got].queue);
        if self.units > 1 {
            // The order on several units is judged by its shares (tests/units.rs); here, that it may be served at all.
            let held = path.iter().any(|n| self.nodes[n].due.is_some());
            let waits = self.items[&got].state == State::Queued && self.item_allows(got, unit);
            return if waits && !held {
                Verdict::Right
            } else {
                Verdict::Wrong(format!("item {got} may not be served"))
            };
        }
        path.reverse();
        for pair in path.windows(2) {
            let mut ready: Vec<Id> = self.children(pair[0]);
            ready.retain(|c| self.nodes[c].ready && self.serves(*c, unit));
            if ready.iter().any(|c| self.nodes[c].weight > 0) {
                ready.retain(|c| self.nodes[c].weight > 0);
            }
            if self.fair_clock(pair[0]) && ready.iter().any(|c| self.nodes[c].weight > 0) {
                let verdict = self.ev_judge(pair[0], &ready, pair[1], unit);
                if verdict != Verdict::Right {
                    return verdict;
                }
                continue;
            }
            let of: Vec<_> = ready.iter().map(|&c| (self.key(c), self.nodes[&c].seq, c)).collect();
            if of.is_empty() {
                return Verdict::Wrong(format!("item {got}, though nothing waits below {:x}", pair[0]));
            }
            let verdict = self.first(&of, pair[1], "node");
            if verdict != Verdict::Right {
                return verdict;
            }
        }
        let queue = *path.last().expect("a queue");
        let mut waiting = self.members(queue);
        waiting.retain(|&i| self.items[&i].state == State::Queued && self.item_allows(i, unit));
        let of: Vec<_> = waiting
            .iter()
            .map(|&i| {
                let it = &self.items[&i];
                let tag = if self.keyed(queue) { it.tag.clone().expect("a tag") } else { Q::zero() };
                (tag, it.seq, u64::from(i))
            })
            .collect();
        if of.is_empty() {
            return Verdict::Wrong(format!("item {got} does not wait"));
        }
        self.first(&of, u64::from(got), "item")
    }
}
