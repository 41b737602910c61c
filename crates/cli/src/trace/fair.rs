// SPDX-License-Identifier: MIT OR Apache-2.0
//! Siblings against each other and against the fluid server (GPS), in integers. Pure.
//!
//! Pairs. While a and b both want service, D = W_a·w_b − W_b·w_a is followed from the instant at
//! which the later of them began to want. The largest difference of normalised service over *any*
//! interval within is then (max D − min D) / (w_a·w_b): one pass instead of all pairs of instants.
//! When a weight changes a new comparison begins.
//!
//! A tag may stand ahead by the last step before the trace, whose length nobody knows: a child is
//! compared from the end of its first step on. Until then it is compared too, but with more allowed
//! (`early`), or one that never gets anything would not be noticed.
//!
//! Fluid. Between two changes of the set, a sibling's fluid share of the work W that all of them
//! got is w·W/Σw; its lag is that less what it had. It starts at 0 when the sibling begins to want;
//! what a sibling leaves behind when it stops is divided among the others by weight, as EEVDF does
//! (so that lags always sum to 0). Where the set changes lags are rounded to 2^-20 ns.

use std::collections::{BTreeMap, BTreeSet};

/// More siblings that want at once than this are not compared pair by pair.
const SIBLINGS_MAX: usize = 256;
const LAG_SHIFT: u32 = 20;
/// Width of a class of the lags' histogram, ns.
pub(super) const LAG_CLASS: i64 = 500_000;

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    weight: u64,
    /// Since the set last changed.
    served: u64,
    lag: i128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    d: i128,
    min: i128,
    max: i128,
}

/// Two siblings, with the weights that they had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Duo {
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) weight_a: u64,
    pub(super) weight_b: u64,
}

/// The children of one node.
#[derive(Debug, Default)]
pub(super) struct Group {
    members: BTreeMap<u64, Member>,
    total: u64,
    work: u64,
    pairs: BTreeMap<(u64, u64), Pair>,
    /// Those of which a step has ended.
    known: BTreeSet<u64>,
    /// The largest max D − min D.
    pub(super) worst: BTreeMap<Duo, i128>,
    /// The same where a step of one of them had not ended yet.
    pub(super) early: BTreeMap<Duo, i128>,
    /// The least and the largest lag, ns.
    pub(super) lags: BTreeMap<u64, (i64, i64)>,
    /// How often a child's lag was in which class when it was served: before and after.
    pub(super) histogram: BTreeMap<(u64, i64), u64>,
    /// Some were not compared.
    pub(super) too_many: bool,
}

fn order(a: u64, b: u64) -> (u64, u64) {
    if a < b { (a, b) } else { (b, a) }
}

impl Group {
    /// A child begins to want. Background children (weight 0) compete with nobody.
    pub(super) fn join(&mut self, child: u64, weight: u64) {
        if weight == 0 || self.members.contains_key(&child) {
            return;
        }
        self.settle();
        if self.members.len() >= SIBLINGS_MAX {
            self.too_many = true;
        } else {
            for other in self.members.keys() {
                self.pairs.insert(order(child, *other), Pair::default());
            }
        }
        self.members.insert(child, Member { weight, served: 0, lag: 0 });
        self.total += weight;
    }

    /// It wants no longer.
    pub(super) fn leave(&mut self, child: u64) {
        let Some(member) = self.members.get(&child).copied() else { return };
        self.settle();
        let others: Vec<u64> =
            self.members.keys().copied().filter(|other| *other != child).collect();
        for other in others {
            self.finish(order(child, other));
            self.pairs.remove(&order(child, other));
        }
        let lag = self.members.get(&child).map_or(0, |m| m.lag);
        self.members.remove(&child);
        self.total -= member.weight;
        for other in self.members.values_mut() {
            other.lag += lag * i128::from(other.weight) / i128::from(self.total.max(1));
        }
    }

    /// Comparisons begin anew; lags go on.
    pub(super) fn cut(&mut self) {
        self.settle();
        let keys: Vec<_> = self.pairs.keys().copied().collect();
        for key in keys {
            self.finish(key);
            self.pairs.insert(key, Pair::default());
        }
    }

    /// Nobody wants.
    pub(super) fn clear(&mut self) {
        self.cut();
        self.members.clear();
        self.pairs.clear();
        self.total = 0;
    }

    fn finish(&mut self, key: (u64, u64)) {
        let (Some(pair), Some(a), Some(b)) =
            (self.pairs.get(&key), self.members.get(&key.0), self.members.get(&key.1))
        else {
            return;
        };
        let duo = Duo { a: key.0, b: key.1, weight_a: a.weight, weight_b: b.weight };
        let spread = pair.max - pair.min;
        let known = self.known.contains(&key.0) && self.known.contains(&key.1);
        let worst = if known { &mut self.worst } else { &mut self.early }.entry(duo).or_default();
        *worst = (*worst).max(spread);
    }

    /// A step of a child ended; its work has been told.
    pub(super) fn stepped(&mut self, child: u64) {
        if !self.known.contains(&child) {
            let keys: Vec<_> =
                self.pairs.keys().copied().filter(|(a, b)| *a == child || *b == child).collect();
            for key in keys {
                self.finish(key);
            }
            self.known.insert(child);
            for (_, pair) in self.pairs.iter_mut().filter(|((a, b), _)| *a == child || *b == child)
            {
                *pair = Pair::default();
            }
        }
    }

