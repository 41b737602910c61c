// SPDX-License-Identifier: MIT OR Apache-2.0
//! The theorems of policy eevdf (docs/notes/algorithms.md §3.6) and of a change of policy, checked
//! from what is observed: who was served for how long. The fluid share of a child is its weight's
//! part of what the node received, so they hold for a node of any server: the root, or one below a
//! root of another policy.

use crate::core::{Build, Core, FIFO, IDLE, Id, ONE, Op, QUEUE, QUEUED, ROOT, SCHED, Setup, id};
use crate::rng::Rng;
use crate::smp::{Habit, Machine};

const Q: u64 = 4_000_000;
const SFQ: u32 = 0;
const EEVDF: u32 = 1;
/// Rounding, in units of work.
const EPS: f64 = 1000.0;

struct Kid {
    node: Id,
    item: u32,
    weight: f64,
    /// What it should have received less what it did.
    lag: f64,
    service: u64,
}

/// A node with queues of one item each, and perhaps a sibling of its own.
struct Bed {
    core: Core,
    top: Id,
    kids: Vec<Kid>,
    now: u64,
    /// Work of `top`.
    total: f64,
    serving: Option<u32>,
}

#[expect(clippy::cast_precision_loss, reason = "work of a short trace")]
fn real(x: u64) -> f64 {
    x as f64
}

impl Bed {
    fn new(build: Build, r: &mut Rng, most: u64, start: u64) -> Self {
        let mut core = Core::new(Setup { build, start, ..Setup::default() });
        let top = if r.chance(50) { ROOT } else { id(2, 1) };
        if top == ROOT {
            core.must(0, Op::Policy { node: ROOT, policy: EEVDF });
        } else {
            core.must(0, Op::Policy { node: ROOT, policy: if r.chance(50) { EEVDF } else { SFQ } });
            core.must(0, Op::Create { node: top, parent: ROOT, kind: SCHED, alg: EEVDF });
            core.must(0, Op::Reweight { node: top, weight: 3 * ONE });
            let other = id(3, 1);
            core.must(0, Op::Create { node: other, parent: ROOT, kind: QUEUE, alg: FIFO });
            core.must(0, Op::Reweight { node: other, weight: 2 * ONE });
            let item = core.item_new(other, ONE, 0).expect("room");
            core.wake(item, 0);
        }
        let mut kids = Vec::new();
        for k in 0..r.range(2, most) {
            let node = id(4 + u32::try_from(k).expect("few"), 1);
            let heaviest = if r.chance(30) { 1000 } else { 9 };
            let weight = u32::try_from(r.range(1, heaviest)).expect("small") * ONE;
            core.must(0, Op::Create { node, parent: top, kind: QUEUE, alg: FIFO });
            core.must(0, Op::Reweight { node, weight });
            let item = core.item_new(node, ONE, 0).expect("room");
            kids.push(Kid { node, item, weight: f64::from(weight), lag: 0.0, service: 0 });
        }
        Self { core, top, kids, now: 1000, total: 0.0, serving: None }
    }

    /// The step in service ends; fluid shares are those of `counts`.
    fn settle(&mut self, work: u64, more: bool, counts: impl Fn(&Kid) -> bool) {
        let Some(item) = self.serving.take() else { return };
        self.now += work;
        let own = self.kids.iter().position(|k| k.item == item);
        self.core.settle(item, work, more || own.is_none(), self.now);
        let Some(own) = own else { return };
        self.total += real(work);
        let sum: f64 = self.kids.iter().filter(|k| counts(k)).map(|k| k.weight).sum();
        for k in self.kids.iter_mut().filter(|k| counts(k)) {
            k.lag += real(work) * k.weight / sum;
        }
        self.kids[own].lag -= real(work);
        self.kids[own].service += work;
    }

    fn step(&mut self, r: &mut Rng, whole: bool) {
        if self.serving.is_some() {
            let work = if whole || r.chance(50) { Q } else { r.range(1, Q) };
            self.settle(work, true, |_| true);
        }
        self.serving = self.core.pick(0, self.now);
    }

    fn sound(&self) -> Result<(), String> {
        if self.core.tree().poison != 0 {
            return Err("poison".into());
        }
        self.core.check()
    }

    fn wake_all(&mut self) {
        for k in &self.kids {
            self.core.wake(k.item, self.now);
        }
    }
}

