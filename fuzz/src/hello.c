// SPDX-License-Identifier: GPL-2.0-only
/*
 * mod_reserv's reading of a TLS client's first message (servers/apache/hello.h) beside a naive one:
 * the same answer and the same name, whatever came. The first byte says how long a name may be.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "../../servers/apache/hello.h"

static const uint8_t *bytes;

/* Moves `*at` behind a number of so many bytes; false: it ends past `end`. */
static bool take(size_t *at, size_t end, int count, size_t *value)
{
	*value = 0;
	for (int i = 0; i < count; i++) {
		if (*at >= end)
			return false;
		*value = *value * 256 + bytes[(*at)++];
	}
	return true;
}

/* Moves behind what has its length before it. */
static bool skip(size_t *at, size_t end, int count)
{
	size_t length;

	if (!take(at, end, count, &length) || length > end - *at)
		return false;
	*at += length;
	return true;
}

static int naive(size_t length, char *name, size_t size)
{
	size_t at = 5, end, kind, n;

	if (length && bytes[0] != 22)
		return -1;
	if (length < 5 || length - 5 < (size_t)(bytes[3] * 256 + bytes[4]))
		return 0;
	end = 5 + bytes[3] * 256 + bytes[4];
	if (!take(&at, end, 1, &kind) || kind != 1 || !take(&at, end, 3, &n) || n > end - at)
		return -1;
	end = at + n;
	at += 2 + 32;
	if (!skip(&at, end, 1) || !skip(&at, end, 2) || !skip(&at, end, 1))
		return -1;
	if (!take(&at, end, 2, &n) || n > end - at)
		return -1;
	end = at + n;
	while (take(&at, end, 2, &kind) && take(&at, end, 2, &n) && n <= end - at) {
		if (kind) {
			at += n;
			continue;
		}
		end = at + n;
		if (!take(&at, end, 2, &n) || n > end - at)
			return -1;
		end = at + n;
		if (!take(&at, end, 1, &kind) || kind || !take(&at, end, 2, &n) || n > end - at)
			return -1;
		if (!n || n >= size)
			return -1;
		for (size_t i = 0; i < n; i++) {
			if (!bytes[at + i])
				return -1;
			name[i] = bytes[at + i];
		}
		name[n] = 0;
		return 1;
	}
	return -1;
}

void reserv_fuzz_hello(const uint8_t *data, size_t size)
{
	char name[256] = "", other[256] = "";
	uint8_t *copy;
	int answer;

	if (!size)
		return;
	/* As much as there is and no more, so that a byte behind it is seen by the sanitizer. */
	copy = malloc(size);
	memcpy(copy, data + 1, size - 1);
	bytes = copy;
	answer = name_in(copy, size - 1, name, 1 + data[0]);
	if (answer != naive(size - 1, other, 1 + data[0]) || (answer > 0 && strcmp(name, other)))
		abort();
	free(copy);
}

#define FUZZ_TARGET reserv_fuzz_hello
#include "replay.h"
