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
 * back, and every 20 ms otherwise. Started with the first cap.
 */
#define CLOCK_MONOTONIC 1
u32 timer_on;

static void rc_watch(u64 raw);

static int rc_tick(void *map, u32 *key, struct rc_timer *timer)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	u64 wait = 20000000, raw = scx_bpf_now(), due = 0;

	RC_LOCK(irq);
	if (t->throttle.n) {
		wait = 4000000;
		due = t->throttle.e[0].key;
		if (!rs_before(raw, due))
			due = 1;
		else if (due - raw < wait)
			wait = due - raw;
	}
	RC_UNLOCK(irq);
	if (due == 1)
		rc_kick_idle();
	rc_watch(raw);
	if (wait < 100000)
		wait = 100000;
	bpf_timer_start(&timer->timer, wait, 0);
	return 0;
}

static __always_inline void rc_timer_on(void)
{
	u32 zero = 0;
	struct rc_timer *timer;

	if (timer_on)
		return;
	timer = bpf_map_lookup_elem(&timers, &zero);
	if (!timer)
		return;
	timer_on = 1;
	bpf_timer_init(&timer->timer, &timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, rc_tick);
	bpf_timer_start(&timer->timer, 1000000, 0);
}
