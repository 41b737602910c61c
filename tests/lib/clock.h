/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Clocks in nanoseconds, for the programs of tests and experiments. */
#ifndef RESERV_TESTS_CLOCK_H
#define RESERV_TESTS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_of(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

#endif
