/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose queue takes what a thread opens, connects, accepts, sends, reads and writes. The first of
 * these that names a queue which is there and which the thread may use:
 *
 *   1. the tag that somebody asked for, of the open file or socket (calls.h, sockopt.h);
 *   2. what the thread is bound to: the queue that its container owns of that resource
 *      (bpf/work.h);
 *   3. its process' default list (lists.h);
 *   4. q0.
 *
 * An open file is tagged once, by who opens it: its I/O goes by that tag, whoever does it. What
 * has no tag goes by who does the I/O, at the I/O. A connection is tagged by who accepts or
 * connects it; while a thread that is bound sends over one, it is the thread's container's, until
 * somebody else sends (senders.h).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RT_NODES_MAX);
	__type(key, u32);
	__type(value, struct rt_owned);
} owned SEC(".maps");

/*
 * The queue of a resource that the container to which the caller is bound owns, and which the
 * caller may use; 0: none. Programs of hooks only: before 6.16 others may not ask for a thread's
 * storage.
 */
__noinline u64 rt_worked(u32 resource)
{
	struct task_struct *me = bpf_get_current_task_btf();
	u32 index, listed = 0;
	u64 queue = rt_working(me, &listed), node, key;
	struct rt_owned *o;

	if (!queue)
		return 0;
	index = queue;
	o = bpf_map_lookup_elem(&owned, &index);
	if (!o || o->queue != queue)
		return 0;
	node = o->node[resource & (RT_RESOURCES - 1)];
	/* another container's may have come in its place */
	if (!node || *(volatile u64 *)&o->queue != queue)
		return 0;
	if (rt_usable(resource, node))
		return 0;
	key = RT_USE_KEY(resource, node);
	if (listed && me->cred->fsuid.val && !bpf_map_lookup_elem(&uses, &key))
		return 0;
	return node;
}

/*
 * The queue that a bound sender noted with a socket, if it goes before the socket's tag, which is
 * `living` or not (senders.h); 0: there is none. A note of who was bound in another tree is none.
 */
static __always_inline u64 rt_sent_node(struct rt_sock *s, u32 resource, bool living)
{
	u64 word = rt_sent_bound(s, resource, living);
	u64 node = word ? rt_stored_tag(resource, word) : 0;

	return node && rt_node(resource, node) ? node : 0;
}

/* The queue of what the caller does and nobody tagged: rules 2 and 3. `l` may be none. */
static __always_inline u64 rt_mine(struct rt_lists *l, u32 resource)
{
	u64 node = rt_works_used() ? rt_worked(resource) : 0;

	return node ? node : rt_default_of(l, resource);
}
