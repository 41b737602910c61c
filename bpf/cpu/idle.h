/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * No CPU idles beside work that it may do.
 *
 * Problem. A CPU looks at the tree, finds nothing, and only then is marked as idle by the kernel.
 * What begins to wait in between finds no idle CPU to tell, and waits for a switch of a busy one: a
 * step, 4 ms or more.
 *
 * Idea (Dekker's). A CPU says in `leaving` that it finds nothing, and then looks. Who has put
 * something into the tree, and finds no idle CPU, looks at `leaving`. Each writes before it reads,
 * so one of the two sees the other.
 *
 *   CPU that leaves                      who brings work
 *   sets its bit       (a full barrier)  posts, or has a section of the lock
 *   looks at the tree                    looks for an idle CPU; none    (a full barrier)
 *   nothing: it idles                    looks at the bits: takes one away, and kicks that CPU
 *
 * The kick takes the run queue's lock, which that CPU has until it stands idle or runs something;
 * so it is not lost. Whoever is kicked, or comes by itself, looks anew, and sets its bit anew where
 * it finds nothing. One bit is one kick: a CPU that a real-time thread keeps from coming is told
 * once.
 *
 * The kernel's own way is update_idle(), called when a CPU has been marked. It was tried; what it
 * did to a suspend stands in docs/notes/cpu-full.md.
 */
#ifndef RESERV_CPU_IDLE_H
#define RESERV_CPU_IDLE_H

u64 leaving[RS_UNIT_WORDS] __attribute__((aligned(64)));

/*
 * One of 64 CPUs whose bits stand in `may`, as its number plus one: its bit is not set any more. 0:
 * none is leaving.
 */
static __always_inline u32 rc_leaving_of(u64 *bits, u64 may)
{
	u64 late = *(volatile u64 *)bits & may;

	RS_LOOP(i, 64) {
		u64 bit = 1ULL << (i & 63);

		if (!late)
			break;
		if ((late & bit) && (__sync_fetch_and_and(bits, ~bit) & bit))
			return i + 1; /* else it has come by itself, or somebody else has told it */
		late &= ~bit;
	}
	return 0;
}

/* A CPU of `may` that finds nothing, and whom nobody has told since it looked; -1: none is. */
static __always_inline s32 rc_leaving(const struct cpumask *may)
{
	u64 barrier = 0;
	u32 cpu;

	__sync_fetch_and_or(&barrier, 1);
	cpu = rc_leaving_of(&leaving[0], may->bits[0]);
	if (cpu)
		return cpu - 1;
	if (cpus > 64 && bpf_core_type_size(struct cpumask) >= 16) {
		cpu = rc_leaving_of(&leaving[1], may->bits[1]);
		if (cpu)
			return 64 + cpu - 1;
	}
	if (cpus > 128 && bpf_core_type_size(struct cpumask) >= 32) {
		cpu = rc_leaving_of(&leaving[2], may->bits[2]);
		if (cpu)
			return 128 + cpu - 1;
		cpu = rc_leaving_of(&leaving[3], may->bits[3]);
		if (cpu)
			return 192 + cpu - 1;
	}
	return -1;
}

/* A CPU looks anew, or has been told to. */
static __always_inline void rc_comes(u32 cpu)
{
	u64 *bits = &leaving[(cpu / 64) & (RS_UNIT_WORDS - 1)], bit = 1ULL << (cpu & 63);

	if (*(volatile u64 *)bits & bit)
		__sync_fetch_and_and(bits, ~bit);
}

/*
 * For tests, where sections are timed (RESERV_TIMED). At each choice of a CPU: how often who waits
 * longest has waited beside a CPU that idles and that he may use; and how often for long before
 * anybody told that CPU. The second is a wake-up that was lost. It is not one where a cap held the
 * thread back; nor while an event that may still tell, or find it, is under way: an emulated CPU
 * may stand still in the middle of one for milliseconds. So who tells has done so since his event
 * began, and what is not told yet is as old as the oldest event that is under way.
 */
#define RC_IDLE_LATE 2000000 /* half a step: where that is lost, it waits for the end of one */
u64 idle_since[RS_UNITS_MAX]; /* 0: it does not idle */
u64 idle_told[RS_UNITS_MAX]; /* 0: nobody has told it since */
u64 event_since[RS_UNITS_MAX]; /* a wake-up or a choice of it is under way; 0: none is */
u64 idle_waits, idle_late;

/* By who holds the run queue of `cpu`: an event begins; 0: it ends. */
static __always_inline void rc_event(u32 cpu, u64 raw)
{
	if (timed && cpus > 1)
		event_since[cpu & (RS_UNITS_MAX - 1)] = raw;
}

/* Somebody sends for that CPU, in an event that began at `since`; 0: now. */
static __always_inline void rc_told(u32 cpu, u64 since)
{
	if (timed && !idle_told[cpu & (RS_UNITS_MAX - 1)])
		idle_told[cpu & (RS_UNITS_MAX - 1)] = since ? since : scx_bpf_now();
}

/*
 * A CPU that idles, or is about to, and is in `may`, looks at the tree. Answers whether there was
 * one. After what it is to find, in an event that began at `since` (rc_told).
 */
static __always_inline bool rc_kick_one_of(const struct cpumask *may, u64 since)
{
	s32 idle = scx_bpf_pick_idle_cpu(may, 0);

	if (idle >= 0)
		rc_comes(idle); /* one kick is enough */
	else
		idle = rc_leaving(may);
	if (idle < 0)
		return false;
	rc_told(idle, since);
	scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	return true;
}

/* This CPU finds nothing, as far as it knows. */
static __always_inline void rc_leaves(u32 cpu, u64 raw)
{
	u64 *bits = &leaving[(cpu / 64) & (RS_UNIT_WORDS - 1)], bit = 1ULL << (cpu & 63);

	if (timed) {
		idle_told[cpu & (RS_UNITS_MAX - 1)] = 0;
		if (!idle_since[cpu & (RS_UNITS_MAX - 1)])
			idle_since[cpu & (RS_UNITS_MAX - 1)] = raw;
	}
	__sync_fetch_and_or(bits, bit);
}

/* It has found something, or something was put on it. */
static __always_inline void rc_runs(u32 cpu)
{
	rc_comes(cpu);
	if (timed)
		idle_since[cpu & (RS_UNITS_MAX - 1)] = 0;
}

/*
 * Nothing was found, by section number `section` of the lock. Answers whether the CPU may idle: it
 * had said so before that section (`left`), or says so now and nothing has happened to the tree
 * since.
 */
static __always_inline bool rc_may_idle(struct rs_tree RS_ARENA *t, u32 cpu, u32 *left,
					u64 section, u64 raw)
{
	if (*left)
		return true;
	*left = 1;
	rc_leaves(cpu, raw);
	return *(volatile u64 *)&section_count == section &&
	       !*(struct rs_item RS_ARENA *volatile *)&t->posted;
}

/* Under the lock, before a choice: `it` waits longest. */
static __noinline int rc_idled(struct rs_item RS_ARENA *it, u64 now)
{
	u64 from, since, until, pending = now;
	u32 some = 0, late = 0, at;

	if (!it)
		return 0;
	from = it->queued_at;
	RS_LOOP(cpu, RS_UNITS_MAX) {
		if (cpu >= cpus)
			break;
		at = rc_slot(cpu) & (RS_UNITS_MAX - 1);
		since = event_since[at];
		if (since && rs_before(since, pending))
			pending = since;
	}
	RS_LOOP(cpu, RS_UNITS_MAX) {
		if (cpu >= cpus)
			break;
		at = rc_slot(cpu) & (RS_UNITS_MAX - 1);
		since = idle_since[at];
		until = idle_told[at];
		if (!since || !(it->all || rs_unit_in(it->mask, cpu)))
			continue;
		if (rs_before(since, from))
			since = from;
		if (!rs_before(since, now))
			continue;
		if (!until || rs_before(pending, until))
			until = pending;
		some = 1;
		if (rs_before(since, until) && until - since > RC_IDLE_LATE)
			late = 1;
	}
	idle_waits += some;
	idle_late += late;
	return 0;
}

#endif
