// SPDX-License-Identifier: MIT OR Apache-2.0
// What the experiments run.
//
//   load inf FILE SLOT                 loops until killed; word SLOT of FILE counts the loops
//                                      (QLinux's Inf)
//   load net_inf FILE SLOT SIZE PEER [ROOM [WORK_NS]]   datagrams until killed; word SLOT counts their bytes (QLinux's Net_inf); ROOM bytes of send buffer (16384);
//                                      before each, loops that take WORK_NS of CPU time when nothing disturbs them (0)
//   load stream FILE SLOT PEER PORT SECONDS   a film of 30 frames a second and 1.49 Mbit/s in datagrams, I, P and B frames of varying size; word SLOT counts
//                                      datagrams, the next one bytes (QLinux's streaming server)
//   load screen FILE SLOT PORT         takes them until killed: datagrams, bytes, bytes that came within 200 ms, longest delay in ns
//   load web FILE SLOT PEER PORT TRACE a connection for each line `ms bytes` of TRACE; word SLOT counts those begun, the next one those for which there was no room
//   load drain FILE SLOT PORT          takes connections until killed; word SLOT counts bytes
//   load frames N PERIOD_US COST_US    N frames, one a period, each of a fixed number of loops that takes COST_US of CPU time when
//                                      nothing disturbs it; a frame is due one period after its release. Prints JSON (QLinux's mpeg_play)
//   load bursts N RUN_US SLEEP_US      N times a pause, then RUN_US of CPU time. Prints JSON: what it had, how long it wanted (from the end of each
//                                      pause: the wait for the CPU after it counts), and the longest wait for the first millisecond of a burst
//   load op NAME N                     ns per operation, N times: lmbench's null, fork, exec, ctx2, ctx16, udp, create, delete;
//                                      request: a process of 500 000 random numbers (Eclipse/BSD's CGI)
//   load chcpures N DIR DIR            ns per fcntl(F_RESERV_CHCPURES), by turns
//   load newqueue N FILE               ns per queue created by opening FILE (/reserv/cpu/newqueue), and ns of CPU on the whole machine
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loops.h"

#define F_RESERV_CHCPURES 0x52530001
#define CPU_CHUNK_NS 1000000
#define RING_MAX 16
#define RING_BYTES 65536
#define PATH "/dev/shm/reserv-load-file"

static _Noreturn void inf(const char *file, unsigned slot)
{
	volatile uint64_t *count;
	int fd = open(file, O_RDWR);

	if (fd < 0)
		fail(file);
	count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (count == MAP_FAILED)
		fail("mmap");
	for (;;) {
		loops(10000);
		count[slot % 512]++;
	}
}

/*
 * QLinux's Net_inf: datagrams for ever. Counts the bytes that it was rid of as the link does, with
 * the headers of UDP, IP and Ethernet.
 */
static _Noreturn void net_inf(const char *file, unsigned slot, size_t size, const char *peer, int room, uint64_t work_ns)
{
	uint64_t work = work_ns ? loops_for(work_ns) : 0;
	struct sockaddr_in to = address(peer, 9);
	int sock = socket(AF_INET, SOCK_DGRAM, 0);
	volatile uint64_t *count = words(file);
	static char data[1472];

	if (sock < 0 || size > sizeof(data))
		fail("net_inf");
	/* A small send buffer blocks it: nothing is dropped. */
	if (setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)))
		fail("SO_SNDBUF");
	for (;;) {
		loops(work);
		if (sendto(sock, data, size, 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)size)
			count[slot % 512] += size + 42;
	}
}

#define FRAME_NS 33333333ull
#define FRAME_UNIT 3386 /* 30 fps, 1.49 Mbit/s, by the pattern's mean of 22/12 units */
#define LATE_NS 200000000ull

struct piece {
	uint64_t due;
	char data[1392];
};

/*
 * An MPEG film: a group of 12 frames, I, P and B as 5 : 3 : 1, each 0.7 to 1.3 of that. The same
 * one each time.
 */
