// SPDX-License-Identifier: MIT OR Apache-2.0
/* What the servers and clients of syns.c and preferred.c have in common. */
#ifndef EXPERIMENTS_CLIENTS_H
#define EXPERIMENTS_CLIENTS_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void fail(const char *what)
{
	perror(what);
	exit(1);
}

static inline void watch(int epoll, int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e))
		fail("epoll_ctl");
}

/* A connection, and how much of the answer has come. */
struct client {
	int fd, got;
};

/* Is told when it may ask. */
static inline void begin(int epoll, struct client *c, const struct sockaddr_in *to)
{
	struct epoll_event e = { .events = EPOLLOUT, .data.ptr = c };

	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	c->got = 0;
	if (connect(c->fd, (const struct sockaddr *)to, sizeof(*to)) && errno != EINPROGRESS)
		fail("connect");
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e))
		fail("epoll_ctl");
}

/* By a reset: nothing of it is left at either end. */
static inline void end(int fd)
{
	struct linger at_once = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fd);
}

#endif
