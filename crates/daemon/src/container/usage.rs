// SPDX-License-Identifier: MIT OR Apache-2.0
//! What containers have used: what the trees count for their nodes. A node counts what was served
//! through it, by children that are no more too. Where a resource goes, its counters are kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reserv_model::{ContainerId, Holds, ResourceKind, Source};
use reserv_namespace::{Counted, Used};

use super::Room;
use crate::core::slot::Slot;
use crate::refusal::Refusal;

/// How long all resources together are waited for.
const USAGE_MAX: Duration = Duration::from_secs(1);

impl Room {
    /// By resource; of one that does not answer why. Of one that is gone what was used of it
    /// before.
    pub fn usage(&self, id: ContainerId) -> Result<Vec<Used>, Refusal> {
        let holds = self.look(|all| all.node(id).map(|held| held.holds))?;
        let amount =
            |subtree| Counted { own: if holds == Holds::Threads { subtree } else { 0 }, subtree };
        let until = Instant::now() + USAGE_MAX;
        let slots = self.core.slots();
        let shown: Vec<&Arc<Slot>> = slots.values().filter(|slot| slot.is_shown()).collect();
        let ask = |slot: &Arc<Slot>| {
            let node = self.node(id, slot);
            slot.begin(USAGE_MAX, move |held| {
                let now = node.filter(|node| held.engine.tree().get(*node).is_some());
                let now = now.map(|node| held.engine.plane().sample_one(node)).transpose()?;
                Ok::<u64, Refusal>(now.map_or(0, |sample| sample.service_ns))
            })
        };
        let asked: Vec<_> = shown.iter().map(|slot| ask(slot)).collect();
        let mut all: Vec<Used> = Vec::new();
        for (slot, asked) in shown.into_iter().zip(asked) {
            let left = until.saturating_duration_since(Instant::now());
            let now = asked.and_then(|asked| asked.answer(left)).flatten();
            let carried = self.book().carried(id, &slot.name);
            all.push(Used {
                resource: slot.name.clone(),
                kind: slot.on.as_ref().map_or(ResourceKind::Cpu, Source::kind),
                amount: now.map(|now| amount(carried + now)).map_err(|refusal| refusal.text),
            });
        }
        let gone: Vec<_> = self.book().carried_of(id).cloned().collect();
        for resource in gone {
            if all.iter().all(|used| used.resource != resource) {
                let amount = Ok(amount(self.book().carried(id, &resource)));
                // Only the CPU is counted in ns, and it does not go alone.
                all.push(Used { resource, kind: ResourceKind::Link, amount });
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
