// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A server that prefers one client, as that of Resource Containers, section 5.5, and its clients.
 *
 *   preferred serve select|epoll all|one|yield PORT PAGE PREFERRED OTHERS   the file PAGE, of 1 KB,
 *                                  opened and read for each connection, until killed. PREFERRED is
 *                                  the address at which the preferred client comes, OTHERS that of
 *                                  the others: each has a listener. What is ready of him goes
 *                                  first; then all that is ready of the others (all), or one of it
 *                                  (one; yield: whoever waits for the CPU goes before it), until
 *                                  it is asked again
 *   preferred often ADDRESS PORT COUNT GAP_US SEED   one connection at a time, COUNT times, about
 *                                  GAP_US of sleep between; prints the ns that each took
 *   preferred crowd ADDRESS PORT N   N connections at a time, each is followed by another as soon
 *                                  as it was answered, until killed
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../tests/lib/clock.h"
#include "clients.h"

#define EVENTS 64
#define BODY 1024
#define CROWD_MAX 256
#define COUNT_MAX 100000
/* So many are asked before they are counted. */
#define WARM 10

/* Clients are other machines: nobody here goes before them. */
static void is_elsewhere(int priority)
{
	struct sched_param first = { .sched_priority = priority };

	if (sched_setscheduler(0, SCHED_FIFO, &first))
		fail("sched_setscheduler");
}

/* The server. A class is a listener and its connections. */

enum { FIRST, OTHERS, CLASSES };

struct class {
	int listener, epoll;
	fd_set is;
};

static struct class classes[CLASSES];
static const char *page;
static int with_select, highest, at_once, yields;

static void joins(struct class *c, int fd)
{
	if (!with_select) {
		watch(c->epoll, fd);
		return;
	}
	if (fd >= FD_SETSIZE) {
		fprintf(stderr, "preferred: select knows no more than %d files\n", FD_SETSIZE);
		exit(1);
	}
	FD_SET(fd, &c->is);
	if (fd > highest)
		highest = fd;
}

static void answer(struct class *c, int fd)
{
	char request[64], body[BODY];
	int file;

	if (read(fd, request, sizeof(request)) > 0) {
		file = open(page, O_RDONLY | O_CLOEXEC);
		if (file < 0 || read(file, body, BODY) != BODY)
			fail(page);
		close(file);
		if (write(fd, body, BODY) != BODY && errno != ECONNRESET && errno != EPIPE)
			fail("answer");
	}
	if (with_select)
		FD_CLR(fd, &c->is);
	close(fd);
}

static void serve_one(struct class *c, int fd)
{
	if (fd != c->listener) {
		answer(c, fd);
		return;
	}
	do {
		fd = accept4(c->listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			joins(c, fd);
	} while (fd >= 0 && at_once > 1);
}

static int listens(const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	at.sin_addr.s_addr = inet_addr(address);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1024))
		fail("listen");
	return fd;
}

/* Serves up to `most` of a class that are ready; how many there were. */
static int serve_selected(struct class *c, const fd_set *ready, int most)
{
	/* Whose turn it is, so that one at a time does not mean the lowest number. */
	static int next;
	int i, fd, n = 0, from = most == 1 ? next : 0;

	for (i = 0; i <= highest && n < most; i++) {
		fd = (from + i) % (highest + 1);
		if (!FD_ISSET(fd, ready) || !FD_ISSET(fd, &c->is))
			continue;
		serve_one(c, fd);
		next = fd + 1;
		n++;
	}
	return n;
}

static void turn_of_select(void)
{
	fd_set ready = classes[FIRST].is;
	int fd;

	for (fd = 0; fd <= highest; fd++)
		if (FD_ISSET(fd, &classes[OTHERS].is))
			FD_SET(fd, &ready);
	if (select(highest + 1, &ready, 0, 0, 0) < 0)
		fail("select");
	if (!serve_selected(&classes[FIRST], &ready, EVENTS) || at_once > 1)
		serve_selected(&classes[OTHERS], &ready, at_once);
}

