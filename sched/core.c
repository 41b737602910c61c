/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The whole core as one translation unit, to be included by a BPF program or the host's library. */
#include "sched.h"
#include "registry.h"
#include "heap.c"
#include "tags.c"
#include "policy_sfq.c"
#include "class_ts.c"
#include "class_sfq.c"
#include "class_rr.c"
#include "class_fifo.c"
#include "tree.c"
#include "item.c"
#include "edit.c"
