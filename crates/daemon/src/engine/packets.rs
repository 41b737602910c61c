// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link's plane is told the rules about packets by the queues that their paths lead to now, and
//! again when an edit leads one elsewhere. They stand with the other rules in the CPU's journal;
//! here is the part that names queues of this tree.

use reserv_model::{NodePath, PacketRule, Packets, ResourceKind, TuneKey};
use reserv_plane::PlaneError;

use super::Engine;

/// What a link's plane was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    rules: Vec<(Packets, NodePath)>,
    /// `None`: nobody knows.
    told: Option<Vec<PacketRule>>,
}

impl Engine {
    /// The rules about packets that name queues of this tree, in order, instead of those before.
    /// Refused, those before stand.
    pub fn set_packet_rules(&mut self, rules: Vec<(Packets, NodePath)>) -> Result<(), PlaneError> {
        let before = std::mem::replace(&mut self.packets.rules, rules);
        let told = self.tell_packets();
        if told.is_err() {
            self.packets.rules = before;
        }
        told
    }

    /// Where the paths lead now. A rule whose queue is not there is no rule.
    fn tell_packets(&mut self) -> Result<(), PlaneError> {
        let there = |(packets, path): &(Packets, NodePath)| {
            let queue = self.tree.resolve(path).ok()?;
            self.tree.get(queue).filter(|n| n.kind.is_queue())?;
            Some(PacketRule { packets: *packets, queue })
        };
        let rules: Vec<PacketRule> = self.packets.rules.iter().filter_map(there).collect();
        if self.packets.told.as_ref() == Some(&rules) {
            return Ok(());
        }
        self.packets.told = None;
        self.plane.set_packet_rules(&rules)?;
        self.packets.told = Some(rules);
        Ok(())
    }

    /// What each queue lets in, told again to a plane that an earlier daemon left: it may have died
    /// between telling a rate and the edit that has it.
    pub(super) fn tell_entries(&mut self) {
        if self.tree.resource() != ResourceKind::Link {
            return;
        }
        let queues = self.tree.iter().filter(|node| node.kind.is_queue());
        let all: Vec<_> = queues
            .flat_map(|node| {
                [TuneKey::Receive, TuneKey::ReceiveBurst]
                    .map(|key| (node.id, key, node.tune.get(&key).copied().unwrap_or_default()))
            })
            .collect();
        if let Err(error) = self.plane.set_entries(&all) {
            let name = &self.tree.root().name;
            tracing::error!(%error, resource = %name, "what queues let in could not be told");
        }
    }

    /// After an edit, which may have led paths elsewhere.
    pub(super) fn tell_packets_again(&mut self) {
        if !self.packets.rules.is_empty()
            && let Err(error) = self.tell_packets()
        {
            let name = &self.tree.root().name;
            tracing::error!(%error, resource = %name, "the rules about packets could not be told after an edit");
        }
    }
}
