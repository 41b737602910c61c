/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Several listeners on one address and port, chosen by who comes (Resource Containers 4.8: filters
 * <address, CIDR mask> of a socket; the most specific wins; complements). The kernel asks before a
 * connection exists: for a SYN, and for a datagram that is no connected socket's.
 *
 *   1. the longest prefix that the client is in and of which a socket lives;
 *   2. a complement that the client is not in, the one that leaves out most first;
 *   3. a socket for everybody;
 *   4. nobody, where a living socket is bound there that has said for whom it is: the client is
 *      refused, as where no socket is. Else the kernel chooses as always.
 *
 * First of the sockets that are bound to the address that the client came to, then of those that
 * are bound to none, as the kernel does.
 *
 * A socket that is closed is out of `sockets` at once, by the kernel. A door, a port and a state
 * are asked of the socket itself, since it may have been bound to another one since: whoever is
 * bound there by then has the right to it.
 */
#include "../kernel.h"
#include "abi.h"

#define RL_TCP 6
#define RL_LISTENS 10 /* TCP_LISTEN */
#define RL_INET 2

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, RL_SOCKETS_MAX);
	__type(key, u64);
	__type(value, u64);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RL_SOCKETS_MAX);
	__type(key, u64);
	__type(value, struct rl_listener);
} listeners SEC(".maps");

/* Two versions of IP for each socket. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * RL_SOCKETS_MAX * RL_CLIENTS_MAX);
	__type(key, struct rl_key);
	__type(value, struct rl_set);
} clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * RL_SOCKETS_MAX);
	__type(key, struct rl_door);
	__type(value, struct rl_own);
} doors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * RL_SOCKETS_MAX * RL_RESTS_MAX);
	__type(key, struct rl_rest_key);
	__type(value, struct rl_rest);
} rests SEC(".maps");

/* Whether a socket is one that clients can come to, at this port if that is not 0. */
static __always_inline bool rl_receives(struct bpf_sock *sk, u32 protocol, u32 port)
{
	if (sk->bound_dev_if || sk->dst_port || (port && sk->src_port != port))
		return false;
	return sk->protocol == protocol && (protocol != RL_TCP || sk->state == RL_LISTENS);
}

/* Chooses socket `at` of a set, if it lives. A function of its own: the verifier sees it once. */
__noinline int rl_choose_one(struct bpf_sk_lookup *ctx, struct rl_set *set, u32 at)
{
	struct bpf_sock *sk;
	bool chosen;
	u64 cookie;
	u32 port;

	if (!set || at >= RL_SET_MAX)
		return 0;
	cookie = set->socket[at];
	port = (set->joined | set->free) >> at & 1 ? 0 : ctx->local_port;
	sk = bpf_map_lookup_elem(&sockets, &cookie);
	if (!sk)
		return 0;
	chosen = rl_receives(sk, ctx->protocol, port) &&
		 !bpf_sk_assign(ctx, sk, BPF_SK_LOOKUP_F_NO_REUSEPORT);
	bpf_sk_release(sk);
	return chosen;
}

/*
 * Chooses one of a set: whoever comes again has the same one, as long as that lives. `with_joined`:
 * those too that have joined. 1: it was chosen.
 */
__noinline int rl_choose(struct bpf_sk_lookup *ctx, struct rl_set *set, u32 with_joined)
{
	u32 i, at, from;
	u64 left_out;

	if (!set || !set->count)
		return 0;
	left_out = with_joined ? 0 : set->joined;
	from = ctx->family == RL_INET ? ctx->remote_ip4 : ctx->remote_ip6[2] ^ ctx->remote_ip6[3];
	from = (from ^ ctx->remote_port) * 0x9e3779b1 >> 16;
	for (i = 0; i < RL_SET_MAX; i++) {
		if (i >= set->count)
			break;
		at = (from + i) % set->count;
		if (!(left_out >> (at & 63) & 1) && rl_choose_one(ctx, set, at))
			return 1;
	}
	return 0;
}

/* Whether one of a door's own sockets lives, and is bound there still. */
__noinline int rl_lives_one(struct bpf_sk_lookup *ctx, struct rl_set *set, u32 at)
{
	struct bpf_sock *sk;
	bool lives;
	u64 cookie;

	if (!set || at >= RL_SET_MAX)
		return 0;
	cookie = set->socket[at];
	sk = bpf_map_lookup_elem(&sockets, &cookie);
	if (!sk)
		return 0;
	lives = rl_receives(sk, ctx->protocol, ctx->local_port);
	bpf_sk_release(sk);
	return lives;
}

__noinline int rl_lives(struct bpf_sk_lookup *ctx, struct rl_set *set)
{
	u32 i;

	if (!set)
		return 0;
	for (i = 0; i < RL_SET_MAX; i++) {
		if (i >= set->count)
			break;
		if (rl_lives_one(ctx, set, i))
			return 1;
	}
	return 0;
}

