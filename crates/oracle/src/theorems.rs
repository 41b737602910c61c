// SPDX-License-Identifier: MIT OR Apache-2.0
//! The algorithm's own theorems (ALGORITHMS §1.5, §8.2, §11), checked from what is observed, without the exact model. Each
//! function runs one random trace against one build of the core; a broken scheduler must fail some of them.

use std::collections::BTreeMap;

use crate::core::{
    APART, Build, Core, FIFO, IDLE, Id, ONE, Op, QUEUE, QUEUED, ROOT, RR, SCHED, SFQ, Setup, id,
};
use crate::rng::Rng;
use crate::smp::{Cost, Habit, Machine};

/// A theorem: its name in ALGORITHMS §12, and how to try it.
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
    ("SMP affinity", smp_affinity),
    ("SMP more", smp_more),
    ("MTR model", crate::mtrls::lockstep),
    ("MTR exact", crate::mtrls::exact),
    ("MTR ticks", crate::mtrls::ticks),
    ("MTR changes", crate::mtrls::changes),
    ("prio model", crate::prio::lockstep),
    ("prio", crate::prio::promises),
    ("prio band", crate::prio::band),
    ("EDF model", crate::edf::lockstep),
    ("EDF alone", crate::edf::alone),
    ("EDF below SFQ", crate::edf::below_sfq),
    ("EDF budgets", crate::edf::budgets),
    ("EDF way round", crate::edf::no_way_round),
    ("EDF victims", crate::edf::victims),
    ("EV-1/2/3/6", crate::lag::steady),
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

/// A random tree of schedulers and queues below the root. Answers the nodes in the order of their making.
fn grow(core: &mut Core, r: &mut Rng, depth: usize, leaves: u64, class: u32) -> Vec<Id> {
    let mut parents = vec![ROOT];
    let mut made = Vec::new();
    let mut index = 2;
    for _ in 1..depth {
        let node = id(index, 1);
        let parent = *r.pick(&parents);
        core.must(0, Op::Create { node, parent, kind: SCHED, alg: 0 });
        core.must(0, Op::Reweight { node, weight: u32::try_from(r.range(1, 9)).expect("small") * ONE });
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
        core.must(0, Op::Reweight { node, weight: u32::try_from(r.range(1, top)).expect("small") * ONE });
        made.push(node);
        index += 1;
    }
    made
}

fn queues(core: &Core, nodes: &[Id]) -> Vec<Id> {
    nodes.iter().copied().filter(|&n| core.node(n).kind == QUEUE).collect()
}

