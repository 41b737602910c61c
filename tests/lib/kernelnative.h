// SPDX-License-Identifier: GPL-2.0-only
/*
 * What programs of bpf/tag and bpf/cpu, read as C of this machine, see of the kernel's structures,
 * its maps, and its functions. For tagsim.c, which plays the kernel.
 */
#ifndef KERNELNATIVE_H
#define KERNELNATIVE_H
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/bpf.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
#define BPF_MAP_TYPE_ARENA 33 /* 6.9 */
#define BPF_MAP_TYPE_PERCPU_ARRAY BPF_MAP_TYPE_ARRAY /* of one CPU */

typedef struct {
	u32 val;
} kuid_t;
typedef kuid_t kgid_t;

struct group_info {
	s32 ngroups;
	kgid_t gid[8];
};

struct user_namespace {
	struct user_namespace *parent;
	s32 level;
	kuid_t owner;
};

typedef struct {
	u64 val;
} kernel_cap_t;

struct cred {
	kuid_t uid, fsuid;
	kgid_t fsgid;
	kernel_cap_t cap_effective;
	struct user_namespace *user_ns;
	struct group_info *group_info;
	struct group_info groups; /* ours */
};

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	u16 i_mode;
	u32 i_rdev;
};

struct file {
	struct inode *f_inode;
	void *private_data;
	u32 f_mode;
	const struct cred *f_cred;
	/* ours: */
	struct super_block sb;
	struct inode inode;
	struct cred opener;
	u32 count; /* references */
	u64 handle; /* of a file of /reserv, as the daemon knows it; 0: none */
	struct fuse_file {
		u64 fh, nodeid;
	} opened;
};

struct list_head {
	struct list_head *next;
};

struct fdtable {
	u32 max_fds;
	struct file **fd;
	unsigned long *open_fds; /* ours are all said to be open */
};

struct files_struct {
	struct fdtable *fdt;
	/* ours: */
	struct fdtable table;
	u32 count;
};

struct net {
	u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	u16 skc_family;
	volatile u8 skc_state;
	s32 skc_bound_dev_if;
	possible_net_t skc_net;
};

struct net_device {
	s32 ifindex;
	possible_net_t nd_net;
};

struct dst_entry {
	struct net_device *dev;
};

struct sock {
	/* ours, first: what programs on packets and options see of it stands at the same address */
	struct bpf_sock seen;
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	u16 sk_type;
	/* ours: */
	struct dst_entry dst;
	struct sock *waiting, *next; /* of a listener: connections that nobody has accepted */
};

struct socket {
	struct sock *sk;
	struct sock *own; /* ours: also where the kernel's own field is empty */
};

typedef struct {
	s32 counter;
} atomic_t;

struct rlimit {
	u64 rlim_cur;
};

struct signal_struct {
	atomic_t live;
	struct rlimit rlim[16];
};

struct task_struct {
	s32 pid, tgid;
	u32 __state;
	u32 flags;
	u16 migration_disabled;
	s32 static_prio;
	u32 policy;
	struct {
		u64 sum_exec_runtime;
	} se;
	struct {
		u32 flags;
		u64 slice;
		u64 dsq_vtime;
	} scx;
	struct signal_struct *signal;
	struct files_struct *files;
	const struct cred *real_cred, *cred;
	u64 start_boottime;
	struct task_struct *group_leader;
	void *mm;
	u64 self_exec_id;
	struct cred own; /* ours, and the next three */
	u64 storage[16], work[8];
	void *slots;
	u32 held; /* by programs */
};

/* Maps. Which one a program means stands in the first member; libbpf's macros give the sizes. */
struct native_map {
	const char *name;
	u32 type, key, value, max, used;
	char *array;
	struct native_element **hash;
};
struct native_element {
	struct native_element *next;
	u64 key;
	u64 value[];
};
#define NATIVE_BUCKETS 4096

