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
 * Caps let go while CPUs are idle: this looks at the tree when the first is due, at least every 4 ms while something is held
 * back, and every 20 ms otherwise. Started with the first cap. And what was told of cgroups is put into force, once (cgroups.h).
 *
 * Its callback is part of the program that sets it, rc_init: whoever starts it is not verified with what it does.
 */
#define CLOCK_MONOTONIC 1
u32 timer_on;
u32 starting; /* rc_init is at work */
u32 groups_dirty; /* some cgroup's `dirty` is set */

static int rc_watch(u64 raw);
static int rc_groups_settle(void);

static int rc_tick(void *map, u32 *key, struct rc_timer *timer)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	u64 wait = 20000000, raw = scx_bpf_now(), due = 0;

	if (starting) { /* there is nothing to look at yet */
		bpf_timer_start(&timer->timer, 1000000, 0);
		return 0;
	}
	RC_LOCK(irq, goto late);
	if (t->throttle.n) {
		wait = 4000000;
		due = t->throttle.e[0].key;
		if (!rs_before(raw, due))
			due = 1;
		else if (due - raw < wait)
			wait = due - raw;
	}
	RC_UNLOCK(irq);
late:
	if (due == 1)
		rc_kick_idle();
	rc_watch(raw);
	if (groups_dirty)
		rc_groups_settle();
	if (groups_dirty || wait < 100000)
		wait = 100000;
	if (groups_dirty || timer_on)
		bpf_timer_start(&timer->timer, wait, 0);
	return 0;
}

/* Before the first dispatch. One that is there from an earlier start is as good, but has no callback if it was cancelled. */
static __always_inline void rc_timer_ready(void)
{
	u32 zero = 0;
	struct rc_timer *timer = bpf_map_lookup_elem(&timers, &zero);

	if (!timer)
		return;
	bpf_timer_init(&timer->timer, &timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, rc_tick);
	if (timer_on || groups_dirty)
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

static __always_inline void rc_timer_on(void)
{
	if (timer_on)
		return;
	timer_on = 1;
	rc_timer_soon();
}

/* It does not go off again, and has no callback until rc_timer_ready. */
static __always_inline void rc_timer_off(void)
{
	u32 zero = 0;
	struct rc_timer *timer = bpf_map_lookup_elem(&timers, &zero);

	timer_on = 0;
	groups_dirty = 0;
	if (timer)
		bpf_timer_cancel(&timer->timer);
}

/*
 * A thread whose step ends where it must not migrate stands, nearly always, in a program of a hook: fcntl's, open's, fork's. Until it runs again the kernel leaves that program
 * out for every other thread of the CPU (bpf/hook.h), and an fcntl command of ours would answer EINVAL. So it goes on, for RC_GRACE_NS at a time and RC_GRACES times at
 * most, which is charged like all that it runs. Slices end at ticks, milliseconds apart: a timer ends this one.
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
