// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree of one resource: nodes in slots with generations, and the edits that change it.
//!
//! Invariants ([`Tree::check`], asserted after every step of the random tests):
//! * slot 0 is the root scheduler, slot 1 is q0, a queue below the root; both have generation 1
//!   forever;
//! * every other node hangs below a scheduler node, is listed there under its name, and no walk
//!   upwards passes more than [`DEPTH_MAX`] nodes;
//! * a new node takes the lowest free slot and one more than that slot's last generation, so that
//!   ids follow from the journal alone;
//! * q0's weight is positive.

use std::collections::BTreeSet;

pub use reserv_facts::tree::DEPTH_MAX;

use crate::error::quoted;
use crate::node::Claim;
use crate::{
    Backlog, Cap, Class, Edit, Error, ErrorKind, Kind, NODES_MAX, Name, Node, NodeId, NodePath,
    Personality, Policy, ResourceKind, Share, Tune, Weight,
};

/// A slot outlives its nodes: it keeps the last generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) node: Option<Node>,
}

/// The tree of one resource. Changed only through [`crate::Plan`]s and [`crate::Record`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Number of the last record in effect; 0 for a new tree.
    pub(crate) seq: u64,
    pub(crate) slots: Vec<Slot>,
    /// Slots below `slots.len()` that a new node may take.
    pub(crate) free: BTreeSet<u32>,
    /// What new nodes are.
    pub(crate) personality: Personality,
    /// Whose tree it is; told, no part of the journal.
    pub(crate) resource: ResourceKind,
    /// What limits are admitted against; told, no part of the journal.
    pub(crate) backlog: Option<Backlog>,
}

/// What a tree of this name is until it is told.
fn named(name: &Name) -> ResourceKind {
    if name.as_str() == "cpu" { ResourceKind::Cpu } else { ResourceKind::Link }
}

impl Tree {
    /// Root and q0 (weight 100, time sharing), as every resource starts (Eclipse/BSD §2.4).
    pub fn new(resource: Name) -> Self {
        let mut root = Node::new(NodeId::ROOT, resource, Kind::Scheduler(Policy::default()), None);
        let mut q0 = Node::new(
            NodeId::Q0,
            Name::numbered('q', 0),
            Kind::Queue(Class::default()),
            Some(NodeId::ROOT),
        );
        q0.weight = Weight::DEFAULT;
        root.weight = Weight::DEFAULT;
        root.link(q0.name.clone(), q0.id);
        let resource = named(&root.name);
        let slot = |node| Slot { generation: 1, node: Some(node) };
        let (slots, personality) = (vec![slot(root), slot(q0)], Personality::default());
        Self { seq: 0, slots, free: BTreeSet::new(), personality, resource, backlog: None }
    }

    /// Number of the last record in effect.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// What new nodes are.
    pub const fn personality(&self) -> Personality {
        self.personality
    }

    /// Whose tree it is.
    pub const fn resource(&self) -> ResourceKind {
        self.resource
    }

    /// Tells whose tree it is: until then one named `cpu` is the CPU's, every other a link's.
    pub const fn set_resource(&mut self, resource: ResourceKind) {
        self.resource = resource;
    }

    /// Whether it is the CPU's.
    pub const fn is_cpu(&self) -> bool {
        self.resource.is_cpu()
    }

    /// How many nodes there are, root and q0 included.
    pub fn len(&self) -> usize {
        self.slots.iter().filter(|s| s.node.is_some()).count()
    }

