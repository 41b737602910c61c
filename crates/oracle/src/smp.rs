// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated units (CPUs) that serve one core: they pick, serve for at most a quantum, settle and
//! pick again, each at its own instants. Time is simulated; everything follows from the seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::core::{Build, Core, IDLE, Id, Op, QUEUE, QUEUED, ROOT, SCHED, Setup, id};
use crate::gms::Ideal;
use crate::rng::Rng;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Always wants a unit.
    Hog,
    /// Runs for some time and sleeps for some, about as long as told.
    Sleeper {
        /// Mean burst.
        run: u64,
        /// Mean sleep.
        sleep: u64,
    },
}

#[derive(Clone, Debug)]
struct Thread {
    item: u32,
    habit: Habit,
    left: u64,
    mask: Option<u64>,
    waits_since: u64,
    /// Longest wait for service.
    worst_wait: u64,
    /// The unit that served it last.
    unit: Option<u32>,
}

/// Counters of what a run cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Steps begun.
    pub switches: u64,
    /// Sections under the tree's lock: each call of wake, pick or settle is one.
    pub sections: u64,
    /// Wake-ups.
    pub wakes: u64,
    /// Steps after which the thread waits again, because its unit serves another.
    pub requeued: u64,
    /// Steps of a thread on another unit than its last one.
    pub moved: u64,
}

/// Some CPUs, a tree, and threads.
#[derive(Debug)]
pub struct Machine {
    /// The core.
    pub core: Core,
    /// Now.
    pub now: u64,
    /// Costs so far.
    pub cost: Cost,
    units: u32,
    quantum: u64,
    /// Steps end up to so late, as with ticks.
    pub late: u64,
    rng: Rng,
    threads: Vec<Thread>,
    by_item: BTreeMap<u32, usize>,
    running: Vec<Option<(usize, u64, u64)>>,
    events: BinaryHeap<Reverse<(u64, u64, Tick)>>,
    order: u64,
    next_index: u32,
    ideal: Ideal,
    /// Time that units stood idle while a thread that they may serve waited.
    pub wasted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tick {
    End(u32),
    Wake(usize),
    Look(u32),
}

impl Machine {
    /// A machine with only the root and q0.
    pub fn new(build: Build, units: u32, quantum: u64, seed: u64) -> Self {
        let setup = Setup { build, nodes: 512, items: 8192, units, quantum, start: 0 };
        let mut m = Self {
            core: Core::new(setup),
            now: 1_000_000,
            cost: Cost::default(),
            units,
            quantum,
            late: 0,
            rng: Rng::new(seed),
            threads: Vec::new(),
            by_item: BTreeMap::new(),
            running: vec![None; units as usize],
            events: BinaryHeap::new(),
            order: 0,
            next_index: 2,
            ideal: Ideal::default(),
            wasted: 0,
        };
        m.ideal.parent.insert(crate::core::Q0, ROOT);
        m.ideal.weight.insert(crate::core::Q0, 100_000);
        for u in 0..units {
            // Units are not in step: each first looks at an instant of its own.
            let at = m.now + quantum * u64::from(u) / u64::from(units);
            m.push(at, Tick::Look(u));
        }
        m
    }

