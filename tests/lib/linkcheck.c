// SPDX-License-Identifier: GPL-2.0-only
/*
 * linkcheck FOLDER: the invariants of a link that runs, FOLDER being that of its pinned programs: those of the scheduling core (sched/check.c), on the tree in the kernel's own
 * memory, and those of its queues of packets. A line of input is one check; a line of output says what came of it:
 *
 *   sound NODES ITEMS PACKETS    or    fault: WHAT …
 *
 * The arena is mapped where the programs have it, so that pointers mean the same here; a page of it that the programs have not asked for must not be touched, for the fault would take it
 * from them. While it is looked at, no packet leaves (dequeue waits for `hold_ns`) and nothing else
 * runs on this CPU; if the tree has changed nevertheless, by another CPU, it is looked at again. `break` changes a count of the core for the time of a check, `break-queue` one
 * of a queue: both must be found.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "linknative.h"

#define ARENA 33 /* BPF_MAP_TYPE_ARENA, which Debian 12 does not know */
#define HOLD_NS 8000000ULL

static const struct { const char *name; void *at; size_t size; } WANTED[] = {
#define WANT(name) { #name, &name, sizeof(name) }
	WANT(tree_at), WANT(queues_at), WANT(places_at), WANT(flows_at), WANT(buckets_at), WANT(free_place), WANT(places_used), WANT(flows_used), WANT(waiting), WANT(owed),
	WANT(clock_max), WANT(next_ns), WANT(wire),
};
#define WANTED_MAX (sizeof(WANTED) / sizeof(*WANTED))

static char *bss;
static u32 offset[WANTED_MAX], hold_offset;

