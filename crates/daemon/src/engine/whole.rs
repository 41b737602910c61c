// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of a tree that are too large for one batch of the plane, whole all the same; and those
//! that flush members out of a queue: until the members have been moved, after the batch, the queue
//! keeps its slot and its place below its parent.
//!
//! The journal first gets what it takes to undo the change (`Undo`: the configuration as it was,
//! and the tags and lists of the queues that it deletes), then the parts as edits of their own,
//! then the end. What is refused half-way, or cut short by a death of the daemon, is undone: the
//! next daemon finds an undo without an end.
//!
//! What is promised holds when all is done (the whole is checked first), not in between.
//!
//! Deletions come last where they can (nothing that is made stands in their place), so that a
//! refusal before them undoes only what nobody has used yet. A queue that was deleted already is
//! made anew, with its members and lists; its counters begin at 0, and descriptors of its files are
//! stale.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};

use reserv_model::{
    DeleteMode, Driver, NodeId, NodePath, NodeRef, Request, ResourceConfig, Rule, Tree, diff,
    to_config_with_draining,
};
use reserv_plane::List;
use serde::{Deserialize, Serialize};

use super::number::held_if;
use super::record::Entry;
use super::{Engine, Refusal};
use crate::process;

/// What it takes to undo a change that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undo {
    before: ResourceConfig,
    /// Threads of queues that are deleted.
    members: Vec<(NodePath, i32)>,
    /// Processes whose default (`false`) or child default list names such a queue.
    lists: Vec<(NodePath, i32, bool)>,
    rules: Vec<Rule>,
    /// Queues that drained before, and are told to again.
    #[serde(default)]
    draining: BTreeSet<NodePath>,
    /// Who had these numbers ([`process::identity`]), where the kernel says: the undo may come much
    /// later, and from another daemon.
    #[serde(default)]
    had: BTreeMap<i32, u64>,
}

/// Whether a request deletes a node; which.
fn deleted(tree: &Tree, request: &Request) -> Option<NodeId> {
    match request {
        Request::Delete { node: NodeRef::Id(id), .. } => Some(*id),
        Request::Delete { node: NodeRef::Path(path), .. } => tree.resolve(path).ok(),
        Request::Delete { node: NodeRef::Child(parent, name), .. } => tree.child(*parent, name),
        _ => None,
    }
}

/// The same with the deletions behind everything else, if they can stand there.
fn deletions_last(tree: &Tree, requests: &[Request]) -> Vec<Request> {
    let (deletions, others): (Vec<_>, Vec<_>) =
        requests.iter().cloned().partition(|r| matches!(r, Request::Delete { .. }));
    let reordered = [others, deletions].concat();
    if tree.plan(&reordered).is_ok() { reordered } else { requests.to_vec() }
}

impl Undo {
    /// Of requests that are about to be carried out.
    pub(crate) fn new(engine: &Engine, requests: &[Request]) -> Result<Self, Refusal> {
        let tree = engine.tree();
        let mut before = to_config_with_draining(tree, Driver::Auto);
        let mut queues: Vec<(NodeId, NodePath)> = Vec::new();
        for request in requests {
            let Some(id) = deleted(tree, request) else { continue };
            let Some(node) = tree.get(id).filter(|n| n.kind.is_queue()) else { continue };
            if let Some(path) = tree.path(id).filter(|_| !node.draining || flushes(tree, request)) {
                queues.push((id, path));
            }
        }
        let drains = tree.iter().filter(|node| node.draining);
        let drains = drains.filter_map(|node| Some((node.id, tree.path(node.id)?)));
        let (gone, stay): (Vec<_>, Vec<_>) = drains.partition(|which| queues.contains(which));
        // Those that nobody ends are left to drain.
        for (_, path) in stay {
            before.nodes.remove(&path);
        }
        let draining = gone.into_iter().map(|(_, path)| path).collect();
        let (mut members, mut lists) = (Vec::new(), Vec::new());
        let mut had = BTreeMap::new();
        let mut note =
            |tid, held: &OwnedFd| had.extend(process::identity(held.as_fd()).map(|who| (tid, who)));
        for (id, path) in &queues {
            for member in engine.plane().members(*id)? {
                let is = || Ok(engine.plane().tag_of(member.tid)? == *id);
                if let Some(held) = held_if(member.tid, is)? {
                    note(member.tid, &held);
                    members.push((path.clone(), member.tid));
                }
            }
        }
        let pids = if queues.is_empty() { Vec::new() } else { process::all() };
        for pid in pids {
            let Ok(both) = engine.plane().defaults(pid) else { continue };
            for (id, child) in [(both.default, false), (both.child, true)] {
                let Some((_, path)) = queues.iter().find(|(queue, _)| *queue == id) else {
                    continue;
                };
                let is = || Ok(engine.plane().defaults(pid)? == both);
                if let Some(held) = held_if(pid, is)? {
                    note(pid, &held);
                    lists.push((path.clone(), pid, child));
                }
            }
        }
        Ok(Self { before, members, lists, rules: engine.rules().to_vec(), draining, had })
    }

