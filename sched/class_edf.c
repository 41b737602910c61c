/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class edf: earliest deadline first over threads with a period, a budget and a deadline; each in a
 * constant-bandwidth server of its own.
 *
 * Problem. Threads that do a piece of work in each period (audio, video, control) should have done
 * it by its deadline whenever the queue has enough for all of them; and one that wants more than it
 * said should not make the others late.
 *
 * Idea. Of the threads with budget left the one with the earliest deadline is served. A thread
 * receives at most its budget with a deadline; what it wants beyond is served only when no thread
 * with budget wants anything, together with threads that have no parameters, in turns.
 *
 * Per thread: Q budget, P period, D deadline relative to the start of a period (P unless set).
 * Rules, in order of execution, at time r:
 *   1. wake, no period under way or r >= release: a period starts at r: deadline = r + D, release = r + P, left = Q;
 *      less what it had too much (at most Q), when the last period ended less than a period ago                  edf_start
 *   2. wake within a period with left > 0: D = P: if left > (deadline - r) Q / P a period starts at r (Abeni and Buttazzo's rule: else it
 *      would claim more than Q / P until the old deadline). D < P: left = min(left, (deadline - r) Q / D)          edf_wake
 *   3. step of length l ends: left -= l, if it was begun with budget. At 0 or below the thread is without budget until release, and then, or if that
 *      has passed: deadline = release + D, release += P, left += Q; more than a period late: as in 1              edf_again, rs_refill_due
 *   4. pick: with budget before without; the earliest deadline; without budget: in turns, a step each          (the queue's heap)
 *   5. wake: displaces a thread without budget, and one with a later deadline                                   edf_preempts
 *   6. a step is no longer than left, where the caller can end it there                                            edf_slice
 *
 * Parameters belong to the thread: a change of them, of queue or of class neither starts a period
 * nor gives budget back. (What a thread has in a queue of another class may count, up to a budget.)
 *
 * Example (also a test): A: Q 1, P = D = 4; B: Q 3, P = D = 6, both wake at 0 and at the begin of
 * each period; C has no parameters. A 0-1 (deadline 4), B 1-4 (6), A 4-5 (8), C 5-6, B 6-9 (12; A
 * wakes at 8 with 12 and does not displace it), A 9-10, C 10-12: it has the quarter that is left.
 *
 * Bound: a unit of speed s that serves nothing else before this queue: if the sum of Q / D is at
 * most s, no thread that wants at most Q in each period misses a deadline by more than a step (the
 * last one under way, which nobody could end earlier). Below other schedulers, where the queue is
 * at most delta behind a unit of speed s (SFQ-5): by no more than delta / s more.
 *
 * Several units: the m earliest deadlines are served (global EDF): tardiness is bounded, but
 * deadlines may be missed at a utilisation of little more than 1 (Dhall's effect).
 *
 * Deviations: Linux' SCHED_DEADLINE throttles a thread without budget; here it goes on in the
 * background, so that the queue is work conserving.
 *
 * References: Liu, Layland 1973; Abeni, Buttazzo, RTSS'98; Abeni, Lipari, Lelli on the revised
 * wake-up rule; QLinux §2.2 (EDF leaf class).
 */
enum { edf_keyed = 0, edf_least = 0 };

/* What is left of the budget. What was had without budget does not count. */
RS_INLINE s64 edf_left(struct rs_item RS_ARENA *it)
{
	return it->seq & RS_SEQ_BACKGROUND ? it->edf.left : it->edf.left - (s64)(it->service - it->edf.mark);
}

RS_INLINE void edf_count(struct rs_item RS_ARENA *it)
{
	it->edf.left = edf_left(it);
	it->edf.mark = it->service;
	if (it->budget_ns && it->edf.left < -(s64)it->budget_ns)
		it->edf.left = -(s64)it->budget_ns;
}

RS_INLINE u64 edf_relative(struct rs_item RS_ARENA *it)
{
	return it->deadline_ns ? it->deadline_ns : it->period_ns;
}

/* The place in the queue: a deadline, or behind all of them. */
RS_INLINE u64 edf_key(struct rs_item RS_ARENA *it)
{
	return it->seq & RS_SEQ_BACKGROUND ? 0 : it->edf.due;
}

/* A period starts at `from`. */
RS_INLINE void edf_period(struct rs_item RS_ARENA *it, u64 from)
{
	it->edf.due = from + edf_relative(it);
	it->edf.release = from + it->period_ns;
	it->edf.on = 1;
}

/* Rule 1. */
RS_INLINE void edf_start(struct rs_item RS_ARENA *it, u64 now)
{
	if (!it->edf.on || it->edf.left > 0 || rs_before(now, it->edf.release) || now - it->edf.release >= it->period_ns)
		it->edf.left = 0;
	it->edf.left += it->budget_ns;
	edf_period(it, now);
}

/* Whether a > b * num / den, for b >= 0 and all of them up to 10 s; in units of 8 ns. */
RS_INLINE int edf_exceeds(u64 a, u64 b, u64 num, u64 den)
{
	return (a >> 3) * den > (b >> 3) * num;
}

RS_INLINE void edf_wake(struct rs_item RS_ARENA *it, u64 now)
{
	u64 d = edf_relative(it), ahead;
	s64 left = it->edf.left;

	if (!it->edf.on || !rs_before(now, it->edf.release)) {
		edf_start(it, now);
		return;
	}
	if (left <= 0)
		return;
	ahead = rs_before(now, it->edf.due) ? it->edf.due - now : 0;
	if (!edf_exceeds(left, ahead, it->budget_ns, d))
		return;
	if (d == it->period_ns)
		edf_start(it, now);
	else
		it->edf.left = (ahead >> 3) * it->budget_ns / d * 8;
}

/* Rule 3. */
RS_INLINE void edf_again(struct rs_item RS_ARENA *it, u64 now)
{
	if (!it->edf.on) {
		edf_start(it, now);
		return;
	}
	if (it->edf.left > 0 || rs_before(now, it->edf.release))
		return;
	if (now - it->edf.release >= it->period_ns) {
		edf_start(it, now);
		return;
	}
	it->edf.left += it->budget_ns;
	edf_period(it, it->edf.release);
}

/* In or out of the tree's heap of those who wait for their release. */
RS_INLINE void edf_await(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	if (it->rlink.pos)
		rs_heap_rekey(t, &t->refill, it->edf.release, ++t->stamp, &it->rlink);
	else
		rs_heap_push(t, &t->refill, it->edf.release, ++t->stamp, &it->rlink);
}

/* Now is when the item was queued. */
RS_INLINE u64 edf_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			  u32 why)
{
	(void)q;
	edf_count(it);
	it->seq = ++t->stamp | RS_SEQ_BACKGROUND;
	if (!it->period_ns)
		return 0;
	if (why == RS_WHY_AGAIN)
		edf_again(it, it->queued_at);
	else
		edf_wake(it, it->queued_at);
	if (it->edf.left > 0)
		it->seq &= ~RS_SEQ_BACKGROUND;
	else
		edf_await(t, it);
	return edf_key(it);
}

RS_INLINE int edf_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	if (it->seq & RS_SEQ_BACKGROUND)
		return 0;
	if (!cur->period_ns || (cur->seq & RS_SEQ_BACKGROUND) || edf_left(cur) <= (s64)ran)
		return 1;
	return rs_before(it->edf.due, cur->edf.due);
}

