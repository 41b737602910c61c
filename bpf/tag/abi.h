/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What the tag programs, processes and the daemon say to each other. Rust's mirror is
 * crates/plane/src/tag/abi.rs; a table of sizes and offsets in the object file (tag.bpf.c:
 * rt_layout) is compared with it by a test.
 */
#ifndef RESERV_TAG_ABI_H
#define RESERV_TAG_ABI_H

#include "../use.h"

#define RT_ABI_VERSION 16

/*
 * fcntl(fd, F_RESERV_SET_QUEUE, qfd): tag the open file or socket `fd` with the queue whose
 * directory or share file in /reserv the descriptor `qfd`, opened for reading, stands for; what
 * opening newqueue gave is the new queue's share. q0 takes the tag back. Answers 1. EBADF: no such
 * descriptor `qfd`, or not opened for reading. EISDIR: a scheduler's. EINVAL: not a queue's
 * directory or share in /reserv. EXDEV: a queue of a resource that the object does not live on.
 * ESTALE: the queue is gone, or going. EACCES: no right to use it. EOPNOTSUPP: nothing of what `fd`
 * stands for is scheduled by anybody. ENOSPC: no room for more tags, or this user has as many as he
 * may (accounts.h).
 *
 * fcntl(fd, F_RESERV_GET_QUEUE, resource): the number of fd's queue of that resource, plus one;
 * with a descriptor of /reserv the number of its own node, plus one. ENOENT: `fd` does not live on
 * that resource. EINVAL: no such resource.
 *
 * EINVAL is also what the kernel itself says: where no hook is loaded, and where a thread of this
 * CPU has been preempted in the hook (hook.h) by one of a real-time class, or by the kernel's own
 * scheduler where the CPU's driver is not the full one. Then call again.
 */
#define F_RESERV_SET_QUEUE 0x52530005
#define F_RESERV_GET_QUEUE 0x52530006

/*
 * For sockets also, and alone where the kernel refuses trampolines: setsockopt(fd, SOL_RESERV,
 * SO_RESERV_QUEUE, &qfd, sizeof(int)) does what F_RESERV_SET_QUEUE does, and getsockopt(fd,
 * SOL_RESERV, SO_RESERV_QUEUE_OF + resource, &n, …) tells in the int n what F_RESERV_GET_QUEUE
 * answers. Both answer 0, and the same errors.
 */
#define SOL_RESERV 0x5253
#define SO_RESERV_QUEUE 5
#define SO_RESERV_QUEUE_OF 0x100

#define RT_RESOURCES 16 /* cpu is 0 */
#define RT_NODES_MAX 16384 /* of a resource */

/*
 * Inode numbers of /reserv: (resource+1) << 56 | file << 48 | generation << 16 | index
 * (crates/namespace, ino.rs).
 */
#define RT_INO_SCHEDULER_DIR 1
#define RT_INO_QUEUE_DIR 2
#define RT_INO_SHARE 16
#define RT_INO_OF_NODES 16 /* from here … */
#define RT_INO_OF_PROCESSES 48 /* … up to here, files of nodes */

enum rt_kind { RT_SCHEDULER = 1, RT_QUEUE = 2 };
enum rt_flags { RT_DYING = 1 }; /* takes no new tags */
#define RT_WHO(n) (*(volatile u64 *)&(n)->user)
#define RT_WHO_KIND(who) ((u8)((who) >> 32))
#define RT_WHO_FLAGS(who) ((u8)((who) >> 40))
#define RT_WHO_MAY(who) ((u8)((who) >> 48))
#define RT_WHO_OF(user, may) ((u64)(u8)(may) << 48 | (u32)(user)) /* beside kind and flags */
#define RT_WHO_NODE 0x0000ffff00000000ULL /* kind and flags */

