// SPDX-License-Identifier: MIT OR Apache-2.0
//! The algorithm's own theorems (docs/notes/algorithms.md §1.5, §8.2, §11), checked from what is
//! observed, without the exact model. Each function runs one random trace against one build of the
//! core; a broken scheduler must fail some of them.

mod apart;
mod several;
mod sfq;

use std::collections::BTreeMap;

use crate::core::{
    APART, Build, Core, FIFO, IDLE, Id, ONE, Op, QUEUE, QUEUED, ROOT, RR, SCHED, SFQ, Setup, id,
};
use crate::rng::Rng;
use crate::smp::{Cost, Habit, Machine};

pub use crate::lag::eevdf_shares;
use apart::{smp_apart, smp_apart_newcomers};
pub use several::{BELOW, Policies, RARELY_MISSED, SHORT, shares_of, sleepers};
use several::{ev_nested_shares, list_shares, smp_affinity, smp_more, smp_shares};
use sfq::{sfq1, sfq4, sfq6, sfq7, sfq35};

/// A theorem: its name in docs/notes/algorithms.md §12, and how to try it.
pub type Theorem = (&'static str, fn(Build, u64) -> Result<(), String>);

/// All of them.
pub const THEOREMS: &[Theorem] = &[
    ("SFQ-1", sfq1),
    ("SFQ-3/5", sfq35),
    ("SFQ-4", sfq4),
    ("SFQ-6", sfq6),
    ("SFQ-7", sfq7),
    ("FIX", fix),
    ("stale tags", stale),
    ("RCL", rcl),
    ("ALL", all),
    ("background", background),
    ("SMP-4", smp_shares),
    ("EV SMP nested", ev_nested_shares),
    ("SMP affinity", smp_affinity),
    ("SMP apart", smp_apart),
    ("SMP apart, newcomers", smp_apart_newcomers),
    ("SMP more", smp_more),
    ("own weight model", crate::own::lockstep),
    ("own weight", crate::own::shares),
    ("own weight at the beginning", crate::own::pulses),
    ("MTR model", crate::mtrls::lockstep),
    ("MTR exact", crate::mtrls::exact),
    ("MTR ticks", crate::mtrls::ticks),
    ("MTR changes", crate::mtrls::changes),
    ("WRR model", crate::mtrls::lockstep_wrr),
    ("WRR", crate::mtrls::wrr),
    ("MTR SMP", list_shares),
    ("prio model", crate::prio::lockstep),
    ("prio", crate::prio::promises),
    ("prio band", crate::prio::band),
    ("EDF model", crate::edf::lockstep),
    ("EDF alone", crate::edf::alone),
    ("EDF below SFQ", crate::edf::below_sfq),
    ("EDF below EEVDF", crate::edf::below_eevdf),
    ("EDF budgets", crate::edf::budgets),
    ("EDF way round", crate::edf::no_way_round),
    ("EDF victims", crate::edf::victims),
    ("EV-1/2/3/6", crate::lag::steady),
    ("EV-3 rounds", crate::lag::rounds),
    ("EV-4", crate::lag::churn),
    ("EV-5", crate::lag::reweights),
    ("EV change of policy", crate::lag::changes),
    ("EV FIX", crate::lag::wrap),
    ("EV SMP", crate::lag::several_units),
];

const Q: u64 = 4_000_000;

fn weight_of(core: &Core, n: Id) -> f64 {
    f64::from(core.node(n).weight) / f64::from(ONE)
}

#[expect(clippy::cast_precision_loss, reason = "work of a short trace")]
fn real(x: u64) -> f64 {
    x as f64
}

/// A random tree of schedulers and queues below the root. Answers the nodes in the order of their
/// making.
fn grow(core: &mut Core, r: &mut Rng, depth: usize, leaves: u64, class: u32) -> Vec<Id> {
    let mut parents = vec![ROOT];
    let mut made = Vec::new();
    let mut index = 2;
    for _ in 1..depth {
        let node = id(index, 1);
        let parent = *r.pick(&parents);
        core.must(0, Op::Create { node, parent, kind: SCHED, alg: 0 });
        core.must(
            0,
            Op::Reweight { node, weight: u32::try_from(r.range(1, 9)).expect("small") * ONE },
        );
        parents.push(node);
        made.push(node);
        index += 1;
    }
    for k in 0..leaves {
        let node = id(index, 1);
        // No scheduler stays empty.
        let parent = usize::try_from(k).ok().and_then(|k| parents.get(k + 1)).copied();
        let parent = parent.unwrap_or(*r.pick(&parents));
        core.must(0, Op::Create { node, parent, kind: QUEUE, alg: class });
        let top = if r.chance(50) { 9 } else { 10_000 };
        core.must(
            0,
            Op::Reweight { node, weight: u32::try_from(r.range(1, top)).expect("small") * ONE },
        );
        made.push(node);
        index += 1;
    }
    made
}

fn queues(core: &Core, nodes: &[Id]) -> Vec<Id> {
    nodes.iter().copied().filter(|&n| core.node(n).kind == QUEUE).collect()
}

/// FIX: the answers do not depend on where the clocks started.
fn fix(build: Build, seed: u64) -> Result<(), String> {
    let trace = |start: u64| -> Vec<Option<u32>> {
        let mut r = Rng::new(seed ^ 0xf1);
        let mut core = Core::new(Setup { build, start, ..Setup::default() });
        let depth = usize::try_from(r.range(1, 3)).expect("small");
        let nodes = grow(&mut core, &mut r, depth, 4, SFQ);
        let mut items = Vec::new();
        for q in queues(&core, &nodes) {
            for _ in 0..2 {
                items.extend(core.item_new(q, u32::try_from(r.range(1, 5000)).expect("small"), 0));
            }
        }
        let mut picks = Vec::new();
        let mut now = 0;
        // Lengths up to minutes, so that tags do move through the ends of the range.
        for _ in 0..400 {
            now += r.below(Q);
            match r.below(4) {
                0 => {
                    let item = *r.pick(&items);
                    if core.item(item).state == IDLE {
                        core.wake(item, now);
                    }
                }
                1 if r.chance(20) => {
                    let node = *r.pick(&nodes);
                    core.must(now, Op::Reweight { node, weight: *r.pick(&[10, 100, 1000, 5000]) });
                }
                _ => {
                    let got = core.pick(0, now);
                    picks.push(got);
                    if let Some(item) = got {
                        let work = if r.chance(20) { r.below(1 << 36) } else { r.below(Q) };
                        core.settle(item, work, r.chance(80), now);
                    }
                }
            }
        }
        picks
    };
    let want = trace(0);
    for start in [(1u64 << 63) - (1 << 48), 0u64.wrapping_sub(1 << 48), (1 << 60) - 5] {
        if trace(start) != want {
            return Err(format!("FIX: another trace from {start:#x}"));
        }
    }
    Ok(())
}

/// A child that is idle for so long that virtual time passes its finish tag by half the number
/// range, or more, is not kept waiting when it comes back; nor has it credit.
fn stale(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x57);
    let mut core = Core::new(Setup { build, ..Setup::default() });
    let (a, b) = (id(2, 1), id(3, 1));
    for (node, weight) in [(a, ONE), (b, 1)] {
        core.must(0, Op::Create { node, parent: ROOT, kind: QUEUE, alg: SFQ });
        core.must(0, Op::Reweight { node, weight });
    }
    let ia = core.item_new(a, ONE, 0).ok_or("no item")?;
    let ib = core.item_new(b, ONE, 0).ok_or("no item")?;
    core.wake(ia, 0);
    core.wake(ib, 0);
    let mut now = 0;
    // Each of b's steps moves v by up to 2^60: sixteen are once round.
    let rounds = r.range(1, 20);
    let pauses = r.chance(30);
    // a runs a little and sleeps, with a finish tag ahead of v.
    for _ in 0..4 {
        let got = core.pick(0, now).ok_or("idle")?;
        core.settle(got, Q, true, now);
    }
    if core.item(ia).state == QUEUED {
        core.remove(ia);
    }
    for k in 0..rounds {
        let got = core.pick(0, now).ok_or("idle")?;
        let work = r.range(1 << 39, 1 << 41);
        now += work;
        core.settle(got, work, true, now);
        if pauses && r.chance(30) && k + 1 < rounds {
            core.remove(ib);
            core.wake(ib, now);
        }
    }
    core.wake(ia, now);
    // b's step may have been long and is a debt for a while, but a must be served now and share
    // from then on.
    let mut got_b = 0;
    for _ in 0..50 {
        let got = core.pick(0, now).ok_or("idle")?;
        now += Q;
        core.settle(got, Q, true, now);
        got_b += u32::from(got == ib);
    }
    if got_b > 2 {
        return Err(format!("a stale tag: weight 0.001 had {got_b} of 50 steps beside weight 1"));
    }
    // The other way: b comes back after a ran for long.
    core.remove(ib);
    for _ in 0..r.range(1, 30) {
        let got = core.pick(0, now).ok_or("idle")?;
        now += 1 << 41;
        core.settle(got, 1 << 41, true, now);
    }
    core.wake(ib, now);
    let got = [core.pick(0, now).ok_or("idle")?];
    core.settle(got[0], Q, true, now);
    let second = core.pick(0, now).ok_or("idle")?;
    if got[0] != ib && second != ib {
        return Err("a stale tag: kept waiting after the other's long run".into());
    }
    Ok(())
}

