/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a policy is: the functions that divide the service of a scheduler p among its children c.
 * They are asked for by number (p->alg), through the functions below. BPF has no indirect calls: a
 * list (registry.h) expands to a switch where others would have a table of functions.
 *
 * To the core, a new policy NAME is a file policy_NAME.c, its line in the list and its line among
 * the includes of core.c. (What it keeps of a scheduler or child beyond clocks and tags is a member
 * of the unions in sched.h. Its word for users stands in crates/model/src/kind.rs, its number in
 * crates/facts.) The file has
 *
 *   enum { NAME_aside, NAME_mode }   how often a child may stand in p's second heap, `aside`; what
 *                                    the policy asks of the whole tree (enum rs_mode)
 *   NAME_key(t, c)                   c's place in p's heap of ready children, smallest first
 *   NAME_pick(t, p, unit)            which ready child `unit` serves next; 0: none that it may
 *   NAME_charge(t, p, c, work, forced)  a step below c ended after `work`. `forced`: the unit could
 *                                    serve no other child
 *
 * and of the following what it needs, each with a line `#define NAME_has_FUNCTION 1`:
 *
 *   wake(t, p, c)          c becomes runnable (refresh.c), and is counted after this
 *   idle(t, p, c)          c is runnable no longer, and is not counted before this
 *   dispatch(t, p, c)      a step below c begins
 *   reweight(t, p, c, w)   c's weight is about to become w; c->weight is the old one
 *   leave(t, p, c)         c goes for good, idle, or p is given to another policy
 *   offset(p, c)           how far c's normalised service is ahead of its siblings', in tag units
 *                          from any one origin, for the policy that comes. Without: not known
 *   start(t, p, c, offset) runnable c comes from another policy, which said this (0 or more)
 *   sync(p)                before something other than a pick changes what is in service below p
 *   ahead(t, p, a, b)      whether a, which is ready, displaces b, which is in service. Only asked
 *                          where some policy of the tree has RS_MODE_AHEAD. Without: no
 *   slice(p, c)            the longest step that c is given now. Only asked under RS_MODE_SLICE.
 *                          Without: a quantum
 *   behind(t, c)           several units, and c is itself of this policy: whether the first ready
 *                          child of c is behind c's virtual time. Without: no
 *   tuned(t, p)            the lag, turn or decay of p has changed
 *   above(t, c)            whether c goes before all its siblings, whatever they have used.
 *                          Without: p divides by weights (guarantee.c)
 *   client(p, c)           whether c competes in virtual time now. Without: no
 *   request(p, c)          how much service c asks for at once, in units of service; to be shown
 *   told(p)                the tunable of p by which it goes, for traces. Without: weights are all
 *                          that a trace has to tell
 *
 * for several units:
 *
 *   more(t, p, c)          one more item wants service below c
 *   reserve(t, p, c)       what is reserved below c has changed, other than by the end of a step
 *
 * for planes that know how long the next step will be (RS_MODE_LENGTH):
 *
 *   length(t, p, c)        the length of what c would be served with next has changed
 *   front(t, p)            brings the first of p's heap up to date; nothing is in service below p
 *   arrive(t, p, c, work)  work has come below c, first or behind other (RS_MODE_ARRIVALS)
 *
 * and for devices:
 *
 *   ready(t, p, c)         c begins to wait, and may have something in service
 *
 * All of them are called under the tree's lock, and most of them once for each level of a path at
 * each event: they must be short. They change virtual times and what the policy keeps of p and its
 * children, and places in p's two heaps; nothing above p and nothing below c.
 */

/* RS_WHERE(NAME_has_FUNCTION, STATEMENT): the statement where that is defined, else nothing. */
#define RS_WHERE(has, ...) RS_WHERE_IS(has, __VA_ARGS__)
#define RS_WHERE_IS(has, ...) RS_SECOND(RS_HAS_##has, RS_SKIP, ~)(__VA_ARGS__)
#define RS_HAS_1 ~, RS_KEEP
#define RS_SECOND(...) RS_SECOND_OF(__VA_ARGS__)
#define RS_SECOND_OF(first, second, ...) second
#define RS_KEEP(...) __VA_ARGS__
#define RS_SKIP(...)

