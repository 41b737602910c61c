// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a record of the journal is made of: durable changes to one tree.

use serde::{Deserialize, Serialize};

use crate::{
    AccessEntry, Cap, Class, DeleteMode, Kind, Name, NodeId, Op, Personality, Policy, Share,
    TuneKey, Weight,
};

/// One durable change. What the kernel needs of it is [`Edit::op`]; the rest lives in the journal
/// only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it: which node, and its new value")]
pub enum Edit {
    /// Make a node: weight 0, no cap.
    Create { id: NodeId, parent: NodeId, name: Name, kind: Kind },
    /// Set weight or fixed share, and minimum. The weight of a fixed share is solved by a later
    /// edit of the same plan.
    Share { id: NodeId, share: Share },
    /// The solved weight of a node with a fixed share.
    Solve { id: NodeId, weight: Weight },
    /// Set what new nodes are.
    Personality { personality: Personality },
    /// Set or clear the cap.
    Cap { id: NodeId, cap: Option<Cap> },
    /// Set a queue's class.
    Class { id: NodeId, class: Class },
    /// Set a scheduler node's policy.
    Policy { id: NodeId, policy: Policy },
    /// Set a tunable; `None`: its default.
    Tune { id: NodeId, key: TuneKey, value: Option<u64> },
    /// Set the limits of a queue.
    Limit {
        id: NodeId,
        members_max: u32,
        #[serde(default)]
        bytes_max: u32,
    },
    /// Set the collection flag.
    Gc { id: NodeId, gc: bool },
    /// Replace the access list.
    Access { id: NodeId, entries: Vec<AccessEntry> },
    /// Note who made a node, and the entry that let him.
    Made { id: NodeId, maker: u32, through: Option<u64> },
    /// Reset the `backlog` counters (which live in the kernel).
    Reset { id: NodeId },
    /// Give another name.
    Rename { id: NodeId, name: Name },
    /// Hang under another scheduler node, by this name.
    Move { id: NodeId, parent: NodeId, name: Name },
    /// Mark a queue as draining; it keeps slot and name until [`Edit::Gone`].
    Drain { id: NodeId },
    /// Remove a node without children at once, refusing or flushing members as `mode` says.
    Delete { id: NodeId, mode: DeleteMode },
    /// The plane reported that a draining queue is gone.
    Gone { id: NodeId },
}

impl Edit {
    /// The node that it changes or makes.
    pub const fn id(&self) -> NodeId {
        match *self {
            Self::Create { id, .. }
            | Self::Share { id, .. }
            | Self::Solve { id, .. }
            | Self::Cap { id, .. }
            | Self::Class { id, .. }
            | Self::Policy { id, .. }
            | Self::Tune { id, .. }
            | Self::Limit { id, .. }
            | Self::Gc { id, .. }
            | Self::Access { id, .. }
            | Self::Made { id, .. }
            | Self::Reset { id }
            | Self::Rename { id, .. }
            | Self::Move { id, .. }
            | Self::Drain { id }
            | Self::Delete { id, .. }
            | Self::Gone { id } => id,
            Self::Personality { .. } => NodeId::ROOT,
        }
    }

    /// What the plane has to do for it; `None` where the kernel needs nothing.
    pub fn op(&self) -> Option<Op> {
        Some(match *self {
            Self::Create { id, parent, kind, .. } => Op::Create { id, parent, kind },
            Self::Share { share: Share { fixed: Some(_), .. }, .. } | Self::Personality { .. } => {
                return None;
            }
            Self::Share { id, share } => Op::Reweight { id, weight: share.weight },
            Self::Solve { id, weight } => Op::Reweight { id, weight },
            Self::Cap { id, cap } => Op::SetCap { id, cap },
            Self::Class { id, class } => Op::SetClass { id, class },
            Self::Policy { id, policy } => Op::SetPolicy { id, policy },
            Self::Tune { id, key, value } => {
                let value = value.unwrap_or(key.default_value());
                if key.is_of_child() {
                    Op::NodeParam { id, key, value }
                } else {
                    Op::Tune { id, key, value }
                }
            }
            Self::Limit { id, members_max, bytes_max } => {
                Op::SetLimit { id, members_max, bytes_max }
            }
            Self::Reset { id } => Op::ResetCounters { id },
            Self::Move { id, parent, .. } => Op::Move { id, parent },
            Self::Drain { id } => Op::Delete { id, mode: DeleteMode::Drain },
            Self::Delete { id, mode } => Op::Delete { id, mode },
            Self::Gc { .. }
            | Self::Access { .. }
            | Self::Made { .. }
            | Self::Rename { .. }
            | Self::Gone { .. } => return None,
        })
    }
}
