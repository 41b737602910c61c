// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * refused FILE QUEUE SECONDS WORKERS: workers that tag an open file of their own with the queue
 * that descriptor QUEUE stands for, over and over. Prints: calls, those that were answered EINVAL,
 * the most of these in a row, those answered in another wrong way.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "reserv.h"

struct told {
	unsigned long calls, refused, row, longest, other;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void work(struct told *t, const char *path, int queue, double end)
{
	int fd = open(path, O_RDWR);

	while (now() < end) {
		for (int i = 0; i < 50; i++) {
			t->calls++;
			if (fcntl(fd, F_RESERV_SET_QUEUE, queue) == 1) {
				t->row = 0;
			} else if (errno == EINVAL) {
				t->refused++;
				if (++t->row > t->longest)
					t->longest = t->row;
			} else {
				t->other++;
			}
			for (volatile int k = 0; k < 2000; k++)
				;
		}
	}
}

int main(int argc, char **argv)
{
	struct told *of, all = { 0 };
	int workers, status, bad = 0;
	double end;

	if (argc != 5)
		return 2;
	workers = atoi(argv[4]);
	of = mmap(0, workers * sizeof(*of), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	end = now() + atof(argv[3]);
	for (int i = 0; i < workers; i++) {
		if (!fork()) {
			work(&of[i], argv[1], atoi(argv[2]), end);
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		bad |= status;
	for (int i = 0; i < workers; i++) {
		all.calls += of[i].calls;
		all.refused += of[i].refused;
		all.other += of[i].other;
		if (of[i].longest > all.longest)
			all.longest = of[i].longest;
	}
	printf("%lu %lu %lu %lu\n", all.calls, all.refused, all.longest, all.other);
	return !!bad;
}
