/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Policy yfq: yet another fair queueing (Eclipse/BSD's disk scheduler) of the children of a node;
 * composed along the tree it is hierarchical YFQ. For servers of known lengths that may serve
 * several at once: disks.
 *
 * Problem. As sfq, and the device should be given several requests at once, so that it, or a window
 * before it, can order them by place.
 *
 * Idea. As sfq, but the smallest finish tag goes first: short requests do not wait behind long ones
 * of the same start tag. Tags advance when a request is dispatched, by its known length; up to b
 * (the units of the tree) are dispatched and not completed at any time.
 *
 * State. Child: start tag S = tag.base, and on several units the lengths of what is in service
 * beyond it (res); finish tag F = S + l / w, where l is the length of what its subtree would
 * dispatch next (refresh.c, rs_head_of). Node: v (clock.v). `waiting` children: those in the ready
 * heap; on one unit also the one in service, whose S counts until its end, as published.
 *
 * Rules, in order of execution:
 *   1. child begins to wait: S = max(v, F of what it dispatched last)                    yfq_wake; yfq_ready where it has something in service
 *   2. the head of its subtree changes: F = S + l / w, S stays (late commit)             yfq_key
 *   3. pick: the waiting child with the smallest (F, seq); v = max(v, min S of all that wait, that one included); then its S = F     yfq_dispatch
 *   4. a request ends: what was charged in advance is replaced by what it took           yfq_charge
 *   5. the last child becomes idle, nothing waits and nothing is in service: v = max F   yfq_idle
 *   6. weight changes: S - v scales with 1 / w, whichever sign it has                    yfq_reweight
 *
 * Two heaps: `ready` by F; `aside` by S. An entry aside may be too low, or of a child that waits no
 * longer: that is put right where it comes first (yfq_v).
 *
 * Background (weight 0) children sort behind all others, as with sfq.
 *
 * Example (also a test): weights 1 and 2, requests of 6, b = 1. F is 6 and 3. B: S = 3, F = 6, and
 * A came first with 6. A: 12. B: 9, 12 … so B A B B A B B A B.
 *
 * Bounds, with U = max over all siblings of l / w:
 *   YFQ-1  counted at dispatch, both waiting throughout: |W_i / w_i - W_m / w_m| <= 2 U. (Not the sum of the two alone as with sfq: a third child with a
 *          tiny weight holds v back.)
 *   YFQ-2  counted at completion: + b (l_i / w_i + l_m / w_m)
 *   YFQ-3  0 <= S - v <= U for every waiting child
 *   YFQ-4  work conserving
 *
 * Deviation: with b > 1 v becomes max F when nothing is left in service either, not when the last
 * request is dispatched: what was dispatched keeps counting until the device is idle, and YFQ-1 to
 * 3 hold as before (the proof needs no jump).
 *
 * References: Bruno, Brustoloni, Gabber, Özden, Silberschatz: disk scheduling with quality of
 * service guarantees (YFQ), ICMCS'99; Eclipse/BSD, USENIX'99.
 */
RS_INLINE struct rs_node RS_ARENA *yfq_of_alink(struct rs_link RS_ARENA *l)
{
	return (struct rs_node RS_ARENA *)((char RS_ARENA *)l - __builtin_offsetof(struct rs_node, alink));
}

/* S, when c's weight is w. */
RS_INLINE u64 yfq_start_at(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c, u32 w)
{
	return RS_SEVERAL(t) ? c->tag.base + rs_vwork(c->res, w) : c->tag.base;
}

RS_INLINE u64 yfq_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	u32 w = c->weight ? c->weight : RS_WEIGHT_ONE;
	u64 s = yfq_start_at(t, c, w), x;

	if (!c->weight)
		return s;
	x = (((u64)c->head << RS_TAG_SHIFT) + c->tag.rem) / w;
	return s + (x > RS_ADVANCE_MAX ? RS_ADVANCE_MAX : x);
}

/* c waits, and its S has changed or is new. */
RS_INLINE void yfq_place(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u32 w)
{
	u64 s = yfq_start_at(t, c, w);

	if (c->alink.pos)
		rs_heap_rekey(t, &p->aside, s, ++t->stamp, &c->alink);
	else
		rs_heap_push(t, &p->aside, s, ++t->stamp, &c->alink);
}

RS_INLINE void yfq_unplace(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	if (c->alink.pos)
		rs_heap_erase(t, &p->aside, &c->alink);
}

