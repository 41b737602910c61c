// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name space by path, for the control socket: what a process does with files, for one that
//! must not wait for the mount.
//!
//! The kernel takes locks of a directory for who reads it, makes and removes in it. Any user can
//! hold such a lock for as long as he likes: by `getdents` into memory that never comes. Who waits
//! for it can be neither interrupted nor killed. So root's commands come here, past the kernel.
//!
//! This is the kernel's part of a file operation: the way along a path, links included, and an
//! operation on what is there. Each is a request to [`Fs`], as the kernel's are, so rights, grammar
//! and answers are the files'. What has no open file has nothing to be closed either: `newqueue`,
//! whose node is there as long as it is open, is not made here; `mk` is.
//!
//! A client gives each change a number of its choice, a random one. It is in the journal with
//! the edit ([`Origin`]). Who got no answer, because the worker died, asks the next one with
//! the same number and `again`: an edit that has happened is then answered, and not done twice.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};

use reserv_control::{Ask, Done, Kind, Names, Text};
use reserv_model::{ErrorKind, quoted};
use reserv_namespace::Ino;
use serde_json::{Value, json};

use super::{Fs, Refusal, error};
use crate::engine::Origin;
use crate::fuse::proto::{Caller, Op, Reply, Request};
use crate::fuse::seen::Seen;
use crate::process;

/// Longest path, as the kernel's.
const PATH_MAX: usize = 4096;
/// Links on a way.
const LINKS_MAX: u32 = 8;
/// `RENAME_NOREPLACE`
const NOREPLACE: u32 = 1;

/// Who asks, as the kernel says it of a connection.
pub struct Peer {
    /// Root, and the process that connected.
    pub caller: Caller,
    /// The same process, whatever its number becomes; none where it has ended, or is not visible
    /// here.
    pub held: Option<OwnedFd>,
}

/// See the head of this file.
pub struct ByPath {
    fs: Fs,
    peer: Peer,
    reply: Reply,
}

/// What a path leads to.
#[derive(Clone, Copy)]
struct Found {
    ino: u64,
    mode: u32,
}

impl Found {
    const ROOT: Self = Self { ino: Ino::ROOT.0, mode: libc::S_IFDIR };

    fn is_a(self, kind: libc::mode_t) -> bool {
        self.mode & libc::S_IFMT == kind
    }
}

/// A change, on behalf of a client.
#[derive(Clone, Copy)]
struct Change {
    unique: u64,
    again: bool,
}

impl Change {
    fn new(number: Option<u64>, again: bool) -> Result<Self, Refusal> {
        let number = match number {
            // Nobody asks for it again.
            None if !again => random(),
            None => {
                return Err(error(
                    ErrorKind::Invalid,
                    "again, without the number of the first time",
                ));
            }
            Some(number) if number < Origin::CHOSEN_END => number,
            Some(number) => {
                let end = Origin::CHOSEN_END;
                return Err(error(
                    ErrorKind::Invalid,
                    format!("number {number} is not below {end}"),
                ));
            }
        };
        Ok(Self { unique: Origin::chosen(number), again })
    }
}

/// The hasher's keys are the system's random bytes.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish() % Origin::CHOSEN_END
}

/// The names on a way.
fn names(path: &str) -> Result<VecDeque<String>, Refusal> {
    if path.len() >= PATH_MAX {
        return Err(Refusal::new(libc::ENAMETOOLONG, format!("a path of {} bytes", path.len())));
    }
    let names: VecDeque<String> = if path.is_empty() {
        VecDeque::new()
    } else {
        path.split('/').map(str::to_owned).collect()
    };
    match names.iter().find(|name| matches!(name.as_str(), "" | "." | "..")) {
        None => Ok(names),
        Some(name) => {
            Err(error(ErrorKind::Invalid, format!("{} in the path {}", quoted(name), quoted(path))))
        }
    }
}

