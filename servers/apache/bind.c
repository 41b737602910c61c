/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The binding of threads to containers, by reserv_bind(3)'s system call.
 *
 * The parent opens the containers' directories as root, before it starts the server's processes,
 * and these inherit the descriptors. As long as no access list speaks of a container, such a
 * descriptor is the right to bind with it (reserv(7), CONTAINERS), so the server's user needs none.
 *
 * A binding never waits for reservd: the kernel's part answers. Only a container that is gone, or
 * was not there at the start, has a thread open a file of /reserv, one a second in each process.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "httpd.h"
#include "http_log.h"

#include <reserv.h>

#include "mod_reserv.h"

#define WHOSE_USER "the server's user"
#include "../words.h"

APLOG_USE_MODULE(reserv);

#define AGAIN_AFTER apr_time_from_sec(1)

__thread struct self self;

static server_rec *main_server;
/* All that the configuration names; the last is NULL. */
static struct share **every;
/*
 * It names one only. A thread then stays in that container when it has nothing to do, so that it is
 * not bound, and its turn ended, for each request: what it does before it knows its next connection
 * is charged there, and no other site's container is. It is bound anew once a second, for whoever
 * tags the thread, or ends Reserv and begins it again, ends the binding.
 */
static int alone;
/*
 * What all processes of the server know of a container, in memory that they share: what has been
 * said of it, so that it is said once, and when a child may next ask to be a member.
 */
struct known {
	unsigned said;
	apr_time_t member_again;
};
static struct known *known;
enum { SAID_REFUSED = 1, SAID_STAYS = 2 };

static int saying(const struct share *share, unsigned what)
{
	return !(__atomic_fetch_or(&known[share->index].said, what, __ATOMIC_RELAXED) & what);
}

