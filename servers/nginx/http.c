/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * nginx serves each request in the container of its site, location, host, user or client.
 * docs/nginx.md says how it is used, and what is charged to whom; events.c, how the worker's one
 * thread is at any time in the container of what it does.
 *
 * The idea is that of an event-driven server whose kernel knows for whom it works (Banga, Druschel
 * and Mogul, "Resource Containers", OSDI '99, 4.8 and 5.4).
 *
 * Rules of whose a request is:
 *  1. A connection is the site's to which its address and port belong alone; over TLS that of the
 *     name in SNI, from before the handshake is computed. Values with variables are not known then.
 *  2. A request is its location's from the phase REWRITE on, where the value has variables from
 *     PREACCESS on (what `set` gave counts), or from its answer's header on if that comes earlier.
 *  3. Subrequests stay in it. An internal redirect stays too, unless the section to which it leads
 *     has a `reserv_share` of its own.
 */
#include "reserv_module.h"

static ngx_http_output_header_filter_pt next_header_filter;
static ngx_http_output_body_filter_pt next_body_filter;
static ngx_http_request_body_filter_pt next_request_body_filter;

static void gone(void *work)
{
	work_ends(work);
}

struct work *work_of(ngx_http_request_t *r)
{
	ngx_pool_cleanup_t *cleanup;
	struct work *work = ngx_http_get_module_ctx(r->main, ngx_http_reserv_module);

	/* An internal redirect forgets what modules had noted. */
	if (!work && (r->main->internal || r->main->filter_finalize))
		for (cleanup = r->main->pool->cleanup; cleanup; cleanup = cleanup->next)
			if (cleanup->handler == gone) {
				work = cleanup->data;
				ngx_http_set_ctx(r->main, work, ngx_http_reserv_module);
				break;
			}
	return work;
}

static struct work *work_make(ngx_http_request_t *r)
{
	ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->main->pool, sizeof(struct work));
	struct work *work;

	if (!cleanup)
		return NULL;
	work = cleanup->data;
	memset(work, 0, sizeof(*work));
	work->request = r->main;
	cleanup->handler = gone;
	ngx_http_set_ctx(r->main, work, ngx_http_reserv_module);
	return work;
}

static int is_of_quic(ngx_listening_t *listening)
{
#if (NGX_HTTP_V3)
	return listening->handler == quic_begins;
#else
	(void)listening;
	return 0;
#endif
}

struct share *share_of_listener(ngx_listening_t *listening)
{
	ngx_http_port_t *port = listening->servers;
	ngx_http_addr_conf_t *address;
	ngx_http_conf_ctx_t *ctx;
	struct place *place;

	if (listening->handler != ngx_http_init_connection && !is_of_quic(listening))
		return NULL;
	if (port->naddrs != 1)
		return NULL;
#if (NGX_HAVE_INET6)
	if (listening->sockaddr->sa_family == AF_INET6)
		address = &((ngx_http_in6_addr_t *)port->addrs)[0].conf;
	else
#endif
		address = &((ngx_http_in_addr_t *)port->addrs)[0].conf;
	if (address->virtual_names)
		return NULL;
	ctx = address->default_server->ctx;
	place = ctx->loc_conf[ngx_http_reserv_module.ctx_index];
	return place->enabled ? place->share : NULL;
}

static int is_below_root(ngx_str_t *name)
{
	struct root *root;

	for (root = settings->roots; root; root = root->next)
		if (name->len > root->length && name->data[root->length] == '/' &&
		    !memcmp(name->data, root->name, root->length))
			return 1;
	return 0;
}

/*
 * The container that the values of a request's variables name. `refused` is ENOENT where they name
 * none that is there; an empty value names none, and is no fault.
 */
static struct share *evaluated(ngx_http_request_t *r, struct place *place, int *refused)
{
	static int said; /* once in each worker: clients choose what is said here */
	struct share *share;
	ngx_str_t name;
	size_t top = strlen(settings->top);

	*refused = 0;
	if (ngx_http_complex_value(r, place->value, &name) != NGX_OK || !name.len)
		return NULL;
	if (name.len > top && !memcmp(name.data, settings->top, top)) {
		name.data += top;
		name.len -= top;
	}
	if (name_is_right(name.data, name.len) && is_below_root(&name)) {
		helper_take();
		share = share_named(settings, &name);
		if (share)
			return share;
		helper_ask(ASK_NAMES);
	}
	*refused = ENOENT;
	if (!said) {
		said = 1;
		ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
			      "reserv: \"%V\" names no container below reserv_root; what has such a name runs where "
			      "the server does",
			      &name);
	}
	return NULL;
}

/*
 * From here on the request is what its location says. Values with variables only where `last`.
 * What is to be done now: NGX_DECLINED, go on; NGX_DONE, wait; a status, refuse.
 */
