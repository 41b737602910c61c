// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies other than sfq, and a change of policy under load.

use std::thread;
use std::time::{Duration, Instant};

use reserv_model::{Kind, NodeId, Op, Policy};
use reserv_plane::{Plane as _, Sample};

use crate::setup::{Answer, Load, Setup, check, near, service, settle, shares};

/// Longest step: the quantum, the tick at which it ends, and a hundredth for the interrupt and the
/// switch.
const STEP_NS: f64 = (4e6 + 4e6) * 1.01;

/// The largest lag, of either sign, over every interval between two samples, in steps. All siblings
/// want the CPU throughout, so the fluid share of one is its weight's part of what they received
/// together.
fn lag(samples: &[Vec<Sample>], siblings: &[(NodeId, u32)]) -> f64 {
    let total: f64 = siblings.iter().map(|&(_, w)| f64::from(w)).sum();
    let worst = siblings.iter().map(|&(id, w)| {
        let lag = |s: &Vec<Sample>| {
            let all: f64 = siblings.iter().map(|&(id, _)| service(s, id) as f64).sum();
            all * f64::from(w) / total - service(s, id) as f64
        };
        let (low, high) =
            samples.iter().map(lag).fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(x), h.max(x)));
        high - low
    });
    worst.fold(0.0, f64::max) / STEP_NS
}

fn samples(s: &Setup, count: u64) -> Result<Vec<Vec<Sample>>, Box<dyn std::error::Error>> {
    let mut samples = Vec::new();
    for i in 0..count {
        samples.push(s.plane.0.sample()?);
        thread::sleep(Duration::from_micros(1000 + i * 7919 % 17_000));
    }
    Ok(samples)
}

/// Shares and lags under eevdf at the root and below.
pub(crate) fn run_eevdf() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    s.apply(vec![Op::SetPolicy { id: NodeId::ROOT, policy: Policy::Eevdf }])?;
    let inner = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Eevdf), 20)?;
    let mut make = |parent: NodeId, w: u32| s.queue(parent, w).map(|id| (id, w));
    let mut outer = vec![make(NodeId::ROOT, 10)?, make(NodeId::ROOT, 20)?, make(NodeId::ROOT, 40)?];
    let lower = [make(inner, 1)?, make(inner, 2)?];
    for &(queue, _) in outer.iter().chain(&lower) {
        load.hog(&mut s.plane.0, queue)?;
    }
    settle();
    let ids: Vec<_> = outer.iter().chain(&lower).map(|x| x.0).collect();
    near(
        &shares(&s.plane.0, &ids, Duration::from_secs(10))?,
        &[1.0 / 9.0, 2.0 / 9.0, 4.0 / 9.0, 2.0 / 27.0, 4.0 / 27.0],
        0.001,
        "eevdf, 1:2:4 and 2 divided 1:2",
    );
    outer.push((inner, 20));
    let seen = samples(&s, 300)?;
    let (top, below) = (lag(&seen, &outer), lag(&seen, &lower));
    // Lags lie between -q and q, so two of them are at most 2q apart; a step that runs while the
    // sample is taken is in it.
    check(top <= 2.0, &format!("lags at the root are within 2 steps of each other: {top:.2}"));
    check(below <= 2.0, &format!("and below: {below:.2}"));
    let wrong = lag(&seen, &lower.map(|(id, w)| (id, w % 2 + 1)));
    check(wrong > 10.0, &format!("which would be seen otherwise: {wrong:.0} with other weights"));
    s.health("eevdf")
}

/// The policy of two nodes changes every 50 ms for 5 s.
#[expect(clippy::many_single_char_names, reason = "queues, as the documents name them")]
pub(crate) fn run_policies() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let inner = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 20)?;
    let (a, b) = (s.queue(NodeId::ROOT, 10)?, s.queue(NodeId::ROOT, 30)?);
    let (x, y) = (s.queue(inner, 1)?, s.queue(inner, 3)?);
    for id in [a, b, x, y] {
        load.hog(&mut s.plane.0, id)?;
    }
    settle();
    let before = s.plane.0.sample()?;
    let (start, mut changes) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(50));
        for (at, id) in [NodeId::ROOT, inner].into_iter().enumerate() {
            let all = Policy::ALL;
            let policy = all[usize::try_from(changes)? / (at + 1) % 2 % all.len()];
            s.apply(vec![Op::SetPolicy { id, policy }])?;
        }
        changes += 1;
    }
    let after = s.plane.0.sample()?;
    let got: Vec<_> = [a, b, x, y]
        .iter()
        .map(|&id| (service(&after, id) - service(&before, id)) as f64)
        .collect();
    let all: f64 = got.iter().sum();
    check(changes > 50, &format!("{changes} changes"));
    near(
        &got.iter().map(|x| x / all).collect::<Vec<_>>(),
        &[1.0 / 6.0, 3.0 / 6.0, 0.5 / 6.0, 1.5 / 6.0],
        0.01,
        "shares of 5 s with a change of policy every 50 ms",
    );
    s.health("changes of policy")
}
