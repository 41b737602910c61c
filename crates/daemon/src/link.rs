// SPDX-License-Identifier: MIT OR Apache-2.0
//! What keeper and worker share: the descriptors that they hand each other, and their few words.
//!
//! Either starts the other as a program of its own with three descriptors inherited: the FUSE
//! session, the lock and one end of a socket pair, the *link*. When the link ends, the other is
//! dead.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A worker that ends with this status needs a new `/dev/fuse`: its mount was taken away by
/// somebody else.
pub const EXIT_REOPEN: i32 = 75;

/// What may be lost when only one of the two lives on.
#[derive(Debug)]
pub struct Held {
    /// `/dev/fuse`, bound to the mount (or about to be).
    pub fuse: File,
    /// The locked file.
    pub lock: File,
}

/// One word on the link. A datagram of one byte; an empty one is the end. A reason ([`Heard::Why`])
/// is longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Worker: the name space is served.
    Ready,
    /// Worker: a full stop has begun; should I die, finish it.
    Stopping,
    /// Worker: everything is given back; do not start me again.
    Done,
    /// Keeper: stop and give everything back.
    Stop,
}

/// What comes over the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// One of the words.
    Word(Word),
    /// Worker: why it ends, for whoever waits for its start.
    Why(String),
}

/// Longest reason.
const WHY_MAX: usize = 1024;
/// What stands before one.
const WHY: u8 = b'W';

/// Says why this worker ends.
pub fn say_why(link: &UnixSeq, why: &str) {
    let mut message = vec![WHY];
    message.extend(
        why.bytes().take(WHY_MAX).map(|byte| if byte.is_ascii_control() { b' ' } else { byte }),
    );
    let _ = nix::sys::socket::send(
        link.0.as_raw_fd(),
        &message,
        nix::sys::socket::MsgFlags::MSG_NOSIGNAL,
    );
}

impl Word {
    const ALL: [(Self, u8); 4] =
        [(Self::Ready, b'R'), (Self::Stopping, b'S'), (Self::Done, b'D'), (Self::Stop, b'T')];

    /// Says a word; the other's death is no error here.
    pub fn send(self, link: &UnixSeq) {
        if let Some((_, byte)) = Self::ALL.iter().find(|(word, _)| *word == self) {
            let _ = nix::sys::socket::send(
                link.0.as_raw_fd(),
                &[*byte],
                nix::sys::socket::MsgFlags::MSG_NOSIGNAL,
            );
        }
    }

    /// Waits for a word; `None` when the other is dead.
    pub fn receive(link: &UnixSeq) -> Option<Heard> {
        let mut bytes = [0; 1 + WHY_MAX];
        loop {
            match nix::sys::socket::recv(
                link.0.as_raw_fd(),
                &mut bytes,
                nix::sys::socket::MsgFlags::empty(),
            ) {
                Ok(1) => {
                    if let Some((word, _)) = Self::ALL.iter().find(|(_, b)| *b == bytes[0]) {
                        return Some(Heard::Word(*word));
                    }
                }
                Ok(len @ 2..) if bytes[0] == WHY => {
                    return Some(Heard::Why(String::from_utf8_lossy(&bytes[1..len]).into_owned()));
                }
                // Of another version.
                Ok(1..) | Err(nix::errno::Errno::EINTR) => {}
                _ => return None,
            }
        }
    }
}

/// One end of a sequenced-packet socket pair: unlike a datagram pair it reports the other's end.
#[derive(Debug)]
pub struct UnixSeq(pub OwnedFd);

impl UnixSeq {
    /// Both ends, closed on exec.
    pub fn pair() -> io::Result<(Self, Self)> {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
        let (a, b) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self(a), Self(b)))
    }

    /// The same end once more.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

impl Held {
    /// For [`spawn`], with a link.
    pub fn fds(&self, link: &UnixSeq) -> [(&'static str, RawFd); 3] {
        [
            ("fuse-fd", self.fuse.as_raw_fd()),
            ("lock-fd", self.lock.as_raw_fd()),
            ("link-fd", link.0.as_raw_fd()),
        ]
    }
}

/// Starts this program again as `role`, with these descriptors.
pub fn spawn(role: &str, fds: &[(&str, RawFd)], flags: &[&str]) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("reservd").arg(format!("--role={role}")).args(flags).stdin(Stdio::null());
    for (name, fd) in fds {
        command.arg(format!("--{name}={fd}"));
    }
    let fds: Vec<RawFd> = fds.iter().map(|(_, fd)| *fd).collect();
    // SAFETY: between fork and exec the closure makes only fcntl calls, which are
    // async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            for &fd in &fds {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn()
}

/// The same with a descriptor of the process: there is none without the other.
pub fn spawn_held(
    role: &str,
    fds: &[(&str, RawFd)],
    flags: &[&str],
) -> io::Result<(Child, OwnedFd)> {
    let mut child = spawn(role, fds, flags)?;
    match crate::process::pidfd_open(child.id()) {
        Ok(pidfd) => Ok((child, pidfd)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Takes over a descriptor that was inherited under this number, and closes it on the next exec.
pub fn inherit(fd: RawFd) -> io::Result<OwnedFd> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    if fd <= 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the number was given to us by the one who started us, for us alone; nothing else in
    // this process knows it.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl(&owned, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(owned)
}

/// Who started the keeper and waits for it, if not the service manager: one end of a socket pair
/// that was inherited, so that nobody else can speak or listen there.
static STARTER: OnceLock<OwnedFd> = OnceLock::new();

/// The messages of [`notify`] go there too.
pub fn tell(starter: OwnedFd) {
    let _ = STARTER.set(starter);
}

/// Tells the service manager, when there is one: `READY=1`, `MAINPID=…`, `STOPPING=1`.
pub fn notify(state: &str) {
    if let Some(starter) = STARTER.get() {
        // Of whom nothing is wanted any more, once it has gone.
        let flags =
            nix::sys::socket::MsgFlags::MSG_NOSIGNAL | nix::sys::socket::MsgFlags::MSG_DONTWAIT;
        let _ = nix::sys::socket::send(starter.as_raw_fd(), state.as_bytes(), flags);
    }
    let Some(address) = crate::settings::notify_socket() else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let sent = if let Some(name) = address.to_str().and_then(|a| a.strip_prefix('@')) {
        use std::os::linux::net::SocketAddrExt as _;
        std::os::unix::net::SocketAddr::from_abstract_name(name)
            .and_then(|address| socket.send_to_addr(state.as_bytes(), &address))
    } else {
        socket.send_to(state.as_bytes(), &address)
    };
    match sent {
        // Who started us by hand listens no longer than until we are ready.
        Err(error) if state.starts_with("STATUS=") => {
            tracing::debug!(%error, "the service manager was not told");
        }
        Err(error) => tracing::warn!(%error, "the service manager was not told"),
        Ok(_) => {}
    }
}
