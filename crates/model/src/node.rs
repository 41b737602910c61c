// SPDX-License-Identifier: MIT OR Apache-2.0
//! One node of a tree: what is set of it, and the names of its children.

use std::collections::BTreeMap;

use crate::{AccessEntry, Cap, Fixed, Kind, Minimum, Name, NodeId, Share, Tune, Weight};

/// One reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its handle.
    pub id: NodeId,
    /// Within the parent; the resource's name for the root.
    pub name: Name,
    /// Scheduler with its policy, or queue with its class.
    pub kind: Kind,
    /// Against the siblings. Meaningless for the root. Of a node with a fixed share it is solved
    /// (`fixed.rs`).
    pub weight: Weight,
    /// Its part of the parent, in place of a weight of its own.
    pub fixed: Option<Fixed>,
    /// The absolute promise (`admission.rs`); the root's is the capacity.
    pub minimum: Minimum,
    /// Upper limit.
    pub cap: Option<Cap>,
    /// Most threads that may be tagged with a queue, or packets that may wait in a link's; 0 is no
    /// limit.
    pub members_max: u32,
    /// Most bytes that may wait in a link's queue; 0 is no limit of its own.
    pub bytes_max: u32,
    /// Whether it may be collected when nothing refers to it.
    pub gc: bool,
    /// What is set of its tunables.
    pub tune: Tune,
    /// A queue that goes when its last member has left.
    pub draining: bool,
    /// Who may do what here and below (`access.rs`).
    pub access: Vec<AccessEntry>,
    /// The uid of who made it.
    pub maker: u32,
    /// The entry through which it was made; `None`: by root.
    pub through: Option<u64>,
    /// `None` for the root only.
    pub parent: Option<NodeId>,
    /// By name, in the order of [`Name`].
    pub children: BTreeMap<Name, NodeId>,
    /// The lowest numbers that no child has as `qN` and `rN`; functions of `children`, kept for
    /// speed.
    pub(crate) free_number: FreeNumbers,
    /// How many children have a fixed share; a function of them, kept for speed.
    pub(crate) fixed_children: u32,
    /// How many children have a minimum; likewise.
    pub(crate) minimum_children: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeNumbers {
    pub(crate) queue: u32,
    pub(crate) scheduler: u32,
}

/// What a child has that its parent counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim {
    pub(crate) fixed: bool,
    pub(crate) minimum: bool,
}

impl Node {
    pub(crate) const fn claim(&self) -> Claim {
        Claim { fixed: self.fixed.is_some(), minimum: self.minimum.0 > 0 }
    }

    pub(crate) fn new(id: NodeId, name: Name, kind: Kind, parent: Option<NodeId>) -> Self {
        Self {
            id,
            name,
            kind,
            weight: Weight::BACKGROUND,
            fixed: None,
            minimum: Minimum(0),
            cap: None,
            members_max: 0,
            bytes_max: 0,
            gc: false,
            tune: Tune::new(),
            draining: false,
            access: Vec::new(),
            maker: 0,
            through: None,
            parent,
            children: BTreeMap::new(),
            free_number: FreeNumbers::default(),
            fixed_children: 0,
            minimum_children: 0,
        }
    }

    /// What its share file holds.
    pub const fn share(&self) -> Share {
        let weight = if self.fixed.is_some() { Weight::BACKGROUND } else { self.weight };
        Share { weight, fixed: self.fixed, minimum: self.minimum }
    }

    /// The name that opening `newqueue` (`Kind::Queue`) or `newsched` gives: the lowest free
    /// number.
    pub fn next_name(&self, kind: Kind) -> Name {
        match kind {
            Kind::Queue(_) => Name::numbered('q', self.free_number.queue),
            Kind::Scheduler(_) => Name::numbered('r', self.free_number.scheduler),
        }
    }

    pub(crate) fn link(&mut self, name: Name, id: NodeId) {
        self.children.insert(name, id);
        let taken = |letter, n| self.children.contains_key(&Name::numbered(letter, n));
        while taken('q', self.free_number.queue) {
            self.free_number.queue += 1;
        }
        while taken('r', self.free_number.scheduler) {
            self.free_number.scheduler += 1;
        }
    }

    pub(crate) fn unlink(&mut self, name: &Name) {
        self.children.remove(name);
        if let Some(n) = name.number_after('q') {
            self.free_number.queue = self.free_number.queue.min(n);
        }
        if let Some(n) = name.number_after('r') {
            self.free_number.scheduler = self.free_number.scheduler.min(n);
        }
    }
}
