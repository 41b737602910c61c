// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares at dispatch, edits, and what the next worker knows.

use std::path::Path;

use super::*;
use crate::front::Op;
use crate::wire::delete;

const A: u64 = 1 << 32 | 2;
const B: u64 = 1 << 32 | 3;

pub(super) fn batch(seq: u64, ops: &[(u32, u64, u64, u64, u64)]) -> RsBatch {
    let mut batch = RsBatch { seq, count: u32::try_from(ops.len()).unwrap(), ..RsBatch::default() };
    for (slot, &(code, node, parent, a, b)) in batch.op.iter_mut().zip(ops) {
        *slot = RsOp { code, node, parent, a, b, ..RsOp::default() };
    }
    batch
}

fn new(path: &Path) -> Scheduler {
    let mut scheduler = Scheduler::new(Book::create(path, 100_000).unwrap()).unwrap();
    let mut edits = batch(
        1,
        &[
            (op::CREATE, A, wire::ROOT, 2, 0),
            (op::CREATE, B, wire::ROOT, 2, 0),
            (op::REWEIGHT, A, 0, 100_000, 0),
            (op::REWEIGHT, B, 0, 300_000, 0),
        ],
    );
    assert_eq!(scheduler.edit(&mut edits, 0), 0);
    scheduler
}

fn request(handle: u64, queue: u64, len: u32) -> Arrived {
    Arrived {
        handle,
        op: Op::Read,
        fua: false,
        offset: handle * 4096,
        len,
        owner: Some(queue.into()),
        buffer: None,
    }
}

/// The next request, begun and done, and its queue.
fn serve(scheduler: &mut Scheduler, now: u64) -> Option<(Arrived, u64)> {
    let (request, ticket) = scheduler.dispatch(now).ok()?;
    scheduler.done(ticket, now);
    Some((request, ticket.queue))
}

/// Bytes of two queues that always have requests waiting, after this many dispatches.
fn shares(scheduler: &mut Scheduler, sizes: [u32; 2], steps: u64) -> [u64; 2] {
    let mut got = [0, 0];
    for handle in 0..16 {
        let which = usize::from(handle % 2 == 1);
        scheduler.arrive(request(handle, [A, B][which], sizes[which]), handle);
    }
    for step in 0..steps {
        let (request, ticket) = scheduler.dispatch(100 + step).unwrap();
        let which = usize::from(ticket.queue == B);
        got[which] += u64::from(request.len);
        scheduler.done(ticket, 100 + step);
        scheduler.arrive(super::tests::request(100 + step, ticket.queue, sizes[which]), 100 + step);
    }
    got
}

#[test]
fn queues_with_requests_share_by_weight_whatever_their_sizes() {
    let folder = tempfile::tempdir().unwrap();
    for sizes in [[4096, 4096], [4096, 65536], [262_144, 4096]] {
        let mut scheduler = new(&folder.path().join("book"));
        let [a, b] = shares(&mut scheduler, sizes, 20_000);
        // SFQ-1: no two are further apart than a request of each.
        #[expect(clippy::cast_precision_loss, reason = "some gigabytes")]
        let apart = (a as f64 / 100.0 - b as f64 / 300.0).abs();
        let bound = f64::from(sizes[0]) / 100.0 + f64::from(sizes[1]) / 300.0;
        assert!(apart <= bound, "{sizes:?}: {a} and {b} are {apart} apart, {bound} allowed");
        assert_eq!(scheduler.book.get(A).unwrap().service, a);
        assert_eq!(scheduler.book.get(wire::ROOT).unwrap().service, a + b);
        assert_eq!(scheduler.poison(), 0);
    }
}

#[test]
fn whoever_has_no_queue_is_in_q0() {
    let folder = tempfile::tempdir().unwrap();
    let mut scheduler = new(&folder.path().join("book"));
    scheduler.arrive(Arrived { owner: None, ..request(1, 0, 4096) }, 0);
    scheduler.arrive(request(2, 0, 4096), 0);
    scheduler.arrive(request(3, 9 << 32 | 2, 4096), 0);
    for _ in 0..3 {
        assert_eq!(serve(&mut scheduler, 1).unwrap().1, Q0);
    }
    assert!(scheduler.dispatch(1).is_err() && scheduler.is_idle());
    assert_eq!(scheduler.strays, 1);
}

#[test]
fn what_waits_in_a_queue_that_goes_is_q0s_and_a_refused_batch_moves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut scheduler = new(&folder.path().join("book"));
    for handle in 0..5 {
        scheduler.arrive(request(handle, A, 4096), handle);
    }
    let mut wrong = batch(2, &[(op::DELETE, A, 0, delete::NOW, 0), (op::REWEIGHT, 77, 0, 1, 0)]);
    assert!(scheduler.edit(&mut wrong, 9) < 0);
    assert_eq!(scheduler.sample_one(A).unwrap().queued, 5);
    scheduler.arrive(request(5, A, 4096), 9);
    assert_eq!(scheduler.sample_one(A).unwrap().queued, 6, "it takes new ones as before");
    assert_eq!(scheduler.edit(&mut batch(2, &[(op::DELETE, A, 0, delete::NOW, 0)]), 9), 0);
    assert!(scheduler.sample_one(A).is_none());
    let order: Vec<u64> = (0..6)
        .map(|_| serve(&mut scheduler, 10).unwrap())
        .inspect(|(_, queue)| assert_eq!(*queue, Q0))
        .map(|(r, _)| r.handle)
        .collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    assert_eq!(scheduler.book.get(Q0).unwrap().served, 6);
    assert_eq!(scheduler.edit(&mut batch(3, &[(op::RESET, Q0, 0, 0, 0)]), 10), 0);
    let q0 = *scheduler.book.get(Q0).unwrap();
    assert_eq!((q0.served, q0.service_base), (0, q0.service), "counters begin anew");
    assert_eq!(scheduler.poison(), 0);
}

