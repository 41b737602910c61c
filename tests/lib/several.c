/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * several FILE QFD QFD RESOURCE RESOURCE PROCESSES ROUNDS: FILE lives on both resources. Processes
 * open it, tag it with one queue or both, look what it is tagged with and close it, all at once.
 * Prints how many answers were wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SET 0x52530005
#define GET 0x52530006
#define Q0 2
enum { TRIES = 10000 };

/*
 * Again while the hook is left out because it was preempted in another process on this CPU
 * (bpf/hook.h): EINVAL.
 */
static long call(int fd, int command, int argument)
{
	long got = -1;

	for (int i = 0; i < TRIES && got < 0; i++) {
		got = syscall(SYS_fcntl, fd, command, argument);
		if (got < 0 && errno != EINVAL)
			break;
		if (got < 0)
			sched_yield();
	}
	return got;
}

static int wrong_of(const char *path, const int queue[2], const int resource[2], int rounds, int which)
{
	int wrong = 0, number[2];

	for (int i = 0; i < 2; i++)
		number[i] = call(queue[i], GET, 0);
	for (int round = which; round < rounds + which; round++) {
		int fd = open(path, O_RDWR), with = round % 4;

		for (int i = 0; i < 2; i++)
			if (with >> i & 1)
				wrong += call(fd, SET, queue[i]) != 1;
		for (int i = 0; i < 2; i++)
			wrong += call(fd, GET, resource[i]) != (with >> i & 1 ? number[i] : Q0);
		wrong += close(fd) != 0;
	}
	return wrong;
}

int main(int argc, char **argv)
{
	int queue[2], resource[2], total = 0, status;

	if (argc != 8)
		return 2;
	for (int i = 0; i < 2; i++) {
		queue[i] = atoi(argv[2 + i]);
		resource[i] = atoi(argv[4 + i]);
	}
	for (int i = 0; i < atoi(argv[6]); i++)
		if (fork() == 0) {
			int wrong = wrong_of(argv[1], queue, resource, atoi(argv[7]), i);

			_exit(wrong > 250 ? 250 : wrong);
		}
	while (wait(&status) > 0)
		total += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
	printf("%d\n", total);
	return 0;
}
