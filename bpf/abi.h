/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What the CPU's programs and the daemon say to each other. Rust's mirror is
 * crates/plane/src/cpu/full/abi.rs, and a table of sizes and offsets in the object file (cpu.bpf.c:
 * rc_layout) is compared with it by a test.
 *
 * Calls are runs of pinned SYSCALL programs. A call's small arguments are its context; what is
 * large lies in the pinned map `io`, which belongs to one caller at a time (the daemon holds its
 * own lock).
 */
#ifndef RESERV_ABI_H
#define RESERV_ABI_H

#include "page.h"

#define RC_ABI_VERSION 12

/*
 * fcntl(fd, F_RESERV_CHCPURES, 0): tag the calling thread with the queue whose directory or share
 * file in /reserv the descriptor `fd`, opened for reading, stands for (what opening newqueue gave
 * is the new queue's share). Answers 1. fcntl(fd, F_RESERV_GETCPURES, 0), on any descriptor of
 * /reserv: the number of the thread's queue, plus one. Answers > 0. EBADF: no such descriptor, or
 * opened with O_PATH, or a share not for reading. EINVAL: neither directory nor share of a queue of
 * /reserv/cpu. ESTALE: the queue is gone. EAGAIN: it takes no more members. ENOSPC: it is of class
 * edf, and is not guaranteed what this thread's budget needs besides those of its members. EINVAL
 * also where Reserv's full CPU driver is not loaded. EACCES: rules about the use of the queue were
 * told, and the caller may not; where none were, whoever could open its directory may, and by its
 * share, which who only sees the queue may open, root.
 */
#define F_RESERV_CHCPURES 0x52530001
#define F_RESERV_GETCPURES 0x52530002

/*
 * fcntl(fd, F_RESERV_SETPARAM, struct rc_thread_param *p), on any descriptor of /reserv: what the
 * calling thread asks of its queue's class, all of it; 0 takes back. fcntl(fd, F_RESERV_GETPARAM,
 * p), with p->size set: what stands. Both answer 1. They belong to the thread, not to its queue,
 * and are not inherited. EBADF, EINVAL as above. EINVAL: wrong size, or numbers out of range:
 * weight up to RS_WEIGHT_MAX thousandths, priority up to 100, period 1 ms to 10 s, deadline 1 ms to
 * the period (0: the period), budget 10 us to the deadline; budget and deadline only with a period.
 * EFAULT: no such memory, or not there yet: a program of the kernel cannot have a page brought in,
 * or copied after fork. Who has just written to *p has it. EACCES: more than the caller may ask for
 * (bpf/cpu/asks.h). EAGAIN: the scheduler is not attached. ENOSPC: the thread's queue is of class
 * edf, and is not guaranteed what the budgets of all its threads come to until their deadlines, as
 * in a write to `members`; EOPNOTSUPP: it is q0 of class edf, where nobody is promised anything.
 */
#define F_RESERV_SETPARAM 0x52530003
#define F_RESERV_GETPARAM 0x52530004

struct rc_thread_param {
	u32 size; /* of this structure */
	u32 weight; /* thousandths; 0: by nice */
	u32 prio; /* 1 … 100, higher first; 0: 50 */
	u32 pad;
	u64 period_ns, budget_ns, deadline_ns;
};

/*
 * fcntl(fd, F_RESERV_BIND, 0): the calling thread works for the container whose directory, or whose
 * share as opening its `new` gave it, the descriptor `fd`, opened for reading, is of: it competes
 * and is charged in the queue that the container owns in the CPU's tree. A second one binds it to
 * another container. fcntl(fd, F_RESERV_UNBIND, 0), on any descriptor of /reserv: it goes back to
 * the queue in which it was when it was bound first, or to q0 when that is gone. fcntl(fd,
 * F_RESERV_BOUND, 0), likewise: the number of the queue of the container to which it is bound, plus
 * one. ENOENT: to none. The others answer 1. EBADF and EACCES as above; EINVAL: of no container's
 * directory or share, or opened by who may not use the container; or it holds containers. ESTALE:
 * the container has gone, or its node was made anew since this descriptor was opened. EAGAIN: its
 * queue takes nobody. UNBIND, EACCES: the thread may not use the queue in which it was, or that has
 * gone and q0 is nothing that it may use by itself (root may): it stays bound.
 */
#define F_RESERV_BIND 0x52530007
#define F_RESERV_UNBIND 0x52530008
#define F_RESERV_BOUND 0x52530009

/* The arena of the tree. */
#define RC_ARENA_PAGES 16384
#define RC_PAGE 4096
/* The low half is not 0, so that a null pointer is outside of the tree. */
#define RC_ARENA_AT 0x100010000000ULL

