/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Binary heaps of {tag, stamp, object}, with the object's place kept in the object, so that one can
 * be re-keyed or taken out anywhere in O(log n). Arrays come from a pool and grow by doubling, only
 * when a node is created or an item joins: no event of scheduling allocates.
 */

RS_INLINE int rs_entry_before(u64 ka, u64 sa, u64 kb, u64 sb)
{
	if ((s64)(sa ^ sb) < 0)
		return (s64)sa >= 0;
	if (ka != kb)
		return rs_before(ka, kb);
	return rs_before(sa << 1, sb << 1);
}

RS_INLINE void rs_heap_put(struct rs_entry RS_ARENA *e, u32 i, u64 key, u64 seq,
			   struct rs_link RS_ARENA *obj)
{
	e[i].key = key;
	e[i].seq = seq;
	e[i].obj = obj;
	obj->pos = i + 1;
}

/* Move the hole at i towards the root, then put the entry there. */
RS_FN_VOID(rs_heap_up, (struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, u32 i,
	   struct rs_link RS_ARENA *obj), (t, h, i, obj))
{
	struct rs_entry RS_ARENA *e = h->e;
	/* the spare entry behind the last holds the new keys */
	u64 key = e[h->n].key, seq = e[h->n].seq;
	u32 done = 0;

	RS_LOOP(k, RS_HEAP_LEVELS) {
		u32 up = (i - 1) / 2;
		if (i == 0 || !rs_entry_before(key, seq, e[up].key, e[up].seq)) {
			done = 1;
			break;
		}
		rs_heap_put(e, i, e[up].key, e[up].seq, e[up].obj);
		i = up;
	}
	if (!done)
		rs_poison(t, RS_POISON_HEAP_LOOP);
	rs_heap_put(e, i, key, seq, obj);
}

/*
 * Move the hole at i towards the leaves; answers where it is. On the first `look` levels only as
 * far as the spare entry's keys ask for; below, all the way to a leaf, for a caller that moves it
 * up again by these keys: of what was served, a leaf is mostly near its new place, and the keys
 * need not be looked at on the way. But who wants little and often stays at the top among many that
 * wait, so a few levels are looked at.
 */
RS_FN u32 rs_heap_sink(struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, u32 i, u32 look)
{
	struct rs_entry RS_ARENA *e = h->e, *to = &e[i];
	u32 n = h->n, done = 0;

	RS_LOOP(k, RS_HEAP_LEVELS) {
		struct rs_entry RS_ARENA *x;
		u32 c = 2 * i + 1;

		if (c >= n) {
			done = 1;
			break;
		}
		x = &e[c];
		if (c + 1 < n && rs_entry_before(x[1].key, x[1].seq, x->key, x->seq)) {
			x++;
			c++;
		}
		if (k < look && !rs_entry_before(x->key, x->seq, e[n].key, e[n].seq)) {
			done = 1;
			break;
		}
		to->key = x->key;
		to->seq = x->seq;
		to->obj = x->obj;
		to->obj->pos = i + 1;
		to = x;
		i = c;
	}
	if (!done)
		rs_poison(t, RS_POISON_HEAP_LOOP);
	return i;
}

RS_FN_VOID(rs_heap_push_far, (struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, u64 key,
	   u64 seq, struct rs_link RS_ARENA *obj), (t, h, key, seq, obj))
{
	struct rs_entry RS_ARENA *e = h->e;
	u32 n = h->n;

	if (!e || n + 1 >= (8u << (h->order & 31)) || obj->pos) {
		rs_poison(t, RS_POISON_HEAP_FULL);
		return;
	}
	h->n = n + 1;
	e[n + 1].key = key;
	e[n + 1].seq = seq;
	rs_heap_up(t, h, n, obj);
}

/*
 * Heaps of one are common: a queue's whose other thread runs, a parent's with one child. They are
 * seen without a call.
 */
RS_INLINE void rs_heap_push(struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, u64 key, u64 seq,
			    struct rs_link RS_ARENA *obj)
{
	if (h->e && !h->n && !obj->pos) {
		h->n = 1;
		rs_heap_put(h->e, 0, key, seq, obj);
		return;
	}
	rs_heap_push_far(t, h, key, seq, obj);
}

RS_FN_VOID(rs_heap_erase_far, (struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h,
	   struct rs_link RS_ARENA *obj), (t, h, obj))
{
	struct rs_entry RS_ARENA *e = h->e;
	struct rs_link RS_ARENA *last;
	u32 i = obj->pos, n = h->n;

	if (!i || i > n) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	i--;
	n--;
	h->n = n;
	obj->pos = 0;
	if (i == n)
		return;
	last = e[n].obj; /* its keys stand at e[n], the spare entry of a heap of n */
	i = rs_heap_sink(t, h, i, 0);
	rs_heap_up(t, h, i, last);
}

