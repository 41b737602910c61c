/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Several units: who of a queue goes first on a unit that may not serve the queue's first.
 *
 * Problem. A heap says who is first of all, not who is first of those that unit 1 may serve. If
 * somebody binds thousands of threads to unit 0, and one to unit 1 that sleeps and wakes, each
 * choice for unit 1 goes through all of them: with 16 000, 655 000 instructions, interrupts being
 * off, which nobody is charged for.
 *
 * Idea. Each item in the heap knows the units that it and all below it may use together (`below`),
 * so a search turns back where nobody is. Most queues never need that: it is kept from the first
 * search among more than RS_FAR_FEW on, until few are left.
 *
 * Rules:
 *   1. From place `far` of the heap on, `below` is right; `far` = 1: at all places; 0: at none.
 *      A search makes it so from the last place on, RS_FAR_PIECE places in one section   rs_far_keep
 *   2. Whatever changes the heap, or what an item in it may use, puts it right again on the way
 *      from the lowest place that has changed to the root                                  rs_far_up
 *   3. The search goes through the heap from the root, first children first, to places below which
 *      there is somebody for this unit, and below which somebody may go before the best so far
 *   4. It ends after RS_FAR_LOOKED places. If an eighth of them has not sufficed, the others are
 *      looked at from where the last such search ended: so all have their turn     rs_far_search
 *
 * Bounds. The first candidate is found after two places for each level of the heap. Where rule 4
 * does not end it, the choice is exact (ahead.c, rule 4). Else it is the best of what was looked
 * at: that takes hundreds of items that are ahead, or that stand behind hundreds of others'. Each
 * change of the heap costs a walk to the root. crates/oracle/tests/many_far.rs has these.
 *
 * With more than 64 units, units 64 apart are one in `below`: a search may go where nobody is. It
 * ends after RS_FAR_LOOKED places; if it found nobody, all are looked at.
 */

RS_INLINE u64 rs_far_units(struct rs_item RS_ARENA *it)
{
	return it->all ? ~0ULL : it->mask[0] | it->mask[1] | it->mask[2] | it->mask[3];
}

RS_INLINE u32 rs_far_below(struct rs_item RS_ARENA *it, u32 unit)
{
	return it->below >> (unit & 63) & 1;
}

/* `below` at a place of the heap, from those at the two places under it. */
RS_INLINE void rs_far_sum(struct rs_node RS_ARENA *q, u32 pos)
{
	struct rs_entry RS_ARENA *e = q->ready.e;
	struct rs_item RS_ARENA *it = (struct rs_item RS_ARENA *)e[pos - 1].obj;
	u32 under = 2 * pos;
	u64 units = rs_far_units(it);

	if (under <= q->ready.n)
		units |= ((struct rs_item RS_ARENA *)e[under - 1].obj)->below;
	if (under + 1 <= q->ready.n)
		units |= ((struct rs_item RS_ARENA *)e[under].obj)->below;
	it->below = units;
}

/* What stands at `pos`, and nothing lower, has changed. */
RS_FN_VOID(rs_far_up, (struct rs_node RS_ARENA *q, u32 pos), (q, pos))
{
	RS_LOOP(k, RS_HEAP_LEVELS) {
		if (!pos || pos < q->far)
			break;
		rs_far_sum(q, pos);
		pos /= 2;
	}
}

/* An item is in the queue's heap, at the end of which there was room. */
RS_INLINE void rs_far_push(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u64 key,
			   struct rs_item RS_ARENA *it)
{
	rs_heap_push(t, &q->ready, key, it->seq, &it->link);
	if (RS_SEVERAL(t) && q->far)
		rs_far_up(q, q->ready.n);
}

/* `moved` stood last in the heap, and now where who stood at `pos` is no more, or higher. */
RS_FN_VOID(rs_far_gone, (struct rs_node RS_ARENA *q, u32 pos, struct rs_link RS_ARENA *moved),
	   (q, pos, moved))
{
	u32 n = q->ready.n;

	if (n <= RS_FAR_FEW / 2) {
		q->far = 0;
		return;
	}
	if (moved->pos)
		rs_far_up(q, moved->pos > pos ? moved->pos : pos);
	rs_far_up(q, (n + 1) / 2);
}

