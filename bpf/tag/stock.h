/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the kernel refuses trampolines: tags of sockets by setsockopt and cgroup hooks, in the
 * sockets' own storage, which the kernel clones for connections that come in and frees with the
 * socket. So nobody can count them as they come and go: they are walked (walk.h). A socket has its
 * maker's default from the start, a connection its listener's tags. Another's socket is tagged by
 * the daemon, which borrows the descriptor and puts a new value into its storage.
 *
 * Files are tagged by the daemon too, on disks that are scheduled, in the same maps as elsewhere
 * (files.h). What is missing is the hook of a file's end; instead its memory is seen as it goes
 * back to where files come from.
 */
#include "stored.h"

/*
 * The daemon replaces a storage by a copy of it with another tag, so what a process sets in the old
 * one meanwhile would be lost. The daemon has one socket in hand at a time. Who sets something in
 * that one says it here as well; the daemon puts it into the new storage before it ends
 * (rt_stored_end), and until then it holds here. Invariant: what is set is said before the daemon's
 * last look, or stands in the storage that stays. A daemon that is killed with a socket in hand may
 * have replaced what was set in that moment.
 */
struct rt_hand {
	struct bpf_spin_lock lock; /* of who changes something here */
	u32 said; /* resources that somebody has set meanwhile, and the daemon has not seen: bits */
	u32 held; /* those that were set meanwhile at all */
	u32 pad;
	u64 sock; /* the socket in hand */
	u64 slot[RT_RESOURCES]; /* what was set */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rt_hand);
} stored_hand SEC(".maps");
u64 storing; /* odd: a socket is in hand; counts each beginning and each end */
/* Each further try needs a beginning or an end by the daemon within the one before. */
#define RT_STORE_TRIES 1000

static __always_inline struct rt_hand *rt_hand(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&stored_hand, &zero);
}

static __always_inline u64 rt_storing(void)
{
	return *(volatile u64 *)&storing;
}

static __always_inline void rt_stored_begin(struct sock *sk)
{
	struct rt_hand *h = rt_hand();

	if (!h)
		return;
	bpf_spin_lock(&h->lock);
	h->said = h->held = 0;
	h->sock = (u64)sk;
	storing += 1 + (storing & 1); /* odd, also after one that never ended */
	bpf_spin_unlock(&h->lock);
}

/* One thing that was set meanwhile: true, and which. Nothing, or the daemon gives up: the end. */
static __always_inline bool rt_stored_end(struct rt_call *c)
{
	struct rt_hand *h = rt_hand();
	u32 said = 0, r = 0;

	if (!h)
		return false;
	bpf_spin_lock(&h->lock);
	said = c->a ? 0 : h->said;
	if (said)
		h->said = said & (said - 1);
	else if (storing & 1)
		storing++;
	bpf_spin_unlock(&h->lock);
	if (!said)
		return false;
	bpf_for(r, 0, RT_RESOURCES - 1)
		if (said >> r & 1)
			break;
	c->resource = r;
	c->b = *(volatile u64 *)&h->slot[r & (RT_RESOURCES - 1)];
	return true;
}

static __always_inline void rt_stored_say(const void *sk, u32 resource, u64 word)
{
	struct rt_hand *h;

	if (!(rt_storing() & 1))
		return;
	h = rt_hand();
	if (!h)
		return;
	resource &= RT_RESOURCES - 1;
	bpf_spin_lock(&h->lock);
	if ((storing & 1) && h->sock == (u64)sk) {
		h->slot[resource] = word;
		h->held |= 1U << resource;
		h->said |= 1U << resource;
	}
	bpf_spin_unlock(&h->lock);
}

/* Whether a socket's word for a resource is held here. If not, it stands in the storage that is asked
 * for afterwards. */
static __always_inline bool rt_stored_held(const void *sk, u32 resource, u64 *word)
{
	u64 now = rt_storing();
	struct rt_hand *h;

	if (!(now & 1))
		return false;
	h = rt_hand();
	if (!h || *(volatile u64 *)&h->sock != (u64)sk)
		return false;
	resource &= RT_RESOURCES - 1;
	if (!(*(volatile u32 *)&h->held >> resource & 1))
		return false;
	*word = *(volatile u64 *)&h->slot[resource];
	return rt_storing() == now;
}

/* The tag of a socket that has its storage at `slots`. */
static __always_inline u64 rt_storage_slot(const void *sk, u64 slots, u32 resource)
{
	u64 word;

	if (!rt_stored_held(sk, resource, &word))
		word = rt_word_at(slots + 8 * (resource & (RT_RESOURCES - 1)));
	return rt_stored_tag(resource, word);
}

SEC("cgroup/setsockopt")
int rt_setsockopt(struct bpf_sockopt *ctx)
{
	struct rt_name name = {};
	int answer = rt_option_set(ctx, &name);
	struct rt_sock *s;
	u64 word, now;
	u32 i;

	if (answer > 0)
		return 1;
	if (answer)
		return rt_refuse(answer);
	word = rt_stored_word(name.resource, rt_pack(name.node));
	bpf_for(i, 0, RT_STORE_TRIES) {
		now = rt_storing();
		rt_stored_say(RT_CAST(sock, ctx->sk), name.resource, word);
		s = bpf_sk_storage_get(&stored_socks, ctx->sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!s)
			return rt_refuse(-E_NOSPC);
		__sync_lock_test_and_set(&s->slot[name.resource & (RT_RESOURCES - 1)], word);
		if (rt_storing() == now)
			break; /* no beginning since, so the storage was this one, or it was said */
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
	if (!rt_stored_held(RT_CAST(sock, ctx->sk), resource, &word)) {
		s = bpf_sk_storage_get(&stored_socks, ctx->sk, 0, 0);
		word = s ? s->slot[resource & (RT_RESOURCES - 1)] : 0;
	}
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
		node = rt_default_of(l, resource);
		if (!node)
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
