/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What a thread and the kernel's part of Reserv say to each other about bindings (bpf/abi.h,
 * F_RESERV_BIND) for which no system call is made. The library's mirror is
 * crates/client/include/reserv.h.
 */
#ifndef RESERV_PAGE_H
#define RESERV_PAGE_H

/*
 * Bindings without a system call. fcntl(fd, F_RESERV_SLOT, n): from now on slot n (1 to
 * RC_SLOTS - 1) of the calling process stands for the container that `fd` is of, which the caller
 * may bind itself to. Answers as F_RESERV_BIND. What stood there before is forgotten. A slot keeps
 * no container, as no descriptor of one that has gone does, and is not there after exec.
 *
 * fcntl(fd, F_RESERV_PAGE, struct rc_page *page), on any descriptor of /reserv: the calling thread
 * binds itself by what it writes in this page of its memory, each entry a binding: see there. NULL:
 * no more. Answers 1. EINVAL: not on a multiple of eight, or another size than this kernel's part
 * of Reserv knows. EFAULT: not there, as for F_RESERV_SETPARAM. EAGAIN: the scheduler is not attached. A new thread
 * has no page, nor has a program after exec.
 */
#define F_RESERV_SLOT 0x5253000a
#define F_RESERV_PAGE 0x5253000b

#define RC_SLOT_BITS 10
#define RC_SLOTS (1 << RC_SLOT_BITS)
#define RC_PAGE_LOG 256

/*
 * The thread writes log[head % RC_PAGE_LOG] = ticks << RC_SLOT_BITS | slot, and then head + 1:
 * since `ticks` it works for what stands in the slot; 0: it is bound to none. The kernel's part
 * reads it when the thread's step ends, when it opens, accepts, connects, sends, or forks, and with
 * each command about bindings and tags of threads (abi.h); it charges each container what was worked for it since, and
 * lets the thread compete in the last one's. It reads the last RC_PAGE_LOG entries at most, so a
 * thread asks (F_RESERV_BOUND) before it writes more.
 *
 * Ticks are of a counter that the thread reads, modulo 2^54. An anchor says what CLOCK_MONOTONIC
 * was then, and how many ns are 2^20 ticks; anchor[which] is in force. Whatever a thread writes it
 * is charged no less than it ran, and only what it may use.
 */
struct rc_page {
	u32 size; /* of this structure */
	u32 which; /* 0 or 1 */
	u64 head;
	struct rc_anchor {
		u64 ticks, ns, rate;
	} anchor[2];
	u64 own[2]; /* the thread's, for whatever */
	u64 log[RC_PAGE_LOG];
};

#endif
