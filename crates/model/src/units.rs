// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantities with their units, exact: integers only.
//!
//! ```text
//! weight   = decimal                      0 … 1000000 in steps of 0.001: 24, 0.24; 0 is background
//! amount   = "0" | decimal unit | rate    CPU time per time: 250ms/s, 1.5cpu, 25% (of one CPU); of a link a rate: 10mbit
//! unit     = "cpu" | "%" | "s/s" | "ms/s" | "us/s" | "ns/s"
//! cap      = "none" | amount ["burst" duration]
//! duration = decimal ("s" | "ms" | "us" | "ns")
//! share    = (weight | fixed) [amount]    weight or fixed share, and minimum
//! fixed    = "=" decimal "%"              more than 0 and less than 100, in steps of 0.0001: =25%, =0.5%
//! decimal  = digit {digit} ["." digit {digit}]      exact to 1 ns; no sign, no exponent
//! ```
//!
//! What is printed is canonical and parses back to the same value.

use std::fmt;
use std::str::FromStr;

use reserv_facts::tree;
use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{Error, ErrorKind, Rate, ResourceKind};

const NS_PER_S: u64 = 1_000_000_000;

/// Most CPUs that an amount may name (Linux' own limit, `NR_CPUS` 8192).
pub const CPUS_MAX: u64 = 8192;

/// A weight in thousandths: `24` is 24 000, `0.24` is 240. 0 is background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Weight(u32);

impl Weight {
    /// Background: served when no sibling with a positive weight wants, plus a floor that keeps it
    /// alive.
    pub const BACKGROUND: Self = Self(0);
    /// The largest, 1 000 000.
    pub const MAX: Self = Self(tree::WEIGHT_MAX);
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

impl TryFrom<u32> for Weight {
    type Error = Error;
    fn try_from(milli: u32) -> Result<Self, Error> {
        Self::from_milli(milli).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("a weight of {milli} thousandths"))
                .hint(WEIGHT_HINT)
        })
    }
}

impl From<Weight> for u32 {
    fn from(w: Weight) -> Self {
        w.0
    }
}

/// Marks an amount as bytes per second of a link; without it an amount is ns of CPU per second. All
/// amounts of one tree have it, or none has.
const LINK: u64 = 1 << 62;
/// Beside [`LINK`]: it was written in bytes, as `2MB/s`, and is printed so.
const IN_BYTES: u64 = 1 << 61;

/// Without the marks.
const fn plain(amount: u64) -> u64 {
    amount & !(LINK | IN_BYTES)
}

/// An upper limit on service: a token bucket in arrears (docs/notes/algorithms.md §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    /// CPU time per second of wall time, in ns: `250ms/s` is 250 000 000, `1.5cpu` is 1 500
    /// 000 000. Of a link marked ([`Cap::per_second`]).
    pub rate_ns_per_s: u64,
    /// Most unused allowance that is kept, in ns; 0 lets the plane choose (50 ms of the rate and at
    /// least two quanta; of a link or a disk 20 ms).
    pub burst_ns: u64,
}

impl Cap {
    /// The lowest rate, 1 ms/s: less would keep a thread from running for longer than the kernel
    /// tolerates.
    pub const RATE_MIN: u64 = 1_000_000;
    /// The highest rate: [`CPUS_MAX`] CPUs.
    pub const RATE_MAX: u64 = CPUS_MAX * NS_PER_S;
    /// The largest burst, 10 s of CPU time.
    pub const BURST_MAX: u64 = 10 * NS_PER_S;

    /// Per second: ns of CPU, or bytes.
    pub const fn per_second(self) -> u64 {
        plain(self.rate_ns_per_s)
    }

    /// Whether it is a link's: bytes.
    pub const fn is_link(self) -> bool {
        self.rate_ns_per_s & LINK != 0
    }

    /// The same limit, whether it is written in bits or in bytes.
    pub fn is_as(self, other: Self) -> bool {
        let of = |cap: Self| (cap.rate_ns_per_s & !IN_BYTES, cap.burst_ns);
        of(self) == of(other)
    }

