// SPDX-License-Identifier: MIT OR Apache-2.0
//! One batch of every kind of edit, with each single call failing, and with death at each single
//! call: the tree is the old one or the new one, tags and counters are kept.

use super::*;

/// What can be seen of the tree from outside, but for what a restart may change (our own files).
#[derive(Debug, PartialEq)]
struct View {
    groups: BTreeMap<String, (u32, bool, i64, i64)>,
    tags: Vec<NodeId>,
    service: Vec<(u64, u64)>,
}

const TIDS: [i32; 6] = [10, 11, 12, 20, 21, 22];

fn view(fake: &Fake, plane: &Stock) -> View {
    let service = plane.sample().expect("sample").iter().map(|s| (s.id, s.service_ns)).collect();
    let tags = TIDS.iter().map(|tid| plane.tag_of(*tid).expect("alive")).collect();
    let world = fake.world();
    let ours = world.groups[0].iter().filter(|(path, _)| path.starts_with("/reserv"));
    // A period without a quota means nothing.
    let period = |g: &Group| if g.quota < 0 { 0 } else { g.period };
    let groups =
        ours.map(|(path, g)| (path.clone(), (g.weight, g.idle, g.quota, period(g)))).collect();
    if world.groups.len() > 1 {
        let names = |h: usize| -> Vec<_> { world.groups[h].keys().cloned().collect() };
        assert_eq!(names(0), names(1), "the hierarchies agree");
        assert!(world.threads.values().all(|t| t.at[0] == t.at[1]), "and so do the threads");
    }
    View { groups, tags, service }
}

/// Two sites with a queue each, members and counters.
fn prepared(kind: Kind) -> (Fake, Stock) {
    let fake = machine(kind);
    let mut plane = start(&fake);
    let ops = [
        &scheduler(2, NodeId::ROOT, 3_000)[..],
        &scheduler(3, NodeId::ROOT, 1_000),
        &queue(4, id(2, 1), 500),
        &queue(5, id(2, 1), 250),
        &queue(6, id(3, 1), 0),
        &[Op::SetCap {
            id: id(4, 1),
            cap: Some(Cap { rate_ns_per_s: 500_000_000, burst_ns: 1_000_000 }),
        }],
    ];
    apply(&mut plane, &ops.concat()).expect("valid");
    plane.tag(Target::Thread(11), id(4, 1)).expect("tag");
    plane.tag(Target::Thread(12), id(5, 1)).expect("tag");
    plane.tag(Target::Process(20), id(6, 1)).expect("tag");
    for (n, tid) in (1..).zip(TIDS) {
        fake.world().run(tid, n * 1_000_000);
    }
    (fake, plane)
}

fn edits() -> Vec<Vec<Op>> {
    let cap = |node, ms: u64| Op::SetCap {
        id: id(node, 1),
        cap: Some(Cap { rate_ns_per_s: ms * 1_000_000, burst_ns: 0 }),
    };
    vec![
        [&scheduler(7, id(3, 1), 9)[..], &queue(8, id(7, 1), 5)].concat(),
        vec![
            Op::Reweight { id: id(6, 1), weight: weight(77) },
            Op::Reweight { id: id(5, 1), weight: weight(0) },
        ],
        vec![cap(2, 100), cap(4, 900), cap(5, 7)],
        vec![Op::Move { id: id(4, 1), parent: id(3, 1) }],
        vec![
            Op::Move { id: id(2, 1), parent: id(3, 1) },
            Op::Reweight { id: id(2, 1), weight: weight(5) },
        ],
        vec![Op::Delete { id: id(6, 1), mode: DeleteMode::Flush }],
        vec![
            Op::Delete { id: id(5, 1), mode: DeleteMode::Drain },
            Op::Move { id: id(4, 1), parent: NodeId::ROOT },
            Op::Delete { id: id(6, 1), mode: DeleteMode::Flush },
            Op::Delete { id: id(3, 1), mode: DeleteMode::Refuse },
        ],
    ]
}

/// The trees before and after a batch.
fn ends(kind: Kind, ops: &[Op]) -> (View, View) {
    let (fake, mut plane) = prepared(kind);
    let before = view(&fake, &plane);
    apply(&mut plane, ops).expect("valid");
    (before, view(&fake, &plane))
}

