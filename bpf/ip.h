/* SPDX-License-Identifier: GPL-2.0-only */
/* The headers of IP: packets that go (bpf/tag) and that come (bpf/receive) are told apart by them. */
#ifndef RESERV_IP_H
#define RESERV_IP_H

#define RT_IPV4 0x0800
#define RT_IPV6 0x86dd
#define RT_HDR_START_NET 1
/* extension headers that are skipped; behind more nothing is known but the addresses */
#define RT_V6_HEADERS 8

/* As they stand in a packet. */
struct rt_head4 {
	u8 first, tos;
	u16 length, id, fragment;
	u8 ttl, protocol;
	u16 check;
	u32 from, to;
};

struct rt_head6 {
	u32 first;
	u16 length;
	u8 next, hops;
	u64 from[2], to[2];
};

#endif
