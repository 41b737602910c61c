/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libreserv: reservations for programs. reserv_intro(3) is the introduction; every group of calls
 * has a page of its own.
 *
 * Nodes are named by paths, with or without the mount point: "/reserv/cpu/web/site1" or
 * "cpu/web/site1". Answers have it.
 *
 * Calls answer -1 when they fail; then errno says what kind of failure it was, and reserv_error()
 * says in words which word was wrong and what would be right. Nothing has changed then. After a
 * success errno means nothing.
 *
 * A call that fills a buffer answers the length of the text, without the 0 at its end; ERANGE if
 * text and 0 do not fit. With size 0 nothing is written, and the length is the answer.
 *
 * Structures grow at their end in later releases. So each call with one that the program has in its
 * own memory is here twice: NAME_sized(…, size) is in the library, and NAME(…) says the size that
 * the program was compiled with. Of a structure that is filled, an older program gets what it has
 * room for, and a newer one finds zeros in what the library does not know. Of one that is read,
 * what an older program does not have counts as zeros, and E2BIG says that a newer one asks for
 * something that the library does not know. A 0 means "not set" in every field. EINVAL: it is no
 * size of such a structure.
 *
 * Every call may be used by several threads at once. None is async-signal-safe; what is, are the
 * fcntl commands below, which the first calls of each group are made of. Descriptors that are
 * answered are the caller's, and closed at exec.
 */
#ifndef RESERV_H
#define RESERV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Commands of fcntl(2), for where a single system call is wanted. They answer a positive number, or
 * -1 and errno; EINVAL where the kernel's part of Reserv is not loaded. A descriptor that opening
 * newqueue gave is one of its queue's share, at once.
 */
#define F_RESERV_CHCPURES 0x52530001 /* fcntl(queue, …, 0): tag the calling thread. 1 */
/* fcntl(any descriptor of /reserv, …, 0): number of the thread's queue, plus 1 */
#define F_RESERV_GETCPURES 0x52530002
#define F_RESERV_SETPARAM 0x52530003 /* used by reserv_set_params */
#define F_RESERV_GETPARAM 0x52530004 /* used by reserv_get_params */
#define F_RESERV_SET_QUEUE 0x52530005 /* fcntl(fd, …, queue): tag an open file or socket. 1 */
/* fcntl(fd, …, number of a resource): number of the queue of fd, plus 1 */
#define F_RESERV_GET_QUEUE 0x52530006
/* fcntl(container, …, 0): the calling thread works for a container. 1 */
#define F_RESERV_BIND 0x52530007
/* fcntl(any of /reserv, …, 0): it goes back to the queue that it had. 1 */
#define F_RESERV_UNBIND 0x52530008
/*
 * fcntl(any of /reserv, …, 0): the number of its container's queue + 1; ENOENT: it is bound to none
 */
#define F_RESERV_BOUND 0x52530009
/* fcntl(container, …, slot): the slot of this process stands for a container. 1 */
#define F_RESERV_SLOT 0x5253000a
/* fcntl(any of /reserv, …, page): the calling thread binds itself by what it writes there. 1 */
#define F_RESERV_PAGE 0x5253000b

/*
 * The same of sockets, with every driver: setsockopt(fd, SOL_RESERV, SO_RESERV_QUEUE, &queue,
 * sizeof(int)), and getsockopt with SO_RESERV_QUEUE_OF + the number of a resource, which tells an
 * int. ENOPROTOOPT or EOPNOTSUPP where nothing of Reserv is loaded.
 */
#define SOL_RESERV 0x5253
#define SO_RESERV_QUEUE 5
#define SO_RESERV_QUEUE_OF 0x100

/* --- reserv_error(3) --- */

/*
 * What was wrong with the last call of this thread that failed; "" if none did. Stays until the
 * thread's next failure.
 */
const char *reserv_error(void);
/* "0.1.0" */
const char *reserv_version(void);
/* Where /reserv is mounted: RESERV_MOUNT, or what /proc/self/mountinfo says. */
ssize_t reserv_mount(char *buf, size_t size);

