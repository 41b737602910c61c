// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker's one ring: ublk's fetches and answers, the backend's I/O, and whose descriptor is
//! waited for. Each turn is one system call: what the last turn has brought begins, and what
//! happens next is waited for.
//!
//! It must be one. A request's own memory is named to the backend as a *registered buffer*, which
//! is a buffer of the ring in which the request was fetched (`front/ublk`).
//!
//! A ring on paper has no kernel: what is pushed is kept, and what is done somebody else says. It
//! is for `fuzz/`.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

/// Entries that begin at once; more make one more system call.
const ENTRIES: u32 = 1024;
/// Room for what is done: all fetches and all I/O of a turn.
const DONE_MAX: u32 = 8192;
/// Of a completion's name: whose it is.
const WHOSE_AT: u32 = 56;

/// Whose an entry is. To its owner it has a name of 56 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Nobody waits for it.
    Nobody = 0,
    /// The front end's.
    Front = 1,
    /// The backend's.
    Backend = 2,
    /// A descriptor is readable, or its other end is gone.
    Readable = 3,
}

/// What is done: whose, its name, and the result or a negative errno.
pub type Done = (Of, u64, i32);

/// An entry, as the kernel has it (`struct io_uring_sqe`).
pub type Sqe = [u8; 64];

enum Way {
    Kernel(Box<IoUring>),
    Paper { pushed: Vec<Sqe>, done: Vec<Done> },
}

/// See the head of this file. Only the thread that made it may use it. It has no registered files:
/// those are closed some time after its end only, and a disk that was given back could not be
/// mounted until then.
pub struct Ring {
    way: Way,
}

/// The errno of a result below 0. What is none of the kernel's is EIO.
pub fn errno_of(result: i32) -> i32 {
    if (-4095..0).contains(&result) { -result } else { libc::EIO }
}

impl Ring {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(DONE_MAX);
        // What happens meanwhile is looked at when the worker waits, all at once, and does not
        // interrupt it.
        let best = builder.clone().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
        let ring = match best {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => builder.build(ENTRIES)?,
            other => other?,
        };
        Ok(Self { way: Way::Kernel(Box::new(ring)) })
    }

    /// One on paper.
    #[doc(hidden)]
    pub const fn on_paper() -> Self {
        Self { way: Way::Paper { pushed: Vec::new(), done: Vec::new() } }
    }

    /// Of one on paper: this is done.
    #[doc(hidden)]
    pub fn says(&mut self, all: &[Done]) {
        if let Way::Paper { done, .. } = &mut self.way {
            done.extend_from_slice(all);
        }
    }

    /// Of one on paper: what was pushed since this was asked last.
    #[doc(hidden)]
    pub fn pushed(&mut self) -> Vec<Sqe> {
        match &mut self.way {
            Way::Paper { pushed, .. } => std::mem::take(pushed),
            Way::Kernel(_) => Vec::new(),
        }
    }

    /// Room for so many registered buffers.
    pub fn reserve_buffers(&mut self, count: u32) -> io::Result<()> {
        match &self.way {
            Way::Kernel(ring) => ring.submitter().register_buffers_sparse(count),
            Way::Paper { .. } => Ok(()),
        }
    }

    /// It begins with the next [`Ring::wait`], at the latest.
    ///
    /// # Safety
    /// Memory that it names stays where it is until it is done.
    pub unsafe fn push(&mut self, entry: squeue::Entry, of: Of, name: u64) -> io::Result<()> {
        let entry = entry.user_data((of as u64) << WHOSE_AT | name);
        match &mut self.way {
            Way::Kernel(ring) => {
                // SAFETY: the caller's promise.
                while unsafe { ring.submission().push(&entry) }.is_err() {
                    ring.submit()?;
                }
            }
            Way::Paper { pushed, .. } => {
                const { assert!(size_of::<squeue::Entry>() == size_of::<Sqe>()) };
                // SAFETY: an entry is plain numbers, as long as that.
                pushed.push(unsafe { std::ptr::read((&raw const entry).cast()) });
            }
        }
        Ok(())
    }

    /// What was pushed begins now.
    pub fn begin(&mut self) -> io::Result<()> {
        match &self.way {
            Way::Kernel(ring) => ring.submit().map(drop),
            Way::Paper { .. } => Ok(()),
        }
    }

    /// Tell once when somebody can be read from.
    pub fn watch(&mut self, fd: RawFd, name: u64) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
        // SAFETY: it names no memory.
        unsafe { self.push(entry, Of::Readable, name) }
    }

    /// Not any more.
    pub fn unwatch(&mut self, name: u64) -> io::Result<()> {
        let entry = opcode::PollRemove::new((Of::Readable as u64) << WHOSE_AT | name).build();
        // SAFETY: it names no memory.
        unsafe { self.push(entry, Of::Nobody, 0) }
    }

    /// What was pushed begins. Then wait until something is done, or for so long.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let Way::Kernel(ring) = &mut self.way else { return Ok(()) };
        let want = usize::from(ring.completion().is_empty());
        let waited = match timeout {
            None => ring.submit_and_wait(want),
            Some(timeout) => {
                let timeout = types::Timespec::from(timeout);
                ring.submitter()
                    .submit_with_args(want, &types::SubmitArgs::new().timespec(&timeout))
            }
        };
        match waited {
            // EBUSY, EAGAIN: completions are to be taken first.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// What is done.
    pub fn take(&mut self, into: &mut Vec<Done>) {
        let ring = match &mut self.way {
            Way::Kernel(ring) => ring,
            Way::Paper { done, .. } => return into.append(done),
        };
        into.extend(ring.completion().map(|done| {
            let of = match done.user_data() >> WHOSE_AT {
                1 => Of::Front,
                2 => Of::Backend,
                3 => Of::Readable,
                _ => Of::Nobody,
            };
            (of, done.user_data() & ((1 << WHOSE_AT) - 1), done.result())
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn an_errno_is_one_of_the_kernels() {
        let all = [-1, -libc::EINVAL, -4095, -4096, i32::MIN, 0, 1].map(errno_of);
        assert_eq!(all, [1, libc::EINVAL, 4095, libc::EIO, libc::EIO, libc::EIO, libc::EIO]);
    }

    #[test]
    fn who_is_watched_is_told_once_and_a_time_ends() {
        let mut ring = Ring::new().unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        ring.watch(near.as_raw_fd(), 7).unwrap();
        let mut done = Vec::new();
        ring.wait(Some(Duration::from_millis(1))).unwrap();
        ring.take(&mut done);
        assert_eq!(done, []);
        io::Write::write_all(&mut &far, b"x").unwrap();
        ring.wait(None).unwrap();
        ring.take(&mut done);
        assert_eq!(done, [(Of::Readable, 7, libc::POLLIN.into())]);
        done.clear();
        // Who is not watched any more is not told of either.
        drop(near);
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        ring.watch(near.as_raw_fd(), 8).unwrap();
        ring.unwatch(8).unwrap();
        ring.wait(Some(Duration::from_millis(1))).unwrap();
        io::Write::write_all(&mut &far, b"x").unwrap();
        ring.wait(Some(Duration::from_millis(1))).unwrap();
        ring.take(&mut done);
        assert!(!done.contains(&(Of::Readable, 8, libc::POLLIN.into())), "{done:?}");
    }
}
