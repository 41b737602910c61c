// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy eevdf over many children: V may pass all of them at once, and a section of the caller's
//! lock goes through so many of them and no more (`EE_PIECE`). What is promised of the choices
//! meanwhile, and that all is as among few after that.

use std::collections::HashMap;

use reserv_oracle::core::{Core, FIFO, Id, ONE, Op, QUEUE, ROOT, SCHED, Setup, id};
use reserv_oracle::rng::Rng;

const EEVDF: u32 = 1;
/// `enum rs_param`
const REQUEST: u64 = 2;
const Q: u64 = 4_000_000;
/// `EE_PIECE`, and what the core counts for one of a piece (`EE_LOOKED`).
const PIECE: u32 = 64;
const LOOKED: u32 = 32;
/// `EE_LEAST`: of these, at each level, whatever those above took.
const LEAST: u32 = 4;
/// Of virtual time, in which a weight of 1 moves by this for each unit of work: all of the weights
/// below divide it.
const SCALE: i128 = 12;

/// What of all children the last choice went through.
fn gone_through(core: &Core) -> u32 {
    core.tree().looked
}

fn queue(core: &mut Core, index: u32, weight: u32) -> (Id, u32) {
    let node = id(index, 1);
    core.must(0, Op::Create { node, parent: ROOT, kind: QUEUE, alg: FIFO });
    core.must(0, Op::Reweight { node, weight: weight * ONE });
    (node, core.item_new(node, ONE, 0).expect("room"))
}

fn eevdf(nodes: u32) -> Core {
    let mut core = Core::new(Setup { nodes, items: nodes, ..Setup::default() });
    core.must(0, Op::Policy { node: ROOT, policy: EEVDF });
    core
}

/// A child that always wants, by the paper (RTSS'96): lag, and the deadline of its request.
struct Child {
    weight: i128,
    request: i128,
    v: i128,
    deadline: i128,
    /// Choices in a row before which it was eligible.
    eligible: u32,
}

/// Who is served is eligible, and of those that have been so for n / PIECE choices nobody has an
/// earlier deadline; lags are within one step and the larger of request and step.
#[test]
fn the_earliest_deadline_goes_first_a_few_choices_later() {
    for seed in 0..4 {
        let mut r = Rng::new(seed);
        let many = 400;
        let mut core = eevdf(1024);
        let (mut children, mut of_item) = (Vec::new(), HashMap::new());
        for k in 0..many {
            // Equal ones are passed at once, a round after the other.
            let weight = if seed == 0 { 1 } else { u32::try_from(r.range(1, 4)).expect("few") };
            let request = Q * if r.chance(70) { 1 } else { r.range(1, 4) };
            let (node, item) = queue(&mut core, 2 + k, weight);
            core.must(0, Op::Param { node, which: REQUEST, value: request });
            of_item.insert(item, children.len());
            let (weight, request) = (i128::from(weight), i128::from(request));
            let deadline = SCALE * request / weight;
            children.push(Child { weight, request, v: 0, deadline, eligible: 0 });
            core.wake(item, 0);
        }
        let total: i128 = children.iter().map(|c| c.weight).sum();
        let slack = many.div_ceil(PIECE);
        let (mut most, mut late, mut full) = (0, 0, 0);
        for step in 0..8000 {
            let now: i128 = children.iter().map(|c| c.weight * c.v).sum();
            for c in &mut children {
                let lag = now - total * c.v;
                c.eligible = if lag >= 0 { c.eligible + 1 } else { 0 };
                let (lag, q) = (lag * c.weight / total, SCALE * i128::from(Q));
                assert!(-q <= lag && lag <= 2 * q.max(SCALE * c.request), "EV-1: {lag}");
            }
            let item = core.pick(0, step).expect("all want");
            most = most.max(gone_through(&core));
            full += u32::from(gone_through(&core) >= PIECE * LOOKED);
            let k = of_item[&item];
            let (own, waited) = (children[k].deadline, children[k].eligible);
            assert!(waited > 0, "seed {seed}, step {step}: {k} is ahead of its share");
            let before = |c: &&Child| c.deadline + SCALE < own;
            let earlier = children.iter().filter(|c| c.eligible > 0).filter(before);
            let waits = earlier.map(|c| c.eligible).max().unwrap_or(0);
            assert!(waits <= slack, "seed {seed}, step {step}: passed over {waits} times");
            late += u32::from(waits > 0);
            let work = if r.chance(95) { Q } else { r.range(1, Q) };
            core.settle(item, work, true, step);
            let c = &mut children[k];
            c.v += SCALE * i128::from(work) / c.weight;
            if c.v >= c.deadline {
                c.deadline = c.v + SCALE * c.request / c.weight;
            }
            if step % 500 == 0 {
                assert_eq!(core.check(), Ok(()));
            }
        }
        assert!(most <= 2 * PIECE * LOOKED, "one choice went through {most}");
        println!("seed {seed}: {most} at most, {full} full pieces, {late} choices too early");
        assert!(seed > 0 || full > 0, "nothing was ever too much for one choice");
    }
}

