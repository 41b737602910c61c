// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worked examples of the algorithms' files, ends of ranges and bounds, and batches of edits.

use reserv_oracle::core::{
    BACKGROUND, BATCH, BATCH_MAX, Core, EDF, FIFO, IDLE, Id, ONE, Op, Params, Q0, QUEUE, QUEUED,
    ROOT, RR, Refused, SCHED, SFQ, Setup, TS, id,
};

const Q: u64 = 4_000_000;

fn queue(core: &mut Core, index: u32, parent: Id, class: u32, weight: u32) -> Id {
    let node = id(index, 1);
    core.must(0, Op::Create { node, parent, kind: QUEUE, alg: class });
    if weight > 0 {
        core.must(0, Op::Reweight { node, weight });
    }
    node
}

fn serve(core: &mut Core, steps: u64, length: u64) -> Vec<u32> {
    (0..steps)
        .map(|k| {
            let got = core.pick(0, k * length).expect("work");
            core.settle(got, length, true, (k + 1) * length);
            got
        })
        .collect()
}

/// The example of policy_sfq.c: weights 1 and 2, quantum 6.
#[test]
fn example_of_the_policy() {
    let mut core = Core::new(Setup { quantum: 6, ..Setup::default() });
    let (a, b) = (queue(&mut core, 2, ROOT, SFQ, ONE), queue(&mut core, 3, ROOT, SFQ, 2 * ONE));
    let (ia, ib) =
        (core.item_new(a, ONE, 0).expect("room"), core.item_new(b, ONE, 0).expect("room"));
    core.wake(ia, 0);
    core.wake(ib, 0);
    assert_eq!(serve(&mut core, 7, 6), [ia, ib, ib, ia, ib, ib, ia]);
    serve(&mut core, 18 * 5 - 7, 6);
    assert_eq!(core.node(a).service, 18 * 5 * 2);
    assert_eq!(core.node(b).service, 18 * 5 * 4);
}

/// The example of class_ts.c: nice 0 and nice 5.
#[test]
fn example_of_time_sharing() {
    let mut core = Core::new(Setup::default());
    let zero = core.item_new(Q0, 1_024_000, 0).expect("room");
    let five = core.item_new(Q0, 335_000, 0).expect("room");
    core.wake(zero, 0);
    core.wake(five, 0);
    serve(&mut core, 10_000, Q);
    let total = core.node(Q0).service;
    let parts = core.item(zero).service * 10_000 / total;
    assert!(parts.abs_diff(7535) <= 1, "{parts}");
}

/// Who mostly sleeps displaces a hog of his queue soon after he wakes; SCHED_BATCH does not;
/// SCHED_IDLE is displaced by anybody else; and nobody across queues.
#[test]
fn wake_up_preemption() {
    let mut core = Core::new(Setup::default());
    let other = queue(&mut core, 2, ROOT, TS, ONE);
    let hog = core.item_new(Q0, ONE, 0).expect("room");
    let sleeper = core.item_new(Q0, ONE, 0).expect("room");
    let batch = core.item_new(Q0, ONE, BATCH).expect("room");
    let idle = core.item_new(Q0, 3 * ONE, BACKGROUND).expect("room");
    let stranger = core.item_new(other, ONE, 0).expect("room");
    core.wake(hog, 0);
    assert_eq!(core.pick(0, 0), Some(hog));
    core.settle(hog, Q, true, Q);
    assert_eq!(core.pick(0, Q), Some(hog));
    for i in [sleeper, batch, idle, stranger] {
        core.wake(i, Q);
    }
    assert!(core.preempts(sleeper, hog, 2_000_000));
    assert!(!core.preempts(batch, hog, Q), "batch displaces nobody");
    assert!(!core.preempts(idle, hog, Q), "idle displaces nobody");
    assert!(!core.preempts(stranger, hog, Q), "not across queues");
    core.settle(hog, Q, false, 2 * Q);
    for i in [sleeper, batch, hog] {
        if core.item(i).state == QUEUED {
            core.remove(i);
        }
    }
    core.remove(stranger);
    assert_eq!(core.pick(0, 2 * Q), Some(idle));
    core.wake(hog, 2 * Q);
    assert!(core.preempts(hog, idle, 0), "SCHED_IDLE is displaced at once");
}

