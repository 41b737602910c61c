/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counting resources: operations and bytes per queue, nothing is scheduled. Attached while there is
 * such a resource.
 */

static __always_inline void rt_count(u32 resource, u64 node, u64 bytes)
{
	struct rt_node *n = node ? rt_node(resource, node) : 0;

	if (!n)
		n = rt_node(resource, RT_Q0);
	if (!n)
		return;
	__sync_fetch_and_add(&n->operations, 1);
	__sync_fetch_and_add(&n->bytes, bytes);
}

static __always_inline int rt_count_file(struct file *file, s64 done)
{
	u32 resources, r;

	if (done < 0)
		return 0;
	resources = rt_file_resources(file->f_inode);
	if (!rt_several(resources)) {
		r = rt_first(resources);
		if (r)
			rt_count(r, rt_file_node((u64)file, r), done);
		return 0;
	}
	bpf_for(r, 1, RT_RESOURCES)
		if (resources >> (r & 31) & 1)
			rt_count(r, rt_file_node((u64)file, r), done);
	return 0;
}

SEC("fexit/vfs_read")
int BPF_PROG(rt_read, struct file *file, char *buf, size_t count, s64 *pos, s64 done)
{
	return rt_count_file(file, done);
}

SEC("fexit/vfs_write")
int BPF_PROG(rt_write, struct file *file, const char *buf, size_t count, s64 *pos, s64 done)
{
	return rt_count_file(file, done);
}

/*
 * The socket of a packet: of one that the kernel answers for a connection that is not there yet
 * (SYN-ACK) the listener's. A connection that is gone has none.
 */
static __always_inline struct bpf_sock *rt_packet_sock(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk, *full;

	if (!sk)
		return 0;
	full = bpf_sk_fullsock(sk);
	return full ? full : bpf_get_listener_sock(sk);
}

/*
 * The queue of a packet that leaves by a resource's interface: the tag of the socket that was asked
 * for, else what its sender is bound to, else the tag that it has otherwise, else, where it is not
 * connected, its sender's default (senders.h).
 */
static __always_inline u64 rt_packet_node(struct bpf_sock *sk, u32 resource, bool stored)
{
	u64 key = (u64)sk, node, by;
	struct rt_sock *s;
	bool living;

	resource &= RT_RESOURCES - 1;
	s = stored ? bpf_sk_storage_get(&stored_socks, sk, 0, 0) : bpf_map_lookup_elem(&socks, &key);
	if (!stored || !rt_stored_held(sk, resource, &node))
		node = s ? s->slot[resource] : 0;
	if (stored)
		node = rt_stored_tag(resource, node);
	living = node && rt_node(resource, node);
	by = s ? rt_sent_node(s, resource, living) : 0;
	if (by)
		return by;
	if (living)
		return node;
	if (sk->family == RT_AF_PACKET)
		return rt_default_of(rt_my_lists(), resource);
	node = s && sk->state != RT_ESTABLISHED ? rt_stored_tag(resource, s->sent[resource]) : 0;
	return node && rt_node(resource, node) ? node : 0;
}

static __always_inline int rt_count_packet(struct __sk_buff *skb, bool stored)
{
	u32 resource = rt_resource_of_iface(bpf_get_netns_cookie(skb), skb->ifindex);
	struct bpf_sock *sk;
	u64 node = 0;

	if (!resource)
		return 1;
	sk = rt_packet_sock(skb);
	if (sk)
		node = rt_packet_node(sk, resource, stored);
	rt_count(resource, node, skb->len);
	return 1;
}

SEC("cgroup_skb/egress")
int rt_egress(struct __sk_buff *skb)
{
	return rt_count_packet(skb, false);
}

SEC("cgroup_skb/egress")
int rt_stock_egress(struct __sk_buff *skb)
{
	return rt_count_packet(skb, true);
}
