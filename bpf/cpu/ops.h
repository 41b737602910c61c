/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler's operations: how the kernel's events become the core's.
 *
 *   enqueue    the thread wants the CPU: rs_wake, or (its step ended) rs_settle with more
 *   dispatch   the CPU is free: what ran is charged and competes as if queued (KERNEL.md), rs_pick
 *   running, stopping   measure the step; what the kernel ran without asking us is put into the tree's books
 *   quiescent  the thread waits for the CPU no longer: rs_remove
 *
 * The kernel may run, move or dequeue a thread at any time without asking: an item that is chosen may never arrive on its CPU (it
 * then stands in service there and is taken back at the next dispatch), or a thread may run that was not chosen (running() puts
 * it in service). The state of an item is therefore looked at, never assumed.
 *
 * While prev is charged in dispatch() but has not left the CPU yet, it is still the kernel's: its item may be picked by this CPU
 * only, until enqueue() is called for it.
 */

#define RC_OP(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)
#define RC_OP_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)

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

/* Which CPUs a thread may use: into the item, which must not be queued, or be brought up to date by the caller. */
static __always_inline u32 rc_units(struct task_struct *p, u64 mask[RS_UNIT_WORDS])
{
	const struct cpumask *m = p->cpus_ptr;

	if (p->migration_disabled) {
		u32 cpu = scx_bpf_task_cpu(p);

		mask[0] = mask[1] = mask[2] = mask[3] = 0;
		mask[(cpu / 64) & (RS_UNIT_WORDS - 1)] = 1ULL << (cpu & 63);
		return 0;
	}
	if ((u32)p->nr_cpus_allowed >= cpus)
		return 1;
	mask[0] = m->bits[0];
	mask[1] = mask[2] = mask[3] = 0;
	if (bpf_core_type_size(struct cpumask) >= 16)
		mask[1] = m->bits[1];
	if (bpf_core_type_size(struct cpumask) >= 32) {
		mask[2] = m->bits[2];
		mask[3] = m->bits[3];
	}
	return 0;
}

static __always_inline void rc_mask_set(struct rs_item RS_ARENA *it, u32 all, u64 mask[RS_UNIT_WORDS])
{
	if (all)
		return;
	it->mask[0] = mask[0];
	it->mask[1] = mask[1];
	it->mask[2] = mask[2];
	it->mask[3] = mask[3];
}

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

