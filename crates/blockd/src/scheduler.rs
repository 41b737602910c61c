// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which request is next: the requests that wait, as items of the tree; edits; and what is counted. It knows neither front end nor backend.
//!
//! A request waits in its owner's queue, or in q0's where it has none or that queue is gone or going. It is charged on the path to the root when it is
//! dispatched, by its bytes. At most `depth` are dispatched and not completed.

use std::collections::VecDeque;

use crate::book::{Book, Entry};
use crate::front::{Arrived, Op};
use crate::tree::Tree;
use crate::wire::{self, Node, Q0, RsBatch, RsOp, TREE_MAX, delete, op};

/// Requests that wait in the tree; more stand in line before it.
const ITEMS: u32 = 4096;
/// Usual size of a step, in bytes.
const QUANTUM: u64 = 65536;
/// What a request costs that moves no data.
const COST_MIN: u32 = 4096;
/// Beside the requests, each queue has an item that never waits: it keeps a draining queue from going by itself.
const ANCHORS: u32 = 16384;

struct Waiting {
    request: Arrived,
    queue: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    queued: u32,
    running: u32,
    bytes: u64,
    anchor: Option<u32>,
}

/// See the head of this file.
pub struct Scheduler {
    tree: Tree,
    /// What the next worker will know.
    pub book: Book,
    waiting: Vec<Option<Waiting>>,
    line: VecDeque<Waiting>,
    lanes: Vec<Lane>,
    /// Requests without an owner in the table.
    pub strays: u64,
}

fn index(id: u64) -> usize {
    usize::try_from(id & 0xffff_ffff).unwrap_or(TREE_MAX).min(TREE_MAX - 1)
}

const fn cost(request: &Arrived) -> u32 {
    match request.op {
        Op::Read | Op::Write => request.len,
        Op::Flush | Op::Discard | Op::Zero => COST_MIN,
    }
}

impl Scheduler {
    /// With the tree of a book.
    ///
    /// # Errors
    /// In words: the book's tree is none.
    pub fn new(book: Book) -> Result<Self, String> {
        let mut this = Self {
            tree: Tree::new(16384, ITEMS + ANCHORS, QUANTUM),
            book,
            waiting: (0..ITEMS + ANCHORS).map(|_| None).collect(),
            line: VecDeque::new(),
            lanes: vec![Lane::default(); TREE_MAX],
            strays: 0,
        };
        this.plant()?;
        Ok(this)
    }

