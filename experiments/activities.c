// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A server whose activities are requests, its clients, and what the calls of containers cost: for
 * experiments/containers and tests/guest/container_pool, container_requests.
 *
 *   activities server PORT PAGE none    as it is; PAGE is a file of 1 KB, which is opened and
 *                                       read for each request, or -: it stands in memory
 *   activities server PORT PAGE pool PARENT COUNT   each request is an activity of a pool
 *                                       (reserv_pool_open(3))
 *   activities server PORT PAGE cgroup PROCS…       moves itself to the next cgroup for each
 *                                       request
 *   activities client PORT CONNECTIONS MS keep|close PID   so many at a time, each asks as soon as
 *                                       it was answered; prints how many requests were answered,
 *                                       in how many ns, and the server PID's CPU time of them
 *   activities cost PARENT COUNT        prints names and ns: null system call; begin and end; with
 *                                       all that they cost later, a system call now and then
 *                                       included; by function; an entry; a binding by call; what a
 *                                       thread has used, by the kernel's clock; what a container
 *                                       has used, by its file; opening a pool and closing it, for
 *                                       each container
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <reserv.h>

#include "../tests/lib/clock.h"

#define EVENTS 64
#define GROUPS 64
/* A page of 1 KB, as the paper's. */
#define BODY 1024

static struct reserv_pool *pool;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s %s\n", what, strerror(errno), reserv_error());
	exit(1);
}

enum { NULL_CALL, PAIR, FUNCTIONS, ENTRY, BIND, THREAD_TIME, USAGE_FILE };

static struct reserv_page *page;
static int slots[2], files[2];
static char usage_path[4096];

static void once(int what, int i)
{
	char text[4096];
	struct timespec t;
	int fd;

	if (what == NULL_CALL) {
		syscall(SYS_getppid);
	} else if (what == PAIR) {
		if (reserv_page_end(page, pool, reserv_page_begin(page, pool)))
			fail("end");
	} else if (what == FUNCTIONS) {
		if (reserv_end(pool, reserv_begin(pool)))
			fail("end");
	} else if (what == ENTRY) {
		reserv_page_work(page, slots[i & 1]);
	} else if (what == BIND) {
		if (fcntl(files[i & 1], F_RESERV_BIND, 0) != 1)
			fail("bind");
	} else if (what == THREAD_TIME) {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	} else {
		fd = open(usage_path, O_RDONLY);
		if (fd < 0 || read(fd, text, sizeof(text)) <= 0) {
			perror(usage_path);
			exit(1);
		}
		close(fd);
	}
}

/*
 * Of one, in the best of five times. Of less than 128 entries none lets the page be read: then what
 * they cost later is not in it.
 */
static double each(int n, int what)
{
	double best = 1e18, ns;
	uint64_t from;
	int i, k;

	for (k = 0; k < 5; k++) {
		while (page->head % 128)
			reserv_page_work(page, 0);
		if (reserv_page_settle(page))
			fail("settle");
		from = now_ns();
		for (i = 0; i < n; i++)
			once(what, i);
		ns = (double)(now_ns() - from) / n;
		if (ns < best)
			best = ns;
	}
	return best;
}

static void cost(const char *parent, const char *count)
{
	uint64_t from = now_ns(), open_ns, close_ns;
	struct reserv_pool_params params = { .share = "10" };
	double n = atoi(count);
	int a, b, i;

	pool = reserv_pool_open(parent, atoi(count), &params);
	if (!pool)
		fail("pool");
	open_ns = now_ns() - from;
	page = reserv_page();
	if (!page)
		fail("page");
	a = reserv_begin(pool);
	b = reserv_begin(pool);
	slots[0] = reserv_activity_slot(a);
	slots[1] = reserv_activity_slot(b);
	for (i = 0; i < 2; i++) {
		if (reserv_work(slots[i]) || reserv_bound(usage_path, sizeof(usage_path)) <= 0)
			fail("bound");
		files[i] = open(usage_path, O_RDONLY | O_DIRECTORY);
	}
	strcat(usage_path, "/usage");
	if (reserv_end(pool, b) || reserv_end(pool, a) || reserv_work(0))
		fail("end");
	printf("null %.1f pair %.1f", each(20000, NULL_CALL), each(60, PAIR));
	printf(" later %.1f", each(20000, PAIR));
	printf(" functions %.1f entry %.1f", each(60, FUNCTIONS), each(120, ENTRY));
	printf(" bind %.1f", each(2000, BIND));
	if (reserv_unbind())
		fail("unbind");
	printf(" thread %.1f usage %.1f", each(20000, THREAD_TIME), each(20, USAGE_FILE));
	close(files[0]);
	close(files[1]);
	from = now_ns();
	if (reserv_pool_close(pool))
		fail("close");
	close_ns = now_ns() - from;
	printf(" open %.1f close %.1f\n", open_ns / n, close_ns / n);
}


static void watch(int epoll, int op, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	if (epoll_ctl(epoll, op, fd, &event))
		fail("epoll_ctl");
}

