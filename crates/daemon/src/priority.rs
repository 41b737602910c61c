// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon is not to wait for the tree that it manages: under full load each round trip of an
//! edit would wait for a turn of q0 (measured in the guest, q0 at 4 of 204 with two busy queues:
//! about 100 edits per second instead of 580).
//!
//! The threads that answer requests and look after the resource get a reservation of the kernel's
//! own, beside our tree: `SCHED_DEADLINE`, 2 ms in 10 ms. It is a guarantee and a bound: whoever
//! floods /reserv with requests takes at most a fifth of one CPU from the others for each of the
//! two threads that have it (a real-time priority would have no such bound).
//!
//! All other threads may have a resource, or a lock, when their turn in q0 ends, and root's edit
//! would wait for their next one, behind every thread of a tenant's there. So each has the floor of
//! kernel threads (`bpf/cpu/floor.h`), from its first step on: [`crate::begin`], where all threads
//! are begun, sees to it. Tenants decide how much there is to do for most of them (process events,
//! releases, requests), and the floor is the kernel's own and root's too. So whoever is not for
//! root alone ([`for_root`]) is nice there, and leaves half of what a CPU has of it to them.

use std::cell::Cell;
use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// While nothing schedules yet (programs are verified and loaded, a tree is adopted), a reservation
/// of 2 ms would be too little, and as one of many the daemon would wait for its turn: on a busy
/// machine `reserv up` took minutes.
const NICE: libc::c_int = -10;
/// Who is nice begins a step under the floor only while more than half of it is there.
const NICE_OF_ALL: libc::c_int = 1;

/// The CPU's driver has a floor. Under another one a thread that is nice would only wait longer.
static FLOOR: AtomicBool = AtomicBool::new(false);

thread_local! {
    static FOR_ROOT: Cell<bool> = const { Cell::new(false) };
}

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

/// Whether the CPU's driver has a floor, for threads that begin from now on.
pub fn there_is_a_floor(is: bool) {
    FLOOR.store(is, Ordering::SeqCst);
}

/// Threads that `begin` begins, and those that they begin, work for root alone.
pub fn for_root<T>(begin: impl FnOnce() -> T) -> T {
    working_for(true, begin)
}

/// Threads that `begin` begins work for everybody, also where the calling one works for root: what
/// goes on when root's request has been answered.
pub fn for_all<T>(begin: impl FnOnce() -> T) -> T {
    working_for(false, begin)
}

fn working_for<T>(root: bool, begin: impl FnOnce() -> T) -> T {
    let was = FOR_ROOT.replace(root);
    let done = begin();
    FOR_ROOT.set(was);
    done
}

/// Begins a thread: `spawn` is given what the thread is to do before anything else. It has the
/// floor from its first step on, as a reservation of its own has not: the full driver gives it to
/// who tells the kernel, by then, that it waits for him (`PR_SET_IO_FLUSHER`), which takes
/// `CAP_SYS_RESOURCE`. Where the kernel refuses, the thread is served with q0.
pub(crate) fn with_floor<T>(spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> T) -> T {
    let root = FOR_ROOT.get();
    let first = Box::new(move || {
        FOR_ROOT.set(root);
        if !root && FLOOR.load(Ordering::SeqCst) {
            be_nice();
        }
    });
    let did = is_flusher();
    if !did {
        flusher(true);
    }
    let spawned = spawn(first);
    if !did {
        flusher(false);
    }
    spawned
}

/// Unless somebody chose a nice value that is as high.
fn be_nice() {
    // SAFETY: no memory is involved; 0 is the calling thread.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, 0) < NICE_OF_ALL {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE_OF_ALL);
        }
    }
}

/// Whether the calling thread says that the kernel waits for it.
fn is_flusher() -> bool {
    const PR_GET_IO_FLUSHER: libc::c_int = 58;
    // SAFETY: numbers only. An error reads as no.
    unsafe { libc::prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) == 1 }
}

/// Whether the calling thread, and threads that it begins from now on, say so.
fn flusher(yes: bool) {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    static SAID: Once = Once::new();
    // SAFETY: numbers only.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, libc::c_ulong::from(yes), 0, 0, 0) } < 0 {
        let error = io::Error::last_os_error();
        SAID.call_once(|| {
            tracing::info!(%error, "no floor for reservd's threads: they are served with q0");
        });
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

    fn nice() -> i32 {
        // SAFETY: no memory is involved; 0 is the calling thread.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    /// What a thread has that is begun here: the floor, for whom it works, and its nice value.
    fn begun() -> (bool, bool, i32) {
        let thread = crate::begin::thread("one", || (is_flusher(), FOR_ROOT.get(), nice()));
        thread.unwrap().join().unwrap()
    }

    #[test]
    fn every_thread_that_is_begun_has_the_floor_and_leaves_half_of_it_to_root() {
        flusher(true);
        let may = is_flusher();
        flusher(false);
        if !may {
            // A test that needs root says so.
            eprintln!("not root: no floor to look at");
        }
        let nice = nice();
        assert_eq!(begun(), (may, false, nice), "there is no floor to leave something of");
        assert!(!is_flusher(), "who begins it is as before");
        there_is_a_floor(true);
        assert_eq!(begun(), (may, false, nice.max(NICE_OF_ALL)));
        let of_root = for_root(|| crate::begin::thread("control", || (begun(), for_all(begun))));
        let (own, others) = of_root.unwrap().join().unwrap();
        assert_eq!(own, (may, true, nice), "root's begins one of root's");
        assert_eq!(others, (may, false, nice.max(NICE_OF_ALL)), "or one of everybody's");
        assert_eq!(begun(), (may, false, nice.max(NICE_OF_ALL)), "and is alone in that");
        there_is_a_floor(false);
    }
}
