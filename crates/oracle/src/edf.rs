// SPDX-License-Identifier: MIT OR Apache-2.0
//! Class edf: the exact model of its rules in lockstep with the core; beside it what is promised
//! (`promises.rs`).

mod guarantee;
mod promises;

pub use guarantee::guaranteed;
pub use promises::{alone, below_eevdf, below_sfq, budgets, no_way_round, victims};

use std::collections::BTreeMap;

use crate::core::{
    Build, Core, EDF, FIFO, IDLE, Id, ONE, Params, QUEUE, QUEUED, ROOT, SERVICE, Setup, id,
};
use crate::core::{Op, Q0, TS};
use crate::one::{Next, One};
use crate::rng::Rng;

const MS: u64 = 1_000_000;
const STEP: u64 = 4 * MS;
/// The core makes no step shorter than this.
const SLICE_MIN: u64 = MS / 10;
const E: Id = id(2, 1);

#[expect(clippy::cast_precision_loss, reason = "times of a short trace")]
fn real(x: u64) -> f64 {
    x as f64
}

/// A thread and its server. Times are multiples of 8 ns, so that the core's arithmetic is exact.
#[derive(Clone, Debug, Default)]
struct Server {
    p: Params,
    left: i128,
    due: u64,
    release: u64,
    /// There was a period.
    on: bool,
    ready: bool,
    /// Its step began with budget: what it has counts.
    counts: bool,
    seq: u64,
}

impl Server {
    fn relative(&self) -> u64 {
        if self.p.deadline == 0 { self.p.period } else { self.p.deadline }
    }

    /// No more than a budget too much is kept in mind.
    fn count(&mut self) {
        if self.p.budget > 0 {
            self.left = self.left.max(-i128::from(self.p.budget));
        }
    }

    fn had(&mut self, work: u64) {
        if self.counts {
            self.left -= i128::from(work);
        }
    }

    fn start(&mut self, at: u64) {
        let late =
            self.on && self.left < 0 && at >= self.release && at - self.release < self.p.period;
        self.left = i128::from(self.p.budget) + if late { self.left } else { 0 };
        (self.due, self.release, self.on) = (at + self.relative(), at + self.p.period, true);
    }

    /// Rules 1 and 2.
    fn wake(&mut self, at: u64) {
        self.count();
        if self.p.period == 0 {
        } else if !self.on || at >= self.release {
            self.start(at);
        } else if self.left > 0 {
            let (ahead, d) = (i128::from(self.due.saturating_sub(at)), i128::from(self.relative()));
            let budget = i128::from(self.p.budget);
            if self.left * d > ahead * budget {
                if d == i128::from(self.p.period) {
                    self.start(at);
                } else {
                    self.left = ahead / 8 * budget / d * 8;
                }
            }
        }
    }

    /// Rule 3, when the thread wants more, and when its release comes.
    fn again(&mut self, at: u64) {
        self.count();
        if self.p.period == 0 {
        } else if !self.on {
            self.start(at);
        } else if self.left <= 0 && at >= self.release {
            if at - self.release >= self.p.period {
                self.start(at);
            } else {
                self.left += i128::from(self.p.budget);
                self.due = self.release + self.relative();
                self.release += self.p.period;
            }
        }
    }

    /// Its place: with budget by deadline, then without in turns.
    fn place(&self) -> (bool, u64, u64) {
        let with = self.p.period > 0 && self.left > 0;
        (!with, if with { self.due } else { 0 }, self.seq)
    }
}

fn params(r: &mut Rng) -> Params {
    if r.chance(20) {
        return Params::default();
    }
    let period = r.range(2, 40) * MS;
    let deadline = if r.chance(30) { r.range(period / MS / 2 + 1, period / MS) * MS } else { 0 };
    let span = if deadline == 0 { period } else { deadline };
    Params { period, deadline, budget: (span / r.range(2, 12)) / 8 * 8, ..Params::default() }
}

