/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Nodes: what each kind of edit does to one, and what has to be known of a node for it. Whether and
 * when it happens is the batch's (edit.c).
 */

RS_INLINE struct rs_node RS_ARENA *rs_node_at(struct rs_tree RS_ARENA *t, u64 id)
{
	u32 index = (u32)id, gen = id >> 32;
	struct rs_node RS_ARENA *n;

	if (index >= t->nodes_max)
		return 0;
	n = &t->nodes[index & (RS_NODES_MAX - 1)];
	return n->kind != RS_FREE && n->gen == gen ? n : 0;
}

/* What a policy keeps of a child, and of itself, as it is before the first child was runnable. */
RS_INLINE void rs_child_reset(struct rs_node RS_ARENA *c)
{
	c->alink.pos = 0;
	RS_LOOP(i, RS_POLICY_WORDS)
		c->as.word[i] = 0;
}

RS_INLINE void rs_parent_reset(struct rs_node RS_ARENA *p)
{
	p->aside.n = 0;
	RS_LOOP(i, RS_POLICY_WORDS)
		p->of.word[i] = 0;
}

/* The volatile half as it is in an idle tree. */
RS_FN_VOID(rs_node_reset, (struct rs_node RS_ARENA *n), (n))
{
	n->link.pos = 0;
	n->tlink.pos = 0;
	n->tag.base = 0;
	n->tag.rem = 0;
	n->tag.epoch = 0;
	n->tag.hi = 0;
	n->res = 0;
	n->nsvc = 0;
	n->runnable = 0;
	n->all = 0;
	n->throttled = 0;
	n->throttled_at = 0;
	n->head = 0;
	rs_child_reset(n);
	rs_parent_reset(n);
	n->clock.v = 0;
	n->clock.fmax = 0;
	n->clock.epoch = 1;
	n->clock.hi = 0;
	n->clock.slow = 0;
	n->vb = 0;
	n->nrun = 0;
	n->nall = 0;
	n->own = 0;
	n->wrun = 0;
	n->ready.n = 0;
	n->far = 0;
	n->far_at = 0;
	RS_LOOP(i, RS_UNIT_WORDS)
		n->mask[i] = 0;
}

enum rs_change_phase { RS_CHANGE_LEAVE = 0, RS_CHANGE_START = 1 };

/*
 * Who comes to p is held, where its policy is changing and nobody has begun under the new one
 * (change.c).
 */
RS_INLINE u32 rs_change_holds(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	return (p->throttled & RS_FROZEN) && t->change_phase == RS_CHANGE_LEAVE ? RS_HELD : 0;
}

/* Slots ever used when `index` is one of them. */
RS_INLINE u32 rs_slots_with(struct rs_tree RS_ARENA *t, u32 index)
{
	u32 open = t->nodes_used, hidden = t->hidden_used;

	if (index >= t->nodes_open && t->nodes_max - index > hidden)
		hidden = t->nodes_max - index;
	else if (index < t->nodes_open && index >= open)
		open = index + 1;
	return open + hidden;
}

/* In the list of p's children. */
RS_INLINE void rs_hang(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *n)
{
	n->before = 0;
	n->next = p->kids;
	if (p->kids)
		t->nodes[(p->kids - 1) & (RS_NODES_MAX - 1)].before = n->index + 1;
	p->kids = n->index + 1;
	p->nchildren++;
}

