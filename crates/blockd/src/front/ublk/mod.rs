// SPDX-License-Identifier: MIT OR Apache-2.0
//! Front end on ublk: a block device of the kernel whose requests are handed to this process, one
//! slot per tag, over a ring.
//!
//! A slot is with the kernel (a fetch command waits in the ring) or with us (its command was
//! completed, and the description of the request stands in the mapped array) until the answer goes
//! back together with the next fetch. When this process dies, the kernel keeps what was not
//! answered and sends it to the next one again (`UBLK_F_USER_RECOVERY_REISSUE`).
//!
//! Data are not copied where the kernel has it: it puts the memory of who asked into the ring as a
//! registered buffer, whose number is the slot's, before the request comes here, and takes it out
//! with the answer (`UBLK_F_AUTO_BUF_REG`). Where that is not, or fails for a request, data are
//! copied at dispatch, not at arrival (`UBLK_F_USER_COPY`), so a request that waits has no memory
//! of ours.

pub mod control;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use io_uring::{opcode, types};

use self::control::{Control, Info, NEEDED, Params, ZERO_COPY, flag, io_command};
use super::{Arrived, Front, Op, Shape};
use crate::buffer::{Buffer, Pool};
use crate::log::say;
use crate::owners::{Owners, QUEUES, SLOTS_QUEUE};
use crate::ring::{Of, Ring};

/// Requests that the kernel gives us at once, of each hardware queue. Few would be one queue's, and
/// the others starve before the scheduler sees them: who waits for a place does so in the order of
/// arrival.
pub const DEPTH: u16 = 1024;
const _: () = assert!(DEPTH as usize <= SLOTS_QUEUE);
/// Of which the device uses so many. Older kernels (6.12) notice that a server is dead by a slot
/// that waits for a request; with none left they do when the oldest request's time is up, after 30
/// s.
pub const DEPTH_USED: u16 = DEPTH - 1;
/// Most hardware queues. They are for the CPUs that ask; all are served by one thread.
const HARDWARE_QUEUES_MAX: u16 = 4;
const _: () = assert!(HARDWARE_QUEUES_MAX as usize <= QUEUES);
/// Where a hardware queue's descriptions are mapped from: as if it had the most requests that there
/// can be.
const DESCRIPTIONS_STEP: usize = (4096 * size_of::<Description>()).next_multiple_of(4096);
/// Most data of one request.
const PART: u32 = 256 * 1024;
/// Most bytes of a request without data: their lengths are 32 bits here.
const DATALESS_MAX: u32 = 1 << 30;
/// Size of `struct ublksrv_io_cmd`.
const IO_COMMAND: usize = 16;
const FETCH_REQ: u32 = io_command(0x20);
const COMMIT_AND_FETCH_REQ: u32 = io_command(0x21);
/// Where a request's data are in the character device: its tag is in the bits from this one on, and
/// its hardware queue above.
const DATA_AT: u64 = 0x8000_0000;
const DATA_TAG: u32 = 25;
const DATA_QUEUE: u32 = DATA_TAG + 16;
/// Of a slot's number: the tag.
const SLOT_TAG_BITS: u32 = SLOTS_QUEUE.trailing_zeros();
const SLOT_TAG: u16 = (1 << SLOT_TAG_BITS) - 1;
/// Of a handle: the slot. Above it arrivals are counted, so that handles are in their order.
const SLOT_BITS: u32 = 16;
/// Of a fetch: a request whose data could not be registered comes, too
/// (`UBLK_AUTO_BUF_REG_FALLBACK`).
const REGISTER_OR_NOT: u64 = 1 << 16;
/// Of copied requests at the disk as many have memory that is there already.
const BUFFERS: usize = 64;
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
    pub(super) const NOUNMAP: u32 = 1 << 15;
    pub(super) const NOT_REGISTERED: u32 = 1 << 17;
}

mod attribute {
    pub(super) const ROTATIONAL: u32 = 1 << 1;
    pub(super) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(super) const FUA: u32 = 1 << 3;
    pub(super) const BASIC: u32 = 1 << 0;
    pub(super) const DISCARD: u32 = 1 << 1;
    pub(super) const DMA_ALIGN: u32 = 1 << 4;
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

/// Where the kernel describes the requests of a hardware queue.
struct Descriptions(NonNull<Description>);

impl Descriptions {
    const BYTES: usize = (DEPTH as usize * size_of::<Description>()).next_multiple_of(4096);

