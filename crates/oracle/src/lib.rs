// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exact reference models of the scheduling core, and what drives core and model side by side.
//!
//! Nothing here shares code with `sched/`: the models are naive (lists and linear search) and exact (rationals).

#![expect(clippy::missing_panics_doc, reason = "for tests only: a panic is a failed test")]

pub mod core;
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
pub mod wf2qp;

/// Seeds of a randomised test: `count` of them, from RESERV_SEED alone if that is set; more while RESERV_SOAK_SECONDS
/// last. Printed first, so that a failure can be replayed.
pub fn seeds(test: &str, count: u64) -> impl Iterator<Item = u64> {
    let fixed = std::env::var("RESERV_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let soak = std::env::var("RESERV_SOAK_SECONDS").ok().and_then(|s| s.parse::<u64>().ok()).unwrap_or(0);
    let start = std::time::Instant::now();
    match fixed {
        Some(seed) => println!("{test}: RESERV_SEED={seed}"),
        None => println!("{test}: seeds 0..{count}, and more for {soak} s"),
    }
    (fixed.unwrap_or(0)..).take_while(move |&seed| {
        fixed.map_or_else(|| seed < count || start.elapsed().as_secs() < soak, |f| seed == f)
    })
}