/// Those that ran a little and sleep are passed at once by one that goes on: they leave a piece at
/// a time, they keep their debt until then, and nobody else pays for it.
#[test]
fn many_that_owe_a_little_leave_in_pieces() {
    let many = 1000;
    let mut core = eevdf(2048);
    let (hog, goes_on) = queue(&mut core, 2, 1);
    let mut r = Rng::new(7);
    let mut sleepers = HashMap::new();
    for k in 0..many {
        let (node, item) = queue(&mut core, 3 + k, 1);
        sleepers.insert(item, node);
    }
    core.wake(goes_on, 0);
    let counted = |core: &Core| {
        let nodes = core.nodes();
        nodes.iter().filter(|n| n.id != hog && n.kind == QUEUE && n.client != 0).count()
    };
    let (mut now, mut most, mut pieces) = (0, 0, 0);
    for round in 0..20 {
        for item in sleepers.keys() {
            core.wake(*item, now);
        }
        let mut left = many;
        while left > 0 {
            let item = core.pick(0, now).expect("somebody wants");
            most = most.max(gone_through(&core));
            let more = item == goes_on;
            let work = if more { Q } else { 20_000 + r.range(0, 50) };
            now += work;
            let before = gone_through(&core);
            core.settle(item, work, more, now);
            most = most.max(gone_through(&core) - before);
            left -= u32::from(!more);
        }
        let (mut alone, mut of_round) = (0, 0);
        while counted(&core) > 0 {
            assert!(alone < 200, "round {round}: {} still count", counted(&core));
            assert_eq!(core.pick(0, now), Some(goes_on));
            of_round += u32::from(gone_through(&core) >= PIECE * LOOKED);
            most = most.max(gone_through(&core));
            now += Q;
            core.settle(goes_on, Q, true, now);
            alone += 1;
        }
        pieces += of_round;
        assert_eq!(core.check(), Ok(()), "round {round}");
        assert_eq!(core.tree().poison, 0);
    }
    assert!(most <= 2 * PIECE * LOOKED, "one section went through {most}");
    assert!(pieces >= 20, "{pieces} full pieces: they were not passed at once");
}

/// The same at twelve levels at once: a section has one bound, not one for each level, and no level
/// is held up by those above. What leads down to the next level is heavy, and who sleeps owes more
/// the higher he is, so that most are still there when a long step passes all of them.
#[test]
fn many_levels_share_the_bound_of_a_section() {
    const LEVELS: u32 = 12;
    const EACH: u32 = 200;
    const HALF: usize = 1200;
    let count = LEVELS * (EACH + 1) + 8;
    let mut core = Core::new(Setup { nodes: count, items: count, ..Setup::default() });
    core.must(0, Op::Policy { node: ROOT, policy: EEVDF });
    let (mut index, mut parent) = (2, ROOT);
    let mut works = HashMap::new();
    let mut make = |core: &mut Core, parent: Id, kind: u32, weight: u32| {
        let node = id(index, 1);
        index += 1;
        core.must(0, Op::Create { node, parent, kind, alg: FIFO });
        if kind == SCHED {
            core.must(0, Op::Policy { node, policy: EEVDF });
        }
        core.must(0, Op::Reweight { node, weight: weight * ONE });
        node
    };
    for level in 0..LEVELS {
        for _ in 0..EACH {
            let node = make(&mut core, parent, QUEUE, 1);
            let below = LEVELS - level - 1;
            let item = core.item_new(node, ONE, 0).expect("room");
            works.insert(item, 20_000 * 5_u64.pow(below) / 4_u64.pow(below));
        }
        if level + 1 < LEVELS {
            parent = make(&mut core, parent, SCHED, 1000);
        }
    }
    let hog = make(&mut core, parent, QUEUE, 1000);
    let goes_on = core.item_new(hog, ONE, 0).expect("room");
    let counted = |core: &Core| {
        let nodes = core.nodes();
        nodes.iter().filter(|n| n.id != hog && n.kind == QUEUE && n.client != 0).count()
    };
    let (mut now, mut choice, mut end, mut full) = (0, 0, 0, 0);
    for round in 0..6 {
        for item in works.keys() {
            core.wake(*item, now);
        }
        let (mut left, mut alone, mut awake) = (works.len(), 0, false);
        while left > 0 || awake {
            assert!(alone < 1000, "round {round}: {} still count", counted(&core));
            let item = core.pick(0, now).expect("somebody wants");
            choice = choice.max(gone_through(&core));
            let more = item == goes_on && (left > 0 || counted(&core) > 0);
            let work = works.get(&item).copied().unwrap_or(250 * Q);
            now += work;
            let before = gone_through(&core);
            core.settle(item, work, more, now);
            let passed = gone_through(&core) - before;
            end = end.max(passed);
            full += u32::from(passed >= PIECE * LOOKED);
            left -= usize::from(item != goes_on);
            if !awake && left <= HALF {
                core.wake(goes_on, now);
                awake = true;
            }
            awake &= item != goes_on || more;
            alone = if left == 0 { alone + 1 } else { 0 };
        }
        assert_eq!(core.check(), Ok(()), "round {round}");
        assert_eq!(core.tree().poison, 0);
    }
    println!("{choice} in one choice, {end} at the end of one step, {full} came to the bound");
    let all = (2 * PIECE + 2 * LEAST * LEVELS) * LOOKED;
    assert!(choice <= all, "one choice went through {choice}, {all} are the bound");
    assert!(end <= 2 * PIECE * LOOKED, "the end of one step went through {end}");
    assert!(full >= 6, "{full} ends of steps came to the bound");
}
