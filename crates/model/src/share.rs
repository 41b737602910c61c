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
//! A tree that stands as a whole beside competitors which are q0's ([`Beside`]: the stock CPU
//! driver's cgroups) divides by weight only what those leave it.
//!
//! Limits: caps and the number of CPUs that a queue's threads can use at once are not in it
//! (docs/notes/algorithms.md §9.1).

use std::cmp::Ordering;

use crate::{Node, NodeId, Tree, Weight};

/// Parts per million of the resource, rounded down; 1 000 000 is all of it.
pub type Ppm = u32;

const ALL: u64 = 1_000_000;

/// 64-bit limbs that hold any product of 15 sums of 16 384 weights (44 bits each), a weight beside
/// the tree and a million.
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

/// A tree of which q0 is outside: what all others are weighed at, against what wants beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The weight of the tree, in the unit of `outside`.
    pub tree: u32,
    /// The weight of all that wants outside.
    pub outside: u32,
    /// Some of q0 is in the tree, where it has q0's weight.
    pub inside: bool,
}

impl Beside {
    /// What of the resource the tree has, and of how much.
    fn trees(self) -> (u64, u64) {
        (self.tree.into(), (u64::from(self.tree) + u64::from(self.outside)).max(1))
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
    /// Where q0 is outside, with something in the tree that wants.
    beside: Option<Beside>,
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
        Self { wants, sums, beside: None }
    }

    /// The same of a tree that stands beside what is q0's.
    #[must_use]
    pub fn beside(mut self, tree: &Tree, beside: Beside) -> Self {
        let (root, q0) = (NodeId::ROOT.index as usize, NodeId::Q0.index as usize);
        let wanted = std::mem::replace(&mut self.wants[q0], beside.inside || beside.outside > 0);
        let weight = tree.get(NodeId::Q0).map_or(0, |n| u64::from(n.weight.milli()));
        let sum = &mut self.sums[root];
        if wanted && !beside.inside {
            (sum.weights, sum.count) = (sum.weights - weight, sum.count - 1);
        } else if beside.inside && !wanted {
            (sum.weights, sum.count) = (sum.weights + weight, sum.count + 1);
        }
        self.wants[root] = self.wants[q0] || sum.count > 0;
        // Alone outside: all of it.
        self.beside = (sum.count > 0).then_some(beside);
        self
    }

    /// What a child of the root has of it, and of how much.
    fn of_root(&self, node: &Node, part: (u64, u64)) -> [(u64, u64); 2] {
        let Some(beside) = self.beside else { return [part, (1, 1)] };
        let (trees, all) = beside.trees();
        if node.id != NodeId::Q0 {
            return [part, (trees, all)];
        }
        let (mut part, mut of) = if beside.inside { part } else { (0, 1) };
        // Within 64 bits; a part in 2³¹ is lost.
        while of > u64::from(u32::MAX >> 1) {
            (part, of) = (part >> 1, of >> 1);
        }
        [((all - trees) * of + trees * part, of), (1, all)]
    }

    /// What a node is guaranteed whoever wants, in ns per second ([`Tree::guarantee`]); of
    /// [`Shares::all`].
    pub fn guarantee(&self, tree: &Tree, id: NodeId) -> u64 {
        let weights =
            |parent: &Node| self.sums.get(parent.id.index as usize).map_or(0, |sum| sum.weights);
        let Some(beside) = self.beside.filter(|_| id != NodeId::ROOT) else {
            return tree.guarantee_of(id, tree.capacity(), weights);
        };
        let of = |part: u64, all: u64| {
            let part = u128::from(tree.capacity()) * u128::from(part) / u128::from(all);
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        if id == NodeId::Q0 {
            return of(self.ppm(tree, id).into(), ALL);
        }
        let (trees, all) = beside.trees();
        tree.guarantee_of(id, of(trees, all), weights)
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
            let part = sum.part(node.weight);
            let parts =
                if parent.parent.is_none() { self.of_root(node, part) } else { [part, (1, 1)] };
            for (part, of) in parts {
                share = share.times(part, of);
            }
            node = parent;
        }
        share.ppm()
    }
}
