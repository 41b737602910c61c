/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every plane has that keeps a tree of sched/ in an arena: its lock, its clock, numbers of
 * nodes, and the edits that go in pieces. The CPU's and a link's programs include it once, after
 * sched/core.c and the map `arena`, and say before:
 *
 *   PLANE_LOCK_NS      the most that anybody waits for the lock, by the clock
 *   PLANE_HOPELESS(t)  nobody is to wait for long: the lock was not to be had before
 *   PLANE_GAVE_UP(t)   somebody waited in vain
 *   PLANE_HAD()        somebody waited, and has it
 *   PLANE_SECTION()    a section begins, under the lock
 *   PLANE_POSTED()     under the lock: what others left for who has it comes first
 *
 * The lock is not bpf_spin_lock: under that the verifier allows no functions that it has verified
 * by themselves, and would verify the core anew at each place that calls it. It is held for
 * microseconds, with interrupts off: how long at most stands in docs/notes/cpu-full.md and net.md.
 */
#ifndef RESERV_PLANE_H
#define RESERV_PLANE_H

#include "errors.h"
#include "section.h"

/* By the clock alone a machine that was stopped for a while would be a time-out. */
#define PLANE_LOCK_LOOKS 4096 /* between two looks at the clock */
#define PLANE_LOCK_ROUNDS 64 /* of them at least: a millisecond or so */
#define PLANE_LOCK_MOST 16384 /* and at most, whatever the clock says */

u32 tree_lock __attribute__((aligned(64)));
u32 tree_lock_pad[15];
u64 tree_at; /* the tree's address in the arena; 0 before it is set up */
u64 clock_max; /* under the lock */

/* Every program that touches the arena must name its map. */
static __always_inline struct rs_tree RS_ARENA *pl_tree(void)
{
	asm volatile("" : : "r"(&arena));
	return (struct rs_tree RS_ARENA *)tree_at;
}

/*
 * Answers whether we have the lock. Who has it for longer than PLANE_LOCK_NS is held up himself (a
 * virtual machine's CPU that does not run), or will never give it back. Who waited leaves then and
 * touches nothing. The verifier goes through it once in a program, not for each section.
 */
RS_FN int pl_lock_wait(void)
{
	u64 from = bpf_ktime_get_ns();
	struct rs_tree RS_ARENA *t = pl_tree();
	int i, k;

	bpf_for(k, 0, PLANE_LOCK_MOST) {
		bpf_for(i, 0, PLANE_LOCK_LOOKS) {
			if (!*(volatile u32 *)&tree_lock && !__sync_lock_test_and_set(&tree_lock, 1)) {
				PLANE_HAD();
				return 1;
			}
		}
		if (PLANE_HOPELESS(t) ||
		    (k >= PLANE_LOCK_ROUNDS && bpf_ktime_get_ns() - from > PLANE_LOCK_NS))
			break;
	}
	PLANE_GAVE_UP(t);
	return 0;
}

/* Interrupts are off already. 0: it could not be had, and who asked leaves. */
static __always_inline int pl_lock(void)
{
	if (__sync_lock_test_and_set(&tree_lock, 1) && !pl_lock_wait())
		return 0;
	PLANE_SECTION();
	section_begins();
	return 1;
}

static __always_inline void pl_unlock_at(u32 line)
{
	section_ends(line);
	RS_RELEASE(tree_lock);
}

#define pl_unlock() pl_unlock_at(__LINE__)

/* `leave`: what is done where the lock could not be had. It must not go on. */
#define PLANE_LOCK(irq, leave)                        \
	do {                                          \
		bpf_local_irq_save(&irq);             \
		if (!pl_lock()) {                     \
			bpf_local_irq_restore(&irq);  \
			leave;                        \
		}                                     \
	} while (0)
#define PLANE_UNLOCK(irq)                             \
	do {                                          \
		pl_unlock();                          \
		bpf_local_irq_restore(&irq);          \
	} while (0)

/* Under the lock: time as the tree sees it never goes back. */
static __always_inline u64 pl_clock(u64 raw)
{
	if (rs_before(raw, clock_max))
		return clock_max;
	clock_max = raw;
	return raw;
}

/* A node's number, as the control plane knows it. */
static __always_inline u64 pl_id(struct rs_node RS_ARENA *n)
{
	return (u64)n->gen << 32 | n->index;
}

/*
 * After an edit that changes policies, or before one that did not come to it: the rest of it, a
 * section for each piece (sched/change.c). What is changing is not served meanwhile, so nobody
 * takes this CPU from us in between; interrupts do. 0: it did not come to its end.
 */
static __noinline int pl_changes(void)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	u32 more = 1;

	if (!t->changes)
		return 1;
	bpf_preempt_disable();
	RS_LOOP(i, RS_NODES_MAX) {
		PLANE_LOCK(irq, goto out);
		PLANE_POSTED();
		more = rs_change_some(t);
		PLANE_UNLOCK(irq);
		if (!more)
			break;
	}
out:
	bpf_preempt_enable();
	return !more;
}

/* The same after what may have changed quanta (sched/quantum.c). */
static __noinline int pl_quanta(void)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	u32 more = 1;

	if (!t->quanta)
		return 1;
	RS_LOOP(i, RS_NODES_MAX / RS_QUANTA_PIECE + 1) {
		PLANE_LOCK(irq, return 0);
		more = rs_quantum_some(t);
		PLANE_UNLOCK(irq);
		if (!more)
			break;
	}
	return !more;
}

#endif
