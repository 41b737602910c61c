/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel as these programs see it: only the types, fields and kernel functions that they use,
 * found at load time by name (CO-RE), so that no generated header is kept here. What differs
 * between kernels is in this file and in compat.h, dated, and nowhere else.
 */
#ifndef RESERV_KERNEL_H
#define RESERV_KERNEL_H

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef signed short s16;
typedef unsigned int u32;
typedef signed int s32;
typedef unsigned long long u64;
typedef signed long long s64;
typedef u8 __u8;
typedef s8 __s8;
typedef u16 __u16;
typedef s16 __s16;
typedef u32 __u32;
typedef s32 __s32;
typedef u64 __u64;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u64 __be64;
typedef u16 __sum16;
typedef u32 __wsum;
typedef _Bool bool;
typedef u64 size_t;
enum { false = 0, true = 1 };

/* Of our maps, not the kernel's memory. */
struct bpf_spin_lock {
	__u32 val;
};

/* As the system call knows them. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SOCKHASH = 18,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_ARENA = 33,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_CLONE = 1 << 9,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

/* Whether a loop that the verifier cannot bound by itself may go on (6.9; by time since 6.15). */
#define can_loop                                                                                                  \
	({                                                                                                        \
		__label__ l_stop, l_go;                                                                           \
		bool go = true;                                                                                   \
		asm volatile goto("may_goto %l[l_stop]" : : : : l_stop);                                          \
		goto l_go;                                                                                        \
	l_stop:                                                                                                   \
		go = false;                                                                                       \
	l_go:;                                                                                                    \
		go;                                                                                               \
	})

enum scx_exit_kind { SCX_EXIT_NONE = 0 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	unsigned long bits[4];
};

struct sched_ext_entity {
	u32 flags;
	u64 slice;
	u64 dsq_vtime;
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
};

/* An open file of FUSE: the server's number of it, and of its inode. */
struct fuse_file {
	u64 fh, nodeid;
};

struct list_head {
	struct list_head *next;
};

struct fdtable {
	u32 max_fds;
	struct file **fd;
	unsigned long *open_fds;
};

struct files_struct {
	struct fdtable *fdt;
};

typedef struct {
	u32 val;
} kuid_t;

typedef struct {
	u32 val;
} kgid_t;

struct group_info {
	s32 ngroups;
	kgid_t gid[];
};

struct user_namespace {
	struct user_namespace *parent;
	s32 level;
	kuid_t owner;
};

typedef struct {
	u64 val; /* 6.3 */
} kernel_cap_t;

struct cred {
	kuid_t uid;
	kuid_t fsuid;
	kgid_t fsgid;
	kernel_cap_t cap_effective;
	struct user_namespace *user_ns;
	struct group_info *group_info;
};

