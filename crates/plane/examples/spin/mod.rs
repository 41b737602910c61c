// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that lets a guest's time pass cheaply: what tests/lib/spin.h says, for the examples.

/// Some 400 instructions without a jump.
pub(crate) fn straight_line() {
    // SAFETY: nops change nothing.
    unsafe {
        std::arch::asm!(".rept 400", "nop", ".endr", options(nostack, preserves_flags));
    }
}

/// Busy until killed.
#[allow(dead_code, reason = "not every example needs both")]
pub(crate) fn forever() -> ! {
    loop {
        straight_line();
    }
}
