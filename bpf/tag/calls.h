/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hook of the fcntl commands that concern descriptors. Everybody's fcntl passes here, so it
 * looks at the command and is gone. The commands of the CPU's threads have a hook of their own
 * (bpf/cpu/tags.h).
 */

/*
 * A word of a table of descriptors, read as any structure of the kernel that begins with a pointer:
 * a call to read memory costs more than the rest.
 */
static __always_inline struct file *rt_fd_in(struct fdtable *fdt, u32 fd)
{
	return (struct file *)RT_CAST(list_head, fdt->fd + fd)->next;
}

/*
 * The caller's descriptor. Another thread may close it meanwhile, so what is read off it is good
 * only if the table says the same afterwards.
 */
static __always_inline struct file *rt_fd(u32 fd)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct fdtable *fdt = me->files->fdt;

	return fd < fdt->max_fds ? rt_fd_in(fdt, fd) : 0;
}

/* What a descriptor of /reserv stands for. */
struct rt_name {
	u64 node;
	u32 resource, kind; /* of the file */
};

static __always_inline void rt_name_of(u64 ino, struct rt_name *name)
{
	name->resource = (ino >> 56) - 1;
	name->kind = ino >> 48 & 0xff;
	name->node = (ino >> 16 & 0xffffffff) << 32 | (ino & 0xffff);
}

/* By its inode's number and device: 0, or a negative errno. */
static __always_inline int rt_resolve(u64 ino, u64 dev, struct rt_name *name)
{
	u64 area = ino >> 56;

	if (!mount_dev || dev != mount_dev || area < 1 || area > RT_RESOURCES)
		return -E_INVAL;
	rt_name_of(ino, name);
	return 0;
}

/* The number of the node whose directory or file that is, plus one, or a negative errno. */
static __always_inline int rt_get_own(struct file *file, struct inode *inode, u32 dev)
{
	struct rt_name name = {};
	u64 ino = inode->i_ino;
	int answer = rt_resolve(ino >> 56 == RT_INO_FRESH ? rt_fresh((u64)file->private_data, ino) : ino, dev, &name);

	if (answer)
		return answer;
	if (name.kind != RT_INO_SCHEDULER_DIR && name.kind != RT_INO_QUEUE_DIR &&
	    (name.kind < RT_INO_OF_NODES || name.kind >= RT_INO_OF_PROCESSES))
		return -E_INVAL;
	return 1 + (int)(u32)name.node;
}

static __always_inline bool rt_is_socket(struct inode *inode, u32 format)
{
	return format == 0140000 && inode->i_sb->s_magic == RT_SOCKFS;
}

/*
 * Who only sees a queue may open its share file, so its descriptor says nothing by itself, as that
 * of its directory does: where nobody was told who may use the queue, root may. 0, or a negative
 * errno.
 */
__noinline int rt_share(u32 resource, u64 node)
{
	struct rt_node *n;
	u64 key, who;

	if (!bpf_get_current_task_btf()->cred->fsuid.val)
		return 0;
	n = rt_node(resource, node);
	who = n ? RT_WHO(n) : 0;
	if (RT_WHO_KIND(who) != RT_QUEUE || RT_WHO_MAY(who))
		return 0;
	key = RT_USE_KEY(resource, node);
	return bpf_map_lookup_elem(&uses, &key) ? 0 : -E_ACCES;
}

#define RT_BY_SHARE 1

/*
 * Of a descriptor that is not of a queue's directory: the number of the share's inode, or a
 * negative errno. By itself, for it is rare, and by numbers, so that the others' way stores nothing
 * for it.
 */
static __noinline s64 rt_share_of(u64 queue, unsigned long arg)
{
	struct rt_name name = {};
	struct file *file = RT_CAST(file, (void *)queue);
	struct inode *inode = file->f_inode;
	u64 ino = inode->i_ino;
	int answer;

	if (ino >> 56 == RT_INO_FRESH)
		ino = rt_fresh((u64)file->private_data, ino);
	answer = rt_resolve(ino, inode->i_sb->s_dev, &name);
	asm volatile("" : : : "memory");
	if ((u64)rt_fd(arg) != queue)
		return -E_BADF;
	if (answer)
		return answer;
	if (name.kind == RT_INO_SHARE)
		return ino;
	return name.kind == RT_INO_SCHEDULER_DIR ? -E_ISDIR : -E_INVAL;
}

