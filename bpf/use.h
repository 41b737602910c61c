/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Who may use a queue, as the daemon tells it (crates/plane/src/uses.rs is the Rust face) and every
 * driver's programs ask it: whenever a tag is set, whoever opened the descriptor of the queue.
 */
#ifndef RESERV_USE_H
#define RESERV_USE_H

#define RT_RULES_MAX 16

enum rt_rule_names { RT_UID = 1, RT_GID = 2, RT_PID = 4 };

/* Who may, whatever else is true of them: the user, root. */
enum rt_may { RT_MAY_USER = 1, RT_MAY_ROOT = 2 };

/* The first rule all of whose named parts fit decides; when none fits the answer is no. */
struct rt_rule {
	u32 names; /* which of the following must fit; 0: everybody */
	u32 allow;
	u32 uid, gid; /* of the caller for file access; gid also among its supplementary groups */
	u32 tgid, pad;
	u64 start; /* of that process, field 22 of /proc/PID/stat */
};

struct rt_use {
	u32 count;
	u32 may, user; /* what follows from the rules for these two, as a node has it at hand */
	u32 pad;
	struct rt_rule rule[RT_RULES_MAX];
};

/* Whether a thread is in a group: for file access, or by its supplementary ones. */
static __noinline int rt_in_group(struct task_struct *me, u32 gid)
{
	const struct cred *cred = me->cred;
	struct group_info *groups = cred->group_info;
	u32 count = groups->ngroups, one, i;

	if (cred->fsgid.val == gid)
		return 1;
	bpf_for(i, 0, 65536) {
		if (i >= count)
			break;
		if (bpf_probe_read_kernel(&one, sizeof(one), &groups->gid[i]))
			break;
		if (one == gid)
			return 1;
	}
	return 0;
}

/* What a rule says to a thread: 1 yes, 0 no, -1 nothing, for it is about others. */
static __always_inline int rt_rule_says(struct rt_rule *r, struct task_struct *me, u32 uid)
{
	if ((r->names & RT_UID) && r->uid != uid)
		return -1;
	if ((r->names & RT_PID) &&
	    (r->tgid != (u32)me->tgid || r->start != me->group_leader->start_boottime / 10000000))
		return -1;
	if ((r->names & RT_GID) && !rt_in_group(me, r->gid))
		return -1;
	return r->allow != 0;
}

/*
 * Whether a thread, whose user for file access is `uid`, fits. The first two rules are most lists;
 * the kernel's iterator over the others is several calls by itself.
 */
static __always_inline bool rt_use_allows(struct rt_use *use, struct task_struct *me, u32 uid)
{
	u32 i, at, count = use->count;
	int says;

	if (count > 0) {
		says = rt_rule_says(&use->rule[0], me, uid);
		if (says >= 0)
			return says;
	}
	if (count > 1) {
		says = rt_rule_says(&use->rule[1], me, uid);
		if (says >= 0)
			return says;
	}
	if (count > 2) {
		bpf_for(i, 2, RT_RULES_MAX) {
			at = i;
			if (at >= count)
				break;
			/*
			 * The compiler knows the loop's bounds, leaves the mask out, and 6.12's
			 * verifier does not follow its reasons.
			 */
			asm volatile("" : "+r"(at));
			says = rt_rule_says(&use->rule[at & (RT_RULES_MAX - 1)], me, uid);
			if (says >= 0)
				return says;
		}
	}
	return uid == 0;
}

#endif
