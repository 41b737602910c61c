// SPDX-License-Identifier: MIT OR Apache-2.0
//! Constrained max-min fairness (Ghodsi et al., EuroSys'13): the ideal on several units where each
//! of some children, of one thread each, may use some units only. All rates, service by weight,
//! grow together; a set of units that is exhausted stops those that can use no other.

use num_traits::Zero;

use crate::model::{Q, q};

/// A child: its weight, and the units that it may use.
pub type Child = (u32, u64);

/// Units of each, and the different rates at which they stopped, rising. A child that has a whole
/// unit has stopped too, at a rate that is its own.
///
/// # Panics
/// When a weight or a mask is empty.
pub fn shares(units: u32, of: &[Child]) -> (Vec<Q>, Vec<Q>) {
    let mut got: Vec<Option<Q>> = vec![None; of.len()];
    let mut rates = Vec::new();
    // By Hall's theorem (max-flow, min-cut): what those have that can use no unit outside a set is
    // no more than the set.
    let inside = |set: u64, (_, mask): &Child| mask & !set & ((1 << units) - 1) == 0;
    while got.iter().any(Option::is_none) {
        let open = |i: usize| got[i].is_none();
        let sets = (1u64..1 << units).filter_map(|set| {
            let members: Vec<usize> = (0..of.len()).filter(|&i| inside(set, &of[i])).collect();
            let sum: u64 = members.iter().filter(|&&i| open(i)).map(|&i| u64::from(of[i].0)).sum();
            let spent =
                members.iter().filter_map(|&i| got[i].clone()).fold(Q::zero(), |a, b| a + b);
            (sum > 0).then(|| ((q(set.count_ones(), 1) - spent) * q(1, sum), set))
        });
        let sets: Vec<(Q, u64)> = sets.collect();
        let full = (0..of.len()).filter(|&i| open(i)).map(|i| q(1, of[i].0)).min();
        let least = sets.iter().map(|(rate, _)| rate.clone()).chain(full).min().expect("some open");
        let tight: Vec<u64> =
            sets.into_iter().filter(|(rate, _)| *rate == least).map(|(_, set)| set).collect();
        let mut stopped = false;
        for i in 0..of.len() {
            if got[i].is_some() {
                continue;
            }
            let held = tight.iter().any(|&set| inside(set, &of[i]));
            if held || q(1, of[i].0) == least {
                got[i] = Some(&least * q(of[i].0, 1));
                stopped |= held;
            }
        }
        if stopped && rates.last() != Some(&least) {
            rates.push(least);
        }
    }
    (got.into_iter().flatten().collect(), rates)
}
