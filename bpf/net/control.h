/* SPDX-License-Identifier: GPL-2.0-only */
/* The daemon's calls: SYSCALL programs, pinned, one run per call. The context is struct rn_call. */

#define RN_CALL(name) SEC("syscall") int name(struct rn_call *c)

/* The lock was not to be had. */
static __always_inline int rn_late(struct rn_call *c)
{
	c->answer = -E_TIMEDOUT;
	return 0;
}

/* An index as the verifier wants it: the compiler must not turn the loop into one over pointers. */
static __always_inline u32 rn_at(u32 i)
{
	asm volatile("" : "+r"(i));
	return i;
}

static __always_inline struct rn_io *rn_io(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&io, &zero);
}

/* Make an empty tree in the arena. Once. a: checksum of the object file. */
RN_CALL(rn_setup)
{
	struct rs_tree RS_ARENA *t = (struct rs_tree RS_ARENA *)RN_ARENA_AT;
	struct rn_state *s = rn_state();

	if (tree_at || !s)
		return 0;
	rn_parts();
	if (!rn_commit(RN_TREE, __builtin_offsetof(struct rs_tree, segment)) || !rn_commit(RN_BATCH, sizeof(struct rs_batch)) ||
	    !rn_commit(RN_PLACES, RN_PACKETS * sizeof(struct rn_place)) || !rn_commit(RN_POOL, RN_POOL_STEP) || !rn_commit_nodes(1, 0)) {
		c->answer = -E_NOMEM;
		return 0;
	}
	rs_tree_init(t, parts[RN_NODES].at, RS_TREE_BYTES(RS_NODES_MAX, RN_ITEMS), RS_NODES_MAX, RN_ITEMS);
	t->quantum = RN_QUANTUM; /* in bytes, as all work here */
	rs_quantum_all(t);
	rn_room_told(t);
	t->starve_ns = 0; /* RS_AGES */
	batch_at = parts[RN_BATCH].at;
	queues_at = parts[RN_QUEUES].at;
	places_at = parts[RN_PLACES].at;
	flows_at = parts[RN_TREE_FLOWS].at;
	buckets_at = parts[RN_BUCKETS].at;
	tree_at = (u64)t;
	s->magic = t->magic;
	s->abi = RN_ABI_VERSION;
	s->rs_abi = RS_ABI_VERSION;
	s->carry = RN_CARRY_VERSION;
	s->build = c->a;
	c->answer = 0;
	return 0;
}

/*
 * Before a batch: queues that it deletes give up their items, those that it drains get one, which
 * holds them.
 */
RS_FN_VOID(rn_before, (struct rs_tree RS_ARENA *t, struct rs_batch RS_ARENA *b), (t, b))
{
	RS_LOOP(i, b->count) {
		struct rs_op RS_ARENA *op = &b->op[i & (RS_BATCH_MAX - 1)];
		struct rs_node RS_ARENA *n;

		if (op->code != RS_OP_DELETE || (u32)op->node < 2)
			continue;
		n = rs_node_at(t, op->node);
		if (!n || n->kind != RS_QUEUE)
			continue;
		if (op->a == RN_DRAIN) {
			rn_item(t, n);
		} else if (taken_away != n->index + 1) {
			rn_sent_of(t, n);
			rn_detach(t, n);
		}
	}
}

/*
 * What a batch costs in one section of the lock, but for the ends of queues with packets: a weight
 * or a cap looks at each level of its path. Nobody but the daemon moves nodes: no lock is needed.
 */
static __noinline void rn_count_steps(void)
{
	struct rs_batch RS_ARENA *b = (struct rs_batch RS_ARENA *)batch_at;
	struct rs_tree RS_ARENA *t = pl_tree();
	u32 steps = rs_zero, level = rs_by_length(t) || lengths_asked ? RN_STEPS_BY_LENGTH : RN_STEPS_CHANGED;

	RS_LOOP(i, RS_BATCH_MAX) {
		struct rs_op RS_ARENA *op = &b->op[i & (RS_BATCH_MAX - 1)];

		if (i >= b->count)
			break;
		if (op->code == RS_OP_MOVE)
			steps += RN_STEPS_MOVED;
		else if (op->code == RS_OP_CREATE || op->code == RS_OP_DELETE || (u32)op->node >= t->nodes_open)
			steps += RN_STEPS_NEW;
		else
			steps += level * (t->nodes[(u32)op->node & (RS_NODES_MAX - 1)].depth + 1);
	}
	batch_steps = steps;
}

