// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission control: a minimum is a promise, and no write may break one (Eclipse/BSD §2.8,
//! docs/notes/algorithms.md §10).
//!
//! Rule: a child with weight `w` and minimum `m` below a node with minimum `M` keeps its promise
//! iff `m · Σw ≤ w · M`, the sum over all children that exist, those that drain too: they hold
//! their weight until they are gone. The root's minimum is the resource's capacity. By induction
//! from the root every node then has at least its minimum while all want.
//!
//! * The rule uses the parent's declared minimum, not what it happens to have: a promise survives
//!   what changes above. So minimums are raised from the top down and lowered from the bottom up,
//!   or all in one write.
//! * A write touches a node, its siblings (their sum changes) and its children (their `M` changes):
//!   these are checked, nothing else can break. A new node has weight 0, so that making one breaks
//!   nothing.
//! * A fixed share `f` keeps its promise iff `m ≤ f · M`; its siblings divide the rest:
//!   `m · Σw ≤ w · (1 − Σf) · M`. The declared shares count, not the solved weights, which are
//!   rounded.
//! * Weight 0 is background and promises nothing; neither does a node below strict priorities, or a
//!   cap below the minimum.
//! * Capacity may fall below what was promised (a CPU goes offline). Nothing is scaled: the tree is
//!   overcommitted ([`Tree::overcommitted`]), and only what makes no broken promise worse is
//!   accepted.
//!
//! Exact integers of 128 bits: `m ≤ 2^43` ns/s, `Σw ≤ 2^44` thousandths, shares in millionths
//! (2^20).
//!
//! Worked example (a test): of 2 CPUs, q0 has weight 100, `web` weight 300 and minimum 1.5cpu: 1.5
//! · 400 ≤ 300 · 2. A sibling of weight 1 is refused: 1.5 · 401 > 300 · 2. Below `web`, two
//! children of weight 1 may have 750ms/s each.

use std::collections::BTreeSet;

use crate::edit::Edit;
use crate::{
    Amount, Error, ErrorKind, Fixed, Kind, Minimum, Node, NodeId, Policy, ResourceKind, Tree,
    Weight, units::show_percent,
};

const ALL: u128 = Fixed::ALL as u128;

/// What the children of one node divide.
#[derive(Clone, Copy)]
struct Sums {
    /// Of the weights that are not solved, in thousandths.
    weights: u128,
    /// Of the fixed shares, in millionths.
    fixed: u128,
    /// The parent's minimum.
    whole: u128,
}

/// Why a child's promise is not kept.
enum Broken {
    Share,
    Cap,
    Priority,
}

impl Sums {
    fn of(tree: &Tree, parent: &Node) -> Self {
        let mut sums = Self { weights: 0, fixed: 0, whole: parent.minimum.per_second().into() };
        for child in parent.children.values().filter_map(|&c| tree.get(c)) {
            match child.fixed {
                Some(fixed) => sums.fixed += u128::from(fixed.ppm()),
                None => sums.weights += u128::from(child.weight.milli()),
            }
        }
        sums
    }

    /// What a child is sure of, as a fraction of ns per second.
    fn sure(self, child: &Node) -> (u128, u128) {
        match child.fixed {
            Some(fixed) => (u128::from(fixed.ppm()) * self.whole, ALL),
            None if child.weight == Weight::BACKGROUND => (0, 1),
            None => {
                let rest = ALL.saturating_sub(self.fixed);
                (u128::from(child.weight.milli()) * rest * self.whole, self.weights * ALL)
            }
        }
    }

    fn broken(self, parent: &Node, child: &Node) -> Option<Broken> {
        let minimum = child.minimum.per_second();
        let (sure, of) = self.sure(child);
        if minimum == 0 {
            None
        } else if matches!(parent.kind, Kind::Scheduler(Policy::Prio | Policy::Cello)) {
            Some(Broken::Priority)
        } else if child.cap.is_some_and(|cap| cap.per_second() < minimum) {
            Some(Broken::Cap)
        } else {
            (u128::from(minimum) * of > sure).then_some(Broken::Share)
        }
    }
}

