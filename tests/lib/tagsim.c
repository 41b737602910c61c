// SPDX-License-Identifier: GPL-2.0-only
/*
 * tagsim: the tags' programs (bpf/tag) without a kernel, and under the daemon's own code. This plays the kernel: tasks with their leaders, signal structures and tables of
 * descriptors; open files and sockets with references; the hooks at each of their events; and the system call bpf, by which crates/plane finds the programs' pins, runs rt_call
 * and looks into their maps. Preloaded into crates/daemon/examples/tag_model, which says what happens next (the functions k_… below).
 *
 * Of the copies of a hook's program (bpf/hook.h) some are run, at least one. Memory of what ended is used again at once, so that what is kept by address is.
 */
#include "tagnative.h"
#include "tagsim.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FDS 24

struct task_struct *native_current;
struct net native_netns;
int native_retval;
static struct net native_elsewhere = { 1 };
#define TIDS 2048
static struct task_struct *task_of[TIDS];
static u64 random_state = 1;

static u32 below(u32 n)
{
	u64 z = random_state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return (z >> 33) % n;
}

/* Memory by kind, what was given back last first. */
struct pool {
	size_t size;
	void *last;
};
#define POOL(type) { sizeof(struct type), 0 }
static struct pool tasks = POOL(task_struct), signals = POOL(signal_struct), tables = POOL(files_struct), open_files = POOL(file), all_socks = POOL(sock), all_sockets = POOL(socket);

static void *take(struct pool *pool)
{
	void *got = pool->last;

	if (got)
		pool->last = *(void **)got;
	else if (posix_memalign(&got, 256, pool->size))
		abort();
	memset(got, 0, pool->size);
	return got;
}

static void give(struct pool *pool, void *what)
{
	*(void **)what = pool->last;
	pool->last = what;
}

/* Maps. */

#define MAP(map)                                                                                                                \
	{                                                                                                                        \
		#map, sizeof(*(map).type) / sizeof(int), sizeof(*(map).key), sizeof(*(map).value), sizeof(*(map).max_entries) / sizeof(int), 0, 0, 0 \
	}
static struct native_map maps[8];

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
			for (struct native_element *e = map->hash[bucket]; e; e = e->next)
				what(map, &e->key, e->value, context);
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

__attribute__((constructor)) static void begin(void)
{
	struct native_map all[8] = { MAP(nodes), MAP(uses), MAP(hot), MAP(files), MAP(socks), MAP(lists), MAP(above) };
	void *programs[8] = { &nodes, &uses, &hot, &files, &socks, &lists, &above };

	for (u32 i = 0; all[i].name; i++) {
		maps[i] = all[i];
		NATIVE_MAP(programs[i]) = &maps[i];
		native_prepare(&maps[i]);
	}
}

/* The system call. */

static char *said;
static size_t said_size, said_room;

int native_told(const void *data, size_t size)
{
	if (said_size + size > said_room)
		said = realloc(said, said_room = 2 * (said_size + size));
	memcpy(said + said_size, data, size);
	said_size += size;
	return 0;
}

struct task_struct *native_task(s32 pid)
{
	return pid > 0 && pid < TIDS ? task_of[pid] : 0;
}

enum { NOTHING, A_MAP, A_CALL, AN_ITERATOR };
static struct {
	u32 kind, pid;
	struct native_map *map;
	int (*call)(void *);
} object_of[1024];

static int new_fd(u32 kind, struct native_map *map, u32 pid)
{
	int fd = dup(2);

	if (fd < 0 || fd >= 1024)
		return -EMFILE;
	object_of[fd].kind = kind;
	object_of[fd].map = map;
	object_of[fd].pid = pid;
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
		fd = new_fd(map ? A_MAP : A_CALL, map, 0);
	if (fd >= 0)
		object_of[fd].call = call;
	return fd >= 0 ? fd : -ENOENT;
}

static int call_tags(void *context)
{
	return rt_call(context);
}

static int find(const char *path)
{
	const char *name = strrchr(path, '/');
	int fd;

	name = name ? name + 1 : path;
	if (strstr(path, "/cpu/"))
		return find_cpu(name);
	for (u32 i = 0; maps[i].name; i++)
		if (!strcmp(name, maps[i].name))
			return new_fd(A_MAP, &maps[i], 0);
	if (!strcmp(name, "rt_fds"))
		return new_fd(AN_ITERATOR, 0, 0);
	fd = strcmp(name, "rt_call") ? -ENOENT : new_fd(A_CALL, 0, 0);
	if (fd >= 0)
		object_of[fd].call = call_tags;
	return fd;
}

