/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A wake-up that displaces who runs, on the waker's CPU or another: the switch is decided in the
 * waker's section of the lock. The woken thread goes straight to that CPU, whose run queue the
 * waker holds: one interrupt where it is another CPU, no dispatch there and no section of its own.
 * (By a kick it is two interrupts, for the kernel sends one to itself first, and two sections.)
 */
#ifndef RESERV_CPU_DISPLACE_H
#define RESERV_CPU_DISPLACE_H

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
 * Under the lock, and that of the CPU's run queue: the thread of `it` woke and displaces `cur`,
 * which runs there. The switch is made at once: cur is charged, as the clock sees it, and competes.
 * Answers whether `it` is first then; otherwise dispatch is to find out who is. Who is chosen and
 * put back here waits anew, so nobody is chosen for having waited too long (rs_starving): threads
 * that wake often would keep him from his turn for ever.
 */
static __always_inline bool rc_displace(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it,
					struct rs_item RS_ARENA *cur, u32 cpu, u64 raw, u64 now)
{
	struct rs_item RS_ARENA *first;
	u64 ran = rc_ran(cur, raw);

	if (t->throttle.n || t->refill.n)
		return false; /* who is due comes first: for dispatch, which has more stack */
	if (rs_somebody_starves(t, now))
		return false;
	if (cur->paged)
		return false; /* dispatch reads what the thread wrote (paged.h) */
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

/*
 * Whether the thread of `cur`, in service on `cpu`, whose run queue is locked, runs there and not
 * in a program of a hook (rc_inside). The thread that is current here is in ours. What another
 * CPU's kernel does between a choice and the switch is seen: its old thread runs then.
 */
static __noinline int rc_runs_there(struct rs_item RS_ARENA *cur, u32 cpu)
{
	struct task_struct *him;

	if (cpus == 1 || cpu == bpf_get_smp_processor_id()) {
		him = bpf_get_current_task_btf();
		return rc_item(him) == cur && !rc_inside(him);
	}
	him = rc_thread(cur);
	return him && !him->migration_disabled && scx_bpf_task_running(him) &&
	       scx_bpf_task_cpu(him) == (s32)cpu;
}

#endif
