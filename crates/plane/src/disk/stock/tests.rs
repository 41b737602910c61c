// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver on simulated machines of both versions of cgroups: what a tree becomes and that all
//! of it goes, what is refused, and death at every call.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use reserv_model::{
    Batch, Cap, Class, DeleteMode, Kind as NodeKind, NodeId, Op, Outcome, Policy, TuneKey, Weight,
};

use super::*;
use crate::Lists as _;
use crate::cgroup::fake::{ELEVATOR, Fake, Group, IO_KINDS, Kind as Machine, QOS};

fn id(index: u32) -> NodeId {
    NodeId { index, generation: 1 }
}

fn queue(index: u32, parent: NodeId, milli: u32) -> [Op; 2] {
    let weight = Weight::from_milli(milli).expect("in range");
    [
        Op::Create { id: id(index), parent, kind: NodeKind::Queue(Class::Fifo) },
        Op::Reweight { id: id(index), weight },
    ]
}

fn scheduler(index: u32, parent: NodeId, milli: u32) -> [Op; 2] {
    let weight = Weight::from_milli(milli).expect("in range");
    [
        Op::Create { id: id(index), parent, kind: NodeKind::Scheduler(Policy::Sfq) },
        Op::Reweight { id: id(index), weight },
    ]
}

/// A disk with mq-deadline, and processes at the top (10, with a thread 11; 12) and in a service
/// (20, with 21).
fn machine(kind: Machine) -> Fake {
    let fake = Fake::new(kind);
    let mut world = fake.world();
    world.disk("none [mq-deadline] bfq");
    world.group("/svc");
    world.spawn(10, 10, 1, "");
    world.spawn(11, 10, 1, "");
    world.spawn(12, 12, 1, "");
    world.spawn(20, 20, 1, "/svc");
    world.spawn(21, 20, 1, "/svc");
    drop(world);
    fake
}

fn device() -> Device {
    Device { name: "vdb".into(), number: "8:16".into() }
}

fn source(text: &str) -> Source {
    text.parse().expect("a source")
}

/// Where it runs; what a real machine would have of the disk is the device's own path, which the
/// books look at.
struct Place {
    dir: tempfile::TempDir,
    source: Source,
}

impl Place {
    fn new(kind: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("disk"), "").expect("a file");
        let source = source(&format!("{kind}:{}/disk", dir.path().display()));
        Self { dir, source }
    }

    fn start(&self, fake: &Fake) -> Result<Stock, PlaneError> {
        start_with(Box::new(fake.clone()), (self.dir.path(), "reserv"), 3, &self.source, device())
    }

    fn adopt(&self, fake: &Fake) -> Result<Option<Stock>, PlaneError> {
        adopt_with(Box::new(fake.clone()), (self.dir.path(), "reserv"), 3, &self.source)
    }
}

fn apply(plane: &mut Stock, ops: &[Op]) -> Result<Vec<Outcome>, PlaneError> {
    let seq = plane.applied_seq().expect("never fails").unwrap_or(0) + 1;
    plane.apply(&Batch { seq, ops: ops.to_vec() })
}

/// Groups, where each thread is, and the elevator.
type View = (BTreeMap<String, Group>, Vec<(i32, Vec<String>)>, String);

/// What a machine is from outside, but for counters.
fn view(fake: &Fake) -> View {
    let world = fake.world();
    let mut groups = world.groups[0].clone();
    for group in groups.values_mut() {
        group.io_bytes = 0;
    }
    let places = world.threads.iter().map(|(tid, thread)| (*tid, thread.at.clone())).collect();
    (groups, places, world.files[ELEVATOR].split_whitespace().collect::<Vec<_>>().join(" "))
}

fn weight(fake: &Fake, path: &str) -> u32 {
    let world = fake.world();
    world.groups[0].get(path).unwrap_or_else(|| panic!("no {path}")).io_weight
}

fn at(fake: &Fake, tid: i32) -> String {
    fake.world().threads[&tid].at[0].clone()
}

fn service(plane: &Stock, queue: NodeId) -> u64 {
    plane.sample_one(queue).expect("there").service_ns
}

