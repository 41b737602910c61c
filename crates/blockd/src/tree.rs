// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduling core (`sched/server.c`) behind a safe face: the tree, the window between it and
//! the disk, and queues that are waited for.

use std::ptr::NonNull;

use crate::wire::RsBatch;

#[repr(C)]
struct RawTree {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawWindow {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawThinkers {
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
    fn rv_wake(tree: *mut RawTree, item: u32, length: u32, sector: u64, due: u64, now: u64);
    fn rv_move(tree: *mut RawTree, item: u32, to: u64, now: u64) -> i32;
    fn rv_pick(tree: *mut RawTree, now: u64, next: *mut u64) -> u32;
    fn rv_charge(tree: *mut RawTree, item: u32, work: u64, now: u64);
    fn rv_poison(tree: *mut RawTree) -> u64;
    fn rv_window() -> *mut RawWindow;
    fn rv_window_resize(window: *mut RawWindow, size: u32, slots: u32) -> i32;
    fn rv_window_room(window: *mut RawWindow) -> u32;
    fn rv_window_put(window: *mut RawWindow, entry: u32, sector: u64) -> i32;
    fn rv_window_next(window: *mut RawWindow) -> u32;
    fn rv_window_done(window: *mut RawWindow);
    fn rv_thinkers(queues: u32) -> *mut RawThinkers;
    fn rv_thinker(all: *mut RawThinkers, queue: u32) -> *mut RawThinkers;
    fn rv_think(tree: *mut RawTree, queue: *mut RawThinkers, item: u32, wait: u64);
    fn rv_think_wait(queue: *mut RawThinkers, wait: u64);
    fn rv_think_hold(
        tree: *mut RawTree,
        queue: *mut RawThinkers,
        length: u32,
        sector: u64,
        now: u64,
    ) -> i32;
    fn rv_think_ended(queue: *mut RawThinkers, now: u64);
    fn rv_think_arrived(tree: *mut RawTree, queue: *mut RawThinkers, now: u64) -> i32;
    fn rv_think_go(tree: *mut RawTree, queue: *mut RawThinkers, now: u64) -> i32;
    fn rv_think_until(queue: *mut RawThinkers) -> u64;
}

const NONE: u32 = u32::MAX;

/// A tree. Items are named by their slots; who frees one (`leave`, `charge`) does not name it
/// again.
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
        // SAFETY: no preconditions; null is checked.
        let raw =
            NonNull::new(unsafe { rv_create(nodes, items, quantum) }).expect("memory for a tree");
        Self { raw, items }
    }

    fn at(&self) -> *mut RawTree {
        self.raw.as_ptr()
    }

