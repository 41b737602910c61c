// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who must go through the mount is told why he waits.
//!
//! A process that waits for a directory's lock in the kernel can be neither interrupted nor killed,
//! and any user can keep that lock (`getdents` into memory that never comes). A second thread looks
//! whether the first one waits so, says it after a while, and ends the command: at once as far as
//! it has to do with reservd (nothing more is asked for), for who waits for it when the lock is let
//! go.

use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

use crate::error::Error;

/// How long the command may be uninterruptible. A daemon that is slow is waited for interruptibly.
const LOCKED_MAX: Duration = Duration::from_secs(5);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// From now on, for the calling thread.
pub(crate) fn begin() {
    let thread = nix::unistd::gettid();
    // Signals are the first thread's, which may have to finish something first (`signals::Held`).
    let mut before = SigSet::empty();
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before));
    // Without a thread nobody is told.
    let _ = std::thread::Builder::new().name("watch".into()).spawn(move || {
        let mut since = None;
        while since.get_or_insert_with(Instant::now).elapsed() < LOCKED_MAX {
            std::thread::sleep(LOOK);
            if !uninterruptible(thread.as_raw()) {
                since = None;
            }
        }
        eprint!("{}", locked().render());
        // SAFETY: it ends this process, and touches nothing of it.
        unsafe { libc::_exit(i32::from(locked().kind as u8)) }
    });
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
}

fn uninterruptible(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
}

fn locked() -> Error {
    let at = crate::fs::mount_point();
    Error::refused(format!("{} does not answer: a directory in it is held locked", at.display())).hint(
        "by somebody who reads it into memory that never comes. Nothing can end this command before he lets \
         go; root's commands work. Who it is: grep -l iterate_dir /proc/[0-9]*/stack",
    )
}
