// SPDX-License-Identifier: MIT OR Apache-2.0
//! Edits as the scheduling core in the kernel reads them (`sched/batch.h`), for every driver that runs it there; and what its answers mean.

use std::io;

use reserv_model::{DeleteMode, Kind, NodeId, Op};

use crate::PlaneError;
use crate::libbpf::os;

/// `RS_MAGIC`
pub(crate) const MAGIC: u64 = 0x7672_6573_6572_3031;
/// `RS_BATCH_MAX`
pub(crate) const BATCH_MAX: usize = 128;

/// `struct rs_op`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RsOp {
    pub(crate) code: u32,
    pub(crate) answer: i32,
    pub(crate) node: u64,
    pub(crate) parent: u64,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) undo: [u64; 2],
}

/// `enum rs_op_code`
pub(crate) mod op {
    pub(crate) const CREATE: u32 = 1;
    pub(crate) const DELETE: u32 = 2;
    pub(crate) const REWEIGHT: u32 = 3;
    pub(crate) const CAP: u32 = 4;
    pub(crate) const CLASS: u32 = 5;
    pub(crate) const POLICY: u32 = 6;
    pub(crate) const LIMIT: u32 = 7;
    pub(crate) const RESET: u32 = 8;
    pub(crate) const MOVE: u32 = 9;
    pub(crate) const TUNE: u32 = 10;
    pub(crate) const NODE_PARAM: u32 = 11;
}

/// `RS_DRAINING`
pub(crate) const DRAINING: i32 = 1;

/// `struct rs_batch`
#[repr(C)]
pub(crate) struct RsBatch {
    pub(crate) seq: u64,
    pub(crate) now: u64,
    pub(crate) count: u32,
    pub(crate) error: i32,
    pub(crate) failed: u32,
    pub(crate) pad0: u32,
    pub(crate) op: [RsOp; BATCH_MAX],
}

/// The algorithms that our programs were built with.
const REGISTRY: &str = include_str!("../../../sched/registry.h");

/// Whether a list of the registry has a number, without those that go by lengths, which no plane that asks has.
pub(crate) fn registered(list: &str, number: u8) -> bool {
    let text = REGISTRY.replace("\\\n", " ");
    let head = format!("#define {list}_ANY(X)");
    text.lines().any(|line| line.starts_with(&head) && line.contains(&format!("X({number},")))
}

/// An error of the kernel, by its negative number.
pub(crate) fn io_error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number.abs())
}

/// A negative answer, in the contract's words.
pub(crate) fn refusal(errno: i32, what: String) -> PlaneError {
    match errno {
        libc::ENOENT | libc::ESTALE => PlaneError::NoNode(what),
        libc::EBUSY => PlaneError::Busy(what),
        libc::EAGAIN | libc::ENOSPC | libc::ENOMEM => PlaneError::Full(what),
        libc::EINVAL | libc::EEXIST | libc::ELOOP => {
            PlaneError::Invalid(format!("{what}: {}", io_error(errno)))
        }
        _ => os(what)(io_error(errno)),
    }
}

/// One edit.
pub(crate) fn encode(edit: &Op) -> RsOp {
    let of = |code: u32, id: NodeId| RsOp { code, node: id.pack(), ..RsOp::default() };
    match *edit {
        Op::Create { id, parent, kind } => {
            let (a, b) = match kind {
                Kind::Scheduler(policy) => (1, policy as u64),
                Kind::Queue(class) => (2, class as u64),
            };
            RsOp { parent: parent.pack(), a, b, ..of(op::CREATE, id) }
        }
        Op::Delete { id, mode } => RsOp { a: u64::from(mode != DeleteMode::Refuse), ..of(op::DELETE, id) },
        Op::Reweight { id, weight } => RsOp { a: u64::from(weight.milli()), ..of(op::REWEIGHT, id) },
        Op::SetCap { id, cap } => {
            // Work per 10^6 of time; more than the machine has is no cap that could be felt.
            let rate = cap.map_or(0, |cap| (cap.rate_ns_per_s / 1000).clamp(1, 256_000_000));
            RsOp { a: rate, b: cap.map_or(0, |cap| cap.burst_ns), ..of(op::CAP, id) }
        }
        Op::SetClass { id, class } => RsOp { a: class as u64, ..of(op::CLASS, id) },
        Op::SetPolicy { id, policy } => RsOp { a: policy as u64, ..of(op::POLICY, id) },
        Op::Tune { id, key, value } => RsOp { a: key.code(), b: value, ..of(op::TUNE, id) },
        Op::NodeParam { id, key, value } => RsOp { a: key.code(), b: value, ..of(op::NODE_PARAM, id) },
        Op::SetLimit { id, members_max } => RsOp { a: u64::from(members_max), ..of(op::LIMIT, id) },
        Op::ResetCounters { id } => of(op::RESET, id),
        Op::Move { id, parent } => RsOp { parent: parent.pack(), ..of(op::MOVE, id) },
    }
}
