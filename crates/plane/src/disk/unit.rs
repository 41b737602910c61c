// SPDX-License-Identifier: MIT OR Apache-2.0
//! A unit of systemd's for a block server: a scope, because the server is our child and stays it.
//! What it serves may be mounted longer than reservd lives, and longer than the machine's services:
//! so no other unit ends it, at shutdown neither (what is mounted is unmounted first, by systemd;
//! nothing of ours is needed after that). Who ends the scope by its name finds that the server does
//! not obey (`reserv_blockd::keeper`).

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long systemd may take; it may be busy, and the machine slow.
const ENTER_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// What the scope is. `DefaultDependencies`: what is stopped at shutdown has them. In system.slice,
/// because a slice of our own would be stopped then, and all that is in it.
const PROPERTIES: &[&str] = &[
    "DefaultDependencies=no",
    "SendSIGKILL=no",
    "MemoryMin=64M",
    "CPUWeight=10000",
    "IOWeight=10000",
];

/// Scopes of this process.
static COUNT: AtomicU32 = AtomicU32::new(0);

fn find(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
}

/// What starts `program` in a scope; `None`: systemd is not the service manager here.
pub(super) fn command(program: &Path, target: &str) -> Option<Command> {
    // As sd_booted(3) says.
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut command = Command::new(find("systemd-run")?);
    command.args(["--scope", "--quiet", "--collect", "--slice=system.slice"]);
    command.arg(format!("--unit=reserv-disk-{}-{count}.scope", std::process::id()));
    command.arg(format!("--description=Reserv's block server of {target}"));
    for property in PROPERTIES {
        command.arg(format!("--property={property}"));
    }
    command.arg("--").arg(program);
    Some(command)
}

/// Until systemd-run, which is `child`, has become `program`.
pub(super) fn entered(child: &mut Child, program: &Path) -> io::Result<()> {
    let program = program.canonicalize()?;
    let exe = format!("/proc/{}/exe", child.id());
    let end = Instant::now() + ENTER_MAX;
    loop {
        if std::fs::read_link(&exe).is_ok_and(|now| now == program) {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("systemd-run: {status}")));
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("systemd-run: not done within {ENTER_MAX:?}"),
            ));
        }
        std::thread::sleep(LOOK);
    }
}