RS_INLINE u64 edf_slice(struct rs_item RS_ARENA *it)
{
	return it->period_ns && !(it->seq & RS_SEQ_BACKGROUND) ? (u64)it->edf.left : ~0ULL;
}

RS_INLINE struct rs_item RS_ARENA *rs_of_rlink(struct rs_link RS_ARENA *l)
{
	return (struct rs_item RS_ARENA *)((char RS_ARENA *)l - __builtin_offsetof(struct rs_item, rlink));
}

/* Those whose next period has begun and who wait for it get their budget. */
RS_FN_VOID(rs_refill_due, (struct rs_tree RS_ARENA *t, u64 now), (t, now))
{
	RS_LOOP(i, RS_RELEASE_PIECE) {
		struct rs_item RS_ARENA *it;

		if (!t->refill.n || rs_before(now, t->refill.e[0].key))
			break;
		it = rs_of_rlink(t->refill.e[0].obj);
		rs_heap_erase(t, &t->refill, &it->rlink);
		if (it->state != RS_QUEUED || it->queue->alg != edf_class || !(it->seq & RS_SEQ_BACKGROUND))
			continue;
		edf_again(it, now);
		if (it->edf.left > 0) {
			it->seq &= ~RS_SEQ_BACKGROUND;
			rs_far_rekey(t, it->queue, edf_key(it), it);
		} else {
			edf_await(t, it);
		}
	}
}

RS_INLINE int edf_quiet(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			struct rs_item RS_ARENA *cur, u64 now)
{
	(void)t, (void)q, (void)it, (void)cur, (void)now;
	return 0;
}
