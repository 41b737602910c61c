// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resource containers (Banga, Druschel, Mogul 1999, §4.5 and §4.6): which there are, and how they
//! hang together. What one owns in the trees of resources is the daemon's to make.
//!
//! Rules, with where they come from:
//! 1. A container has a parent or none. "No parent" is here the top, [`ContainerId::TOP`], which
//!    is always there and is nobody's (§4.6: "or set it to 'no parent'").
//! 2. A container holds either threads or containers, and which is said when it is made: threads
//!    are bound to leaves only (§4.5), and what has a fixed share may have children (§5.1).
//! 3. No container is above itself.
//! 4. When a container is released its children have no parent (§4.6): they come to the top under
//!    their own names, or under numbered ones where those are taken.
//! 5. There are at most so many, and of one user but root at most so many ([`ContainerLimits`]).
//!
//! A share says a weight, or a fixed part of the parent. Minimums are amounts, of CPU time or of
//! bytes, and so are a single resource's: they are set at the node there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::quoted;
use crate::{DEPTH_MAX, Error, ErrorKind, Minimum, Name, NewKind, NodeKind, NodePath, Share};

/// Files of a container's directory that are none of a node's.
pub const CONTAINER_FILES: [&str; 4] = ["new", "parent", "nodes", "usage"];

/// A container. A stale one is an error, never another container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContainerId {
    /// Slot, below [`ContainerLimits::ALL`].
    pub index: u32,
    /// Counts the uses of the slot, from 1.
    pub generation: u32,
}

impl ContainerId {
    /// What containers without a parent hang on.
    pub const TOP: Self = Self { index: 0, generation: 1 };
}

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// Threads and processes are bound to it: a queue in every tree.
    Threads,
    /// Other containers: a scheduler node in every tree.
    Containers,
}

impl Holds {
    /// As it stands in `mk`: what it owns in a tree.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Threads => "queue",
            Self::Containers => "scheduler",
        }
    }

    /// The same in a configuration.
    pub const fn node_kind(self) -> NodeKind {
        match self {
            Self::Threads => NodeKind::Queue,
            Self::Containers => NodeKind::Scheduler,
        }
    }

    /// The same for a request.
    pub const fn new_kind(self) -> NewKind {
        match self {
            Self::Threads => NewKind::Queue(None),
            Self::Containers => NewKind::Scheduler(None),
        }
    }
}

/// How many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerLimits {
    /// With the top.
    pub all: u32,
    /// Made by one user, but root.
    pub of_user: u32,
}

impl ContainerLimits {
    /// Most containers at once.
    pub const ALL: u32 = 8192;
    /// Those in force.
    pub const USUAL: Self = Self { all: Self::ALL, of_user: 1000 };
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// Its handle.
    pub id: ContainerId,
    /// Within its parent.
    pub name: Name,
    /// [`ContainerId::TOP`]: none. Of the top `None`.
    pub parent: Option<ContainerId>,
    /// Threads or containers.
    pub holds: Holds,
    /// The one share for all resources, those that come later too.
    pub share: Share,
    /// Whether it is released when nothing refers to it.
    pub gc: bool,
    /// The uid of who made it.
    pub maker: u32,
    /// By name.
    #[serde(skip)]
    pub children: BTreeMap<Name, ContainerId>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of Container")]
pub enum ContainerEdit {
    /// There is a new one.
    Create {
        id: ContainerId,
        parent: ContainerId,
        name: Name,
        holds: Holds,
        share: Share,
        gc: bool,
        maker: u32,
    },
    /// Another share.
    Share { id: ContainerId, share: Share },
    /// Released when nothing refers to it, or not.
    Gc { id: ContainerId, gc: bool },
    /// Another parent, or another name.
    Move { id: ContainerId, parent: ContainerId, name: Name },
    /// It is released. It has no children.
    Delete { id: ContainerId },
}

impl ContainerEdit {
    /// Of which container.
    pub const fn id(&self) -> ContainerId {
        match *self {
            Self::Create { id, .. }
            | Self::Share { id, .. }
            | Self::Gc { id, .. }
            | Self::Move { id, .. }
            | Self::Delete { id } => id,
        }
    }
}

/// What is asked of a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewContainer {
    /// `None`: the first of `c0`, `c1` … that is free.
    pub name: Option<Name>,
    /// Threads or containers.
    pub holds: Holds,
    /// Its share.
    pub share: Share,
    /// Whether it is released when nothing refers to it.
    pub gc: bool,
    /// The uid of who makes it.
    pub maker: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slot {
    /// Of the container in it, or of the last one that was.
    generation: u32,
    held: Option<Container>,
}

/// All containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Slot>", into = "Vec<Slot>")]
pub struct Containers {
    slots: Vec<Slot>,
    limits: ContainerLimits,
}

impl From<Containers> for Vec<Slot> {
    fn from(all: Containers) -> Self {
        all.slots
    }
}

fn corrupt(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("containers: {why}"))
}