RS_INLINE void rs_far_erase(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q,
			    struct rs_item RS_ARENA *it)
{
	struct rs_link RS_ARENA *last = 0;
	u32 pos = it->link.pos;

	if (RS_SEVERAL(t) && q->far)
		last = q->ready.e[q->ready.n - 1].obj;
	rs_heap_erase(t, &q->ready, &it->link);
	if (last)
		rs_far_gone(q, pos, last);
}

RS_INLINE void rs_far_rekey(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u64 key,
			    struct rs_item RS_ARENA *it)
{
	u32 pos = it->link.pos;

	rs_heap_rekey(t, &q->ready, key, it->seq, &it->link);
	if (RS_SEVERAL(t) && q->far)
		rs_far_up(q, it->link.pos > pos ? it->link.pos : pos);
}

/* Answers whether `below` is right everywhere. */
RS_FN u32 rs_far_keep(struct rs_node RS_ARENA *q)
{
	u32 n = q->ready.n;

	if (!q->far || q->far > n + 1)
		q->far = n + 1;
	RS_LOOP(i, RS_FAR_PIECE) {
		if (q->far == 1)
			break;
		q->far--;
		rs_far_sum(q, q->far);
	}
	return q->far == 1;
}

/* All are looked at. */
RS_FN_PTR(struct rs_item RS_ARENA, rs_far_all,
	  (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u32 unit), (t, q, unit))
{
	struct rs_entry RS_ARENA *e = q->ready.e;
	struct rs_item RS_ARENA *it, *best = 0;
	struct rs_far far = { .rank = 3 };
	u32 n = q->ready.n, seen = rs_zero;

	RS_LOOP(i, n) {
		it = (struct rs_item RS_ARENA *)e[i].obj;
		if ((it->all || rs_unit_in(it->mask, unit)) &&
		    rs_ahead_before(&q->clock, &it->tag, e[i].key, e[i].seq, &far))
			best = it;
		seen++;
	}
	t->looked += n;
	if (seen != n)
		rs_poison(t, RS_POISON_SCAN);
	return (u64)best;
}

/* `below` is right everywhere. */
RS_FN_PTR(struct rs_item RS_ARENA, rs_far_search,
	  (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u32 unit), (t, q, unit))
{
	struct rs_item RS_ARENA *it, *best = 0;
	struct rs_far far = { .rank = 3 };
	u32 n = q->ready.n, pos = rs_zero + 1, looked = rs_zero, first = rs_zero + RS_FAR_LOOKED / 8;

	RS_LOOP(i, RS_FAR_LOOKED) {
		looked++;
		if (i == first && q->far_at > 1 && q->far_at <= n)
			pos = q->far_at;
		if (pos <= n) {
			struct rs_entry RS_ARENA *e = &q->ready.e[pos - 1];

			it = (struct rs_item RS_ARENA *)e->obj;
			if (rs_far_below(it, unit)) {
				if ((it->all || rs_unit_in(it->mask, unit)) &&
				    rs_ahead_before(&q->clock, &it->tag, e->key, e->seq, &far))
					best = it;
				/* Those ahead are not in the heap's order among themselves. */
				if ((far.rank & 1) || rs_entry_before(e->key, e->seq, far.key, far.seq)) {
					pos *= 2;
					continue;
				}
			}
		}
		/* The next place that is not below this one. */
		pos++;
		pos /= pos & -pos;
		if (pos == 1)
			break;
	}
	q->far_at = pos;
	t->looked += looked;
	return (u64)best;
}

/* 0: nobody; or, where q->far is more than 1, not known yet: the unit is to ask again. */
RS_FN_PTR(struct rs_item RS_ARENA, rs_queue_first_far,
	  (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u32 unit), (t, q, unit))
{
	struct rs_item RS_ARENA *it;

	if (RS_SEVERAL(t) && q->ready.n > RS_FAR_FEW) {
		if (!rs_far_keep(q))
			return 0;
		it = rs_far_search(t, q, unit);
		if (it || t->units <= 64 || !rs_far_below((struct rs_item RS_ARENA *)q->ready.e[0].obj, unit))
			return (u64)it;
	}
	return (u64)rs_far_all(t, q, unit);
}
