/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Policy eevdf: earliest eligible virtual deadline first, among the children of a node.
 *
 * Problem. sfq bounds how far two children drift apart, but one of n children may be behind its
 * fluid share by n steps, and a child that wants little at a time waits as long as one that wants
 * much. Here every child stays within one request of its fluid share, and the length of its
 * requests, not its weight, says how soon it is served.
 *
 * Idea. Lag is what a child should have received in the fluid system less what it did. Only
 * children whose lag is not negative are eligible: so nobody runs ahead by more than a step. Of
 * these the one whose request should be completed first goes first.
 *
 * State. Child i: weight w, virtual service time v (eligible time: tag.base and tag.rem / w),
 * request r, deadline d = v + r / w. Node: over the clients A (children that are runnable, and
 * ghosts), W = sum of w, V = (sum of w v) / W, kept as z (clock.v) and K = sum of w (v - z), 0 <= K
 * < W, so that V = z + K / W. lag = w (V - v). A step of l adds exactly l to K: nothing is rounded.
 *
 * Rules, in order of execution:
 *   1. child becomes runnable: if it is a ghost, it goes on as it is; else it joins A with lag 0: v = V. A step that is in service
 *      then counts as if it had taken what is reserved for it                                            eevdf_wake
 *   2. pick: of the ready children with v <= V, the one with the smallest d; V is what it is now          eevdf_pick
 *   3. step of length l ends: v += l / w, V += l / W. When the request is exhausted (v >= d), the next one starts: d = v + r / w,
 *      with r doubled if it is an estimate. When its thread asked for more to do in this step (rs_called), the request has ended
 *      as in rule 4; of several that ended in one step each had the same                                  eevdf_charge
 *      Then ghosts whose lag is not negative any more leave A, which moves V up
 *   4. child becomes idle (end of a request): the estimate r moves a quarter of the way to what was used since the last one ended;
 *      d = v + r / w. With lag >= 0 it leaves A, and that lag is forgotten; else it stays in A as a ghost, not to be picked, its
 *      weight counted. If only ghosts are left, all are dropped                                           eevdf_idle
 *   5. weight changes: at constant lag, v = V - lag / w, and d - v scales with 1 / w; V stays             eevdf_reweight
 *   6. several units: a client whose credit exceeds four of its own steps (and those it has in service) cannot use its share: it leaves A and is
 *      *saturated*; a saturated child that waits goes before all clients, and those go by v among themselves. Its v goes on, held behind V by no
 *      more than EE_JUMPS of the longest steps by which others move V; when it has passed V, it is a client again    eevdf_charge
 *
 * So a program that receives, works and receives again has a request for each round, whether what
 * it receives is there already or not, and its period is estimated by r / f, f its share (RTSS'98,
 * 4.3, 4.4). Where r is too short or too long, only the child itself is served sooner or later: the
 * bounds of the others have r in none of them.
 *
 * r is the node's `request`, at most its parent's `lag` if that is set; if it has none, the
 * estimate, between an eighth of a quantum and `lag`, or a quantum where that is not set.
 *
 * Two heaps. `ready` is the one that the core knows: all ready children, by d; those known not to
 * be eligible have 2^61 added, so they come after the others. `aside` has the latter and the ghosts
 * by v; what V has passed is taken out. V goes back only when a client with a negative lag is taken
 * out (deleted, moved), and by less than the rounding on a reweight: so the first of `ready` is
 * looked at again when it is picked.
 *
 * Many children. V may pass thousands at once: those that ran a little and sleep, beside one that
 * goes on. Each choice, and each end of a step, goes through EE_PIECE of them at most, the smallest
 * v first, because interrupts are off meanwhile. The choice is then among those that are known to
 * be eligible (among all, if none is); a ghost leaves later, with a credit that is forgotten as
 * ever. So where n children change at once, n / EE_PIECE choices may come before the one whose
 * deadline is earliest, and all is as among few after that.
 *
 * Background (weight 0) children sort behind all others, as with sfq.
 *
 * Example (also a test): weights 1 and 2, quantum and requests of 6, both runnable at V = 0: d is 6
 * and 3. B runs, v = 3, V = 2: not eligible. A: v = 6, V = 4. B: 6, V = 6. So B A B, and again: in
 * every 18 units A gets 6 and B 12.
 *
 * Bounds, one unit, q the longest step, requests that end where steps do, membership that changes
 * at lag 0 only: -q < lag < max(r, q) (EV-1), and a request is complete when V has reached its
 * deadline and q more has passed (EV-3). A step that goes on beyond the end of a request adds what
 * it has beyond to the credit of others. A child that is always runnable with a fixed share f of W
 * gets no less than f t - 2q while others sleep and wake (EV-4), because whatever rule 4 forgets is
 * credit of somebody who sleeps.
 *
 * Several units: as with sfq, steps in service count as if they had taken what is reserved, for
 * eligibility and for V. Where nobody is eligible, the earliest deadline goes first. Debt is held
 * to 5 (units + 1) of a child's own steps; ahead.c has the order of those that would have more.
 *
 * Weights that threads cannot use. As a client such a child would have ever more credit, and V, the
 * mean by weight, would go as slowly as it does: all others would be ahead of V, and lose their
 * order. GMS gives it all it can use, and divides the rest among the others by weight; that is what
 * rule 6 does, V being that of the others only, without the need to know how many units the node
 * has (below others that changes all the time). Why it neither misses nor flaps: its v moves more
 * slowly than V if and only if it cannot use its share. As a client it is then behind by more and
 * more, and beside them it is held at the limit for ever; if it can, it stays within the limit as a
 * client, and passes V when it stands beside them. The limit behind V has to be more than V moves
 * at once, which is one step of a client over W. What a change of membership is worth, to whoever
 * changes and to all others together, is at most that many steps of work. Above a scheduler with a
 * child that is behind, its place is SFQ_AHEAD quanta before its deadline, eligible or not
 * (rs_hurried). Shares are those of GMS (docs/notes/sched.md); of the bounds none is claimed.
 * Children that may use only a unit that has more to do than others look the same, and have no
 * order among themselves then (there, "Units with less to do"): under sfq they have.
 *
 * Deviations: eligibility is looked at before each step, not each request (PSS, §3.2), so a long
 * request does not make debt beyond a step. Rule 4 is Linux' delayed dequeue with a zero clamp. Lag
 * is held within 2^36 (69 s of ns) on any number of units.
 *
 * References: Stoica, Abdel-Wahab, Jeffay, Baruah, Gehrke, Plaxton, RTSS'96; Jeffay, Smith,
 * Moorthy, Anderson, RTSS'98.
 */