/* A step under the floor ended. Under the lock. */
static __always_inline void rc_floor_charge(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 ran)
{
	t->nodes[0].service += ran;
	t->nodes[1].service += ran;
	it->service += ran;
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

void RC_OP(rc_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it = rc_item(p), *cur;
	u64 raw = scx_bpf_now(), now, mask[RS_UNIT_WORDS] = {};
	u32 cpu = scx_bpf_task_cpu(p), all, preempt = 0, busy, state;
	s32 idle;

	if (!it) {
		scx_insert(p, SCX_DSQ_LOCAL, 4000000, 0);
		return;
	}
	if ((p->flags & PF_KTHREAD) && it->state == RS_IDLE && it->queue == &t->nodes[1] && rc_floor(cpu, raw)) {
		it->flags |= RC_ITEM_FLOOR;
		it->started = RC_OFF;
		scx_insert(p, SCX_DSQ_LOCAL, t->quantum, SCX_ENQ_PREEMPT);
		return;
	}
	all = rc_units(p, mask);
	rc_lock();
	now = rc_clock(raw);
	it->flags &= ~RC_ITEM_FLOOR;
	state = it->state;
	rc_mask_set(it, all, mask);
	if (state == RS_QUEUED) {
		rs_item_units(t, it, all);
	} else {
		it->all = all;
		if (state == RS_SERVICE) {
			rc_settle(t, it, !(enq_flags & 1), raw, now);
			state = it->state;
		}
		if (state == RS_IDLE) {
			it->started = RC_OFF;
			rs_wake(t, it, now);
		}
	}
	cur = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	busy = cur != 0;
	if (busy && (enq_flags & 1) && it->state == RS_QUEUED)
		preempt = rs_preempts(it, cur, rc_ran(cur, raw));
	rc_unlock();
	RC_CHECK(t);
	if (preempt)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	if (cpus > 1 && busy) {
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (idle >= 0)
			scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	}
}

/*
 * One try of a dispatch: charge, choose. Answers the chosen item, in service on the CPU now, or 0. `pi` is prev's item while prev
 * may go on, else 0. What else stands in service here was chosen and never arrived: it is idle as far as we know (enqueue() comes if it is
 * not), or, with `again`, was found unable to run here and goes on waiting.
 */
static __always_inline struct rs_item RS_ARENA *rc_choose(struct rs_tree RS_ARENA *t, u32 cpu,
							  struct rs_item RS_ARENA *pi, u32 again, u64 raw)
{
	struct rs_item RS_ARENA *it;
	u64 now;

	rc_lock();
	now = rc_clock(raw);
	it = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if (pi && pi->state != RS_QUEUED && cpus > 1) {
		pi->all = 0;
		pi->mask[0] = pi->mask[1] = pi->mask[2] = pi->mask[3] = 0;
		pi->mask[(cpu / 64) & (RS_UNIT_WORDS - 1)] = 1ULL << (cpu & 63);
	}
	if (it) {
		if (it != pi)
			lost_count++;
		rc_settle(t, it, it == pi || again, raw, now);
	}
	if (pi && pi->state == RS_IDLE) {
		if (pi->flags & RC_ITEM_FLOOR) {
			rc_floor_charge(t, pi, rc_ran(pi, raw));
			pi->flags &= ~RC_ITEM_FLOOR;
		}
		pi->started = RC_OFF;
		rs_wake(t, pi, now);
	}
	it = rs_pick(t, cpu, now);
	if (it)
		it->started = it == pi ? raw : RC_OFF;
	rc_unlock();
	return it;
}

void RC_OP(rc_dispatch, s32 cpu, struct task_struct *prev)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it, *pi = 0;
	u64 raw = scx_bpf_now(), owner, mask[RS_UNIT_WORDS] = {};
	struct task_struct *p;
	u32 again = 0, all;

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED)) {
		pi = rc_item(prev);
		if (pi && (pi->flags & RC_ITEM_FLOOR))
			bucket[cpu & (RS_UNITS_MAX - 1)].tok -= rc_ran(pi, raw);
	}
	RS_LOOP(tries, 8) {
		it = rc_choose(t, cpu, pi, again, raw);
		RC_CHECK(t);
		if (!it)
			return;
		if (it == pi) {
			scx_bpf_task_set_slice(prev, t->quantum);
			return;
		}
		again = 0;
		owner = it->owner;
		p = scx_bpf_tid_to_task(owner);
		if (!p || !scx_insert(p, SCX_DSQ_LOCAL, t->quantum, 0))
			continue;
		/* Looked at after the insertion: what changes from now on makes the insertion void. */
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && !(p->migration_disabled && scx_bpf_task_cpu(p) != cpu)) {
			RC_COUNT(steps, 1);
			return;
		}
		scx_bpf_dispatch_cancel();
		all = rc_units(p, mask);
		rc_lock();
		if (it->owner == owner && it->state == RS_SERVICE) {
			rc_mask_set(it, all, mask);
			it->all = all;
			again = 1;
		}
		rc_unlock();
	}
}

void RC_OP(rc_running, struct task_struct *p)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it = rc_item(p), *old;
	u64 raw = scx_bpf_now(), now, ran;
	u32 cpu = scx_bpf_task_cpu(p);

	if (!it)
		return;
	ran = it->started;
	it->started = raw - (ran & RC_OFF ? ran & ~RC_OFF : 0);
	if (it->state == RS_SERVICE ? it->unit == cpu : it->flags & RC_ITEM_FLOOR)
		return;
	rc_lock();
	now = rc_clock(raw);
	old = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
	if (old && old != it)
		rc_settle(t, old, 0, raw, now);
	it->started = raw;
	if (it->state == RS_SERVICE)
		rc_settle(t, it, 1, raw, now);
	it->started = raw;
	if (it->state == RS_IDLE)
		rs_wake(t, it, now);
	if (it->state == RS_QUEUED)
		rs_begin(t, it, cpu);
	rc_unlock();
	RC_CHECK(t);
	RC_COUNT(forced, 1);
}