/// Round robin: equal turns whatever the weights; fifo: until it blocks.
#[test]
fn turns() {
    let mut core = Core::new(Setup::default());
    let rr = queue(&mut core, 2, ROOT, RR, ONE);
    let items: Vec<u32> = (1..4).map(|w| core.item_new(rr, w * ONE, 0).expect("room")).collect();
    for &i in &items {
        core.wake(i, 0);
    }
    let turns = serve(&mut core, 9, Q);
    assert_eq!(turns, [&items[..], &items[..], &items[..]].concat());
    core.must(0, Op::Class { node: rr, class: FIFO });
    assert_eq!(serve(&mut core, 5, Q), [items[0]; 5]);
}

#[test]
fn weights_at_both_ends() {
    let mut core = Core::new(Setup::default());
    let (low, high) =
        (queue(&mut core, 2, ROOT, SFQ, 1), queue(&mut core, 3, ROOT, SFQ, 1_000_000_000));
    let (il, ih) =
        (core.item_new(low, 1, 0).expect("room"), core.item_new(high, ONE, 0).expect("room"));
    core.wake(il, 0);
    core.wake(ih, 0);
    // An hour and no time at all.
    for (k, work) in [3_600_000_000_000, 0, 1, Q, 3_600_000_000_000, u64::MAX >> 1]
        .into_iter()
        .cycle()
        .take(600)
        .enumerate()
    {
        let got = core.pick(0, k as u64).expect("work");
        core.settle(got, work, true, k as u64);
        core.check().expect("sound");
    }
    // The low one had its one step, and after it the high one.
    assert!(core.node(low).served <= 3, "{}", core.node(low).served);
    let refused = core.edit(0, 0, &[Op::Reweight { node: high, weight: 1_000_000_001 }]);
    assert_eq!(refused, Err(Refused { error: -22, failed: 0 }));
    // From end to end and back: no overflow, nobody is lost.
    for _ in 0..3 {
        core.must(0, Op::Reweight { node: high, weight: 1 });
        core.must(0, Op::Reweight { node: low, weight: 1_000_000_000 });
        serve(&mut core, 3, Q);
        core.must(0, Op::Reweight { node: high, weight: 1_000_000_000 });
        core.must(0, Op::Reweight { node: low, weight: 1 });
        core.check().expect("sound");
    }
}

#[test]
fn deepest_path_and_one_more() {
    let mut core = Core::new(Setup::default());
    let mut parent = ROOT;
    for index in 2..16 {
        let node = id(index, 1);
        core.must(0, Op::Create { node, parent, kind: SCHED, alg: 0 });
        parent = node;
    }
    let leaf = id(16, 1);
    core.must(0, Op::Create { node: leaf, parent, kind: QUEUE, alg: TS });
    assert_eq!(core.node(leaf).depth, 15);
    let too_deep =
        core.edit(0, 0, &[Op::Create { node: id(17, 1), parent: leaf, kind: QUEUE, alg: TS }]);
    assert_eq!(too_deep, Err(Refused { error: -22, failed: 0 }));
    let item = core.item_new(leaf, ONE, 0).expect("room");
    core.wake(item, 0);
    assert_eq!(core.pick(0, 0), Some(item));
    core.check().expect("sound");
    core.settle(item, Q, false, Q);
    core.check().expect("sound");
    assert_eq!(core.node(ROOT).service, Q);
    // A subtree that would become too deep stays where it is.
    let top = id(20, 1);
    core.must(0, Op::Create { node: top, parent: ROOT, kind: SCHED, alg: 0 });
    let moved = core.edit(0, 0, &[Op::Move { node: id(2, 1), parent: top }]);
    assert_eq!(moved, Err(Refused { error: -22, failed: 0 }));
    let into_itself = core.edit(0, 0, &[Op::Move { node: id(2, 1), parent: id(9, 1) }]);
    assert_eq!(into_itself, Err(Refused { error: -40, failed: 0 }));
}

