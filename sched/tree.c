/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The events of a tree: wake, pick, settle, remove. They know paths, heaps, counts and caps; what an
 * algorithm decides is asked of the policies and classes by number.
 *
 * State of a child c in its parent p, kept true by rs_refresh_one():
 *   ready     c has an item that waits, and no cap holds c back     <=> c is in p's ready heap
 *   runnable  ready, or a step is in service below c                => counted in p->nrun (unless background)
 *   all       ready, and any unit may serve something below c       <=> counted in p->nall
 *   mask      superset of the units that may serve what else waits below c
 */

RS_INLINE void policy_sync(struct rs_node RS_ARENA *p)
{
#define RS_CALL(name) name##_sync(p)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_more(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) name##_more(t, p, c)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_wake(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) name##_wake(p, c)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_idle(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) name##_idle(p, c)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE u64 policy_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 key = 0;
#define RS_CALL(name) key = name##_key(t, c)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return key;
}

RS_INLINE void policy_dispatch(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) name##_dispatch(t, p, c)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			     struct rs_node RS_ARENA *c, u64 work, u32 forced)
{
#define RS_CALL(name) name##_charge(t, p, c, work, forced)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_reweight(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u32 w)
{
#define RS_CALL(name) name##_reweight(p, c, w)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE struct rs_node RS_ARENA *policy_pick(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
					       u32 unit)
{
	struct rs_node RS_ARENA *c = 0;
#define RS_CALL(name) c = name##_pick(t, p, unit)
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return c;
}

RS_INLINE u64 class_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q,
			    struct rs_item RS_ARENA *it, u32 why)
{
	u64 key = 0;
#define RS_CALL(name) key = name##_enqueue(t, q, it, why)
	switch (q->alg) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return key;
}

/* Whether the queue's heap is ordered by the items' tags; otherwise by their stamps alone. */
RS_INLINE int class_keyed(struct rs_node RS_ARENA *q)
{
	int yes = 0;
#define RS_CALL(name) yes = name##_keyed
	switch (q->alg) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return yes;
}

/* Whether `it`, just queued, should displace `cur`, in service for `ran` so far in the same queue. */
RS_INLINE int rs_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	struct rs_node RS_ARENA *q = it->queue;
	int yes = 0;

	if (!cur || it->state != RS_QUEUED || cur->queue != q)
		return 0;
#define RS_CALL(name) yes = name##_preempts(it, cur, ran)
	switch (q->alg) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return yes;
}

RS_INLINE u64 rs_seq_for(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	return (++t->stamp) | (c->weight ? 0 : RS_SEQ_BACKGROUND);
}

/* Bring what p records of its child n up to date. Answers whether p's own state may have changed. */
RS_FN int rs_refresh_one(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	struct rs_node RS_ARENA *p = n->parent;
	u32 ready, run, all, changed = 0;

	if (!p)
		return 0;
	ready = n->ready.n && !n->throttled;
	run = ready || n->nsvc;
	all = ready && n->nall;
	if (run && !n->runnable) {
		policy_wake(p, n);
		n->runnable = 1;
		if (n->weight)
			p->nrun++;
	}
	if (ready && !n->link.pos) {
		rs_heap_push(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
		changed = 1;
	} else if (!ready && n->link.pos) {
		rs_heap_erase(t, &p->ready, &n->link);
		changed = 1;
	}
	if (ready && t->units > 1 && policy_key(t, p, n) != p->ready.e[n->link.pos - 1].key) {
		rs_heap_rekey(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
		changed = 1;
	}
	if (all != n->all) {
		n->all = all;
		p->nall += all ? 1 : -1;
		changed = 1;
	}
	if (!run && n->runnable) {
		n->runnable = 0;
		if (n->weight)
			p->nrun--;
		policy_idle(p, n);
		changed = 1;
	}
	if (ready && !all) {
		RS_LOOP(i, RS_UNIT_WORDS) {
			u64 old = p->mask[i], m = old | n->mask[i];
			if (m != old) {
				p->mask[i] = m;
				changed = 1;
			}
		}
	}
	return changed;
}

/* After something changed at n: up to the first ancestor for which nothing does. */
RS_FN void rs_refresh(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	u32 done = 0;

	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!n->parent || !rs_refresh_one(t, n)) {
			done = 1;
			break;
		}
		n = n->parent;
	}
	if (!done)
		rs_poison(t, RS_POISON_PATH);
}

