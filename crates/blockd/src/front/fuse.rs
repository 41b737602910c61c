// SPDX-License-Identifier: MIT OR Apache-2.0
//! Front end without ublk: a FUSE mount that is one file, with a loop device over it. The loop
//! device's requests arrive as direct reads and writes of the file, several at once, in parts of at
//! most [`PART`] bytes.
//!
//! The session is the open file of /dev/fuse, which the keeper holds: the kernel keeps what a
//! worker has not answered, and sends it to the next one when that asks ([`Fuse::resend`]; Linux
//! 6.9).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use reserv_facts::fuse::{
    IN_HEADER, INIT_HAS_RESEND, MAJOR, OUT_HEADER, code, init, init_words, open, out_header, resend,
};

use super::{Arrived, Dataless, Front, Op, Shape};
use crate::buffer::{Buffer, Pool};
use crate::owners::{LOOP_SLOTS, Owners};
use crate::ring::Ring;

/// Most data of one request.
pub const PART: usize = 256 * 1024;
/// Which is what the loop device has at most in one request.
pub const PART_KIB: u32 = 256;
const _: () = assert!(PART_KIB as usize * 1024 == PART);
/// Requests that the kernel gives us at once: as many as the loop device has. A write comes with
/// its data, so this bounds our memory.
const BACKGROUND: u16 = 128;
const _: () = assert!(BACKGROUND as usize == LOOP_SLOTS);

/// Header and the fixed part of the longest request.
const HEAD_MAX: usize = 128;

/// The session.
pub struct Fuse {
    device: File,
    size: u64,
    dataless: Dataless,
    /// Not told yet: every request is without an owner.
    owners: Option<Owners>,
}

/// Open /dev/fuse for a new session.
pub fn open_device() -> io::Result<OwnedFd> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/fuse")
        .map(OwnedFd::from)
}

/// Mount the session over a file.
pub fn mount(device: &OwnedFd, at: &Path) -> io::Result<()> {
    let options = format!("fd={},rootmode=100600,user_id=0,group_id=0", device.as_raw_fd());
    let flags = nix::mount::MsFlags::MS_NOSUID
        | nix::mount::MsFlags::MS_NODEV
        | nix::mount::MsFlags::MS_NOEXEC;
    nix::mount::mount(Some("reserv-blockd"), at, Some("fuse"), flags, Some(options.as_str()))
        .map_err(Into::into)
}

/// And unmount it.
pub fn unmount(at: &Path) -> io::Result<()> {
    nix::mount::umount2(at, nix::mount::MntFlags::MNT_DETACH).map_err(Into::into)
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// Words of a reply, as they lie there.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
}

impl Fuse {
    /// Around the device of a session, whose file is `size` bytes long.
    pub fn new(device: OwnedFd, shape: &Shape) -> Self {
        let Shape { size, dataless, .. } = *shape;
        Self { device: File::from(device), size, dataless, owners: None }
    }

    /// A worker before us may have left requests unanswered: they come again.
    pub fn resend(&self) -> io::Result<()> {
        self.send(&[&resend()])
    }

    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let vectors: Vec<io::IoSlice<'_>> =
            parts.iter().map(|part| io::IoSlice::new(part)).collect();
        match io::Write::write_vectored(&mut &self.device, &vectors) {
            // Whoever asked was interrupted meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other.map(drop),
        }
    }

    fn reply(&self, unique: u64, errno: i32, parts: &[&[u8]]) -> io::Result<()> {
        let len = OUT_HEADER + parts.iter().map(|part| part.len()).sum::<usize>();
        let head = out_header(len, -errno, unique);
        let mut all: Vec<&[u8]> = vec![&head];
        all.extend(parts);
        self.send(&all)
    }

    fn attributes(&self) -> Words {
        // ino, size, blocks, atime, mtime, ctime, their ns, mode, nlink, uid, gid, rdev, blksize,
        // flags
        let words =
            Words::default().u64(1).u64(self.size).u64(self.size / 512).u64(0).u64(0).u64(0);
        words.u32(0).u32(0).u32(0).u32(0o100_600).u32(1).u32(0).u32(0).u32(0).u32(4096).u32(0)
    }

    fn init(&self, unique: u64, body: &[u8]) -> io::Result<()> {
        let readahead = word32(body, 8);
        let pages = u16::try_from(PART / 4096).map_err(io::Error::other)?;
        let flags = init::ASYNC_READ
            | init::BIG_WRITES
            | init::ASYNC_DIO
            | init::MAX_PAGES
            | init::INIT_EXT;
        let [flags, flags2] = init_words(flags | INIT_HAS_RESEND);
        let words = Words::default()
            .u32(MAJOR)
            .u32(40)
            .u32(readahead)
            .u32(flags)
            .u16(BACKGROUND)
            .u16(BACKGROUND);
        let part = u32::try_from(PART).map_err(io::Error::other)?;
        // max_write, time_gran, max_pages, map_alignment, flags2, then unused
        let words = words.u32(part).u32(1).u16(pages).u16(0).u32(flags2);
        let words = words.u32(0).u64(0).u64(0).u64(0);
        self.reply(unique, 0, &[&words.0])
    }

    /// Reads one request, and answers what is answered at once: for `fuzz/`.
    #[doc(hidden)]
    pub fn understand(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut head = [0_u8; IN_HEADER + 40];
        let got = bytes.len().min(head.len());
        head[..got].copy_from_slice(&bytes[..got]);
        self.take(&head, got).map(drop)
    }

    /// What is answered at once, or a request for the disk.
    fn take(&mut self, head: &[u8], got: usize) -> io::Result<Option<Arrived>> {
        let (opcode, unique) = (word32(head, 4), word64(head, 8));
        let body = head.get(IN_HEADER..got.min(HEAD_MAX)).unwrap_or_default();
        let request = |op, offset, len| Arrived {
            handle: unique,
            op,
            fua: false,
            offset,
            len,
            owner: None,
            buffer: None,
        };
        let errno = match opcode {
            code::READ => return Ok(Some(request(Op::Read, word64(body, 8), word32(body, 16)))),
            code::WRITE => return Ok(Some(request(Op::Write, word64(body, 8), word32(body, 16)))),
            code::FSYNC => return Ok(Some(request(Op::Flush, 0, 0))),
            code::FALLOCATE => {
                let (offset, length, mode) = (word64(body, 8), word64(body, 16), word32(body, 24));
                let mode = mode.cast_signed() & !libc::FALLOC_FL_KEEP_SIZE;
                let op = match mode {
                    // The loop device makes this of discards, and of zeros too: zeros it must be.
                    // What is refused the kernel does otherwise.
                    libc::FALLOC_FL_PUNCH_HOLE if self.dataless.unmap => Op::Unmap,
                    libc::FALLOC_FL_ZERO_RANGE if self.dataless.zero => Op::Zero,
                    _ => return self.reply(unique, libc::EOPNOTSUPP, &[]).map(|()| None),
                };
                match u32::try_from(length) {
                    Ok(len) => return Ok(Some(request(op, offset, len))),
                    Err(_) => libc::EFBIG,
                }
            }
            code::INIT => return self.init(unique, body).map(|()| None),
            code::GETATTR => {
                let words = Words::default().u64(3600).u32(0).u32(0);
                return self.reply(unique, 0, &[&words.0, &self.attributes().0]).map(|()| None);
            }
            code::OPEN => {
                let words = Words::default()
                    .u64(1)
                    .u32(open::DIRECT_IO | open::NOFLUSH | open::PARALLEL_DIRECT_WRITES)
                    .u32(0);
                return self.reply(unique, 0, &[&words.0]).map(|()| None);
            }
            code::STATFS => {
                let words = Words(vec![0; 80]);
                return self.reply(unique, 0, &[&words.0]).map(|()| None);
            }
            code::RELEASE | code::FLUSH | code::DESTROY => 0,
            code::FORGET | code::BATCH_FORGET | code::INTERRUPT => return Ok(None),
            code::SETATTR => libc::EPERM,
            _ => libc::ENOSYS,
        };
        self.reply(unique, errno, &[]).map(|()| None)
    }
}

