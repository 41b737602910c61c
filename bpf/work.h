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

/*
 * Of the structures here. The pins of the maps have it in their names: whoever changes a structure
 * counts on, and programs of both kinds never share what they understand differently.
 */
#define RT_WORK_VERSION 2

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
};

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

#endif
