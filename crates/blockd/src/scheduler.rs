// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which request is next: the requests that wait, as items of the tree; edits; and what is counted.
//! It knows neither front end nor backend.
//!
//! A request waits in its owner's queue, or in q0's where it has none or that queue is gone or
//! going. It is charged on the path to the root when it is dispatched ([`cost`]). At most `batch`
//! are dispatched and not completed; of those the disk has `depth`, in the order of their sectors
//! (`sched/disk/window.c`). While a queue is waited for (`sched/disk/anticipate.c`) and it is its
//! turn, nothing is dispatched. Under policy cello requests wait outside of the tree ([`cello`]).

mod cello;
mod cost;
mod edit;

use std::collections::VecDeque;

use reserv_facts::tree::SLOTS;

use self::cello::{Cello, Handed, class_of};
use self::cost::Costs;
use crate::book::{Book, Entry};
use crate::front::Arrived;
use crate::owners::Owner;
use crate::tree::{Thinkers, Tree, Window};
use crate::wire::{self, Node, Q0, RsBatch, RsOp, TREE_MAX, WINDOW_MAX, op};

/// Requests that wait in the tree; more stand in line before it.
const ITEMS: u32 = 4096;
/// Beside the requests, each queue has an item that keeps a draining queue from going by itself:
/// the phantom that stands for the queue while it is waited for.
const PHANTOMS: u32 = SLOTS;
/// And the one that was dispatched last, which is in service in the tree.
const ROOM: u32 = ITEMS + PHANTOMS + 1;
/// How long a queue is waited for where an arm is the disk's and nothing else is said, ns.
const WAIT: u64 = 2_000_000;
const SECTOR: u64 = 512;

