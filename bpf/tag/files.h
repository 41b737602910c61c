/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags of open files, by struct file, so they are shared over dup, fork and SCM_RIGHTS, and go with
 * the last reference (file_free). An open tags with what works.h says.
 *
 * Most stand in `hot`, where finding one is an index and a compare, and making one an exchange; the
 * kernel's hash costs more than the rest of the call. The place is looked at before the hash. A
 * file whose place was another's when it was first tagged goes to the hash and stays there; when
 * the place became free meanwhile, two threads that tag it at once may disagree. So who takes a
 * place empties the file's entry in the hash, and who has put a tag into the hash looks whether the
 * place is the file's now, and then moves the tag there. Whichever comes last sees the other.
 *
 * A file on a device that is stacked above several disks (an array) has a tag for each of them.
 * They stand as if they were the tags of files at `file + resource`, where no file can be; the
 * first one may stand at the file's own place, where it was set while there was one disk.
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

/* rt_index of a tag that is not q0's. */
static __always_inline u32 rt_word_index(u64 word)
{
	u32 index = word & (RT_NODES_MAX - 1), key = rt_word_resource(word) * RT_NODES_MAX | index;
	struct rt_node *n = bpf_map_lookup_elem(&nodes, &key);

	return n && n->generation == word >> 32 ? index : (u32)RT_Q0;
}

/* rt_put and rt_take, of a file's slot. */
static __always_inline void rt_put_word(u64 *slot, u64 word)
{
	u64 old;

	rt_ref(rt_word_resource(word), rt_word_node(word), RT_DESCRIPTORS, 1);
	old = __sync_lock_test_and_set(slot, word);
	rt_ref(rt_word_resource(old), rt_word_node(old), RT_DESCRIPTORS, -1);
}

