// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the kernel forget names that went without its knowledge, from a process of its own.
//!
//! The kernel takes the directory's lock for it and cannot be interrupted meanwhile, while somebody
//! who reads that directory holds the lock until he is answered. Were it the worker that waits
//! there as it is killed, it would not end before the answer, and so nobody would be started to
//! give it. This process holds nothing but `/dev/fuse`, nobody waits for its end, and it ends when
//! the worker does. Where the keeper has died too, nobody is left who would answer, and the session
//! lives on by this process alone: it aborts it then, so that the reader fails at once, and not
//! only when the next start does so.
//!
//! Nor does anybody wait for this process for long: a user can keep a directory locked by reading
//! it into memory that never comes. It is left to its wait then, and ends after it; the next names
//! are told to another one, as long as there are not too many. A name that is not forgotten leads
//! to a node that is stale, and goes by itself some seconds later.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use crate::begin;
use crate::fuse::{proto, session};
use crate::link::{self, UnixSeq};
use crate::priority;
use crate::settings::Settings;
use crate::sync::lock;

/// Behind the names of a batch; the answer to it, when they are forgotten. A name's message is
/// longer.
const END: [u8; 1] = [b'E'];
/// A name's message is less.
const MESSAGE_MAX: usize = 1024;
/// Longest wait for a process of ours.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Most processes that were left to their waits.
const LEFT_MAX: usize = 4;

/// The worker's side. The process is started when it is needed first, and again where somebody
/// ended it.
pub struct Forgetter {
    fuse: File,
    process: Mutex<Process>,
}

#[derive(Default)]
struct Process {
    link: Option<UnixSeq>,
    /// The one that runs, and those before it, which are waited for when they have ended.
    children: Vec<Child>,
}

impl Forgetter {
    /// Of this session.
    pub fn new(fuse: File) -> Self {
        Self { fuse, process: Mutex::default() }
    }

    /// Those who poll files are woken. That waits for nobody.
    pub fn wake(&self, names: &[u64]) {
        for name in names {
            // Nobody waits by that name any more; or all are gone with the mount.
            if let Err(error) = session::tell(&self.fuse, &proto::wake(*name)) {
                tracing::debug!(%error, name, "nobody was woken");
            }
        }
    }

    /// Returns when they are forgotten, or after [`WAIT_MAX`]. Not for the thread that serves,
    /// which may have to answer first. `names`: of which directory, and the name.
    pub fn forget(&self, names: &[(u64, Vec<u8>)]) {
        if names.is_empty() {
            return;
        }
        let mut process = lock(&self.process);
        let known = process.link.is_some();
        let mut done = self.try_forget(&mut process, names);
        // Somebody ended it.
        if known && done.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::TimedOut) {
            done = self.try_forget(&mut process, names);
        }
        if let Err(error) = done {
            tracing::error!(%error, "removed names stay in the kernel's cache until they expire");
        }
    }

    fn try_forget(&self, process: &mut Process, names: &[(u64, Vec<u8>)]) -> io::Result<()> {
        let link = match process.link.take() {
            Some(link) => link,
            None => self.start(&mut process.children)?,
        };
        let until = Instant::now() + WAIT_MAX;
        let say = |message: &[u8]| {
            ready(&link, PollFlags::POLLOUT, until)?;
            send(link.0.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL).map_err(io::Error::from)
        };
        for (parent, name) in names {
            say(&proto::forget_name(*parent, name))?;
        }
        say(&END)?;
        ready(&link, PollFlags::POLLIN, until)?;
        if receive(&link, &mut [0])?.is_none() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        process.link = Some(link);
        Ok(())
    }

    fn start(&self, children: &mut Vec<Child>) -> io::Result<UnixSeq> {
        children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        if children.len() >= LEFT_MAX {
            let text = "the processes that tell it wait for directories that are locked";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let (ours, theirs) = UnixSeq::pair()?;
        let fds = [("fuse-fd", self.fuse.as_raw_fd()), ("link-fd", theirs.0.as_raw_fd())];
        children.push(link::spawn("forgetter", &fds, &[])?);
        Ok(ours)
    }
}

/// Waits until the other can be written to or read from, or is gone.
fn ready(link: &UnixSeq, what: PollFlags, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(link.0.as_fd(), what)], timeout) {
            Ok(0) => {
                let text = "who tells it waits for a directory that is locked";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The length of a message; `None`: the other is gone.
fn receive(link: &UnixSeq, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match recv(link.0.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(0) => return Ok(None),
            Ok(len) => return Ok(Some(len)),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits until worker and keeper are dead, and then, if this process still waits for a directory's
/// lock (`inside`), aborts the session. By the lock that those two hold, so that no other reservd
/// is about to begin meanwhile: whoever has it first aborts what is left.
fn end_with_them(link: &OwnedFd, settings: &Settings, inside: &AtomicBool) -> io::Result<()> {
    while poll(&mut [PollFd::new(link.as_fd(), PollFlags::empty())], PollTimeout::NONE)
        == Err(nix::errno::Errno::EINTR)
    {}
    let lock = Flock::lock(File::open(settings.lock())?, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)?;
    if inside.load(Ordering::SeqCst) && session::mounted(&settings.mount)?.is_some() {
        tracing::info!("worker and keeper are dead: who waits for them fails");
        session::abort(&settings.mount)?;
    }
    drop(lock);
    Ok(())
}

/// The process.
pub fn run(fuse: &File, link: &UnixSeq, settings: Settings) -> ExitCode {
    priority::reserve();
    let inside = Arc::new(AtomicBool::new(false));
    let (watched, inside_) = (link.0.try_clone(), inside.clone());
    let watch = move || {
        if let Err(error) = watched.and_then(|link| end_with_them(&link, &settings, &inside_)) {
            tracing::error!(%error, "callers of a dead reservd wait until the next start");
        }
    };
    if let Err(error) = begin::thread("watch", watch) {
        // Nothing is begun that nobody would end: the worker tries again with another of us.
        tracing::error!(%error, "no thread");
        return ExitCode::FAILURE;
    }
    let mut buffer = [0; MESSAGE_MAX];
    while let Ok(Some(len)) = receive(link, &mut buffer) {
        let message = buffer.get(..len).unwrap_or_default();
        if message == END {
            let _ = send(link.0.as_raw_fd(), &END, MsgFlags::MSG_NOSIGNAL);
            continue;
        }
        inside.store(true, Ordering::SeqCst);
        let told = session::tell(fuse, message);
        inside.store(false, Ordering::SeqCst);
        if let Err(error) = told {
            // ENOENT: it had not cached it.
            tracing::trace!(%error, "a name was not cached");
        }
    }
    ExitCode::SUCCESS
}
