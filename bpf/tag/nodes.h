/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nodes and the tags of sockets: what every program that meets a packet has to look up, here and
 * where packets come in (bpf/receive).
 */
#ifndef RESERV_TAG_NODES_H
#define RESERV_TAG_NODES_H

#include "abi.h"
#include "../work.h"

/* Entries of the tables of tags (accounts.h). */
#ifndef RT_FILES_MAX /* a test's are few */
#define RT_FILES_MAX (1 << 20)
#define RT_SOCKS_MAX (1 << 18)
#define RT_LISTS_MAX (1 << 16)
#endif

#define RT_Q0 (1ULL << 32 | 1)

#include "../errors.h"

#define RT_AF_INET 2
#define RT_AF_INET6 10
#define RT_AF_PACKET 17
#define RT_SOCK_RAW 3
#define RT_ESTABLISHED 1

#define RT_CAST(type, pointer) ((struct type *)bpf_rdonly_cast((pointer), bpf_core_type_id_kernel(struct type)))

/* An array, because most of what a tag costs is looking up. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RT_RESOURCES * RT_NODES_MAX);
	__type(key, u32);
	__type(value, struct rt_node);
} nodes SEC(".maps");

/* Tags of sockets, by struct sock: one per interface. */
struct rt_sock {
	u64 slot[RT_RESOURCES];
	u32 said; /* slots that were asked for, not filled from a default list */
	u32 account; /* in `socks`: whose the entry is (accounts.h) */
	u64 sent[RT_RESOURCES]; /* the default queues of who sent last; not counted (senders.h) */
	u64 works[RT_RESOURCES]; /* of what who sent last was bound to; 0: of nothing; not counted */
	u64 epoch; /* of rt_works, when `works` was written */
};

/*
 * The note that goes before `slot`: unless there is a tag that was asked for. 0: there is none, nor
 * is one of who was bound in a tree of the CPU that has gone.
 */
static __always_inline u64 rt_sent_bound(struct rt_sock *s, u32 resource, bool living)
{
	u64 noted = *(volatile u64 *)&s->works[resource & (RT_RESOURCES - 1)];
	struct rt_works *all = noted ? rt_works() : 0;

	if (!all || !*(volatile u64 *)&all->used || s->epoch != all->epoch)
		return 0;

	return living && (s->said >> (resource & 31) & 1) ? 0 : noted;
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, RT_SOCKS_MAX);
	__type(key, u64);
	__type(value, struct rt_sock);
} socks SEC(".maps");

static __always_inline struct rt_node *rt_node(u32 resource, u64 node)
{
	u32 key = resource * RT_NODES_MAX + (u32)node;
	struct rt_node *n;

	if ((u32)node >= RT_NODES_MAX || !(node >> 32))
		return 0;
	n = bpf_map_lookup_elem(&nodes, &key);
	return n && n->generation == node >> 32 ? n : 0;
}

#endif
