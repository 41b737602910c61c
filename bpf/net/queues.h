/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues of packets, and the tree over them. All of this is under the tree's lock.
 *
 * A queue with packets is one item of its node: woken by the first packet, picked by the tree, in
 * service while its packet is sent, charged with the bytes of it, and queued again while packets
 * are left. So a packet costs the path from its queue to the root once, however many wait. The
 * charge is the packet's length as the device will send it (qdisc_pkt_len: with the headers of all
 * segments of a large one), known when it is picked: nothing is estimated.
 *
 * A packet has been sent when the link asks for the next one (rn_sent), whether there is one or
 * not. Until then virtual times stand where its start put them, so who comes meanwhile joins as if
 * the link were served without a gap: charged when it is handed over, it would be tagged with those
 * that still wait, and SFQ-4 would not hold (L / C would be lost, and so in WF-2). The link asks in
 * dequeue, when the rate allows it; if nothing waited then, the next packet that comes finds that
 * it has (rn_coming).
 */

RS_INLINE void rn_list_clear(struct rn_list RS_ARENA *l)
{
	l->head = 0;
	l->tail = 0;
	l->packets = 0;
	l->bytes = 0;
}

/* All of `from` behind what waits in `to`. */
RS_FN_VOID(rn_list_append, (struct rn_list RS_ARENA *to, struct rn_list RS_ARENA *from), (to, from))
{
	asm volatile("" : : "r"(&arena));
	if (!from->head)
		return;
	if (to->tail)
		rn_place(to->tail)->next = from->head;
	else
		to->head = from->head;
	to->tail = from->tail;
	to->packets += from->packets;
	to->bytes += from->bytes;
	rn_list_clear(from);
}

/* Slots that are kept for a queue beyond those that its packets have. */
RS_INLINE u32 rn_owes(struct rn_queue RS_ARENA *q)
{
	return q->packets < q->room ? q->room - q->packets : 0;
}

/* A queue's own limits are others, or it is gone (0). */
RS_INLINE void rn_set_room(struct rn_queue RS_ARENA *q, u32 room)
{
	owed -= rn_owes(q);
	q->room = room;
	owed += rn_owes(q);
}

/* What lay in the slot of a node that is gone means nothing. */
RS_FN_VOID(rn_fresh, (struct rs_node RS_ARENA *n), (n))
{
	struct rn_queue RS_ARENA *q = rn_queue(n);

	asm volatile("" : : "r"(&arena));
	if (q->gen == n->gen)
		return;
	q->gen = n->gen;
	rn_set_room(q, 0);
	rn_list_clear(&q->own);
	q->packets = 0;
	q->limit_bytes = 0;
	q->bytes = 0;
	q->dropped = 0;
	q->dropped_bytes = 0;
	q->item = 0;
	q->flows = 0;
	q->taken = 0;
	q->merging = 0;
}

/* The node's item, made if it must be; 0: there is no room. */
RS_FN_PTR(struct rs_item RS_ARENA, rn_item, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n), (t, n))
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	struct rs_item RS_ARENA *it;

	rn_fresh(n);
	it = q->item;
	/* It has none while a batch deletes it. */
	if (it || q->taken)
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

/*
 * A list of packets has a first one, or another one: how long it is decides under wf2q+ and class
 * drr.
 */
RS_INLINE void rn_head(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rn_list RS_ARENA *l)
{
	if (l->head && !t->poison)
		rs_item_length(t, it, rn_place(l->head)->bytes);
}

RS_FN_VOID(rn_wake, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it,
	   struct rn_list RS_ARENA *l, u64 now), (t, it, l, now))
{
	if (it->state != RS_IDLE || t->poison)
		return;
	rn_head(t, it, l);
	rs_wake(t, it, now);
}

/* The first packet of a list of a queue leaves it. Answers its slot; 0: none. */
RS_INLINE u32 rn_take(struct rn_queue RS_ARENA *q, struct rn_list RS_ARENA *l)
{
	struct rn_place RS_ARENA *p;
	u32 slot;

	asm volatile("" : : "r"(&arena));
	slot = l->head;
	if (!slot)
		return 0;
	p = rn_place(slot);
	l->head = p->next;
	if (!l->head)
		l->tail = 0;
	l->packets--;
	l->bytes -= p->bytes;
	q->packets--;
	q->bytes -= p->bytes;
	waiting--;
	if (q->packets < q->room)
		owed++;
	p->next = free_place;
	free_place = slot;
	return slot;
}