/* The queue with packets that an operation deletes; 0: it deletes none. */
RS_INLINE struct rs_node RS_ARENA *rn_deleted(struct rs_tree RS_ARENA *t,
					      struct rs_op RS_ARENA *op)
{
	struct rs_node RS_ARENA *n;

	if (op->code != RS_OP_DELETE || op->a == RN_DRAIN)
		return 0;
	n = rs_node_at(t, op->node);
	return n && n->kind == RS_QUEUE && n->runnable ? n : 0;
}

/*
 * The first queue with packets that the batch deletes leaves the tree. Its packets wait, and so do
 * those that come for it, until the batch is carried out, and they are q0's, or is refused, and it
 * is put back. Nothing of it can be seen but that none of them is sent meanwhile.
 */
RS_FN_VOID(rn_take_away, (struct rs_tree RS_ARENA *t, struct rs_batch RS_ARENA *b), (t, b))
{
	RS_LOOP(i, b->count) {
		struct rs_node RS_ARENA *n = rn_deleted(t, &b->op[i & (RS_BATCH_MAX - 1)]);

		if (!n)
			continue;
		rn_sent_of(t, n);
		rn_detach(t, n);
		taken_away = n->index + 1;
		break;
	}
}

/* It is in the tree again; while everything begins anew, when its packets are woken, or come. */
RS_FN_VOID(rn_put_back, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 now),
	   (t, n, now))
{
	struct rn_queue RS_ARENA *q = rn_queue(n);

	if (!rn_forgetting() && anew != RN_REMAKE) {
		rn_attach(t, n, now);
		return;
	}
	n->dying = q->taken - 1;
	q->taken = 0;
}

/*
 * The operation with which a batch is too long for one section, from 1; 0: it is not. Each queue
 * with packets that is deleted goes twice through the heaps of its path, and as often again where
 * the batch is refused; of one of them that has been done before (rn_away).
 */
RS_FN u32 rn_too_long(struct rs_tree RS_ARENA *t, struct rs_batch RS_ARENA *b)
{
	u32 all = batch_steps;

	if (b->count < 2)
		return 0;
	RS_LOOP(i, b->count) {
		struct rs_node RS_ARENA *n = rn_deleted(t, &b->op[i & (RS_BATCH_MAX - 1)]);

		if (!n)
			continue;
		all += RN_STEPS_DELETED * (n->depth + 1);
		if (all > RN_STEPS_MAX)
			return i + 1;
	}
	return all > RN_STEPS_MAX ? b->count : 0;
}

/*
 * Packets for which a queue with limits of its own is promised slots: as many as the daemon admits
 * them for (crates/model/src/backlog.rs). Of bytes alone it is what they hold of the shortest
 * packets, and no more than queues usually have.
 */
RS_FN u32 rn_room_of(struct rs_node RS_ARENA *n, struct rn_queue RS_ARENA *q)
{
	struct rn_state *s = rn_state();
	u32 packets = rn_limit_packets(n, s ? s->limit_packets : 0), shortest = q->limit_bytes / 32 + 1;

	asm volatile("" : : "r"(&arena));
	if (!n->members_max && !q->limit_bytes)
		return 0;
	return q->limit_bytes && shortest < packets ? shortest : packets;
}

/*
 * The class of a queue has changed: what waits is in no flow if there are none, and what comes will
 * be in one if there are.
 */
RS_FN_VOID(rn_classed, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n, u64 now),
	   (t, n, now))
{
	struct rn_queue RS_ARENA *q = rn_queue(n);

	if (n->alg == drr_class) {
		flows_wanted = 1;
		return;
	}
	rn_merge(t, n);
	if (q->item && q->own.packets)
		rn_wake(t, q->item, &q->own, now);
}

/*
 * A piece of the flows of a queue that will have none; not `whole`: the device's queue is being
 * reset, with which they end. Answers whether there are more.
 */
