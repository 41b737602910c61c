/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags of threads and default lists of processes (Eclipse/BSD §2.5).
 *
 * A new thread of a process inherits its creator's tag. A new process starts with both lists equal to its parent's child
 * list, and its first thread is tagged with it. The rule is applied in two places, because while the scheduler is attached the kernel asks for a
 * new thread's queue (init_task) before the tracepoint of the fork: both find the same answer.
 */

/* A thread's tag by handle; 0 is q0. While it has an item, that is the truth, and its storage otherwise. */
static __always_inline u64 rc_tag_now(struct rc_thread *th)
{
	if (!th)
		return 0;
	rc_tree();
	return th->item ? rc_tag_of((struct rs_item RS_ARENA *)th->item) : th->tag.node;
}

/* The child's tag, by the rule. `th` is the child's. */
static __always_inline void rc_inherit(struct task_struct *child, struct task_struct *parent, struct rc_thread *th)
{
	struct rc_lists *l;
	u64 key;

	if (child->tgid == parent->tgid) {
		th->tag.node = rc_tag_now(bpf_task_storage_get(&tags, parent, 0, 0));
		return;
	}
	key = (u64)parent->signal;
	l = bpf_map_lookup_elem(&lists, &key);
	th->tag.node = l ? l->child : 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(rc_fork, struct task_struct *parent, struct task_struct *child)
{
	struct rc_thread *th;
	struct rc_lists *l, both;
	u64 key = (u64)parent->signal;

	if (child->tgid == parent->tgid) {
		th = bpf_task_storage_get(&tags, parent, 0, 0);
		if (!rc_tag_now(th))
			return 0;
	} else {
		l = bpf_map_lookup_elem(&lists, &key);
		if (!l || !l->child)
			return 0;
		both.def = l->child;
		both.child = l->child;
		key = (u64)child->signal;
		bpf_map_update_elem(&lists, &key, &both, BPF_ANY);
	}
	th = bpf_task_storage_get(&tags, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (th && !th->item)
		rc_inherit(child, parent, th);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(rc_exited, struct task_struct *p)
{
	u64 key = (u64)p->signal;

	if (p->signal->live.counter == 0)
		bpf_map_delete_elem(&lists, &key);
	return 0;
}

/* A thread that execs takes its process' number over; its item carries the numbers that `members` shows. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(rc_execed, struct task_struct *p, s32 old_pid)
{
	struct rc_thread *th;

	if (old_pid == p->pid)
		return 0;
	th = bpf_task_storage_get(&tags, p, 0, 0);
	if (th && th->item) {
		rc_tree();
		((struct rs_item RS_ARENA *)th->item)->owner2 = (u64)(u32)p->tgid << 32 | (u32)p->pid;
	}
	return 0;
}

/* Tag a thread and move it. */
static __always_inline int rc_retag(struct task_struct *p, u64 node)
{
	unsigned long irq;
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_node RS_ARENA *q;
	struct rs_item RS_ARENA *it;
	struct rc_thread *th = bpf_task_storage_get(&tags, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 raw = scx_bpf_now(), owner = p->scx.tid;
	int answer = 0;

	if (!th)
		return -E_NOMEM;
	it = (struct rs_item RS_ARENA *)th->item;
	RC_LOCK(irq);
	q = rs_node_at(t, node);
	if (!q)
		answer = -E_STALE;
	else if (q->kind != RS_QUEUE)
		answer = -E_INVAL;
	else if (it && it->owner == owner && it->state != RS_ITEM_FREE)
		answer = rc_move(t, it, q, raw, rc_clock(raw));
	else if (q->dying)
		answer = -E_AGAIN;
	if (!answer)
		th->tag.node = node;
	RC_UNLOCK(irq);
	return answer;
}

/*
 * The queue directory of /reserv that a descriptor of the current process stands for: its id, or a negative errno. The
 * table and the file may go while we look (another thread closes it): then we read what was there, or zeros, never past memory.
 */
static __always_inline s64 rc_resolve(struct task_struct *me, u32 fd)
{
	struct fdtable *table = me->files->fdt;
	struct file *file;
	u64 ino;

	if (fd >= table->max_fds)
		return -E_BADF;
	file = (struct file *)bpf_core_cast((void *)((u64)table->fd + fd * 8ULL), struct list_head)->next;
	if (!file)
		return -E_BADF;
	file = bpf_core_cast(file, struct file);
	if (!(file->f_mode & FMODE_READ))
		return -E_BADF;
	ino = file->f_inode->i_ino;
	if (!mount_dev || file->f_inode->i_sb->s_dev != mount_dev || ino >> 48 != RC_QUEUE_DIR_WORD)
		return -E_INVAL;
	return (ino >> 16 & 0xffffffff) << 32 | (ino & 0xffff);
}

/*
 * The running thread goes to another queue, without the lock: see rc_catch_up. Answers whether it could. Interrupts are on: when
 * the step ends while we are here, the exchange fails, or, after it, the part that we hold is added to the next step.
 */
static __always_inline bool rc_hop(struct rs_tree RS_ARENA *t, struct rs_item RS_ARENA *it, struct task_struct *me,
				   u64 node)
{
	u64 want = it->want, s = it->started, from, raw, ran;
	struct rs_node RS_ARENA *q = rs_node_at(t, node);
	u32 slot;

	if (!q || q->kind != RS_QUEUE || q->dying || q->members_max || it->owner != me->scx.tid ||
	    it->state != RS_SERVICE || (s & RC_OFF))
		return false;
	if (want) {
		from = want;
		slot = it->part_node[0] != from;
		if (slot && it->part_node[1] && it->part_node[1] != from)
			return false;
	} else {
		if (it->queue == q)
			return true;
		from = rc_id(it->queue);
		slot = 0;
	}
	if (from == node)
		return true;
	raw = scx_bpf_now();
	ran = rs_before(s, raw) ? raw - s : 0;
	if (__sync_val_compare_and_swap(&it->started, s, raw) != s)
		return false;
	if (slot) {
		it->part_node[1] = from;
		it->part_ran[1] += ran;
	} else {
		it->part_node[0] = from;
		it->part_ran[0] += ran;
	}
	it->want = node;
	return true;
}

SEC("fmod_ret/security_task_prctl")
int BPF_PROG(rc_prctl, int option, unsigned long arg2, unsigned long arg3, unsigned long arg4, unsigned long arg5, int ret)
{
	struct rs_tree RS_ARENA *t = rc_tree();
	struct rs_item RS_ARENA *it;
	struct task_struct *me;
	s64 node;
	int answer;

	if (ret || (option & ~3) != (PR_RESERV_CHCPURES & ~3))
		return ret;
	me = bpf_get_current_task_btf();
	if (option == PR_RESERV_GETCPURES)
		return 1 + rc_queue(t, rc_tag_now(bpf_task_storage_get(&tags, me, 0, 0)))->index;
	if (option != PR_RESERV_CHCPURES)
		return ret;
	node = rc_resolve(me, arg2);
	if (node < 0)
		return node;
	it = rc_item(me);
	if (it && rc_hop(t, it, me, node))
		return 1;
	answer = rc_retag(me, node);
	return answer ? answer : 1;
}
