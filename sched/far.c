/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who is first for a unit, where the first of all may not run there.
 *
 * Problem. A heap has an order among all that wait in a node, and none among those that one unit
 * may serve. So these are looked for one by one, and there may be as many as there are threads, or
 * nodes: 16 384 threads of a queue that may run on another CPU only took 655 000 instructions with
 * interrupts off, and one such queue after the other as many again.
 *
 * Idea. A pick looks at RS_LOOKED_MAX entries, at all levels and in all tries together. What is
 * left to look at is the unit's next picks' work: a search is kept in the unit, and they go on with
 * it.
 *
 * Rules, in the order in which they are met:
 *   1. No more wait in the node than the pick may still look at: all of them are looked at, in the
 *      heap. (RS_LOOKED_LEAST always may be, so that who goes before takes nobody's turn for ever.)
 *   2. Else a search begins. A heap's order changes whenever somebody is served, so it goes by one
 *      that does not, as long as somebody waits: of items by age, through the two lists of all that
 *      wait; of children by the list of their parent. Who waits all along is passed once
 *      (rs_far_passed keeps the place where one goes away). And the unit's bit in the node's mask
 *      is taken away: whoever comes, or may use the unit from now on, sets it, as always.
 *   3. The best so far is kept. Where the pick may look at no more it answers nothing, "ask again"
 *      (next_ns is now), and the unit's next pick begins here and not at the root: what was chosen
 *      above stands. Where a cap or a change of policy holds the node back meanwhile the search
 *      ends (rs_far_goes_on), and that pick begins at the root.
 *   4. At the end of the lists the best one is served, and the bit is set again. It is the first of
 *      all that waited when the search began, unless it went away meanwhile, which the search
 *      notices: then the best of those that were looked at since. There may be none of these; then
 *      all is looked at once more, and the best of the first piece that has any is served.
 *   5. There is none: that is exact, but for who has set the bit meanwhile. If somebody has, the
 *      search was in vain: the same pick passes over this node, looks for others, and sets the bit
 *      again when it ends (rs_pick_ready).
 *
 * So a pick looks at RS_LOOKED_MAX entries, and RS_LOOKED_LEAST more at each level of its last try.
 * A search takes one section for each RS_LOOKED_MAX of all that wait (of all children), 17 for
 * RS_ITEMS_MAX, and twice that by rule 4; the unit begins each when the one before has ended.
 *
 * Nobody starves of it: who is chosen is whom a search in one go would have chosen when it began,
 * so the order of tags is kept, and the shares with it. The unit serves nobody meanwhile, no more
 * than it would if all were looked at at once. And by rules 3 to 5 no search is followed by another
 * one in vain: whatever those that are passed do to their affinity, somebody of this node or of
 * another is served in between.
 *
 * Example (crates/oracle/tests/far.rs): 16 384 items wait, of which three are for unit 0. It picks
 * nine times. Eight times it is to ask again; then it has the first of the three by its tag.
 *
 * Limits. Who wakes after the search has begun may be before the one that is chosen, by his tag or
 * his policy's rule: a choice is as old as its first section. (So is any other, by less.)
 */

RS_INLINE int rs_unit_in(u64 RS_ARENA *mask, u32 unit)
{
	return mask[(unit / 64) & (RS_UNIT_WORDS - 1)] >> (unit & 63) & 1;
}

RS_INLINE void rs_unit_add(u64 RS_ARENA *mask, u32 unit)
{
	mask[(unit / 64) & (RS_UNIT_WORDS - 1)] |= 1ULL << (unit & 63);
}

RS_INLINE void rs_unit_take(u64 RS_ARENA *mask, u32 unit)
{
	mask[(unit / 64) & (RS_UNIT_WORDS - 1)] &= ~(1ULL << (unit & 63));
}

RS_INLINE int rs_node_allows(struct rs_node RS_ARENA *n, u32 unit)
{
	return n->all || rs_unit_in(n->mask, unit);
}

RS_INLINE int rs_item_allows(struct rs_item RS_ARENA *it, u32 unit)
{
	return it->all || rs_unit_in(it->mask, unit);
}

/* Of an entry of p's heap. (A link is the first of what it is of.) */
RS_INLINE int rs_far_allows(struct rs_node RS_ARENA *p, struct rs_link RS_ARENA *l, u32 unit)
{
	if (p->kind == RS_QUEUE)
		return rs_item_allows((struct rs_item RS_ARENA *)l, unit);
	return rs_node_allows((struct rs_node RS_ARENA *)l, unit);
}

/* The same of what may be in another heap, or in none. */
RS_INLINE int rs_far_fits(struct rs_node RS_ARENA *p, struct rs_link RS_ARENA *l, u32 unit)
{
	struct rs_node RS_ARENA *in;

	if (!l->pos)
		return 0;
	if (p->kind == RS_QUEUE)
		in = ((struct rs_item RS_ARENA *)l)->queue;
	else
		in = ((struct rs_node RS_ARENA *)l)->parent;
	return in == p && rs_far_allows(p, l, unit);
}

/* Who is at `l` goes away; behind it is `next`. */
RS_FN_VOID(rs_far_passed, (struct rs_tree RS_ARENA *t, struct rs_link RS_ARENA *l,
	   struct rs_link RS_ARENA *next), (t, l, next))
{
	RS_LOOP(i, RS_UNITS_HERE) {
		struct rs_unit RS_ARENA *u = &t->unit[i & (RS_UNITS_MAX - 1)];

		if (u->among && u->at == l)
			u->at = next;
	}
}

/* A child, by index plus one. */
RS_INLINE struct rs_link RS_ARENA *rs_far_kid(struct rs_tree RS_ARENA *t, u32 kid)
{
	return kid ? &t->nodes[(kid - 1) & (RS_NODES_MAX - 1)].link : 0;
}

/* From the first one on. */
RS_INLINE void rs_far_begin(struct rs_tree RS_ARENA *t, struct rs_unit RS_ARENA *u,
			    struct rs_node RS_ARENA *p, u32 unit)
{
	u->best = 0;
	u->apart = 0;
	if (p->kind == RS_QUEUE)
		u->at = (struct rs_link RS_ARENA *)t->age[0].oldest;
	else
		u->at = rs_far_kid(t, p->kids);
	rs_unit_take(p->mask, unit);
}

/* How many entries a pick may look at in one go. */
RS_INLINE u32 rs_far_room(struct rs_tree RS_ARENA *t)
{
	if (t->looked + RS_LOOKED_LEAST < RS_LOOKED_MAX)
		return RS_LOOKED_MAX - t->looked;
	return RS_LOOKED_LEAST;
}

/*
 * A piece of the search of `unit` among what waits in p, which is begun where there is none.
 * Answers whom it should serve; 0: nobody, and t->far says of what kind that is.
 */
RS_FN_PTR(struct rs_link RS_ARENA, rs_far_some,
	  (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit), (t, p, unit))
{
	struct rs_unit RS_ARENA *u = &t->unit[unit & (RS_UNITS_MAX - 1)];
	struct rs_entry RS_ARENA *x, *e = p->ready.e;
	struct rs_link RS_ARENA *at, *best;
	u32 room = rs_far_room(t), seen = rs_zero, done = 0;
	u64 key = 0, seq = 0;

	if (!u->among) {
		u->among = p->index + 1;
		t->searches++;
		u->lost = RS_FAR_FIRST;
		rs_far_begin(t, u, p, unit);
	}
	best = u->best;
	if (best && !rs_far_fits(p, best, unit)) {
		best = 0;
		if (u->lost == RS_FAR_FIRST)
			u->lost = RS_FAR_LOST;
	}
	if (best) {
		x = &e[best->pos - 1];
		key = x->key;
		seq = x->seq;
	}
	at = u->at;
	RS_LOOP(i, room) {
		seen++;
		if (!at) {
			if (p->kind != RS_QUEUE || u->apart) {
				done = 1;
				break;
			}
			u->apart = 1;
			at = (struct rs_link RS_ARENA *)t->age[1].oldest;
			continue;
		}
		if (rs_far_fits(p, at, unit)) {
			x = &e[at->pos - 1];
			if (!best || rs_entry_before(x->key, x->seq, key, seq)) {
				best = at;
				key = x->key;
				seq = x->seq;
			}
		}
		if (p->kind == RS_QUEUE)
			at = (struct rs_link RS_ARENA *)((struct rs_item RS_ARENA *)at)->newer;
		else
			at = rs_far_kid(t, ((struct rs_node RS_ARENA *)at)->next);
	}
	t->looked += seen;
	u->at = at;
	u->best = best;
	if (!done && !(best && u->lost == RS_FAR_AGAIN)) {
		t->far = RS_FAR_GOES_ON;
		return 0;
	}
	if (!best && u->lost == RS_FAR_LOST) {
		u->lost = RS_FAR_AGAIN;
		rs_far_begin(t, u, p, unit);
		t->far = RS_FAR_GOES_ON;
		return 0;
	}
	u->among = 0;
	t->searches--;
	if (best)
		rs_unit_add(p->mask, unit); /* above, rs_begin sees to it */
	else if (p->nall || rs_unit_in(p->mask, unit))
		t->far = RS_FAR_IN_VAIN;
	return (u64)best;
}

/*
 * The first of those that wait in p that `unit` may serve; 0: nobody, and t->far says of what kind
 * that is.
 */
RS_FN_PTR(struct rs_link RS_ARENA, rs_far_first,
	  (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit), (t, p, unit))
{
	struct rs_entry RS_ARENA *e = p->ready.e;
	struct rs_link RS_ARENA *best = 0;
	u64 key = 0, seq = 0;
	u32 n = p->ready.n, seen = rs_zero;

	if (RS_EVER_SEVERAL && RS_AGES && n > rs_far_room(t))
		return (u64)rs_far_some(t, p, unit);
	RS_LOOP(i, n) {
		if (rs_far_allows(p, e[i].obj, unit) &&
		    (!best || rs_entry_before(e[i].key, e[i].seq, key, seq))) {
			best = e[i].obj;
			key = e[i].key;
			seq = e[i].seq;
		}
		seen++;
	}
	t->looked += n;
	if (seen != n)
		rs_poison(t, RS_POISON_SCAN);
	return (u64)best;
}
