// SPDX-License-Identifier: MIT OR Apache-2.0
//! After a server that died: requests that the kernel has forgotten.
//!
//! While a device has no server, the kernel puts requests on a list, and sends what is on it when
//! the next server says that it is there (`UBLK_CMD_END_USER_RECOVERY`). Since Linux 6.16 it does
//! not wait for who is about to put one there: a thread that has seen "no server", and stands still
//! for longer than the next server's first steps take (another thread runs, the virtual CPU does
//! not), comes after that. Its request stays on the list for as long as nothing else sends what is
//! there. A flush does (`blk_kick_flush`), whatever it is a flush of. So some are sent, at longer
//! and longer intervals: nothing says whether a thread still stands there.
//!
//! Each is sent by a process of its own, for who sends one waits in the kernel until it is
//! answered. Were that the worker, it could not end before, and nobody would follow it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::keeper::{STAYS, take_name};
use crate::log::say;

/// The option of a process that sends a flush to a device.
pub const OPTION: &str = "--nudge";
/// Before each flush, from the end of the one before.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(2),
    Duration::from_secs(10),
    Duration::from_secs(60),
];
/// A range behind every device: fsync() of a block device first waits for what its page cache has
/// there to be written, and that may be the request which is forgotten.
const BEHIND: u64 = 1 << 62;

/// Held while a flush is sent. Who sends it has the device open.
static SENDS: Mutex<()> = Mutex::new(());

/// None is sent while what this returns is held. `None`: one is sent now.
pub fn pause() -> Option<MutexGuard<'static, ()>> {
    match SENDS.try_lock() {
        Ok(paused) => Some(paused),
        Err(TryLockError::Poisoned(ended)) => Some(ended.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Flushes are sent to the device of this name, beside whoever says so.
pub fn begin(device: String) {
    let name = device.clone();
    let begun = std::thread::Builder::new().name("nudge".into()).spawn(move || nudge(&device));
    if let Err(error) = begun {
        say(format_args!("no flush is sent to {name}: {error}"));
    }
}

fn nudge(device: &str) {
    for pause in PAUSES {
        std::thread::sleep(pause);
        let Ok(_sends) = SENDS.lock() else { return };
        let sent = Command::new("/proc/self/exe")
            .arg0(STAYS)
            .arg(OPTION)
            .arg(format!("/dev/{device}"))
            .stdin(Stdio::null())
            .status();
        if let Err(error) = sent {
            say(format_args!("no flush is sent to {device}: {error}"));
        }
    }
}

/// The whole life of a process that sends one. A device that has gone meanwhile needs none.
pub fn flush(device: &Path) -> io::Result<()> {
    // SAFETY: a number. Nobody needs the flush of a worker that has ended.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    take_name();
    let file = File::open(device)?;
    let mut ring = IoUring::new(1)?;
    let fsync = opcode::Fsync::new(types::Fd(file.as_raw_fd())).offset(BEHIND).len(4096).build();
    // SAFETY: the request names no memory, and the file stays open until it is answered.
    unsafe { ring.submission().push(&fsync) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    match ring.completion().next().map(|done| done.result()) {
        Some(error @ ..0) => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(()),
    }
}