/// Random events, compared with the model after each: who is picked, every budget and deadline, who
/// displaces whom.
#[expect(clippy::too_many_lines, reason = "one trace, from its events to its checks")]
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xedf);
    let mut core = Core::new(Setup { build, units: 1, ..Setup::default() });
    core.must(0, Op::Create { node: E, parent: ROOT, kind: QUEUE, alg: EDF });
    // All of the unit but less than a millionth.
    core.must(0, Op::Reweight { node: E, weight: 1_000_000_000 });
    core.must(0, Op::Reweight { node: Q0, weight: 1 });
    let mut servers: BTreeMap<u32, Server> = BTreeMap::new();
    for _ in 0..r.range(1, 6) {
        servers.insert(core.item_new(E, ONE, 0).ok_or("no item")?, Server::default());
    }
    let items: Vec<u32> = servers.keys().copied().collect();
    let mut now = *r.pick(&[MS, MS, u64::MAX - 30 * MS + 1, (1 << 63) - 40 * MS]) / 8 * 8;
    if now > 1 << 62 {
        // Times are differences of the clock only; the model has no such end.
        now = MS;
    }
    let mut seq = 0;
    let mut serving: Option<u32> = None;
    for step in 0..500 {
        let long = if r.chance(10) { 40 * MS } else { MS };
        now += r.below(long) / 8 * 8;
        let said = |e: String| format!("step {step}: {e}");
        let promised = |servers: &BTreeMap<u32, Server>| -> u64 {
            servers
                .values()
                .filter(|s| s.p.period > 0)
                .map(|s| (s.p.budget * 1_000_000).div_ceil(s.relative()))
                .sum()
        };
        match r.below(20) {
            0..=9 => {
                if let Some(i) = serving.take() {
                    let some = r.range(1, 4 * MS);
                    let work = *r.pick(&[STEP, some, some / 4 + 8, 20 * MS]) / 8 * 8;
                    let more = r.chance(70);
                    now += work;
                    core.settle(i, work, more, now);
                    let s = servers.get_mut(&i).expect("ours");
                    s.had(work);
                    s.ready = more;
                    if more {
                        s.again(now);
                        seq += 1;
                        s.seq = seq;
                    }
                } else {
                    let got = core.pick(0, now);
                    // Those whose release has come, by their releases.
                    let mut due: Vec<(u64, u32)> = servers
                        .iter()
                        .filter(|(_, s)| {
                            s.ready && s.p.period > 0 && s.left <= 0 && s.release <= now
                        })
                        .map(|(&i, s)| (s.release, i))
                        .collect();
                    due.sort_unstable();
                    for (_, i) in due {
                        let s = servers.get_mut(&i).expect("ours");
                        while s.left <= 0 && s.release <= now {
                            s.again(now);
                        }
                    }
                    let want = servers
                        .iter()
                        .filter(|x| x.1.ready)
                        .min_by_key(|x| x.1.place())
                        .map(|x| *x.0);
                    if got != want {
                        return Err(said(format!("picks {got:?}, wanted {want:?} of {servers:?}")));
                    }
                    if let Some(i) = got {
                        let s = servers.get_mut(&i).expect("ours");
                        (s.counts, s.ready) = (!s.place().0, false);
                        let (left, slice) = (servers[&i].left, core.item(i).slice);
                        if servers[&i].p.period > 0
                            && left > 0
                            && i128::from(slice) > left.max(i128::from(SLICE_MIN))
                        {
                            return Err(said(format!("a step of {slice} with {left} left")));
                        }
                    }
                    serving = got;
                }
            }
            10..=16 => {
                let i = *r.pick(&items);
                match core.item(i).state {
                    QUEUED if r.chance(20) => {
                        core.remove(i);
                        servers.get_mut(&i).expect("ours").ready = false;
                    }
                    IDLE => {
                        core.wake(i, now);
                        let s = servers.get_mut(&i).expect("ours");
                        s.wake(now);
                        s.ready = true;
                        seq += 1;
                        s.seq = seq;
                        if let Some(c) = serving {
                            let ran = r.below(4 * MS);
                            let (s, c2) = (&servers[&i], &servers[&c]);
                            let has = s.p.period > 0 && s.left > 0;
                            let other = c2.counts && c2.p.period > 0 && c2.left > i128::from(ran);
                            let want = has && (!other || s.due < c2.due);
                            if core.preempts(i, c, ran) != want {
                                return Err(said(format!(
                                    "{i} displaces {c}: wanted {want}, {servers:?}"
                                )));
                            }
                        }
                    }
                    _ => {}
                }
            }
            _ => {
                let i = *r.pick(&items);
                if serving == Some(i) {
                    continue;
                }
                let p = params(&mut r);
                let mut after = servers.clone();
                after.get_mut(&i).expect("ours").p = p;
                let fits = promised(&after) <= 1_000_000 || promised(&after) <= promised(&servers);
                let want = if fits { Ok(()) } else { Err(-28) };
                let got = core.item_params(i, p, now);
                if got != want {
                    return Err(said(format!("{p:?}: {got:?}, wanted {want:?}")));
                }
                if fits {
                    let s = servers.get_mut(&i).expect("ours");
                    s.count();
                    s.left += i128::from(p.budget) - i128::from(s.p.budget);
                    s.p = p;
                    if p.period > 0 && s.on && now + p.period < s.release {
                        s.release = now + p.period;
                    }
                    if s.ready {
                        s.wake(now);
                        seq += 1;
                        s.seq = seq;
                    }
                }
            }
        }
        core.check().map_err(said)?;
        for (&i, s) in &servers {
            let v = core.item(i);
            if s.p.period > 0
                && s.on
                && (i128::from(v.left), v.due, v.release) != (s.left, s.due, s.release)
            {
                return Err(said(format!("{i} is {v:?}, wanted {s:?}")));
            }
        }
    }
    Ok(())
}

