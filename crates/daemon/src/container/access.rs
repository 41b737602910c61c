// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may do what with a container: a change is made in the access lists of all its nodes, or in
//! none. The list of its node of the CPU is the one that nodes in resources which come later get
//! (`tidy.rs`). A resource that does not answer refuses the change: nobody keeps a right in one
//! tree that was taken from him in the others.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reserv_model::{
    AccessChange, AccessEntry, Caller, ContainerConfig, ContainerId, Containers, Name, NodeId,
    NodePath, Request, Right, Verb, difference_of_access, listed_access,
};

use super::book::{Doing, Lists, TreeKey};
use super::{Asked, Room, key, of_tree};
use crate::core::slot::Slot;
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::rights::fill_in_start;

/// How long all resources together are waited for when lists are read.
const READ_MAX: Duration = Duration::from_secs(1);

/// Lists that a change has changed, by tree.
pub(super) type Before = Vec<(TreeKey, NodeId, Lists)>;

/// An entry of the CPU's tree that somebody passed on.
pub(super) struct Passed {
    entry: AccessEntry,
    /// Whose node has the entry that it hangs on.
    owner: ContainerId,
    via: AccessEntry,
}

impl Room {
    /// Gives a right or takes it back at every node of a container. `fall`: what loses the right to
    /// its queue by it goes to q0 at once.
    pub fn set_access(
        &self,
        asking: &[Caller],
        id: ContainerId,
        (mut change, fall): (AccessChange, bool),
        asked: Asked,
    ) -> Result<(), Refusal> {
        fill_in_start(&mut change)?;
        let before = if fall {
            let nodes = self.nodes_of(id).into_iter().map(|(slot, node)| (slot.resource, node));
            Some(self.core.before_fall(&nodes.collect::<Vec<_>>(), &change.party)?)
        } else {
            None
        };
        let turning = self.begin()?;
        // Where one tree has nothing to take back, others may.
        let nothing: RefCell<Option<Refusal>> = RefCell::default();
        let in_tree = |slot: &Slot, engine: &Engine, node: NodeId| {
            if fall {
                // Whoever has lost his right would be in q0.
                asking
                    .iter()
                    .try_for_each(|by| engine.tree().require(by, NodeId::Q0, Right::Use))?;
            }
            let request = engine.access_asked(asking, node, &change)?;
            match engine.check(std::slice::from_ref(&request)) {
                Err(refusal) if change.verb == Verb::Remove && refusal.errno == libc::ENOENT => {
                    *nothing.borrow_mut() = Some(of_tree(slot, refusal));
                    Ok(Vec::new())
                }
                done => done.map(|_| vec![request]),
            }
        };
        let changed = self.carry_out_access(id, in_tree, Some(asked))?;
        if let (true, Some(refusal)) = (changed.is_empty(), nothing.into_inner()) {
            return Err(refusal);
        }
        drop(turning);
        if let Some(before) = before {
            // All of it is tried, also where the list said so before: what falls in one tree does
            // not wait for another.
            let nodes = self.nodes_of(id);
            let fallen = nodes
                .iter()
                .map(|(slot, node)| self.core.fall(slot.resource, *node, before.clone()));
            return fallen.fold(Ok(()), Result::and);
        }
        Ok(())
    }