static ngx_int_t request_is(ngx_http_request_t *r, int last, int may_wait)
{
	struct place *place = ngx_http_get_module_loc_conf(r, ngx_http_reserv_module);
	struct work *work = work_of(r);
	struct share *share = NULL;
	int refused = 0, stays;

	stays = r != r->main || (r->internal && !place->own && work && (work->share || work->refused));
	if (!stays) {
		if (place->enabled && place->value && !last)
			return NGX_DECLINED;
		if (place->enabled)
			share = place->value ? evaluated(r, place, &refused) : place->share;
		if (!work && !share && !refused) {
			events_learn(r, NULL);
			work_for(NULL);
			return NGX_DECLINED;
		}
		if (!work && !(work = work_make(r)))
			return NGX_ERROR;
		if (work->share != share || work->refused != refused) {
			work->share = share;
			work->refused = refused;
			work->waited = 0;
		}
	}
	if (!work)
		return NGX_DECLINED;
	events_learn(r, work->share);
	if (!work->refused && may_wait && !work->waited && work->share && must_wait(work->share)) {
		work->waited = 1;
		return NGX_DONE;
	}
	work->waited = 1;
	if (work->share)
		work->refused = work_for(work);
	else
		work_for(work->refused ? NULL : work);
	/* The page of the refusal itself is not refused. */
	if (!work->refused || !place->enabled || r != r->main || r->error_page || !place->status)
		return NGX_DECLINED;
	return place->status;
}

/* --- phases --- */

static void go_on(ngx_http_request_t *r)
{
	r->read_event_handler = ngx_http_block_reading;
	r->write_event_handler = ngx_http_core_run_phases;
	ngx_http_core_run_phases(r);
}

/* As the module limit_req delays a request, but that an event and no timer ends it. */
static ngx_int_t waits(ngx_http_request_t *r)
{
	ngx_event_t *read = r->connection->read;

	if (read->ready) {
		ngx_post_event(read, &ngx_posted_events);
	} else if (ngx_handle_read_event(read, 0) != NGX_OK) {
		return NGX_HTTP_INTERNAL_SERVER_ERROR;
	}
	r->read_event_handler = ngx_http_test_reading;
	r->write_event_handler = go_on;
	wait_for_turn(work_of(r)->share, r->connection->write);
	return NGX_DONE;
}

static ngx_int_t in_phase(ngx_http_request_t *r, int last)
{
	ngx_int_t got;

	if (!settings)
		return NGX_DECLINED;
	got = request_is(r, last, r == r->main && !r->internal);
	return got == NGX_DONE ? waits(r) : got;
}

static ngx_int_t rewrite(ngx_http_request_t *r)
{
	return in_phase(r, 0);
}

static ngx_int_t preaccess(ngx_http_request_t *r)
{
	struct place *place = ngx_http_get_module_loc_conf(r, ngx_http_reserv_module);

	return place->value ? in_phase(r, 1) : NGX_DECLINED;
}

/* --- filters --- */

static ngx_int_t header_filter(ngx_http_request_t *r)
{
	if (settings)
		request_is(r, 1, 0);
	return next_header_filter(r);
}

static ngx_int_t body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
	if (settings)
		work_for(work_of(r));
	return next_body_filter(r, in);
}

static ngx_int_t request_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
	if (settings)
		work_for(work_of(r));
	return next_request_body_filter(r, in);
}

/* --- TLS --- */

#if (NGX_HTTP_SSL)

static void (*next_info)(const SSL *ssl, int where, int ret);

/*
 * Between a client's first message and the server's, which is the expensive part of the handshake:
 * nginx has looked for the site of the name in SNI then. OpenSSL calls this at each step, and tells
 * who was to be called before; of the callbacks for SNI it does not.
 */
static void info(const SSL *ssl, int where, int ret)
{
	ngx_connection_t *c = ngx_ssl_get_connection((ngx_ssl_conn_t *)ssl);
	ngx_http_connection_t *hc;
	struct place *place;

	if (next_info)
		next_info(ssl, where, ret);
	if (!settings || !(where & SSL_CB_ACCEPT_LOOP) || !c->ssl || c->ssl->handshaked)
		return;
#if (NGX_HTTP_V3)
	/* With early data a connection of QUIC may serve streams before its handshake has ended. */
	if (c->type == SOCK_DGRAM && !quic_is_new(c))
		return;
#endif
	hc = c->data;
	if (!hc->ssl_servername)
		return;
	place = hc->conf_ctx->loc_conf[ngx_http_reserv_module.ctx_index];
	if (place->enabled && place->share)
		connection_is(c, place->share);
}

