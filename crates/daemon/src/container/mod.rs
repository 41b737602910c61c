// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers: one node in every tree for each. Resources do not know them; what is done to a
//! container is done to its nodes, by ordinary edits, by who asks for it.
//!
//! * A change happens in all trees or in none (`book.rs` has the order). Where one tree refuses,
//!   the others are put back. What could not be put back at once is tried again, and until it is
//!   done no container is changed.
//! * What a container should own and does not (a resource has come, a node was removed in its
//!   tree) is made again (`tidy.rs`). So a deletion that is refused in the middle is put back too.
//! * Rights are those at the nodes, in every tree: who may make a node under `cpu/web`, and under
//!   `web` of every other resource, makes a container in `web`.
//! * One change at a time ([`Turn`]). Its thread has one resource after the other, in order of
//!   number, and waits for none longer than anybody (`core/slot.rs`).

mod access;
mod bind;
mod book;
mod charged;
mod files;
mod memory;
mod owned;
mod tidy;
mod turn;
mod usage;
mod wanted;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use reserv_model::{
    Caller, ContainerEdit, ContainerId, Containers, DeleteMode, Error, ErrorKind, Holds, Name,
    NewContainer, NodeId, Request, Right, Share, Weight,
};
use reserv_namespace::{Owned, Resource};

pub use self::book::{Asked, Plain, end, readable};
use self::book::{Book, Doing, FILE, Intent, TreeKey};
use self::turn::{Turn, Turning};
use crate::core::Core;
use crate::core::slot::Slot;
use crate::engine::{Engine, Origin};
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::sync::lock;

/// See the head of this file.
pub struct Room {
    core: Arc<Core>,
    book: Mutex<Book>,
    turn: Turn,
    /// Why a container has no node in a tree.
    trouble: Mutex<BTreeMap<(ContainerId, TreeKey), String>>,
    tidied: Mutex<tidy::Tidied>,
    /// The version of the book of which the trees were told what is owned.
    told: AtomicU64,
    told_queues: Mutex<owned::Told>,
    memory: memory::Kept,
}

fn key(slot: &Slot) -> TreeKey {
    (slot.resource.number(), slot.name.clone())
}

/// A refusal of one tree, with its name.
fn of_tree(slot: &Slot, refusal: Refusal) -> Refusal {
    Refusal { text: format!("{}: {}", slot.name, refusal.text), ..refusal }
}

/// The hasher's keys are the system's random bytes.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish() % Origin::CHOSEN_END
}

/// On behalf of whom a tree is edited.
#[derive(Clone, Copy)]
enum By<'a> {
    /// Of these, each of whom must have the right: as the last one.
    These(&'a [Caller]),
    /// Of nobody: it was permitted before.
    Nobody,
}

impl By<'_> {
    fn permit(self, engine: &Engine, request: &Request) -> Result<(), Refusal> {
        let Self::These(asking) = self else { return Ok(()) };
        asking.iter().try_for_each(|who| engine.permit(who, request))
    }

    fn edit(
        self,
        engine: &mut Engine,
        requests: &[Request],
        origin: Origin,
    ) -> Result<Vec<NodeId>, Refusal> {
        requests.iter().try_for_each(|request| self.permit(engine, request))?;
        let done = match self {
            Self::These([.., who]) => engine.edit_by(who, requests, Some(origin)),
            Self::These([]) => return Err(Refusal::gone()),
            Self::Nobody => engine.edit(requests, Some(origin)),
        };
        done.map(|done| done.created)
    }
}

