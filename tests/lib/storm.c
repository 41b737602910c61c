// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a user without privilege can do to threads of his own, without a pause, until killed.
 *
 *   storm UID FD KIND   FD: an open file of a page, into which it counts (struct told)
 *
 *     nice      8 threads set nice values, 0 to 19, of their own and of each other's
 *     policy    … SCHED_OTHER, SCHED_BATCH, SCHED_IDLE
 *     affinity  … one CPU, the other one, both
 *     yield     8 threads give up the CPU
 *     trace     8 threads each seize, interrupt and detach a busy child (ptrace)
 *     threads   8 threads make and end 25 each, so that there are 200
 *     heirs     one thread works for a moment, makes the next one, and ends
 *     parent    one thread makes one that works for a moment and ends, waits for it, and so on
 *     ends      8 threads make threads that end at once
 *     busy      8 threads are busy
 *     work      … and count what they do
 *
 * A ninth thread is busy, so that there is always somebody who wants the CPU; not beside heirs
 * or a parent.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spin.h"

#define THREADS 8
#define EACH 25
#define WORK 600 /* blocks of instructions: what each of many threads does, 1 ms of a guest's */

/* What the test reads while the storm goes on. */
struct told {
	_Atomic uint64_t done, refused; /* operations */
	_Atomic uint64_t ready, most;	/* threads that have begun; the most that there were at once */
};

static struct told *told;
static _Atomic int tids[THREADS];
static _Atomic int living;

static void count(int error)
{
	atomic_fetch_add_explicit(error ? &told->refused : &told->done, 1, memory_order_relaxed);
}

static void begun(int me)
{
	tids[me] = gettid();
	told->ready++;
	while (told->ready < THREADS)
		sched_yield();
}

/* Of this turn: oneself, or another one of the eight. */
static int whose(int me, int turn)
{
	return tids[turn % 2 ? (me + turn) % THREADS : me];
}

static void *nices(void *arg)
{
	int me = (intptr_t)arg, i;

	begun(me);
	for (i = 0;; i++)
		count(setpriority(PRIO_PROCESS, whose(me, i), (i * 7 + me) % 20));
	return arg;
}

static void *policies(void *arg)
{
	static const int policy[] = { SCHED_OTHER, SCHED_BATCH, SCHED_IDLE };
	struct sched_param none = { 0 };
	int me = (intptr_t)arg, i;

	begun(me);
	for (i = 0;; i++)
		count(sched_setscheduler(whose(me, i), policy[(i + me) % 3], &none));
	return arg;
}

static void *affinities(void *arg)
{
	int me = (intptr_t)arg, i;
	cpu_set_t cpus;

	begun(me);
	for (i = 0;; i++) {
		CPU_ZERO(&cpus);
		if ((i + me) % 3 != 0)
			CPU_SET(0, &cpus);
		if ((i + me) % 3 != 1)
			CPU_SET(1, &cpus);
		count(sched_setaffinity(whose(me, i), sizeof(cpus), &cpus));
	}
	return arg;
}

static void *yields(void *arg)
{
	begun((intptr_t)arg);
	for (;;)
		count(sched_yield());
	return arg;
}

static void *traces(void *arg)
{
	int me = (intptr_t)arg, status;
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			straight_line();
	}
	begun(me);
	for (;;)
		count(ptrace(PTRACE_SEIZE, child, 0, 0) || ptrace(PTRACE_INTERRUPT, child, 0, 0) ||
		      waitpid(child, &status, __WALL) != child || ptrace(PTRACE_DETACH, child, 0, 0));
	return arg;
}

static void *one_of_many(void *unused)
{
	uint64_t now = ++living, most = told->most;
	int i;

	while (now > most && !atomic_compare_exchange_weak(&told->most, &most, now))
		;
	while (told->most < THREADS * EACH) /* once there are all of them at the same time */
		sched_yield();
	for (i = 0; i < WORK; i++)
		straight_line();
	living--;
	return unused;
}

static void *makes(void *arg)
{
	pthread_t made[EACH];
	int i;

	begun((intptr_t)arg);
	for (;;) {
		for (i = 0; i < EACH; i++)
			if (pthread_create(&made[i], 0, one_of_many, 0))
				exit(1);
		for (i = 0; i < EACH; i++)
			count(pthread_join(made[i], 0));
	}
	return arg;
}

static void *heir(void *unused)
{
	pthread_attr_t detached;
	pthread_t next;
	int i;

	for (i = 0; i < WORK; i++)
		straight_line();
	pthread_attr_init(&detached);
	pthread_attr_setstacksize(&detached, 1 << 16);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	told->ready = THREADS;
	count(pthread_create(&next, &detached, heir, 0));
	return unused;
}

static void *heirs(void *arg)
{
	return arg ? 0 : heir(0);
}

static void *worker(void *unused)
{
	int i;

	for (i = 0; i < 3 * WORK; i++)
		straight_line();
	return unused;
}

static void *parent(void *arg)
{
	pthread_t made;

	told->ready = THREADS;
	while (!arg)
		count(pthread_create(&made, 0, worker, 0) || pthread_join(made, 0));
	return arg;
}

static void *nothing(void *unused)
{
	return unused;
}

static void *ends(void *arg)
{
	pthread_t made;

	begun((intptr_t)arg);
	for (;;)
		count(pthread_create(&made, 0, nothing, 0) || pthread_join(made, 0));
	return arg;
}

static void *busy(void *arg)
{
	begun((intptr_t)arg);
	told->done = 1000;
	for (;;)
		straight_line();
	return arg;
}

static void *works(void *arg)
{
	begun((intptr_t)arg);
	for (;;) {
		straight_line();
		count(0);
	}
	return arg;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *kind;
		void *(*body)(void *);
	} all[] = { { "nice", nices },	 { "policy", policies }, { "affinity", affinities },
		    { "yield", yields }, { "trace", traces },	 { "threads", makes },
		    { "heirs", heirs },	 { "parent", parent }, { "ends", ends },
		    { "busy", busy },	 { "work", works } };
	struct rlimit lowest = { 20, 20 }; /* nice 0: so that he may come back from 19 */
	pthread_attr_t small;
	pthread_t thread;
	int uid, i, k;

	if (argc != 4)
		return 2;
	uid = atoi(argv[1]);
	told = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[2]), 0);
	if (told == MAP_FAILED || setrlimit(RLIMIT_NICE, &lowest) || setgid(uid) || setuid(uid) ||
	    prctl(PR_SET_DUMPABLE, 1)) {
		perror("storm");
		return 1;
	}
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	pthread_setattr_default_np(&small);
	for (k = 0; k < (int)(sizeof(all) / sizeof(*all)); k++) {
		if (strcmp(argv[3], all[k].kind))
			continue;
		for (i = 0; i < THREADS; i++)
			if (pthread_create(&thread, 0, all[k].body, (void *)(intptr_t)i))
				return 1;
		while (all[k].body == heirs || all[k].body == parent)
			pause();
		for (;;)
			straight_line();
	}
	return 2;
}
