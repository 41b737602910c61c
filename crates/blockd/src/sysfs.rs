// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's files say about block devices: elevators, and who uses a device.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

fn queue(major: u32, minor: u32) -> Option<PathBuf> {
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has the queue of its disk.
    [device.join("queue"), device.join("../queue")].into_iter().find(|path| path.exists())
}

/// The elevator in use; `None`: the device has none to choose from.
pub fn elevator(major: u32, minor: u32) -> Option<String> {
    let text = fs::read_to_string(queue(major, minor)?.join("scheduler")).ok()?;
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(name, _)| name.to_owned())
}

/// Choose one.
pub fn set_elevator(major: u32, minor: u32, name: &str) -> std::io::Result<()> {
    let folder =
        queue(major, minor).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOENT))?;
    fs::write(folder.join("scheduler"), name)
}

/// Have at most so many requests of each hardware queue at once, or so much in one, where that is
/// not so already. Changing it waits until the device's requests are answered.
pub fn set_limit(major: u32, minor: u32, file: &str, most: u32) -> std::io::Result<()> {
    if number((major, minor), file) == most {
        return Ok(());
    }
    let folder =
        queue(major, minor).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOENT))?;
    fs::write(folder.join(file), most.to_string())
}

/// A number of a queue's, or of the queue that a file system's device has; 0: none is known.
fn number((major, minor): (u32, u32), file: &str) -> u32 {
    let text = queue(major, minor).and_then(|folder| fs::read_to_string(folder.join(file)).ok());
    // Bytes of discards are more than 32 bits.
    text.and_then(|text| text.trim().parse::<u64>().ok())
        .map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// What the disk writes at once, where that is a block's usual size; else 512.
pub fn physical_block(device: (u32, u32)) -> u32 {
    let bytes = number(device, "physical_block_size");
    if bytes.is_power_of_two() { bytes.clamp(512, 4096) } else { 512 }
}

/// It has a head that moves.
pub fn is_rotational(device: (u32, u32)) -> bool {
    number(device, "rotational") == 1
}

/// It takes discards.
pub fn can_discard(device: (u32, u32)) -> bool {
    number(device, "discard_max_bytes") > 0
}

/// It makes zeros without being sent any.
pub fn can_zero(device: (u32, u32)) -> bool {
    number(device, "write_zeroes_max_bytes") > 0
}

/// What is written must not change meanwhile: sums are made over it.
pub fn wants_stable(device: (u32, u32)) -> bool {
    number(device, "stable_writes") == 1
}

/// Data in memory may have gaps only at multiples of this and one; 0: anywhere.
pub fn virt_boundary(device: (u32, u32)) -> u64 {
    number(device, "virt_boundary_mask").into()
}

/// Requests under way at a device, by the kernel's count.
pub fn inflight(major: u32, minor: u32) -> u64 {
    let text =
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/inflight")).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse::<u64>().ok()).sum()
}

/// A file of the kernel's with names in it, which need not be text: anybody calls his process, and
/// what he mounts on (fusermount), as he likes. Empty where there is none.
fn shown(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Who uses a block device, in words, this process and `but` aside: mounts, swap, devices on top of
/// it, programs that have it open. Empty: nobody. No other process' file is looked at, only its
/// name: a file of /reserv would be asked of reservd, which may be waiting for this answer.
pub fn users(name: &str, dev: u64, but: &[u32]) -> Vec<String> {
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/sys/block/{name}")).into_iter().flatten().flatten() {
        let of_part = |file| fs::read_to_string(entry.path().join(file));
        if of_part("partition").is_ok()
            && let Ok(number) = of_part("dev")
            && let Some((major, minor)) = number.trim().split_once(':')
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
        {
            let part = entry.file_name().to_string_lossy().into_owned();
            let of_it = users(&part, libc::makedev(major, minor), but);
            found.extend(of_it.into_iter().map(|user| format!("{user} as {part}")));
        }
    }
    let number = format!("{major}:{minor}");
    for line in shown("/proc/self/mountinfo").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words.len() > 4 && words[2] == number {
            found.push(format!("mounted at {}", words[4]));
        }
    }
    for entry in
        fs::read_dir(format!("/sys/dev/block/{number}/holders")).into_iter().flatten().flatten()
    {
        let holder = entry.file_name().to_string_lossy().into_owned();
        // Device mapper's have a name that means more.
        let volume = fs::read_to_string(entry.path().join("dm/name"));
        found.push(volume.map_or_else(
            |_| format!("below {holder}"),
            |volume| format!("below {holder} ({})", volume.trim_end()),
        ));
    }
    for entry in fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
        // Only its name: it may be a file of our own, and we would be asked for it.
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if file.trim_end() == format!("/dev/{name}") {
            found.push(format!("below {}", entry.file_name().to_string_lossy()));
        }
    }
    for line in shown("/proc/swaps").lines().skip(1) {
        let name = line.split_whitespace().next().unwrap_or_default();
        if fs::metadata(name).is_ok_and(|found| found.rdev() == dev) {
            found.push("swap".into());
        }
    }
    let path = PathBuf::from(format!("/dev/{name}"));
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == std::process::id() || but.contains(&pid) {
            continue;
        }
        let mut open = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let has = open.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path));
        if has {
            let name = shown(entry.path().join("comm"));
            found.push(format!("open in {} ({pid})", name.trim_end()));
        }
    }
    found
}
