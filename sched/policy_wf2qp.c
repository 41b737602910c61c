/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Policy wf2q+: worst-case fair weighted fair queueing plus, among the children of a node; composed
 * along the tree it is H-WF2Q+. For servers of known lengths: a link's packets.
 *
 * Problem. Under sfq a packet may wait for one of each sibling, whatever its weight; so the delay
 * of a child grows with the number of children. Under weighted fair queueing it does not, but a
 * child may run ahead by half of the link and then wait as long. Here a child is neither behind nor
 * ahead of its fluid share by more than about a packet.
 *
 * Idea. A packet is eligible when the fluid system would have begun it (S <= V); of the eligible
 * ones, the one that the fluid system would finish first (F) goes first. V is not that of the fluid
 * system but a lower bound, which costs a division instead of a simulation.
 *
 * State. Child: start tag S (tag.base, tag.rem), finish tag F = S + l / w, where l is the length of
 * what its subtree would send next (refresh.c, rs_head_of). Node: V (clock.v and of.wf.frac), W =
 * sum of the weights of the clients: children that are runnable, and idle ones with S > V
 * ("ghosts", whose S is the finish tag of their last packet).
 *
 * Rules, in order of execution:
 *   1. child becomes runnable: S = V, or max(V, S) if it is a ghost; V first goes on by what the packet on the wire has done
 *      so far (rs_tree.progress), all of it if that is not known                                         wf2qp_wake
 *   2. the head of a child's subtree changes: F = S + l / w, S stays; but once the node has picked, no less than it was then
 *      (late commit of what is sent, early commit of when)                                               wf2qp_length
 *   3. pick: of the ready children with S <= V the one with the smallest (F, seq); if there is none, V = min S first   wf2qp_pick
 *   4. packet of length l ends: V += l / W, S += l / w, whatever length had been announced; until S has reached what F was,
 *      the next F is no less                                                                              wfp_charge
 *   5. child becomes idle: with S > V it stays in W until V has reached S. The last one: all tags
 *      of the node are void, V stays wf2qp_idle
 *   6. weight changes: S - V scales with 1 / w, whichever sign it has                                    wf2qp_reweight
 *
 * Two heaps: `ready` has all ready children by F; `aside` has ghosts by S, and who has come first
 * in `ready` without being eligible: it has 2^61 added to its F there. What V has passed is taken
 * out of `aside`. So who is not eligible costs nothing while there is somebody before it, which is
 * always where weights and lengths are equal. V never goes back.
 *
 * Background (weight 0) children sort behind all others, as with sfq; V does not move for them.
 *
 * Example (also a test): weights 1 and 2, packets of 6, both from V = 0. F is 6 and 3. B: S = 3,
 * V = 2: not eligible. A: V = 4, S = 6. B: V = 6. So B A B, and again.
 *
 * Why F does not fall (rules 2 and 4). Below an inner node a packet may come that is shorter than
 * the one by which the node has been put in order among its siblings. Were F then S + l / w, it
 * might lie before V, and the node would take all at once what it had waited for: up to a longest
 * packet of its own, ahead of siblings whose F is earlier than what had been said, and WF-2 would
 * not hold for them. With it, what the node sends between S and that F is to them one packet.
 * (tests/host/net_model has the case: 600 bytes that left 6712 byte times after EAT + l / r + L /
 * C.)
 *
 * Bounds, for a node that has C, r = w C / (sum of all w), L the longest packet of all and l_i of the child:
 *   departure <= EAT + l / r + L / C                                 (WF-2), EAT = max(arrival, EAT of the one before + its l / r)
 *   W_i >= (w / sum w) W - (l_i + (L - l_i) w / sum w)               (WF-4) until any departure of i, while it is backlogged; of
 *          an inner node, until the departure of a packet of length s, (1 - w / sum w) (l_i - s) more (below)
 * Both have L / C more where `progress` is not told. Below the root: WF-5. Fairness: as WF-4 for both sides.
 *
 * That of an inner node: when a packet of it is picked V <= F + (L - (F - S) w) / W, since what is
 * left until F might have been one packet. So it is behind by (1 - w / W) (F - S) w + L w / W at
 * most, and ahead by (1 - w / W) l_i before; a packet of s takes (1 - w / W) s of that. In the form
 * for any moment both are as for a leaf, 2 (1 - w / W) l_i + L w / W.
 *
 * Deviations from the paper: W counts clients and not all that exist, so unused shares go round at
 * once; late commit. One unit only: on several, shares are right where each child has work for all,
 * and no bound is claimed.
 *
 * References: Bennett, Zhang: WF2Q, INFOCOM'96; hierarchical packet fair queueing (H-WF2Q+),
 * SIGCOMM'96. W as in dummynet and BFQ.
 */
