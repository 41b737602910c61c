/* SPDX-License-Identifier: GPL-2.0-only */
/* The qdisc (Linux 6.16): when the kernel's events are the tree's. */

#define RN_OP(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)

static __always_inline u32 rn_bytes(struct sk_buff *skb)
{
	return ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

/* The queue that the tag programs chose (bpf/tag/link.h); 0: none did. */
static __always_inline u64 rn_tag(struct sk_buff *skb)
{
	u32 *word = (u32 *)((struct qdisc_skb_cb *)skb->cb)->data;

	return word[2] == RN_MARK ? (u64)word[1] << 32 | word[0] : 0;
}

static __always_inline struct rn_packet *rn_packet(u32 slot)
{
	u32 key = slot - 1;

	return bpf_map_lookup_elem(&packets, &key);
}

int RN_OP(rn_enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	u32 bytes = rn_bytes(skb), slot = 0;
	u64 id = rn_tag(skb), hash = 0;
	struct rn_state *s = rn_state();
	struct rn_packet *p;

	if (flows_wanted)
		hash = 1ULL << 32 | bpf_skb_get_hash(skb);
	if (s && (!rn_forgetting() || rn_anew(RN_WHOLE)) && pl_lock()) {
		rn_coming();
		slot = rn_admit(id, bytes, (u64)s->limit_bytes << 32 | s->limit_packets, hash);
		if (!slot && rn_crowded())
			s->no_room++;
		pl_unlock();
	}
	p = slot ? rn_packet(slot) : 0;
	if (!p) {
		sch->qstats.drops++;
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	skb = bpf_kptr_xchg(&p->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_SUCCESS;
}

struct sk_buff *RN_OP(rn_dequeue, struct Qdisc *sch)
{
	struct sk_buff *skb = 0;
	struct rn_packet *p;
	u32 slot = 0;
	u64 now, wait;

	if (!sch->q.qlen) {
		asked = 1;
		return 0;
	}
	now = bpf_ktime_get_ns();
	/*
	 * Asked at every packet that comes, and after each that leaves: mostly it is not time yet.
	 * Only dequeue, which is called by one at a time, writes it.
	 */
	if (link_rate && rs_before(now, hold_ns)) {
		/*
		 * Mostly the timer is set for then; but near its end it may have gone off before,
		 * as clocks need not agree.
		 */
		if (timer_ns != hold_ns || !rs_before(now + RN_TIMER_NEAR, hold_ns)) {
			timer_ns = hold_ns;
			bpf_qdisc_watchdog_schedule(sch, hold_ns, 0);
		}
		return 0;
	}
	if (!pl_lock()) {
		timer_ns = 0;
		bpf_qdisc_watchdog_schedule(sch, now + 1000000, 0);
		return 0;
	}
	slot = rn_choose(now);
	wait = wait_ns;
	pl_unlock();
	if (!slot) {
		if (wait) {
			timer_ns = 0;
			bpf_qdisc_watchdog_schedule(sch, wait, 0);
		}
		return 0;
	}
	p = rn_packet(slot);
	if (!p)
		return 0;
	skb = bpf_kptr_xchg(&p->skb, 0);
	if (!skb)
		return 0;
	sch->q.qlen--;
	sch->qstats.backlog -= rn_bytes(skb);
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

/* One object serves one interface, at its root: one tree over all its hardware queues. */
int RN_OP(rn_init, struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct rn_state *s = rn_state();

	if (!s || !tree_at)
		return -E_INVAL;
	if (sch->parent != RN_ROOT || (u32)sch->dev_queue->dev->ifindex != s->ifindex ||
	    sch->dev_queue->dev->nd_net.net->net_cookie != s->netns)
		return -E_INVAL;
	if (s->attached != s->detached)
		return -E_BUSY;
	s->attached++;
	return 0;
}

static __always_inline void rn_flush(struct Qdisc *sch)
{
	struct rn_state *s = rn_state();
	u32 i, count = places_used;
	u64 gone = 0, bytes = 0;

	bpf_for(i, 0, RN_PACKETS) {
		struct sk_buff *skb;
		struct rn_packet *p;

		if (i >= count)
			break;
		p = rn_packet(i + 1);
		if (!p)
			break;
		skb = bpf_kptr_xchg(&p->skb, 0);
		if (skb) {
			bytes += rn_bytes(skb);
			bpf_kfree_skb(skb);
			gone++;
		}
	}
	/*
	 * Not as the packets' ways: where a qdisc is destroyed the kernel holds no lock that keeps
	 * this from being preempted, by a daemon's call on the same CPU, say, which would wait with
	 * interrupts off.
	 */
	if (!rn_anew(RN_FORGET))
		forget_due = 1;
	if (s) {
		__sync_fetch_and_add(&s->flushed, gone);
		__sync_fetch_and_add(&s->flushed_bytes, bytes);
	}
}

void RN_OP(rn_reset, struct Qdisc *sch)
{
	rn_flush(sch);
	timer_ns = 0; /* the kernel takes it back when this returns */
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

void RN_OP(rn_destroy, struct Qdisc *sch)
{
	struct rn_state *s = rn_state();

	rn_flush(sch);
	if (s)
		s->detached++;
}

/* The daemon fills in an id of the interface's own: two ops of one name cannot be loaded. */
SEC(".struct_ops.link")
struct Qdisc_ops reserv = {
	.enqueue = (void *)rn_enqueue,
	.dequeue = (void *)rn_dequeue,
	.init = (void *)rn_init,
	.reset = (void *)rn_reset,
	.destroy = (void *)rn_destroy,
	.id = "reserv",
};
