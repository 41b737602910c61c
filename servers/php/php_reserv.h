/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of PHP's extension know of each other. docs/servers.md is for who uses it. */
#ifndef PHP_RESERV_H
#define PHP_RESERV_H

#include <stddef.h>

/* PHP's build gives it; HAVE_CONFIG_H says that there is one. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "php.h"

/* Words for the log: PHP's error_log, else FPM's or the web server's. */
void say(const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 1, 2);

/* Whether no worker has said this before; FPM's parent always may. */
enum { WRONG_CONTAINERS = 1, WRONG_CONTAINER = 2, WRONG_CODE = 4 };
int first_time(unsigned what);

/* bind.c: what the worker's thread is bound to. */
/* In FPM's parent, as root: opens all that `list` names, and says what will not work. */
int shares_open(const char *list);
void shares_close(void);
/* 0 or the errno of the binding; then the thread is bound to none. */
int bind_to(const char *name, size_t length);
void unbind(void);
/* A name without the mount point before it, and its length; NULL: it is no path of a container. */
const char *name_of(const char *text, size_t *length);
/* "/reserv/container/" */
const char *top_of_names(void);

#endif
