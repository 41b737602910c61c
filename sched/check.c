/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every structural invariant of a tree, recomputed naively from the items and the nodes'
 * configuration. Host only: the tests call it after each event, and for trees that run
 * (tests/lib/cpucheck.c, linkcheck.c). Answers the first thing that is wrong; line 0 says nothing
 * is.
 */
#ifndef RS_ITEMS_THERE
#define RS_ITEMS_THERE(t) ((t)->items_max) /* for which there is room before the pool; a link's items_max says for how many there is memory */
#endif

struct rs_fault {
	u32 line;
	const char *what, *of;
	u32 index;
	s64 a, b;
};

#define RS_FAIL(kind, idx, text, x, y) \
	return (struct rs_fault){ __LINE__, text, kind, idx, (s64)(x), (s64)(y) }
#define RS_SAME(kind, idx, text, x, y) \
	do { \
		if ((x) != (y)) \
			RS_FAIL(kind, idx, text, x, y); \
	} while (0)
#define RS_GOOD ((struct rs_fault){ 0 })
#define RS_CHECKED(call) \
	do { \
		struct rs_fault f_ = (call); \
		if (f_.line) \
			return f_; \
	} while (0)

/* Of nodes, hidden ones among them. */
static u32 check_slots(struct rs_tree *t)
{
	return t->nodes_used + t->hidden_used;
}

static int check_below(struct rs_node *n, struct rs_node *top)
{
	for (; n; n = n->parent)
		if (n == top)
			return 1;
	return 0;
}

/* Whether something waits below n that no cap holds back, found without any heap of nodes. */
static int check_waits(struct rs_tree *t, struct rs_node *n)
{
	if (n->throttled)
		return 0;
	if (n->kind == RS_QUEUE)
		return n->ready.n > 0;
	for (u32 i = 0; i < check_slots(t); i++) {
		struct rs_node *c = rs_slot(t, i);

		if (c->kind != RS_FREE && c->parent == n && check_waits(t, c))
			return 1;
	}
	return 0;
}

/* Whether its parent counts it among those that want service: not while it is held (change.c). */
static int check_wants(struct rs_tree *t, struct rs_node *n)
{
	return check_waits(t, n) || (n->nsvc && !(n->throttled & RS_HELD));
}

/* Order, places and size of a heap; what its entries mean is the caller's to check. */
static struct rs_fault check_heap(struct rs_heap *h, const char *of, u32 index)
{
	if (h->n && !h->e)
		RS_FAIL(of, index, "a heap without room", h->n, 0);
	if (h->e && h->n + 1 > (8u << h->order))
		RS_FAIL(of, index, "a heap beyond its room", h->n, 8u << h->order);
	for (u32 i = 0; i < h->n; i++) {
		u32 up = (i - 1) / 2;

		RS_SAME(of, index, "the place kept in an object", h->e[i].obj->pos, i + 1);
		if (i && rs_entry_before(h->e[i].key, h->e[i].seq, h->e[up].key, h->e[up].seq))
			RS_FAIL(of, index, "heap order", up, i);
	}
	return RS_GOOD;
}

static struct rs_fault check_item(struct rs_tree *t, struct rs_item *it)
{
	struct rs_node *q = it->queue;
	u32 i = it->index;

