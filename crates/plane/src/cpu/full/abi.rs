// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust face of `bpf/abi.h` and of the batch in `sched/batch.h`. The object file carries a
//! table of sizes and offsets (`rc_layout`) with which a test compares these.

pub(super) use reserv_facts::cpu::{
    ABI_VERSION, MEMBERS_MAX, SAMPLES_MAX, SETUP_FLAT, TEXT_MAX, param, tag, to,
};
pub(super) use reserv_facts::tree::{ITEMS_MAX, MAGIC, RsBatch, UNITS_MAX};

/// `struct rc_node`
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RcNode {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) service: u64,
    pub(super) service_base: u64,
    pub(super) served: u64,
    pub(super) throttled_ns: u64,
    pub(super) cap_ppm: u64,
    pub(super) cap_burst: u64,
    pub(super) request: u64,
    pub(super) weight: u32,
    pub(super) queued: u32,
    pub(super) running: u32,
    pub(super) members: u32,
    pub(super) members_max: u32,
    pub(super) kind: u8,
    pub(super) alg: u8,
    pub(super) throttled: u8,
    pub(super) dying: u8,
}

/// `struct rc_run`
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RcRun {
    pub(super) node: u64,
    pub(super) ran: u64,
}

/// The part of `struct rc_io` that `rc_sample` fills.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RcSamples {
    pub(super) node: [RcNode; SAMPLES_MAX],
    pub(super) run: [RcRun; UNITS_MAX],
}

/// `struct rc_param`
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RcParam {
    pub(super) weight: u32,
    pub(super) prio: u32,
    pub(super) period_ns: u64,
    pub(super) budget_ns: u64,
    pub(super) deadline_ns: u64,
}

/// `struct rc_member`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RcMember {
    pub(super) tgid: i32,
    pub(super) tid: i32,
    pub(super) param: RcParam,
}

/// `struct rc_io`
#[repr(C)]
pub(super) union RcIo {
    pub(super) batch: std::mem::ManuallyDrop<RsBatch>,
    pub(super) samples: RcSamples,
    pub(super) member: [RcMember; MEMBERS_MAX],
    pub(super) param: RcParam,
}

/// `struct rc_call`
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RcCall {
    pub(super) node: u64,
    pub(super) node2: u64,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) tid: i32,
    pub(super) what: u32,
    pub(super) answer: i32,
    pub(super) runs: u32,
    /// See [`to`].
    pub(super) call: u32,
    pub(super) pad: u32,
}

/// `struct rc_group`
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RcGroup {
    pub(super) queue: u64,
    pub(super) tg: u64,
    pub(super) period_us: u64,
    pub(super) quota_us: u64,
    pub(super) burst_us: u64,
    pub(super) weight: u32,
    pub(super) folded: u8,
    pub(super) watch: u8,
    pub(super) pad: u8,
    pub(super) dirty: u8,
}

/// `struct rc_state`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RcState {
    pub(super) magic: u64,
    pub(super) abi: u32,
    pub(super) rs_abi: u32,
    pub(super) attached: u64,
    pub(super) detached: u64,
    pub(super) exit_code: u64,
    pub(super) exit_kind: u32,
    pub(super) cpus: u32,
    pub(super) kthread_ns: u64,
    pub(super) forced: u64,
    pub(super) lost: u64,
    pub(super) sections: u64,
    pub(super) steps: u64,
    pub(super) refused: u64,
    pub(super) seq: u64,
    pub(super) mount_dev: u64,
    pub(super) nodes_used: u32,
    pub(super) items_used: u32,
    pub(super) groups: u64,
    pub(super) groups_folded: u64,
    pub(super) mirror: u32,
    pub(super) grants: u32,
    pub(super) section_ns: u64,
    pub(super) section_line: u32,
    pub(super) pad: u32,
    pub(super) idle_waits: u64,
    pub(super) idle_late: u64,
    pub(super) exit_reason: [u8; TEXT_MAX],
    pub(super) exit_msg: [u8; TEXT_MAX],
}

/// `struct rc_trace`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RcTrace {
    pub(super) at: u64,
    pub(super) node: u64,
    pub(super) node2: u64,
    pub(super) work: u64,
    pub(super) tid: u32,
    pub(super) unit: u16,
    pub(super) kind: u8,
    pub(super) flags: u8,
}

/// What `rc_layout` must say; in the order of the table in `bpf/cpu/cpu.bpf.c`.
#[cfg(test)]
pub(super) const LAYOUT: &[u32] = {
    use std::mem::{offset_of, size_of};

    use crate::layout::w;
    use reserv_facts::call::ThreadParam;
    use reserv_facts::tree::RsOp;
    &[
        ABI_VERSION,
        w(size_of::<RsOp>()),
        w(offset_of!(RsOp, undo)),
        w(size_of::<RsBatch>()),
        w(offset_of!(RsBatch, op)),
        w(size_of::<RcNode>()),
        w(offset_of!(RcNode, dying)),
        w(size_of::<RcMember>()),
        w(size_of::<RcRun>()),
        w(offset_of!(RcSamples, run)),
        w(size_of::<RcIo>()),
        w(size_of::<RcCall>()),
        w(offset_of!(RcCall, answer)),
        w(size_of::<RcState>()),
        w(offset_of!(RcState, exit_reason)),
        w(size_of::<RcGroup>()),
        reserv_model::NODES_MAX,
        w(size_of::<RcParam>()),
        w(offset_of!(RcMember, param)),
        w(size_of::<ThreadParam>()),
        w(size_of::<RcTrace>()),
        w(offset_of!(RcTrace, tid)),
    ]
};
