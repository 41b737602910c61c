// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * floodload FILE ROLE …: the programs of tests/bench/flood. FILE holds what they tell: words of
 * 64 bits, each role counts from its SLOT on. Word 0 is the phase. 0: the wire sleeps; else packets
 * count for that phase.
 *
 *   spin SLOT                            counts turns of STRAIGHT instructions
 *   idle                                 keeps a CPU of the wire busy while a phase is on
 *   read SLOT FIRST COUNT                takes what comes to so many UDP ports; counts packets
 *   echo SLOT PORT                       answers each datagram
 *   client SLOT PORT RATE A B    asks the machine, by its address A or B, RATE a second; counts
 *                                requests, answers, and has the latency of each answer (us) from
 *                                the third word on
 *   send SLOT FROM A B           sends to the machine's address A, or to B, where nobody is, from
 *                                an address of its own; counts packets
 *
 * Word 1: the client asks no more, answers count. 2: packets a second of each sender. 3: to B.
 * 4 and 5: first port and number of ports that have them in turn. 6: bytes of a packet. 7: the
 * client asks B.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "spin.h"

#define WORDS (1 << 17)
#define LATENCIES 60000
#define BATCH 32 /* datagrams of one call; the kernel divides them (UDP_SEGMENT) */
#define PORTS 8	 /* of a sender: its flows are spread over the machine's CPUs by their hash */
#define UDP_SEGMENT 103

static volatile uint64_t *word;
static char data[65536];

static void need(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static int udp(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int sock = socket(AF_INET, SOCK_DGRAM, 0), one = 1;

	need(sock >= 0, "socket");
	need(!setsockopt(sock, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)), "SO_REUSEPORT");
	need(!bind(sock, (void *)&at, sizeof(at)), "bind");
	return sock;
}

static void spin(volatile uint64_t *slot)
{
	for (;; ++*slot)
		straight_line();
}

static void idle(void)
{
	for (;;)
		if (*word)
			straight_line();
		else
			usleep(20000);
}

static void take(volatile uint64_t *slot, int first, int count)
{
	struct epoll_event events[64];
	int set = epoll_create1(0), i, n;

	if (count == 1) {
		int sock = udp(first);

		for (;; ++*slot)
			need(recv(sock, data, sizeof(data), 0) >= 0, "recv");
	}
	for (i = 0; i < count; i++) {
		struct epoll_event event = { .events = EPOLLIN };

		event.data.fd = udp(first + i);
		need(!epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event), "epoll_ctl");
	}
	for (;;) {
		n = epoll_wait(set, events, 64, -1);
		for (i = 0; i < n; i++)
			while (recv(events[i].data.fd, data, sizeof(data), MSG_DONTWAIT) >= 0)
				++*slot;
	}
}

static void echo(volatile uint64_t *slot, int port)
{
	struct sockaddr_in from;
	socklen_t len;
	ssize_t size;
	int sock = udp(port);

	for (;; ++*slot) {
		len = sizeof(from);
		size = recvfrom(sock, data, sizeof(data), 0, (void *)&from, &len);
		need(size >= 0, "recvfrom");
		sendto(sock, data, size, 0, (void *)&from, len);
	}
}

/* It asks when that is due, not when the last answer has come. Its timer is the emulator's measure
 * too: no CPU's turn is longer than the time to the next timer. */
static void client(volatile uint64_t *slot, struct sockaddr_in *to, uint64_t rate)
{
	struct timespec tick = { 0, 1000000000 / rate / 8 };
	struct { uint64_t phase, at; } ask, got;
	uint64_t due = now_ns(), step = 1000000000 / rate;
	int sock = udp(0);
	struct pollfd fd = { .fd = sock, .events = POLLIN };

	for (;; ppoll(&fd, 1, &tick, 0)) {
		while (recv(sock, &got, sizeof(got), MSG_DONTWAIT) == sizeof(got))
			if (got.phase == *word && *word && slot[1] < LATENCIES) {
				slot[2 + slot[1]] = (now_ns() - got.at) / 1000;
				++slot[1];
			}
		if (!*word)
			usleep(20000);
		if (now_ns() < due)
			continue;
		due += step;
		if (due + 100 * step < now_ns())
			due = now_ns();
		ask.phase = *word;
		ask.at = now_ns();
		if (ask.phase && !word[1] &&
		    sendto(sock, &ask, sizeof(ask), 0, (void *)&to[word[7]], sizeof(*to)) > 0)
			++*slot;
	}
}

static void flood(volatile uint64_t *slot, struct sockaddr_in *from, struct sockaddr_in *to)
{
	uint64_t begin = 0, sent = 0, phase = 0, turn = 0;
	int sock[PORTS], i, n, size;

	for (i = 0; i < PORTS; i++) {
		sock[i] = socket(AF_INET, SOCK_DGRAM, 0);
		need(!bind(sock[i], (void *)from, sizeof(*from)), "bind");
	}
	for (;;) {
		if (!*word)
			usleep(20000);
		if (phase != *word) {
			phase = *word;
			begin = now_ns();
			sent = 0;
			size = word[6];
			for (i = 0; size && i < PORTS; i++)
				need(!setsockopt(sock[i], IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)), "UDP_SEGMENT");
		}
		if (!phase || (now_ns() - begin) * word[2] / 1000000000 < sent + BATCH) {
			straight_line();
			continue;
		}
		to[word[3]].sin_port = htons(word[4] + turn % word[5]);
		n = sendto(sock[turn % PORTS], data, size * BATCH, 0, (void *)&to[word[3]], sizeof(*to));
		turn++;
		/* What the socket's buffer had no room for was not sent. */
		if (n > 0) {
			sent += n / size;
			*slot += n / size;
		}
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in at[3] = { { 0 } };
	const char *role = argc > 2 ? argv[2] : "";
	volatile uint64_t *slot;
	int i, file = argc > 2 ? open(argv[1], O_RDWR) : -1;

	need(file >= 0, "floodload FILE ROLE");
	word = mmap(0, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	need(word != MAP_FAILED, "mmap");
	slot = word + (argc > 3 ? atoi(argv[3]) : 0);
	if (!strcmp(role, "spin") && argc == 4)
		spin(slot);
	if (!strcmp(role, "idle"))
		idle();
	if (!strcmp(role, "read") && argc == 6)
		take(slot, atoi(argv[4]), atoi(argv[5]));
	if (!strcmp(role, "echo") && argc == 5)
		echo(slot, atoi(argv[4]));
	for (i = 0; i < 3; i++)
		at[i].sin_family = AF_INET;
	if (!strcmp(role, "client") && argc == 8 && inet_aton(argv[6], &at[0].sin_addr) &&
	    inet_aton(argv[7], &at[1].sin_addr)) {
		at[0].sin_port = at[1].sin_port = htons(atoi(argv[4]));
		client(slot, at, atoi(argv[5]));
	}
	if (!strcmp(role, "send") && argc == 7) {
		for (i = 0; i < 3; i++)
			need(inet_aton(argv[4 + i], &at[i].sin_addr), argv[4 + i]);
		flood(slot, at, at + 1);
	}
	fprintf(stderr, "floodload: what is %s?\n", role);
	return 1;
}
