// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whom a unit may serve is looked for among those that it may not (`sched/far.c`): so many in a
//! section, and the unit's next choices go on.

use reserv_oracle::core::{
    Core, FIFO, IDLE, Id, ONE, Op, QUEUE, QUEUED, ROOT, RR, SERVICE, Setup, TS, id,
};
use reserv_oracle::rng::Rng;

const MS: u64 = 1_000_000;
/// `RS_LOOKED_MAX`, and `RS_LOOKED_LEAST` for each level below the root of these trees.
const LOOKED: u32 = 2048;
const MOST: u32 = LOOKED + 2 * 128;

fn only(unit: u32) -> Option<[u64; 4]> {
    Some([1 << unit, 0, 0, 0])
}

fn queue(core: &mut Core, index: u32, alg: u32) -> Id {
    let node = id(index, 1);
    core.must(0, Op::Create { node, parent: ROOT, kind: QUEUE, alg });
    core.must(0, Op::Reweight { node, weight: ONE });
    node
}

/// So many new items of a queue for this unit, awake.
fn items(core: &mut Core, queue: Id, many: u32, unit: u32) -> Vec<u32> {
    (0..many)
        .map(|_| {
            let item = core.item_new(queue, ONE, 0).expect("room");
            core.item_units(item, only(unit));
            core.wake(item, 0);
            item
        })
        .collect()
}

/// What unit 0 is answered in the end, and how often it was to ask again before.
fn asked(core: &mut Core, now: u64, mut between: impl FnMut(&mut Core)) -> (Option<u32>, u32) {
    for again in 0..100 {
        let got = core.pick(0, now);
        assert!(core.tree().looked <= MOST, "{} entries in a section", core.tree().looked);
        if got.is_some() || core.tree().next_ns != now {
            return (got, again);
        }
        between(core);
    }
    panic!("it is to ask for ever");
}

fn two(items: u32) -> Core {
    Core::new(Setup { nodes: 16384, items, units: 2, ..Setup::default() })
}

/// The example of far.c.
#[test]
fn many_of_another_unit_are_passed_in_pieces() {
    let mut core = two(20_000);
    let q = queue(&mut core, 2, TS);
    items(&mut core, q, 16_384 - 3, 1);
    let here = items(&mut core, q, 3, 0);
    // By their tags the last one is first from now on.
    for (item, work) in here.iter().zip([3 * MS, 2 * MS, MS]) {
        assert_eq!(asked(&mut core, 1, |_| ()), (Some(*item), 8));
        core.settle(*item, work, true, 1);
    }
    core.check().expect("a sound tree");
    for step in 0..20 {
        // They are served by their tags, as they would be if nobody else waited.
        let first = here.iter().min_by_key(|&&item| core.item(item).tag).copied();
        assert_eq!(asked(&mut core, 10 + step, |_| ()), (first, 8));
        core.settle(first.expect("one"), MS + step * 1000, true, 10 + step);
    }
    core.check().expect("a sound tree");
    for item in here {
        core.remove(item);
    }
    assert_eq!(asked(&mut core, 99, |_| ()), (None, 7), "nobody is left for it");
    assert_eq!(asked(&mut core, 99, |_| ()), (None, 0), "which it knows from then on");
    core.check().expect("a sound tree");
}

/// As many as a choice looks at are no search: the first of them is found at once.
#[test]
fn so_many_are_passed_at_once() {
    for (many, again) in [(LOOKED - 1, 0), (LOOKED, 1)] {
        let mut core = two(8192);
        let q = queue(&mut core, 2, FIFO);
        items(&mut core, q, many, 1);
        let last = items(&mut core, q, 1, 0)[0];
        assert_eq!(asked(&mut core, 5, |_| ()), (Some(last), again));
        core.check().expect("a sound tree");
    }
}

