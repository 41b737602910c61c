// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs at a link's entrance (`bpf/receive/abi.h`): numbers of their calls. Their
//! structures are the plane's (crates/plane, receive/abi.rs).

shared! {
    /// Of `bpf/receive/abi.h`.
    ABI_VERSION: u32 = 1, "RV_ABI_VERSION";
    /// Parts of a nanosecond in which times of a rate are told.
    TICKS_NS: u32 = 16, "RV_TICKS_NS";
    /// Most packets a second that a queue's rate can be.
    RATE_MAX: u64 = 100_000_000, "RV_RATE_MAX";
    /// Most packets of a burst.
    BURST_MAX: u64 = 65_536, "RV_BURST_MAX";
    /// Packets of a burst, where none is told.
    BURST: u64 = 32, "RV_BURST";
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
