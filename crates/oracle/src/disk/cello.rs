// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cello: a naive model of its rules in lockstep, and its bounds (docs/notes/algorithms.md §6.4)
//! from observation.

use std::collections::{BTreeMap, VecDeque};

use crate::core::{Build, Cello};
use crate::rng::Rng;

const CLASSES: usize = 3;

#[derive(Clone, Debug)]
struct Request {
    number: u32,
    class: usize,
    sector: u64,
    due: u64,
    estimate: u64,
    idle: bool,
}

/// The rules as they stand at the head of cello.c, word by word.
#[derive(Debug)]
struct Model {
    weight: [u64; CLASSES],
    round: u64,
    depth: usize,
    slots: usize,
    begun: u64,
    used: [i64; CLASSES],
    extra: [i64; CLASSES],
    pending: [VecDeque<Request>; CLASSES],
    bypass: VecDeque<Request>,
    scheduled: Vec<Request>,
    serving: Vec<Request>,
    turn: usize,
    arm: u64,
    sweep: u64,
    busy: u64,
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).expect("small")
}

/// The order in which an arm that goes up from `from` meets sectors.
fn on_the_way(from: u64, sector: u64) -> (bool, u64) {
    (sector < from, sector)
}

impl Model {
    fn new() -> Self {
        Self {
            weight: [1000; CLASSES],
            round: 1_000_000_000,
            depth: 8,
            slots: 1,
            begun: 0,
            used: [0; CLASSES],
            extra: [0; CLASSES],
            pending: Default::default(),
            bypass: VecDeque::new(),
            scheduled: Vec::new(),
            serving: Vec::new(),
            turn: 0,
            arm: 0,
            sweep: 0,
            busy: 0,
        }
    }

    fn budget(&self, k: usize) -> i64 {
        let sum: u64 = self.weight.iter().sum();
        let share = u128::from(self.round) * u128::from(self.weight[k]) / u128::from(sum.max(1));
        i64::try_from(share).expect("small")
    }

    fn roll(&mut self, now: u64) {
        if now < self.begun + self.round {
            return;
        }
        while self.begun + self.round <= now {
            self.begun += self.round;
        }
        for k in 0..CLASSES {
            let a = self.budget(k);
            let over = self.used[k] - self.extra[k] - a;
            self.used[k] = if over >= 0 {
                over.min(a)
            } else if self.pending[k].is_empty() {
                0
            } else {
                over.max(-a)
            };
            self.extra[k] = 0;
        }
    }

    fn deadline(&self, r: &Request) -> i128 {
        match r.class {
            0 => r.due.into(),
            1 => i128::MAX,
            _ => (self.begun + self.round).into(),
        }
    }

    /// Slack of each request of a queue.
    fn slacks(&self, queue: &[Request], now: u64) -> Vec<i128> {
        let mut end = i128::from(if self.serving.is_empty() { now } else { self.busy.max(now) });
        let slack = |r: &Request| {
            end += i128::from(r.estimate);
            self.deadline(r).saturating_sub(end)
        };
        queue.iter().map(slack).collect()
    }

    fn place(&self, r: &Request, now: u64) -> usize {
        let q = &self.scheduled;
        let last = |what: &dyn Fn(&Request) -> bool| q.iter().rposition(what).map_or(0, |k| k + 1);
        let due = |r: &Request| (r.due / 10_000_000, r.sector);
        match r.class {
            0 => last(&|x| x.class == 0 && due(x) <= due(r)),
            1 => {
                // The first place at which nobody behind is late.
                let keeps = |p: &usize| {
                    let mut with = q.clone();
                    with.insert(*p, r.clone());
                    let after = self.slacks(&with, now);
                    after[*p + 1..].iter().all(|s| *s >= 0)
                };
                let p = (0..=q.len()).find(keeps).expect("the end");
                let p = p.min(last(&|x| x.class == 0));
                let run = q[p..].iter().take_while(|x| {
                    x.class == 1 && on_the_way(self.arm, x.sector) <= on_the_way(self.arm, r.sector)
                });
                p + run.count()
            }
            _ => {
                let way = |x: &Request| on_the_way(self.sweep, x.sector);
                let first = last(&|x| x.class != 2);
                first + q[first..].iter().filter(|x| way(x) <= way(r)).count()
            }
        }
    }