#[test]
fn every_slot_is_used_and_no_more() {
    let mut core = Core::new(Setup { nodes: 16, items: 32, ..Setup::default() });
    let items: Vec<u32> = (0..32).map(|_| core.item_new(Q0, ONE, 0).expect("room")).collect();
    assert_eq!(core.item_new(Q0, ONE, 0), None);
    for &i in &items {
        core.wake(i, 0);
    }
    core.check().expect("sound");
    for &i in &items {
        core.remove(i);
        core.item_leave(i);
    }
    core.check().expect("sound");
    assert!(core.item_new(Q0, ONE, 0).is_some());
    for index in 2..16 {
        queue(&mut core, index, ROOT, TS, ONE);
    }
    let beyond =
        core.edit(0, 0, &[Op::Create { node: id(16, 1), parent: ROOT, kind: QUEUE, alg: TS }]);
    assert_eq!(beyond, Err(Refused { error: -22, failed: 0 }));
    core.check().expect("sound");
}

/// Items that go round all queues leave no large arrays behind.
#[test]
fn wandering_items_do_not_use_up_the_pool() {
    let mut core = Core::new(Setup { nodes: 64, items: 512, ..Setup::default() });
    let items: Vec<u32> = (0..512).map(|_| core.item_new(Q0, ONE, 0).expect("room")).collect();
    for index in 2..64 {
        let to = queue(&mut core, index, ROOT, TS, ONE);
        for &i in &items {
            assert!(core.item_move(i, to, 0, 0), "item {i} to {to:x}");
        }
        core.check().expect("sound");
    }
    assert_eq!(core.nodes().iter().map(|n| n.members).sum::<u32>(), 512);
}

#[test]
fn batches_are_whole_or_absent_and_numbered() {
    let mut core = Core::new(Setup { nodes: 256, ..Setup::default() });
    let site = id(2, 1);
    core.edit(5, 0, &[Op::Create { node: site, parent: ROOT, kind: SCHED, alg: 0 }])
        .expect("first");
    assert_eq!(core.tree().seq, 5);
    for stale in [5, 4, 1] {
        let again = core.edit(stale, 0, &[Op::Reweight { node: site, weight: 7 * ONE }]);
        assert_eq!(again.map_err(|e| e.error), Err(-116), "{stale}");
    }
    assert_eq!(core.node(site).weight, 0);
    // The last of 128 fails: all are undone, and the number is not used up.
    let mut ops: Vec<Op> = (0..127)
        .map(|k| Op::Create { node: id(3 + k, 1), parent: site, kind: QUEUE, alg: TS })
        .collect();
    ops.push(Op::Delete { node: Q0, drain: false });
    let before = core.nodes();
    assert_eq!(core.edit(6, 0, &ops), Err(Refused { error: -22, failed: 127 }));
    assert_eq!(core.nodes(), before);
    assert_eq!(core.tree().seq, 5);
    core.check().expect("sound");
    ops[127] = Op::Reweight { node: site, weight: ONE };
    assert_eq!(ops.len(), BATCH_MAX);
    core.edit(6, 0, &ops).expect("the same ids are free again");
    assert_eq!((core.tree().seq, core.nodes().len()), (6, 130));
    // A slot deleted and used again in one batch that fails: the old node is back, with all it had.
    let gone = id(3, 1);
    core.must(0, Op::Reweight { node: gone, weight: 9 * ONE });
    core.must(0, Op::Cap { node: gone, ppm: 1000, burst: 77 });
    core.must(0, Op::Limit { node: gone, members: 3 });
    let before = core.nodes();
    let reuse = [
        Op::Delete { node: gone, drain: false },
        Op::Create { node: id(3, 2), parent: ROOT, kind: SCHED, alg: 0 },
        Op::Move { node: id(4, 1), parent: id(3, 2) },
        Op::Reweight { node: id(3, 2), weight: ONE },
        Op::Reweight { node: id(99, 9), weight: ONE },
    ];
    assert_eq!(core.edit(7, 0, &reuse), Err(Refused { error: -2, failed: 4 }));
    assert_eq!(core.nodes(), before);
    core.edit(7, 0, &reuse[..4]).expect("and it can be done");
    assert_eq!((core.node(id(3, 2)).nchildren, core.node(id(3, 2)).weight), (1, ONE));
    assert_eq!(core.try_node(gone), None, "a stale id is nobody's");
    core.check().expect("sound");
}

