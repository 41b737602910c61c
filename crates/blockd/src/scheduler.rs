// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which request is next: the requests that wait, as items of the tree; edits; and what is counted. It knows neither front end nor backend.
//!
//! A request waits in its owner's queue, or in q0's where it has none or that queue is gone or going. It is charged on the path to the root when it is
//! dispatched ([`cost`]). At most `batch` are dispatched and not completed; of those the disk has `depth`, in the order of their sectors
//! (`sched/disk/window.c`). While a queue is waited for (`sched/disk/anticipate.c`) and it is its turn, nothing is dispatched.

mod cost;

use std::collections::VecDeque;

use self::cost::Costs;
use crate::book::{Book, Entry};
use crate::front::Arrived;
use crate::tree::{Thinkers, Tree, Window};
use crate::wire::{self, Node, Q0, RsBatch, RsOp, TREE_MAX, WINDOW_MAX, delete, op, tune};

/// Requests that wait in the tree; more stand in line before it.
const ITEMS: u32 = 4096;
/// Beside the requests, each queue has an item that keeps a draining queue from going by itself: the phantom that stands for the queue while it is waited for.
const PHANTOMS: u32 = 16384;
/// How long a queue is waited for where an arm is the disk's and nothing else is said, ns.
const WAIT: u64 = 2_000_000;
const SECTOR: u64 = 512;

struct Waiting {
    request: Arrived,
    queue: u64,
    estimate: u32,
}

/// A dispatched request, to be given back when it is done.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// Whose it was.
    pub queue: u64,
    begun: u64,
    estimate: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    queued: u32,
    running: u32,
    bytes: u64,
}

/// See the head of this file.
pub struct Scheduler {
    tree: Tree,
    /// What the next worker will know.
    pub book: Book,
    waiting: Vec<Option<Waiting>>,
    line: VecDeque<Waiting>,
    lanes: Vec<Lane>,
    costs: Costs,
    window: Window,
    /// What is in the window, by its names there; and free names.
    staged: Vec<Option<Waiting>>,
    free: Vec<u32>,
    thinkers: Thinkers,
    /// Of an item that is a phantom: its queue.
    phantom_of: Vec<u64>,
    /// Whose phantom was picked.
    held: Option<u64>,
    /// How long a queue is waited for.
    wait: u64,
    /// Requests at once at the disk, and whether that has an arm.
    device: (u32, bool),
    /// Requests without an owner in the table.
    pub strays: u64,
}

fn index(id: u64) -> usize {
    usize::try_from(id & 0xffff_ffff).unwrap_or(TREE_MAX).min(TREE_MAX - 1)
}