#include "flows.h"

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

static __always_inline u32 rn_limit_bytes(struct rn_queue RS_ARENA *q, u32 otherwise)
{
	return q->limit_bytes ? q->limit_bytes : otherwise;
}

/*
 * Whether there is no room for a packet of `bytes` by the limits of a queue, one packet of which
 * always has room. `l`: its flow's packets in a queue of class drr, which may be as many as there
 * is room left: so n flows that always want have n / (n + 1) of the room, and whoever comes finds
 * some. 0: the flow has none.
 */
RS_INLINE u32 rn_full(struct rn_queue RS_ARENA *q, struct rn_list RS_ARENA *l, u32 bytes, u32 packets_max, u32 bytes_max)
{
	asm volatile("" : : "r"(&arena));
	if (!q->packets)
		return 0;
	if (q->packets >= packets_max || q->bytes + bytes > bytes_max)
		return 1;
	return l && l != &q->own && (l->packets >= packets_max - q->packets || l->bytes + bytes > bytes_max - q->bytes);
}

/*
 * Whether a queue without limits of its own finds no slot: those that are free are kept for others.
 */
RS_INLINE u32 rn_crowded(void)
{
	return waiting + owed >= RN_PACKETS;
}

/* A free slot for a packet; 0: there is none for this queue. */
RS_INLINE u32 rn_place_new(struct rn_queue RS_ARENA *q)
{
	u32 slot = free_place;

	asm volatile("" : : "r"(&arena));
	if (!q->room && rn_crowded())
		return 0;
	if (slot)
		free_place = rn_place(slot)->next;
	else if (places_used < RN_PACKETS)
		slot = ++places_used;
	return slot;
}

/*
 * The packet that the link has is sent: its item is charged, at the time at which it was handed
 * over (caps count from then), and queued again if it has more. A flow that has none ends.
 */
RS_FN_VOID(rn_sent, (struct rs_tree RS_ARENA *t), (t))
{
	u32 name = wire;
	struct rs_item RS_ARENA *it;
	struct rn_queue RS_ARENA *q;
	struct rn_list RS_ARENA *l;

	wire = 0;
	if (!name || t->poison)
		return;
	it = rn_flow_item(t, name);
	q = rn_queue(it->queue);
	l = it == q->item ? &q->own : &rn_flow(it->index)->list;
	rn_head(t, it, l);
	rs_settle(t, it, wire_bytes, l->packets != 0, wire_at);
	if (it != q->item && !l->packets)
		rn_flow_end(t, q, it);
}

/*
 * Before a queue's items are taken out of the tree (rn_detach, rn_merge: not there, for the stack
 * of the calls below has an end).
 */
RS_INLINE void rn_sent_of(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	if (wire && rn_flow_item(t, wire)->queue == n)
		rn_sent(t);
}

/* A packet comes: if none waited, the link may have asked for one since it got the last. */
RS_INLINE void rn_coming(void)
{
	if (wire && !waiting && (link_rate ? !rs_before(pl_clock(bpf_ktime_get_ns()), hold_ns) : asked))
		rn_sent(pl_tree());
}

/*
 * How much of the packet that the link has is sent, for policies that follow it; ~0: all, or it is
 * not known.
 */
RS_FN u32 rn_progress(u64 now)
{
	u64 left;

	if (!wire || !link_rate || !rs_before(now, next_ns))
		return ~0U;
	left = (next_ns - now) * link_rate / 1000000000ULL;
	return left < wire_bytes ? wire_bytes - left : 0;
}

/*
 * A packet of `bytes` for queue `id` comes. Answers its slot, where it now waits, or 0: it must be
 * dropped. Limits are the packets' and bytes' of the queue (the higher half of `limits` is bytes),
 * unless it has its own. `hash`: its flow's, with bit 32 set; 0: not known.
 */
