// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserv's commands of `fcntl` (bpf/abi.h), and what a descriptor is.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

pub(crate) use reserv_facts::call::fcntl::{
    BIND, BOUND, CHCPURES, GET_QUEUE, GETCPURES, GETPARAM, PAGE, SET_QUEUE, SETPARAM, SLOT, UNBIND,
};
pub(crate) use reserv_facts::call::page::{PAGE_LOG, SLOT_BITS, SLOTS};
use reserv_facts::call::{SO_QUEUE, SO_QUEUE_OF, SOL};
pub(crate) use reserv_facts::call::{ThreadPage, ThreadParam};

fn answer(got: i32) -> io::Result<i32> {
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got) }
}

/// A command with a number.
pub(crate) fn number(fd: RawFd, command: i32, argument: i32) -> io::Result<i32> {
    // SAFETY: The command takes a number; one that the kernel does not know is EINVAL.
    answer(unsafe { libc::fcntl(fd, command, libc::c_long::from(argument)) })
}

/// As SET_QUEUE, of a socket, by setsockopt: where the kernel refuses what fcntl needs.
pub(crate) fn set_option(fd: RawFd, queue: RawFd) -> io::Result<()> {
    let (value, size) =
        (std::ptr::from_ref(&queue).cast(), libc::socklen_t::try_from(size_of::<RawFd>()));
    // SAFETY: The option is an int that is only read.
    answer(unsafe { libc::setsockopt(fd, SOL, SO_QUEUE, value, size.unwrap_or(4)) }).map(drop)
}

/// As GET_QUEUE, of a socket, by getsockopt.
pub(crate) fn get_option(fd: RawFd, resource: i32) -> io::Result<i32> {
    let (mut number, mut size) = (0_i32, 4);
    let value = std::ptr::from_mut(&mut number).cast();
    // SAFETY: The option is an int, and its size is told.
    answer(unsafe {
        libc::getsockopt(fd, SOL, SO_QUEUE_OF.saturating_add(resource), value, &raw mut size)
    })?;
    Ok(number)
}

/// SETPARAM or GETPARAM.
pub(crate) fn param(fd: RawFd, command: i32, param: &mut ThreadParam) -> io::Result<i32> {
    // SAFETY: The command reads or writes one structure of the size that stands in it.
    answer(unsafe { libc::fcntl(fd, command, std::ptr::from_mut(param)) })
}

/// PAGE: where it is, or null.
pub(crate) fn page(fd: RawFd, page: *mut ThreadPage) -> io::Result<()> {
    // SAFETY: The command reads a structure of the size that stands in it, now and until it is
    // called with null; whoever calls this keeps the memory until then.
    answer(unsafe { libc::fcntl(fd, PAGE, page) }).map(drop)
}

fn status(fd: RawFd) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat writes one structure.
    answer(unsafe { libc::fstat(fd, stat.as_mut_ptr()) })?;
    // SAFETY: It succeeded, so the structure is filled.
    Ok(unsafe { stat.assume_init() })
}

/// Device and inode number of a descriptor. Where it is of /reserv this asks reservd, which no lock
/// of a directory holds up.
pub(crate) fn identity(fd: RawFd) -> io::Result<(u64, u64)> {
    let stat = status(fd)?;
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

/// Whether a descriptor is of a block device, or of a file in a file system on it.
pub(crate) fn lives_on(fd: RawFd, device: u64) -> io::Result<bool> {
    let stat = status(fd)?;
    let block = stat.st_mode & libc::S_IFMT == libc::S_IFBLK;
    Ok(stat.st_dev as u64 == device || (block && stat.st_rdev as u64 == device))
}

/// Whether the descriptor is open.
pub(crate) fn is_open(fd: RawFd) -> bool {
    // SAFETY: F_GETFD has no argument and changes nothing.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// The calling thread's id.
pub(crate) fn gettid() -> i32 {
    // SAFETY: It has no argument and cannot fail.
    unsafe { libc::gettid() }
}

/// The process's id: that of its first thread.
pub(crate) fn getpid() -> i32 {
    // SAFETY: It has no argument and cannot fail.
    unsafe { libc::getpid() }
}

/// The calling thread's effective user.
pub(crate) fn geteuid() -> u32 {
    // SAFETY: It has no argument and cannot fail.
    unsafe { libc::geteuid() }
}
