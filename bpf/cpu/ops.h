/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler's operations: how the kernel's events become the core's.
 *
 *   enqueue    the thread wants the CPU: rs_post, without the lock, or rs_wake where it may
 *              displace who runs; or its step ended
 *   dispatch   the CPU is free: what ran is charged, by the kernel's count, and competes as if
 *              queued (docs/notes/kernel.md §2) or is idle; rs_pick
 *   disable    the thread leaves our class
 *
 * So a switch takes the lock once, in dispatch, or in the wake-up that displaces. The kernel is not
 * asked to tell us when a thread starts, stops or blocks (running, stopping, quiescent): each such
 * call costs as much as the decision itself.
 *
 * The kernel may run, move or dequeue a thread at any time without asking: an item that is chosen
 * may never arrive on its CPU (it then stands in service there and is taken back at the next
 * dispatch), a queued one may be asleep (seen when it is chosen), or a thread may run that was not
 * chosen (it is charged with its next step). The state of an item is therefore looked at, never
 * assumed.
 *
 * While prev is charged in dispatch() but has not left the CPU yet, it is still the kernel's: its
 * item may be picked by this CPU only, until enqueue() is called for it.
 */

/*
 * Whether a thread must stay where it is. A BPF program may itself have disabled migration of the
 * thread that it interrupts, once (the kernel's is_bpf_migration_disabled() knows the same): a busy
 * thread that is queued again at the end of its step would never leave its CPU. Where that count
 * was the thread's own, dispatch finds out, because then it is not current any more.
 */
static __always_inline bool rc_pinned(struct task_struct *p)
{
	return p->migration_disabled > 1 || (p->migration_disabled == 1 && p != bpf_get_current_task_btf());
}

/*
 * Whether a thread may use every CPU that is there: its mask need not have those that could come,
 * as one set by a cpuset or by sched_setaffinity() to all has not. When one comes, the choice for
 * it does not fit, and the thread's mask is read (rc_misfit).
 */
static __always_inline bool rc_everywhere(struct task_struct *p)
{
	const struct cpumask *m = p->cpus_ptr;

	if ((u32)p->nr_cpus_allowed >= cpus)
		return true;
	if (online[0] & ~m->bits[0])
		return false;
	if (bpf_core_type_size(struct cpumask) >= 16 && (online[1] & ~m->bits[1]))
		return false;
	if (bpf_core_type_size(struct cpumask) >= 32)
		return !((online[2] & ~m->bits[2]) | (online[3] & ~m->bits[3]));
	return true;
}

/*
 * Which CPUs a thread may use: into the item's mask, unless it is all (1), which the caller tells
 * the item. Under the lock, or idle.
 */
static __always_inline u32 rc_units(struct rs_item RS_ARENA *it, struct task_struct *p)
{
	const struct cpumask *m = p->cpus_ptr;

	if (cpus == 1)
		return 1;
	if (rc_pinned(p)) {
		u32 cpu = scx_bpf_task_cpu(p);

		it->mask[0] = it->mask[1] = it->mask[2] = it->mask[3] = 0;
		it->mask[(cpu / 64) & (RS_UNIT_WORDS - 1)] = 1ULL << (cpu & 63);
		return 0;
	}
	if (rc_everywhere(p))
		return 1;
	it->mask[0] = m->bits[0];
	it->mask[1] = it->mask[2] = it->mask[3] = 0;
	if (bpf_core_type_size(struct cpumask) >= 16)
		it->mask[1] = m->bits[1];
	if (bpf_core_type_size(struct cpumask) >= 32) {
		it->mask[2] = m->bits[2];
		it->mask[3] = m->bits[3];
	}
	return 0;
}

#include "locality.h"

#include "displace.h"

/*
 * Whether the mirror of cgroups has no say in a wake-up: it knows of none, or both are in one
 * queue.
 */
static __always_inline bool rc_no_group(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur)
{
	return t->front->index == 1 || !cur || it->queue == cur->queue;
}

