// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link's programs (`bpf/net/abi.h`): numbers of their calls. Their structures are the plane's
//! (crates/plane, net/full/abi.rs).

shared! {
    /// Of `bpf/net/abi.h`.
    ABI_VERSION: u32 = 3, "RN_ABI_VERSION";
    /// Of what one version carries over from another.
    CARRY_VERSION: u32 = 1, "RN_CARRY_VERSION";
    /// All that there was has been carried over.
    FOLLOWS_ALL: u32 = u32::MAX, "RN_FOLLOWS_ALL";
    /// Nodes in one answer.
    SAMPLES_MAX: usize = 256, "RN_SAMPLES_MAX";
    /// Packets that may wait at one interface, in all queues together.
    PACKETS_MAX: u64 = 65_536, "RN_PACKETS";
}

shared! {
    /// `enum rn_what`
    "RN_" mod what: u32 {
        RATE = 1,
        LIMIT = 2,
        DEVICE = 3,
        COLLECT = 4,
        REVIVE = 5,
        FOLLOW = 6,
        CARRIED = 7,
        ALONE = 8,
        EMPTY = 9,
        SECTION = 10,
    }
}
