// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree that a counting plane keeps: which nodes there are, what hangs where, and what deleted
//! queues have counted.
//!
//! A batch is whole or absent: what its ops change is noted first and put back when one is refused.
//! What an op asks of the world (is the queue in use, what has it counted) is a [`Seen`], kept with
//! the batch, so that the batch done again gives the same tree.

use std::collections::BTreeMap;

use reserv_model::{Batch, Cap, DeleteMode, Kind, NodeId, Op, Outcome, Weight};
use serde::{Deserialize, Serialize};

use crate::PlaneError;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Operations.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            operations: self.operations.wrapping_add(other.operations),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    /// What has come since.
    #[must_use]
    pub const fn since(self, base: Self) -> Self {
        Self {
            operations: self.operations.saturating_sub(base.operations),
            bytes: self.bytes.saturating_sub(base.bytes),
        }
    }
}

/// What the world said of a queue when an op asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Something is tagged with it.
    pub busy: bool,
    /// Its counters.
    pub usage: Usage,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Of its slot.
    pub generation: u32,
    /// Slot of its parent; the root's own for the root.
    pub parent: u32,
    /// Scheduler or queue.
    pub kind: Kind,
    /// How many hang below it.
    pub children: u32,
    /// Goes when nothing is tagged with it.
    pub draining: bool,
    /// Of a queue: its counters at the last reset. Of a scheduler: what queues below it that are
    /// gone have counted.
    pub usage: Usage,
    /// In thousandths; 0 is background. For planes that schedule.
    #[serde(default)]
    pub weight: u32,
    /// Of its cap, per second; 0: none.
    #[serde(default)]
    pub cap: u64,
    /// Most that wait in a queue; 0: what the plane thinks right.
    #[serde(default)]
    pub limit: u32,
    /// Most of their bytes.
    #[serde(default)]
    pub limit_bytes: u32,
}

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// Number of the last batch.
    pub seq: u64,
    nodes: BTreeMap<u32, Entry>,
    /// The last generation of each slot that was ever used.
    generations: BTreeMap<u32, u32>,
}

/// What stood where a batch has changed something.
#[derive(Debug, Default)]
pub struct Before {
    seq: u64,
    nodes: BTreeMap<u32, Option<Entry>>,
    generations: BTreeMap<u32, Option<u32>>,
}

fn stale(id: NodeId) -> PlaneError {
    PlaneError::NoNode(format!("{}.{}", id.index, id.generation))
}

fn invalid(why: &str) -> PlaneError {
    PlaneError::Invalid(why.to_owned())
}

impl Default for Books {
    /// Root and q0.
    fn default() -> Self {
        let node = |kind, children| Entry {
            generation: 1,
            parent: NodeId::ROOT.index,
            kind,
            children,
            draining: false,
            usage: Usage::default(),
            weight: Weight::DEFAULT.milli(),
            cap: 0,
            limit: 0,
            limit_bytes: 0,
        };
        let root = node(Kind::Scheduler(reserv_model::Policy::default()), 1);
        let q0 = node(Kind::Queue(reserv_model::Class::default()), 0);
        let nodes = [(NodeId::ROOT.index, root), (NodeId::Q0.index, q0)].into();
        Self { seq: 0, nodes, generations: [(0, 1), (1, 1)].into() }
    }
}

impl Books {
    /// A node that is there.
    pub fn get(&self, id: NodeId) -> Result<&Entry, PlaneError> {
        self.nodes.get(&id.index).filter(|n| n.generation == id.generation).ok_or_else(|| stale(id))
    }

    /// A queue that is there.
    pub fn queue(&self, id: NodeId) -> Result<&Entry, PlaneError> {
        let node = self.get(id)?;
        if node.kind.is_queue() { Ok(node) } else { Err(invalid("a scheduler node is no queue")) }
    }

    /// The slot above a slot.
    pub fn parent(&self, index: u32) -> u32 {
        self.nodes.get(&index).map_or(NodeId::ROOT.index, |node| node.parent)
    }

