/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Class scan-edf: the earliest deadline first; of equal ones, the smallest sector. Deadlines are
 * equal within 10 ms, so what is due at about the same time is one sweep over the disk. Requests
 * without a deadline come behind all that have one, in C-LOOK order (class_scan.c).
 *
 * Bound: a request waits for none that is due 10 ms later than it, but for the one in service. So
 * where earliest deadline first meets all deadlines that are 10 ms shorter, this meets all.
 *
 * Example (also a test): (due ms, sector) (25, 10) (12, 90) (18, 40) (none, 5): 40 and 90 are due
 * in one bucket: 40 90 10 5.
 *
 * Reference: Reddy, Wyllie: Disk scheduling in a multimedia I/O system, ACM Multimedia'93.
 */
enum { scan_edf_keyed = 0, scan_edf_least = 0 };

#define SCAN_EDF_BUCKET 10000000ULL /* ns */

RS_INLINE u64 scan_edf_key(struct rs_item RS_ARENA *it)
{
	return it->due_at ? it->due_at / SCAN_EDF_BUCKET : it->edf.due;
}

RS_INLINE u64 scan_edf_enqueue(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it, u32 why)
{
	u64 place = scan_enqueue(t, q, it, why);

	if (!it->due_at) {
		it->seq |= RS_SEQ_BACKGROUND;
		return place;
	}
	it->seq = it->sector & ((1ULL << SCAN_SECTORS) - 1);
	return it->due_at / SCAN_EDF_BUCKET;
}

RS_INLINE void scan_edf_served(struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it)
{
	if (!it->due_at)
		scan_served(q, it);
}

RS_INLINE int scan_edf_preempts(struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	(void)it, (void)cur, (void)ran;
	return 0;
}

RS_INLINE int scan_edf_quiet(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, struct rs_item RS_ARENA *it,
			     struct rs_item RS_ARENA *cur, u64 now)
{
	(void)t, (void)q, (void)it, (void)cur, (void)now;
	return 1;
}
