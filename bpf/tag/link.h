/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Links that are scheduled: each packet that leaves by the interface is given its queue just before
 * the qdisc sees it (tcx, Linux 6.6). The handle stands in skb->cb, which belongs to the qdisc from
 * here on (bpf/net/abi.h, RN_MARK), and where the qdisc is HTB the class in skb->priority. It is
 * written for every packet: the kernel leaves other things there. What no socket sent, and what
 * nobody tagged, goes where the rules about packets say (packets.h), and is q0's otherwise.
 */
#include "../net/abi.h"

u32 link_major[RT_RESOURCES]; /* HTB's handle >> 16; 0: not HTB */

static __always_inline int rt_link_packet(struct __sk_buff *skb, bool stored)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);
	u32 resource = rt_resource_of_iface(packet->dev->nd_net.net->net_cookie, skb->ifindex), major;
	struct bpf_sock *sk;
	u64 node = 0;

	if (!resource)
		return TCX_NEXT;
	sk = rt_packet_sock(skb);
	if (sk)
		node = rt_packet_node(sk, resource, stored);
	if (!node)
		node = rt_by_packet(skb, sk, resource);
	if (!node)
		node = RT_Q0;
	skb->cb[0] = node;
	skb->cb[1] = node >> 32;
	skb->cb[2] = RN_MARK;
	major = link_major[resource & (RT_RESOURCES - 1)];
	if (major)
		skb->priority = major << 16 | (u16)node;
	return TCX_NEXT;
}

SEC("tcx/egress")
int rt_link(struct __sk_buff *skb)
{
	return rt_link_packet(skb, false);
}

SEC("tcx/egress")
int rt_stock_link(struct __sk_buff *skb)
{
	return rt_link_packet(skb, true);
}
