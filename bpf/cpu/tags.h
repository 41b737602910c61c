/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags of threads and default lists of processes (Eclipse/BSD §2.5).
 *
 * A new thread of a process inherits its creator's tag. A new process starts with both lists equal
 * to its parent's child list, and its first thread is tagged with it; under the personality
 * `containers` that of a bound thread is bound as it (Resource Containers 4.2). The rule is applied
 * in two places, because while the scheduler is attached the kernel asks for a new thread's queue
 * (init_task) before the tracepoint of the fork: both find the same answer. So with the end of a
 * process: exit_task and the tracepoint. The scheduler's calls are never left out, tracepoints can
 * be (hook.h).
 *
 * A thread that is bound to a container (F_RESERV_BIND) is tagged with the queue that the container
 * owns. Its `work` (bpf/work.h) says that it was so that it came there, and where it was before.
 * Any other tag, the thread's own or somebody else's for it, ends the binding; where the queue has
 * gone, the tag is another one too.
 */
#include "asks.h"

u32 binds_children; /* new processes of bound threads are bound as those */

/*
 * A thread's tag by handle; 0 is q0. While it has an item, that is the truth, and its storage
 * otherwise.
 */
static __always_inline u64 rc_tag_now(struct rc_thread *th)
{
	if (!th)
		return 0;
	pl_tree();
	if (!th->item)
		return th->epoch == epoch ? th->tag.node : 0;
	return rc_tag_of((struct rs_item RS_ARENA *)th->item);
}

/* A thread's storage, made if it has none. What is left in it of an earlier epoch is nobody's. */
static __always_inline struct rc_thread *rc_thread_made(struct task_struct *p)
{
	static const struct rc_param none;
	struct rc_thread *th = bpf_task_storage_get(&tags, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (th && th->epoch != epoch) {
		th->tag.node = 0;
		th->item = 0;
		th->param = none;
		th->epoch = epoch;
	}
	return th;
}

/* What a thread with this tag is bound to; 0: to nothing. */
static __always_inline struct rt_work *rc_bound(struct task_struct *p, u64 tag)
{
	struct rt_work *w = rt_work_of(p);

	return w && rt_work_queue(*(volatile u64 *)&w->queue) == tag ? w : 0;
}

/* The running thread, or one that has not run yet, is bound to nothing any more. */
static __always_inline void rc_unbind(struct task_struct *p)
{
	struct rt_work *w = rt_work_of(p);

	if (w)
		w->queue = 0;
}

/* By what the thread is bound now; 0: by nothing. */
static __always_inline u64 rc_binding(struct task_struct *p)
{
	struct rt_work *w = rt_work_of(p);

	return w ? *(volatile u64 *)&w->queue : 0;
}

/*
 * A thread was tagged that was bound by `was` before: that has ended, and what it has bound itself
 * to meanwhile where its tag is another one. It runs, and may bind itself at any instant of this:
 * that stays, or it would be in the container's queue and bound to none.
 */
static __always_inline void rc_unbound(struct task_struct *p, struct rc_thread *th, u64 was)
{
	struct rt_work *w = rt_work_of(p);
	u64 now;

	if (!w || (was && __sync_val_compare_and_swap(&w->queue, was, 0) == was))
		return;
	now = *(volatile u64 *)&w->queue;
	if (now && rt_work_queue(now) != rc_tag_now(th))
		__sync_val_compare_and_swap(&w->queue, now, 0);
}

/* The thread of `w` is bound to the container that owns `node`. */
static __always_inline void rc_bound_to(struct rt_works *all, struct rt_work *w, u64 node, u64 back, u64 listed)
{
	w->back = back;
	w->listed = listed;
	w->epoch = all->epoch;
	w->times++;
	*(volatile u64 *)&w->queue = node | (u64)(u16)w->times << 16;
	all->used = 1;
}

/* rc_tag_now of the running thread: its storage costs more than all the rest. */
static __always_inline u64 rc_own_tag(struct task_struct *me)
{
	struct rs_item RS_ARENA *it = rc_own(me);

	return it ? rc_tag_of(it) : rc_tag_now(bpf_task_storage_get(&tags, me, 0, 0));
}

/*
 * The queue in which a thread was before it was bound; q0 if that is gone, or takes nobody any
 * more.
 */
static __always_inline u64 rc_back(u64 before)
{
	struct rs_node RS_ARENA *q = rc_queue(pl_tree(), before);

	return q->dying ? RC_Q0 : pl_id(q);
}

/* What the child of a thread that was bound by `was` has of that. */
static __always_inline void rc_inherit_binding(struct task_struct *child, struct rt_work *was,
					       u64 back)
{
	struct rt_work *w = bpf_task_storage_get(&work, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!w)
		return;
	*w = *was;
	w->back = back;
	w->page = 0; /* is of its creator's memory */
}

/* Whether a thread has a page, of the program that it runs. */
static __always_inline bool rc_has_page(struct task_struct *p)
{
	struct rt_work *w = rt_works_used() ? bpf_task_storage_get(&work, p, 0, 0) : 0;

	return w && w->page && w->execs == p->self_exec_id;
}

static __noinline int rc_by_rules(u64 node);

/*
 * The binding `was` of the running thread and its tag, as they are when what its page says is done
 * (paged.h). Answers the tag.
 */
static __noinline u64 rc_page_ahead(struct rt_work *was, u64 tag)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct rt_work *w = bpf_task_storage_get(&work, me, 0, 0);
	struct rt_works *all = rt_works();
	struct rt_slots *slots;
	u64 node = 0;
	u32 slot, listed = 0;

	if (!w || !all || !rt_page_slot(me, w, &slot))
		return tag;
	if (!slot) {
		if (was->queue)
			tag = rc_back(was->back);
		was->queue = 0;
		return tag;
	}
	bpf_rcu_read_lock(); /* of the thread's first one */
	slots = rt_slots_of(me, all->epoch);
	if (slots)
		node = rt_slot(slots, slot, &listed);
	bpf_rcu_read_unlock();
	if (!node || !rs_node_at(pl_tree(), node) || (ruled >> (node & 63) & 1 && !rc_by_rules(node)))
		return tag;
	if (!was->queue)
		was->back = tag;
	was->queue = node;
	was->listed = listed;
	was->epoch = all->epoch;
	was->times = 0;
	return node;
}