#[test]
fn draining_takes_nobody_and_ends_with_the_last() {
    let mut core = Core::new(Setup::default());
    let q = queue(&mut core, 2, ROOT, TS, ONE);
    let (a, b) = (core.item_new(q, ONE, 0).expect("room"), core.item_new(q, ONE, 0).expect("room"));
    core.wake(a, 0);
    core.wake(b, 0);
    assert_eq!(
        core.edit(0, 0, &[Op::Delete { node: q, drain: false }]).map_err(|e| e.error),
        Err(-16)
    );
    assert_eq!(core.must(0, Op::Delete { node: q, drain: true }), 1);
    assert_eq!(core.item_new(q, ONE, 0), None);
    assert_eq!(core.pick(0, 0), Some(a));
    // In service while it moves: this step is charged to the old queue, and the old queue lives
    // until b leaves.
    assert!(core.item_move(a, Q0, Q / 2, Q));
    assert_eq!((core.node(q).service, core.node(Q0).nsvc), (Q / 2, 1));
    core.settle(a, Q / 4, false, Q);
    assert_eq!(core.node(Q0).service, Q / 4);
    assert!(core.item_move(b, Q0, 0, Q));
    assert_eq!(core.try_node(q), None);
    core.check().expect("sound");
    assert_eq!(core.item(a).state, IDLE);
}

/// After the mechanism was taken away: configuration and counters stay, nothing runs, everything
/// can wake again. A batch that was thought out before a thread was promised something is refused,
/// whole; one that was thought out after it is not. Who waits is sorted anew in one section, which
/// has a bound: in all queues of a batch together.
#[test]
fn a_class_changes_where_few_wait() {
    let mut core = Core::new(Setup { items: 1024, ..Setup::default() });
    let (a, b) = (queue(&mut core, 2, ROOT, SFQ, ONE), queue(&mut core, 3, ROOT, SFQ, ONE));
    for queue in [a, b] {
        for _ in 0..300 {
            let item = core.item_new(queue, ONE, 0).expect("room");
            core.wake(item, 0);
        }
    }
    let to = |node, class| Op::Class { node, class };
    let refused = core.edit(1, 0, &[to(a, RR), to(b, RR)]).expect_err("600 wait");
    assert_eq!((refused.error, refused.failed), (-16, 1));
    assert_eq!([a, b].map(|queue| core.node(queue).alg), [SFQ, SFQ], "nothing has changed");
    core.edit(1, 0, &[to(a, RR), to(b, SFQ)]).expect("300 wait in a; b has that class");
    core.edit(2, 0, &[to(b, RR)]).expect("300 wait in b");
    assert_eq!([a, b].map(|queue| core.node(queue).alg), [RR, RR]);
    core.check().expect("a sound tree");
}

