/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a thread works for, where that is not what its process is for: the container that it bound
 * itself to (F_RESERV_BIND). This is the one home of that fact. The CPU's programs write it
 * (bpf/cpu/tags.h); those of descriptors read it (bpf/tag/works.h) where they would else ask the
 * default list of the thread's process. Both objects share the two maps here, whichever is loaded
 * first (crates/plane/src/work.rs).
 *
 * It goes with its thread. It refers to nothing: who is bound keeps a container by his tag in the
 * CPU's tree, and what is written here means nothing when that tree has gone.
 */
#ifndef RESERV_WORK_H
#define RESERV_WORK_H

#include "page.h"

/*
 * Of the structures here. The pins of the maps have it in their names: whoever changes a structure
 * counts on, and programs of both kinds never share what they understand differently.
 */
#define RT_WORK_VERSION 3

struct rt_work {
	/*
	 * The container's in the tree of the CPU, by handle; 0: bound to none. Bits 16 to 31, which a
	 * handle has not, are the lower ones of `times`: who ends a binding ends that one, and not
	 * another to the same queue that the thread has made meanwhile.
	 */
	u64 queue;
	u64 back; /* the thread's queue before */
	u64 epoch; /* of rt_works, when that was written; of another one it means nothing */
	/*
	 * 1: a list of rights let the thread bind itself. Then it may use of the container's other
	 * queues those only of which a list says so too: who was given the CPU alone has no more.
	 * 0: no list spoke of the container, and its descriptor was enough.
	 */
	u32 listed;
	u32 times; /* that the thread has bound itself; nobody else writes it */
	/*
	 * Where in its memory the thread writes what it works for (struct rc_page), 0: nowhere; and
	 * how many of the entries there have been read. Another program, after exec, has other
	 * memory.
	 */
	u64 page, head;
	u64 execs; /* self_exec_id, when that was written */
};

/*
 * A process' slots, with its first thread: containers' queues in the tree of the CPU, by handle. A
 * thread's entry names one by its number.
 */
struct rt_slots {
	u64 epoch; /* of rt_works, when they were written */
	u64 execs;
	u32 gen[RC_SLOTS];
	u16 index[RC_SLOTS]; /* 0: nothing stands there; RT_SLOT_LISTED: as `listed` above */
};
#define RT_SLOT_LISTED 0x8000

/* The handle in `queue`. */
static __always_inline u64 rt_work_queue(u64 word)
{
	return word & ~0xffff0000ULL;
}

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct rt_work);
} work SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct rt_slots);
} worklists SEC(".maps");

struct rt_works {
	u64 epoch; /* of the CPU's tree: another one for each that is made */
	u64 used; /* somebody was bound in this epoch: until then nobody looks further */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rt_works);
} works SEC(".maps");

static __always_inline struct rt_works *rt_works(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&works, &zero);
}

/* Whether somebody was ever bound. */
static __always_inline bool rt_works_used(void)
{
	struct rt_works *all = rt_works();

	return all && *(volatile u64 *)&all->used;
}

/* What a thread is bound to; 0: to nothing. */
static __always_inline struct rt_work *rt_work_of(struct task_struct *p)
{
	struct rt_works *all = rt_works();
	struct rt_work *w;

	if (!all || !*(volatile u64 *)&all->used)
		return 0;
	w = bpf_task_storage_get(&work, p, 0, 0);
	return w && w->epoch == all->epoch && w->queue ? w : 0;
}

/*
 * What stands in a slot of a thread's process, by handle; 0: nothing. Another thread may write it
 * meanwhile: index 0 first, then the generation, then the index.
 */
static __always_inline u64 rt_slot(struct rt_slots *slots, u32 slot, u32 *listed)
{
	u32 index, gen;

	slot &= RC_SLOTS - 1;
	index = *(volatile u16 *)&slots->index[slot];
	gen = *(volatile u32 *)&slots->gen[slot];
	if (!index || *(volatile u16 *)&slots->index[slot] != index)
		return 0;
	*listed = index / RT_SLOT_LISTED;
	return (u64)gen << 32 | (index & (RT_SLOT_LISTED - 1));
}

/* The slots of the running thread's process, as far as they mean something; 0: it has none. */
static __always_inline struct rt_slots *rt_slots_of(struct task_struct *me, u64 epoch)
{
	struct task_struct *leader = me->group_leader;
	struct rt_slots *slots = bpf_task_storage_get(&worklists, leader, 0, 0);

	return slots && slots->epoch == epoch && slots->execs == leader->self_exec_id ? slots : 0;
}

/*
 * The slot that the running thread's page names now. 0: it names none, or nothing that is not known
 * already (`w`). A thread that ends has no memory any more, and the CPU may have another's.
 */
static __always_inline bool rt_page_slot(struct task_struct *me, struct rt_work *w, u32 *slot)
{
	u64 at = w->page, head_at = at + __builtin_offsetof(struct rc_page, head), head, entry;

	if (!at || !me->mm || w->execs != me->self_exec_id)
		return false;
	if (bpf_probe_read_user(&head, sizeof(head), (void *)head_at) || head == w->head)
		return false;
	at += __builtin_offsetof(struct rc_page, log) + (head - 1) % RC_PAGE_LOG * sizeof(entry);
	if (bpf_probe_read_user(&entry, sizeof(entry), (void *)at))
		return false;
	*slot = entry & (RC_SLOTS - 1);
	return true;
}

/* What the running thread is bound to, by handle, and how; 0: to nothing. */
static __always_inline u64 rt_working(struct task_struct *me, u32 *listed)
{
	struct rt_works *all = rt_works();
	struct rt_slots *slots;
	struct rt_work *w;
	u32 slot;
	u64 node;

	if (!all || !*(volatile u64 *)&all->used)
		return 0;
	w = bpf_task_storage_get(&work, me, 0, 0);
	if (!w)
		return 0;
	if (rt_page_slot(me, w, &slot)) {
		if (!slot)
			return 0;
		slots = rt_slots_of(me, all->epoch);
		node = slots ? rt_slot(slots, slot, listed) : 0;
		if (node)
			return node;
	}
	*listed = w->listed;
	return w->epoch == all->epoch ? rt_work_queue(*(volatile u64 *)&w->queue) : 0;
}

#endif
