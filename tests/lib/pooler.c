// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Activities of a pool (libreserv's reserv_pool_open(3)), by tests/guest/container_pool.
 *
 *   pooler many PARENT COUNT THREADS N  so many activities by as many threads, in a pool of so many
 *                                       containers; every other one by function. Prints how many
 *                                       there were, how often none was free, and how often two
 *                                       threads had the same container
 *   pooler forever PARENT COUNT         begins and ends until it is killed
 *   pooler heavy PARENT MS              works for so long in an activity; says `begins`; when it
 *                                       is told to it works on in another until it is killed
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <reserv.h>

#include "clock.h"

static struct reserv_pool *pool;
static unsigned long each_has, empty, twice;
static int owned[1024];

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, reserv_error());
	exit(1);
}

static void opened(const char *parent, const char *count, const char *share)
{
	struct reserv_pool_params params = { .share = share };

	pool = reserv_pool_open(parent, atoi(count), &params);
	if (!pool)
		fail("pool");
}

static void *many(void *unused)
{
	struct reserv_page *page = reserv_page();
	unsigned long i;
	int activity, slot;

	if (!page)
		fail("page");
	for (i = 0; i < each_has;) {
		activity = i & 1 ? reserv_begin(pool) : reserv_page_begin(page, pool);
		if (activity < 0) {
			if (errno != EAGAIN)
				fail("begin");
			__atomic_add_fetch(&empty, 1, __ATOMIC_RELAXED);
			sched_yield();
			continue;
		}
		slot = reserv_activity_slot(activity);
		if (__atomic_add_fetch(&owned[slot], 1, __ATOMIC_RELAXED) != 1)
			__atomic_add_fetch(&twice, 1, __ATOMIC_RELAXED);
		if (!(i % 977))
			sched_yield();
		__atomic_sub_fetch(&owned[slot], 1, __ATOMIC_RELAXED);
		if (i & 2 ? reserv_end(pool, activity) : reserv_page_end(page, pool, activity))
			fail("end");
		i++;
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	uint64_t until;
	int i, count, activity;

	if (argc < 4)
		return 2;
	if (!strcmp(argv[1], "forever")) {
		opened(argv[2], argv[3], 0);
		each_has = -1ul;
		printf("begins\n");
		fflush(stdout);
		many(0);
	} else if (!strcmp(argv[1], "heavy") && argc == 4) {
		opened(argv[2], "1", "10");
		activity = reserv_begin(pool);
		until = now_ns() + strtoull(argv[3], 0, 10) * 1000000;
		while (now_ns() < until)
			;
		if (activity < 0 || reserv_end(pool, activity) || reserv_page_settle(reserv_page()))
			fail("activity");
		printf("begins\n");
		fflush(stdout);
		getchar();
		if (reserv_begin(pool) != activity)
			fail("another");
		for (;;)
			;
	} else if (!strcmp(argv[1], "many") && argc == 6) {
		opened(argv[2], argv[3], 0);
		count = atoi(argv[4]);
		each_has = strtoul(argv[5], 0, 10) / count;
		for (i = 0; i < count && i < 64; i++)
			if (pthread_create(&threads[i], 0, many, 0))
				return 1;
		while (i--)
			pthread_join(threads[i], 0);
		if (reserv_pool_close(pool))
			fail("close");
		printf("%lu %lu %lu\n", each_has * count, empty, twice);
	} else {
		return 2;
	}
	return 0;
}
