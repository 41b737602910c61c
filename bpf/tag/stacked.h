/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests of a scheduled disk that a driver stacked above it made out of somebody's: device mapper, md, loop. Who owns the original is known when it is handed to the upper
 * device (block_bio_queue), in the context of who asks; the driver may pass it on later, from a thread of its own, and with an end of its own. So the owner is written down there,
 * for each disk below, and found again by the original's memory, which nobody copies on the way:
 *   - by the address of the first byte of its data: what passes on the request, or its beginning, has that (also a loop device, which may join several originals to one request);
 *   - by the vector of its pages: a part of it (a stripe) is at another address, but in the same vector;
 *   - by what a loop device asks of its file, and where: it joins originals to a request, with a vector of its own, and of a large one only the first part begins where an original does.
 * Every original overwrites what its memory meant before, for the disks below its device. For others that stays: a mirror hands the same memory to a volume on one disk and then to one on another. What was handed to a disk itself is never looked up, so what an older original left means nothing for it.
 *
 * dm-crypt's writes, which are in memory of its own, lead to the original's vector. Not found: what else is copied. RAID 5 writes from its stripe cache, a loop device without direct I/O from and to the page cache of its file.
 */

#define RT_OP_MASK 0xff
enum { RT_OP_READ = 0, RT_OP_WRITE = 1, RT_OP_FLUSH = 2 };

struct rt_handed {
	u32 resources, pad; /* a bit for each that the original's device is above of */
	u64 node[RT_RESOURCES]; /* packed handles; 0: q0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, u64);
	__type(value, struct rt_handed);
} handed SEC(".maps");

#define RT_BIO_CLONED (1 << 1) /* the vector is another's; so since 6.5 */

/* Of data in memory one number for each byte; 0: there are none. No address of the kernel's is that low. */
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
	offset += bio->bi_iter.bi_bvec_done;
	/* The structures of pages stand in the order of memory, 64 bytes each. */
	return (((page & 0xffffffffffULL) >> 6) + (offset >> 12)) << 12 | (offset & 0xfff);
}

/* What was written down for the original of a request that is passed on; 0: nothing. */
static __always_inline struct rt_handed *rt_original_of(struct bio *bio, struct kiocb *iocb)
{
	u64 data, vec = 0, from;
	struct rt_handed *h;

	if (!(bio->bi_flags & RT_BIO_CLONED)) {
		/*
		 * dm-crypt writes from memory of its own, and has the request that it was made for in the second word of its structure (drivers/md/dm-crypt.c, struct
		 * dm_crypt_io). What is not its leads to no vector that stands here.
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
	data = rt_data_of(bio);
	h = data ? bpf_map_lookup_elem(&handed, &data) : 0;
	if (!h) {
		bpf_core_read(&vec, sizeof(vec), &bio->bi_io_vec);
		h = bpf_map_lookup_elem(&handed, &vec);
	}
	if (!iocb)
		return h;
	vec = rt_number((u64)iocb) * 0x9e3779b97f4a7c15ULL + (u64)iocb->ki_pos;
	if (!h)
		return bpf_map_lookup_elem(&handed, &vec);
	bpf_map_update_elem(&handed, &vec, h, BPF_ANY);
	return h;
}
