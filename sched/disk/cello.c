/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Cello: a disk scheduler for classes of requests that want different things (QLinux). In user
 * space only.
 *
 * Problem. Real-time requests have deadlines, interactive ones want to be served soon,
 * throughput-intensive ones in the order of the disk. Each class has a share of the disk's time,
 * and what one class does not use goes to the others.
 *
 * Idea. Two levels. The class-independent scheduler gives each class a budget of disk time in each
 * round; a class that has budget left may move its next request from its pending queue to the one
 * scheduled queue. The class says where in that queue. The disk is fed from the head.
 *
 * Rules, in order of execution:
 *   1. a round of P begins: what a class had beyond its budget A = P w / (sum of w) is debt in the new round, at most A; what it had less, while it had requests
 *      pending at the end, is credit, at most A. What it had by rule 4 is neither.                                   rc_round
 *   2. while the scheduled queue has less than `depth` requests: the first of real-time, interactive, throughput that has a request pending and used < A
 *      moves it; used += its estimate                                                                               rc_move
 *   3. where it goes (rc_insert):
 *      real-time    behind the last real-time request that is due earlier (in the same 10 ms: at a smaller sector)
 *      throughput   into the last part of the queue, which is in C-LOOK order from where the last such request was
 *      interactive  as far to the front as all behind it keep their slack: deadline - (now + estimates up to and with it), where the deadline of throughput requests is
 *                   the end of the round; beside other interactive ones in C-LOOK order; behind the last real-time one at the latest
 *   4. nothing is scheduled and the disk is idle, and all who have requests pending have used their budgets: one request of each in turn    rc_move
 *   5. a request is done after `took`: used += took - estimate; the estimate for its class and size goes an eighth of the way       rc_done
 *   6. requests of no class go to the disk before all others, uncharged (QLinux: they bypass Cello)                  rc_next
 *
 * Example (also a test): P = 100, weights 1:0:1, requests of 10 pending in all three classes,
 * depth 8. Five real-time ones (used 50), then throughput: 3 fit. As those are served, 2 more. The
 * round is over after 100 for both; interactive has had nothing.
 *
 * Bounds, e the longest request, estimates exact, all classes with weight always pending, k of them:
 *   CEL-1  over any K rounds from the start |sum of service_c - K A_c| <= (k + depth) e
 *   CEL-2  the disk is never idle while something is pending
 *   CEL-3  no real-time request becomes late, or later than it is, by an interactive or throughput request that is scheduled later
 *
 * Deviations from the paper, which gives the structure only: debt and credit; a request moves while
 * anything is left of the budget (else large requests would never fit, and small remainders would
 * be lost in each round); rule 4's requests, once scheduled, are ordinary ones.
 *
 * Reference: Shenoy, Vin: Cello, SIGMETRICS'98; QLinux §2.4.
 */
#include "cello.h"

static struct rc_request *rc_at(struct rc_cello *c, u32 i)
{
	return &c->request[i];
}

static void rc_push(struct rc_cello *c, struct rc_list *l, u32 i)
{
	rc_at(c, i)->next = RC_NOTHING;
	if (l->count++)
		rc_at(c, l->last)->next = i;
	else
		l->first = i;
	l->last = i;
}

static u32 rc_shift(struct rc_cello *c, struct rc_list *l)
{
	u32 i = l->first;

	l->first = rc_at(c, i)->next;
	l->count--;
	return i;
}

/* `request` is room for `max` of them. */
static void rc_init(struct rc_cello *c, struct rc_request *request, u32 max, u64 now)
{
	for (u64 i = 0; i < sizeof(*c); i++)
		((u8 *)c)[i] = 0;
	c->request = request;
	c->requests_max = max;
	c->free = RC_NOTHING;
	c->depth = 8;
	c->slots = 1;
	c->round_ns = RC_ROUND_NS;
	c->round_at = now;
	for (u32 k = 0; k < RC_CLASSES; k++) {
		c->class[k].weight = RS_WEIGHT_ONE;
		for (u32 b = 0; b < RC_BUCKETS; b++)
			c->class[k].took[b] = RC_GUESS_NS;
	}
}

/* Budget of class k in a round. */
static s64 rc_budget(struct rc_cello *c, u32 k)
{
	u64 sum = 0;

	for (u32 i = 0; i < RC_CLASSES; i++)
		sum += c->class[i].weight;
	return sum ? rs_muldiv(c->round_ns, c->class[k].weight, sum) : 0;
}

