// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of tags (`bpf/tag/abi.h`, `bpf/use.h`): numbers of their calls, and who owns a
//! disk's request. All other structures are the plane's (crates/plane, tag/abi.rs, uses.rs).

shared! {
    /// Of `bpf/tag/abi.h`.
    ABI_VERSION: u32 = 16, "RT_ABI_VERSION";
    /// Resources; the CPU is number 0.
    RESOURCES: usize = crate::ino::RESOURCES_MAX as usize, "RT_RESOURCES";
    /// Places of one resource's nodes.
    SLOTS_OF_NODES: u32 = crate::tree::SLOTS, "RT_NODES_MAX";
    /// It takes no new tags.
    DYING: u64 = 1, "RT_DYING";
    /// Requests of a disk that can have an owner …
    SLOTS: usize = 4096, "RT_SLOTS";
    /// … and of one of its hardware queues.
    SLOTS_QUEUE: usize = 1024, "RT_SLOTS_QUEUE";
    /// Rules about the packets of a link.
    PACKET_RULES_MAX: usize = 64, "RT_PACKET_RULES_MAX";
}

/// Of the structures of `bpf/work.h`; the pins of their maps have it in their names.
/// `RT_WORK_VERSION`, which the plane's test of layouts compares.
pub const WORK_VERSION: u32 = 3;

shared! {
    /// `enum rt_kind`
    "RT_" mod kind: u64 { SCHEDULER = 1, QUEUE = 2 }
}

shared! {
    /// `enum rt_object_kind`
    "RT_" mod object_kind: u32 { NOTHING = 0, FILES = 1, INTERFACE = 2 }
}

shared! {
    /// `enum rt_above_how`
    "RT_" mod above_how: u64 { NOT_ABOVE = 0, LIVES = 1, PASSES = 2 }
}

shared! {
    /// `enum rt_walked`
    "RT_WALK_" mod walked: i32 { END = 0, FOUND = 1, MORE = 2, CHANGED = 3 }
}

shared! {
    /// `enum rt_what`
    "RT_CALL_" mod what: u32 {
        CONFIGURE = 1,
        STATE = 2,
        OBJECT = 3,
        OBJECT_GET = 4,
        NODE = 5,
        DROP = 6,
        RESET = 7,
        LISTS = 8,
        LIST_SET = 9,
        SWEEP = 10,
        RULED = 12,
        LINK = 13,
        TAG_FD = 14,
        UNTAG = 15,
        DISK = 16,
        ABOVE = 18,
        STORE = 19,
        STORED = 20,
        CLOSE = 21,
        EMPTY = 22,
        OWNED = 23,
    }
}

/// Rules about the use of queues (`bpf/use.h`).
pub mod rules {

    shared! {
        /// Of one queue, its own and those from above.
        MAX: usize = 16, "RT_RULES_MAX";
    }

    shared! {
        /// What of a rule must fit (`enum rt_rule_names`).
        "RT_" mod names: u32 { UID = 1, GID = 2, PID = 4 }
    }

    shared! {
        /// Who may in any case (`enum rt_may`).
        "RT_MAY_" mod may: u32 { USER = 1, ROOT = 2 }
    }
}

/// `struct rt_slot`: who owns a request of a disk. The programs in the kernel write it, the block
/// server reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// The queue, packed; 0: q0.
    pub node: u64,
    /// Counts the requests of all slots; 0: there was none.
    pub seq: u64,
    /// Where on the disk.
    pub offset: u64,
    /// How much.
    pub bytes: u32,
    /// Bit 0: not a read.
    pub write: u16,
    /// `bi_ioprio`
    pub priority: u16,
}
