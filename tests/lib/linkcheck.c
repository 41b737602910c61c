// SPDX-License-Identifier: GPL-2.0-only
/*
 * linkcheck FOLDER: the invariants of a link that runs, FOLDER being that of its pinned programs:
 * those of the scheduling core (sched/check.c), on the tree in the kernel's own memory, and those
 * of its queues of packets. A line of input is one check; a line of output says what came of it:
 *
 *   sound NODES ITEMS PACKETS    or    fault: WHAT …
 *
 * While it is looked at, no packet leaves (dequeue waits for `hold_ns`) and nothing else runs on
 * this CPU; if the tree has changed nevertheless, by another CPU, it is looked at again. `break`
 * changes a count of the core for the time of a check, `break-queue` one of a queue: both must be
 * found.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "planemap.h"
#include "linknative.h"

#define HOLD_NS 8000000ULL

static struct variable WANTED[] = {
	VARIABLE(tree_at), VARIABLE(queues_at), VARIABLE(places_at), VARIABLE(flows_at), VARIABLE(buckets_at), VARIABLE(free_place), VARIABLE(places_used), VARIABLE(flows_used), VARIABLE(waiting), VARIABLE(owed),
	VARIABLE(clock_max), VARIABLE(next_ns), VARIABLE(wire), { "hold_ns", 0, sizeof(u64), 0 },
};
#define WANTED_COUNT (sizeof(WANTED) / sizeof(*WANTED))

/* Nothing here asks for what is in maps. */
static void *native_map(const char *map, uint32_t key)
{
	return (void)map, (void)key, (void *)0;
}

struct moment {
	u64 seq, service, served, clock, next;
	u32 waiting, used, free, pad; /* compared as bytes */
};

static struct moment moment(void)
{
	take_variables(WANTED, WANTED_COUNT);
	struct rs_tree *t = pl_tree();

	return (struct moment){ t->seq, t->nodes[0].service, t->nodes[0].served, clock_max, next_ns, waiting, places_used, free_place, 0 };
}

int main(int count, char **words)
{
	char line[64];

	need(count == 2, "linkcheck FOLDER");
	open_programs(words[1], "rn_edit", (void *)RN_ARENA_AT, (size_t)RN_ARENA_PAGES * RN_PAGE, WANTED, WANTED_COUNT);
	need(!sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 50 }), "SCHED_FIFO");
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		struct rs_fault f = RS_GOOD;
		u32 tries;

		for (tries = 0; tries < 200; tries++) {
			/* Where it stands beyond that anyway, it stays. */
			volatile u64 *hold = (u64 *)WANTED[WANTED_COUNT - 1].at;
			u64 until = now() + HOLD_NS;

			if (*hold < until)
				*hold = until;
			struct moment before = moment();
			struct rs_tree *t = pl_tree();
			struct rn_queue *q = rn_queue(&t->nodes[1]);
			int core = !strcmp(line, "break\n"), queue = !strcmp(line, "break-queue\n");

			t->nodes[0].nrun += core;
			q->bytes += queue;
			f = rs_check(t);
			if (!f.line)
				f = check_packets(t);
			q->bytes -= queue;
			t->nodes[0].nrun -= core;
			struct moment after = moment();

			if (!memcmp(&before, &after, sizeof(before)))
				break;
			usleep(500);
		}
		struct rs_tree *t = pl_tree();

		if (tries == 200)
			printf("fault: the tree never stands still, in %u tries\n", tries);
		else if (f.line)
			printf("fault: %s %u: %s: %lld, %lld (line %u)\n", f.of, f.index, f.what, (long long)f.a, (long long)f.b, f.line);
		else
			printf("sound %u %u %u\n", t->nodes_used, t->items_used, waiting);
		fflush(stdout);
	}
	return 0;
}
