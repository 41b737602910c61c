// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler before a modelled disk, in virtual time: shares, the throughput of batches, queues
//! that think, and costs. No clock is read, so the numbers are the same on any machine.

mod cello;

use std::collections::VecDeque;

use reserv_disk_model::{Disk, Kind, Request, Spinning};

use super::*;
use crate::backend::Model;
use crate::front::Op;
use crate::wire::delete;
use crate::wire::tune;

const SECOND: u64 = 1_000_000_000;
const SECTORS: u64 = 200_000_000;
const SFQ: u64 = 0;
const WF2QP: u64 = 5;
const YFQ: u64 = wire::YFQ as u64;
const SCAN: u64 = 6;

/// Programs that each ask for one request of one of these sizes, and for the next so long after
/// that is done.
#[derive(Clone)]
struct Load {
    /// Below the root, or below the scheduler node of that number.
    parent: Option<u64>,
    weight: u64,
    programs: usize,
    sizes: Vec<u32>,
    think: u64,
    sequential: bool,
    class: u64,
}

fn load(weight: u64, programs: usize, sizes: &[u32]) -> Load {
    Load {
        parent: None,
        weight,
        programs,
        sizes: sizes.to_vec(),
        think: 0,
        sequential: false,
        class: 0,
    }
}

struct Bench {
    scheduler: Scheduler,
    disk: Disk,
    slots: usize,
    seq: u64,
    dice: u64,
    handle: u64,
    now: u64,
    /// When who asks again.
    asks: VecDeque<(u64, usize, u64)>,
    flying: Vec<(u64, Arrived, Ticket)>,
    loads: Vec<Load>,
    /// Bytes, requests and time of each load.
    got: Vec<[u64; 3]>,
    _folder: tempfile::TempDir,
}

const fn queue(k: usize) -> u64 {
    1 << 32 | (100 + k as u64)
}

const fn inner(k: u64) -> u64 {
    1 << 32 | (50 + k)
}

impl Bench {
    fn new(policy: u64, kind: Kind, slots: u32, loads: &[Load]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut scheduler =
            Scheduler::new(Book::create(&folder.path().join("book"), 100_000).unwrap()).unwrap();
        scheduler.set_device(slots, matches!(kind, Kind::Spinning(_)));
        let mut this = Self {
            scheduler,
            disk: Disk::new(kind),
            slots: slots as usize,
            seq: 0,
            dice: 0x9e37_79b9_7f4a_7c15,
            handle: 0,
            now: 0,
            asks: VecDeque::new(),
            flying: Vec::new(),
            loads: loads.to_vec(),
            got: vec![[0; 3]; loads.len()],
            _folder: folder,
        };
        let mut ops = vec![(op::POLICY, wire::ROOT, 0, policy, 0)];
        for parent in loads.iter().filter_map(|l| l.parent) {
            if !ops.iter().any(|&(_, node, ..)| node == inner(parent)) {
                // The node of number n has weight n.
                ops.push((op::CREATE, inner(parent), wire::ROOT, wire::SCHED.into(), policy));
                ops.push((op::REWEIGHT, inner(parent), 0, parent * 1000, 0));
            }
        }
        for (k, l) in loads.iter().enumerate() {
            let parent = l.parent.map_or(wire::ROOT, inner);
            ops.push((op::CREATE, queue(k), parent, wire::QUEUE.into(), l.class));
            ops.push((op::REWEIGHT, queue(k), 0, l.weight * 1000, 0));
        }
        this.edit(&ops);
        for (k, l) in loads.iter().enumerate() {
            for _ in 0..l.programs {
                let at = this.below(SECTORS / 8) * 8;
                this.asks.push_back((0, k, at));
            }
        }
        this
    }

    fn edit(&mut self, ops: &[(u32, u64, u64, u64, u64)]) {
        self.seq += 1;
        let mut batch = super::tests::batch(self.seq, ops);
        assert_eq!(
            self.scheduler.edit(&mut batch, self.now),
            0,
            "{:?}",
            batch.op[batch.failed as usize]
        );
    }

    fn tune(&mut self, key: u64, value: u64) {
        self.edit(&[(op::TUNE, wire::ROOT, 0, key, value)]);
    }

    fn below(&mut self, n: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % n
    }