impl TryFrom<Vec<Slot>> for Containers {
    type Error = Error;

    fn try_from(slots: Vec<Slot>) -> Result<Self, Error> {
        let mut all = Self { slots, limits: ContainerLimits::USUAL };
        let mut links = Vec::new();
        for (index, slot) in (0..).zip(&all.slots) {
            let Some(held) = &slot.held else { continue };
            if held.id != (ContainerId { index, generation: slot.generation }) {
                return Err(corrupt("a handle that is not its slot's"));
            }
            match held.parent {
                Some(parent) => links.push((parent, held.name.clone(), held.id)),
                None if held.id == ContainerId::TOP => {}
                None => return Err(corrupt("a second top")),
            }
        }
        all.node(ContainerId::TOP)?;
        for (parent, name, id) in links {
            if all.node(parent)?.holds != Holds::Containers || all.link(parent, name, id)?.is_some()
            {
                return Err(corrupt("a parent that holds threads, or two of one name"));
            }
        }
        let cut = |held: &&Container| {
            all.up(held.id).last().is_none_or(|last| last.id != ContainerId::TOP)
        };
        if all.iter().any(|held| cut(&held)) {
            return Err(corrupt("a circle"));
        }
        Ok(all)
    }
}

impl Default for Containers {
    fn default() -> Self {
        Self::new(ContainerLimits::USUAL)
    }
}

impl Containers {
    /// None but the top.
    pub fn new(limits: ContainerLimits) -> Self {
        let top = Container {
            id: ContainerId::TOP,
            name: Name::numbered('c', 0),
            parent: None,
            holds: Holds::Containers,
            share: Share::of(crate::Weight::DEFAULT),
            gc: false,
            maker: 0,
            children: BTreeMap::new(),
        };
        Self { slots: vec![Slot { generation: 1, held: Some(top) }], limits }
    }

    /// A container, if it is there.
    pub fn get(&self, id: ContainerId) -> Option<&Container> {
        let slot =
            self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        slot.held.as_ref()
    }

    /// The container in a slot.
    pub fn at(&self, index: u32) -> Option<&Container> {
        self.slots.get(index as usize)?.held.as_ref()
    }

    /// A container, or `Stale`.
    pub fn node(&self, id: ContainerId) -> Result<&Container, Error> {
        self.get(id).ok_or_else(|| Error::new(ErrorKind::Stale, "this container is gone"))
    }