/*
 * The child's tag, by the rule. `th` is the child's. `pages`: the parent's page is asked; it has
 * none while the scheduler is detached, and what is not there need not be verified.
 */
static __always_inline void rc_inherit(struct task_struct *child, struct task_struct *parent, struct rc_thread *th,
				       bool pages)
{
	struct rt_work *own = rt_work_of(parent), was = {};
	bool thread = child->tgid == parent->tgid;
	struct rc_lists *l;
	u64 key, tag = 0;

	/* before the tag: who tags the parent meanwhile changes that first */
	if (own && (thread || binds_children))
		was = *own;
	else if (pages && (thread || binds_children))
		was.page = rc_has_page(parent);
	asm volatile("" : : : "memory");
	if (thread || was.queue)
		tag = rc_tag_now(bpf_task_storage_get(&tags, parent, 0, 0));
	if (was.queue && rt_work_queue(was.queue) != tag)
		was.queue = 0;
	if (pages && was.page)
		tag = rc_page_ahead(&was, tag);
	if (thread) {
		th->tag.node = tag;
		if (was.queue)
			rc_inherit_binding(child, &was, was.back);
		return;
	}
	key = (u64)parent->signal;
	l = bpf_map_lookup_elem(&lists, &key);
	th->tag.node = l ? l->child : 0;
	if (!was.queue)
		return;
	/* unbound it is where it would have begun else */
	rc_inherit_binding(child, &was, rc_back(th->tag.node));
	th->tag.node = tag;
}