#[test]
fn a_draining_queue_serves_what_waits_and_goes_when_it_is_collected() {
    let folder = tempfile::tempdir().unwrap();
    let mut scheduler = new(&folder.path().join("book"));
    scheduler.arrive(request(1, A, 4096), 0);
    let mut drain = batch(2, &[(op::DELETE, A, 0, delete::DRAIN, 0)]);
    assert_eq!((scheduler.edit(&mut drain, 1), drain.op[0].answer), (0, wire::DRAINING));
    assert_eq!(scheduler.collect(A, 3), -libc::EBUSY);
    scheduler.arrive(request(2, A, 4096), 2);
    assert_eq!(scheduler.sample_one(A).unwrap().queued, 1, "it takes no new ones");
    while serve(&mut scheduler, 3).is_some() {}
    assert_eq!((scheduler.collect(A, 3), scheduler.collect(A, 3)), (0, -libc::ESTALE));
    assert!(scheduler.sample_one(A).is_none());
}

#[test]
fn the_next_worker_knows_tree_counters_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book");
    let mut scheduler = new(&path);
    let [a, b] = shares(&mut scheduler, [4096, 8192], 1000);
    assert_eq!(scheduler.edit(&mut batch(7, &[(op::DELETE, B, 0, delete::DRAIN, 0)]), 1), 0);
    drop(scheduler);
    let mut next = Scheduler::new(Book::open(&path).unwrap()).unwrap();
    let (one, two) = (next.sample_one(A).unwrap(), next.sample_one(B).unwrap());
    assert_eq!((one.service, one.weight, two.service, two.dying), (a, 100_000, b, 1));
    assert_eq!(next.edit(&mut batch(7, &[]), 0), -libc::ESTALE);
    assert_eq!(next.collect(B, 3), 0);
    assert_eq!(next.edit(&mut batch(8, &[(op::CREATE, 2 << 32 | 3, wire::ROOT, 2, 0)]), 0), 0);
    assert_eq!(next.poison(), 0);
}

/// Bytes that a queue gets which always wants more, by a clock of 50 µs; the scheduler says when it
/// is to be asked again.
fn capped(scheduler: &mut Scheduler, from: u64, ns: u64) -> u64 {
    let (mut got, mut handle, mut again) = (0, 1000, from);
    for now in (from..from + ns).step_by(50_000) {
        loop {
            while scheduler.sample_one(A).unwrap().queued < 4 {
                handle += 1;
                scheduler.arrive(request(handle, A, 4096), now);
            }
            match scheduler.dispatch(now) {
                Ok((request, ticket)) => {
                    assert!(now >= again, "nothing before {again}, at {now}");
                    got += u64::from(request.len);
                    scheduler.done(ticket, now);
                }
                Err(at) => {
                    assert!(at > now, "a time to come: {at} at {now}");
                    again = at;
                    break;
                }
            }
        }
    }
    got
}

#[test]
fn a_cap_is_the_most_that_a_queue_gets_and_outlives_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book");
    let mut scheduler = new(&path);
    // 1000 bytes in 10^6 ns are 1 MB/s.
    let (rate, burst) = (1000, 20_000);
    assert_eq!(scheduler.edit(&mut batch(2, &[(op::CAP, A, 0, rate, burst)]), 0), 0);
    let fair = |got: u64| {
        assert!(
            got <= 1_000_000 + burst + 4096,
            "in a second the rate, the burst and a request: {got}"
        );
        assert!(got >= 1_000_000 - 4096, "and the rate: {got}");
    };
    fair(capped(&mut scheduler, 1_000_000, 1_000_000_000));
    // Under Cello nobody would see to it.
    let cello = (op::POLICY, wire::ROOT, 0, wire::CELLO.into(), 0);
    assert_eq!(scheduler.edit(&mut batch(3, &[cello]), 1_002_000_000), -libc::EOPNOTSUPP);
    assert_eq!(scheduler.edit(&mut batch(3, &[cello, (op::CAP, A, 0, 0, 0)]), 1_002_000_000), 0);
    let cap = (op::CAP, A, 0, rate, burst);
    assert_eq!(scheduler.edit(&mut batch(4, &[cap]), 1_002_000_000), -libc::EOPNOTSUPP);
    let sfq = (op::POLICY, wire::ROOT, 0, 0, 0);
    assert_eq!(scheduler.edit(&mut batch(4, &[cap, sfq]), 1_002_000_000), 0);
    drop(scheduler);
    let mut next = Scheduler::new(Book::open(&path).unwrap()).unwrap();
    fair(capped(&mut next, 5_000_000_000, 1_000_000_000));
    assert_eq!(next.edit(&mut batch(5, &[(op::CAP, A, 0, 0, 0)]), 7_000_000_000), 0);
    next.arrive(request(1, A, 1 << 20), 7_000_000_000);
    next.arrive(request(2, A, 1 << 20), 7_000_000_000);
    let served: Vec<u32> =
        std::iter::from_fn(|| serve(&mut next, 7_000_000_000)).map(|(r, _)| r.len).collect();
    assert_eq!(
        served.iter().filter(|&&len| len == 1 << 20).count(),
        2,
        "without it all go at once: {served:?}"
    );
    assert_eq!(next.poison(), 0);
}
