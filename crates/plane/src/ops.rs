// SPDX-License-Identifier: MIT OR Apache-2.0
//! Edits as the scheduling core in the kernel reads them (`sched/batch.h`), for every driver that runs it there; and what its answers mean.

use std::io;
use std::mem::offset_of;
use std::sync::LazyLock;

use reserv_model::{Batch, DeleteMode, Kind, NodeId, Op, Outcome, show_cap};

use crate::PlaneError;
use crate::libbpf::os;

/// `RS_MAGIC`
pub(crate) const MAGIC: u64 = 0x7672_6573_6572_3031;
/// `RS_BATCH_MAX`
const BATCH_MAX: usize = 128;

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
const DRAINING: i32 = 1;

/// `struct rs_batch`
#[repr(C)]
pub(crate) struct RsBatch {
    pub(crate) seq: u64,
    pub(crate) now: u64,
    pub(crate) count: u32,
    pub(crate) error: i32,
    pub(crate) failed: u32,
    pub(crate) grants: u32,
    pub(crate) op: [RsOp; BATCH_MAX],
}

impl RsOp {
    /// What became of an edit of a batch that is in effect.
    pub(crate) const fn outcome(&self) -> Outcome {
        if self.answer == DRAINING { Outcome::Draining } else { Outcome::Done }
    }
}

impl RsBatch {
    /// The batch as the core reads it.
    pub(crate) fn new(batch: &Batch) -> Result<Self, PlaneError> {
        let count = batch.ops.len();
        if count > BATCH_MAX {
            return Err(PlaneError::Full(format!("{count} edits at once; at most {BATCH_MAX}")));
        }
        let mut op = [RsOp::default(); BATCH_MAX];
        for (slot, edit) in op.iter_mut().zip(&batch.ops) {
            *slot = encode(edit);
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Self { seq: batch.seq, now: 0, count, error: 0, failed: 0, grants: 0, op })
    }

    /// How many bytes of it mean something: the rest of its places is not copied to the kernel and back.
    fn used(&self) -> usize {
        offset_of!(Self, op) + (self.count as usize).min(BATCH_MAX) * size_of::<RsOp>()
    }

    /// Writes it to where the core reads it.
    ///
    /// # Safety
    /// `at` is valid for a batch, and nobody else uses it during the call.
    pub(crate) unsafe fn put(&self, at: *mut Self) {
        // SAFETY: as the caller says; numbers without padding.
        unsafe {
            std::ptr::copy_nonoverlapping(std::ptr::from_ref(self).cast::<u8>(), at.cast(), self.used());
        };
    }

    /// Reads back what the core answered to it.
    ///
    /// # Safety
    /// As `put`.
    pub(crate) unsafe fn take(&mut self, at: *const Self) {
        let used = self.used();
        // SAFETY: as the caller says; every pattern of bits is a number.
        unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), std::ptr::from_mut(self).cast(), used) };
    }

    /// As it goes to a server, and comes back.
    pub(crate) const fn bytes(&self) -> &[u8] {
        // SAFETY: numbers without padding, as long as the structure is.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The same from bytes; `None`: they are of another length.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: numbers only, and the length is looked at.
        (bytes.len() == size_of::<Self>()).then(|| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }

    /// Why it was refused, by the core's negative answer. `applied` says which number is the last in effect.
    pub(crate) fn refused(
        &self,
        batch: &Batch,
        answer: i32,
        applied: impl FnOnce() -> Result<Option<u64>, PlaneError>,
    ) -> PlaneError {
        if answer == -libc::ESTALE && batch.seq != 0 && self.failed == 0 {
            match applied() {
                Ok(last) if last >= Some(batch.seq) => {
                    let why = format!("batch {} is not newer than the last applied", batch.seq);
                    return PlaneError::Invalid(why);
                }
                Ok(_) => {}
                Err(error) => return error,
            }
        }
        let what = batch.ops.get(self.failed as usize).map_or_else(String::new, |op| words(op, -answer));
        refusal(-answer, what)
    }
}

/// A refused operation, for people; the node is named by who asked.
fn words(op: &Op, errno: i32) -> String {
    match *op {
        Op::Delete { mode: DeleteMode::Refuse, .. } if errno == libc::EBUSY => {
            "something is tagged with it, or it has children".into()
        }
        Op::Create { kind, .. } => format!("make a {}", kind.word()),
        Op::Delete { .. } => "delete it".into(),
        Op::Reweight { weight, .. } => format!("weight {weight}"),
        Op::SetCap { cap, .. } => format!("cap {}", show_cap(cap)),
        Op::SetClass { class, .. } => format!("class {class}"),
        Op::SetPolicy { policy, .. } => format!("policy {policy}"),
        Op::SetLimit { members_max, bytes_max, .. } => format!("limit {members_max}, {bytes_max} bytes"),
        Op::ResetCounters { .. } => "reset its counters".into(),
        Op::Tune { key, value, .. } | Op::NodeParam { key, value, .. } => format!("{} {value}", key.word()),
        Op::Move { .. } => "move it".into(),
    }
}

/// The algorithms that our programs were built with.
const REGISTRY: &str = include_str!("../../../sched/registry.h");

/// Whether a list of the registry has a number, without those that go by lengths, which no plane that asks has.
pub(crate) fn registered(list: &str, number: u8) -> bool {
    // Read once: every edit asks, and reading it was a fifth of what an edit takes.
    static LISTS: LazyLock<Vec<(&str, u8)>> = LazyLock::new(|| {
        let mut numbers = Vec::new();
        let mut list = None;
        for line in REGISTRY.lines() {
            if let Some(rest) = line.strip_prefix("#define ") {
                list = rest.split_once("_ANY(X)").map(|(name, _)| name);
            }
            for entry in line.split("X(").skip(1) {
                let number = entry.split(',').next().and_then(|word| word.parse().ok());
                numbers.extend(list.zip(number));
            }
            if !line.ends_with('\\') {
                list = None;
            }
        }
        numbers
    });
    LISTS.contains(&(list, number))
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
            let rate = cap.map_or(0, |cap| (cap.per_second() / 1000).clamp(1, 256_000_000));
            RsOp { a: rate, b: cap.map_or(0, |cap| cap.burst_ns), ..of(op::CAP, id) }
        }
        Op::SetClass { id, class } => RsOp { a: class as u64, ..of(op::CLASS, id) },
        Op::SetPolicy { id, policy } => RsOp { a: policy as u64, ..of(op::POLICY, id) },
        Op::Tune { id, key, value } => RsOp { a: key.code(), b: value, ..of(op::TUNE, id) },
        Op::NodeParam { id, key, value } => RsOp { a: key.code(), b: value, ..of(op::NODE_PARAM, id) },
        Op::SetLimit { id, members_max, bytes_max } => {
            RsOp { a: u64::from(members_max), b: u64::from(bytes_max), ..of(op::LIMIT, id) }
        }
        Op::ResetCounters { id } => of(op::RESET, id),
        Op::Move { id, parent } => RsOp { parent: parent.pack(), ..of(op::MOVE, id) },
    }
}