/* A new process' lists. Whether it has any. */
static __always_inline bool rc_lists_inherit(struct task_struct *child, struct task_struct *parent)
{
	u64 key = (u64)parent->signal;
	struct rc_lists *l = bpf_map_lookup_elem(&lists, &key), both;

	both.def = l ? l->child : 0;
	both.child = both.def;
	key = (u64)child->signal;
	if (both.def)
		bpf_map_update_elem(&lists, &key, &both, BPF_ANY);
	else
		/* a dead process' at the same address, whose end was not seen */
		bpf_map_delete_elem(&lists, &key);
	return both.def;
}

static __always_inline void rc_lists_end(struct task_struct *p)
{
	u64 key = (u64)p->signal;

	bpf_map_delete_elem(&lists, &key);
}

HOOK(rc_fork, struct task_struct *parent, struct task_struct *child)
{
	struct rc_thread *th;

	if (child->tgid == parent->tgid) {
		th = bpf_task_storage_get(&tags, parent, 0, 0);
		if (!rc_tag_now(th))
			return 0;
	} else if (!rc_lists_inherit(child, parent) && !(binds_children && rc_binding(parent))) {
		return 0;
	}
	th = rc_thread_made(child);
	if (th && !th->item)
		rc_inherit(child, parent, th, false);
	return 0;
}
HOOKED("tp_btf/sched_process_fork", rc_fork)

HOOK(rc_exited, struct task_struct *p)
{
	if (p->signal->live.counter == 0)
		rc_lists_end(p);
	return 0;
}
HOOKED("tp_btf/sched_process_exit", rc_exited)

/*
 * A thread that execs takes its process' number over; its item carries the numbers that `members`
 * shows.
 */
HOOK(rc_execed, struct task_struct *p, s32 old_pid)
{
	struct rc_thread *th;

	if (old_pid == p->pid)
		return 0;
	th = bpf_task_storage_get(&tags, p, 0, 0);
	if (th && th->item) {
		pl_tree();
		((struct rs_item RS_ARENA *)th->item)->owner2 = (u64)(u32)p->tgid << 32 | (u32)p->pid;
	}
	return 0;
}
HOOKED("tp_btf/sched_process_exec", rc_execed)

/*
 * Under the lock: what the thread was bound by that is tagged. Not on the stack: this is on the
 * longest path of calls, whose stack the kernel bounds.
 */
u64 retagged_from;

/* Tag a thread and move it. */
static __always_inline int rc_retag(struct task_struct *p, u64 node)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_node RS_ARENA *q;
	struct rs_item RS_ARENA *it;
	struct rc_thread *th = rc_thread_made(p);
	u64 raw = scx_bpf_now(), owner = (u64)p, bound = rc_binding(p);
	int answer = 0;

	if (!th)
		return -E_NOMEM;
	it = (struct rs_item RS_ARENA *)th->item;
	RC_LOCK(irq, return -E_AGAIN);
	*(volatile u64 *)&retagged_from = bound;
	q = (u32)node < RS_NODES_OPEN ? rs_node_at(t, node) : 0;
	if (!q)
		answer = -E_STALE;
	else if (q->kind != RS_QUEUE)
		answer = -E_INVAL;
	else if (it && it->owner == owner && it->state != RS_ITEM_FREE && it->queue != q && !rs_queue_promises(t, q, rs_item_asks(it)))
		answer = -E_NOSPC;
	else if (it && it->owner == owner && it->state != RS_ITEM_FREE)
		answer = rc_move(t, it, p, q->index == 1 ? rc_home(t, it) : q, raw, pl_clock(raw));
	else if (q->dying)
		answer = -E_AGAIN;
	if (!answer)
		th->tag.node = node;
	bound = *(volatile u64 *)&retagged_from;
	PLANE_UNLOCK(irq);
	if (!answer)
		rc_unbound(p, th, bound);
	return answer;
}

/*
 * Whether a bound thread that came from `before` may go to `back`. The right is asked again, for it
 * may have been revoked since. And where the queue has gone, nobody has a right to q0 by that: or a
 * tenant would leave his part of the tree by taking away the queue behind him.
 */
