/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a parent records of its children, kept true after every change; and how classes are asked, by
 * number (policies: policy.h).
 *
 * State of a child c in its parent p, made true by rs_refresh_one():
 *   ready     c has an item that waits, and no cap holds c back     <=> c is in p's ready heap
 *   runnable  ready, or a step is in service below c                => counted in p->nrun (unless background)
 *   all       ready, and any unit may serve something below c       <=> counted in p->nall
 *   mask      superset of the units that may serve what else waits below c
 *
 * One unit: when a step begins the first and the third may become false below it. They are left as
 * they are (rs_begin) until the step ends, before which nothing is picked: mostly something waits
 * there again by then, and two changes of every heap on the path are saved. So, at any time: c
 * ready => in the heap; c in the heap => ready, or a step is in service below c.
 */

#if RS_DISK
/* An item of q goes into service. */
RS_INLINE void class_served(struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it)
{
#define RS_CALL(name) name##_served(q, it)
	switch (q->alg) { RS_CLASSES_DISK(RS_CLASS_CASE) }
#undef RS_CALL
}
#endif

/* Whether lengths matter anywhere in the tree. */
RS_INLINE u32 rs_by_length(struct rs_tree RS_ARENA *t)
{
	return RS_LENGTHS && (t->mode & RS_MODE_LENGTH);
}

RS_INLINE u64 class_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q,
			    struct rs_item RS_ARENA *it, u32 why)
{
	u64 key = 0;
#define RS_CALL(name) key = name##_enqueue(t, q, it, why)
	switch (__builtin_expect(q->alg, 0)) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return key;
}

/* Whether the queue's heap is ordered by the items' tags; otherwise by their stamps alone. */
RS_INLINE int class_keyed(struct rs_node RS_ARENA *q)
{
	int yes = 0;
#define RS_CALL(name) yes = name##_keyed
	switch (__builtin_expect(q->alg, 0)) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return yes;
}

/* A queued item's key in the heap. */
RS_INLINE u64 class_key(struct rs_item RS_ARENA *it)
{
	u64 key = 0;
#define RS_CALL(name) key = name##_key(it)
	switch (it->queue->alg) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return key;
}

/*
 * Queues a and b have different branches below their lowest common ancestor: its policy says
 * whether a's goes before b's. `waits`: only where something of a's may be served now.
 */
RS_FN int rs_branch_ahead(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *a, struct rs_node RS_ARENA *b, u32 waits)
{
	RS_LOOP(d, 2 * RS_DEPTH_MAX) {
		if (!a->parent || !b->parent)
			return 0;
		if (a->parent == b->parent)
			return (!waits || a->link.pos) && policy_ahead(t, a->parent, a, b);
		if (a->depth > b->depth) {
			a = a->parent;
		} else if (b->depth > a->depth) {
			b = b->parent;
		} else {
			a = a->parent;
			b = b->parent;
		}
	}
	rs_poison(t, RS_POISON_PATH);
	return 0;
}

/* The longest step for an item that is about to be served. Only where the tree's mode says so. */
RS_FN u64 rs_slice(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	struct rs_node RS_ARENA *n = it->queue;
	u64 slice = n->quantum, most;
	u32 done = 0;

	if (n->alg == edf_class) {
		most = edf_slice(it);
		if (most < slice)
			slice = most;
	}
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!n->parent) {
			done = 1;
			break;
		}
		most = policy_slice(n->parent, n);
		if (most < slice)
			slice = most;
		n = n->parent;
	}
	if (!done)
		rs_poison(t, RS_POISON_PATH);
	most = it->queue->quantum < RS_SLICE_MIN ? it->queue->quantum : RS_SLICE_MIN;
	return slice < most ? most : slice;
}

/*
 * For how long of its step who is in service is left alone by who wakes in the same queue
 * (rs_left_alone).
 */
RS_INLINE u64 class_least(struct rs_node RS_ARENA *q)
{
	u64 least = 0;
#define RS_CALL(name) least = name##_least
	switch (__builtin_expect(q->alg, 0)) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return least;
}

