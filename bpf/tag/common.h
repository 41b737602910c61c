/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all tag programs share: the maps, the table of resources, references to nodes, and who may
 * use one.
 *
 * A tag is a packed handle (generation << 32 | index) in a slot; 0 is q0. Slots change by exchange,
 * and whoever takes a handle out of a slot gives its reference back, so the counts are right
 * whatever races. A slot's entry is deleted only where nobody else can reach it any more: with the
 * last reference to the file, the socket, the process. A handle whose node is gone counts nowhere
 * and means q0.
 */
#ifndef RESERV_TAG_COMMON_H
#define RESERV_TAG_COMMON_H

#include "../hook.h"
#include "../fresh.h"
#include "../account.h"
#include "../work.h"
#include "nodes.h"

#define RT_FMODE_PATH 0x4000
#define RT_SOCKFS 0x534F434B

enum rt_count { RT_DESCRIPTORS, RT_DEFAULTS, RT_CHILD_DEFAULTS };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, RT_RESOURCES * RT_NODES_MAX);
	__type(key, u64); /* RT_USE_KEY */
	__type(value, struct rt_use);
} uses SEC(".maps");

#include "accounts.h"

/* The tag of a file for one resource: see files.h. */
struct rt_file {
	union {
		u64 file; /* in `hot`: struct file, or that plus a resource; 0: nobody's */
		/* in `files`, where the key says that: whose the entry is (accounts.h) */
		u64 account;
	};
	u64 tag; /* its handle and its resource, so that both change at once; 0: q0 */
};

#ifndef RT_HOT_BITS /* a test has so few places that they are taken */
#define RT_HOT_BITS 16
#endif

/*
 * Each file has one place here, by its address. It takes it when it is first tagged, if it is free,
 * and keeps it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << RT_HOT_BITS);
	__type(key, u32);
	__type(value, struct rt_file);
} hot SEC(".maps");

/* Files whose place was another's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, RT_FILES_MAX);
	__type(key, u64);
	__type(value, struct rt_file);
} files SEC(".maps");

/* Lists of processes, by struct signal_struct, which an exec leaves alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, RT_LISTS_MAX);
	__type(key, u64);
	__type(value, struct rt_lists);
} lists SEC(".maps");

u64 mount_dev; /* of /reserv, as the kernel packs it; 0: nowhere */
struct rt_object object[RT_RESOURCES];
/*
 * The same, as the hooks look for it. The count is changed last when one is added and first when
 * one is taken away.
 */
u32 file_count, iface_count;
struct rt_object file_object[RT_RESOURCES], iface_object[RT_RESOURCES];
u8 file_resource[RT_RESOURCES], iface_resource[RT_RESOURCES];

/*
 * Block devices stacked above disks that are scheduled: partitions, volumes, arrays, loop devices.
 * The daemon keeps it (RT_CALL_ABOVE).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct rt_above);
} above SEC(".maps");
/* entries, and those of them that pass requests on for some resource */
u32 above_count, passing_count;
/*
 * a bit for each entry, by its device (rt_above_bit): most files' devices have none, and are not
 * looked up
 */
u64 above_bits;

u64 file_entries, sock_entries; /* of `files` and `socks`: a hook that has nothing to do is cheap */
u32 ruled; /* resources for whose queues rules were ever told */
u32 rt_none; /* 0, which the verifier must not know: it would follow each count by itself */
u64 lost; /* tags and lists for which there was no room */
/* the programs are about to be put by: entries do not beget entries any more (RT_CALL_CLOSE) */
u32 closed;

/* A handle as it stands in slots. */
static __always_inline u64 rt_pack(u64 node)
{
	return node == RT_Q0 ? 0 : node;
}

static __always_inline void rt_ref(u32 resource, u64 node, u32 what, s32 by)
{
	struct rt_node *n = rt_node(resource, node);

	if (!n)
		return;
	if (what == RT_DESCRIPTORS)
		__sync_fetch_and_add(&n->descriptors, by);
	else if (what == RT_DEFAULTS)
		__sync_fetch_and_add(&n->defaults, by);
	else
		__sync_fetch_and_add(&n->child_defaults, by);
}

/* Put a handle into a slot. */
static __always_inline void rt_put(u64 *slot, u32 resource, u64 node, u32 what)
{
	u64 old;

	rt_ref(resource, node, what, 1);
	old = __sync_lock_test_and_set(slot, node);
	rt_ref(resource, old, what, -1);
}

/* Take `node` out of a slot, if it is there. */
static __always_inline bool rt_take(u64 *slot, u32 resource, u64 node, u32 what)
{
	if (__sync_val_compare_and_swap(slot, node, 0) != node)
		return false;
	rt_ref(resource, node, what, -1);
	return true;
}

/* The index of the queue that a slot stands for: q0's when its node is gone. */
static __always_inline u32 rt_index(u32 resource, u64 node)
{
	return rt_node(resource, node) ? (u32)node : (u32)RT_Q0;
}

/*
 * Whether the caller may tag with a queue by the rules; where none were told, whoever could open it
 * may.
 */
