/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Policy wf2q: worst-case fair weighted fair queueing with the fluid system itself (GPS), among the
 * children of a node; composed along the tree it is what Eclipse/BSD ran for links. For servers of
 * known lengths whose arrivals are told (rs_arrive).
 *
 * Problem. wf2q+ has a virtual time that is only a bound of the fluid system's; so a child may be a
 * little ahead or behind where others come and go. Here the fluid system is followed exactly, with
 * weights and children that change.
 *
 * Idea. In the fluid system every child that has work is served all the time, in proportion to the
 * weights. Its virtual time V goes by dV = dwork / W, W the sum of the weights of those that have
 * work *there*: a child may be through in the fluid while its last packet still waits here, or the
 * other way round. A packet is eligible when the fluid has begun it (S <= V); of those the one goes
 * first that the fluid finishes first (F).
 *
 * State. Child: its arrivals as segments {base, work}: one for each time that it had work in the
 * fluid without a pause, from V = base on. So the fluid is at the offset o of a segment when V =
 * base + o / w; tags are not kept but follow from that, and a change of weight moves the bases
 * alone. `at` is how much of the first segment has been sent. S = tag.base = base + at / w; F the
 * same `head` further on; `end` where all that arrived is served. Node: V (clock.v), W (of.gps.w),
 * the work that V has not been moved for yet because it is less than a unit (carry), and `defer`.
 *
 * Rules, in order of execution:
 *   1. work arrives: V first goes on by what the packet on the wire has done. If the fluid has nothing of the child's, a segment with
 *      base V begins, and the child counts in W; the work goes to the end of its last segment        wf2q_arrive
 *   2. V passes a child's `end`: it does not count in W any more. V passes a child's S: it is eligible    gps_event
 *   3. pick: of the ready children with S <= V the one with the smallest (F, seq)                          wf2q_pick
 *   4. packet of length l ends: V goes on by l, from event to event; `at` by l                             wf2q_charge
 *   5. the last packet leaves: V stays, and all of the fluid is void                                       wf2q_idle
 *   6. weight changes: base - V scales with old / new, so what the fluid has still to serve of the child stays the same    wf2q_reweight
 *   7. a child goes with work that it still had, is held back by a cap, or had less than was told: what the fluid served of it beyond what was sent is
 *      done by the others at once; what was sent beyond the fluid makes the fluid stand still for that much work (defer)     gps_flush
 *   8. work that was not told when it came counts as arriving when it is the head                          wf2q_length
 *
 * Two heaps: `ready` has all ready children by F, those that are not eligible with 2^61 added;
 * `aside` has the events of rule 2 by V: up to two a child.
 *
 * Background (weight 0) children sort behind all others; V does not move for them.
 *
 * Example (also a test): weights 1 and 2, packets of 6, three of each at V = 0. In the fluid B's
 * end at 3, 6, 9, A's at 6, 12, 18. B A B B A A: wf2q+ would do the same. Now B alone has one of 6,
 * and A's come when half of it is sent: V = 1.5, and A's first S is 1.5.
 *
 * Bounds, for a node that has C, r = w C / (sum of all w), L the longest packet of all and l_i of the child:
 *   fluid - sent <= L, sent - fluid <= (1 - w / sum w) l_i            (WF-1)
 *   departure <= EAT + l / r + L / C                                 (WF-2), EAT = max(arrival, EAT of the one before + its l / r)
 * Both times have L / C more where rs_tree.progress is not told. The index of wf2q+ (WF-4) does not hold here from any start: a child may wait here while
 * the fluid has nothing of it.
 *
 * Deviations: late commit as in wf2q+ (an inner child's head is what it would send now).
 * RS_SEGMENTS segments at once; a child that would need more has two of its own joined, the earlier
 * one's work as late as the later one's. One unit only.
 *
 * References: Bennett, Zhang: WF2Q, INFOCOM'96; Parekh, Gallager 1993; Eclipse/BSD §2.1
 * (hierarchical WF2Q with online changes).
 */
#define GPS_LATER (1ULL << 61)
/* in the stamp of an event: the fluid is through with a child, else a child becomes eligible */
#define GPS_ENDS 1

RS_INLINE struct rs_node RS_ARENA *gps_of_alink(struct rs_link RS_ARENA *l)
{
	return (struct rs_node RS_ARENA *)((char RS_ARENA *)l - __builtin_offsetof(struct rs_node, alink));
}

RS_INLINE struct rs_node RS_ARENA *gps_of_fluid(struct rs_link RS_ARENA *l)
{
	return (struct rs_node RS_ARENA *)((char RS_ARENA *)l - __builtin_offsetof(struct rs_node, as.gps.fluid));
}

RS_INLINE struct rs_segment RS_ARENA *gps_segment(struct rs_tree RS_ARENA *t, u32 name)
{
	return &t->segment[(name - 1) & (RS_SEGMENTS - 1)];
}

/*
 * Whether what is kept of c is meant: it has segments. The epoch ends when the last runnable child
 * becomes idle.
 */
RS_INLINE int gps_client(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->as.gps.epoch && c->as.gps.epoch == p->of.gps.epoch + 1;
}

RS_INLINE int gps_later(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->alink.pos && gps_client(p, c);
}

/* The tag at which the fluid has served `work` of a segment. */
RS_INLINE u64 gps_tag(struct rs_segment RS_ARENA *g, u64 work, u32 w)
{
	return g->base + (work << RS_TAG_SHIFT) / w;
}

RS_INLINE u64 gps_stamp(struct rs_tree RS_ARENA *t, u32 what)
{
	return ++t->stamp << 1 | what;
}

/* c's segments, of whatever epoch, are free. */
RS_INLINE void gps_clean(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	u32 at = c->as.gps.first;

	RS_LOOP(i, RS_SEGMENTS) {
		u32 next;

		if (!at)
			break;
		next = gps_segment(t, at)->next;
		gps_segment(t, at)->next = t->segment_free;
		t->segment_free = at;
		t->segments_live--;
		at = next;
	}
	c->as.gps.first = 0;
	c->as.gps.last = 0;
	c->as.gps.at = 0;
	c->as.gps.epoch = 0;
}

/* c is none of the fluid's and has no segments. */
RS_FN_VOID(gps_drop, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (gps_client(p, c)) {
		if (c->alink.pos)
			rs_heap_erase(t, &p->aside, &c->alink);
		if (c->as.gps.fluid.pos) {
			rs_heap_erase(t, &p->aside, &c->as.gps.fluid);
			p->of.gps.w -= c->weight;
		}
	}
	c->alink.pos = 0;
	c->as.gps.fluid.pos = 0;
	gps_clean(t, c);
}

/* The first event: V has reached it. */
RS_FN_VOID(gps_event, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p), (t, p))
{
	struct rs_link RS_ARENA *l = p->aside.e[0].obj;
	struct rs_node RS_ARENA *c;

	if (p->aside.e[0].seq & GPS_ENDS) {
		c = gps_of_fluid(l);
		rs_heap_erase(t, &p->aside, l);
		p->of.gps.w -= c->weight;
		if (!c->runnable)
			gps_clean(t, c);
		return;
	}
	c = gps_of_alink(l);
	rs_heap_erase(t, &p->aside, l);
	if (c->link.pos)
		rs_heap_rekey(t, &p->ready, c->as.gps.finish, p->ready.e[c->link.pos - 1].seq, &c->link);
}

