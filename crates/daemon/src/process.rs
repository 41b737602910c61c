// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `/proc` says about processes and threads. Names in it are bytes: whoever has a process
//! calls it, its program and, where he was given some, its cgroups as he likes, and nothing that he
//! chooses may keep the rest from being read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

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
    pub name: Vec<u8>,
    /// The process that it is a child of.
    pub parent: i32,
    /// Whether it is the kernel's; where the kernel says so (Linux 6.8).
    pub kernel: Option<bool>,
}

fn numbers(text: &[u8]) -> Vec<u32> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

fn four(text: &[u8]) -> Option<[u32; 4]> {
    numbers(text).try_into().ok()
}

/// A name as `status` shows it: a line feed and a backslash are escaped there, and nothing else
/// (Linux, `proc_task_name`).
fn unescaped(shown: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(shown.len());
    let mut bytes = shown.iter();
    while let Some(&byte) = bytes.next() {
        name.push(match (byte, bytes.as_slice().first()) {
            (b'\\', Some(b'n')) => {
                bytes.next();
                b'\n'
            }
            (b'\\', Some(b'\\')) => {
                bytes.next();
                b'\\'
            }
            _ => byte,
        });
    }
    name
}

fn parse(text: &[u8]) -> Option<Status> {
    let mut lines = text.split(|byte| *byte == b'\n');
    // The first line, so that no other is taken for it; what it says after the tab is the name.
    let name = lines.next()?.strip_prefix(b"Name:\t")?;
    let field = |name: &[u8]| {
        lines
            .clone()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(b":").map(<[u8]>::trim_ascii))
    };
    Some(Status {
        tgid: std::str::from_utf8(field(b"Tgid")?).ok()?.parse().ok()?,
        uids: four(field(b"Uid")?)?,
        gids: four(field(b"Gid")?)?,
        groups: numbers(field(b"Groups")?),
        name: unescaped(name),
        parent: std::str::from_utf8(field(b"PPid")?).ok()?.parse().ok()?,
        kernel: field(b"Kthread").map(|is| is == b"1"),
    })
}

/// Of a living process or thread. The kernel lets nobody wait for it; but who reads has the memory
/// of whom he reads about for a moment, and where that has just ended meanwhile, it is he who gives
/// it back, and waits for whoever serves what was mapped. So it may be read of somebody else by a
/// thread that may be lost, as the rest (see [`learn`]); it is not held up by an exec.
pub fn status(tid: i32) -> Option<Status> {
    if let Some(status) = known(tid, |known| known.status.clone()) {
        return status;
    }
    parse(&std::fs::read(format!("/proc/{tid}/status")).ok()?)
}

/// What was learnt of a process or thread.
#[derive(Debug)]
struct Known {
    /// Since before the rest was asked.
    held: Option<OwnedFd>,
    status: Option<Status>,
    stat: Option<Stat>,
}

thread_local! {
    static KNOWN: RefCell<BTreeMap<i32, Known>> = const { RefCell::new(BTreeMap::new()) };
}

fn known<T>(tid: i32, part: impl FnOnce(&Known) -> T) -> Option<T> {
    KNOWN.with_borrow(|all| all.get(&tid).map(part))
}

/// Asks `/proc` about a process or thread, and about the process of a thread. What is asked of them
/// by this thread from now on is answered from that.
///
/// It may take for ever: `stat`, `ns/pid` and others wait while the process executes a program
/// (seen on Linux 6.18: the kernel's exec lock), and whoever serves what the old one had mapped
/// decides for how long. Who waits for an answer of ours cannot be in the middle of an exec. So it
/// is done by a thread that may be lost ([`crate::aside`]), before anything is locked.
pub fn learn(tid: i32) {
    let ask = |tid| Known { held: hold(tid).ok(), status: status(tid), stat: Stat::of(tid) };
    let of_thread = ask(tid);
    let process = of_thread.status.as_ref().map(|status| status.tgid).filter(|pid| *pid != tid);
    let of_process = process.map(|pid| (pid, ask(pid)));
    KNOWN.with_borrow_mut(|all| all.extend(of_process.into_iter().chain([(tid, of_thread)])));
}

/// The process of a living thread.
pub fn tgid(tid: i32) -> Option<i32> {
    status(tid).map(|s| s.tgid)
}

