// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The kernel's part of reserv_bind(3), played, for tests on kernels that have none: preloaded
 * (LD_PRELOAD), it answers fcntl's F_RESERV_BIND, F_RESERV_UNBIND and F_RESERV_BOUND as the hook of
 * a full driver does for who has every right. Whether the thread's work is charged is no part of
 * the play. A descriptor that is not of RESERV_MOUNT is refused, as there (EINVAL). To the file
 * RESERV_TEST_BINDS each process adds, when it ends, how many bindings it was granted: a line "PID
 * BOUND UNBOUND". A worker that is killed writes none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <reserv.h>

static __thread int bound;
static _Atomic unsigned long binds, unbinds;
static int (*next)(int, int, void *);
/* As the process was started: servers throw their environment away. */
static char mount[4096], counts[4096];

/* Where a descriptor leads; 0: it is not of Reserv's mount, or no directory. */
static int of_reserv(int fd)
{
	char link[64], path[4096];
	struct stat st;
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0 || fstat(fd, &st) || !S_ISDIR(st.st_mode))
		return 0;
	path[length] = 0;
	return !strncmp(path, mount, strlen(mount)) && path[strlen(mount)] == '/';
}

static int answered(int fd, int command, void *word)
{
	if (command != F_RESERV_BIND && command != F_RESERV_UNBIND && command != F_RESERV_BOUND) {
		if (!next)
			next = dlsym(RTLD_NEXT, "fcntl64");
		return next(fd, command, word);
	}
	if (fcntl(fd, F_GETFD) < 0)
		return -1;
	if (!of_reserv(fd)) {
		errno = EINVAL;
		return -1;
	}
	if (command == F_RESERV_BOUND) {
		if (bound)
			return bound + 1;
		errno = ENOENT;
		return -1;
	}
	bound = command == F_RESERV_BIND ? fd + 1 : 0;
	if (bound)
		binds++;
	else
		unbinds++;
	return 1;
}

int fcntl(int fd, int command, ...)
{
	va_list more;
	void *word;

	va_start(more, command);
	word = va_arg(more, void *);
	va_end(more);
	return answered(fd, command, word);
}

/* The same by its other name. */
int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

/* A child starts to count anew. */
static void forked(void)
{
	binds = unbinds = 0;
}

__attribute__((constructor)) static void begun(void)
{
	const char *at = getenv("RESERV_MOUNT"), *file = getenv("RESERV_TEST_BINDS");

	snprintf(mount, sizeof(mount), "%s", at ? at : "/reserv");
	snprintf(counts, sizeof(counts), "%s", file ? file : "");
	pthread_atfork(NULL, NULL, forked);
}

__attribute__((destructor)) static void over(void)
{
	char line[64];
	int fd, length;

	if (!binds || (fd = open(counts, O_WRONLY | O_APPEND | O_CLOEXEC)) < 0)
		return;
	length = snprintf(line, sizeof(line), "%d %lu %lu\n", getpid(), binds, unbinds);
	if (write(fd, line, (size_t)length) != length)
		perror(counts);
	close(fd);
}
