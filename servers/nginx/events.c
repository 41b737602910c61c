/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Whose each event of a worker's loop is. A worker is one thread that goes from event to event; it is
 * bound to the container of the event's request before the event's handler runs, and stays there
 * until an event of another container comes. It sleeps bound for at most IDLE_MS.
 *
 * nginx has no hook for that. But what waits for events is a function of a table, process_events, and
 * it can be told to put events into queues and to call nobody. So `around` stands in its place, has
 * the events queued, and does what nginx's own loop would do next (accepting, timers, other events)
 * for each of them in its container. nginx finds its queues empty then.
 *
 * Covered, by what nginx's own handlers go by (they find the request at the same place):
 *  - events of a connection with a request, of an HTTP/2 stream, of an upstream connection (proxy,
 *    FastCGI, uwsgi, SCGI, gRPC, memcached), readiness and timers alike: the request's container;
 *  - a connection that waits for a request or reads its header: the container of its requests so far,
 *    where all of them had the same; else the one that is known of it (address and port, SNI), or
 *    none. Who has that charged to a site by asking the site first could have asked for more;
 *  - an HTTP/2 connection's own events: that of the stream whose frame is half read, or is the next to
 *    be sent; else as above;
 *  - a QUIC connection's: that of the stream whose data is next (quic.c); else as above;
 *  - a new connection that a request's handler made (resolver over TCP, OCSP, a TLS handshake with an
 *    upstream): the container of that request;
 *  - what a handler does for another request (the next HTTP/2 stream in the same bytes, the completion
 *    of a task of a thread pool): from its first phase, header or body filter on.
 * Threads of pools (`aio threads`) are pool.c's. Not covered: the resolver over UDP, cache managers,
 * and whatever other modules do by timers of their own. That is where the server is, in none of the
 * containers.
 *
 * Order. The kernel gives containers their shares, by turns of threads. A worker that takes events as
 * they come would give each as much as its clients ask for, whatever turns it gets: so where events
 * of several containers are ready, they wait in a queue of their container, and the container goes
 * next that has had the least for its weight, from all workers (start-time fair queueing). Without
 * what the other workers did, a worker with clients of both sites stood in the queue of the small one
 * behind a worker that has only that site's, and the large one got nothing meanwhile: of 3 : 1 it had
 * 0.39 to 0.57. Nobody waits for more than LONGEST_MS here.
 */
#include "reserv_module.h"

#define IDLE_MS 10
/* So long one container is served while others wait; and so long after the last of another's work. */
#define PIECE_NS 1000000
#define TOGETHER_MS 50
#define LONGEST_MS 100
#define KEPT_NS 4000000
#define FRAMES_MOST 64
#define ACCEPTS_MOST 64
#define WEIGHT_UNKNOWN 100000

/* Of a connection that has a descriptor, at its place in nginx's table of them. */
struct slot {
	ngx_atomic_uint_t number; /* the connection's: places are used again */
	struct share *known; /* before a request says more */
	struct share *last; /* of the last request */
	void *h2; /* its HTTP/2 connection */
	struct quic *quic; /* it is one of QUIC, and had a request */
	unsigned had : 1; /* it has had a request */
	unsigned mixed : 1; /* it has had requests of several */
	unsigned is_quic : 1;
};

static ngx_int_t (*next_process_events)(ngx_cycle_t *cycle, ngx_msec_t timer, ngx_uint_t flags);
static ngx_int_t (*next_add_conn)(ngx_connection_t *c);
static struct slot *slots;
/* nginx's handlers of events of requests, which no header names; learnt from the first request. */
static ngx_event_handler_pt request_handler, upstream_handler;

/* --- counting --- */

static struct work *counting;
static uint64_t since;
static struct share *unclaimed; /* nobody's request has been found since `since`; it was bound to this */

