/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Policy sfq: start-time fair queueing of the children of a node; composed along the tree it is
 * H-SFQ, QLinux's CPU scheduler.
 *
 * Problem. Divide what a node receives among its children by weight, without knowing how long a
 * step will take, and whatever the node itself receives (it may be stalled or slowed at any time).
 *
 * Idea. Each child carries a start tag; the ready child with the smallest goes first, and its tag
 * advances by the work it then received divided by its weight. Children that wait for the same time
 * keep tags within one step of each other, hence their normalised service too.
 *
 * Rules, in order of execution:
 *   1. child becomes runnable: S = max(v, F)                                        sfq_wake
 *   2. pick: the ready child with the smallest (S, seq) that this unit may serve    sfq_pick
 *      v = S of that child                                                          sfq_dispatch
 *      S += estimate / w, so that other units that pick now see it as charged
 *   3. step of length l ends: the estimate is taken back, F = S + l / w, and S = F if it goes on; when no
 *      child is in service any more, v = the smallest start tag that waits          sfq_charge
 *   4. child becomes idle; when it was the last one, v = max F                       sfq_idle
 *
 * Background (weight 0) children sort behind all others and among themselves by tags of weight 1
 * with a virtual time of their own; a node serves them when no other child is ready.
 *
 * Example (also a test): weights 1 and 2, quantum 6, both runnable at v = 0. Tags: A 0, B 0. A
 * runs: 6. B: 3, 6. A (6 came first): 12; B: 9, 12; A … so in every 18 units A gets 6 and B 12.
 *
 * Bound (SFQ-1): |W_f/w_f - W_m/w_m| <= l_f/w_f + l_m/w_m over any interval in which both are
 * runnable, for any server. Several units: (d+1) times that with d steps outstanding (SFQ-7).
 *
 * Deviations: v on several units is that of SFQ(D); residuals are rescaled on reweight; stale tags
 * of idle children are recognised by epoch instead of being compared; tags.c says how infeasible
 * weights are held.
 *
 * References: Goyal, Vin, Cheng, SIGCOMM'96; Goyal, Guo, Vin, OSDI'96; QLinux §2.2; Jin, Chase,
 * Kaur 2004.
 */

#define SFQ_AHEAD 3

RS_INLINE int policy_behind(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c);

/*
 * Several units: whether scheduler c has first a ready child that is behind there, as one that can
 * never use its share always is (tags.c; rule 6 of policy_eevdf.c). It must not wait until the
 * steps that c gave to other children meanwhile are paid, so c's place among its siblings, if they
 * are scheduled by sfq or eevdf, is SFQ_AHEAD quanta before what its tag says. Its share is as
 * before, since its tag is.
 */
RS_INLINE int rs_hurried(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	if (!RS_SEVERAL(t) || c->kind != RS_SCHED || rs_device(t) || !c->ready.n || (c->ready.e[0].seq & RS_SEQ_BACKGROUND))
		return 0;
	return policy_behind(t, c);
}

#define sfq_has_behind 1
RS_INLINE int sfq_behind(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	(void)t;
	return rs_before(c->ready.e[0].key, c->clock.v);
}

/*
 * A child's place among its siblings: its start tag, as if the steps in service had taken what is
 * reserved. (A single unit picks when nothing is in service.)
 */
RS_INLINE u64 sfq_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	u32 w = c->weight ? c->weight : RS_WEIGHT_ONE;

	if (rs_hurried(t, c))
		return c->tag.base - rs_vwork(SFQ_AHEAD * t->quantum, w);
	return RS_SEVERAL(t) ? c->tag.base + rs_vwork(c->res, w) : c->tag.base;
}

/*
 * v = max(v, min S), when no child is in service to hold it, and all that wait are known. `nsvc`
 * steps are in service below p.
 */
RS_INLINE void sfq_refresh_v(struct rs_node RS_ARENA *p, u32 nsvc)
{
	if (nsvc == 0 && p->ready.n && !(p->ready.e[0].seq & RS_SEQ_BACKGROUND) && !(p->throttled & RS_FROZEN))
		rs_clock_advance(&p->clock, p->ready.e[0].key);
}

/* Bring v up to date, before something other than a pick changes what is in service below p. */
RS_INLINE void sfq_sync(struct rs_node RS_ARENA *p)
{
	sfq_refresh_v(p, p->nsvc);
}

RS_INLINE void sfq_wake(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (!c->weight) {
		/*
		 * max(vb, F): a finish tag lies at most a step ahead, all else is behind or too old
		 * to compare.
		 */
		if (c->tag.base - p->vb > RS_ADVANCE_MAX) {
			c->tag.base = p->vb;
			c->tag.rem = 0;
		}
		return;
	}
	sfq_refresh_v(p, p->nsvc);
	rs_tag_start(&p->clock, &c->tag, 0);
}

RS_INLINE void sfq_idle(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (!c->weight)
		return;
	rs_tag_idle(&p->clock, &c->tag);
	if (p->nrun)
		sfq_refresh_v(p, p->nsvc);
	else
		rs_clock_idle(&p->clock);
}

/* c was chosen and does not carry the estimate of this step yet. A choice made for another reason than tags
 * (affinity, starvation) moves v no further than the smallest tag that waits. */
RS_INLINE void sfq_dispatch(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	struct rs_entry RS_ARENA *e = p->ready.e;
	u64 s = sfq_key(t, c);

	if (!c->weight) {
		sfq_refresh_v(p, p->nsvc);
		if (rs_before(p->vb, s))
			p->vb = s;
		return;
	}
	if (p->ready.n && !(e[0].seq & RS_SEQ_BACKGROUND) && rs_before(e[0].key, s))
		s = e[0].key;
	rs_clock_advance(&p->clock, s);
}

