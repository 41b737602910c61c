// SPDX-License-Identifier: MIT OR Apache-2.0
// swapload MB THREADS: threads go round through MB of memory together, look whether a page is as it
// was left, and change it. (Had each a part of its own, one whose part is in memory would keep it
// there, and the others would have none.) On each line of input prints how many pages were gone
// through, how many were wrong, and the longest that one took, in ms, since the line before. Ends
// with its input. The rest of the program stays in memory.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define WORDS (PAGE / 8)

static uint64_t *memory;
static uint32_t *version; // of each page
static atomic_flag *busy; // somebody is at this page
static long pages;
static atomic_long next, touched, wrong, longest;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

static long now_ms(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static uint64_t word(long page, uint32_t of, long i)
{
	return ((uint64_t)page << 32 | of) * 0x9e3779b97f4a7c15u + (uint64_t)i;
}

static void touch(long page)
{
	uint64_t *at = memory + page * WORDS;
	long began = now_ms(), ms, was, bad = 0;

	if (version[page])
		for (long i = 0; i < WORDS; i++)
			bad |= at[i] != word(page, version[page], i);
	version[page]++;
	for (long i = 0; i < WORDS; i++)
		at[i] = word(page, version[page], i);
	wrong += bad;
	touched++;
	ms = now_ms() - began;
	was = longest;
	while (ms > was && !atomic_compare_exchange_weak(&longest, &was, ms))
		;
}

static void *go(void *arg)
{
	for (;;) {
		long page = next++ % pages;

		if (atomic_flag_test_and_set(&busy[page]))
			continue;
		touch(page);
		atomic_flag_clear(&busy[page]);
	}
	return arg;
}

int main(int argc, char **argv)
{
	char line[16];

	if (argc != 3)
		return 2;
	pages = atol(argv[1]) * (1024 * 1024 / PAGE);
	version = calloc(pages, sizeof(*version));
	busy = calloc(pages, sizeof(*busy));
	if (!version || !busy || mlockall(MCL_CURRENT))
		fail("memory");
	memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || madvise(memory, pages * PAGE, MADV_NOHUGEPAGE))
		fail("memory");
	for (long i = 0; i < atol(argv[2]); i++) {
		pthread_t thread;

		if (pthread_create(&thread, 0, go, 0))
			fail("thread");
	}
	while (fgets(line, sizeof(line), stdin)) {
		printf("%ld %ld %ld\n", touched, wrong, atomic_exchange(&longest, 0));
		fflush(stdout);
	}
	return 0;
}
