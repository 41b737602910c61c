/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of mod_reserv know of each other. docs/apache.md is for who uses it. */
#ifndef MOD_RESERV_H
#define MOD_RESERV_H

#include <stdint.h>

#include "httpd.h"
#include "http_config.h"

/* A container that the configuration names: one for each path. Lives as long as the configuration. */
struct share {
	const char *name; /* like web/site1 */
	const char *path; /* of the container's directory */
	int index;
	int dir, members; /* descriptors of both; -1: not open. Each process has its own. */
	apr_time_t again; /* when a process may next try to open them */
};

/* What a request's work has been so far. Kept with the first of a chain of internal redirects. */
struct work {
	struct share *share;
	int refused; /* errno of the binding, or 0 */
	uint64_t cpu_ns; /* of threads while they worked for it */
};

/* Of a connection. */
struct visit {
	struct share *share; /* whose it is before a request has said more; NULL: the server's */
	struct work *unfinished; /* of the last request that is not logged yet */
	struct hello *hello; /* sni.c */
};

/* The one name that others see: Apache loads modules into one space of names. */
extern module AP_MODULE_DECLARE_DATA reserv_module __attribute__((visibility("default")));

/* bind.c */

/*
 * What the calling thread works for. A binding of the kernel's belongs to a thread, so this does;
 * it is 0 in a thread that Apache makes, and in a process where the module was loaded anew.
 */
struct self {
	struct share *bound;
	struct work *work; /* counts in cpu_ns since from_ns */
	conn_rec *inside; /* whose process_connection runs in this thread */
	uint64_t from_ns;
	apr_time_t asked; /* when it was last asked whether it still is; work_again() */
	int again; /* it is to be asked at the next binding */
	int begun;
};
extern __thread struct self self;

/*
 * Opens all of them, as root, before the server's processes start, and says what will not work.
 * `top` is where containers are. 0, or an errno with which the server cannot start.
 */
int shares_open(apr_pool_t *pconf, server_rec *server, struct share **all, int count, const char *top);
/*
 * The calling thread works for `share` (NULL: for none) from here on, and its time is counted in
 * `work` (NULL: nowhere). 0 or the errno of the binding; then it works for none.
 */
int work_for(struct share *share, struct work *work);
/* Ends the counting, and leaves the binding. */
void work_counted(void);
/* The calling thread has nothing to do, and no connection. */
void work_over(void);
/* A request begins: where threads stay bound, it is time once a second to be bound anew. */
void work_again(apr_time_t now);
/* Has children of this process bound as the thread that forks them; once. */
void children_inherit(void);
/* mod_cgid's daemon: the next child is bound to it. */
void next_child(struct share *share);

/* sni.c */
void hello_register(void);
/* Looks for the name in the first bytes that the connection's client sends. */
void hello_listen(conn_rec *c, struct visit *visit);

/* mod_reserv.c */
/* Whose a connection is which asks for this server and no more is known of it; NULL: nobody's. */
struct share *share_of_server(server_rec *server, conn_rec *c);

#endif
