// SPDX-License-Identifier: MIT OR Apache-2.0
//! The little of rtnetlink that a driver of an interface needs: which root qdisc there is, another in its place, and back.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use serde::{Deserialize, Serialize};

/// A qdisc as the kernel describes it: enough to make it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Qdisc {
    /// `fq_codel`, `noqueue` …
    pub(super) kind: String,
    /// 0: the kernel chose it, and will again.
    pub(super) handle: u32,
    /// What it was configured with, as the kernel's message has it.
    pub(super) options: Vec<u8>,
}

const TC_H_ROOT: u32 = 0xffff_ffff;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const NLA_TYPE_MASK: u16 = 0x3fff;
const HEADER: usize = 16; // struct nlmsghdr
const TCMSG: usize = 20; // struct tcmsg

/// The index of an interface in the caller's network name space; `None`: there is none.
pub(super) fn index_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => Some(index),
    }
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: a new socket; no memory is handed over.
    let fd =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct nlattr` with its value, padded.
fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The attributes in a message's rest.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let [a, b, c, d, ..] = *bytes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let Some(value) = bytes.get(4..length) else { break };
        found.push((u16::from_ne_bytes([c, d]) & NLA_TYPE_MASK, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    u32::from_ne_bytes(four.unwrap_or_default())
}

fn message(kind: u16, flags: i32, index: u32, handle: u32, parent: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + TCMSG + rest.len());
    let length = u32::try_from(HEADER + TCMSG + rest.len()).unwrap_or(u32::MAX);
    let flags = u16::try_from(libc::NLM_F_REQUEST | flags).unwrap_or_default();
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]); // seq, pid
    out.extend([0; 4]); // family, padding
    for word in [index, handle, parent, 0] {
        out.extend(word.to_ne_bytes());
    }
    out.extend(rest);
    out
}

/// Sends one message and hands each answer's type and body to `each`, until the kernel says that this was all.
fn talk(message: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
    let fd = socket()?;
    // SAFETY: the message is memory of that length.
    let sent = unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut buffer = vec![0_u8; 1 << 16];
    loop {
        // SAFETY: the buffer is writable memory of that length.
        let got = unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        let mut rest = &buffer[..got];
        while rest.len() >= HEADER {
            let length = word(rest, 0) as usize;
            let kind = u16::from_ne_bytes([rest[4], rest[5]]);
            let Some(body) = rest.get(HEADER..length) else { break };
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => {
                    return match word(body, 0).cast_signed() {
                        0 => Ok(()),
                        errno => Err(io::Error::from_raw_os_error(-errno)),
                    };
                }
                _ => each(kind, body),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// The root qdisc of an interface, and how many others hang below it.
pub(super) fn root(index: u32) -> io::Result<(Option<Qdisc>, usize)> {
    let ask = message(libc::RTM_GETQDISC, libc::NLM_F_DUMP, index, 0, 0, &[]);
    let (mut root, mut below) = (None, 0);
    talk(&ask, &mut |kind, body| {
        if kind != libc::RTM_NEWQDISC || word(body, 4) != index {
            return;
        }
        let (handle, parent) = (word(body, 8), word(body, 12));
        let found = attributes(body.get(TCMSG..).unwrap_or_default());
        let of = |wanted| found.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value);
        let kind = of(TCA_KIND).unwrap_or_default();
        let kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned();
        if parent == TC_H_ROOT {
            root = Some(Qdisc { kind, handle, options: of(TCA_OPTIONS).unwrap_or_default().to_vec() });
        } else if kind != "clsact" && kind != "ingress" {
            below += 1;
        }
    })?;
    Ok((root, below))
}

/// A qdisc at the root, instead of what is there.
pub(super) fn replace(index: u32, handle: u32, kind: &str, options: &[u8]) -> io::Result<()> {
    let mut rest = Vec::new();
    let mut name = kind.as_bytes().to_vec();
    name.push(0);
    attribute(&mut rest, TCA_KIND, &name);
    if !options.is_empty() {
        attribute(&mut rest, TCA_OPTIONS, options);
    }
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    talk(&message(libc::RTM_NEWQDISC, flags, index, handle, TC_H_ROOT, &rest), &mut |_, _| {})
}

/// The root qdisc goes; the kernel chooses one.
pub(super) fn remove(index: u32) -> io::Result<()> {
    talk(&message(libc::RTM_DELQDISC, libc::NLM_F_ACK, index, 0, TC_H_ROOT, &[]), &mut |_, _| {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_again_and_torn_ones_are_not() {
        let mut bytes = Vec::new();
        attribute(&mut bytes, TCA_KIND, b"fq\0");
        attribute(&mut bytes, TCA_OPTIONS, &[1, 2, 3, 4, 5]);
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(attributes(&bytes), [(TCA_KIND, &b"fq\0"[..]), (TCA_OPTIONS, &[1, 2, 3, 4, 5][..])]);
        assert_eq!(attributes(&bytes[..bytes.len() - 4]).len(), 1, "a length beyond the end");
        assert_eq!(attributes(&[3, 0, 1, 0, 9]), [], "a length below the header's");
    }

    #[test]
    fn the_loopback_has_the_kernels_choice() {
        let Some(index) = index_of("lo") else { return };
        let (found, below) = root(index).expect("rtnetlink answers anybody");
        assert!(found.is_none_or(|q| !q.kind.is_empty()));
        assert_eq!(below, 0);
    }
}
