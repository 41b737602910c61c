/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Events without the lock.
 *
 * Problem. A wake-up that displaces nobody decides nothing: it changes what the next pick sees. Nor
 * does it decide anything that a thread, whose step has ended and been charged, has left its unit,
 * so that others may take it. Yet each would wait for the tree's lock.
 *
 * Idea. Such an event is put on a list, with one compare-and-exchange; and every event with the
 * lock begins with what is on the list, in order. So nobody can tell the difference, except for the
 * time that passes in between, in which nothing is looked at. An event that makes nobody want
 * service, serves nobody, and takes no posted item away, may leave the list as it is: to it a
 * posted item is idle (2.), so the other order would do the same.
 *
 * Who may. Each item has an owner (in a kernel whoever holds the run queue's lock of its thread);
 * only the owner posts it, and wakes it, and lets it be taken. The owner reads the state without
 * the tree's lock, while an event on another unit may be changing it. So:
 *   1. No event shows RS_IDLE of an item that is not idle at its end, not even for a moment:
 *      rs_remove and rs_settle store it last, and a pick goes from RS_QUEUED to RS_SERVICE at once,
 *      a move through RS_MOVING. An owner that reads RS_IDLE may rely on it: nobody else wakes the
 *      item. (The first version had such moments; an owner that posted in one of them made an item
 *      that was in service on another unit wait as well. posted.rs shows it.)
 *   2. RS_POSTED is idle to every event but rs_drain: the item is in no heap and counted nowhere.
 *      The owner does not post it again.
 *   3. An item that stays for one unit is picked by that unit only: who holds that unit's run queue
 *      may rely on RS_QUEUED as well (rs_post_all). Of another queued item nothing can be said
 *      without the lock.
 *   4. What an idle item may use (`all`, `mask`, `stays`) is its owner's to write before he posts
 *      it; that of any other is looked at under the lock.
 *   5. A posted item's link is read before its state, or `posted`, says that it is off the list.
 */

/*
 * The place of who is posted next, behind `last`, is kept in him, so that nobody counts: the list
 * is no longer than RS_POSTS_MAX, since whoever finds it so long takes the lock, and drains it.
 * `last` may go and come again meanwhile, which makes the number another one's and nothing else.
 */
RS_INLINE u32 rs_post_place(struct rs_item RS_ARENA *last)
{
	return last ? last->posted + 1 : 1;
}

/*
 * rs_wake without the lock. The caller owns the idle item (in a kernel, by its run queue's lock).
 * Answers 0 where somebody posted at the same time, or too many are posted: then nothing has
 * happened.
 */
RS_INLINE u32 rs_post(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 now)
{
	struct rs_item RS_ARENA *last = t->posted;
	u32 place = rs_post_place(last);

	if (place > RS_POSTS_MAX)
		return 0;
	it->queued_at = now;
	it->post = last;
	it->posted = place;
	it->state = RS_POSTED;
	if (__sync_val_compare_and_swap(&t->posted, last, it) == last)
		return 1;
	it->posted = 0;
	RS_WRITTEN();
	it->state = RS_IDLE;
	return 0;
}

/*
 * An item that goes on wanting service is for this unit only: until it is served, or rs_post_all or
 * rs_item_units. Before it is queued.
 */
RS_INLINE void rs_stay(struct rs_item RS_ARENA *it, u32 unit)
{
	it->stays = 1 + (it->all != 0);
	it->all = 0;
	it->mask[0] = it->mask[1] = it->mask[2] = it->mask[3] = 0;
	it->mask[(unit / 64) & (RS_UNIT_WORDS - 1)] = 1ULL << (unit & 63);
}

/* It was served again. */
RS_INLINE void rs_stayed(struct rs_item RS_ARENA *it)
{
	if (!it->stays)
		return;
	it->all = it->stays == 2;
	it->stays = 0;
}

/*
 * Without the lock: the queued item that stays, and is not posted, may use all units. As rs_post.
 */
RS_INLINE u32 rs_post_all(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	struct rs_item RS_ARENA *last = t->posted;
	u32 place = rs_post_place(last);

	if (place > RS_POSTS_MAX)
		return 0;
	it->post = last;
	it->posted = place;
	if (__sync_val_compare_and_swap(&t->posted, last, it) == last)
		return 1;
	it->posted = 0;
	return 0;
}

/*
 * The item in service asked for more to do. Only its owner counts, and only rs_settle takes the
 * count, on whatever unit: one that comes just then may be lost.
 */
RS_INLINE void rs_called(struct rs_item RS_ARENA *it)
{
	it->calls++;
}

/* From the last line on its owner may post it again. */
RS_INLINE void rs_drain_one(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	if (it->state == RS_POSTED) {
		it->posted = 0;
		rs_wake(t, it, it->queued_at);
		return;
	}
	it->stays = 0;
	rs_item_units(t, it, 1);
	RS_WRITTEN();
	it->posted = 0;
}

RS_FN_VOID(rs_drain_all, (struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it), (t, it))
{
	struct rs_item RS_ARENA *first = 0, *next;
	u32 done = 0;

	/* First posted, first woken. */
	RS_LOOP(i, RS_ITEMS_MAX + 1) {
		if (!it) {
			done = 1;
			break;
		}
		next = it->post;
		it->post = first;
		first = it;
		it = next;
	}
	RS_LOOP(i, RS_ITEMS_MAX + 1) {
		if (!first) {
			done |= 2;
			break;
		}
		next = first->post;
		rs_drain_one(t, first);
		first = next;
	}
	if (done != 3)
		rs_poison(t, RS_POISON_SCAN);
}

/* What is posted is taken off, and drained by the caller. Not called where nothing is. */
RS_INLINE struct rs_item RS_ARENA *rs_posts(struct rs_tree RS_ARENA *t)
{
	return __sync_lock_test_and_set(&t->posted, 0);
}

/* Every event but those that post starts with this, if anything is posted. */
RS_INLINE void rs_drain(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	if (it->post)
		rs_drain_all(t, it);
	else
		rs_drain_one(t, it);
}
