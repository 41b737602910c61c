/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Items: where they come from, which queue they belong to, what they may use. An item belongs to
 * exactly one queue from rs_item_join to rs_item_leave, whatever it does.
 */

/* A free item from the pool, belonging nowhere yet; 0 when all are used. */
RS_FN_PTR(struct rs_item RS_ARENA, rs_item_alloc, (struct rs_tree RS_ARENA *t), (t))
{
	struct rs_item RS_ARENA *it = t->item_free;

	if (it) {
		t->item_free = it->newer;
	} else {
		if (t->items_used >= t->items_max)
			return 0;
		it = &t->items[t->items_used];
		it->index = t->items_used++;
	}
	it->gen++;
	it->link.pos = 0;
	it->state = RS_IDLE;
	it->flags = 0;
	it->rlink.pos = 0;
	it->all = 1;
	it->weight = RS_WEIGHT_ONE;
	it->weight_by = RS_WEIGHT_ONE;
	it->weight_own = 0;
	it->weight_most = 0;
	it->account = 0;
	it->priority = 0;
	it->edf.length = 0;
#if RS_DISK
	it->sector = 0;
	it->due_at = 0;
#endif
	it->period_ns = 0;
	it->budget_ns = 0;
	it->deadline_ns = 0;
	it->edf.on = 0;
	it->edf.left = 0;
	it->edf.mark = 0;
	it->seq = 0;
	it->unit = 0;
	it->queue = 0;
	it->owner = 0;
	it->owner2 = 0;
	it->service = 0;
	it->slice = 0;
	it->started = 0;
	it->home = 0;
	it->paid = 0;
	it->older = 0;
	it->newer = 0;
	it->posted = 0;
	it->stays = 0;
	it->calls = 0;
	RS_LOOP(i, RS_UNIT_WORDS)
		it->mask[i] = ~0ULL;
	return (u64)it;
}

RS_INLINE void rs_item_free(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	it->state = RS_ITEM_FREE;
	it->queue = 0;
	it->newer = t->item_free;
	t->item_free = it;
}

/*
 * An idle item without a queue joins one, which it was in: whatever the queue's limit is, for that
 * is of newcomers. Answers 0 when the queue is draining, or the pool is empty.
 */
RS_FN int rs_item_rejoin(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it,
			 struct rs_node RS_ARENA *q)
{
	if (q->kind != RS_QUEUE || q->dying)
		return 0;
	if (!rs_heap_reserve(t, &q->ready, q->members + 1))
		return 0;
	q->members++;
	it->queue = q;
	rs_tag_new(&q->clock, &it->tag);
	it->tag.epoch = q->clock.epoch - 1; /* no debt, wherever v goes before it first wakes */
	return 1;
}

/* The same of a newcomer: 0 also when the queue is full. */
RS_FN int rs_item_join(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_node RS_ARENA *q)
{
	if (q->members_max && q->members >= q->members_max)
		return 0;
	return rs_item_rejoin(t, it, q);
}

/* A draining queue goes with its last member. */
RS_FN_VOID(rs_queue_left, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q), (t, q))
{
	q->members--;
	/*
	 * A large array is not kept for an empty queue: threads that go round all queues would fill
	 * the pool.
	 */
	if (!q->members && q->ready.order)
		rs_heap_release(t, &q->ready);
	if (q->dying && !q->members && q->kind == RS_QUEUE)
		rs_node_gone(t, q);
}

/* Parts per million of a unit that an item's budgets come to; at most 10^6. */
RS_INLINE u64 rs_item_rate(u64 budget, u64 span)
{
	return span ? (budget * 1000000 + span - 1) / span : 0;
}

/*
 * Class edf: whether what the queue is guaranteed suffices for its members' budgets and `more`. Who
 * asks for no more than before is never refused.
 */
RS_INLINE int rs_queue_promises(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u64 more)
{
	return q->alg != edf_class || !more || q->promised + more <= rs_guarantee(t, q);
}

/* The item's period is no more. */
RS_FN_VOID(rs_item_unpromise, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it), (t, it))
{
	if (it->queue)
		it->queue->promised -= rs_item_rate(it->budget_ns, edf_relative(it));
	if (it->rlink.pos)
		rs_heap_erase(t, &t->refill, &it->rlink);
	it->period_ns = 0;
	t->periodic--;
}

