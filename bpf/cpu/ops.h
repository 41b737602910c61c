/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler's operations: how the kernel's events become the core's.
 *
 *   enqueue    the thread wants the CPU: rs_post, without the lock, or rs_wake where it may displace who runs; or its step ended
 *   dispatch   the CPU is free: what ran is charged, by the kernel's count, and competes as if queued (KERNEL.md) or is idle; rs_pick
 *   disable    the thread leaves our class
 *
 * So a switch takes the lock once, in dispatch, or in the wake-up that displaces. The kernel is not asked to tell us when a thread starts, stops or
 * blocks (running, stopping, quiescent): each such call costs as much as the decision itself.
 *
 * The kernel may run, move or dequeue a thread at any time without asking: an item that is chosen may never arrive on its CPU (it
 * then stands in service there and is taken back at the next dispatch), a queued one may be asleep (seen when it is chosen), or a thread may run that
 * was not chosen (it is charged with its next step). The state of an item is therefore looked at, never assumed.
 *
 * While prev is charged in dispatch() but has not left the CPU yet, it is still the kernel's: its item may be picked by this CPU
 * only, until enqueue() is called for it.
 */

/* The kernel's weights of nice -20 … 19 (sched_prio_to_weight), relative to 1024. */
static const u32 rc_nice[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
	3906,  3121,  2501,  1991,  1586,  1277,  1024,	 820,	655,   526,   423,  335,  272,	215,
	172,   137,   110,   87,    70,	   56,	  45,	 36,	29,    23,    18,   15,
};

static __always_inline u32 rc_weight_of(struct task_struct *p, u32 *flags)
{
	u32 i = p->static_prio - 100;

	*flags = 0;
	if (p->policy == SCHED_IDLE) {
		*flags = RS_ITEM_BACKGROUND;
		return 3 * RS_WEIGHT_ONE / 1024;
	}
	if (p->policy == SCHED_BATCH)
		*flags = RS_ITEM_BATCH;
	if (i >= 40)
		i = 20;
	return (u64)rc_nice[i] * RS_WEIGHT_ONE / 1024;
}

/*
 * Whether a thread must stay where it is. A BPF program may itself have disabled migration of the thread that it interrupts, once (the
 * kernel's is_bpf_migration_disabled() knows the same): a busy thread that is queued again at the end of its step would never leave its CPU.
 * Where that count was the thread's own, dispatch finds out, because then it is not current any more.
 */
static __always_inline bool rc_pinned(struct task_struct *p)
{
	return p->migration_disabled > 1 || (p->migration_disabled == 1 && p != bpf_get_current_task_btf());
}

/* Which CPUs a thread may use: into the item's mask, under the lock, unless it is all (1), which the caller tells the item. */
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
	if ((u32)p->nr_cpus_allowed >= cpus)
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

/*
 * The floor of kernel threads. Those in q0 run outside of the tree while their CPU's bucket holds something: at once when they
 * wake, and out of q0, a step at a time, when the bucket has filled again. Beyond that they compete in q0. Hence on each CPU, over any time T, kernel
 * threads that have work get at least 5 % of T, less a step, and the floor takes at most 5 % of T, 20 ms and a step from the tree.
 */

/* Whether kernel threads have some of their floor left on this CPU. */
static __always_inline bool rc_floor(u32 cpu, u64 raw)
{
	struct rc_bucket *b = &bucket[cpu & (RS_UNITS_MAX - 1)];
	u64 dt = raw - b->at;

	if (dt > 1000000000ULL)
		dt = 1000000000ULL;
	b->at = raw;
	b->tok += dt * RC_FLOOR_PERCENT / 100;
	if (b->tok > RC_FLOOR_BURST)
		b->tok = RC_FLOOR_BURST;
	return b->tok > 0;
}

/* Under the lock: the kernel thread that has waited longest in q0 goes on under the floor; 0: none waits. */
static __always_inline struct rs_item RS_ARENA *rc_floor_pick(struct rs_tree RS_ARENA *t, u32 cpu, u64 now)
{
	struct rs_item RS_ARENA *it = rs_oldest(&t->age[1], &t->nodes[1], cpu, now);

	if (!it)
		return 0;
	rc_remove(t, it);
	it->flags |= RC_ITEM_FLOOR;
	return it;
}

