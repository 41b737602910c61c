/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The mirror: inside q0, threads are scheduled by their cgroups.
 *
 * Problem. cpu.weight, cpu.idle and cpu.max, which service managers and container runtimes set, are
 * the fair scheduler's. A full switch to sched_ext takes the threads away from it, and the settings
 * would silently mean nothing.
 *
 * Idea. sched_ext tells of every cgroup of the cpu controller and of every change of it. Each
 * becomes a node of our tree, below what users know as q0. Those nodes are hidden: they have slots
 * of their own (the last RS_HIDDEN_MAX), edits cannot name them, and what is reported of q0 is the
 * sum. They belong to the volatile half: an ejection takes them away and cgroup_init() makes them
 * anew.
 *
 * Rules:
 *   1. A cgroup without children is a queue (class ts) under its parent's scheduler. Its weight is
 *      the kernel's for the fair scheduler (1024 for 100 of cpu.weight, 3 where cpu.idle is set),
 *      times 100; its cap is cpu.max with quota and burst as the bucket.
 *   2. When the first child appears, a scheduler (policy sfq) takes the place, weight and cap of
 *      the queue, which goes below it and is `own` from then on: it competes with the children as
 *      each of its threads would (sched/tree.c, rs_own_weight), which is what the fair scheduler
 *      does. When the last child goes, so does the scheduler. The root cgroup's own queue is q0's:
 *      the scheduler over it is the tree's `front`, has q0's weight, cap and counters, and takes
 *      q0's edits. So where no cgroup has the controller the tree is as if there were no mirror.
 *   3. An item's `home` is its cgroup's queue. It is there while the thread is tagged with q0
 *      (nobody said otherwise). A tagged thread is outside: neither weight nor cap of its cgroup
 *      holds for it.
 *   4. What has no room (16 levels with root, front and the queue; RS_HIDDEN_MAX nodes) is folded:
 *      its threads stand in the nearest ancestor's queue, and so do those of cgroups below it. The
 *      daemon refuses to start with such; later ones are counted.
 *
 * Example (also a test): cgroups a and b with cpu.weight 100 and 300, a busy thread in each and one
 * in the root cgroup: shares of q0 102400 : 307200 : 102400 = 1 : 3 : 1.
 *
 * Deviations from the fair scheduler: one tree for all CPUs, so that shares are of the machine; a
 * capped cgroup is let go as soon as it has paid, not at the next period.
 *
 * The kernel serialises cgroup_init(), cgroup_exit() and moves among themselves; changes of
 * settings come at any time.
 */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct rc_group);
} groups SEC(".maps");

#define RC_NO_QUOTA (~0ULL) /* the kernel's RUNTIME_INF */

/*
 * --- nodes: all under the lock ------------------------------------------------------------------
 */

/* A hidden node under p. Answers its handle; 0: no room. */
RS_FN u64 rc_hidden_make(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *p, u32 kind, u32 weight)
{
	struct rs_op RS_ARENA *op = (struct rs_op RS_ARENA *)scratch_at;
	u32 at = rs_zero;

	RS_LOOP(i, RS_HIDDEN_MAX) {
		at = (RS_NODES_MAX - 1 - i) & (RS_NODES_MAX - 1);
		if (t->nodes[at].kind == RS_FREE)
			break;
	}
	op->code = RS_OP_CREATE;
	op->node = (u64)(t->nodes[at].gen + 1) << 32 | at;
	op->parent = pl_id(p);
	op->a = kind;
	op->b = 0; /* ts, sfq */
	if (rs_node_create(t, op) != RS_DONE)
		return 0;
	rs_node_fresh(t, &t->nodes[at], 0);
	rs_node_reweight(t, &t->nodes[at], weight);
	return op->node;
}

/* What a scheduler is to the outside, instead of the queue below it, or the reverse. */
RS_FN_VOID(rc_stand_in, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *from,
	   struct rs_node RS_ARENA *to, u64 now), (t, from, to, now))
{
	u64 ppm = from->cap.ppm, burst = from->cap.burst;
	s64 tok;

