/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The binding of a worker's thread to containers, by reserv_bind(3)'s system call.
 *
 * FPM's parent opens the containers' directories as root, before it starts workers, and these
 * inherit the descriptors. As long as no access list speaks of a container, such a descriptor is
 * the right to bind with it (reserv(7), CONTAINERS), so the workers' user needs none.
 *
 * A binding never waits for reservd: the kernel's part answers. Only a container that is gone, or
 * was not there at the start, has a worker open a file of /reserv, once a second and one worker at
 * a time: of a reservd that does not answer one worker knows.
 */
#include "php_reserv.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <reserv.h>

#define WHOSE_USER "the workers' user"
#include "../words.h"

/* Containers that are open: a descriptor in each process for each. */
#define CONTAINERS_MOST 4096
#define DEEPEST 16
/*
 * Their descriptors have numbers from here on: below are those that select() can wait for, which
 * scripts need. As many as LOW_MOST are there all the same where the process may have no others.
 */
#define HIGH 1024
#define LOW_MOST 256
#define LINES_A_MINUTE 8
#define AGAIN_AFTER 1

/* What all workers know of a container, in memory that they share. */
struct known {
	unsigned said; /* what has been said of it, so that it is said once */
	unsigned lines; /* how much has been said of it, in this minute */
	time_t minute;
};
enum { SAID_REFUSED = 1, SAID_STAYS = 2 };

/* A container. Each process has its own. */
struct share {
	int dir; /* a descriptor of it; -1: not open */
	int holds; /* there are others in it */
	time_t again; /* when this process may next ask reservd for it */
	struct known *known, own;
	char name[];
};

/* A word of the setting: the container of this name, and what is in it. */
struct root {
	struct root *next;
	size_t length;
	char name[];
};

static HashTable shares; /* by name */
static struct root *roots;
static char top[PATH_MAX];
static struct {
	struct known unnamed; /* names that are none of them */
	unsigned wrong; /* which settings of pools were said to be wrong: first_time() */
	struct known known[CONTAINERS_MOST];
} *common;
static struct share *bound;
/* When this process may next look for a name that it does not know. */
static time_t unnamed_again;
/* A worker has a lock of this file while it waits for reservd; its death ends that. */
static int opening = -1;

static int saying(struct known *known, unsigned what)
{
	return !(__atomic_fetch_or(&known->said, what, __ATOMIC_RELAXED) & what);
}

/* Where a container comes and goes, or workers differ about it, the log is not its diary. */
static int may_say(struct known *known)
{
	time_t minute = time(NULL) / 60;

	if (known->minute != minute) {
		known->minute = minute;
		known->lines = 0;
	}
	return __atomic_fetch_add(&known->lines, 1, __ATOMIC_RELAXED) < LINES_A_MINUTE;
}

int first_time(unsigned what)
{
	return !common || !(__atomic_fetch_or(&common->wrong, what, __ATOMIC_RELAXED) & what);
}

static void say_refused(const struct share *share, int error)
{
	say("container %s: %s; its requests run where FPM does", share->name, in_words(error));
}

const char *top_of_names(void)
{
	const char *mount = getenv("RESERV_MOUNT");

	if (!*top)
		snprintf(top, sizeof(top), "%s/container/", mount && *mount == '/' ? mount : "/reserv");
	return top;
}

const char *name_of(const char *text, size_t *length)
{
	size_t above = strlen(top_of_names());

	if (*length > above && !memcmp(text, top, above)) {
		text += above;
		*length -= above;
	}
	return path_is_right(text, *length) ? text : NULL;
}

/* The same descriptor from HIGH on, where the process may have such. */
static int moved_up(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);

	if (high < 0)
		return fd;
	close(fd);
	return high;
}