    /// Refuses a rate or a burst out of range.
    pub fn check(self) -> Result<Self, Error> {
        if self.is_link() {
            // Its range is that of rates.
        } else if self.rate_ns_per_s < Self::RATE_MIN || self.rate_ns_per_s > Self::RATE_MAX {
            let shown = Amount(self.rate_ns_per_s);
            return Err(Error::new(ErrorKind::Invalid, format!("a cap of {shown}")).hint(CAP_HINT));
        }
        if self.burst_ns > Self::BURST_MAX {
            let shown = Duration(self.burst_ns);
            return Err(Error::new(ErrorKind::Invalid, format!("a burst of {shown}"))
                .hint("a burst is at most 10s"));
        }
        Ok(self)
    }
}

/// A minimum that admission control promises, in ns of CPU per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Minimum(pub u64);

impl Minimum {
    /// Per second: ns of CPU, or bytes.
    pub const fn per_second(self) -> u64 {
        plain(self.0)
    }

    /// Whether it is a link's: bytes.
    pub const fn is_link(self) -> bool {
        self.0 & LINK != 0
    }
}

/// A fixed share of the parent, in millionths: `=25%` is 250 000 (RTSS'96 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Fixed(u32);

impl Fixed {
    /// All of the parent; a fixed share is less.
    pub const ALL: u32 = 1_000_000;

    /// `None` unless it is more than nothing and less than all.
    pub const fn from_ppm(ppm: u32) -> Option<Self> {
        if ppm > 0 && ppm < Self::ALL { Some(Self(ppm)) } else { None }
    }

    /// In millionths.
    pub const fn ppm(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Fixed {
    type Error = Error;
    fn try_from(ppm: u32) -> Result<Self, Error> {
        Self::from_ppm(ppm).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("a fixed share of {ppm} millionths"))
                .hint(FIXED_HINT)
        })
    }
}

impl From<Fixed> for u32 {
    fn from(f: Fixed) -> Self {
        f.0
    }
}

impl FromStr for Fixed {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self, Error> {
        let Some(digits) = word.strip_prefix('=').and_then(|w| w.strip_suffix('%')) else {
            let why = format!("{} is not a fixed share", quoted(word));
            return Err(Error::new(ErrorKind::Invalid, why).hint(FIXED_HINT));
        };
        let ppm = number(word, digits, 4, "a fixed share", FIXED_HINT)?;
        u32::try_from(ppm).ok().and_then(Self::from_ppm).ok_or_else(|| {
            let why = format!("{} is not more than nothing and less than all", quoted(word));
            Error::new(ErrorKind::Invalid, why).hint(FIXED_HINT)
        })
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("=")?;
        show(f, u64::from(self.0), 4, "%")
    }
}

/// Millionths as a percentage.
pub(crate) fn show_percent(ppm: u64) -> String {
    struct Percent(u64);
    impl fmt::Display for Percent {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            show(f, self.0, 4, "%")
        }
    }
    Percent(ppm).to_string()
}

/// What a share file holds: `"<weight> <minimum>"` (Eclipse/BSD §2.3), or a fixed share in place of
/// the weight. Never both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Of the parent's service, against the siblings; 0 beside a fixed share, for then it is
    /// solved.
    pub weight: Weight,
    /// Of the parent's service, whatever the siblings have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Fixed>,
    /// The absolute promise.
    pub minimum: Minimum,
}

impl Share {
    /// A weight without a minimum.
    pub const fn of(weight: Weight) -> Self {
        Self { weight, fixed: None, minimum: Minimum(0) }
    }

    /// A fixed share without a minimum.
    pub const fn fixed(fixed: Fixed) -> Self {
        Self { weight: Weight::BACKGROUND, fixed: Some(fixed), minimum: Minimum(0) }
    }