void RC_OP(rc_stopping, struct task_struct *p, bool runnable)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it = rc_item(p);
	u64 raw = scx_bpf_now(), ran;
	u32 cpu = scx_bpf_task_cpu(p);

	if (!it)
		return;
	if (it->flags & RC_ITEM_FLOOR) {
		ran = rc_ran(it, raw);
		bucket[cpu & (RS_UNITS_MAX - 1)].tok -= ran;
		rc_lock();
		rc_floor_charge(t, it, ran);
		it->started = RC_OFF;
		if (!runnable)
			it->flags &= ~RC_ITEM_FLOOR;
		rc_unlock();
		RC_COUNT(kthread_ns, ran);
		return;
	}
	if (it->state != RS_SERVICE) {
		it->started = RC_OFF;
		return;
	}
	if (runnable) {
		it->started = RC_OFF | rc_ran(it, raw);
		return;
	}
	rc_lock();
	if (it->state == RS_SERVICE)
		rc_settle(t, it, 0, raw, rc_clock(raw));
	rc_unlock();
	RC_CHECK(t);
}

void RC_OP(rc_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it = rc_item(p);
	u64 raw;

	if (!it || it->state == RS_IDLE)
		return;
	raw = scx_bpf_now();
	rc_lock();
	if (it->state == RS_QUEUED)
		rs_remove(t, it);
	else if (it->state == RS_SERVICE)
		rc_settle(t, it, 0, raw, rc_clock(raw));
	it->started = RC_OFF;
	rc_unlock();
	RC_CHECK(t);
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
	rs_item_reweight(t, it, w);
	rc_unlock();
	RC_CHECK(t);
}

/* Also called for threads of other classes, which may come to us later; enable() is when one does. */
s32 RC_OP_SLEEPABLE(rc_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it;
	struct rc_thread *th;
	bool fork = args->fork;
	u64 owner = p->scx.tid, owner2 = (u64)(u32)p->tgid << 32 | (u32)p->pid;
	u32 joined = 0;

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
		it->started = RC_OFF;
		it->want = 0;
		it->part_node[0] = it->part_node[1] = 0;
		it->part_ran[0] = it->part_ran[1] = 0;
		joined = rs_item_join(t, it, rc_queue(t, th->tag.node));
		if (!joined && !fork)
			joined = rs_item_join(t, it, &t->nodes[1]);
		if (!joined)
			rs_item_free(t, it);
	}
	RC_UNLOCK(irq);
	th->item = joined ? (u64)it : 0;
	return joined ? 0 : -E_AGAIN;
}

void RC_OP(rc_enable, struct task_struct *p)
{
	struct rc_thread *th = bpf_task_storage_get(&tags, p, 0, 0);

	if (th)
		scx_bpf_task_set_dsq_vtime(p, th->item);
}

/* The thread leaves our class, or we leave. */
void RC_OP(rc_disable, struct task_struct *p)
{
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
	RC_LOCK(irq);
	if (it->state == RS_QUEUED)
		rs_remove(t, it);
	else if (it->state == RS_SERVICE)
		rc_settle(t, it, 0, raw, rc_clock(raw));
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
		rc_settle(t, it, 0, raw, rc_clock(raw));
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
	RC_LOCK(irq);
	rs_tree_reset(t);
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
	.running = (void *)rc_running,
	.stopping = (void *)rc_stopping,
	.quiescent = (void *)rc_quiescent,
	.set_weight = (void *)rc_set_weight,
	.init_task = (void *)rc_init_task,
	.enable = (void *)rc_enable,
	.disable = (void *)rc_disable,
	.exit_task = (void *)rc_exit_task,
	.cpu_online = (void *)rc_cpu_online,
	.cpu_offline = (void *)rc_cpu_offline,
	.init = (void *)rc_init,
	.exit = (void *)rc_exit,
	/* prev is put in the tree even when nothing else wants the CPU: a cap may hold it back. Exiting and pinned threads
	 * take part like all others. */
	.flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED | SCX_OPS_TID_TO_TASK,
	.timeout_ms = 30000,
	.name = "reserv",
};