static int open_dir(const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s%s", top, name);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Each is freed with its descriptor. */
static void forget(zval *value)
{
	struct share *share = Z_PTR_P(value);

	if (share->dir >= 0)
		close(share->dir);
	free(share);
}

/* `known`: NULL where no other process knows it. */
static struct share *share_add(const char *name, size_t length, struct known *known)
{
	struct share *share = calloc(1, sizeof(*share) + length + 1);

	if (!share)
		return NULL;
	share->dir = -1;
	share->known = known ? known : &share->own;
	memcpy(share->name, name, length);
	zend_hash_str_add_ptr(&shares, name, length, share);
	return share;
}

/* Whether the setting names it, or something that it is in. */
static int is_named(const char *name, size_t length)
{
	const struct root *root;

	for (root = roots; root; root = root->next)
		if (length >= root->length && !memcmp(name, root->name, root->length) &&
		    (length == root->length || name[root->length] == '/'))
			return 1;
	return 0;
}

/* One worker at a time: opening waits for reservd. -1: not now. */
static int open_now(const char *name, time_t *again)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	time_t now = time(NULL);
	int fd;

	if (now < *again && *again <= now + AGAIN_AFTER)
		return -1;
	if (opening < 0 || fcntl(opening, F_SETLK, &lock))
		return -1;
	fd = open_dir(name);
	*again = time(NULL) + AGAIN_AFTER;
	lock.l_type = F_UNLCK;
	fcntl(opening, F_SETLK, &lock);
	return fd;
}

/*
 * Whether a descriptor is a right to bind depends on who opened it: one that root opened before is
 * worth more than one of the workers' user, as long as it works.
 */
static int opened_again(struct share *share)
{
	int fd = open_now(share->name, &share->again);

	if (fd < 0)
		return 0;
	if (fcntl(fd, F_RESERV_BIND, 0) != 1) {
		close(fd);
		return 0;
	}
	if (share->dir >= 0)
		close(share->dir);
	share->dir = moved_up(fd);
	return 1;
}

/* One that came after the start is had by who has the right to use it. */
static struct share *found_later(const char *name, size_t length)
{
	char path[PATH_LONGEST + 1];
	struct share *share;
	int fd;

	if (!is_named(name, length) || zend_hash_num_elements(&shares) >= CONTAINERS_MOST)
		return NULL;
	memcpy(path, name, length);
	path[length] = '\0';
	fd = open_now(path, &unnamed_again);
	if (fd < 0)
		return NULL;
	fd = moved_up(fd);
	if (fd < HIGH && zend_hash_num_elements(&shares) >= LOW_MOST) {
		close(fd);
		return NULL;
	}
	share = fcntl(fd, F_RESERV_BIND, 0) == 1 ? share_add(name, length, NULL) : NULL;
	if (share)
		share->dir = fd;
	else
		close(fd);
	return share;
}

void unbind(void)
{
	struct share *from = bound;

	if (!from)
		return;
	bound = NULL;
	/* EINVAL: of this mount nothing is left, so no binding is either. */
	if (fcntl(from->dir, F_RESERV_UNBIND, 0) != 1 && errno == EACCES && saying(from->known, SAID_STAYS))
		say("container %s: a worker stays in it when its request ends, for its user may not use the queue in "
		    "which FPM was started",
		    from->name);
}

int bind_to(const char *name, size_t length)
{
	struct share *share = zend_hash_str_find_ptr(&shares, name, length);
	int error = ENOENT;

	unbind();
	if (!share)
		share = found_later(name, length);
	if (!share) {
		if (saying(&common->unnamed, SAID_REFUSED))
			say("container %.*s: reserv.containers does not name it, or there is no such container; its "
			    "requests, and those for others of which that is so, run where FPM does",
			    (int)length, name);
		return ENOENT;
	}
	if (share->dir >= 0 && fcntl(share->dir, F_RESERV_BIND, 0) != 1)
		error = errno;
	else if (share->dir >= 0)
		error = 0;
	/* Of the other errors the descriptor is not the reason. */
	if ((error == ENOENT || error == ESTALE || error == EINVAL) && opened_again(share))
		error = 0;
	if (error) {
		if (saying(share->known, SAID_REFUSED) && may_say(share->known))
			say_refused(share, error);
		return error;
	}
	bound = share;
	if (share->known->said & SAID_REFUSED &&
	    __atomic_fetch_and(&share->known->said, ~(unsigned)SAID_REFUSED, __ATOMIC_RELAXED) & SAID_REFUSED &&
	    may_say(share->known))
		say("container %s is there again", share->name);
	/*
	 * It competes there from its next turn on (reserv(7)). Most requests are shorter than a turn, and
	 * would never do so: the turn in which they began ends here.
	 */
	sched_yield();
	return 0;
}

static struct share *share_known(const char *name, size_t length)
{
	uint32_t count = zend_hash_num_elements(&shares);

	return count < CONTAINERS_MOST ? share_add(name, length, &common->known[count]) : NULL;
}