	RS_SAME("item", i, "index", &t->items[i], it);
	if (it->state == RS_ITEM_FREE)
		return RS_GOOD;
	if (it->state > RS_SERVICE)
		RS_FAIL("item", i, "state", it->state, 0);
	if (!q) {
		RS_SAME("item", i, "state without a queue", it->state, (u8)RS_IDLE);
		return RS_GOOD;
	}
	RS_SAME("item", i, "kind of its queue", q->kind, (u8)RS_QUEUE);
	if (!it->weight)
		RS_FAIL("item", i, "weight 0", 0, 0);
	if (it->state == RS_QUEUED) {
		u32 pos = it->link.pos;

		if (!pos || pos > q->ready.n || q->ready.e[pos - 1].obj != &it->link)
			RS_FAIL("item", i, "queued but not in the heap", pos, q->ready.n);
		RS_SAME("item", i, "stamp in the heap", q->ready.e[pos - 1].seq, it->seq);
		RS_SAME("item", i, "key in the heap", q->ready.e[pos - 1].key, class_key(it));
		if (q->far && pos >= q->far) {
			u64 units = rs_far_units(it);

			for (u32 k = 2 * pos; k <= 2 * pos + 1 && k <= q->ready.n; k++)
				units |= ((struct rs_item *)q->ready.e[k - 1].obj)->below;
			RS_SAME("item", i, "units below it in the heap", it->below, units);
		}
	} else {
		RS_SAME("item", i, "place in the heap", it->link.pos, 0u);
	}
	if (it->state == RS_SERVICE) {
		if (it->unit >= RS_UNITS_MAX || t->unit[it->unit].item != it)
			RS_FAIL("item", i, "in service but not on its unit", it->unit, 0);
	}
	/*
	 * Nobody that wants service has a start tag behind virtual time, beyond the credit of class
	 * ts.
	 */
	if (it->state == RS_QUEUED && !RS_SEVERAL(t) && class_keyed(q)) {
		s64 ahead = it->tag.base - q->clock.v;
		s64 credit = q->alg == 0 ? (s64)rs_vwork(t->quantum / 2, RS_WEIGHT_ONE) : 0;

		if (ahead < -credit)
			RS_FAIL("item", i, "start tag behind virtual time", ahead, credit);
	}
	return RS_GOOD;
}

/* The nearest quantum on the path, else the tree's. */
static u64 check_quantum(struct rs_tree *t, struct rs_node *n)
{
	for (; n; n = n->parent)
		if (n->quantum_own)
			return n->quantum_own;
	return t->quantum;
}

static struct rs_fault check_counts(struct rs_tree *t, struct rs_node *n)
{
	u32 children = 0, listed, members = 0, queued = 0, nsvc = 0, nrun = 0, nall = 0;
	u64 res = 0, wsum = 0, promised = 0, mask[RS_UNIT_WORDS] = { 0 };

	for (u32 i = 0; i < t->items_used; i++) {
		struct rs_item *it = &t->items[i];

		if (it->state == RS_ITEM_FREE || !it->queue)
			continue;
		if (it->state == RS_SERVICE && check_below(it->queue, n)) {
			nsvc++;
			res += it->slice;
		}
		if (it->queue != n)
			continue;
		members++;
		if (it->period_ns)
			promised += rs_item_rate(it->budget_ns, edf_relative(it));
		nrun += it->state != RS_IDLE;
		if (it->state == RS_QUEUED) {
			queued++;
			nall += it->all;
			for (u32 k = 0; k < RS_UNIT_WORDS && !it->all; k++)
				mask[k] |= it->mask[k];
		}
	}
	for (u32 i = 0; i < check_slots(t); i++) {
		struct rs_node *c = rs_slot(t, i);

		if (c->kind == RS_FREE || c->parent != n)
			continue;
		children++;
		wsum += c->weight;
		queued += c->link.pos != 0;
		nrun += c->weight && check_wants(t, c);
		nall += c->all;
		if (check_waits(t, c) && !c->all)
			for (u32 k = 0; k < RS_UNIT_WORDS; k++)
				mask[k] |= c->mask[k];
	}
	listed = 0;
	for (u32 k = n->kids, b = 0; k && listed <= children; k = t->nodes[k - 1].next) {
		RS_SAME("node", k - 1, "the parent in whose list it is", t->nodes[k - 1].parent, n);
		RS_SAME("node", k - 1, "its neighbour before", t->nodes[k - 1].before, b);
		b = k;
		listed++;
	}
	if (n->kind == RS_SCHED)
		RS_SAME("node", n->index, "listed children", listed, children);
	RS_SAME("node", n->index, "children", n->nchildren, children);
	RS_SAME("node", n->index, "sum of weights", n->wsum, wsum);
	RS_SAME("node", n->index, "budgets promised", n->promised, promised);
	RS_SAME("node", n->index, "members", n->members, members);
	RS_SAME("node", n->index, "waiting below", n->ready.n, queued);
	RS_SAME("node", n->index, "steps in service", n->nsvc, nsvc);
	RS_SAME("node", n->index, "work reserved", n->res, res);
	RS_SAME("node", n->index, "runnable below", n->nrun, nrun);
	RS_SAME("node", n->index, "allowed everywhere below", n->nall, nall);
	for (u32 k = 0; k < RS_UNIT_WORDS; k++)
		if (mask[k] & ~n->mask[k])
			RS_FAIL("node", n->index, "a unit is missing in the mask", mask[k], n->mask[k]);
	return RS_GOOD;
}

