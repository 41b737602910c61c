// SPDX-License-Identifier: GPL-2.0-only
/*
 * A small scheduler of sched_ext that is not Reserv: every thread runs in turn, 3 ms each. It
 * writes its own word into each thread and looks at it, and at the slice that it gave, whenever the
 * thread runs and stops. `full_cpu --foreign` loads it and prints what it counts.
 */
typedef unsigned long long u64;
typedef unsigned int u32;
#define SEC(name) __attribute__((section(name), used))
#define KERNELS __attribute__((preserve_access_index))
#define SLICE 3000000
#define LOCAL 0x8000000000000002ULL
/*
 * The last one that wants the CPU, exiting and pinned threads: else the kernel gives its own slice.
 */
#define ENQ_ALL (1 << 1 | 1 << 2 | 1 << 4)
#define WORD 0x07e5ULL << 48

struct sched_ext_entity {
	u64 slice, dsq_vtime;
} KERNELS;
struct task_struct {
	int pid;
	struct sched_ext_entity scx;
} KERNELS;
struct scx_exit_info;
struct sched_ext_ops {
	int (*select_cpu)(struct task_struct *p, int prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, _Bool runnable);
	void (*enable)(struct task_struct *p);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	char name[128];
};

void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) SEC(".ksyms");

/* Looks at a thread; another word there than ours; another slice; ends. */
u64 counts[4];

static inline u64 word(struct task_struct *p)
{
	return WORD | (u32)p->pid;
}

static inline void look(struct task_struct *p, int slice)
{
	__sync_fetch_and_add(&counts[0], 1);
	if (p->scx.dsq_vtime != word(p))
		__sync_fetch_and_add(&counts[1], 1);
	if (slice && p->scx.slice > SLICE)
		__sync_fetch_and_add(&counts[2], 1);
}

SEC("struct_ops/select_cpu") int other_select_cpu(u64 *ctx)
{
	return (int)ctx[1];
}

SEC("struct_ops/enqueue") int other_enqueue(u64 *ctx)
{
	scx_bpf_dsq_insert((struct task_struct *)ctx[0], LOCAL, SLICE, ctx[1]);
	return 0;
}

SEC("struct_ops/running") int other_running(u64 *ctx)
{
	look((struct task_struct *)ctx[0], 1);
	return 0;
}

SEC("struct_ops/stopping") int other_stopping(u64 *ctx)
{
	look((struct task_struct *)ctx[0], 0);
	return 0;
}

SEC("struct_ops/enable") int other_enable(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];

	p->scx.dsq_vtime = word(p);
	return 0;
}

SEC("struct_ops/exit") int other_exit(u64 *ctx)
{
	__sync_fetch_and_add(&counts[3], 1);
	return 0;
}

SEC(".struct_ops.link") struct sched_ext_ops other = {
	.select_cpu = (void *)other_select_cpu,
	.enqueue = (void *)other_enqueue,
	.running = (void *)other_running,
	.stopping = (void *)other_stopping,
	.enable = (void *)other_enable,
	.exit = (void *)other_exit,
	.flags = ENQ_ALL,
	.name = "other",
};

char _license[] SEC("license") = "GPL";