    /// The core's tree, as the book says.
    fn plant(&mut self) -> Result<(), String> {
        let entries: Vec<Entry> = self.book.entries().map(|(_, entry)| *entry).collect();
        let mut there = vec![wire::ROOT, Q0];
        let mut ops = Vec::new();
        let mut left: Vec<&Entry> = entries.iter().filter(|entry| !there.contains(&entry.id)).collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|entry| {
                let ready = there.contains(&entry.parent);
                if ready {
                    there.push(entry.id);
                    ops.push(RsOp {
                        code: op::CREATE,
                        node: entry.id,
                        parent: entry.parent,
                        a: entry.kind.into(),
                        b: entry.alg.into(),
                        ..RsOp::default()
                    });
                }
                !ready
            });
            if left.len() == before {
                return Err(format!("{before} nodes of the book hang in the air"));
            }
        }
        for entry in &entries {
            if entry.id != wire::ROOT {
                ops.push(RsOp {
                    code: op::REWEIGHT,
                    node: entry.id,
                    a: entry.weight.into(),
                    ..RsOp::default()
                });
            }
            if entry.alg != 0 && (entry.id == wire::ROOT || entry.id == Q0) {
                let code = if entry.kind == wire::SCHED { op::POLICY } else { op::CLASS };
                ops.push(RsOp { code, node: entry.id, a: entry.alg.into(), ..RsOp::default() });
            }
        }
        self.plant_ops(&ops)?;
        for entry in entries.iter().filter(|entry| entry.kind == wire::QUEUE) {
            self.anchor(entry.id);
        }
        let dying: Vec<RsOp> = entries
            .iter()
            .filter(|entry| entry.dying != 0)
            .map(|entry| RsOp { code: op::DELETE, node: entry.id, a: 1, ..RsOp::default() })
            .collect();
        self.plant_ops(&dying)?;
        self.tree.set_seq(self.book.seq());
        Ok(())
    }

    fn plant_ops(&mut self, ops: &[RsOp]) -> Result<(), String> {
        for part in ops.chunks(wire::BATCH_MAX) {
            let mut batch = RsBatch { count: u32::try_from(part.len()).unwrap_or(0), ..RsBatch::default() };
            batch.op[..part.len()].copy_from_slice(part);
            let answer = self.tree.edit(&mut batch);
            if answer < 0 {
                let wrong = batch.op[(batch.failed as usize).min(wire::BATCH_MAX - 1)];
                return Err(format!("the core refuses the book's tree: {answer} at {wrong:?}"));
            }
        }
        Ok(())
    }

    fn anchor(&mut self, id: u64) {
        let item = self.tree.join(id);
        self.lanes[index(id)].anchor = item;
    }

    fn weigh(&mut self, id: u64) {
        if let Some(item) = self.lanes[index(id)].anchor.take() {
            self.tree.leave(item);
        }
    }

    /// A request has come.
    pub fn arrive(&mut self, request: Arrived, now: u64) {
        let owner = request.owner.unwrap_or_else(|| {
            self.strays += 1;
            Q0
        });
        let owner = if owner == 0 { Q0 } else { owner };
        self.enter(Waiting { request, queue: owner }, now);
    }

    fn enter(&mut self, mut waiting: Waiting, now: u64) {
        let mut item = self.tree.join(waiting.queue);
        if item.is_none() && waiting.queue != Q0 {
            waiting.queue = Q0;
            item = self.tree.join(Q0);
        }
        let Some(item) = item else {
            self.line.push_back(waiting);
            return;
        };
        self.tree.wake(item, cost(&waiting.request), now);
        let lane = &mut self.lanes[index(waiting.queue)];
        lane.queued += 1;
        lane.bytes += u64::from(waiting.request.len);
        self.waiting[item as usize] = Some(waiting);
    }

    /// The request that the backend should have next, and its queue; or when to ask again (0: at the next arrival).
    pub fn dispatch(&mut self, now: u64) -> Result<(Arrived, u64), u64> {
        let item = self.tree.pick(now)?;
        let Some(Waiting { request, queue }) = self.waiting[item as usize].take() else { return Err(0) };
        let cost = cost(&request);
        self.tree.charge(item, cost.into(), now);
        self.book.count(queue, cost.into());
        let lane = &mut self.lanes[index(queue)];
        lane.queued -= 1;
        lane.bytes -= u64::from(request.len);
        lane.running += 1;
        if let Some(next) = self.line.pop_front() {
            self.enter(next, now);
        }
        Ok((request, queue))
    }

    /// A dispatched request of this queue is done.
    pub fn done(&mut self, queue: u64) {
        let lane = &mut self.lanes[index(queue)];
        lane.running = lane.running.saturating_sub(1);
    }

    /// Whether nothing waits.
    pub fn is_idle(&self) -> bool {
        self.line.is_empty() && self.waiting.iter().all(Option::is_none)
    }

    /// A batch: 0, or the core's negative errno with nothing changed.
    pub fn edit(&mut self, batch: &mut RsBatch, now: u64) -> i32 {
        batch.now = now;
        let count = (batch.count as usize).min(wire::BATCH_MAX);
        let flushed: Vec<usize> = (0..count)
            .filter(|&i| batch.op[i].code == op::DELETE && batch.op[i].a == delete::NOW)
            .filter(|&i| self.tree.kind(batch.op[i].node) == u32::from(wire::QUEUE))
            .collect();
        for &i in &flushed {
            // What waits leaves after the batch: until then the queue drains.
            self.weigh(batch.op[i].node);
            batch.op[i].a = 1;
        }
        let answer = self.tree.edit(batch);
        if answer < 0 {
            for &i in &flushed {
                self.anchor(batch.op[i].node);
                batch.op[i].a = delete::NOW;
            }
            return answer;
        }
        for &i in &flushed {
            self.hand_over(batch.op[i].node, now);
            batch.op[i].answer = 0;
            batch.op[i].a = delete::NOW;
        }
        for i in 0..count {
            let RsOp { code, node, a, answer, .. } = batch.op[i];
            if code == op::CREATE && a == u64::from(wire::QUEUE) && self.tree.kind(node) != 0 {
                self.lanes[index(node)] = Lane::default();
                self.anchor(node);
            }
            debug_assert!(answer >= 0, "a batch in effect");
        }
        self.book.write(batch);
        0
    }

    /// What waits in a queue that goes stands at the end of q0, in its order.
    fn hand_over(&mut self, from: u64, now: u64) {
        let mut items: Vec<u32> = (0..u32::try_from(self.waiting.len()).unwrap_or(0))
            .filter(|&i| self.waiting[i as usize].as_ref().is_some_and(|w| w.queue == from))
            .collect();
        items.sort_by_key(|&i| self.waiting[i as usize].as_ref().map(|w| w.request.handle));
        for item in items {
            if self.tree.change_queue(item, Q0, now)
                && let Some(waiting) = &mut self.waiting[item as usize]
            {
                waiting.queue = Q0;
                let bytes = u64::from(waiting.request.len);
                let lane = &mut self.lanes[index(from)];
                lane.queued -= 1;
                lane.bytes -= bytes;
                let lane = &mut self.lanes[index(Q0)];
                lane.queued += 1;
                lane.bytes += bytes;
            }
        }
    }

    /// A draining queue goes, if nothing waits in it: 0, or a negative errno.
    pub fn collect(&mut self, id: u64) -> i32 {
        let draining = self.book.get(id).is_some_and(|entry| entry.dying != 0);
        if !draining {
            return -libc::ESTALE;
        }
        if self.lanes[index(id)].queued > 0 {
            return -libc::EBUSY;
        }
        self.weigh(id);
        self.book.forget(id);
        0
    }

    /// 0, or why and where the tree is inconsistent.
    pub fn poison(&self) -> u64 {
        self.tree.poison()
    }

    fn node(&self, entry: &Entry) -> Node {
        let Lane { queued, running, bytes, .. } = self.lanes[index(entry.id)];
        Node {
            id: entry.id,
            parent: entry.parent,
            service: entry.service,
            service_base: entry.service_base,
            served: entry.served,
            bytes,
            weight: entry.weight,
            queued,
            running,
            kind: entry.kind,
            alg: entry.alg,
            dying: entry.dying,
            pad: 0,
        }
    }

    /// One node.
    pub fn sample_one(&self, id: u64) -> Option<Node> {
        self.book.get(id).map(|entry| self.node(entry))
    }

    /// Nodes from a slot on; and the slot to go on with, 0 at the end.
    pub fn sample(&self, first: usize) -> (Vec<Node>, usize) {
        let mut nodes = Vec::new();
        for (at, entry) in self.book.entries().filter(|(at, _)| *at >= first) {
            if nodes.len() == wire::NODES_MAX {
                return (nodes, at);
            }
            nodes.push(self.node(entry));
        }
        (nodes, 0)
    }
}

#[cfg(test)]
mod tests;