	if (ppm) {
		rs_cap_refill(&from->cap, now);
		tok = from->cap.tok;
		rs_node_cap(t, from, 0, 0, now);
		from->cap.burst = 0;
		rs_node_cap(t, to, ppm, burst, now);
		to->cap.tok = tok;
		if (tok <= 0) {
			rs_throttle(t, to, now);
			rs_refresh(t, to);
		}
	}
	if (from->quantum_own) {
		to->quantum_own = from->quantum_own;
		from->quantum_own = 0;
		rs_quantum_later(t);
	}
	to->service = from->service;
	to->service_base = from->service_base;
	to->served = from->served;
	to->throttled_ns = from->throttled_ns;
}

static __always_inline u64 rc_ready_weight(struct rs_node RS_ARENA *q, u32 i)
{
	return ((struct rs_item RS_ARENA *)q->ready.e[i].obj)->weight;
}

/*
 * Weights of who is runnable in a queue, when it becomes `own`: all at once, in one section. Four
 * in a turn of the loop, for 32 768 threads within its bound (tests/guest/full_scans).
 */
RS_FN_VOID(rc_own_begin, (struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q), (t, q))
{
	u64 sum = rs_zero;
	u32 four = q->ready.n / 4;

	RS_LOOP(i, four)
		sum += rc_ready_weight(q, 4 * i) + rc_ready_weight(q, 4 * i + 1) + rc_ready_weight(q, 4 * i + 2) +
		       rc_ready_weight(q, 4 * i + 3);
	RS_LOOP(i, q->ready.n % 4)
		sum += rc_ready_weight(q, 4 * four + i);
	RS_LOOP(i, RS_UNITS_MAX) {
		struct rs_item RS_ARENA *it = t->unit[i & (RS_UNITS_MAX - 1)].item;

		if (it && it->queue == q)
			sum += it->weight;
	}
	q->own = 1;
	q->wrun = sum;
	rs_node_reweight(t, q, rs_own_weight(q));
}

/*
 * A scheduler takes the queue's place. Answers 0 where there is no room; nothing has changed then.
 */
RS_FN int rc_interpose(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u64 now)
{
	u64 id;
	struct rs_node RS_ARENA *s;

	if (q->own)
		return 1;
	if (q->depth + 1 >= RS_DEPTH_MAX)
		return 0;
	id = rc_hidden_make(t, q->parent, RS_SCHED, q->weight);
	if (!id)
		return 0;
	s = &t->nodes[id & (RS_NODES_MAX - 1)];
	s->priority = q->priority;
	s->request_ns = q->request_ns;
	if (rs_node_move(t, q, s) != RS_DONE) {
		rs_node_delete(t, s, 0);
		return 0;
	}
	rc_stand_in(t, q, s, now);
	rc_own_begin(t, q);
	if (q->index == 1)
		t->front = s;
	return 1;
}

/* The reverse, when nothing else is left below the scheduler. */
RS_FN int rc_collapse(struct rs_tree RS_ARENA *t, struct rs_node RS_ARENA *q, u64 now)
{
	struct rs_node RS_ARENA *s = q->parent;
	u32 weight;

	if (!q->own || !s || s->nchildren != 1)
		return 0;
	weight = s->weight;
	q->priority = s->priority;
	q->request_ns = s->request_ns;
	if (rs_node_move(t, q, s->parent) != RS_DONE)
		return 0;
	q->own = 0;
	q->wrun = 0;
	rs_node_reweight(t, q, weight);
	rc_stand_in(t, s, q, now);
	if (q->index == 1)
		t->front = q;
	rs_node_delete(t, s, 0);
	return 1;
}

/* What stands for the cgroup among its siblings. */
static __always_inline struct rs_node RS_ARENA *rc_face(struct rs_node RS_ARENA *q)
{
	return q->own ? q->parent : q;
}

/* A cgroup's queue under the one whose own queue `up` is. Answers its handle, or 0. */
RS_FN u64 rc_group_make(struct rs_tree RS_ARENA *t, u64 up, u32 weight, u64 now)
{
	struct rs_node RS_ARENA *q = rs_node_at(t, up);
	u64 id;
	u32 had;

	if (!q || q->kind != RS_QUEUE || q->dying)
		return 0;
	had = q->own;
	if (!rc_interpose(t, q, now))
		return 0;
	id = rc_hidden_make(t, q->parent, RS_QUEUE, weight);
	if (!id && !had)
		rc_collapse(t, q, now);
	return id;
}

