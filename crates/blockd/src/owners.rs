// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who owns a request: the table that the kernel's programs write (`bpf/tag/disk.h`) when a request
//! is made and when it is handed to the driver, one slot per request of the device. It is a mapped
//! BPF array, so looking costs no system call.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;

use reserv_facts::tag::Slot;
pub use reserv_facts::tag::{SLOTS, SLOTS_QUEUE};

use crate::front::Op;

/// Hardware queues that have slots.
pub const QUEUES: usize = SLOTS / SLOTS_QUEUE;
/// A loop device has this many requests at once.
pub const LOOP_SLOTS: usize = 128;

/// Whose a request is, and what I/O priority it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The queue; 0: q0.
    pub queue: u64,
    /// As of ioprio_set(2); 0: none.
    pub priority: u16,
}

impl From<u64> for Owner {
    fn from(queue: u64) -> Self {
        Self { queue, priority: 0 }
    }
}

impl Owner {
    /// Whether the priority is of class RT.
    pub const fn is_real_time(self) -> bool {
        self.priority >> 13 == 1
    }

    /// Or of class idle.
    pub const fn is_idle(self) -> bool {
        self.priority >> 13 == 3
    }

    /// A deadline, ns after it came, where the priority's hint says one: 8 to 1023 are
    /// milliseconds; less are the kernel's own hints, which are none.
    pub fn deadline(self) -> Option<u64> {
        let hint = u64::from(self.priority >> 3 & 0x3ff);
        (hint >= 8).then_some(hint * 1_000_000)
    }
}

/// What of a slot's request has come already.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    seq: u64,
    bytes: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Owners {
    at: NonNull<Slot>,
    claims: Vec<Claim>,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Owners {}

impl Drop for Owners {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this size, and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), SLOTS * size_of::<Slot>()) };
    }
}

fn bpf_obj_get(path: &str) -> io::Result<OwnedFd> {
    const BPF_OBJ_GET: libc::c_long = 7;
    #[repr(C)]
    struct Attr {
        path: u64,
        fd: u32,
        flags: u32,
        rest: [u64; 14],
    }
    let path = CString::new(path).map_err(io::Error::other)?;
    let attr = Attr { path: path.as_ptr() as u64, fd: 0, flags: 0, rest: [0; 14] };
    // SAFETY: the attributes and the path outlive the call, and the kernel only reads them.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_GET, &raw const attr, size_of::<Attr>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?) })
}

impl Owners {
    /// The slots of one resource, from slot `first` of the pinned array on.
    pub fn open(path: &str, first: u64) -> io::Result<Self> {
        let fd = bpf_obj_get(path)?;
        let bytes = SLOTS * size_of::<Slot>();
        let offset = first.checked_mul(size_of::<Slot>() as u64);
        let offset = offset.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: a new mapping; the kernel refuses what is outside of the array.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                libc::off_t::try_from(offset).map_err(io::Error::other)?,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { at, claims: vec![Claim::default(); LOOP_SLOTS] })
    }

    /// A table that is nobody's: for `fuzz/`.
    #[doc(hidden)]
    pub fn blank() -> io::Result<Self> {
        let (all, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let bytes = SLOTS * size_of::<Slot>();
        // SAFETY: a new mapping of zeros, which are slots.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, all, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { at, claims: vec![Claim::default(); LOOP_SLOTS] })
    }

    /// The owner of a slot's request, of a blank table.
    ///
    /// # Panics
    /// There is no such slot.
    #[doc(hidden)]
    pub fn put(&mut self, index: usize, owner: Owner) {
        let slot = Slot { seq: 1, node: owner.queue, priority: owner.priority, ..self.slot(index) };
        // SAFETY: inside of the mapping (`slot`), which is ours and may be written.
        unsafe { std::ptr::write_volatile(self.at.as_ptr().add(index), slot) }
    }

    fn slot(&self, index: usize) -> Slot {
        assert!(index < SLOTS, "a slot");
        // SAFETY: inside of the mapping. The kernel may write it meanwhile, but not the slot of a
        // request that is with us.
        unsafe { std::ptr::read_volatile(self.at.as_ptr().add(index)) }
    }

    /// The owner of the request in this slot.
    pub fn of_slot(&self, index: usize) -> Option<Owner> {
        let slot = Some(self.slot(index)).filter(|slot| slot.seq != 0)?;
        Some(Owner { queue: slot.node, priority: slot.priority })
    }

    /// The owner of a part of a loop device's request, which does not say its slot: of the requests
    /// that hold these bytes, the oldest of which not everything has come; else (it came before,
    /// and was sent once more) the newest. Only requests for the same bytes at the same time can be
    /// taken for each other.
    pub fn of_part(&mut self, op: Op, offset: u64, len: u32) -> Option<Owner> {
        let mut best: Option<(bool, u64, usize, Owner)> = None;
        for index in 0..LOOP_SLOTS {
            let slot = self.slot(index);
            let holds = slot.seq != 0
                && (slot.write & 1 != 0) == (op != Op::Read)
                && slot.offset <= offset
                && offset.saturating_add(len.into())
                    <= slot.offset.saturating_add(slot.bytes.into());
            if !holds {
                continue;
            }
            let claim = self.claims[index];
            let whole = claim.seq == slot.seq && claim.bytes >= u64::from(slot.bytes);
            let better = best.is_none_or(|(was_whole, seq, ..)| match (whole, was_whole) {
                (false, true) => true,
                (true, false) => false,
                (false, false) => slot.seq < seq,
                (true, true) => slot.seq > seq,
            });
            if better {
                let owner = Owner { queue: slot.node, priority: slot.priority };
                best = Some((whole, slot.seq, index, owner));
            }
        }
        let (_, seq, index, owner) = best?;
        let claim = &mut self.claims[index];
        if claim.seq != seq {
            *claim = Claim { seq, bytes: 0 };
        }
        claim.bytes = claim.bytes.saturating_add(len.into());
        Some(owner)
    }
}
