// SPDX-License-Identifier: MIT OR Apache-2.0
//! Edits that the core accepted, and a change of policy.

use super::{EEVDF, Eevdf, Id, Model, Op, Q, State, Zero, max, q};

impl Model {
    /// A queue competes as its items do from now on.
    pub fn own(&mut self, queue: Id) {
        let weight = self.own_weight(queue);
        self.reweight(queue, weight);
        self.n(queue).own = true;
    }

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

    pub(super) fn reweight(&mut self, id: Id, w: u32) {
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
        let burst = if burst == 0 { (ppm * 50).max(2 * self.quantum) } else { burst };
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
        // Common ancestors see nothing of it. Below them, whose reserved work changes is inserted
        // anew.
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

    /// Another policy: who is ahead of whom, and by how much, is carried over.
    fn policy(&mut self, p: Id, policy: u32) {
        if self.nodes[&p].alg == policy {
            return;
        }
        self.update_v_of(p);
        let kids = self.children(p);
        let runs: Vec<Id> = kids
            .iter()
            .copied()
            .filter(|c| self.nodes[c].runnable && self.nodes[c].weight > 0)
            .collect();
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
}
