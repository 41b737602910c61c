/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rules about who comes (Resource Containers 4.8: filters <address, CIDR mask> and complements, for
 * programs that cannot be changed): whose a packet is, and how many may come in. They are asked
 * before a route or a socket is looked for, so that what is dropped has cost nothing.
 *
 * The daemon cuts all addresses into ranges at each end of a prefix. A range has the rules that are
 * asked there, one behind the other: those of the longest prefix first, of equals in the order in
 * which they were told; then complements, then those for everybody. The first that fits decides.
 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RV_COUNTS_MAX);
	__type(key, u32);
	__type(value, struct rv_limit);
} limits SEC(".maps");

/* One table, which is replaced as a whole: a packet sees the old rules or the new ones. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(max_entries, 1);
			__type(key, u32);
			__type(value, struct rv_table);
		});
} arrivals SEC(".maps");

/*
 * The first rule to be asked: that of the last range that begins at the address or before. Here and
 * below: functions that the verifier sees once, whatever it knows of the packet where they are
 * called; inline, they were most of a million instructions.
 */
__noinline u32 rv_first_rule(struct rv_table *table, struct rv_packet *is)
{
	u64 high = 0, low;
	u32 i, from = 0, to, at;

	if (!table || !is)
		return RV_NO_RULE;
	if (is->version == 4) {
		low = bpf_ntohl(is->from_word[3]);
		to = table->edges4;
	} else {
		high = bpf_be64_to_cpu(is->from[0]);
		low = bpf_be64_to_cpu(is->from[1]);
		from = table->edges4;
		to = table->edges;
	}
	/* Of more than 2^9 and fewer than 2^10. */
	for (i = 0; i < 10; i++) {
		u32 middle = (from + to) / 2;
		struct rv_edge *e;

		if (to - from <= 1)
			break;
		at = middle;
		/* or the compiler leaves the mask out, which the verifier wants to see */
		asm volatile("" : "+r"(at));
		e = &table->edge[at & (RV_EDGES_MAX - 1)];
		if (e->high < high || (e->high == high && e->low <= low))
			from = middle;
		else
			to = middle;
	}
	at = from;
	asm volatile("" : "+r"(at));
	return table->edge[at & (RV_EDGES_MAX - 1)].rule;
}

/* The rule that a packet fits: its index; RV_NO_RULE: none. */
__noinline u32 rv_rule(struct rv_table *table, struct rv_packet *is)
{
	u32 i, rule, at, local;

	if (!table || !is)
		return RV_NO_RULE;
	local = bpf_ntohs(is->to_port);
	rule = rv_first_rule(table, is);
	for (i = 0; i < RV_CHAIN_MAX; i++) {
		struct rv_rule *r;
		u64 miss;

		at = rule;
		if (at >= RV_RULES_MAX)
			break;
		asm volatile("" : "+r"(at));
		r = &table->rule[at & (RV_RULES_MAX - 1)];
		/* One jump for all parts. A difference below 0 has its upper bits set. */
		miss = (is->from[0] ^ r->address[0]) & r->mask[0];
		miss |= (is->from[1] ^ r->address[1]) & r->mask[1];
		miss = (miss != 0) ^ r->complement;
		miss |= ((is->version ^ r->version) & r->version_mask) |
			((is->protocol ^ r->protocol) & r->protocol_mask);
		miss |= ((u64)local - r->local_first) >> 32 | ((u64)r->local_last - local) >> 32;
		if (!miss)
			return rule;
		rule = r->next;
	}
	return RV_NO_RULE;
}

static __always_inline struct rv_rule *rv_ruled(struct rv_packet *is)
{
	u32 first = 0, at;
	void *inner = bpf_map_lookup_elem(&arrivals, &first);
	struct rv_table *table;

	if (!inner || !is->version)
		return 0;
	table = bpf_map_lookup_elem(inner, &first);
	if (!table)
		return 0;
	at = rv_rule(table, is);
	if (at >= RV_RULES_MAX)
		return 0;
	asm volatile("" : "+r"(at));
	return &table->rule[at & (RV_RULES_MAX - 1)];
}

/* Whether what a rule counts at `at` may come in; `out`: its first fragment did not. */
static __always_inline bool rv_lets_in(u32 at, u32 packets, u32 bytes, bool out)
{
	struct rv_limit *l = bpf_map_lookup_elem(&limits, &at);

	if (!l)
		return true;
	if (out || l->nothing ||
	    (l->period &&
	     !rv_eligible(&l->lock, &l->eligible, l->period, l->credit, packets))) {
		__sync_fetch_and_add(&l->dropped, packets);
		return false;
	}
	__sync_fetch_and_add(&l->packets, packets);
	__sync_fetch_and_add(&l->bytes, bytes);
	return true;
}
