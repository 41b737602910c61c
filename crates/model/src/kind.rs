// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a node is: a scheduler with a policy, or a queue with a class.
//!
//! The lists are generated once, here; the numbers are those of `sched/registry.h` and a test compares them.

use serde::{Deserialize, Serialize};

/// How a scheduler node orders its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Policy {
    /// Start-time fair queueing, composed hierarchically (QLinux §2.2).
    #[default]
    Sfq = 0,
}

/// How a queue orders the threads in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Class {
    /// Time sharing: nice, `SCHED_BATCH` and `SCHED_IDLE` honoured, interactive threads responsive.
    #[default]
    Ts = 0,
    /// Start-time fair queueing over threads, equal weights unless set.
    Sfq = 1,
    /// Round robin by quantum.
    Rr = 2,
    /// First come, first served: a thread keeps its place until it blocks.
    Fifo = 3,
}

/// Scheduler (interior) or queue (leaf).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Has children.
    Scheduler(Policy),
    /// Has threads.
    Queue(Class),
}