/* Schedulers whose last queue drained away by itself. */
RS_FN_VOID(rc_hidden_sweep, (struct rs_tree RS_ARENA *t), (t))
{
	RS_LOOP(i, t->hidden_used) {
		struct rs_node RS_ARENA *n = &t->nodes[(RS_NODES_MAX - 1 - i) & (RS_NODES_MAX - 1)];

		if (n->kind == RS_SCHED && n->dying && !n->nchildren)
			rs_node_delete(t, n, 0);
	}
}

/*
 * The cgroup is gone. Threads that are left (it happens only while we are taken out) keep its queue
 * until they leave.
 */
RS_FN_VOID(rc_group_gone, (struct rs_tree RS_ARENA *t, u64 id, u64 up, u64 now), (t, id, up, now))
{
	struct rs_node RS_ARENA *q = rs_node_at(t, id), *s = 0, *above;

	rc_hidden_sweep(t);
	if (!q || q->kind != RS_QUEUE || q->index < RS_NODES_OPEN)
		return;
	if (q->own) {
		s = q->parent;
		s->dying = 1;
	}
	rs_node_delete(t, q, 1);
	if (s && !s->nchildren)
		rs_node_delete(t, s, 0);
	above = rs_node_at(t, up);
	if (above && above->kind == RS_QUEUE)
		rc_collapse(t, above, now);
}

RS_FN_VOID(rc_group_set, (struct rs_tree RS_ARENA *t, u64 id, u32 weight, u64 ppm, u64 burst),
	   (t, id, weight, ppm, burst))
{
	struct rs_node RS_ARENA *q = rs_node_at(t, id), *face;

	if (!q || q->kind != RS_QUEUE || q->index < RS_NODES_OPEN)
		return;
	face = rc_face(q);
	rs_node_reweight(t, face, weight);
	if (face->cap.ppm != ppm || face->cap.burst != (s64)burst)
		rs_node_cap(t, face, ppm, burst, clock_max);
}

/*
 * Whether `it`, just queued, should displace `cur`, in service for `ran` so far, where their queues
 * differ but are both in the mirror: by the rule of class ts (class_ts.c) with the tags of those
 * nodes that compete for them.
 */
RS_FN int rc_group_preempts(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct rs_item RS_ARENA *cur, u64 ran)
{
	struct rs_node RS_ARENA *a = it->queue, *b = cur->queue;
	u32 deep;

	if (!a || !b || a == b || it->state != RS_QUEUED || (it->flags & (RS_ITEM_BATCH | RS_ITEM_BACKGROUND)))
		return 0;
	RS_LOOP(d, RS_DEPTH_MAX) {
		if (!a || !b || a->parent == b->parent)
			break;
		deep = a->depth;
		if (deep >= b->depth)
			a = a->parent;
		if (b->depth >= deep)
			b = b->parent;
	}
	if (!a || !b || a->parent != b->parent || !a->parent || a->parent->index < RS_NODES_OPEN || !b->weight)
		return 0;
	return rs_before(a->tag.base + rs_vwork(TS_GRANULE_NS, b->weight), b->tag.base + rs_vwork(ran, b->weight));
}

/*
 * Before rs_tree_reset(): the mirror goes, q0 is a queue below the root again. Threads are put from
 * the queues of cgroups into q0 when their items go (rc_items_left), which goes in pieces.
 */
RS_FN_VOID(rc_mirror_forget, (struct rs_tree RS_ARENA *t), (t))
{
	struct rs_node RS_ARENA *q = &t->nodes[1], *s = t->front;

	if (s != q) {
		q->weight = s->weight;
		q->priority = s->priority;
		q->request_ns = s->request_ns;
		q->quantum_own = s->quantum_own;
		q->cap.ppm = s->cap.ppm;
		q->cap.burst = s->cap.burst;
		q->cap.tok = s->cap.tok;
		q->cap.rem = s->cap.rem;
		q->cap.at = s->cap.at;
		q->service = s->service;
		q->service_base = s->service_base;
		q->served = s->served;
		q->throttled_ns = s->throttled_ns;
		q->parent = &t->nodes[0];
		rs_unhang(t, q->parent, s);
		rs_hang(t, q->parent, q);
		q->depth = 1;
		t->front = q;
	}
	RS_LOOP(i, t->hidden_used) {
		struct rs_node RS_ARENA *n = &t->nodes[(RS_NODES_MAX - 1 - i) & (RS_NODES_MAX - 1)];

		n->kind = RS_FREE;
		n->ready.n = 0;
	}
	rs_quantum_later(t);
}

