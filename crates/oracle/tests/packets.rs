// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies and classes for packets: lockstep with exact models, theorems on a paced link, worked
//! examples, all short sequences.

use reserv_oracle::core::{
    Build, Core, IDLE, MUTANTS, Op, QUEUE, QUEUED, SCHED, SERVICE, Setup, WF2Q, WF2QP, YFQ, id,
};
use reserv_oracle::link::{self, Plan};
use reserv_oracle::rng::Rng;
use reserv_oracle::{drr, seeds, theorem, tiny, wf2q, wf2qp};

theorem!(wf2q_is_its_model, 300, wf2q::lockstep);
theorem!(wf2q_is_near_the_fluid_system, 60, wf2q::wf1);
theorem!(wf2q_wf_1_to_3, 60, link::wf2q);
theorem!(wf2qp_is_its_model, 300, wf2qp::lockstep);

theorem!(drr_is_the_papers_list, 200, drr::lockstep);
theorem!(drr_flows_share_at_any_quantum, 200, drr::fair);
theorem!(wf2qp_wf_1_to_5, 60, link::wf2qp);
theorem!(wf2qp_wf_4_and_5_under_reweights, 60, link::wf2qp_reweights);

/// What is measured, beside the bounds (1 is the bound).
#[test]
fn how_near_the_bounds() {
    let flat = Plan { policy: WF2QP, levels: 1, clocked: true, always: false, reweights: false };
    for (what, plan) in [
        ("flat", flat),
        ("flat, V at dequeue", Plan { clocked: false, ..flat }),
        ("flat, always backlogged", Plan { always: true, ..flat }),
        ("two levels", Plan { levels: 2, ..flat }),
        ("three levels, V at dequeue", Plan { levels: 3, clocked: false, ..flat }),
    ] {
        let w = link::measured(0..40, plan).unwrap_or_else(|e| panic!("{what}: {e}"));
        println!("{what}: {w:.2?}");
    }
    for (what, plan) in [
        ("wf2q, flat", Plan { policy: WF2Q, ..flat }),
        ("wf2q, V at dequeue", Plan { policy: WF2Q, clocked: false, ..flat }),
        ("wf2q, always backlogged", Plan { policy: WF2Q, always: true, ..flat }),
    ] {
        let w = link::measured(0..40, plan).unwrap_or_else(|e| panic!("{what}: {e}"));
        println!("{what}: {w:.2?}");
    }
    let mut worst = [0.0_f64; 2];
    for seed in 0..100 {
        let near = wf2q::nearness(Build::Real, seed, false).unwrap_or_else(|e| panic!("{e}"));
        worst = [worst[0].max(near[0]), worst[1].max(near[1])];
    }
    println!("wf2q, behind and ahead of the fluid system, as parts of the bounds: {worst:.2?}");
}

#[test]
fn worked_examples() {
    assert_eq!(wf2q::example(Build::Real), "BABBAA");
    assert_eq!(wf2qp::example(Build::Real), "BABBAB");
    assert_eq!(drr::example(Build::Real), "ABAABAABABAAB");
}

#[test]
fn every_short_sequence() {
    let more = usize::from(std::env::var_os("RESERV_SOAK_SECONDS").is_some());
    for (levels, depth) in [(false, 6), (true, 5)] {
        let count =
            tiny::every(|| wf2qp::tiny(levels), depth + more).unwrap_or_else(|e| panic!("{e}"));
        println!("wf2q+, levels {levels}: {count} sequences");
    }
}

/// Broken variants fail what is observed on the link, or the model; at least half of them the link.
/// That is dear where nothing is found, so once there are as many the model, which mostly finds it
/// at once, is asked first.
#[test]
fn every_packet_mutant_is_rejected() {
    type Promise = fn(Build, u64) -> Result<(), String>;
    let link: &[Promise] = &[link::wf2qp, link::wf2qp_reweights, drr::fair, link::wf2q, wf2q::wf1];
    let model: &[Promise] = &[wf2qp::lockstep, drr::lockstep, wf2q::lockstep];
    let (mut rejected, mut missed) = (0, Vec::new());
    let of = |name: &str| ["wfp_", "drr_", "gps_"].iter().any(|head| name.starts_with(head));
    let count = MUTANTS.iter().filter(|m| of(m.name)).count();
    for (i, m) in MUTANTS.iter().enumerate().filter(|(_, m)| of(m.name)) {
        let find = |of: &[Promise]| {
            (0..25).find_map(|seed| {
                of.iter().find_map(|p| p(Build::Mutant(i), seed).err().map(|e| (seed, e)))
            })
        };
        let enough = 2 * rejected >= count;
        let on_link = if enough { None } else { find(link) };
        rejected += usize::from(on_link.is_some());
        let found = on_link.or_else(|| find(model));
        match found.or_else(|| if enough { find(link) } else { None }) {
            Some((seed, e)) => println!("{}: seed {seed}: {e}", m.name),
            None => missed.push(m.name),
        }
    }
    assert!(count >= 10 && missed.is_empty(), "accepted: {missed:?}");
    assert!(2 * rejected >= count, "{rejected} of {count} fail on the link");
}

