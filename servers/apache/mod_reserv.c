/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * mod_reserv: Apache serves each request in the container of its site, virtual host, Location or
 * client. docs/apache.md says how it is used, and what is charged to whom.
 *
 * The idea is mod_eclipsebsd's (Blanquer, Bruno, Gabber, McShea, Ozden and Silberschatz, "Resource
 * management for QoS in Eclipse/BSD", FreeBSD Con '99, 3.1), and that of a thread that is bound anew for
 * each request (Banga, Druschel and Mogul, "Resource Containers", OSDI '99, 4.8).
 *
 * Rules, in the order in which they apply:
 *  1. A thread is bound only while it runs process_connection of some connection, or finishes the
 *     output of a request that is not logged yet. So one that waits for work is bound to none, but
 *     where there is one container for all (bind.c).
 *  2. A connection is the container's which ReservClient names for the client; else that of the site
 *     to which its address and port belong alone; else, over TLS, that of the site that the client
 *     names first (SNI, sni.c).
 *  3. A request is its own container's from the Host header on, and from the Location on.
 *     Subrequests and internal redirects stay in it.
 *  4. When it is logged, the thread goes back to what the connection is.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "httpd.h"
#include "http_config.h"
#include "apr_lib.h"
#include "apr_strings.h"
#include "http_connection.h"
#include "http_core.h"
#include "http_protocol.h"
#include "http_request.h"
#include "http_vhost.h"
#include "mpm_common.h"
#include "unixd.h"

#include "mod_reserv.h"

#include "../words.h"

#define TIME_NOTE "reserv_cpu_us"

/* A line ReservClient. */
struct client {
	apr_ipsubnet_t *net;
	int bits;
	struct share *share;
};

/* What one section of the configuration says of whose it is. */
struct section {
	struct share *share;
	apr_array_header_t *clients; /* struct client */
};

struct config {
	int engine; /* -1: not said */
	int error_code; /* 0: not said; -1: Off */
	apr_array_header_t *sections; /* struct section *, the innermost first */
};

/* All that the configuration names. */
static apr_array_header_t *shares;
/* Where containers are: "/reserv/container/". */
static const char *top;
/* Whether some directive mentions the note with the time: else nobody reads that clock. */
static int counted;
/* mod_cgid's, where it is loaded. */
static module *cgid;

/* --- configuration --- */

static void *config_create(apr_pool_t *p, char *dir)
{
	struct config *config = apr_pcalloc(p, sizeof(*config));
	struct section *own = apr_pcalloc(p, sizeof(*own));

	(void)dir;
	own->clients = apr_array_make(p, 0, sizeof(struct client));
	config->engine = -1;
	config->sections = apr_array_make(p, 1, sizeof(own));
	APR_ARRAY_PUSH(config->sections, struct section *) = own;
	return config;
}

static void *config_merge(apr_pool_t *p, void *outer_, void *inner_)
{
	struct config *merged = apr_palloc(p, sizeof(*merged)), *outer = outer_, *inner = inner_;

	merged->engine = inner->engine >= 0 ? inner->engine : outer->engine;
	merged->error_code = inner->error_code ? inner->error_code : outer->error_code;
	merged->sections = apr_array_append(p, inner->sections, outer->sections);
	return merged;
}

/*
 * The container of a path: "web/site1", or with the mount point and "container" before it. An error
 * in words otherwise. Whether it is there is seen when the server starts.
 */
static const char *share_named(cmd_parms *cmd, const char *name, struct share **found)
{
	const char *path = *name == '/' ? name : apr_pstrcat(cmd->pool, top, name, NULL), *inner = path + strlen(top);
	struct share *share;
	int i;

	/* The whole is at most what bind.c has room for. */
	if (strncmp(path, top, strlen(top)) || !path_is_right(inner, strlen(inner)) || strlen(path) > PATH_LONGEST)
		return apr_psprintf(cmd->pool,
				    "%s: '%s' is no path of a container; one is like web/site1 or %sweb/site1",
				    cmd->cmd->name, name, top);
	for (i = 0; i < shares->nelts; i++) {
		*found = APR_ARRAY_IDX(shares, i, struct share *);
		if (strcmp((*found)->path, path) == 0)
			return NULL;
	}
	*found = share = apr_pcalloc(shares->pool, sizeof(*share));
	share->path = apr_pstrdup(shares->pool, path);
	share->name = share->path + strlen(top);
	share->index = i;
	share->dir = share->members = -1;
	APR_ARRAY_PUSH(shares, struct share *) = share;
	return NULL;
}

static struct section *own_section(void *config)
{
	return APR_ARRAY_IDX(((struct config *)config)->sections, 0, struct section *);
}

static const char *set_engine(cmd_parms *cmd, void *config, const char *word)
{
	if (ap_cstr_casecmp(word, "On") && ap_cstr_casecmp(word, "Off"))
		return apr_psprintf(cmd->pool, "%s: '%s' is neither On nor Off", cmd->cmd->name, word);
	((struct config *)config)->engine = !ap_cstr_casecmp(word, "On");
	return NULL;
}

static const char *set_share(cmd_parms *cmd, void *config, const char *name)
{
	return share_named(cmd, name, &own_section(config)->share);
}

static const char *set_client(cmd_parms *cmd, void *config, const char *prefix, const char *name)
{
	struct client client = { 0 };
	char *address = apr_pstrdup(cmd->pool, prefix), *bits = strchr(address, '/'), *end = NULL;
	int family = strchr(address, ':') ? AF_INET6 : AF_INET, most = family == AF_INET ? 32 : 128;
	unsigned char bytes[16];
	const char *wrong;

	client.bits = most;
	if (bits) {
		*bits++ = '\0';
		client.bits = (int)strtol(bits, &end, 10);
	}
	/* apr_ipsubnet_create takes the beginning of an address too, and a netmask. */
	if (inet_pton(family, address, bytes) != 1 || (bits && (!apr_isdigit(*bits) || *end || client.bits > most)) ||
	    apr_ipsubnet_create(&client.net, address, bits, cmd->pool) != APR_SUCCESS)
		return apr_psprintf(cmd->pool,
				    "%s: '%s' is no address or prefix; one is like 10.1.0.0/16 or 2001:db8::/32",
				    cmd->cmd->name, prefix);
	wrong = share_named(cmd, name, &client.share);
	if (!wrong)
		APR_ARRAY_PUSH(own_section(config)->clients, struct client) = client;
	return wrong;
}

static const char *set_error_code(cmd_parms *cmd, void *config, const char *word)
{
	int code = -1;

	if (ap_cstr_casecmp(word, "Off")) {
		code = atoi(word);
		if (strlen(word) != 3 || strspn(word, "0123456789") != 3 || !ap_is_HTTP_ERROR(code))
			return apr_psprintf(cmd->pool, "%s: '%s' is neither Off nor a code from 400 to 599",
					    cmd->cmd->name, word);
	}
	((struct config *)config)->error_code = code;
	return NULL;
}

#define ANYWHERE (RSRC_CONF | ACCESS_CONF) /* but in .htaccess */

static const command_rec directives[] = {
	AP_INIT_TAKE1("ReservEngine", set_engine, NULL, ANYWHERE, "On: requests are served in containers"),
	AP_INIT_TAKE1("ReservShare", set_share, NULL, ANYWHERE, "the container of requests, like web/site1"),
	AP_INIT_TAKE2("ReservClient", set_client, NULL, ANYWHERE,
		      "a prefix of client addresses, and the container of what they ask for"),
	AP_INIT_TAKE1("ReservErrorCode", set_error_code, NULL, ANYWHERE,
		      "the answer's code where a container cannot be had; Off: the request is served"),
	{ NULL, { NULL }, NULL, 0, RAW_ARGS, NULL },
};

/* --- whose it is --- */

static struct config *config_of(ap_conf_vector_t *vector)
{
	return ap_get_module_config(vector, &reserv_module);
}

/* The longest prefix wins, of two that are equal the first. */
static struct share *share_of_client(const struct section *section, conn_rec *c)
{
	struct share *share = NULL;
	int i, bits = -1;

	for (i = 0; i < section->clients->nelts; i++) {
		const struct client *client = &APR_ARRAY_IDX(section->clients, i, struct client);

		if (client->bits > bits && apr_ipsubnet_test(client->net, c->client_addr)) {
			bits = client->bits;
			share = client->share;
		}
	}
	return share;
}

/* The innermost section that says something wins; in it the client does. */
static struct share *share_of(const struct config *config, conn_rec *c, int clients_only)
{
	int i;

	if (config->engine != 1)
		return NULL;
	for (i = 0; i < config->sections->nelts; i++) {
		const struct section *section = APR_ARRAY_IDX(config->sections, i, struct section *);
		struct share *share = share_of_client(section, c);

		if (!share && !clients_only)
			share = section->share;
		if (share)
			return share;
	}
	return NULL;
}

struct share *share_of_server(server_rec *server, conn_rec *c)
{
	return share_of(config_of(server->lookup_defaults), c, 0);
}

static int another(void *first, conn_rec *c, server_rec *server)
{
	(void)c;
	return server != first;
}

static struct visit *visit_of(conn_rec *c)
{
	struct visit *visit = ap_get_module_config(c->conn_config, &reserv_module);

	if (!visit) {
		visit = apr_pcalloc(c->pool, sizeof(*visit));
		ap_set_module_config(c->conn_config, &reserv_module, visit);
		if (c->master) /* a stream of HTTP/2: it begins with a request */
			return visit;
		visit->share = share_of(config_of(c->base_server->lookup_defaults), c, 1);
		if (visit->share)
			return visit;
		if (!ap_vhost_iterate_given_conn(c, another, c->base_server))
			visit->share = share_of_server(c->base_server, c);
		else
			hello_listen(c, visit);
	}
	return visit;
}

/* --- connections --- */

static int pre_connection(conn_rec *c, void *socket)
{
	(void)socket;
	if (shares->nelts && !c->outgoing)
		visit_of(c);
	return DECLINED;
}

/*
 * Runs the hook of the others within itself: nothing of Apache's is called when it ends, and a
 * thread must not leave a connection bound. But MPM event sends after it what is left of a short
 * answer, with the same thread: that ends with `over`, or with the connection put aside
 * (suspend_connection). Streams of HTTP/2 are sent by their connection's thread.
 */
static int process_connection(conn_rec *c)
{
	struct self outer = self;
	struct visit *visit;
	int answer;

	if (!shares->nelts || self.inside == c)
		return DECLINED;
	self.inside = c;
	visit = visit_of(c);
	work_for(visit->share, NULL);
	answer = ap_run_process_connection(c);
	self.inside = outer.inside;
	if (outer.inside) {
		work_for(outer.bound, outer.work);
	} else if (c->master || !visit->unfinished || !c->cs || c->cs->state != CONN_STATE_WRITE_COMPLETION) {
		work_over();
	} else {
		/* Where the client has gone, the request goes without being logged. */
		work_counted();
	}
	return answer;
}

/* MPM event: a thread takes a connection up, to send what is left of an answer or to go on with it. */
static void resume_connection(conn_rec *c, request_rec *r)
{
	struct visit *visit = ap_get_module_config(c->conn_config, &reserv_module);

	(void)r;
	if (visit && visit->unfinished && !visit->unfinished->refused)
		work_for(visit->unfinished->share, counted ? visit->unfinished : NULL);
}

static void suspend_connection(conn_rec *c, request_rec *r)
{
	(void)c;
	(void)r;
	if (shares->nelts && !self.inside)
		work_over();
}

/* --- requests --- */

static request_rec *first_of(request_rec *r)
{
	while (r->main || r->prev)
		r = r->main ? r->main : r->prev;
	return r;
}

static void pre_read_request(request_rec *r, conn_rec *c)
{
	(void)r;
	if (shares->nelts)
		work_for(visit_of(c)->share, NULL);
}

static struct work *work_of(request_rec *r)
{
	return ap_get_module_config(r->request_config, &reserv_module);
}

/* From here on `r` is what its configuration says; whether that could be had stands in its work. */
static void request_is(request_rec *r, const struct config *config)
{
	struct share *share = share_of(config, r->connection, 0);
	struct work *work = work_of(r);

	if (!work) {
		if (!share && !self.bound)
			return;
		work = apr_pcalloc(r->pool, sizeof(*work));
		ap_set_module_config(r->request_config, &reserv_module, work);
	} else if (share == work->share) {
		return;
	}
	work->share = share;
	work_again(r->request_time);
	work->refused = work_for(share, share && counted ? work : NULL);
	visit_of(r->connection)->unfinished = share ? work : NULL;
}

static int post_read_request(request_rec *r)
{
	if (shares->nelts && !r->prev && !r->main)
		request_is(r, config_of(r->server->lookup_defaults));
	return DECLINED;
}

static int header_parser(request_rec *r)
{
	const struct config *config = config_of(r->per_dir_config);
	const struct work *work;

	if (!shares->nelts || r->prev || r->main)
		return DECLINED;
	request_is(r, config);
	work = work_of(r);
	return work && work->refused && config->error_code > 0 ? config->error_code : DECLINED;
}

/* Before the log is written. */
static int tell(request_rec *r)
{
	request_rec *first = first_of(r), *last = r;
	struct work *work = work_of(first);

	if (!work || !work->share || work->refused)
		return DECLINED;
	while (last->next)
		last = last->next;
	apr_table_setn(last->notes, "reserv_share", work->share->name);
	if (!counted)
		return DECLINED;
	if (self.work == work)
		work_counted();
	apr_table_setn(last->notes, TIME_NOTE, apr_psprintf(first->pool, "%" APR_UINT64_T_FMT, work->cpu_ns / 1000));
	return DECLINED;
}

/* After it is written. The thread may be at the next request of the connection already. */
static int over(request_rec *r)
{
	conn_rec *c = r->connection;
	struct visit *visit = ap_get_module_config(c->conn_config, &reserv_module);
	struct work *work = work_of(first_of(r));

	if (!work || !visit || visit->unfinished != work)
		return DECLINED;
	visit->unfinished = NULL;
	if (self.inside)
		work_for(visit->share, NULL);
	else
		work_over();
	return DECLINED;
}

/* --- programs --- */

/*
 * mod_cgid starts programs in a daemon of its own, which gets an identity with each of them from the
 * thread that serves the request, for suexec. Where suexec is not used, the number of the container
 * goes this way, and the daemon's child is bound to it as a child of the thread would be.
 */
#define IDENTITY_IS_SHARE ((gid_t)-20563)

static ap_unix_identity_t *identity(const request_rec *r)
{
	ap_unix_identity_t *id;

	if (!cgid || ap_unixd_config.suexec_enabled)
		return NULL;
	if (!r->connection) {
		id = r->request_config ? ap_get_module_config(r->request_config, cgid) : NULL;
		if (id && id->gid == IDENTITY_IS_SHARE && id->uid < (uid_t)shares->nelts)
			next_child(APR_ARRAY_IDX(shares, (int)id->uid, struct share *));
		return NULL;
	}
	if (!self.bound || !r->handler || strcmp(r->handler, "cgi-script"))
		return NULL;
	id = apr_pcalloc(r->pool, sizeof(*id));
	id->uid = (uid_t)self.bound->index;
	id->gid = IDENTITY_IS_SHARE;
	return id;
}

/* --- the module --- */

static int pre_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp)
{
	const char *mount = getenv("RESERV_MOUNT");

	(void)plog;
	(void)ptemp;
	top = apr_pstrcat(pconf, mount && *mount == '/' ? mount : "/reserv", "/container/", NULL);
	shares = apr_array_make(pconf, 4, sizeof(struct share *));
	return OK;
}

