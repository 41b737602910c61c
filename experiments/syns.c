// SPDX-License-Identifier: MIT OR Apache-2.0
// A web server, its clients, and a flood of connection requests.
//
//   syns serve PORT [FILE PREFIX QUEUE]
//     a page of 1 KB for each connection, until killed; with FILE (/reserv/proc/self/listen) a
//     second listener, tagged with QUEUE, is for PREFIX, and the first one for everybody else
//   syns clients ADDRESS PORT N MS
//     N clients, each with one connection after another. Prints requests that were answered and ns
//   syns flood DEVICE MAC ADDRESS PORT RATE MS
//     RATE SYNs a second from 10.66.0.0/16, at a high real-time priority. Prints how many
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../tests/lib/clock.h"
#include "clients.h"

#define F_RESERV_SET_QUEUE 0x52530005
#define SOL_RESERV 0x5253
#define SO_RESERV_SET_QUEUE 5
#define PAGE 1024
#define BACKLOG 128
#define BATCH 64
#define CLIENTS_MAX 256

static int listener(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, BACKLOG))
		fail("listen");
	return fd;
}

static void is_for(const char *file, int socket, const char *clients)
{
	int fd = open(file, O_WRONLY);
	char text[100];
	int size = snprintf(text, sizeof(text), "%d %s", socket, clients);

	if (fd < 0 || write(fd, text, size) != size)
		fail(file);
	close(fd);
}

/* Its queue of the link: by fcntl, or where the kernel refuses trampolines by setsockopt. */
static void tag(int socket, const char *queue)
{
	int fd = open(queue, O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		fail(queue);
	if (fcntl(socket, F_RESERV_SET_QUEUE, fd) != 1 &&
	    setsockopt(socket, SOL_RESERV, SO_RESERV_SET_QUEUE, &fd, sizeof(fd)))
		fail("tag");
	close(fd);
}

static void serve(int port, const char *file, const char *prefix, const char *queue)
{
	static const char page[PAGE];
	int epoll = epoll_create1(0), all = listener(port), some = -1, i, n, fd;
	struct epoll_event e[64];
	char request[64];

	watch(epoll, all);
	if (file) {
		some = listener(port);
		tag(some, queue);
		is_for(file, some, prefix);
		is_for(file, all, "any");
		watch(epoll, some);
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		n = epoll_wait(epoll, e, 64, -1);
		for (i = 0; i < n; i++) {
			fd = e[i].data.fd;
			if (fd == all || fd == some) {
				int connection = accept4(fd, NULL, NULL, SOCK_NONBLOCK);

				if (connection >= 0)
					watch(epoll, connection);
			} else if (read(fd, request, sizeof(request)) <= 0 || write(fd, page, PAGE) != PAGE) {
				close(fd);
			}
		}
	}
}

static void clients(const char *address, int port, int count, int ms)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	static struct client all[CLIENTS_MAX];
	uint64_t from = now_ns(), until = from + ms * 1000000ull, done = 0;
	int epoll = epoll_create1(0), i, n;
	struct epoll_event e[64];
	char page[PAGE];

	to.sin_addr.s_addr = inet_addr(address);
	for (i = 0; i < count; i++)
		begin(epoll, &all[i], &to);
	while (now_ns() < until) {
		n = epoll_wait(epoll, e, 64, 10);
		for (i = 0; i < n; i++) {
			struct client *c = e[i].data.ptr;
			ssize_t got;

			if (e[i].events == EPOLLOUT) {
				struct epoll_event in = { .events = EPOLLIN, .data.ptr = c };

				if (write(c->fd, "GET", 3) == 3) {
					epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &in);
					continue;
				}
				got = -1;
			} else {
				got = read(c->fd, page, sizeof(page));
				if (got < 0 && errno == EAGAIN)
					continue;
				c->got += got > 0 ? got : 0;
				if (got > 0 && c->got < PAGE)
					continue;
			}
			done += c->got == PAGE;
			end(c->fd);
			begin(epoll, c, &to);
		}
	}
	printf("%llu %llu\n", (unsigned long long)done, (unsigned long long)(now_ns() - from));
}

