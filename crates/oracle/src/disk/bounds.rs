// SPDX-License-Identifier: MIT OR Apache-2.0
//! Theorems of YFQ (YFQ-1 to 4) and SFQ(D) (SFQ-7) from observation of a device that serves several
//! requests at once and ends them in any order.

use std::collections::BTreeMap;

use crate::core::{
    Build, Core, FIFO, Id, ONE, Op, QUEUE, QUEUED, ROOT, SCAN, SCHED, Setup, YFQ, id,
};
use crate::rng::Rng;

/// The largest parts of the bounds that were seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// Two children that wait throughout, counted at dispatch.
    pub dispatch: f64,
    /// And at completion.
    pub completion: f64,
    /// Start tags ahead of v; YFQ only.
    pub spread: f64,
    /// At dispatch, by the bound that holds for sfq only.
    pub pair: f64,
}

impl Parts {
    /// The larger of both, each.
    #[must_use]
    pub fn max(self, o: Self) -> Self {
        Self {
            dispatch: self.dispatch.max(o.dispatch),
            completion: self.completion.max(o.completion),
            spread: self.spread.max(o.spread),
            pair: self.pair.max(o.pair),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a short trace")]
fn real(n: u64) -> f64 {
    n as f64
}

struct Child {
    node: Id,
    /// Where its requests arrive: itself, or queues below it.
    leaves: Vec<Id>,
    weight: f64,
    longest: u64,
    /// Always has requests that wait.
    always: bool,
    dispatched: f64,
    completed: f64,
}

/// A node with some children, of which the first two always wait; `slots` of the device. Answers
/// what parts of the bounds were reached.
#[expect(clippy::too_many_lines, reason = "one trace, from its events to its checks")]
pub fn of(build: Build, policy: u32, slots: u32, levels: bool, seed: u64) -> Result<Parts, String> {
    let mut r = Rng::new(seed ^ 0xb0d);
    let small = |n: u64| u32::try_from(n).expect("small");
    let mut core = Core::new(Setup { build, units: slots, items: 1024, ..Setup::default() });
    if slots > 1 {
        core.device();
    }
    let top = id(2, 1);
    core.must(0, Op::Create { node: top, parent: ROOT, kind: SCHED, alg: policy });
    core.must(0, Op::Reweight { node: top, weight: ONE });
    let mut next = 3;
    let mut make = |core: &mut Core, parent, kind, alg, weight| {
        let node = id(next, 1);
        next += 1;
        core.must(0, Op::Create { node, parent, kind, alg });
        core.must(0, Op::Reweight { node, weight });
        node
    };
    let count = r.range(2, 5);
    let mut children = Vec::new();
    for k in 0..count {
        // Thousandths; others may weigh next to nothing.
        let weight = if k >= 2 && r.chance(50) { r.range(50, 500) } else { 1000 * r.range(1, 9) };
        let class = if r.chance(50) { FIFO } else { SCAN };
        let (node, leaves) = if levels && r.chance(60) {
            let node = make(&mut core, top, SCHED, policy, small(weight));
            let leaves = (0..2).map(|_| make(&mut core, node, QUEUE, class, ONE)).collect();
            (node, leaves)
        } else {
            let node = make(&mut core, top, QUEUE, class, small(weight));
            (node, vec![node])
        };
        let longest = r.range(1, 20) << 12;
        let always = k < 2;
        children.push(Child {
            node,
            leaves,
            weight: real(weight) / 1000.0,
            longest,
            always,
            dispatched: 0.0,
            completed: 0.0,
        });
    }
    let most = children.iter().map(|c| real(c.longest) / c.weight).fold(0.0, f64::max);
    let pair: f64 = children[..2].iter().map(|c| real(c.longest) / c.weight).sum();
    let mut parts = Parts::default();
    let (mut at_dispatch, mut at_completion) = ((f64::MAX, f64::MIN), (f64::MAX, f64::MIN));
    let mut busy: Vec<Option<(u32, usize, u64, u64)>> = vec![None; slots as usize];
    let mut waiting: BTreeMap<u32, usize> = BTreeMap::new();
    let mut now = 0;
    for step in 0..1200 {
        for (k, c) in children.iter().enumerate() {
            let has = waiting.values().filter(|&&x| x == k).count();
            let want =
                if c.always { slots as usize + 2 } else { usize::from(r.chance(20)) * r.index(6) };
            for _ in has..want.max(has) {
                let leaf = *r.pick(&c.leaves);
                let item = core.item_new(leaf, ONE, 0).ok_or("no item")?;
                let length = if r.chance(50) { c.longest } else { r.range(1, c.longest) };
                core.item_request(item, small(length), r.below(1 << 40), 0);
                core.wake(item, now);
                waiting.insert(item, k);
            }
        }
        for slot in 0..slots {
            if busy[slot as usize].is_some() {
                continue;
            }
            let Some(item) = core.pick(slot, now) else {
                return Err(format!(
                    "step {step}: YFQ-4: an idle slot, though {} wait",
                    waiting.len()
                ));
            };
            let k = waiting.remove(&item).ok_or("which request?")?;
            let length = core.item(item).slice;
            children[k].dispatched += real(length) / children[k].weight;
            busy[slot as usize] = Some((item, k, length, now + length / 4 + r.below(length)));
            if slots > 1 {
                grow(&mut at_dispatch, children[0].dispatched - children[1].dispatched);
            }
        }
        if policy == YFQ {
            let v = core.node(top).v;
            for c in &children {
                let n = core.node(c.node);
                let waits = c.leaves.iter().any(|&l| core.node(l).waiting > 0);
                if !waits || (slots == 1 && n.nsvc > 0) {
                    continue;
                }
                let ahead = real(
                    u64::try_from(n.tag.wrapping_sub(v).cast_signed().max(0)).expect("positive"),
                );
                let res = if slots > 1 { real(n.res) / c.weight } else { 0.0 };
                let behind = n.tag.wrapping_sub(v).cast_signed().min(0).unsigned_abs();
                let s = (ahead - real(behind)) * 1000.0 / real(1 << 20) + res;
                parts.spread = parts.spread.max(s / most);
                if s < -0.01 || s > most + 0.01 {
                    return Err(format!("step {step}: YFQ-3: S - v = {s}, at most {most}"));
                }
            }
        }
        let first = (0..busy.len()).min_by_key(|&i| busy[i].map(|b| b.3)).expect("slots");
        let (item, k, length, end) = busy[first].take().expect("busy");
        now = end;
        core.settle(item, length, false, now);
        core.item_leave(item);
        children[k].completed += real(length) / children[k].weight;
        if slots == 1 {
            grow(&mut at_dispatch, children[0].completed - children[1].completed);
        }
        grow(&mut at_completion, children[0].completed - children[1].completed);
        let bound = if policy == YFQ { 2.0 * most } else { pair };
        let apart = at_dispatch.1 - at_dispatch.0;
        parts.dispatch = parts.dispatch.max(apart / bound);
        parts.pair = parts.pair.max(apart / pair);
        if apart > bound + 0.01 {
            return Err(format!("step {step}: at dispatch: {apart} apart, at most {bound}"));
        }
        let bound = bound + f64::from(slots) * pair;
        let apart = at_completion.1 - at_completion.0;
        parts.completion = parts.completion.max(apart / bound);
        if apart > bound + 0.01 {
            return Err(format!("step {step}: at completion: {apart} apart, at most {bound}"));
        }
        if core.nodes().iter().any(|n| n.kind == QUEUE && n.waiting > 0) && waiting.is_empty() {
            return Err(format!("step {step}: something waits that nobody sent"));
        }
    }
    if waiting.keys().any(|&i| core.item(i).state != QUEUED) {
        return Err("a request is lost".into());
    }
    core.check()?;
    Ok(parts)
}

fn grow(range: &mut (f64, f64), x: f64) {
    *range = (range.0.min(x), range.1.max(x));
}

/// YFQ with one slot, as published.
pub fn yfq_single(build: Build, seed: u64) -> Result<(), String> {
    of(build, YFQ, 1, seed % 2 == 1, seed).map(drop)
}

/// With a window.
pub fn yfq_window(build: Build, seed: u64) -> Result<(), String> {
    of(build, YFQ, [2, 4, 8, 16][usize::try_from(seed % 4).expect("small")], seed % 3 == 1, seed)
        .map(drop)
}

/// SFQ(D).
pub fn sfq_d(build: Build, seed: u64) -> Result<(), String> {
    of(build, 0, [2, 4, 8, 16][usize::try_from(seed % 4).expect("small")], seed % 3 == 1, seed)
        .map(drop)
}
