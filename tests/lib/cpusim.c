// SPDX-License-Identifier: GPL-2.0-only
/*
 * The CPU's programs (bpf/cpu) beside those of the tags in tagsim.c: what they do about tags of
 * threads and lists, with the scheduler's core and its tree, while nothing is scheduled: threads
 * wait for nothing and run nowhere. Not here: timers, dispatching and the mirror of cgroups.
 */
#define lists cpu_lists /* names of tagsim.c's */
#define uses cpu_uses
#define work cpu_work
#define works cpu_works
#define worklists cpu_worklists
#define ruled cpu_ruled
#define mount_dev cpu_mount_dev
#include "kernelnative.h"
#include "tagsim.h"
#include <sys/mman.h>
#include <unistd.h>

enum { BPF_RB_NO_WAKEUP_ = 1, PF_EXITING = 0x4, PF_LOCAL_THROTTLE = 0x00100000, PF_KTHREAD = 0x00200000, SCHED_BATCH = 3, SCHED_IDLE = 5, SCX_TASK_QUEUED = 1, SCX_KICK_IDLE = 1, TASK_DEAD = 0x80 };
#include <pthread.h> /* has macros of those names */
struct scx_init_task_args {
	bool fork;
};
struct scx_exit_task_args {
	bool cancelled;
};
enum scx_exit_kind { SCX_EXIT_NONE = 0 };
struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};
struct bpf_timer_ {
	u64 opaque[2];
};
struct cpumask {
	unsigned long bits[4];
};
static const struct cpumask one_cpu;
static void native_between(void);
static u64 cpu_now = 1000000000;
static void *arena_take(void);

#define __ulong(name, number) int name##_[1]
#define __kptr
#define scx_bpf_now() __sync_add_and_fetch(&cpu_now, 1000)
#define bpf_ktime_get_ns() (cpu_now += 1000000)
#define bpf_arena_alloc_pages(map, at, pages, node, flags) arena_take()
#define bpf_arena_free_pages(map, at, pages) ((void)(at))
#define bpf_local_irq_save(irq) (*(irq) = 0)
#define bpf_local_irq_restore(irq) ((void)(irq), native_between())
#define bpf_preempt_disable() ((void)0)
#define bpf_preempt_enable() ((void)0)
#define bpf_rcu_read_lock() ((void)0)
#define bpf_rcu_read_unlock() ((void)0)
#define bpf_kptr_xchg(at, p) __sync_lock_test_and_set(at, p)
#define bpf_task_acquire(p) ((p)->held++, (p))
#undef bpf_task_release
#define bpf_task_release(p) ((void)(p)->held--)
#define bpf_probe_write_user(to, from, size) (memcpy(to, from, size), 0)
#define bpf_probe_read_kernel_str(to, size, from) ((void)(from))
#define bpf_ringbuf_output(ring, record, size, flags) 0
#define bpf_task_storage_get(map, p, init, flags)                                                                       \
	((typeof((map)->value))(sizeof(*(map)->value) == sizeof(struct rt_work) ? native_work(p, flags) :             \
				sizeof(*(map)->value) == sizeof(struct rt_slots) ? native_slots(p, flags, sizeof(struct rt_slots)) : \
										   native_storage(p, flags)))