/* rt_put_word, where the node of the new word is at hand. */
static __always_inline void rt_put_known(u64 *slot, u64 word, struct rt_node *n)
{
	u64 old;

	if (word)
		__sync_fetch_and_add(&n->descriptors, 1);
	old = __sync_lock_test_and_set(slot, word);
	if (old)
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
 * A file's place in `hot`. The verifier allows no arithmetic on a pointer but its distance from
 * another one; where the file is known by number, `anchor_at` is that pointer's (rt_call: the
 * daemon's first call).
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

/*
 * Places and entries at `file + resource`: how many (RT_ELSEWHERE each), and for which resources, a
 * bit for each. 0 where there is none, and then nobody looks there. In one word, which becomes 0 by
 * an exchange: it is counted before a place is taken and after it was given back, so that whoever
 * holds a file that has one sees it. Each stands in `file_entries` too.
 */
u64 several;
#define RT_ELSEWHERE (1ULL << RT_RESOURCES)
#define RT_SEVERAL RT_RESOURCES

/*
 * The resource of the files of a device; 0: none; RT_SEVERAL: there are several, or were of some
 * file that is open.
 */
static __always_inline u32 rt_one_resource(u32 dev)
{
	u32 resources;

	if (!several && !(above_bits & rt_above_bit(dev)))
		return rt_resource_of_dev(dev);
	resources = rt_resources_of_dev(dev);
	if (!resources)
		return 0;
	return several || rt_several(resources) ? RT_SEVERAL : rt_first(resources);
}

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

/*
 * The kind of a file, of its mode. Who needs more than one of these asks once: a read of the
 * kernel's memory is several instructions.
 */
static __always_inline u32 rt_format(struct inode *inode)
{
	return inode->i_mode & 0170000;
}

/* The device that a file lives on. A block device's file lives on the device itself. */
static __always_inline u32 rt_dev_of(struct inode *inode, u32 format)
{
	return format == 0060000 ? inode->i_rdev : inode->i_sb->s_dev;
}

static __always_inline u32 rt_file_dev(struct inode *inode)
{
	return rt_dev_of(inode, rt_format(inode));
}

/* The resources that a file lives on, a bit for each. */
static __always_inline u32 rt_file_resources(struct inode *inode)
{
	return rt_resources_of_dev(rt_file_dev(inode));
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
	return rt_several(resources) || rt_file_find_at(at + resource) ? at + resource : at;
}

/* The file's tag in the hash is none. */
static __noinline int rt_entry_empty(u64 file)
{
	struct rt_file *f = bpf_map_lookup_elem(&files, &file);

	if (f)
		rt_put_word(&f->tag, 0);
	return 0;
}

/*
 * `file`: a pointer or a number. `place`: its own. `by`: of rt_payer. 0, or RT_TAKEN where it had
 * neither place nor entry before, or a negative errno.
 */
#define RT_TAKEN 1
static __noinline int rt_file_tag(u64 file, struct rt_file *place, u64 word, u64 by)
{
	struct rt_file new = {}, *f = 0;
	int taken = 0, account;
	u64 holder;

	if (!place)
		return -E_NOSPC;
	if (rt_holder(place) != file) {
		if (file_entries)
			f = bpf_map_lookup_elem(&files, &file);
		if (!f && !word)
			return 0;
		holder = f ? file : __sync_val_compare_and_swap(&place->file, 0, file);
		taken = holder ? 0 : RT_TAKEN;
		if (!f && !holder && file_entries)
			rt_entry_empty(file);
		if (!f && holder && holder != file) {
			account = rt_account_take(rt_payer(by), RT_OF_FILES);
			if (account < 0) {
				__sync_fetch_and_add(&lost, 1);
				return account;
			}
			new.account = account;
			/* before, so that nobody misses it */
			__sync_fetch_and_add(&file_entries, 1);
			taken = RT_TAKEN;
			if (bpf_map_update_elem(&files, &file, &new, BPF_NOEXIST)) {
				__sync_fetch_and_add(&file_entries, -1);
				rt_account_give(account, RT_OF_FILES);
				taken = 0; /* another thread has made it */
			}
			f = bpf_map_lookup_elem(&files, &file);
			if (!f) {
				__sync_fetch_and_add(&lost, 1);
				return -E_NOSPC;
			}
		}
	}
	if (!f) {
		rt_put_word(&place->tag, word);
		return taken;
	}
	rt_put_word(&f->tag, word);
	if (rt_holder(place) == file) {
		rt_take_word(&f->tag, word);
		rt_put_word(&place->tag, word);
	}
	return taken;
}

/*
 * The same for a file that most often has no tag yet, and whose place is free. `n`: the word's
 * node.
 */
static __always_inline int rt_file_tag_first(u64 file, struct rt_file *place, u64 word, struct rt_node *n, u64 by)
{
	if (!word || !place || file_entries || __sync_val_compare_and_swap(&place->file, 0, file))
		return rt_file_tag(file, place, word, by);
	if (file_entries)
		rt_entry_empty(file);
	rt_put_known(&place->tag, word, n);
	return 0;
}

static __always_inline int rt_file_tag_at(u64 file, u64 word, u64 by)
{
	return rt_file_tag(file, rt_place_at(file - *(volatile u64 *)&anchor_at), word, by);
}

/*
 * A place or entry elsewhere was given back, or not taken. The last one ends the search for them.
 */
static __always_inline void rt_elsewhere_less(void)
{
	u64 left = __sync_fetch_and_add(&several, -RT_ELSEWHERE) - RT_ELSEWHERE;

	__sync_fetch_and_add(&file_entries, -1);
	if (left < RT_ELSEWHERE)
		__sync_val_compare_and_swap(&several, left, 0);
}

/* The tag of one of the resources of a file of RT_SEVERAL, by number. */
__noinline int rt_file_tag_one(u64 file, u32 resource, u32 resources, u64 node, u64 by)
{
	u64 at = rt_tag_at(file, resource, resources);
	int answer;

	if (at == file)
		return rt_file_tag_at(at, rt_word(resource, node), by);
	__sync_fetch_and_add(&file_entries, 1);
	__sync_fetch_and_add(&several, RT_ELSEWHERE);
	__sync_fetch_and_or(&several, 1ULL << (resource & (RT_RESOURCES - 1)));
	answer = rt_file_tag_at(at, rt_word(resource, node), by);
	if (answer != RT_TAKEN)
		rt_elsewhere_less();
	return answer;
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

/* rt_opened, of RT_SEVERAL. `file`: by number. */
__noinline int rt_opened_several(u64 file, u32 dev)
{
	u32 r, resources = rt_resources_of_dev(dev);
	struct rt_lists *l;
	bool works;
	u64 node;

	if (!resources)
		return 0;
	l = rt_my_lists();
	works = rt_works_used();
	if (rt_file_find_at(file)) /* as in rt_opened */
		rt_file_tag_at(file, 0, 0);
	bpf_for(r, 1, RT_RESOURCES) {
		if (!(resources >> (r & 31) & 1))
			continue;
		asm volatile("" : "+r"(r)); /* as in rt_bio_queued */
		node = works ? rt_worked(r) : 0;
		if (!node)
			node = l ? l->list[RT_DEFAULT][r & (RT_RESOURCES - 1)] : 0;
		if (node && rt_usable(r, node))
			node = 0;
		if (node || (several && rt_file_find_at(file + r)))
			rt_file_tag_one(file, r, resources, node, 0);
	}
	return 0;
}

/*
 * Once only, for it is on the way of every open(): a file that is missed has no tag, and its
 * requests are those of whoever makes them.
 */
SEC("fentry/security_file_open")
int BPF_PROG(rt_opened, struct file *file)
{
	struct rt_lists *l;
	struct rt_node *n;
	u32 dev, resource;
	u64 node;

	if (!file_count)
		return 0;
	dev = rt_file_dev(file->f_inode);
	resource = rt_one_resource(dev);
	if (!resource)
		return 0;
	if (resource == RT_SEVERAL)
		return rt_opened_several(rt_number((u64)file), dev);
	l = rt_my_lists();
	node = rt_works_used() ? rt_worked(resource) : 0;
	if (!node)
		node = l ? l->list[RT_DEFAULT][resource & (RT_RESOURCES - 1)] : 0;
	if (node && !rt_usable_node(resource, node, &n))
		rt_file_tag_first((u64)file, rt_place((u64)file), rt_word(resource, node), n, 0);
	else if (rt_file_find((u64)file)) /* a tag of a former file at this address, whose end was not seen, is none of it */
		rt_file_tag((u64)file, rt_place((u64)file), 0, 0);
	return 0;
}

/* A file is no more; its place. Answers whether it may have had a tag elsewhere. */
static __always_inline bool rt_place_end(u64 key, struct rt_file *f)
{
	if (f && rt_holder(f) == key) {
		rt_put_word(&f->tag, 0);
		__sync_lock_test_and_set(&f->file, 0);
	}
	return file_entries;
}

/* Answers whether there was one. */
static __always_inline bool rt_entry_end(u64 key)
{
	struct rt_file *f = bpf_map_lookup_elem(&files, &key);
	u32 account;

	if (!f)
		return false;
	account = f->account;
	rt_put_word(&f->tag, 0);
	if (bpf_map_delete_elem(&files, &key))
		return false;
	rt_account_give(account, RT_OF_FILES);
	__sync_fetch_and_add(&file_entries, -1);
	return true;
}

/* Of a tag that stands elsewhere. */
__noinline int rt_end_at(u64 key)
{
	struct rt_file *f = rt_place_at(key - *(volatile u64 *)&anchor_at);

	if (f && rt_holder(f) == key) {
		rt_put_word(&f->tag, 0);
		__sync_lock_test_and_set(&f->file, 0);
		rt_elsewhere_less();
	}
	if (rt_entry_end(key))
		rt_elsewhere_less();
	return 0;
}

/* The same, where tags do not stand at the file's place. By number. */
__noinline int rt_file_end_elsewhere(u64 file)
{
	/* all of them that the file can have one of: it is nobody's any more */
	u64 resources = several;
	u32 r;

	rt_entry_end(file);
	if (!resources)
		return 0;
	bpf_for(r, 1, RT_RESOURCES)
		if (resources >> (r & (RT_RESOURCES - 1)) & 1)
			rt_end_at(file + r);
	return 0;
}

HOOK(rt_freed, struct file *file)
{
	if (rt_place_end((u64)file, rt_place((u64)file)))
		rt_file_end_elsewhere(rt_number((u64)file));
	return 0;
}
HOOK_COPY("fentry/security_file_free", rt_freed, rt_freed_body)
HOOK_COPY("fentry/security_file_free", rt_freed_2, rt_freed_body)