/*
 * An enqueue that takes the lock. 1: the thread displaces who runs, and is in service already; 2 +
 * n: it displaces who runs on CPU n.
 */
static __always_inline u32 rc_enqueue_locked(struct rs_tree RS_ARENA *t, struct task_struct *p, struct rs_item RS_ARENA *it,
					     u64 enq_flags, u32 cpu, u64 raw)
{
	u32 wakeup = enq_flags & SCX_ENQ_WAKEUP, answer = 0, all;
	u64 now;
	struct rs_item RS_ARENA *cur;

	if (!rc_lock()) {
		RC_CHECK(t);
		return 0;
	}
	now = pl_clock(raw);
	if (it->floor)
		rc_floor_charge(t, it, cpu, rc_owed(it, p));
	it->stays = 0;
	all = rc_units(it, p);
	if (it->state == RS_QUEUED && wakeup)
		rc_remove(t, it); /* it blocked after it had been charged */
	if (it->state == RS_QUEUED) {
		rs_item_units(t, it, all);
	} else {
		it->all = all;
		if (it->state == RS_SERVICE)
			rc_settle(t, it, rc_owed(it, p), !wakeup, now);
		if (it->state == RS_IDLE)
			rc_wake(t, it, now);
	}
	cur = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if (cpus > 1 && cur && wakeup && it->state == RS_QUEUED && ((t->mode & RS_MODE_AHEAD) || it->queue->alg == edf_class)) {
		answer = rs_victim(t, it);
		answer += answer != 0;
	} else if (cur && wakeup && it->state == RS_QUEUED && 
		   (rs_preempts(t, it, cur, rc_ran(cur, raw)) || (t->front->index != 1 && rc_group_preempts(t, it, cur, rc_ran(cur, raw))))) {
		answer = 2 + cpu;
		if (rc_runs_there(cur, cpu) && rc_displace(t, it, cur, cpu, raw, now))
			answer = 1;
	}
	pl_unlock();
	RC_CHECK(t);
	return answer;
}

/*
 * Several CPUs: a thread that dispatch has queued for this CPU only, whose run queue we hold, has
 * left it. While it stays for this CPU nobody else may pick it. Answers whether that is all.
 */
static __always_inline bool rc_left(struct rs_tree RS_ARENA *t, struct task_struct *p, struct rs_item RS_ARENA *it, u32 cpu)
{
	if (it->posted)
		return false;
	RS_WRITTEN(); /* it is off the list: what drain wrote before it said so is read */
	if (!it->stays || it->all || !rs_unit_in(it->mask, cpu))
		return false;
	if (rc_pinned(p) || p->nr_cpus_allowed == 1)
		return true; /* this CPU is all that it may use */
	return rc_everywhere(p) && rs_post_all(t, it);
}

/*
 * The usual two enqueues, without the lock (sched/post.c has the rules): the thread's step ended,
 * and dispatch has queued it for this CPU only; or it wakes, and displaces nobody. Answers whether
 * that was it. On several CPUs it is neither:
 *   where a thread that waits already is queued again (a change of its nice value): another CPU may
 *   be choosing it; where a thread may use some CPUs, and leaves one: while it waits its mask is
 *   others' to read; with kernel threads that wait in q0: the floor takes them out of it, and may
 *   put them back (rc_misfit), and is not their owner; where a policy displaces across queues:
 *   rs_victim looks at all CPUs.
 */
