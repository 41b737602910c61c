/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The core inside a server process: one tree, one thread, nothing else knows of it. An item is one
 * request. It is charged with what it costs when it is dispatched (SFQ(D) as of the paper: tags
 * advance at dispatch, whatever is still under way at the device), so the tree has one unit.
 *
 * What was dispatched last is in service until the next is asked for, as a link's packet is, and is
 * settled then. Settled at once, a queue with nothing else that waits would be idle while its
 * programs have requests at the disk: v would go on to its siblings' start tags, and the queue,
 * whose next request comes a moment later, would lose what it is behind them. (Two programs with
 * two requests each at a disk that takes one had at most 1:2, whatever their weights.)
 *
 * Nodes are named by id (generation << 32 | index), items by index. Nothing here decides anything.
 */
#include <stdlib.h>
#include "core.c"
/* Not all of them are of use here. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "disk/window.c"
#include "disk/anticipate.c"
#include "disk/cello.c"

#define RV_NONE 0xffffffffu

/* Stands behind the tree: what was dispatched last, and what it cost. */
struct rv_last {
	struct rs_item *item;
	uint64_t work, now;
};

static struct rv_last *rv_last(struct rs_tree *t)
{
	return (struct rv_last *)(t + 1);
}

static void rv_settle(struct rs_tree *t)
{
	struct rv_last *last = rv_last(t);

	if (!last->item)
		return;
	rs_settle(t, last->item, last->work, 0, last->now);
	rs_item_leave(t, last->item);
	last->item = 0;
}

/* The time of what is settled then. */
static void rv_at(struct rs_tree *t, uint64_t now)
{
	if (rv_last(t)->now < now)
		rv_last(t)->now = now;
}

struct rs_tree *rv_create(uint32_t nodes, uint32_t items, uint64_t quantum);
struct rs_tree *rv_create(uint32_t nodes, uint32_t items, uint64_t quantum)
{
	uint64_t bytes = RS_TREE_BYTES(nodes, items);
	struct rs_tree *t = calloc(1, sizeof(*t) + sizeof(struct rv_last) + bytes);

	if (!t)
		return 0;
	rs_tree_init(t, (uint64_t)(rv_last(t) + 1), bytes, nodes, items);
	t->quantum = quantum;
	rs_quantum_all(t);
	/* No floor for weight 0 by age: it would break small shares of slow disks. */
	t->starve_ns = 0;
	return t;
}

uint32_t rv_batch_bytes(void);
uint32_t rv_batch_bytes(void)
{
	return sizeof(struct rs_batch);
}

int rv_edit(struct rs_tree *t, struct rs_batch *b);
int rv_edit(struct rs_tree *t, struct rs_batch *b)
{
	rv_settle(t);
	return rs_edit_all(t, b);
}

/* RS_FREE, RS_SCHED or RS_QUEUE. */
uint32_t rv_kind(struct rs_tree *t, uint64_t id);
uint32_t rv_kind(struct rs_tree *t, uint64_t id)
{
	struct rs_node *n = rs_node_at(t, id);

	return n ? n->kind : RS_FREE;
}

/* The number after the last batch in effect must be greater. */
void rv_seq(struct rs_tree *t, uint64_t seq);
void rv_seq(struct rs_tree *t, uint64_t seq)
{
	t->seq = seq;
}

/* An idle item in a queue; RV_NONE: no such queue, or it takes nobody. */
uint32_t rv_join(struct rs_tree *t, uint64_t queue);
uint32_t rv_join(struct rs_tree *t, uint64_t queue)
{
	struct rs_node *q = rs_node_at(t, queue);
	struct rs_item *it;

	if (!q)
		return RV_NONE;
	it = rs_item_alloc(t);
	if (!it)
		return RV_NONE;
	if (!rs_item_join(t, it, q)) {
		rs_item_free(t, it);
		return RV_NONE;
	}
	return it->index;
}

