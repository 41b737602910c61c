// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core's numbers (`sched/sched.h`), and what a node, an item and a tree look like from outside
//! (`sched/host.c`).

/// Id of a node: generation << 32 | index.
pub type Id = u64;
/// Id of the root.
pub const ROOT: Id = 1 << 32;
/// Id of q0, the queue that exists from the start.
pub const Q0: Id = 1 << 32 | 1;
/// Makes an id.
pub const fn id(index: u32, gen_: u32) -> Id {
    (gen_ as u64) << 32 | index as u64
}
/// Thousandths in a weight of one.
pub const ONE: u32 = 1000;
/// Kind of an interior node.
pub const SCHED: u32 = 1;
/// Kind of a leaf.
pub const QUEUE: u32 = 2;
/// Class time sharing.
pub const TS: u32 = 0;
/// Class start-time fair queueing.
pub const SFQ: u32 = 1;
/// Class round robin.
pub const RR: u32 = 2;
/// Class first come, first served.
pub const FIFO: u32 = 3;
/// Class earliest deadline first.
pub const EDF: u32 = 4;
/// Class deficit round robin.
pub const DRR: u32 = 5;
/// Class C-LOOK.
pub const SCAN: u32 = 6;
/// Class earliest deadline first, C-LOOK among equals.
pub const SCAN_EDF: u32 = 7;
/// Policy earliest eligible virtual deadline first.
pub const EEVDF: u32 = 1;
/// Policy move-to-rear list scheduling.
pub const SFQ_POLICY: u32 = 0;
/// A policy.
pub const MTRLS: u32 = 2;
/// Policy priority.
pub const PRIO: u32 = 3;
/// Policy weighted round robin.
pub const WRR: u32 = 4;
/// Policy worst-case fair weighted fair queueing plus.
pub const WF2QP: u32 = 5;
/// Policy worst-case fair weighted fair queueing, with the fluid system itself.
pub const WF2Q: u32 = 7;
/// Policy yet another fair queueing.
pub const YFQ: u32 = 6;
/// State of an item: wants no service.
pub const IDLE: u32 = 1;
/// State of an item: waits.
pub const QUEUED: u32 = 2;
/// State of an item: is served.
pub const SERVICE: u32 = 3;
/// Item flag: its age is kept in a list apart from the others.
pub const APART: u32 = 4;
/// Item flag: SCHED_BATCH.
pub const BATCH: u32 = 1;
/// Item flag: SCHED_IDLE.
pub const BACKGROUND: u32 = 2;
/// Tag units of one unit of work at weight 0.001.
pub const TAG_ONE: u64 = 1 << 20;
/// Most operations of a batch.
pub const BATCH_MAX: usize = 128;

/// What a node looks like from outside.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct NodeView {
    pub id: Id,
    pub parent: Id,
    pub kind: u32,
    pub alg: u32,
    pub dying: u32,
    pub depth: u32,
    pub weight: u32,
    pub nchildren: u32,
    pub members: u32,
    pub members_max: u32,
    pub service: u64,
    pub served: u64,
    pub throttled_ns: u64,
    pub cap_ppm: u64,
    pub cap_burst: u64,
    pub cap_tok: i64,
    pub tag: u64,
    pub key: u64,
    pub res: u64,
    pub v: u64,
    pub fmax: u64,
    pub epoch: u32,
    pub nsvc: u32,
    pub runnable: u32,
    pub ready: u32,
    pub throttled: u32,
    pub nrun: u32,
    pub waiting: u32,
    pub client: u32,
    pub head: u32,
    pad0: u32,
    pub request: u64,
}

/// What an item looks like from outside.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct ItemView {
    pub queue: Id,
    pub service: u64,
    pub tag: u64,
    pub v: u64,
    pub queued_at: u64,
    pub state: u32,
    pub unit: u32,
    pub weight: u32,
    pub all: u32,
    pub slice: u64,
    pub due: u64,
    pub release: u64,
    pub left: i64,
    pub budgeted: u32,
    pad0: u32,
}

/// What a tree looks like from outside.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct TreeView {
    pub seq: u64,
    pub next_ns: u64,
    pub starved: u64,
    pub quantum: u64,
    pub pool_left: u64,
    pub poison: u32,
    pub poison_line: u32,
    pub units: u32,
    pub nodes_used: u32,
    pub items_used: u32,
    pub grants: u32,
    pub changes: u32,
    pub looked: u32,
}