    /// Asks every tree for what is to be done at a container's node, then does it everywhere. Answers
    /// the lists that it has changed.
    fn carry_out_access(
        &self,
        id: ContainerId,
        asks: impl Fn(&Slot, &Engine, NodeId) -> Result<Vec<Request>, Refusal>,
        asked: Option<Asked>,
    ) -> Result<Before, Refusal> {
        self.look(|all| all.node(id).map(drop))?;
        let mut before = Before::new();
        let mut there = Vec::new();
        let mut nodes = 0;
        for slot in self.core.slots().values().filter(|slot| slot.is_shown()) {
            let Some(node) = self.node(id, slot) else { continue };
            let look = |engine: &Engine| {
                if engine.tree().get(node).is_none() {
                    return Ok((false, Vec::new(), Vec::new()));
                }
                let requests = asks(slot, engine, node)?;
                engine.check(&requests)?;
                let lists = engine.lists_changed(&requests)?;
                Ok((true, requests, lists))
            };
            let found = slot.engine().and_then(|engine| look(&engine));
            let (lives, requests, lists) = found.map_err(|r| of_tree(slot, r))?;
            nodes += usize::from(lives);
            if !lists.is_empty() {
                before.push((key(slot), node, lists));
                there.push((slot.clone(), requests));
            }
        }
        if nodes == 0 {
            let text = format!("{} has no node yet", self.look(|all| all.shown(id)));
            return Err(Refusal::new(libc::EAGAIN, text));
        }
        if before.is_empty() {
            return Ok(before);
        }
        let intent = self.intend(Doing::Access { before: before.clone() }, asked)?;
        let takes_back = |request: &Request| match request {
            Request::SetAccess { change, .. } => change.verb == Verb::Remove,
            _ => false,
        };
        let done = there.iter().try_for_each(|(slot, requests)| {
            let edit = slot
                .engine()
                .and_then(|mut engine| engine.edit(requests, Some(intent.origin())).map(drop));
            match edit {
                // Somebody has taken it back since it was looked at.
                Err(r) if r.errno == libc::ENOENT && requests.iter().all(takes_back) => Ok(()),
                done => done.map_err(|r| of_tree(slot, r)),
            }
        });
        match done.and_then(|()| self.book().done(None, Vec::new())) {
            Ok(()) => Ok(before),
            Err(refusal) => self.put_back(refusal),
        }
    }

    /// Root's entries at all nodes as a configuration wants them.
    pub(super) fn set_lists(
        &self,
        id: ContainerId,
        wanted: &[AccessChange],
    ) -> Result<Before, Refusal> {
        let _turning = self.begin()?;
        let in_tree = |_: &Slot, engine: &Engine, node: NodeId| {
            let now = &engine.tree().node(node)?.access;
            Ok(difference_of_access(now, wanted, &node.into()))
        };
        self.carry_out_access(id, in_tree, None)
    }

    /// Undoes such a change, as far as nobody has changed the same since.
    pub(super) fn put_back_lists(&self, id: ContainerId, before: &Before) -> Result<(), Refusal> {
        let _turning = self.begin()?;
        let in_tree = |slot: &Slot, _: &Engine, _: NodeId| {
            let of = before.iter().filter(|(tree, ..)| *tree == key(slot));
            Ok(of.map(|(.., lists)| Request::PutBackAccess { lists: lists.clone() }).collect())
        };
        self.carry_out_access(id, in_tree, None).map(drop)
    }

    /// What a configuration changes in lists, in words.
    pub(super) fn difference_of_lists(
        &self,
        wanted: &BTreeMap<NodePath, ContainerConfig>,
    ) -> Result<Vec<String>, Refusal> {
        let mut words = Vec::new();
        for (path, wanted) in wanted {
            let Some(wanted) = &wanted.access else { continue };
            let Ok(id) = self.look(|all| all.resolve(path)) else { continue };
            let list = |all: &[AccessChange]| {
                all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            };
            for (slot, node) in self.nodes_of(id) {
                let engine = slot.engine().map_err(|r| of_tree(&slot, r))?;
                let Some(there) = engine.tree().get(node) else { continue };
                if !difference_of_access(&there.access, wanted, &node.into()).is_empty() {
                    let was = list(&listed_access(&there.access));
                    let new = list(wanted);
                    words.push(format!("container {path}: access [{new}] instead of [{was}]"));
                    break;
                }
            }
        }
        Ok(words)
    }

    /// All of them as a configuration has them.
    pub fn to_config(&self) -> Result<BTreeMap<NodePath, ContainerConfig>, Refusal> {
        let mut all = self.look(Containers::to_config);
        if all.is_empty() {
            return Ok(all);
        }
        // Without its rights a container would be open to whom they deny.
        let engine = self.core.cpu()?;
        for (path, held) in &mut all {
            let node = self.look(|all| all.resolve(path)).ok();
            let node = node.and_then(|id| self.book().node(id, &super::cpu_key(&self.core)));
            let list = node.and_then(|node| engine.tree().get(node));
            let list = list.map(|node| listed_access(&node.access)).unwrap_or_default();
            held.access = (!list.is_empty()).then_some(list);
        }
        Ok(all)
    }

