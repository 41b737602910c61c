// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which request is served next. Pure: no descriptor, no thread, no clock.
//!
//! Rules, in this order:
//!
//! 1. A request belongs to a *lane*: what its answer needs (a resource, or what is no resource's).
//!    Of a lane one request is served at a time, so that whoever waits for one resource costs no
//!    thread that another needs.
//! 2. In a lane root's requests come first, and the kernel's own (files that are closed).
//! 3. The others' come in turn by uid, one each; of one uid, in the order in which they came.
//! 4. What waits has a bound in bytes, for each uid and for all but root; beyond it a request is
//!    refused, and nothing else changes.
//!
//! So root waits for no more than what is being served, and a user for no more than one request of
//! each other user.

use std::collections::{BTreeMap, VecDeque};

/// What waits of one user, in bytes.
pub const OF_ONE_MAX: usize = 4 << 20;
/// What waits of all users together but root.
pub const OF_ALL_MAX: usize = 64 << 20;
/// What a request costs beside its own bytes.
const OVERHEAD: usize = 256;

/// Whose turn a request is in.
pub type Lane = usize;

#[derive(Debug)]
struct Queue<T> {
    busy: bool,
    root: VecDeque<(usize, T)>,
    users: BTreeMap<u32, VecDeque<(usize, T)>>,
    /// Users of whom something waits here, in the order of their turns.
    turns: VecDeque<u32>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { busy: false, root: VecDeque::new(), users: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<T> Queue<T> {
    fn is_empty(&self) -> bool {
        self.root.is_empty() && self.turns.is_empty()
    }
}

/// See the head of this file.
#[derive(Debug)]
pub struct Fair<T> {
    lanes: Vec<Queue<T>>,
    /// Where the search for a lane begins, so that each has its turn.
    next: Lane,
    waiting: BTreeMap<u32, usize>,
    all: usize,
}

impl<T> Fair<T> {
    /// With so many lanes, all free.
    pub fn new(lanes: usize) -> Self {
        let lanes = (0..lanes.max(1)).map(|_| Queue::default()).collect();
        Self { lanes, next: 0, waiting: BTreeMap::new(), all: 0 }
    }

    /// A request of so many bytes. It comes back if too much of this user's waits.
    pub fn push(&mut self, lane: Lane, uid: u32, bytes: usize, request: T) -> Result<(), T> {
        let cost = bytes + OVERHEAD;
        let lane = lane.min(self.lanes.len() - 1);
        if uid == 0 {
            self.lanes[lane].root.push_back((cost, request));
            return Ok(());
        }
        let own = self.waiting.get(&uid).copied().unwrap_or(0);
        if own + cost > OF_ONE_MAX || self.all + cost > OF_ALL_MAX {
            return Err(request);
        }
        self.waiting.insert(uid, own + cost);
        self.all += cost;
        let queue = &mut self.lanes[lane];
        let of_user = queue.users.entry(uid).or_default();
        if of_user.is_empty() {
            queue.turns.push_back(uid);
        }
        of_user.push_back((cost, request));
        Ok(())
    }

    /// The next request and its lane, which is busy from now on.
    pub fn take(&mut self) -> Option<(Lane, T)> {
        let count = self.lanes.len();
        let order = (0..count).map(|n| (self.next + n) % count);
        let free = |lane: &Lane| !self.lanes[*lane].busy && !self.lanes[*lane].is_empty();
        // Root first among the lanes, too: there may be fewer threads than lanes.
        let lane = order
            .clone()
            .find(|lane| free(lane) && !self.lanes[*lane].root.is_empty())
            .or_else(|| order.clone().find(free))?;
        self.next = (lane + 1) % count;
        let queue = &mut self.lanes[lane];
        queue.busy = true;
        if let Some((_, request)) = queue.root.pop_front() {
            return Some((lane, request));
        }
        let uid = queue.turns.pop_front()?;
        let of_user = queue.users.get_mut(&uid)?;
        let (cost, request) = of_user.pop_front()?;
        if of_user.is_empty() {
            queue.users.remove(&uid);
        } else {
            queue.turns.push_back(uid);
        }
        self.all -= cost;
        if let Some(own) = self.waiting.get_mut(&uid) {
            *own -= cost;
            if *own == 0 {
                self.waiting.remove(&uid);
            }
        }
        Some((lane, request))
    }

    /// What was taken of this lane is served.
    pub fn done(&mut self, lane: Lane) {
        self.lanes[lane].busy = false;
    }

    /// Whether [`Fair::take`] would find something.
    pub fn has_next(&self) -> bool {
        self.lanes.iter().any(|queue| !queue.busy && !queue.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(fair: &mut Fair<(u32, usize)>, most: usize) -> Vec<(u32, usize)> {
        let mut order = Vec::new();
        while order.len() < most
            && let Some((lane, request)) = fair.take()
        {
            fair.done(lane);
            order.push(request);
        }
        order
    }

    #[test]
    fn users_come_in_turn_and_root_before_them() {
        let mut fair = Fair::new(1);
        for n in 0..1000 {
            fair.push(0, 1000, 100, (1000, n)).unwrap();
        }
        fair.push(0, 1001, 100, (1001, 0)).unwrap();
        fair.push(0, 1001, 100, (1001, 1)).unwrap();
        fair.push(0, 0, 100, (0, 0)).unwrap();
        let order = served(&mut fair, 6);
        assert_eq!(order, [(0, 0), (1000, 0), (1001, 0), (1000, 1), (1001, 1), (1000, 2)]);
        assert_eq!(served(&mut fair, usize::MAX).len(), 997);
        assert_eq!((fair.all, fair.waiting.len()), (0, 0), "nothing waits");
    }

    #[test]
    fn of_a_lane_one_is_served_at_a_time() {
        let mut fair = Fair::new(3);
        for (lane, uid) in [(0, 1), (0, 0), (1, 1), (2, 2)] {
            fair.push(lane, uid, 0, (uid, lane)).unwrap();
        }
        assert_eq!(fair.take(), Some((0, (0, 0))));
        assert_eq!(fair.take(), Some((1, (1, 1))));
        assert_eq!(fair.take(), Some((2, (2, 2))));
        assert_eq!(fair.take(), None, "the only one that waits is of a lane that is busy");
        fair.push(1, 0, 0, (0, 1)).unwrap();
        assert!(!fair.has_next());
        fair.done(1);
        assert_eq!(fair.take(), Some((1, (0, 1))));
        fair.done(0);
        assert_eq!(fair.take(), Some((0, (1, 0))));
    }

    #[test]
    fn what_waits_is_bounded_for_each_and_for_all() {
        let mut fair = Fair::new(2);
        let mut of_one = 0;
        while fair.push(0, 7, 64 << 10, of_one).is_ok() {
            of_one += 1;
        }
        assert_eq!(of_one, OF_ONE_MAX / ((64 << 10) + OVERHEAD));
        assert_eq!(fair.push(1, 7, 64 << 10, 99), Err(99), "whatever the lane");
        fair.push(0, 8, 64 << 10, 0).unwrap();
        for uid in 9..100 {
            while fair.push(0, uid, 64 << 10, 0).is_ok() {}
        }
        assert!(fair.all <= OF_ALL_MAX);
        fair.push(0, 0, 64 << 10, 0).unwrap();
        let (lane, _) = fair.take().unwrap();
        fair.done(lane);
        fair.take().unwrap();
        fair.push(0, 7, 64 << 10, 0).unwrap();
    }
}
