// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop device over the FUSE file. It is one of our own, which is made for it and goes with it:
//! a loop device keeps what its queue was set to (elevator, `wbt_lat_usec`, `max_sectors_kb`) for
//! whoever has it next.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::log::say;

const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_ADD: libc::c_ulong = 0x4C80;
const LOOP_CTL_REMOVE: libc::c_ulong = 0x4C81;
/// For `LOOP_CTL_ADD`: whichever number is free.
const ANY: libc::c_ulong = libc::c_ulong::MAX;
/// Until its node is there.
const NODE_MAX: Duration = Duration::from_secs(10);
/// Until nobody has it open any more: who looks at all devices that change (udev) has it for a
/// moment.
const OPEN_MAX: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);
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
    // SAFETY: the requests used here take a number, or the address of a structure that the caller
    // keeps.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn control() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/loop-control")
}

/// A new one; its name and node.
fn create(control: &File) -> io::Result<(String, File)> {
    let number = ioctl(control, LOOP_CTL_ADD, ANY)?;
    let name = format!("loop{number}");
    let end = Instant::now() + NODE_MAX;
    loop {
        match OpenOptions::new().read(true).write(true).open(format!("/dev/{name}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < end => {
                std::thread::sleep(LOOK);
            }
            Err(error) => {
                remove(&name);
                return Err(io::Error::new(error.kind(), format!("/dev/{name}: {error}")));
            }
            Ok(device) => return Ok((name, device)),
        }
    }
}

/// It goes, unless somebody has it; then it stays, as a free one.
fn remove(name: &str) {
    let Some(number) = name.strip_prefix("loop").and_then(|number| number.parse().ok()) else {
        return;
    };
    let end = Instant::now() + OPEN_MAX;
    loop {
        match control().and_then(|control| ioctl(&control, LOOP_CTL_REMOVE, number)) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                std::thread::sleep(LOOK);
            }
            // Not there: it went before a death of ours.
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                say(format_args!("{name} stays: {error}"));
                return;
            }
            _ => return,
        }
    }
}

/// A loop device of our own takes the file, without the page cache. Answers its name and number.
/// Somebody must answer for the file meanwhile.
pub fn attach(path: &Path, block: u32) -> io::Result<(String, u64)> {
    let _ = std::process::Command::new("modprobe").args(["-q", "loop"]).status();
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    // Older kernels (6.12) take the size that they know of the file, and know none before somebody
    // has asked.
    file.metadata()?;
    let control = control()?;
    let fd = u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
    loop {
        let (name, device) = create(&control)?;
        // SAFETY: plain numbers.
        let mut config: Config = unsafe { std::mem::zeroed() };
        config.fd = fd;
        config.block_size = block;
        config.info.flags = LO_FLAGS_DIRECT_IO;
        crate::book::put_text(&mut config.info.file_name, &path.to_string_lossy());
        match ioctl(&device, LOOP_CONFIGURE, (&raw const config) as libc::c_ulong) {
            // Somebody took it for a free one, and was faster.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => {
                drop(device);
                remove(&name);
                return Err(error);
            }
            Ok(_) => {
                let direct =
                    fs::read_to_string(format!("/sys/block/{name}/loop/dio")).unwrap_or_default();
                if direct.trim() != "1" {
                    let _ = ioctl(&device, LOOP_CLR_FD, 0);
                    drop(device);
                    remove(&name);
                    return Err(io::Error::other(
                        "the loop device does not do direct I/O, without which it has one request at a time",
                    ));
                }
                return Ok((name, device.metadata()?.rdev()));
            }
        }
    }
}

/// The device gives the file back, and goes.
pub fn detach(name: &str) -> io::Result<()> {
    let device = match OpenOptions::new().read(true).open(format!("/dev/{name}")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    match ioctl(&device, LOOP_CLR_FD, 0) {
        Err(error) if error.raw_os_error() != Some(libc::ENXIO) => return Err(error),
        _ => {}
    }
    drop(device);
    remove(name);
    Ok(())
}