/*
 * --- what is known of a cgroup -------------------------------------------------------------------
 */

static __always_inline u64 rc_cgroup_id(struct cgroup *cgrp)
{
	return cgrp ? cgrp->kn->id : 0;
}

static __always_inline u64 rc_cgroup_parent(struct cgroup *cgrp)
{
	struct cgroup_subsys_state *up = cgrp->self.parent;

	return up ? up->cgroup->kn->id : 0;
}

/*
 * The kernel's task_group of a cgroup, as an address; 0: none, or none yet (cgroup_init of a new
 * one comes before it is entered).
 */
static __always_inline u64 rc_cgroup_tg(struct cgroup *cgrp)
{
	u64 css = 0;
	u64 at = (u64)cgrp + bpf_core_field_offset(struct cgroup, subsys) +
		 8 * bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);

	bpf_probe_read_kernel(&css, sizeof(css), (void *)at);
	return css ? css - bpf_core_field_offset(struct task_group, css) : 0;
}

/*
 * Weight of a task_group as the fair scheduler has it, on our scale. `told`: cpu.weight, where the
 * kernel is about to write it; or 0.
 */
static __always_inline u32 rc_group_weight(struct rc_group *g, u32 weight, u32 told)
{
	u64 shares = 0;

	g->watch = 0;
	if (!g->tg || !bpf_core_field_exists(((struct task_group *)0)->shares))
		return (u64)weight * RS_OWN_ONE / 100;
	bpf_probe_read_kernel(&shares, sizeof(shares), (void *)(g->tg + bpf_core_field_offset(struct task_group, shares)));
	if (!told)
		told = compat_group_weight(g->tg);
	/*
	 * The kernel keeps the weight twice, and tells us only when its second copy changes; the
	 * end of cpu.idle sets the first to 100 and not the second. While they differ we look by
	 * ourselves.
	 */
	g->watch = shares >> 10 != 3 && shares >> 10 != ((u64)told * 1024 + 50) / 100;
	return (shares >> 10) * RS_OWN_ONE / 1024;
}

RS_FN int rc_group_apply(struct rc_group *g)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	u64 ppm = 0, burst = 0, id;
	u32 weight;

	if (!g || g->folded)
		return 0;
	id = g->queue;
	weight = g->weight ? g->weight : 1;
	if (g->quota_us && g->quota_us != RC_NO_QUOTA && g->period_us) {
		ppm = g->quota_us * 1000000 / g->period_us;
		ppm = ppm ? ppm > 1000000ULL * RS_UNITS_MAX ? 1000000ULL * RS_UNITS_MAX : ppm : 1;
		burst = (g->quota_us + g->burst_us) * 1000;
		if (burst > 1000000000000ULL)
			burst = 1000000000000ULL;
	}
	RC_LOCK(irq, return 0);
	pl_clock(scx_bpf_now());
	rc_group_set(t, id, weight, ppm, burst);
	PLANE_UNLOCK(irq);
	RC_CHECK(t);
	rc_kick_idle();
	return 0;
}

u64 watch_at;

/* Whether cpu.max is another than what is in force. */
static __always_inline bool rc_group_bounds(struct rc_group *g)
{
	u64 period = 0, quota = 0, burst = 0;

	if (!compat_group_bandwidth(g->tg, &period, &quota, &burst))
		return false;
	if (quota == g->quota_us && period == g->period_us && burst == g->burst_us)
		return false;
	g->period_us = period;
	g->quota_us = quota;
	g->burst_us = burst;
	return true;
}