/* A node that the kernel knows, at resource * RT_NODES_MAX + index. */
struct rt_node {
	u32 generation; /* 0: there is none */
	u32 descriptors; /* that refer to it */
	u32 user; /* with the next four read and written as one word (RT_WHO) */
	/* may: enum rt_may; 0 where no rules are told, or nothing can be said without them */
	u8 kind, flags, may, pad;
	u32 defaults, child_defaults; /* that refer to it */
	u64 operations, bytes; /* counting resources */
};

enum rt_object_kind { RT_NOTHING = 0, RT_FILES = 1, RT_INTERFACE = 2 };

/* What a resource is: the files of one device, or the packets that leave by one interface. */
struct rt_object {
	u32 kind;
	u32 number; /* of the device as the kernel packs it, or of the interface */
	u64 netns; /* the interface's, by its cookie */
};

/*
 * Who owns a request of a disk that is scheduled, in the mapped array `slots`, at resource *
 * RT_SLOTS + hardware queue * RT_SLOTS_QUEUE + tag. Written before the driver has the request
 * (bpf/tag/disk.h), read by the block server (crates/blockd, owners.rs).
 */
#define RT_SLOTS 4096
#define RT_SLOTS_QUEUE 1024
struct rt_slot {
	u64 node; /* packed handle, 0: q0 */
	u64 seq; /* counts the requests of all disks; 0: there was none */
	u64 offset;
	u32 bytes;
	u16 write, priority; /* write 0: a read */
};
#define RT_SLOT_FRESH 2 /* in `write`: the request has its owner, and has not been issued yet */

/* How a block device is stacked above a disk that is scheduled. */
enum rt_above_how {
	RT_NOT_ABOVE = 0,
	RT_LIVES = 1, /* its requests are the disk's own: a partition */
	RT_PASSES = 2, /* a driver makes requests of the disk out of its requests */
};

/*
 * The same, of one device, for all resources: a bit for each. In the map `above`, by the device's
 * number.
 */
struct rt_above {
	u32 lives, passes;
};

/*
 * A queue, as rules are found by: one word, for hashing and comparing two costs twice as much.
 * Indices have 14 bits.
 */
#define RT_USE_KEY(resource, node) ((u64)(node) | (u64)(resource) << 16)

/* What a container owns, at the index of its queue in the CPU's tree (works.h). */
struct rt_owned {
	u64 queue; /* that queue, by packed handle; 0: there is none */
	u64 node[RT_RESOURCES]; /* by packed handle; 0: none */
};

/*
 * Rules about the packets of a link that nobody tagged (bpf/tag/packets.h), as the daemon writes
 * them. The first all of whose parts fit decides. Addresses as they stand in the packet; IPv4's in
 * the form ::ffff:a.b.c.d.
 */
#define RT_PACKET_RULES_MAX 64

struct rt_packet_rule {
	u64 address[2], mask[2]; /* of the other side; both mapped for IPv4 */
	u64 node; /* packed handle */
	u16 port_first, port_last; /* of the other side; from 0: it need not be known */
	u16 local_first, local_last;
	u8 protocol, protocol_mask; /* 0xff: that one, 0: any */
	u8 version, version_mask; /* of IP, 4 or 6, in the same way */
	u8 pad[4];
};

struct rt_packet_table {
	u32 count, pad;
	struct rt_packet_rule rule[RT_PACKET_RULES_MAX];
};

/* A process' lists, by its signal structure: packed handles, 0 for q0. */
enum rt_list { RT_DEFAULT = 0, RT_CHILD = 1 };
struct rt_lists {
	u64 list[2][RT_RESOURCES];
	u64 born; /* when its process was (start_boottime): an address is used again */
	u64 account; /* in which it is counted (accounts.h) */
};

/* How a run of rt_fds or rt_stored ended, where it is not by a negative errno. */
enum rt_walked {
	RT_WALK_END = 0, /* there is no more */
	RT_WALK_FOUND = 1, /* rt_fds: a tag; there may be more from `at` on */
	RT_WALK_MORE = 2, /* go on at `at` */
	RT_WALK_CHANGED = 3, /* the table, or the list, became another one: again from `at` */
};

