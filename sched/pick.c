/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who is served next: a unit is free, and asks. From the root down each policy says which child,
 * and the class which item (policy.h). Here is what may come before that: who has waited too long,
 * and who was last served on this unit; and what comes where the first one may not be served on it
 * (far.c).
 */

/*
 * Levels at the top of a queue's heap that are looked at: among 31 items there is nearly always one
 * of this unit. One level after the other, as far as it takes: who is found on the third is the
 * usual case, and what was last written elsewhere is read for no more.
 */
#define RS_NEAR_LEVELS 5

/*
 * Locality. `first` was last served on another unit, whose caches have its data. One of the next
 * few that was last served here goes before it, if its tag is less than a step behind: but t->near
 * times in a row at most for each unit that there is. So who is first waits for no more than
 * t->near choices of each unit, and nobody gets more than a step, by its tag, before its turn
 * (docs/notes/sched.md, "Locality"). Nothing is decided between queues.
 */
RS_FN_PTR(struct rs_item RS_ARENA, rs_queue_near,
	  (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *first, u32 unit), (t, q, first, unit))
{
	struct rs_entry RS_ARENA *e = q->ready.e;
	struct rs_item RS_ARENA *it, *best = 0;
	u32 n = q->ready.n, w = first->weight, level = 1;
	u64 most, seq = 0;

	if (!class_keyed(q) || q->passed >= t->near * t->units)
		return (u64)first;
	most = e[0].key + rs_vwork(q->quantum, w ? w : RS_WEIGHT_ONE);
	RS_LOOP(i, (1 << RS_NEAR_LEVELS) - 1) {
		if (i >= n)
			break;
		if (i == level) {
			if (best)
				break;
			level += level + 1;
		}
		if (!rs_entry_before(e[i].key, e[i].seq, most, seq))
			continue;
		it = (struct rs_item RS_ARENA *)e[i].obj;
		if (it->unit == unit && (it->all || rs_unit_in(it->mask, unit))) {
			best = it;
			most = e[i].key;
			seq = e[i].seq;
		}
	}
	if (!best)
		return (u64)first;
	q->passed++;
	return (u64)best;
}

/* The item of a queue that `unit` should serve; 0: none that it may, or not found yet (far.c). */
RS_INLINE struct rs_item RS_ARENA *rs_queue_first(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u32 unit)
{
	struct rs_item RS_ARENA *it, *near;

	if (!q->ready.n)
		return 0;
	it = (struct rs_item RS_ARENA *)q->ready.e[0].obj;
	if (RS_SEVERAL(t) && t->near && it->unit != unit && q->ready.n > 1) {
		near = rs_queue_near(t, q, it, unit);
		if (near != it)
			return near;
	}
	q->passed = 0;
	if (!RS_EVER_SEVERAL || rs_item_allows(it, unit))
		return it;
	return (struct rs_item RS_ARENA *)rs_far_first(t, q, unit);
}

#define RS_OLDEST 8 /* items that rs_oldest looks at for each unit that there is */
#define RS_OLDEST_USERS 64 /* and at most, where users make what it looks at */

/*
 * Of the oldest few that wait in a list since `limit` or before, the first in `q` (0: any queue)
 * that `unit` may serve; 0: none. Those that other units alone may serve stand before it, a few for
 * each: a kernel's own threads (list 1) are bound to CPUs. So the few grow with the units. Users can
 * bind as many threads as they like to a unit that has no time for them: of list 0 that is looked at
 * by each pick, and has a bound of its own.
 */
RS_FN_PTR(struct rs_item RS_ARENA, rs_oldest,
	  (struct rs_tree RS_ARENA *t, u32 kind, struct rs_node RS_ARENA *q, u32 unit, u64 limit), (t, kind, q, unit, limit))
{
	struct rs_item RS_ARENA *it = t->age[kind & 1].oldest;
	u32 few = RS_OLDEST * t->units;

	if (!(kind & 1) && few > RS_OLDEST_USERS)
		few = RS_OLDEST_USERS;
	RS_LOOP(i, RS_OLDEST * RS_UNITS_MAX) {
		if (i >= few)
			return 0;
		if (!it || rs_before(limit, it->queued_at))
			return 0;
		if ((!q || it->queue == q) && (it->all || rs_unit_in(it->mask, unit)))
			return (u64)it;
		it = it->newer;
	}
	return 0;
}

