/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all programs of the CPU plane share: the arena with the tree, its one lock, the maps, and
 * small helpers.
 *
 * The lock. `tree_lock` guards everything in the arena, except `started` of an item (see below). It
 * is taken with interrupts off, inside run-queue locks, and nothing is taken inside it. No kernel
 * function that takes a lock is called under it.
 *
 * Time. One clock, scx_bpf_now(). It is monotonic on one CPU only, so a section of the lock uses
 * pl_clock(), which never goes back for the tree; lengths of runs are differences on one CPU.
 *
 * What a thread ran is the kernel's own count, p->se.sum_exec_runtime, which is true whenever the
 * kernel asks us about the thread, and leaves out what interrupts and other classes took. An item's
 * `paid` is how much of that has been charged. So nothing that a thread ran is lost, whoever let it
 * run: what is not charged with one step is with the next.
 *
 * An item's `started` is the time at which its present queue's part of the step began, while it is
 * in service, and RC_OFF otherwise: for the thread's own hops between queues (tags.h), and where a
 * step is looked at from elsewhere.
 */
#ifndef RESERV_CPU_COMMON_H
#define RESERV_CPU_COMMON_H

/*
 * Possible CPUs, at most RS_UNITS_MAX: known before loading (load.rs). Where there is one, that is
 * known when the programs are compiled (build.rs makes them twice): two fifths of them are for
 * several, and the verifier looks at what it then takes out.
 */
#ifdef RC_ONE_CPU
enum { cpus = 1 };
#else
const volatile u32 cpus SEC(".rodata.cpus") = 1;
#endif

/* How many threads have an item: RS_ITEMS_MAX; less only for tests (load.rs). */
#ifndef RC_THREADS_MAX
#define RC_THREADS_MAX 32768
#endif
const volatile u32 threads_max SEC(".rodata.threads") = RC_THREADS_MAX;

#define RS_BATCH_MEM RS_ARENA
#define RS_LENGTHS 0 /* how long a thread will run is not known before */
#define RS_SEVERAL(t) (cpus > 1 && (t)->several)
#define RS_EVER_SEVERAL (cpus > 1)
#define RS_UNITS_HERE cpus
#include "../../sched/core.c"
#include "../abi.h"
#include "../hook.h"
#include "../use.h"
#include "../fresh.h"
#include "../work.h"

#define RC_OFF (1ULL << 63)
#define RC_TICK_MAX 10000000 /* ns between two ticks, at 100 Hz */

#define RC_FLOOR_PERCENT 5 /* kernel threads' floor: this much of each CPU … */
#define RC_FLOOR_BURST 20000000LL /* … and this much at once */
#define RC_PRIO_OF_NICE_0 120 /* the kernel's static_prio: larger is nicer */

#define RC_Q0 (1ULL << 32 | 1) /* its handle */

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RC_ARENA_PAGES);
	__ulong(map_extra, RC_ARENA_AT);
} arena SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rc_io);
} io SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rc_state);
} state SEC(".maps");

/* A thread's durable tag, and its item while the scheduler is attached. */
struct rc_thread {
	struct rc_tag tag;
	u64 item;
	struct rc_param param; /* what it asked for, in force while it has an item */
	u64 epoch; /* when that was written; of another epoch it means nothing */
	u64 most; /* of the item's weight_most */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct rc_thread);
} tags SEC(".maps");

/*
 * The threads, by their items' index, so that dispatch finds the one that it has chosen with a
 * load. Each is held from init_task to exit_task (before 6.19 while it is in our class: compat.h),
 * so that its address, the item's `owner`, names it.
 */
struct rc_task {
	struct task_struct __kptr *p;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RS_ITEMS_MAX);
	__type(key, u32);
	__type(value, struct rc_task);
} tasks SEC(".maps");

/*
 * Lists of processes, by the address of their signal structure; those with both lists at q0 have no
 * entry.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct rc_lists);
} lists SEC(".maps");

/*
 * Who may use a queue, by its handle; those without an entry, whoever could open their directory.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, RS_NODES_OPEN);
	__type(key, u64);
	__type(value, struct rt_use);
} uses SEC(".maps");

/*
 * How often the programs were put by (rc_forget). In a section of its own: whoever forgets empties
 * the others, and threads' storage outlives that.
 */
