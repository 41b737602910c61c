/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Policy mtrls: move-to-rear list scheduling, Eclipse's CPU scheduler.
 *
 * Problem. A child that blocks and wakes all the time (a server that reads from a disk) should,
 * over its life, receive what it would have on a private server of speed alpha with the same waits,
 * although nobody knows how long its steps are. Schedulers that let a woken child start again at
 * the present (SFQ among them) forgive what it did not use; here it loses nothing.
 *
 * Idea. Children stand in a list, each with what is left of its quota alpha T. The first that is
 * runnable is served. Who has used his quota gets a new one and goes to the rear. Who blocks keeps
 * both his place and what is left; when he wakes and stands ahead of the child in service, he takes
 * its place at once.
 *
 * T is the turn (default 100 ms); alpha_i = w_i over the sum of the weights of all children of the
 * node, runnable or not.
 *
 * Rules, in order of execution:
 *   1. join (first wake-up under this parent): left = alpha T, at the rear                          mtrls_wake
 *   2. pick: the first ready child that this unit may serve; one whose left is not above 0 goes to the rear with
 *      left += alpha T instead, and the next is looked at                                           mtrls_pick
 *   3. a step is no longer than left, where the caller can end it there                             mtrls_slice
 *   4. step of length l ends: left -= l; at 0 or below: left += alpha T (an overshoot is carried),
 *      to the rear                                                                                  mtrls_charge
 *   5. block: nothing changes. Wake: ahead of the child in service, and left > 0: it displaces that
 *      mtrls_ahead On several units each step in service has its part of left set aside, and what
 *      is free of it counts instead
 *   6. alpha changes (a weight, a sibling, T): left is rescaled by alpha' / alpha, the place is
 *      kept mtrls_left
 *
 * The list is a heap, O(log n), by round and then by when a child came to its place; `clock.v` is
 * the latest round of which a child was served. The rear is the end of the next round. On one unit
 * that is the plain list. On several, a child with fewer threads than units is still at its quota
 * while the units that it leaves free go on to the next round of others; when it is through, its
 * next place is in the round after its own, ahead of where they are, since it has not been idle.
 * (In a plain list a child worth .95 of a unit had .68.) A child that blocks forgets the rounds
 * that it missed, and one that cannot use what it is worth is MTRLS_ROUNDS behind at most, so that
 * nobody pays for them later. Background children (weight 0) stand behind all others and take turns
 * step by step. Places are counted with 32 bits: once in 4e9 of them one comes to the front of its
 * round.
 *
 * Example (also a test): weights 1, 1 and 2, T = 8: quotas 2, 2, 4. A, B and C wake in this order;
 * steps are of 1. A A B, then B blocks with 1 left; C C; B wakes: it stands ahead of C and
 * displaces it: B, which is its quota; C C; A A …
 *
 * Bounds, with R_i the time that i was runnable and s_i its service, both since it joined (docs/notes/algorithms.md §4.2):
 *   MTR-1  alpha R_i - s_i <= alpha (1 - alpha) T
 *   MTR-2  i and j runnable throughout: |W_i / alpha_i - W_j / alpha_j| < 2 T
 *   MTR-3  from wake-up to service: at most (1 - alpha) T
 * Steps that end up to d late: MTR-1 alpha [(1 - alpha) T + (n - 1) d + K d] with K wake-ups, MTR-2 + d / alpha_i + d / alpha_j. They need
 * alpha T >= d.
 *
 * Deviations: weights are normalised, Eclipse's shares are of 1 (equal where they sum up to 1, and
 * no less otherwise). More than MTRLS_DEBT turns of debt are forgiven, and a pick moves no more
 * than MTRLS_SKIPS children to the rear. Several units: a child may be in service on all of them
 * when its quota ends, so that d is what all its steps end late together.
 *
 * References: Bruno, Gabber, Özden, Silberschatz: the Eclipse operating system (USENIX'98),
 * Eclipse/BSD §2; Bossa's MTR module, whose lost overshoot rule 4 avoids.
 */
#define MTRLS_TURN_NS 100000000ULL
#define MTRLS_TURN_MAX 10000000000ULL
#define MTRLS_DEBT 32
#define MTRLS_SKIPS 256
#define MTRLS_ROUNDS 2

RS_INLINE u64 mtrls_quota(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 turn = p->turn_ns ? p->turn_ns : MTRLS_TURN_NS, quota;

	if (turn > MTRLS_TURN_MAX) /* the product fits */
		turn = MTRLS_TURN_MAX;
	quota = c->weight && p->wsum ? turn * c->weight / p->wsum : turn;
	return quota ? quota : 1;
}

/* What is left of the quota, after rule 6. */
RS_FN s64 mtrls_left(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 quota = mtrls_quota(p, c), old = c->as.mtrls.quota, part;

	if (old == quota)
		return c->as.mtrls.left;
	c->as.mtrls.quota = quota;
	if (!old)
		return c->as.mtrls.left = quota;
	part = c->as.mtrls.left < 0 ? -c->as.mtrls.left : c->as.mtrls.left;
	/* |left| <= MTRLS_DEBT * old; the product of two quotas of more than 1 s would not fit. */
	if (old >> 30) {
		part >>= 4;
		old >>= 4;
	}
	part = rs_muldiv(part, quota, old);
	return c->as.mtrls.left = c->as.mtrls.left < 0 ? -(s64)part : (s64)part;
}

/* What of it no step in service on another unit has been given. */
RS_INLINE s64 mtrls_free(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return mtrls_left(p, c) - (s64)c->res;
}

/* The end of the round. */
RS_INLINE void mtrls_place(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 round)
{
	c->as.mtrls.round = round;
	c->tag.base = (round << 32) + (u32)++p->of.mtrls.places;
}

/*
 * c has used its quota, which is up to date: another, at the rear. Rounds that it only sits out are
 * not forgiven, for it owes them.
 */
RS_FN_VOID(mtrls_rear, (struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c), (p, c))
{
	u64 round = c->as.mtrls.round + 1, least = p->clock.v - MTRLS_ROUNDS;

	c->as.mtrls.left += c->as.mtrls.quota;
	mtrls_place(p, c, c->as.mtrls.left > (s64)c->res && rs_before(round, least) ? least : round);
}

/* A child that comes from elsewhere, or is new, has no quota yet. */
RS_INLINE void mtrls_wake(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (c->as.mtrls.quota) {
		if (rs_before(c->as.mtrls.round, p->clock.v))
			c->as.mtrls.round = p->clock.v;
		return;
	}
	mtrls_left(p, c);
	mtrls_place(p, c, p->clock.v + 1);
}

RS_INLINE void mtrls_start(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, s64 offset)
{
	(void)offset;
	mtrls_wake(t, p, c);
}

/* Places and quotas say nothing about service: no offset, and whoever is runnable joins. */
enum { mtrls_aside = 0, mtrls_mode = RS_MODE_AHEAD | RS_MODE_SLICE };
#define mtrls_has_wake 1
#define mtrls_has_dispatch 1
#define mtrls_has_reweight 1
#define mtrls_has_start 1
#define mtrls_has_ahead 1
#define mtrls_has_slice 1

RS_INLINE u64 mtrls_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	(void)t;
	return c->tag.base;
}

