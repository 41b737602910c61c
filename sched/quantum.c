/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The quantum in force at every node, after the tree's changed, or a node's own, or a path: in
 * pieces, so that no section of the caller's lock has all nodes in it. Until the last piece a node
 * may have its former one, which decides the length of a step and nothing else.
 */
RS_INLINE void rs_quantum_later(struct rs_tree RS_ARENA *t)
{
	t->quanta = 1;
}

/* One piece. Answers whether there is more. */
RS_FN int rs_quantum_some(struct rs_tree RS_ARENA *t)
{
	u32 from = t->quanta - 1, all = t->nodes_used + t->hidden_used;

	if (!t->quanta)
		return 0;
	RS_LOOP(i, RS_QUANTA_PIECE) {
		struct rs_node RS_ARENA *n, *x;
		u64 quantum = 0;

		if (from + i >= all)
			break;
		n = x = rs_slot(t, from + i);
		if (n->kind == RS_FREE)
			continue;
		RS_LOOP(d, RS_DEPTH_MAX) {
			if (!x || quantum)
				break;
			quantum = x->quantum_own;
			x = x->parent;
		}
		n->quantum = quantum ? quantum : t->quantum;
	}
	t->quanta = from + RS_QUANTA_PIECE < all ? from + RS_QUANTA_PIECE + 1 : 0;
	return t->quanta != 0;
}

/* All of them, for who shares the tree with nobody. */
RS_FN_VOID(rs_quantum_all, (struct rs_tree RS_ARENA *t), (t))
{
	rs_quantum_later(t);
	RS_LOOP(i, RS_NODES_MAX / RS_QUANTA_PIECE + 1) {
		if (!rs_quantum_some(t))
			break;
	}
}
