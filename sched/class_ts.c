/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class ts: time sharing, the default of a queue.
 *
 * Problem. Threads of one queue should share it by their nice values, and those that mostly sleep
 * should run soon after they wake, without becoming able to take more than their part.
 *
 * Idea. Start-time fair queueing over threads with the kernel's nice weights, and a thread that
 * wakes may start up to half a quantum (of weight 1) before the queue's virtual time, and displaces
 * a running thread of the same queue that is further ahead than a granule.
 *
 * Rules: start at max(v - credit, F) on wake-up, at v in a new queue; charge l / w; smallest tag
 * first. SCHED_BATCH gets no credit and displaces nobody; SCHED_IDLE has the weight 3 (of 1024),
 * gets no credit, and is displaced by any other thread that wakes. Nobody waits for ever: rs_pick
 * serves what waited too long. On several units others are not displaced in the first ms of their
 * step, nor for one who would not be first then (rs_left_alone).
 *
 * Bound: SFQ-1 over threads that stay runnable, plus the credit for one that woke within the
 * interval.
 *
 * Example (a test): hogs of nice 0 and nice 5 (1024 : 335) receive 0.7535 and 0.2465.
 */
enum { ts_keyed = 1, ts_least = 1000000 };

/* Its key while it waits. */
RS_INLINE u64 ts_key(struct rs_item RS_ARENA *it)
{
	return it->tag.base;
}
#define TS_GRANULE_NS 1000000ULL

RS_INLINE u64 ts_credit(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	if (it->flags & (RS_ITEM_BATCH | RS_ITEM_BACKGROUND))
		return 0;
	return rs_vwork(t->quantum / 2, RS_WEIGHT_ONE);
}

RS_INLINE u64 ts_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			 u32 why)
{
	if (why == RS_WHY_WAKE)
		rs_tag_start(&q->clock, &it->tag, ts_credit(t, it));
	else if (why == RS_WHY_MOVE)
		rs_tag_new(&q->clock, &it->tag);
	it->seq = ++t->stamp;
	return it->tag.base;
}

/*
 * Whether `it`, which has just been queued, should displace `cur`, which has run for `ran` in this
 * step.
 */
RS_INLINE int ts_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	u64 tag = cur->tag.base + rs_vwork(ran, cur->weight ? cur->weight : 1);

	if (it->flags & (RS_ITEM_BATCH | RS_ITEM_BACKGROUND))
		return 0;
	if (cur->flags & RS_ITEM_BACKGROUND)
		return 1;
	return rs_before(it->tag.base + rs_vwork(TS_GRANULE_NS, RS_WEIGHT_ONE), tag);
}

/* ts_preempts() of the tag that `it` will have, and the longest that cur may have run. */
RS_INLINE int ts_quiet(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
		       struct rs_item RS_ARENA *cur, u64 now)
{
	struct rs_tag g = { .base = it->tag.base, .epoch = it->tag.epoch, .hi = it->tag.hi };
	u64 from = q->clock.v - ts_credit(t, it), ran = now - cur->started;

	if (it->flags & (RS_ITEM_BATCH | RS_ITEM_BACKGROUND))
		return 1;
	if (cur->flags & RS_ITEM_BACKGROUND)
		return 0;
	if (g.epoch != q->clock.epoch)
		g.base = q->clock.v;
	else if (q->clock.hi - g.hi >= 2 || rs_before(g.base, from))
		g.base = from;
	if (RS_SEVERAL(t) && rs_left_alone(it, cur, g.base, (s64)ran < 0 ? 0 : ran, ts_least))
		return 1;
	return !rs_before(g.base + rs_vwork(TS_GRANULE_NS, RS_WEIGHT_ONE),
			  cur->tag.base + rs_vwork((s64)ran < 0 ? 0 : ran, cur->weight ? cur->weight : 1));
}