    /// All nodes, in order of index.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Entry)> {
        self.nodes
            .iter()
            .map(|(&index, node)| (NodeId { index, generation: node.generation }, node))
    }

    /// Queues that go when nothing is tagged with them.
    pub fn draining(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.iter().filter(|(_, node)| node.draining).map(|(id, _)| id)
    }

    /// Carries out a batch, all or none. `see` is asked about queues that ops depend on.
    pub fn apply(
        &mut self,
        batch: &Batch,
        see: &mut dyn FnMut(NodeId) -> Result<Seen, PlaneError>,
    ) -> Result<(Vec<Outcome>, Before), PlaneError> {
        if batch.seq <= self.seq {
            return Err(invalid(&format!("batch {} after {}", batch.seq, self.seq)));
        }
        let mut before = Before { seq: self.seq, ..Before::default() };
        let done: Result<_, _> =
            batch.ops.iter().map(|op| self.apply_one(op, see, &mut before)).collect();
        match done {
            Ok(outcomes) => {
                self.seq = batch.seq;
                Ok((outcomes, before))
            }
            Err(error) => {
                self.put_back(before);
                Err(error)
            }
        }
    }

    /// Undoes the last batch.
    pub fn put_back(&mut self, before: Before) {
        self.seq = before.seq;
        for (index, node) in before.nodes {
            match node {
                Some(node) => self.nodes.insert(index, node),
                None => self.nodes.remove(&index),
            };
        }
        for (index, generation) in before.generations {
            match generation {
                Some(generation) => self.generations.insert(index, generation),
                None => self.generations.remove(&index),
            };
        }
    }

    /// A node that is about to change.
    fn touch(&mut self, id: NodeId, before: &mut Before) -> Result<&mut Entry, PlaneError> {
        self.get(id)?;
        self.touch_slot(id.index, before).ok_or_else(|| stale(id))
    }

    fn touch_slot(&mut self, index: u32, before: &mut Before) -> Option<&mut Entry> {
        before.nodes.entry(index).or_insert_with(|| self.nodes.get(&index).cloned());
        self.nodes.get_mut(&index)
    }

    /// Takes a queue or an empty scheduler away; what it has counted stays with its parent.
    fn take_away(&mut self, id: NodeId, counted: Usage, before: &mut Before) {
        let Some(node) = self.touch_slot(id.index, before).cloned() else { return };
        self.nodes.remove(&id.index);
        let counted = if node.kind.is_queue() { counted } else { node.usage };
        if let Some(parent) = self.touch_slot(node.parent, before) {
            parent.children -= 1;
            parent.usage = parent.usage.plus(counted);
        }
    }

    /// Draining queues that nothing is tagged with any more go.
    pub fn gone(&mut self, id: NodeId, counted: Usage) {
        if self.get(id).is_ok_and(|n| n.draining) {
            self.take_away(id, counted, &mut Before::default());
        }
    }

    fn create(
        &mut self,
        id: NodeId,
        parent: NodeId,
        kind: Kind,
        before: &mut Before,
    ) -> Result<(), PlaneError> {
        let last = self.generations.get(&id.index).copied();
        if self.nodes.contains_key(&id.index) || last.is_some_and(|last| id.generation <= last) {
            return Err(invalid(&format!("slot {} is taken or was used later", id.index)));
        }
        if self.get(parent)?.kind.is_queue() {
            return Err(invalid("a queue has no children"));
        }
        self.touch(parent, before)?.children += 1;
        before.nodes.entry(id.index).or_insert(None);
        before.generations.entry(id.index).or_insert(last);
        let (generation, parent) = (id.generation, parent.index);
        let node = Entry {
            generation,
            parent,
            kind,
            children: 0,
            draining: false,
            usage: Usage::default(),
            weight: 0,
            cap: 0,
            limit: 0,
            limit_bytes: 0,
        };
        self.nodes.insert(id.index, node);
        self.generations.insert(id.index, id.generation);
        Ok(())
    }

    fn delete(
        &mut self,
        id: NodeId,
        mode: DeleteMode,
        see: &mut dyn FnMut(NodeId) -> Result<Seen, PlaneError>,
        before: &mut Before,
    ) -> Result<Outcome, PlaneError> {
        let node = self.get(id)?;
        if id == NodeId::ROOT || id == NodeId::Q0 {
            return Err(invalid("root and q0 stay"));
        }
        if node.children > 0 {
            return Err(PlaneError::Busy("it has children".into()));
        }
        let seen = if node.kind.is_queue() { see(id)? } else { Seen::default() };
        if seen.busy {
            match mode {
                DeleteMode::Refuse => {
                    return Err(PlaneError::Busy("descriptors are tagged with it".into()));
                }
                DeleteMode::Drain => {
                    self.touch(id, before)?.draining = true;
                    return Ok(Outcome::Draining);
                }
                DeleteMode::Flush => {}
            }
        }
        self.take_away(id, seen.usage, before);
        Ok(Outcome::Done)
    }

    fn hang(&mut self, id: NodeId, parent: NodeId, before: &mut Before) -> Result<(), PlaneError> {
        let old = self.get(id)?.parent;
        if self.get(parent)?.kind.is_queue() {
            return Err(invalid("a queue has no children"));
        }
        let mut up = parent.index;
        while up != NodeId::ROOT.index {
            if up == id.index {
                return Err(invalid("below itself"));
            }
            up = self.nodes[&up].parent;
        }
        if let Some(old) = self.touch_slot(old, before) {
            old.children -= 1;
        }
        self.touch(parent, before)?.children += 1;
        self.touch(id, before)?.parent = parent.index;
        Ok(())
    }

    fn apply_one(
        &mut self,
        op: &Op,
        see: &mut dyn FnMut(NodeId) -> Result<Seen, PlaneError>,
        before: &mut Before,
    ) -> Result<Outcome, PlaneError> {
        match *op {
            Op::Create { id, parent, kind } => self.create(id, parent, kind, before)?,
            Op::Delete { id, mode } => return self.delete(id, mode, see, before),
            Op::Move { id, parent } => self.hang(id, parent, before)?,
            Op::ResetCounters { id } => {
                self.queue(id)?;
                let usage = see(id)?.usage;
                self.touch(id, before)?.usage = usage;
            }
            Op::SetClass { id, class } => {
                self.queue(id)?;
                self.touch(id, before)?.kind = Kind::Queue(class);
            }
            Op::SetPolicy { id, policy } => {
                if self.get(id)?.kind.is_queue() {
                    return Err(invalid("a queue has no policy"));
                }
                self.touch(id, before)?.kind = Kind::Scheduler(policy);
            }
            Op::SetLimit { id, members_max, bytes_max } => {
                self.queue(id)?;
                let node = self.touch(id, before)?;
                (node.limit, node.limit_bytes) = (members_max, bytes_max);
            }
            Op::Reweight { id, weight } => self.touch(id, before)?.weight = weight.milli(),
            Op::SetCap { id, cap } => self.touch(id, before)?.cap = cap.map_or(0, Cap::per_second),
            Op::Tune { id, .. } | Op::NodeParam { id, .. } => {
                self.get(id)?;
            }
        }
        Ok(Outcome::Done)
    }
}
