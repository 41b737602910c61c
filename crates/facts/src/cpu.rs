// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU's programs (`bpf/abi.h`): numbers of their calls. Their structures are the plane's
//! (crates/plane, cpu/full/abi.rs).

shared! {
    /// Of `bpf/abi.h`.
    ABI_VERSION: u32 = 12, "RC_ABI_VERSION";
    /// Nodes in one answer.
    SAMPLES_MAX: usize = 256, "RC_SAMPLES_MAX";
    /// Threads in one answer.
    MEMBERS_MAX: usize = 4096, "RC_MEMBERS_MAX";
    /// Bytes of the kernel's words.
    TEXT_MAX: usize = 160, "RC_TEXT_MAX";
    /// q0 is one queue, whatever the cgroups are.
    SETUP_FLAT: u32 = 1, "RC_SETUP_FLAT";
}

shared! {
    /// `enum rc_do`
    "RC_DO_" mod to: u32 {
        SETUP = 1,
        REFRESH = 2,
        EDIT = 3,
        SAMPLE = 4,
        SAMPLE_ONE = 5,
        MEMBERS = 6,
        TAG = 7,
        TAG_GET = 8,
        PARAM = 9,
        LISTS_GET = 10,
        LISTS_SET = 11,
        CONFIGURE = 12,
        TRACING = 13,
        FORGET = 14,
    }
}

shared! {
    /// Of [`to::PARAM`].
    "RC_PARAM_" mod param: u32 { SET = 0, GET = 1 }
}

shared! {
    /// Of [`to::TAG`].
    "RC_TAG_" mod tag: u32 { SET = 0, LEAVE = 1 }
}

shared! {
    /// `enum rc_trace_call`
    "RC_TRACE_" mod tracing: u32 { OFF = 0, ON = 1, CLAIM = 2, CLAIM_FORCE = 3, PAUSE = 4 }
}

shared! {
    /// `enum rc_trace_kind`: what a record of a trace is.
    "RC_TRACE_" mod trace: u8 {
        START = 1,
        END = 2,
        NODE = 3,
        ITEM = 4,
        SETTLE = 5,
        WAKE = 6,
        REMOVE = 7,
        MOVE = 8,
        FLOOR = 9,
        FORCED = 10,
        EDIT = 11,
        GONE_NODE = 12,
        RESET = 13,
        TUNE = 14,
        CHILD = 15,
        PARAM = 16,
        SERVER = 17,
    }
}
