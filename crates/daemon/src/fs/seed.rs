// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fresh inode is to become when it is opened: its serial.

use reserv_model::{NodeId, Tree};
use reserv_namespace::Resource;

use super::{Refusal, gone};

/// A fresh inode's serial: what it is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seed {
    pub(super) resource: u8,
    pub(super) scheduler: bool,
    /// Parent, with the low bits of its generation.
    pub(super) index: u32,
    pub(super) generation: u32,
    pub(super) number: u32,
}

/// Bits of a serial, from below: number 32, index 14, resource 4, scheduler 1, generation 5.
const SEED_GENERATION: u32 = 0x1f;

const SEED_INDEX: u32 = 0x3fff;

const _: () = assert!(reserv_model::NODES_MAX <= SEED_INDEX + 1 && reserv_namespace::RESOURCES_MAX <= 16);

impl Seed {
    pub(super) fn serial(self) -> u64 {
        u64::from(self.number)
            | u64::from(self.index & SEED_INDEX) << 32
            | u64::from(self.resource) << 46
            | u64::from(self.scheduler) << 50
            | u64::from(self.generation & SEED_GENERATION) << 51
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fields are that wide")]
    pub(super) fn of(serial: u64) -> Self {
        Self {
            number: serial as u32,
            index: (serial >> 32) as u32 & SEED_INDEX,
            resource: (serial >> 46) as u8 & 0xf,
            scheduler: serial >> 50 & 1 == 1,
            generation: (serial >> 51) as u32 & SEED_GENERATION,
        }
    }

    /// Whose tree it is to stand in.
    pub(super) fn resource(self) -> Result<Resource, Refusal> {
        Resource::new(self.resource).ok_or_else(gone)
    }

    /// The parent, if it still lives.
    pub(super) fn parent(self, tree: &Tree) -> Option<NodeId> {
        tree.at(self.index).map(|n| n.id).filter(|id| id.generation & SEED_GENERATION == self.generation)
    }
}

#[cfg(test)]
mod tests {
    use reserv_namespace::{Ino, Object};

    use super::*;

    #[test]
    fn a_seed_survives_its_serial() {
        for seed in [
            Seed { resource: 15, scheduler: true, index: SEED_INDEX, generation: 0x1f, number: u32::MAX },
            Seed { resource: 0, scheduler: false, index: 0, generation: 1, number: 0 },
        ] {
            assert_eq!(Seed::of(seed.serial()), seed);
            let ino = Ino::fresh(seed.serial());
            assert_eq!(ino.object(), Some(Object::Fresh(seed.serial())), "it fits into an inode number");
        }
    }
}
