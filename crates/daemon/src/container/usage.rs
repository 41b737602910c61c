// SPDX-License-Identifier: MIT OR Apache-2.0
//! What containers have used: what the trees count for their nodes. A node counts what was served
//! through it, by children that are no more too. Where a resource goes, its counters are kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reserv_model::{Caller, ContainerId, Holds, Name, NodeId, NodePath, ResourceKind, Right};
use reserv_namespace::{Counted, Told, Used, UsedBy, render_usage, render_usage_of_all};

use super::{Room, cpu_key, key};
use crate::core::slot::Slot;
use crate::refusal::Refusal;

/// How long all resources together are waited for.
const USAGE_MAX: Duration = Duration::from_secs(1);

/// Threads are bound to those that hold threads, and to no other.
const fn counted(holds: Holds, subtree: u64) -> Counted {
    let own = if matches!(holds, Holds::Threads) { subtree } else { 0 };
    Counted { own, subtree }
}

impl Room {
    /// Of all containers that `reader` may look at, in one text: each resource is asked once.
    pub fn usage_of_all(&self, reader: Option<&Caller>) -> Result<String, Refusal> {
        let all = self.readable_ones(reader)?;
        let until = Instant::now() + USAGE_MAX;
        let slots = self.core.slots();
        let shown: Vec<&Arc<Slot>> = slots.values().filter(|slot| slot.is_shown()).collect();
        let ask = |slot: &Arc<Slot>| {
            let book = self.book();
            let tree = key(slot);
            let nodes: Vec<Option<NodeId>> =
                all.iter().map(|(id, ..)| book.node(*id, &tree)).collect();
            drop(book);
            slot.begin(USAGE_MAX, move |held| {
                let (_, survey) = held.engine.survey()?;
                // A node that is gone was served nothing.
                let service = |node: &Option<NodeId>| node.map_or(0, |node| survey.service(node));
                Ok::<Vec<u64>, Refusal>(nodes.iter().map(service).collect())
            })
        };
        let asked: Vec<_> = shown.iter().map(|slot| ask(slot)).collect();
        let memory = self.memory();
        let mut used: Vec<UsedBy> = all
            .iter()
            .map(|(id, holds, path)| UsedBy {
                id: *id,
                holds: *holds,
                path: path.clone(),
                used: Vec::new(),
                memory: memory.of(*id),
            })
            .collect();
        let mut told = Vec::new();
        for (slot, asked) in shown.into_iter().zip(asked) {
            let left = until.saturating_duration_since(Instant::now());
            let answer = asked.and_then(|asked| asked.answer(left)).flatten();
            let kind = Some(slot.kind());
            let resource = slot.name.clone();
            let mut late = None;
            match answer {
                Ok(now) => {
                    let book = self.book();
                    for (one, now) in used.iter_mut().zip(now) {
                        let subtree = book.carried(one.id, &resource) + now;
                        one.used.push((resource.clone(), counted(one.holds, subtree)));
                    }
                }
                Err(refusal) => late = Some(refusal.text),
            }
            told.push(Told { resource, kind, late });
        }
        let book = self.book();
        let mut gone: Vec<Name> = Vec::new();
        for one in &mut used {
            for resource in book.carried_of(one.id) {
                if told.iter().all(|there| there.resource != *resource) {
                    let subtree = book.carried(one.id, resource);
                    one.used.push((resource.clone(), counted(one.holds, subtree)));
                    if !gone.contains(resource) {
                        gone.push(resource.clone());
                    }
                }
            }
        }
        drop(book);
        told.extend(gone.into_iter().map(|resource| Told { resource, kind: None, late: None }));
        Ok(render_usage_of_all(&told, &used, memory.late.as_deref()))
    }

    /// Those whose node of the CPU he may read, by path.
    fn readable_ones(
        &self,
        reader: Option<&Caller>,
    ) -> Result<Vec<(ContainerId, Holds, NodePath)>, Refusal> {
        let mut all: Vec<(ContainerId, Holds, NodePath)> = self.look(|all| {
            let one =
                |held: &reserv_model::Container| Some((held.id, held.holds, all.path(held.id)?));
            all.walk().into_iter().filter_map(one).collect()
        });
        all.sort_by(|a, b| a.2.cmp(&b.2));
        if let Some(who) = reader {
            let cpu = cpu_key(&self.core);
            let nodes: Vec<Option<NodeId>> = {
                let book = self.book();
                all.iter().map(|(id, ..)| book.node(*id, &cpu)).collect()
            };
            let engine = self.core.cpu()?;
            let may = |node: &Option<NodeId>| {
                node.is_some_and(|node| engine.tree().decide(who, node, Right::Read).allowed)
            };
            let mut may = nodes.iter().map(may);
            all.retain(|_| may.next().unwrap_or(false));
        }
        Ok(all)
    }
}

impl Room {
    /// What it has used, in one text.
    pub fn usage(&self, id: ContainerId) -> Result<String, Refusal> {
        let used = self.used_by(id)?;
        Ok(render_usage(&used, self.memory().of(id)))
    }

    /// By resource; of one that does not answer why. Of one that is gone what was used of it
    /// before.
    fn used_by(&self, id: ContainerId) -> Result<Vec<Used>, Refusal> {
        let holds = self.look(|all| all.node(id).map(|held| held.holds))?;
        let amount = |subtree| counted(holds, subtree);
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
                kind: slot.kind(),
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
