// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `/proc` says about processes and threads.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The facts of a process that rules and rights ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Process of the thread.
    pub tgid: i32,
    /// Real, effective, saved, file system uid.
    pub uids: [u32; 4],
    /// The same of the group.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Command name, at most 15 bytes.
    pub name: String,
}

fn four(text: &str) -> Option<[u32; 4]> {
    let numbers: Vec<u32> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    numbers.try_into().ok()
}

fn parse(text: &str) -> Option<Status> {
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    Some(Status {
        tgid: field("Tgid")?.parse().ok()?,
        uids: four(field("Uid")?)?,
        gids: four(field("Gid")?)?,
        groups: field("Groups")?.split_whitespace().filter_map(|n| n.parse().ok()).collect(),
        name: field("Name")?.to_owned(),
    })
}

/// Of a living process or thread.
pub fn status(tid: i32) -> Option<Status> {
    parse(&std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?)
}

/// The process of a living thread.
pub fn tgid(tid: i32) -> Option<i32> {
    status(tid).map(|s| s.tgid)
}

/// A descriptor of a living process, by its own number (not a thread's).
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes a pid and flags by value and answers a new descriptor, which is ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0);
        let fd = RawFd::try_from(fd).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// When a process started, as in field 22 of `/proc/PID/stat`.
