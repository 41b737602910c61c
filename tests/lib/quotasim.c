// SPDX-License-Identifier: GPL-2.0-only
/* The tags' programs without a kernel (tagsim.c), and what tests/host/tag_quota asks of their
 * accounts. */
#include "tagsim.c"
#include <pthread.h>

void q_namespace(int tid, u32 uid, int depth, u32 owner)
{
	native_namespace(tid, uid, depth, owner);
}

/* Entries that are counted of a map, and what all accounts of it say together. */
u64 q_counted(u32 table)
{
	return tag_counted[table];
}

u64 q_said(u32 table)
{
	u64 sum = 0;

	for (u32 at = 0; at < RT_ACCOUNT_END; at++) {
		u64 word = tag_accounts[at];
		u32 of = at < RT_ACCOUNT_FIRST ? at - RT_ACCOUNT_SHARED : word >> 30 & (RT_TABLES - 1);

		sum += of == table ? word & RT_ACCOUNT_NUMBER : 0;
	}
	return sum;
}

/* Users that are counted together. */
u64 q_shared(u32 table)
{
	return tag_accounts[RT_ACCOUNT_SHARED + table];
}

/* One entry more in both maps for each of so many users from this one on. */
void q_users(u32 first, u32 count)
{
	for (u32 user = first; user < first + count; user++)
		for (u32 table = 0; table < 2; table++)
			if (rt_account_take(user, table) < 0)
				abort();
}

u64 q_lost(void)
{
	return lost;
}

/* Threads of several users take and give entries at once. How often the sum was above the bound. */
#define RACERS 4
static u32 rounds;
static u64 wrong;

static void *race(void *seed)
{
	u64 z = (u64)seed * 0x9e3779b97f4a7c15ULL;
	int mine[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };

	for (u32 k = 0; k < rounds; k++) {
		u32 at = (z = z * 6364136223846793005ULL + 1442695040888963407ULL) >> 61, user = 1000 + (z >> 40) % 24;

		if (mine[at] >= 0) {
			rt_account_give(mine[at], RT_OF_SOCKS);
			mine[at] = -1;
		} else {
			mine[at] = rt_account_take(user, RT_OF_SOCKS);
		}
		if (tag_counted[RT_OF_SOCKS] > 8 * RACERS)
			__sync_fetch_and_add(&wrong, 1);
	}
	for (u32 at = 0; at < 8; at++)
		if (mine[at] >= 0)
			rt_account_give(mine[at], RT_OF_SOCKS);
	return 0;
}

u64 q_race(u32 many)
{
	pthread_t thread[RACERS];

	rounds = many;
	for (u64 i = 0; i < RACERS; i++)
		if (pthread_create(&thread[i], 0, race, (void *)(i + 1)))
			abort();
	for (u32 i = 0; i < RACERS; i++)
		pthread_join(thread[i], 0);
	return wrong;
}
