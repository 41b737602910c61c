/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues of packets, and the tree over them. All of this is under the tree's lock.
 *
 * A queue with packets is one item of its node: woken by the first packet, picked by the tree, charged with the bytes that left, and queued again while
 * packets are left. So a packet costs the path from its queue to the root once, however many wait. The charge is the packet's length as the
 * device will send it (qdisc_pkt_len: with the headers of all segments of a large one), known when it is picked: nothing is estimated.
 */

/* What lay in the slot of a node that is gone means nothing. */
RS_FN void rn_fresh(struct rs_node RS_ARENA *n)
{
	struct rn_queue RS_ARENA *q = rn_queue(n);

	asm volatile("" : : "r"(&arena));
	if (q->gen == n->gen)
		return;
	q->gen = n->gen;
	q->head = 0;
	q->tail = 0;
	q->packets = 0;
	q->bytes = 0;
	q->dropped = 0;
	q->dropped_bytes = 0;
	q->item = 0;
	q->taken = 0;
}

/* The node's item, made if it must be; 0: there is no room. */
RS_FN_PTR(struct rs_item RS_ARENA, rn_item, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n), (t, n))
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	struct rs_item RS_ARENA *it;

	rn_fresh(n);
	it = q->item;
	if (it)
		return (u64)it;
	it = rs_item_alloc(t);
	if (!it)
		return 0;
	if (!rs_item_join(t, it, n)) {
		rs_item_free(t, it);
		return 0;
	}
	it->owner = n->index;
	q->item = it;
	return (u64)it;
}

/* The queue has a first packet, or another one: how long it is decides under wf2q+. */
RS_FN void rn_head(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rn_queue RS_ARENA *q)
{
	if (q->head && !t->poison)
		rs_item_length(t, it, rn_place(q->head)->bytes);
}

RS_FN void rn_wake(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 now)
{
	if (it->state != RS_IDLE || t->poison)
		return;
	rn_head(t, it, rn_queue(it->queue));
	rs_wake(t, it, now);
}

/* The queue of a handle; what is stale, or none, is q0's. */
RS_FN_PTR(struct rs_node RS_ARENA, rn_node_of, (struct rs_tree RS_ARENA *t, u64 id), (t, id))
{
	struct rs_node RS_ARENA *n = id ? rs_node_at(t, id) : 0;

	return (u64)(n && n->kind == RS_QUEUE ? n : &t->nodes[1]);
}

static __always_inline u32 rn_limit_packets(struct rs_node RS_ARENA *n, u32 otherwise)
{
	return n->members_max ? n->members_max : otherwise;
}

/*
 * A packet of `bytes` for queue `id` comes. Answers its slot, where it now waits, or 0: it must be dropped. Limits are the packets' and bytes' of
 * the queue (the higher half of `limits` is bytes); one packet always has room.
 */
RS_FN u32 rn_admit(u64 id, u32 bytes, u64 limits, u64 raw)
{
	struct rs_tree RS_ARENA *t = rn_tree();
	struct rn_queue RS_ARENA *q;
	struct rn_place RS_ARENA *p;
	struct rs_node RS_ARENA *n;
	struct rs_item RS_ARENA *it;
	u64 now = rn_clock(raw);
	u32 slot;

	n = rn_node_of(t, id);
	it = rn_item(t, n);
	q = rn_queue(n);
	slot = free_place;
	if (!it || (!slot && places_used >= RN_PACKETS) ||
	    (q->packets && (q->packets >= rn_limit_packets(n, limits) || q->bytes + bytes > limits >> 32))) {
		q->dropped++;
		q->dropped_bytes += bytes;
		return 0;
	}
	if (slot)
		free_place = rn_place(slot)->next;
	else
		slot = ++places_used;
	p = rn_place(slot);
	p->next = 0;
	p->bytes = bytes;
	if (q->tail)
		rn_place(q->tail)->next = slot;
	else
		q->head = slot;
	q->tail = slot;
	q->packets++;
	q->bytes += bytes;
	rn_wake(t, it, now);
	return slot;
}

/* The first packet of a queue leaves it. Answers its slot; 0: none. */
RS_FN u32 rn_take(struct rn_queue RS_ARENA *q)
{
	struct rn_place RS_ARENA *p;
	u32 slot;

	asm volatile("" : : "r"(&arena));
	slot = q->head;
	if (!slot)
		return 0;
	p = rn_place(slot);
	q->head = p->next;
	if (!q->head)
		q->tail = 0;
	q->packets--;
	q->bytes -= p->bytes;
	p->next = free_place;
	free_place = slot;
	return slot;
}

