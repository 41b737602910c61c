// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own threads that do the protocol's work for what comes in by an interface
//! (threaded NAPI), instead of softirqs in the time of whoever is interrupted. They are the
//! interface's and end with it. Which queue of the CPU they are in is the daemon's business.
//!
//! That they are ours is written down before they are begun, so that who dies in between leaves
//! nothing behind that nobody ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::rtnl;
use crate::libbpf::os;
use crate::{PlaneError, settings};

/// Exists while the threads of the link with this number are ours; names the interface.
fn note(run: &Path, number: u8) -> PathBuf {
    run.join(format!("receive-threads-{number}"))
}

fn switch(interface: &str) -> PathBuf {
    Path::new("/sys/class/net").join(interface).join("threaded")
}

fn cannot(interface: &str, why: &str) -> PlaneError {
    PlaneError::Unsupported(format!("what comes in by {interface} has no threads: {why}"))
}

/// Whether the interface has them; an interface that is not there has none.
fn has(interface: &str) -> Result<bool, PlaneError> {
    match fs::read_to_string(switch(interface)) {
        Ok(text) => Ok(text.trim() != "0"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(os(format!("read {}", switch(interface).display()))(error)),
    }
}

fn set(interface: &str, on: bool) -> Result<(), PlaneError> {
    fs::write(switch(interface), if on { "1" } else { "0" }).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOENT) => cannot(interface, "this kernel has none (Linux 5.12)"),
            Some(libc::EOPNOTSUPP) => cannot(
                interface,
                "nothing is polled there (a veth is, while it is up, with --receive=xdp or GRO)",
            ),
            _ => os(format!("write {}", switch(interface).display()))(error),
        }
    })
}

/// Begins them, unless they are there. Those of somebody else are not touched, nor can they be
/// used: whoever began them has given them a place.
pub(crate) fn begin(number: u8, interface: &str) -> Result<(), PlaneError> {
    let note = note(&settings::run(), number);
    let ours = fs::read_to_string(&note).is_ok_and(|text| text == interface);
    if has(interface)? {
        if ours {
            return Ok(());
        }
        let switch = switch(interface);
        let why = format!("it has some that are not Reserv's: echo 0 > {}", switch.display());
        return Err(cannot(interface, &why));
    }
    find(interface)?;
    fs::write(&note, interface).map_err(os(format!("write {}", note.display())))?;
    if rtnl::index_of(interface).is_some() { set(interface, true) } else { Ok(()) }
}

/// Begins those that are ours again where the interface has lost them: one that came again and was
/// not up yet. The caller has the link, so nobody ends them meanwhile.
pub fn again(number: u8, interface: &str) -> Result<(), PlaneError> {
    let ours = fs::read_to_string(note(&settings::run(), number)).is_ok_and(|t| t == interface);
    let there = rtnl::index_of(interface).is_some();
    if ours && there && !has(interface)? { set(interface, true) } else { Ok(()) }
}

/// Ends those that are ours.
pub(crate) fn end(number: u8) -> Result<(), PlaneError> {
    let note = note(&settings::run(), number);
    let Ok(interface) = fs::read_to_string(&note) else { return Ok(()) };
    if has(&interface)? {
        match set(&interface, false) {
            // Somebody has taken away what they polled, and them with it.
            Err(PlaneError::Unsupported(why)) => tracing::debug!(why, "threads of what came in"),
            ended => ended?,
        }
    }
    fs::remove_file(&note).map_err(os(format!("remove {}", note.display())))
}

/// Those that an interface has now, by tid, in order; none where it is not there, or down.
pub fn find(interface: &str) -> Result<Vec<i32>, PlaneError> {
    let Some(index) = rtnl::index_of(interface) else { return Ok(Vec::new()) };
    let told = rtnl::napi_threads(index).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EINVAL) => {
            cannot(interface, "this kernel does not say which they are (Linux 6.8)")
        }
        _ => os(format!("the threads of {interface}"))(error),
    })?;
    let mut found: Vec<i32> = told.into_iter().filter(|tid| is_one(*tid)).collect();
    found.sort_unstable();
    Ok(found)
}

/// Whether a thread is one of any interface. The kernel tells numbers of its first name space of
/// processes: in another one they are somebody else's, or nobody's.
pub fn is_one(tid: i32) -> bool {
    fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|name| name.starts_with("napi/"))
}
