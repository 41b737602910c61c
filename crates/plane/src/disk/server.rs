// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block server as this side sees it: starting one, finding one, and talking to it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, SockType, recv, send};
use reserv_blockd::private;
use reserv_blockd::wire::{self, Answer, Ask, Copies, Hello, what};
use reserv_facts::place::BLOCK_SOCKET;
use reserv_model::{DiskModel, Front};

use super::unit;
use crate::PlaneError;
use crate::libbpf::os;
use crate::settings;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// What the server reads later than so many seconds after it was asked it does not do, so that who
/// was given no answer may say that nothing has happened.
const ASKED_MAX: u64 = 3;
/// How long it is waited for a sign of a server that gave no answer before.
const SIGN_MAX: Duration = Duration::from_millis(200);
/// How long a start may take; under emulation a module is loaded in it.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a killed worker's successor may take to answer.
const SUCCESSOR_MAX: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(10);

/// Files of a server: `RUN/disk-N.…`.
#[derive(Clone, Debug)]
pub(super) struct Files {
    prefix: PathBuf,
}

impl Files {
    pub(super) fn new(run: &Path, number: u8) -> Self {
        Self { prefix: run.join(format!("disk-{number}")) }
    }

    fn with(&self, end: &str) -> PathBuf {
        let mut name = self.prefix.clone().into_os_string();
        name.push(end);
        name.into()
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.with(BLOCK_SOCKET)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.with(".log")
    }

    /// The last words of the server.
    fn last_words(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let line =
            text.lines().rev().find(|line| !line.contains("PR_SET_IO_FLUSHER")).unwrap_or_default();
        line.split_once("]: ").map_or(line, |(_, words)| words).to_owned()
    }
}

/// A server that runs.
#[derive(Debug)]
pub(super) struct Server {
    files: Files,
    talk: Mutex<Option<OwnedFd>>,
    /// It gave no answer the last time: nobody waits for it again before it gives a sign.
    late: AtomicBool,
    /// Its keeper, where we started it.
    child: Option<Child>,
}

/// An answer, and what followed it.
pub(super) type Said = (Answer, Vec<u8>);

/// `reserv-blockd`: beside ourselves, or where `RESERV_BLOCKD` says.
fn program() -> Result<PathBuf, PlaneError> {
    if let Some(path) = settings::block_server() {
        return Ok(path);
    }
    let beside =
        std::env::current_exe().map_err(os("our own place"))?.with_file_name("reserv-blockd");
    if beside.exists() {
        return Ok(beside);
    }
    Err(PlaneError::Unsupported(format!(
        "there is no block server: {} is missing",
        beside.display()
    )))
}

fn connected(path: &Path, answer: Duration) -> io::Result<OwnedFd> {
    let fd = private::connect_within(path, SockType::SeqPacket, answer)?;
    if !private::is_ours(&fd) {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    Ok(fd)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether somebody gave no answer in time.
pub(super) fn is_late(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// What is said of that.
pub(super) fn late() -> PlaneError {
    let words = format!("no answer of the block server within {} s", ANSWER_MAX.as_secs());
    os(words)(io::Error::from_raw_os_error(libc::ETIMEDOUT))
}

fn exchange(fd: &OwnedFd, ask: Ask, body: &[u8]) -> io::Result<Said> {
    // SAFETY: the structure has no padding.
    let mut packet = unsafe { wire::bytes_of(&ask) }.to_vec();
    packet.extend(body);
    send(fd.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL)?;
    let mut got = vec![0; 64 * 1024];
    let len = recv(fd.as_raw_fd(), &mut got, MsgFlags::empty())?;
    got.truncate(len);
    // SAFETY: plain numbers.
    let answer = unsafe { wire::of_bytes::<Answer>(&got) };
    let answer = answer.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    if answer.answer == -libc::ETIMEDOUT {
        // It goes on again, and has read this too late to do it.
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok((answer, got.split_off(size_of::<Answer>())))
}

/// A keeper, which outlives us, and whoever stops us by a key of the terminal.
fn spawn(
    mut command: Command,
    files: &Files,
    target: &str,
    options: &[&str],
) -> Result<Child, PlaneError> {
    let log = OpenOptions::new().create(true).append(true).open(files.log());
    let log = log.map_err(os(format!("write {}", files.log().display())))?;
    command.args(options).arg(target).arg(&files.prefix).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into));
    }
    command.spawn().map_err(os("start reserv-blockd"))
}

/// Where systemd is the service manager, the keeper gets a unit of its own, so that the end of
/// reservd's does not end it; elsewhere, or where that is refused, it stays with us.
fn launch(files: &Files, target: &str, options: &[&str]) -> Result<Child, PlaneError> {
    let program = program()?;
    if let Some(command) = unit::command(&program, target) {
        let begun = fs::metadata(files.log()).map_or(0, |log| log.len());
        let mut child = spawn(command, files, target, options)?;
        match unit::entered(&mut child, &program) {
            Ok(()) => return Ok(child),
            Err(error) => {
                let said = fs::read_to_string(files.log()).unwrap_or_default();
                let said =
                    said.get(usize::try_from(begun).unwrap_or(0)..).unwrap_or_default().trim();
                tracing::warn!(%error, said, "the block server has no unit of its own: it ends with reservd's");
            }
        }
    }
    spawn(Command::new(program), files, target, options)
}

/// How the server is told of it.
fn told(model: Option<DiskModel>) -> Vec<&'static str> {
    model.map_or_else(Vec::new, |model| vec!["--model", model.word()])
}

