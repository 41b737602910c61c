// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy eevdf in the tree: when its exact model ([`Eevdf`]) is told what.

use super::{EEVDF, Id, Model, Q, SCHED, Signed, Terms, Verdict, q};

impl Model {
    pub(super) fn fair_clock(&self, p: Id) -> bool {
        self.nodes[&p].kind == SCHED && self.nodes[&p].alg == EEVDF
    }

    /// The quantum in force at a node.
    pub fn quantum_of(&self, id: Id) -> u64 {
        self.path(id).iter().map(|n| self.nodes[n].quantum).find(|&x| x > 0).unwrap_or(self.quantum)
    }

    pub(super) fn terms(&self, p: Id, c: Id) -> Terms {
        Terms {
            quantum: self.quantum_of(c),
            lag: self.nodes[&p].lag,
            request: self.nodes[&c].request,
        }
    }

    /// How far fixed point may be off, as work per weight of one.
    fn slack(&self) -> Q {
        q(self.drift * 1000, 1u64 << 20)
    }

    pub(super) fn gone(&mut self, id: Id) {
        let p = self.nodes[&id].parent.expect("not the root");
        self.nodes.remove(&id);
        self.n(p).ev.forget(id);
        self.ev_sync(p);
    }

    /// What is compared of a node and its clients.
    pub(super) fn ev_sync(&mut self, p: Id) {
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

    pub(super) fn ev_wake(&mut self, p: Id, c: Id, weight: u32) {
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

    pub(super) fn ev_idle(&mut self, p: Id, c: Id, busy: bool) {
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
            let ghosts =
                self.nodes[&p].ev.clients.keys().copied().filter(|c| !self.nodes[c].runnable);
            let Some(c) = ghosts.into_iter().find(|&c| self.ev_goes(p, c)) else { break };
            self.n(p).ev.drop_client(c);
        }
    }

    pub(super) fn ev_charge(&mut self, p: Id, c: Id, work: u64, calls: u64) {
        let terms = self.terms(p, c);
        self.n(p).ev.charge(c, work, calls, terms);
        self.ev_release(p);
        self.ev_sync(p);
    }

    /// A pick looks at ghosts again, on the way that it takes.
    pub(super) fn ev_picked(&mut self) {
        let all: Vec<Id> = self.nodes.keys().copied().filter(|&p| self.fair_clock(p)).collect();
        for p in all {
            loop {
                let ev = &self.nodes[&p].ev;
                let limit = ev.v() + self.slack();
                let gone = ev.clients.iter().find(|(c, x)| {
                    !self.nodes[c].runnable
                        && x.v <= limit
                        && !self.told.get(c).copied().unwrap_or(false)
                });
                let Some((&c, _)) = gone else { break };
                self.n(p).ev.drop_client(c);
            }
            self.ev_sync(p);
        }
    }

    pub(super) fn ev_reweight(&mut self, p: Id, c: Id, w: u32, runnable: bool) {
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

    pub(super) fn ev_judge(&self, p: Id, serves: &[Id], got: Id, unit: u32) -> Verdict {
        let ev = &self.nodes[&p].ev;
        let (v, slack) = (ev.v(), self.slack());
        if !serves.contains(&got) {
            return Verdict::Wrong(format!("node: {got:x} is no candidate"));
        }
        let kids = self.children(p);
        if kids
            .iter()
            .any(|c| self.nodes[c].ready && self.nodes[c].weight > 0 && !self.serves(*c, unit))
        {
            // some may not be served here: of eligibility nothing is promised
            return Verdict::Right;
        }
        let mine = &ev.clients[&got];
        if mine.v > &v + &slack {
            return Verdict::Wrong(format!("node: {got:x} has had {} too much", &mine.v - &v));
        }
        let sure = serves.iter().map(|c| &ev.clients[c]).filter(|c| c.v <= &v - &slack);
        let least = sure.map(|c| &c.d).min();
        match least {
            Some(d) if mine.d > d + &slack => Verdict::Wrong(format!(
                "node: {got:x} has its deadline {} after another",
                &mine.d - d
            )),
            _ => Verdict::Right,
        }
    }
}
