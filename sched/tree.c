/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The events of a tree: wake, pick, settle, remove. They know paths, heaps and counts; what an
 * algorithm decides is asked of the policies (policy.h) and classes (refresh.c).
 */

/*
 * --- items in and out of their queue ------------------------------------------------------------
 */

RS_INLINE struct rs_ages RS_ARENA *rs_ages_of(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	return &t->age[it->flags & RS_ITEM_APART ? 1 : 0];
}

/*
 * The last is the youngest. Whoever was posted read the clock without the lock, and events come in
 * the order of the lock: whose clock is behind the last one's has waited since then.
 */
RS_INLINE void rs_age_in(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	struct rs_ages RS_ARENA *age = rs_ages_of(t, it);
	struct rs_item RS_ARENA *last = age->newest;

	it->newer = 0;
	it->older = last;
	if (last) {
		last->newer = it;
		if (rs_before(it->queued_at, last->queued_at))
			it->queued_at = last->queued_at;
	} else {
		age->oldest = it;
	}
	age->newest = it;
}

RS_INLINE void rs_age_out(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	struct rs_ages RS_ARENA *age = rs_ages_of(t, it);

	if (it->older)
		it->older->newer = it->newer;
	else
		age->oldest = it->newer;
	if (it->newer)
		it->newer->older = it->older;
	else
		age->newest = it->older;
	it->older = 0;
	it->newer = 0;
}

/* Whether it is in the list. */
RS_INLINE int rs_aged(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	return it->older || it->newer || rs_ages_of(t, it)->oldest == it;
}

/*
 * The queue's heap and the list by age. The caller refreshes. One that waited in another queue is
 * in that list already and keeps its place: whoever changes queue often would otherwise never have
 * waited for long (rs_starving), while the kernel goes on counting and takes the scheduler away.
 */
RS_INLINE void rs_item_in_here(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 why, u64 now)
{
	struct rs_node RS_ARENA *q = it->queue;
	u64 key, since = it->queued_at;

	/* Virtual time of a queue without a step in service: the smallest tag that waits. */
	if (why != RS_WHY_AGAIN && !q->nsvc && q->ready.n && class_keyed(q))
		rs_clock_advance(&q->clock, q->ready.e[0].key);
	it->queued_at = now;
	key = class_enqueue(t, q, it, why);
	it->state = RS_QUEUED;
	rs_far_push(t, q, key, it);
	if (it->all) {
		q->nall++;
	} else {
		RS_LOOP(i, RS_UNIT_WORDS)
			q->mask[i] |= it->mask[i];
	}
	if (RS_AGES && why == RS_WHY_MOVE && rs_aged(t, it))
		it->queued_at = since;
	else if (RS_AGES)
		rs_age_in(t, it);
}

RS_FN_VOID(rs_item_in, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 why, u64 now),
	   (t, it, why, now))
{
	rs_item_in_here(t, it, why, now);
}

/* The caller sets its state, to `state`: on the way to another queue its age stays in the list. */
RS_INLINE void rs_item_out(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 state)
{
	struct rs_node RS_ARENA *q = it->queue;

	rs_far_erase(t, q, it);
	if (it->all)
		q->nall--;
	if (RS_AGES && state != RS_MOVING)
		rs_age_out(t, it);
}

/*
 * Weight of a queue that competes with subtrees as each of its items would. A step is charged at
 * the sum of the weights when it began, as start-time fair queueing allows a rate for each request
 * (SFQ, section 2.2). Not at its end: a kernel thread that wakes at each tick, and so at the end of
 * each step, would make the queue's other threads cheaper by half. On the scale of RS_OWN_ONE to an
 * item of weight one.
 */
RS_INLINE u32 rs_own_weight(struct rs_node RS_ARENA *q)
{
	u64 w = q->wrun * RS_OWN_ONE / RS_WEIGHT_ONE;

	return w > RS_WEIGHT_MAX ? RS_WEIGHT_MAX : w ? w : 1;
}

/* `at`: the weight when the step began; 0: the queue was not `own` then. */
RS_INLINE void rs_own_charge(struct rs_node RS_ARENA *q, u32 at)
{
	u32 w = at ? at : rs_own_weight(q);

	q->parent->wsum += (u64)w - q->weight;
	q->weight = w;
}

/*
 * The item wants service no longer: its tag becomes a finish tag. From the last line on its owner
 * may post it.
 */
