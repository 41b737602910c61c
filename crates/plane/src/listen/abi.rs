// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust face of `bpf/listen/abi.h`. The object file carries a table of sizes and offsets
//! (`rl_layout`) with which a test compares these.

use reserv_facts::listen::{CLIENTS_MAX, SET_MAX, USERS_MAX};

/// `struct rl_address`
pub(super) type RlAddress = [u8; 16];

/// `struct rl_door`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RlDoor {
    pub(super) protocol: u8,
    pub(super) version: u8,
    pub(super) port: u16,
    pub(super) local: RlAddress,
}

/// `RL_DOOR_BITS`
#[expect(clippy::cast_possible_truncation, reason = "160")]
pub(super) const DOOR_BITS: u32 = 8 * size_of::<RlDoor>() as u32;

/// `struct rl_key`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RlKey {
    pub(super) bits: u32,
    pub(super) door: RlDoor,
    pub(super) client: RlAddress,
}

/// `struct rl_set`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RlSet {
    pub(super) count: u32,
    pub(super) bits: u32,
    pub(super) joined: u64,
    pub(super) free: u64,
    pub(super) socket: [u64; SET_MAX],
}

impl Default for RlSet {
    fn default() -> Self {
        Self { count: 0, bits: 0, joined: 0, free: 0, socket: [0; SET_MAX] }
    }
}

/// `struct rl_rest_key`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RlRestKey {
    pub(super) door: RlDoor,
    pub(super) index: u32,
}

/// `struct rl_rest`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RlRest {
    pub(super) but: RlAddress,
    pub(super) but_bits: u32,
    pub(super) pad: u32,
    pub(super) set: RlSet,
}

/// `struct rl_own`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RlOwn {
    pub(super) rests: u32,
    pub(super) pad: u32,
    pub(super) set: RlSet,
}

/// `struct rl_client`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RlClient {
    pub(super) address: RlAddress,
    pub(super) bits: u8,
    pub(super) version: u8,
    pub(super) complement: u8,
    pub(super) pad: u8,
}

/// `struct rl_listener`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RlListener {
    pub(super) inode: u64,
    pub(super) user: u32,
    pub(super) bound: u16,
    pub(super) port: u16,
    pub(super) protocol: u8,
    pub(super) versions: u8,
    pub(super) free: u8,
    pub(super) clients: u8,
    pub(super) users: u8,
    pub(super) pad: [u8; 3],
    pub(super) local: RlAddress,
    pub(super) client: [RlClient; CLIENTS_MAX],
    pub(super) allowed: [u32; USERS_MAX],
}

/// What `rl_layout` must say; in the order of the table in `bpf/listen/listen.bpf.c`.
#[cfg(test)]
pub(super) const LAYOUT: &[u32] = {
    use std::mem::offset_of;

    use crate::layout::w;
    &[
        reserv_facts::listen::ABI_VERSION,
        w(size_of::<RlDoor>()),
        w(size_of::<RlKey>()),
        w(size_of::<RlSet>()),
        w(offset_of!(RlSet, socket)),
        w(size_of::<RlRestKey>()),
        w(size_of::<RlRest>()),
        w(offset_of!(RlRest, set)),
        w(size_of::<RlOwn>()),
        w(size_of::<RlClient>()),
        w(size_of::<RlListener>()),
        w(offset_of!(RlListener, client)),
        w(offset_of!(RlListener, allowed)),
    ]
};
