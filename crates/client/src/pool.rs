// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pools: containers for activities that are as short as a request. They are made when the pool is
//! opened, and taken and given back by stores in memory that the process's threads share.
//!
//! What is free is a list through that memory; its first number has a count beside it, which each
//! change makes another one, so that a thread that was interrupted in a change does it again.
//! A child's memory is zeros (MADV_WIPEONFORK): to it the pool is none. What keeps the containers
//! are descriptors, so they are collected when the process ends, however it does.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::calls::{SLOT_BITS, SLOTS, ThreadPage};
use crate::container::top_or_named;
use crate::error::{Error, Result};
use crate::files::Attempt;
use crate::page::{self, Slot, store};
use crate::place::Place;

/// What a pool's containers are.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolParams<'a> {
    /// Of each container, as in its file `share`: `10`, `=1%`. `None`: 1.
    pub share: Option<&'a str>,
    /// One more container, which all activities share that find none free. Else those fail
    /// (EAGAIN).
    pub overflow: bool,
}

/// Of a slot.
#[repr(C)]
struct Held {
    /// The page of the thread that took it, and among its low bits for what that thread worked
    /// before; 0: it is free.
    owner: AtomicU64,
    /// The next free one; 0: none.
    next: AtomicU32,
    pad: u32,
}

/// `struct reserv_pool` of include/reserv.h.
#[repr(C)]
pub(crate) struct Shared {
    /// A count, and below it the first free slot.
    free: AtomicU64,
    /// 0 in a child, and when it is closed.
    count: AtomicU32,
    /// The slot of the container that is shared; 0: none.
    overflow: u32,
    of: [Held; SLOTS],
}

const MASK: u32 = (1 << SLOT_BITS) - 1;

fn slot_of(word: u64) -> u32 {
    u32::try_from(word & u64::from(MASK)).unwrap_or(0)
}

/// The slot for which a thread works, by what it wrote last.
fn current(page: *mut ThreadPage) -> u32 {
    // SAFETY: A page lives while its thread does, which is the one that calls this.
    slot_of(unsafe { *page::last(page) })
}

impl Shared {
    fn of(&self, slot: u32) -> &Held {
        &self.of[(slot & MASK) as usize]
    }

