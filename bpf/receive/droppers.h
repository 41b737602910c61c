/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose packets were dropped at a queue's entrance, so that its owner knows whom to keep out
 * (Resource Containers 4.8 and 5.7: an application is told of the SYNs that it lost).
 *
 * Problem. Senders may be forged, and there may be any number of them: a table with all of them
 * could be filled by one tenant at the cost of the others.
 *
 * Idea. Each queue has K places of its own for prefixes, and the rule of Space-Saving (Metwally,
 * Agrawal and El Abbadi 2005): a prefix without a place takes that of the least count, and goes on
 * from that count, which is noted as what it may be too large by.
 *
 * Bounds, of N packets that were dropped: whose part is more than N / K has a place; a count is
 * not less than what it counts, and at most what is noted, itself at most N / K, too large; the
 * counts come to N. A queue without drops has no table.
 */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, RT_NODES_MAX);
	__type(key, u64); /* packed handle of the queue */
	__type(value, struct rv_droppers);
} droppers SEC(".maps");

/* What a queue begins with: too large for a program's stack. */
static const struct rv_droppers rv_no_droppers;

/* The prefix of who sent it: /24 of IPv4, /64 of IPv6. */
static __always_inline void rv_prefix(struct rv_packet *is, u64 *prefix)
{
	union {
		u64 half[2];
		u32 word[4];
	} of = { .half = { is->from[0], is->from[1] } };

	if (is->version == 4)
		of.word[3] &= bpf_htonl(0xffffff00);
	else
		of.half[1] = 0;
	prefix[0] = of.half[0];
	prefix[1] = of.half[1];
}

/* A function that the verifier sees once. */
__noinline int rv_note_dropper(u64 node, struct rv_packet *is, u32 packets)
{
	u64 prefix[2], least = ~0ULL;
	struct rv_droppers *d;
	struct rv_dropper *o;
	u32 i, at = 0, has;

	if (!is)
		return 0;
	rv_prefix(is, prefix);
	d = bpf_map_lookup_elem(&droppers, &node);
	if (!d) {
		bpf_map_update_elem(&droppers, &node, &rv_no_droppers, BPF_NOEXIST);
		/* Who takes a queue away says so before he looks for its table: one of us sees it. */
		if (!rv_entrance(node)) {
			bpf_map_delete_elem(&droppers, &node);
			return 0;
		}
		d = bpf_map_lookup_elem(&droppers, &node);
		if (!d)
			return 0;
	}
	bpf_spin_lock(&d->lock);
	for (i = 0; i < RV_DROPPERS; i++) {
		o = &d->of[i];
		/* Without a jump: both sides of each would be seen in each round. */
		has = (o->from[0] == prefix[0]) & (o->from[1] == prefix[1]) & (o->count != 0);
		if (has) {
			at = i;
			break;
		}
		if (o->count < least) {
			least = o->count;
			at = i;
		}
	}
	/* or the compiler leaves the mask out, which the verifier wants to see */
	asm volatile("" : "+r"(at));
	o = &d->of[at & (RV_DROPPERS - 1)];
	if (i == RV_DROPPERS) {
		o->from[0] = prefix[0];
		o->from[1] = prefix[1];
		o->over = o->count;
	}
	o->count += packets;
	bpf_spin_unlock(&d->lock);
	return 1;
}
