/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads come, change their nice value and go; so do CPUs, and the scheduler itself.
 *
 *   init_task  the thread has an item from here …
 *   exit_task  … to here. The kernel calls it when the thread has left its CPU for the last time,
 *              or, before 6.19, when nobody holds the thread any more (compat.h)
 *   enable, disable  the thread enters and leaves our class
 */

#include "pool.h"

/*
 * What a dispatch on a CPU knows: of prev, when it begins. In memory whose contents the verifier
 * does not follow: with the same on the stack it went through eight times as many paths as all
 * other operations together have.
 */
struct rc_prev {
	u64 it; /* 0: not ours */
	u64 owed;
	u64 old; /* stands in service here, and is not prev's */
	u64 old_owed; /* where there is one */
	u32 more; /* prev may go on */
	/*
	 * what was chosen is to run for an instant only; nothing was, and the CPU is to ask again
	 */
	u32 touch;
	u32 floor; /* kernel threads may have what is left of it */
	u32 graces; /* that who runs here has had in this step (timer.h) */
	/*
	 * the CPU went since the last dispatch anywhere: written by whoever takes it away, and by
	 * rc_gone_settle
	 */
	u32 gone;
	u32 let_go; /* the choice let go what a cap held back: it may be for other CPUs */
	/* the item of the thread that woke another here and has not slept since (locality.h) */
	u64 waker;
	u64 stays; /* the item of whom it woke, if nobody else was told of it */
	u64 section; /* number of the dispatch's last section of the lock */
	u32 left; /* it has said that it finds nothing (idle.h) */
	u32 pad1;
	u64 pad2[5];
};
struct rc_prev prevs[RS_UNITS_MAX]; /* each changed on its CPU only, under its run queue's lock */
u32 gone_any; /* some CPU's `gone` is set */

void RC_OP(rc_set_weight, struct task_struct *p, u32 weight)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it = rc_item(p);
	u32 flags, w = rc_weight_of(p, &flags);

	if (!it)
		return;
	if (!pl_lock()) /* as PLANE_LOCK */
		return;
	it->flags = (it->flags & ~(RS_ITEM_BATCH | RS_ITEM_BACKGROUND)) | flags;
	rs_item_weight_by(t, it, w);
	pl_unlock();
	RC_CHECK(t);
}

/*
 * Who is born owes its queue a step, as if it had had one: what it runs before it ends is paid for
 * then, whatever becomes of it. A thread that ends takes its debts with it; who began without any,
 * at the queue's virtual time, and left the rest to a new thread whenever it had run, came before
 * all others of the queue for ever. (EEVDF's predecessor placed newcomers so: START_DEBIT.)
 */
static __always_inline void rc_owes_a_step(struct rs_item RS_ARENA *it)
{
	struct rs_node RS_ARENA *q = it->queue;

	rs_tag_new(&q->clock, &it->tag);
	it->tag.base += rs_vwork(q->quantum, it->weight ? it->weight : RS_WEIGHT_ONE);
}

/*
 * Also called for threads of other classes, which may come to us later; enable() is when one does.
 */
s32 RC_OP_SLEEPABLE(rc_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it;
	struct rs_node RS_ARENA *q;
	struct rc_thread *th;
	bool fork = args->fork;
	u64 owner = (u64)p, owner2 = (u64)(u32)p->tgid << 32 | (u32)p->pid;
	u64 home = rc_group_home(args);
	u32 joined = 0, index = 0, account = rc_account_of(p);

	th = rc_thread_made(p);
	if (!th)
		return -E_NOMEM;
	if (fork)
		rc_inherit(p, bpf_get_current_task_btf(), th, true);
	PLANE_LOCK(irq, goto refused);
	account = rc_account_takes(account, !fork);
	it = account == RC_NO_ACCOUNT ? 0 : rs_item_alloc(t);
	if (it) {
		it->owner = owner;
		it->owner2 = owner2;
		it->account = account;
		it->flags = p->flags & (PF_KTHREAD | PF_LOCAL_THROTTLE) ? RS_ITEM_APART : 0;
		it->started = RC_OFF;
		it->want = 0;
		it->told = 0;
		it->floor = 0;
		it->paged = !fork && rc_has_page(p);
		it->part_node[0] = it->part_node[1] = 0;
		it->part_ran[0] = it->part_ran[1] = 0;
		it->home = home;
		q = rc_queue(t, th->tag.node);
		if (q->dying) { /* it takes nobody any more; whoever would begin there begins where all will be when it is gone */
			q = &t->nodes[1];
			th->tag.node = 0;
			rc_unbind(p);
		}
		if (q->index == 1)
			q = rc_home(t, it);
		/*
		 * When we come again who is there is in his queue: no limit puts anybody into q0.
		 */
		joined = fork ? rs_item_join(t, it, q) : rs_item_rejoin(t, it, q);
		if (!joined && !fork)
			joined = rs_item_rejoin(t, it, &t->nodes[1]);
		if (!joined)
			rs_item_free(t, it);
		else if (fork)
			rc_owes_a_step(it);
		else
			rc_params_again(t, it, th);
	}
	if (joined)
		index = it->index;
	else if (account != RC_NO_ACCOUNT)
		rc_account_gone(account);
	PLANE_UNLOCK(irq);
refused:
	if (joined) {
		if (fork && p->tgid == p->pid)
			rc_lists_inherit(p, bpf_get_current_task_btf());
		if (!compat_hold_in_class())
			rc_thread_hold(index, p);
	}
	th->item = joined ? (u64)it : 0;
	if (!joined)
		RC_COUNT(refused, 1);
	return joined ? 0 : -E_AGAIN;
}

