// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several units: a thread goes back to the unit that it left, within a stated bound
//! (`rs_queue_near` of sched/tree.c).

use reserv_oracle::core::{APART, Build, Core, Q0, ROOT, Setup};
use reserv_oracle::smp::{Habit, Machine};

const Q: u64 = 4_000_000;

/// Two units and three items of q0 that wait: `far` was last on unit 1, the two others on unit 0.
fn waiting(near: u32) -> (Core, u32, [u32; 2]) {
    let mut core = Core::new(Setup { units: 2, quantum: Q, ..Setup::default() });
    core.near(near);
    let [far, a, b] = [(); 3].map(|()| core.item_new(Q0, 1000, 0).expect("room"));
    core.wake(far, 1);
    assert_eq!(core.pick(1, 2), Some(far));
    for item in [a, b] {
        core.wake(item, 3);
        assert_eq!(core.pick(0, 4), Some(item));
        core.settle(item, 2000, false, 5);
    }
    core.settle(far, 1000, true, 6);
    core.wake(a, 7);
    core.wake(b, 8);
    (core, far, [a, b])
}

/// How many others unit 0 serves, for `work` each, until it serves `far`, which is first.
fn passed_over(near: u32, work: u64) -> u32 {
    let (mut core, far, near_ones) = waiting(near);
    for count in 0..1000 {
        let now = 100 + u64::from(count) * Q;
        let item = core.pick(0, now).expect("somebody waits");
        if item == far {
            core.check().expect("a sound tree");
            return count;
        }
        assert!(near_ones.contains(&item));
        core.settle(item, work, true, now + work);
    }
    1000
}

#[test]
fn who_is_first_is_passed_over_so_often_and_no_more() {
    assert_eq!(passed_over(0, 10), 0, "0 is the order of the tags alone");
    for near in [1, 4, 9] {
        assert_eq!(passed_over(near, 10), 2 * near, "so often for each of two units");
    }
}

#[test]
fn nobody_gets_more_than_a_step_before_its_turn() {
    // Each of the two others has one step; by its tag it is a step ahead then.
    assert!(passed_over(1000, Q + 10_000) <= 2);
}

/// Three queues of weights 1, 2 and 5 with four busy threads each, on four units.
fn busy(near: u32) -> (Machine, Vec<u64>) {
    let mut m = Machine::new(Build::Real, 4, Q, 7);
    m.core.near(near);
    let queues: Vec<_> = [1, 2, 5].into_iter().map(|w| m.queue(ROOT, w * 100_000)).collect();
    for &queue in &queues {
        for _ in 0..4 {
            m.thread(queue, Habit::Hog, None);
        }
    }
    m.run(200 * Q);
    let before: Vec<u64> = queues.iter().map(|&q| m.service(q)).collect();
    m.run(4000 * Q);
    let ideal = m.ideal();
    for (queue, before) in queues.iter().zip(before) {
        #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
        let got = (m.service(*queue) - before) as f64 / (4000 * Q) as f64;
        assert!((got - ideal[queue]).abs() < 0.01 * ideal[queue], "{got} of {}", ideal[queue]);
    }
    let threads = (0..12).map(|t| m.served(t)).collect();
    (m, threads)
}

#[test]
fn threads_stay_and_shares_are_what_they_were() {
    let (free, _) = busy(0);
    let (near, served) = busy(4);
    assert_eq!((free.wasted, near.wasted), (0, 0), "no unit idles while a thread waits");
    assert!(
        2 * near.cost.moved < free.cost.moved,
        "{} moves, {} without",
        near.cost.moved,
        free.cost.moved
    );
    for queue in served.chunks(4) {
        let (least, most) = (queue.iter().min().expect("four"), queue.iter().max().expect("four"));
        assert!(most - least <= 8 * Q, "threads of one queue had {least} to {most}");
    }
}

#[test]
fn sleepers_leave_no_unit_idle_beside_who_waits() {
    for seed in 0..20 {
        let mut m = Machine::new(Build::Real, 3, Q, seed);
        m.core.near(4);
        let queue = m.queue(ROOT, 100_000);
        for _ in 0..7 {
            m.thread(queue, Habit::Sleeper { run: Q, sleep: Q }, None);
        }
        m.run(2000 * Q);
        assert_eq!(m.wasted, 0);
        m.core.check().expect("a sound tree");
    }
}

#[test]
fn who_goes_on_in_anothers_step_is_charged_for_it() {
    let mut core = Core::new(Setup { units: 4, quantum: Q, ..Setup::default() });
    let [host, guest, other] = [(); 3].map(|()| core.item_new(Q0, 1000, 0).expect("room"));
    core.wake(host, 1);
    assert_eq!(core.pick(0, 2), Some(host));
    core.wake(other, 3);
    core.lend(host, guest, 3_000_000);
    core.settle(host, 4_000_000, true, Q);
    let served = [host, guest, other].map(|item| core.item(item).service);
    assert_eq!(served, [1_000_000, 3_000_000, 0]);
    assert_eq!(core.node(Q0).service, 4_000_000, "the queue had one step");
    // By their tags: who did nothing yet, the host, and the guest when it wakes.
    core.wake(guest, Q + 1);
    let order: Vec<_> = (0..3).map(|unit| core.pick(unit, Q + 2)).collect();
    assert_eq!(order, [Some(other), Some(host), Some(guest)]);
    core.check().expect("a sound tree");
    // The next step is the host's alone.
    core.settle(host, 500, false, Q + 3);
    assert_eq!(core.item(host).service, 1_000_500);
}

