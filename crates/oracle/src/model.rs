// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exact model: docs/notes/algorithms.md §1 and §8.2 as written, in rationals, with lists and
//! linear search.
//!
//! Tags are in work per weight of one.
//!
//! The model never chooses by itself: it is asked which answers are right ([`Model::judge`]) and
//! then told what was chosen, because fixed point may see two tags as equal whose exact values
//! differ by less than its unit.

mod edit;
mod ev;
mod items;
mod judge;

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

/// Units of tags.
pub fn ulps(n: u64) -> Q {
    q(n * 1000, 1u64 << 20)
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
    /// What its queue weighed when the step in service began, where that competes as its items do.
    pub own: Option<u32>,
    /// Start tag, or finish tag while idle; none: as a newcomer.
    pub tag: Option<Q>,
    /// Busy period of the queue in which the tag was valid.
    pub period: u64,
    pub seq: u64,
    pub queued_at: u64,
    pub order: u64,
    pub mask: Option<[u64; 4]>,
    pub service: u64,
    /// Requests that ended since the step began.
    pub calls: u64,
}

#[derive(Clone, Debug)]
#[expect(missing_docs, clippy::struct_excessive_bools, reason = "named as in sched.h")]
pub struct Node {
    pub parent: Option<Id>,
    pub kind: u32,
    pub alg: u32,
    pub weight: u32,
    pub dying: bool,
    /// Its weight is that of who is runnable in it.
    pub own: bool,
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
    /// What the core says of its clients of eevdf after the event: decides where a lag is 0 but for
    /// rounding.
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
            own: false,
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
        let mine =
            self.items.values().filter(|i| i.state == State::Service && self.below(i.queue, id));
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

    /// Virtual times after an event: the tag dispatched last ([`Model::begin`]); and where nothing
    /// is served, the least that waits. On one unit this is the published rule, the least tag among
    /// those who wait or are served, as long as the tags decide who is served.
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
        let busy =
            kids.iter().any(|k| *k != c && self.nodes[k].runnable && self.nodes[k].weight > 0);
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
}
