// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs, a scheduler and a modelled disk in virtual time: what shares and throughput come to.

use reserv_disk_model::{Disk, Kind, Request, SECTOR, Spinning};

use crate::core::{
    Ante, Build, Cello, Core, FIFO, Id, ONE, Op, QUEUE, ROOT, SCHED, Setup, Window, YFQ, id,
};
use crate::rng::Rng;

const MS: u64 = 1_000_000;

/// Programs of one queue: each asks for one request, and for the next one so long after that is
/// done.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Weight of the queue.
    pub weight: u32,
    /// How many programs.
    pub programs: usize,
    /// Sectors of a request, from and to.
    pub sectors: (u64, u64),
    /// Whether requests of a program follow one another on the disk.
    pub sequential: bool,
    /// Time between the end of one and the next, ns: from and to.
    pub think: (u64, u64),
}

/// How requests get to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A tree with yfq and a window of so many.
    Yfq(u32),
    /// The same, refilled from empty only.
    YfqDrained(u32),
    /// First come, first served into a window of so many: the order of the disk, without shares.
    Arrival(u32),
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes of each queue.
    pub bytes: Vec<u64>,
    /// Requests of all, and virtual time.
    pub requests: u64,
    /// Nanoseconds.
    pub time: u64,
}

impl Outcome {
    /// Bytes of queue k as a part of all.
    #[expect(clippy::cast_precision_loss, reason = "a short run")]
    pub fn share(&self, k: usize) -> f64 {
        self.bytes[k] as f64 / self.bytes.iter().sum::<u64>() as f64
    }

    /// Bytes a second.
    #[expect(clippy::cast_precision_loss, reason = "a short run")]
    pub fn rate(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 * 1e9 / self.time as f64
    }
}

struct Program {
    queue: usize,
    at: u64,
    /// Asks again then.
    wakes: Option<u64>,
}

/// Run `loads` on a disk for `time`; `anticipate`: queues keep their turn while they think.
#[expect(clippy::too_many_lines, reason = "one trace, from its events to its checks")]
pub fn run(
    build: Build,
    of: Spinning,
    loads: &[Load],
    way: Way,
    anticipate: bool,
    seed: u64,
    time: u64,
) -> Outcome {
    let mut r = Rng::new(seed ^ 0xd15c5);
    let mut disk = Disk::new(Kind::Spinning(of));
    let (size, drain) = match way {
        Way::Yfq(b) | Way::Arrival(b) => (b, false),
        Way::YfqDrained(b) => (b, true),
    };
    let fair = !matches!(way, Way::Arrival(_));
    let mut window = Window::new(build, size, 1, drain).expect("a window");
    let mut core = Core::new(Setup { build, units: size, items: 4096, ..Setup::default() });
    if size > 1 {
        core.device();
    }
    let top = id(2, 1);
    core.must(0, Op::Create { node: top, parent: ROOT, kind: SCHED, alg: YFQ });
    core.must(0, Op::Reweight { node: top, weight: ONE });
    let queues: Vec<Id> = (3..)
        .zip(loads)
        .map(|(k, l)| {
            // Without shares there is one queue.
            let node = id(if fair { k } else { 3 }, 1);
            if fair || k == 3 {
                core.must(0, Op::Create { node, parent: top, kind: QUEUE, alg: FIFO });
                core.must(0, Op::Reweight { node, weight: l.weight });
            }
            node
        })
        .collect();
    let mut antes: Vec<Option<Ante>> =
        queues.iter().map(|&q| if anticipate { Ante::new(&core, q) } else { None }).collect();
    let mut programs = Vec::new();
    for (queue, l) in loads.iter().enumerate() {
        for _ in 0..l.programs {
            programs.push(Program {
                queue,
                at: r.below(of.sectors / 2),
                wakes: Some(r.below(1000)),
            });
        }
    }
    // Item: program, sector, sectors. Slots of the tree: item. How many requests of each queue
    // there are.
    let mut known: std::collections::BTreeMap<u32, (usize, u64, u64)> =
        std::collections::BTreeMap::new();
    let mut slots: Vec<Option<u32>> = vec![None; size as usize];
    let mut open = vec![0; loads.len()];
    let mut on_disk: Option<(u32, u64)> = None;
    let mut out = Outcome { bytes: vec![0; loads.len()], requests: 0, time };
    let mut now = 0;
    loop {
        let wake = programs.iter().filter_map(|p| p.wakes).min();
        let hold = antes.iter().flatten().map(Ante::until).filter(|&u| u > 0).min();
        let Some(at) = [wake, hold, on_disk.map(|d| d.1)].into_iter().flatten().min() else {
            break;
        };
        now = at.max(now);
        if now > time {
            break;
        }
        if let Some((item, _)) = on_disk.take_if(|d| d.1 <= now) {
            let (program, sector, sectors) = known.remove(&item).expect("known");
            let p = &mut programs[program];
            let l = loads[p.queue];
            out.bytes[p.queue] += sectors * SECTOR;
            out.requests += 1;
            p.at = sector + sectors;
            p.wakes = Some(now + r.range(l.think.0, l.think.1));
            open[p.queue] -= 1;
            let bytes = sectors * SECTOR;
            if open[p.queue] == 0
                && let Some(a) = &mut antes[p.queue]
            {
                a.done(&mut core, u32::try_from(bytes).expect("small"), now);
            }
            core.settle(item, bytes, false, now);
            core.item_leave(item);
            *slots.iter_mut().find(|s| **s == Some(item)).expect("in a slot") = None;
            window.done();
        }
        for a in antes.iter_mut().flatten() {
            if let Some(slot) = a.expire(&mut core, now) {
                slots[slot as usize] = None;
            }
        }
        for (k, p) in programs.iter_mut().enumerate() {
            if p.wakes.is_none_or(|w| w > now) {
                continue;
            }
            p.wakes = None;
            let l = loads[p.queue];
            let sectors = r.range(l.sectors.0 / 8, l.sectors.1 / 8) * 8;
            if !l.sequential || p.at + sectors > of.sectors {
                p.at = r.below((of.sectors - sectors) / 8) * 8;
            }
            let item = core.item_new(queues[p.queue], ONE, 0).expect("room");
            core.item_request(item, u32::try_from(sectors * SECTOR).expect("small"), p.at, 0);
            core.wake(item, now);
            known.insert(item, (k, p.at, sectors));
            open[p.queue] += 1;
            if let Some(a) = &mut antes[p.queue]
                && let Some(slot) = a.arrived(&mut core, now)
            {
                slots[slot as usize] = None;
            }
        }
        while window.room() > 0
            && let Some(slot) = slots.iter().position(Option::is_none)
            && let Some(item) = core.pick(u32::try_from(slot).expect("few"), now)
        {
            slots[slot] = Some(item);
            if let Some(&(_, sector, _)) = known.get(&item) {
                assert!(window.put(item, sector));
            }
        }
        if on_disk.is_none()
            && let Some(item) = window.next()
        {
            let (_, sector, sectors) = known[&item];
            let request =
                Request { sector, sectors: u32::try_from(sectors).expect("small"), write: false };
            on_disk = Some((item, disk.submit(now, request).expect("on the disk").done));
        }
    }
    core.check().unwrap_or_else(|e| panic!("{e}"));
    out
}

