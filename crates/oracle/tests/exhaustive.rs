// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every sequence of events of tiny trees, in lockstep with the exact model; ties must go to who
//! came first.

use reserv_oracle::core::{FIFO, Id, ONE, Op, QUEUE, ROOT, SCHED, SFQ, Setup, TS, id};
use reserv_oracle::model::{EEVDF, State};
use reserv_oracle::pair::{Event, Pair};

const QUANTUM: u64 = 4_000_000;

fn two_leaves(class: u32) -> Vec<Event> {
    let (a, b) = (id(2, 1), id(3, 1));
    vec![
        Event::Edit(vec![
            Op::Create { node: a, parent: ROOT, kind: QUEUE, alg: class },
            Op::Create { node: b, parent: ROOT, kind: QUEUE, alg: SFQ },
            Op::Reweight { node: a, weight: ONE },
            Op::Reweight { node: b, weight: 2 * ONE },
        ]),
        Event::NewItem { queue: a, weight: ONE, flags: 0 },
        Event::NewItem { queue: b, weight: ONE, flags: 0 },
    ]
}

fn three_leaves_two_levels() -> Vec<Event> {
    let (s, a, b, c) = (id(2, 1), id(3, 1), id(4, 1), id(5, 1));
    vec![
        Event::Edit(vec![
            Op::Create { node: s, parent: ROOT, kind: SCHED, alg: 0 },
            Op::Create { node: a, parent: s, kind: QUEUE, alg: FIFO },
            Op::Create { node: b, parent: s, kind: QUEUE, alg: TS },
            Op::Create { node: c, parent: ROOT, kind: QUEUE, alg: SFQ },
            Op::Reweight { node: s, weight: 2 * ONE },
            Op::Reweight { node: a, weight: ONE },
            Op::Reweight { node: b, weight: ONE },
            Op::Reweight { node: c, weight: ONE },
        ]),
        Event::NewItem { queue: a, weight: ONE, flags: 0 },
        Event::NewItem { queue: b, weight: ONE, flags: 0 },
        Event::NewItem { queue: c, weight: ONE, flags: 0 },
    ]
}

/// What can happen now.
fn options(pair: &Pair, edits: &[Op]) -> Vec<Event> {
    let mut out = Vec::new();
    let serving = pair.model.items.iter().find(|(_, i)| i.state == State::Service).map(|(&i, _)| i);
    match serving {
        Some(item) => {
            for (work, more) in [(QUANTUM, true), (QUANTUM, false), (QUANTUM / 2, true)] {
                out.push(Event::Settle { item, work, more });
            }
            let eevdf = pair.model.nodes.values().any(|n| n.kind == SCHED && n.alg == EEVDF);
            if eevdf && pair.model.items[&item].calls < 2 {
                out.push(Event::Called { item });
            }
        }
        None => out.push(Event::Pick { unit: 0 }),
    }
    for (&item, i) in &pair.model.items {
        match i.state {
            State::Idle => out.push(Event::Wake { item }),
            State::Queued => out.push(Event::Remove { item }),
            State::Service => {}
        }
    }
    out.extend(edits.iter().map(|&op| Event::Edit(vec![op])));
    out
}

fn walk(setup: &[Event], trace: &mut Vec<Event>, depth: u32, edits: &[Op], count: &mut u64) {
    let mut pair = Pair::new(Setup { nodes: 64, items: 8, ..Setup::default() });
    pair.model.strict = true;
    for e in setup.iter().chain(trace.iter()) {
        if let Err(why) = pair.event_and_check(e, false) {
            panic!("{trace:?}: {why}");
        }
    }
    if let Err(why) = pair.verify() {
        panic!("{trace:?}: {why}\n{}", pair.dump());
    }
    *count += 1;
    if depth == 0 {
        return;
    }
    for e in options(&pair, edits) {
        trace.push(e);
        walk(setup, trace, depth - 1, edits, count);
        trace.pop();
    }
}

fn every(name: &str, setup: &[Event], depth: u32, edits: &[Op]) {
    let mut count = 0;
    // One event more in the long mode.
    let depth = depth + u32::from(std::env::var_os("RESERV_SOAK_SECONDS").is_some());
    walk(setup, &mut Vec::new(), depth, edits, &mut count);
    println!("{name}: {count} sequences");
}

const A: Id = id(2, 1);

#[test]
fn two_queues() {
    every("two queues", &two_leaves(SFQ), 8, &[]);
}

#[test]
fn two_queues_with_edits() {
    let edits = [
        Op::Reweight { node: A, weight: 4 * ONE },
        Op::Reweight { node: A, weight: 0 },
        Op::Class { node: A, class: FIFO },
        Op::Cap { node: A, ppm: 500_000, burst: QUANTUM },
    ];
    every("two queues, edits", &two_leaves(TS), 4, &edits);
}

#[test]
fn three_queues_two_levels() {
    let edits = [Op::Move { node: id(5, 1), parent: A }, Op::Move { node: id(3, 1), parent: ROOT }];
    every("three queues", &three_leaves_two_levels(), 5, &edits);
}

#[test]
fn two_queues_under_eevdf() {
    let mut setup = two_leaves(SFQ);
    setup.push(Event::Edit(vec![Op::Policy { node: ROOT, policy: EEVDF }]));
    every("two queues, eevdf", &setup, 7, &[]);
    let edits = [
        Op::Reweight { node: A, weight: 4 * ONE },
        Op::Policy { node: ROOT, policy: 0 },
        Op::Policy { node: ROOT, policy: EEVDF },
        Op::Param { node: A, which: 2, value: 3 * QUANTUM },
    ];
    every("two queues, eevdf, edits", &setup, 4, &edits);
}

/// eevdf below sfq, and above it.
#[test]
fn three_queues_two_policies() {
    for node in [ROOT, A] {
        let mut setup = three_leaves_two_levels();
        setup.push(Event::Edit(vec![Op::Policy { node, policy: EEVDF }]));
        every("three queues, two policies", &setup, 5, &[Op::Policy { node: A, policy: 0 }]);
    }
}