impl Scheduler {
    /// With the tree of a book.
    ///
    /// # Errors
    /// In words: the book's tree is none.
    pub fn new(book: Book) -> Result<Self, String> {
        let mut this = Self {
            tree: Tree::new(16384, ITEMS + PHANTOMS, cost::REQUEST.into()),
            book,
            waiting: (0..ITEMS + PHANTOMS).map(|_| None).collect(),
            line: VecDeque::new(),
            lanes: vec![Lane::default(); TREE_MAX],
            costs: Costs::new(TREE_MAX),
            window: Window::new(),
            staged: (0..WINDOW_MAX).map(|_| None).collect(),
            free: (0..WINDOW_MAX).collect(),
            thinkers: Thinkers::new(PHANTOMS),
            phantom_of: vec![0; (ITEMS + PHANTOMS) as usize],
            held: None,
            wait: 0,
            device: (1, false),
            strays: 0,
        };
        this.plant()?;
        this.retune();
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
            self.lend(entry.id);
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

    /// Requests that the disk has at once, and whether it has an arm.
    pub fn set_device(&mut self, depth: u32, arm: bool) {
        self.device = (depth.clamp(1, WINDOW_MAX), arm);
        self.retune();
    }

    /// As the book says.
    fn retune(&mut self) {
        let disk = self.book.disk();
        let (depth, arm) = self.device;
        let size = u32::try_from(disk.batch).ok().filter(|&batch| batch > 0).unwrap_or(depth).min(WINDOW_MAX);
        let sized = self.window.resize(size, depth.min(size));
        debug_assert!(sized, "sizes of a window");
        self.costs.set_kind(disk.cost);
        // With several at once a queue that has one is behind whatever is done; and without an arm others cost little.
        let usual = if arm && size == 1 { WAIT } else { 0 };
        let wait = if disk.anticipate == tune::AUTO { usual } else { disk.anticipate };
        if wait != self.wait {
            self.wait = wait;
            self.thinkers.set_wait(wait);
        }
    }

    /// A queue gets its phantom.
    fn lend(&mut self, id: u64) {
        if let Some(item) = self.tree.join(id) {
            self.thinkers.begin(&mut self.tree, index(id), item, self.wait);
            self.phantom_of[item as usize] = id;
        }
    }

    /// And gives it back.
    fn take_back(&mut self, id: u64, now: u64) {
        let (item, picked) = self.thinkers.end(&mut self.tree, index(id), now);
        if picked {
            self.held = None;
        }
        if let Some(item) = item {
            self.phantom_of[item as usize] = 0;
            self.tree.leave(item);
        }
    }

    /// A queue is waited for no longer.
    fn let_go(&mut self, id: u64, now: u64) {
        if self.thinkers.go(&mut self.tree, index(id), now) {
            self.held = None;
        }
    }

    /// A request has come.
    pub fn arrive(&mut self, request: Arrived, now: u64) {
        let owner = request.owner.unwrap_or_else(|| {
            self.strays += 1;
            Q0
        });
        let owner = if owner == 0 { Q0 } else { owner };
        self.enter(Waiting { request, queue: owner, estimate: 0 }, now);
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
        let at = index(waiting.queue);
        waiting.estimate = self.costs.estimate(at, &waiting.request);
        let deadline = self.book.get(waiting.queue).map_or(0, |entry| entry.deadline);
        let due = if deadline == 0 { 0 } else { now.saturating_add(deadline) };
        self.tree.wake(item, waiting.estimate, waiting.request.offset / SECTOR, due, now);
        let lane = &mut self.lanes[at];
        lane.queued += 1;
        lane.bytes += u64::from(waiting.request.len);
        self.waiting[item as usize] = Some(waiting);
        if self.thinkers.arrived(&mut self.tree, at, now) {
            self.held = None;
        }
    }

    /// The request that the backend should have next; or when to ask again (0: at the next arrival or completion).
    pub fn dispatch(&mut self, now: u64) -> Result<(Arrived, Ticket), u64> {
        let mut again = 0;
        while self.window.room() > 0 {
            if let Err(at) = self.stage(now) {
                again = at;
                break;
            }
        }
        let name = self.window.take().ok_or(again)?;
        let Some(Waiting { request, queue, estimate }) = self.staged[name as usize].take() else {
            return Err(again);
        };
        self.free.push(name);
        Ok((request, Ticket { queue, begun: now, estimate }))
    }

    /// One request goes from the tree to the window; or when to ask again.
    fn stage(&mut self, now: u64) -> Result<(), u64> {
        let (item, waiting) = loop {
            if let Some(queue) = self.held {
                match self.thinkers.until(index(queue)) {
                    u64::MAX => return Err(0),
                    until if until > now => return Err(until),
                    _ => self.let_go(queue, now),
                }
                self.held = None;
            }
            let item = self.tree.pick(now)?;
            match (self.waiting[item as usize].take(), self.phantom_of[item as usize]) {
                (Some(waiting), _) => break (item, waiting),
                (None, 0) => return Err(0),
                (None, queue) => self.held = Some(queue),
            }
        };
        let (queue, at) = (waiting.queue, index(waiting.queue));
        let sector = waiting.request.offset / SECTOR;
        let charged = self.costs.charge(at, waiting.estimate);
        let known = self.book.get(queue).is_some_and(|entry| entry.dying == 0);
        if self.wait > 0 && self.lanes[at].queued == 1 && known && !self.book.is_background(queue) {
            self.thinkers.hold(&mut self.tree, at, waiting.estimate, sector + 1, now);
        }
        self.tree.charge(item, charged.into(), now);
        self.book.count(queue, cost::bytes(&waiting.request).into());
        let lane = &mut self.lanes[at];
        lane.queued -= 1;
        lane.bytes -= u64::from(waiting.request.len);
        lane.running += 1;
        let name = self.free.pop().ok_or(0_u64)?;
        self.staged[name as usize] = Some(waiting);
        let put = self.window.put(name, sector);
        debug_assert!(put, "there was room");
        if let Some(next) = self.line.pop_front() {
            self.enter(next, now);
        }
        Ok(())
    }

    /// A dispatched request is done.
    pub fn done(&mut self, ticket: Ticket, now: u64) {
        let at = index(ticket.queue);
        self.window.done();
        let lane = &mut self.lanes[at];
        lane.running = lane.running.saturating_sub(1);
        if lane.running == 0 && lane.queued == 0 {
            self.thinkers.ended(at, now);
        }
        self.costs.done(at, ticket.begun, ticket.estimate, now);
    }

    /// Whether nothing waits.
    pub fn is_idle(&self) -> bool {
        let none = |of: &[Option<Waiting>]| of.iter().all(Option::is_none);
        self.line.is_empty() && none(&self.waiting) && none(&self.staged)
    }

    /// A tunable of ours, of which the tree knows nothing: 0, or a negative errno.
    fn check_tune(&self, batch: &RsBatch, i: usize) -> i32 {
        let RsOp { node, a, b, .. } = batch.op[i];
        let is_queue = |id: u64| {
            let made = |op: &RsOp| (op.code, op.node, op.a) == (op::CREATE, id, wire::QUEUE.into());
            batch.op[..i].iter().any(made) || self.book.get(id).is_some_and(|entry| entry.kind == wire::QUEUE)
        };
        let fine = match a {
            tune::BATCH => node == wire::ROOT && b <= WINDOW_MAX.into(),
            tune::ANTICIPATE => node == wire::ROOT && (b <= tune::NS_MAX || b == tune::AUTO),
            tune::COST => node == wire::ROOT && b <= wire::cost::TIME,
            tune::DEADLINE => is_queue(node) && b <= tune::NS_MAX,
            _ => false,
        };
        if fine { 0 } else { -libc::EINVAL }
    }

    /// A batch: 0, or the core's negative errno with nothing changed.
    pub fn edit(&mut self, batch: &mut RsBatch, now: u64) -> i32 {
        batch.now = now;
        let count = (batch.count as usize).min(wire::BATCH_MAX);
        // What the tree is told, and where in the batch that stands.
        let mut told = RsBatch { count: 0, ..*batch };
        let mut places = Vec::with_capacity(count);
        for i in 0..count {
            let RsOp { code, node, a, .. } = batch.op[i];
            if code == op::TUNE && (tune::BATCH..=tune::DEADLINE).contains(&a) {
                let answer = self.check_tune(batch, i);
                if answer < 0 {
                    (batch.error, batch.failed) = (answer, u32::try_from(i).unwrap_or(0));
                    return answer;
                }
                batch.op[i].answer = 0;
            } else {
                told.op[places.len()] = batch.op[i];
                places.push(i);
            }
            if code == op::DELETE && a == delete::DRAIN {
                self.let_go(node, now);
            }
        }
        told.count = u32::try_from(places.len()).unwrap_or(0);
        let answer = self.edit_tree(&mut told, now);
        for (k, &i) in places.iter().enumerate() {
            batch.op[i] = told.op[k];
        }
        let failed = places.get(told.failed as usize).copied().unwrap_or(0);
        (batch.error, batch.failed) = (told.error, u32::try_from(failed).unwrap_or(0));
        if answer == 0 {
            self.book.write(batch);
            self.retune();
        }
        answer
    }

    fn edit_tree(&mut self, batch: &mut RsBatch, now: u64) -> i32 {
        let count = batch.count as usize;
        let flushed: Vec<usize> = (0..count)
            .filter(|&i| batch.op[i].code == op::DELETE && batch.op[i].a == delete::NOW)
            .filter(|&i| self.tree.kind(batch.op[i].node) == u32::from(wire::QUEUE))
            .collect();
        for &i in &flushed {
            // What waits leaves after the batch: until then the queue drains.
            self.take_back(batch.op[i].node, now);
            batch.op[i].a = 1;
        }
        let answer = self.tree.edit(batch);
        if answer < 0 {
            for &i in &flushed {
                self.lend(batch.op[i].node);
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
                self.costs.begin(index(node));
                self.lend(node);
            }
            debug_assert!(answer >= 0, "a batch in effect");
        }
        0
    }

    /// What waits in a queue that goes stands at the end of q0, in its order.
    fn hand_over(&mut self, from: u64, now: u64) {
        let mut items: Vec<u32> = (0..u32::try_from(self.waiting.len()).unwrap_or(0))
            .filter(|&i| self.waiting[i as usize].as_ref().is_some_and(|w| w.queue == from))
            .collect();
        items.sort_by_key(|&i| self.waiting[i as usize].as_ref().map(|w| w.request.handle));
        self.let_go(Q0, now);
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
    pub fn collect(&mut self, id: u64, now: u64) -> i32 {
        let draining = self.book.get(id).is_some_and(|entry| entry.dying != 0);
        if !draining {
            return -libc::ESTALE;
        }
        if self.lanes[index(id)].queued > 0 {
            return -libc::EBUSY;
        }
        self.take_back(id, now);
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
#[cfg(test)]
mod tests_disk;
