// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who gets what: the share of every node as an exact fraction, shown in parts per million.
//!
//! A node's share is the product, over the walk from the root, of weight / Σ weights of the
//! siblings that want (itself included). A scheduler node wants when anything below it does. Weight
//! 0 is background: it gets nothing while a sibling with a positive weight wants, and an equal part
//! where there are only such.
//!
//! Worked example (a test): q0 weight 100, `web` 300 with `a` 1 and `b` 2. All want: q0 1/4, a 1/4,
//! b 2/4. Only q0 and b: q0 1/4, b 3/4. Only a and b: a 1/3, b 2/3.
//!
//! Limits: caps and the number of CPUs that a queue's threads can use at once are not in it
//! (docs/notes/algorithms.md §9.1).

use std::cmp::Ordering;

use crate::{NodeId, Tree, Weight};

/// Parts per million of the resource, rounded down; 1 000 000 is all of it.
pub type Ppm = u32;

const ALL: u64 = 1_000_000;

/// 64-bit limbs that hold any product of 15 sums of 16 384 weights (44 bits each) and a million.
const LIMBS: usize = 12;

/// An exact fraction. Numerator and denominator are never reduced: they fit by construction.
#[derive(Clone, Copy)]
struct Fraction {
    numerator: [u64; LIMBS],
    denominator: [u64; LIMBS],
}

impl Fraction {
    const fn one() -> Self {
        let mut one = [0; LIMBS];
        one[0] = 1;
        Self { numerator: one, denominator: one }
    }

    fn times(mut self, part: u64, of: u64) -> Self {
        self.numerator = product(&self.numerator, part);
        self.denominator = product(&self.denominator, of);
        self
    }

    /// ⌊fraction · 10⁶⌋, by bisection: division of long numbers is not worth its code here.
    fn ppm(&self) -> Ppm {
        let goal = product(&self.numerator, ALL);
        let (mut low, mut high) = (0, ALL);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if compare(&product(&self.denominator, middle), &goal) == Ordering::Greater {
                high = middle - 1;
            } else {
                low = middle;
            }
        }
        Ppm::try_from(low).unwrap_or(Ppm::MAX)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half of a 128-bit product")]
fn product(long: &[u64; LIMBS], short: u64) -> [u64; LIMBS] {
    let mut out = [0; LIMBS];
    let mut carry = 0_u128;
    for (o, &limb) in out.iter_mut().zip(long) {
        let word = u128::from(limb) * u128::from(short) + carry;
        *o = word as u64;
        carry = word >> 64;
    }
    debug_assert_eq!(carry, 0, "LIMBS is large enough");
    out
}

fn compare(a: &[u64; LIMBS], b: &[u64; LIMBS]) -> Ordering {
    a.iter().rev().cmp(b.iter().rev())
}

/// What the wanting children of one node divide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    weights: u64,
    count: u64,
}

impl Sum {
    /// The part of a wanting child.
    fn part(self, weight: Weight) -> (u64, u64) {
        if self.weights == 0 {
            (1, self.count.max(1))
        } else {
            (u64::from(weight.milli()), self.weights)
        }
    }
}

/// Who wants, and what they divide: made by one walk over the tree, after which the share of a node
/// costs no more than its depth. Tells of the tree as it was then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// By slot.
    wants: Vec<bool>,
    /// By slot of the parent.
    sums: Vec<Sum>,
}

impl Shares {
    /// Given which queues want: `runnable` is asked of queues only, a scheduler node wants when
    /// anything below it does.
    pub fn now(tree: &Tree, runnable: impl Fn(NodeId) -> bool) -> Self {
        let mut wants = vec![false; tree.slots.len()];
        for node in tree.iter().filter(|n| n.kind.is_queue() && runnable(n.id)) {
            let mut up = Some(node);
            while let Some(node) = up.filter(|n| !wants[n.id.index as usize]) {
                wants[node.id.index as usize] = true;
                up = node.parent.and_then(|p| tree.get(p));
            }
        }
        Self::of(tree, wants)
    }

    /// When every node wants.
    pub fn all(tree: &Tree) -> Self {
        Self::of(tree, vec![true; tree.slots.len()])
    }

    fn of(tree: &Tree, wants: Vec<bool>) -> Self {
        let mut sums = vec![Sum::default(); wants.len()];
        for node in tree.iter().filter(|n| wants[n.id.index as usize]) {
            let Some(parent) = node.parent else { continue };
            let sum = &mut sums[parent.index as usize];
            sum.weights += u64::from(node.weight.milli());
            sum.count += 1;
        }
        Self { wants, sums }
    }

    /// What a node is guaranteed whoever wants, in ns per second ([`Tree::guarantee`]); of
    /// [`Shares::all`].
    pub fn guarantee(&self, tree: &Tree, id: NodeId) -> u64 {
        tree.guarantee_of(id, tree.capacity(), |parent| {
            self.sums.get(parent.id.index as usize).map_or(0, |sum| sum.weights)
        })
    }

    /// The share of one node: the product along the walk up to the root; 0 for a node that is gone
    /// or does not want.
    pub fn ppm(&self, tree: &Tree, id: NodeId) -> Ppm {
        let mut share = Fraction::one();
        let Some(mut node) = tree.get(id) else { return 0 };
        if self.wants.get(id.index as usize) != Some(&true) {
            return 0;
        }
        while let Some(parent) = node.parent.and_then(|p| tree.get(p)) {
            let sum = self.sums.get(parent.id.index as usize).copied().unwrap_or_default();
            let (part, of) = sum.part(node.weight);
            share = share.times(part, of);
            node = parent;
        }
        share.ppm()
    }
}
