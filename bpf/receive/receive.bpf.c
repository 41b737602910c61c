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
 * What is not dropped goes on as it came.
 */
#include "../kernel.h"
#include "../tag/nodes.h"
#include "../tag/stored.h"
#include "../tag/packets.h"
#include "abi.h"

#define E_INVAL 22
#define E_STALE 116

#include "admit.h"
#include "packet.h"
#include "find.h"

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
	struct rv_node *n = bpf_map_lookup_elem(&entrances, &key);

	return n && n->generation == node >> 32 ? n : 0;
}

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

/* Whether the packet may go on. `size`: the memory that a socket will be charged for it. */
static __always_inline bool rv_comes(void *ctx, bool xdp, u32 ip, u16 type, u32 ifindex, u32 packets, u32 bytes, u32 size)
{
	struct rv_packet is = {};
	struct rv_fragment key = {};
	struct rv_way *way, made = {};
	enum rv_whose whose = rv_read(ctx, xdp, ip, type, &is);
	struct rv_node *n = 0;
	struct bpf_sock *sk;
	bool full = false;
	u64 node = 0;

	if (whose != RV_QUEUES)
		goto other;
	if (is.later) {
		rv_fragment_of(&is, &key);
		way = bpf_map_lookup_elem(&fragments, &key);
		whose = RV_SHARED;
		if (!way)
			goto other;
		if (!way->node)
			return false;
		node = way->node;
	} else {
		sk = rv_socket(ctx, &is);
		if (!sk || !sk->src_ip4) {
			/* no socket, or one that has no address of IPv4: perhaps not for us */
			if (rv_is_forwarded(ctx, ifindex, &is)) {
				if (sk)
					bpf_sk_release(sk);
				whose = RV_FORWARDED;
				goto other;
			}
		}
		whose = RV_NOBODYS;
		if (!sk)
			goto other;
		node = rv_tag(sk);
		full = rv_full(sk, is.protocol, is.opens, size);
		bpf_sk_release(sk);
		if (!node)
			node = rv_by_rules(&is);
		if (!node)
			node = RT_Q0;
	}
	n = rv_entrance(node);
	if (!n) {
		node = RT_Q0;
		n = rv_entrance(node);
		if (!n)
			return true; /* the daemon has not begun */
	}
	if (full) {
		__sync_fetch_and_add(&n->full, packets);
	} else if (!rv_eligible(n, packets)) {
		__sync_fetch_and_add(&n->over, packets);
		full = true;
	} else {
		__sync_fetch_and_add(&n->packets, packets);
		__sync_fetch_and_add(&n->bytes, bytes);
	}
	if (is.part && !is.later) {
		made.node = full ? 0 : node;
		rv_fragment_of(&is, &key);
		bpf_map_update_elem(&fragments, &key, &made, BPF_ANY);
	}
	return !full;
other:
	rv_count(whose, packets);
	return true;
}

SEC("tcx/ingress")
int rv_tcx(struct __sk_buff *skb)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);
	u32 packets = skb->gso_segs ? skb->gso_segs : 1;
	enum rv_whose whose = RV_QUEUES;

	if (packet->dev->nd_net.net->net_cookie != own_netns)
		return TCX_NEXT;
	if (skb->pkt_type == RV_OTHERHOST || skb->vlan_present)
		whose = RV_ELSEWHERES;
	else if (skb->pkt_type)
		whose = RV_SHARED;
	if (whose != RV_QUEUES) {
		rv_count(whose, packets);
		return TCX_NEXT;
	}
	return rv_comes(skb, false, 0, skb->protocol, skb->ifindex, packets, skb->len, packet->truesize) ? TCX_NEXT : TCX_DROP;
}

SEC("xdp.frags")
int rv_xdp(struct xdp_md *ctx)
{
	struct xdp_buff *buffer = bpf_cast_to_kern_ctx(ctx);
	struct {
		u8 to[6], from[6];
		u16 type;
	} ethernet;
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
	return rv_comes(ctx, true, sizeof(ethernet), ethernet.type, ctx->ingress_ifindex, 1, bpf_xdp_get_buff_len(ctx),
			buffer->frame_sz + RV_SKB) ?
		       XDP_PASS :
		       XDP_DROP;
}

SEC("syscall")
int rv_call(struct rv_call *c)
{
	u32 key = (u32)c->node & (RT_NODES_MAX - 1);
	struct rv_node *n = bpf_map_lookup_elem(&entrances, &key);

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
		return 0;
	case RV_CALL_TUNE:
		c->answer = rv_tune(n, c);
		return 0;
	case RV_CALL_RESET:
		n->packets = n->bytes = n->full = n->over = 0;
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
};
