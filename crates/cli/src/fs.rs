// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files: everything that the commands know of /reserv goes through here, by one of two ways.
//!
//! | way | of whom | what |
//! |---|---|---|
//! | the control socket ([`Socket`]) | root, where reservd answers on it | nobody who holds a directory of /reserv locked can keep root waiting; a refusal comes with its reason |
//! | the mount ([`Mounted`]) | all others | the files themselves |
//!
//! `RESERV_VIA` (`files` or `socket`) says which to take.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::rc::Rc;

use reserv_control::{Command, not_running, plain};

use crate::control::Control;
use crate::error::{Error, Kind};
use crate::path::{Mount, NodePath, Place};
use crate::settings::{self, Via};
use crate::socket::Socket;

/// What is read at once; longer texts are `status` and `members`.
const READ: usize = 4096;

/// The operations on files that commands are made of. Paths are relative to the mount point.
pub(crate) trait Files {
    /// Where the paths that people type begin.
    fn place(&self) -> &Rc<dyn Place>;
    /// All of a file.
    fn read(&self, path: &str) -> io::Result<String>;
    /// One value, in one write.
    fn write(&self, path: &str, text: &str) -> io::Result<()>;
    /// Names in a directory: files, then directories, each sorted.
    fn list(&self, dir: &str) -> io::Result<Listing>;
    /// Delete a node.
    fn rmdir(&self, dir: &str) -> io::Result<()>;
    /// Rename or move a node.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// The inode number of what is there.
    fn inode(&self, path: &str) -> io::Result<u64>;
    /// Whether there is a directory.
    fn is_dir(&self, dir: &str) -> bool;

    /// Why nobody can say whether it is one: its resource waits for its driver.
    fn is_late(&self, _dir: &str) -> Option<io::Error> {
        None
    }

    /// Whether each refusal is the daemon's own. The kernel refuses by a file's mode, and the
    /// daemon never hears of it.
    fn asks_the_daemon(&self) -> bool {
        false
    }

    /// Why the daemon refused the calling user's last operation of this kind, in its own words, and
    /// what would be right: an errno alone cannot say. From `status`, which keeps the last
    /// refusals.
    fn refusal(&self, operation: &str) -> Option<(String, Option<String>)> {
        told_in(&self.read("status").ok()?, operation)
    }
}

/// The caller's last refusal of this kind, as the text of `status` has it: everybody's own.
fn told_in(status: &str, operation: &str) -> Option<(String, Option<String>)> {
    let about = format!("uid {}: {operation}: ", nix::unistd::geteuid());
    let words = |line: &str| {
        let (_, rest) = line.strip_prefix("refused ")?.split_once(" ms: ")?;
        rest.strip_prefix(&about).map(|words| (words.to_owned(), None))
    };
    status.lines().filter_map(words).next_back()
}

/// What the daemon calls a write to a file of a node.
pub(crate) fn writing(node: &NodePath, file: &str) -> String {
    format!("write {node} {file}", node = node.as_str()).to_lowercase()
}

/// What was there between the listing and now is not any more.
pub(crate) fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE))
}

/// What stands in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Control files.
    pub files: Vec<String>,
    /// Child nodes.
    pub dirs: Vec<String>,
}

impl Listing {
    /// As it is shown.
    pub(crate) fn sorted(mut self) -> Self {
        self.files.sort();
        self.dirs.sort_by_cached_key(|name| natural(name));
        self
    }
}

/// The way that is the caller's; an error when Reserv does not run.
pub(crate) fn open() -> Result<Box<dyn Files>, Error> {
    let socket = match settings::via()? {
        Some(Via::Files) => None,
        None if !nix::unistd::geteuid().is_root() => None,
        None => Socket::open(&mount_point()),
        Some(Via::Socket) => Some(Socket::need(&mount_point())?),
    };
    if let Some(socket) = socket {
        return Ok(Box::new(socket));
    }
    crate::watch::begin();
    Ok(Box::new(Mounted::open()?))
}

pub(crate) use crate::settings::mount as mount_point;

/// The real ones.
pub(crate) struct Mounted {
    root: PathBuf,
    place: Rc<dyn Place>,
}

impl Mounted {
    /// At the mount point; an error when nothing is mounted there.
    fn open() -> Result<Self, Error> {
        let mounted = Self::at(mount_point());
        mounted.check()?;
        Ok(mounted)
    }