/* The tree is inconsistent: the daemon revives it. Until then packets leave in no promised order, none is kept. */
RS_FN u32 rn_choose_any(void)
{
	struct rs_tree RS_ARENA *t = rn_tree();

	RS_LOOP(i, t->nodes_used) {
		struct rs_node RS_ARENA *n = &t->nodes[i & (RS_NODES_MAX - 1)];
		u32 slot;

		if (n->kind != RS_QUEUE || rn_queue(n)->gen != n->gen)
			continue;
		slot = rn_take(rn_queue(n));
		if (slot)
			return slot;
	}
	return 0;
}

/* The slot of the packet that the device should send now; 0: none, and wait_ns says when to ask again. */
RS_FN u32 rn_choose(u64 rate, u64 raw)
{
	struct rs_tree RS_ARENA *t = rn_tree();
	struct rn_queue RS_ARENA *q;
	struct rs_item RS_ARENA *it;
	u64 now = rn_clock(raw), work;
	u32 slot;

	wait_ns = 0;
	if (rate && rs_before(now, next_ns)) {
		wait_ns = next_ns;
		return 0;
	}
	if (t->poison) {
		slot = rn_choose_any();
	} else {
		it = rs_pick(t, 0, now);
		if (!it) {
			wait_ns = t->next_ns;
			return 0;
		}
		q = rn_queue(it->queue);
		slot = rn_take(q);
		work = slot ? rn_place(slot)->bytes : 0;
		if (!slot)
			rs_poison(t, RS_POISON_STATE);
		rn_head(t, it, q);
		rs_settle(t, it, work, q->packets != 0, now);
	}
	if (slot && rate) {
		u64 take = (u64)rn_place(slot)->bytes * 1000000000ULL + next_rem;

		if (rs_before(next_ns, now - RN_BURST_NS)) {
			next_ns = now - RN_BURST_NS;
			take -= next_rem;
		}
		next_ns += take / rate;
		next_rem = take % rate;
	}
	return slot;
}

/* The node's item is taken out of the tree; its packets stay where they are. */
RS_FN void rn_detach(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	struct rs_item RS_ARENA *it;

	rn_fresh(n);
	it = q->item;
	q->item = 0;
	q->taken = 1 + n->dying;
	n->dying = 0; /* the caller deletes it, not the last member's end */
	if (!it)
		return;
	if (it->state == RS_QUEUED)
		rs_remove(t, it);
	rs_item_leave(t, it);
}

/* And is in it again: the batch that would have deleted the node was refused. */
RS_FN void rn_attach(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 now)
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	struct rs_item RS_ARENA *it;

	if (!q->taken)
		return;
	it = rn_item(t, n);
	n->dying = q->taken - 1;
	q->taken = 0;
	if (it && q->packets)
		rn_wake(t, it, now);
}

/* The packets of a node that is gone go to the end of q0, in their order. */
RS_FN void rn_hand_over(struct rs_tree RS_ARENA *t, struct rn_queue RS_ARENA *from, u64 now)
{
	struct rs_node RS_ARENA *n = &t->nodes[1];
	struct rs_item RS_ARENA *it;
	struct rn_queue RS_ARENA *to = rn_queue(n);

	asm volatile("" : : "r"(&arena));
	from->taken = 0;
	if (!from->packets)
		return;
	it = rn_item(t, n);
	if (to->tail)
		rn_place(to->tail)->next = from->head;
	else
		to->head = from->head;
	to->tail = from->tail;
	to->packets += from->packets;
	to->bytes += from->bytes;
	from->head = 0;
	from->tail = 0;
	from->packets = 0;
	from->bytes = 0;
	if (it)
		rn_wake(t, it, now);
}

/* Everything that waits is forgotten: the caller has dropped it. */
RS_FN void rn_forget(void)
{
	struct rs_tree RS_ARENA *t = rn_tree();

	rs_tree_reset(t);
	free_place = 0;
	places_used = 0;
	next_ns = 0;
	next_rem = 0;
	RS_LOOP(i, t->nodes_used) {
		struct rn_queue RS_ARENA *q = rn_queue(&t->nodes[i & (RS_NODES_MAX - 1)]);

		q->head = 0;
		q->tail = 0;
		q->packets = 0;
		q->bytes = 0;
	}
}

/* The volatile half of the tree anew; every queue with packets is awake. */
RS_FN void rn_revive(u64 now)
{
	struct rs_tree RS_ARENA *t = rn_tree();

	rs_tree_reset(t);
	RS_LOOP(i, t->nodes_used) {
		struct rs_node RS_ARENA *n = &t->nodes[i & (RS_NODES_MAX - 1)];
		struct rs_item RS_ARENA *it;

		if (n->kind != RS_QUEUE || rn_queue(n)->gen != n->gen || !rn_queue(n)->packets)
			continue;
		it = rn_item(t, n);
		if (it)
			rn_wake(t, it, now);
	}
}