/*
 * Whether `it`, just queued, goes before `cur`, in service for `ran` so far: in one queue its class
 * says so, else the policy of their lowest common ancestor.
 */
RS_INLINE int rs_precedes(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	struct rs_node RS_ARENA *q = it->queue;
	int yes = 0;

	if (!cur || it->state != RS_QUEUED)
		return 0;
	if (cur->queue != q)
		return (t->mode & RS_MODE_AHEAD) && cur->queue && rs_branch_ahead(t, q, cur->queue, 1);
#define RS_CALL(name) yes = name##_preempts(it, cur, ran)
	switch (__builtin_expect(q->alg, 0)) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return yes;
}

/* Whether it should displace it. */
RS_INLINE int rs_preempts(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	u64 least;

	if (RS_SEVERAL(t) && cur && it->state == RS_QUEUED && cur->queue == it->queue) {
		least = class_least(it->queue);
		if (least && rs_left_alone(it, cur, class_key(it), ran, least))
			return 0;
	}
	return rs_precedes(t, it, cur, ran);
}

/*
 * Without the lock: whether the idle item `it`, when it wakes, surely does not displace `cur`, in
 * service on its unit (0: nobody). What is read may be changing meanwhile: the answer is as good as
 * one of a moment ago. Where policies displace across queues, it is no.
 */
RS_INLINE int rs_wakes_quietly(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 now)
{
	struct rs_node RS_ARENA *q = it->queue;
	int yes = 0;

	if (q->alg == edf_class)
		return 0;
	if (!cur || cur->queue != q)
		return !cur || !(t->mode & RS_MODE_AHEAD);
#define RS_CALL(name) yes = name##_quiet(t, q, it, cur, now)
	switch (__builtin_expect(q->alg, 0)) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return yes;
}

/* Both in service: whether a would be the last to be displaced. */
RS_INLINE int rs_outranks(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *a, struct rs_item RS_ARENA *b)
{
	int yes = 0;

	if (a->queue != b->queue)
		return (t->mode & RS_MODE_AHEAD) && rs_branch_ahead(t, a->queue, b->queue, 0);
#define RS_CALL(name) yes = name##_preempts(a, b, 0)
	switch (a->queue->alg) { RS_CLASSES(RS_CLASS_CASE) }
#undef RS_CALL
	return yes;
}


/*
 * Several units, all busy: the one whose item `it`, just queued, should displace: of those that it
 * may use and should be served before, the one that none of the others comes behind. Answers its
 * number plus one; 0: none.
 */
RS_FN u32 rs_victim(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	struct rs_item RS_ARENA *worst = 0;
	u32 unit = 0;

	RS_LOOP(i, RS_UNITS_HERE) {
		struct rs_item RS_ARENA *cur = t->unit[i & (RS_UNITS_MAX - 1)].item;

		if (!cur || !(it->all || rs_unit_in(it->mask, i)) || !rs_precedes(t, it, cur, 0))
			continue;
		if (!worst || rs_outranks(t, worst, cur)) {
			worst = cur;
			unit = i + 1;
		}
	}
	return unit;
}

RS_INLINE u64 rs_seq_for(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	return (++t->stamp) | (c->weight ? 0 : RS_SEQ_BACKGROUND);
}

#if RS_LENGTHS
/*
 * The length of what n would be served with now; while it is in service, or nothing waits, what it
 * was. That of its first child is recorded already, since whatever changes below is told upwards
 * (rs_refresh); but where arrivals move virtual times (RS_MODE_ARRIVALS), another may come first
 * below without a word, and all is looked at.
 */
RS_FN u32 rs_head_of(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	struct rs_node RS_ARENA *c = n;

	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!c->ready.n || (c->nsvc && !rs_device(t)))
			break;
		if (c->kind == RS_QUEUE) {
			u64 length = ((struct rs_item RS_ARENA *)c->ready.e[0].obj)->edf.length;

			if (!length)
				length = c->quantum;
			return length > ~0U ? ~0U : length;
		}
		policy_front(t, c);
		c = (struct rs_node RS_ARENA *)c->ready.e[0].obj;
		if (!(t->mode & RS_MODE_ARRIVALS))
			return c->head;
	}
	return n->head;
}