pub fn start_time(pid: i32) -> Option<u64> {
    parse_start(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_start(stat: &str) -> Option<u64> {
    // The name, in parentheses, may hold anything; what follows begins with field 3.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The threads of a process; none when it is gone.
pub fn threads(pid: i32) -> Vec<i32> {
    let Ok(dir) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// All processes that live now, in ascending order.
pub fn all() -> Vec<i32> {
    let Ok(dir) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut pids: Vec<i32> = dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Inodes of a file system that processes refer to through the links of this kind in `/proc/PID`: `cwd`, or the folder `fd`; those on whose
/// path one of these names stands, with who refers to them. The file system is not asked, so that its own server may call this; nor are others, that may hang.
pub fn inodes_in_use(dev: u64, links: &str, names: &BTreeSet<&str>) -> BTreeSet<(u64, i32)> {
    let mut found = BTreeSet::new();
    for pid in all() {
        let at = format!("/proc/{pid}/{links}");
        if links == "fd" {
            let Ok(dir) = std::fs::read_dir(&at) else { continue };
            found.extend(dir.filter_map(|e| Some((inode_behind(dev, &e.ok()?.path(), names)?, pid))));
        } else {
            found.extend(inode_behind(dev, Path::new(&at), names).map(|ino| (ino, pid)));
        }
    }
    found
}

/// What a link of `/proc` leads to, if that is in this file system, from what the kernel has cached.
fn inode_behind(dev: u64, link: &Path, names: &BTreeSet<&str>) -> Option<u64> {
    let path = std::fs::read_link(link).ok()?;
    path.to_str()?.trim_end_matches(" (deleted)").split('/').find(|part| names.contains(part))?;
    // Not opened: what it leads to may be served by this very process.
    let link = std::ffi::CString::new(link.as_os_str().as_bytes()).ok()?;
    // SAFETY: a statx of zeros is a value of its type.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that outlive the call.
    let done = unsafe {
        libc::statx(libc::AT_FDCWD, link.as_ptr(), libc::AT_STATX_DONT_SYNC, libc::STATX_INO, &raw mut found)
    };
    let here = done == 0 && libc::makedev(found.stx_dev_major, found.stx_dev_minor) == dev;
    here.then_some(found.stx_ino)
}

/// The path of a process's cgroup: of version 2 where it is mounted, else of systemd's named hierarchy, else of `cpu`.
pub fn cgroup(pid: i32) -> Option<String> {
    pick_cgroup(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

fn pick_cgroup(text: &str) -> Option<String> {
    let lines: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')).collect();
    let of = |wanted: &dyn Fn(&str) -> bool| {
        lines
            .iter()
            .find(|(controllers, path)| wanted(controllers) && *path != "/")
            .map(|(_, path)| (*path).to_owned())
    };
    of(&str::is_empty)
        .or_else(|| of(&|c| c == "name=systemd"))
        .or_else(|| of(&|c| c.split(',').any(|c| c == "cpu")))
        .or_else(|| (!lines.is_empty()).then(|| "/".to_owned()))
}

/// The innermost systemd unit (service or scope) in a cgroup's path.
pub fn unit(cgroup: &str) -> Option<&str> {
    cgroup.rsplit('/').find(|part| {
        [".service", ".scope", ".slice"]
            .iter()
            .any(|suffix| part.len() > suffix.len() && part.ends_with(suffix))
    })
}

/// Copies of others' descriptors that are held, or are being closed.
static COPIES: AtomicUsize = AtomicUsize::new(0);
const COPIES_MOST: usize = 64;

/// One of so many places for them, free again when it is dropped.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> io::Result<Self> {
        let place = Self;
        if COPIES.fetch_add(1, Ordering::Relaxed) >= COPIES_MOST {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        COPIES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does something with a copy of a process's descriptor. The process is named by its pidfd, since
/// its number may be another's by now. EMFILE: too many copies wait to be closed.
///
/// Whoever serves the file may let the close wait for ever (FUSE, a network file system, a socket
/// that lingers), so a thread of its own closes the copy.
pub fn with_descriptor<T>(
    process: BorrowedFd<'_>,
    fd: u32,
    act: impl FnOnce(BorrowedFd<'_>) -> T,
) -> io::Result<T> {
    let place = Place::take()?;
    // SAFETY: pidfd_getfd takes numbers and answers a new descriptor, which is ours alone.
    let copy = unsafe {
        let got = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        let got = RawFd::try_from(got).ok().filter(|&got| got >= 0);
        OwnedFd::from_raw_fd(got.ok_or_else(io::Error::last_os_error)?)
    };
    let done = act(copy.as_fd());
    let thread = std::thread::Builder::new().name("close".into()).stack_size(1 << 16);
    // In this order: the place is free when the copy is closed. Without a thread both go here.
    let close = move || drop((copy, place));
    if let Err(error) = thread.spawn(close) {
        tracing::warn!(%error, "a copy of a descriptor is closed without a thread");
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let text = "Name:\tbash\nTgid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t10 20 \n";
        let got = parse(text).unwrap();
        assert_eq!(
            (got.tgid, got.uids, got.groups, got.name.as_str()),
            (7, [1, 2, 3, 4], vec![10, 20], "bash")
        );
        assert_eq!(parse("Name:\tbash\nTgid:\tx\n"), None);
        let stat = "7 (a) b) 9) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9";
        assert_eq!(parse_start(stat), Some(4711));
    }

    #[test]
    fn the_cgroup_that_says_most_is_picked() {
        let hybrid = "4:cpu,cpuacct:/a\n1:name=systemd:/system.slice/x.service\n0::/\n";
        assert_eq!(pick_cgroup(hybrid).unwrap(), "/system.slice/x.service");
        assert_eq!(pick_cgroup("0::/system.slice/y.service/sub").unwrap(), "/system.slice/y.service/sub");
        assert_eq!(pick_cgroup("4:cpu,cpuacct:/a\n").unwrap(), "/a");
        assert_eq!(pick_cgroup("0::/\n").unwrap(), "/");
        assert_eq!(pick_cgroup(""), None);
        assert_eq!(unit("/system.slice/y.service/sub"), Some("y.service"));
        assert_eq!(unit("/a/b"), None);
    }

    #[test]
    fn the_current_directory_is_an_inode_in_use() {
        use std::os::unix::fs::MetadataExt as _;
        let me = std::process::id().cast_signed();
        let here = std::fs::metadata(".").unwrap();
        let path = std::env::current_dir().unwrap();
        let name = BTreeSet::from([path.file_name().unwrap().to_str().unwrap()]);
        assert!(inodes_in_use(here.dev(), "cwd", &name).contains(&(here.ino(), me)));
        assert!(
            !inodes_in_use(here.dev(), "cwd", &BTreeSet::from(["no such name"])).contains(&(here.ino(), me))
        );
        let path = std::env::current_exe().unwrap();
        let name = BTreeSet::from([path.file_name().unwrap().to_str().unwrap()]);
        let file = std::fs::File::open(&path).unwrap();
        let exe = file.metadata().unwrap();
        assert!(inodes_in_use(exe.dev(), "fd", &name).contains(&(exe.ino(), me)));
    }

    #[test]
    fn this_process_is_found() {
        let pid = std::process::id().cast_signed();
        assert_eq!(tgid(pid), Some(pid));
        assert!(pidfd_open(std::process::id()).is_ok());
        assert!(pidfd_open(0).is_err() && pidfd_open(u32::MAX).is_err());
        let thread = std::thread::spawn(|| {
            let tid = nix::unistd::gettid().as_raw();
            assert!(tgid(tid) != Some(tid) && pidfd_open(tid.cast_unsigned()).is_err(), "a thread's number");
        });
        thread.join().unwrap();
        assert!(all().contains(&pid));
    }
}
