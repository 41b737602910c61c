// SPDX-License-Identifier: MIT OR Apache-2.0
//! What containers have used: what the trees count for their nodes. A node counts what was served
//! through it, by children that are no more too. Where a resource goes, its counters are kept.

use std::sync::Arc;

use reserv_model::{ContainerId, Holds, ResourceKind};
use reserv_namespace::Used;

use super::{Room, key};
use crate::core::slot::Slot;
use crate::refusal::Refusal;

impl Room {
    /// By resource. Of one that is gone what was used of it before.
    pub fn usage(&self, id: ContainerId) -> Result<Vec<Used>, Refusal> {
        let holds = self.look(|all| all.node(id).map(|held| held.holds))?;
        let mut all: Vec<Used> = Vec::new();
        for slot in self.core.slots().values().filter(|slot| slot.is_shown()) {
            let (node, carried) = {
                let book = self.book();
                (book.node(id, &key(slot)), book.carried(id, &slot.name))
            };
            let engine = slot.engine()?;
            let now = node.filter(|node| engine.tree().get(*node).is_some());
            let now = now.map(|node| engine.plane().sample_one(node)).transpose()?;
            let subtree = carried + now.map_or(0, |sample| sample.service_ns);
            let own = if holds == Holds::Threads { subtree } else { 0 };
            all.push(Used { resource: slot.name.clone(), kind: engine.kind(), own, subtree });
        }
        let gone: Vec<_> = self.book().carried_of(id).cloned().collect();
        for resource in gone {
            if all.iter().all(|used| used.resource != resource) {
                let subtree = self.book().carried(id, &resource);
                let own = if holds == Holds::Threads { subtree } else { 0 };
                // Only the CPU is counted in ns, and it does not go alone.
                all.push(Used { resource, kind: ResourceKind::Link, own, subtree });
            }
        }
        Ok(all)
    }

    /// A resource goes, and its counters with it.
    pub(super) fn carry(&self, slot: &Arc<Slot>) {
        let ids: Vec<ContainerId> = self.look(|all| all.iter().map(|held| held.id).collect());
        if ids.is_empty() {
            return;
        }
        let Ok(engine) = slot.engine() else { return };
        let used = |id: &ContainerId| {
            let node = self.node(*id, slot)?;
            let sample = engine.plane().sample_one(node).ok()?;
            (sample.service_ns > 0).then_some((*id, sample.service_ns))
        };
        let used: Vec<_> = ids.iter().filter_map(used).collect();
        drop(engine);
        self.book().carry(slot.name.clone(), used);
    }
}
