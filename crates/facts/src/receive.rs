// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs at a link's entrance (`bpf/receive/abi.h`): numbers of their calls. Their
//! structures are the plane's (crates/plane, receive/abi.rs).

shared! {
    /// Of `bpf/receive/abi.h`.
    ABI_VERSION: u32 = 2, "RV_ABI_VERSION";
    /// Parts of a nanosecond in which times of a rate are told.
    TICKS_NS: u32 = 16, "RV_TICKS_NS";
    /// Most packets a second that a queue's rate can be.
    RATE_MAX: u64 = 100_000_000, "RV_RATE_MAX";
    /// Most packets of a burst.
    BURST_MAX: u64 = 65_536, "RV_BURST_MAX";
    /// Packets of a burst, where none is told.
    BURST: u64 = 32, "RV_BURST";
    /// Most rules about who comes over one link.
    RULES_MAX: usize = 256, "RV_RULES_MAX";
    /// Most of them that are asked for one packet.
    CHAIN_MAX: usize = 64, "RV_CHAIN_MAX";
    /// Places for what they count: those of rules that come are not those of rules that go.
    COUNTS_MAX: u32 = 512, "RV_COUNTS_MAX";
    /// Addresses at which another rule is the first that fits, or may be, and those at 0.
    EDGES_MAX: usize = 1024, "RV_EDGES_MAX";
    /// Prefixes that a queue can name of those whose packets it lost.
    DROPPERS: usize = 16, "RV_DROPPERS";
    /// The index of no rule.
    NO_RULE: u16 = 0xffff, "RV_NO_RULE";
}

shared! {
    /// `enum rv_what`
    "RV_CALL_" mod what: u32 {
        STATE = 1,
        BEGIN = 2,
        NODE = 3,
        DROP = 4,
        TUNE = 5,
        RESET = 6,
    }
}

shared! {
    /// `enum rv_tune`
    "RV_TUNE_" mod tune: u64 { RATE = 1, BURST = 2 }
}
