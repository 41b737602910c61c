// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's parser of packets (bpf/tag/packets.h), read as C of this machine, beside a naive
 * one: the same protocol, addresses and ports, and no byte is read that the packet does not have.
 */
#include "../../tests/lib/kernelnative.h"
#include <linux/bpf.h>

struct task_struct *native_current;
struct net native_netns;
int native_retval;

static const uint8_t *packet;
static size_t length;

static long load(u32 offset, void *to, u32 size)
{
	if (offset > length || size > length - offset)
		return -EFAULT;
	memcpy(to, packet + offset, size);
	return 0;
}

#define bpf_task_storage_get(map, task, value, flags) ((void *)0) /* nobody is bound */
#define bpf_skb_load_bytes_relative(skb, offset, to, size, start) load(offset, to, size)
#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
#define bpf_htonl(x) __builtin_bswap32(x)
#include "../../bpf/tag/common.h"
#undef bpf_map_lookup_elem
#define bpf_map_lookup_elem(map, key) ((void *)0) /* rules are not asked */
#include "../../bpf/tag/packets.h"

/* None of these maps is asked. */
void *native_lookup(struct native_map *map, const void *key)
{
	return 0;
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
	bool good, later;
	u32 protocol;
	u16 port, local_port;
	uint8_t remote[16];
};

static void ports(struct naive *n, size_t at)
{
	bool has = n->protocol == 6 || n->protocol == 17 || n->protocol == 33 || n->protocol == 132 || n->protocol == 136;

	if (!has || n->later || at + 4 > length)
		return;
	n->local_port = packet[at] << 8 | packet[at + 1];
	n->port = packet[at + 2] << 8 | packet[at + 3];
}

static struct naive naive_4(void)
{
	struct naive n = { 0 };

	if (length < 20)
		return n;
	n.good = true;
	n.protocol = packet[9];
	n.later = (packet[6] << 8 | packet[7]) & 0x1fff;
	n.remote[10] = n.remote[11] = 0xff;
	memcpy(n.remote + 12, packet + 16, 4);
	ports(&n, (packet[0] & 15) * 4);
	return n;
}

static bool extension(u32 next)
{
	return next == 0 || next == 43 || next == 44 || next == 51 || next == 60 || next == 135 || next == 139 || next == 140;
}

static struct naive naive_6(void)
{
	struct naive n = { 0 };
	size_t at = 40;
	int headers = 0;

	if (length < 40)
		return n;
	n.good = true;
	n.protocol = packet[6];
	memcpy(n.remote, packet + 24, 16);
	while (extension(n.protocol) && !n.later) {
		u32 this = n.protocol;

		if (headers++ == RT_V6_HEADERS || at + 4 > length) {
			n.protocol = 255;
			return n;
		}
		n.protocol = packet[at];
		if (this == 44) {
			n.later = (packet[at + 2] << 8 | packet[at + 3]) & 0xfff8;
			at += 8;
		} else {
			at += this == 51 ? 8 + packet[at + 1] * 4 : 8 + packet[at + 1] * 8;
		}
	}
	ports(&n, at);
	return n;
}

void reserv_fuzz_packets(const uint8_t *data, size_t size)
{
	struct __sk_buff skb = { 0 };
	struct rt_packet is = { 0 };
	struct naive n;
	bool good;

	if (!size)
		return;
	packet = data + 1;
	length = size - 1;
	skb.protocol = data[0] & 1 ? bpf_htons(RT_IPV4) : data[0] & 2 ? bpf_htons(RT_IPV6) : bpf_htons(0x0806);
	good = rt_read_packet(&skb, &is);
	n = data[0] & 1 ? naive_4() : data[0] & 2 ? naive_6() : (struct naive){ 0 };
	if (good != n.good)
		abort();
	if (!good)
		return;
	if (is.protocol != n.protocol || is.later != n.later || is.port != n.port || is.local_port != n.local_port ||
	    memcmp(is.remote, n.remote, 16))
		abort();
}

#define FUZZ_TARGET reserv_fuzz_packets
#include "replay.h"