/// SFQ-1, SFQ-1w, SFQ-2: normalised service of siblings that both stay runnable, on a server that works and pauses as it
/// likes, while others come, go, are killed and reweighted.
#[expect(clippy::too_many_lines, reason = "one trace, from its events to its checks")]
fn sfq1(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x51);
    let mut core = Core::new(Setup { build, ..Setup::default() });
    let depth = usize::try_from(r.range(1, 3)).expect("small");
    let leaves = r.range(2, 5);
    let class = *r.pick(&[SFQ, RR, FIFO]);
    let nodes = grow(&mut core, &mut r, depth, leaves, class);
    let mut items = Vec::new();
    for q in queues(&core, &nodes) {
        for _ in 0..r.range(1, 2) {
            items.push(core.item_new(q, ONE, 0).ok_or("no item")?);
        }
    }
    let lmax = real(Q);
    let mut now = 1000;
    let mut serving: Option<u32> = None;
    let mut spread: BTreeMap<(Id, Id), (f64, f64)> = BTreeMap::new();
    let mut virtual_time: BTreeMap<Id, u64> = BTreeMap::new();
    for step in 0..500 {
        now += r.below(Q);
        let mut touched = None;
        match r.below(10) {
            0..=4 => {
                if let Some(item) = serving.take() {
                    let work = if r.chance(50) { Q } else { r.range(1, Q) };
                    core.settle(item, work, r.chance(85), now);
                } else {
                    serving = core.pick(0, now);
                }
            }
            5..=7 => {
                let item = *r.pick(&items);
                match core.item(item).state {
                    IDLE => core.wake(item, now),
                    QUEUED if r.chance(20) => core.remove(item),
                    _ => {}
                }
            }
            8 if r.chance(40) => {
                let node = *r.pick(&nodes);
                let weight = u32::try_from(r.range(1, 9)).expect("small") * ONE;
                core.must(now, Op::Reweight { node, weight });
                touched = Some(node);
            }
            _ => {}
        }
        if core.tree().poison != 0 {
            return Err(format!("step {step}: poison"));
        }
        for &n in &nodes {
            let view = core.node(n);
            let p = core.node(view.parent);
            if view.runnable != 0 {
                // SFQ-2. While served the key holds the reservation; the tag is the start tag.
                #[expect(clippy::cast_possible_wrap, reason = "tags are compared modulo 2^64")]
                let ahead = view.tag.wrapping_sub(p.v) as i64;
                // A rounding of one unit at the largest weight is that much at the least.
                let bound = (Q << 20) / u64::from(view.weight) + 20_000;
                if ahead < 0 || ahead.unsigned_abs() > bound {
                    return Err(format!(
                        "step {step}: SFQ-2: node {n:x} is {ahead} ahead of v, at most {bound}"
                    ));
                }
            }
            let last = virtual_time.insert(n, view.v).unwrap_or(view.v);
            if view.v.wrapping_sub(last) > 1 << 62 {
                return Err(format!("step {step}: virtual time of {n:x} went back"));
            }
        }
        // SFQ-1 is about step ends.
        if serving.is_some() && touched.is_none() {
            for (i, &f) in nodes.iter().enumerate() {
                for &m in &nodes[i + 1..] {
                    let (a, b) = (core.node(f), core.node(m));
                    if a.parent == b.parent && (a.runnable == 0 || b.runnable == 0) {
                        spread.remove(&(f, m));
                    }
                }
            }
            continue;
        }
        for (i, &f) in nodes.iter().enumerate() {
            for &m in &nodes[i + 1..] {
                let (a, b) = (core.node(f), core.node(m));
                if a.parent != b.parent {
                    continue;
                }
                if a.runnable == 0 || b.runnable == 0 || touched == Some(f) || touched == Some(m) {
                    spread.remove(&(f, m));
                }
                if a.runnable == 0 || b.runnable == 0 || serving.is_some() {
                    continue;
                }
                let (wf, wm) = (weight_of(&core, f), weight_of(&core, m));
                let d = real(a.service) / wf - real(b.service) / wm;
                let (lo, hi) = spread.get(&(f, m)).copied().unwrap_or((d, d));
                let (lo, hi) = (lo.min(d), hi.max(d));
                spread.insert((f, m), (lo, hi));
                let bound = lmax / wf + lmax / wm;
                if hi - lo > bound * (1.0 + 1e-9) + 1e-3 {
                    return Err(format!(
                        "step {step}: SFQ-1: {f:x} and {m:x} differ by {} of {bound}",
                        hi - lo
                    ));
                }
            }
        }
    }
    Ok(())
}