/// All policies and classes beside each other, edited at any time, on one unit and on several: the
/// structure stays sound, and nothing that may be served waits for nothing.
#[test]
fn everything_at_once_stays_sound() {
    for seed in seeds("everything_at_once_stays_sound", 150) {
        if let Err(e) = everything(seed) {
            panic!("RESERV_SEED={seed}: {e}");
        }
    }
}

fn everything(seed: u64) -> Result<(), String> {
    let small = |n: u64| u32::try_from(n).expect("small");
    let mut r = Rng::new(seed ^ 0xe7e);
    let units = *r.pick(&[1, 1, 1, 4]);
    let start = *r.pick(&[0, u64::MAX - 4000, (1 << 63) - 4000]);
    let mut core = Core::new(Setup { units, start, quantum: r.range(1, 3000), ..Setup::default() });
    if units > 1 && r.chance(60) {
        core.device();
    }
    let weights = [1, 1000, 5000, 100_000, 1_000_000_000];
    let mut gens = [0u32; 14];
    let (mut items, mut serving) = (Vec::new(), vec![None; units as usize]);
    let mut now = 1000;
    for step in 0..400 {
        now += r.below(1000);
        let node = |i: u32| id(i, gens[i as usize].max(1));
        let (n, p) = (node(small(r.range(2, 13))), node(small(r.range(0, 13))));
        let value = r.below(8);
        let alg = small(value);
        // What makes no sense is refused: the answer does not matter here.
        let edit = match r.below(20) {
            0..=2 => {
                let index = usize::try_from(n & 0xff).expect("small");
                let free = core.try_node(n).is_none();
                gens[index] += u32::from(free);
                let node = id(small(n & 0xff), gens[index].max(1));
                let kind = if r.chance(50) { SCHED } else { QUEUE };
                let alg = if kind == SCHED && r.chance(60) { *r.pick(&[WF2QP, YFQ]) } else { alg };
                Some(Op::Create { node, parent: p, kind, alg })
            }
            3 => Some(Op::Delete { node: n, drain: r.chance(50) }),
            4 => Some(Op::Reweight {
                node: n,
                weight: if r.chance(15) { 0 } else { *r.pick(&weights) },
            }),
            5 => Some(Op::Policy { node: p, policy: alg }),
            6 => Some(Op::Class { node: n, class: alg }),
            7 => Some(Op::Move { node: n, parent: p }),
            8 => Some(Op::Cap {
                node: n,
                ppm: r.below(2) * r.range(100_000, 999_999),
                burst: r.range(1, 5000),
            }),
            _ => None,
        };
        if let Some(op) = edit {
            let _ = core.edit(0, now, &[op]);
            if let Op::Create { node, .. } = op {
                let _ = core.edit(0, now, &[Op::Reweight { node, weight: *r.pick(&weights) }]);
            }
        } else if r.chance(15)
            && items.len() < 32
            && core.try_node(n).is_some_and(|n| n.kind == QUEUE)
        {
            items.extend(core.item_new(n, 1000 * small(r.range(1, 3)), 0));
        } else if r.chance(40) && !items.is_empty() {
            let item = *r.pick(&items);
            let longest = *r.pick(&[1500, 65_536]);
            if core.item(item).state != SERVICE {
                core.item_length(item, small(r.below(longest)));
            }
            if core.item(item).state == IDLE {
                let due = if r.chance(50) { now + r.below(100_000_000) } else { 0 };
                core.item_request(item, small(r.below(longest)), r.below(1000), due);
            }
            match core.item(item).state {
                IDLE => {
                    core.progress(if r.chance(50) { u32::MAX } else { small(r.below(2000)) });
                    core.wake(item, now);
                }
                QUEUED if r.chance(20) => core.remove(item),
                _ if r.chance(10) && core.try_node(n).is_some_and(|n| n.kind == QUEUE) => {
                    core.item_move(item, n, r.below(1500), now);
                }
                _ => {}
            }
        } else {
            let unit = small(r.below(units.into()));
            let serves = &mut serving[unit as usize];
            if let Some(item) = serves.take() {
                core.item_length(item, small(r.below(1500)));
                let some = r.below(4000);
                let work =
                    *r.pick(&[core.item(item).slice, core.item(item).slice, some, 2_000_000_000]);
                core.settle(item, work, r.chance(75), now);
            } else {
                *serves = core.pick(unit, now);
                let waits = items.iter().any(|&i| core.item(i).state == QUEUED);
                let held = core.nodes().iter().any(|n| n.throttled != 0);
                if serves.is_none() && units == 1 && waits && !held {
                    return Err(format!("step {step}: idle, though something waits"));
                }
            }
        }
        core.check().map_err(|e| format!("step {step}: {e}"))?;
    }
    Ok(())
}
