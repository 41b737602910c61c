// SPDX-License-Identifier: MIT OR Apache-2.0
//! A change of policy in pieces (`sched/change.c`): whatever happens between two of them, every
//! invariant of the tree holds; nothing below is chosen; shares and leads are what they were.

use reserv_oracle::core::{
    Core, EEVDF, IDLE, Id, MTRLS, ONE, Op, PRIO, Q0, QUEUE, QUEUED, ROOT, SCHED, SFQ_POLICY, Setup,
    TS, WRR, id,
};
use reserv_oracle::rng::Rng;

const Q: u64 = 4_000_000;
const POLICIES: [u32; 5] = [SFQ_POLICY, EEVDF, MTRLS, PRIO, WRR];

/// A scheduler `inner` with `wide` queues, two more queues beside it.
fn tree(units: u32, wide: u32) -> (Core, Id, Vec<Id>) {
    let mut core = Core::new(Setup { units, items: 256, ..Setup::default() });
    let inner = id(2, 1);
    core.must(0, Op::Create { node: inner, parent: ROOT, kind: SCHED, alg: 0 });
    core.must(0, Op::Reweight { node: inner, weight: 3 * ONE });
    let mut queues = Vec::new();
    for index in 3..3 + wide {
        let node = id(index, 1);
        core.must(0, Op::Create { node, parent: inner, kind: QUEUE, alg: TS });
        core.must(0, Op::Reweight { node, weight: (1 + index % 4) * ONE });
        queues.push(node);
    }
    let beside = id(3 + wide, 1);
    core.must(0, Op::Create { node: beside, parent: ROOT, kind: QUEUE, alg: TS });
    core.must(0, Op::Reweight { node: beside, weight: 2 * ONE });
    queues.extend([beside, Q0]);
    (core, inner, queues)
}

/// What is served by a unit, and since when.
type Serving = Vec<Option<(u32, u64)>>;

/// One random event. `frozen` are the queues below a scheduler that is changing: none of their
/// items may be chosen.
fn event(
    core: &mut Core,
    rng: &mut Rng,
    items: &[u32],
    queues: &[Id],
    serving: &mut Serving,
    now: u64,
    frozen: &[Id],
) {
    let item = *rng.pick(items);
    let unit = usize::try_from(rng.below(serving.len() as u64)).expect("small");
    match rng.below(10) {
        0..=3 if core.item(item).state == IDLE => core.wake(item, now),
        4 if core.item(item).state == QUEUED => core.remove(item),
        5 => {
            let to = *rng.pick(queues);
            let work = serving
                .iter()
                .flatten()
                .find(|(i, _)| *i == item)
                .map_or(0, |(_, since)| now - since);
            if core.item_move(item, to, work, now) {
                for s in serving.iter_mut().flatten().filter(|(i, _)| *i == item) {
                    s.1 = now;
                }
            }
        }
        6 => core.item_reweight(item, u32::try_from(rng.range(1, 5000)).expect("small")),
        _ => {
            if let Some((item, since)) = serving[unit].take() {
                core.settle(item, now - since, rng.below(4) > 0, now);
            }
            if let Some(next) = core.pick(u32::try_from(unit).expect("small"), now) {
                assert!(
                    !frozen.contains(&core.item(next).queue),
                    "an item below a change was chosen"
                );
                serving[unit] = Some((next, now));
            }
        }
    }
}

fn random(seed: u64, units: u32, wide: u32, root: bool) {
    let (mut core, inner, queues) = tree(units, wide);
    let mut rng = Rng::new(seed);
    let items: Vec<u32> = (0..3 * queues.len())
        .map(|i| core.item_new(queues[i % queues.len()], ONE, 0).expect("room"))
        .collect();
    let mut serving: Serving = vec![None; units as usize];
    let (mut now, mut pieces) = (0, 0);
    for _ in 0..60 {
        for _ in 0..40 {
            now += rng.range(1, Q);
            event(&mut core, &mut rng, &items, &queues, &mut serving, now, &[]);
        }
        let node = if root && rng.below(2) == 0 { ROOT } else { inner };
        let policy = *rng.pick(&POLICIES);
        core.edit_begin(0, now, &[Op::Policy { node, policy }]).expect("a policy");
        let frozen = if node == ROOT { &queues[..] } else { &queues[..wide as usize] };
        let mut more = core.change();
        assert_eq!(core.check(), Ok(()), "seed {seed} after the first piece");
        while more {
            pieces += 1;
            for _ in 0..rng.below(4) {
                now += rng.range(1, Q / 8);
                let held = if core.changing() { frozen } else { &[] };
                event(&mut core, &mut rng, &items, &queues, &mut serving, now, held);
                assert_eq!(core.check(), Ok(()), "seed {seed} between pieces");
            }
            more = core.change();
            assert_eq!(core.check(), Ok(()), "seed {seed} after a piece");
        }
        assert_eq!(core.node(node).alg, policy);
    }
    assert!(pieces > 100 || (wide <= 6 && !root), "{pieces} pieces");
    // Nothing is lost: all that waits is served.
    for unit in 0..units {
        if let Some((item, since)) = serving[unit as usize].take() {
            core.settle(item, now - since, false, now);
        }
    }
    for _ in 0..items.len() {
        now += Q;
        let Some(item) = core.pick(0, now) else { break };
        core.settle(item, Q, false, now);
    }
    assert!(items.iter().all(|i| core.item(*i).state == IDLE), "an item still waits");
}