RS_FN u32 rn_admit(u64 id, u32 bytes, u64 limits, u64 hash)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rn_queue RS_ARENA *q;
	struct rn_place RS_ARENA *p;
	struct rs_node RS_ARENA *n;
	struct rs_item RS_ARENA *it, *flow = 0;
	struct rn_list RS_ARENA *l;
	u32 slot = 0, by_flow;
	u64 now;

	/*
	 * Mostly it is a queue that has had packets before. Nodes that were never made have no
	 * memory (room.h).
	 */
	n = &t->nodes[(u32)id & (RS_NODES_MAX - 1)];
	if ((u32)id >= t->nodes_used || n->gen != id >> 32 || n->kind != RS_QUEUE)
		n = rn_node_of(t, id);
	q = rn_queue(n);
	it = q->item;
	if (q->gen != n->gen || !it)
		it = rn_item(t, n);
	by_flow = n->alg == drr_class && hash >> 32;
	if (by_flow)
		flow = rn_flow_find(t, n, hash);
	/* Whose flow has ended has his packets there already, in front of all that have not. */
	if (!flow && q->merging)
		by_flow = 0;
	l = !by_flow ? &q->own : flow ? &rn_flow(flow->index)->list : 0;
	if ((it || q->taken) && !rn_full(q, l, bytes, rn_limit_packets(n, limits), rn_limit_bytes(q, limits >> 32))) {
		if (by_flow && !flow) {
			flow = rn_flow_new(t, n, hash);
			/*
			 * no room for one more flow on this interface: this queue suffers it, no
			 * other loses its packets
			 */
			by_flow = flow != 0;
		}
		if (flow)
			it = flow;
		slot = rn_place_new(q);
	}
	if (!slot) {
		q->dropped++;
		q->dropped_bytes += bytes;
		if (flow && flow->state == RS_IDLE && !rn_flow(flow->index)->list.packets)
			rn_flow_end(t, q, flow);
		return 0;
	}
	l = by_flow ? &rn_flow(it->index)->list : &q->own;
	p = rn_place(slot);
	p->next = 0;
	p->bytes = bytes;
	if (l->tail)
		rn_place(l->tail)->next = slot;
	else
		l->head = slot;
	l->tail = slot;
	l->packets++;
	l->bytes += bytes;
	q->packets++;
	q->bytes += bytes;
	waiting++;
	if (q->packets <= q->room)
		owed--;
	/* A queue that is taken away is woken, or its packets are q0's, when its batch has ended. */
	if (!it || (it->state != RS_IDLE && !(t->mode & RS_MODE_ARRIVALS)))
		return slot;
	now = pl_clock(bpf_ktime_get_ns());
	if (rs_by_length(t))
		t->progress = rn_progress(now);
	if ((t->mode & RS_MODE_ARRIVALS) && !t->poison)
		rs_arrive(t, it, bytes);
	if (it->state == RS_IDLE)
		rn_wake(t, it, l, now);
	return slot;
}

/*
 * The tree is inconsistent: the daemon revives it. Until then packets leave in no promised order,
 * none is kept.
 */
RS_FN u32 rn_choose_any(void)
{
	struct rs_tree RS_ARENA *t = pl_tree();

	RS_LOOP(i, t->nodes_used) {
		struct rs_node RS_ARENA *n = &t->nodes[i & (RS_NODES_MAX - 1)];
		u32 slot;

		if (n->kind != RS_QUEUE || rn_queue(n)->gen != n->gen)
			continue;
		slot = rn_take(rn_queue(n), &rn_queue(n)->own);
		if (!slot)
			slot = rn_flows_take(rn_queue(n));
		if (slot)
			return slot;
	}
	return 0;
}

/* The slot of a packet of the item that was picked, which the link now has; 0 poisons the tree. */
RS_INLINE u32 rn_serve(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 now)
{
	struct rn_queue RS_ARENA *q = rn_queue(it->queue);
	struct rs_item RS_ARENA *base = q->item;
	/* What is older than the flows leaves by whoever's turn. */
	u32 slot = rn_take(q, q->own.head || it == base ? &q->own : &rn_flow(it->index)->list);

	if (!slot) {
		rs_poison(t, RS_POISON_STATE);
		return 0;
	}
	wire = it->index + 1;
	wire_bytes = rn_place(slot)->bytes;
	wire_at = now;
	asked = 0;
	/* The queue's own item waits only for packets that are in no flow. */
	if (it != base && base && base->state == RS_QUEUED) {
		if (q->own.packets)
			rn_head(t, base, &q->own);
		else
			rs_remove(t, base);
	}
	return slot;
}