static long rc_watch_one(void *map, u64 *key, struct rc_group *g, void *ctx)
{
	bool other = false;
	u32 weight;

	if ((!g->watch && !compat_watch_groups()) || g->queue == RC_Q0 || g->folded)
		return 0;
	if (compat_watch_groups() && !g->tg) { /* a new one has its task_group after cgroup_init */
		struct cgroup *cgrp = bpf_cgroup_from_id(*key);

		if (!cgrp)
			return 0;
		g->tg = rc_cgroup_tg(cgrp);
		bpf_cgroup_release(cgrp);
		if (!g->tg)
			return 0;
	}
	if (lacks & COMPAT_BANDWIDTH)
		other = rc_group_bounds(g);
	weight = rc_group_weight(g, 100, 0);
	if (weight != g->weight) {
		g->weight = weight;
		other = true;
	}
	if (other)
		rc_group_apply(g);
	return 0;
}

/* From the timer: settings that the kernel changed without telling (rc_group_weight, compat.h). */
static __noinline int rc_watch(u64 raw)
{
	if (raw - watch_at < RC_WATCH_NS)
		return 0;
	watch_at = raw;
	bpf_for_each_map_elem(&groups, rc_watch_one, 0, 0);
	return 0;
}

/*
 * What the kernel tells of a cgroup is noted, and in force when the timer has gone off, within a
 * millisecond: together with what else was told, and by one program instead of four.
 */
static __always_inline void rc_group_later(struct rc_group *g)
{
	g->dirty = 1;
	groups_dirty = 1;
	rc_timer_soon();
}

static long rc_group_settle(void *map, u64 *key, struct rc_group *g, void *ctx)
{
	if (!g->dirty)
		return 0;
	g->dirty = 0; /* before it is read: what is told meanwhile is put into force again */
	rc_group_apply(g);
	return 0;
}

/* From the timer. */
static __noinline int rc_groups_settle(void)
{
	groups_dirty = 0;
	bpf_for_each_map_elem(&groups, rc_group_settle, 0, 0);
	return 0;
}

/* A thread's home, when it becomes an item; 0: q0's own queue. */
static __always_inline u64 rc_group_home(struct scx_init_task_args *args)
{
	struct rc_group *g;
	u64 id;

	if (!mirror_on || !bpf_core_field_exists(args->cgroup))
		return 0;
	id = rc_cgroup_id(args->cgroup);
	g = bpf_map_lookup_elem(&groups, &id);
	return g ? g->queue : 0;
}

/*
 * --- the kernel's events -------------------------------------------------------------------------
 */

s32 RC_OP(rc_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_group g = {}, *up;
	u64 id = rc_cgroup_id(cgrp), above = rc_cgroup_parent(cgrp), under = RC_Q0, raw = scx_bpf_now();
	u32 weight;
	s32 error;

	if (!mirror_on)
		return 0;
	g.tg = rc_cgroup_tg(cgrp);
	g.quota_us = RC_NO_QUOTA;
	if (!(lacks & COMPAT_BANDWIDTH) && bpf_core_field_exists(args->bw_quota_us)) {
		g.period_us = args->bw_period_us;
		g.quota_us = args->bw_quota_us;
		g.burst_us = args->bw_burst_us;
	} else {
		compat_group_bandwidth(g.tg, &g.period_us, &g.quota_us, &g.burst_us);
	}
	if (!above) {
		g.queue = RC_Q0;
		bpf_map_update_elem(&groups, &id, &g, BPF_ANY);
		return 0;
	}
	weight = rc_group_weight(&g, args->weight, 0);
	g.weight = weight;
	up = bpf_map_lookup_elem(&groups, &above);
	if (up) {
		under = up->queue;
		g.folded = up->folded;
	}
	if (!g.folded) {
		PLANE_LOCK(irq, return -E_AGAIN);
		g.queue = rc_group_make(t, under, weight ? weight : 1, pl_clock(raw));
		PLANE_UNLOCK(irq);
		pl_quanta();
		RC_CHECK(t);
		g.folded = !g.queue;
	}
	if (g.folded)
		g.queue = under;
	g.dirty = !g.folded && g.quota_us != RC_NO_QUOTA; /* the weight is its node's already */
	error = bpf_map_update_elem(&groups, &id, &g, BPF_ANY);
	if (error && !g.folded) {
		PLANE_LOCK(irq, return -E_AGAIN);
		rc_group_gone(t, g.queue, under, pl_clock(raw));
		PLANE_UNLOCK(irq);
		g.folded = 1;
	}
	if (g.folded)
		RC_COUNT(groups_folded, 1);
	else
		RC_COUNT(groups, 1);
	if (g.dirty) {
		groups_dirty = 1;
		rc_timer_soon();
	}
	if (g.watch || compat_watch_groups())
		rc_timer_watch();
	return 0;
}

