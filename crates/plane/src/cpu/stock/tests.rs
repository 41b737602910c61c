// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver on simulated machines: every version of cgroups, every failing call, death at every
//! call, and random events against a naive model.

mod crash;
mod model;

use std::collections::BTreeMap;

use reserv_model::{
    Batch, Cap, Class, DeleteMode, Kind as NodeKind, NodeId, Op, Outcome, Policy, Weight,
};

use super::{Config, Stock, probe_with};
use crate::cgroup::fake::{Fake, Group, KINDS, Kind};
use crate::{Health, List, Lists as _, Plane, PlaneError, Target, Threads as _};

fn id(index: u32, generation: u32) -> NodeId {
    NodeId { index, generation }
}

fn weight(milli: u32) -> Weight {
    Weight::from_milli(milli).expect("in range")
}

fn config() -> Config {
    Config { cgroup: "reserv".into(), run: "/run".into() }
}

fn start(fake: &Fake) -> Stock {
    Stock::start_with(Box::new(fake.clone()), config()).expect("start")
}

fn adopt(fake: &Fake) -> Stock {
    Stock::adopt_with(Box::new(fake.clone()), config()).expect("adopt").expect("a tree")
}

fn queue(index: u32, parent: NodeId, milli: u32) -> [Op; 2] {
    [
        Op::Create { id: id(index, 1), parent, kind: NodeKind::Queue(Class::Ts) },
        Op::Reweight { id: id(index, 1), weight: weight(milli) },
    ]
}

fn scheduler(index: u32, parent: NodeId, milli: u32) -> [Op; 2] {
    [
        Op::Create { id: id(index, 1), parent, kind: NodeKind::Scheduler(Policy::Sfq) },
        Op::Reweight { id: id(index, 1), weight: weight(milli) },
    ]
}

fn apply(plane: &mut Stock, ops: &[Op]) -> Result<Vec<Outcome>, PlaneError> {
    let seq = plane.applied_seq().expect("never fails").unwrap_or(0) + 1;
    plane.apply(&Batch { seq, ops: ops.to_vec() })
}

fn group(fake: &Fake, path: &str) -> Group {
    fake.world().groups[0].get(path).unwrap_or_else(|| panic!("no {path}")).clone()
}

/// Everything the driver could have changed.
fn snapshot(fake: &Fake) -> (Vec<BTreeMap<String, Group>>, BTreeMap<String, String>) {
    let world = fake.world();
    (world.groups.clone(), world.files.clone())
}

fn place(fake: &Fake, tid: i32) -> Vec<String> {
    fake.world().threads[&tid].at.clone()
}

/// A machine with processes in the root (10, threads 11 and 12) and in a service's cgroup (20,
/// threads 21 and 22).
fn machine(kind: Kind) -> Fake {
    let fake = Fake::new(kind);
    {
        let mut world = fake.world();
        world.group("/svc");
        if kind == Kind::V2 {
            world.group("/svc/a");
        }
        let home = if kind == Kind::V2 { "/svc/a" } else { "/svc" };
        for tid in [10, 11, 12] {
            world.spawn(tid, 10, 1, "");
        }
        for tid in [20, 21, 22] {
            world.spawn(tid, 20, 1, home);
        }
    }
    fake
}

