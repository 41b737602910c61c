// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cgroups a tree is, with which weights. Pure.

use std::collections::{BTreeMap, BTreeSet};

use reserv_model::{NodeId, Weight};

use crate::PlaneError;
use crate::cgroup::component;
use crate::cgroup::weights::{Range, Share, against_outside, scale};
use crate::count::Books;

/// `io.bfq.weight` (`BFQ_MIN_WEIGHT`, `BFQ_MAX_WEIGHT`).
pub(super) const BFQ: Range = Range { min: 1, max: 1000, default: 100, grain: 1, target: 500 };
/// `io.weight`, of iocost.
pub(super) const IOCOST: Range =
    Range { min: 1, max: 10_000, default: 100, grain: 1, target: 2_500 };

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) id: NodeId,
    /// Below our tree's; the root's is empty.
    pub(super) path: String,
    pub(super) scheduler: bool,
    pub(super) weight: u32,
}

/// All of them, parents first. q0 has none: who is in no queue stays where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) all: Vec<Group>,
    /// Scheduler nodes whose children's weights are rounded, with the largest error of a ratio in
    /// thousandths.
    pub(super) rounded: Vec<(NodeId, u64)>,
    /// A queue of weight 0 has the smallest weight there is.
    pub(super) background: bool,
}

impl Groups {
    pub(super) fn path(&self, id: NodeId) -> Option<&str> {
        self.all.iter().find(|group| group.id == id).map(|group| group.path.as_str())
    }
}

/// Thousandths, as people write them.
struct Milli(u32);

impl std::fmt::Display for Milli {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            rest => write!(f, "{}.{rest:03}", self.0 / 1000),
        }
    }
}

fn refuse_beyond(weights: &[Weight], range: Range, file: &str) -> Result<(), PlaneError> {
    let positive = || weights.iter().map(|w| w.milli()).filter(|w| *w > 0);
    let (Some(least), Some(most)) = (positive().min(), positive().max()) else { return Ok(()) };
    let span = range.max / range.min;
    if u64::from(most) <= u64::from(least) * u64::from(span) {
        return Ok(());
    }
    Err(PlaneError::Invalid(format!(
        "weight {} beside {}: {file} of siblings differ by {span} to 1 at most",
        Milli(most),
        Milli(least)
    )))
}

/// How far the shares of these numbers are from those of the weights, at most, in thousandths of a
/// share.
fn error(weights: &[Weight], numbers: &[u32]) -> u64 {
    let positive = || weights.iter().zip(numbers).filter(|(w, _)| w.milli() > 0);
    let (wanted, given) = positive()
        .fold((0_u128, 0_u128), |(a, b), (w, n)| (a + u128::from(w.milli()), b + u128::from(*n)));
    let off = |(w, n): (&Weight, &u32)| {
        let (a, b) = (u128::from(w.milli()) * given, u128::from(*n) * wanted);
        u64::try_from(a.abs_diff(b) * 1000 / a.max(1)).unwrap_or(u64::MAX)
    };
    positive().map(off).max().unwrap_or(0)
}