static __noinline int rc_may_go_back(struct task_struct *p, u64 back, u64 before)
{
	struct rt_use *use = bpf_map_lookup_elem(&uses, &back);
	u32 uid = p->cred->fsuid.val;

	if (use)
		return rt_use_allows(use, p, uid);
	return !uid || back == before;
}

/*
 * Under the lock: a thread's parameters into force; 0, or a negative errno. `most`: rc_weight_most.
 */
static __always_inline int rc_params_put(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rc_param *p, u32 most, u64 now)
{
	t->params_most = most;
	t->params.weight = p->weight;
	t->params.priority = p->prio;
	t->params.period_ns = p->period_ns;
	t->params.budget_ns = p->budget_ns;
	t->params.deadline_ns = p->deadline_ns;
	return rs_item_params(t, it, now);
}

/* Under the lock: the scheduler comes back, and the thread has a new item. */
static __always_inline void rc_params_again(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rc_thread *th)
{
	if (th->param.weight | th->param.prio | th->param.period_ns)
		rc_params_put(t, it, &th->param, th->most, pl_clock(scx_bpf_now()));
}

/*
 * What thread p asks for, or root for it; then `most` is 0, and else what rc_weight_most said.
 * While the scheduler is detached nothing is checked, and nothing stored.
 */
static __noinline int rc_params_set(struct task_struct *p, struct rc_param *param, u32 most)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it;
	struct rc_thread *th = rc_thread_made(p);
	u64 raw = scx_bpf_now(), owner = (u64)p, ran;
	int answer = -E_AGAIN;

	if (!th)
		return -E_NOMEM;
	it = (struct rs_item RS_ARENA *)th->item;
	if (!it)
		return -E_AGAIN;
	RC_LOCK(irq, return -E_AGAIN);
	if (most && param->weight > most && param->weight > it->weight_by) {
		answer = -E_ACCES;
	} else if (it->owner == owner && it->state != RS_ITEM_FREE) {
		if (it->want) {
			ran = it->part_ran[0] + it->part_ran[1];
			it->paid += ran;
			/* what is left is charged when the step ends */
			it->paid -= rc_catch_up(t, it, ran, pl_clock(raw));
		}
		answer = rc_params_put(t, it, param, most, pl_clock(raw));
		if (rc_traced() && !answer)
			rc_trace_param(it);
	}
	PLANE_UNLOCK(irq);
	if (!answer) {
		th->param = *param;
		th->most = most;
	}
	RC_CHECK(t);
	return answer;
}

/*
 * The mount is gone. Its number may be given to another one, in which anybody could make up inode
 * numbers: it means nothing from now on.
 */
SEC("fentry/kill_anon_super")
int BPF_PROG(rc_unmounted, struct super_block *sb)
{
	if (sb->s_dev == mount_dev)
		mount_dev = 0;
	return 0;
}

/* A node's kind, alg, dying and depth, read at once; and an item's state and flags. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define RC_KIND_DYING 0x00ff00ff
#define RC_LIVE_QUEUE RS_QUEUE
#define RC_STATE_PERIODIC (0xff | RS_ITEM_PERIODIC << 8)
#define RC_IN_SERVICE RS_SERVICE
#else
#define RC_KIND_DYING 0xff00ff00
#define RC_LIVE_QUEUE (RS_QUEUE << 24)
#define RC_STATE_PERIODIC (0xff00 | RS_ITEM_PERIODIC)
#define RC_IN_SERVICE (RS_SERVICE << 8)
#endif

/*
 * The running thread goes to another queue, without the lock: see rc_catch_up. Answers whether it
 * could. Interrupts are on: when the step ends while we are here, the exchange fails, or, after it,
 * the part that we hold is added to the next step. Should the thread go to another CPU between the
 * two readings of the time, the exchange fails as well.
 */
