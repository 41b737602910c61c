/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What loads have in common: work of a known length, and words that the harness reads. */
#ifndef RESERV_LOOPS_H
#define RESERV_LOOPS_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define LINE 200
#define LINE_TEXT "200"

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/*
 * Not inlined: all that is calibrated by it runs the same instructions. Under -icount the emulator
 * pays for jumps (tests/lib/spin.h): most loops of two instructions are a straight line instead,
 * of as many.
 */
static __attribute__((noinline)) void loops(uint64_t n)
{
	for (; n >= LINE; n -= LINE)
		__asm__ volatile(".rept 2 * " LINE_TEXT " - 3\n\tnop\n\t.endr" ::: "memory");
	while (n--)
		__asm__ volatile("" ::: "memory");
}

/* How many loops take so much CPU time: the least of several tries, by the thread's own clock. */
static uint64_t loops_for(uint64_t ns)
{
	const uint64_t n = 2000000;
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID), took;

		loops(n);
		took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
		best = took < best ? took : best;
	}
	return n * ns / best;
}

static volatile uint64_t *words(const char *file)
{
	int fd = open(file, O_RDWR);
	void *at = fd < 0 ? MAP_FAILED : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		fail(file);
	return at;
}

static struct sockaddr_in address(const char *peer, unsigned port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, peer, &to.sin_addr) != 1)
		fail(peer);
	return to;
}

#endif