static int stream(volatile uint64_t *count, const char *peer, unsigned port, uint64_t seconds)
{
	static const char pattern[] = "511311311311";
	struct sockaddr_in to = address(peer, port);
	int sock = socket(AF_INET, SOCK_DGRAM, 0);
	uint64_t begin = clock_ns(CLOCK_MONOTONIC), seed = 7;
	static struct piece piece;

	for (uint64_t frame = 0; frame * FRAME_NS < seconds * 1000000000ull; frame++) {
		uint64_t due = begin + frame * FRAME_NS, left;
		struct timespec at = { due / 1000000000, due % 1000000000 };

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		left = (pattern[frame % 12] - '0') * FRAME_UNIT * (700 + (seed >> 33) % 601) / 1000;
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0))
			;
		piece.due = due;
		while (left) {
			size_t n = left < sizeof(piece) ? left : sizeof(piece);

			n = n < sizeof(piece.due) ? sizeof(piece.due) : n;
			if (sendto(sock, &piece, n, 0, (struct sockaddr *)&to, sizeof(to)) != (ssize_t)n)
				fail("stream");
			count[0]++;
			count[1] += n;
			left -= left < n ? left : n;
		}
	}
	return 0;
}

static _Noreturn void screen(volatile uint64_t *count, unsigned port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int sock = socket(AF_INET, SOCK_DGRAM, 0);
	struct piece piece;

	if (bind(sock, (struct sockaddr *)&at, sizeof(at)))
		fail("bind");
	for (;;) {
		ssize_t n = recv(sock, &piece, sizeof(piece), 0);
		uint64_t delay = clock_ns(CLOCK_MONOTONIC) - piece.due;

		if (n < (ssize_t)sizeof(piece.due))
			continue;
		count[0]++;
		count[1] += n;
		if (delay <= LATE_NS)
			count[2] += n;
		if (delay > count[3])
			count[3] = delay;
	}
}

#define CONNECTIONS 512

/* QLinux's web sender: connections at the times of a trace, whatever became of those before. */
static int web(volatile uint64_t *count, const char *peer, unsigned port, const char *trace)
{
	static struct { int sock; uint64_t left; } open_[CONNECTIONS];
	struct sockaddr_in to = address(peer, port);
	FILE *lines = fopen(trace, "r");
	uint64_t begin = clock_ns(CLOCK_MONOTONIC);
	struct epoll_event event[64];
	static char data[65536];
	unsigned long ms, bytes;
	int poll = epoll_create1(0), more, used = 0;

	if (!lines)
		fail(trace);
	more = fscanf(lines, "%lu %lu", &ms, &bytes) == 2;
	while (more || used) {
		uint64_t now = (clock_ns(CLOCK_MONOTONIC) - begin) / 1000000;
		int n;

		for (; more && now >= ms; more = fscanf(lines, "%lu %lu", &ms, &bytes) == 2) {
			int at = 0;

			while (at < CONNECTIONS && open_[at].left)
				at++;
			if (at == CONNECTIONS) {
				count[1]++;
				continue;
			}
			open_[at].sock = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
			open_[at].left = bytes;
			event[0] = (struct epoll_event){ .events = EPOLLOUT, .data.u32 = at };
			connect(open_[at].sock, (struct sockaddr *)&to, sizeof(to));
			if (epoll_ctl(poll, EPOLL_CTL_ADD, open_[at].sock, event))
				fail("epoll");
			count[0]++;
			used++;
		}
		n = epoll_wait(poll, event, 64, !more ? -1 : ms > now ? (int)(ms - now) : 0);
		for (int i = 0; i < n; i++) {
			unsigned at = event[i].data.u32;
			size_t part = open_[at].left < sizeof(data) ? open_[at].left : sizeof(data);
			ssize_t sent = send(open_[at].sock, data, part, MSG_NOSIGNAL);

			if (sent < 0 && errno == EAGAIN)
				continue;
			open_[at].left = sent < 0 ? 0 : open_[at].left - sent;
			if (!open_[at].left) {
				close(open_[at].sock);
				used--;
			}
		}
	}
	return 0;
}

