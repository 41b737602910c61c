// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy mtrls: the exact model (docs/notes/algorithms.md §4.1 as written: a list, and what is
//! left as a rational), in lockstep with the core; and its theorems (§4.2), from observation.
//! Policy wrr is the same list, which who blocks leaves; of the theorems it has MTR-2 and MTR-3.

use std::collections::BTreeMap;

use num_traits::{Signed, Zero};

use crate::core::{
    Build, Core, FIFO, IDLE, Id, MTRLS, ONE, Op, QUEUE, QUEUED, ROOT, SCHED, SERVICE, Setup, WRR,
    id,
};
use crate::model::{Q, q};
use crate::one::{Next, One};
use crate::rng::Rng;

const MS: u64 = 1_000_000;
/// The core makes no step shorter than this: how late a quota ends where everything else is exact.
const SLICE_MIN: u64 = MS / 10;
const TURN: u64 = 100 * MS;

const S: Id = id(2, 1);

fn tune(node: Id, which: u64, value: u64) -> Op {
    Op::Raw { code: 10, node, parent: 0, a: which, b: value }
}

fn ratio(core: &Core, n: Id, sum: u64) -> f64 {
    f64::from(core.node(n).weight) / real(sum)
}

#[expect(clippy::cast_precision_loss, reason = "times of a short trace")]
fn real(x: u64) -> f64 {
    x as f64
}

/// One element of the list.
#[derive(Clone, Debug)]
struct Element {
    weight: u64,
    left: Q,
    /// Where the core has it.
    tag: u64,
}

/// The list.
#[derive(Debug, Default)]
struct List {
    order: Vec<Id>,
    elements: BTreeMap<Id, Element>,
    turn: u64,
    sum: u64,
    /// How far the core's whole ns may be off.
    slack: u64,
}

impl List {
    fn quota(&self, n: Id) -> Q {
        q(self.turn * self.elements[&n].weight, self.sum)
    }

    /// alpha of some, or T, changes: what is left of each is rescaled.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let old: BTreeMap<Id, Q> = self.order.iter().map(|&n| (n, self.quota(n))).collect();
        change(self);
        for (n, old) in old {
            let new = self.quota(n);
            let e = self.elements.get_mut(&n).expect("listed");
            e.left = e.left.clone() * new / old;
        }
        self.slack += 34;
    }

    fn rear(&mut self, n: Id) {
        self.order.retain(|&m| m != n);
        self.order.push(n);
    }

    /// The core moved these to the rear, in this order: each must have had nothing left.
    fn follow(&mut self, moved: &[(u64, Id)]) -> Result<(), String> {
        for &(_, n) in moved {
            let quota = self.quota(n);
            let slack = self.slack;
            let e = self.elements.get_mut(&n).expect("listed");
            if e.left > q(slack, 1) {
                return Err(format!("{n:x} goes to the rear with {} left", e.left.to_integer()));
            }
            e.left += quota;
            self.rear(n);
        }
        Ok(())
    }
}

fn moved(core: &Core, list: &List) -> Vec<(u64, Id)> {
    let mut out: Vec<(u64, Id)> = list
        .elements
        .iter()
        .filter(|(n, e)| list.order.contains(n) && core.node(**n).tag != e.tag)
        .map(|(&n, _)| (core.node(n).tag, n))
        .collect();
    let now = out.iter().map(|x| x.0).max().unwrap_or(0);
    out.sort_unstable_by_key(|x| std::cmp::Reverse(now.wrapping_sub(x.0)));
    out
}

/// Places given so far: they are numbered in the lower half of a tag, and the newest is somebody's.
fn places(core: &Core, nodes: &[Id]) -> u64 {
    nodes.iter().map(|&n| core.node(n).tag & 0xffff_ffff).max().unwrap_or(0)
}

/// [`lockstep_of`] mtrls.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    lockstep_of(build, seed, MTRLS)
}

/// [`lockstep_of`] wrr.
pub fn lockstep_wrr(build: Build, seed: u64) -> Result<(), String> {
    lockstep_of(build, seed, WRR)
}