#define WFP_LATER (1ULL << 61)
#define WFP_FRAC 20 /* V has so many binary places below the unit of tags */

RS_INLINE struct rs_node RS_ARENA *wfp_of_alink(struct rs_link RS_ARENA *l)
{
	return (struct rs_node RS_ARENA *)((char RS_ARENA *)l - __builtin_offsetof(struct rs_node, alink));
}

/* Whether c is counted in W. The epoch ends when the last runnable child becomes idle. */
RS_INLINE int wfp_client(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->as.wf.epoch && c->as.wf.epoch == p->of.wf.epoch + 1;
}

RS_INLINE int wfp_later(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->alink.pos && wfp_client(p, c);
}

/*
 * The node has done `work` more. V has places below its unit: less than 2^-20 of one is cut off
 * each time.
 */
RS_INLINE void wfp_advance(struct rs_node RS_ARENA *p, u64 work)
{
	u64 w = p->of.wf.w, x = work << RS_TAG_SHIFT, v;

	if (!w || !work)
		return;
	v = x / w;
	p->of.wf.frac += (x % w << WFP_FRAC) / w;
	v += p->of.wf.frac >> WFP_FRAC;
	p->of.wf.frac &= (1ULL << WFP_FRAC) - 1;
	p->clock.v += v > RS_ADVANCE_MAX ? RS_ADVANCE_MAX : v;
}

/*
 * W is about to change while a step is in service: V first gets what that has done so far under the
 * old W, by what the caller says; all that is reserved for it if that is not known. (Several units:
 * at the end of each step.)
 */
RS_INLINE void wfp_progress(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	u64 done = t->progress < p->res ? t->progress : p->res;

	if (RS_SEVERAL(t) || done > RS_WORK_MAX || done <= p->of.wf.done)
		return;
	wfp_advance(p, done - p->of.wf.done);
	p->of.wf.done = done;
}

/* F, by the length that c's subtree would send next. */
RS_INLINE void wfp_finish(struct rs_node RS_ARENA *c, u32 w)
{
	u64 x = (((u64)c->head << RS_TAG_SHIFT) + c->tag.rem) / w;

	c->as.wf.finish = c->tag.base + (x > RS_ADVANCE_MAX ? RS_ADVANCE_MAX : x);
	if (rs_before(c->as.wf.finish, c->as.wf.floor))
		c->as.wf.finish = c->as.wf.floor;
}

/* What F is kept from falling below, from the next change on. */
RS_INLINE void wfp_commit(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 floor)
{
	c->as.wf.floor = floor;
	c->as.wf.mark = p->of.wf.picks;
}

/* c is aside, and its S has changed. */
RS_INLINE void wfp_sort(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	if (c->alink.pos)
		rs_heap_rekey(t, &p->aside, c->tag.base, ++t->stamp, &c->alink);
}

RS_INLINE void wfp_drop(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	if (c->alink.pos)
		rs_heap_erase(t, &p->aside, &c->alink);
	c->as.wf.epoch = 0;
	p->of.wf.w -= c->weight;
}

RS_INLINE u64 wf2qp_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (!c->weight)
		return c->tag.base;
	return wfp_later(c->parent, c) ? c->as.wf.finish + WFP_LATER : c->as.wf.finish;
}