/// RCL-1 and RCL-2: usage of a capped subtree in every window of a saturated run.
fn rcl(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xc1);
    let mut core = Core::new(Setup { build, ..Setup::default() });
    let (site, free) = (id(2, 1), id(3, 1));
    core.must(0, Op::Create { node: site, parent: ROOT, kind: SCHED, alg: 0 });
    core.must(0, Op::Create { node: free, parent: ROOT, kind: QUEUE, alg: SFQ });
    core.must(0, Op::Reweight { node: site, weight: 5 * ONE });
    core.must(0, Op::Reweight { node: free, weight: ONE });
    let mut below = 0;
    for k in 4..6 {
        let node = id(k, 1);
        core.must(0, Op::Create { node, parent: site, kind: QUEUE, alg: SFQ });
        core.must(0, Op::Reweight { node, weight: ONE });
        let item = core.item_new(node, ONE, 0).ok_or("no item")?;
        core.wake(item, 0);
        below += 1;
    }
    let alone = r.chance(50);
    if !alone {
        let item = core.item_new(free, ONE, 0).ok_or("no item")?;
        core.wake(item, 0);
    }
    let ppm = r.range(10_000, 600_000);
    let burst = r.range(2 * Q, 20 * Q);
    core.must(0, Op::Cap { node: site, ppm, burst });
    let share = real(ppm) / 1e6;
    let (mut now, mut used) = (0u64, 0u64);
    // Distance from the line of the cap: highest drop and highest rise from the lowest and highest
    // so far.
    let (mut lowest, mut highest) = (0.0f64, 0.0f64);
    for step in 0..1500 {
        let got = core.pick(0, now);
        let Some(item) = got else {
            let next = core.tree().next_ns;
            if next <= now {
                return Err(format!(
                    "step {step}: nothing now, and nothing later, though {below} wait"
                ));
            }
            now = next;
            continue;
        };
        let work = if r.chance(60) { Q } else { r.range(1, Q) };
        now += work;
        core.settle(item, work, true, now);
        if core.item(item).queue != free {
            used += work;
        }
        if core.node(site).service != used {
            return Err(format!(
                "step {step}: the site's counter is {}, not {used}",
                core.node(site).service
            ));
        }
        let x = real(used) - share * real(now);
        (lowest, highest) = (lowest.min(x), highest.max(x));
        // In arrears: a window may begin with a full bucket, and end with a step that was begun
        // with the last token.
        if x - lowest > real(burst) + real(2 * Q) {
            return Err(format!(
                "step {step}: RCL-1: {} over, at most {}",
                x - lowest,
                burst + 2 * Q
            ));
        }
        // What the weights give is less than the cap only if the other queue runs: 5 of 6 are more
        // than 0.6.
        if highest - x > real(burst) + real(3 * Q) {
            return Err(format!(
                "step {step}: RCL-2: {} short, at most {}",
                highest - x,
                burst + 3 * Q
            ));
        }
    }
    Ok(())
}