static __always_inline bool rc_hop(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct task_struct *me,
				   u64 node)
{
	u64 want = it->want, s = it->started, from, raw, ran;
	struct rs_node RS_ARENA *q;
	u32 slot;

	if ((u32)node >= RS_NODES_OPEN)
		return false;
	q = &t->nodes[(u32)node];
	if (q->gen != node >> 32 || (*(u32 RS_ARENA *)&q->kind & RC_KIND_DYING) != RC_LIVE_QUEUE ||
	    q->members_max || (*(u16 RS_ARENA *)&it->state & RC_STATE_PERIODIC) != RC_IN_SERVICE || (s & RC_OFF))
		return false;
	if (want == node)
		return true;
	if (want) {
		from = want;
		slot = it->part_node[0] != from;
		if (slot && it->part_node[1] && it->part_node[1] != from)
			return false;
	} else {
		if (it->queue == q)
			return true;
		from = rc_open_id(it->queue);
		slot = 0;
	}
	if (from == node)
		return true;
	raw = scx_bpf_now();
	/* Both were read on this CPU, but where the thread was moved from elsewhere (rc_move). */
	ran = rs_before(s, raw) ? raw - s : 0;
	if (__sync_val_compare_and_swap(&it->started, s, raw) != s)
		return false;
	if (slot) {
		it->part_node[1] = from;
		it->part_ran[1] += ran;
	} else {
		it->part_node[0] = from;
		it->part_ran[0] += ran;
	}
	RS_WRITTEN(); /* who reads what it wants reads the parts too */
	it->want = node;
	return true;
}

/* F_RESERV_GETPARAM */
static __always_inline int rc_fcntl_get(struct inode *inode, unsigned long arg)
{
	struct rc_thread_param user = {};
	struct rc_thread *th;
	u32 size = 0;

	if (inode->i_sb->s_dev != mount_dev)
		return -E_INVAL;
	if (bpf_probe_read_user(&size, sizeof(size), (void *)arg))
		return -E_FAULT;
	if (size != sizeof(user))
		return -E_INVAL;
	user.size = sizeof(user);
	th = bpf_task_storage_get(&tags, bpf_get_current_task_btf(), 0, 0);
	if (th) {
		user.weight = th->param.weight;
		user.prio = th->param.prio;
		user.period_ns = th->param.period_ns;
		user.budget_ns = th->param.budget_ns;
		user.deadline_ns = th->param.deadline_ns;
	}
	return bpf_probe_write_user((void *)arg, &user, sizeof(user)) ? -E_FAULT : 1;
}

/*
 * Whether the caller may use a queue by what was told of it; RC_LISTED: something was. A function
 * of its own: a frame that only this asks for.
 */
#define RC_LISTED 2
static __noinline int rc_by_rules(u64 node)
{
	struct rt_use *use = bpf_map_lookup_elem(&uses, &node);
	struct task_struct *me = bpf_get_current_task_btf();

	if (!use)
		return 1;
	return rt_use_allows(use, me, me->cred->fsuid.val) ? RC_LISTED : 0;
}

/*
 * The number of the share file that a descriptor is of which is of no queue's directory, or a
 * negative errno. Who only sees a queue may open its share file, so its descriptor says nothing by
 * itself: where nobody was told who may use the queue, root may. A function of its own, for it is
 * rare.
 */
static __noinline s64 rc_by_share(u64 opened, u64 ino, u32 mode)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_node RS_ARENA *q;
	u64 node;

	if (ino >> 56 == RT_INO_FRESH)
		ino = rt_fresh(opened, ino);
	if (ino >> 48 != RT_SHARE_WORD(0))
		return -E_INVAL;
	if (!(mode & RT_FMODE_READ))
		return -E_BADF;
	node = (ino >> 16 & 0xffffffff) << 32 | (ino & 0xffff);
	q = (u32)node < RS_NODES_OPEN ? rs_node_at(t, node) : 0;
	if (!q)
		return -E_STALE;
	if (q->kind != RS_QUEUE)
		return -E_INVAL;
	return !bpf_get_current_task_btf()->cred->fsuid.val || bpf_map_lookup_elem(&uses, &node) ? (s64)ino : -E_ACCES;
}

