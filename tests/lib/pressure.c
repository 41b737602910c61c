// SPDX-License-Identifier: MIT OR Apache-2.0
// pressure FOLDER MB HOLD: two threads write files of FOLDER through the page cache, MB in all,
// with an fsync every 8 MB, while another one holds HOLD MB of memory and writes to each of its
// pages again and again. Then what was written is read past the page cache. Prints the longest time
// that one write or fsync took, how often all the held memory was gone through, and blocks that are
// wrong. Its own pages stay in memory: it is not what is measured.
#define _GNU_SOURCE
#include <errno.h>
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

#define WRITERS 2
#define PART (256 * 1024)
#define MB (1024 * 1024L)

static const char *folder;
static long each, hold;
static atomic_long longest, wrong, rounds, over;

static long now_ms(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

// What is at this place of this file.
static void fill(uint64_t *part, long file, long at)
{
	for (long i = 0; i < PART / 8; i++)
		part[i] = (uint64_t)(at + i * 8 + file + 1) * 0x9e3779b97f4a7c15u;
}

static void took(long began)
{
	long ms = now_ms() - began, was = longest;

	while (ms > was && !atomic_compare_exchange_weak(&longest, &was, ms))
		;
}

static void *write_files(void *arg)
{
	static char parts[WRITERS][2][PART] __attribute__((aligned(4096)));
	long file = (long)arg;
	uint64_t *part = (uint64_t *)parts[file][0], *again = (uint64_t *)parts[file][1];
	char name[4096];
	int fd;

	snprintf(name, sizeof(name), "%s/%ld", folder, file);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		fail(name);
	for (long at = 0; at < each; at += PART) {
		long began = now_ms();

		fill(part, file, at);
		if (pwrite(fd, part, PART, at) != PART)
			fail("write");
		took(began);
		if ((at + PART) % (8 * MB) == 0 || at + PART >= each) {
			began = now_ms();
			if (fsync(fd))
				fail("fsync");
			took(began);
		}
	}
	close(fd);
	fd = open(name, O_RDONLY | O_DIRECT);
	if (fd < 0)
		fail(name);
	for (long at = 0; at < each; at += PART) {
		fill(part, file, at);
		if (pread(fd, again, PART, at) != PART)
			fail("read");
		wrong += memcmp(part, again, PART) != 0;
	}
	close(fd);
	return NULL;
}

static void *hold_memory(void *arg)
{
	char *at = mmap(NULL, (size_t)hold, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)arg;
	if (at == MAP_FAILED)
		fail("mmap");
	while (!over) {
		for (long i = 0; i < hold && !over; i += 4096)
			at[i]++;
		rounds++;
	}
	return NULL;
}

int main(int count, char **words)
{
	pthread_t writers[WRITERS], holder;
	long began = now_ms();

	if (count != 4)
		return 2;
	folder = words[1];
	each = atol(words[2]) * MB / WRITERS;
	hold = atol(words[3]) * MB;
	if (mlockall(MCL_CURRENT))
		fail("mlockall");
	if (hold && pthread_create(&holder, NULL, hold_memory, NULL))
		fail("a thread");
	for (long i = 0; i < WRITERS; i++)
		if (pthread_create(&writers[i], NULL, write_files, (void *)i))
			fail("a thread");
	for (long i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	over = 1;
	if (hold)
		pthread_join(holder, NULL);
	printf("%ld %ld %ld %ld\n", now_ms() - began, longest, rounds, wrong);
	return 0;
}