#[test]
fn a_tree_becomes_cgroups() {
    for kind in KINDS {
        let fake = machine(kind);
        assert_eq!(probe_with(&fake), Ok(()));
        let mut plane = start(&fake);
        let site = id(2, 1);
        let ops = [
            &scheduler(2, NodeId::ROOT, 50_000)[..],
            &queue(3, site, 1_000),
            &queue(4, site, 3_000),
        ]
        .concat();
        apply(&mut plane, &ops).expect("valid");
        assert_eq!(
            group(&fake, "/reserv/s2.1/q4.1").weight,
            3 * group(&fake, "/reserv/s2.1/q3.1").weight
        );
        assert_eq!(2 * group(&fake, "/reserv/s2.1").weight, group(&fake, "/reserv/q1.1").weight);
        // q0 100, its sibling 50; outside the top's own threads and /svc at the default weight
        // each.
        let top = if kind == Kind::V2 { 200 / 2 } else { 2048 / 2 };
        let outside = if kind == Kind::V2 { top } else { 1024 };
        assert_eq!(group(&fake, "/reserv").weight, outside, "{kind:?}");
        apply(&mut plane, &[Op::Reweight { id: id(3, 1), weight: weight(0) }]).expect("valid");
        assert!(group(&fake, "/reserv/s2.1/q3.1").idle);
        apply(&mut plane, &[Op::Reweight { id: id(3, 1), weight: weight(3_000) }]).expect("valid");
        assert_eq!(
            group(&fake, "/reserv/s2.1/q3.1"),
            Group { ..group(&fake, "/reserv/s2.1/q4.1") }
        );
        assert!(plane.info().outside.is_some_and(|text| text.contains("svc")));
        plane.stop().expect("stop");
        let world = fake.world();
        assert!(world.groups.iter().all(|g| g.keys().all(|k| !k.contains("reserv"))));
        assert!(world.files.is_empty() && world.groups[0][""].control.is_empty());
    }
}

#[test]
fn q0_has_the_threads_that_want_the_cpu_elsewhere() {
    for kind in KINDS {
        let fake = machine(kind);
        let mut plane = start(&fake);
        apply(&mut plane, &queue(2, NodeId::ROOT, 1_000)).expect("valid");
        let queued = |plane: &Stock, node: NodeId| {
            let sample = plane.sample_one(node).expect("sampled");
            let all = plane.sample().expect("sampled");
            let same = all.iter().find(|s| s.id == node.pack()).map(|s| s.queued);
            assert_eq!(same, Some(sample.queued));
            sample.queued
        };
        // Who reads the count is in it.
        for (running, outside) in [(1, 0), (8, 7), (0, 0)] {
            let text = format!("1.0 1.0 1.0 {running}/300 99");
            fake.world().files.insert("/proc/loadavg".to_owned(), text);
            assert_eq!((queued(&plane, NodeId::Q0), queued(&plane, id(2, 1))), (outside, 0));
        }
        let words = plane.info().outside.expect("said");
        assert!(words.contains("with ten more such threads or sessions"), "{words}");
    }
}

#[test]
fn who_wants_outside_is_weighed() {
    for kind in KINDS {
        let fake = machine(kind);
        let mut plane = start(&fake);
        apply(
            &mut plane,
            &[
                &queue(2, NodeId::ROOT, 96_000)[..],
                &[Op::Reweight { id: NodeId::Q0, weight: weight(4_000) }],
            ]
            .concat(),
        )
        .expect("valid");
        let put = |path: &str, text: &str| {
            fake.world().files.insert(path.to_owned(), text.to_owned());
        };
        let status = |tid: i32, state: &str| {
            put(&format!("/proc/{tid}/status"), &format!("State:\t{state}\nVmSize:\t1 kB\n"));
        };
        let seen = |plane: &Stock| {
            let q0 = plane.sample_one(NodeId::Q0).expect("sampled").outside.expect("weighed");
            (q0.tree / 1024, q0.wanting, q0.all)
        };
        put("/proc/loadavg", "1.0 1.0 1.0 9/300 99");
        // 4 to 96 against a thread and /svc; nobody wants: threads of the kernel have no memory.
        assert_eq!(seen(&plane), (48, 0, 2048), "{kind:?}");
        for tid in [10, 11, 12] {
            status(tid, "R (running)");
        }
        assert_eq!(seen(&plane), (48, 3 * 1024, 4 * 1024));
        status(12, "S (sleeping)");
        status(21, "R (running)");
        assert_eq!(seen(&plane), (48, 3 * 1024, 3 * 1024));
        status(20, "R (running)");
        assert_eq!(seen(&plane), (48, 3 * 1024, 3 * 1024), "a cgroup is one competitor");
        put("/proc/10/sched", "x (10, #threads: 3)\npolicy    :    0\nprio      :   125\n");
        assert_eq!(seen(&plane), (48, 335 + 2 * 1024, 335 + 2 * 1024));
        put("/proc/10/sched", "policy : 5\nprio : 120\n");
        assert_eq!(seen(&plane), (48, 3 + 2 * 1024, 3 + 2 * 1024));
        put("/proc/10/sched", "policy : 1\nprio : 50\n");
        assert_eq!(seen(&plane), (48, 2 * 1024, 2 * 1024), "real time has no weight");
        let words = plane.info().outside.expect("said");
        assert!(words.contains("looked at (1 of them, cgroups apart) get 4.0 %"), "{words}");
        // Sessions.
        put("/proc/10/sched", "");
        put("/proc/sys/kernel/sched_autogroup_enabled", "1\n");
        for tid in [10, 11] {
            put(&format!("/proc/{tid}/autogroup"), "/autogroup-7 nice 0\n");
        }
        assert_eq!(seen(&plane), (48, 2 * 1024, 2 * 1024));
        for tid in [10, 11] {
            put(&format!("/proc/{tid}/autogroup"), "/autogroup-7 nice -5\n");
        }
        assert_eq!(seen(&plane), (48, 3121 + 1024, 3121 + 1024));
        // Nobody is asked where nobody runs but who asks.
        put("/proc/loadavg", "1.0 1.0 1.0 1/300 99");
        assert_eq!(seen(&plane), (48, 0, 2048));
        plane.stop().expect("stop");
    }
}

