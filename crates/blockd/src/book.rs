// SPDX-License-Identifier: MIT OR Apache-2.0
//! The book: the tree's structure and counters in a mapped file, written by one worker at a time
//! and read by the next. It is what makes `kill -9` of the worker an interruption instead of a
//! loss.
//!
//! A batch that the core has accepted is written to `redo` first, then `redo_full` is set, then the
//! entries are changed, then it is cleared. Each change of an entry says what stands there
//! afterwards, so the next worker can do all of them again. Counters change by single stores: one
//! that is torn off by a kill has counted a request or has not.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::wire::{self, DRAINING, RsBatch, RsOp, TREE_MAX, cost, op, tune};

const MAGIC: u64 = 0x6b6f_6f62_7672_7372;

/// A node as it is kept; `id` 0: none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "as in wire::Node")]
pub struct Entry {
    pub id: u64,
    pub parent: u64,
    pub service: u64,
    pub service_base: u64,
    pub served: u64,
    /// Of requests, ns after they came; 0: none.
    pub deadline: u64,
    /// Work of the core's per 10^6 ns, 0: no cap; and what may come at once.
    pub cap: u64,
    pub burst: u64,
    pub weight: u32,
    pub kind: u8,
    pub alg: u8,
    pub dying: u8,
    pub pad: u8,
}

/// What the disk's root is tuned to ([`wire::tune`]).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "as there")]
pub struct Disk {
    pub batch: u64,
    pub anticipate: u64,
    pub cost: u64,
    pub round: u64,
}

impl Default for Disk {
    fn default() -> Self {
        Self { batch: 0, anticipate: wire::AUTO, cost: cost::BYTES, round: 0 }
    }
}

/// The mapped file.
#[repr(C)]
struct Pages {
    magic: u64,
    version: u32,
    redo_full: u32,
    seq: u64,
    restarts: u32,
    depth: u32,
    dev: u64,
    disk: Disk,
    /// Path of the pinned map of owners, and our first slot in it.
    owners_at: u64,
    owners: [u8; 256],
    /// Elevator of the device below, to be put back.
    elevator: [u8; 32],
    /// Name of the device that is offered.
    name: [u8; 32],
    redo: RsBatch,
    entries: [Entry; TREE_MAX],
}

/// See the head of this file.
#[derive(Debug)]
pub struct Book {
    at: NonNull<Pages>,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Book {}

impl Drop for Book {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size, and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<Pages>()) };
    }
}