    /// Until then; counts anew.
    fn run(&mut self, time: u64) {
        let end = self.now + time;
        self.got.fill([0; 3]);
        let mut wake = 0;
        loop {
            let next = self.asks.iter().map(|a| a.0).chain(self.flying.iter().map(|f| f.0));
            let next = next.chain((wake > 0).then_some(wake)).min().unwrap();
            if next > end {
                self.now = end;
                break;
            }
            self.now = next.max(self.now);
            while let Some(at) = self.flying.iter().position(|f| f.0 <= self.now) {
                let (_, request, ticket) = self.flying.remove(at);
                self.scheduler.done(ticket, self.now);
                let k = usize::try_from(ticket.queue & 0xffff_ffff).unwrap() - 100;
                self.got[k][0] += u64::from(request.len);
                self.got[k][1] += 1;
                let next = (request.offset + u64::from(request.len)) / SECTOR;
                self.asks.push_back((self.now + self.loads[k].think, k, next));
            }
            for _ in 0..self.asks.len() {
                let Some((at, k, place)) = self.asks.pop_front() else { break };
                if at > self.now {
                    self.asks.push_back((at, k, place));
                    continue;
                }
                let sizes = self.loads[k].sizes.len() as u64;
                let which = usize::try_from(self.below(sizes)).unwrap();
                let len = self.loads[k].sizes[which];
                let sectors = u64::from(len) / SECTOR;
                let sector = if self.loads[k].sequential && place + sectors <= SECTORS {
                    place
                } else {
                    self.below((SECTORS - sectors) / 8) * 8
                };
                self.handle += 1;
                let (handle, owner) = (self.handle, Some(queue(k).into()));
                let request = Arrived {
                    handle,
                    op: Op::Read,
                    fua: false,
                    offset: sector * SECTOR,
                    len,
                    owner,
                    buffer: None,
                };
                self.scheduler.arrive(request, self.now);
            }
            wake = 0;
            while self.flying.len() < self.slots {
                match self.scheduler.dispatch(self.now) {
                    Ok((request, ticket)) => {
                        let of = Request {
                            sector: request.offset / SECTOR,
                            sectors: request.len / 512,
                            write: false,
                        };
                        let served = self.disk.submit(self.now, of).unwrap();
                        let k = usize::try_from(ticket.queue & 0xffff_ffff).unwrap() - 100;
                        self.got[k][2] += served.took();
                        self.flying.push((served.done, request, ticket));
                    }
                    Err(at) => {
                        assert!(
                            at == 0 || at > self.now,
                            "asked again at {at}, and it is {}",
                            self.now
                        );
                        wake = at;
                        break;
                    }
                }
            }
        }
        assert_eq!(self.scheduler.poison(), 0);
    }

    #[expect(clippy::cast_precision_loss, reason = "a short run")]
    fn share(&self, k: usize, of: usize) -> f64 {
        self.got[k][of] as f64 / self.got.iter().map(|g| g[of]).sum::<u64>() as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "a short run")]
    fn bytes(&self) -> f64 {
        self.got.iter().map(|g| g[0]).sum::<u64>() as f64
    }
}

fn server() -> Kind {
    Kind::Spinning(Spinning { sectors: SECTORS, ..Spinning::SERVER })
}

const MIXED: [u32; 3] = [4096, 65536, 262_144];

#[test]
fn shares_are_within_a_point_under_each_policy_in_batches_too() {
    for (policy, batch) in [(SFQ, 0), (WF2QP, 0), (YFQ, 0), (YFQ, 4), (YFQ, 16)] {
        for ratio in [1, 2, 4, 10] {
            for sizes in
                [[&MIXED[..1], &MIXED[..1]], [&MIXED[..1], &MIXED[2..]], [&MIXED[..], &MIXED[..]]]
            {
                let loads = [load(1, 40, sizes[0]), load(ratio, 40, sizes[1])];
                let mut bench = Bench::new(policy, server(), 1, &loads);
                if batch > 0 {
                    bench.tune(tune::BATCH, batch);
                }
                bench.run(60 * SECOND);
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let wanted = 1.0 / (1 + ratio) as f64;
                let got = bench.share(0, 0);
                assert!(
                    (got - wanted).abs() < 0.01,
                    "policy {policy}, batch {batch}, 1:{ratio}, {sizes:?}: {got} of {wanted}"
                );
            }
        }
    }
}