#[test]
fn caps_nest_where_the_kernel_wants_it() {
    for kind in KINDS {
        let fake = machine(kind);
        let mut plane = start(&fake);
        let cap = |node, ms: u64| Op::SetCap {
            id: id(node, 1),
            cap: (ms > 0).then_some(Cap { rate_ns_per_s: ms * 1_000_000, burst_ns: 0 }),
        };
        let ops = [
            &scheduler(2, NodeId::ROOT, 1000)[..],
            &scheduler(3, id(2, 1), 1000),
            &queue(4, id(3, 1), 1000),
            &[cap(4, 500), cap(2, 800)],
        ]
        .concat();
        apply(&mut plane, &ops).expect("valid");
        let rate = |path: &str| {
            let g = group(&fake, path);
            if g.quota < 0 { -1 } else { g.quota * 1000 / g.period }
        };
        assert_eq!((rate("/reserv/s2.1"), rate("/reserv/s2.1/s3.1/q4.1")), (800, 500));
        apply(&mut plane, &[cap(2, 200)]).expect("lower the outer one");
        let inner = if kind == Kind::V2 { 500 } else { 200 };
        assert_eq!((rate("/reserv/s2.1"), rate("/reserv/s2.1/s3.1/q4.1")), (200, inner));
        apply(&mut plane, &[cap(2, 5), cap(4, 600)]).expect("another period");
        apply(&mut plane, &[cap(2, 900)]).expect("raise it");
        assert_eq!((rate("/reserv/s2.1"), rate("/reserv/s2.1/s3.1/q4.1")), (900, 600));
        apply(&mut plane, &[cap(2, 0)]).expect("clear it");
        assert_eq!((rate("/reserv/s2.1"), rate("/reserv/s2.1/s3.1/q4.1")), (-1, 600));
        let before = fake.world().groups.clone();
        let tiny =
            Op::SetCap { id: id(4, 1), cap: Some(Cap { rate_ns_per_s: 999_999, burst_ns: 0 }) };
        assert!(matches!(apply(&mut plane, &[cap(2, 100), tiny]), Err(PlaneError::Unsupported(_))));
        assert_eq!(fake.world().groups, before);
    }
}