RS_INLINE void rs_item_idle(struct rs_item RS_ARENA *it, u32 state)
{
	struct rs_node RS_ARENA *q = it->queue;

	rs_tag_idle(&q->clock, &it->tag);
	q->nrun--;
	if (q->own)
		q->wrun -= it->weight;
	if (!q->nrun)
		rs_clock_idle(&q->clock);
	RS_WRITTEN();
	it->state = state;
}

/*
 * ---
 * events ---------------------------------------------------------------------------------------
 */

/* Several units: one more item wants service below n. */
RS_FN_VOID(rs_more, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n), (t, n))
{
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

/* An idle item wants service; or one that was posted, in rs_drain. */
RS_FN_VOID(rs_wake, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 now),
	   (t, it, now))
{
	if (it->state != RS_IDLE && it->state != RS_POSTED) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	if (RS_SEVERAL(t) && !rs_device(t))
		rs_more(t, it->queue);
	it->queue->nrun++;
	if (it->queue->own)
		it->queue->wrun += it->weight;
	rs_item_in_here(t, it, RS_WHY_WAKE, now);
	if (RS_SEVERAL(t) || rs_by_length(t) || !rs_is_fresh(it->queue))
		rs_refresh(t, it->queue);
}

/* How long the item's next step will be; 0: not known. */
RS_INLINE void rs_item_length(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 length)
{
	it->edf.length = length;
	if (it->state == RS_QUEUED && rs_by_length(t))
		rs_refresh(t, it->queue);
}

#if RS_LENGTHS
/* Work has come for the item's queue. What a cap holds back has not come for who is above. */
RS_FN_VOID(rs_arrive, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 work),
	   (t, it, work))
{
	struct rs_node RS_ARENA *n = it->queue;

	if (!(t->mode & RS_MODE_ARRIVALS))
		return;
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!n->parent || n->throttled)
			break;
		policy_arrive(t, n->parent, n, work);
		n = n->parent;
	}
}
#endif

#if RS_DISK
/*
 * What a disk's request is, before it is woken: its length in the unit of service, its first
 * sector, its deadline (0: none).
 */
RS_INLINE void rs_item_request(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 length, u64 sector, u64 due_at)
{
	if (it->state == RS_QUEUED) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	it->edf.length = length;
	it->sector = sector;
	it->due_at = due_at;
}
#endif

/* An item that waits does so no longer, and is in `state`. Nothing is charged. */
RS_FN_VOID(rs_remove_as, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 state),
	   (t, it, state))
{
	struct rs_node RS_ARENA *q = it->queue;

	if (it->state != RS_QUEUED) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	rs_item_out(t, it, state);
	rs_item_idle(it, state);
	rs_refresh(t, q);
}

/* An item that waits wants service no longer. */
RS_INLINE void rs_remove(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	rs_remove_as(t, it, RS_IDLE);
}

/*
 * A queued item goes into service on `unit`: the slice is reserved on the path. Used by rs_pick,
 * and by the caller for an item that was put on a unit without being asked for.
 */
RS_INLINE void rs_begin_as(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 unit, const u32 several)
{
	struct rs_node RS_ARENA *n = it->queue;
	u64 slice = n->quantum;
	u32 done = 0;

	if (it->state != RS_QUEUED || unit >= RS_UNITS_MAX) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	/*
	 * The smallest tag that waits, which is this item's unless it was chosen for another
	 * reason.
	 */
	rs_clock_advance(&n->clock, ((struct rs_item RS_ARENA *)n->ready.e[0].obj)->tag.base);
	rs_item_out(t, it, RS_SERVICE);
#if RS_DISK
	class_served(n, it);
#endif
	it->state = RS_SERVICE;
	it->unit = unit;
	if (t->mode & RS_MODE_SLICE)
		slice = rs_slice(t, it);
	if (RS_LENGTHS && it->edf.length)
		slice = it->edf.length;
	it->slice = slice;
	t->unit[unit & (RS_UNITS_MAX - 1)].item = it;
	t->unit[unit & (RS_UNITS_MAX - 1)].own = n->own ? rs_own_weight(n) : 0;
	RS_LOOP(d, RS_DEPTH_MAX) {
		struct rs_node RS_ARENA *p = n->parent;

		n->nsvc++;
		if (!p) {
			n->res += slice;
			done = 1;
			break;
		}
		/*
		 * One unit: refresh.c. Not runnable: held back by a cap, and served all the same
		 * because it waited too long.
		 */
		if (several || !n->runnable)
			rs_refresh_one(t, n);
		if (!several)
			RS_ASSUME(!RS_SEVERAL(t));
		if (!RS_BETWEEN || !(n->throttled & RS_HELD))
			policy_dispatch(t, p, n);
		n->res += slice;
		if (several)
			policy_reserve(t, p, n);
		if (several && n->link.pos)
			rs_heap_rekey(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
		n = p;
	}
	if (!done)
		rs_poison(t, RS_POISON_PATH);
}

RS_FN_VOID(rs_begin_several, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 unit),
	   (t, it, unit))
{
	rs_begin_as(t, it, unit, 1);
}

