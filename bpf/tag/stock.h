/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the kernel refuses trampolines: tags of sockets by setsockopt and cgroup hooks, in the sockets' own storage, which the kernel clones for
 * connections that come in and frees with the socket. So nobody can count them as they come and go: the daemon walks them (rt_stored). A socket has its
 * maker's default from the start, a connection its listener's tags. Another's socket is tagged by the daemon, which borrows the descriptor.
 *
 * Files are tagged by the daemon too, on disks that are scheduled, in the same maps as elsewhere (files.h). What is missing is the hook of a file's end; instead
 * its memory is seen as it goes back to where files come from.
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

u64 file_cache; /* where files' memory comes from; 0: no file has ended since somebody looked */

/* Everybody's memory passes here. Attached while there is a disk. */
SEC("tp_btf/kmem_cache_free")
int BPF_PROG(rt_stock_freed, unsigned long site, const void *memory, const struct kmem_cache *cache)
{
	u64 key = (u64)cache, file = (u64)memory;
	char name[5] = {};

	if (file_cache && file_cache != key)
		return 0;
	if (!file_cache) {
		bpf_probe_read_kernel(name, sizeof(name), cache->name);
		if (name[0] != 'f' || name[1] != 'i' || name[2] != 'l' || name[3] != 'p' || name[4])
			return 0;
		file_cache = key;
	}
	if (rt_place_end(file, rt_place_at(file - *(volatile u64 *)&anchor_at)))
		rt_file_end_elsewhere(file);
	return 0;
}

/* What the daemon wants tagged: one of its own descriptors, for it is in an iterator over them that a socket's storage may be made. */
struct rt_name wish;
u32 wish_fd;
s32 wish_answer;

SEC("iter/task_file")
int rt_stock_tag(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *sock;
	struct rt_sock *s;
	struct sock *sk;

	if (!file || !task || ctx->fd != wish_fd)
		return 0;
	sock = bpf_sock_from_file(file);
	sk = sock ? sock->sk : 0;
	if (!sk) {
		wish_answer = -E_OPNOTSUPP;
		return 0;
	}
	wish_answer = rt_sock_lives(sk, wish.resource);
	if (!wish_answer)
		wish_answer = rt_usable(wish.resource, wish.node);
	if (wish_answer)
		return 0;
	s = bpf_sk_storage_get(&stored_socks, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (s)
		s->slot[wish.resource & (RT_RESOURCES - 1)] = rt_pack(wish.node);
	else
		wish_answer = -E_NOSPC;
	return 0;
}
