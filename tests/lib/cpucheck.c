// SPDX-License-Identifier: GPL-2.0-only
/*
 * cpucheck FOLDER: the invariants of the scheduling core (sched/check.c) on the tree of the CPU
 * that runs, FOLDER being that of its pinned programs. A line of input is one check; a line of
 * output says what came of it:
 *
 *   sound NODES ITEMS QUEUED POSTED    or    fault: WHAT …
 *
 * The tree is copied while a real-time thread on each CPU keeps all that it schedules from running;
 * if a section of its lock was entered nevertheless, by an interrupt or a thread of a higher class,
 * it is copied again. The copy lies where the arena was, so that its pointers are good, and what is
 * posted is drained in it by the core's own code first. `break` changes a count of the copy, which
 * must be found.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include "planemap.h"

/* As bpf/cpu/common.h has them. */
#define RS_DISK 0
#define RS_LENGTHS 0
#include "../../sched/core.c"
#include "../../sched/check.c"
#include "../../bpf/abi.h"

#define RC_ARENA_BYTES ((size_t)RC_ARENA_PAGES * RC_PAGE)

#define CPUS_MAX 64
#define TRIES 500
#define HOLD_NS 50000000ULL /* nobody is kept from running for longer, whatever happens */

static u64 tree_at, section_count;
static u32 tree_lock;
static struct variable WANTED[] = {
	VARIABLE(tree_at), VARIABLE(section_count), VARIABLE(tree_lock),
};
#define WANTED_COUNT (sizeof(WANTED) / sizeof(*WANTED))

static volatile u64 hold_until;
static volatile u32 held[CPUS_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begin = PTHREAD_COND_INITIALIZER;

static void *hold(void *which)
{
	volatile u32 *mine = which;

	for (;;) {
		pthread_mutex_lock(&mutex);
		while (!hold_until)
			pthread_cond_wait(&begin, &mutex);
		pthread_mutex_unlock(&mutex);
		*mine = 1;
		for (u64 until = hold_until; until && now() < until; until = hold_until)
			;
		*mine = 0;
		while (hold_until)
			sched_yield();
	}
	return 0;
}

/* One to hold each CPU but this thread's. A CPU that is away has nothing to hold. */
static u32 start_holders(pthread_t *thread)
{
	u32 cpus = sysconf(_SC_NPROCESSORS_CONF);

	need(cpus <= CPUS_MAX, "so many CPUs");
	need(!sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 50 }), "SCHED_FIFO");
	for (u32 cpu = 1; cpu < cpus; cpu++)
		need(!pthread_create(&thread[cpu], 0, hold, (void *)&held[cpu]), "a thread");
	return cpus;
}

static u32 pin(pthread_t thread, u32 cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return !pthread_setaffinity_np(thread, sizeof(set), &set);
}

static void hold_others(pthread_t *thread, u32 cpus)
{
	u64 until = now() + HOLD_NS;
	u32 there[CPUS_MAX] = { 0 };

	pin(pthread_self(), 0);
	for (u32 cpu = 1; cpu < cpus; cpu++)
		there[cpu] = pin(thread[cpu], cpu);
	pthread_mutex_lock(&mutex);
	hold_until = until;
	pthread_cond_broadcast(&begin);
	pthread_mutex_unlock(&mutex);
	for (u32 cpu = 1; cpu < cpus; cpu++)
		while (there[cpu] && !held[cpu] && now() < until)
			;
}

static void let_others_go(void)
{
	hold_until = 0;
}

/* What of the arena is in use: header, nodes, hidden nodes, items, heaps. */
struct range { char *at; size_t size; };
enum { RANGES = 5 };

static void ranges(struct rs_tree *t, struct range *r)
{
	char *pool = (char *)(t->items + t->items_max);

	r[0] = (struct range){ (char *)t, sizeof(*t) };
	r[1] = (struct range){ (char *)t->nodes, t->nodes_used * sizeof(struct rs_node) };
	r[2] = (struct range){ (char *)(t->nodes + t->nodes_max - t->hidden_used), t->hidden_used * sizeof(struct rs_node) };
	r[3] = (struct range){ (char *)t->items, t->items_used * sizeof(struct rs_item) };
	r[4] = (struct range){ pool, t->pool - (u64)pool };
}