static void count_for(struct work *work)
{
	uint64_t now;

	if (!settings->counted || counting == work)
		return;
	now = cpu_ns();
	if (counting)
		counting->cpu_ns += now - since;
	/* What the container's thread has done since the event began was for this request: its header. */
	if (counting || !work || work->share != unclaimed)
		since = now;
	unclaimed = NULL;
	counting = work;
}

uint64_t work_ns(struct work *work)
{
	return work->cpu_ns + (counting == work ? cpu_ns() - since : 0);
}

void work_ends(struct work *work)
{
	if (counting == work)
		counting = NULL;
}

int work_for(struct work *work)
{
	struct share *share = work && !work->refused ? work->share : NULL;
	int error = 0;

	if (share != bound) {
		count_for(NULL);
		unclaimed = NULL;
		error = bind_to(share);
	}
	count_for(share && !error ? work : NULL);
	return error;
}

/* --- order --- */

static struct share *waiting, *serving;
static ngx_event_t alarm_event;
static ngx_connection_t alarm_connection;

/* Below 0 where another worker's clock is ahead: each reads it once for many events. */
static ngx_msec_int_t passed(ngx_msec_t since_ms)
{
	return (ngx_msec_int_t)(ngx_current_msec - since_ms);
}

static void touch(struct share *share)
{
	struct common *common = settings->common;

	if (share->known != common->recent) {
		common->other = common->recent;
		common->other_ms = common->recent_ms;
		common->recent = share->known;
	}
	if (common->recent_ms != ngx_current_msec)
		common->recent_ms = ngx_current_msec;
	share->known->served_ms = ngx_current_msec | 1;
}

/* Whether another container has or had work a moment ago, in this worker or another. */
static int others_work(struct share *share)
{
	struct common *common = settings->common;
	int is_recent = common->recent == share->known;
	struct known *one = is_recent ? common->other : common->recent;
	ngx_msec_t at = is_recent ? common->other_ms : common->recent_ms;

	return (waiting && (waiting != share || waiting->also)) || (one && passed(at) < TOGETHER_MS);
}

int must_wait(struct share *share)
{
	int others = others_work(share);

	touch(share);
	if (others)
		helper_ask(ASK_KNOWN);
	return others && serving != share;
}

/* Virtual time that so much work of a container takes. */
static uint64_t worth(struct share *share, uint64_t ns)
{
	uint32_t weight = __atomic_load_n(&share->weight, __ATOMIC_RELAXED);

	return (ns << 10) / (weight ? weight : WEIGHT_UNKNOWN);
}

void wait_for_turn(struct share *share, ngx_event_t *event)
{
	ngx_atomic_t *start = &share->known->start;
	uint64_t earliest;

	if (!share->waits) {
		share->waits = 1;
		share->also = waiting;
		waiting = share;
		share->since = ngx_current_msec;
		/* Of what it left unused while it had nothing to do it keeps no more than this. */
		earliest = settings->common->reached - worth(share, KEPT_NS);
		if ((int64_t)(*start - earliest) < 0)
			*start = earliest;
	}
	ngx_post_event(event, &share->ready);
}

/* Who has had least, or has waited for LONGEST_MS; forgets those that have nothing to do any more. */
static struct share *next_share(void)
{
	struct share **at = &waiting, *least = NULL, *oldest = NULL;

	while (*at) {
		struct share *share = *at;

		if (ngx_queue_empty(&share->ready)) {
			share->waits = 0;
			*at = share->also;
			continue;
		}
		if (passed(share->since) > LONGEST_MS && (!oldest || oldest->since > share->since))
			oldest = share;
		if (!least || (int64_t)(share->known->start - least->known->start) < 0)
			least = share;
		at = &share->also;
	}
	return oldest ? oldest : least;
}

/* --- whose an event is --- */

struct owner {
	struct share *share;
	struct work *work;
};

static struct slot *slot_of(ngx_connection_t *c)
{
	struct slot *slot;

