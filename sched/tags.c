/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Start-time tags: the arithmetic that SFQ needs, for nodes in their parent and for items in their
 * queue.
 *
 * A child that is served l units of work with weight w advances its tag by l / w (scaled by 2^20);
 * the division's remainder is carried, so the sum of any number of steps is exact
 * (docs/notes/algorithms.md §11). A child that becomes runnable starts at max(v, its finish tag).
 * Virtual time v is the start tag of the step in service (SIGCOMM'96), on several units that of the
 * last step dispatched (SFQ(D)); when nothing is in service it is the smallest start tag that
 * waits, and when nothing waits either, the largest finish tag.
 */

/*
 * Number range. A step counts as at most 2^43 of work (2.4 h in ns), and moves a tag by at most
 * 2^60 (18 min at weight 0.001): runnable tags then never are half the circle apart, and a clock
 * passes at most two multiples of 2^60 in one step, so that `hi` tells stale finish tags apart.
 */
#define RS_WORK_MAX (1ULL << 43)
#define RS_ADVANCE_MAX (1ULL << 60)

/* Work in tag units at a weight. w > 0. */
RS_INLINE u64 rs_vwork(u64 work, u32 w)
{
	u64 x;

	if (work > RS_WORK_MAX)
		work = RS_WORK_MAX;
	x = (work << RS_TAG_SHIFT) / w;
	return x > RS_ADVANCE_MAX ? RS_ADVANCE_MAX : x;
}

RS_INLINE void rs_clock_advance(struct rs_clock RS_ARENA *c, u64 v)
{
	if (!rs_before(c->v, v))
		return;
	if ((c->v ^ v) >> 60)
		c->hi++;
	c->v = v;
}

/* An idle child becomes runnable; it may start up to `credit` before v if its finish tag allows. */
RS_INLINE void rs_tag_start(struct rs_clock RS_ARENA *c, struct rs_tag RS_ARENA *g, u64 credit)
{
	u64 from = c->v - credit;

	/* A finish tag of an earlier busy period, or more than 2^60 old, is behind v (and might look ahead
	 * of it modulo 2^64). */
	if (g->epoch != c->epoch || c->hi - g->hi >= 2 || rs_before(g->base, from)) {
		g->base = g->epoch != c->epoch ? c->v : from;
		g->rem = 0;
	}
}

/* A new child, or one that comes from another parent: neither debt nor credit. */
RS_INLINE void rs_tag_new(struct rs_clock RS_ARENA *c, struct rs_tag RS_ARENA *g)
{
	g->base = c->v;
	g->rem = 0;
	g->epoch = c->epoch;
	g->hi = c->hi;
	g->until = c->v;
}

RS_INLINE void rs_tag_idle(struct rs_clock RS_ARENA *c, struct rs_tag RS_ARENA *g)
{
	g->epoch = c->epoch;
	g->hi = c->hi;
	if (rs_before(c->fmax, g->base))
		c->fmax = g->base;
}

/*
 * The last runnable child became idle: v = max F, and nobody starts the next busy period with a
 * debt.
 */
RS_INLINE void rs_clock_idle(struct rs_clock RS_ARENA *c)
{
	rs_clock_advance(c, c->fmax);
	c->fmax = c->v;
	c->epoch++;
}

/* A step ended. */
RS_INLINE void rs_tag_charge(struct rs_clock RS_ARENA *c, struct rs_tag RS_ARENA *g, u64 work, u32 w)
{
	u64 x;

	if (!w)
		w = RS_WEIGHT_ONE;
	if (work > RS_WORK_MAX)
		work = RS_WORK_MAX;
	x = (work << RS_TAG_SHIFT) + g->rem;
	g->rem = x % w;
	x /= w;
	if (x > RS_ADVANCE_MAX)
		x = RS_ADVANCE_MAX;
	g->base += x;
	if (rs_before(c->fmax, g->base))
		c->fmax = g->base;
}

/*
 * Several units: after its charge a tag is held near virtual time.
 *
 * Below: a child that cannot use its share (fewer threads than its weight is worth) falls behind v
 * for ever, and so comes first whenever it waits: that is GMS's answer. How far behind is all the
 * same, as long as it is more than v moves at once; v - 4 steps of the slowest sibling bounds the
 * credit, equally for all siblings, so that those behind keep their order. Above: at most units + 1
 * steps of debt. Who would have more is ordered by what he had beyond that (ahead.c).
 */
RS_INLINE void rs_tag_hold(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			   struct rs_tag RS_ARENA *g, u64 work, u32 w, u32 nsvc)
{
	struct rs_clock RS_ARENA *c = &p->clock;
	u64 step = rs_vwork(work > t->quantum ? work : t->quantum, w), x;

	c->slow -= c->slow >> 6;
	if (c->slow < step)
		c->slow = step;
	x = c->v - 4 * c->slow - nsvc * step;
	if (rs_before(g->base, x)) {
		g->base = x;
		g->rem = 0;
	}
	x = c->v + step * (t->units + 1);
	if (rs_before(x, g->base)) {
		rs_ahead_more(t, p, g, g->base - x, step);
		g->base = x;
		g->rem = 0;
	}
}

/* The weight changes from w to w2 (both > 0): the residual is rescaled, so that the fairness theorem holds
 * with the new weights from now on (docs/notes/algorithms.md §1.3). */
RS_INLINE void rs_tag_reweight(struct rs_clock RS_ARENA *c, struct rs_tag RS_ARENA *g, u32 w, u32 w2)
{
	u64 d, x;

	/*
	 * Behind v there is credit, which is the same at any weight (else renicing would multiply
	 * it).
	 */
	if (rs_before(g->base, c->v))
		return;
	/* (d + rem / w) * w / w2, with the remainder of that */
	d = g->base - c->v;
	x = d % w2 * w + g->rem;
	d = d / w2 * w + x / w2;
	g->rem = x % w2;
	if (d > RS_ADVANCE_MAX)
		d = RS_ADVANCE_MAX;
	g->base = c->v + d;
	/*
	 * The largest finish tag may have been this one: an upper bound is enough for the idle
	 * jump.
	 */
	if (rs_before(c->fmax, g->base))
		c->fmax = g->base;
}

#if RS_DISK
/*
 * The same where several steps may be in service, whose lengths come on top of the tag: (base - v)
 * scales with 1 / w whichever sign it has, so that what it is with those lengths (at the new
 * weight) does too.
 */
RS_INLINE void rs_tag_rescale(struct rs_clock RS_ARENA *c, struct rs_tag RS_ARENA *g, u32 w, u32 w2)
{
	u32 behind = rs_before(g->base, c->v);
	u64 d = behind ? c->v - g->base : g->base - c->v, x = d % w2 * w + (behind ? 0 : g->rem);

	d = d / w2 > RS_ADVANCE_MAX / w ? RS_ADVANCE_MAX : d / w2 * w + x / w2;
	if (d > RS_ADVANCE_MAX)
		d = RS_ADVANCE_MAX;
	g->rem = behind ? 0 : x % w2;
	g->base = behind ? c->v - d : c->v + d;
	if (rs_before(c->fmax, g->base))
		c->fmax = g->base;
}
#endif

/*
 * Several units, in a queue ordered by tags: whether `it`, which waits or would wait with tag
 * `key`, does not displace `cur`, in service for `ran`, although its tag is smaller. A displacement
 * on another unit is a section of the caller's lock and an interrupt, so it is not made
 *   - before cur has run for `least`, as the kernel's own schedulers do it;
 *   - for one who would not be served then, because another who waits goes before it.
 * Nothing asks again when `least` is over: who is first then waits until a step ends on a unit that
 * may serve it, for a quantum at most. Without the lock as well: what is read may be changing, and
 * the answer is as good as one of a moment ago.
 */
RS_INLINE int rs_left_alone(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 key,
			    u64 ran, u64 least)
{
	struct rs_node RS_ARENA *q = it->queue;
	struct rs_item RS_ARENA *first;

	if (cur->flags & RS_ITEM_BACKGROUND)
		return 0;
	if (ran < least)
		return 1;
	if (!q->ready.n)
		return 0;
	first = (struct rs_item RS_ARENA *)q->ready.e[0].obj;
	return first != it && first->all && !rs_before(key, q->ready.e[0].key);
}