impl Front for Fuse {
    fn kind(&self) -> &'static str {
        "loop"
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.device.as_raw_fd())
    }

    fn receive(
        &mut self,
        _ring: &mut Ring,
        _done: &[(u64, i32)],
        pool: &mut Pool,
        into: &mut Vec<Arrived>,
    ) -> io::Result<()> {
        loop {
            let buffer = pool.take();
            let mut head = [0_u8; IN_HEADER + 40];
            let vectors = [
                libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() },
                libc::iovec { iov_base: buffer.at().cast(), iov_len: PART },
            ];
            // SAFETY: two vectors of writable memory, as long as they say.
            let got = unsafe { libc::readv(self.device.as_raw_fd(), vectors.as_ptr(), 2) };
            let Ok(got) = usize::try_from(got) else {
                let error = io::Error::last_os_error();
                pool.give(buffer);
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(()),
                    // The request was taken back while it was read.
                    Some(libc::ENOENT | libc::EINTR) => continue,
                    _ => return Err(error),
                }
            };
            let Some(mut request) = self.take(&head, got.min(head.len()))? else {
                pool.give(buffer);
                continue;
            };
            if request.len as usize > PART && matches!(request.op, Op::Read | Op::Write) {
                pool.give(buffer);
                self.reply(request.handle, libc::EINVAL, &[])?;
                continue;
            }
            if let Some(owners) = &mut self.owners
                && matches!(request.op, Op::Read | Op::Write)
            {
                request.owner = owners.of_part(request.op, request.offset, request.len);
            }
            if request.op == Op::Write {
                request.buffer = Some(buffer);
            } else {
                pool.give(buffer);
            }
            into.push(request);
        }
    }

    fn buffers(&self) -> usize {
        // A request has one at most; and one is there for the next that comes.
        usize::from(BACKGROUND) + 1
    }

    fn copies(&self) -> Option<&'static str> {
        Some("FUSE has no other way")
    }

    fn registered(&self, _request: &Arrived) -> Option<u16> {
        None
    }

    fn load(&mut self, _request: &Arrived, _buffer: &mut Buffer) -> io::Result<()> {
        Err(io::Error::other("a write without data"))
    }

    fn answer(
        &mut self,
        _ring: &mut Ring,
        request: &Arrived,
        result: Result<(), i32>,
    ) -> io::Result<()> {
        // One that was sent again is known by its number with the bit that says so.
        let unique = request.handle;
        if let Err(errno) = result {
            return self.reply(unique, errno, &[]);
        }
        match (request.op, &request.buffer) {
            (Op::Read, Some(buffer)) => {
                self.reply(unique, 0, &[buffer.bytes(request.len as usize)])
            }
            (Op::Write, _) => self.reply(unique, 0, &[&Words::default().u32(request.len).u32(0).0]),
            _ => self.reply(unique, 0, &[]),
        }
    }

    fn set_owners(&mut self, owners: Owners) {
        self.owners = Some(owners);
    }
}