/// The sum of several queues has the same bound, and the children of a scheduler have it.
#[test]
fn all_queues_and_children_together_have_one_bound() {
    let mut core = two(32_768);
    for index in 0..4 {
        let q = queue(&mut core, 2 + index, TS);
        items(&mut core, q, 4000, 1);
        // It leaves a mask behind that promises too much.
        let gone = items(&mut core, q, 1, 0)[0];
        core.remove(gone);
    }
    let (got, again) = asked(&mut core, 5, |_| ());
    assert!(got.is_none() && (7..=8).contains(&again), "two pieces each: {again}");
    core.check().expect("a sound tree");

    // Many children are served in the order in which few are.
    let order = |many: u32| {
        let mut core = two(16_384);
        for index in 0..many {
            let q = queue(&mut core, 2 + index, TS);
            items(&mut core, q, 1, 1);
        }
        let q = [0, 1].map(|k| queue(&mut core, 2 + many + k, TS));
        let both = q.map(|q| items(&mut core, q, 1, 0)[0]);
        core.must(0, Op::Reweight { node: q[1], weight: 2 * ONE });
        let served: Vec<bool> = (0..30)
            .map(|step| {
                let (got, again) = asked(&mut core, 10 + step, |_| ());
                assert!(again <= many / LOOKED, "{again} pieces of {many} children");
                let got = got.expect("two wait");
                core.settle(got, MS, true, 10 + step);
                got == both[1]
            })
            .collect();
        served
    };
    assert_eq!(order(10_000), order(100));
}

/// Whoever changes his affinity while he is looked for keeps nobody else waiting.
#[test]
fn who_changes_affinity_keeps_nobody_waiting() {
    // One may run here from one section to the next; or is seen by none of them.
    for seen in [true, false] {
        let mut core = two(20_000);
        let [a, b] = [2, 3].map(|index| queue(&mut core, index, TS));
        let there = items(&mut core, a, 9000, 1);
        let other = items(&mut core, b, 1, 0)[0];
        let mut of = [0, 0];
        for step in 0..200 {
            let now = 10 + step;
            let mut turn = 3000 + 37 * usize::try_from(step).expect("small");
            let mut flips = |core: &mut Core| {
                core.item_units(there[turn % 9000], only(1));
                turn += 4001;
                core.item_units(there[turn % 9000], only(0));
                if !seen {
                    core.item_units(there[turn % 9000], only(1));
                }
            };
            flips(&mut core);
            let (got, again) = asked(&mut core, now, &mut flips);
            assert!(again <= 6, "{again} pieces");
            let got = got.expect("one is always for it");
            of[usize::from(got == other)] += 1;
            core.settle(got, MS, true, now);
            core.item_units(there[turn % 9000], only(1));
            if got != other {
                core.item_units(got, only(1));
            }
        }
        assert_eq!(of[0] > 0, seen, "{of:?}");
        assert!(of[1] >= 90, "{of:?}");
        core.check().expect("a sound tree");
    }
}

/// Those at whom the search has stopped go away: it goes on behind them.
#[test]
fn who_is_next_and_goes_leaves_the_place() {
    let mut core = two(20_000);
    let q = queue(&mut core, 2, TS);
    let there = items(&mut core, q, 10_000, 1);
    let here = items(&mut core, q, 1, 0)[0];
    let stopped = LOOKED as usize;
    let mut times = 0;
    let found = asked(&mut core, 5, |core| {
        times += 1;
        if times == 1 {
            for item in &there[stopped - 5..stopped + 5] {
                core.remove(*item);
            }
            core.check().expect("a sound tree");
        }
    });
    assert_eq!(found, (Some(here), 4));
}

/// Whom the search has found is gone at its end.
#[test]
fn who_was_found_and_goes_is_not_missed() {
    let mut core = two(20_000);
    let q = queue(&mut core, 2, TS);
    // By age they are among the first, by their tags the last.
    items(&mut core, q, 1, 1);
    let here = items(&mut core, q, 2, 0);
    for item in &here {
        assert_eq!(core.pick(0, 1), Some(*item));
        core.settle(*item, MS, true, 1);
    }
    items(&mut core, q, 10_000, 1);
    // The first of the two is found in the first piece, and removed after it: none is behind.
    let mut times = 0;
    let (got, again) = asked(&mut core, 5, |core| {
        times += 1;
        if times == 1 {
            core.remove(here[0]);
            core.remove(here[1]);
            core.wake(here[1], 4);
            core.remove(here[1]);
        } else if times == 2 {
            core.check().expect("a sound tree");
            core.item_units(here[0], only(0));
        }
    });
    assert_eq!((got, again), (None, 5), "all are looked at twice");
    core.wake(here[0], 6);
    core.wake(here[1], 6);
    // A cap holds the queue back while it is looked through.
    let b = queue(&mut core, 3, TS);
    let other = items(&mut core, b, 1, 0)[0];
    assert_eq!(core.pick(0, 7), None);
    assert_eq!(core.tree().next_ns, 7);
    core.must(8, Op::Cap { node: q, ppm: 1000, burst: 1000 });
    let one = core.pick(1, 8).expect("those of the other unit");
    core.settle(one, 100 * MS, true, 9);
    assert_eq!(core.pick(0, 10), Some(other), "the other queue has its turn");
    core.check().expect("a sound tree");
}