/// Cello over a modelled disk: `programs` of each class that ask for random 4 KiB without a pause,
/// and `streams` of real-time programs that ask in each period of 1 s for 1.5 Mb, in requests of 64
/// KiB that are due at its end.
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    /// Weights of real-time, interactive, throughput-intensive.
    pub weight: [u32; 3],
    /// Programs of each.
    pub programs: [usize; 3],
    /// Real-time streams.
    pub streams: u64,
}

/// Requests of each class, its time on the disk, and for streams how many requests were due and how
/// many were late.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "as above")]
pub struct ClassOutcome {
    pub requests: [u64; 3],
    pub service: [u64; 3],
    pub due: u64,
    pub late: u64,
}

/// Run it for `time`.
pub fn cello(build: Build, of: Spinning, classes: Classes, seed: u64, time: u64) -> ClassOutcome {
    const STREAM: u64 = 64 << 10;
    let mut r = Rng::new(seed ^ 0xce5);
    let mut disk = Disk::new(Kind::Spinning(of));
    let mut core = Cello::new(build, 4096, 0);
    for k in 0..3u32 {
        core.weight(k, classes.weight[k as usize]);
    }
    // Request: class, sector, bytes, due (streams).
    let mut known = std::collections::BTreeMap::new();
    let mut out = ClassOutcome::default();
    let ask = |core: &mut Cello,
               r: &mut Rng,
               known: &mut std::collections::BTreeMap<_, _>,
               class: u32| {
        let sector = r.below(of.sectors / 8 - 1) * 8;
        let i = core.arrive(class, sector, 4096, 0, 0).expect("room");
        known.insert(i, (class, sector, 4096u64, 0u64));
    };
    for class in 0..3u32 {
        for _ in 0..classes.programs[class as usize] {
            ask(&mut core, &mut r, &mut known, class);
        }
    }
    let (mut now, mut period) = (0, 0);
    let mut on_disk: Option<(u32, u64, u64)> = None;
    let mut at: Vec<u64> =
        (0..classes.streams).map(|k| (k + 1) * (of.sectors / (classes.streams + 2))).collect();
    while now < time {
        if now >= period * 1000 * MS && classes.streams > 0 {
            period += 1;
            for at in &mut at {
                for _ in 0..1_500_000u64.div_ceil(8 * STREAM) {
                    let due = period * 1000 * MS;
                    let i = core.arrive(Cello::REAL_TIME, *at, STREAM, due, 0).expect("room");
                    known.insert(i, (Cello::REAL_TIME, *at, STREAM, due));
                    *at += STREAM / SECTOR;
                    out.due += 1;
                }
            }
        }
        if on_disk.is_none()
            && let Some(i) = core.next(now)
        {
            let (_, sector, bytes, _) = known[&i];
            let request = Request {
                sector,
                sectors: u32::try_from(bytes / SECTOR).expect("small"),
                write: false,
            };
            let served = disk.submit(now, request).expect("on the disk");
            on_disk = Some((i, served.done, served.took()));
        }
        let tick = if classes.streams > 0 { period * 1000 * MS } else { u64::MAX };
        now = on_disk.map_or(tick, |d| d.1.min(tick));
        if let Some((i, _, took)) = on_disk.take_if(|d| d.1 <= now) {
            let (class, _, _, due) = known.remove(&i).expect("known");
            out.requests[class as usize] += 1;
            out.service[class as usize] += took;
            out.late += u64::from(due > 0 && now > due);
            core.done(i, took, now);
            if due == 0 {
                ask(&mut core, &mut r, &mut known, class);
            }
        }
    }
    out
}
