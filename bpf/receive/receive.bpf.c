/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The entrance of an interface that is scheduled: each packet is told apart before the protocol
 * sees it, and what is too much for its receiver is dropped here, where it has cost next to nothing
 * (Eclipse/BSD 3, SRP; Resource Containers 4.7; PSS 4.4). One object for each link, which shares
 * the maps of bpf/tag. Two programs do the same, at two places:
 *
 *   rv_tcx   behind the driver and GRO, at every interface (Linux 6.6);
 *   rv_xdp   in the driver, before a packet has memory of its own.
 *
 * What is not dropped goes on as it came. Rules about who comes (rules.h) are asked first.
 */
#include "../kernel.h"
#include "../tag/nodes.h"
#include "../tag/stored.h"
#include "../tag/packets.h"
#include "abi.h"
#include "packet.h"
#include "admit.h"
#include "find.h"
#include "rules.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RT_NODES_MAX);
	__type(key, u32);
	__type(value, struct rv_node);
} entrances SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rv_others);
} others SEC(".maps");

static __always_inline struct rv_node *rv_entrance(u64 node)
{
	u32 key = (u32)node & (RT_NODES_MAX - 1);
	struct rv_node *n;

	if (!node)
		return 0;
	n = bpf_map_lookup_elem(&entrances, &key);
	return n && n->generation == node >> 32 ? n : 0;
}

#include "droppers.h"

static __always_inline void rv_count(enum rv_whose whose, u32 packets)
{
	u32 zero = 0;
	struct rv_others *o = bpf_map_lookup_elem(&others, &zero);
	u64 *count;

	if (!o)
		return;
	count = whose == RV_SHARED    ? &o->shared :
		whose == RV_FORWARDED ? &o->forwarded :
		whose == RV_NOBODYS   ? &o->nobody :
					&o->elsewhere;
	__sync_fetch_and_add(count, packets);
}

/* What is known of the packet before it is read. */
struct rv_arrival {
	u32 ip; /* where XDP finds the IP header */
	u32 ifindex;
	u32 packets, bytes;
	u32 size; /* the memory that a socket will be charged for it */
	u16 type;
};

/*
 * Whether an interface forwards what is not for this machine. bpf_fib_lookup() asks the same first,
 * and costs a tenth of all that is done here for a packet.
 */
static __always_inline bool rv_forwards(struct net_device *dev, u8 version)
{
	struct in_device *v4;
	struct inet6_dev *v6;

	if (version == 4) {
		v4 = dev->ip_ptr;
		return v4 && v4->cnf.data[0];
	}
	v6 = dev->ip6_ptr;
	return v6 && v6->cnf.forwarding;
}

/* The queue of a packet that some socket may have, and whether that has room. */
static __always_inline enum rv_whose rv_judge(void *ctx, struct net_device *dev,
					      struct rv_arrival *a, struct rv_packet *is,
					      struct rv_way *way)
{
	enum rv_route route = RV_NO_ROUTER;
	struct bpf_sock *sk;

	if (rv_forwards(dev, is->version))
		route = rv_route(ctx, a->ifindex, is);
	if (route == RV_AWAY)
		return RV_FORWARDED;
	sk = rv_socket(ctx, is);
	if (!sk)
		return RV_NOBODYS;
	if (!rv_entrance(way->node))
		way->node = rv_tag(sk);
	way->surely = rv_surely(sk, route);
	if (way->surely && rv_full(sk, is->protocol, is->opens, a->size))
		way->why = RV_WAS_FULL;
	bpf_sk_release(sk);
	if (!way->node)
		way->node = rv_by_rules(is);
	if (!rv_entrance(way->node))
		way->node = RT_Q0;
	return RV_QUEUES;
}

/* Whether the packet may go on. */
static __always_inline bool rv_comes(void *ctx, struct net_device *dev, bool xdp,
				     struct rv_arrival *a)
{
	struct rv_packet is = { .large = a->packets > 1 };
	struct rv_fragment key = {};
	struct rv_way *known, way = { .limit = RV_NO_RULE };
	struct rv_rule *rule;
	enum rv_whose whose = rv_read(ctx, xdp, a->ip, a->type, &is);
	struct rv_node *n;
	u64 now = 0;

	if (is.part) {
		now = bpf_ktime_get_ns();
		rv_fragment_of(&is, &key);
	}
	if (whose == RV_QUEUES && is.later) {
		known = bpf_map_lookup_elem(&fragments, &key);
		if (known && now - known->at < RV_FRAGMENT_NS)
			way = *known;
	}
	/* Only the first of its fragments has ports. */
	rule = way.at ? 0 : rv_ruled(&is);
	if (rule) {
		way.limit = rule->limit;
		way.node = rule->node;
	}
	if (way.limit != RV_NO_RULE &&
	    !rv_lets_in(way.limit, a->packets, a->bytes, way.why == RV_WAS_RULED_OUT))
		way.why = RV_WAS_RULED_OUT;
	if (whose == RV_QUEUES && !is.later && way.why == RV_CAME)
		whose = rv_judge(ctx, dev, a, &is, &way);
	n = whose == RV_QUEUES ? rv_entrance(way.node) : 0;
	if (n && n->period && way.surely && way.why == RV_CAME &&
	    !rv_eligible(&n->lock, &n->eligible, n->period, n->credit, a->packets))
		way.why = RV_WAS_OVER;
	if (is.part && !is.later) {
		way.at = now;
		if (n || way.why == RV_WAS_RULED_OUT)
			bpf_map_update_elem(&fragments, &key, &way, BPF_ANY);
		else
			bpf_map_delete_elem(&fragments, &key);
	}
	if (way.why == RV_WAS_RULED_OUT)
		return false;
	if (!n) {
		/* nobody's, or a fragment whose first is not known */
		rv_count(whose == RV_QUEUES ? RV_SHARED : whose, a->packets);
		return true;
	}
	if (way.why == RV_WAS_FULL) {
		__sync_fetch_and_add(&n->full, a->packets);
	} else if (way.why == RV_WAS_OVER) {
		__sync_fetch_and_add(&n->over, a->packets);
	} else {
		__sync_fetch_and_add(&n->packets, a->packets);
		__sync_fetch_and_add(&n->bytes, a->bytes);
	}
	if (way.why != RV_CAME)
		rv_note_dropper(way.node, &is, a->packets);
	return way.why == RV_CAME;
}

