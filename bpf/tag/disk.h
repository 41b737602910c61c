/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Disks that are scheduled: who owns a request is written down, by its tag, before the block server
 * has it. Attached while there is such a disk.
 *
 * Whose it is, the first of these that says so:
 *   1. direct I/O: the tag of the open file, which the request's own description leads to, whoever
 *      runs now (libaio, io_uring);
 *   2. what is written from the page cache: who dirtied the file last; file-system metadata (pages
 *      of the device itself that nobody wrote through a descriptor of it) are q0's;
 *   3. the tag of the open file of the caller's read or write;
 *   4. what the caller works for (works.h): its container's queue, or its default list's.
 * What a driver stacked above the disk passes on is whose the original is: stacked.h. Files and
 * inodes live on a disk also where their device is stacked above it.
 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RT_RESOURCES * RT_SLOTS);
	__type(key, u32);
	__type(value, struct rt_slot);
} slots SEC(".maps");

/*
 * Who dirtied an inode last, by its address and the resource, whose number is less than an inode's
 * size. An address that is used again is overwritten before its first writeback.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, u64);
	__type(value, u64);
} writers SEC(".maps");

u32 disk_resources; /* a bit for each */
u32 disk_count; /* entries of the two below */
u32 disk_dev[RT_RESOURCES];
u8 disk_resource[RT_RESOURCES];
u64 slot_seq;

#define RT_DIO_IS_SYNC 2
#define RT_S_IFMT 0170000
#define RT_S_IFBLK 0060000
#define RT_S_IFREG 0100000

static __always_inline u32 rt_disk_of(u32 dev)
{
	u32 i;

	for (i = 0; i < RT_RESOURCES; i++) {
		if (i >= disk_count)
			break;
		if (disk_dev[i] == dev)
			return disk_resource[i] & (RT_RESOURCES - 1);
	}
	return 0;
}

static __always_inline u64 rt_my_default(u32 resource)
{
	return rt_mine(rt_my_lists(), resource);
}

/*
 * The open file of the system call that runs now, where it is one that moves data of the file that
 * its first argument names; else 0.
 */
static __always_inline struct file *rt_file_of_call(void)
{
#ifdef bpf_target_x86
	struct task_struct *me = bpf_get_current_task_btf();
	struct pt_regs *regs;
	u64 number;

	if (me->flags & (PF_KTHREAD | PF_IO_WORKER))
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(me);
	if (!regs)
		return 0;
	number = regs->orig_ax;
	switch (number) {
	case 0: /* read */
	case 1: /* write */
	case 17: /* pread64 */
	case 18: /* pwrite64 */
	case 19: /* readv */
	case 20: /* writev */
	case 74: /* fsync */
	case 75: /* fdatasync */
	case 187: /* readahead */
	case 221: /* fadvise64 */
	case 277: /* sync_file_range */
	case 295: /* preadv */
	case 296: /* pwritev */
	case 327: /* preadv2 */
	case 328: /* pwritev2 */
		return rt_fd(regs->di);
	}
#endif
	return 0;
}

/*
 * The owner by the caller: its descriptor's tag, else its default. `device`: it has the block
 * device itself open, for this call.
 */
static __always_inline u64 rt_caller(u32 resource, bool *device)
{
	struct file *file = rt_file_of_call();
	struct inode *inode;
	u64 node;
	u32 format;

	*device = false;
	if (file) {
		inode = RT_CAST(file, file)->f_inode;
		format = inode->i_mode & RT_S_IFMT;
		*device = format == RT_S_IFBLK;
		if ((format == RT_S_IFBLK || format == RT_S_IFREG) && rt_file_lives(inode, resource)) {
			node = rt_file_node((u64)file, resource);
			if (node && rt_node(resource, node))
				return node;
		}
	}
	return rt_my_default(resource);
}

/*
 * Addresses of functions that requests remember; 0: not known. Most are static, so no type names
 * them. The kernel is asked here, with the first disk, and not by `extern … __ksym`: for those
 * libbpf reads all of /proc/kallsyms, a fourth of what loading costs.
 */
static u64 end_of_iomap, end_of_device_async, end_of_device, complete_rw, complete_iopoll;

#define RT_FIND(function, address)                                                        \
	do {                                                                              \
		static const char name_[] = function;                                     \
		u64 found_ = 0;                                                           \
											  \
		if (!address && !bpf_kallsyms_lookup_name(name_, sizeof(name_), 0, &found_)) \
			address = found_;                                                 \
	} while (0)