u64 epoch SEC(".data.epoch") = 1;

/*
 * Of queues with an entry there, the numbers modulo 64: all others need not be looked up. Bits are
 * set before an entry is made and stay.
 */
u64 ruled;

/*
 * Sections are microseconds, so who has the lock for longer than this is stuck. We touch nothing
 * then, the tree is poisoned and the scheduler goes with the next dispatch; the tree is reset
 * before it comes again. From then on nobody waits for long.
 */
#ifndef PLANE_LOCK_NS
#define PLANE_LOCK_NS 2000000000ULL
#endif
#define PLANE_HOPELESS(t) ((t)->poison == RS_POISON_LOCK)
#define PLANE_GAVE_UP(t) rs_poison(t, RS_POISON_LOCK)
#define PLANE_HAD() ((void)0)
#define PLANE_SECTION() section_count++
#define PLANE_POSTED() rc_drain()
u64 section_count, step_count, forced_count; /* under the lock */
static __always_inline void rc_drain(void);
#include "../plane.h"

u64 batch_at;
u64 scratch_at; /* one op, for edits of our own; under the lock */
u32 mirror_on; /* 0: q0 is one queue, whatever the cgroups are */
u64 lost_count; /* under the lock */
u64 mount_dev; /* as the kernel packs it: major << 20 | minor */

/*
 * The item of the thread that runs within the step of another, which stands in service on the CPU
 * (locality.h). Written on the CPU, under its run queue's lock; and by whoever settles that step.
 */
struct rc_guest {
	u64 it;
	u64 pad[7];
};
struct rc_guest guests[RS_UNITS_MAX];

/* CPUs that are there; written by what tells of their coming and going */
u64 online[RS_UNIT_WORDS];

/* Floor of kernel threads per CPU; each changed on its CPU only, under its run queue's lock. */
struct rc_bucket {
	s64 tok;
	u64 at;
	u64 pad[6];
};
struct rc_bucket bucket[RS_UNITS_MAX];

/* trace.h; under the lock; a wake-up looks at it before it posts instead of taking the lock */
u32 trace_on;
/*
 * 0 before loading: the verifier takes all of it out, and what a switch costs without a tracer can
 * be measured (load.rs).
 */
const volatile u32 trace_built SEC(".rodata.trace") = 1;

/*
 * How often in a row, for each CPU, who is first in a queue may be passed over for a thread that
 * was on the CPU last, and whether wake-ups stay near at all (load.rs). 0: the tree's order alone.
 */
const volatile u32 near SEC(".rodata.near") = 4;

static __always_inline u32 rc_traced(void)
{
	return trace_built ? trace_on : 0;
}

/* An index as the verifier wants it: the compiler must not turn the loop into one over pointers. */
static __always_inline u32 rc_slot(u32 i)
{
	asm volatile("" : "+r"(i));
	return i;
}

#define RC_OP(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)
#define RC_OP_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)

RS_INLINE void rc_trace_posted(struct rs_item RS_ARENA *it);

/* What was posted comes first. */
static __always_inline void rc_drain(void)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it;

	if (!t->posted)
		return;
	it = rs_posts(t);
	if (rc_traced())
		rc_trace_posted(it);
	rs_drain(t, it);
}

/* 0: it could not be had, and who asked leaves. */
static __always_inline int rc_lock(void)
{
	if (!pl_lock())
		return 0;
	rc_drain();
	return 1;
}

/*
 * Everywhere else. PLANE_LOCK alone is for an event that makes nobody want service, serves nobody
 * and takes no item away that may be posted: what was posted comes after it. A posted item is idle
 * to it (sched/post.c), so the order of the two is as good as the other; and a program that has
 * such events only is not verified with all that a wake-up does, a third of it.
 */
#define RC_LOCK(irq, leave)             \
	do {                            \
		PLANE_LOCK(irq, leave); \
		rc_drain();             \
	} while (0)

static __always_inline struct rs_item RS_ARENA *rc_item(struct task_struct *p)
{
	return (struct rs_item RS_ARENA *)p->scx.dsq_vtime;
}

