/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How long the longest section of the tree's lock was since that was last asked for, and the line
 * that ended it: of the CPU's tree and of a link's, for tests (load.rs of each).
 */
#ifndef RESERV_SECTION_H
#define RESERV_SECTION_H

/* 1: it is counted; else the verifier takes it out */
const volatile u32 timed SEC(".rodata.timed") = 0;
u64 section_from, section_longest;
u32 section_line, section_pad;

/* Under the lock. */
static __always_inline void section_begins(void)
{
	if (timed)
		section_from = bpf_ktime_get_ns();
}

/* Still under the lock. */
static __always_inline void section_ends(u32 line)
{
	u64 took;

	if (!timed)
		return;
	took = bpf_ktime_get_ns() - section_from;
	if (took > section_longest) {
		section_longest = took;
		section_line = line;
	}
}

#endif
