/* SPDX-License-Identifier: GPL-2.0-only */
/* The daemon's calls: one SYSCALL program, pinned, one run per call (struct rt_call). */

struct rt_sweep {
	u64 node;
	u32 resource;
	u32 count;
};

static long rt_sweep_file(void *map, const void *key, struct rt_file *f, struct rt_sweep *w)
{
	u64 word = rt_word(w->resource, w->node);

	if (word && f->tag == word)
		w->count += rt_take_word(&f->tag, word);
	return 0;
}

static long rt_sweep_sock(void *map, const void *key, struct rt_sock *s, struct rt_sweep *w)
{
	w->count += rt_take(&s->slot[w->resource & (RT_RESOURCES - 1)], w->resource, w->node, RT_DESCRIPTORS);
	return 0;
}

static long rt_sweep_lists(void *map, const void *key, struct rt_lists *l, struct rt_sweep *w)
{
	u32 r = w->resource & (RT_RESOURCES - 1);

	w->count += rt_take(&l->list[RT_DEFAULT][r], r, w->node, RT_DEFAULTS);
	w->count += rt_take(&l->list[RT_CHILD][r], r, w->node, RT_CHILD_DEFAULTS);
	return 0;
}

static __always_inline int rt_call_sweep(struct rt_call *c)
{
	struct rt_sweep w = { .node = c->node, .resource = c->resource };

	bpf_for_each_map_elem(&hot, rt_sweep_file, &w, 0);
	bpf_for_each_map_elem(&files, rt_sweep_file, &w, 0);
	bpf_for_each_map_elem(&socks, rt_sweep_sock, &w, 0);
	bpf_for_each_map_elem(&lists, rt_sweep_lists, &w, 0);
	c->a = w.count;
	return 0;
}

static long rt_owned_less(void *map, const void *key, struct rt_owned *o, struct rt_sweep *w)
{
	o->node[w->resource & (RT_RESOURCES - 1)] = 0;
	return 0;
}

/* Who looks meanwhile finds neither, or one of both whole: rt_worked. */
static __always_inline int rt_call_owned(struct rt_call *c)
{
	static const struct rt_owned none;
	u32 key = c->node;
	struct rt_owned *o = bpf_map_lookup_elem(&owned, &key);

	if (!o || !(c->node >> 32))
		return -E_INVAL;
	if (!c->resource) {
		if (o->queue == c->node)
			*(volatile u64 *)&o->queue = 0;
		return 0;
	}
	if (o->queue != c->node) {
		*(volatile u64 *)&o->queue = 0;
		asm volatile("" : : : "memory");
		*o = none;
		asm volatile("" : : : "memory");
		*(volatile u64 *)&o->queue = c->node;
	}
	/* of one that has gone meanwhile: the next of its number may have a node of this handle */
	if (c->a && object[c->resource & (RT_RESOURCES - 1)].kind == RT_NOTHING)
		return -E_NOENT;
	o->node[c->resource & (RT_RESOURCES - 1)] = rt_pack(c->a);
	return 0;
}

/* The tables that the hooks walk, anew. A hook may see one resource too few for a moment. */
static __always_inline int rt_call_object(struct rt_call *c)
{
	u32 i, f = rt_none, n = rt_none;

	if (!c->resource)
		return -E_INVAL;
	object[c->resource & (RT_RESOURCES - 1)] = c->object;
	if (c->object.kind == RT_NOTHING) {
		struct rt_sweep w = { .resource = c->resource };

		stored_era[c->resource & (RT_RESOURCES - 1)]++;
		/* the next one of that number may have nodes of the same handles */
		bpf_for_each_map_elem(&owned, rt_owned_less, &w, 0);
	}
	file_count = 0;
	iface_count = 0;
	bpf_for(i, 0, RT_RESOURCES) {
		struct rt_object *o = &object[i & (RT_RESOURCES - 1)];

		if (o->kind == RT_FILES) {
			file_object[f & (RT_RESOURCES - 1)] = *o;
			file_resource[f++ & (RT_RESOURCES - 1)] = i;
		} else if (o->kind == RT_INTERFACE) {
			iface_object[n & (RT_RESOURCES - 1)] = *o;
			iface_resource[n++ & (RT_RESOURCES - 1)] = i;
		}
	}
	file_count = f;
	iface_count = n;
	return 0;
}

static __always_inline int rt_call_node(struct rt_call *c)
{
	u32 key = c->resource * RT_NODES_MAX + (u32)c->node;
	u64 use = RT_USE_KEY(c->resource, c->node);
	static const struct rt_node none;
	struct rt_node *n = bpf_map_lookup_elem(&nodes, &key);

	if ((u32)c->node >= RT_NODES_MAX || !(c->node >> 32) || !n)
		return -E_INVAL;
	if (n->generation != c->node >> 32)
		*n = none;
	n->kind = c->a;
	n->flags = c->b;
	/* the rules may have been told before the node */
	rt_know(n, bpf_map_lookup_elem(&uses, &use));
	n->generation = c->node >> 32;
	return 0;
}