static u32 kicks;
#define scx_bpf_kick_cpu(cpu, flags) ((void)(cpu), (void)kicks++)
#define scx_bpf_pick_idle_cpu(mask, flags) ((void)(mask), -1)
#define scx_bpf_task_running(p) ((void)(p), false)
#define scx_bpf_task_cpu(p) ((void)(p), 0)
#define bpf_get_smp_processor_id() 0
static int ejected;
#define scx_bpf_error_bstr(text, args, size) ((void)(args), (void)(ejected = 1))
#define scx_bpf_get_online_cpumask() (&one_cpu)
#define scx_bpf_put_cpumask(mask) ((void)(mask))
#define scx_bpf_nr_cpu_ids() 1
#define bpf_cpumask_weight(mask) ((void)(mask), 1)
#define bpf_cpumask_test_cpu(cpu, mask) ((void)(cpu), (void)(mask), false)
#define bpf_core_type_size(type) sizeof(type)
#define RS_DISK 0
#define __ksym
#define __weak __attribute__((weak))
struct task_group {
	struct scx_task_group {
		u32 weight;
	} scx;
};
#include "../../bpf/compat.h"
bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 time)
{
	p->scx.dsq_vtime = time;
	return true;
}
static void *native_storage(struct task_struct *p, u64 flags);
#include "../../bpf/cpu/common.h"
static void *native_storage(struct task_struct *p, u64 flags)
{
	_Static_assert(sizeof(struct rc_thread) <= sizeof(p->storage) - 8, "there is room");
	_Static_assert(sizeof(struct rt_work) <= sizeof(p->work) - 8 && sizeof(struct rt_work) != sizeof(struct rc_thread), "and they are told apart");
	if (flags)
		p->storage[0] = 1;
	return p->storage[0] ? &p->storage[1] : 0;
}
#include "../../bpf/cpu/tags.h"
#include "../../bpf/cpu/idle.h"
static bool rc_inside(struct task_struct *p)
{
	(void)p;
	return false;
}
#include "../../bpf/cpu/displace.h"
static u32 starting; /* timer.h */
static void rc_timer_ready(void)
{
}
static void rc_timer_begin(void)
{
}
static void rc_timer_off(void)
{
}
static void rc_graces_ready(void)
{
}
static void rc_mirror_forget(struct rs_tree *t)
{
	(void)t;
}
static u64 rc_group_home(struct scx_init_task_args *args)
{
	(void)args;
	return 0;
}
static bool rc_front(struct rs_node *n, struct rc_node *out)
{
	(void)n;
	(void)out;
	return false;
}
static void rc_front_counts(struct rc_node *out)
{
	(void)out;
}
#include "../../bpf/cpu/floor.h"
#include "../../bpf/cpu/life.h"
#include "../../bpf/cpu/control.h"
#include "../../bpf/cpu/calls.h"

static void *arena_take(void)
{
	void *at = mmap((void *)RC_ARENA_AT, (size_t)RC_ARENA_PAGES * RC_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? 0 : at;
}

/* Maps and calls, as the daemon finds them. */

#define MAP(map)                                                                                                               \
	{                                                                                                                       \
		#map, sizeof(*(map).type) / sizeof(int), sizeof(*(map).key), sizeof(*(map).value), sizeof(*(map).max_entries) / sizeof(int), 0, 0, 0 \
	}
static struct native_map maps[8];
static int memory_of[8];

__attribute__((constructor)) static void begin(void)
{
	struct native_map all[8] = { MAP(io), MAP(state), MAP(tasks), MAP(cpu_lists), MAP(cpu_uses), MAP(accounts), MAP(parts) };
	void *programs[8] = { &io, &state, &tasks, &cpu_lists, &cpu_uses, &accounts, &parts };
	struct rc_call call = { .what = RC_SETUP_FLAT };

	for (u32 i = 0; all[i].name; i++) {
		maps[i] = all[i];
		maps[i].name = strncmp(all[i].name, "cpu_", 4) ? all[i].name : all[i].name + 4;
		NATIVE_MAP(programs[i]) = &maps[i];
		memory_of[i] = -1;
		native_prepare(&maps[i]);
		if (i < 2) {
			size_t size = (maps[i].value + 4095) / 4096 * 4096;

			memory_of[i] = memfd_create(maps[i].name, 0);
			if (ftruncate(memory_of[i], size))
				abort();
			maps[i].array = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_of[i], 0);
		}
	}
	NATIVE_MAP(&works) = native_works();
	rc_setup(&call);
	if (call.answer || rc_init())
		abort();
}

struct native_map *cpu_map(const char *name, int *memory)
{
	for (u32 i = 0; maps[i].name; i++)
		if (!strcmp(maps[i].name, name)) {
			*memory = memory_of[i];
			return &maps[i];
		}
	return 0;
}

int (*cpu_call(const char *name))(void *)
{
	return strcmp(name, "rc_call") ? 0 : (int (*)(void *))rc_call;
}

/* Threads come and go. */

int cpu_begin(struct task_struct *p, bool fork)
{
	struct scx_init_task_args args = { fork };
	int answer = rc_init_task(p, &args);

	if (!answer)
		rc_enable(p);
	return answer;
}

void cpu_forked(struct task_struct *parent, struct task_struct *child)
{
	for (u32 copies = native_copies(3); copies; copies--)
		rc_fork(parent, child);
}

void cpu_execed(struct task_struct *p, s32 before)
{
	for (u32 copies = native_copies(3); copies; copies--)
		rc_execed(p, before);
}

void cpu_exited(struct task_struct *p)
{
	for (u32 copies = native_copies(3); copies; copies--)
		rc_exited(p);
}

/*
 * Threads whose end came while programs held them: a kernel before 6.19 would not have told of it.
 * And those held beyond.
 */
