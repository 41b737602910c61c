// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bindings without a system call (bpf/page.h): the calling thread writes in a page of its memory
//! for which container it works, and the kernel's part of Reserv reads it.
//!
//! Time is that of the processor's own counter, because reading it is what a binding costs. An
//! anchor says what the monotonic clock was at some tick. It is made anew every 10 ms in which the
//! thread binds itself: so the two may drift apart by 500 parts per million, which is the most by
//! which that clock is slewed (adjtimex(2)), and a time is wrong by 5 us at most.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::calls::{self, BOUND, PAGE_LOG, SLOT, SLOT_BITS, SLOTS, ThreadPage};
use crate::container::{open_container, root, unknown, why_not};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::pool::thread_ends;

/// How old an anchor may be when the thread binds itself.
const ANCHOR_NS: u64 = 10_000_000;
/// Over so long a rate is measured at most: the clock's own may change.
const BASE_NS: u64 = 1_000_000_000;
/// The first rate is measured over so long: wrong by a clock's reading in this.
const FIRST_NS: u64 = 200_000;
/// Memory comes in pages of so much, and what the kernel reads lies in one.
const MEMORY: usize = 4096;

/// The processor's counter; where we know none, the monotonic clock.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: The instruction is there, and changes nothing else.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let now: u64;
        // SAFETY: As above.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack)) };
        now
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    clock()
}

/// The monotonic clock, in ns.
fn clock() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: It writes one structure; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0).wrapping_mul(1_000_000_000)
        + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Ticks and ns of one instant, and how many ticks it took to read both.
fn reading() -> (u64, u64, u64) {
    let (before, ns) = (ticks(), clock());
    let took = ticks().wrapping_sub(before);
    (took, before.wrapping_add(took / 2), ns)
}

/// The same, of a few readings the one that took the shortest.
fn both() -> (u64, u64) {
    let (_, at, ns) = (0..3).map(|_| reading()).min().unwrap_or_default();
    (at, ns)
}

/// ns for 2^20 ticks.
fn rate(from: (u64, u64), to: (u64, u64)) -> u64 {
    let (ticks, ns) = (to.0.wrapping_sub(from.0), to.1.wrapping_sub(from.1));
    u64::try_from((u128::from(ns) << 20) / u128::from(ticks.max(1))).unwrap_or(u64::MAX)
}

/// The calling thread's page. It goes with the thread.
struct Own {
    page: NonNull<ThreadPage>,
    root: RefCell<File>,
    /// Ticks and ns from which the rate is measured: the longer ago, the better.
    base: Cell<(u64, u64)>,
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
    /// Where its page is; null: it has none.
    static AT: Cell<*mut ThreadPage> = const { Cell::new(std::ptr::null_mut()) };
}

impl Own {
    fn new() -> Result<Self> {
        let place = Place::find()?;
        let root = root(&place)?;
        // SAFETY: New memory of our own. It is in one page of memory, so it is there as soon as
        // something was written to it; a child has zeros.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MEMORY,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let page = (at != libc::MAP_FAILED).then(|| NonNull::new(at.cast())).flatten();
        let page = page.ok_or_else(|| Error::of("the page", &io::Error::last_os_error()))?;
        // SAFETY: As above. Without these it is a page that may be swapped out, and then not read,
        // and that a child has a copy of.
        unsafe {
            libc::madvise(at, MEMORY, libc::MADV_WIPEONFORK);
            libc::mlock(at, MEMORY);
        }
        let own = Self { page, root: RefCell::new(root), base: Cell::new((0, 0)) };
        own.begin()?;
        AT.set(page.as_ptr());
        Ok(own)
    }

    /// The thread has it: at first, and in a child, where it is nothing but zeros.
    fn begin(&self) -> Result<()> {
        let first = both();
        while clock().wrapping_sub(first.1) < FIRST_NS {}
        let now = both();
        // SAFETY: The memory is ours, and nobody else writes it.
        let page = unsafe { &mut *self.page.as_ptr() };
        page.anchor[0].rate = rate(first, now);
        (page.anchor[0].ticks, page.anchor[0].ns) = now;
        page.which = 0;
        page.since = now.0;
        page.every =
            u64::try_from((u128::from(ANCHOR_NS) << 20) / u128::from(page.anchor[0].rate.max(1)))
                .unwrap_or(0);
        self.base.set(first);
        page.size = ThreadPage::SIZE;
        match calls::page(self.root.borrow().as_raw_fd(), self.page.as_ptr()) {
            Ok(()) => Ok(()),
            Err(e) => {
                page.size = 0;
                Err(match e.raw_os_error() {
                    Some(libc::EINVAL) => unknown(),
                    Some(libc::EAGAIN) => Error::new(
                        libc::EAGAIN,
                        "Reserv's scheduler of the CPU is not attached ('reserv status')",
                    ),
                    _ => Error::of("the thread's page", &e),
                })
            }
        }
    }