/// Of the root 1:3, of one of these 1:1: one eighth, one eighth, six eighths.
#[test]
fn two_levels_are_within_a_point() {
    for (policy, batch) in [(SFQ, 0), (YFQ, 0), (YFQ, 8)] {
        let mut loads = [1, 1, 3].map(|weight| load(weight, 40, &MIXED));
        loads[0].parent = Some(1);
        loads[1].parent = Some(1);
        let mut bench = Bench::new(policy, server(), 1, &loads);
        if batch > 0 {
            bench.tune(tune::BATCH, batch);
        }
        bench.run(60 * SECOND);
        for (k, wanted) in [0.125, 0.125, 0.75].into_iter().enumerate() {
            let got = bench.share(k, 0);
            assert!(
                (got - wanted).abs() < 0.01,
                "policy {policy}, batch {batch}, {k}: {got} of {wanted}"
            );
        }
    }
}

/// As many requests in the window, from one queue: nothing but C-LOOK decides.
#[test]
fn a_batch_has_the_throughput_of_c_look_over_the_same_window() {
    let sizes = [4096, 16_384, 65_536];
    let rate = |loads: &[Load], batch: u64| {
        let mut bench = Bench::new(YFQ, server(), 1, loads);
        bench.tune(tune::BATCH, batch);
        bench.run(60 * SECOND);
        bench.bytes()
    };
    let mut first = 0.0;
    for batch in [1, 2, 4, 8, 16, 32] {
        let three = [load(1, 40, &sizes), load(2, 40, &sizes), load(4, 40, &sizes)];
        let (fair, plain) = (rate(&three, batch), rate(&[load(1, 120, &sizes)], batch));
        println!("batch {batch}: {:.2} MB/s, {:.3} of C-LOOK", fair / 60e6, fair / plain);
        assert!(fair >= 0.95 * plain, "batch {batch}: {fair} of {plain}");
        if batch == 1 {
            first = fair;
        }
        // Must fail where the window has no order: then it is as fast as one at a time.
        assert!(batch < 16 || fair > 1.3 * first, "batch {batch}: {fair}, one at a time {first}");
    }
}

#[test]
fn a_queue_in_c_look_is_faster_than_in_its_order() {
    let rate = |class| {
        let of = Load { class, ..load(1, 40, &[4096]) };
        let mut bench = Bench::new(SFQ, server(), 1, &[of.clone(), Load { weight: 2, ..of }]);
        bench.run(60 * SECOND);
        assert!((bench.share(0, 0) - 1.0 / 3.0).abs() < 0.01);
        bench.bytes()
    };
    let (scan, fifo) = (rate(SCAN), rate(3));
    println!("scan: {:.2} of fifo", scan / fifo);
    assert!(scan > 1.1 * fifo, "{scan} and {fifo}");
}

#[test]
fn who_thinks_keeps_its_share_and_little_is_lost() {
    let thinkers = [4, 1].map(|w| Load { think: 200_000, ..load(w, 1, &[65536]) });
    let run = |policy, anticipate, loads: &[Load], kind| {
        let mut bench = Bench::new(policy, kind, 1, loads);
        if anticipate != wire::AUTO {
            bench.tune(tune::ANTICIPATE, anticipate);
        }
        bench.run(60 * SECOND);
        bench
    };
    // Where nothing is said a disk with an arm waits, under sfq too; told not to it does not.
    for (policy, wait) in [(YFQ, wire::AUTO), (SFQ, wire::AUTO), (YFQ, 2_000_000)] {
        let with = run(policy, wait, &thinkers, server());
        let without = run(YFQ, 0, &thinkers, server());
        println!(
            "policy {policy}: share {:.4}, without {:.4}, throughput {:.3}",
            with.share(0, 0),
            without.share(0, 0),
            with.bytes() / without.bytes()
        );
        assert!((with.share(0, 0) - 0.8).abs() < 0.01, "{}", with.share(0, 0));
        assert!(with.bytes() > 0.96 * without.bytes(), "{} of {}", with.bytes(), without.bytes());
        assert!(without.share(0, 0) < 0.55, "without: {}", without.share(0, 0));
    }
    // Flash waits for nobody unless it is told to.
    let flash = || Model::Flash.kind(SECTORS);
    let never = run(YFQ, wire::AUTO, &thinkers, flash());
    assert!(never.share(0, 0) < 0.55, "flash: {}", never.share(0, 0));
    // Who thinks for longer is not waited for, and costs next to nothing.
    let mut slow = [load(4, 1, &[65536]), load(1, 8, &[65536])];
    slow[0].think = 10_000_000;
    let (with, without) = (run(YFQ, 2_000_000, &slow, server()), run(YFQ, 0, &slow, server()));
    println!("who thinks for 10 ms: {:.3} of the throughput", with.bytes() / without.bytes());
    assert!(with.bytes() > 0.98 * without.bytes(), "{} of {}", with.bytes(), without.bytes());
}

