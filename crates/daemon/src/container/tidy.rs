// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers are looked after by a thread of their own: what a dead worker began has its end, what
//! a container should own and does not is made, and what nothing refers to is released.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reserv_model::{
    AccessChange, AccessEntry, Caller, Container, ContainerId, NodeId, NodeRef, Request, Right,
    Verb,
};
use reserv_namespace::Resource;

use super::bind::bound_in;
use super::book::Doing;
use super::{By, Room, cpu_key, key};
use crate::core::slot::Slot;
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::sync::lock;

/// How often it is looked.
const POLL: Duration = Duration::from_millis(100);
/// What was released by nobody who tells is looked for so often.
const RELEASE_EVERY: Duration = Duration::from_millis(500);

/// What was looked at when.
#[derive(Default)]
pub(super) struct Tidied {
    /// A tree's last edit, and the last change of containers.
    trees: BTreeMap<Resource, (u64, u64)>,
    /// Of releases.
    at: Option<Instant>,
}

/// What a node has from the CPU's, when it comes to another tree: root's entries.
fn of_root(entries: &[AccessEntry]) -> impl Iterator<Item = AccessChange> + '_ {
    entries.iter().filter(|entry| entry.by == 0 && entry.via.is_none()).map(|entry| AccessChange {
        verb: if entry.allow { Verb::Allow } else { Verb::Deny },
        party: entry.party,
        rights: entry.rights,
        quota: entry.quota,
        by: 0,
        via: None,
    })
}

impl Room {
    /// Something is to be looked after now.
    pub(super) fn wake(&self) {
        self.turn.wake();
    }

    /// Looks after containers for as long as the worker lives.
    pub fn look_after(&self) {
        loop {
            let woken = self.turn.sleep(POLL);
            if let Err(refusal) = self.tidy(woken) {
                tracing::debug!(%refusal, "containers are looked after later");
            }
        }
    }

    /// Containers are in the resources that have come, from now on.
    pub(super) fn follow(&self) -> Result<(), Refusal> {
        let _turning = self.begin()?;
        self.trees().iter().try_for_each(|slot| self.mend(slot))?;
        self.tell_owned();
        Ok(())
    }

    /// Once.
    fn tidy(&self, woken: bool) -> Result<(), Refusal> {
        if self.core.slots().is_empty() || (!woken && self.is_quiet()) {
            return Ok(());
        }
        let _turning = self.begin()?;
        let there = self.core.slots().values().map(|slot| key(slot)).collect();
        self.book().keep_trees(&there)?;
        self.tell_queues(); // of trees that have gone, before there are nodes of the same number
        for slot in self.trees() {
            if let Err(refusal) = self.mend(&slot) {
                tracing::warn!(%refusal, name = %slot.name, "nodes of containers are missing");
            }
        }
        self.tell_owned();
        if self.core.has_caught_up() {
            let mut tidied = lock(&self.tidied);
            let due = woken || tidied.at.is_none_or(|at| at.elapsed() >= RELEASE_EVERY);
            if due {
                tidied.at = Some(Instant::now());
            }
            drop(tidied);
            if due {
                self.release_all()?;
            }
        }
        Ok(())
    }

    /// Whether there is no container, and nothing to end.
    fn is_quiet(&self) -> bool {
        let book = self.book();
        book.intent().is_none() && book.all.iter().next().is_none()
    }

    /// Makes what is missing in a tree. What is refused is tried again when tree or containers
    /// have changed.
    fn mend(&self, slot: &Arc<Slot>) -> Result<(), Refusal> {
        let tree = key(slot);
        // The tree's number and what is missing are read at one instant: a node that somebody
        // removes later is seen the next time.
        let instant = |engine: &Engine| (engine.tree().seq(), self.book().version);
        let now = instant(&*slot.engine()?);
        if lock(&self.tidied).trees.get(&slot.resource) == Some(&now) {
            return Ok(());
        }
        let all: Vec<Container> = self.look(|all| all.walk().into_iter().cloned().collect());
        let missing = |engine: &Engine| -> Vec<&Container> {
            let lives = |node: NodeId| engine.tree().get(node).is_some_and(|node| !node.draining);
            let gone = |held: &&Container| !self.book().node(held.id, &tree).is_some_and(lives);
            all.iter().filter(gone).collect()
        };
        let engine = slot.engine()?;
        let (mut now, first) = (instant(&engine), missing(&engine));
        drop(engine);
        let ids: BTreeSet<ContainerId> = first.iter().map(|held| held.id).collect();
        lock(&self.trouble).retain(|(id, of), _| *of != tree || ids.contains(id));
        if !first.is_empty() {
            let mut refused = BTreeSet::new();
            for held in first {
                if let Err(refusal) = self.make_again(slot, held) {
                    lock(&self.trouble).insert((held.id, tree.clone()), refusal.text);
                    refused.insert(held.id);
                }
            }
            let engine = slot.engine()?;
            if !missing(&engine).iter().all(|held| refused.contains(&held.id)) {
                return Ok(());
            }
            now = instant(&engine);
        }
        lock(&self.tidied).trees.insert(slot.resource, now);
        Ok(())
    }

