// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed shares: the weights that give some siblings the same part of their parent whoever else
//! comes and goes.
//!
//! Problem: the share of a weight depends on the siblings' weights. A node with the fixed share `f`
//! is to have `f` whatever they are.
//!
//! Idea (RTSS'96 §4, docs/notes/algorithms.md §3.3): let `F` be the sum of the fixed shares below
//! one parent and `Wn` the sum of the fixed weights. With `T = Wn / (1 − F)` and `w_k = f_k · T`
//! all weights together are `Wn + F·T = T`, so each `w_k / T` is `f_k`, for all at once. Solved
//! anew, in the same batch, whenever a child comes, goes, moves or gets another share. All children
//! that exist count, wanting or not, so that a node has `f_k` or more at any time, and nothing is
//! solved when threads block and wake.
//!
//! Where `Wn` is 0 no work-conserving policy can give each exactly `f_k` (they add up to less than
//! all): each has `f_k / F`.
//!
//! Worked example (a test): q0 weight 100, a `=25%`, b `=50%`. T = 100 / 0.25 = 400: a 100, b 200.
//! A sibling of weight 100 comes: T = 800: a 200, b 400, and the newcomer and q0 have an eighth
//! each.
//!
//! Bounds: shares have steps of one millionth (`=0.0001%`) and weights of one thousandth. A solved
//! weight is the exact one rounded to the nearest thousandth, and never 0: at most half a
//! thousandth away where the exact one is at least half of one, less than one thousandth otherwise.
//! With n fixed siblings a share is off by at most `(1 + n) / T`, T in thousandths (`Wn` = 100 and
//! F = 0.5: T = 200 000, for ten siblings 0.0055 %). Where `Wn` is 0 there is no rounding. What
//! would need a weight beyond the largest is refused.

use crate::{Fixed, Weight};

/// Most siblings with fixed shares: solving them anew has to fit into one batch with what caused
/// it.
pub const FIXED_MAX: usize = 64;

/// Why there is no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsolved {
    /// The shares leave nothing: their sum, in millionths.
    Sum(u64),
    /// This one (its place in the list) would need a weight beyond [`Weight::MAX`].
    Weight(usize),
    /// More than [`FIXED_MAX`].
    Count,
}

/// The weights of siblings with these shares, beside others whose weights add up to
/// `weights_milli`.
pub(crate) fn solve(shares: &[Fixed], weights_milli: u64) -> Result<Vec<Weight>, Unsolved> {
    let all = u64::from(Fixed::ALL);
    let sum: u64 = shares.iter().map(|f| u64::from(f.ppm())).sum();
    if shares.len() > FIXED_MAX {
        return Err(Unsolved::Count);
    }
    if sum >= all {
        return Err(Unsolved::Sum(sum));
    }
    let rest = u128::from(all - sum);
    let solved = shares.iter().enumerate().map(|(at, share)| {
        let ppm = u128::from(share.ppm());
        let milli = if weights_milli == 0 {
            ppm * 1000
        } else {
            // f·Wn/(1 − F), rounded to the nearest.
            ((ppm * u128::from(weights_milli) + rest / 2) / rest).max(1)
        };
        u32::try_from(milli).ok().and_then(Weight::from_milli).ok_or(Unsolved::Weight(at))
    });
    solved.collect()
}