/* The fluid serves d more, in work << RS_TAG_SHIFT. */
RS_FN_VOID(gps_run, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u64 d), (t, p, d))
{
	u64 x = d < p->of.gps.defer ? d : p->of.gps.defer, gap;

	p->of.gps.defer -= x;
	d += p->of.gps.carry - x;
	RS_LOOP(i, 4 * RS_NODES_MAX) {
		u64 w = p->of.gps.w;

		if (!w || !p->aside.n) {
			p->of.gps.carry = 0;
			return;
		}
		x = d / w;
		gap = rs_before(p->clock.v, p->aside.e[0].key) ? p->aside.e[0].key - p->clock.v : 0;
		if (x < gap) {
			p->clock.v += x;
			p->of.gps.carry = d - x * w;
			return;
		}
		p->clock.v += gap;
		d -= gap * w;
		gps_event(t, p);
	}
	rs_poison(t, RS_POISON_SCAN);
}

RS_INLINE void gps_advance(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u64 work)
{
	gps_run(t, p, (work < RS_WORK_MAX ? work : RS_WORK_MAX) << RS_TAG_SHIFT);
}

/* As wfp_progress: the fluid has what the packet on the wire has done so far. */
RS_INLINE void gps_progress(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	u64 done = t->progress < p->res ? t->progress : p->res;

	if (RS_SEVERAL(t) || done > RS_WORK_MAX || done <= p->of.gps.done)
		return;
	gps_advance(t, p, done - p->of.gps.done);
	p->of.gps.done = done;
}