#[test]
fn threads_of_a_service_come_whole_and_go_home() {
    for kind in KINDS {
        let fake = machine(kind);
        let home = place(&fake, 20);
        let mut plane = start(&fake);
        apply(&mut plane, &[queue(2, NodeId::ROOT, 1), queue(3, NodeId::ROOT, 1)].concat())
            .expect("valid");
        let (q, r) = (id(2, 1), id(3, 1));
        assert_eq!(plane.tag(Target::Thread(21), q).expect("tag"), 1);
        assert_eq!(plane.tag_of(21).expect("there"), q);
        assert_eq!(plane.tag_of(20).expect("there"), NodeId::Q0);
        let others = if kind == Kind::V2 { vec!["/reserv/q1.1".to_owned()] } else { home.clone() };
        assert_eq!(place(&fake, 20), others);
        // Born in the queue: goes home with its process.
        fake.world().spawn(23, 20, 1, "");
        fake.world().spawn(30, 30, 20, "");
        assert_eq!(plane.tag(Target::Process(30), r).expect("tag"), 1);
        assert_eq!(plane.tag(Target::Thread(22), r).expect("tag"), 1);
        assert_eq!(plane.tag(Target::Thread(21), NodeId::Q0).expect("back"), 1);
        assert_eq!(plane.tag_of(21).expect("there"), NodeId::Q0);
        plane.tag(Target::Thread(22), NodeId::Q0).expect("back");
        for tid in [20, 21, 22, 23] {
            assert_eq!(place(&fake, tid), home, "{kind:?} {tid}");
        }
        plane.stop().expect("stop");
        assert_eq!(place(&fake, 30), home);
    }
}

/// It would wait as long as whoever executes a program likes: with the tree's lock held.
#[test]
fn nothing_waits_for_who_is_in_the_middle_of_an_exec() {
    for kind in KINDS {
        let fake = machine(kind);
        let home = place(&fake, 20);
        fake.world().identities = true;
        fake.world().in_exec = true;
        let mut plane = start(&fake);
        apply(&mut plane, &[queue(2, NodeId::ROOT, 1), queue(3, NodeId::ROOT, 1)].concat())
            .expect("valid");
        plane.tag(Target::Process(20), id(2, 1)).expect("tag");
        plane.tag(Target::Thread(11), id(3, 1)).expect("tag");
        drop(plane);
        let mut plane = adopt(&fake);
        plane.tag(Target::Process(20), NodeId::Q0).expect("back");
        assert_eq!(place(&fake, 20), home);
        // Another thread has the number by now, and has nothing of who had it before.
        plane.tag(Target::Process(20), id(2, 1)).expect("tag");
        let at = place(&fake, 21);
        fake.world().threads.remove(&21);
        fake.world().spawn(21, 21, 10, "");
        fake.world().threads.get_mut(&21).expect("there").at = at;
        plane.tag(Target::Thread(21), NodeId::Q0).expect("back");
        assert_ne!(place(&fake, 21), home, "{kind:?}");
        let flush = Op::Delete { id: id(3, 1), mode: DeleteMode::Flush };
        apply(&mut plane, &[flush]).expect("flush");
        assert!(place(&fake, 11).iter().all(|path| !path.contains("q3")));
        plane.stop().expect("stop");
    }
}

/// What is left of a worker before Linux 6.9, or of an earlier version, is read without waiting.
#[test]
fn start_times_that_were_recorded_still_lead_home() {
    for kind in KINDS {
        let fake = machine(kind);
        let home = place(&fake, 20);
        let mut plane = start(&fake);
        apply(&mut plane, &queue(2, NodeId::ROOT, 1)).expect("valid");
        plane.tag(Target::Process(20), id(2, 1)).expect("tag");
        drop(plane);
        fake.world().identities = true;
        fake.world().in_exec = true;
        let mut plane = adopt(&fake);
        fake.world().in_exec = false;
        plane.tag(Target::Process(20), NodeId::Q0).expect("back");
        assert_eq!(place(&fake, 20), home);
    }
}