#define SEC(name)
#define __uint(name, number) int (*name)[number]
#define __type(name, what) typeof(what) *name
#define __array(name, what) typeof(what) *name[0]; void **value
#define NATIVE_MAP(map) (*(struct native_map **)(map))
void *native_lookup(struct native_map *map, const void *key);
long native_update(struct native_map *map, const void *key, const void *value, u64 flags);
long native_delete(struct native_map *map, const void *key);
struct native_map *native_works(void); /* of bpf/work.h, which two objects share */
long native_each(struct native_map *map, long (*what)(void *, const void *, void *, void *), void *context);
#define bpf_map_lookup_elem(map, key) ((typeof((map)->value))native_lookup(NATIVE_MAP(map), key))
#define bpf_map_update_elem(map, key, value, flags) native_update(NATIVE_MAP(map), key, value, flags)
#define bpf_map_delete_elem(map, key) native_delete(NATIVE_MAP(map), key)
#define bpf_for_each_map_elem(map, what, context, flags) native_each(NATIVE_MAP(map), (long (*)(void *, const void *, void *, void *))(what), context)

/* Functions of the kernel. */
#undef __always_inline
#define __always_inline inline __attribute__((always_inline, unused))
#define __noinline __attribute__((noinline, unused))
#define BPF_PROG(name, args...) name(args)
#define bpf_for(i, from, to) for ((i) = (from); (i) < (to); (i)++)
#define bpf_rdonly_cast(pointer, type) ((void *)(pointer))
#define bpf_core_type_id_kernel(type) 0
#define bpf_core_field_exists(...) 1
#define bpf_core_field_offset(type, field) offsetof(type, field)
#define bpf_probe_read_kernel native_read
static inline __attribute__((unused)) long native_read(void *to, u32 size, const void *from)
{
	memcpy(to, from, size);
	return 0;
}
#define bpf_get_current_task_btf() native_current
/* what a thread works for, by what all objects know of it (bpf/work.h) */
static inline __attribute__((unused)) void *native_work(struct task_struct *p, u64 flags)
{
	if (flags)
		p->work[0] = 1;
	return p->work[0] ? &p->work[1] : 0;
}
/* its process' slots, likewise */
static inline __attribute__((unused)) void *native_slots(struct task_struct *p, u64 flags, size_t size)
{
	if (flags && !p->slots)
		p->slots = calloc(1, size);
	return p->slots;
}
#define bpf_probe_read_user(to, size, from) (memcpy(to, from, size), 0)
#define bpf_task_from_pid(pid) native_task(pid)
#define bpf_task_release(task) ((void)(task))
#define bpf_get_netns_cookie(skb) native_netns.net_cookie
#define bpf_sk_fullsock(sk) (sk)
#define bpf_get_listener_sock(sk) ((struct bpf_sock *)0)
#define bpf_sk_storage_get(map, sk, value, flags) ((void *)0)
#define bpf_sock_from_file(file) (((file)->f_inode->i_mode & 0170000) == 0140000 ? (struct socket *)(file)->private_data : 0)
#define bpf_rcu_read_lock() ((void)0)
#define bpf_rcu_read_unlock() ((void)0)
#define bpf_set_retval(answer) ((void)(native_retval = (answer)))
extern struct task_struct *native_current;
extern struct net native_netns;
extern int native_retval;
struct task_struct *native_task(s32 pid);

/* A thread alone is in a user name space of `depth`, whose outermost one is `owner`'s. */
static __attribute__((unused)) void native_namespace(int tid, u32 uid, int depth, u32 owner)
{
	static struct user_namespace all[4];
	struct task_struct *p = native_task(tid);

	for (int i = 0; i < 4; i++) {
		all[i].level = i;
		all[i].parent = i ? &all[i - 1] : 0;
		all[i].owner.val = i == 1 ? owner : 4242;
	}
	p->own.uid.val = uid;
	p->own.user_ns = &all[depth];
}

/* A hook's copies are run by whoever plays the kernel: some of them (bpf/hook.h). */
#define RESERV_HOOK_H
#define HOOK(name, args...) static int name(args)
#define HOOK_COPY(section, name, body)
#define HOOKED(section, name)
#endif
