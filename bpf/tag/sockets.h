/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags of sockets: a hash by struct sock, one slot per resource, because one socket's packets may
 * leave by several interfaces. (Socket storage is refused to the hook that sets them, and would not
 * be counted when it goes.) So nothing has to know the route when a tag is set: the packet's
 * interface says which slot counts. connect() and accept() fill the slots that nobody asked for
 * with what works.h says; a packet of an unconnected socket with no tag for its interface takes the
 * sender's default, and one of a socket that nobody asked for the queue of what its sender is bound
 * to (late tagging, senders.h).
 */

/* A socket's first entry, which is counted in an account. Nobody ends the socket meanwhile. */
static __noinline int rt_sock_new(u64 key, u32 account)
{
	static const struct rt_sock none;
	struct rt_sock *s;

	if (bpf_map_update_elem(&socks, &key, (void *)&none, BPF_NOEXIST)) {
		/* another thread has made it, or there is no room */
		rt_account_give(account, RT_OF_SOCKS);
		return 0;
	}
	__sync_fetch_and_add(&sock_entries, 1);
	s = bpf_map_lookup_elem(&socks, &key);
	if (s)
		s->account = account;
	return 0;
}

/* The one that was made, or 0, which is counted. `account`: negative, there may be none. */
static __always_inline struct rt_sock *rt_sock_made(u64 key, int account)
{
	struct rt_sock *s = 0;

	if (account >= 0) {
		rt_sock_new(key, account);
		s = bpf_map_lookup_elem(&socks, &key);
	}
	if (!s)
		__sync_fetch_and_add(&lost, 1);
	return s;
}

/* `by`: of rt_payer. */
static __always_inline struct rt_sock *rt_sock_entry(u64 key, u64 by)
{
	struct rt_sock *s = bpf_map_lookup_elem(&socks, &key);

	return s ? s : rt_sock_made(key, rt_account_take(rt_payer(by), RT_OF_SOCKS));
}

static __always_inline int rt_sock_tag(u64 key, u32 resource, u64 node, u64 by)
{
	struct rt_sock *s = rt_sock_entry(key, by);

	if (!s)
		return -E_NOSPC;
	rt_put(&s->slot[resource & (RT_RESOURCES - 1)], resource, node, RT_DESCRIPTORS);
	if (node)
		__sync_fetch_and_or(&s->said, 1U << (resource & 31));
	else
		__sync_fetch_and_and(&s->said, ~(1U << (resource & 31)));
	return 0;
}

/* Whether it has packets and ends in inet_sock_destruct: no other socket may have an entry. */
static __always_inline bool rt_is_inet(struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family;

	return family == RT_AF_INET || family == RT_AF_INET6;
}

/*
 * Whether a socket's packets can leave by a resource's interface: 0, or a negative errno. A
 * connected one has a route, a bound one its interface.
 */
static __always_inline int rt_sock_lives(struct sock *sk, u32 resource)
{
	struct rt_object *o = &object[resource & (RT_RESOURCES - 1)];
	struct dst_entry *dst;
	u32 bound;

	if (!rt_is_inet(sk))
		return -E_OPNOTSUPP;
	if (o->kind != RT_INTERFACE || sk->__sk_common.skc_net.net->net_cookie != o->netns)
		return -E_XDEV;
	bound = sk->__sk_common.skc_bound_dev_if;
	if (bound)
		return bound == o->number ? 0 : -E_XDEV;
	dst = sk->sk_dst_cache;
	if (sk->__sk_common.skc_state == RT_ESTABLISHED && dst && (u32)dst->dev->ifindex != o->number)
		return -E_XDEV;
	return 0;
}

/*
 * The queue of a socket for a resource, plus 1: the tag that was asked for; else what the caller's
 * packets would have, if it is bound (`hook`: a hook's program asks); else what its packets have:
 * its own tag, or (datagrams, not connected) the caller's default; of a raw one its maker's.
 */
