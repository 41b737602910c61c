// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where /reserv is, and names in it.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use reserv_facts::ino::{
    AREA_SHIFT, FIRST_AREA, FileKind, ID_MASK, INDEX_MASK, KIND_SHIFT, PROC_AREA, is_of_node,
};
use reserv_facts::place::{MOUNT as USUAL, variable};

use crate::calls;
use crate::error::{Error, Result, meaning};
use crate::way::{self, Way};

/// Inode number of the file `status`: how a mount is recognised.
const STATUS_INO: u64 = (FileKind::Status as u64) << KIND_SHIFT;

/// A path of a node as text, which all of them are.
pub(crate) fn utf8(path: &Path) -> Result<&str> {
    let wrong = || Error::new(libc::EILSEQ, format!("{:?} is no UTF-8", path.to_string_lossy()));
    path.to_str().ok_or_else(wrong)
}

/// A node, as an inode number names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Number of the resource.
    pub resource: u64,
    /// Generation and index.
    pub id: u64,
    /// The directory of a queue, of a scheduler, or a file.
    pub kind: u64,
}

impl Handle {
    pub(crate) fn of(ino: u64) -> Option<Self> {
        let (area, kind) = (ino >> AREA_SHIFT, ino >> KIND_SHIFT & 0xff);
        ((FIRST_AREA..PROC_AREA).contains(&area) && is_of_node(kind)).then(|| Self {
            resource: area - FIRST_AREA,
            id: ino & ID_MASK,
            kind,
        })
    }

    pub(crate) fn is_queue_dir(self) -> bool {
        self.kind == FileKind::QueueDir as u64
    }

    /// Whether it is what a thread can be tagged with, of a queue.
    fn may_tag(self) -> bool {
        [FileKind::QueueDir as u64, FileKind::Share as u64].contains(&self.kind)
    }

    pub(crate) fn index(self) -> u64 {
        self.id & INDEX_MASK
    }
}

/// A running Reserv.
#[derive(Debug)]
pub(crate) struct Place {
    pub root: PathBuf,
    /// Device of its files.
    pub dev: u64,
    /// How they are reached.
    pub way: Way,
}

fn is_reserv(root: &Path) -> io::Result<Place> {
    let status = fs::symlink_metadata(root.join("status"))?;
    if status.ino() == STATUS_INO {
        // The kernel may have answered that from its memory; a link is asked for. Where the daemon
        // sees no process of ours it has none.
        if let Err(e) = fs::read_link(root.join("self"))
            && matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
        {
            return Err(e);
        }
        return Ok(Place {
            root: root.to_owned(),
            dev: status.dev(),
            way: Way::Mount(root.to_owned()),
        });
    }
    Err(io::Error::from_raw_os_error(libc::ENODEV))
}

fn not_running(root: &Path, source: &io::Error) -> Error {
    let at = root.display();
    let (errno, mounted) = match source.raw_os_error() {
        Some(errno @ (libc::ENOTCONN | libc::ECONNABORTED)) => (errno, true),
        Some(errno @ libc::EACCES) => {
            return Error::new(errno, format!("{at}: {}", meaning(errno)));
        }
        _ => (libc::ENODEV, false),
    };
    let (why, hint) = reserv_control::not_running(at, mounted);
    Error::new(errno, format!("{why} ({hint})"))
}

unsafe extern "C" {
    /// secure_getenv(3), which the libc crate lacks.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// What a variable says; a program with more rights than its user does not listen to it.
pub(crate) fn named(variable: &str) -> Option<PathBuf> {
    let name = CString::new(variable).ok()?;
    // SAFETY: The name is a string; the answer is read at once. As with every getenv, no other
    // thread may change the environment meanwhile (the manual says so).
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: It is not null, so it is a string of the environment.
    let value = unsafe { CStr::from_ptr(value) };
    (!value.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(value.to_bytes())))
}

/// Mount points of Reserv in mountinfo; of two at one place the later one covers the other.
fn mount_points(mountinfo: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in mountinfo.split(|b| *b == b'\n') {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let Some(dash) = fields.iter().position(|f| *f == b"-") else { continue };
        if fields.get(dash + 1) == Some(&&b"fuse.reserv"[..])
            && let Some(point) = fields.get(4)
        {
            found.push(PathBuf::from(OsString::from_vec(unescaped(point))));
        }
    }
    found
}