#define RC_QUEUE_DIR_WORD 0x102 /* inode >> 48 of a queue directory (crates/namespace, ino.rs) */
/*
 * Of containers: of their directories, of their shares, and inode >> 56 of a share that opening
 * `new` made.
 */
#define RC_CONTAINER_DIR_WORD 0x1101
#define RC_CONTAINER_SHARE_WORD 0x1102
#define RC_CONTAINER_FRESH_AREA 18
#define RC_SAMPLES_MAX 256
#define RC_MEMBERS_MAX 4096
#define RC_TEXT_MAX 160

/* One node, as `rc_sample` writes it. */
struct rc_node {
	u64 id, parent;
	u64 service, service_base, served;
	u64 throttled_ns;
	u64 cap_ppm, cap_burst;
	u64 request; /* below a scheduler of policy eevdf, else 0 */
	u32 weight;
	u32 queued, running, members;
	u32 members_max;
	u8 kind, alg, throttled, dying;
};

/*
 * A step in service when `rc_sample` looked, not charged to anybody yet: the queue, and how long it
 * has run.
 */
struct rc_run {
	u64 node, ran;
};

/* What a thread asks of its queue's class; 0: not set. */
struct rc_param {
	u32 weight, prio;
	u64 period_ns, budget_ns, deadline_ns;
};

struct rc_member {
	s32 tgid, tid;
	struct rc_param param;
};

/* Large arguments and answers. */
struct rc_io {
	union {
		struct rs_batch batch;
		struct {
			struct rc_node node[RC_SAMPLES_MAX];
			struct rc_run run[RS_UNITS_MAX];
		};
		struct rc_member member[RC_MEMBERS_MAX];
		struct rc_param param;
	};
};

enum rc_do {
	RC_DO_SETUP = 1,
	RC_DO_REFRESH = 2,
	RC_DO_EDIT = 3,
	RC_DO_SAMPLE = 4,
	RC_DO_SAMPLE_ONE = 5,
	RC_DO_MEMBERS = 6,
	RC_DO_TAG = 7,
	RC_DO_TAG_GET = 8,
	RC_DO_PARAM = 9,
	RC_DO_LISTS_GET = 10,
	RC_DO_LISTS_SET = 11,
	RC_DO_CONFIGURE = 12,
	RC_DO_TRACING = 13,
	/* everything, before the programs are put by: the kernel has no scheduler of ours */
	RC_DO_FORGET = 14,
};

/* The context of every call. */
struct rc_call {
	u64 node; /* tag, flush, members, lists */
	u64 node2;
	u32 first, count; /* sample, members */
	s32 tid; /* tag, lists, param */
	u32 what;
	s32 answer; /* 0 or a negative errno */
	u32 runs; /* sample: how many */
	u32 call; /* enum rc_do */
	u32 pad;
};

enum { RC_LIST_DEFAULT = 0, RC_LIST_CHILD = 1 };
/* RC_DO_TAG: LEAVE sends who is bound back to where he was, others to `node` */
enum { RC_TAG_SET = 0, RC_TAG_LEAVE = 1 };
enum { RC_PARAM_SET = 0, RC_PARAM_GET = 1 };
enum { RC_SETUP_FLAT = 1 }; /* rc_setup: q0 is one queue, whatever the cgroups are */

/* What we know of a cgroup of the cpu controller, by its id, in the pinned map `groups`. */
struct rc_group {
	u64 queue; /* of its own threads, by handle; folded: its nearest ancestor's that has one */
	u64 tg; /* the kernel's task_group */
	u64 period_us, quota_us, burst_us;
	u32 weight; /* of its node, RS_OWN_ONE for 100 of cpu.weight */
	u8 folded, watch, pad;
	u8 dirty; /* what it was told is not in force yet */
};

/*
 * One record of a trace (bpf/cpu/trace.h says when they are written). `at` is the tree's clock in
 * ns. What stands in the others:
 *
 *   kind      node              node2            work              tid       unit   flags
 *   START     batch in effect   starved so far   quantum           forced    CPUs   DONE: the list of the tree is complete
 *   END       the same, when the trace is switched off
 *   NODE      the node          its parent       service so far    weight    alg    QUEUE, CAPPED
 *   ITEM      its queue         -                ran so far        thread    CPU    SERVICE (else it waits), FLOORED
 *   SETTLE    its queue         -                work charged      thread    CPU    MORE: it goes on wanting
 *   WAKE      its queue         queue in service its step so far   thread    -      (node2, work: one CPU only; 0: none in service)
 *   REMOVE    its queue         -                -                 thread    -
 *   MOVE      queue it leaves   queue it joins   work charged      thread    CPU
 *   FLOOR     q0                -                outside the tags  thread    -
 *   FORCED    its queue         -                -                 thread    CPU    (ran without having been chosen; charged with its next step)
 *   EDIT      batch             -                edits in it       -         -      then NODE, or GONE_NODE, for each of them
 *   GONE_NODE the node
 *   TUNE      the node         lag, turn or     quantum there     -         -      after NODE, of a scheduler that is not sfq
 *                              decay, by policy
 *   CHILD     the node         request          lag (signed)      priority  -      CLIENT; after NODE, where the parent is not sfq
 *   PARAM     period           deadline         budget            thread    -      of a thread with a period: in lists, and when set
 *   SERVER    deadline         next period      budget left       thread    -      BEGUN, SPENT; after PARAM (instants; without the step in service)
 *   RESET     every item is idle: the scheduler was attached anew
 */
