// SPDX-License-Identifier: MIT OR Apache-2.0
//! Edits as the scheduling core in the kernel reads them (`sched/batch.h`), for every driver that
//! runs it there; and what its answers mean.

use std::io;
use std::sync::LazyLock;

use reserv_facts::tree::{BATCH_MAX, DRAINING, RsBatch, RsOp, SORTED_MAX, WALKED_MAX, kind, op};
use reserv_model::{Batch, DeleteMode, Kind, NodeId, Op, Outcome, show_cap};

use crate::PlaneError;
use crate::libbpf::os;

/// What became of an edit of a batch that is in effect.
pub(crate) const fn outcome(done: &RsOp) -> Outcome {
    if done.answer == DRAINING { Outcome::Draining } else { Outcome::Done }
}

/// A batch as the core reads it.
pub(crate) fn encoded(batch: &Batch) -> Result<RsBatch, PlaneError> {
    let count = batch.ops.len();
    if count > BATCH_MAX {
        return Err(PlaneError::Full(format!("{count} edits at once; at most {BATCH_MAX}")));
    }
    let mut op = [RsOp::default(); BATCH_MAX];
    for (slot, edit) in op.iter_mut().zip(&batch.ops) {
        *slot = encode(edit);
    }
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok(RsBatch { seq: batch.seq, count, op, ..RsBatch::default() })
}

/// Why it was refused, by the core's negative answer. `applied` says which number is the last in
/// effect.
pub(crate) fn refused(
    done: &RsBatch,
    batch: &Batch,
    answer: i32,
    applied: impl FnOnce() -> Result<Option<u64>, PlaneError>,
) -> PlaneError {
    if answer == -libc::ESTALE && batch.seq != 0 && done.failed == 0 {
        match applied() {
            Ok(last) if last >= Some(batch.seq) => {
                let why = format!("batch {} is not newer than the last applied", batch.seq);
                return PlaneError::Invalid(why);
            }
            Ok(_) => {}
            Err(error) => return error,
        }
    }
    let what =
        batch.ops.get(done.failed as usize).map_or_else(String::new, |op| words(op, -answer));
    refusal(-answer, what)
}

/// A refused operation, for people; the node is named by who asked.
fn words(op: &Op, errno: i32) -> String {
    match *op {
        Op::Delete { mode: DeleteMode::Refuse, .. } if errno == libc::EBUSY => {
            "something is tagged with it, or it has children".into()
        }
        // They are sorted anew in one section with interrupts off.
        Op::SetClass { class, .. } if errno == libc::EBUSY => format!(
            "class {class}: more than {SORTED_MAX} threads wait in it; try again when fewer do, or put \
             them into a new queue of that class"
        ),
        // Each gets its new depth in the same section.
        Op::Move { .. } if errno == libc::EBUSY => format!(
            "what is moved at once has more than {WALKED_MAX} nodes below it, or is too many \
             moves; move a part at a time"
        ),
        Op::Create { kind, .. } => format!("make a {}", kind.word()),
        Op::Delete { .. } => "delete it".into(),
        Op::Reweight { weight, .. } => format!("weight {weight}"),
        Op::SetCap { cap, .. } => format!("cap {}", show_cap(cap)),
        Op::SetClass { class, .. } => format!("class {class}"),
        Op::SetPolicy { policy, .. } => format!("policy {policy}"),
        Op::SetLimit { members_max, bytes_max, .. } => {
            format!("limit {members_max}, {bytes_max} bytes")
        }
        Op::ResetCounters { .. } => "reset its counters".into(),
        Op::Tune { key, value, .. } | Op::NodeParam { key, value, .. } => {
            format!("{} {value}", key.word())
        }
        Op::Move { .. } => "move it".into(),
    }
}

/// The algorithms that our programs were built with.
const REGISTRY: &str = include_str!("../../../sched/registry.h");

/// Whether a list of the registry has a number, without those that go by lengths, which no plane
/// that asks has.
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
        libc::E2BIG => PlaneError::TooMuch(what),
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
        Op::Create { id, parent, kind: made } => {
            let (a, b) = match made {
                Kind::Scheduler(policy) => (kind::SCHED.into(), policy as u64),
                Kind::Queue(class) => (kind::QUEUE.into(), class as u64),
            };
            RsOp { parent: parent.pack(), a, b, ..of(op::CREATE, id) }
        }
        Op::Delete { id, mode } => {
            RsOp { a: u64::from(mode != DeleteMode::Refuse), ..of(op::DELETE, id) }
        }
        Op::Reweight { id, weight } => {
            RsOp { a: u64::from(weight.milli()), ..of(op::REWEIGHT, id) }
        }
        Op::SetCap { id, cap } => {
            // Work per 10^6 of time; more than the machine has is no cap that could be felt.
            let rate = cap.map_or(0, |cap| (cap.per_second() / 1000).clamp(1, 256_000_000));
            RsOp { a: rate, b: cap.map_or(0, |cap| cap.burst_ns), ..of(op::CAP, id) }
        }
        Op::SetClass { id, class } => RsOp { a: class as u64, ..of(op::CLASS, id) },
        Op::SetPolicy { id, policy } => RsOp { a: policy as u64, ..of(op::POLICY, id) },
        Op::Tune { id, key, value } => RsOp { a: key.code(), b: value, ..of(op::TUNE, id) },
        Op::NodeParam { id, key, value } => {
            RsOp { a: key.code(), b: value, ..of(op::NODE_PARAM, id) }
        }
        Op::SetLimit { id, members_max, bytes_max } => {
            RsOp { a: u64::from(members_max), b: u64::from(bytes_max), ..of(op::LIMIT, id) }
        }
        Op::ResetCounters { id } => of(op::RESET, id),
        Op::Move { id, parent } => RsOp { parent: parent.pack(), ..of(op::MOVE, id) },
    }
}
