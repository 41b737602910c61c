// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tags' programs (bpf/tag) read as C of this machine. Not here: packets' rules, the requests of
 * disks, and what stands in for trampolines (stock.h); what control.h names of them is at the end.
 */
#ifndef TAGNATIVE_H
#define TAGNATIVE_H
#include "kernelnative.h"
#define bpf_task_storage_get(map, p, init, flags) \
	((typeof((map)->value))(sizeof(*(map)->value) > sizeof(p->work) ? native_slots(p, flags, sizeof(*(map)->value)) : native_work(p, flags)))
#include "../../bpf/tag/common.h"
#include "../../bpf/tag/lists.h"
#include "../../bpf/tag/files.h"
#include "../../bpf/tag/sockets.h"
#include "../../bpf/tag/calls.h"
#include "../../bpf/tag/sockopt.h"

static struct {
	int *type;
} stored_socks __attribute__((unused));
static u64 storing;
static void rt_stored_begin(struct sock *sk)
{
	(void)sk;
}
static bool rt_stored_held(const void *sk, u32 resource, u64 *word)
{
	(void)sk;
	(void)resource;
	(void)word;
	return false;
}
static bool rt_stored_end(struct rt_call *c)
{
	(void)c;
	return false;
}
static u64 rt_storage_of(struct sock *sk)
{
	(void)sk;
	return 0;
}
static u64 rt_storage_slot(const void *sk, u64 slots, u32 resource)
{
	(void)sk;
	return slots + resource;
}
static u64 file_cache;
static u32 disk_count;
static struct {
	int *type;
/* nobody puts these programs by here: RT_CALL_EMPTY is not called */
} slots __attribute__((unused));
static u32 link_major[RT_RESOURCES];
static int rt_call_disk(struct rt_call *c)
{
	(void)c;
	return 0;
}
#include "../../bpf/tag/senders.h"
#include "../../bpf/tag/count.h"
#include "../../bpf/tag/control.h"
#define RT_FDS_ONLY /* no sockets have a storage of their own */
#include "../../bpf/tag/walk.h"
#endif