    /// The same promise, whether its minimum is written in bits or in bytes.
    pub fn is_as(&self, other: &Self) -> bool {
        let of = |share: &Self| {
            let minimum = Minimum(share.minimum.0 & !IN_BYTES);
            Self { minimum, ..*share }
        };
        of(self) == of(other)
    }

    /// Weight or fixed share, without the minimum.
    pub fn part(&self) -> String {
        self.fixed.map_or_else(|| self.weight.to_string(), |fixed| fixed.to_string())
    }
}

const WEIGHT_HINT: &str = "a weight is 0 to 1000000 with at most 3 decimals: 24 or 0.24";
const AMOUNT_HINT: &str = "an amount of CPU is 250ms/s, 1.5cpu, 25% (of one CPU) or 0, of a link or disk 10mbit, 3MB/s or 0";
const CAP_HINT: &str = "a cap is none, or 1ms/s to 8192cpu: 250ms/s, 1.5cpu, 25% (of one CPU), 1cpu burst 20ms; of a link 10mbit";
const DURATION_HINT: &str = "a duration is 20ms, 500us, 0.1s or 100ns";
const SHARE_HINT: &str = "a share is a weight and a minimum: 24 0; or a fixed share: =25%";
const FIXED_HINT: &str =
    "a fixed share is more than =0% and less than =100% of the parent, in steps of 0.0001: =25%";

/// Why a decimal was refused.
enum Bad {
    /// Not `digits[.digits]`.
    Form,
    /// Finer than the unit's step.
    Decimals,
    /// Beyond 64 bits.
    Range,
}

/// `digits[.digits]` times `10^decimals`, exact.
fn decimal(text: &str, decimals: usize) -> Result<u64, Bad> {
    let (whole, fraction) = match text.split_once('.') {
        Some((w, f)) => (w, Some(f)),
        None => (text, None),
    };
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || fraction.is_some_and(|f| !digits(f)) {
        return Err(Bad::Form);
    }
    let fraction = fraction.unwrap_or("");
    if fraction.len() > decimals {
        return Err(Bad::Decimals);
    }
    let zeros = std::iter::repeat_n(b'0', decimals - fraction.len());
    let mut value = 0_u64;
    for digit in whole.bytes().chain(fraction.bytes()).chain(zeros) {
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit - b'0')))
            .ok_or(Bad::Range)?;
    }
    Ok(value)
}

/// The reverse of [`decimal`], without superfluous zeros.
fn show(f: &mut fmt::Formatter<'_>, value: u64, decimals: usize, unit: &str) -> fmt::Result {
    let scale = (0..decimals).fold(1_u64, |s, _| s * 10);
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return write!(f, "{whole}{unit}");
    }
    let digits = format!("{rest:0decimals$}");
    write!(f, "{whole}.{}{unit}", digits.trim_end_matches('0'))
}

/// `number` with `decimals` digits after the point, or an error that echoes `word` with `hint`.
fn number(word: &str, number: &str, decimals: usize, what: &str, hint: &str) -> Result<u64, Error> {
    decimal(number, decimals).map_err(|bad| {
        let why = match bad {
            Bad::Form => format!("{} is not {what}", quoted(word)),
            Bad::Decimals => {
                format!("{} is finer than {what} can be ({decimals} decimals)", quoted(word))
            }
            Bad::Range => format!("{} is too large for {what}", quoted(word)),
        };
        Error::new(ErrorKind::Invalid, why).hint(hint)
    })
}

impl FromStr for Weight {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self, Error> {
        if word.starts_with('=') {
            let why = format!("{} is a fixed share, where only a weight can be", quoted(word));
            return Err(Error::new(ErrorKind::Invalid, why).hint(WEIGHT_HINT));
        }
        let milli = number(word, word, 3, "a weight", WEIGHT_HINT)?;
        u32::try_from(milli).ok().and_then(Self::from_milli).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("{} is too large for a weight", quoted(word)))
                .hint(WEIGHT_HINT)
        })
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, u64::from(self.0), 3, "")
    }
}