/* c, whose S has changed, waits for V or not. */
RS_INLINE void gps_sort(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	if (c->alink.pos)
		rs_heap_rekey(t, &p->aside, c->tag.base, gps_stamp(t, 0), &c->alink);
	else if (rs_before(p->clock.v, c->tag.base))
		rs_heap_push(t, &p->aside, c->tag.base, gps_stamp(t, 0), &c->alink);
}

/* S and F: F as if what is missing at the end had come at once. */
RS_FN_VOID(gps_tags, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c, u32 w), (t, c, w))
{
	u32 name = c->as.gps.first;
	struct rs_segment RS_ARENA *g;
	u64 to = c->as.gps.at + c->head;

	if (!name)
		return;
	g = gps_segment(t, name);
	c->tag.base = gps_tag(g, c->as.gps.at, w);
	RS_LOOP(i, RS_SEGMENTS) {
		if (to <= g->work || !g->next)
			break;
		to -= g->work;
		g = gps_segment(t, g->next);
	}
	c->as.gps.finish = gps_tag(g, to, w);
}

/* Work that was told and has not been sent. */
RS_FN u64 gps_known(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	u32 name = c->as.gps.first;
	u64 sum = 0;

	RS_LOOP(i, RS_SEGMENTS) {
		if (!name)
			break;
		sum += gps_segment(t, name)->work;
		name = gps_segment(t, name)->next;
	}
	return sum - c->as.gps.at;
}

/* A segment behind c's last; 0: there is no room, which the first of a child always has. */
RS_FN u32 gps_begin(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c, u64 base)
{
	u32 name = t->segment_free;

	if (c->as.gps.first && t->segments_live >= RS_SEGMENTS - RS_NODES_MAX)
		return 0;
	if (name)
		t->segment_free = gps_segment(t, name)->next;
	else if (t->segments_used < RS_SEGMENTS)
		name = ++t->segments_used;
	if (!name)
		return 0;
	t->segments_live++;
	gps_segment(t, name)->base = base;
	gps_segment(t, name)->work = 0;
	gps_segment(t, name)->next = 0;
	if (c->as.gps.last)
		gps_segment(t, c->as.gps.last)->next = name;
	else
		c->as.gps.first = name;
	c->as.gps.last = name;
	return name;
}

/* The first segment of a child in service has changed: its tags and places. */
RS_FN_VOID(gps_anew, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	gps_tags(t, c, c->weight);
	gps_sort(t, p, c);
	if (c->link.pos)
		rs_heap_rekey(t, &p->ready, c->as.gps.finish + (gps_later(p, c) ? GPS_LATER : 0), p->ready.e[c->link.pos - 1].seq, &c->link);
}

/* `work` of c's comes now; in a new segment from `base` on if the fluid has nothing of it. */
RS_FN_VOID(gps_come, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u64 work, u64 base), (t, p, c, work, base))
{
	struct rs_segment RS_ARENA *g;
	u32 w = c->weight, anew = 0;

	if (!w)
		return;
	if (!gps_client(p, c)) {
		gps_clean(t, c);
		c->alink.pos = 0;
		c->as.gps.fluid.pos = 0;
		c->as.gps.epoch = p->of.gps.epoch + 1;
	}
	if (!c->as.gps.fluid.pos) {
		u32 last = c->as.gps.last;

		/*
		 * All of the last one has been sent, or there is no room for more: it begins anew.
		 */
		if ((last && last == c->as.gps.first && c->as.gps.at >= gps_segment(t, last)->work) || !gps_begin(t, c, base)) {
			g = gps_segment(t, last);
			g->base = base - (g->work << RS_TAG_SHIFT) / w;
			anew = c->runnable;
		}
		p->of.gps.w += w;
	}
	g = gps_segment(t, c->as.gps.last);
	g->work += work;
	c->as.gps.end = gps_tag(g, g->work, w);
	if (c->as.gps.fluid.pos)
		rs_heap_rekey(t, &p->aside, c->as.gps.end, gps_stamp(t, GPS_ENDS), &c->as.gps.fluid);
	else
		rs_heap_push(t, &p->aside, c->as.gps.end, gps_stamp(t, GPS_ENDS), &c->as.gps.fluid);
	if (anew)
		gps_anew(t, p, c);
}

