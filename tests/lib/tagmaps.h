// SPDX-License-Identifier: GPL-2.0-only
/*
 * Of tagsim.c: the programs' maps, and the system call bpf, by which the daemon's own code finds
 * the pins, runs the programs that answer it, walks descriptors and looks into the maps.
 */
#ifndef TAGMAPS_H
#define TAGMAPS_H

/* Maps. */

#define MAP(map)                                                                                                                \
	{                                                                                                                        \
		#map, sizeof(*(map).type) / sizeof(int), sizeof(*(map).key), sizeof(*(map).value), sizeof(*(map).max_entries) / sizeof(int), 0, 0, 0 \
	}
static struct native_map maps[9];

static void *place(struct native_map *map, u32 at)
{
	return map->array + (size_t)at * map->value;
}

static struct native_element **slot(struct native_map *map, const void *key)
{
	u64 word = 0;
	struct native_element **at;

	memcpy(&word, key, map->key);
	at = &map->hash[(word * 0x9e3779b97f4a7c15ULL) >> 52];
	while (*at && (*at)->key != word)
		at = &(*at)->next;
	return at;
}

void *native_lookup(struct native_map *map, const void *key)
{
	struct native_element **at;

	if (map->type == BPF_MAP_TYPE_ARRAY)
		return *(u32 *)key < map->max ? place(map, *(u32 *)key) : 0;
	at = slot(map, key);
	return *at ? (*at)->value : 0;
}

long native_update(struct native_map *map, const void *key, const void *value, u64 flags)
{
	void *there = native_lookup(map, key);
	struct native_element **at;

	if (there && flags == BPF_NOEXIST)
		return -EEXIST;
	if (!there) {
		if (map->type == BPF_MAP_TYPE_ARRAY || map->used == map->max)
			return -E2BIG;
		at = slot(map, key);
		*at = calloc(1, sizeof(**at) + map->value);
		if (!*at)
			abort();
		memcpy(&(*at)->key, key, map->key);
		there = (*at)->value;
		map->used++;
	}
	memcpy(there, value, map->value);
	return 0;
}

long native_delete(struct native_map *map, const void *key)
{
	struct native_element **at = map->type == BPF_MAP_TYPE_ARRAY ? 0 : slot(map, key), *was;

	if (!at || !*at)
		return -ENOENT;
	was = *at;
	*at = was->next;
	free(was);
	map->used--;
	return 0;
}

long native_each(struct native_map *map, long (*what)(void *, const void *, void *, void *), void *context)
{
	if (map->type == BPF_MAP_TYPE_ARRAY) {
		for (u32 at = 0; at < map->max; at++)
			what(map, &at, place(map, at), context);
	} else {
		for (u32 bucket = 0; bucket < NATIVE_BUCKETS; bucket++)
			for (struct native_element *e = map->hash[bucket], *next; e; e = next) {
				next = e->next; /* `what` may delete its element */
				what(map, &e->key, e->value, context);
			}
	}
	return 0;
}

static long native_next(struct native_map *map, const void *key, void *next)
{
	struct native_element *e = 0;
	u64 word = 0;
	u32 bucket = 0;

	if (key) {
		e = *slot(map, key);
		memcpy(&word, key, map->key);
		bucket = e ? (word * 0x9e3779b97f4a7c15ULL) >> 52 : 0;
		e = e ? e->next : 0;
		bucket += !e && *slot(map, key);
	}
	for (; !e && bucket < NATIVE_BUCKETS; bucket++)
		e = map->hash[bucket];
	if (!e)
		return -ENOENT;
	memcpy(next, &e->key, map->key);
	return 0;
}

u32 native_copies(u32 most)
{
	return 1 + below(most);
}

void native_prepare(struct native_map *map)
{
	map->array = map->type == BPF_MAP_TYPE_ARRAY ? calloc(map->max, map->value) : 0;
	map->hash = calloc(NATIVE_BUCKETS, sizeof(*map->hash));
}

struct native_map *native_works(void)
{
	static struct native_map map = MAP(works);

	if (!map.array)
		native_prepare(&map);
	return &map;
}

__attribute__((constructor)) static void begin(void)
{
	NATIVE_MAP(&works) = native_works();
	struct native_map all[9] = { MAP(nodes), MAP(uses), MAP(hot), MAP(files), MAP(socks), MAP(lists), MAP(above), MAP(owned) };
	void *programs[9] = { &nodes, &uses, &hot, &files, &socks, &lists, &above, &owned };

	for (u32 i = 0; all[i].name; i++) {
		maps[i] = all[i];
		NATIVE_MAP(programs[i]) = &maps[i];
		native_prepare(&maps[i]);
	}
}

/* The system call. */

struct task_struct *native_task(s32 pid)
{
	return pid > 0 && pid < TIDS ? task_of[pid] : 0;
}

enum { NOTHING, A_MAP, A_CALL };
static struct {
	u32 kind;
	struct native_map *map;
	int (*call)(void *);
} object_of[1024];

static int new_fd(u32 kind, struct native_map *map, int (*call)(void *))
{
	int fd = dup(2);

	if (fd < 0 || fd >= 1024)
		return -EMFILE;
	object_of[fd].kind = kind;
	object_of[fd].map = map;
	object_of[fd].call = call;
	return fd;
}

static int find_cpu(const char *name)
{
	int memory = -1, fd = -1;
	struct native_map *map = cpu_map(name, &memory);
	int (*call)(void *) = cpu_call(name);

	if (map && memory >= 0)
		return dup(memory);
	if (map || call)
		fd = new_fd(map ? A_MAP : A_CALL, map, call);
	return fd >= 0 ? fd : -ENOENT;
}

