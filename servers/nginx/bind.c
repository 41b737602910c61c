/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The binding of a worker's thread to containers, by reserv_bind(3)'s system call.
 *
 * The master opens the containers' directories as root, before it starts workers, and these inherit
 * the descriptors. As long as no access list speaks of a container, such a descriptor is the right
 * to bind with it (reserv(7), CONTAINERS), so the workers' user needs none.
 *
 * A binding never waits for reservd: the kernel's part answers.
 */
#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "reserv_module.h"

#include <reserv.h>

#define WHOSE_USER "the workers' user"
#include "../words.h"

/* Containers that are opened at the start: a descriptor in each process for each. */
#define CONTAINERS_MOST 4096
#define DEEPEST 16
/* Of the master's descriptors, as many as this, or half of all, are not for containers. */
#define NOT_OURS 512
#define LINES_A_MINUTE 8
#define COMMON_BYTES (sizeof(struct common) + CONTAINERS_MOST * sizeof(struct known))

struct settings *settings;
struct share *bound;
/* When the kernel was last told so. */
static time_t bound_at;

static int saying(struct share *share, ngx_atomic_uint_t what)
{
	return !(__atomic_fetch_or(&share->known->said, what, __ATOMIC_RELAXED) & what);
}

/* Where a container comes and goes, or workers differ about it, the log is not its diary. */
static int may_say(struct share *share)
{
	struct known *known = share->known;
	ngx_atomic_uint_t minute = (ngx_atomic_uint_t)ngx_time() / 60;

	if (known->minute != minute) {
		known->minute = minute;
		known->lines = 0;
	}
	return __atomic_fetch_add(&known->lines, 1, __ATOMIC_RELAXED) < LINES_A_MINUTE;
}

static void say_refused(struct share *share, int error)
{
	ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
		      "reserv: container %V: %s; its requests run where the server does", &share->node.str,
		      in_words(error));
}

uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* 0 or an errno. Waits for reservd: only the master and the helper's thread may. */
int share_open(struct share *share)
{
	int fd = open(share->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return errno;
	share->dir = fd;
	return 0;
}

/*
 * Whether a descriptor is a right to bind depends on who opened it: one that root opened before is
 * worth more than one of the workers' user, as long as it works. It keeps its number, for the
 * worker's thread may be using it.
 */
void share_open_again(struct share *share)
{
	int before = __atomic_load_n(&share->dir, __ATOMIC_ACQUIRE);
	int fd = open(share->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (before >= 0 && fcntl(fd, F_RESERV_BIND, 0) != 1) {
		close(fd);
		return;
	}
	fcntl(fd, F_RESERV_UNBIND, 0);
	if (before < 0) {
		__atomic_store_n(&share->dir, fd, __ATOMIC_RELEASE);
	} else {
		dup3(fd, before, O_CLOEXEC);
		close(fd);
	}
	__atomic_store_n(&share->stale, 0, __ATOMIC_RELAXED);
}

static void unbind(void)
{
	struct share *from = bound;

	bound = NULL;
	/* EINVAL: of this mount nothing is left, so no binding is either. */
	if (fcntl(from->dir, F_RESERV_UNBIND, 0) != 1 && errno == EACCES && saying(from, SAID_STAYS))
		ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
			      "reserv: container %V: a worker stays in it when it has nothing to do for it, for "
			      "its user may not use the queue in which the server was started",
			      &from->node.str);
}

int bind_to(struct share *share)
{
	int fd, error = ENOENT, again = share == bound;

	/* A rule, root, or the end of the container may have taken the thread elsewhere. */
	if (again && (!share || bound_at == ngx_time()))
		return 0;
	if (!share) {
		unbind();
		return 0;
	}
	fd = __atomic_load_n(&share->dir, __ATOMIC_ACQUIRE);
	if (fd >= 0) {
		if (fcntl(fd, F_RESERV_BIND, 0) == 1) {
			bound = share;
			bound_at = ngx_time();
			if (share->known->said & SAID_REFUSED &&
			    __atomic_fetch_and(&share->known->said, ~(ngx_atomic_uint_t)SAID_REFUSED,
					       __ATOMIC_RELAXED) &
				    SAID_REFUSED &&
			    may_say(share))
				ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
					      "reserv: container %V is there again", &share->node.str);
			/*
			 * It competes there from its next turn on (reserv(7)). Most pieces of work are shorter
			 * than a turn, and would never do so: the turn in which they begin ends here.
			 */
			if (!again)
				sched_yield();
			return 0;
		}
		error = errno;
	}
	if (bound)
		unbind();
	if (saying(share, SAID_REFUSED) && may_say(share))
		say_refused(share, error);
	/* Of the other errors the descriptor is not the reason. */
	if (error == ENOENT || error == ESTALE || error == EINVAL) {
		__atomic_store_n(&share->stale, 1, __ATOMIC_RELAXED);
		helper_ask(ASK_KNOWN);
	}
	return error;
}

