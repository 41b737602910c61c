// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust face of `bpf/net/abi.h`. The object file carries a table of sizes and offsets
//! (`rn_layout`) with which a test compares it.

pub(super) use reserv_facts::net::{ABI_VERSION, CARRY_VERSION, FOLLOWS_ALL, SAMPLES_MAX, what};
pub(super) use reserv_facts::tree::{MAGIC, RsBatch};

/// `struct rn_node`
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RnNode {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) service: u64,
    pub(super) service_base: u64,
    pub(super) served: u64,
    pub(super) throttled_ns: u64,
    pub(super) cap_ppm: u64,
    pub(super) cap_burst: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
    pub(super) dropped_bytes: u64,
    pub(super) weight: u32,
    pub(super) packets: u32,
    pub(super) limit_packets: u32,
    pub(super) limit_bytes: u32,
    pub(super) kind: u8,
    pub(super) alg: u8,
    pub(super) throttled: u8,
    pub(super) dying: u8,
    pub(super) pad: [u8; 4],
}

/// `struct rn_io`
#[repr(C)]
pub(super) union RnIo {
    pub(super) batch: std::mem::ManuallyDrop<RsBatch>,
    pub(super) node: [RnNode; SAMPLES_MAX],
}

/// `struct rn_call`
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RnCall {
    pub(super) node: u64,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) what: u32,
    pub(super) answer: i32,
}

/// `struct rn_state`: of any version; one before a member reads 0 there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RnState {
    pub(super) magic: u64,
    pub(super) abi: u32,
    pub(super) rs_abi: u32,
    pub(super) attached: u64,
    pub(super) detached: u64,
    pub(super) seq: u64,
    pub(super) rate: u64,
    pub(super) netns: u64,
    pub(super) ifindex: u32,
    pub(super) limit_packets: u32,
    pub(super) limit_bytes: u32,
    pub(super) nodes_used: u32,
    pub(super) flushed: u64,
    pub(super) no_room: u64,
    pub(super) poison: u32,
    pub(super) poison_line: u32,
    pub(super) flushed_bytes: u64,
    pub(super) carry: u32,
    pub(super) build: u32,
    pub(super) follows: u32,
    pub(super) section_line: u32,
    pub(super) section_ns: u64,
}

/// What `rn_layout` must say; in the order of the table in `bpf/net/net.bpf.c`.
#[cfg(test)]
pub(super) const LAYOUT: &[u32] = {
    use std::mem::{offset_of, size_of};

    use crate::layout::w;
    &[
        ABI_VERSION,
        w(size_of::<RnNode>()),
        w(offset_of!(RnNode, dying)),
        w(size_of::<RnIo>()),
        w(size_of::<RnCall>()),
        w(offset_of!(RnCall, answer)),
        w(size_of::<RnState>()),
        w(offset_of!(RnState, poison_line)),
        w(offset_of!(RnState, follows)),
        w(offset_of!(RnState, section_ns)),
        CARRY_VERSION,
    ]
};
