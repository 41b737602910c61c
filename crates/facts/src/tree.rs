// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduling core (`sched/`), as who runs it and who edits its tree must know it: bounds,
//! numbers of operations, policies and classes, and a batch of edits.

use std::mem::offset_of;

shared! {
    /// Of a tree's memory.
    MAGIC: u64 = 0x7672_6573_6572_3031, "RS_MAGIC";
    /// Places of nodes in a tree …
    SLOTS: u32 = 16384, "RS_NODES_MAX";
    /// … of which these are for nodes that who edits does not see …
    HIDDEN_MAX: u32 = 2048, "RS_HIDDEN_MAX";
    /// … and these for all others.
    NODES_MAX: u32 = SLOTS - HIDDEN_MAX, "RS_NODES_OPEN";
    /// Most threads, or requests, of one tree.
    ITEMS_MAX: u32 = 32768, "RS_ITEMS_MAX";
    /// Most nodes on a walk from a leaf up to the root, both counted.
    DEPTH_MAX: usize = 16, "RS_DEPTH_MAX";
    /// Most that serve at once: CPUs, or places of a device.
    UNITS_MAX: usize = 256, "RS_UNITS_MAX";
    /// Edits in one batch.
    BATCH_MAX: usize = 128, "RS_BATCH_MAX";
    /// Threads that may wait in all queues whose class one batch changes.
    SORTED_MAX: usize = 512, "RS_SORTED_MAX";
    /// What one batch may move: nodes below all that it moves, ...
    WALKED_MAX: usize = 6400, "RS_WALKED_MAX";
    /// ... and as many for each move ...
    WALKED_MOVE: usize = 12, "RS_WALKED_MOVE";
    /// ... and for each level above it, before and after.
    WALKED_LEVEL: usize = 8, "RS_WALKED_LEVEL";
    /// A weight of 1, in thousandths.
    WEIGHT_ONE: u32 = 1000, "RS_WEIGHT_ONE";
    /// The greatest weight, in thousandths.
    WEIGHT_MAX: u32 = 1_000_000_000, "RS_WEIGHT_MAX";
    /// The highest priority; 1 is the lowest.
    PRIORITY_MAX: u32 = 100, "RS_PRIORITY_MAX";
    /// Of a thread that asks for none.
    PRIORITY_DEFAULT: u32 = 50, "RS_PRIORITY_DEFAULT";
    /// The shortest period of a thread, and its shortest deadline, in ns.
    PERIOD_MIN: u64 = 1_000_000, "RS_PERIOD_MIN";
    /// The longest.
    PERIOD_MAX: u64 = 10_000_000_000, "RS_PERIOD_MAX";
    /// The smallest budget, in ns.
    BUDGET_MIN: u64 = 10_000, "RS_BUDGET_MIN";
    /// The longest quantum, in ns.
    QUANTUM_MAX: u64 = 1_000_000_000, "RS_QUANTUM_MAX";
    /// The longest of all other times that are tuned, in ns.
    TUNE_NS_MAX: u64 = 1_000_000_000_000, "RS_TUNE_NS_MAX";
    /// Requests of a disk that can be dispatched and not done.
    WINDOW_MAX: u32 = 256, "RW_MAX";
    /// An edit's answer: done, but the queue stays until what is in it has gone.
    DRAINING: i32 = 1, "RS_DRAINING";
}

/// The root, packed: generation 1, index 0.
pub const ROOT: u64 = 1 << 32;
/// q0: generation 1, index 1.
pub const Q0: u64 = 1 << 32 | 1;

shared! {
    /// What a node is (`enum rs_kind`).
    "RS_" mod kind: u8 { SCHED = 1, QUEUE = 2 }
}

shared! {
    /// Edits (`enum rs_op_code`).
    "RS_OP_" mod op: u32 {
        CREATE = 1,
        DELETE = 2,
        REWEIGHT = 3,
        CAP = 4,
        CLASS = 5,
        POLICY = 6,
        LIMIT = 7,
        RESET = 8,
        MOVE = 9,
        TUNE = 10,
        NODE_PARAM = 11,
    }
}

shared! {
    /// What [`op::TUNE`] changes, at a node, for what is below it (`enum rs_tune`).
    "RS_TUNE_" mod tune: u64 {
        QUANTUM = 1,
        LAG = 2,
        TURN = 3,
        DECAY = 5,
        /// Of the root: requests that are dispatched and not done; 0: as many as the disk has at
        /// once. From here on a block server's, which the tree does not know.
        BATCH = 6,
        /// Of the root, ns; 0: none, [`super::AUTO`]: by the disk.
        ANTICIPATE = 7,
        /// Of the root: [`super::cost`].
        COST = 8,
        /// Of a queue, ns after the arrival; 0: none.
        DEADLINE = 9,
        /// Of the root with [`super::policy::CELLO`], ns; 0: as long as rounds usually are.
        ROUND = 10,
        /// Of a link's queue: packets a second that may come in for it; 0: any number. From here on
        /// an entrance's, which the tree does not know.
        RECEIVE = 11,
        /// And how many at once; 0: [`crate::receive::BURST`].
        RECEIVE_BURST = 12,
    }
}