static u32 kept, never;

void cpu_end(struct task_struct *p)
{
	struct scx_exit_task_args args = { false };

	p->__state = TASK_DEAD;
	if (lacks & COMPAT_DEAD)
		rc_quiescent(p, 0);
	kept += p->held != 0;
	rc_disable(p);
	rc_exit_task(p, &args);
	never += p->held != 0;
}

u32 cpu_never(void)
{
	return never;
}

u32 cpu_kept(void)
{
	return kept;
}

u32 cpu_task_held(int tid)
{
	return native_task(tid)->held;
}

/* The thread leaves the scheduler's class, or comes back. */
void cpu_class(int tid, bool ours)
{
	if (ours)
		rc_enable(native_task(tid));
	else
		rc_disable(native_task(tid));
}

/* It sleeps, or is dead. */
void cpu_sleeps(int tid, bool dead)
{
	native_task(tid)->__state = dead ? TASK_DEAD : 1;
	rc_quiescent(native_task(tid), 0);
}

int cpu_fcntl(struct file *file, u32 command, u64 argument)
{
	return rc_fcntl(file, command, argument, 0);
}

/* What tests/host/cpu_programs asks and changes, of a thread by its number. */

/* Another scheduler's. */
void cpu_vtime(int tid, u64 vtime)
{
	native_task(tid)->scx.dsq_vtime = vtime;
}

u64 cpu_item(int tid)
{
	struct rc_thread *th = native_storage(native_task(tid), 0);

	return th ? th->item : 0;
}

u32 cpu_weight(int tid)
{
	return ((struct rs_item *)cpu_item(tid))->weight;
}

u32 cpu_calls(int tid)
{
	return ((struct rs_item *)cpu_item(tid))->calls;
}

void cpu_receive(void)
{
	rc_received();
}

void cpu_nice(int tid, int nice)
{
	struct task_struct *p = native_task(tid);

	p->static_prio = 120 + nice;
	rc_set_weight(p, 0);
}

void cpu_limit(int tid, u64 limit)
{
	native_task(tid)->signal->rlim[RC_RLIMIT_NICE].rlim_cur = limit;
}

void cpu_namespace(int tid, u32 uid, int depth, u32 owner)
{
	native_namespace(tid, uid, depth, owner);
}

/*
 * Whether kernel threads have some of their floor left, by that clock; and they have had so much of
 * it.
 */
bool cpu_floor(u64 now)
{
	return rc_floor(0, now, 0);
}

void cpu_floor_spent(u64 ns)
{
	bucket[0].tok -= ns;
}

static volatile u32 charging;

static void *charged(void *item)
{
	while (charging)
		rc_floor_charge(pl_tree(), item, 0, 0);
	return 0;
}

/*
 * Parameters of a thread come and go, so many times, while steps of it under the floor end on
 * another CPU, which has no lock where it begins one. How often the item's flags did not say what
 * was written.
 */
u32 cpu_flags_lost(int tid, u32 rounds)
{
	struct rs_tree *t = pl_tree();
	struct rs_item *it = (struct rs_item *)cpu_item(tid);
	struct rs_params none = { 0 }, some = { .period_ns = 10000000, .budget_ns = 1000000 };
	pthread_t other;
	u32 lost = 0;

	charging = 1;
	pthread_create(&other, 0, charged, it);
	for (u32 i = 0; i < rounds; i++) {
		t->params = i & 1 ? none : some;
		if (rs_item_params(t, it, 1))
			abort();
		lost += (it->flags & RS_ITEM_PERIODIC ? 0U : 1U) != (i & 1);
	}
	charging = 0;
	pthread_join(other, 0);
	return lost;
}

/* The lock is somebody's who does not give it back, or is free. */
void cpu_hold(u32 held)
{
	tree_lock = held;
}

u32 cpu_held(void)
{
	return tree_lock;
}

/* Whether the scheduler was thrown out, since it was asked last. */
int cpu_ejected(void)
{
	RC_CHECK(pl_tree());
	if (!ejected)
		return 0;
	ejected = 0;
	return 1;
}

/* The kernel throws it out; rc_init brings it back. */
void cpu_exit(void)
{
	struct scx_exit_info info = { 0 };

	rc_exit(&info);
}

