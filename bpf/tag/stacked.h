/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests of a scheduled disk that a driver stacked above it made out of somebody's: device
 * mapper, md, loop. Who owns the original is known when it is handed to the upper device
 * (block_bio_queue), in the context of who asks; the driver may pass it on later, from a thread of
 * its own, and with an end of its own. So the owner is written down there, for each disk below, and
 * found again by the original's memory, which nobody copies on the way:
 *   - by the address of the first byte of its data: what passes on the request, or its beginning,
 *     has that (also a loop device, which may join several originals to one request);
 *   - by the vector of its pages: a part of it (a stripe) is at another address, but in the same
 *     vector;
 *   - by what a loop device asks of its file, and where: it joins originals to a request, with a
 *     vector of its own, and of a large one only the first part begins where an original does.
 * Of what these lead to the newest is right: memory is used again, and where an older original
 * began a part of a newer one may begin. A vector counts only while it begins as it did. For the
 * disks below its device an original overwrites what its memory meant before. For others it stays
 * where a request is passed on: a mirror hands the same memory to a volume on one disk and then to
 * one on another.
 *
 * dm-crypt's writes, which are in memory of its own, lead to the original's vector. Not found: what
 * else is copied. RAID 5 writes from its stripe cache, a loop device without direct I/O from and to
 * the page cache of its file.
 */

#define RT_OP_MASK 0xff
enum { RT_OP_READ = 0, RT_OP_WRITE = 1, RT_OP_FLUSH = 2 };

struct rt_handed {
	u32 resources; /* a bit for each that the original's device is above of */
	u32 index; /* where it begins in its vector, and in which page */
	u64 page;
	u64 at; /* when it was written down */
	u64 node[RT_RESOURCES]; /* packed handles; 0: q0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, u64);
	__type(value, struct rt_handed);
} handed SEC(".maps");

#define RT_BIO_CLONED (1 << 1) /* the vector is another's; so since 6.5 */

static __always_inline u64 rt_page_of(u64 vec, u32 index)
{
	u64 page = 0;

	/* Read as numbers, as in rt_inode_of_bio. */
	bpf_probe_read_kernel(&page, sizeof(page), (void *)(vec + (u64)index * bpf_core_type_size(struct bio_vec) + bpf_core_field_offset(struct bio_vec, bv_page)));
	return page;
}

/* The newest for data that begin there, in this vector; 0: nothing. */
static __always_inline struct rt_handed *rt_handed_of(u64 data, u64 vec)
{
	struct rt_handed *by_data = data ? bpf_map_lookup_elem(&handed, &data) : 0, *by_vec = vec ? bpf_map_lookup_elem(&handed, &vec) : 0;

	if (!by_vec || (by_data && by_data->at >= by_vec->at) || rt_page_of(vec, by_vec->index) != by_vec->page)
		return by_data;
	return by_vec;
}

/*
 * Of data in memory one number for each byte; 0: there are none. No address of the kernel's is that
 * low.
 */
static __always_inline u64 rt_data_of(struct bio *bio)
{
	u64 at = 0, page = 0;
	struct bio_vec *vec;
	u32 offset = 0;

	/* Read as numbers, as in rt_inode_of_bio. */
	bpf_core_read(&at, sizeof(at), &bio->bi_io_vec);
	if (!at)
		return 0;
	at += (u64)bio->bi_iter.bi_idx * bpf_core_type_size(struct bio_vec);
	vec = RT_CAST(bio_vec, (void *)at);
	bpf_core_read(&page, sizeof(page), &vec->bv_page);
	bpf_core_read(&offset, sizeof(offset), &vec->bv_offset);
	if (!page)
		return 0;
	offset += bvec_iter_offset(&bio->bi_iter);
	/* The structures of pages stand in the order of memory, 64 bytes each. */
	return (((page & 0xffffffffffULL) >> 6) + (offset >> 12)) << 12 | (offset & 0xfff);
}

/* What was written down for the original of a request that is passed on; 0: nothing. */
static __always_inline struct rt_handed *rt_original_of(struct bio *bio, struct kiocb *iocb)
{
	struct rt_handed *h, *before;
	u64 vec = 0, asked, from;

	if (!(bio->bi_flags & RT_BIO_CLONED)) {
		/*
		 * dm-crypt writes from memory of its own, and has the request that it was made for
		 * in the second word of its structure (drivers/md/dm-crypt.c, struct dm_crypt_io).
		 * What is not its leads to no vector that stands here.
		 */
		if (iocb || (bio->bi_opf & RT_OP_MASK) != RT_OP_WRITE)
			return 0;
		from = (u64)bio->bi_private;
		if (!from || bpf_probe_read_kernel(&from, sizeof(from), (void *)(from + 8)) || !from)
			return 0;
		if (bpf_probe_read_kernel(&vec, sizeof(vec), (void *)(from + bpf_core_field_offset(struct bio, bi_io_vec))) || !vec)
			return 0;
		return bpf_map_lookup_elem(&handed, &vec);
	}
	bpf_core_read(&vec, sizeof(vec), &bio->bi_io_vec);
	h = rt_handed_of(rt_data_of(bio), vec);
	if (!iocb)
		return h;
	asked = rt_number((u64)iocb) * 0x9e3779b97f4a7c15ULL + (u64)iocb->ki_pos;
	before = bpf_map_lookup_elem(&handed, &asked);
	if (!h || (before && before->at > h->at))
		return before;
	bpf_map_update_elem(&handed, &asked, h, BPF_ANY);
	return h;
}
