/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The core as a library for the host's tests: one table of functions, so that several variants of
 * the core (the deliberately broken ones of the conformance suite among them) live in one program.
 *
 * Nodes are named by id (generation << 32 | index), items by index. Nothing here decides anything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* Small trees see pieces too. */
#define RS_CHANGE_FEW 6
#define RS_CHANGE_PIECE 3
#define RS_CHANGE_SLOTS 5
#define RS_FAR_FEW 2
#include "core.c"
#include "check.c"
#include "disk/anticipate.c"
#include "disk/cello.c"
#include "disk/window.c"

#ifndef RS_HOST_API
#define RS_HOST_API rs_host_api
#endif

#define RS_HOST_NONE 0xffffffffu

struct rs_node_view {
	uint64_t id, parent; /* the root's parent is 0 */
	uint32_t kind, alg, dying, depth, weight, nchildren, members, members_max;
	uint64_t service, served, throttled_ns;
	uint64_t cap_ppm, cap_burst;
	int64_t cap_tok;
	uint64_t tag, key, res, v, fmax;
	uint32_t epoch, nsvc, runnable, ready, throttled, nrun, waiting, client, head, pad0;
	uint64_t request; /* eevdf: the estimate */
};

struct rs_item_view {
	uint64_t queue; /* 0: none */
	uint64_t service, tag, v, queued_at;
	uint32_t state, unit, weight, all;
	uint64_t slice, due, release;
	int64_t left;
	uint32_t budgeted, pad0; /* class edf: waits among those with budget */
};

struct rs_tree_view {
	uint64_t seq, next_ns, starved, quantum, pool_left;
	uint32_t poison, poison_line, units, nodes_used, items_used, grants, changes, looked;
};

static struct rs_node *host_node(struct rs_tree *t, uint64_t id)
{
	return rs_node_at(t, id);
}

static uint64_t host_id(struct rs_node *n)
{
	return n ? (uint64_t)n->gen << 32 | n->index : 0;
}

static struct rs_tree *host_create(uint32_t nodes, uint32_t items, uint32_t units, uint64_t quantum)
{
	uint64_t bytes = RS_TREE_BYTES(nodes, items);
	struct rs_tree *t = calloc(1, sizeof(*t) + bytes);

	if (!t)
		return 0;
	rs_tree_init(t, (uint64_t)(t + 1), bytes, nodes, items);
	rs_units_first(t, units);
	t->quantum = quantum;
	rs_quantum_all(t);
	return t;
}

static void host_destroy(struct rs_tree *t)
{
	free(t);
}

static void host_set(struct rs_tree *t, uint64_t quantum, uint64_t starve_ns, uint64_t starve_gap_ns)
{
	t->quantum = quantum;
	rs_quantum_all(t);
	t->starve_ns = starve_ns;
	t->starve_gap_ns = starve_gap_ns;
}

/* Start every clock at `v` (an idle tree): decisions must not depend on it. */
static void host_start_at(struct rs_tree *t, uint64_t v)
{
	for (uint32_t i = 0; i < t->nodes_max; i++) {
		struct rs_node *n = &t->nodes[i];

		n->clock.v = v;
		n->clock.fmax = v;
		n->vb = v;
		n->tag.base = v;
	}
}

static int host_edit(struct rs_tree *t, struct rs_batch *b)
{
	return rs_edit_all(t, b);
}

/* The same without what comes afterwards in pieces: host_change is one. */
static int host_edit_begin(struct rs_tree *t, struct rs_batch *b)
{
	return rs_edit(t, b);
}

static int host_change(struct rs_tree *t)
{
	return rs_change_some(t) || rs_quantum_some(t);
}

