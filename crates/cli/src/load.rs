// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of `compare`'s own workload: each waits until it is told when to begin and end,
//! loads the CPU in its way, and says what it got as one line of JSON.
//!
//! * `hog` computes all the time.
//! * `sleeper` sleeps until a moment, works 0.2 ms, and notes how late it was woken: an interactive
//!   program.
//! * `decoder` has 8 ms of work every 33 ms (30 frames per second); a frame that is not done when
//!   the next is due is a miss.

use std::io::{BufRead as _, Write as _};

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use serde::{Deserialize, Serialize};

const MS: u64 = 1_000_000;
const SLEEP: u64 = 7 * MS;
const SLEEPER_WORK: u64 = MS / 5;
/// Of the decoder.
pub(crate) const PERIOD: u64 = 33 * MS;
/// CPU time of a frame.
pub(crate) const BUDGET: u64 = 8 * MS;

/// What one program got.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Got {
    /// CPU time between beginning and end.
    pub(crate) cpu_ns: u64,
    /// Times that it left the CPU.
    pub(crate) switches: u64,
    /// Lateness of every wake-up (`sleeper`).
    #[serde(default)]
    pub(crate) late_ns: Vec<u64>,
    /// Frames that were due (`decoder`).
    #[serde(default)]
    pub(crate) frames: u64,
    /// Those that were not done in time.
    #[serde(default)]
    pub(crate) misses: u64,
}

fn clock(id: ClockId) -> u64 {
    clock_gettime(id).map_or(0, |t| {
        u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000
            + u64::try_from(t.tv_nsec()).unwrap_or(0)
    })
}

/// The time that everybody agrees on.
pub(crate) fn now() -> u64 {
    clock(ClockId::CLOCK_MONOTONIC)
}

fn cpu() -> u64 {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn sleep_until(at: u64) {
    let seconds = i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX);
    let at = nix::sys::time::TimeSpec::new(seconds, i64::try_from(at % 1_000_000_000).unwrap_or(0));
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at)
        == Err(nix::errno::Errno::EINTR)
    {}
}

/// Computes until this thread's CPU time is `until`, or it is `end`.
fn work(until: u64, end: u64) {
    let mut x = 1_u64;
    while cpu() < until && now() < end {
        for _ in 0..2000 {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn switches() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        let count = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        u64::try_from(count).unwrap_or(0)
    })
}

/// Waits for a line with beginning and end, runs, answers.
pub(crate) fn main(kind: &str) -> i32 {
    let mut line = String::new();
    let told = std::io::stdin().lock().read_line(&mut line).ok();
    let numbers: Vec<u64> = line.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
    let (Some(_), &[from, end]) = (told, numbers.as_slice()) else { return 2 };
    sleep_until(from);
    let (cpu_before, switches_before) = (cpu(), switches());
    let mut got = Got::default();
    match kind {
        "hog" => work(u64::MAX, end),
        "sleeper" => {
            let mut at = from;
            while at + SLEEP < end {
                at += SLEEP;
                sleep_until(at);
                let woken = now();
                got.late_ns.push(woken.saturating_sub(at));
                work(cpu() + SLEEPER_WORK, end);
                // Whoever is very late does not hurry after what it has missed.
                at = at.max(now().saturating_sub(SLEEP));
            }
        }
        "decoder" => {
            let mut release = from;
            while release + PERIOD <= end {
                sleep_until(release);
                work(cpu() + BUDGET, end);
                got.frames += 1;
                got.misses += u64::from(now() > release + PERIOD);
                release += PERIOD;
            }
        }
        _ => return 2,
    }
    (got.cpu_ns, got.switches) = (cpu() - cpu_before, switches() - switches_before);
    let text = serde_json::to_string(&got).unwrap_or_default();
    i32::from(writeln!(std::io::stdout(), "{text}").is_err())
}
