/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Descriptors that came from opening newqueue or newsched. Each look-up of that name gives a fresh
 * inode, which is the new node's `share` when it is opened; but the kernel's number of it stays the
 * one that it was looked up under until somebody asks for its attributes, for an answer to `open`
 * carries none. What that answer does carry is the daemon's handle of the open file, and there the
 * node stands (crates/daemon/src/seed.rs). So the programs read it off the kernel's file, and
 * nothing needs to be told, kept or adopted.
 *
 *   inode   63 … 56: 63   49 … 46: resource            handle   62: 1   61 … 46: which open file   45 … 14: generation   13 … 0: index
 */
#ifndef RESERV_FRESH_H
#define RESERV_FRESH_H

#define RT_FMODE_READ 0x1
#define RT_INO_FRESH 63
#define RT_SHARE_WORD(resource) (((resource) + 1) << 8 | 16) /* inode >> 48 of a share file */

/*
 * Where fuse_file has the handle, and behind it the number that the daemon knows the inode by.
 * Where FUSE is a module and its types are not found: as it is since 2.6.39, which the second
 * number confirms.
 */
#define RT_FUSE_HANDLE (bpf_core_field_exists(struct fuse_file, fh) ? bpf_core_field_offset(struct fuse_file, fh) : 24)

/*
 * The node that stands in the handle of an open file of /reserv; 0: none does. Directories and
 * shares of containers have such handles too, with the container's node in the tree of the CPU;
 * there the highest bit says that root opened it.
 */
static __noinline u64 rt_opened_node(u64 private_data, u64 ino)
{
	u64 seen[2] = {};

	if (bpf_probe_read_kernel(seen, sizeof(seen), (void *)(private_data + RT_FUSE_HANDLE)))
		return 0;
	if (seen[1] != ino || !(seen[0] >> 62 & 1))
		return 0;
	return (seen[0] >> 14 & 0xffffffff) << 32 | (seen[0] & 0x3fff);
}

/*
 * The number that the inode of an open file of /reserv would have, had it been asked for its
 * attributes since it became a `share`; 0: it has not become one.
 */
static __noinline u64 rt_fresh(u64 private_data, u64 ino)
{
	u64 node, resource = ino >> 46 & 0xf;

	if (ino >> 56 != RT_INO_FRESH)
		return 0;
	node = rt_opened_node(private_data, ino);
	return node ? RT_SHARE_WORD(resource) << 48 | (node >> 32) << 16 | (node & 0x3fff) : 0;
}

#endif