static uint32_t host_item_new(struct rs_tree *t, uint64_t queue, uint32_t weight, uint32_t flags)
{
	struct rs_node *q = host_node(t, queue);
	struct rs_item *it;

	if (!q)
		return RS_HOST_NONE;
	it = rs_item_alloc(t);
	if (!it)
		return RS_HOST_NONE;
	it->weight = weight;
	it->flags = flags;
	if (!rs_item_join(t, it, q)) {
		rs_item_free(t, it);
		return RS_HOST_NONE;
	}
	return it->index;
}

static void host_item_leave(struct rs_tree *t, uint32_t item)
{
	rs_item_leave(t, &t->items[item]);
}

static int host_item_move(struct rs_tree *t, uint32_t item, uint64_t to, uint64_t work, uint64_t now)
{
	struct rs_node *q = host_node(t, to);

	return q ? rs_item_move(t, &t->items[item], q, work, now) : 0;
}

static void host_item_units(struct rs_tree *t, uint32_t item, uint32_t all, const uint64_t *mask)
{
	for (int i = 0; i < RS_UNIT_WORDS; i++)
		t->items[item].mask[i] = all ? ~0ULL : mask[i];
	rs_item_units(t, &t->items[item], all);
}

static void host_units(struct rs_tree *t, uint32_t units)
{
	rs_units(t, units);
}

static void host_item_reweight(struct rs_tree *t, uint32_t item, uint32_t weight)
{
	rs_item_reweight(t, &t->items[item], weight);
}

static void host_wake(struct rs_tree *t, uint32_t item, uint64_t now)
{
	rs_wake(t, &t->items[item], now);
}

static uint32_t host_post(struct rs_tree *t, uint32_t item, uint64_t now)
{
	return rs_post(t, &t->items[item], now);
}

static void host_drain(struct rs_tree *t)
{
	if (t->posted)
		rs_drain(t, rs_posts(t));
}

/* As an owner looks at it, while other threads have the lock. */
static uint32_t host_state(struct rs_tree *t, uint32_t item)
{
	return *(volatile u8 *)&t->items[item].state;
}

static uint32_t host_post_all(struct rs_tree *t, uint32_t item)
{
	struct rs_item *it = &t->items[item];

	if (host_state(t, item) != RS_QUEUED || !*(volatile u8 *)&it->stays || *(volatile u32 *)&it->posted)
		return 0;
	return rs_post_all(t, it);
}

static void host_stay(struct rs_tree *t, uint32_t item, uint32_t unit)
{
	rs_stay(&t->items[item], unit);
}

static void host_stayed(struct rs_tree *t, uint32_t item)
{
	rs_stayed(&t->items[item]);
}

static int host_quiet(struct rs_tree *t, uint32_t item, uint32_t cur, uint64_t ran)
{
	t->items[cur].started = 0;
	return rs_wakes_quietly(t, &t->items[item], &t->items[cur], ran);
}

static void host_remove(struct rs_tree *t, uint32_t item)
{
	rs_remove(t, &t->items[item]);
}

static uint32_t host_pick(struct rs_tree *t, uint32_t unit, uint64_t now)
{
	struct rs_item *it = rs_pick(t, unit, now);

	return it ? it->index : RS_HOST_NONE;
}

static void host_begin(struct rs_tree *t, uint32_t item, uint32_t unit)
{
	rs_begin(t, &t->items[item], unit);
}

static void host_settle(struct rs_tree *t, uint32_t item, uint64_t work, uint32_t more, uint64_t now)
{
	rs_settle(t, &t->items[item], work, more, now);
}

static void host_called(struct rs_tree *t, uint32_t item)
{
	rs_called(&t->items[item]);
}

static int host_preempts(struct rs_tree *t, uint32_t item, uint32_t cur, uint64_t ran)
{
	return rs_preempts(t, &t->items[item], &t->items[cur], ran);
}

