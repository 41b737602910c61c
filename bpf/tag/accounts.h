/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who gets an entry in `files`, `socks` and `lists`, where they may run short. In each of them
 *
 *   root  has whatever is free;
 *   a user another one while he has fewer than are free beyond root's reserve, a sixteenth of all.
 *
 * So one user has half of what others leave, as of the CPU's threads (bpf/cpu/pool.h). Tags at a
 * file's own place in `hot` are not counted: there is one for each file, and nobody has it
 * instead of another.
 *
 * An entry is its account's until it goes. An account is a word of a table: the user, which of
 * the maps, and how many entries. It changes by compare and exchange only, so user and number
 * are of one moment. One with no entry is free for any user; nothing is ever taken out, and a
 * search ends at a word that was never used. Where all words at which a user may stand are in use
 * he is counted in one account with all others of whom that is true, under the same bound; of the
 * 65 536 users of a range of uids, all with entries of files and sockets, there is none such.
 *
 * Invariants: an account's number is that of the entries whose `account` it is. A user has one
 * account for each map; two at once only where two threads took their first entries at the same
 * moment while a word between was given back, and then the second grows no more.
 *
 * Functions that take numbers only are global, here and in the other files: the verifier goes
 * through each of them once for a program. A static one it follows again from each state in which
 * it is called; loading the programs took three to four times as long so.
 */

enum rt_table { RT_OF_FILES, RT_OF_SOCKS, RT_OF_LISTS };
#define RT_TABLES 4 /* a power of two */

#ifndef RT_ACCOUNT_BITS
#define RT_ACCOUNT_BITS 18
#endif
#define RT_ACCOUNT_LOOKS 64 /* words from a user's first one on at which he may stand */
#define RT_ACCOUNT_TRIES 64 /* each is lost to a thread of the same user or place */
#define RT_ACCOUNT_SHARED 1 /* for `files`; the next ones for `socks` and `lists` */
#define RT_ACCOUNT_FIRST 4
#define RT_ACCOUNT_END (RT_ACCOUNT_FIRST + (1 << RT_ACCOUNT_BITS) + RT_ACCOUNT_LOOKS)
#define RT_ACCOUNT_NUMBER 0x3fffffffULL
const volatile u32 tags_max[RT_TABLES] SEC(".rodata.tags") = { RT_FILES_MAX, RT_SOCKS_MAX, RT_LISTS_MAX };
u64 tag_accounts[RT_ACCOUNT_END]; /* user << 32 | table << 30 | entries; [0]: root's, none */
u64 tag_counted[RT_TABLES]; /* entries of each map, root's too */

/*
 * Its word. One register for comparison and access, and nothing else that the compiler could
 * compare in the same step: before 6.14 the verifier does not see that a copy of what was compared,
 * or its sum with a number, is as small.
 */
static __always_inline u64 *rt_account_word(u64 at)
{
	asm volatile("" : "+r"(at));
	return at < RT_ACCOUNT_END ? &tag_accounts[at] : 0;
}

static __always_inline u64 rt_account_name(u32 user, u32 table)
{
	return (u64)user << 32 | (u64)table << 30;
}

/* Where the account stands, or may; else that of all who have no place. */
__noinline u32 rt_account_find(u64 name)
{
	u64 spread = (name >> 30) * 0x9e3779b97f4a7c15ULL;
	u32 free = 0, i, at, from = RT_ACCOUNT_FIRST + (spread >> (64 - RT_ACCOUNT_BITS));
	volatile u64 *place;
	u64 word;

	bpf_for(i, 0, RT_ACCOUNT_LOOKS) {
		at = from + i;
		place = rt_account_word(at);
		if (!place)
			break;
		word = *place;
		if (word && (word & ~RT_ACCOUNT_NUMBER) == name)
			return at;
		if (!free && !(word & RT_ACCOUNT_NUMBER))
			free = at;
		if (!word)
			break;
	}
	return free ? free : RT_ACCOUNT_SHARED + (name >> 30 & (RT_TABLES - 1));
}

/*
 * One more entry of a map is a user's: the account that it is counted in, or -ENOSPC. Whoever
 * makes no entry after all, or takes it away, gives it back.
 */
__noinline int rt_account_take(u32 user, u32 table)
{
	u64 most = tags_max[table & (RT_TABLES - 1)], name = rt_account_name(user, table);
	u64 all = most - most / ACCOUNT_RESERVE_PART, live, word, now, had, *place;
	u32 at = 0, tries;

	table &= RT_TABLES - 1;
	if (!user) {
		__sync_fetch_and_add(&tag_counted[table], 1);
		return 0;
	}
	bpf_for(tries, 0, RT_ACCOUNT_TRIES) {
		at = rt_account_find(name);
		place = rt_account_word(at);
		if (!place)
			break;
		live = *(volatile u64 *)&tag_counted[table];
		word = *(volatile u64 *)place;
		now = at < RT_ACCOUNT_FIRST ? 0 : name;
		had = word & RT_ACCOUNT_NUMBER;
		if (had && (word & ~RT_ACCOUNT_NUMBER) != now)
			continue; /* another user has taken the place */
		if (live >= all || had >= all - live)
			return -E_NOSPC;
		if (__sync_val_compare_and_swap(place, word, now + had + 1) != word)
			continue;
		__sync_fetch_and_add(&tag_counted[table], 1);
		return at;
	}
	return -E_NOSPC;
}

/* One more of an account that has an entry, at the same bound: 0 or -ENOSPC. */
__noinline int rt_account_join(u32 account, u32 table)
{
	u64 most = tags_max[table & (RT_TABLES - 1)];
	u64 all = most - most / ACCOUNT_RESERVE_PART, live, *place = account ? rt_account_word(account) : 0;

	live = *(volatile u64 *)&tag_counted[table & (RT_TABLES - 1)];
	if (place) {
		if (live >= all || (*(volatile u64 *)place & RT_ACCOUNT_NUMBER) >= all - live)
			return -E_NOSPC;
		__sync_fetch_and_add(place, 1);
	}
	__sync_fetch_and_add(&tag_counted[table & (RT_TABLES - 1)], 1);
	return 0;
}

__noinline int rt_account_give(u32 account, u32 table)
{
	u64 *place = account ? rt_account_word(account) : 0;

	if (place)
		__sync_fetch_and_add(place, -1);
	__sync_fetch_and_add(&tag_counted[table & (RT_TABLES - 1)], -1);
	return 0;
}

/*
 * Who pays for a tag: who makes it. Where reservd does, for whoever asked it, it is who opened
 * the file, `by`.
 */
static __noinline u32 rt_payer(u64 by)
{
	const struct cred *cred = bpf_get_current_task_btf()->real_cred;

	if (by)
		cred = RT_CAST(file, (void *)by)->f_cred;

	return account_of(RT_CAST(cred, cred));
}
