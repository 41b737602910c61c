// SPDX-License-Identifier: MIT OR Apache-2.0
//! The session with the kernel: `/dev/fuse`, the mount, and what is said without being asked.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags};

use super::proto;

/// Opens `/dev/fuse`, not yet bound to a mount. The descriptor is inherited by children only when
/// they are given it.
pub fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/fuse")
}

/// Mounts the session at `path`. Rights are the server's to check, at open and at each operation
/// (no `default_permissions`): modes cannot say what access lists do.
pub fn mount(device: &File, path: &Path) -> io::Result<()> {
    let options =
        format!("fd={},rootmode=40755,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
    nix::mount::mount(Some("reserv"), path, Some("fuse.reserv"), flags, Some(options.as_str()))?;
    Ok(())
}

/// Takes the mount away, also when files are open in it: these answer ENOTCONN or ENODEV
/// afterwards.
pub fn unmount(path: &Path) -> io::Result<()> {
    Ok(nix::mount::umount2(path, MntFlags::MNT_DETACH)?)
}

/// The same of a dead daemon's, whose unanswered requests fail first: a process of it
/// ([`crate::forgetter`]) may hold the session open until they do.
pub fn unmount_dead(path: &Path) -> io::Result<()> {
    Ok(nix::mount::umount2(path, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH)?)
}

/// All requests of the session mounted at `path` fail, now and from now on. It may stay mounted:
/// somebody's request is under way.
pub fn abort(path: &Path) -> io::Result<()> {
    match nix::mount::umount2(path, MntFlags::MNT_FORCE) {
        Err(nix::errno::Errno::EBUSY) => Ok(()),
        other => Ok(other?),
    }
}

/// The device number of our file system mounted at `path`, when there is one. Asks `/proc`, never
/// the file system.
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
        found = (fields.get(dash + 1) == Some(&&b"fuse.reserv"[..]))
            .then(|| device_number(fields[2]))
            .flatten();
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
        let octal =
            tail.get(..3).filter(|_| byte == b'\\').and_then(|d| std::str::from_utf8(d).ok());
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

/// Where the mount will be: `path` without links, so that it can be found in the mount table. The
/// last component need not be reachable (a dead mount answers ENOTCONN).
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(parent.canonicalize()?.join(name))
}

/// Asks the kernel for all unanswered requests again. EINVAL from kernels before 6.9: their callers
/// wait until they are interrupted; everything else works.
pub fn resend(device: &File) -> io::Result<()> {
    tell(device, &proto::resend())
}

/// Says something that is no answer.
pub fn tell(mut device: &File, message: &[u8]) -> io::Result<()> {
    device.write_all(message)
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