/*
 * Whether the running thread may be promised something in its queue: asks.h. `ino` is of the
 * descriptor by which it asks.
 */
static __noinline int rc_may_promise(struct rc_thread *th, u64 ino)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	u64 node = pl_id(rc_queue(t, rc_tag_now(th)));

	if (bpf_map_lookup_elem(&uses, &node))
		return rc_by_rules(node);
	if (ino >> 48 == RC_QUEUE_DIR_WORD && node == ((ino >> 16 & 0xffffffff) << 32 | (ino & 0xffff)))
		return 1;
	return !bpf_get_current_task_btf()->cred->fsuid.val;
}

/* F_RESERV_SETPARAM */
static __always_inline int rc_fcntl_set(struct inode *inode, unsigned long arg)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct rc_thread_param user = {};
	struct rc_param param;
	u32 most;
	int answer;

	if (inode->i_sb->s_dev != mount_dev)
		return -E_INVAL;
	if (bpf_probe_read_user(&user, sizeof(user), (void *)arg))
		return -E_FAULT;
	if (user.size != sizeof(user) || user.pad)
		return -E_INVAL;
	param.weight = user.weight;
	param.prio = user.prio;
	param.period_ns = user.period_ns;
	param.budget_ns = user.budget_ns;
	param.deadline_ns = user.deadline_ns;
	most = rc_weight_most();
	if (most && param.prio > RS_PRIORITY_DEFAULT && param.prio <= RS_PRIORITY_MAX)
		return -E_ACCES;
	if (most && param.period_ns && !rc_may_promise(bpf_task_storage_get(&tags, me, 0, 0), inode->i_ino))
		return -E_ACCES;
	answer = rc_params_set(me, &param, most);
	return answer ? answer : 1;
}

/*
 * The queue of the container whose directory or share this is, as chcpures has it, or a negative
 * errno. A share is treated like one of a queue (rc_by_share).
 */
static __always_inline s64 rc_container(u64 opened, u64 ino, u32 mode, int *rules)
{
	bool by_share = ino >> 56 == RC_CONTAINER_FRESH_AREA || ino >> 48 == RC_CONTAINER_SHARE_WORD;
	u64 node;

	if (!by_share && ino >> 48 != RC_CONTAINER_DIR_WORD)
		return -E_INVAL;
	if (by_share && !(mode & RT_FMODE_READ))
		return -E_BADF;
	node = rt_opened_node(opened, ino);
	if (!node)
		return -E_INVAL;
	if (by_share && bpf_get_current_task_btf()->cred->fsuid.val && !bpf_map_lookup_elem(&uses, &node))
		return -E_ACCES;
	*rules = ruled >> (node & 63) & 1 ? rc_by_rules(node) : 1;
	return *rules ? (s64)node : -E_ACCES;
}

#include "paged.h"

/* The running thread goes to a queue: 0, or a negative errno. */
static __always_inline int rc_go(struct task_struct *me, u64 node)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it = rc_own(me);

	return it && rc_hop(t, it, me, node) ? 0 : rc_retag(me, node);
}