struct rlimit {
	u64 rlim_cur;
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

struct ipv4_devconf {
	s32 data[1]; /* the first: IPV4_DEVCONF_FORWARDING */
};

struct in_device {
	struct ipv4_devconf cnf;
};

struct ipv6_devconf {
	s32 forwarding;
};

struct inet6_dev {
	struct ipv6_devconf cnf;
};

struct net_device {
	s32 ifindex;
	possible_net_t nd_net;
	const u8 *dev_addr;
	struct in_device *ip_ptr;
	struct inet6_dev *ip6_ptr;
};

/* Qdiscs in BPF: 6.16 */
struct netdev_queue {
	struct net_device *dev;
};

struct qdisc_skb_head {
	u32 qlen;
};

struct gnet_stats_queue {
	u32 qlen, backlog, drops;
};

struct Qdisc {
	u32 parent;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

struct sk_buff {
	struct net_device *dev;
	char cb[48];
	u32 truesize;
};

struct xdp_rxq_info {
	struct net_device *dev;
};

struct xdp_buff {
	struct xdp_rxq_info *rxq;
	u32 frame_sz;
};

struct qdisc_skb_cb {
	u32 pkt_len;
	unsigned char data[20];
};

struct dst_entry {
	struct net_device *dev;
};

typedef struct {
	s32 counter;
} atomic_t;

/* Sockets of one port among which one is chosen. */
struct sock_reuseport {
	void *prog;
};

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	u16 sk_type;
	struct bpf_local_storage *sk_bpf_storage; /* 5.2 */
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	s32 sk_rcvbuf;
	u32 sk_ack_backlog, sk_max_ack_backlog;
	struct sock_reuseport *sk_reuseport_cb;
};

struct socket {
	struct sock *sk;
};

struct signal_struct {
	atomic_t live;
	struct rlimit rlim[16];
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	u32 __state; /* 5.14 */
	u32 flags;
	s32 pid, tgid;
	s32 static_prio;
	u32 policy;
	s32 nr_cpus_allowed;
	u16 migration_disabled;
	const struct cpumask *cpus_ptr;
	struct sched_entity se;
	struct sched_ext_entity scx;
	struct signal_struct *signal;
	struct files_struct *files;
	const struct cred *real_cred;
	const struct cred *cred;
	u64 start_boottime;
	struct task_struct *group_leader;
	void *mm;
	u64 self_exec_id;
};

/* Requests of block devices. */
struct kmem_cache {
	const char *name;
};

struct gendisk {
	s32 major, first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct blk_mq_hw_ctx {
	u32 queue_num;
};

struct address_space {
	struct inode *host;
};

struct page {
	struct address_space *mapping;
	unsigned long compound_head; /* of a tail page: its head, and bit 0 */
};

struct page___info {
	/* 7.x: the same, or the mask that makes a page's address its head's, and bit 0 */
	unsigned long compound_info;
};

struct bio_vec {
	struct page *bv_page;
	u32 bv_len, bv_offset;
};

struct bvec_iter {
	u32 bi_idx, bi_offset; /* 7.3: the same as bi_bvec_done before */
};

struct bvec_iter___before_7_3 {
	u32 bi_bvec_done;
};

struct block_device {
	u32 bd_dev;
};

struct bio {
	struct block_device *bi_bdev;
	u32 bi_opf;
	u16 bi_flags;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	struct bio_vec *bi_io_vec;
	u16 bi_ioprio;
};

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	u32 cmd_flags;
	s32 tag;
	u32 __data_len;
	u64 __sector;
	struct bio *bio;
};

struct kiocb {
	struct file *ki_filp;
	s64 ki_pos;
	void *ki_complete;
};

/* Of fs/iomap/direct-io.c and block/fops.c. */
struct iomap_dio {
	struct kiocb *iocb;
};

struct blkdev_dio {
	struct kiocb *iocb; /* or who waits: RT_DIO_IS_SYNC */
	u32 flags;
	struct bio bio;
};

struct folio;

struct kernfs_node {
	u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[1];
};

enum cgroup_subsys_id { cpu_cgrp_id = 1 };

struct scx_task_group {
	u32 weight;
};

struct task_group {
	struct cgroup_subsys_state css;
	unsigned long shares; /* CONFIG_FAIR_GROUP_SCHED */
	struct scx_task_group scx; /* 6.18 */
};

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup; /* CONFIG_EXT_GROUP_SCHED */
};

struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us, bw_quota_us, bw_burst_us; /* 6.17 */
};

struct scx_exit_task_args {
	bool cancelled;
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

/* Where sockets' storage is: by its map, and by the socket. */
struct bpf_local_storage_map_bucket {
	struct hlist_head list;
};

struct bpf_local_storage_map {
	struct bpf_local_storage_map_bucket *buckets;
	u32 bucket_log;
};

struct bpf_local_storage_data {
	struct bpf_local_storage_map *smap;
	u8 data[0];
};

struct bpf_local_storage_elem {
	struct hlist_node map_node, snode;
	struct bpf_local_storage_data sdata;
};

struct bpf_local_storage {
	struct hlist_head list;
};

#ifdef bpf_target_x86
struct pt_regs {
	unsigned long di, orig_ax;
};
#endif

#pragma clang attribute pop

/* These the system call knows, with every field at its place. */
struct bpf_sock {
	u32 bound_dev_if, family, type, protocol, mark, priority;
	u32 src_ip4, src_ip6[4], src_port;
	u16 dst_port, pad;
	u32 dst_ip4, dst_ip6[4], state;
	s32 rx_queue_mapping;
};

struct bpf_sock_addr {
	u32 user_family, user_ip4, user_ip6[4], user_port, family, type, protocol;
	u32 msg_src_ip4, msg_src_ip6[4];
	struct bpf_sock *sk __attribute__((aligned(8)));
};

struct bpf_sockopt {
	struct bpf_sock *sk;
	void *optval, *optval_end;
	s32 level, optname, optlen, retval;
};

struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex, ifindex, tc_index;
	u32 cb[5], hash, tc_classid, data, data_end, napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4];
	u32 remote_port, local_port, data_meta;
	u64 flow_keys, tstamp;
	u32 wire_len, gso_segs;
	struct bpf_sock *sk __attribute__((aligned(8)));
	u32 gso_size;
};

/* Who comes to which port: addresses and the remote port as they stand in the packet. */
struct bpf_sk_lookup {
	u64 sk;
	u32 family, protocol, remote_ip4, remote_ip6[4];
	u16 remote_port, pad;
	u32 local_ip4, local_ip6[4], local_port, ingress_ifindex;
};

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

/* Whose packet it is: addresses and ports as they stand in the packet. */
struct bpf_sock_tuple {
	union {
		struct {
			u32 saddr, daddr;
			u16 sport, dport;
		} ipv4;
		struct {
			u32 saddr[4], daddr[4];
			u16 sport, dport;
		} ipv6;
	};
};

