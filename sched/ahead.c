/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Several units, some of which some children may not use: the order of those that are ahead.
 *
 * Problem. Ten queues are bound to unit 0, and two, of weights 1 and 2, to unit 1. Virtual time is
 * the smallest tag that waits: it goes as slowly as the unit with most to do. The two get further
 * and further ahead of it and are held there (rs_tag_hold), each at a limit of its own. Held tags
 * say nothing of who had less: the heavier one, whose limit is nearer, always went first.
 *
 * Idea. What a tag is not charged for, because it is held, is a second tag: `over`. A unit that may
 * not serve the first child that waits serves, of those that it may, whose tag is not held; if all
 * are, the one with the smallest `over`. So each has what virtual time owes it, on any unit, and
 * what is left of a unit is divided by weight among those that can use it.
 *
 * Rules:
 *   1. a tag is held: over += what it is not charged for                              rs_ahead_more
 *   2. a child that was not ahead begins where the unit is: over = that of the last child ahead
 *      that the unit served. One that slept, or comes from another unit, is no further behind
 *      than its debt may be                                                           rs_ahead_more
 *   3. who was not held while v moved by AHEAD_STEPS of its own steps is not ahead any more
 *                                                                                     rs_is_ahead
 *   4. choice among children that a unit may serve when it may not serve the first:
 *      not ahead, by tag; then ahead, by over; then background                     rs_ahead_before
 *
 * Bound. Shares are those of constrained max-min fairness, where two rates suffice for each unit:
 * that of v and its own. Where a child may use units of three different rates, it has the least of
 * them at least. crates/oracle/src/theorems/apart.rs has both. Background children go by tags.
 *
 * References: Ghodsi, Zaharia, Shenker, Stoica, "Choosy: max-min fair sharing for datacenter jobs
 * with constraints", EuroSys'13 (constrained max-min fairness, and that to serve who has least
 * gives it).
 */
#define AHEAD_STEPS 16
/* `over` is in 2^10 tag units: at the least weight it goes round in half a year on a whole CPU. */
#define AHEAD_SHIFT 10

/* Whether the child's place among those ahead is known. */
RS_INLINE int rs_is_ahead(struct rs_clock RS_ARENA *c, struct rs_tag RS_ARENA *g)
{
	return g->until - c->v - 1 < 1ULL << 62;
}

/*
 * A step on unit t->ending, of a child of p, moved its tag so far beyond where it is held. `step`:
 * what a step of it moves its tag by, at most 2^60.
 */
RS_FN_VOID(rs_ahead_more, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_tag RS_ARENA *g, u64 beyond, u64 step), (t, p, g, beyond, step))
{
	u32 unit = t->ending & (RS_UNITS_MAX - 1), at = p->depth & (RS_LEVELS - 1);
	u32 known = t->unit[unit].level[at].node == p->index + 1;
	u64 level = known ? t->unit[unit].level[at].over : p->clock.over;
	u64 least = level - ((step * (t->units + 1)) >> AHEAD_SHIFT);

	if (!rs_is_ahead(&p->clock, g)) {
		g->over = level;
		g->over_part = 0;
	} else if (known && rs_before(g->over, least)) {
		g->over = least;
	}
	if (!known || rs_before(level, g->over))
		level = g->over;
	t->unit[unit].level[at].node = p->index + 1;
	t->unit[unit].level[at].over = level;
	p->clock.over = level;
	beyond += g->over_part;
	g->over += beyond >> AHEAD_SHIFT;
	g->over_part = beyond & ((1 << AHEAD_SHIFT) - 1);
	g->until = p->clock.v + AHEAD_STEPS * (step < 1ULL << 57 ? step : 1ULL << 57);
}

/* Which of those that a unit may serve goes first, when it may not serve the first of all. */
struct rs_far {
	u64 key, seq, over;
	u32 rank; /* 0: not ahead; 1: ahead; 2: background; 3: nobody */
};

/* Whether a child that waits goes before the best one so far, and is so now. */
RS_INLINE int rs_ahead_before(struct rs_clock RS_ARENA *c, struct rs_tag RS_ARENA *g, u64 key,
			      u64 seq, struct rs_far *best)
{
	u32 rank = seq & RS_SEQ_BACKGROUND ? 2 : rs_is_ahead(c, g);

	if (rank > best->rank)
		return 0;
	if (rank == best->rank) {
		if (rank == 1 && g->over != best->over) {
			if (!rs_before(g->over, best->over))
				return 0;
		} else if (!rs_entry_before(key, seq, best->key, best->seq)) {
			return 0;
		}
	}
	best->key = key;
	best->seq = seq;
	best->over = g->over;
	best->rank = rank;
	return 1;
}
