// SPDX-License-Identifier: GPL-2.0-only
/*
 * linksim: a link's programs (bpf/net) without a kernel: what the qdisc's events and the daemon's
 * calls do to queues and tree, by the programs' own code, on a clock that the caller sets.
 * bpf/net/ops.h itself, which is the kernel's buffers, is not here: `come` and `go` are what its
 * enqueue and dequeue do besides. A line of input, a line of output:
 *
 *   time NS                            -> ok
 *   come ID BYTES HASH                 -> SLOT, where the packet waits; 0: refused. HASH: its
 *                                      flow's; 0: not known
 *   go                                 -> sent SLOT NS (when it will be through), none NS (when to
 *                                      ask again; 0: at the next packet) or hold NS
 *   edit CODE NODE PARENT A B …        -> ERROR FAILED SLOT (of a packet that came meanwhile; -1:
 *                                      none did)
 *   meanwhile ID BYTES HASH            -> ok: it comes between two sections of the next edit, when
 *                                      a queue is taken away. BYTES 0: none does, and the edit
 *                                      waits for the lock in vain then; 1: the device's queue is
 *                                      reset, and the slot is 0
 *   do WHAT NODE A B                   -> ANSWER
 *   node ID                            -> gone, or PACKETS BYTES DROPPED DROPPED_BYTES SERVED SERVICE
 *   reset | poison                     -> ok
 *   hold 0|1                           -> whether the lock was taken before; it is then, or is not
 *   check                              -> sound, or fault: …
 */
/* Pieces so small that a tree of a dozen nodes has several. */
#define RS_CHANGE_FEW 2
#define RS_CHANGE_PIECE 2
#define RS_CHANGE_SLOTS 4
#define RS_RESET_PIECE 4
#define RS_LENGTHS_PIECE 1
#define RS_LENGTHS_SLOTS 3
#define RN_MERGE_PIECE 2
#define RN_CLEAR_PIECE 3
#define RN_WAKE_PIECE 2
#define RN_WAKE_LOOKS 3
/* A batch takes away the first queue that it deletes, however short it is; or it does not. */
static unsigned int steps_max;
#define RN_STEPS_MAX steps_max
/* A section of the lock ends: what is always true is true then, too. */
static void between(void);
#define bpf_local_irq_restore(flags) ((void)(flags), between())
#include "linknative.h"

#define BPF_PROG(name, args...) name(args)
#define bpf_arena_alloc_pages(map, at, pages, node, flags) ((void)(pages), (at))
#define bpf_arena_free_pages(map, at, pages) ((void)(at))
#include "../../bpf/net/queues.h"
#include "../../bpf/net/room.h"
#include "../../bpf/net/control.h"

static struct rs_fault broken; /* the first, between two pieces */

/* Where lengths matter the tree knows those of the queues' first packets. */
static struct rs_fault check_lengths(struct rs_tree *t)
{
	for (u32 i = 0; i < t->nodes_used && (t->mode & RS_MODE_LENGTH) && !lengths_at; i++) {
		struct rs_node *n = &t->nodes[i];

		if (n->kind == RS_QUEUE && n->ready.n && !n->nsvc && !n->throttled)
			RS_SAME("queue", i, "length that it has in the tree", n->head, ((struct rs_item *)n->ready.e[0].obj)->edf.length);
	}
	return RS_GOOD;
}

/* Nothing is chosen below a root whose policy is changing. */
static struct rs_fault check_root(struct rs_tree *t)
{
	if (!t->changes || wire || !waiting || !(t->nodes[0].throttled & RS_FROZEN))
		return RS_GOOD;
	RS_SAME("tree", 0, "packet that leaves while the root's policy changes", rn_choose(sim_now), 0u);
	RS_SAME("tree", 0, "when the device asks again", wait_ns > sim_now && wait_ns <= sim_now + RN_AGAIN_NS, 1);
	return RS_GOOD;
}

/* Of a queue that is taken away nothing is chosen, and the device asks again. */
static struct rs_fault check_away(struct rs_tree *t)
{
	struct rn_queue *q = rn_queue(&t->nodes[(taken_away - 1) & (RS_NODES_MAX - 1)]);

	if (!taken_away || wire || !waiting || waiting != q->packets)
		return RS_GOOD;
	RS_SAME("tree", 0, "packet that leaves of a queue that is taken away", rn_choose(sim_now), 0u);
	RS_SAME("tree", 0, "when the device asks again", wait_ns > sim_now && wait_ns <= sim_now + RN_AGAIN_NS, 1);
	return RS_GOOD;
}

/* The packet that comes then, and the slot that it got; -1: it did not come. */
static u64 meanwhile_id, meanwhile_bytes, meanwhile_hash;
static int meanwhile, meanwhile_slot;

static struct rn_state the_state;
static struct rn_io the_io;

static u32 come(u64 id, u64 bytes, u64 hash)
{
	rn_coming();
	return rn_admit(id, bytes, (u64)the_state.limit_bytes << 32 | the_state.limit_packets, hash ? 1ULL << 32 | hash : 0);
}

