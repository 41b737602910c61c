/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class rr: round robin. A thread runs for a quantum and goes to the rear; one that wakes joins at
 * the rear. Threads that never block receive the same number of steps, give or take one.
 *
 * Threads that were given a priority (default 50) are served before all of a lower one, and
 * displace those when they wake.
 */
enum { rr_keyed = 0, rr_least = 0 };

/* Also of class fifo. */
RS_INLINE u64 rr_key(struct rs_item RS_ARENA *it)
{
	return RS_PRIORITY_MAX - (it->priority ? it->priority : RS_PRIORITY_DEFAULT);
}

RS_INLINE u64 rr_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			 u32 why)
{
	(void)q, (void)why;
	it->seq = ++t->stamp;
	return rr_key(it);
}

RS_INLINE int rr_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	(void)ran;
	return rr_key(it) < rr_key(cur);
}

RS_INLINE int rr_quiet(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			 struct rs_item RS_ARENA *cur, u64 now)
{
	(void)t, (void)q, (void)it, (void)cur, (void)now;
	return 1;
}
