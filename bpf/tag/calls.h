/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hook of the fcntl commands that concern descriptors. Everybody's fcntl passes here, so it looks at the command and is gone. The commands
 * of the CPU's threads have a hook of their own (bpf/cpu/tags.h).
 */

/*
 * The caller's descriptor. Another thread may close it meanwhile, so what is read off it is good only if the table says the same afterwards.
 */
static __always_inline struct file *rt_fd(u32 fd)
{
	struct task_struct *me = bpf_get_current_task_btf();
	struct fdtable *fdt = me->files->fdt;

	if (fd >= fdt->max_fds)
		return 0;
	/* A word of the table, read as any structure of the kernel that begins with a pointer: a call to read memory costs more than the rest. */
	return (struct file *)RT_CAST(list_head, fdt->fd + fd)->next;
}

/* What a descriptor of /reserv stands for. */
struct rt_name {
	u64 node;
	u32 resource, kind; /* of the file */
};

/* 0, or a negative errno. `readable`: whether it must have been opened for reading. */
static __always_inline int rt_resolve(struct inode *inode, struct rt_name *name)
{
	u64 ino = inode->i_ino, area = ino >> 56;

	if (!mount_dev || inode->i_sb->s_dev != mount_dev || area < 1 || area > RT_RESOURCES)
		return -E_INVAL;
	name->resource = area - 1;
	name->kind = ino >> 48 & 0xff;
	name->node = (ino >> 16 & 0xffffffff) << 32 | (ino & 0xffff);
	if (name->kind != RT_INO_SCHEDULER_DIR && name->kind != RT_INO_QUEUE_DIR &&
	    (name->kind < RT_INO_OF_NODES || name->kind >= RT_INO_OF_PROCESSES))
		return -E_INVAL;
	return 0;
}

static __always_inline bool rt_is_socket(struct inode *inode)
{
	return (inode->i_mode & 0170000) == 0140000 && inode->i_sb->s_magic == RT_SOCKFS;
}

/* The queue that the caller's descriptor `arg` stands for: 0, or a negative errno. */
static __always_inline int rt_queue_of(unsigned long arg, struct rt_name *name)
{
	struct file *queue, *again;
	u32 mode;
	int answer;

	if (arg > 0x7fffffff)
		return -E_BADF;
	queue = rt_fd(arg);
	if (!queue)
		return -E_BADF;
	mode = RT_CAST(file, queue)->f_mode;
	answer = rt_resolve(RT_CAST(file, queue)->f_inode, name);
	again = rt_fd(arg);
	if (again != queue || !(mode & RT_FMODE_READ) || (mode & RT_FMODE_PATH))
		return -E_BADF;
	if (answer)
		return answer;
	if (name->kind == RT_INO_SCHEDULER_DIR)
		return -E_ISDIR;
	return name->kind == RT_INO_QUEUE_DIR || name->kind == RT_INO_SHARE ? 0 : -E_INVAL;
}

/* Tag an open file or socket: 1, or a negative errno. */
static __always_inline int rt_tag_with(struct file *file, struct rt_name name)
{
	struct inode *inode = file->f_inode;
	u64 key = (u64)file, word;
	struct rt_file *f;
	u32 resources;
	struct sock *sk;
	int answer;

	f = rt_place(key);
	word = f && rt_holder(f) == key ? f->tag : 0;
	if (f && word && rt_word_resource(word) == name.resource) { /* whatever else the file is, it lives there */
		answer = rt_usable(name.resource, name.node);
		if (answer)
			return answer;
		rt_put_word(&f->tag, rt_word(name.resource, rt_pack(name.node)));
		return 1;
	}
	if (rt_is_socket(inode)) {
		sk = RT_CAST(socket, file->private_data)->sk;
		if (!sk)
			return -E_OPNOTSUPP;
		answer = rt_sock_lives(sk, name.resource);
		if (!answer)
			answer = rt_usable(name.resource, name.node);
		if (!answer)
			answer = rt_sock_tag((u64)sk, name.resource, rt_pack(name.node));
		return answer ? answer : 1;
	}
	resources = rt_file_resources(inode);
	if (!resources)
		return -E_OPNOTSUPP;
	if (!(resources >> (name.resource & 31) & 1))
		return -E_XDEV;
	answer = rt_usable(name.resource, name.node);
	if (!answer)
		answer = rt_file_tag(rt_tag_at(rt_number(key), name.resource, resources), rt_word(name.resource, rt_pack(name.node)));
	return answer ? answer : 1;
}

/* These two are functions, so that the hook itself saves no registers for them: everybody's fcntl passes it. */
static __noinline int rt_set_queue(struct file *file, unsigned long arg)
{
	struct rt_name name = {};
	int answer = rt_queue_of(arg, &name);

	return answer ? answer : rt_tag_with(file, name);
}

static __noinline int rt_get_queue(struct file *file, unsigned long resource)
{
	struct inode *inode = file->f_inode;
	struct rt_name name = {};
	struct sock *sk;
	u64 key = (u64)file;
	struct rt_file *f = rt_file_find(key);
	u64 word = f ? f->tag : 0;

	if (word && rt_word_resource(word) == resource) /* whatever else the file is, it lives there */
		return 1 + rt_index(rt_word_resource(word), rt_word_node(word));
	if (mount_dev && inode->i_sb->s_dev == mount_dev)
		return rt_resolve(inode, &name) ? -E_INVAL : 1 + (int)(u32)name.node;
	if (resource >= RT_RESOURCES)
		return -E_INVAL;
	if (!rt_is_socket(inode)) {
		if (!resource || !rt_file_lives(inode, resource))
			return -E_NOENT;
		return 1 + rt_index(resource, rt_file_node(key, resource));
	}
	sk = RT_CAST(socket, file->private_data)->sk;
	if (!sk || rt_sock_lives(sk, resource))
		return -E_NOENT;
	return rt_sock_queue(sk, resource);
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
 * The mount is gone. Its number may be given to another one, in which anybody could make up inode numbers: it means nothing from now on.
 */
SEC("fentry/kill_anon_super")
int BPF_PROG(rt_unmounted, struct super_block *sb)
{
	if (sb->s_dev == mount_dev)
		mount_dev = 0;
	return 0;
}