RS_FN_VOID(rs_begin_single, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 unit),
	   (t, it, unit))
{
	rs_begin_as(t, it, unit, 0);
}

/* Inlined, so that only one of the two stands on the stack. */
RS_INLINE void rs_begin(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 unit)
{
	if (RS_SEVERAL(t))
		rs_begin_several(t, it, unit);
	else
		rs_begin_single(t, it, unit);
}

/* So many units, before anything is served. */
RS_INLINE void rs_units_first(struct rs_tree RS_ARENA *t, u32 units)
{
	t->units = units;
	t->several = units > 1;
}

/*
 * The tree has another number of units from now on. Where the first ones come beside the only one,
 * the step in service began as with one: what it left on its path (refresh.c) holds only as long as
 * nothing is picked beside it, and no key counts it. Both are brought up to date.
 */
RS_FN_VOID(rs_units, (struct rs_tree RS_ARENA *t, u32 units), (t, units))
{
	t->units = units;
	if (!RS_EVER_SEVERAL || units <= 1 || t->several)
		return;
	t->several = 1;
	RS_LOOP(i, RS_UNITS_MAX) {
		struct rs_item RS_ARENA *it = t->unit[i].item;

		if (it)
			rs_refresh_path(t, it->queue);
	}
}

#define RS_FEW 64 /* more waiting children than that are not looked through one by one */

/* The exact mask of a queue in which no item may use every unit. */
RS_FN_VOID(rs_mask_items, (struct rs_node RS_ARENA *q), (q))
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

/* A step of n with a cap ended. Answers whether it is held back. */
RS_FN u32 rs_cap_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 work, u64 now)
{
	rs_cap_refill(&n->cap, now);
	n->cap.tok -= work < RS_WORK_MAX ? work : RS_WORK_MAX;
	if (n->cap.tok < RS_CAP_DEBT)
		n->cap.tok = RS_CAP_DEBT;
	if (n->cap.tok <= 0 && !(n->throttled & RS_CAPPED))
		rs_throttle(t, n, now);
	return n->throttled;
}

/*
 * Several units, just before rs_settle of `it`: of the work of that step, `lent` was done by the
 * idle item `to` of the same queue, whom `it` let go on in its place. That one's tag is charged for
 * it, not the tag of `it`; to all above it is one step.
 */
RS_INLINE void rs_lend(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *to, u64 lent)
{
	struct rs_clock RS_ARENA *c = &it->queue->clock;

	rs_tag_start(c, &to->tag, 0);
	rs_tag_charge(c, &to->tag, lent, to->weight);
	rs_tag_idle(c, &to->tag);
	to->service += lent;
	t->lent = lent;
}

#define RS_MORE_ELSEWHERE 2
/*
 * The step of an item in service ended after `work`. The whole path is charged, then the item is
 * queued again (`more`) or becomes idle (QLX: update, then sleep; RS_MORE_ELSEWHERE: it goes to
 * another queue at once).
 */