static int mentioned(const char *word, const ap_directive_t *in)
{
	for (; in; in = in->next)
		if ((in->args && strstr(in->args, word)) || mentioned(word, in->first_child))
			return 1;
	return 0;
}

static int post_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *server)
{
	(void)plog;
	(void)ptemp;
	/* The first of two readings, only to see whether the configuration is right. */
	if (ap_state_query(AP_SQ_MAIN_STATE) == AP_SQ_MS_CREATE_PRE_CONFIG || !shares->nelts)
		return OK;
	cgid = ap_find_linked_module("mod_cgid.c");
	counted = mentioned(TIME_NOTE, ap_conftree);
	children_inherit();
	if (shares_open(pconf, server, (struct share **)shares->elts, shares->nelts, top))
		return HTTP_INTERNAL_SERVER_ERROR;
	return OK;
}

static void register_hooks(apr_pool_t *p)
{
	(void)p;
	ap_hook_pre_config(pre_config, NULL, NULL, APR_HOOK_MIDDLE);
	/* Before mod_cgid starts its daemon, which needs the descriptors. */
	ap_hook_post_config(post_config, NULL, NULL, APR_HOOK_FIRST);
	ap_hook_pre_connection(pre_connection, NULL, NULL, APR_HOOK_MIDDLE);
	ap_hook_process_connection(process_connection, NULL, NULL, APR_HOOK_REALLY_FIRST);
	ap_hook_suspend_connection(suspend_connection, NULL, NULL, APR_HOOK_REALLY_LAST);
	ap_hook_resume_connection(resume_connection, NULL, NULL, APR_HOOK_REALLY_FIRST);
	ap_hook_pre_read_request(pre_read_request, NULL, NULL, APR_HOOK_REALLY_FIRST);
	ap_hook_post_read_request(post_read_request, NULL, NULL, APR_HOOK_REALLY_FIRST);
	ap_hook_header_parser(header_parser, NULL, NULL, APR_HOOK_REALLY_FIRST);
	ap_hook_log_transaction(tell, NULL, NULL, APR_HOOK_REALLY_FIRST);
	ap_hook_log_transaction(over, NULL, NULL, APR_HOOK_REALLY_LAST);
	/* Before mod_cgid's own, in its daemon. */
	ap_hook_get_suexec_identity(identity, NULL, NULL, APR_HOOK_REALLY_FIRST - 1);
	hello_register();
}

AP_DECLARE_MODULE(reserv) = {
	STANDARD20_MODULE_STUFF, config_create, config_merge, NULL, NULL, directives, register_hooks, 0,
};
