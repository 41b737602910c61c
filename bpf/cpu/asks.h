/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a thread may ask for itself. Everybody in a queue has its class heed what he asks for
 * (F_RESERV_SETPARAM), so that must give no more than the kernel would let him have by other means:
 *
 *   weight     what his nice value gives him, or the lowest that RLIMIT_NICE lets him set, if that
 *              is more; in SCHED_IDLE its weight. Ratios count, so among threads of one's own every
 *              division can be had downward. It holds at each moment: a thread that is reniced
 *              later has no more than its new value gives it (rs_item_due);
 *   priority   the default, or lower;
 *   period     where he may use the queue (struct rt_use; root where nothing was told), or by the
 *              descriptor of its directory with which he could tag himself. The guarantee bounds
 *              it.
 *
 * Who has CAP_SYS_NICE in the first user name space may set any nice value, and here asks for
 * anything.
 */
#ifndef RESERV_CPU_ASKS_H
#define RESERV_CPU_ASKS_H

#define RC_CAP_SYS_NICE 23
#define RC_RLIMIT_NICE 13

/* The kernel's weights of nice -20 … 19 (sched_prio_to_weight), relative to 1024. */
static const u32 rc_nice[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
	3906,  3121,  2501,  1991,  1586,  1277,  1024,	 820,	655,   526,   423,  335,  272,	215,
	172,   137,   110,   87,    70,	   56,	  45,	 36,	29,    23,    18,   15,
};

static __always_inline u32 rc_weight_of(struct task_struct *p, u32 *flags)
{
	u32 i = p->static_prio - 100;

	*flags = 0;
	if (p->policy == SCHED_IDLE) {
		*flags = RS_ITEM_BACKGROUND;
		return 3 * RS_WEIGHT_ONE / 1024;
	}
	if (p->policy == SCHED_BATCH)
		*flags = RS_ITEM_BATCH;
	if (i >= 40)
		i = 20;
	return (u64)rc_nice[i] * RS_WEIGHT_ONE / 1024;
}

/*
 * The most that a weight of the running thread's own counts for, beside that of its nice value; 0:
 * anything.
 */
static __noinline u32 rc_weight_most(void)
{
	struct task_struct *me = bpf_get_current_task_btf();
	const struct cred *cred = me->cred;
	u64 limit;
	u32 i;

	if (!cred->user_ns->level && (cred->cap_effective.val >> RC_CAP_SYS_NICE & 1))
		return 0;
	limit = me->signal->rlim[RC_RLIMIT_NICE].rlim_cur;
	if (!limit)
		return 1;
	i = limit < 40 ? 40 - limit : 0;
	return (u64)rc_nice[i] * RS_WEIGHT_ONE / 1024;
}

#endif