/// SFQ-3 and SFQ-5: a leaf that always has work receives at least its rate, less a constant, from a server that stalls
/// for a bounded time in all; composed over the levels.
fn sfq35(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x35);
    let mut core = Core::new(Setup { build, ..Setup::default() });
    let depth = usize::try_from(r.range(1, 3)).expect("small");
    let leaves = r.range(2, 5);
    let nodes = grow(&mut core, &mut r, depth, leaves, SFQ);
    let leaves = queues(&core, &nodes);
    // Lengths of each leaf, and who always has work.
    let longest: BTreeMap<Id, u64> = leaves.iter().map(|&l| (l, r.range(Q / 10, Q))).collect();
    let steady: Vec<Id> = leaves.iter().copied().filter(|_| r.chance(60)).collect();
    let mut items = BTreeMap::new();
    for &l in &leaves {
        let item = core.item_new(l, ONE, 0).ok_or("no item")?;
        items.insert(item, l);
        if steady.contains(&l) {
            core.wake(item, 0);
        }
    }
    let below = |core: &Core, n: Id| -> u64 {
        let under = |l: &Id| {
            let mut at = *l;
            while at != 0 && at != n {
                at = core.node(at).parent;
            }
            at == n
        };
        leaves.iter().filter(|l| under(l)).map(|l| longest[l]).max().unwrap_or(0)
    };
    // Rates and constants from the root: C = 1 unit of work a unit of time.
    let stall = 5 * Q;
    let mut server: BTreeMap<Id, (f64, f64)> = BTreeMap::from([(ROOT, (1.0, real(stall)))]);
    for &n in &nodes {
        let p = core.node(n).parent;
        let (c, delta) = server[&p];
        let kids: Vec<Id> = nodes.iter().copied().filter(|&k| core.node(k).parent == p).collect();
        let rate = c * weight_of(&core, n) / kids.iter().map(|&k| weight_of(&core, k)).sum::<f64>();
        let lengths: f64 = kids.iter().map(|&k| real(below(&core, k))).sum();
        server.insert(n, (rate, rate * lengths / c + rate * delta / c + real(below(&core, n))));
    }
    let (mut now, mut stalled) = (0, 0);
    let mut best: BTreeMap<Id, f64> = BTreeMap::new();
    for step in 0..1500 {
        let Some(item) = core.pick(0, now) else {
            now += Q / 3;
            best.clear();
            for (&i, l) in &items {
                if steady.contains(l) {
                    return Err(format!("step {step}: nothing, though {l:x} waits"));
                }
                if core.item(i).state == IDLE {
                    core.wake(i, now);
                }
            }
            continue;
        };
        let leaf = items[&item];
        let work = if r.chance(50) { longest[&leaf] } else { r.range(1, longest[&leaf]) };
        if stalled < stall && r.chance(10) {
            let pause = r.range(1, stall - stalled);
            stalled += pause;
            now += pause;
        }
        now += work;
        core.settle(item, work, steady.contains(&leaf) || r.chance(70), now);
        for (&i, l) in &items {
            if core.item(i).state == IDLE && !steady.contains(l) && r.chance(30) {
                core.wake(i, now);
            }
        }
        for l in &steady {
            let (rate, delta) = server[l];
            let x = real(core.node(*l).service) - rate * real(now);
            let top = best.entry(*l).or_insert(x);
            *top = top.max(x);
            if *top - x > delta * (1.0 + 1e-9) + 1.0 {
                return Err(format!("step {step}: SFQ-5: leaf {l:x} is {} short, at most {delta}", *top - x));
            }
        }
    }
    Ok(())
}

/// SFQ-4: each packet of a flow leaves in time for its expected arrival, on a paced link that stalls. FIFO within a
/// flow on the way. This is the form of a qdisc: a packet that was handed out is in service until the link asks for the
/// next one, whether there is one or not.
fn sfq4(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x44);
    let mut core = Core::new(Setup { build, items: 512, ..Setup::default() });
    let count = r.range(2, 5);
    let flows = grow(&mut core, &mut r, 1, count, FIFO);
    let sum: f64 = flows.iter().map(|&f| weight_of(&core, f)).sum();
    let longest: Vec<u64> = flows.iter().map(|_| r.range(1000, 15_000)).collect();
    let stall = 50_000;
    // Packets: (flow, arrival, length, latest departure).
    let mut packets: BTreeMap<u32, (usize, f64, u64)> = BTreeMap::new();
    let mut eat: Vec<Option<(f64, u64)>> = vec![None; flows.len()];
    let mut order: Vec<Vec<u32>> = vec![Vec::new(); flows.len()];
    let (mut now, mut stalled) = (0u64, 0u64);
    let mut serving: Option<(u32, u64)> = None;
    let rates: Vec<f64> = flows.iter().map(|&f| weight_of(&core, f) / sum).collect();
    let modes: Vec<u64> = flows.iter().map(|_| r.below(3)).collect();
    let mut next: Vec<u64> = flows.iter().map(|_| r.below(10_000)).collect();
    for step in 0..1500 {
        // The next instant: an arrival, or the end of transmission.
        let (f, at) = next.iter().copied().enumerate().min_by_key(|x| x.1).expect("flows");
        if let Some((item, end)) = serving
            && end <= at
        {
            now = end;
            let (flow, latest, length) = packets.remove(&item).expect("sent");
            core.settle(item, length, false, now);
            core.item_leave(item);
            serving = None;
            if order[flow].remove(0) != item {
                return Err(format!("step {step}: flow {flow} is not first come, first served"));
            }
            if real(now) > latest + 1.0 {
                return Err(format!("step {step}: SFQ-4: flow {flow} leaves {} late", real(now) - latest));
            }
        } else {
            now = now.max(at);
            let length = r.range(longest[f] / 4, longest[f]);
            let gap = match modes[f] {
                // Conforming; bursts; more than the rate.
                0 => real(length) / rates[f],
                1 if r.chance(80) => 0.0,
                1 => real(longest[f]) / rates[f] * 8.0,
                _ => real(length) / rates[f] * 0.7,
            };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a short time")]
            let gap = gap.ceil() as u64;
            next[f] = at + gap;
            if order[f].len() < 60 {
                let item = core.item_new(flows[f], ONE, 0).ok_or("no item")?;
                let start = match eat[f] {
                    Some((e, l)) => real(now).max(e + real(l) / rates[f]),
                    None => real(now),
                };
                eat[f] = Some((start, length));
                let others: u64 = longest.iter().enumerate().filter(|(n, _)| *n != f).map(|x| x.1).sum();
                packets.insert(item, (f, start + real(others + length + stall), length));
                order[f].push(item);
                core.wake(item, now);
            }
        }
        if serving.is_none()
            && let Some(item) = core.pick(0, now)
        {
            let pause = if stalled < stall && r.chance(5) { r.range(1, stall - stalled) } else { 0 };
            stalled += pause;
            serving = Some((item, now + packets[&item].2 + pause));
        }
    }
    Ok(())
}

