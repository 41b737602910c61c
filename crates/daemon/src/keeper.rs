// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper: a tiny process that holds `/dev/fuse` open and starts the worker again when it dies.
//!
//! It knows nothing about trees and touches no file of the name space, so that there is little that
//! can go wrong in it. While it lives, every open descriptor of `/reserv` survives the worker. When
//! *it* is killed, the worker, which holds the same descriptor, starts a new keeper. When both are
//! killed the descriptors are lost, the data plane is not.
//!
//! ```text
//!  start: lock → remove a dead mount → open /dev/fuse → worker
//!  worker dies:  before it was ever ready, by its own decision → give up (it has rolled back and said why)
//!                by a signal, or later                         → start it again, at once, then less and less often
//!                because its session ended                     → remove what is left of the mount, open /dev/fuse, start it again
//!  SIGTERM, SIGINT: tell the worker to stop; it says Done and ends; end
//!  worker says Stopping and dies before Done: start a worker that only finishes the stop
//! ```

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::SockType;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use reserv_facts::time::{STOP_WORKER_MAX, WORKER_PAUSE_MAX};
use reserv_plane::private;

use crate::fuse::session;
use crate::link::{self, Heard, Held, UnixSeq, Word};
use crate::log;
use crate::process::pidfd_open;
use crate::settings::Settings;
use crate::unanswered;

/// A worker that lived this long is followed by another at once. One that dies sooner, again and
/// again (on a request, say, that the kernel then gives to the next), is followed more and more
/// slowly.
const STABLE: Duration = Duration::from_millis(200);
/// How long a first start tries to get a process.
const FIRST_MAX: Duration = Duration::from_secs(10);
/// How often a worker that never became ready is started again after it was killed.
const START_TRIES: u32 = 3;
/// How long a start waits for an earlier daemon's end, before it asks whether that one lives …
const LOCK_MIN: Duration = Duration::from_secs(1);
/// … and where it does not answer.
const LOCK_MAX: Duration = Duration::from_secs(10);

/// The worker as the keeper sees it: started by it, or the one that started the keeper.
struct Worker {
    pidfd: OwnedFd,
    link: UnixSeq,
    since: Instant,
}

/// What an earlier life of the keeper left.
pub struct Inherited {
    /// Descriptors.
    pub held: Held,
    /// The link to the living worker.
    pub link: UnixSeq,
    /// The living worker.
    pub worker: OwnedFd,
}

struct Keeper {
    held: Held,
    signals: SignalFd,
    /// Whether a worker has ever served.
    ready: bool,
    stopping: Option<Instant>,
    done: bool,
    /// Deaths in a row, for the pause.
    deaths: u32,
}

/// A descriptor of this process itself, to be handed to a new keeper.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    pidfd_open(std::process::id())
}

fn kill(pidfd: &OwnedFd, signal: i32) {
    // SAFETY: pidfd_send_signal takes all by value except the info pointer, which may be null.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        );
    }
}

/// Kills a child of ours and takes its status.
pub fn end(pidfd: &OwnedFd) {
    kill(pidfd, libc::SIGKILL);
    reap(pidfd);
}

/// Whether a daemon lives there: one that is ending has its control socket still, but no answer.
/// One that is stopped may have as many who wait as it can have, and a connection is not waited for
/// then.
fn answers(settings: &Settings) -> bool {
    let ask = || -> io::Result<usize> {
        let fd = private::connect_within(&settings.socket(), SockType::Stream, LOCK_MIN)?;
        let mut stream = UnixStream::from(fd);
        stream.write_all(b"{\"request\":\"version\"}\n")?;
        stream.read(&mut [0])
    };
    ask().is_ok_and(|read| read > 0)
}

fn take_lock(settings: &Settings) -> io::Result<File> {
    let mut place = DirBuilder::new();
    place.recursive(true).mode(0o755).create(&settings.run)?;
    let path = settings.lock();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path)?;
    // Who may open it may lock it, and nothing would ever start.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let start = Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            // The lock belongs to the open file and so to whoever inherits it: no guard may release
            // it.
            Ok(guard) => {
                let file = guard.try_clone()?;
                std::mem::forget(guard);
                return Ok(file);
            }
            // A daemon that was just killed may still be ending, on a busy machine for long.
            Err((again, nix::errno::Errno::EWOULDBLOCK))
                if start.elapsed() < LOCK_MIN
                    || start.elapsed() < LOCK_MAX && !answers(settings) =>
            {
                file = again;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                let why = format!("reservd is running already ({} is locked)", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
            }
            Err((_, errno)) => return Err(errno.into()),
        }
    }
}