/* A step under the floor ended: `ran`. Under the lock, on the CPU. */
static __noinline int rc_floor_charge(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 cpu, u64 ran)
{
	rc_trace_item(RC_TRACE_FLOOR, 0, it, 0, ran);
	bucket[cpu & (RS_UNITS_MAX - 1)].tok -= ran;
	t->nodes[0].service += ran;
	t->front->service += ran;
	it->service += ran;
	it->paid += ran;
	it->flags &= ~RC_ITEM_FLOOR;
	RC_COUNT(kthread_ns, ran);
	return 0;
}

s32 RC_OP(rc_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu;

	if (cpus == 1)
		return prev_cpu;
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	return cpu >= 0 ? cpu : prev_cpu;
}

/* Until enqueue() comes, what runs on a CPU is for that CPU only. */
static __always_inline void rc_stay(struct rs_item RS_ARENA *it, u32 cpu)
{
	if (cpus > 1)
		rs_stay(it, cpu);
}

/* The chosen item is in service now. */
static __always_inline void rc_chosen(struct rs_item RS_ARENA *it, u64 raw)
{
	it->started = raw;
	step_count++;
	if (cpus > 1)
		rs_stayed(it);
}

/*
 * Under the lock: the thread of `it` woke and displaces `cur`, which runs here. The switch is made at once: cur is charged, as the clock sees it,
 * and competes. Answers whether `it` is first then; otherwise dispatch is to find out who is.
 */
static __always_inline bool rc_displace(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur,
					u32 cpu, u64 raw, u64 now)
{
	struct rs_item RS_ARENA *first;
	u64 ran = rc_ran(cur, raw);

	if (t->throttle.n || t->refill.n)
		return false; /* who is due comes first: for dispatch, which has more stack */
	if (cur->want)
		ran += cur->part_ran[0] + cur->part_ran[1];
	rc_stay(cur, cpu);
	rc_settle(t, cur, ran, 1, now);
	first = rs_pick_ready(t, cpu, now);
	if (!first)
		return false;
	if (first != it) {
		rs_settle(t, first, 0, 1, now);
		return false;
	}
	rc_chosen(it, raw);
	return true;
}

/* Whether the mirror of cgroups has no say in a wake-up: it knows of none, or both are in one queue. */
static __always_inline bool rc_no_group(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur)
{
	return t->front->index == 1 || !cur || it->queue == cur->queue;
}

/* An enqueue that takes the lock. 1: the thread displaces who runs, and is in service already; 2 + n: it displaces who runs on CPU n. */
static __always_inline u32 rc_enqueue_locked(struct rs_tree RS_ARENA *t, struct task_struct *p, struct rs_item RS_ARENA *it,
					     u64 enq_flags, u32 cpu, u64 raw)
{
	u32 wakeup = enq_flags & SCX_ENQ_WAKEUP, answer = 0, all;
	u64 now;
	struct rs_item RS_ARENA *cur;

	rc_lock();
	now = rc_clock(raw);
	if (it->flags & RC_ITEM_FLOOR)
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
		if (rc_item(bpf_get_current_task_btf()) == cur && rc_displace(t, it, cur, cpu, raw, now))
			answer = 1;
	}
	rc_unlock();
	RC_CHECK(t);
	return answer;
}

/*
 * The usual two enqueues, without the lock: the thread's step ended, and dispatch has queued it for this CPU only; or it wakes, and
 * displaces nobody. Answers whether that was it.
 */
static __always_inline bool rc_enqueue_quietly(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur,
					       u64 enq_flags, u64 raw)
{
	if (cpus > 1 || !it->all)
		return false; /* several CPUs: not yet (docs/notes/cpu-full.md) */
	if (it->state == RS_QUEUED)
		return !(enq_flags & SCX_ENQ_WAKEUP);
	if (it->state != RS_IDLE || rc_traced() || (it->flags & RC_ITEM_FLOOR))
		return false;
	return rc_no_group(t, it, cur) && rs_wakes_quietly(t, it, cur, raw) && rs_post(t, it, raw);
}