/* The tree as it was at one moment into `room`. Answers 0 if somebody was at it. */
static int copy_tree(struct range *r, char *room, size_t size)
{
	struct rs_tree *t;
	struct rs_item *posted;
	u64 sections;
	size_t used = 0;

	take_variables(WANTED, WANTED_COUNT);
	t = (struct rs_tree *)tree_at;
	sections = section_count;
	posted = *(struct rs_item *volatile *)&t->posted;
	if (tree_lock)
		return 0;
	ranges(t, r);
	for (u32 i = 0; i < RANGES; used += r[i++].size) {
		if (used + r[i].size > size)
			return 0; /* it is being changed */
		memcpy(room + used, r[i].at, r[i].size);
	}
	take_variables(WANTED, WANTED_COUNT);
	return !tree_lock && section_count == sections && *(struct rs_item *volatile *)&t->posted == posted;
}

struct result {
	struct rs_fault fault;
	u32 nodes, items, queued, posted;
};

/* The arena's place has the copy meanwhile. */
static struct result check_copy(int arena, struct range *r, char *room, u32 cpus, int broken)
{
	struct rs_tree *t = (struct rs_tree *)tree_at;
	struct result result = { .fault = RS_GOOD };
	u32 unlisted = 0;

	need(mmap((void *)RC_ARENA_AT, RC_ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == (void *)RC_ARENA_AT, "room for the copy");
	for (u32 i = 0; i < RANGES; room += r[i++].size)
		memcpy(r[i].at, room, r[i].size);
	t->nodes[0].nrun += broken;
	for (struct rs_item *it = t->posted; it; it = it->post)
		result.posted++;
	if (t->posted)
		rs_drain(t, rs_posts(t));
	for (u32 i = 0; i < t->items_used; i++) {
		/* Its owner has written so, and has it on the list in the next instruction. */
		if (t->items[i].state == RS_POSTED) {
			t->items[i].state = RS_IDLE;
			unlisted++;
		}
		result.items += t->items[i].state != RS_ITEM_FREE;
		result.queued += t->items[i].state == RS_QUEUED;
	}
	for (u32 i = 0; i < check_slots(t); i++)
		result.nodes += rs_slot(t, i)->kind != RS_FREE;
	result.fault = rs_check(t);
	if (!result.fault.line && unlisted > cpus)
		result.fault = (struct rs_fault){ __LINE__, "items are posted and on no list", "tree", 0, unlisted, cpus };
	need(mmap((void *)RC_ARENA_AT, RC_ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena, 0) == (void *)RC_ARENA_AT, "map the arena again");
	return result;
}

int main(int count, char **words)
{
	static char room[RC_ARENA_BYTES];
	pthread_t thread[CPUS_MAX];
	struct range r[RANGES];
	char line[64];

	need(count == 2, "cpucheck FOLDER");
	int arena = open_programs(words[1], "rc_call", (void *)RC_ARENA_AT, RC_ARENA_BYTES, WANTED, WANTED_COUNT);

	take_variables(WANTED, WANTED_COUNT);
	struct rs_tree *t = (struct rs_tree *)tree_at;

	need(tree_at && t->magic == RS_MAGIC && t->bytes == sizeof(*t) && t->node_bytes == sizeof(struct rs_node) && t->item_bytes == sizeof(struct rs_item), "a tree of this version");
	u32 cpus = start_holders(thread);

	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		u32 tries = 0, good = 0;

		while (!good && tries++ < TRIES) {
			hold_others(thread, cpus);
			for (u32 k = 0; !good && k < 5; k++)
				good = copy_tree(r, room, sizeof(room));
			let_others_go();
			if (!good)
				usleep(2000);
		}
		if (!good) {
			printf("fault: the tree never stands still, in %u tries\n", tries);
		} else {
			struct result got = check_copy(arena, r, room, cpus, !strcmp(line, "break\n"));
			struct rs_fault f = got.fault;

			if (f.line)
				printf("fault: %s %u: %s: %lld, %lld (line %u)\n", f.of, f.index, f.what, (long long)f.a, (long long)f.b, f.line);
			else
				printf("sound %u %u %u %u\n", got.nodes, got.items, got.queued, got.posted);
		}
		fflush(stdout);
	}
	return 0;
}
