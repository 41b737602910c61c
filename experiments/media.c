// SPDX-License-Identifier: MIT OR Apache-2.0
// The applications of "Proportional Share of OS Services" and their senders. FILE has the words
// that they count in.
//
//   media take FILE SLOT PORT WORK_US ROOM
//       a receiver: a datagram, then loops that take so long when nothing disturbs them; word SLOT
//       counts datagrams. ROOM: the bytes of its socket (SO_RCVBUF)
//   media dhrystone FILE SLOT
//       loops; word SLOT counts thousands of them
//   media leave PORT ROOM
//       a socket from which nothing is taken
//   media send FILE SLOT PEER PORT SIZE RATE SEED [bursty]
//       datagrams, RATE a second; the gaps are all equal, or exponential; word SLOT counts them
//
// A sender goes before everybody (SCHED_FIFO), as a wire does.
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loops.h"

#define SECOND 1000000000ull
#define DATAGRAM_MAX 1472

static int receiver(unsigned port, int room)
{
	struct sockaddr_in at = address("0.0.0.0", port);
	int sock = socket(AF_INET, SOCK_DGRAM, 0);

	if (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) ||
	    bind(sock, (void *)&at, sizeof(at)))
		fail("receiver");
	return sock;
}

static _Noreturn void take(volatile uint64_t *count, unsigned port, uint64_t work_ns, int room)
{
	static char data[DATAGRAM_MAX];
	uint64_t work = loops_for(work_ns);
	int sock = receiver(port, room);

	for (;;) {
		if (recv(sock, data, sizeof(data), 0) < 0)
			fail("recv");
		loops(work);
		++*count;
	}
}

/* Uniform in (0, 1]. */
static double uniform(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return ((*seed >> 11) + 1) / 9007199254740992.0;
}

/* One that is late sends at once all that is due. */
static _Noreturn void send_all(volatile uint64_t *count, struct sockaddr_in to, size_t size,
			       double rate, uint64_t seed, int bursty)
{
	static char data[DATAGRAM_MAX];
	struct sched_param first = { .sched_priority = 10 };
	int sock = socket(AF_INET, SOCK_DGRAM, 0);
	double due;

	if (sock < 0 || size > sizeof(data) || connect(sock, (void *)&to, sizeof(to)) ||
	    sched_setscheduler(0, SCHED_FIFO, &first))
		fail("send");
	/* Neighbouring seeds begin with nearly the same number. */
	for (int i = 0; i < 16; i++)
		uniform(&seed);
	due = clock_ns(CLOCK_MONOTONIC) + uniform(&seed) * SECOND / rate;
	for (;;) {
		struct timespec at = { (uint64_t)due / SECOND, (uint64_t)due % SECOND };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0);
		if (send(sock, data, size, 0) == (ssize_t)size)
			++*count;
		due += (bursty ? -log(uniform(&seed)) : 1) * SECOND / rate;
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (!strcmp(mode, "leave") && argc == 4) {
		receiver(atoi(argv[2]), atoi(argv[3]));
		pause();
	}
	if (argc < 4)
		return 2;
	volatile uint64_t *count = words(argv[2]) + atoi(argv[3]);

	if (!strcmp(mode, "take") && argc == 7)
		take(count, atoi(argv[4]), strtoull(argv[5], 0, 10) * 1000, atoi(argv[6]));
	if (!strcmp(mode, "dhrystone"))
		for (;;) {
			loops(1000);
			++*count;
		}
	if (!strcmp(mode, "send") && argc >= 9)
		send_all(count, address(argv[4], atoi(argv[5])), atoi(argv[6]), atof(argv[7]),
			 strtoull(argv[8], 0, 10), argc > 9);
	fprintf(stderr, "media take|dhrystone|leave|send: see the source\n");
	return 2;
}
