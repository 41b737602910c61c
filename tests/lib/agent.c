// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A process whose every thread does what it is told over a connection of its own
 * (tests/soak/tags_random).
 *
 *   agent SOCKET        connects, says "PID TID", and then does lines:
 *     fork              a child, whose first thread connects by itself
 *     thread            another thread, likewise
 *     exec              this thread executes the program again, and connects again; the other threads of the process are gone
 *     tag PATH          chcpures by a descriptor of the path
 *     end               the thread ends
 *   Each but exec and end is answered by "0" or an errno; what it makes says "PID TID" on a new connection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <reserv.h>

static const char *where;

static int tag(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error = 0;

	if (fd < 0)
		return errno;
	if (fcntl(fd, F_RESERV_CHCPURES, 0) != 1)
		error = errno;
	close(fd);
	return error;
}

static void *serve(void *unused)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	pthread_t thread;
	char line[512];
	ssize_t got;
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), error;
	pid_t child;

	snprintf(name.sun_path, sizeof(name.sun_path), "%s", where);
	if (connect(s, (struct sockaddr *)&name, sizeof(name)))
		_exit(3);
	snprintf(line, sizeof(line), "%d %ld", getpid(), syscall(SYS_gettid));
	(void)!write(s, line, strlen(line));
	while ((got = read(s, line, sizeof(line) - 1)) > 0) {
		line[got] = 0;
		error = 0;
		if (!strcmp(line, "fork")) {
			child = fork();
			if (child == 0) {
				close(s);
				serve(unused);
				_exit(0);
			}
			error = child < 0 ? errno : 0;
		} else if (!strcmp(line, "thread")) {
			error = pthread_create(&thread, NULL, serve, NULL);
			if (!error)
				pthread_detach(thread);
		} else if (!strcmp(line, "exec")) {
			/*
			 * Not /proc/self/exe, which is nothing where the process' first thread has
			 * ended.
			 */
			execl("/proc/thread-self/exe", "agent", where, NULL);
			error = errno;
		} else if (!strncmp(line, "tag ", 4)) {
			error = tag(line + 4);
		} else if (!strcmp(line, "end")) {
			break;
		} else {
			error = EINVAL;
		}
		snprintf(line, sizeof(line), "%d", error);
		(void)!write(s, line, strlen(line));
	}
	close(s);
	return unused;
}

int main(int count, char **word)
{
	if (count != 2)
		return 2;
	where = word[1];
	/* Children leave nothing behind. */
	signal(SIGCHLD, SIG_IGN);
	serve(NULL);
	/* The first thread's end is the process's only where it is the last. */
	pthread_exit(NULL);
}