#define EE_LAG_MAX (1ULL << 36)
#define EE_LATER (1ULL << 61)
#define EE_REQUEST_MIN 8 /* shortest estimate: a quantum over this */
/*
 * Children whose eligibility changes: EE_PIECE are gone through at one level of the tree; by all
 * levels of a choice EE_MOST, and EE_LEAST at each level whatever those above took; by all ends of
 * steps from one choice to the next EE_PIECE, and what is left of a piece then.
 */
#define EE_PIECE 64
#define EE_MOST 128
#define EE_LEAST 4
#define EE_LOOKED 32 /* what one of them costs, in entries of a heap that are only looked at */
#define EE_JUMPS 4 /* steps of others by which a saturated child's v is held behind V */

RS_INLINE struct rs_node RS_ARENA *rs_of_alink(struct rs_link RS_ARENA *l)
{
	return (struct rs_node RS_ARENA *)((char RS_ARENA *)l - __builtin_offsetof(struct rs_node, alink));
}

/* Whether c is a client: in W and K. The epoch ends when the last runnable child becomes idle. */
RS_INLINE int ee_client(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->as.ee.epoch && c->as.ee.epoch == p->of.ee.epoch + 1;
}

RS_INLINE int ee_later(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->alink.pos && ee_client(p, c);
}

/*
 * Several units: whether c is runnable and stands beside the clients, because it cannot use its
 * share (rule 6). Where all units but one have gone since, it still does, until it has passed V.
 */
RS_INLINE int ee_saturated(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return RS_EVER_SEVERAL && c->as.ee.saturated && c->as.ee.saturated == p->of.ee.epoch + 1;
}

/*
 * Several units: whether the first ready child of scheduler c is saturated, or more than a quantum
 * behind V, or a scheduler of which this is so: its deadline is then later than its place.
 */
#define eevdf_has_behind 1
RS_INLINE int eevdf_behind(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	struct rs_node RS_ARENA *first = (struct rs_node RS_ARENA *)c->ready.e[0].obj;

	return ee_saturated(c, first) || rs_before(c->ready.e[0].key, first->as.ee.deadline) ||
	       rs_before(first->tag.base + rs_vwork(t->quantum, first->weight), c->clock.v);
}