/* Rule 1. */
static void rc_round(struct rc_cello *c, u64 now)
{
	if (now < c->round_at + c->round_ns)
		return;
	c->round_at += c->round_ns * ((now - c->round_at) / c->round_ns);
	for (u32 k = 0; k < RC_CLASSES; k++) {
		struct rc_class_state *s = &c->class[k];
		s64 a = rc_budget(c, k), carry = s->used - s->extra - a;

		if (carry < 0 && !s->pending.count)
			carry = 0;
		s->used = carry > a ? a : carry < -a ? -a : carry;
		s->extra = 0;
	}
}

static u32 rc_bucket(u64 bytes)
{
	u32 b = 0;

	while (bytes > 1 && b + 1 < RC_BUCKETS) {
		bytes >>= 1;
		b++;
	}
	return b;
}

/* Where on its way up from `from` the arm meets a sector. */
static u64 rc_lap(u64 from, u64 sector)
{
	return (sector < from ? 1ULL << 63 : 0) | sector;
}

/* Whether real-time request a goes before b. */
static int rc_due_before(struct rc_request *a, struct rc_request *b)
{
	u64 x = a->due / RC_DUE_BUCKET, y = b->due / RC_DUE_BUCKET;

	return x != y ? x < y : a->sector < b->sector;
}

static u64 rc_deadline(struct rc_cello *c, struct rc_request *r)
{
	return r->class == RC_REAL_TIME ? r->due : r->class == RC_THROUGHPUT ? c->round_at + c->round_ns : ~0ULL >> 1;
}

static void rc_insert_at(struct rc_cello *c, u32 at, u32 i)
{
	for (u32 k = c->n; k > at; k--)
		c->scheduled[k] = c->scheduled[k - 1];
	c->scheduled[at] = i;
	c->n++;
}

/* The place behind the last real-time request. */
static u32 rc_behind_real_time(struct rc_cello *c)
{
	u32 at = 0;

	for (u32 k = 0; k < c->n; k++)
		if (rc_at(c, c->scheduled[k])->class == RC_REAL_TIME)
			at = k + 1;
	return at;
}

/* The place nearest to the front at which a request of `estimate` leaves all behind it the slack that they need. Who is late already is passed by nobody: each that passed would make
 * room for the next, until the budget of the class is used up. */
static u32 rc_steal(struct rc_cello *c, u64 estimate, u64 now)
{
	s64 end = c->serving && c->busy_until > now ? c->busy_until : now;
	u32 at = 0;

	for (u32 k = 0; k < c->n; k++) {
		struct rc_request *r = rc_at(c, c->scheduled[k]);
		s64 slack;

		end += r->estimate;
		slack = (s64)rc_deadline(c, r) - end;
		if (slack < (s64)estimate)
			at = k + 1;
	}
	return at;
}

/* Rule 3. */
static void rc_insert(struct rc_cello *c, u32 i, u64 now)
{
	struct rc_request *r = rc_at(c, i);
	u32 at = 0, behind;

	switch (r->class) {
	case RC_REAL_TIME:
		for (u32 k = 0; k < c->n; k++) {
			struct rc_request *x = rc_at(c, c->scheduled[k]);

			if (x->class == RC_REAL_TIME && !rc_due_before(r, x))
				at = k + 1;
		}
		break;
	case RC_THROUGHPUT:
		at = c->n;
		while (at && rc_at(c, c->scheduled[at - 1])->class == RC_THROUGHPUT &&
		       rc_lap(c->sweep, r->sector) < rc_lap(c->sweep, rc_at(c, c->scheduled[at - 1])->sector))
			at--;
		break;
	default:
		at = rc_steal(c, r->estimate, now);
		behind = rc_behind_real_time(c);
		if (at > behind)
			at = behind;
		while (at < c->n && rc_at(c, c->scheduled[at])->class == RC_INTERACTIVE &&
		       rc_lap(c->arm, rc_at(c, c->scheduled[at])->sector) <= rc_lap(c->arm, r->sector))
			at++;
	}
	rc_insert_at(c, at, i);
}

static void rc_move_one(struct rc_cello *c, u32 k, u32 idle, u64 now)
{
	struct rc_class_state *s = &c->class[k];
	u32 i = rc_shift(c, &s->pending);
	struct rc_request *r = rc_at(c, i);

	r->state = RC_SCHEDULED;
	r->idle = idle;
	s->used += r->estimate;
	if (idle)
		s->extra += r->estimate;
	rc_insert(c, i, now);
}