/*
 * Whoever waited longer than starve_ns is served whatever the tags, weights and caps say (and
 * charged for it), because a kernel takes the whole scheduler away from one that forgets a thread.
 * Rationed by starve_gap_ns, except to those that waited twice as long.
 */
RS_FN_PTR(struct rs_item RS_ARENA, rs_starving, (struct rs_tree RS_ARENA *t, u32 unit, u64 now), (t, unit, now))
{
	struct rs_item RS_ARENA *it, *apart;
	u64 limit = now - t->starve_ns;

	if (!t->starve_ns)
		return 0;
	if (now - t->starved_at < t->starve_gap_ns)
		limit -= t->starve_ns;
	it = rs_oldest(t, 0, 0, unit, limit);
	apart = rs_oldest(t, 1, 0, unit, limit);
	if (!it || (apart && rs_before(apart->queued_at, it->queued_at)))
		it = apart;
	if (it) {
		t->starved_at = now;
		t->starved++;
	}
	return (u64)it;
}

/* Mostly the answer is no, without a call. */
RS_INLINE u32 rs_somebody_starves(struct rs_tree RS_ARENA *t, u64 now)
{
	struct rs_item RS_ARENA *it = t->age[0].oldest, *apart = t->age[1].oldest;
	u64 limit = now - t->starve_ns;

	return t->starve_ns && ((it && !rs_before(limit, it->queued_at)) || (apart && !rs_before(limit, apart->queued_at)));
}

/* The unit's search ends where it is: the node promises again what it did. */
RS_FN_VOID(rs_far_end, (struct rs_tree RS_ARENA *t, u32 unit), (t, unit))
{
	struct rs_unit RS_ARENA *u = &t->unit[unit & (RS_UNITS_MAX - 1)];
	struct rs_node RS_ARENA *n = &t->nodes[(u->among - 1) & (RS_NODES_MAX - 1)];

	u->among = 0;
	t->searches--;
	if (n->kind == RS_FREE)
		return;
	rs_unit_add(n->mask, unit);
	rs_refresh(t, n);
}

/*
 * Where the unit's search goes on; 0: nowhere, for what it is among is held back, or has gone. (A
 * scheduler that has gone had no child left, so the search is at the end of its list, whatever has
 * its slot now.)
 */
RS_FN_PTR(struct rs_node RS_ARENA, rs_far_goes_on, (struct rs_tree RS_ARENA *t, u32 unit),
	  (t, unit))
{
	u32 among = t->unit[unit & (RS_UNITS_MAX - 1)].among;
	struct rs_node RS_ARENA *n = &t->nodes[(among - 1) & (RS_NODES_MAX - 1)], *top = n;

	RS_LOOP(d, RS_DEPTH_MAX) {
		if (top->kind == RS_FREE || top->throttled || !top->ready.n)
			break;
		if (!top->parent)
			return (u64)n;
		if (!top->link.pos)
			break;
		top = top->parent;
	}
	rs_far_end(t, unit);
	return 0;
}

/*
 * A unit is free: what should it serve? The item is in service when this returns. 0: nothing that
 * this unit may serve, and t->next_ns is the time at which a cap lets something go (0: none does),
 * or now: it is to ask again at once.
 */
