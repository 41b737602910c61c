// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust face of `bpf/tag/abi.h`. The object file carries a table of sizes and offsets
//! (`rt_layout`) with which a test compares these.

pub(super) use reserv_facts::tag::{
    ABI_VERSION, DYING, PACKET_RULES_MAX, RESOURCES, SLOTS, SLOTS_OF_NODES as NODES_MAX, above_how,
    kind, object_kind, walked, what,
};

/// `struct rt_node`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtNode {
    pub(super) generation: u32,
    pub(super) descriptors: u32,
    pub(super) user: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) may: u8,
    pub(super) pad: u8,
    pub(super) defaults: u32,
    pub(super) child_defaults: u32,
    pub(super) operations: u64,
    pub(super) bytes: u64,
}

/// `struct rt_object`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtObject {
    pub(super) kind: u32,
    pub(super) number: u32,
    pub(super) netns: u64,
}

/// `struct rt_above`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtAbove {
    pub(super) lives: u32,
    pub(super) passes: u32,
}

/// `RT_USE_KEY`
pub(super) const fn use_key(resource: u8, node: u64) -> u64 {
    node | (resource as u64) << 16
}

/// `struct rt_packet_rule`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtPacketRule {
    pub(super) address: [u64; 2],
    pub(super) mask: [u64; 2],
    pub(super) node: u64,
    pub(super) port_first: u16,
    pub(super) port_last: u16,
    pub(super) local_first: u16,
    pub(super) local_last: u16,
    pub(super) protocol: u8,
    pub(super) protocol_mask: u8,
    pub(super) version: u8,
    pub(super) version_mask: u8,
    pub(super) pad: [u8; 4],
}

/// `struct rt_packet_table`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RtPacketTable {
    pub(super) count: u32,
    pub(super) pad: u32,
    pub(super) rule: [RtPacketRule; PACKET_RULES_MAX],
}

/// `enum rt_list`, `struct rt_lists`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtLists {
    pub(super) list: [[u64; RESOURCES]; 2],
    pub(super) born: u64,
    pub(super) account: u64,
}

/// `struct rt_walk`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtWalk {
    pub(super) answer: i32,
    pub(super) tgid: i32,
    pub(super) tid: i32,
    pub(super) others: u32,
    pub(super) at: u64,
    pub(super) node: u64,
    pub(super) key: u64,
    pub(super) fd: u32,
    pub(super) resource: u32,
}

/// `struct rt_stored`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtStored {
    pub(super) answer: i32,
    pub(super) resource: u32,
    pub(super) node: u64,
    pub(super) at: u32,
    pub(super) count: u32,
}

/// `struct rt_file`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtFile {
    pub(super) file: u64, // in `hot`; in `files` whose the entry is
    pub(super) tag: u64,
}

/// `struct rt_sock`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtSock {
    pub(super) slot: [u64; RESOURCES],
    pub(super) said: u32,
    pub(super) account: u32,
    pub(super) sent: [u64; RESOURCES],
    pub(super) works: [u64; RESOURCES],
    pub(super) epoch: u64,
}

/// `struct rt_owned`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RtOwned {
    pub(super) queue: u64,
    pub(super) node: [u64; RESOURCES],
}

/// `struct rt_call`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RtCall {
    pub(super) what: u32,
    pub(super) answer: i32,
    pub(super) resource: u32,
    pub(super) pid: i32,
    pub(super) node: u64,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) object: RtObject,
}

impl RtCall {
    pub(super) const fn new(what: u32) -> Self {
        Self {
            what,
            answer: 0,
            resource: 0,
            pid: 0,
            node: 0,
            a: 0,
            b: 0,
            object: RtObject { kind: object_kind::NOTHING, number: 0, netns: 0 },
        }
    }
}

/// What `rt_layout` must say; in the order of the table in `bpf/tag/tag.bpf.c`.
#[cfg(test)]
pub(super) const LAYOUT: &[u32] = {
    use std::mem::{offset_of, size_of};

    use crate::layout::w;
    use crate::uses::{RtRule, RtUse};
    use crate::work::{RtSlots, RtWork, RtWorks};
    use reserv_facts::tag::WORK_VERSION;
    &[
        ABI_VERSION,
        NODES_MAX,
        w(size_of::<RtNode>()),
        w(offset_of!(RtNode, bytes)),
        w(size_of::<RtObject>()),
        w(size_of::<RtRule>()),
        w(offset_of!(RtRule, start)),
        w(size_of::<reserv_facts::tag::Slot>()),
        1 << 16, // use_key(1, 0)
        w(size_of::<RtUse>()),
        w(size_of::<RtPacketRule>()),
        w(offset_of!(RtPacketRule, protocol)),
        w(size_of::<RtPacketTable>()),
        w(size_of::<RtLists>()),
        w(size_of::<RtWalk>()),
        w(offset_of!(RtWalk, resource)),
        w(size_of::<RtStored>()),
        w(offset_of!(RtStored, count)),
        w(size_of::<RtAbove>()),
        w(size_of::<RtFile>()),
        w(size_of::<RtSock>()),
        w(size_of::<RtOwned>()),
        w(size_of::<RtCall>()),
        w(offset_of!(RtCall, object)),
        // Whoever changes one of these has another version: crate::work.
        WORK_VERSION,
        w(size_of::<RtWork>()),
        w(offset_of!(RtWork, back)),
        w(offset_of!(RtWork, epoch)),
        w(offset_of!(RtWork, listed)),
        w(offset_of!(RtWork, times)),
        w(offset_of!(RtWork, page)),
        w(offset_of!(RtWork, head)),
        w(offset_of!(RtWork, execs)),
        w(size_of::<RtSlots>()),
        w(offset_of!(RtSlots, generation)),
        w(offset_of!(RtSlots, index)),
        w(size_of::<RtWorks>()),
        w(offset_of!(RtWorks, used)),
    ]
};
