/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues of class drr: many connections share one queue fairly. A flow, the packets of one
 * connection, is an item of the queue's node; sched/class_drr.c gives them turns. It is there while
 * it has packets: whoever has none has neither deficit nor credit, so nothing is lost with it.
 *
 * Which flow: the kernel's hash of a packet (addresses, ports, protocol; for a socket of TCP its
 * own random number), 32 bits under a key that the kernel makes anew at each boot, so nobody
 * chooses whose flow he shares. Flows are told apart by the whole of it: of n connections in one
 * queue, two share a flow with a probability of n^2 / 2^33.
 *
 * A queue that becomes drr while packets wait keeps these in front of all flows (rn_queue.own), and
 * one that is it no longer has its flows' packets flow by flow: so no packet comes before one that
 * its connection sent earlier. The queue's own are also packets of connections for which there is
 * no flow left, RN_FLOWS at once on an interface: in front of the flows, in the order of their
 * coming. Nobody can take flows from others but in this.
 */

static __always_inline u32 RS_ARENA *rn_bucket(u32 hash, u32 node)
{
	u32 RS_ARENA *all = (u32 RS_ARENA *)buckets_at;

	return &all[(hash ^ node * 0x9e3779b1U) & (RN_FLOWS - 1)];
}

static __always_inline struct rs_item RS_ARENA *rn_flow_item(struct rs_tree RS_ARENA *t, u32 flow)
{
	return &t->items[(flow - 1) & (RS_ITEMS_MAX - 1)];
}

/* The flow of a queue with that hash; 0: it has no packets. */
RS_FN_PTR(struct rs_item RS_ARENA, rn_flow_find, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u32 hash), (t, n, hash))
{
	u32 at = *rn_bucket(hash, n->index);

	RS_LOOP(i, RN_FLOWS) {
		struct rn_flow RS_ARENA *f;

		if (!at)
			break;
		f = rn_flow(at - 1);
		if (f->hash == hash && f->node == n->index)
			return (u64)rn_flow_item(t, at);
		at = f->chain;
	}
	return 0;
}

/* A new one; 0: there is no room for it. */
RS_FN_PTR(struct rs_item RS_ARENA, rn_flow_new, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u32 hash), (t, n, hash))
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	u32 RS_ARENA *bucket = rn_bucket(hash, n->index);
	u32 max = n->members_max, joined;
	struct rs_item RS_ARENA *it;
	struct rn_flow RS_ARENA *f;

	/* A queue of its own has an item in any case. */
	if (flows_used >= RN_FLOWS)
		return 0;
	it = rs_item_alloc(t);
	if (!it)
		return 0;
	n->members_max = 0; /* it counts packets here */
	joined = rs_item_join(t, it, n);
	n->members_max = max;
	if (!joined) {
		rs_item_free(t, it);
		return 0;
	}
	it->owner = n->index;
	f = rn_flow(it->index);
	rn_list_clear(&f->list);
	f->hash = hash;
	f->node = n->index;
	f->chain = *bucket;
	*bucket = it->index + 1;
	f->prev = 0;
	f->next = q->flows;
	if (q->flows)
		rn_flow(q->flows - 1)->prev = it->index + 1;
	q->flows = it->index + 1;
	flows_used++;
	return (u64)it;
}

/* An idle flow goes. */
RS_FN_VOID(rn_flow_end, (struct rs_tree RS_ARENA *t, struct rn_queue RS_ARENA *q,
	   struct rs_item RS_ARENA *it), (t, q, it))
{
	struct rn_flow RS_ARENA *f = rn_flow(it->index);
	u32 RS_ARENA *at = rn_bucket(f->hash, f->node);
	u32 name = it->index + 1;

	RS_LOOP(i, RN_FLOWS) {
		if (!*at || *at == name)
			break;
		at = &rn_flow(*at - 1)->chain;
	}
	if (*at == name)
		*at = f->chain;
	if (f->prev)
		rn_flow(f->prev - 1)->next = f->next;
	else
		q->flows = f->next;
	if (f->next)
		rn_flow(f->next - 1)->prev = f->prev;
	flows_used--;
	rs_item_leave(t, it);
}

/*
 * Some flows of a queue end, or all of few; their packets are the queue's own, flow by flow, behind
 * what was older. One whose packet the link has stays. The caller wakes the queue's item. Answers
 * whether there are more.
 */
RS_FN u32 rn_merge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	u32 at = q->flows;

	RS_LOOP(i, RN_MERGE_PIECE) {
		struct rs_item RS_ARENA *it;

		if (!at)
			break;
		it = rn_flow_item(t, at);
		at = rn_flow(it->index)->next;
		if (it->state == RS_SERVICE)
			continue;
		if (it->state == RS_QUEUED)
			rs_remove(t, it);
		rn_list_append(&q->own, &rn_flow(it->index)->list);
		rn_flow_end(t, q, it);
	}
	return at != 0;
}

/* A packet of any flow, while the tree is inconsistent. */
RS_FN u32 rn_flows_take(struct rn_queue RS_ARENA *q)
{
	u32 at = q->flows;

	RS_LOOP(i, RN_FLOWS) {
		struct rn_flow RS_ARENA *f;

		if (!at)
			break;
		f = rn_flow(at - 1);
		if (f->list.packets)
			return rn_take(q, &f->list);
		at = f->next;
	}
	return 0;
}
