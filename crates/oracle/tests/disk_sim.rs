// SPDX-License-Identifier: MIT OR Apache-2.0
//! A modelled disk in virtual time: shares and throughput of yfq by its window, anticipation,
//! Cello's classes. No clock is read, so numbers are the same on any machine.

use reserv_disk_model::Spinning;
use reserv_oracle::core::{Build, MUTANTS, ONE};
use reserv_oracle::disk::sim::{self, Classes, Load, Outcome, Way};

const SECOND: u64 = 1_000_000_000;
const DISK: Spinning = Spinning::SERVER;

/// Weights 1:2:4, as many programs as fill any window.
fn three() -> [Load; 3] {
    [1, 2, 4].map(|w| Load {
        weight: w * ONE,
        programs: 40,
        sectors: (8, 128),
        sequential: false,
        think: (0, 0),
    })
}

/// Of the three: the throughput of a window fed by shares, of one fed by arrival, and how far
/// shares are off.
fn sweep(build: Build, b: u32) -> (f64, f64, f64) {
    let loads = three();
    let fair = sim::run(build, DISK, &loads, Way::Yfq(b), false, 1, 60 * SECOND);
    let arrival = sim::run(build, DISK, &loads, Way::Arrival(b), false, 1, 60 * SECOND);
    let off = [1.0, 2.0, 4.0].iter().enumerate().map(|(k, w)| (fair.share(k) - w / 7.0).abs());
    (fair.rate(), arrival.rate(), off.fold(0.0, f64::max))
}

/// The sweep of b: throughput against C-LOOK over the same window fed by arrival, at least 0.95;
/// shares within a point.
#[test]
fn yfq_batch_sweep() {
    let mut rates = Vec::new();
    println!("b   MB/s yfq   MB/s C-LOOK   ratio   shares off by");
    for b in [1, 2, 4, 8, 16, 32] {
        let (fair, arrival, off) = sweep(Build::Real, b);
        println!(
            "{b:2}   {:8.2}   {:11.2}   {:.3}   {off:.4}",
            fair / 1e6,
            arrival / 1e6,
            fair / arrival
        );
        assert!(fair > 0.95 * arrival, "b = {b}: {fair} of {arrival}");
        assert!(off < 0.01, "b = {b}: shares are {off} off");
        rates.push(fair);
    }
    assert!(rates[5] > 1.3 * rates[0], "a larger window is faster: {rates:?}");
    // Refilled from empty only: the same shares.
    let drained = sim::run(Build::Real, DISK, &three(), Way::YfqDrained(8), false, 1, 60 * SECOND);
    println!(
        "drained, b = 8: {:.2} MB/s, largest share {:.4}",
        drained.rate() / 1e6,
        drained.share(2)
    );
    assert!((drained.share(2) - 4.0 / 7.0).abs() < 0.01, "{}", drained.share(2));
}

/// A window in no order is no faster than one at a time: the sweep sees it.
#[test]
fn an_unsorted_window_fails_the_sweep() {
    let Some(mutant) = MUTANTS.iter().position(|m| m.name == "window_unsorted") else {
        panic!("the mutant")
    };
    let (unsorted, ..) = sweep(Build::Mutant(mutant), 16);
    let (sorted, ..) = sweep(Build::Real, 16);
    assert!(unsorted < 0.95 * sorted, "{unsorted} of {sorted}");
}

/// One request at a time under yfq, for a minute.
fn run(build: Build, anticipate: bool, loads: &[Load]) -> Outcome {
    sim::run(build, DISK, loads, Way::Yfq(1), anticipate, 3, 60 * SECOND)
}

fn thinkers(sequential: bool, think: (u64, u64)) -> [Load; 2] {
    [4, 1].map(|w| Load { weight: w * ONE, programs: 1, sectors: (128, 128), sequential, think })
}

