// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generalised multiprocessor sharing, hierarchical (docs/notes/algorithms.md §9.1): the ideal on
//! several units. A leaf can use as many units as it has threads that want one, a node as many as
//! its children together; top down, what a node has is divided by weight, and what a child cannot
//! use goes to its siblings.

use std::collections::BTreeMap;

use num_traits::{One, Zero};

use crate::core::Id;
use crate::model::{Q, q};

/// A tree for the ideal: parents by node, weights, and how many threads each leaf has.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is said by its name")]
pub struct Ideal {
    pub parent: BTreeMap<Id, Id>,
    pub weight: BTreeMap<Id, u32>,
    pub threads: BTreeMap<Id, u32>,
}

/// Divide `have` by weight among those with a limit each: who cannot use his part takes his limit,
/// and the rest is divided anew. The units of each, in the order given.
pub fn fill(have: &Q, of: &[(u32, Q)]) -> Vec<Q> {
    let mut got: Vec<Option<Q>> =
        of.iter().map(|(w, m)| (*w == 0 || m.is_zero()).then(Q::zero)).collect();
    let mut left = have.clone();
    loop {
        let open: Vec<usize> = (0..of.len()).filter(|&i| got[i].is_none()).collect();
        let sum: u64 = open.iter().map(|&i| u64::from(of[i].0)).sum();
        if sum == 0 {
            break;
        }
        let part = |i: usize| &left * q(of[i].0, sum);
        let full: Vec<usize> = open.iter().copied().filter(|&i| part(i) >= of[i].1).collect();
        if full.is_empty() {
            let parts: Vec<(usize, Q)> = open.iter().map(|&i| (i, part(i))).collect();
            for (i, p) in parts {
                got[i] = Some(p);
            }
            break;
        }
        for i in full {
            left -= &of[i].1;
            got[i] = Some(of[i].1.clone());
        }
    }
    got.into_iter().map(|g| g.unwrap_or_else(Q::zero)).collect()
}

impl Ideal {
    fn limit(&self, id: Id) -> Q {
        let own = q(self.threads.get(&id).copied().unwrap_or(0), 1);
        self.parent
            .iter()
            .filter(|(_, p)| **p == id)
            .map(|(c, _)| self.limit(*c))
            .fold(own, |a, b| a + b)
    }

    /// Units of every node, on `units` of them.
    pub fn shares(&self, root: Id, units: u32) -> BTreeMap<Id, Q> {
        let mut out = BTreeMap::new();
        let have = self.limit(root).min(q(units, 1));
        self.divide(root, have, &mut out);
        out
    }

    fn divide(&self, id: Id, have: Q, out: &mut BTreeMap<Id, Q>) {
        let kids: Vec<Id> =
            self.parent.iter().filter(|(_, p)| **p == id).map(|(c, _)| *c).collect();
        let of: Vec<(u32, Q)> = kids.iter().map(|c| (self.weight[c], self.limit(*c))).collect();
        // Background shares what the others cannot use.
        let mut parts = fill(&have, &of);
        let rest = parts.iter().fold(have.clone(), |a, b| a - b);
        let behind: Vec<(u32, Q)> = of
            .iter()
            .map(|(w, m)| (u32::from(*w == 0), if *w == 0 { m.clone() } else { Q::zero() }))
            .collect();
        for (part, more) in parts.iter_mut().zip(fill(&rest, &behind)) {
            *part += more;
        }
        out.insert(id, have);
        for (c, part) in kids.into_iter().zip(parts) {
            self.divide(c, part, out);
        }
    }
}

/// One unit, whole.
pub fn whole() -> Q {
    Q::one()
}
