/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Whose a TLS connection is, before its handshake is computed: the client's first message has the
 * name that it asks for, in clear (RFC 8446 4.1.2, RFC 6066 3). mod_ssl has no hook between that
 * message and the expensive part of its answer, so a filter below it reads along.
 *
 * What the filter cannot read, for whatever reason, is mod_ssl's matter: nothing is refused here. It
 * keeps at most HELLO_MAX bytes, and none once the message is whole.
 */
#include "httpd.h"
#include "http_config.h"
#include "apr_strings.h"
#include "http_connection.h"
#include "http_vhost.h"
#include "util_filter.h"

#include "mod_reserv.h"
#include "hello.h"

#define FILTER "RESERV_SNI"
#define HELLO_MAX 16384

struct hello {
	size_t length, room;
	unsigned char *bytes;
};

static int is_named(void *name, conn_rec *c, server_rec *server)
{
	apr_array_header_t *lists[] = { server->names, server->wild_names };
	int i, k;

	(void)c;
	if (server->server_hostname && !ap_cstr_casecmp(server->server_hostname, name))
		return 1;
	for (k = 0; k < 2; k++)
		for (i = 0; lists[k] && i < lists[k]->nelts; i++)
			if (!ap_strcasecmp_match(name, APR_ARRAY_IDX(lists[k], i, char *)))
				return 1;
	return 0;
}

/* ap_vhost_iterate_given_conn ends at the first that fits; this keeps which. */
struct search {
	char name[256];
	server_rec *found;
};

static int is_searched(void *search_, conn_rec *c, server_rec *server)
{
	struct search *search = search_;

	if (!is_named(search->name, c, server))
		return 0;
	search->found = server;
	return 1;
}

/* Adds what has come. 0: it is too much, or cannot be read. */
static int heard(struct hello *hello, apr_pool_t *pool, apr_bucket *bucket)
{
	const char *data;
	apr_size_t length;

	if (apr_bucket_read(bucket, &data, &length, APR_NONBLOCK_READ) != APR_SUCCESS ||
	    hello->length + length > HELLO_MAX)
		return 0;
	if (hello->length + length > hello->room) {
		unsigned char *more = apr_palloc(pool, hello->room = 2 * (hello->length + length) + 512);

		if (hello->length)
			memcpy(more, hello->bytes, hello->length);
		hello->bytes = more;
	}
	memcpy(hello->bytes + hello->length, data, length);
	hello->length += length;
	return 1;
}

static apr_status_t listen_in(ap_filter_t *filter, apr_bucket_brigade *brigade, ap_input_mode_t mode,
			      apr_read_type_e block, apr_off_t most)
{
	struct visit *visit = filter->ctx;
	struct hello *hello = visit->hello;
	conn_rec *c = filter->c;
	struct search search = { { 0 }, NULL };
	apr_status_t status = ap_get_brigade(filter->next, brigade, mode, block, most);
	apr_bucket *bucket;
	int found = 0;

	if (status != APR_SUCCESS || (mode != AP_MODE_READBYTES && mode != AP_MODE_GETLINE))
		return status;
	for (bucket = APR_BRIGADE_FIRST(brigade); bucket != APR_BRIGADE_SENTINEL(brigade) && !found;
	     bucket = APR_BUCKET_NEXT(bucket)) {
		if (APR_BUCKET_IS_METADATA(bucket))
			continue;
		found = -1;
		if (heard(hello, c->pool, bucket))
			found = name_in(hello->bytes, hello->length, search.name, sizeof(search.name));
	}
	if (found)
		ap_remove_input_filter(filter);
	if (found > 0 && ap_vhost_iterate_given_conn(c, is_searched, &search) && search.found) {
		visit->share = share_of_server(search.found, c);
		if (self.inside == c)
			work_for(visit->share, NULL);
	}
	return status;
}

void hello_listen(conn_rec *c, struct visit *visit)
{
	if (!ap_find_linked_module("mod_ssl.c"))
		return;
	visit->hello = apr_pcalloc(c->pool, sizeof(*visit->hello));
	ap_add_input_filter(FILTER, visit, NULL, c);
}

void hello_register(void)
{
	/* The one above the network's own: what comes here is as the client sent it. */
	ap_register_input_filter(FILTER, listen_in, NULL, (ap_filter_type)(AP_FTYPE_NETWORK - 1));
}
