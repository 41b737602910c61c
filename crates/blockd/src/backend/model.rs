// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file or block device that takes as long as a modelled disk (`crates/disk-model`): an arm and turning platters, or channels of flash. The data are the
//! file's. What is submitted is done there at once, and told when the model would be done with it; a slower file is told when it is done.
//!
//! The model's disk ends where the file ends: a seek from one end of the file to the other takes as long as one over the whole disk. It serves in the order of submission, so
//! what is in its queue is not put in order any more: an arm gets one request at a time where nothing else is said.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::str::FromStr;

use reserv_disk_model::{Disk, Flash, Kind, Request, Spinning};

use super::{Backend, DEPTH, FileBackend, Io};
use crate::front::Op;
use crate::serve::now;

const SECTOR: u64 = 512;

/// Which disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// 7200 revolutions a minute, 15 ms from end to end, 123 MB/s.
    Spinning,
    /// 8 channels, 550 MB/s.
    Flash,
}

impl FromStr for Model {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "spinning" => Ok(Self::Spinning),
            "flash" => Ok(Self::Flash),
            _ => Err(format!("{word}: a model is spinning or flash")),
        }
    }
}

impl Model {
    /// Of so many sectors.
    pub const fn kind(self, sectors: u64) -> Kind {
        match self {
            Self::Spinning => Kind::Spinning(Spinning { sectors, ..Spinning::DESKTOP }),
            Self::Flash => Kind::Flash(Flash { sectors, ..Flash::SATA }),
        }
    }
}

/// See the head of this file.
pub struct ModelBackend {
    below: FileBackend,
    model: Model,
    disk: Disk,
    /// When the model is done with what was submitted.
    due: BTreeMap<u64, u64>,
    /// What is done below and not by the model: by that time.
    early: BTreeMap<(u64, u64), i32>,
    timer: OwnedFd,
    both: OwnedFd,
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that is nobody else's, if it is one.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

impl ModelBackend {
    /// This file, as slow as that disk.
    pub fn new(below: FileBackend, model: Model) -> io::Result<Self> {
        // SAFETY: numbers only, both.
        let (timer, both) = unsafe {
            (
                libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK),
                libc::epoll_create1(libc::EPOLL_CLOEXEC),
            )
        };
        let (timer, both) = (owned(timer)?, owned(both)?);
        for fd in [timer.as_raw_fd(), below.fd()] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: one structure, which is copied.
            if unsafe { libc::epoll_ctl(both.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let disk = Disk::new(model.kind(below.size() / SECTOR));
        Ok(Self { below, model, disk, due: BTreeMap::new(), early: BTreeMap::new(), timer, both })
    }

    /// The timer goes off when the first of what is early is due.
    fn wind(&self) {
        let at = self.early.keys().next().map_or(0, |(due, _)| *due);
        let part = |n: u64| i64::try_from(n).unwrap_or(0);
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec { tv_sec: part(at / 1_000_000_000), tv_nsec: part(at % 1_000_000_000) },
        };
        // SAFETY: one structure that is read. Of a time in the past the timer goes off at once; 0 stops it.
        unsafe {
            libc::timerfd_settime(
                self.timer.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                std::ptr::null_mut(),
            )
        };
    }
}

impl Backend for ModelBackend {
    fn fd(&self) -> RawFd {
        self.both.as_raw_fd()
    }

    unsafe fn submit(&mut self, io: &Io) -> io::Result<()> {
        let sectors = match io.op {
            Op::Read | Op::Write => io.len.div_ceil(512),
            Op::Flush | Op::Discard | Op::Zero => 0,
        };
        let request = Request { sector: io.offset / SECTOR, sectors, write: io.op != Op::Read };
        let served = self.disk.submit(now(), request).map_err(io::Error::other)?;
        self.due.insert(io.id, served.done);
        // SAFETY: the caller's promise.
        unsafe { self.below.submit(io) }
    }

    fn enter(&mut self) -> io::Result<()> {
        self.below.enter()
    }

    fn completed(&mut self, into: &mut Vec<(u64, i32)>) {
        let mut went_off = 0_u64;
        // SAFETY: eight bytes are written.
        unsafe { libc::read(self.timer.as_raw_fd(), (&raw mut went_off).cast(), 8) };
        let mut done = Vec::new();
        self.below.completed(&mut done);
        for (id, result) in done {
            let due = self.due.remove(&id).unwrap_or(0);
            self.early.insert((due, id), result);
        }
        let later = self.early.split_off(&(now() + 1, 0));
        into.extend(
            std::mem::replace(&mut self.early, later).into_iter().map(|((_, id), result)| (id, result)),
        );
        self.wind();
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn block(&self) -> u32 {
        self.below.block()
    }

    fn depth(&self) -> u32 {
        match self.model {
            Model::Spinning => 1,
            Model::Flash => DEPTH,
        }
    }

    fn arm(&self) -> bool {
        self.model == Model::Spinning
    }
}