/*
 * The same where the kernel does not ask us about the thread, as in hooks. `dsq_vtime` may be
 * another scheduler's then, which came after the kernel had thrown us out, and any number. That of
 * an item is the place whose `owner` is the thread; others are no thread's address, and an arena
 * answers 0 where it has nothing.
 */
static __always_inline struct rs_item RS_ARENA *rc_own(struct task_struct *p)
{
	struct rs_item RS_ARENA *it = rc_item(p);

	return it && it->owner == (u64)p ? it : 0;
}

/* Its thread; 0: it has gone. */
static __always_inline struct task_struct *rc_thread(struct rs_item RS_ARENA *it)
{
	u32 index = it->index;
	struct rc_task *task = bpf_map_lookup_elem(&tasks, &index);

	return task ? task->p : 0;
}

/* The item's thread from now on is p, which the caller holds for it; 0: nobody. */
static __always_inline void rc_thread_put(u32 index, struct task_struct *p)
{
	struct rc_task *task = bpf_map_lookup_elem(&tasks, &index);

	if (task)
		p = bpf_kptr_xchg(&task->p, p);
	if (p)
		bpf_task_release(p);
}

static __always_inline void rc_thread_hold(u32 index, struct task_struct *p)
{
	struct task_struct *held = bpf_task_acquire(p);

	if (held)
		rc_thread_put(index, held);
}

static __always_inline struct rc_state *rc_state(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&state, &zero);
}

/* What the item's thread ran and was not charged for. */
static __always_inline u64 rc_owed(struct rs_item RS_ARENA *it, struct task_struct *p)
{
	s64 owed = p->se.sum_exec_runtime - it->paid;

	return owed > 0 ? owed : 0;
}

/* How long the present part of the step of an item has lasted. */
static __always_inline u64 rc_ran(struct rs_item RS_ARENA *it, u64 raw)
{
	u64 s = it->started;

	if (s & RC_OFF)
		return 0;
	return rs_before(s, raw) ? raw - s : 0;
}

/*
 * How much of the CPU the item's step in service has had, to be shown: by the clock, which other
 * classes and interrupts do not stop, but no more than the kernel has counted, which is a tick old
 * where the thread runs and exact where it does not. So what is shown goes back by a tick at most.
 */
static __always_inline u64 rc_so_far(struct rs_item RS_ARENA *it, u64 raw)
{
	u64 ran = rc_ran(it, raw), most;
	struct task_struct *p;

	bpf_rcu_read_lock();
	p = rc_thread(it);
	if (p) {
		most = rc_owed(it, p) + (scx_bpf_task_running(p) ? RC_TICK_MAX : 0);
		if (ran > most)
			ran = most;
	}
	bpf_rcu_read_unlock();
	return ran;
}

/* A queue by handle; a stale one, and 0, is q0. */
static __always_inline struct rs_node RS_ARENA *rc_queue(struct rs_tree RS_ARENA *t, u64 id)
{
	struct rs_node RS_ARENA *q = id ? rs_node_at(t, id) : 0;

	if (!q || q->kind != RS_QUEUE)
		q = &t->nodes[1];
	return q;
}

/* A queue's handle as the control plane knows it: what is hidden is q0. */
static __always_inline u64 rc_open_id(struct rs_node RS_ARENA *q)
{
	return q->index >= RS_NODES_OPEN ? RC_Q0 : pl_id(q);
}

/*
 * Where an item waits while nobody tagged it: its cgroup's queue; q0 itself where it has the floor.
 */
static __always_inline struct rs_node RS_ARENA *rc_home(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	u64 home = it->home;
	struct rs_node RS_ARENA *q = home ? rs_node_at(t, home) : 0;

	return q && q->kind == RS_QUEUE && !q->dying && !(it->flags & RS_ITEM_APART) ? q : &t->nodes[1];
}

#include "trace.h"

/*
 * One move of an item in service: `ran` is charged to the queue it leaves. Answers what could not
 * be charged. Where the queue has gone since the thread asked, it stays where it is: it was not
 * among those who were sent from there, and nobody comes into q0 by taking a queue away.
 */