/*
 * The queue that the caller's descriptor `arg` stands for: 0, RT_BY_SHARE where rt_share is to be
 * asked, or a negative errno.
 */
static __always_inline int rt_queue_of(unsigned long arg, struct rt_name *name)
{
	struct files_struct *table = bpf_get_current_task_btf()->files;
	struct fdtable *fdt = table->fdt;
	struct file *queue, *again;
	struct inode *inode;
	u64 ino, dev;
	s64 share;
	u32 mode;

	if (arg > 0x7fffffff || arg >= fdt->max_fds)
		return -E_BADF;
	queue = rt_fd_in(fdt, arg);
	if (!queue)
		return -E_BADF;
	mode = RT_CAST(file, queue)->f_mode;
	inode = RT_CAST(file, queue)->f_inode;
	ino = inode->i_ino;
	dev = inode->i_sb->s_dev;
	asm volatile("" : : : "memory");
	again = table->fdt == fdt ? rt_fd_in(fdt, arg) : rt_fd(arg);
	if (again != queue || !(mode & RT_FMODE_READ) || (mode & RT_FMODE_PATH))
		return -E_BADF;
	if (__builtin_expect(!rt_resolve(ino, dev, name) && name->kind == RT_INO_QUEUE_DIR, 1))
		return 0;
	share = rt_share_of((u64)queue, arg);
	if (share < 0)
		return share;
	rt_name_of(share, name);
	return RT_BY_SHARE;
}

/* A file of RT_SEVERAL, by number: 1, or a negative errno. `by`: of rt_payer. */
__noinline int rt_tag_several(u64 file, u32 dev, u32 resource, u64 node, u64 by)
{
	u32 resources = rt_resources_of_dev(dev);
	int answer;

	if (!resources)
		return -E_OPNOTSUPP;
	if (!(resources >> (resource & 31) & 1))
		return -E_XDEV;
	answer = rt_usable(resource, node);
	if (!answer)
		answer = rt_file_tag_one(file, resource, resources, rt_pack(node), by);
	return answer < 0 ? answer : 1;
}

/* Tag an open file or socket: 1, or a negative errno. `by`: of rt_payer. */
static __always_inline int rt_tag_with(struct file *file, struct rt_name name, u64 by)
{
	u64 key = (u64)file, word;
	struct inode *inode;
	u32 format, dev, resource;
	struct rt_file *f;
	struct rt_node *n;
	struct sock *sk;
	int answer;

	f = rt_place(key);
	word = f && rt_holder(f) == key ? f->tag : 0;
	if (f && word && rt_word_resource(word) == name.resource) { /* whatever else the file is, it lives there */
		answer = rt_usable_node(name.resource, name.node, &n);
		if (answer)
			return answer;
		rt_put_known(&f->tag, rt_word(name.resource, rt_pack(name.node)), n);
		return 1;
	}
	inode = file->f_inode;
	format = rt_format(inode);
	if (rt_is_socket(inode, format)) {
		sk = RT_CAST(socket, file->private_data)->sk;
		if (!sk)
			return -E_OPNOTSUPP;
		answer = rt_sock_lives(sk, name.resource);
		if (!answer)
			answer = rt_usable(name.resource, name.node);
		if (!answer)
			answer = rt_sock_tag((u64)sk, name.resource, rt_pack(name.node), by);
		return answer ? answer : 1;
	}
	dev = rt_dev_of(inode, format);
	resource = rt_one_resource(dev);
	if (resource == RT_SEVERAL)
		return rt_tag_several(rt_number(key), dev, name.resource, name.node, by);
	if (!resource)
		return -E_OPNOTSUPP;
	if (resource != name.resource)
		return -E_XDEV;
	answer = rt_usable_node(resource, name.node, &n);
	if (!answer)
		answer = rt_file_tag_first(key, f, rt_word(resource, rt_pack(name.node)), n, by);
	return answer < 0 ? answer : 1;
}