/* --- caps: token buckets in arrears ------------------------------------------------------------- */

#define RS_CAP_SPAN 1000000000000000ULL /* no refill and no wait is longer than 11 days: products fit 64 bits */
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

	/* debt is at most 2^50, and a second's worth of ppm at least one: wait only overflows when clamped. */
	if (c->ppm && debt / c->ppm < RS_CAP_SPAN / 1000000)
		wait = rs_muldiv(debt + 1, 1000000, c->ppm) + 1;
	return c->at + wait;
}

RS_INLINE struct rs_node RS_ARENA *rs_of_tlink(struct rs_link RS_ARENA *l)
{
	return (struct rs_node RS_ARENA *)((char RS_ARENA *)l - __builtin_offsetof(struct rs_node, tlink));
}

RS_FN void rs_throttle(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 now)
{
	n->throttled = 1;
	n->throttled_at = now;
	rs_heap_push(t, &t->throttle, rs_cap_due(&n->cap), ++t->stamp, &n->tlink);
}

RS_FN void rs_unthrottle(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 now)
{
	rs_heap_erase(t, &t->throttle, &n->tlink);
	n->throttled = 0;
	if (rs_before(n->throttled_at, now)) /* clocks of several units differ by a little */
		n->throttled_ns += now - n->throttled_at;
	rs_refresh(t, n);
}