    fn take(&mut self, k: usize, idle: bool, now: u64) {
        let mut r = self.pending[k].pop_front().expect("pending");
        r.idle = idle;
        self.used[k] += signed(r.estimate);
        self.extra[k] += if idle { signed(r.estimate) } else { 0 };
        let place = self.place(&r, now);
        self.scheduled.insert(place, r);
    }

    fn fill(&mut self, now: u64) {
        self.roll(now);
        while self.scheduled.len() < self.depth {
            let has = |k: &usize| !self.pending[*k].is_empty();
            if let Some(k) = (0..CLASSES).find(|k| has(k) && self.used[*k] < self.budget(*k)) {
                self.take(k, false, now);
            } else if self.scheduled.is_empty() && self.serving.is_empty() {
                let turn = self.turn;
                let Some(k) = (0..CLASSES).map(|i| (turn + i) % CLASSES).find(has) else { return };
                self.turn = (k + 1) % CLASSES;
                self.take(k, true, now);
            } else {
                return;
            }
        }
    }

    fn next(&mut self, now: u64) -> Option<Request> {
        if self.serving.len() >= self.slots {
            return None;
        }
        let r = if let Some(r) = self.bypass.pop_front() {
            r
        } else {
            self.fill(now);
            if self.scheduled.is_empty() {
                return None;
            }
            self.scheduled.remove(0)
        };
        self.busy = if self.serving.is_empty() { now } else { self.busy.max(now) } + r.estimate;
        self.arm = r.sector;
        if r.class == 2 {
            self.sweep = r.sector;
        }
        self.serving.push(r.clone());
        self.fill(now);
        Some(r)
    }

    fn done(&mut self, number: u32, took: u64, now: u64) {
        let at = self.serving.iter().position(|r| r.number == number).expect("served");
        let r = self.serving.remove(at);
        if r.class < CLASSES {
            let more = signed(took) - signed(r.estimate);
            self.used[r.class] += more;
            self.extra[r.class] += if r.idle { more } else { 0 };
        }
        self.fill(now);
    }
}

