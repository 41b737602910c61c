/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class fifo: first come, first served. A thread keeps its place until it blocks: when its quantum
 * ends (the tree may have to serve another queue then) it is the first of its queue again. What
 * waits behind a thread that never blocks is kept alive by rs_pick's rule for what waited too long.
 *
 * Priorities as in class rr.
 */
enum { fifo_keyed = 0, fifo_least = 0 };

RS_INLINE u64 fifo_key(struct rs_item RS_ARENA *it)
{
	return rr_key(it);
}

RS_INLINE u64 fifo_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q,
			   struct rs_item RS_ARENA *it, u32 why)
{
	(void)q;
	if (why != RS_WHY_AGAIN)
		it->seq = ++t->stamp;
	return rr_key(it);
}

RS_INLINE int fifo_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	return rr_preempts(it, cur, ran);
}

RS_INLINE int fifo_quiet(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			 struct rs_item RS_ARENA *cur, u64 now)
{
	(void)t, (void)q, (void)it, (void)cur, (void)now;
	return 1;
}
