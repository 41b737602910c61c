// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link's plane is told the rules about packets by the queues that their paths lead to now, and
//! again when an edit leads one elsewhere. They stand with the other rules in the CPU's journal;
//! here is the part that names queues of this tree.

use reserv_model::{
    ArrivalRule, ArrivalSample, NodeId, PacketRule, PacketRules, ResourceKind, RuleOfLink, TuneKey,
};
use reserv_plane::PlaneError;

use super::Engine;

/// What a link's plane was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    rules: Vec<RuleOfLink>,
    /// `None`: nobody knows.
    told: Option<PacketRules>,
}

impl Engine {
    /// The rules about packets that name queues of this tree, in order, instead of those before.
    /// Refused, those before stand.
    pub fn set_packet_rules(&mut self, rules: Vec<RuleOfLink>) -> Result<(), PlaneError> {
        let before = std::mem::replace(&mut self.packets.rules, rules);
        let told = self.tell_packets();
        if told.is_err() {
            self.packets.rules = before;
        }
        told
    }

    /// The queue that a rule names, if it names one; `Err`: it is not there.
    fn target(&self, rule: &RuleOfLink) -> Result<Option<NodeId>, ()> {
        let Some(path) = &rule.queue else { return Ok(None) };
        let queue = self.tree.resolve(path).map_err(drop)?;
        match self.tree.get(queue) {
            Some(node) if node.kind.is_queue() => Ok(Some(queue)),
            _ => Err(()),
        }
    }

    /// What has come in by each rule about who comes, in their order; `None`: it is no rule now.
    pub fn arrivals(&self) -> Vec<Option<ArrivalSample>> {
        let mut counted = self.plane.arrivals().into_iter();
        let rules = self.packets.rules.iter().filter(|rule| rule.arrival.is_some());
        rules.map(|rule| self.target(rule).ok().and_then(|_| counted.next())).collect()
    }

    /// Where the paths lead now. A rule whose queue is not there is no rule.
    fn tell_packets(&mut self) -> Result<(), PlaneError> {
        let mut rules = PacketRules::default();
        for (rule, queue) in self.packets.rules.iter().map(|rule| (rule, self.target(rule))) {
            match (rule.arrival, queue) {
                (Some(arrival), Ok(queue)) => {
                    let packets = rule.packets;
                    rules.arrivals.push(ArrivalRule { packets, arrival, queue });
                }
                (None, Ok(Some(queue))) => {
                    rules.packets.push(PacketRule { packets: rule.packets, queue });
                }
                _ => {}
            }
        }
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