/*
 * The slot of the packet that the device should send now; 0: none, and wait_ns says when to ask
 * again.
 */
RS_FN u32 rn_choose(u64 raw)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it;
	u64 now = pl_clock(raw);
	u32 slot;

	wait_ns = 0;
	rn_sent(t);
	if (t->poison) {
		slot = rn_choose_any();
	} else {
		it = rs_pick(t, 0, now);
		if (!it) {
			wait_ns = t->next_ns;
			if ((t->changes || anew || taken_away) && (!wait_ns || rs_before(now + RN_AGAIN_NS, wait_ns)))
				wait_ns = now + RN_AGAIN_NS; /* the daemon's calls cannot wake the device */
			return 0;
		}
		slot = rn_serve(t, it, now);
	}
	if (slot && link_rate) {
		u64 take = (u64)rn_place(slot)->bytes * 1000000000ULL + next_rem;

		if (rs_before(next_ns, now - RN_BURST_NS)) {
			next_ns = now - RN_BURST_NS;
			take -= next_rem;
		}
		next_ns += take / link_rate;
		next_rem = take % link_rate;
		if (!rs_before(next_ns, now + ahead_ns))
			hold_ns = next_ns;
	}
	return slot;
}

/* The node's item is taken out of the tree; its packets stay where they are. */
RS_FN_VOID(rn_detach, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n), (t, n))
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	struct rs_item RS_ARENA *it;

	rn_fresh(n);
	rn_merge(t, n);
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
RS_FN_VOID(rn_attach, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 now),
	   (t, n, now))
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	struct rs_item RS_ARENA *it;
	u32 taken = q->taken;

	if (!taken)
		return;
	q->taken = 0;
	it = rn_item(t, n);
	n->dying = taken - 1;
	if (it && q->packets)
		rn_wake(t, it, &q->own, now);
}

/* The packets of a node that is gone go to the end of q0, in their order. */
RS_FN_VOID(rn_hand_over, (struct rs_tree RS_ARENA *t, struct rn_queue RS_ARENA *from, u64 now),
	   (t, from, now))
{
	struct rs_node RS_ARENA *n = &t->nodes[1];
	struct rs_item RS_ARENA *it;
	struct rn_queue RS_ARENA *to = rn_queue(n);

	asm volatile("" : : "r"(&arena));
	from->taken = 0;
	if (!from->packets)
		return;
	it = rn_item(t, n);
	owed -= rn_owes(to);
	to->packets += from->packets;
	owed += rn_owes(to);
	to->bytes += from->bytes;
	from->packets = 0;
	from->bytes = 0;
	rn_list_append(&to->own, &from->own);
	if (it)
		rn_wake(t, it, &to->own, now);
}

/*
 * Everything begins anew: RN_FORGET, the caller has dropped what waits, and each queue counts its
 * own; RN_REMAKE, no packet is lost. This is the first section of it.
 */
RS_FN_VOID(rn_anew_begin, (u32 how), (how))
{
	struct rs_tree RS_ARENA *t = pl_tree();

	rn_sent(t);
	rs_tree_reset_begin(t);
	anew = how;
	anew_at = 0;
	if (how == RN_REMAKE) {
		rs_poison(t, RS_POISON_STATE); /* packets leave in no order meanwhile */
		return;
	}
	free_place = 0;
	places_used = 0;
	waiting = 0;
	owed = 0;
	next_ns = 0;
	hold_ns = 0;
	next_rem = 0;
}

/* A piece of the queues has nothing any more, nor have their flows. */
RS_FN u32 rn_clear_some(u32 at)
{
	struct rs_tree RS_ARENA *t = pl_tree();

	RS_LOOP(i, RN_CLEAR_PIECE) {
		struct rn_queue RS_ARENA *q = rn_queue(&t->nodes[at & (RS_NODES_MAX - 1)]);

		if (at >= t->nodes_used)
			return 0;
		if (q->flows) {
			rn_flow_end(t, q, rn_flow_item(t, q->flows));
			continue;
		}
		rn_list_clear(&q->own);
		q->dropped += q->packets;
		q->dropped_bytes += q->bytes;
		q->packets = 0;
		q->bytes = 0;
		owed += rn_owes(q);
		at++;
	}
	return at;
}

