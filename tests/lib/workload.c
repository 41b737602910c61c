// SPDX-License-Identifier: MIT OR Apache-2.0
// Load for the end-to-end tests.
//
//   workload spin [THREADS]            busy until killed
//   workload nap RUN_US SLEEP_US       runs and sleeps in turn until killed
//   workload crowd THREADS [RUN_US SLEEP_US]
//                                      many threads, which begin together when all are there (then it prints "ready"): busy, or each runs and
//                                      sleeps in turn
//   workload gap FILE [THREADS]        busy; FILE (mapped, shared by all such processes) holds in its first word the time of
//                                      the last progress of any of them, in the second the largest gap seen: how long nobody
//                                      of them all ran; in the fourth another program's last progress
//   workload burst RUN_US SLEEP_US COUNT
//                                      wants RUN_US of CPU time, sleeps, COUNT times; prints how long it wanted the CPU, how much it had
//                                      when it had wanted it so long, and its longest wait for the first of it
//   workload decode PERIOD_US WORK_US FRAMES [BUDGET_US [DEADLINE_US]]
//                                      a decoder: WORK_US of CPU time for each frame, which is due a period after it comes; prints how many
//                                      were late, and the latest. With a budget it asks for that (F_RESERV_SETPARAM)
//   workload rounds WORK_US            receives a datagram, which is there already, works for WORK_US of CPU time, and again until killed
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"
#include "clock.h"

static _Atomic uint64_t *shared;

/* By each thread that is busy from here on: a byte to the descriptor in WORKLOAD_BUSY. */
static void tell_busy(void)
{
	const char *fd = getenv("WORKLOAD_BUSY");

	if (fd && write(atoi(fd), "", 1) != 1)
		perror("WORKLOAD_BUSY");
}

static void *spin(void *arg)
{
	tell_busy();
	for (;;)
		straight_line();
	return arg;
}

static uint64_t crowd_run, crowd_sleep;
static pthread_barrier_t crowd_there;

static void *crowd(void *arg)
{
	struct timespec t = { crowd_sleep / 1000000000ull, crowd_sleep % 1000000000ull };

	pthread_barrier_wait(&crowd_there);
	if (!crowd_run)
		spin(0);
	for (;;) {
		uint64_t begin = now_ns();

		while (now_ns() - begin < crowd_run)
			straight_line();
		nanosleep(&t, 0);
	}
	return arg;
}

static int gather(unsigned threads)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	pthread_barrier_init(&crowd_there, 0, threads + 1);
	for (unsigned i = 0; i < threads; i++) {
		pthread_t thread;
		int error = pthread_create(&thread, &attr, crowd, 0);

		if (error) {
			fprintf(stderr, "thread %u: %s\n", i, strerror(error));
			return 1;
		}
	}
	puts("ready");
	fflush(stdout);
	pthread_barrier_wait(&crowd_there);
	for (;;)
		pause();
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void sleep_until(uint64_t at)
{
	struct timespec t = { at / 1000000000ull, at % 1000000000ull };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0))
		;
}

static int burst(uint64_t run, uint64_t pause, uint64_t count)
{
	uint64_t wanted = 0, had = 0, worst = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t due = now_ns() + pause, begin, cpu;

		sleep_until(due);
		/* The timer goes off a moment after `due`: counted as waiting. */
		begin = now_ns();
		cpu = cpu_ns();
		if (begin - due > worst)
			worst = begin - due;
		while (cpu_ns() - cpu < run)
			straight_line();
		had += cpu_ns() - cpu;
		wanted += now_ns() - due;
	}
	printf("wanted_ns %llu had_ns %llu worst_wait_ns %llu\n", (unsigned long long)wanted, (unsigned long long)had,
	       (unsigned long long)worst);
	return 0;
}

#define F_RESERV_SETPARAM 0x52530003

struct thread_param {
	uint32_t size, weight, prio, pad;
	uint64_t period_ns, budget_ns, deadline_ns;
};

