/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The policies and classes, by number. The numbers are part of the ABI and never reused. BPF has no indirect
 * calls: a list expands to a switch where others would have a table of functions. A new algorithm is its
 * file, its line here and its line in the includes of core.c.
 */
#define RS_POLICIES(X) X(0, sfq)

/* number, prefix of its functions */
#define RS_CLASSES(X) \
	X(0, ts) \
	X(1, sfqc) \
	X(2, rr) \
	X(3, fifo)

#define RS_COUNT_ONE(n, name) +1
enum { RS_POLICY_COUNT = 0 RS_POLICIES(RS_COUNT_ONE), RS_CLASS_COUNT = 0 RS_CLASSES(RS_COUNT_ONE) };

#define RS_POLICY_CASE(n, name) \
	case n: \
		RS_CALL(name); \
		break;
#define RS_CLASS_CASE RS_POLICY_CASE
