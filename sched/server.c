/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The core inside a server process: one tree, one thread, nothing else knows of it. An item is one request. It is charged when it is dispatched,
 * with what it costs then (SFQ(D) as of the paper: tags advance at dispatch, whatever is still under way at the device), so the tree has one unit.
 *
 * Nodes are named by id (generation << 32 | index), items by index. Nothing here decides anything.
 */
#include <stdlib.h>
#include "core.c"

#define RV_NONE 0xffffffffu

struct rs_tree *rv_create(uint32_t nodes, uint32_t items, uint64_t quantum);
struct rs_tree *rv_create(uint32_t nodes, uint32_t items, uint64_t quantum)
{
	uint64_t bytes = RS_TREE_BYTES(nodes, items);
	struct rs_tree *t = calloc(1, sizeof(*t) + bytes);

	if (!t)
		return 0;
	rs_tree_init(t, (uint64_t)(t + 1), bytes, nodes, items);
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
	return rs_edit(t, b);
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

/* It waits; what it will cost is known. */
void rv_wake(struct rs_tree *t, uint32_t item, uint32_t length, uint64_t now);
void rv_wake(struct rs_tree *t, uint32_t item, uint32_t length, uint64_t now)
{
	rs_item_length(t, &t->items[item], length);
	rs_wake(t, &t->items[item], now);
}

/* One that waits goes to another queue, at its end; 0: that takes nobody. */
int rv_move(struct rs_tree *t, uint32_t item, uint64_t to, uint64_t now);
int rv_move(struct rs_tree *t, uint32_t item, uint64_t to, uint64_t now)
{
	struct rs_node *q = rs_node_at(t, to);

	return q ? rs_item_move(t, &t->items[item], q, 0, now) : 0;
}

/* Who is served next; RV_NONE: nobody, and *next says when to ask again (0: at the next arrival). */
uint32_t rv_pick(struct rs_tree *t, uint64_t now, uint64_t *next);
uint32_t rv_pick(struct rs_tree *t, uint64_t now, uint64_t *next)
{
	struct rs_item *it = rs_pick(t, 0, now);

	*next = it ? 0 : t->next_ns;
	return it ? it->index : RV_NONE;
}

/* The item that was picked is charged, and leaves. */
void rv_charge(struct rs_tree *t, uint32_t item, uint64_t work, uint64_t now);
void rv_charge(struct rs_tree *t, uint32_t item, uint64_t work, uint64_t now)
{
	rs_settle(t, &t->items[item], work, 0, now);
	rs_item_leave(t, &t->items[item]);
}

/* 0, or why (upper half) and where (lower half) the tree is inconsistent. */
uint64_t rv_poison(struct rs_tree *t);
uint64_t rv_poison(struct rs_tree *t)
{
	return t->poison ? (uint64_t)t->poison << 32 | t->poison_line : 0;
}
