// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of items: they come, wake, are served and go.

use super::{
    BACKGROUND, BATCH, Id, Item, Model, Q, QUEUE, Signed, State, TS, Zero, at_weight, max, q,
};

impl Model {
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
                own: None,
                tag: None,
                period: 0,
                seq: 0,
                queued_at: 0,
                order: 0,
                mask: None,
                service: 0,
                calls: 0,
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
            let waiting =
                self.items.values().filter(|i| i.queue == queue && i.state == State::Queued);
            let least = waiting.map(|i| i.tag.clone().expect("a tag")).min().expect("this one");
            let n = self.n(queue);
            n.v = max(n.v.clone(), &least);
        }
        let slice = self.quantum_of(queue);
        let own = self.nodes[&queue].own.then(|| self.own_weight(queue));
        let i = self.it(item);
        i.own = own;
        i.unit = unit;
        i.slice = 0;
        i.state = State::Service;
        for c in self.path(queue) {
            let Some(p) = self.nodes[&c].parent else { break };
            // The core reserves level by level; the model has the slice below and here at once,
            // hence 0 above.
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

    /// The weight of who is runnable in a queue: 102.4 for an item of weight one, and never 0 (a
    /// cgroup's `cpu.weight` of 100 is an item of weight one beside its children).
    pub(super) fn own_weight(&self, queue: Id) -> u32 {
        let runnable = |i: &&Item| i.queue == queue && i.state != State::Idle;
        let sum: u64 = self.items.values().filter(runnable).map(|i| u64::from(i.weight)).sum();
        u32::try_from(sum * 102_400 / 1000).map_or(1_000_000_000, |w| w.clamp(1, 1_000_000_000))
    }

    /// An item in service asked for more to do.
    pub fn called(&mut self, item: u32) {
        self.it(item).calls += 1;
    }

    /// A step ended.
    pub fn settle(&mut self, item: u32, work: u64, more: bool, now: u64) {
        let queue = self.items[&item].queue;
        if self.nodes[&queue].own {
            // The step is charged at the weights of its beginning; tags stay as they are, a
            // remainder counts as one at the new weight.
            let at = self.it(item).own;
            let (old, new) =
                (self.nodes[&queue].weight, at.unwrap_or_else(|| self.own_weight(queue)));
            self.n(queue).weight = new;
            self.drift += u64::from(old / new) + 1;
        }
        let i = self.it(item);
        i.state = State::Idle;
        i.service += work;
        let calls = std::mem::take(&mut i.calls);
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
                self.ev_charge(p, c, work, calls);
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
        let waited = (self.items[&item].queued_at, self.items[&item].order);
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
        match state {
            // It has waited since, wherever that was.
            State::Queued => (self.it(item).queued_at, self.it(item).order) = waited,
            State::Service => self.begin(item, unit),
            State::Idle => {}
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

    /// A tag was rescaled from one weight to another: that rounds, and a smaller weight magnifies
    /// the error that was there.
    ///
    /// In the worst case it magnifies all of the drift each time; but the errors have either sign,
    /// and a part of it has held for thousands of seeds. (Not beside a queue that competes as its
    /// items do: it rounds one way, and by many units at once, of which one seed in a thousand
    /// magnified more than a sixteenth.) The bound is a thousandth of a quantum at weight 1: far
    /// below any mistake in a decision.
    pub(super) fn magnified(&mut self, from: u32, to: u32) {
        let ratio = u64::from(from / to);
        let part = if self.nodes.values().any(|n| n.own) { 1 } else { 16 };
        self.drift =
            (self.drift + 1 + ratio + self.drift * ratio / part).min(self.drift.max(1 << 22));
    }
}