/// Random requests, services and settings: every answer is the model's.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xce110);
    let (mut core, mut model) = (Cello::new(build, 40, 0), Model::new());
    let ms = 1_000_000;
    let mut now = 0;
    for step in 0..400 {
        now += if r.chance(60) { 0 } else { r.range(1, 20 * ms) };
        match r.below(10) {
            0..=4 => {
                let class = r.index(4);
                let (sector, estimate) = (r.below(1000), r.range(1, 10 * ms));
                let due = if class == 0 { now + r.below(200 * ms) } else { 0 };
                let number =
                    core.arrive(u32::try_from(class).expect("small"), sector, 4096, due, estimate);
                let held = model.pending.iter().map(VecDeque::len).sum::<usize>()
                    + model.bypass.len()
                    + model.scheduled.len()
                    + model.serving.len();
                if number.is_none() != (held >= 40) {
                    return Err(format!("step {step}: room for {held}: {number:?}"));
                }
                if let Some(number) = number {
                    let q = if class == 3 { &mut model.bypass } else { &mut model.pending[class] };
                    q.push_back(Request { number, class, sector, due, estimate, idle: false });
                }
            }
            5..=7 => {
                let (got, want) = (core.next(now), model.next(now).map(|r| r.number));
                if got != want {
                    return Err(format!("step {step}: request {got:?}, expected {want:?}"));
                }
            }
            8 if !model.serving.is_empty() => {
                let s = &model.serving[r.index(model.serving.len())];
                let took = if r.chance(50) { s.estimate } else { r.range(0, 2 * s.estimate) };
                let number = s.number;
                if !core.done(number, took, now) {
                    return Err(format!("step {step}: request {number} is not in service"));
                }
                model.done(number, took, now);
            }
            8 => {}
            _ if r.chance(30) => {
                let class = r.index(3);
                let weight = *r.pick(&[0, 1000, 1000, 3000, 9000]);
                model.weight[class] = weight.into();
                core.weight(u32::try_from(class).expect("small"), weight);
            }
            _ if r.chance(10) => {
                let (round, depth, slots) = (r.range(10, 300) * ms, r.range(1, 12), r.range(1, 4));
                let small = |n: u64| u32::try_from(n).expect("small");
                core.tune(round, small(depth), small(slots));
                (model.round, model.depth, model.slots) = (
                    round,
                    usize::try_from(depth).expect("small"),
                    usize::try_from(slots).expect("small"),
                );
            }
            _ => {}
        }
        let v = core.view();
        let queue: Vec<u32> = model.scheduled.iter().map(|r| r.number).collect();
        if (v.used, v.extra) != (model.used, model.extra)
            || v.scheduled[..v.n as usize] != queue[..]
        {
            return Err(format!(
                "step {step}: {v:?}, expected {:?} {:?} {queue:?}",
                model.used, model.extra
            ));
        }
    }
    Ok(())
}

/// CEL-3: where no more real-time requests came, none has become late, or later.
fn keeps(before: &BTreeMap<u32, i128>, after: &BTreeMap<u32, i128>) -> Result<(), String> {
    if after.keys().any(|i| !before.contains_key(i)) {
        return Ok(());
    }
    match after.iter().find(|(i, s)| **s < 0 && **s < before[*i]) {
        Some((i, s)) => {
            Err(format!("CEL-3: real-time request {i} had {} of slack, has {s}", before[i]))
        }
        None => Ok(()),
    }
}

/// CEL-1 to CEL-3, estimates exact, one request on the disk at a time: shares over all rounds while
/// all are pending; never idle; deadlines that interactive and throughput requests leave as they
/// were. Answers the largest part of CEL-1's bound.
pub fn bounds_of(build: Build, seed: u64) -> Result<f64, String> {
    let mut r = Rng::new(seed ^ 0xce111);
    let ms = 1_000_000;
    let mut core = Cello::new(build, 4096, 0);
    let round = r.range(50, 400) * ms;
    let depth = r.range(1, 10);
    core.tune(round, u32::try_from(depth).expect("small"), 1);
    let weights: Vec<u64> = (0..3).map(|_| r.range(1, 9)).collect();
    let longest: Vec<u64> = (0..3).map(|_| r.range(ms / 10, 8 * ms)).collect();
    for k in 0..3u32 {
        core.weight(k, u32::try_from(weights[k as usize] * 1000).expect("small"));
    }
    // Number, class, due, estimate of everything there is.
    let mut known = BTreeMap::new();
    let e = *longest.iter().max().expect("three");
    let sum: u64 = weights.iter().sum();
    let mut last = BTreeMap::new();
    let (mut now, mut worst) = (0, 0.0f64);
    let mut rounds = 0;
    #[expect(clippy::cast_precision_loss, reason = "a short trace")]
    let real = |n: u64| n as f64;
    while now < 40 * round {
        for k in 0..3u32 {
            while core.view().pending[k as usize] < 4 {
                let estimate = r.range(longest[k as usize] / 2 + 1, longest[k as usize] + 1);
                // Feasible or not: what is asserted is only who takes slack from whom.
                let due = if k == 0 { now + r.range(5 * ms, 2 * round) } else { 0 };
                let i = core.arrive(k, r.below(100_000), 4096, due, estimate).ok_or("no room")?;
                known.insert(i, (k, due, estimate));
            }
        }
        let slack = |core: &Cello, first: u64| {
            let v = core.view();
            let mut end = first;
            let mut out = BTreeMap::new();
            for &i in &v.scheduled[..v.n as usize] {
                let (k, due, estimate) = known[&i];
                end += estimate;
                if k == 0 {
                    out.insert(i, i128::from(due) - i128::from(end));
                }
            }
            out
        };
        let before = slack(&core, now);
        // What was scheduled when the last request was done, and since.
        keeps(&last, &before)?;
        let Some(i) = core.next(now) else { return Err(format!("CEL-2: idle at {now}")) };
        let (_, _, estimate) = known[&i];
        now += estimate;
        let after = slack(&core, now);
        keeps(&before, &after)?;
        last = after;
        known.remove(&i);
        if !core.done(i, estimate, now) {
            return Err(format!("request {i} is not in service"));
        }
        let v = core.view();
        if v.round_at / round > rounds {
            rounds = v.round_at / round;
            for (k, &weight) in weights.iter().enumerate().take(3) {
                let due = real(v.round_at) * real(weight) / real(sum);
                let off = (real(v.service[k]) - due).abs();
                let bound = real((3 + depth) * e);
                worst = worst.max(off / bound);
                if off > bound {
                    return Err(format!(
                        "CEL-1: class {k}: {off} off after {rounds} rounds, at most {bound}"
                    ));
                }
            }
        }
    }
    Ok(worst)
}