/* Rules 2 and 4. */
static void rc_move(struct rc_cello *c, u64 now)
{
	rc_round(c, now);
	while (c->n < c->depth && c->n < RC_SCHEDULED_MAX) {
		u32 k = 0;

		while (k < RC_CLASSES && !(c->class[k].pending.count && c->class[k].used < rc_budget(c, k)))
			k++;
		if (k < RC_CLASSES) {
			rc_move_one(c, k, 0, now);
			continue;
		}
		if (c->n || c->serving)
			return;
		for (k = 0; k < RC_CLASSES; k++)
			if (c->class[(c->turn + k) % RC_CLASSES].pending.count)
				break;
		if (k == RC_CLASSES)
			return;
		k = (c->turn + k) % RC_CLASSES;
		c->turn = (k + 1) % RC_CLASSES;
		rc_move_one(c, k, 1, now);
	}
}

/*
 * A request arrives. `estimate` is its time on the disk; 0: what requests of its class and size
 * took. Answers its number, or RC_NOTHING where there is no room or the class is none.
 */
static u32 rc_arrive(struct rc_cello *c, u32 class, u64 sector, u64 bytes, u64 due, u64 estimate)
{
	u32 i = c->free;
	struct rc_request *r;

	if (class > RC_BYPASS || (i == RC_NOTHING && c->requests_used >= c->requests_max))
		return RC_NOTHING;
	if (i == RC_NOTHING)
		i = c->requests_used++;
	else
		c->free = rc_at(c, i)->next;
	r = rc_at(c, i);
	r->sector = sector & ~0ULL >> 1;
	r->bytes = bytes;
	r->due = due;
	r->class = class;
	r->idle = 0;
	r->state = RC_PENDING;
	r->estimate = estimate ? estimate : class == RC_BYPASS ? RC_GUESS_NS : c->class[class].took[rc_bucket(bytes)];
	rc_push(c, class == RC_BYPASS ? &c->bypass : &c->class[class].pending, i);
	return i;
}

/*
 * The disk may take one more: which? It is in service when this returns. RC_NOTHING: none, until
 * something arrives or is done.
 */
static u32 rc_next(struct rc_cello *c, u64 now)
{
	struct rc_request *r;
	u32 i;

	if (c->serving >= c->slots)
		return RC_NOTHING;
	if (c->bypass.count) {
		i = rc_shift(c, &c->bypass);
	} else {
		rc_move(c, now);
		if (!c->n)
			return RC_NOTHING;
		i = c->scheduled[0];
		c->n--;
		for (u32 k = 0; k < c->n; k++)
			c->scheduled[k] = c->scheduled[k + 1];
	}
	r = rc_at(c, i);
	r->state = RC_SERVED;
	c->busy_until = (c->serving && c->busy_until > now ? c->busy_until : now) + r->estimate;
	c->serving++;
	c->arm = r->sector;
	if (r->class == RC_THROUGHPUT)
		c->sweep = r->sector;
	/*
	 * What is left of the queue is behind it, so the scheduled queue is filled again while the
	 * disk works.
	 */
	rc_move(c, now);
	return i;
}

/* Rule 5. Answers 0, and does nothing, where request i is not in service. */
static int rc_done(struct rc_cello *c, u32 i, u64 took, u64 now)
{
	struct rc_request *r;

	if (i >= c->requests_used || rc_at(c, i)->state != RC_SERVED)
		return 0;
	r = rc_at(c, i);
	c->serving--;
	if (r->class != RC_BYPASS) {
		struct rc_class_state *s = &c->class[r->class];
		u64 *e = &s->took[rc_bucket(r->bytes)];

		s->used += (s64)(took - r->estimate);
		if (r->idle)
			s->extra += (s64)(took - r->estimate);
		s->service += took;
		s->served++;
		*e += (s64)(took - *e) / 8;
		if (!*e)
			*e = 1;
	}
	r->state = RC_FREE;
	r->next = c->free;
	c->free = i;
	rc_move(c, now);
	return 1;
}

/*
 * A class's weight, or the length of a round: in effect at once. Answers 0 where the value is none.
 */
static int rc_weight(struct rc_cello *c, u32 class, u32 weight)
{
	if (class >= RC_CLASSES || weight > RS_WEIGHT_MAX)
		return 0;
	c->class[class].weight = weight;
	return 1;
}

static int rc_tune(struct rc_cello *c, u64 round_ns, u32 depth, u32 slots)
{
	if (round_ns < 1000000 || round_ns > 60000000000ULL || !depth || depth > RC_SCHEDULED_MAX || !slots)
		return 0;
	c->round_ns = round_ns;
	c->depth = depth;
	c->slots = slots;
	return 1;
}