void rv_leave(struct rs_tree *t, uint32_t item);
void rv_leave(struct rs_tree *t, uint32_t item)
{
	rs_item_leave(t, &t->items[item]);
}

/* It waits: what it will cost, where it is, and when it is due (0: never). */
void rv_wake(struct rs_tree *t, uint32_t item, uint32_t length, uint64_t sector, uint64_t due, uint64_t now);
void rv_wake(struct rs_tree *t, uint32_t item, uint32_t length, uint64_t sector, uint64_t due, uint64_t now)
{
	rv_at(t, now);
	rs_item_request(t, &t->items[item], length, sector, due);
	rs_wake(t, &t->items[item], now);
}

/* One that waits goes to another queue, at its end; 0: that takes nobody. */
int rv_move(struct rs_tree *t, uint32_t item, uint64_t to, uint64_t now);
int rv_move(struct rs_tree *t, uint32_t item, uint64_t to, uint64_t now)
{
	struct rs_node *q = rs_node_at(t, to);

	return q ? rs_item_move(t, &t->items[item], q, 0, now) : 0;
}

/*
 * Who is served next; RV_NONE: nobody, and *next says when to ask again (0: at the next arrival).
 */
uint32_t rv_pick(struct rs_tree *t, uint64_t now, uint64_t *next);
uint32_t rv_pick(struct rs_tree *t, uint64_t now, uint64_t *next)
{
	struct rs_item *it;

	rv_at(t, now);
	rv_settle(t);
	it = rs_pick(t, 0, now);
	*next = it ? 0 : t->next_ns;
	return it ? it->index : RV_NONE;
}

/* The item that was picked is charged, and leaves: when the next one is picked. */
void rv_charge(struct rs_tree *t, uint32_t item, uint64_t work, uint64_t now);
void rv_charge(struct rs_tree *t, uint32_t item, uint64_t work, uint64_t now)
{
	rv_at(t, now);
	rv_last(t)->item = &t->items[item];
	rv_last(t)->work = work;
}

/* 0, or why (upper half) and where (lower half) the tree is inconsistent. */
uint64_t rv_poison(struct rs_tree *t);
uint64_t rv_poison(struct rs_tree *t)
{
	return t->poison ? (uint64_t)t->poison << 32 | t->poison_line : 0;
}

/* The window between the tree and the disk (disk/window.c). */
struct rw_window *rv_window(void);
struct rw_window *rv_window(void)
{
	struct rw_window *w = calloc(1, sizeof(*w));

	if (w)
		rw_init(w, 1, 1, 0);
	return w;
}

int rv_window_resize(struct rw_window *w, uint32_t size, uint32_t slots);
int rv_window_resize(struct rw_window *w, uint32_t size, uint32_t slots)
{
	return rw_resize(w, size, slots);
}

uint32_t rv_window_room(struct rw_window *w);
uint32_t rv_window_room(struct rw_window *w)
{
	return rw_room(w);
}

int rv_window_put(struct rw_window *w, uint32_t entry, uint64_t sector);
int rv_window_put(struct rw_window *w, uint32_t entry, uint64_t sector)
{
	return rw_put(w, entry, sector);
}

uint32_t rv_window_next(struct rw_window *w);
uint32_t rv_window_next(struct rw_window *w)
{
	return rw_next(w);
}

void rv_window_done(struct rw_window *w);
void rv_window_done(struct rw_window *w)
{
	rw_done(w);
}

/* Anticipation, for each of `queues` queues (disk/anticipate.c). */
struct ra_queue *rv_thinkers(uint32_t queues);
struct ra_queue *rv_thinkers(uint32_t queues)
{
	return calloc(queues, sizeof(struct ra_queue));
}

/* An idle item of the queue is its phantom. */
void rv_think(struct rs_tree *t, struct ra_queue *a, uint32_t item, uint64_t wait);
void rv_think(struct rs_tree *t, struct ra_queue *a, uint32_t item, uint64_t wait)
{
	ra_init(a, &t->items[item]);
	a->wait = wait;
}

