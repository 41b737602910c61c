// SPDX-License-Identifier: MIT OR Apache-2.0
//! The theorems of SFQ (docs/notes/algorithms.md §1.5): fairness, throughput, delay.

use super::{
    BTreeMap, Build, Core, FIFO, IDLE, Id, ONE, Op, Q, QUEUED, ROOT, RR, Rng, SFQ, Setup, grow,
    queues, real, weight_of,
};

/// SFQ-1, SFQ-1w, SFQ-2: normalised service of siblings that both stay runnable, on a server that
/// works and pauses as it likes, while others come, go, are killed and reweighted.
pub(super) fn sfq1(build: Build, seed: u64) -> Result<(), String> {
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

/// SFQ-3 and SFQ-5: a leaf that always has work receives at least its rate, less a constant, from a
/// server that stalls for a bounded time in all; composed over the levels.
pub(super) fn sfq35(build: Build, seed: u64) -> Result<(), String> {
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
                return Err(format!(
                    "step {step}: SFQ-5: leaf {l:x} is {} short, at most {delta}",
                    *top - x
                ));
            }
        }
    }
    Ok(())
}

/// SFQ-4: each packet of a flow leaves in time for its expected arrival, on a paced link that
/// stalls. FIFO within a flow on the way. This is the form of a qdisc: a packet that was handed out
/// is in service until the link asks for the next one, whether there is one or not.
pub(super) fn sfq4(build: Build, seed: u64) -> Result<(), String> {
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
                return Err(format!(
                    "step {step}: SFQ-4: flow {flow} leaves {} late",
                    real(now) - latest
                ));
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
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a short time"
            )]
            let gap = gap.ceil() as u64;
            next[f] = at + gap;
            if order[f].len() < 60 {
                let item = core.item_new(flows[f], ONE, 0).ok_or("no item")?;
                let start = match eat[f] {
                    Some((e, l)) => real(now).max(e + real(l) / rates[f]),
                    None => real(now),
                };
                eat[f] = Some((start, length));
                let others: u64 =
                    longest.iter().enumerate().filter(|(n, _)| *n != f).map(|x| x.1).sum();
                packets.insert(item, (f, start + real(others + length + stall), length));
                order[f].push(item);
                core.wake(item, now);
            }
        }
        if serving.is_none()
            && let Some(item) = core.pick(0, now)
        {
            let pause =
                if stalled < stall && r.chance(5) { r.range(1, stall - stalled) } else { 0 };
            stalled += pause;
            serving = Some((item, now + packets[&item].2 + pause));
        }
    }
    Ok(())
}

/// SFQ-6: a server whose work per slot is random (exponentially bounded fluctuation). The share of
/// windows in which a leaf is further behind than SFQ-3 allows plus gamma is at most exp(-alpha
/// gamma).
pub(super) fn sfq6(build: Build, seed: u64) -> Result<(), String> {
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

/// SFQ-7: a device that serves D requests at once; completions of flows that always have requests
/// waiting.
pub(super) fn sfq7(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x77);
    let depth = u32::try_from(r.range(2, 16)).expect("small");
    let mut core = Core::new(Setup {
        build,
        items: 256,
        units: depth,
        quantum: 128 << 10,
        ..Setup::default()
    });
    let count = r.range(2, 5);
    let flows = grow(&mut core, &mut r, 1, count, FIFO);
    for &f in &flows {
        core.must(
            0,
            Op::Reweight { node: f, weight: u32::try_from(r.range(1, 9)).expect("small") * ONE },
        );
    }
    let longest: BTreeMap<Id, u64> =
        flows.iter().map(|&f| (f, r.range(4 << 10, 128 << 10))).collect();
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
                let item =
                    core.pick(slot, now).ok_or_else(|| format!("step {step}: an idle slot"))?;
                let most = longest[&core.item(item).queue];
                let length = if r.chance(50) { most } else { r.range(1, most) };
                // Requests take a time of their own and end out of order.
                *s = Some((item, length, now + length / 4 + r.below(length)));
            }
        }
        let first =
            slots.iter().enumerate().min_by_key(|(_, s)| s.expect("all busy").2).expect("slots").0;
        let (item, length, end) = slots[first].take().expect("busy");
        now = end;
        core.settle(item, length, true, now);
        for (i, &f) in flows.iter().enumerate() {
            for &m in &flows[i + 1..] {
                let (wf, wm) = (weight_of(&core, f), weight_of(&core, m));
                let d = real(core.node(f).service) / wf - real(core.node(m).service) / wm;
                let e = spread.entry((f, m)).or_insert((d, d));
                *e = (e.0.min(d), e.1.max(d));
                // The estimate is the longest request, so that is the step that tags see at
                // dispatch.
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
