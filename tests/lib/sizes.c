// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * libreserv's structures that grow, in a program that was compiled with other ones:
 * tests/host/client_c changes reserv.h for it. LATER: they have `later` at their ends.
 *
 *   sizes QUEUE       what it finds in each, and whether what lies behind is as it was
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <reserv.h>

#define BEHIND 64
#define MARK 0xa5

/* A structure, and memory behind it that is nobody's. */
#define ROOM(type) \
	struct { \
		type in; \
		unsigned char behind[BEHIND]; \
	}

/* NAME, the bytes of the structure, and the count of marks that are gone. */
static void show(const char *name, const void *at, size_t size)
{
	const unsigned char *byte = at;
	int gone = 0;
	size_t i;

	printf("%s ", name);
	for (i = 0; i < size; i++)
		printf("%02x", byte[i]);
	for (i = size; i < size + BEHIND; i++)
		gone += byte[i] != MARK;
	printf(" %d\n", gone);
}

/* NAME, errno and the words. */
static void refused(const char *name, int failed)
{
	printf("%s %d %s\n", name, failed ? errno : 0, failed ? reserv_error() : "");
}

int main(int count, char **word)
{
	ROOM(struct reserv_stat) stat;
	ROOM(struct reserv_params) got;
	struct reserv_params wanted = { .weight = 2000, .priority = 7 };
	struct reserv_pool_params pool = { .share = "5" };

	memset(&stat, MARK, sizeof(stat));
	memset(&got, MARK, sizeof(got));
	if (count != 2 || reserv_chcpures_path(word[1]) || reserv_stat(word[1], &stat.in) ||
	    reserv_set_params(&wanted) || reserv_get_params(&got.in)) {
		fprintf(stderr, "sizes: %s\n", reserv_error());
		return 1;
	}
	show("stat", &stat, sizeof(stat.in));
	show("params", &got, sizeof(got.in));
	/* What is refused is not the size: no such parent. */
	refused("pool", !reserv_pool_open("nix", 2, &pool));
#ifdef LATER
	wanted.later[1] = 1;
	pool.later[1] = 1;
	refused("params-later", reserv_set_params(&wanted));
	refused("pool-later", !reserv_pool_open("nix", 2, &pool));
#endif
	refused("none", reserv_stat_sized(word[1], &stat.in, 0));
	refused("part", reserv_stat_sized(word[1], &stat.in, sizeof(stat.in) - 1));
	refused("huge", reserv_get_params_sized(&got.in, (size_t)-8));
	return 0;
}
