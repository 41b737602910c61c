// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files by way of the control socket: root's, for nobody can keep it locked.
//!
//! A request that was not answered is sent again, to the next worker. A change has a number, by
//! which reservd knows whether it has happened (the daemon's `fs/by_path.rs`).

use std::cell::RefCell;
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use reserv_facts::{place, time};
use serde::de::DeserializeOwned;

use crate::answer::{Refused, Version};
use crate::connection::Connection;
use crate::request::{Ask, Command};

/// How often a reservd that does not answer is asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// Why there is no answer, or none that was wished.
#[derive(Debug)]
pub enum Failed {
    /// None came.
    Lost(io::Error),
    /// reservd said no.
    Refused(Refused),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refused) => Self::from_raw_os_error(refused.errno),
            // As of a mount whose daemon is dead. Where there is no socket, there would be no
            // mount.
            Failed::Lost(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Self::from_raw_os_error(libc::ENOTCONN)
            }
            Failed::Lost(error) => error,
        }
    }
}

/// See the head of this file.
#[derive(Debug)]
pub struct Asker {
    run: PathBuf,
    version: Version,
    connection: RefCell<Option<Connection>>,
}

impl Asker {
    /// Where a reservd answers in this run-time directory.
    pub fn open(run: &Path) -> Option<Self> {
        let version = Version { version: String::new(), pid: 0, mount: String::new(), device: 0 };
        let mut asker = Self { run: run.to_owned(), version, connection: RefCell::default() };
        asker.version = asker.ask_while(&Command::Version {}, |_| {}).ok()?;
        Some(asker)
    }

    /// Whether it has its files there.
    pub fn serves(&self, mount: &Path) -> bool {
        canonical(mount) == Path::new(&self.version.mount)
    }

    /// What it said of itself.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Does a file operation.
    pub fn ask<A: DeserializeOwned>(&self, ask: &Ask) -> Result<A, Failed> {
        self.ask_while(ask, Ask::asked_again)
    }

    /// Asks until there is an answer. After a time without one, or when nobody is about to listen,
    /// the last failure is the error.
    fn ask_while<R: Clone + serde::Serialize, A: DeserializeOwned>(
        &self,
        request: &R,
        again: impl Fn(&mut R),
    ) -> Result<A, Failed> {
        let mut request = request.clone();
        let mut until = None;
        loop {
            let had_one = self.connection.borrow().is_some();
            let error = match self.once(&request) {
                Err(Failed::Lost(error)) => error,
                answered => return answered,
            };
            self.connection.replace(None);
            if error.kind() == io::ErrorKind::InvalidData {
                return Err(error.into());
            }
            // What was sent may have been done.
            again(&mut request);
            let until = *until.get_or_insert_with(|| Instant::now() + time::NEXT_WORKER_MAX);
            // A connection that was lost says nothing of the next one.
            if !had_one {
                if Instant::now() > until || !self.runs() {
                    return Err(error.into());
                }
                sleep(AGAIN);
            }
        }
    }

    fn once<A: DeserializeOwned>(&self, request: &impl serde::Serialize) -> Result<A, Failed> {
        let mut connection = self.connection.borrow_mut();
        match &mut *connection {
            Some(connection) => connection.ask(request),
            none => none.insert(Connection::open(&self.run)?).ask(request),
        }
    }

    /// Whether a keeper or worker lives: they hold a lock. The next worker is about to listen then.
    fn runs(&self) -> bool {
        let Ok(lock) = self.run.join(place::LOCK).metadata() else { return false };
        let (dev, inode) = (lock.st_dev(), lock.st_ino());
        let place = format!(" {:02x}:{:02x}:{inode} ", libc::major(dev), libc::minor(dev));
        std::fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.contains(&place))
    }
}

/// Where a mount is, without going there: whoever holds its root locked would be waited for.
fn canonical(mount: &Path) -> PathBuf {
    let parent =
        mount.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), mount.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => mount.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_without_going_there() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        assert_eq!(canonical(&real.join("link/reserv")), real.join("reserv"));
        assert_eq!(canonical(Path::new("/reserv")), Path::new("/reserv"));
    }

    #[test]
    fn where_nobody_runs_nobody_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(place::LOCK), "").unwrap();
        let begun = Instant::now();
        assert!(Asker::open(dir.path()).is_none());
        assert!(begun.elapsed() < time::NEXT_WORKER_MAX / 2);
    }
}
