/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a packet that comes in says of itself, before any protocol has seen it. Only what is whole
 * and plain is taken to be somebody's; the rest goes on untouched and is counted as the machine's.
 * Behind extension headers other than hop by hop, destination options and fragment, nobody is
 * looked for: a routing header may send the packet elsewhere, and what is encrypted has no ports.
 */

#define RV_VLAN 0x8100
#define RV_VLAN_SERVICE 0x88a8
#define RV_TCP 6
#define RV_UDP 17
#define RV_LONGEST (512 * 1024) /* GRO_MAX_SIZE */
#define RV_OTHERHOST 3 /* PACKET_OTHERHOST; a group's are 1 and 2 */

enum rv_whose { RV_QUEUES, RV_SHARED, RV_FORWARDED, RV_NOBODYS, RV_ELSEWHERES };

struct rv_packet {
	union {
		u64 from[2];
		u32 from_word[4];
	};
	union {
		u64 to[2];
		u32 to_word[4];
	};
	u16 from_port, to_port; /* as they stand in the packet */
	u8 version, protocol;
	bool part, later; /* a fragment; one behind the first */
	bool opens; /* SYN, without ACK */
	bool large; /* several that were put together: its IP header may say no length */
	u8 pad[2];
	u32 id; /* of the packet that it is a fragment of */
	u32 length; /* from the IP header on, as that says */
};

/* Bytes from the IP header on. `at`: where that is, of what XDP sees. */
static __always_inline bool rv_bytes(void *ctx, bool xdp, u32 at, u32 from, void *to, u32 count)
{
	if (xdp)
		return !bpf_xdp_load_bytes(ctx, at + from, to, count);
	return !bpf_skb_load_bytes_relative(ctx, from, to, count, RT_HDR_START_NET);
}

/* Reads ports and flags, `at` bytes behind the beginning of the IP header. */
static __always_inline bool rv_ports(void *ctx, bool xdp, u32 ip, u32 at, struct rv_packet *is)
{
	u8 head[14];

	if (is->later)
		return true;
	if (is->protocol == RV_TCP) {
		if (!rv_bytes(ctx, xdp, ip, at, head, 14) || at + 20 > is->length)
			return false;
		is->opens = (head[13] & 0x12) == 0x02;
	} else {
		if (!rv_bytes(ctx, xdp, ip, at, head, 4) || at + 8 > is->length)
			return false;
	}
	is->from_port = *(u16 *)head;
	is->to_port = *(u16 *)(head + 2);
	return true;
}

static __always_inline bool rv_read4(void *ctx, bool xdp, u32 ip, struct rv_packet *is)
{
	struct rt_head4 head;
	u32 size;

	if (!rv_bytes(ctx, xdp, ip, 0, &head, sizeof(head)))
		return false;
	size = (head.first & 15) * 4;
	is->length = bpf_ntohs(head.length);
	if (!is->length && is->large)
		is->length = RV_LONGEST;
	if (head.first >> 4 != 4 || size < 20 || is->length < size)
		return false;
	is->version = 4;
	is->protocol = head.protocol;
	is->from_word[2] = is->to_word[2] = bpf_htonl(0xffff);
	is->from_word[3] = head.from;
	is->to_word[3] = head.to;
	is->later = head.fragment & bpf_htons(0x1fff);
	is->part = is->later || (head.fragment & bpf_htons(0x2000));
	is->id = head.id;
	if (is->protocol != RV_TCP && is->protocol != RV_UDP)
		return false;
	return rv_ports(ctx, xdp, ip, size, is);
}

static __always_inline bool rv_read6(void *ctx, bool xdp, u32 ip, struct rv_packet *is)
{
	struct rt_head6 head;
	u32 at = 40, i;
	u8 next, part[8];

	if (!rv_bytes(ctx, xdp, ip, 0, &head, sizeof(head)))
		return false;
	is->length = !head.length && is->large ? RV_LONGEST : 40 + bpf_ntohs(head.length);
	if ((head.first & 0xf0) != 0x60)
		return false;
	is->version = 6;
	is->from[0] = head.from[0];
	is->from[1] = head.from[1];
	is->to[0] = head.to[0];
	is->to[1] = head.to[1];
	next = head.next;
	for (i = 0; i < RT_V6_HEADERS; i++) {
		if (is->later || (next != 0 && next != 44 && next != 60))
			break;
		if (!rv_bytes(ctx, xdp, ip, at & 0xffff, part, sizeof(part)))
			return false;
		if (next == 44) {
			is->part = true;
			is->later = (part[2] << 8 | part[3]) & 0xfff8;
			is->id = *(u32 *)(part + 4);
			at += 8;
		} else {
			at += 8 + part[1] * 8;
		}
		next = part[0];
	}
	is->protocol = next;
	if (next != RV_TCP && next != RV_UDP)
		return false;
	return rv_ports(ctx, xdp, ip, at & 0xffff, is);
}

/* Whether it goes to several at once: the link layer did not say so. */
static __always_inline bool rv_to_group(struct rv_packet *is)
{
	if (is->version == 6)
		return ((u8 *)is->to)[0] == 0xff;
	return ((u8 *)is->to)[12] >= 224;
}

/*
 * Reads the packet: RV_QUEUES where it may be some socket's. `ip`: where XDP finds the IP header,
 * behind an Ethernet header.
 */
static __always_inline enum rv_whose rv_read(void *ctx, bool xdp, u32 ip, u16 type,
					     struct rv_packet *is)
{
	bool whole = false;

	if (type == bpf_htons(RT_IPV4))
		whole = rv_read4(ctx, xdp, ip, is);
	else if (type == bpf_htons(RT_IPV6))
		whole = rv_read6(ctx, xdp, ip, is);
	else if (type == bpf_htons(RV_VLAN) || type == bpf_htons(RV_VLAN_SERVICE))
		return RV_ELSEWHERES;
	return whole && !rv_to_group(is) ? RV_QUEUES : RV_SHARED;
}