static __always_inline bool rc_enqueue_quietly(struct rs_tree RS_ARENA *t, struct task_struct *p, struct rs_item RS_ARENA *it,
					       struct rs_item RS_ARENA *cur, u64 enq_flags, u32 cpu, u64 raw)
{
	if (cpus == 1 ? !it->all : it->flags & RS_ITEM_APART)
		return false;
	if (it->state == RS_QUEUED)
		return !(enq_flags & SCX_ENQ_WAKEUP) && (cpus == 1 || rc_left(t, p, it, cpu));
	if (it->state != RS_IDLE || rc_traced() || it->floor || !rc_no_group(t, it, cur) ||
	    !rs_wakes_quietly(t, it, cur, raw))
		return false;
	if (cpus == 1)
		return rs_post(t, it, raw);
	if (cur && (t->mode & RS_MODE_AHEAD))
		return false;
	it->stays = 0;
	it->all = rc_units(it, p);
	return rs_post(t, it, raw) || rs_post(t, it, raw) || rs_post(t, it, raw);
}

static __always_inline void rc_enqueued(struct task_struct *p, u64 enq_flags)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it = rc_item(p), *cur;
	u64 raw = scx_bpf_now();
	u32 cpu, preempt = 0, told = 0;

	if (!it) {
		compat_insert(p, SCX_DSQ_LOCAL, 4000000, 0);
		return;
	}
	cpu = cpus == 1 ? 0 : scx_bpf_task_cpu(p);
	rc_event(cpu, raw);
	if (cpus > 1) {
		told = it->told;
		it->told = 0;
	}
	/*
	 * Displaced by a kernel thread, without a dispatch: behind that, before all others. Its
	 * item stays in service. Likewise where its page is still to be read, for which there is no
	 * stack here; on several CPUs who was displaced by another class is anybody's to take.
	 */
	if (it->state == RS_SERVICE && !(enq_flags & SCX_ENQ_WAKEUP) && p == bpf_get_current_task_btf() &&
	    (rc_inside(p) || (it->paged && (cpus == 1 || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL) > 0))) &&
	    prevs[cpu & (RS_UNITS_MAX - 1)].graces < RC_GRACES) {
		prevs[cpu & (RS_UNITS_MAX - 1)].graces++;
		compat_insert(p, SCX_DSQ_LOCAL, RC_GRACE_NS, 0);
		return;
	}
	if ((it->flags & RS_ITEM_APART) && it->state == RS_IDLE && it->queue == &t->nodes[1]) {
		if (it->floor && rc_owed(it, p)) {
			if (rc_lock()) {
				rc_floor_charge(t, it, cpu, rc_owed(it, p));
				pl_unlock();
			}
		}
		if (rc_floor(cpu, raw, rc_floor_leaves(p))) {
			it->floor = 1;
			if (cpus > 1)
				rc_runs(cpu);
			compat_insert(p, SCX_DSQ_LOCAL, t->quantum, SCX_ENQ_PREEMPT);
			return;
		}
	}
	cur = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if (cpus > 1 && (enq_flags & SCX_ENQ_WAKEUP) && prevs[cpu & (RS_UNITS_MAX - 1)].stays == (u64)it &&
	    rc_enqueue_behind(t, p, it, cur, cpu, raw)) {
		prevs[cpu & (RS_UNITS_MAX - 1)].stays = 0;
		return;
	}
	if (rc_enqueue_quietly(t, p, it, cur, enq_flags, cpu, raw)) {
		if (cpus == 1)
			return;
	} else {
		preempt = rc_enqueue_locked(t, p, it, enq_flags, cpu, raw);
	}
	if (preempt == 1) {
		compat_insert(p, SCX_DSQ_LOCAL, it->slice, SCX_ENQ_PREEMPT);
		return;
	}
	if (preempt)
		scx_bpf_kick_cpu(preempt - 2, SCX_KICK_PREEMPT);
	/* Where one CPU is all that it may use, and somebody runs there, nobody else can help. */
	if (cpus > 1 && (cur || !told) && p->nr_cpus_allowed > 1 && prevs[cpu & (RS_UNITS_MAX - 1)].stays != (u64)it)
		rc_kick_one(p);
}

void RC_OP(rc_enqueue, struct task_struct *p, u64 enq_flags)
{
	rc_enqueued(p, enq_flags);
	if (timed && cpus > 1)
		rc_event(scx_bpf_task_cpu(p), 0);
}

