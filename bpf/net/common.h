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

/* What a batch may cost, and what each of it does (rn_count_steps): 100 instructions each. */
#ifndef RN_STEPS_MAX
#define RN_STEPS_MAX 5800 /* 200 us of a CPU of 3 GHz are 6000 */
#endif
#define RN_STEPS_NEW 12
#define RN_STEPS_MOVED 45
#define RN_STEPS_DELETED 36 /* for each level, as those that follow */
#define RN_STEPS_CHANGED 5
#define RN_STEPS_BY_LENGTH 17 /* where a parent looks at its children's first packets */

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

/*
 * somebody waited in vain, and nobody has had to wait since: no long wait before the lock is had
 * again
 */
u32 lock_late;

/*
 * Who waited in vain: a packet that comes is dropped and counted, one is asked for again in a
 * millisecond, a call answers ETIMEDOUT.
 */
#ifndef PLANE_LOCK_NS
#define PLANE_LOCK_NS 1000000000ULL
#endif
#define PLANE_HOPELESS(t) ((void)(t), lock_late)
#define PLANE_GAVE_UP(t) (lock_late = 1)
#define PLANE_HAD() (lock_late = 0)
#define PLANE_SECTION() ((void)0)
#define PLANE_POSTED() ((void)0)
#include "../plane.h"

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

u32 batch_steps; /* of the batch that is carried out: rn_count_steps */
/*
 * the index of a node plus one: a batch is about to delete it, and its item has left the tree in a
 * section before (rn_away); 0: none. Under the lock
 */
u32 taken_away;
static __always_inline struct rn_state *rn_state(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&state, &zero);
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
