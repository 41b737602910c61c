/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose a packet of a socket without a tag is: who sent it (late tagging). A packet may leave
 * when somebody else runs: it waited for a neighbour, or an interrupt sends it; the kernel's own
 * answers leave while anybody runs. So nobody's lists are asked when a packet leaves. Each
 * datagram notes its sender's default queues with the socket as it is sent; a raw or ICMP socket
 * has its maker's. A packet socket's leave in its sender's own call. A note is no reference: it
 * keeps no queue busy, and a queue that is gone is q0. Of two processes that send over one
 * socket at the same instant, a packet may be the other one's.
 *
 * The hooks are those of cgroups, which nothing can leave out (hook.h): of a datagram that names
 * its destination, and of socket(). Attached while a resource is an interface.
 *
 * A thread that is bound to a container (works.h) notes that one's queues, over whatever inet
 * socket it sends, a connection too: a server learns for whom it works when it has accepted and
 * read. What the connection still has to send then goes with it. Who sends and is not bound takes
 * the note away. This is a hook of every send, which may be left out (hook.h): then the note is the
 * last sender's until the next one. It comes before the cgroups' in a send. Attached while a
 * container owns a queue of an interface.
 */

/* Who sends over an inet socket notes what it is bound to, or that it is not. */
static __noinline int rt_sent_by(u64 key)
{
	u32 listed = 0;
	bool bound = rt_working(bpf_get_current_task_btf(), &listed) != 0;
	struct rt_works *all = rt_works();
	struct rt_sock *s = sock_entries ? bpf_map_lookup_elem(&socks, &key) : 0;
	u32 i, resource;
	u64 node;

	if (!all || (!bound && !s))
		return 0;
	bpf_for(i, 0, RT_RESOURCES) {
		if (i >= iface_count)
			break;
		resource = iface_resource[i & (RT_RESOURCES - 1)] & (RT_RESOURCES - 1);
		node = bound ? rt_worked(resource) : 0;
		if (!s && node)
			s = rt_sock_entry(key, 0);
		if (s)
			s->works[resource] = node ? rt_stored_word(resource, node) : 0;
	}
	if (s)
		s->epoch = all->epoch;
	return 0;
}

SEC("fentry/security_socket_sendmsg")
int BPF_PROG(rt_sent, struct socket *sock)
{
	struct sock *sk;

	if (!iface_count || !rt_works_used())
		return 0;
	sk = sock->sk;
	if (sk && rt_is_inet(sk))
		rt_sent_by((u64)sk);
	return 0;
}

/*
 * `stored`: in the socket's own storage, in whose place the daemon may put a copy meanwhile
 * (stock.h): then this note is lost, and the next one is not. A connected socket has what connect()
 * gave it, whoever sends.
 */
static __always_inline int rt_sends(struct bpf_sock *sk, bool stored)
{
	struct rt_lists *l;
	struct rt_sock *s = 0;
	u32 i, resource;
	u64 key, node;

	if (!iface_count || !sk || sk->state == RT_ESTABLISHED)
		return 1;
	key = (u64)RT_CAST(sock, sk);
	l = rt_my_lists();
	if (stored)
		s = bpf_sk_storage_get(&stored_socks, sk, 0, 0);
	else if (sock_entries)
		s = bpf_map_lookup_elem(&socks, &key);
	else if (!l)
		return 1;
	bpf_for(i, 0, RT_RESOURCES) {
		if (i >= iface_count)
			break;
		resource = iface_resource[i & (RT_RESOURCES - 1)] & (RT_RESOURCES - 1);
		node = rt_default_of(l, resource);
		if (!s && node) {
			s = stored ? bpf_sk_storage_get(&stored_socks, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) : rt_sock_entry(key, 0);
			if (!s)
				break;
		}
		if (s)
			s->sent[resource] = rt_stored_word(resource, node);
	}
	return 1;
}

SEC("cgroup/sendmsg4")
int rt_send4(struct bpf_sock_addr *ctx)
{
	return rt_sends(ctx->sk, false);
}

SEC("cgroup/sendmsg6")
int rt_send6(struct bpf_sock_addr *ctx)
{
	return rt_sends(ctx->sk, false);
}

SEC("cgroup/sendmsg4")
int rt_stock_send4(struct bpf_sock_addr *ctx)
{
	return rt_sends(ctx->sk, true);
}

SEC("cgroup/sendmsg6")
int rt_stock_send6(struct bpf_sock_addr *ctx)
{
	return rt_sends(ctx->sk, true);
}

/*
 * Who binds a socket may never send with it: the queue of what comes in (bpf/receive), and of a
 * listener's answers.
 */
SEC("cgroup/post_bind4")
int rt_bound4(struct bpf_sock *sk)
{
	return rt_sends(sk, false);
}

SEC("cgroup/post_bind6")
int rt_bound6(struct bpf_sock *sk)
{
	return rt_sends(sk, false);
}

/* What is not seen when it sends: raw sockets, and those of ICMP. */
SEC("cgroup/sock_create")
int rt_created(struct bpf_sock *sk)
{
	u32 protocol = sk->protocol;

	if (sk->type != RT_SOCK_RAW && protocol != 1 && protocol != 58)
		return 1;
	return rt_sends(sk, false);
}