/// SFQ-6: a server whose work per slot is random (exponentially bounded fluctuation). The share of windows in which a
/// leaf is further behind than SFQ-3 allows plus gamma is at most exp(-alpha gamma).
fn sfq6(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x66);
    let mut core = Core::new(Setup { build, ..Setup::default() });
    let leaves = grow(&mut core, &mut r, 1, 3, SFQ);
    for &l in &leaves {
        let item = core.item_new(l, ONE, 0).ok_or("no item")?;
        core.wake(item, 0);
    }
    // A slot's work is 0 or 2 units; C = 0.8 of the mean 1: E exp(a (C - X)) = 1 at a = 0.4130.
    let (unit, c) = (1_000_000.0, 0.8);
    let alpha = root_of(|a: f64| 0.5 * (a * c).exp() + 0.5 * (a * (c - 2.0)).exp() - 1.0);
    let length = 500_000;
    let sum: f64 = leaves.iter().map(|&l| weight_of(&core, l)).sum();
    let rate: Vec<f64> = leaves.iter().map(|&l| c * weight_of(&core, l) / sum).collect();
    let (slots, window) = (3000usize, 40usize);
    let mut got: Vec<Vec<f64>> = vec![Vec::new(); 3];
    let (mut left, mut serving) = (0.0, None::<(u32, u64)>);
    for slot in 0..slots {
        let now = slot as u64 * 1_000_000;
        left += if r.chance(50) { 2.0 * unit } else { 0.0 };
        loop {
            let (item, need) = match serving {
                Some(s) => s,
                None => (core.pick(0, now).ok_or("idle")?, length),
            };
            if left < real(need) {
                serving = Some((item, need));
                break;
            }
            left -= real(need);
            serving = None;
            core.settle(item, need, true, now);
        }
        for (k, &l) in leaves.iter().enumerate() {
            got[k].push(real(core.node(l).service));
        }
    }
    for (k, g) in got.iter().enumerate() {
        let slack = rate[k] * (3.0 * real(length)) / c + real(length);
        for gamma in [2.0f64, 4.0, 8.0] {
            let mut late = 0u32;
            let mut windows = 0u32;
            for s in 0..slots - window {
                let w = g[s + window] - g[s];
                #[expect(clippy::cast_precision_loss, reason = "a small number")]
                let due = rate[k] * window as f64 * unit;
                windows += 1;
                late += u32::from(w < due - slack - rate[k] / c * gamma * unit);
            }
            // Windows overlap: allow the count three times the bound, and a few.
            let bound = (-alpha * gamma).exp();
            if f64::from(late) > 3.0 * bound * f64::from(windows) + 40.0 {
                return Err(format!(
                    "SFQ-6: leaf {k}: {late} of {windows} windows beyond {gamma}, bound {bound}"
                ));
            }
        }
    }
    Ok(())
}

