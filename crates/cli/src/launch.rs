// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of reservd as a process: starting it, waiting until it serves, ending it.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reserv_model::{Config, Driver};

use reserv_facts::place::variable;

use crate::args::Up;
use crate::control::run_dir;
use crate::error::Error;
use crate::settings;
use crate::signals::Held;

/// Starting includes verification of the programs, which takes long under emulation.
const START_MAX: Duration = Duration::from_secs(120);
/// How often a wait looks whether it is still worth waiting.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Where reservd is: beside this program, in the sbin beside its bin, or in PATH.
fn find_daemon() -> Result<PathBuf, Error> {
    let exe = std::env::current_exe().unwrap_or_default();
    let beside = exe.parent().map(|bin| [bin.join("reservd"), bin.join("../sbin/reservd")]);
    let sbin = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
    beside
        .into_iter()
        .flatten()
        .chain(settings::folders().into_iter().chain(sbin).map(|dir| dir.join("reservd")))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            Error::refused("reservd was not found, neither beside 'reserv' nor in PATH")
                .hint("'make build' leaves both in target/release; 'make install' installs them")
        })
}

/// The daemon, which serves /reserv when this returns.
pub(crate) fn start(args: &Up, config: Option<&Config>, signals: &Held) -> Result<Child, Error> {
    let daemon = find_daemon()?;
    let run = run_dir();
    let mut place = fs::DirBuilder::new();
    place.recursive(true).mode(0o755).create(&run).map_err(|e| Error::io(run.display(), &e))?;
    let log_path = run.join("reservd.log");
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(|e| Error::io(log_path.display(), &e))?;
    let from = log.metadata().map_or(0, |m| m.len());

    // The service manager's words (sd_notify): READY=1 when /reserv is served. Over a pair of
    // sockets, of which nobody else has an end: a name could be had before us.
    let failed = |e: io::Error| Error::io("cannot start reservd", &e);
    let (ready, theirs) = UnixDatagram::pair().map_err(failed)?;
    ready.set_read_timeout(Some(LOOK)).map_err(failed)?;

    let mut command = Command::new(&daemon);
    let number = theirs.as_raw_fd();
    command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET").arg(format!("--ready-fd={number}"));
    // SAFETY: fcntl is async-signal-safe and the closure allocates nothing.
    unsafe {
        command.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let driver = match crate::up::driver(args, config) {
        Driver::Full => Some("full"),
        Driver::Stock => Some("stock"),
        Driver::Auto => None,
    };
    if let Some(driver) = driver {
        command.env(variable::DRIVER, driver);
    }
    if args.ignore_cgroup_weights {
        command.env(variable::IGNORE_CGROUP_WEIGHTS, "1");
    }
    if !args.foreground {
        let log_too = log.try_clone().map_err(failed)?;
        command.stdout(log).stderr(log_too).current_dir("/");
        // SAFETY: setsid is async-signal-safe and the closure allocates nothing.
        unsafe {
            command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from));
        }
    }
    let mut child = command.spawn().map_err(failed)?;
    drop(theirs);
    let mut told = String::new();
    match wait_ready(&mut child, &ready, signals, &mut told) {
        Ok(()) => Ok(child),
        Err(why) => {
            stop_child(&mut child);
            // The log may have had no room for it.
            let said = if args.foreground { String::new() } else { said(&log_path, from) };
            let said = if said.is_empty() { told } else { said };
            let error =
                Error::refused(if said.is_empty() { why } else { format!("{why}: {said}") });
            let hint = "nothing was changed; 'reserv doctor' looks at this machine";
            Err(error.hint(if args.foreground {
                hint.to_owned()
            } else {
                format!("{hint}; the log is {}", log_path.display())
            }))
        }
    }
}

/// Wait for READY=1, for the child's death, for a key, or for too long.
fn wait_ready(
    child: &mut Child,
    ready: &UnixDatagram,
    signals: &Held,
    told: &mut String,
) -> Result<(), String> {
    let start = Instant::now();
    let mut progress = Progress::new("starting reservd");
    let mut message = [0; 4096];
    loop {
        match ready.recv(&mut message) {
            Ok(n) if message[..n].split(|b| *b == b'\n').any(|line| line == b"READY=1") => {
                return Ok(());
            }
            Ok(n) => {
                let said = String::from_utf8_lossy(&message[..n]);
                if let Some(what) = said.lines().find_map(|line| line.strip_prefix("STATUS=")) {
                    what.clone_into(&mut progress.what);
                    what.clone_into(told);
                    continue;
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(format!("cannot wait for reservd: {e}")),
        }
        match child.try_wait() {
            Ok(Some(status)) => {
                return Err(format!("reservd did not start ({})", describe(status)));
            }
            Ok(None) => {}
            Err(e) => return Err(format!("cannot wait for reservd: {e}")),
        }
        if signals.take() {
            return Err("interrupted while reservd was starting; it was stopped again".to_owned());
        }
        if start.elapsed() > START_MAX {
            return Err(format!(
                "reservd was not ready after {} s; it was stopped again",
                START_MAX.as_secs()
            ));
        }
        progress.tick(start.elapsed());
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        _ => "ended".to_owned(),
    }
}

fn stop_child(child: &mut Child) {
    let Ok(pid) = i32::try_from(child.id()) else { return };
    let start = Instant::now();
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    while start.elapsed() < reserv_facts::time::STOP_MAX {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(LOOK),
            _ => return,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// What the daemon said before it gave up: its last words in the log since `from`, or else the
/// log's last lines.
fn said(path: &Path, from: u64) -> String {
    let mut text = String::new();
    if let Ok(mut log) = fs::File::open(path)
        // It becomes shorter when it is too long.
        && let len = log.metadata().map_or(0, |found| found.len())
        && log.seek(SeekFrom::Start(if len < from { 0 } else { from })).is_ok()
    {
        let _ = log.read_to_string(&mut text);
    }
    last_words(&text)
}

fn last_words(log: &str) -> String {
    if let Some(words) = log.lines().rev().find_map(|line| line.strip_prefix("reservd: ")) {
        return words.to_owned();
    }
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("\n  ")
}

/// Stay until the daemon ends; a request to end goes on to it.
pub(crate) fn stay(mut child: Child) -> Result<(), Error> {
    let signals = Held::begin();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                return Err(Error::refused(format!("reservd ended ({})", describe(status))));
            }
            Ok(None) => {}
            Err(e) => return Err(Error::io("reservd", &e)),
        }
        if signals.take() {
            stop_child(&mut child);
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A line on standard error for what takes longer than a second.
pub(crate) struct Progress {
    what: String,
    terminal: bool,
    last: u64,
}

impl Progress {
    pub(crate) fn new(what: &str) -> Self {
        Self { what: what.to_owned(), terminal: io::stderr().is_terminal(), last: 0 }
    }

    pub(crate) fn tick(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs();
        // Without a terminal less often, and a line each.
        let step = if self.terminal { 1 } else { 5 };
        if seconds >= self.last + step {
            self.last = seconds;
            let start = if self.terminal { "\r\x1b[K" } else { "" };
            let end = if self.terminal { "" } else { "\n" };
            let _ = write!(io::stderr(), "{start}reserv: {} … {seconds} s{end}", self.what);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.last > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_last_words_are_what_counts() {
        assert_eq!(
            last_words("x INFO worker started\nreservd: no driver\nx INFO end\n"),
            "no driver"
        );
        assert_eq!(last_words("a\n\nb\nc\nd\n"), "b\n  c\n  d");
        assert_eq!(last_words(""), "");
    }
}