/// Two programs with two requests each: while one is at the disk the other waits, and when that is
/// dispatched the first comes again, a moment later. No queue is waited for.
#[test]
fn two_requests_at_once_are_enough_for_shares() {
    for policy in [SFQ, WF2QP, YFQ] {
        for ratio in [1, 2, 4, 10] {
            let loads = [1, ratio].map(|w| Load { think: 100_000, ..load(w, 2, &[1 << 20]) });
            let mut bench = Bench::new(policy, Model::Flash.kind(SECTORS), 1, &loads);
            bench.run(20 * SECOND);
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let wanted = 1.0 / (1 + ratio) as f64;
            let got = bench.share(0, 0);
            assert!((got - wanted).abs() < 0.01, "policy {policy}, 1:{ratio}: {got} of {wanted}");
        }
    }
}

/// One that reads 256 KiB in a row, one that reads 4 KiB here and there: equal bytes are not equal
/// time.
#[test]
fn shares_are_of_what_cost_says() {
    let mut loads = [load(1, 8, &[262_144]), load(1, 8, &[4096])];
    loads[0].sequential = true;
    for (cost, of) in [(wire::cost::BYTES, 0), (wire::cost::REQUESTS, 1), (wire::cost::TIME, 2)] {
        let mut bench = Bench::new(YFQ, server(), 1, &loads);
        bench.tune(tune::ANTICIPATE, 0);
        bench.tune(tune::COST, cost);
        bench.run(120 * SECOND);
        let got = [0, 1, 2].map(|what| bench.share(0, what));
        println!("cost {cost}: bytes {:.4}, requests {:.4}, time {:.4}", got[0], got[1], got[2]);
        assert!((got[of] - 0.5).abs() < 0.01, "cost {cost}: {got:?}");
        assert!(
            (0..3).filter(|&k| k != of).all(|k| (got[k] - 0.5).abs() > 0.05),
            "cost {cost}: {got:?}"
        );
    }
}

/// Policy, batch, cost and depth change under load; shares are right afterwards, and the next
/// worker knows.
#[test]
fn changes_under_load() {
    let loads = [load(1, 40, &MIXED), load(3, 40, &MIXED)];
    let mut bench = Bench::new(SFQ, server(), 4, &loads);
    for (policy, batch, cost, depth) in [
        (SFQ, 0, 0, 4),
        (YFQ, 16, 0, 1),
        (YFQ, 2, 2, 4),
        (WF2QP, 2, 2, 2),
        (YFQ, 256, 1, 256),
        (YFQ, 0, 0, 1),
    ] {
        bench.edit(&[
            (op::POLICY, wire::ROOT, 0, policy, 0),
            (op::TUNE, wire::ROOT, 0, tune::BATCH, batch),
            (op::TUNE, wire::ROOT, 0, tune::COST, cost),
        ]);
        bench.slots = depth;
        bench.scheduler.set_device(u32::try_from(depth).unwrap(), true);
        bench.run(2 * SECOND);
        bench.run(60 * SECOND);
        // What wf2q+ has no tunables for is as where nothing was said.
        let of = if policy == YFQ { [0, 1, 2][usize::try_from(cost).unwrap()] } else { 0 };
        let got = bench.share(0, of);
        // With 256 at once all of them are dispatched: nothing is left to choose from.
        assert!(
            depth == 256 || (got - 0.25).abs() < 0.01,
            "policy {policy}, batch {batch}, cost {cost}: {got}"
        );
    }
    let disk = bench.scheduler.book.disk();
    assert_eq!((disk.batch, disk.cost, disk.anticipate), (0, 0, wire::AUTO));
}

