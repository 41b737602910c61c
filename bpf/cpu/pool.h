/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who gets an item where they run short. There are as many as the tree was made for
 * (threads_max), and a fork for which there is none fails with EAGAIN: for everybody, if one user
 * could have them all.
 *
 *   root and kernel threads  whatever is free;
 *   a user                   another one while he has fewer than are free beyond the reserve of the
 *                            first, a sixteenth of all.
 *
 * So one user has half of what others leave, two a third each, and whoever comes next finds as
 * many free as each of those before him has (dynamic thresholds: Choudhury and Hahne,
 * INFOCOM'96). A number that stands fast would be too small for one alone, or too large for two.
 *
 * Whose a thread is, account.h says; it stays so over setuid. Threads that are there when the
 * scheduler comes all have an item while there are any.
 *
 * Invariant: an account has as many threads as its entry says, and one that has none has no
 * entry. So there is room for each: every entry is some item's, and the table is larger than the
 * pool by one (load.rs), for who is counted before he finds that no item is free. Entries that
 * stayed would be used up by whoever may fork once under each of many uids. All changes are made
 * under the tree's lock, for an entry that is found, counted up and taken out by several at once
 * has no right number.
 */
#ifndef RESERV_CPU_POOL_H
#define RESERV_CPU_POOL_H

#include "../account.h"

#define RC_NO_ACCOUNT ((u32)-1) /* no user's number */

/* Threads by user; root's and the kernel's, for which nobody asks, are not there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, RC_THREADS_MAX + 1);
	__type(key, u32);
	__type(value, u32);
} accounts SEC(".maps");

u32 threads_live; /* that have an item */

static __always_inline u32 rc_account_of(struct task_struct *p)
{
	return p->flags & PF_KTHREAD ? 0 : account_of(p->real_cred);
}

/*
 * One more of the account, if it may have it; `must`: it may. Answers the account that it was
 * counted for, or RC_NO_ACCOUNT. Under the lock. Where the kernel has no memory for an entry a
 * thread that must have an item is counted as root's.
 */
static __noinline u32 rc_account_takes(u32 account, bool must)
{
	u32 one = 1, live = threads_live, all = threads_max - threads_max / ACCOUNT_RESERVE_PART;
	u32 *had = account ? bpf_map_lookup_elem(&accounts, &account) : 0;

	if (account && !must && (live >= all || (had ? *had : 0) >= all - live))
		return RC_NO_ACCOUNT;
	if (had) {
		++*had;
	} else if (account && bpf_map_update_elem(&accounts, &account, &one, BPF_NOEXIST)) {
		if (!must)
			return RC_NO_ACCOUNT;
		account = 0;
	}
	threads_live = live + 1;
	return account;
}

/* One less, under the lock. */
static __noinline int rc_account_gone(u32 account)
{
	u32 *had = account ? bpf_map_lookup_elem(&accounts, &account) : 0;

	if (had && !--*had)
		bpf_map_delete_elem(&accounts, &account);
	threads_live--;
	return 0;
}

static long rc_account_forgotten(void *map, u32 *account, u32 *had, void *ctx)
{
	bpf_map_delete_elem(&accounts, account);
	return 0;
}

/*
 * Nobody has an item: rc_init, before anybody gets one. Who went without the lock is still counted.
 */
static __always_inline void rc_accounts_begin(void)
{
	bpf_for_each_map_elem(&accounts, rc_account_forgotten, 0, 0);
	threads_live = 0;
}

#endif
