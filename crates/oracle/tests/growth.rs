// SPDX-License-Identifier: MIT OR Apache-2.0
//! How lag and traffic on the tree's lock grow with the number of units, in the model of `smp.rs`.
//! Prints the table of docs/notes/sched.md.

#![expect(clippy::cast_precision_loss, reason = "times and counts below 2^52")]

use std::fmt::Write as _;

use reserv_oracle::core::{Build, EEVDF, Id, Op, ROOT};
use reserv_oracle::smp::{Habit, Machine};

const Q: u64 = 4_000_000;

/// Lock sections of the real scheduler: a switch settles and picks in one, an idle unit that looks
/// takes one. A wake-up takes none, nor does a thread that waits again at the end of its step: they
/// are posted (docs/notes/cpu-full.md); each took one if they were not. The model counts every
/// settle, pick and wake-up.
fn sections(m: &Machine, not_posted: bool) -> u64 {
    let dispatches = m.cost.sections - m.cost.wakes - m.cost.switches;
    dispatches + if not_posted { m.cost.wakes + m.cost.requeued } else { 0 }
}

/// Eight queues with weights 1 to 8 that their threads can use; answers the largest distance, over
/// 2000 instants, of a queue's service from its share of the units, in quanta; and the largest
/// spread of two queues as a part of SFQ-7's bound.
fn lag(units: u32) -> (f64, f64) {
    let mut m = Machine::new(Build::Real, units, Q, 1);
    let weights = [1_u32, 2, 3, 4, 5, 6, 7, 8];
    let queues: Vec<Id> = weights.iter().map(|w| m.queue(ROOT, w * 1000)).collect();
    for q in &queues {
        for _ in 0..2 * units {
            m.thread(*q, Habit::Hog, None);
        }
    }
    m.run(200 * Q);
    let start: Vec<u64> = queues.iter().map(|q| m.service(*q)).collect();
    let begun = m.now;
    let (mut worst, mut spread) = (0.0_f64, 0.0_f64);
    for _ in 0..2000 {
        m.run(Q / 3);
        let total = (m.now - begun) as f64 * f64::from(units);
        let got: Vec<f64> =
            queues.iter().zip(&start).map(|(q, s)| (m.service(*q) - s) as f64).collect();
        for (i, (g, w)) in got.iter().zip(weights).enumerate() {
            worst = worst.max((g - total * f64::from(w) / 36.0).abs() / Q as f64);
            for (h, v) in got.iter().zip(weights).take(i) {
                let (w, v) = (f64::from(w), f64::from(v));
                let bound = f64::from(units + 1) * Q as f64 * (1.0 / w + 1.0 / v);
                spread = spread.max((g / w - h / v).abs() / bound);
            }
        }
    }
    (worst, spread)
}

/// Half of the threads sleep: sections of the lock a switch, and for each unit in a millisecond; as
/// it is, then if nothing were posted.
fn traffic(units: u32) -> [(f64, f64); 2] {
    let mut m = Machine::new(Build::Real, units, Q, 2);
    for w in 1..9 {
        let q = m.queue(ROOT, w * 1000);
        for _ in 0..units.div_ceil(4) {
            m.thread(q, Habit::Hog, None);
            m.thread(q, Habit::Sleeper { run: Q / 8, sleep: Q / 2 }, None);
        }
    }
    m.run(500 * Q);
    [false, true].map(|not_posted| {
        let all = sections(&m, not_posted) as f64;
        (all / m.cost.switches as f64, all / f64::from(units) / (500.0 * Q as f64 / 1e6))
    })
}

#[test]
fn lag_and_lock_by_units() {
    println!(
        "units  lag in quanta  of SFQ-7  sections a switch  a unit and ms  not posted: a switch  a unit and ms"
    );
    for units in [1, 2, 4, 8, 16, 32, 64] {
        let ((worst, spread), [(each, rate), (all_each, all_rate)]) = (lag(units), traffic(units));
        println!(
            "{units:>5}  {worst:>13.2}  {spread:>8.2}  {each:>17.3}  {rate:>13.3}  {all_each:>17.3}  {all_rate:>13.3}"
        );
        assert!(spread <= 1.0, "{units} units: SFQ-7 is missed: {spread}");
        assert!(each <= 1.0 + 1e-9 || units > 1, "one unit: {each} sections a switch");
        assert!(each <= 1.1, "{units} units: {each} sections a switch");
        assert!(all_each <= 2.1, "{units} units: {all_each} sections a switch, with wake-ups");
    }
}