RS_INLINE void policy_sync(struct rs_node RS_ARENA *p)
{
#define RS_CALL(name) RS_WHERE(name##_has_sync, name##_sync(p))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_more(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			   struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) RS_WHERE(name##_has_more, name##_more(t, p, c))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_wake(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			   struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) RS_WHERE(name##_has_wake, name##_wake(t, p, c))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_idle(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			   struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) RS_WHERE(name##_has_idle, name##_idle(t, p, c))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE u64 policy_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			 struct rs_node RS_ARENA *c)
{
	u64 key = 0;
#define RS_CALL(name) key = name##_key(t, c)
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return key;
}

RS_INLINE void policy_dispatch(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			       struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) RS_WHERE(name##_has_dispatch, name##_dispatch(t, p, c))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

/*
 * Several units: what is reserved below child c of p has changed, other than by the end of a step.
 */
RS_INLINE void policy_reserve(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			      struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) RS_WHERE(name##_has_reserve, name##_reserve(t, p, c))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			     struct rs_node RS_ARENA *c, u64 work, u32 forced)
{
#define RS_CALL(name) name##_charge(t, p, c, work, forced)
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE void policy_reweight(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			       struct rs_node RS_ARENA *c, u32 w)
{
#define RS_CALL(name) RS_WHERE(name##_has_reweight, name##_reweight(t, p, c, w))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

RS_INLINE struct rs_node RS_ARENA *policy_pick(struct rs_tree RS_ARENA *t,
					       struct rs_node RS_ARENA *p,
					       u32 unit)
{
	struct rs_node RS_ARENA *c = 0;
#define RS_CALL(name) c = name##_pick(t, p, unit)
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return c;
}

/* An idle child goes for good (deleted, moved), or all of them are given to another policy. */
RS_INLINE void policy_leave(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			    struct rs_node RS_ARENA *c)
{
	(void)t, (void)c;
#define RS_CALL(name) RS_WHERE(name##_has_leave, name##_leave(t, p, c))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

/*
 * How far the normalised service of a runnable child is ahead of its siblings', in tag units, from
 * any one origin; 0: not known.
 */
RS_INLINE s64 policy_offset(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	s64 offset = 0;
#define RS_CALL(name) RS_WHERE(name##_has_offset, offset = name##_offset(p, c))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return offset;
}

/*
 * A runnable child comes from another policy; `offset` >= 0 is what that said, and the smallest one
 * is 0.
 */
RS_INLINE void policy_start(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			    struct rs_node RS_ARENA *c, s64 offset)
{
#define RS_CALL(name) RS_WHERE(name##_has_start, name##_start(t, p, c, offset))
	switch (__builtin_expect(p->alg, 0)) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

/* How often a policy may have each child in the heap `aside`. */
RS_INLINE u32 policy_aside(u32 alg)
{
	u32 yes = 0;
#define RS_CALL(name) yes = name##_aside
	switch (alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return yes;
}

/*
 * The length of what child c of p would be served with next has changed. Answers whether p's policy
 * goes by lengths.
 */
RS_INLINE u32 policy_length(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			    struct rs_node RS_ARENA *c)
{
	u32 yes = 0;

	(void)t, (void)c;
#define RS_CALL(name) \
	yes = name##_mode & RS_MODE_LENGTH; \
	RS_WHERE(name##_has_length, name##_length(t, p, c))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return yes;
}

/* Work has arrived below child c of p. */
RS_INLINE void policy_arrive(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			     struct rs_node RS_ARENA *c, u64 work)
{
	(void)t, (void)c, (void)work;
#define RS_CALL(name) RS_WHERE(name##_has_arrive, name##_arrive(t, p, c, work))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

/*
 * Brings the first of p's ready heap up to date, as far as a policy that goes by lengths has to.
 * Nothing is in service below p.
 */
RS_INLINE void policy_front(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
	(void)t;
#define RS_CALL(name) RS_WHERE(name##_has_front, name##_front(t, p))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

#if RS_DISK
/* c begins to wait in p. */
RS_INLINE void policy_ready(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			    struct rs_node RS_ARENA *c)
{
#define RS_CALL(name) RS_WHERE(name##_has_ready, name##_ready(t, p, c))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}
#endif

RS_INLINE u32 policy_known(u64 alg)
{
	u32 yes = 0;
#define RS_CALL(name) yes = 1
	switch (alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return yes;
}

/* What the policy asks of the whole tree: enum rs_mode. */
RS_INLINE u32 policy_mode(u32 alg)
{
	u32 mode = 0;
#define RS_CALL(name) mode = name##_mode
	switch (alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return mode;
}

/* Whether child a of p, which is ready, goes before its sibling b, which is in service. */
RS_INLINE int policy_ahead(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p,
			   struct rs_node RS_ARENA *a,
			   struct rs_node RS_ARENA *b)
{
	int yes = 0;
#define RS_CALL(name) RS_WHERE(name##_has_ahead, yes = name##_ahead(t, p, a, b))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return yes;
}

/* The longest step that child c of p should be given now. */
RS_INLINE u64 policy_slice(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 slice = ~0ULL;
#define RS_CALL(name) RS_WHERE(name##_has_slice, slice = name##_slice(p, c))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return slice;
}

/* Whether the first ready child of scheduler c is behind there. */
RS_INLINE int policy_behind(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	int yes = 0;
#define RS_CALL(name) RS_WHERE(name##_has_behind, yes = name##_behind(t, c))
	switch (c->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return yes;
}

/* The lag, turn or decay of scheduler p has changed. */
RS_INLINE void policy_tuned(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p)
{
#define RS_CALL(name) RS_WHERE(name##_has_tuned, name##_tuned(t, p))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
}

enum { RS_BY_WEIGHT = 2 };

/* Whether c goes before all its siblings, or RS_BY_WEIGHT: they are divided by their weights. */
RS_INLINE int policy_above(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	int above = RS_BY_WEIGHT;
#define RS_CALL(name) RS_WHERE(name##_has_above, above = name##_above(t, c))
	switch (c->parent->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return above;
}

/* Whether c competes in the virtual time of p. */
RS_INLINE int policy_client(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	int yes = 0;
#define RS_CALL(name) RS_WHERE(name##_has_client, yes = name##_client(p, c))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return yes;
}

/*
 * Whether the policy of p goes by more than weights, so that a trace tells what it keeps of p and
 * of its children; `told`: the tunable that it goes by.
 */
RS_INLINE int policy_told(struct rs_node RS_ARENA *p, u64 *told)
{
	int yes = 0;

	*told = 0;
#define RS_CALL(name) RS_WHERE(name##_has_told, yes = 1; *told = name##_told(p))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return yes;
}

/* How much service c asks for at once, to be shown; 0: the policy knows none. */
RS_INLINE u64 policy_request(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	u64 request = 0;
#define RS_CALL(name) RS_WHERE(name##_has_request, request = name##_request(p, c))
	switch (p->alg) { RS_POLICIES(RS_POLICY_CASE) }
#undef RS_CALL
	return request;
}
