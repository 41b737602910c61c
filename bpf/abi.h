/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What the CPU's programs and the daemon say to each other. Rust's mirror is crates/plane/src/cpu/full/abi.rs, and
 * a table of sizes and offsets in the object file (cpu.bpf.c: rc_layout) is compared with it by a test.
 *
 * Calls are runs of pinned SYSCALL programs. A call's small arguments are its context; what is large lies in the pinned map `io`,
 * which belongs to one caller at a time (the daemon holds its own lock).
 */
#ifndef RESERV_ABI_H
#define RESERV_ABI_H

#define RC_ABI_VERSION 1

/*
 * prctl(PR_RESERV_CHCPURES, fd, 0, 0, 0): tag the calling thread with the queue whose directory in /reserv the descriptor `fd`,
 * opened for reading, stands for. Answers 1.
 * prctl(PR_RESERV_GETCPURES, 0, 0, 0, 0): the number of the thread's queue in the low 16 bits, plus one. Answers > 0.
 * EBADF: no such descriptor, or not opened for reading. EINVAL: not a queue directory of /reserv. ESTALE: the
 * queue is gone. EAGAIN: it takes no more members. EINVAL also where Reserv's full CPU driver is not loaded.
 */
#define PR_RESERV_CHCPURES 0x52530001
#define PR_RESERV_GETCPURES 0x52530002

#define RC_QUEUE_DIR_WORD 0x102 /* inode >> 48 of a queue directory (crates/namespace, ino.rs) */
#define RC_SAMPLES_MAX 256
#define RC_MEMBERS_MAX 4096
#define RC_TEXT_MAX 160

/* One node, as `rc_sample` writes it. */
struct rc_node {
	u64 id, parent;
	u64 service, service_base, served;
	u64 throttled_ns;
	u64 cap_ppm, cap_burst;
	u32 weight;
	u32 queued, running, members;
	u32 members_max;
	u8 kind, alg, throttled, dying;
};

/* A step in service when `rc_sample` looked, not charged to anybody yet: the queue, and how long it has run. */
struct rc_run {
	u64 node, ran;
};

struct rc_member {
	s32 tgid, tid;
};

/* Large arguments and answers. */
struct rc_io {
	union {
		struct rs_batch batch;
		struct {
			struct rc_node node[RC_SAMPLES_MAX];
			struct rc_run run[RS_UNITS_MAX];
		};
		struct rc_member member[RC_MEMBERS_MAX];
	};
};

/* The context of every call. */
struct rc_call {
	u64 node; /* tag, flush, members, lists */
	u64 node2;
	u32 first, count; /* sample, members */
	s32 tid; /* tag, lists */
	u32 what;
	s32 answer; /* 0 or a negative errno */
	u32 runs; /* sample: how many */
};

enum { RC_LIST_DEFAULT = 0, RC_LIST_CHILD = 1 };

/* What the kernel told us, and what we count. One record, mapped by the daemon and only read there. */
struct rc_state {
	u64 magic; /* RS_MAGIC once the tree is made */
	u32 abi, rs_abi;
	u64 attached; /* times that the kernel gave us the CPUs */
	u64 detached; /* times that it took them back */
	u64 exit_code;
	u32 exit_kind;
	u32 cpus;
	u64 kthread_ns; /* given to kernel threads outside the tree's shares, under their floor */
	u64 forced; /* times the kernel ran a thread that the tree had not chosen */
	u64 lost; /* times a chosen thread could not be put on the CPU */
	u64 sections; /* of the tree's lock, in scheduling */
	u64 steps; /* threads chosen */
	u64 refused; /* new threads that got no item */
	u64 seq; /* last batch in effect */
	u32 nodes_used, items_used;
	char exit_reason[RC_TEXT_MAX];
	char exit_msg[RC_TEXT_MAX];
};

/* Tag of a thread (task storage) and lists of a process (by its signal structure). 0 stands for q0. */
struct rc_tag {
	u64 node;
};
struct rc_lists {
	u64 def, child;
};

/* Set by rc_config. */
struct rc_config {
	u64 mount_dev; /* as the kernel packs it: major << 20 | minor */
	u64 quantum;
};

#endif