static void walk(struct task_struct *p)
{
	struct bpf_iter_meta meta = { 0 };

	for (u32 fd = 0; fd < p->files->fdt->max_fds; fd++) {
		struct bpf_iter__task_file context = { &meta, p, fd, p->files->fdt->fd[fd] };

		if (context.file)
			rt_fds(&context);
	}
}

/* The descriptors of one process, or of all; a thread's table is its leader's, unless that has ended. */
static int iterate(u32 pid)
{
	int fd = memfd_create("said", 0);

	said_size = 0;
	for (u32 tid = 1; tid < TIDS; tid++)
		if (task_of[tid] && task_of[tid]->files && (task_of[tid]->pid == task_of[tid]->tgid || !task_of[tid]->group_leader->files) &&
		    (!pid || pid == (u32)task_of[tid]->tgid))
			walk(task_of[tid]);
	if (fd < 0 || pwrite(fd, said, said_size, 0) != (ssize_t)said_size)
		return -EIO;
	return fd;
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
	case BPF_LINK_CREATE:
		return new_fd(AN_ITERATOR, 0, ((union bpf_iter_link_info *)(uintptr_t)attr->link_create.iter_info)->task.pid);
	case BPF_ITER_CREATE:
		return iterate(object_of[attr->iter_create.link_fd & 1023].pid);
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

/* Open files and sockets. */

#define COPIES(most, call)                                                                                                 \
	do {                                                                                                               \
		for (u32 copies_ = 1 + below(most); copies_; copies_--)                                                    \
			(call);                                                                                            \
	} while (0)

static u64 released[256];
static u32 releases;

static void sock_end(struct sock *sk)
{
	struct sock *next;

	for (; sk; sk = next) {
		next = sk->waiting;
		if (next) /* connections that nobody accepted go with their listener */
			for (struct sock *one = next, *then; one; one = then) {
				then = one->next;
				sock_end(one);
			}
		COPIES(3, rt_destruct(sk));
		give(&all_socks, sk);
		return;
	}
}

static void file_put(struct file *file)
{
	struct socket *socket = file->private_data;

	if (--file->count)
		return;
	if (socket) {
		sock_end(socket->own);
		give(&all_sockets, socket);
	}
	COPIES(2, rt_freed(file));
	if (file->handle)
		released[releases++ & 255] = file->handle;
	give(&open_files, file);
}

static int install(struct file *file)
{
	struct fdtable *table = native_current->files->fdt;

	for (u32 fd = 0; fd < table->max_fds; fd++)
		if (!table->fd[fd]) {
			table->fd[fd] = file;
			return fd;
		}
	file_put(file);
	return -EMFILE;
}

static struct file *file_at(int fd)
{
	struct fdtable *table = native_current->files->fdt;

	return fd >= 0 && (u32)fd < table->max_fds ? table->fd[fd] : 0;
}

static struct file *file_new(u32 dev, u16 format, u64 ino)
{
	struct file *file = take(&open_files);

	file->f_inode = &file->inode;
	file->inode.i_sb = &file->sb;
	file->inode.i_ino = ino;
	file->inode.i_mode = format | 0666;
	file->sb.s_dev = dev;
	file->f_mode = 3;
	file->count = 1;
	return file;
}

static struct file *socket_file(struct sock *sk)
{
	struct file *file = file_new(8, 0140000, 1);
	struct socket *socket = file->private_data = take(&all_sockets);

	socket->sk = socket->own = sk;
	file->sb.s_magic = RT_SOCKFS;
	return file;
}

static struct sock *sock_new(u16 family, u16 type, bool elsewhere)
{
	static struct net_device device;
	struct sock *sk = take(&all_socks);

	sk->__sk_common.skc_family = family;
	sk->__sk_common.skc_net.net = elsewhere ? &native_elsewhere : &native_netns;
	sk->sk_type = type;
	sk->seen.type = type;
	sk->dst.dev = &device;
	return sk;
}

/* What happens. The caller says by which thread. */

void k_begin(u64 seed, u64 netns)
{
	random_state = seed;
	native_netns.net_cookie = netns;
}

int k_as(int tid)
{
	native_current = native_task(tid);
	return native_current ? 0 : -ESRCH;
}

static void cred(struct task_struct *p, u32 uid, u32 gid, u32 count, const u32 *groups)
{
	p->own.fsuid.val = uid;
	p->own.fsgid.val = gid;
	p->own.groups.ngroups = count;
	for (u32 i = 0; i < count; i++)
		p->own.groups.gid[i].val = groups[i];
}

static struct task_struct *task_new(int tid, int tgid)
{
	struct task_struct *p = task_of[tid] = take(&tasks);

	p->pid = tid;
	p->tgid = tgid;
	p->cred = &p->own;
	p->own.group_info = &p->own.groups;
	return p;
}

static void process_of(struct task_struct *p, u64 start)
{
	p->signal = take(&signals);
	p->signal->live.counter = 1;
	p->group_leader = p;
	p->start_boottime = start;
	p->files = take(&tables);
	p->files->fdt = &p->files->table;
	p->files->table.max_fds = FDS;
	p->files->table.fd = calloc(FDS, sizeof(struct file *));
	p->files->count = 1;
}

void k_first(int pid, u64 start, u32 uid, u32 gid)
{
	struct task_struct *p = task_new(pid, pid);

	process_of(p, start);
	cred(p, uid, gid, 0, 0);
	if (cpu_begin(p, false))
		abort();
}

static void files_put(struct files_struct *files)
{
	if (--files->count)
		return;
	for (u32 fd = 0; fd < FDS; fd++)
		if (files->fdt->fd[fd])
			file_put(files->fdt->fd[fd]);
	free(files->fdt->fd);
	give(&tables, files);
}

static void bury(struct task_struct *p)
{
	task_of[p->pid] = 0;
	give(&tasks, p);
}

/* The caller makes a thread, or a process. */
int k_clone(int tid, int tgid, u64 start)
{
	struct task_struct *me = native_current, *p = task_new(tid, tgid);

	p->own = me->own;
	p->own.group_info = &p->own.groups;
	if (tgid == me->tgid) {
		p->signal = me->signal;
		p->signal->live.counter++;
		p->group_leader = me->group_leader;
		p->start_boottime = start;
		p->files = me->files;
		p->files->count++;
	} else {
		process_of(p, start);
		for (u32 fd = 0; fd < FDS; fd++) {
			struct file *file = p->files->fdt->fd[fd] = me->files->fdt->fd[fd];

			if (file)
				file->count++;
		}
	}
	if (cpu_begin(p, true)) { /* the scheduler refuses it: it never was */
		files_put(p->files);
		if (!--p->signal->live.counter)
			give(&signals, p->signal);
		bury(p);
		return -EAGAIN;
	}
	COPIES(3, rt_fork(me, p));
	cpu_forked(me, p);
	return 0;
}

/* As do_exit has it: counted, told, and only then are the descriptors closed. A leader is there until the last of its threads has gone. */
void k_exit(void)
{
	struct task_struct *me = native_current, *leader = me->group_leader;
	bool last = --me->signal->live.counter == 0;

	COPIES(3, rt_exited(me));
	cpu_exited(me);
	files_put(me->files);
	me->files = 0;
	cpu_end(me);
	if (last)
		give(&signals, me->signal);
	if (me != leader)
		bury(me);
	if (last)
		bury(leader);
	native_current = 0;
}

/* The other threads have gone. Who is not the leader takes its number and its age over. */
void k_exec(u64 start, u32 uid, u32 gid, u32 groups, const u32 *group)
{
	struct task_struct *me = native_current;
	s32 before = me->pid;

	if (me->group_leader != me) {
		task_of[me->pid] = 0;
		bury(me->group_leader);
	}
	me->pid = me->tgid;
	task_of[me->pid] = me;
	me->start_boottime = start;
	me->group_leader = me;
	cred(me, uid, gid, groups, group);
	cpu_execed(me, before);
}

int k_open(u32 dev, u32 block, u64 ino)
{
	struct file *file = file_new(block ? 6 : dev, block ? 0060000 : 0100000, ino);

	file->inode.i_rdev = block ? dev : 0;
	rt_opened(file);
	return install(file);
}

/* A file of /reserv. */
int k_open_reserv(u32 dev, u64 ino, u32 directory, u32 mode, u64 handle)
{
	struct file *file = file_new(dev, directory ? 0040000 : 0100000, ino);

	file->f_mode = mode;
	file->handle = handle;
	rt_opened(file);
	return install(file);
}

int k_socket(u16 family, u16 type, u32 elsewhere)
{
	return install(socket_file(sock_new(family, type, elsewhere)));
}

static struct sock *sock_at(int fd)
{
	struct file *file = file_at(fd);

	return file && file->private_data ? ((struct socket *)file->private_data)->own : 0;
}

int k_bind_device(int fd, int interface)
{
	struct sock *sk = sock_at(fd);

	if (!sk)
		return -ENOTSOCK;
	sk->__sk_common.skc_bound_dev_if = interface;
	return 0;
}

static void route(struct sock *sk, int interface)
{
	static struct net_device device[4];

	sk->__sk_common.skc_state = RT_ESTABLISHED;
	sk->dst.dev = &device[interface & 3];
	sk->dst.dev->ifindex = interface & 3;
	sk->sk_dst_cache = &sk->dst;
}

int k_connect(int fd, int interface)
{
	struct file *file = file_at(fd);

	if (!file || !file->private_data)
		return -ENOTSOCK;
	COPIES(3, rt_connect(file->private_data));
	route(sock_at(fd), interface);
	return 0;
}

/* A connection comes to a listener. */
int k_incoming(int fd, int interface)
{
	struct sock *from = sock_at(fd), *sk, **at;

	if (!from)
		return -ENOTSOCK;
	sk = sock_new(from->__sk_common.skc_family, from->sk_type, from->__sk_common.skc_net.net != &native_netns);
	sk->__sk_common.skc_bound_dev_if = from->__sk_common.skc_bound_dev_if;
	COPIES(3, rt_clone(from, 0, 0, sk));
	route(sk, interface);
	for (at = &from->waiting; *at; at = &(*at)->next)
		;
	*at = sk;
	return 0;
}

int k_accept(int fd)
{
	struct sock *from = sock_at(fd), *sk = from ? from->waiting : 0;
	struct file *file;

	if (!sk)
		return -EAGAIN;
	from->waiting = sk->next;
	sk->next = 0;
	file = socket_file(sk);
	COPIES(3, rt_accept(0, file->private_data, 0, 0));
	return install(file);
}

int k_dup(int fd)
{
	struct file *file = file_at(fd);

	if (!file)
		return -EBADF;
	file->count++;
	return install(file);
}

int k_close(int fd)
{
	struct file *file = file_at(fd);

	if (!file)
		return -EBADF;
	native_current->files->fdt->fd[fd] = 0;
	file_put(file);
	return 0;
}

/* What is under way over a unix socket. */
static struct file *under_way[16];

int k_send(int fd, u32 at)
{
	struct file *file = file_at(fd);

	if (!file || under_way[at])
		return -EBADF;
	file->count++;
	under_way[at] = file;
	return 0;
}

int k_receive(u32 at)
{
	struct file *file = under_way[at];

	under_way[at] = 0;
	return install(file);
}

void k_forget(u32 at)
{
	struct file *file = under_way[at];

	under_way[at] = 0;
	file_put(file);
}

/* The kernel itself knows no such command: EINVAL where a hook has not answered above 0. */
int k_fcntl(int fd, u32 command, u64 argument)
{
	struct file *file = file_at(fd);
	int answer = file ? rt_fcntl(file, command, argument, cpu_fcntl(file, command, argument)) : -EBADF;

	return answer ? answer : -EINVAL;
}

int k_setsockopt(int fd, int qfd)
{
	struct sock *sk = sock_at(fd);
	struct bpf_sockopt context = { .level = SOL_RESERV, .optname = SO_RESERV_QUEUE, .optlen = sizeof(qfd) };

	if (!sk)
		return -ENOTSOCK;
	context.sk = &sk->seen;
	context.optval = &qfd;
	context.optval_end = &qfd + 1;
	native_retval = 0;
	if (!rt_option(&context))
		return native_retval;
	return context.optlen == -1 ? 1 : -ENOPROTOOPT;
}

int k_getsockopt(int fd, u32 resource)
{
	struct sock *sk = sock_at(fd);
	struct bpf_sockopt context = { .level = SOL_RESERV, .optname = SO_RESERV_QUEUE_OF + resource, .optlen = sizeof(int), .retval = -ENOPROTOOPT };
	int got = 0;

	if (!sk)
		return -ENOTSOCK;
	context.sk = &sk->seen;
	context.optval = &got;
	context.optval_end = &got + 1;
	native_retval = 0;
	if (!rt_option_of(&context))
		return native_retval;
	return context.retval ? context.retval : got;
}

int k_use(int fd, u64 bytes, u32 write)
{
	struct file *file = file_at(fd);

	if (!file)
		return -EBADF;
	return write ? rt_write(file, 0, bytes, 0, bytes) : rt_read(file, 0, bytes, 0, bytes);
}

int k_packet(int fd, u32 interface, u32 bytes)
{
	struct sock *sk = sock_at(fd);
	struct __sk_buff packet = { .len = bytes, .ifindex = interface };

	if (!sk)
		return -ENOTSOCK;
	packet.sk = &sk->seen;
	return rt_egress(&packet);
}

/* Handles of files of /reserv whose last reference went. */
u32 k_released(u64 *to)
{
	u32 n = releases;

	if (n > 256)
		abort();
	memcpy(to, released, n * sizeof(*to));
	releases = 0;
	return n;
}

/* Entries that should be gone when everything has ended; and what the programs had no room for. */
u64 k_left(void)
{
	u64 taken = 0;

	for (u32 i = 0; i < sizeof(*hot.max_entries) / sizeof(int); i++) {
		struct rt_file *f = native_lookup(NATIVE_MAP(&hot), &i);

		taken += f->file != 0;
	}
	return taken + NATIVE_MAP(&files)->used + NATIVE_MAP(&socks)->used + NATIVE_MAP(&lists)->used + file_entries + sock_entries + several + lost;
}
