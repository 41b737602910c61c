// SPDX-License-Identifier: MIT OR Apache-2.0
// How long who is woken waits for the CPU: messengers and workers, as in schbench (which no
// distribution carries as a package, and which is not copied here). Written anew: the same pattern,
// not the same numbers.
//
//   wakeup MESSENGERS WORKERS WORK_US THINK_US SECONDS [HOGS]
//
// Each messenger has WORKERS workers. A worker who is woken notes how long it took since the
// messenger set about waking it, works for WORK_US of CPU time, sleeps for THINK_US (0: not at
// all), reports to its messenger and waits. HOGS threads beside them are always busy. Prints one
// line: how many wake-ups, and percentiles of the wait in ns.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

#define MOST 200000

struct worker {
	struct messenger *of;
	struct worker *next;
	_Atomic uint32_t go;
	uint64_t woken;
	uint32_t *wait, n;
};
struct messenger {
	_Atomic(struct worker *) done;
	_Atomic uint32_t go;
};

static uint64_t work_ns, think_ns;
static _Atomic int measure;

static uint64_t clock_ns(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void await(_Atomic uint32_t *word)
{
	while (!atomic_exchange(word, 0))
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
}

static void wake(_Atomic uint32_t *word)
{
	atomic_store(word, 1);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (;;) {
		uint64_t begin;

		w->next = atomic_load(&w->of->done);
		while (!atomic_compare_exchange_weak(&w->of->done, &w->next, w))
			;
		wake(&w->of->go);
		await(&w->go);
		if (atomic_load(&measure) && w->n < MOST)
			w->wait[w->n++] = clock_ns(CLOCK_MONOTONIC) - w->woken;
		begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		while (clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin < work_ns)
			;
		if (think_ns) {
			struct timespec t = { think_ns / 1000000000ull, think_ns % 1000000000ull };

			nanosleep(&t, 0);
		}
	}
	return 0;
}

static void *message(void *arg)
{
	struct messenger *m = arg;

	for (;;) {
		struct worker *w, *next;

		await(&m->go);
		for (w = atomic_exchange(&m->done, 0); w; w = next) {
			next = w->next;
			w->woken = clock_ns(CLOCK_MONOTONIC);
			wake(&w->go);
		}
	}
	return 0;
}

static void *hog(void *arg)
{
	for (;;)
		straight_line();
	return arg;
}

static void start(void *(*what)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, 0, what, arg)) {
		perror("pthread_create");
		exit(1);
	}
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int nm = argc > 5 ? atoi(argv[1]) : 0, nw = argc > 5 ? atoi(argv[2]) : 0, hogs = argc > 6 ? atoi(argv[6]) : 0, k = 0;
	struct messenger *m = calloc(nm, sizeof(*m));
	struct worker *w = calloc((size_t)nm * nw, sizeof(*w));
	uint32_t *all, n = 0;

	if (nm < 1 || nw < 1 || !m || !w) {
		fprintf(stderr, "wakeup MESSENGERS WORKERS WORK_US THINK_US SECONDS [HOGS]\n");
		return 2;
	}
	work_ns = atoll(argv[3]) * 1000;
	think_ns = atoll(argv[4]) * 1000;
	for (int i = 0; i < nm * nw; i++) {
		w[i].of = &m[i / nw];
		w[i].wait = calloc(MOST, sizeof(uint32_t));
		/* Touched now: a page fault is not a wait for the CPU. */
		for (int j = 0; w[i].wait && j < MOST; j += 1024)
			w[i].wait[j] = 1;
	}
	for (int i = 0; i < hogs; i++)
		start(hog, 0);
	for (int i = 0; i < nm; i++)
		start(message, &m[i]);
	for (int i = 0; i < nm * nw; i++)
		start(work, &w[i]);
	usleep(500000);
	atomic_store(&measure, 1);
	usleep(atof(argv[5]) * 1e6);
	atomic_store(&measure, 0);
	for (int i = 0; i < nm * nw; i++)
		n += w[i].n;
	all = calloc(n + 1, sizeof(*all));
	for (int i = 0; all && i < nm * nw; i++)
		for (uint32_t j = 0; j < w[i].n && k < (int)n; j++)
			all[k++] = w[i].wait[j];
	if (!all || !n) {
		fprintf(stderr, "nobody was woken\n");
		return 1;
	}
	qsort(all, n, sizeof(*all), by_size);
	printf("wakeups %u p50 %u p75 %u p90 %u p95 %u p99 %u p999 %u max %u\n", n, all[n / 2], all[n / 4 * 3], all[n / 10 * 9],
	       all[(uint64_t)n * 95 / 100], all[(uint64_t)n * 99 / 100], all[(uint64_t)n * 999 / 1000], all[n - 1]);
	fflush(stdout);
	_exit(0);
}