/// ALL: work conservation, nothing lost, first come first served within a FIFO queue, one turn each
/// in a round-robin queue, and counters that add up.
fn all(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xa1);
    let units = u32::try_from(r.range(1, 4)).expect("small");
    let mut core = Core::new(Setup { build, units, ..Setup::default() });
    let depth = usize::try_from(r.range(1, 4)).expect("small");
    let class = *r.pick(&[FIFO, RR]);
    let nodes = grow(&mut core, &mut r, depth, 4, class);
    let leaves = queues(&core, &nodes);
    let mut items = Vec::new();
    for _ in 0..12 {
        items.extend(core.item_new(*r.pick(&leaves), ONE, 0));
    }
    let mut line: BTreeMap<Id, Vec<u32>> = leaves.iter().map(|&l| (l, Vec::new())).collect();
    let mut serving: Vec<Option<u32>> = vec![None; units as usize];
    let (mut total, mut steps, mut now) = (0u64, 0u64, 0u64);
    for step in 0..800 {
        now += r.below(Q);
        let item = *r.pick(&items);
        let unit = r.index(units as usize);
        match r.below(8) {
            0 | 1 if core.item(item).state == IDLE => {
                core.wake(item, now);
                line.get_mut(&core.item(item).queue).expect("a leaf").push(item);
            }
            2 if core.item(item).state == QUEUED && r.chance(30) => {
                core.remove(item);
                line.get_mut(&core.item(item).queue).expect("a leaf").retain(|&i| i != item);
            }
            3 if core.item(item).state == QUEUED && r.chance(30) => {
                // To another queue: at the rear there.
                let to = *r.pick(&leaves);
                let from = core.item(item).queue;
                if core.item_move(item, to, 0, now) && to != from {
                    line.get_mut(&from).expect("a leaf").retain(|&i| i != item);
                    line.get_mut(&to).expect("a leaf").push(item);
                }
            }
            _ => {
                if let Some(item) = serving[unit].take() {
                    let work = r.below(Q);
                    let more = r.chance(70);
                    core.settle(item, work, more, now);
                    total += work;
                    steps += 1;
                    if more {
                        let l = line.get_mut(&core.item(item).queue).expect("a leaf");
                        // FIFO: it keeps its place; items that went into service before it stay
                        // before it.
                        if class == FIFO { l.insert(0, item) } else { l.push(item) }
                    }
                } else {
                    let waiting: usize = line.values().map(Vec::len).sum();
                    let got = core.pick(u32::try_from(unit).expect("small"), now);
                    if got.is_some() != (waiting > 0) {
                        return Err(format!("step {step}: {got:?} with {waiting} waiting"));
                    }
                    if let Some(item) = got {
                        let l = line.get_mut(&core.item(item).queue).expect("a leaf");
                        if units == 1 && l.first() != Some(&item) {
                            return Err(format!(
                                "step {step}: {item} before {:?} in class {class}",
                                l.first()
                            ));
                        }
                        l.retain(|&i| i != item);
                        serving[unit] = Some(item);
                    }
                }
            }
        }
        if core.node(ROOT).service != total || core.node(ROOT).served != steps {
            return Err(format!(
                "step {step}: root counts {}, not {total}",
                core.node(ROOT).service
            ));
        }
        for &n in nodes.iter().filter(|&&n| core.node(n).kind == SCHED) {
            let kids = nodes.iter().filter(|&&k| core.node(k).parent == n);
            let sum: u64 = kids.map(|&k| core.node(k).service).sum();
            if core.node(n).service != sum {
                return Err(format!(
                    "step {step}: node {n:x} counts {}, its children {sum}",
                    core.node(n).service
                ));
            }
        }
    }
    Ok(())
}