#[test]
fn a_batch_is_refused_after_a_promise_that_it_does_not_know_of() {
    let mut core = Core::new(Setup::default());
    let (a, b) =
        (queue(&mut core, 2, ROOT, EDF, 100 * ONE), queue(&mut core, 3, ROOT, TS, 100 * ONE));
    let item = core.item_new(b, ONE, 0).expect("room");
    let asks =
        |ms: u64| Params { period: 100_000_000, budget: ms * 1_000_000, ..Params::default() };
    let less =
        [Op::Reweight { node: b, weight: 200 * ONE }, Op::Reweight { node: a, weight: 50 * ONE }];
    let mut seen = core.tree().grants;
    assert_eq!(seen & 1, 1, "0 is for who does not look");
    for (what, promises) in [
        (
            "a budget",
            &mut (|core: &mut Core| core.item_params(item, asks(1), 0).expect("it fits"))
                as &mut dyn FnMut(&mut Core),
        ),
        ("a larger one", &mut |core| core.item_params(item, asks(2), 0).expect("it fits")),
        ("a thread that brings one", &mut |core| assert!(core.item_move(item, a, 0, 0))),
    ] {
        promises(&mut core);
        let before = core.tree();
        assert_ne!(before.grants, seen, "{what}");
        assert_eq!(
            core.edit_if(seen, 0, 0, &less),
            Err(Refused { error: -11, failed: 0 }),
            "{what}"
        );
        assert_eq!(
            (core.tree(), core.node(a).weight, core.node(b).weight),
            (before, 100 * ONE, 100 * ONE)
        );
        seen = before.grants;
    }
    core.item_params(item, asks(1), 0).expect("less");
    core.item_params(item, Params::default(), 0).expect("nothing");
    assert_eq!(core.edit_if(seen, 0, 0, &less), Ok(vec![0, 0]), "nobody was promised more");
    assert_eq!(
        core.edit_if(seen, 0, 0, &[Op::Reweight { node: a, weight: ONE }]),
        Ok(vec![0]),
        "edits promise nothing"
    );
}

#[test]
fn reset_keeps_the_durable_half() {
    let mut core = Core::new(Setup::default());
    let q = queue(&mut core, 2, ROOT, SFQ, 3 * ONE);
    core.must(0, Op::Cap { node: q, ppm: 100_000, burst: 0 });
    let items: Vec<u32> = (0..3).map(|_| core.item_new(q, ONE, 0).expect("room")).collect();
    for &i in &items {
        core.wake(i, 0);
    }
    for k in 0..3 {
        if let Some(got) = core.pick(0, k * Q) {
            core.settle(got, Q, true, (k + 1) * Q);
        }
    }
    let before = core.node(q);
    core.reset();
    core.check().expect("sound");
    let after = core.node(q);
    assert_eq!(
        (after.weight, after.service, after.served, after.cap_ppm),
        (3 * ONE, before.service, before.served, 100_000)
    );
    assert_eq!(core.pick(0, 100 * Q), None);
    for &i in &items {
        core.wake(i, 100 * Q);
    }
    assert!(core.pick(0, 100 * Q).is_some());
    core.check().expect("sound");
}

/// The example of policy_eevdf.c: weights 1 and 2, quantum and requests of 6: B A B, again and
/// again.
#[test]
fn worked_example_of_eevdf() {
    let mut core = Core::new(Setup { quantum: 6, ..Setup::default() });
    core.must(0, Op::Policy { node: ROOT, policy: 1 });
    let mut items = Vec::new();
    for (i, weight) in [(2, ONE), (3, 2 * ONE)] {
        core.must(0, Op::Create { node: id(i, 1), parent: ROOT, kind: QUEUE, alg: FIFO });
        core.must(0, Op::Reweight { node: id(i, 1), weight });
        let item = core.item_new(id(i, 1), ONE, 0).expect("room");
        core.wake(item, 0);
        items.push(item);
    }
    let mut order = String::new();
    for now in 0..12 {
        let item = core.pick(0, now).expect("both wait");
        order.push(if item == items[0] { 'A' } else { 'B' });
        core.settle(item, 6, true, now);
    }
    assert_eq!(order, "BABBABBABBAB");
    assert_eq!((core.item(items[0]).service, core.item(items[1]).service), (24, 48));
}