	if ((uintptr_t)c < (uintptr_t)ngx_cycle->connections ||
	    (uintptr_t)c >= (uintptr_t)(ngx_cycle->connections + ngx_cycle->connection_n))
		return NULL;
	slot = &slots[c - ngx_cycle->connections];
	if (slot->number != c->number) {
		memset(slot, 0, sizeof(*slot));
		slot->number = c->number;
		if (c->listening && c->listening->connection != c)
			slot->known = share_of_listener(c->listening);
	}
	return slot;
}

static struct owner of_request(ngx_http_request_t *r)
{
	struct work *work = work_of(r);
	struct owner owner = { work && !work->refused ? work->share : NULL, work };

	return owner;
}

#if (NGX_HTTP_V2)
static ngx_http_request_t *stream_of(ngx_http_v2_connection_t *h2, int write)
{
	ngx_http_v2_out_frame_t *frame;
	ngx_http_v2_stream_t *stream = write ? NULL : h2->state.stream;
	int most = FRAMES_MOST;

	/* The list begins with the frame that is sent last. */
	for (frame = write ? h2->last_out : NULL; frame && most--; frame = frame->next)
		if (frame->stream)
			stream = frame->stream;
	return stream ? stream->request : NULL;
}
#endif

#if (NGX_HTTP_V3)
/*
 * The last packet that was read was of a connection that is known. Then the next one is read by
 * whoever has been served last: to unbind for it and to bind again is four system calls, and a turn of
 * others. After one that nobody knows it is read where the server is; so who sends such packets has
 * one read for each that is known, and no more, for a new connection is nobody's (quic_begins).
 */
static int quic_arrived;

static int of_quic(struct slot *slot, ngx_connection_t *c, ngx_event_t *event, struct owner *owner)
{
	ngx_connection_t *stream;

	if (!slot->quic || !quic_next(slot->quic, c, event, slot->mixed, &owner->share, &stream))
		return 0;
	if (stream && stream->write->handler == request_handler && request_handler)
		*owner = of_request(stream->data);
	return 1;
}
#endif

static struct owner owner_of(ngx_event_t *event)
{
	struct owner owner = { NULL, NULL };
	ngx_connection_t *c = event->data;
	struct slot *slot;
	int is_its;

	/* Both handlers find the request here. */
	if (event->handler == request_handler || event->handler == upstream_handler)
		return event->handler ? of_request(c->data) : owner;
	/* Other events may have anything in `data`. */
	slot = slot_of(c);
	if (!slot)
		return owner;
	is_its = event == c->read || event == c->write;
#if (NGX_HTTP_V3)
	if (slot->is_quic && (is_its || quic_has(c, event))) {
		if (of_quic(slot, c, event, &owner))
			return owner;
		is_its = 1;
	}
#endif
	if (!is_its)
		return owner;
#if (NGX_HTTP_V3)
	/* A stream that has no request yet. */
	if (c->quic)
		slot = slot_of(c->quic->parent);
	if (!slot)
		return owner;
#endif
	if (event->accept) {
		owner.share = share_of_listener(c->listening);
#if (NGX_HTTP_V3)
		if (!owner.share && c->listening->quic && quic_arrived)
			owner.share = bound;
#endif
		return owner;
	}
#if (NGX_HTTP_V2)
	if (slot->h2 && slot->h2 == c->data) {
		ngx_http_request_t *r = stream_of(slot->h2, event->write);

		if (r)
			return of_request(r);
	}
#endif
	owner.share = slot->last && !slot->mixed ? slot->last : slot->known;
	return owner;
}

void connection_is(ngx_connection_t *c, struct share *share)
{
	struct slot *slot = slot_of(c);

	if (slot)
		slot->known = share;
#if (NGX_HTTP_V3)
	if (slot && c->type == SOCK_DGRAM) {
		slot->is_quic = 1;
		quic_listen(c);
	}
#endif
	count_for(NULL);
	bind_to(share);
}

