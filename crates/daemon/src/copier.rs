// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tags open files and sockets of others, and puts sockets among those that are chosen by their
//! clients, from processes of their own that have the copies of their descriptors.
//!
//! Whoever serves a file decides how long the close of a copy takes, and nobody can be killed
//! meanwhile (FUSE sends FLUSH with `FR_FORCE`: a wait that no signal ends; what was mapped and
//! written is written back before it). Were it a thread of the worker that waits there, a worker
//! that is killed would not end, and so the keeper would start no other. These processes hold
//! nothing but their link, a pidfd, what is pinned while they tag, and the copy. Threads of the
//! worker wait for their words only, in a wait that a kill ends.
//!
//! One that has closed its copy takes the next: a new process for each tag would cost some ten
//! times as much. One that does not close keeps the thread that waits for it, and so its place
//! ([`crate::aside`]): they are as many as those threads at most, for each user and in all. Whose
//! worker dies ends, as soon as it can.
//!
//! ```text
//!  worker: Copy, with the pidfd   copier: NotCopied (and takes the next), or Copied
//!          Tag, Admit or Leave            Tagged or Admitted, after these; closes; Free
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::process::{Child, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use reserv_plane::listen::{Admission, Socket};
use reserv_plane::{DescriptorTag, PlaneError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::link::{self, UnixSeq};
use crate::process;
use crate::refusal::Refusal;
use crate::sync::lock;

/// Longest wait for a tag, with the resource's lock: nobody else decides how long it takes.
const TAG_MAX: Duration = Duration::from_secs(2);
/// Those that wait for work; more of them end.
const IDLE_MAX: usize = 1;
/// A message is less: a path and some words.
const MESSAGE_MAX: usize = 16 << 10;

/// What is done with a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The tag.
    pub tag: DescriptorTag,
    /// Whether the kernel reads nothing ahead in it from then on.
    pub read_nothing_ahead: bool,
}

/// Why a copy was not tagged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTagged {
    /// Positive.
    pub errno: i32,
    /// In words.
    pub text: String,
    /// Whether these say more than a number: what the plane cannot do at all.
    pub in_words: bool,
    /// Whether there was no room.
    pub full: bool,
}

