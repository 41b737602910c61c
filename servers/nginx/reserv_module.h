/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of nginx's module know of each other. docs/nginx.md is for who uses it. */
#ifndef RESERV_MODULE_H
#define RESERV_MODULE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

/* What all workers know of a container, in memory that they share. */
struct known {
	ngx_atomic_t said; /* what has been said of it, so that it is said once */
	ngx_atomic_t lines, minute; /* how much has been said of it, in this minute */
	ngx_atomic_t start; /* where its next piece of work begins, in virtual time */
	ngx_atomic_t served_ms; /* when it was served last; 0: never */
};

/* The same of all containers. It is written without locks: what is wrong for a moment costs a moment. */
struct common {
	ngx_atomic_t reached; /* virtual time: where the last piece of work began */
	/* The two containers that were served last, and when. */
	struct known *recent, *other;
	ngx_atomic_t recent_ms, other_ms;
	struct known known[];
};

/* A container. Lives as long as the configuration. */
struct share {
	ngx_str_node_t node; /* its name, like web/site1, in `shares` */
	const char *path; /* of its directory */
	int dir; /* a descriptor of it; -1: not open. Each process has its own */
	int stale; /* the descriptor, if there is one, can serve no more: the helper opens another */
	struct known *known;
	uint32_t weight; /* millionths of the CPU that it has when all want some; 0: not known */
	struct share *next; /* all of them */
	/* Of a worker, events.c. */
	ngx_queue_t ready; /* events that wait for its turn in this worker */
	struct share *also; /* the next one that has such */
	unsigned waits : 1; /* it is in that list */
	ngx_msec_t since; /* when the first of them began to wait */
};

enum { SAID_REFUSED = 1, SAID_STAYS = 2 };

/* A container below which variables may name others. */
struct root {
	struct root *next;
	size_t length;
	char name[];
};

/*
 * What the http block says. It and what it refers to is of malloc's memory: the helper's thread reads
 * it while a worker ends, and a thread that waits for reservd cannot be ended before.
 */
struct settings {
	ngx_rbtree_t shares;
	ngx_rbtree_node_t none;
	struct share *first;
	ngx_uint_t count;
	struct root *roots;
	char *top; /* "/reserv/container/" */
	struct common *common;
	char *mount; /* "/reserv" */
	ngx_uint_t counted; /* somebody reads $reserv_cpu_us */
};

/* What a location says. */
struct place {
	ngx_flag_t enabled;
	ngx_int_t status; /* 0: the request is served all the same */
	struct share *share; /* where the value is a constant */
	ngx_http_complex_value_t *value; /* where it has variables */
	unsigned own : 1; /* it stands in this very section */
};

/* A request that is served, with all its subrequests and internal redirects. */
struct work {
	ngx_http_request_t *request;
	struct share *share;
	int refused; /* errno of the binding, or 0 */
	unsigned waited : 1; /* it has had its container's turn in this worker */
	uint64_t cpu_ns; /* of the worker while it worked for it */
};

/* The names that others see: nginx loads modules into one space of names. */
extern ngx_module_t ngx_http_reserv_module, ngx_http_reserv_pool_module;
extern ngx_module_t ngx_http_copy_filter_module; /* nginx's */
#pragma GCC visibility push(hidden)

/* conf.c */
extern ngx_command_t reserv_commands[];
void *settings_create(ngx_conf_t *cf);
void *place_create(ngx_conf_t *cf);
char *place_merge(ngx_conf_t *cf, void *outer, void *inner);
/* The container of a name that a request gave, or NULL. */
struct share *share_named(struct settings *settings, ngx_str_t *name);
/* Makes one; the name is right, and no other has it. */
struct share *share_make(struct settings *settings, const char *name, size_t length);
void share_add(struct settings *settings, struct share *share);
int name_is_right(const u_char *name, size_t length);

/* bind.c: what the worker's thread is bound to. */
extern struct settings *settings; /* of this worker */
extern struct share *bound;
/* Opens all of them, as root, before workers start, and says what will not work. */
ngx_int_t shares_open(struct settings *all, ngx_cycle_t *cycle);
/* 0 or the errno of the binding; then the thread is bound to none. NULL: to none. */
int bind_to(struct share *share);
int share_open(struct share *share);
/* One that was open before gets another; the former stays where the new one is no right to bind. */
void share_open_again(struct share *share);
uint64_t cpu_ns(void);

/* events.c: whose each event of the loop is. */
ngx_int_t events_begin(ngx_cycle_t *cycle);
/* What runs now is for `work` (NULL: for none of the requests), and for its container. */
int work_for(struct work *work);
/* What has been counted for it so far. */
uint64_t work_ns(struct work *work);
void work_ends(struct work *work);
/* What a handler of a request tells about its connections. */
void events_learn(ngx_http_request_t *r, struct share *share);
/* The connection is `share`'s until a request says more. */
void connection_is(ngx_connection_t *c, struct share *share);
/* Whether another container has work here now, so that this one must wait for its turn. */
int must_wait(struct share *share);
void wait_for_turn(struct share *share, ngx_event_t *event);

#if (NGX_HTTP_V3)
/* What listeners for QUIC have as the handler of a new connection. */
void quic_begins(ngx_connection_t *c);
/* This handler of the event's, which another handler calls: what it takes counts in the order of its
 * container. */
void run_at_once(ngx_event_t *event, ngx_event_handler_pt handler);

/* quic.c: whose a connection of QUIC works for. */
struct quic; /* what is known of one; lives as long as it */
/* Whether it has no streams yet, so that `data` is what it is for a connection of TCP. */
int quic_is_new(ngx_connection_t *c);
/* From here on what arrives is its streams'. */
void quic_listen(ngx_connection_t *c);
/* A stream's request is `share`'s. */
void quic_learn(struct quic **at, ngx_http_request_t *r, struct share *share);
/* Whether the event is one of the connection's own besides reading. */
int quic_has(ngx_connection_t *c, ngx_event_t *event);
/* Whether it is known whose the event is; and its stream, if that has not ended. `mixed`: the
 * connection has had requests of several containers. */
int quic_next(struct quic *quic, ngx_connection_t *c, ngx_event_t *event, int mixed,
	      struct share **share, ngx_connection_t **stream);
/* The event's handler runs now, for whom quic_next() has said. */
void quic_pays(struct quic *quic, ngx_connection_t *c, ngx_event_t *event);
#endif

/* http.c */
struct work *work_of(ngx_http_request_t *r);
/* Whose a connection is that came to this port, and to no other site; NULL: nobody's. */
struct share *share_of_listener(ngx_listening_t *listening);

/* helper.c: a thread that opens files of /reserv, for that waits for reservd. */
enum { ASK_KNOWN = 1, ASK_NAMES = 2 };
void helper_ask(int what);
/* Whether there is one in this process. */
int helper_works(void);
/* What it has found since: containers that are new. Takes no time. */
void helper_take(void);
uint32_t weight_read(const char *mount, ngx_str_t *name);

#pragma GCC visibility pop
#endif
