// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies mtrls and prio, class edf and parameters of threads, on a real kernel.

use std::thread;
use std::time::Duration;

use reserv_model::{Class, Kind, NodeId, Op, Policy, ThreadParams, TuneKey};
use reserv_plane::{Plane as _, PlaneError, Threads as _};

use crate::setup::{Answer, Load, Setup, check, near, service, settle, shares, weight};

/// Shares of busy queues under mtrls, before and after a change of weights, and after the policy of
/// a running tree changed.
pub(crate) fn run_mtrls() -> Answer {
    let time = Duration::from_secs(4);
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let top = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Mtrls), 1000)?;
    let (a, b, c) = (s.queue(top, 1)?, s.queue(top, 2)?, s.queue(top, 4)?);
    for q in [a, b, c] {
        load.hog(&mut s.plane.0, q)?;
    }
    settle();
    near(
        &shares(&s.plane.0, &[a, b, c], time)?,
        &[1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0],
        0.005,
        "mtrls: 1:2:4",
    );
    s.apply(vec![
        Op::Reweight { id: a, weight: weight(4) },
        Op::Reweight { id: b, weight: weight(2) },
    ])?;
    settle();
    near(&shares(&s.plane.0, &[a, b, c], time)?, &[0.4, 0.2, 0.4], 0.005, "mtrls: 4:2:4");
    for (policy, word) in [(Policy::Sfq, "sfq"), (Policy::Prio, "prio"), (Policy::Mtrls, "mtrls")] {
        s.apply(vec![Op::SetPolicy { id: top, policy }])?;
        thread::sleep(Duration::from_millis(300));
        s.health(&format!("the policy changes to {word} while all run"))?;
    }
    settle();
    near(&shares(&s.plane.0, &[a, b, c], time)?, &[0.4, 0.2, 0.4], 0.005, "mtrls again");
    Ok(())
}

/// Levels of prio: the higher has all, equals take turns, the idle class has what nobody else
/// wants.
pub(crate) fn run_prio() -> Answer {
    let time = Duration::from_secs(2);
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let top = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Prio), 1000)?;
    let level = |s: &mut Setup, value: u64| -> Result<NodeId, PlaneError> {
        let id = s.queue(top, 1)?;
        s.apply(vec![Op::NodeParam { id, key: TuneKey::Priority, value }])?;
        Ok(id)
    };
    let (high, high2, low, idle) =
        (level(&mut s, 30)?, level(&mut s, 30)?, level(&mut s, 10)?, level(&mut s, 0)?);
    let mut hogs = Vec::new();
    for q in [idle, low, high, high2] {
        hogs.push(load.hog(&mut s.plane.0, q)?);
    }
    let all = [high, high2, low, idle];
    settle();
    // Usage moves an equal by a level for part of a period (2.4 s by default). That evens out, but
    // for the turn that lies over either end of the window: 0.4 s of 16 (0.22 s were seen).
    near(
        &shares(&s.plane.0, &all, time * 8)?,
        &[0.5, 0.5, 0.0, 0.0],
        0.025,
        "equals take turns, below there is nothing",
    );
    let stop = |pid: i32| {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
    };
    stop(hogs[3]);
    settle();
    near(&shares(&s.plane.0, &all, time)?, &[1.0, 0.0, 0.0, 0.0], 0.01, "one of them sleeps");
    stop(hogs[2]);
    settle();
    near(&shares(&s.plane.0, &all, time)?, &[0.0, 0.0, 1.0, 0.0], 0.01, "both sleep");
    stop(hogs[1]);
    settle();
    near(
        &shares(&s.plane.0, &all, time)?,
        &[0.0, 0.0, 0.0, 1.0],
        0.01,
        "and all but the idle class",
    );
    s.health("prio")
}

/// Parameters of a thread: kept, over queues, and refused where they make no sense.
pub(crate) fn run_params() -> Answer {
    const MS: u64 = 1_000_000;
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let e = s.make(NodeId::ROOT, Kind::Queue(Class::Edf), 100_000)?;
    let other = s.queue(NodeId::ROOT, 1000)?;
    let pid = load.hog(&mut s.plane.0, e)?;
    let tid = pid;
    let p = ThreadParams {
        weight: 0,
        priority: 7,
        period_ns: 20 * MS,
        budget_ns: 5 * MS,
        deadline_ns: 10 * MS,
    };
    check(s.plane.0.params(tid)?.is_default(), "a thread asks for nothing");
    s.plane.0.set_params(tid, &p)?;
    check(s.plane.0.params(tid)? == p, "and then for what was set");
    let listed = |s: &Setup, queue| -> Result<Vec<ThreadParams>, PlaneError> {
        Ok(s.plane.0.members(queue)?.iter().map(|m| m.params).collect())
    };
    check(listed(&s, e)? == [p], "members shows it");
    s.plane.0.tag(reserv_plane::Target::Thread(tid), other)?;
    check(listed(&s, other)? == [p] && listed(&s, e)?.is_empty(), "also in another queue");
    s.plane.0.tag(reserv_plane::Target::Thread(tid), e)?;
    let wrong = [
        (
            "a period too short",
            ThreadParams { period_ns: MS - 1, budget_ns: 10_000, deadline_ns: 0, ..p },
        ),
        ("too long", ThreadParams { period_ns: 10_001 * MS, deadline_ns: 0, ..p }),
        ("a budget beyond the deadline", ThreadParams { budget_ns: 11 * MS, ..p }),
        ("without a period", ThreadParams { period_ns: 0, ..p }),
        ("a priority too high", ThreadParams { priority: 101, ..p }),
    ];
    for (what, p) in wrong {
        let got = s.plane.0.set_params(tid, &p);
        check(matches!(got, Err(PlaneError::Invalid(_))), &format!("{what}: {got:?}"));
    }
    check(s.plane.0.params(tid)? == p, "and nothing has changed");
    let second = load.hog(&mut s.plane.0, e)?;
    let much = ThreadParams { period_ns: 10 * MS, budget_ns: 6 * MS, deadline_ns: 0, ..p };
    let got = s.plane.0.set_params(second, &much);
    check(
        matches!(got, Err(PlaneError::Full(_))),
        &format!("budgets that come to more than a CPU: {got:?}"),
    );
    let got = s.plane.0.set_params(i32::MAX, &p);
    check(matches!(got, Err(PlaneError::NoProcess(_))), &format!("no such thread: {got:?}"));
    s.plane.0.set_params(tid, &ThreadParams::default())?;
    check(s.plane.0.params(tid)?.is_default(), "taken back");
    // Two hogs, one with a budget of 30 %: it has that, and half of the rest, less the turns that a
    // new budget costs it.
    let p = ThreadParams { period_ns: 100 * MS, budget_ns: 30 * MS, ..ThreadParams::default() };
    s.plane.0.set_params(tid, &p)?;
    let cpu = |pid: i32| -> Result<f64, std::io::Error> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
        Ok(text.split(' ').next().and_then(|w| w.parse().ok()).unwrap_or(0.0))
    };
    settle();
    let (before, had) = (service(&s.plane.0.sample()?, e), (cpu(tid)?, cpu(second)?));
    thread::sleep(Duration::from_secs(4));
    let (all, had) =
        (service(&s.plane.0.sample()?, e) - before, (cpu(tid)? - had.0, cpu(second)? - had.1));
    near(
        &[had.0 / all as f64, had.1 / all as f64],
        &[0.65, 0.35],
        0.04,
        "a hog with a budget of 30 % beside one without",
    );
    s.health("parameters")
}