/// Text in a fixed field.
pub fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// And into one; what does not fit is cut off.
pub fn put_text(field: &mut [u8], text: &str) {
    field.fill(0);
    let len = text.len().min(field.len().saturating_sub(1));
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

impl Book {
    /// A new book: root and q0.
    pub fn create(path: &Path, weight_q0: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path)?;
        file.set_len(size_of::<Pages>() as u64)?;
        let mut book = Self::map(&file)?;
        book.pages_mut().entries[0] =
            Entry { id: wire::ROOT, weight: 1000, kind: wire::SCHED, ..Entry::default() };
        book.pages_mut().entries[1] = Entry {
            id: wire::Q0,
            parent: wire::ROOT,
            weight: weight_q0,
            kind: wire::QUEUE,
            ..Entry::default()
        };
        book.pages_mut().disk = Disk::default();
        book.pages_mut().version = wire::VERSION;
        book.pages_mut().magic = MAGIC;
        Ok(book)
    }

    /// The book of others, to keep its pages in memory, whole: while no worker has it, they could
    /// go to swap, and with that to a disk whose next worker needs them to begin. None: there is no
    /// whole one yet.
    pub fn hold(path: &Path) -> io::Result<Option<Self>> {
        match Self::whole(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other,
        }
    }

    /// A book of this version's length. None: it has another.
    fn whole(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        (file.metadata()?.len() == size_of::<Pages>() as u64).then(|| Self::map(&file)).transpose()
    }

    /// The book that another worker left; what it had begun is finished.
    pub fn open(path: &Path) -> io::Result<Self> {
        let other = || io::Error::other("not a book of this version");
        let mut book = Self::whole(path)?.ok_or_else(other)?;
        if book.pages().magic != MAGIC || book.pages().version != wire::VERSION {
            return Err(other());
        }
        if book.pages().redo_full != 0 {
            book.write_entries();
        }
        book.pages_mut().restarts += 1;
        Ok(book)
    }

    fn map(file: &File) -> io::Result<Self> {
        // SAFETY: a new shared mapping of a file that is that long; all its patterns of bits are
        // numbers.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Pages>(),
                libc::PROT_READ | libc::PROT_WRITE,
                // Populated, hence locked in memory where the process is.
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { at })
    }

    fn pages(&self) -> &Pages {
        // SAFETY: mapped until this is dropped, and written by nobody else.
        unsafe { self.at.as_ref() }
    }

    fn pages_mut(&mut self) -> &mut Pages {
        // SAFETY: the same, and borrowed once.
        unsafe { self.at.as_mut() }
    }

    /// The last batch in effect.
    pub fn seq(&self) -> u64 {
        self.pages().seq
    }

    /// Workers before this one.
    pub fn restarts(&self) -> u32 {
        self.pages().restarts
    }

    /// The node of an id.
    pub fn get(&self, id: u64) -> Option<&Entry> {
        let index = usize::try_from(id & 0xffff_ffff).ok()?;
        self.pages().entries.get(index).filter(|entry| entry.id == id && id != 0)
    }

    /// The same, to count.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Entry> {
        let index = usize::try_from(id & 0xffff_ffff).ok()?;
        self.pages_mut().entries.get_mut(index).filter(|entry| entry.id == id && id != 0)
    }

    /// All nodes, by slot.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.pages().entries.iter().enumerate().filter(|(_, entry)| entry.id != 0)
    }

    /// A batch is in effect.
    pub fn write(&mut self, batch: &RsBatch) {
        let pages = self.pages_mut();
        pages.redo = *batch;
        compiler_fence(Ordering::SeqCst);
        pages.redo_full = 1;
        compiler_fence(Ordering::SeqCst);
        self.write_entries();
    }

    fn write_entries(&mut self) {
        let batch = self.pages().redo;
        let count = (batch.count as usize).min(wire::BATCH_MAX);
        for edit in &batch.op[..count] {
            self.write_one(edit);
        }
        let pages = self.pages_mut();
        if batch.seq != 0 {
            pages.seq = batch.seq;
        }
        compiler_fence(Ordering::SeqCst);
        pages.redo_full = 0;
    }

    fn write_one(&mut self, edit: &RsOp) {
        let index = usize::try_from(edit.node & 0xffff_ffff).unwrap_or(TREE_MAX);
        if edit.code == op::TUNE && edit.node == wire::ROOT {
            let disk = &mut self.pages_mut().disk;
            match edit.a {
                tune::BATCH => disk.batch = edit.b,
                tune::ANTICIPATE => disk.anticipate = edit.b,
                tune::COST => disk.cost = edit.b,
                tune::ROUND => disk.round = edit.b,
                _ => {}
            }
            return;
        }
        let Some(entry) = self.pages_mut().entries.get_mut(index) else { return };
        if edit.code == op::CREATE {
            if entry.id != edit.node {
                let (kind, alg) =
                    (u8::try_from(edit.a).unwrap_or(0), u8::try_from(edit.b).unwrap_or(0));
                *entry =
                    Entry { id: edit.node, parent: edit.parent, kind, alg, ..Entry::default() };
            }
            return;
        }
        if entry.id != edit.node {
            return;
        }
        match edit.code {
            op::DELETE if edit.answer == DRAINING => entry.dying = 1,
            op::DELETE => *entry = Entry::default(),
            op::REWEIGHT => entry.weight = u32::try_from(edit.a).unwrap_or(u32::MAX),
            op::CLASS | op::POLICY => entry.alg = u8::try_from(edit.a).unwrap_or(0),
            op::MOVE => entry.parent = edit.parent,
            op::CAP => (entry.cap, entry.burst) = (edit.a, edit.b),
            op::TUNE if edit.a == tune::DEADLINE => entry.deadline = edit.b,
            op::RESET => {
                entry.service_base = entry.service;
                entry.served = 0;
            }
            _ => {}
        }
    }

    /// A draining queue is gone.
    pub fn forget(&mut self, id: u64) {
        if let Some(entry) = self.get_mut(id) {
            *entry = Entry::default();
        }
    }

    /// A request was dispatched: the path to the root has received its bytes.
    pub fn count(&mut self, queue: u64, bytes: u64) {
        let mut id = queue;
        for _ in 0..16 {
            let Some(entry) = self.get_mut(id) else { return };
            entry.service += bytes;
            entry.served += 1;
            id = entry.parent;
        }
    }

    /// Where the pinned owners are, and our first slot of them; empty: not told yet.
    pub fn owners(&self) -> (String, u64) {
        (text(&self.pages().owners), self.pages().owners_at)
    }

    /// Keep it for the next worker.
    pub fn set_owners(&mut self, path: &str, first: u64) {
        let pages = self.pages_mut();
        put_text(&mut pages.owners, path);
        pages.owners_at = first;
    }

    /// Requests at once at the backend; 0: not told.
    pub fn depth(&self) -> u32 {
        self.pages().depth
    }

    /// Keep it.
    pub fn set_depth(&mut self, depth: u32) {
        self.pages_mut().depth = depth;
    }

    /// What the root is tuned to; its own defaults where its policy has no such tunables.
    pub fn disk(&self) -> Disk {
        let root = self.get(wire::ROOT);
        if root.is_some_and(|root| root.alg == wire::YFQ) {
            self.pages().disk
        } else {
            Disk::default()
        }
    }

    /// How long a round of Cello is (0: as usual), where that is the policy.
    pub fn cello(&self) -> Option<u64> {
        self.get(wire::ROOT).filter(|root| root.alg == wire::CELLO).map(|_| self.pages().disk.round)
    }

    /// Whether a node or one above it is served only when no sibling wants.
    pub fn is_background(&self, id: u64) -> bool {
        let up = std::iter::successors(self.get(id), |entry| self.get(entry.parent));
        up.take(16).any(|entry| entry.weight == 0)
    }

    /// The device that is offered: its name and number; empty: not yet.
    pub fn device(&self) -> (String, u64) {
        (text(&self.pages().name), self.pages().dev)
    }

    /// Keep it.
    pub fn set_device(&mut self, name: &str, dev: u64) {
        let pages = self.pages_mut();
        put_text(&mut pages.name, name);
        pages.dev = dev;
    }

    /// The elevator that the device below had.
    pub fn elevator(&self) -> String {
        text(&self.pages().elevator)
    }

    /// Keep it.
    pub fn set_elevator(&mut self, name: &str) {
        put_text(&mut self.pages_mut().elevator, name);
    }
}
