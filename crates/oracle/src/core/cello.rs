// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cello, as compiled for the host (`sched/disk/cello.c`), behind a safe face.

use std::ptr::NonNull;

use super::{Build, Functions, api_of};

#[repr(C)]
pub(crate) struct Raw {
    _opaque: [u8; 0],
}

/// What it looks like from outside.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in cello.h")]
pub struct View {
    pub used: [i64; 3],
    pub extra: [i64; 3],
    pub service: [u64; 3],
    pub served: [u64; 3],
    pub round_at: u64,
    pub busy_until: u64,
    pub pending: [u32; 3],
    pub n: u32,
    pub serving: u32,
    pub bypass: u32,
    pub scheduled: [u32; 64],
}

/// A disk's scheduler.
pub struct Cello {
    api: Functions,
    raw: NonNull<Raw>,
}

impl Cello {
    /// Real-time requests.
    pub const REAL_TIME: u32 = 0;
    /// Interactive requests.
    pub const INTERACTIVE: u32 = 1;
    /// Throughput-intensive requests.
    pub const THROUGHPUT: u32 = 2;
    /// Requests of no class.
    pub const BYPASS: u32 = 3;

    /// With room for so many requests.
    pub fn new(build: Build, requests: u32, now: u64) -> Self {
        let api = api_of(build);
        // SAFETY: no preconditions; null is checked.
        let raw = unsafe { (api.cello_new)(requests, now) };
        Self { api, raw: NonNull::new(raw).expect("memory") }
    }

    /// A class's weight, in thousandths.
    pub fn weight(&mut self, class: u32, weight: u32) -> bool {
        // SAFETY: it lives as long as self; so in all methods below.
        unsafe { (self.api.cello_weight)(self.raw.as_ptr(), class, weight) != 0 }
    }

    /// Length of a round, requests in the scheduled queue, requests that the disk may have.
    pub fn tune(&mut self, round: u64, depth: u32, slots: u32) -> bool {
        // SAFETY: as above.
        unsafe { (self.api.cello_tune)(self.raw.as_ptr(), round, depth, slots) != 0 }
    }

    /// A request arrives; none where there is no room.
    pub fn arrive(
        &mut self,
        class: u32,
        sector: u64,
        bytes: u64,
        due: u64,
        estimate: u64,
    ) -> Option<u32> {
        // SAFETY: as above.
        let i = unsafe {
            (self.api.cello_arrive)(self.raw.as_ptr(), class, sector, bytes, due, estimate)
        };
        (i != u32::MAX).then_some(i)
    }

    /// The disk may take one more.
    pub fn next(&mut self, now: u64) -> Option<u32> {
        // SAFETY: as above.
        let i = unsafe { (self.api.cello_next)(self.raw.as_ptr(), now) };
        (i != u32::MAX).then_some(i)
    }

    /// A request is done.
    pub fn done(&mut self, request: u32, took: u64, now: u64) -> bool {
        // SAFETY: as above.
        unsafe { (self.api.cello_done)(self.raw.as_ptr(), request, took, now) != 0 }
    }

    /// What it looks like.
    pub fn view(&self) -> View {
        // SAFETY: all of it is numbers, for which zeros are values.
        let mut view: View = unsafe { std::mem::zeroed() };
        // SAFETY: as above; the view is written.
        unsafe { (self.api.cello_view)(self.raw.as_ptr(), &raw mut view) };
        view
    }
}

impl Drop for Cello {
    fn drop(&mut self) {
        // SAFETY: made by new, freed once.
        unsafe { (self.api.cello_free)(self.raw.as_ptr()) }
    }
}