static _Noreturn void drain(volatile uint64_t *count, unsigned port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int server = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
	struct epoll_event event[64] = { { .events = EPOLLIN, .data.fd = server } };
	static char data[65536];

	if (bind(server, (struct sockaddr *)&at, sizeof(at)) || listen(server, 4096) || epoll_ctl(poll, EPOLL_CTL_ADD, server, event))
		fail("listen");
	for (;;) {
		int n = epoll_wait(poll, event, 64, -1);

		for (int i = 0; i < n; i++) {
			int sock = event[i].data.fd;
			ssize_t got;

			if (sock == server) {
				event[i].data.fd = accept(server, 0, 0);
				epoll_ctl(poll, EPOLL_CTL_ADD, event[i].data.fd, &event[i]);
				continue;
			}
			got = recv(sock, data, sizeof(data), 0);
			if (got <= 0)
				close(sock);
			else
				*count += got;
		}
	}
}

static int frames(uint64_t n, uint64_t period, uint64_t cost)
{
	uint64_t work = loops_for(cost), begin, cpu, missed = 0, worst = 0;

	begin = clock_ns(CLOCK_MONOTONIC);
	cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t release = begin + i * period, now;
		struct timespec at = { release / 1000000000, release % 1000000000 };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0);
		loops(work);
		now = clock_ns(CLOCK_MONOTONIC);
		missed += now > release + period;
		worst = now - release > worst ? now - release : worst;
	}
	printf("{\"frames\": %lu, \"missed\": %lu, \"worst_ns\": %lu, \"elapsed_ns\": %lu, \"cpu_ns\": %lu}\n", n, missed, worst,
	       clock_ns(CLOCK_MONOTONIC) - begin, clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	return 0;
}

static int bursts(uint64_t n, uint64_t run, uint64_t pause)
{
	uint64_t wanted = 0, worst = 0, first = CPU_CHUNK_NS, cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), had;

	for (uint64_t i = 0; i < n; i++) {
		/*
		 * It wants from this instant on, however late it is let in: its own clock, read
		 * after the sleep, would hide that wait.
		 */
		uint64_t begin = clock_ns(CLOCK_MONOTONIC) + pause, from = clock_ns(CLOCK_THREAD_CPUTIME_ID), now;
		struct timespec at = { begin / 1000000000, begin % 1000000000 };
		int waits = 1;

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0);
		do {
			loops(1000);
			now = clock_ns(CLOCK_THREAD_CPUTIME_ID) - from;
			if (waits && now >= first) {
				uint64_t waited = clock_ns(CLOCK_MONOTONIC) - begin - now;

				worst = waited > worst && waited < INT64_MAX ? waited : worst;
				waits = 0;
			}
		} while (now < run);
		wanted += clock_ns(CLOCK_MONOTONIC) - begin;
	}
	had = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	printf("{\"bursts\": %lu, \"had_ns\": %lu, \"wanted_ns\": %lu, \"worst_ns\": %lu}\n", n, had, wanted, worst);
	return 0;
}

static void spawn(char *const *argv)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (!pid) {
		if (argv)
			execv("/proc/self/exe", argv);
		_exit(0);
	}
	waitpid(pid, 0, 0);
}