impl Room {
    /// What another worker left. `new_mount`: no request and no inode of it is of use.
    pub fn open(
        core: Arc<Core>,
        settings: &Settings,
        new_mount: bool,
    ) -> Result<Arc<Self>, Refusal> {
        let mut book = Book::open(&settings.run.join(FILE))?;
        if new_mount {
            book.new_session()?;
        }
        let room = Arc::new(Self {
            core,
            book: Mutex::new(book),
            turn: Turn::default(),
            trouble: Mutex::default(),
            tidied: Mutex::default(),
            told: AtomicU64::new(u64::MAX),
            told_queues: Mutex::default(),
            memory: memory::Kept::default(),
        });
        let of_hook = Arc::downgrade(&room);
        room.core.before_one_goes(move |slot| {
            if let Some(room) = of_hook.upgrade() {
                room.carry(slot);
            }
        });
        room.tell_owned();
        Ok(room)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// The trees, in order of number.
    fn trees(&self) -> Vec<Arc<Slot>> {
        self.core.slots().values().filter(|slot| slot.is_shown() && slot.is_up()).cloned().collect()
    }

    /// Looks at all containers.
    pub fn look<T>(&self, look: impl FnOnce(&Containers) -> T) -> T {
        look(&self.book().all)
    }

    /// If this request's change happened, under this worker or one before it: what it made.
    pub fn answered(&self, unique: u64) -> Option<Option<ContainerId>> {
        self.book().answered(unique).map(|made| made.0)
    }

    /// The same, when what a dead worker began has its end.
    pub fn answered_in_the_end(&self, unique: u64) -> Result<Option<Option<ContainerId>>, Refusal> {
        let _turning = self.begin()?;
        Ok(self.answered(unique))
    }

    /// The node that a container owns in a resource.
    pub fn node(&self, id: ContainerId, slot: &Slot) -> Option<NodeId> {
        self.book().node(id, &key(slot))
    }

    /// A number for a fresh inode.
    pub fn fresh_number(&self) -> Result<u32, Refusal> {
        self.book().fresh_number()
    }

    /// What a fresh inode has become.
    pub fn fresh(&self, ino: u64) -> Option<ContainerId> {
        self.book().fresh(ino)
    }

    /// Nobody refers to this inode any more.
    pub fn forget(&self, fresh: u64) {
        self.book().forget(fresh);
    }

    /// The handle of an open directory or share of a container: with its node of the CPU, for the
    /// programs in the kernel that bind by it ([`seed::handle`]). `plain`: the request's.
    pub fn handle(&self, id: ContainerId, plain: Plain) -> u64 {
        let cpu = cpu_key(&self.core);
        self.book().handle(id, &cpu, plain)
    }

    /// A file of a container was opened by who has a right there.
    pub fn opened(&self, handle: u64, id: ContainerId, uid: u32) -> Result<(), Refusal> {
        self.book().opened(handle, id, uid)
    }

    /// A file was closed.
    pub fn closed(&self, handle: u64) {
        if self.book().closed(handle).is_some() {
            self.wake();
        }
    }

    /// Whether somebody has a right at a container's node of the CPU, beyond looking (`act`) or at
    /// all.
    pub fn concerns(&self, who: &Caller, id: ContainerId, act: bool) -> bool {
        if who.uid == 0 {
            return true;
        }
        let Some(node) = self.book().node(id, &cpu_key(&self.core)) else { return false };
        let Ok(engine) = self.core.cpu() else { return false };
        let tree = engine.tree();
        if act { tree.concerns(who, node) } else { tree.decide(who, node, Right::Read).allowed }
    }

    /// Whether `who` may use a container's node of the CPU.
    pub fn may_use(&self, who: &Caller, id: ContainerId) -> bool {
        if who.uid == 0 {
            return true;
        }
        let Some(node) = self.book().node(id, &cpu_key(&self.core)) else { return false };
        let Ok(engine) = self.core.cpu() else { return false };
        engine.tree().decide(who, node, Right::Use).allowed
    }

    /// Begins a change: nobody else is at one, and the last has its end.
    fn begin(&self) -> Result<Turning<'_>, Refusal> {
        let turning = self.turn.take()?;
        self.settle()?;
        Ok(turning)
    }

    fn intend(&self, doing: Doing, asked: Option<Asked>) -> Result<Intent, Refusal> {
        let intent = Intent { number: random(), asked, doing };
        self.book().begin(intent.clone())?;
        Ok(intent)
    }