/*
 * What V has passed is eligible, or leaves W; who comes first in `ready` and is not eligible goes
 * aside. If nobody that is ready is eligible, and nothing is in service, V goes on to the smallest
 * S. Answers 0 where there is no end to it: each child goes aside once and comes back once, at the
 * most.
 */
RS_FN int wfp_front_far(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	RS_LOOP(i, 2 * RS_NODES_MAX) {
		struct rs_node RS_ARENA *c;

		if (!p->aside.n || rs_before(p->clock.v, p->aside.e[0].key)) {
			c = p->ready.n ? (struct rs_node RS_ARENA *)p->ready.e[0].obj : 0;
			if (!c || !c->weight || !rs_before(p->clock.v, c->tag.base))
				return 1;
			if (!c->alink.pos) {
				rs_heap_push(t, &p->aside, c->tag.base, ++t->stamp, &c->alink);
				rs_heap_rekey(t, &p->ready, c->as.wf.finish + WFP_LATER, p->ready.e[0].seq, &c->link);
				continue;
			}
			if (p->nsvc)
				return 1;
			p->clock.v = p->aside.e[0].key;
			p->of.wf.frac = 0;
		}
		c = wfp_of_alink(p->aside.e[0].obj);
		if (!c->runnable) {
			wfp_drop(t, p, c);
			continue;
		}
		rs_heap_erase(t, &p->aside, &c->alink);
		if (c->link.pos)
			rs_heap_lower(t, &p->ready, c->as.wf.finish, &c->link);
	}
	rs_poison(t, RS_POISON_SCAN);
	return 0;
}

/* Mostly there is nothing to do, which is seen without a call. */
RS_INLINE int wfp_front(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	u64 v = p->clock.v;
	struct rs_node RS_ARENA *c;

	if (p->aside.n && !rs_before(v, p->aside.e[0].key))
		return wfp_front_far(t, p);
	c = p->ready.n ? (struct rs_node RS_ARENA *)p->ready.e[0].obj : 0;
	return c && c->weight && rs_before(v, c->tag.base) ? wfp_front_far(t, p) : 1;
}

/* c, with weight w, counts from now on, with start tag s. */
RS_INLINE void wfp_join(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u32 w, u64 s)
{
	c->tag.base = s;
	c->tag.rem = 0;
	c->alink.pos = 0;
	c->as.wf.epoch = p->of.wf.epoch + 1;
	p->of.wf.w += w;
	wfp_commit(p, c, s);
	wfp_finish(c, w);
}

RS_FN_VOID(wf2qp_wake, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (!c->weight) {
		if (c->tag.base - p->vb > RS_ADVANCE_MAX) {
			c->tag.base = p->vb;
			c->tag.rem = 0;
		}
		return;
	}
	wfp_front(t, p);
	wfp_progress(t, p);
	if (!wfp_client(p, c)) {
		wfp_join(p, c, c->weight, p->clock.v);
		return;
	}
	if (rs_before(c->tag.base, p->clock.v)) {
		c->tag.base = p->clock.v;
		c->tag.rem = 0;
	}
	wfp_commit(p, c, c->tag.base);
	wfp_finish(c, c->weight);
	wfp_sort(t, p, c);
}

RS_FN_VOID(wf2qp_idle, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (!c->weight || !wfp_client(p, c))
		return;
	if (!p->nrun) {
		p->of.wf.epoch++;
		p->of.wf.w = 0;
		p->aside.n = 0;
		c->alink.pos = 0;
	} else if (!rs_before(p->clock.v, c->tag.base)) {
		wfp_drop(t, p, c);
	} else if (c->alink.pos) {
		wfp_sort(t, p, c);
	} else {
		rs_heap_push(t, &p->aside, c->tag.base, ++t->stamp, &c->alink);
	}
}

RS_INLINE void wf2qp_dispatch(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (!c->weight && rs_before(p->vb, c->tag.base))
		p->vb = c->tag.base;
}

