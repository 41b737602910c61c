// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modelled disks: when a request would be done, in nanoseconds of whatever clock the caller has.
//! They hold no data.
//!
//! A test lets virtual time jump from one answer of [`Disk::submit`] to the next; a block target
//! keeps its data elsewhere and waits until then. Pure and deterministic: no clock, float or
//! randomness, so the same requests at the same times take the same.
//!
//! * [`Spinning`]: one arm; seek by the square root of the distance, rotation by the angle at that
//!   instant, transfer at the rate of the medium, a read-ahead buffer for sequential reads.
//! * [`Flash`]: channels that work at the same time, an access time for each page, one interface.
//!
//! Requests are served in the order of submission: the order is the scheduler's. Whoever keeps
//! several submitted has the device's queue.
//!
//! Example (also a test): [`Spinning::DESKTOP`], idle, arm at cylinder 0. 8 sectors in the middle
//! of the disk take 1 ms + 14 ms · √½ of seek, up to one revolution of 8.33 ms, and 8/2000 of a
//! revolution.
//!
//! Limits: one zone (the same sectors on each track), no write cache, no reordering in the drive,
//! no garbage collection in flash.
//!
//! References: Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 1994
//! (√distance, skew, read-ahead).
#![forbid(unsafe_code)]
#![deny(
    clippy::float_arithmetic,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod flash;
mod spinning;

pub use flash::Flash;
pub use spinning::Spinning;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The first sector.
    pub sector: u64,
    /// How many; 0: nothing is transferred (a flush), which takes the overhead only.
    pub sectors: u32,
    /// Whether they are written.
    pub write: bool,
}

/// When a request was begun and when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Not before it was submitted.
    pub begun: u64,
    /// When the host is told.
    pub done: u64,
}

impl Served {
    /// Time that the device worked on it.
    pub const fn took(self) -> u64 {
        self.done - self.begun
    }
}

/// A request ends beyond the end of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The request.
    pub request: Request,
    /// Sectors that the disk has.
    pub sectors: u64,
}

impl std::fmt::Display for Beyond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Request { sector, sectors, .. } = self.request;
        write!(f, "sectors {sector}+{sectors} end beyond the disk's {}", self.sectors)
    }
}

impl std::error::Error for Beyond {}

/// What kind of disk, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One arm over turning platters.
    Spinning(Spinning),
    /// Channels of flash.
    Flash(Flash),
}

/// A disk and where it is: arm and angle, or what each channel is busy with.
#[derive(Clone, Debug)]
pub struct Disk {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Spinning(spinning::Arm),
    Flash(flash::Channels),
}

impl Disk {
    /// An idle disk at time 0, its arm at sector 0.
    ///
    /// # Panics
    /// When a number of `kind` that others are divided by is 0, or it has no sectors.
    pub fn new(kind: Kind) -> Self {
        let state = match kind {
            Kind::Spinning(s) => State::Spinning(spinning::Arm::new(s)),
            Kind::Flash(f) => State::Flash(flash::Channels::new(f)),
        };
        Self { state }
    }

    /// How many sectors it has.
    pub const fn sectors(&self) -> u64 {
        match &self.state {
            State::Spinning(a) => a.kind().sectors,
            State::Flash(c) => c.kind().sectors,
        }
    }

    /// A request reaches the device at `now`, which does not go back. It is served after all that
    /// were submitted before (flash: after those that need the same channels).
    pub fn submit(&mut self, now: u64, request: Request) -> Result<Served, Beyond> {
        let sectors = self.sectors();
        let end = request.sector.checked_add(request.sectors.into());
        if end.is_none_or(|e| e > sectors) {
            return Err(Beyond { request, sectors });
        }
        Ok(match &mut self.state {
            State::Spinning(a) => a.submit(now, request),
            State::Flash(c) => c.submit(now, request),
        })
    }

    /// What [`Disk::submit`] would answer; nothing changes.
    pub fn estimate(&self, now: u64, request: Request) -> Result<Served, Beyond> {
        self.clone().submit(now, request)
    }
}

/// `count` pieces of which `per` take `time`, without overflow where the result fits.
pub(crate) fn part(count: u64, time: u64, per: u64) -> u64 {
    u64::try_from(u128::from(count) * u128::from(time) / u128::from(per)).unwrap_or(u64::MAX)
}