/* The process' entry, made if it must be; the caller holds the task. */
static __always_inline int rt_call_lists(struct rt_call *c, struct task_struct *p)
{
	u64 key = (u64)p->signal, node = rt_pack(c->node);
	struct rt_lists *l = bpf_map_lookup_elem(&lists, &key);
	u32 r = c->resource & (RT_RESOURCES - 1);

	if (l && l->born != p->group_leader->start_boottime) { /* as in rt_fork */
		rt_lists_drop(key);
		l = 0;
	}
	if (c->what == RT_CALL_LISTS) {
		c->b = key;
		return 0;
	}
	if (node && !rt_node(r, node))
		return -E_STALE;
	if (!l) {
		if (!node)
			return 0;
		if (rt_lists_made(key, p->group_leader->start_boottime, account_of(RT_CAST(cred, p->real_cred))))
			return -E_NOSPC;
		l = bpf_map_lookup_elem(&lists, &key);
		if (!l)
			return -E_SRCH;
	}
	if (c->a == RT_CHILD)
		rt_put(&l->list[RT_CHILD][r], r, node, RT_CHILD_DEFAULTS);
	else
		rt_put(&l->list[RT_DEFAULT][r], r, node, RT_DEFAULTS);
	if (p->signal->live.counter == 0) { /* its end may have come before our entry */
		rt_lists_drop(key);
		return -E_SRCH;
	}
	return 0;
}

/* The caller holds the descriptor: it is not closed meanwhile. */
static __noinline int rt_call_tag_fd(struct rt_call *c)
{
	struct rt_name name = { .node = c->node, .resource = c->resource };
	struct file *file;
	int answer;

	if (c->a > 0x7fffffff)
		return -E_BADF;
	file = rt_fd(c->a);
	if (!file)
		return -E_BADF;
	answer = rt_tag_with(RT_CAST(file, file), name, rt_number((u64)file));
	return answer == 1 ? 0 : answer;
}

/*
 * What is to stand in the slot of the socket of the caller's descriptor `a`, if it may be tagged.
 * The caller holds the descriptor, and ends this by RT_CALL_STORED (stock.h).
 */
static __always_inline int rt_call_store(struct rt_call *c)
{
	struct inode *inode;
	struct file *file;
	struct sock *sk;
	int answer;

	file = c->a > 0x7fffffff ? 0 : rt_fd(c->a);
	if (!file)
		return -E_BADF;
	file = RT_CAST(file, file);
	inode = file->f_inode;
	if (!rt_is_socket(inode, rt_format(inode)))
		return -E_OPNOTSUPP;
	sk = RT_CAST(socket, file->private_data)->sk;
	if (!sk)
		return -E_OPNOTSUPP;
	answer = rt_sock_lives(sk, c->resource);
	if (!answer)
		answer = rt_usable(c->resource, c->node);
	if (answer)
		return answer;
	c->b = rt_stored_word(c->resource, rt_pack(c->node));
	rt_stored_begin(sk);
	return 0;
}

static __always_inline int rt_call_untag(struct rt_call *c)
{
	u32 r = c->resource & (RT_RESOURCES - 1);
	u64 key = c->a;
	struct rt_file *f;
	struct rt_sock *s = bpf_map_lookup_elem(&socks, &key);

	f = rt_place_at(key - *(volatile u64 *)&anchor_at);
	if (!f || rt_holder(f) != key)
		f = bpf_map_lookup_elem(&files, &key);
	c->a = 0;
	if (f && c->node)
		c->a += rt_take_word(&f->tag, rt_word(r, c->node));
	if (s)
		c->a += rt_take(&s->slot[r], r, c->node, RT_DESCRIPTORS);
	return 0;
}

/*
 * The counts are changed first when a device is added and last when one is taken away. One at a
 * time: the daemon takes care of that (crates/plane/src/tag/mod.rs).
 */
static __always_inline int rt_call_above(struct rt_call *c)
{
	u32 dev = c->a, bit = 1U << (c->resource & 31);
	struct rt_above was = {}, now, *a = bpf_map_lookup_elem(&above, &dev);

	if (!c->resource || c->b > RT_PASSES)
		return -E_INVAL;
	if (a)
		was = *a;
	now.lives = c->b == RT_NOT_ABOVE ? was.lives & ~bit : was.lives | bit;
	now.passes = c->b == RT_PASSES ? was.passes | bit : was.passes & ~bit;
	if (!now.lives) {
		if (a && !bpf_map_delete_elem(&above, &dev)) {
			above_count -= 1;
			passing_count -= was.passes != 0;
			if (!above_count)
				above_bits = 0;
		}
		return 0;
	}
	above_count += !a;
	above_bits |= rt_above_bit(dev);
	passing_count += (now.passes != 0) - (was.passes != 0);
	if (bpf_map_update_elem(&above, &dev, &now, BPF_ANY)) {
		above_count -= !a;
		passing_count -= (now.passes != 0) - (was.passes != 0);
		if (!above_count)
			above_bits = 0;
		return -E_NOSPC;
	}
	return 0;
}