static __always_inline int rt_sock_queue(struct sock *sk, u32 resource, bool hook)
{
	u64 key = (u64)sk, node, by;
	struct rt_sock *s = bpf_map_lookup_elem(&socks, &key);

	node = s ? s->slot[resource & (RT_RESOURCES - 1)] : 0;
	if (hook && rt_works_used() &&
	    !(s && (s->said >> (resource & 31) & 1) && rt_node(resource, node))) {
		by = rt_worked(resource);
		if (by)
			return 1 + (int)(u32)by;
	}
	by = s ? rt_sent_node(s, resource, rt_node(resource, node)) : 0;
	if (by)
		return 1 + (int)(u32)by;
	if (!(node && rt_node(resource, node)) && sk->sk_type == RT_SOCK_RAW)
		node = s ? rt_stored_tag(resource, s->sent[resource & (RT_RESOURCES - 1)]) : 0;
	else if (!(node && rt_node(resource, node)) && sk->sk_type != 1 /* SOCK_STREAM */ &&
	    sk->__sk_common.skc_state != RT_ESTABLISHED) {
		node = rt_default_of(rt_my_lists(), resource);
	}
	return 1 + rt_index(resource, node);
}

/* Fill what nobody asked for with what the caller works for. */
static __noinline int rt_sock_defaults(u64 key)
{
	struct rt_lists *l = rt_my_lists();
	struct rt_sock *s;
	u32 i, resource;
	u64 node;

	if (!l && !rt_works_used())
		return 0;
	bpf_for(i, 0, RT_RESOURCES) {
		if (i >= iface_count)
			break;
		resource = iface_resource[i & (RT_RESOURCES - 1)] & (RT_RESOURCES - 1);
		node = rt_mine(l, resource);
		if (!node)
			continue;
		s = rt_sock_entry(key, 0);
		if (!s)
			break;
		if ((s->said & 1U << resource) && rt_node(resource, s->slot[resource]))
			continue;
		/* what was asked for has gone, with its queue or its right */
		__sync_fetch_and_and(&s->said, ~(1U << resource));
		rt_put(&s->slot[resource], resource, node, RT_DESCRIPTORS);
	}
	return 0;
}

HOOK(rt_connect, struct socket *sock)
{
	struct sock *sk = sock->sk;

	if (iface_count && sk && rt_is_inet(sk))
		rt_sock_defaults((u64)sk);
	return 0;
}
HOOKED("fentry/security_socket_connect", rt_connect)

HOOK(rt_accept, struct socket *sock, struct socket *newsock, void *arg, int ret)
{
	if (iface_count && !ret)
		rt_sock_defaults((u64)newsock->sk);
	return 0;
}
HOOKED("fexit/inet_accept", rt_accept)

/*
 * A connection that comes in has what was asked for its listener from its first packet on, and is
 * counted for the same user.
 */
HOOK(rt_clone, struct sock *sk, void *req, u32 priority, struct sock *newsk)
{
	struct rt_sock *from, *to;
	u64 key = (u64)sk;
	u32 i, said, account;

	if (!sock_entries || !newsk || closed)
		return 0;
	from = bpf_map_lookup_elem(&socks, &key);
	if (!from || !from->said)
		return 0;
	account = from->account;
	to = rt_sock_made((u64)newsk, rt_account_join(account, RT_OF_SOCKS) ? -1 : (int)account);
	if (!to)
		return 0;
	said = from->said;
	bpf_for(i, 0, RT_RESOURCES) {
		if (said & 1U << (i & 31))
			rt_put(&to->slot[i & (RT_RESOURCES - 1)], i, from->slot[i & (RT_RESOURCES - 1)], RT_DESCRIPTORS);
	}
	to->said = said;
	return 0;
}
HOOKED("fexit/inet_csk_clone_lock", rt_clone)

HOOK(rt_destruct, struct sock *sk)
{
	struct rt_sock *s;
	u64 key = (u64)sk;
	u32 i, account;

	if (!sock_entries)
		return 0;
	s = bpf_map_lookup_elem(&socks, &key);
	if (!s)
		return 0;
	bpf_for(i, 0, RT_RESOURCES)
		rt_put(&s->slot[i & (RT_RESOURCES - 1)], i, 0, RT_DESCRIPTORS);
	account = s->account;
	if (!bpf_map_delete_elem(&socks, &key)) {
		rt_account_give(account, RT_OF_SOCKS);
		__sync_fetch_and_add(&sock_entries, -1);
	}
	return 0;
}
HOOKED("fentry/inet_sock_destruct", rt_destruct)