static void say_refused(const struct share *share, int error)
{
	ap_log_error(APLOG_MARK, APLOG_WARNING, 0, main_server,
		     "container %s: %s; its requests run where the server does", share->name, in_words(error));
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int open_in(const char *path, const char *file, int flags)
{
	char whole[4096];

	snprintf(whole, sizeof(whole), "%s%s", path, file);
	return open(whole, flags | O_CLOEXEC | O_NOCTTY);
}

/* Puts a descriptor where other threads of the process may be using the one before. */
static void put(int *at, int fd)
{
	int before = __atomic_load_n(at, __ATOMIC_ACQUIRE);

	if (fd < 0)
		return;
	if (before < 0) {
		__atomic_store_n(at, fd, __ATOMIC_RELEASE);
		return;
	}
	dup3(fd, before, O_CLOEXEC);
	close(fd);
}

static int open_share(struct share *share)
{
	int fd = open_in(share->path, "", O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		return errno;
	put(&share->dir, fd);
	put(&share->members, open_in(share->path, "/members", O_WRONLY));
	return 0;
}

/* One thread of a process and once a second: opening waits for reservd. */
static int opened_again(struct share *share)
{
	apr_time_t now = apr_time_now(), when = __atomic_load_n(&share->again, __ATOMIC_RELAXED);

	return now >= when &&
	       __atomic_compare_exchange_n(&share->again, &when, now + AGAIN_AFTER, 0, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED) &&
	       open_share(share) == 0;
}

static void unbind(void)
{
	struct share *from = self.bound;

	self.bound = NULL;
	/* EINVAL: of this mount nothing is left, so no binding is either. */
	if (fcntl(from->dir, F_RESERV_UNBIND, 0) != 1 && errno == EACCES && saying(from, SAID_STAYS))
		ap_log_error(APLOG_MARK, APLOG_WARNING, 0, main_server,
			     "container %s: a thread stays in it when its request ends, for the server's user "
			     "may not use the queue in which the server was started",
			     from->name);
}

static int bind_to(struct share *share)
{
	int fd = __atomic_load_n(&share->dir, __ATOMIC_ACQUIRE), error = ENOENT;

	if (fd >= 0) {
		if (fcntl(fd, F_RESERV_BIND, 0) == 1)
			return 0;
		error = errno;
	}
	if ((error == ENOENT || error == ESTALE || error == EINVAL) && opened_again(share)) {
		if (fcntl(share->dir, F_RESERV_BIND, 0) == 1) {
			__atomic_fetch_and(&known[share->index].said, ~SAID_REFUSED, __ATOMIC_RELAXED);
			ap_log_error(APLOG_MARK, APLOG_NOTICE, 0, main_server, "container %s is there again",
				     share->name);
			return 0;
		}
		error = errno;
	}
	return error;
}

/* A thread that was made by one that was bound is bound too; mod_http2 makes such. */
static void begin(void)
{
	struct share **any;

	self.begun = 1;
	for (any = every; any && *any; any++)
		if ((*any)->dir >= 0) {
			fcntl((*any)->dir, F_RESERV_UNBIND, 0);
			return;
		}
}

void work_counted(void)
{
	if (self.work)
		self.work->cpu_ns += cpu_ns() - self.from_ns;
	self.work = NULL;
}

void work_over(void)
{
	if (alone)
		work_counted();
	else
		work_for(NULL, NULL);
}

void work_again(apr_time_t now)
{
	if (!alone || now < self.asked + AGAIN_AFTER)
		return;
	self.asked = now;
	self.again = 1;
}

int work_for(struct share *share, struct work *work)
{
	int error = 0;

	if (!self.begun)
		begin();
	work_counted();
	if (share && (share != self.bound || self.again)) {
		self.again = 0;
		error = bind_to(share);
		if (error && saying(share, SAID_REFUSED))
			say_refused(share, error);
		if (error)
			share = NULL;
		else
			self.bound = share;
		/*
		 * It competes there from its next turn on (reserv(7)). Most requests are shorter than a
		 * turn, and would never do so: the turn in which they began ends here.
		 */
		if (!error)
			sched_yield();
	}
	if (!share && self.bound)
		unbind();
	if (work && !error) {
		self.work = work;
		self.from_ns = cpu_ns();
	}
	return error;
}

/*
 * In a child, right after the fork: a new process is not bound by itself. The system calls are
 * those that are allowed there. The binding is the child's own; being a member is that of its
 * children too, and of links and disks, and takes the right to use the container.
 */
static void in_child(void)
{
	struct share *share = self.bound;
	apr_time_t *again, now;

	if (!share || share->dir < 0)
		return;
	fcntl(share->dir, F_RESERV_BIND, 0);
	if (share->members < 0)
		return;
	again = &known[share->index].member_again;
	now = apr_time_now();
	if (now >= __atomic_load_n(again, __ATOMIC_RELAXED) && write(share->members, "self", 4) != 4)
		__atomic_store_n(again, now + AGAIN_AFTER, __ATOMIC_RELAXED);
}

static int in_daemon;

void next_child(struct share *share)
{
	in_daemon = 1;
	self.bound = share;
}

static void in_parent(void)
{
	if (in_daemon)
		self.bound = NULL;
}

void children_inherit(void)
{
	static int once;

	if (!once++)
		pthread_atfork(NULL, in_parent, in_child);
}

static apr_status_t close_all(void *unused)
{
	struct share **all;

	(void)unused;
	for (all = every; *all; all++) {
		if ((*all)->dir >= 0)
			close((*all)->dir);
		if ((*all)->members >= 0)
			close((*all)->members);
		(*all)->dir = (*all)->members = -1;
	}
	return APR_SUCCESS;
}

static apr_status_t unmap(void *bytes)
{
	munmap(known, (size_t)bytes);
	known = NULL;
	return APR_SUCCESS;
}

int shares_open(apr_pool_t *pconf, server_rec *server, struct share **all, int count, const char *top)
{
	size_t bytes = (size_t)count * sizeof(*known);
	int i, error, there = access(top, F_OK) == 0;

	main_server = server;
	alone = count == 1;
	known = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (known == MAP_FAILED)
		return errno;
	apr_pool_cleanup_register(pconf, (void *)bytes, unmap, apr_pool_cleanup_null);
	every = apr_pcalloc(pconf, (size_t)(count + 1) * sizeof(*every));
	memcpy(every, all, (size_t)count * sizeof(*every));
	apr_pool_cleanup_register(pconf, NULL, close_all, apr_pool_cleanup_null);
	if (!there)
		ap_log_error(APLOG_MARK, APLOG_WARNING, 0, server,
			     "there is no %s: all requests run where the server does", top);
	for (i = 0; i < count; i++) {
		error = open_share(all[i]);
		if (!error && fcntl(all[i]->dir, F_RESERV_BIND, 0) != 1)
			error = errno;
		else if (!error)
			fcntl(all[i]->dir, F_RESERV_UNBIND, 0);
		if (error && saying(all[i], SAID_REFUSED) && there)
			say_refused(all[i], error);
	}
	return 0;
}
