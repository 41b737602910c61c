// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers as a configuration wants them.

use std::collections::BTreeMap;

use reserv_model::{
    Caller, ContainerConfig, ContainerEdit, ContainerId, NewContainer, NodePath, NodeRef, Request,
    Share, Tree, difference_of_access,
};

use super::access::Before;
use super::{Asked, Room, key, random};
use crate::core::also::{Also, Of, Undoing};
use crate::core::slot::Slot;
use crate::engine::Origin;
use crate::refusal::Refusal;

/// What undoes one change.
enum Undo {
    Remove(ContainerId),
    Share(ContainerId, Share),
    Gc(ContainerId, bool),
    Access(ContainerId, Before),
}

/// A change that no request of a file asks for.
fn asked() -> Asked {
    Asked { unique: Origin::chosen(random()), fresh: None }
}

type Wanted = BTreeMap<NodePath, ContainerConfig>;

/// A configuration's containers, as a part of its `up`.
pub struct Part<'r>(&'r Room, &'r Wanted);

impl Also for Part<'_> {
    fn words(&self) -> Result<Vec<String>, Refusal> {
        let mut words = self.0.look(|all| all.difference(self.1))?;
        words.extend(self.0.difference_of_lists(self.1)?);
        Ok(words)
    }

    /// Where a container's parent has no node, its own is made when the parent's is (`tidy.rs`).
    fn requests(&self, slot: Option<&Slot>, tree: &Tree) -> Result<Vec<Of>, Refusal> {
        let mut all = self.0.look(Clone::clone);
        let node = |id| slot.and_then(|slot| self.0.book().node(id, &key(slot)));
        let mut made: BTreeMap<ContainerId, NodePath> = BTreeMap::new();
        let mut of = Vec::new();
        for (path, wanted) in self.1 {
            for edit in all.plan_config(path, wanted)? {
                match &edit {
                    ContainerEdit::Create { id, parent, name, holds, share, .. } => {
                        let there = match parent {
                            &ContainerId::TOP => Some(NodePath::default()),
                            parent => made
                                .get(parent)
                                .cloned()
                                .or_else(|| node(*parent).and_then(|at| tree.path(at))),
                        };
                        if let Some(above) = there {
                            made.insert(*id, above.join(name.clone()));
                            let (name, kind) = (Some(name.clone()), holds.new_kind());
                            let parent = NodeRef::Path(above);
                            let share = Some(*share);
                            of.push((path.clone(), Request::Create { parent, name, kind, share }));
                        }
                    }
                    ContainerEdit::Share { id, share } => {
                        if let Some(there) = node(*id).and_then(|at| tree.get(at)) {
                            let share = Share { minimum: there.share().minimum, ..*share };
                            of.push((
                                path.clone(),
                                Request::SetShare { node: there.id.into(), share },
                            ));
                        }
                    }
                    _ => {}
                }
                all.apply(&edit)?;
            }
            let Some(access) = &wanted.access else { continue };
            let id = all.resolve(path)?;
            let requests = if let Some(there) = made.get(&id) {
                difference_of_access(&[], access, &NodeRef::Path(there.clone()))
            } else if let Some(there) = node(id).and_then(|at| tree.get(at)) {
                difference_of_access(&there.access, access, &there.id.into())
            } else {
                continue;
            };
            of.extend(requests.into_iter().map(|request| (path.clone(), request)));
        }
        Ok(of)
    }

    fn carry_out(&self) -> Result<Undoing<'_>, Refusal> {
        let done = self.0.apply(self.1)?;
        Ok(Box::new(|refusal| self.0.undo(done, refusal)))
    }
}

impl Room {
    /// A configuration's containers.
    pub const fn part<'r>(&'r self, wanted: &'r Wanted) -> Part<'r> {
        Part(self, wanted)
    }

    /// Makes and changes them, all or none. Those that are not named stay.
    fn apply(&self, wanted: &Wanted) -> Result<Vec<Undo>, Refusal> {
        if !wanted.is_empty() {
            self.follow()?;
        }
        let mut done = Vec::new();
        for (path, wanted) in wanted {
            if let Err(refusal) = self.apply_one(path, wanted, &mut done) {
                let text = format!("container {path}: {}", refusal.text);
                return Err(self.undo(done, Refusal { text, ..refusal }));
            }
        }
        Ok(done)
    }

    fn apply_one(
        &self,
        path: &NodePath,
        wanted: &ContainerConfig,
        done: &mut Vec<Undo>,
    ) -> Result<(), Refusal> {
        let root = [Caller::default()];
        for edit in self.look(|all| all.plan_config(path, wanted))? {
            done.push(match edit {
                ContainerEdit::Create { parent, name, holds, share, gc, maker, .. } => {
                    let new = NewContainer { name: Some(name), holds, share, gc: false, maker };
                    let id = self.create(&root, parent, new, (asked(), None))?;
                    done.push(Undo::Remove(id));
                    if gc {
                        self.collect_when_used(id)?;
                    }
                    continue;
                }
                ContainerEdit::Share { id, share } => {
                    let was = self.look(|all| all.node(id).map(|held| held.share))?;
                    self.set_share(&root, id, share, asked())?;
                    Undo::Share(id, was)
                }
                ContainerEdit::Gc { id, gc: true } => {
                    self.collect_when_used(id)?;
                    Undo::Gc(id, false)
                }
                ContainerEdit::Gc { id, gc: false } => {
                    self.set_gc(&root, id, false, asked())?;
                    Undo::Gc(id, true)
                }
                // No configuration asks for them.
                ContainerEdit::Move { .. } | ContainerEdit::Delete { .. } => continue,
            });
        }
        if let Some(access) = &wanted.access {
            let id = self.look(|all| all.resolve(path))?;
            done.push(Undo::Access(id, self.set_lists(id, access)?));
        }
        Ok(())
    }

    /// It is released when nothing refers to it any more: not before something has, which may be
    /// its children that are made next.
    fn collect_when_used(&self, id: ContainerId) -> Result<(), Refusal> {
        self.book().keep_unused(id)?;
        self.set_gc(&[Caller::default()], id, true, asked())
    }

    fn undo(&self, done: Vec<Undo>, refusal: Refusal) -> Refusal {
        let root = [Caller::default()];
        let mut left = 0;
        for undo in done.into_iter().rev() {
            let undone = match undo {
                Undo::Remove(id) => self.remove(&root, id, asked()),
                Undo::Share(id, share) => self.set_share(&root, id, share, asked()),
                Undo::Gc(id, gc) => self.set_gc(&root, id, gc, asked()),
                Undo::Access(id, before) => self.put_back_lists(id, &before),
            };
            left += u32::from(undone.is_err());
        }
        if left == 0 {
            return refusal;
        }
        let text = format!("{}; {left} changes of other containers were not undone", refusal.text);
        Refusal { text, ..refusal }
    }
}
