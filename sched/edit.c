/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Edits of a tree: one batch is applied whole or not at all, under the tree's lock, and its
 * sequence number is kept in the header, so that the journal knows after a crash whether it
 * happened. Ids are the caller's; a stale or taken one is an error.
 *
 * A batch is gone through twice. The first time creates, deletes and moves happen, as far as the
 * shape of the tree goes, and all else is only checked; where something is refused, the shape is
 * put back in reverse order, and nothing has changed. The second time cannot fail: what is new is
 * initialised, and weights, caps, classes, limits and counters change. One thing is not put back: a
 * node that moved, or was deleted, comes back to its old parent as a newcomer, with neither debt
 * nor credit.
 */

/*
 * One operation: in the first pass (`commit` 0) the shape of the tree changes and all else is
 * checked, in the second all else changes. A node that a later operation of the batch deletes is
 * gone in the second.
 */
RS_FN int rs_edit_one(struct rs_tree RS_ARENA *t, struct rs_op RS_BATCH_MEM *op, u64 now, u32 commit)
{
	struct rs_node RS_ARENA *n;

	if ((u32)op->node >= t->nodes_open)
		return op->code == RS_OP_CREATE ? RS_EINVAL : RS_ENOENT;
	if ((op->code == RS_OP_CREATE || op->code == RS_OP_MOVE) && (u32)op->parent >= t->nodes_open)
		return RS_ENOENT;
	if (op->code == RS_OP_CREATE && !commit)
		return rs_node_create(t, op);
	n = rs_node_at(t, op->node);
	if (!n)
		return RS_ENOENT;
	/* What q0 is to its siblings is the front's; what it is to its members stays its own. */
	if (n->index == 1 && op->code != RS_OP_CLASS && op->code != RS_OP_LIMIT && op->code != RS_OP_DELETE)
		n = t->front;
	switch (op->code) {
	case RS_OP_CREATE:
		rs_node_fresh(t, n, op->b);
		return RS_DONE;
	case RS_OP_DELETE:
		if (commit)
			return RS_DONE;
		op->undo = n->kind | (u32)n->throttled << 8 | (u32)n->dying << 16;
		op->undo2 = n->throttled_at;
		return rs_node_delete(t, n, op->a);
	case RS_OP_MOVE:
		if (commit) {
			if (!n->quantum_own && n->quantum != n->parent->quantum)
				rs_quantum_later(t);
			return RS_DONE;
		}
		if ((u32)op->node < 2)
			return RS_EINVAL; /* the root and q0 */
		op->undo = (u64)n->parent;
		return rs_node_move(t, n, rs_node_at(t, op->parent));
	case RS_OP_REWEIGHT:
		if (!n->parent || op->a > RS_WEIGHT_MAX || ((u32)op->node == 1 && !op->a))
			return RS_EINVAL;
		if (commit)
			rs_node_reweight(t, n, op->a);
		return RS_DONE;
	case RS_OP_CAP:
		if (!n->parent || op->a > 1000000ULL * RS_UNITS_MAX || op->b > 1000000000000ULL)
			return RS_EINVAL;
		if (commit)
			rs_node_cap(t, n, op->a, op->b, now);
		return RS_DONE;
	case RS_OP_CLASS:
		if (n->kind != RS_QUEUE || op->a >= RS_CLASS_COUNT)
			return RS_EINVAL;
		if (!commit && !rs_device(t) && op->a != n->alg)
			t->sorted += n->ready.n;
		if (t->sorted > RS_SORTED_MAX)
			return RS_EBUSY;
		if (commit) {
			rs_node_class(t, n, op->a);
			if (rs_by_length(t))
				rs_refresh(t, n);
		}
		return RS_DONE;
	case RS_OP_POLICY:
		if (n->kind != RS_SCHED || !policy_known(op->a))
			return RS_EINVAL;
		if (!commit)
			return rs_node_room(t, n, op->a);
		rs_node_policy(t, n, op->a);
		return RS_DONE;
	case RS_OP_LIMIT:
		if (n->kind != RS_QUEUE || op->a > RS_ITEMS_MAX)
			return RS_EINVAL;
		if (commit)
			n->members_max = op->a;
		return RS_DONE;
	case RS_OP_TUNE:
		if (!rs_tune_ok(n, op->a, op->b))
			return RS_EINVAL;
		if (commit)
			rs_node_tune(t, n, op->a, op->b);
		return RS_DONE;
	case RS_OP_NODE_PARAM:
		if (!rs_param_ok(n, op->a, op->b))
			return RS_EINVAL;
		if (commit)
			rs_node_param(t, n, op->a, op->b);
		return RS_DONE;
	case RS_OP_RESET:
		if (commit) {
			n->served = 0;
			n->service_base = n->service;
		}
		return RS_DONE;
	}
	return RS_EINVAL;
}