/* Let go whatever is due. */
RS_FN void rs_unthrottle_due(struct rs_tree RS_ARENA *t, u64 now)
{
	RS_LOOP(i, RS_NODES_MAX) {
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

/* --- items in and out of their queue ------------------------------------------------------------ */

/* The queue's heap and the list by age. The caller refreshes. */
RS_FN void rs_item_in(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 why, u64 now)
{
	struct rs_node RS_ARENA *q = it->queue;
	u64 key;

	/* Virtual time of a queue without a step in service: the smallest tag that waits. */
	if (why != RS_WHY_AGAIN && !q->nsvc && q->ready.n && class_keyed(q))
		rs_clock_advance(&q->clock, q->ready.e[0].key);
	key = class_enqueue(t, q, it, why);
	it->state = RS_QUEUED;
	it->queued_at = now;
	rs_heap_push(t, &q->ready, key, it->seq, &it->link);
	if (it->all) {
		q->nall++;
	} else {
		RS_LOOP(i, RS_UNIT_WORDS)
			q->mask[i] |= it->mask[i];
	}
	it->newer = 0;
	it->older = t->newest;
	if (t->newest)
		t->newest->newer = it;
	else
		t->oldest = it;
	t->newest = it;
}

RS_FN void rs_item_out(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	struct rs_node RS_ARENA *q = it->queue;

	rs_heap_erase(t, &q->ready, &it->link);
	if (it->all)
		q->nall--;
	if (it->older)
		it->older->newer = it->newer;
	else
		t->oldest = it->newer;
	if (it->newer)
		it->newer->older = it->older;
	else
		t->newest = it->older;
	it->older = 0;
	it->newer = 0;
	it->state = RS_IDLE;
}

/* The item wants service no longer: its tag becomes a finish tag. It is neither queued nor in service. */
RS_INLINE void rs_item_idle(struct rs_item RS_ARENA *it)
{
	struct rs_node RS_ARENA *q = it->queue;

	rs_tag_idle(&q->clock, &it->tag);
	q->nrun--;
	if (!q->nrun)
		rs_clock_idle(&q->clock);
}

/* --- events --------------------------------------------------------------------------------------- */

/* An idle item wants service. */
RS_FN void rs_wake(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 now)
{
	if (it->state != RS_IDLE) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	if (t->units > 1) {
		struct rs_node RS_ARENA *n = it->queue;

		RS_LOOP(d, RS_DEPTH_MAX) {
			struct rs_node RS_ARENA *p = n->parent;

			if (!p)
				break;
			policy_more(t, p, n);
			if (n->link.pos && policy_key(t, p, n) != p->ready.e[n->link.pos - 1].key)
				rs_heap_rekey(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
			n = p;
		}
	}
	it->queue->nrun++;
	rs_item_in(t, it, RS_WHY_WAKE, now);
	rs_refresh(t, it->queue);
}

/* An item that waits wants service no longer. Nothing is charged. */
RS_FN void rs_remove(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	if (it->state != RS_QUEUED) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	rs_item_out(t, it);
	rs_item_idle(it);
	rs_refresh(t, it->queue);
}

/*
 * A queued item goes into service on `unit`: the slice is reserved on the path. Used by rs_pick, and by the
 * caller for an item that was put on a unit without being asked for.
 */
RS_FN void rs_begin(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 unit)
{
	struct rs_node RS_ARENA *n = it->queue;
	u32 done = 0;

	if (it->state != RS_QUEUED || unit >= RS_UNITS_MAX) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	/* The smallest tag that waits, which is this item's unless it was chosen for another reason. */
	rs_clock_advance(&n->clock, ((struct rs_item RS_ARENA *)n->ready.e[0].obj)->tag.base);
	rs_item_out(t, it);
	it->state = RS_SERVICE;
	it->unit = unit;
	it->slice = t->quantum;
	t->unit[unit & (RS_UNITS_MAX - 1)].item = it;
	RS_LOOP(d, RS_DEPTH_MAX) {
		struct rs_node RS_ARENA *p = n->parent;

		n->nsvc++;
		if (!p) {
			n->res += it->slice;
			done = 1;
			break;
		}
		rs_refresh_one(t, n);
		policy_dispatch(t, p, n);
		n->res += it->slice;
		if (n->link.pos)
			rs_heap_rekey(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
		n = p;
	}
	if (!done)
		rs_poison(t, RS_POISON_PATH);
}

#define RS_FEW 64 /* more waiting children than that are not looked through one by one */

/* The exact mask of a queue in which no item may use every unit. */
RS_FN void rs_mask_items(struct rs_node RS_ARENA *q)
{
	RS_LOOP(k, RS_UNIT_WORDS) {
		u64 mask = 0;

		RS_LOOP(i, RS_FEW) {
			if (i >= q->ready.n)
				break;
			mask |= ((struct rs_item RS_ARENA *)q->ready.e[i].obj)->mask[k];
		}
		q->mask[k] = mask;
	}
}

/* Whether something waits below p that could be served, but nothing that `unit` may. */
RS_FN u32 rs_forced(struct rs_node RS_ARENA *p, u32 unit)
{
	u32 n = p->ready.n;

	if (!n || p->nall || n > RS_FEW)
		return 0;
	RS_LOOP(i, RS_FEW) {
		if (i >= n)
			break;
		if (rs_unit_in(((struct rs_node RS_ARENA *)p->ready.e[i].obj)->mask, unit))
			return 0;
	}
	p->mask[(unit / 64) & (RS_UNIT_WORDS - 1)] &= ~(1ULL << (unit & 63));
	return 1;
}

/*
 * The step of an item in service ended after `work`. The whole path is charged, then the item is queued again
 * (`more`) or becomes idle (QLX: update, then sleep).
 */
RS_FN void rs_settle(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 work, u32 more, u64 now)
{
	struct rs_node RS_ARENA *q = it->queue, *n = q;
	u32 done = 0, forced = 0, unit = it->unit;

	if (it->state != RS_SERVICE) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	it->service += work;
	if (t->unit[it->unit & (RS_UNITS_MAX - 1)].item == it)
		t->unit[it->unit & (RS_UNITS_MAX - 1)].item = 0;
	it->state = RS_IDLE;
	rs_tag_charge(&q->clock, &it->tag, work, it->weight);
	if (t->units > 1 && !q->nall && q->ready.n <= RS_FEW)
		rs_mask_items(q);
	if (t->units > 1 && class_keyed(q))
		rs_tag_hold(t, &q->clock, &it->tag, work, it->weight, 0);
	RS_LOOP(d, RS_DEPTH_MAX) {
		struct rs_node RS_ARENA *p = n->parent;

		n->nsvc--;
		n->res -= it->slice;
		n->service += work;
		n->served++;
		if (n->cap.ppm) {
			rs_cap_refill(&n->cap, now);
			n->cap.tok -= work < RS_WORK_MAX ? work : RS_WORK_MAX;
			if (n->cap.tok < RS_CAP_DEBT)
				n->cap.tok = RS_CAP_DEBT;
			if (n->cap.tok <= 0 && !n->throttled)
				rs_throttle(t, n, now);
		}
		if (!p) {
			done = 1;
			break;
		}
		if (t->units > 1)
			forced = rs_forced(p, unit);
		policy_charge(t, p, n, work, forced);
		if (n->link.pos)
			rs_heap_rekey(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
		n = p;
	}
	if (!done)
		rs_poison(t, RS_POISON_PATH);
	if (more)
		rs_item_in(t, it, RS_WHY_AGAIN, now);
	else
		rs_item_idle(it);
	n = q;
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!n->parent)
			break;
		rs_refresh_one(t, n);
		n = n->parent;
	}
}

/* The item of a queue that `unit` should serve; 0: none that it may. */
RS_FN_PTR struct rs_item RS_ARENA *rs_queue_first(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u32 unit)
{
	struct rs_entry RS_ARENA *e = q->ready.e;
	struct rs_item RS_ARENA *it, *best = 0;
	u64 key = 0, seq = 0;
	u32 n = q->ready.n, seen = rs_zero;

	if (!n)
		return 0;
	it = (struct rs_item RS_ARENA *)e[0].obj;
	if (it->all || rs_unit_in(it->mask, unit))
		return it;
	RS_LOOP(i, n) {
		it = (struct rs_item RS_ARENA *)e[i].obj;
		if ((it->all || rs_unit_in(it->mask, unit)) &&
		    (!best || rs_entry_before(e[i].key, e[i].seq, key, seq))) {
			best = it;
			key = e[i].key;
			seq = e[i].seq;
		}
		seen++;
	}
	if (seen != n)
		rs_poison(t, RS_POISON_SCAN);
	return best;
}

/*
 * Whoever waited longer than starve_ns is served whatever the tags, weights and caps say (and charged for it),
 * because a kernel takes the whole scheduler away from one that forgets a thread. Rationed by starve_gap_ns,
 * except to those that waited twice as long.
 */
RS_FN_PTR struct rs_item RS_ARENA *rs_starving(struct rs_tree RS_ARENA *t, u32 unit, u64 now)
{
	struct rs_item RS_ARENA *it = t->oldest;

	if (!t->starve_ns || !it)
		return 0;
	RS_LOOP(i, 8) {
		u64 waited;

		/* Signed: clocks of several units differ by a little. */
		if (!it || rs_before(now, it->queued_at + t->starve_ns))
			return 0;
		waited = now - it->queued_at;
		if (waited < 2 * t->starve_ns && now - t->starved_at < t->starve_gap_ns)
			return 0;
		if (it->all || rs_unit_in(it->mask, unit)) {
			t->starved_at = now;
			t->starved++;
			return it;
		}
		it = it->newer;
	}
	return 0;
}

/*
 * A unit is free: what should it serve? The item is in service when this returns. 0: nothing that this unit
 * may serve, and t->next_ns is the time at which a cap lets something go (0: none does).
 */
RS_FN_PTR struct rs_item RS_ARENA *rs_pick(struct rs_tree RS_ARENA *t, u32 unit, u64 now)
{
	struct rs_item RS_ARENA *it;
	struct rs_node RS_ARENA *root = t->nodes;
	u32 stop = 0;

	t->next_ns = 0;
	if (t->throttle.n)
		rs_unthrottle_due(t, now);
	it = rs_starving(t, unit, now);
	if (it) {
		rs_begin(t, it, unit);
		return it;
	}
	RS_LOOP(tries, RS_NODES_MAX) {
		struct rs_node RS_ARENA *n = root;

		if (!root->ready.n || !(root->nall || rs_unit_in(root->mask, unit))) {
			stop = 1;
			break;
		}
		RS_LOOP(d, RS_DEPTH_MAX) {
			struct rs_node RS_ARENA *c;

			if (n->kind != RS_SCHED)
				break;
			c = policy_pick(t, n, unit);
			if (!c)
				break;
			n = c;
		}
		if (n->kind == RS_QUEUE) {
			it = rs_queue_first(t, n, unit);
			if (it) {
				rs_begin(t, it, unit);
				return it;
			}
		}
		/* n's mask promised more than there is: it was a superset. Now it is exact for this unit. */
		if (n->nall) {
			rs_poison(t, RS_POISON_STATE);
			return 0;
		}
		n->mask[(unit / 64) & (RS_UNIT_WORDS - 1)] &= ~(1ULL << (unit & 63));
	}
	if (!stop)
		rs_poison(t, RS_POISON_SCAN);
	if (t->throttle.n)
		t->next_ns = t->throttle.e[0].key;
	return 0;
}