    fn map(device: &File, queue: u16) -> io::Result<Self> {
        let from = libc::off_t::try_from(usize::from(queue) * DESCRIPTIONS_STEP)
            .map_err(io::Error::other)?;
        // SAFETY: a new mapping of the device's own memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                device.as_raw_fd(),
                from,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(at.cast()).map(Self).ok_or_else(|| io::Error::other("mapped at 0"))
    }

    fn of(&self, tag: u16) -> Description {
        assert!(tag < DEPTH, "a tag");
        // SAFETY: inside of the mapping. The kernel does not write the slot of a request that is
        // with us.
        unsafe { std::ptr::read_volatile(self.0.as_ptr().add(tag.into())) }
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size, and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

/// See the head of this file. A slot's number is its tag, and from bit 10 on its hardware queue.
pub struct Ublk {
    id: u32,
    device: File,
    descriptions: Vec<Descriptions>,
    owners: Option<Owners>,
    arrivals: u64,
    /// The kernel registers data.
    zero_copy: bool,
    /// Why data are copied, where all are.
    copies: Option<&'static str>,
    /// Of each slot: the data of its request are registered.
    registered: Vec<bool>,
    /// The device was ended: no more requests come.
    stopped: bool,
}

fn shift(bytes: u32) -> u8 {
    u8::try_from(bytes.max(512).trailing_zeros()).unwrap_or(9)
}

/// A new device of this shape, which bears a mark. Its number.
pub fn create(shape: &Shape, mark: u64) -> io::Result<u32> {
    let mut control = Control::open()?;
    let there = control.features()?;
    let zero_copy =
        if shape.copied.is_none() && there & ZERO_COPY == ZERO_COPY { ZERO_COPY } else { 0 };
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let asked = Info {
        queues: u16::try_from(cpus).unwrap_or(u16::MAX).min(HARDWARE_QUEUES_MAX),
        depth: DEPTH,
        max_io_buf_bytes: PART,
        id: u32::MAX,
        flags: NEEDED | zero_copy,
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
    if shape.dataless.discard || shape.dataless.zero {
        let most = |there| if there { DATALESS_MAX / 512 } else { 0 };
        params.types |= attribute::DISCARD;
        params.discard_granularity = shape.physical.max(shape.block);
        params.max_discard_sectors = most(shape.dataless.discard);
        params.max_write_zeroes_sectors = most(shape.dataless.zero);
        params.max_discard_segments = 1;
    }
    if zero_copy != 0 {
        params.types |= attribute::DMA_ALIGN;
        params.dma_alignment = shape.memory.clamp(4, 4096) - 1;
        params.virt_boundary_mask = shape.boundary;
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
    /// Serve a device: one that was created just now, or one whose server died (`again`). [`begin`]
    /// follows, in another thread.
    pub fn open(id: u32, again: bool, shape: &Shape, ring: &mut Ring) -> io::Result<Self> {
        let mut control = Control::open()?;
        if again {
            control.start_recovery(id)?;
        }
        let info = control.info(id)?;
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
        let zero_copy = info.flags & flag::AUTO_BUF_REG != 0;
        let slots = usize::from(info.queues) * SLOTS_QUEUE;
        let buffers = u32::try_from(slots).unwrap_or(0).min(shape.buffers);
        let mut copies =
            (!zero_copy).then(|| shape.copied.unwrap_or("this kernel's ublk has no other way"));
        // Without them every request comes unregistered.
        if zero_copy && let Err(error) = ring.reserve_buffers(buffers) {
            say(format_args!("no registered buffers: {error}"));
            copies = Some("the kernel has no room for registered buffers");
        }
        if let Some(why) = copies {
            say(format_args!("data are copied: {why}"));
        }
        let descriptions = (0..info.queues).map(|queue| Descriptions::map(&device, queue));
        let mut this = Self {
            id,
            descriptions: descriptions.collect::<io::Result<_>>()?,
            device,
            owners: None,
            arrivals: 0,
            zero_copy,
            copies,
            registered: vec![false; slots],
            stopped: false,
        };
        for queue in 0..info.queues {
            for tag in 0..DEPTH {
                this.push(ring, FETCH_REQ, queue << SLOT_TAG_BITS | tag, 0)?;
            }
        }
        ring.begin()?;
        Ok(this)
    }

    fn push(&mut self, ring: &mut Ring, code: u32, slot: u16, result: i32) -> io::Result<()> {
        // struct ublksrv_io_cmd: queue, tag, result, address
        let mut command = [0; IO_COMMAND];
        command[..2].copy_from_slice(&(slot >> SLOT_TAG_BITS).to_ne_bytes());
        command[2..4].copy_from_slice(&(slot & SLOT_TAG).to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        let fd = types::Fd(self.device.as_raw_fd());
        let mut entry = opcode::UringCmd16::new(fd, code).cmd(command);
        if self.zero_copy {
            entry = entry.addr(Some(REGISTER_OR_NOT | u64::from(slot)));
        }
        // SAFETY: the command names no memory.
        unsafe { ring.push(entry.build(), Of::Front, slot.into()) }
    }

    const fn slot(handle: u64) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "the slot is the low bits")]
        let slot = handle as u16;
        slot
    }

    const fn data_at(handle: u64) -> u64 {
        let slot = Self::slot(handle);
        let (queue, tag) = ((slot >> SLOT_TAG_BITS) as u64, (slot & SLOT_TAG) as u64);
        DATA_AT + (queue << DATA_QUEUE) + (tag << DATA_TAG)
    }

    fn take(&mut self, slot: u16) -> Result<Arrived, i32> {
        let queue =
            self.descriptions.get(usize::from(slot >> SLOT_TAG_BITS)).ok_or(libc::EINVAL)?;
        let Description { op_flags, sectors, start, .. } = queue.of(slot & SLOT_TAG);
        let op = match op_flags & op::MASK {
            op::READ => Op::Read,
            op::WRITE => Op::Write,
            op::FLUSH => Op::Flush,
            op::DISCARD => Op::Discard,
            op::WRITE_ZEROES if op_flags & op::NOUNMAP == 0 => Op::Unmap,
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
        self.registered[usize::from(slot)] =
            self.zero_copy && moves && op_flags & op::NOT_REGISTERED == 0;
        Ok(Arrived {
            handle: self.arrivals << SLOT_BITS | u64::from(slot),
            op,
            fua: op == Op::Write && op_flags & op::FUA != 0,
            offset: if op == Op::Flush { 0 } else { start * 512 },
            len,
            // A flush has the tag of a request that is another's, perhaps.
            owner: match &self.owners {
                Some(owners) if op != Op::Flush => owners.of_slot(slot.into()),
                _ => None,
            },
            buffer: None,
        })
    }
}

/// The block device appears, or goes on (`again`). Its name and number. Somebody in this process
/// must answer for it meanwhile.
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

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn receive(
        &mut self,
        ring: &mut Ring,
        done: &[(u64, i32)],
        _pool: &mut Pool,
        into: &mut Vec<Arrived>,
    ) -> io::Result<()> {
        for &(slot, result) in done {
            let slot = u16::try_from(slot).unwrap_or(u16::MAX);
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
            match self.take(slot) {
                Ok(request) => into.push(request),
                Err(errno) => self.push(ring, COMMIT_AND_FETCH_REQ, slot, -errno)?,
            }
        }
        if self.stopped { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(()) }
    }

    fn buffers(&self) -> usize {
        BUFFERS
    }

    fn copies(&self) -> Option<&'static str> {
        self.copies
    }

    fn registered(&self, request: &Arrived) -> Option<u16> {
        let slot = Self::slot(request.handle);
        self.registered[usize::from(slot)].then_some(slot)
    }

    fn load(&mut self, request: &Arrived, buffer: &mut Buffer) -> io::Result<()> {
        self.device
            .read_exact_at(buffer.bytes_mut(request.len as usize), Self::data_at(request.handle))
    }

    fn answer(
        &mut self,
        ring: &mut Ring,
        request: &Arrived,
        result: Result<(), i32>,
    ) -> io::Result<()> {
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
        self.push(ring, COMMIT_AND_FETCH_REQ, Self::slot(request.handle), result)
    }

    fn set_owners(&mut self, owners: Owners) {
        self.owners = Some(owners);
    }
}
