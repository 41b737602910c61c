// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGPIPE as our caller left it. The Rust runtime ignores the signal before `main`; a program that `run`
//! executes must inherit what `reserv` was given, and `reserv tree | head` should end quietly.

use std::sync::atomic::{AtomicUsize, Ordering};

static INHERITED: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

extern "C" fn record() {
    // SAFETY: sigaction with a null new action only reads; the structure is plain data, valid when zeroed.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0 {
            INHERITED.store(old.sa_sigaction, Ordering::Relaxed);
        }
    }
}

// SAFETY: the C runtime calls functions of this section before main, with one thread; `record` allocates
// nothing, unwinds nowhere and uses nothing of the Rust runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

fn set(handler: libc::sighandler_t) {
    // SAFETY: SIG_DFL and SIG_IGN are the only values that come here; no handler runs.
    unsafe {
        libc::signal(libc::SIGPIPE, handler);
    }
}

/// For our own output: end silently when the reader has gone.
pub(crate) fn default() {
    set(libc::SIG_DFL);
}

/// For the program that we become.
pub(crate) fn as_inherited() {
    set(if INHERITED.load(Ordering::Relaxed) == libc::SIG_IGN { libc::SIG_IGN } else { libc::SIG_DFL });
}