    /// The lists of its nodes as far as `reader` may read those: a line for each entry, with the
    /// resources that have it if not all do.
    pub fn access(&self, id: ContainerId, reader: Option<&Caller>) -> Result<String, Refusal> {
        self.look(|all| all.node(id).map(drop))?;
        let until = Instant::now() + READ_MAX;
        let slots = self.core.slots();
        let ask = |slot: &Arc<Slot>| {
            let (node, reader) = (self.node(id, slot), reader.cloned());
            slot.begin(READ_MAX, move |held| {
                let tree = held.engine.tree();
                let there = tree.get(node?)?;
                let may = reader.is_none_or(|who| tree.decide(&who, there.id, Right::Read).allowed);
                may.then(|| there.access.iter().map(ToString::to_string).collect::<Vec<_>>())
            })
        };
        let shown = slots.values().filter(|slot| slot.is_shown());
        let asked: Vec<_> = shown.map(|slot| (slot.name.clone(), ask(slot))).collect();
        let mut lines: Vec<(String, Vec<Name>)> = Vec::new();
        let (mut trees, mut late) = (0, String::new());
        for (name, asked) in asked {
            let left = until.saturating_duration_since(Instant::now());
            match asked.and_then(|asked| asked.answer(left)) {
                Ok(None) => {}
                Ok(Some(list)) => {
                    trees += 1;
                    let mut told = BTreeSet::new();
                    for text in list {
                        if !told.insert(text.clone()) {
                            continue;
                        }
                        match lines.iter_mut().find(|(known, _)| *known == text) {
                            Some((_, of)) => of.push(name.clone()),
                            None => lines.push((text, vec![name.clone()])),
                        }
                    }
                }
                Err(refusal) => {
                    let why = refusal.text.replace(char::is_control, " ");
                    let _ = writeln!(late, "{name} - {why}");
                }
            }
        }
        let mut out = String::new();
        for (text, of) in lines {
            let _ = if of.len() == trees {
                writeln!(out, "{text}")
            } else {
                let of: Vec<&str> = of.iter().map(Name::as_str).collect();
                writeln!(out, "{text} in {}", of.join(" "))
            };
        }
        Ok(out + &late)
    }

    /// Entries of a container's node of the CPU that somebody passed on, with what they hang on.
    pub(super) fn passed_on(&self, engine: &Engine, node: NodeId) -> Vec<Passed> {
        let (tree, cpu) = (engine.tree(), super::cpu_key(&self.core));
        let entries = tree.get(node).into_iter().flat_map(|node| &node.access);
        let passed = entries.filter(|entry| entry.allow).filter_map(|entry| {
            let via = entry.via?;
            let above = tree
                .up(node)
                .find_map(|at| at.access.iter().find(|e| e.id == via).map(|e| (at.id, e.clone())));
            let (at, via) = above?;
            Some(Passed { entry: entry.clone(), owner: self.book().owner(&cpu, at)?, via })
        });
        passed.collect()
    }

    /// The same at a node of another tree, as far as what they hang on is there too.
    pub(super) fn pass_on(
        &self,
        slot: &Arc<Slot>,
        engine: &mut Engine,
        (id, node): (ContainerId, NodeId),
        passed: &[Passed],
    ) -> Result<(), Refusal> {
        for Passed { entry, owner, via } in passed {
            let at = if *owner == id { Some(node) } else { self.book().node(*owner, &key(slot)) };
            let there = at.and_then(|at| engine.tree().get(at));
            let same = |e: &&AccessEntry| e.allow && e.party == via.party && e.by == via.by;
            let Some(via) = there.and_then(|there| there.access.iter().find(same)) else {
                continue;
            };
            let change = AccessChange {
                verb: Verb::Allow,
                party: entry.party,
                rights: entry.rights,
                quota: entry.quota,
                by: entry.by,
                via: Some(via.id),
            };
            engine.edit(&[Request::SetAccess { node: node.into(), change }], None)?;
        }
        Ok(())
    }
}
