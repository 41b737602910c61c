/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The policies and classes, by number. The numbers are part of the ABI and never reused. What a
 * policy is, and what a new one takes: policy.h.
 */
#define RS_POLICIES(X) \
	RS_POLICIES_ANY(X) \
	RS_POLICIES_LENGTH(X)

#define RS_POLICIES_ANY(X) \
	X(0, sfq) \
	X(1, eevdf) \
	X(2, mtrls) \
	X(3, prio) \
	X(4, wrr)

/* Those that go by the length of what is served next (rs_item.length). A plane that cannot know it, the CPU's, defines RS_LENGTHS 0: they are not in
 * its program then, and are refused as unknown. */
#if RS_LENGTHS
#define RS_POLICIES_LENGTH(X) \
	X(5, wf2qp) \
	RS_POLICIES_ARRIVE(X) \
	RS_POLICIES_DISK(X)
#define RS_CLASSES_LENGTH(X) \
	X(5, drr) \
	RS_CLASSES_DISK(X)
#else
#define RS_POLICIES_LENGTH(X)
#define RS_CLASSES_LENGTH(X)
#endif

/* Those whose caller tells when work arrives, first of its queue or not (rs_arrive). */
#if RS_LENGTHS
#define RS_POLICIES_ARRIVE(X) \
	X(7, wf2q)
#else
#define RS_POLICIES_ARRIVE(X)
#endif

/*
 * Those of disks, which go by lengths too, and by sectors and deadlines of requests
 * (rs_item_request): in user space only.
 */
#if RS_DISK
#define RS_POLICIES_DISK(X) \
	X(6, yfq)
#define RS_CLASSES_DISK(X) \
	X(6, scan) \
	X(7, scan_edf)
#else
#define RS_POLICIES_DISK(X)
#define RS_CLASSES_DISK(X)
#endif

/*
 * Those of a server that has no tree for them (crates/blockd; disk/cello.c). The numbers are of one
 * list with the others'; a tree refuses them.
 */
#define RS_POLICIES_BESIDE(X) \
	X(8, cello)
#define RS_CLASSES_BESIDE(X) \
	X(8, interactive) \
	X(9, throughput) \
	X(10, real_time)

/* number, prefix of its functions */
#define RS_CLASSES(X) \
	RS_CLASSES_ANY(X) \
	RS_CLASSES_LENGTH(X)

#define RS_CLASSES_ANY(X) \
	X(0, ts) \
	X(1, sfqc) \
	X(2, rr) \
	X(3, fifo) \
	X(4, edf)

#define RS_POLICY_NUMBER(n, name) name##_policy = n,
#define RS_CLASS_NUMBER(n, name) name##_class = n,
enum { RS_POLICIES(RS_POLICY_NUMBER) };
enum { RS_CLASSES(RS_CLASS_NUMBER) RS_CLASS_COUNT };

#define RS_POLICY_CASE(n, name) \
	case n: \
		RS_CALL(name); \
		break;
#define RS_CLASS_CASE RS_POLICY_CASE
