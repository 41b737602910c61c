/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The daemon's calls: one SYSCALL program, pinned, one run per call (struct rc_call). One for all
 * of them, because each program is verified with everything that it reaches, and they reach the
 * same: as programs of their own they took three times as long to load.
 */

#define RC_CALL(name) static __noinline int name(struct rc_call *c)

/* The lock was not to be had. */
static __always_inline int rc_late(struct rc_call *c)
{
	c->answer = -E_TIMEDOUT;
	return 0;
}

static __always_inline struct rc_io *rc_io(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&io, &zero);
}

/* Another tree is made, or goes: nobody is bound in it. */
static __always_inline void rc_works_new(void)
{
	struct rt_works *all = rt_works();

	if (!all)
		return;
	all->epoch++;
	all->used = 0;
}

/* The arena: the tree with what stands beside it, and its nodes and items. Whole pages. */
#define RC_HEAD ((sizeof(struct rs_tree) + sizeof(struct rs_batch) + sizeof(struct rs_op) + RC_PAGE - 1) / RC_PAGE * RC_PAGE)
#define RC_BODY ((RS_TREE_BYTES(RS_NODES_MAX, RS_ITEMS_MAX) + RC_PAGE - 1) / RC_PAGE * RC_PAGE)

/* Make the arena and an empty tree in it. Once. what: RC_SETUP_* */
RC_CALL(rc_setup)
{
	u64 head = RC_HEAD, body = RC_BODY;
	struct rs_tree RS_ARENA *t;
	struct rc_state *s = rc_state();

	if (tree_at || !s)
		return 0;
	_Static_assert(RS_TREE_BYTES(RS_NODES_MAX, RS_ITEMS_MAX) + sizeof(struct rs_tree) + sizeof(struct rs_batch) +
				       sizeof(struct rs_op) + 3 * RC_PAGE < (u64)RC_ARENA_PAGES * RC_PAGE, "the arena holds the tree");
	t = bpf_arena_alloc_pages(&arena, 0, (head + body) / RC_PAGE, -1, 0);
	if (!t) {
		c->answer = -E_NOMEM;
		return 0;
	}
	rs_tree_init(t, (u64)t + head, body, RS_NODES_MAX, threads_max);
	t->nodes_open = RS_NODES_OPEN;
	tree_at = (u64)t;
	batch_at = (u64)t + sizeof(struct rs_tree);
	scratch_at = batch_at + sizeof(struct rs_batch);
	s->mirror = mirror_on = !(c->what & RC_SETUP_FLAT);
	rc_works_new();
	rc_timer_ready();
	s->magic = t->magic;
	s->abi = RC_ABI_VERSION;
	s->rs_abi = RS_ABI_VERSION;
	c->answer = 0;
	return 0;
}

/*
 * The tree goes, with its memory, and what threads asked for means nothing any more: as before
 * rc_setup, but for what stands in maps and variables, which the caller empties. Not while the
 * scheduler is attached. A hook that runs meanwhile finds no tree, or the place where one was: an
 * arena answers such reads with 0.
 */
RC_CALL(rc_forget)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_state *s = rc_state();

	if (!s || s->attached != s->detached) {
		c->answer = -E_BUSY;
		return 0;
	}
	rc_timer_off();
	epoch++;
	rc_works_new();
	binds_children = 0;
	tree_at = 0;
	if (t)
		bpf_arena_free_pages(&arena, t, (RC_HEAD + RC_BODY) / RC_PAGE);
	c->answer = 0;
	return 0;
}

/* Bring the counters of `state` that live in the tree up to date. */
RC_CALL(rc_refresh)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_state *s = rc_state();

	if (!tree_at || !s) {
		c->answer = -E_INVAL;
		return 0;
	}
	s->seq = t->seq;
	s->lost = lost_count;
	s->forced = forced_count;
	s->sections = section_count;
	s->steps = step_count;
	s->grants = t->grants;
	s->section_ns = section_longest;
	s->section_line = section_line;
	s->idle_waits = idle_waits;
	s->idle_late = idle_late;
	if (timed)
		section_longest = 0;
	s->mount_dev = mount_dev;
	s->nodes_used = t->nodes_used;
	s->items_used = t->items_used;
	c->answer = 0;
	return 0;
}

