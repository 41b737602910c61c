/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Policy wrr: weighted round robin, as it is found in most systems; for comparison with mtrls.
 *
 * Problem. Shares with the least of effort: no tags, no deadlines.
 *
 * Idea. Children stand in a list, each with what is left of its quota alpha T. The first that is
 * runnable is served; who has used his quota gets a new one and goes to the rear. Who blocks leaves
 * the list, and what was left with it. So a child that sleeps and wakes waits for the quotas of all
 * others each time, and what it did not use is lost: this is what mtrls was made to avoid, and the
 * only difference to it.
 *
 * T is the turn (default 100 ms); alpha_i = w_i over the sum of the weights of all children of the
 * node, runnable or not.
 *
 * Rules, in order of execution:
 *   1. wake: left = alpha T, at the rear; nobody is displaced                                         wrr_wake
 *   2. pick, steps, their ends and new weights: rules 2, 3, 4 and 6 of policy_mtrls.c                 mtrls_pick …
 *   3. block: it leaves the list                                                                     wrr_idle
 *
 * Example (also a test): weights 1, 1 and 2, T = 8: quotas 2, 2, 4. A, B and C wake in this order;
 * steps are of 1. A A B, then B blocks with 1 left; C C; B wakes, behind A, which stands behind C:
 * C C; A A; B B …
 *
 * Bounds: from wake-up to service at most (1 - alpha) T (MTR-3), children that stay runnable differ
 * as under mtrls (MTR-2); nothing holds of the service of who sleeps (MTR-1 does not). Ticks as
 * there.
 *
 * Deviations: an overshoot is carried by who goes on, and forgotten with who blocks.
 *
 * References: Eclipse (USENIX'98) compares move-to-rear lists with it.
 */
RS_INLINE void wrr_wake(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	mtrls_wake(t, p, c);
}

RS_INLINE void wrr_idle(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	(void)t, (void)p;
	c->as.mtrls.quota = 0;
}

RS_INLINE void wrr_start(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, s64 offset)
{
	mtrls_start(t, p, c, offset);
}

enum { wrr_aside = 0, wrr_mode = RS_MODE_SLICE };
#define wrr_has_wake 1
#define wrr_has_idle 1
#define wrr_has_dispatch 1
#define wrr_has_reweight 1
#define wrr_has_start 1
#define wrr_has_slice 1

RS_INLINE u64 wrr_key(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *c)
{
	return mtrls_key(t, c);
}

RS_INLINE void wrr_dispatch(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	mtrls_dispatch(t, p, c);
}

RS_INLINE void wrr_charge(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u64 work,
			  u32 forced)
{
	mtrls_charge(t, p, c, work, forced);
}

RS_INLINE void wrr_reweight(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c, u32 w)
{
	mtrls_reweight(t, p, c, w);
}

RS_INLINE u64 wrr_slice(struct rs_node RS_ARENA *p, struct rs_node RS_ARENA *c)
{
	return mtrls_slice(p, c);
}

RS_INLINE struct rs_node RS_ARENA *wrr_pick(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 unit)
{
	return mtrls_pick(t, p, unit);
}

#define wrr_has_told 1
RS_INLINE u64 wrr_told(struct rs_node RS_ARENA *p)
{
	return p->turn_ns;
}
