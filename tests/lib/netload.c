// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * netload PEER SINK SECONDS SIZE HOW QUEUE…: datagrams of SIZE bytes (`gso:QUEUE`: 16 at a time, as
 * one packet of segments), so that every queue of the link always has packets; another process
 * burns what is left of the CPU, at SCHED_IDLE, and counts how much that was. SINK is a file of a
 * network name space with PEER in it, where all is taken. HOW is `fcntl` (QUEUE is a directory of
 * /reserv), `prio` (QUEUE is a class, in hex), `none`. Each QUEUE has a process of its own, which
 * sends as fast as the socket's buffer lets it; or, with `+RATE` after HOW, one process has all
 * sockets and sends to them in turn, so many datagrams a second after the first fill, which a link
 * of that rate does not make shorter. A QUEUE `probe:QUEUE` sends 64 bytes every 5 ms and learns
 * how long they took.
 *
 * Prints: wall_ns busy_ns packets idle_ppm (of the CPU while nobody sent: what the system itself
 * takes, a part of busy_ns), then a line for each queue: packets, and of a probe its number, p50,
 * p99 and maximum in ns.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QUEUES 10100
#define SET_QUEUE 0x52530005
#define PROBES 20000
#define SEGMENTS 16

static struct shared {
	volatile uint64_t burnt, sent[QUEUES], came;
	volatile uint32_t probes, delay[PROBES];
	volatile int ready, go;
} *s;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void need(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static uint64_t burn(uint64_t rounds)
{
	uint64_t i;

	for (i = 0; i < rounds; i++)
		asm volatile("" : : : "memory");
	return i;
}

static void take(const char *space, uint16_t port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = open(space, O_RDONLY), sock, size = 1 << 26;
	uint64_t data[8], n;

	need(fd >= 0 && !setns(fd, CLONE_NEWNET), space);
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	need(!bind(sock, (void *)&at, sizeof(at)), "bind");
	if (port == 10)
		setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	__sync_fetch_and_add(&s->ready, 1);
	if (port == 9) /* nobody reads: its buffer is full soon, and the rest is dropped there */
		for (;;)
			pause();
	for (;;) {
		if (recv(sock, data, sizeof(data), 0) < 8)
			continue;
		n = s->probes;
		if (n < PROBES) {
			s->delay[n] = now() - data[0];
			s->probes = n + 1;
		}
	}
}

/* The socket of a queue; what it sends at once is `*length` bytes. */
static int open_queue(const char *how, const char *queue, int size, int small, int *length)
{
	int sock = socket(AF_INET, SOCK_DGRAM, 0);

	need(sock >= 0, "socket");
	*length = size;
	if (!strncmp(queue, "probe:", 6)) {
		queue += 6;
		small = 1 << 20;
	}
	if (!strncmp(queue, "gso:", 4)) {
		queue += 4;
		need(!setsockopt(sock, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)), "UDP_SEGMENT");
		*length = size * SEGMENTS;
		small = 4 * *length;
	}
	if (!strncmp(how, "fcntl", 5)) {
		int fd = open(queue, O_RDONLY | O_DIRECTORY);

		need(fd >= 0 && fcntl(sock, SET_QUEUE, fd) == 1, queue);
		close(fd);
	} else if (!strncmp(how, "prio", 4)) {
		unsigned int class = strtoul(queue, 0, 16);

		need(!setsockopt(sock, SOL_SOCKET, SO_PRIORITY, &class, sizeof(class)), "SO_PRIORITY");
	}
	setsockopt(sock, SOL_SOCKET, small > 1 << 16 ? SO_SNDBUFFORCE : SO_SNDBUF, &small, sizeof(small));
	return sock;
}