/* Put back what the first pass did for an operation that succeeded. */
RS_FN_VOID(rs_undo_one, (struct rs_tree RS_ARENA *t, struct rs_op RS_BATCH_MEM *op), (t, op))
{
	struct rs_node RS_ARENA *n = &t->nodes[(u32)op->node & (RS_NODES_MAX - 1)];

	switch (op->code) {
	case RS_OP_CREATE:
		policy_leave(t, n->parent, n);
		n->parent->wsum -= n->weight;
		rs_unhang(t, n->parent, n);
		n->kind = RS_FREE;
		n->parent = (struct rs_node RS_ARENA *)op->undo;
		n->gen = op->undo2 >> 32;
		n->depth = op->undo2;
		break;
	case RS_OP_DELETE:
		n->dying = op->undo >> 16;
		if (op->answer == RS_DRAINING)
			break;
		n->kind = op->undo;
		n->parent->wsum += n->weight;
		rs_hang(t, n->parent, n);
		if (op->undo >> 8 & 1)
			rs_throttle(t, n, op->undo2);
		break;
	case RS_OP_MOVE:
		rs_node_move(t, n, (struct rs_node RS_ARENA *)op->undo);
		break;
	}
}

/*
 * Apply a batch whole, or not at all: then b->error and b->failed say why. Afterwards the caller calls rs_change_some and rs_quantum_some until
 * they answer 0; and rs_change_some before, if it did not come to that. */
RS_FN int rs_edit(struct rs_tree RS_ARENA *t, struct rs_batch RS_BATCH_MEM *b)
{
	u32 done = 0, modes = 0;

	b->error = 0;
	b->failed = 0;
	t->changed = 0;
	t->sorted = 0;
	t->walked = 0;
	if (b->count > RS_BATCH_MAX)
		return b->error = RS_EINVAL;
	if (b->seq && b->seq <= t->seq)
		return b->error = RS_ESTALE;
	if (b->grants && b->grants != t->grants)
		return b->error = RS_EAGAIN;
	RS_LOOP(i, 2 * RS_BATCH_MAX) {
		u32 commit = i >= b->count;
		struct rs_op RS_BATCH_MEM *op = &b->op[(commit ? i - b->count : i) & (RS_BATCH_MAX - 1)];
		int answer;

		if (i >= 2 * b->count)
			break;
		modes |= (op->code == RS_OP_CREATE && op->a == RS_SCHED && policy_mode(op->b)) || op->code == RS_OP_POLICY ||
			 (op->code == RS_OP_DELETE && t->mode);
		answer = rs_edit_one(t, op, b->now, commit);
		if (commit)
			continue;
		op->answer = answer;
		if (answer < 0) {
			b->error = answer;
			b->failed = i;
			break;
		}
		done = i + 1;
	}
	if (!b->error) {
		if (modes)
			rs_mode_update(t);
		if (b->seq)
			t->seq = b->seq;
		return 0;
	}
	t->walked = 0; /* the same way back */
	RS_LOOP(i, RS_BATCH_MAX) {
		if (i >= done)
			break;
		rs_undo_one(t, &b->op[(done - 1 - i) & (RS_BATCH_MAX - 1)]);
	}
	return b->error;
}

/* The same with all that comes afterwards. */
RS_FN int rs_edit_all(struct rs_tree RS_ARENA *t, struct rs_batch RS_BATCH_MEM *b)
{
	int answer = rs_edit(t, b);

	if (t->changes)
		rs_change_all(t);
	if (t->quanta)
		rs_quantum_all(t);
	return answer;
}

/*
 * --- the tree itself ----------------------------------------------------------------------------
 */

/*
 * Make an empty tree: the root, and q0 with weight 100. `mem` are at least rs_tree_bytes() zeroed
 * bytes behind the header, aligned to 8.
 */
#define RS_TREE_BYTES(nodes, items) \
	((u64)(nodes) * sizeof(struct rs_node) + (u64)(items) * sizeof(struct rs_item) + \
	 (u64)(nodes) * 700 + (u64)(items) * 208)

