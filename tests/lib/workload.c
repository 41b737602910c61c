// SPDX-License-Identifier: MIT OR Apache-2.0
// Load for the end-to-end tests.
//
//   workload spin [THREADS]            busy until killed
//   workload nap RUN_US SLEEP_US       runs and sleeps in turn until killed
//   workload gap FILE [THREADS]        busy; FILE (mapped, shared by all such processes) holds in its first word the time of
//                                      the last progress of any of them, in the second the largest gap seen: how long nobody
//                                      of them all ran
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static _Atomic uint64_t *shared;

static void *spin(void *arg)
{
	for (;;)
		__asm__ volatile("" ::: "memory");
	return arg;
}

static void *gap(void *arg)
{
	for (;;) {
		/* The clock is read after the last progress: who is preempted in between finds that another was faster. */
		uint64_t last = atomic_load(&shared[0]), now = now_ns(), worst = atomic_load(&shared[1]);

		if (now <= last || !atomic_compare_exchange_strong(&shared[0], &last, now))
			continue;
		while (last && now - last > worst && !atomic_compare_exchange_weak(&shared[1], &worst, now - last))
			;
		atomic_fetch_add_explicit(&shared[2], 1, memory_order_relaxed);
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
				;
			usleep(sleep_us);
		}
	}
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
		fprintf(stderr, "workload spin [THREADS] | nap RUN_US SLEEP_US | gap FILE [THREADS]\n");
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