/// In q0, on so many units: `cur` is in service on unit 0, `sleeper` has slept for long, and
/// `other`, which goes before the sleeper, waits or not.
fn displacing(units: u32, other_waits: bool, everywhere: bool) -> (Core, u32, u32) {
    let mut core = Core::new(Setup { units, quantum: Q, ..Setup::default() });
    let [cur, sleeper, other] = [(); 3].map(|()| core.item_new(Q0, 1000, 0).expect("room"));
    if !everywhere {
        core.item_units(other, Some([2, 0, 0, 0]));
    }
    // Two sleep after a short step, and virtual time goes on by the third alone.
    for (at, item) in [(1, sleeper), (2, cur)] {
        core.wake(item, at);
    }
    core.wake(other, 3);
    for step in 0..8 {
        let unit = u32::from(!everywhere && step == 2);
        let now = 10 + step * Q;
        let item = core.pick(unit, now).expect("somebody waits");
        let work = if item == cur { Q } else { 1000 };
        core.settle(item, work, item == cur, now + work);
    }
    let now = 10 * Q;
    assert_eq!(core.pick(0, now), Some(cur));
    if other_waits {
        core.wake(other, now);
    }
    core.wake(sleeper, now + 1);
    core.check().expect("a sound tree");
    (core, sleeper, cur)
}

#[test]
fn who_has_just_begun_is_left_alone_on_several_units() {
    for (units, least) in [(1, 1), (2, 1_000_000), (4, 1_000_000)] {
        let (mut core, sleeper, cur) = displacing(units, false, true);
        assert!(core.preempts(sleeper, cur, least), "{units} units: after {least}");
        assert_eq!(core.preempts(sleeper, cur, least - 1), units == 1, "{units} units: before");
        core.remove(sleeper);
        assert_eq!(
            core.wakes_quietly(sleeper, cur, least - 1),
            units > 1,
            "the same without the lock"
        );
        assert!(!core.wakes_quietly(sleeper, cur, least));
    }
}

#[test]
fn nobody_is_displaced_for_who_would_not_be_served_then() {
    let (mut core, sleeper, cur) = displacing(2, true, true);
    assert!(!core.preempts(sleeper, cur, 3_000_000), "another goes before it");
    core.remove(sleeper);
    assert!(core.wakes_quietly(sleeper, cur, 3_000_000), "the same without the lock");
    // Where it is not known whether the other may be served on that unit, the class decides.
    let (core, sleeper, cur) = displacing(2, true, false);
    assert!(core.preempts(sleeper, cur, 3_000_000));
    // And on one unit the order is what it was.
    let (core, sleeper, cur) = displacing(1, true, true);
    assert!(core.preempts(sleeper, cur, 3_000_000));
}

/// Of so many units the last, for which one item waits behind one for each of the others, is free.
/// Whether it serves that one, before whose turn it is.
fn oldest_of_the_last(units: u32, flags: u32) -> bool {
    let mut core = Core::new(Setup { units, items: 1024, quantum: Q, ..Setup::default() });
    core.set(Q, 100 * Q, 0);
    let bound = |core: &mut Core, unit: u32| {
        let item = core.item_new(Q0, 1000, flags).expect("room");
        let mut mask = [0; 4];
        mask[unit as usize / 64] = 1 << (unit % 64);
        core.item_units(item, Some(mask));
        core.wake(item, u64::from(unit));
        item
    };
    // It has had a step, so that by its tag it is behind who comes later.
    let mine = bound(&mut core, units - 1);
    assert_eq!(core.pick(units - 1, 300), Some(mine));
    for unit in 0..units - 1 {
        bound(&mut core, unit);
    }
    core.settle(mine, Q, true, 500);
    let busy = core.item_new(Q0, 1000, 0).expect("room");
    core.wake(busy, 1000);
    // By their tags it is the turn of the busy one; by its age, of the one that no other unit may
    // serve.
    let got = core.pick(units - 1, 101 * Q).expect("somebody waits");
    core.check().expect("a sound tree");
    assert!(got == mine || got == busy);
    got == mine
}

#[test]
fn who_waited_too_long_is_found_behind_those_of_other_units() {
    for units in [2, 64] {
        assert!(oldest_of_the_last(units, 0), "{units} units");
    }
    assert!(oldest_of_the_last(200, APART), "a kernel's own threads, however many units");
    // A tenant can make such a list as long as he likes, and each pick looks at it.
    assert!(!oldest_of_the_last(200, 0), "users' threads: 64 are looked at");
}