#[derive(Debug)]
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
    /// Whether Cello handed it out.
    cello: Option<Handed>,
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
    cello: Cello,
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
            tree: Tree::new(SLOTS, ROOM, cost::REQUEST.into()),
            book,
            waiting: (0..ROOM).map(|_| None).collect(),
            line: VecDeque::new(),
            lanes: vec![Lane::default(); TREE_MAX],
            costs: Costs::new(TREE_MAX),
            window: Window::new(),
            staged: (0..WINDOW_MAX).map(|_| None).collect(),
            free: (0..WINDOW_MAX).collect(),
            thinkers: Thinkers::new(PHANTOMS),
            cello: Cello::new(ITEMS),
            phantom_of: vec![0; ROOM as usize],
            held: None,
            wait: 0,
            device: (1, false),
            strays: 0,
        };
        this.plant()?;
        if this.book.cello().is_some() {
            this.cello.switch(true, 0);
        }
        this.retune();
        Ok(this)
    }

    /// The core's tree, as the book says.
    fn plant(&mut self) -> Result<(), String> {
        let entries: Vec<Entry> = self.book.entries().map(|(_, entry)| *entry).collect();
        let mut there = vec![wire::ROOT, Q0];
        let mut ops = Vec::new();
        let mut left: Vec<&Entry> =
            entries.iter().filter(|entry| !there.contains(&entry.id)).collect();
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
                        b: Self::alg_in_tree(entry.kind.into(), entry.alg.into()),
                        ..RsOp::default()
                    });
                }
                !ready
            });
            if left.len() == before {
                return Err(format!(
                    "the state file is damaged: {before} nodes have no parent in it"
                ));
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
            if entry.cap != 0 {
                let (a, b) = (entry.cap, entry.burst);
                ops.push(RsOp { code: op::CAP, node: entry.id, a, b, ..RsOp::default() });
            }
            if entry.alg != 0 && (entry.id == wire::ROOT || entry.id == Q0) {
                let code = if entry.kind == wire::SCHED { op::POLICY } else { op::CLASS };
                let a = Self::alg_in_tree(entry.kind.into(), entry.alg.into());
                ops.push(RsOp { code, node: entry.id, a, ..RsOp::default() });
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
            let mut batch =
                RsBatch { count: u32::try_from(part.len()).unwrap_or(0), ..RsBatch::default() };
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
        let size = u32::try_from(disk.batch)
            .ok()
            .filter(|&batch| batch > 0)
            .unwrap_or(depth)
            .min(WINDOW_MAX);
        let sized = self.window.resize(size, depth.min(size));
        debug_assert!(sized, "sizes of a window");
        self.costs.set_kind(disk.cost);
        // With several at once a queue that has one is behind whatever is done; and without an arm
        // others cost little.
        let usual = if arm && size == 1 { WAIT } else { 0 };
        let cello = self.cello.is_on();
        self.cello.tune(&self.book, depth);
        let wait = if cello {
            0
        } else if disk.anticipate == wire::AUTO {
            usual
        } else {
            disk.anticipate
        };
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
        let owner = request.owner.map_or_else(
            || {
                self.strays += 1;
                Q0
            },
            |owner| owner.queue,
        );
        let owner = if owner == 0 { Q0 } else { owner };
        self.enter(Waiting { request, queue: owner, estimate: 0 }, now);
    }

    fn enter(&mut self, mut waiting: Waiting, now: u64) {
        if self.cello.is_on() {
            self.enter_cello(waiting, now);
            return;
        }
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
        let due = self.deadline(&waiting).map_or(0, |deadline| now.saturating_add(deadline));
        self.tree.wake(item, waiting.estimate, waiting.request.offset / SECTOR, due, now);
        let lane = &mut self.lanes[at];
        lane.queued += 1;
        lane.bytes += u64::from(waiting.request.len);
        self.waiting[item as usize] = Some(waiting);
        if self.thinkers.arrived(&mut self.tree, at, now) {
            self.held = None;
        }
    }

    /// How long after it came a request is due: as it says itself, else as its queue does.
    fn deadline(&self, waiting: &Waiting) -> Option<u64> {
        let of_queue =
            || self.book.get(waiting.queue).map(|entry| entry.deadline).filter(|&ns| ns > 0);
        waiting.request.owner.and_then(Owner::deadline).or_else(of_queue)
    }

    fn enter_cello(&mut self, mut waiting: Waiting, now: u64) {
        let takes = |entry: &Entry| entry.kind == wire::QUEUE && entry.dying == 0;
        if !self.book.get(waiting.queue).is_some_and(takes) {
            waiting.queue = Q0;
        }
        let (queue, bytes) = (waiting.queue, u64::from(waiting.request.len));
        let alg = self.book.get(queue).map_or(0, |entry| entry.alg);
        let class = class_of(queue, alg, waiting.request.owner);
        let deadline = self.deadline(&waiting);
        if let Err(waiting) = self.cello.arrive(waiting, class, deadline, now) {
            self.line.push_back(waiting);
            return;
        }
        let lane = &mut self.lanes[index(queue)];
        lane.queued += 1;
        lane.bytes += bytes;
    }

    /// A request leaves its queue for the disk or the window before it.
    fn count_out(&mut self, waiting: &Waiting) {
        self.book.count(waiting.queue, cost::bytes(&waiting.request).into());
        let lane = &mut self.lanes[index(waiting.queue)];
        lane.queued -= 1;
        lane.bytes -= u64::from(waiting.request.len);
        lane.running += 1;
    }

    /// Cello takes the tree's place, or the reverse: what waits goes over, and what is under way
    /// stays whose it is.
    fn switch(&mut self, now: u64) {
        let on = !self.cello.is_on();
        let moved = if on { self.leave_tree(now) } else { self.cello.leave() };
        for waiting in &moved {
            let lane = &mut self.lanes[index(waiting.queue)];
            lane.queued -= 1;
            lane.bytes -= u64::from(waiting.request.len);
        }
        self.cello.switch(on, now);
        self.retune();
        let line = std::mem::take(&mut self.line);
        for waiting in moved.into_iter().chain(line) {
            self.enter(waiting, now);
        }
    }

    /// All that wait in the tree, in its order; nobody is charged, and no phantom stays.
    fn leave_tree(&mut self, now: u64) -> Vec<Waiting> {
        let mut all = Vec::new();
        if let Some(queue) = self.held {
            self.let_go(queue, now);
            self.held = None;
        }
        while let Ok(item) = self.tree.pick(now) {
            match (self.waiting[item as usize].take(), self.phantom_of[item as usize]) {
                (Some(waiting), _) => {
                    self.tree.charge(item, 0, now);
                    all.push(waiting);
                }
                (None, 0) => break,
                (None, queue) => self.let_go(queue, now),
            }
        }
        all
    }

    /// The request that the backend should have next; or when to ask again (0: at the next arrival
    /// or completion).
    pub fn dispatch(&mut self, now: u64) -> Result<(Arrived, Ticket), u64> {
        let mut again = 0;
        while !self.cello.is_on() && self.window.room() > 0 {
            if let Err(at) = self.stage(now) {
                again = at;
                break;
            }
        }
        let Some(name) = self.window.take() else {
            let (waiting, handed) =
                if self.cello.is_on() { self.cello.next(now) } else { None }.ok_or(again)?;
            self.count_out(&waiting);
            let Waiting { request, queue, estimate } = waiting;
            return Ok((request, Ticket { queue, begun: now, estimate, cello: Some(handed) }));
        };
        let Some(Waiting { request, queue, estimate }) = self.staged[name as usize].take() else {
            return Err(again);
        };
        self.free.push(name);
        Ok((request, Ticket { queue, begun: now, estimate, cello: None }))
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
        self.count_out(&waiting);
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
        let took = self.costs.took(ticket.begun, now);
        let lane = &mut self.lanes[at];
        lane.running = lane.running.saturating_sub(1);
        if let Some(handed) = ticket.cello {
            self.cello.done(handed, took, now);
            if let Some(next) = self.line.pop_front() {
                self.enter(next, now);
            }
            return;
        }
        self.window.done();
        let lane = self.lanes[at];
        if lane.running == 0 && lane.queued == 0 {
            self.thinkers.ended(at, now);
        }
        self.costs.done(at, ticket.estimate, took);
    }

    /// Whether the book knows this node, and whether the tree does.
    pub(crate) fn knows(&self, id: u64) -> (bool, bool) {
        (self.book.get(id).is_some(), self.tree.kind(id) != 0)
    }

    /// Whether nothing waits.
    pub fn is_idle(&self) -> bool {
        let none = |of: &[Option<Waiting>]| of.iter().all(Option::is_none);
        self.line.is_empty() && none(&self.waiting) && none(&self.staged) && self.cello.is_empty()
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