static const char *document;
static char answer[BODY + 256];
static size_t head_size;

/* Reads a request and answers it. Whether the connection goes on. */
static int serve(int fd)
{
	char request[2048];
	ssize_t got = recv(fd, request, sizeof(request) - 1, 0);
	struct stat status;
	int file;

	if (got <= 0)
		return 0;
	request[got] = 0;
	if (document) {
		file = open(document, O_RDONLY | O_CLOEXEC);
		if (file < 0 || fstat(file, &status) || status.st_size != BODY ||
		    read(file, answer + head_size, BODY) != BODY)
			fail(document);
		close(file);
	}
	if (send(fd, answer, head_size + BODY, MSG_NOSIGNAL) != (ssize_t)head_size + BODY)
		return 0;
	return !strstr(request, "Connection: close");
}

static void server(int port, const char *how, char **argv, int argc)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = epoll_create1(0), one = 1;
	int groups[GROUPS], count = 0, next = 0, activity = 0, i, n, fd, goes_on;
	struct reserv_page *page = 0;
	struct epoll_event events[EVENTS];

	if (!strcmp(how, "pool")) {
		struct reserv_pool_params params = { .share = "10" };

		pool = reserv_pool_open(argv[0], atoi(argv[1]), &params);
		page = reserv_page();
		if (!pool || !page)
			fail("pool");
	} else if (!strcmp(how, "cgroup")) {
		for (i = 0; i < argc && count < GROUPS; i++) {
			groups[count] = open(argv[i], O_WRONLY);
			if (groups[count++] < 0)
				fail(argv[i]);
		}
	}
	head_size = snprintf(answer, sizeof(answer),
			     "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BODY);
	memset(answer + head_size, 'x', BODY);
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(listener, (struct sockaddr *)&here, sizeof(here)) || listen(listener, 1024))
		fail("listen");
	watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN);
	printf("listens\n");
	fflush(stdout);
	for (;;) {
		n = epoll_wait(epoll, events, EVENTS, -1);
		for (i = 0; i < n; i++) {
			fd = events[i].data.fd;
			if (fd == listener) {
				fd = accept4(listener, 0, 0, SOCK_NONBLOCK);
				if (fd >= 0)
					watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
				continue;
			}
			if (pool)
				activity = reserv_page_begin(page, pool);
			else if (count && write(groups[next++ % count], "0", 1) != 1)
				fail("cgroup");
			goes_on = serve(fd);
			if (!goes_on)
				close(fd);
			if (pool && (activity < 0 || reserv_page_end(page, pool, activity)))
				fail("activity");
		}
	}
}

static void ask(int epoll, int port, int fd, const char *request)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1;

	if (fd < 0) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		if (fd < 0 || connect(fd, (struct sockaddr *)&there, sizeof(there)) ||
		    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
			fail("connect");
		watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
	}
	if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
		fail("ask");
}

static void client(int port, int connections, uint64_t ms, int keep, pid_t of)
{
	const char *request = keep ? "GET / HTTP/1.1\r\nHost: a\r\n\r\n" :
				     "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
	clockid_t used = (clockid_t)(~(unsigned int)of << 3 | 2);
	uint64_t begin, until, cpu, done = 0, warm = 0, before = 0, first = 0;
	int epoll = epoll_create1(0), i, n, fd;
	struct epoll_event events[EVENTS];
	char text[2048];
	ssize_t got;

	for (i = 0; i < connections; i++)
		ask(epoll, port, -1, request);
	/* A fifth of the time first, so that all is in its course. */
	begin = now_ns() + ms * 200000;
	until = begin + ms * 1000000;
	while (now_ns() < until) {
		if (!warm && now_ns() >= begin) {
			warm = 1;
			before = clock_of(used);
			begin = now_ns();
			first = done;
		}
		n = epoll_wait(epoll, events, EVENTS, 1000);
		for (i = 0; i < n; i++) {
			fd = events[i].data.fd;
			got = recv(fd, text, sizeof(text), 0);
			if (got < BODY)
				fail("answer");
			done++;
			if (!keep) {
				close(fd);
				fd = -1;
			}
			ask(epoll, port, fd, request);
		}
	}
	cpu = clock_of(used) - before;
	printf("%llu %llu %llu\n", (unsigned long long)(done - first),
	       (unsigned long long)(now_ns() - begin), (unsigned long long)cpu);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "cost")) {
		cost(argv[2], argv[3]);
	} else if (argc >= 5 && !strcmp(argv[1], "server")) {
		document = strcmp(argv[3], "-") ? argv[3] : 0;
		server(atoi(argv[2]), argv[4], argv + 5, argc - 5);
	} else if (argc == 7 && !strcmp(argv[1], "client")) {
		client(atoi(argv[2]), atoi(argv[3]), strtoull(argv[4], 0, 10),
		       !strcmp(argv[5], "keep"), atoi(argv[6]));
	} else {
		return 2;
	}
	return 0;
}
