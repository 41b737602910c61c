// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues that compete as their items do (`own`: a cgroup's own threads beside its children, as the
//! kernel's mirror of cgroups makes them): in lockstep with the exact model, among other queues
//! under random events; and the share that comes out, from observation.

use crate::core::{Build, Core, FIFO, Id, ONE, Op, QUEUE, ROOT, SCHED, SFQ, Setup, id};
use crate::pair::{Event, Pair};
use crate::rng::Rng;
use crate::trace::{Flavour, seeded};

const S: Id = id(50, 1);
const OWN: Id = id(51, 1);

/// Random events of every kind on one unit; edits that name the queue itself, which nobody can, are
/// left out.
pub fn lockstep(build: Build, seed: u64) -> Result<(), String> {
    let mut r = Rng::new(seed ^ 0x0320);
    let mut pair = Pair::new(Setup { build, nodes: 64, ..Setup::default() });
    let flavour = Flavour { affinity: false, ..Flavour::all() };
    let said = |step: u32, event: &Event, e: String| format!("step {step}: {event:?}: {e}");
    seeded(&mut pair, &mut r, &flavour);
    let made = [
        Op::Create { node: S, parent: ROOT, kind: SCHED, alg: SFQ_POLICY },
        Op::Reweight { node: S, weight: 100 * ONE },
        Op::Create { node: OWN, parent: S, kind: QUEUE, alg: SFQ },
        Op::Create { node: id(52, 1), parent: S, kind: QUEUE, alg: FIFO },
        Op::Reweight { node: id(52, 1), weight: 300 * ONE },
    ];
    let mut first: Vec<Event> = made.into_iter().map(|op| Event::Edit(vec![op])).collect();
    for weight in [ONE, 3 * ONE, 88_761] {
        first.push(Event::NewItem { queue: OWN, weight, flags: 0 });
    }
    first.extend([
        Event::NewItem { queue: id(52, 1), weight: ONE, flags: 0 },
        Event::Own { queue: OWN },
    ]);
    for event in &first {
        pair.apply(event).map_err(|e| said(0, event, e))?;
    }
    for step in 0..500 {
        let Some(event) = flavour.event(&mut r, &pair) else { continue };
        let names = |op: &Op| [S, OWN].contains(&op.node());
        if matches!(&event, Event::Edit(ops) if ops.iter().any(names)) {
            continue;
        }
        pair.apply(&event).map_err(|e| said(step, &event, e))?;
    }
    Ok(())
}

const SFQ_POLICY: u32 = 0;

/// A scheduler over OWN and a queue of the weight of one item of weight one.
fn beside_a_child(build: Build) -> Core {
    let mut core = Core::new(Setup { build, ..Setup::default() });
    for op in [
        Op::Create { node: S, parent: ROOT, kind: SCHED, alg: SFQ_POLICY },
        Op::Reweight { node: S, weight: ONE },
        Op::Create { node: OWN, parent: S, kind: QUEUE, alg: SFQ },
        Op::Create { node: id(52, 1), parent: S, kind: QUEUE, alg: FIFO },
        Op::Reweight { node: id(52, 1), weight: 102_400 },
    ] {
        core.must(0, op);
    }
    core
}

/// Items that always want, beside a child of the weight of one item of weight one: each item has
/// what it would have as a child of its own, within SFQ-1.
pub fn shares(build: Build, seed: u64) -> Result<(), String> {
    const STEP: u64 = 4_000_000;
    let mut r = Rng::new(seed ^ 0x0321);
    let mut core = beside_a_child(build);
    let weights: Vec<u32> = (0..r.range(1, 4)).map(|_| *r.pick(&[ONE, 2 * ONE, 5 * ONE])).collect();
    let items: Vec<u32> =
        weights.iter().map(|&w| core.item_new(OWN, w, 0).expect("an item")).collect();
    let beside = core.item_new(id(52, 1), ONE, 0).expect("an item");
    core.own(OWN);
    for &item in items.iter().chain([&beside]) {
        core.wake(item, 0);
    }
    for step in 0..2000 {
        let item = core.pick(0, step * STEP).ok_or("nobody is served")?;
        core.settle(item, STEP, true, (step + 1) * STEP);
        core.check()?;
    }
    // Per weight of one, in steps: each of the queue's items against the child beside. Two levels,
    // a step of each.
    let mine = core.item(beside).service / STEP;
    for (&item, &weight) in items.iter().zip(&weights) {
        let got = core.item(item).service / STEP * u64::from(ONE) / u64::from(weight);
        if got.abs_diff(mine) > 4 {
            return Err(format!(
                "an item of weight {weight} had {got} steps per weight, its sibling {mine}"
            ));
        }
    }
    Ok(())
}

/// One item that always wants, and one that wakes just before each step ends and wants next to
/// nothing: the queue is charged for one, as its sibling is, within SFQ-1.
pub fn pulses(build: Build, seed: u64) -> Result<(), String> {
    const STEP: u64 = 4_000_000;
    let mut r = Rng::new(seed ^ 0x0322);
    let mut core = beside_a_child(build);
    let mut item = |queue| core.item_new(queue, ONE, 0).expect("an item");
    let (busy, pulse, beside) = (item(OWN), item(OWN), item(id(52, 1)));
    core.own(OWN);
    core.wake(busy, 0);
    core.wake(beside, 0);
    let (mut now, mut sleeps) = (0, true);
    for _ in 0..4000 {
        let item = core.pick(0, now).ok_or("nobody is served")?;
        let work = if item == pulse { r.range(1, 10) * 1000 } else { STEP };
        now += work;
        if item == busy && sleeps {
            core.wake(pulse, now - 1);
            sleeps = false;
        }
        sleeps |= item == pulse;
        core.settle(item, work, item != pulse, now);
        core.check()?;
    }
    let (got, mine) = (core.item(busy).service / STEP, core.item(beside).service / STEP);
    if got.abs_diff(mine) > 4 {
        return Err(format!(
            "beside one that wakes at the end of each step it had {got} steps, its sibling {mine}"
        ));
    }
    Ok(())
}
