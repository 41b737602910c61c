// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets between root's own processes: nobody else's connection is made, whatever the umask is,
//! and nobody else is listened to.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen,
    setsockopt, socket, sockopt,
};
use nix::sys::stat::{Mode, fchmod};

/// A socket that listens at a path for who has this process's uid, and for root. One that was there
/// is replaced.
pub fn listen_at(path: &Path, kind: SockType, backlog: i32) -> io::Result<OwnedFd> {
    let _ = std::fs::remove_file(path);
    let fd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    // A socket's file is made with the socket's own mode (Linux, `unix_bind_bsd`): there is no
    // moment with another.
    fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&fd, Backlog::new(backlog)?)?;
    Ok(fd)
}

/// Whoever writes to a connection, reads from it, or makes it, waits for so long: then EAGAIN.
pub fn bounded(fd: &OwnedFd, most: Duration) -> io::Result<()> {
    let tv_sec = libc::time_t::try_from(most.as_secs()).map_err(io::Error::other)?;
    let limit = libc::timeval { tv_sec, tv_usec: most.subsec_micros().into() }.into();
    setsockopt(fd, sockopt::ReceiveTimeout, &limit)?;
    setsockopt(fd, sockopt::SendTimeout, &limit)?;
    Ok(())
}

/// A connection that is bounded. Of `connect` too: whoever listens may be stopped, and as many wait
/// as he has room for.
pub fn connect_within(path: &Path, kind: SockType, most: Duration) -> io::Result<OwnedFd> {
    let fd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    bounded(&fd, most)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd)
}

/// Whether the other end of a connection was made by root or by this process's user.
pub fn is_ours(fd: &OwnedFd) -> bool {
    let uid = |peer: nix::sys::socket::UnixCredentials| peer.uid();
    getsockopt(fd, sockopt::PeerCredentials)
        .map(uid)
        .is_ok_and(|uid| uid == 0 || uid == nix::unistd::geteuid().as_raw())
}

/// Files are made as on other machines, whatever umask this process was started with: what is
/// nobody else's business says so itself, and the rest (cgroups, say) can be looked at.
pub fn known_umask() {
    nix::sys::stat::umask(Mode::S_IWGRP | Mode::S_IWOTH);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_socket_is_private_whatever_the_umask() {
        let dir = std::env::temp_dir().join(format!("reserv-private-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let before = nix::sys::stat::umask(Mode::empty());
        let made = listen_at(&dir.join("socket"), SockType::SeqPacket, 4);
        nix::sys::stat::umask(before);
        let found = std::fs::metadata(dir.join("socket")).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        made.unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn who_accepts_nobody_is_not_waited_for() {
        let dir = std::env::temp_dir().join(format!("reserv-backlog-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("socket");
        let _listener = listen_at(&path, SockType::Stream, 1).unwrap();
        let most = Duration::from_millis(200);
        let begun = std::time::Instant::now();
        let all: Vec<_> = (0..4).map(|_| connect_within(&path, SockType::Stream, most)).collect();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(all[0].is_ok());
        let refused = all.iter().filter_map(|one| one.as_ref().err()?.raw_os_error());
        assert_eq!(refused.collect::<Vec<_>>(), [libc::EAGAIN, libc::EAGAIN]);
        assert!(begun.elapsed() < most * 4, "{:?}", begun.elapsed());
    }

    #[test]
    fn who_is_at_the_other_end_is_asked_of_the_kernel() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(is_ours(&a.into()));
        assert!(!is_ours(&std::fs::File::open("/dev/null").unwrap().into()), "no socket, nobody's");
    }
}
