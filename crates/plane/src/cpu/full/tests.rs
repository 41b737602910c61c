// SPDX-License-Identifier: MIT OR Apache-2.0

use reserv_facts::tree::op;
use reserv_model::{Cap, Class, DeleteMode, Kind, NodeId, Op, Policy, TuneKey, Weight};

use super::{abi, load, refusal, registered};
use crate::PlaneError;
use crate::ops::encode;

/// The table that the compiler of the programs wrote, against ours.
#[test]
fn both_sides_agree_on_every_size_and_offset() {
    crate::layout::agrees(load::OBJECT, abi::LAYOUT, "bpf/abi.h");
    crate::layout::agrees(load::OBJECT_OF_ONE, abi::LAYOUT, "bpf/abi.h");
}

#[test]
fn edits_are_encoded_as_the_core_reads_them() {
    let id = NodeId { index: 7, generation: 3 };
    let create = encode(&Op::Create { id, parent: NodeId::ROOT, kind: Kind::Queue(Class::Fifo) });
    assert_eq!((create.code, create.node, create.parent), (op::CREATE, 3 << 32 | 7, 1 << 32));
    assert_eq!((create.a, create.b), (2, 3));
    let create =
        encode(&Op::Create { id, parent: NodeId::ROOT, kind: Kind::Scheduler(Policy::Sfq) });
    assert_eq!((create.a, create.b), (1, 0));
    let weight = Weight::from_milli(240).expect("a weight");
    assert_eq!(encode(&Op::Reweight { id, weight }).a, 240);
    let cap =
        |rate| encode(&Op::SetCap { id, cap: Some(Cap { rate_ns_per_s: rate, burst_ns: 5 }) });
    assert_eq!((cap(250_000_000).a, cap(250_000_000).b), (250_000, 5));
    assert_eq!(cap(1).a, 1, "a cap is never 'none' by rounding");
    assert_eq!(cap(Cap::RATE_MAX).a, 256_000_000);
    assert_eq!(encode(&Op::SetCap { id, cap: None }).a, 0);
    for (mode, a) in [(DeleteMode::Refuse, 0), (DeleteMode::Drain, 1), (DeleteMode::Flush, 1)] {
        assert_eq!(encode(&Op::Delete { id, mode }).a, a);
    }
}

#[test]
fn tunables_are_encoded_by_their_numbers() {
    let id = NodeId { index: 7, generation: 3 };
    let keys = TuneKey::ALL.into_iter().filter(|k| !k.is_of_child());
    let tunes: Vec<_> = keys.map(|key| encode(&Op::Tune { id, key, value: 9 })).collect();
    assert_eq!(tunes.iter().map(|t| t.a).collect::<Vec<_>>(), [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert!(tunes.iter().all(|t| (t.code, t.b) == (op::TUNE, 9)));
    let param = |key, value| encode(&Op::NodeParam { id, key, value });
    let (priority, request) = (param(TuneKey::Priority, 0), param(TuneKey::Request, 5));
    assert_eq!((priority.code, priority.a, priority.b), (op::NODE_PARAM, 1, 0));
    assert_eq!((request.a, request.b), (2, 5));
}

#[test]
fn the_registry_is_read() {
    assert!(
        (0..5).all(|policy| registered("RS_POLICIES", policy)) && !registered("RS_POLICIES", 5)
    );
    assert!((0..5).all(|class| registered("RS_CLASSES", class)) && !registered("RS_CLASSES", 5));
    assert!(!registered("RS_POLICIES", 99) && !registered("RS_NOTHING", 0));
}

#[test]
fn refusals_keep_their_kind() {
    let kind = |errno| refusal(errno, "x".into());
    assert!(matches!(kind(libc::ESTALE), PlaneError::NoNode(_)));
    assert!(matches!(kind(libc::EBUSY), PlaneError::Busy(_)));
    assert!(matches!(kind(libc::EAGAIN), PlaneError::Full(_)));
    assert!(matches!(kind(libc::ELOOP), PlaneError::Invalid(_)));
    assert!(matches!(kind(libc::EIO), PlaneError::Os { .. }));
}