    fn node_mut(&mut self, id: ContainerId) -> Result<&mut Container, Error> {
        let slot =
            self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.held.as_mut())
            .ok_or_else(|| Error::new(ErrorKind::Stale, "this container is gone"))
    }

    /// All but the top, in order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Container> {
        self.slots.iter().skip(1).filter_map(|slot| slot.held.as_ref())
    }

    /// All but the top, parents before their children.
    pub fn walk(&self) -> Vec<&Container> {
        let mut found: Vec<&Container> = Vec::new();
        let mut open = vec![ContainerId::TOP];
        while let Some(id) = open.pop() {
            let children = self.get(id).into_iter().flat_map(|held| held.children.values());
            for child in children.filter_map(|child| self.get(*child)) {
                found.push(child);
                open.push(child.id);
            }
        }
        found
    }

    /// It, and those above it.
    pub fn up(&self, id: ContainerId) -> impl Iterator<Item = &Container> {
        std::iter::successors(self.get(id), |held| self.get(held.parent?)).take(DEPTH_MAX + 1)
    }

    /// A child by its name.
    pub fn child(&self, parent: ContainerId, name: &Name) -> Option<ContainerId> {
        self.get(parent)?.children.get(name).copied()
    }

    /// The container at a path.
    pub fn resolve(&self, path: &NodePath) -> Result<ContainerId, Error> {
        let mut at = ContainerId::TOP;
        for name in path.names() {
            at = self.child(at, name).ok_or_else(|| {
                let why = format!("no container {}", quoted(&path.to_string()));
                Error::new(ErrorKind::NotFound, why)
                    .hint("'reserv tree container' shows what there is")
            })?;
        }
        Ok(at)
    }

    /// Its path; of the top the empty one.
    pub fn path(&self, id: ContainerId) -> Option<NodePath> {
        self.get(id)?;
        let mut names: Vec<Name> = self
            .up(id)
            .filter(|held| held.parent.is_some())
            .map(|held| held.name.clone())
            .collect();
        names.reverse();
        Some(names.into_iter().collect())
    }

    /// The same in words.
    pub fn shown(&self, id: ContainerId) -> String {
        let path = self.path(id).map(|path| path.to_string());
        match path.as_deref() {
            None => "container/?".into(),
            Some("") => "container".into(),
            Some(path) => format!("container/{path}"),
        }
    }

    fn depth(&self, id: ContainerId) -> usize {
        self.up(id).count()
    }

    /// Levels below and with it.
    fn height(&self, id: ContainerId) -> usize {
        let below = self.get(id).into_iter().flat_map(|held| held.children.values());
        1 + below.map(|child| self.height(*child)).max().unwrap_or(0)
    }

    fn free_name(&self, parent: ContainerId) -> Name {
        // One of these is free: there are as many as containers.
        let numbers = 0..=u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let mut names = numbers.map(|number| Name::numbered('c', number));
        names
            .find(|name| self.child(parent, name).is_none())
            .unwrap_or_else(|| Name::numbered('c', u32::MAX))
    }

    /// What may hang on what, by this name.
    fn check_place(&self, parent: ContainerId, name: &Name, height: usize) -> Result<(), Error> {
        let place = self.node(parent)?;
        if place.holds == Holds::Threads {
            let why = format!("{} holds threads, not containers", self.shown(parent));
            return Err(Error::new(ErrorKind::NotScheduler, why)
                .hint("a container for others is made so: reserv mk --sched container/PATH"));
        }
        if CONTAINER_FILES.contains(&name.as_str()) {
            let why = format!("{} is the name of a file in every container", quoted(name.as_str()));
            return Err(Error::new(ErrorKind::Invalid, why));
        }
        if place.children.contains_key(name) {
            let why = format!("{} stands in {} already", quoted(name.as_str()), self.shown(parent));
            return Err(Error::new(ErrorKind::Exists, why));
        }
        if self.depth(parent) + height > DEPTH_MAX {
            let why =
                format!("below {} there would be more than {DEPTH_MAX} levels", self.shown(parent));
            return Err(Error::new(ErrorKind::TooDeep, why));
        }
        Ok(())
    }

    fn check_share(share: Share) -> Result<(), Error> {
        if share.minimum == Minimum(0) {
            return Ok(());
        }
        let why = "a container's share is of all resources, and a minimum is an amount of one";
        Err(Error::new(ErrorKind::Invalid, why)
            .hint("set it at the node: reserv set cpu/PATH share='24 250ms/s'"))
    }

    /// A new container.
    pub fn plan_create(
        &self,
        parent: ContainerId,
        new: NewContainer,
    ) -> Result<ContainerEdit, Error> {
        let NewContainer { name, holds, share, gc, maker } = new;
        let name = name.unwrap_or_else(|| self.free_name(parent));
        self.check_place(parent, &name, 1)?;
        Self::check_share(share)?;
        let made = self.iter().filter(|held| held.maker == maker).count();
        if maker != 0 && made >= self.limits.of_user as usize {
            let why = format!("uid {maker} has {made} containers, as many as a user may have");
            return Err(Error::new(ErrorKind::Full, why).hint("release some"));
        }
        let free =
            self.slots.iter().position(|slot| slot.held.is_none()).unwrap_or(self.slots.len());
        if free >= self.limits.all as usize {
            let why = format!("there are {free} containers, as many as there can be");
            return Err(Error::new(ErrorKind::Full, why));
        }
        let generation = self.slots.get(free).map_or(1, |slot| slot.generation + 1);
        let index = u32::try_from(free).map_err(|_| corrupt("too many"))?;
        Ok(ContainerEdit::Create {
            id: ContainerId { index, generation },
            parent,
            name,
            holds,
            share,
            gc,
            maker,
        })
    }

    fn check_own(&self, id: ContainerId) -> Result<&Container, Error> {
        if id == ContainerId::TOP {
            return Err(Error::new(
                ErrorKind::Protected,
                "what has no parent hangs here; it is no container",
            ));
        }
        self.node(id)
    }

    /// Another share; nothing where it is this one already.
    pub fn plan_share(&self, id: ContainerId, share: Share) -> Result<ContainerEdit, Error> {
        self.check_own(id)?;
        Self::check_share(share)?;
        Ok(ContainerEdit::Share { id, share })
    }

    /// The flag.
    pub fn plan_gc(&self, id: ContainerId, gc: bool) -> Result<ContainerEdit, Error> {
        self.check_own(id)?;
        Ok(ContainerEdit::Gc { id, gc })
    }

    /// Another parent, or another name in it; without a name it keeps its own. `None`: it is there.
    pub fn plan_move(
        &self,
        id: ContainerId,
        parent: ContainerId,
        name: Option<Name>,
    ) -> Result<Option<ContainerEdit>, Error> {
        let held = self.check_own(id)?;
        let name = name.unwrap_or_else(|| held.name.clone());
        self.node(parent)?;
        if held.parent == Some(parent) && held.name == name {
            return Ok(None);
        }
        if self.up(parent).any(|above| above.id == id) {
            let why = format!("{} would be above itself", self.shown(id));
            return Err(Error::new(ErrorKind::Loop, why));
        }
        self.check_place(parent, &name, self.height(id))?;
        Ok(Some(ContainerEdit::Move { id, parent, name }))
    }

    /// It is released, and has no children.
    pub fn plan_delete(&self, id: ContainerId) -> Result<ContainerEdit, Error> {
        if !self.check_own(id)?.children.is_empty() {
            let why = format!("{} holds containers", self.shown(id));
            return Err(Error::new(ErrorKind::NotEmpty, why));
        }
        Ok(ContainerEdit::Delete { id })
    }

    /// What becomes of a child whose parent is released: it comes to the top, under its own name
    /// if that is free there.
    pub fn plan_orphan(&self, id: ContainerId) -> Result<ContainerEdit, Error> {
        let held = self.check_own(id)?;
        let taken = self.child(ContainerId::TOP, &held.name).is_some_and(|there| there != id);
        let name = if taken { self.free_name(ContainerId::TOP) } else { held.name.clone() };
        Ok(ContainerEdit::Move { id, parent: ContainerId::TOP, name })
    }

    fn link(
        &mut self,
        parent: ContainerId,
        name: Name,
        id: ContainerId,
    ) -> Result<Option<ContainerId>, Error> {
        Ok(self.node_mut(parent)?.children.insert(name, id))
    }

    fn unlink(&mut self, id: ContainerId) -> Result<(), Error> {
        let held = self.node(id)?;
        let (parent, name) = (held.parent, held.name.clone());
        if let Some(parent) = parent {
            self.node_mut(parent)?.children.remove(&name);
        }
        Ok(())
    }

    /// Brings an edit into effect that was planned against what is here.
    pub fn apply(&mut self, edit: &ContainerEdit) -> Result<(), Error> {
        match edit.clone() {
            ContainerEdit::Create { id, parent, name, holds, share, gc, maker } => {
                let at = id.index as usize;
                if at > self.slots.len() || self.at(id.index).is_some() {
                    return Err(corrupt("a slot that is not free"));
                }
                if at == self.slots.len() {
                    self.slots.push(Slot { generation: 0, held: None });
                }
                if id.generation <= self.slots[at].generation
                    || self.link(parent, name.clone(), id)?.is_some()
                {
                    return Err(corrupt("a generation or a name that was used"));
                }
                let children = BTreeMap::new();
                let held =
                    Container { id, name, parent: Some(parent), holds, share, gc, maker, children };
                self.slots[at] = Slot { generation: id.generation, held: Some(held) };
            }
            ContainerEdit::Share { id, share } => self.node_mut(id)?.share = share,
            ContainerEdit::Gc { id, gc } => self.node_mut(id)?.gc = gc,
            ContainerEdit::Move { id, parent, name } => {
                self.node(parent)?;
                self.unlink(id)?;
                self.link(parent, name.clone(), id)?;
                let held = self.node_mut(id)?;
                (held.parent, held.name) = (Some(parent), name);
            }
            ContainerEdit::Delete { id } => {
                self.unlink(id)?;
                self.slots[id.index as usize].held = None;
            }
        }
        Ok(())
    }
}
