// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exact reference models of the scheduling core, and what drives core and model side by side.
//!
//! Nothing here shares code with `sched/`: the models are naive (lists and linear search) and exact
//! (rationals).

#![expect(clippy::missing_panics_doc, reason = "for tests only: a panic is a failed test")]

pub mod constrained;
pub mod core;
pub mod disk;
pub mod drr;
pub mod edf;
pub mod eevdf;
pub mod gms;
mod lag;
pub mod link;
pub mod model;
pub mod mtrls;
pub mod one;
pub mod own;
pub mod pair;
pub mod prio;
pub mod rng;
pub mod smp;
pub mod theorems;
pub mod tiny;
pub mod trace;
pub mod wf2q;
pub mod wf2qp;

/// Seeds of a randomised test: `count` of them, from RESERV_SEED alone if that is set; more while
/// RESERV_SOAK_SECONDS last. Printed first, so that a failure can be replayed.
pub fn seeds(test: &str, count: u64) -> impl Iterator<Item = u64> {
    let fixed = std::env::var("RESERV_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let soak =
        std::env::var("RESERV_SOAK_SECONDS").ok().and_then(|s| s.parse::<u64>().ok()).unwrap_or(0);
    let start = std::time::Instant::now();
    match fixed {
        Some(seed) => println!("{test}: RESERV_SEED={seed}"),
        None => println!("{test}: seeds 0..{count}, and more for {soak} s"),
    }
    (fixed.unwrap_or(0)..).take_while(move |&seed| {
        fixed.map_or_else(|| seed < count || start.elapsed().as_secs() < soak, |f| seed == f)
    })
}

/// The theorem holds for the core, under so many seeds; a failure says which one replays it.
pub fn holds(name: &str, count: u64, theorem: fn(core::Build, u64) -> Result<(), String>) {
    for seed in seeds(name, count) {
        if let Err(e) = theorem(core::Build::Real, seed) {
            panic!("{name}: RESERV_SEED={seed}: {e}");
        }
    }
}

/// A test called `$name`: the theorem [`holds`].
#[macro_export]
macro_rules! theorem {
    ($name:ident, $count:literal, $f:path) => {
        #[test]
        fn $name() {
            $crate::holds(stringify!($name), $count, $f);
        }
    };
}
