/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Cello's data (cello.c). In user space only: sched/disk/ is not part of what BPF programs include.
 */
#ifndef RESERV_SCHED_CELLO_H
#define RESERV_SCHED_CELLO_H

#define RC_SCHEDULED_MAX 64 /* requests in the scheduled queue */
#define RC_BUCKETS 32 /* sizes of requests, by powers of two, that the estimate tells apart */
#define RC_DUE_BUCKET 10000000ULL /* ns: deadlines within it are equal */
#define RC_NOTHING 0xffffffffu
#define RC_ROUND_NS 1000000000ULL /* by default */
#define RC_GUESS_NS 5000000ULL /* of a request before any was seen */

/* In the order in which budgets are asked. */
enum rc_class { RC_REAL_TIME = 0, RC_INTERACTIVE = 1, RC_THROUGHPUT = 2, RC_CLASSES = 3, RC_BYPASS = 3 };

enum rc_state { RC_FREE = 0, RC_PENDING, RC_SCHEDULED, RC_SERVED };

struct rc_request {
	u64 sector, bytes;
	u64 due; /* absolute; of the real-time class */
	u64 estimate; /* of its service time */
	u64 cookie; /* the caller's */
	u32 next; /* pending, or free, behind it */
	u8 class, state;
	u8 idle; /* scheduled by the rule for an idle disk */
	u8 pad0;
};

struct rc_list {
	u32 first, last, count;
};

struct rc_class_state {
	u32 weight;
	u32 pad0;
	/*
	 * in this round: estimates of what was scheduled, corrected when it is done; begins with
	 * the debt, or with minus the credit
	 */
	s64 used;
	s64 extra; /* of it, by the rule for an idle disk */
	u64 service; /* time on the disk, ever */
	u64 served;
	u64 took[RC_BUCKETS]; /* estimate by size */
	struct rc_list pending;
};

struct rc_cello {
	struct rc_request *request;
	u32 requests_max, requests_used, free;
	u32 depth; /* of the scheduled queue */
	u32 slots; /* requests that the disk may have at once */
	u32 serving; /* that it has */
	u32 turn; /* of the rule for an idle disk */
	u32 n;
	u64 round_ns, round_at;
	u64 arm; /* sector of the last request that was handed out */
	u64 sweep; /* and of the last one of class throughput-intensive */
	u64 busy_until; /* by estimates */
	struct rc_class_state class[RC_CLASSES];
	struct rc_list bypass;
	u32 scheduled[RC_SCHEDULED_MAX];
};

#endif
