/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the kernel refuses trampolines: tags of sockets by setsockopt and cgroup hooks, in the sockets' own storage, which the kernel clones for
 * connections that come in and frees with the socket. So nobody can count them as they come and go:
 * they are walked (walk.h). A socket has its maker's default from the start, a connection its
 * listener's tags. Another's socket is tagged by the daemon, which borrows the descriptor and puts a
 * new value into its storage.
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

/* A word of the kernel's memory; 0 where there is none any more. */
static __always_inline u64 rt_word_at(u64 address)
{
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

/* Of an element of some sockets' storage, by address: what it holds, and whether it is of our map. */
static __always_inline u64 rt_storage_data(u64 element)
{
	return element + bpf_core_field_offset(struct bpf_local_storage_elem, sdata) +
	       bpf_core_field_offset(struct bpf_local_storage_data, data);
}

static __always_inline bool rt_storage_is(u64 element)
{
	element += bpf_core_field_offset(struct bpf_local_storage_elem, sdata);
	element += bpf_core_field_offset(struct bpf_local_storage_data, smap);
	return rt_word_at(element) == (u64)&stored_socks;
}

/* Where a socket's own storage has its slots, for who may not ask for it by the map; 0: nowhere. */
#define RT_STORAGES 64 /* maps that one socket has something in */
static __noinline u64 rt_storage_of(struct sock *sk)
{
	u64 at = (u64)sk->sk_bpf_storage;
	u32 i;

	if (!at)
		return 0;
	at = rt_word_at(at + bpf_core_field_offset(struct bpf_local_storage, list));
	bpf_for(i, 0, RT_STORAGES) {
		if (!at)
			break;
		at -= bpf_core_field_offset(struct bpf_local_storage_elem, snode);
		if (rt_storage_is(at))
			return rt_storage_data(at);
		at = rt_word_at(at + bpf_core_field_offset(struct bpf_local_storage_elem, snode));
	}
	return 0;
}

static __always_inline u64 rt_storage_slot(u64 slots, u32 resource)
{
	return rt_stored_tag(resource, rt_word_at(slots + 8 * (resource & (RT_RESOURCES - 1))));
}

/*
 * The daemon replaces a storage by a copy of it with another tag. What is set in the old one between
 * its reading and its writing would be lost, so whoever sets something while the daemon does that
 * (stored_writing) sets it again, until the storage stays the same; not for ever, for the daemon may
 * be stopped there.
 */
u32 stored_writing;
#define RT_STORE_TRIES 1000

SEC("cgroup/setsockopt")
int rt_setsockopt(struct bpf_sockopt *ctx)
{
	struct rt_name name = {};
	int answer = rt_option_set(ctx, &name);
	struct rt_sock *s, *was = 0;
	u32 i, writing;
	u64 word;

	if (answer > 0)
		return 1;
	if (answer)
		return rt_refuse(answer);
	word = rt_stored_word(name.resource, rt_pack(name.node));
	bpf_for(i, 0, RT_STORE_TRIES) {
		/* Asked before the storage is: one that was replaced since is another one by then. */
		writing = __sync_fetch_and_add(&stored_writing, 0);
		s = bpf_sk_storage_get(&stored_socks, ctx->sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!s)
			return rt_refuse(-E_NOSPC);
		if (s == was && !writing)
			break;
		__sync_lock_test_and_set(&s->slot[name.resource & (RT_RESOURCES - 1)], word);
		was = s;
	}
	ctx->optlen = -1; /* the kernel's own code is not asked */
	return 1;
}

SEC("cgroup/getsockopt")
int rt_getsockopt(struct bpf_sockopt *ctx)
{
	u32 resource = ctx->optname - SO_RESERV_QUEUE_OF;
	int answer = rt_option_get(ctx, resource);
	struct rt_sock *s;
	u64 word;

	if (answer > 0)
		return 1;
	if (answer)
		return rt_refuse(answer);
	s = bpf_sk_storage_get(&stored_socks, ctx->sk, 0, 0);
	word = s ? s->slot[resource & (RT_RESOURCES - 1)] : 0;
	return rt_option_tell(ctx, 1 + rt_index(resource, rt_stored_tag(resource, word)));
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
		s->slot[resource] = rt_stored_word(resource, node);
	}
	return 1;
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
