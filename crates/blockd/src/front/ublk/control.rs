// SPDX-License-Identifier: MIT OR Apache-2.0
//! ublk's control device: making a device, starting it, taking it over from a server that died, and
//! removing it. Every call waits for its answer, by a ring of its own, so a thread that serves
//! requests leaves what waits for requests (`start`, `stop`) to another one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::log::say;
use crate::ring::errno_of;

/// How long a dead server's device may take until it can be taken over.
const QUIESCE_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
/// After so long that is said: the kernel has not let go of what the dead server had.
const LATE: Duration = Duration::from_secs(5);

const CONTROL: &str = "/dev/ublk-control";

/// `UBLK_F_*`
pub mod flag {
    /// A request's data may be a registered buffer of a ring (Linux 6.15) …
    pub const SUPPORT_ZERO_COPY: u64 = 1 << 0;
    /// Requests of a dead server wait for the next one …
    pub const USER_RECOVERY: u64 = 1 << 3;
    /// … and are sent to it again.
    pub const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands are numbered as ioctls.
    pub const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// Data are read and written at the character device.
    pub const USER_COPY: u64 = 1 << 7;
    /// … and they are when it comes, without being asked for (Linux 6.16).
    pub const AUTO_BUF_REG: u64 = 1 << 11;
}

/// Without one of these there is no front end of ublk.
pub const NEEDED: u64 =
    flag::USER_RECOVERY | flag::USER_RECOVERY_REISSUE | flag::CMD_IOCTL_ENCODE | flag::USER_COPY;

/// With these data are not copied.
pub const ZERO_COPY: u64 = flag::SUPPORT_ZERO_COPY | flag::AUTO_BUF_REG;

/// `UBLK_S_DEV_*`
pub mod state {
    /// Served.
    pub const LIVE: u16 = 1;
    /// Its server died: requests wait.
    pub const QUIESCED: u16 = 2;
}

/// Direction and size of an ioctl's number, and its number.
const fn number(direction: u32, size: usize, nr: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a structure of some bytes")]
    let size = size as u32;
    direction << 30 | size << 16 | (b'u' as u32) << 8 | nr
}
const fn control(direction: u32, nr: u32) -> u32 {
    number(direction, size_of::<Command>(), nr)
}
pub(super) const fn io_command(nr: u32) -> u32 {
    number(READ_WRITE, super::IO_COMMAND, nr)
}
const READ: u32 = 2;
const READ_WRITE: u32 = 3;

mod code {
    use super::{READ, READ_WRITE, control};
    pub(super) const GET_DEV_INFO: u32 = control(READ, 0x02);
    pub(super) const ADD_DEV: u32 = control(READ_WRITE, 0x04);
    pub(super) const DEL_DEV: u32 = control(READ_WRITE, 0x05);
    pub(super) const START_DEV: u32 = control(READ_WRITE, 0x06);
    pub(super) const STOP_DEV: u32 = control(READ_WRITE, 0x07);
    pub(super) const SET_PARAMS: u32 = control(READ_WRITE, 0x08);
    pub(super) const START_USER_RECOVERY: u32 = control(READ_WRITE, 0x10);
    pub(super) const END_USER_RECOVERY: u32 = control(READ_WRITE, 0x11);
    pub(super) const GET_FEATURES: u32 = control(READ, 0x13);
}

/// `struct ublksrv_ctrl_cmd`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Command {
    id: u32,
    queue: u16,
    len: u16,
    address: u64,
    data: u64,
    path_len: u16,
    pad: u16,
    reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named as in ublk_cmd.h")]
pub struct Info {
    pub queues: u16,
    pub depth: u16,
    pub state: u16,
    pub pad0: u16,
    pub max_io_buf_bytes: u32,
    pub id: u32,
    pub server: i32,
    pub pad1: u32,
    pub flags: u64,
    /// Ours to use: whose device it is ([`mark`]).
    pub server_flags: u64,
    pub owner_uid: u32,
    pub owner_gid: u32,
    pub reserved: [u64; 2],
}

/// `struct ublk_params` with what is set here: basic, discard and what memory must be aligned to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named as in ublk_cmd.h")]
pub struct Params {
    pub len: u32,
    pub types: u32,
    pub attrs: u32,
    pub logical_bs_shift: u8,
    pub physical_bs_shift: u8,
    pub io_opt_shift: u8,
    pub io_min_shift: u8,
    pub max_sectors: u32,
    pub chunk_sectors: u32,
    pub dev_sectors: u64,
    pub virt_boundary_mask: u64,
    pub discard_alignment: u32,
    pub discard_granularity: u32,
    pub max_discard_sectors: u32,
    pub max_write_zeroes_sectors: u32,
    pub max_discard_segments: u16,
    pub reserved: u16,
    pub devt: [u32; 4],
    pub zoned: [u32; 8],
    pub dma_alignment: u32,
    pub pad: [u32; 2],
}

