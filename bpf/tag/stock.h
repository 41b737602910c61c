/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the kernel refuses trampolines: tags of sockets by setsockopt and cgroup hooks, in the sockets' own storage, which the kernel clones for
 * connections that come in and frees with the socket. So nobody can count them as they come and go: the daemon walks them (rt_stored). A socket has its
 * maker's default from the start, a connection its listener's tags.
 */

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct rt_sock);
} stored_socks SEC(".maps");

SEC("cgroup/setsockopt")
int rt_setsockopt(struct bpf_sockopt *ctx)
{
	struct rt_name name = {};
	int answer = rt_option_set(ctx, &name);
	struct rt_sock *s;

	if (answer > 0)
		return 1;
	if (answer)
		return rt_refuse(answer);
	s = bpf_sk_storage_get(&stored_socks, ctx->sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!s)
		return rt_refuse(-E_NOSPC);
	s->slot[name.resource & (RT_RESOURCES - 1)] = rt_pack(name.node);
	ctx->optlen = -1; /* the kernel's own code is not asked */
	return 1;
}

SEC("cgroup/getsockopt")
int rt_getsockopt(struct bpf_sockopt *ctx)
{
	u32 resource = ctx->optname - SO_RESERV_QUEUE_OF;
	int answer = rt_option_get(ctx, resource);
	struct rt_sock *s;

	if (answer > 0)
		return 1;
	if (answer)
		return rt_refuse(answer);
	s = bpf_sk_storage_get(&stored_socks, ctx->sk, 0, 0);
	return rt_option_tell(ctx, 1 + rt_index(resource, s ? s->slot[resource & (RT_RESOURCES - 1)] : 0));
}

SEC("cgroup/sock_create")
int rt_sock_create(struct bpf_sock *ctx)
{
	struct rt_lists *l;
	struct rt_sock *s;
	u32 i, resource;
	u64 node;

	if (!iface_count)
		return 1;
	l = rt_my_lists();
	if (!l)
		return 1;
	bpf_for(i, 0, RT_RESOURCES) {
		if (i >= iface_count)
			break;
		resource = iface_resource[i & (RT_RESOURCES - 1)] & (RT_RESOURCES - 1);
		node = l->list[RT_DEFAULT][resource];
		if (!node || rt_usable(resource, node))
			continue;
		s = bpf_sk_storage_get(&stored_socks, ctx, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!s)
			break;
		s->slot[resource] = node;
	}
	return 1;
}

/* What every socket is tagged with. While `sweep_node` is set, that tag is taken off on the way, and told once more as it was. */
u64 sweep_node;
u32 sweep_resource;

SEC("iter/bpf_sk_storage_map")
int rt_stored(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct rt_sock *s = ctx->value;
	struct rt_seen seen = {};
	u32 i;

	if (!s)
		return 0;
#pragma unroll
	for (i = 0; i < RT_RESOURCES; i++) {
		seen.node = s->slot[i];
		seen.resource = i;
		if (!seen.node || !rt_node(i, seen.node))
			continue;
		if (seen.node == sweep_node && i == sweep_resource)
			s->slot[i] = 0;
		bpf_seq_write(ctx->meta->seq, &seen, sizeof(seen));
	}
	return 0;
}