/* `res` is what is reserved below the saturated child c: V does not count it. */
RS_INLINE void ee_reserved(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 res)
{
	p->of.ee.reserved += res - c->as.ee.reserved;
	c->as.ee.reserved = res;
}

/* K into 0 … W - 1, and with it z to the whole part of V. */
RS_INLINE void ee_norm(struct rs_node RS_ARENA *p)
{
	u64 w = p->of.ee.w, k = p->of.ee.k, n;

	if (!w) {
		p->of.ee.k = 0;
		return;
	}
	if ((s64)k >= 0) {
		if (k < w)
			return;
		n = k / w;
		p->clock.v += n;
		p->of.ee.k = k - n * w;
	} else {
		n = (-k + w - 1) / w;
		p->clock.v -= n;
		p->of.ee.k = k + n * w;
	}
}

/* The whole part of V when the steps in service will have taken what is reserved for them. */
RS_INLINE u64 ee_v_after(struct rs_node RS_ARENA *p)
{
	u64 w = p->of.ee.w, res = p->res - p->of.ee.reserved;

	if (!w || !res)
		return p->clock.v;
	return p->clock.v + ((res << RS_TAG_SHIFT) + p->of.ee.k) / w;
}

/* V and v by which eligibility is decided. (A single unit picks when nothing is in service.) */
RS_INLINE u64 ee_now(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	return RS_SEVERAL(t) ? ee_v_after(p) : p->clock.v;
}

RS_INLINE u64 ee_v(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	return RS_SEVERAL(t) ? c->tag.base + rs_vwork(c->res, c->weight) : c->tag.base;
}

/* c's v becomes base + rem / w: K follows. The caller normalises. */
RS_INLINE void ee_set(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 base, u64 rem)
{
	p->of.ee.k += c->weight * (base - c->tag.base) + rem - c->tag.rem;
	c->tag.base = base;
	c->tag.rem = rem;
}

/* c, whose v has changed, belongs aside or not. */
RS_INLINE void ee_sort(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 v = ee_v(t, c);

	if (c->alink.pos)
		rs_heap_rekey(t, &p->aside, v, ++t->stamp, &c->alink);
	else if (rs_before(ee_now(t, p), v))
		rs_heap_push(t, &p->aside, v, ++t->stamp, &c->alink);
}

/* The length of c's next request. */
RS_INLINE u64 ee_request(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 most = p->lag_ns, least = c->quantum / EE_REQUEST_MIN, r = c->request_ns;

	if (r)
		return most && r > most ? most : r;
	r = c->as.ee.request;
	if (!r)
		r = c->quantum;
	if (r < least)
		r = least;
	if (!most)
		most = c->quantum;
	if (r > most)
		r = most;
	c->as.ee.request = r ? r : 1;
	return c->as.ee.request;
}

/* How long c's requests are now; 0: it had none yet. */
RS_INLINE u64 ee_length(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 r = c->request_ns ? c->request_ns : c->as.ee.request;

	return p->lag_ns && r > p->lag_ns ? p->lag_ns : r;
}

/* Requests of c ended, of which each used this much. */
RS_INLINE void ee_end(struct rs_node RS_ARENA *c, u64 used)
{
	c->as.ee.used = 0;
	if (used)
		c->as.ee.request = (3 * c->as.ee.request + used) / 4;
}

/* In a step that ends, the thread of an item below c asked for more to do so many times. */
RS_INLINE void ee_called(struct rs_node RS_ARENA *c, u32 calls)
{
	u64 used = c->as.ee.used;

	ee_end(c, calls == 1 ? used : used / calls);
}

/* A new request starts at v. */
RS_INLINE void ee_begin(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u32 w)
{
	u64 x = rs_vwork(ee_request(p, c), w);

	if (x > RS_ADVANCE_MAX / 2)
		x = RS_ADVANCE_MAX / 2;
	c->as.ee.deadline = c->tag.base + (x ? x : 1);
}