/* v = max(v, min S of who waits); `chosen`, if any, counts too, though it may wait no longer. */
RS_FN_VOID(yfq_v, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *chosen), (t, p, chosen))
{
	u64 least = 0;
	u32 some = 0;

	if (chosen) {
		least = yfq_start_at(t, chosen, chosen->weight);
		some = 1;
	}
	RS_LOOP(i, 2 * RS_NODES_MAX) {
		struct rs_node RS_ARENA *c;
		u64 s;

		if (!p->aside.n) {
			if (some)
				rs_clock_advance(&p->clock, least);
			return;
		}
		c = yfq_of_alink(p->aside.e[0].obj);
		if (!c->link.pos && (RS_SEVERAL(t) || !c->nsvc)) {
			rs_heap_erase(t, &p->aside, &c->alink);
			continue;
		}
		s = yfq_start_at(t, c, c->weight);
		if (s != p->aside.e[0].key) {
			rs_heap_rekey(t, &p->aside, s, p->aside.e[0].seq, &c->alink);
			continue;
		}
		rs_clock_advance(&p->clock, some && rs_before(least, s) ? least : s);
		return;
	}
	rs_poison(t, RS_POISON_SCAN);
}

RS_FN_VOID(yfq_wake, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (!c->weight) {
		sfq_wake(t, p, c);
		return;
	}
	yfq_v(t, p, 0);
	rs_tag_start(&p->clock, &c->tag, 0);
}

/*
 * c begins to wait, whether or not it has something in service; so it is when a step ended and it
 * goes on to wait (one unit: it never ceased to).
 */
RS_FN_VOID(yfq_ready, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	u64 s;

	if (!c->weight)
		return;
	yfq_v(t, p, 0);
	s = yfq_start_at(t, c, c->weight);
	if (rs_before(s, p->clock.v)) {
		c->tag.base += p->clock.v - s;
		c->tag.rem = 0;
	}
	yfq_place(t, p, c, c->weight);
}

RS_FN_VOID(yfq_idle, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (!c->weight)
		return;
	yfq_unplace(t, p, c);
	rs_tag_idle(&p->clock, &c->tag);
	if (p->nrun)
		yfq_v(t, p, 0);
	else
		rs_clock_idle(&p->clock);
}

RS_FN_VOID(yfq_dispatch, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (!c->weight) {
		if (rs_before(p->vb, c->tag.base))
			p->vb = c->tag.base;
		return;
	}
	yfq_v(t, p, c);
}

RS_FN_VOID(yfq_charge, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u64 work, u32 forced), (t, p, c, work, forced))
{
	(void)forced;
	if (!c->weight) {
		c->tag.base += rs_vwork(work, RS_WEIGHT_ONE);
		return;
	}
	rs_tag_charge(&p->clock, &c->tag, work, c->weight);
	if (c->alink.pos)
		yfq_place(t, p, c, c->weight);
}

RS_FN_VOID(yfq_reweight, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u32 w), (t, p, c, w))
{
	yfq_v(t, p, 0);
	if (!c->weight || !w) {
		rs_tag_new(&p->clock, &c->tag);
		yfq_unplace(t, p, c);
		if (!w)
			c->tag.base = p->vb;
		else if (c->link.pos)
			yfq_place(t, p, c, w);
		return;
	}
	if (!c->runnable && (c->tag.epoch != p->clock.epoch || p->clock.hi - c->tag.hi >= 2 || !rs_before(p->clock.v, c->tag.base)))
		return;
	rs_tag_rescale(&p->clock, &c->tag, c->weight, w);
	if (c->alink.pos)
		yfq_place(t, p, c, w);
}

RS_INLINE void yfq_leave(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	yfq_unplace(t, p, c);
}

RS_INLINE s64 yfq_offset(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->tag.base - p->clock.v;
}

RS_INLINE void yfq_start(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, s64 offset)
{
	sfq_start(t, p, c, offset);
	if (c->link.pos)
		yfq_place(t, p, c, c->weight);
}

enum { yfq_aside = 1, yfq_mode = RS_MODE_LENGTH };
#define yfq_has_wake 1
#define yfq_has_idle 1
#define yfq_has_dispatch 1
#define yfq_has_ready 1
#define yfq_has_reweight 1
#define yfq_has_offset 1
#define yfq_has_start 1
#define yfq_has_leave 1

RS_INLINE struct rs_node RS_ARENA *yfq_pick(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit)
{
	return sfq_pick(t, p, unit);
}
