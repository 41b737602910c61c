// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a request costs: bytes, one, or the time that the disk took.
//!
//! All three are in units of about the same size, so that a change under load leaves no queue far
//! ahead: a request of 64 KiB is 65536 by bytes and by number, and 1 ms of the disk is 62500.
//!
//! Time is known when the request is done. A request is charged with what those of its queue have
//! taken of late, and the queue's next one with the difference: the sum of what a queue was charged
//! is what it took, but for what is under way. With several under way the disk's time is theirs who
//! are done first: each takes from the later of its own start and the end of the one done before
//! it, and the sum is the time that the disk was busy.

use crate::front::{Arrived, Op};
use crate::wire::cost;

/// A request, where requests are counted; and the usual size of a step, in bytes.
pub(super) const REQUEST: u32 = 65536;
/// What a request costs that moves no data, and the least that is charged for one.
const MIN: u32 = 4096;
/// A unit of time.
const UNIT_NS: u64 = 16;
/// What a request is thought to take before any was seen: 5 ms.
const FIRST: u32 = 312_500;
/// More than 10 s is no request's own time.
const MOST: u32 = 625_000_000;

#[derive(Clone, Copy, Debug)]
struct Lane {
    mean: u32,
    owed: i64,
}

const NEW: Lane = Lane { mean: FIRST, owed: 0 };

/// The bytes of a request, as counters say and as shares by bytes are charged.
pub(super) const fn bytes(request: &Arrived) -> u32 {
    match request.op {
        Op::Read | Op::Write => request.len,
        Op::Flush | Op::Discard | Op::Unmap | Op::Zero => MIN,
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Costs {
    kind: u64,
    lanes: Vec<Lane>,
    last_done: u64,
}

impl Costs {
    pub(super) fn new(lanes: usize) -> Self {
        Self { kind: cost::BYTES, lanes: vec![NEW; lanes], last_done: 0 }
    }

    pub(super) fn set_kind(&mut self, kind: u64) {
        if self.kind != kind {
            self.kind = kind;
            self.lanes.fill(NEW);
        }
    }

    /// Another queue has the slot.
    pub(super) fn begin(&mut self, lane: usize) {
        self.lanes[lane] = NEW;
    }

    /// What a request that comes is thought to cost.
    pub(super) fn estimate(&self, lane: usize, request: &Arrived) -> u32 {
        match self.kind {
            cost::TIME => self.lanes[lane].mean,
            cost::REQUESTS => REQUEST,
            _ => bytes(request),
        }
    }

    /// What it is charged at dispatch.
    pub(super) fn charge(&mut self, lane: usize, estimate: u32) -> u32 {
        if self.kind != cost::TIME {
            return estimate;
        }
        let owed = self.lanes[lane].owed;
        let charged = (i64::from(estimate) + owed).clamp(MIN.into(), MOST.into());
        self.lanes[lane].owed = i64::from(estimate) + owed - charged;
        u32::try_from(charged).unwrap_or(MOST)
    }

    /// A request was begun then, and is done: how long it had the disk, ns.
    pub(super) fn took(&mut self, begun: u64, now: u64) -> u64 {
        let took = now.saturating_sub(begun.max(self.last_done));
        self.last_done = now;
        took
    }

    /// One of the tree's is done, after so long.
    pub(super) fn done(&mut self, lane: usize, estimate: u32, took: u64) {
        if self.kind != cost::TIME {
            return;
        }
        let took = u32::try_from(took / UNIT_NS).unwrap_or(MOST).min(MOST);
        let lane = &mut self.lanes[lane];
        lane.owed += i64::from(took) - i64::from(estimate);
        lane.mean = (lane.mean - lane.mean / 8 + took / 8).max(MIN);
    }
}