RS_FN u32 rn_merge_some(struct rs_tree RS_ARENA *t, u64 id, u32 whole)
{
	struct rs_node RS_ARENA *n = rs_node_at(t, id);
	struct rn_queue RS_ARENA *q;
	u32 more;

	if (!n || n->kind != RS_QUEUE)
		return 0;
	rn_fresh(n);
	q = rn_queue(n);
	q->merging = 1;
	if (!whole)
		return 0;
	more = rn_merge(t, n);
	if (q->item && q->own.packets)
		rn_wake(t, q->item, &q->own, pl_clock(bpf_ktime_get_ns()));
	return more;
}

/*
 * Before a batch: the flows of queues that it deletes, or whose class will not be drr, end a piece
 * at a time. Where the batch is refused they are flows again as packets come. Answers 0 where the
 * lock could not be had.
 */
static __noinline int rn_merges(void)
{
	struct rs_batch RS_ARENA *b = (struct rs_batch RS_ARENA *)batch_at;
	struct rs_tree RS_ARENA *t = pl_tree();
	unsigned long irq;
	u32 at = rs_zero, more;

	RS_LOOP(i, RS_BATCH_MAX + RN_FLOWS / RN_MERGE_PIECE + 1) {
		struct rs_op RS_ARENA *op = &b->op[at & (RS_BATCH_MAX - 1)];

		if (at >= b->count)
			break;
		more = 0;
		if (op->code == RS_OP_DELETE ? op->a != RN_DRAIN : op->code == RS_OP_CLASS && op->a != drr_class) {
			PLANE_LOCK(irq, return 0);
			more = rn_merge_some(t, op->node, !anew && !forget_due);
			PLANE_UNLOCK(irq);
		}
		at += !more;
	}
	return 1;
}

/*
 * Before a batch that asks for the first policy that goes by lengths (rs_lengths_some). Answers 0
 * where the lock could not be had: what has begun goes on with the next one.
 */
static __noinline int rn_lengths(void)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	unsigned long irq;

	if (!lengths_asked || ((t->mode & RS_MODE_LENGTH) && !lengths_at))
		return 1;
	RS_LOOP(i, RS_NODES_MAX / RS_LENGTHS_PIECE + 1) {
		PLANE_LOCK(irq, return 0);
		lengths_at = anew || forget_due ? 0 : rs_lengths_some(t, lengths_at);
		PLANE_UNLOCK(irq);
		if (!lengths_at)
			break;
	}
	return 1;
}

/*
 * A section before a batch, in which the end of a queue with packets is begun where the batch's own
 * would be too long with it (`take`; rn_too_long lets one such deletion pass); and one after a
 * batch that was refused, in which it is put back. Answers 0 where the lock could not be had: then
 * the next batch puts it back.
 */
static __noinline int rn_away(u32 take)
{
	struct rs_batch RS_ARENA *b = (struct rs_batch RS_ARENA *)batch_at;
	struct rs_tree RS_ARENA *t = pl_tree();
	unsigned long irq;

	if (!take && !taken_away)
		return 1;
	PLANE_LOCK(irq, return 0);
	b->now = pl_clock(bpf_ktime_get_ns());
	t->progress = rn_progress(b->now);
	if (taken_away)
		rn_put_back(t, &t->nodes[(taken_away - 1) & (RS_NODES_MAX - 1)], b->now);
	taken_away = 0;
	if (take && !anew && !forget_due)
		rn_take_away(t, b);
	PLANE_UNLOCK(irq);
	return 1;
}

