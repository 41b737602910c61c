// SPDX-License-Identifier: MIT OR Apache-2.0
//! No CPU idles beside work that it may do. A thread is woken at about the moment at which the only
//! CPU that is not busy goes idle, by one that then wakes nobody for longer than half a step.
//! `RESERV_TIMED` must stand in the environment: the programs count then (`bpf/cpu/idle.h`).

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, ptr};

use crate::setup::{Answer, Setup, check};

/// What the sleeper works that keeps the other CPU busy, and the one that is to be lost.
const LONG: Duration = Duration::from_micros(150);
const SHORT: Duration = Duration::from_micros(5);
/// Nobody is woken for so long, who could bring a CPU by chance.
const SILENCE: Duration = Duration::from_micros(3500);

fn spin(how_long: Duration) {
    let until = Instant::now() + how_long;
    while Instant::now() < until {}
}

/// Sleeps, and works for so long whenever it is woken; counts how often it is done.
fn sleeper(over: &Arc<AtomicBool>, how_long: Duration, done: &Arc<AtomicU64>) -> JoinHandle<()> {
    let (over, done) = (Arc::clone(over), Arc::clone(done));
    thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            thread::park();
            spin(how_long);
            done.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// A timer that nobody reads. Emulated CPUs take turns, as long as the next timer is away: it goes
/// off all the time, so that they do not go idle in one go.
struct Turns(OwnedFd);

impl Turns {
    fn new() -> io::Result<Self> {
        // SAFETY: no preconditions.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was made just now.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Busy for so long.
    fn spin(&self, how_long: Duration) {
        let until = Instant::now() + how_long;
        while Instant::now() < until {
            let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let soon = libc::timespec { tv_sec: 0, tv_nsec: 10_000 };
            let when = libc::itimerspec { it_interval: none, it_value: soon };
            // SAFETY: `when` lives until the call returns, which writes nothing.
            unsafe {
                libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const when, ptr::null_mut())
            };
            spin(Duration::from_micros(12));
        }
    }
}

/// In a scheduler that runs, for so long.
pub(crate) fn beside(setup: &Setup, how_long: Duration) -> Answer {
    let cpus = thread::available_parallelism()?.get();
    let over = Arc::new(AtomicBool::new(false));
    let turns = Turns::new()?;
    let done = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let sleepers = [sleeper(&over, LONG, &done[0]), sleeper(&over, SHORT, &done[1])];
    let mut threads = Vec::new();
    for _ in 2..cpus {
        let over = Arc::clone(&over);
        threads.push(thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                crate::spin::straight_line();
            }
        }));
    }
    let busy = Arc::clone(&over);
    threads.push(thread::spawn(move || {
        let [long, short] = &sleepers;
        let mut seed = 1_u64;
        while !busy.load(Ordering::Relaxed) {
            let before = done[0].load(Ordering::Relaxed);
            long.thread().unpark();
            turns.spin(LONG / 3);
            // The other one, while the other CPU is busy: it runs here, and is of this CPU then.
            short.thread().unpark();
            thread::yield_now();
            // And once more, from before that CPU goes idle to after that.
            let until = Instant::now() + 10 * LONG;
            while done[0].load(Ordering::Relaxed) == before && Instant::now() < until {
                turns.spin(SHORT);
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            turns.spin(Duration::from_micros((seed >> 33) % 60));
            short.thread().unpark();
            turns.spin(SILENCE);
        }
        for sleeper in sleepers {
            sleeper.thread().unpark();
            let _ = sleeper.join();
        }
    }));
    let before = setup.plane.0.counters();
    thread::sleep(how_long);
    let now = setup.plane.0.counters();
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        let _ = thread.join();
    }
    let (waits, late) = (now.idle_waits - before.idle_waits, now.idle_late - before.idle_late);
    check(
        waits >= 50 * how_long.as_secs(),
        &format!("{cpus} CPUs: a thread waited while a CPU idled, {waits} times"),
    );
    check(
        late == 0,
        &format!("no CPU idled beside work for longer than one wake-up: {late} times"),
    );
    Ok(())
}

pub(crate) fn run() -> Answer {
    let mut setup = Setup::new()?;
    beside(&setup, Duration::from_secs(60))?;
    setup.health("after that")
}