/* Adds what is in the container `name`; more than there is room for is told. */
static void walk(const char *name, size_t name_length, int depth)
{
	struct share *outer = zend_hash_str_find_ptr(&shares, name, name_length);
	char path[2 * PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	if (depth > DEEPEST || (size_t)snprintf(path, sizeof(path), "%s%s", top, name) >= sizeof(path))
		return;
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		size_t length = (size_t)snprintf(path, sizeof(path), "%s/%s", name, entry->d_name);

		if (entry->d_type != DT_DIR || length >= sizeof(path) || !path_is_right(path, length))
			continue;
		if (outer)
			outer->holds = 1;
		if (!zend_hash_str_exists(&shares, path, length) && !share_known(path, length)) {
			say("%s has more containers than %d: %s and others are not used", name, CONTAINERS_MOST, path);
			break;
		}
		walk(path, length, depth + 1);
	}
	if (dir)
		closedir(dir);
}

/* Reads the setting: words between blanks or commas. */
static void read_list(const char *list)
{
	const char *at = list, *name;
	struct root *root;
	size_t word, length;

	for (; *at; at += word) {
		at += strspn(at, " \t\r\n,");
		word = length = strcspn(at, " \t\r\n,");
		if (!word)
			break;
		name = name_of(at, &length);
		root = name ? calloc(1, sizeof(*root) + length + 1) : NULL;
		if (!root) {
			say("invalid word \"%.*s\" in reserv.containers, it is no path of a container; one is like "
			    "web/site1 or %sweb/site1",
			    (int)word, at, top);
			continue;
		}
		root->length = length;
		memcpy(root->name, name, length);
		root->next = roots;
		roots = root;
	}
}

/* Lets the process have so many descriptors from HIGH on, and some for later; says whether it may. */
static int room_above(uint32_t count)
{
	rlim_t most = HIGH + (rlim_t)count + LOW_MOST;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 0;
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= most)
		return 1;
	if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < most)
		return 0;
	limit.rlim_cur = most;
	return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* Opens one, and tries it. 0 or an errno. */
static int open_share(struct share *share)
{
	int fd = open_dir(share->name);

	if (fd < 0)
		return errno;
	share->dir = moved_up(fd);
	if (fcntl(share->dir, F_RESERV_BIND, 0) != 1)
		return errno;
	fcntl(share->dir, F_RESERV_UNBIND, 0);
	return 0;
}

int shares_open(const char *list)
{
	int error, there = access(top_of_names(), F_OK) == 0, above;
	uint32_t opened = 0, refused = 0;
	struct share *share;
	struct root *root;

	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (common == MAP_FAILED)
		return errno;
	opening = memfd_create("reserv", MFD_CLOEXEC);
	zend_hash_init(&shares, 8, NULL, forget, 1);
	read_list(list);
	if (!there)
		common->unnamed.said = SAID_REFUSED;
	if (roots && !there)
		say("there is no %.*s: all requests run where FPM does", (int)strlen(top) - 1, top);
	for (root = roots; root; root = root->next) {
		if (!zend_hash_str_exists(&shares, root->name, root->length))
			share_known(root->name, root->length);
		if (there)
			walk(root->name, root->length, 0);
	}
	above = room_above(zend_hash_num_elements(&shares));
	ZEND_HASH_FOREACH_PTR(&shares, share) {
		if (!above && opened >= LOW_MOST) {
			say("a process may have too few descriptors (RLIMIT_NOFILE) for more than %d of %u containers; "
			    "requests of the others run where FPM does",
			    LOW_MOST, zend_hash_num_elements(&shares));
			break;
		}
		error = open_share(share);
		opened += share->dir >= 0;
		/* One that holds containers is none to serve requests in. */
		if (!error || (error == EINVAL && share->holds))
			continue;
		saying(share->known, SAID_REFUSED);
		if (there && refused++ < LINES_A_MINUTE)
			say_refused(share, error);
	} ZEND_HASH_FOREACH_END();
	if (refused > LINES_A_MINUTE)
		say("so it is with %u other containers", refused - LINES_A_MINUTE);
	return 0;
}

void shares_close(void)
{
	struct root *next;

	if (!common)
		return;
	zend_hash_destroy(&shares);
	for (; roots; roots = next) {
		next = roots->next;
		free(roots);
	}
	if (opening >= 0)
		close(opening);
	munmap(common, sizeof(*common));
	common = NULL;
	opening = -1;
}