/* The shape: the slot is taken and hangs under its parent. `op` keeps what was in the slot. */
RS_FN int rs_node_create(struct rs_tree RS_ARENA *t, struct rs_op RS_BATCH_MEM *op)
{
	u32 index = (u32)op->node, gen = op->node >> 32;
	struct rs_node RS_ARENA *p = rs_node_at(t, op->parent), *n;

	if (index >= t->nodes_max || !gen)
		return RS_EINVAL;
	n = &t->nodes[index & (RS_NODES_MAX - 1)];
	if (!p)
		return RS_ENOENT;
	if (n->kind != RS_FREE)
		return RS_EEXIST;
	if (gen <= n->gen)
		return RS_ESTALE;
	if (p->kind != RS_SCHED || p->depth + 1 >= RS_DEPTH_MAX)
		return RS_EINVAL;
	if (!(op->a == RS_SCHED && policy_known(op->b)) && !(op->a == RS_QUEUE && op->b < RS_CLASS_COUNT))
		return RS_EINVAL;
	if (!rs_heap_reserve(t, &p->ready, p->nchildren + 1) || !rs_heap_reserve(t, &n->ready, 1) ||
	    (p->aside_on && !rs_heap_reserve(t, &p->aside, p->aside_on * (p->nchildren + 1))) ||
	    !rs_heap_reserve(t, &t->throttle, rs_slots_with(t, index)))
		return RS_ENOSPC;
	if (index >= t->nodes_open) {
		if (t->nodes_max - index > t->hidden_used)
			t->hidden_used = t->nodes_max - index;
	} else if (index >= t->nodes_used) {
		t->nodes_used = index + 1;
	}
	op->undo = (u64)n->parent;
	op->undo2 = (u64)n->gen << 32 | n->depth;
	rs_node_reset(n);
	n->index = index;
	n->gen = gen;
	n->kind = op->a;
	n->alg = op->b; /* at once: something may move below it in this batch */
	n->aside_on = op->a == RS_SCHED ? policy_aside(op->b) : 0;
	n->change = 0;
	n->throttled = rs_change_holds(t, p);
	n->dying = 0;
	n->depth = p->depth + 1;
	n->nchildren = 0;
	n->kids = 0;
	n->members = 0;
	n->parent = p;
	n->tag.base = p->vb;
	n->wsum = 0;
	n->promised = 0;
	p->wsum += n->weight; /* of who was in the slot before, until rs_node_fresh */
	rs_hang(t, p, n);
	return RS_DONE;
}

/* Take the node out of the tree; its slot and heap array wait for the next create. */
RS_FN int rs_node_delete(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u32 drain)
{
	if (n->index < 2)
		return RS_EINVAL; /* the root and q0 */
	if (n->nchildren)
		return RS_EBUSY;
	if (n->members) {
		if (!drain)
			return RS_EBUSY;
		n->dying = 1;
		return RS_DRAINING;
	}
	rs_node_gone(t, n);
	return RS_DONE;
}

RS_FN_VOID(rs_node_reweight, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u32 w),
	   (t, n, w))
{
	struct rs_node RS_ARENA *p = n->parent;

	if (w == n->weight)
		return;
	if (n->weight && !w && n->runnable) {
		p->nrun--;
		policy_idle(t, p, n);
	}
	policy_reweight(t, p, n, w);
	if (!n->weight && n->runnable)
		p->nrun++;
	p->wsum += w;
	p->wsum -= n->weight;
	n->weight = w;
	if (n->link.pos)
		rs_heap_rekey(t, &p->ready, policy_key(t, p, n), rs_seq_for(t, n), &n->link);
	rs_refresh(t, p);
}

/*
 * The durable rest of a new node. Its weight is 0 until it is given one; until now it had that of
 * who was in the slot before, and something may have moved below it.
 */
RS_FN_VOID(rs_node_fresh, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u32 alg),
	   (t, n, alg))
{
	rs_node_reweight(t, n, 0);
	n->alg = alg;
	n->members_max = 0;
	n->service = 0;
	n->service_base = 0;
	n->served = 0;
	n->throttled_ns = 0;
	n->cap.ppm = 0;
	n->cap.burst = 0;
	n->cap.tok = 0;
	n->cap.rem = 0;
	n->cap.at = 0;
	n->quantum_own = 0;
	n->quantum = n->parent->quantum;
	if (t->quanta)
		t->quanta = 1; /* it may be its parent's former one */
	n->lag_ns = 0;
	n->turn_ns = 0;
	n->decay_ns = 0;
	n->request_ns = 0;
	n->priority = RS_PRIORITY_DEFAULT;
}