/*
 * What V has reached happens. If nobody that is ready is eligible, and nothing is in service, V
 * goes on to where somebody is (roundings; after a flush). Answers 0 where there is no end to it.
 */
RS_FN int gps_front(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	RS_LOOP(i, 4 * RS_NODES_MAX) {
		if (!p->aside.n)
			return 1;
		if (rs_before(p->clock.v, p->aside.e[0].key)) {
			struct rs_node RS_ARENA *c = (struct rs_node RS_ARENA *)p->ready.e[0].obj;

			if (p->nsvc || !p->ready.n || !c->weight || !gps_later(p, c))
				return 1;
			p->clock.v = p->aside.e[0].key;
			p->of.gps.carry = 0;
		}
		gps_event(t, p);
	}
	rs_poison(t, RS_POISON_SCAN);
	return 0;
}

/*
 * c goes out of the fluid with whatever it has there. What it was given too much or too little of
 * is made good to the others.
 */
RS_FN_VOID(gps_flush, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	u32 name = c->as.gps.first;
	s64 lag;

	if (!gps_client(p, c)) {
		gps_drop(t, p, c);
		return;
	}
	lag = -(s64)(c->as.gps.at << RS_TAG_SHIFT);
	RS_LOOP(i, RS_SEGMENTS) {
		struct rs_segment RS_ARENA *g;

		if (!name)
			break;
		g = gps_segment(t, name);
		name = g->next;
		if (name || !c->as.gps.fluid.pos)
			lag += g->work << RS_TAG_SHIFT;
		else
			lag += (p->clock.v - g->base) * c->weight;
	}
	gps_drop(t, p, c);
	if (lag > 0)
		gps_run(t, p, lag);
	else
		p->of.gps.defer += -lag;
}

RS_INLINE u64 wf2q_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (!c->weight)
		return c->tag.base;
	return gps_later(c->parent, c) ? c->as.gps.finish + GPS_LATER : c->as.gps.finish;
}

/*
 * `work` has come somewhere below c. What a cap holds back is not told: it comes when it is the
 * head.
 */
RS_FN_VOID(wf2q_arrive, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u64 work), (t, p, c, work))
{
	if (!c->weight)
		return;
	gps_front(t, p);
	gps_progress(t, p);
	gps_come(t, p, c, work, p->clock.v);
}

/* The head of c, which is runnable, is known by now if it was not. */
RS_INLINE void gps_head(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 base)
{
	u64 known = gps_client(p, c) ? gps_known(t, c) : 0;

	if (known < c->head || !known)
		gps_come(t, p, c, c->head - known, base);
	gps_tags(t, c, c->weight);
}

RS_FN_VOID(wf2q_wake, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (!c->weight) {
		if (c->tag.base - p->vb > RS_ADVANCE_MAX) {
			c->tag.base = p->vb;
			c->tag.rem = 0;
		}
		return;
	}
	gps_front(t, p);
	gps_progress(t, p);
	gps_head(t, p, c, p->clock.v);
	gps_sort(t, p, c);
}

RS_FN_VOID(wf2q_idle, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	if (!c->weight || !gps_client(p, c))
		return;
	if (!p->nrun) {
		p->of.gps.epoch++;
		p->of.gps.w = 0;
		p->of.gps.carry = 0;
		p->of.gps.defer = 0;
		p->aside.n = 0;
		c->alink.pos = 0;
		c->as.gps.fluid.pos = 0;
		gps_clean(t, c);
	} else if (gps_known(t, c)) {
		gps_flush(t, p, c);
	} else if (!c->as.gps.fluid.pos) {
		gps_drop(t, p, c);
	} else if (c->alink.pos) {
		rs_heap_erase(t, &p->aside, &c->alink);
	}
}

RS_INLINE void wf2q_dispatch(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	(void)t;
	if (!c->weight && rs_before(p->vb, c->tag.base))
		p->vb = c->tag.base;
}

/*
 * c has sent `work`: its first segments are through here, and the offsets in what is first now stay
 * small.
 */
