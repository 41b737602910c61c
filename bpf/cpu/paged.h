/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bindings by a page (bpf/page.h): a thread writes in its own memory from when on it works for
 * what, and asks nobody. What it wrote is read when a step of it ends, while it is still the
 * running thread, whose memory is at hand: the step's time, by the kernel's count, is charged to
 * the queues of the containers for which it worked, and it goes on in the last one's, as if it had
 * bound itself there by a call (tags.h). Until then it is where it was.
 *
 * A thread may write anything. A slot in which nothing stands that it may use changes nothing;
 * times are kept in order and within the step; their sum is made what the thread ran. So it can
 * misplace its own time alone, among containers that it may use.
 *
 * A move in the tree costs about as much as a switch, and a page could ask for hundreds of them in
 * no time. So who worked for less than RC_PART_NS of a step has none: that time is charged with
 * what came after it.
 */
#ifndef RESERV_CPU_PAGED_H
#define RESERV_CPU_PAGED_H

#define RC_PART_NS 5000
/*
 * All moves of one reading are one section of the lock, which may take 600 000 instructions
 * (docs/notes/cpu-full.md). A move takes about 670 for each level of the tree down to the queue,
 * and for two more, on several CPUs a fourth more (tests/guest/container_page measures the one). So
 * many levels are left for moves.
 */
#define RC_PAGE_LEVELS 560
/*
 * Rules that one reading asks, each as often as the thread has groups (and once more), for a user
 * name space may have thousands of groups: about 25 instructions each. What is not asked any more
 * may not be used, in that reading.
 */
#define RC_PAGE_ASKS 2048
#define RC_PART_SCALE 20 /* binary places of the factor by which parts are made shorter */

/* What is read of a page, and found in it: of the CPU that reads. */
struct rc_parts {
	struct {
		u32 size, which;
		u64 head;
		struct rc_anchor anchor[2];
	} top; /* as the page begins */
	u64 here; /* ns before the first entry */
	u64 before; /* the thread's queue */
	u32 last; /* the slot in which it goes on; RC_HERE: nothing changes */
	u32 count; /* slots that are named */
	u64 scale; /* of each part, so that they come to what the thread ran */
	u64 left; /* of that: of no part yet */
	u64 part; /* rc_page_part */
	u64 levels;
	u64 asks; /* left of RC_PAGE_ASKS */
	u64 entries[RC_PAGE_LOG];
	struct {
		u64 ran; /* ns, and one more where it is named; 0 when nobody reads */
		/*
		 * where it is named; 0: nothing that the thread may use. RC_PART_LISTED, among the
		 * bits that a handle has not: as `listed` of bpf/work.h
		 */
		u64 node;
	} of[RC_SLOTS];
	u16 slot[RC_PAGE_LOG]; /* those that are named, in their order */
};
#define RC_HERE RC_SLOTS
#define RC_PART_LISTED (1ULL << 31)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rc_parts);
} parts SEC(".maps");

static __always_inline struct rc_parts *rc_parts(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&parts, &zero);
}

/* Whether the running thread may use a queue, as far as this reading may still ask for it. */
static __noinline bool rc_page_may(struct rc_parts *x, u64 node)
{
	struct rt_use *use = bpf_map_lookup_elem(&uses, &node);
	u64 cost;

	if (!use)
		return true;
	cost = (use->count + 1ULL) * (bpf_get_current_task_btf()->cred->group_info->ngroups + 1ULL);
	if (cost > x->asks)
		return false;
	x->asks -= cost;
	return rc_by_rules(node);
}

/*
 * The queue that a slot of the running thread stands for, as far as it may use it now: a right may
 * have been revoked since the slot was given what stands there. 0: none.
 */
