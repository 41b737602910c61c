// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose a packet that comes in is (bpf/receive/packet.h, find.h), read as C of this machine, beside
 * a naive reader: a packet that the naive one finds no socket for asks for none; any other asks for
 * the socket of its own protocol, addresses and ports, its route and the rules about them, and is
 * remembered under its own name if it is a fragment. At either place, and no byte is read that the
 * packet does not have.
 */
#include "../../tests/lib/kernelnative.h"
#include <linux/bpf.h>

struct task_struct *native_current;
struct net native_netns;
int native_retval;

static const uint8_t *packet;
static size_t length;
static uint32_t before; /* what XDP sees before the IP header */

static long load(uint32_t offset, void *to, u32 size)
{
	if (offset > length || size > length - offset)
		return -EFAULT;
	memcpy(to, packet + offset, size);
	return 0;
}

#define bpf_task_storage_get(map, task, value, flags) ((void *)0) /* nobody is bound */
#define bpf_skb_load_bytes_relative(skb, offset, to, size, start) load(offset, to, size)
#define bpf_xdp_load_bytes(ctx, offset, to, size) load((offset) - before, to, size)
#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
#define bpf_htonl(x) __builtin_bswap32(x)
#define BPF_F_CURRENT_NETNS (-1L)
#include "../../bpf/tag/common.h"

/* What the programs asked the kernel for. */
static struct {
	int sockets, routes;
	u32 protocol, family, l4;
	size_t size;
	struct bpf_sock_tuple tuple;
	uint8_t from[16], to[16];
} asked;

static struct bpf_sock *find(u32 protocol, struct bpf_sock_tuple *t, size_t size)
{
	asked.sockets++;
	asked.protocol = protocol;
	asked.size = size;
	memcpy(&asked.tuple, t, size);
	return 0;
}
#define bpf_sk_lookup_tcp(ctx, t, size, netns, flags) find(6, t, size)
#define bpf_sk_lookup_udp(ctx, t, size, netns, flags) find(17, t, size)

/* As the kernel has it, by the names that bpf/kernel.h gives its parts. */
struct route {
	u8 family, l4_protocol;
	u32 ifindex, source[4], destination[4];
};