    /// All or nothing: 0, or a negative errno, and what each operation answered in the batch.
    pub fn edit(&mut self, batch: &mut RsBatch) -> i32 {
        // SAFETY: the tree lives, as in all methods; the batch has the core's layout (`new`), and
        // the core checks what it says.
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

    /// An idle item waits, for something as long as this, at that place; due then, or never (0).
    pub fn wake(&mut self, item: u32, length: u32, sector: u64, due: u64, now: u64) {
        self.known(item);
        // SAFETY: as for `leave`.
        unsafe { rv_wake(self.at(), item, length, sector, due, now) }
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

    /// What was picked is charged, and goes. In the tree it stays in service until the next is
    /// picked.
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

impl Drop for Tree {
    fn drop(&mut self) {
        // SAFETY: one piece of memory, of `calloc`; so below.
        unsafe { libc::free(self.raw.as_ptr().cast()) }
    }
}

/// Requests that the tree has dispatched, in the order of the disk (`sched/disk/window.c`).
#[derive(Debug)]
pub struct Window {
    raw: NonNull<RawWindow>,
}

impl Window {
    /// Of one request.
    ///
    /// # Panics
    /// Without memory.
    pub fn new() -> Self {
        // SAFETY: no preconditions; null is checked.
        Self { raw: NonNull::new(unsafe { rv_window() }).expect("memory for a window") }
    }

    fn at(&self) -> *mut RawWindow {
        self.raw.as_ptr()
    }

    /// At most `size` in it and at the disk, at most `slots` at the disk; what is in it stays.
    /// Whether that makes sense.
    pub fn resize(&mut self, size: u32, slots: u32) -> bool {
        // SAFETY: it lives, as in all methods; the numbers are checked.
        unsafe { rv_window_resize(self.at(), size, slots) != 0 }
    }

    /// How many more the tree may dispatch.
    pub fn room(&self) -> u32 {
        // SAFETY: as above.
        unsafe { rv_window_room(self.at()) }
    }

    /// One more. Whether there was room.
    pub fn put(&mut self, entry: u32, sector: u64) -> bool {
        // SAFETY: as above.
        unsafe { rv_window_put(self.at(), entry, sector) != 0 }
    }

    /// What the disk should have next, if it should.
    pub fn take(&mut self) -> Option<u32> {
        // SAFETY: as above.
        Some(unsafe { rv_window_next(self.at()) }).filter(|&entry| entry != NONE)
    }

    /// The disk has completed one.
    pub fn done(&mut self) {
        // SAFETY: as above.
        unsafe { rv_window_done(self.at()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: as for the tree.
        unsafe { libc::free(self.raw.as_ptr().cast()) }
    }
}

impl Drop for Thinkers {
    fn drop(&mut self) {
        // SAFETY: as for the tree, which has no pointer to them.
        unsafe { libc::free(self.raw.as_ptr().cast()) }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::new()
    }
}

/// Queues that are waited for while they think (`sched/disk/anticipate.c`), by their slots in the
/// tree.
#[derive(Debug)]
pub struct Thinkers {
    raw: NonNull<RawThinkers>,
    phantoms: Vec<Option<u32>>,
}

impl Thinkers {
    /// So many, none of which has a phantom.
    ///
    /// # Panics
    /// Without memory.
    pub fn new(queues: u32) -> Self {
        // SAFETY: no preconditions; null is checked.
        let raw = NonNull::new(unsafe { rv_thinkers(queues) }).expect("memory for queues");
        Self { raw, phantoms: vec![None; queues as usize] }
    }

    /// One that has a phantom.
    fn at(&self, queue: usize) -> Option<*mut RawThinkers> {
        self.phantom(queue)?;
        // SAFETY: there is one for each of `phantoms`.
        Some(unsafe { rv_thinker(self.raw.as_ptr(), u32::try_from(queue).ok()?) })
    }

    /// Its phantom, an item of the tree.
    pub fn phantom(&self, queue: usize) -> Option<u32> {
        *self.phantoms.get(queue)?
    }

    /// This idle item of the queue is its phantom from now on.
    pub fn begin(&mut self, tree: &mut Tree, queue: usize, item: u32, wait: u64) {
        tree.known(item);
        self.phantoms[queue] = Some(item);
        if let Some(at) = self.at(queue) {
            // SAFETY: the tree and the item live; so below.
            unsafe { rv_think(tree.at(), at, item, wait) }
        }
    }

    /// It has none any more, and the item is idle. Answers that, and whether it had been picked.
    pub fn end(&mut self, tree: &mut Tree, queue: usize, now: u64) -> (Option<u32>, bool) {
        let picked = self.go(tree, queue, now);
        (self.phantoms[queue].take(), picked)
    }

    /// How long queues are waited for; 0: not at all.
    pub fn set_wait(&mut self, wait: u64) {
        for at in (0..self.phantoms.len()).filter_map(|queue| self.at(queue)) {
            // SAFETY: a number.
            unsafe { rv_think_wait(at, wait) }
        }
    }

    /// The last request that waits in the queue is about to be charged: its phantom waits in its
    /// stead, if that is worth it.
    pub fn hold(&mut self, tree: &mut Tree, queue: usize, length: u32, sector: u64, now: u64) {
        if let Some(at) = self.at(queue) {
            // SAFETY: as above.
            unsafe { rv_think_hold(tree.at(), at, length, sector, now) };
        }
    }

    /// The queue's last request is done.
    pub fn ended(&mut self, queue: usize, now: u64) {
        if let Some(at) = self.at(queue) {
            // SAFETY: as above.
            unsafe { rv_think_ended(at, now) }
        }
    }

    /// A request of the queue waits. Whether its phantom had been picked, and went.
    pub fn arrived(&mut self, tree: &mut Tree, queue: usize, now: u64) -> bool {
        // SAFETY: as above.
        self.at(queue).is_some_and(|at| unsafe { rv_think_arrived(tree.at(), at, now) } != 0)
    }

    /// The phantom goes, if it stands. Whether it had been picked.
    pub fn go(&mut self, tree: &mut Tree, queue: usize, now: u64) -> bool {
        // SAFETY: as above.
        self.at(queue).is_some_and(|at| unsafe { rv_think_go(tree.at(), at, now) } != 0)
    }

    /// Until when the phantom stands; `u64::MAX`: until something is done that is under way.
    pub fn until(&self, queue: usize) -> u64 {
        // SAFETY: as above.
        self.at(queue).map_or(0, |at| unsafe { rv_think_until(at) })
    }
}
