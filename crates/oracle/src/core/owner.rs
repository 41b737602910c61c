// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the owner of an item does without the tree's lock (`sched/post.c`), while others have it.

use std::sync::Arc;

use super::{Alive, Core};

/// The part of a [`Core`] that needs no lock, for other threads.
#[derive(Clone)]
pub struct Owner(Arc<Alive>);

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

// SAFETY: the methods of `Owner` read and write the tree by single loads, stores and exchanges in C
// that are meant for this.
unsafe impl Send for Alive {}
// SAFETY: as above.
unsafe impl Sync for Alive {}
// SAFETY: a tree belongs to no thread; `Core` has no method that works on a shared reference and
// writes.
unsafe impl Send for Core {}

impl Owner {
    /// State of an item, as it is now.
    #[must_use]
    pub fn state(&self, item: u32) -> u32 {
        // SAFETY: the tree lives as long as self; so in all methods below. The caller's item is one
        // of the tree's.
        unsafe { (self.0.api.state)(self.0.tree.as_ptr(), item) }
    }

    /// As [`Core::post`].
    #[must_use]
    pub fn post(&self, item: u32, now: u64) -> bool {
        // SAFETY: as above.
        unsafe { (self.0.api.post)(self.0.tree.as_ptr(), item, now) != 0 }
    }

    /// A queued item that stays for its unit, and is not posted, may use all units; `false`: it is
    /// none, or somebody posted at the same time.
    #[must_use]
    pub fn post_all(&self, item: u32) -> bool {
        // SAFETY: as above.
        unsafe { (self.0.api.post_all)(self.0.tree.as_ptr(), item) != 0 }
    }
}

impl Core {
    /// A handle for owners of items.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner(Arc::clone(&self.alive))
    }

    /// Before its step ends: only `unit` may pick the item then, until it is posted or given other
    /// units.
    pub fn stay(&mut self, item: u32, unit: u32) {
        // SAFETY: as above; the item is one of the tree's.
        unsafe { (self.api.stay)(self.tree.as_ptr(), self.known(item), unit) }
    }

    /// It was picked again.
    pub fn stayed(&mut self, item: u32) {
        // SAFETY: as above.
        unsafe { (self.api.stayed)(self.tree.as_ptr(), self.known(item)) }
    }
}