RS_INLINE void mtrls_dispatch(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	s32 later = (s32)((u32)(c->tag.base >> 32) - (u32)p->clock.v);

	(void)t;
	if (c->weight && later > 0)
		p->clock.v += later;
}

RS_INLINE void mtrls_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 work,
			    u32 forced)
{
	s64 debt;

	(void)t, (void)forced;
	if (!c->weight) {
		mtrls_place(p, c, p->clock.v);
		return;
	}
	c->as.mtrls.left = mtrls_left(p, c) - (s64)(work < RS_WORK_MAX ? work : RS_WORK_MAX);
	if (mtrls_free(p, c) > 0)
		return;
	debt = -(s64)(MTRLS_DEBT * c->as.mtrls.quota);
	if (c->as.mtrls.left < debt)
		c->as.mtrls.left = debt;
	mtrls_rear(p, c);
}

RS_INLINE void mtrls_reweight(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u32 w)
{
	(void)t;
	if (c->weight && w)
		return; /* rule 6, when it is next looked at */
	/* Into or out of the background: it joins anew, with the quota that it has then. */
	c->as.mtrls.quota = 0;
	mtrls_place(p, c, p->clock.v + 1);
}

/* The longest step that c should be given. */
RS_INLINE u64 mtrls_slice(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	s64 left = c->weight ? mtrls_free(p, c) : 0;

	return left > 0 ? (u64)left : ~0ULL;
}

/* Whether a, which is ready, goes before b, which is in service. */
RS_INLINE int mtrls_ahead(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *a,
			  struct rs_node RS_ARENA *b)
{
	(void)t;
	if (!a->weight)
		return 0;
	return !b->weight || (rs_before(a->tag.base, b->tag.base) && mtrls_free(p, a) > 0);
}

RS_FN_PTR(struct rs_node RS_ARENA, mtrls_pick,
	  (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit), (t, p, unit))
{
	struct rs_node RS_ARENA *c;

	RS_LOOP(i, MTRLS_SKIPS) {
		c = sfq_pick(t, p, unit);
		if (!c || !c->weight || mtrls_free(p, c) > 0)
			return (u64)c;
		mtrls_rear(p, c);
		rs_heap_rekey(t, &p->ready, c->tag.base, ++t->stamp, &c->link);
	}
	return (u64)sfq_pick(t, p, unit);
}

#define mtrls_has_told 1
RS_INLINE u64 mtrls_told(struct rs_node RS_ARENA *p)
{
	return p->turn_ns;
}
