// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy prio in a trace: who waits while somebody of a level that is strictly lower is served.
//! Pure.
//!
//! Usage moves a child by at most one level, so three apart order is strict; level 0, the idle
//! class, is below all others, and background (weight 0) below that. Between a child's wake-up, or
//! its last service, and its next one those below it get no more than the step under way. Of levels
//! nearer than three nothing is claimed here: they change places by usage.

use std::collections::BTreeMap;

/// How far apart two levels are strict.
const STRICT: u64 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Child {
    wants: bool,
    priority: u64,
    weight: u64,
    passed: u64,
}

impl Child {
    fn above(&self, other: &Self) -> bool {
        if self.weight == 0 || other.weight == 0 {
            return self.weight > other.weight;
        }
        if other.priority == 0 {
            self.priority > 0
        } else {
            self.priority >= other.priority + STRICT
        }
    }
}

/// The children of one node.
#[derive(Debug, Default)]
pub(super) struct Levels {
    children: BTreeMap<u64, Child>,
    /// What strictly lower ones had while a child waited, at most; only where one wanted at the
    /// same time.
    pub(super) passed: BTreeMap<u64, u64>,
}

impl Levels {
    pub(super) fn place(&mut self, child: u64, priority: Option<u64>, weight: Option<u64>) {
        let c = self.children.entry(child).or_default();
        c.priority = priority.unwrap_or(c.priority);
        c.weight = weight.unwrap_or(c.weight);
        self.cut();
    }

    pub(super) fn gone(&mut self, child: u64) {
        self.children.remove(&child);
    }

    pub(super) fn join(&mut self, child: u64) {
        let c = self.children.entry(child).or_default();
        (c.wants, c.passed) = (true, 0);
        self.compare();
    }

    pub(super) fn leave(&mut self, child: u64) {
        if let Some(c) = self.children.get_mut(&child) {
            c.wants = false;
        }
    }

    /// Comparisons begin anew.
    pub(super) fn cut(&mut self) {
        for c in self.children.values_mut() {
            c.passed = 0;
        }
    }

    /// Who wants at the same time as somebody below it.
    fn compare(&mut self) {
        let wanting: Vec<(u64, Child)> =
            self.children.iter().filter(|(_, c)| c.wants).map(|(id, c)| (*id, *c)).collect();
        for (id, c) in &wanting {
            if wanting.iter().any(|(_, other)| c.above(other)) {
                self.passed.entry(*id).or_default();
            }
        }
    }

    pub(super) fn served(&mut self, child: u64, work: u64) {
        let Some(served) = self.children.get(&child).copied() else { return };
        for (id, c) in self.children.iter_mut().filter(|(_, c)| c.wants) {
            if *id == child {
                c.passed = 0;
            } else if c.above(&served) {
                c.passed += work;
                let worst = self.passed.entry(*id).or_default();
                *worst = (*worst).max(c.passed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strictly_lower_levels_count() {
        let mut levels = Levels::default();
        for (id, priority) in [(1, 20), (2, 18), (3, 17), (4, 0)] {
            levels.place(id, Some(priority), Some(1000));
        }
        levels.place(5, Some(50), Some(0));
        levels.join(1);
        assert!(levels.passed.is_empty());
        levels.join(2);
        assert!(levels.passed.is_empty());
        for id in [3, 4, 5] {
            levels.join(id);
        }
        levels.served(2, 7);
        assert_eq!(levels.passed[&1], 0);
        levels.served(3, 1);
        levels.served(4, 1);
        levels.served(5, 1);
        assert_eq!(levels.passed[&1], 3);
        assert_eq!(levels.passed[&2], 2);
        assert_eq!(levels.passed[&3], 2);
        assert_eq!(levels.passed[&4], 1);
        assert!(!levels.passed.contains_key(&5));
        levels.served(1, 1);
        levels.served(4, 2);
        assert_eq!(levels.passed[&1], 3);
        levels.leave(1);
        levels.served(4, 9);
        assert_eq!((levels.passed[&1], levels.passed[&2]), (3, 13));
    }
}