/* policy_eevdf.c: W and K are what the clients say, and who is aside is there for a reason. */
#define eevdf_has_check 1
static struct rs_fault check_eevdf(struct rs_tree *t, struct rs_node *p)
{
	u64 w = 0, k = 0, reserved = 0;
	u32 aside = 0, eligible = 0, waits = 0;

	for (u32 i = 0; i < check_slots(t); i++) {
		struct rs_node *c = rs_slot(t, i);
		s64 ahead = c->tag.base - p->clock.v;

		if (c->kind == RS_FREE || c->parent != p || !c->weight)
			continue;
		if (ee_saturated(p, c)) {
			if (!c->runnable || ee_client(p, c) || c->alink.pos)
				RS_FAIL("node", c->index, "saturated, and something else", c->runnable, c->as.ee.epoch);
			RS_SAME("node", c->index, "reserved in a saturated child", c->as.ee.reserved, c->res);
			reserved += c->res;
			continue;
		}
		if (!ee_client(p, c)) {
			if (c->runnable)
				RS_FAIL("node", c->index, "runnable, but no client", c->as.ee.epoch, p->of.ee.epoch);
			continue;
		}
		w += c->weight;
		k += c->weight * ahead + c->tag.rem;
		if (c->tag.rem >= c->weight)
			RS_FAIL("node", c->index, "remainder", c->tag.rem, c->weight);
		/* Debt is held, and credit is the others' debt. */
		if (ahead / (s64)(p->nchildren + 2) > (s64)((EE_LAG_MAX << RS_TAG_SHIFT) / c->weight) ||
		    -ahead / (s64)(p->nchildren + 2) > (s64)((EE_LAG_MAX << RS_TAG_SHIFT) / c->weight))
			RS_FAIL("node", c->index, "lag out of range", ahead, c->weight);
		if (!rs_before(c->tag.base, c->as.ee.deadline))
			RS_FAIL("node", c->index, "deadline", c->as.ee.deadline - c->tag.base, 0);
		aside += c->alink.pos != 0;
		if (c->alink.pos && p->aside.e[c->alink.pos - 1].obj != &c->alink)
			RS_FAIL("node", c->index, "aside", c->alink.pos, p->aside.n);
		if (!c->runnable && !c->alink.pos)
			RS_FAIL("node", c->index, "a ghost that is not aside", ahead, 0);
		waits += check_waits(t, c);
		/* A ghost that V has passed goes at the next pick. */
		eligible += (check_waits(t, c) || !c->runnable) && ahead <= 0;
	}
	RS_SAME("node", p->index, "W", p->of.ee.w, w);
	RS_SAME("node", p->index, "reserved in saturated children", p->of.ee.reserved, reserved);
	RS_SAME("node", p->index, "K", p->of.ee.k, k);
	RS_SAME("node", p->index, "aside", p->aside.n, aside);
	if (w && k >= w)
		RS_FAIL("node", p->index, "K beyond W", k, w);
	/* Ghosts have a negative lag, and the sum of all is 0. */
	if (!RS_SEVERAL(t) && !p->nsvc && waits && !eligible && p->nrun == waits)
		RS_FAIL("node", p->index, "nobody is eligible", waits, k);
	return RS_GOOD;
}

#if RS_LENGTHS
/*
 * policy_wf2q.c: W is what the fluid has work of, S and F follow from the segments, and who is
 * aside is there for a reason.
 */
#define wf2q_has_check 1
static struct rs_fault check_wf2q(struct rs_tree *t, struct rs_node *p)
{
	u64 w = 0;
	u32 aside = 0;

