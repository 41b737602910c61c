// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request's way through the scheduler, the pool, the ring and the backend allocates nothing:
//! whoever writes memory back must not wait for memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use reserv_blockd::backend::{Backend as _, Data, FileBackend, Io};
use reserv_blockd::book::Book;
use reserv_blockd::buffer::Pool;
use reserv_blockd::front::{Arrived, Op};
use reserv_blockd::ring::{Done, Ring};
use reserv_blockd::scheduler::{Scheduler, Ticket};
use reserv_blockd::wire::{self, RsBatch, RsOp, op};

/// Counts.
struct Counted;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

const QUEUES: [u64; 2] = [1 << 32 | 2, 1 << 32 | 3];
const BLOCK: u32 = 4096;
const BLOCKS: u64 = 256;
/// As many as can be with the server at once.
const REQUESTS: u64 = 4096;
const DEPTH: usize = 8;

struct Server {
    scheduler: Scheduler,
    ring: Ring,
    backend: FileBackend,
    pool: Pool,
    running: [Option<(Arrived, Ticket)>; DEPTH],
    done: Vec<Done>,
    served: u64,
}

impl Server {
    /// As the worker: requests come, are dispatched, done in the ring, and answered.
    fn serve(&mut self, first: u64, count: u64) {
        for handle in first..first + count {
            let (queue, at) = (QUEUES[usize::from(handle % 2 == 1)], handle * 7 % BLOCKS);
            let op = if handle % 3 == 0 { Op::Read } else { Op::Write };
            let (offset, owner) = (at * u64::from(BLOCK), Some(queue.into()));
            self.scheduler.arrive(
                Arrived { handle, op, fua: false, offset, len: BLOCK, owner, buffer: None },
                handle,
            );
        }
        let end = self.served + count;
        while self.served < end {
            while let Some(id) = self.running.iter().position(Option::is_none)
                && let Ok((mut request, ticket)) = self.scheduler.dispatch(first)
            {
                let buffer = self.pool.take();
                let io = Io {
                    id: id as u64,
                    op: request.op,
                    fua: false,
                    offset: request.offset,
                    len: request.len,
                    data: Data::At(buffer.at()),
                };
                request.buffer = Some(buffer);
                self.running[id] = Some((request, ticket));
                // SAFETY: the buffer stays in `running` until it is done.
                unsafe { self.backend.submit(&mut self.ring, &io) }.unwrap();
            }
            self.ring.wait(None).unwrap();
            self.ring.take(&mut self.done);
            for (_, id, result) in self.done.drain(..) {
                let (mut request, ticket) =
                    self.running[usize::try_from(id).unwrap()].take().unwrap();
                assert_eq!(result, BLOCK.cast_signed());
                self.scheduler.done(ticket, first);
                self.pool.give(request.buffer.take().unwrap());
                self.served += 1;
            }
        }
    }
}

#[test]
fn a_request_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::File::create(&data).unwrap().set_len(BLOCKS * u64::from(BLOCK)).unwrap();
    let book = Book::create(&folder.path().join("book"), 100_000).unwrap();
    let mut server = Server {
        scheduler: Scheduler::new(book).unwrap(),
        ring: Ring::new().unwrap(),
        backend: FileBackend::open(&data).unwrap(),
        pool: Pool::new(256 * 1024, 64),
        running: [const { None }; DEPTH],
        done: Vec::with_capacity(64),
        served: 0,
    };
    server.scheduler.set_device(8, false);
    let mut edits = RsBatch { seq: 1, count: 4, ..RsBatch::default() };
    for (slot, queue) in QUEUES.into_iter().enumerate() {
        edits.op[slot] =
            RsOp { code: op::CREATE, node: queue, parent: wire::ROOT, a: 2, ..RsOp::default() };
        edits.op[slot + 2] =
            RsOp { code: op::REWEIGHT, node: queue, a: 100_000, ..RsOp::default() };
    }
    assert_eq!(server.scheduler.edit(&mut edits, 0), 0);
    server.serve(0, 16);
    let before = COUNT.load(Ordering::Relaxed);
    for turn in 1..20 {
        server.serve(turn * REQUESTS, REQUESTS);
    }
    assert_eq!(
        COUNT.load(Ordering::Relaxed) - before,
        0,
        "allocations for {} requests",
        server.served
    );
    // Must be seen: one.
    drop(std::hint::black_box(vec![0_u8; 100]));
    assert_eq!(COUNT.load(Ordering::Relaxed) - before, 1);
}
