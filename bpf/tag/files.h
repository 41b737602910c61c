/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags of open files, by struct file, so they are shared over dup, fork and SCM_RIGHTS, and go with the last reference (file_free). An
 * open tags from the process' default list.
 *
 * Most stand in `hot`, where finding one is an index and a compare, and making one an exchange; the kernel's hash costs more than the rest of
 * the call. The place is looked at before the hash. A file whose place was another's when it was first tagged goes to the hash and stays there; when the place
 * became free meanwhile, two threads that tag it at once may disagree. So who takes a place empties the file's entry in the hash, and who has put a tag
 * into the hash looks whether the place is the file's now, and then moves the tag there. Whichever comes last sees the other.
 *
 * A file on a device that is stacked above several disks (an array) has a tag for each of them. They stand as if they were the tags of files at `file + resource`, where no
 * file can be; the first one may stand at the file's own place, where it was set while there was one disk.
 */

/* A tag as it stands in a slot. */
static __always_inline u64 rt_word(u32 resource, u64 node)
{
	return node ? node | resource << 16 : 0;
}

static __always_inline u32 rt_word_resource(u64 word)
{
	return (u32)word >> 16 & (RT_RESOURCES - 1);
}

static __always_inline u64 rt_word_node(u64 word)
{
	return word & ~0xffff0000ULL;
}

/* rt_put and rt_take, of a file's slot. */
static __always_inline void rt_put_word(u64 *slot, u64 word)
{
	u64 old;

	rt_ref(rt_word_resource(word), rt_word_node(word), RT_DESCRIPTORS, 1);
	old = __sync_lock_test_and_set(slot, word);
	rt_ref(rt_word_resource(old), rt_word_node(old), RT_DESCRIPTORS, -1);
}

static __always_inline bool rt_take_word(u64 *slot, u64 word)
{
	if (__sync_val_compare_and_swap(slot, word, 0) != word)
		return false;
	rt_ref(rt_word_resource(word), rt_word_node(word), RT_DESCRIPTORS, -1);
	return true;
}

/*
 * A file's place in `hot`. The verifier allows no arithmetic on a pointer but its distance from another one; where the file is known by number,
 * `anchor_at` is that pointer's (rt_call: the daemon's first call).
 */
u64 anchor, anchor_at;

static __always_inline struct rt_file *rt_place_at(u64 distance)
{
	u32 key = distance * 0x9e3779b97f4a7c15ULL >> (64 - RT_HOT_BITS);

	return bpf_map_lookup_elem(&hot, &key);
}

static __always_inline struct rt_file *rt_place(u64 file)
{
	return rt_place_at(file - (u64)&anchor);
}

/* A pointer as a number, for what the verifier allows with numbers only. */
static __always_inline u64 rt_number(u64 pointer)
{
	u64 distance = pointer - (u64)&anchor;

	asm volatile("" : "+r"(distance)); /* not from a number */
	return distance + *(volatile u64 *)&anchor_at;
}

u32 several; /* resources for which a tag ever stood at file + resource */

static __always_inline u64 rt_holder(struct rt_file *place)
{
	return *(volatile u64 *)&place->file;
}

/* Where a file has its tag; 0: nowhere yet. */
static __always_inline struct rt_file *rt_file_find(u64 file)
{
	struct rt_file *f = rt_place(file);

	if (f && rt_holder(f) == file)
		return f;
	return file_entries ? bpf_map_lookup_elem(&files, &file) : 0;
}

/* The same, by number. */
static __always_inline struct rt_file *rt_file_find_at(u64 at)
{
	struct rt_file *f = rt_place_at(at - *(volatile u64 *)&anchor_at);

	if (f && rt_holder(f) == at)
		return f;
	return file_entries ? bpf_map_lookup_elem(&files, &at) : 0;
}

/* The resources that a file lives on, a bit for each. Of a block device's file they are the device's own. */
static __always_inline u32 rt_file_resources(struct inode *inode)
{
	u32 format = inode->i_mode & 0170000;

	return rt_resources_of_dev(format == 0060000 ? inode->i_rdev : inode->i_sb->s_dev);
}

static __always_inline bool rt_file_lives(struct inode *inode, u32 resource)
{
	return rt_file_resources(inode) >> (resource & 31) & 1;
}

/* Where the tag for one of the resources on which a file lives stands, or will stand. */
static __always_inline u64 rt_tag_at(u64 at, u32 resource, u32 resources)
{
	u32 bit = 1U << (resource & 31);
	struct rt_file *f;
	u64 word;

	if (!(several & bit) && !rt_several(resources))
		return at;
	f = rt_file_find_at(at);
	word = f ? f->tag : 0;
	if (word && rt_word_resource(word) == resource)
		return at;
	if (rt_several(resources)) {
		__sync_fetch_and_or(&several, bit);
		return at + resource;
	}
	return rt_file_find_at(at + resource) ? at + resource : at;
}