/// The same, for a table of promises.
pub fn bounds(build: Build, seed: u64) -> Result<(), String> {
    bounds_of(build, seed).map(drop)
}

/// CEL-4: interactive requests alone, one scheduled at a time, are first come, first served; those
/// of no class go before all, uncharged.
pub fn alone(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xce114);
    let mut core = Cello::new(build, 64, 0);
    core.tune(10_000_000, 1, 1);
    let mut waits = VecDeque::new();
    let mut plain = VecDeque::new();
    let mut now = 0;
    for step in 0..200 {
        for _ in 0..r.below(3) {
            if waits.len() < 20 {
                waits.extend(core.arrive(
                    Cello::INTERACTIVE,
                    r.below(1000),
                    4096,
                    0,
                    r.range(1, 3_000_000),
                ));
            }
        }
        if r.chance(20) {
            plain.extend(core.arrive(Cello::BYPASS, 0, 4096, 0, 0));
        }
        let used = core.view().used;
        let bypass = !plain.is_empty();
        let Some(i) = core.next(now) else {
            if waits.is_empty() && plain.is_empty() {
                now += 1;
                continue;
            }
            return Err(format!("step {step}: idle"));
        };
        let want = if bypass { plain.pop_front() } else { waits.pop_front() };
        if want != Some(i) {
            return Err(format!("step {step}: request {i}, expected {want:?}"));
        }
        now += r.range(1, 3_000_000);
        core.done(i, 1_000_000, now);
        if bypass && used[0] != core.view().used[0] {
            return Err(format!("step {step}: a request of no class was charged"));
        }
    }
    Ok(())
}

/// The example of cello.c: classes in the order of service, by their initials.
pub fn example(build: Build) -> String {
    let mut core = Cello::new(build, 64, 0);
    let ms = 1_000_000;
    core.tune(100 * ms, 8, 1);
    core.weight(Cello::INTERACTIVE, 0);
    for class in 0..3 {
        for i in 0..12 {
            core.arrive(class, i * 10, 4096, 1000 * ms, 10 * ms);
        }
    }
    let mut out = String::new();
    for i in 0..10 {
        let Some(request) = core.next(i * 10 * ms) else { return out };
        out.push(['R', 'I', 'T'][(request / 12) as usize]);
        core.done(request, 10 * ms, (i + 1) * 10 * ms);
    }
    out
}