    /// Never: root and q0 are there.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// A live node.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.slots.get(id.index as usize)?.node.as_ref().filter(|n| n.id == id)
    }

    /// The live node in a slot, whatever its generation.
    pub fn at(&self, index: u32) -> Option<&Node> {
        self.slots.get(index as usize)?.node.as_ref()
    }

    /// A live node, or `Stale`.
    pub fn node(&self, id: NodeId) -> Result<&Node, Error> {
        self.get(id).ok_or_else(|| {
            Error::new(ErrorKind::Stale, format!("node {}.{} is gone", id.index, id.generation))
        })
    }

    /// The root.
    ///
    /// # Panics
    /// Never: no edit removes it, and a tree without it is not restored.
    pub fn root(&self) -> &Node {
        self.get(NodeId::ROOT).expect("invariant: the root exists")
    }

    /// A child by name.
    pub fn child(&self, parent: NodeId, name: &Name) -> Option<NodeId> {
        self.get(parent)?.children.get(name).copied()
    }

    /// A node by path, or `NotFound`/`NotScheduler` as a walk of directories answers.
    pub fn resolve(&self, path: &NodePath) -> Result<NodeId, Error> {
        let mut node = self.root();
        for name in path.names() {
            if !node.kind.is_scheduler() {
                let at = self.shown(node.id);
                return Err(Error::new(
                    ErrorKind::NotScheduler,
                    format!("{at} is a queue and has no children"),
                ));
            }
            let id = node.children.get(name).ok_or_else(|| {
                let near = self.shown(node.id);
                Error::new(ErrorKind::NotFound, format!("no {} in {near}", quoted(name.as_str())))
            })?;
            node = self.node(*id)?;
        }
        Ok(node.id)
    }

    /// The policy that orders a node among its siblings; `None` for the root.
    pub fn policy_above(&self, id: NodeId) -> Option<Policy> {
        match self.get(self.get(id)?.parent?)?.kind {
            Kind::Scheduler(policy) => Some(policy),
            Kind::Queue(_) => None,
        }
    }

    /// Path of a live node.
    pub fn path(&self, id: NodeId) -> Option<NodePath> {
        let mut names = Vec::new();
        let mut node = self.get(id)?;
        while let Some(parent) = node.parent {
            names.push(node.name.clone());
            node = self.get(parent)?;
        }
        names.reverse();
        Some(names.into_iter().collect())
    }

    /// As messages name a node: `cpu/web/site1`.
    pub fn shown(&self, id: NodeId) -> String {
        match self.path(id) {
            Some(p) if p.is_root() => self.root().name.to_string(),
            Some(p) => format!("{}/{p}", self.root().name),
            None => format!("node {}.{}", id.index, id.generation),
        }
    }

    /// All nodes, in order of slot.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.slots.iter().filter_map(|s| s.node.as_ref())
    }

    /// All nodes with their level (root 0), parents before children, siblings in order of name.
    pub fn walk(&self) -> impl Iterator<Item = (usize, &Node)> {
        let mut stack = vec![(0, NodeId::ROOT)];
        std::iter::from_fn(move || {
            let (level, id) = stack.pop()?;
            let node = self.get(id)?;
            stack.extend(node.children.values().rev().map(|&c| (level + 1, c)));
            Some((level, node))
        })
    }

    /// Nodes from `id` up to the root, both counted; 0 for a node that is gone.
    pub fn depth(&self, id: NodeId) -> usize {
        std::iter::successors(self.get(id), |n| n.parent.and_then(|p| self.get(p))).count()
    }

    /// Nodes on the longest walk from `id` down, itself counted.
    pub fn height(&self, id: NodeId) -> usize {
        let Some(node) = self.get(id) else { return 0 };
        1 + node.children.values().map(|&c| self.height(c)).max().unwrap_or(0)
    }

    /// Whether `id` is `top` or hangs somewhere below it.
    pub fn is_within(&self, id: NodeId, top: NodeId) -> bool {
        std::iter::successors(self.get(id), |n| n.parent.and_then(|p| self.get(p)))
            .any(|n| n.id == top)
    }

    /// The id that the next new node gets; `Full` when all slots are taken or worn out.
    pub fn next_id(&self) -> Result<NodeId, Error> {
        let fresh = u32::try_from(self.slots.len()).unwrap_or(NODES_MAX);
        if let Some(&index) = self.free.first() {
            return Ok(NodeId { index, generation: self.slots[index as usize].generation + 1 });
        }
        if fresh >= NODES_MAX {
            let why = format!("{} already has {NODES_MAX} nodes", self.root().name);
            return Err(Error::new(ErrorKind::Full, why).hint("delete some"));
        }
        Ok(NodeId { index: fresh, generation: 1 })
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, Error> {
        self.slots
            .get_mut(id.index as usize)
            .and_then(|s| s.node.as_mut())
            .filter(|n| n.id == id)
            .ok_or_else(|| {
                corrupt(format!("an edit of node {}.{}, which is gone", id.index, id.generation))
            })
    }

    /// Carry one edit out. Checks what keeps the tree a tree (see the invariants), not what is
    /// wise: that is the plan's. On error nothing has changed.
    pub(crate) fn apply(&mut self, edit: &Edit) -> Result<(), Error> {
        match *edit {
            Edit::Create { id, parent, ref name, kind } => self.create(id, parent, name, kind)?,
            Edit::Share { id, share } => {
                let node = self.node_mut(id)?;
                let nothing = share.fixed.is_none() && share.weight == Weight::BACKGROUND;
                if id == NodeId::ROOT || (id == NodeId::Q0 && nothing) {
                    return Err(corrupt("a weight that the root or q0 cannot have"));
                }
                if share.fixed.is_some() && share.weight != Weight::BACKGROUND {
                    return Err(corrupt("a weight beside a fixed share"));
                }
                let before = node.claim();
                node.fixed = share.fixed;
                node.minimum = share.minimum;
                let now = node.claim();
                if share.fixed.is_none() {
                    node.weight = share.weight;
                }
                if let Some(parent) = node.parent {
                    self.count(parent, before, now);
                }
            }
            Edit::Solve { id, weight } => {
                let node = self.node_mut(id)?;
                if node.fixed.is_none() || weight == Weight::BACKGROUND {
                    return Err(corrupt(
                        "a solved weight of a node without a fixed share, or none",
                    ));
                }
                node.weight = weight;
            }
            Edit::Personality { personality } => self.personality = personality,
            Edit::Cap { id, cap } => {
                let cap = cap.map(Cap::check).transpose()?;
                self.node_mut(id)?.cap = cap;
            }
            Edit::Class { id, class } => match self.node_mut(id)?.kind {
                Kind::Queue(ref mut c) => *c = class,
                Kind::Scheduler(_) => return Err(corrupt("a class of a scheduler node")),
            },
            Edit::Policy { id, policy } => match self.node_mut(id)?.kind {
                Kind::Scheduler(ref mut p) => *p = policy,
                Kind::Queue(_) => return Err(corrupt("a policy of a queue")),
            },
            Edit::Tune { id, key, value } => {
                let value = value.map(|v| key.check(v)).transpose()?;
                let tune = &mut self.node_mut(id)?.tune;
                match value {
                    Some(value) => tune.insert(key, value),
                    None => tune.remove(&key),
                };
            }
            Edit::Limit { id, members_max, bytes_max } => {
                let node = self.node_mut(id)?;
                (node.members_max, node.bytes_max) = (members_max, bytes_max);
            }
            Edit::Gc { id, gc } => self.node_mut(id)?.gc = gc,
            Edit::Access { id, ref entries } => self.node_mut(id)?.access.clone_from(entries),
            Edit::Made { id, maker, through } => {
                let node = self.node_mut(id)?;
                (node.maker, node.through) = (maker, through);
            }
            Edit::Reset { id } => {
                self.node_mut(id)?;
            }
            Edit::Rename { id, ref name } => {
                let parent = self
                    .node_mut(id)?
                    .parent
                    .ok_or_else(|| corrupt("another name for the root"))?;
                self.relocate(id, parent, name)?;
            }
            Edit::Move { id, parent, ref name } => self.relocate(id, parent, name)?,
            Edit::Drain { id } => {
                let node = self.node_mut(id)?;
                if !node.kind.is_queue() || id == NodeId::Q0 {
                    return Err(corrupt("draining of a node that cannot drain"));
                }
                node.draining = true;
            }
            Edit::Delete { id, .. } | Edit::Gone { id } => self.remove(id)?,
        }
        Ok(())
    }

    /// A child of `parent` has another fixed share or minimum now.
    fn count(&mut self, parent: NodeId, before: Claim, now: Claim) {
        if let Ok(parent) = self.node_mut(parent) {
            parent.fixed_children += u32::from(now.fixed);
            parent.fixed_children -= u32::from(before.fixed);
            parent.minimum_children += u32::from(now.minimum);
            parent.minimum_children -= u32::from(before.minimum);
        }
    }

    fn create(&mut self, id: NodeId, parent: NodeId, name: &Name, kind: Kind) -> Result<(), Error> {
        if self.next_id()? != id {
            return Err(corrupt(format!("a new node {}.{} out of order", id.index, id.generation)));
        }
        if self.depth(parent) >= DEPTH_MAX {
            return Err(corrupt("a node below the deepest level"));
        }
        self.take_name(parent, name)?.link(name.clone(), id);
        let slot = Slot {
            generation: id.generation,
            node: Some(Node::new(id, name.clone(), kind, Some(parent))),
        };
        let index = id.index as usize;
        if index == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[index] = slot;
            self.free.remove(&id.index);
        }
        Ok(())
    }

    /// The scheduler node `parent`, in which `name` is free.
    fn take_name(&mut self, parent: NodeId, name: &Name) -> Result<&mut Node, Error> {
        let node = self.node_mut(parent)?;
        if !node.kind.is_scheduler() {
            return Err(corrupt("a child of a queue"));
        }
        if node.children.contains_key(name) {
            return Err(corrupt(format!("a second {}", quoted(name.as_str()))));
        }
        Ok(node)
    }

    fn relocate(&mut self, id: NodeId, parent: NodeId, name: &Name) -> Result<(), Error> {
        let node = self.node_mut(id)?;
        let (Some(old_parent), false) = (node.parent, id == NodeId::Q0) else {
            return Err(corrupt("a move of the root or q0"));
        };
        let old_name = node.name.clone();
        if self.is_within(parent, id) || self.depth(parent) + self.height(id) > DEPTH_MAX {
            return Err(corrupt("a move below itself or too deep"));
        }
        self.take_name(parent, name)?.link(name.clone(), id);
        self.node_mut(old_parent)?.unlink(&old_name);
        let node = self.node_mut(id)?;
        node.parent = Some(parent);
        node.name = name.clone();
        let claim = node.claim();
        self.count(old_parent, claim, Claim::default());
        self.count(parent, Claim::default(), claim);
        Ok(())
    }

    fn remove(&mut self, id: NodeId) -> Result<(), Error> {
        let node = self.node_mut(id)?;
        let (Some(parent), false, true) = (node.parent, id == NodeId::Q0, node.children.is_empty())
        else {
            return Err(corrupt("removal of the root, q0 or a node with children"));
        };
        let (name, claim) = (node.name.clone(), node.claim());
        self.node_mut(parent)?.unlink(&name);
        self.count(parent, claim, Claim::default());
        let slot = &mut self.slots[id.index as usize];
        slot.node = None;
        // A slot whose generations are used up retires: an old handle must never fit again.
        if slot.generation < u32::MAX {
            self.free.insert(id.index);
        }
        Ok(())
    }

    /// All invariants of the module's head; `Corrupt` with the first that is broken.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |why: String| Err(corrupt(why));
        let (Some(root), Some(q0)) = (self.get(NodeId::ROOT), self.get(NodeId::Q0)) else {
            return bad("no root or no q0".into());
        };
        if !root.kind.is_scheduler() || root.parent.is_some() {
            return bad("the root is no root".into());
        }
        let q0_right =
            q0.kind.is_queue() && q0.parent == Some(root.id) && q0.weight > Weight::BACKGROUND;
        if !q0_right || q0.name.as_str() != "q0" || q0.draining {
            return bad("q0 is not as it must be".into());
        }
        if self.slots.len() > NODES_MAX as usize {
            return bad("too many slots".into());
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let is_free = u32::try_from(index).is_ok_and(|i| self.free.contains(&i));
            if is_free != (slot.node.is_none() && slot.generation < u32::MAX) {
                return bad(format!("slot {index} is wrongly listed as free or taken"));
            }
            let Some(node) = &slot.node else { continue };
            if node.id.index as usize != index
                || node.id.generation != slot.generation
                || slot.generation == 0
            {
                return bad(format!("slot {index} holds a node of another slot"));
            }
            if let Some(cap) = node.cap {
                cap.check()?;
            }
            for (key, value) in &node.tune {
                key.check(*value)?;
            }
            self.check_links(node)?;
        }
        if self.walk().count() != self.len() {
            return bad("nodes that the root does not reach".into());
        }
        Ok(())
    }

    fn check_links(&self, node: &Node) -> Result<(), Error> {
        let at = self.shown(node.id);
        let depth = std::iter::successors(Some(node), |n| n.parent.and_then(|p| self.get(p)))
            .take(DEPTH_MAX + 1)
            .count();
        if depth > DEPTH_MAX {
            return Err(corrupt(format!("{at} is too deep")));
        }
        if node.id != NodeId::ROOT {
            let listed =
                node.parent.and_then(|p| self.get(p)).and_then(|p| p.children.get(&node.name));
            if listed != Some(&node.id) {
                return Err(corrupt(format!("{at} is not listed in its parent")));
            }
        }
        if node.kind.is_queue() && !node.children.is_empty() {
            return Err(corrupt(format!("{at} is a queue with children")));
        }
        if node.draining && !node.kind.is_queue() {
            return Err(corrupt(format!("{at} drains and is no queue")));
        }
        if node.children.values().any(|&c| self.get(c).is_none_or(|c| c.parent != Some(node.id))) {
            return Err(corrupt(format!("{at} lists a child that is not its own")));
        }
        let claims = || node.children.values().filter_map(|&c| self.get(c)).map(Node::claim);
        if claims().filter(|c| c.fixed).count() != node.fixed_children as usize {
            return Err(corrupt(format!("{at} counts its fixed shares wrongly")));
        }
        if claims().filter(|c| c.minimum).count() != node.minimum_children as usize {
            return Err(corrupt(format!("{at} counts its minimums wrongly")));
        }
        let taken = |letter, n| node.children.contains_key(&Name::numbered(letter, n));
        let free = node.free_number;
        let lowest = |letter, n| (0..n).all(|i| taken(letter, i)) && !taken(letter, n);
        if !lowest('q', free.queue) || !lowest('r', free.scheduler) {
            return Err(corrupt(format!("{at} counts its numbered children wrongly")));
        }
        Ok(())
    }

    /// A tree of these slots, with everything that follows from them; checked.
    pub(crate) fn assemble(
        seq: u64,
        slots: Vec<(u32, Option<Node>)>,
        personality: Personality,
    ) -> Result<Self, Error> {
        let room = Vec::with_capacity(slots.len());
        let (resource, free) = (ResourceKind::Link, BTreeSet::new());
        let mut tree = Self { seq, slots: room, free, personality, resource, backlog: None };
        for (index, (generation, node)) in (0..).zip(slots) {
            if node.is_none() && generation < u32::MAX {
                tree.free.insert(index);
            }
            tree.slots.push(Slot { generation, node });
        }
        tree.resource = tree.get(NodeId::ROOT).map_or(resource, |root| named(&root.name));
        let links: Vec<_> = tree
            .iter()
            .filter_map(|n| Some((n.parent?, n.name.clone(), n.id, n.claim())))
            .collect();
        for (parent, name, id, claim) in links {
            tree.count(parent, Claim::default(), claim);
            let parent = tree.node_mut(parent)?;
            if parent.children.contains_key(&name) {
                return Err(corrupt(format!("a second {}", quoted(name.as_str()))));
            }
            parent.link(name, id);
        }
        // A cycle of parents would make `path` run forever: bound the walk before anything shows a
        // path.
        for node in tree.iter() {
            let up = std::iter::successors(Some(node), |n| n.parent.and_then(|p| tree.get(p)));
            if up.take(DEPTH_MAX + 1).count() > DEPTH_MAX {
                return Err(corrupt(format!("{} is too deep", quoted(node.name.as_str()))));
            }
        }
        tree.check()?;
        Ok(tree)
    }

    /// A node as it was saved; `children` are found by [`Tree::assemble`].
    #[expect(clippy::too_many_arguments, reason = "all fields of a saved node")]
    pub(crate) fn saved_node(
        id: NodeId,
        parent: Option<NodeId>,
        name: Name,
        kind: Kind,
        share: Share,
        solved: Option<Weight>,
        cap: Option<Cap>,
        members_max: u32,
        gc: bool,
        tune: Tune,
        draining: bool,
    ) -> Node {
        Node {
            weight: solved.unwrap_or(share.weight),
            fixed: share.fixed,
            minimum: share.minimum,
            cap,
            members_max,
            gc,
            tune,
            draining,
            ..Node::new(id, name, kind, parent)
        }
    }
}

fn corrupt(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, why)
}
