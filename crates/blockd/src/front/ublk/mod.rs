// SPDX-License-Identifier: MIT OR Apache-2.0
//! Front end on ublk: a block device of the kernel whose requests are handed to this process, one slot per tag, over a ring.
//!
//! A slot is with the kernel (a fetch command waits in the ring) or with us (its command was completed, and the description of the request stands in the
//! mapped array) until the answer goes back together with the next fetch. Data are copied at dispatch, not at arrival
//! (`UBLK_F_USER_COPY`), so a request that waits has no memory of ours. When this process dies, the kernel keeps what was not answered and sends it to the
//! next one again (`UBLK_F_USER_RECOVERY_REISSUE`).

pub mod control;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

use self::control::{Control, Info, Params, flag, io_command};
use super::{Arrived, Front, Op, Shape};
use crate::buffer::{Buffer, Pool};
use crate::owners::Owners;

/// Requests that the kernel gives us at once. Few would be one queue's, and the others starve before the scheduler sees them.
pub const DEPTH: u16 = 256;
/// Most data of one request.
const PART: u32 = 256 * 1024;
/// Most bytes of a request without data: their lengths are 32 bits here.
const DATALESS_MAX: u32 = 1 << 30;
/// Size of `struct ublksrv_io_cmd`.
const IO_COMMAND: usize = 16;
const FETCH_REQ: u32 = io_command(0x20);
const COMMIT_AND_FETCH_REQ: u32 = io_command(0x21);
/// Where a request's data are in the character device: its tag is in the bits from this one on.
const DATA_AT: u64 = 0x8000_0000;
const DATA_TAG: u32 = 25;
/// Of a handle: the tag. Above it arrivals are counted, so that handles are in their order.
const TAG_BITS: u32 = 16;
/// Until the character device is there.
const NODE_MAX: Duration = Duration::from_secs(10);

mod op {
    pub(super) const READ: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const FLUSH: u32 = 2;
    pub(super) const DISCARD: u32 = 3;
    pub(super) const WRITE_ZEROES: u32 = 5;
    pub(super) const MASK: u32 = 0xff;
    pub(super) const FUA: u32 = 1 << 13;
}

mod attribute {
    pub(super) const ROTATIONAL: u32 = 1 << 1;
    pub(super) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(super) const FUA: u32 = 1 << 3;
    pub(super) const BASIC: u32 = 1 << 0;
    pub(super) const DISCARD: u32 = 1 << 1;
}

/// `struct ublksrv_io_desc`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Description {
    op_flags: u32,
    sectors: u32,
    start: u64,
    address: u64,
}

/// See the head of this file.
pub struct Ublk {
    id: u32,
    ring: IoUring,
    device: File,
    descriptions: NonNull<Description>,
    owners: Option<Owners>,
    arrivals: u64,
    /// The device was ended: no more requests come.
    stopped: bool,
}

fn shift(bytes: u32) -> u8 {
    u8::try_from(bytes.max(512).trailing_zeros()).unwrap_or(9)
}

/// A new device of this shape, which bears a mark. Its number.
pub fn create(shape: &Shape, mark: u64) -> io::Result<u32> {
    let mut control = Control::open()?;
    let asked = Info {
        queues: 1,
        depth: DEPTH,
        max_io_buf_bytes: PART,
        id: u32::MAX,
        flags: flag::USER_RECOVERY | flag::USER_RECOVERY_REISSUE | flag::CMD_IOCTL_ENCODE | flag::USER_COPY,
        server_flags: mark,
        ..Info::default()
    };
    let id = control.add(&asked)?.id;
    let rotational = if shape.rotational { attribute::ROTATIONAL } else { 0 };
    let mut params = Params {
        types: attribute::BASIC,
        attrs: attribute::VOLATILE_CACHE | attribute::FUA | rotational,
        logical_bs_shift: shift(shape.block),
        physical_bs_shift: shift(shape.physical.max(shape.block)),
        io_min_shift: shift(shape.physical.max(shape.block)),
        io_opt_shift: 0,
        max_sectors: PART / 512,
        dev_sectors: shape.size / 512,
        ..Params::default()
    };
    if shape.discard || shape.zero {
        let most = |there| if there { DATALESS_MAX / 512 } else { 0 };
        params.types |= attribute::DISCARD;
        params.discard_granularity = shape.physical.max(shape.block);
        params.max_discard_sectors = most(shape.discard);
        params.max_write_zeroes_sectors = most(shape.zero);
        params.max_discard_segments = 1;
    }
    match control.set_params(id, &params) {
        Ok(()) => Ok(id),
        Err(error) => {
            let _ = control.remove(id);
            Err(error)
        }
    }
}

