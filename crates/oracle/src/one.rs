// SPDX-License-Identifier: MIT OR Apache-2.0
//! One simulated unit that serves a core, in simulated time: threads run and sleep, a step ends
//! when its slice does, when its thread blocks, or when the core says that one that woke displaces
//! it; at once, or at the next tick.

use crate::core::{Build, Core, IDLE, Id, Op, QUEUE, QUEUED, SERVICE, Setup};

/// What a thread does next, told each time it has done it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wants this much service.
    Run(u64),
    /// Wants none until then.
    SleepUntil(u64),
    /// Nothing more.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Runs(u64),
    Sleeps(u64),
    Ended,
}

/// A thread of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Its item.
    pub item: u32,
    phase: Phase,
    /// When it last began to want service.
    pub woke: u64,
    /// The longest that it waited from a wake-up to its first service.
    pub worst_wait: u64,
    /// Times that it woke.
    pub wakes: u64,
    first: bool,
}

/// A unit, a core and threads.
#[derive(Debug)]
pub struct One {
    /// The core.
    pub core: Core,
    /// Now.
    pub now: u64,
    /// Steps end at multiples of this only, where they do not block; 0: anywhere.
    pub tick: u64,
    /// Threads, in the order of their making.
    pub threads: Vec<Thread>,
    /// The thread in service, since when, and until when at most.
    pub serving: Option<(usize, u64, u64)>,
}

impl One {
    /// An empty tree.
    pub fn new(build: Build, quantum: u64, tick: u64) -> Self {
        let core = Core::new(Setup { build, quantum, ..Setup::default() });
        Self { core, now: 0, tick, threads: Vec::new(), serving: None }
    }

    /// A node with a weight.
    pub fn node(&mut self, node: Id, parent: Id, kind: u32, alg: u32, weight: u32) -> Id {
        self.core.must(self.now, Op::Create { node, parent, kind, alg });
        self.core.must(self.now, Op::Reweight { node, weight });
        node
    }

    /// A queue with a weight.
    pub fn queue(&mut self, node: Id, parent: Id, class: u32, weight: u32) -> Id {
        self.node(node, parent, QUEUE, class, weight)
    }

    /// A thread, which sleeps until `at`.
    pub fn thread(&mut self, queue: Id, at: u64) -> usize {
        let item = self.core.item_new(queue, 1000, 0).expect("an item");
        let phase = Phase::Sleeps(at);
        self.threads.push(Thread { item, phase, woke: 0, worst_wait: 0, wakes: 0, first: false });
        self.threads.len() - 1
    }

    /// Whether a thread wants service.
    pub fn wants(&self, k: usize) -> bool {
        matches!(self.threads[k].phase, Phase::Runs(_))
    }

    /// What a thread received, the step in service included.
    pub fn service(&self, k: usize) -> u64 {
        let step = match self.serving {
            Some((s, since, _)) if s == k => self.now - since,
            _ => 0,
        };
        self.core.item(self.threads[k].item).service + step
    }

    fn tick_after(&self, at: u64) -> u64 {
        if self.tick == 0 { at } else { at.div_ceil(self.tick) * self.tick }
    }

    /// What follows for a thread that has done what it said.
    fn next(&mut self, k: usize, what: &mut impl FnMut(usize, u64) -> Next) {
        self.threads[k].phase = match what(k, self.now) {
            Next::Run(work) => Phase::Runs(work.max(1)),
            Next::SleepUntil(at) if at > self.now => Phase::Sleeps(at),
            Next::SleepUntil(_) => Phase::Sleeps(self.now + 1),
            Next::End => Phase::Ended,
        };
    }

    /// The step in service ends now.
    fn settle(&mut self, what: &mut impl FnMut(usize, u64) -> Next) {
        let Some((k, since, _)) = self.serving.take() else { return };
        let work = self.now - since;
        if let Phase::Runs(left) = self.threads[k].phase {
            if work >= left {
                self.next(k, what);
            } else {
                self.threads[k].phase = Phase::Runs(left - work);
            }
        }
        let more = self.wants(k);
        self.core.settle(self.threads[k].item, work, more, self.now);
        if more && work > 0 {
            // What it runs on with is no new wake-up.
            self.threads[k].first = false;
        }
    }

    fn begin(&mut self) {
        if self.serving.is_some() {
            return;
        }
        let Some(item) = self.core.pick(0, self.now) else { return };
        let k = self.threads.iter().position(|t| t.item == item).expect("a thread");
        let t = &mut self.threads[k];
        if t.first {
            t.first = false;
            t.worst_wait = t.worst_wait.max(self.now - t.woke);
        }
        let Phase::Runs(left) = t.phase else { panic!("a sleeper was picked") };
        let end = self.tick_after(self.now + self.core.item(item).slice);
        self.serving = Some((k, self.now, end.min(self.now + left)));
    }

    /// Go on until `until`. `what` says what a thread does next; `look` is called after each event.
    pub fn run(
        &mut self,
        until: u64,
        mut what: impl FnMut(usize, u64) -> Next,
        mut look: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let wake = self.threads.iter().filter_map(|t| match t.phase {
                Phase::Sleeps(at) => Some(at),
                _ => None,
            });
            let wake = wake.min().unwrap_or(u64::MAX);
            let end = self.serving.map_or(u64::MAX, |s| s.2);
            let at = wake.min(end).min(until);
            self.now = self.now.max(at);
            if at == until && at < wake && at < end {
                return Ok(());
            }
            if end <= self.now {
                self.settle(&mut what);
            }
            let mut displaced = false;
            for k in 0..self.threads.len() {
                if !matches!(self.threads[k].phase, Phase::Sleeps(t) if t <= self.now) {
                    continue;
                }
                self.next(k, &mut what);
                if !self.wants(k) {
                    continue;
                }
                let t = &mut self.threads[k];
                (t.woke, t.first) = (self.now, true);
                t.wakes += 1;
                let item = t.item;
                match self.core.item(item).state {
                    IDLE => self.core.wake(item, self.now),
                    s => return Err(format!("thread {k} wakes in state {s}")),
                }
                if let Some((s, since, _)) = self.serving {
                    displaced |= self.core.preempts(item, self.threads[s].item, self.now - since);
                }
            }
            if displaced && let Some((s, since, end)) = self.serving {
                let stop = self.tick_after(self.now);
                self.serving = Some((s, since, end.min(stop)));
                if stop == self.now {
                    self.settle(&mut what);
                }
            }
            self.begin();
            for (k, t) in self.threads.iter().enumerate() {
                let state = self.core.item(t.item).state;
                let good = match t.phase {
                    Phase::Runs(_) => state == QUEUED || state == SERVICE,
                    _ => state == IDLE,
                };
                if !good {
                    return Err(format!(
                        "thread {k} is {:?} and its item in state {state}",
                        t.phase
                    ));
                }
            }
            if self.serving.is_none() && (0..self.threads.len()).any(|k| self.wants(k)) {
                return Err("idle, though a thread waits".into());
            }
            if self.core.tree().poison != 0 {
                return Err(format!("poison at line {}", self.core.tree().poison_line));
            }
            look(self)?;
        }
    }
}
