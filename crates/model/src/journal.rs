// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a journal keeps: a snapshot of the tree and the records since. Replaying them gives the
//! identical tree, ids included.

use serde::{Deserialize, Serialize};

use crate::edit::Edit;
use crate::{
    AccessEntry, Batch, Cap, Error, ErrorKind, Kind, Name, NodeId, Personality, Share, Tree, Tune,
    Weight,
};

/// The edits of one plan. Its number is also the batch's, so that journal and plane agree on what
/// happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// One more than the record before it, from 1.
    pub seq: u64,
    /// In order.
    pub edits: Vec<Edit>,
}

impl Record {
    /// The batch that the plane got for it; to send again after a crash.
    pub fn batch(&self) -> Batch {
        Batch { seq: self.seq, ops: self.edits.iter().filter_map(Edit::op).collect() }
    }
}

/// A whole tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Number of the last record that is in it.
    pub seq: u64,
    /// All slots from 0, the free ones too: they keep their last generation.
    pub slots: Vec<SavedSlot>,
    /// What new nodes are.
    #[serde(default)]
    pub personality: Personality,
}

/// One slot of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSlot {
    /// Of the node in it, or of the last one that was.
    pub generation: u32,
    /// `None`: free.
    pub node: Option<SavedNode>,
}

/// One node of a [`Snapshot`]; its id is its slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "as in Node")]
pub struct SavedNode {
    pub name: Name,
    pub parent: Option<NodeId>,
    pub kind: Kind,
    pub share: Share,
    /// Of a node with a fixed share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solved: Option<Weight>,
    pub cap: Option<Cap>,
    pub members_max: u32,
    #[serde(default, skip_serializing_if = "nothing")]
    pub bytes_max: u32,
    pub gc: bool,
    #[serde(default, skip_serializing_if = "Tune::is_empty")]
    pub tune: Tune,
    pub draining: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<AccessEntry>,
    #[serde(default)]
    pub maker: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
const fn nothing(number: &u32) -> bool {
    *number == 0
}

impl Snapshot {
    /// The tree that was saved; `Corrupt` when it does not fit together.
    pub fn restore(self) -> Result<Tree, Error> {
        let saved = (0..).zip(self.slots).map(|(index, slot)| {
            let node = slot.node.map(|n| {
                let id = NodeId { index, generation: slot.generation };
                let mut node = Tree::saved_node(
                    id,
                    n.parent,
                    n.name,
                    n.kind,
                    n.share,
                    n.solved,
                    n.cap,
                    n.members_max,
                    n.gc,
                    n.tune,
                    n.draining,
                );
                (node.access, node.maker, node.through) = (n.access, n.maker, n.through);
                node.bytes_max = n.bytes_max;
                node
            });
            (slot.generation, node)
        });
        Tree::assemble(self.seq, saved.collect(), self.personality)
    }
}

impl Tree {
    /// Everything that a journal must keep of it.
    pub fn snapshot(&self) -> Snapshot {
        let slots = self.slots.iter().map(|slot| SavedSlot {
            generation: slot.generation,
            node: slot.node.as_ref().map(|n| SavedNode {
                name: n.name.clone(),
                parent: n.parent,
                kind: n.kind,
                share: n.share(),
                solved: n.fixed.map(|_| n.weight),
                cap: n.cap,
                members_max: n.members_max,
                bytes_max: n.bytes_max,
                gc: n.gc,
                tune: n.tune.clone(),
                draining: n.draining,
                access: n.access.clone(),
                maker: n.maker,
                through: n.through,
            }),
        });
        Snapshot { seq: self.seq, slots: slots.collect(), personality: self.personality }
    }

    /// Carry out one record of the journal. `Corrupt` when it is not the next one, or its edits do
    /// not fit; in the latter case the ones before the unfitting one are in effect, and the tree is
    /// to be thrown away.
    pub fn replay(&mut self, record: &Record) -> Result<(), Error> {
        if record.seq != self.seq + 1 {
            let why = format!("record {} after record {}", record.seq, self.seq);
            return Err(Error::new(ErrorKind::Corrupt, why));
        }
        for edit in &record.edits {
            self.apply(edit).map_err(|e| e.at(format_args!("record {}", record.seq)))?;
        }
        self.seq = record.seq;
        Ok(())
    }
}
