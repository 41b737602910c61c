/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A scheduler gets another policy, whatever its children do. How far the runnable ones are ahead of
 * each other in service is carried over, as far as both policies know it; those who are idle are
 * forgotten. Steps in service end under the new policy.
 *
 * Problem. Each child has to be taken out of what the old policy keeps, and put into what the new
 * one keeps: some hundred instructions for each. A section of the caller's lock has a bound, and
 * there may be 14 000 children.
 *
 * Idea. With few children it happens at once (rs_policy_now). With many the edit only notes it, and
 * the caller goes on in pieces (rs_change_some), a section for each. Meanwhile nobody can see a
 * half of it: nothing below the scheduler is chosen, as if a cap held it back.
 *
 * Rules, in order of execution:
 *   1. the scheduler is *frozen*: for its parent as one held back by a cap. What is in service
 *      below goes on
 *   2. piece by piece each child leaves the old policy and is *held*: its parent knows nothing of
 *      it, whatever happens below it, and its tag is what the old policy says that it received. Who
 *      has a step in service, at most one for each unit, is left as it is (rs_change_leave)
 *   3. in one section those leave as well, the policy is the new one, and they begin under it
 *      (rs_change_turn)
 *   4. piece by piece each held child begins under the new policy; if it was idle at its turn, or
 *      is, as one that wakes (rs_change_start)
 *   5. the scheduler is frozen no longer
 *
 * Between two pieces any event may come, hidden nodes may be made, moved and deleted, but no edit
 * comes, and no service out of turn (rs_starving). The caller sees to it that the pieces follow
 * each other, so that the time without service is what the sections take: a few ms at most, where
 * before all units stood still as long.
 *
 * Deviations from the change at once: what the scheduler had as credit among its siblings may be
 * forgotten, as with any child that is idle for a moment. A step that begins below a held child,
 * because its item came from another queue in service, is not charged to the child's tag if it ends
 * before the child has begun.
 */

/* Room that a policy needs, taken before it is sure that it will be used: nothing else changes. */
RS_FN int rs_node_room(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 policy)
{
	if (!policy_aside(policy))
		return RS_DONE;
	if (!rs_heap_reserve(t, &p->aside, policy_aside(policy) * p->nchildren))
		return RS_ENOSPC;
	if (p->aside_on < policy_aside(policy))
		p->aside_on = policy_aside(policy);
	return RS_DONE;
}

/*
 * Its children in the order of their slots, by which equals are told apart: linked by `after`.
 * Answers the first, by index plus one. Few children.
 */
RS_FN u32 rs_kids_sorted(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	u32 first = rs_zero, kid = p->kids;

	RS_LOOP(i, RS_CHANGE_FEW) {
		struct rs_node RS_ARENA *c = &t->nodes[(kid - 1) & (RS_NODES_MAX - 1)];
		u32 at = first, before = rs_zero;

		if (!kid)
			break;
		/*
		 * The newest stands first in the list and, mostly, in the last slot: it goes to the
		 * front here.
		 */
		RS_LOOP(k, RS_CHANGE_FEW) {
			if (!at || at > kid)
				break;
			before = at;
			at = t->nodes[(at - 1) & (RS_NODES_MAX - 1)].after;
		}
		c->after = at;
		if (before)
			t->nodes[(before - 1) & (RS_NODES_MAX - 1)].after = kid;
		else
			first = kid;
		kid = c->next;
	}
	return first;
}