RS_FN u64 rc_page_node(u32 slot)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct rt_work *w = bpf_task_storage_get(&work, me, 0, 0);
	struct rt_works *all = rt_works();
	struct rc_parts *x = rc_parts();
	struct rt_slots *slots;
	u64 node = 0, back;
	u32 listed = 0;

	if (!w || !all || !x)
		return 0;
	if (!slot) {
		back = w->epoch == all->epoch && w->queue ? w->back : x->before;
		node = rc_back(back);
		return rc_may_go_back(me, node, back) ? node : 0;
	}
	bpf_rcu_read_lock(); /* of the thread's first one */
	slots = rt_slots_of(me, all->epoch);
	if (slots)
		node = rt_slot(slots, slot, &listed);
	bpf_rcu_read_unlock();
	if (!node || !rs_node_at(pl_tree(), node) || (ruled >> (node & 63) & 1 && !rc_page_may(x, node)))
		return 0;
	return listed ? node | RC_PART_LISTED : node;
}

/*
 * What the running thread wrote since it was last read: into this CPU's rc_parts. `started`: when
 * the step began by scx_bpf_now, or RC_OFF. Answers how many slots it names; 0: nothing is new.
 */
RS_FN u32 rc_page_read(u64 started)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct rt_work *w = bpf_task_storage_get(&work, me, 0, 0);
	struct rc_parts *x = rc_parts();
	u64 raw, base, zero, at, last, from, entry;
	s64 rate;
	u32 slot, now = RC_HERE;
	struct rc_anchor *a;

	if (!w || !x || !w->page || !me->mm || w->execs != me->self_exec_id)
		return 0;
	if (bpf_probe_read_user(&x->top, sizeof(x->top), (void *)w->page))
		return 0;
	from = w->head;
	if (x->top.head == from)
		return 0;
	at = w->page + __builtin_offsetof(struct rc_page, log);
	if (x->top.head - from == 1) {
		slot = from % RC_PAGE_LOG;
		at += slot * sizeof(u64);
		if (bpf_probe_read_user(&x->entries[slot & (RC_PAGE_LOG - 1)], sizeof(u64), (void *)at))
			return 0;
	} else if (bpf_probe_read_user(x->entries, sizeof(x->entries), (void *)at)) {
		return 0;
	}
	w->head = x->top.head;
	if (x->top.head - from > RC_PAGE_LOG)
		from = x->top.head - RC_PAGE_LOG;
	raw = scx_bpf_now();
	a = &x->top.anchor[x->top.which & 1];
	base = raw - bpf_ktime_get_ns() + a->ns;
	zero = a->ticks << RC_SLOT_BITS;
	rate = a->rate;
	last = started & RC_OFF || rs_before(raw, started) ? raw : started;
	x->here = 0;
	x->count = 0;
	x->asks = RC_PAGE_ASKS;
	RS_LOOP(i, RC_PAGE_LOG) {
		if (from + i == x->top.head)
			break;
		entry = x->entries[rc_slot(from + i) & (RC_PAGE_LOG - 1)];
		slot = entry & (RC_SLOTS - 1);
		if (!x->of[slot].ran) {
			x->of[slot].ran = 1;
			x->of[slot].node = rc_page_node(slot);
			x->slot[x->count++ & (RC_PAGE_LOG - 1)] = slot;
		}
		if (!x->of[slot].node)
			continue;
		at = base + (u64)(((s64)(entry - slot - zero) >> RC_SLOT_BITS) * rate >> 20);
		if (rs_before(raw, at))
			at = raw;
		if (rs_before(at, last))
			at = last;
		if (now == RC_HERE)
			x->here = at - last;
		else
			x->of[now & (RC_SLOTS - 1)].ran += at - last;
		last = at;
		now = slot;
	}
	if (now != RC_HERE)
		x->of[now & (RC_SLOTS - 1)].ran += raw - last;
	x->last = now;
	return x->count;
}

/*
 * Under the lock, at the end of a step of `it` or within: what the running thread's page says is
 * read, if the item is that thread's, of `ran` that it had. How many parts there are; 0: nothing is
 * new.
 */