	for (u32 i = 0; i < check_slots(t); i++) {
		struct rs_node *c = rs_slot(t, i);
		struct rs_gps_child *k = &c->as.gps;
		u64 sum = 0;
		u32 last = 0;

		if (c->kind == RS_FREE || c->parent != p || !c->weight)
			continue;
		if (!gps_client(p, c)) {
			if (c->runnable)
				RS_FAIL("node", c->index, "runnable, but not followed", k->epoch, p->of.gps.epoch);
			continue;
		}
		for (u32 name = k->first; name; name = gps_segment(t, name)->next) {
			sum += gps_segment(t, name)->work;
			last = name;
		}
		RS_SAME("node", c->index, "last segment", k->last, last);
		if (!last || k->at > sum)
			RS_FAIL("node", c->index, "sent more than came", k->at, sum);
		if (c->runnable && sum - k->at < c->head && !c->nsvc && !RS_SEVERAL(t))
			RS_FAIL("node", c->index, "a head that has not come", c->head, sum - k->at);
		aside += (c->alink.pos != 0) + (k->fluid.pos != 0);
		if (k->fluid.pos) {
			w += c->weight;
			if (p->aside.e[k->fluid.pos - 1].obj != &k->fluid)
				RS_FAIL("node", c->index, "in the fluid", k->fluid.pos, p->aside.n);
			RS_SAME("node", c->index, "end", p->aside.e[k->fluid.pos - 1].key, k->end);
			RS_SAME("node", c->index, "end", k->end, gps_tag(gps_segment(t, last), gps_segment(t, last)->work, c->weight));
		} else if (!c->runnable) {
			RS_FAIL("node", c->index, "idle and followed, but not in the fluid", k->end - p->clock.v, 0);
		}
		if (c->alink.pos)
			RS_SAME("node", c->index, "start tag aside", p->aside.e[c->alink.pos - 1].key, c->tag.base);
		if (!c->runnable)
			continue;
		RS_SAME("node", c->index, "start tag", c->tag.base, gps_tag(gps_segment(t, k->first), k->at, c->weight));
		if (rs_before(p->clock.v, c->tag.base) && !c->alink.pos)
			RS_FAIL("node", c->index, "not eligible, but not aside", c->tag.base - p->clock.v, 0);
	}
	RS_SAME("node", p->index, "W", p->of.gps.w, w);
	RS_SAME("node", p->index, "aside", p->aside.n, aside);
	return RS_GOOD;
}

/*
 * policy_wf2qp.c: W is what the clients say, F follows S, and who is aside is there for a reason.
 */
#define wf2qp_has_check 1
static struct rs_fault check_wf2qp(struct rs_tree *t, struct rs_node *p)
{
	u64 w = 0;
	u32 aside = 0;

	for (u32 i = 0; i < check_slots(t); i++) {
		struct rs_node *c = rs_slot(t, i);
		s64 ahead = c->tag.base - p->clock.v;

		if (c->kind == RS_FREE || c->parent != p || !c->weight)
			continue;
		if (!wfp_client(p, c)) {
			if (c->runnable)
				RS_FAIL("node", c->index, "runnable, but not in W", c->as.wf.epoch, p->of.wf.epoch);
			continue;
		}
		w += c->weight;
		aside += c->alink.pos != 0;
		if (c->tag.rem >= c->weight)
			RS_FAIL("node", c->index, "remainder", c->tag.rem, c->weight);
		if (c->alink.pos && p->aside.e[c->alink.pos - 1].obj != &c->alink)
			RS_FAIL("node", c->index, "aside", c->alink.pos, p->aside.n);
		if (c->alink.pos)
			RS_SAME("node", c->index, "start tag aside", p->aside.e[c->alink.pos - 1].key, c->tag.base);
		if (!c->runnable && !c->alink.pos)
			RS_FAIL("node", c->index, "idle and in W, but not aside", ahead, 0);
		if (c->runnable && !RS_SEVERAL(t) && !c->nsvc) {
			s64 length = (((u64)c->head << RS_TAG_SHIFT) + c->tag.rem) / c->weight, floor = c->as.wf.floor - c->tag.base;

			RS_SAME("node", c->index, "length of its head", c->head, rs_head_of(t, c));
			RS_SAME("node", c->index, "finish tag", (s64)(c->as.wf.finish - c->tag.base), length > floor ? length : floor);
		}
	}
	RS_SAME("node", p->index, "W", p->of.wf.w, w);
	RS_SAME("node", p->index, "aside", p->aside.n, aside);
	return RS_GOOD;
}
#endif

