/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tagcost CALL FILE [QFD QFD RESOURCE]: the time of one call in ns, the least mean of nine rounds:
 * a timer's tick, or what RCU does late, falls into some. For instruction time (--icount).
 *
 * CALL: null (getppid), fcntl (F_GETFD), dup (F_DUPFD and a close), lock (F_SETLK, taken and given
 * back), open (open and close FILE), set (F_RESERV_SET_QUEUE, to both queues in turn), fresh (set
 * on a file that is not tagged yet, without the open and close around it), get
 * (F_RESERV_GET_QUEUE), got (the same of a tagged file), setopt and getopt (SO_KEEPALIVE of a
 * socket)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 9, CALLS = 1000 };

/* Known before the loop, so that all are measured alike. */
enum call { NO_CALL, NULL_CALL, FCNTL, DUP, LOCK, OPEN, FRESH, SET, GET, GOT, SETOPT, GETOPT };
static const char *const names[] = { "", "null", "fcntl", "dup", "lock", "open", "fresh", "set", "get", "got", "setopt", "getopt" };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* How many of the calls went wrong. */
static long calls(enum call call, int fd, const char *path, const int queue[2], int resource)
{
	socklen_t size = sizeof(int);
	struct flock lock = { .l_whence = SEEK_SET, .l_len = 1 };
	long wrong = 0;
	int one, value = 1;

	for (int i = 0; i < CALLS; i++) {
		switch (call) {
		case NULL_CALL:
			wrong += syscall(SYS_getppid) <= 0;
			break;
		case FCNTL:
			wrong += syscall(SYS_fcntl, fd, F_GETFD, 0) < 0;
			break;
		case DUP:
			one = syscall(SYS_fcntl, fd, F_DUPFD, 0);
			wrong += one < 0 || syscall(SYS_close, one) != 0;
			break;
		case LOCK:
			lock.l_type = F_WRLCK;
			wrong += syscall(SYS_fcntl, fd, F_SETLK, &lock) != 0;
			lock.l_type = F_UNLCK;
			wrong += syscall(SYS_fcntl, fd, F_SETLK, &lock) != 0;
			break;
		case OPEN:
		case FRESH:
			one = syscall(SYS_openat, AT_FDCWD, path, O_RDWR, 0);
			wrong += one < 0;
			if (call == FRESH)
				wrong += syscall(SYS_fcntl, one, 0x52530005, queue[0]) != 1;
			syscall(SYS_close, one);
			break;
		case SET:
			wrong += syscall(SYS_fcntl, fd, 0x52530005, queue[i & 1]) != 1;
			break;
		case GET:
		case GOT:
			wrong += syscall(SYS_fcntl, fd, 0x52530006, resource) <= 0;
			break;
		case SETOPT:
			wrong += syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_KEEPALIVE, &value, size) != 0;
			break;
		case GETOPT:
			wrong += syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size) != 0;
			break;
		default:
			wrong++;
		}
	}
	return wrong;
}

int main(int argc, char **argv)
{
	const char *path = argc > 2 ? argv[2] : "";
	int fd = open(path, O_RDWR), queue[2] = { 0 }, resource = 0;
	enum call call = GETOPT;
	double best = 0;

	if (fd < 0)
		return 1;
	while (call && strcmp(names[call], argv[1]))
		call--;
	if (!call)
		return 2;
	if (call >= SETOPT)
		fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (argc == 6) {
		queue[0] = atoi(argv[3]);
		queue[1] = atoi(argv[4]);
		resource = atoi(argv[5]);
	}
	if (call == GOT && syscall(SYS_fcntl, fd, 0x52530005, queue[0]) != 1)
		return 4;
	for (int round = 0; round < ROUNDS; round++) {
		double from = now(), took;

		if (calls(call, fd, path, queue, resource))
			return 3;
		took = (now() - from) / CALLS;
		if (!round || took < best)
			best = took;
	}
	printf("%.1f\n", best);
	return 0;
}