    fn give(&self, slot: u32) {
        let mut first = self.free.load(Ordering::Relaxed);
        loop {
            self.of(slot).next.store(slot_of(first), Ordering::Relaxed);
            let then = ((first >> SLOT_BITS) + 1) << SLOT_BITS | u64::from(slot);
            match self.free.compare_exchange_weak(first, then, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    fn take(&self) -> Option<u32> {
        let mut first = self.free.load(Ordering::Acquire);
        loop {
            let slot = slot_of(first);
            if slot == 0 {
                return None;
            }
            let next = self.of(slot).next.load(Ordering::Relaxed);
            let then = ((first >> SLOT_BITS) + 1) << SLOT_BITS | u64::from(next);
            match self.free.compare_exchange_weak(first, then, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(slot),
                Err(now) => first = now,
            }
        }
    }

    /// Not of this process, or closed.
    fn is_here(&self) -> Result<()> {
        if self.count.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        Err(Error::new(libc::ECHILD, "the pool is of the process that opened it; open one here"))
    }

    fn begin(&self, page: *mut ThreadPage) -> Result<u32> {
        let before = current(page);
        let slot = if let Some(slot) = self.take() {
            let owner = page as u64 | u64::from(before);
            self.of(slot).owner.store(owner, Ordering::Relaxed);
            slot
        } else {
            self.is_here()?;
            if self.overflow == 0 {
                let count = self.count.load(Ordering::Relaxed);
                let text = format!("all {count} containers of the pool are taken");
                return Err(Error::new(libc::EAGAIN, text));
            }
            self.overflow
        };
        store(page, slot)?;
        Ok(slot | before << SLOT_BITS)
    }

    fn end(&self, page: *mut ThreadPage, activity: u32) -> Result<()> {
        let (slot, before) = (activity & MASK, activity >> SLOT_BITS & MASK);
        let ours = slot != 0 && activity >> (2 * SLOT_BITS) == 0;
        let shared = ours && slot == self.overflow;
        if !shared && (!ours || self.of(slot).owner.swap(0, Ordering::Relaxed) == 0) {
            self.is_here()?;
            let text =
                format!("{} is no activity of this pool that goes on", activity.cast_signed());
            return Err(Error::new(libc::EINVAL, text));
        }
        let left = if current(page) == slot { store(page, before) } else { Ok(()) };
        if !shared {
            self.give(slot);
        }
        left
    }
}

/// What the pool keeps beside the memory that its threads share.
struct Kept {
    at: Memory,
    /// Those of all containers, and what names them.
    slots: Vec<(Slot, File)>,
}

/// The memory that threads share.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Memory(NonNull<Shared>);

// SAFETY: It is mapped until the pool is closed, and all in it is atomic, but for what is written
// before anybody else knows it.
unsafe impl Send for Memory {}
// SAFETY: As above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Result<Self> {
        let (size, flags) = (size_of::<Shared>(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: New memory of our own; zeros are an empty pool.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
        let no = |e| Error::of("the pool's memory", &e);
        let made = (at != libc::MAP_FAILED).then(|| NonNull::new(at.cast())).flatten();
        let made = Self(made.ok_or_else(|| no(io::Error::last_os_error()))?);
        // SAFETY: As above.
        if unsafe { libc::madvise(at, size, libc::MADV_WIPEONFORK) } != 0 {
            let e = io::Error::last_os_error();
            made.unmap();
            return Err(no(e));
        }
        Ok(made)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: See the type.
        unsafe { self.0.as_ref() }
    }

    fn unmap(self) {
        // SAFETY: It was mapped so, and nobody uses it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Shared>()) };
    }
}

/// The process's pools.
static POOLS: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

fn pools() -> MutexGuard<'static, Vec<Kept>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One container below `parent`, which goes with the descriptor.
fn make(place: &Place, parent: &str, share: &str) -> Result<(Slot, File)> {
    let attempt = |about: &str, file: &str| Attempt {
        node: parent,
        about: about.to_owned(),
        operation: format!("{file} {parent}"),
    };
    let new = OpenOptions::new().read(true).write(true).open(place.full(&format!("{parent}/new")));
    let mut new = new.map_err(|e| {
        if e.raw_os_error() == Some(libc::ENOENT) && place.has(parent, "members") {
            return Error::new(libc::ENOTDIR, format!("{parent} holds threads, no containers"));
        }
        place.explain(&attempt("new", "open new"), &e)
    })?;
    let said = new.write_all(share.as_bytes());
    said.map_err(|e| place.explain(&attempt(&format!("share {share:?}"), "write share"), &e))?;
    let slot = Slot::new(&new)?;
    Ok((slot, new))
}

fn open(parent: &Path, count: u32, params: &PoolParams<'_>) -> Result<Memory> {
    let most = SLOTS - 1 - usize::from(params.overflow);
    if count == 0 || count as usize > most {
        let text = format!("a pool has 1 to {most} containers, not {count}");
        return Err(Error::new(libc::EINVAL, text));
    }
    let place = Place::find()?;
    let parent = top_or_named(&place, parent)?;
    let all = count + u32::from(params.overflow);
    let mut slots = Vec::new();
    for made in 0..all {
        // What was made goes again when the descriptors are closed.
        slots.push(make(&place, &parent, params.share.unwrap_or("1")).map_err(|e| {
            let text = format!("{made} of {all} containers fit below {parent}: {e}");
            if made == 0 { e } else { Error::new(e.errno(), text) }
        })?);
    }
    let at = Memory::new()?;
    if params.overflow {
        let slot = slots.last().map_or(0, |(slot, _)| slot.number());
        // SAFETY: Nobody else knows the memory.
        unsafe { (*at.0.as_ptr()).overflow = slot };
    }
    for (slot, _) in slots.iter().take(count as usize).rev() {
        at.shared().give(slot.number());
    }
    at.shared().count.store(count, Ordering::Release);
    pools().push(Kept { at, slots });
    Ok(at)
}

/// Its containers go. `busy`: also while activities go on, which keep what they took.
fn close(at: Memory, busy: bool) -> Result<()> {
    let mut all = pools();
    let none = || Error::new(libc::EINVAL, "that is no pool, or one that is closed");
    let number = all.iter().position(|kept| kept.at == at).ok_or_else(none)?;
    let shared = at.shared();
    let count = shared.count.load(Ordering::Relaxed);
    // 0: a child's, in which nothing goes on.
    let taken: Vec<u32> = (0..if busy { 0 } else { count }).map_while(|_| shared.take()).collect();
    if !busy && taken.len() != count as usize {
        taken.iter().rev().for_each(|&slot| shared.give(slot));
        let still = count as usize - taken.len();
        let text = format!("{still} of the pool's {count} activities go on; end them first");
        return Err(Error::new(libc::EBUSY, text));
    }
    let kept = all.swap_remove(number);
    drop(all);
    for (slot, new) in kept.slots {
        let on = busy && shared.of(slot.number()).owner.load(Ordering::Relaxed) != 0;
        if on {
            // Somebody's page names it still: the number is nobody else's.
            slot.into_number();
        }
        drop(new);
    }
    if !busy {
        at.unmap();
    }
    Ok(())
}

/// A thread ends, whose page this is: the activities that it began and in which it still is end
/// with it. Those that it gave to others are theirs.
pub(crate) fn thread_ends(page: *mut ThreadPage) {
    let all = pools();
    let mut slot = current(page);
    while slot != 0 {
        let mine = |kept: &&Kept| {
            let owner = kept.at.shared().of(slot).owner.load(Ordering::Relaxed);
            owner & !u64::from(MASK) == page as u64
        };
        let Some(kept) = all.iter().find(mine) else { return };
        let before = slot_of(kept.at.shared().of(slot).owner.swap(0, Ordering::Relaxed));
        kept.at.shared().give(slot);
        slot = before;
    }
}

/// Containers for activities, one each: made at once, taken and given back without a system call.
#[derive(Debug)]
pub struct Pool(Memory);

impl Pool {
    /// As many containers below one parent, or at the top (`""`). All, or none is made.
    pub fn open(parent: impl AsRef<Path>, count: u32, params: &PoolParams<'_>) -> Result<Self> {
        open(parent.as_ref(), count, params).map(Self)
    }

    /// The calling thread works for a container that was free, until the activity is dropped.
    pub fn begin(&self) -> Result<Activity<'_>> {
        let word = begin(self.0.shared())?;
        Ok(Activity { pool: self.0.shared(), word, here: std::marker::PhantomData })
    }

    /// Its containers go: not while activities go on (EBUSY).
    pub fn close(self) -> std::result::Result<(), (Self, Error)> {
        close(self.0, false).map_err(|e| (Self(self.0), e)).inspect(|()| std::mem::forget(self))
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if close(self.0, false).is_err() {
            // An activity was forgotten.
            let _ = close(self.0, true);
        }
    }
}

/// What a thread works for until it is dropped: then the container is free, and the thread works
/// for what it did before.
pub struct Activity<'a> {
    pool: &'a Shared,
    word: u32,
    /// It is of one thread.
    here: std::marker::PhantomData<*const ()>,
}

impl Drop for Activity<'_> {
    fn drop(&mut self) {
        let _ = end(self.pool, self.word);
    }
}