/// `outside`: the weight of everything beside our tree; 0: nothing there has any.
pub(super) fn groups(
    books: &Books,
    range: Range,
    file: &str,
    outside: u32,
) -> Result<Groups, PlaneError> {
    let mut below: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    let mut q0 = Weight::DEFAULT;
    let weight = |milli: u32| Weight::from_milli(milli).unwrap_or(Weight::MAX);
    for (id, node) in books.iter().filter(|(id, _)| *id != NodeId::ROOT) {
        if id == NodeId::Q0 {
            q0 = weight(node.weight);
        } else {
            below.entry(node.parent).or_default().push(id);
        }
    }
    let mut made = Groups::default();
    let mut seen = BTreeSet::new();
    let others: u64 = below
        .get(&NodeId::ROOT.index)
        .into_iter()
        .flatten()
        .filter_map(|id| books.get(*id).ok())
        .map(|node| u64::from(node.weight))
        .sum();
    let root = match outside {
        0 => range.default,
        outside => against_outside(outside, q0, others, range),
    };
    made.all.push(Group { id: NodeId::ROOT, path: String::new(), scheduler: true, weight: root });
    let mut at = 0;
    while let Some(Group { id, path, scheduler, .. }) = made.all.get(at).cloned() {
        at += 1;
        if !scheduler || !seen.insert(id) {
            continue;
        }
        let Some(children) = below.get(&id.index) else { continue };
        let weights: Vec<Weight> = children
            .iter()
            .filter_map(|c| books.get(*c).ok())
            .map(|node| weight(node.weight))
            .collect();
        refuse_beyond(&weights, range, file)?;
        let scaled = scale(&weights, range, false);
        let numbers: Vec<u32> = scaled
            .shares
            .iter()
            .map(|share| if let Share::Weight(n) = share { *n } else { range.min })
            .collect();
        made.background |= weights.contains(&Weight::BACKGROUND);
        if !scaled.exact {
            made.rounded.push((id, error(&weights, &numbers)));
        }
        for (child, weight) in children.iter().zip(numbers) {
            let scheduler = !books.get(*child)?.kind.is_queue();
            let path = format!("{path}/{}", component(*child, scheduler));
            made.all.push(Group { id: *child, path, scheduler, weight });
        }
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reserv_model::{Batch, Class, Kind, Op, Policy};

    fn id(index: u32) -> NodeId {
        NodeId { index, generation: 1 }
    }

    /// Queues 2, 3, … below the root, with these weights in thousandths.
    fn books(weights: &[u32]) -> Books {
        let mut books = Books::default();
        let ops = (2..).zip(weights).flat_map(|(index, milli)| {
            let weight = Weight::from_milli(*milli).expect("in range");
            [
                Op::Create { id: id(index), parent: NodeId::ROOT, kind: Kind::Queue(Class::Fifo) },
                Op::Reweight { id: id(index), weight },
            ]
        });
        let batch = Batch { seq: 1, ops: ops.collect() };
        books.apply(&batch, &mut |_| Ok(crate::count::Seen::default())).expect("valid");
        books
    }

    fn numbers(made: &Groups) -> Vec<u32> {
        made.all.iter().map(|group| group.weight).collect()
    }

    #[test]
    fn ratios_are_kept_within_the_range() {
        let made = groups(&books(&[100_000, 400_000]), BFQ, "io.bfq.weight", 40).expect("fits");
        // The tree against one program outside, as q0 (100) against 500; then the queues.
        assert_eq!(numbers(&made), [200, 125, 500]);
        assert!(made.rounded.is_empty() && !made.background);
        assert_eq!(made.path(id(3)), Some("/q3.1"));
        assert_eq!(made.path(NodeId::Q0), None);
        let made =
            groups(&books(&[1_000, 1_000_000]), BFQ, "io.bfq.weight", 0).expect("the whole range");
        assert_eq!(numbers(&made), [100, 1, 1000]);
        let made =
            groups(&books(&[1_000, 10_000_000]), IOCOST, "io.weight", 0).expect("the whole range");
        assert_eq!(numbers(&made), [100, 1, 10_000]);
    }

    #[test]
    fn beyond_the_range_is_refused_by_the_weight() {
        let refused = groups(&books(&[1_000, 1_000_001]), BFQ, "io.bfq.weight", 0);
        let Err(PlaneError::Invalid(why)) = refused else { panic!("{refused:?}") };
        assert_eq!(
            why,
            "weight 1000.001 beside 1: io.bfq.weight of siblings differ by 1000 to 1 at most"
        );
        assert!(groups(&books(&[1_000, 1_000_001]), IOCOST, "io.weight", 0).is_ok());
        assert!(groups(&books(&[1_000, 10_001_000]), IOCOST, "io.weight", 0).is_err());
    }

    #[test]
    fn what_is_rounded_is_told() {
        let made = groups(&books(&[1_001, 1_000_000]), BFQ, "io.bfq.weight", 0).expect("fits");
        assert_eq!(made.rounded, [(NodeId::ROOT, 0)]);
        let made = groups(&books(&[1_499, 999_000, 5_000]), BFQ, "io.bfq.weight", 0).expect("fits");
        let [(NodeId::ROOT, error)] = made.rounded[..] else { panic!("{:?}", made.rounded) };
        assert!((300..400).contains(&error), "1.499 of 999 becomes 2 of 1000: {error}");
    }

    #[test]
    fn background_is_the_least() {
        let made = groups(&books(&[0, 3_000, 1_000]), BFQ, "io.bfq.weight", 0).expect("fits");
        assert_eq!(numbers(&made), [100, 1, 999, 333]);
        assert!(made.background);
    }

    #[test]
    fn a_tree_of_two_levels() {
        let mut books = books(&[1_000]);
        let ops = vec![
            Op::Create { id: id(9), parent: NodeId::ROOT, kind: Kind::Scheduler(Policy::Sfq) },
            Op::Reweight { id: id(9), weight: Weight::from_milli(3_000).expect("in range") },
            Op::Create { id: id(4), parent: id(9), kind: Kind::Queue(Class::Ts) },
            Op::Reweight { id: id(4), weight: Weight::from_milli(7_000).expect("in range") },
        ];
        books
            .apply(&Batch { seq: 2, ops }, &mut |_| Ok(crate::count::Seen::default()))
            .expect("valid");
        let made = groups(&books, BFQ, "io.bfq.weight", 0).expect("fits");
        let paths: Vec<_> = made.all.iter().map(|g| (g.path.as_str(), g.weight)).collect();
        assert_eq!(paths, [("", 100), ("/q2.1", 166), ("/s9.1", 498), ("/s9.1/q4.1", 500)]);
    }
}
