// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plane is told who may use which queue, because it tags without asking the daemon.
//!
//! It is told of queues that exist between the intent and the batch, so that a change of which it
//! cannot be told does not happen. Killed in between, the next daemon tells all that the last
//! intent touched again, whatever became of it.

use reserv_model::{
    AccessEntry, ChangedAccess, Edit, Kind, Node, NodeId, Record, Request, Right, Rights, Tree,
};

use super::{Engine, Refusal};

/// What a list says beside who may look: an entry of that alone speaks of no use.
fn beside_reading(entries: &[AccessEntry]) -> Vec<(bool, reserv_model::Party, Rights)> {
    let rights = |e: &AccessEntry| (e.allow, e.party, e.rights.without(Right::Read.into()));
    entries.iter().map(rights).filter(|(.., rights)| !rights.is_empty()).collect()
}

/// Whether an edit changes what a list says beside that.
fn speaks(tree: &Tree, edit: &Edit) -> bool {
    let Edit::Access { id, entries } = edit else { return false };
    let now = tree.get(*id).map_or(&[][..], |node| &node.access);
    beside_reading(now) != beside_reading(entries)
}

/// The edits without those of lists that speak of no use, for who knows the tree `before` them.
pub(super) fn about_use(before: &Tree, edits: &[Edit]) -> Vec<Edit> {
    edits
        .iter()
        .filter(|e| !matches!(e, Edit::Access { .. }) || speaks(before, e))
        .cloned()
        .collect()
}

/// The queues of a tree whose rules about use are touched by edits: rules are inherited.
pub(super) fn use_touched(tree: &Tree, edits: &[Edit]) -> Vec<NodeId> {
    let mut tops = Vec::new();
    for edit in edits {
        if let Edit::Create { id, .. } | Edit::Access { id, .. } | Edit::Move { id, .. } = *edit {
            tops.push(id);
        }
    }
    if let [one] = tops[..]
        && tree.get(one).is_some_and(|n| n.kind.is_queue())
    {
        return tops;
    }
    let touched =
        |n: &&Node| n.kind.is_queue() && tops.iter().any(|&top| tree.is_within(n.id, top));
    tree.iter().filter(touched).map(|n| n.id).collect()
}

impl Engine {
    /// The access lists that these change.
    pub fn lists_changed(&self, requests: &[Request]) -> Result<Vec<ChangedAccess>, Refusal> {
        let plan = self.tree.plan(requests)?;
        let mut lists: Vec<ChangedAccess> = Vec::new();
        for edit in plan.edits() {
            let Edit::Access { id, entries } = edit else { continue };
            if let Some(list) = lists.iter_mut().find(|list| list.node == *id) {
                list.after.clone_from(entries);
            } else {
                let before = self.tree.node(*id)?.access.clone();
                lists.push(ChangedAccess { node: *id, before, after: entries.clone() });
            }
        }
        Ok(lists)
    }

    /// Tells the plane, once more or for the first time, who may use these queues. What it cannot
    /// be told `status` shows.
    pub(super) fn tell_use_again(&mut self, queues: &[NodeId]) {
        for &id in queues {
            let rules = self.tree.use_rules(id);
            match self.plane.set_use(id, &rules) {
                Ok(()) => {
                    self.untold.remove(&id);
                }
                Err(error) => {
                    tracing::warn!(%error, queue = self.tree.shown(id), "who may use it was not told");
                    self.untold.insert(id);
                }
            }
        }
    }

    /// The queues of which the plane could not be told who may use them.
    pub fn untold(&self) -> Vec<NodeId> {
        self.untold.iter().copied().filter(|id| self.tree.get(*id).is_some()).collect()
    }

    /// Tells the plane who may use the queues that exist, ahead of edits that change it; refused,
    /// it knows again what is true now. A queue that the edits make is told afterwards: until then
    /// only who may use it can open its directory. Answers what is to be told again, whatever
    /// becomes of the edits.
    pub(super) fn tell_use(&mut self, record: &Record) -> Result<Vec<NodeId>, Refusal> {
        let changes = |e: &Edit| matches!(e, Edit::Access { .. });
        let edits = about_use(&self.tree, &record.edits);
        let lists = self.tree.iter().any(|n| !beside_reading(&n.access).is_empty());
        if !lists && !edits.iter().any(changes) {
            return Ok(Vec::new());
        }
        if !edits.iter().any(|e| changes(e) || matches!(e, Edit::Move { .. })) {
            let made =
                edits.iter().filter(|e| matches!(e, Edit::Create { kind: Kind::Queue(_), .. }));
            return Ok(made.map(Edit::id).collect());
        }
        let mut next = self.tree.clone();
        next.replay(record)?;
        let mut touched = use_touched(&next, &edits);
        touched.extend(self.untold());
        let known: Vec<NodeId> = touched
            .iter()
            .copied()
            .filter(|id| self.tree.get(*id).is_some() && next.get(*id).is_some())
            .collect();
        for &id in &known {
            if let Err(error) = self.plane.set_use(id, &next.use_rules(id)) {
                let refusal = Refusal::from(error);
                let queue = self.tree.shown(id);
                self.tell_use_again(&known);
                return Err(Refusal {
                    text: format!(
                        "the kernel could not be told who may use {queue}: {}",
                        refusal.text
                    ),
                    ..refusal
                });
            }
            self.untold.remove(&id);
        }
        touched.retain(|id| next.get(*id).is_some());
        Ok(touched)
    }
}
