// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop device over the FUSE file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

fn ioctl(file: &File, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: the requests used here take a number, or the address of a structure that the caller keeps.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// A free loop device takes the file, without the page cache. Answers its name and number. Somebody must answer for the file meanwhile.
pub fn attach(path: &Path, block: u32) -> io::Result<(String, u64)> {
    let _ = std::process::Command::new("modprobe").args(["-q", "loop"]).status();
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    // Older kernels (6.12) take the size that they know of the file, and know none before somebody has asked.
    file.metadata()?;
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    let fd = u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
    loop {
        let number = ioctl(&control, LOOP_CTL_GET_FREE, 0)?;
        let name = format!("loop{number}");
        let device = OpenOptions::new().read(true).write(true).open(format!("/dev/{name}"))?;
        // SAFETY: plain numbers.
        let mut config: Config = unsafe { std::mem::zeroed() };
        config.fd = fd;
        config.block_size = block;
        config.info.flags = LO_FLAGS_DIRECT_IO;
        crate::book::put_text(&mut config.info.file_name, &path.to_string_lossy());
        match ioctl(&device, LOOP_CONFIGURE, (&raw const config) as libc::c_ulong) {
            // Somebody else was faster.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let direct = fs::read_to_string(format!("/sys/block/{name}/loop/dio")).unwrap_or_default();
                if direct.trim() != "1" {
                    let _ = ioctl(&device, LOOP_CLR_FD, 0);
                    return Err(io::Error::other(
                        "the loop device does not do direct I/O, without which it has one request at a time",
                    ));
                }
                return Ok((name, device.metadata()?.rdev()));
            }
        }
    }
}

/// The device gives the file back. It goes when nobody has it open.
pub fn detach(name: &str) -> io::Result<()> {
    let device = OpenOptions::new().read(true).open(format!("/dev/{name}"))?;
    match ioctl(&device, LOOP_CLR_FD, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
        other => other.map(drop),
    }
}