/* At once, in a section of its own: few children. */
RS_FN_VOID(rs_policy_now, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 policy),
	   (t, p, policy))
{
	struct rs_entry RS_ARENA *e = p->ready.e;
	u32 n = p->ready.n, some = rs_zero, first = rs_zero, next;
	s64 low = 0;
	u64 seq;

	if (policy == p->alg)
		return;
	first = rs_kids_sorted(t, p);
	/* Out of the old policy. The offset of a runnable child waits in its tag. */
	next = first;
	RS_LOOP(i, RS_CHANGE_FEW) {
		struct rs_node RS_ARENA *c = &t->nodes[(next - 1) & (RS_NODES_MAX - 1)];
		s64 offset;

		if (!next)
			break;
		next = c->after;
		if (!c->runnable || !c->weight)
			continue;
		offset = policy_offset(p, c);
		c->tag.base = offset;
		if (!some || offset < low)
			low = offset;
		some = 1;
	}
	next = first;
	RS_LOOP(i, RS_CHANGE_FEW) {
		struct rs_node RS_ARENA *c = &t->nodes[(next - 1) & (RS_NODES_MAX - 1)];

		if (!next)
			break;
		next = c->after;
		policy_leave(t, p, c);
		rs_child_reset(c);
	}
	p->alg = policy;
	p->clock.epoch++;
	rs_parent_reset(p);
	next = first;
	RS_LOOP(i, RS_CHANGE_FEW) {
		struct rs_node RS_ARENA *c = &t->nodes[(next - 1) & (RS_NODES_MAX - 1)];

		if (!next)
			break;
		next = c->after;
		if (!c->runnable || !c->weight)
			continue;
		c->tag.rem = 0;
#if RS_LENGTHS
		c->head = rs_head_of(t, c);
#endif
		policy_start(t, p, c, (s64)c->tag.base - low);
	}
	/*
	 * The ready heap again, in place: each push uses the keys, not the object, of the slot
	 * behind what is left to read.
	 */
	seq = n ? e[0].seq : 0;
	p->ready.n = 0;
	some = rs_zero;
	RS_LOOP(i, n) {
		struct rs_node RS_ARENA *c = (struct rs_node RS_ARENA *)e[i].obj;
		u64 seq_next = i + 1 < n ? e[i + 1].seq : 0;

		c->link.pos = 0;
		rs_heap_push(t, &p->ready, policy_key(t, p, c), seq, &c->link);
		seq = seq_next;
		some++;
	}
	if (some != n)
		rs_poison(t, RS_POISON_HEAP_LOOP);
	/* Several units: the place of a scheduler depends on what its policy is. */
	rs_refresh(t, p);
}

/* Whether c takes part in the turn of p. */
RS_INLINE int rs_change_mine(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return c->kind != RS_FREE && c->parent == p && !(c->throttled & RS_HELD);
}

/* What the old policy says of the runnable child c is its tag, from an origin that all have. */
RS_INLINE void rs_change_mark(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 tag = policy_offset(p, c);

	tag += p->clock.v; /* which that may have moved */
	c->tag.base = tag;
	if (!t->change_some || rs_before(tag, t->change_low))
		t->change_low = tag;
	t->change_some = 1;
}

/* The runnable child c, of which that is known, begins under the new policy. */
RS_INLINE void rs_change_begin(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	c->tag.rem = 0;
#if RS_LENGTHS
	c->head = rs_head_of(t, c);
#endif
	policy_start(t, p, c, (s64)(c->tag.base - t->change_low));
}

/*
 * What p's new policy asks of the tree holds from now on; what the old one asked, until all have
 * theirs.
 */
RS_INLINE void rs_change_mode(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	if (RS_LENGTHS)
		rs_mode_update(t);
	else
		t->mode |= policy_mode(p->alg);
}

/* Child c leaves p's old policy, and is held. */
RS_FN_VOID(rs_change_leave, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	u32 known = c->runnable && c->weight;

	if (c->throttled & RS_HELD)
		return; /* it came after the beginning (rs_node_create, rs_node_move) */
	if (c->nsvc) {
		c->after = t->change_busy;
		t->change_busy = c->index + 1;
		return;
	}
	if (known)
		rs_change_mark(t, p, c);
	policy_leave(t, p, c);
	rs_child_reset(c);
	if (c->link.pos)
		rs_heap_erase(t, &p->ready, &c->link);
	p->nall -= c->all;
	c->all = 0;
	if (known)
		p->nrun--;
	c->runnable = 0;
	c->throttled |= known ? RS_HELD | RS_KNOWN : RS_HELD;
}

/*
 * All others are held: p's policy changes, and those with steps in service, or that had them when
 * they were looked at, come along.
 */
