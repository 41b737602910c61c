/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Default lists of processes (Eclipse/BSD §2.5): a new process starts with both lists equal to its
 * parent's child list. A process' entry is made when its first entry is other than q0 and lives as
 * long as the process. It is counted for the process' user (accounts.h): a fork for which he has no
 * room leaves the new process with both lists at q0.
 */

/*
 * A process' entry, with nothing in it, for a user: 0, or -ENOSPC: he has no room, or somebody has
 * made it just now.
 */
static __noinline int rt_lists_made(u64 key, u64 born, u32 user)
{
	struct rt_lists none = { .born = born };
	int account = rt_account_take(user, RT_OF_LISTS);

	if (account < 0)
		return -E_NOSPC;
	none.account = account;
	if (!bpf_map_update_elem(&lists, &key, &none, BPF_NOEXIST))
		return 0;
	rt_account_give(account, RT_OF_LISTS);
	return -E_NOSPC;
}

/* Everything out, and the entry itself. The process is dead, or has not been born. */
static __noinline int rt_lists_drop(u64 key)
{
	struct rt_lists *l = bpf_map_lookup_elem(&lists, &key);
	u32 r, account;

	if (!l)
		return 0;
	account = l->account;
	bpf_for(r, 0, RT_RESOURCES) {
		rt_put(&l->list[RT_DEFAULT][r & (RT_RESOURCES - 1)], r, 0, RT_DEFAULTS);
		rt_put(&l->list[RT_CHILD][r & (RT_RESOURCES - 1)], r, 0, RT_CHILD_DEFAULTS);
	}
	if (!bpf_map_delete_elem(&lists, &key))
		rt_account_give(account, RT_OF_LISTS);
	return 0;
}

HOOK(rt_fork, struct task_struct *parent, struct task_struct *child)
{
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
	if (rt_lists_made(key, child->start_boottime, account_of(RT_CAST(cred, child->real_cred)))) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	to = bpf_map_lookup_elem(&lists, &key);
	if (!to)
		return 0;
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
