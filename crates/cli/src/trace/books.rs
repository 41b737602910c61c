// SPDX-License-Identifier: MIT OR Apache-2.0
//! The books of a trace: nodes, threads, who is runnable, who received what. Pure: events in, state
//! out; time is in the events.
//!
//! A thread is runnable from its wake-up to the settlement after which it does not go on (or its
//! removal), a node while a thread below it is. Work is charged to a queue and to everything above
//! it, as the scheduler does.
//!
//! A settlement covers a whole step, and siblings may have woken in its middle. On one CPU the
//! record of a wake-up says how far the step in service was, and that part is charged then: so
//! service is known exactly at every instant at which the set of the runnable changes.

use std::collections::{BTreeMap, HashMap};

use reserv_facts::tree::{class, policy};
use reserv_plane::cpu::full::{Event, EventKind};

use super::deadline::{Deadlines, Param};
use super::fair::Group;
use super::lags::Lags;
use super::level::Levels;
use super::rear::Rear;

/// SETTLE: more; NODE: a queue; ITEM: in service; START, END: complete.
pub(super) const FIRST: u8 = 1;
/// NODE: capped; ITEM: under the floor.
pub(super) const SECOND: u8 = 2;
pub(super) const SFQ: u16 = policy::SFQ as u16;
pub(super) const EEVDF: u16 = policy::EEVDF as u16;
pub(super) const MTRLS: u16 = policy::MTRLS as u16;
pub(super) const PRIO: u16 = policy::PRIO as u16;
pub(super) const EDF: u16 = class::EDF as u16;
/// WAKE says what is in service on a machine with one CPU only.
const ONLY_CPU: u16 = 0;
const LEVELS_MAX: usize = 64;
/// Rounding of one lag in a record, and of V: a unit of 2^-20 ns at the largest weight.
const LAG_ROUNDS_NS: u64 = 2000;
/// Runnable intervals kept for a node.
pub(super) const INTERVALS_MAX: usize = 1000;

/// What a trace says of one node.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) parent: u64,
    pub(super) weight: u64,
    pub(super) queue: bool,
    pub(super) alg: u16,
    /// Steps of its children that nobody chose.
    pub(super) forced: u64,
    /// How often its policy or class, or what is tuned, became another.
    pub(super) changes: u64,
    /// Lag, turn or decay of its policy, 0: the default; and the quantum in force. None: the
    /// scheduler does not tell.
    pub(super) tuned: Option<(u64, u64)>,
    /// The length of its requests, 0: estimated.
    pub(super) request: u64,
    /// New weights, or requests, during the trace.
    pub(super) reweights: u64,
    /// It had a cap at some time during the trace.
    pub(super) capped: bool,
    pub(super) gone: bool,
    /// The scheduler's own counter at both ends.
    pub(super) counter: [Option<u64>; 2],
    /// Work charged by settled records, whole steps; in the tags, and beside them (the kernel
    /// threads' floor).
    pub(super) work: u64,
    pub(super) floor: u64,
    pub(super) steps: u64,
    pub(super) step_max: u64,
    /// Runnable children or threads.
    pub(super) wanting: u64,
    pub(super) since: u64,
    pub(super) runnable_ns: u64,
    pub(super) intervals: Vec<(u64, u64)>,
    pub(super) interval_count: u64,
    /// Service in each slice of time.
    pub(super) series: Vec<u64>,
    pub(super) lag_series: Vec<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    queue: u64,
}

/// What does not fit together; each is a reason to trust no verdict.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    pub(super) count: u64,
    pub(super) first: Option<String>,
}

impl Doubts {
    fn add(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(text);
    }
}

/// Everything known so far.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) groups: BTreeMap<u64, Group>,
    /// What the policies of some nodes promise, by node.
    pub(super) lags: BTreeMap<u64, Lags>,
    pub(super) rears: BTreeMap<u64, Rear>,
    pub(super) levels: BTreeMap<u64, Levels>,
    pub(super) deadlines: Deadlines,
    threads: HashMap<u32, Thread>,
    /// How much of the step in service on each CPU is charged already.
    ahead: HashMap<u16, u64>,
    pub(super) doubts: Doubts,
    pub(super) begin: Option<u64>,
    pub(super) end: u64,
    pub(super) complete: [bool; 2],
    pub(super) cpus: u16,
    pub(super) quantum: u64,
    /// Threads served because they had waited too long, at both ends; and forced services.
    pub(super) starved: [u64; 2],
    pub(super) forced: u64,
    /// Forced services that the scheduler itself had counted at the start.
    forced_before: u32,
    pub(super) edits: u64,
    pub(super) resets: u64,
    pub(super) events: u64,
    slice: u64,
}

