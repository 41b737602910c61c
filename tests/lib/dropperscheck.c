// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose packets were dropped (bpf/receive/droppers.h), read as C of this machine, beside a count of
 * every prefix: random senders, few and many, of one weight and of several, some of whom send most.
 * Prints how often it looked; ends with 1 where a bound of Space-Saving does not hold.
 */
#include "kernelnative.h"

struct task_struct *native_current;
#define bpf_htonl(x) __builtin_bswap32(x)
#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
#define bpf_spin_lock(lock) ((void)(lock))
#define bpf_spin_unlock(lock) ((void)(lock))
#define bpf_xdp_load_bytes(ctx, offset, to, size) (-1)
#define bpf_skb_load_bytes_relative(skb, offset, to, size, start) (-1)
#define RT_NODES_MAX 16384
#include "../../bpf/ip.h"
#include "../../bpf/receive/abi.h"
#include "../../bpf/receive/packet.h"

static struct rv_droppers table;
static bool there, living = true;
#undef bpf_map_lookup_elem
#undef bpf_map_update_elem
#undef bpf_map_delete_elem
#define bpf_map_lookup_elem(map, key) (there ? &table : 0)
#define bpf_map_update_elem(map, key, value, flags) (table = *(value), there = true)
#define bpf_map_delete_elem(map, key) (there = false)
static bool rv_entrance(u64 node)
{
	return living;
}
#include "../../bpf/receive/droppers.h"

#define SENDERS 4096

static u64 state = 88172645463325252ULL, looks;

static u32 dice(u32 below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static struct rv_packet from(u32 sender)
{
	struct rv_packet is = {};

	if (sender & 1) {
		is.version = 6;
		is.from_word[0] = bpf_htonl(0xfd000000 | sender);
		is.from_word[2] = dice(1000);
		is.from_word[3] = dice(1000);
	} else {
		is.version = 4;
		is.from_word[2] = bpf_htonl(0xffff);
		is.from_word[3] = bpf_htonl(10 << 24 | sender << 8 | dice(256));
	}
	return is;
}

static bool is_of(struct rv_dropper *o, u32 sender)
{
	struct rv_packet is = from(sender);
	u64 wanted[2] = { is.from[0], is.from[1] };

	if (is.version == 6)
		wanted[1] = 0;
	else
		((u8 *)wanted)[15] = 0;
	return o->from[0] == wanted[0] && o->from[1] == wanted[1];
}

static void fail(const char *what)
{
	printf("not so: %s\n", what);
	exit(1);
}

static void look(const u64 *true_count, u32 senders, u64 total)
{
	u64 sum = 0;
	u32 i, sender, k;

	for (i = 0; i < RV_DROPPERS; i++) {
		struct rv_dropper *o = &table.of[i];

		sum += o->count;
		if (!o->count)
			continue;
		for (k = 0; k < i; k++)
			if (table.of[k].count && table.of[k].from[0] == o->from[0] && table.of[k].from[1] == o->from[1])
				fail("a prefix has one place");
		for (sender = 0; sender < senders && !is_of(o, sender); sender++)
			;
		if (sender == senders)
			fail("it is somebody's prefix");
		if (o->count < true_count[sender] || o->count - o->over > true_count[sender])
			fail("a count is too large by no more than it says");
		if (o->over > total / RV_DROPPERS)
			fail("by a part of all at most");
	}
	if (sum != total)
		fail("the counts come to all");
	for (sender = 0; sender < senders; sender++) {
		if (true_count[sender] <= total / RV_DROPPERS)
			continue;
		for (i = 0; i < RV_DROPPERS && !(table.of[i].count && is_of(&table.of[i], sender)); i++)
			;
		if (i == RV_DROPPERS)
			fail("who has more than his part is named");
	}
	looks++;
}

int main(void)
{
	static u64 true_count[SENDERS];
	static const u32 few[] = { 1, 2, 16, 17, 18, 40, SENDERS };
	u32 round, n, sender, senders, heavy, weight;
	u64 total;

	for (round = 0; round < 140; round++) {
		senders = few[round % 7];
		heavy = dice(senders);
		memset(true_count, 0, sizeof(true_count));
		there = false;
		total = 0;
		for (n = 0; n < 3000; n++) {
			sender = dice(10) < round % 9 ? heavy : dice(senders);
			weight = round & 1 ? 1 : 1 + dice(40);
			struct rv_packet is = from(sender);
			rv_note_dropper(7, &is, weight);
			true_count[sender] += weight;
			total += weight;
			if (n < 40 || n % 500 == 0 || n == 2999)
				look(true_count, senders, total);
		}
	}
	living = false;
	there = false;
	struct rv_packet is = from(0);
	rv_note_dropper(7, &is, 1);
	if (there)
		fail("a queue that has gone leaves no table");
	printf("%llu looks\n", (unsigned long long)looks);
	return 0;
}