/// One program a queue, which asks for one request at a time: with anticipation .8 is .8, at no
/// less than 0.96 of the throughput; without it is half.
#[test]
fn anticipation_keeps_shares_at_depth_one() {
    let think = (50_000, 250_000);
    for sequential in [false, true] {
        let loads = thinkers(sequential, think);
        let (with, without) = (run(Build::Real, true, &loads), run(Build::Real, false, &loads));
        println!(
            "sequential {sequential}: share {:.4} with, {:.4} without; throughput {:.3} of that without",
            with.share(0),
            without.share(0),
            with.rate() / without.rate()
        );
        assert!((with.share(0) - 0.8).abs() < 0.005, "share {}", with.share(0));
        assert!(with.rate() > 0.96 * without.rate(), "{} of {}", with.rate(), without.rate());
        assert!(without.share(0) < 0.55, "without: {}", without.share(0));
    }
}

/// The same harness refuses a core that does not wait, and one that waits for who thinks long.
#[test]
fn wrong_anticipation_is_rejected() {
    let mutant =
        |name| Build::Mutant(MUTANTS.iter().position(|m| m.name == name).expect("the mutant"));
    let never = run(mutant("ante_never"), true, &thinkers(false, (50_000, 250_000)));
    assert!((never.share(0) - 0.8).abs() > 0.2, "{}", never.share(0));
    // One thinks for 10 ms, the other one never: waiting for the first is time lost.
    let mut loads = thinkers(false, (10_000_000, 10_000_000));
    loads[1].think = (0, 0);
    let bare = run(Build::Real, false, &loads).rate();
    let (patient, sober) =
        (run(mutant("ante_for_ever"), true, &loads).rate(), run(Build::Real, true, &loads).rate());
    println!(
        "who thinks for 10 ms: {:.3} of the throughput; waited for each time: {:.3}",
        sober / bare,
        patient / bare
    );
    assert!(sober > 0.98 * bare, "{sober} of {bare}");
    assert!(patient < 0.96 * bare, "{patient} of {bare}");
}

/// Interactive and throughput-intensive programs, six each, random requests: parts of the requests
/// are those of the weights within 3 points.
#[test]
fn cello_parts_of_two_classes() {
    for share in [10u32, 20, 30, 40, 50, 60, 70, 80, 90] {
        let classes = Classes {
            weight: [0, share * ONE, (100 - share) * ONE],
            programs: [0, 6, 6],
            streams: 0,
        };
        let out = sim::cello(Build::Real, DISK, classes, 5, 60 * SECOND);
        #[expect(clippy::cast_precision_loss, reason = "a short run")]
        let part = |of: [u64; 3]| of[1] as f64 / (of[1] + of[2]) as f64;
        println!(
            "{share} %: {:.4} of requests, {:.4} of time",
            part(out.requests),
            part(out.service)
        );
        assert!(
            (part(out.service) - f64::from(share) / 100.0).abs() < 0.03,
            "{share}: {}",
            part(out.service)
        );
    }
}

/// Four streams of 1.5 Mb/s in the real-time class, interactive to real-time 1:3: nothing is late,
/// whatever number of interactive programs there is. With a weight of one hundredth it is: the
/// harness sees it.
#[test]
fn cello_streams_are_never_late() {
    for programs in [1, 2, 4, 8, 16] {
        let classes =
            Classes { weight: [3 * ONE, ONE, 0], programs: [0, 2 * programs, 0], streams: 4 };
        let out = sim::cello(Build::Real, DISK, classes, 6, 30 * SECOND);
        println!("{programs} interferers: {} of {} late, {:?}", out.late, out.due, out.requests);
        assert!(
            out.due > 300 && out.late == 0,
            "{programs} interferers: {} of {} late",
            out.late,
            out.due
        );
        assert!(out.requests[1] > 1000, "interactive ones are served too: {:?}", out.requests);
    }
    let starved = Classes { weight: [ONE, 99 * ONE, 0], programs: [0, 32, 0], streams: 4 };
    let out = sim::cello(Build::Real, DISK, starved, 6, 30 * SECOND);
    assert!(out.late > 0, "{} of {} late", out.late, out.due);
}