static long route(void *ctx, struct route *r, int size, u32 flags)
{
	asked.routes++;
	asked.family = r->family;
	asked.l4 = r->l4_protocol;
	memcpy(asked.from, r->source, 16);
	memcpy(asked.to, r->destination, 16);
	return BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* One rule, and its queue: what the maps answer. */
static struct rt_packet_table rules;
static struct rt_node queue = { .generation = 7 };
static void *look_up(const void *map);
#undef bpf_map_lookup_elem
#define bpf_map_lookup_elem(map, key) look_up(map)
#include "../../bpf/tag/packets.h"
#ifndef RESERV_TAG_STORED_H
static u64 rt_storage_of(struct sock *sk)
{
	return 0;
}
static u64 rt_word_at(u64 at)
{
	return 0;
}
#endif
#include "../../bpf/receive/abi.h"
#include "../../bpf/receive/packet.h"
#define bpf_fib_lookup route
#include "../../bpf/receive/find.h"
#undef bpf_fib_lookup

static void *look_up(const void *map)
{
	static int inner;

	return map == &packet_rules ? (void *)&inner : map == &inner ? (void *)&rules : 0;
}

/* Of nodes.h: nothing else is asked there. */
void *native_lookup(struct native_map *map, const void *key)
{
	return &queue;
}
long native_update(struct native_map *map, const void *key, const void *value, u64 flags)
{
	return -1;
}
long native_delete(struct native_map *map, const void *key)
{
	return -1;
}
struct task_struct *native_task(s32 pid)
{
	return 0;
}

struct naive {
	bool asks, later, part, opens;
	int version, protocol;
	uint8_t from[16], to[16], number[4];
	uint8_t ports[4];
};

static u32 two(size_t at)
{
	return packet[at] << 8 | packet[at + 1];
}

/* The header of the protocol begins at `at`, and the packet has `end` bytes, as it says itself. */
static void transport(struct naive *n, size_t at, size_t end)
{
	size_t whole = n->protocol == 6 ? 20 : 8, read = n->protocol == 6 ? 14 : 4;

	if (n->protocol != 6 && n->protocol != 17)
		return;
	if (n->later) {
		n->asks = true;
		return;
	}
	if (at + whole > end || at + read > length)
		return;
	memcpy(n->ports, packet + at, 4);
	n->opens = n->protocol == 6 && (packet[at + 13] & 2) && !(packet[at + 13] & 16);
	n->asks = true;
}

static struct naive naive_4(bool large)
{
	struct naive n = { .version = 4 };
	size_t head, end;

	if (length < 20 || packet[0] / 16 != 4)
		return n;
	head = packet[0] % 16 * 4;
	end = two(2);
	if (!end && large)
		end = 512 * 1024;
	if (head < 20 || end < head)
		return n;
	n.protocol = packet[9];
	memcpy(n.from, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
	memcpy(n.to, n.from, 12);
	memcpy(n.from + 12, packet + 12, 4);
	memcpy(n.to + 12, packet + 16, 4);
	memcpy(n.number, packet + 4, 2);
	n.later = two(6) % 8192 != 0;
	n.part = n.later || (packet[6] & 32);
	transport(&n, head, end);
	if (n.to[12] >= 224)
		n.asks = false;
	return n;
}

static struct naive naive_6(bool large)
{
	struct naive n = { .version = 6 };
	size_t at = 40, end;
	int next, count = 0;

	if (length < 40 || packet[0] / 16 != 6)
		return n;
	end = !two(4) && large ? 512 * 1024 : 40 + two(4);
	memcpy(n.from, packet + 8, 16);
	memcpy(n.to, packet + 24, 16);
	next = packet[6];
	while (!n.later && count++ < RT_V6_HEADERS && (next == 0 || next == 44 || next == 60)) {
		if (at + 8 > length)
			return n;
		if (next == 44) {
			n.part = true;
			n.later = two(at + 2) / 8 != 0;
			memcpy(n.number, packet + at + 4, 4);
			next = packet[at];
			at += 8;
		} else {
			next = packet[at];
			at += 8 + 8 * packet[at + 1];
		}
	}
	n.protocol = next;
	transport(&n, at, end);
	if (n.to[0] == 0xff)
		n.asks = false;
	return n;
}

static void same(bool good)
{
	if (!good)
		abort();
}

/* The rule that fits this packet alone. */
static void rule_of(struct naive *n)
{
	struct rt_packet_rule *r = &rules.rule[0];

	memset(&rules, 0, sizeof(rules));
	rules.count = 1;
	memcpy(r->address, n->from, 16);
	memset(r->mask, 0xff, 16);
	r->version = n->version;
	r->protocol = n->protocol;
	r->version_mask = r->protocol_mask = 0xff;
	r->port_first = r->port_last = n->ports[0] << 8 | n->ports[1];
	r->local_first = r->local_last = n->ports[2] << 8 | n->ports[3];
	r->node = 7ULL << 32 | 3;
}

static void check_tuple(struct naive *n)
{
	struct bpf_sock_tuple *t = &asked.tuple;

	if (n->version == 4) {
		same(asked.size == sizeof(t->ipv4) && asked.family == RT_AF_INET);
		same(!memcmp(&t->ipv4.saddr, n->from + 12, 4) && !memcmp(&t->ipv4.daddr, n->to + 12, 4));
		same(!memcmp(&t->ipv4.sport, n->ports, 2) && !memcmp(&t->ipv4.dport, n->ports + 2, 2));
		same(!memcmp(asked.from, n->from + 12, 4) && !memcmp(asked.to, n->to + 12, 4));
	} else {
		same(asked.size == sizeof(t->ipv6) && asked.family == RT_AF_INET6);
		same(!memcmp(t->ipv6.saddr, n->from, 16) && !memcmp(t->ipv6.daddr, n->to, 16));
		same(!memcmp(&t->ipv6.sport, n->ports, 2) && !memcmp(&t->ipv6.dport, n->ports + 2, 2));
		same(!memcmp(asked.from, n->from, 16) && !memcmp(asked.to, n->to, 16));
	}
}

void reserv_fuzz_receive(const uint8_t *data, size_t size)
{
	bool xdp, large;
	struct naive n = { 0 };
	struct rv_fragment key = { 0 };
	enum rv_whose whose;
	u16 type;

	if (!size)
		return;
	packet = data + 1;
	length = size - 1;
	xdp = data[0] & 1;
	large = data[0] & 2;
	before = data[0] >> 5;
	struct rv_packet is = { .large = large };

	switch (data[0] >> 2 & 3) {
	case 0:
		type = RV_VLAN;
		break;
	case 1:
		type = 0x0806;
		break;
	case 2:
		type = RT_IPV4;
		n = naive_4(large);
		break;
	default:
		type = RT_IPV6;
		n = naive_6(large);
	}
	whose = rv_read(0, xdp, before, bpf_htons(type), &is);
	same(whose == (type == RV_VLAN ? RV_ELSEWHERES : n.asks ? RV_QUEUES : RV_SHARED));
	if (whose != RV_QUEUES)
		return;
	same(is.later == n.later && is.part == n.part);
	same(is.version == n.version && is.protocol == n.protocol);
	same(!memcmp(&is.from_port, n.ports, 2) && !memcmp(&is.to_port, n.ports + 2, 2));
	if (is.part) {
		rv_fragment_of(&is, &key);
		same(!memcmp(key.from, n.from, 16) && !memcmp(key.to, n.to, 16));
		same(!memcmp(&key.id, n.number, 4));
		same(key.version == n.version && key.protocol == n.protocol);
	}
	if (is.later)
		return;
	memset(&asked, 0, sizeof(asked));
	same(is.opens == n.opens && rv_route(0, 2, &is) == RV_OURS && !rv_socket(0, &is));
	same(asked.sockets == 1 && asked.routes == 1);
	same(asked.protocol == n.protocol && asked.l4 == n.protocol);
	check_tuple(&n);
	rule_of(&n);
	same(rv_by_rules(&is) == rules.rule[0].node);
	rules.rule[0].local_first = rules.rule[0].local_last ^= 1;
	same(!rv_by_rules(&is));
}

#define FUZZ_TARGET reserv_fuzz_receive
#include "replay.h"