impl Server {
    fn with(files: Files, talk: Option<OwnedFd>, child: Option<Child>) -> Self {
        Self { files, talk: Mutex::new(talk), late: AtomicBool::new(false), child }
    }

    /// One that runs already, or was killed with its keeper and left a device that waits for
    /// another; `None`: neither.
    pub(super) fn find(
        files: Files,
        target: &str,
        model: Option<DiskModel>,
    ) -> Result<Option<Self>, PlaneError> {
        let found = connected(&files.socket(), ANSWER_MAX);
        if found.as_ref().is_err_and(is_late) {
            return Err(late());
        }
        let mut server = Self::with(files, found.ok(), None);
        if lock(&server.talk).is_some() {
            return Ok(Some(server));
        }
        if !server.may_recover() {
            return Ok(None);
        }
        server.recover(target, model)?;
        Ok(Some(server))
    }

    /// Whether a server that was killed with its keeper left a device that waits for another.
    pub(super) fn may_recover(&self) -> bool {
        !self.is_kept() && reserv_blockd::keeper::may_recover(&self.files.prefix)
    }

    /// The server that it waits for.
    pub(super) fn recover(
        &mut self,
        target: &str,
        model: Option<DiskModel>,
    ) -> Result<(), PlaneError> {
        tracing::warn!(target, "the block server and its keeper were killed; starting others");
        self.child =
            Some(launch(&self.files, target, &[&["--recover"][..], &told(model)].concat())?);
        self.await_device(target).map(drop)
    }

    /// Starts one for a file or device, and waits until its device is there.
    pub(super) fn start(
        files: Files,
        target: &str,
        front: Front,
        model: Option<DiskModel>,
    ) -> Result<(Self, Hello), PlaneError> {
        let _ = fs::remove_file(files.log());
        let child =
            launch(&files, target, &[&["--front", front.name()][..], &told(model)].concat())?;
        let mut server = Self::with(files, None, Some(child));
        let hello = server.await_device(target)?;
        Ok((server, hello))
    }

