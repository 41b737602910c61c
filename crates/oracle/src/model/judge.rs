// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether an answer of the core is right.

use super::{APART, Id, Item, Model, Q, QUEUE, ROOT, State, Verdict, Zero, q};

impl Model {
    fn item_allows(&self, item: u32, unit: u32) -> bool {
        self.items[&item].mask.is_none_or(|m| m[unit as usize / 64] >> (unit % 64) & 1 == 1)
    }

    /// Whether something that waits below a node, and is not held back, may be served by a unit.
    pub(super) fn serves(&self, id: Id, unit: u32) -> bool {
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
            return Verdict::Wrong(format!(
                "{what}: {got:x} is {} behind the first",
                &mine.0 - least
            ));
        }
        let near = of.iter().any(|c| c.0 != *least && &c.0 - least <= slack);
        let first = of.iter().filter(|c| c.0 == *least).min_by_key(|c| c.1).expect("not empty");
        if self.strict && !near && first.2 != got {
            return Verdict::Wrong(format!(
                "{what}: {got:x} came after {:x} with the same tag",
                first.2
            ));
        }
        Verdict::Right
    }

    /// Of the items with this APART bit, the one that waited too long.
    fn starving(&self, kind: u32, unit: u32, now: u64) -> Option<u32> {
        let of_kind = |i: &Item| i.state == State::Queued && i.flags & APART == kind;
        let mut waiting: Vec<u32> =
            self.items.iter().filter(|(_, i)| of_kind(i)).map(|(&i, _)| i).collect();
        waiting.sort_by_key(|i| self.items[i].order);
        let soon = now - self.starved_at < self.starve_gap_ns;
        let limit = if soon { 2 * self.starve_ns } else { self.starve_ns };
        let late = |i: &u32| now - self.items[i].queued_at >= limit;
        let few = 8 * self.units as usize;
        let few = if kind == APART { few } else { few.min(64) };
        waiting.into_iter().take(few).take_while(late).find(|&i| self.item_allows(i, unit))
    }

    /// Is this what a unit should serve now? `None`: nothing. Call [`Model::begin`] next when there
    /// is an item.
    pub fn judge(&mut self, unit: u32, now: u64, got: Option<u32>) -> Verdict {
        self.unthrottle_due(now);
        // Whoever waited too long comes first: of the eight oldest of either kind for each unit, of
        // 64 of users' at most, the first that this unit may serve.
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
            // The order on several units is judged by its shares (tests/units.rs); here, that it
            // may be served at all.
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
                return Verdict::Wrong(format!(
                    "item {got}, though nothing waits below {:x}",
                    pair[0]
                ));
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
                let tag =
                    if self.keyed(queue) { it.tag.clone().expect("a tag") } else { Q::zero() };
                (tag, it.seq, u64::from(i))
            })
            .collect();
        if of.is_empty() {
            return Verdict::Wrong(format!("item {got} does not wait"));
        }
        self.first(&of, u64::from(got), "item")
    }
}