/// A path's directory, and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl ByPath {
    /// For one connection.
    pub fn new(fs: Fs, peer: Peer) -> Self {
        Self { fs, peer, reply: Reply::default() }
    }

    /// Answers, or says why not.
    pub fn answer(&mut self, ask: &Ask) -> Result<Value, Refusal> {
        match ask {
            Ask::Kind { path } => {
                let found = self.walk(path)?;
                Ok(json!(Kind { directory: found.is_a(libc::S_IFDIR), inode: found.ino }))
            }
            Ask::Read { path } => {
                self.on(path, None, |_| Op::Read { handle: 0, offset: 0, size: u32::MAX })?;
                Ok(json!(Text { text: String::from_utf8_lossy(self.reply.body()).into_owned() }))
            }
            Ask::List { path } => {
                self.on(path, None, |_| Op::Readdir { handle: 0, offset: 0, size: u32::MAX })?;
                let seen = self.reply.seen_dirents().into_iter();
                let seen = seen.filter(|entry| entry.name != "." && entry.name != "..");
                let (directories, files): (Vec<_>, Vec<_>) =
                    seen.partition(|entry| entry.directory);
                let inodes = directories.iter().map(|entry| entry.inode).collect();
                let names =
                    |entries: Vec<Seen>| entries.into_iter().map(|entry| entry.name).collect();
                Ok(json!(Names { files: names(files), directories: names(directories), inodes }))
            }
            Ask::Write { path, text, number, again } => {
                let change = Change::new(*number, *again)?;
                self.on(path, Some(change), |_| Op::Write {
                    handle: 0,
                    offset: 0,
                    data: text.as_bytes(),
                })?;
                Ok(json!(Done::DONE))
            }
            Ask::Mkdir { path, number, again } => {
                let (change, (dir, name)) = (Change::new(*number, *again)?, split(path));
                self.on(dir, Some(change), |_| Op::Mkdir { name: name.as_bytes() })?;
                Ok(json!(Done::DONE))
            }
            Ask::Rmdir { path, number, again } => {
                let (change, (dir, name)) = (Change::new(*number, *again)?, split(path));
                self.on(dir, Some(change), |_| Op::Rmdir { name: name.as_bytes() })?;
                Ok(json!(Done::DONE))
            }
            Ask::Rename { from, to, number, again } => {
                let change = Change::new(*number, *again)?;
                let ((dir, from), (new, to)) = (split(from), split(to));
                let rename = |new_parent: u64| Op::Rename {
                    from: from.as_bytes(),
                    new_parent,
                    to: to.as_bytes(),
                    flags: NOREPLACE,
                };
                self.on_two((dir, new), Some(change), rename)?;
                Ok(json!(Done::DONE))
            }
        }
    }

    fn ask(&mut self, ino: u64, change: Option<Change>, op: Op<'_>) -> Result<(), Refusal> {
        let Change { unique, again } =
            change.unwrap_or(Change { unique: Origin::chosen(0), again: false });
        let request = Request { unique, resent: again, node: ino, caller: self.peer.caller, op };
        self.reply.clear();
        self.fs.answer_waiting(&request, &mut self.reply)
    }

    /// Along a path, links included.
    fn walk(&mut self, path: &str) -> Result<Found, Refusal> {
        let mut at = Found::ROOT;
        let (mut rest, mut links) = (names(path)?, 0);
        while let Some(name) = rest.pop_front() {
            if !at.is_a(libc::S_IFDIR) {
                return Err(error(
                    ErrorKind::NotScheduler,
                    format!("no directory on the way to {}", quoted(path)),
                ));
            }
            self.ask(at.ino, None, Op::Lookup { name: name.as_bytes() })?;
            let (ino, mode) =
                self.reply.seen_entry().ok_or_else(|| Refusal::new(libc::EIO, "no entry"))?;
            at = Found { ino, mode };
            if at.is_a(libc::S_IFLNK) {
                links += 1;
                self.ask(at.ino, None, Op::Readlink)?;
                let target = String::from_utf8_lossy(self.reply.body()).into_owned();
                let below =
                    target.strip_prefix(self.fs.mount()).and_then(|below| below.strip_prefix('/'));
                let Some(below) = below.filter(|_| links <= LINKS_MAX) else {
                    return Err(Refusal::new(
                        libc::ELOOP,
                        format!("the link {} leads to {target}", quoted(&name)),
                    ));
                };
                let mut way = names(below)?;
                way.append(&mut rest);
                (at, rest) = (Found::ROOT, way);
            }
        }
        Ok(at)
    }

    /// An operation on what a path leads to.
    fn on<'o>(
        &mut self,
        path: &str,
        change: Option<Change>,
        op: impl Fn(u64) -> Op<'o>,
    ) -> Result<(), Refusal> {
        self.on_two((path, path), change, op)
    }

    /// The same where the operation is about a second place too, whose inode it gets.
    fn on_two<'o>(
        &mut self,
        (path, second): (&str, &str),
        change: Option<Change>,
        op: impl Fn(u64) -> Op<'o>,
    ) -> Result<(), Refusal> {
        if change.is_some() {
            self.require_peer()?;
        }
        let once = |by: &mut Self| {
            let found = by.walk(path)?;
            let other = if second == path { found } else { by.walk(second)? };
            by.ask(found.ino, change, op(other.ino))
        };
        let done = match once(self) {
            // It went between the way and the operation. The kernel walks once more as well.
            Err(refusal) if refusal.errno == libc::ESTALE => once(self),
            done => done,
        };
        // What removed its own place is not found on the way again.
        match change {
            Some(Change { unique, again: true }) if done.is_err() && self.fs.answered(unique) => {
                Ok(())
            }
            _ => done,
        }
    }

    /// `self` is who connected. When he has ended, his number may be another's.
    fn require_peer(&self) -> Result<(), Refusal> {
        match &self.peer.held {
            Some(held) => Ok(process::require_alive(held.as_fd(), self.peer.caller.tid)?),
            // Not visible here, so nobody is taken for him: `self` is refused where it is asked
            // for.
            None if self.peer.caller.tid == 0 => Ok(()),
            None => Err(error(ErrorKind::NoProcess, "the process that connected has ended")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_names() {
        assert!(names("").unwrap().is_empty());
        assert_eq!(names("cpu/web/share").unwrap(), ["cpu", "web", "share"]);
        for path in ["/cpu", "cpu/", "cpu//web", "cpu/../proc", ".", &"x".repeat(PATH_MAX)] {
            assert!(names(path).is_err(), "{path}");
        }
        assert_eq!(split("cpu/a/b"), ("cpu/a", "b"));
        assert_eq!(split("cpu"), ("", "cpu"));
    }

    #[test]
    fn a_number_that_was_chosen_is_never_the_kernels() {
        for number in [0, 1, Origin::CHOSEN_END - 1] {
            let change = Change::new(Some(number), true).unwrap();
            assert!(Origin::is_chosen(change.unique) && change.unique >> 62 == 0, "{number}");
        }
        assert!(Change::new(Some(Origin::CHOSEN_END), false).is_err());
        assert!(Change::new(None, true).is_err());
        assert!(!Origin::is_chosen(4712));
        let numbers: std::collections::BTreeSet<u64> = (0..100).map(|_| random()).collect();
        assert_eq!(numbers.len(), 100);
    }
}