#[test]
fn single_threads_of_the_top_are_free() {
    for kind in KINDS {
        let fake = machine(kind);
        let mut plane = start(&fake);
        apply(&mut plane, &queue(2, NodeId::ROOT, 1)).expect("valid");
        plane.tag(Target::Thread(11), id(2, 1)).expect("tag");
        assert!(place(&fake, 10).iter().all(String::is_empty));
        assert_eq!(plane.members(id(2, 1)).expect("a queue").len(), 1);
        apply(&mut plane, &[Op::SetLimit { id: id(2, 1), members_max: 2, bytes_max: 0 }])
            .expect("valid");
        assert!(matches!(plane.tag(Target::Process(10), id(2, 1)), Err(PlaneError::Full(_))));
        assert!(plane.tag(Target::Thread(12), id(2, 1)).is_ok());
        assert!(matches!(plane.tag(Target::Thread(99), id(2, 1)), Err(PlaneError::NoProcess(99))));
        assert!(matches!(plane.tag(Target::Thread(0), id(2, 1)), Err(PlaneError::NoProcess(0))));
        assert!(matches!(plane.tag(Target::Thread(10), NodeId::ROOT), Err(PlaneError::Invalid(_))));
        assert!(matches!(plane.tag(Target::Thread(10), id(2, 2)), Err(PlaneError::NoNode(_))));
        assert!(matches!(
            plane.set_default(10, List::Child, id(2, 1)),
            Err(PlaneError::Unsupported(_))
        ));
        assert!(plane.set_default(11, List::Child, id(2, 1)).is_ok());
        // Its home is gone: q0 takes it.
        let home = place(&fake, 20);
        apply(&mut plane, &[Op::SetLimit { id: id(2, 1), members_max: 0, bytes_max: 0 }])
            .expect("valid");
        plane.tag(Target::Process(20), id(2, 1)).expect("tag");
        for groups in &mut fake.world().groups {
            groups.remove(&home[0]);
        }
        assert_eq!(plane.tag(Target::Process(20), NodeId::Q0).expect("back"), 3);
        assert!(place(&fake, 20).iter().all(|p| p == "/reserv/q1.1"));
        plane.stop().expect("stop");
        assert!(place(&fake, 20).iter().all(String::is_empty));
    }
}

#[test]
fn who_is_in_the_disks_tree_stays_there() {
    let fake = machine(Kind::V2);
    let mut plane = start(&fake);
    apply(&mut plane, &queue(2, NodeId::ROOT, 1)).expect("valid");
    fake.world().group("/reserv-disk");
    fake.world().group("/reserv-disk/q7.1");
    fake.world().spawn(40, 40, 1, "");
    fake.world().threads.get_mut(&40).expect("there").at = vec!["/reserv-disk/q7.1".into()];
    let refused = plane.tag(Target::Process(40), id(2, 1));
    assert!(
        matches!(&refused, Err(PlaneError::Unsupported(why)) if why.contains("the disk's queue")),
        "{refused:?}"
    );
    assert_eq!(plane.tag(Target::Process(40), NodeId::Q0).expect("it is in no queue of ours"), 0);
    assert_eq!(place(&fake, 40), ["/reserv-disk/q7.1"]);
    plane.stop().expect("stop");
    assert_eq!(place(&fake, 40), ["/reserv-disk/q7.1"]);
}

#[test]
fn what_is_refused_changes_nothing() {
    for kind in KINDS {
        let fake = machine(kind);
        let mut plane = start(&fake);
        apply(&mut plane, &[scheduler(2, NodeId::ROOT, 5), queue(3, id(2, 1), 5)].concat())
            .expect("valid");
        plane.tag(Target::Thread(11), id(3, 1)).expect("tag");
        let before = snapshot(&fake);
        let w = weight(7);
        let create = |index, generation, parent, kind| Op::Create {
            id: id(index, generation),
            parent,
            kind,
        };
        let ts = NodeKind::Queue(Class::Ts);
        let bad = [
            create(1, 2, NodeId::ROOT, ts),
            create(3, 2, NodeId::ROOT, ts),
            create(4, 0, NodeId::ROOT, ts),
            create(4, 1, id(3, 1), ts),
            create(4, 1, id(9, 1), ts),
            create(reserv_model::NODES_MAX, 1, NodeId::ROOT, ts),
            create(4, 1, NodeId::ROOT, NodeKind::Queue(Class::Rr)),
            Op::SetClass { id: id(3, 1), class: Class::Fifo },
            Op::SetClass { id: id(2, 1), class: Class::Ts },
            Op::SetPolicy { id: id(3, 1), policy: Policy::Sfq },
            Op::Reweight { id: NodeId::ROOT, weight: w },
            Op::Reweight { id: id(3, 2), weight: w },
            Op::SetCap { id: NodeId::Q0, cap: Some(Cap { rate_ns_per_s: 1 << 30, burst_ns: 0 }) },
            Op::SetLimit { id: NodeId::Q0, members_max: 1, bytes_max: 0 },
            Op::SetLimit { id: id(2, 1), members_max: 1, bytes_max: 0 },
            Op::ResetCounters { id: id(2, 1) },
            Op::Delete { id: NodeId::Q0, mode: DeleteMode::Flush },
            Op::Delete { id: NodeId::ROOT, mode: DeleteMode::Flush },
            Op::Delete { id: id(2, 1), mode: DeleteMode::Flush },
            Op::Delete { id: id(3, 1), mode: DeleteMode::Refuse },
            Op::Move { id: id(2, 1), parent: id(2, 1) },
            Op::Move { id: id(3, 1), parent: NodeId::Q0 },
            Op::Move { id: NodeId::Q0, parent: id(2, 1) },
            Op::Move { id: NodeId::ROOT, parent: id(2, 1) },
        ];
        for op in bad {
            let good = create(5, 1, NodeId::ROOT, ts);
            assert!(apply(&mut plane, &[good, op.clone()]).is_err(), "{op:?}");
            assert_eq!(snapshot(&fake), before, "{op:?}");
        }
        let err = plane.apply(&Batch { seq: 1, ops: vec![] }).expect_err("an old number");
        assert!(matches!(err, PlaneError::Invalid(_)));
        assert!(matches!(
            Stock::start_with(Box::new(fake.clone()), config()),
            Err(PlaneError::Taken(_))
        ));
    }
}