/* `file`: by number. */
static __noinline int rt_file_tag(u64 file, u64 word)
{
	struct rt_file new = { .file = file }, *place = rt_place_at(file - *(volatile u64 *)&anchor_at), *f = 0, *other;
	u64 holder;

	if (!place)
		return -E_NOSPC;
	if (rt_holder(place) != file) {
		if (file_entries)
			f = bpf_map_lookup_elem(&files, &file);
		if (!f && !word)
			return 0;
		holder = f ? file : __sync_val_compare_and_swap(&place->file, 0, file);
		if (!f && !holder && file_entries) {
			other = bpf_map_lookup_elem(&files, &file);
			if (other)
				rt_put_word(&other->tag, 0);
		}
		if (!f && holder && holder != file) {
			__sync_fetch_and_add(&file_entries, 1); /* before, so that nobody misses it */
			if (bpf_map_update_elem(&files, &file, &new, BPF_NOEXIST))
				__sync_fetch_and_add(&file_entries, -1);
			f = bpf_map_lookup_elem(&files, &file);
			if (!f) {
				__sync_fetch_and_add(&lost, 1);
				return -E_NOSPC;
			}
		}
	}
	if (!f) {
		rt_put_word(&place->tag, word);
		return 0;
	}
	rt_put_word(&f->tag, word);
	if (rt_holder(place) == file) {
		rt_take_word(&f->tag, word);
		rt_put_word(&place->tag, word);
	}
	return 0;
}

/* The file's queue of a resource, by handle; 0: q0. */
static __always_inline u64 rt_file_node(u64 file, u32 resource)
{
	struct rt_file *f = rt_file_find(file);
	u64 word = f ? f->tag : 0;

	if (word && rt_word_resource(word) == resource)
		return rt_word_node(word);
	if (!(several >> (resource & 31) & 1))
		return 0;
	f = rt_file_find_at(rt_number(file) + resource);
	word = f ? f->tag : 0;
	return word && rt_word_resource(word) == resource ? rt_word_node(word) : 0;
}

/* From the default list of who opens it. `file`: by number. */
static __noinline int rt_file_default(u64 file, u32 resource, u32 resources)
{
	struct rt_lists *l = rt_my_lists();
	u64 node = l ? l->list[RT_DEFAULT][resource & (RT_RESOURCES - 1)] : 0;

	if (node && rt_usable(resource, node))
		node = 0;
	file = rt_tag_at(file, resource, resources);
	if (node || rt_file_find_at(file)) /* a tag of a former file at this address, whose end was not seen, is none of it */
		rt_file_tag(file, rt_word(resource, node));
	return 0;
}

/* Once only, for it is on the way of every open(): a file that is missed has no tag, and its requests are those of whoever makes them. */
SEC("fentry/security_file_open")
int BPF_PROG(rt_opened, struct file *file)
{
	u32 resources, r;
	u64 at;

	if (!file_count)
		return 0;
	resources = rt_file_resources(file->f_inode);
	if (!resources)
		return 0;
	at = rt_number((u64)file);
	if (!rt_several(resources))
		return rt_file_default(at, rt_first(resources), resources);
	if (rt_file_find_at(at))
		rt_file_tag(at, 0); /* likewise */
	bpf_for(r, 1, RT_RESOURCES)
		if (resources >> (r & 31) & 1)
			rt_file_default(at, r, resources);
	return 0;
}

static __always_inline void rt_place_end(u64 key)
{
	struct rt_file *f = rt_place_at(key - *(volatile u64 *)&anchor_at);

	if (f && rt_holder(f) == key) {
		rt_put_word(&f->tag, 0);
		__sync_lock_test_and_set(&f->file, 0);
	}
	if (!file_entries)
		return;
	f = bpf_map_lookup_elem(&files, &key);
	if (!f)
		return;
	rt_put_word(&f->tag, 0);
	if (!bpf_map_delete_elem(&files, &key))
		__sync_fetch_and_add(&file_entries, -1);
}

/* A file, by number, is no more. */
static __noinline int rt_file_end(u64 file)
{
	u32 r;

	rt_place_end(file);
	if (several)
		bpf_for(r, 1, RT_RESOURCES)
			if (several >> (r & 31) & 1)
				rt_place_end(file + r);
	return 0;
}

HOOK(rt_freed, struct file *file)
{
	return rt_file_end(rt_number((u64)file));
}
HOOK_COPY("fentry/security_file_free", rt_freed, rt_freed_body)
HOOK_COPY("fentry/security_file_free", rt_freed_2, rt_freed_body)