/*
 * A step of c ended after `work`; c->nsvc and c->res are already those without it. `forced`:
 * something waits below p, but nothing that the unit could have served instead (affinity). Such a
 * step makes no debt: else what c has on other units would starve. It uses up credit if nothing of
 * c waits there.
 */
RS_INLINE void sfq_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			  struct rs_node RS_ARENA *c, u64 work, u32 forced)
{
	u64 old = c->tag.base;

	if (!c->weight) {
		c->tag.base += rs_vwork(work, RS_WEIGHT_ONE);
		return;
	}
	rs_tag_charge(&p->clock, &c->tag, work, c->weight);
	if (forced && (c->link.pos || rs_before(p->clock.v, c->tag.base))) {
		c->tag.base = !c->link.pos && rs_before(old, p->clock.v) ? p->clock.v : old;
		c->tag.rem = 0;
	}
	if (RS_SEVERAL(t) && !rs_device(t))
		rs_tag_hold(t, p, &c->tag, work, c->weight, c->nsvc);
}

#if RS_DISK
/*
 * A device: c begins to wait, with or without something in service: S = max(v, F), F being that of
 * what it dispatched last (SFQ(D)).
 */
RS_INLINE void sfq_ready(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 s = sfq_key(t, c);

	if (!rs_device(t) || !c->weight || !rs_before(s, p->clock.v))
		return;
	c->tag.base += p->clock.v - s;
	c->tag.rem = 0;
}
#endif

/*
 * Several units: something more wants service below c. What c could not use before is no credit for
 * that.
 */
RS_INLINE void sfq_more(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 low;

	if (!c->weight || !c->runnable)
		return;
	low = p->clock.v - rs_vwork(t->quantum, c->weight) * (c->nsvc + 1);
	if (rs_before(c->tag.base, low)) {
		c->tag.base = low;
		c->tag.rem = 0;
	}
}

RS_INLINE void sfq_reweight(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u32 w)
{
	(void)t;
	sfq_refresh_v(p, p->nsvc);
	if (!c->weight || !w) {
		/* Into or out of the background: the tags are of another clock. */
		rs_tag_new(&p->clock, &c->tag);
		if (!w)
			c->tag.base = p->vb;
	} else if (c->runnable ||
		   (c->tag.epoch == p->clock.epoch && p->clock.hi - c->tag.hi < 2 &&
		    rs_before(p->clock.v, c->tag.base))) {
#if RS_DISK
		if (rs_device(t)) {
			rs_tag_rescale(&p->clock, &c->tag, c->weight, w);
			return;
		}
#endif
		rs_tag_reweight(&p->clock, &c->tag, c->weight, w);
	}
}

/*
 * The policy changes: how far a runnable child is ahead of its siblings, in tag units; and the same
 * on the way in.
 */
RS_INLINE s64 sfq_offset(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	sfq_refresh_v(p, p->nsvc);
	return c->tag.base - p->clock.v;
}

RS_INLINE void sfq_start(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, s64 offset)
{
	(void)t;
	c->tag.base = p->clock.v + offset;
	if (rs_before(p->clock.fmax, c->tag.base))
		p->clock.fmax = c->tag.base;
}

/*
 * Nothing of an idle child is kept in its parent: no leave. A child that wakes starts at v or later,
 * so tags never tell it to displace the one in service: no ahead.
 */
enum { sfq_aside = 0, sfq_mode = 0 };
#define sfq_has_sync 1
#define sfq_has_more 1
#define sfq_has_wake 1
#define sfq_has_idle 1
#define sfq_has_dispatch 1
#define sfq_has_ready 1
#define sfq_has_reweight 1
#define sfq_has_offset 1
#define sfq_has_start 1

RS_INLINE int rs_unit_in(u64 RS_ARENA *mask, u32 unit)
{
	return mask[(unit / 64) & (RS_UNIT_WORDS - 1)] >> (unit & 63) & 1;
}

RS_INLINE int rs_node_allows(struct rs_node RS_ARENA *n, u32 unit)
{
	return n->all || rs_unit_in(n->mask, unit);
}

RS_FN_PTR(struct rs_node RS_ARENA, sfq_pick_far,
	  (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit), (t, p, unit))
{
	struct rs_entry RS_ARENA *e = p->ready.e;
	struct rs_node RS_ARENA *c, *best = 0;
	struct rs_far far = { .rank = 3 };
	u32 n = p->ready.n, seen = rs_zero;

	/*
	 * Rare: the first may not run here. The heap gives no order among the rest, so look at all.
	 */
	RS_LOOP(i, n) {
		c = (struct rs_node RS_ARENA *)e[i].obj;
		if (rs_node_allows(c, unit) &&
		    rs_ahead_before(&p->clock, &c->tag, e[i].key, e[i].seq, &far))
			best = c;
		seen++;
	}
	t->looked += n;
	if (seen != n)
		rs_poison(t, RS_POISON_SCAN);
	return (u64)best;
}

/* The ready child with the smallest tag that `unit` may serve; 0: none. */
RS_INLINE struct rs_node RS_ARENA *sfq_pick(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit)
{
	struct rs_node RS_ARENA *c;

	if (!p->ready.n)
		return 0;
	c = (struct rs_node RS_ARENA *)p->ready.e[0].obj;
	if (rs_node_allows(c, unit))
		return c;
	return sfq_pick_far(t, p, unit);
}