/// EV-1, EV-2, EV-3, EV-6: all always want service, one with requests of any length that is set.
/// Where requests end within steps, what a step has beyond the end of a request is in no deadline:
/// each sibling may add so much to one's credit.
pub(crate) fn steady(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xe1);
    let mut bed = Bed::new(build, &mut r, 8, 0);
    // EV-3 is about requests that end where steps do: what goes on beyond the end of one is not in
    // its deadline.
    let whole = r.chance(50);
    let request = match r.below(3) {
        0 if !whole => r.range(Q / 100, Q),
        1 if !whole => r.range(Q, 10 * Q),
        2 => 100 * Q,
        _ => Q * r.range(1, 10),
    };
    bed.core.must(0, Op::Param { node: bed.kids[0].node, which: 2, value: request });
    bed.wake_all();
    let sum: f64 = bed.kids.iter().map(|k| k.weight).sum();
    let beyond = Q * u64::try_from(bed.kids.len() - 1).expect("few");
    let mut begun = 0;
    for step in 0..1200 {
        bed.step(&mut r, whole);
        for (i, k) in bed.kids.iter().enumerate() {
            let most = if i == 0 { request.max(Q) } else { Q } + if whole { 0 } else { beyond };
            if k.lag < -real(Q) - EPS || k.lag > real(most) + EPS {
                return Err(format!("EV-1: step {step}: lag of {i} is {:.3} q", k.lag / real(Q)));
            }
        }
        let first = &bed.kids[0];
        // Its request began when it had `begun`: V is the deadline when the node has had this much.
        let due = real(begun + request) / first.weight * sum;
        if whole && bed.total >= due + real(Q) + EPS && first.service < begun + request {
            return Err(format!("EV-3: step {step}: a request of {request} is late"));
        }
        if first.service >= begun + request {
            begun = first.service;
        }
        if step % 50 == 0 {
            bed.sound()?;
        }
    }
    bed.sound()
}

/// EV-3 for requests that end because more is asked for: a child that works in rounds of one
/// length, and always finds more to do, has its rounds complete as if that length were set; one or
/// several rounds may end in a step. The others' lags stay in EV-1: theirs is the step beyond the
/// end of a request.
pub(crate) fn rounds(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xe8);
    let mut bed = Bed::new(build, &mut r, 8, 0);
    bed.wake_all();
    let sum: f64 = bed.kids.iter().map(|k| k.weight).sum();
    let round = Q / r.range(2, 8);
    let each = r.range(1, Q / round);
    let item = bed.kids[0].item;
    let (mut begun, mut done) = (0, 0);
    for step in 0..2000 {
        if bed.serving == Some(item) {
            for _ in 0..each {
                bed.core.called(item);
            }
            bed.settle(each * round, true, |_| true);
            begun = bed.kids[0].service;
            done += 1;
        } else {
            bed.settle(Q, true, |_| true);
        }
        bed.serving = bed.core.pick(0, bed.now);
        for (i, k) in bed.kids.iter().enumerate() {
            let most = if i == 0 { Q } else { 2 * Q };
            if k.lag < -real(Q) - EPS || k.lag > real(most) + EPS {
                return Err(format!("EV-1: step {step}: lag of {i} is {:.3} q", k.lag / real(Q)));
            }
        }
        // The estimate has come within 4 of the length; the request began when it had `begun`.
        let due = real(begun + round + 4) / bed.kids[0].weight * sum;
        if done > 60 && bed.total >= due + real(Q) + EPS {
            return Err(format!(
                "EV-3: step {step}: a round of {:.2} q is late",
                real(round) / real(Q)
            ));
        }
        if step % 50 == 0 {
            bed.sound()?;
        }
    }
    bed.sound()
}

