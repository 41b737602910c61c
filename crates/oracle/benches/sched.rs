// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nanoseconds per decision (pick and settle) of the core on this machine, against the number of
//! queues and their depth. `--json` for a program; without `--bench` (as `cargo test` runs it) only
//! a quick look.

use std::time::{Duration, Instant};

use reserv_oracle::core::{Core, ONE, Op, QUEUE, ROOT, SCHED, Setup, TS, WF2QP, id};
use reserv_oracle::rng::Rng;

const QUANTUM: u64 = 4_000_000;

/// `queues` queues, each `depth` levels below the root, with one thread that always wants service.
fn tree(policy: u32, queues: u32, depth: u32) -> Core {
    let mut core =
        Core::new(Setup { nodes: 16384, items: queues, quantum: QUANTUM, ..Setup::default() });
    core.must(0, Op::Policy { node: ROOT, policy });
    let mut r = Rng::new(1);
    let chains = if depth == 1 { 0 } else { queues.isqrt() };
    let mut index = 2;
    let mut parents = Vec::new();
    for _ in 0..chains {
        let mut parent = ROOT;
        for _ in 1..depth {
            let node = id(index, 1);
            index += 1;
            core.must(0, Op::Create { node, parent, kind: SCHED, alg: policy });
            core.must(0, Op::Reweight { node, weight: ONE });
            parent = node;
        }
        parents.push(parent);
    }
    if parents.is_empty() {
        parents.push(ROOT);
    }
    for k in 0..queues {
        let node = id(index, 1);
        index += 1;
        let parent = parents[k as usize % parents.len()];
        core.must(0, Op::Create { node, parent, kind: QUEUE, alg: TS });
        let weight = u32::try_from(r.range(1, 100)).expect("small") * ONE;
        core.must(0, Op::Reweight { node, weight });
        let item = core.item_new(node, ONE, 0).expect("room");
        core.wake(item, 0);
    }
    core
}

#[expect(clippy::cast_precision_loss, reason = "counts of a short run")]
fn measure(core: &mut Core, by_length: bool, time: Duration) -> f64 {
    let (mut now, mut count) = (0, 0u64);
    let mut r = Rng::new(2);
    let lengths: Vec<u64> = (0..1024).map(|_| r.range(1000, QUANTUM)).collect();
    let start = Instant::now();
    loop {
        for length in &lengths {
            let item = core.pick(0, now).expect("work");
            now += length;
            if by_length {
                core.item_length(item, u32::try_from(*length).expect("below a quantum"));
            }
            core.settle(item, *length, true, now);
        }
        count += lengths.len() as u64;
        let spent = start.elapsed();
        if spent > time {
            return spent.as_nanos() as f64 / count as f64;
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let json = args.iter().any(|a| a == "--json");
    let full = json || args.iter().any(|a| a == "--bench");
    let time = Duration::from_millis(if full { 200 } else { 5 });
    let counts: &[u32] = if full { &[10, 100, 1000, 10_000] } else { &[10, 100] };
    let depths = [1, 3, 5, 8];
    let mut rows = Vec::new();
    for (policy, word) in [(0, "sfq"), (WF2QP, "wf2q+")] {
        if !json {
            println!(
                "{word}: ns per decision (pick + settle), one thread always runnable in each queue"
            );
            println!(
                "{:>8} {}",
                "queues",
                depths.map(|d| format!("{:>9}", format!("depth {d}"))).join(" ")
            );
        }
        for &queues in counts {
            let mut cells = Vec::new();
            for depth in depths {
                let mut core = tree(policy, queues, depth);
                measure(&mut core, policy == WF2QP, time / 10);
                let ns = measure(&mut core, policy == WF2QP, time);
                cells.push(format!("{ns:>9.1}"));
                // For programs, what they know: the default policy.
                if policy == 0 {
                    rows.push(format!(
                        "{{\"queues\":{queues},\"depth\":{depth},\"ns_per_decision\":{ns:.1}}}"
                    ));
                }
            }
            if !json {
                println!("{queues:>8} {}", cells.join(" "));
            }
        }
    }
    if json {
        println!("[{}]", rows.join(","));
    }
}
