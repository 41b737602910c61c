/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What the programs at an interface's entrance and the daemon say to each other. Rust's mirror is
 * crates/plane/src/receive/abi.rs; a table of sizes and offsets in the object file (receive.bpf.c:
 * rv_layout) is compared with it by a test.
 */
#ifndef RESERV_RECEIVE_ABI_H
#define RESERV_RECEIVE_ABI_H

#define RV_ABI_VERSION 2

/* Times of a queue's rate are in sixteenths of a nanosecond: its largest rate is 10^8 a second. */
#define RV_TICKS_NS 16ULL

/* A queue of the link, at its index in the map `entrances`. */
struct rv_node {
	struct bpf_spin_lock lock; /* of `eligible` */
	u32 generation; /* 0: there is none */
	u32 rate, burst; /* as they were told: packets a second, packets; 0: none, as usual */
	u64 period; /* ticks for each packet; 0: no rate */
	u64 credit; /* ticks that may be ahead: the burst, times the period */
	u64 eligible; /* from when on the next packet may come in */
	u64 packets, bytes; /* that came in */
	u64 full; /* packets dropped because their receiver had no room for them */
	u64 over; /* packets dropped because they came faster than the queue's rate */
};

#define RV_RULES_MAX 256 /* about who comes over a link */
#define RV_CHAIN_MAX 64 /* that are asked for one packet */
#define RV_COUNTS_MAX 512 /* those of rules that come are not those of rules that go */
#define RV_EDGES_MAX 1024
#define RV_NO_RULE 0xffff

/* What a rule lets in, and has; at its index in the map `limits`. */
struct rv_limit {
	struct bpf_spin_lock lock; /* of `eligible` */
	u32 nothing; /* 1: no packet comes in */
	u64 period, credit, eligible; /* as a queue's */
	u64 mark; /* which rule: to the daemon; 0: none */
	u64 packets, bytes; /* that came in */
	u64 dropped; /* packets */
};

/* Addresses as they stand in the packet; IPv4's in the form ::ffff:a.b.c.d. */
struct rv_rule {
	u64 address[2], mask[2]; /* of who comes */
	u64 node; /* packed handle of the queue; 0: as without the rule */
	u16 local_first, local_last; /* from 0: it need not be known */
	u8 protocol, protocol_mask; /* 0xff: that one, 0: any */
	u8 version, version_mask; /* of IP, 4 or 6, in the same way */
	u16 next; /* the rule that is asked behind it; RV_NO_RULE: none */
	u16 limit; /* its index in `limits` */
	u8 complement; /* 1: for those who are not in the prefix */
	u8 pad[3];
};

/* From this address on (in the order of this machine) this rule is asked first. */
struct rv_edge {
	u64 high, low; /* of IPv4: low */
	u32 rule, pad;
};

/* All rules: of IPv4 the edges before `edges4`, which begin at 0, and then those of IPv6. */
struct rv_table {
	u32 edges4, edges;
	struct rv_edge edge[RV_EDGES_MAX];
	struct rv_rule rule[RV_RULES_MAX];
};

#define RV_DROPPERS 16 /* prefixes that a queue can name; a power of two */

/* Packets of a prefix that were dropped (droppers.h). */
struct rv_dropper {
	u64 from[2]; /* as it stands in a packet, 0 behind its length; IPv4's as ::ffff:a.b.c.0 */
	u64 count; /* 0: nobody */
	u64 over; /* by how much the count may be too large, at most */
};

struct rv_droppers {
	struct bpf_spin_lock lock;
	u32 pad;
	struct rv_dropper of[RV_DROPPERS];
};

/* What no queue is asked for, in packets. */
struct rv_others {
	u64 shared; /* for the machine as a whole: ARP, ICMP, groups, protocols without ports */
	u64 forwarded;
	u64 nobody; /* no socket is there for them */
	u64 elsewhere; /* of a VLAN's, or another host's address */
};

enum rv_what {
	RV_CALL_STATE = 1, /* answers a: ABI version, b: the resource's number */
	/*
	 * a: the resource's number, b: 1: tags are in sockets' storage; b >> 16: how words of it
	 * begin (RT_CALL_OBJECT_GET), c: cookie of the network name space
	 */
	RV_CALL_BEGIN = 2,
	RV_CALL_NODE = 3, /* node is there; counters and rate begin anew if it is another one */
	RV_CALL_DROP = 4, /* and no longer */
	RV_CALL_TUNE = 5, /* a: enum rv_tune, b: what it is from now on; answers b: what it was */
	RV_CALL_RESET = 6, /* its counters from 0 */
};

enum rv_tune { RV_TUNE_RATE = 1, RV_TUNE_BURST = 2 };

#define RV_RATE_MAX 100000000
#define RV_BURST_MAX 65536
#define RV_BURST 32 /* where none is told */

/* The context of rv_call. */
struct rv_call {
	u32 what;
	s32 answer; /* 0 or a negative errno */
	u64 node; /* packed handle */
	u64 a, b, c;
};

#endif