SEC("tcx/ingress")
int rv_tcx(struct __sk_buff *skb)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);
	struct rv_arrival a = {
		.ifindex = skb->ifindex,
		.packets = skb->gso_segs ? skb->gso_segs : 1,
		.bytes = skb->len,
		.size = packet->truesize,
		.type = skb->protocol,
	};
	enum rv_whose whose = RV_QUEUES;

	if (packet->dev->nd_net.net->net_cookie != own_netns)
		return TCX_NEXT;
	if (skb->pkt_type == RV_OTHERHOST || skb->vlan_present)
		whose = RV_ELSEWHERES;
	else if (skb->pkt_type)
		whose = RV_SHARED;
	if (whose != RV_QUEUES) {
		rv_count(whose, a.packets);
		return TCX_NEXT;
	}
	return rv_comes(skb, packet->dev, false, &a) ? TCX_NEXT : TCX_DROP;
}

SEC("xdp.frags")
int rv_xdp(struct xdp_md *ctx)
{
	struct xdp_buff *buffer = bpf_cast_to_kern_ctx(ctx);
	struct {
		u8 to[6], from[6];
		u16 type;
	} ethernet;
	struct rv_arrival a = {
		.ip = sizeof(ethernet),
		.ifindex = ctx->ingress_ifindex,
		.packets = 1,
		.bytes = bpf_xdp_get_buff_len(ctx),
		.size = buffer->frame_sz + RV_SKB,
	};
	u8 own[6] = {};
	enum rv_whose whose = RV_QUEUES;
	u32 i;

	if (buffer->rxq->dev->nd_net.net->net_cookie != own_netns)
		return XDP_PASS;
	if (bpf_xdp_load_bytes(ctx, 0, &ethernet, sizeof(ethernet)))
		return XDP_PASS;
	bpf_probe_read_kernel(own, sizeof(own), buffer->rxq->dev->dev_addr);
	if (ethernet.to[0] & 1) {
		whose = RV_SHARED;
	} else {
		for (i = 0; i < 6; i++)
			if (ethernet.to[i] != own[i])
				whose = RV_ELSEWHERES;
	}
	if (whose != RV_QUEUES) {
		rv_count(whose, 1);
		return XDP_PASS;
	}
	a.type = ethernet.type;
	return rv_comes(ctx, buffer->rxq->dev, true, &a) ? XDP_PASS : XDP_DROP;
}

SEC("syscall")
int rv_call(struct rv_call *c)
{
	u32 key = (u32)c->node & (RT_NODES_MAX - 1);
	struct rv_node *n = bpf_map_lookup_elem(&entrances, &key);
	u64 node = c->node; /* a key has to stand on the stack */

	c->answer = -E_INVAL;
	if (!n || (u32)c->node >= RT_NODES_MAX)
		return 0;
	c->answer = 0;
	switch (c->what) {
	case RV_CALL_STATE:
		c->a = RV_ABI_VERSION;
		c->b = resource_number;
		return 0;
	case RV_CALL_BEGIN:
		resource_number = c->a & (RT_RESOURCES - 1);
		tags_stored = c->b & 1;
		stored_now = c->b >> 16 & 0xffff;
		own_netns = c->c;
		return 0;
	case RV_CALL_NODE:
		if (n->generation == c->node >> 32)
			return 0;
		n->generation = 0; /* who comes meanwhile is q0's */
		n->rate = n->burst = 0;
		n->period = n->credit = 0;
		n->packets = n->bytes = n->full = n->over = 0;
		bpf_spin_lock(&n->lock);
		n->eligible = 0;
		bpf_spin_unlock(&n->lock);
		n->generation = c->node >> 32;
		return 0;
	}
	if (n->generation != c->node >> 32) {
		c->answer = -E_STALE;
		return 0;
	}
	switch (c->what) {
	case RV_CALL_DROP:
		n->generation = 0;
		bpf_map_delete_elem(&droppers, &node);
		return 0;
	case RV_CALL_TUNE:
		c->answer = rv_tune(n, c);
		return 0;
	case RV_CALL_RESET:
		n->packets = n->bytes = n->full = n->over = 0;
		bpf_map_delete_elem(&droppers, &node);
		return 0;
	}
	c->answer = -E_INVAL;
	return 0;
}

char _license[] SEC("license") = "GPL";

/* Sizes and offsets of what both sides use. */
const u32 rv_layout[] SEC(".rodata.layout") = {
	RV_ABI_VERSION,
	sizeof(struct rv_node),
	__builtin_offsetof(struct rv_node, packets),
	sizeof(struct rv_others),
	sizeof(struct rv_call),
	__builtin_offsetof(struct rv_call, node),
	RV_TICKS_NS,
	sizeof(struct rv_limit),
	__builtin_offsetof(struct rv_limit, packets),
	sizeof(struct rv_rule),
	__builtin_offsetof(struct rv_rule, complement),
	sizeof(struct rv_edge),
	sizeof(struct rv_table),
	__builtin_offsetof(struct rv_table, rule),
	sizeof(struct rv_droppers),
	__builtin_offsetof(struct rv_droppers, of),
};
