// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy prio: the exact model (levels, turns, usage halved each period), in lockstep with the
//! core; and what is promised, from observation.

use std::collections::BTreeMap;

use crate::core::{
    Build, Core, FIFO, IDLE, Id, ONE, Op, PRIO, QUEUE, QUEUED, ROOT, SCHED, Setup, id,
};
use crate::one::{Next, One};
use crate::rng::Rng;

const MS: u64 = 1_000_000;
const STEP: u64 = 4 * MS;
const S: Id = id(2, 1);

fn priority(node: Id, value: u64) -> Op {
    Op::Raw { code: 11, node, parent: 0, a: 1, b: value }
}

fn decay(value: u64) -> Op {
    Op::Raw { code: 10, node: S, parent: 0, a: 5, b: value }
}

#[derive(Debug, Default)]
struct Child {
    priority: u64,
    usage: u64,
    ready: bool,
    serving: bool,
}

/// Who waits, the first to be served first among equals.
#[derive(Debug, Default)]
struct Model {
    children: BTreeMap<Id, Child>,
    turns: Vec<Id>,
    period: u64,
    spent: u64,
}

impl Model {
    /// Higher is served first; the idle class is far below.
    fn level(&self, n: Id) -> i64 {
        let c = &self.children[&n];
        if c.priority == 0 {
            return -1000;
        }
        let band = i64::from(c.usage <= self.period / 4) - i64::from(c.usage > self.period);
        c.priority.cast_signed() + band
    }

    fn first(&self) -> Option<Id> {
        let ready = self.turns.iter().copied().filter(|n| self.children[n].ready);
        // The first of the largest: max_by_key answers the last.
        ready.rev().max_by_key(|&n| self.level(n))
    }

    fn behind(&mut self, n: Id) {
        self.turns.retain(|&m| m != n);
        self.turns.push(n);
    }

    fn charge(&mut self, n: Id, work: u64) {
        self.children.get_mut(&n).expect("a child").usage += work;
        self.spent += work;
        while self.spent >= self.period {
            self.spent -= self.period;
            for c in self.children.values_mut() {
                c.usage /= 2;
            }
        }
    }
}

/// Random events, compared with the model after each: who is picked, who displaces whom.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x9710);
    let start = *r.pick(&[0, 0, u64::MAX - 40, (1 << 63) - 40]);
    let mut core = Core::new(Setup { build, start, ..Setup::default() });
    core.must(0, Op::Create { node: S, parent: ROOT, kind: SCHED, alg: PRIO });
    core.must(0, Op::Reweight { node: S, weight: ONE });
    let mut model = Model { period: 2400 * MS, ..Model::default() };
    let mut items = BTreeMap::new();
    for k in 0..u32::try_from(r.range(1, 7)).expect("small") {
        let node = id(3 + k, 1);
        core.must(0, Op::Create { node, parent: S, kind: QUEUE, alg: FIFO });
        core.must(0, Op::Reweight { node, weight: ONE });
        model.children.insert(node, Child { priority: 50, ..Child::default() });
        items.insert(node, core.item_new(node, ONE, 0).ok_or("no item")?);
    }
    let nodes: Vec<Id> = items.keys().copied().collect();
    let mut serving: Option<Id> = None;
    let mut now = 0;
    for step in 0..500 {
        now += r.below(MS);
        let said = |e: String| format!("step {step}: {e}");
        match r.below(20) {
            0..=9 => {
                if let Some(n) = serving.take() {
                    let some = r.range(1, 30 * MS);
                    let work = *r.pick(&[STEP, STEP, some, 3000 * MS]);
                    let more = r.chance(80);
                    core.settle(items[&n], work, more, now);
                    model.charge(n, work);
                    let c = model.children.get_mut(&n).expect("a child");
                    c.serving = false;
                    c.ready = more;
                    model.behind(n);
                } else {
                    let got = core.pick(0, now);
                    let got = got.map(|i| *items.iter().find(|x| *x.1 == i).expect("ours").0);
                    if got != model.first() {
                        return Err(said(format!(
                            "picks {got:x?}, wanted {:x?} of {model:x?}",
                            model.first()
                        )));
                    }
                    if let Some(n) = got {
                        model.children.get_mut(&n).expect("a child").serving = true;
                    }
                    serving = got;
                }
            }
            10..=16 => {
                let n = *r.pick(&nodes);
                match core.item(items[&n]).state {
                    QUEUED if r.chance(20) => {
                        core.remove(items[&n]);
                        model.children.get_mut(&n).expect("a child").ready = false;
                    }
                    IDLE => {
                        core.wake(items[&n], now);
                        model.children.get_mut(&n).expect("a child").ready = true;
                        model.behind(n);
                        if let Some(c) = serving {
                            let want = model.level(n) > model.level(c);
                            if core.preempts(items[&n], items[&c], 0) != want {
                                return Err(said(format!(
                                    "{n:x} displaces {c:x}: wanted {want}, {model:x?}"
                                )));
                            }
                        }
                    }
                    _ => {}
                }
            }
            17..=18 => {
                let n = *r.pick(&nodes);
                let value = *r.pick(&[0, 1, 49, 50, 51, 52, 100]);
                core.must(now, priority(n, value));
                model.children.get_mut(&n).expect("a child").priority = value;
                model.behind(n);
            }
            _ => {
                let period = *r.pick(&[10 * MS, 50 * MS, 2400 * MS]);
                core.must(now, decay(period));
                model.period = period;
            }
        }
        core.check().map_err(said)?;
    }
    Ok(())
}