RS_FN u32 rc_page_parts(struct rs_item RS_ARENA *it, u64 ran, u64 started)
{
	struct rc_parts *x = rc_parts();
	u64 sum;

	pl_tree(); /* names the arena */
	if (!x || rc_own(bpf_get_current_task_btf()) != it)
		return 0;
	x->before = rc_tag_of(it);
	if (!rc_page_read(started))
		return 0;
	/* The parts were measured by the clock, which other classes and interrupts do not stop. */
	sum = x->here;
	RS_LOOP(i, RC_PAGE_LOG) {
		if (i >= x->count)
			break;
		sum += x->of[x->slot[rc_slot(i) & (RC_PAGE_LOG - 1)] & (RC_SLOTS - 1)].ran;
	}
	x->scale = sum > ran ? (ran << RC_PART_SCALE) / sum : 1 << RC_PART_SCALE;
	x->part = x->here * x->scale >> RC_PART_SCALE;
	x->left = ran - x->part;
	x->levels = 0;
	return x->count + 1;
}

/* The running thread is where its last entry says. */
static __noinline int rc_page_bound(u64 word)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct rt_work *w = bpf_task_storage_get(&work, me, 0, 0);
	struct rt_works *all = rt_works();
	struct rc_parts *x = rc_parts();
	u64 back;

	if (!w || !all || !x)
		return 0;
	back = w->epoch == all->epoch && w->queue ? w->back : x->before;
	if (!x->last)
		w->queue = 0;
	else
		rc_bound_to(all, w, word & ~RC_PART_LISTED, back, word / RC_PART_LISTED & 1);
	return 0;
}

/*
 * Under the lock, before move i of those of rc_page_parts, and once behind the last: where to is
 * `want`, as for rc_catch_up. The last move is where the last entry says, with what is left.
 * Answers what is charged to the queue that the item leaves: `charge`, which is left of the move
 * before, and what was worked there.
 */
RS_FN u64 rc_page_part(struct rs_item RS_ARENA *it, u32 i, u64 charge)
{
	struct rc_parts *x = rc_parts();
	struct rs_tree RS_ARENA *t = pl_tree();
	u64 to = 0, word = 0;
	u32 slot;

	if (!x)
		return charge;
	charge += x->part;
	x->part = 0;
	if (x->last != RC_HERE)
		word = x->of[x->last & (RC_SLOTS - 1)].node;
	if (i > x->count) {
		x->of[x->last & (RC_SLOTS - 1)].ran = 0;
		if (word && rc_tag_of(it) == (word & ~RC_PART_LISTED))
			rc_page_bound(word);
		return charge;
	}
	if (i == x->count) {
		x->part = x->left;
		to = word;
	} else {
		slot = x->slot[i & (RC_PAGE_LOG - 1)] & (RC_SLOTS - 1);
		if (slot == x->last)
			return charge;
		x->part = x->of[slot].ran * x->scale >> RC_PART_SCALE;
		x->left -= x->part;
		if (x->part >= RC_PART_NS && x->levels < RC_PAGE_LEVELS) {
			to = x->of[slot].node;
			x->levels += rc_queue(t, to & ~RC_PART_LISTED)->depth + 2;
		}
		x->of[slot].ran = 0;
	}
	it->part_ran[0] = charge;
	it->want = to & ~RC_PART_LISTED;
	return charge;
}

/* Whether the running thread wrote something that was not read. */
static __always_inline bool rc_page_news(struct task_struct *me)
{
	struct rt_work *w = bpf_task_storage_get(&work, me, 0, 0);
	u32 slot;

	return w && rt_page_slot(me, w, &slot);
}

