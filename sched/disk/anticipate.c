/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Anticipation: a queue whose programs ask for one request at a time, and think in between, keeps
 * its turn while they think. In user space only.
 *
 * Problem. When such a queue's request is done it has nothing that waits, so another one is served,
 * whatever the weights say ("deceptive idleness"): two of them share a disk half and half.
 *
 * Idea. As soon as its last request is done, a *phantom* item takes its place in the tree: the
 * queue goes on waiting, with its tags, and no policy needs to know. If the phantom is picked the
 * slot stands idle until the real request comes, at most RA_WAIT from the end of the last one. A
 * queue that mostly thinks longer has no phantom.
 *
 * Rules, in order of execution:
 *   1. a request ends, and nothing else of the queue waits or is in service: while the mean think time is at most `wait` the phantom wakes, of the length of
 *      that request, before the request is settled                                                     ra_done
 *   2. a request comes: think time, an eighth of the way; the phantom goes after the request has been woken        ra_arrived
 *   3. `wait` is over: the phantom goes                                                                 ra_expire
 * The caller does not serve a phantom that it picks: it asks again at `until`.
 *
 * Where requests are charged at dispatch and the tree knows nothing of their ends (server.c), rule
 * 1 is in two steps: the phantom wakes when the queue's last request is dispatched (ra_hold), and
 * `wait` begins when its last one is done (ra_ended). Until then a phantom that is picked waits for
 * what is under way.
 *
 * Bound: what stands idle is at most `wait` for each request, and in the mean no more than what
 * queues think. Fairness is that of the tree with a queue that always waits.
 *
 * References: Iyer, Druschel: anticipatory scheduling, SOSP'01; "deceptive idleness" is theirs.
 */
#define RA_WAIT 2000000ULL /* ns, where nothing else is said */

struct ra_queue {
	struct rs_item *phantom; /* a member of the queue */
	u64 think; /* mean, of late */
	u64 since; /* end of the last request, while it thinks */
	u64 until; /* while the phantom stands for it; ~0: its last request is under way */
	u64 wait; /* 0: no phantom */
	u32 thinks;
	u32 pad0;
};

/* `phantom` has joined the queue and is idle. */
static void ra_init(struct ra_queue *a, struct rs_item *phantom)
{
	*a = (struct ra_queue){ .phantom = phantom, .wait = RA_WAIT };
}

/*
 * Before rs_settle of the queue's only request, of this length, which ended or was dispatched.
 * Answers whether the phantom stands for it.
 */
static int ra_hold(struct rs_tree *t, struct ra_queue *a, u32 length, u64 sector, u64 now)
{
	if (!a->wait || a->think > a->wait || a->phantom->state != RS_IDLE)
		return 0;
	rs_item_request(t, a->phantom, length, sector, 0);
	rs_wake(t, a->phantom, now);
	a->until = ~0ULL;
	return 1;
}

/* The queue's last request is done. */
static void ra_ended(struct ra_queue *a, u64 now)
{
	a->thinks = 1;
	a->since = now;
	if (a->until)
		a->until = now + a->wait;
}

/*
 * Before rs_settle of the queue's only request, of this length. Answers whether the phantom stands
 * for it, until a->until.
 */
static int ra_done(struct rs_tree *t, struct ra_queue *a, u32 length, u64 now)
{
	int holds = ra_hold(t, a, length, 0, now);

	ra_ended(a, now);
	return holds;
}

/* The phantom goes. Answers 1 + the slot that it held; 0: none. */
static u32 ra_go(struct rs_tree *t, struct ra_queue *a, u64 now)
{
	u32 unit = a->phantom->unit;

	a->until = 0;
	if (a->phantom->state == RS_QUEUED)
		rs_remove(t, a->phantom);
	else if (a->phantom->state == RS_SERVICE) {
		rs_settle(t, a->phantom, 0, 0, now);
		return unit + 1;
	}
	return 0;
}

/*
 * After rs_wake of a request of the queue. Answers as ra_go: the slot should be picked for at once.
 */
static u32 ra_arrived(struct rs_tree *t, struct ra_queue *a, u64 now)
{
	if (a->thinks) {
		/*
		 * Nobody's think time counts as more than four waits: one pause is forgiven soon.
		 */
		u64 most = 4 * (a->wait ? a->wait : RA_WAIT), x = now - a->since < most ? now - a->since : most;

		a->think = a->think - a->think / 8 + x / 8;
		a->thinks = 0;
	}
	return ra_go(t, a, now);
}

/* At a->until or later. Answers as ra_go. */
static u32 ra_expire(struct rs_tree *t, struct ra_queue *a, u64 now)
{
	return a->until && now >= a->until ? ra_go(t, a, now) : 0;
}