/// From observation, with periods so long that nothing moves a level: a thread of a higher level
/// does not wait longer than a step while one of a lower is served; equals take turns; the idle
/// class is served when nobody else wants.
pub fn promises(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x9711);
    let tick = *r.pick(&[0, MS, 4 * MS]);
    let mut one = One::new(build, STEP, tick);
    one.node(S, ROOT, SCHED, PRIO, ONE);
    one.core.must(0, decay(1_000_000 * MS));
    let levels: Vec<u64> = (0..r.range(2, 5)).map(|_| *r.pick(&[0, 1, 10, 10, 20])).collect();
    for (k, &level) in levels.iter().enumerate() {
        let node = id(3 + u32::try_from(k).expect("small"), 1);
        one.queue(node, S, FIFO, ONE);
        one.core.must(0, priority(node, level));
        one.thread(node, r.below(20 * MS));
    }
    let hogs: Vec<bool> = levels.iter().map(|_| r.chance(50)).collect();
    let mut runs = vec![false; levels.len()];
    let mut rng = Rng::new(seed ^ 0x9712);
    let what = |k: usize, now: u64| {
        runs[k] = !runs[k] || hogs[k];
        if runs[k] {
            Next::Run(rng.range(1, 10) * MS)
        } else {
            Next::SleepUntil(now + rng.range(1, 60) * MS)
        }
    };
    // Since when a thread has waited while one of a lower level is served; and steps of equals
    // while both want.
    let mut behind: BTreeMap<usize, u64> = BTreeMap::new();
    let mut both: BTreeMap<(usize, usize), (i64, i64, i64)> = BTreeMap::new();
    let mut last = None;
    let late = if tick == 0 { 0 } else { tick };
    one.run(2_000 * MS, what, |m| {
        let Some((s, since, _)) = m.serving else {
            behind.clear();
            both.clear();
            last = None;
            return Ok(());
        };
        for (k, &level) in levels.iter().enumerate() {
            if k != s && m.wants(k) && level > levels[s] {
                let from = *behind.entry(k).or_insert(m.now);
                if m.now - from > late {
                    return Err(format!(
                        "at {} thread {k} of level {level} waits since {from} behind level {}",
                        m.now, levels[s]
                    ));
                }
            } else {
                behind.remove(&k);
            }
        }
        let begun = last != Some((s, since));
        last = Some((s, since));
        for i in 0..levels.len() {
            for j in 0..i {
                if levels[i] != levels[j] || !m.wants(i) || !m.wants(j) {
                    both.remove(&(i, j));
                    continue;
                }
                let e = both.entry((i, j)).or_insert((0, 0, 0));
                if begun {
                    e.0 += i64::from(s == i) - i64::from(s == j);
                }
                e.1 = e.1.min(e.0);
                e.2 = e.2.max(e.0);
                // A step that a higher level cut short is one as well, and so is the one that both
                // came into.
                if e.2 - e.1 > 2 {
                    return Err(format!(
                        "at {}: equals {i} and {j} differ by {} steps",
                        m.now,
                        e.2 - e.1
                    ));
                }
            }
        }
        Ok(())
    })
}

/// The decay law: beside a hog of the level above, one that sleeps long enough to be light is
/// served before it, and of the same thread three levels below it never is.
pub fn band(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x9713);
    let period = r.range(20, 200) * MS;
    for (below, served) in [(1, true), (3, false)] {
        let mut one = One::new(build, STEP, 0);
        one.node(S, ROOT, SCHED, PRIO, ONE);
        one.core.must(0, decay(period));
        for (k, level) in [(0, 20), (1, 20 - below)] {
            one.queue(id(3 + k, 1), S, FIFO, ONE);
            one.core.must(0, priority(id(3 + k, 1), level));
        }
        one.thread(id(3, 1), 0);
        one.thread(id(4, 1), 10 * period);
        let what = |_: usize, _: u64| Next::Run(1 << 60);
        one.run(40 * period, what, |_| Ok(()))?;
        let got = one.service(1);
        // A hog alone is heavy, and so a level down; the other is light, and a level up, until a
        // quarter of a period is used.
        let (least, most) = if served { (period / 4, 30 * period * 2 / 3) } else { (0, 0) };
        if got < least || got > most {
            return Err(format!(
                "a thread {below} below a hog had {got} of {}, wanted {least} to {most}",
                30 * period
            ));
        }
    }
    Ok(())
}