    /// Files below any directory.
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { place: Rc::new(Mount(root.clone())), root }
    }

    fn check(&self) -> Result<(), Error> {
        let at = self.root.display();
        match fs::metadata(self.root.join("cpu/share")) {
            Ok(_) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => Err(Error::io(format!("{at}"), &e)),
            Err(e) => {
                let (why, hint) = not_running(at, e.raw_os_error() == Some(libc::ENOTCONN));
                Err(Error::new(Kind::NotRunning, why).hint(hint))
            }
        }
    }

    fn full(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

impl Files for Mounted {
    fn place(&self) -> &Rc<dyn Place> {
        &self.place
    }

    fn read(&self, path: &str) -> io::Result<String> {
        // One read(2) for nearly every file: each is a call of the daemon, and only a full buffer
        // can have more behind it.
        let mut file = fs::File::open(self.full(path))?;
        let mut text = vec![0; READ];
        let mut length = 0;
        loop {
            let got = match file.read(&mut text[length..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                got => got?,
            };
            length += got;
            if length < text.len() {
                text.truncate(length);
                return String::from_utf8(text)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e));
            }
            text.resize(2 * length, 0);
        }
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let mut line = String::with_capacity(text.len() + 1);
        line.push_str(text);
        line.push('\n');
        // One write(2): the daemon takes each write as a whole command.
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.full(path))?;
        let written = file.write(line.as_bytes())?;
        if written == line.len() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }

    fn list(&self, dir: &str) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in fs::read_dir(self.full(dir))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                listing.dirs.push(name);
            } else {
                listing.files.push(name);
            }
        }
        Ok(listing.sorted())
    }

    fn rmdir(&self, dir: &str) -> io::Result<()> {
        fs::remove_dir(self.full(dir))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // RENAME_NOREPLACE: a node that exists is never replaced by another.
        let result = nix::fcntl::renameat2(
            nix::fcntl::AT_FDCWD,
            &self.full(from),
            nix::fcntl::AT_FDCWD,
            &self.full(to),
            nix::fcntl::RenameFlags::RENAME_NOREPLACE,
        );
        match result {
            // A file system that knows no flags says EINVAL; ours then refuses an existing target
            // by itself.
            Err(nix::errno::Errno::EINVAL) => fs::rename(self.full(from), self.full(to)),
            other => other.map_err(io::Error::from),
        }
    }

    fn inode(&self, path: &str) -> io::Result<u64> {
        fs::metadata(self.full(path)).map(|found| found.ino())
    }

    fn is_dir(&self, dir: &str) -> bool {
        self.full(dir).is_dir()
    }

    fn is_late(&self, dir: &str) -> Option<io::Error> {
        fs::metadata(self.full(dir)).err().filter(late)
    }

    fn refusal(&self, operation: &str) -> Option<(String, Option<String>)> {
        // The control socket has the hint apart, but speaks to root only.
        if !nix::unistd::geteuid().is_root() {
            return told_in(&self.read("status").ok()?, operation);
        }
        let status =
            Control::connect().ok()??.ask::<serde_json::Value>(&Command::Status {}).ok()?;
        let uid = nix::unistd::geteuid().as_raw();
        let refusals = status.get("refusals")?.as_array()?;
        let own = |r: &&serde_json::Value| {
            r.get("uid").and_then(serde_json::Value::as_u64) == Some(u64::from(uid))
                && r.get("what").and_then(serde_json::Value::as_str) == Some(operation)
        };
        let last = refusals.iter().rfind(own)?;
        let text = |key: &str| last.get(key)?.as_str().filter(|t| !t.is_empty()).map(str::to_owned);
        Some((text("text")?, text("hint")))
    }
}

/// Sorts q2 before q10.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[stem.len()..].parse().unwrap_or(0);
    (stem.to_owned(), number, name.to_owned())
}

/// Turn a failed file operation on a node into an error, with the nearest name when the node is
/// missing. `operation` is what the daemon calls it; empty for reads.
pub(crate) fn explain(
    files: &dyn Files,
    path: &NodePath,
    what: &str,
    operation: &str,
    source: &io::Error,
) -> Error {
    if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
        && let Some(error) = missing(files, path)
    {
        return error;
    }
    let mut error = Error::io(format!("{path}: {what}"), source);
    let heard = files.asks_the_daemon() || source.raw_os_error() != Some(libc::EACCES);
    if let Some((reason, hint)) =
        (heard && !operation.is_empty()).then(|| files.refusal(operation)).flatten()
    {
        let reason = plain(&reason);
        let names_it = reason.starts_with(path.as_str());
        error.message = if names_it { reason.to_owned() } else { format!("{path}: {reason}") };
        error.hint = hint.or(error.hint);
    }
    error
}

