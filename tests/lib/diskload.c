/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * diskload FILE BYTES[,BYTES…] THREADS SECONDS [HOW [times]]: requests of these sizes, one as
 * likely as the other, at random places by so many threads; prints how many were done per second. 0
 * seconds: until it is killed. HOW: `read` and `write` are direct; `once`: each thread reads so
 * once, then it ends; `queued` are direct writes, THREADS of them under way by one thread; `synced`
 * and `dirty` write FILE.0, FILE.1 …, a file of 4 MiB for each thread, through the page cache, with
 * an fdatasync after each write or with none. `times`: prints the mean, the 99th of a hundred and
 * the longest of their times too, in ms.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OWN (4L << 20) /* of a thread's own file */
#define TIMES (1L << 20) /* that are kept */

static const char *path, *how = "read";
static long sizes[8], kinds, largest, threads;
static float *times; /* ms; of each request that was done while `counting` */
static atomic_long done, timed;
static atomic_int over, counting; /* 1: times are taken, 2: and kept */

static int opened(long number)
{
	char name[4096];
	int fd;

	if (strchr("rwqo", *how))
		return open(path, (strchr("ro", *how) ? O_RDONLY : O_WRONLY) | O_DIRECT);
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

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void was_done(double begin)
{
	long i;

	done++;
	if (counting > 1 && (i = timed++) < TIMES)
		times[i] = (now() - begin) * 1e3;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* `threads` of them under way at a time. */
static void queued(int fd, off_t end, void *memory)
{
	struct iocb *all = calloc(threads, sizeof(*all)), **next = calloc(threads, sizeof(*next));
	struct io_event *events = calloc(threads, sizeof(*events));
	double *begin = calloc(threads, sizeof(*begin));
	aio_context_t context = 0;
	unsigned dice = 1;
	long i, n;

	if (syscall(SYS_io_setup, threads, &context))
		fail("io_setup");
	for (i = 0; i < threads; i++)
		next[i] = &all[i];
	for (n = threads; !over;) {
		for (i = 0; i < n; i++) {
			long size = sizes[rand_r(&dice) % kinds];

			*next[i] = (struct iocb){ .aio_data = next[i] - all, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = (unsigned long)memory,
						  .aio_nbytes = size, .aio_offset = rand_r(&dice) % (end / size) * size };
			begin[next[i] - all] = counting ? now() : 0;
			if (syscall(SYS_io_submit, context, 1, &next[i]) != 1)
				fail("io_submit");
		}
		n = syscall(SYS_io_getevents, context, 1, threads, events, 0);
		if (n < 1)
			fail("io_getevents");
		for (i = 0; i < n; i++) {
			next[i] = &all[events[i].data];
			if (events[i].res != (long long)next[i]->aio_nbytes)
				fail(how);
			was_done(begin[events[i].data]);
		}
	}
}

static void *works(void *number)
{
	unsigned dice = (unsigned)(long)number + 1;
	int fd = opened((long)number);
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	void *memory;

	if (end < largest || posix_memalign(&memory, 4096, largest))
		fail(path);
	memset(memory, 1, largest);
	if (*how == 'q')
		queued(fd, end, memory);
	while (!over) {
		long size = sizes[rand_r(&dice) % kinds], got;
		off_t at = rand_r(&dice) % (end / size) * size;
		double begin = counting ? now() : 0;

		got = strchr("ro", *how) ? pread(fd, memory, size, at) : pwrite(fd, memory, size, at);
		if (got != size || (*how == 's' && fdatasync(fd)))
			fail(how);
		was_done(begin);
		if (*how == 'o')
			break;
	}
	return 0;
}

static int by_length(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	long before, i, n;
	double begin, sum = 0;
	pthread_t *thread;
	char *word;

	if (argc < 5 || argc > 7)
		return 2;
	path = argv[1];
	for (word = strtok(argv[2], ","); word && kinds < 8; word = strtok(0, ",")) {
		sizes[kinds++] = atol(word);
		largest = sizes[kinds - 1] > largest ? sizes[kinds - 1] : largest;
	}
	threads = atol(argv[3]);
	if (argc > 5)
		how = argv[5];
	counting = argc > 6;
	if (!kinds || !strchr("rwqsdo", *how))
		return 2;
	times = calloc(TIMES, sizeof(*times));
	n = *how == 'q' ? 1 : threads;
	thread = calloc(n, sizeof(*thread));
	for (i = 0; i < n; i++)
		pthread_create(&thread[i], 0, works, (void *)i);
	for (i = 0; *how == 'o' && i < n; i++)
		pthread_join(thread[i], 0);
	if (*how == 'o')
		return 0;
	while (!atof(argv[4]))
		pause();
	usleep(100000);
	before = done;
	begin = now();
	counting *= 2;
	usleep(atof(argv[4]) * 1e6);
	counting /= 2;
	printf("%.0f", (done - before) / (now() - begin));
	n = timed < TIMES ? timed : TIMES;
	qsort(times, n, sizeof(*times), by_length);
	for (i = 0; i < n; i++)
		sum += times[i];
	if (n)
		printf(" %.2f %.2f %.2f", sum / n, times[n * 99 / 100], times[n - 1]);
	printf("\n");
	fflush(stdout);
	over = 1;
	_exit(0);
}