impl From<PlaneError> for NotTagged {
    fn from(error: PlaneError) -> Self {
        let in_words = matches!(error, PlaneError::Unsupported(_));
        let full = matches!(error, PlaneError::Full(_));
        let Refusal { errno, text, .. } = error.into();
        Self { errno, text, in_words, full }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    Copy(u32),
    Tag(Job),
    Admit(Admission),
    Leave,
}

#[derive(Debug, Serialize, Deserialize)]
enum Said {
    Copied,
    NotCopied(i32),
    Tagged(Result<(), NotTagged>),
    Admitted(Result<Socket, NotTagged>),
    Free,
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the process that has the copy has ended")
}

fn say(link: &UnixSeq, what: &impl Serialize, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let message = serde_json::to_vec(what)?;
    if message.len() >= MESSAGE_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let fds: Vec<_> = with.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
    let (fd, parts) = (link.0.as_raw_fd(), [IoSlice::new(&message)]);
    sendmsg::<()>(fd, &parts, rights, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Waits for a message, however long; a descriptor that came with it is ours.
fn hear<T: DeserializeOwned>(link: &UnixSeq) -> io::Result<(T, Option<OwnedFd>)> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut space = nix::cmsg_space!(std::os::fd::RawFd);
    let (len, fd) = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let (from, flags) = (link.0.as_raw_fd(), MsgFlags::MSG_CMSG_CLOEXEC);
        match recvmsg::<()>(from, &mut parts, Some(&mut space), flags) {
            Ok(message) => {
                let rights = message.cmsgs()?.find_map(|part| match part {
                    ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
                    _ => None,
                });
                // SAFETY: the kernel has made this descriptor for us, and nobody else knows it. The
                // buffer has room for one.
                let fd = rights.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
                break (message.bytes, fd);
            }
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    if len == 0 {
        return Err(ended());
    }
    Ok((serde_json::from_slice(bytes.get(..len).unwrap_or_default())?, fd))
}

/// Whether a message, or the end, comes in time.
fn comes_within(link: &UnixSeq, time: Duration) -> io::Result<bool> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout =
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(link.0.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(n) => return Ok(n > 0),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The worker's side of one process.
struct Copier {
    link: UnixSeq,
    child: Child,
}

impl Copier {
    fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixSeq::pair()?;
        let child = link::spawn("copier", &[("link-fd", theirs.0.as_raw_fd())], &[])?;
        Ok(Self { link: ours, child })
    }

    fn copy(&self, process: BorrowedFd<'_>, fd: u32) -> io::Result<Said> {
        say(&self.link, &Ask::Copy(fd), Some(process))?;
        Ok(hear(&self.link)?.0)
    }

    /// Takes its status. To wait for it is for who may be lost: it ends when its copy is closed.
    fn end(self) {
        let Self { link, mut child } = self;
        drop(link);
        let _ = child.wait();
    }
}

/// Those of one worker that wait for work.
#[derive(Clone, Default)]
pub struct Copiers(Arc<Mutex<Vec<Copier>>>);

impl Copiers {
    /// Has one copy a descriptor of a process, which is named by its pidfd, since its number may be
    /// another's by now. It may take for ever: while the process executes a program the kernel
    /// waits. See [`crate::aside`].
    pub fn copy(&self, process: BorrowedFd<'_>, fd: u32) -> io::Result<HeldCopy> {
        let idle = lock(&self.0).pop();
        let used = idle.is_some();
        let mut copier = idle.map_or_else(Copier::start, Ok)?;
        let mut said = copier.copy(process, fd);
        if used && said.is_err() {
            // Somebody has ended it since.
            copier.end();
            copier = Copier::start()?;
            said = copier.copy(process, fd);
        }
        match said {
            Ok(Said::Copied) => Ok(HeldCopy { copiers: self.clone(), copier: Some(copier) }),
            Ok(Said::NotCopied(errno)) => {
                self.idle(copier);
                Err(io::Error::from_raw_os_error(errno))
            }
            said => {
                copier.end();
                Err(said.err().unwrap_or_else(ended))
            }
        }
    }

    fn idle(&self, copier: Copier) {
        let mut all = lock(&self.0);
        if all.len() < IDLE_MAX {
            all.push(copier);
            return;
        }
        drop(all);
        copier.end();
    }
}

/// A copy that another process has. Dropped, it is closed, and that may take for ever.
pub struct HeldCopy {
    copiers: Copiers,
    copier: Option<Copier>,
}

impl HeldCopy {
    /// In time or not at all.
    fn ask(&mut self, ask: &Ask) -> io::Result<Said> {
        let copier = self.copier.as_mut().ok_or_else(ended)?;
        say(&copier.link, ask, None)?;
        if !comes_within(&copier.link, TAG_MAX)? {
            let _ = copier.child.kill();
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        Ok(hear(&copier.link)?.0)
    }

    /// Has it tagged.
    pub fn tag(&mut self, job: &Job) -> io::Result<Result<(), NotTagged>> {
        match self.ask(&Ask::Tag(job.clone()))? {
            Said::Tagged(done) => Ok(done),
            _ => Err(ended()),
        }
    }

    /// Has it put among those that are chosen by their clients.
    pub fn admit(&mut self, admission: Admission) -> io::Result<Result<Socket, NotTagged>> {
        match self.ask(&Ask::Admit(admission))? {
            Said::Admitted(done) => Ok(done),
            _ => Err(ended()),
        }
    }
}

impl Drop for HeldCopy {
    fn drop(&mut self) {
        let Some(copier) = self.copier.take() else { return };
        // One that has tagged hears this before the next copy, and it means nothing then.
        let closed = say(&copier.link, &Ask::Leave, None).and_then(|()| {
            loop {
                if matches!(hear(&copier.link)?.0, Said::Free) {
                    return Ok(());
                }
            }
        });
        match closed {
            Ok(()) => self.copiers.idle(copier),
            Err(_) => copier.end(),
        }
    }
}

/// As in QLinux's real-time class: what the kernel reads ahead would have a deadline too. The
/// kernel keeps this with the open file, so a copy of the descriptor does; other than a file it
/// refuses.
fn read_nothing_ahead(file: BorrowedFd<'_>) {
    // SAFETY: numbers only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

fn serve(link: &UnixSeq) -> io::Result<()> {
    loop {
        let (Ask::Copy(fd), Some(process)) = hear(link)? else { continue };
        let copied = process::copy_descriptor(process.as_fd(), fd);
        drop(process);
        let copy = match copied {
            Ok(copy) => copy,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                say(link, &Said::NotCopied(errno), None)?;
                continue;
            }
        };
        say(link, &Said::Copied, None)?;
        match hear(link)?.0 {
            Ask::Tag(job) => {
                let done = job.tag.set(copy.as_fd()).map_err(NotTagged::from);
                if done.is_ok() && job.read_nothing_ahead {
                    read_nothing_ahead(copy.as_fd());
                }
                say(link, &Said::Tagged(done), None)?;
            }
            Ask::Admit(admission) => {
                let done = admission.admit(copy.as_fd()).map_err(NotTagged::from);
                say(link, &Said::Admitted(done), None)?;
            }
            Ask::Copy(_) | Ask::Leave => {}
        }
        drop(copy);
        say(link, &Said::Free, None)?;
    }
}

/// The process. It holds nothing of who started it: neither the directory nor the log.
pub fn run(link: &UnixSeq) -> ExitCode {
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let alone = nothing.and_then(|nothing| {
        nix::unistd::dup2_stdout(&nothing)?;
        nix::unistd::dup2_stderr(&nothing)?;
        nix::unistd::chdir("/")?;
        Ok(())
    });
    // It ends when its link does.
    match alone.and_then(|()| serve(link)) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