/* c, with weight w, becomes a client, with service time v. */
RS_FN_VOID(ee_join, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u32 w, u64 v), (t, p, c, w, v))
{
	c->tag.base = v;
	c->tag.rem = 0;
	c->alink.pos = 0;
	c->as.ee.epoch = p->of.ee.epoch + 1;
	c->as.ee.used = 0;
	/*
	 * K stays within 64 bits if the lighter of both sides is multiplied: then the product is
	 * somebody's lag.
	 */
	if (w > p->of.ee.w) {
		p->of.ee.k -= p->of.ee.w * (v - p->clock.v);
		p->clock.v = v;
	} else {
		p->of.ee.k += w * (v - p->clock.v);
	}
	p->of.ee.w += w;
	ee_norm(p);
	ee_begin(p, c, w);
	if (rs_before(p->clock.v, v))
		rs_heap_push(t, &p->aside, v, ++t->stamp, &c->alink);
}

/* c is a client no longer. */
RS_INLINE void ee_drop(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	if (c->alink.pos)
		rs_heap_erase(t, &p->aside, &c->alink);
	c->as.ee.epoch = 0;
	p->of.ee.k -= c->weight * (c->tag.base - p->clock.v) + c->tag.rem;
	p->of.ee.w -= c->weight;
	ee_norm(p);
}

/* Rule 6: the client c cannot use its share. */
RS_INLINE void ee_saturate(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	ee_drop(t, p, c);
	c->as.ee.saturated = p->of.ee.epoch + 1;
	ee_reserved(p, c, c->res);
}

RS_INLINE void ee_unsaturate(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	ee_reserved(p, c, 0);
	c->as.ee.saturated = 0;
}

RS_INLINE u64 eevdf_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	u64 d = c->as.ee.deadline;

	if (!c->weight)
		return RS_SEVERAL(t) ? c->tag.base + rs_vwork(c->res, RS_WEIGHT_ONE) : c->tag.base;
	if (ee_saturated(c->parent, c))
		return ee_v(t, c) - EE_LATER;
	if (rs_hurried(t, c))
		return d - rs_vwork(SFQ_AHEAD * t->quantum, c->weight);
	return ee_later(c->parent, c) ? d + EE_LATER : d;
}

/*
 * V may have moved up: those that it has passed are eligible, or, ghosts, leave, which moves V
 * again. Who is left when a piece is done comes with the next choice.
 */
RS_FN_VOID(ee_advance, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p), (t, p))
{
	RS_LOOP(i, EE_PIECE) {
		struct rs_node RS_ARENA *c;
		u64 now = ee_now(t, p), v;

		if (!p->aside.n || rs_before(now, p->aside.e[0].key))
			return;
		if (t->passed >= EE_MOST)
			return;
		t->passed++;
		t->looked += EE_LOOKED;
		c = rs_of_alink(p->aside.e[0].obj);
		v = ee_v(t, c);
		if (rs_before(now, v)) { /* several units: work was reserved since */
			rs_heap_rekey(t, &p->aside, v, ++t->stamp, &c->alink);
			continue;
		}
		if (!c->runnable) {
			ee_drop(t, p, c);
			continue;
		}
		rs_heap_erase(t, &p->aside, &c->alink);
		if (c->link.pos)
			rs_heap_rekey(t, &p->ready, eevdf_key(t, c), p->ready.e[c->link.pos - 1].seq, &c->link);
	}
}

RS_FN_VOID(eevdf_wake, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (!c->weight) {
		if (c->tag.base - p->vb > RS_ADVANCE_MAX) {
			c->tag.base = p->vb;
			c->tag.rem = 0;
		}
		return;
	}
	if (!ee_client(p, c))
		ee_join(t, p, c, c->weight, ee_v_after(p));
}

RS_FN_VOID(eevdf_idle, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	u32 saturated = ee_saturated(p, c);

	if (!c->weight || !(saturated || ee_client(p, c)))
		return;
	ee_end(c, c->as.ee.used);
	ee_begin(p, c, c->weight);
	if (saturated)
		ee_unsaturate(p, c);
	if (!p->nrun) {
		p->of.ee.epoch++;
		p->of.ee.w = 0;
		p->of.ee.k = 0;
		p->aside.n = 0;
		c->alink.pos = 0;
	} else if (saturated) {
		return;
	} else if (!rs_before(ee_now(t, p), c->tag.base)) {
		ee_drop(t, p, c);
	} else {
		ee_sort(t, p, c);
	}
}

RS_INLINE void eevdf_reserve(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (ee_saturated(p, c))
		ee_reserved(p, c, c->res);
}

RS_INLINE void eevdf_dispatch(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 key;

	if (c->weight)
		return;
	key = eevdf_key(t, c);
	if (rs_before(p->vb, key))
		p->vb = key;
}

