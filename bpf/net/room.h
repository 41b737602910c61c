/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory follows use. What is in the arena has its address from the start, with room for all that
 * RN_ARENA_PAGES are, and pages when it is first needed: for so many nodes, items and queues as
 * there were at once, for the pool of heap arrays, and, from the first node on that asks for them,
 * for wf2q's segments and drr's flows.
 *
 * Pages are added by the daemon's calls alone, before they take the lock. A packet finds all that
 * it can need: each queue's item, RN_FLOWS more once there are flows, and RN_POOL_FLOWS of the pool
 * for the arrays of queues of flows; where the pool is short nevertheless, a flow's packets wait in
 * front of the flows (flows.h), and the next call mends it. The tree's own limits (nodes_open,
 * items_max, pool_end) say what has pages, so the core refuses what lies beyond, and a batch that
 * it refuses is tried again with more. Pages are not taken back while the tree is there.
 */

#define RN_POOL_BYTES (RS_TREE_BYTES(RS_NODES_MAX, RN_ITEMS) - RS_NODES_MAX * sizeof(struct rs_node) - RN_ITEMS * sizeof(struct rs_item))
#define RN_STEP 256 /* nodes that get pages at once */
#define RN_POOL_STEP (16 * RN_PAGE)
#define RN_POOL_FLOWS (128 * RN_PAGE)
#define RN_POOL_TRIES 32 /* each has a quarter more: from one step to more than all of it */

enum rn_part { RN_TREE, RN_NODES, RN_TREE_ITEMS, RN_POOL, RN_BATCH, RN_QUEUES, RN_PLACES, RN_TREE_FLOWS, RN_BUCKETS, RN_PARTS };

struct rn_range {
	u64 at, bytes; /* where it lies, and all that it may become */
	u64 pages; /* that it has, from its beginning */
};

struct rn_range parts[RN_PARTS];
u32 nodes_ready, flows_ready; /* have pages: so many nodes; what flows need */
u32 lengths_asked; /* the batch asks for a policy that goes by lengths */
u32 lengths_at; /* rn_lengths: the next slot; 0: none */

static __always_inline u64 rn_pages(u64 bytes)
{
	return (bytes + RN_PAGE - 1) / RN_PAGE;
}

/* The first `bytes` of a part have pages, zeroed; 0: there is no memory. */
static __noinline int rn_commit(u32 part, u64 bytes)
{
	struct rn_range *r = &parts[part < RN_PARTS ? part : 0];
	u64 want, more;

	asm volatile("" : : "r"(&arena));
	if (bytes > r->bytes)
		bytes = r->bytes;
	want = rn_pages(bytes);
	if (want <= r->pages)
		return 1;
	more = want - r->pages;
	if (!bpf_arena_alloc_pages(&arena, (void RS_ARENA *)(r->at + r->pages * RN_PAGE), more, -1, 0))
		return 0;
	r->pages = want;
	return 1;
}

/* No part has pages. The tree is not to be found any more. */
static __noinline int rn_uncommit(void)
{
	u32 i;

	asm volatile("" : : "r"(&arena));
	bpf_for(i, 0, RN_PARTS) {
		struct rn_range *r = &parts[i < RN_PARTS ? i : 0];

		if (r->pages)
			bpf_arena_free_pages(&arena, (void RS_ARENA *)r->at, r->pages);
		r->pages = 0;
	}
	return 0;
}

/* All parts have their addresses, one behind the other, and none has pages. */
static __always_inline void rn_part_at(u32 part, u64 *at, u64 bytes)
{
	parts[part].at = *at;
	parts[part].bytes = bytes;
	*at += rn_pages(bytes) * RN_PAGE;
}

