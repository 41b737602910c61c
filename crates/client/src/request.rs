// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes with a deadline of their own.
//!
//! The deadline is the hint of the calling thread's I/O priority, in milliseconds, for the time of
//! the call: the kernel puts that into each request that the call makes, and the disk's scheduler
//! reads it there. Nothing of /reserv is asked; where the file lives on no scheduled disk the hint
//! means nothing.

use std::io;
use std::os::fd::RawFd;

use crate::error::{Error, Result};

const MS: u64 = 1_000_000;
/// Hints below are the kernel's own; 10 bits are all.
const HINT_MIN: u64 = 8;
const HINT_MAX: u64 = 1023;
const HINT_SHIFT: u32 = 3;
const HINT_MASK: libc::c_long = 0x3ff << HINT_SHIFT;
const CLASS_SHIFT: u32 = 13;
/// Best effort, level 4: what a thread has that said nothing.
const BEST_EFFORT: libc::c_long = 2 << CLASS_SHIFT | 4;
const WHO_PROCESS: libc::c_long = 1;

/// The thread's I/O priority is changed while this lives.
#[derive(Debug)]
struct Hinted {
    was: libc::c_long,
}

fn set_priority(priority: libc::c_long) -> io::Result<()> {
    // SAFETY: Three numbers; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Hinted {
    fn begin(deadline_ns: u64) -> Result<Option<Self>> {
        if deadline_ns == 0 {
            return Ok(None);
        }
        let ms = deadline_ns / MS;
        if !(HINT_MIN..=HINT_MAX).contains(&ms) {
            let text =
                format!("deadline_ns {deadline_ns}: {HINT_MIN} ms to {HINT_MAX} ms, or 0 for none");
            return Err(Error::new(libc::EINVAL, text));
        }
        // SAFETY: Two numbers; 0 is the calling thread.
        let was = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) };
        if was < 0 {
            return Err(refused(&io::Error::last_os_error()));
        }
        let plain = if was >> CLASS_SHIFT == 0 { BEST_EFFORT } else { was & !HINT_MASK };
        let hint = libc::c_long::try_from(ms << HINT_SHIFT).unwrap_or(0);
        set_priority(plain | hint).map_err(|e| refused(&e))?;
        Ok(Some(Self { was }))
    }
}

impl Drop for Hinted {
    fn drop(&mut self) {
        // What the thread had it may have again; a right to a real-time priority that it lost
        // meanwhile it had lost before this.
        let _ = set_priority(self.was);
    }
}

fn refused(e: &io::Error) -> Error {
    let errno = e.raw_os_error().unwrap_or(libc::EIO);
    match errno {
        libc::EINVAL => Error::new(libc::EOPNOTSUPP, "I/O priorities have hints from Linux 6.5 on"),
        libc::EPERM => Error::new(
            errno,
            "the thread's I/O priority is real-time, and it has no CAP_SYS_NICE to change it",
        ),
        _ => {
            Error::new(errno, format!("the thread's I/O priority: {}", crate::error::words(errno)))
        }
    }
}

/// The deadline holds for one call of `io`, which answers as pread(2) does.
fn with(deadline_ns: u64, what: &str, io: impl FnOnce() -> isize) -> Result<usize> {
    let hinted = Hinted::begin(deadline_ns)?;
    let got = io();
    let error = io::Error::last_os_error();
    drop(hinted);
    usize::try_from(got).map_err(|_| {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Error::new(errno, format!("{what}: {}", crate::error::words(errno)))
    })
}

/// As borrowed.rs says of `pread`.
///
/// # Safety
/// `buf` has room for `count` bytes, or is no address at all (EFAULT).
pub(crate) unsafe fn pread_raw(
    fd: RawFd,
    buf: *mut libc::c_void,
    count: usize,
    offset: i64,
    deadline_ns: u64,
) -> Result<usize> {
    // SAFETY: As the caller says; the kernel looks.
    with(deadline_ns, "pread", || unsafe { libc::pread(fd, buf, count, offset) })
}

/// The same as C has it.
///
/// # Safety
/// As [`pread_raw`].
pub(crate) unsafe fn pwrite_raw(
    fd: RawFd,
    buf: *const libc::c_void,
    count: usize,
    offset: i64,
    deadline_ns: u64,
) -> Result<usize> {
    // SAFETY: As the caller says; the kernel looks.
    with(deadline_ns, "pwrite", || unsafe { libc::pwrite(fd, buf, count, offset) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;
    use crate::{pread, pwrite};

    fn mine() -> libc::c_long {
        // SAFETY: As above.
        unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) }
    }

    #[test]
    fn a_deadline_is_the_hint_for_the_time_of_the_call() {
        let mut file = tempfile();
        file.write_all(b"hello").unwrap();
        let mut buf = [0; 16];
        assert_eq!(pread(&file, &mut buf, 1, 250 * MS).unwrap(), 4);
        assert_eq!(&buf[..4], b"ello");
        assert_eq!(pwrite(&file, b"J", 0, 0).unwrap(), 1);
        let plain = mine();
        {
            let _hinted = Hinted::begin(250 * MS + 999).unwrap().unwrap();
            assert_eq!((mine() & HINT_MASK) >> HINT_SHIFT, 250);
            // One inside of another, as a signal handler may do.
            drop(Hinted::begin(8 * MS).unwrap());
            assert_eq!((mine() & HINT_MASK) >> HINT_SHIFT, 250);
        }
        assert_eq!(mine(), plain);
        for wrong in [1, 8 * MS - 1, 1024 * MS, u64::MAX] {
            let error = pread(&file, &mut buf, 0, wrong).unwrap_err();
            assert!(
                error.errno() == libc::EINVAL && error.text().contains(&wrong.to_string()),
                "{error}"
            );
        }
        // SAFETY: There is room.
        let none = unsafe { pread_raw(-1, buf.as_mut_ptr().cast(), 1, 0, 250 * MS) };
        assert_eq!(none.unwrap_err().errno(), libc::EBADF);
        assert_eq!(mine(), plain, "after errors too");
    }

    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!("reserv-request-{}", std::process::id()));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }
}
