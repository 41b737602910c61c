// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a link is: bits per second, exact.
//!
//! `rate = digits ["." digits] ("bit" | "kbit" | "mbit" | "gbit" | "kb" | "mb" | "gb") ["/s"]`, in
//! any case: `100mbit`, `1.5gbit`, `100Mbit/s`; of disks rather bytes: `3MB/s` is `24mbit`. Decimal
//! prefixes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{Error, ErrorKind};

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(u64);

const UNITS: [(&str, u64); 4] =
    [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];
/// What is read, and not printed.
const BYTES: [(&str, u64); 3] = [("gb", 8_000_000_000), ("mb", 8_000_000), ("kb", 8000)];
const HINT: &str = "a rate is 8kbit to 400gbit: 100mbit, 1.5gbit, 3MB/s";

impl Rate {
    /// Less is no link.
    pub const MIN: Self = Self(8_000);
    /// More than there is.
    pub const MAX: Self = Self(400_000_000_000);

    /// Per second.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Of so many bytes per second; may be outside of what parses.
    pub(crate) const fn of_bytes(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// Per second; what is less than a byte is left out.
    pub const fn bytes(self) -> u64 {
        self.0 / 8
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong =
            || Error::new(ErrorKind::Invalid, format!("{} is not a rate", quoted(text))).hint(HINT);
        let lower = text.to_ascii_lowercase();
        let word = lower.strip_suffix("/s").unwrap_or(&lower);
        let (number, unit) = UNITS
            .iter()
            .chain(&BYTES)
            .find_map(|(name, unit)| Some((word.strip_suffix(name)?, *unit)))
            .ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = |s: &str| s.len() <= 12 && s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(part) || number.ends_with('.') {
            return Err(wrong());
        }
        let scale = 10_u128.pow(u32::try_from(part.len()).unwrap_or_default());
        let all: u128 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
        let bits = all * u128::from(unit);
        let exact = bits.is_multiple_of(scale);
        let rate =
            u64::try_from(bits / scale).ok().map(Self).filter(|_| exact).ok_or_else(wrong)?;
        if rate < Self::MIN || rate > Self::MAX {
            return Err(wrong());
        }
        Ok(rate)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) =
            UNITS.iter().find(|(_, unit)| self.0.is_multiple_of(*unit)).unwrap_or(&UNITS[3]);
        write!(f, "{}{name}", self.0 / unit)
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
            ("1.5Gbit/s", 1_500_000_000, "1500mbit"),
            ("8000bit", 8_000, "8kbit"),
            ("3MB/s", 24_000_000, "24mbit"),
            ("1.5kb", 12_000, "12kbit"),
            ("12.345kbit", 12_345, "12345bit"),
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
