// SPDX-License-Identifier: GPL-2.0-only
/*
 * tagsim: the tags' programs (bpf/tag) without a kernel, and under the daemon's own code. This
 * plays the kernel: tasks with their leaders, signal structures and tables of descriptors; open
 * files and sockets with references; the hooks at each of their events; and the system call bpf, by
 * which crates/plane finds the programs' pins, runs rt_call and looks into their maps. Preloaded
 * into crates/daemon/examples/tag_model, which says what happens next (the functions k_… below).
 *
 * Of the copies of a hook's program (bpf/hook.h) some are run, at least one. Memory of what ended
 * is used again at once, so that what is kept by address is.
 */
#include "tagnative.h"
#include "tagsim.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef FDS
#define FDS 24
#endif

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

#include "tagmaps.h"

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

static struct socket *socket_of(struct file *file)
{
	return file && file->sb.s_magic == RT_SOCKFS ? file->private_data : 0;
}

static void file_put(struct file *file)
{
	struct socket *socket = socket_of(file);

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
	file->opener = native_current->own;
	file->f_cred = &file->opener;
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
	p->own.uid.val = p->own.fsuid.val = uid;
	p->own.fsgid.val = gid;
	p->own.cap_effective.val = uid ? 0 : ~0ULL;
	p->own.groups.ngroups = count;
	for (u32 i = 0; i < count; i++)
		p->own.groups.gid[i].val = groups[i];
}

static struct user_namespace first_ns;

static struct task_struct *task_new(int tid, int tgid)
{
	struct task_struct *p = task_of[tid] = take(&tasks);

	p->pid = tid;
	p->tgid = tgid;
	p->cred = p->real_cred = &p->own;
	p->own.user_ns = &first_ns;
	p->own.group_info = &p->own.groups;
	p->mm = p;
	return p;
}

static unsigned long all_open = -1UL;

static void process_of(struct task_struct *p, u64 start)
{
	p->signal = take(&signals);
	p->signal->live.counter = 1;
	p->group_leader = p;
	p->start_boottime = start;
	p->files = take(&tables);
	p->files->fdt = &p->files->table;
	p->files->table.max_fds = FDS;
	p->files->table.open_fds = &all_open;
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
	free(p->slots);
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

/*
 * As do_exit has it: counted, told, and only then are the descriptors closed. A leader is there
 * until the last of its threads has gone.
 */
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
	me->self_exec_id++;
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

/*
 * A file of /reserv. With O_PATH (a mode of RT_FMODE_PATH) it is opened by nobody's leave: neither
 * the daemon nor a hook hears of it, and it has no handle.
 */
int k_open_reserv(u32 dev, u64 ino, u32 directory, u32 mode, u64 handle)
{
	struct file *file = file_new(dev, directory ? 0040000 : 0100000, ino);

	file->f_mode = mode;
	if (mode & RT_FMODE_PATH)
		return install(file);
	file->handle = handle;
	file->opened.fh = handle;
	file->opened.nodeid = ino;
	file->private_data = &file->opened;
	rt_opened(file);
	return install(file);
}

/* Its attributes are asked for, upon which the kernel knows its inode by this number. */
void k_known(int fd, u64 ino)
{
	file_at(fd)->inode.i_ino = ino;
}

int k_socket(u16 family, u16 type, u32 elsewhere)
{
	return install(socket_file(sock_new(family, type, elsewhere)));
}

static struct sock *sock_at(int fd)
{
	struct socket *socket = socket_of(file_at(fd));

	return socket ? socket->own : 0;
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

	sk->__sk_common.skc_state = sk->seen.state = RT_ESTABLISHED;
	sk->dst.dev = &device[interface & 3];
	sk->dst.dev->ifindex = interface & 3;
	sk->sk_dst_cache = &sk->dst;
}

int k_connect(int fd, int interface)
{
	struct file *file = file_at(fd);

	if (!socket_of(file))
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
	int answer;

	if (!file || (file->f_mode & RT_FMODE_PATH)) /* of these few commands it knows some */
		return -EBADF;
	answer = rt_fcntl(file, command, argument, cpu_fcntl(file, command, argument));
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
	struct bpf_sock_addr to = {};

	if (!sk)
		return -ENOTSOCK;
	packet.sk = &sk->seen;
	to.sk = &sk->seen;
	rt_sent(file_at(fd)->private_data);
	if (sk->sk_type == 2)
		rt_send4(&to);
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
	for (u32 i = 0; i < RT_ACCOUNT_END; i++)
		taken += tag_accounts[i] & RT_ACCOUNT_NUMBER;
	taken += tag_counted[RT_OF_FILES] + tag_counted[RT_OF_SOCKS] + tag_counted[RT_OF_LISTS];
	return taken + NATIVE_MAP(&files)->used + NATIVE_MAP(&socks)->used + NATIVE_MAP(&lists)->used + file_entries + sock_entries + several + lost;
}
