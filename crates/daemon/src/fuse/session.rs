// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop between `/dev/fuse` and a file system: one `read`, one call, one `write` per request.
//!
//! A session outlives its server: the keeper holds the descriptor, a new server calls [`resend`] and gets all
//! requests again that the old one took and did not answer, marked as such ([`Request::resent`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags};
use nix::poll::{PollFd, PollFlags, PollTimeout};

use super::proto::{self, Op, Reply, Request};

/// What answers requests.
pub trait Server {
    /// Answers one request by filling `reply`, or with an errno. INIT, FORGET and their like do not come here, except
    /// that forgotten nodes are announced through [`Server::forget`].
    fn answer(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), i32>;

    /// The kernel dropped `count` references to a node. Unknown nodes must be tolerated: a dead server's successor hears of
    /// nodes that it never gave out.
    fn forget(&mut self, node: u64, count: u64);

    /// Said once: whatever a dead server left unanswered, and the kernel sent again, has been answered.
    fn caught_up(&mut self);
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The file system is mounted no more.
    Unmounted,
}

/// Opens `/dev/fuse`, not yet bound to a mount. The descriptor is inherited by children only when they are given it.
pub fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/fuse")
}

/// Mounts the session at `path`. Rights are the server's to check, at open and at each operation (no `default_permissions`): modes cannot say
/// what access lists do.
pub fn mount(device: &File, path: &Path) -> io::Result<()> {
    let options = format!("fd={},rootmode=40755,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
    nix::mount::mount(Some("reserv"), path, Some("fuse.reserv"), flags, Some(options.as_str()))?;
    Ok(())
}

/// Takes the mount away, also when files are open in it: these answer ENOTCONN or ENODEV afterwards.
pub fn unmount(path: &Path) -> io::Result<()> {
    Ok(nix::mount::umount2(path, MntFlags::MNT_DETACH)?)
}

/// The same of a dead daemon's, whose unanswered requests fail first: a process of it ([`crate::forgetter`]) may hold the session open until they do.
pub fn unmount_dead(path: &Path) -> io::Result<()> {
    Ok(nix::mount::umount2(path, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH)?)
}

/// All requests of the session mounted at `path` fail, now and from now on. It may stay mounted: somebody's request is under way.
pub fn abort(path: &Path) -> io::Result<()> {
    match nix::mount::umount2(path, MntFlags::MNT_FORCE) {
        Err(nix::errno::Errno::EBUSY) => Ok(()),
        other => Ok(other?),
    }
}

/// The device number of our file system mounted at `path`, when there is one. Asks `/proc`, never the file system.
pub fn mounted(path: &Path) -> io::Result<Option<u64>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let path = path.as_os_str().as_bytes();
    let mut found = None;
    for line in table.split(|&b| b == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        let Some(dash) = fields.iter().position(|f| *f == b"-") else { continue };
        if dash < 6 || unescape(fields[4]) != path {
            continue;
        }
        // A later mount hides an earlier one.
        found =
            (fields.get(dash + 1) == Some(&&b"fuse.reserv"[..])).then(|| device_number(fields[2])).flatten();
    }
    Ok(found)
}

fn device_number(text: &[u8]) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Undoes `\040` and its like.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| byte == b'\\').and_then(|d| std::str::from_utf8(d).ok());
        if let Some(code) = octal.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            out.push(code);
            rest = &tail[3..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    out
}

/// Where the mount will be: `path` without links, so that it can be found in the mount table. The last component need not
/// be reachable (a dead mount answers ENOTCONN).
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(parent.canonicalize()?.join(name))
}

/// Asks the kernel for all unanswered requests again. EINVAL from kernels before 6.9: their callers wait until they
/// are interrupted; everything else works.
pub fn resend(device: &File) -> io::Result<()> {
    tell(device, &proto::resend())
}

/// Says something that is no answer.
pub fn tell(mut device: &File, message: &[u8]) -> io::Result<()> {
    device.write_all(message)
}

/// Whether a request waits, as far as can be told.
fn readable(device: &File) -> bool {
    let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
    nix::poll::poll(&mut fds, PollTimeout::ZERO) != Ok(0)
}

/// Serves until the end. `server` is called with one request at a time.
pub fn serve(device: &File, server: &mut dyn Server) -> io::Result<End> {
    let mut buffer = vec![0_u8; proto::BUFFER_LEN];
    let mut reply = Reply::default();
    let mut device = device;
    let mut behind = true;
    loop {
        // What is sent again stands before all other requests.
        if behind && !readable(device) {
            behind = false;
            server.caught_up();
        }
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            Err(error) => match error.raw_os_error() {
                // A request that was interrupted before we had it; a signal; nothing there yet.
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                Some(libc::ENODEV) => return Ok(End::Unmounted),
                _ => return Err(error),
            },
        };
        let Some(request) = proto::decode(&buffer[..len]) else {
            tracing::error!(len, "request that is not FUSE");
            continue;
        };
        // Those without an answer come whenever they like.
        let unanswered = matches!(request.op, Op::Forget { .. } | Op::BatchForget { .. } | Op::Interrupt);
        if behind && !request.resent && !unanswered {
            behind = false;
            server.caught_up();
        }
        reply.clear();
        let answer = match request.op {
            Op::Forget { count } => {
                server.forget(request.node, count);
                continue;
            }
            Op::BatchForget { pairs } => {
                for (node, count) in proto::forgets(pairs) {
                    server.forget(node, count);
                }
                continue;
            }
            // All our requests are short: there is nothing to interrupt. EAGAIN would ask for it again.
            Op::Interrupt => continue,
            Op::Init { major, minor, flags } => {
                tracing::info!(major, minor, resend = flags & proto::INIT_HAS_RESEND != 0, "session begins");
                reply.init(flags);
                if major == 7 { Ok(()) } else { Err(libc::EPROTO) }
            }
            Op::Destroy => Ok(()),
            Op::Unknown { .. } => Err(libc::ENOSYS),
            _ => server.answer(&request, &mut reply),
        };
        let unique = request.unique | if request.resent { proto::UNIQUE_RESEND } else { 0 };
        let bytes = reply.finish(unique, answer.err());
        match device.write(bytes) {
            Ok(_) => {}
            // The caller was killed meanwhile: nobody waits for the answer.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(End::Unmounted),
            Err(error) => tracing::error!(%error, ?request.op, "the kernel refused an answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_escapes_are_undone() {
        assert_eq!(unescape(b"/a\\040b\\134c\\"), b"/a b\\c\\");
        assert_eq!(device_number(b"0:45"), Some(libc::makedev(0, 45)));
        assert_eq!(device_number(b"x"), None);
    }

    #[test]
    fn nothing_of_ours_is_mounted_on_the_root() {
        assert_eq!(mounted(Path::new("/")).unwrap(), None);
    }
}
