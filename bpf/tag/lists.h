/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Default lists of processes (Eclipse/BSD §2.5): a new process starts with both lists equal to its parent's child list. A process' entry is
 * made when its first entry is other than q0 and lives as long as the process.
 */

/* Everything out, and the entry itself. The process is dead, or has not been born. */
static __noinline int rt_lists_drop(u64 key)
{
	struct rt_lists *l = bpf_map_lookup_elem(&lists, &key);
	u32 r;

	if (!l)
		return 0;
	bpf_for(r, 0, RT_RESOURCES) {
		rt_put(&l->list[RT_DEFAULT][r & (RT_RESOURCES - 1)], r, 0, RT_DEFAULTS);
		rt_put(&l->list[RT_CHILD][r & (RT_RESOURCES - 1)], r, 0, RT_CHILD_DEFAULTS);
	}
	bpf_map_delete_elem(&lists, &key);
	return 0;
}

HOOK(rt_fork, struct task_struct *parent, struct task_struct *child)
{
	static const struct rt_lists none;
	u64 key = (u64)child->signal, node;
	struct rt_lists *from, *to;
	u32 r, some = 0;

	if (child->tgid == parent->tgid)
		return 0;
	if (closed)
		return 0;
	to = bpf_map_lookup_elem(&lists, &key);
	if (to && to->born == child->start_boottime)
		return 0;
	if (to) /* of a dead process whose end was not seen */
		rt_lists_drop(key);
	key = (u64)parent->signal;
	from = bpf_map_lookup_elem(&lists, &key);
	if (!from)
		return 0;
	bpf_for(r, 0, RT_RESOURCES)
		some |= from->list[RT_CHILD][r & (RT_RESOURCES - 1)] != 0;
	if (!some)
		return 0;
	key = (u64)child->signal;
	if (bpf_map_update_elem(&lists, &key, (void *)&none, BPF_ANY)) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	to = bpf_map_lookup_elem(&lists, &key);
	if (!to)
		return 0;
	to->born = child->start_boottime;
	bpf_for(r, 0, RT_RESOURCES) {
		node = from->list[RT_CHILD][r & (RT_RESOURCES - 1)];
		if (!node)
			continue;
		rt_put(&to->list[RT_DEFAULT][r & (RT_RESOURCES - 1)], r, node, RT_DEFAULTS);
		rt_put(&to->list[RT_CHILD][r & (RT_RESOURCES - 1)], r, node, RT_CHILD_DEFAULTS);
	}
	return 0;
}
HOOKED("tp_btf/sched_process_fork", rt_fork)

HOOK(rt_exited, struct task_struct *p)
{
	if (p->signal->live.counter == 0)
		rt_lists_drop((u64)p->signal);
	return 0;
}
HOOKED("tp_btf/sched_process_exit", rt_exited)
