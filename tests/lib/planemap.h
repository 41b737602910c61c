// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of programs that are pinned and run: their arena, mapped where they have it, so that
 * pointers mean the same here, and their variables by name. For linkcheck.c and cpucheck.c. A page
 * of the arena that the programs have not asked for must not be touched: the fault would take it
 * from them.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ARENA 33 /* BPF_MAP_TYPE_ARENA, which Debian 12 does not know */

/* A variable of .bss that is wanted: its copy here, if it has one, and where it lies. */
struct variable {
	const char *name;
	void *copy;
	size_t size;
	char *at;
};
#define VARIABLE(name) { #name, &name, sizeof(name), 0 }

static void need(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int info_of(int fd, void *info, uint32_t size)
{
	union bpf_attr attr = { .info = { .bpf_fd = fd, .info_len = size, .info = (uint64_t)info } };

	return bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

static int by_id(int command, uint32_t id)
{
	union bpf_attr attr = { .map_id = id };

	return bpf(command, &attr);
}

/* Where the variables lie in .bss, by the type information of the map. */
struct type { uint32_t name, info, size; };

static uint32_t of_kind(struct type *t)
{
	uint32_t kind = t->info >> 24 & 31, n = t->info & 0xffff;

	switch (kind) {
	case 1: case 14: case 17: return 4; /* int, variable, declaration tag */
	case 3: return 12; /* array */
	/* structure, union, section, enum of 64 bits */
	case 4: case 5: case 15: case 19: return 12 * n;
	case 6: case 13: return 8 * n; /* enum, function's type */
	default: return 0;
	}
}

static void find_variables(char *bss, uint32_t btf_id, uint32_t section, struct variable *wanted, uint32_t wanted_count)
{
	static char raw[1 << 22];
	struct bpf_btf_info info = { .btf = (uint64_t)raw, .btf_size = sizeof(raw) };
	uint32_t *head = (uint32_t *)raw, id = 1;
	struct type **types = calloc(1 << 16, sizeof(*types));
	int fd = by_id(BPF_BTF_GET_FD_BY_ID, btf_id);

	need(fd >= 0 && types && !info_of(fd, &info, sizeof(info)), "the type information of .bss");
	char *at = raw + head[1] + head[2], *end = at + head[3], *names = raw + head[1] + head[4];

	for (; at < end && id < 1 << 16; id++) {
		types[id] = (struct type *)at;
		at += sizeof(struct type) + of_kind(types[id]);
	}
	need(section < id, "the type of .bss");
	uint32_t *member = (uint32_t *)(types[section] + 1), count = types[section]->info & 0xffff;

	for (uint32_t i = 0; i < count; i++, member += 3)
		for (uint32_t k = 0; k < wanted_count; k++)
			if (!strcmp(names + types[member[0]]->name, wanted[k].name)) {
				need(member[2] == wanted[k].size, wanted[k].name);
				wanted[k].at = bss + member[1];
			}
	for (uint32_t k = 0; k < wanted_count; k++)
		need(!!wanted[k].at, wanted[k].name);
	free(types);
	close(fd);
}

/* Those that have a copy here, as they are now. */
static void take_variables(struct variable *wanted, uint32_t wanted_count)
{
	for (uint32_t k = 0; k < wanted_count; k++)
		if (wanted[k].copy)
			memcpy(wanted[k].copy, wanted[k].at, wanted[k].size);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/*
 * The maps of the pinned program FOLDER/PROGRAM: the arena is mapped at `at`, and the variables are
 * found. Answers the arena's descriptor.
 */
static int open_programs(const char *folder, const char *program, void *at, size_t size, struct variable *wanted, uint32_t wanted_count)
{
	char path[256];
	uint32_t maps[16];
	struct bpf_prog_info prog = { .nr_map_ids = 16, .map_ids = (uint64_t)maps };
	union bpf_attr attr = { .pathname = (uint64_t)path };
	int arena = -1, variables = 0;

	snprintf(path, sizeof(path), "%s/%s", folder, program);
	int fd = bpf(BPF_OBJ_GET, &attr);

	need(fd >= 0 && !info_of(fd, &prog, sizeof(prog)), path);
	for (uint32_t i = 0; i < prog.nr_map_ids && i < 16; i++) {
		struct bpf_map_info map = { 0 };
		int map_fd = by_id(BPF_MAP_GET_FD_BY_ID, maps[i]);

		need(map_fd >= 0 && !info_of(map_fd, &map, sizeof(map)), "a map of the programs");
		if (map.type == ARENA) {
			need(mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, map_fd, 0) == at, "map the arena");
			arena = map_fd;
		} else if (strstr(map.name, ".bss")) {
			char *bss = mmap(0, (map.value_size + 4095) & ~4095UL, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);

			need(bss != MAP_FAILED, "map .bss");
			find_variables(bss, map.btf_id, map.btf_value_type_id, wanted, wanted_count);
			variables = 1;
		}
	}
	need(arena >= 0 && variables, "the arena and .bss");
	return arena;
}
