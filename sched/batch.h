/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Edits of a tree, as a caller writes them (edit.c). */
enum rs_op_code {
	RS_OP_CREATE = 1, /* node, parent, a = kind, b = policy or class */
	RS_OP_DELETE = 2, /* node, a = 1: drain */
	RS_OP_REWEIGHT = 3, /* node, a = weight in thousandths */
	RS_OP_CAP = 4, /* node, a = parts per million of one unit (0: none), b = burst */
	RS_OP_CLASS = 5, /* node (queue), a = class */
	RS_OP_POLICY = 6, /* node (scheduler), a = policy */
	RS_OP_LIMIT = 7, /* node (queue), a = most members, 0: no limit */
	RS_OP_RESET = 8, /* node: counters that backlog shows */
	RS_OP_MOVE = 9, /* node, parent */
	RS_OP_TUNE = 10, /* node, a = enum rs_tune, b = value; 0: the default */
	RS_OP_NODE_PARAM = 11, /* node, a = enum rs_param, b = value */
};

/* What is tuned at a scheduler, for its children; the quantum also at a queue. */
enum rs_tune {
	/* ns; for what is served through the node, unless a node below has one of its own */
	RS_TUNE_QUANTUM = 1,
	RS_TUNE_LAG = 2, /* ns; eevdf: the largest request, and so the bound of lags */
	RS_TUNE_TURN = 3, /* ns; mtrls: the turn */
	/* 4 was of no use */
	RS_TUNE_DECAY = 5, /* ns; prio: half-life of usage */
	/* A server's own, which the tree knows nothing of (crates/blockd): */
	/* root: requests that are dispatched and not done; 0: as many as the disk has at once */
	RS_TUNE_BATCH = 6,
	RS_TUNE_ANTICIPATE = 7, /* root, ns; 0: none, ~0: the server's choice */
	RS_TUNE_COST = 8, /* root; 0: bytes, 1: requests, 2: time */
	RS_TUNE_DEADLINE = 9, /* queue, ns after the arrival; 0: none */
	RS_TUNE_ROUND = 10, /* root, ns; cello; 0: its own */
	/* A link's entrance's, which the tree knows nothing of (crates/plane/src/receive): */
	RS_TUNE_RECEIVE = 11, /* queue: packets a second; 0: any number */
	RS_TUNE_RECEIVE_BURST = 12, /* queue: packets at once; 0: as many as usual */
};
#define RS_QUANTUM_MAX 1000000000ULL
#define RS_TUNE_NS_MAX 1000000000000ULL

/* What a node is for the policy of its parent. */
enum rs_param {
	RS_PARAM_PRIORITY = 1, /* 0 … RS_PRIORITY_MAX; 0: the idle class */
	RS_PARAM_REQUEST = 2, /* ns; eevdf: length of its requests; 0: estimated */
};

struct rs_op {
	u32 code;
	s32 answer; /* out */
	u64 node; /* gen << 32 | index */
	u64 parent;
	u64 a, b;
	u64 undo, undo2; /* scratch: what the first time through has to put back */
};

#define RS_BATCH_MAX 128

struct rs_batch {
	u64 seq; /* greater than the tree's; 0: do not look at or touch the tree's */
	u64 now;
	u32 count;
	s32 error; /* out: 0, or the answer of the op that failed */
	u32 failed; /* out: its index */
	/*
	 * the tree's, when the batch was thought out: refused where threads were promised more
	 * since; 0: not looked at
	 */
	u32 grants;
	struct rs_op op[RS_BATCH_MAX];
};

#ifndef RS_BATCH_MEM
#define RS_BATCH_MEM /* address space of the batch */
#endif