/* io->batch is applied, whole or not at all. */
RC_CALL(rc_edit)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_batch RS_ARENA *b = (struct rs_batch RS_ARENA *)batch_at;
	struct rc_io *in = rc_io();
	u64 raw = scx_bpf_now();
	u32 count;

	if (!tree_at || !in || in->batch.count > RS_BATCH_MAX) {
		c->answer = -E_INVAL;
		return 0;
	}
	count = in->batch.count;
	RS_LOOP(i, RS_BATCH_MAX) {
		struct rs_op *op;

		if (i >= count)
			break;
		op = &in->batch.op[rc_slot(i) & (RS_BATCH_MAX - 1)];
		b->op[i].code = op->code;
		b->op[i].answer = 0;
		b->op[i].node = op->node;
		b->op[i].parent = op->parent;
		b->op[i].a = op->a;
		b->op[i].b = op->b;
	}
	b->seq = in->batch.seq;
	b->count = count;
	b->grants = in->batch.grants;
	pl_changes();
	RC_LOCK(irq, return rc_late(c));
	b->now = pl_clock(raw);
	rs_edit(t, b);
	rc_trace_edit(t, b);
	PLANE_UNLOCK(irq);
	pl_changes();
	pl_quanta();
	RS_LOOP(i, RS_BATCH_MAX) {
		if (i >= count)
			break;
		in->batch.op[rc_slot(i) & (RS_BATCH_MAX - 1)].answer = b->op[i].answer;
	}
	in->batch.error = b->error;
	in->batch.failed = b->failed;
	RC_CHECK(t);
	rc_kick_idle();
	c->answer = b->error;
	return 0;
}

/* What others know of a node; of q0 what is known of that which stands for it below the root. */
static __always_inline void rc_node_read(struct rs_node RS_ARENA *n, struct rc_node *out)
{
	struct rs_node RS_ARENA *s = n->index == 1 ? pl_tree()->front : n;

	out->id = pl_id(n);
	out->parent = s->parent ? pl_id(s->parent) : 0;
	out->service = s->service;
	out->service_base = s->service_base;
	out->served = s->served;
	out->throttled_ns = s->throttled_ns;
	out->cap_ppm = s->cap.ppm;
	out->cap_burst = s->cap.burst;
	out->request = s->parent ? policy_request(s->parent, s) : 0;
	out->weight = s->weight;
	out->queued = n->kind == RS_QUEUE ? n->ready.n : 0;
	out->running = s->nsvc;
	out->members = n->members;
	out->members_max = n->members_max;
	out->kind = n->kind;
	out->alg = n->alg;
	out->throttled = s->throttled & RS_CAPPED;
	out->dying = n->dying;
	if (s != n)
		rc_front_counts(out);
}

/*
 * Slots first … first + RC_SAMPLES_MAX: those in use are written to io->node, their number to
 * count; `first` goes on.
 */
RC_CALL(rc_sample)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_io *out = rc_io();
	u32 got = rs_zero, first = c->first, n = 0, runs = rs_zero;
	u64 raw = scx_bpf_now();

	if (!tree_at || !out) {
		c->answer = -E_INVAL;
		return 0;
	}
	RC_LOCK(irq, return rc_late(c));
	RS_LOOP(cpu, RS_UNITS_MAX) {
		struct rs_item RS_ARENA *it;
		struct rc_run *run;

		if (cpu >= cpus)
			break;
		it = t->unit[cpu & (RS_UNITS_MAX - 1)].item;
		if (!it)
			continue;
		run = &out->run[rc_slot(runs) & (RS_UNITS_MAX - 1)];
		run->node = rc_open_id(it->queue);
		run->ran = rc_so_far(it, raw);
		runs++;
	}
	RS_LOOP(i, RC_SAMPLES_MAX) {
		u32 at = first + i;

		n = i + 1;
		if (at >= t->nodes_used || at >= RS_NODES_MAX)
			break;
		if (t->nodes[at].kind == RS_FREE)
			continue;
		rc_node_read(&t->nodes[at], &out->node[rc_slot(got) & (RC_SAMPLES_MAX - 1)]);
		got++;
	}
	if (first + n > t->nodes_used)
		n = t->nodes_used - first;
	PLANE_UNLOCK(irq);
	c->count = got;
	c->runs = runs;
	c->first = first + n;
	c->what = t->nodes_used;
	c->answer = 0;
	return 0;
}

/* One node, by handle, into io->node[0]. */
RC_CALL(rc_sample_one)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_node RS_ARENA *n;
	struct rc_io *out = rc_io();
	u64 id = c->node;
	s32 answer = 0;

	if (!tree_at || !out) {
		c->answer = -E_INVAL;
		return 0;
	}
	RC_LOCK(irq, return rc_late(c));
	n = rs_node_at(t, id);
	if (n)
		rc_node_read(n, &out->node[0]);
	else
		answer = -E_STALE;
	PLANE_UNLOCK(irq);
	c->answer = answer;
	return 0;
}

