// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls by which programs tag threads, files and sockets: commands of fcntl(2), and options of
//! sockets. `bpf/abi.h`, `bpf/page.h` and `bpf/tag/abi.h` say what each does and when it is refused.

shared! {
    /// Commands of fcntl(2).
    "F_RESERV_" mod fcntl: i32 {
        CHCPURES = 0x5253_0001,
        GETCPURES = 0x5253_0002,
        SETPARAM = 0x5253_0003,
        GETPARAM = 0x5253_0004,
        SET_QUEUE = 0x5253_0005,
        GET_QUEUE = 0x5253_0006,
        BIND = 0x5253_0007,
        UNBIND = 0x5253_0008,
        BOUND = 0x5253_0009,
        SLOT = 0x5253_000a,
        PAGE = 0x5253_000b,
    }
}

shared! {
    /// The level of the options of sockets.
    SOL: i32 = 0x5253, "SOL_RESERV";
    /// As [`fcntl::SET_QUEUE`].
    SO_QUEUE: i32 = 5, "SO_RESERV_QUEUE";
    /// As [`fcntl::GET_QUEUE`], with the number of a resource added.
    SO_QUEUE_OF: i32 = 0x100, "SO_RESERV_QUEUE_OF";
}

shared! {
    /// Bits of a slot's number in an entry of a [`ThreadPage`], slots that a process has (0 is
    /// none), and entries.
    "RC_" mod page: usize { SLOT_BITS = 10, SLOTS = 1024, PAGE_LOG = 256 }
}

/// `struct rc_anchor`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named as in bpf/page.h")]
pub struct Anchor {
    pub ticks: u64,
    pub ns: u64,
    pub rate: u64,
}

/// `struct rc_page`: the argument of [`fcntl::PAGE`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "named as in bpf/page.h")]
pub struct ThreadPage {
    pub size: u32,
    pub which: u32,
    pub head: u64,
    pub anchor: [Anchor; 2],
    /// Ticks of the anchor in force. With the next one this is `own`, and the library's alone.
    pub since: u64,
    /// After so many an anchor is old.
    pub every: u64,
    pub log: [u64; page::PAGE_LOG],
}

impl ThreadPage {
    /// What stands in `size`.
    #[expect(clippy::cast_possible_truncation, reason = "2128")]
    pub const SIZE: u32 = size_of::<Self>() as u32;
}

/// `struct rc_thread_param`: the argument of [`fcntl::SETPARAM`] and [`fcntl::GETPARAM`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named as in bpf/abi.h")]
pub struct ThreadParam {
    pub size: u32,
    pub weight: u32,
    pub priority: u32,
    pad: u32,
    pub period_ns: u64,
    pub budget_ns: u64,
    pub deadline_ns: u64,
}

impl ThreadParam {
    /// With its size, as the kernel wants it.
    #[expect(clippy::cast_possible_truncation, reason = "40")]
    pub fn new() -> Self {
        Self { size: size_of::<Self>() as u32, ..Self::default() }
    }
}