/* Whether an address begins with the bits of another one. */
static __always_inline bool rl_within(struct rl_address *is, struct rl_address *prefix, u32 bits)
{
	u64 one[2], other[2], high, low;

	__builtin_memcpy(one, is->byte, 16);
	__builtin_memcpy(other, prefix->byte, 16);
	high = bpf_be64_to_cpu(one[0] ^ other[0]);
	low = bpf_be64_to_cpu(one[1] ^ other[1]);
	if (bits <= 64)
		return bits == 0 || high >> (64 - bits) == 0;
	return !high && low >> (128 - bits & 63) == 0;
}

static __always_inline void rl_word(struct rl_address *to, u32 at, u32 word)
{
	__builtin_memcpy(to->byte + 4 * at, &word, 4);
}

enum rl_found { RL_NONE, RL_CHOSEN, RL_REFUSED };

/* By the longest prefix of at most key->bits; where none of its sockets is, the next is shorter. */
__noinline int rl_by_prefix(struct bpf_sk_lookup *ctx, struct rl_key *key, u32 lives)
{
	struct rl_key at;
	struct rl_set *set;

	if (!key)
		return RL_REFUSED;
	at = *key;
	set = bpf_map_lookup_elem(&clients, &at);
	if (!set || !set->bits)
		return RL_REFUSED;
	if (rl_choose(ctx, set, lives))
		return RL_CHOSEN;
	key->bits = RL_DOOR_BITS + set->bits - 1;
	return RL_NONE;
}

/* By complement `index` of a door, or for everybody. */
__noinline int rl_by_rest(struct bpf_sk_lookup *ctx, struct rl_key *key, u32 index, u32 lives)
{
	struct rl_rest_key at = {};
	struct rl_rest *rest;

	if (!key)
		return RL_NONE;
	at.door = key->door;
	at.index = index;
	rest = bpf_map_lookup_elem(&rests, &at);
	if (!rest || (rest->but_bits && rl_within(&key->client, &rest->but, rest->but_bits)))
		return RL_NONE;
	return rl_choose(ctx, &rest->set, lives) ? RL_CHOSEN : RL_NONE;
}

/* At the address that the client came to, or, `any`, at none. */
__noinline int rl_at(struct bpf_sk_lookup *ctx, u32 any)
{
	struct rl_key key = {};
	struct rl_own *own;
	u32 i, lives;
	int found;

	key.door.protocol = ctx->protocol;
	key.door.port = ctx->local_port;
	if (ctx->family == RL_INET) {
		key.door.version = 4;
		rl_word(&key.client, 0, ctx->remote_ip4);
		if (!any)
			rl_word(&key.door.local, 0, ctx->local_ip4);
		key.bits = RL_DOOR_BITS + 32;
	} else {
		key.door.version = 6;
		rl_word(&key.client, 0, ctx->remote_ip6[0]);
		rl_word(&key.client, 1, ctx->remote_ip6[1]);
		rl_word(&key.client, 2, ctx->remote_ip6[2]);
		rl_word(&key.client, 3, ctx->remote_ip6[3]);
		if (!any) {
			rl_word(&key.door.local, 0, ctx->local_ip6[0]);
			rl_word(&key.door.local, 1, ctx->local_ip6[1]);
			rl_word(&key.door.local, 2, ctx->local_ip6[2]);
			rl_word(&key.door.local, 3, ctx->local_ip6[3]);
		}
		key.bits = RL_DOOR_BITS + 128;
	}
	own = bpf_map_lookup_elem(&doors, &key.door);
	if (!own)
		return RL_NONE;
	lives = rl_lives(ctx, &own->set);
	for (i = 0; i < RL_NESTED_MAX; i++) {
		found = rl_by_prefix(ctx, &key, lives);
		if (found == RL_CHOSEN)
			return RL_CHOSEN;
		if (found == RL_REFUSED)
			break;
	}
	for (i = 0; i < RL_RESTS_MAX; i++) {
		if (i >= own->rests)
			break;
		if (rl_by_rest(ctx, &key, i, lives) == RL_CHOSEN)
			return RL_CHOSEN;
	}
	return lives ? RL_REFUSED : RL_NONE;
}

SEC("sk_lookup")
int rl_listener(struct bpf_sk_lookup *ctx)
{
	int found = rl_at(ctx, 0);

	if (found == RL_NONE)
		found = rl_at(ctx, 1);
	return found == RL_REFUSED ? SK_DROP : SK_PASS;
}

char _license[] SEC("license") = "GPL";

/* Sizes and offsets of what both sides use. */
const u32 rl_layout[] SEC(".rodata.layout") = {
	RL_ABI_VERSION,
	sizeof(struct rl_door),
	sizeof(struct rl_key),
	sizeof(struct rl_set),
	__builtin_offsetof(struct rl_set, socket),
	sizeof(struct rl_rest_key),
	sizeof(struct rl_rest),
	__builtin_offsetof(struct rl_rest, set),
	sizeof(struct rl_own),
	sizeof(struct rl_client),
	sizeof(struct rl_listener),
	__builtin_offsetof(struct rl_listener, client),
	__builtin_offsetof(struct rl_listener, allowed),
};