/// Weight 0 is served when nobody else wants, and only then; and the starvation rule keeps it
/// alive, also where it changes queue all the time.
fn background(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xb9);
    let mut core = Core::new(Setup { build, ..Setup::default() });
    let (bg, fg, other) = (id(2, 1), id(3, 1), id(4, 1));
    for node in [bg, fg, other] {
        core.must(0, Op::Create { node, parent: ROOT, kind: QUEUE, alg: SFQ });
    }
    core.must(0, Op::Reweight { node: fg, weight: ONE });
    // In one list by age, or in both.
    let b = core.item_new(bg, ONE, *r.pick(&[0, APART])).ok_or("no item")?;
    let f = core.item_new(fg, ONE, *r.pick(&[0, APART])).ok_or("no item")?;
    let starve = r.range(10, 50) * Q;
    core.set(Q, starve, Q);
    let mut now = 0;
    core.wake(b, now);
    core.wake(f, now);
    let mut since = 0;
    let moves = r.chance(50);
    for step in 0..600 {
        if moves && r.chance(40) {
            let to = if core.item(b).queue == bg { other } else { bg };
            if !core.item_move(b, to, 0, now) {
                return Err(format!("step {step}: the move is refused"));
            }
        }
        let wants = core.item(f).state == QUEUED;
        let got = core.pick(0, now).ok_or("idle")?;
        if got == b && wants && now - since < starve {
            return Err(format!("step {step}: background before its turn"));
        }
        if got == f && now - since > 2 * starve {
            return Err(format!("step {step}: background waits for {}", now - since));
        }
        if got == b {
            since = now;
        }
        now += Q;
        let more = got == b || r.chance(97);
        core.settle(got, Q, more, now);
        if core.item(f).state == IDLE && r.chance(50) {
            core.wake(f, now);
        }
    }
    Ok(())
}
