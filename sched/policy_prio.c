/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Policy prio: strict priority with usage decay, and an idle class: the time-sharing half of
 * resource containers.
 *
 * Problem. Some children are to be served before others whatever these want, and some only when
 * nothing else wants service; and among children of about the same priority, who has received much
 * lately should stand back for who has not.
 *
 * Idea. Each child has a level; the ready child of the highest is served, equals take turns step by
 * step. Recent usage moves a child by at most one level, so that two levels apart order is never
 * reversed, and three apart it is strict. Level 0 is apart: it is never raised, and nothing is
 * lowered to it.
 *
 * Usage is the work that a child received, halved each time its parent has handed out a period's
 * worth (decay, default 2.4 s, which is the 3/4 per second of docs/notes/algorithms.md §8.1). So it
 * is measured in what the parent has to give, and not in time: a child that has all of it for long
 * has a usage of 1 to 2 periods, whatever the parent's own share. More than one period: heavy, a
 * level down. At most a quarter: light, a level up.
 *
 * Rules, in order of execution:
 *   1. level = prio - 1, prio or prio + 1 by usage; prio 0: behind all                              prio_key
 *   2. pick: the ready child of the highest level, of equals the one that waits there longest       sfq_pick
 *   3. step of length l ends: usage += l; the child goes behind its equals. When the parent has handed out a period's worth all usages
 *      are halved, and those that wait get their new places                                         prio_charge
 *   4. wake: of a higher level than the child in service: it displaces that                         prio_ahead
 *
 * Example (also a test): levels A 20, B 10, C 0, steps of 4 ms. While A wants service neither B nor
 * C has any; A sleeps: B; both sleep: C; B wakes: C is displaced at once.
 *
 * Many children: where more than RS_PRIO_PIECE wait, a halving gives them their new places a piece
 * at a time, with each choice: the last one has it after as many choices as there are pieces among
 * all nodes, 64 at most. A child that is served has it at once.
 *
 * Bounds: with every usage between the limits for good, no child waits longer than a step in
 * service while one of a lower level is served; equals that stay ready differ by at most one step
 * in the number of their steps.
 *
 * Deviations: weights are not looked at, except 0: background, behind the idle class.
 *
 * References: Banga, Druschel, Mogul: resource containers (OSDI'99) §4.3, §5.1; McKusick et al. on
 * 4.4BSD for decay.
 */
#define PRIO_DECAY_NS 2400000000ULL
#define PRIO_IDLE_KEY 1000

RS_INLINE u64 prio_period(struct rs_node RS_ARENA *p)
{
	return p->decay_ns ? p->decay_ns : PRIO_DECAY_NS;
}

/* A child's usage, with the halvings since it was last looked at. */
RS_INLINE u64 prio_usage(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 k = p->of.prio.periods - c->as.prio.at;

	c->as.prio.usage = k < 64 ? c->as.prio.usage >> k : 0;
	c->as.prio.at = p->of.prio.periods;
	return c->as.prio.usage;
}

/* Smaller is served first. */
RS_INLINE u64 prio_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	struct rs_node RS_ARENA *p = c->parent;
	u64 period = prio_period(p), usage = prio_usage(p, c);

	(void)t;
	if (!c->priority)
		return PRIO_IDLE_KEY;
	return PRIO_IDLE_KEY / 2 - c->priority + (usage > period) - (usage <= period / 4);
}

/* Usage means nothing to another policy, nor another's to this one: no offset. */
enum { prio_aside = 0, prio_mode = RS_MODE_AHEAD };
#define prio_has_ahead 1

/*
 * Some of those that wait below p and have a place of before get that of their present key. It goes
 * round all slots of nodes, for there is no order in the heap that stays; a child that is charged
 * meanwhile has its place already.
 */
RS_FN_VOID(prio_some, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p), (t, p))
{
	u32 all = t->nodes_used + t->hidden_used, at = p->of.prio.at;

	RS_LOOP(i, RS_PRIO_PIECE) {
		struct rs_node RS_ARENA *c;
		u32 pos;

		if (!p->of.prio.left)
			break;
		p->of.prio.left--;
		if (at >= all)
			at = 0;
		c = rs_slot(t, at++);
		pos = c->link.pos;
		if (c->kind != RS_FREE && c->parent == p && pos)
			rs_heap_rekey(t, &p->ready, prio_key(t, c), p->ready.e[pos - 1].seq, &c->link);
	}
	p->of.prio.at = at;
}

/*
 * All that wait below p get the places of their present keys; who came first stays first among
 * equals. Where many wait each of the next choices does it for a piece of all nodes: a section with
 * interrupts off is not as long as there are children.
 */
RS_FN_VOID(prio_places, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p), (t, p))
{
	struct rs_entry RS_ARENA *e = p->ready.e;

	if (p->ready.n > RS_PRIO_PIECE) {
		p->of.prio.left = t->nodes_used + t->hidden_used;
		return;
	}
	p->of.prio.left = 0;
	RS_LOOP(i, p->ready.n)
		e[i].key = prio_key(t, (struct rs_node RS_ARENA *)e[i].obj);
	rs_heap_rebuild(t, &p->ready);
}

RS_INLINE void prio_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 work,
			   u32 forced)
{
	u64 period = prio_period(p);

	(void)forced;
	if (work > RS_WORK_MAX)
		work = RS_WORK_MAX;
	prio_usage(p, c);
	c->as.prio.usage += work;
	p->of.prio.spent += work;
	if (p->of.prio.spent >= period) {
		p->of.prio.periods += p->of.prio.spent / period;
		p->of.prio.spent %= period;
		prio_places(t, p);
	}
}

/* Whether a, which is ready, goes before b, which is in service. */
RS_INLINE int prio_ahead(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *a,
			 struct rs_node RS_ARENA *b)
{
	(void)p;
	if (!a->weight)
		return 0;
	return !b->weight || prio_key(t, a) < prio_key(t, b);
}

RS_INLINE struct rs_node RS_ARENA *prio_pick(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit)
{
	/* Not where a step ends: that is on the longest path of calls, whose stack the kernel bounds. */
	if (p->of.prio.left)
		prio_some(t, p);
	return sfq_pick(t, p, unit);
}

#define prio_has_above 1
/* Whether n goes before all its siblings: usage moves each of two by one level. */
RS_FN int prio_above(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *n)
{
	struct rs_node RS_ARENA *p = n->parent;
	u32 left = p->nchildren, at = rs_zero;

	RS_LOOP(i, RS_NODES_MAX) {
		struct rs_node RS_ARENA *c;

		if (!left)
			return 1;
		if (at == t->nodes_used && at < t->nodes_max - t->hidden_used)
			at = t->nodes_max - t->hidden_used;
		if (at >= t->nodes_max || at >= RS_NODES_MAX)
			break;
		c = &t->nodes[at++];
		if (c->kind == RS_FREE || c->parent != p || !c->index)
			continue;
		left--;
		if (c != n && !(c->priority ? n->priority > c->priority + 2 : n->priority))
			return 0;
	}
	return !left;
}

#define prio_has_tuned 1
RS_INLINE void prio_tuned(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	prio_places(t, p);
}

#define prio_has_told 1
RS_INLINE u64 prio_told(struct rs_node RS_ARENA *p)
{
	return p->decay_ns;
}
