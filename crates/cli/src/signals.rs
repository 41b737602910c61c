// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: SIGPIPE as our caller left it, and interrupts that wait until an edit is whole.
//!
//! The Rust runtime ignores SIGPIPE before `main`; a program that `run` executes must inherit what
//! `reserv` was given, and `reserv tree | head` should end quietly.

use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

static INHERITED: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

extern "C" fn record() {
    // SAFETY: sigaction with a null new action only reads; the structure is plain data, valid when
    // zeroed.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0 {
            INHERITED.store(old.sa_sigaction, Ordering::Relaxed);
        }
    }
}

// SAFETY: the C runtime calls functions of this section before main, with one thread; `record`
// allocates nothing, unwinds nowhere and uses nothing of the Rust runtime.
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
    set(if INHERITED.load(Ordering::Relaxed) == libc::SIG_IGN {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    });
}

const STOPPING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// While it lives, an interrupt waits: what has several steps is finished or undone first.
pub(crate) struct Held(SigSet);

impl Held {
    /// From now on.
    pub(crate) fn begin() -> Self {
        let stop: SigSet = STOPPING.into_iter().collect();
        let mut old = SigSet::empty();
        // Cannot fail: the how and the sets are valid. If it did, the steps would only be less
        // protected.
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&stop), Some(&mut old));
        Self(old)
    }

    /// Take one that waits. It is then ours to act upon, and ends nothing later.
    pub(crate) fn take(&self) -> bool {
        let wanted: SigSet =
            STOPPING.into_iter().filter(|signal| !self.0.contains(*signal)).collect();
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time live for the whole call; no information about the signal is
        // asked for.
        unsafe { libc::sigtimedwait(wanted.as_ref(), std::ptr::null_mut(), &raw const now) > 0 }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.0), None);
    }
}