/*
 * Under the lock: the thread of an idle item ran, and the tree had not chosen it. What it ran is
 * charged with the step that it is chosen for next: no step without a choice reaches the tree.
 */
static __always_inline void rc_forced(struct rs_item RS_ARENA *it, u32 cpu)
{
	forced_count++;
	if (rc_traced())
		rc_trace_out(RC_TRACE_WHO(RC_TRACE_FORCED, it->owner2, cpu, 0), pl_id(it->queue), 0, 0);
}

/*
 * There may be so many busy threads that the kernel's watchdog would throw the scheduler out before
 * each has had a step (on one CPU some thousands). Who has waited for twice starve_ns is chosen out
 * of turn (rs_starving), but, except for one in each starve_gap_ns, runs for an instant only, which
 * is all that the watchdog asks for. Its turn comes by its tag; otherwise a crowd in one queue
 * would take the shares of the others.
 */
u64 starved_step_at;

static __always_inline u32 rc_touch(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 now)
{
	if (t->starved_at != now || now - it->queued_at < t->starve_ns)
		return 0;
	if (now - it->queued_at >= 2 * t->starve_ns && now - starved_step_at < t->starve_gap_ns)
		return 1;
	starved_step_at = now;
	return 0;
}

/*
 * Under the lock: what stood in service on CPUs that went is idle, and charged with its next step.
 */
static __noinline int rc_gone_settle(struct rs_tree RS_ARENA *t, u64 now)
{
	gone_any = 0;
	RS_LOOP(cpu, RS_UNITS_MAX) {
		struct rc_prev *v = &prevs[rc_slot(cpu) & (RS_UNITS_MAX - 1)];
		struct rs_item RS_ARENA *it = t->unit[cpu & (RS_UNITS_MAX - 1)].item;

		if (!v->gone)
			continue;
		v->gone = 0;
		if (it)
			rc_settle(t, it, 0, 0, now);
	}
	return 0;
}

/*
 * Under the lock: what ran is charged, before something is chosen. What stands in service here and
 * is not prev's was chosen and never arrived, or blocked when another class was to run next: it is
 * idle as far as we know (enqueue() comes if it is not). A function of its own, so that it is
 * verified once.
 */
RS_FN_VOID(rc_ended, (struct rs_tree RS_ARENA *t, u32 cpu, u64 now), (t, cpu, now))
{
	struct rc_prev *v = &prevs[cpu & (RS_UNITS_MAX - 1)];
	struct rs_item RS_ARENA *it = t->unit[cpu & (RS_UNITS_MAX - 1)].item, *pi = (struct rs_item RS_ARENA *)v->it;

	if (pi) {
		if (it == pi)
			it = 0;
		if (v->more && pi->state != RS_QUEUED)
			rc_stay(pi, cpu);
		if (pi->floor)
			rc_floor_charge(t, pi, cpu, v->owed);
		else if (pi->state == RS_IDLE && v->more)
			rc_forced(pi, cpu);
		if (pi->state == RS_SERVICE) {
			if (pi->paged)
				v->owed = rc_page_step(t, pi, v->owed, now);
			rc_settle(t, pi, v->owed, v->more, now);
			v->owed = 0;
		} else if (pi->state == RS_QUEUED) {
			if (!v->more)
				rc_remove(t, pi);
		} else if (v->more) {
			rc_wake(t, pi, now);
		}
	}
	if (it) {
		if ((u64)it == v->old && v->old_owed) {
			rc_settle(t, it, v->old_owed, 0, now);
			v->old_owed = 0;
		} else {
			lost_count++;
			rc_settle(t, it, 0, 0, now);
		}
	}
}

/*
 * One try of a dispatch: charge, choose. Answers the chosen item, in service on the CPU now, or 0.
 */
