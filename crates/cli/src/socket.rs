// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files by way of the control socket: root's, for nobody can keep it locked.
//!
//! A request that was not answered is sent again, to the next worker. A change has a number, by
//! which reservd knows whether it has happened (the daemon's `fs/by_path.rs`).

use std::cell::RefCell;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use reserv_facts::place;
use serde_json::{Value, json};

use crate::control::{Control, run_dir};
use crate::error::{Error, Kind};
use crate::fs::{Files, Listing};
use crate::path::Place;

/// How long a reservd that does not answer is asked again, and how often.
const LOST_MAX: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(20);
/// Numbers of changes are below it.
const NUMBER_END: u64 = 1 << 61;

/// The connection, and what a refusal was.
struct Asker {
    mount: PathBuf,
    control: RefCell<Option<Control>>,
    /// The words of the last change that was refused.
    refused: RefCell<Option<(String, Option<String>)>>,
}

/// See the head of this file.
pub(crate) struct Socket {
    asker: Rc<Asker>,
    place: Rc<dyn Place>,
}

impl Socket {
    /// Where the reservd that has its files at `mount` answers on it.
    pub(crate) fn open(mount: &Path) -> Option<Self> {
        let control = RefCell::default();
        let asker = Rc::new(Asker { mount: mount.to_owned(), control, refused: RefCell::default() });
        let version = asker.ask_while(&json!({ "request": "version" }), runs).ok()?;
        let theirs = Path::new(version.get("mount")?.as_str()?);
        (canonical(mount) == theirs).then(|| Self { place: asker.clone(), asker })
    }

    /// The same where it has to be this way.
    pub(crate) fn need(mount: &Path) -> Result<Self, Error> {
        Control::need()?;
        Self::open(mount).ok_or_else(|| {
            let mount = mount.display();
            Error::new(Kind::NotRunning, format!("who answers on the control socket does not serve {mount}"))
        })
    }
}

/// Where a mount is, without going there: whoever holds its root locked would be waited for.
fn canonical(mount: &Path) -> PathBuf {
    let parent = mount.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), mount.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => mount.to_owned(),
    }
}

/// Whether a keeper or worker lives: they hold a lock. The next worker is about to listen then.
fn runs() -> bool {
    let Ok(lock) = run_dir().join(place::LOCK).metadata() else { return false };
    let (dev, inode) = (lock.st_dev(), lock.st_ino());
    let place = format!(" {:02x}:{:02x}:{inode} ", libc::major(dev), libc::minor(dev));
    std::fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.contains(&place))
}

/// Of no other change, of whomever: the hasher's keys are the system's random bytes.
fn number() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() % NUMBER_END
}

impl Asker {
    /// Asks until there is an answer. After a time without one, or when it is not worth while, the
    /// last failure is the error.
    fn ask_while(&self, request: &Value, worth: impl Fn() -> bool) -> io::Result<Value> {
        let mut request = request.clone();
        let mut until = None;
        loop {
            let had_one = self.control.borrow().is_some();
            let error = match self.once(&request) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.control.replace(None);
            if error.kind() == io::ErrorKind::InvalidData {
                return Err(error);
            }
            // What was sent may have been done.
            if request.get("number").is_some() {
                request["again"] = true.into();
            }
            let until = *until.get_or_insert_with(|| Instant::now() + LOST_MAX);
            // A connection that was lost says nothing of the next one.
            if !had_one {
                if Instant::now() > until || !worth() {
                    return Err(error);
                }
                sleep(AGAIN);
            }
        }
    }

    fn once(&self, request: &Value) -> io::Result<Value> {
        let mut control = self.control.borrow_mut();
        match &mut *control {
            Some(control) => control.exchange(request),
            none => none.insert(Control::connect_now()?).exchange(request),
        }
    }

    /// An answer, or its errno.
    fn ask(&self, request: &Value) -> io::Result<Value> {
        let lost = |error: io::Error| match error.kind() {
            // As of a mount whose daemon is dead. Where there is no socket, there would be no
            // mount.
            io::ErrorKind::UnexpectedEof => io::Error::from_raw_os_error(libc::ENOTCONN),
            _ => error,
        };
        let answer = self.ask_while(request, runs).map_err(lost)?;
        let Some(error) = answer.get("error") else { return Ok(answer) };
        let word = |key: &str| error.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        if request.get("number").is_some() {
            self.refused.replace(word("text").map(|text| (text, word("hint"))));
        }
        let errno = error.get("errno").and_then(Value::as_i64).and_then(|errno| i32::try_from(errno).ok());
        Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EIO)))
    }

    /// A change.
    fn change(&self, mut request: Value) -> io::Result<()> {
        request["number"] = number().into();
        self.ask(&request).map(drop)
    }

    fn is_dir(&self, path: &str) -> io::Result<bool> {
        let answer = self.ask(&json!({ "request": "kind", "path": path }))?;
        Ok(answer.get("directory").and_then(Value::as_bool).unwrap_or(false))
    }
}

impl Place for Asker {
    fn mount(&self) -> &Path {
        &self.mount
    }

    fn has(&self, name: &str) -> bool {
        let found = self.is_dir(&format!("{name}/share"));
        found.map_or_else(|error| crate::fs::late(&error), |_| true)
    }
}

/// A word of the answer that has to be there.
fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "reservd's answer is not understood")
}

impl Files for Socket {
    fn place(&self) -> &Rc<dyn Place> {
        &self.place
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let answer = self.asker.ask(&json!({ "request": "read", "path": path }))?;
        answer.get("text").and_then(Value::as_str).map(str::to_owned).ok_or_else(strange)
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.asker.change(json!({ "request": "write", "path": path, "text": format!("{text}\n") }))
    }

    fn list(&self, dir: &str) -> io::Result<Listing> {
        let answer = self.asker.ask(&json!({ "request": "list", "path": dir }))?;
        let names = |key: &str| {
            let names = answer.get(key).and_then(Value::as_array).ok_or_else(strange)?;
            Ok::<_, io::Error>(names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect())
        };
        Ok(Listing { files: names("files")?, dirs: names("directories")? }.sorted())
    }

    fn rmdir(&self, dir: &str) -> io::Result<()> {
        self.asker.change(json!({ "request": "rmdir", "path": dir }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.asker.change(json!({ "request": "rename", "from": from, "to": to }))
    }

    fn is_dir(&self, dir: &str) -> bool {
        self.asker.is_dir(dir).unwrap_or(false)
    }

    fn is_late(&self, dir: &str) -> Option<io::Error> {
        self.asker.is_dir(dir).err().filter(crate::fs::late)
    }

    fn asks_the_daemon(&self) -> bool {
        true
    }

    /// It came with the answer.
    fn refusal(&self, _operation: &str) -> Option<(String, Option<String>)> {
        self.asker.refused.borrow().clone()
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
    fn no_number_comes_twice() {
        let numbers: std::collections::BTreeSet<u64> = (0..1000).map(|_| number()).collect();
        assert!(numbers.len() == 1000 && numbers.iter().all(|number| *number < NUMBER_END));
    }
}
