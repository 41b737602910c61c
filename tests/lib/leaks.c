// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Sets and drops references to reservations, many times over.
 *
 *   leaks tags N QUEUE QUEUE      the calling thread's tag goes to and fro; ends in the first queue
 *   leaks forks N QUEUE           processes that tag themselves with a second thread running, and
 *                                 are killed
 *   leaks threads N QUEUE         threads that tag themselves and end
 *   leaks files N QUEUE FILE      FILE is opened, tagged and closed
 *   leaks sockets N QUEUE         sockets are made, tagged and closed
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reserv.h>

static int queue[2];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *tagged(void *unused)
{
	if (fcntl(queue[0], F_RESERV_CHCPURES, 0) != 1)
		fail("chcpures in a thread");
	return unused;
}

static void *waits(void *unused)
{
	pause();
	return unused;
}

static void one_process(void)
{
	pthread_t thread;
	int ready[2];
	char byte;
	pid_t child;

	if (pipe2(ready, O_CLOEXEC))
		fail("pipe");
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		if (pthread_create(&thread, NULL, waits, NULL) || fcntl(queue[0], F_RESERV_CHCPURES, 0) != 1)
			_exit(1);
		byte = 'r';
		(void)!write(ready[1], &byte, 1);
		pause();
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail("a child");
	close(ready[0]);
	kill(child, SIGKILL);
	if (waitpid(child, NULL, 0) != child)
		fail("waitpid");
}

static void one_descriptor(const char *file)
{
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		fail(file ? file : "socket");
	if (fcntl(fd, F_RESERV_SET_QUEUE, queue[0]) != 1)
		fail("F_SET_QUEUE");
	close(fd);
}

int main(int count, char **word)
{
	pthread_t thread;
	long n, i;

	if (count < 4)
		return 2;
	n = atol(word[2]);
	queue[0] = open(word[3], O_RDONLY | O_CLOEXEC);
	queue[1] = count > 4 ? open(word[4], O_RDONLY | O_CLOEXEC) : -1;
	if (queue[0] < 0)
		fail(word[3]);
	for (i = 0; i < n; i++) {
		if (!strcmp(word[1], "tags")) {
			if (fcntl(queue[(n - 1 - i) & 1], F_RESERV_CHCPURES, 0) != 1)
				fail("chcpures");
		} else if (!strcmp(word[1], "files") && count > 4) {
			one_descriptor(word[4]);
		} else if (!strcmp(word[1], "sockets")) {
			one_descriptor(NULL);
		} else if (!strcmp(word[1], "forks")) {
			one_process();
		} else if (!strcmp(word[1], "threads")) {
			if (pthread_create(&thread, NULL, tagged, NULL) || pthread_join(thread, NULL))
				fail("thread");
		} else {
			return 2;
		}
	}
	return 0;
}