/* lat_ctx: a byte goes round a ring of processes, each of which sums its own array first. */
static void ring(int procs, size_t bytes, uint64_t n)
{
	int pipes[RING_MAX][2];
	static unsigned char array[RING_BYTES];
	volatile unsigned sum = 0;
	char c = 0;

	for (int i = 0; i < procs; i++)
		if (pipe(pipes[i]))
			fail("pipe");
	for (int i = 1; i < procs; i++) {
		if (fork())
			continue;
		memset(array, i, sizeof(array));
		for (int j = 0; j < procs; j++) {
			if (j != i)
				close(pipes[j][1]);
			if (j != i - 1)
				close(pipes[j][0]);
		}
		while (read(pipes[i - 1][0], &c, 1) == 1) {
			for (size_t k = 0; k < bytes; k += 4)
				sum += array[k];
			if (write(pipes[i][1], &c, 1) != 1)
				break;
		}
		_exit(0);
	}
	for (uint64_t i = 0; i < n; i++) {
		for (size_t k = 0; k < bytes; k += 4)
			sum += array[k];
		if (write(pipes[0][1], &c, 1) != 1 || read(pipes[procs - 1][0], &c, 1) != 1)
			fail("ring");
	}
	for (int i = 0; i < procs; i++)
		close(pipes[i][1]);
	while (wait(0) > 0)
		;
}

static void udp(uint64_t n)
{
	struct sockaddr_in to[2] = { 0 };
	int s[2];
	char c = 0;
	pid_t pid;

	for (int i = 0; i < 2; i++) {
		socklen_t size = sizeof(to[i]);

		to[i].sin_family = AF_INET;
		to[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		s[i] = socket(AF_INET, SOCK_DGRAM, 0);
		if (s[i] < 0 || bind(s[i], (void *)&to[i], sizeof(to[i])) || getsockname(s[i], (void *)&to[i], &size))
			fail("udp");
	}
	if (connect(s[0], (void *)&to[1], sizeof(to[1])) || connect(s[1], (void *)&to[0], sizeof(to[0])))
		fail("connect");
	pid = fork();
	if (!pid) {
		for (uint64_t i = 0; i < n; i++)
			if (recv(s[1], &c, 1, 0) != 1 || send(s[1], &c, 1, 0) != 1)
				_exit(1);
		_exit(0);
	}
	for (uint64_t i = 0; i < n; i++)
		if (send(s[0], &c, 1, 0) != 1 || recv(s[0], &c, 1, 0) != 1)
			fail("udp");
	waitpid(pid, 0, 0);
}

/* lat_fs: files of no bytes. `n` of them are made or gone within the measured time. */
static uint64_t files(uint64_t n, int delete)
{
	uint64_t begin = clock_ns(CLOCK_MONOTONIC), made;
	char path[64];

	for (uint64_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), PATH "-%lu", i);
		int fd = open(path, O_CREAT | O_RDWR, 0600);

		if (fd < 0)
			fail(path);
		close(fd);
	}
	made = clock_ns(CLOCK_MONOTONIC);
	for (uint64_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), PATH "-%lu", i);
		unlink(path);
	}
	return delete ? clock_ns(CLOCK_MONOTONIC) - made : made - begin;
}

static int op(const char *name, uint64_t n, char **argv)
{
	char *child[] = { argv[0], "nothing", 0 };
	uint64_t took = 0, each = 1, begin = clock_ns(CLOCK_MONOTONIC);

	if (!strcmp(name, "null")) {
		for (uint64_t i = 0; i < n; i++)
			syscall(SYS_getppid);
	} else if (!strcmp(name, "fork")) {
		for (uint64_t i = 0; i < n; i++)
			spawn(0);
	} else if (!strcmp(name, "exec")) {
		for (uint64_t i = 0; i < n; i++)
			spawn(child);
	} else if (!strcmp(name, "request")) {
		child[1] = "request";
		for (uint64_t i = 0; i < n; i++)
			spawn(child);
	} else if (!strcmp(name, "ctx2")) {
		ring(2, 0, n);
		each = 2;
	} else if (!strcmp(name, "ctx16")) {
		ring(RING_MAX, RING_BYTES, n);
		each = RING_MAX;
	} else if (!strcmp(name, "udp")) {
		udp(n);
	} else if (!strcmp(name, "create") || !strcmp(name, "delete")) {
		took = files(n, name[0] == 'd');
	} else {
		return 2;
	}
	took = took ? took : clock_ns(CLOCK_MONOTONIC) - begin;
	printf("%.1f\n", (double)took / n / each);
	return 0;
}