/*
 * The programs are put by. Their links may outlive their pins for a moment, so hooks may still run.
 * After this, one that begins finds nothing of which it would make an entry: no mount, no resource,
 * and no parent's or listener's entry counts. The daemon waits until those that have begun before
 * are over, and empties the maps then; what hooks do to entries that are there is to take them
 * away.
 */
static __always_inline void rt_call_close(void)
{
	closed = 1;
	mount_dev = 0;
	file_count = 0;
	iface_count = 0;
	disk_count = 0;
	passing_count = 0;
}

static long rt_empty_node(void *map, const void *key, struct rt_node *n, void *none)
{
	static const struct rt_node nothing;

	if (n->generation)
		*n = nothing;
	return 0;
}

static long rt_empty_place(void *map, const void *key, struct rt_file *f, void *none)
{
	f->tag = 0;
	f->file = 0;
	return 0;
}

static long rt_empty_slot(void *map, const void *key, struct rt_slot *s, void *none)
{
	static const struct rt_slot nothing;

	if (s->seq || s->node || s->write)
		*s = nothing;
	return 0;
}

static long rt_empty_owned(void *map, const void *key, struct rt_owned *o, void *unused)
{
	static const struct rt_owned nothing;

	if (o->queue)
		*o = nothing;
	return 0;
}

static __always_inline void rt_call_empty(void)
{
	u32 i;

	bpf_for_each_map_elem(&nodes, rt_empty_node, 0, 0);
	bpf_for_each_map_elem(&hot, rt_empty_place, 0, 0);
	bpf_for_each_map_elem(&slots, rt_empty_slot, 0, 0);
	bpf_for_each_map_elem(&owned, rt_empty_owned, 0, 0);
	bpf_for(i, 0, RT_RESOURCES)
		stored_era[i & (RT_RESOURCES - 1)]++;
}

SEC("syscall")
int rt_call(struct rt_call *c)
{
	u64 use;
	struct task_struct *p;
	struct rt_node *n;
	int answer = 0;

	if (c->resource >= RT_RESOURCES) {
		c->answer = -E_INVAL;
		return 0;
	}
	switch (c->what) {
	case RT_CALL_CONFIGURE:
		mount_dev = c->node;
		forks_unseen = c->a;
		storing += storing & 1; /* a daemon was killed with a socket in hand */
		break;
	case RT_CALL_STATE:
		c->node = mount_dev;
		c->a = lost;
		c->b = RT_ABI_VERSION;
		c->pid = file_cache != 0;
		anchor_at = (u64)&anchor;
		break;
	case RT_CALL_OBJECT:
		answer = rt_call_object(c);
		break;
	case RT_CALL_OBJECT_GET:
		/* the verifier wants each access to start from the context itself */
		asm volatile("" : "+r"(c));
		c->object = object[c->resource & (RT_RESOURCES - 1)];
		c->b = stored_era[c->resource & (RT_RESOURCES - 1)];
		break;
	case RT_CALL_NODE:
		answer = rt_call_node(c);
		break;
	case RT_CALL_DROP:
		use = RT_USE_KEY(c->resource, c->node);
		bpf_map_delete_elem(&uses, &use);
		n = rt_node(c->resource, c->node);
		if (n)
			n->generation = 0;
		else
			answer = -E_STALE;
		break;
	case RT_CALL_RESET:
		n = rt_node(c->resource, c->node);
		if (!n) {
			answer = -E_STALE;
			break;
		}
		n->operations = 0;
		n->bytes = 0;
		break;
	case RT_CALL_LISTS:
	case RT_CALL_LIST_SET:
		p = bpf_task_from_pid(c->pid);
		if (!p) {
			answer = -E_SRCH;
			break;
		}
		answer = rt_call_lists(c, p);
		bpf_task_release(p);
		break;
	case RT_CALL_SWEEP:
		answer = rt_call_sweep(c);
		break;
	case RT_CALL_LINK:
		link_major[c->resource & (RT_RESOURCES - 1)] = c->a;
		break;
	case RT_CALL_DISK:
		answer = rt_call_disk(c);
		break;
	case RT_CALL_ABOVE:
		answer = rt_call_above(c);
		break;
	case RT_CALL_STORE:
		answer = rt_call_store(c);
		break;
	case RT_CALL_STORED:
		c->a = rt_stored_end(c);
		break;
	case RT_CALL_TAG_FD:
		answer = rt_call_tag_fd(c);
		break;
	case RT_CALL_UNTAG:
		answer = rt_call_untag(c);
		break;
	case RT_CALL_OWNED:
		answer = rt_call_owned(c);
		break;
	case RT_CALL_CLOSE:
		rt_call_close();
		break;
	case RT_CALL_EMPTY:
		rt_call_empty();
		break;
	case RT_CALL_RULED:
		__sync_fetch_and_or(&ruled, 1U << (c->resource & 31));
		use = RT_USE_KEY(c->resource, c->node);
		n = rt_node(c->resource, c->node);
		if (n)
			rt_know(n, c->a ? bpf_map_lookup_elem(&uses, &use) : 0);
		break;
	default:
		answer = -E_INVAL;
	}
	c->answer = answer;
	return 0;
}