/// Random events, compared with the list after each: who is picked, who is at which place, who
/// displaces whom.
#[expect(clippy::too_many_lines, reason = "one trace, from its events to its checks")]
fn lockstep_of(build: Build, seed: u64, alg: u32) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x317);
    let start = *r.pick(&[0, 0, u64::MAX - 40, (1 << 63) - 40]);
    let mut core = Core::new(Setup { build, start, ..Setup::default() });
    core.must(0, Op::Create { node: S, parent: ROOT, kind: SCHED, alg });
    core.must(0, Op::Reweight { node: S, weight: ONE });
    let mut list = List { turn: TURN, ..List::default() };
    let count = u32::try_from(r.range(1, 6)).expect("small");
    let mut items = BTreeMap::new();
    for k in 0..count {
        let node = id(3 + k, 1);
        let top = *r.pick(&[9, 9, 2000]);
        let weight = u32::try_from(r.range(1, top)).expect("small") * ONE;
        core.must(0, Op::Create { node, parent: S, kind: QUEUE, alg: FIFO });
        core.must(0, Op::Reweight { node, weight });
        let tag = core.node(node).tag;
        list.elements.insert(node, Element { weight: weight.into(), left: Q::zero(), tag });
        list.sum += u64::from(weight);
        items.insert(node, core.item_new(node, ONE, 0).ok_or("no item")?);
    }
    let nodes: Vec<Id> = items.keys().copied().collect();
    let mut serving: Option<Id> = None;
    let mut now = 0;
    for step in 0..400 {
        now += r.below(MS);
        let said = |e: String| format!("step {step}: {e}");
        match r.below(20) {
            0..=8 => {
                if let Some(n) = serving.take() {
                    let some = r.range(1, 30 * MS);
                    let work = *r.pick(&[4 * MS, 4 * MS, some, some / 30 + 1, 300 * MS]);
                    core.settle(items[&n], work, r.chance(70), now);
                    let list_slack = list.slack;
                    let quota = list.quota(n);
                    let e = list.elements.get_mut(&n).expect("listed");
                    e.left -= q(work, 1);
                    // More than 32 turns of debt are forgiven.
                    let least = -(quota * q(32, 1));
                    if e.left < least {
                        e.left = least;
                        list.slack += 33;
                    }
                    let must = list.elements[&n].left < -q(list_slack, 1);
                    let moved = moved(&core, &list);
                    if moved.iter().any(|m| m.1 != n) || moved.len() > 1 {
                        return Err(said(format!("{n:x} ran, and {moved:x?} moved")));
                    }
                    if must && moved.is_empty() {
                        return Err(said(format!("{n:x} has used its quota and keeps its place")));
                    }
                    list.follow(&moved).map_err(said)?;
                    if alg == WRR && core.item(items[&n]).state == IDLE {
                        list.order.retain(|&m| m != n);
                    }
                } else {
                    let before = places(&core, &nodes);
                    let got = core.pick(0, now);
                    let got = got.map(|i| *items.iter().find(|x| *x.1 == i).expect("ours").0);
                    // So many times the first that is ready went to the rear.
                    for _ in before..places(&core, &nodes) {
                        let first = list.order.iter().find(|n| core.item(items[*n]).state != IDLE);
                        let first = *first
                            .ok_or_else(|| said("somebody who waits for nothing moved".into()))?;
                        list.follow(&[(0, first)]).map_err(said)?;
                    }
                    let ready = |n: &&Id| core.item(items[*n]).state != IDLE;
                    let want = list.order.iter().find(ready).copied();
                    if got != want {
                        return Err(said(format!(
                            "picks {got:x?}, first is {want:x?} of {:x?}",
                            list.order
                        )));
                    }
                    if let Some(n) = got
                        && list.elements[&n].left < -q(list.slack, 1)
                    {
                        return Err(said(format!("{n:x} is served with nothing left")));
                    }
                    serving = got;
                }
            }
            9..=15 => {
                let n = *r.pick(&nodes);
                let item = items[&n];
                if core.item(item).state == QUEUED && r.chance(20) {
                    core.remove(item);
                    if alg == WRR {
                        list.order.retain(|&m| m != n);
                    }
                } else if core.item(item).state == IDLE {
                    core.wake(item, now);
                    if !list.order.contains(&n) {
                        let quota = list.quota(n);
                        list.elements.get_mut(&n).expect("made").left = quota;
                        list.slack += 1;
                        list.rear(n);
                    }
                    if let Some(c) = serving {
                        let place = |x: Id| list.order.iter().position(|&y| y == x);
                        let left = &list.elements[&n].left;
                        let sure = left.abs() > q(list.slack, 1);
                        let want = alg == MTRLS && place(n) < place(c) && left.is_positive();
                        if (sure || alg == WRR) && core.preempts(item, items[&c], 0) != want {
                            return Err(said(format!("{n:x} displaces {c:x}: wanted {want}")));
                        }
                    }
                }
            }
            16..=17 => {
                let n = *r.pick(&nodes);
                let weight = u32::try_from(r.range(1, 9)).expect("small") * ONE;
                core.must(now, Op::Reweight { node: n, weight });
                list.change(|l| {
                    let e = l.elements.get_mut(&n).expect("made");
                    l.sum = l.sum - e.weight + u64::from(weight);
                    e.weight = weight.into();
                });
            }
            18 => {
                let turn = *r.pick(&[10 * MS, TURN, 2000 * MS]);
                core.must(now, tune(S, 3, turn));
                list.change(|l| l.turn = turn);
            }
            _ => {}
        }
        for &n in &nodes {
            let tag = core.node(n).tag;
            list.elements.get_mut(&n).expect("made").tag = tag;
        }
        core.check().map_err(said)?;
        for pair in list.order.windows(2) {
            let (a, b) = (core.node(pair[0]).tag, core.node(pair[1]).tag);
            if b.wrapping_sub(a).cast_signed() <= 0 {
                return Err(said(format!("{pair:x?} stand the other way round")));
            }
        }
    }
    Ok(())
}

