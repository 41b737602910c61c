/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all programs of a link share: the arena with the tree and the queues' lists, its one lock,
 * the maps.
 *
 * One object is loaded per interface. Enqueue and dequeue of the qdisc come under the device's root
 * lock, one at a time; reset mostly, and destroy never. The tree is also changed by the daemon's
 * calls, so `tree_lock` guards everything in the arena; it is taken inside the root lock, with
 * bottom halves off, and by all others with interrupts off, so that nobody who has it is preempted.
 * Nothing is taken inside it.
 *
 * A packet lies in a slot of the map `packets`; the slots' lists, lengths and owners are in the
 * arena. So a queue of packets can change hands by its two ends, and no packet is touched by an
 * edit.
 */
#ifndef RESERV_NET_COMMON_H
#define RESERV_NET_COMMON_H

#define RS_BATCH_MEM RS_ARENA
#define RS_SEVERAL(t) 0 /* a link sends one packet at a time */
#define RS_EVER_SEVERAL 0
#define RS_UNITS_HERE 1
#define RS_BETWEEN 1 /* packets come and go while a change goes on */
/*
 * A packet of a small share waits long by right; shares hold for it, and the weightless have what
 * is left over.
 */
#define RS_AGES 0
#include "../../sched/core.c"
#include "abi.h"
#include "../section.h"

#define RN_ARENA_PAGES 16384
#define RN_PAGE 4096
/* the low half is not 0: a null pointer is outside of the tree */
#define RN_ARENA_AT 0x100010000000ULL
#define RN_BURST_NS 20000000ULL /* of the rate that late timers may not lose */
/* bytes that may be sent ahead of the rate, so that small packets share a timer */
#define RN_AHEAD 1024ULL
/* ns before its time from which on the timer may have gone off already */
#define RN_TIMER_NEAR 10000ULL
#define RN_ROOT 0xffffffffU /* TC_H_ROOT */
/* of class drr: what a flow of weight 1 may send in its turn; one packet of an Ethernet */
#define RN_QUANTUM 1514
/*
 * that may have packets waiting on one interface at once; also the buckets in which they are found
 */
#define RN_FLOWS 4096
#define RN_ITEMS (RS_NODES_MAX + RN_FLOWS) /* every queue and every flow has one */
/* ns after which the device asks again while something is held back for a change */
#define RN_AGAIN_NS 200000ULL
#ifndef RN_MERGE_PIECE
#define RN_MERGE_PIECE 128 /* flows that end in one section */
#define RN_CLEAR_PIECE 1024 /* queues that forget, and flows that end with it */
#define RN_WAKE_PIECE 16 /* queues and flows that are woken … */
#define RN_WAKE_LOOKS 1024 /* … among so many */
#endif

#define E_NOMEM 12
#define E_BUSY 16
#define E_INVAL 22
#define E_TIMEDOUT 110
#define E_STALE 116

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RN_ARENA_PAGES);
	__ulong(map_extra, RN_ARENA_AT);
} arena SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rn_io);
} io SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rn_state);
} state SEC(".maps");

struct rn_packet {
	struct sk_buff __kptr *skb;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RN_PACKETS);
	__type(key, u32);
	__type(value, struct rn_packet);
} packets SEC(".maps");

/* Packets that wait, first to last. Slots are named by their number plus one. */
struct rn_list {
	u32 head, tail;
	u32 packets, pad;
	u64 bytes;
};

/* The packets of one queue node, by the node's index. */
struct rn_queue {
	/*
	 * all of them; class drr (flows.h): those that came before the class was drr, which leave
	 * first
	 */
	struct rn_list own;
	u32 gen; /* the node's of which all this is */
	u32 taken; /* by a batch that deletes the node */
	u32 packets, limit_bytes; /* 0: the link's */
	u64 bytes;
	u64 dropped, dropped_bytes;
	/* it is queued in the tree while packets wait in `own`; 0: there were none yet */
	struct rs_item RS_ARENA *item;
	u32 flows; /* class drr: the first flow that has packets, in no order */
	/*
	 * packets that its own limits let wait, for which slots are kept; 0: it has none of its own
	 */
	u32 room;
	u32 merging; /* no flow is made: all of them end, in pieces (rn_merges) */
	u32 pad;
};

/* A flow of a queue of class drr, by its item's index. Flows are named by that plus one. */
struct rn_flow {
	struct rn_list list;
	u32 hash, node; /* the queue's index */
	u32 chain; /* the next in its bucket */
	u32 next, prev; /* of the same queue */
	u32 pad;
};

/* A slot's. */
struct rn_place {
	u32 next; /* in its queue, or among the free ones */
	u32 bytes;
};

u32 tree_lock __attribute__((aligned(64)));
u32 tree_lock_pad[15];

u64 tree_at; /* addresses in the arena; 0 before rn_setup */
u64 batch_at, queues_at, places_at, flows_at, buckets_at;
u32 flows_used; /* under the lock, as all that follow */
u32 flows_wanted; /* a queue is, or was, of class drr: packets come with their flow's hash */
u32 free_place;
u32 places_used; /* slots ever used since the last reset */
u32 waiting; /* packets, in all queues */
/*
 * slots kept for queues with limits of their own: what each may still have waiting. (The daemon
 * admits no more than RN_PACKETS of such limits.)
 */
