// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each resource is looked after by a thread of its own: it may wait for the resource's plane as
//! long as that likes. Every 100 ms: is the resource still ours, have queues drained; and what
//! nobody refers to goes, at releases too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use reserv_model::{Caller, Name, NodeId, Tree};
use reserv_namespace::{Ino, Object, Resource};

use super::slot::{Had, News, Slot};
use super::{Core, Refusal};
use crate::aside::Looked;
use crate::begin;
use crate::forgetter::Forgetter;
use crate::polled::dropped;
use crate::priority;
use crate::process;
use crate::rights;
use crate::seed::Seed;

const POLL: Duration = Duration::from_millis(100);
/// From a release to the collection that it causes.
const GATHER: Duration = Duration::from_millis(20);

/// Those of whom it is not known where they stand.
struct Unknown {
    /// Not even whose all of them are; or root's, who may be anywhere.
    anywhere: bool,
    /// The others.
    who: Vec<Caller>,
}

impl Unknown {
    /// Of the nodes that are looked at, and those around them, where one of them may stand: he
    /// keeps what he could keep by an open file too. A process of root's that blocks who looks at
    /// it keeps nothing, else it kept all.
    fn may_stand_in(&self, tree: &Tree, nodes: &[NodeId]) -> Vec<NodeId> {
        if !self.anywhere && self.who.is_empty() {
            return Vec::new();
        }
        let may = |id: NodeId| self.anywhere || self.who.iter().any(|who| tree.concerns(who, id));
        tree.around(nodes.iter().copied()).into_iter().filter(|id| may(*id)).collect()
    }
}

impl Core {
    /// Begins to look after the resources, those that come later too.
    pub fn look_after_all(self: &Arc<Self>, forgetter: Arc<Forgetter>) -> Result<(), Refusal> {
        forgetter.wake(&self.polled.former());
        let _ = self.forgetter.set(forgetter);
        self.slots().values().try_for_each(|slot| self.look_after(slot))
    }

