/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Caps: a token bucket in arrears on a node. Work is charged when it is known; a node in debt is
 * throttled, that is, taken from its parent's ready children, until the bucket is positive again.
 * The tree's heap of throttled nodes says who is due when.
 */

/* no refill and no wait is longer than 11 days: products fit 64 bits */
#define RS_CAP_SPAN 1000000000000000ULL
#define RS_CAP_DEBT (-(1LL << 50))

RS_INLINE void rs_cap_refill(struct rs_cap RS_ARENA *c, u64 now)
{
	u64 dt = now - c->at, part;

	if ((s64)dt <= 0)
		return;
	c->at = now;
	if (dt > RS_CAP_SPAN)
		dt = RS_CAP_SPAN;
	part = dt % 1000000 * c->ppm + c->rem;
	c->tok += dt / 1000000 * c->ppm + part / 1000000;
	c->rem = part % 1000000;
	if (c->tok > c->burst) {
		c->tok = c->burst;
		c->rem = 0;
	}
}

/* When a node that is in debt may go on: its bucket is positive then. */
RS_INLINE u64 rs_cap_due(struct rs_cap RS_ARENA *c)
{
	u64 debt = c->tok < 0 ? -c->tok : 0, wait = RS_CAP_SPAN;

	/*
	 * debt is at most 2^50, and a second's worth of ppm at least one: wait only overflows when
	 * clamped.
	 */
	if (c->ppm && debt / c->ppm < RS_CAP_SPAN / 1000000)
		wait = rs_muldiv(debt + 1, 1000000, c->ppm) + 1;
	return c->at + wait;
}

RS_INLINE struct rs_node RS_ARENA *rs_of_tlink(struct rs_link RS_ARENA *l)
{
	return (struct rs_node RS_ARENA *)((char RS_ARENA *)l - __builtin_offsetof(struct rs_node, tlink));
}

RS_FN_VOID(rs_throttle, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 now),
	   (t, n, now))
{
	n->throttled |= RS_CAPPED;
	n->throttled_at = now;
	rs_heap_push(t, &t->throttle, rs_cap_due(&n->cap), ++t->stamp, &n->tlink);
}

RS_FN_VOID(rs_unthrottle, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 now),
	   (t, n, now))
{
	rs_heap_erase(t, &t->throttle, &n->tlink);
	n->throttled &= ~RS_CAPPED;
	if (rs_before(n->throttled_at, now)) /* clocks of several units differ by a little */
		n->throttled_ns += now - n->throttled_at;
	rs_refresh(t, n);
}

/* Let go what is due; the rest at the next pick. */
RS_FN_VOID(rs_unthrottle_due, (struct rs_tree RS_ARENA *t, u64 now), (t, now))
{
	RS_LOOP(i, RS_RELEASE_PIECE) {
		struct rs_node RS_ARENA *n;

		if (!t->throttle.n || rs_before(now, t->throttle.e[0].key))
			break;
		n = rs_of_tlink(t->throttle.e[0].obj);
		rs_cap_refill(&n->cap, now);
		if (n->cap.tok > 0 || !n->cap.ppm)
			rs_unthrottle(t, n, now);
		else
			rs_heap_rekey(t, &t->throttle, rs_cap_due(&n->cap), ++t->stamp, &n->tlink);
	}
}
