/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who gets an item where they run short. There are as many as the tree was made for (threads_max), and
 * a fork for which there is none fails with EAGAIN: for everybody, if one user could have them all.
 *
 *   root and kernel threads  whatever is free;
 *   a user                   another one while he has fewer than are free beyond the reserve of the
 *                            first, a sixteenth of all.
 *
 * So one user has half of what others leave, two a third each, and whoever comes next finds as many
 * free as each of those before him has (dynamic thresholds: Choudhury and Hahne, INFOCOM'96). A number
 * that stands fast would be too small for one alone, or too large for two.
 *
 * Whose a thread is: its real user's; in a user name space that of who made the outermost one, for
 * numbers cost nothing there, unless root did (then the numbers are root's to give). It stays so over
 * setuid. Threads that are there when the scheduler comes all have an item while there are any.
 */
#ifndef RESERV_CPU_POOL_H
#define RESERV_CPU_POOL_H

#define RC_RESERVE_PART 16
#define RC_USER_DEPTH 40 /* more than the kernel nests user name spaces */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u32);
} accounts SEC(".maps");

u32 threads_live; /* that have an item */

static __noinline u32 rc_account_of(struct task_struct *p)
{
	const struct cred *cred = p->real_cred;
	struct user_namespace *ns = cred->user_ns;
	u32 uid = cred->uid.val, owner;
	int i;

	if (p->flags & PF_KTHREAD)
		return 0;
	if (!ns->level)
		return uid;
	bpf_for(i, 0, RC_USER_DEPTH) {
		if (ns->level <= 1)
			break;
		ns = ns->parent;
	}
	owner = ns->owner.val;
	return owner ? owner : uid;
}

/* One more of the account, if it may have it; `must`: it may. */
static __noinline bool rc_account_takes(u32 account, bool must)
{
	u32 none = 0, *had, live = threads_live, all = threads_max - threads_max / RC_RESERVE_PART;

	had = bpf_map_lookup_elem(&accounts, &account);
	if (!had) {
		bpf_map_update_elem(&accounts, &account, &none, BPF_NOEXIST);
		had = bpf_map_lookup_elem(&accounts, &account);
	}
	if (!must && account && (!had || live >= all || *had >= all - live))
		return false;
	if (had)
		__sync_fetch_and_add(had, 1);
	__sync_fetch_and_add(&threads_live, 1);
	return true;
}

static __noinline int rc_account_gone(u32 account)
{
	u32 *had = bpf_map_lookup_elem(&accounts, &account);

	if (had)
		__sync_fetch_and_add(had, -1);
	__sync_fetch_and_add(&threads_live, -1);
	return 0;
}

#endif