#if RS_DISK
/*
 * policy_yfq.c: who waits is aside with its start tag or less; who is idle is not. Start tags of
 * who waits are not behind v.
 */
#define yfq_has_check 1
static struct rs_fault check_yfq(struct rs_tree *t, struct rs_node *p)
{
	u32 aside = 0;

	for (u32 i = 0; i < check_slots(t); i++) {
		struct rs_node *c = rs_slot(t, i);
		u64 s;

		if (c->kind == RS_FREE || c->parent != p)
			continue;
		aside += c->alink.pos != 0;
		if (c->alink.pos && (p->aside.e[c->alink.pos - 1].obj != &c->alink || !c->runnable || !c->weight))
			RS_FAIL("node", c->index, "aside without reason", c->runnable, c->weight);
		if (!c->link.pos || !c->weight)
			continue;
		s = yfq_start_at(t, c, c->weight);
		if (!c->alink.pos || rs_before(s, p->aside.e[c->alink.pos - 1].key))
			RS_FAIL("node", c->index, "waits, but is not aside with its start tag", c->alink.pos, s);
		if (!RS_SEVERAL(t) && rs_before(s, p->clock.v))
			RS_FAIL("node", c->index, "start tag behind virtual time", s, p->clock.v);
		if ((!RS_SEVERAL(t) && !c->nsvc) || t->device)
			RS_SAME("node", c->index, "length of its head", c->head, rs_head_of(t, c));
	}
	RS_SAME("node", p->index, "aside", p->aside.n, aside);
	return RS_GOOD;
}
#endif

/* What the policy of p keeps. */
static struct rs_fault check_policy(struct rs_tree *t, struct rs_node *p)
{
#define RS_CALL(name) RS_WHERE(name##_has_check, return check_##name(t, p))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return RS_GOOD;
}

static struct rs_fault check_child(struct rs_tree *t, struct rs_node *n)
{
	struct rs_node *p = n->parent;
	u32 i = n->index, waits = check_waits(t, n);

	if (p->kind != RS_SCHED || p < t->nodes || p >= t->nodes + t->nodes_max || p != &t->nodes[p->index])
		RS_FAIL("node", i, "parent", p->kind, 0);
	RS_SAME("node", i, "depth", n->depth, p->depth + 1);
	RS_SAME("node", i, "runnable", n->runnable != 0, check_wants(t, n));
	if (waits && !n->link.pos)
		RS_FAIL("node", i, "something waits below, but it is not in the heap", n->ready.n, n->nsvc);
	if (waits && n->nall && !n->all)
		RS_FAIL("node", i, "all", n->all, n->nall);
	if (n->all && !(n->link.pos && (n->nall || n->nsvc)))
		RS_FAIL("node", i, "all without reason", n->link.pos, n->nall);
	if (n->link.pos) {
		if (n->throttled || !(waits || n->nsvc))
			RS_FAIL("node", i, "in the heap without reason", n->throttled, n->nsvc);
		if (p->parent && !p->link.pos && !p->throttled)
			RS_FAIL("node", i, "in the heap of one that is in none", p->index, p->ready.n);
		struct rs_entry *e = &p->ready.e[n->link.pos - 1];

		if (n->link.pos > p->ready.n || e->obj != &n->link)
			RS_FAIL("node", i, "ready but not in the heap", n->link.pos, p->ready.n);
		if (p->alg != prio_policy || !p->of.prio.left)
			RS_SAME("node", i, "key in the heap", e->key, policy_key(t, p, n));
		RS_SAME("node", i, "background bit", (e->seq & RS_SEQ_BACKGROUND) != 0, !n->weight);
		if (!RS_SEVERAL(t) && n->weight && p->alg == sfq_policy && rs_before(e->key, p->clock.v))
			RS_FAIL("node", i, "start tag behind virtual time", e->key, p->clock.v);
	}
	RS_SAME("node", i, "place among the throttled", n->tlink.pos != 0, (n->throttled & RS_CAPPED) != 0);
	if ((n->throttled & RS_HELD) && !(p->throttled & RS_FROZEN))
		RS_FAIL("node", i, "held, and its parent is not changing", n->throttled, p->throttled);
	if ((n->throttled & RS_FROZEN) && !n->change)
		RS_FAIL("node", i, "frozen without a change", n->throttled, 0);
	if (n->throttled & RS_CAPPED) {
		if (n->tlink.pos > t->throttle.n || t->throttle.e[n->tlink.pos - 1].obj != &n->tlink)
			RS_FAIL("node", i, "throttled but not in the heap", n->tlink.pos, t->throttle.n);
		if (!n->cap.ppm)
			RS_FAIL("node", i, "throttled without a cap", 0, 0);
	}
	return RS_GOOD;
}

