// SPDX-License-Identifier: MIT OR Apache-2.0
//! Owners of items look at them, and post them, without the tree's lock, while events on other
//! units change the tree (`sched/post.c`). Real threads: each is a unit, and does to any item what
//! a kernel does to a thread behind our back. What must hold does so in any order.

use std::sync::Mutex;
use std::thread;

use reserv_oracle::core::{
    Core, IDLE, Id, ONE, Op, Owner, Q0, QUEUE, QUEUED, ROOT, SCHED, SERVICE, Setup, TS, id,
};
use reserv_oracle::rng::Rng;

const Q: u64 = 4_000_000;
const UNITS: u32 = 3;
const ITEMS: usize = 7;
/// Reason of a tree that found an item in a state that it cannot be in.
const POISON_STATE: u32 = 4;

fn tree(units: u32) -> (Core, Vec<Id>) {
    let mut core = Core::new(Setup { units, ..Setup::default() });
    let inner = id(2, 1);
    core.must(0, Op::Create { node: inner, parent: ROOT, kind: SCHED, alg: 0 });
    core.must(0, Op::Reweight { node: inner, weight: 3 * ONE });
    let mut queues = vec![Q0];
    for (index, parent) in [(3, inner), (4, ROOT)] {
        core.must(0, Op::Create { node: id(index, 1), parent, kind: QUEUE, alg: TS });
        core.must(0, Op::Reweight { node: id(index, 1), weight: index * ONE });
        queues.push(id(index, 1));
    }
    (core, queues)
}

/// What all threads share. An item's lock makes whoever has it the owner; it is taken before the
/// tree's.
struct Machine {
    core: Mutex<Core>,
    free: Owner,
    queues: Vec<Id>,
    owner: Vec<Mutex<()>>,
}

impl Machine {
    /// The kernel puts a thread on a run queue: it wakes, or is taken off and put back on (a change
    /// of affinity, or of its nice value), whatever its item does meanwhile. Answers how often that
    /// needed no lock.
    fn enqueue(&self, item: u32, wakes: bool, now: u64) -> u32 {
        let _owner = self.owner[item as usize].lock().expect("nobody panics with it");
        if self.free.state(item) == IDLE && self.free.post(item, now) {
            return 1;
        }
        let mut core = self.core.lock().expect("nobody panics with it");
        core.drain();
        match core.item(item).state {
            QUEUED if wakes => core.remove(item),
            QUEUED => core.item_units(item, None),
            SERVICE => core.settle(item, Q / 2, !wakes, now),
            _ => {}
        }
        if core.item(item).state == IDLE {
            core.wake(item, now);
        }
        0
    }

    /// The unit's step ends, and it picks; then, without the lock, what it ran before is for all
    /// units again.
    fn dispatch(
        &self,
        unit: u32,
        prev: Option<u32>,
        rng: &mut Rng,
        now: u64,
    ) -> (Option<u32>, u32) {
        let more = rng.chance(70);
        let _owner = prev.map(|i| self.owner[i as usize].lock().expect("nobody panics with it"));
        let mut core = self.core.lock().expect("nobody panics with it");
        core.drain();
        if let Some(item) = prev {
            match core.item(item).state {
                SERVICE => {
                    if more {
                        core.stay(item, unit);
                    }
                    core.settle(item, rng.below(2 * Q), more, now);
                }
                QUEUED if !more => core.remove(item),
                IDLE if more => {
                    core.stay(item, unit);
                    core.wake(item, now);
                }
                _ => {}
            }
        }
        let next = core.pick(unit, now);
        if let Some(item) = next {
            core.stayed(item);
        }
        drop(core);
        let mut quiet = 0;
        if let Some(item) = prev
            && more
            && next != prev
        {
            quiet = u32::from(self.free.post_all(item));
            if quiet == 0 {
                let mut core = self.core.lock().expect("nobody panics with it");
                core.drain();
                core.item_units(item, None);
            }
        }
        (next, quiet)
    }

