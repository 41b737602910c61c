// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust face of `bpf/receive/abi.h`. The object file carries a table of sizes and offsets
//! (`rv_layout`) with which a test compares these.

pub(super) use reserv_facts::receive::{ABI_VERSION, what};
use reserv_facts::receive::{DROPPERS, EDGES_MAX, RULES_MAX};

/// `struct rv_node`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RvNode {
    pub(super) lock: u32,
    pub(super) generation: u32,
    pub(super) rate: u32,
    pub(super) burst: u32,
    pub(super) period: u64,
    pub(super) credit: u64,
    pub(super) eligible: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) full: u64,
    pub(super) over: u64,
}

/// `struct rv_limit`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RvLimit {
    pub(super) lock: u32,
    pub(super) nothing: u32,
    pub(super) period: u64,
    pub(super) credit: u64,
    pub(super) eligible: u64,
    pub(super) mark: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
}

/// `struct rv_rule`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RvRule {
    pub(super) address: [u64; 2],
    pub(super) mask: [u64; 2],
    pub(super) node: u64,
    pub(super) local_first: u16,
    pub(super) local_last: u16,
    pub(super) protocol: u8,
    pub(super) protocol_mask: u8,
    pub(super) version: u8,
    pub(super) version_mask: u8,
    pub(super) next: u16,
    pub(super) limit: u16,
    pub(super) complement: u8,
    pub(super) pad: [u8; 3],
}

/// `struct rv_edge`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RvEdge {
    pub(super) high: u64,
    pub(super) low: u64,
    pub(super) rule: u32,
    pub(super) pad: u32,
}

/// `struct rv_table`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RvTable {
    pub(super) edges4: u32,
    pub(super) edges: u32,
    pub(super) edge: [RvEdge; EDGES_MAX],
    pub(super) rule: [RvRule; RULES_MAX],
}

/// `struct rv_dropper`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RvDropper {
    pub(super) from: [u64; 2],
    pub(super) count: u64,
    pub(super) over: u64,
}

/// `struct rv_droppers`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RvDroppers {
    pub(super) lock: u32,
    pub(super) pad: u32,
    pub(super) of: [RvDropper; DROPPERS],
}

/// `struct rv_others`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RvOthers {
    pub(super) shared: u64,
    pub(super) forwarded: u64,
    pub(super) nobody: u64,
    pub(super) elsewhere: u64,
}

/// `struct rv_call`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RvCall {
    pub(super) what: u32,
    pub(super) answer: i32,
    pub(super) node: u64,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) c: u64,
}

/// What `rv_layout` must say; in the order of the table in `bpf/receive/receive.bpf.c`.
#[cfg(test)]
pub(super) const LAYOUT: &[u32] = {
    use std::mem::{offset_of, size_of};

    use crate::layout::w;
    &[
        ABI_VERSION,
        w(size_of::<RvNode>()),
        w(offset_of!(RvNode, packets)),
        w(size_of::<RvOthers>()),
        w(size_of::<RvCall>()),
        w(offset_of!(RvCall, node)),
        reserv_facts::receive::TICKS_NS,
        w(size_of::<RvLimit>()),
        w(offset_of!(RvLimit, packets)),
        w(size_of::<RvRule>()),
        w(offset_of!(RvRule, complement)),
        w(size_of::<RvEdge>()),
        w(size_of::<RvTable>()),
        w(offset_of!(RvTable, rule)),
        w(size_of::<RvDroppers>()),
        w(offset_of!(RvDroppers, of)),
    ]
};