u32 owed;
u64 clock_max;
u64 next_ns, next_rem; /* when the rate allows the next packet */
u64 hold_ns; /* nothing is sent before: next_ns, once that is ahead_ns away */
/*
 * the hold_ns that the timer was last set for; 0: for something else, or it is not set. Under the
 * root lock, as dequeue is
 */
u64 timer_ns;
u64 ahead_ns; /* RN_AHEAD at the rate */
u64 link_rate; /* bytes a second, as in `state`; 0: the device paces */
/*
 * the item whose packet the link has and the tree has not been charged with, by its index plus one;
 * 0: none
 */
u32 wire;
u32 wire_bytes;
u64 wire_at;
u32 asked; /* no packet waited when the device last asked for one. Under the root lock */
/* rn_choose's answer when there is no packet: when to ask again; 0: at the next packet */
u64 wait_ns;

static __always_inline struct rs_tree RS_ARENA *rn_tree(void)
{
	asm volatile("" : : "r"(&arena));
	return (struct rs_tree RS_ARENA *)tree_at;
}

/* The most that anybody waits for the lock: 1 s by the clock, and 2^26 looks whatever that says. */
#ifndef RN_LOCK_NS
#define RN_LOCK_NS 1000000000ULL
#endif
#define RN_LOCK_LOOKS 4096
#define RN_LOCK_ROUNDS 64
#define RN_LOCK_MOST 16384

/*
 * the packets are freed, and the tree could not be told: it is before the next one comes (rn_flush)
 */
u32 forget_due;
/*
 * What all nodes go through, a section of the lock for each piece (rn_anew_some). Under the lock.
 */
enum rn_anew {
	RN_WHOLE = 0, /* nothing is under way */
	RN_FORGET = 1, /* all packets are gone: the tree is reset … */
	RN_CLEAR = 2, /* … and queues and flows have nothing */
	RN_REMAKE = 3, /* the packets stay: the tree is reset, and poisoned until that is done … */
	RN_WAKE_QUEUES = 4, /* … and who has packets is woken, queues' own first */
	RN_WAKE_FLOWS = 5,
};
u32 anew;
u32 anew_at; /* the next slot */
/*
 * somebody waited in vain, and nobody has had to wait since: no long wait before the lock is had
 * again
 */
u32 lock_late;

/*
 * Answers whether we have the lock. Who has it for longer is held up himself (a virtual machine's
 * CPU that does not run), or will never give it back. Who waited leaves then and touches nothing: a
 * packet that comes is dropped and counted, one is asked for again in a millisecond, a call answers
 * ETIMEDOUT. By the clock alone a machine that was stopped for a while would be a time-out, so it
 * takes RN_LOCK_ROUNDS of RN_LOCK_LOOKS looks at least.
 */
static __noinline int rn_lock_wait(void)
{
	u64 from = bpf_ktime_get_ns();
	int i, k;

	bpf_for(k, 0, RN_LOCK_MOST) {
		bpf_for(i, 0, RN_LOCK_LOOKS) {
			if (!*(volatile u32 *)&tree_lock && !__sync_lock_test_and_set(&tree_lock, 1)) {
				lock_late = 0;
				return 1;
			}
		}
		if (lock_late || (k >= RN_LOCK_ROUNDS && bpf_ktime_get_ns() - from > RN_LOCK_NS))
			break;
	}
	lock_late = 1;
	return 0;
}

static __always_inline int rn_lock(void)
{
	if (__sync_lock_test_and_set(&tree_lock, 1) && !rn_lock_wait())
		return 0;
	section_begins();
	return 1;
}

static __always_inline void rn_unlock_at(u32 line)
{
	section_ends(line);
	RS_RELEASE(tree_lock);
}

#define rn_unlock() rn_unlock_at(__LINE__)

/* `leave`: what is done where the lock could not be had. */
#define RN_LOCK(irq, leave)                                                                                              \
	do {                                                                                                      \
		bpf_local_irq_save(&irq);                                                                         \
		if (!rn_lock()) {                                                                                 \
			bpf_local_irq_restore(&irq);                                                              \
			leave;                                                                                    \
		}                                                                                                 \
	} while (0)
#define RN_UNLOCK(irq)                                                                                            \
	do {                                                                                                      \
		rn_unlock();                                                                                      \
		bpf_local_irq_restore(&irq);                                                                      \
	} while (0)

static __always_inline struct rn_state *rn_state(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&state, &zero);
}

/* Under the lock: time as the tree sees it never goes back. */
static __always_inline u64 rn_clock(u64 raw)
{
	if (rs_before(raw, clock_max))
		return clock_max;
	clock_max = raw;
	return raw;
}

static __always_inline u64 rn_id(struct rs_node RS_ARENA *n)
{
	return (u64)n->gen << 32 | n->index;
}

static __always_inline struct rn_queue RS_ARENA *rn_queue(struct rs_node RS_ARENA *n)
{
	struct rn_queue RS_ARENA *all = (struct rn_queue RS_ARENA *)queues_at;

	return &all[n->index & (RS_NODES_MAX - 1)];
}

static __always_inline struct rn_flow RS_ARENA *rn_flow(u32 item)
{
	struct rn_flow RS_ARENA *all = (struct rn_flow RS_ARENA *)flows_at; /* RN_ITEMS of them */

	return &all[item & (RS_ITEMS_MAX - 1)];
}

static __always_inline struct rn_place RS_ARENA *rn_place(u32 slot)
{
	struct rn_place RS_ARENA *all = (struct rn_place RS_ARENA *)places_at;

	return &all[(slot - 1) & (RN_PACKETS - 1)];
}

#endif