    /// One unit's life; answers how many of its events needed no lock.
    fn unit(&self, unit: u32, seed: u64) -> [u32; 2] {
        let mut rng = Rng::new(seed + u64::from(unit));
        let (mut prev, mut now, mut quiet) = (None, 0, [0; 2]);
        for _ in 0..30_000 {
            now += rng.below(Q);
            let item = u32::try_from(rng.index(ITEMS)).expect("few");
            match rng.below(10) {
                0..=3 => quiet[0] += self.enqueue(item, rng.chance(50), now),
                4..=8 => {
                    let (next, posts) = self.dispatch(unit, prev, &mut rng, now);
                    prev = next;
                    quiet[1] += posts;
                }
                _ => {
                    let to = *rng.pick(&self.queues);
                    let mut core = self.core.lock().expect("nobody panics with it");
                    core.drain();
                    core.item_move(item, to, Q / 3, now);
                    core.item_reweight(item, u32::try_from(rng.range(100, 5000)).expect("small"));
                }
            }
        }
        quiet
    }
}

#[test]
fn owners_need_no_lock() {
    let seed = std::env::var("RESERV_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let (mut core, queues) = tree(UNITS);
    for i in 0..ITEMS {
        core.item_new(queues[i % queues.len()], ONE, 0).expect("room");
    }
    let free = core.owner();
    let owner = (0..ITEMS).map(|_| Mutex::new(())).collect();
    let machine = Machine { core: Mutex::new(core), free, queues, owner };
    let quiet = thread::scope(|s| {
        let units: Vec<_> = (0..UNITS)
            .map(|u| (u, &machine))
            .map(|(u, m)| s.spawn(move || m.unit(u, seed)))
            .collect();
        units
            .into_iter()
            .map(|u| u.join().expect("no panic"))
            .fold([0; 2], |a, b| [a[0] + b[0], a[1] + b[1]])
    });
    let mut core = machine.core.into_inner().expect("nobody panicked with it");
    core.drain();
    assert_eq!((core.tree().poison, core.tree().poison_line), (0, 0));
    assert_eq!(core.check(), Ok(()));
    assert!(quiet[0] > 1000 && quiet[1] > 1000, "{quiet:?} without the lock");
}

/// While one unit picks, and ends steps, an owner never sees the items idle: none of them is,
/// before or after.
#[test]
fn nothing_looks_idle_for_a_moment() {
    let (mut core, queues) = tree(2);
    for _ in 0..2 {
        let item = core.item_new(queues[1], ONE, 0).expect("room");
        core.wake(item, 0);
    }
    let free = core.owner();
    let done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let looks = thread::scope(|s| {
        let watch = s.spawn(|| {
            let mut looks = 0_u64;
            while !done.load(order) {
                for item in [0, 1] {
                    let state = free.state(item);
                    assert_ne!(state, IDLE, "after {looks} looks");
                    looks += 1;
                }
            }
            looks
        });
        for now in 0..300_000 {
            let item = core.pick(0, now).expect("two wait");
            core.item_move(item, queues[1 + usize::from(now % 4 < 2)], 1, now);
            core.settle(item, Q, true, now);
            core.item_move(item, queues[1], 0, now);
        }
        done.store(true, order);
        watch.join()
    });
    assert!(looks.expect("never idle") > 10_000);
    assert_eq!(core.check(), Ok(()));
}

/// The ejection that was seen: an item was posted in a moment in which it looked idle, and was in
/// service when the event had ended.
#[test]
fn an_item_that_is_posted_in_service_is_found() {
    let (mut core, queues) = tree(2);
    let item = core.item_new(queues[1], ONE, 0).expect("room");
    core.wake(item, 0);
    assert_eq!(core.pick(1, 0), Some(item));
    assert!(core.owner().post(item, 0));
    core.drain();
    core.settle(item, Q, true, Q);
    assert_eq!(core.tree().poison, POISON_STATE);
}