/// The positive root of a convex function that is 0 and falling at 0.
fn root_of(f: impl Fn(f64) -> f64) -> f64 {
    let (mut lo, mut hi) = (1e-6, 10.0);
    for _ in 0..100 {
        let mid = f64::midpoint(lo, hi);
        if f(mid) < 0.0 { lo = mid } else { hi = mid }
    }
    lo
}

/// SFQ-7: a device that serves D requests at once; completions of flows that always have requests waiting.
fn sfq7(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x77);
    let depth = u32::try_from(r.range(2, 16)).expect("small");
    let mut core =
        Core::new(Setup { build, items: 256, units: depth, quantum: 128 << 10, ..Setup::default() });
    let count = r.range(2, 5);
    let flows = grow(&mut core, &mut r, 1, count, FIFO);
    for &f in &flows {
        core.must(0, Op::Reweight { node: f, weight: u32::try_from(r.range(1, 9)).expect("small") * ONE });
    }
    let longest: BTreeMap<Id, u64> = flows.iter().map(|&f| (f, r.range(4 << 10, 128 << 10))).collect();
    for &f in &flows {
        for _ in 0..=depth {
            let item = core.item_new(f, ONE, 0).ok_or("no item")?;
            core.wake(item, 0);
        }
    }
    let mut slots: Vec<Option<(u32, u64, u64)>> = vec![None; depth as usize];
    let mut now = 0;
    let mut spread: BTreeMap<(Id, Id), (f64, f64)> = BTreeMap::new();
    for step in 0..1500 {
        for (slot, s) in slots.iter_mut().enumerate() {
            if s.is_none() {
                let slot = u32::try_from(slot).expect("small");
                let item = core.pick(slot, now).ok_or_else(|| format!("step {step}: an idle slot"))?;
                let most = longest[&core.item(item).queue];
                let length = if r.chance(50) { most } else { r.range(1, most) };
                // Requests take a time of their own and end out of order.
                *s = Some((item, length, now + length / 4 + r.below(length)));
            }
        }
        let first = slots.iter().enumerate().min_by_key(|(_, s)| s.expect("all busy").2).expect("slots").0;
        let (item, length, end) = slots[first].take().expect("busy");
        now = end;
        core.settle(item, length, true, now);
        for (i, &f) in flows.iter().enumerate() {
            for &m in &flows[i + 1..] {
                let (wf, wm) = (weight_of(&core, f), weight_of(&core, m));
                let d = real(core.node(f).service) / wf - real(core.node(m).service) / wm;
                let e = spread.entry((f, m)).or_insert((d, d));
                *e = (e.0.min(d), e.1.max(d));
                // The estimate is the longest request, so that is the step that tags see at dispatch.
                let bound = f64::from(depth + 1) * real(128 << 10) * (1.0 / wf + 1.0 / wm);
                if e.1 - e.0 > bound {
                    return Err(format!(
                        "step {step}: SFQ-7, D={depth}: {f:x}, {m:x}: {} of {bound}",
                        e.1 - e.0
                    ));
                }
            }
        }
    }
    Ok(())
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