enum rc_trace_kind {
	RC_TRACE_START = 1,
	RC_TRACE_END = 2,
	RC_TRACE_NODE = 3,
	RC_TRACE_ITEM = 4,
	RC_TRACE_SETTLE = 5,
	RC_TRACE_WAKE = 6,
	RC_TRACE_REMOVE = 7,
	RC_TRACE_MOVE = 8,
	RC_TRACE_FLOOR = 9,
	RC_TRACE_FORCED = 10,
	RC_TRACE_EDIT = 11,
	RC_TRACE_GONE_NODE = 12,
	RC_TRACE_RESET = 13,
	RC_TRACE_TUNE = 14,
	RC_TRACE_CHILD = 15,
	RC_TRACE_PARAM = 16,
	RC_TRACE_SERVER = 17,
};
enum rc_trace_flags {
	RC_TRACE_MORE = 1,
	RC_TRACE_DONE = 1,
	RC_TRACE_QUEUE = 1,
	RC_TRACE_CAPPED = 2,
	RC_TRACE_SERVICE = 1,
	RC_TRACE_FLOORED = 2,
	RC_TRACE_CLIENT = 1, /* eevdf: its weight and lag count */
	RC_TRACE_BEGUN = 1, /* edf: it has had a period */
	RC_TRACE_SPENT = 2, /* edf: it is served without budget */
};
struct rc_trace {
	u64 at, node, node2, work;
	u32 tid;
	u16 unit;
	u8 kind, flags;
};

/*
 * What rc_trace is asked. CLAIM: node is the reader's pid, CLAIM_FORCE takes it from another; node
 * answers who has it. OFF answers the lost records in node2. ON: -E2BIG where the list of the tree
 * would be too long for one section with interrupts off; PAUSE is ON where it may be.
 */
enum rc_trace_call {
	RC_TRACE_OFF = 0,
	RC_TRACE_ON = 1,
	RC_TRACE_CLAIM = 2,
	RC_TRACE_CLAIM_FORCE = 3,
	RC_TRACE_PAUSE = 4,
};

/*
 * What the kernel told us, and what we count. One record, mapped by the daemon and only read there.
 */
struct rc_state {
	u64 magic; /* RS_MAGIC once the tree is made */
	u32 abi, rs_abi;
	u64 attached; /* times that the kernel gave us the CPUs */
	u64 detached; /* times that it took them back */
	u64 exit_code;
	u32 exit_kind;
	u32 cpus;
	u64 kthread_ns; /* given to kernel threads outside the tree's shares, under their floor */
	u64 forced; /* times the kernel ran a thread that the tree had not chosen */
	u64 lost; /* times a chosen thread could not be put on the CPU */
	u64 sections; /* of the tree's lock */
	u64 steps; /* threads chosen */
	u64 refused; /* new threads that got no item */
	u64 seq; /* last batch in effect */
	u64 mount_dev; /* where descriptors of queues are; 0: nowhere */
	u32 nodes_used, items_used;
	u64 groups; /* cgroups that have a queue of their own below q0 */
	u64 groups_folded; /* those whose threads stand in an ancestor's, for lack of room */
	u32 mirror; /* 0: not asked for */
	u32 grants; /* batch.h */
	u64 section_ns; /* the longest section of the lock, where it is measured */
	u32 section_line, pad; /* where it ended */
	/* likewise: choices while somebody waited beside a CPU that idled (cpu/idle.h), … */
	u64 idle_waits;
	u64 idle_late; /* … for long, and nobody had told it */
	char exit_reason[RC_TEXT_MAX];
	char exit_msg[RC_TEXT_MAX];
};

/*
 * Tag of a thread (task storage) and lists of a process (by its signal structure). 0 stands for q0.
 */
struct rc_tag {
	u64 node;
};
struct rc_lists {
	u64 def, child;
};

#endif