void rv_think_wait(struct ra_queue *a, uint64_t wait);
void rv_think_wait(struct ra_queue *a, uint64_t wait)
{
	a->wait = wait;
}

/* Before rv_charge of the last one that waits. */
int rv_think_hold(struct rs_tree *t, struct ra_queue *a, uint32_t length, uint64_t sector, uint64_t now);
int rv_think_hold(struct rs_tree *t, struct ra_queue *a, uint32_t length, uint64_t sector, uint64_t now)
{
	return ra_hold(t, a, length, sector, now);
}

void rv_think_ended(struct ra_queue *a, uint64_t now);
void rv_think_ended(struct ra_queue *a, uint64_t now)
{
	ra_ended(a, now);
}

/* After rv_wake. Answers whether a phantom that was picked went. */
int rv_think_arrived(struct rs_tree *t, struct ra_queue *a, uint64_t now);
int rv_think_arrived(struct rs_tree *t, struct ra_queue *a, uint64_t now)
{
	return ra_arrived(t, a, now) != 0;
}

/* The phantom goes, if it is there; answers as before. */
int rv_think_go(struct rs_tree *t, struct ra_queue *a, uint64_t now);
int rv_think_go(struct rs_tree *t, struct ra_queue *a, uint64_t now)
{
	return ra_go(t, a, now) != 0;
}

/* Until when the phantom stands for its queue; ~0: not known yet, 0: it does not. */
uint64_t rv_think_until(struct ra_queue *a);
uint64_t rv_think_until(struct ra_queue *a)
{
	return a->until;
}

struct ra_queue *rv_thinker(struct ra_queue *all, uint32_t queue);
struct ra_queue *rv_thinker(struct ra_queue *all, uint32_t queue)
{
	return all + queue;
}

/*
 * Cello, with room for `max` requests: beside the tree, which has none of them then (disk/cello.c).
 */
struct rc_cello *rv_cello(uint32_t max);
struct rc_cello *rv_cello(uint32_t max)
{
	struct rc_cello *c = calloc(1, sizeof(*c) + max * sizeof(struct rc_request));

	if (c)
		rc_init(c, (struct rc_request *)(c + 1), max, 0);
	return c;
}

/* It has no requests any more, and a round begins. */
void rv_cello_begin(struct rc_cello *c, uint64_t now);
void rv_cello_begin(struct rc_cello *c, uint64_t now)
{
	rc_init(c, c->request, c->requests_max, now);
}

int rv_cello_weight(struct rc_cello *c, uint32_t class, uint32_t weight);
int rv_cello_weight(struct rc_cello *c, uint32_t class, uint32_t weight)
{
	return rc_weight(c, class, weight);
}

/* `round` 0: as long as rounds usually are. */
int rv_cello_tune(struct rc_cello *c, uint64_t round, uint32_t slots);
int rv_cello_tune(struct rc_cello *c, uint64_t round, uint32_t slots)
{
	return rc_tune(c, round ? round : RC_ROUND_NS, c->depth, slots);
}

uint64_t rv_cello_round(struct rc_cello *c);
uint64_t rv_cello_round(struct rc_cello *c)
{
	return c->round_ns;
}

uint32_t rv_cello_arrive(struct rc_cello *c, uint32_t class, uint64_t sector, uint64_t bytes, uint64_t due);
uint32_t rv_cello_arrive(struct rc_cello *c, uint32_t class, uint64_t sector, uint64_t bytes, uint64_t due)
{
	return rc_arrive(c, class, sector, bytes, due, 0);
}

uint32_t rv_cello_next(struct rc_cello *c, uint64_t now);
uint32_t rv_cello_next(struct rc_cello *c, uint64_t now)
{
	return rc_next(c, now);
}

int rv_cello_done(struct rc_cello *c, uint32_t request, uint64_t took, uint64_t now);
int rv_cello_done(struct rc_cello *c, uint32_t request, uint64_t took, uint64_t now)
{
	return rc_done(c, request, took, now);
}