    /// A new anchor, and all that is written is read.
    fn settle(&self) -> Result<()> {
        // SAFETY: The memory is ours. The kernel's part reads it when this thread does not run.
        let page = unsafe { &mut *self.page.as_ptr() };
        let (took, at, ns) = reading();
        // A thousandth of an anchor's age: the thread was interrupted in between.
        let now = if took > page.every / 1000 { both() } else { (at, ns) };
        let old = page.anchor[page.which as usize & 1];
        let next = page.which & 1 ^ 1;
        let new = &mut page.anchor[next as usize];
        (new.ticks, new.ns) = now;
        let far = now.1.wrapping_sub(self.base.get().1);
        new.rate = if far > ANCHOR_NS { rate(self.base.get(), now) } else { old.rate };
        if far > BASE_NS {
            self.base.set(now);
        }
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: As above; the kernel must find the anchor whole that is in force.
        unsafe { std::ptr::from_mut(&mut page.which).write_volatile(next) };
        page.since = now.0;
        match self.read_by_kernel() {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                // Another reservd has mounted another /reserv since.
                self.root.replace(root(&Place::find()?)?);
                self.read_by_kernel().map_err(|_| unknown())
            }
            other => other.map_err(|e| Error::of("the thread's container", &e)),
        }
    }

    /// A call that lets the page be read.
    fn read_by_kernel(&self) -> io::Result<()> {
        match calls::number(self.root.borrow().as_raw_fd(), BOUND, 0) {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => Err(e),
            _ => Ok(()),
        }
    }
}

/// The last entry of the calling thread's page.
pub(crate) fn last(page: *mut ThreadPage) -> *mut u64 {
    // SAFETY: The memory is the caller's.
    unsafe {
        let before = (*page).head.wrapping_sub(1);
        let at = usize::try_from(before % PAGE_LOG as u64).unwrap_or(0);
        &raw mut (*page).log[at]
    }
}

/// The calling thread, whose page this is, works for what stands in a slot from here on.
pub(crate) fn store(page: *mut ThreadPage, slot: u32) -> Result<()> {
    // SAFETY: The memory is the caller's; an interrupt may let the kernel's part read it at any
    // instant, which finds an entry before it is counted.
    unsafe {
        let (now, head) = (ticks(), (*page).head);
        let entry = now << SLOT_BITS | u64::from(slot);
        let at = usize::try_from(head % PAGE_LOG as u64).unwrap_or(0);
        (&raw mut (*page).log[at]).write_volatile(entry);
        (&raw mut (*page).head).write_volatile(head.wrapping_add(1));
        let old = now.wrapping_sub((*page).since) > (*page).every;
        if !old && head.wrapping_add(1) % (PAGE_LOG as u64 / 2) != 0 {
            return Ok(());
        }
    }
    settle()
}

/// A call has bound or unbound the calling thread: what it wrote before is read, and does not say
/// any more for what it works.
pub(crate) fn told_by_call() {
    let page = AT.get();
    if !page.is_null() {
        // SAFETY: The memory is this thread's. In a child it is zeros, of which this makes zeros.
        unsafe { *last(page) &= !(SLOTS as u64 - 1) };
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        AT.set(std::ptr::null_mut());
        thread_ends(self.page.as_ptr());
        let _ = calls::page(self.root.borrow().as_raw_fd(), std::ptr::null_mut());
        // SAFETY: It was mapped so, and the kernel's part does not look at it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), MEMORY) };
    }
}

/// What `what` makes of the calling thread's page, which is made if it has none.
fn with<T>(what: impl FnOnce(&Own) -> Result<T>) -> Result<T> {
    let ended = || Error::new(libc::ESRCH, "the thread ends, and has no page any more");
    OWN.try_with(|cell| {
        let mut own = cell.borrow_mut();
        let own = match own.as_mut() {
            Some(own) => own,
            None => own.insert(Own::new()?),
        };
        // SAFETY: The memory is ours. Zeros: this is a child, and the page its parent's copy.
        if unsafe { (*own.page.as_ptr()).size } == 0 {
            own.root.replace(root(&Place::find()?)?);
            own.begin()?;
        }
        what(own)
    })
    .map_err(|_| ended())?
}