    fn await_device(&mut self, target: &str) -> Result<Hello, PlaneError> {
        let end = Instant::now() + START_MAX;
        loop {
            if self.has_ended() {
                return Err(PlaneError::Invalid(format!("{target}: {}", self.files.last_words())));
            }
            if let Ok(hello) = self.try_hello()
                && hello.dev != 0
            {
                return Ok(hello);
            }
            if Instant::now() > end {
                self.kill();
                return Err(PlaneError::Unsupported(format!(
                    "{target}: the block server did not begin within {START_MAX:?}: {}",
                    self.files.last_words()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether the keeper that we started is gone. It is buried on the way.
    pub(super) fn has_ended(&mut self) -> bool {
        match &mut self.child {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => false,
        }
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits for the end of a server that was told to stop.
    pub(super) fn wait(&mut self) {
        let end = Instant::now() + SUCCESSOR_MAX;
        while Instant::now() < end && self.files.socket().exists() {
            std::thread::sleep(LOOK);
        }
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
        let _ = fs::remove_file(self.files.log());
    }

    /// Once, whatever happens.
    fn try_ask(&self, ask: Ask, body: &[u8]) -> io::Result<Said> {
        let was_late = self.late.load(Ordering::SeqCst);
        if was_late && ask.what != what::HELLO {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut talk = lock(&self.talk);
        let said = self.ask_by(&mut talk, if was_late { SIGN_MAX } else { ANSWER_MAX }, ask, body);
        self.late.store(said.as_ref().is_err_and(is_late), Ordering::SeqCst);
        let bounds = match (&said, &*talk) {
            (Ok(_), Some(fd)) if was_late => private::bounded(fd, ANSWER_MAX),
            _ => Ok(()),
        };
        if said.is_err() || bounds.is_err() {
            *talk = None;
        }
        said
    }

    fn ask_by(
        &self,
        talk: &mut Option<OwnedFd>,
        answer: Duration,
        ask: Ask,
        body: &[u8],
    ) -> io::Result<Said> {
        if talk.is_none() {
            *talk = Some(connected(&self.files.socket(), answer)?);
        }
        let Some(fd) = talk.as_ref() else { return Err(io::ErrorKind::NotConnected.into()) };
        let until = reserv_blockd::serve::now() / 1_000_000_000 + ASKED_MAX;
        exchange(fd, Ask { until: u32::try_from(until).unwrap_or(0), ..ask }, body)
    }

    /// A question that may be asked twice: if the worker dies over it, its successor answers.
    pub(super) fn ask(&self, what: u32, a: u64, body: &[u8]) -> Result<Said, PlaneError> {
        let end = Instant::now() + SUCCESSOR_MAX;
        loop {
            match self.try_ask(Ask { what, a, ..Ask::default() }, body) {
                Ok(said) => return Ok(said),
                Err(error) if is_late(&error) => return Err(late()),
                Err(error) if Instant::now() > end => {
                    return Err(os("ask the block server")(error));
                }
                // Between two workers the keeper listens.
                Err(_) if !self.is_kept() => {
                    return Err(os("the block server is gone")(io::ErrorKind::NotConnected.into()));
                }
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Asked once: for who must know whether it was heard.
    pub(super) fn ask_once(&self, what: u32, a: u64, body: &[u8]) -> io::Result<Said> {
        self.try_ask(Ask { what, a, ..Ask::default() }, body)
    }

    fn try_hello(&self) -> io::Result<Hello> {
        let (_, body) = self.try_ask(Ask { what: what::HELLO, ..Ask::default() }, &[])?;
        // SAFETY: numbers and bytes.
        unsafe { wire::of_bytes(&body) }.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// How data move, and why all are copied (empty: they are not). `None`: a server that does not
    /// say.
    pub(super) fn copies(&self) -> Option<(Copies, String)> {
        let (answer, body) =
            self.try_ask(Ask { what: what::COPIES, ..Ask::default() }, &[]).ok()?;
        // SAFETY: plain numbers.
        let copies = unsafe { wire::of_bytes::<Copies>(&body) }.filter(|_| answer.answer == 0)?;
        Some((copies, String::from_utf8_lossy(&body[size_of::<Copies>()..]).into_owned()))
    }

    /// Who is there.
    pub(super) fn hello(&self) -> Result<Hello, PlaneError> {
        let (_, body) = self.ask(what::HELLO, 0, &[])?;
        // SAFETY: numbers and bytes.
        let hello: Option<Hello> = unsafe { wire::of_bytes(&body) };
        match hello {
            Some(hello) if hello.version == wire::VERSION => Ok(hello),
            Some(hello) => Err(PlaneError::Invalid(format!(
                "the block server speaks version {}, this daemon {}: take the disk down with the daemon that started it",
                hello.version,
                wire::VERSION
            ))),
            None => Err(PlaneError::Invalid("the block server gave no sensible answer".into())),
        }
    }

    /// Whether somebody answers, without waiting for a successor.
    pub(super) fn is_there(&self) -> io::Result<Hello> {
        self.try_hello()
            .or_else(|error| if is_late(&error) { Err(error) } else { self.try_hello() })
    }

    /// Whether somebody keeps the server: it may be between two workers.
    pub(super) fn is_kept(&self) -> bool {
        let talk = || connected(&self.files.socket(), SIGN_MAX);
        self.files.socket().exists() && talk().map_or_else(|error| is_late(&error), |_| true)
    }

    /// Removes what a server left that was killed with its keeper.
    pub(super) fn clean(&self) {
        if let Err(error) = reserv_blockd::keeper::clean(&self.files.prefix) {
            tracing::error!(%error, "what a dead block server left was not removed");
        }
        let _ = fs::remove_file(self.files.log());
    }
}
