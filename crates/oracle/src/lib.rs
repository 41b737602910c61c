// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exact reference models of the scheduling core, and what drives core and model side by side.
//!
//! Nothing here shares code with `sched/`: the models are naive (lists and linear search) and exact (rationals).

pub mod core;
pub mod rng;
