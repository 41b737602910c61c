/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread beside the worker's own, which opens and reads files of /reserv: that waits for reservd,
 * and an event loop must not. It is made when a container is not there or when containers compete,
 * so most workers never have one. It looks at most once a second, with the rights of the workers'
 * user, at all containers at once: what clients ask for cannot keep it from any of them.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include "reserv_module.h"

#include <reserv.h>

#define FOUND_MOST 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked_now = PTHREAD_COND_INITIALIZER;
static int asked, begun;
/* A list that the helper adds to and the worker takes whole. */
static struct share *found;
static unsigned found_ever;

uint32_t weight_read(const char *mount, ngx_str_t *name)
{
	static const char word[] = "weight_share_ppm ";
	char path[NGX_MAX_PATH], text[8192], *at;
	ssize_t length;
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/cpu/%.*s/stat", mount, (int)name->len, name->data) >= sizeof(path))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	at = strstr(text, word);
	return at ? (uint32_t)strtoul(at + sizeof(word) - 1, NULL, 10) : 0;
}

static int is_known(struct share *list, const char *name)
{
	for (; list; list = list->next)
		if (!strcmp((const char *)list->node.str.data, name))
			return 1;
	return 0;
}

/* Containers that have come since the start. Their memory is for good: there are FOUND_MOST. */
static void look_in(const char *name, int depth)
{
	char path[NGX_MAX_PATH];
	struct dirent *entry;
	DIR *dir;

	if (depth > 16 || (size_t)snprintf(path, sizeof(path), "%s%s", settings->top, name) >= sizeof(path))
		return;
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		int length = snprintf(path, sizeof(path), "%s/%s", name, entry->d_name);
		struct share *share;

		if (entry->d_type != DT_DIR || (size_t)length >= sizeof(path) ||
		    !name_is_right((u_char *)path, (size_t)length))
			continue;
		if (!is_known(__atomic_load_n(&settings->first, __ATOMIC_ACQUIRE), path) &&
		    !is_known(__atomic_load_n(&found, __ATOMIC_ACQUIRE), path) && found_ever < FOUND_MOST) {
			share = share_make(settings, path, (size_t)length);
			if (share && share_open(share) == 0) {
				found_ever++;
				share->weight = weight_read(settings->mount, &share->node.str);
				share->next = __atomic_load_n(&found, __ATOMIC_RELAXED);
				while (!__atomic_compare_exchange_n(&found, &share->next, share, 0, __ATOMIC_RELEASE,
								    __ATOMIC_RELAXED))
					;
			} else if (share) {
				free(share);
			}
		}
		look_in(path, depth + 1);
	}
	if (dir)
		closedir(dir);
}

static void look(int for_what)
{
	struct share *share;
	struct root *root;
	uint32_t weight;

	for (share = __atomic_load_n(&settings->first, __ATOMIC_ACQUIRE); share; share = share->next) {
		if (__atomic_load_n(&share->stale, __ATOMIC_RELAXED))
			share_open_again(share);
		if (!share->known->served_ms)
			continue;
		weight = weight_read(settings->mount, &share->node.str);
		if (weight)
			__atomic_store_n(&share->weight, weight, __ATOMIC_RELAXED);
	}
	for (root = for_what & ASK_NAMES ? settings->roots : NULL; root; root = root->next)
		look_in(root->name, 0);
}

static void *helper(void *unused)
{
	struct timespec second = { 1, 0 };
	struct share *any;
	int for_what;

	(void)unused;
	/* A thread that was made by one that was bound is bound too. */
	for (any = settings->first; any; any = any->next)
		if (any->dir >= 0) {
			fcntl(any->dir, F_RESERV_UNBIND, 0);
			break;
		}
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!asked)
			pthread_cond_wait(&asked_now, &lock);
		for_what = asked;
		asked = 0;
		pthread_mutex_unlock(&lock);
		look(for_what);
		nanosleep(&second, NULL);
	}
	return NULL;
}

int helper_works(void)
{
	return begun;
}

void helper_ask(int what)
{
	sigset_t all, before;
	pthread_t thread;
	Dl_info self;

	if ((__atomic_load_n(&asked, __ATOMIC_RELAXED) & what) == what)
		return;
	if (!begun) {
		begun = 1;
		/* A worker that ends unloads its modules, below the thread that runs in this one. */
		if (!dladdr((void *)&begun, &self) || !dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE))
			return;
		/* Signals are for the worker's thread. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		if (pthread_create(&thread, NULL, helper, NULL) == 0)
			pthread_detach(thread);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	pthread_mutex_lock(&lock);
	asked |= what;
	pthread_cond_signal(&asked_now);
	pthread_mutex_unlock(&lock);
}

void helper_take(void)
{
	struct share *share, *next;

	if (!__atomic_load_n(&found, __ATOMIC_RELAXED))
		return;
	for (share = __atomic_exchange_n(&found, NULL, __ATOMIC_ACQUIRE); share; share = next) {
		next = share->next;
		if (share_named(settings, &share->node.str)) {
			/* Found twice, between the exchange and the adding. The helper may be reading its name. */
			close(share->dir);
			continue;
		}
		ngx_queue_init(&share->ready);
		share_add(settings, share);
	}
}
