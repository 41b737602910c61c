// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserv's model: units, trees of reservations and the edits that change them.
//!
//! Pure: time, randomness and I/O are arguments; no clock, file, thread, float or hash order.

mod edit;
mod id;
mod kind;
mod units;

pub use edit::{Batch, DeleteMode, Op, Outcome};
pub use id::{NODES_MAX, NodeId};
pub use kind::{Class, Kind, Policy};
pub use units::{Cap, Minimum, Weight};
