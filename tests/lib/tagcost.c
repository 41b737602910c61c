/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tagcost CALL FILE [QFD QFD RESOURCE]: the time of one call in ns, the least mean of three rounds. For instruction time (--icount).
 * CALL: null (getppid), fcntl (F_GETFD), open (open and close FILE), set (F_RESERV_SET_QUEUE, to both queues in turn), fresh (set on a
 * file that is not tagged yet, without the open and close around it), get (F_RESERV_GET_QUEUE)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 3, CALLS = 1000 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
	const char *call = argc > 2 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
	int fd = open(path, O_RDWR), queue[2] = { 0 }, resource = 0;
	double best = 0;

	if (fd < 0)
		return 1;
	if (argc == 6) {
		queue[0] = atoi(argv[3]);
		queue[1] = atoi(argv[4]);
		resource = atoi(argv[5]);
	}
	for (int round = 0; round < ROUNDS; round++) {
		double from = now(), took;
		long wrong = 0;

		for (int i = 0; i < CALLS; i++) {
			if (!strcmp(call, "null")) {
				wrong += syscall(SYS_getppid) <= 0;
			} else if (!strcmp(call, "fcntl")) {
				wrong += syscall(SYS_fcntl, fd, F_GETFD, 0) < 0;
			} else if (!strcmp(call, "open") || !strcmp(call, "fresh")) {
				int one = syscall(SYS_openat, AT_FDCWD, path, O_RDWR, 0);

				wrong += one < 0;
				if (*call == 'f')
					wrong += syscall(SYS_fcntl, one, 0x52530005, queue[0]) != 1;
				syscall(SYS_close, one);
			} else if (!strcmp(call, "set")) {
				wrong += syscall(SYS_fcntl, fd, 0x52530005, queue[i & 1]) != 1;
			} else if (!strcmp(call, "get")) {
				wrong += syscall(SYS_fcntl, fd, 0x52530006, resource) <= 0;
			} else {
				return 2;
			}
		}
		if (wrong)
			return 3;
		took = (now() - from) / CALLS;
		if (!round || took < best)
			best = took;
	}
	printf("%.1f\n", best);
	return 0;
}