void events_learn(ngx_http_request_t *r, struct share *share)
{
	ngx_connection_t *c = r->connection, *peer = r->upstream ? r->upstream->peer.connection : NULL;
	struct slot *slot;
	void *h2 = NULL;

	if (!request_handler && c->read->handler == c->write->handler)
		request_handler = c->read->handler;
	if (!upstream_handler && peer && peer->read->handler == peer->write->handler)
		upstream_handler = peer->read->handler;
#if (NGX_HTTP_V2)
	if (r->stream) {
		h2 = r->stream->connection;
		c = r->stream->connection->connection;
	}
#endif
#if (NGX_HTTP_V3)
	if (r->connection->quic)
		c = r->connection->quic->parent;
#endif
	slot = slot_of(c);
#if (NGX_HTTP_V3)
	if (slot && r->connection->quic) {
		slot->is_quic = 1;
		quic_learn(&slot->quic, r, share);
	}
#endif
	if (slot) {
		slot->mixed |= slot->had && slot->last != share;
		slot->had = 1;
		slot->last = share;
		slot->h2 = h2;
	}
}

/* A connection that the event's handler makes. */
static ngx_int_t add_conn(ngx_connection_t *c)
{
	struct slot *slot = slot_of(c);

	if (slot && !c->listening)
		slot->last = bound;
	return next_add_conn(c);
}

/* --- the loop --- */

static struct share *begin(ngx_event_t *event)
{
	struct owner owner = owner_of(event);
#if (NGX_HTTP_V3)
	struct slot *slot = slot_of(event->data);

	if (slot && slot->quic)
		quic_pays(slot->quic, event->data, event);
	if (event->accept)
		quic_arrived = 0;
#endif
	count_for(NULL);
	if (bind_to(owner.share) && owner.work)
		owner.work = NULL;
	if (owner.share && bound)
		touch(owner.share);
	if (settings->counted) {
		since = cpu_ns();
		unclaimed = bound;
		counting = bound ? owner.work : NULL;
	}
	return owner.share;
}

static void run(ngx_event_t *event)
{
	begin(event);
	event->handler(event);
	count_for(NULL);
}

#if (NGX_HTTP_V3)
void run_at_once(ngx_event_t *event, ngx_event_handler_pt handler)
{
	struct share *share = begin(event);
	int others = share && others_work(share);
	uint64_t from = others ? cpu_ns() : 0;

	quic_arrived = 1;
	handler(event);
	count_for(NULL);
	if (others)
		__atomic_fetch_add(&share->known->start, worth(share, cpu_ns() - from), __ATOMIC_RELAXED);
}
#endif

static ngx_event_t *first_of(ngx_queue_t *queue)
{
	ngx_event_t *event = ngx_queue_data(ngx_queue_head(queue), ngx_event_t, queue);

	ngx_delete_posted_event(event);
	return event;
}

/* What is nobody's comes first: most of it are connections that have not said yet whose they are. */
static void sort(void)
{
	while (!ngx_queue_empty(&ngx_posted_events)) {
		ngx_event_t *event = first_of(&ngx_posted_events);
		struct share *share = owner_of(event).share;

		if (share)
			wait_for_turn(share, event);
		else
			run(event);
	}
}

/* Serves the container whose turn it is. 0: none has anything to do, or enough has been done. */
static int serve(void)
{
	struct share *share = next_share();
	uint64_t from, used = 0;
	struct known *known;
	int others;

	if (!share)
		return 0;
	known = share->known;
	others = others_work(share);
	serving = share;
	share->since = ngx_current_msec;
	if ((int64_t)(known->start - settings->common->reached) > 0)
		settings->common->reached = known->start;
	from = others ? cpu_ns() : 0;
	while (!ngx_queue_empty(&share->ready) && used < PIECE_NS) {
		run(first_of(&share->ready));
		if (others)
			used = cpu_ns() - from;
	}
	serving = NULL;
	__atomic_fetch_add(&known->start, worth(share, used), __ATOMIC_RELAXED);
	return !others;
}