RS_FN_VOID(wfp_charge, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u64 work), (t, p, c, work))
{
	u64 done = p->of.wf.done;

	if (work > RS_WORK_MAX)
		work = RS_WORK_MAX;
	p->of.wf.done = 0;
	if (!c->weight) {
		c->tag.base += rs_vwork(work, RS_WEIGHT_ONE);
		return;
	}
	if (!wfp_client(p, c))
		return;
	/* W is what it has been until now. (The step that ends is in service still, for p.) */
	if (p->aside.n && !rs_before(p->clock.v, p->aside.e[0].key))
		wfp_front_far(t, p);
	wfp_advance(p, work > done ? work - done : 0);
	rs_tag_charge(&p->clock, &c->tag, work, c->weight);
	wfp_commit(p, c, c->as.wf.finish);
	wfp_finish(c, c->weight);
	wfp_sort(t, p, c);
}

/*
 * Inlined: the compiler drops an argument that nobody uses, and the kernel's verifier wants it from
 * the caller of a function of its own.
 */
RS_INLINE void wf2qp_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 work, u32 forced)
{
	(void)forced;
	wfp_charge(t, p, c, work);
}

RS_FN_VOID(wf2qp_reweight, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u32 w), (t, p, c, w))
{
	u64 old = c->weight, d, x;
	u32 behind;

	wfp_front(t, p);
	if (!old || !w) {
		if (old && wfp_client(p, c))
			wfp_drop(t, p, c);
		c->tag.base = p->vb;
		c->tag.rem = 0;
		if (w && c->runnable)
			wfp_join(p, c, w, p->clock.v);
		return;
	}
	if (!wfp_client(p, c))
		return;
	/*
	 * (d + rem / old) old / w, with the remainder of that; what is behind V rounds towards it.
	 */
	behind = rs_before(c->tag.base, p->clock.v);
	d = behind ? p->clock.v - c->tag.base : c->tag.base - p->clock.v;
	x = d % w * old + (behind ? 0 : c->tag.rem);
	d = d / w * old + x / w;
	if (d > RS_ADVANCE_MAX)
		d = RS_ADVANCE_MAX;
	c->tag.rem = behind ? 0 : x % w;
	c->tag.base = behind ? p->clock.v - d : p->clock.v + d;
	p->of.wf.w += w - old;
	wfp_commit(p, c, c->tag.base);
	wfp_finish(c, w);
	wfp_sort(t, p, c);
}

/* The length of what c would send next has changed. */
RS_INLINE void wf2qp_length(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (!c->weight || !wfp_client(p, c))
		return;
	if (c->as.wf.mark != p->of.wf.picks)
		wfp_commit(p, c, c->as.wf.finish);
	wfp_finish(c, c->weight);
}

RS_INLINE void wf2qp_front(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	wfp_front(t, p);
}

RS_INLINE void wf2qp_leave(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	if (wfp_client(p, c))
		wfp_drop(t, p, c);
	c->alink.pos = 0;
	c->as.wf.epoch = 0;
}

RS_INLINE s64 wf2qp_offset(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->tag.base - p->clock.v;
}

RS_INLINE void wf2qp_start(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, s64 offset)
{
	(void)t;
	wfp_join(p, c, c->weight, p->clock.v + ((u64)offset > RS_ADVANCE_MAX ? RS_ADVANCE_MAX : (u64)offset));
}

enum { wf2qp_aside = 1, wf2qp_mode = RS_MODE_LENGTH };
#define wf2qp_has_wake 1
#define wf2qp_has_idle 1
#define wf2qp_has_dispatch 1
#define wf2qp_has_length 1
#define wf2qp_has_front 1
#define wf2qp_has_reweight 1
#define wf2qp_has_offset 1
#define wf2qp_has_start 1
#define wf2qp_has_leave 1

RS_INLINE struct rs_node RS_ARENA *wf2qp_pick(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit)
{
	p->of.wf.picks++;
	return p->ready.n && wfp_front(t, p) ? sfq_pick(t, p, unit) : 0;
}

#define wf2qp_has_client 1
/* Who is idle and has been passed by V leaves when that is next looked at. */
RS_INLINE int wf2qp_client(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return wfp_client(p, c) && (c->runnable || rs_before(p->clock.v, c->tag.base));
}
