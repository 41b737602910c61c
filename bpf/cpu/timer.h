/* SPDX-License-Identifier: GPL-2.0-only */
/* What has to be looked at while nothing happens. */

struct rc_timer {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rc_timer);
} timers SEC(".maps");

/*
 * Caps let go while CPUs are idle: this looks at the tree when the first is due, and at least every
 * 4 ms while something is held back; at cgroups that are to be watched (cgroups.h) twice a second;
 * and what was told of cgroups is put into force, once. With nothing of this to do it does not go
 * off.
 *
 * Who holds something back starts it, if it is not armed: the next dispatch, for whatever is
 * charged ends there. Both look at `throttle` in a section of the lock, so one of them sees what
 * the other did.
 *
 * Its callback is part of the program that sets it, the calls' (rc_setup): whoever starts it is not
 * verified with what it does.
 */
#define CLOCK_MONOTONIC 1
#define RC_HELD_NS 4000000
#define RC_WATCH_NS 500000000
#define RC_LATE_NS 20000000 /* the lock was not to be had */
u32 timer_armed; /* it goes off, within 4 ms if something is held back */
u32 watched; /* some cgroup is to be watched; stays */
u32 starting; /* rc_init is at work */
u32 groups_dirty; /* some cgroup's `dirty` is set */

static int rc_watch(u64 raw);
static int rc_groups_settle(void);

/*
 * Under the lock: what is let go first, and how many CPUs can do something with it; 0: who knows.
 */
static __always_inline u32 rc_let_go(struct rs_tree RS_ARENA *t)
{
	struct rs_node RS_ARENA *n = (struct rs_node RS_ARENA *)t->throttle.e[0].obj;

	return n->kind == RS_QUEUE && n->nall == n->ready.n ? n->ready.n : 0;
}

/* So many of the CPUs without work look again. */
static __always_inline void rc_kick_some(u32 some)
{
	const struct cpumask *all;

	if (!some || some >= cpus) {
		rc_kick_idle();
		return;
	}
	all = scx_bpf_get_online_cpumask();
	RS_LOOP(i, RS_UNITS_MAX) {
		if (i >= some || !rc_kick_one_of(all, 0))
			break;
	}
	scx_bpf_put_cpumask(all);
}

static int rc_tick(void *map, u32 *key, struct rc_timer *timer)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	u64 wait = 0, raw = scx_bpf_now(), due = 0;
	u32 some = 0;

	if (!attached && !starting) /* rc_init starts it again */
		return 0;
	if (starting) { /* there is nothing to look at yet */
		bpf_timer_start(&timer->timer, 1000000, 0);
		return 0;
	}
	RC_LOCK(irq, wait = RC_LATE_NS; goto late);
	timer_armed = t->throttle.n != 0;
	if (t->throttle.n) {
		wait = RC_HELD_NS;
		due = t->throttle.e[0].key;
		if (!rs_before(raw, due)) {
			due = 1;
			some = rc_let_go(t);
		} else if (due - raw < wait) {
			wait = due - raw;
		}
	}
	PLANE_UNLOCK(irq);
late:
	if (due == 1)
		rc_kick_some(some);
	if (watched)
		rc_watch(raw);
	if (groups_dirty)
		rc_groups_settle();
	if (!wait && watched)
		wait = RC_WATCH_NS;
	if (groups_dirty || (wait && wait < 100000))
		wait = 100000;
	if (!wait)
		return 0;
	bpf_timer_start(&timer->timer, wait, 0);
	/* Who armed it since, for sooner, was before us here, and is overruled; or comes now. */
	if (wait > RC_HELD_NS && (timer_armed || groups_dirty))
		bpf_timer_start(&timer->timer, 1000000, 0);
	return 0;
}

/*
 * Before the scheduler comes. One that is there from an earlier tree is as good, but has no
 * callback, for it was cancelled.
 */
static __always_inline void rc_timer_ready(void)
{
	u32 zero = 0;
	struct rc_timer *timer = bpf_map_lookup_elem(&timers, &zero);

	if (!timer)
		return;
	bpf_timer_init(&timer->timer, &timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, rc_tick);
}

/* Before the first dispatch. */
static __always_inline void rc_timer_begin(void)
{
	u32 zero = 0;
	struct rc_timer *timer = bpf_map_lookup_elem(&timers, &zero);

	timer_armed = 1; /* of an earlier start it may say so and not be */
	if (timer)
		bpf_timer_start(&timer->timer, 1000000, 0);
}

/* In a millisecond. */
static __always_inline void rc_timer_soon(void)
{
	u32 zero = 0;
	struct rc_timer *timer = bpf_map_lookup_elem(&timers, &zero);

	if (timer)
		bpf_timer_start(&timer->timer, 1000000, 0);
}

/* After a section in which something may have been held back. */
static __always_inline void rc_timer_arm(struct rs_tree RS_ARENA *t)
{
	if (!t->throttle.n || timer_armed)
		return;
	timer_armed = 1;
	rc_timer_soon();
}

/* Some cgroup is to be watched from now on. */
static __always_inline void rc_timer_watch(void)
{
	if (watched)
		return;
	watched = 1;
	rc_timer_soon();
}

/* It does not go off again, and has no callback until rc_timer_ready. */
static __always_inline void rc_timer_off(void)
{
	u32 zero = 0;
	struct rc_timer *timer = bpf_map_lookup_elem(&timers, &zero);

	timer_armed = 0;
	watched = 0;
	groups_dirty = 0;
	if (timer)
		bpf_timer_cancel(&timer->timer);
}

/*
 * A thread whose step ends where it must not migrate stands, nearly always, in a program of a hook:
 * fcntl's, open's, fork's. Until it runs again the kernel leaves that program out for every other
 * thread of the CPU (bpf/hook.h), and an fcntl command of ours would answer EINVAL. So it goes on,
 * for RC_GRACE_NS at a time and RC_GRACES times at most, which is charged like all that it runs.
 * Slices end at ticks, milliseconds apart: a timer ends this one.
 */
#define RC_GRACE_NS 100000
#define RC_GRACES 40

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RS_UNITS_MAX);
	__type(key, u32);
	__type(value, struct rc_timer);
} graces SEC(".maps");

static int rc_grace_over(void *map, u32 *cpu, struct rc_timer *timer)
{
	if (attached)
		scx_bpf_kick_cpu(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Before the first dispatch. */
static __always_inline void rc_graces_ready(void)
{
	struct rc_timer *timer;
	u32 cpu, i;

	bpf_for(i, 0, RS_UNITS_MAX) {
		if (i >= cpus)
			break;
		cpu = i;
		timer = bpf_map_lookup_elem(&graces, &cpu);
		if (timer && !bpf_timer_init(&timer->timer, &graces, CLOCK_MONOTONIC)) /* or it has been so since an earlier start */
			bpf_timer_set_callback(&timer->timer, rc_grace_over);
	}
}

/* Whether the thread that is current stands in such a program: ours has disabled migration too. */
static __always_inline bool rc_inside(struct task_struct *current)
{
	return current->migration_disabled > 1;
}

/* Whether who runs here may go on for a moment. */
static __always_inline bool rc_grace(u32 cpu)
{
	struct rc_timer *timer = bpf_map_lookup_elem(&graces, &cpu);

	return timer && !bpf_timer_start(&timer->timer, RC_GRACE_NS, 0);
}