/* By itself, for what it asks would have the way of a directory's descriptor save registers. */
static __noinline int rt_set_by_share(struct file *file, u32 resource, u64 node)
{
	struct rt_name name = { .node = node, .resource = resource };
	int answer = rt_share(resource, node);

	return answer ? answer : rt_tag_with(file, name, 0);
}

/*
 * These two are functions, so that the hook itself saves no registers for them: everybody's fcntl
 * passes it.
 */
static __noinline int rt_set_queue(struct file *file, unsigned long arg)
{
	struct rt_name name = {};
	int answer = rt_queue_of(arg, &name);

	if (__builtin_expect(!answer, 1))
		return rt_tag_with(file, name, 0);
	return answer == RT_BY_SHARE ? rt_set_by_share(file, name.resource, name.node) : answer;
}

/* Of a file of RT_SEVERAL, by number, whose own place has no tag of the resource. */
__noinline int rt_get_several(u64 file, u32 dev, u32 resource)
{
	struct rt_file *f;
	u64 word;

	if (!(rt_resources_of_dev(dev) >> (resource & 31) & 1))
		return -E_NOENT;
	f = several >> (resource & 31) & 1 ? rt_file_find_at(file + resource) : 0;
	word = f ? f->tag : 0;
	return 1 + (word && rt_word_resource(word) == resource ? rt_index(resource, rt_word_node(word)) : (u32)RT_Q0);
}

/* F_GET_QUEUE of what has no tag of the resource at a file's own place. */
static __always_inline int rt_get_other(struct file *file, unsigned long resource)
{
	u64 key = (u64)file, number = key, word;
	struct rt_file *f;
	struct inode *inode;
	struct sock *sk;
	u32 dev, format, one;

	/*
	 * Kept apart from `key`, which stands on the stack for the look-up: read back from there,
	 * 6.12's verifier does not know it as a pointer any more, and rt_number subtracts.
	 */
	asm volatile("" : "+r"(number));
	f = file_entries ? bpf_map_lookup_elem(&files, &key) : 0;
	word = f ? f->tag : 0;
	if (word && rt_word_resource(word) == resource)
		return 1 + rt_index(resource, rt_word_node(word));
	inode = file->f_inode;
	dev = inode->i_sb->s_dev;
	if (mount_dev && dev == mount_dev)
		return rt_get_own(file, inode, dev);
	if (resource >= RT_RESOURCES)
		return -E_INVAL;
	format = rt_format(inode);
	if (!rt_is_socket(inode, format)) {
		if (format == 0060000)
			dev = inode->i_rdev;
		one = rt_one_resource(dev);
		if (!resource || (one != RT_SEVERAL && one != resource))
			return -E_NOENT;
		return one == resource ? 1 + (int)(u32)RT_Q0 : rt_get_several(rt_number(number), dev, resource);
	}
	sk = RT_CAST(socket, file->private_data)->sk;
	if (!sk || rt_sock_lives(sk, resource))
		return -E_NOENT;
	return rt_sock_queue(sk, resource, true);
}

static __noinline int rt_get_queue(struct file *file, unsigned long resource)
{
	struct rt_file *f = rt_place((u64)file);
	u64 word;

	if (f && rt_holder(f) == (u64)file) {
		word = f->tag;
		if (word && rt_word_resource(word) == resource) /* whatever else the file is, it lives there */
			return 1 + rt_word_index(word);
	}
	return rt_get_other(file, resource);
}

SEC("fmod_ret/security_file_fcntl")
int BPF_PROG(rt_fcntl, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	if (cmd >> 16 != F_RESERV_SET_QUEUE >> 16 || ret)
		return ret;
	if (cmd == F_RESERV_SET_QUEUE)
		return rt_set_queue(file, arg);
	if (cmd == F_RESERV_GET_QUEUE)
		return rt_get_queue(file, arg);
	return ret;
}

/*
 * The mount is gone. Its number may be given to another one, in which anybody could make up inode
 * numbers: it means nothing from now on.
 */
SEC("fentry/kill_anon_super")
int BPF_PROG(rt_unmounted, struct super_block *sb)
{
	if (sb->s_dev == mount_dev)
		mount_dev = 0;
	return 0;
}