/// Blanks, tabs, line feeds and backslashes stand as three octal digits in mountinfo.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = (field[at] == b'\\').then(|| field.get(at + 1..at + 4)).flatten();
        let value = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        out.push(value.unwrap_or(field[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    out
}

impl Place {
    /// Finds it: `RESERV_MOUNT`, else /reserv, else any that is mounted. `ENODEV`: there is none.
    /// `ENOTCONN`: nobody serves it. Root finds it by the control socket, without going there.
    pub(crate) fn find() -> Result<Self> {
        let named = named(variable::MOUNT);
        if let Some(asker) =
            way::socket().filter(|by| named.as_ref().is_none_or(|root| by.serves(root)))
            && asker.version().device != 0
        {
            let root = named.unwrap_or_else(|| PathBuf::from(&asker.version().mount));
            return Ok(Self { root, dev: asker.version().device, way: Way::by(asker) });
        }
        if let Some(root) = named {
            return is_reserv(&root).map_err(|e| not_running(&root, &e));
        }
        let usual = Path::new(USUAL);
        is_reserv(usual).or_else(|first| {
            let points = mount_points(&fs::read("/proc/self/mountinfo").unwrap_or_default());
            let mut why = not_running(usual, &first);
            for point in points.iter().rev() {
                match is_reserv(point) {
                    Ok(place) => return Ok(place),
                    Err(e) => why = not_running(point, &e),
                }
            }
            Err(why)
        })
    }

    /// A node as people write it → its path below the mount. Whether it exists is not looked at.
    pub(crate) fn node(&self, path: impl AsRef<Path>) -> Result<String> {
        self.node_named(utf8(path.as_ref())?)
    }

    fn node_named(&self, text: &str) -> Result<String> {
        let wrong = |why: &str| {
            Error::new(
                libc::EINVAL,
                format!(
                    "{text:?} names no node: {why} (as in cpu/web/site1 or /reserv/cpu/web/site1)"
                ),
            )
        };
        let mut rest = text;
        if text.starts_with('/') {
            let mount = self.root.to_string_lossy();
            let below =
                [mount.trim_end_matches('/'), USUAL].into_iter().find_map(|m| text.strip_prefix(m));
            rest = below
                .and_then(|b| b.strip_prefix('/'))
                .ok_or_else(|| wrong(&format!("it is not below {mount}")))?;
        }
        let names: Vec<&str> = rest.split('/').filter(|n| !n.is_empty() && *n != ".").collect();
        if names.contains(&"..") {
            return Err(wrong("'..' is not followed"));
        }
        match names.first() {
            None => Err(wrong("a resource is missing")),
            Some(&("proc" | "self" | "status" | "container")) => Err(wrong("this is no resource")),
            Some(_) => Ok(names.join("/")),
        }
    }

    pub(crate) fn full(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// With the mount point.
    pub(crate) fn shown(&self, path: &str) -> String {
        format!("{}/{path}", self.root.to_string_lossy().trim_end_matches('/'))
    }

    /// Names of the directories in a directory, as they stand there.
    pub(crate) fn children(&self, path: &str) -> io::Result<Vec<(String, u64)>> {
        self.way.children(path)
    }

    /// Number of a resource.
    pub(crate) fn resource(&self, name: &str) -> Result<u64> {
        let found = if name.is_empty() || name.contains('/') || name.starts_with('.') {
            None
        } else {
            self.way.inode(name).ok().and_then(Handle::of)
        };
        found.map(|h| h.resource).ok_or_else(|| {
            Error::new(
                libc::ENOENT,
                format!("there is no resource {name:?}; there {}", self.resources()),
            )
        })
    }

    fn resources(&self) -> String {
        let names: Vec<String> = self
            .children("")
            .unwrap_or_default()
            .into_iter()
            .filter(|(_, ino)| Handle::of(*ino).is_some())
            .map(|(name, _)| name)
            .collect();
        if names.len() == 1 {
            format!("is {}", names[0])
        } else {
            format!("are {}", names.join(", "))
        }
    }

    /// The node that a descriptor of /reserv belongs to. `EINVAL` for other descriptors.
    pub(crate) fn handle(&self, fd: RawFd) -> Result<Handle> {
        let (dev, ino) = calls::identity(fd).map_err(|e| match e.raw_os_error() {
            Some(libc::ESTALE) => {
                Error::new(libc::ESTALE, format!("descriptor {fd}: its node is gone"))
            }
            _ => Error::of(format!("descriptor {fd}"), &e),
        })?;
        let none = |why: &str| {
            Error::new(
                libc::EINVAL,
                format!("descriptor {fd} is no node of {}: {why}", self.root.display()),
            )
        };
        if dev != self.dev {
            return Err(none("it is open elsewhere"));
        }
        Handle::of(ino).ok_or_else(|| none("it is another file"))
    }

    /// The node of a descriptor that is of a queue's directory or of a `share`; in words if it is
    /// not.
    pub(crate) fn tagging(&self, fd: RawFd) -> Result<Handle> {
        let handle = self.handle(fd)?;
        if handle.may_tag() {
            return Ok(handle);
        }
        let path = self.path_of(handle.resource, |h| h.id == handle.id).unwrap_or_default();
        let what = if handle.kind == FileKind::SchedulerDir as u64 {
            "a scheduler node"
        } else {
            "a file of a node"
        };
        let text =
            format!("descriptor {fd} is {what} ({path}), not the directory or share of a queue");
        Err(Error::new(libc::EINVAL, text))
    }

    /// The first node of a resource that is `wanted`, as a path below the mount, by a walk over its
    /// tree: names change, inode numbers do not. A node that is moved while we walk may be missed
    /// once.
    pub(crate) fn path_of(&self, resource: u64, wanted: impl Fn(Handle) -> bool) -> Option<String> {
        let is = |ino: u64| Handle::of(ino).filter(|h| h.resource == resource);
        for _ in 0..2 {
            let mut todo: Vec<String> = Vec::new();
            for (name, ino) in self.children("").ok()? {
                match is(ino) {
                    Some(h) if wanted(h) => return Some(name),
                    Some(_) => todo.push(name),
                    None => {}
                }
            }
            while let Some(dir) = todo.pop() {
                for (name, ino) in self.children(&dir).unwrap_or_default() {
                    let path = format!("{dir}/{name}");
                    match is(ino) {
                        Some(h) if wanted(h) => return Some(path),
                        Some(h) if !h.is_queue_dir() => todo.push(path),
                        _ => {}
                    }
                }
            }
        }
        None
    }
}

/// The other reason why a walk does not find a node: it is listed only to who sees it.
pub(crate) fn or_hidden() -> &'static str {
    // SAFETY: it reads no memory and always succeeds.
    if unsafe { libc::geteuid() } == 0 { "" } else { ", or not shown to this user" }
}

/// Where /reserv is mounted. `ENODEV`: it is not. `ENOTCONN`: it is, but nobody serves it.
pub fn mount() -> Result<PathBuf> {
    Place::find().map(|place| place.root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read() {
        let text = b"22 1 0:21 / /proc rw - proc proc rw\n\
            90 1 0:50 / /mnt/a\\040b\\134 rw,nosuid shared:7 - fuse.reserv reserv rw\n\
            91 1 0:51 / /x rw - fuse.other reserv rw\nnonsense\n";
        assert_eq!(mount_points(text), [PathBuf::from("/mnt/a b\\")]);
        assert_eq!(unescaped(b"\\9\\04"), b"\\9\\04");
    }

    #[test]
    fn names_are_paths_of_any_kind() {
        let place = Place { root: "/mnt/x".into(), dev: 0, way: Way::Mount("/mnt/x".into()) };
        let web = Path::new("cpu").join("web");
        assert_eq!(place.node(&web).unwrap(), "cpu/web");
        assert_eq!(place.node(OsStr::new("/mnt/x/cpu/web")).unwrap(), "cpu/web");
        let error = place.node(web.join(OsStr::from_bytes(b"\xff"))).unwrap_err();
        assert_eq!(error.errno(), libc::EILSEQ, "{error}");
    }

    #[test]
    fn names_of_nodes() {
        let place = Place { root: "/mnt/x".into(), dev: 0, way: Way::Mount("/mnt/x".into()) };
        for text in ["cpu/a", "/mnt/x/cpu/a", "/reserv/cpu/a", "cpu//a/", "./cpu/a"] {
            assert_eq!(place.node(text).unwrap(), "cpu/a", "{text}");
        }
        for text in [
            "",
            "/",
            "/etc/passwd",
            "../cpu",
            "cpu/../x",
            "/mnt/xy/cpu",
            "proc/1",
            "/mnt/x",
            "status",
        ] {
            let error = place.node(text).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL);
            assert!(error.text().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn inode_numbers_are_taken_apart() {
        let h = Handle::of(3 << 56 | 16 << 48 | 7 << 16 | 5).unwrap();
        assert_eq!((h.resource, h.index(), h.id, h.is_queue_dir()), (2, 5, 7 << 16 | 5, false));
        for ino in
            [1, STATUS_INO, 62 << 56 | 4 << 48, 63 << 56, 1 << 56 | 3 << 48, 1 << 56 | 48 << 48]
        {
            assert_eq!(Handle::of(ino), None, "{ino:x}");
        }
    }

    #[test]
    fn a_folder_is_not_reserv() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("status"), "version 1\n").unwrap();
        let error = is_reserv(dir.path()).unwrap_err();
        let error = not_running(dir.path(), &error);
        assert_eq!(error.errno(), libc::ENODEV);
        assert!(error.text().contains("reserv up"));
    }
}