/* And brings it back with these threads; what the first refusal was. */
int cpu_comes_again(const int *tids, u32 n)
{
	struct scx_exit_task_args args = { false };
	int answer;

	for (u32 i = 0; i < n; i++) {
		rc_disable(native_task(tids[i]));
		rc_exit_task(native_task(tids[i]), &args);
	}
	cpu_exit();
	answer = rc_init();
	for (u32 i = 0; i < n && !answer; i++)
		answer = cpu_begin(native_task(tids[i]), false);
	return answer;
}

/*
 * The index of the queue that a thread is in when its step in queue `node`, which is made, ends:
 * in it the thread tagged itself with another queue, which has gone since.
 */
u32 cpu_hop_to_gone(int tid, u64 node)
{
	struct rs_tree *t = pl_tree();
	struct task_struct *p = native_task(tid);
	struct rs_item *it = rc_own(p);
	struct rs_op op = { .code = RS_OP_CREATE, .node = node, .parent = pl_id(&t->nodes[0]), .a = RS_QUEUE };

	if (!it || rs_node_create(t, &op) || rc_retag(p, node))
		return 0;
	it->state = RS_SERVICE;
	it->want = node + 1;
	rc_catch_up(t, it, 100, cpu_now);
	it->state = RS_IDLE;
	return it->queue->index;
}

static volatile u32 hopping;
static u64 hops_to;

/* What happens elsewhere when the lock is given back next. */
static void (*meanwhile)(void);

static void native_between(void)
{
	void (*what)(void) = meanwhile;

	meanwhile = 0;
	if (what)
		what();
}

static struct file bound_by; /* the directory of the container whose queue this is */

static int binds(void)
{
	return rc_fcntl(&bound_by, F_RESERV_BIND, 0, 0);
}

static void of_container(u64 node)
{
	bound_by.inode.i_sb = &bound_by.sb;
	bound_by.inode.i_ino = (u64)RC_CONTAINER_DIR_WORD << 48 | 5;
	bound_by.f_inode = &bound_by.inode;
	bound_by.sb.s_dev = mount_dev;
	bound_by.f_mode = RT_FMODE_READ;
	bound_by.opened.nodeid = bound_by.inode.i_ino;
	bound_by.opened.fh = 1ULL << 62 | (node >> 32) << 14 | (node & 0x3fff);
	bound_by.private_data = &bound_by.opened;
}

static void binds_meanwhile(void)
{
	if (binds() != 1)
		abort();
}

/*
 * The current thread binds itself to a container, and again to one of these when somebody has just
 * tagged it with another queue. To what it is bound then, and in which queue it is: indexes, by 16
 * bits. The queues are made from slot `first` on.
 */
u32 cpu_binds_meanwhile(u32 first, bool again)
{
	struct rs_tree *t = pl_tree();
	struct task_struct *me = native_current;
	u64 ids[3];

	for (u32 k = 0; k < 3; k++) {
		struct rs_op op = { .code = RS_OP_CREATE, .node = 1ULL << 32 | (first + k), .parent = pl_id(&t->nodes[0]), .a = RS_QUEUE };

		ids[k] = op.node;
		if (rs_node_create(t, &op))
			abort();
	}
	of_container(ids[0]);
	binds_meanwhile();
	if (!again)
		of_container(ids[1]);
	meanwhile = binds_meanwhile;
	if (rc_retag(me, ids[2]))
		abort();
	return (u32)rt_work_queue(rc_binding(me)) << 16 | (u32)rc_own_tag(me);
}

/* What it answers to unbind itself, and in which queue it is then. */
u32 cpu_unbinds(void)
{
	int answer = rc_fcntl(&bound_by, F_RESERV_UNBIND, 0, 0);

	return (u32)(answer != 1) << 16 | (u32)rc_own_tag(native_current);
}

/* On a thread of its own, as the thread's CPU: it hops whenever the last hop has been made up for. */
static void *hops(void *p)
{
	struct rs_item *it = rc_own(p);

	while (hopping)
		if (!*(volatile u64 *)&it->want)
			rc_hop(pl_tree(), it, p, hops_to);
	return 0;
}

/*
 * A thread that runs tags itself, again and again, while it is moved from elsewhere so many times.
 * By how much more than the time that passed it was charged for (negative: less). The queues are
 * made from slot `first` on.
 */