void RC_OP(rc_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it = rc_item(p), *cur;
	u64 raw = scx_bpf_now();
	u32 cpu, preempt = 0;
	s32 idle;

	if (!it) {
		scx_insert(p, SCX_DSQ_LOCAL, 4000000, 0);
		return;
	}
	cpu = cpus == 1 ? 0 : scx_bpf_task_cpu(p);
	if ((p->flags & PF_KTHREAD) && it->state == RS_IDLE && it->queue == &t->nodes[1]) {
		if ((it->flags & RC_ITEM_FLOOR) && rc_owed(it, p)) {
			rc_lock();
			rc_floor_charge(t, it, cpu, rc_owed(it, p));
			rc_unlock();
		}
		if (rc_floor(cpu, raw)) {
			it->flags |= RC_ITEM_FLOOR;
			scx_insert(p, SCX_DSQ_LOCAL, t->quantum, SCX_ENQ_PREEMPT);
			return;
		}
	}
	cur = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if (rc_enqueue_quietly(t, it, cur, enq_flags, raw)) {
		if (cpus == 1)
			return;
	} else {
		preempt = rc_enqueue_locked(t, p, it, enq_flags, cpu, raw);
	}
	if (preempt == 1) {
		scx_insert(p, SCX_DSQ_LOCAL, it->slice, SCX_ENQ_PREEMPT);
		return;
	}
	if (preempt)
		scx_bpf_kick_cpu(preempt - 2, SCX_KICK_PREEMPT);
	if (cpus > 1 && cur) {
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (idle >= 0)
			scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	}
}

/*
 * Under the lock: the thread of an idle item ran, and the tree had not chosen it. What it ran is charged with the step that it is chosen for
 * next: no step without a choice reaches the tree.
 */
static __always_inline void rc_forced(struct rs_item RS_ARENA *it, u32 cpu)
{
	forced_count++;
	if (rc_traced())
		rc_trace_out(RC_TRACE_WHO(RC_TRACE_FORCED, it->owner2, cpu, 0), rc_id(it->queue), 0, 0);
}

/* What dispatch knows of prev when it begins. */
struct rc_prev {
	struct rs_item RS_ARENA *it; /* 0: not ours */
	u64 owed;
	struct rs_item RS_ARENA *old; /* stands in service here, and is not prev's */
	u64 old_owed;
	u32 more; /* prev may go on */
	u32 touch; /* what was chosen is to run for an instant only */
};

/*
 * There may be so many busy threads that the kernel's watchdog would throw the scheduler out before each has had a step (on one CPU some thousands).
 * Who has waited for twice starve_ns is chosen out of turn (rs_starving), but, except for one in each starve_gap_ns, runs for an instant
 * only, which is all that the watchdog asks for. Its turn comes by its tag; otherwise a crowd in one queue would take the shares of the others.
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
 * One try of a dispatch: charge, choose. Answers the chosen item, in service on the CPU now, or 0. What stands in service here and is not prev's
 * was chosen and never arrived, or blocked when another class was to run next: it is idle as far as we know (enqueue() comes if it is
 * not), or, with `again`, was found unable to run here and goes on waiting. `floor`: kernel threads may have what is left of it.
 */
