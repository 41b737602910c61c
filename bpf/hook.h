/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs of hooks, several times each. The kernel leaves a tracing program out where it is
 * interrupted on this CPU already (`recursion_misses`): a trampoline's can be preempted, a
 * tracepoint's too since 7.0, and until its thread runs again no other thread of that CPU has it,
 * which can be every hundredth call on a busy one. With copies nothing is missed but where a thread
 * of the same CPU is preempted in each of them. To run again must change nothing. A copy costs a
 * call of the hook about 110 instructions: three where the call is rare or costs much, two at a
 * file's end, one where a miss has another remedy: open(), fcntl (the CPU's scheduler lets such a
 * thread go on first, bpf/cpu/timer.h).
 */
#ifndef RESERV_HOOK_H
#define RESERV_HOOK_H

#define HOOK(name, args...) static __always_inline int BPF_PROG(name##_body, ##args)
#define HOOK_COPY(section, name, body) \
	SEC(section) \
	int name(unsigned long long *ctx) \
	{ \
		return body(ctx); \
	}
#define HOOKED(section, name) \
	HOOK_COPY(section, name, name##_body) \
	HOOK_COPY(section, name##_2, name##_body) \
	HOOK_COPY(section, name##_3, name##_body)

#endif
