/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose a packet is: the socket that will get it, and that socket's queue of this link. Its own tag
 * (for this resource), else the queues of who bound it or sent with it last (bpf/tag/senders.h),
 * else what the link's rules about packets say of the other side, else q0.
 *
 * A fragment behind the first goes the way of the first, which is remembered by addresses, protocol
 * and number for as long as the kernel waits for the rest (IP_FRAG_TIME). One that comes before it
 * is the machine's.
 */

u32 resource_number; /* whose link this is */
u64 own_netns; /* where its sockets are; an interface may be moved to another name space */
u32 tags_stored; /* tags are in the sockets' own storage (bpf/tag/stock.h) */
u32 stored_now; /* how words of this resource begin, wherever they stand (stored_era) */

struct rv_fragment {
	u64 from[2], to[2];
	u32 id;
	u8 protocol, version, pad[2];
};

#define RV_FRAGMENT_NS 30000000000ULL

enum rv_why { RV_CAME, RV_WAS_FULL, RV_WAS_OVER, RV_WAS_RULED_OUT };

struct rv_way {
	u64 node; /* packed handle */
	u64 at; /* when the first came */
	u32 why; /* it came in, or not */
	u16 surely; /* it was surely its socket's */
	u16 limit; /* of the rule about who sent it; RV_NO_RULE: there is none */
};

/* As many as the kernel puts together at once, of 1500 bytes each (ipfrag_high_thresh, 4 MiB). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct rv_fragment);
	__type(value, struct rv_way);
} fragments SEC(".maps");

static __always_inline void rv_fragment_of(struct rv_packet *is, struct rv_fragment *key)
{
	key->from[0] = is->from[0];
	key->from[1] = is->from[1];
	key->to[0] = is->to[0];
	key->to[1] = is->to[1];
	key->id = is->id;
	key->protocol = is->protocol;
	key->version = is->version;
}

/* The socket, referenced; 0: there is none. */
static __always_inline struct bpf_sock *rv_socket(void *ctx, struct rv_packet *is)
{
	struct bpf_sock_tuple t = {};
	u32 i;

	if (is->version == 4) {
		t.ipv4.saddr = is->from_word[3];
		t.ipv4.daddr = is->to_word[3];
		t.ipv4.sport = is->from_port;
		t.ipv4.dport = is->to_port;
		if (is->protocol == RV_TCP)
			return bpf_sk_lookup_tcp(ctx, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
		return bpf_sk_lookup_udp(ctx, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	for (i = 0; i < 4; i++) {
		t.ipv6.saddr[i] = is->from_word[i];
		t.ipv6.daddr[i] = is->to_word[i];
	}
	t.ipv6.sport = is->from_port;
	t.ipv6.dport = is->to_port;
	if (is->protocol == RV_TCP)
		return bpf_sk_lookup_tcp(ctx, &t, sizeof(t.ipv6), BPF_F_CURRENT_NETNS, 0);
	return bpf_sk_lookup_udp(ctx, &t, sizeof(t.ipv6), BPF_F_CURRENT_NETNS, 0);
}

enum rv_route { RV_AWAY, RV_OURS, RV_NO_ROUTER };

/*
 * Where it goes. A socket is found for an address that is not ours too: one that is bound to none,
 * or that may bind any (IP_FREEBIND). So the routes are asked, which answer at once where nothing
 * is forwarded.
 */
static __always_inline enum rv_route rv_route(void *ctx, u32 ifindex, struct rv_packet *is)
{
	struct bpf_fib_lookup f = {};
	long answer;
	u32 i;

	f.family = is->version == 4 ? RT_AF_INET : RT_AF_INET6;
	f.l4_protocol = is->protocol;
	f.ifindex = ifindex;
	if (is->version == 4) {
		f.source[0] = is->from_word[3];
		f.destination[0] = is->to_word[3];
	} else {
		for (i = 0; i < 4; i++) {
			f.source[i] = is->from_word[i];
			f.destination[i] = is->to_word[i];
		}
	}
	answer = bpf_fib_lookup(ctx, &f, sizeof(f), 0);
	if (answer < 0 || answer == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return RV_NO_ROUTER;
	return answer == BPF_FIB_LKUP_RET_NOT_FWDED ? RV_OURS : RV_AWAY;
}

/*
 * Whether the packet is surely for this socket. A router may translate addresses: what is sent to
 * a port of ours may belong to a machine behind us, whatever socket has that port. A socket that is
 * connected to the sender has it alone.
 */
static __always_inline bool rv_surely(struct bpf_sock *sk, enum rv_route route)
{
	return route == RV_NO_ROUTER || sk->dst_port;
}

static __always_inline u64 rv_living(u64 node)
{
	return node && rt_node(resource_number, node) ? node : 0;
}

/* Of a word that says for which resource of this number it is (rt_stored_word). */
static __always_inline u64 rv_noted(u64 word)
{
	return (u16)(word >> 16) == stored_now ? rv_living(word & ~0xffff0000ULL) : 0;
}

static __always_inline u64 rv_stored(u64 slots, u64 at)
{
	return rv_noted(rt_word_at(slots + at + 8 * (resource_number & (RT_RESOURCES - 1))));
}

/* The queue of a socket; 0: nobody has said. */
static __always_inline u64 rv_tag(struct bpf_sock *sk)
{
	u64 key = (u64)sk, node, noted, slots;
	struct rt_sock *s;
	u32 at;

	if (tags_stored) {
		slots = rt_storage_of(RT_CAST(sock, sk));
		if (!slots)
			return 0;
		node = rv_stored(slots, __builtin_offsetof(struct rt_sock, slot));
		return node ? node : rv_stored(slots, __builtin_offsetof(struct rt_sock, sent));
	}
	s = bpf_map_lookup_elem(&socks, &key);
	if (!s)
		return 0;
	at = resource_number & (RT_RESOURCES - 1);
	node = rv_living(s->slot[at]);
	noted = rt_sent_bound(s, at, node);
	noted = noted ? rv_noted(noted) : 0;
	if (noted)
		return noted;
	return node ? node : rv_noted(s->sent[at]);
}

/* What the link's rules say: the other side is who sent it. 0: nothing. */
static __always_inline u64 rv_by_rules(struct rv_packet *is)
{
	u32 first = 0, resource = resource_number;
	void *inner = bpf_map_lookup_elem(&packet_rules, &resource);
	struct rt_packet_table *table;
	struct rt_packet p = {};

	if (!inner)
		return 0;
	table = bpf_map_lookup_elem(inner, &first);
	if (!table)
		return 0;
	p.remote[0] = is->from[0];
	p.remote[1] = is->from[1];
	p.port = bpf_ntohs(is->from_port);
	p.local_port = bpf_ntohs(is->to_port);
	p.protocol = is->protocol;
	p.version = is->version;
	return rt_first_fit(table, &p, resource);
}