static int host_node_view(struct rs_tree *t, uint64_t id, struct rs_node_view *v)
{
	struct rs_node *n = host_node(t, id);

	if (!n)
		return 0;
	memset(v, 0, sizeof(*v));
	v->id = host_id(n);
	v->parent = host_id(n->parent);
	v->kind = n->kind;
	v->alg = n->alg;
	v->dying = n->dying;
	v->depth = n->depth;
	v->weight = n->weight;
	v->nchildren = n->nchildren;
	v->members = n->members;
	v->members_max = n->members_max;
	v->service = n->service;
	v->served = n->served;
	v->throttled_ns = n->throttled_ns;
	v->cap_ppm = n->cap.ppm;
	v->cap_burst = n->cap.burst;
	v->cap_tok = n->cap.tok;
	v->tag = n->tag.base;
	v->key = n->parent ? policy_key(t, n->parent, n) : 0;
	v->res = n->res;
	v->v = n->clock.v;
	v->fmax = n->clock.fmax;
	v->epoch = n->clock.epoch;
	v->nsvc = n->nsvc;
	v->runnable = n->runnable;
	v->ready = n->parent && check_waits(t, n);
	v->throttled = n->throttled & RS_CAPPED;
	v->nrun = n->nrun;
	v->waiting = n->ready.n;
	v->head = n->head;
	v->client = n->parent && policy_client(n->parent, n);
	v->request = v->client && n->parent->alg == eevdf_policy ? n->as.ee.request : 0;
	return 1;
}

static uint64_t host_node_id(struct rs_tree *t, uint32_t index)
{
	return index < t->nodes_used && t->nodes[index].kind != RS_FREE ? host_id(&t->nodes[index]) : 0;
}

static void host_item_view(struct rs_tree *t, uint32_t item, struct rs_item_view *v)
{
	struct rs_item *it = &t->items[item];

	v->queue = host_id(it->queue);
	v->service = it->service;
	v->tag = it->tag.base;
	v->v = it->queue ? it->queue->clock.v : 0;
	v->queued_at = it->queued_at;
	v->state = it->state;
	v->unit = it->unit;
	v->weight = it->weight;
	v->all = it->all;
	v->slice = it->slice;
	v->due = it->edf.due;
	v->release = it->edf.release;
	v->left = edf_left(it);
	v->budgeted = !(it->seq & RS_SEQ_BACKGROUND);
	v->pad0 = 0;
}

static int host_item_params(struct rs_tree *t, uint32_t item, const struct rs_params *p, uint64_t now)
{
	t->params = *p;
	return rs_item_params(t, &t->items[item], now);
}

/* The queue competes as its items do from now on (bpf/cpu/cgroups.h, rc_own_begin). */
static void host_own(struct rs_tree *t, uint64_t queue)
{
	struct rs_node *q = host_node(t, queue);

	q->own = 1;
	q->wrun = 0;
	for (uint32_t i = 0; i < t->items_used; i++)
		if (t->items[i].queue == q && (t->items[i].state == RS_QUEUED || t->items[i].state == RS_SERVICE))
			q->wrun += t->items[i].weight;
	rs_node_reweight(t, q, rs_own_weight(q));
}

static uint32_t host_victim(struct rs_tree *t, uint32_t item)
{
	return rs_victim(t, &t->items[item]);
}

static void host_item_length(struct rs_tree *t, uint32_t item, uint32_t length)
{
	rs_item_length(t, &t->items[item], length);
}

static void host_item_request(struct rs_tree *t, uint32_t item, uint32_t length, uint64_t sector, uint64_t due_at)
{
	rs_item_request(t, &t->items[item], length, sector, due_at);
}

/* The units are slots of one device. */
static void host_device(struct rs_tree *t)
{
	t->device = 1;
}

static void host_arrive(struct rs_tree *t, uint32_t item, uint32_t work)
{
	rs_arrive(t, &t->items[item], work);
}

static void host_lend(struct rs_tree *t, uint32_t item, uint32_t to, uint64_t lent)
{
	rs_lend(t, &t->items[item], &t->items[to], lent);
}

static void host_near(struct rs_tree *t, uint32_t near)
{
	t->near = near;
}