/// A mount whose session has ended: a dead reservd's, or one that somebody aborted (`umount -f`)
/// and could not take away. A worker would take it for a living one.
fn remove_dead(settings: &Settings) -> io::Result<()> {
    // Reached without a look-up of the mount point itself, which may be a dead mount.
    if session::mounted(&settings.mount)?.is_some() {
        tracing::info!(mount = %settings.mount.display(), "removing a dead mount");
        session::unmount_dead(&settings.mount)?;
    }
    Ok(())
}

fn prepare(settings: &Settings) -> io::Result<Held> {
    let lock = take_lock(settings)?;
    remove_dead(settings)?;
    unanswered::forget(&settings.unanswered());
    std::fs::create_dir_all(&settings.mount)?;
    let fuse =
        session::open_device().map_err(|e| io::Error::new(e.kind(), format!("/dev/fuse: {e}")))?;
    Ok(Held { fuse, lock })
}

/// Runs the keeper until the daemon is stopped. Status 0: stopped, everything given back.
pub fn run(settings: &Settings, inherited: Option<Inherited>) -> ExitCode {
    match try_run(settings, inherited) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            log::say(&error);
            link::notify(&format!("STATUS={error}"));
            ExitCode::FAILURE
        }
    }
}

fn try_run(settings: &Settings, inherited: Option<Inherited>) -> io::Result<bool> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        mask.add(signal);
    }
    // The worker inherits the mask: only the keeper is stopped by signals (and by a key on its
    // terminal).
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC)?;
    let (held, mut worker, ready) = match inherited {
        Some(old) => {
            link::notify(&format!("MAINPID={}", std::process::id()));
            (
                old.held,
                Some(Worker { pidfd: old.worker, link: old.link, since: Instant::now() }),
                true,
            )
        }
        None => (prepare(settings)?, None, false),
    };
    let mut keeper = Keeper { held, signals, ready, stopping: None, done: false, deaths: 0 };
    loop {
        let current = match worker.take() {
            Some(worker) => worker,
            None => match keeper.start_at_last() {
                Ok(worker) => worker,
                Err(_) if keeper.stopping.is_some() => return Ok(false),
                Err(error) => return Err(error),
            },
        };
        keeper.watch(&current)?;
        let ended = reap(&current.pidfd);
        let code = match ended {
            Ended::By(code) => Some(code),
            Ended::Fault => {
                unanswered::died(&settings.unanswered());
                None
            }
            Ended::Killed => None,
        };
        if keeper.done {
            unanswered::forget(&settings.unanswered());
            return Ok(true);
        }
        if code == Some(link::EXIT_REOPEN) {
            tracing::warn!("/reserv was unmounted; mounting it again");
            keeper.reopen(settings);
        }
        if let (false, Some(code)) = (keeper.ready, code) {
            tracing::debug!(code, "the worker could not start");
            unanswered::forget(&settings.unanswered());
            return Ok(false);
        }
        if keeper.pause(&current) {
            return Ok(false);
        }
    }
}

/// How a worker ended.
enum Ended {
    /// By itself, with this status.
    By(i32),
    /// By a signal for what it did itself: a panic, a wrong address.
    Fault,
    /// By somebody, or it is not our child.
    Killed,
}

/// Takes the dead worker's status.
fn reap(pidfd: &OwnedFd) -> Ended {
    match waitid(Id::PIDFd(pidfd.as_fd()), WaitPidFlag::WEXITED) {
        Ok(WaitStatus::Exited(_, code)) => Ended::By(code),
        Ok(WaitStatus::Signaled(_, signal, _)) if signal != Signal::SIGKILL => Ended::Fault,
        _ => Ended::Killed,
    }
}

impl Keeper {
    fn start(&self) -> io::Result<Worker> {
        let (ours, theirs) = UnixSeq::pair()?;
        let flags: &[&str] = if self.stopping.is_some() { &["--finish-stop"] } else { &[] };
        let (child, pidfd) = link::spawn_held("worker", &self.held.fds(&theirs), flags)?;
        tracing::info!(pid = child.id(), "worker started");
        Ok(Worker { pidfd, link: ours, since: Instant::now() })
    }