    /// Puts back what trees have done, and answers why.
    fn put_back<T>(&self, why: Refusal) -> Result<T, Refusal> {
        if let Err(refusal) = self.settle() {
            tracing::warn!(%refusal, "a change of a container is put back later");
        }
        self.wake();
        Err(why)
    }

    /// A new container, in all trees or in none. `open`: at once, and that becomes the handle.
    pub fn create(
        &self,
        asking: &[Caller],
        parent: ContainerId,
        new: NewContainer,
        (asked, open): (Asked, Option<(Plain, &mut u64)>),
    ) -> Result<ContainerId, Refusal> {
        let _turning = self.begin()?;
        let opener = open.as_ref().and(asking.last()).map_or(0, |who| who.uid);
        self.book().admit_file(opener)?;
        let edit = self.book().all.plan_create(parent, new)?;
        let ContainerEdit::Create { id, name, holds, share, .. } = &edit else {
            return Err(Refusal::gone());
        };
        let intent = self.intend(Doing::Create, Some(asked))?;
        let mut nodes = Vec::new();
        let made = self.trees().iter().try_for_each(|slot| {
            let in_tree = |engine: &mut Engine| {
                let request = self.request_of(slot, parent, (name, *holds, *share))?;
                let made = By::These(asking).edit(engine, &[request], intent.origin())?;
                made.first().copied().ok_or_else(Refusal::gone)
            };
            let node = slot
                .engine()
                .and_then(|mut engine| in_tree(&mut engine))
                .map_err(|r| of_tree(slot, r))?;
            nodes.push((*id, key(slot), node));
            Ok(())
        });
        let id = *id;
        match made.and_then(|()| self.book().done(Some(edit), nodes)) {
            Ok(()) => {
                self.tell_owned();
                // Before anybody looks whether it is of use to somebody.
                if let Some((plain, handle)) = open {
                    *handle = self.handle(id, plain);
                    self.book().opened(*handle, id, opener)?;
                }
                Ok(id)
            }
            Err(refusal) => self.put_back(refusal),
        }
    }

    fn no_node(&self, id: ContainerId) -> Refusal {
        let text = format!("{} has no node there", self.look(|all| all.shown(id)));
        Refusal::new(libc::EAGAIN, text)
    }

    /// How a container's node is asked for.
    fn request_of(
        &self,
        slot: &Slot,
        parent: ContainerId,
        (name, holds, share): (&Name, Holds, Share),
    ) -> Result<Request, Refusal> {
        let Some(at) = self.book().node(parent, &key(slot)) else {
            return Err(self.no_node(parent));
        };
        let (parent, name, share) = (at.into(), Some(name.clone()), Some(share));
        Ok(Request::Create { parent, name, kind: holds.new_kind(), share })
    }

    /// Its node in each tree that has one.
    fn nodes_of(&self, id: ContainerId) -> Vec<(Arc<Slot>, NodeId)> {
        let trees = self.trees();
        let book = self.book();
        trees
            .into_iter()
            .filter_map(|slot| book.node(id, &key(&slot)).map(|node| (slot, node)))
            .collect()
    }

    /// Its node in each tree that has one, for a change. In a resource that comes again under
    /// another worker it has one too, which cannot be asked yet: then nothing is changed, as where
    /// one that is up does not answer.
    fn nodes_to_change(&self, id: ContainerId) -> Result<Vec<(Arc<Slot>, NodeId)>, Refusal> {
        let slots = self.core.slots();
        let late = slots.values().find(|slot| slot.is_coming() && self.node(id, slot).is_some());
        late.map_or_else(
            || Ok(self.nodes_of(id)),
            |slot| Err(of_tree(slot, Refusal::new(libc::EAGAIN, "it is not up again yet"))),
        )
    }