/// Of [`tune::ANTICIPATE`]: not said.
pub const AUTO: u64 = u64::MAX;
/// The shortest and the longest [`tune::ROUND`] that is said.
pub const ROUNDS: std::ops::RangeInclusive<u64> = 10_000_000..=60_000_000_000;

/// Most requests at once at a disk (its depth).
pub const DISK_DEPTH_MAX: u32 = 256;

/// What a disk's shares are shares of ([`tune::COST`]).
pub mod cost {
    /// Bytes.
    pub const BYTES: u64 = 0;
    /// Requests.
    pub const REQUESTS: u64 = 1;
    /// Time of the disk.
    pub const TIME: u64 = 2;
}

shared! {
    /// What [`op::NODE_PARAM`] changes: what a node is to its parent (`enum rs_param`).
    "RS_PARAM_" mod param: u64 { PRIORITY = 1, REQUEST = 2 }
}

/// Policies of schedulers; `sched/registry.h` has the same list (crates/model, tests/registry.rs).
#[expect(missing_docs, reason = "crates/model, kind.rs, says what each is")]
pub mod policy {
    pub const SFQ: u8 = 0;
    pub const EEVDF: u8 = 1;
    pub const MTRLS: u8 = 2;
    pub const PRIO: u8 = 3;
    pub const WRR: u8 = 4;
    pub const WF2QP: u8 = 5;
    pub const YFQ: u8 = 6;
    pub const WF2Q: u8 = 7;
    pub const CELLO: u8 = 8;
}

/// Classes of queues, in the same way.
#[expect(missing_docs, reason = "crates/model, kind.rs, says what each is")]
pub mod class {
    pub const TS: u8 = 0;
    pub const SFQ: u8 = 1;
    pub const RR: u8 = 2;
    pub const FIFO: u8 = 3;
    pub const EDF: u8 = 4;
    pub const DRR: u8 = 5;
    pub const SCAN: u8 = 6;
    pub const SCAN_EDF: u8 = 7;
    pub const INTERACTIVE: u8 = 8;
    pub const THROUGHPUT: u8 = 9;
    pub const REAL_TIME: u8 = 10;
}

/// `struct rs_op`: one edit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named as in sched/batch.h")]
pub struct RsOp {
    pub code: u32,
    pub answer: i32,
    pub node: u64,
    pub parent: u64,
    pub a: u64,
    pub b: u64,
    pub undo: [u64; 2],
}

/// `struct rs_batch`: edits that happen all or not at all.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "named as in sched/batch.h")]
pub struct RsBatch {
    pub seq: u64,
    pub now: u64,
    pub count: u32,
    pub error: i32,
    pub failed: u32,
    pub grants: u32,
    pub op: [RsOp; BATCH_MAX],
}

impl Default for RsBatch {
    fn default() -> Self {
        Self {
            seq: 0,
            now: 0,
            count: 0,
            error: 0,
            failed: 0,
            grants: 0,
            op: [RsOp::default(); BATCH_MAX],
        }
    }
}

impl RsBatch {
    /// How many bytes of it mean something: the rest of its places is not copied to the kernel and
    /// back.
    fn used(&self) -> usize {
        offset_of!(Self, op) + (self.count as usize).min(BATCH_MAX) * size_of::<RsOp>()
    }

    /// Writes it to where the core reads it.
    ///
    /// # Safety
    /// `at` is valid for a batch, and nobody else uses it during the call.
    pub unsafe fn put(&self, at: *mut Self) {
        // SAFETY: as the caller says; numbers without padding.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(self).cast::<u8>(),
                at.cast(),
                self.used(),
            );
        };
    }

    /// Reads back what the core answered to it.
    ///
    /// # Safety
    /// As `put`.
    pub unsafe fn take(&mut self, at: *const Self) {
        let used = self.used();
        // SAFETY: as the caller says; every pattern of bits is a number.
        unsafe {
            std::ptr::copy_nonoverlapping(at.cast::<u8>(), std::ptr::from_mut(self).cast(), used);
        }
    }

    /// As it goes to a server, and comes back.
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: numbers without padding, as long as the structure is.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The same from bytes; `None`: they are of another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: numbers only, and the length is looked at.
        (bytes.len() == size_of::<Self>())
            .then(|| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}