static __always_inline u64 rc_carry(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 node, u64 ran, u64 now)
{
	struct rs_node RS_ARENA *q = rc_queue(t, node);

	if (q->index == 1) {
		if (node != RC_Q0)
			return ran;
		q = rc_home(t, it);
	}
	if (it->queue == q || !rc_trace_move(t, it, q, ran, now))
		return ran;
	return 0;
}

/*
 * A thread that tags itself (chcpures) does not take the lock: the move waits for the end of the
 * step. `want` is the queue by handle, and what the thread did before lies in two parts: 0 belongs
 * to the queue that the item is in, 1 to another. `started` counts for `want` from then on. A third
 * queue within a step is a case for the lock.
 *
 * Under the lock, in service: the moves happen, each part charged to its queue, all of them out of
 * `ran`. Answers what is left of that, which belongs to the queue that the item is in now.
 */
RS_FN u64 rc_catch_up(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 ran, u64 now)
{
	u64 want = it->want, other = it->part_node[1], first = it->part_ran[0], second = it->part_ran[1];

	it->part_node[0] = 0;
	it->part_node[1] = 0;
	it->part_ran[0] = 0;
	it->part_ran[1] = 0;
	RS_WRITTEN();
	it->want = 0; /* last: who hops and finds none finds no parts either */
	if (it->state != RS_SERVICE)
		return ran;
	/* The parts were measured by the clock, which other classes and interrupts do not stop. */
	if (first > ran)
		first = ran;
	ran -= first;
	if (second > ran)
		second = ran;
	ran -= second;
	first = rc_carry(t, it, other ? other : want, first, now) + second;
	if (other && other != want)
		first = rc_carry(t, it, want, first, now);
	return ran + first;
}

/* The queue that a thread is tagged with, by handle. */
static __always_inline u64 rc_tag_of(struct rs_item RS_ARENA *it)
{
	struct rs_node RS_ARENA *q = it->queue;
	u64 want = it->want;

	return want ? want : q ? rc_open_id(q) : 0;
}

/*
 * Under the lock, before the step of `it` ends: what its guest ran is charged to the guest. Answers
 * how much, which is part of the step's work.
 */
RS_FN u64 rc_lent(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it)
{
	struct rc_guest *g = &guests[it->unit & (RS_UNITS_MAX - 1)];
	struct rs_item RS_ARENA *guest = (struct rs_item RS_ARENA *)g->it;
	struct task_struct *p;
	u64 ran = 0;

	if (!guest || it->state != RS_SERVICE || t->unit[it->unit & (RS_UNITS_MAX - 1)].item != it)
		return 0;
	g->it = 0;
	if (guest == it || guest->state != RS_IDLE || guest->queue != it->queue)
		return 0; /* charged with its own next step */
	bpf_rcu_read_lock();
	p = rc_thread(guest);
	if (p)
		ran = rc_owed(guest, p);
	bpf_rcu_read_unlock();
	if (!ran)
		return 0;
	guest->paid += ran;
	rs_lend(t, it, guest, ran);
	return ran;
}

/* paged.h */
RS_FN u32 rc_page_parts(struct rs_item RS_ARENA *it, u64 ran, u64 started);
RS_FN u64 rc_page_part(struct rs_item RS_ARENA *it, u32 i, u64 charge);

/*
 * Under the lock, in service: the moves that the thread's page asks for happen, each part of `ran`
 * charged to its queue. Answers what is left, which belongs to the queue that the item is in now.
 * Inlined, so that the moves have the stack that they have elsewhere.
 */
static __always_inline u64 rc_paged(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 ran, u64 started, u64 now)
{
	u32 n = rc_page_parts(it, ran, started);
	u64 charge = 0;

	if (!n)
		return ran;
	RS_LOOP(i, RC_PAGE_LOG + 2) {
		charge = rc_page_part(it, i, charge);
		if (i >= n)
			break;
		if (it->want)
			charge = rc_catch_up(t, it, charge, now);
	}
	return charge;
}

/*
 * Under the lock, before the step of the running thread's item ends: the same of `ran`, which has
 * not been paid. Answers what is left of it.
 */
static __always_inline u64 rc_page_step(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 ran, u64 now)
{
	it->paid += ran;
	if (it->want)
		ran = rc_catch_up(t, it, ran, now);
	ran = rc_paged(t, it, ran, it->started, now);
	it->paid -= ran;
	return ran;
}

