// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tags' programs (bpf/tag) read as C of this machine. Not here: packets' rules, the requests of disks, and what stands in for trampolines (stock.h); what control.h names of
 * them is at the end.
 */
#ifndef TAGNATIVE_H
#define TAGNATIVE_H
#include "kernelnative.h"
#include "../../bpf/tag/common.h"
#include "../../bpf/tag/lists.h"
#include "../../bpf/tag/files.h"
#include "../../bpf/tag/sockets.h"
#include "../../bpf/tag/calls.h"
#include "../../bpf/tag/sockopt.h"

static struct {
	int *type;
} stored_socks;
static u64 sweep_node;
static u32 sweep_resource;
static struct {
	u64 node;
	u32 resource;
} wish;
static u32 wish_fd;
static int wish_answer;
static u64 file_cache;
static u32 link_major[RT_RESOURCES];
static int rt_call_disk(struct rt_call *c)
{
	(void)c;
	return 0;
}
#include "../../bpf/tag/count.h"
#include "../../bpf/tag/control.h"
#endif
