// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy eevdf in a trace: lags by its own rules, and EV-1. Pure; shares no code with the
//! scheduler.
//!
//! The lag of a child is what it should have had in the fluid system less what it had. A child that
//! ceases to want with a lag of at least 0 leaves, and its lag goes to the others; one that owes
//! stays counted, a ghost, until it owes nothing (docs/notes/algorithms.md §3.2, rule 3'). Only
//! lags at the beginning of the trace are taken from the scheduler, and they must sum to 0.
//!
//! Bound, with q the longest step seen (ticks included) and r the longest request: no debt beyond
//! q, and a step more, because a child that wakes within a step joins where the fluid system will
//! be at its end; no credit beyond max(r, n q) for n children at a time, because each may go on for
//! a step after its request has ended. If requests end where steps do, lags stay within max(r, q);
//! both are told.

use std::collections::BTreeMap;

const SHIFT: u32 = 20;

#[derive(Clone, Copy, Debug)]
struct Client {
    weight: u64,
    lag: i128,
    ghost: bool,
}

/// The children of one node.
#[derive(Debug, Default)]
pub(super) struct Lags {
    clients: BTreeMap<u64, Client>,
    /// The least and the largest, ns.
    pub(super) seen: BTreeMap<u64, (i64, i64)>,
    /// Clients at a time.
    pub(super) most: u64,
}

impl Lags {
    /// A client when the trace began, with the lag that the scheduler says it has.
    pub(super) fn begin(&mut self, child: u64, weight: u64, lag_ns: i64) {
        self.clients
            .insert(child, Client { weight, lag: i128::from(lag_ns) << SHIFT, ghost: true });
        self.count();
    }

    /// How far the lags that the scheduler told are from summing to 0, ns, and how many there are.
    pub(super) fn imbalance(&self) -> (u64, u64) {
        let sum: i128 = self.clients.values().map(|c| c.lag).sum();
        (u64::try_from((sum >> SHIFT).abs()).unwrap_or(u64::MAX), self.count_now())
    }

    fn count_now(&self) -> u64 {
        u64::try_from(self.clients.len()).unwrap_or(u64::MAX)
    }

    fn count(&mut self) {
        self.most = self.most.max(self.count_now());
    }

    fn total(&self) -> i128 {
        self.clients.values().map(|c| i128::from(c.weight)).sum::<i128>().max(1)
    }

    pub(super) fn join(&mut self, child: u64, weight: u64) {
        if weight > 0 {
            self.clients.entry(child).or_insert(Client { weight, lag: 0, ghost: false }).ghost =
                false;
            self.count();
            self.note(child);
        }
    }

    pub(super) fn leave(&mut self, child: u64) {
        self.note(child);
        if let Some(client) = self.clients.get_mut(&child) {
            client.ghost = true;
        }
        if self.clients.values().all(|c| c.ghost) {
            self.clients.clear();
        } else {
            self.release();
        }
    }

    /// It is deleted, or has another parent now.
    pub(super) fn gone(&mut self, child: u64) {
        self.drop(child);
    }

    /// At constant lag.
    pub(super) fn reweight(&mut self, child: u64, weight: u64) {
        if weight == 0 {
            self.drop(child);
        } else if let Some(client) = self.clients.get_mut(&child) {
            client.weight = weight;
        }
    }

    fn drop(&mut self, child: u64) {
        let Some(gone) = self.clients.remove(&child) else { return };
        let total = self.total();
        for client in self.clients.values_mut() {
            client.lag += gone.lag * i128::from(client.weight) / total;
        }
    }

    /// Ghosts that owe nothing any more.
    fn release(&mut self) {
        while let Some(child) =
            self.clients.iter().find(|(_, c)| c.ghost && c.lag >= 0).map(|(id, _)| *id)
        {
            self.drop(child);
        }
    }

    /// A step ended; its work has been told.
    pub(super) fn stepped(&mut self) {
        self.release();
    }

    pub(super) fn served(&mut self, child: u64, work: u64) {
        if !self.clients.contains_key(&child) {
            return;
        }
        let (total, work) = (self.total(), i128::from(work) << SHIFT);
        for (id, client) in &mut self.clients {
            client.lag += work * i128::from(client.weight) / total;
            // Lag grows until the moment of service, and falls from then on.
            if !client.ghost && *id != child {
                note(&mut self.seen, *id, client.lag);
            }
        }
        if let Some(client) = self.clients.get_mut(&child) {
            client.lag -= work;
        }
        self.note(child);
    }

    fn note(&mut self, child: u64) {
        if let Some(client) = self.clients.get(&child).filter(|c| !c.ghost) {
            note(&mut self.seen, child, client.lag);
        }
    }
}

fn note(seen: &mut BTreeMap<u64, (i64, i64)>, child: u64, lag: i128) {
    let ns = i64::try_from(lag >> SHIFT).unwrap_or(i64::MAX);
    let seen = seen.entry(child).or_insert((ns, ns));
    *seen = (seen.0.min(ns), seen.1.max(ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example_of_the_policy() {
        // Weights 1 and 2, steps of 6: B A B. Lags 0 0; -2 2 (B had 6, its share is 4); 2 -2; 0 0.
        let mut lags = Lags::default();
        lags.join(1, 1);
        lags.join(2, 2);
        for child in [2, 1, 2] {
            lags.served(child, 6);
            lags.stepped();
        }
        assert_eq!(lags.seen, BTreeMap::from([(1, (-2, 2)), (2, (-2, 2))]));
    }

    #[test]
    fn who_owes_stays_counted_and_credit_is_forgotten() {
        let mut lags = Lags::default();
        lags.join(1, 1);
        lags.join(2, 1);
        lags.served(1, 8);
        // 1 owes 4 and sleeps: it is still half of the weight until the fluid system has made that
        // good.
        lags.leave(1);
        lags.served(2, 8);
        lags.stepped();
        assert_eq!(lags.clients.len(), 1);
        assert_eq!(lags.clients[&2].lag, 0);
        // It comes back with nothing, and leaves with a credit of 2, which the other has from then
        // on.
        lags.join(1, 1);
        lags.served(2, 4);
        lags.leave(1);
        assert_eq!(lags.clients.len(), 1);
        assert_eq!(lags.clients[&2].lag, 0);
        // Nobody but ghosts: all is forgotten.
        lags.leave(2);
        assert_eq!(lags.most, 2);
        assert!(lags.clients.is_empty());
    }
}