/* Of a piece of the queues those with packets of their own are woken. */
RS_FN u32 rn_wake_queues(u32 at, u64 now)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	u32 few = rs_zero;

	RS_LOOP(i, RN_WAKE_LOOKS) {
		struct rs_node RS_ARENA *n = &t->nodes[at & (RS_NODES_MAX - 1)];
		struct rs_item RS_ARENA *it;

		if (at >= t->nodes_used)
			return 0;
		if (few >= RN_WAKE_PIECE)
			break;
		at++;
		if (n->kind != RS_QUEUE || rn_queue(n)->gen != n->gen || !rn_queue(n)->own.packets)
			continue;
		few++;
		it = rn_item(t, n);
		if (it)
			rn_wake(t, it, &rn_queue(n)->own, now);
	}
	return at;
}

/* And of a piece of the items the flows; one without packets ends. */
RS_FN u32 rn_wake_flows(u32 at, u64 now)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	u32 few = rs_zero;

	RS_LOOP(i, RN_WAKE_LOOKS) {
		struct rs_item RS_ARENA *it = &t->items[at & (RS_ITEMS_MAX - 1)];
		struct rn_queue RS_ARENA *q;

		if (at >= t->items_used || !flows_used)
			return 0;
		if (few >= RN_WAKE_PIECE)
			break;
		at++;
		if (it->state != RS_IDLE || !it->queue)
			continue;
		q = rn_queue(it->queue);
		if (it == q->item)
			continue;
		few++;
		if (rn_flow(it->index)->list.packets)
			rn_wake(t, it, &rn_flow(it->index)->list, now);
		else
			rn_flow_end(t, q, it);
	}
	return at;
}

/*
 * The next piece of what is under way. Between two of them packets come and go, but while
 * everything is forgotten: nobody looks at more than names and counters then.
 */
RS_FN_VOID(rn_anew_some, (u64 now), (now))
{
	struct rs_tree RS_ARENA *t = pl_tree();
	u32 at = anew_at;

	switch (anew) {
	case RN_FORGET:
	case RN_REMAKE:
		at = rs_tree_reset_some(t, at) ? at + RS_RESET_PIECE : 0;
		if (!at && anew == RN_REMAKE)
			t->poison = 0;
		break;
	case RN_CLEAR:
		at = rn_clear_some(at);
		break;
	case RN_WAKE_QUEUES:
		at = rn_wake_queues(at, now);
		break;
	case RN_WAKE_FLOWS:
		at = rn_wake_flows(at, now);
		break;
	}
	anew_at = at;
	if (!at)
		anew = anew == RN_CLEAR || anew == RN_WAKE_FLOWS ? RN_WHOLE : anew + 1;
}

/* Whether what the queues have is of before a reset of the device's queue. */
RS_INLINE u32 rn_forgetting(void)
{
	return forget_due || anew == RN_FORGET || anew == RN_CLEAR;
}

#define RN_ANEW_MOST ((2 * RN_ITEMS + RN_FLOWS) / RN_WAKE_PIECE + 64)

/*
 * Everything begins anew, to its end; RN_WHOLE: what is left of that, if anything. Who comes upon
 * one that somebody else is at goes on with it: the two share the cursor. Answers 0 where the lock
 * could not be had.
 */
static __noinline int rn_anew(u32 how)
{
	unsigned long irq;
	u32 more;

	RS_LOOP(i, RN_ANEW_MOST) {
		PLANE_LOCK(irq, return 0);
		if (forget_due)
			how = RN_FORGET;
		if (how) {
			rn_anew_begin(how);
			forget_due = 0;
			how = RN_WHOLE;
		} else if (anew) {
			rn_anew_some(pl_clock(bpf_ktime_get_ns()));
		}
		more = anew;
		PLANE_UNLOCK(irq);
		if (!more)
			break;
	}
	return 1;
}