#[test]
fn a_failing_call_leaves_the_old_tree() {
    for kind in KINDS {
        for ops in edits() {
            let (before, after) = ends(kind, &ops);
            let mut failures = 0;
            for nth in 1.. {
                let (fake, mut plane) = prepared(kind);
                let start = fake.world().changes;
                fake.world().fail_at = Some(start + nth);
                let result = apply(&mut plane, &ops);
                let through = fake.world().changes < start + nth;
                fake.world().fail_at = None;
                if result.is_ok() {
                    // A thread that is refused its home is taken by q0; only that failure is
                    // swallowed.
                    let now = view(&fake, &plane);
                    assert_eq!(
                        (&now.groups, &now.tags),
                        (&after.groups, &after.tags),
                        "{kind:?} {ops:?} {nth}"
                    );
                } else {
                    failures += 1;
                    assert_eq!(view(&fake, &plane), before, "{kind:?} {ops:?} {nth}");
                    // And the same batch is accepted afterwards.
                    apply(&mut plane, &ops).expect("valid");
                    let now = view(&fake, &plane);
                    assert_eq!(
                        (&now.groups, &now.tags),
                        (&after.groups, &after.tags),
                        "{kind:?} {ops:?} {nth}"
                    );
                }
                if through {
                    break;
                }
            }
            assert!(failures > 0);
        }
    }
}

#[test]
fn death_at_any_call_leaves_one_tree_or_the_other() {
    for kind in KINDS {
        for ops in edits() {
            let (before, after) = ends(kind, &ops);
            let mut seen = [0, 0];
            for nth in 0.. {
                let (fake, mut plane) = prepared(kind);
                let start = fake.world().calls;
                fake.world().dead_from = Some(start + nth);
                let alive = apply(&mut plane, &ops).is_ok();
                drop(plane);
                let all = fake.world().calls;
                fake.world().dead_from = None;
                let mut plane = adopt(&fake);
                let now = view(&fake, &plane);
                let done = plane.applied_seq().expect("never fails") == Some(2);
                seen[usize::from(done)] += 1;
                let want = if done { &after } else { &before };
                assert_eq!(now.groups, want.groups, "{kind:?} {ops:?} {nth}");
                assert_eq!(now.service, want.service, "{kind:?} {ops:?} {nth}");
                // The journal sends it again; it ends in the new tree whatever had happened.
                plane.apply(&Batch { seq: 2, ops: ops.clone() }).expect("valid");
                let now = view(&fake, &plane);
                assert_eq!(
                    (&now.groups, &now.tags),
                    (&after.groups, &after.tags),
                    "{kind:?} {ops:?} {nth}"
                );
                if alive && all <= start + nth {
                    break;
                }
            }
            assert!(seen[0] > 0 && seen[1] > 0);
        }
    }
}

#[test]
fn death_at_any_call_of_a_tag_loses_nobody() {
    for kind in KINDS {
        for (target, to) in [
            (Target::Thread(10), id(5, 1)),
            (Target::Process(10), id(5, 1)),
            (Target::Process(20), NodeId::Q0),
            (Target::Thread(21), id(4, 1)),
            (Target::Thread(21), NodeId::Q0),
        ] {
            for nth in 0.. {
                let (fake, mut plane) = prepared(kind);
                let start = fake.world().calls;
                fake.world().dead_from = Some(start + nth);
                let alive = plane.tag(target, to).is_ok();
                drop(plane);
                let all = fake.world().calls;
                fake.world().dead_from = None;
                let mut plane = adopt(&fake);
                view(&fake, &plane);
                plane.tag(target, to).expect("once more");
                let (Target::Thread(tid) | Target::Process(tid)) = target;
                assert_eq!(plane.tag_of(tid).expect("alive"), to, "{kind:?} {target:?} {nth}");
                plane.stop().expect("stop");
                for tid in TIDS {
                    let home = match (tid < 20, kind) {
                        (true, _) => "",
                        (false, Kind::V2) => "/svc/a",
                        _ => "/svc",
                    };
                    assert!(
                        place(&fake, tid).iter().all(|p| p == home),
                        "{kind:?} {target:?} {nth} {tid}"
                    );
                }
                if alive && all <= start + nth {
                    break;
                }
            }
        }
    }
}
