/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class rr: round robin. A thread runs for a quantum and goes to the rear; one that wakes joins at the rear.
 * Threads that never block receive the same number of steps, give or take one.
 */
enum { rr_keyed = 0 };

RS_INLINE u64 rr_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			 u32 why)
{
	(void)q, (void)why;
	it->seq = ++t->stamp;
	return 0;
}

RS_INLINE int rr_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	(void)it, (void)cur, (void)ran;
	return 0;
}