    /// Who has a number, if he had it then; `None`: he has ended.
    fn same(&self, tid: i32) -> Result<Option<OwnedFd>, Refusal> {
        let held = held_if(tid, || Ok(true))?;
        let had = self.had.get(&tid);
        Ok(held.filter(|held| had.is_none_or(|who| process::identity(held.as_fd()) == Some(*who))))
    }

    /// The same, as if a number had been another's then.
    #[cfg(test)]
    pub(crate) fn told_of_another(mut self, tid: i32) -> Self {
        *self.had.get_mut(&tid).expect("Linux 6.9 numbers processes") += 1;
        self
    }

    /// Makes the tree as it was. Everything is tried; answers what could not be restored.
    fn run(&self, engine: &mut Engine) -> Result<(), Refusal> {
        engine.collect()?;
        let tree = engine.tree();
        let draining = tree.iter().filter(|n| n.draining);
        let draining: Vec<(NodeId, NodePath)> =
            draining.filter_map(|n| Some((n.id, tree.path(n.id)?))).collect();
        // What drained before and still does is as it was. What was told to drain since cannot be
        // called back: it goes, and is made anew.
        let mut before = self.before.clone();
        let mut again = Vec::new();
        for (id, path) in draining {
            if self.draining.contains(&path) {
                before.nodes.remove(&path);
            } else if before.nodes.contains_key(&path) {
                again.push(Request::Delete { node: id.into(), mode: DeleteMode::Flush });
            }
        }
        in_parts(engine, &again)?;
        let back = diff(engine.tree(), &before, DeleteMode::Flush)?;
        in_parts(engine, &deletions_last(engine.tree(), &back))?;
        let mut lost = BTreeSet::new();
        let queue = |engine: &Engine, path: &NodePath| engine.tree().resolve(path).ok();
        let mut tried = |path: &NodePath, done: Result<(), Refusal>| match done {
            Ok(()) => {}
            // Who has ended meanwhile needs nothing.
            Err(refusal) if refusal.errno == libc::ESRCH => {}
            Err(refusal) => {
                tracing::error!(%refusal, queue = %path, "a tag was not restored");
                lost.insert(path.to_string());
            }
        };
        for (path, tid) in &self.members {
            let Some(id) = queue(engine, path) else { continue };
            let mut tag = || {
                let Some(held) = self.same(*tid)? else { return Ok(()) };
                engine.tag_held((held.as_fd(), *tid), id)
            };
            tried(path, tag());
        }
        for (path, pid, child) in &self.lists {
            let Some(id) = queue(engine, path) else { continue };
            let which = if *child { List::Child } else { List::Default };
            let mut set = || {
                let Some(held) = self.same(*pid)? else { return Ok(()) };
                engine.list_held((held.as_fd(), *pid), which, id)
            };
            tried(path, set());
        }
        engine.set_rules(self.rules.clone())?;
        let tree = engine.tree();
        let drained = self.draining.iter().filter_map(|path| tree.resolve(path).ok());
        let drained = drained.filter(|id| tree.get(*id).is_some_and(|node| !node.draining));
        let drained: Vec<Request> = drained
            .map(|id| Request::Delete { node: id.into(), mode: DeleteMode::Drain })
            .collect();
        in_parts(engine, &drained)?;
        if lost.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = lost.into_iter().collect();
        Err(Refusal::new(libc::EIO, format!("tags of {} were not restored", names.join(", "))))
    }
}

