// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fresh inode is to become when it is opened: its serial. And what it has become: the
//! handles of its open files.

use reserv_model::{NodeId, Tree};
use reserv_namespace::Resource;

use crate::refusal::Refusal;

/// A fresh inode's serial: what it is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Whose tree it is to stand in.
    pub resource: u8,
    /// Or a queue.
    pub scheduler: bool,
    /// Parent …
    pub index: u32,
    /// … with the low bits of its generation.
    pub generation: u32,
    /// Its own.
    pub number: u32,
}

/// Bits of a serial, from below: number 32, index 14, resource 4, scheduler 1, generation 5.
const SEED_GENERATION: u32 = 0x1f;

const SEED_INDEX: u32 = 0x3fff;

const _: () =
    assert!(reserv_model::NODES_MAX <= SEED_INDEX + 1 && reserv_namespace::RESOURCES_MAX <= 16);

impl Seed {
    /// As it stands in the inode's number.
    pub fn serial(self) -> u64 {
        u64::from(self.number)
            | u64::from(self.index & SEED_INDEX) << 32
            | u64::from(self.resource) << 46
            | u64::from(self.scheduler) << 50
            | u64::from(self.generation & SEED_GENERATION) << 51
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fields are that wide")]
    pub(crate) fn of(serial: u64) -> Self {
        Self {
            number: serial as u32,
            index: (serial >> 32) as u32 & SEED_INDEX,
            resource: (serial >> 46) as u8 & 0xf,
            scheduler: serial >> 50 & 1 == 1,
            generation: (serial >> 51) as u32 & SEED_GENERATION,
        }
    }

    /// Whose tree it is to stand in.
    pub(crate) fn resource(self) -> Result<Resource, Refusal> {
        Resource::new(self.resource).ok_or_else(Refusal::gone)
    }

    /// The parent, if it still lives.
    pub(super) fn parent(self, tree: &Tree) -> Option<NodeId> {
        tree.at(self.index)
            .map(|n| n.id)
            .filter(|id| id.generation & SEED_GENERATION == self.generation)
    }
}

/// In the handle of an open file: root opened it. No request's number comes so far, nor the handle
/// of a fresh inode. It is the kernel's to keep, so that another worker knows it.
pub const OF_ROOT: u64 = 1 << 63;

/// The handle of an open file of a fresh inode that has become `id`. The kernel goes on to know the
/// inode by its fresh number until somebody asks for its attributes, so its programs read the node
/// off the handle (`bpf/fresh.h`). `which` tells the open files of the node apart; those that keep
/// nothing are all 0.
///
/// Bits, from below: index 14, generation 32, which 16, one; the highest is 0. Other handles are
/// numbers of requests, which do not come so far.
pub fn handle(id: NodeId, which: u16) -> u64 {
    u64::from(id.index & SEED_INDEX)
        | u64::from(id.generation) << 14
        | u64::from(which) << 46
        | 1 << 62
}

#[cfg(test)]
mod tests {
    use reserv_namespace::{FileKind, Ino, Object};

    use super::*;

    #[test]
    fn a_seed_survives_its_serial() {
        for seed in [
            Seed {
                resource: 15,
                scheduler: true,
                index: SEED_INDEX,
                generation: 0x1f,
                number: u32::MAX,
            },
            Seed { resource: 0, scheduler: false, index: 0, generation: 1, number: 0 },
        ] {
            assert_eq!(Seed::of(seed.serial()), seed);
            let ino = Ino::fresh(seed.serial());
            assert_eq!(
                ino.object(),
                Some(Object::Fresh(seed.serial())),
                "it fits into an inode number"
            );
        }
    }

    /// By the formula of `bpf/fresh.h`.
    #[test]
    fn a_handle_and_a_fresh_inode_say_whose_share_it_is() {
        let id = NodeId { index: SEED_INDEX, generation: u32::MAX };
        for (id, which) in [(id, 0), (id, u16::MAX), (NodeId { index: 5, generation: 1 }, 7)] {
            for resource in Resource::all() {
                let seed = Seed {
                    resource: resource.number(),
                    scheduler: true,
                    index: 1,
                    generation: 1,
                    number: 9,
                };
                let (fresh, handle) = (Ino::fresh(seed.serial()).0, handle(id, which));
                assert_eq!((fresh >> 56, handle >> 62), (63, 1));
                let area = (fresh >> 46 & 0xf) + 1;
                let share =
                    area << 56 | 16 << 48 | (handle >> 14 & 0xffff_ffff) << 16 | (handle & 0x3fff);
                assert_eq!(share, Ino::of_node(resource, id, FileKind::Share).0);
            }
        }
    }
}
