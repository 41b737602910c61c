// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust face of `bpf/receive/abi.h`. The object file carries a table of sizes and offsets
//! (`rv_layout`) with which a test compares these.

pub(super) use reserv_facts::receive::{ABI_VERSION, what};

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
    ]
};