/* Whether a tunable's value is one, at that kind of node. */
RS_INLINE int rs_tune_ok(struct rs_node RS_ARENA *n, u64 which, u64 value)
{
	if (which == RS_TUNE_QUANTUM)
		return value <= RS_QUANTUM_MAX;
	if (n->kind != RS_SCHED)
		return 0;
	return (which == RS_TUNE_LAG || which == RS_TUNE_TURN || which == RS_TUNE_DECAY) && value <= RS_TUNE_NS_MAX;
}

RS_FN_VOID(rs_node_tune, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 which,
	   u64 value), (t, n, which, value))
{
	switch (which) {
	case RS_TUNE_QUANTUM:
		n->quantum_own = value;
		rs_quantum_later(t);
		break;
	case RS_TUNE_LAG:
		n->lag_ns = value;
		break;
	case RS_TUNE_TURN:
		n->turn_ns = value;
		break;
	case RS_TUNE_DECAY:
		n->decay_ns = value;
		break;
	}
	if (n->kind == RS_SCHED && which != RS_TUNE_QUANTUM)
		policy_tuned(t, n);
}

RS_INLINE int rs_param_ok(struct rs_node RS_ARENA *n, u64 which, u64 value)
{
	if (!n->parent)
		return 0;
	return which == RS_PARAM_PRIORITY ? value <= RS_PRIORITY_MAX
					  : which == RS_PARAM_REQUEST && value <= RS_TUNE_NS_MAX;
}

/* Policies look at it when they next order the child. */
RS_INLINE void rs_node_param(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 which, u64 value)
{
	if (which == RS_PARAM_PRIORITY) {
		n->priority = value;
		if (n->link.pos)
			rs_heap_rekey(t, &n->parent->ready, policy_key(t, n->parent, n), rs_seq_for(t, n), &n->link);
	} else
		n->request_ns = value;
}

RS_FN_VOID(rs_node_cap, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 ppm, u64 burst,
	   u64 now), (t, n, ppm, burst, now))
{
	if (!burst) {
		burst = rs_muldiv(RS_CAP_KEPT_NS, ppm, 1000000);
		if (burst < 2 * t->quantum)
			burst = 2 * t->quantum;
	}
	if (n->cap.ppm)
		rs_cap_refill(&n->cap, now);
	if (n->throttled & RS_CAPPED)
		rs_unthrottle(t, n, now);
	if (!n->cap.ppm || n->cap.tok > (s64)burst)
		n->cap.tok = burst;
	n->cap.ppm = ppm;
	n->cap.burst = burst;
	n->cap.rem = 0;
	n->cap.at = now;
	if (ppm && n->cap.tok <= 0) {
		rs_throttle(t, n, now);
		rs_refresh(t, n);
	}
}

/*
 * The queue's items keep their order as far as the keys of the new class are equal. The heap is
 * sorted in place: each first one goes behind what is left of the heap, then all are turned round,
 * and stamped anew in that order. So the edit refuses it where many wait (RS_SORTED_MAX): a section
 * has a bound. The caller refreshes, whose stack has the room.
 */
RS_FN_VOID(rs_node_class, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u32 class),
	   (t, q, class))
{
	struct rs_entry RS_ARENA *e = q->ready.e;
	u32 n = q->ready.n, done = rs_zero;

	if (class == q->alg)
		return;
	if (!q->nsvc && n && class_keyed(q))
		rs_clock_advance(&q->clock, e[0].key);
	q->alg = class;
	/* Tags of another class mean nothing: those who are idle or in service start anew too. */
	q->clock.epoch++;
	RS_LOOP(i, RS_UNITS_HERE) {
		struct rs_item RS_ARENA *it = t->unit[i & (RS_UNITS_MAX - 1)].item;

		if (it && it->queue == q)
			rs_tag_new(&q->clock, &it->tag);
	}
	RS_LOOP(i, n) {
		struct rs_link RS_ARENA *first = e[0].obj;

		rs_heap_erase(t, &q->ready, first);
		e[q->ready.n].obj = first;
		done++;
	}
	RS_LOOP(i, n / 2) {
		struct rs_link RS_ARENA *x = e[i].obj;

		e[i].obj = e[n - 1 - i].obj;
		e[n - 1 - i].obj = x;
	}
	RS_LOOP(i, n) {
		struct rs_item RS_ARENA *it = (struct rs_item RS_ARENA *)e[i].obj;
		u64 key = class_enqueue(t, q, it, RS_WHY_MOVE);

		rs_heap_put(e, i, key, it->seq, &it->link);
	}
	q->ready.n = n;
	if (done != n)
		rs_poison(t, RS_POISON_HEAP_LOOP);
	rs_heap_rebuild(t, &q->ready);
	q->far = 0;
}