static void expire_timers(void)
{
	ngx_rbtree_node_t *node;
	ngx_event_t *event;

	while (ngx_event_timer_rbtree.root != ngx_event_timer_rbtree.sentinel) {
		node = ngx_rbtree_min(ngx_event_timer_rbtree.root, ngx_event_timer_rbtree.sentinel);
		if ((ngx_msec_int_t)(node->key - ngx_current_msec) > 0)
			return;
		event = ngx_rbtree_data(node, ngx_event_t, timer);
		ngx_event_del_timer(event);
		/* What it waited for has come, and waits here for its turn: that is not its peer's fault. */
		if (event->posted && !event->delayed) {
			ngx_delete_posted_event(event);
		} else {
			event->timedout = 1;
		}
		run(event);
	}
}

/*
 * nginx accepts one connection for each turn of its loop, and here a turn is a piece of one
 * container's work. Who waits to be accepted is in no container's queue: where each request has a
 * connection of its own, sites would be served in the order in which their clients came.
 */
static void accept_all(ngx_event_t *event)
{
	int most = ACCEPTS_MOST;
	ngx_uint_t left;

	do {
		left = ngx_cycle->free_connection_n;
		run(event);
	} while (--most && ngx_cycle->free_connection_n < left);
}

static ngx_int_t around(ngx_cycle_t *cycle, ngx_msec_t timer, ngx_uint_t flags)
{
	ngx_int_t rc;
	int more;

	if (next_share())
		timer = 0;
	else if (bound && timer > IDLE_MS)
		timer = IDLE_MS;
	rc = next_process_events(cycle, timer, flags | NGX_POST_EVENTS);
	if (bound && timer && ngx_queue_empty(&ngx_posted_accept_events) && ngx_queue_empty(&ngx_posted_events))
		bind_to(NULL);
	while (!ngx_queue_empty(&ngx_posted_accept_events))
		accept_all(first_of(&ngx_posted_accept_events));
	if (ngx_accept_mutex_held)
		ngx_shmtx_unlock(&ngx_accept_mutex);
	expire_timers();
	do {
		sort();
		more = serve() || ngx_quit || ngx_exiting;
	} while (more && (next_share() || !ngx_queue_empty(&ngx_posted_events)));
	/* What this has posted nginx would run itself, as whoever is bound now. */
	sort();
	/* A worker that shall end does so when there is no timer: not while something waits here. */
	if (next_share() && !alarm_event.timer_set)
		ngx_add_timer(&alarm_event, 1);
	return rc;
}

static void alarm_handler(ngx_event_t *event)
{
	(void)event;
}

#if (NGX_HTTP_V3)
/* A packet of no connection that is known: from here on it is whose a new connection is. */
void quic_begins(ngx_connection_t *c)
{
	count_for(NULL);
	bind_to(share_of_listener(c->listening));
	ngx_http_init_connection(c);
}
#endif

ngx_int_t events_begin(ngx_cycle_t *cycle)
{
#if (NGX_HTTP_V3)
	ngx_listening_t *listening = cycle->listening.elts;
	ngx_uint_t i;

	for (i = 0; i < cycle->listening.nelts; i++)
		if (listening[i].quic && listening[i].handler == ngx_http_init_connection)
			listening[i].handler = quic_begins;
#endif
	slots = ngx_pcalloc(cycle->pool, sizeof(*slots) * cycle->connection_n);
	if (!slots)
		return NGX_ERROR;
	alarm_connection.fd = (ngx_socket_t)-1;
	alarm_event.data = &alarm_connection;
	alarm_event.handler = alarm_handler;
	alarm_event.log = cycle->log;
	next_process_events = ngx_event_actions.process_events;
	ngx_event_actions.process_events = around;
	if (ngx_event_actions.add_conn) {
		next_add_conn = ngx_event_actions.add_conn;
		ngx_event_actions.add_conn = add_conn;
	}
	return NGX_OK;
}