/// Everything at once: whoever waits for unit 0 is found, and nobody else.
#[test]
fn whatever_happens_between_two_pieces() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut r = Rng::new(seed);
        let mut core = two(20_000);
        let queues: Vec<Id> = (2..5).map(|index| queue(&mut core, index, TS)).collect();
        let mut all = Vec::new();
        for &q in &queues {
            all.extend(items(&mut core, q, 4500, 1));
        }
        let mut running = [None; 2];
        let mut allows = vec![0b10; all.len()];
        for step in 0..3000_u64 {
            let now = 10 + step * 1000;
            let which = r.index(all.len());
            let item = all[which];
            let state = core.item(item).state;
            match r.range(0, 9) {
                0 if state == QUEUED => core.remove(item),
                1 | 2 if state == IDLE => core.wake(item, now),
                3 => _ = core.item_move(item, *r.pick(&queues), 0, now),
                4..=6 if state != SERVICE => {
                    allows[which] = r.range(1, 3);
                    core.item_units(item, Some([allows[which], 0, 0, 0]));
                }
                7 if state != SERVICE => {
                    allows[which] = 0b11;
                    core.item_units(item, None);
                }
                _ => {
                    let unit = u32::from(r.chance(30));
                    if let Some(item) = running[unit as usize].take() {
                        core.settle(item, r.range(1, 4 * MS), r.chance(80), now);
                    }
                    let got = core.pick(unit, now);
                    running[unit as usize] = got;
                    assert!(core.tree().looked <= MOST, "{}", core.tree().looked);
                    if got.is_none() && core.tree().next_ns != now {
                        let waits = all.iter().zip(&allows).find(|&(&item, allows)| {
                            core.item(item).state == QUEUED && allows >> unit & 1 == 1
                        });
                        assert_eq!(waits, None, "step {step}, unit {unit}");
                    }
                }
            }
            if step % 100 == 0 {
                assert_eq!(core.check(), Ok(()), "step {step}");
            }
        }
    }
}

/// Who was chosen for a unit that it may not use after all has waited as long as before, and has
/// its place among equals.
#[test]
fn who_was_chosen_in_vain_waits_on() {
    const S: u64 = 1000 * MS;
    for others in [2, 200] {
        let mut core = two(1000);
        core.set(4 * MS, 10 * S, 100 * MS);
        let q = queue(&mut core, 2, RR);
        let waiting: Vec<u32> = (0..=others)
            .map(|k| {
                let item = core.item_new(q, ONE, 0).expect("room");
                core.wake(item, k);
                item
            })
            .collect();
        let first = core.pick(0, 9 * S).expect("all wait");
        assert_eq!(first, waiting[0]);
        // Meanwhile its neighbour by age is served elsewhere.
        let second = core.pick(1, 9 * S).expect("all but one");
        core.misfit(first, [2, 0, 0, 0], 9 * S);
        assert_eq!(core.item(first).queued_at, 0);
        core.check().expect("a sound tree");
        core.misfit(second, [1, 0, 0, 0], 9 * S);
        assert_eq!(core.item(second).queued_at, 1);
        core.check().expect("a sound tree");
        // Their turns come as they would have: each on the unit that it may use.
        let turns = [0, 1].map(|unit| core.pick(unit, 9 * S + 1).expect("they wait"));
        assert_eq!(turns, [second, first]);
        core.settle(second, MS, true, 9 * S + 2);
        core.settle(first, 0, true, 9 * S + 2);
        assert_eq!(core.item(first).queued_at, 9 * S + 2, "a step that ended is another thing");
        // One that has waited for too long is chosen for that, and again where that was in vain.
        let late = core.pick(0, 11 * S).expect("they wait");
        assert_eq!((late, core.tree().starved), (waiting[2], 1));
        core.misfit(late, [2, 0, 0, 0], 11 * S);
        assert_eq!(core.pick(1, 22 * S), Some(late));
        assert_eq!(core.tree().starved, 2);
        core.check().expect("a sound tree");
    }
}
