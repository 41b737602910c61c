/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class sfq: start-time fair queueing over the threads of a queue, exactly as policy_sfq.c does
 * over nodes: start at max(v, F), charge l / w, smallest tag first, no preemption at wake-up.
 * Weights are those the threads were given, equal by default. Bound: SFQ-1 over threads. Reference:
 * QLinux §2.2 (leaf classes).
 */
enum { sfqc_keyed = 1, sfqc_least = 0 };

/* Its key while it waits. */
RS_INLINE u64 sfqc_key(struct rs_item RS_ARENA *it)
{
	return it->tag.base;
}

RS_INLINE u64 sfqc_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q,
			   struct rs_item RS_ARENA *it, u32 why)
{
	if (why == RS_WHY_WAKE)
		rs_tag_start(&q->clock, &it->tag, 0);
	else if (why == RS_WHY_MOVE)
		rs_tag_new(&q->clock, &it->tag);
	it->seq = ++t->stamp;
	return it->tag.base;
}

RS_INLINE int sfqc_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	(void)it, (void)cur, (void)ran;
	return 0;
}

RS_INLINE int sfqc_quiet(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			 struct rs_item RS_ARENA *cur, u64 now)
{
	(void)t, (void)q, (void)it, (void)cur, (void)now;
	return 1;
}