/*
 * Items from `first` on that belong to `node`, at most RC_MEMBERS_MAX looked at: written to
 * io->member, number to count.
 */
RC_CALL(rc_members)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_node RS_ARENA *q;
	struct rc_io *out = rc_io();
	u64 id = c->node;
	u32 got = rs_zero, first = c->first, n = 0;
	s32 answer = 0;

	if (!tree_at || !out) {
		c->answer = -E_INVAL;
		return 0;
	}
	RC_LOCK(irq, return rc_late(c));
	q = rs_node_at(t, id);
	if (!q) {
		answer = -E_STALE;
	} else {
		RS_LOOP(i, RC_MEMBERS_MAX) {
			struct rs_item RS_ARENA *it = &t->items[(first + i) & (RS_ITEMS_MAX - 1)];
			struct rc_member *m;

			n = i;
			if (first + i >= t->items_used)
				break;
			n = i + 1;
			if (it->state == RS_ITEM_FREE || (it->want ? it->want != id : it->queue != q))
				continue;
			m = &out->member[rc_slot(got) & (RC_MEMBERS_MAX - 1)];
			m->tgid = it->owner2 >> 32;
			m->tid = it->owner2;
			m->param.weight = it->weight_own;
			m->param.prio = it->priority;
			m->param.period_ns = it->period_ns;
			m->param.budget_ns = it->budget_ns;
			m->param.deadline_ns = it->deadline_ns;
			got++;
		}
	}
	PLANE_UNLOCK(irq);
	c->count = got;
	c->what = first + n >= t->items_used; /* nothing more */
	c->first = first + n;
	c->answer = answer;
	return 0;
}

/*
 * The thread that a call names, to be released; 0, and the answer says why, where there is none or
 * no tree.
 */
static __always_inline struct task_struct *rc_thread_of(struct rc_call *c)
{
	struct task_struct *p;

	if (!tree_at) {
		c->answer = -E_INVAL;
		return 0;
	}
	p = bpf_task_from_pid(c->tid);
	if (!p)
		c->answer = -E_SRCH;
	return p;
}

/* Thread `tid` is tagged with `node` and moved. what: RC_TAG_* */
RC_CALL(rc_tag)
{
	struct task_struct *p;
	struct rt_work *w;
	u64 node, back;

	p = rc_thread_of(c);
	if (!p)
		return 0;
	node = c->node;
	if (c->what == RC_TAG_LEAVE) {
		w = rc_bound(p, rc_tag_now(bpf_task_storage_get(&tags, p, 0, 0)));
		back = w ? rc_back(w->back) : 0;
		if (w && rc_may_go_back(p, back, w->back))
			node = back;
	}
	c->answer = rc_retag(p, node);
	if (c->answer && node != c->node) /* its queue is full, or drains */
		c->answer = rc_retag(p, c->node);
	bpf_task_release(p);
	rc_kick_idle();
	return 0;
}

/* The tag of thread `tid`, as it counts now, to node. */
RC_CALL(rc_tag_get)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_thread *th;
	struct task_struct *p;

	p = rc_thread_of(c);
	if (!p)
		return 0;
	th = bpf_task_storage_get(&tags, p, 0, 0);
	c->node = pl_id(rc_queue(t, rc_tag_now(th)));
	bpf_task_release(p);
	c->answer = 0;
	return 0;
}

/* io->param is what thread `tid` asks for (RC_PARAM_SET), or becomes that (RC_PARAM_GET). */
RC_CALL(rc_param)
{
	struct rc_io *arg = rc_io();
	struct rc_thread *th;
	struct task_struct *p;
	struct rc_param param = {};

	if (!arg) {
		c->answer = -E_INVAL;
		return 0;
	}
	p = rc_thread_of(c);
	if (!p)
		return 0;
	if (c->what == RC_PARAM_GET) {
		th = bpf_task_storage_get(&tags, p, 0, 0);
		if (th)
			param = th->param;
		arg->param = param;
		c->answer = 0;
	} else {
		param = arg->param;
		c->answer = rc_params_set(p, &param, 0);
	}
	bpf_task_release(p);
	return 0;
}

/* The lists of process `tid`: read into node (default) and node2 (child). */
RC_CALL(rc_lists_get)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rc_lists *l;
	struct task_struct *p = rc_thread_of(c);
	u64 key;

	if (!p)
		return 0;
	key = (u64)p->signal;
	l = bpf_map_lookup_elem(&lists, &key);
	c->node = pl_id(rc_queue(t, l ? l->def : 0));
	c->node2 = pl_id(rc_queue(t, l ? l->child : 0));
	bpf_task_release(p);
	c->answer = 0;
	return 0;
}