/* A step of the saturated child c ended: its v goes on, held behind V, until it has passed V. */
RS_FN_VOID(ee_charge_saturated, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u64 work, u32 forced), (t, p, c, work, forced))
{
	u64 v = p->clock.v, base, rem, low, step, used;
	u32 w = c->weight;

	ee_reserved(p, c, c->res);
	c->as.ee.used += work;
	if (t->calls)
		ee_called(c, t->calls);
	used = c->as.ee.used;
	rem = (work << RS_TAG_SHIFT) + c->tag.rem;
	base = c->tag.base + rem / w;
	rem %= w;
	if (forced && c->link.pos) {
		base = c->tag.base;
		rem = 0;
	}
	low = (EE_LAG_MAX << RS_TAG_SHIFT) / w;
	step = rs_vwork(work > t->quantum ? work : t->quantum, w);
	if (low / (1 + c->nsvc) > step)
		low = step * (1 + c->nsvc);
	if (p->of.ee.w)
		low += (EE_JUMPS * p->of.ee.longest << RS_TAG_SHIFT) / p->of.ee.w;
	if (rs_before(base, v - low)) {
		base = v - low;
		rem = 0;
	}
	c->tag.base = base;
	c->tag.rem = rem;
	if (rs_before(base, v))
		return;
	ee_unsaturate(p, c);
	ee_join(t, p, c, w, base);
	c->as.ee.used = used;
}

/*
 * As sfq_charge: a step that was forced makes no debt, and uses up credit if nothing of c waits
 * there.
 */
RS_FN_VOID(eevdf_charge, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u64 work, u32 forced), (t, p, c, work, forced))
{
	u64 z = p->clock.v, base, rem, low, high, step = 0;
	u32 w = c->weight, saturated = 0;

	if (!w) {
		c->tag.base += rs_vwork(work, RS_WEIGHT_ONE);
		return;
	}
	if (work > EE_LAG_MAX)
		work = EE_LAG_MAX;
	if (ee_saturated(p, c)) {
		ee_charge_saturated(t, p, c, work, forced);
		return;
	}
	if (!ee_client(p, c))
		return;
	rem = (work << RS_TAG_SHIFT) + c->tag.rem;
	base = c->tag.base + rem / w;
	rem %= w;
	if (forced && (c->link.pos || rs_before(z, base))) {
		base = !c->link.pos && rs_before(c->tag.base, z) ? z : c->tag.base;
		rem = 0;
	}
	high = low = (EE_LAG_MAX << RS_TAG_SHIFT) / w;
	if (RS_SEVERAL(t)) {
		step = work > t->quantum ? work : t->quantum;
		p->of.ee.longest -= p->of.ee.longest >> 6;
		if (p->of.ee.longest < step)
			p->of.ee.longest = step;
		step = rs_vwork(step, w);
		if (low / (4 + c->nsvc) > step)
			low = step * (4 + c->nsvc);
		if (high / (5 * (t->units + 1)) > step)
			high = step * (5 * (t->units + 1));
	}
	if (rs_before(base, z - low)) {
		base = z - low;
		rem = 0;
		saturated = RS_SEVERAL(t) && p->of.ee.w > w;
	}
	if (rs_before(z + high, base)) {
		if (RS_SEVERAL(t))
			rs_ahead_more(t, p, &c->tag, base - (z + high), step);
		base = z + high;
		rem = 0;
	}
	ee_set(p, c, base, rem);
	ee_norm(p);
	c->as.ee.used += work;
	if (t->calls) {
		ee_called(c, t->calls);
		ee_begin(p, c, w);
	} else if (!rs_before(base, c->as.ee.deadline)) {
		c->as.ee.request *= 2; /* at most what ee_request allows */
		ee_begin(p, c, w);
	}
	if (saturated) {
		ee_saturate(t, p, c);
		return;
	}
	ee_sort(t, p, c);
	if (!RS_SEVERAL(t) && t->passed < EE_PIECE)
		ee_advance(t, p);
}

/* Several units: as sfq_more. */
RS_FN_VOID(eevdf_more, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	u64 low;
	u32 saturated = ee_saturated(p, c);

	if (!c->weight || !c->runnable || !(saturated || ee_client(p, c)))
		return;
	low = p->clock.v - rs_vwork(t->quantum, c->weight) * (c->nsvc + 1);
	if (!rs_before(c->tag.base, low))
		return;
	if (saturated) {
		c->tag.base = low;
		c->tag.rem = 0;
	} else {
		ee_set(p, c, low, 0);
		ee_norm(p);
		if (!rs_before(low, c->as.ee.deadline))
			ee_begin(p, c, c->weight);
		ee_sort(t, p, c);
	}
}