/* The context of rt_fds: one tag of the descriptors of a thread's table. */
struct rt_walk {
	s32 answer; /* enum rt_walked, or a negative errno: ESRCH, no such thread of that process */
	s32 tgid, tid;
	/* told: other threads than the leader live, and each may have a table of its own */
	u32 others;
	u64 at; /* where to begin, and then where to go on: descriptor << 4 | resource */
	/* What was found. */
	u64 node;
	u64 key; /* of its file or socket in `files` or `socks`; 0: it has its tag itself */
	u32 fd, resource;
};

/* The context of rt_stored: sockets that have a tag in their own storage. */
struct rt_stored {
	s32 answer; /* enum rt_walked, or a negative errno */
	u32 resource;
	u64 node;
	u32 at; /* which of the map's lists, and then the next */
	u32 count; /* on that list */
};

enum rt_what {
	/* node: device number of the mount of /reserv; a: rt_fork does not run */
	RT_CALL_CONFIGURE = 1,
	/*
	 * answers node: mount, a: lost, b: ABI version, pid: whether the end of files is seen
	 * (stock)
	 */
	RT_CALL_STATE = 2,
	RT_CALL_OBJECT = 3, /* object of resource */
	RT_CALL_OBJECT_GET = 4, /* answers it, and b: how words of it in sockets' storage begin */
	RT_CALL_NODE = 5, /* node of resource exists; a: kind, b: flags */
	RT_CALL_DROP = 6, /* and no longer */
	RT_CALL_RESET = 7, /* its counters from 0 */
	RT_CALL_LISTS = 8, /* answers b: the key of process pid in `lists` */
	RT_CALL_LIST_SET = 9, /* a: which list; its entry for resource becomes node */
	RT_CALL_SWEEP = 10, /* every tag and list entry of node becomes q0's; answers a: how many */
	RT_CALL_LINK = 13, /* resource is scheduled; a: HTB's handle >> 16, 0: by our own qdisc */
	RT_CALL_STORE = 19, /* may the socket of the caller's own descriptor a be tagged with node?
			     * answers b: what is to stand in its slot in `stored_socks` */
	RT_CALL_STORED = 20, /* it stands there, or will not: after each RT_CALL_STORE that answered 0.
			      * Answers a: 1: meanwhile somebody set resource to b, which is to
			      * be put there too before this is called again. With a the caller
			      * gives up: it ends. */
	/* the caller's own descriptor a is tagged with node, as F_RESERV_SET_QUEUE does */
	RT_CALL_TAG_FD = 14,
	/*
	 * the file or socket with key a is no longer tagged with node; answers a: how many tags
	 * went
	 */
	RT_CALL_UNTAG = 15,
	/* the block device with number a is resource, and is scheduled; 0: no longer */
	RT_CALL_DISK = 16,
	/*
	 * the block device with number a is stacked above resource, a disk that is scheduled; b:
	 * enum rt_above_how
	 */
	RT_CALL_ABOVE = 18,
	/* the programs are about to be put by: what begins from now on makes no entry in any map */
	RT_CALL_CLOSE = 21,
	/*
	 * and what began before has ended: the arrays become all 0, and no socket's storage counts
	 */
	RT_CALL_EMPTY = 22,
	/*
	 * a: the node of resource that the container owns whose queue of the CPU's tree is node; 0:
	 * none. With resource 0: it owns nothing
	 */
	RT_CALL_OWNED = 23,
	RT_CALL_RULED = 12, /* `uses` will have (a: 0), or has (1), rules about node of resource */
};

/* The context of rt_call. */
struct rt_call {
	u32 what;
	s32 answer; /* 0 or a negative errno */
	u32 resource;
	s32 pid;
	u64 node; /* packed handle */
	u64 a, b;
	struct rt_object object;
};

#endif
