// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy mtrls in a trace: what MTR-1 and MTR-3 speak of. MTR-2 is of pairs (`fair.rs`). Pure.
//!
//! Time is what the parent handed out, so that it means the same below a share and beside
//! interrupts. alpha is a child's weight over that of all children, wanting or not; a change of any
//! begins everything anew.
//!
//! * MTR-1: from any start alpha R - s <= 2 alpha (1 - alpha) T, with R the work that the parent
//!   did while the child wanted and s what the child had of it. With ticks 2 (n - 1) d alpha more,
//!   and for each wake-up the time in which it displaces another.
//! * MTR-3: from a wake-up to the first service (1 - alpha) T, with ticks (n - 1) d more.

use std::collections::BTreeMap;

/// How late a step may end where the caller ends it at a tick.
pub(super) const TICK_NS: u64 = 4_000_000;
/// From a wake-up to the end of the step that it displaces.
pub(super) const DISPLACE_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug, Default)]
struct Child {
    wants: bool,
    /// Total weight * (alpha R - s) and the least of it so far.
    behind: i128,
    least: i128,
    /// What the others had since it began to want, until it is served.
    waited: Option<u64>,
}

/// The largest seen of a child.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worst {
    /// MTR-1, times the total weight.
    pub(super) behind: i128,
    /// MTR-3.
    pub(super) wait: u64,
    pub(super) wakes: u64,
    pub(super) weight: u64,
    pub(super) total: u64,
    /// Children that have a weight.
    pub(super) children: u64,
}

/// The children of one node.
#[derive(Debug, Default)]
pub(super) struct Rear {
    weights: BTreeMap<u64, u64>,
    children: BTreeMap<u64, Child>,
    /// By child and weights: one for each set of weights that was in force.
    pub(super) worst: BTreeMap<(u64, u64, u64), Worst>,
}

impl Rear {
    pub(super) fn total(&self) -> u64 {
        self.weights.values().sum::<u64>().max(1)
    }

    /// A weight in force; 0 also for who has gone.
    pub(super) fn weight(&mut self, child: u64, weight: u64) {
        if self.weights.insert(child, weight) != Some(weight) {
            for c in self.children.values_mut() {
                (c.behind, c.least, c.waited) = (0, 0, None);
            }
        }
    }

    fn worst(&mut self, child: u64) -> &mut Worst {
        let (weight, total) = (self.weights.get(&child).copied().unwrap_or(0), self.total());
        let children =
            u64::try_from(self.weights.values().filter(|w| **w > 0).count()).unwrap_or(1);
        self.worst.entry((child, weight, total)).or_insert(Worst {
            weight,
            total,
            children,
            ..Worst::default()
        })
    }

    pub(super) fn join(&mut self, child: u64) {
        let c = self.children.entry(child).or_default();
        c.wants = true;
        c.waited = Some(0);
        self.worst(child).wakes += 1;
    }

    pub(super) fn leave(&mut self, child: u64) {
        if let Some(c) = self.children.get_mut(&child) {
            c.wants = false;
            c.waited = None;
        }
    }

    /// A step that nobody chose: waits begin anew.
    pub(super) fn cut(&mut self) {
        for c in self.children.values_mut().filter(|c| c.waited.is_some()) {
            c.waited = Some(0);
        }
    }

    pub(super) fn served(&mut self, child: u64, work: u64) {
        let total = i128::from(self.total());
        let ids: Vec<u64> =
            self.children.iter().filter(|(_, c)| c.wants).map(|(id, _)| *id).collect();
        for id in ids {
            let weight = i128::from(self.weights.get(&id).copied().unwrap_or(0));
            let Some(c) = self.children.get_mut(&id) else { continue };
            let mut wait = 0;
            c.behind += weight * i128::from(work);
            if id == child {
                c.behind -= total * i128::from(work);
                c.waited = None;
            } else if let Some(waited) = &mut c.waited {
                *waited += work;
                wait = *waited;
            }
            c.least = c.least.min(c.behind);
            let behind = c.behind - c.least;
            let worst = self.worst(id);
            worst.behind = worst.behind.max(behind);
            worst.wait = worst.wait.max(wait);
        }
    }
}

impl Worst {
    /// MTR-1 of it: seen, allowed, ns; with d how late steps end.
    pub(super) fn mtr_1(&self, turn: u64, d: u64) -> (u64, u64) {
        let (w, total, n) =
            (i128::from(self.weight), i128::from(self.total), i128::from(self.children));
        let rest = (total - w) * i128::from(turn) / total;
        let allowed = w
            * (2 * rest + 2 * (n - 1) * i128::from(d) + i128::from(self.wakes * DISPLACE_NS))
            / total;
        (whole(self.behind / total), whole(allowed))
    }

    /// MTR-3 of it.
    pub(super) fn mtr_3(&self, turn: u64, d: u64) -> (u64, u64) {
        let (w, total) = (i128::from(self.weight), i128::from(self.total));
        let rest = (total - w) * i128::from(turn) / total;
        (self.wait, whole(rest + i128::from(self.children.saturating_sub(1) * d + DISPLACE_NS)))
    }
}

fn whole(x: i128) -> u64 {
    u64::try_from(x.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example_of_the_policy() {
        // Weights 1, 1 and 2, T = 8: A A, B (and it sleeps), C C, B wakes and displaces: B, C C, A
        // A.
        let mut rear = Rear::default();
        for (id, weight) in [(1, 1), (2, 1), (3, 2)] {
            rear.weight(id, weight);
        }
        for id in 1..=3 {
            rear.join(id);
        }
        for id in [1, 1, 2] {
            rear.served(id, 1);
        }
        rear.leave(2);
        rear.served(3, 2);
        rear.join(2);
        for id in [2, 3, 3, 1, 1] {
            rear.served(id, 1);
        }
        let worst = |id| *rear.worst.iter().find(|(key, _)| key.0 == id).unwrap().1;
        // A: two at once, then 5 of the others: 5/4 + 1/4 behind what it had when it was ahead.
        assert_eq!(worst(1).behind, 6);
        assert_eq!(worst(1).mtr_1(8, 0).1, (2 * 6 + DISPLACE_NS) / 4);
        // C waited for 3, and (1 - 1/2) 8 is allowed.
        assert_eq!((worst(3).wait, worst(3).mtr_3(8, 0).1), (3, 4 + DISPLACE_NS));
        assert_eq!((worst(2).wait, worst(2).wakes), (2, 2));
        // A new weight: everything begins anew.
        rear.weight(1, 5);
        rear.served(2, 1);
        assert_eq!(rear.worst[&(1, 5, 8)].behind, 5);
    }
}
