/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The floor of kernel threads, and of programs that the kernel waits for to write pages
 * (PF_LOCAL_THROTTLE: Reserv's block servers, and reservd's threads that hear root, who say so to
 * be counted here: crates/daemon/src/priority.rs). Those in q0 run outside of the tree while their
 * CPU's bucket holds something: at once when they wake, and out of q0, a step at a time, when the
 * bucket has filled again. Beyond that they compete in q0. Hence on each CPU, over any time T,
 * kernel threads that have work get at least 5 % of T, less a step (less 10 ms more, where all of
 * them are nice), and the floor takes at most 5 % of T, 20 ms and a step from the tree.
 *
 * A nice one (ksmd, khugepaged) begins a step only while the bucket is more than half full. Such
 * threads have work for as long as they are let: they would leave a bucket that is always empty,
 * and whoever needs it now and then, a disk's server, would wait for 60 ms at each request. What
 * they get in the long run is the same.
 */

/*
 * Whether there is some of the floor on this CPU for a kernel thread that `leaves` so much of it. A
 * wake-up from elsewhere comes with the waker's clock, which may be a little behind what was seen
 * here.
 */
static __always_inline bool rc_floor(u32 cpu, u64 raw, s64 leaves)
{
	struct rc_bucket *b = &bucket[cpu & (RS_UNITS_MAX - 1)];
	u64 dt = 0;

	if (rs_before(b->at, raw)) {
		dt = raw - b->at;
		b->at = raw;
	}
	if (dt > 1000000000ULL)
		dt = 1000000000ULL;
	b->tok += dt * RC_FLOOR_PERCENT / 100;
	if (b->tok > RC_FLOOR_BURST)
		b->tok = RC_FLOOR_BURST;
	return b->tok > leaves;
}

static __always_inline s64 rc_floor_leaves(struct task_struct *p)
{
	return p->static_prio > RC_PRIO_OF_NICE_0 ? RC_FLOOR_BURST / 2 : 0;
}

/* Whether a kernel thread that waits may begin a step under the floor of this CPU. */
static __noinline bool rc_floor_lets(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it,
				     u32 cpu)
{
	struct task_struct *p;
	s64 leaves = 0;

	if (it->queue != &t->nodes[1] || !(it->all || rs_unit_in(it->mask, cpu)))
		return false;
	bpf_rcu_read_lock();
	p = rc_thread(it);
	if (p)
		leaves = rc_floor_leaves(p);
	bpf_rcu_read_unlock();
	return bucket[cpu & (RS_UNITS_MAX - 1)].tok > leaves;
}

#define RC_FLOOR_LOOKS 8

/*
 * Under the lock: the kernel thread that has waited longest in q0 goes on under the floor; 0: none
 * waits. A nice one that has to wait for the bucket is passed over, and seven behind it are looked
 * at.
 */
static __always_inline struct rs_item RS_ARENA *rc_floor_pick(struct rs_tree RS_ARENA *t, u32 cpu, u64 now)
{
	struct rs_item RS_ARENA *it = rs_oldest(t, 1, &t->nodes[1], cpu, now);

	RS_LOOP(i, RC_FLOOR_LOOKS) {
		if (!it)
			return 0;
		if (rc_floor_lets(t, it, cpu)) {
			rc_remove(t, it);
			it->floor = 1;
			return it;
		}
		it = it->newer;
	}
	return 0;
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
	it->floor = 0;
	RC_COUNT(kthread_ns, ran);
	return 0;
}