static __always_inline struct rs_item RS_ARENA *rc_choose(struct rs_tree RS_ARENA *t, u32 cpu, struct rc_prev *v, u64 raw)
{
	struct rs_item RS_ARENA *it;
	u32 held;
	u64 now;

	v->touch = 0;
	v->let_go = 0;
	if (!rc_lock())
		return 0;
	now = pl_clock(raw);
	if (cpus > 1 && gone_any)
		rc_gone_settle(t, now);
	rc_ended(t, cpu, now);
	if (timed && cpus > 1)
		rc_idled(t->age[0].oldest, now);
	held = t->throttle.n;
	it = v->floor ? rc_floor_pick(t, cpu, now) : 0;
	if (!it)
		it = rs_pick(t, cpu, now);
	v->let_go = t->throttle.n < held;
	v->section = section_count;
	if (it) {
		v->touch = rc_touch(t, it, now);
		rc_chosen(it, raw);
	} else if (t->next_ns && !rs_before(now, t->next_ns)) {
		v->touch = 1; /* more is due than one pick lets go */
	}
	pl_unlock();
	return it;
}

/*
 * The thread of the chosen item may not run here: it waits again, at once, for the CPUs that it may
 * use.
 */
static __noinline int rc_misfit(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct task_struct *p, u64 owner, u64 raw)
{
	scx_bpf_dispatch_cancel();
	if (!rc_lock())
		return 0;
	if (it->owner == owner && it->state == RS_SERVICE) {
		it->all = rc_units(it, p);
		lost_count++;
		rc_settle(t, it, 0, 1, pl_clock(raw));
	} else if (it->owner == owner && it->state == RS_IDLE && it->floor) {
		it->floor = 0;
		it->all = rc_units(it, p);
		rc_wake(t, it, pl_clock(raw));
	}
	pl_unlock();
	rc_kick_one(p);
	return 0;
}

/*
 * Without the lock: nothing waits, as somebody with the lock would find. Looking alone does not say
 * so: while another CPU drains, nothing is on the list and not yet everything in the heaps. But
 * nobody held the lock at any moment between the first reading and the last: it is free at both,
 * and has not been taken in between (each section counts itself, first thing). Reads and writes are
 * in order on x86; elsewhere this needs more.
 */
static __always_inline bool rc_nobody_waits(struct rs_tree RS_ARENA *t)
{
	u64 section = *(volatile u64 *)&section_count;

	if (*(volatile u32 *)&tree_lock || t->throttle.n || t->refill.n)
		return false;
	RS_WRITTEN();
	if (t->posted || t->age[0].oldest || t->age[1].oldest)
		return false;
	RS_WRITTEN();
	return !*(volatile u32 *)&tree_lock && *(volatile u64 *)&section_count == section;
}

#define RC_TRIES 8 /* items that a dispatch chooses, until one fits */