/// EV-4: one child always wants service, the others come and go, also while a step is under way;
/// its share is that of its weight among all that exist.
pub(crate) fn churn(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xe4);
    let mut bed = Bed::new(build, &mut r, 6, 0);
    bed.core.wake(bed.kids[0].item, 0);
    let (stay, wakes) = (r.range(10, 90), r.range(20, 90));
    let mut low = 0.0_f64;
    for step in 0..4000 {
        if bed.serving.is_some() {
            let own = bed.serving == Some(bed.kids[0].item);
            let work = if r.chance(50) { Q } else { r.range(1, Q) };
            bed.settle(work, own || r.chance(stay), |_| true);
        }
        for i in 1..bed.kids.len() {
            let item = bed.kids[i].item;
            match bed.core.item(item).state {
                IDLE if r.chance(wakes) => bed.core.wake(item, bed.now),
                QUEUED if r.chance(2) => bed.core.remove(item),
                _ => {}
            }
        }
        bed.serving = bed.core.pick(0, bed.now);
        if r.chance(40) {
            let item = bed.kids[r.index(bed.kids.len())].item;
            if bed.core.item(item).state == IDLE {
                bed.core.wake(item, bed.now);
            }
        }
        let lag = bed.kids[0].lag;
        low = low.min(lag);
        if lag - low > 2.0 * real(Q) + EPS {
            return Err(format!(
                "EV-4: step {step}: {:.2} q behind its share",
                (lag - low) / real(Q)
            ));
        }
        if step % 100 == 0 {
            bed.sound()?;
        }
    }
    bed.sound()
}

/// EV-5: new weights at any time; what each has received too little or too much stays as it is.
/// (Steps end within requests: 3 q.)
pub(crate) fn reweights(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xe5);
    let mut bed = Bed::new(build, &mut r, 6, 0);
    bed.wake_all();
    for step in 0..3000 {
        if r.chance(30) {
            let k = r.index(bed.kids.len());
            let weight = u32::try_from(r.range(1, 9)).expect("small") * ONE;
            bed.core.must(bed.now, Op::Reweight { node: bed.kids[k].node, weight });
            bed.kids[k].weight = f64::from(weight);
        }
        bed.step(&mut r, false);
        if let Some(k) = bed.kids.iter().find(|k| k.lag.abs() > 3.0 * real(Q) + EPS) {
            return Err(format!("EV-5: step {step}: lag {:.3} q", k.lag / real(Q)));
        }
        if step % 100 == 0 {
            bed.sound()?;
        }
    }
    bed.sound()
}

/// The policy changes under load, between sfq and eevdf: nobody loses or gains by it.
pub(crate) fn changes(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xec);
    let mut bed = Bed::new(build, &mut r, 4, 0);
    bed.wake_all();
    let bound = real(Q) * real(u64::try_from(bed.kids.len()).expect("few") + 1) + EPS;
    for step in 0..4000 {
        if r.chance(25) {
            let policy = u32::try_from(r.below(2)).expect("small");
            let node = if r.chance(80) { bed.top } else { ROOT };
            bed.core.must(bed.now, Op::Policy { node, policy });
        }
        bed.step(&mut r, false);
        if let Some(k) = bed.kids.iter().find(|k| k.lag.abs() > bound) {
            return Err(format!("policy: step {step}: lag {:.2} q", k.lag / real(Q)));
        }
        if step % 100 == 0 {
            bed.sound()?;
        }
    }
    bed.sound()
}

/// FIX: a trace does not depend on where virtual time started. Ends of the number range: the
/// invariants hold, and lags are bounded by the longest step.
pub(crate) fn wrap(build: Build, seed: u64) -> Result<(), String> {
    let run = |start: u64| -> Result<Vec<Option<u32>>, String> {
        let mut r = Rng::new(seed ^ 0xe7);
        let mut bed = Bed::new(build, &mut r, 6, start);
        let extreme = r.chance(50);
        if extreme {
            for k in 0..bed.kids.len() {
                let weight = *r.pick(&[1, 1000, 1_000_000_000]);
                bed.core.must(0, Op::Reweight { node: bed.kids[k].node, weight });
                bed.kids[k].weight = f64::from(weight);
            }
        }
        let mut picks = Vec::new();
        for _ in 0..500 {
            if bed.serving.is_some() {
                let work =
                    if extreme { *r.pick(&[0, 1, Q, 1 << 36, 1 << 43]) } else { r.range(1, Q) };
                bed.settle(work, r.chance(60), |_| true);
            }
            for k in &bed.kids {
                if bed.core.item(k.item).state == IDLE && r.chance(40) {
                    bed.core.wake(k.item, bed.now);
                }
            }
            if r.chance(5) {
                let policy = u32::try_from(r.below(2)).expect("small");
                bed.core.must(bed.now, Op::Policy { node: bed.top, policy });
            }
            bed.serving = bed.core.pick(0, bed.now);
            picks.push(bed.serving);
            bed.sound()?;
        }
        Ok(picks)
    };
    let plain = run(0)?;
    for start in [(1 << 63) - (1 << 48), u64::MAX - (1 << 48), (1 << 60) - (1 << 40)] {
        if run(start)? != plain {
            return Err(format!("FIX: decisions depend on virtual time {start:#x}"));
        }
    }
    Ok(())
}

