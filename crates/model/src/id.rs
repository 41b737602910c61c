// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles of nodes: an index and a generation, so that a stale one is an error, never another
//! node.

pub use reserv_facts::tree::NODES_MAX;
use serde::{Deserialize, Serialize};

/// A node of one resource's tree. Packed into 64 bits as `generation << 32 | index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId {
    /// Slot, below [`NODES_MAX`].
    pub index: u32,
    /// Counts the uses of the slot, from 1; 0 is never a live node.
    pub generation: u32,
}

impl NodeId {
    /// The resource itself: the root scheduler node.
    pub const ROOT: Self = Self { index: 0, generation: 1 };
    /// The queue of whoever has no other tag. It exists from the start and cannot be deleted.
    pub const Q0: Self = Self { index: 1, generation: 1 };

    /// As it stands in kernel maps and inode numbers.
    pub const fn pack(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The reverse of [`NodeId::pack`].
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a 64-bit word")]
    pub const fn unpack(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}
