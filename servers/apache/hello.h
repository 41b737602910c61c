/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The name that a TLS client asks for, in its first message (RFC 8446 4.1.2, RFC 6066 3). Anybody
 * may send anything: nothing is read past what came. fuzz/src/hello.c compares it with a naive one.
 */
#ifndef MOD_RESERV_HELLO_H
#define MOD_RESERV_HELLO_H

#include <string.h>

/* A place in a message; what is read past its end makes `short_` 1 and gives 0. */
struct reader {
	const unsigned char *at, *end;
	int short_;
};

static size_t number(struct reader *from, int bytes)
{
	size_t value = 0;

	if (from->end - from->at < bytes) {
		from->at = from->end;
		from->short_ = 1;
		return 0;
	}
	while (bytes--)
		value = value << 8 | *from->at++;
	return value;
}

/* What follows, with its length in so many bytes before it. */
static struct reader part(struct reader *from, int bytes)
{
	size_t length = number(from, bytes);
	struct reader inner = { from->at, from->at, from->short_ };

	if ((size_t)(from->end - from->at) < length) {
		from->short_ = inner.short_ = 1;
		length = (size_t)(from->end - from->at);
	}
	inner.end = from->at = from->at + length;
	return inner;
}

/*
 * The name in what a client has sent so far. 1: it is in `name`; 0: more has to come; -1: there is
 * none, or this is no TLS. A message that is spread over several records is not put together.
 */
static int name_in(const unsigned char *bytes, size_t length, char *name, size_t size)
{
	struct reader all = { bytes, bytes + length, 0 }, record, hello, extensions, extension, names, host;
	size_t kind;

	if (length && bytes[0] != 22) /* handshake */
		return -1;
	number(&all, 3);
	record = part(&all, 2);
	if (all.short_)
		return 0;
	if (number(&record, 1) != 1) /* client_hello */
		return -1;
	hello = part(&record, 3);
	number(&hello, 2); /* version */
	hello.at += hello.end - hello.at < 32 ? hello.end - hello.at : 32; /* random */
	part(&hello, 1); /* session */
	part(&hello, 2); /* ciphers */
	part(&hello, 1); /* compressions */
	extensions = part(&hello, 2);
	while (extensions.at < extensions.end) {
		kind = number(&extensions, 2);
		extension = part(&extensions, 2);
		if (kind != 0 || extensions.short_) /* server_name */
			continue;
		names = part(&extension, 2);
		if (number(&names, 1) != 0) /* host_name */
			return -1;
		host = part(&names, 2);
		length = (size_t)(host.end - host.at);
		if (host.short_ || !length || length >= size || memchr(host.at, 0, length))
			return -1;
		memcpy(name, host.at, length);
		name[length] = '\0';
		return 1;
	}
	return -1;
}

#endif