/// A child that is idle for so long that virtual time passes its finish tag by half the number range, or more, is not kept
/// waiting when it comes back; nor has it credit.
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
    // b's step may have been long and is a debt for a while, but a must be served now and share from then on.
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
    // Distance from the line of the cap: highest drop and highest rise from the lowest and highest so far.
    let (mut lowest, mut highest) = (0.0f64, 0.0f64);
    for step in 0..1500 {
        let got = core.pick(0, now);
        let Some(item) = got else {
            let next = core.tree().next_ns;
            if next <= now {
                return Err(format!("step {step}: nothing now, and nothing later, though {below} wait"));
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
        // In arrears: a window may begin with a full bucket, and end with a step that was begun with the last token.
        if x - lowest > real(burst) + real(2 * Q) {
            return Err(format!("step {step}: RCL-1: {} over, at most {}", x - lowest, burst + 2 * Q));
        }
        // What the weights give is less than the cap only if the other queue runs: 5 of 6 are more than 0.6.
        if highest - x > real(burst) + real(3 * Q) {
            return Err(format!("step {step}: RCL-2: {} short, at most {}", highest - x, burst + 3 * Q));
        }
    }
    Ok(())
}

/// ALL: work conservation, nothing lost, first come first served within a FIFO queue, one turn each in a round-robin
/// queue, and counters that add up.
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
                        // FIFO: it keeps its place; items that went into service before it stay before it.
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
            return Err(format!("step {step}: root counts {}, not {total}", core.node(ROOT).service));
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

/// Weight 0 is served when nobody else wants, and only then; and the starvation rule keeps it alive.
fn background(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xb9);
    let mut core = Core::new(Setup { build, ..Setup::default() });
    let (bg, fg) = (id(2, 1), id(3, 1));
    for node in [bg, fg] {
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
    for step in 0..600 {
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

/// SMP-3 and SMP-4: units, a random tree, threads that always want one: shares within 1 % (or three quanta) of
/// hierarchical GMS over 1000 quanta, no unit idle while a thread waits.
fn smp_shares(build: Build, seed: u64) -> Result<(), String> {
    let units = [2, 3, 4, 8][usize::try_from(seed % 4).expect("small")];
    shares_of(build, seed, units, 1000)
}

/// The same for any number of units and quanta.
pub fn shares_of(build: Build, seed: u64, units: u32, quanta: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x5e);
    let mut m = Machine::new(build, units, Q, seed);
    let mut parents = vec![ROOT];
    let mut leaves = Vec::new();
    for _ in 0..r.below(4) {
        let parent = *r.pick(&parents);
        let weight = *r.pick(&[1, 2, 5, 10]) * ONE;
        parents.push(m.sched(parent, weight));
    }
    for _ in 0..r.range(2, u64::from(units) + 4) {
        let parent = *r.pick(&parents);
        let weight = *r.pick(&[1, 1, 2, 5, 10, 50]) * ONE;
        leaves.push(m.queue(parent, weight));
    }
    for &l in &leaves {
        for _ in 0..r.range(1, 4) {
            m.thread(l, Habit::Hog, None);
        }
    }
    m.run(100 * Q);
    let before: Vec<u64> = leaves.iter().map(|&l| m.service(l)).collect();
    m.run(quanta * Q);
    let ideal = m.ideal();
    for (l, before) in leaves.iter().zip(before) {
        let got = real(m.service(*l) - before) / real(quanta * Q);
        let off = (got - ideal[l]).abs();
        if off > 0.01 * ideal[l] + 3.0 / real(quanta) {
            let tree: Vec<String> = parents
                .iter()
                .skip(1)
                .chain(&leaves)
                .map(|&n| {
                    let v = m.core.node(n);
                    let want = ideal.get(&n).copied().unwrap_or_default();
                    format!(
                        "\n{n:x} in {:x} weight {} members {} tag-v {} served {} GMS {want:.4}",
                        v.parent,
                        v.weight,
                        v.members,
                        v.tag.wrapping_sub(m.core.node(v.parent).v).cast_signed(),
                        v.service
                    )
                })
                .collect();
            return Err(format!(
                "P={units}: leaf {l:x} had {got:.4} units, GMS {:.4}{}",
                ideal[l],
                tree.concat()
            ));
        }
    }
    if m.wasted > 0 {
        return Err(format!("P={units}: units idle for {} while a thread waits", m.wasted));
    }
    m.core.check()
}

/// One queue has a thread that alone uses CPU 1, and one on CPU 0 among the threads of others: the latter is served.
fn smp_affinity(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xaf);
    let mut m = Machine::new(build, 2, Q, seed);
    let others: Vec<Id> = (0..r.range(1, 4))
        .map(|_| 1 + r.below(24))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|w| m.queue(ROOT, u32::try_from(w).expect("small") * ONE))
        .collect();
    let mine = m.queue(ROOT, u32::try_from(1 + r.below(24)).expect("small") * ONE);
    m.thread(mine, Habit::Hog, Some(2));
    let waits = m.thread(mine, Habit::Hog, Some(1));
    for &q in &others {
        m.thread(q, Habit::Hog, Some(1));
    }
    m.run(2000 * Q);
    let sum: f64 = others.iter().map(|&q| weight_of(&m.core, q)).sum();
    let turn = (sum / weight_of(&m.core, mine) + 1.0) * real(Q);
    let worst = real(m.worst_wait(waits));
    if worst > 3.0 * turn + real(4 * Q) {
        return Err(format!(
            "a thread waits for {:.0} quanta, its turn is {:.0}",
            worst / real(Q),
            turn / real(Q)
        ));
    }
    m.core.check()
}