/* Adds what is in the container `name` to what is opened; more than there is room for is told. */
static void walk(struct settings *all, ngx_cycle_t *cycle, const char *name, int depth)
{
	char path[NGX_MAX_PATH];
	struct dirent *entry;
	struct share *share;
	DIR *dir;

	if (depth > DEEPEST || (size_t)snprintf(path, sizeof(path), "%s%s", all->top, name) >= sizeof(path))
		return;
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		int length = snprintf(path, sizeof(path), "%s/%s", name, entry->d_name);
		ngx_str_t inner = { (size_t)length, (u_char *)path };

		if (entry->d_type != DT_DIR || (size_t)length >= sizeof(path) || !name_is_right(inner.data, inner.len))
			continue;
		if (!share_named(all, &inner)) {
			if (all->count >= CONTAINERS_MOST) {
				ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
					      "reserv: %s has more containers than %d: %V and others are not used",
					      name, CONTAINERS_MOST, &inner);
				break;
			}
			share = share_make(all, path, inner.len);
			if (!share)
				break;
			share_add(all, share);
		}
		walk(all, cycle, path, depth + 1);
	}
	if (dir)
		closedir(dir);
}

static void close_all(void *all_)
{
	struct settings *all = all_;
	struct share *share;

	if (helper_works())
		return;
	for (share = all->first; share; share = share->next)
		if (share->dir >= 0) {
			close(share->dir);
			share->dir = -1;
		}
}

static void unmap(void *shared)
{
	if (!helper_works())
		munmap(shared, COMMON_BYTES);
}

/*
 * How many containers may be open. At a reload the master has those of before too, and without a
 * descriptor it makes no workers.
 */
static ngx_uint_t room_for(ngx_uint_t count, ngx_log_t *log)
{
	struct rlimit limit;
	rlim_t most, kept;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return count;
	most = 2 * (rlim_t)count + NOT_OURS;
	if (limit.rlim_cur < most && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			getrlimit(RLIMIT_NOFILE, &limit);
	}
	kept = limit.rlim_cur / 2 < NOT_OURS ? limit.rlim_cur / 2 : NOT_OURS;
	most = (limit.rlim_cur - kept) / 2;
	if (most >= count)
		return count;
	ngx_log_error(NGX_LOG_ERR, log, 0,
		      "reserv: a process may have %ul descriptors (RLIMIT_NOFILE), which is room for %ul of %ui "
		      "containers; requests of the others run where the server does",
		      (unsigned long)limit.rlim_cur, (unsigned long)most, count);
	return (ngx_uint_t)most;
}

ngx_int_t shares_open(struct settings *all, ngx_cycle_t *cycle)
{
	ngx_pool_cleanup_t *closes = ngx_pool_cleanup_add(cycle->pool, 0), *unmaps;
	struct common *shared = mmap(NULL, COMMON_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int error, there = access(all->top, F_OK) == 0;
	struct share *share;
	struct root *root;
	ngx_uint_t i, room;

	if (shared == MAP_FAILED || !closes || !(unmaps = ngx_pool_cleanup_add(cycle->pool, 0)))
		return NGX_ERROR;
	closes->handler = close_all;
	closes->data = all;
	unmaps->handler = unmap;
	unmaps->data = shared;
	all->common = shared;
	if (!there)
		ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
			      "reserv: there is no %s: all requests run where the server does", all->top);
	for (root = all->roots; there && root; root = root->next)
		walk(all, cycle, root->name, 0);
	room = room_for(all->count, cycle->log);
	for (i = 0, share = all->first; share; share = share->next, i++) {
		if (i < CONTAINERS_MOST)
			share->known = shared->known + i;
		if (i >= room)
			continue;
		error = share_open(share);
		if (!error && fcntl(share->dir, F_RESERV_BIND, 0) != 1)
			error = errno;
		else if (!error)
			fcntl(share->dir, F_RESERV_UNBIND, 0);
		if (!error)
			share->weight = weight_read(all->mount, &share->node.str);
		/* One that holds containers is found by walking, and is none to serve requests in. */
		if (error && !(error == EINVAL && all->roots) && saying(share, SAID_REFUSED) && there)
			say_refused(share, error);
	}
	return NGX_OK;
}