#if RS_LENGTHS
/*
 * Before an edit that asks for the first policy that goes by lengths: they have not been looked at
 * until now. From the first piece on they are followed, and the slots from `from` on are looked at.
 * Answers where to go on; 0: that was all.
 */
RS_FN u32 rs_lengths_some(struct rs_tree RS_ARENA *t, u32 from)
{
	u32 all = t->nodes_used + t->hidden_used, few = rs_zero;

	t->mode |= RS_MODE_LENGTH;
	RS_LOOP(i, RS_LENGTHS_SLOTS) {
		struct rs_node RS_ARENA *n;

		if (from >= all || few >= RS_LENGTHS_PIECE)
			break;
		n = rs_slot(t, from);
		from++;
		if (n->kind != RS_QUEUE || !n->ready.n)
			continue;
		rs_refresh(t, n);
		few++;
	}
	return from < all ? from : 0;
}
#endif

/* What policies and items ask of the whole tree. */
RS_FN_VOID(rs_mode_update, (struct rs_tree RS_ARENA *t), (t))
{
	u32 mode = t->periodic ? RS_MODE_SLICE : 0;

	RS_LOOP(i, t->nodes_used) {
		struct rs_node RS_ARENA *n = &t->nodes[i & (RS_NODES_MAX - 1)];

		if (n->kind != RS_SCHED)
			continue;
		mode |= policy_mode(n->alg);
		if (RS_LENGTHS && n->change) /* it has what that needs before its children come to it */
			mode |= policy_mode(n->change - 1);
	}
	if (RS_LENGTHS && (mode & ~t->mode & RS_MODE_LENGTH)) {
		t->mode = mode;
		/* Lengths have not been looked at until now. */
		RS_LOOP(i, t->nodes_used + t->hidden_used) {
			struct rs_node RS_ARENA *n = rs_slot(t, i);

			if (n->kind == RS_QUEUE && n->ready.n)
				rs_refresh(t, n);
		}
	}
	t->mode = mode;
}

/*
 * Add (sign 1) or take away (-1) what is in service below n from its ancestors' counts, below
 * `top`.
 */
RS_FN_VOID(rs_service_of, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, s32 sign,
	   struct rs_node RS_ARENA *top), (t, n, sign, top))
{
	struct rs_node RS_ARENA *p = n->parent;

	if (!n->nsvc)
		return;
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!p || p == top)
			break;
		policy_sync(p);
		p = p->parent;
	}
	p = n->parent;
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!p || p == top)
			break;
		p->nsvc += sign * (s32)n->nsvc;
		p->res += sign * (s64)n->res;
		if (p->parent)
			policy_reserve(t, p->parent, p);
		if (p->link.pos && n->res) {
#if RS_DISK
			policy_ready(t, p->parent, p);
#endif
			rs_heap_rekey(t, &p->parent->ready, policy_key(t, p->parent, p), rs_seq_for(t, p), &p->link);
		}
		p = p->parent;
	}
}

/*
 * All below n, once each, going down first: their depths are those of who stands above them, after
 * n's own changed. Answers how many levels there are, n's included; 0: there are more than `most`,
 * and so many of them, the same each time, have their new depths.
 */
