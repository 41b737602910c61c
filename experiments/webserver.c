// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * An event server as that of Resource Containers, section 5: one thread, a page of 1 KB, programs
 * by fork; and its clients. For experiments/containers.
 *
 *   webserver serve PORT PAGE COUNTS SLOT MS [PARENT]   the file PAGE, opened and read for each
 *                                  request; for /cgi a program that computes for MS, and ends the
 *                                  connection. With PARENT each program is in a container of its
 *                                  own below that. Word SLOT of the file COUNTS has how many pages
 *                                  were sent
 *   webserver burn MS              that program
 *   webserver get PORT CONNECTIONS PATH   so many at a time, each asks as soon as it was answered,
 *                                  until it is killed
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <reserv.h>

#include "../tests/lib/clock.h"

#define EVENTS 64
/* As the paper's. */
#define BODY 1024

static void fail(const char *what)
{
	fprintf(stderr, "webserver: %s: %s %s\n", what, strerror(errno), reserv_error());
	exit(1);
}

static char answer[BODY + 256];
static size_t head_size, answer_size;

static void make_answer(void)
{
	head_size = snprintf(answer, sizeof(answer),
			     "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BODY);
	memset(answer + head_size, 'x', BODY);
	answer_size = head_size + BODY;
}

/* Whether the page was sent. */
static int send_page(int fd, const char *page)
{
	int file = open(page, O_RDONLY | O_CLOEXEC);

	if (file < 0 || read(file, answer + head_size, BODY) != BODY)
		fail(page);
	close(file);
	return send(fd, answer, answer_size, MSG_NOSIGNAL) > 0;
}

static void burn(uint64_t ms)
{
	while (clock_of(CLOCK_PROCESS_CPUTIME_ID) < ms * 1000000)
		;
	make_answer();
	if (write(STDOUT_FILENO, answer, answer_size) != (ssize_t)answer_size)
		exit(1);
}

static void watch(int epoll, int op, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(epoll, op, fd, &event))
		fail("epoll_ctl");
}

/* The program's answer goes to its client as it is. Its container lasts as long as it does. */
static void program(int fd, const char *ms, const char *parent)
{
	pid_t pid = fork();
	char path[4096];
	int made;

	if (pid < 0)
		fail("fork");
	if (pid)
		return;
	if (parent) {
		snprintf(path, sizeof(path), "%s/new", parent);
		made = open(path, O_RDONLY | O_CLOEXEC);
		if (made < 0 || reserv_bind(made))
			fail(path);
	}
	if (dup2(fd, STDOUT_FILENO) < 0)
		fail("dup2");
	execl("/proc/self/exe", "webserver", "burn", ms, (char *)0);
	fail("exec");
}

static uint64_t *counter(const char *path, int slot)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint64_t *words = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (words == MAP_FAILED)
		fail(path);
	close(fd);
	return words + slot;
}

static void serve(int port, const char *page, uint64_t *sent, const char *ms, const char *parent)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int epoll = epoll_create1(EPOLL_CLOEXEC), one = 1, i, n, fd;
	struct epoll_event events[EVENTS];
	char request[2048];
	ssize_t got;

	/* Nobody waits for the programs. */
	signal(SIGCHLD, SIG_IGN);
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(listener, (struct sockaddr *)&here, sizeof(here)) || listen(listener, 1024))
		fail("listen");
	watch(epoll, EPOLL_CTL_ADD, listener);
	make_answer();
	printf("listens\n");
	fflush(stdout);
	for (;;) {
		n = epoll_wait(epoll, events, EVENTS, -1);
		for (i = 0; i < n; i++) {
			fd = events[i].data.fd;
			if (fd == listener) {
				fd = accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
				if (fd >= 0)
					watch(epoll, EPOLL_CTL_ADD, fd);
				continue;
			}
			got = recv(fd, request, sizeof(request) - 1, 0);
			request[got > 0 ? got : 0] = 0;
			if (got > 0 && strncmp(request, "GET /cgi ", 9)) {
				if (send_page(fd, page))
					++*(volatile uint64_t *)sent;
				continue;
			}
			if (got > 0)
				program(fd, ms, parent);
			/*
			 * A child that has not come to its exec holds what is closed here, and
			 * what is heard of that is another connection's number by then.
			 */
			watch(epoll, EPOLL_CTL_DEL, fd);
			close(fd);
		}
	}
}

static int connected(int epoll, int port)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&there, sizeof(there)))
		fail("connect");
	watch(epoll, EPOLL_CTL_ADD, fd);
	return fd;
}

static void get(int port, int connections, const char *path)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC), ends = !strcmp(path, "/cgi"), i, n, fd;
	struct epoll_event events[EVENTS];
	char request[256], text[2048];
	size_t size;

	size = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
	for (i = 0; i < connections; i++)
		if (send(connected(epoll, port), request, size, MSG_NOSIGNAL) < 0)
			fail("ask");
	for (;;) {
		n = epoll_wait(epoll, events, EVENTS, -1);
		for (i = 0; i < n; i++) {
			fd = events[i].data.fd;
			if (recv(fd, text, sizeof(text), 0) < BODY)
				fail("answer");
			if (ends) {
				close(fd);
				fd = connected(epoll, port);
			}
			if (send(fd, request, size, MSG_NOSIGNAL) < 0)
				fail("ask");
		}
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "burn"))
		burn(strtoull(argv[2], 0, 10));
	else if ((argc == 7 || argc == 8) && !strcmp(argv[1], "serve"))
		serve(atoi(argv[2]), argv[3], counter(argv[4], atoi(argv[5])), argv[6], argv[7]);
	else if (argc == 5 && !strcmp(argv[1], "get"))
		get(atoi(argv[2]), atoi(argv[3]), argv[4]);
	else
		return 2;
	return 0;
}
