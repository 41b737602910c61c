// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread that binds itself to containers by a page: libreserv's reserv_page_work().
 *
 *   pager rate N STEP_US CONTAINER…   as binder.c's
 *   pager how STRATEGY CONTAINER…     is busy until killed, and binds as the strategy says:
 *                                     turns    every 20 us, in turn
 *                                     tick     every 3.9 ms: just before a step ends
 *                                     naps     works for 300 us, binds elsewhere, sleeps for 50 us
 *                                     storm    binds without working
 *                                     full     fills the page and yields, without working
 *                                     past     says that it bound itself long ago
 *                                     future   … and long from now
 *                                     back     … in an order that goes back
 *                                     lost     counts more entries than there are
 *                                     random   writes anything everywhere
 *                                     rates    has anchors of any rate
 *                                     empty    names slots in which nothing stands
 *                                     gone     takes the page's memory away, and brings it back
 *                                     raw      a page at the end of memory that is there
 *                                     threads  makes a thread, which is bound as it is
 *   pager cost CONTAINER CONTAINER    prints the price of a null system call, of a binding in the
 *                                     page alone, with the reading of it, of one by function, of a
 *                                     call that lets it be read, in ns
 *   pager reading CONTAINER…          works for 6 us for each of 255 containers, and prints how
 *                                     long it took at most to have that read, of five times, in ns
 *   pager state COMMAND…              does one after the other, and prints what each answered:
 *                                     work N, slot PATH, free N, bound, bind PATH, unbind, fork,
 *                                     thread, exec, open PATH, spin US, uid N, close
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <reserv.h>

#include "spin.h"
#include "clock.h"

/* nothing that this program does between two looks at the clock takes so long */
#define GAP_NS 20000
#define MOST 1023

static int slots[MOST], count;
static uint64_t worked[MOST];
static struct reserv_page *page;

static uint64_t of_thread(void)
{
	return clock_of(CLOCK_THREAD_CPUTIME_ID);
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, reserv_error());
	exit(1);
}

/*
 * What this thread ran from `last` to `now`: all, or, where that is long, what the kernel says: it
 * may have run for this thread, at the end of a turn, or others may.
 */
static uint64_t between(uint64_t last, uint64_t now)
{
	static uint64_t counted, since;
	uint64_t ran = now - last, all;

	if (ran < GAP_NS) {
		since += ran;
		return ran;
	}
	all = of_thread();
	ran = counted && all - counted > since ? all - counted - since : 0;
	counted = all;
	since = 0;
	return ran;
}