/// A descriptor of a living process, by its own number (not a thread's).
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes a pid and flags by value and answers a new descriptor, which is ours
    // alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0);
        let fd =
            RawFd::try_from(fd).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A descriptor of a living process, or of a thread where the kernel has such (Linux 6.9; else of
/// its process).
pub fn hold(tid: i32) -> io::Result<OwnedFd> {
    /// `PIDFD_THREAD`
    const THREAD: libc::c_long = libc::O_EXCL as libc::c_long;
    if let Some(held) = known(tid, |known| known.held.as_ref().map(OwnedFd::try_clone)) {
        return held.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::ESRCH)));
    }
    // SAFETY: pidfd_open takes a number and flags by value and answers a new descriptor, which is
    // ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(tid), THREAD);
        if let Some(fd) = RawFd::try_from(fd).ok().filter(|&fd| fd >= 0) {
            return Ok(OwnedFd::from_raw_fd(fd));
        }
    }
    let process = tgid(tid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    pidfd_open(process.cast_unsigned())
}

/// Who is held, as no other process or thread since the machine's start: the inode of a pidfd,
/// where the kernel numbers those (Linux 6.9). It is told at once, as `stat` of `/proc` may not be.
pub fn identity(held: BorrowedFd<'_>) -> Option<u64> {
    /// `PID_FS_MAGIC`
    const PIDFS: i64 = 0x5049_4446;
    let pidfs = nix::sys::statfs::fstatfs(held).ok()?.filesystem_type().0 == PIDFS;
    pidfs.then(|| nix::sys::stat::fstat(held).ok().map(|stat| stat.st_ino)).flatten()
}

/// This thread takes a number for that of who is held; the rest is of who has it now.
#[cfg(test)]
pub fn pretend(tid: i32, held: OwnedFd) {
    let known = Known { held: Some(held), status: status(tid), stat: Stat::of(tid) };
    KNOWN.with_borrow_mut(|all| all.insert(tid, known));
}

/// Refuses a process or thread that has ended: while it has not, nobody else has its number. So
/// what was asked of the number since it was opened was asked of it.
pub fn require_alive(held: BorrowedFd<'_>, tid: i32) -> Result<(), reserv_model::Error> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: pidfd_send_signal takes all by value except the info pointer, which may be null;
    // signal 0 is none.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, held.as_raw_fd(), 0, none, 0) };
    // EPERM: of who is there.
    if sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM) {
        return Ok(());
    }
    Err(reserv_model::Error::new(
        reserv_model::ErrorKind::NoProcess,
        format!("no process or thread {tid}"),
    ))
}

/// When a process started, as in field 22 of `/proc/PID/stat`.
pub fn start_time(pid: i32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.started)
}

/// What `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process that it is a child of (field 4).
    pub parent: i32,
    /// `PF_…` of the kernel (field 9).
    pub flags: u64,
    /// Nice value (field 19).
    pub nice: i64,
    /// Start time in clock ticks since boot (field 22).
    pub started: u64,
    /// `SCHED_…` of the kernel (field 41).
    pub policy: u64,
}

impl Stat {
    /// Of a living process or thread.
    pub fn of(tid: i32) -> Option<Self> {
        if let Some(stat) = known(tid, |known| known.stat) {
            return stat;
        }
        Self::parse(&std::fs::read(format!("/proc/{tid}/stat")).ok()?)
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The name, in parentheses, may hold anything; what follows begins with field 3.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let fields: Vec<&str> =
            std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            flags: fields.get(6)?.parse().ok()?,
            nice: fields.get(16)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            policy: fields.get(38)?.parse().ok()?,
        })
    }
}

/// A descriptor of the process `pid` that connected a socket; none where it has ended. From the
/// socket itself where the kernel can (Linux 6.5), so that no other process is held that got the
/// number since.
pub fn hold_peer(socket: BorrowedFd<'_>, pid: u32) -> Option<OwnedFd> {
    let mut fd: RawFd = -1;
    let mut length = libc::socklen_t::try_from(size_of::<RawFd>()).ok()?;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERPIDFD);
    // SAFETY: both pointers are to locals of the lengths told; an answered descriptor is new and
    // ours alone.
    unsafe {
        let done = libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut fd).cast(),
            &raw mut length,
        );
        if done == 0 && fd >= 0 {
            return Some(OwnedFd::from_raw_fd(fd));
        }
    }
    let unknown = io::Error::last_os_error().raw_os_error() == Some(libc::ENOPROTOOPT);
    if unknown { pidfd_open(pid).ok() } else { None }
}

/// The pid name space that a living thread is in: device and inode of its file.
pub fn pid_namespace(tid: i32) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(format!("/proc/{tid}/ns/pid")).ok()?;
    Some((found.dev(), found.ino()))
}