static int decode(uint64_t period, uint64_t work, uint64_t frames, uint64_t budget, uint64_t deadline)
{
	uint64_t start, missed = 0, latest = 0;

	if (budget) {
		struct thread_param p = { sizeof(p), 0, 0, 0, period, budget, deadline };
		int fd = open("/reserv/cpu", O_RDONLY);

		if (fd < 0 || fcntl(fd, F_RESERV_SETPARAM, &p) != 1) {
			perror("F_RESERV_SETPARAM");
			return 1;
		}
		close(fd);
	}
	start = now_ns() + period;
	for (uint64_t i = 0; i < frames; i++) {
		uint64_t come = start + i * period, cpu, end;

		if (now_ns() < come)
			sleep_until(come);
		cpu = cpu_ns();
		while (cpu_ns() - cpu < work)
			straight_line();
		end = now_ns();
		if (end > come + (deadline ? deadline : period)) {
			uint64_t late = end - come - (deadline ? deadline : period);

			missed++;
			if (late > latest)
				latest = late;
		}
	}
	printf("frames %llu missed %llu latest_ns %llu\n", (unsigned long long)frames, (unsigned long long)missed,
	       (unsigned long long)latest);
	return 0;
}

static int rounds(uint64_t work)
{
	int pair[2];
	char word = 0;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) {
		perror("socketpair");
		return 1;
	}
	for (;;) {
		uint64_t cpu;

		if (send(pair[0], &word, 1, 0) != 1 || recv(pair[1], &word, 1, 0) != 1) {
			perror("a datagram");
			return 1;
		}
		cpu = cpu_ns();
		while (cpu_ns() - cpu < work)
			straight_line();
	}
}

static void *gap(void *arg)
{
	for (;;) {
		/*
		 * The clock is read after the last progress: who is preempted in between finds that
		 * another was faster.
		 */
		uint64_t last = atomic_load(&shared[0]), other = atomic_load(&shared[3]);
		uint64_t now = now_ns(), worst = atomic_load(&shared[1]);

		if (now <= last || now <= other || !atomic_compare_exchange_strong(&shared[0], &last, now))
			continue;
		if (last && last < other)
			last = other;
		while (last && now - last > worst && !atomic_compare_exchange_weak(&shared[1], &worst, now - last))
			;
		atomic_fetch_add_explicit(&shared[2], 1, memory_order_relaxed);
		straight_line();
	}
	return arg;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	void *(*work)(void *) = spin;
	int threads = 1;

	if (!strcmp(mode, "nap") && argc == 4) {
		uint64_t run = strtoull(argv[2], 0, 10) * 1000;
		useconds_t sleep_us = strtoul(argv[3], 0, 10);

		for (;;) {
			uint64_t begin = now_ns();

			while (now_ns() - begin < run)
				straight_line();
			usleep(sleep_us);
		}
	}
	if (!strcmp(mode, "crowd") && (argc == 3 || argc == 5)) {
		crowd_run = argc > 3 ? strtoull(argv[3], 0, 10) * 1000 : 0;
		crowd_sleep = argc > 3 ? strtoull(argv[4], 0, 10) * 1000 : 0;
		return gather(strtoul(argv[2], 0, 10));
	}
	if (!strcmp(mode, "rounds") && argc == 3)
		return rounds(atoll(argv[2]) * 1000ull);
	if (!strcmp(mode, "burst") && argc == 5)
		return burst(atoll(argv[2]) * 1000ull, atoll(argv[3]) * 1000ull, atoll(argv[4]));
	if (!strcmp(mode, "decode") && argc >= 5 && argc <= 7)
		return decode(atoll(argv[2]) * 1000ull, atoll(argv[3]) * 1000ull, atoll(argv[4]),
			      argc > 5 ? atoll(argv[5]) * 1000ull : 0, argc > 6 ? atoll(argv[6]) * 1000ull : 0);
	if (!strcmp(mode, "spin")) {
		threads = argc > 2 ? atoi(argv[2]) : 1;
	} else if (!strcmp(mode, "gap") && argc > 2) {
		int fd = open(argv[2], O_RDWR | O_CREAT, 0600);

		if (fd < 0 || ftruncate(fd, 4096) < 0) {
			perror(argv[2]);
			return 1;
		}
		shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (shared == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
		threads = argc > 3 ? atoi(argv[3]) : 1;
		work = gap;
	} else {
		fprintf(stderr, "workload spin [THREADS] | nap RUN_US SLEEP_US | crowd THREADS [RUN_US SLEEP_US] | gap FILE [THREADS] | burst RUN_US SLEEP_US COUNT | "
				"decode PERIOD_US WORK_US FRAMES [BUDGET_US [DEADLINE_US]] | rounds WORK_US\n");
		return 2;
	}
	for (int i = 1; i < threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, 0, work, 0)) {
			perror("pthread_create");
			return 1;
		}
	}
	work(0);
}
