// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file or a block device, through io_uring, past the page cache where that is possible. What it
//! has acknowledged is where a flush finds it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use io_uring::{IoUring, opcode, squeue, types};

use super::{Backend, Data, Io};
use crate::front::{Dataless, Op};
use crate::ring::{Of, Ring};
use crate::sysfs;

/// Steps of a size.
const SECTOR: u64 = 512;

/// See the head of this file.
pub struct FileBackend {
    file: File,
    size: u64,
    block: u32,
    memory: u32,
    arm: bool,
    dataless: Dataless,
    /// A device that takes discards from the ring (Linux 6.12).
    discards: bool,
}

/// `BLOCK_URING_CMD_DISCARD` of a device.
fn discard(file: types::Fd, at: u64, len: u64) -> squeue::Entry {
    const DISCARD: u32 = 0x1200;
    let mut command = [0; 16];
    command[..8].copy_from_slice(&len.to_ne_bytes());
    opcode::UringCmd16::new(file, DISCARD).cmd(command).addr(Some(at)).build()
}

/// Whether this device and kernel have that: of no bytes it is EINVAL then, and EOPNOTSUPP else.
fn takes_discards(file: &File) -> io::Result<bool> {
    let mut ring = IoUring::new(1)?;
    // SAFETY: it names no memory.
    let pushed = unsafe { ring.submission().push(&discard(types::Fd(file.as_raw_fd()), 0, 0)) };
    pushed.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    Ok(ring.completion().next().is_some_and(|done| done.result() == -libc::EINVAL))
}

/// Whether the file's file system has this: asked behind the end of the file, where it changes
/// nothing that anybody reads.
fn takes(file: &File, mode: i32) -> bool {
    const LEN: libc::off_t = 4096;
    let Ok(len) = file.metadata().map(|found| found.len()) else { return false };
    let Ok(end) = libc::off_t::try_from(len.next_multiple_of(4096)) else { return false };
    let ask = |mode| {
        // SAFETY: numbers only.
        unsafe {
            libc::fallocate(file.as_raw_fd(), mode | libc::FALLOC_FL_KEEP_SIZE, end, LEN) == 0
        }
    };
    let there = ask(mode);
    if there {
        ask(libc::FALLOC_FL_PUNCH_HOLE);
    }
    there
}

fn ioctl_size(file: &File) -> io::Result<(u64, u32)> {
    const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
    const BLKSSZGET: libc::c_ulong = 0x1268;
    let (mut size, mut block) = (0_u64, 0_i32);
    // SAFETY: each writes one number of the size given.
    let bad = unsafe {
        libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size) < 0
            || libc::ioctl(file.as_raw_fd(), BLKSSZGET, &raw mut block) < 0
    };
    if bad {
        Err(io::Error::last_os_error())
    } else {
        Ok((size, u32::try_from(block).unwrap_or(512)))
    }
}

/// A device that somebody else has, in words that say who.
fn in_use(path: &Path, error: &io::Error) -> io::Error {
    let device = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let dev = std::fs::metadata(&device).map_or(0, |found| found.rdev());
    let users = sysfs::users(&name, dev, &[]);
    let who = if users.is_empty() { error.to_string() } else { users.join(", ") };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("it is in use: {who}"))
}