/// A rate in ns of CPU per second, or (marked) in bytes of a link per second, as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(pub u64);

impl Amount {
    /// In the unit in which people write it: CPU time, bits of a link, bytes of a disk.
    pub const fn of(kind: ResourceKind, per_second: u64) -> Self {
        match kind {
            _ if per_second == 0 => Self(0),
            ResourceKind::Cpu => Self(per_second),
            ResourceKind::Link => Self(per_second | LINK),
            ResourceKind::Disk => Self(per_second | LINK | IN_BYTES),
        }
    }
}

/// Unit and how many decimals reach 1 ns/s. Longest suffixes first where one ends another.
const AMOUNT_UNITS: [(&str, usize); 6] =
    [("cpu", 9), ("%", 7), ("ms/s", 6), ("us/s", 3), ("ns/s", 0), ("s/s", 9)];

impl FromStr for Amount {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self, Error> {
        if word == "0" {
            return Ok(Self(0));
        }
        let lower = word.to_ascii_lowercase();
        if ["bit", "kb", "mb", "gb"].iter().any(|unit| lower.trim_end_matches("/s").ends_with(unit))
        {
            let rate: Rate = word.parse()?;
            let kind = if rate.is_in_bytes() { ResourceKind::Disk } else { ResourceKind::Link };
            return Ok(Self::of(kind, rate.bytes()));
        }
        for (unit, decimals) in AMOUNT_UNITS {
            if let Some(n) = word.strip_suffix(unit) {
                let rate = number(word, n, decimals, "an amount of CPU", AMOUNT_HINT)?;
                if rate > Cap::RATE_MAX {
                    return Err(Error::new(
                        ErrorKind::Invalid,
                        format!("{} is more than {CPUS_MAX} CPUs", quoted(word)),
                    )
                    .hint(AMOUNT_HINT));
                }
                return Ok(Self(rate));
            }
        }
        let why = if decimal(word, 9).is_ok() { "has no unit" } else { "is not an amount of CPU" };
        Err(Error::new(ErrorKind::Invalid, format!("{} {why}", quoted(word))).hint(AMOUNT_HINT))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            LINK.. => Rate::of_bytes(plain(self.0), self.0 & IN_BYTES != 0).fmt(f),
            1..NS_PER_S => show(f, self.0, 6, "ms/s"),
            _ => show(f, self.0, 9, "cpu"),
        }
    }
}

/// A length of CPU time in ns, as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub u64);

impl FromStr for Duration {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self, Error> {
        for (unit, decimals) in [("ms", 6), ("us", 3), ("ns", 0), ("s", 9)] {
            if let Some(n) = word.strip_suffix(unit) {
                return number(word, n, decimals, "a duration", DURATION_HINT).map(Self);
            }
        }
        let why = if decimal(word, 9).is_ok() { "has no unit" } else { "is not a duration" };
        Err(Error::new(ErrorKind::Invalid, format!("{} {why}", quoted(word))).hint(DURATION_HINT))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < NS_PER_S { show(f, self.0, 6, "ms") } else { show(f, self.0, 9, "s") }
    }
}

impl FromStr for Minimum {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self, Error> {
        word.parse::<Amount>().map(|a| Self(a.0))
    }
}

impl fmt::Display for Minimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Amount(self.0).fmt(f)
    }
}

