/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What a link's programs and the daemon say to each other. Rust's mirror is
 * crates/plane/src/net/full/abi.rs; a table of sizes and offsets in the object file (net.bpf.c:
 * rn_layout) is compared with it by a test. Calls are runs of pinned SYSCALL programs, as on the
 * CPU's plane.
 */
#ifndef RESERV_NET_ABI_H
#define RESERV_NET_ABI_H

#define RN_ABI_VERSION 3
/*
 * of struct rn_node, struct rn_call and rn_sample: what the next version must understand to take
 * counters over
 */
#define RN_CARRY_VERSION 1
#define RN_SAMPLES_MAX 256
#define RN_PACKETS 65536 /* that may wait on one interface, in all queues together */
/* skb->cb[2]: the words before it are a queue's handle (bpf/tag/link.h) */
#define RN_MARK 0x6e767372U

/* One node, as rn_sample writes it. */
struct rn_node {
	u64 id, parent;
	u64 service, service_base, served; /* bytes, bytes, packets */
	u64 throttled_ns;
	u64 cap_ppm, cap_burst;
	u64 bytes, dropped, dropped_bytes; /* of a queue: waiting now; refused since the reset */
	u32 weight, packets;
	u32 limit_packets, limit_bytes; /* in force */
	u8 kind, alg, throttled, dying;
	u8 pad[4];
};

#ifdef RS_BATCH_MEM
struct rn_io {
	union {
		struct rs_batch batch;
		struct rn_node node[RN_SAMPLES_MAX];
	};
};
#endif

/* Of rn_edit's deletions, in rs_op.a. */
enum rn_delete { RN_DELETE = 0, RN_DRAIN = 1 };

enum rn_what {
	RN_RATE = 1, /* a: bytes per second, 0: as fast as the device takes them */
	RN_LIMIT = 2, /* defaults of queues: a: packets, b: bytes */
	RN_DEVICE = 3, /* a: index of the interface, b: cookie of its network name space */
	RN_COLLECT = 4, /* node: a draining queue that nobody refers to any more */
	RN_REVIVE = 5, /* the volatile half of the tree anew; no packet is lost */
	/*
	 * this tree follows the one of the programs that run: their counters will be carried over
	 */
	RN_FOLLOW = 6,
	/*
	 * they have been; a: packets and b: bytes that it dropped with the device's queue, node:
	 * that found no room in all
	 */
	RN_CARRIED = 7,
	RN_ALONE = 8, /* and the programs before are gone */
	/* the tree goes with its memory: the programs are put by. No interface has them */
	RN_EMPTY = 9,
	RN_SECTION = 10, /* section_ns and section_line are those until now */
};

/* The context of each program. */
struct rn_call {
	u64 node, a, b;
	u32 first, count, what;
	s32 answer;
};

/*
 * Grows at its end only, and no member changes its meaning: any version reads the state of any
 * other, before it knows whether it understands the rest.
 */
struct rn_state {
	u64 magic;
	u32 abi, rs_abi;
	u64 attached, detached; /* times that a device took the qdisc, and gave it up */
	u64 seq;
	u64 rate;
	u64 netns;
	u32 ifindex;
	u32 limit_packets, limit_bytes;
	u32 nodes_used;
	u64 flushed; /* packets dropped with the device's queue (carrier lost, qdisc replaced) */
	u64 no_room; /* packets dropped because RN_PACKETS waited */
	u32 poison, poison_line;
	u64 flushed_bytes;
	u32 carry; /* RN_CARRY_VERSION; 0: of ABI version 2, which has number 1's */
	u32 build; /* checksum of the object file */
	/*
	 * 0: nothing. Else counters of the programs before are carried over: those of nodes below
	 * `follows - 1` have been; RN_FOLLOWS_ALL: all
	 */
	u32 follows;
	u32 section_line; /* see section_ns */
	/*
	 * of programs that count it, for tests: ns of the longest section of the lock between the
	 * last two RN_SECTION, and the line that ended it
	 */
	u64 section_ns;
};

#define RN_FOLLOWS_ALL 0xffffffffU

#endif
