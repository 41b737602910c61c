// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fixed-point core makes the decisions of the exact model, under random events of every kind.

use reserv_oracle::core::Setup;
use reserv_oracle::pair::Pair;
use reserv_oracle::rng::Rng;
use reserv_oracle::seeds;
use reserv_oracle::trace::{Flavour, seeded};

fn run(test: &str, count: u64, steps: u32, units: &[u32], flavour: impl Fn(&mut Rng) -> Flavour) {
    for seed in seeds(test, count) {
        let mut r = Rng::new(seed);
        let f = flavour(&mut r);
        let setup = Setup { units: *r.pick(units), nodes: 64, ..Setup::default() };
        let mut pair = Pair::new(setup);
        if r.chance(25) {
            pair.starve(50_000_000, 10_000_000);
        }
        pair.model.strict = f.strict;
        seeded(&mut pair, &mut r, &f);
        let mut log = Vec::new();
        for step in 0..steps {
            let Some(event) = f.event(&mut r, &pair) else { continue };
            log.push(event.clone());
            if let Err(e) = pair.apply(&event) {
                let tail = &log[log.len().saturating_sub(12)..];
                let dump = pair.dump();
                panic!(
                    "{test}: RESERV_SEED={seed}, step {step}, {setup:?}: {event:?}: {e}\nlast: {tail:?}\n{dump}"
                );
            }
        }
    }
}

#[test]
fn one_unit_everything() {
    run("one_unit_everything", 100, 600, &[1], |_| Flavour::all());
}

#[test]
fn one_unit_plain() {
    run("one_unit_plain", 100, 600, &[1], |_| Flavour {
        caps: false,
        affinity: false,
        background: false,
        ..Flavour::all()
    });
}

/// Weights and lengths whose tags are whole numbers: every tie must go to who came first.
#[test]
fn ties_are_first_come_first_served() {
    run("ties_are_first_come_first_served", 100, 500, &[1], |_| Flavour {
        weights: vec![1000, 2000, 4000],
        item_weights: vec![1000, 2000],
        lengths: vec![4_000_000, 4_000_000, 2_000_000, 8_000_000, 0],
        strict: true,
        ..Flavour::all()
    });
}

#[test]
fn several_units_everything() {
    run("several_units_everything", 60, 600, &[2, 3, 4, 8], |_| Flavour::all());
}

#[test]
fn ends_of_the_number_range() {
    run("ends_of_the_number_range", 150, 400, &[1], |r| Flavour {
        weights: vec![
            1,
            1000,
            1_000_000_000,
            u32::try_from(r.range(1, 1_000_000_000)).expect("fits"),
        ],
        item_weights: vec![1, 15_000, 88_761_000],
        lengths: vec![0, 1, 4_000_000, 1 << 36],
        caps: false,
        edits: false,
        ..Flavour::all()
    });
}

/// Every node may have another policy, and change it at any time.
#[test]
fn one_unit_policies() {
    run("one_unit_policies", 150, 600, &[1], |_| Flavour {
        policies: vec![0, 1],
        ..Flavour::all()
    });
}

/// All nodes eevdf, without what makes lag lose its meaning.
#[test]
fn one_unit_eevdf() {
    run("one_unit_eevdf", 100, 600, &[1], |_| Flavour {
        policies: vec![1],
        caps: false,
        affinity: false,
        ..Flavour::all()
    });
}

#[test]
fn several_units_policies() {
    run("several_units_policies", 60, 600, &[2, 3, 4, 8], |_| Flavour {
        policies: vec![0, 1],
        ..Flavour::all()
    });
}