static __always_inline void rc_dispatched(s32 cpu, struct task_struct *prev)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_prev *v = &prevs[cpu & (RS_UNITS_MAX - 1)];
	struct rs_item RS_ARENA *it, *old;
	u64 raw = scx_bpf_now(), owner;
	struct task_struct *p;

	rc_event(cpu, raw);
	v->floor = t->age[1].oldest != 0;
	if (prev) {
		it = rc_item(prev);
		v->it = (u64)it;
		if (it) {
			v->more = prev->scx.flags & SCX_TASK_QUEUED;
			if (v->more && rc_inside(prev) && v->graces < RC_GRACES && rc_grace(cpu)) {
				v->graces++;
				compat_set_slice(prev, RC_GRACE_NS);
				return;
			}
			v->owed = rc_owed(it, prev);
			if (cpus > 1)
				rc_handed_over(v, it, v->more);
			if (it->floor)
				/*
				 * one step at once: the others do not stand still while the bucket
				 * empties
				 */
				v->floor = 0;
		}
	} else {
		v->it = 0;
	}
	v->graces = 0;
	old = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if ((u64)old == v->it)
		old = 0;
	v->old = (u64)old;
	if (old) {
		p = rc_thread(old);
		v->old_owed = p ? rc_owed(old, p) : 0;
	}
	if (cpus > 1) {
		if (timed && v->it)
			idle_since[cpu & (RS_UNITS_MAX - 1)] = 0;
		/* Said before the look where that is likely to find nothing: else there are two. */
		v->left = !(v->it && v->more) && !t->posted && !t->age[0].oldest && !t->age[1].oldest;
		if (v->left)
			rc_leaves(cpu, raw);
		else
			rc_comes(cpu);
		/* An idle CPU was kicked, and somebody else has taken what there was. */
		if (!v->it && !v->old && v->left && rc_nobody_waits(t))
			return;
	}
	if (v->floor && !rc_floor(cpu, raw, 0))
		v->floor = 0;
	RS_LOOP(tries, RC_TRIES) {
		it = rc_choose(t, cpu, v, raw);
		/*
		 * What a choice lets go is no more there for the timer to tell of, and may be for
		 * CPUs that idle only: threads that may not run here.
		 */
		if (cpus > 1 && v->let_go)
			rc_kick_idle();
		v->floor = 0;
		rc_timer_arm(t);
		RC_CHECK(t);
		if (!it) {
			if (v->touch)
				scx_bpf_kick_cpu(cpu, 0);
			else if (cpus > 1 && !rc_may_idle(t, cpu, &v->left, v->section, raw))
				continue;
			return;
		}
		if (cpus > 1 && (v->left || timed)) {
			rc_runs(cpu);
			v->left = 0; /* where this one falls out and nothing is left, it is said anew */
		}
		if (prev && (u64)it == v->it) {
			compat_set_slice(prev, it->slice);
			return;
		}
		owner = it->owner;
		p = rc_thread(it);
		if (!p || !(p->scx.flags & SCX_TASK_QUEUED) ||
		    !compat_insert(p, SCX_DSQ_LOCAL, it->floor ? t->quantum : it->slice, 0))
			continue;
		/*
		 * Looked at after the insertion: what changes from now on makes the insertion void.
		 */
		if (cpus == 1 || (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && !(rc_pinned(p) && scx_bpf_task_cpu(p) != cpu))) {
			if (v->touch)
				scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			return;
		}
		rc_misfit(t, it, p, owner, raw);
	}
	/*
	 * So many in one go are enough, with interrupts off. There may be others that fit: the CPU
	 * asks again.
	 */
	scx_bpf_kick_cpu(cpu, 0);
}

void RC_OP(rc_dispatch, s32 cpu, struct task_struct *prev)
{
	rc_dispatched(cpu, prev);
	rc_event(cpu, 0);
}

SEC(".struct_ops.link")
struct sched_ext_ops reserv = {
	.select_cpu = (void *)rc_select_cpu,
	.enqueue = (void *)rc_enqueue,
	.dispatch = (void *)rc_dispatch,
	.set_weight = (void *)rc_set_weight,
	.init_task = (void *)rc_init_task,
	.quiescent = (void *)rc_quiescent, /* load.rs takes it out where it is not asked for */
	.enable = (void *)rc_enable,
	.disable = (void *)rc_disable,
	.exit_task = (void *)rc_exit_task,
	.cgroup_init = (void *)rc_cgroup_init,
	.cgroup_exit = (void *)rc_cgroup_exit,
	.cgroup_move = (void *)rc_cgroup_move,
	.cgroup_set_weight = (void *)rc_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)rc_cgroup_set_bandwidth,
	.cgroup_set_idle = (void *)rc_cgroup_set_idle,
	.cpu_online = (void *)rc_cpu_online,
	.cpu_offline = (void *)rc_cpu_offline,
	.init = (void *)rc_init,
	.exit = (void *)rc_exit,
	/* prev is put in the tree even when nothing else wants the CPU: a cap may hold it back. Exiting and pinned threads
	 * take part like all others. */
	.flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.name = "reserv",
};
