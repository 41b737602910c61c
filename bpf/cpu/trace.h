/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tracer: what the tree did, event by event, for whoever asks (`reserv trace`).
 *
 * Problem. Fairness theorems speak of service between any two instants at which two siblings both
 * want it. Counters that are read now and then cannot show that; the events can, and they are known
 * exactly under the tree's lock, in the order in which they happened.
 *
 * Rules.
 *   1. Off, each event costs the reading of one flag.
 *   2. The reader brings the ring: a ring buffer in the only slot of the map `trace`. So no memory
 *      is held while nobody looks.
 *   3. Records are written under the tree's lock, so their order is the order of the events on all
 *      CPUs.
 *   4. A trace begins and ends with the whole tree (nodes with their counters, who waits, who is in
 *      service and for how long), in the same section in which the flag changes. Hence sums of
 *      records equal differences of counters, exactly.
 *   5. A record that finds no room is counted, and makes the trace incomplete. 65 536 of them in a
 *      row: the reader has gone, and the flag goes too.
 */
#ifndef RESERV_CPU_TRACE_H
#define RESERV_CPU_TRACE_H

#define RC_TRACE_GONE 65536

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, RC_PAGE);
	});
} trace SEC(".maps");

/* Under the lock, as trace_on. */
u32 trace_missed; /* in a row */
u64 trace_lost;
u64 trace_owner; /* the reader's pid, 0: none */
u32 trace_told; /* records of a list of the tree */
u32 trace_pause; /* the list may be long */
#define RC_TRACE_MOST 1000 /* records of a list, where it may not: a section with interrupts off */

/* under the lock; not on the stack, of which there is little where wake-ups happen */
struct rc_trace trace_record;

/* `who`: tid | unit << 32 | kind << 48 | flags << 56. */
RS_FN_VOID(rc_trace_out, (u64 who, u64 node, u64 node2, u64 work), (who, node, node2, work))
{
	struct rc_trace *r = &trace_record;
	u32 zero = 0;
	void *ring = bpf_map_lookup_elem(&trace, &zero);

	trace_told++;
	r->at = clock_max;
	r->node = node;
	r->node2 = node2;
	r->work = work;
	r->tid = who;
	r->unit = who >> 32;
	r->kind = who >> 48;
	r->flags = who >> 56;
	if (ring && !bpf_ringbuf_output(ring, r, sizeof(*r), BPF_RB_NO_WAKEUP)) {
		trace_missed = 0;
		return;
	}
	trace_lost++;
	if (++trace_missed >= RC_TRACE_GONE)
		trace_on = 0;
}

#define RC_TRACE_WHO(kind, tid, unit, flags)                                                                      \
	((u64)(u32)(tid) | (u64)((unit) & 0xffff) << 32 | (u64)(kind) << 48 | (u64)(flags) << 56)

static __always_inline u64 rc_trace_node_id(struct rs_node RS_ARENA *n)
{
	return n ? pl_id(n) : 0;
}

/* An event of one item; `node2` and `work` by kind (abi.h). */
static __always_inline void rc_trace_item(u32 kind, u32 flags, struct rs_item RS_ARENA *it, u64 node2, u64 work)
{
	if (rc_traced())
		rc_trace_out(RC_TRACE_WHO(kind, it->owner2, it->unit, flags), rc_trace_node_id(it->queue), node2, work);
}

/*
 * What a policy that goes by more than weights keeps of its child n. The lag is exact but for the
 * fraction of V.
 */
RS_FN_VOID(rc_trace_child, (struct rs_node RS_ARENA *n), (n))
{
	struct rs_node RS_ARENA *p = n->parent;
	u32 client = policy_client(p, n);
	u64 lag = 0;

	if (client)
		lag = (s64)(n->weight * (p->clock.v - n->tag.base)) >> RS_TAG_SHIFT;
	rc_trace_out(RC_TRACE_WHO(RC_TRACE_CHILD, n->priority, 0, client ? RC_TRACE_CLIENT : 0), rc_trace_node_id(n),
		     n->request_ns, lag);
}

RS_FN_VOID(rc_trace_param, (struct rs_item RS_ARENA *it), (it))
{
	u32 flags = (it->edf.on ? RC_TRACE_BEGUN : 0) | (it->seq & RS_SEQ_BACKGROUND ? RC_TRACE_SPENT : 0);

	rc_trace_out(RC_TRACE_WHO(RC_TRACE_PARAM, it->owner2, 0, 0), it->period_ns, it->deadline_ns, it->budget_ns);
	rc_trace_out(RC_TRACE_WHO(RC_TRACE_SERVER, it->owner2, 0, flags), it->edf.due, it->edf.release, edf_left(it));
}

/* A node as it is now. */
RS_FN_VOID(rc_trace_node, (struct rs_node RS_ARENA *n), (n))
{
	u32 flags = (n->kind == RS_QUEUE ? RC_TRACE_QUEUE : 0) | (n->cap.ppm ? RC_TRACE_CAPPED : 0);

	rc_trace_out(RC_TRACE_WHO(RC_TRACE_NODE, n->weight, n->alg, flags), rc_trace_node_id(n),
		     rc_trace_node_id(n->parent), n->service);
	u64 told;

	if (n->kind == RS_SCHED && policy_told(n, &told))
		rc_trace_out(RC_TRACE_WHO(RC_TRACE_TUNE, 0, 0, 0), rc_trace_node_id(n), told, n->quantum);
	if (n->parent && policy_told(n->parent, &told))
		rc_trace_child(n);
}

