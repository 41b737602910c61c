// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy of somebody's socket, asked what it is.

use std::fs::File;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::abi::RlAddress;
use crate::libbpf::os;
use crate::{PlaneError, sys, tag};

/// A socket that clients come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// No other one has had it since the machine began.
    pub cookie: u64,
    /// As `/proc/PID/fd` has it.
    pub inode: u64,
    /// 6 or 17.
    pub protocol: u8,
    /// Bit 4: it has clients of IPv4; bit 6: of IPv6.
    pub versions: u8,
    /// Where it is bound: of IPv4 the first four bytes; 0: at all of ours.
    pub local: [u8; 16],
    /// And at which port.
    pub port: u16,
}

/// Puts a copy of somebody's socket among those that can be chosen. Plain words, for another
/// process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub(super) sockets: PathBuf,
}

fn option<T: Copy + Default>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    let mut value = T::default();
    let mut size = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: as many writable bytes as `size` says.
    let got = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(&mut value).cast(),
            &raw mut size,
        )
    };
    if got == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

fn invalid<T>(why: impl Into<String>) -> Result<T, PlaneError> {
    Err(PlaneError::Invalid(why.into()))
}

/// Where it is bound: address, versions of IP, port. `socket`: of whichever protocol.
fn bound(socket: &UdpSocket) -> Result<(RlAddress, u8, u16), PlaneError> {
    let address = match socket.local_addr() {
        Ok(address) => address,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return invalid("the socket has no clients by IP");
        }
        Err(error) => return Err(os("ask where a socket is bound")(error)),
    };
    let mut local = [0; 16];
    let six = match address.ip() {
        IpAddr::V4(four) => {
            local[..4].copy_from_slice(&four.octets());
            return Ok((local, 1 << 4, address.port()));
        }
        IpAddr::V6(six) => six,
    };
    if let Some(four) = six.to_ipv4_mapped() {
        local[..4].copy_from_slice(&four.octets());
        return Ok((local, 1 << 4, address.port()));
    }
    let only: i32 = option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
        .map_err(os("ask for IPV6_V6ONLY of a socket"))?;
    let both = six.is_unspecified() && only == 0;
    let versions = if both { 1 << 4 | 1 << 6 } else { 1 << 6 };
    Ok((six.octets(), versions, address.port()))
}

impl Admission {
    /// Puts a descriptor of ours among them, and says what it is.
    pub fn admit(&self, fd: BorrowedFd<'_>) -> Result<Socket, PlaneError> {
        let file = File::from(fd.try_clone_to_owned().map_err(os("hold a socket"))?);
        let about = file.metadata().map_err(os("look at a descriptor"))?;
        if !about.file_type().is_socket() {
            return invalid("the descriptor is no socket");
        }
        let socket = UdpSocket::from(OwnedFd::from(file));
        let fd = socket.as_fd();
        let ask = |name| option::<i32>(fd, libc::SOL_SOCKET, name).map_err(os("ask a socket"));
        let protocol @ (libc::IPPROTO_TCP | libc::IPPROTO_UDP) = ask(libc::SO_PROTOCOL)? else {
            return invalid("the socket is neither TCP nor UDP");
        };
        if protocol == libc::IPPROTO_TCP && ask(libc::SO_ACCEPTCONN)? == 0 {
            return invalid("the socket does not listen; listen(2) comes first");
        }
        if socket.peer_addr().is_ok() {
            return invalid("the socket is connected, so it has one client");
        }
        if option::<i32>(fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX).is_ok_and(|it| it != 0) {
            return invalid("the socket is bound to an interface");
        }
        let (local, versions, port) = bound(&socket)?;
        if port == 0 {
            return invalid("the socket is not bound to a port; bind(2) comes first");
        }
        let netns: u64 = option(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE)
            .map_err(os("ask for a socket's network name space"))?;
        if netns != tag::netns_cookie().map_err(os("the network name space"))? {
            return Err(PlaneError::Os {
                context: "the socket is in another network name space than reservd".into(),
                source: io::Error::from_raw_os_error(libc::EXDEV),
            });
        }
        let cookie: u64 = option(fd, libc::SOL_SOCKET, libc::SO_COOKIE)
            .map_err(os("ask for a socket's cookie"))?;
        let sockets = sys::open(&self.sockets).map_err(os("open the pinned map 'sockets'"))?;
        let number = u64::try_from(fd.as_raw_fd()).unwrap_or_default();
        sys::put(&sockets, &cookie, &number).map_err(|error| match error.raw_os_error() {
            Some(libc::E2BIG | libc::ENOSPC) => PlaneError::Full(format!(
                "{} sockets are for clients",
                reserv_facts::listen::SOCKETS_MAX
            )),
            _ => os("put a socket among those that are for clients")(error),
        })?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "6 or 17")]
        let protocol = protocol as u8;
        Ok(Socket { cookie, inode: about.ino(), protocol, versions, local, port })
    }
}
