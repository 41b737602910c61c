/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Work that lets a guest's time pass cheaply. Under -icount each instruction takes the same time
 * in the guest, but the emulator pays for each jump: a loop of one jump costs it 5.7 s for a second
 * of a guest's time at shift 0 (1.2 s at shift 2), a loop of 400 nops and a jump less than 0.05 s.
 * A signal or an interrupt comes between two instructions as anywhere else. On real hardware it
 * takes a tenth of a microsecond, so a loop that reads the clock after each stays exact.
 */
#ifndef RESERV_SPIN_H
#define RESERV_SPIN_H

#define STRAIGHT 400 /* instructions: an emulator's block has up to 512 */
#define SPIN_TEXT_(n) ".rept " #n "\n\tnop\n\t.endr"
#define SPIN_TEXT(n) SPIN_TEXT_(n)

static inline __attribute__((always_inline)) void straight_line(void)
{
	__asm__ volatile(SPIN_TEXT(STRAIGHT) ::: "memory");
}

#endif
