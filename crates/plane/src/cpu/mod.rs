// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU drivers: `full` on sched_ext, `stock` on cgroups.
//!
//! Every driver module offers `probe() -> Result<(), String>` (the string says what is missing),
//! `start() -> Result<Self, PlaneError>` and `adopt() -> Result<Option<Self>, PlaneError>`.

pub mod full;
pub mod stock;