static __always_inline struct rs_item RS_ARENA *rc_choose(struct rs_tree RS_ARENA *t, u32 cpu, struct rc_prev *v,
							  u32 again, u32 floor, u64 raw)
{
	struct rs_item RS_ARENA *it, *pi = v->it;
	u64 now;

	rc_lock();
	now = rc_clock(raw);
	it = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if (pi) {
		if (it == pi)
			it = 0;
		if (v->more && pi->state != RS_QUEUED)
			rc_stay(pi, cpu);
		if (pi->flags & RC_ITEM_FLOOR)
			rc_floor_charge(t, pi, cpu, v->owed);
		else if (pi->state == RS_IDLE && v->more)
			rc_forced(pi, cpu);
		if (pi->state == RS_SERVICE) {
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
		if (it == v->old && v->old_owed) {
			rc_settle(t, it, v->old_owed, again, now);
			v->old_owed = 0;
		} else {
			lost_count++;
			rc_settle(t, it, 0, again, now);
		}
	}
	it = floor ? rc_floor_pick(t, cpu, now) : 0;
	if (!it)
		it = rs_pick(t, cpu, now);
	v->touch = 0;
	if (it) {
		v->touch = rc_touch(t, it, now);
		rc_chosen(it, raw);
	}
	rc_unlock();
	return it;
}

/* The thread of the chosen item may not run here: it goes on waiting, for other CPUs. Answers whether it still stands in service. */
static __noinline u32 rc_misfit(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct task_struct *p, u64 owner, u64 raw)
{
	u32 again = 0;

	scx_bpf_dispatch_cancel();
	rc_lock();
	if (it->owner == owner && it->state == RS_SERVICE) {
		it->all = rc_units(it, p);
		again = 1;
	} else if (it->owner == owner && it->state == RS_IDLE && (it->flags & RC_ITEM_FLOOR)) {
		it->flags &= ~RC_ITEM_FLOOR;
		it->all = rc_units(it, p);
		rc_wake(t, it, rc_clock(raw));
	}
	rc_unlock();
	return again;
}

void RC_OP(rc_dispatch, s32 cpu, struct task_struct *prev)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it;
	struct rc_prev v = {};
	u64 raw = scx_bpf_now(), owner;
	struct task_struct *p;
	u32 again = 0, floor = t->age[1].oldest != 0;

	if (prev) {
		v.it = rc_item(prev);
		if (v.it) {
			v.owed = rc_owed(v.it, prev);
			v.more = prev->scx.flags & SCX_TASK_QUEUED;
			if (v.it->flags & RC_ITEM_FLOOR)
				floor = 0; /* one step at once: the others do not stand still while the bucket empties */
		}
	}
	v.old = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if (v.old == v.it)
		v.old = 0;
	if (v.old) {
		p = rc_thread(v.old);
		if (p)
			v.old_owed = rc_owed(v.old, p);
	}
	floor = floor && rc_floor(cpu, raw);
	RS_LOOP(tries, 8) {
		it = rc_choose(t, cpu, &v, again, floor, raw);
		floor = 0;
		RC_CHECK(t);
		if (!it)
			return;
		if (it == v.it) {
			scx_bpf_task_set_slice(prev, it->slice);
			return;
		}
		again = 0;
		owner = it->owner;
		p = rc_thread(it);
		if (!p || !(p->scx.flags & SCX_TASK_QUEUED) ||
		    !scx_insert(p, SCX_DSQ_LOCAL, it->flags & RC_ITEM_FLOOR ? t->quantum : it->slice, 0))
			continue;
		/* Looked at after the insertion: what changes from now on makes the insertion void. */
		if (cpus == 1 || (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && !(rc_pinned(p) && scx_bpf_task_cpu(p) != cpu))) {
			if (v.touch)
				scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			return;
		}
		again = rc_misfit(t, it, p, owner, raw);
	}
}

void RC_OP(rc_set_weight, struct task_struct *p, u32 weight)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it = rc_item(p);
	u32 flags, w = rc_weight_of(p, &flags);

	if (!it)
		return;
	rc_lock();
	it->flags = (it->flags & ~(RS_ITEM_BATCH | RS_ITEM_BACKGROUND)) | flags;
	rs_item_weight_by(t, it, w);
	rc_unlock();
	RC_CHECK(t);
}

/* Also called for threads of other classes, which may come to us later; enable() is when one does. */
s32 RC_OP_SLEEPABLE(rc_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it;
	struct rs_node RS_ARENA *q;
	struct rc_thread *th;
	bool fork = args->fork;
	u64 owner = (u64)p, owner2 = (u64)(u32)p->tgid << 32 | (u32)p->pid;
	u64 home = rc_group_home(args);
	u32 joined = 0, index = 0;
	struct task_struct *held;

	th = bpf_task_storage_get(&tags, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!th)
		return -E_NOMEM;
	if (fork)
		rc_inherit(p, bpf_get_current_task_btf(), th);
	RC_LOCK(irq);
	it = rs_item_alloc(t);
	if (it) {
		it->owner = owner;
		it->owner2 = owner2;
		it->flags = p->flags & PF_KTHREAD ? RS_ITEM_APART : 0;
		it->started = RC_OFF;
		it->want = 0;
		it->part_node[0] = it->part_node[1] = 0;
		it->part_ran[0] = it->part_ran[1] = 0;
		it->home = home;
		q = rc_queue(t, th->tag.node);
		joined = rs_item_join(t, it, q->index == 1 ? rc_home(t, it) : q);
		if (!joined && !fork)
			joined = rs_item_join(t, it, &t->nodes[1]);
		if (!joined)
			rs_item_free(t, it);
		else if (!fork)
			rc_params_again(t, it, th);
	}
	if (joined)
		index = it->index;
	RC_UNLOCK(irq);
	if (joined) {
		held = bpf_task_acquire(p);
		if (held)
			rc_thread_put(index, held);
	}
	th->item = joined ? (u64)it : 0;
	if (!joined)
		RC_COUNT(refused, 1);
	return joined ? 0 : -E_AGAIN;
}