    /// One share for all resources, those that come later too. Minimums stay what they are.
    pub fn set_share(
        &self,
        asking: &[Caller],
        id: ContainerId,
        share: Share,
        asked: Asked,
    ) -> Result<(), Refusal> {
        let _turning = self.begin()?;
        let edit = self.book().all.plan_share(id, share)?;
        let nodes = self.nodes_to_change(id)?;
        let mut before = Vec::new();
        for (slot, node) in &nodes {
            let engine = slot.engine().map_err(|r| of_tree(slot, r))?;
            let Some(there) = engine.tree().get(*node) else { continue };
            before.push((key(slot), *node, there.share()));
        }
        let intent = self.intend(Doing::Share { before: before.clone() }, Some(asked))?;
        let set = nodes.iter().try_for_each(|(slot, node)| {
            let Some((.., was)) = before.iter().find(|(tree, ..)| *tree == key(slot)) else {
                return Ok(());
            };
            let share = Share { minimum: was.minimum, ..share };
            let request = Request::SetShare { node: (*node).into(), share };
            let in_tree =
                |engine: &mut Engine| By::These(asking).edit(engine, &[request], intent.origin());
            slot.engine()
                .and_then(|mut engine| in_tree(&mut engine))
                .map_err(|r| of_tree(slot, r))
                .map(drop)
        });
        match set.and_then(|()| self.book().done(Some(edit), Vec::new())) {
            Ok(()) => Ok(()),
            Err(refusal) => self.put_back(refusal),
        }
    }

    /// Released when nothing refers to it, or not.
    pub fn set_gc(
        &self,
        asking: &[Caller],
        id: ContainerId,
        gc: bool,
        asked: Asked,
    ) -> Result<(), Refusal> {
        let _turning = self.begin()?;
        let edit = self.book().all.plan_gc(id, gc)?;
        for (slot, node) in self.nodes_of(id) {
            let request = Request::SetGc { node: node.into(), gc: false };
            By::These(asking).permit(&*slot.engine()?, &request).map_err(|r| of_tree(&slot, r))?;
        }
        self.book().edit(edit, Some(asked))?;
        self.wake();
        Ok(())
    }

    /// Another parent, or another name.
    pub fn set_parent(
        &self,
        asking: &[Caller],
        id: ContainerId,
        (parent, name): (ContainerId, Option<Name>),
        asked: Asked,
    ) -> Result<(), Refusal> {
        let _turning = self.begin()?;
        let Some(edit) = self.book().all.plan_move(id, parent, name)? else { return Ok(()) };
        self.carry_out_move(By::These(asking), edit, Some(asked), false)
    }

    /// In all trees or in none. `orphan`: a share that does not fit where it comes to becomes 0.
    fn carry_out_move(
        &self,
        by: By<'_>,
        edit: ContainerEdit,
        asked: Option<Asked>,
        orphan: bool,
    ) -> Result<(), Refusal> {
        let ContainerEdit::Move { id, parent, ref name } = edit else {
            return Err(Refusal::gone());
        };
        let nodes = self.nodes_to_change(id)?;
        let mut before = Vec::new();
        for (slot, node) in &nodes {
            let engine = slot.engine().map_err(|r| of_tree(slot, r))?;
            let Some(there) = engine.tree().get(*node) else { continue };
            let Some(above) = there.parent else { continue };
            before.push((key(slot), *node, above, there.name.clone(), there.share()));
        }
        let intent = self.intend(Doing::Move { before }, asked)?;
        let moved = nodes.iter().try_for_each(|(slot, node)| {
            let at = self.book().node(parent, &key(slot));
            let at = at.ok_or_else(|| Refusal::new(libc::EAGAIN, "the parent has no node there"));
            let in_tree = |engine: &mut Engine| {
                let moves = Request::Move {
                    node: (*node).into(),
                    parent: at?.into(),
                    name: Some(name.clone()),
                };
                match by.edit(engine, std::slice::from_ref(&moves), intent.origin()) {
                    Err(refusal) if orphan && refusal.errno == libc::ENOSPC => {
                        let none = Share::of(Weight::BACKGROUND);
                        let none = Request::SetShare { node: (*node).into(), share: none };
                        by.edit(engine, &[none, moves], intent.origin())
                    }
                    done => done,
                }
            };
            slot.engine()
                .and_then(|mut engine| in_tree(&mut engine))
                .map_err(|r| of_tree(slot, r))
                .map(drop)
        });
        match moved.and_then(|()| self.book().done(Some(edit), Vec::new())) {
            Ok(()) => Ok(()),
            Err(refusal) => self.put_back(refusal),
        }
    }