RS_FN_VOID(gps_sent, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u64 work), (t, p, c, work))
{
	struct rs_segment RS_ARENA *g;
	u64 at = c->as.gps.at + work, k;

	RS_LOOP(i, RS_SEGMENTS) {
		u32 name = c->as.gps.first;

		g = gps_segment(t, name);
		if (at < g->work || !g->next)
			break;
		at -= g->work;
		c->as.gps.first = g->next;
		g->next = t->segment_free;
		t->segment_free = name;
		t->segments_live--;
	}
	g = gps_segment(t, c->as.gps.first);
	c->as.gps.at = at;
	if (at > g->work)
		/* more than was told: it has come and gone */
		gps_come(t, p, c, at - g->work, p->clock.v);
	k = at / c->weight;
	g->base += k << RS_TAG_SHIFT;
	g->work -= k * c->weight;
	c->as.gps.at = at - k * c->weight;
}

RS_FN_VOID(gps_charge, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u64 work), (t, p, c, work))
{
	u64 done = p->of.gps.done;

	if (work > RS_WORK_MAX)
		work = RS_WORK_MAX;
	p->of.gps.done = 0;
	if (!c->weight) {
		c->tag.base += rs_vwork(work, RS_WEIGHT_ONE);
		return;
	}
	gps_front(t, p);
	gps_advance(t, p, work > done ? work - done : 0);
	if (!gps_client(p, c))
		return;
	gps_sent(t, p, c, work);
	gps_tags(t, c, c->weight);
	gps_sort(t, p, c);
}

RS_INLINE void wf2q_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 work, u32 forced)
{
	(void)forced;
	gps_charge(t, p, c, work);
}

/* A distance from V at another weight; it rounds away from V where it is behind. */
RS_INLINE u64 gps_scale(u64 d, u32 old, u32 w, u32 up)
{
	u64 x = d % w * old;

	return d / w * old + x / w + (up && x % w);
}

RS_FN_VOID(wf2q_reweight, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c, u32 w), (t, p, c, w))
{
	u32 old = c->weight, name = c->as.gps.first;
	struct rs_segment RS_ARENA *g;

	gps_front(t, p);
	if (!old || !w) {
		if (old)
			gps_flush(t, p, c);
		c->tag.base = p->vb;
		c->tag.rem = 0;
		if (w && c->runnable) {
			c->weight = w;
			gps_head(t, p, c, p->clock.v);
			gps_sort(t, p, c);
			c->weight = old;
		}
		return;
	}
	if (!gps_client(p, c))
		return;
	RS_LOOP(i, RS_SEGMENTS) {
		if (!name)
			break;
		g = gps_segment(t, name);
		if (rs_before(g->base, p->clock.v))
			g->base = p->clock.v - gps_scale(p->clock.v - g->base, old, w, 1);
		else
			g->base = p->clock.v + gps_scale(g->base - p->clock.v, old, w, 0);
		name = g->next;
	}
	if (c->as.gps.fluid.pos) {
		g = gps_segment(t, c->as.gps.last);
		p->of.gps.w += (u64)w - old;
		c->as.gps.end = gps_tag(g, g->work, w);
		rs_heap_rekey(t, &p->aside, c->as.gps.end, gps_stamp(t, GPS_ENDS), &c->as.gps.fluid);
	}
	gps_tags(t, c, w);
	if (c->runnable)
		gps_sort(t, p, c);
}

/* The head of c is another one, or may be. */
RS_INLINE void wf2q_length(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	if (!c->weight || !c->runnable || !gps_client(p, c))
		return;
	gps_head(t, p, c, p->clock.v);
	gps_sort(t, p, c);
}

RS_INLINE void wf2q_front(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	gps_front(t, p);
}

RS_INLINE void wf2q_leave(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	gps_flush(t, p, c);
}

RS_INLINE s64 wf2q_offset(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->tag.base - p->clock.v;
}

RS_INLINE void wf2q_start(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, s64 offset)
{
	u64 ahead = (u64)offset > RS_ADVANCE_MAX ? RS_ADVANCE_MAX : (u64)offset;

	gps_head(t, p, c, p->clock.v + ahead);
	gps_sort(t, p, c);
}

enum { wf2q_aside = 2, wf2q_mode = RS_MODE_LENGTH | RS_MODE_ARRIVALS };
#define wf2q_has_wake 1
#define wf2q_has_idle 1
#define wf2q_has_dispatch 1
#define wf2q_has_length 1
#define wf2q_has_front 1
#define wf2q_has_arrive 1
#define wf2q_has_reweight 1
#define wf2q_has_offset 1
#define wf2q_has_start 1
#define wf2q_has_leave 1

RS_INLINE struct rs_node RS_ARENA *wf2q_pick(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit)
{
	return p->ready.n && gps_front(t, p) ? sfq_pick(t, p, unit) : 0;
}