impl Tree {
    /// What can be promised below the root, in ns of CPU or bytes per second: told by who knows the
    /// machine, no part of the journal. 0, as a new tree has it, promises nothing.
    pub fn set_capacity(&mut self, ns_per_s: u64) {
        let minimum = Minimum(Amount::of(self.resource, ns_per_s).0);
        if let Some(root) = self.slots[0].node.as_mut() {
            root.minimum = minimum;
        }
    }

    /// See [`Tree::set_capacity`].
    pub fn capacity(&self) -> u64 {
        self.root().minimum.per_second()
    }

    /// Nodes whose minimums are more than there is since the capacity fell.
    pub fn overcommitted(&self) -> Vec<NodeId> {
        let root = self.root();
        if root.minimum_children == 0 {
            return Vec::new();
        }
        let sums = Sums::of(self, root);
        let children = root.children.values().filter_map(|&c| self.get(c));
        children.filter(|c| sums.broken(root, c).is_some()).map(|c| c.id).collect()
    }

    /// Whether all promises are kept where there is so much, less than now.
    pub fn admit_capacity(&self, per_s: u64) -> Result<(), Error> {
        let mut less = self.clone();
        less.set_capacity(per_s);
        let (root, sums) = (less.root(), Sums::of(&less, less.root()));
        let children = root.children.values().filter_map(|&c| less.get(c));
        for child in children {
            if let Some(broken @ Broken::Share) = sums.broken(root, child) {
                let hint = "a higher rate, or smaller minimums before it is lowered";
                return Err(less.refuse(root, child, sums, &broken).hint(hint));
            }
        }
        Ok(())
    }

    /// Whether edits may break a promise, or make one: then they are checked by [`Tree::admit`].
    pub(crate) fn may_break(&self, edits: &[Edit]) -> bool {
        let promises = |id: NodeId| self.get(id).is_some_and(|n| n.minimum_children > 0);
        let made_in = |new: NodeId| {
            edits.iter().find_map(|e| match *e {
                Edit::Create { id, parent, .. } if id == new => Some(parent),
                _ => None,
            })
        };
        let above = |id: NodeId| self.get(id).and_then(|n| n.parent).or_else(|| made_in(id));
        let own = |id: NodeId| self.get(id).is_some_and(|n| n.minimum.0 > 0);
        edits.iter().any(|edit| match *edit {
            Edit::Share { id, share } => {
                share.minimum.0 > 0 || promises(id) || above(id).is_some_and(promises)
            }
            Edit::Cap { id, cap } => cap.is_some() && (own(id) || self.is_cello()),
            Edit::Policy { id, policy } => promises(id) || policy == Policy::Cello,
            Edit::Move { id, parent, .. } => own(id) || promises(parent),
            Edit::Limit { .. } => self.limits(edit),
            _ => false,
        })
    }

    /// Note the nodes below which an edit may break a promise; before it is carried out.
    pub(crate) fn touches(&self, edit: &Edit, parents: &mut BTreeSet<NodeId>) {
        match *edit {
            Edit::Share { id, .. } => {
                parents.insert(id);
                parents.extend(self.get(id).and_then(|n| n.parent));
            }
            Edit::Cap { id, .. } => parents.extend(self.get(id).and_then(|n| n.parent)),
            Edit::Policy { id, .. } => {
                parents.insert(id);
            }
            Edit::Move { parent, .. } => {
                parents.insert(parent);
            }
            _ => {}
        }
    }

    /// Whether every promise below `parents` holds that held in `before`, and no broken one is
    /// worse.
    pub(crate) fn admit(&self, before: &Self, parents: &BTreeSet<NodeId>) -> Result<(), Error> {
        self.admit_limits(before)?;
        if self.is_cello()
            && let Some(node) = self.iter().find(|node| node.cap.is_some())
        {
            let (at, above) = (self.shown(node.id), self.shown(NodeId::ROOT));
            let why = format!("{at}: no cap below {above}, whose policy is {}", Policy::Cello);
            return Err(Error::new(ErrorKind::Unsupported, why)
                .hint("caps are of sfq, wf2q+ and yfq; cello divides the disk's time by classes"));
        }
        for parent in parents.iter().filter_map(|&p| self.get(p)).filter(|p| p.minimum_children > 0)
        {
            let sums = Sums::of(self, parent);
            for child in parent.children.values().filter_map(|&c| self.get(c)) {
                if let Some(broken) = sums.broken(parent, child)
                    && !before.was_as_bad(parent.id, child, sums)
                {
                    return Err(self.refuse(parent, child, sums, &broken));
                }
            }
        }
        Ok(())
    }