    fn push(&mut self, at: u64, tick: Tick) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, tick)));
    }

    /// A new node with a weight in thousandths.
    pub fn node(&mut self, parent: Id, kind: u32, alg: u32, weight: u32) -> Id {
        let node = id(self.next_index, 1);
        self.next_index += 1;
        self.core.must(self.now, Op::Create { node, parent, kind, alg });
        if weight > 0 {
            self.core.must(self.now, Op::Reweight { node, weight });
        }
        self.ideal.parent.insert(node, parent);
        self.ideal.weight.insert(node, weight);
        node
    }

    /// A new queue of class ts.
    pub fn queue(&mut self, parent: Id, weight: u32) -> Id {
        self.node(parent, QUEUE, 0, weight)
    }

    /// A new scheduler.
    pub fn sched(&mut self, parent: Id, weight: u32) -> Id {
        self.node(parent, SCHED, 0, weight)
    }

    /// Change a weight.
    pub fn reweight(&mut self, node: Id, weight: u32) {
        self.core.must(self.now, Op::Reweight { node, weight });
        self.ideal.weight.insert(node, weight);
    }

    /// A new thread, awake from now on; `mask`: the units it may use.
    ///
    /// # Panics
    /// When the queue does not take it.
    pub fn thread(&mut self, queue: Id, habit: Habit, mask: Option<u64>) -> usize {
        self.weighed(queue, 1000, habit, mask)
    }

    /// The same with a weight in the queue, in thousandths.
    ///
    /// # Panics
    /// When the queue does not take it.
    pub fn weighed(&mut self, queue: Id, weight: u32, habit: Habit, mask: Option<u64>) -> usize {
        let item = self.core.item_new(queue, weight, 0).expect("room");
        if let Some(m) = mask {
            self.core.item_units(item, Some([m, 0, 0, 0]));
        }
        let t = self.threads.len();
        self.threads.push(Thread {
            item,
            habit,
            left: u64::MAX,
            mask,
            waits_since: self.now,
            worst_wait: 0,
            unit: None,
        });
        self.by_item.insert(item, t);
        *self.ideal.threads.entry(queue).or_default() += 1;
        let at = self.now;
        self.push(at, Tick::Wake(t));
        t
    }

    /// Units that each node should have, if all threads always want one.
    pub fn ideal(&self) -> BTreeMap<Id, f64> {
        use num_traits::ToPrimitive;
        let shares = self.ideal.shares(ROOT, self.units);
        shares.into_iter().map(|(k, v)| (k, v.to_f64().expect("small"))).collect()
    }

    /// Service of a node so far, the running steps included.
    pub fn service(&self, node: Id) -> u64 {
        let running = self.running.iter().flatten().filter(|(t, _, _)| {
            let mut at = self.core.item(self.threads[*t].item).queue;
            while at != 0 && at != node {
                at = self.core.node(at).parent;
            }
            at == node
        });
        self.core.node(node).service + running.map(|(_, since, _)| self.now - since).sum::<u64>()
    }

    /// Service of a thread so far, without the running step.
    pub fn served(&self, thread: usize) -> u64 {
        self.core.item(self.threads[thread].item).service
    }

    /// Longest wait of a thread, the present one included.
    pub fn worst_wait(&self, thread: usize) -> u64 {
        let t = &self.threads[thread];
        let waits = self.core.item(t.item).state == QUEUED;
        t.worst_wait.max(if waits { self.now - t.waits_since } else { 0 })
    }

    /// A sleeping or running thread's item.
    pub fn item(&self, thread: usize) -> u32 {
        self.threads[thread].item
    }

    fn about(&mut self, mean: u64) -> u64 {
        mean / 2 + self.rng.below(mean.max(1))
    }

    fn look(&mut self, unit: u32) {
        if self.running[unit as usize].is_some() {
            return;
        }
        self.cost.sections += 1;
        let Some(item) = self.core.pick(unit, self.now) else {
            let next = self.core.tree().next_ns;
            if next > self.now {
                self.push(next, Tick::Look(unit));
            }
            return;
        };
        self.cost.switches += 1;
        let t = self.by_item[&item];
        let waited = self.now - self.threads[t].waits_since;
        let th = &mut self.threads[t];
        th.worst_wait = th.worst_wait.max(waited);
        self.cost.moved += u64::from(th.unit.replace(unit).is_some_and(|last| last != unit));
        let late = if self.late > 0 { self.rng.below(self.late) } else { 0 };
        let length = th.left.min(self.quantum + late);
        self.running[unit as usize] = Some((t, self.now, length));
        let at = self.now + length;
        self.push(at, Tick::End(unit));
    }

    /// Let time pass.
    pub fn run(&mut self, time: u64) {
        let end = self.now + time;
        while let Some(Reverse((at, _, tick))) = self.events.peek().copied() {
            if at > end {
                break;
            }
            self.events.pop();
            let idle = self.running.iter().enumerate().filter(|(_, r)| r.is_none());
            let waste = idle.filter(|(u, _)| self.someone_waits_for(*u)).count() as u64;
            self.wasted += waste * (at - self.now);
            self.now = at;
            match tick {
                Tick::Look(unit) => self.look(unit),
                Tick::Wake(t) => {
                    let item = self.threads[t].item;
                    if self.core.item(item).state == IDLE {
                        if let Habit::Sleeper { run, .. } = self.threads[t].habit {
                            self.threads[t].left = self.about(run);
                        }
                        self.threads[t].waits_since = self.now;
                        self.cost.sections += 1;
                        self.cost.wakes += 1;
                        self.core.wake(item, self.now);
                        self.kick(t);
                    }
                }
                Tick::End(unit) => {
                    let (t, _, length) = self.running[unit as usize].take().expect("runs");
                    let th = &mut self.threads[t];
                    let mut more = true;
                    if th.left != u64::MAX {
                        th.left -= length;
                        more = th.left > 0;
                    }
                    th.waits_since = self.now;
                    let (item, habit) = (th.item, th.habit);
                    self.cost.sections += 1;
                    self.core.settle(item, length, more, self.now);
                    if let (false, Habit::Sleeper { sleep, .. }) = (more, habit) {
                        let at = self.now + self.about(sleep);
                        self.push(at, Tick::Wake(t));
                    }
                    self.look(unit);
                    // Queued again, it may be allowed on another unit that is idle.
                    if more && self.core.item(item).state == QUEUED {
                        self.cost.requeued += 1;
                        self.kick(t);
                    }
                }
            }
        }
        self.now = end;
    }

    /// An idle unit that may serve a thread looks at once.
    fn kick(&mut self, thread: usize) {
        let mask = self.threads[thread].mask.unwrap_or(u64::MAX);
        let free =
            (0..self.units).find(|&u| self.running[u as usize].is_none() && mask >> u & 1 == 1);
        if let Some(u) = free {
            self.look(u);
        }
    }

    fn someone_waits_for(&self, unit: usize) -> bool {
        self.threads.iter().any(|t| {
            t.mask.unwrap_or(u64::MAX) >> unit & 1 == 1 && self.core.item(t.item).state == QUEUED
        })
    }
}
