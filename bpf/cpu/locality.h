/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a thread that wakes is to run, and who is told.
 *
 * 1. On the waker's CPU, where that wakes it synchronously and is trusted: it slept, without waking
 *    anybody else, the last RC_TRUST times that it had said it was about to (SCX_WAKE_SYNC is often
 *    said and not done). The thread goes on in the waker's step (rc_enqueue_behind) and nobody is
 *    kicked. Who wakes a second thread before it has slept is not trusted any more.
 * 2. Else where the kernel's own idle tracking says: the CPU used last if it idles, one with an
 *    idle sibling first, then of the same last-level cache, of the same node, any.
 * 3. Else it waits in the tree, and whichever CPU is free first has it; the one that it used last
 *    before others (sched/tree.c, rs_queue_near).
 *
 * By rule 1 a thread may wait behind a waker that does not sleep, once for each time that trust was
 * earned, until the step ends.
 *
 * `near` 0 turns all three off but the kernel's own choice.
 */
#define RC_TRUST 2
#define RC_BEHIND_NS 200000 /* less than that of a step is not handed on */

/* A CPU that idles, or is about to, and that the thread may use, looks at the tree. */
static __noinline int rc_kick_one(struct task_struct *p)
{
	rc_kick_one_of(p->cpus_ptr, timed ? event_since[scx_bpf_task_cpu(p) & (RS_UNITS_MAX - 1)] : 0);
	return 0;
}

/*
 * A synchronous wake-up by who runs here. Answers whether the thread stays for this CPU (rule 1).
 */
static __always_inline bool rc_hands_over(struct rs_tree RS_ARENA *t, struct task_struct *p, u32 here)
{
	struct rc_prev *v = &prevs[here & (RS_UNITS_MAX - 1)];
	struct rs_item RS_ARENA *it = rc_item(p);
	struct rs_item RS_ARENA *cur = rc_item(bpf_get_current_task_btf());
	struct rs_item RS_ARENA *host = t->unit[here & (RS_UNITS_MAX - 1)].item;
	u64 guest = guests[here & (RS_UNITS_MAX - 1)].it;

	if (!it || !cur || !host || (host != cur && guest != (u64)cur)) {
		v->waker = 0;
		return false;
	}
	if (v->waker == (u64)cur) {
		cur->trust = 0;
		if (v->stays)
			rc_kick_one(p);
		v->stays = 0;
		return false;
	}
	v->waker = (u64)cur;
	v->stays = 0;
	if (cur->trust < RC_TRUST || cur->queue != it->queue || (it->state != RS_IDLE && it != host))
		return false;
	if (!bpf_cpumask_test_cpu(here, p->cpus_ptr))
		return false;
	if (it->state == RS_IDLE)
		it->unit = here;
	v->stays = (u64)it;
	return true;
}

/*
 * Without the lock: a thread that stays for this CPU goes on in what is left of the step of `host`,
 * behind its waker, which is about to sleep. To the tree it is one step, of `host`: no queue waits
 * for longer than it would for that, less than RC_BEHIND_NS is not handed on, and its end charges
 * each for what it ran (rc_lent). One guest a step; the host may be woken by its guest in the same
 * way.
 */
static __always_inline bool rc_enqueue_behind(struct rs_tree RS_ARENA *t, struct task_struct *p,
					      struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *host,
					      u32 cpu, u64 raw)
{
	struct rc_guest *g = &guests[cpu & (RS_UNITS_MAX - 1)];
	u64 ran;

	if (!host || host->queue != it->queue || host->state != RS_SERVICE || (host->started & RC_OFF))
		return false;
	if (((host->flags | it->flags) & RS_ITEM_APART) || host->want || it->want || rc_traced())
		return false;
	if ((t->mode & (RS_MODE_AHEAD | RS_MODE_SLICE)) || it->queue->alg == edf_class)
		return false; /* who is next changes within a step */
	ran = rc_ran(host, raw);
	if (ran + RC_BEHIND_NS > host->slice)
		return false;
	if (it == host) {
		if (!g->it)
			return false;
	} else {
		if (it->state != RS_IDLE || (g->it && g->it != (u64)it))
			return false;
		g->it = (u64)it;
	}
	compat_insert(p, SCX_DSQ_LOCAL, host->slice - ran, 0);
	return true;
}

/*
 * The waker's CPU is to run something else: it has slept (not `more`), as it said, or it has not.
 */
static __always_inline void rc_handed_over(struct rc_prev *v, struct rs_item RS_ARENA *it, u32 more)
{
	u32 his = v->waker == (u64)it;

	v->waker = 0;
	v->stays = 0;
	if (!his || !it)
		return;
	if (!more && it->trust <= RC_TRUST)
		it->trust++;
	else if (more && it->trust)
		it->trust--;
}

s32 RC_OP(rc_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct rs_item RS_ARENA *it;
	bool idle = false;
	s32 cpu, here;

	if (cpus == 1)
		return prev_cpu;
	if (near && (wake_flags & SCX_WAKE_SYNC)) {
		here = bpf_get_smp_processor_id();
		if (rc_hands_over(pl_tree(), p, here))
			return here;
		wake_flags &= ~(u64)SCX_WAKE_SYNC; /* the kernel would trust it */
	}
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle); /* prev_cpu where none idles */
	it = rc_item(p);
	if (it)
		it->told = idle;
	if (idle) {
		rc_comes(cpu);
		rc_told(cpu, 0);
	}
	return cpu;
}