RS_FN u32 rs_levels(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u32 most)
{
	struct rs_node RS_ARENA *x = n;
	u32 levels = rs_zero + 1, level = levels, up = rs_zero, met = rs_zero; /* see rs_zero */

	if (n->kind == RS_QUEUE || !n->nchildren)
		return 1;
	RS_LOOP(i, 2 * RS_NODES_MAX) {
		if (!up && x->kids) {
			x = &t->nodes[(x->kids - 1) & (RS_NODES_MAX - 1)];
			level++;
		} else if (x == n) {
			t->walked += met;
			return levels;
		} else if (x->next) {
			x = &t->nodes[(x->next - 1) & (RS_NODES_MAX - 1)];
			up = 0;
		} else {
			x = x->parent;
			level--;
			up = 1;
			continue;
		}
		if (++met > most)
			return 0;
		if (level > levels)
			levels = level;
		x->depth = n->depth + level - 1;
	}
	rs_poison(t, RS_POISON_SCAN);
	return RS_DEPTH_MAX;
}

/* The subtree hangs under `to` from now on: nothing is charged, tags as of a new child. */
RS_FN int rs_node_move(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, struct rs_node RS_ARENA *to)
{
	struct rs_node RS_ARENA *from = n->parent, *x = to, *top;
	u32 depth = n->depth, was_throttled = n->throttled, nsvc = n->nsvc, most, levels;

	if (!from || !to || to->kind != RS_SCHED)
		return RS_EINVAL;
	if (from == to)
		return RS_DONE;
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!x)
			break;
		if (x == n)
			return RS_ELOOP;
		x = x->parent;
	}
	if (!rs_heap_reserve(t, &to->ready, to->nchildren + 1) ||
	    (to->aside_on && !rs_heap_reserve(t, &to->aside, to->aside_on * (to->nchildren + 1))))
		return RS_ENOSPC;
	t->walked += RS_WALKED_MOVE + RS_WALKED_LEVEL * (from->depth + to->depth);
	if (t->walked > RS_WALKED_MAX)
		return RS_EBUSY;
	most = RS_WALKED_MAX - t->walked;
	/*
	 * Once through all below, as it will be, in one section with interrupts off: so not for more
	 * than RS_WALKED_MAX in a batch. And once more where that is too deep, or too much.
	 */
	n->depth = to->depth + 1;
	if (n->depth != depth) {
		levels = rs_levels(t, n, most);
		if (!levels || to->depth + levels >= RS_DEPTH_MAX) {
			n->depth = depth;
			rs_levels(t, n, most);
			return levels ? RS_EINVAL : RS_EBUSY;
		}
	}
	/* The lowest common ancestor, and all above it, see nothing of the move. */
	top = from;
	x = to;
	RS_LOOP(d, 2 * RS_DEPTH_MAX) {
		if (top == x || !top || !x)
			break;
		if (top->depth > x->depth)
			top = top->parent;
		else
			x = x->parent;
	}
	/* Make it idle for its parent, as a throttled node without steps in service is. */
	rs_service_of(t, n, -1, top);
	n->throttled |= RS_CAPPED;
	n->nsvc = 0;
	rs_refresh_one(t, n);
	/* A ghost's leaving moves V, and what is above looks at that. */
	policy_leave(t, from, n);
	rs_child_reset(n);
	x = from;
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!x || x == top)
			break;
		rs_refresh_one(t, x);
		x = x->parent;
	}
	rs_unhang(t, from, n);
	from->wsum -= n->weight;
	rs_hang(t, to, n);
	to->wsum += n->weight;
	n->parent = to;
	n->throttled = (was_throttled & ~(RS_HELD | RS_KNOWN)) | rs_change_holds(t, to);
	n->nsvc = nsvc;
	rs_service_of(t, n, 1, top);
	rs_tag_new(&to->clock, &n->tag);
	n->tag.epoch = to->clock.epoch - 1;
	if (!n->weight)
		n->tag.base = to->vb;
	x = n;
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!x || !x->parent)
			break;
		rs_refresh_one(t, x);
		x = x->parent;
	}
	return RS_DONE;
}