static void listen_to_tls(ngx_http_core_main_conf_t *core)
{
	ngx_http_core_srv_conf_t **servers = core->servers.elts;
	ngx_http_ssl_srv_conf_t *tls;
	ngx_uint_t i;

	for (i = 0; i < core->servers.nelts; i++) {
		tls = servers[i]->ctx->srv_conf[ngx_http_ssl_module.ctx_index];
		if (!tls || !tls->ssl.ctx || SSL_CTX_get_info_callback(tls->ssl.ctx) == info)
			continue;
		next_info = SSL_CTX_get_info_callback(tls->ssl.ctx);
		SSL_CTX_set_info_callback(tls->ssl.ctx, info);
	}
}

#endif

/* --- variables --- */

static ngx_int_t variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t is_time)
{
	struct work *work = settings ? work_of(r) : NULL;

	v->not_found = !work || !work->share || work->refused;
	if (v->not_found)
		return NGX_OK;
	v->valid = 1;
	v->no_cacheable = 1;
	if (is_time) {
		v->data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
		if (!v->data)
			return NGX_ERROR;
		v->len = (unsigned)(ngx_sprintf(v->data, "%uL", work_ns(work) / 1000) - v->data);
	} else {
		v->data = work->share->node.str.data;
		v->len = (unsigned)work->share->node.str.len;
	}
	return NGX_OK;
}

#define TIME "reserv_cpu_us"

static ngx_http_variable_t variables[] = {
	{ ngx_string("reserv_share"), NULL, variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },
	{ ngx_string(TIME), NULL, variable, 1, NGX_HTTP_VAR_NOCACHEABLE, 0 },
	ngx_http_null_variable,
};

static ngx_int_t add_variables(ngx_conf_t *cf)
{
	ngx_http_variable_t *from, *to;

	for (from = variables; from->name.len; from++) {
		to = ngx_http_add_variable(cf, &from->name, from->flags);
		if (!to)
			return NGX_ERROR;
		to->get_handler = from->get_handler;
		to->data = from->data;
	}
	return NGX_OK;
}

/* --- the module --- */

static ngx_int_t add_phase(ngx_http_core_main_conf_t *core, ngx_http_phases phase, ngx_http_handler_pt handler)
{
	ngx_http_handler_pt *to = ngx_array_push(&core->phases[phase].handlers);

	if (!to)
		return NGX_ERROR;
	*to = handler;
	return NGX_OK;
}

static ngx_int_t after_configuration(ngx_conf_t *cf)
{
	ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
	struct settings *all = ngx_http_conf_get_module_main_conf(cf, ngx_http_reserv_module);
	ngx_http_variable_t *indexed = core->variables.elts;
	ngx_uint_t i;

	/* Without a container nothing of it stands in the way of anything. */
	if (!all->count && !all->roots)
		return NGX_OK;
	for (i = 0; i < core->variables.nelts; i++)
		if (indexed[i].name.len == sizeof(TIME) - 1 && !memcmp(indexed[i].name.data, TIME, sizeof(TIME) - 1))
			all->counted = 1;
	if (add_phase(core, NGX_HTTP_REWRITE_PHASE, rewrite) != NGX_OK ||
	    add_phase(core, NGX_HTTP_PREACCESS_PHASE, preaccess) != NGX_OK)
		return NGX_ERROR;
	next_header_filter = ngx_http_top_header_filter;
	ngx_http_top_header_filter = header_filter;
	next_body_filter = ngx_http_top_body_filter;
	ngx_http_top_body_filter = body_filter;
	next_request_body_filter = ngx_http_top_request_body_filter;
	ngx_http_top_request_body_filter = request_body_filter;
#if (NGX_HTTP_SSL)
	listen_to_tls(core);
#endif
	return NGX_OK;
}

static struct settings *settings_of(ngx_cycle_t *cycle)
{
	struct settings *all = NULL;

	if (ngx_get_conf(cycle->conf_ctx, ngx_http_module))
		all = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_reserv_module);
	return all && (all->count || all->roots) ? all : NULL;
}

static ngx_int_t init_module(ngx_cycle_t *cycle)
{
	struct settings *all = settings_of(cycle);

	return all && !ngx_test_config ? shares_open(all, cycle) : NGX_OK;
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
	/* Caches' managers are no workers, and serve nobody. */
	if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
		return NGX_OK;
	settings = settings_of(cycle);
	return settings ? events_begin(cycle) : NGX_OK;
}

/* What it costs to end is no request's. */
static void exit_process(ngx_cycle_t *cycle)
{
	(void)cycle;
	if (bound)
		bind_to(NULL);
}

static ngx_http_module_t context = {
	add_variables, after_configuration, settings_create, NULL, NULL, NULL, place_create, place_merge,
};

ngx_module_t ngx_http_reserv_module = {
	NGX_MODULE_V1, &context,     reserv_commands, NGX_HTTP_MODULE, NULL, init_module, init_process,
	NULL,	       NULL,	     exit_process,    NULL,	       NGX_MODULE_V1_PADDING,
};