impl Ublk {
    /// Serve a device: one that was created just now, or one whose server died (`again`). [`begin`] follows, in another thread.
    pub fn open(id: u32, again: bool) -> io::Result<Self> {
        if again {
            Control::open()?.start_recovery(id)?;
        }
        let path = format!("/dev/ublkc{id}");
        let end = Instant::now() + NODE_MAX;
        let device = loop {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EBUSY))
                        && Instant::now() < end =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => break other?,
            }
        };
        let bytes = Self::mapped();
        // SAFETY: a new mapping of the device's own memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                device.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let descriptions = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        let ring = IoUring::builder().setup_cqsize(2 * u32::from(DEPTH)).build(DEPTH.into())?;
        let mut this = Self { id, ring, device, descriptions, owners: None, arrivals: 0, stopped: false };
        for tag in 0..DEPTH {
            this.push(FETCH_REQ, tag, 0)?;
        }
        this.submit()?;
        Ok(this)
    }

    const fn mapped() -> usize {
        (DEPTH as usize * size_of::<Description>()).next_multiple_of(4096)
    }

    fn push(&mut self, code: u32, tag: u16, result: i32) -> io::Result<()> {
        // struct ublksrv_io_cmd: queue, tag, result, address
        let mut command = [0; IO_COMMAND];
        command[2..4].copy_from_slice(&tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        let fd = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, code).cmd(command).build().user_data(tag.into());
        // SAFETY: the command names no memory.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn description(&self, tag: u16) -> Description {
        assert!(tag < DEPTH, "a tag");
        // SAFETY: inside of the mapping. The kernel does not write the slot of a request that is with us.
        unsafe { std::ptr::read_volatile(self.descriptions.as_ptr().add(tag.into())) }
    }

    const fn tag(handle: u64) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "the tag is the low bits")]
        let tag = handle as u16;
        tag
    }

    const fn data_at(handle: u64) -> u64 {
        DATA_AT + ((Self::tag(handle) as u64) << DATA_TAG)
    }

    fn take(&mut self, tag: u16) -> Result<Arrived, i32> {
        let Description { op_flags, sectors, start, .. } = self.description(tag);
        let op = match op_flags & op::MASK {
            op::READ => Op::Read,
            op::WRITE => Op::Write,
            op::FLUSH => Op::Flush,
            op::DISCARD => Op::Discard,
            op::WRITE_ZEROES => Op::Zero,
            _ => return Err(libc::EOPNOTSUPP),
        };
        let moves = matches!(op, Op::Read | Op::Write);
        let bytes = u64::from(sectors) * 512;
        let len = match u32::try_from(bytes) {
            Ok(_) if op == Op::Flush => 0,
            Ok(len) if !moves || len <= PART => len,
            _ => return Err(libc::EINVAL),
        };
        self.arrivals += 1;
        Ok(Arrived {
            handle: self.arrivals << TAG_BITS | u64::from(tag),
            op,
            fua: op == Op::Write && op_flags & op::FUA != 0,
            offset: if op == Op::Flush { 0 } else { start * 512 },
            len,
            // A flush has the tag of a request that is another's, perhaps.
            owner: match &self.owners {
                Some(owners) if op != Op::Flush => owners.of_slot(tag.into()),
                _ => None,
            },
            buffer: None,
        })
    }
}

impl Drop for Ublk {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this size, and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.descriptions.as_ptr().cast(), Self::mapped()) };
    }
}

/// The block device appears, or goes on (`again`). Its name and number. Somebody in this process must answer for it meanwhile.
pub fn begin(id: u32, again: bool) -> io::Result<(String, u64)> {
    let mut control = Control::open()?;
    let server = std::process::id();
    if again {
        control.end_recovery(id, server)?;
    } else {
        control.start(id, server)?;
    }
    let name = format!("ublkb{id}");
    let path = format!("/dev/{name}");
    let end = Instant::now() + NODE_MAX;
    while !Path::new(&path).exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((name, std::os::unix::fs::MetadataExt::rdev(&std::fs::metadata(path)?)))
}

impl Front for Ublk {
    fn kind(&self) -> &'static str {
        "ublk"
    }

    fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    fn receive(&mut self, _pool: &mut Pool, into: &mut Vec<Arrived>) -> io::Result<()> {
        while let Some(done) = {
            let mut completions = self.ring.completion();
            completions.next().map(|done| (done.user_data(), done.result()))
        } {
            let (tag, result) = (u16::try_from(done.0).unwrap_or(u16::MAX), done.1);
            match result {
                0 => {}
                error if error == -libc::ENODEV => {
                    self.stopped = true;
                    continue;
                }
                error => {
                    let error = io::Error::from_raw_os_error(-error);
                    return Err(io::Error::other(format!("a fetch of ublkc{}: {error}", self.id)));
                }
            }
            match self.take(tag) {
                Ok(request) => into.push(request),
                Err(errno) => self.push(COMMIT_AND_FETCH_REQ, tag, -errno)?,
            }
        }
        if self.stopped { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(()) }
    }

    fn load(&mut self, request: &Arrived, buffer: &mut Buffer) -> io::Result<()> {
        self.device.read_exact_at(buffer.bytes_mut(request.len as usize), Self::data_at(request.handle))
    }

    fn answer(&mut self, request: &Arrived, result: Result<(), i32>) -> io::Result<()> {
        let mut result = result;
        if let (Ok(()), Op::Read, Some(buffer)) = (result, request.op, &request.buffer) {
            let data = buffer.bytes(request.len as usize);
            if let Err(error) = self.device.write_all_at(data, Self::data_at(request.handle)) {
                result = Err(error.raw_os_error().unwrap_or(libc::EIO));
            }
        }
        let moved = if matches!(request.op, Op::Read | Op::Write) { request.len } else { 0 };
        let result = match result {
            Ok(()) => i32::try_from(moved).unwrap_or(0),
            Err(errno) => -errno,
        };
        self.push(COMMIT_AND_FETCH_REQ, Self::tag(request.handle), result)
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { self.ring.submit().map(drop) }
    }

    fn set_owners(&mut self, owners: Owners) {
        self.owners = Some(owners);
    }
}