/* One list (`what`) of process `tid` becomes `node`. */
RC_CALL(rc_lists_set)
{
	struct rs_tree RS_ARENA *t = pl_tree();
	struct rs_node RS_ARENA *q = rs_node_at(t, c->node);
	struct rc_lists *l, both = {};
	struct task_struct *p;
	u64 key;

	if (!q || q->kind != RS_QUEUE) {
		c->answer = q ? -E_INVAL : -E_STALE;
		return 0;
	}
	p = rc_thread_of(c);
	if (!p)
		return 0;
	key = (u64)p->signal;
	l = bpf_map_lookup_elem(&lists, &key);
	if (l)
		both = *l;
	if (c->what == RC_LIST_CHILD)
		both.child = c->node;
	else
		both.def = c->node;
	c->answer = bpf_map_update_elem(&lists, &key, &both, BPF_ANY);
	bpf_task_release(p);
	return 0;
}

/*
 * what 1: node is the device number of the mount (0: none). 2: node2 is the quantum in ns. 4:
 * `uses` has, or will have, an entry of `node`. 8: node is 1 if new processes of bound threads are
 * bound as those are, else 0.
 */
RC_CALL(rc_configure)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();

	if (!tree_at) {
		c->answer = -E_INVAL;
		return 0;
	}
	if (c->what & 1)
		mount_dev = c->node;
	if (c->what & 8)
		binds_children = c->node;
	if (c->what & 4)
		__sync_fetch_and_or(&ruled, 1ULL << (c->node & 63));
	if (c->what & 2) {
		RC_LOCK(irq, return rc_late(c));
		t->quantum = c->node2;
		rs_quantum_later(t);
		PLANE_UNLOCK(irq);
		pl_quanta();
	}
	c->answer = 0;
	return 0;
}

/* Tracing: bpf/cpu/trace.h. */
RC_CALL(rc_tracing)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = pl_tree();
	u64 raw = scx_bpf_now(), pid = c->node, owner, lost;
	u32 what = c->what;
	s32 answer = 0;

	if (!tree_at) {
		c->answer = -E_INVAL;
		return 0;
	}
	RC_LOCK(irq, return rc_late(c));
	pl_clock(raw);
	if (what == RC_TRACE_CLAIM || what == RC_TRACE_CLAIM_FORCE) {
		if (trace_owner && what == RC_TRACE_CLAIM) {
			answer = -E_BUSY;
		} else {
			trace_on = 0;
			trace_owner = pid;
		}
	} else if (trace_owner != pid) {
		answer = -E_BUSY;
	} else if (what == RC_TRACE_ON || what == RC_TRACE_PAUSE) {
		trace_lost = 0;
		trace_missed = 0;
		trace_pause = what == RC_TRACE_PAUSE;
		trace_on = rc_trace_all(t, RC_TRACE_START);
		if (!trace_on)
			answer = -E_2BIG;
	} else {
		if (trace_on)
			rc_trace_all(t, RC_TRACE_END);
		trace_on = 0;
		trace_owner = 0;
	}
	owner = trace_owner;
	lost = trace_lost;
	PLANE_UNLOCK(irq);
	c->node = owner;
	c->node2 = lost;
	c->answer = answer;
	return 0;
}

/* Which one: enum rc_do. */
SEC("syscall")
int rc_call(struct rc_call *c)
{
	switch (c->call) {
	case RC_DO_SETUP:
		return rc_setup(c);
	case RC_DO_REFRESH:
		return rc_refresh(c);
	case RC_DO_EDIT:
		return rc_edit(c);
	case RC_DO_SAMPLE:
		return rc_sample(c);
	case RC_DO_SAMPLE_ONE:
		return rc_sample_one(c);
	case RC_DO_MEMBERS:
		return rc_members(c);
	case RC_DO_TAG:
		return rc_tag(c);
	case RC_DO_TAG_GET:
		return rc_tag_get(c);
	case RC_DO_PARAM:
		return rc_param(c);
	case RC_DO_LISTS_GET:
		return rc_lists_get(c);
	case RC_DO_LISTS_SET:
		return rc_lists_set(c);
	case RC_DO_CONFIGURE:
		return rc_configure(c);
	case RC_DO_TRACING:
		return rc_tracing(c);
	case RC_DO_FORGET:
		return rc_forget(c);
	}
	c->answer = -E_INVAL;
	return 0;
}
