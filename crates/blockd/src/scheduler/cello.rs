// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cello in the tree's place (`sched/disk/cello.c`): while it is the disk's policy all requests
//! wait here, by the classes of their queues.
//!
//! The tree keeps its nodes meanwhile, as start-time fair queueing would have them, and none of its
//! queues has a request. A class's weight is the sum of what its queues would have of the disk:
//! their weights, of their siblings', along the path. Queues of one class are first come, first
//! served among themselves as far as the class's order allows. Requests stay in the class in which
//! they came. q0's bypass the classes, unless q0 has a class of Cello's or an I/O priority says
//! one.

use std::collections::HashMap;
use std::ptr::NonNull;

use super::{SECTOR, Waiting, cost};
use crate::book::{Book, Entry};
use crate::owners::Owner;
use crate::wire::{self, Q0, class};

#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn rv_cello(max: u32) -> *mut Raw;
    fn rv_cello_begin(cello: *mut Raw, now: u64);
    fn rv_cello_weight(cello: *mut Raw, class: u32, weight: u32) -> i32;
    fn rv_cello_tune(cello: *mut Raw, round: u64, slots: u32) -> i32;
    fn rv_cello_round(cello: *mut Raw) -> u64;
    fn rv_cello_arrive(cello: *mut Raw, class: u32, sector: u64, bytes: u64, due: u64) -> u32;
    fn rv_cello_next(cello: *mut Raw, now: u64) -> u32;
    fn rv_cello_done(cello: *mut Raw, request: u32, took: u64, now: u64) -> i32;
}

const NONE: u32 = u32::MAX;
/// Of all weights together (`RS_WEIGHT_MAX`).
const WHOLE: u64 = 1_000_000_000;

/// `enum rc_class`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    RealTime,
    Interactive,
    Throughput,
    Bypass,
}

/// A request that it handed out; of which life of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    number: u32,
    life: u32,
}

#[derive(Debug)]
pub(super) struct Cello {
    raw: NonNull<Raw>,
    on: bool,
    /// Counts switches to it and away from it: what was handed out before is not its own any more.
    life: u32,
    arrived: u64,
    /// By their names there, and when they came.
    waiting: Vec<Option<(u64, Waiting)>>,
}

/// The class of a queue's requests, for one of this I/O priority. What says a class of Cello's own,
/// or of the same order, decides; else the priority does.
pub(super) fn class_of(queue: u64, alg: u8, owner: Option<Owner>) -> Class {
    match alg {
        class::REAL_TIME | class::SCAN_EDF => Class::RealTime,
        class::INTERACTIVE => Class::Interactive,
        class::THROUGHPUT | class::SCAN => Class::Throughput,
        _ if owner.is_some_and(Owner::is_real_time) => Class::RealTime,
        _ if owner.is_some_and(Owner::is_idle) => Class::Throughput,
        _ if queue == Q0 => Class::Bypass,
        _ => Class::Interactive,
    }
}

/// The class in the tree that has the order of one of Cello's.
pub(super) const fn in_tree(alg: u64) -> u64 {
    const INTERACTIVE: u64 = class::INTERACTIVE as u64;
    const THROUGHPUT: u64 = class::THROUGHPUT as u64;
    const REAL_TIME: u64 = class::REAL_TIME as u64;
    match alg {
        INTERACTIVE => class::FIFO as u64,
        THROUGHPUT => class::SCAN as u64,
        REAL_TIME => class::SCAN_EDF as u64,
        other => other,
    }
}

/// What the queues of each class would have of the whole.
fn weights(book: &Book) -> [u64; 3] {
    let mut sums: HashMap<u64, u64> = HashMap::new();
    for (_, entry) in book.entries() {
        *sums.entry(entry.parent).or_default() += u64::from(entry.weight);
    }
    let mut of = [0; 3];
    for (_, entry) in book.entries().filter(|(_, entry)| entry.kind == wire::QUEUE) {
        let class = class_of(entry.id, entry.alg, None);
        if class == Class::Bypass {
            continue;
        }
        let up = std::iter::successors(Some(entry), |entry| book.get(entry.parent));
        let step = |share: u64, entry: &Entry| {
            let all = sums.get(&entry.parent).copied().unwrap_or(0).max(1);
            let part = u128::from(share) * u128::from(entry.weight) / u128::from(all);
            // A weight that is any is not lost by rounding.
            u64::try_from(part).unwrap_or(WHOLE).max((share.min(u64::from(entry.weight))).min(1))
        };
        of[class as usize] += up.take(16).filter(|entry| entry.id != wire::ROOT).fold(WHOLE, step);
    }
    of.map(|weight| weight.min(WHOLE))
}