RS_FN_PTR(struct rs_item RS_ARENA, rs_pick_ready, (struct rs_tree RS_ARENA *t, u32 unit, u64 now), (t, unit, now))
{
	struct rs_item RS_ARENA *it = 0;
	struct rs_node RS_ARENA *root = t->nodes, *n = 0, *vain = 0;
	u32 stop = 0;

	RS_NEEDS(now);
	t->next_ns = 0;
	if (RS_AGES && rs_somebody_starves(t, now) && !t->changes) {
		it = rs_starving(t, unit, now);
		if (it) {
			rs_begin(t, it, unit);
			return (u64)it;
		}
	}
	t->looked = 0;
	t->passed = 0;
	t->far = RS_FAR_NOBODY;
	if (RS_EVER_SEVERAL && t->unit[unit & (RS_UNITS_MAX - 1)].among)
		n = rs_far_goes_on(t, unit);
	RS_LOOP(tries, RS_TRIES_MAX) {
		if (!n) {
			n = root;
			if (!root->ready.n || !(root->nall || rs_unit_in(root->mask, unit)) || (RS_BETWEEN && root->throttled)) {
				stop = 1;
				break;
			}
		}
		if (t->looked >= RS_LOOKED_MAX)
			break;
		RS_LOOP(d, RS_DEPTH_MAX) {
			struct rs_node RS_ARENA *c;

			if (n->kind != RS_SCHED)
				break;
			c = policy_pick(t, n, unit);
			if (!c)
				break;
			/* It was first where a search went on. */
			if (RS_EVER_SEVERAL && t->unit[unit & (RS_UNITS_MAX - 1)].among)
				rs_far_end(t, unit);
			n = c;
		}
		if (n->kind == RS_QUEUE)
			it = rs_queue_first(t, n, unit);
		if (RS_EVER_SEVERAL && t->far == RS_FAR_GOES_ON)
			break;
		if (RS_EVER_SEVERAL && t->unit[unit & (RS_UNITS_MAX - 1)].among)
			rs_far_end(t, unit);
		if (it) {
			rs_begin(t, it, unit);
			break;
		}
		if (RS_EVER_SEVERAL && t->far == RS_FAR_IN_VAIN) {
			if (vain || n->nall)
				break;
			t->far = RS_FAR_NOBODY;
			vain = n;
		}
		/*
		 * n's mask promised more than there is: it was a superset. Now it is exact for this
		 * unit.
		 */
		if (n->nall) {
			rs_poison(t, RS_POISON_STATE);
			return 0;
		}
		rs_unit_take(n->mask, unit);
		/* To choose may have moved virtual time on the way, and places above with it. */
		if (RS_EVER_SEVERAL)
			rs_refresh_path(t, n);
		n = 0;
	}
	if (RS_EVER_SEVERAL && vain) {
		rs_unit_add(vain->mask, unit);
		rs_refresh(t, vain);
		stop = 0;
	}
	if (it)
		return (u64)it;
	if (!stop)
		t->next_ns = now; /* a section is not longer than that; each try leaves one less */
	else if (t->throttle.n)
		t->next_ns = t->throttle.e[0].key;
	return 0;
}

RS_INLINE struct rs_item RS_ARENA *rs_pick(struct rs_tree RS_ARENA *t, u32 unit, u64 now)
{
	if (t->throttle.n)
		rs_unthrottle_due(t, now);
	if (t->refill.n)
		rs_refill_due(t, now);
	return rs_pick_ready(t, unit, now);
}

/*
 * An item that was taken out of its list by age, and has just been put at its end, has its place
 * again: it waits since `since`, which was behind t->unit[].behind, if that one still waits. (The
 * list goes from old to young, and as many are gone through to keep it so as rs_oldest looks at.)
 */
RS_FN_VOID(rs_age_back, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 since),
	   (t, it, since))
{
	struct rs_ages RS_ARENA *age = rs_ages_of(t, it);
	struct rs_item RS_ARENA *before = t->unit[it->unit & (RS_UNITS_MAX - 1)].behind, *next;

	rs_age_out(t, it);
	if (before && (before->state != RS_QUEUED || rs_ages_of(t, before) != age ||
		       before == it || rs_before(since, before->queued_at)))
		before = 0;
	next = before ? before->newer : age->oldest;
	RS_LOOP(i, RS_OLDEST_USERS) {
		if (!next || !rs_before(next->queued_at, since)) {
			it->queued_at = since;
			it->older = before;
			it->newer = next;
			if (before)
				before->newer = it;
			else
				age->oldest = it;
			if (next)
				next->older = it;
			else
				age->newest = it;
			return;
		}
		before = next;
		next = next->newer;
	}
	rs_age_in(t, it);
}

/*
 * A pick of `q` has been undone (rs_settle, nothing done and `more`) by somebody who found that the
 * item may not be served on that unit after all: it waits as it did before, since `since` and with
 * stamp `seq`. Who is chosen in vain now and then would else never have waited for long
 * (rs_starving), while the kernel goes on counting, and in class rr would wait each time for a turn
 * of all others.
 */
RS_FN_VOID(rs_waits_on, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it,
	   struct rs_node RS_ARENA *q, u64 since, u64 seq), (t, it, q, since, seq))
{
	if (it->state != RS_QUEUED)
		return;
	if (it->queue == q && q->alg != edf_class) { /* whose stamps say in which period it is */
		it->seq = seq;
		rs_heap_rekey(t, &q->ready, class_key(it), seq, &it->link);
		if (rs_by_length(t))
			rs_refresh(t, q);
	}
	if (RS_AGES)
		rs_age_back(t, it, since);
}