/// Says whose a device is: of a server's prefix.
pub fn mark(prefix: &Path) -> u64 {
    // FNV-1a: the same in every build.
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    prefix.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The control device.
pub struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Open it; the module is loaded where that is possible.
    pub fn open() -> io::Result<Self> {
        if !Path::new(CONTROL).exists() {
            let _ = std::process::Command::new("modprobe").args(["-q", "ublk_drv"]).status();
        }
        let file = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        Ok(Self { file, ring: IoUring::builder().build(4)? })
    }

    /// Why there can be no ublk device of ours here.
    pub fn usable() -> Result<(), String> {
        let wrong = |error: io::Error| format!("{CONTROL}: {error}");
        let features = Self::open().and_then(|mut control| control.features()).map_err(wrong)?;
        match NEEDED & !features {
            0 => Ok(()),
            missing => Err(format!("this kernel's ublk lacks features {missing:#x}")),
        }
    }

    fn command(&mut self, code: u32, id: u32, data: u64, memory: &mut [u8]) -> io::Result<()> {
        let command = Command {
            id,
            queue: u16::MAX,
            len: u16::try_from(memory.len()).map_err(io::Error::other)?,
            address: if memory.is_empty() { 0 } else { memory.as_mut_ptr() as u64 },
            data,
            path_len: 0,
            pad: 0,
            reserved: 0,
        };
        let mut bytes = [0_u8; 80];
        // SAFETY: the structure has no padding.
        let plain = unsafe { crate::wire::bytes_of(&command) };
        bytes[..plain.len()].copy_from_slice(plain);
        let entry =
            opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), code).cmd(bytes).build();
        // SAFETY: `memory` outlives the call, which ends with the command's answer.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                other => other.map(drop)?,
            }
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    error @ ..0 => Err(io::Error::from_raw_os_error(errno_of(error))),
                    _ => Ok(()),
                };
            }
        }
    }

    /// What this kernel's ublk can do: `UBLK_F_*`.
    pub fn features(&mut self) -> io::Result<u64> {
        let mut features = [0; 8];
        self.command(code::GET_FEATURES, u32::MAX, 0, &mut features)?;
        Ok(u64::from_ne_bytes(features))
    }

    fn with_info(&mut self, code: u32, id: u32, info: &Info) -> io::Result<Info> {
        // SAFETY: the structure has no padding.
        let mut memory = unsafe { crate::wire::bytes_of(info) }.to_vec();
        self.command(code, id, 0, &mut memory)?;
        // SAFETY: plain numbers.
        unsafe { crate::wire::of_bytes(&memory) }.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// A new device; its number is in the answer.
    pub fn add(&mut self, info: &Info) -> io::Result<Info> {
        self.with_info(code::ADD_DEV, info.id, info)
    }

    /// What is known of a device.
    pub fn info(&mut self, id: u32) -> io::Result<Info> {
        self.with_info(code::GET_DEV_INFO, id, &Info::default())
    }

    /// Size, blocks and the like.
    pub fn set_params(&mut self, id: u32, params: &Params) -> io::Result<()> {
        let len = u32::try_from(size_of::<Params>()).map_err(io::Error::other)?;
        let params = Params { len, ..*params };
        // SAFETY: the structure has no padding.
        let mut memory = unsafe { crate::wire::bytes_of(&params) }.to_vec();
        self.command(code::SET_PARAMS, id, 0, &mut memory)
    }

    /// The block device appears. Somebody must answer for it meanwhile: `server`.
    pub fn start(&mut self, id: u32, server: u32) -> io::Result<()> {
        self.command(code::START_DEV, id, server.into(), &mut [])
    }

    /// The device of a dead server wants a new one. The kernel may not have seen its end yet.
    pub fn start_recovery(&mut self, id: u32) -> io::Result<()> {
        let (begin, mut said) = (Instant::now(), false);
        loop {
            let waited = begin.elapsed();
            if waited > LATE && !said {
                said = true;
                say(format_args!(
                    "the kernel still has ublkc{id} for a server that died, after {LATE:?}"
                ));
            }
            match self.command(code::START_USER_RECOVERY, id, 0, &mut []) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && waited < QUIESCE_MAX => {
                    std::thread::sleep(LOOK);
                }
                other => return other,
            }
        }
    }

    /// The new one has asked for every request: they come.
    pub fn end_recovery(&mut self, id: u32, server: u32) -> io::Result<()> {
        self.command(code::END_USER_RECOVERY, id, server.into(), &mut [])
    }

    /// The block device goes. What waits is answered with an error if it has no server; else that
    /// must go on.
    pub fn stop(&mut self, id: u32) -> io::Result<()> {
        self.command(code::STOP_DEV, id, 0, &mut [])
    }

    /// Nothing is left of a device that nobody serves any more.
    pub fn remove(&mut self, id: u32) -> io::Result<()> {
        self.command(code::DEL_DEV, id, 0, &mut [])
    }

    /// Devices with this mark.
    pub fn marked(&mut self, mark: u64) -> Vec<Info> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten() {
            if let Some(id) = number_of(&entry.file_name().to_string_lossy())
                && let Ok(info) = self.info(id)
                && info.server_flags == mark
            {
                found.push(info);
            }
        }
        found
    }
}

/// Remove whatever devices have this mark; nobody serves them. Without ublk there are none.
pub fn remove_marked(mark: u64) -> io::Result<()> {
    if !Path::new(CONTROL).exists() {
        return Ok(());
    }
    let mut control = Control::open()?;
    for info in control.marked(mark) {
        control.stop(info.id)?;
        control.remove(info.id)?;
    }
    Ok(())
}

/// The number at the end of `ublkb0` or `ublkc0`.
pub fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("ublkb").or_else(|| name.strip_prefix("ublkc"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_and_numbers_are_the_kernels() {
        assert_eq!((size_of::<Command>(), size_of::<Info>(), size_of::<Params>()), (32, 64, 120));
        assert_eq!(std::mem::offset_of!(Params, dma_alignment), 108);
        // UBLK_U_CMD_ADD_DEV, UBLK_U_CMD_GET_FEATURES, UBLK_U_IO_FETCH_REQ
        assert_eq!(
            (code::ADD_DEV, code::GET_FEATURES, io_command(0x20)),
            (0xc020_7504, 0x8020_7513, 0xc010_7520)
        );
        assert_eq!(
            (number_of("ublkb12"), number_of("ublkc0"), number_of("loop3")),
            (Some(12), Some(0), None)
        );
        assert_ne!(mark(Path::new("/run/reserv/disk-1")), mark(Path::new("/run/reserv/disk-2")));
    }
}
