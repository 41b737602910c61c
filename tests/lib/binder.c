// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread that binds itself to containers by calls.
 *
 *   binder rate N STEP_US CONTAINER…   binds to one after the other, in a random order that is the
 *                                      same each time, N times, and works for half of STEP_US to
 *                                      one and a half in each, by its place in the list; then
 *                                      unbinds and prints how long it ran in all, and worked for
 *                                      each, in ns
 *   binder how STRATEGY CONTAINER…     is busy until killed, and binds as the strategy says:
 *                                      turns      every 20 us, in turn
 *                                      tick       every 3.9 ms: just before a step ends
 *                                      away       in turn, and is bound to none in between
 *                                      naps       works for 300 us, binds elsewhere, sleeps for 50 us there
 *                                      storm      binds without working
 *                                      threads    makes a thread, which inherits the binding, and leaves it the work
 *                                      wrong      what cannot be bound to, between two that can
 *   binder cost CONTAINER CONTAINER    prints the price of a null system call, of a binding, of an
 *                                      unbinding with its binding, of asking, of a fcntl that
 *                                      asks us nothing, of a binding to the same again, in ns
 *   binder fcntl DIRECTORY             the first, and such a fcntl's
 *
 * A container is a path of its directory. What is worked is counted by the clock, without the gaps
 * in which this thread did not run.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <reserv.h>

#include "spin.h"
#include "clock.h"

/* nothing that this program does between two looks at the clock takes so long */
#define GAP_NS 20000
#define MOST 4096

static int fds[MOST], count;
static uint64_t worked[MOST];

static uint64_t of_thread(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static long command(int fd, unsigned command)
{
	return syscall(SYS_fcntl, fd, command, 0);
}

static void bind_to(int at)
{
	if (command(fds[at], F_RESERV_BIND) != 1)
		fail("bind");
}

/* Works for so long; answers when it ended. */
static uint64_t work(uint64_t last, uint64_t ns, uint64_t *into)
{
	uint64_t now, had = 0;

	while (had < ns) {
		straight_line();
		now = now_ns();
		if (now - last < GAP_NS)
			had += now - last;
		last = now;
	}
	*into += had;
	return last;
}

static void rate(int n, uint64_t step)
{
	uint32_t random = 12345;
	struct timespec nap = { 0, 1000000 };
	uint64_t last, before, cpu, ignored = 0;
	int i, next, at = 0;

	work(now_ns(), 20000000, &ignored);
	nanosleep(&nap, 0);
	bind_to(0);
	cpu = of_thread();
	last = now_ns();
	for (i = 0; i < n; i++) {
		last = work(last, step / 2 + step * at / count, &worked[at]);
		random = random * 1664525 + 1013904223;
		before = last;
		next = (random >> 8) % count;
		bind_to(next);
		last = now_ns();
		/*
		 * Of the call the first half belongs to the former container, the other to the new
		 * one.
		 */
		if (last - before < GAP_NS) {
			worked[at] += (last - before) / 2;
			worked[next] += (last - before) / 2;
		}
		at = next;
	}
	if (command(fds[0], F_RESERV_UNBIND) != 1)
		fail("unbind");
	printf("%llu\n", (unsigned long long)(of_thread() - cpu));
	for (i = 0; i < count; i++)
		printf("%llu\n", (unsigned long long)worked[i]);
}

static void *one_second(void *unused)
{
	uint64_t ignored = 0;

	work(now_ns(), 20000000, &ignored);
	return unused;
}

static void how(const char *strategy)
{
	struct timespec nap = { 0, 50000 };
	uint64_t ignored = 0;
	pthread_t thread;
	int i;

	for (i = 0;; i = (i + 1) % count) {
		bind_to(i);
		if (!strcmp(strategy, "turns")) {
			work(now_ns(), 20000, &ignored);
		} else if (!strcmp(strategy, "tick")) {
			work(now_ns(), 3900000, &ignored);
		} else if (!strcmp(strategy, "away")) {
			work(now_ns(), 100000, &ignored);
			if (command(fds[i], F_RESERV_UNBIND) != 1)
				fail("unbind");
		} else if (!strcmp(strategy, "naps")) {
			work(now_ns(), 300000, &ignored);
			bind_to((i + 1) % count);
			nanosleep(&nap, 0);
		} else if (!strcmp(strategy, "threads")) {
			if (pthread_create(&thread, 0, one_second, 0) || pthread_join(thread, 0))
				fail("a thread");
		} else if (!strcmp(strategy, "wrong")) {
			if (command(0, F_RESERV_BIND) == 1 || command(-1, F_RESERV_BIND) == 1 || command(9999, F_RESERV_BIND) == 1)
				fail("what is no container");
			work(now_ns(), 20000, &ignored);
		}
	}
}

static double each(int n, int what)
{
	double best = 1e9, ns;
	uint64_t from;
	int i, k;

	for (k = 0; k < 5; k++) {
		from = now_ns();
		for (i = 0; i < n; i++) {
			if (what == 0)
				syscall(SYS_getppid);
			else if (what == 1)
				bind_to(i & 1);
			else if (what == 2 && (command(fds[0], F_RESERV_UNBIND) != 1 || command(fds[0], F_RESERV_BIND) != 1))
				fail("unbind");
			else if (what == 3 && command(fds[0], F_RESERV_BOUND) < 1)
				fail("bound");
			else if (what == 4 && command(fds[0], F_GETFD) < 0)
				fail("getfd");
			else if (what == 5)
				bind_to(0);
		}
		ns = (double)(now_ns() - from) / n;
		if (ns < best)
			best = ns;
	}
	return best;
}

int main(int argc, char **argv)
{
	int i, first = argc > 1 && !strcmp(argv[1], "rate") ? 4 : argc > 1 && !strcmp(argv[1], "how") ? 3 : 2;

	if (argc <= first)
		return 2;
	for (i = first; i < argc && count < MOST; i++) {
		fds[count] = open(argv[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fds[count++] < 0)
			fail(argv[i]);
	}
	if (!strcmp(argv[1], "rate")) {
		rate(atoi(argv[2]), strtoull(argv[3], 0, 10) * 1000);
	} else if (!strcmp(argv[1], "how")) {
		how(argv[2]);
	} else if (!strcmp(argv[1], "fcntl")) {
		printf("null %.1f fcntl %.1f\n", each(20000, 0), each(20000, 4));
	} else {
		bind_to(0);
		printf("null %.1f bind %.1f", each(20000, 0), each(20000, 1));
		printf(" fcntl %.1f again %.1f", each(20000, 4), each(20000, 5));
		printf(" unbind_bind %.1f bound %.1f\n", each(20000, 2), each(20000, 3));
	}
	return 0;
}