/* An idle item leaves its queue and the tree. */
RS_FN_VOID(rs_item_leave, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it), (t, it))
{
	struct rs_node RS_ARENA *q = it->queue;

	if (it->state != RS_IDLE) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	if (it->period_ns)
		rs_item_unpromise(t, it);
	it->queue = 0;
	if (q)
		rs_queue_left(t, q);
	rs_item_free(t, it);
}

/* What an item with a budget asks of its queue. */
RS_INLINE u64 rs_item_asks(struct rs_item RS_ARENA *it)
{
	return it->period_ns ? rs_item_rate(it->budget_ns, edf_relative(it)) : 0;
}

/* Whether another queue takes the item; its room there is made. */
RS_FN int rs_item_fits(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_node RS_ARENA *to)
{
	return to->kind == RS_QUEUE && !to->dying && !(to->members_max && to->members >= to->members_max) &&
	       rs_queue_promises(t, to, rs_item_asks(it)) && rs_heap_reserve(t, &to->ready, to->members + 1);
}

/*
 * An item out of its queue's heap goes to a queue that it fits, and is there what it was: `state`,
 * in service on `unit`.
 */
RS_FN_VOID(rs_item_goes, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it,
	   struct rs_node RS_ARENA *to, u32 state, u64 now), (t, it, to, state, now))
{
	struct rs_node RS_ARENA *from = it->queue;
	u64 rate = rs_item_asks(it);

	to->members++;
	it->queue = to;
	from->promised -= rate;
	to->promised += rate;
	if (rate)
		t->grants += 2;
	rs_tag_new(&to->clock, &it->tag);
	it->tag.epoch = to->clock.epoch - 1;
	if (state == RS_QUEUED || state == RS_SERVICE) {
		to->nrun++;
		if (to->own)
			to->wrun += it->weight;
		rs_item_in(t, it, RS_WHY_MOVE, now);
		rs_refresh(t, to);
	}
	if (state == RS_SERVICE)
		rs_begin(t, it, it->unit);
	rs_queue_left(t, from);
}

/*
 * An item changes queue, whatever it does; tags are not carried. For one in service `work` is what
 * this step received so far: it is charged to the old queue, and the rest of the step will be to
 * the new one. Answers 0, with nothing changed, when the new queue does not take it. (Inlined: the
 * charge needs all the stack that BPF has.)
 */
RS_INLINE int rs_item_move(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_node RS_ARENA *to,
			   u64 work, u64 now)
{
	u32 state = it->state;

	if (it->queue == to)
		return 1;
	if (!rs_item_fits(t, it, to))
		return 0;
	if (state == RS_QUEUED)
		rs_remove_as(t, it, RS_MOVING);
	else if (state == RS_SERVICE)
		rs_settle(t, it, work, RS_MORE_ELSEWHERE, now);
	rs_item_goes(t, it, to, state, now);
	return 1;
}

/*
 * The units that an item may use changed. `mask` has RS_UNIT_WORDS words in it->mask already;
 * `all`: any.
 */
RS_FN_VOID(rs_item_units, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 all),
	   (t, it, all))
{
	struct rs_node RS_ARENA *q = it->queue;

	if (it->state != RS_QUEUED) {
		it->all = all;
		return;
	}
	if (it->all && !all)
		q->nall--;
	else if (!it->all && all)
		q->nall++;
	it->all = all;
	if (!all) {
		RS_LOOP(i, RS_UNIT_WORDS)
			q->mask[i] |= it->mask[i];
	}
	if (q->far)
		rs_far_up(q, it->link.pos);
	rs_refresh(t, q);
}

/*
 * The item's weight in its queue changed (nice, SCHED_IDLE). Its residual is rescaled as a node's.
 */