RS_FN_VOID(rn_after, (struct rs_tree RS_ARENA *t, struct rs_batch RS_ARENA *b), (t, b))
{
	RS_LOOP(i, b->count) {
		struct rs_op RS_ARENA *op = &b->op[i & (RS_BATCH_MAX - 1)];
		struct rn_queue RS_ARENA *q;
		struct rs_node RS_ARENA *n;

		if ((u32)op->node >= t->nodes_open)
			continue;
		n = &t->nodes[(u32)op->node & (RS_NODES_MAX - 1)];
		q = rn_queue(n);
		q->merging = 0;
		if (op->code == RS_OP_DELETE) {
			if (q->gen != op->node >> 32 || !q->taken)
				continue;
			if (b->error) {
				if (taken_away != n->index + 1)
					rn_attach(t, n, b->now);
			} else {
				rn_set_room(q, 0);
				rn_hand_over(t, q, b->now);
			}
			continue;
		}
		/* A later operation of the batch may have deleted it. */
		if (b->error || n->kind != RS_QUEUE || n->gen != op->node >> 32)
			continue;
		rn_fresh(n);
		if (op->code == RS_OP_RESET) {
			q->dropped = 0;
			q->dropped_bytes = 0;
		} else if (op->code == RS_OP_LIMIT) {
			q->limit_bytes = op->b;
			rn_set_room(q, rn_room_of(n, q));
		} else if (op->code == RS_OP_CLASS || op->code == RS_OP_CREATE) {
			rn_sent_of(t, n);
			rn_classed(t, n, b->now);
		}
	}
}

/* Under the lock: the counters of `state` that live in the tree. */
static __always_inline void rn_note(struct rs_tree RS_ARENA *t, struct rn_state *s)
{
	s->seq = t->seq;
	s->nodes_used = t->nodes_used;
	s->poison = t->poison;
	s->poison_line = t->poison_line;
}

/* io->batch is applied, whole or not at all. */
RN_CALL(rn_edit)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_batch RS_ARENA *b = (struct rs_batch RS_ARENA *)batch_at;
	struct rn_state *s = rn_state();
	struct rn_io *in = rn_io();
	u64 raw = bpf_ktime_get_ns();
	u32 count, tries;

	if (!tree_at || !s || !in || in->batch.count > RS_BATCH_MAX) {
		c->answer = -E_INVAL;
		return 0;
	}
	count = in->batch.count;
	RS_LOOP(i, RS_BATCH_MAX) {
		struct rs_op *op;

		if (i >= count)
			break;
		op = &in->batch.op[rn_at(i) & (RS_BATCH_MAX - 1)];
		b->op[i].code = op->code;
		b->op[i].answer = 0;
		b->op[i].node = op->node;
		b->op[i].parent = op->parent;
		b->op[i].a = op->a;
		b->op[i].b = op->b;
	}
	b->seq = in->batch.seq;
	b->count = count;
	b->failed = 0;
	b->error = rn_room(b);
	if (!b->error && (!rn_anew(RN_WHOLE) || !pl_changes() || !rn_merges() || !rn_lengths()))
		return rn_late(c);
	rn_count_steps();
	if (!b->error && !rn_away(batch_steps > RN_STEPS_MAX - RN_STEPS_DELETED * RS_DEPTH_MAX))
		return rn_late(c);
	bpf_for(tries, 0, RN_POOL_TRIES) {
		if (b->error && (!tries || b->error != RS_ENOSPC || !rn_pool_more()))
			break;
		PLANE_LOCK(irq, return rn_late(c));
		if (anew || forget_due) { /* the device's queue was reset just now */
			PLANE_UNLOCK(irq);
			if (!rn_anew(RN_WHOLE))
				return rn_late(c);
			continue;
		}
		rn_room_told(t);
		b->now = pl_clock(raw);
		t->progress = rn_progress(b->now);
		b->failed = rn_too_long(t, b);
		if (b->failed) {
			b->failed--;
			b->error = RS_E2BIG;
		} else {
			rn_before(t, b);
			rs_edit(t, b);
		}
		rn_after(t, b);
		if (!b->error)
			taken_away = 0;
		rn_note(t, s);
		PLANE_UNLOCK(irq);
		if (!b->error)
			break;
	}
	if (!rn_away(0))
		return rn_late(c);
	/* The batch is in effect: what is left of it, if anything, comes before the next. */
	pl_changes();
	pl_quanta();
	RS_LOOP(i, RS_BATCH_MAX) {
		if (i >= count)
			break;
		in->batch.op[rn_at(i) & (RS_BATCH_MAX - 1)].answer = b->op[i].answer;
	}
	in->batch.error = b->error;
	in->batch.failed = b->failed;
	c->answer = b->error;
	return 0;
}