void RC_OP(rc_enable, struct task_struct *p)
{
	struct rc_thread *th = bpf_task_storage_get(&tags, p, 0, 0);

	if (!th)
		return;
	if (th->item) {
		rc_tree();
		((struct rs_item RS_ARENA *)th->item)->paid = p->se.sum_exec_runtime;
	}
	scx_bpf_task_set_dsq_vtime(p, th->item);
}

/* Under the lock: the thread does not want the CPU of us any more. */
static __always_inline void rc_leave(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct task_struct *p, u64 raw)
{
	if (it->state == RS_QUEUED)
		rc_remove(t, it);
	else if (it->state == RS_SERVICE)
		rc_settle(t, it, rc_owed(it, p), 0, rc_clock(raw));
}

/* The thread leaves our class, or we leave. */
void RC_OP(rc_disable, struct task_struct *p)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it = rc_item(p);
	u64 raw = scx_bpf_now();

	if (it) {
		RC_LOCK(irq);
		rc_leave(t, it, p, raw);
		RC_UNLOCK(irq);
	}
	scx_bpf_task_set_dsq_vtime(p, 0);
}

void RC_OP(rc_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rc_thread *th = bpf_task_storage_get(&tags, p, 0, 0);
	struct rs_item RS_ARENA *it;
	u64 raw = scx_bpf_now();

	if (!th || !th->item)
		return;
	it = (struct rs_item RS_ARENA *)th->item;
	rc_thread_put(it->index, 0); /* before another thread gets the item */
	RC_LOCK(irq);
	rc_leave(t, it, p, raw);
	/* From here on the thread's own storage has its tag. */
	th->tag.node = rc_tag_of(it);
	rs_item_leave(t, it);
	RC_UNLOCK(irq);
	th->item = 0;
}

/* How many CPUs there are to share. */
static __always_inline u32 rc_online(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u32 n = bpf_cpumask_weight(online);

	scx_bpf_put_cpumask(online);
	return n > RS_UNITS_MAX ? RS_UNITS_MAX : n ? n : 1;
}

/* Hotplug must not take the scheduler away, which is what the kernel does where these are missing. */
void RC_OP(rc_cpu_online, s32 cpu)
{
	struct rs_tree RS_ARENA *t = rc_tree();

	t->units = rc_online();
}

void RC_OP(rc_cpu_offline, s32 cpu)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it;
	u64 raw = scx_bpf_now();

	RC_LOCK(irq);
	it = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if (it)
		rc_settle(t, it, 0, 0, rc_clock(raw)); /* charged with its next step */
	t->units = rc_online();
	RC_UNLOCK(irq);
}

s32 RC_OP_SLEEPABLE(rc_init)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rc_state *s = rc_state();
	u32 n = scx_bpf_nr_cpu_ids(), online = rc_online();

	if (!tree_at || !s)
		return -E_INVAL;
	if (n > RS_UNITS_MAX)
		n = RS_UNITS_MAX;
	cpus = n;
	bpf_local_irq_save(&irq);
	rc_lock_bare(); /* what was posted is of a time gone by */
	rc_mirror_forget(t);
	rs_tree_reset(t);
	if (trace_on)
		rc_trace_out(RC_TRACE_WHO(RC_TRACE_RESET, 0, 0, 0), 0, 0, 0);
	t->units = online;
	RC_UNLOCK(irq);
	s->cpus = n;
	s->attached++;
	return 0;
}

void RC_OP(rc_exit, struct scx_exit_info *info)
{
	struct rc_state *s = rc_state();

	if (!s)
		return;
	s->exit_kind = info->kind;
	s->exit_code = info->exit_code;
	bpf_probe_read_kernel_str(s->exit_reason, sizeof(s->exit_reason), info->reason);
	bpf_probe_read_kernel_str(s->exit_msg, sizeof(s->exit_msg), info->msg);
	s->detached++;
}

SEC(".struct_ops.link")
struct sched_ext_ops reserv = {
	.select_cpu = (void *)rc_select_cpu,
	.enqueue = (void *)rc_enqueue,
	.dispatch = (void *)rc_dispatch,
	.set_weight = (void *)rc_set_weight,
	.init_task = (void *)rc_init_task,
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
