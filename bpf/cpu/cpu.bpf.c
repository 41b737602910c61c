/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The CPU plane's full driver: the scheduling core (sched/) inside the kernel, on sched_ext. One
 * object file, because an arena belongs to the programs that were loaded with it.
 */
#include "../kernel.h"
#include "../compat.h"
#include "common.h"
#include "tags.h"
#include "idle.h"
#include "timer.h"
#include "cgroups.h"
#include "floor.h"
#include "life.h"
#include "ops.h"
#include "calls.h"
#include "control.h"

char _license[] SEC("license") = "GPL";

/*
 * Sizes and offsets of what both sides use; crates/plane/src/cpu/full/abi.rs has the same list
 * (LAYOUT).
 */
const u32 rc_layout[] SEC(".rodata.layout") = {
	RC_ABI_VERSION,
	sizeof(struct rs_op),
	__builtin_offsetof(struct rs_op, undo),
	sizeof(struct rs_batch),
	__builtin_offsetof(struct rs_batch, op),
	sizeof(struct rc_node),
	__builtin_offsetof(struct rc_node, dying),
	sizeof(struct rc_member),
	sizeof(struct rc_run),
	__builtin_offsetof(struct rc_io, run),
	sizeof(struct rc_io),
	sizeof(struct rc_call),
	__builtin_offsetof(struct rc_call, answer),
	sizeof(struct rc_state),
	__builtin_offsetof(struct rc_state, exit_reason),
	sizeof(struct rc_group),
	RS_NODES_OPEN,
	sizeof(struct rc_param),
	__builtin_offsetof(struct rc_member, param),
	sizeof(struct rc_thread_param),
	sizeof(struct rc_trace),
	__builtin_offsetof(struct rc_trace, tid),
};