    /// A container without children goes, where nothing is bound to it.
    pub fn remove(&self, asking: &[Caller], id: ContainerId, asked: Asked) -> Result<(), Refusal> {
        let _turning = self.begin()?;
        self.carry_out_removal(By::These(asking), id, Some(asked))
    }

    fn carry_out_removal(
        &self,
        by: By<'_>,
        id: ContainerId,
        asked: Option<Asked>,
    ) -> Result<(), Refusal> {
        self.book().all.plan_delete(id)?;
        // All trees are asked before one is changed: what is refused is mostly refused here.
        for (slot, node) in self.nodes_to_change(id)? {
            let may = |engine: &Engine| {
                let Some(there) = engine.tree().get(node) else { return Ok(()) };
                if !there.children.is_empty() {
                    let why = format!("{} has children", engine.tree().shown(node));
                    return Err(Error::new(ErrorKind::NotEmpty, why).into());
                }
                by.permit(
                    engine,
                    &Request::Delete { node: node.into(), mode: DeleteMode::Refuse },
                )?;
                if engine.plane().refs(&[node])?.first().is_some_and(|refs| refs.tags() > 0) {
                    let why = format!("{} has members", engine.tree().shown(node));
                    return Err(Error::new(ErrorKind::Busy, why).into());
                }
                Ok(())
            };
            slot.engine().and_then(|engine| may(&engine)).map_err(|r| of_tree(&slot, r))?;
        }
        let intent = self.intend(Doing::Delete { id }, asked)?;
        match self.delete_nodes(by, id, &intent) {
            Ok(()) => {
                self.book().done(Some(ContainerEdit::Delete { id }), Vec::new())?;
                self.tell_owned();
                Ok(())
            }
            // What went is made again: nobody was in it.
            Err(refusal) => {
                self.book().undone()?;
                self.wake();
                Err(refusal)
            }
        }
    }

    fn delete_nodes(&self, by: By<'_>, id: ContainerId, intent: &Intent) -> Result<(), Refusal> {
        self.nodes_of(id).iter().try_for_each(|(slot, node)| {
            let in_tree = |engine: &mut Engine| {
                if engine.tree().get(*node).is_none() {
                    return Ok(Vec::new());
                }
                let request = Request::Delete { node: (*node).into(), mode: DeleteMode::Refuse };
                by.edit(engine, &[request], intent.origin())
            };
            slot.engine()
                .and_then(|mut engine| in_tree(&mut engine))
                .map_err(|r| of_tree(slot, r))
                .map(drop)
        })
    }

    /// Gives a change that has none its end: after a refusal, and under a worker that finds the
    /// intent of a dead one.
    fn settle(&self) -> Result<(), Refusal> {
        let Some(intent) = self.book().intent().cloned() else { return Ok(()) };
        let unique = intent.origin().unique;
        let slots = self.core.slots();
        match &intent.doing {
            Doing::Create => {
                for slot in slots.values() {
                    let mut engine = slot.engine().map_err(|r| of_tree(slot, r))?;
                    let made = engine.answered(unique).flatten();
                    if let Some(node) = made.filter(|node| engine.tree().get(*node).is_some()) {
                        let undo = Request::Delete { node: node.into(), mode: DeleteMode::Flush };
                        engine.edit(&[undo], None).map_err(|r| of_tree(slot, r))?;
                    }
                }
                self.book().undone()
            }
            Doing::Share { before } => {
                for (tree, node, share) in before {
                    let undo = [Request::SetShare { node: (*node).into(), share: *share }];
                    undo_in(slots.get(&resource(tree)), (tree, *node, unique), &undo)?;
                }
                self.book().undone()
            }
            Doing::Move { before } => {
                for (tree, node, parent, name, share) in before {
                    let name = Some(name.clone());
                    let back =
                        Request::Move { node: (*node).into(), parent: (*parent).into(), name };
                    let undo = [back, Request::SetShare { node: (*node).into(), share: *share }];
                    undo_in(slots.get(&resource(tree)), (tree, *node, unique), &undo)?;
                }
                self.book().undone()
            }
            Doing::Access { before } => {
                for (tree, node, lists) in before {
                    let undo = [Request::PutBackAccess { lists: lists.clone() }];
                    undo_in(slots.get(&resource(tree)), (tree, *node, unique), &undo)?;
                }
                self.book().undone()
            }
            Doing::Delete { id } => {
                if let Some(slot) = slots.values().find(|slot| !slot.is_up()) {
                    return Err(Refusal::new(libc::EAGAIN, format!("{} is not up", slot.name)));
                }
                match self.delete_nodes(By::Nobody, *id, &intent) {
                    Ok(()) => self.book().done(Some(ContainerEdit::Delete { id: *id }), Vec::new()),
                    Err(refusal) if refusal.errno == libc::EAGAIN => Err(refusal),
                    Err(_) => self.book().undone(),
                }
            }
        }
    }