    /// Work for a child, a whole step or a part of one.
    pub(super) fn served(&mut self, child: u64, work: u64) {
        if !self.members.contains_key(&child) {
            return;
        }
        // Lag grows until the moment of service and falls from then on, so these are its extremes.
        self.note(child);
        self.classify(child);
        if let Some(member) = self.members.get_mut(&child) {
            member.served += work;
        }
        self.work += work;
        self.note(child);
        self.classify(child);
        for (other, member) in &self.members {
            if *other == child {
                continue;
            }
            let Some(pair) = self.pairs.get_mut(&order(child, *other)) else { continue };
            let step = i128::from(work) * i128::from(member.weight);
            pair.d += if child < *other { step } else { -step };
            pair.min = pair.min.min(pair.d);
            pair.max = pair.max.max(pair.d);
        }
    }

    /// Where it stands against the fluid server, ns: positive is behind.
    pub(super) fn lag_ns(&self, child: u64) -> Option<i64> {
        let lag = self.lag(self.members.get(&child)?);
        i64::try_from(lag >> LAG_SHIFT).ok()
    }

    fn lag(&self, m: &Member) -> i128 {
        let fluid = ((i128::from(m.weight) * i128::from(self.work)) << LAG_SHIFT)
            / i128::from(self.total.max(1));
        m.lag + fluid - (i128::from(m.served) << LAG_SHIFT)
    }

    fn classify(&mut self, child: u64) {
        if let Some(lag) = self.lag_ns(child) {
            *self.histogram.entry((child, lag.div_euclid(LAG_CLASS))).or_default() += 1;
        }
    }

    fn note(&mut self, child: u64) {
        if let Some(lag) = self.lag_ns(child) {
            let seen = self.lags.entry(child).or_default();
            *seen = (seen.0.min(lag), seen.1.max(lag));
        }
    }

    /// The set changes: what was fluid until now becomes a number.
    fn settle(&mut self) {
        if self.work == 0 {
            return;
        }
        let members: Vec<u64> = self.members.keys().copied().collect();
        for id in members {
            self.note(id);
            let lag = self.members.get(&id).map_or(0, |m| self.lag(m));
            if let Some(m) = self.members.get_mut(&id) {
                (m.lag, m.served) = (lag, 0);
            }
        }
        self.work = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of sched/policy_sfq.c: weights 1 and 2, quantum 6.
    fn example() -> Group {
        let mut group = Group::default();
        group.join(1, 1000);
        group.join(2, 2000);
        group.known.extend([1, 2]);
        for child in [1, 2, 2, 1, 2, 2] {
            group.served(child, 6);
        }
        group.cut();
        group
    }

    #[test]
    fn sfqs_worked_example_keeps_its_bound() {
        let group = example();
        // D after each step: 12 6 0 12 6 0 (thousand). The bound is 6·2 + 6·1.
        assert_eq!(group.worst.values().copied().collect::<Vec<_>>(), [12_000]);
        assert_eq!(group.lag_ns(1), Some(0));
        // A is 4 ahead after its first step, and 2 + 2 behind just before its next.
        assert_eq!(group.lags[&1], (-4, 0));
        assert_eq!(group.lags[&2], (0, 4));
    }

    #[test]
    fn the_largest_difference_is_over_any_interval() {
        let mut group = Group::default();
        group.join(1, 1);
        group.join(2, 1);
        group.known.extend([1, 2]);
        for child in [1, 1, 2, 2, 2, 2, 1, 1] {
            group.served(child, 10);
        }
        group.leave(2);
        // From the second instant to the sixth: 40 for one and nothing for the other.
        assert_eq!(group.worst.values().copied().collect::<Vec<_>>(), [40]);
    }

    #[test]
    fn what_was_not_wanted_is_not_compared() {
        let mut group = Group::default();
        group.known.extend([1, 2, 3]);
        group.join(1, 1000);
        group.served(1, 1_000_000);
        group.join(2, 1000);
        group.served(2, 5);
        group.leave(2);
        group.served(1, 1_000_000);
        group.join(2, 1000);
        group.cut();
        assert_eq!(group.worst.values().copied().collect::<Vec<_>>(), [5000]);
        // Background competes with nobody, and no weight changes within a comparison.
        group.join(3, 0);
        group.served(3, 1_000);
        group.leave(1);
        group.join(1, 3000);
        group.served(1, 7);
        group.cut();
        let duo = Duo { a: 1, b: 2, weight_a: 3000, weight_b: 1000 };
        assert_eq!(group.worst[&duo], 7000);
        assert_eq!(group.worst.len(), 2);
    }

    #[test]
    fn what_the_past_left_is_not_compared() {
        let mut group = Group::default();
        group.join(1, 1);
        group.join(2, 1);
        // One had a long step before the trace, and the other makes up for it.
        for child in [2, 2, 2, 2, 1, 2, 1, 2] {
            group.served(child, 10);
            group.stepped(child);
        }
        group.cut();
        assert_eq!(group.worst.values().copied().collect::<Vec<_>>(), [10]);
    }

    #[test]
    fn lags_of_a_group_sum_to_zero() {
        let mut group = Group::default();
        for (id, weight) in [(1, 3), (2, 7), (3, 11)] {
            group.join(id, weight);
        }
        let mut seed: u64 = 1;
        for _ in 0..1000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            group.served(1 + (seed >> 33) % 3, seed >> 44);
            let sum: i64 = (1..=3).filter_map(|id| group.lag_ns(id)).sum();
            assert!(sum.abs() <= 3, "{sum}");
        }
        group.leave(2);
        assert!((group.lag_ns(1).unwrap() + group.lag_ns(3).unwrap()).abs() <= 3);
    }
}
