// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inode numbers: each says what it is, no two things share one, and the kernel's view of them.

#[path = "../../model/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;

use proptest::prelude::*;
use reserv_model::{ContainerId, NODES_MAX, NodeId};
use reserv_namespace::*;

fn objects(resource: Resource, id: NodeId, pid: u32, serial: u64) -> Vec<Object> {
    let kinds = FileKind::ALL.iter().copied();
    let of = |file: FileKind| {
        if file.is_of_node() {
            Object::Node { resource, id, file }
        } else if file.is_of_process() {
            Object::Process { pid, file }
        } else {
            Object::Mount(file)
        }
    };
    let NodeId { index, generation } = id;
    let container = |file: &ContainerFile| {
        let id = ContainerId { index, generation };
        Object::Container { id, file: *file }
    };
    let fresh = [Object::Fresh(serial), Object::FreshContainer(serial)];
    kinds.map(of).chain(ContainerFile::ALL.iter().map(container)).chain(fresh).collect()
}

proptest! {
    #![proptest_config(common::config(1))]

    #[test]
    fn numbers_and_objects_follow_from_each_other(
        a in (0..RESOURCES_MAX, 0..NODES_MAX, any::<u32>(), any::<u32>(), 0..1_u64 << 56),
        b in (0..RESOURCES_MAX, 0..NODES_MAX, any::<u32>(), any::<u32>(), 0..1_u64 << 56),
    ) {
        let mut seen = BTreeMap::new();
        for (number, index, generation, pid, serial) in [a, b] {
            let resource = Resource::new(number).unwrap();
            for object in objects(resource, NodeId { index, generation }, pid, serial) {
                let ino = Ino::from(object);
                prop_assert_eq!(ino.object(), Some(object));
                prop_assert!(ino.0 != 0, "FUSE takes no inode 0");
                let before = seen.insert(ino, object);
                prop_assert!(before.is_none_or(|o| o == object));
                let queue = matches!(object, Object::Node { resource: Resource::CPU, file: FileKind::QueueDir, .. });
                let wanted = queue.then_some(NodeId { index, generation });
                prop_assert_eq!(ino.queue_id(), wanted);
                prop_assert_eq!(ino.0 >> 48 == QUEUE_DIR_WORD, queue);
            }
        }
    }

    #[test]
    fn any_number_is_an_object_or_nothing(word in any::<u64>(), area in 0..70_u64, kind in any::<u8>()) {
        for word in [word, area << 56 | u64::from(kind) << 48 | word >> 16, area << 56 | u64::from(kind) << 48] {
            if let Some(object) = Ino(word).object() {
                prop_assert_eq!(Ino::from(object), Ino(word));
            }
        }
    }
}

#[test]
fn numbers_that_the_kernel_side_relies_on() {
    // Constants, not functions of each other: who changes one sees here that BPF must follow.
    assert_eq!(QUEUE_DIR_WORD, 0x0102);
    assert_eq!(Ino::of_queue(NodeId::Q0), Ino(0x0102_0000_0001_0001));
    assert_eq!(
        Ino::of_queue(NodeId { index: 0x3fff, generation: u32::MAX }),
        Ino(0x0102_ffff_ffff_3fff)
    );
    assert_eq!(Ino::ROOT, Ino(1));
    assert_eq!(Ino::from(Object::Mount(FileKind::MountDir)), Ino::ROOT);
    assert_eq!(Ino::of_process(4242, FileKind::Default), Ino(0x3e30_0000_0000_1092));
    assert_eq!(Ino::fresh(7), Ino(0x3f00_0000_0000_0007));
    // No resource's: `rt_resolve` refuses them.
    assert_eq!(Ino::of_container(ContainerId::TOP, ContainerFile::Dir).0 >> 56, 17);
}

#[test]
fn numbers_of_nothing() {
    for word in [
        0,
        2,
        0xffff_ffff_ffff_ffff,
        0x4001_0000_0001_0001,
        0x110f_0000_0001_0001,
        0x0130_0000_0001_0001,
        0x00ff_0000_0000_0000,
        0x0005_0000_0000_0001,
        0x3e30_0001_0000_0001,
        0x3e02_0000_0000_0001,
    ] {
        assert_eq!(Ino(word).object(), None, "{word:#x}");
    }
}
