// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantities with their units, exact: integers only.

use serde::{Deserialize, Serialize};

/// A weight in thousandths: `24` is 24 000, `0.24` is 240. 0 is background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Weight(u32);

impl Weight {
    /// Background: served when no sibling with a positive weight wants, plus a floor that keeps it alive.
    pub const BACKGROUND: Self = Self(0);
    /// The largest, 1 000 000.
    pub const MAX: Self = Self(1_000_000_000);
    /// What `mk` gives when no share is named: 100.
    pub const DEFAULT: Self = Self(100_000);

    /// `None` above [`Weight::MAX`].
    pub const fn from_milli(milli: u32) -> Option<Self> {
        if milli <= Self::MAX.0 { Some(Self(milli)) } else { None }
    }

    /// In thousandths.
    pub const fn milli(self) -> u32 {
        self.0
    }
}

/// An upper limit on CPU service: a token bucket in arrears (ALGORITHMS §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    /// CPU time per second of wall time, in ns: `250ms/s` is 250 000 000, `1.5cpu` is 1 500 000 000.
    pub rate_ns_per_s: u64,
    /// Most unused allowance that is kept, in ns; 0 lets the plane choose (two quanta or 10 ms of the rate).
    pub burst_ns: u64,
}

/// A minimum that admission control promises, in ns of CPU per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Minimum(pub u64);
