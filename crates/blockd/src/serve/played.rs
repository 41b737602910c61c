// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker whose kernel and whose reservd are somebody else: for `fuzz/`, which says what the ring
//! brings and what time it is, and looks at what the worker pushes.

use std::fmt::Arguments;
use std::fs::File;

use super::Worker;
use crate::backend::Backend;
use crate::book::Book;
use crate::front::Front;
use crate::ring::{Done, Ring, Sqe};
use crate::scheduler::Scheduler;

#[doc(hidden)]
impl Worker {
    /// One that says nothing.
    ///
    /// # Errors
    /// In words: the book's tree is none, or there is no `/dev/null`.
    pub fn played(
        front: Box<dyn Front>,
        backend: Box<dyn Backend>,
        book: Book,
        clock: fn() -> u64,
    ) -> Result<Self, String> {
        let depth = backend.depth();
        let mut scheduler = Scheduler::new(book)?;
        scheduler.set_device(depth, backend.arm());
        let nobody = File::open("/dev/null").map_err(|error| error.to_string())?;
        let both = (front, backend);
        let mut this =
            Self::of(both, scheduler, Ring::on_paper(), nobody.into(), depth, ((0, 0), None));
        this.clock = clock;
        this.say = |_: Arguments<'_>| ();
        Ok(this)
    }

    /// Another front end. Nothing is under way.
    pub fn offers(&mut self, front: Box<dyn Front>) {
        self.front = front;
        self.over = false;
    }

    /// A turn in which this is done.
    ///
    /// # Errors
    /// As a worker that ends.
    pub fn play(&mut self, done: &[Done]) -> Result<(), String> {
        self.ring.says(done);
        self.turn()
    }

    /// What it has pushed since it was asked last.
    pub fn pushed(&mut self) -> Vec<Sqe> {
        self.ring.pushed()
    }

    /// What it answers to reservd, and whether that was the end. `None`: it hangs up.
    pub fn asked(&mut self, packet: &[u8]) -> Option<(Vec<u8>, bool)> {
        self.answer_to(packet)
    }

    /// The request of an I/O at the backend.
    pub fn request_of(&self, id: u64) -> Option<u64> {
        let running = self.running.get(usize::try_from(id).ok()?)?.as_ref()?;
        Some(running.request.handle)
    }

    /// Whether the book knows this node, and whether the tree does.
    pub fn knows(&self, id: u64) -> (bool, bool) {
        self.scheduler.knows(id)
    }

    /// Whether no request is with it.
    pub fn is_at_rest(&self) -> bool {
        self.scheduler.is_idle() && self.scheduled == 0 && self.running.len() == self.free.len()
    }

    /// Whether the device was ended.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// When it looks again by itself; 0: never.
    pub const fn wakes_at(&self) -> u64 {
        self.wake_at
    }
}