/// Whether an answer says that a resource gives none.
pub(crate) fn late(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ETIMEDOUT | libc::EBUSY))
}

/// The error for a node that does not exist, or of which nobody can say that it does; `None` if it
/// does.
pub(crate) fn missing(files: &dyn Files, path: &NodePath) -> Option<Error> {
    if files.is_dir(path.as_str()) {
        return None;
    }
    if let Some(error) = files.is_late(path.as_str()) {
        return Some(Error::io(path, &error));
    }
    if !files.is_dir(root_of(path).as_str()) {
        return Some(
            Error::new(Kind::NotRunning, "Reserv is not running any more")
                .hint("start it with: reserv up"),
        );
    }
    let mut error = Error::new(Kind::NotFound, format!("there is no node '{path}'"));
    error.errno = Some(libc::ENOENT);
    // Only the first name on the way that does not exist can be a misspelling.
    let mut first = path.clone();
    while let Some(parent) = first.parent() {
        if files.is_dir(parent.as_str()) {
            let children = files.list(parent.as_str()).map(|l| l.dirs).unwrap_or_default();
            if let Some(near) = nearest(first.name(), &children) {
                return Some(error.hint(format!("did you mean '{}'?", parent.join(near))));
            }
            break;
        }
        first = parent;
    }
    // Perhaps the right name in the wrong place.
    let mut found = Vec::new();
    walk(files, &root_of(path), &mut |node| {
        if node.name() == path.name() && found.len() < 3 {
            found.push(node.to_string());
        }
    });
    if found.is_empty() {
        Some(error.hint(if path.is_container() {
            "'reserv tree container' shows what there is; 'reserv mk --container' makes one"
        } else {
            "'reserv tree' shows what there is; 'reserv mk' makes a node"
        }))
    } else {
        Some(error.hint(format!("there is '{}'", found.join("', '"))))
    }
}

fn root_of(path: &NodePath) -> NodePath {
    let mut root = path.clone();
    while let Some(parent) = root.parent() {
        root = parent;
    }
    root
}

/// Visit every node from `path` down.
pub(crate) fn walk(files: &dyn Files, path: &NodePath, visit: &mut dyn FnMut(&NodePath)) {
    visit(path);
    for name in files.list(path.as_str()).map(|l| l.dirs).unwrap_or_default() {
        walk(files, &path.join(&name), visit);
    }
}

/// The most similar word, if one is similar at all: fewer edits than half its letters.
pub(crate) fn nearest<'a>(word: &str, among: &'a [String]) -> Option<&'a str> {
    among
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(edits, candidate)| {
            edits * 2 < candidate.chars().count().max(word.chars().count())
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate.as_str())
}

#[cfg(test)]
pub(crate) mod fake {
    //! A directory of plain files that looks like a small /reserv.

    use super::*;

    /// Fake files; `refuse` lists paths whose next write fails with the errno.
    pub(crate) struct Fake {
        pub inner: Mounted,
        pub refuse: std::cell::RefCell<Vec<(String, i32)>>,
        place: Rc<dyn Place>,
        _dir: tempfile::TempDir,
    }

    /// Where nothing but the CPU runs.
    pub(crate) fn place() -> Rc<dyn Place> {
        Rc::new(Mount("/reserv".into()))
    }

    impl Fake {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let refuse = std::cell::RefCell::default();
            let fake = Self { inner: Mounted::at(dir.path()), refuse, place: place(), _dir: dir };
            fake.node("cpu", true);
            fake.put("cpu/share", "1 0");
            fake.node("cpu/q0", false);
            fake
        }

        pub(crate) fn inner_path(&self, path: &str) -> PathBuf {
            self.inner.full(path)
        }

        pub(crate) fn put(&self, path: &str, text: &str) {
            fs::write(self.inner.full(path), format!("{text}\n")).unwrap();
        }

