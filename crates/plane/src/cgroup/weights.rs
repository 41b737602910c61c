// SPDX-License-Identifier: MIT OR Apache-2.0
//! From weights in thousandths to the kernel's numbers.
//!
//! Only ratios between siblings matter, so a sibling set is scaled as a whole: divided by its
//! greatest common divisor and multiplied to a comfortable size, which is exact whenever the
//! reduced weights fit the kernel's range. Else the largest sibling gets the kernel's maximum and
//! the others are rounded (and the smallest raised to the minimum): [`Scaled::exact`] says so.
//!
//! v2 has one more rounding: the kernel turns `cpu.weight` w into round(10.24·w) shares. Multiples
//! of 25 make whole shares, so the factor is one where it fits.
//!
//! Example: 24 : 24 : 4 (24 000, 24 000, 4 000 thousandths) reduce to 6 : 6 : 1; with v2's target
//! of 2 500 the factor is 416, as a multiple of 25 it is 400: `cpu.weight` 2400, 2400, 400.

use reserv_model::Weight;

/// The kernel's numbers for weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// What a cgroup has that nobody set.
    pub(crate) default: u32,
    /// Numbers that the kernel represents without rounding are multiples of this one.
    pub(crate) grain: u32,
    /// About how large the largest sibling is made when there is a choice. The kernel keeps inverse
    /// weights in 32 bits, so the largest numbers are not its most exact ones.
    pub(crate) target: u32,
}

/// `cpu.shares`
pub(crate) const V1: Range =
    Range { min: 2, max: 262_144, default: 1024, grain: 1, target: 16_384 };
/// `cpu.weight`
pub(crate) const V2: Range = Range { min: 1, max: 10_000, default: 100, grain: 25, target: 2_500 };

/// How a cgroup competes with its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// `cpu.idle`: runs when no sibling wants to (the kernel keeps a floor of weight 3 against
    /// 1024).
    Idle,
    Weight(u32),
}

/// A sibling set in the kernel's numbers, in the order of the weights given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scaled {
    pub(crate) shares: Vec<Share>,
    /// Whether the ratios of the positive weights are kept exactly.
    pub(crate) exact: bool,
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Scales one sibling set. `idle`: whether the kernel has `cpu.idle`; without it background is the
/// minimum weight.
pub(crate) fn scale(weights: &[Weight], range: Range, idle: bool) -> Scaled {
    let background = weights.contains(&Weight::BACKGROUND);
    let positive = weights.iter().map(|w| w.milli()).filter(|w| *w > 0);
    let divisor = positive.clone().fold(0, gcd);
    let largest = positive.max().unwrap_or(0);
    let least = if idle { Share::Idle } else { Share::Weight(range.min) };
    if largest == 0 {
        return Scaled { shares: vec![least; weights.len()], exact: true };
    }
    let reduced = largest / divisor;
    // Where background is only a small weight, keep as far from it as possible.
    let target = if background && !idle { range.max } else { range.target };
    let exact = reduced <= range.max / range.min;
    let share = |w: u32| -> u32 {
        if exact {
            let mut factor = (target / reduced).max(range.min);
            if factor < range.grain && reduced <= range.max / range.grain {
                factor = range.grain;
            }
            if factor >= range.grain {
                factor -= factor % range.grain;
            }
            w / divisor * factor
        } else {
            let whole = u64::from(largest);
            let scaled = (u64::from(w) * u64::from(range.max) + whole / 2) / whole;
            u32::try_from(scaled).unwrap_or(range.max).max(range.min)
        }
    };
    let shares = weights
        .iter()
        .map(|w| if *w == Weight::BACKGROUND { least } else { Share::Weight(share(w.milli())) })
        .collect();
    Scaled { shares, exact }
}

/// The weight of our whole tree among what lies outside it, so that one saturating competitor of
/// the outside's whole weight gets what q0 would: outside · (siblings of q0) / q0, within the
/// range.
pub(crate) fn against_outside(outside: u32, q0: Weight, others_milli: u64, range: Range) -> u32 {
    if q0.milli() == 0 {
        return range.max;
    }
    let wanted =
        (u64::from(outside) * others_milli + u64::from(q0.milli()) / 2) / u64::from(q0.milli());
    u32::try_from(wanted).unwrap_or(range.max).clamp(range.min, range.max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn w(milli: u32) -> Weight {
        Weight::from_milli(milli).expect("in range")
    }

    fn numbers(scaled: &Scaled) -> Vec<u32> {
        scaled.shares.iter().map(|s| if let Share::Weight(n) = s { *n } else { 0 }).collect()
    }

    #[test]
    fn the_example() {
        let scaled = scale(&[w(24_000), w(24_000), w(4_000)], V2, true);
        assert_eq!(numbers(&scaled), [2400, 2400, 400]);
        assert!(scaled.exact);
    }

    #[test]
    fn ends_of_the_ranges() {
        let ends = [w(1), w(10_000)];
        assert_eq!(numbers(&scale(&ends, V2, true)), [1, 10_000]);
        let beyond = scale(&[w(1), w(10_001)], V2, true);
        assert_eq!(numbers(&beyond), [1, 10_000]);
        assert!(!beyond.exact);
        assert_eq!(numbers(&scale(&[w(1), w(131_072)], V1, true)), [2, 262_144]);
        let widest = scale(&[w(1), Weight::MAX], V1, true);
        assert_eq!(numbers(&widest), [2, 262_144]);
        assert!(!widest.exact);
    }

    #[test]
    fn background_is_idle_or_least() {
        assert_eq!(scale(&[w(0), w(5)], V2, true).shares[0], Share::Idle);
        assert_eq!(
            scale(&[w(0), w(5)], V1, false).shares,
            [Share::Weight(2), Share::Weight(262_144)]
        );
        assert_eq!(scale(&[w(0), w(0)], V2, true).shares, [Share::Idle, Share::Idle]);
        assert!(scale(&[], V2, true).shares.is_empty());
    }

    #[test]
    fn outside_gets_what_q0_would() {
        assert_eq!(against_outside(1024, w(4_000), 96_000, V1), 24_576);
        assert_eq!(against_outside(100, w(0), 96_000, V2), 10_000);
        assert_eq!(against_outside(100, w(100_000), 0, V2), 1);
        assert_eq!(against_outside(100, w(1), 4_000_000_000, V2), 10_000);
    }

    proptest! {
        #[test]
        fn ratios_are_kept(milli in prop::collection::vec(1u32..=1_000_000_000, 1..12), v1: bool) {
            let range = if v1 { V1 } else { V2 };
            let weights: Vec<_> = milli.iter().map(|m| w(*m)).collect();
            let scaled = scale(&weights, range, true);
            let out = numbers(&scaled);
            for (a, x) in milli.iter().zip(&out) {
                prop_assert!((range.min..=range.max).contains(x));
                for (b, y) in milli.iter().zip(&out) {
                    let (a, b, x, y) = (u64::from(*a), u64::from(*b), u64::from(*x), u64::from(*y));
                    if scaled.exact {
                        prop_assert_eq!(a * y, b * x);
                    } else {
                        prop_assert!(a < b || x >= y);
                    }
                }
            }
        }

        #[test]
        fn small_weights_are_exact_and_whole_shares(milli in prop::collection::vec(1u32..=100, 1..9)) {
            let weights: Vec<_> = milli.iter().map(|m| w(*m * 1000)).collect();
            let scaled = scale(&weights, V2, true);
            prop_assert!(scaled.exact);
            for n in numbers(&scaled) {
                prop_assert_eq!(n % V2.grain, 0);
            }
        }
    }
}