/*
 * Under the lock: what the item did so far, `ran` in all, is charged, and it is queued (more) or
 * idle.
 */
static __always_inline void rc_settle(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, u64 ran, u32 more, u64 now)
{
	it->paid += ran;
	if (it->want)
		ran = rc_catch_up(t, it, ran, now);
	if (cpus > 1)
		ran += rc_lent(t, it);
	it->started = RC_OFF;
	rc_trace_item(RC_TRACE_SETTLE, more ? RC_TRACE_MORE : 0, it, 0, ran);
	rs_settle(t, it, ran, more, now);
}

/* Rare. */
#define RC_COUNT(what, n)                                                                                         \
	do {                                                                                                      \
		struct rc_state *s_ = rc_state();                                                                 \
		if (s_)                                                                                           \
			__sync_fetch_and_add(&s_->what, n);                                                       \
	} while (0)

/*
 * The kernel has us as its scheduler: from rc_init to rc_exit. Outside of it what asks something of
 * the kernel's scheduler, from a timer or a call of the daemon's, would ask it of another one:
 * kicks its CPUs, throws it out. So that is asked while this is set only.
 */
u32 attached;

/* Outside the lock: a tree that found itself wrong is not scheduled with. */
static __noinline void rc_poisoned(u32 why, u32 line)
{
	static char text[] = "the tree is inconsistent: reason %d at line %d";
	static char late[] = "the tree's lock was not to be had for two seconds";
	unsigned long long args[2] = { why, line };

	if (!attached)
		return;
	if (why == RS_POISON_LOCK) {
		scx_bpf_error_bstr(late, args, 0);
		return;
	}
	scx_bpf_error_bstr(text, args, sizeof(args));
}

#define RC_CHECK(t)                                                                                               \
	do {                                                                                                      \
		if ((t)->poison)                                                                                  \
			rc_poisoned((t)->poison, (t)->poison_line);                                               \
	} while (0)

/* CPUs without work look again, all of them. */
static __always_inline void rc_kick_idle(void)
{
	if (!attached)
		return;
	RS_LOOP(cpu, RS_UNITS_MAX) {
		if (cpu >= cpus)
			break;
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
}

/*
 * Under the lock: the item of thread `p` is moved at once, running or queued. What it ran so far is
 * charged before: as the clock sees it, because the kernel's count of a thread that runs elsewhere
 * may be a tick old. Answers 0, or a negative errno.
 *
 * The thread may hop on its CPU meanwhile (rc_hop). So `started` is taken, and RC_OFF stands there
 * until the move is done: a hop that comes after that fails, and waits for the lock; of one that
 * came before, its part of the time is not ours. It goes on from the later of the two times, for
 * the lock was waited for since `raw`. What such a hop has not written yet is found by the next
 * who catches up, and charged to the queue in which the thread is then: no more than one step of
 * it, of its own, and never more than the kernel has counted in all.
 */
static __always_inline int rc_move(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct task_struct *p,
				   struct rs_node RS_ARENA *q, u64 raw, u64 now)
{
	u64 ran = 0, passed = 0, s = RC_OFF;

	if (it->state == RS_SERVICE) {
		s = __sync_lock_test_and_set(&it->started, RC_OFF);
		if (!(s & RC_OFF)) {
			if (rs_before(s, raw))
				passed = raw - s;
			else
				raw = s;
		}
		ran = rc_owed(it, p);
		if (p->scx.flags & SCX_TASK_QUEUED) {
			if (it->want)
				passed += it->part_ran[0] + it->part_ran[1];
			if (ran < passed)
				ran = passed;
		}
		it->paid += ran;
	}
	if (it->want)
		ran = rc_catch_up(t, it, ran, now);
	if (it->queue == q) {
		/* Charged when it moves on or the step ends: what it ran here goes on counting. */
		it->paid -= ran;
		if (!(s & RC_OFF))
			it->started = raw - ran;
		return 0;
	}
	if (!(s & RC_OFF))
		it->started = raw;
	if (rc_trace_move(t, it, q, ran, now))
		return 0;
	it->paid -= ran;
	return -E_AGAIN;
}

#endif