    /// The same, however long it takes: without a process, a descriptor or memory to be had nobody
    /// would start what has served once. A first start is tried for a while. An error: it is to be
    /// stopped, or was not to be started.
    fn start_at_last(&mut self) -> io::Result<Worker> {
        let begin = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let error = match self.start() {
                Ok(worker) => return Ok(worker),
                Err(error) => error,
            };
            let stopped = self.stopping.is_some_and(|since| since.elapsed() > STOP_WORKER_MAX);
            if stopped || (!self.ready && begin.elapsed() > FIRST_MAX) {
                return Err(error);
            }
            let why = format!(
                "no worker can be started: {error}; trying again in {} ms",
                pause.as_millis()
            );
            tracing::error!("{why}");
            link::notify(&format!("STATUS={why}"));
            self.rest(pause);
            pause = (pause * 2).min(WORKER_PAUSE_MAX);
        }
    }

    /// A new session, however long it takes; until then there is no /reserv.
    fn reopen(&mut self, settings: &Settings) {
        let mut pause = Duration::from_millis(20);
        while self.stopping.is_none() {
            match remove_dead(settings).and_then(|()| session::open_device()) {
                Ok(fuse) => {
                    unanswered::forget(&settings.unanswered());
                    self.held.fuse = fuse;
                    return;
                }
                Err(error) => tracing::error!(%error, "/reserv cannot be mounted again yet"),
            }
            self.rest(pause);
            pause = (pause * 2).min(WORKER_PAUSE_MAX);
        }
    }

    /// A pause that a request to stop ends.
    fn rest(&mut self, pause: Duration) {
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if nix::poll::poll(&mut fds, timeout).is_ok_and(|n| n > 0)
            && let Ok(Some(info)) = self.signals.read_signal()
            && info.ssi_signo != libc::SIGHUP.cast_unsigned()
        {
            link::notify("STOPPING=1");
            self.stopping.get_or_insert_with(Instant::now);
        }
    }

    /// Until the worker is dead.
    fn watch(&mut self, worker: &Worker) -> io::Result<()> {
        let mut linked = true;
        loop {
            let timeout = match self.stopping {
                None => PollTimeout::NONE,
                Some(since) => {
                    let left = (since + STOP_WORKER_MAX).saturating_duration_since(Instant::now());
                    PollTimeout::try_from(left + Duration::from_millis(1))
                        .unwrap_or(PollTimeout::MAX)
                }
            };
            let flag = PollFlags::POLLIN;
            let mut fds = vec![
                PollFd::new(self.signals.as_fd(), flag),
                PollFd::new(worker.pidfd.as_fd(), flag),
            ];
            if linked {
                fds.push(PollFd::new(worker.link.0.as_fd(), flag));
            }
            match nix::poll::poll(&mut fds, timeout) {
                Ok(0) => kill(&worker.pidfd, libc::SIGKILL),
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
                Ok(_) => {}
            }
            let [signal, dead, word] =
                [0, 1, 2].map(|i| fds.get(i).and_then(PollFd::any).unwrap_or(false));
            if signal {
                self.signalled(worker);
            }
            // Words first: the last one may have been said just before death.
            if word {
                match Word::receive(&worker.link) {
                    Some(heard) => {
                        self.hear(heard);
                        continue;
                    }
                    None => linked = false,
                }
            }
            if dead {
                return Ok(());
            }
        }
    }

    fn signalled(&mut self, worker: &Worker) {
        if let Ok(Some(info)) = self.signals.read_signal() {
            if info.ssi_signo == libc::SIGHUP.cast_unsigned() {
                return;
            }
            tracing::info!(signal = info.ssi_signo, "stopping");
            link::notify("STOPPING=1");
            self.stopping.get_or_insert_with(Instant::now);
            Word::Stop.send(&worker.link);
        }
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Word(Word::Ready) => {
                self.ready = true;
                link::notify("READY=1");
            }
            Heard::Word(Word::Stopping) => {
                self.stopping.get_or_insert_with(Instant::now);
            }
            Heard::Word(Word::Done) => self.done = true,
            Heard::Word(Word::Stop) => {}
            // The log may have had no room for it.
            Heard::Why(why) => link::notify(&format!("STATUS={why}")),
        }
    }

    /// After a death that was not agreed. True when it makes no sense to go on.
    fn pause(&mut self, worker: &Worker) -> bool {
        if worker.since.elapsed() >= STABLE {
            self.deaths = 0;
        }
        self.deaths += 1;
        if let Some(since) = &mut self.stopping {
            // Each worker that finishes the stop has the full time.
            *since = Instant::now();
        }
        let hopeless = !self.ready || self.stopping.is_some();
        if hopeless && self.deaths > START_TRIES {
            tracing::error!(tries = START_TRIES, "the worker is killed again and again: giving up");
            return true;
        }
        if self.deaths > 1 {
            let pause = Duration::from_millis(10) * 2_u32.saturating_pow(self.deaths.min(10));
            std::thread::sleep(pause.min(WORKER_PAUSE_MAX));
        }
        tracing::warn!(deaths = self.deaths, "the worker died; starting another");
        false
    }
}
