// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * rxload NETNS PEER SECONDS SIZE RATE HOW [QUEUE]: a process in the network name space of that file
 * sends datagrams of SIZE bytes, RATE a second, to a socket at PEER, port 9, in ours, tagged with
 * QUEUE (a directory of /reserv). HOW is `read` (it takes all that comes) or `leave` (it takes
 * nothing, so that its buffer is full soon). Another process burns what is left of the CPU, at
 * SCHED_IDLE.
 *
 * Prints: wall_ns busy_ns sent taken. Busy is what the way of all packets has cost, from the system
 * call that sends to the one that takes, with what the system takes itself.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SET_QUEUE 0x52530005

static struct shared {
	volatile uint64_t burnt, sent, taken;
} *s;

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void need(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static void burn(void)
{
	struct sched_param none = { 0 };

	need(!sched_setscheduler(0, SCHED_IDLE, &none), "SCHED_IDLE");
	for (;;)
		s->burnt = now(CLOCK_THREAD_CPUTIME_ID);
}

static void take(int sock)
{
	static char data[65536];

	while (recv(sock, data, sizeof(data), 0) >= 0)
		s->taken++;
	exit(1);
}

/* A few at a time, each time they are due. */
static void send_all(const char *netns, struct sockaddr_in *to, int size, uint64_t rate)
{
	static char data[65536];
	int ns = open(netns, O_RDONLY), sock;
	uint64_t begin, due;

	need(ns >= 0 && !setns(ns, CLONE_NEWNET), netns);
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	need(sock >= 0 && !connect(sock, (void *)to, sizeof(*to)), "connect");
	begin = now(CLOCK_MONOTONIC);
	for (;;) {
		due = (now(CLOCK_MONOTONIC) - begin) * rate / 1000000000;
		for (; s->sent < due; s->sent++)
			send(sock, data, size, 0);
		usleep(1000);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(9) };
	uint64_t begin, burnt, sent, taken, wall;
	pid_t child[3] = { 0 };
	int sock, queue, i;

	need(argc >= 7 && inet_aton(argv[2], &at.sin_addr), "rxload NETNS PEER SECONDS SIZE RATE HOW [QUEUE]");
	s = mmap(0, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(s != MAP_FAILED, "mmap");
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	if (argc > 7) {
		queue = open(argv[7], O_RDONLY | O_DIRECTORY);
		need(queue >= 0 && fcntl(sock, SET_QUEUE, queue) == 1, argv[7]);
	}
	need(!bind(sock, (void *)&at, sizeof(at)), "bind");
	if (!(child[0] = fork()))
		burn();
	if (!strcmp(argv[6], "read") && !(child[1] = fork()))
		take(sock);
	if (!(child[2] = fork()))
		send_all(argv[1], &at, atoi(argv[4]), strtoull(argv[5], 0, 10));
	usleep(300000);
	begin = now(CLOCK_MONOTONIC);
	burnt = s->burnt;
	sent = s->sent;
	taken = s->taken;
	usleep(atof(argv[3]) * 1e6);
	wall = now(CLOCK_MONOTONIC) - begin;
	burnt = s->burnt - burnt;
	printf("%llu %llu %llu %llu\n", (unsigned long long)wall, (unsigned long long)(wall - burnt),
	       (unsigned long long)(s->sent - sent), (unsigned long long)(s->taken - taken));
	for (i = 0; i < 3; i++)
		if (child[i] > 0)
			kill(child[i], SIGKILL);
	return 0;
}