/// The worked example of `class_edf.c`, one letter for each unit of time.
pub fn example(build: Build) -> String {
    let mut one = One::new(build, 100 * MS, 0);
    one.queue(E, ROOT, EDF, ONE);
    one.core.must(0, Op::Reweight { node: Q0, weight: 1 });
    for (period, budget) in [(4, 1), (6, 3), (0, 0)] {
        let k = one.thread(E, 0);
        let p = Params { period: period * MS, budget: budget * MS, ..Params::default() };
        one.core.item_params(one.threads[k].item, p, 0).expect("they fit");
    }
    let mut begin = [0, 0];
    let mut busy = [false, false];
    let what = |k: usize, _: u64| {
        if k == 2 {
            return Next::Run(1 << 40);
        }
        busy[k] = !busy[k];
        if busy[k] {
            return Next::Run([1, 3][k] * MS);
        }
        begin[k] += [4, 6][k] * MS;
        Next::SleepUntil(begin[k])
    };
    let mut got: Vec<(u64, usize)> = Vec::new();
    one.run(12 * MS, what, |m| {
        if let Some((k, since, _)) = m.serving {
            assert_eq!(m.core.item(m.threads[k].item).state, SERVICE);
            got.push((since, k));
        }
        Ok(())
    })
    .expect("an example");
    (0..12)
        .map(|t| {
            let k = got.iter().rfind(|g| g.0 <= t * MS).expect("somebody").1;
            ['A', 'B', 'C'][k]
        })
        .collect()
}

/// Two threads, one of them periodic or both; time goes by in steps.
struct Two {
    core: Core,
    items: [u32; 2],
    servers: [Server; 2],
    serving: Option<usize>,
    now: u64,
    seq: u64,
}

impl Two {
    fn new(p: [Params; 2]) -> Self {
        let mut core = Core::new(Setup { nodes: 4, items: 4, ..Setup::default() });
        core.must(0, Op::Create { node: E, parent: ROOT, kind: QUEUE, alg: EDF });
        core.must(0, Op::Reweight { node: E, weight: ONE });
        core.must(0, Op::Reweight { node: Q0, weight: 1 });
        let items = p.map(|p| {
            let item = core.item_new(E, ONE, 0).expect("an item");
            core.item_params(item, p, 0).expect("they fit");
            item
        });
        let servers = p.map(|p| Server { p, ..Server::default() });
        Self { core, items, servers, serving: None, now: MS, seq: 0 }
    }

    fn idle(&self) -> Vec<usize> {
        (0..2).filter(|&k| self.core.item(self.items[k]).state == IDLE).collect()
    }

    fn queued(&mut self, k: usize) {
        self.seq += 1;
        (self.servers[k].ready, self.servers[k].seq) = (true, self.seq);
    }
}

impl crate::tiny::Tiny for Two {
    fn options(&self) -> u32 {
        // The first: time passes.
        1 + u32::try_from(self.idle().len()).expect("two")
            + if self.serving.is_some() { 3 } else { 1 }
    }

    fn take(&mut self, option: u32) -> Result<(), String> {
        let idle = self.idle();
        if option == 0 {
            self.now += 3 * MS;
        } else if let Some(&k) = idle.get(option as usize - 1) {
            self.core.wake(self.items[k], self.now);
            self.servers[k].wake(self.now);
            self.queued(k);
        } else if let Some(k) = self.serving.take() {
            let (work, more) =
                [(MS, true), (MS, false), (3 * MS, true)][option as usize - 1 - idle.len()];
            self.now += work;
            self.core.settle(self.items[k], work, more, self.now);
            self.servers[k].had(work);
            if more {
                self.servers[k].again(self.now);
                self.queued(k);
            }
        } else {
            let got = self.core.pick(0, self.now);
            for s in &mut self.servers {
                while s.ready && s.p.period > 0 && s.left <= 0 && s.release <= self.now {
                    s.again(self.now);
                }
            }
            let want =
                (0..2).filter(|&k| self.servers[k].ready).min_by_key(|&k| self.servers[k].place());
            if got != want.map(|k| self.items[k]) {
                return Err(format!("picks {got:?}, wanted {want:?} of {:?}", self.servers));
            }
            if let Some(k) = want {
                let s = &mut self.servers[k];
                (s.counts, s.ready) = (!s.place().0, false);
            }
            self.serving = want;
        }
        for k in 0..2 {
            let (v, s) = (self.core.item(self.items[k]), &self.servers[k]);
            if s.p.period > 0
                && s.on
                && (i128::from(v.left), v.due, v.release) != (s.left, s.due, s.release)
            {
                return Err(format!("{k} is {v:?}, wanted {s:?}"));
            }
        }
        self.core.check()
    }
}

/// Every sequence of events of two threads.
pub fn exhaustive(depth: usize) -> Result<u64, String> {
    let p = |period, budget, deadline| Params {
        period: period * MS,
        budget: budget * MS,
        deadline: deadline * MS,
        ..Params::default()
    };
    let mut count = 0;
    for both in [[p(8, 2, 0), p(0, 0, 0)], [p(8, 2, 4), p(0, 0, 0)], [p(8, 2, 0), p(6, 4, 0)]] {
        count += crate::tiny::every(|| Two::new(both), depth)?;
    }
    Ok(count)
}
