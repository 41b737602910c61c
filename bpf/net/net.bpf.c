/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The network plane's full driver: the scheduling core (sched/) inside the kernel, as a qdisc in
 * BPF (NET_SCH_BPF, Linux 6.16). One object file, because an arena belongs to the programs that
 * were loaded with it; loaded once per interface.
 */
#include "../kernel.h"
#include "common.h"
#include "queues.h"
#include "room.h"
#include "ops.h"
#include "control.h"

char _license[] SEC("license") = "GPL";

/*
 * Sizes and offsets of what both sides use; crates/plane/src/net/full/abi.rs has the same list
 * (LAYOUT).
 */
const u32 rn_layout[] SEC(".rodata.layout") = {
	RN_ABI_VERSION,
	sizeof(struct rn_node),
	__builtin_offsetof(struct rn_node, dying),
	sizeof(struct rn_io),
	sizeof(struct rn_call),
	__builtin_offsetof(struct rn_call, answer),
	sizeof(struct rn_state),
	__builtin_offsetof(struct rn_state, poison_line),
	__builtin_offsetof(struct rn_state, follows),
	__builtin_offsetof(struct rn_state, section_ns),
	RN_CARRY_VERSION,
};