static __always_inline void rn_node_read(struct rs_node RS_ARENA *n, struct rn_node *out, struct rn_state *s)
{
	struct rn_queue RS_ARENA *q = rn_queue(n);
	u32 there = n->kind == RS_QUEUE && q->gen == n->gen, sending = wire && n->nsvc;

	out->id = pl_id(n);
	out->parent = n->parent ? pl_id(n->parent) : 0;
	/* Counters are of packets that were handed to the link, sent or not. */
	out->service = n->service + (sending ? wire_bytes : 0);
	out->service_base = n->service_base;
	out->served = n->served + sending;
	out->throttled_ns = n->throttled_ns;
	out->cap_ppm = n->cap.ppm;
	out->cap_burst = n->cap.burst;
	out->bytes = there ? q->bytes : 0;
	out->dropped = there ? q->dropped : 0;
	out->dropped_bytes = there ? q->dropped_bytes : 0;
	out->weight = n->weight;
	out->packets = there ? q->packets : 0;
	out->limit_packets = n->kind == RS_QUEUE ? rn_limit_packets(n, s->limit_packets) : 0;
	out->limit_bytes = there ? rn_limit_bytes(q, s->limit_bytes) : n->kind == RS_QUEUE ? s->limit_bytes : 0;
	out->kind = n->kind;
	out->alg = n->alg;
	out->throttled = n->throttled & RS_CAPPED;
	out->dying = n->dying;
}

/*
 * Slots first … first + RN_SAMPLES_MAX: those in use are written to io->node, their number to
 * count; `first` goes on.
 */
RN_CALL(rn_sample)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rn_state *s = rn_state();
	struct rn_io *out = rn_io();
	u32 got = rs_zero, first = c->first, n = 0;

	if (!tree_at || !out || !s) {
		c->answer = -E_INVAL;
		return 0;
	}
	PLANE_LOCK(irq, return rn_late(c));
	RS_LOOP(i, RN_SAMPLES_MAX) {
		u32 at = first + i;

		n = i + 1;
		if (at >= t->nodes_used || at >= RS_NODES_MAX)
			break;
		if (t->nodes[at].kind == RS_FREE)
			continue;
		rn_node_read(&t->nodes[at], &out->node[rn_at(got) & (RN_SAMPLES_MAX - 1)], s);
		got++;
	}
	if (first + n > t->nodes_used)
		n = t->nodes_used - first;
	rn_note(t, s);
	PLANE_UNLOCK(irq);
	c->count = got;
	c->first = first + n;
	c->what = t->nodes_used;
	c->answer = 0;
	return 0;
}

/* One node, by handle, into io->node[0]; and the counters of `state` that live in the tree. */
RN_CALL(rn_sample_one)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rn_state *s = rn_state();
	struct rn_io *out = rn_io();
	struct rs_node RS_ARENA *n;
	u64 id = c->node;
	s32 answer = 0;

	if (!tree_at || !out || !s) {
		c->answer = -E_INVAL;
		return 0;
	}
	PLANE_LOCK(irq, return rn_late(c));
	n = rs_node_at(t, id);
	if (n)
		rn_node_read(n, &out->node[0], s);
	else
		answer = -E_STALE;
	rn_note(t, s);
	PLANE_UNLOCK(irq);
	c->answer = answer;
	return 0;
}

/* The counters of io->node[i] are added to those of that node here, if it is there. */
RS_FN_VOID(rn_add, (u32 i), (i))
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rn_io *in = rn_io();
	struct rn_queue RS_ARENA *q;
	struct rs_node RS_ARENA *n;
	struct rn_node *from;

	if (!in)
		return;
	from = &in->node[rn_at(i) & (RN_SAMPLES_MAX - 1)];
	n = rs_node_at(t, from->id);
	if (!n)
		return;
	n->service += from->service;
	n->service_base += from->service_base;
	n->served += from->served;
	n->throttled_ns += from->throttled_ns;
	if (n->kind != RS_QUEUE)
		return;
	rn_fresh(n);
	q = rn_queue(n);
	q->dropped += from->dropped;
	q->dropped_bytes += from->dropped_bytes;
}