static __always_inline bool rc_trace_too_many(void)
{
	return trace_told > RC_TRACE_MOST && !trace_pause;
}

/*
 * The whole tree, between two records of `kind`; false, and without the second one, where that is
 * too much for one section. If the reader says so it is not: then interrupts are off for some
 * milliseconds, at both ends of a trace.
 */
static __always_inline bool rc_trace_all(struct rs_tree RS_ARENA *t, u32 kind)
{
	trace_told = 0;
	rc_trace_out(RC_TRACE_WHO(kind, forced_count, cpus, 0), t->seq, t->starved, t->quantum);
	RS_LOOP(i, RS_NODES_MAX) {
		if (i >= t->nodes_used)
			break;
		if (rc_trace_too_many())
			return false;
		if (t->nodes[i & (RS_NODES_MAX - 1)].kind != RS_FREE)
			rc_trace_node(&t->nodes[i & (RS_NODES_MAX - 1)]);
	}
	RS_LOOP(i, RS_ITEMS_MAX) {
		struct rs_item RS_ARENA *it = &t->items[i & (RS_ITEMS_MAX - 1)];
		u32 service, floor;

		if (i >= t->items_used)
			break;
		/* Mostly a thread sleeps, and there may be thousands. */
		if (it->state == RS_IDLE && !it->floor && !(it->flags & RS_ITEM_PERIODIC))
			continue;
		if (it->state == RS_ITEM_FREE || it->state == RS_POSTED || !it->queue)
			continue;
		if (rc_trace_too_many())
			return false;
		if (it->flags & RS_ITEM_PERIODIC)
			rc_trace_param(it);
		service = it->state == RS_SERVICE;
		floor = it->floor;
		if (it->state == RS_IDLE && !floor)
			continue;
		rc_trace_out(RC_TRACE_WHO(RC_TRACE_ITEM, it->owner2, it->unit,
					  (service ? RC_TRACE_SERVICE : 0) | (floor ? RC_TRACE_FLOORED : 0)),
			     rc_trace_node_id(it->queue), 0, service ? rc_ran(it, clock_max) : 0);
	}
	rc_trace_out(RC_TRACE_WHO(kind, forced_count, cpus, RC_TRACE_DONE), t->seq, t->starved, t->quantum);
	return true;
}

/* What an edit left of the nodes that it named. */
static __always_inline void rc_trace_edit(struct rs_tree RS_ARENA *t, struct rs_batch RS_ARENA *b)
{
	if (!trace_on || b->error)
		return;
	rc_trace_out(RC_TRACE_WHO(RC_TRACE_EDIT, 0, 0, 0), b->seq, 0, b->count);
	RS_LOOP(i, RS_BATCH_MAX) {
		u64 id = b->op[i & (RS_BATCH_MAX - 1)].node;
		struct rs_node RS_ARENA *n;

		if (i >= b->count)
			break;
		n = rs_node_at(t, id);
		if (n)
			rc_trace_node(n);
		else
			rc_trace_out(RC_TRACE_WHO(RC_TRACE_GONE_NODE, 0, 0, 0), id, 0, 0);
	}
}

/*
 * rs_wake and rs_remove, traced. A wake-up falls into the middle of a step: on one CPU its record
 * says whose, and how much of it has passed.
 */
static __always_inline void rc_wake(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 now)
{
	if (rc_traced()) {
		struct rs_item RS_ARENA *cur = cpus == 1 ? t->unit[0].item : 0;

		rc_trace_item(RC_TRACE_WAKE, 0, it, cur ? rc_trace_node_id(cur->queue) : 0,
			      cur ? rc_ran(cur, clock_max) : 0);
	}
	rs_wake(t, it, now);
}

/* Several CPUs: wake-ups that were posted just before the trace began. */
RS_FN_VOID(rc_trace_posted, (struct rs_item RS_ARENA *it), (it))
{
	RS_LOOP(i, RS_ITEMS_MAX) {
		if (!it)
			break;
		if (it->state == RS_POSTED)
			rc_trace_item(RC_TRACE_WAKE, 0, it, 0, 0);
		it = it->post;
	}
}

static __always_inline void rc_remove(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	if (rc_traced()) {
		pl_clock(scx_bpf_now());
		rc_trace_item(RC_TRACE_REMOVE, 0, it, 0, 0);
	}
	rs_remove(t, it);
}

static __always_inline int rc_trace_move(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it,
					 struct rs_node RS_ARENA *to, u64 work, u64 now)
{
	u64 from = rc_trace_node_id(it->queue);
	u32 unit = it->unit;

	if (!rs_item_move(t, it, to, work, now))
		return 0;
	if (rc_traced())
		rc_trace_out(RC_TRACE_WHO(RC_TRACE_MOVE, it->owner2, unit, 0), from, rc_trace_node_id(to), work);
	return 1;
}

#endif