void RC_OP(rc_enable, struct task_struct *p)
{
	struct rc_thread *th = bpf_task_storage_get(&tags, p, 0, 0);
	struct rs_item RS_ARENA *it;

	if (!th)
		return;
	if (th->item) {
		pl_tree();
		it = (struct rs_item RS_ARENA *)th->item;
		it->paid = p->se.sum_exec_runtime;
		if (compat_hold_in_class() && !(p->__state & TASK_DEAD)) /* nobody would tell of its end again */
			rc_thread_hold(it->index, p);
	}
	compat_set_vtime(p, th->item);
}

/* Under the lock: the thread does not want the CPU of us any more. */
static __always_inline void rc_leave(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct task_struct *p, u64 raw)
{
	if (it->state == RS_QUEUED)
		rc_remove(t, it);
	else if (it->state == RS_SERVICE)
		rc_settle(t, it, rc_owed(it, p), 0, pl_clock(raw));
}

/*
 * The thread leaves our class, or we leave. The kernel calls it before exit_task() where the thread
 * is in our class.
 */
void RC_OP(rc_disable, struct task_struct *p)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it = rc_item(p);
	u64 raw = scx_bpf_now();

	if (it) {
		if (compat_hold_in_class())
			rc_thread_put(it->index, 0);
		RC_LOCK(irq, goto out);
		rc_leave(t, it, p, raw);
		PLANE_UNLOCK(irq);
	}
out:
	compat_set_vtime(p, 0);
}

/* The thread does not want the CPU any more. Loaded only where nothing else tells of its end. */
void RC_OP(rc_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct rs_item RS_ARENA *it;

	if (!(p->__state & TASK_DEAD))
		return;
	pl_tree(); /* names the arena */
	it = rc_item(p);
	if (it)
		rc_thread_put(it->index, 0);
}

void RC_OP(rc_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_thread *th = bpf_task_storage_get(&tags, p, 0, 0);
	struct rs_item RS_ARENA *it;

	if (p->signal->live.counter == 0 || (args->cancelled && p->tgid == p->pid))
		rc_lists_end(p);
	if (!th || !th->item)
		return;
	it = (struct rs_item RS_ARENA *)th->item;
	rc_thread_put(it->index, 0); /* before another thread gets the item */
	PLANE_LOCK(irq, goto out); /* rc_init frees the item then, and forgets the account */
	/*
	 * It is idle and not posted, for disable() has been. From here on the thread's own storage
	 * has its tag.
	 */
	th->tag.node = rc_tag_of(it);
	rc_account_gone(it->account);
	rs_item_leave(t, it);
	PLANE_UNLOCK(irq);
out:
	th->item = 0;
}

/*
 * How many CPUs there are to share, and which (`online`). `without`: one that goes, and is still in
 * the kernel's mask; cpus: none.
 */
static __always_inline u32 rc_online(u32 without)
{
	const struct cpumask *now = scx_bpf_get_online_cpumask();
	u32 n = bpf_cpumask_weight(now);

	online[0] = now->bits[0];
	if (bpf_core_type_size(struct cpumask) >= 16)
		online[1] = now->bits[1];
	if (bpf_core_type_size(struct cpumask) >= 32) {
		online[2] = now->bits[2];
		online[3] = now->bits[3];
	}
	if (without < cpus && bpf_cpumask_test_cpu(without, now)) {
		online[(without / 64) & (RS_UNIT_WORDS - 1)] &= ~(1ULL << (without & 63));
		n--;
	}
	scx_bpf_put_cpumask(now);
	return n > RS_UNITS_MAX ? RS_UNITS_MAX : n ? n : 1;
}