/// A node with policy mtrls and some queues of one thread each, on a unit of its own. `tick` as in
/// [`One`].
struct Bench {
    one: One,
    nodes: Vec<Id>,
    sum: u64,
}

fn bench(build: Build, r: &mut Rng, tick: u64, alg: u32) -> Bench {
    let mut one = One::new(build, 4 * MS, tick);
    one.node(S, ROOT, SCHED, alg, ONE);
    let count = u32::try_from(r.range(2, 5)).expect("small");
    let nodes: Vec<Id> = (0..count).map(|k| id(3 + k, 1)).collect();
    let mut sum = 0;
    for &n in &nodes {
        let weight = u32::try_from(r.range(1, 4)).expect("small") * ONE;
        one.queue(n, S, FIFO, weight);
        sum += u64::from(weight);
        one.thread(n, r.below(50 * MS));
    }
    Bench { one, nodes, sum }
}

/// MTR-1 (not of wrr), MTR-2 and MTR-3, exactly or with ticks: threads that always want service,
/// sleep now and then, or all the time.
fn theorems(build: Build, seed: u64, tick: u64, alg: u32) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x3171);
    let Bench { mut one, nodes, sum } = bench(build, &mut r, tick, alg);
    let late = real(if tick == 0 { SLICE_MIN } else { tick });
    let n = real(nodes.len() as u64);
    let turn = real(TURN);
    let alpha: Vec<f64> = nodes.iter().map(|&n| ratio(&one.core, n, sum)).collect();
    let habits: Vec<(u64, u64)> = nodes
        .iter()
        .map(|_| match r.below(3) {
            0 => (1000 * MS, MS),
            1 => (r.range(1, 3) * MS, r.range(1, 10) * MS),
            _ => (r.range(1, 60) * MS, r.range(1, 90) * MS),
        })
        .collect();
    let mut runs = vec![false; nodes.len()];
    let mut rng = Rng::new(seed ^ 0x3172);
    let what = |k: usize, now: u64| {
        runs[k] = !runs[k];
        let (run, sleep) = habits[k];
        if runs[k] {
            Next::Run(rng.range(run / 2, run) + 1)
        } else {
            Next::SleepUntil(now + rng.range(sleep / 2, sleep) + 1)
        }
    };
    let mut ready_ns = vec![0u64; nodes.len()];
    let mut before = 0;
    let mut was = vec![false; nodes.len()];
    let mut spread: BTreeMap<(usize, usize), (f64, f64)> = BTreeMap::new();
    one.run(5_000 * MS, what, |m| {
        let dt = m.now - before;
        before = m.now;
        for k in 0..was.len() {
            if was[k] {
                ready_ns[k] += dt;
            }
            was[k] = m.wants(k);
            let a = alpha[k];
            let behind = a * real(ready_ns[k]) - real(m.service(k));
            let wakes = if tick == 0 { 0.0 } else { real(m.threads[k].wakes) };
            let bound = a * ((1.0 - a) * turn + (n - 1.0) * late + wakes * late);
            if alg == MTRLS && behind > bound + 10.0 {
                return Err(format!(
                    "MTR-1: at {} thread {k} (alpha {a:.3}) is {behind:.0} behind, at most {bound:.0}",
                    m.now
                ));
            }
            let wait = (1.0 - a) * turn + n * late;
            if real(m.threads[k].worst_wait) > wait + 10.0 {
                return Err(format!(
                    "MTR-3: thread {k} (alpha {a:.3}) waits for {}, at most {wait:.0}",
                    m.threads[k].worst_wait
                ));
            }
        }
        for i in 0..was.len() {
            for j in 0..i {
                if !was[i] || !was[j] {
                    spread.remove(&(i, j));
                    continue;
                }
                let d = real(m.service(i)) / alpha[i] - real(m.service(j)) / alpha[j];
                let (lo, hi) = spread.get(&(i, j)).copied().unwrap_or((d, d));
                let (lo, hi) = (lo.min(d), hi.max(d));
                spread.insert((i, j), (lo, hi));
                let bound = 2.0 * turn + late / alpha[i] + late / alpha[j];
                if hi - lo > bound + 10.0 {
                    return Err(format!(
                        "MTR-2: at {} threads {i} and {j} differ by {:.0}, at most {bound:.0}",
                        m.now,
                        hi - lo
                    ));
                }
            }
        }
        Ok(())
    })
}

