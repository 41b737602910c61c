/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the servers' modules say alike. WHOSE_USER: how the log calls the user by whose rights
 * requests are served, as in "the server's user".
 */
#ifndef RESERV_SERVERS_WORDS_H
#define RESERV_SERVERS_WORDS_H

#include <errno.h>
#include <string.h>

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