static uint32_t sum(const void *data, int size, uint32_t total)
{
	const char *at = data;
	uint16_t word;

	for (; size > 1; size -= 2, at += 2) {
		memcpy(&word, at, sizeof(word));
		total += word;
	}
	return total;
}

static uint16_t folded(uint32_t total)
{
	total = (total & 0xffff) + (total >> 16);
	return ~(total + (total >> 16));
}

struct packet {
	struct ether_header ethernet;
	struct iphdr ip;
	struct tcphdr tcp;
} __attribute__((packed));

static void make(struct packet *p, uint32_t number)
{
	struct {
		uint32_t from, to;
		uint16_t protocol, size;
	} pseudo;

	number *= 0x9e3779b1;
	p->ip.saddr = htonl(0x0a420000 | number >> 16);
	p->tcp.source = htons(1024 + (number & 0x7fff));
	p->tcp.seq = number;
	p->ip.check = p->tcp.check = 0;
	p->ip.check = folded(sum(&p->ip, sizeof(p->ip), 0));
	pseudo.from = p->ip.saddr;
	pseudo.to = p->ip.daddr;
	pseudo.protocol = htons(IPPROTO_TCP);
	pseudo.size = htons(sizeof(p->tcp));
	p->tcp.check = folded(sum(&p->tcp, sizeof(p->tcp), sum(&pseudo, sizeof(pseudo), 0)));
}

static void flood(char **argv)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(argv[2]) };
	struct sched_param first = { .sched_priority = 50 };
	static struct packet p[BATCH];
	static struct mmsghdr message[BATCH];
	static struct iovec part[BATCH];
	unsigned int mac[6], i, k, n, rate = atoi(argv[6]), ms = atoi(argv[7]), number = 0, due;
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	uint64_t next = now_ns(), now;
	unsigned long long sent = 0;

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)))
		fail("packet socket");
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		fail("sched_setscheduler");
	if (sscanf(argv[3], "%x:%x:%x:%x:%x:%x", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6)
		exit(2);
	for (i = 0; i < BATCH; i++) {
		for (k = 0; k < 6; k++)
			p[i].ethernet.ether_dhost[k] = mac[k];
		p[i].ethernet.ether_shost[0] = 2;
		p[i].ethernet.ether_type = htons(ETHERTYPE_IP);
		p[i].ip = (struct iphdr){ .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP };
		p[i].ip.tot_len = htons(sizeof(p->ip) + sizeof(p->tcp));
		p[i].ip.daddr = inet_addr(argv[4]);
		p[i].tcp = (struct tcphdr){ .doff = 5, .syn = 1, .window = htons(4096) };
		p[i].tcp.dest = htons(atoi(argv[5]));
		part[i] = (struct iovec){ &p[i], sizeof(p[i]) };
		message[i].msg_hdr.msg_iov = &part[i];
		message[i].msg_hdr.msg_iovlen = 1;
	}
	/* In each ms its part of the rate; what cannot be kept up with is not made up for. */
	for (i = 0; i < ms; i++) {
		due = (uint64_t)(i + 1) * rate / 1000 - (uint64_t)i * rate / 1000;
		for (; due; due -= n) {
			n = due < BATCH ? due : BATCH;
			for (k = 0; k < n; k++)
				make(&p[k], number++);
			sent += sendmmsg(fd, message, n, 0) > 0 ? n : 0;
		}
		next += 1000000;
		now = now_ns();
		if (now < next) {
			struct timespec left = { 0, next - now };

			nanosleep(&left, NULL);
		}
	}
	printf("%llu\n", sent);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (!strcmp(mode, "serve") && (argc == 3 || argc == 6))
		serve(atoi(argv[2]), argc == 6 ? argv[3] : NULL, argv[argc - 2], argv[argc - 1]);
	else if (!strcmp(mode, "clients") && argc == 6 && atoi(argv[4]) <= CLIENTS_MAX)
		clients(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
	else if (!strcmp(mode, "flood") && argc == 8)
		flood(argv);
	else
		return 2;
	return 0;
}
