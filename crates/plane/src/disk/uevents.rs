// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's word that block devices have come, gone or changed (netlink, kobject events): asked
//! whether there was one, it answers without waiting.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// The kernel's own events, not those of a device manager.
const KERNEL: u32 = 1;
/// An event is less than this.
const EVENT_MAX: usize = 8192;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Uevents(OwnedFd);

impl Uevents {
    /// From now on; `None` where the kernel has no such events.
    pub(super) fn listen() -> Option<Self> {
        let opened = || {
            let fd = socket(
                AddressFamily::Netlink,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
                SockProtocol::NetlinkKObjectUEvent,
            )?;
            bind(fd.as_raw_fd(), &NetlinkAddr::new(0, KERNEL))?;
            Ok::<_, Errno>(fd)
        };
        opened()
            .inspect_err(|error| {
                tracing::warn!(%error, "what is stacked above disks is looked at only when they come");
            })
            .ok()
            .map(Self)
    }

    /// Whether there was one since we were last asked. One that was lost counts.
    pub(super) fn any(&self) -> bool {
        let mut buffer = [0; EVENT_MAX];
        let mut found = false;
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(len) => found |= of_block(buffer.get(..len).unwrap_or_default()),
                Err(Errno::ENOBUFS) => found = true,
                Err(Errno::EINTR) => {}
                Err(_) => return found,
            }
        }
    }
}

/// Words, each with a NUL behind it.
fn of_block(event: &[u8]) -> bool {
    event.split(|byte| *byte == 0).any(|word| word == b"SUBSYSTEM=block")
}

/// For `fuzz/`.
pub fn understand(event: &[u8]) {
    let _ = of_block(event);
}

#[cfg(test)]
mod tests {
    use super::of_block;

    #[test]
    fn only_block_devices_are_meant() {
        assert!(of_block(
            b"add@/devices/virtual/block/dm-0\0ACTION=add\0SUBSYSTEM=block\0SEQNUM=7\0"
        ));
        assert!(!of_block(b"add@/devices/virtual/net/lo\0ACTION=add\0SUBSYSTEM=net\0"));
        assert!(!of_block(b"libudev\0SUBSYSTEM=blockade\0"));
        assert!(!of_block(b""));
    }
}