/// What `what` makes of where the calling thread's page is, as [`with`], and quickly.
#[inline]
pub(crate) fn own<T>(what: impl FnOnce(*mut ThreadPage) -> Result<T>) -> Result<T> {
    let at = AT.get();
    // SAFETY: The memory is this thread's until AT is null.
    let there = !at.is_null() && unsafe { (*at).size } != 0;
    what(if there { at } else { page()? })
}

/// The calling thread's page, made at the first call; for what C inlines.
pub(crate) fn page() -> Result<*mut ThreadPage> {
    with(|own| Ok(own.page.as_ptr()))
}

/// All that the calling thread wrote is charged.
pub(crate) fn settle() -> Result<()> {
    with(Own::settle)
}

/// Which numbers of slots are taken. Of the process, as what stands in them.
static TAKEN: Mutex<[bool; SLOTS]> = Mutex::new([false; SLOTS]);

/// A number that stands for a container in all threads of this process, until it is dropped.
#[derive(Debug)]
pub struct Slot(u32);

impl Slot {
    /// For the container that a descriptor is of, as [`bind`](crate::bind) takes it.
    pub fn new(container: impl AsFd) -> Result<Self> {
        Self::of_fd(container.as_fd().as_raw_fd())
    }

    pub(crate) fn of_fd(container: RawFd) -> Result<Self> {
        let slot = Self::free()?;
        calls::number(container, SLOT, slot.0.cast_signed()).map_err(|e| why_not(container, &e))?;
        Ok(slot)
    }

    /// The same by its path.
    pub fn of_path(container: impl AsRef<Path>) -> Result<Self> {
        Self::of_fd(open_container(container)?.as_raw_fd())
    }

    fn free() -> Result<Self> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = (1..SLOTS).find(|&n| !taken[n]).ok_or_else(|| {
            Error::new(
                libc::ENOSPC,
                format!("a process has {} slots, and all are taken", SLOTS - 1),
            )
        })?;
        taken[number] = true;
        Ok(Self(u32::try_from(number).unwrap_or(0)))
    }

    /// The calling thread works for the container from here on. No system call, but for one in 128
    /// and one every 10 ms.
    pub fn work(&self) -> Result<()> {
        work(self.0)
    }

    pub(crate) fn number(&self) -> u32 {
        self.0
    }

    /// As C has it.
    pub(crate) fn into_number(self) -> u32 {
        let number = self.0;
        std::mem::forget(self);
        number
    }

    /// What [`Slot::into_number`] gave.
    pub(crate) fn of_number(number: i32) -> Result<Self> {
        let wrong = || no_slot(number);
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(number).map_err(|_| wrong())?;
        if taken.get(at) == Some(&true) { Ok(Self(number.cast_unsigned())) } else { Err(wrong()) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = taken.get_mut(self.0 as usize) {
            *one = false;
        }
    }
}

pub(crate) fn no_slot(number: i32) -> Error {
    Error::new(libc::EINVAL, format!("{number} is no slot that reserv_slot() gave"))
}

/// The calling thread works for what stands in a slot; 0: it is bound to none.
pub(crate) fn work(slot: u32) -> Result<()> {
    if slot as usize >= SLOTS {
        return Err(no_slot(slot.cast_signed()));
    }
    own(|page| store(page, slot))
}

/// The calling thread works for no container from here on, as after [`unbind`](crate::unbind).
pub fn rest() -> Result<()> {
    work(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_ns_for_a_mebitick() {
        assert_eq!(rate((0, 0), (1 << 20, 1000)), 1000);
        assert_eq!(rate((5, 7), (3_000_000_005, 1_000_000_007)), (1 << 20) / 3);
        assert_eq!(rate((7, 7), (7, 8)), 1 << 20, "no tick is one");
        let (first, from) = (both(), std::time::Instant::now());
        while from.elapsed().as_millis() < 5 {}
        let now = both();
        let ns = (u128::from(now.0 - first.0) * u128::from(rate(first, now))) >> 20;
        assert!(u128::from(now.1 - first.1).abs_diff(ns) < 10_000, "{ns}");
    }

    #[test]
    fn numbers_are_given_back() {
        let all: Vec<Slot> = std::iter::from_fn(|| Slot::free().ok()).collect();
        assert_eq!(all.len(), SLOTS - 1);
        assert_eq!(Slot::free().unwrap_err().errno(), libc::ENOSPC);
        assert!(Slot::of_number(0).is_err() && Slot::of_number(1024).is_err());
        assert!(Slot::of_number(-1).is_err());
        let seven = Slot::of_number(7).unwrap();
        drop(seven);
        assert_eq!(Slot::of_number(7).unwrap_err().errno(), libc::EINVAL);
        let again = Slot::free().unwrap();
        assert_eq!(again.into_number(), 7);
    }
}
