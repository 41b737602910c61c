// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a queue of class edf promises its threads is what it is guaranteed: exact fractions, from
//! the root down, against the core's answer.

use super::{Build, Core, EDF, FIFO, MS, Op, Params, Q0, QUEUE, ROOT, Rng, Setup, id};
use crate::core::{EEVDF, Id, MTRLS, PRIO, SCHED, WRR};

const SFQ: u32 = 0;
const MAX_SPAN: u64 = 10_000 * MS;

struct Node {
    id: Id,
    parent: usize,
    weight: u32,
    priority: u64,
    /// In parts per million of a unit; 0: none.
    cap: u64,
    /// Of a scheduler; none: a queue.
    policy: Option<u32>,
}

/// A random tree in which one path goes down to a queue of class edf, the last node.
fn tree(r: &mut Rng) -> Vec<Node> {
    let policies = [SFQ, SFQ, EEVDF, MTRLS, PRIO, WRR];
    let node = |r: &mut Rng, id, parent, policy| Node {
        id,
        parent,
        weight: if r.chance(5) { 0 } else { u32::try_from(r.range(1, 9_999)).expect("small") },
        priority: *r.pick(&[0, 10, 11, 12, 13, 14, 50]),
        cap: if r.chance(15) { r.range(1_000, 3_000_000) } else { 0 },
        policy,
    };
    let root = *r.pick(&policies);
    let mut all = vec![Node { weight: 1, cap: 0, ..node(r, ROOT, 0, Some(root)) }];
    // q0 is never in the background.
    all.push(Node {
        weight: u32::try_from(r.range(1, 2_000)).expect("small"),
        ..node(r, Q0, 0, None)
    });
    let (mut at, mut index) = (0, 2);
    let depth = r.range(1, 4);
    for level in 1..=depth {
        for _ in 0..r.below(4) {
            all.push(node(r, id(index, 1), at, None));
            index += 1;
        }
        let policy = (level < depth).then(|| *r.pick(&policies));
        all.push(node(r, id(index, 1), at, policy));
        index += 1;
        at = all.len() - 1;
    }
    all
}

/// What the last node is guaranteed, in parts per million of a unit: numerator and denominator.
fn guaranteed_to_last(all: &[Node], units: u32) -> (u128, u128) {
    let mut path = vec![all.len() - 1];
    while path[path.len() - 1] != 0 {
        path.push(all[path[path.len() - 1]].parent);
    }
    let (mut num, mut den) = (u128::from(units) * 1_000_000, 1);
    for &n in path.iter().rev().skip(1) {
        let (me, parent) = (&all[n], all[n].parent);
        let siblings = || (1..all.len()).filter(|&i| all[i].parent == parent).map(|i| (i, &all[i]));
        if all[parent].policy == Some(PRIO) {
            // Usage moves each of two by a level; the idle class is below all others.
            let below =
                |n: &Node| me.priority > n.priority + 2 || (n.priority == 0 && me.priority > 0);
            if !siblings().all(|(i, s)| i == n || below(s)) {
                return (0, 1);
            }
        } else {
            let sum: u128 = siblings().map(|(_, s)| u128::from(s.weight)).sum();
            if me.weight == 0 {
                return (0, 1);
            }
            (num, den) = (num * u128::from(me.weight), den * sum);
        }
        if me.cap > 0 && u128::from(me.cap) * den < num {
            (num, den) = (u128::from(me.cap), 1);
        }
    }
    (num, den)
}

/// Parameters that ask for so many parts per million, with a deadline before the period's end or at
/// it.
fn asking(r: &mut Rng, ppm: u64) -> Params {
    let deadline = if r.chance(50) { 1_000 * MS } else { 0 };
    let span = if deadline == 0 { MAX_SPAN } else { deadline };
    Params { period: MAX_SPAN, deadline, budget: span / 1_000_000 * ppm, ..Params::default() }
}

/// Threads ask until all is promised; then nobody gets more, by any way, and everybody may ask for
/// less.
pub fn guaranteed(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0xedf6);
    let units = u32::try_from(r.range(1, 4)).expect("small");
    let mut core = Core::new(Setup { build, units, ..Setup::default() });
    let all = tree(&mut r);
    let queue = all[all.len() - 1].id;
    for (i, n) in all.iter().enumerate() {
        if i > 1 {
            let (kind, alg) = n.policy.map_or((QUEUE, EDF), |policy| (SCHED, policy));
            core.must(0, Op::Create { node: n.id, parent: all[n.parent].id, kind, alg });
        } else if let Some(policy) = n.policy {
            core.must(0, Op::Policy { node: n.id, policy });
        }
        if i > 0 {
            core.must(0, Op::Reweight { node: n.id, weight: n.weight });
            core.must(0, Op::Param { node: n.id, which: 1, value: n.priority });
        }
        if n.cap > 0 {
            core.must(0, Op::Cap { node: n.id, ppm: n.cap, burst: 0 });
        }
    }
    let (num, den) = guaranteed_to_last(&all, units);
    let sure = u64::try_from(num / den).expect("a few units");
    let said = |e: String| format!("{num}/{den} ppm: {e}");
    // A part of 10 us of 10 s is the least that can be asked for.
    let mut left = sure;
    let mut last = None;
    while left > 0 {
        let item = core.item_new(queue, 1000, 0).ok_or("no item")?;
        let ppm = left.min(if r.chance(40) { 1_000_000 } else { r.range(1, 1_000_000) });
        let p = if ppm < 10 {
            Params { deadline: 0, ..asking(&mut r, 10) }
        } else {
            asking(&mut r, ppm)
        };
        let p = if ppm < 10 { Params { budget: 10_000 * ppm, deadline: 0, ..p } } else { p };
        core.item_params(item, p, 0)
            .map_err(|e| said(format!("{ppm} of {left} that are left are refused: {e}")))?;
        left -= ppm;
        last = Some((item, p, ppm));
        if core.item_new(queue, 1000, 0).is_none() {
            break;
        }
    }
    // What rounding grants is at most one part too many.
    let more = Params { budget: 30_000, ..Params { period: MAX_SPAN, ..Params::default() } };
    let one = core.item_new(queue, 1000, 0).ok_or("no item")?;
    if core.item_params(one, more, 0) != Err(-28) {
        return Err(said("more than is guaranteed is promised".into()));
    }
    // Whoever brings his parameters with him is not let in.
    let other = id(60, 1);
    core.must(0, Op::Create { node: other, parent: ROOT, kind: QUEUE, alg: FIFO });
    core.must(0, Op::Param { node: other, which: 1, value: 0 });
    let guest = core.item_new(other, 1000, 0).ok_or("no item")?;
    core.item_params(guest, more, 0).map_err(|e| said(format!("another class refuses: {e}")))?;
    if core.item_move(guest, queue, 0, 0) {
        return Err(said("who asks for too much may come in".into()));
    }
    if let Some((item, p, ppm)) = last
        && ppm > 100
    {
        let less = Params { budget: p.budget / ppm * (ppm - 50), ..p };
        core.item_params(item, less, 0).map_err(|e| said(format!("less is refused: {e}")))?;
        if !core.item_move(guest, queue, 0, 0) {
            return Err(said("there is room, and nobody may come in".into()));
        }
    }
    core.check()
}
