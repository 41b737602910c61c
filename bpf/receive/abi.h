/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What the programs at an interface's entrance and the daemon say to each other. Rust's mirror is
 * crates/plane/src/receive/abi.rs; a table of sizes and offsets in the object file (receive.bpf.c:
 * rv_layout) is compared with it by a test.
 */
#ifndef RESERV_RECEIVE_ABI_H
#define RESERV_RECEIVE_ABI_H

#define RV_ABI_VERSION 1

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
