// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * preempted DIR RESOURCE QUEUE SECONDS WORKERS: workers that fork children and grandchildren, each
 * of which opens files of its own in DIR and asks F_GET_QUEUE which queue each has by its process'
 * default list. Half of them wait a moment between, and are real-time (SCHED_FIFO), so that they
 * interrupt the others wherever these are. Prints: processes, those of which no file had queue
 * number QUEUE, files, files with another queue, questions that were refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "reserv.h"

static struct {
	unsigned long processes, strange, opened, other, refused;
} *sum;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int open_one(const char *name, int resource)
{
	int fd = open(name, O_CREAT | O_RDWR, 0600), got;

	if (fd < 0)
		exit(1);
	got = fcntl(fd, F_RESERV_GET_QUEUE, resource);
	close(fd);
	return got;
}

static void open_files(int resource, int queue, int times)
{
	char name[32];
	int got, right = 0;

	snprintf(name, sizeof(name), "x%d", getpid());
	for (int i = 0; i < times; i++) {
		got = open_one(name, resource);
		__sync_fetch_and_add(&sum->opened, 1);
		if (got < 0)
			__sync_fetch_and_add(&sum->refused, 1);
		else if (got != queue + 1)
			__sync_fetch_and_add(&sum->other, 1);
		else
			right++;
	}
	/*
	 * Its opens may all have been missed while one thread stood in the program: has it the
	 * list?
	 */
	for (int i = 0; i < 200 && !right; i++) {
		usleep(5000);
		right = open_one(name, resource) == queue + 1;
	}
	unlink(name);
	__sync_fetch_and_add(&sum->processes, 1);
	__sync_fetch_and_add(&sum->strange, !right);
}

static void child(int resource, int queue, int depth)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		exit(1);
	if (!pid) {
		open_files(resource, queue, 20);
		if (depth)
			child(resource, queue, depth - 1);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		_exit(1);
}

int main(int argc, char **argv)
{
	struct sched_param first = { .sched_priority = 1 };
	int resource, queue, workers, status, bad = 0;
	double end;

	if (argc != 6 || chdir(argv[1]))
		return 2;
	resource = atoi(argv[2]);
	queue = atoi(argv[3]);
	workers = atoi(argv[5]);
	sum = mmap(0, sizeof(*sum), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	end = now() + atof(argv[4]);
	for (int i = 0; i < workers; i++) {
		if (!fork()) {
			if (i & 1 && sched_setscheduler(0, SCHED_FIFO, &first))
				_exit(1);
			while (now() < end) {
				child(resource, queue, 1);
				if (i & 1)
					usleep(3000);
			}
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		bad |= status;
	printf("%lu %lu %lu %lu %lu\n", sum->processes, sum->strange, sum->opened, sum->other, sum->refused);
	return !!bad;
}