s64 cpu_moved_and_hops(int tid, u32 first, u32 rounds)
{
	struct rs_tree *t = pl_tree();
	struct task_struct *p = native_task(tid);
	struct rs_item *it = rc_own(p);
	u64 ids[3], begun, paid;
	pthread_t other;

	for (u32 k = 0; k < 3; k++) {
		struct rs_op op = { .code = RS_OP_CREATE, .node = 1ULL << 32 | (first + k), .parent = pl_id(&t->nodes[0]), .a = RS_QUEUE };

		ids[k] = op.node;
		if (rs_node_create(t, &op))
			abort();
	}
	if (rc_retag(p, ids[0]))
		abort();
	rc_wake(t, it, cpu_now);
	if (rs_pick(t, 0, cpu_now) != it)
		abort();
	p->scx.flags |= SCX_TASK_QUEUED;
	it->paid = paid = p->se.sum_exec_runtime;
	it->started = begun = cpu_now;
	hops_to = ids[2];
	hopping = 1;
	pthread_create(&other, 0, hops, p);
	for (u32 i = 0; i < rounds; i++)
		if (rc_retag(p, ids[(i + 1) & 1]))
			abort();
	hopping = 0;
	pthread_join(other, 0);
	return it->paid - paid + it->part_ran[0] + it->part_ran[1] + (cpu_now - it->started) - (cpu_now - begun);
}

/*
 * One of three threads of q0 owes much and has waited for longer than anybody may, when another
 * wakes that goes before who runs. Whether the first is served next.
 */
u32 cpu_served_by_age(int owes, int runs, int wakes)
{
	struct rs_tree *t = pl_tree();
	struct rs_item *old = (struct rs_item *)cpu_item(owes);
	struct rs_item *cur = (struct rs_item *)cpu_item(runs);
	struct rs_item *it = (struct rs_item *)cpu_item(wakes);
	u64 now = pl_clock(scx_bpf_now());

	rc_wake(t, old, now);
	if (rs_pick(t, 0, now) != old)
		abort();
	rc_wake(t, cur, now);
	now += t->quantum;
	rc_settle(t, old, t->quantum, 1, now);
	if (rs_pick(t, 0, now) != cur)
		abort();
	cur->started = now;
	now += t->starve_ns + t->quantum;
	rc_wake(t, it, now);
	if (rc_displace(t, it, cur, 0, now, now))
		return 0;
	if (cur->state == RS_SERVICE)
		rc_settle(t, cur, now - cur->started, 1, now);
	return rs_pick(t, 0, now) == old;
}

/* The most threads that a queue takes. */
void cpu_members_max(u64 node, u32 most)
{
	rs_node_at(pl_tree(), node)->members_max = most;
}

/* CPUs that the kernel's scheduler, whoever that is, was asked to kick, since it was asked last. */
u32 cpu_kicks(void)
{
	u32 n = kicks;

	kicks = 0;
	return n;
}

/* What the daemon does: a batch of no edit, and a tag. Answers the first that is not 0. */
int cpu_calls_made(int tid, u64 node)
{
	struct rc_call edit = { 0 }, tag = { .tid = tid, .node = node };

	rc_edit(&edit);
	rc_tag(&tag);
	return edit.answer ? edit.answer : tag.answer;
}

/* Users with an account, and how many threads are counted in all. */
u32 cpu_accounts(void)
{
	return NATIVE_MAP(&accounts)->used;
}

u32 cpu_counted(void)
{
	return threads_live;
}

int cpu_again(void)
{
	return rc_init();
}

u64 cpu_sections(void)
{
	return section_count;
}

u32 cpu_members(u64 node)
{
	struct rs_node *n = rs_node_at(pl_tree(), node);

	return n ? n->members : ~0U;
}

/* Of all that is in the tree. */
u64 cpu_digest(void)
{
	const struct rs_tree *t = pl_tree();
	const u64 *parts[] = { (const u64 *)t, (const u64 *)t->nodes, (const u64 *)t->items };
	u64 sizes[] = { sizeof(*t), 64 * sizeof(struct rs_node), 4096 * sizeof(struct rs_item) }, sum = 0;

	for (u32 k = 0; k < 3; k++)
		for (u64 i = 0; i < sizes[k] / 8; i++)
			sum = (sum ^ parts[k][i]) * 0x9e3779b97f4a7c15ULL;
	return sum;
}

/* F_RESERV_SETPARAM by the current thread, with a descriptor of inode `ino` of /reserv. */
int cpu_setparam(u32 weight, u32 prio, u64 period, u64 budget, u64 ino)
{
	struct rc_thread_param param = { sizeof(param), weight, prio, 0, period, budget, 0 };
	static struct super_block sb;
	struct inode inode = { 0 };

	sb.s_dev = mount_dev;
	inode.i_sb = &sb;
	inode.i_ino = ino;
	return rc_fcntl_set(&inode, (unsigned long)&param);
}