void RC_OP(rc_cgroup_exit, struct cgroup *cgrp)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_group *g, *up;
	u64 id = rc_cgroup_id(cgrp), above = rc_cgroup_parent(cgrp), queue, under = 0, raw = scx_bpf_now();
	u32 folded;

	g = bpf_map_lookup_elem(&groups, &id);
	if (!g)
		return;
	queue = g->queue;
	folded = g->folded;
	up = above ? bpf_map_lookup_elem(&groups, &above) : 0;
	if (up)
		under = up->queue;
	bpf_map_delete_elem(&groups, &id);
	if (!above)
		return;
	if (folded) {
		RC_COUNT(groups_folded, -1);
		return;
	}
	RC_COUNT(groups, -1);
	PLANE_LOCK(irq, return);
	rc_group_gone(t, queue, under, pl_clock(raw));
	PLANE_UNLOCK(irq);
	pl_quanta();
	RC_CHECK(t);
}

/* Its run queue is locked, and the thread is not in it. */
void RC_OP(rc_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_item RS_ARENA *it;
	struct rc_thread *th = bpf_task_storage_get(&tags, p, 0, 0);
	struct rc_group *g;
	u64 id = rc_cgroup_id(to), raw = scx_bpf_now(), owner = (u64)p, home, now;

	if (!th || !th->item || !mirror_on)
		return;
	it = (struct rs_item RS_ARENA *)th->item;
	g = bpf_map_lookup_elem(&groups, &id);
	home = g ? g->queue : 0;
	RC_LOCK(irq, return);
	if (it->owner == owner && it->state != RS_ITEM_FREE) {
		now = pl_clock(raw);
		it->home = home;
		if (rc_tag_of(it) == RC_Q0)
			rc_move(t, it, p, rc_home(t, it), raw, now);
	}
	PLANE_UNLOCK(irq);
	RC_CHECK(t);
}

void RC_OP(rc_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	u64 id = rc_cgroup_id(cgrp);
	struct rc_group *g = bpf_map_lookup_elem(&groups, &id);

	if (!g || g->queue == RC_Q0)
		return;
	g->tg = rc_cgroup_tg(cgrp);
	g->weight = rc_group_weight(g, weight, weight);
	if (g->watch)
		rc_timer_watch();
	rc_group_later(g);
}

void RC_OP(rc_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	u64 id = rc_cgroup_id(cgrp);
	struct rc_group *g = bpf_map_lookup_elem(&groups, &id);

	if (!g || g->queue == RC_Q0)
		return;
	g->tg = rc_cgroup_tg(cgrp);
	g->weight = rc_group_weight(g, idle ? 0 : 100, 0);
	if (g->watch)
		rc_timer_watch();
	rc_group_later(g);
}

void RC_OP(rc_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	u64 id = rc_cgroup_id(cgrp);
	struct rc_group *g = bpf_map_lookup_elem(&groups, &id);

	if (!g || g->queue == RC_Q0)
		return;
	g->period_us = period_us;
	g->quota_us = quota_us;
	g->burst_us = burst_us;
	rc_group_later(g);
}

/*
 * --- what is reported of q0 ----------------------------------------------------------------------
 */

/* What waits and belongs below the hidden scheduler that stands for q0, beside q0's own. */
static __always_inline void rc_front_counts(struct rc_node *out)
{
	struct rs_tree RS_ARENA *t = pl_tree();

	RS_LOOP(i, t->hidden_used) {
		struct rs_node RS_ARENA *n = &t->nodes[(RS_NODES_MAX - 1 - i) & (RS_NODES_MAX - 1)];

		if (n->kind == RS_QUEUE) {
			out->queued += n->ready.n;
			out->members += n->members;
		}
	}
}