/* The lists by age hold the queued items, each one once, in the list of its kind. */
static struct rs_fault check_ages(struct rs_tree *t)
{
	u32 queued = 0, listed = 0;

	if (!RS_AGES)
		return RS_GOOD;
	for (u32 i = 0; i < t->items_used; i++)
		queued += t->items[i].state == RS_QUEUED;
	for (u32 k = 0; k < 2; k++) {
		struct rs_item *it = t->age[k].oldest, *prev = 0;

		for (; it; prev = it, it = it->newer) {
			RS_SAME("item", it->index, "state in the list by age", it->state, (u8)RS_QUEUED);
			RS_SAME("item", it->index, "list by age of its kind", !!(it->flags & RS_ITEM_APART), (int)k);
			RS_SAME("item", it->index, "link back", it->older, prev);
			if (prev && rs_before(it->queued_at, prev->queued_at))
				RS_FAIL("item", it->index, "age", prev->queued_at, it->queued_at);
			if (++listed > queued)
				RS_FAIL("item", it->index, "list by age is too long", listed, queued);
		}
		RS_SAME("tree", k, "newest", t->age[k].newest, prev);
	}
	RS_SAME("tree", 0, "lists by age", listed, queued);
	return RS_GOOD;
}

/*
 * Who waits for a budget is in the heap; who is in it has a period. The tree's mode has all bits
 * that are asked for.
 */
static struct rs_fault check_refill(struct rs_tree *t)
{
	u32 periodic = 0, mode = 0;

	RS_CHECKED(check_heap(&t->refill, "refill", 0));
	for (u32 i = 0; i < t->items_used; i++) {
		struct rs_item *it = &t->items[i];

		if (it->state == RS_ITEM_FREE) {
			RS_SAME("item", i, "a free item in a heap", it->link.pos | it->rlink.pos, 0u);
			continue;
		}
		periodic += it->period_ns != 0;
		if (it->rlink.pos && !it->period_ns)
			RS_FAIL("item", i, "waits for a budget without a period", it->rlink.pos, 0);
		if (it->state == RS_QUEUED && it->period_ns && it->queue->alg == edf_class) {
			if ((it->seq & RS_SEQ_BACKGROUND) && !it->rlink.pos)
				RS_FAIL("item", i, "without a budget, and waits for none", edf_left(it), 0);
			RS_SAME("item", i, "place by budget", edf_left(it) > 0, !(it->seq & RS_SEQ_BACKGROUND));
		}
	}
	RS_SAME("tree", 0, "items with a period", t->periodic, periodic);
	for (u32 i = 0; i < check_slots(t); i++)
		if (rs_slot(t, i)->kind == RS_SCHED)
			mode |= policy_mode(rs_slot(t, i)->alg);
	mode |= periodic ? RS_MODE_SLICE : 0;
	RS_SAME("tree", 0, "mode", mode & ~t->mode, 0u);
	return RS_GOOD;
}