struct bpf_fib_lookup {
	u8 family, l4_protocol;
	u16 sport, dport, tot_len;
	u32 ifindex, tos_or_flow;
	u32 source[4], destination[4]; /* of IPv4 the first word */
	u32 vlan;
	u8 smac[6], dmac[6];
};

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	u64 opaque;
} __attribute__((aligned(8)));

/* libbpf copies members by name, so this is what we set, in any order. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*set_weight)(struct task_struct *p, u32 weight);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	/* these: CONFIG_EXT_GROUP_SCHED */
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	/* 6.17 */
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle); /* 6.18 */
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	u32 exit_dump_len;
	char name[128];
};

/* How many bytes of its first vector are done with. */
static __always_inline u32 bvec_iter_offset(struct bvec_iter *iter)
{
	if (bpf_core_field_exists(struct bvec_iter, bi_offset))
		return iter->bi_offset;
	return ((struct bvec_iter___before_7_3 *)iter)->bi_bvec_done;
}

struct nlattr;
struct netlink_ext_ack;
struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

struct Qdisc_ops {
	char id[16];
	s32 (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	s32 (*init)(struct Qdisc *sch, struct nlattr *arg, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

enum { TCX_NEXT = -1, TCX_DROP = 2 };
enum { XDP_DROP = 1, XDP_PASS = 2 };
enum { SK_DROP = 0, SK_PASS = 1, BPF_SK_LOOKUP_F_NO_REUSEPORT = 2 };
enum { BPF_F_CURRENT_NETNS = -1 };
/* Answers of bpf_fib_lookup: forwarded to a neighbour; ours, or nobody's; nothing is forwarded. */
enum { BPF_FIB_LKUP_RET_NOT_FWDED = 4, BPF_FIB_LKUP_RET_FWD_DISABLED = 5 };
enum { BPF_F_LOCK = 4 };
enum { NET_XMIT_SUCCESS = 0, NET_XMIT_DROP = 1 };

enum {
	SCX_OPS_ENQ_LAST = 1 << 1,
	SCX_OPS_ENQ_EXITING = 1 << 2,
	SCX_OPS_ENQ_MIGRATION_DISABLED = 1 << 4, /* 6.14 */

	SCX_TASK_QUEUED = 1 << 0,

	SCX_ENQ_WAKEUP = 1,
	SCX_WAKE_SYNC = 0x10, /* WF_SYNC: the waker says that it is about to sleep */

	SCX_KICK_IDLE = 1 << 0,
	SCX_KICK_PREEMPT = 1 << 1,

	TASK_DEAD = 0x80,

	PF_EXITING = 0x4,
	PF_IO_WORKER = 0x10,
	/*
	 * Of who called prctl(PR_SET_IO_FLUSHER), which asks for CAP_SYS_RESOURCE, and its
	 * children: the kernel waits for them to write pages (5.6).
	 */
	PF_LOCAL_THROTTLE = 0x00100000,
	PF_KTHREAD = 0x00200000,

	SCHED_BATCH = 3,
	SCHED_IDLE = 5,
};
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_ENQ_HEAD (1ULL << 16)
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_ENQ_LAST (1ULL << 41)

/*
 * Kernel functions. Those that differ between releases are weak; reserv asks which are there before
 * it loads. Those without which the full CPU driver does something else are in compat.h.
 */
void scx_bpf_dispatch_cancel(void) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
u32 scx_bpf_nr_cpu_ids(void) __ksym;
u64 scx_bpf_now(void) __ksym; /* 6.14 */
bool scx_bpf_task_running(const struct task_struct *p) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
struct task_struct *bpf_task_acquire(struct task_struct *p) __ksym;
struct cgroup *bpf_cgroup_from_id(u64 id) __ksym; /* 6.3 */
void bpf_cgroup_release(struct cgroup *cgrp) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
u32 bpf_cpumask_weight(const struct cpumask *cpumask) __ksym; /* 6.9 */
void *bpf_cast_to_kern_ctx(void *ctx) __ksym; /* 6.2 */
void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
void bpf_kfree_skb(struct sk_buff *p) __ksym __weak; /* 6.16 */
/* 6.16 */
void bpf_qdisc_skb_drop(struct sk_buff *p, struct bpf_sk_buff_ptr *to_free) __ksym __weak;
u32 bpf_skb_get_hash(struct sk_buff *skb) __ksym __weak; /* 6.16 */
/* 6.16 */
void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 delta_ns) __ksym __weak;
void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym __weak; /* 6.16 */
void bpf_local_irq_save(unsigned long *flags) __ksym; /* 6.14 */
void bpf_local_irq_restore(unsigned long *flags) __ksym;
void bpf_preempt_disable(void) __ksym; /* 6.10 */
void bpf_preempt_enable(void) __ksym;
void __attribute__((address_space(1))) *bpf_arena_alloc_pages(void *map, void __attribute__((address_space(1))) *addr,
							      u32 page_cnt, int node_id, u64 flags) __ksym;
void bpf_arena_free_pages(void *map, void __attribute__((address_space(1))) *addr, u32 page_cnt) __ksym;

#endif