/* F_RESERV_BIND, F_RESERV_UNBIND, F_RESERV_BOUND */
static __noinline int rc_fcntl_bind(u64 opened, u64 ino, u32 mode, u32 cmd)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rt_works *all = rt_works();
	u64 from, back, before;
	struct rt_work *w;
	int answer, rules;
	s64 node;

	if (!tree_at || !all)
		return -E_INVAL;
	rc_page_first(me);
	if (cmd == F_RESERV_BIND) {
		node = rc_container(opened, ino, mode, &rules);
		if (node < 0)
			return node;
		w = bpf_task_storage_get(&work, me, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!w)
			return -E_NOMEM;
		from = rc_own_tag(me);
		back = w->epoch == all->epoch && w->queue && rt_work_queue(w->queue) == from ? w->back : from;
		answer = rc_go(me, node);
		if (answer)
			return answer;
		rc_bound_to(all, w, node, back, rules == RC_LISTED);
		/* somebody may have tagged it meanwhile: rc_retag */
		if (rc_own_tag(me) != (u64)node)
			w->queue = 0;
		return 1;
	}
	from = rc_own_tag(me);
	w = rc_bound(me, from);
	if (cmd == F_RESERV_BOUND)
		return w ? 1 + (int)rc_queue(t, from)->index : -E_NOENT;
	if (!w)
		return 1;
	before = w->back;
	back = rc_back(before);
	if (!rc_may_go_back(me, back, before))
		return -E_ACCES;
	answer = rc_go(me, back);
	if (!answer)
		w->queue = 0;
	return answer ? answer : 1;
}

/*
 * chcpures(): fcntl on a descriptor of a queue's directory, or its share. The kernel has looked the
 * descriptor up and holds the file; one that was opened with O_PATH does not come here (EBADF).
 * Answers are above 0, because 0 means to go on with the kernel's own fcntl, which knows no such
 * command.
 */
static __always_inline int rc_fcntl_any(struct file *file, unsigned int cmd, unsigned long arg, int ret, bool writes)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it;
	struct task_struct *me;
	struct inode *inode;
	u64 ino, node;
	s64 share;
	int answer;

	me = bpf_get_current_task_btf();
	inode = file->f_inode;
	if (cmd != F_RESERV_CHCPURES) {
		if (cmd == F_RESERV_SETPARAM)
			return rc_fcntl_set(inode, arg);
		if (writes && cmd == F_RESERV_GETPARAM)
			return rc_fcntl_get(inode, arg);
		if (cmd - F_RESERV_BIND <= F_RESERV_BOUND - F_RESERV_BIND && inode->i_sb->s_dev == mount_dev)
			return rc_fcntl_bind((u64)file->private_data, inode->i_ino, file->f_mode, cmd);
		if (cmd == F_RESERV_SLOT && inode->i_sb->s_dev == mount_dev)
			return rc_fcntl_slot((u64)file->private_data, inode->i_ino, file->f_mode, arg);
		if (cmd == F_RESERV_PAGE && inode->i_sb->s_dev == mount_dev)
			return rc_fcntl_page(arg);
		if (cmd != F_RESERV_GETCPURES)
			return ret;
		if (inode->i_sb->s_dev != mount_dev)
			return -E_INVAL;
		rc_page_first(me);
		return 1 + rc_queue(t, rc_tag_now(bpf_task_storage_get(&tags, me, 0, 0)))->index;
	}
	ino = inode->i_ino;
	if (inode->i_sb->s_dev != mount_dev)
		return -E_INVAL;
	if (ino >> 48 != RC_QUEUE_DIR_WORD) {
		share = rc_by_share((u64)file->private_data, ino, file->f_mode);
		if (share < 0)
			return share;
		ino = share;
	}
	node = (ino >> 16 & 0xffffffff) << 32 | (ino & 0xffff);
	if (ruled >> (ino & 63) & 1 && !rc_by_rules(node))
		return -E_ACCES;
	it = rc_own(me);
	if (it && it->paged)
		rc_page_now(0);
	if (it && rc_hop(t, it, me, node)) {
		rc_unbind(me);
		return 1;
	}
	answer = rc_retag(me, node);
	return answer ? answer : 1;
}

/*
 * One of these is loaded (load.rs). F_RESERV_GETPARAM writes to the caller's memory, which a kernel
 * under lockdown lets no program do: there it is unknown, and nothing else is missing.
 */
SEC("fmod_ret/security_file_fcntl")
int BPF_PROG(rc_fcntl, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	return rc_fcntl_any(file, cmd, arg, ret, true);
}

SEC("fmod_ret/security_file_fcntl")
int BPF_PROG(rc_fcntl_locked, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	return rc_fcntl_any(file, cmd, arg, ret, false);
}
