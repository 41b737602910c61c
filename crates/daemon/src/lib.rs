// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon: `/reserv` over FUSE, journal, adoption, supervision. Not here: policy, mechanisms of
//! planes.

pub mod aside;
mod asks;
pub mod backlog;
mod begin;
pub mod collect;
pub mod connections;
pub mod container;
pub mod control;
pub mod copier;
pub mod core;
mod describe;
pub mod drivers;
pub mod engine;
pub mod events;
pub mod fake;
pub mod forgetter;
pub mod fs;
pub mod fuse;
pub mod held;
pub mod keeper;
pub mod link;
pub mod listen;
pub mod log;
pub mod memory;
mod openers;
mod polled;
mod portions;
pub mod priority;
pub mod process;
mod quiet;
pub mod refusal;
pub mod registry;
pub mod revive;
pub mod rights;
pub mod rules;
pub mod seed;
pub mod settings;
pub mod spare;
mod sync;
pub mod unanswered;
pub mod worker;

pub use reserv_plane::journal;