impl FileBackend {
    /// Open a file or a block device for this server alone.
    pub fn open(path: &Path) -> io::Result<Self> {
        let is_device = std::fs::metadata(path)?.file_type().is_block_device();
        // Of a block device O_EXCL says that it is ours: nobody mounts it meanwhile.
        let exclusive = if is_device { libc::O_EXCL } else { 0 };
        let open = |direct| {
            OpenOptions::new().read(true).write(true).custom_flags(direct | exclusive).open(path)
        };
        let file = match open(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0),
            other => other,
        };
        let file = match file {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && is_device => {
                return Err(in_use(path, &error));
            }
            other => other?,
        };
        let (memory, offset) = Self::direct_blocks(&file);
        let (size, block) = if is_device {
            ioctl_size(&file)?
        } else {
            // SAFETY: takes numbers only.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } < 0 {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            let length = file.metadata()?.len();
            if length % SECTOR != 0 {
                // A disk would be without the file's end.
                return Err(io::Error::other(format!(
                    "its {length} bytes are not whole sectors of {SECTOR}"
                )));
            }
            (length, offset)
        };
        if size == 0 {
            return Err(io::Error::other("it has no bytes"));
        }
        let size = size / u64::from(block) * u64::from(block);
        let below = Self::device(path)?;
        let discards = is_device && takes_discards(&file)?;
        let dataless = if is_device {
            let zero = sysfs::can_zero(below);
            Dataless { discard: discards || (zero && sysfs::can_discard(below)), unmap: zero, zero }
        } else {
            let hole = takes(&file, libc::FALLOC_FL_PUNCH_HOLE);
            Dataless { discard: hole, unmap: hole, zero: takes(&file, libc::FALLOC_FL_ZERO_RANGE) }
        };
        Ok(Self { file, size, block, memory, arm: sysfs::is_rotational(below), dataless, discards })
    }

    /// What direct I/O wants memory and offsets to be aligned to: the file system says, or the
    /// device; or their usual 512.
    fn direct_blocks(file: &File) -> (u32, u32) {
        // SAFETY: the structure is plain numbers.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        // SAFETY: an empty path that outlives the call, and one structure to write.
        let done = unsafe {
            libc::statx(
                file.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                libc::STATX_DIOALIGN,
                &raw mut stat,
            )
        };
        let said = done == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
        let or_usual = |asked: u32, least| {
            if said && asked.is_power_of_two() { asked.clamp(least, 4096) } else { 512 }
        };
        (or_usual(stat.stx_dio_mem_align, 4), or_usual(stat.stx_dio_offset_align, 512))
    }

    /// The device that it is, or lies on: major and minor.
    pub fn device(path: &Path) -> io::Result<(u32, u32)> {
        let found = std::fs::metadata(path)?;
        let dev = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
        Ok((libc::major(dev), libc::minor(dev)))
    }
}

impl Backend for FileBackend {
    unsafe fn submit(&mut self, ring: &mut Ring, io: &Io) -> io::Result<()> {
        let (file, at) = (types::Fd(self.file.as_raw_fd()), io.offset);
        let through = if io.fua { libc::RWF_DSYNC } else { 0 };
        // The address of a byte of a registered buffer that is the kernel's is its place in it.
        let entry = match (io.op, io.data) {
            (Op::Read, Data::At(data)) => opcode::Read::new(file, data, io.len).offset(at).build(),
            (Op::Read, Data::Registered(buffer, from)) => {
                opcode::ReadFixed::new(file, from as *mut u8, io.len, buffer).offset(at).build()
            }
            (Op::Write, Data::At(data)) => {
                opcode::Write::new(file, data, io.len).offset(at).rw_flags(through).build()
            }
            (Op::Write, Data::Registered(buffer, from)) => {
                let write = opcode::WriteFixed::new(file, from as *const u8, io.len, buffer);
                write.offset(at).rw_flags(through).build()
            }
            (Op::Read | Op::Write, Data::None) => return Err(io::ErrorKind::InvalidInput.into()),
            (Op::Flush, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            (Op::Discard, _) if self.discards => discard(file, at, io.len.into()),
            // Of a device a hole is zeros that it may give up the place for. Where it knows none,
            // zeros are written.
            (Op::Discard | Op::Unmap, _) if self.dataless.unmap => {
                opcode::Fallocate::new(file, io.len.into())
                    .offset(at)
                    .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                    .build()
            }
            (Op::Discard | Op::Unmap | Op::Zero, _) => opcode::Fallocate::new(file, io.len.into())
                .offset(at)
                .mode(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        };
        // SAFETY: the caller's promise about the data.
        unsafe { ring.push(entry, Of::Backend, io.id) }
    }

    fn completed(&mut self, done: &[(u64, i32)], into: &mut Vec<(u64, i32)>) {
        into.extend_from_slice(done);
    }

    fn memory_block(&self) -> u32 {
        self.memory
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn block(&self) -> u32 {
        self.block
    }

    fn dataless(&self) -> Dataless {
        self.dataless
    }

    fn depth(&self) -> u32 {
        super::DEPTH
    }

    fn arm(&self) -> bool {
        self.arm
    }
}