RS_INLINE void rs_heap_erase(struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, struct rs_link RS_ARENA *obj)
{
	if (h->n == 1 && obj->pos == 1) {
		h->n = 0;
		obj->pos = 0;
		return;
	}
	rs_heap_erase_far(t, h, obj);
}

/* Give an object that is in the heap new keys. */
RS_FN_VOID(rs_heap_rekey_far, (struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, u64 key,
	   u64 seq, struct rs_link RS_ARENA *obj), (t, h, key, seq, obj))
{
	struct rs_entry RS_ARENA *e = h->e;
	u32 i = obj->pos, n = h->n;

	if (!i || i > n) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	e[n].key = key;
	e[n].seq = seq;
	i = rs_heap_sink(t, h, i - 1, t->mode & RS_MODE_LENGTH ? 0 : 2); /* packets mostly go far */
	rs_heap_up(t, h, i, obj);
}

RS_INLINE void rs_heap_rekey(struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, u64 key, u64 seq,
			     struct rs_link RS_ARENA *obj)
{
	if (h->n == 1 && obj->pos == 1) {
		h->e[0].key = key;
		h->e[0].seq = seq;
		return;
	}
	rs_heap_rekey_far(t, h, key, seq, obj);
}

/* An object's key becomes smaller; it stays after whom it came after among equals. */
RS_INLINE void rs_heap_lower(struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, u64 key, struct rs_link RS_ARENA *obj)
{
	struct rs_entry RS_ARENA *e = h->e;
	u32 i = obj->pos - 1, n = h->n;

	if (i >= n) {
		rs_poison(t, RS_POISON_STATE);
		return;
	}
	e[n].key = key;
	e[n].seq = e[i].seq;
	rs_heap_up(t, h, i, obj);
}

/* The keys of some entries have changed where they stand. */
RS_FN_VOID(rs_heap_rebuild, (struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h), (t, h))
{
	struct rs_entry RS_ARENA *e = h->e;
	u32 n = h->n, done = rs_zero;

	RS_LOOP(k, n) {
		u32 i = n - 1 - k;
		struct rs_link RS_ARENA *obj = e[i].obj;

		e[n].key = e[i].key;
		e[n].seq = e[i].seq;
		i = rs_heap_sink(t, h, i, RS_HEAP_LEVELS);
		rs_heap_put(e, i, e[n].key, e[n].seq, obj);
		done++;
	}
	if (done != n)
		rs_poison(t, RS_POISON_HEAP_LOOP);
}

/* Room for `want` objects. Answers 0 when the pool is exhausted; nothing has changed then. */
RS_FN int rs_heap_reserve(struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h, u32 want)
{
	struct rs_entry RS_ARENA *e, *old = h->e;
	u32 order = rs_zero, old_order = h->order, n = h->n, copied = rs_zero;
	u64 at, bytes;

	want++; /* the spare entry */
	if (old && want <= (8u << (old_order & 31)))
		return 1;
	RS_LOOP(k, RS_CHUNK_ORDERS) {
		if ((8u << (order & 31)) >= want)
			break;
		order++;
	}
	if (order >= RS_CHUNK_ORDERS)
		return 0;
	bytes = (u64)(8u << (order & 31)) * sizeof(struct rs_entry);
	if (!t->chunk_free[order] && t->pool + bytes > t->pool_end) {
		/* The pool is used up: a larger free array will do. */
		RS_LOOP(k, RS_CHUNK_ORDERS) {
			if (order >= RS_CHUNK_ORDERS || t->chunk_free[order])
				break;
			order++;
		}
		if (order >= RS_CHUNK_ORDERS)
			return 0;
	}
	at = t->chunk_free[order];
	if (at) {
		t->chunk_free[order] = *(u64 RS_ARENA *)at;
	} else {
		at = t->pool;
		t->pool = at + bytes;
	}
	e = (struct rs_entry RS_ARENA *)at;
	RS_LOOP(k, n) {
		e[k].key = old[k].key;
		e[k].seq = old[k].seq;
		e[k].obj = old[k].obj;
		copied++;
	}
	if (copied != n)
		rs_poison(t, RS_POISON_HEAP_LOOP);
	if (old && old_order < RS_CHUNK_ORDERS) {
		*(u64 RS_ARENA *)old = t->chunk_free[old_order];
		t->chunk_free[old_order] = (u64)old;
	}
	h->e = e;
	h->order = order;
	return 1;
}

/* Give the array of an empty heap back. */
RS_FN_VOID(rs_heap_release, (struct rs_tree RS_ARENA *t, struct rs_heap RS_ARENA *h), (t, h))
{
	if (h->e && h->order < RS_CHUNK_ORDERS) {
		*(u64 RS_ARENA *)h->e = t->chunk_free[h->order];
		t->chunk_free[h->order] = (u64)h->e;
	}
	h->e = 0;
	h->n = 0;
	h->order = 0;
}
