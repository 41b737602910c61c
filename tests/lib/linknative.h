// SPDX-License-Identifier: GPL-2.0-only
/*
 * A link's programs (bpf/net) read as C: their memory, and what is always true of their queues of
 * packets. For linkcheck.c, which looks at a link that runs, and linksim.c, which runs one.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SEC(name)
#define __uint(name, value) char name
#define __ulong(name, value) char name
#define __type(name, value) char name
#define __kptr
#undef __always_inline
#define __always_inline inline __attribute__((always_inline, unused))
#define __noinline __attribute__((noinline, unused))
#define bpf_for(i, from, to) for ((i) = (from); (i) < (to); (i)++)
#define bpf_map_lookup_elem(map, key) native_map(&(map)->type, *(key))
/* whoever includes this says what the maps hold */
static void *native_map(const char *map, uint32_t key);
#define RS_DISK 0
#define RS_ITEMS_THERE(t) RN_ITEMS
static uint64_t sim_now = 1000000000;
#define bpf_ktime_get_ns() sim_now
#define bpf_local_irq_save(flags) (*(flags) = 0)
#ifndef bpf_local_irq_restore
#define bpf_local_irq_restore(flags) ((void)(flags))
#endif
#define bpf_preempt_disable()
#define bpf_preempt_enable()
#include "../../bpf/net/common.h"
#include "../../sched/check.c"

static char seen[RN_PACKETS + 1];

/* A list of packets: its ends, number and bytes; no slot is in two lists. */
static struct rs_fault check_list(struct rn_list *l, const char *of, u32 index)
{
	u32 count = 0, last = 0;
	u64 bytes = 0;

	for (u32 slot = l->head; slot; slot = rn_place(slot)->next) {
		if (slot > places_used || seen[slot])
			RS_FAIL(of, index, "a packet's slot is none, or in two lists", slot, places_used);
		seen[slot] = 1;
		count++;
		bytes += rn_place(slot)->bytes;
		last = slot;
	}
	RS_SAME(of, index, "last packet", l->tail, last);
	RS_SAME(of, index, "packets of a list", l->packets, count);
	RS_SAME(of, index, "bytes of a list", l->bytes, bytes);
	return RS_GOOD;
}

/* The item in service: it may have packets or not. */
static int on_wire(struct rs_item *it)
{
	return it && wire == it->index + 1 && it->state == RS_SERVICE;
}

static struct rs_fault check_item_of(struct rs_node *n, struct rs_item *it, struct rn_list *l)
{
	if (!it || it->queue != n)
		RS_FAIL("queue", n->index, "packets wait, and no item for them", l->packets, 0);
	if (on_wire(it))
		return RS_GOOD;
	RS_SAME("queue", n->index, "state of an item whose packets wait", it->state, (u8)RS_QUEUED);
	RS_SAME("queue", n->index, "length of the first packet", it->edf.length, rn_place(l->head)->bytes);
	return RS_GOOD;
}

static struct rs_fault check_packets(struct rs_tree *t)
{
	u32 all = 0, kept = 0, flows = 0, unused = 0;

	memset(seen, 0, sizeof(seen));
	for (u32 i = 0; i < t->nodes_used; i++) {
		struct rs_node *n = &t->nodes[i];
		struct rn_queue *q = rn_queue(n);
		u32 packets = q->own.packets;
		u64 bytes = q->own.bytes;

		kept += q->packets < q->room ? q->room - q->packets : 0;
		if (n->kind != RS_QUEUE || q->gen != n->gen) {
			if (q->room || (n->kind == RS_FREE && q->packets))
				RS_FAIL("queue", i, "gone, and has packets or slots", q->packets, q->room);
			continue;
		}
		RS_CHECKED(check_list(&q->own, "queue", i));
		if (taken_away == i + 1)
			RS_SAME("queue", i, "item of one that is taken away", !!q->item, 0);
		else if (q->own.packets)
			RS_CHECKED(check_item_of(n, q->item, &q->own));
		else if (q->item && !on_wire(q->item))
			RS_SAME("queue", i, "state of an item without packets", q->item->state, (u8)RS_IDLE);
		for (u32 at = q->flows, before = 0; at; before = at, at = rn_flow(at - 1)->next) {
			struct rn_flow *f = rn_flow(at - 1);

			RS_SAME("queue", i, "queue of a flow", f->node, i);
			RS_SAME("queue", i, "flow before", f->prev, before);
			RS_CHECKED(check_list(&f->list, "flow", at - 1));
			RS_CHECKED(check_item_of(n, &t->items[at - 1], &f->list));
			packets += f->list.packets;
			bytes += f->list.bytes;
			if (++flows > flows_used)
				RS_FAIL("queue", i, "more flows than there are", flows, flows_used);
		}
		RS_SAME("queue", i, "packets of a queue", q->packets, packets);
		RS_SAME("queue", i, "bytes of a queue", q->bytes, bytes);
		all += packets;
	}
	for (u32 slot = free_place; slot; slot = rn_place(slot)->next) {
		if (slot > places_used || seen[slot])
			RS_FAIL("slots", slot, "a free slot is none, or in use", slot, places_used);
		seen[slot] = 1;
		unused++;
	}
	RS_SAME("link", 0, "flows", flows_used, flows);
	RS_SAME("link", 0, "packets that wait", waiting, all);
	RS_SAME("link", 0, "slots, used and free", places_used, all + unused);
	RS_SAME("link", 0, "slots that are kept", owed, kept);
	return RS_GOOD;
}