static void need(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "linkcheck: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Nothing here asks for what is in maps. */
static void *native_map(const char *map, uint32_t key)
{
	return (void)map, (void)key, (void *)0;
}

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int info_of(int fd, void *info, u32 size)
{
	union bpf_attr attr = { .info = { .bpf_fd = fd, .info_len = size, .info = (u64)info } };

	return bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

static int by_id(int command, u32 id)
{
	union bpf_attr attr = { .map_id = id };

	return bpf(command, &attr);
}

/* Where the variables lie in .bss, by the type information of the map. */
struct type { u32 name, info, size; };

static u32 of_kind(struct type *t)
{
	u32 kind = t->info >> 24 & 31, n = t->info & 0xffff;

	switch (kind) {
	case 1: case 14: case 17: return 4; /* int, variable, declaration tag */
	case 3: return 12; /* array */
	case 4: case 5: case 15: case 19: return 12 * n; /* structure, union, section, enum of 64 bits */
	case 6: case 13: return 8 * n; /* enum, function's type */
	default: return 0;
	}
}

static void find_variables(u32 btf_id, u32 section)
{
	static char raw[1 << 22];
	struct bpf_btf_info info = { .btf = (u64)raw, .btf_size = sizeof(raw) };
	u32 *head = (u32 *)raw, id = 1, found = 0;
	struct type **types = calloc(1 << 16, sizeof(*types));
	int fd = by_id(BPF_BTF_GET_FD_BY_ID, btf_id);

	need(fd >= 0 && types && !info_of(fd, &info, sizeof(info)), "the type information of .bss");
	char *at = raw + head[1] + head[2], *end = at + head[3], *names = raw + head[1] + head[4];

	for (; at < end && id < 1 << 16; id++) {
		types[id] = (struct type *)at;
		at += sizeof(struct type) + of_kind(types[id]);
	}
	need(section < id, "the type of .bss");
	u32 *member = (u32 *)(types[section] + 1), count = types[section]->info & 0xffff;

	for (u32 i = 0; i < count; i++, member += 3) {
		const char *name = names + types[member[0]]->name;

		if (!strcmp(name, "hold_ns"))
			hold_offset = member[1];
		for (u32 k = 0; k < WANTED_MAX; k++)
			if (!strcmp(name, WANTED[k].name)) {
				need(member[2] == WANTED[k].size, name);
				offset[k] = member[1];
				found++;
			}
	}
	need(found == WANTED_MAX && hold_offset, "a variable of .bss");
	free(types);
}

static void open_link(const char *folder)
{
	char path[256];
	u32 maps[16];
	struct bpf_prog_info prog = { .nr_map_ids = 16, .map_ids = (u64)maps };
	union bpf_attr attr = { .pathname = (u64)path };
	int arena_there = 0;

	snprintf(path, sizeof(path), "%s/rn_edit", folder);
	int fd = bpf(BPF_OBJ_GET, &attr);

	need(fd >= 0 && !info_of(fd, &prog, sizeof(prog)), path);
	for (u32 i = 0; i < prog.nr_map_ids; i++) {
		struct bpf_map_info map = { 0 };
		int map_fd = by_id(BPF_MAP_GET_FD_BY_ID, maps[i]);

		need(map_fd >= 0 && !info_of(map_fd, &map, sizeof(map)), "a map of the programs");
		if (map.type == ARENA) {
			void *got = mmap((void *)RN_ARENA_AT, (size_t)RN_ARENA_PAGES * RN_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, map_fd, 0);

			need(got == (void *)RN_ARENA_AT, "map the arena");
			arena_there = 1;
		} else if (strstr(map.name, ".bss")) {
			bss = mmap(0, (map.value_size + 4095) & ~4095UL, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
			need(bss != MAP_FAILED, "map .bss");
			find_variables(map.btf_id, map.btf_value_type_id);
		}
	}
	need(arena_there && bss, "the arena and .bss");
}

/* Those of the programs' variables that are wanted here, as they are now. */
static void take_variables(void)
{
	for (u32 k = 0; k < WANTED_MAX; k++)
		memcpy(WANTED[k].at, bss + offset[k], WANTED[k].size);
}

struct moment {
	u64 seq, service, served, clock, next;
	u32 waiting, used, free, pad; /* compared as bytes */
};

static struct moment moment(void)
{
	take_variables();
	struct rs_tree *t = rn_tree();

	return (struct moment){ t->seq, t->nodes[0].service, t->nodes[0].served, clock_max, next_ns, waiting, places_used, free_place, 0 };
}

static u64 now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

int main(int count, char **words)
{
	char line[64];

	need(count == 2, "linkcheck FOLDER");
	open_link(words[1]);
	need(!sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 50 }), "SCHED_FIFO");
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		struct rs_fault f = RS_GOOD;
		u32 tries;

		for (tries = 0; tries < 200; tries++) {
			/* Where it stands beyond that anyway, it stays. */
			volatile u64 *hold = (u64 *)(bss + hold_offset);
			u64 until = now() + HOLD_NS;

			if (*hold < until)
				*hold = until;
			struct moment before = moment();
			struct rs_tree *t = rn_tree();
			struct rn_queue *q = rn_queue(&t->nodes[1]);
			int core = !strcmp(line, "break\n"), queue = !strcmp(line, "break-queue\n");

			t->nodes[0].nrun += core;
			q->bytes += queue;
			f = rs_check(t);
			if (!f.line)
				f = check_packets(t);
			q->bytes -= queue;
			t->nodes[0].nrun -= core;
			struct moment after = moment();

			if (!memcmp(&before, &after, sizeof(before)))
				break;
			usleep(500);
		}
		struct rs_tree *t = rn_tree();

		if (tries == 200)
			printf("fault: the tree never stands still, in %u tries\n", tries);
		else if (f.line)
			printf("fault: %s %u: %s: %lld, %lld (line %u)\n", f.of, f.index, f.what, (long long)f.a, (long long)f.b, f.line);
		else
			printf("sound %u %u %u\n", t->nodes_used, t->items_used, waiting);
		fflush(stdout);
	}
	return 0;
}
