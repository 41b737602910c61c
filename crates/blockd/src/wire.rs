// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reservd and the block server say to each other: one question and one answer, each a packet
//! of a SOCK_SEQPACKET socket. Structures are as they lie in memory: both ends are of one build,
//! and HELLO compares the version.

use reserv_facts::tree::SLOTS;
pub use reserv_facts::tree::kind::{QUEUE, SCHED};
pub use reserv_facts::tree::policy::{CELLO, YFQ};
pub use reserv_facts::tree::{
    AUTO, BATCH_MAX, DRAINING, Q0, ROOT, ROUNDS, RsBatch, RsOp, TUNE_NS_MAX, WINDOW_MAX, class,
    cost, op, tune,
};

/// Of this protocol and of the book.
pub const VERSION: u32 = 4;
/// Nodes in one answer.
pub const NODES_MAX: usize = 512;
/// Most nodes of a tree.
pub const TREE_MAX: usize = SLOTS as usize;

/// What is asked.
pub mod what {
    /// Who are you? Answers [`super::Hello`].
    pub const HELLO: u32 = 1;
    /// A batch follows; the same comes back, with its answers.
    pub const EDIT: u32 = 2;
    /// Nodes from slot `a` on: [`super::Node`]s, and the slot to go on with in `a`, 0 at the end.
    pub const SAMPLE: u32 = 3;
    /// The node `a`.
    pub const SAMPLE_ONE: u32 = 4;
    /// The draining queue `a` goes, if nothing waits in it (EBUSY).
    pub const COLLECT: u32 = 5;
    /// The path of the pinned map of owners follows, the first slot of ours in `a`.
    pub const OWNERS: u32 = 6;
    /// At most `a` requests at once at the backend.
    pub const DEPTH: u32 = 7;
    /// Give the disk back and end. EBUSY while somebody uses it; who does follows in words. With
    /// `a` 1: only say so.
    pub const STOP: u32 = 8;
    /// How data move. Answers [`super::Copies`], and why all data are copied, in words, where they
    /// are.
    pub const COPIES: u32 = 9;
}

/// Of a deletion: `RsOp::a`.
pub mod delete {
    /// What waits goes to q0.
    pub const NOW: u64 = 0;
    /// The queue stays until COLLECT, and takes no new requests.
    pub const DRAIN: u64 = 1;
}

/// A question's head.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// [`what`]
    pub what: u32,
    /// The second of the monotonic clock after which whoever asked has given up: what is read later
    /// is not done. 0: there is none.
    pub until: u32,
    /// By what.
    pub a: u64,
}

/// An answer's head.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    /// 0, or a negative errno.
    pub answer: i32,
    /// How many structures follow.
    pub count: u32,
    /// By what.
    pub a: u64,
}

/// Who answers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Hello {
    /// [`VERSION`]
    pub version: u32,
    /// The worker.
    pub pid: u32,
    /// Device number of the disk that it offers, as the C library packs it; 0: not there yet.
    pub dev: u64,
    /// The last batch in effect.
    pub seq: u64,
    /// Its size in bytes.
    pub size: u64,
    /// 0, or why and where the tree is inconsistent.
    pub poison: u64,
    /// Workers before this one.
    pub restarts: u32,
    /// Requests at once at the backend.
    pub depth: u32,
    /// Requests without an owner in the map, which were q0's.
    pub strays: u64,
    /// The device's name, as in /dev.
    pub name: [u8; 32],
    /// What holds it: `loop`, `ublk`.
    pub front: [u8; 16],
}

/// How the data of requests moved, since the worker began.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Reads and writes that were begun.
    pub moved: u64,
    /// Those whose data we copied.
    pub copied: u64,
    /// Of these, those whose data the kernel could not register though it should.
    pub unregistered: u64,
    /// And those whose memory the disk below refused.
    pub refused: u64,
}

/// One node.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named as in sched.h")]
pub struct Node {
    pub id: u64,
    pub parent: u64,
    /// Bytes.
    pub service: u64,
    pub service_base: u64,
    /// Requests since the reset.
    pub served: u64,
    /// Bytes that wait.
    pub bytes: u64,
    pub weight: u32,
    /// Requests that wait.
    pub queued: u32,
    /// Requests at the backend.
    pub running: u32,
    pub kind: u8,
    pub alg: u8,
    pub dying: u8,
    pub pad: u8,
}

/// A structure of this module as bytes.
///
/// # Safety
/// `T` has no padding.
pub unsafe fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the caller's promise; the memory is as large as we say.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Bytes as a structure of plain numbers, of which all bits may be anything; `None`: too few.
///
/// # Safety
/// Every pattern of bits is a `T`.
pub unsafe fn of_bytes<T: Copy>(bytes: &[u8]) -> Option<T> {
    // SAFETY: the length is looked at, and the caller's promise.
    (bytes.len() >= size_of::<T>())
        .then(|| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}
