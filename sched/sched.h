/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reserv's scheduling core: the contract, and the data it works on.
 *
 * One tree of nodes schedules one resource. Interior nodes order their children by a *policy*;
 * leaves (queues) order the *items* in them by a *class*. An item is what is served: a thread, a
 * packet, a disk request. A *unit* is what serves: a CPU, a device slot, a link. Everything here is
 * plain C without maps, helpers, kernel types or a clock: the same file is compiled into BPF
 * programs and into the host's test library, and makes identical decisions there.
 *
 * Events (the caller holds the tree's lock in each of them and passes the time):
 *
 *   rs_wake      an idle item wants service: its queue, and every node up to the first that already
 *                had something to do, becomes runnable
 *   rs_post      the same without the lock: the wake-up waits for the next event's rs_drain, which
 *                comes before anything else is looked at. The order is that of the posts, so
 *                nothing is decided otherwise than with rs_wake
 *   rs_post_all  in the same way: an item that rs_stay() kept for one unit may use all of them
 *   rs_pick      a unit is free: the answer is an item, which is now in service on that unit; or
 *                none, and then tree->next_ns says when a cap lets go (0: nothing waits). The
 *                caller may refuse the item for a reason that only it can see: rs_settle(item, 0, 0
 *                or 1) undoes the pick.
 *   (reserve)    done inside rs_pick: a slice is charged in advance on the whole path, so that
 *                several units that pick at the same time do not all choose the same child
 *   rs_settle    a service step ended after `actual` work: the advance charge is replaced by the
 *                truth; `more` says whether the item still wants service
 *   rs_item_length  how long the item's next step will be, where that is known before it begins (a packet, a disk request): told before
 *                rs_wake, before an rs_settle with `more`, and whenever it changes. Policies of RS_POLICIES_LENGTH order by it; what is
 *                charged is what rs_settle says
 *   rs_arrive    work has come for an item's queue, first or behind other: told before rs_wake, for policies of RS_POLICIES_ARRIVE. What is not told
 *                arrives for them when it is the next
 *   rs_item_request  the same of a disk's request, with its first sector and when it is due
 *   rs_called    without the lock, by the item's owner while it is in service: its thread asked for more to do (received from the network). What it wanted
 *                before is done, which policy eevdf looks at when the step ends
 *   rs_remove    an item that waits does so no longer (killed, moved, changed)
 *   rs_item_*    an item joins, leaves or changes queue; its weight or the units it may use change
 *   rs_edit      create, delete, reweight, cap, class, limit, move of nodes (edit.c, node.c)
 *   rs_check     (check.c) verifies every structural invariant; used by tests after each step
 *
 * Reference: Goyal, Guo, Vin: hierarchical CPU scheduler (OSDI'96) as used in QLinux §2.2; SFQ(D)
 * for several units (Jin, Chase, Kaur 2004).
 *
 * The dialect (what BPF's verifier asks for, kept everywhere):
 *   - pointers into the tree are RS_ARENA pointers; functions take at most five arguments. RS_FN
 *     functions are verified once, whoever calls them, and answer a number; RS_FN_PTR makes one
 *     that answers a pointer, RS_FN_VOID one that answers nothing. (All as static functions took
 *     700 000 instructions to verify, so 30 000.)
 *   - every loop is RS_LOOP with a bound that holds by construction. Where the bound is hit all the
 *     same, or the kernel's time budget for loops expires, the tree is *poisoned*: rs_poison()
 *     records the reason and the caller leaves with it, instead of going on with a half-sorted
 *     heap;
 *   - no floating point, no recursion, no division by a value that was not checked.
 */
#ifndef RESERV_SCHED_H
#define RESERV_SCHED_H

#ifndef RS_LENGTHS
#define RS_LENGTHS 1 /* 0: a plane that never knows how long a step will be (registry.h) */
#endif
#ifndef RS_DISK
#ifdef __bpf__
#define RS_DISK 0 /* BPF programs have nothing of disks */
#else
#define RS_DISK 1
#endif
#endif

#ifndef RS_SEVERAL
/*
 * Whether the tree has more than one unit to serve with, or has had: a unit that goes still picks
 * for a while. A plane that knows, before its programs are loaded, that it has one says so here.
 */
#define RS_SEVERAL(t) ((t)->several)
#endif
#ifndef RS_EVER_SEVERAL
/* Whether it may have had more before, or get them: CPUs come and go. */
#define RS_EVER_SEVERAL 1
#endif
#ifndef RS_BETWEEN
/*
 * Whether anything is chosen between two pieces of a change of policy (change.c). 0: one unit,
 * which makes the changes itself and serves nobody meanwhile.
 */
#define RS_BETWEEN RS_EVER_SEVERAL
#endif
#ifndef RS_UNITS_HERE
/* Above every unit's number: a plane that knows how many there can be says so here. */
#define RS_UNITS_HERE RS_UNITS_MAX
#endif
#ifndef RS_AGES
/*
 * 0: a plane that serves nobody out of turn: starve_ns stays 0, and it is not kept who has waited
 * for how long
 */
#define RS_AGES 1
#endif

#ifdef __bpf__
/*
 * The second attribute says so where it stands on a parameter of a function that is verified by
 * itself.
 */
#define RS_ARENA __attribute__((address_space(1))) __attribute__((btf_decl_tag("arg:arena")))
#define RS_CAN_LOOP can_loop
#define RS_FN __attribute__((noinline))
#define RS_INLINE static __attribute__((always_inline)) inline
#else
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
#define RS_ARENA
#define RS_CAN_LOOP 1
#define RS_FN static __attribute__((unused))
#define RS_INLINE static __attribute__((always_inline, unused)) inline
#endif

/*
 * A function that answers a pointer to `type`: it has parameters `params` and returns (u64)pointer;
 * its callers get the pointer. The verifier lets functions that it verifies by themselves answer
 * numbers only, and would go through others anew at each call.
 */
#define RS_FN_PTR(type, name, params, args) \
	RS_FN u64 name##_at params; \
	RS_INLINE type *name params \
	{ \
		return (type *)name##_at args; \
	} \
	RS_FN u64 name##_at params

/*
 * A function that answers nothing: NAME has parameters `params`, and hands on `args`. To the
 * verifier it answers 0, for before Linux 7.1 it lets no function that it verifies by itself answer
 * nothing.
 */
#ifdef __bpf__
#define RS_FN_VOID(name, params, args) \
	RS_INLINE void name##_body params; \
	RS_FN u32 name##_alone params \
	{ \
		name##_body args; \
		return 0; \
	} \
	RS_INLINE void name params \
	{ \
		name##_alone args; \
	} \
	RS_INLINE void name##_body params
#else
#define RS_FN_VOID(name, params, args) RS_FN void name params
#endif

/*
 * What only some planes look at is handed over by all: callers of a function that does not use a
 * parameter may leave it unset, which the verifier refuses.
 */
#define RS_NEEDS(x) asm volatile("" : : "r"(x))

/*
 * Starts loop counters, and whatever else a loop adds to, so that the verifier does not unroll from
 * a known constant.
 */
#ifdef __bpf__
static volatile u32 rs_zero; /* not const: the verifier knows what constants are */
#else
static volatile const u32 rs_zero = 0;
#endif
#define RS_LOOP(i, max) for (u32 i = rs_zero; i < (max) && RS_CAN_LOOP; i++)

#define RS_MAGIC 0x7672657365723031ULL /* "10reserv" */
#define RS_ABI_VERSION 5
#define RS_NODES_MAX 16384
/* of these slots, the last ones are for nodes that a caller of edits does not see */
#define RS_HIDDEN_MAX 2048
#define RS_NODES_OPEN (RS_NODES_MAX - RS_HIDDEN_MAX)
#define RS_ITEMS_MAX 32768
#define RS_DEPTH_MAX 16 /* nodes on a path, root and queue included */
#define RS_LEVELS 4 /* of these, for which a unit keeps where those ahead are (ahead.c) */
#define RS_UNIT_WORDS 4 /* 64 units a word */
#define RS_UNITS_MAX (64 * RS_UNIT_WORDS)
#define RS_TAG_SHIFT 20 /* tags are work << 20 / weight (docs/notes/algorithms.md §11) */
#define RS_WEIGHT_ONE 1000 /* weights are in thousandths */
#define RS_WEIGHT_MAX 1000000000
#define RS_PRIORITY_MAX 100
#define RS_PRIORITY_DEFAULT 50
#define RS_POLICY_WORDS 6 /* of volatile state of a policy, in a node and in each child */
#define RS_SLICE_MIN 100000ULL /* no step is made shorter than this on purpose */
#define RS_PERIOD_MIN 1000000ULL /* of a thread, and its deadline */
#define RS_PERIOD_MAX 10000000000ULL
#define RS_BUDGET_MIN 10000ULL
#ifndef RS_RESET_PIECE
#define RS_RESET_PIECE 1024 /* slots that rs_tree_reset_some looks at */
#endif
#define RS_QUANTA_PIECE 1024 /* nodes that rs_quantum_some looks at */
#ifndef RS_CHANGE_FEW
#define RS_CHANGE_FEW 128 /* children whose scheduler's policy changes at once, in all of a batch */
#define RS_CHANGE_PIECE 128 /* else so many at a time … */
#define RS_CHANGE_SLOTS 2048 /* … among so many nodes */
#endif
#ifndef RS_LENGTHS_PIECE
#define RS_LENGTHS_PIECE 16 /* queues whose length rs_lengths_some looks at … */
#define RS_LENGTHS_SLOTS 1024 /* … among so many nodes */
#endif
#ifndef RS_SORTED_MAX
#define RS_SORTED_MAX 512 /* threads that wait in all queues whose class a batch changes */
#endif
/*
 * What a batch may move, in one section: nodes below those that it moves, each of which gets a new
 * depth (44 instructions); and for each move, and each level above it, before and after, as many as
 * take as long. Where a batch is refused it takes that twice.
 */
#define RS_WALKED_MAX 6400
#define RS_WALKED_MOVE 12
#define RS_WALKED_LEVEL 8
/*
 * A pick goes to places in vain whose masks promised more than there is: to so many, and through so
 * many entries of heaps. Then the unit asks again.
 */
#define RS_TRIES_MAX 32
#define RS_LOOKED_MAX 8192
/* Who of a queue is first for a unit (far.c): among few, all are looked at … */
#ifndef RS_FAR_FEW
#define RS_FAR_FEW 256
#endif
/* else so many places, 66 instructions each, are prepared at a time … */
#define RS_FAR_PIECE 4096
#define RS_FAR_LOOKED 1024 /* … and no more looked at in each search */
#define RS_PRIO_PIECE 256 /* slots, for children of policy prio whose usage was halved */
#define RS_OWN_ONE 102400 /* weight of an item of weight one, beside the queue's sibling subtrees */
/*
 * Items posted at a time, but for those that are posted at the same moment. A section drains them,
 * and each costs 2650 instructions where several units serve and paths are as long as can be.
 */
#define RS_POSTS_MAX 128
#define RS_RELEASE_PIECE 256 /* nodes, or items, that a pick lets go because they are due */
#define RS_CHUNK_ORDERS 18 /* heap arrays of 8 << order entries */
#define RS_HEAP_LEVELS 20 /* log2 of the largest heap, and a margin */

enum rs_kind { RS_FREE = 0, RS_SCHED = 1, RS_QUEUE = 2 };
/*
 * Who owns an item (in a kernel, by its run queue's lock) reads its state without the tree's lock,
 * and posts it when it is idle. So no event lets RS_IDLE be seen of an item that is not idle when
 * the event ends, not even for a moment; and it is the last thing that an event writes to it.
 */
enum rs_item_state {
	RS_ITEM_FREE = 0,
	RS_IDLE = 1,
	RS_QUEUED = 2,
	RS_SERVICE = 3,
	RS_POSTED = 4, /* woken, and not in its queue yet: to all but rs_drain the same as idle */
	RS_MOVING = 5, /* between two queues, inside rs_item_move */
};
enum rs_why { RS_WHY_WAKE = 0, RS_WHY_AGAIN = 1, RS_WHY_MOVE = 2 };
enum rs_item_flags {
	RS_ITEM_BATCH = 1,
	RS_ITEM_BACKGROUND = 2,
	/* its age is kept in a list of its own kind (struct rs_ages); set before it first waits */
	RS_ITEM_APART = 4,
	RS_ITEM_PERIODIC = 8, /* period_ns is set */
};
/*
 * What some policy or item of the tree asks for, so that others do not pay for it. Bits may stay
 * when the last such node goes.
 */
enum rs_mode {
	RS_MODE_AHEAD = 1, /* a policy may let a child that wakes displace the one in service */
	RS_MODE_SLICE = 2, /* steps may be shorter than the quantum */
	RS_MODE_LENGTH = 4, /* a policy goes by the length of what is served next */
	RS_MODE_ARRIVALS = 8, /* and by what waits behind it */
};
/* Why a node is not served whatever waits below it. */
enum rs_throttled {
	RS_CAPPED = 1, /* by its cap */
	RS_FROZEN = 2, /* its policy is changing, in pieces (change.c) */
	RS_HELD = 4, /* the same of its parent's: it is not known there now … */
	RS_KNOWN = 8, /* … and was runnable: its tag is what it had received */
};
enum rs_poison_reason {
	RS_OK = 0,
	RS_POISON_HEAP_LOOP = 1, /* a sift did not end */
	RS_POISON_HEAP_FULL = 2, /* a push without room */
	RS_POISON_PATH = 3, /* a path longer than RS_DEPTH_MAX */
	RS_POISON_STATE = 4, /* an item or node in a state it cannot be in */
	RS_POISON_SCAN = 5, /* a scan for an allowed child did not end */
	RS_POISON_LOCK = 6, /* the caller's: whoever has the lock does not give it back */
};

/* Answers of an op, and errors, as negative errno values. */
enum rs_answer {
	RS_DONE = 0,
	RS_DRAINING = 1,
	RS_ENOENT = -2,
	RS_EAGAIN = -11,
	RS_E2BIG = -7, /* a link's batch is too long for one section of its lock */
	RS_EBUSY = -16,
	RS_EEXIST = -17,
	RS_EINVAL = -22,
	RS_ENOSPC = -28,
	RS_ELOOP = -40,
	RS_EOPNOTSUPP = -95,
	RS_ESTALE = -116,
};

struct rs_node;
struct rs_item;

/* What a heap holds: nodes or items. `pos` is the place in the one heap that the object can be in,
 * plus one; 0 when it is in none. First in both structures. */
struct rs_link {
	u32 pos;
};

struct rs_entry {
	u64 key; /* a tag; compared modulo 2^64 */
	/* ties: first come, first served; the top bit marks background, which sorts last */
	u64 seq;
	struct rs_link RS_ARENA *obj;
};
#define RS_SEQ_BACKGROUND (1ULL << 63)

struct rs_heap {
	struct rs_entry RS_ARENA *e;
	u32 n;
	u32 order; /* room for 8 << order entries, none while e is 0 */
};

/*
 * What a cap keeps where its burst is not said: the rate times this, half of the kernel's own period
 * of cpu.max, and at least two quanta. A node that waits while its siblings have their turns must
 * not lose meanwhile what its cap gives it: with caps that add up to the whole unit some of it would
 * be idle.
 */
#define RS_CAP_KEPT_NS 50000000

/* Token bucket in arrears (docs/notes/algorithms.md §8.2). */
struct rs_cap {
	u64 ppm; /* work per 10^6 of time; 0: no cap */
	s64 burst;
	s64 tok;
	u64 rem; /* of the refill's division */
	u64 at; /* time of the last refill */
};

/* Start-time tags of a child in its parent, or of an item in its queue (tags.c). */
struct rs_tag {
	u64 base; /* start tag of the next step; the finish tag while idle */
	u64 rem; /* of the division in base */
	u32 epoch, hi; /* of the clock, when the child last became idle */
	/*
	 * several units: what base was not charged for (ahead.c), which is void when v has passed
	 * `until`
	 */
	u64 over, until;
	u32 over_part, pad; /* the rest of the division in over */
};

/* The virtual time those tags are measured against. */
struct rs_clock {
	u64 v; /* start tag of the last step dispatched; never goes back */
	u64 fmax; /* largest finish tag */
	u32 epoch; /* bumped when the last child becomes idle: older finish tags are void */
	u32 hi; /* bumped at each 2^60 of v: tells finish tags that are too old to compare */
	u64 slow; /* several units: the longest step of late, in tag units */
	u64 over; /* several units: of the last child that was ahead (ahead.c) */
};

/* policy_eevdf.c */
struct rs_eevdf_child {
	u64 epoch; /* of the node's, plus one, while it is a client there */
	u64 deadline; /* virtual */
	u64 request; /* the estimate */
	u64 used; /* since it was idle last */
	/*
	 * several units: as epoch, while it is runnable and no client because it cannot use its
	 * share
	 */
	u64 saturated;
	u64 reserved; /* of its res, what the node's `reserved` has */
};
struct rs_eevdf {
	u64 k; /* sum of w (v - z), signed between two events */
	u64 w; /* sum of w */
	u64 epoch; /* ends when no child is runnable */
	u64 origin; /* z when the policy was changed to this */
	u64 reserved; /* for steps of saturated children */
	u64 longest; /* several units: the longest step of a client of late */
};

/* policy_wf2qp.c */
struct rs_wf2q_child {
	u64 epoch; /* of the node's, plus one, while it is counted in w */
	u64 finish; /* tag of what it would send next */
	/* finish is not less: by this its siblings have been put behind it, or before, already */
	u64 floor;
	u64 mark; /* the node's picks when floor was set */
};
struct rs_gps_child {
	u64 epoch; /* of the node's, plus one, while the rest is meant */
	u64 finish; /* tag of what it would send next */
	u64 at; /* of its first segment, sent */
	u64 end; /* tag at which the fluid has served all of it */
	struct rs_link fluid; /* in the parent's `aside`, while the fluid has something of it */
	u32 first, last; /* its segments */
	u32 pad;
};
struct rs_gps {
	u64 w; /* sum of weights */
	u64 carry; /* work << RS_TAG_SHIFT that was less than a unit of V */
	u64 done; /* of the step in service, that V has already */
	u64 defer; /* work for which the fluid stands still, << RS_TAG_SHIFT */
	u64 epoch; /* ends when no child is runnable */
};
/*
 * Work of a child that the fluid serves without a pause, from V = base on (policy_wf2q.c). Named by
 * its number plus one.
 */
#define RS_SEGMENTS 32768
struct rs_segment {
	u64 base, work;
	u32 next, pad;
};
struct rs_wf2q {
	u64 w; /* sum of weights */
	u64 frac; /* of V, below the unit of tags */
	u64 done; /* of the step in service, that V has already */
	u64 epoch; /* ends when no child is runnable */
	u64 picks; /* among its children, so far */
};

/*
 * A node. The first part is durable: configuration, identity, counters. The second is volatile and
 * rebuilt by rs_tree_reset() after the mechanism that runs the tree was taken away and came back.
 */
struct rs_node {
	struct rs_link link; /* in the parent's ready heap */
	u32 index, gen;
	/* enum rs_kind; policy or class, by kind. These four are also read as one u32 */
	u8 kind, alg;
	u8 dying; /* draining: no new members, freed with the last */
	u8 depth; /* the root's is 0 */
	u32 weight; /* thousandths; 0 is background */
	u32 nchildren;
	u64 wsum; /* of the children's weights, runnable or not */
	u64 promised; /* a queue's: parts per million of a unit that its members' budgets come to */
	u32 members, members_max; /* a queue's; 0: no limit of its own */
	struct rs_node RS_ARENA *parent;
	/* its first child, and its neighbours in its parent's list; by index plus one, 0: none */
	u32 kids, next, before;
	u32 after; /* scratch of a change of the parent's policy (change.c) */
	u64 service, service_base; /* work received; its value when the counters were reset */
	u64 served; /* steps since the reset */
	u64 throttled_ns;
	struct rs_cap cap;
	/* what was tuned (batch.h, enum rs_tune and rs_param); 0: the policy's default */
	/*
	 * in force here: that of the nearest node on the path with one of its own, else the tree's
	 */
	u64 quantum;
	u64 quantum_own;
	u64 lag_ns, turn_ns, decay_ns;
	u64 request_ns;
	u32 change; /* the policy that it is to have (change.c), plus one; 0: it has it */
	/* a queue's: choices in a row that were not of its first item (rs_queue_near) */
	u32 passed;
	u32 priority, pad0; /* 0: idle class; not 0 by default */

	/* volatile: as a child */
	struct rs_tag tag;
	u64 res; /* work charged in advance for steps in service */
	u32 nsvc; /* steps in service at or below */
	u8 runnable; /* counted in the parent's nrun */
	u8 all; /* counted in the parent's nall */
	u8 throttled; /* enum rs_throttled; none of it: not held back */
	/*
	 * a queue beside the subtrees that it stands for: its weight is that of who is runnable in
	 * it
	 */
	u8 own;
	struct rs_link tlink; /* in the tree's heap of throttled nodes */
	u64 throttled_at;
	struct rs_link alink; /* in the parent's heap `aside` */
	u32 head; /* RS_MODE_LENGTH: the length by which its parent's policy orders it */
	union { /* what else the parent's policy keeps of it; zero when it joins */
		u64 word[RS_POLICY_WORDS];
		struct {
			u64 quota; /* for which `left` is; 0: not in the list yet */
			s64 left;
			u64 round; /* in which it stands, or would if it had not blocked */
		} mtrls;
		struct {
			u64 usage, at; /* as of that period of the parent */
		} prio;
		struct rs_eevdf_child ee;
		struct rs_wf2q_child wf;
		struct rs_gps_child gps;
	} as;

	/* volatile: as a parent of nodes or items */
	struct rs_clock clock;
	u64 vb; /* virtual time of the background children */
	u32 nrun; /* runnable children that are not background, or runnable items */
	u32 nall; /* ready children (queued items) that any unit may serve */
	u64 mask[RS_UNIT_WORDS]; /* superset of the units that the others may use */
	struct rs_heap ready; /* children, or items, that a unit could take now */
	/*
	 * a second order of children, for policies that ask for it (policy_aside); its array is
	 * durable
	 */
	struct rs_heap aside;
	u32 aside_on; /* room is kept in it for all children */
	/*
	 * a queue's (far.c): from that place of its heap on items know who is below them; where a
	 * search that ended early goes on
	 */
	u32 far, far_at;
	u32 pad1;
	/* of the nodes whose policy is to change: the next, by index plus one; durable */
	u32 change_next;
	union { /* what else the policy keeps; zero at the start */
		u64 word[RS_POLICY_WORDS];
		struct {
			u64 periods, spent; /* handed out whole, and of the present one */
			u32 left, at; /* slots to look at for children with places of before; the next one */
		} prio;
		struct {
			u64 places; /* given so far */
		} mtrls;
		struct rs_eevdf ee;
		struct rs_wf2q wf;
		struct rs_gps gps;
	} of;
	u64 wrun; /* weights of the runnable items, while `own` */
};

struct rs_item {
	struct rs_link link; /* in its queue's heap */
	struct rs_link rlink; /* in the tree's heap of those without budget */
	u32 index, gen;
	u8 state, flags;
	u8 all; /* may use every unit */
	/*
	 * for its unit only (rs_stay), until it is served or let go; plus one where `all` was set
	 * before
	 */
	u8 stays;
	u32 weight; /* in the queue; thousandths */
	/* in service on; else where it was last, or where its owner wants it when it posts it */
	u32 unit;
	u32 calls; /* rs_called: since its step began */
	struct rs_node RS_ARENA *queue;
	u64 owner; /* the caller's name for it: a tid */
	u64 owner2; /* the caller's own: a tgid */
	u64 service; /* work received */
	u64 slice; /* charged in advance for the step in service */
	u64 started; /* the caller's: when the step, or its uncharged part, began */
	/* the caller's: work of its thread, by the kernel's count, that has been charged */
	u64 paid;
	/* the caller's: moves that wait for the end of the step */
	u64 want, part_node[2], part_ran[2];
	/* the caller's: its queue, by handle, while it is in none of the caller's choice */
	u64 home;
	struct rs_tag tag;
	u64 seq; /* its place among equals in the queue's heap */
	u64 queued_at;
	struct rs_item RS_ARENA *older, *newer; /* in its list by age */
	struct rs_item RS_ARENA *post; /* posted before it */
	/* parameters (rs_item_params); 0: not set */
	u32 weight_own, weight_by; /* its own, and what others (nice) say while it has none */
	/* its own counts for no more than this, or weight_by if that is more; 0: as it is */
	u32 weight_most;
	u32 account; /* the caller's: whose it is */
	u32 priority;
	u32 posted; /* its place on the list of what is posted; 0: drained */
	u32 trust; /* the caller's: how often its thread slept at once after it woke another */
	/*
	 * the caller's: it runs outside the tree. Not one of the flags, which are changed under the
	 * lock
	 */
	u8 floor;
	u8 told; /* likewise: an idle unit was chosen for it, and need not be told */
	u8 paged; /* likewise: its thread binds itself by a page */
	u8 pad;
	u64 period_ns, budget_ns, deadline_ns;
	struct { /* class edf: the period under way */
		u64 due, release; /* its deadline; when the next may begin */
		s64 left; /* of the budget, when `service` was `mark` */
		u64 mark;
		u32 on; /* there was one */
		/*
		 * not edf's: of the next step, if the caller knows (rs_item_length); 0: not known
		 */
		u32 length;
	} edf;
	u64 mask[RS_UNIT_WORDS];
	u64 below; /* units that it and those under it in the heap may use; by 64 (far.c) */
#if RS_DISK
	u64 sector; /* of a disk's request: the first one */
	u64 due_at; /* its deadline; 0: none */
#endif
};

/* All queued items by queued_at: [0] those without RS_ITEM_APART, [1] those with it. */
struct rs_ages {
	struct rs_item RS_ARENA *oldest, *newest;
};

/* Argument of rs_item_params; 0: not set. */
struct rs_params {
	u32 weight; /* thousandths */
	u32 priority; /* 1 … RS_PRIORITY_MAX */
	u64 period_ns, budget_ns, deadline_ns;
};

struct rs_unit {
	struct rs_item RS_ARENA *item; /* in service here */
	/*
	 * weight of its queue when the step began, where that competes as its items do
	 * (rs_own_weight)
	 */
	u32 own, pad;
	/* ahead.c: of the nodes by depth, `over` of the last child ahead that was served here */
	struct {
		u32 node, pad; /* by index, plus one */
		u64 over;
	} level[RS_LEVELS];
};

struct rs_tree {
	/* the arena's first page is this header: read it before anything else */
	u64 magic;
	u32 abi, bytes; /* RS_ABI_VERSION, sizeof(struct rs_tree) */
	u32 node_bytes, item_bytes;
	u32 nodes_max, items_max;
	/*
	 * edits see and make nodes below this index; hidden ones take the slots from the last one
	 * down
	 */
	u32 nodes_open;
	u32 hidden_used; /* slots of those ever used */
	/* what stands for q0 below the root: q0, or the hidden scheduler over it */
	struct rs_node RS_ARENA *front;
	u64 seq; /* the last batch of edits that is in effect */
	struct rs_node RS_ARENA *nodes;
	struct rs_item RS_ARENA *items;
	u32 poison; /* enum rs_poison_reason */
	u32 poison_line;

	/* configuration */
	u32 units; /* how many; rs_units sets it where the tree is in use */
	u32 several; /* whether there are more than one, or have been */
	u32 mode; /* enum rs_mode */
	u32 periodic; /* items with a period */
	/*
	 * the caller's, before rs_wake: how much of the step in service is done; more than there
	 * is: not known
	 */
	u32 progress;
	/*
	 * odd, and another number after each promise to a thread (a budget, or one that comes into
	 * a queue)
	 */
	u32 grants;
	u32 calls; /* in rs_settle: those of its item */
	struct rs_params params; /* under the lock: for rs_item_params */
	u32 params_most; /* the same: the item's weight_most */
	/* in rs_settle: so much of the work is of another item of the queue, whose tag has it */
	u64 lent;
	u32 ending, pad3; /* in rs_settle, several units: the one whose step ends */
	/* several units: choices in a row, of each, for which a queue's first item is passed over */
	u32 near;
	u32 quanta; /* rs_quantum_some: the first slot to look at, plus one; 0: none */
	/*
	 * rs_change_some: the first and the last node whose policy is to change, by index plus one;
	 * and of the first what comes next
	 */
	u32 changes, changes_last;
	u32 change_phase, change_at; /* enum rs_change_phase; the next slot to look at */
	/* its children with steps in service, by index plus one, linked by after */
	u32 change_busy;
	u32 change_some; /* change_low is known */
	u64 change_low; /* the smallest tag of its children */
	u32 changed; /* children of those whose policy the batch has changed at once */
	u32 sorted; /* items that wait in the queues whose class it changes */
	u32 walked; /* of RS_WALKED_MAX */
	u32 looked; /* in rs_pick: entries of heaps that were looked at one by one */
	u32 passed; /* since it began: children of policy eevdf whose eligibility changed */
	u32 pad2;
	u64 quantum; /* slice of a step */
	u64 starve_ns; /* an item that waited this long is served whatever the tags say; 0: never */
	u64 starve_gap_ns; /* but no two such within this, unless twice as late */

	/* allocation */
	struct rs_item RS_ARENA *item_free; /* linked by newer */
	u32 items_used; /* slots ever used */
	u32 nodes_used;
	u64 pool, pool_end; /* heap arrays are cut from here, as addresses */
	u64 chunk_free[RS_CHUNK_ORDERS];

	/* volatile */
	u64 stamp; /* source of seq numbers */
	struct rs_item RS_ARENA *posted; /* the last one posted, linked by post */
	u64 next_ns; /* rs_pick's answer when there is no item */
	u64 starved_at;
	u64 starved; /* count of such services */
	struct rs_ages age[2];
	struct rs_heap throttle; /* nodes held back, by the time they may go on */
	struct rs_heap refill; /* items of class edf without budget, by the time of the next one */
	struct rs_unit unit[RS_UNITS_MAX];
#if RS_LENGTHS
	u32 segment_free, segments_used; /* linked by next; slots ever used */
	u32 segments_live, pad1;
	struct rs_segment segment[RS_SEGMENTS];
#endif
#if RS_DISK
	/*
	 * units are slots of one device, any of which serves any item; set by the caller before the
	 * first event. Tags are those of SFQ(D) then
	 */
	u32 device;
#endif
};

#if RS_DISK
#define rs_device(t) ((t)->device)
#else
#define rs_device(t) 0
#endif

/* What the compiler may take for granted from here on. */
#define RS_ASSUME(x) \
	do { \
		if (!(x)) \
			__builtin_unreachable(); \
	} while (0)

/*
 * What stands before it is written before. (Between units x86 keeps the order of stores; elsewhere
 * this must be more.)
 */
#define RS_WRITTEN() asm volatile("" : : : "memory")

/*
 * A lock's word is 0, and whoever sees that sees all that was written before. On x86 every store is
 * like that; the instruction that says so came with Linux 6.15.
 */
#define RS_RELEASE(word)                     \
	do {                                 \
		RS_WRITTEN();                \
		*(volatile u32 *)&(word) = 0; \
	} while (0)

RS_INLINE int rs_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* The i-th of the slots ever used, nodes_used + hidden_used of them, for loops over all nodes. */
RS_INLINE struct rs_node RS_ARENA *rs_slot(struct rs_tree RS_ARENA *t, u32 i)
{
	return &t->nodes[(i < t->nodes_used ? i : t->nodes_max - 1 - (i - t->nodes_used)) & (RS_NODES_MAX - 1)];
}

/* a * b / c without overflow where the result and b * c fit in 64 bits. c > 0. */
RS_INLINE u64 rs_muldiv(u64 a, u64 b, u64 c)
{
	return a / c * b + a % c * b / c;
}

RS_INLINE void rs_poison_at(struct rs_tree RS_ARENA *t, u32 why, u32 line)
{
	if (!t->poison) {
		t->poison = why;
		t->poison_line = line;
	}
}
#define rs_poison(t, why) rs_poison_at(t, why, __LINE__)

#endif