static struct rs_fault look(void)
{
	struct rs_fault f = rs_check(pl_tree());

	if (!f.line)
		f = check_packets(pl_tree());
	return f.line ? f : check_lengths(pl_tree());
}

static void between(void)
{
	if (!tree_at || pl_tree()->poison || anew || broken.line)
		return;
	broken = look();
	if (!broken.line)
		broken = check_root(pl_tree());
	if (!broken.line)
		broken = check_away(pl_tree());
	if (broken.line || !taken_away || !meanwhile)
		return;
	meanwhile = 0;
	if (meanwhile_bytes == 1) {
		meanwhile_slot = 0;
		rn_anew(RN_FORGET);
	} else if (meanwhile_bytes) {
		meanwhile_slot = come(meanwhile_id, meanwhile_bytes, meanwhile_hash);
		broken = look();
	} else {
		tree_lock = lock_late = 1;
	}
}

static void *native_map(const char *map, uint32_t key)
{
	(void)key;
	return map == &state.type ? (void *)&the_state : map == &io.type ? (void *)&the_io : 0;
}

static u64 word(char **at)
{
	return strtoull(*at, at, 10);
}

static void edit(char *at)
{
	static u64 seq;
	struct rn_call call = { 0 };
	u32 count = 0;

	memset(&the_io, 0, sizeof(the_io));
	while (*at && *at != '\n' && count < RS_BATCH_MAX) {
		struct rs_op *op = &the_io.batch.op[count++];

		op->code = word(&at);
		op->node = word(&at);
		op->parent = word(&at);
		op->a = word(&at);
		op->b = word(&at);
	}
	the_io.batch.seq = ++seq;
	the_io.batch.count = count;
	meanwhile_slot = -1;
	steps_max = meanwhile ? RN_STEPS_DELETED * RS_DEPTH_MAX : 5800;
	rn_edit(&call);
	if (call.answer)
		seq--;
	meanwhile = tree_lock = lock_late = 0;
	printf("%d %u %d\n", call.answer, the_io.batch.failed, meanwhile_slot);
}

static void go(void)
{
	u32 slot;

	if (!waiting) {
		asked = 1;
		printf("none 0\n");
	} else if (link_rate && rs_before(sim_now, hold_ns)) {
		printf("hold %llu\n", (unsigned long long)hold_ns);
	} else {
		slot = rn_choose(sim_now);
		if (slot)
			printf("sent %u %llu\n", slot, (unsigned long long)next_ns);
		else
			printf("none %llu\n", (unsigned long long)wait_ns);
	}
}

static void node(u64 id)
{
	struct rn_call call = { .node = id };
	struct rn_node *n = &the_io.node[0];

	rn_sample_one(&call);
	if (call.answer)
		printf("gone\n");
	else
		printf("%u %llu %llu %llu %llu %llu\n", n->packets, (unsigned long long)n->bytes, (unsigned long long)n->dropped, (unsigned long long)n->dropped_bytes,
		       (unsigned long long)n->served, (unsigned long long)n->service);
}

int main(void)
{
	struct rn_call call = { 0 };
	static char line[1 << 16];

	if (mmap((void *)RN_ARENA_AT, (size_t)RN_ARENA_PAGES * RN_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0) !=
	    (void *)RN_ARENA_AT)
		return 1;
	rn_setup(&call);
	while (fgets(line, sizeof(line), stdin)) {
		char *at = line + strcspn(line, " \n");

		if (!strncmp(line, "time", 4)) {
			sim_now = word(&at);
			printf("ok\n");
		} else if (!strncmp(line, "come", 4)) {
			u64 id = word(&at), bytes = word(&at), hash = word(&at);

			printf("%u\n", come(id, bytes, hash));
		} else if (!strncmp(line, "meanwhile", 9)) {
			meanwhile_id = word(&at);
			meanwhile_bytes = word(&at);
			meanwhile_hash = word(&at);
			meanwhile = 1;
			printf("ok\n");
		} else if (!strncmp(line, "go", 2)) {
			go();
		} else if (!strncmp(line, "edit", 4)) {
			edit(at);
		} else if (!strncmp(line, "do", 2)) {
			call.what = word(&at);
			call.node = word(&at);
			call.a = word(&at);
			call.b = word(&at);
			rn_do(&call);
			printf("%d\n", call.answer);
		} else if (!strncmp(line, "node", 4)) {
			node(word(&at));
		} else if (!strncmp(line, "reset", 5)) {
			rn_anew(RN_FORGET);
			printf("ok\n");
		} else if (!strncmp(line, "hold", 4)) {
			printf("%u\n", tree_lock);
			tree_lock = word(&at);
		} else if (!strncmp(line, "poison", 6)) {
			rs_poison(pl_tree(), RS_POISON_STATE);
			printf("ok\n");
		} else {
			struct rs_fault f = broken.line ? broken : look();

			if (f.line)
				printf("fault: %s %u: %s: %lld, %lld (line %u)\n", f.of, f.index, f.what, (long long)f.a, (long long)f.b, f.line);
			else
				printf("sound\n");
		}
		fflush(stdout);
	}
	return 0;
}