    /// A container's node, where there is none: with root's entries of the CPU's, and the processes
    /// that are bound there.
    fn make_again(&self, slot: &Arc<Slot>, held: &Container) -> Result<(), Refusal> {
        let parent = held.parent.unwrap_or(ContainerId::TOP);
        let Some(above) = self.book().node(parent, &key(slot)) else {
            return Err(self.no_node(parent));
        };
        let (entries, passed, bound): (Vec<AccessChange>, _, _) = if slot.resource == Resource::CPU
        {
            // Somebody has removed its node: what it denies, the others deny.
            let other = self.nodes_of(held.id).into_iter().find(|(other, node)| {
                other.resource != Resource::CPU
                    && other.engine().is_ok_and(|engine| engine.tree().get(*node).is_some())
            });
            let entries = match other {
                Some((other, node)) => {
                    let engine = other.engine()?;
                    let list = engine.tree().get(node).map(|node| of_root(&node.access).collect());
                    list.unwrap_or_default()
                }
                None => Vec::new(),
            };
            (entries, Vec::new(), Vec::new())
        } else {
            let cpu = self.book().node(held.id, &cpu_key(&self.core));
            let engine = self.core.cpu()?;
            let node = cpu.and_then(|node| engine.tree().get(node));
            let entries = node.map(|node| of_root(&node.access).collect()).unwrap_or_default();
            let passed = node.map(|node| self.passed_on(&engine, node.id)).unwrap_or_default();
            let bound = node.map(|node| bound_in(&engine, node.id)).unwrap_or_default();
            (entries, passed, bound)
        };
        let mut engine = slot.engine()?;
        let maker = Caller { uid: held.maker, ..Caller::default() };
        // The node and its list at once: nobody is let in who is denied.
        let (name, share) = (held.name.clone(), Some(held.share));
        let node = NodeRef::Child(above, name.clone());
        let (parent, kind) = (above.into(), held.holds.new_kind());
        let mut requests = vec![Request::Create { parent, name: Some(name), kind, share }];
        requests.extend(
            entries.into_iter().map(|change| Request::SetAccess { node: node.clone(), change }),
        );
        engine.check(&requests)?;
        // Whose node it is stands in another journal: who dies between the two leaves one that the
        // next worker takes away, and makes again.
        let intent = self.intend(Doing::Create, None)?;
        let made = engine.edit_made_by(&maker, &requests, Some(intent.origin()));
        let made = made.and_then(|done| done.created.first().copied().ok_or_else(Refusal::gone));
        let node = match made {
            Ok(node) => node,
            Err(refusal) => {
                drop(engine);
                return self.put_back(refusal);
            }
        };
        if let Err(refusal) = self.pass_on(slot, &mut engine, (held.id, node), &passed) {
            tracing::warn!(%refusal, name = %slot.name, "rights were not passed on");
        }
        for pid in bound {
            if let Err(refusal) = super::bind::bind_in(&mut engine, pid, node) {
                tracing::debug!(%refusal, pid, "not bound in a resource that came");
            }
        }
        drop(engine);
        if let Err(refusal) = self.book().done(None, vec![(held.id, key(slot), node)]) {
            return self.put_back(refusal);
        }
        tracing::info!(name = %slot.name, container = %self.look(|all| all.shown(held.id)), "a node was made");
        Ok(())
    }

    /// What nothing refers to: no open file of it, no thread, descriptor or list in any tree, no
    /// open file of its nodes.
    fn release_all(&self) -> Result<(), Refusal> {
        let open = self.book().open_ones();
        let may = |held: &&Container| held.gc && !open.contains(&held.id);
        let mut free: Vec<ContainerId> =
            self.look(|all| all.iter().filter(may).map(|held| held.id).collect());
        for slot in self.trees() {
            if free.is_empty() {
                return Ok(());
            }
            let nodes: Vec<Option<NodeId>> = free.iter().map(|id| self.node(*id, &slot)).collect();
            let known: Vec<NodeId> = nodes.iter().flatten().copied().collect();
            let engine = slot.engine()?;
            let refs = engine.plane().refs(&known)?;
            let used: BTreeSet<NodeId> = known
                .iter()
                .zip(refs)
                .filter(|(node, refs)| refs.sum() > 0 || engine.has_open_files(**node))
                .map(|(node, _)| *node)
                .collect();
            drop(engine);
            let mut nodes = nodes.into_iter();
            free.retain(|id| {
                let is_used = nodes.next().flatten().is_some_and(|node| used.contains(&node));
                if is_used {
                    self.book().used(*id);
                }
                !is_used
            });
        }
        for id in free {
            // It may be open again since it was looked at.
            let stays = {
                let book = self.book();
                book.is_open(id) || book.is_unused(id)
            };
            if stays {
                continue;
            }
            if let Err(refusal) = self.release(id) {
                tracing::debug!(%refusal, "a container is released later");
            }
        }
        Ok(())
    }

    /// Its children have no parent then, if who made it could have taken them out himself.
    fn release(&self, id: ContainerId) -> Result<(), Refusal> {
        let Some(held) = self.look(|all| all.get(id).cloned()) else { return Ok(()) };
        if !held.children.is_empty() {
            self.may_have_no_parent(held.maker)?;
        }
        for child in held.children.values() {
            let edit = self.look(|all| all.plan_orphan(*child))?;
            self.carry_out_move(By::Nobody, edit, None, true)?;
        }
        self.carry_out_removal(By::Nobody, id, None)
    }

    fn may_have_no_parent(&self, uid: u32) -> Result<(), Refusal> {
        let who = Caller { uid, ..Caller::default() };
        self.trees().iter().try_for_each(|slot| {
            Ok(slot.engine()?.tree().require(&who, NodeId::ROOT, Right::Create)?)
        })
    }
}