/* --- reserv_open(3) --- */

/* A descriptor of a node's directory, opened for reading: what the calls below want as `queue`. */
int reserv_open(const char *node);
/*
 * The path of the node that a descriptor of /reserv (its directory or one of its files) belongs to,
 * wherever it was moved.
 */
ssize_t reserv_path(int fd, char *buf, size_t size);

/* --- reserv_chcpures(3) --- */

/* Tags the calling thread with the queue that `queue` is a descriptor of. */
int reserv_chcpures(int queue);
int reserv_chcpures_path(const char *queue);
/* The calling thread's queue. */
ssize_t reserv_cpures(char *buf, size_t size);
/* Tags a process with all its threads; one thread. */
int reserv_tag(const char *queue, pid_t pid);
int reserv_tag_thread(const char *queue, pid_t tid);

/* What a thread asks of its queue's class; 0: not set. It grows. */
struct reserv_params {
	uint32_t weight; /* thousandths */
	uint32_t priority; /* 1 … 100, higher first */
	uint64_t period_ns, budget_ns, deadline_ns;
};

/* Of the calling thread: all of them are set. */
int reserv_set_params_sized(const struct reserv_params *params, size_t size);
int reserv_get_params_sized(struct reserv_params *params, size_t size);
static inline int reserv_set_params(const struct reserv_params *params)
{
	return reserv_set_params_sized(params, sizeof(*params));
}
static inline int reserv_get_params(struct reserv_params *params)
{
	return reserv_get_params_sized(params, sizeof(*params));
}

/* --- reserv_bind(3) --- */

/* A descriptor of a container's directory, opened for reading. */
int reserv_open_container(const char *container);
/*
 * The calling thread works for the container that `container` is a descriptor of, until it is bound
 * to another, or unbound: then it is where it was before.
 */
int reserv_bind(int container);
int reserv_bind_path(const char *container);
int reserv_unbind(void);
/* The container to which the calling thread is bound; "" and 0: to none. */
ssize_t reserv_bound(char *buf, size_t size);

/* --- reserv_slot(3) --- */

/*
 * A number, 1 to 1023, by which the threads of this process name the container that `container` is
 * a descriptor of, as of reserv_bind(). It is given back with reserv_slot_free(), and is nothing in
 * a child or after exec.
 */
int reserv_slot(int container);
int reserv_slot_path(const char *container);
int reserv_slot_free(int slot);
/*
 * As reserv_bind(), of the calling thread, without a system call but for one in 128, and one every
 * 10 ms; 0: as reserv_unbind().
 */
int reserv_work(int slot);

/*
 * What a thread tells the kernel's part of Reserv so: the calling thread's, made at the first call,
 * until the thread ends; NULL and errno. In a child it is another one, made by a call there. It is
 * the library's memory, and grows behind what programs were compiled with.
 */
struct reserv_page {
	uint32_t size, which;
	uint64_t head;
	struct {
		uint64_t ticks, ns, rate;
	} anchor[2];
	uint64_t since, every;
	uint64_t log[256];
};
struct reserv_page *reserv_page(void);
/* What was written so far is charged now. */
int reserv_page_settle(struct reserv_page *page);

#if defined(__x86_64__) || defined(__aarch64__)
/* reserv_work() of the thread whose page it is, in a few instructions. */
static inline void reserv_page_work(struct reserv_page *page, int slot)
{
	uint64_t head = page->head, ticks;

#if defined(__x86_64__)
	ticks = __builtin_ia32_rdtsc();
#else
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
#endif
	page->log[head % 256] = ticks << 10 | (uint64_t)slot;
	/* The kernel's part may look at any instant: an entry is whole before it is counted. */
	__asm__ volatile("" : : : "memory");
	page->head = ++head;
	if (__builtin_expect(ticks - page->since > page->every || !(head & 127), 0))
		(void)reserv_page_settle(page);
}
#endif

/* --- reserv_pool_open(3) --- */

