/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Items: where they come from, which queue they belong to, what they may use. An item belongs to exactly one
 * queue from rs_item_join to rs_item_leave, whatever it does.
 */

/* A free item from the pool, belonging nowhere yet; 0 when all are used. */
RS_FN_PTR struct rs_item RS_ARENA *rs_item_alloc(struct rs_tree RS_ARENA *t)
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
	it->all = 1;
	it->weight = RS_WEIGHT_ONE;
	it->unit = 0;
	it->queue = 0;
	it->owner = 0;
	it->owner2 = 0;
	it->service = 0;
	it->slice = 0;
	it->started = 0;
	it->older = 0;
	it->newer = 0;
	RS_LOOP(i, RS_UNIT_WORDS)
		it->mask[i] = ~0ULL;
	return it;
}

RS_INLINE void rs_item_free(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	it->state = RS_ITEM_FREE;
	it->queue = 0;
	it->newer = t->item_free;
	t->item_free = it;
}

/* An idle item without a queue joins one. Answers 0 when the queue is full, draining, or the pool is empty. */
RS_FN int rs_item_join(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_node RS_ARENA *q)
{
	if (q->kind != RS_QUEUE || q->dying || (q->members_max && q->members >= q->members_max))
		return 0;
	if (!rs_heap_reserve(t, &q->ready, q->members + 1))
		return 0;
	q->members++;
	it->queue = q;
	rs_tag_new(&q->clock, &it->tag);
	it->tag.epoch = q->clock.epoch - 1; /* no debt, wherever v goes before it first wakes */
	return 1;
}

/* A draining queue goes with its last member. */
RS_FN void rs_queue_left(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q)
{
	q->members--;
	/* A large array is not kept for an empty queue: threads that go round all queues would fill the pool. */
	if (!q->members && q->ready.order)
		rs_heap_release(t, &q->ready);
	if (q->dying && !q->members && q->kind == RS_QUEUE) {
		if (q->throttled)
			rs_heap_erase(t, &t->throttle, &q->tlink);
		q->throttled = 0;
		q->parent->nchildren--;
		q->kind = RS_FREE;
	}
}

/* An idle item leaves its queue and the tree. */
RS_FN void rs_item_leave(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	struct rs_node RS_ARENA *q = it->queue;

	if (it->state != RS_IDLE) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	it->queue = 0;
	if (q)
		rs_queue_left(t, q);
	rs_item_free(t, it);
}

/*
 * An item changes queue, whatever it does; tags are not carried. For one in service `work` is what this step
 * received so far: it is charged to the old queue, and the rest of the step will be to the new one. Answers 0,
 * with nothing changed, when the new queue does not take it.
 */
RS_FN int rs_item_move(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_node RS_ARENA *to,
		       u64 work, u64 now)
{
	struct rs_node RS_ARENA *from = it->queue;
	u32 state = it->state, unit = it->unit;

	if (from == to)
		return 1;
	if (to->kind != RS_QUEUE || to->dying || (to->members_max && to->members >= to->members_max) ||
	    !rs_heap_reserve(t, &to->ready, to->members + 1))
		return 0;
	if (state == RS_QUEUED)
		rs_remove(t, it);
	else if (state == RS_SERVICE)
		rs_settle(t, it, work, 0, now);
	to->members++;
	it->queue = to;
	rs_tag_new(&to->clock, &it->tag);
	it->tag.epoch = to->clock.epoch - 1;
	if (state == RS_QUEUED || state == RS_SERVICE) {
		to->nrun++;
		rs_item_in(t, it, RS_WHY_MOVE, now);
		rs_refresh(t, to);
	}
	if (state == RS_SERVICE)
		rs_begin(t, it, unit);
	rs_queue_left(t, from);
	return 1;
}

/* The units that an item may use changed. `mask` has RS_UNIT_WORDS words in it->mask already; `all`: any. */
RS_FN void rs_item_units(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 all)
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
	rs_refresh(t, q);
}

/* The item's weight in its queue changed (nice, SCHED_IDLE). Its residual is rescaled as a node's. */
RS_FN void rs_item_reweight(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u32 weight)
{
	struct rs_node RS_ARENA *q = it->queue;

	if (!weight)
		weight = 1;
	if (weight == it->weight)
		return;
	if (q && !q->nsvc && q->ready.n && class_keyed(q))
		rs_clock_advance(&q->clock, q->ready.e[0].key);
	if (q && (it->state != RS_IDLE || (it->tag.epoch == q->clock.epoch && q->clock.hi - it->tag.hi < 2 &&
					   rs_before(q->clock.v, it->tag.base)))) {
		rs_tag_reweight(&q->clock, &it->tag, it->weight, weight);
		if (it->state == RS_QUEUED && class_keyed(q))
			rs_heap_rekey(t, &q->ready, it->tag.base, it->seq, &it->link);
	}
	it->weight = weight;
}