/// Whether a request deletes a queue and moves its members to q0.
fn flushes(tree: &Tree, request: &Request) -> bool {
    let queue = || deleted(tree, request).and_then(|id| tree.get(id));
    matches!(request, Request::Delete { mode: DeleteMode::Flush, .. })
        && queue().is_some_and(|node| node.kind.is_queue())
}

fn in_parts(engine: &mut Engine, requests: &[Request]) -> Result<(), Refusal> {
    let tree = engine.tree();
    // What comes after a flush may want the queue's slot, or delete its parent.
    let parts: Vec<&[Request]> =
        requests.chunk_by(|a, b| !flushes(tree, a) || flushes(tree, b)).collect();
    // Most requests make at most two ops; where fixed shares are solved anew, a part may still be
    // too large.
    let most = (engine.plane().batch_max() / 2).max(1);
    for part in parts.into_iter().flat_map(|part| part.chunks(most)) {
        in_halves(engine, part)?;
    }
    Ok(())
}

fn in_halves(engine: &mut Engine, part: &[Request]) -> Result<(), Refusal> {
    if part.len() > 1 && engine.tree().plan_part(part)?.ops().len() > engine.plane().batch_max() {
        let (first, second) = part.split_at(part.len() / 2);
        in_halves(engine, first)?;
        return in_halves(engine, second);
    }
    match engine.edit_part(part) {
        // More than the driver does in one section of its lock.
        Err(refusal) if refusal.errno == libc::E2BIG && part.len() > 1 => {
            let (first, second) = part.split_at(part.len() / 2);
            in_halves(engine, first)?;
            in_halves(engine, second)
        }
        done => done,
    }
}

impl Engine {
    /// Carries out requests and replaces the rules, all or none, however much it is.
    pub fn edit_whole(&mut self, requests: &[Request], rules: &[Rule]) -> Result<(), Refusal> {
        let ops = self.check(requests)?;
        if requests.is_empty() {
            return self.set_rules(rules.to_vec());
        }
        if ops <= self.plane().batch_max()
            && rules == self.rules()
            && !self.flushes_members(requests)?
        {
            match self.edit(requests, None) {
                Err(refusal) if refusal.errno == libc::E2BIG && requests.len() > 1 => {}
                done => return done.map(drop),
            }
        }
        let requests = deletions_last(self.tree(), requests);
        self.begin_whole(Undo::new(self, &requests)?)?;
        let refused = in_parts(self, &requests).and_then(|()| self.set_rules(rules.to_vec()));
        match refused.and_then(|()| self.end_whole()) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(match self.undo_whole() {
                Ok(()) => refusal,
                Err(also) => Refusal {
                    text: format!("{refusal}; and not all of it was undone: {also}"),
                    ..refusal
                },
            }),
        }
    }

    /// Whether members are to leave a queue while something else changes too.
    fn flushes_members(&self, requests: &[Request]) -> Result<bool, Refusal> {
        let flushed = requests.iter().filter(|request| flushes(&self.tree, request));
        for id in flushed.filter_map(|request| deleted(&self.tree, request)) {
            if requests.len() > 1 && !self.plane().members(id)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Undoes a change that has ended; the next daemon does where this one dies over it.
    pub(crate) fn take_back(&mut self, undo: &Undo) -> Result<(), Refusal> {
        self.begin_whole(undo.clone())?;
        self.undo_whole()
    }

    /// Undoes the change that is under way, if one is: after a refusal, or after the death of the
    /// daemon that was at it. It is tried once: what comes later is not to be undone.
    pub fn undo_whole(&mut self) -> Result<(), Refusal> {
        let Some(undo) = self.unfinished().cloned() else { return Ok(()) };
        let undone = undo.run(self);
        self.end_whole().and(undone)
    }
}

impl Engine {
    /// A change in several edits begins.
    fn begin_whole(&mut self, undo: Undo) -> Result<(), Refusal> {
        self.append(&Entry::Begin { undo: Box::new(undo.clone()) })?;
        self.extras.unfinished = Some(undo);
        Ok(())
    }

    /// It has ended, one way or the other.
    fn end_whole(&mut self) -> Result<(), Refusal> {
        self.append(&Entry::End)?;
        self.extras.unfinished = None;
        self.compact_when_long();
        Ok(())
    }

    /// The change that is under way.
    pub(super) fn unfinished(&self) -> Option<&Undo> {
        self.extras.unfinished.as_ref()
    }
}
