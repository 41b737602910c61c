/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Whose a connection of QUIC works for (HTTP/3, nginx 1.25 and later).
 *
 * Its streams are connections to nginx, with events and requests of their own. Packets are the whole
 * connection's: they are encrypted and sent by an event of it after the streams' handlers have
 * filled its queue, often when the request has long ended; and they are read by the handler of the
 * listener, which calls the connection's. So a connection keeps whose its last streams were.
 *
 * What arrives is theirs whose data is on its way and is acknowledged by it. What is sent at once may
 * be several containers', and one of them has to pay. Each is owed what it pays for others and owes
 * what others pay for it, in bytes, and who owes most pays (as an error is diffused). So nobody pays
 * more than once for all that is sent at once, whatever a client asks for in which order.
 */
#include "reserv_module.h"

#if (NGX_HTTP_V3)

#include <ngx_event_quic_connection.h>

/* http3_max_concurrent_streams is 128 where nothing is said. */
#define STREAMS 128
#define FRAMES_MOST 1024
/* So many containers' debts are known of a connection. */
#define DEBTS 8
/* Of a stream's number (RFC 9000, 2.1): who opened it, and whether both may send. */
#define IS_REQUEST(id) (((id) & 3) == 0)

struct debt {
	struct share *share;
	int64_t bytes;
};

struct quic {
	struct {
		uint64_t id;
		struct share *share;
		unsigned there : 1;
	} of[STREAMS];
	struct debt debts[DEBTS];
	struct share *pays; /* for what is sent next; `chosen`: that is known */
	unsigned chosen : 1;
};

/* nginx's, which no header names; learnt from the first connection. */
static ngx_event_handler_pt arrives;

static void quic_arrives(ngx_event_t *event)
{
	run_at_once(event, arrives);
}

int quic_is_new(ngx_connection_t *c)
{
	ngx_quic_connection_t *qc = ngx_quic_get_connection(c);

	return qc && !qc->streams.initialized;
}

void quic_listen(ngx_connection_t *c)
{
	if (!arrives)
		arrives = c->read->handler;
	if (c->read->handler == arrives)
		c->read->handler = quic_arrives;
}

void quic_learn(struct quic **at, ngx_http_request_t *r, struct share *share)
{
	ngx_quic_stream_t *stream = r->connection->quic;
	struct quic *quic = *at;
	unsigned place = (stream->id >> 2) % STREAMS;

	quic_listen(stream->parent);
	if (!quic)
		quic = *at = ngx_pcalloc(stream->parent->pool, sizeof(*quic));
	if (!quic)
		return;
	quic->of[place].id = stream->id;
	quic->of[place].share = share;
	quic->of[place].there = 1;
}

/* Whether the frame is of a request's data, and whose. */
static int owner_of(struct quic *quic, ngx_quic_frame_t *frame, struct share **share)
{
	uint64_t id = frame->u.stream.stream_id;
	unsigned place = (id >> 2) % STREAMS;

	if (frame->type != NGX_QUIC_FT_STREAM || !IS_REQUEST(id))
		return 0;
	if (!quic->of[place].there || quic->of[place].id != id)
		return 0;
	*share = quic->of[place].share;
	return 1;
}

/* The first frame of a container's data, or of anybody's. */
static ngx_quic_frame_t *first_of(struct quic *quic, ngx_queue_t *frames, struct share **share,
				  int anybody)
{
	int most = FRAMES_MOST;
	ngx_queue_t *at;

	for (at = ngx_queue_head(frames); at != ngx_queue_sentinel(frames) && most--;
	     at = ngx_queue_next(at)) {
		ngx_quic_frame_t *frame = ngx_queue_data(at, ngx_quic_frame_t, queue);
		struct share *owner;

		if (owner_of(quic, frame, &owner) && (anybody || owner == *share)) {
			*share = owner;
			return frame;
		}
	}
	return NULL;
}