    /// What it owns, for `nodes`.
    pub fn owned(&self, id: ContainerId) -> Result<Vec<Owned>, Refusal> {
        let mut all = Vec::new();
        for slot in self.core.slots().values().filter(|slot| slot.is_shown()) {
            let node = self.book().node(id, &key(slot));
            let trouble = lock(&self.trouble).get(&(id, key(slot))).cloned();
            let found = match slot.engine() {
                Ok(engine) => node.and_then(|node| {
                    let tree = engine.tree();
                    Some((tree.path(node)?, tree.get(node)?.share()))
                }),
                Err(_) => None,
            };
            let why = || trouble.unwrap_or_else(|| "not yet".into());
            all.push(Owned { resource: slot.name.clone(), node: found.ok_or_else(why) });
        }
        Ok(all)
    }

    /// The trees are told which nodes are not a configuration's to remove, if that has changed.
    /// Only by who has the turn: so the last to tell knows the most.
    fn tell_owned(&self) {
        self.tell_queues();
        let slots = self.core.slots();
        let book = self.book();
        if self.told.swap(book.version, Ordering::Relaxed) == book.version {
            return;
        }
        let of = |slot: &Arc<Slot>| (slot.resource, book.owned_in(&key(slot)));
        let owned = slots.values().map(of).collect();
        drop(book);
        self.core.set_owned(owned);
    }
}

fn cpu_key(core: &Core) -> TreeKey {
    let name = core.slots().get(&Resource::CPU).map(|slot| slot.name.clone());
    (Resource::CPU.number(), name.unwrap_or_else(|| Name::numbered('c', 0)))
}

fn resource(tree: &TreeKey) -> Resource {
    Resource::new(tree.0).unwrap_or(Resource::CPU)
}

/// Undoes one tree's part of a change, if it happened there.
fn undo_in(
    slot: Option<&Arc<Slot>>,
    (tree, node, unique): (&TreeKey, NodeId, u64),
    undo: &[Request],
) -> Result<(), Refusal> {
    let Some(slot) = slot.filter(|slot| key(slot) == *tree) else { return Ok(()) };
    let mut engine = slot.engine().map_err(|r| of_tree(slot, r))?;
    // Once: what is changed after it stays, however often the end of the whole is tried.
    let origin = Origin { unique: undo_of(unique), fresh: None };
    if engine.answered(unique).is_none()
        || engine.answered(origin.unique).is_some()
        || engine.tree().get(node).is_none()
    {
        return Ok(());
    }
    if let Err(refusal) = engine.check(undo) {
        // Kept for later it would hold up every change of a container, as long as somebody likes.
        tracing::error!(%refusal, name = %slot.name, "a change of a container stays in one tree");
        return Ok(());
    }
    engine.edit(undo, Some(origin)).map_err(|r| of_tree(slot, r)).map(drop)
}

/// The number of what undoes a change: no other change has it.
const fn undo_of(unique: u64) -> u64 {
    unique ^ 1 << 1
}