RS_FN_VOID(rs_tree_init, (struct rs_tree RS_ARENA *t, u64 mem, u64 bytes, u32 nodes, u32 items),
	   (t, mem, bytes, nodes, items))
{
	struct rs_node RS_ARENA *root, *q0;

	t->abi = RS_ABI_VERSION;
	t->grants = 1;
	t->bytes = sizeof(struct rs_tree);
	t->node_bytes = sizeof(struct rs_node);
	t->item_bytes = sizeof(struct rs_item);
	t->nodes_max = nodes;
	t->nodes_open = nodes;
	t->items_max = items;
	t->nodes = (struct rs_node RS_ARENA *)mem;
	t->items = (struct rs_item RS_ARENA *)(mem + (u64)nodes * sizeof(struct rs_node));
	t->pool = mem + (u64)nodes * sizeof(struct rs_node) + (u64)items * sizeof(struct rs_item);
	t->pool_end = mem + bytes;
	t->units = 1;
	t->quantum = 4000000;
	t->starve_ns = 5000000000ULL;
	t->starve_gap_ns = 100000000ULL;
	t->progress = RS_LENGTHS ? ~0U : 0;
	root = &t->nodes[0];
	rs_node_reset(root);
	root->kind = RS_SCHED;
	root->gen = 1;
	root->weight = RS_WEIGHT_ONE;
	root->quantum = t->quantum;
	root->priority = RS_PRIORITY_DEFAULT;
	t->nodes_used = 1;
	rs_heap_reserve(t, &root->ready, 1);
	q0 = &t->nodes[1];
	rs_heap_reserve(t, &q0->ready, 1);
	rs_heap_reserve(t, &t->throttle, 2);
	t->nodes_used = 2;
	q0->index = 1;
	q0->gen = 1;
	q0->kind = RS_QUEUE;
	q0->depth = 1;
	q0->parent = root;
	rs_hang(t, root, q0);
	rs_node_reset(q0);
	q0->weight = 100 * RS_WEIGHT_ONE;
	root->wsum = q0->weight;
	q0->quantum = t->quantum;
	q0->priority = RS_PRIORITY_DEFAULT;
	t->front = q0;
	t->magic = RS_MAGIC;
}

/*
 * Forget the volatile half of everything: nothing runs, nothing waits. Items keep their queue. For
 * the moment when the mechanism that ran the tree has been taken away: it will wake the items anew.
 * First the tree itself, then nodes and items in pieces of RS_RESET_PIECE, between which the caller
 * may let its lock go, if nobody but itself looks at more than names, kinds and counters until the
 * last.
 */
RS_FN_VOID(rs_tree_reset_begin, (struct rs_tree RS_ARENA *t), (t))
{
	t->poison = 0;
	RS_LOOP(i, 2) {
		t->age[i & 1].oldest = 0;
		t->age[i & 1].newest = 0;
	}
	t->throttle.n = 0;
	t->refill.n = 0;
	t->starved_at = 0;
	t->posted = 0;
	t->changes = 0;
	t->change_phase = RS_CHANGE_LEAVE;
	t->change_at = 0;
	t->change_some = 0;
	t->change_busy = 0;
#if RS_LENGTHS
	t->segment_free = 0;
	t->segments_used = 0;
	t->segments_live = 0;
#endif
	RS_LOOP(i, RS_UNITS_MAX)
		t->unit[i].item = 0;
}

/* Slots from `from` on, of nodes and of items. Answers whether there are more. */
RS_FN int rs_tree_reset_some(struct rs_tree RS_ARENA *t, u32 from)
{
	RS_LOOP(k, RS_RESET_PIECE) {
		u32 i = from + k;

		if (i < t->nodes_used) {
			struct rs_node RS_ARENA *n = &t->nodes[i & (RS_NODES_MAX - 1)];

			if (n->change) { /* it did not come to that */
				n->alg = n->change - 1;
				n->change = 0;
				t->mode |= policy_mode(n->alg);
			}
			rs_node_reset(n);
		}
		if (i < t->items_used) {
			struct rs_item RS_ARENA *it = &t->items[i & (RS_ITEMS_MAX - 1)];

			it->link.pos = 0;
			it->rlink.pos = 0;
			it->edf.on = 0;
			it->older = 0;
			it->posted = 0;
			it->stays = 0;
			if (it->state != RS_ITEM_FREE) {
				it->newer = 0;
				it->state = RS_IDLE;
				it->tag.epoch = 0;
			}
		}
	}
	return from + RS_RESET_PIECE < t->nodes_used || from + RS_RESET_PIECE < t->items_used;
}

RS_FN_VOID(rs_tree_reset, (struct rs_tree RS_ARENA *t), (t))
{
	rs_tree_reset_begin(t);
	RS_LOOP(i, RS_ITEMS_MAX / RS_RESET_PIECE) {
		if (!rs_tree_reset_some(t, i * RS_RESET_PIECE))
			break;
	}
}
