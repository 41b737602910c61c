// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the control plane asks of a data plane: batches of edits to one tree.
//!
//! A [`Batch`] is applied whole or not at all, under the tree's lock, and carries the sequence
//! number that the journal gave it. The data plane remembers the last number it applied, so that
//! after a crash the journal and the plane agree on which edits happened (ARCHITECTURE.md, "Where
//! each invariant lives").

use serde::{Deserialize, Serialize};

use crate::{Cap, Class, Kind, NodeId, Policy, TuneKey, Weight};

/// One edit of one tree. Ids are chosen by the control plane (they are deterministic and
/// journaled); the plane refuses an id whose slot is taken or whose generation is not newer than
/// the slot's last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Make a node under `parent`. It starts idle with weight 0 (background) and no cap.
    Create {
        /// The new node.
        id: NodeId,
        /// A scheduler node that exists.
        parent: NodeId,
        /// Scheduler node with a policy, or queue with a class.
        kind: Kind,
    },
    /// Remove a node without children.
    Delete {
        /// The node.
        id: NodeId,
        /// What happens to the threads still in it.
        mode: DeleteMode,
    },
    /// Set the weight; 0 is background. The residual tag is rescaled (docs/notes/algorithms.md
    /// §1.3).
    Reweight {
        /// The node.
        id: NodeId,
        /// Its new weight.
        weight: Weight,
    },
    /// Set or clear the cap.
    SetCap {
        /// The node.
        id: NodeId,
        /// `None` removes it.
        cap: Option<Cap>,
    },
    /// Change a queue's leaf class; queued threads are ordered anew.
    SetClass {
        /// A queue.
        id: NodeId,
        /// Its new class.
        class: Class,
    },
    /// Change a scheduler node's policy.
    SetPolicy {
        /// A scheduler node.
        id: NodeId,
        /// Its new policy.
        policy: Policy,
    },
    /// Set the limits of a queue; 0 means no limit of its own.
    SetLimit {
        /// A queue.
        id: NodeId,
        /// Most threads that may be tagged with it; of a link, most packets that wait.
        members_max: u32,
        /// Of a link: most bytes that wait.
        bytes_max: u32,
    },
    /// Reset a queue's `served`/`service` counters as read through `backlog`.
    ResetCounters {
        /// A queue.
        id: NodeId,
    },
    /// Set a tunable of a node's policy (or its quantum).
    Tune {
        /// The node.
        id: NodeId,
        /// Which; not one of a child ([`TuneKey::is_of_child`]).
        key: TuneKey,
        /// Its value; 0 is the default.
        value: u64,
    },
    /// Set what a node is under its parent's policy.
    NodeParam {
        /// The node.
        id: NodeId,
        /// Which; one of a child.
        key: TuneKey,
        /// Its value.
        value: u64,
    },
    /// Hang a node (with everything below it) under another scheduler node. Tags start as at
    /// creation.
    Move {
        /// The node.
        id: NodeId,
        /// Its new parent; not below `id`.
        parent: NodeId,
    },
}

/// What happens to threads in a queue that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeleteMode {
    /// Refuse (`Busy`) while any thread is tagged with the node.
    Refuse,
    /// Accept no new member; the node goes when the last one has left. Answered `Draining`
    /// meanwhile.
    Drain,
    /// Move all members to q0, then remove.
    Flush,
}

/// Edits that happen together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Position in the journal, from 1. The plane refuses a number that is not greater than its
    /// last.
    pub seq: u64,
    /// In order.
    pub ops: Vec<Op>,
}

/// What became of one [`Op`] of an accepted batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In effect.
    Done,
    /// A deletion that waits for the last member to leave.
    Draining,
}