static __always_inline void rt_find_functions(void)
{
	RT_FIND("iomap_dio_bio_end_io", end_of_iomap);
	RT_FIND("blkdev_bio_end_io_async", end_of_device_async);
	RT_FIND("blkdev_bio_end_io", end_of_device);
	RT_FIND("io_complete_rw", complete_rw);
	RT_FIND("io_complete_rw_iopoll", complete_iopoll);
}

/* Of direct I/O what was asked for; else 0. */
static __always_inline struct kiocb *rt_iocb_of_bio(struct bio *bio, u64 at)
{
	u64 done = (u64)bio->bi_end_io;
	struct kiocb *iocb = 0;
	struct blkdev_dio *dio;

	if (!done)
		return 0;
	if (bpf_core_type_exists(struct iomap_dio) && done == end_of_iomap)
		iocb = RT_CAST(iomap_dio, bio->bi_private)->iocb;
	else if (bpf_core_type_exists(struct blkdev_dio) && done == end_of_device_async)
		iocb = RT_CAST(blkdev_dio, (void *)(at - bpf_core_field_offset(struct blkdev_dio, bio)))->iocb;
	else if (bpf_core_type_exists(struct blkdev_dio) && done == end_of_device) {
		dio = RT_CAST(blkdev_dio, bio->bi_private);
		if (!(dio->flags & RT_DIO_IS_SYNC))
			iocb = dio->iocb;
	}
	return iocb;
}

/* A program's own, with memory that it registered: that is another's vector too. */
static __always_inline bool rt_is_registered(struct kiocb *iocb)
{
	u64 complete = (u64)iocb->ki_complete;

	return complete && (complete == complete_rw || complete == complete_iopoll);
}

/* Of a page of the page cache the inode; else 0. */
static __always_inline struct inode *rt_inode_of_bio(struct bio *bio)
{
	struct bio_vec *vec = bio->bi_io_vec;
	u64 mapping = 0, head = 0, at = 0;
	struct page *page;

	/* Read as numbers: the verifier lets nobody look at the bits of a pointer. */
	if (vec)
		bpf_core_read(&at, sizeof(at), &vec->bv_page);
	if (!at)
		return 0;
	page = RT_CAST(page, (void *)at);
	if (bpf_core_field_exists(struct page, compound_head))
		bpf_core_read(&head, sizeof(head), &page->compound_head);
	else if (bpf_core_field_exists(struct page___info, compound_info))
		bpf_core_read(&head, sizeof(head), &((struct page___info *)page)->compound_info);
	if (head & 1) {
		head--;
		if ((s64)head > -(1LL << 40)) /* a mask: no address is that high */
			head &= at;
		page = RT_CAST(page, (void *)head);
	}
	bpf_core_read(&mapping, sizeof(mapping), &page->mapping);
	if (!mapping || mapping & 3) /* anonymous memory */
		return 0;
	return RT_CAST(address_space, (void *)mapping)->host;
}

/* `at`: by number, so that this is verified once and not wherever it is called. */
__noinline u64 rt_bio_owner(u64 at, u32 resource)
{
	struct bio *bio = RT_CAST(bio, (void *)at);
	struct kiocb *iocb = rt_iocb_of_bio(bio, at);
	struct file *file = iocb ? iocb->ki_filp : 0;
	struct rt_handed *original;
	struct inode *inode;
	u64 node, key, *writer;
	bool device;

	if (passing_count && !(iocb && rt_is_registered(iocb))) {
		original = rt_original_of(bio, iocb);
		if (original && original->resources >> (resource & 31) & 1) {
			node = original->node[resource & (RT_RESOURCES - 1)];
			if (node && rt_node(resource, node))
				return node;
			if (!file) /* a loop device has a file, which may be tagged */
				return 0;
		}
	}
	if (file) {
		node = rt_file_node((u64)file, resource);
		return node && rt_node(resource, node) ? node : rt_my_default(resource);
	}
	inode = rt_inode_of_bio(bio);
	if (inode && rt_file_lives(inode, resource)) {
		key = rt_number((u64)inode) + resource;
		if ((bio->bi_opf & RT_OP_MASK) == RT_OP_WRITE) {
			writer = bpf_map_lookup_elem(&writers, &key);
			if (writer)
				return rt_node(resource, *writer) ? *writer : 0;
		}
		node = rt_caller(resource, &device);
		return (inode->i_mode & RT_S_IFMT) == RT_S_IFBLK && !device ? 0 : node;
	}
	return rt_caller(resource, &device);
}