#[test]
fn any_event_between_pieces() {
    for seed in 0..40 {
        random(seed, 1, 20, false);
        random(seed, 3, 20, false);
        random(seed, 4, 9, true);
    }
}

/// Who was ahead of his siblings still is, by as much: with pieces as at once.
#[test]
fn leads_are_carried_over() {
    for policy in [EEVDF, SFQ_POLICY] {
        let (mut core, inner, queues) = tree(1, 12);
        if policy == SFQ_POLICY {
            core.must(0, Op::Policy { node: inner, policy: EEVDF });
        }
        let items: Vec<u32> =
            queues[..12].iter().map(|q| core.item_new(*q, ONE, 0).expect("room")).collect();
        for i in &items {
            core.wake(*i, 0);
        }
        let serve = |core: &mut Core, from: u64, steps: u64| {
            for k in from..from + steps {
                let got = core.pick(0, k * Q).expect("work");
                core.settle(got, Q, true, (k + 1) * Q);
            }
        };
        serve(&mut core, 0, 1000);
        core.edit_begin(0, 1000 * Q, &[Op::Policy { node: inner, policy }]).expect("a policy");
        assert!(core.change(), "so many children are changed in pieces");
        assert_eq!(core.pick(0, 1000 * Q), None, "nothing of a half-changed scheduler is chosen");
        while core.change() {}
        serve(&mut core, 1000, 1000);
        let total: u64 = queues[..12].iter().map(|q| core.node(*q).service).sum();
        let weights: u64 = (3..15).map(|i| 1 + i % 4).sum();
        for (q, index) in queues[..12].iter().zip(3_u64..) {
            let due = total * (1 + index % 4) / weights;
            let got = core.node(*q).service;
            assert!(got.abs_diff(due) <= 2 * Q, "queue {index} got {got} of {due}");
        }
    }
}

/// A reset, as after an ejection, with a change half made: the policy is the one that was asked
/// for.
#[test]
fn a_reset_ends_a_change() {
    for pieces in 0..8 {
        let (mut core, inner, queues) = tree(2, 12);
        let item = core.item_new(queues[3], ONE, 0).expect("room");
        core.wake(item, 0);
        core.edit_begin(0, 0, &[Op::Policy { node: inner, policy: MTRLS }]).expect("a policy");
        for _ in 0..pieces {
            core.change();
        }
        core.reset();
        assert_eq!(core.check(), Ok(()), "after {pieces} pieces");
        assert_eq!(core.node(inner).alg, MTRLS);
        assert!(!core.change(), "nothing is left");
        core.wake(item, Q);
        assert_eq!(core.pick(0, Q), Some(item));
    }
}

/// Who had a very long step before the change is not served until his siblings have had as much.
#[test]
fn a_long_lead_is_carried_over() {
    for (from, to) in [(SFQ_POLICY, EEVDF), (EEVDF, SFQ_POLICY)] {
        let (mut core, inner, queues) = tree(1, 12);
        core.must(0, Op::Policy { node: inner, policy: from });
        let items: Vec<u32> =
            queues[..12].iter().map(|q| core.item_new(*q, ONE, 0).expect("room")).collect();
        for i in &items {
            core.wake(*i, 0);
        }
        let ahead = core.pick(0, 0).expect("work");
        core.settle(ahead, 50 * Q, true, 50 * Q);
        core.edit_begin(0, 50 * Q, &[Op::Policy { node: inner, policy: to }]).expect("a policy");
        while core.change() {}
        for k in 50..150 {
            let got = core.pick(0, k * Q).expect("work");
            assert_ne!(got, ahead, "policy {from} to {to}, after {} steps of others", k - 50);
            core.settle(got, Q, true, (k + 1) * Q);
        }
    }
}

/// A step that comes to a held child with its item moves nobody's virtual time.
#[test]
fn a_step_below_a_held_child_changes_nothing() {
    for seconds in 1..40 {
        let (mut core, inner, queues) = tree(2, 12);
        let items: Vec<u32> =
            queues[..12].iter().map(|q| core.item_new(*q, ONE, 0).expect("room")).collect();
        let outside = core.item_new(queues[12], ONE, 0).expect("room");
        for i in &items {
            core.wake(*i, 0);
        }
        for k in 0..250 * seconds {
            let got = core.pick(0, k * Q).expect("work");
            core.settle(got, Q, true, (k + 1) * Q);
        }
        let now = 250 * seconds * Q;
        core.wake(outside, now);
        let mut served = core.pick(0, now).expect("work");
        while served != outside {
            core.settle(served, Q, true, now);
            served = core.pick(0, now).expect("work");
        }
        core.edit_begin(0, now, &[Op::Policy { node: inner, policy: MTRLS }]).expect("a policy");
        while core.node(inner).alg != MTRLS {
            assert!(core.change());
        }
        let v = core.node(inner).v;
        assert!(core.item_move(outside, queues[11], 0, now), "moved");
        while core.change() {}
        assert!(core.node(inner).v - v <= 1, "after {seconds} s: {}", core.node(inner).v - v);
    }
}
