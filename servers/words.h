/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the servers' modules know and say alike. WHOSE_USER: how the log calls the user by whose
 * rights requests are served, as in "the server's user".
 */
#ifndef RESERV_SERVERS_WORDS_H
#define RESERV_SERVERS_WORDS_H

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* reserv(7): what names are made of, and how long they are. */
#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define NAME_LONGEST 64
#define PATH_LONGEST 2048

/* Whether these bytes are the path of a container, like web/site1. */
static inline int path_is_right(const char *path, size_t length)
{
	const char *at = path, *end = path + length, *begin;

	if (!length || length > PATH_LONGEST)
		return 0;
	for (;; at++) {
		for (begin = at; at < end && *at && strchr(NAME_BYTES, *at); at++)
			;
		if (at == begin || *begin == '.' || at - begin > NAME_LONGEST)
			return 0;
		if (at == end)
			return 1;
		if (*at != '/')
			return 0;
	}
}

#ifdef WHOSE_USER
/* Why a thread was not bound to a container. */
static inline const char *in_words(int error)
{
	switch (error) {
	case ENOENT:
		return "there is no such container";
	case ESTALE:
		return "it is gone";
	case EINVAL:
		return "it holds no threads, or " WHOSE_USER " may only look at it, or the driver of the "
		       "CPU binds no threads";
	case EACCES:
		return WHOSE_USER " has no right to use it";
	case EAGAIN:
		return "it takes no more threads";
	case ENOTCONN:
		return "reservd does not run";
	default:
		return strerror(error);
	}
}
#endif

#endif
