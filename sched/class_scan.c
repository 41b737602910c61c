/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class scan: the requests of a queue in the order of their sectors, in one direction (C-LOOK).
 *
 * Idea. The arm goes up from where the last request began, then back to the lowest that waits. A
 * request's place is (lap, sector): this lap if its sector is beyond the last one served, else the
 * next; the smallest place goes first. The queue's position is vb: the place behind the last one
 * served.
 *
 * A request for the sector that was served last waits for the next lap, so nobody can hold the arm
 * at his place.
 *
 * Bound: places are served in ascending order, so a request waits for those between the arm and its
 * sector, and never for a whole lap more.
 *
 * Example (also a test): sectors 50, 10, 90 wait, the arm is at 40, and 45 and 60 come while 50 is
 * served: 50 60 90 10 45.
 *
 * Reference: C-LOOK, as in Worthington, Ganger, Patt: Scheduling algorithms for modern disk drives,
 * SIGMETRICS'94.
 */
enum { scan_keyed = 0, scan_least = 0 };

#define SCAN_SECTORS 48 /* bits of a sector */

RS_INLINE u64 scan_key(struct rs_item RS_ARENA *it)
{
	return it->edf.due;
}

RS_INLINE u64 scan_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it, u32 why)
{
	u64 mask = (1ULL << SCAN_SECTORS) - 1, sector = it->sector & mask, place = (q->vb & ~mask) | sector;

	it->seq = ++t->stamp;
	/* Who was let go without service keeps its place. */
	if (why == RS_WHY_AGAIN && (it->edf.due & mask) == sector && it->edf.mark == it->service)
		return it->edf.due;
	if (rs_before(place, q->vb))
		place += mask + 1;
	it->edf.due = place;
	it->edf.mark = it->service;
	return place;
}

RS_INLINE void scan_served(struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it)
{
	if (rs_before(q->vb, it->edf.due + 1))
		q->vb = it->edf.due + 1;
}

RS_INLINE int scan_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	(void)it, (void)cur, (void)ran;
	return 0;
}

RS_INLINE int scan_quiet(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			 struct rs_item RS_ARENA *cur, u64 now)
{
	(void)t, (void)q, (void)it, (void)cur, (void)now;
	return 1;
}