impl FromStr for Cap {
    type Err = Error;
    /// A cap that is there; `none` is the caller's ([`parse_cap`]).
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = text.split_ascii_whitespace();
        let Some(rate) = words.next() else {
            return Err(
                Error::new(ErrorKind::Invalid, "nothing where a cap should be").hint(CAP_HINT)
            );
        };
        let rate_ns_per_s = rate.parse::<Amount>().map_err(|e| e.hint(CAP_HINT))?.0;
        let burst_ns = match (words.next(), words.next()) {
            (None, _) => 0,
            (Some("burst"), Some(d)) => d.parse::<Duration>()?.0,
            (Some("burst"), None) => {
                return Err(
                    Error::new(ErrorKind::Invalid, "\"burst\" without a duration").hint(CAP_HINT)
                );
            }
            (Some(w), _) => return Err(surplus(w, "a cap", CAP_HINT)),
        };
        match words.next() {
            Some(w) => Err(surplus(w, "a cap", CAP_HINT)),
            None => Self { rate_ns_per_s, burst_ns }.check(),
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Amount(self.rate_ns_per_s).fmt(f)?;
        if self.burst_ns > 0 { write!(f, " burst {}", Duration(self.burst_ns)) } else { Ok(()) }
    }
}

/// What a `cap` file holds: `none` or a cap.
pub fn parse_cap(text: &str) -> Result<Option<Cap>, Error> {
    if text.trim_ascii() == "none" { Ok(None) } else { text.parse().map(Some) }
}

/// The reverse of [`parse_cap`].
pub fn show_cap(cap: Option<Cap>) -> String {
    cap.map_or_else(|| "none".into(), |c| c.to_string())
}

/// A number of bytes: `200000`, `200kB`, `128KiB`, `2MB`, `1MiB`; less than 4 GiB.
pub fn parse_bytes(word: &str) -> Result<u32, Error> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (digits, unit) = word.split_at(end);
    let scale: Option<u64> = match unit {
        "" | "B" => Some(1),
        "kB" => Some(1000),
        "KiB" => Some(1024),
        "MB" => Some(1_000_000),
        "MiB" => Some(1 << 20),
        _ => None,
    };
    let bytes = scale.and_then(|scale| digits.parse::<u64>().ok()?.checked_mul(scale));
    bytes.and_then(|bytes| u32::try_from(bytes).ok()).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("{} is not a number of bytes", quoted(word)))
            .hint("as 200000, 200kB, 128KiB, 2MB or 1MiB, less than 4GiB")
    })
}

/// The reverse: in the largest unit that it is a whole number of.
pub fn show_bytes(bytes: u32) -> String {
    let units = [("MiB", 1 << 20), ("MB", 1_000_000), ("KiB", 1 << 10), ("kB", 1000)];
    let whole = units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// An error about a word that stands after the end.
fn surplus(word: &str, after: &str, hint: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} after {after}", quoted(word))).hint(hint)
}

impl FromStr for Share {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = text.split_ascii_whitespace();
        let Some(weight) = words.next() else {
            return Err(
                Error::new(ErrorKind::Invalid, "nothing where a share should be").hint(SHARE_HINT)
            );
        };
        let (weight, fixed) = if weight.starts_with('=') {
            (Weight::BACKGROUND, Some(weight.parse()?))
        } else {
            // A part of the parent is what is meant, and the sign is what is missing.
            let as_fixed =
                weight.ends_with('%').then(|| format!("={weight}").parse::<Fixed>().ok());
            let weight = weight.parse::<Weight>().map_err(|error| match as_fixed.flatten() {
                Some(fixed) => error.hint(format!("{fixed} is a fixed share of the parent")),
                None => error,
            })?;
            (weight, None)
        };
        let minimum = words.next().map(str::parse).transpose()?.unwrap_or_default();
        match words.next() {
            Some(w) => Err(surplus(w, "a share", SHARE_HINT)),
            None => Ok(Self { weight, fixed, minimum }),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.part(), self.minimum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_are_shown() {
        for text in ["0", "1", "999", "1kB", "1KiB", "300kB", "128KiB", "2MB", "1MiB", "4095MiB"] {
            assert_eq!(parse_bytes(text).map(show_bytes).as_deref(), Ok(text));
        }
        for bytes in (0..=u32::MAX).step_by(999_983) {
            assert_eq!(parse_bytes(&show_bytes(bytes)), Ok(bytes));
        }
        assert!(parse_bytes("4096MiB").is_err() && parse_bytes("").is_err());
    }
}
