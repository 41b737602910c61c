// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduling core (`sched/server.c`) behind a safe face.

use std::ptr::NonNull;

use crate::wire::RsBatch;

#[repr(C)]
struct RawTree {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn rv_create(nodes: u32, items: u32, quantum: u64) -> *mut RawTree;
    safe fn rv_batch_bytes() -> u32;
    fn rv_edit(tree: *mut RawTree, batch: *mut RsBatch) -> i32;
    fn rv_kind(tree: *mut RawTree, id: u64) -> u32;
    fn rv_seq(tree: *mut RawTree, seq: u64);
    fn rv_join(tree: *mut RawTree, queue: u64) -> u32;
    fn rv_leave(tree: *mut RawTree, item: u32);
    fn rv_wake(tree: *mut RawTree, item: u32, length: u32, now: u64);
    fn rv_move(tree: *mut RawTree, item: u32, to: u64, now: u64) -> i32;
    fn rv_pick(tree: *mut RawTree, now: u64, next: *mut u64) -> u32;
    fn rv_charge(tree: *mut RawTree, item: u32, work: u64, now: u64);
    fn rv_poison(tree: *mut RawTree) -> u64;
}

const NONE: u32 = u32::MAX;

/// A tree. Items are named by their slots; who frees one (`leave`, `charge`) does not name it again.
#[derive(Debug)]
pub struct Tree {
    raw: NonNull<RawTree>,
    items: u32,
}

impl Tree {
    /// Root and q0. `quantum` is the usual size of a step.
    ///
    /// # Panics
    /// Without memory, or when `sched/` and [`crate::wire`] disagree.
    pub fn new(nodes: u32, items: u32, quantum: u64) -> Self {
        assert_eq!(rv_batch_bytes() as usize, size_of::<RsBatch>(), "batch.h and wire.rs agree");
        // SAFETY: no preconditions; null is checked. The tree is never freed: it lives as long as the process.
        let raw = NonNull::new(unsafe { rv_create(nodes, items, quantum) }).expect("memory for a tree");
        Self { raw, items }
    }

    fn at(&self) -> *mut RawTree {
        self.raw.as_ptr()
    }

    /// All or nothing: 0, or a negative errno, and what each operation answered in the batch.
    pub fn edit(&mut self, batch: &mut RsBatch) -> i32 {
        // SAFETY: the tree lives, as in all methods; the batch has the core's layout (`new`), and the core checks what it says.
        unsafe { rv_edit(self.at(), batch) }
    }

    /// `wire::SCHED`, `wire::QUEUE`, or 0: there is no such node.
    pub fn kind(&self, id: u64) -> u32 {
        // SAFETY: an id is looked up with its generation.
        unsafe { rv_kind(self.at(), id) }
    }

    /// The number of the last batch.
    pub fn set_seq(&mut self, seq: u64) {
        // SAFETY: a number.
        unsafe { rv_seq(self.at(), seq) }
    }

    /// A new idle item in a queue.
    pub fn join(&mut self, queue: u64) -> Option<u32> {
        // SAFETY: as for `kind`.
        Some(unsafe { rv_join(self.at(), queue) }).filter(|&item| item != NONE)
    }

    fn known(&self, item: u32) {
        assert!(item < self.items, "an item's slot");
    }

    /// An idle item goes.
    pub fn leave(&mut self, item: u32) {
        self.known(item);
        // SAFETY: the slot exists; an item that is not idle makes the core poison the tree.
        unsafe { rv_leave(self.at(), item) }
    }

    /// An idle item waits, for something as long as this.
    pub fn wake(&mut self, item: u32, length: u32, now: u64) {
        self.known(item);
        // SAFETY: as for `leave`.
        unsafe { rv_wake(self.at(), item, length, now) }
    }

    /// One that waits goes to another queue, if that takes it.
    pub fn change_queue(&mut self, item: u32, to: u64, now: u64) -> bool {
        self.known(item);
        // SAFETY: as for `leave` and `kind`.
        unsafe { rv_move(self.at(), item, to, now) != 0 }
    }

    /// Who is served next; or when to ask again (0: at the next arrival).
    pub fn pick(&mut self, now: u64) -> Result<u32, u64> {
        let mut next = 0;
        // SAFETY: one number is written to.
        let item = unsafe { rv_pick(self.at(), now, &raw mut next) };
        if item == NONE { Err(next) } else { Ok(item) }
    }

    /// What was picked is charged, and goes.
    pub fn charge(&mut self, item: u32, work: u64, now: u64) {
        self.known(item);
        // SAFETY: as for `leave`.
        unsafe { rv_charge(self.at(), item, work, now) }
    }

    /// 0, or why and where the tree is inconsistent.
    pub fn poison(&self) -> u64 {
        // SAFETY: reads two numbers.
        unsafe { rv_poison(self.at()) }
    }
}
