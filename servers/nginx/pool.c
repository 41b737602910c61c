/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads of a pool (`aio threads`) work for a request: they read its file, or send it by sendfile.
 * Each is bound to the request's container for as long as it does that.
 *
 * nginx has no hook for it either. But the copy filter gives each file a function that posts tasks
 * to the pool. `post` stands in its place: it notes in the task whose it is and what the thread is
 * to do, and has the thread begin with `in_pool`.
 *
 * A module of its own, for its filter must be the next one behind the copy filter. What that reads
 * before it lets the first piece of an answer go on (without sendfile: one buffer) has been posted
 * by then, and is where the server is. So is what is posted elsewhere: caches' files, answers of
 * upstreams that are kept in files.
 */
#include "reserv_module.h"

#include <reserv.h>

#if (NGX_THREADS)

/* Things that a thread of a pool can be told to do: nginx's are reading, and sending. */
#define KINDS 4

typedef void (*does)(void *data, ngx_log_t *log);

static ngx_http_output_body_filter_pt next_body_filter;
static ngx_int_t (*copy_posts)(ngx_thread_task_t *task, ngx_file_t *file);
/* Written by the worker before a task of that kind is posted, which takes the pool's lock. */
static does kinds[KINDS];

/* In a thread of the pool. */
static void in_pool(void *data, ngx_log_t *log)
{
	/* ngx_thread_task_alloc() puts them together, and `post` has looked. */
	ngx_thread_task_t *task = (ngx_thread_task_t *)data - 1;
	int dir = (int)(task->event.index / KINDS) - 1;
	int is_bound = dir >= 0 && fcntl(dir, F_RESERV_BIND, 0) == 1;

	kinds[task->event.index % KINDS](data, log);
	if (is_bound)
		fcntl(dir, F_RESERV_UNBIND, 0);
}

static int kind_of(ngx_thread_task_t *task)
{
	int kind;

	/* A connection keeps the task that sends, and its handler. */
	if (task->handler == in_pool)
		return (int)(task->event.index % KINDS);
	for (kind = 0; kind < KINDS; kind++) {
		if (!kinds[kind])
			kinds[kind] = task->handler;
		if (kinds[kind] == task->handler)
			return kind;
	}
	return -1;
}

/* As the copy filter posts it. The event's `index` is for who waits by select() or poll() alone. */
static ngx_int_t post(ngx_thread_task_t *task, ngx_file_t *file)
{
	struct work *work = work_of(file->thread_ctx);
	int kind, dir = -1;

	/* It is posted and not done yet: nginx refuses it, or waits. */
	if (task->event.active || task->ctx != task + 1 || (kind = kind_of(task)) < 0)
		return copy_posts(task, file);
	if (work && work->share && !work->refused)
		dir = __atomic_load_n(&work->share->dir, __ATOMIC_ACQUIRE);
	task->event.index = (ngx_uint_t)(dir + 1) * KINDS + (ngx_uint_t)kind;
	task->handler = in_pool;
	return copy_posts(task, file);
}

static ngx_int_t body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
	ngx_output_chain_ctx_t *copy = ngx_http_get_module_ctx(r, ngx_http_copy_filter_module);
	ngx_chain_t *piece;

	if (settings && copy && copy->thread_handler) {
		if (!copy_posts)
			copy_posts = copy->thread_handler;
		if (copy->thread_handler == copy_posts)
			copy->thread_handler = post;
		for (piece = in; piece; piece = piece->next)
			if (piece->buf->in_file && piece->buf->file->thread_handler == copy_posts)
				piece->buf->file->thread_handler = post;
	}
	return next_body_filter(r, in);
}

static ngx_int_t after_configuration(ngx_conf_t *cf)
{
	struct settings *all = ngx_http_conf_get_module_main_conf(cf, ngx_http_reserv_module);

	if (!all->count && !all->roots)
		return NGX_OK;
	next_body_filter = ngx_http_top_body_filter;
	ngx_http_top_body_filter = body_filter;
	return NGX_OK;
}

#else

static ngx_int_t after_configuration(ngx_conf_t *cf)
{
	(void)cf;
	return NGX_OK;
}

#endif

static ngx_http_module_t context = { NULL, after_configuration, NULL, NULL, NULL, NULL, NULL, NULL };

ngx_module_t ngx_http_reserv_pool_module = {
	NGX_MODULE_V1, &context, NULL, NGX_HTTP_MODULE, NULL, NULL, NULL,
	NULL,	       NULL,	 NULL, NULL,		NGX_MODULE_V1_PADDING,
};