/* Queues first … end - 1, in turn. */
static void send_all(int first, int end, const char *how, char **queues, const char *peer, int size)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	static char data[1472 * SEGMENTS];
	static int socks[QUEUES], length[QUEUES];
	uint64_t rate = strchr(how, '+') ? strtoull(strchr(how, '+') + 1, 0, 10) : 0;

	inet_pton(AF_INET, peer, &to.sin_addr);
	for (int i = first; i < end; i++)
		socks[i] = open_queue(how, queues[i], size, rate ? 1 << 24 : 16384, &length[i]);
	__sync_fetch_and_add(&s->ready, 1);
	while (!s->go)
		usleep(1000);
	if (!strncmp(queues[first], "probe:", 6)) {
		to.sin_port = htons(10);
		for (;;) {
			*(uint64_t *)data = now();
			sendto(socks[first], data, 64, 0, (void *)&to, sizeof(to));
			s->sent[first]++;
			usleep(5000);
		}
	}
	if (rate) {
		/*
		 * 65 536 packets may wait on one link: of many sockets each has few. A link that
		 * was idle may send 20 ms of its rate at once, which must not empty the queues.
		 */
		uint64_t begin = now(), sent = 0, fill = rate / 40 + (end - first) * (end - first > 1000 ? 5ULL : 20ULL);

		for (int i = first;; i = i + 1 < end ? i + 1 : first) {
			while (sent >= fill + (now() - begin) * rate / 1000000000)
				usleep(1000);
			if (sendto(socks[i], data, length[i], 0, (void *)&to, sizeof(to)) > 0)
				s->sent[i]++;
			sent++;
		}
	}
	for (;;)
		for (int i = first; i < end; i++)
			if (sendto(socks[i], data, length[i], 0, (void *)&to, sizeof(to)) > 0)
				s->sent[i] += length[i] / size;
}

static int order(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t per; /* a round of burning, in ps */

/* The CPU's time that is not burnt, during so many seconds. */
static uint64_t busy(double seconds, uint64_t *wall)
{
	uint64_t burnt = s->burnt, begin = now();

	usleep(seconds * 1e6);
	*wall = now() - begin;
	burnt = (s->burnt - burnt) * per / 1000;
	return burnt < *wall ? *wall - burnt : 0;
}

int main(int argc, char **argv)
{
	struct rlimit files = { 2 * QUEUES, 2 * QUEUES };
	static uint64_t before[QUEUES];
	uint64_t begin, wall, spent, idle, all = 0;
	int n = argc - 6, senders = n, i, size;
	struct sched_param lowest = { 0 };
	const char *peer, *how;
	static pid_t pids[QUEUES + 3];
	uint32_t probes;

	if (argc < 7 || n > QUEUES) {
		fprintf(stderr, "netload PEER SINK SECONDS SIZE fcntl|prio|none[+RATE] QUEUE...\n");
		return 2;
	}
	peer = argv[1];
	size = atoi(argv[4]);
	how = argv[5];
	if (strchr(how, '+'))
		senders = 1;
	setrlimit(RLIMIT_NOFILE, &files);
	s = mmap(0, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(s != MAP_FAILED, "mmap");
	for (i = 0; i < senders + 2; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (i < senders)
			send_all(i, senders == 1 ? n : i + 1, how, argv + 6, peer, size);
		else
			take(argv[2], 9 + i - senders);
	}
	while (s->ready < senders + 2) {
		usleep(10000);
		need(waitpid(-1, 0, WNOHANG) == 0, "a process ended");
	}
	/* What a round of burning costs, while nobody disturbs. */
	per = ~0ULL;
	for (int tries = 0; tries < 5; tries++) {
		begin = now();
		burn(1000000);
		begin = (now() - begin) / 1000;
		per = begin < per ? begin : per;
	}
	pids[i] = fork();
	if (!pids[i]) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sched_setscheduler(0, SCHED_IDLE, &lowest);
		for (;;)
			s->burnt += burn(1000);
	}
	usleep(100000);
	idle = busy(0.3, &wall) * 1000000 / wall;
	s->go = 1;
	usleep(300000 + 150 * n);
	for (i = 0; i < n; i++)
		before[i] = s->sent[i];
	s->probes = 0;
	spent = busy(atof(argv[3]), &wall);
	for (i = 0; i < n; i++) {
		before[i] = s->sent[i] - before[i];
		all += before[i];
	}
	probes = s->probes;
	printf("%llu %llu %llu %llu\n", (unsigned long long)wall, (unsigned long long)spent, (unsigned long long)all, (unsigned long long)idle);
	qsort((void *)s->delay, probes, sizeof(uint32_t), order);
	for (i = 0; i < n; i++) {
		printf("%llu", (unsigned long long)before[i]);
		if (!strncmp(argv[6 + i], "probe:", 6) && probes)
			printf(" %u %u %u %u", probes, s->delay[probes / 2], s->delay[probes * 99 / 100], s->delay[probes - 1]);
		printf("\n");
	}
	for (i = 0; i < senders + 3; i++)
		kill(pids[i], SIGKILL);
	while (wait(0) > 0)
		;
	return 0;
}
