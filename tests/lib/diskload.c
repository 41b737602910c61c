/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* diskload FILE BYTES THREADS SECONDS: direct reads of that many bytes at random places by so many threads; prints how many were done per second. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int fd;
static long size;
static off_t blocks;
static atomic_long done;
static atomic_int over;

static void *reads(void *seed)
{
	unsigned dice = (unsigned)(long)seed + 1;
	void *memory;

	if (posix_memalign(&memory, 4096, size))
		exit(1);
	while (!over) {
		if (pread(fd, memory, size, rand_r(&dice) % blocks * size) != size) {
			perror("pread");
			exit(1);
		}
		done++;
	}
	return 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	long before, threads, i;
	double begin;
	pthread_t thread;

	if (argc != 5 || (fd = open(argv[1], O_RDONLY | O_DIRECT)) < 0)
		return 1;
	size = atol(argv[2]);
	threads = atol(argv[3]);
	blocks = lseek(fd, 0, SEEK_END) / size;
	for (i = 0; i < threads; i++)
		pthread_create(&thread, 0, reads, (void *)i);
	usleep(100000);
	before = done;
	begin = now();
	usleep(atof(argv[4]) * 1e6);
	printf("%.0f\n", (done - before) / (now() - begin));
	fflush(stdout);
	over = 1;
	_exit(0);
}