/* What the running thread wrote so far is done now. 0, or a negative errno. */
RS_FN int rc_page_now(u32 unused)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it = rc_own(me);
	u64 raw = scx_bpf_now(), s = RC_OFF, ran = 0, passed = 0, now, to;
	u32 n;
	unsigned long irq;

	if (!it || !it->paged || !rc_page_news(me))
		return 0;
	RC_LOCK(irq, return -E_AGAIN);
	now = pl_clock(raw);
	if (it->owner == (u64)me && it->state == RS_SERVICE) {
		/* as rc_move */
		s = __sync_lock_test_and_set(&it->started, RC_OFF);
		if (!(s & RC_OFF)) {
			if (rs_before(s, raw))
				passed = raw - s;
			else
				raw = s;
		}
		ran = rc_owed(it, me);
		if (it->want)
			passed += it->part_ran[0] + it->part_ran[1];
		if (ran < passed)
			ran = passed;
		it->paid += ran;
		if (it->want)
			ran = rc_catch_up(t, it, ran, now);
		ran = rc_paged(t, it, ran, s, now);
		it->paid -= ran;
		if (!(s & RC_OFF))
			it->started = raw - ran;
	} else if (it->owner == (u64)me && it->state != RS_ITEM_FREE) {
		n = rc_page_parts(it, 0, RC_OFF);
		RS_LOOP(i, RC_PAGE_LOG + 1) {
			if (i >= n)
				break;
			rc_page_part(it, i, 0);
		}
		to = it->want;
		it->want = 0;
		if (n && to)
			rc_move(t, it, me, rc_queue(t, to)->index == 1 ? rc_home(t, it) : rc_queue(t, to), raw, now);
		if (n)
			rc_page_part(it, n, 0);
	}
	PLANE_UNLOCK(irq);
	RC_CHECK(t);
	return 0;
}

/* Before what asks or says where the running thread is. */
static __always_inline void rc_page_first(struct task_struct *me)
{
	struct rs_item RS_ARENA *it = rc_own(me);

	if (it && it->paged)
		rc_page_now(0);
}

/* F_RESERV_SLOT */
static __noinline int rc_fcntl_slot(u64 opened, u64 ino, u32 mode, u64 slot)
{
	struct task_struct *me = bpf_get_current_task_btf(), *leader = me->group_leader;
	struct rt_works *all = rt_works();
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_node RS_ARENA *q;
	struct rt_slots *slots;
	int rules;
	s64 node;

	if (!tree_at || !all || !slot || slot >= RC_SLOTS)
		return -E_INVAL;
	node = rc_container(opened, ino, mode, &rules);
	if (node < 0)
		return node;
	q = (u32)node < RS_NODES_OPEN ? rs_node_at(t, node) : 0;
	if (!q)
		return -E_STALE;
	if (q->kind != RS_QUEUE)
		return -E_INVAL;
	slots = bpf_task_storage_get(&worklists, leader, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!slots)
		return -E_NOMEM;
	if (slots->epoch != all->epoch || slots->execs != leader->self_exec_id) {
		RS_LOOP(i, RC_SLOTS)
			slots->index[rc_slot(i) & (RC_SLOTS - 1)] = 0;
		slots->execs = leader->self_exec_id;
		slots->epoch = all->epoch;
	}
	slot &= RC_SLOTS - 1;
	*(volatile u16 *)&slots->index[slot] = 0;
	*(volatile u32 *)&slots->gen[slot] = node >> 32;
	*(volatile u16 *)&slots->index[slot] = (u16)node | (rules == RC_LISTED ? RT_SLOT_LISTED : 0);
	return 1;
}

/* F_RESERV_PAGE */
static __noinline int rc_fcntl_page(u64 at)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct rs_item RS_ARENA *it = rc_own(me);
	struct rt_works *all = rt_works();
	struct rt_work *w;
	u64 head, head_at = at + __builtin_offsetof(struct rc_page, head);
	u32 size;

	pl_tree(); /* names the arena */
	if (!all || at & 7)
		return -E_INVAL;
	rc_page_first(me);
	if (!at) {
		w = bpf_task_storage_get(&work, me, 0, 0);
		if (w)
			w->page = 0;
		if (it)
			it->paged = 0;
		return 1;
	}
	if (!it)
		return -E_AGAIN;
	w = bpf_task_storage_get(&work, me, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w)
		return -E_NOMEM;
	w->page = 0; /* a step that ends now finds none */
	if (bpf_probe_read_user(&size, sizeof(size), (void *)at) ||
	    bpf_probe_read_user(&head, sizeof(head), (void *)head_at))
		return -E_FAULT;
	if (size != sizeof(struct rc_page))
		return -E_INVAL;
	w->head = head;
	w->execs = me->self_exec_id;
	w->page = at;
	all->used = 1;
	it->paged = 1;
	return 1;
}

#endif