    /// Requests wait outside of the tree, whose caps would hold nobody.
    fn is_cello(&self) -> bool {
        self.get(NodeId::ROOT).is_some_and(|root| root.kind == Kind::Scheduler(Policy::Cello))
    }

    /// Whether this promise was broken before, and then by as much.
    fn was_as_bad(&self, parent: NodeId, child: &Node, sums: Sums) -> bool {
        let (Some(parent), Some(was)) = (self.get(parent), self.get(child.id)) else {
            return false;
        };
        let before = Sums::of(self, parent);
        // Rounded down to 1 ns/s: two fractions of this size are not compared exactly in 128 bits.
        let floor = |(part, of): (u128, u128)| part.checked_div(of).unwrap_or(0);
        was.parent == Some(parent.id)
            && matches!(before.broken(parent, was), Some(Broken::Share))
            && child.minimum.per_second() <= was.minimum.per_second()
            && floor(sums.sure(child)) >= floor(before.sure(was))
    }

    fn refuse(&self, parent: &Node, child: &Node, sums: Sums, broken: &Broken) -> Error {
        let (at, above) = (self.shown(child.id), self.shown(parent.id));
        let (wants, whole) = (child.minimum, parent.minimum);
        let (why, hint) = match broken {
            Broken::Priority => {
                let policy =
                    if let Kind::Scheduler(policy) = parent.kind { policy } else { Policy::Prio };
                (
                    format!("{at}: no minimum can be promised below {above}, whose policy is {policy}"),
                    "a policy that divides all by weight: sfq, eevdf or mtrls, of a disk sfq, wf2q+ or yfq"
                        .to_owned(),
                )
            }
            Broken::Cap => {
                let cap = child.cap.map_or(0, |cap| cap.rate_ns_per_s);
                (
                    format!("{at}: its cap {} is less than its minimum {wants}", Amount(cap)),
                    "a cap holds whatever was promised".to_owned(),
                )
            }
            Broken::Share if parent.id == NodeId::ROOT && whole.per_second() == 0 => {
                let (what, hint) = match self.resource {
                    ResourceKind::Disk => (
                        "floor",
                        "tell what the disk serves whatever is asked of it: floor = \"24mbit\", or --floor",
                    ),
                    _ => ("rate", "tell how fast the link is: rate = \"100mbit\", or --rate"),
                };
                (
                    format!(
                        "{at}: its minimum {wants} would not be kept: {above} has no {what}, so nothing can be promised"
                    ),
                    hint.to_owned(),
                )
            }
            Broken::Share => {
                let (part, of) = sums.sure(child);
                let sure = u64::try_from(part.checked_div(of).unwrap_or(0)).unwrap_or(u64::MAX);
                let sure = Amount::of(self.resource, sure);
                let share = if let Some(fixed) = child.fixed {
                    fixed.to_string()
                } else {
                    let all = u32::try_from(sums.weights).ok().and_then(Weight::from_milli);
                    let all = all.map_or_else(|| "more".to_owned(), |w| w.to_string());
                    let rest = match sums.fixed {
                        0 => String::new(),
                        f => format!(
                            " beside fixed shares of {}",
                            show_percent(f.try_into().unwrap_or(0))
                        ),
                    };
                    format!("weight {} of {all}{rest}", child.weight)
                };
                let why = format!(
                    "{at}: its minimum {wants} would not be kept: {share} of {above}'s {whole} is {sure}"
                );
                let hint = if parent.id == NodeId::ROOT {
                    "a larger weight for it, smaller ones beside it, or a smaller minimum"
                        .to_owned()
                } else {
                    format!(
                        "a larger minimum of {above}, a larger weight, or both in one write to shares"
                    )
                };
                (why, hint)
            }
        };
        Error::new(ErrorKind::Overcommitted, why).hint(hint)
    }
}
