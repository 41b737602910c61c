// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies and classes for packets: lockstep with exact models, theorems on a paced link, worked examples, all short sequences.

use reserv_oracle::core::{Build, MUTANTS, WF2QP};
use reserv_oracle::link::{self, Plan};
use reserv_oracle::{seeds, tiny, wf2qp};

fn holds(name: &str, count: u64, theorem: fn(Build, u64) -> Result<(), String>) {
    for seed in seeds(name, count) {
        if let Err(e) = theorem(Build::Real, seed) {
            panic!("{name}: RESERV_SEED={seed}: {e}");
        }
    }
}

macro_rules! theorem {
    ($name:ident, $count:literal, $f:path) => {
        #[test]
        fn $name() {
            holds(stringify!($name), $count, $f);
        }
    };
}

theorem!(wf2qp_is_its_model, 300, wf2qp::lockstep);

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
}

#[test]
fn worked_examples() {
    assert_eq!(wf2qp::example(Build::Real), "BABBAB");
}

#[test]
fn every_short_sequence() {
    let more = usize::from(std::env::var_os("RESERV_SOAK_SECONDS").is_some());
    for (levels, depth) in [(false, 6), (true, 5)] {
        let count = tiny::every(|| wf2qp::tiny(levels), depth + more).unwrap_or_else(|e| panic!("{e}"));
        println!("wf2q+, levels {levels}: {count} sequences");
    }
}

/// Broken variants fail what is observed on the link, or the model; most of them the link.
#[test]
fn every_packet_mutant_is_rejected() {
    type Promise = fn(Build, u64) -> Result<(), String>;
    let link: &[Promise] = &[link::wf2qp, link::wf2qp_reweights];
    let model: &[Promise] = &[wf2qp::lockstep];
    let (mut count, mut seen, mut missed) = (0, 0, Vec::new());
    for (i, m) in MUTANTS.iter().enumerate().filter(|(_, m)| m.name.starts_with("wfp_")) {
        let find = |of: &[Promise]| {
            (0..25)
                .find_map(|seed| of.iter().find_map(|p| p(Build::Mutant(i), seed).err().map(|e| (seed, e))))
        };
        count += 1;
        let on_link = find(link);
        seen += u32::from(on_link.is_some());
        match on_link.or_else(|| find(model)) {
            Some((seed, e)) => println!("{}: seed {seed}: {e}", m.name),
            None => missed.push(m.name),
        }
    }
    assert!(count >= 10 && missed.is_empty(), "accepted: {missed:?}");
    assert!(2 * seen >= count, "{seen} of {count} fail on the link");
}
