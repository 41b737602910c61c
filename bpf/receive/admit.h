/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a packet may come in. It may not where its receiver has no room for it: the kernel would
 * drop it too, behind all of the protocol's work (Druschel and Banga, lazy receiver processing:
 * drop where it has cost nothing). And it may not before its queue's eligible time (PSS 4.4):
 *
 *   a packet of a queue with period D and credit βD comes in at t if t >= E;
 *   then E = max(E, t - βD) + D.
 *
 * So in any time Δ at most 1 + β + ⌊Δ / D⌋ packets come in. A segment of a large packet counts as
 * one, and a large packet comes in or is dropped as a whole, so that β grows by the segments of
 * one. Each fragment is asked for itself. The max is taken here, not where a packet is dropped:
 * what is refused costs its queue nothing.
 */

/* Whether `count` packets may come in now. */
static __always_inline bool rv_eligible(struct bpf_spin_lock *lock, u64 *eligible, u64 period,
					u64 credit, u32 count)
{
	u64 begin, now = bpf_ktime_get_ns() * RV_TICKS_NS;
	bool may;

	bpf_spin_lock(lock);
	may = now >= *eligible;
	if (may) {
		begin = now > credit ? now - credit : 0;
		if (begin < *eligible)
			begin = *eligible;
		*eligible = begin + count * period;
	}
	bpf_spin_unlock(lock);
	return may;
}

/*
 * The rate or the burst becomes another one. The period is rounded up, so that no more comes in
 * than was said. What came in before is forgotten: a burst more may follow.
 */
static __always_inline int rv_tune(struct rv_node *n, struct rv_call *c)
{
	u64 value = c->b, period, credit;
	u32 rate, burst;

	if (value > (c->a == RV_TUNE_RATE ? RV_RATE_MAX : RV_BURST_MAX))
		return -E_INVAL;
	bpf_spin_lock(&n->lock);
	rate = n->rate;
	burst = n->burst;
	if (c->a == RV_TUNE_RATE)
		n->rate = value;
	else
		n->burst = value;
	period = n->rate ? (RV_TICKS_NS * 1000000000 + n->rate - 1) / n->rate : 0;
	credit = period * (n->burst ? n->burst : RV_BURST);
	if (n->period != period || n->credit != credit)
		n->eligible = 0;
	n->period = period;
	n->credit = credit;
	bpf_spin_unlock(&n->lock);
	c->b = c->a == RV_TUNE_RATE ? rate : burst;
	return 0;
}

#define RV_LISTEN 10 /* TCP_LISTEN */
#define RV_SKB 256 /* struct sk_buff, as it will stand beside a frame of XDP's */

/*
 * Whether a socket has no room. Of UDP by the kernel's own rule (__udp_enqueue_schedule_skb, as of
 * 6.18; before, a full one took one packet more): an empty one takes any packet. Of a listener
 * where one that begins a connection (`opens`) finds as many waiting to be accepted as it was
 * told. An open connection has a window, which is the peer's to keep. Where a program of somebody's chooses
 * among the sockets of a port, nobody knows here which it will be.
 */
static __always_inline bool rv_full(struct bpf_sock *is, u8 protocol, bool opens, u32 size)
{
	struct sock *sk = RT_CAST(sock, is);
	s32 used;

	if (sk->sk_reuseport_cb && sk->sk_reuseport_cb->prog)
		return false;
	if (protocol == RV_UDP) {
		used = sk->sk_backlog.rmem_alloc.counter;
		return used > 0 && (u32)used + size > (u32)sk->sk_rcvbuf;
	}
	return opens && is->state == RV_LISTEN && sk->sk_ack_backlog > sk->sk_max_ack_backlog;
}