/// Policy eevdf on several units: queues whose threads can use their weights have their shares, and
/// the readjusted ones where some cannot.
#[test]
fn eevdf_on_several_units() {
    // More threads than units, one in each queue.
    let many: Vec<(u32, u32)> = (1..=18).rev().map(|w| (w, 1)).collect();
    // (units, (weight, threads) of each queue)
    let cases: [(u32, &[(u32, u32)]); 15] = [
        (2, &[(8, 2), (2, 2), (1, 2), (1, 2)]),
        (4, &[(8, 4), (2, 4), (1, 4), (1, 4)]),
        (8, &[(8, 8), (2, 8), (1, 8), (1, 8)]),
        (2, &[(8, 1), (2, 2), (1, 2), (1, 2)]),
        (4, &[(8, 1), (2, 4), (1, 4), (1, 4)]),
        (8, &[(8, 1), (2, 8), (1, 8), (1, 8)]),
        (4, &[(10, 1), (1, 4), (1, 4)]),
        (4, &[(7, 1), (6, 1), (5, 1), (4, 4), (3, 4), (2, 4), (1, 4)]),
        (4, &[(1000, 1), (1000, 1), (3, 4), (1, 4)]),
        (4, &[(30, 1), (1, 4), (1, 4)]),
        (16, &many),
        (4, &[(5, 1), (4, 1), (3, 1), (2, 1), (1, 1)]),
        (2, &[(5, 1), (4, 1), (3, 1), (2, 1), (1, 1)]),
        (4, &[(10, 1), (1, 1), (1, 4)]),
        (2, &[(1_000_000, 1), (1, 2), (1, 2)]),
    ];
    for (units, queues) in cases {
        for quantum in [Q, Q / 4] {
            let mut m = Machine::new(Build::Real, units, quantum, 3);
            m.core.must(m.now, Op::Policy { node: ROOT, policy: EEVDF });
            let made: Vec<Id> = queues.iter().map(|(w, _)| m.queue(ROOT, w * 1000)).collect();
            for (q, (_, threads)) in made.iter().zip(queues) {
                for _ in 0..*threads {
                    m.thread(*q, Habit::Hog, None);
                }
            }
            m.run(200 * quantum);
            let start: Vec<u64> = made.iter().map(|q| m.service(*q)).collect();
            let time = 4000 * quantum;
            m.run(time);
            let ideal = m.ideal();
            let (mut worst, mut all) = (0.0_f64, String::new());
            for (q, s) in made.iter().zip(&start) {
                let got = (m.service(*q) - s) as f64;
                // Three steps are the ends of the interval.
                let off = ((got - ideal[q] * time as f64).abs() - 3.0 * quantum as f64).max(0.0);
                worst = worst.max(off / (ideal[q] * time as f64));
                let _ = write!(all, " {:.3} for {:.3}", got / time as f64, ideal[q]);
            }
            println!("eevdf, {units} units, {queues:?}: {:.2} % off:{all}", worst * 100.0);
            assert!(worst <= 0.01, "{units} units, {queues:?}: {worst}");
        }
    }
}

/// The load of tests/soak/full_infeasible, busy threads only, to compare its sections a switch with
/// the real scheduler's.
#[test]
fn sections_of_busy_threads() {
    let mut m = Machine::new(Build::Real, 4, Q, 4);
    for (weight, threads) in [(10, 1), (1, 4), (1, 4)] {
        let q = m.queue(ROOT, weight * 1000);
        for _ in 0..threads {
            m.thread(q, Habit::Hog, None);
        }
    }
    m.run(500 * Q);
    let [each, all] =
        [false, true].map(|not_posted| sections(&m, not_posted) as f64 / m.cost.switches as f64);
    println!("4 units, busy threads: {each:.3} sections a switch, {all:.3} if nothing were posted");
    assert!(each <= 1.1 && all <= 2.0, "{each}, {all}");
}
