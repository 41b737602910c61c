// SPDX-License-Identifier: MIT OR Apache-2.0
//! What requests and inodes of a mount mean to the engine: which edits have happened already, and
//! the nodes of fresh inodes.

use reserv_model::NodeId;

use super::record::Entry;
use super::{Engine, Refusal};
use crate::collect::Collector;

/// Numbers of fresh inodes that are taken at once.
const FRESH_BLOCK: u32 = 1 << 16;

impl Engine {
    /// If the edit of this request happened before its answer was given: the node that it made, if
    /// any.
    pub fn answered(&self, unique: u64) -> Option<Option<NodeId>> {
        self.extras.answered.iter().rev().find(|(u, _)| *u == unique).map(|(_, made)| *made)
    }

    /// A new mount: what requests and inodes of an earlier one meant is void.
    pub fn new_session(&mut self) -> Result<(), Refusal> {
        self.append(&Entry::Session)?;
        self.extras.new_session();
        self.collector = Collector::taken_over(&self.tree, &mut self.extras.collect);
        // No file is open in a new mount, so of all nodes all are known.
        self.extras.collect.new_session();
        Ok(())
    }

    /// A number for a fresh inode that this and earlier daemons have not used (until 2³² are used
    /// up).
    pub fn fresh_number(&mut self) -> Result<u32, Refusal> {
        if self.fresh_next == self.extras.fresh_end {
            let end = self.extras.fresh_end.wrapping_add(FRESH_BLOCK);
            self.append(&Entry::Fresh { end })?;
            self.extras.fresh_end = end;
            self.compact_when_long();
        }
        let number = self.fresh_next;
        self.fresh_next = self.fresh_next.wrapping_add(1);
        Ok(number)
    }

    /// The node that a fresh inode became when it was opened.
    pub fn fresh_node(&self, fresh: u64) -> Option<NodeId> {
        self.extras.fresh.get(&fresh).copied()
    }

    /// Nobody refers to this inode any more.
    pub fn forget_fresh(&mut self, fresh: u64) {
        if self.extras.fresh.remove(&fresh).is_some()
            && let Err(error) = self.append(&Entry::Forgotten { fresh })
        {
            tracing::warn!(%error, "a forgotten inode stays in the journal");
        }
        self.compact_when_long();
    }
}