    /// Begins to look after one, once that is done at all.
    pub(super) fn look_after(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<(), Refusal> {
        let Some(forgetter) = self.forgetter.get().cloned() else { return Ok(()) };
        let Some(wakes) = slot.wakes() else { return Ok(()) };
        let (core, of_thread) = (self.clone(), slot.clone());
        let body = move || core.look(&of_thread, &wakes, &forgetter);
        let begun = priority::without_floor(|| begin::thread("poll", body).map(drop));
        begun.map_err(|error| Refusal::no_thread(&format!("look after {}", slot.name), &error))
    }

    fn look(&self, slot: &Arc<Slot>, wakes: &Receiver<()>, forgetter: &Forgetter) {
        if slot.resource == Resource::CPU {
            priority::reserve();
        }
        let mut polled = Instant::now();
        while !slot.is_gone() {
            // What is released together is collected together.
            if wakes.recv_timeout(POLL).is_ok() {
                std::thread::sleep(GATHER);
                while wakes.try_recv().is_ok() {}
            }
            if polled.elapsed() >= POLL {
                polled = Instant::now();
                self.poll(slot);
                forgetter.wake(&self.news(slot));
                self.place_threads(slot);
            }
            // Nothing is collected before the files are known that were being opened when another
            // worker died.
            if self.caught_up.load(Ordering::SeqCst) {
                self.sweep(slot);
            }
            let mut removed = self.take_gone();
            removed.extend(Self::take_removed_of(slot));
            forgetter.forget(&removed);
        }
        self.leave_threads(slot);
        forgetter.wake(&self.polled.due(slot.resource, |_| None));
        forgetter.forget(&self.take_gone());
    }

    fn poll(&self, slot: &Arc<Slot>) {
        let Ok(mut held) = slot.held() else { return };
        let dev = self.mount.load(Ordering::SeqCst);
        if dev != 0
            && let Err(refusal) = held.tell_mount(dev)
        {
            tracing::warn!(%refusal, name = %slot.name, "it was not told where /reserv is mounted");
        }
        hear(slot, &mut held);
        held.poll(self.now());
    }

    /// Who waits for what there is now.
    fn news(&self, slot: &Arc<Slot>) -> Vec<u64> {
        if !self.polled.is_polled(slot.resource) {
            return Vec::new();
        }
        let Ok(held) = slot.held() else { return Vec::new() };
        let number = |id| Some(dropped(&held.engine.plane().droppers(id).ok()?));
        self.polled.due(slot.resource, number)
    }

    /// All that was opened under a dead worker is known.
    pub fn caught_up(&self) {
        self.caught_up.store(true, Ordering::SeqCst);
        self.slots().values().for_each(|slot| slot.wake());
    }

    /// Of whom a look has not seen where he stands. Whose he is an exec does not hold up.
    fn unknown<T>(&self, looked: &Looked<T>) -> Unknown {
        let left = looked.beside.iter().chain(&looked.without_room);
        let pids: Vec<i32> = left.chain(&looked.blocking).copied().collect();
        let whose = self.at_once.each(&pids, rights::process_at_once);
        let is_root = |(pid, who): &(i32, Caller)| who.uid == 0 && !looked.blocking.contains(pid);
        let anywhere = !whose.without_room.is_empty() || whose.seen.iter().any(is_root);
        // They may be many, of few users.
        let users: BTreeSet<_> =
            whose.seen.into_iter().map(|(_, who)| (who.uid, who.gid, who.groups)).collect();
        let who = users.into_iter().filter(|(uid, ..)| *uid != 0);
        let caller = |(uid, gid, groups)| Caller { uid, gid, groups, ..Caller::default() };
        Unknown { anywhere, who: who.map(caller).collect() }
    }

    /// Collects what nobody refers to. Who stands where is looked up without the resource; where
    /// somebody went meanwhile is not collected.
    fn sweep(&self, slot: &Arc<Slot>) {
        let now = self.now();
        let Ok(held) = slot.held() else { return };
        let due = held.engine.due(now);
        slot.take_entered();
        drop(held);
        if due.nodes.is_empty() {
            return;
        }
        let names: BTreeSet<String> = due.names.iter().map(Name::to_string).collect();
        let (dev, uncertain) = (self.mount.load(Ordering::SeqCst), due.uncertain);
        let look = move |pid| {
            let inodes = process::inodes_in_use(dev, pid, uncertain, &names);
            let who = if inodes.is_empty() { None } else { rights::process_as_caller(pid) };
            who.map(|who| (inodes, who))
        };
        let pids = if dev == 0 { Vec::new() } else { process::all() };
        let looked = self.looker.each(&pids, look);
        let unknown = self.unknown(&looked);
        let Ok(mut held) = slot.held() else { return };
        let mut weak: BTreeSet<NodeId> = slot.take_entered();
        weak.extend(unknown.may_stand_in(held.engine.tree(), &due.nodes));
        for (_, (inodes, who)) in looked.seen {
            for ino in inodes {
                let node = match Ino(ino).object() {
                    Some(Object::Node { resource, id, .. }) if resource == slot.resource => {
                        Some(id)
                    }
                    Some(Object::Fresh(serial))
                        if Seed::of(serial).resource().is_ok_and(|of| of == slot.resource) =>
                    {
                        held.engine.fresh_node(ino)
                    }
                    _ => None,
                };
                weak.extend(node.filter(|id| held.engine.tree().concerns(&who, *id)));
            }
        }
        if let Err(error) = held.engine.sweep(now, &due.nodes, &weak) {
            tracing::error!(%error, "nodes that nobody refers to were not collected");
        }
    }
}

/// What was told of a resource while somebody had it.
fn hear(slot: &Slot, held: &mut Had) {
    for news in slot.take_news() {
        match news {
            News::Closed(handle) => {
                held.engine.writes_no_more(handle);
                held.engine.closed(handle);
            }
            News::Forgotten(fresh) => held.engine.forget_fresh(fresh),
        }
    }
}