/// Several units, a flat tree of threads that always want one, some with weights that they cannot
/// use.
pub(crate) fn several_units(build: Build, seed: u64) -> Result<(), String> {
    saturated_stays(build, seed)?;
    eevdf_shares(build, seed, [2, 3, 4, 8][usize::try_from(seed % 4).expect("small")])
}

const WEIGHTS: [u32; 7] = [1, 1, 2, 5, 10, 100, 1000];

/// Who cannot use its share is no client, however many steps it has in one of the others' (V does
/// not move meanwhile).
fn saturated_stays(build: Build, seed: u64) -> Result<(), String> {
    let long = 2 + seed % 20;
    let mut core = Core::new(Setup { build, nodes: 64, items: 64, units: 2, quantum: Q, start: 0 });
    core.must(0, Op::Policy { node: ROOT, policy: EEVDF });
    let [heavy, light] = [(2, 1000), (3, 1)].map(|(index, weight)| {
        let node = id(index, 1);
        core.must(0, Op::Create { node, parent: ROOT, kind: QUEUE, alg: FIFO });
        core.must(0, Op::Reweight { node, weight: weight * ONE });
        node
    });
    for queue in [heavy, light, light] {
        let item = core.item_new(queue, ONE, 0).expect("room");
        core.wake(item, 0);
    }
    let mut running = [0, 1].map(|unit| core.pick(unit, 0).expect("somebody waits"));
    for step in 1..200 {
        let now = step * Q;
        let mut end = |unit: usize, work: u64| {
            core.settle(running[unit], work, true, now);
            running[unit] =
                core.pick(u32::try_from(unit).expect("small"), now).expect("somebody waits");
        };
        end(0, Q);
        if step % long == 0 {
            end(1, long * Q);
        }
        if step > 100 && core.node(heavy).client != 0 {
            return Err(format!(
                "a step of {long} quanta: who cannot use its share is a client after {step}"
            ));
        }
    }
    core.check()
}

/// Shares are those of GMS, within 1 % and three quanta of 1000: at first, where a queue has one to
/// four threads; after weights have changed; and with as many more threads as units in each, so
/// that all can be used. No unit idles.
pub fn eevdf_shares(build: Build, seed: u64, units: u32) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xe9);
    let mut m = Machine::new(build, units, Q, seed);
    m.core.set(Q, 0, 0); // nobody is served for having waited long
    m.core.must(0, Op::Policy { node: ROOT, policy: EEVDF });
    let leaves: Vec<Id> = (0..r.range(2, u64::from(units) + 4))
        .map(|_| m.queue(ROOT, *r.pick(&WEIGHTS) * ONE))
        .collect();
    for &l in &leaves {
        for _ in 0..r.range(1, 4) {
            m.thread(l, Habit::Hog, None);
        }
    }
    for phase in 0..3 {
        if phase == 1 {
            for &l in &leaves {
                m.reweight(l, *r.pick(&WEIGHTS) * ONE);
            }
        }
        if phase == 2 {
            for &l in &leaves {
                for _ in 0..units {
                    m.thread(l, Habit::Hog, None);
                }
            }
        }
        m.run(50 * u64::from(units) * Q);
        let before: Vec<u64> = leaves.iter().map(|&l| m.service(l)).collect();
        m.run(1000 * Q);
        let ideal = m.ideal();
        for (l, before) in leaves.iter().zip(before) {
            let got = real(m.service(*l) - before) / real(1000 * Q);
            if (got - ideal[l]).abs() > 0.01 * ideal[l] + 0.003 {
                return Err(format!(
                    "P={units}, phase {phase}: leaf {l:x} had {got:.4} units, GMS {:.4}",
                    ideal[l]
                ));
            }
        }
        if m.wasted > 0 {
            return Err(format!("P={units}: units idle for {} while a thread waits", m.wasted));
        }
        m.core.check()?;
    }
    Ok(())
}