static __always_inline u64 rt_io_owner(struct request *rq, u32 resource)
{
	struct bio *bio = rq->bio;
	bool device;

	return bio ? rt_bio_owner(rt_number((u64)bio), resource) : rt_caller(resource, &device);
}

/*
 * An original is handed to a device that is stacked above disks. Attached while there is such a
 * device.
 */
HOOK(rt_bio_queued, struct bio *bio)
{
	struct rt_handed original = {}, *before;
	u64 data, vec = (u64)bio->bi_io_vec, at = rt_number((u64)bio);
	struct rt_above *a;
	u32 dev, r;

	if (!passing_count || !vec)
		return 0;
	dev = bio->bi_bdev->bd_dev;
	a = bpf_map_lookup_elem(&above, &dev);
	if (!a || !a->passes)
		return 0;
	data = rt_data_of(bio);
	original.resources = a->passes;
	original.index = bio->bi_iter.bi_idx;
	original.page = rt_page_of(vec, original.index);
	original.at = bpf_ktime_get_ns();
	bpf_for(r, 1, RT_RESOURCES) {
		if (!(original.resources >> (r & 31) & 1))
			continue;
		/* else the mask is left out, without which 6.12's verifier knows no bound */
		asm volatile("" : "+r"(r));
		original.node[r & (RT_RESOURCES - 1)] = rt_bio_owner(at, r);
	}
	before = bio->bi_flags & RT_BIO_CLONED ? rt_handed_of(data, vec) : 0;
	if (before && before->resources & ~original.resources) {
		bpf_for(r, 1, RT_RESOURCES) {
			if (!(before->resources >> (r & 31) & 1) || a->passes >> (r & 31) & 1)
				continue;
			asm volatile("" : "+r"(r)); /* as above */
			original.resources |= 1U << (r & 31);
			original.node[r & (RT_RESOURCES - 1)] = before->node[r & (RT_RESOURCES - 1)];
		}
	}
	if (data)
		bpf_map_update_elem(&handed, &data, &original, BPF_ANY);
	bpf_map_update_elem(&handed, &vec, &original, BPF_ANY);
	return 0;
}
HOOK_COPY("tp_btf/block_bio_queue", rt_bio_queued, rt_bio_queued_body)
HOOK_COPY("tp_btf/block_bio_queue", rt_bio_queued_2, rt_bio_queued_body)

/*
 * An original is too large for the device: `bio` is its beginning, which leads to the rest, and the
 * rest goes the same way without being queued again.
 */
HOOK(rt_bio_split, struct bio *bio)
{
	struct rt_handed *original;
	u64 data, vec = 0;
	struct bio *rest;
	u32 dev;

	if (!passing_count)
		return 0;
	dev = bio->bi_bdev->bd_dev;
	if (!bpf_map_lookup_elem(&above, &dev))
		return 0;
	rest = RT_CAST(bio, bio->bi_private);
	bpf_core_read(&vec, sizeof(vec), &rest->bi_io_vec);
	original = bpf_map_lookup_elem(&handed, &vec);
	data = rt_data_of(rest);
	if (original && data)
		bpf_map_update_elem(&handed, &data, original, BPF_ANY);
	return 0;
}
HOOK_COPY("tp_btf/block_split", rt_bio_split, rt_bio_split_body)
HOOK_COPY("tp_btf/block_split", rt_bio_split_2, rt_bio_split_body)

static __always_inline struct rt_slot *rt_slot_of(struct request *rq, u32 *resource)
{
	struct gendisk *disk = rq->q->disk;
	u32 key, queue, tag = rq->tag;

	if (!disk_count || !disk)
		return 0;
	*resource = rt_disk_of((u32)disk->major << 20 | (u32)disk->first_minor);
	if (!*resource || tag >= RT_SLOTS_QUEUE)
		return 0;
	queue = rq->mq_hctx->queue_num;
	if (queue >= RT_SLOTS / RT_SLOTS_QUEUE)
		return 0;
	key = *resource * RT_SLOTS + queue * RT_SLOTS_QUEUE + tag;
	return bpf_map_lookup_elem(&slots, &key);
}