#[test]
fn a_foreign_hand_is_noticed_and_mended() {
    for kind in KINDS {
        let fake = machine(kind);
        let mut plane = start(&fake);
        apply(&mut plane, &[scheduler(2, NodeId::ROOT, 5), queue(3, id(2, 1), 5)].concat())
            .expect("valid");
        plane.tag(Target::Thread(11), id(3, 1)).expect("tag");
        fake.world().run(11, 5_000);
        assert_eq!(plane.sample_one(id(3, 1)).expect("there").service_ns, 5_000);
        plane.tag(Target::Thread(11), NodeId::Q0).expect("back");
        for groups in &mut fake.world().groups {
            groups.retain(|path, _| !path.starts_with("/reserv"));
        }
        assert!(matches!(plane.health(), Ok(Health::Detached(_))));
        assert_eq!(plane.sample_one(id(3, 1)).expect("there").service_ns, 5_000);
        plane.revive().expect("revive");
        assert_eq!(plane.health().expect("cheap"), Health::Running);
        plane.tag(Target::Thread(11), id(3, 1)).expect("tag");
        fake.world().run(11, 2_000);
        assert_eq!(plane.sample_one(id(3, 1)).expect("there").service_ns, 7_000);
    }
}

#[test]
fn without_its_file_the_tree_is_read_back() {
    for kind in KINDS {
        let fake = machine(kind);
        let mut plane = start(&fake);
        let ops =
            [&scheduler(2, NodeId::ROOT, 5)[..], &queue(3, id(2, 1), 4), &queue(4, id(2, 1), 2)]
                .concat();
        apply(&mut plane, &ops).expect("valid");
        plane.tag(Target::Thread(11), id(3, 1)).expect("tag");
        drop(plane);
        fake.world().files.remove("/run/stock-cpu.state");
        let mut plane = adopt(&fake);
        assert_eq!(plane.applied_seq().expect("never fails"), None);
        assert_eq!(plane.tag_of(11).expect("there"), id(3, 1));
        assert_eq!(
            group(&fake, "/reserv/s2.1/q3.1").weight,
            2 * group(&fake, "/reserv/s2.1/q4.1").weight
        );
        // The caller sends its last batch again.
        assert!(plane.apply(&Batch { seq: 1, ops }).is_ok());
        assert_eq!(plane.applied_seq().expect("never fails"), Some(1));
    }
}

#[test]
fn nothing_is_found_on_a_machine_without_cgroups() {
    let fake = Fake::new(Kind::V2);
    assert!(matches!(Stock::adopt_with(Box::new(fake.clone()), config()), Ok(None)));
    fake.world().dead_from = Some(0);
    assert!(probe_with(&fake).is_err());
}