/// The slot of a node in its tree, of its handle; the root's is 0.
pub(super) const fn slot(id: u64) -> u64 {
    id & 0xffff_ffff
}

impl Books {
    /// Empty; a series has a value for each `slice` ns.
    pub(super) fn new(slice: u64) -> Self {
        Self {
            nodes: BTreeMap::new(),
            groups: BTreeMap::new(),
            lags: BTreeMap::new(),
            rears: BTreeMap::new(),
            levels: BTreeMap::new(),
            deadlines: Deadlines::default(),
            threads: HashMap::new(),
            ahead: HashMap::new(),
            doubts: Doubts::default(),
            begin: None,
            end: 0,
            complete: [false; 2],
            cpus: 1,
            quantum: 0,
            starved: [0; 2],
            forced: 0,
            forced_before: 0,
            edits: 0,
            resets: 0,
            events: 0,
            slice: slice.max(1),
        }
    }

    /// One event more.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of event")]
    pub(super) fn event(&mut self, e: &Event) {
        self.events += 1;
        if self.begin.is_some() && e.at < self.end {
            self.doubts.add(|| format!("time goes back at {}", e.at));
        }
        self.end = self.end.max(e.at);
        let starts = e.kind == EventKind::Start;
        if self.complete[1] || (starts && self.complete[0]) || (self.begin.is_none() && !starts) {
            self.doubts.add(|| format!("a record '{}' outside of start and end", e.kind.word()));
            return;
        }
        match e.kind {
            EventKind::Start => {
                self.begin.get_or_insert(e.at);
                self.complete[0] = e.flags & FIRST != 0;
                if self.complete[0] {
                    self.begun();
                }
                (self.cpus, self.quantum, self.starved[0]) = (e.unit.max(1), e.work, e.node2);
                self.forced_before = e.tid;
            }
            EventKind::End => {
                self.complete[1] = e.flags & FIRST != 0;
                self.starved[1] = e.node2;
                if self.complete[1] {
                    let (counted, seen) = (e.tid.wrapping_sub(self.forced_before), self.forced);
                    if u64::from(counted) != seen {
                        self.doubts.add(|| {
                            format!("the kernel ran threads by itself {counted} times, and {seen} of these were recorded")
                        });
                    }
                    self.close();
                }
            }
            EventKind::Node => self.node(e),
            EventKind::GoneNode => {
                if let Some(node) = self.nodes.get_mut(&e.node) {
                    node.gone = true;
                    let parent = node.parent;
                    self.lags.entry(parent).and_modify(|l| l.gone(e.node));
                    self.rears.entry(parent).and_modify(|r| r.weight(e.node, 0));
                    self.levels.entry(parent).and_modify(|l| l.gone(e.node));
                }
                if self.nodes.get(&e.node).is_some_and(|node| node.wanting > 0) {
                    self.doubts
                        .add(|| format!("node {:#x} goes while something waits in it", e.node));
                }
            }
            EventKind::Item => self.item(e),
            EventKind::Settle => {
                let ahead = self.ahead.remove(&e.unit).unwrap_or(0);
                self.settled(e, e.node, ahead);
                self.deadlines.had(e.tid, e.work);
                if e.flags & FIRST == 0 {
                    self.deadlines.done(e.tid, e.node, e.at, false);
                }
                if self.threads.get(&e.tid).is_none_or(|t| t.queue != e.node) {
                    self.doubts.add(|| {
                        format!("thread {} is served in a queue in which it does not wait", e.tid)
                    });
                } else if e.flags & FIRST == 0 {
                    self.threads.remove(&e.tid);
                    self.wants(e.node, false, e.at);
                }
            }
            EventKind::Wake => {
                if e.node2 != 0 {
                    let before = self.ahead.get(&ONLY_CPU).copied().unwrap_or(0);
                    if e.work > before {
                        self.charge(e.node2, e.work - before, e.at);
                        self.ahead.insert(ONLY_CPU, e.work);
                    }
                }
                if self.threads.insert(e.tid, Thread { queue: e.node }).is_some() {
                    self.doubts.add(|| format!("thread {} wakes although it waits already", e.tid));
                } else {
                    self.wants(e.node, true, e.at);
                    if self.is_edf(e.node) {
                        self.deadlines.wake(e.tid, e.node, e.at);
                    }
                }
            }
            EventKind::Remove => match self.threads.remove(&e.tid) {
                Some(thread) if thread.queue == e.node => {
                    self.deadlines.moved(e.tid, e.node, e.at);
                    self.wants(e.node, false, e.at);
                }
                _ => self
                    .doubts
                    .add(|| format!("thread {} stops waiting where it does not wait", e.tid)),
            },
            EventKind::Move => {
                if e.work > 0 {
                    let ahead = self.ahead.remove(&e.unit).unwrap_or(0);
                    self.settled(e, e.node, ahead);
                }
                self.deadlines.moved(e.tid, e.node, e.at);
                if let Some(thread) = self.threads.get_mut(&e.tid) {
                    thread.queue = e.node2;
                    self.wants(e.node2, true, e.at);
                    self.wants(e.node, false, e.at);
                }
            }
            EventKind::Floor => {
                for id in self.path(e.node) {
                    let (begin, slice) = (self.begin, self.slice);
                    if let Some(node) = self.nodes.get_mut(&id) {
                        node.floor += e.work;
                        add_at(&mut node.series, begin, slice, e.at, e.work);
                    }
                }
            }
            EventKind::Forced => {
                self.forced += 1;
                // A step that nobody chose is no fault of the order: comparisons begin anew.
                for id in self.path(e.node) {
                    let parent = self.nodes[&id].parent;
                    if let Some(group) = self.groups.get_mut(&parent) {
                        group.cut();
                    }
                    self.rears.entry(parent).and_modify(Rear::cut);
                    self.levels.entry(parent).and_modify(Levels::cut);
                    if let Some(node) = self.nodes.get_mut(&parent) {
                        node.forced += 1;
                    }
                }
            }
            EventKind::Edit => self.edits += 1,
            EventKind::Tune => {
                if let Some(node) = self.nodes.get_mut(&e.node) {
                    node.changes +=
                        u64::from(node.tuned.is_some_and(|tuned| tuned != (e.node2, e.work)));
                    node.tuned = Some((e.node2, e.work));
                }
            }
            EventKind::Child => self.child(e),
            EventKind::Param => {
                let param = Param { period: e.node, deadline: e.node2, budget: e.work };
                self.deadlines.param(e.tid, param, e.at);
            }
            EventKind::Server => {
                let left = (e.flags & SECOND == 0).then_some(i128::from(e.work.cast_signed()));
                self.deadlines.server(
                    e.tid,
                    (e.flags & FIRST != 0).then_some((e.node, e.node2)),
                    left,
                );
            }
            EventKind::Reset => {
                self.resets += 1; // nothing is judged then
                self.threads.clear();
                self.ahead.clear();
                let now = e.at;
                for node in self.nodes.values_mut().filter(|n| n.wanting > 0) {
                    node.wanting = 0;
                    rest(node, now);
                }
                for group in self.groups.values_mut() {
                    group.clear();
                }
            }
        }
    }