/// A queue of one thread whose weight is worth more gets more threads after a long time: what it could not use is no
/// credit, so the others are served soon; and some time later all have their shares.
fn smp_more(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x30);
    let units = u32::try_from(r.range(2, 8)).expect("small");
    let mut m = Machine::new(build, units, Q, seed);
    let heavy = m.queue(ROOT, 100 * ONE);
    m.thread(heavy, Habit::Hog, None);
    let others: Vec<Id> = (0..units).map(|_| m.queue(ROOT, ONE)).collect();
    let threads: Vec<usize> = others.iter().map(|&q| m.thread(q, Habit::Hog, None)).collect();
    m.run(2000 * Q);
    for _ in 1..units {
        m.thread(heavy, Habit::Hog, None);
    }
    m.run(10 * Q);
    let before: Vec<u64> = others.iter().map(|&q| m.service(q)).collect();
    let quanta = 400 * u64::from(units);
    m.run(quanta * Q);
    let ideal = m.ideal();
    for (q, before) in others.iter().zip(before) {
        let got = real(m.service(*q) - before) / real(quanta * Q);
        if (got - ideal[q]).abs() > 0.01 * ideal[q] + 4.0 / real(quanta) {
            return Err(format!("P={units}: {q:x} has {got:.4} units, GMS {:.4}", ideal[q]));
        }
    }
    // A round is 100 + units steps on this many units.
    let bound = (100 + 2 * u64::from(units)) * Q;
    let worst = threads.iter().map(|&t| m.worst_wait(t)).max().unwrap_or(0);
    if worst > bound {
        return Err(format!("P={units}: a thread waits for {} quanta", worst / Q));
    }
    m.core.check()
}

/// SMP-3 with threads that sleep, wake and may use some units only: no unit is idle while one it may serve waits. Also how
/// many sections under the lock a switch costs: at most a settle and a pick, and a wake for each sleep.
pub fn sleepers(build: Build, seed: u64, units: u32) -> Result<Cost, String> {
    let mut r = Rng::new(seed ^ 0x51ee);
    let mut m = Machine::new(build, units, Q, seed);
    let mut parents = vec![ROOT];
    for _ in 0..r.below(3) {
        let parent = *r.pick(&parents);
        let weight = *r.pick(&[1, 5, 10]) * ONE;
        parents.push(m.sched(parent, weight));
    }
    for _ in 0..r.range(2, u64::from(units) + 3) {
        let parent = *r.pick(&parents);
        let weight = *r.pick(&[1, 2, 10]) * ONE;
        let queue = m.queue(parent, weight);
        for _ in 0..r.range(1, 4) {
            let habit = match r.below(3) {
                0 => Habit::Hog,
                1 => Habit::Sleeper { run: r.range(Q / 100, Q), sleep: r.range(Q / 100, 3 * Q) },
                _ => Habit::Sleeper { run: r.range(Q, 10 * Q), sleep: r.range(Q, 10 * Q) },
            };
            let mask =
                r.chance(40).then(|| 1 + r.below(if units >= 64 { u64::MAX - 1 } else { (1 << units) - 1 }));
            m.thread(queue, habit, mask);
        }
    }
    for _ in 0..10 {
        m.run(50 * Q);
        m.core.check()?;
    }
    if m.wasted > 0 {
        return Err(format!("P={units}: units idle for {} while a thread waits", m.wasted));
    }
    if m.cost.sections > 2 * m.cost.switches + 2 * m.cost.wakes + u64::from(units) {
        return Err(format!("P={units}: {:?}", m.cost));
    }
    Ok(m.cost)
}