/// The threads of a process; none when it is gone.
pub fn threads(pid: i32) -> Vec<i32> {
    let Ok(dir) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// All processes that live now, in ascending order.
pub fn all() -> Vec<i32> {
    let Ok(dir) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut pids: Vec<i32> =
        dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Inodes of a file system that a process refers to, by its current directory and, where
/// `descriptors`, by these; those on whose path one of these names stands. The file system is not
/// asked, so that its own server may call this. Others may be, and the process's exec: it may take
/// for ever.
pub fn inodes_in_use(
    dev: u64,
    pid: i32,
    descriptors: bool,
    names: &BTreeSet<String>,
) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    found.extend(inode_behind(dev, Path::new(&format!("/proc/{pid}/cwd")), names));
    if descriptors && let Ok(dir) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
        found.extend(dir.filter_map(|entry| inode_behind(dev, &entry.ok()?.path(), names)));
    }
    found
}

/// Its descriptors that are sockets, with their inodes, in order.
pub fn sockets(pid: i32) -> BTreeMap<u32, u64> {
    let Ok(dir) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeMap::new() };
    let socket = |entry: std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, inode))
    };
    dir.filter_map(|entry| socket(entry.ok()?)).collect()
}

/// What a link of `/proc` leads to, if that is in this file system, from what the kernel has
/// cached.
fn inode_behind(dev: u64, link: &Path, names: &BTreeSet<String>) -> Option<u64> {
    let path = std::fs::read_link(link).ok()?;
    let path = path.as_os_str().as_bytes();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    path.split(|byte| *byte == b'/')
        .find(|part| names.iter().any(|name| name.as_bytes() == *part))?;
    // Not opened: what it leads to may be served by this very process.
    let link = std::ffi::CString::new(link.as_os_str().as_bytes()).ok()?;
    // SAFETY: a statx of zeros is a value of its type.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that outlive the call.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            link.as_ptr(),
            libc::AT_STATX_DONT_SYNC,
            libc::STATX_INO,
            &raw mut found,
        )
    };
    let here = done == 0 && libc::makedev(found.stx_dev_major, found.stx_dev_minor) == dev;
    here.then_some(found.stx_ino)
}

/// The path of a process's cgroup: of version 2 where it is mounted, else of systemd's named
/// hierarchy, else of `cpu`.
pub fn cgroup(pid: i32) -> Option<Vec<u8>> {
    pick_cgroup(&std::fs::read(format!("/proc/{pid}/cgroup")).ok()?)
}

fn pick_cgroup(text: &[u8]) -> Option<Vec<u8>> {
    // Number, controllers, path. A name of a cgroup holds no line feed (the kernel refuses it).
    let lines: Vec<(&[u8], &[u8])> = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut parts = line.splitn(3, |byte| *byte == b':').skip(1);
            Some((parts.next()?, parts.next()?))
        })
        .collect();
    let of = |wanted: &dyn Fn(&[u8]) -> bool| {
        lines
            .iter()
            .find(|(controllers, path)| wanted(controllers) && *path != b"/")
            .map(|(_, path)| path.to_vec())
    };
    of(&<[u8]>::is_empty)
        .or_else(|| of(&|c| c == b"name=systemd"))
        .or_else(|| of(&|c| c.split(|byte| *byte == b',').any(|c| c == b"cpu")))
        .or_else(|| (!lines.is_empty()).then(|| b"/".to_vec()))
}

/// The innermost systemd unit (service or scope) in a cgroup's path.
pub fn unit(cgroup: &[u8]) -> Option<&[u8]> {
    cgroup.rsplit(|byte| *byte == b'/').find(|part| {
        [&b".service"[..], b".scope", b".slice"]
            .iter()
            .any(|suffix| part.len() > suffix.len() && part.ends_with(suffix))
    })
}

