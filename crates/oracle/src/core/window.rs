// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window before a disk and anticipation, as compiled for the host (`sched/disk/window.c`,
//! `sched/disk/anticipate.c`), behind a safe face.

use std::ptr::NonNull;
use std::sync::Arc;

use super::{Alive, Build, Core, Functions, Id, api_of};

#[repr(C)]
pub(crate) struct RawWindow {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(crate) struct RawAnte {
    _opaque: [u8; 0],
}

/// Requests that the tree has dispatched, in the order of the disk.
pub struct Window {
    api: Functions,
    raw: NonNull<RawWindow>,
}

impl Window {
    /// Of `size` requests, `slots` of them on the disk; none where the numbers make no sense.
    pub fn new(build: Build, size: u32, slots: u32, drain: bool) -> Option<Self> {
        let api = api_of(build);
        // SAFETY: no preconditions.
        let raw = unsafe { (api.window_new)(size, slots, drain.into()) };
        NonNull::new(raw).map(|raw| Self { api, raw })
    }

    /// Other sizes; what is in it stays. Whether they make sense.
    pub fn resize(&mut self, size: u32, slots: u32) -> bool {
        // SAFETY: it lives as long as self; so in all methods below.
        unsafe { (self.api.window_resize)(self.raw.as_ptr(), size, slots) != 0 }
    }

    /// How many more the tree may dispatch.
    pub fn room(&mut self) -> u32 {
        // SAFETY: as above.
        unsafe { (self.api.window_room)(self.raw.as_ptr()) }
    }

    /// One more.
    pub fn put(&mut self, item: u32, sector: u64) -> bool {
        // SAFETY: as above.
        unsafe { (self.api.window_put)(self.raw.as_ptr(), item, sector) != 0 }
    }

    /// What the disk should have next.
    #[expect(clippy::should_implement_trait, reason = "the name in window.c")]
    pub fn next(&mut self) -> Option<u32> {
        // SAFETY: as above.
        let item = unsafe { (self.api.window_next)(self.raw.as_ptr()) };
        (item != u32::MAX).then_some(item)
    }

    /// The disk has completed one.
    pub fn done(&mut self) {
        // SAFETY: as above.
        unsafe { (self.api.window_done)(self.raw.as_ptr()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: made by new, freed once.
        unsafe { (self.api.window_free)(self.raw.as_ptr()) }
    }
}

/// A queue whose turn is kept while it thinks.
pub struct Ante {
    api: Functions,
    raw: NonNull<RawAnte>,
    /// Its phantom is in that tree.
    _tree: Arc<Alive>,
}

impl Ante {
    /// For a queue; none where it takes no phantom.
    pub fn new(core: &Core, queue: Id) -> Option<Self> {
        // SAFETY: the tree lives, and goes on to as long as self.
        let raw = unsafe { (core.api.ante_new)(core.tree.as_ptr(), queue) };
        NonNull::new(raw).map(|raw| Self { api: core.api, raw, _tree: Arc::clone(&core.alive) })
    }

    /// The item that stands for what will come.
    pub fn phantom(&self) -> u32 {
        // SAFETY: it lives as long as self; so in all methods below.
        unsafe { (self.api.ante_phantom)(self.raw.as_ptr()) }
    }

    /// When it ceases to; 0: it does not stand.
    pub fn until(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (self.api.ante_until)(self.raw.as_ptr()) }
    }

    /// Before the queue's only request is settled.
    pub fn done(&mut self, core: &mut Core, length: u32, now: u64) -> bool {
        // SAFETY: as above; the tree is the phantom's.
        unsafe { (self.api.ante_done)(core.tree.as_ptr(), self.raw.as_ptr(), length, now) != 0 }
    }

    /// After a request of the queue has been woken. The slot that the phantom held, if any.
    pub fn arrived(&mut self, core: &mut Core, now: u64) -> Option<u32> {
        // SAFETY: as above.
        unsafe { (self.api.ante_arrived)(core.tree.as_ptr(), self.raw.as_ptr(), now) }
            .checked_sub(1)
    }

    /// Time has passed. The slot that the phantom held, if any.
    pub fn expire(&mut self, core: &mut Core, now: u64) -> Option<u32> {
        // SAFETY: as above.
        unsafe { (self.api.ante_expire)(core.tree.as_ptr(), self.raw.as_ptr(), now) }.checked_sub(1)
    }
}

impl Drop for Ante {
    fn drop(&mut self) {
        // SAFETY: made by new, freed once.
        unsafe { (self.api.ante_free)(self.raw.as_ptr()) }
    }
}