/// The worked example of `policy_prio.c`: letters of who is served, step by step.
pub fn example(build: Build) -> String {
    let mut core = Core::new(Setup { build, ..Setup::default() });
    core.must(0, Op::Create { node: S, parent: ROOT, kind: SCHED, alg: PRIO });
    core.must(0, Op::Reweight { node: S, weight: ONE });
    let mut items = Vec::new();
    for (k, level) in [(0, 20), (1, 10), (2, 0)] {
        let node = id(3 + k, 1);
        core.must(0, Op::Create { node, parent: S, kind: QUEUE, alg: FIFO });
        core.must(0, Op::Reweight { node, weight: ONE });
        core.must(0, priority(node, level));
        items.push(core.item_new(node, ONE, 0).expect("an item"));
    }
    for &i in &items {
        core.wake(i, 0);
    }
    let mut out = String::new();
    for step in 0..8_u64 {
        let got = core.pick(0, step).expect("somebody");
        let k = items.iter().position(|&i| i == got).expect("ours");
        out.push(['A', 'B', 'C'][k]);
        // A sleeps after its second step, B after its second; B wakes in the second of C's.
        let sleeps = out.matches(['A', 'B', 'C'][k]).count() == 2 && k < 2 && step < 4;
        if out == "AABBCC" {
            core.wake(items[1], step);
            assert!(core.preempts(items[1], got, 0), "B displaces C");
        }
        core.settle(got, STEP, !sleeps, step);
    }
    out
}

/// Two queues and a period of three steps.
struct Two {
    core: Core,
    items: [u32; 2],
    model: Model,
    serving: Option<Id>,
}

impl Two {
    fn new(levels: [u64; 2]) -> Self {
        let mut core = Core::new(Setup { nodes: 8, items: 4, ..Setup::default() });
        core.must(0, Op::Create { node: S, parent: ROOT, kind: SCHED, alg: PRIO });
        core.must(0, Op::Reweight { node: S, weight: ONE });
        core.must(0, decay(3 * STEP));
        let mut model = Model { period: 3 * STEP, ..Model::default() };
        let items = [0, 1].map(|k| {
            let node = id(3 + k, 1);
            core.must(0, Op::Create { node, parent: S, kind: QUEUE, alg: FIFO });
            core.must(0, Op::Reweight { node, weight: ONE });
            core.must(0, priority(node, levels[k as usize]));
            model.children.insert(node, Child { priority: levels[k as usize], ..Child::default() });
            core.item_new(node, ONE, 0).expect("an item")
        });
        Self { core, items, model, serving: None }
    }

    fn idle(&self) -> Vec<usize> {
        (0..2).filter(|&k| self.core.item(self.items[k]).state == IDLE).collect()
    }

    fn node(k: usize) -> Id {
        id(3 + u32::try_from(k).expect("two"), 1)
    }
}

impl crate::tiny::Tiny for Two {
    fn options(&self) -> u32 {
        u32::try_from(self.idle().len()).expect("two") + if self.serving.is_some() { 3 } else { 1 }
    }

    fn take(&mut self, option: u32) -> Result<(), String> {
        let idle = self.idle();
        if let Some(&k) = idle.get(option as usize) {
            self.core.wake(self.items[k], 0);
            let n = Self::node(k);
            self.model.children.get_mut(&n).expect("a child").ready = true;
            self.model.behind(n);
            if let Some(c) = self.serving {
                let want = self.model.level(n) > self.model.level(c);
                if self.core.preempts(self.items[k], self.items[1 - k], 0) != want {
                    return Err(format!("{k} displaces the other: wanted {want}"));
                }
            }
        } else if let Some(n) = self.serving.take() {
            let k = usize::from(n == Self::node(1));
            let (work, more) =
                [(STEP, true), (STEP, false), (7 * STEP, true)][option as usize - idle.len()];
            self.core.settle(self.items[k], work, more, 0);
            self.model.charge(n, work);
            let c = self.model.children.get_mut(&n).expect("a child");
            (c.serving, c.ready) = (false, more);
            self.model.behind(n);
        } else {
            let got = self.core.pick(0, 0);
            let want = self.model.first();
            if got != want.map(|n| self.items[usize::from(n == Self::node(1))]) {
                return Err(format!("picks {got:?}, wanted {want:x?}"));
            }
            self.serving = want;
        }
        self.core.check()
    }
}

/// Every sequence of events of two queues: equals, a level apart, two apart, and one of the idle
/// class.
pub fn exhaustive(depth: usize) -> Result<u64, String> {
    let mut count = 0;
    for levels in [[50, 50], [50, 51], [50, 52], [0, 1]] {
        count += crate::tiny::every(|| Two::new(levels), depth)?;
    }
    Ok(count)
}
