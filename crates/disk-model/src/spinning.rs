// SPDX-License-Identifier: MIT OR Apache-2.0
//! One arm over turning platters.

use crate::{Request, Served, part};

/// The numbers of a disk with one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spinning {
    /// Its size.
    pub sectors: u64,
    /// Sectors of a track.
    pub track: u64,
    /// Tracks of a cylinder.
    pub heads: u64,
    /// Time of one revolution, ns.
    pub revolution_ns: u64,
    /// Seek to the next cylinder, ns.
    pub seek_min_ns: u64,
    /// Seek over the whole disk, ns; between them with the square root of the distance.
    pub seek_max_ns: u64,
    /// From the end of one track to the next, ns; tracks are skewed by it.
    pub switch_ns: u64,
    /// Of each request, in the controller, ns.
    pub overhead_ns: u64,
    /// Read-ahead: a read of at most so many sectors that begins where the last read ended comes
    /// from the buffer, which the medium goes on to fill.
    pub buffer: u64,
}

impl Spinning {
    /// 1 TB, 7200 revolutions a minute, 123 MB/s, about 12.6 ms for a random request.
    pub const DESKTOP: Self = Self {
        sectors: 2_000_000_000,
        track: 2000,
        heads: 4,
        revolution_ns: 8_333_333,
        seek_min_ns: 1_000_000,
        seek_max_ns: 15_000_000,
        switch_ns: 800_000,
        overhead_ns: 50_000,
        buffer: 16_384,
    };

    /// 300 GB, 15 000 revolutions a minute, 205 MB/s, about 5.7 ms for a random request.
    pub const SERVER: Self = Self {
        sectors: 600_000_000,
        track: 1600,
        heads: 4,
        revolution_ns: 4_000_000,
        seek_min_ns: 300_000,
        seek_max_ns: 6_500_000,
        switch_ns: 300_000,
        overhead_ns: 30_000,
        buffer: 16_384,
    };

    const fn cylinder(&self, sector: u64) -> u64 {
        sector / (self.track * self.heads)
    }

    /// Time of a seek over so many cylinders.
    pub fn seek_ns(&self, cylinders: u64) -> u64 {
        if cylinders == 0 {
            return 0;
        }
        let most = self.cylinder(self.sectors - 1).max(1);
        // The square root, with 16 binary places.
        let root = part(cylinders.min(most), 1 << 32, most).isqrt();
        self.seek_min_ns + part(root, self.seek_max_ns.saturating_sub(self.seek_min_ns), 1 << 16)
    }

    /// How far tracks are turned against each other, in sectors.
    fn skew(&self) -> u64 {
        part(self.track, self.switch_ns, self.revolution_ns) + 1
    }

    /// Of a sector, in sectors from the index mark.
    fn angle(&self, sector: u64) -> u64 {
        (sector % self.track + sector / self.track % self.track * (self.skew() % self.track))
            % self.track
    }

    /// From the first sector under the head to behind the last one.
    pub fn transfer_ns(&self, sector: u64, sectors: u64) -> u64 {
        if sectors == 0 {
            return 0;
        }
        let crossed = (sector + sectors - 1) / self.track - sector / self.track;
        part(sectors + crossed * self.skew(), self.revolution_ns, self.track)
    }
}

/// The disk at work.
#[derive(Clone, Debug)]
pub(crate) struct Arm {
    kind: Spinning,
    /// Idle from then on.
    free: u64,
    /// The arm is over this sector's cylinder.
    at: u64,
    /// The last read ended there, and the medium passed that place then; so the buffer is being
    /// filled from there.
    ahead: Option<(u64, u64)>,
}

impl Arm {
    pub(crate) fn new(kind: Spinning) -> Self {
        assert!(
            kind.sectors > 0 && kind.track > 0 && kind.heads > 0 && kind.revolution_ns > 0,
            "a disk with something on it"
        );
        Self { kind, free: 0, at: 0, ahead: None }
    }

    pub(crate) const fn kind(&self) -> &Spinning {
        &self.kind
    }

    pub(crate) fn submit(&mut self, now: u64, r: Request) -> Served {
        let k = self.kind;
        let begun = now.max(self.free);
        let ready = begun + k.overhead_ns;
        let (sectors, end) = (u64::from(r.sectors), r.sector + u64::from(r.sectors));
        let done = if sectors == 0 {
            ready
        } else {
            let passed = match self.ahead {
                Some((from, at)) if !r.write && from == r.sector && sectors <= k.buffer => {
                    // From where the medium is, or has been.
                    at + k.transfer_ns(r.sector, sectors)
                }
                _ => {
                    let there =
                        ready + k.seek_ns(k.cylinder(r.sector).abs_diff(k.cylinder(self.at)));
                    let target = part(k.angle(r.sector), k.revolution_ns, k.track);
                    let wait =
                        (target + k.revolution_ns - there % k.revolution_ns) % k.revolution_ns;
                    there + wait + k.transfer_ns(r.sector, sectors)
                }
            };
            self.ahead = (!r.write).then_some((end, passed));
            self.at = end - 1;
            passed.max(ready)
        };
        self.free = done;
        Served { begun, done }
    }
}