HOOK(rt_io_start, struct request *rq)
{
	u32 resource = 0;
	struct rt_slot *slot = rt_slot_of(rq, &resource);

	if (slot) { /* fresh or not: a request that was merged into another one was never issued */
		slot->node = rt_io_owner(rq, resource);
		slot->write = RT_SLOT_FRESH;
	}
	return 0;
}
HOOK_COPY("tp_btf/block_io_start", rt_io_start, rt_io_start_body)
HOOK_COPY("tp_btf/block_io_start", rt_io_start_2, rt_io_start_body) /* no third: the next one makes up for it */

/*
 * By now the request has what was merged into it. A flush borrows the tag of a request, and means
 * nothing here. A slot that is not fresh is that of a request that is issued again, whole or its
 * rest, or (other bytes) its start's program was left out: then most often the caller still is who
 * made the request.
 */
HOOK(rt_io_issue, struct request *rq)
{
	u32 resource = 0, op = rq->cmd_flags & RT_OP_MASK;
	u64 offset = rq->__sector << 9, end = offset + rq->__data_len;
	struct rt_slot *slot;
	u16 write = op != RT_OP_READ;

	if (op == RT_OP_FLUSH)
		return 0;
	slot = rt_slot_of(rq, &resource);
	if (!slot)
		return 0;
	if (!(slot->write & RT_SLOT_FRESH) && (slot->write != write || offset < slot->offset || end != slot->offset + slot->bytes))
		slot->node = rt_io_owner(rq, resource);
	slot->offset = offset;
	slot->bytes = end - offset;
	slot->write = write;
	slot->priority = rq->bio ? rq->bio->bi_ioprio : 0;
	slot->seq = __sync_fetch_and_add(&slot_seq, 1) + 1;
	return 0;
}
HOOKED("tp_btf/block_rq_issue", rt_io_issue)

__noinline int rt_dirtied_by(u64 at, u32 resource)
{
	struct inode *inode = RT_CAST(inode, (void *)at);
	u64 key = at + resource, node;
	bool device;

	node = rt_caller(resource, &device);
	if ((inode->i_mode & RT_S_IFMT) == RT_S_IFBLK && !device)
		node = 0;
	bpf_map_update_elem(&writers, &key, &node, BPF_ANY);
	return 0;
}

HOOK(rt_dirtied, struct folio *folio, struct address_space *mapping)
{
	struct inode *inode;
	u32 resources, r;
	u64 at;

	if (!disk_count || !mapping)
		return 0;
	inode = mapping->host;
	if (!inode)
		return 0;
	resources = rt_file_resources(inode) & disk_resources;
	if (!resources)
		return 0;
	at = rt_number((u64)inode);
	if (!rt_several(resources))
		return rt_dirtied_by(at, rt_first(resources));
	bpf_for(r, 1, RT_RESOURCES)
		if (resources >> (r & 31) & 1)
			rt_dirtied_by(at, r);
	return 0;
}
HOOK_COPY("tp_btf/writeback_dirty_folio", rt_dirtied, rt_dirtied_body)
HOOK_COPY("tp_btf/writeback_dirty_folio", rt_dirtied_2, rt_dirtied_body)

/* The count is changed last when a disk is added and first when one is taken away. */
static __always_inline int rt_call_disk(struct rt_call *c)
{
	u32 i, n = rt_none, count = disk_count;

	if (!c->resource)
		return -E_INVAL;
	rt_find_functions();
	disk_count = 0;
	disk_resources = c->a ? disk_resources | 1U << (c->resource & 31) : disk_resources & ~(1U << (c->resource & 31));
	bpf_for(i, 0, RT_RESOURCES) {
		u32 dev = disk_dev[i & (RT_RESOURCES - 1)], resource = disk_resource[i & (RT_RESOURCES - 1)];

		if (i >= count)
			break;
		if (resource == c->resource)
			continue;
		disk_dev[n & (RT_RESOURCES - 1)] = dev;
		disk_resource[n++ & (RT_RESOURCES - 1)] = resource;
	}
	if (c->a) {
		disk_dev[n & (RT_RESOURCES - 1)] = c->a;
		disk_resource[n++ & (RT_RESOURCES - 1)] = c->resource;
	}
	disk_count = n;
	return 0;
}