pub(crate) fn begin(pool: &Shared) -> Result<u32> {
    page::own(|page| pool.begin(page))
}

pub(crate) fn end(pool: &Shared, activity: u32) -> Result<()> {
    page::own(|page| pool.end(page, activity))
}

/// For C: the memory is the pool.
pub(crate) fn open_raw(parent: &Path, count: u32, params: &PoolParams<'_>) -> Result<*mut Shared> {
    open(parent, count, params).map(|at| at.0.as_ptr())
}

/// See [`close`].
pub(crate) fn close_raw(pool: *mut Shared) -> Result<()> {
    let none = || Error::new(libc::EFAULT, "the pool is NULL");
    close(Memory(NonNull::new(pool).ok_or_else(none)?), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> Memory {
        let at = Memory::new().unwrap();
        (1..=count).rev().for_each(|slot| at.shared().give(slot));
        at.shared().count.store(count, Ordering::Relaxed);
        at
    }

    #[test]
    fn what_was_given_back_last_is_taken_first() {
        let at = of(3);
        let all = at.shared();
        assert_eq!(
            [all.take(), all.take(), all.take(), all.take()],
            [Some(1), Some(2), Some(3), None]
        );
        all.give(2);
        all.give(1);
        assert_eq!([all.take(), all.take(), all.take()], [Some(1), Some(2), None]);
        at.unmap();
    }

    #[test]
    fn no_two_threads_have_the_same() {
        let at = of(3);
        let taken: [AtomicU32; 4] = Default::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        let Some(slot) = at.shared().take() else { continue };
                        assert_eq!(taken[slot as usize].fetch_add(1, Ordering::Relaxed), 0);
                        taken[slot as usize].fetch_sub(1, Ordering::Relaxed);
                        at.shared().give(slot);
                    }
                });
            }
        });
        assert_eq!((0..4).filter_map(|_| at.shared().take()).count(), 3, "none is lost");
        at.unmap();
    }

    /// A page that nobody reads.
    fn page() -> Box<ThreadPage> {
        // SAFETY: It is of numbers alone.
        let mut page: Box<ThreadPage> = Box::new(unsafe { std::mem::zeroed() });
        page.every = u64::MAX;
        page
    }

    #[test]
    fn an_activity_ends_once_and_where_it_began() {
        let at = of(2);
        let all = at.shared();
        let mut page = page();
        let page = std::ptr::from_mut(page.as_mut());
        store(page, 900).unwrap();
        let one = all.begin(page).unwrap();
        assert_eq!(current(page), one & MASK);
        let two = all.begin(page).unwrap();
        assert_eq!(all.begin(page).unwrap_err().errno(), libc::EAGAIN);
        all.end(page, two).unwrap();
        assert_eq!(current(page), one & MASK);
        store(page, 7).unwrap();
        all.end(page, one).unwrap();
        assert_eq!(current(page), 7, "who does something else goes on with it");
        for wrong in [one, two, 0, 3, 1 << 20 | 1, u32::MAX] {
            assert_eq!(all.end(page, wrong).unwrap_err().errno(), libc::EINVAL, "{wrong}");
        }
        let three = all.begin(page).unwrap();
        all.end(page, three).unwrap();
        assert_eq!(current(page), 7);
        // As a child's.
        all.count.store(0, Ordering::Relaxed);
        all.free.store(0, Ordering::Relaxed);
        assert_eq!(all.begin(page).unwrap_err().errno(), libc::ECHILD);
        assert_eq!(all.end(page, one).unwrap_err().errno(), libc::ECHILD);
        at.unmap();
    }

    #[test]
    fn the_layout_is_the_headers() {
        let header = include_str!("../include/reserv.h");
        assert!(header.contains("	} of[1024];"), "{SLOTS} slots");
        assert_eq!((size_of::<Held>(), size_of::<Shared>()), (16, 16 + 1024 * 16));
        assert_eq!(std::mem::offset_of!(Shared, overflow), 12);
        assert_eq!(std::mem::offset_of!(Held, next), 8);
    }
}