        pub(crate) fn node(&self, path: &str, sched: bool) {
            fs::create_dir(self.inner.full(path)).unwrap();
            self.put(&format!("{path}/share"), "0 0");
            self.put(&format!("{path}/cap"), "none");
            self.put(&format!("{path}/gc"), "0");
            self.put(&format!("{path}/stat"), "");
            if sched {
                self.put(&format!("{path}/policy"), "sfq");
                self.put(&format!("{path}/mk"), "");
            } else {
                self.put(&format!("{path}/class"), "ts");
                self.put(&format!("{path}/backlog"), "served 0\nservice_ns 0\nlimit 0 0");
                self.put(&format!("{path}/state"), "active");
                self.put(&format!("{path}/members"), "");
            }
        }
    }

    impl Files for Fake {
        fn place(&self) -> &Rc<dyn Place> {
            &self.place
        }
        fn read(&self, path: &str) -> io::Result<String> {
            self.inner.read(path)
        }
        fn write(&self, path: &str, text: &str) -> io::Result<()> {
            let mut refuse = self.refuse.borrow_mut();
            if let Some(at) = refuse.iter().position(|(refused, _)| refused == path) {
                return Err(io::Error::from_raw_os_error(refuse.remove(at).1));
            }
            let Some(dir) = path.strip_suffix("/mk") else { return self.inner.write(path, text) };
            let words: Vec<&str> = text.splitn(3, ' ').collect();
            let node = format!("{dir}/{}", words[1]);
            self.inner.read(path)?;
            self.node(&node, words[0] == "scheduler");
            self.put(&format!("{node}/share"), words[2]);
            Ok(())
        }
        fn list(&self, dir: &str) -> io::Result<Listing> {
            self.inner.list(dir)
        }
        fn rmdir(&self, dir: &str) -> io::Result<()> {
            if !self.inner.list(dir)?.dirs.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY));
            }
            fs::remove_dir_all(self.inner.full(dir))
        }
        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.inner.rename(from, to)
        }
        fn inode(&self, path: &str) -> io::Result<u64> {
            self.inner.inode(path)
        }
        fn is_dir(&self, dir: &str) -> bool {
            self.inner.is_dir(dir)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Fake;
    use super::*;

    fn path(text: &str) -> NodePath {
        NodePath::parse(text, &fake::place()).unwrap()
    }

    #[test]
    fn numbers_sort_as_numbers() {
        let fake = Fake::new();
        for n in [10, 2, 1] {
            fake.node(&format!("cpu/q{n}"), false);
        }
        assert_eq!(fake.list("cpu").unwrap().dirs, ["q0", "q1", "q2", "q10"]);
    }

    #[test]
    fn a_misspelt_node_is_suggested() {
        let fake = Fake::new();
        fake.node("cpu/web", true);
        fake.node("cpu/web/site1", false);
        assert!(missing(&fake, &path("web/site1")).is_none());
        let hint = |text: &str| missing(&fake, &path(text)).unwrap().hint.unwrap();
        assert_eq!(hint("web/sit1"), "did you mean 'web/site1'?");
        assert_eq!(hint("wbe/site1"), "did you mean 'web'?");
        assert_eq!(hint("site1"), "there is 'web/site1'");
        assert!(hint("zzz").contains("reserv tree"));
        fs::remove_dir_all(fake.inner_path("cpu")).unwrap();
        assert_eq!(missing(&fake, &path("web")).unwrap().kind, Kind::NotRunning);
    }

    #[test]
    fn the_daemons_own_words_are_found() {
        let fake = Fake::new();
        let me = nix::unistd::geteuid();
        fake.put(
            "status",
            &format!(
                "version 1\nrefused 5 ms: uid {me}: write cpu/a cap: old\n\
                 refused 7 ms: uid {me}: write cpu/a cap: cap: new\n\
                 refused 9 ms: uid {me}1: write cpu/a cap: other\nrefused 9 ms: uid {me}: write cpu/a/b cap: no"
            ),
        );
        let found = |node: &str, file: &str| {
            fake.refusal(&writing(&path(node), file)).map(|(words, _)| words)
        };
        assert_eq!(found("A", "cap").unwrap(), "cap: new");
        assert_eq!(found("a", "share"), None);
        assert_eq!(plain("cap: cap: new"), "cap: new");
        assert_eq!(plain("cap: new"), "cap: new");
    }

    #[test]
    fn nothing_mounted_is_not_running() {
        let dir = tempfile::tempdir().unwrap();
        let error = Mounted::at(dir.path()).check().unwrap_err();
        assert_eq!(error.kind, Kind::NotRunning);
        assert!(error.hint.unwrap().contains("reserv up"));
    }

    #[test]
    fn a_rename_replaces_nothing() {
        let fake = Fake::new();
        fake.node("cpu/a", false);
        fake.node("cpu/b", false);
        assert_eq!(fake.rename("cpu/a", "cpu/b").unwrap_err().raw_os_error(), Some(libc::EEXIST));
    }
}