static void host_progress(struct rs_tree *t, uint32_t done)
{
	t->progress = done;
}

static void host_tree_view(struct rs_tree *t, struct rs_tree_view *v)
{
	v->seq = t->seq;
	v->next_ns = t->next_ns;
	v->starved = t->starved;
	v->quantum = t->quantum;
	v->pool_left = t->pool_end - t->pool;
	v->poison = t->poison;
	v->poison_line = t->poison_line;
	v->units = t->units;
	v->nodes_used = t->nodes_used;
	v->items_used = t->items_used;
	v->grants = t->grants;
	v->changes = t->changes;
	v->looked = t->looked;
}

static void host_reset(struct rs_tree *t)
{
	rs_tree_reset(t);
}

/* 0, or the line of check.c that found something; `text` says what. */
static uint32_t host_check(struct rs_tree *t, char *text, uint32_t size)
{
	struct rs_fault f = rs_check(t);

	if (!f.line)
		return 0;
	snprintf(text, size, "%s: %s %u (%lld, %lld)", f.what, f.of, f.index, (long long)f.a, (long long)f.b);
	return f.line;
}

struct rs_cello_view {
	int64_t used[RC_CLASSES], extra[RC_CLASSES];
	uint64_t service[RC_CLASSES], served[RC_CLASSES];
	uint64_t round_at, busy_until;
	uint32_t pending[RC_CLASSES], n, serving, bypass, scheduled[RC_SCHEDULED_MAX];
};

static struct rc_cello *host_cello_new(uint32_t requests, uint64_t now)
{
	struct rc_cello *c = calloc(1, sizeof(*c) + requests * sizeof(struct rc_request));

	if (c)
		rc_init(c, (struct rc_request *)(c + 1), requests, now);
	return c;
}

static void host_cello_free(struct rc_cello *c)
{
	free(c);
}

static void host_cello_view(struct rc_cello *c, struct rs_cello_view *v)
{
	memset(v, 0, sizeof(*v));
	for (int k = 0; k < RC_CLASSES; k++) {
		v->used[k] = c->class[k].used;
		v->extra[k] = c->class[k].extra;
		v->service[k] = c->class[k].service;
		v->served[k] = c->class[k].served;
		v->pending[k] = c->class[k].pending.count;
	}
	v->round_at = c->round_at;
	v->busy_until = c->busy_until;
	v->n = c->n;
	v->serving = c->serving;
	v->bypass = c->bypass.count;
	for (uint32_t k = 0; k < c->n; k++)
		v->scheduled[k] = c->scheduled[k];
}

static struct rw_window *host_window_new(uint32_t size, uint32_t slots, uint32_t drain)
{
	struct rw_window *w = calloc(1, sizeof(*w));

	if (w && !rw_init(w, size, slots, drain)) {
		free(w);
		return 0;
	}
	return w;
}

static void host_window_free(struct rw_window *w)
{
	free(w);
}

/* With a phantom in the queue; 0: there is no room for it. */
static struct ra_queue *host_ante_new(struct rs_tree *t, uint64_t queue)
{
	uint32_t item = host_item_new(t, queue, RS_WEIGHT_ONE, 0);
	struct ra_queue *a = item == RS_HOST_NONE ? 0 : calloc(1, sizeof(*a));

	if (a)
		ra_init(a, &t->items[item]);
	return a;
}

static void host_ante_free(struct ra_queue *a)
{
	free(a);
}

static uint32_t host_ante_phantom(struct ra_queue *a)
{
	return a->phantom->index;
}

static uint64_t host_ante_until(struct ra_queue *a)
{
	return a->until;
}

