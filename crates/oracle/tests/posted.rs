// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-ups without the lock: posts that are drained before the next event are the same as
//! wake-ups, whatever is woken; and whether a wake-up may displace who runs is known before it.

use reserv_oracle::core::{
    BACKGROUND, BATCH, Core, FIFO, IDLE, Id, ONE, Op, Q0, QUEUE, QUEUED, ROOT, RR, SCHED, SFQ,
    Setup, TS, id,
};
use reserv_oracle::rng::Rng;

const Q: u64 = 4_000_000;

fn tree(units: u32) -> (Core, Vec<Id>) {
    let mut core = Core::new(Setup { units, ..Setup::default() });
    let inner = id(2, 1);
    core.must(0, Op::Create { node: inner, parent: ROOT, kind: SCHED, alg: 0 });
    core.must(0, Op::Reweight { node: inner, weight: 3 * ONE });
    let mut queues = vec![Q0];
    for (index, (parent, class)) in
        (3..).zip([(inner, TS), (inner, SFQ), (ROOT, RR), (inner, FIFO), (ROOT, TS)])
    {
        let node = id(index, 1);
        core.must(0, Op::Create { node, parent, kind: QUEUE, alg: class });
        core.must(0, Op::Reweight { node, weight: index * ONE });
        queues.push(node);
    }
    (core, queues)
}

/// The first posted is the first in a queue where all else is equal.
#[test]
fn posts_keep_their_order() {
    let (mut core, queues) = tree(1);
    let items: Vec<u32> = (0..5).map(|_| core.item_new(queues[3], ONE, 0).expect("room")).collect();
    for i in &items {
        assert!(core.post(*i, 7), "nobody else posts");
    }
    core.drain();
    assert_eq!(core.check(), Ok(()));
    for i in &items {
        assert_eq!(core.pick(0, 7), Some(*i));
        core.settle(*i, Q, false, 7);
    }
}

/// Who posts reads the clock without the lock: what comes after it may have read it before.
#[test]
fn ages_are_in_order_when_clocks_are_not() {
    let (mut core, queues) = tree(2);
    let items: Vec<u32> = (0..4).map(|_| core.item_new(queues[3], ONE, 0).expect("room")).collect();
    assert!(core.post(items[0], 100));
    assert!(core.post(items[1], 70));
    core.drain();
    core.wake(items[2], 90);
    core.wake(items[3], 101);
    assert_eq!(core.check(), Ok(()));
    let ages: Vec<u64> = items.iter().map(|i| core.item(*i).queued_at).collect();
    assert_eq!(ages, [100, 100, 100, 101]);
}

/// The same random events on two trees: one wakes, the other posts and drains.
fn the_same(seed: u64, units: u32) {
    let ((mut woken, queues), (mut posted, _)) = (tree(units), tree(units));
    let mut rng = Rng::new(seed);
    let mut items = Vec::new();
    for _ in 0..24 {
        let queue = *rng.pick(&queues);
        let flags = *rng.pick(&[0, 0, 0, BATCH, BACKGROUND]);
        let weight = u32::try_from(rng.range(1, 5000)).expect("small");
        let item = woken.item_new(queue, weight, flags).expect("room");
        assert_eq!(posted.item_new(queue, weight, flags), Some(item));
        items.push(item);
    }
    let mut serving: Vec<Option<(u32, u64)>> = vec![None; units as usize];
    let (mut now, mut displaced, mut posts) = (0, 0_u32, 0_u32);
    for _ in 0..6000 {
        now += rng.below(Q);
        let unit = rng.index(units as usize);
        if rng.chance(60) {
            // A run of wake-ups.
            for _ in 0..rng.range(1, 6) {
                let item = *rng.pick(&items);
                if woken.item(item).state != IDLE {
                    continue;
                }
                // The other tree's state is read without what is posted, as in the kernel: exact
                // where nothing is.
                let quiet = serving[unit].map(|(cur, since)| {
                    (cur, now - since, woken.wakes_quietly(item, cur, now - since))
                });
                woken.wake(item, now);
                if let Some((cur, ran, quiet)) = quiet {
                    assert_eq!(
                        quiet,
                        !woken.preempts(item, cur, ran),
                        "seed {seed}: {item} beside {cur} after {ran}"
                    );
                    displaced += u32::from(!quiet);
                }
                assert!(posted.post(item, now));
                posts += 1;
            }
            continue;
        }
        posted.drain();
        let unit_number = u32::try_from(unit).expect("few");
        if let Some((cur, since)) = serving[unit].take() {
            let more = rng.chance(50);
            for core in [&mut woken, &mut posted] {
                core.settle(cur, now - since, more, now);
            }
        } else if rng.chance(20)
            && let Some(item) = items.iter().copied().find(|i| woken.item(*i).state == QUEUED)
        {
            for core in [&mut woken, &mut posted] {
                core.remove(item);
            }
        }
        let picked = woken.pick(unit_number, now);
        assert_eq!(posted.pick(unit_number, now), picked, "seed {seed}");
        serving[unit] = picked.map(|item| (item, now));
        assert_eq!(posted.nodes(), woken.nodes(), "seed {seed}");
        for item in &items {
            assert_eq!(posted.item(*item), woken.item(*item), "seed {seed}");
        }
    }
    posted.drain();
    assert_eq!(posted.check(), Ok(()));
    assert!(posts > 1000, "{posts} posts");
    assert!(units > 1 || displaced > 0, "{displaced} would displace");
}

#[test]
fn posts_are_wake_ups() {
    let first = std::env::var("RESERV_SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.map_or(0..40, |seed: u64| seed..seed + 1) {
        the_same(seed, 1);
        the_same(seed, 3);
    }
}

/// So that no drain is long: whoever finds 128 on the list takes the lock, drains them, and may be
/// posted again.
#[test]
fn the_list_has_a_bound() {
    let mut core = Core::new(Setup { items: 200, ..Setup::default() });
    let items: Vec<u32> = (0..200).map(|_| core.item_new(Q0, ONE, 0).expect("room")).collect();
    let posted = items.iter().take_while(|i| core.post(**i, 0)).count();
    assert_eq!(posted, 128);
    assert_eq!(core.item(items[128]).state, IDLE, "who was not posted is as before");
    core.drain();
    assert_eq!(core.check(), Ok(()));
    assert!(items[..128].iter().all(|i| core.item(*i).state == QUEUED));
    assert!(core.post(items[128], 0));
}