__noinline int rt_by_rules(u32 resource, u64 node, u32 uid)
{
	u64 key = RT_USE_KEY(resource, node);
	struct rt_use *use = bpf_map_lookup_elem(&uses, &key);

	return !use || rt_use_allows(use, bpf_get_current_task_btf(), uid);
}

/*
 * Whether the caller is one of those of whom the node itself knows that they may: the look-up of
 * the rules costs more than all the rest.
 */
static __always_inline bool rt_known(u64 who, u32 uid)
{
	return ((RT_WHO_MAY(who) & RT_MAY_USER) && (u32)who == uid) || ((RT_WHO_MAY(who) & RT_MAY_ROOT) && !uid);
}

/* What the rules say at once of the node that they are about goes to it; `use` 0: nothing. */
static __always_inline void rt_know(struct rt_node *n, struct rt_use *use)
{
	RT_WHO(n) = (RT_WHO(n) & RT_WHO_NODE) | (use ? RT_WHO_OF(use->user, use->may) : 0);
}

/*
 * Whether the caller may tag with a queue that exists and stays: 0 and the node, or a negative
 * errno.
 */
static __always_inline int rt_usable_node(u32 resource, u64 node, struct rt_node **found)
{
	struct rt_node *n = rt_node(resource, node);
	u64 who;
	u32 uid;

	*found = n;
	if (!n)
		return -E_STALE;
	who = RT_WHO(n);
	if (RT_WHO_KIND(who) != RT_QUEUE)
		return -E_ISDIR;
	if (RT_WHO_FLAGS(who) & RT_DYING)
		return -E_STALE;
	if (!(ruled & 1U << (resource & 31)))
		return 0;
	uid = bpf_get_current_task_btf()->cred->fsuid.val;
	return rt_known(who, uid) || rt_by_rules(resource, node, uid) ? 0 : -E_ACCES;
}

static __always_inline int rt_usable(u32 resource, u64 node)
{
	struct rt_node *n;

	return rt_usable_node(resource, node, &n);
}

/*
 * Slots of the sockets' own storage (stock.h): with the handle stands for which resource of that
 * number it was. When a resource goes, such tags cannot be taken off their sockets, and the next
 * one of its number may have a node of the same handle. In a section of its own, which is not
 * emptied when the programs are put by, for what sockets hold outlives that.
 */
u16 stored_era[RT_RESOURCES] SEC(".data.era") = {};

static __always_inline u64 rt_stored_word(u32 resource, u64 node)
{
	return node ? node | (u64)stored_era[resource & (RT_RESOURCES - 1)] << 16 : 0;
}

static __always_inline u64 rt_stored_tag(u32 resource, u64 word)
{
	return (u16)(word >> 16) == stored_era[resource & (RT_RESOURCES - 1)] ? word & ~0xffff0000ULL : 0;
}

/* The resource whose device this is; 0: none. */
static __always_inline u32 rt_resource_of_dev(u32 dev)
{
	u32 i;

	for (i = 0; i < RT_RESOURCES; i++) {
		if (i >= file_count)
			break;
		if (file_object[i].number == dev)
			return file_resource[i];
	}
	return 0;
}

static __always_inline u64 rt_above_bit(u32 dev)
{
	return 1ULL << (dev * 0x9e3779b1U >> 26);
}

/*
 * The resources of the files of a device, a bit for each: its own, and of what it is stacked above.
 */
static __always_inline u32 rt_resources_of_dev(u32 dev)
{
	u32 own = rt_resource_of_dev(dev), found = own ? 1U << (own & 31) : 0;
	struct rt_above *a;

	if (!(above_bits & rt_above_bit(dev)))
		return found;
	a = bpf_map_lookup_elem(&above, &dev);
	return a ? found | a->lives : found;
}

/* The first of some resources; 0: there is none. */
static __always_inline u32 rt_first(u32 resources)
{
	u32 i;

	for (i = 1; i < RT_RESOURCES; i++)
		if (resources >> i & 1)
			return i;
	return 0;
}

static __always_inline bool rt_several(u32 resources)
{
	return resources & (resources - 1);
}

/* The resource of an interface; 0: none. */
static __always_inline u32 rt_resource_of_iface(u64 netns, u32 number)
{
	u32 i;

	for (i = 0; i < RT_RESOURCES; i++) {
		if (i >= iface_count)
			break;
		if (iface_object[i].number == number && iface_object[i].netns == netns)
			return iface_resource[i];
	}
	return 0;
}

/* The kernel refuses rt_fork: a dead process' lists stay until another one has its address. */
u32 forks_unseen;

static __always_inline struct rt_lists *rt_my_lists(void)
{
	struct task_struct *me = bpf_get_current_task_btf();
	u64 key = (u64)me->signal;
	struct rt_lists *l = bpf_map_lookup_elem(&lists, &key);

	return l && forks_unseen && l->born != me->group_leader->start_boottime ? 0 : l;
}

/* The queue that a process' default list names and it may use; 0: q0. `l` may be none. */
static __always_inline u64 rt_default_of(struct rt_lists *l, u32 resource)
{
	u64 node = l ? l->list[RT_DEFAULT][resource & (RT_RESOURCES - 1)] : 0;

	return node && !rt_usable(resource, node) ? node : 0;
}

#include "works.h"

#endif
