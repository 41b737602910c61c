// SPDX-License-Identifier: MIT OR Apache-2.0
//! `reservd`: serves `/reserv`. Started by the service manager or by `reserv up`; it stays in the
//! foreground.

use std::os::fd::RawFd;
use std::process::ExitCode;

use clap::Parser;
use reserv_daemon::link::{self, Held, UnixSeq, inherit};
use reserv_daemon::settings::Settings;
use reserv_daemon::{copier, forgetter, keeper, log, memory, priority, worker};
use reserv_plane::private;

/// Serves /reserv: keeps the tree of reservations and the kernel's scheduler in agreement.
///
/// Stays in the foreground; SIGTERM stops it and gives the machine back. Killed, the reservations
/// hold, and the next start adopts them.
///
/// Environment: RESERV_MOUNT (/reserv), RESERV_RUN (/run/reserv), RESERV_CONFIG
/// (/etc/reserv/reserv.toml), RESERV_DRIVER (auto, full, stock), RESERV_BPFFS (/sys/fs/bpf/reserv),
/// RESERV_CGROUP (reserv), RESERV_LOG (info).
#[derive(Parser)]
#[command(name = "reservd", version)]
struct Arguments {
    /// Stay in the foreground (it always does; accepted for service files)
    #[arg(long)]
    foreground: bool,
    /// `reserv up` listens at its other end
    #[arg(long, hide = true, conflicts_with = "role")]
    ready_fd: Option<RawFd>,
    #[command(flatten)]
    inherited: Descriptors,
}

/// What a process of reservd is for; without one it is the keeper that somebody starts.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Worker,
    Keeper,
    Forgetter,
    Copier,
}

/// How keeper and worker start each other.
#[derive(clap::Args)]
struct Descriptors {
    #[arg(long, hide = true, requires = "link_fd")]
    role: Option<Role>,
    #[arg(long, hide = true, requires = "role")]
    finish_stop: bool,
    #[arg(long, hide = true)]
    fuse_fd: Option<RawFd>,
    #[arg(long, hide = true)]
    lock_fd: Option<RawFd>,
    #[arg(long, hide = true)]
    link_fd: Option<RawFd>,
    #[arg(long, hide = true)]
    worker_fd: Option<RawFd>,
}

impl Descriptors {
    fn held(&self) -> std::io::Result<Option<(Held, UnixSeq)>> {
        let (Some(fuse), Some(lock), Some(link)) = (self.fuse_fd, self.lock_fd, self.link_fd)
        else {
            return Ok(None);
        };
        let held = Held { fuse: inherit(fuse)?.into(), lock: inherit(lock)?.into() };
        Ok(Some((held, UnixSeq(inherit(link)?))))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    memory::few_pools();
    // Started through /proc/self/exe, keeper and worker would be called "exe".
    let _ = nix::sys::prctl::set_name(c"reservd");
    // Before anything else is opened.
    if let (Some(Role::Copier), Some(link)) =
        (arguments.inherited.role, arguments.inherited.link_fd)
    {
        return inherit(link).map_or(ExitCode::FAILURE, |link| copier::run(&UnixSeq(link)));
    }
    log::begin();
    priority::prefer();
    private::known_umask();
    if let Some(starter) = arguments.ready_fd.and_then(|fd| inherit(fd).ok()) {
        link::tell(starter);
    }
    match start(&arguments.inherited) {
        Ok(code) => code,
        Err(error) => {
            log::say(error);
            ExitCode::FAILURE
        }
    }
}

fn start(inherited: &Descriptors) -> std::io::Result<ExitCode> {
    // Where the mount is found in the mount table.
    let mut settings = Settings::from_env();
    settings.mount = reserv_daemon::fuse::session::canonical(&settings.mount)?;
    if let (Some(Role::Forgetter), Some(fuse), Some(link)) =
        (inherited.role, inherited.fuse_fd, inherited.link_fd)
    {
        return Ok(forgetter::run(&inherit(fuse)?.into(), &UnixSeq(inherit(link)?), settings));
    }
    match (inherited.role, inherited.held()?) {
        (Some(Role::Worker), Some((held, link))) => {
            let inherited = worker::Inherited { held, link, finish_stop: inherited.finish_stop };
            Ok(worker::run(&settings, inherited))
        }
        (Some(Role::Keeper), Some((held, link))) => {
            let worker = inherit(inherited.worker_fd.unwrap_or(-1))?;
            Ok(keeper::run(&settings, Some(keeper::Inherited { held, link, worker })))
        }
        (None, None) => Ok(keeper::run(&settings, None)),
        _ => Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "--role and descriptors belong together; reservd passes them itself",
        )),
    }
}