/*
 * One more or less. A section of the lock that looks at nothing that was posted: it is of no
 * event's order.
 */
static __always_inline void rc_units_now(u32 without)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	u32 n = rc_online(without);

	bpf_local_irq_save(&irq);
	if (pl_lock()) {
		rs_units(t, n);
		pl_unlock();
	}
	bpf_local_irq_restore(&irq);
}

/*
 * Hotplug must not take the scheduler away, which is what the kernel does where these are missing.
 */
void RC_OP(rc_cpu_online, s32 cpu)
{
	rc_units_now(cpus);
}

/*
 * What stands in service there is settled by the next dispatch elsewhere (rc_gone_settle): nobody
 * else can want what it has before.
 */
void RC_OP(rc_cpu_offline, s32 cpu)
{
	rc_units_now(cpu);
	prevs[cpu & (RS_UNITS_MAX - 1)].gone = 1;
	gone_any = 1;
	if (cpus > 1)
		rc_comes(cpu); /* it is not to be told */
}

/*
 * Items of threads that went while the lock was not to be had: nobody is anybody's when the
 * scheduler comes.
 */
RS_FN_VOID(rc_items_left, (struct rs_tree RS_ARENA *t, u32 from), (t, from))
{
	RS_LOOP(k, RS_RESET_PIECE) {
		u32 i = from + k;
		struct rs_item RS_ARENA *it = &t->items[i & (RS_ITEMS_MAX - 1)];

		if (i >= t->items_used)
			break;
		if (it->state == RS_ITEM_FREE)
			continue;
		if (it->queue && it->queue->index >= RS_NODES_OPEN) { /* a cgroup's, which is forgotten */
			it->queue = &t->nodes[1];
			t->nodes[1].members++;
		}
		rs_item_leave(t, it);
	}
}

/*
 * All nodes and items begin anew, a section for each piece of them. The kernel calls nothing else
 * of ours meanwhile, the daemon waits, hooks find no item of theirs and look at names of nodes
 * only, and the timer waits for `starting`. Answers 0, or -1 where the lock was not to be had.
 */
static __noinline int rc_begin_anew(struct rs_tree RS_ARENA *t)
{
	unsigned long irq;
	u32 more;

	RS_LOOP(i, RS_ITEMS_MAX / RS_RESET_PIECE) {
		PLANE_LOCK(irq, return -1);
		more = rs_tree_reset_some(t, i * RS_RESET_PIECE);
		PLANE_UNLOCK(irq);
		if (!more)
			break;
	}
	RS_LOOP(i, RS_ITEMS_MAX / RS_RESET_PIECE) {
		if (i * RS_RESET_PIECE >= t->items_used)
			break;
		PLANE_LOCK(irq, return -1);
		rc_items_left(t, i * RS_RESET_PIECE);
		PLANE_UNLOCK(irq);
	}
	return pl_quanta() ? 0 : -1;
}

s32 RC_OP_SLEEPABLE(rc_init)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_state *s = rc_state();
	u32 n = scx_bpf_nr_cpu_ids(), there = rc_online(cpus);

	if (!tree_at || !s || n != cpus || n > RS_UNITS_MAX)
		return -E_INVAL;
	rc_graces_ready();
	starting = 1; /* before the timer, which ends where there is nobody to go off for */
	rc_timer_begin();
	PLANE_LOCK(irq, starting = 0; return -E_AGAIN); /* what was posted is of a time gone by */
	rc_mirror_forget(t);
	rs_tree_reset_begin(t);
	PLANE_UNLOCK(irq);
	if (rc_begin_anew(t)) {
		starting = 0;
		return -E_AGAIN;
	}
	rc_accounts_begin();
	leaving[0] = leaving[1] = leaving[2] = leaving[3] = 0; /* of before it came */
	PLANE_LOCK(irq, starting = 0; return -E_AGAIN);
	attached = 1;
	starting = 0;
	if (trace_on)
		rc_trace_out(RC_TRACE_WHO(RC_TRACE_RESET, 0, 0, 0), 0, 0, 0);
	rs_units_first(t, there);
	t->near = near;
	PLANE_UNLOCK(irq);
	s->cpus = n;
	s->attached++;
	return 0;
}

void RC_OP(rc_exit, struct scx_exit_info *info)
{
	struct rc_state *s = rc_state();

	attached = 0;
	if (!s)
		return;
	s->exit_kind = info->kind;
	s->exit_code = info->exit_code;
	bpf_probe_read_kernel_str(s->exit_reason, sizeof(s->exit_reason), info->reason);
	bpf_probe_read_kernel_str(s->exit_msg, sizeof(s->exit_msg), info->msg);
	s->detached++;
}
