/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * diskload FILE BYTES[,BYTES…] THREADS SECONDS [HOW]: requests of these sizes, one as likely as the other, at random places by so many threads; prints how many were done per second. 0 seconds: until it is
 * killed. HOW: `read` and `write` are direct; `synced` and `dirty` write FILE.0, FILE.1 …, a file of 4 MiB for each thread, through the page cache, with an fdatasync after each write or with none.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OWN (4L << 20) /* of a thread's own file */

static const char *path, *how = "read";
static long sizes[8], kinds, largest;
static atomic_long done;
static atomic_int over;

static int opened(long number)
{
	char name[4096];
	int fd;

	if (*how == 'r' || *how == 'w')
		return open(path, (*how == 'r' ? O_RDONLY : O_WRONLY) | O_DIRECT);
	snprintf(name, sizeof(name), "%s.%ld", path, number);
	fd = open(name, O_RDWR | O_CREAT, 0644);
	if (fd >= 0 && lseek(fd, 0, SEEK_END) < OWN) {
		char *zeros = calloc(1, OWN);

		if (pwrite(fd, zeros, OWN, 0) != OWN || fsync(fd))
			return -1;
		free(zeros);
	}
	return fd;
}

static void *works(void *number)
{
	unsigned dice = (unsigned)(long)number + 1;
	int fd = opened((long)number);
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	void *memory;

	if (end < largest || posix_memalign(&memory, 4096, largest)) {
		perror(path);
		exit(1);
	}
	memset(memory, 1, largest);
	while (!over) {
		long size = sizes[rand_r(&dice) % kinds], got;
		off_t at = rand_r(&dice) % (end / size) * size;

		got = *how == 'r' ? pread(fd, memory, size, at) : pwrite(fd, memory, size, at);
		if (got != size || (*how == 's' && fdatasync(fd))) {
			perror(how);
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
	char *word;

	if (argc < 5 || argc > 6)
		return 2;
	path = argv[1];
	for (word = strtok(argv[2], ","); word && kinds < 8; word = strtok(0, ",")) {
		sizes[kinds++] = atol(word);
		largest = sizes[kinds - 1] > largest ? sizes[kinds - 1] : largest;
	}
	threads = atol(argv[3]);
	if (argc == 6)
		how = argv[5];
	if (!kinds || !strchr("rwsd", *how))
		return 2;
	for (i = 0; i < threads; i++)
		pthread_create(&thread, 0, works, (void *)i);
	while (!atof(argv[4]))
		pause();
	usleep(100000);
	before = done;
	begin = now();
	usleep(atof(argv[4]) * 1e6);
	printf("%.0f\n", (done - before) / (now() - begin));
	fflush(stdout);
	over = 1;
	_exit(0);
}
