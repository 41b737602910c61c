// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who gets how much: weights and caps.

use std::thread;
use std::time::{Duration, Instant};

use reserv_model::{Cap, DeleteMode, Kind, NodeId, Op, Policy};
use reserv_plane::cpu::full::Full;
use reserv_plane::{Plane as _, PlaneError, Sample};

use crate::setup::{Answer, Load, Setup, check, near, service, settle, shares, weight};

#[expect(clippy::many_single_char_names, reason = "queues of the tree in the text")]
pub(crate) fn run_shares(seconds: u64, hogs: u32, tolerance: f64) -> Answer {
    let time = Duration::from_secs(seconds);
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    for _ in 0..hogs {
        load.hog(&mut s.plane.0, a)?;
        load.hog(&mut s.plane.0, b)?;
    }
    for w in [1, 2, 4] {
        s.apply(vec![Op::Reweight { id: b, weight: weight(100 * w) }])?;
        settle();
        let w = f64::from(w);
        near(
            &shares(&s.plane.0, &[a, b], time)?,
            &[1.0 / (1.0 + w), w / (1.0 + w)],
            tolerance,
            &format!("1:{w}"),
        );
    }
    drop(load);
    let inner = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 500)?;
    let (x, y) = (s.queue(inner, 100)?, s.queue(inner, 400)?);
    s.apply(vec![
        Op::Reweight { id: a, weight: weight(500) },
        Op::Delete { id: b, mode: DeleteMode::Drain },
    ])?;
    let mut load = Load::default();
    for id in [a, x, y] {
        for _ in 0..hogs {
            load.hog(&mut s.plane.0, id)?;
        }
    }
    settle();
    near(
        &shares(&s.plane.0, &[a, x, y], time)?,
        &[0.5, 0.1, 0.4],
        tolerance,
        "two levels, .5 / .1 / .4",
    );
    // The sibling sleeps: what it leaves goes to its sibling.
    for child in load.0.iter().skip(2 * hogs as usize) {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(i32::try_from(child.id())?, libc::SIGSTOP) };
    }
    settle();
    near(
        &shares(&s.plane.0, &[a, x, y], time)?,
        &[0.5, 0.5, 0.0],
        tolerance,
        "the sibling absorbs a sleeper's share",
    );
    s.health("still ours")?;
    println!("# {:?}", s.plane.0.counters());
    Ok(())
}

/// Weights that threads cannot use, on four CPUs: one thread with a weight of ten beside two queues
/// of weight 1 with four threads each. One thread can use one CPU, which is its readjusted share
/// (docs/notes/algorithms.md §9); the others divide the rest. Then the same under eevdf, and there
/// two such threads with weights of 1000 beside 3 : 1.
pub(crate) fn run_infeasible(seconds: u64) -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b, c) =
        (s.queue(NodeId::ROOT, 1000)?, s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    load.hog(&mut s.plane.0, a)?;
    for id in [b, c] {
        for _ in 0..4 {
            load.hog(&mut s.plane.0, id)?;
        }
    }
    settle();
    let before = s.plane.0.counters();
    near(
        &shares(&s.plane.0, &[a, b, c], Duration::from_secs(seconds))?,
        &[0.25, 0.375, 0.375],
        0.01,
        "10:1:1 with 1, 4 and 4 threads on four CPUs: readjusted shares",
    );
    let after = s.plane.0.counters();
    let steps = (after.steps - before.steps) as f64;
    let sections = (after.sections - before.sections) as f64;
    check(
        sections <= 1.15 * steps,
        &format!("{:.3} sections of the lock a switch", sections / steps),
    );
    s.apply(vec![Op::SetPolicy { id: NodeId::ROOT, policy: Policy::Eevdf }])?;
    settle();
    near(
        &shares(&s.plane.0, &[a, b, c], Duration::from_secs(seconds))?,
        &[0.25, 0.375, 0.375],
        0.01,
        "the same under eevdf",
    );
    let second = s.queue(NodeId::ROOT, 100_000)?;
    load.hog(&mut s.plane.0, second)?;
    let new = [(a, 100_000), (b, 300), (c, 100)];
    s.apply(new.map(|(id, w)| Op::Reweight { id, weight: weight(w) }).to_vec())?;
    settle();
    near(
        &shares(&s.plane.0, &[a, second, b, c], Duration::from_secs(seconds))?,
        &[0.25, 0.25, 0.375, 0.125],
        0.01,
        "1000:1000:3:1 with 1, 1, 4 and 4 threads under eevdf",
    );
    s.health("still ours")
}

