/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a queue is guaranteed, whatever all others want: the budgets of class edf are promised out
 * of it, and nobody who asks for one (a system call, a write to `members`, a move into the queue)
 * gets round it.
 *
 * Rule. The units are shared out from the root down: a node has its weight's part of what its
 * parent has, and no more than its cap. Below a scheduler of policy prio who is above all its
 * siblings, whatever these have used, has all, and anybody else nothing.
 * crates/model/src/guarantee.rs is the same, from the root down; here it is from the queue up,
 * because the path is linked that way: the least over all nodes on the path of cap times the part
 * of it that comes down to the queue.
 *
 * Rounding. Parts are in 10^-9, rounded up at each level: what is right is never refused, and what
 * is granted too much is less than 10^-6 of a unit.
 *
 * Siblings are looked at below prio only, where they stand in no order by priority; nothing of this
 * is on the way of a switch.
 */
#define RS_PART_ONE 1000000000ULL

/* Parts per million of a unit; nothing in q0, which takes whoever comes. */
RS_FN u64 rs_guarantee(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q)
{
	u64 part = RS_PART_ONE, sure = ~0ULL, all;
	struct rs_node RS_ARENA *n = q;

	if (q->index == 1)
		return 0;
	RS_LOOP(i, RS_DEPTH_MAX) {
		struct rs_node RS_ARENA *p = n->parent;
		int above;

		if (n->cap.ppm && n->cap.ppm < 1000000ULL * t->units) {
			all = (n->cap.ppm * part + RS_PART_ONE - 1) / RS_PART_ONE;
			if (all < sure)
				sure = all;
		}
		if (!n->index) {
			all = (1000000ULL * t->units * part + RS_PART_ONE - 1) / RS_PART_ONE;
			return all < sure ? all : sure;
		}
		above = policy_above(t, n);
		if (!above)
			return 0;
		if (above == RS_BY_WEIGHT) {
			if (!n->weight || !p->wsum)
				return 0;
			part = (part * n->weight + p->wsum - 1) / p->wsum;
		}
		n = p;
	}
	return 0; /* the path is longer than any is */
}