struct rs_host {
	uint32_t bytes, batch_bytes, node_view_bytes, item_view_bytes, tree_view_bytes, pad0;
	struct rs_tree *(*create)(uint32_t nodes, uint32_t items, uint32_t units, uint64_t quantum);
	void (*destroy)(struct rs_tree *t);
	void (*set)(struct rs_tree *t, uint64_t quantum, uint64_t starve_ns, uint64_t starve_gap_ns);
	void (*start_at)(struct rs_tree *t, uint64_t v);
	int (*edit)(struct rs_tree *t, struct rs_batch *b);
	uint32_t (*item_new)(struct rs_tree *t, uint64_t queue, uint32_t weight, uint32_t flags);
	void (*item_leave)(struct rs_tree *t, uint32_t item);
	int (*item_move)(struct rs_tree *t, uint32_t item, uint64_t to, uint64_t work, uint64_t now);
	void (*item_units)(struct rs_tree *t, uint32_t item, uint32_t all, const uint64_t *mask);
	void (*item_reweight)(struct rs_tree *t, uint32_t item, uint32_t weight);
	void (*wake)(struct rs_tree *t, uint32_t item, uint64_t now);
	uint32_t (*post)(struct rs_tree *t, uint32_t item, uint64_t now);
	void (*drain)(struct rs_tree *t);
	int (*quiet)(struct rs_tree *t, uint32_t item, uint32_t cur, uint64_t ran);
	void (*remove)(struct rs_tree *t, uint32_t item);
	uint32_t (*pick)(struct rs_tree *t, uint32_t unit, uint64_t now);
	void (*begin)(struct rs_tree *t, uint32_t item, uint32_t unit);
	void (*settle)(struct rs_tree *t, uint32_t item, uint64_t work, uint32_t more, uint64_t now);
	int (*preempts)(struct rs_tree *t, uint32_t item, uint32_t cur, uint64_t ran);
	int (*node_view)(struct rs_tree *t, uint64_t id, struct rs_node_view *v);
	uint64_t (*node_id)(struct rs_tree *t, uint32_t index);
	void (*item_view)(struct rs_tree *t, uint32_t item, struct rs_item_view *v);
	void (*tree_view)(struct rs_tree *t, struct rs_tree_view *v);
	void (*reset)(struct rs_tree *t);
	uint32_t (*check)(struct rs_tree *t, char *text, uint32_t size);
	int (*item_params)(struct rs_tree *t, uint32_t item, const struct rs_params *p, uint64_t now);
	uint32_t (*victim)(struct rs_tree *t, uint32_t item);
	void (*own)(struct rs_tree *t, uint64_t queue);
	uint32_t (*state)(struct rs_tree *t, uint32_t item);
	uint32_t (*post_all)(struct rs_tree *t, uint32_t item);
	void (*stay)(struct rs_tree *t, uint32_t item, uint32_t unit);
	void (*stayed)(struct rs_tree *t, uint32_t item);
	void (*item_length)(struct rs_tree *t, uint32_t item, uint32_t length);
	void (*progress)(struct rs_tree *t, uint32_t done);
	void (*near)(struct rs_tree *t, uint32_t near);
	void (*lend)(struct rs_tree *t, uint32_t item, uint32_t to, uint64_t lent);
	void (*arrive)(struct rs_tree *t, uint32_t item, uint32_t work);
	void (*item_request)(struct rs_tree *t, uint32_t item, uint32_t length, uint64_t sector, uint64_t due_at);
	void (*device)(struct rs_tree *t);
	struct rc_cello *(*cello_new)(uint32_t requests, uint64_t now);
	void (*cello_free)(struct rc_cello *c);
	int (*cello_weight)(struct rc_cello *c, uint32_t class, uint32_t weight);
	int (*cello_tune)(struct rc_cello *c, uint64_t round_ns, uint32_t depth, uint32_t slots);
	uint32_t (*cello_arrive)(struct rc_cello *c, uint32_t class, uint64_t sector, uint64_t bytes, uint64_t due, uint64_t estimate);
	uint32_t (*cello_next)(struct rc_cello *c, uint64_t now);
	int (*cello_done)(struct rc_cello *c, uint32_t request, uint64_t took, uint64_t now);
	void (*cello_view)(struct rc_cello *c, struct rs_cello_view *v);
	struct rw_window *(*window_new)(uint32_t size, uint32_t slots, uint32_t drain);
	void (*window_free)(struct rw_window *w);
	int (*window_resize)(struct rw_window *w, uint32_t size, uint32_t slots);
	uint32_t (*window_room)(struct rw_window *w);
	int (*window_put)(struct rw_window *w, uint32_t item, uint64_t sector);
	uint32_t (*window_next)(struct rw_window *w);
	void (*window_done)(struct rw_window *w);
	struct ra_queue *(*ante_new)(struct rs_tree *t, uint64_t queue);
	void (*ante_free)(struct ra_queue *a);
	uint32_t (*ante_phantom)(struct ra_queue *a);
	uint64_t (*ante_until)(struct ra_queue *a);
	int (*ante_done)(struct rs_tree *t, struct ra_queue *a, uint32_t length, uint64_t now);
	uint32_t (*ante_arrived)(struct rs_tree *t, struct ra_queue *a, uint64_t now);
	uint32_t (*ante_expire)(struct rs_tree *t, struct ra_queue *a, uint64_t now);
	void (*called)(struct rs_tree *t, uint32_t item);
	int (*edit_begin)(struct rs_tree *t, struct rs_batch *b);
	int (*change)(struct rs_tree *t);
	void (*units)(struct rs_tree *t, uint32_t units);
};

