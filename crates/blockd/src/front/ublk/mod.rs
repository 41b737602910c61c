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
pub mod nudge;

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
use crate::ring::{Of, Ring, errno_of};

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
const _: () = assert!(PART as usize <= super::fuse::PART, "a buffer of ours has room");
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

    /// In memory of ours.
    fn blank() -> io::Result<Self> {
        let (all, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of zeros, which are descriptions.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES, all, flags, -1, 0) };
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

/// Where the requests of a played device are described. Not after its end.
#[doc(hidden)]
pub struct Described(Vec<NonNull<Description>>);

impl Described {
    /// What the kernel would say of a slot's request: operation and flags, sectors, the first one,
    /// and an address.
    ///
    /// # Panics
    /// There is no such slot.
    ///
    /// # Safety
    /// The device is there.
    pub unsafe fn put(&self, slot: u16, (op_flags, sectors, start): (u32, u32, u64), address: u64) {
        let (queue, tag) = (usize::from(slot >> SLOT_TAG_BITS), usize::from(slot & SLOT_TAG));
        // SAFETY: inside of the mapping of that queue, which is there.
        unsafe { self.0[queue].add(tag).write(Description { op_flags, sectors, start, address }) }
    }
}

/// Who has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    /// A fetch waits for a request.
    Kernel,
    /// The request of this handle is with us; the kernel has registered its data.
    Us { handle: u64, registered: bool },
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
    slots: Vec<Has>,
    /// The device was ended: no more requests come.
    stopped: bool,
}

/// Refuses a device that is not as ours are: its slots would be others than ours.
fn as_ours(info: &Info) -> io::Result<()> {
    if (1..=QUEUES).contains(&usize::from(info.queues)) && info.depth == DEPTH {
        return Ok(());
    }
    let Info { queues, depth, .. } = info;
    Err(io::Error::other(format!(
        "a device of {queues} hardware queues with {depth} requests each"
    )))
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
        as_ours(&info)?;
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
        let descriptions = descriptions.collect::<io::Result<_>>()?;
        let mut this = Self::over(&info, device, descriptions);
        this.copies = copies;
        for queue in 0..info.queues {
            for tag in 0..DEPTH {
                this.push(ring, FETCH_REQ, queue << SLOT_TAG_BITS | tag, 0)?;
            }
        }
        ring.begin()?;
        Ok(this)
    }

    /// Nothing was asked for yet.
    fn over(info: &Info, device: File, descriptions: Vec<Descriptions>) -> Self {
        Self {
            id: info.id,
            descriptions,
            device,
            owners: None,
            arrivals: 0,
            zero_copy: info.flags & flag::AUTO_BUF_REG != 0,
            copies: None,
            slots: vec![Has::Kernel; usize::from(info.queues) * SLOTS_QUEUE],
            stopped: false,
        }
    }

    /// A device that the kernel knows nothing of, whose data are in this file; all fetches wait.
    /// And who describes its requests. For `fuzz/`.
    #[doc(hidden)]
    pub fn played(info: &Info, device: File) -> io::Result<(Self, Described)> {
        as_ours(info)?;
        let descriptions = (0..info.queues).map(|_| Descriptions::blank());
        let descriptions: Vec<_> = descriptions.collect::<io::Result<_>>()?;
        let described = Described(descriptions.iter().map(|queue| queue.0).collect());
        Ok((Self::over(info, device, descriptions), described))
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
        let (offset, len) = match (start.checked_mul(512), u32::try_from(bytes)) {
            _ if op == Op::Flush => (0, 0),
            (Some(offset), Ok(len)) if !moves || len <= PART => (offset, len),
            _ => return Err(libc::EINVAL),
        };
        self.arrivals += 1;
        let handle = self.arrivals << SLOT_BITS | u64::from(slot);
        let registered = self.zero_copy && moves && op_flags & op::NOT_REGISTERED == 0;
        self.slots[usize::from(slot)] = Has::Us { handle, registered };
        Ok(Arrived {
            handle,
            op,
            fua: op == Op::Write && op_flags & op::FUA != 0,
            offset,
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
            // No fetch of ours waits there: a request that is with us must not come twice.
            let Some(slot) = u16::try_from(slot)
                .ok()
                .filter(|slot| self.slots.get(usize::from(*slot)) == Some(&Has::Kernel))
            else {
                continue;
            };
            match result {
                0 => {}
                error if error == -libc::ENODEV => {
                    self.stopped = true;
                    continue;
                }
                other => {
                    let error = io::Error::from_raw_os_error(errno_of(other));
                    let text = format!("a fetch of ublkc{}: {error} ({other})", self.id);
                    return Err(io::Error::other(text));
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
        let has = self.slots.get(usize::from(slot))?;
        matches!(has, Has::Us { registered: true, .. }).then_some(slot)
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
        let slot = Self::slot(request.handle);
        match self.slots.get_mut(usize::from(slot)) {
            Some(has) if matches!(*has, Has::Us { handle, .. } if handle == request.handle) => {
                *has = Has::Kernel;
            }
            // It was answered.
            _ => return Ok(()),
        }
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
        self.push(ring, COMMIT_AND_FETCH_REQ, slot, result)
    }

    fn set_owners(&mut self, owners: Owners) {
        self.owners = Some(owners);
    }
}