static int chcpures(uint64_t n, char **dir)
{
	int fd[2] = { open(dir[0], O_RDONLY), open(dir[1], O_RDONLY) };
	uint64_t begin = clock_ns(CLOCK_MONOTONIC);

	for (uint64_t i = 0; i < n; i++)
		if (fcntl(fd[i & 1], F_RESERV_CHCPURES, 0) <= 0)
			fail("chcpures");
	printf("%.1f\n", (double)(clock_ns(CLOCK_MONOTONIC) - begin) / n);
	return 0;
}

/*
 * What all threads of the machine ran, in ns: whoever waits for the daemon's share of a CPU uses
 * none meanwhile.
 */
static uint64_t busy_ns(void)
{
	FILE *f = fopen("/proc/schedstat", "re");
	unsigned long long ran, sum = 0;
	char line[512];

	if (!f)
		fail("/proc/schedstat");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "cpu%*u %*u %*u %*u %*u %*u %*u %llu", &ran) == 1)
			sum += ran;
	fclose(f);
	return sum;
}

static int newqueue(uint64_t n, const char *file)
{
	uint64_t busy = busy_ns(), begin = clock_ns(CLOCK_MONOTONIC);

	for (uint64_t i = 0; i < n; i++) {
		int fd = open(file, O_RDWR);

		if (fd < 0)
			fail(file);
		close(fd);
	}
	printf("%.1f ", (double)(clock_ns(CLOCK_MONOTONIC) - begin) / n);
	printf("%.1f\n", (double)(busy_ns() - busy) / n);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (!strcmp(mode, "nothing"))
		return 0;
	if (!strcmp(mode, "request")) {
		/* Eclipse/BSD's CGI program: 500 000 random numbers. */
		for (int i = 0; i < 500000; i++)
			rand();
		return 0;
	}
	if (!strcmp(mode, "inf") && argc == 4)
		inf(argv[2], atoi(argv[3]));
	if (!strcmp(mode, "net_inf") && argc >= 6 && argc <= 8)
		net_inf(argv[2], atoi(argv[3]), strtoull(argv[4], 0, 10), argv[5], argc > 6 ? atoi(argv[6]) : 16384, argc > 7 ? strtoull(argv[7], 0, 10) : 0);
	if (!strcmp(mode, "stream") && argc == 7)
		return stream(words(argv[2]) + atoi(argv[3]), argv[4], atoi(argv[5]), strtoull(argv[6], 0, 10));
	if (!strcmp(mode, "screen") && argc == 5)
		screen(words(argv[2]) + atoi(argv[3]), atoi(argv[4]));
	if (!strcmp(mode, "web") && argc == 7)
		return web(words(argv[2]) + atoi(argv[3]), argv[4], atoi(argv[5]), argv[6]);
	if (!strcmp(mode, "drain") && argc == 5)
		drain(words(argv[2]) + atoi(argv[3]), atoi(argv[4]));
	if (!strcmp(mode, "frames") && argc == 5)
		return frames(strtoull(argv[2], 0, 10), strtoull(argv[3], 0, 10) * 1000, strtoull(argv[4], 0, 10) * 1000);
	if (!strcmp(mode, "bursts") && argc == 5)
		return bursts(strtoull(argv[2], 0, 10), strtoull(argv[3], 0, 10) * 1000, strtoull(argv[4], 0, 10) * 1000);
	if (!strcmp(mode, "op") && argc == 4)
		return op(argv[2], strtoull(argv[3], 0, 10), argv);
	if (!strcmp(mode, "chcpures") && argc == 5)
		return chcpures(strtoull(argv[2], 0, 10), argv + 3);
	if (!strcmp(mode, "newqueue") && argc == 4)
		return newqueue(strtoull(argv[2], 0, 10), argv[3]);
	fprintf(stderr, "load inf|net_inf|stream|screen|web|drain|frames|bursts|op|chcpures|newqueue: see the source\n");
	return 2;
}