static int64_t *debt_of(struct debt *debts, struct share *share)
{
	int i, least = 0;

	for (i = 0; i < DEBTS; i++) {
		if (debts[i].share == share)
			return &debts[i].bytes;
		if (llabs(debts[i].bytes) < llabs(debts[least].bytes))
			least = i;
	}
	debts[least].share = share;
	debts[least].bytes = 0;
	return &debts[least].bytes;
}

static ngx_queue_t *frames_of(ngx_quic_connection_t *qc, int arrives_now)
{
	ngx_quic_send_ctx_t *ctx = ngx_quic_get_send_ctx(qc, ssl_encryption_application);

	return arrives_now ? &ctx->sent : &ctx->frames;
}

/* Writes down what each owes for what can be sent now; the sum. */
static int64_t owe(struct quic *quic, struct debt *debts, ngx_quic_connection_t *qc)
{
	ngx_queue_t *frames = frames_of(qc, 0);
	ngx_quic_congestion_t *cg = &qc->congestion;
	int64_t room = cg->window > cg->in_flight ? (int64_t)(cg->window - cg->in_flight) : 0, sum = 0;
	int most = FRAMES_MOST;
	ngx_queue_t *at;

	for (at = ngx_queue_head(frames); at != ngx_queue_sentinel(frames) && most-- && sum <= room;
	     at = ngx_queue_next(at)) {
		ngx_quic_frame_t *frame = ngx_queue_data(at, ngx_quic_frame_t, queue);
		struct share *owner;

		if (!owner_of(quic, frame, &owner))
			continue;
		*debt_of(debts, owner) += (int64_t)frame->u.stream.length;
		sum += (int64_t)frame->u.stream.length;
	}
	return sum;
}

/* Who owes most with what can be sent now; 0: nothing can. */
static int most_in_debt(struct quic *quic, ngx_quic_connection_t *qc, struct share **share)
{
	struct debt debts[DEBTS];
	int i, most = 0;

	/* What is owed is written down when it is sent. */
	memcpy(debts, quic->debts, sizeof(debts));
	if (!owe(quic, debts, qc))
		return 0;
	for (i = 1; i < DEBTS; i++)
		if (debts[i].bytes > debts[most].bytes)
			most = i;
	*share = debts[most].share;
	return 1;
}

int quic_has(ngx_connection_t *c, ngx_event_t *event)
{
	ngx_quic_connection_t *qc = ngx_quic_get_connection(c);

	return qc && (u_char *)event >= (u_char *)qc && (u_char *)event < (u_char *)(qc + 1);
}

int quic_next(struct quic *quic, ngx_connection_t *c, ngx_event_t *event, int mixed,
	      struct share **share, ngx_connection_t **stream)
{
	ngx_quic_connection_t *qc = ngx_quic_get_connection(c);
	int is_read = event == c->read;
	ngx_quic_stream_t *found;
	ngx_quic_frame_t *frame;

	*stream = NULL;
	if (!qc)
		return 0;
	if (mixed && !is_read && !quic->chosen)
		quic->chosen = most_in_debt(quic, qc, &quic->pays) & 1;
	*share = quic->pays;
	frame = first_of(quic, frames_of(qc, is_read), share, is_read || !quic->chosen);
	if (!frame && (is_read || !quic->chosen))
		frame = first_of(quic, frames_of(qc, !is_read), share, 1);
	if (frame) {
		found = ngx_quic_find_stream(&qc->streams.tree, frame->u.stream.stream_id);
		*stream = found ? found->connection : NULL;
	}
	return frame || (!is_read && quic->chosen);
}

void quic_pays(struct quic *quic, ngx_connection_t *c, ngx_event_t *event)
{
	ngx_quic_connection_t *qc = ngx_quic_get_connection(c);
	int64_t sum;

	if (!qc || event == c->read || !quic->chosen)
		return;
	sum = owe(quic, quic->debts, qc);
	*debt_of(quic->debts, quic->pays) -= sum;
	quic->chosen = 0;
}

#endif