const struct rs_host *RS_HOST_API(void);
const struct rs_host *RS_HOST_API(void)
{
	static const struct rs_host api = {
		.bytes = sizeof(struct rs_host),
		.batch_bytes = sizeof(struct rs_batch),
		.node_view_bytes = sizeof(struct rs_node_view),
		.item_view_bytes = sizeof(struct rs_item_view),
		.tree_view_bytes = sizeof(struct rs_tree_view),
		.create = host_create,
		.destroy = host_destroy,
		.set = host_set,
		.start_at = host_start_at,
		.edit = host_edit,
		.item_new = host_item_new,
		.item_leave = host_item_leave,
		.item_move = host_item_move,
		.item_units = host_item_units,
		.item_reweight = host_item_reweight,
		.wake = host_wake,
		.post = host_post,
		.drain = host_drain,
		.quiet = host_quiet,
		.remove = host_remove,
		.pick = host_pick,
		.begin = host_begin,
		.settle = host_settle,
		.preempts = host_preempts,
		.node_view = host_node_view,
		.node_id = host_node_id,
		.item_view = host_item_view,
		.tree_view = host_tree_view,
		.reset = host_reset,
		.check = host_check,
		.item_params = host_item_params,
		.victim = host_victim,
		.own = host_own,
		.state = host_state,
		.post_all = host_post_all,
		.stay = host_stay,
		.stayed = host_stayed,
		.item_length = host_item_length,
		.progress = host_progress,
		.near = host_near,
		.lend = host_lend,
		.arrive = host_arrive,
		.item_request = host_item_request,
		.device = host_device,
		.cello_new = host_cello_new,
		.cello_free = host_cello_free,
		.cello_weight = rc_weight,
		.cello_tune = rc_tune,
		.cello_arrive = rc_arrive,
		.cello_next = rc_next,
		.cello_done = rc_done,
		.cello_view = host_cello_view,
		.window_new = host_window_new,
		.window_free = host_window_free,
		.window_resize = rw_resize,
		.window_room = rw_room,
		.window_put = rw_put,
		.window_next = rw_next,
		.window_done = rw_done,
		.ante_new = host_ante_new,
		.ante_free = host_ante_free,
		.ante_phantom = host_ante_phantom,
		.ante_until = host_ante_until,
		.ante_done = ra_done,
		.ante_arrived = ra_arrived,
		.ante_expire = ra_expire,
		.called = host_called,
		.edit_begin = host_edit_begin,
		.change = host_change,
		.units = host_units,
	};

	return &api;
}