impl Drop for Cello {
    fn drop(&mut self) {
        // SAFETY: one piece of memory, of `calloc`.
        unsafe { libc::free(self.raw.as_ptr().cast()) }
    }
}

impl Cello {
    /// With room for so many requests.
    ///
    /// # Panics
    /// Without memory.
    pub(super) fn new(room: u32) -> Self {
        // SAFETY: no preconditions; null is checked.
        let raw = NonNull::new(unsafe { rv_cello(room) }).expect("memory for requests");
        Self { raw, on: false, life: 0, arrived: 0, waiting: (0..room).map(|_| None).collect() }
    }

    fn at(&self) -> *mut Raw {
        self.raw.as_ptr()
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// From now on all requests come here, or none does. It must be empty.
    pub(super) fn switch(&mut self, on: bool, now: u64) {
        self.on = on;
        self.life += 1;
        // SAFETY: it lives, as in all methods.
        unsafe { rv_cello_begin(self.at(), now) }
    }

    /// As the book says; the disk has so many at once.
    pub(super) fn tune(&mut self, book: &Book, slots: u32) {
        let Some(round) = book.cello() else { return };
        // SAFETY: numbers, which are checked.
        let mut fine = unsafe { rv_cello_tune(self.at(), round, slots) } != 0;
        for (class, weight) in (0_u32..).zip(weights(book)) {
            // SAFETY: the same.
            fine &= unsafe {
                rv_cello_weight(self.at(), class, u32::try_from(weight).unwrap_or(u32::MAX))
            } != 0;
        }
        debug_assert!(fine, "a round of {round} ns, {slots} at once");
    }

    /// Is given back where there is no room.
    pub(super) fn arrive(
        &mut self,
        waiting: Waiting,
        class: Class,
        deadline: Option<u64>,
        now: u64,
    ) -> Result<(), Waiting> {
        // SAFETY: a number is read.
        let wanted = deadline.unwrap_or_else(|| unsafe { rv_cello_round(self.at()) });
        let due = now.saturating_add(wanted).min(u64::MAX >> 2);
        let request = &waiting.request;
        let (sector, bytes) = (request.offset / SECTOR, u64::from(cost::bytes(request)));
        // SAFETY: numbers.
        let number = unsafe { rv_cello_arrive(self.at(), class as u32, sector, bytes, due) };
        if number == NONE {
            return Err(waiting);
        }
        self.arrived += 1;
        self.waiting[number as usize] = Some((self.arrived, waiting));
        Ok(())
    }

    /// What the disk should have next, if it may have one more.
    pub(super) fn next(&mut self, now: u64) -> Option<(Waiting, Handed)> {
        // SAFETY: numbers.
        let number = unsafe { rv_cello_next(self.at(), now) };
        let (_, waiting) = self.waiting.get_mut(number as usize)?.take()?;
        Some((waiting, Handed { number, life: self.life }))
    }

    /// It is done, after this time of the disk.
    pub(super) fn done(&mut self, handed: Handed, took: u64, now: u64) {
        if handed.life == self.life {
            // SAFETY: numbers, and the request's is checked.
            unsafe { rv_cello_done(self.at(), handed.number, took, now) };
        }
    }

    /// All that wait, in the order in which they came; it has none of them any more when it is
    /// switched.
    pub(super) fn leave(&mut self) -> Vec<Waiting> {
        let mut all: Vec<_> = self.waiting.iter_mut().filter_map(Option::take).collect();
        all.sort_by_key(|(arrived, _)| *arrived);
        all.into_iter().map(|(_, waiting)| waiting).collect()
    }

    pub(super) fn waiting_mut(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.waiting.iter_mut().flatten().map(|(_, waiting)| waiting)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.iter().all(Option::is_none)
    }
}
