// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers as a configuration wants them.

use std::collections::BTreeMap;

use reserv_model::{Caller, ContainerConfig, ContainerEdit, ContainerId, NewContainer, NodePath, Share};

use super::{Asked, Room, random};
use crate::engine::Origin;
use crate::refusal::Refusal;

/// What undoes one change.
enum Undo {
    Remove(ContainerId),
    Share(ContainerId, Share),
    Gc(ContainerId, bool),
}

/// A change that no request of a file asks for.
fn asked() -> Asked {
    Asked { unique: Origin::chosen(random()), fresh: None }
}

impl Room {
    /// The difference, in words; an error if these cannot be so.
    pub fn difference(&self, wanted: &BTreeMap<NodePath, ContainerConfig>) -> Result<Vec<String>, Refusal> {
        Ok(self.look(|all| all.difference(wanted))?)
    }

    /// Makes and changes them, all or none. Those that are not named stay.
    pub fn apply(&self, wanted: &BTreeMap<NodePath, ContainerConfig>) -> Result<(), Refusal> {
        let mut done = Vec::new();
        for (path, wanted) in wanted {
            if let Err(refusal) = self.apply_one(path, wanted, &mut done) {
                let text = format!("container {path}: {}", refusal.text);
                return Err(self.undo(done, Refusal { text, ..refusal }));
            }
        }
        Ok(())
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
                    let new = NewContainer { name: Some(name), holds, share, gc, maker };
                    Undo::Remove(self.create(&root, parent, new, (asked(), None))?)
                }
                ContainerEdit::Share { id, share } => {
                    let was = self.look(|all| all.node(id).map(|held| held.share))?;
                    self.set_share(&root, id, share, asked())?;
                    Undo::Share(id, was)
                }
                ContainerEdit::Gc { id, gc } => {
                    self.set_gc(&root, id, gc, asked())?;
                    Undo::Gc(id, !gc)
                }
                // No configuration asks for them.
                ContainerEdit::Move { .. } | ContainerEdit::Delete { .. } => continue,
            });
        }
        Ok(())
    }

    fn undo(&self, done: Vec<Undo>, refusal: Refusal) -> Refusal {
        let root = [Caller::default()];
        let mut left = 0;
        for undo in done.into_iter().rev() {
            let undone = match undo {
                Undo::Remove(id) => self.remove(&root, id, asked()),
                Undo::Share(id, share) => self.set_share(&root, id, share, asked()),
                Undo::Gc(id, gc) => self.set_gc(&root, id, gc, asked()),
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
