// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exact model of policy eevdf: docs/notes/algorithms.md §3 with rule 3′, as written, over the
//! children of one node.
//!
//! Virtual times are in work per weight of one. V is the weighted average of the clients' service
//! times, computed anew whenever it is asked for.

use std::collections::BTreeMap;

use num_traits::Zero;

use crate::core::Id;
use crate::model::{Q, q};

/// One client: a runnable child, or a ghost.
#[derive(Clone, Debug)]
pub struct Client {
    /// Virtual service time.
    pub v: Q,
    /// Virtual deadline of its request.
    pub d: Q,
    /// In thousandths.
    pub weight: u32,
}

/// What is known of a child's requests, as long as it is a child.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    request: u64,
    used: u64,
}

/// What bounds the length of a request.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The child's quantum.
    pub quantum: u64,
    /// The node's largest request; 0: a quantum for estimates, none for what is set.
    pub lag: u64,
    /// Length that is set for the child; 0: estimated.
    pub request: u64,
}

/// The children of one node.
#[derive(Clone, Debug, Default)]
pub struct Eevdf {
    /// Those that count.
    pub clients: BTreeMap<Id, Client>,
    estimates: BTreeMap<Id, Estimate>,
    rest: Option<Q>,
}

impl Eevdf {
    /// Virtual time.
    pub fn v(&self) -> Q {
        if self.clients.is_empty() {
            return self.rest.clone().unwrap_or_else(Q::zero);
        }
        let sum = self.clients.values().fold(Q::zero(), |sum, c| sum + &c.v * q(c.weight, 1));
        sum / q(self.total(), 1)
    }

    /// The estimate of a client's request.
    pub fn estimate(&self, id: Id) -> Option<u64> {
        self.clients.get(&id).and(self.estimates.get(&id)).map(|e| e.request)
    }

    /// Sum of weights, in thousandths.
    pub fn total(&self) -> u64 {
        self.clients.values().map(|c| u64::from(c.weight)).sum()
    }

    fn request(&mut self, id: Id, t: Terms) -> u64 {
        if t.request > 0 {
            return if t.lag > 0 { t.request.min(t.lag) } else { t.request };
        }
        let e = self.estimates.entry(id).or_default();
        let most = if t.lag > 0 { t.lag } else { t.quantum };
        let asked = if e.request == 0 { t.quantum } else { e.request };
        e.request = asked.max(t.quantum / 8).min(most).max(1);
        e.request
    }

    fn begin(&mut self, id: Id, t: Terms) {
        let r = self.request(id, t);
        let c = self.clients.get_mut(&id).expect("a client");
        c.d = &c.v + q(u128::from(r) * 1000, c.weight);
    }

    /// A child joins with service time `v`.
    pub fn join(&mut self, id: Id, weight: u32, v: Q, t: Terms) {
        self.estimates.entry(id).or_default().used = 0;
        self.clients.insert(id, Client { d: v.clone(), v, weight });
        self.begin(id, t);
    }

    /// A client goes, with whatever lag it has.
    pub fn drop_client(&mut self, id: Id) {
        let v = self.v();
        if self.clients.remove(&id).is_some() {
            self.rest = Some(v);
        }
    }

    /// The child is none any more.
    pub fn forget(&mut self, id: Id) {
        self.drop_client(id);
        self.estimates.remove(&id);
    }

    /// A step ended, in which requests ended so many times because more was asked for.
    pub fn charge(&mut self, id: Id, work: u64, calls: u64, t: Terms) {
        let c = self.clients.get_mut(&id).expect("a client");
        c.v += q(u128::from(work) * 1000, c.weight);
        let over = c.v >= c.d;
        let e = self.estimates.entry(id).or_default();
        e.used += work;
        if let Some(each) = e.used.checked_div(calls) {
            self.ended(id, each);
            self.begin(id, t);
        } else if over {
            e.request *= 2;
            self.begin(id, t);
        }
    }

    /// Requests ended, each of which used this much.
    fn ended(&mut self, id: Id, used: u64) {
        let e = self.estimates.entry(id).or_default();
        if used > 0 {
            e.request = (3 * e.request + used) / 4;
        }
        e.used = 0;
    }

    /// End of a request: the child became idle.
    pub fn boundary(&mut self, id: Id, t: Terms) {
        let used = self.estimates.entry(id).or_default().used;
        self.ended(id, used);
        self.begin(id, t);
    }

    /// Nobody is runnable any more.
    pub fn all_idle(&mut self) {
        let v = self.v();
        self.clients.clear();
        self.rest = Some(v);
    }

    /// A new weight at constant lag; V stays.
    pub fn reweight(&mut self, id: Id, weight: u32) {
        let v = self.v();
        let c = self.clients.get_mut(&id).expect("a client");
        let scale = q(c.weight, weight);
        let left = (&c.d - &c.v) * &scale;
        c.v = &v - (&v - &c.v) * &scale;
        c.d = &c.v + left;
        c.weight = weight;
    }
}