    /// From a queue to the root.
    fn path(&self, queue: u64) -> Vec<u64> {
        let mut path = Vec::new();
        let mut id = queue;
        while let Some(node) = self.nodes.get(&id) {
            path.push(id);
            if node.parent == 0 && slot(id) == 0 {
                break;
            }
            id = node.parent;
            if path.len() > LEVELS_MAX {
                break;
            }
        }
        path
    }

    fn is_edf(&self, queue: u64) -> bool {
        self.nodes.get(&queue).is_some_and(|n| n.queue && n.alg == EDF)
    }

    /// The lists of the beginning are complete.
    fn begun(&mut self) {
        for lags in self.lags.values() {
            // Each is rounded, and V by less than a unit of the sum of the weights.
            let (off, count) = lags.imbalance();
            if off > count * LAG_ROUNDS_NS {
                self.doubts.add(|| format!("lags that should sum to 0 are {off} ns off"));
            }
        }
    }

    /// What a policy other than sfq keeps of its child.
    fn child(&mut self, e: &Event) {
        let Some(node) = self.nodes.get_mut(&e.node) else { return };
        node.reweights += u64::from(self.complete[0] && node.request != e.node2);
        node.request = e.node2;
        let (parent, weight) = (node.parent, node.weight);
        match self.nodes.get(&parent).map_or(SFQ, |p| p.alg) {
            EEVDF if !self.complete[0] && e.flags & FIRST != 0 => {
                self.lags.entry(parent).or_default().begin(e.node, weight, e.work.cast_signed());
            }
            PRIO => {
                self.levels.entry(parent).or_default().place(e.node, Some(u64::from(e.tid)), None);
            }
            _ => {}
        }
    }

