// SPDX-License-Identifier: MIT OR Apache-2.0
//! What somebody sees of a tree (Eclipse/BSD §2.7 has no such right: there everybody may read).
//!
//! 1. Where he may read ([`Right::Read`], which any other right implies): everything.
//! 2. Of the root, of every node above one that he may read, and of those queues in which he is
//!    himself with the nodes above them: the name and the totals. So each knows what his own part
//!    is a part of.
//! 3. Of all other nodes nothing; their names are not listed.
//!
//! What is below a node that he may read is his to read too, unless root denies it there.

use std::collections::BTreeSet;

use crate::{Caller, Error, NodeId, Right, Tree};

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Sight<'t> {
    tree: &'t Tree,
    who: &'t Caller,
    /// The nodes of which he sees the totals at least, beside what is below his own.
    way: BTreeSet<NodeId>,
}

impl Sight<'_> {
    /// Whether he may read a node.
    pub fn is_whole(&self, id: NodeId) -> bool {
        self.tree.decide(self.who, id, Right::Read).allowed
    }

    /// Whether he sees its name and its totals.
    pub fn has(&self, id: NodeId) -> bool {
        self.way.contains(&id) || self.is_whole(id)
    }

    /// Refuses what he does not see.
    pub fn require(&self, id: NodeId) -> Result<(), Error> {
        if self.way.contains(&id) { Ok(()) } else { self.tree.require(self.who, id, Right::Read) }
    }
}

impl Tree {
    /// What somebody sees who is himself in these queues.
    pub fn sight<'t>(&'t self, who: &'t Caller, within: &[NodeId]) -> Sight<'t> {
        let mut way = BTreeSet::from([NodeId::ROOT]);
        // A right that holds anywhere holds at the entry that gives it: what refuses it there
        // refuses it below. So the nodes with entries are enough. The same of what somebody made:
        // he may make nodes where it stands.
        let named = |n: &&crate::Node| n.access.iter().any(|e| e.allow && e.party.is(who));
        let read = self.iter().filter(named).map(|n| n.id);
        let own = read.filter(|id| self.decide(who, *id, Right::Read).allowed);
        for id in own.chain(within.iter().copied()) {
            for node in self.up(id) {
                if node.id != NodeId::ROOT && !way.insert(node.id) {
                    break;
                }
            }
        }
        Sight { tree: self, who, way }
    }
}