RS_FN_VOID(rs_change_turn, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p), (t, p))
{
	u32 next = t->change_busy;

	RS_LOOP(i, RS_NODES_MAX) {
		struct rs_node RS_ARENA *c = &t->nodes[(next - 1) & (RS_NODES_MAX - 1)];

		if (!next)
			break;
		next = c->after;
		if (rs_change_mine(p, c) && c->runnable && c->weight)
			rs_change_mark(t, p, c);
	}
	next = t->change_busy;
	RS_LOOP(i, RS_NODES_MAX) {
		struct rs_node RS_ARENA *c = &t->nodes[(next - 1) & (RS_NODES_MAX - 1)];

		if (!next)
			break;
		next = c->after;
		if (!rs_change_mine(p, c))
			continue;
		policy_leave(t, p, c);
		rs_child_reset(c);
		if (c->link.pos)
			rs_heap_erase(t, &p->ready, &c->link);
	}
	p->alg = p->change - 1;
	p->clock.epoch++;
	rs_parent_reset(p);
	rs_change_mode(t, p);
	next = t->change_busy;
	RS_LOOP(i, RS_NODES_MAX) {
		struct rs_node RS_ARENA *c = &t->nodes[(next - 1) & (RS_NODES_MAX - 1)];

		if (!next)
			break;
		next = c->after;
		if (!rs_change_mine(p, c))
			continue;
		if (c->runnable && c->weight)
			rs_change_begin(t, p, c);
		rs_refresh_one(t, c);
	}
	t->change_busy = 0;
}

/* The held child c begins under p's new policy. */
RS_FN_VOID(rs_change_start, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
	   struct rs_node RS_ARENA *c), (t, p, c))
{
	u32 known = c->throttled & RS_KNOWN;

	c->throttled &= ~(RS_HELD | RS_KNOWN);
	rs_child_reset(c); /* a question about it may have left something */
	if (known && c->weight && ((c->ready.n && !c->throttled) || c->nsvc)) {
		rs_change_begin(t, p, c);
		c->runnable = 1;
		p->nrun++;
	}
	rs_refresh_one(t, c);
}

/* A scheduler among those whose policy is to change. */
RS_INLINE void rs_change_later(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 policy)
{
	if (!p->change) {
		if (t->changes)
			t->nodes[(t->changes_last - 1) & (RS_NODES_MAX - 1)].change_next = p->index + 1;
		else
			t->changes = p->index + 1;
		t->changes_last = p->index + 1;
		p->change_next = 0;
	}
	p->change = policy + 1;
}

/* The first of them has its policy. */
RS_INLINE void rs_change_done(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	p->throttled &= ~RS_FROZEN;
	p->change = 0;
	t->changes = p->change_next;
	t->change_phase = RS_CHANGE_LEAVE;
	t->change_at = 0;
	t->change_some = 0;
	rs_refresh(t, p);
	if (!t->changes)
		rs_mode_update(t);
}

/* One piece. Answers whether there is more. */
RS_FN int rs_change_some(struct rs_tree RS_ARENA *t)
{
	struct rs_node RS_ARENA *p = &t->nodes[(t->changes - 1) & (RS_NODES_MAX - 1)];
	u32 all = t->nodes_used + t->hidden_used, at = t->change_at, few = rs_zero;

	if (!t->changes)
		return 0;
	if (!(p->throttled & RS_FROZEN)) {
		p->throttled |= RS_FROZEN;
		rs_refresh(t, p);
	}
	RS_LOOP(i, RS_CHANGE_SLOTS) {
		struct rs_node RS_ARENA *c = rs_slot(t, at);

		if (at >= all || few >= RS_CHANGE_PIECE)
			break;
		at++;
		if (c->parent != p || c->kind == RS_FREE)
			continue;
		if (t->change_phase == RS_CHANGE_LEAVE)
			rs_change_leave(t, p, c);
		else if (c->throttled & RS_HELD)
			rs_change_start(t, p, c);
		few++;
	}
	t->change_at = at;
	if (at < all)
		return 1;
	t->change_at = 0;
	if (t->change_phase == RS_CHANGE_LEAVE) {
		rs_change_turn(t, p);
		t->change_phase = RS_CHANGE_START;
		return 1;
	}
	rs_change_done(t, p);
	return t->changes != 0;
}

/* All of them, for who shares the tree with nobody. */
RS_FN_VOID(rs_change_all, (struct rs_tree RS_ARENA *t), (t))
{
	RS_LOOP(i, RS_NODES_MAX) {
		if (!rs_change_some(t))
			return;
	}
	rs_poison(t, RS_POISON_SCAN);
}

/*
 * In an edit, at its end: at once where few are asked to change in all of the batch; else the
 * caller goes on with rs_change_some.
 */
RS_INLINE void rs_node_policy(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 policy)
{
	if (policy == p->alg && !p->change)
		return;
	if (!p->change && t->changed + p->nchildren <= RS_CHANGE_FEW) {
		t->changed += p->nchildren;
		rs_policy_now(t, p, policy);
	} else {
		rs_change_later(t, p, policy);
	}
}
