/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * pairs PAIRS SECONDS: each pair is two processes that pass a byte to and fro through two pipes, as
 * `perf bench sched pipe` does. Nothing is bound to a CPU. All begin at once; prints the rounds a
 * second that all pairs together had, and for each round how often a process changed its CPU.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAIRS_MAX 256

struct shared {
	volatile int ready, go;
	struct {
		volatile unsigned long rounds;
		char pad[120];
	} pair[PAIRS_MAX];
};

static void side(struct shared *s, int at, int in, int out, int first)
{
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	__sync_fetch_and_add(&s->ready, 1);
	while (!s->go)
		usleep(1000);
	for (;;) {
		if (first && write(out, &byte, 1) != 1)
			_exit(1);
		if (read(in, &byte, 1) != 1)
			_exit(1);
		if (!first && write(out, &byte, 1) != 1)
			_exit(1);
		if (first)
			s->pair[at].rounds++;
	}
}

static unsigned long all(struct shared *s, int pairs)
{
	unsigned long sum = 0;

	for (int i = 0; i < pairs; i++)
		sum += s->pair[i].rounds;
	return sum;
}

/* How often a process has changed its CPU, by the kernel's count; -1: the kernel does not say. */
static long moves(int pid)
{
	char path[64], line[256];
	long n = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/sched", pid);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "se.nr_migrations : %ld", &n) == 1)
			break;
	if (file)
		fclose(file);
	return n;
}

static long all_moves(int *children, int n)
{
	long sum = 0;

	for (int i = 0; i < n; i++)
		sum += moves(children[i]);
	return sum;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int pairs = argc == 3 ? atoi(argv[1]) : 0, children[2 * PAIRS_MAX], to[2], fro[2];
	double seconds = argc == 3 ? atof(argv[2]) : 0, from;
	unsigned long before, after;
	long moved;
	struct shared *s = mmap(0, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (pairs < 1 || pairs > PAIRS_MAX || seconds <= 0 || s == MAP_FAILED) {
		fprintf(stderr, "usage: pairs PAIRS SECONDS\n");
		return 2;
	}
	for (int i = 0; i < pairs; i++) {
		if (pipe(to) || pipe(fro))
			return 1;
		for (int k = 0; k < 2; k++) {
			children[2 * i + k] = fork();
			if (children[2 * i + k] < 0)
				return 1;
			if (!children[2 * i + k])
				side(s, i, k ? to[0] : fro[0], k ? fro[1] : to[1], !k);
		}
	}
	while (s->ready < 2 * pairs)
		usleep(1000);
	s->go = 1;
	usleep(200000); /* they have found their places */
	moved = all_moves(children, 2 * pairs);
	from = now();
	before = all(s, pairs);
	usleep(seconds * 1e6);
	after = all(s, pairs);
	seconds = now() - from;
	moved = all_moves(children, 2 * pairs) - moved;
	for (int i = 0; i < 2 * pairs; i++)
		kill(children[i], SIGKILL);
	while (wait(0) > 0)
		;
	printf("%.0f %.4f\n", (after - before) / seconds, (double)moved / (after - before));
	return 0;
}
