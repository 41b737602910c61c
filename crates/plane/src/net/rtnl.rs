// SPDX-License-Identifier: MIT OR Apache-2.0
//! The little of rtnetlink that the drivers of an interface need: which root qdisc there is,
//! another in its place, and back; classes of HTB.

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
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
const NLA_TYPE_MASK: u16 = 0x3fff;
const HEADER: usize = 16; // struct nlmsghdr
const TCMSG: usize = 20; // struct tcmsg
const IFINFOMSG: usize = 16; // struct ifinfomsg
const GENLMSG: usize = 4; // struct genlmsghdr
const GENL_VERSION: u32 = 1;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u32 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// linux/netdev.h
const NETDEV_CMD_NAPI_GET: u32 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_PID: u16 = 4;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_MASTER: u16 = 10;
const IFLA_STATS64: u16 = 23;
/// Of `tx_dropped` in `struct rtnl_link_stats64`.
const TX_DROPPED: usize = 7 * 8;

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
    socket_of(libc::NETLINK_ROUTE)
}

fn socket_of(protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: a new socket; no memory is handed over.
    let fd =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct nlattr` with its value, padded.
pub(super) fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
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

fn long(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok());
    u64::from_ne_bytes(eight.unwrap_or_default())
}

fn message(kind: u16, flags: i32, index: u32, handle: u32, parent: u32, rest: &[u8]) -> Vec<u8> {
    message_of(kind, flags, &[0, index, handle, parent, 0], rest)
}

/// `words`: the message's own structure, a family of 0 first.
fn message_of(kind: u16, flags: i32, words: &[u32], rest: &[u8]) -> Vec<u8> {
    let all = HEADER + words.len() * 4 + rest.len();
    let mut out = Vec::with_capacity(all);
    let length = u32::try_from(all).unwrap_or(u32::MAX);
    let flags = u16::try_from(libc::NLM_F_REQUEST | flags).unwrap_or_default();
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]); // seq, pid
    for word in words {
        out.extend(word.to_ne_bytes());
    }
    out.extend(rest);
    out
}

/// Sends one message and hands each answer's type and body to `each`, until the kernel says that
/// this was all.
fn talk(message: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
    talk_by(libc::NETLINK_ROUTE, message, each)
}

fn talk_by(protocol: i32, message: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
    let fd = socket_of(protocol)?;
    // SAFETY: the message is memory of that length.
    let sent = unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut buffer = vec![0_u8; 1 << 16];
    loop {
        // SAFETY: the buffer is writable memory of that length.
        let got =
            unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        if let Some(ended) = answers(&buffer[..got], each) {
            return ended;
        }
    }
}

/// The answers of one datagram; how they ended, if this was the last one.
fn answers(mut rest: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> Option<io::Result<()>> {
    while rest.len() >= HEADER {
        let length = word(rest, 0) as usize;
        let kind = u16::from_ne_bytes([rest[4], rest[5]]);
        let Some(body) = rest.get(HEADER..length) else { break };
        match i32::from(kind) {
            libc::NLMSG_DONE => return Some(Ok(())),
            libc::NLMSG_ERROR => {
                return Some(match word(body, 0).cast_signed() {
                    0 => Ok(()),
                    errno => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
                });
            }
            _ => each(kind, body),
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Reads a datagram as every answer that is asked for here: for `fuzz/`.
pub fn understand(bytes: &[u8]) {
    let index = word(bytes, HEADER + 4);
    let (mut top, mut below) = (None, 0);
    let _ = answers(bytes, &mut |kind, body| {
        let _ = family_in(body);
        let _ = napi_thread_in(index, body);
        qdisc_in(kind, index, body, &mut top, &mut below);
        let _ = class_in(kind, index, body);
        let _ = of_body(body, IFLA_STATS64, &mut |stats| long(stats, TX_DROPPED));
        let _ = of_body(body, IFLA_GSO_MAX_SIZE, &mut |size| word(size, 0).into());
    });
}

/// The root qdisc of an interface, and how many others hang below it.
pub(super) fn root(index: u32) -> io::Result<(Option<Qdisc>, usize)> {
    let ask = message(libc::RTM_GETQDISC, libc::NLM_F_DUMP, index, 0, 0, &[]);
    let (mut root, mut below) = (None, 0);
    talk(&ask, &mut |kind, body| qdisc_in(kind, index, body, &mut root, &mut below))?;
    Ok((root, below))
}

fn qdisc_in(kind: u16, index: u32, body: &[u8], root: &mut Option<Qdisc>, below: &mut usize) {
    if kind != libc::RTM_NEWQDISC || word(body, 4) != index {
        return;
    }
    let (handle, parent) = (word(body, 8), word(body, 12));
    let found = attributes(body.get(TCMSG..).unwrap_or_default());
    let of = |wanted| found.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value);
    let kind = of(TCA_KIND).unwrap_or_default();
    let kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned();
    if parent == TC_H_ROOT {
        *root = Some(Qdisc { kind, handle, options: of(TCA_OPTIONS).unwrap_or_default().to_vec() });
    } else if kind != "clsact" && kind != "ingress" {
        *below += 1;
    }
}

/// A qdisc at the root, instead of what is there.
pub(super) fn replace(index: u32, handle: u32, kind: &str, options: &[u8]) -> io::Result<()> {
    replace_below(index, TC_H_ROOT, handle, kind, options)
}

/// A qdisc below a class, instead of what is there; one of the same kind is changed.
pub(super) fn replace_below(
    index: u32,
    parent: u32,
    handle: u32,
    kind: &str,
    options: &[u8],
) -> io::Result<()> {
    let mut rest = Vec::new();
    let mut name = kind.as_bytes().to_vec();
    name.push(0);
    attribute(&mut rest, TCA_KIND, &name);
    if !options.is_empty() {
        attribute(&mut rest, TCA_OPTIONS, options);
    }
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    talk(&message(libc::RTM_NEWQDISC, flags, index, handle, parent, &rest), &mut |_, _| {})
}

/// A class of HTB: made, or changed.
pub(super) fn put_class(index: u32, class: u32, parent: u32, options: &[u8]) -> io::Result<()> {
    let mut rest = Vec::new();
    attribute(&mut rest, TCA_KIND, b"htb\0");
    attribute(&mut rest, TCA_OPTIONS, options);
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE;
    talk(&message(libc::RTM_NEWTCLASS, flags, index, class, parent, &rest), &mut |_, _| {})
}

/// A class goes, with what waits in it.
pub(super) fn remove_class(index: u32, class: u32) -> io::Result<()> {
    talk(&message(libc::RTM_DELTCLASS, libc::NLM_F_ACK, index, class, 0, &[]), &mut |_, _| {})
}

/// What a class has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) dropped: u32,
    pub(super) waiting: u32,
    pub(super) waiting_bytes: u32,
}

/// All classes of an interface, by handle.
pub(super) fn classes(index: u32) -> io::Result<Vec<(u32, Counters)>> {
    let ask = message(libc::RTM_GETTCLASS, libc::NLM_F_DUMP, index, 0, 0, &[]);
    let mut found = Vec::new();
    talk(&ask, &mut |kind, body| found.extend(class_in(kind, index, body)))?;
    Ok(found)
}

/// One of them; `None`: there is none.
pub(super) fn class(index: u32, handle: u32) -> io::Result<Option<Counters>> {
    let ask = message(libc::RTM_GETTCLASS, libc::NLM_F_ACK, index, handle, 0, &[]);
    let mut found = None;
    match talk(&ask, &mut |kind, body| found = class_in(kind, index, body).or(found)) {
        Ok(()) => Ok(found.map(|(_, counters)| counters)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn class_in(kind: u16, index: u32, body: &[u8]) -> Option<(u32, Counters)> {
    if kind != libc::RTM_NEWTCLASS || word(body, 4) != index {
        return None;
    }
    let mut counters = Counters::default();
    for (kind, value) in attributes(body.get(TCMSG..).unwrap_or_default()) {
        if kind != TCA_STATS2 {
            continue;
        }
        for (kind, value) in attributes(value) {
            match kind {
                TCA_STATS_BASIC => {
                    counters.bytes = long(value, 0);
                    counters.packets = counters.packets.max(word(value, 8).into());
                }
                TCA_STATS_PKT64 => counters.packets = long(value, 0),
                TCA_STATS_QUEUE => {
                    counters.waiting = word(value, 0);
                    counters.waiting_bytes = word(value, 4);
                    counters.dropped = word(value, 8);
                }
                _ => {}
            }
        }
    }
    Some((word(body, 8), counters))
}

/// The largest packet of many segments that sockets make for an interface.
pub(super) fn gso_max(index: u32) -> io::Result<u32> {
    of_link(index, IFLA_GSO_MAX_SIZE, &mut |size| word(size, 0).into())
        .map(|size| u32::try_from(size).unwrap_or(u32::MAX))
}

/// Packets that an interface dropped on their way out: by its device, or because it had no qdisc.
pub(super) fn tx_dropped(index: u32) -> io::Result<u64> {
    of_link(index, IFLA_STATS64, &mut |stats| long(stats, TX_DROPPED))
}

/// An attribute of an interface; 0: it has none.
fn of_link(index: u32, wanted: u16, read: &mut dyn FnMut(&[u8]) -> u64) -> io::Result<u64> {
    let ask = message_of(libc::RTM_GETLINK, libc::NLM_F_ACK, &[0, index, 0, 0], &[]);
    let mut found = 0;
    talk(&ask, &mut |_, body| found = of_body(body, wanted, read).unwrap_or(found))?;
    Ok(found)
}

fn of_body(body: &[u8], wanted: u16, read: &mut dyn FnMut(&[u8]) -> u64) -> Option<u64> {
    let all = attributes(body.get(IFINFOMSG..).unwrap_or_default());
    all.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| read(value))
}

/// And another one; connections that there are keep theirs.
pub(super) fn set_gso_max(index: u32, size: u32) -> io::Result<()> {
    let mut rest = Vec::new();
    attribute(&mut rest, IFLA_GSO_MAX_SIZE, &size.to_ne_bytes());
    talk(&message_of(libc::RTM_NEWLINK, libc::NLM_F_ACK, &[0, index, 0, 0], &rest), &mut |_, _| {})
}

/// The queue of a class goes, with what waits in it; the kernel puts another one there.
pub(super) fn remove_below(index: u32, parent: u32) -> io::Result<()> {
    talk(&message(libc::RTM_DELQDISC, libc::NLM_F_ACK, index, 0, parent, &[]), &mut |_, _| {})
}

/// The interface that an interface belongs to (a bridge, a bond, a routing domain); 0: none.
pub(super) fn master(index: u32) -> io::Result<u32> {
    of_link(index, IFLA_MASTER, &mut |value| word(value, 0).into())
        .map(|index| u32::try_from(index).unwrap_or(u32::MAX))
}

/// The threads of an interface that polls by threads (`NETDEV_CMD_NAPI_GET`, Linux 6.8).
pub(super) fn napi_threads(index: u32) -> io::Result<Vec<i32>> {
    let mut name = Vec::new();
    attribute(&mut name, CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let words = [CTRL_CMD_GETFAMILY | GENL_VERSION << 8];
    let ask = message_of(GENL_ID_CTRL, libc::NLM_F_ACK, &words, &name);
    let mut family = None;
    talk_by(libc::NETLINK_GENERIC, &ask, &mut |_, body| family = family.or(family_in(body)))?;
    let family = family.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    let mut of = Vec::new();
    attribute(&mut of, NETDEV_A_NAPI_IFINDEX, &index.to_ne_bytes());
    let words = [NETDEV_CMD_NAPI_GET | GENL_VERSION << 8];
    let ask = message_of(family, libc::NLM_F_DUMP, &words, &of);
    let mut found = Vec::new();
    talk_by(libc::NETLINK_GENERIC, &ask, &mut |_, body| found.extend(napi_thread_in(index, body)))?;
    Ok(found)
}

fn genl_attribute(body: &[u8], wanted: u16) -> Option<&[u8]> {
    let all = attributes(body.get(GENLMSG..).unwrap_or_default());
    all.into_iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn family_in(body: &[u8]) -> Option<u16> {
    let value = genl_attribute(body, CTRL_ATTR_FAMILY_ID)?.get(..2)?;
    Some(u16::from_ne_bytes(value.try_into().ok()?))
}

fn napi_thread_in(index: u32, body: &[u8]) -> Option<i32> {
    let of = word(genl_attribute(body, NETDEV_A_NAPI_IFINDEX)?, 0);
    let tid = word(genl_attribute(body, NETDEV_A_NAPI_PID)?, 0);
    (of == index).then_some(i32::try_from(tid).ok()).flatten().filter(|tid| *tid > 0)
}

/// The longest packet of an interface, without its link header.
pub(super) fn mtu(name: &str) -> io::Result<u32> {
    // SAFETY: plain numbers, for which 0 is a value.
    let mut ask: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in ask.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from.cast_signed();
    }
    let fd = socket()?;
    // SAFETY: the kernel writes into the structure, which outlives the call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU, &raw mut ask) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFMTU fills this member.
    Ok(u32::try_from(unsafe { ask.ifr_ifru.ifru_mtu }).unwrap_or_default())
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
        assert_eq!(
            attributes(&bytes),
            [(TCA_KIND, &b"fq\0"[..]), (TCA_OPTIONS, &[1, 2, 3, 4, 5][..])]
        );
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