static int serve_events(struct class *c, int most)
{
	struct epoll_event events[EVENTS];
	int i, n = epoll_wait(c->epoll, events, most, 0);

	for (i = 0; i < n; i++)
		serve_one(c, events[i].data.fd);
	return n;
}

static void serve(char **argv)
{
	int port = atoi(argv[4]), both, i;
	const char *addresses[] = { argv[6], argv[7] };
	struct epoll_event event;

	with_select = !strcmp(argv[2], "select");
	at_once = strcmp(argv[3], "all") ? 1 : EVENTS;
	yields = !strcmp(argv[3], "yield");
	page = argv[5];
	both = epoll_create1(EPOLL_CLOEXEC);
	for (i = 0; i < CLASSES; i++) {
		classes[i].epoll = epoll_create1(EPOLL_CLOEXEC);
		watch(both, classes[i].epoll);
		classes[i].listener = listens(addresses[i], port);
		joins(&classes[i], classes[i].listener);
	}
	puts("listens");
	fflush(stdout);
	for (;;) {
		if (yields)
			sched_yield();
		if (with_select)
			turn_of_select();
		else if ((!serve_events(&classes[FIRST], EVENTS) || at_once > 1) &&
			 !serve_events(&classes[OTHERS], at_once) && epoll_wait(both, &event, 1, -1) < 0)
			fail("epoll_wait");
	}
}

/* The clients. */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void often(const struct sockaddr_in *to, int count, unsigned int gap_us, uint32_t random)
{
	static uint64_t took[COUNT_MAX];
	char body[BODY];
	uint64_t begun;
	int i, fd, got;
	ssize_t part;

	is_elsewhere(50);
	for (i = -WARM; i < count; i++) {
		random = random * 1664525 + 1013904223;
		usleep(gap_us / 2 + (random >> 8) % gap_us);
		begun = now_ns();
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) || write(fd, "GET", 3) != 3)
			fail("ask");
		for (got = 0; got < BODY; got += part) {
			part = read(fd, body, sizeof(body));
			if (part <= 0)
				fail("answer");
		}
		if (i >= 0)
			took[i] = now_ns() - begun;
		end(fd);
	}
	qsort(took, count, sizeof(*took), compare);
	for (i = 0; i < count; i++)
		printf("%llu\n", (unsigned long long)took[i]);
}

static void crowd(const struct sockaddr_in *to, int count)
{
	static struct client all[CROWD_MAX];
	int epoll = epoll_create1(EPOLL_CLOEXEC), i, n;
	struct epoll_event e[EVENTS];
	char body[BODY];
	ssize_t got;

	is_elsewhere(40);
	for (i = 0; i < count; i++)
		begin(epoll, &all[i], to);
	for (;;) {
		n = epoll_wait(epoll, e, EVENTS, -1);
		for (i = 0; i < n; i++) {
			struct epoll_event in = { .events = EPOLLIN, .data.ptr = e[i].data.ptr };
			struct client *c = e[i].data.ptr;

			if (e[i].events == EPOLLOUT) {
				if (write(c->fd, "GET", 3) == 3) {
					epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &in);
					continue;
				}
				fail("ask");
			}
			got = read(c->fd, body, sizeof(body));
			if (got <= 0)
				fail("answer");
			c->got += got;
			if (c->got < BODY)
				continue;
			end(c->fd);
			begin(epoll, c, to);
		}
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	const char *mode = argc > 1 ? argv[1] : "";

	if (argc > 4 && strcmp(mode, "serve")) {
		to.sin_addr.s_addr = inet_addr(argv[2]);
		to.sin_port = htons(atoi(argv[3]));
	}
	if (!strcmp(mode, "serve") && argc == 8)
		serve(argv);
	else if (!strcmp(mode, "often") && argc == 7 && atoi(argv[4]) <= COUNT_MAX)
		often(&to, atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
	else if (!strcmp(mode, "crowd") && argc == 5 && atoi(argv[4]) <= CROWD_MAX)
		crowd(&to, atoi(argv[4]));
	else
		return 2;
	return 0;
}