#[test]
fn wrong_tunables_change_nothing() {
    let mut bench = Bench::new(YFQ, server(), 1, &[load(1, 1, &[4096])]);
    for (node, key, value) in [
        (wire::ROOT, tune::BATCH, 257),
        (wire::ROOT, tune::COST, 3),
        (wire::ROOT, tune::ANTICIPATE, wire::TUNE_NS_MAX + 1),
        (wire::ROOT, tune::DEADLINE, 5),
        (queue(0), tune::BATCH, 4),
        (queue(0), tune::DEADLINE, wire::TUNE_NS_MAX + 1),
        (queue(7), tune::DEADLINE, 5),
        (wire::ROOT, tune::ROUND, 1),
        (queue(0), tune::ROUND, 1_000_000_000),
        (wire::ROOT, 11, 1),
    ] {
        let ops = [(op::REWEIGHT, queue(0), 0, 7000, 0), (op::TUNE, node, 0, key, value)];
        let mut wrong = super::tests::batch(100, &ops);
        assert!(bench.scheduler.edit(&mut wrong, 1) < 0, "{node:x} {key} {value}");
        assert_eq!((wrong.failed, bench.scheduler.book.get(queue(0)).unwrap().weight), (1, 1000));
    }
    bench.edit(&[
        (op::CREATE, queue(7), wire::ROOT, wire::QUEUE.into(), 7),
        (op::TUNE, queue(7), 0, tune::DEADLINE, 20_000_000),
    ]);
    assert_eq!(bench.scheduler.book.get(queue(7)).unwrap().deadline, 20_000_000);
}

/// scan-edf: what came 10 ms later waits, whatever its place is; within 10 ms places decide.
#[test]
fn deadlines_are_kept_before_places() {
    let mut bench = Bench::new(YFQ, server(), 1, &[Load { class: 7, ..load(1, 0, &[4096]) }]);
    bench.edit(&[(op::TUNE, queue(0), 0, tune::DEADLINE, 20_000_000)]);
    for (handle, ms, sector) in [(1, 1, 90), (2, 2, 40), (3, 15, 5), (4, 3, 70)] {
        let (owner, offset) = (Some(queue(0).into()), sector * SECTOR);
        let request =
            Arrived { handle, op: Op::Read, fua: false, offset, len: 512, owner, buffer: None };
        bench.scheduler.arrive(request, ms * 1_000_000);
    }
    let order: Vec<u64> = (0..4)
        .map(|_| {
            let (request, ticket) = bench.scheduler.dispatch(20_000_000).unwrap();
            bench.scheduler.done(ticket, 20_000_000);
            request.handle
        })
        .collect();
    assert_eq!(order, [2, 4, 1, 3]);
}

/// Queues that are waited for go, drain and come again.
#[test]
fn who_is_waited_for_can_go() {
    let thinkers = [4, 1].map(|w| Load { think: 200_000, ..load(w, 1, &[65536]) });
    for (flush, how) in [(true, delete::NOW), (false, delete::DRAIN)] {
        for steps in 0..12 {
            let mut bench = Bench::new(YFQ, server(), 1, &thinkers);
            // Ends at another point of the game each time: while it waits, thinks, is served, or
            // its phantom was picked.
            bench.run(50_000_000 + steps * 731_000);
            bench.edit(&[(op::DELETE, queue(0), 0, how, 0)]);
            if !flush {
                for (_, _, ticket) in std::mem::take(&mut bench.flying) {
                    bench.scheduler.done(ticket, bench.now);
                }
                for _ in 0..10 {
                    bench.now += 1_000_000;
                    if let Ok((_, ticket)) = bench.scheduler.dispatch(bench.now) {
                        bench.scheduler.done(ticket, bench.now);
                    }
                }
                assert_eq!(bench.scheduler.collect(queue(0), bench.now), 0);
            }
            assert!(bench.scheduler.sample_one(queue(0)).is_none());
            assert_eq!(bench.scheduler.poison(), 0);
        }
    }
}
