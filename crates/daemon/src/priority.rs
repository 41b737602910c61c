// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon is not to wait for the tree that it manages: under full load each round trip of an
//! edit would wait for a turn of q0 (measured in the guest, q0 at 4 of 204 with two busy queues:
//! about 100 edits per second instead of 580).
//!
//! The threads that answer requests and look after the resource get a reservation of the kernel's
//! own, beside our tree: `SCHED_DEADLINE`, 2 ms in 10 ms. It is a guarantee and a bound: whoever
//! floods /reserv with requests takes at most a fifth of one CPU from the others for each of the
//! two threads that have it (a real-time priority would have no such bound).

use std::io;
use std::time::Duration;

/// While nothing schedules yet (programs are verified and loaded, a tree is adopted), a reservation
/// of 2 ms would be too little, and as one of many the daemon would wait for its turn: on a busy
/// machine `reserv up` took minutes.
const NICE: libc::c_int = -10;

const RUNTIME: Duration = Duration::from_millis(2);
const PERIOD: Duration = Duration::from_millis(10);
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` in its first version (`SCHED_ATTR_SIZE_VER0`).
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Puts this process before the ordinary ones, unless somebody chose its nice value. Where that is
/// refused it stays one of them.
pub fn prefer() {
    // SAFETY: no memory is involved; 0 is the calling process. An error reads as -1, which somebody
    // may have chosen as well.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, 0) == 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        }
    }
}

/// Gives the calling thread its reservation. Where the kernel refuses (no rights, no bandwidth
/// left, a cpuset of part of the CPUs), the thread stays as it is: it is served with q0.
pub fn reserve() {
    if let Err(error) = try_reserve() {
        tracing::info!(%error, "no SCHED_DEADLINE for reservd: its threads are served with q0");
    }
}

/// Threads that `begin` begins, and those that they begin, have the floor of kernel threads in q0
/// (`bpf/cpu/floor.h`): the full driver gives it to whoever tells the kernel that it waits for him,
/// which takes `CAP_SYS_RESOURCE`. A new thread has it from its first step on, as a reservation of
/// its own has not. For threads that hear root alone, since it is shared with the kernel's own.
/// Where the kernel refuses, they are served with q0.
pub fn with_floor<T>(begin: impl FnOnce() -> T) -> T {
    as_flusher(true, begin)
}

/// Threads that `begin` begins have no floor, also where the calling one gives it to those that it
/// begins: what goes on when root's request has been answered, and works for everybody.
pub fn without_floor<T>(begin: impl FnOnce() -> T) -> T {
    as_flusher(false, begin)
}

/// What `begin` begins says so, or does not; the calling thread is as before afterwards.
fn as_flusher<T>(yes: bool, begin: impl FnOnce() -> T) -> T {
    const PR_GET_IO_FLUSHER: libc::c_int = 58;
    // SAFETY: numbers only. An error reads as no.
    let did = unsafe { libc::prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) } == 1;
    if did != yes {
        flusher(yes);
    }
    let done = begin();
    if did != yes {
        flusher(did);
    }
    done
}

/// Whether the calling thread, and threads that it begins from now on, say so.
fn flusher(yes: bool) {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: numbers only.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, libc::c_ulong::from(yes), 0, 0, 0) } < 0 {
        let error = io::Error::last_os_error();
        tracing::info!(%error, "no floor for the control socket's threads: they wait with q0");
    }
}

fn try_reserve() -> io::Result<()> {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(0);
    let attributes = Attributes {
        size: u32::try_from(size_of::<Attributes>()).unwrap_or(0),
        policy: libc::SCHED_DEADLINE.cast_unsigned(),
        flags: SCHED_FLAG_RESET_ON_FORK,
        nice: 0,
        priority: 0,
        runtime_ns: ns(RUNTIME),
        deadline_ns: ns(PERIOD),
        period_ns: ns(PERIOD),
    };
    // SAFETY: the structure is as long as it says and lives through the call; 0 is the calling
    // thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_kernels_first_length() {
        assert_eq!(size_of::<Attributes>(), 48);
    }
}
