// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who gets what: the share of every node as an exact fraction, shown in parts per million.
//!
//! A node's share is the product, over the walk from the root, of weight / Σ weights of the siblings that want
//! (itself included). A scheduler node wants when anything below it does. Weight 0 is background: it gets
//! nothing while a sibling with a positive weight wants, and an equal part where there are only such.
//!
//! Worked example (a test): q0 weight 100, `web` 300 with `a` 1 and `b` 2. All want: q0 1/4, a 1/4, b 2/4.
//! Only q0 and b: q0 1/4, b 3/4. Only a and b: a 1/3, b 2/3.
//!
//! Limits: caps and the number of CPUs that a queue's threads can use at once are not in it (ALGORITHMS §9.1).

use std::cmp::Ordering;

use crate::{Node, NodeId, Tree, Weight};

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
    const fn zero() -> Self {
        let (zero, mut one) = ([0; LIMBS], [0; LIMBS]);
        one[0] = 1;
        Self { numerator: zero, denominator: one }
    }

    const fn one() -> Self {
        let mut one = Self::zero();
        one.numerator[0] = 1;
        one
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

/// Of the nodes of `tree`, those for which `runnable` holds (asked of queues only), and the scheduler nodes above.
fn wanting(tree: &Tree, runnable: impl Fn(NodeId) -> bool) -> Vec<bool> {
    let mut wants = vec![false; tree.slots.len()];
    for node in tree.iter().filter(|n| n.kind.is_queue() && runnable(n.id)) {
        let mut up = Some(node);
        while let Some(node) = up.filter(|n| !wants[n.id.index as usize]) {
            wants[node.id.index as usize] = true;
            up = node.parent.and_then(|p| tree.get(p));
        }
    }
    wants
}

/// What the wanting children of one node divide.
#[derive(Clone, Copy)]
struct Sum {
    weights: u64,
    count: u64,
}

impl Sum {
    fn of(tree: &Tree, parent: &Node, wants: &[bool]) -> Self {
        let mut sum = Self { weights: 0, count: 0 };
        for child in parent.children.values().filter(|c| wants[c.index as usize]).filter_map(|&c| tree.get(c))
        {
            sum.weights += u64::from(child.weight.milli());
            sum.count += 1;
        }
        sum
    }

    /// The part of a wanting child.
    fn part(self, weight: Weight) -> (u64, u64) {
        if self.weights == 0 { (1, self.count.max(1)) } else { (u64::from(weight.milli()), self.weights) }
    }
}

/// The share of every node now, in order of slot, given which queues want; 0 for a node that does not.
pub fn effective_shares(tree: &Tree, runnable: impl Fn(NodeId) -> bool) -> Vec<(NodeId, Ppm)> {
    let wants = wanting(tree, runnable);
    let mut shares = vec![Fraction::zero(); wants.len()];
    if wants[NodeId::ROOT.index as usize] {
        shares[NodeId::ROOT.index as usize] = Fraction::one();
    }
    // Parents come before their children.
    for (_, node) in tree.walk().filter(|(_, n)| wants[n.id.index as usize]) {
        let sum = Sum::of(tree, node, &wants);
        for child in node.children.values().filter(|c| wants[c.index as usize]).filter_map(|&c| tree.get(c)) {
            let (part, of) = sum.part(child.weight);
            shares[child.id.index as usize] = shares[node.id.index as usize].times(part, of);
        }
    }
    tree.iter().map(|n| (n.id, shares[n.id.index as usize].ppm())).collect()
}

/// The product along the walk from `id` up to the root.
fn along(tree: &Tree, id: NodeId, wants: &[bool]) -> Ppm {
    let mut share = Fraction::one();
    let Some(mut node) = tree.get(id) else { return 0 };
    while let Some(parent) = node.parent.and_then(|p| tree.get(p)) {
        let (part, of) = Sum::of(tree, parent, wants).part(node.weight);
        share = share.times(part, of);
        node = parent;
    }
    share.ppm()
}

/// The share of one node now, as in [`effective_shares`]; 0 for a node that is gone or does not want.
pub fn effective_share(tree: &Tree, id: NodeId, runnable: impl Fn(NodeId) -> bool) -> Ppm {
    let wants = wanting(tree, runnable);
    if wants.get(id.index as usize) == Some(&true) { along(tree, id, &wants) } else { 0 }
}

/// The share of one node when every node wants; 0 for a node that is gone.
pub fn weight_share(tree: &Tree, id: NodeId) -> Ppm {
    along(tree, id, &vec![true; tree.slots.len()])
}