/// A thundering herd: forty queues with a thread each under a parent of small weight have the
/// parent's share, within 0.5 % of it, each an equal part but for what SFQ-1 allows. A scheduler
/// that flattens the tree would give them four tenths instead of one.
pub(crate) fn run_herd(seconds: u64) -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let other = s.queue(NodeId::ROOT, 900)?;
    let parent = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 100)?;
    let mut all = vec![other];
    for _ in 0..40 {
        all.push(s.queue(parent, 100)?);
    }
    for id in &all {
        load.hog(&mut s.plane.0, *id)?;
    }
    settle();
    let got = shares(&s.plane.0, &all, Duration::from_secs(seconds))?;
    let herd: f64 = got.iter().skip(1).sum();
    check(
        (herd - 0.1).abs() <= 0.0005,
        &format!(
            "40 queues below a weight of 1, beside 9, have {herd:.5} of the CPU together, a tenth"
        ),
    );
    let apart = got.iter().skip(1).map(|g| (g - herd / 40.0).abs()).fold(0.0, f64::max)
        * seconds as f64
        * 1e9;
    check(
        apart <= 2.0 * STEP_NS,
        &format!(
            "each an equal part of that: the worst is {:.1} ms off in {seconds} s, two steps are {:.1}",
            apart / 1e6,
            STEP_NS / 5e5
        ),
    );
    s.health("still ours")
}

/// Longest step: the quantum, the tick at which it ends, and a hundredth for the interrupt and the
/// switch.
const STEP_NS: f64 = (4e6 + 4e6) * 1.01;

/// How far two siblings get from each other over any interval, in service per weight, as a part of
/// what the theorem allows.
fn spread(samples: &[Vec<Sample>], siblings: &[(NodeId, u32)]) -> f64 {
    let mut worst = 0.0_f64;
    for (i, &(f, wf)) in siblings.iter().enumerate() {
        for &(m, wm) in siblings.iter().take(i) {
            let (wf, wm) = (f64::from(wf), f64::from(wm));
            let ahead = |s: &Vec<Sample>| service(s, f) as f64 / wf - service(s, m) as f64 / wm;
            let (low, high) = samples
                .iter()
                .map(ahead)
                .fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(x), h.max(x)));
            worst = worst.max((high - low) / (STEP_NS / wf + STEP_NS / wm));
        }
    }
    worst
}

/// SFQ-1 on the real scheduler: over every interval that begins and ends at one of 1000 samples
/// (each of one instant), two siblings that want the CPU differ by at most a step each.
pub(crate) fn run_lag() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let inner = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 3)?;
    let mut make = |parent: NodeId, w: u32| s.queue(parent, w).map(|id| (id, w));
    let mut outer = vec![make(NodeId::ROOT, 1)?, make(NodeId::ROOT, 2)?, make(NodeId::ROOT, 7)?];
    let lower = [make(inner, 1)?, make(inner, 5)?];
    for &(queue, _) in outer.iter().chain(&lower) {
        load.hog(&mut s.plane.0, queue)?;
    }
    settle();
    let mut samples = Vec::new();
    for i in 0..1000_u64 {
        samples.push(s.plane.0.sample()?);
        thread::sleep(Duration::from_micros(1000 + i * 7919 % 17_000));
    }
    outer.push((inner, 3));
    let (top, below) = (spread(&samples, &outer), spread(&samples, &lower));
    check(top <= 1.0, &format!("siblings at the root stay within the theorem: {top:.3} of it"));
    check(below <= 1.0, &format!("and those below: {below:.2}"));
    let wrong = spread(&samples, &lower.map(|(id, w)| (id, w % 5 + 1)));
    check(wrong > 10.0, &format!("which would be seen otherwise: {wrong:.0} with other weights"));
    s.health("lag")
}

pub(crate) fn run_caps() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    let cap = |rate| Some(Cap { rate_ns_per_s: rate, burst_ns: 0 });
    load.hog(&mut s.plane.0, a)?;
    s.apply(vec![Op::SetCap { id: a, cap: cap(200_000_000) }])?;
    thread::sleep(Duration::from_secs(1));
    let measure = |plane: &Full, id: NodeId| -> Result<f64, PlaneError> {
        let (t, before) = (Instant::now(), service(&plane.sample()?, id));
        thread::sleep(Duration::from_secs(5));
        Ok((service(&plane.sample()?, id) - before) as f64 / t.elapsed().as_nanos() as f64)
    };
    let rate = measure(&s.plane.0, a)?;
    check(
        (0.19..=0.205).contains(&rate),
        &format!("a cap of 200ms/s holds on an otherwise idle CPU: {rate:.4}"),
    );
    load.hog(&mut s.plane.0, b)?;
    settle();
    let rate = measure(&s.plane.0, a)?;
    check((0.19..=0.205).contains(&rate), &format!("and beside another queue: {rate:.4}"));
    check(s.plane.0.sample_one(a)?.throttled_ns > 0, "the time held back is counted");
    s.apply(vec![Op::SetCap { id: a, cap: None }])?;
    settle();
    near(
        &shares(&s.plane.0, &[a, b], Duration::from_secs(4))?,
        &[0.5, 0.5],
        0.01,
        "without the cap the weights rule again",
    );
    s.health("caps")
}

/// A cap so low that a thread waits for longer than the kernel tolerates (30 s): it is served all
/// the same.
pub(crate) fn run_low_cap() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    load.hog(&mut s.plane.0, a)?;
    load.hog(&mut s.plane.0, b)?;
    s.apply(vec![Op::SetCap { id: a, cap: Some(Cap { rate_ns_per_s: 1_000_000, burst_ns: 0 }) }])?;
    thread::sleep(Duration::from_secs(40));
    s.health("a cap of 1ms/s for 40 s")
}