/// A copy of a process's descriptor. The process is named by its pidfd, since its number may be
/// another's by now. It may take for ever: while the process executes a program the kernel waits,
/// and what it has mapped of others' file systems decides how long. So may the copy's close, for
/// whoever serves the file (FUSE, a network file system, a socket that lingers). Only for a process
/// that may be lost ([`crate::copier`]).
pub fn copy_descriptor(process: BorrowedFd<'_>, fd: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_getfd takes numbers and answers a new descriptor, which is ours alone.
    unsafe {
        let got = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        let got = RawFd::try_from(got)
            .ok()
            .filter(|&got| got >= 0)
            .ok_or_else(io::Error::last_os_error)?;
        Ok(OwnedFd::from_raw_fd(got))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let text = "Name:\tbash\nTgid:\t7\nPPid:\t3\nKthread:\t0\n\
            Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t10 20 \n";
        let got = parse(text.as_bytes()).unwrap();
        assert_eq!(
            (got.tgid, got.uids, got.groups, &got.name[..]),
            (7, [1, 2, 3, 4], vec![10, 20], &b"bash"[..])
        );
        assert_eq!((got.parent, got.kernel), (3, Some(false)));
        let of = |kernel: &str| parse(text.replace("Kthread:\t0\n", kernel).as_bytes()).unwrap();
        assert_eq!((of("Kthread:\t1\n").kernel, of("").kernel), (Some(true), None));
        assert_eq!(parse(b"Name:\tbash\nTgid:\tx\n"), None);
        let stat = b"7 (a) b) \xff 9) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 -5 1 0 4711 \
            23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 17 0 0 3 9";
        let read = Stat { parent: 1, flags: 4_194_560, nice: -5, started: 4711, policy: 3 };
        assert_eq!(Stat::parse(stat), Some(read));
    }

    /// A thread of ours goes by this name while something is asked of it.
    fn called<T: Send>(name: &std::ffi::CStr, ask: impl FnOnce(i32) -> T + Send) -> T {
        let ask = || {
            nix::sys::prctl::set_name(name).unwrap();
            ask(nix::unistd::gettid().as_raw())
        };
        std::thread::scope(|scope| scope.spawn(ask).join().unwrap())
    }

    #[test]
    fn a_name_of_any_bytes_hides_nothing() {
        let pid = std::process::id().cast_signed();
        for name in [c"\xff\xfe", c"a) S 1\nTgid:\t1", c"\\n \\", c" x ", c"\r\n", c""] {
            let (status, stat) = called(name, |tid| (status(tid), Stat::of(tid)));
            let status = status.unwrap_or_else(|| panic!("{name:?}: no status"));
            assert_eq!((status.tgid, &status.name[..]), (pid, name.to_bytes()), "{name:?}");
            assert_eq!(status.uids[0], nix::unistd::getuid().as_raw());
            let born = start_time(pid).unwrap();
            assert!(stat.is_some_and(|stat| stat.started >= born), "{name:?}: {stat:?}");
        }
    }

    #[test]
    fn the_cgroup_that_says_most_is_picked() {
        let hybrid = "4:cpu,cpuacct:/a\n1:name=systemd:/system.slice/x.service\n0::/\n";
        assert_eq!(pick_cgroup(hybrid.as_bytes()).unwrap(), b"/system.slice/x.service");
        let below = pick_cgroup(b"0::/system.slice/y.service/sub").unwrap();
        assert_eq!(below, b"/system.slice/y.service/sub");
        assert_eq!(pick_cgroup(b"4:cpu,cpuacct:/a\n").unwrap(), b"/a");
        assert_eq!(pick_cgroup(b"0::/\n").unwrap(), b"/");
        assert_eq!(pick_cgroup(b"0::/user.slice/\xff:\xfe\n").unwrap(), b"/user.slice/\xff:\xfe");
        assert_eq!(pick_cgroup(b""), None);
        assert_eq!(unit(b"/system.slice/y.service/sub"), Some(&b"y.service"[..]));
        assert_eq!(unit(b"/system.slice/y.service/\xff"), Some(&b"y.service"[..]));
        assert_eq!(unit(b"/a/b"), None);
    }

    #[test]
    fn the_current_directory_is_an_inode_in_use() {
        use std::os::unix::fs::MetadataExt as _;
        let me = std::process::id().cast_signed();
        let here = std::fs::metadata(".").unwrap();
        let path = std::env::current_dir().unwrap();
        let name = BTreeSet::from([path.file_name().unwrap().to_str().unwrap().to_owned()]);
        assert!(inodes_in_use(here.dev(), me, false, &name).contains(&here.ino()));
        assert!(
            !inodes_in_use(here.dev(), me, false, &BTreeSet::from(["no such name".to_owned()]))
                .contains(&here.ino())
        );
        let path = std::env::current_exe().unwrap();
        let name = BTreeSet::from([path.file_name().unwrap().to_str().unwrap().to_owned()]);
        let file = std::fs::File::open(&path).unwrap();
        let exe = file.metadata().unwrap();
        assert!(inodes_in_use(exe.dev(), me, true, &name).contains(&exe.ino()));
    }

    #[test]
    fn this_process_is_found() {
        let pid = std::process::id().cast_signed();
        assert_eq!(tgid(pid), Some(pid));
        assert!(pidfd_open(std::process::id()).is_ok());
        assert!(pidfd_open(0).is_err() && pidfd_open(u32::MAX).is_err());
        let thread = std::thread::spawn(|| {
            let tid = nix::unistd::gettid().as_raw();
            assert!(
                tgid(tid) != Some(tid) && pidfd_open(tid.cast_unsigned()).is_err(),
                "a thread's number"
            );
        });
        thread.join().unwrap();
        assert!(all().contains(&pid));
    }
}
