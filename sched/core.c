/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The whole core as one translation unit, to be included by a BPF program or the host's library. */
#include "sched.h"
#include "registry.h"
#include "batch.h"
#include "heap.c"
#include "ahead.c"
#include "tags.c"
#include "policy_sfq.c"
#include "far.c"
#include "policy_eevdf.c"
#include "policy_mtrls.c"
#include "policy_prio.c"
#include "policy_wrr.c"
#if RS_LENGTHS
#include "policy_wf2qp.c"
#include "policy_wf2q.c"
#endif
#if RS_DISK
#include "policy_yfq.c"
#endif
#include "class_ts.c"
#include "class_sfq.c"
#include "class_rr.c"
#include "class_fifo.c"
#include "class_edf.c"
#if RS_LENGTHS
#include "class_drr.c"
#endif
#if RS_DISK
#include "class_scan.c"
#include "class_scan_edf.c"
#endif
#include "policy.h"
#include "refresh.c"
#include "caps.c"
#include "tree.c"
#include "guarantee.c"
#include "item.c"
#include "post.c"
#include "quantum.c"
#include "node.c"
#include "change.c"
#include "edit.c"