static __always_inline void rn_parts(void)
{
	u64 at = RN_ARENA_AT;

	rn_part_at(RN_TREE, &at, sizeof(struct rs_tree));
	/* These three as rs_tree_init divides its memory. */
	_Static_assert(RS_NODES_MAX % RN_PAGE == 0 && RN_ITEMS % RN_PAGE == 0, "each begins with a page");
	rn_part_at(RN_NODES, &at, RS_NODES_MAX * sizeof(struct rs_node));
	rn_part_at(RN_TREE_ITEMS, &at, RN_ITEMS * sizeof(struct rs_item));
	rn_part_at(RN_POOL, &at, RN_POOL_BYTES);
	rn_part_at(RN_BATCH, &at, sizeof(struct rs_batch));
	rn_part_at(RN_QUEUES, &at, RS_NODES_MAX * sizeof(struct rn_queue));
	rn_part_at(RN_PLACES, &at, RN_PACKETS * sizeof(struct rn_place));
	rn_part_at(RN_TREE_FLOWS, &at, RN_ITEMS * sizeof(struct rn_flow));
	rn_part_at(RN_BUCKETS, &at, RN_FLOWS * sizeof(u32));
	_Static_assert(RS_TREE_BYTES(RS_NODES_MAX, RN_ITEMS) + sizeof(struct rs_tree) + sizeof(struct rs_batch) + RS_NODES_MAX * sizeof(struct rn_queue) +
				       RN_PACKETS * sizeof(struct rn_place) + RN_ITEMS * sizeof(struct rn_flow) + RN_FLOWS * sizeof(u32) + RN_PARTS * RN_PAGE <=
			       (u64)RN_ARENA_PAGES * RN_PAGE,
		       "the arena holds the tree");
}

/*
 * Pages for so many nodes and what each queue among them needs; `flows`: and for flows, of all
 * queues together.
 */
static __noinline int rn_commit_nodes(u32 nodes, u32 flows)
{
	u64 items;

	nodes = (nodes + RN_STEP - 1) / RN_STEP * RN_STEP;
	if (nodes > RS_NODES_OPEN)
		nodes = RS_NODES_OPEN;
	if (nodes < nodes_ready)
		nodes = nodes_ready;
	items = nodes + (flows ? RN_FLOWS : 0);
	if (!rn_commit(RN_NODES, nodes * sizeof(struct rs_node)) || !rn_commit(RN_QUEUES, nodes * sizeof(struct rn_queue)) ||
	    !rn_commit(RN_TREE_ITEMS, items * sizeof(struct rs_item)))
		return 0;
	if (flows && (!rn_commit(RN_TREE_FLOWS, items * sizeof(struct rn_flow)) || !rn_commit(RN_BUCKETS, RN_FLOWS * sizeof(u32))))
		return 0;
	nodes_ready = nodes;
	flows_ready |= flows;
	return 1;
}

/* So much of the pool is free. */
static __noinline int rn_commit_pool(u64 free)
{
	struct rs_tree RS_ARENA *t = pl_tree();

	return rn_commit(RN_POOL, t->pool + free - parts[RN_POOL].at);
}

/* Under the lock: the core learns what has pages. */
static __always_inline void rn_room_told(struct rs_tree RS_ARENA *t)
{
	t->nodes_max = nodes_ready;
	t->nodes_open = nodes_ready;
	t->items_max = nodes_ready + (flows_ready ? RN_FLOWS : 0);
	t->pool_end = parts[RN_POOL].at + parts[RN_POOL].pages * RN_PAGE;
}

/* Before a batch, without the lock: pages for what it makes. Answers 0 or an error. */
static __noinline s32 rn_room(struct rs_batch RS_ARENA *b)
{
	u32 nodes = rs_zero, flows = flows_ready, segments = rs_zero, lengths = rs_zero;

	RS_LOOP(i, b->count) {
		struct rs_op RS_ARENA *op = &b->op[i & (RS_BATCH_MAX - 1)];
		u32 code = op->code, index = op->node, queue = op->a == RS_QUEUE;

		if (code == RS_OP_CREATE && index < RS_NODES_OPEN && index >= nodes)
			nodes = index + 1;
		if ((code == RS_OP_CREATE && queue && op->b == drr_class) || (code == RS_OP_CLASS && op->a == drr_class))
			flows = 1;
		if (code == RS_OP_POLICY || (code == RS_OP_CREATE && !queue)) {
			u32 mode = policy_mode(code == RS_OP_POLICY ? op->a : op->b);

			segments |= mode & RS_MODE_ARRIVALS;
			lengths |= mode & RS_MODE_LENGTH;
		}
	}
	lengths_asked = lengths;
	if (!rn_commit_nodes(nodes, flows) || !rn_commit_pool(flows ? RN_POOL_FLOWS : RN_POOL_STEP) || (segments && !rn_commit(RN_TREE, sizeof(struct rs_tree))))
		return -E_NOMEM;
	return 0;
}

/*
 * A batch found the pool too small: a quarter more. 0: it is all there already, or there is no
 * memory.
 */
static __always_inline int rn_pool_more(void)
{
	u64 had = parts[RN_POOL].pages;

	return rn_commit(RN_POOL, had * RN_PAGE + had * RN_PAGE / 4 + RN_POOL_STEP) && parts[RN_POOL].pages > had;
}
