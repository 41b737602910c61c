/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the full CPU driver does where a kernel lacks something that a later one has. Linux 6.14 has
 * all that has no fallback here.
 *
 * Rules.
 *   1. Whether the kernel has it is asked of its type information, never of its version: the
 *      release in a comment says only since when there has been one that has it.
 *   2. crates/plane/src/cpu/full/compat.rs asks, once, before it loads, and sets a bit of `lacks`
 *      for each thing that is missing. A constant to the verifier, which takes out the way not
 *      taken; so a function on it need not be there (__weak).
 *   3. A bit is here, what asks for it and what it costs is said there; a test compares the two.
 *   4. RESERV_FALLBACKS sets bits although the kernel has the thing: so one kernel tests all of
 *      them (tests/guest/full_fallbacks).
 */
#ifndef RESERV_COMPAT_H
#define RESERV_COMPAT_H

enum compat {
	COMPAT_INSERT = 1 << 0, /* 6.19 scx_bpf_dsq_insert___v2 */
	COMPAT_SLICE = 1 << 1, /* 6.19 scx_bpf_task_set_slice */
	COMPAT_VTIME = 1 << 2, /* 6.19 scx_bpf_task_set_dsq_vtime */
	COMPAT_DEAD = 1 << 3, /* 6.19 sched_ext_dead */
	COMPAT_IDLE = 1 << 4, /* 6.18 sched_ext_ops.cgroup_set_idle */
	COMPAT_BANDWIDTH = 1 << 5, /* 6.17 sched_ext_ops.cgroup_set_bandwidth */
};

/* Something only where no loader says what the kernel lacks (tests/lib/cpusim.c). */
#ifndef COMPAT_LACKS
#define COMPAT_LACKS 0
#endif
const volatile u32 lacks SEC(".rodata.lacks") = COMPAT_LACKS;

/* libbpf takes the last ___suffix for a flavour of ours. */
bool scx_bpf_dsq_insert___v2___reserv(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) __ksym __weak;

/*
 * 6.19: it says whether the kernel takes it. Before, it is taken to be so, and where it is not (a
 * scheduler that is about to go) the CPU asks anew.
 */
static __always_inline bool compat_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	if (!(lacks & COMPAT_INSERT))
		return scx_bpf_dsq_insert___v2___reserv(p, dsq_id, slice, enq_flags);
	scx_bpf_dsq_insert(p, dsq_id, slice, enq_flags);
	return true;
}

/*
 * 6.19. Before, programs write the field themselves, which later kernels do not let them for ever.
 */
static __always_inline void compat_set_slice(struct task_struct *p, u64 slice)
{
	if (!(lacks & COMPAT_SLICE))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

static __always_inline void compat_set_vtime(struct task_struct *p, u64 vtime)
{
	if (!(lacks & COMPAT_VTIME))
		scx_bpf_task_set_dsq_vtime(p, vtime);
	else
		p->scx.dsq_vtime = vtime;
}

/*
 * 6.19: exit_task() comes when the thread has left its CPU for the last time (sched_ext_dead).
 * Before, it comes when nobody holds the thread any more, so we must not: it is held while it is in
 * our class, and not beyond its last moment on a CPU, of which quiescent() tells.
 */
static __always_inline bool compat_hold_in_class(void)
{
	return lacks & COMPAT_DEAD;
}

/*
 * 6.18, 6.17: the kernel tells of changes of cpu.idle and cpu.max. Before, the timer looks at all
 * cgroups.
 */
static __always_inline bool compat_watch_groups(void)
{
	return lacks & (COMPAT_IDLE | COMPAT_BANDWIDTH);
}

/*
 * Where a field is, the loader says. A program of this machine has it where its own compiler put
 * it.
 */
#ifdef __bpf__
#define COMPAT_CORE __attribute__((preserve_access_index))
#else
#define COMPAT_CORE
#endif

struct cfs_bandwidth {
	u64 period, quota, burst; /* ns; 5.14 */
} COMPAT_CORE;

struct task_group___bandwidth {
	struct cfs_bandwidth cfs_bandwidth; /* CONFIG_CFS_BANDWIDTH */
} COMPAT_CORE;

struct task_group___before_6_18 {
	u32 scx_weight;
} COMPAT_CORE;

/* cpu.weight of the task_group at `tg`, as sched_ext keeps it; 0: it cannot be told. */
static __always_inline u32 compat_group_weight(u64 tg)
{
	u32 weight = 0, at;

	if (bpf_core_field_exists(((struct task_group *)0)->scx))
		at = bpf_core_field_offset(struct task_group, scx) +
		     bpf_core_field_offset(struct scx_task_group, weight);
	else if (bpf_core_field_exists(((struct task_group___before_6_18 *)0)->scx_weight))
		at = bpf_core_field_offset(struct task_group___before_6_18, scx_weight);
	else
		return 0;
	bpf_probe_read_kernel(&weight, sizeof(weight), (void *)(tg + at));
	return weight;
}

/*
 * cpu.max of the task_group at `tg`, by the fair scheduler's own copy. Answers whether that is
 * known.
 */
static __always_inline bool compat_group_bandwidth(u64 tg, u64 *period_us, u64 *quota_us, u64 *burst_us)
{
	u64 ns[3] = {};
	u64 at;

	if (!tg || !bpf_core_field_exists(((struct task_group___bandwidth *)0)->cfs_bandwidth))
		return false;
	at = tg + bpf_core_field_offset(struct task_group___bandwidth, cfs_bandwidth);
	bpf_probe_read_kernel(&ns[0], 8, (void *)(at + bpf_core_field_offset(struct cfs_bandwidth, period)));
	bpf_probe_read_kernel(&ns[1], 8, (void *)(at + bpf_core_field_offset(struct cfs_bandwidth, quota)));
	bpf_probe_read_kernel(&ns[2], 8, (void *)(at + bpf_core_field_offset(struct cfs_bandwidth, burst)));
	*period_us = ns[0] / 1000;
	*quota_us = ns[1] == ~0ULL ? ~0ULL : ns[1] / 1000;
	*burst_us = ns[2] / 1000;
	return true;
}

#endif
