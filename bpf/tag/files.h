/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags of open files: a hash by struct file, so they are shared over dup, fork and SCM_RIGHTS, and go with the last reference (file_free). An
 * open tags from the process' default list.
 */

/* The resource that a file lives on; 0: none. Of a block device's file it is the device's own. */
static __always_inline u32 rt_file_resource(struct inode *inode)
{
	u32 format = inode->i_mode & 0170000;

	return rt_resource_of_dev(format == 0060000 ? inode->i_rdev : inode->i_sb->s_dev);
}

static __always_inline int rt_file_tag(u64 key, u32 resource, u64 node)
{
	struct rt_file none = { .resource = resource }, *f = bpf_map_lookup_elem(&files, &key);

	if (!f) {
		if (!node)
			return 0;
		if (!bpf_map_update_elem(&files, &key, &none, BPF_NOEXIST))
			__sync_fetch_and_add(&file_entries, 1);
		f = bpf_map_lookup_elem(&files, &key);
		if (!f) {
			__sync_fetch_and_add(&lost, 1);
			return -E_NOSPC;
		}
	}
	rt_put(&f->node, resource, node, RT_DESCRIPTORS);
	return 0;
}

/* The file's queue, by handle; 0: q0. */
static __always_inline u64 rt_file_node(u64 key)
{
	struct rt_file *f = bpf_map_lookup_elem(&files, &key);

	return f ? f->node : 0;
}

SEC("fentry/security_file_open")
int BPF_PROG(rt_opened, struct file *file)
{
	struct rt_lists *l;
	u32 resource;
	u64 node;

	if (!file_count)
		return 0;
	resource = rt_file_resource(file->f_inode);
	if (!resource)
		return 0;
	l = rt_my_lists();
	if (!l)
		return 0;
	node = l->list[RT_DEFAULT][resource & (RT_RESOURCES - 1)];
	if (node && !rt_usable(resource, node))
		rt_file_tag((u64)file, resource, node);
	return 0;
}

SEC("fentry/security_file_free")
int BPF_PROG(rt_freed, struct file *file)
{
	u64 key = (u64)file;
	struct rt_file *f;

	if (!file_entries)
		return 0;
	f = bpf_map_lookup_elem(&files, &key);
	if (!f)
		return 0;
	rt_put(&f->node, f->resource, 0, RT_DESCRIPTORS);
	if (!bpf_map_delete_elem(&files, &key))
		__sync_fetch_and_add(&file_entries, -1);
	return 0;
}