RS_FN_VOID(rs_item_reweight, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 weight),
	   (t, it, weight))
{
	struct rs_node RS_ARENA *q = it->queue;
	u32 wants = it->state == RS_QUEUED || it->state == RS_SERVICE;

	if (!weight)
		weight = 1;
	if (weight == it->weight)
		return;
	if (q && !q->nsvc && q->ready.n && class_keyed(q))
		rs_clock_advance(&q->clock, q->ready.e[0].key);
	if (q && (wants || (it->tag.epoch == q->clock.epoch && q->clock.hi - it->tag.hi < 2 &&
					   rs_before(q->clock.v, it->tag.base)))) {
		rs_tag_reweight(&q->clock, &it->tag, it->weight, weight);
		if (it->state == RS_QUEUED && class_keyed(q))
			rs_far_rekey(t, q, it->tag.base, it);
		if (rs_by_length(t))
			rs_refresh(t, q);
	}
	if (q && q->own && wants)
		q->wrun += (u64)weight - it->weight;
	it->weight = weight;
}

/* The weight in force: its own, as far as that counts. */
RS_INLINE u32 rs_item_due(struct rs_item RS_ARENA *it)
{
	u32 most = it->weight_most > it->weight_by ? it->weight_most : it->weight_by;

	if (!it->weight_own)
		return it->weight_by;
	return it->weight_most && it->weight_own > most ? most : it->weight_own;
}

/* The weight that others (nice) give the item: in force while it has none of its own. */
RS_FN_VOID(rs_item_weight_by, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 weight),
	   (t, it, weight))
{
	it->weight_by = weight ? weight : 1;
	rs_item_reweight(t, it, rs_item_due(it));
}

/*
 * What an item asks of its queue's class: all of t->params, where 0 takes back; its weight counts
 * as t->params_most says. Answers 0, or a negative errno with nothing changed: RS_EINVAL for
 * numbers out of range, RS_ENOSPC when its queue is of class edf and is not guaranteed what all
 * budgets come to, or the pool is exhausted, RS_EOPNOTSUPP for a period in q0 of class edf, which
 * takes whoever comes.
 */
RS_FN int rs_item_params(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 now)
{
	struct rs_node RS_ARENA *q = it->queue;
	u64 period = t->params.period_ns, budget = t->params.budget_ns, deadline = t->params.deadline_ns;
	u64 rate = rs_item_rate(budget, deadline ? deadline : period);
	u64 old = it->period_ns ? rs_item_rate(it->budget_ns, edf_relative(it)) : 0;

	if (t->params.weight > RS_WEIGHT_MAX || t->params.priority > RS_PRIORITY_MAX)
		return RS_EINVAL;
	if (period ? period < RS_PERIOD_MIN || period > RS_PERIOD_MAX || deadline > period ||
			     (deadline && deadline < RS_PERIOD_MIN) || budget < RS_BUDGET_MIN ||
			     budget > (deadline ? deadline : period)
		   : budget || deadline)
		return RS_EINVAL;
	if (q && q->index == 1 && q->alg == edf_class && period)
		return RS_EOPNOTSUPP;
	if (q && rate > old && !rs_queue_promises(t, q, rate - old))
		return RS_ENOSPC;
	if (period && !it->period_ns && !rs_heap_reserve(t, &t->refill, t->periodic + 1))
		return RS_ENOSPC;
	if (it->period_ns && !period) {
		rs_item_unpromise(t, it);
	} else if (period) {
		if (!it->period_ns)
			t->periodic++;
		if (q)
			q->promised += rate - old;
		if (rate > old)
			t->grants += 2;
		t->mode |= RS_MODE_SLICE;
		/* What was had in this period is kept in mind, and a shorter one ends it sooner. */
		if (it->edf.on && rs_before(now + period, it->edf.release))
			it->edf.release = now + period;
	}
	edf_count(it);
	it->edf.left += (s64)(budget - it->budget_ns);
	it->flags = period ? it->flags | RS_ITEM_PERIODIC : it->flags & ~RS_ITEM_PERIODIC;
	it->period_ns = period;
	it->budget_ns = budget;
	it->deadline_ns = deadline;
	it->priority = t->params.priority;
	it->weight_own = t->params.weight;
	it->weight_most = t->params_most;
	rs_item_reweight(t, it, rs_item_due(it));
	if (it->state == RS_QUEUED && !class_keyed(q)) {
		/* In the queue's order it is a newcomer. */
		u64 key, at = it->queued_at;

		it->queued_at = now;
		key = class_enqueue(t, q, it, RS_WHY_MOVE);
		it->queued_at = at;
		rs_far_rekey(t, q, key, it);
		if (rs_by_length(t))
			rs_refresh(t, q);
	}
	return 0;
}
