/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags on descriptors, default lists and the right to use a queue (Eclipse/BSD §2.5, §2.7), for
 * every resource that has a tree; and the hook through which all of Reserv's fcntl commands come.
 */
#include "../kernel.h"
#include "common.h"
#include "lists.h"
#include "files.h"
#include "sockets.h"
#include "calls.h"
#include "sockopt.h"
#include "stock.h"
#include "senders.h"
#include "count.h"
#include "packets.h"
#include "link.h"
#include "stacked.h"
#include "disk.h"
#include "control.h"
#include "walk.h"

char _license[] SEC("license") = "GPL";

/*
 * Sizes and offsets of what both sides use; crates/plane/src/tag/abi.rs has the same list (LAYOUT).
 */
const u32 rt_layout[] SEC(".rodata.layout") = {
	RT_ABI_VERSION,
	RT_NODES_MAX,
	sizeof(struct rt_node),
	__builtin_offsetof(struct rt_node, bytes),
	sizeof(struct rt_object),
	sizeof(struct rt_rule),
	__builtin_offsetof(struct rt_rule, start),
	sizeof(struct rt_slot),
	RT_USE_KEY(1, 0),
	sizeof(struct rt_use),
	sizeof(struct rt_packet_rule),
	__builtin_offsetof(struct rt_packet_rule, protocol),
	sizeof(struct rt_packet_table),
	sizeof(struct rt_lists),
	sizeof(struct rt_walk),
	__builtin_offsetof(struct rt_walk, resource),
	sizeof(struct rt_stored),
	__builtin_offsetof(struct rt_stored, count),
	sizeof(struct rt_above),
	sizeof(struct rt_file),
	sizeof(struct rt_sock),
	sizeof(struct rt_owned),
	sizeof(struct rt_call),
	__builtin_offsetof(struct rt_call, object),
	RT_WORK_VERSION,
	sizeof(struct rt_work),
	__builtin_offsetof(struct rt_work, back),
	__builtin_offsetof(struct rt_work, epoch),
	__builtin_offsetof(struct rt_work, listed),
	__builtin_offsetof(struct rt_work, times),
	__builtin_offsetof(struct rt_work, page),
	__builtin_offsetof(struct rt_work, head),
	__builtin_offsetof(struct rt_work, execs),
	sizeof(struct rt_slots),
	__builtin_offsetof(struct rt_slots, gen),
	__builtin_offsetof(struct rt_slots, index),
	sizeof(struct rt_works),
	__builtin_offsetof(struct rt_works, used),
};