/// Steps end and wake-ups displace at once.
pub fn exact(build: Build, seed: u64) -> Result<(), String> {
    theorems(build, seed, 0, MTRLS)
}

/// The same under wrr.
pub fn wrr(build: Build, seed: u64) -> Result<(), String> {
    theorems(build, seed, [0, MS, 4 * MS][usize::try_from(seed % 3).expect("small")], WRR)
}

/// A thread that sleeps in the middle of its quota, beside two that never do, for 10 s: how far it
/// is behind a unit of its own, in turns.
pub fn sleeper_behind(build: Build, alg: u32) -> f64 {
    let mut one = One::new(build, 4 * MS, 0);
    one.node(S, ROOT, SCHED, alg, ONE);
    for k in 0..3 {
        one.queue(id(3 + k, 1), S, FIFO, ONE);
        one.thread(id(3 + k, 1), 0);
    }
    let (mut runs, mut wanted, mut since) = (false, 0, 0);
    let what = |k: usize, now: u64| {
        if k > 0 {
            return Next::Run(u64::MAX / 4);
        }
        runs = !runs;
        if runs {
            since = now;
            Next::Run(5 * MS)
        } else {
            wanted += now - since;
            Next::SleepUntil(now + 20 * MS)
        }
    };
    one.run(10_000 * MS, what, |_| Ok(())).expect("a sound run");
    let had = one.service(0);
    (real(wanted) / 3.0 - real(had)) / real(TURN)
}

/// They do at ticks.
pub fn ticks(build: Build, seed: u64) -> Result<(), String> {
    theorems(build, seed, [MS, 4 * MS][usize::from(seed % 2 == 1)], MTRLS)
}