/* Works for so long; answers when it ended. */
static uint64_t work(uint64_t last, uint64_t ns, uint64_t *into)
{
	uint64_t now, had = 0;

	while (had < ns) {
		straight_line();
		now = now_ns();
		had += between(last, now);
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
	int i, at = 0;

	work(now_ns(), 20000000, &ignored);
	nanosleep(&nap, 0);
	reserv_page_work(page, slots[0]);
	if (reserv_page_settle(page))
		fail("settle");
	cpu = of_thread();
	last = now_ns();
	for (i = 0; i < n; i++) {
		last = work(last, step / 2 + step * at / count, &worked[at]);
		random = random * 1664525 + 1013904223;
		at = (random >> 8) % count;
		before = last;
		reserv_page_work(page, slots[at]);
		/* Where it let the page be read, that was for the new one: the entry comes first. */
		last = now_ns();
		worked[at] += between(before, last);
	}
	reserv_page_work(page, 0);
	if (reserv_page_settle(page))
		fail("settle");
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

static uint32_t next_random(void)
{
	static uint32_t random = 12345;

	random = random * 1664525 + 1013904223;
	return random >> 8;
}

/* An entry that says that it was written so many ticks from now. */
static void says(int slot, int64_t ticks)
{
	uint64_t head = page->head;

	page->log[head % 256] = (__builtin_ia32_rdtsc() + ticks) << 10 | (uint64_t)slot;
	__asm__ volatile("" : : : "memory");
	page->head = head + 1;
}

static void how(const char *strategy)
{
	struct timespec nap = { 0, 50000 };
	uint64_t ignored = 0, end;
	struct reserv_page *kept = 0;
	pthread_t thread;
	int i, k, root, flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (!strcmp(strategy, "gone"))
		kept = malloc(sizeof(*kept));
	if (!strcmp(strategy, "raw")) {
		char *two = mmap(0, 8192, PROT_READ | PROT_WRITE, flags, -1, 0);

		page = (struct reserv_page *)(two + 4096 - 64);
		page->size = sizeof(*page);
		munmap(two + 4096, 4096);
		root = open("/reserv", O_RDONLY | O_DIRECTORY);
		if (fcntl(root, F_RESERV_PAGE, page) != 1) {
			perror("page");
			exit(1);
		}
	}
	for (i = 0;; i = (i + 1) % count) {
		if (!strcmp(strategy, "turns")) {
			reserv_page_work(page, slots[i]);
			work(now_ns(), 20000, &ignored);
		} else if (!strcmp(strategy, "tick")) {
			reserv_page_work(page, slots[i]);
			work(now_ns(), 3900000, &ignored);
		} else if (!strcmp(strategy, "naps")) {
			reserv_page_work(page, slots[i]);
			work(now_ns(), 300000, &ignored);
			reserv_page_work(page, slots[(i + 1) % count]);
			nanosleep(&nap, 0);
		} else if (!strcmp(strategy, "storm")) {
			reserv_page_work(page, slots[i]);
		} else if (!strcmp(strategy, "full")) {
			for (k = 0; k < 256; k++)
				says(slots[k % count], 0);
			sched_yield();
		} else if (!strcmp(strategy, "past")) {
			says(slots[i], -1000000000000);
			work(now_ns(), 100000, &ignored);
		} else if (!strcmp(strategy, "future")) {
			says(slots[i], 1000000000000);
			work(now_ns(), 100000, &ignored);
		} else if (!strcmp(strategy, "back")) {
			for (k = 0; k < 100; k++)
				says(slots[(i + k) % count], -k * 100000);
			work(now_ns(), 100000, &ignored);
		} else if (!strcmp(strategy, "lost")) {
			says(slots[i], 0);
			page->head += 1000000 + i;
			work(now_ns(), 100000, &ignored);
		} else if (!strcmp(strategy, "random")) {
			for (k = 0; k < 50; k++)
				((uint32_t *)page)[next_random() % (sizeof(*page) / 4)] = next_random() << 8 ^ next_random();
			work(now_ns(), 50000, &ignored);
		} else if (!strcmp(strategy, "rates")) {
			page->anchor[i & 1].rate = (uint64_t)next_random() << (next_random() % 60);
			page->anchor[i & 1].ns = (uint64_t)next_random() << (next_random() % 60);
			page->which = i;
			says(slots[i], 0);
			work(now_ns(), 50000, &ignored);
		} else if (!strcmp(strategy, "empty")) {
			says(next_random() % 1024, 0);
			work(now_ns(), 50000, &ignored);
		} else if (!strcmp(strategy, "gone")) {
			*kept = *page;
			munmap(page, 4096);
			work(now_ns(), 5000000, &ignored);
			if (mmap(page, 4096, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) != page)
				exit(1);
			*page = *kept;
			reserv_page_work(page, slots[i]);
			work(now_ns(), 5000000, &ignored);
		} else if (!strcmp(strategy, "threads")) {
			reserv_page_work(page, slots[i]);
			if (pthread_create(&thread, 0, one_second, 0) || pthread_join(thread, 0))
				exit(1);
		} else if (!strcmp(strategy, "raw")) {
			end = now_ns() + 1000000;
			page->head++;
			work(now_ns(), end - now_ns(), &ignored);
		} else {
			exit(2);
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
				says(slots[i & 1], 0);
			else if (what == 2)
				reserv_page_work(page, slots[i & 1]);
			else if (what == 3 && reserv_work(slots[i & 1]))
				fail("work");
			else if (what == 4 && reserv_page_settle(page))
				fail("settle");
		}
		ns = (double)(now_ns() - from) / n;
		if (ns < best)
			best = ns;
	}
	return best;
}

static void reading(void)
{
	uint64_t most = 0, from, took, ignored = 0;
	int i, k;

	for (k = 0; k < 5; k++) {
		if (reserv_page_settle(page))
			fail("settle");
		for (i = 0; i < 255; i++) {
			says(slots[(k * 7 + i) % count], 0);
			work(now_ns(), 6000, &ignored);
		}
		from = now_ns();
		if (reserv_page_settle(page))
			fail("settle");
		took = now_ns() - from;
		if (took > most)
			most = took;
	}
	printf("%llu\n", (unsigned long long)most);
}

static void *bound_there(void *unused)
{
	char text[4096];

	printf("%s", reserv_bound(text, sizeof(text)) < 0 ? reserv_error() : *text ? text : "none");
	fflush(stdout);
	return unused;
}

/* Each line of what is asked is done and answered. */
static void state(int argc, char **argv)
{
	uint64_t ignored = 0;
	pthread_t thread;
	int i, got, fd;

	setvbuf(stdout, 0, _IONBF, 0);
	for (i = 0; i < argc; i++) {
		const char *what = argv[i];

		errno = 0;
		got = 0;
		if (!strcmp(what, "work")) {
			got = reserv_work(atoi(argv[++i]));
		} else if (!strcmp(what, "slot")) {
			got = reserv_slot_path(argv[++i]);
		} else if (!strcmp(what, "free")) {
			got = reserv_slot_free(atoi(argv[++i]));
		} else if (!strcmp(what, "bound")) {
			bound_there(0);
			printf("\n");
			continue;
		} else if (!strcmp(what, "thread")) {
			if (pthread_create(&thread, 0, bound_there, 0) || pthread_join(thread, 0))
				exit(1);
			printf("\n");
			continue;
		} else if (!strcmp(what, "bind")) {
			got = reserv_bind_path(argv[++i]);
		} else if (!strcmp(what, "unbind")) {
			got = reserv_unbind();
		} else if (!strcmp(what, "settle")) {
			got = reserv_page_settle(reserv_page());
		} else if (!strcmp(what, "fork")) {
			pid_t child = fork();

			if (child) {
				waitpid(child, &got, 0);
				exit(got != 0);
			}
		} else if (!strcmp(what, "exec")) {
			char *words[argc + 3];
			int k = 0;

			words[k++] = "pager";
			words[k++] = "state";
			while (++i < argc)
				words[k++] = argv[i];
			words[k] = 0;
			execv("/proc/self/exe", words);
			exit(1);
		} else if (!strcmp(what, "open")) {
			got = fd = open(argv[++i], O_RDONLY);
			got = got < 0 ? -1 : 0;
		} else if (!strcmp(what, "spin")) {
			work(now_ns(), strtoull(argv[++i], 0, 10) * 1000, &ignored);
		} else if (!strcmp(what, "uid")) {
			got = setuid(atoi(argv[++i]));
		} else if (!strcmp(what, "wait")) {
			printf("waiting\n");
			got = getchar() < 0;
		} else {
			exit(2);
		}
		if (got < 0)
			printf("%s\n", strerrorname_np(errno));
		else
			printf("%d\n", got);
	}
}

int main(int argc, char **argv)
{
	int i, first = 2;

	if (argc > 1)
		first = !strcmp(argv[1], "rate") ? 4 : !strcmp(argv[1], "how") ? 3 : 2;
	if (argc <= first)
		return 2;
	if (!strcmp(argv[1], "state")) {
		state(argc - 2, argv + 2);
		return 0;
	}
	for (i = first; i < argc && count < MOST; i++) {
		slots[count] = reserv_slot_path(argv[i]);
		if (slots[count++] < 0)
			fail(argv[i]);
	}
	page = reserv_page();
	if (!page)
		fail("page");
	if (!strcmp(argv[1], "rate")) {
		rate(atoi(argv[2]), strtoull(argv[3], 0, 10) * 1000);
	} else if (!strcmp(argv[1], "how")) {
		how(argv[2]);
	} else if (!strcmp(argv[1], "reading")) {
		reading();
	} else {
		printf("null %.1f store %.1f work %.1f", each(20000, 0), each(200, 1), each(20000, 2));
		printf(" function %.1f settle %.1f\n", each(20000, 3), each(20000, 4));
	}
	return 0;
}