/* Keeps n->head, and n's place in p's order by it. */
RS_INLINE void rs_head_refresh(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *n)
{
	u32 head = rs_head_of(t, n);

	if (head == n->head && !(t->mode & RS_MODE_ARRIVALS))
		return;
	n->head = head;
	if (policy_length(t, p, n) && n->link.pos)
		rs_heap_rekey(t, &p->ready, policy_key(t, p, n), p->ready.e[n->link.pos - 1].seq, &n->link);
}
#endif

/*
 * Bring what p records of its child n up to date. Answers whether p's own state may have changed.
 */
RS_FN int rs_refresh_one(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	struct rs_node RS_ARENA *p = n->parent;
	u32 ready, run, all, changed = 0;

	if (!p)
		return 0;
	ready = n->ready.n && !n->throttled;
	run = ready || (n->nsvc && !(n->throttled & RS_HELD));
	all = ready && n->nall;
#if RS_LENGTHS
	if (ready && rs_by_length(t)) {
		rs_head_refresh(t, p, n);
		changed = 1; /* what is above has to look as well: its own head may be another */
	}
#endif
	if (run && !n->runnable) {
		policy_wake(t, p, n);
		n->runnable = 1;
		if (n->weight)
			p->nrun++;
	}
	if (ready && !n->link.pos) {
#if RS_DISK
		policy_ready(t, p, n);
#endif
		rs_heap_push(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
		changed = 1;
	} else if (!ready && n->link.pos) {
		rs_heap_erase(t, &p->ready, &n->link);
		changed = 1;
	}
	if (ready && RS_SEVERAL(t) && policy_key(t, p, n) != p->ready.e[n->link.pos - 1].key) {
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
		policy_idle(t, p, n);
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

/* Whether n's parent has it all right already: the common case, found without a call. */
RS_INLINE u32 rs_is_fresh(struct rs_node RS_ARENA *n)
{
	return n->link.pos && n->all && n->nall && n->ready.n && !n->throttled;
}

/* Whether a queue that is fresh would be served with the length that is recorded. */
RS_INLINE u32 rs_head_stays(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	u64 length;

	if (n->kind != RS_QUEUE || (t->mode & RS_MODE_ARRIVALS))
		return 0;
	length = ((struct rs_item RS_ARENA *)n->ready.e[0].obj)->edf.length;
	return (length ? length : n->quantum) == n->head;
}

/* After something changed at n: up to the first ancestor for which nothing does. */
RS_FN_VOID(rs_refresh, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n), (t, n))
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

/* The same up to the root, whatever changes, and the keys of all. */
RS_FN_VOID(rs_refresh_path, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n), (t, n))
{
	RS_LOOP(d, RS_DEPTH_MAX) {
		struct rs_node RS_ARENA *p = n->parent;

		if (!p)
			return;
		rs_refresh_one(t, n);
		if (n->link.pos && policy_key(t, p, n) != p->ready.e[n->link.pos - 1].key)
			rs_heap_rekey(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
		n = p;
	}
	rs_poison(t, RS_POISON_PATH);
}

/* Out of the list of p's children. */
RS_INLINE void rs_unhang(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *n)
{
	if (n->before)
		t->nodes[(n->before - 1) & (RS_NODES_MAX - 1)].next = n->next;
	else
		p->kids = n->next;
	if (n->next)
		t->nodes[(n->next - 1) & (RS_NODES_MAX - 1)].before = n->before;
	p->nchildren--;
}

/*
 * n, which has no child and no member, goes: its slot is free. A ghost that leaves moves V, and
 * what is above looks at that.
 */
RS_INLINE void rs_node_gone(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	struct rs_node RS_ARENA *p = n->parent;

	if (n->throttled & RS_CAPPED)
		rs_heap_erase(t, &t->throttle, &n->tlink);
	n->throttled = 0;
	policy_leave(t, p, n);
	p->wsum -= n->weight;
	rs_unhang(t, p, n);
	n->kind = RS_FREE;
	rs_refresh(t, p);
}
