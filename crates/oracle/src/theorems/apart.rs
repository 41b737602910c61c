// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several units, some of which some children may not use (sched/ahead.c): shares are those of
//! constrained max-min fairness.

use num_traits::ToPrimitive;

use crate::constrained;
use crate::core::Q0;

use super::{Build, Habit, Machine, ONE, Q, ROOT, Rng, real};

const QUANTA: u64 = 4000;
/// Of what a child should have, the mean over a tree's children: what units that are not in step
/// lend each other, and those whose own rate is hardly more than that of virtual time.
const OFF: f64 = 0.15;
/// What each has of what it would have on the unit with most to do.
const LEAST: f64 = 0.93;

/// Threads that always want a unit, bound to units of a few kinds, so that some units have more to
/// do than others: queues of one thread each, or the threads of one queue.
pub(super) fn smp_apart(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xa9a);
    let units = 2 + r.below(3);
    let all = (1 << units) - 1;
    let count = 3 * units + r.below(3 * units);
    let of: Vec<constrained::Child> = (0..count)
        .map(|_| {
            let mask = match (seed / 2 % 2, r.below(10)) {
                // Units of different rates, each with children of its own.
                (0, 0..6) => 1,
                (0, 6..9) => 1 << 1,
                (0, _) => 1 << (units - 1).min(2),
                (_, 0..2) => all,
                // The first units have more of these.
                (_, 2..6) => {
                    let few = 1 + r.below(units);
                    1 << r.below(few)
                }
                _ => 1 + r.below(all),
            };
            (1 + u32::try_from(r.below(10)).expect("small"), mask)
        })
        .collect();
    let units = u32::try_from(units).expect("small");
    let (want, rates) = constrained::shares(units, &of);
    let mut m = Machine::new(build, units, Q, seed);
    let threads: Vec<usize> = of
        .iter()
        .map(|&(weight, mask)| {
            let weight = weight * ONE;
            if seed.is_multiple_of(2) {
                let queue = m.queue(ROOT, weight);
                m.thread(queue, Habit::Hog, Some(mask))
            } else {
                m.weighed(Q0, weight, Habit::Hog, Some(mask))
            }
        })
        .collect();
    m.run(2000 * Q);
    let before: Vec<u64> = threads.iter().map(|&t| m.served(t)).collect();
    m.run(QUANTA * Q);
    let rate = rates.first().and_then(ToPrimitive::to_f64);
    let mut off = 0.0;
    for (((&thread, before), want), (weight, mask)) in
        threads.iter().zip(before).zip(&want).zip(&of)
    {
        let got = real(m.served(thread) - before) / real(QUANTA * Q);
        let want = want.to_f64().expect("small");
        // A step more or less at either end.
        off += ((got - want).abs() - 2.0 / real(QUANTA)).max(0.0) / want;
        let least = rate.map_or(0.0, |rate| (rate * f64::from(*weight)).min(1.0));
        if got + 2.0 / real(QUANTA) < LEAST * least {
            return Err(format!(
                "P={units}: weight {weight} on {mask:b} had {got:.4}, {least:.4} at the least"
            ));
        }
    }
    off /= real(count);
    if off > OFF {
        return Err(format!("P={units}: shares are {off:.3} off; {of:?}"));
    }
    m.core.check()
}

/// Some threads are bound to unit 0, two to unit 2. On unit 1 are some that always want it, one
/// that sleeps at times, and later one that has just come: to sleep gives nobody more of it, and
/// who comes late has as much as the others.
pub(super) fn smp_apart_newcomers(build: Build, seed: u64) -> Result<(), String> {
    const COMES: u64 = 3000;
    let mut r = Rng::new(seed ^ 0x57e);
    let mut m = Machine::new(build, 3, Q, seed);
    let queues = seed.is_multiple_of(2);
    let thread = |m: &mut Machine, habit, unit: u32| {
        let queue = if queues { m.queue(ROOT, ONE) } else { Q0 };
        m.thread(queue, habit, Some(1 << unit))
    };
    let more = r.below(4);
    let crowd = r.range(3 * (more + 2), 20);
    for (unit, count) in [(0, crowd), (1, more), (2, 2)] {
        for _ in 0..count {
            thread(&mut m, Habit::Hog, unit);
        }
    }
    let hog = thread(&mut m, Habit::Hog, 1);
    let (run, sleep) = *r.pick(&[
        (Q / 10, Q / 1000),
        (Q - 1000, 10),
        (3 * Q / 2, Q / 100),
        (Q / 2, Q),
        (7 * Q, Q / 10),
        (300 * Q, 300 * Q),
    ]);
    let sleeper = thread(&mut m, Habit::Sleeper { run, sleep }, 1);
    m.run(COMES * Q);
    let [had, other] = [hog, sleeper].map(|t| real(m.served(t)));
    if other > 1.05 * had + real(8 * Q) {
        return Err(format!("who runs for {run} and sleeps for {sleep} had {other}, a hog {had}"));
    }
    let newcomer = thread(&mut m, Habit::Hog, 1);
    let before = m.served(hog);
    m.run(COMES * Q);
    let [had, came] = [m.served(hog) - before, m.served(newcomer)].map(real);
    if (came - had).abs() > 0.05 * had + real(8 * Q) {
        return Err(format!("who came late had {came}, a hog {had}"));
    }
    let waits = m.worst_wait(hog) / Q;
    if waits > 6 * (more + 3) {
        return Err(format!("{run}, {sleep}: a hog waits for {waits} quanta beside {}", more + 2));
    }
    m.core.check()
}