/* Heap arrays and free chunks fill what was cut from the pool, and nothing is in two places. */
static struct rs_fault check_pool(struct rs_tree *t)
{
	u64 start = (u64)(t->items + RS_ITEMS_THERE(t)), sum = 0, bytes;
	u32 free_items = 0, listed = 0;

	if (t->pool > t->pool_end || t->pool < start)
		RS_FAIL("pool", 0, "range", t->pool, t->pool_end);
	for (u32 i = 0; i <= 2 * check_slots(t) + 1; i++) {
		struct rs_node *n = rs_slot(t, i / 2);
		struct rs_heap *h = i == 2 * check_slots(t) + 1 ? &t->refill : i == 2 * check_slots(t) ? &t->throttle : i % 2 ? &n->aside : &n->ready;

		if (!h->e)
			continue;
		bytes = (u64)(8u << h->order) * sizeof(struct rs_entry);
		if ((u64)h->e < start || (u64)h->e + bytes > t->pool)
			RS_FAIL("pool", i, "array outside", (u64)h->e - start, bytes);
		sum += bytes;
	}
	for (u32 o = 0; o < RS_CHUNK_ORDERS; o++) {
		bytes = (u64)(8u << o) * sizeof(struct rs_entry);
		for (u64 c = t->chunk_free[o]; c; c = *(u64 *)c) {
			if (c < start || c + bytes > t->pool)
				RS_FAIL("pool", o, "free chunk outside", c - start, bytes);
			sum += bytes;
			if (sum > t->pool - start)
				break;
		}
	}
	RS_SAME("pool", 0, "sum of arrays", sum, t->pool - start);
	for (u32 i = 0; i < t->items_used; i++)
		free_items += t->items[i].state == RS_ITEM_FREE;
	for (struct rs_item *it = t->item_free; it; it = it->newer) {
		RS_SAME("item", it->index, "state in the free list", it->state, (u8)RS_ITEM_FREE);
		if (++listed > free_items)
			break;
	}
	RS_SAME("pool", 0, "free items", listed, free_items);
	return RS_GOOD;
}

static struct rs_fault rs_check(struct rs_tree *t)
{
	RS_SAME("tree", t->poison_line, "poison", t->poison, 0u);
	for (u32 i = 0; i < t->items_used; i++)
		RS_CHECKED(check_item(t, &t->items[i]));
	for (u32 i = 0; i < check_slots(t); i++) {
		struct rs_node *n = rs_slot(t, i);

		if (n->kind == RS_FREE) {
			RS_SAME("node", n->index, "a free node in a heap", n->link.pos | n->tlink.pos | n->alink.pos, 0u);
			continue;
		}
		RS_SAME("node", n->index, "index", &t->nodes[n->index], n);
		if (!t->quanta) /* else some have their former one */
			RS_SAME("node", n->index, "quantum", n->quantum, check_quantum(t, n));
		if (n->dying && !(n->kind == RS_QUEUE && n->members))
			RS_FAIL("node", n->index, "draining without members", n->members, 0);
		RS_CHECKED(check_heap(&n->ready, "node", i));
		RS_CHECKED(check_counts(t, n));
		RS_CHECKED(check_heap(&n->aside, "aside", i));
		if (n->kind == RS_SCHED)
			RS_CHECKED(check_policy(t, n));
		if (i)
			RS_CHECKED(check_child(t, n));
		else
			RS_SAME("node", 0, "parent of the root", n->parent, (struct rs_node *)0);
	}
	RS_CHECKED(check_heap(&t->throttle, "throttle", 0));
	RS_CHECKED(check_refill(t));
	for (u32 i = 0; i < t->throttle.n; i++)
		if (!(rs_of_tlink(t->throttle.e[i].obj)->throttled & RS_CAPPED))
			RS_FAIL("throttle", i, "a node that is not throttled", i, t->throttle.n);
	for (u32 i = 0; i < RS_UNITS_MAX; i++) {
		struct rs_item *it = t->unit[i].item;

		if (it && (it->state != RS_SERVICE || it->unit != i))
			RS_FAIL("unit", i, "item", it->index, it->state);
	}
	RS_CHECKED(check_ages(t));
	return check_pool(t);
}