/*
 * The counters of io->node, `count` of them, are added to those of the same nodes here: the
 * programs before had counted them. They are the nodes from index `first` on, and the next call has
 * those from `what` on; a call that has been made changes nothing, so that whoever died after it
 * may make it again.
 */
RN_CALL(rn_carry)
{
	unsigned long irq;
	struct rn_state *s = rn_state();
	struct rn_io *in = rn_io();
	u32 count = c->count, first = c->first, next = c->what;
	s32 answer = 0;

	if (!tree_at || !in || !s || next <= first || next >= RN_FOLLOWS_ALL - 1) {
		c->answer = -E_INVAL;
		return 0;
	}
	PLANE_LOCK(irq, return rn_late(c));
	if (s->follows != first + 1) {
		answer = -E_STALE;
		count = 0;
	} else {
		s->follows = next + 1;
	}
	RS_LOOP(i, RN_SAMPLES_MAX) {
		if (i >= count)
			break;
		rn_add(i);
	}
	PLANE_UNLOCK(irq);
	c->answer = answer;
	return 0;
}

/* The small ones: enum rn_what. */
RN_CALL(rn_do)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rn_state *s = rn_state();
	struct rs_node RS_ARENA *n;
	u64 raw = bpf_ktime_get_ns(), id = c->node, a = c->a, b = c->b;
	u32 what = c->what;
	s32 answer = 0;

	if (!tree_at || !s) {
		c->answer = -E_INVAL;
		return 0;
	}
	if (what == RN_EMPTY) {
		c->answer = s->attached != s->detached ? -E_BUSY : 0;
		if (!c->answer) {
			tree_at = 0;
			rn_uncommit();
		}
		return 0;
	}
	if (what == RN_REVIVE) {
		/* Who was not woken yet sends nothing: nobody takes this CPU from us. */
		bpf_preempt_disable();
		c->answer = rn_anew(RN_REMAKE) ? 0 : -E_TIMEDOUT;
		bpf_preempt_enable();
		return 0;
	}
	if (what == RN_SECTION) {
		s->section_ns = section_longest;
		s->section_line = section_line;
		section_longest = 0;
		c->answer = 0;
		return 0;
	}
	PLANE_LOCK(irq, return rn_late(c));
	switch (what) {
	case RN_RATE: {
		/* What is owed (rn_next: at most a packet and RN_AHEAD) is paid at the new rate. */
		u64 now = pl_clock(raw), owed_ns = rs_before(now, next_ns) ? next_ns - now : 0;

		if (owed_ns && link_rate && a) {
			next_ns = now + owed_ns * link_rate / a;
			if (rs_before(now, hold_ns))
				hold_ns = next_ns;
		}
		s->rate = a;
		link_rate = a;
		ahead_ns = a ? RN_AHEAD * 1000000000ULL / a : 0;
		next_rem = 0;
		break;
	}
	case RN_LIMIT:
		s->limit_packets = a;
		s->limit_bytes = b;
		break;
	case RN_DEVICE:
		s->ifindex = a;
		s->netns = b;
		break;
	case RN_COLLECT:
		n = rs_node_at(t, id);
		if (!n || n->kind != RS_QUEUE || !n->dying) {
			answer = -E_STALE;
			break;
		}
		if (rn_queue(n)->packets || anew || forget_due || t->changes) {
			answer = -E_BUSY;
			break;
		}
		rn_sent_of(t, n);
		rn_detach(t, n);
		rn_set_room(rn_queue(n), 0);
		answer = rs_node_delete(t, n, 0);
		break;
	case RN_FOLLOW:
		s->follows = 1;
		break;
	case RN_CARRIED:
		if (!s->follows || s->follows == RN_FOLLOWS_ALL) {
			answer = -E_STALE;
			break;
		}
		__sync_fetch_and_add(&s->flushed, a);
		__sync_fetch_and_add(&s->flushed_bytes, b);
		__sync_fetch_and_add(&s->no_room, id);
		s->follows = RN_FOLLOWS_ALL;
		break;
	case RN_ALONE:
		s->follows = 0;
		break;
	default:
		answer = -E_INVAL;
	}
	PLANE_UNLOCK(irq);
	c->answer = answer;
	return 0;
}