    fn node(&mut self, e: &Event) {
        let listing = self.complete[0];
        let (parent, weight) = (e.node2, u64::from(e.tid));
        let node = self.nodes.entry(e.node).or_default();
        let moved = node.parent != parent;
        let wanted = node.wanting > 0;
        let (old_parent, old_weight) = (node.parent, node.weight);
        node.queue = e.flags & FIRST != 0;
        node.capped |= e.flags & SECOND != 0;
        node.changes += u64::from(listing && node.alg != e.unit);
        node.reweights += u64::from(listing && old_weight != weight);
        node.alg = e.unit;
        node.counter[usize::from(listing)] = Some(e.work);
        if listing && node.counter[0].is_none() {
            // Made during the trace; what it has by now is known from then on.
            node.counter[0] = Some(0);
        }
        if moved && wanted {
            self.wanted_above(old_parent, e.node, false, e.at);
        }
        if moved && old_parent != 0 {
            self.lags.entry(old_parent).and_modify(|l| l.gone(e.node));
            self.rears.entry(old_parent).and_modify(|r| r.weight(e.node, 0));
            self.levels.entry(old_parent).and_modify(|l| l.gone(e.node));
        }
        if slot(e.node) != 0 {
            match self.nodes.get(&parent).map_or(SFQ, |p| p.alg) {
                EEVDF if !moved => {
                    let lags = self.lags.entry(parent).or_default();
                    lags.reweight(e.node, weight);
                    if wanted {
                        lags.join(e.node, weight);
                    }
                }
                MTRLS => self.rears.entry(parent).or_default().weight(e.node, weight),
                PRIO => self.levels.entry(parent).or_default().place(e.node, None, Some(weight)),
                _ => {}
            }
        }
        let node = self.nodes.entry(e.node).or_default();
        node.parent = parent;
        node.weight = weight;
        if moved && wanted {
            self.wanted_above(parent, e.node, true, e.at);
        } else if old_weight != weight
            && wanted
            && let Some(group) = self.groups.get_mut(&parent)
        {
            group.leave(e.node);
            group.join(e.node, weight);
        }
    }

    fn item(&mut self, e: &Event) {
        if self.complete[0] {
            return; // the list at the end: the books have it already
        }
        if e.flags & SECOND != 0 {
            return;
        }
        self.threads.insert(e.tid, Thread { queue: e.node });
        self.wants(e.node, true, e.at);
        if self.is_edf(e.node) {
            self.deadlines.present(e.tid, e.node);
        }
        if e.flags & FIRST != 0 && e.work > 0 {
            // What it ran before belongs to the time before, which the scheduler's lags do not know
            // yet.
            self.ahead.insert(e.unit, e.work);
            for id in self.path(e.node) {
                let parent = self.nodes[&id].parent;
                self.lags.entry(parent).and_modify(|l| l.served(id, e.work));
            }
        }
    }

    /// A thread in `queue` begins or ceases to want.
    fn wants(&mut self, queue: u64, more: bool, at: u64) {
        if !self.nodes.contains_key(&queue) {
            self.doubts
                .add(|| format!("a thread is in a queue {queue:#x} that is not in the trace"));
            return;
        }
        self.wanted_above(queue, 0, more, at);
    }