/* What a pool's containers are. It grows. */
struct reserv_pool_params {
	const char *share; /* of each, as in its file; NULL: 1 */
	uint64_t flags;
};
/* One container more, for all activities that find none free. */
#define RESERV_POOL_OVERFLOW 1

/* Containers for activities: the library's memory, which grows as a page does. */
struct reserv_pool {
	uint64_t free; /* a count, and below it the first free slot */
	uint32_t count, overflow;
	struct {
		uint64_t owner;
		uint32_t next, pad;
	} of[1024];
};
/*
 * `count` containers below `parent` (NULL: they have none), all or none: NULL and errno. They go
 * when it is closed, or the process ends.
 */
struct reserv_pool *reserv_pool_open_sized(const char *parent, int count,
					   const struct reserv_pool_params *params, size_t size);
static inline struct reserv_pool *reserv_pool_open(const char *parent, int count,
						   const struct reserv_pool_params *params)
{
	return reserv_pool_open_sized(parent, count, params, sizeof(*params));
}
/* EBUSY while activities go on. */
int reserv_pool_close(struct reserv_pool *pool);
/*
 * The calling thread works for a container of its own, of those that are free, until
 * reserv_end(pool, what was answered): then it works for what it did before. EAGAIN: none is free.
 */
int reserv_begin(struct reserv_pool *pool);
int reserv_end(struct reserv_pool *pool, int activity);
/* For reserv_work(): the container of an activity. */
static inline int reserv_activity_slot(int activity)
{
	return activity & 1023;
}

#if defined(__x86_64__) || defined(__aarch64__)
/* reserv_begin() of the thread whose page it is, in a few instructions. */
static inline int reserv_page_begin(struct reserv_page *page, struct reserv_pool *pool)
{
	int before = (int)(page->log[(page->head - 1) % 256] & 1023), slot;
	uint64_t first = __atomic_load_n(&pool->free, __ATOMIC_ACQUIRE), then;

	do {
		slot = (int)(first & 1023);
		if (__builtin_expect(!slot, 0))
			return reserv_begin(pool);
		then = ((first >> 10) + 1) << 10 |
		       __atomic_load_n(&pool->of[slot].next, __ATOMIC_RELAXED);
	} while (!__atomic_compare_exchange_n(&pool->free, &first, then, 1, __ATOMIC_ACQUIRE,
					      __ATOMIC_ACQUIRE));
	__atomic_store_n(&pool->of[slot].owner, (uintptr_t)page | (unsigned int)before,
			 __ATOMIC_RELAXED);
	reserv_page_work(page, slot);
	return slot | before << 10;
}

