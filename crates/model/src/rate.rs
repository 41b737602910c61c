// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a link is: bits per second, exact.
//!
//! `rate = digits ["." digits] ("bit" | "kbit" | "mbit" | "gbit" | "kb" | "mb" | "gb") ["/s"]`, in
//! any case: `100mbit`, `1.5gbit`, `100Mbit/s`; of disks rather bytes: `3MB/s`, as much as `24mbit`.
//! Decimal prefixes. What was written in bytes is printed in bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{Error, ErrorKind};

/// Bits per second. Two are equal that are as fast, whatever they were written in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    bits: u64,
    /// Written in bytes.
    in_bytes: bool,
}

/// Each unit as it is printed, with its bits.
const UNITS: [(&str, u64); 4] =
    [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];
/// The same in bytes.
const BYTES: [(&str, u64); 3] = [("GB/s", 8_000_000_000), ("MB/s", 8_000_000), ("kB/s", 8000)];
const HINT: &str = "a rate is 8kbit to 400gbit: 100mbit, 1.5gbit, 3MB/s";

impl Rate {
    /// Less is no link.
    pub const MIN: Self = Self { bits: 8_000, in_bytes: false };
    /// More than there is.
    pub const MAX: Self = Self { bits: 400_000_000_000, in_bytes: false };

    /// Per second.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// Of so many bytes per second; may be outside of what parses.
    pub(crate) const fn of_bytes(bytes: u64, in_bytes: bool) -> Self {
        Self { bits: bytes.saturating_mul(8), in_bytes }
    }

    /// Per second; what is less than a byte is left out.
    pub const fn bytes(self) -> u64 {
        self.bits / 8
    }

    /// As a part of a source's name, where a slash begins something else: `3MB` for `3MB/s`.
    pub fn bare(self) -> String {
        self.to_string().trim_end_matches("/s").to_owned()
    }

    /// Whether it was written in bytes.
    pub const fn is_in_bytes(self) -> bool {
        self.in_bytes
    }
}

impl PartialEq for Rate {
    fn eq(&self, other: &Self) -> bool {
        self.bits == other.bits
    }
}

impl Eq for Rate {}

impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bits.cmp(&other.bits)
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong =
            || Error::new(ErrorKind::Invalid, format!("{} is not a rate", quoted(text))).hint(HINT);
        let lower = text.to_ascii_lowercase();
        let word = lower.strip_suffix("/s").unwrap_or(&lower);
        let ends = |units: &[(&str, u64)]| {
            let name = |name: &str| name.to_ascii_lowercase().trim_end_matches("/s").to_owned();
            units.iter().find_map(|(unit, bits)| {
                Some((word.strip_suffix(name(unit).as_str())?.to_owned(), *bits))
            })
        };
        let (found, in_bytes) = match ends(&UNITS) {
            Some(found) => (Some(found), false),
            None => (ends(&BYTES), true),
        };
        let (number, unit) = found.ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((&number, ""));
        let digits = |s: &str| s.len() <= 12 && s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(part) || number.ends_with('.') {
            return Err(wrong());
        }
        let scale = 10_u128.pow(u32::try_from(part.len()).unwrap_or_default());
        let all: u128 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
        let bits = all * u128::from(unit);
        let exact = bits.is_multiple_of(scale);
        let bits = u64::try_from(bits / scale).ok().filter(|_| exact).ok_or_else(wrong)?;
        let rate = Self { bits, in_bytes };
        if rate < Self::MIN || rate > Self::MAX {
            return Err(wrong());
        }
        Ok(rate)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bytes from the smallest that has a unit on; what is finer than a thousandth of a kB is in
        // bits.
        let in_bytes = self.in_bytes && self.bits.is_multiple_of(8) && self.bits >= BYTES[2].1;
        let units = if in_bytes { &BYTES[..] } else { &UNITS[..] };
        let Some((name, unit)) = units.iter().find(|(_, unit)| self.bits >= *unit) else {
            return write!(f, "{}bit", self.bits);
        };
        let step = if in_bytes { 8 } else { 1 };
        let (whole, rest) = (self.bits / unit, self.bits % unit / step);
        if rest == 0 {
            return write!(f, "{whole}{name}");
        }
        let digits = (unit / step).ilog10() as usize;
        let rest = format!("{rest:0digits$}");
        write!(f, "{whole}.{}{name}", rest.trim_end_matches('0'))
    }
}

impl TryFrom<String> for Rate {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_back() {
        for (text, bits, shown) in [
            ("100mbit", 100_000_000, "100mbit"),
            ("1.5Gbit/s", 1_500_000_000, "1.5gbit"),
            ("8000bit", 8_000, "8kbit"),
            ("3MB/s", 24_000_000, "3MB/s"),
            ("1.5kb", 12_000, "1.5kB/s"),
            ("0.0015MB/s", 12_000, "1.5kB/s"),
            ("1.25GB/s", 10_000_000_000, "1.25GB/s"),
            ("12.345kbit", 12_345, "12.345kbit"),
            ("8571424bit", 8_571_424, "8.571424mbit"),
            ("400gbit", 400_000_000_000, "400gbit"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.bits(), rate.to_string().as_str()), (bits, shown));
            assert_eq!(shown.parse::<Rate>().unwrap(), rate);
        }
        for bad in [
            "",
            "mbit",
            "100",
            "1e3mbit",
            "-1mbit",
            "7kbit",
            "401gbit",
            "0.0001bit",
            "1.mbit",
            ".5mbit",
            "1 mbit",
            "9999999999999gbit",
        ] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