/// MTR-1 from any start: over weights that change while all go on, 2 alpha (1 - alpha) T from each
/// change.
pub fn changes(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x3173);
    let Bench { mut one, nodes, .. } = bench(build, &mut r, 0, MTRLS);
    let hog = |_: usize, _: u64| Next::Run(u64::MAX / 4);
    one.run(100 * MS, hog, |_| Ok(()))?;
    for change in 0..10 {
        let node = *r.pick(&nodes);
        let weight = u32::try_from(r.range(1, 9)).expect("small") * ONE;
        one.core.must(one.now, Op::Reweight { node, weight });
        let sum: u64 = nodes.iter().map(|&n| u64::from(one.core.node(n).weight)).sum();
        let alpha: Vec<f64> = nodes.iter().map(|&n| ratio(&one.core, n, sum)).collect();
        let (since, had): (u64, Vec<u64>) =
            (one.now, (0..nodes.len()).map(|k| one.service(k)).collect());
        one.run(since + r.range(1, 500) * MS, hog, |m| {
            for (k, a) in alpha.iter().enumerate() {
                let behind = a * real(m.now - since) - real(m.service(k) - had[k]);
                // The step under way when the weights changed is charged as one that began after
                // it.
                let bound = 2.0 * a * (1.0 - a) * real(TURN)
                    + real(nodes.len() as u64) * real(SLICE_MIN)
                    + real(4 * MS);
                if behind > bound {
                    return Err(format!(
                        "change {change}: thread {k} is {behind:.0} behind, at most {bound:.0}"
                    ));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The worked examples of `policy_mtrls.c` and `policy_wrr.c`: letters of who is served, step by
/// step.
pub fn example(build: Build, alg: u32) -> String {
    let mut core = Core::new(Setup { build, quantum: MS, ..Setup::default() });
    core.must(0, Op::Create { node: S, parent: ROOT, kind: SCHED, alg });
    core.must(0, Op::Reweight { node: S, weight: ONE });
    core.must(0, tune(S, 3, 8 * MS));
    let mut items = Vec::new();
    for (k, weight) in [(0, 1), (1, 1), (2, 2)] {
        let node = id(3 + k, 1);
        core.must(0, Op::Create { node, parent: S, kind: QUEUE, alg: FIFO });
        core.must(0, Op::Reweight { node, weight: weight * ONE });
        items.push(core.item_new(node, ONE, 0).expect("an item"));
    }
    for &i in &items {
        core.wake(i, 0);
    }
    let mut out = String::new();
    for step in 0..12_u64 {
        let got = core.pick(0, step * MS).expect("somebody");
        let k = items.iter().position(|&i| i == got).expect("ours");
        out.push(['A', 'B', 'C'][k]);
        // B blocks in its first step; it wakes in the second of C's.
        let blocks = k == 1 && step == 2;
        if step == 4 {
            core.wake(items[1], step * MS);
            assert_eq!(core.preempts(items[1], got, 0), alg == MTRLS, "B is ahead of C");
        }
        assert_eq!(core.item(got).state, SERVICE);
        core.settle(got, MS, !blocks, (step + 1) * MS);
    }
    out
}

/// Two queues, equal or 1 : 3, T = 4 steps.
struct Two {
    core: Core,
    items: [u32; 2],
    list: Vec<usize>,
    left: [i64; 2],
    weight: [i64; 2],
    ready: [bool; 2],
    serving: Option<usize>,
}

impl Two {
    fn new(weight: [u32; 2]) -> Self {
        let mut core = Core::new(Setup { nodes: 8, items: 4, ..Setup::default() });
        core.must(0, Op::Create { node: S, parent: ROOT, kind: SCHED, alg: MTRLS });
        core.must(0, Op::Reweight { node: S, weight: ONE });
        core.must(0, tune(S, 3, 16 * MS));
        let items = [0, 1].map(|k| {
            let node = id(3 + k, 1);
            core.must(0, Op::Create { node, parent: S, kind: QUEUE, alg: FIFO });
            core.must(0, Op::Reweight { node, weight: weight[k as usize] * ONE });
            core.item_new(node, ONE, 0).expect("an item")
        });
        let weight = weight.map(i64::from);
        Self {
            core,
            items,
            list: Vec::new(),
            left: [0; 2],
            weight,
            ready: [false; 2],
            serving: None,
        }
    }

    fn quota(&self, k: usize) -> i64 {
        16 * MS.cast_signed() * self.weight[k] / (self.weight[0] + self.weight[1])
    }

    fn rear(&mut self, k: usize) {
        self.list.retain(|&j| j != k);
        self.list.push(k);
    }

    fn idle(&self) -> Vec<usize> {
        (0..2).filter(|&k| !self.ready[k]).collect()
    }
}

impl crate::tiny::Tiny for Two {
    fn options(&self) -> u32 {
        u32::try_from(self.idle().len()).expect("two") + if self.serving.is_some() { 4 } else { 1 }
    }

    fn take(&mut self, option: u32) -> Result<(), String> {
        let idle = self.idle();
        if let Some(&k) = idle.get(option as usize) {
            self.core.wake(self.items[k], 0);
            self.ready[k] = true;
            if !self.list.contains(&k) {
                self.left[k] = self.quota(k);
                self.rear(k);
            }
            if let Some(c) = self.serving {
                let place = |x: usize| self.list.iter().position(|&y| y == x);
                let want = place(k) < place(c) && self.left[k] > 0;
                if self.core.preempts(self.items[k], self.items[c], 0) != want {
                    return Err(format!("{k} displaces {c}: wanted {want}"));
                }
            }
        } else if let Some(k) = self.serving.take() {
            let (work, more) =
                [(4, true), (4, false), (2, true), (11, true)][option as usize - idle.len()];
            self.core.settle(self.items[k], work * MS, more, 0);
            self.left[k] -= (work * MS).cast_signed();
            self.ready[k] = more;
            if self.left[k] <= 0 {
                self.left[k] += self.quota(k);
                self.rear(k);
            }
        } else {
            let got = self.core.pick(0, 0);
            let want = loop {
                let Some(k) = self.list.iter().copied().find(|&k| self.ready[k]) else {
                    break None;
                };
                if self.left[k] > 0 {
                    break Some(k);
                }
                self.left[k] += self.quota(k);
                self.rear(k);
            };
            if got != want.map(|k| self.items[k]) {
                return Err(format!("picks {got:?}, wanted {want:?}"));
            }
            self.serving = want;
        }
        self.core.check()
    }
}

/// Every sequence of events of two queues, equal and 1 : 3.
pub fn exhaustive(depth: usize) -> Result<u64, String> {
    Ok(crate::tiny::every(|| Two::new([1, 1]), depth)?
        + crate::tiny::every(|| Two::new([1, 3]), depth)?)
}