static int call_tags(void *context)
{
	return rt_call(context);
}

static int call_fds(void *context)
{
	return rt_fds(context);
}

static int find(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	if (strstr(path, "/cpu/"))
		return find_cpu(name);
	for (u32 i = 0; maps[i].name; i++)
		if (!strcmp(name, maps[i].name))
			return new_fd(A_MAP, &maps[i], 0);
	if (!strcmp(name, "rt_fds"))
		return new_fd(A_CALL, 0, call_fds);
	return strcmp(name, "rt_call") ? -ENOENT : new_fd(A_CALL, 0, call_tags);
}

/*
 * Folders of /proc, of which the daemon reads which processes there are, and which threads one has.
 * What is opened else is the machine's.
 */
struct folder {
	u32 of, at; /* of: a process; 0: of all */
	struct dirent entry;
};
static struct folder *folder_open;

DIR *opendir(const char *name)
{
	static DIR *(*next)(const char *);
	u32 of = 0;
	int end = 0;

	if (!strcmp(name, "/proc") || (sscanf(name, "/proc/%u/task%n", &of, &end) == 1 && end && !name[end])) {
		folder_open = calloc(1, sizeof(*folder_open));
		folder_open->of = of;
		return (DIR *)folder_open;
	}
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "opendir");
	return next(name);
}

struct dirent *readdir(DIR *from)
{
	static struct dirent *(*next)(DIR *);
	struct folder *folder = (struct folder *)from;
	struct task_struct *p;

	if (folder != folder_open) {
		if (!next)
			*(void **)&next = dlsym(RTLD_NEXT, "readdir");
		return next(from);
	}
	while (++folder->at < TIDS) {
		p = task_of[folder->at];
		if (!p || (folder->of ? (u32)p->tgid != folder->of : p->pid != p->tgid))
			continue;
		snprintf(folder->entry.d_name, sizeof(folder->entry.d_name), "%u", folder->at);
		return &folder->entry;
	}
	return 0;
}

struct dirent64 *readdir64(DIR *from)
{
	return (struct dirent64 *)readdir(from); /* the same on a machine of 64 bits */
}

int closedir(DIR *from)
{
	static int (*next)(DIR *);

	if ((struct folder *)from == folder_open) {
		free(folder_open);
		folder_open = 0;
		return 0;
	}
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "closedir");
	return next(from);
}

static int info(struct native_map *map, union bpf_attr *attr)
{
	struct bpf_map_info *to = (void *)(uintptr_t)attr->info.info;

	memset(to, 0, attr->info.info_len);
	to->type = map->type;
	to->key_size = map->key;
	to->value_size = map->value;
	to->max_entries = map->max;
	strncpy(to->name, map->name, sizeof(to->name) - 1);
	return 0;
}

/* Of an array, all of it. */
static int batch(struct native_map *map, union bpf_attr *attr)
{
	u32 *keys = (void *)(uintptr_t)attr->batch.keys, n = 0;
	char *values = (void *)(uintptr_t)attr->batch.values;

	if (map->type == BPF_MAP_TYPE_ARRAY && !attr->batch.in_batch) {
		for (; n < map->max && n < attr->batch.count; n++) {
			keys[n] = n;
			memcpy(values + (size_t)n * map->value, place(map, n), map->value);
		}
	} else if (map->type != BPF_MAP_TYPE_ARRAY && !attr->batch.in_batch) {
		for (u32 bucket = 0; bucket < NATIVE_BUCKETS; bucket++)
			for (struct native_element *e = map->hash[bucket]; e && n < attr->batch.count; e = e->next, n++) {
				memcpy((char *)keys + (size_t)n * map->key, &e->key, map->key);
				memcpy(values + (size_t)n * map->value, e->value, map->value);
			}
	}
	attr->batch.count = n;
	return -ENOENT; /* there are no more */
}

static int native_bpf(u32 command, union bpf_attr *attr)
{
	struct native_map *map;
	void *key, *value;

	switch (command) {
	case BPF_OBJ_GET:
		return find((const char *)(uintptr_t)attr->pathname);
	case BPF_PROG_TEST_RUN:
		return object_of[attr->test.prog_fd & 1023].kind == A_CALL ? object_of[attr->test.prog_fd & 1023].call((void *)(uintptr_t)attr->test.ctx_in) : -EBADF;
	case BPF_OBJ_GET_INFO_BY_FD:
		map = object_of[attr->info.bpf_fd & 1023].map;
		return map ? info(map, attr) : -EBADF;
	case BPF_MAP_LOOKUP_BATCH:
		map = object_of[attr->batch.map_fd & 1023].map;
		return map ? batch(map, attr) : -EBADF;
	}
	map = object_of[attr->map_fd & 1023].map;
	key = (void *)(uintptr_t)attr->key;
	value = (void *)(uintptr_t)attr->value;
	if (!map)
		return -EBADF;
	switch (command) {
	case BPF_MAP_LOOKUP_ELEM:
		key = native_lookup(map, key);
		if (!key)
			return -ENOENT;
		memcpy(value, key, map->value);
		return 0;
	case BPF_MAP_UPDATE_ELEM:
		return native_update(map, key, value, attr->flags);
	case BPF_MAP_DELETE_ELEM:
		return native_delete(map, key);
	case BPF_MAP_GET_NEXT_KEY:
		return native_next(map, key, value);
	}
	return -EINVAL;
}

long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long arg[6], answer;
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_bpf) {
		answer = native_bpf(arg[0], (union bpf_attr *)arg[1]);
		if (answer >= 0)
			return answer;
		errno = -answer;
		return -1;
	}
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	return next(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

#endif
