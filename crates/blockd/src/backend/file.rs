// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file or a block device, through io_uring, past the page cache where that is possible. What it has acknowledged is where a flush finds it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use io_uring::{IoUring, opcode, types};

use super::{Backend, Io};
use crate::front::Op;
use crate::sysfs;

/// Entries of the ring.
const RING: u32 = 1024;
/// Steps of a size.
const SECTOR: u64 = 512;

/// See the head of this file.
pub struct FileBackend {
    file: File,
    ring: IoUring,
    size: u64,
    block: u32,
    arm: bool,
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
    if bad { Err(io::Error::last_os_error()) } else { Ok((size, u32::try_from(block).unwrap_or(512))) }
}

impl FileBackend {
    /// Open a file or a block device for this server alone.
    pub fn open(path: &Path) -> io::Result<Self> {
        let is_device = std::fs::metadata(path)?.file_type().is_block_device();
        // Of a block device O_EXCL says that it is ours: nobody mounts it meanwhile.
        let exclusive = if is_device { libc::O_EXCL } else { 0 };
        let open =
            |direct| OpenOptions::new().read(true).write(true).custom_flags(direct | exclusive).open(path);
        let file = match open(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0)?,
            other => other?,
        };
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
            (length, Self::direct_block(&file))
        };
        if size == 0 {
            return Err(io::Error::other("it has no bytes"));
        }
        let size = size / u64::from(block) * u64::from(block);
        let below = Self::device(path)?;
        Ok(Self { file, ring: IoUring::new(RING)?, size, block, arm: sysfs::is_rotational(below) })
    }

    /// What direct I/O of a file wants: the file system says, or its device's usual 512.
    fn direct_block(file: &File) -> u32 {
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
        let asked = if done == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0 {
            stat.stx_dio_offset_align
        } else {
            0
        };
        if asked.is_power_of_two() { asked.clamp(512, 4096) } else { 512 }
    }

    /// The device that it is, or lies on: major and minor.
    pub fn device(path: &Path) -> io::Result<(u32, u32)> {
        let found = std::fs::metadata(path)?;
        let dev = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
        Ok((libc::major(dev), libc::minor(dev)))
    }
}

impl Backend for FileBackend {
    fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    unsafe fn submit(&mut self, io: &Io) -> io::Result<()> {
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = match io.op {
            Op::Read => opcode::Read::new(fd, io.data, io.len).offset(io.offset).build(),
            Op::Write => opcode::Write::new(fd, io.data, io.len)
                .offset(io.offset)
                .rw_flags(if io.fua { libc::RWF_DSYNC } else { 0 })
                .build(),
            Op::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Op::Discard => opcode::Fallocate::new(fd, io.len.into())
                .offset(io.offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            Op::Zero => opcode::Fallocate::new(fd, io.len.into())
                .offset(io.offset)
                .mode(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        };
        let entry = entry.user_data(io.id);
        // SAFETY: the caller's promise about the data; the file lives as long as the ring.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn enter(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { self.ring.submit().map(drop) }
    }

    fn completed(&mut self, into: &mut Vec<(u64, i32)>) {
        into.extend(self.ring.completion().map(|done| (done.user_data(), done.result())));
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn block(&self) -> u32 {
        self.block
    }

    fn depth(&self) -> u32 {
        super::DEPTH
    }

    fn arm(&self) -> bool {
        self.arm
    }
}
