// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's process events (netlink connector, `CN_IDX_PROC`): who execs, changes ids or name.
//!
//! Needs `CAP_NET_ADMIN` and `CONFIG_PROC_EVENTS`; without them the caller scans `/proc` once a
//! second. When the kernel drops events (ENOBUFS), that is reported, and one scan makes up for it.
//!
//! Every event wakes whoever listens, so a fork and an exit cost two switches more as long as they
//! are told. Therefore nobody listens while there are no rules, and only the kinds that matter are
//! asked for (since Linux 6.6; an older kernel tells all, and what does not matter is dropped
//! here).

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;

const CN_IDX_PROC: u32 = 1;
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;
const EVENT_EXEC: u32 = 0x2;
const EVENT_UID: u32 = 0x4;
const EVENT_GID: u32 = 0x40;
const EVENT_COMM: u32 = 0x200;
const WANTED: u32 = EVENT_EXEC | EVENT_UID | EVENT_GID | EVENT_COMM;
const NETLINK_HEADER: usize = 16;
const CONNECTOR_HEADER: usize = 20;

/// Where events arrive.
#[derive(Debug)]
pub struct Events {
    socket: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

/// Says whether they shall.
#[derive(Debug)]
pub struct Subscription {
    socket: Arc<OwnedFd>,
    on: bool,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// These processes may match another rule now.
    Changed(Vec<i32>),
    /// Some events were lost: look at all processes.
    Lost,
    /// Nothing within the time.
    Quiet,
}

/// The process that a message is about, when its kind matters.
fn changed(message: &[u8]) -> Option<i32> {
    let word = |at: usize| message.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let event = NETLINK_HEADER + CONNECTOR_HEADER;
    if word(NETLINK_HEADER)? != CN_IDX_PROC {
        return None;
    }
    // what, cpu, timestamp (8); then process_pid, process_tgid in all kinds that matter.
    let what = word(event)?;
    // A process is called as its first thread is. Others that are given a name are no news: that
    // would be each thread that looks at the news, here or in another reservd.
    if what & WANTED == 0 || (what & EVENT_COMM != 0 && word(event + 16)? != word(event + 20)?) {
        return None;
    }
    word(event + 20).map(u32::cast_signed)
}

/// The messages in one datagram.
#[doc(hidden)] // but for `fuzz/`
pub fn split(mut bytes: &[u8]) -> Vec<i32> {
    let mut found = Vec::new();
    while let Some(len) = bytes.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes) {
        let len = len as usize;
        let Some(message) = bytes.get(..len).filter(|_| len >= NETLINK_HEADER) else { break };
        found.extend(changed(message));
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// A request to the connector: a netlink message of one connector message.
fn request(body: &[u32]) -> io::Result<Vec<u8>> {
    let size = u32::try_from(size_of_val(body)).map_err(io::Error::other)?;
    let total = u32::try_from(NETLINK_HEADER + CONNECTOR_HEADER).map_err(io::Error::other)? + size;
    let mut message = Vec::new();
    message.extend_from_slice(&total.to_ne_bytes());
    message.extend_from_slice(&3_u16.to_ne_bytes()); // NLMSG_DONE
    message.extend_from_slice(&0_u16.to_ne_bytes());
    for word in [0, std::process::id(), CN_IDX_PROC, 1, 0, 0, size].iter().chain(body) {
        message.extend_from_slice(&word.to_ne_bytes());
    }
    Ok(message)
}

impl Subscription {
    /// From now on events come, or do not.
    pub fn listen(&mut self, on: bool) -> io::Result<()> {
        if on == self.on {
            return Ok(());
        }
        // The second form says which kinds. A kernel that does not know it ignores it and has the
        // first.
        let bodies: &[&[u32]] = if on { &[&[LISTEN], &[LISTEN, WANTED]] } else { &[&[IGNORE]] };
        for body in bodies {
            let none = nix::sys::socket::MsgFlags::empty();
            nix::sys::socket::send(self.socket.as_raw_fd(), &request(body)?, none)?;
        }
        self.on = on;
        Ok(())
    }
}

impl Events {
    /// A subscription that is off.
    pub fn open() -> io::Result<Self> {
        // SAFETY: socket takes values and answers a new descriptor, which is ours alone.
        let socket = unsafe {
            let fd = libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
                libc::NETLINK_CONNECTOR,
            );
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: an all-zero sockaddr_nl is valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family =
            libc::sa_family_t::try_from(libc::AF_NETLINK).map_err(io::Error::other)?;
        address.nl_groups = CN_IDX_PROC;
        let len = libc::socklen_t::try_from(size_of_val(&address)).map_err(io::Error::other)?;
        // SAFETY: the address is a sockaddr_nl of the length given and lives through the call.
        if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
            return Err(io::Error::last_os_error());
        }
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBuf, &(1 << 20))?;
        Ok(Self { socket: Arc::new(socket), buffer: vec![0; 8192] })
    }

    /// To turn it on and off.
    pub fn subscription(&self) -> Subscription {
        Subscription { socket: self.socket.clone(), on: false }
    }

    /// Waits at most `timeout_ms`.
    pub fn wait(&mut self, timeout_ms: u16) -> io::Result<News> {
        use std::os::fd::AsFd as _;
        let mut fds = [nix::poll::PollFd::new(self.socket.as_fd(), nix::poll::PollFlags::POLLIN)];
        match nix::poll::poll(&mut fds, timeout_ms) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(News::Quiet),
            Err(errno) => return Err(errno.into()),
            Ok(_) => {}
        }
        let flags = nix::sys::socket::MsgFlags::MSG_DONTWAIT;
        match nix::sys::socket::recv(self.socket.as_raw_fd(), &mut self.buffer, flags) {
            Ok(len) => Ok(News::Changed(split(&self.buffer[..len]))),
            Err(nix::errno::Errno::ENOBUFS) => Ok(News::Lost),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(News::Quiet),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u32, tgid: u32) -> Vec<u8> {
        by_thread(what, tgid + 1, tgid)
    }

    fn by_thread(what: u32, pid: u32, tgid: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let words = [76, 3, 0, 0, CN_IDX_PROC, 1, 0, 0, 40, what, 0, 0, 0, pid, tgid, 0, 0, 0, 0];
        for word in words {
            bytes.extend_from_slice(&u32::to_ne_bytes(word));
        }
        bytes
    }

    #[test]
    fn exec_and_ids_are_news_and_the_rest_is_not() {
        let bytes = [message(EVENT_EXEC, 7), message(1, 8), message(EVENT_UID, 9)].concat();
        assert_eq!(split(&bytes), [7, 9]);
        assert!(split(&bytes[..50]).is_empty());
        assert!(split(&[0; 16]).is_empty());
    }

    #[test]
    fn a_name_is_news_of_the_first_thread_only() {
        let bytes = [by_thread(EVENT_COMM, 7, 7), by_thread(EVENT_COMM, 9, 8)].concat();
        assert_eq!(split(&bytes), [7]);
    }
}