static inline int reserv_page_end(struct reserv_page *page, struct reserv_pool *pool, int activity)
{
	int slot = activity & 1023;
	uint64_t first, then;

	if (__builtin_expect(activity >> 20 || !slot || slot == (int)pool->overflow ||
				     !__atomic_exchange_n(&pool->of[slot].owner, 0, __ATOMIC_RELAXED),
			     0))
		return reserv_end(pool, activity);
	if ((int)(page->log[(page->head - 1) % 256] & 1023) == slot)
		reserv_page_work(page, activity >> 10);
	first = __atomic_load_n(&pool->free, __ATOMIC_RELAXED);
	do {
		__atomic_store_n(&pool->of[slot].next, (uint32_t)(first & 1023), __ATOMIC_RELAXED);
		then = ((first >> 10) + 1) << 10 | (uint64_t)slot;
	} while (!__atomic_compare_exchange_n(&pool->free, &first, then, 1, __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
	return 0;
}
#endif

/* --- reserv_set_queue(3) --- */

/* Tags an open file or socket, and with it every descriptor that shares it. */
int reserv_set_queue(int fd, int queue);
int reserv_set_queue_path(int fd, const char *queue);
/*
 * The queue of `fd` for a resource ("cpu", "vda"), or with NULL, of a descriptor of /reserv: its
 * own node.
 */
ssize_t reserv_get_queue(int fd, const char *resource, char *buf, size_t size);

/* --- reserv_listen_for(3) --- */

/*
 * A listening TCP socket, or a bound UDP socket, is for these clients from now on: "10.1.0.0/16",
 * "not 10.0.0.0/8", "any", several with blanks between; "at 80 any": at a port at which another
 * socket is bound; "none": as any other socket again.
 */
int reserv_listen_for(int fd, const char *clients);
/* For which it is: as it was said, or "none". */
ssize_t reserv_listens_for(int fd, char *buf, size_t size);

/* --- reserv_pread(3) --- */

/*
 * As pread(2) and pwrite(2); their requests are due so long after they come to a disk that is
 * scheduled by deadlines. 8 ms to 1023 ms; 0: as the queue's are.
 */
ssize_t reserv_pread(int fd, void *buf, size_t count, off_t offset, uint64_t deadline_ns);
ssize_t reserv_pwrite(int fd, const void *buf, size_t count, off_t offset, uint64_t deadline_ns);

/* --- reserv_set_default(3) --- */

/*
 * The queue of a process (0: the caller) for a resource in its default list, or child default list;
 * with NULL all of them, blanks between.
 */
ssize_t reserv_get_default(pid_t pid, const char *resource, char *buf, size_t size);
ssize_t reserv_get_cdefault(pid_t pid, const char *resource, char *buf, size_t size);
/*
 * Sets those that are named, at most one per resource, blanks between; the other resources keep
 * theirs.
 */
int reserv_set_default(pid_t pid, const char *queues);
int reserv_set_cdefault(pid_t pid, const char *queues);

/* --- reserv_mkqueue(3) --- */

/*
 * Makes q0, q1 … (r0, r1 …) below `parent`, with weight 0. Answers a descriptor of its share file,
 * and its path if `buf` is not NULL.
 */
int reserv_newqueue(const char *parent, char *buf, size_t size);
int reserv_newsched(const char *parent, char *buf, size_t size);
/* Makes a node by name; `share` is as in its file, NULL for 100. */
int reserv_mkqueue(const char *node, const char *share);
int reserv_mksched(const char *node, const char *share);

enum reserv_delete_how {
	RESERV_REFUSE = 0, /* refused while there are members or children */
	RESERV_DRAIN = 1, /* the queue takes no new members, and goes with the last one */
	RESERV_FLUSH = 2, /* members go to q0, and the queue goes at once */
};
int reserv_delete(const char *node, int how);
/* Renames and moves. */
int reserv_move(const char *from, const char *to);

/* --- reserv_set(3) --- */

/*
 * The value of a file of a node: share, policy, class, cap, tune, backlog, state … as reserv(7)
 * says.
 */
int reserv_set(const char *node, const char *file, const char *value);
ssize_t reserv_get(const char *node, const char *file, char *buf, size_t size);
/* reserv_set(node, "share", share) */
int reserv_reweight(const char *node, const char *share);

/* --- reserv_set_collect(3) --- */

/*
 * Whether the node is collected when nothing refers to it: 0 or 1. The second pair by a descriptor
 * of the node.
 */
int reserv_set_collect(const char *node, int on);
int reserv_get_collect(const char *node);
int reserv_fset_collect(int fd, int on);
int reserv_fget_collect(int fd);

/* --- reserv_stat(3) --- */

/*
 * The counters of a node and what is below it, as in its file `stat`; 0 where its resource does not
 * have one. It grows.
 */
struct reserv_stat {
	uint64_t weight_share_ppm, effective_share_ppm;
	uint64_t service_ns;
	uint64_t runnable, queued, running, members;
	uint64_t throttled, throttled_ns;
	uint64_t draining; /* 1: it takes no new members */
	uint64_t minimum_ns; /* promised per second */
	uint64_t guarantee_ns; /* what it has per second whoever wants */
	uint64_t threads_short; /* that it lacks to be able to use its minimum */
};
int reserv_stat_sized(const char *node, struct reserv_stat *stat, size_t size);
static inline int reserv_stat(const char *node, struct reserv_stat *stat)
{
	return reserv_stat_sized(node, stat, sizeof(*stat));
}

#ifdef __cplusplus
}
#endif

#endif