    /// The child `child` (0: a thread) of `id` begins or ceases to want; and so on upwards.
    fn wanted_above(&mut self, id: u64, child: u64, more: bool, at: u64) {
        let (mut id, mut child) = (id, child);
        for _ in 0..LEVELS_MAX {
            if child != 0 {
                let weight = self.nodes.get(&child).map_or(0, |n| n.weight);
                let group = self.groups.entry(id).or_default();
                if more {
                    group.join(child, weight);
                } else {
                    group.leave(child);
                }
                self.told(id, child, weight, more);
            }
            let Some(node) = self.nodes.get_mut(&id) else { return };
            if more {
                node.wanting += 1;
                if node.wanting > 1 {
                    return;
                }
                node.since = at;
                if node.queue && node.alg == EDF {
                    self.deadlines.wants(id, true, at);
                }
            } else {
                if node.wanting == 0 {
                    self.doubts.add(|| format!("more threads stop waiting in {id:#x} than waited"));
                    return;
                }
                node.wanting -= 1;
                if node.wanting > 0 {
                    return;
                }
                rest(node, at);
                if node.queue && node.alg == EDF {
                    self.deadlines.wants(id, false, at);
                }
            }
            if slot(id) == 0 {
                return; // the root
            }
            child = id;
            id = node.parent;
        }
    }

    /// A child's wish, to whoever watches over its parent's policy.
    fn told(&mut self, parent: u64, child: u64, weight: u64, more: bool) {
        match self.nodes.get(&parent).map_or(SFQ, |p| p.alg) {
            EEVDF => {
                let lags = self.lags.entry(parent).or_default();
                if more { lags.join(child, weight) } else { lags.leave(child) }
            }
            MTRLS => {
                let rear = self.rears.entry(parent).or_default();
                if more { rear.join(child) } else { rear.leave(child) }
            }
            PRIO => {
                let levels = self.levels.entry(parent).or_default();
                if more { levels.join(child) } else { levels.leave(child) }
            }
            _ => {}
        }
    }

    /// A whole step, of which `ahead` is charged already.
    fn settled(&mut self, e: &Event, queue: u64, ahead: u64) {
        self.charge(queue, e.work.saturating_sub(ahead), e.at);
        for id in self.path(queue) {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.work += e.work;
                node.steps += 1;
                // A step may have begun before the trace; it counts in whole for the bound.
                node.step_max = node.step_max.max(e.work);
                let parent = node.parent;
                if let Some(group) = self.groups.get_mut(&parent) {
                    group.stepped(id);
                }
                self.lags.entry(parent).and_modify(Lags::stepped);
            }
        }
    }

    /// Part of a step.
    fn charge(&mut self, queue: u64, work: u64, at: u64) {
        if work == 0 {
            return;
        }
        let path = self.path(queue);
        if path.is_empty() {
            self.doubts.add(|| format!("service in a queue {queue:#x} that is not in the trace"));
        }
        for id in path {
            let (begin, slice) = (self.begin, self.slice);
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            add_at(&mut node.series, begin, slice, at, work);
            let (parent, edf) = (node.parent, node.queue && node.alg == EDF);
            if edf {
                self.deadlines.served(id, work, at);
            }
            if slot(id) == 0 {
                continue;
            }
            self.lags.entry(parent).and_modify(|l| l.served(id, work));
            self.rears.entry(parent).and_modify(|r| r.served(id, work));
            self.levels.entry(parent).and_modify(|l| l.served(id, work));
            if let Some(group) = self.groups.get_mut(&parent) {
                group.served(id, work);
                let lag = group.lag_ns(id);
                let slot = slot_of(begin, slice, at);
                if let Some(lag) = lag
                    && let Some(node) = self.nodes.get_mut(&id)
                {
                    node.lag_series.resize(node.lag_series.len().max(slot + 1), 0);
                    node.lag_series[slot] = lag;
                }
            }
        }
    }

    /// The end: whoever wants still does.
    fn close(&mut self) {
        let end = self.end;
        self.deadlines.close(|tid| self.threads.get(&tid).map(|t| t.queue), end);
        for node in self.nodes.values_mut().filter(|n| n.wanting > 0) {
            rest(node, end);
        }
        for group in self.groups.values_mut() {
            group.cut();
        }
    }
}

fn rest(node: &mut Node, at: u64) {
    node.runnable_ns += at.saturating_sub(node.since);
    node.interval_count += 1;
    if node.intervals.len() < INTERVALS_MAX {
        node.intervals.push((node.since, at));
    }
}

fn slot_of(begin: Option<u64>, slice: u64, at: u64) -> usize {
    usize::try_from(at.saturating_sub(begin.unwrap_or(at)) / slice).unwrap_or(0)
}

fn add_at(series: &mut Vec<u64>, begin: Option<u64>, slice: u64, at: u64, work: u64) {
    let slot = slot_of(begin, slice, at);
    series.resize(series.len().max(slot + 1), 0);
    series[slot] += work;
}