#[test]
fn a_tree_becomes_cgroups_and_all_of_it_goes() {
    for kind in IO_KINDS {
        let fake = machine(kind);
        let before = view(&fake);
        let folder = Place::new("disk/stock");
        let mut plane = folder.start(&fake).expect("start");
        assert_eq!(view(&fake).2, "none mq-deadline [bfq]");
        assert_eq!(fake.world().files["/sys/block/vdb/queue/iosched/low_latency"], "0");
        let ops = [
            &queue(2, NodeId::ROOT, 100_000)[..],
            &scheduler(3, NodeId::ROOT, 400_000),
            &queue(4, id(3), 7_000),
        ];
        apply(&mut plane, &ops.concat()).expect("valid");
        assert_eq!(
            ["/reserv-disk/q2.1", "/reserv-disk/s3.1", "/reserv-disk/s3.1/q4.1"]
                .map(|path| weight(&fake, path)),
            [125, 500, 500]
        );
        // Whole processes come, by whatever of their threads if they have one.
        assert_eq!(plane.tag(Target::Process(20), id(4)).expect("tag"), 2);
        assert_eq!(
            (at(&fake, 20), at(&fake, 21)),
            (at(&fake, 20), "/reserv-disk/s3.1/q4.1".into())
        );
        assert_eq!(plane.tag(Target::Thread(12), id(2)).expect("one thread"), 1);
        assert!(matches!(plane.tag(Target::Thread(11), id(2)), Err(PlaneError::Unsupported(_))));
        assert!(matches!(plane.tag(Target::Process(11), id(2)), Err(PlaneError::NoProcess(11))));
        assert!(plane.set_default(12, List::Child, id(2)).is_ok());
        assert!(matches!(
            plane.set_default(12, List::Child, id(4)),
            Err(PlaneError::Unsupported(_))
        ));
        assert_eq!(plane.defaults(20).expect("there").default, id(4));
        assert_eq!(plane.defaults(10).expect("there").default, NodeId::Q0);
        assert_eq!(
            plane.members(id(4)).expect("a queue").iter().map(|m| m.tid).collect::<Vec<_>>(),
            [20]
        );
        // Counters: of a queue, of who is in none, and across a move.
        for (pid, bytes) in [(20, 4096), (12, 8192), (10, 1024)] {
            fake.world().io(pid, bytes);
        }
        assert_eq!(
            [id(2), id(4), id(3), NodeId::Q0].map(|q| service(&plane, q)),
            [8192, 4096, 4096, 1024]
        );
        apply(&mut plane, &[Op::Move { id: id(4), parent: NodeId::ROOT }]).expect("valid");
        assert_eq!(at(&fake, 21), "/reserv-disk/q4.1");
        assert!(!fake.world().groups[0].contains_key("/reserv-disk/s3.1/q4.1"));
        fake.world().io(21, 512);
        assert_eq!(service(&plane, id(4)), 4608);
        // What is deleted sends its members home, and stays counted.
        assert!(matches!(
            apply(&mut plane, &[Op::Delete { id: id(4), mode: DeleteMode::Refuse }]),
            Err(PlaneError::Busy(_))
        ));
        apply(&mut plane, &[Op::Delete { id: id(4), mode: DeleteMode::Flush }]).expect("valid");
        assert_eq!(at(&fake, 20), "/svc");
        assert_eq!((service(&plane, NodeId::Q0), service(&plane, NodeId::ROOT)), (1024, 13_824));
        assert_eq!(plane.health().expect("cheap"), Health::Running);
        let info = plane.info();
        assert!(
            info.name == "stock"
                && info.mechanism.starts_with("bfq on ")
                && info.limits[0].starts_with("inexact")
        );
        plane.stop().expect("stop");
        assert_eq!(view(&fake), before, "{kind:?}");
        let left = fake.world().files.keys().filter(|path| !path.starts_with("/sys/")).count();
        assert_eq!(left, 0, "no file of ours");
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    for kind in IO_KINDS {
        let fake = machine(kind);
        let folder = Place::new("disk/stock");
        let mut plane = folder.start(&fake).expect("start");
        apply(&mut plane, &queue(2, NodeId::ROOT, 1_000)).expect("valid");
        plane.tag(Target::Process(12), id(2)).expect("tag");
        let before = view(&fake);
        let create = |kind| Op::Create { id: id(5), parent: NodeId::ROOT, kind };
        let heavy = [
            create(NodeKind::Queue(Class::Ts)),
            Op::Reweight { id: id(5), weight: Weight::from_milli(1_000_001).expect("in range") },
        ];
        for (ops, word) in [
            (
                vec![Op::SetCap { id: id(2), cap: Some(Cap { rate_ns_per_s: 9, burst_ns: 0 }) }],
                "caps",
            ),
            (vec![Op::SetLimit { id: id(2), members_max: 4, bytes_max: 0 }], "limit"),
            (vec![Op::Tune { id: id(2), key: TuneKey::Deadline, value: 1 }], "deadline"),
            (vec![Op::Tune { id: NodeId::ROOT, key: TuneKey::Batch, value: 4 }], "batch"),
            (vec![Op::SetPolicy { id: NodeId::ROOT, policy: Policy::Cello }], "cello"),
            (vec![create(NodeKind::Scheduler(Policy::Yfq))], "yfq"),
            (vec![Op::SetClass { id: id(2), class: Class::Scan }], "scan"),
            (vec![create(NodeKind::Queue(Class::RealTime))], "real-time"),
            (vec![Op::Delete { id: id(2), mode: DeleteMode::Drain }], "drain"),
            (heavy.to_vec(), "weight 1000.001 beside 1"),
        ] {
            let both = [&queue(9, NodeId::ROOT, 1_000)[..], &ops].concat();
            let error = apply(&mut plane, &both).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
            assert_eq!(view(&fake), before, "{word}");
        }
        assert!(folder.start(&fake).is_err_and(|e| e.to_string().contains("only one disk")));
        // The CPU's stock driver in the same hierarchy: a process is in one of both trees.
        fake.world().group("/reserv");
        fake.world().group("/reserv/q7.1");
        fake.world().spawn(40, 40, 1, "/reserv/q7.1");
        fake.world().threads.get_mut(&40).expect("there").at = vec!["/reserv/q7.1".into()];
        let error = plane.tag(Target::Process(40), id(2)).expect_err("in the CPU's tree");
        assert!(
            matches!(&error, PlaneError::Unsupported(why) if why.contains("cpu/q0 40")),
            "{error}"
        );
        assert_eq!(at(&fake, 40), "/reserv/q7.1");
        plane.stop().expect("stop");
    }
}

#[test]
fn the_means_and_how_they_are_put_back() {
    for kind in IO_KINDS {
        // BFQ is there already: its switches are put back.
        let fake = machine(kind);
        fake.world().disk("none [bfq]");
        let folder = Place::new("disk+1/stock");
        let mut plane = folder.start(&fake).expect("start");
        let switch =
            |key: &str| fake.world().files[&format!("/sys/block/vdb/queue/iosched/{key}")].clone();
        assert_eq!(
            (switch("low_latency").as_str(), switch("strict_guarantees").as_str()),
            ("0", "1")
        );
        assert!(plane.info().mechanism.contains("one request at a time"));
        // Somebody chooses another elevator: that is told, and left to them.
        fake.world().files.insert(ELEVATOR.into(), "[none] bfq".into());
        assert!(
            matches!(plane.health(), Ok(Health::Waiting(why)) if why.contains("elevator none"))
        );
        fake.world().files.insert(ELEVATOR.into(), "none [bfq]".into());
        assert_eq!(plane.health().expect("cheap"), Health::Running);
        plane.stop().expect("stop");
        assert_eq!(
            (switch("low_latency").as_str(), switch("strict_guarantees").as_str()),
            ("1", "0")
        );
        assert_eq!(view(&fake).2, "none [bfq]");

        // No BFQ, nor iocost: refused, and nothing is left.
        let fake = machine(kind);
        fake.world().disk("[none] kyber");
        let before = view(&fake);
        let error = Place::new("disk/stock").start(&fake).err().expect("no means");
        assert!(
            matches!(&error, PlaneError::Unsupported(why) if why.contains("no iocost")),
            "{error}"
        );
        assert_eq!(view(&fake), before);
        assert!(!fake.world().files.keys().any(|path| path.ends_with("stock-disk")));
    }
    // iocost instead of a BFQ that is not there; switched off again.
    let fake = machine(Machine::V2);
    fake.world().disk("[none] kyber");
    fake.world().files.insert(QOS.into(), String::new());
    let one = Place::new("disk+1/stock").start(&fake).err().expect("no such depth");
    assert!(one.to_string().contains("depth of 1"), "{one}");
    let folder = Place::new("disk/stock");
    let mut plane = folder.start(&fake).expect("start");
    assert!(fake.world().files[QOS].contains("8:16 enable=1"));
    apply(&mut plane, &[queue(2, NodeId::ROOT, 1_000), queue(3, NodeId::ROOT, 5_000_000)].concat())
        .expect("fits iocost");
    assert_eq!((weight(&fake, "/reserv-disk/q2.1"), weight(&fake, "/reserv-disk/q3.1")), (1, 5000));
    assert!(plane.info().mechanism.starts_with("iocost on "));
    plane.stop().expect("stop");
    assert!(fake.world().files[QOS].contains("8:16 enable=0"));
    // Somebody's iocost goes before BFQ, and stays.
    let fake = machine(Machine::V2);
    fake.world().files.insert(QOS.into(), "8:16 enable=1 ctrl=user\n".into());
    let mut plane = folder.start(&fake).expect("start");
    assert_eq!(view(&fake).2, "none [mq-deadline] bfq");
    fake.world().files.insert(QOS.into(), "8:16 enable=0\n".into());
    assert!(matches!(plane.health(), Ok(Health::Waiting(_))));
    fake.world().files.insert(QOS.into(), "8:16 enable=1 ctrl=user\n".into());
    plane.stop().expect("stop");
    assert_eq!(fake.world().files[QOS], "8:16 enable=1 ctrl=user\n");
}

#[test]
fn a_foreign_hand_is_mended() {
    for kind in IO_KINDS {
        let fake = machine(kind);
        let folder = Place::new("disk/stock");
        let mut plane = folder.start(&fake).expect("start");
        apply(&mut plane, &queue(2, NodeId::ROOT, 1_000)).expect("valid");
        fake.world().groups[0].remove("/reserv-disk/q2.1");
        assert!(matches!(plane.health(), Ok(Health::Detached(_))));
        plane.revive().expect("revive");
        assert_eq!(weight(&fake, "/reserv-disk/q2.1"), 500);
        assert_eq!(plane.health().expect("cheap"), Health::Running);
        plane.stop().expect("stop");
    }
}

/// Two queues with a member each, and one that moves, one that goes and one that comes.
fn prepared(kind: Machine, folder: &Place) -> (Fake, Stock) {
    let fake = machine(kind);
    let mut plane = folder.start(&fake).expect("start");
    let ops = [
        &scheduler(2, NodeId::ROOT, 3_000)[..],
        &queue(3, id(2), 1_000),
        &queue(4, NodeId::ROOT, 1_000),
    ];
    apply(&mut plane, &ops.concat()).expect("valid");
    plane.tag(Target::Process(20), id(3)).expect("tag");
    plane.tag(Target::Process(12), id(4)).expect("tag");
    fake.world().io(20, 4096);
    fake.world().io(12, 2048);
    (fake, plane)
}

fn edits() -> Vec<Op> {
    let mut ops = vec![
        Op::Move { id: id(3), parent: NodeId::ROOT },
        Op::Delete { id: id(4), mode: DeleteMode::Flush },
    ];
    ops.extend(queue(5, id(2), 9_000));
    ops
}

/// The next daemon: the tree is the old one or the new one, nobody is lost, counters are kept, and
/// all of it goes.
fn recovered(fake: &Fake, folder: &Place, before: &str) -> bool {
    let mut plane = folder.adopt(fake).expect("adopt").expect("a tree");
    let new = plane.count.books().queue(id(5)).is_ok();
    let wanted = if new {
        ("/reserv-disk/q3.1", "")
    } else {
        ("/reserv-disk/s2.1/q3.1", "/reserv-disk/q4.1")
    };
    assert_eq!((at(fake, 21), at(fake, 12)), (wanted.0.to_owned(), wanted.1.to_owned()));
    assert_eq!(service(&plane, id(3)), 4096);
    assert_eq!(service(&plane, NodeId::ROOT), 6144);
    let ours =
        fake.world().groups[0].keys().filter(|path| path.starts_with("/reserv-disk")).count();
    assert_eq!(ours, 4, "no cgroup too many");
    plane.stop().expect("stop");
    assert_eq!(format!("{:?}", view(fake)), before);
    new
}

#[test]
fn death_at_any_call_leaves_one_tree_or_the_other() {
    for kind in IO_KINDS {
        let before = format!("{:?}", view(&machine(kind)));
        let calls = {
            let folder = Place::new("disk/stock");
            let (fake, mut plane) = prepared(kind, &folder);
            let begun = fake.world().calls;
            apply(&mut plane, &edits()).expect("valid");
            fake.world().calls - begun
        };
        let mut trees = [0, 0];
        for n in 0..=calls {
            let folder = Place::new("disk/stock");
            let (fake, mut plane) = prepared(kind, &folder);
            let from = fake.world().calls + n;
            fake.world().dead_from = Some(from);
            let _ = apply(&mut plane, &edits());
            drop(plane);
            fake.world().dead_from = None;
            trees[usize::from(recovered(&fake, &folder, &before))] += 1;
        }
        assert!(trees.iter().all(|n| *n > 0), "{trees:?}: both ends are seen");
    }
}

#[test]
fn death_at_any_call_of_a_start_or_an_end_is_cleared_up() {
    for kind in IO_KINDS {
        let before = format!("{:?}", view(&machine(kind)));
        let whole = (0..400).any(|n| {
            let folder = Place::new("disk/stock");
            let fake = machine(kind);
            fake.world().dead_from = Some(n);
            let started = folder.start(&fake).map(|mut plane| plane.stop().is_ok());
            fake.world().dead_from = None;
            if let Some(mut plane) = folder.adopt(&fake).expect("adopt") {
                plane.stop().expect("stop");
            }
            assert_eq!(format!("{:?}", view(&fake)), before, "{kind:?} {n}");
            matches!(started, Ok(true))
        });
        assert!(whole, "{kind:?}: a start has more calls than that");
    }
}

proptest! {
    /// Whoever was where, all go home.
    #[test]
    fn everybody_goes_home(moves in prop::collection::vec((0_usize..3, 0_usize..3), 0..12), v2: bool) {
        let fake = machine(if v2 { Machine::V2 } else { Machine::Blkio });
        let before = view(&fake);
        let folder = Place::new("disk/stock");
        let mut plane = folder.start(&fake).expect("start");
        apply(&mut plane, &[queue(2, NodeId::ROOT, 1_000), queue(3, NodeId::ROOT, 2_000)].concat()).expect("valid");
        for (who, to) in moves {
            let (pid, queue) = ([10, 12, 20][who], [NodeId::Q0, id(2), id(3)][to]);
            plane.tag(Target::Process(pid), queue).expect("tag");
            prop_assert_eq!(plane.tag_of(pid).expect("there"), queue);
        }
        drop(plane);
        let mut plane = folder.adopt(&fake).expect("adopt").expect("a tree");
        plane.stop().expect("stop");
        prop_assert_eq!(view(&fake), before);
    }
}

#[test]
fn partitions_and_files_are_refused() {
    let folder = Place::new("disk/stock");
    let error = start(Path::new("/nonexistent"), 1, &folder.source).err().expect("a file");
    assert!(error.to_string().contains("no block device"), "{error}");
}
