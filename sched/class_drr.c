/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class drr: deficit round robin over the flows of a queue: many connections in one queue share it
 * fairly. An item is a flow: the packets of one connection, first come, first served; the caller
 * tells the length of its first packet (rs_item_length).
 *
 * Problem. In one first-come queue, who sends most has most. Start-time fair queueing over the
 * flows has tags to compute for each packet; where flows are many and their weights are alike,
 * turns will do.
 *
 * Idea. Each flow has a deficit: what it may still send in its turn. A turn adds a quantum; what is
 * too long for what is left waits for the next turn, and what was not used is kept.
 *
 * Rules:
 *   1. a flow with Q = quantum * weight that has nothing waiting and gets a packet: deficit 0, a
 *      turn in the next round
 *   2. served: deficit -= what was sent. If the next packet fits into the deficit it goes on, else
 *      it goes to the rear for the next round
 *   3. a turn: deficit += Q. A packet that needs k turns has its place in the k-th round from now,
 *      and k Q at once: so no round is looked at in which nothing could be sent, however small Q is
 *
 * The place is (round, seq). State, in the item's part of class edf: due is the round, left the
 * deficit when `service` was `mark`. The queue's round is vb: the last one of which somebody was
 * served.
 *
 * Cost: a place in a heap of the flows that have packets; no tags.
 *
 * Example (also a test): quantum 10, flow A with packets of 6, B with packets of 10: A B A A B A A
 * B, and again: what A could not use of a turn is kept, so that in each three turns both send 30.
 *
 * Bound: flows i and j that always have packets, in any interval: |W_i / w_i - W_j / w_j| <=
 * quantum + l_i / w_i + l_j / w_j, where a turn of any flow holds its longest packet; else 2
 * quantum + …, for two flows may change places where one of them sat turns out.
 *
 * A length that is not told counts as 1: then a flow may go beyond its deficit by a packet, which
 * it pays with its next turn.
 *
 * Reference: Shreedhar, Varghese, SIGCOMM'95.
 */
enum { drr_keyed = 0, drr_least = 0 };

RS_INLINE u64 drr_key(struct rs_item RS_ARENA *it)
{
	return it->edf.due;
}

RS_INLINE u64 drr_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it, u32 why)
{
	u64 turn = (q->quantum / RS_WEIGHT_ONE) * it->weight + q->quantum % RS_WEIGHT_ONE * it->weight / RS_WEIGHT_ONE, k;
	s64 length = it->edf.length ? it->edf.length : 1;

	if (!turn)
		turn = 1;
	if (why == RS_WHY_MOVE)
		it->edf.due = q->vb;
	else if (it->edf.mark != it->service && rs_before(q->vb, it->edf.due))
		q->vb = it->edf.due;
	it->edf.left = why == RS_WHY_AGAIN ? edf_left(it) : 0;
	it->edf.mark = it->service;
	it->edf.on = 0;
	if (why == RS_WHY_AGAIN && length <= it->edf.left)
		return it->edf.due;
	k = (length - it->edf.left + turn - 1) / turn;
	if (k > 1 << 20)
		k = 1 << 20;
	it->edf.due = q->vb + k;
	it->edf.left += k * turn;
	it->seq = ++t->stamp;
	return it->edf.due;
}

RS_INLINE int drr_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	(void)it, (void)cur, (void)ran;
	return 0;
}

RS_INLINE int drr_quiet(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			struct rs_item RS_ARENA *cur, u64 now)
{
	(void)t, (void)q, (void)it, (void)cur, (void)now;
	return 1;
}