RS_INLINE void rs_settle_as(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 work, u32 more, u64 now,
			    const u32 several)
{
	struct rs_node RS_ARENA *q = it->queue, *n = q;
	u32 done = 0, forced = 0, all = several, unit = it->unit, weight = 0;
	u64 slice = it->slice, own = work;

	if (several) {
		own -= t->lent;
		t->lent = 0;
		t->ending = unit;
	}
	all |= rs_by_length(t) || (RS_BETWEEN && t->changes);
	t->calls = it->calls;
	it->calls = 0;
	it->service += own;
	if (t->unit[unit & (RS_UNITS_MAX - 1)].item == it) {
		t->unit[unit & (RS_UNITS_MAX - 1)].item = 0;
		weight = t->unit[unit & (RS_UNITS_MAX - 1)].own;
	}
	rs_tag_charge(&q->clock, &it->tag, own, it->weight);
	if (q->own)
		rs_own_charge(q, weight);
	if (several) {
		if (!q->nall && q->ready.n <= RS_FEW)
			rs_mask_items(q);
		if (class_keyed(q) && !rs_device(t))
			rs_tag_hold(t, q, &it->tag, work, it->weight, 0);
	}
	RS_LOOP(d, RS_DEPTH_MAX) {
		struct rs_node RS_ARENA *p = n->parent;

		n->nsvc--;
		n->res -= slice;
		n->service += work;
		n->served++;
		if (n->cap.ppm)
			all |= rs_cap_charge(t, n, work, now);
		if (!p) {
			done = 1;
			break;
		}
		if (several)
			forced = rs_forced(p, unit);
		else
			RS_ASSUME(!RS_SEVERAL(t));
		if (!RS_BETWEEN || !(n->throttled & RS_HELD))
			policy_charge(t, p, n, work, forced);
		if (!several)
			RS_ASSUME(!RS_SEVERAL(t));
		if (n->link.pos)
			rs_heap_rekey(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
		n = p;
	}
	if (!done)
		rs_poison(t, RS_POISON_PATH);
	if (more == 1)
		rs_item_in(t, it, RS_WHY_AGAIN, now);
	else
		rs_item_idle(it, more ? RS_MOVING : RS_IDLE);
	n = q;
	RS_LOOP(d, RS_DEPTH_MAX) {
		/*
		 * Above one that stays in the heap, all that are not held back stay as well.
		 * Several units: keys look below.
		 */
		if (!n->parent || (!all && rs_is_fresh(n)))
			break;
		if (!several && rs_by_length(t) && rs_is_fresh(n) && rs_head_stays(t, n)) {
			n = n->parent;
			continue;
		}
		if (!rs_refresh_one(t, n) && n->link.pos && !all)
			break;
		n = n->parent;
	}
}

RS_FN_VOID(rs_settle_several, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 work,
	   u32 more, u64 now), (t, it, work, more, now))
{
	rs_settle_as(t, it, work, more, now, 1);
}

RS_FN_VOID(rs_settle_single, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 work,
	   u32 more, u64 now), (t, it, work, more, now))
{
	rs_settle_as(t, it, work, more, now, 0);
}

RS_INLINE void rs_settle(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 work, u32 more, u64 now)
{
	if (it->state != RS_SERVICE)
		rs_poison(t, RS_POISON_STATE);
	else if (RS_SEVERAL(t))
		rs_settle_several(t, it, work, more, now);
	else
		rs_settle_single(t, it, work, more, now);
}

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

/* The item of a queue that `unit` should serve; 0: none that it may. */
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
	if (it->all || rs_unit_in(it->mask, unit))
		return it;
	return rs_queue_first_far(t, q, unit);
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

/*
 * A unit is free: what should it serve? The item is in service when this returns. 0: nothing that
 * this unit may serve, and t->next_ns is the time at which a cap lets something go (0: none does),
 * or now: it is to ask again at once.
 */
RS_FN_PTR(struct rs_item RS_ARENA, rs_pick_ready, (struct rs_tree RS_ARENA *t, u32 unit, u64 now), (t, unit, now))
{
	struct rs_item RS_ARENA *it;
	struct rs_node RS_ARENA *root = t->nodes;
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
	RS_LOOP(tries, RS_TRIES_MAX) {
		struct rs_node RS_ARENA *n = root;

		if (!root->ready.n || !(root->nall || rs_unit_in(root->mask, unit)) || (RS_BETWEEN && root->throttled)) {
			stop = 1;
			break;
		}
		if (t->looked > RS_LOOKED_MAX)
			break;
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
				return (u64)it;
			}
			if (n->ready.n > RS_FAR_FEW && n->far > 1)
				break; /* a search has prepared a piece of it, and goes on with the next */
		}
		/*
		 * n's mask promised more than there is: it was a superset. Now it is exact for this
		 * unit.
		 */
		if (n->nall) {
			rs_poison(t, RS_POISON_STATE);
			return 0;
		}
		n->mask[(unit / 64) & (RS_UNIT_WORDS - 1)] &= ~(1ULL << (unit & 63));
		/* To choose may have moved virtual time on the way, and places above with it. */
		if (RS_EVER_SEVERAL)
			rs_refresh_path(t, n);
	}
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