RS_FN_VOID(eevdf_leave, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (ee_saturated(p, c))
		ee_unsaturate(p, c);
	if (ee_client(p, c))
		ee_drop(t, p, c);
	c->alink.pos = 0;
	c->as.ee.epoch = 0;
}

RS_FN_VOID(eevdf_reweight, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u32 w), (t, p, c, w))
{
	u64 old = c->weight, own, n;

	if (!old || !w) {
		eevdf_leave(t, p, c);
		c->tag.base = p->vb;
		c->tag.rem = 0;
		if (w && c->runnable)
			ee_join(t, p, c, w, ee_v_after(p));
		return;
	}
	if (!ee_client(p, c)) {
		c->tag.rem = 0; /* saturated: a place behind V is the same at any weight */
		return;
	}
	/* K, and with it every lag but for less than W / 2^20 of work, stays. */
	own = old * (c->tag.base - p->clock.v) + c->tag.rem;
	c->as.ee.deadline -= c->tag.base;
	if ((s64)own >= 0) {
		n = own / w;
	} else {
		n = (-own + w - 1) / w;
		n = -n;
	}
	c->tag.base = p->clock.v + n;
	c->tag.rem = own - n * w;
	n = rs_muldiv(c->as.ee.deadline, old, w);
	if (n > RS_ADVANCE_MAX / 2)
		n = RS_ADVANCE_MAX / 2;
	c->as.ee.deadline = c->tag.base + (n ? n : 1);
	p->of.ee.w += w - old;
	ee_norm(p);
	if (c->alink.pos)
		rs_heap_rekey(t, &p->aside, c->tag.base, ++t->stamp, &c->alink);
}

RS_INLINE s64 eevdf_offset(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->tag.base - p->clock.v;
}

RS_FN_VOID(eevdf_start, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, s64 offset), (t, p, c, offset))
{
	s64 most = (EE_LAG_MAX << RS_TAG_SHIFT) / c->weight;

	if (!p->of.ee.w)
		p->of.ee.origin = p->clock.v;
	if (offset > most)
		offset = most;
	ee_join(t, p, c, c->weight, p->of.ee.origin + offset);
}

/* Nobody is displaced at a wake-up (PSS): no ahead. */
enum { eevdf_aside = 1, eevdf_mode = 0 };
#define eevdf_has_more 1
#define eevdf_has_wake 1
#define eevdf_has_idle 1
#define eevdf_has_dispatch 1
#define eevdf_has_reserve 1
#define eevdf_has_reweight 1
#define eevdf_has_offset 1
#define eevdf_has_start 1
#define eevdf_has_leave 1

/*
 * Brings the ready heap up to date, as far as its first entry: that child is eligible, or none is.
 * Where either takes more than a piece, the first entry goes as it is.
 */
RS_FN_VOID(ee_front, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p), (t, p))
{
	struct rs_entry RS_ARENA *e = p->ready.e;

	if (t->passed > EE_MOST - EE_LEAST)
		t->passed = EE_MOST - EE_LEAST;
	ee_advance(t, p);
	RS_LOOP(i, EE_PIECE) {
		struct rs_node RS_ARENA *c = (struct rs_node RS_ARENA *)e[0].obj;

		if (!c->weight || ee_saturated(p, c) || ee_later(p, c) || !rs_before(ee_now(t, p), ee_v(t, c)))
			return;
		if (t->passed >= EE_MOST + EE_LEAST)
			return;
		t->passed++;
		t->looked += EE_LOOKED;
		ee_sort(t, p, c);
		rs_heap_rekey(t, &p->ready, eevdf_key(t, c), e[0].seq, &c->link);
	}
}

RS_INLINE struct rs_node RS_ARENA *eevdf_pick(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit)
{
	if (!p->ready.n)
		return 0;
	ee_front(t, p);
	return sfq_pick(t, p, unit);
}

#define eevdf_has_client 1
RS_INLINE int eevdf_client(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->weight && ee_client(p, c);
}

#define eevdf_has_request 1
RS_INLINE u64 eevdf_request(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return ee_length(p, c);
}

#define eevdf_has_told 1
RS_INLINE u64 eevdf_told(struct rs_node RS_ARENA *p)
{
	return p->lag_ns;
}
