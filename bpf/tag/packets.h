/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rules about packets: for programs that cannot be changed, forwarded packets and the kernel's own.
 * Asked for what has neither a tag nor a default list, and only where the link has rules.
 *
 * Each link has a table of its own, which is replaced as a whole: a packet sees the old rules or
 * the new ones. Ports are read from the first four bytes behind the IP header, IPv6's extension
 * headers skipped. A fragment behind the first has none: it takes those of the TCP or UDP socket
 * that sent it, as far as that has them (an unconnected one knows its own only); forwarded, its
 * ports are not known, and only rules without ports fit.
 */

#include "../ip.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, RT_RESOURCES);
	__type(key, u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(max_entries, 1);
			__type(key, u32);
			__type(value, struct rt_packet_table);
		});
} packet_rules SEC(".maps");

/* What rules look at. Ports in the machine's order; 0: not known. */
struct rt_packet {
	union {
		u64 remote[2];
		u32 remote_word[4];
	};
	u16 port, local_port;
	u8 protocol, version;
	bool later; /* a fragment behind the first */
	u8 pad;
};

/* TCP, UDP, DCCP, SCTP, UDP-Lite (crates/model, packet.rs). */
static __always_inline bool rt_has_ports(u8 protocol)
{
	return protocol == 6 || protocol == 17 || protocol == 33 || protocol == 132 || protocol == 136;
}

/*
 * 1 if two bytes are equal, else 0, without a jump: the verifier follows both sides of each in
 * every round of a loop.
 */
static __always_inline u32 rt_equal(u32 a, u32 b)
{
	return ((a ^ b) - 1) >> 31;
}

/*
 * Extension headers: hop by hop, routing, fragment, authentication, options, mobility, HIP, shim6.
 */
#define RT_V6_EXTENSIONS (1ULL << 0 | 1ULL << 43 | 1ULL << 44 | 1ULL << 51 | 1ULL << 60)
#define RT_V6_EXTENSIONS_128 (1ULL << (135 - 128) | 1ULL << (139 - 128) | 1ULL << (140 - 128))

static __always_inline bool rt_is_extension(u32 next)
{
	u64 set = next < 64 ? RT_V6_EXTENSIONS : next >= 128 && next < 192 ? RT_V6_EXTENSIONS_128 : 0;

	return set >> (next & 63) & 1;
}

/*
 * Behind the extension headers of an IPv6 packet whose first is `next`: offset << 16 | later << 8 |
 * protocol. Later: a fragment behind the first, where what follows is data. Behind too many, or cut
 * short, the protocol is 255, which is reserved, and there are no ports.
 */
static __noinline u64 rt_skip_v6(struct __sk_buff *skb, u32 next)
{
	u32 at = 40, later = 0, i;
	u8 head[4];

	for (i = 0; i < RT_V6_HEADERS; i++) {
		u32 fragment, auth, units;

		if (!rt_is_extension(next) || later)
			return (u64)at << 16 | (later != 0) << 8 | next;
		if (bpf_skb_load_bytes_relative(skb, at & 0xffff, head, sizeof(head), RT_HDR_START_NET))
			return 255;
		fragment = rt_equal(next, 44);
		auth = rt_equal(next, 51);
		later = (head[2] << 8 | head[3]) & 0xfff8 & -fragment;
		units = head[1] & (fragment - 1); /* that header's second byte is reserved */
		at += 8 + units * (8 - 4 * auth);
		next = head[0];
	}
	if (rt_is_extension(next) && !later)
		return 255;
	return (u64)at << 16 | (later != 0) << 8 | next;
}

/* Reads the headers; false: neither IPv4 nor IPv6, or cut short. */
static __always_inline bool rt_read_packet(struct __sk_buff *skb, struct rt_packet *is)
{
	u16 ports[2];
	u32 at;

	if (skb->protocol == bpf_htons(RT_IPV4)) {
		struct rt_head4 ip;

		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), RT_HDR_START_NET))
			return false;
		is->version = 4;
		is->remote_word[2] = bpf_htonl(0xffff);
		is->remote_word[3] = ip.to;
		is->protocol = ip.protocol;
		is->later = ip.fragment & bpf_htons(0x1fff);
		at = (ip.first & 15) * 4;
	} else if (skb->protocol == bpf_htons(RT_IPV6)) {
		struct rt_head6 ip;

		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), RT_HDR_START_NET))
			return false;
		is->version = 6;
		is->remote[0] = ip.to[0];
		is->remote[1] = ip.to[1];
		is->protocol = ip.next;
		at = 40;
		if (rt_is_extension(ip.next)) {
			u64 behind = rt_skip_v6(skb, ip.next);

			is->protocol = behind;
			is->later = behind >> 8 & 1;
			at = behind >> 16 & 0xffff;
		}
	} else {
		return false;
	}
	if (!is->later && rt_has_ports(is->protocol) &&
	    !bpf_skb_load_bytes_relative(skb, at, ports, sizeof(ports), RT_HDR_START_NET)) {
		is->local_port = bpf_ntohs(ports[0]);
		is->port = bpf_ntohs(ports[1]);
	}
	return true;
}

/*
 * The first rule of the table that fits and whose queue is there and takes packets: its handle,
 * or 0.
 */
__noinline u64 rt_first_fit(struct rt_packet_table *table, struct rt_packet *is, u32 resource)
{
	u32 i, count;

	if (!table || !is)
		return 0;
	count = table->count;
	for (i = 0; i < RT_PACKET_RULES_MAX; i++) {
		struct rt_packet_rule *r;
		struct rt_node *n;
		u32 at = i;
		u64 miss;

		if (at >= count)
			break;
		/* or the compiler leaves the mask out, which the verifier wants to see */
		asm volatile("" : "+r"(at));
		r = &table->rule[at & (RT_PACKET_RULES_MAX - 1)];
		/* One jump for all parts. A difference below 0 has its upper bits set. */
		miss = (is->remote[0] ^ r->address[0]) & r->mask[0];
		miss |= (is->remote[1] ^ r->address[1]) & r->mask[1];
		miss |= ((is->version ^ r->version) & r->version_mask) | ((is->protocol ^ r->protocol) & r->protocol_mask);
		miss |= ((u64)is->port - r->port_first) >> 32 | ((u64)r->port_last - is->port) >> 32;
		miss |= ((u64)is->local_port - r->local_first) >> 32 | ((u64)r->local_last - is->local_port) >> 32;
		if (miss)
			continue;
		n = rt_node(resource, r->node);
		if (n && !(n->flags & RT_DYING))
			return r->node;
	}
	return 0;
}

static __always_inline u64 rt_by_packet(struct __sk_buff *skb, struct bpf_sock *sk, u32 resource)
{
	void *inner = bpf_map_lookup_elem(&packet_rules, &resource);
	struct rt_packet_table *table;
	struct rt_packet is = {};
	u32 first = 0;

	if (!inner)
		return 0;
	table = bpf_map_lookup_elem(inner, &first);
	if (!table || !rt_read_packet(skb, &is))
		return 0;
	/* A raw socket's "port" is its protocol. */
	if (is.later && sk && sk->protocol == is.protocol && sk->type != 3 /* SOCK_RAW */ && rt_has_ports(is.protocol)) {
		is.local_port = sk->src_port;
		is.port = bpf_ntohs(sk->dst_port);
	}
	return rt_first_fit(table, &is, resource);
}
