// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests one by one: what each makes, its refusals with their errno, and the bounds.

mod common;

use reserv_model::*;

fn new() -> Tree {
    Tree::new(Name::new("cpu").unwrap())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn path(text: &str) -> NodeRef {
    text.parse::<NodePath>().unwrap().into()
}

const QUEUE: Kind = Kind::Queue(Class::Ts);
const SCHED: Kind = Kind::Scheduler(Policy::Sfq);

fn mk(parent: &str, child: &str, kind: Kind) -> Request {
    Request::Create {
        parent: path(parent),
        name: Some(name(child)),
        kind: kind.into(),
        share: None,
    }
}

fn doit(tree: &mut Tree, requests: &[Request]) -> Plan {
    let plan = tree.plan(requests).unwrap();
    tree.commit(&plan).unwrap();
    tree.check().unwrap();
    plan
}

#[track_caller]
fn refused(tree: &Tree, request: Request, errno: Errno, holds: &str) {
    let error = tree.plan(&[request]).unwrap_err();
    assert_eq!(error.errno(), errno, "{error}");
    assert!(error.context.contains(holds), "{error}");
}

#[test]
fn a_new_tree_is_root_and_q0() {
    let tree = new();
    tree.check().unwrap();
    assert_eq!((tree.len(), tree.seq()), (2, 0));
    let q0 = tree.get(NodeId::Q0).unwrap();
    assert_eq!((q0.name.as_str(), q0.weight, q0.kind), ("q0", Weight::DEFAULT, QUEUE));
    assert_eq!(tree.root().children.values().copied().collect::<Vec<_>>(), [NodeId::Q0]);
    assert_eq!(tree.shown(NodeId::Q0), "cpu/q0");
    assert_eq!(tree.shown(NodeId::ROOT), "cpu");
    assert!(tree.path(NodeId::ROOT).unwrap().is_root());
}

#[test]
fn numbered_names_are_the_lowest_free() {
    let mut tree = new();
    let fresh = |kind: Kind| Request::Create {
        parent: NodeId::ROOT.into(),
        name: None,
        kind: kind.into(),
        share: None,
    };
    // q0 is taken from the start (Eclipse/BSD §2.4).
    let plan = doit(&mut tree, &[fresh(QUEUE), fresh(QUEUE), fresh(SCHED), fresh(QUEUE)]);
    let names: Vec<_> =
        plan.created().iter().map(|&id| tree.get(id).unwrap().name.to_string()).collect();
    assert_eq!(names, ["q1", "q2", "r0", "q3"]);
    doit(&mut tree, &[Request::Delete { node: path("q2"), mode: DeleteMode::Refuse }]);
    doit(&mut tree, &[Request::Rename { node: path("q1"), name: name("site1") }]);
    doit(&mut tree, &[mk("", "q2", SCHED)]);
    assert_eq!(tree.root().next_name(QUEUE).as_str(), "q1");
    doit(&mut tree, &[fresh(QUEUE)]);
    assert_eq!(tree.root().next_name(QUEUE).as_str(), "q4");
    // Other directories count on their own.
    assert_eq!(
        tree.get(tree.resolve(&"r0".parse().unwrap()).unwrap()).unwrap().next_name(QUEUE).as_str(),
        "q0"
    );
    assert_eq!(
        tree.get(plan.created()[0]).unwrap().weight,
        Weight::BACKGROUND,
        "creating breaks no promise"
    );
}

#[test]
fn ids_are_reproducible() {
    let mut tree = new();
    let a = doit(&mut tree, &[mk("", "a", QUEUE), mk("", "b", QUEUE)]).created().to_vec();
    assert_eq!(a, [NodeId { index: 2, generation: 1 }, NodeId { index: 3, generation: 1 }]);
    doit(&mut tree, &[Request::Delete { node: path("a"), mode: DeleteMode::Flush }]);
    refused(&tree, Request::Active { node: a[0].into() }, Errno::ESTALE, "gone");
    let again = doit(&mut tree, &[mk("", "c", SCHED)]).created().to_vec();
    assert_eq!(again, [NodeId { index: 2, generation: 2 }], "lowest slot, next generation");
    refused(&tree, Request::Active { node: a[0].into() }, Errno::ESTALE, "gone");
}

#[test]
fn one_plan_makes_names_and_shares_at_once() {
    let mut tree = new();
    let share = Share::of(Weight::from_milli(24_000).unwrap());
    let create = Request::Create {
        parent: path("web"),
        name: Some(name("s1")),
        kind: QUEUE.into(),
        share: Some(share),
    };
    let plan = doit(
        &mut tree,
        &[mk("", "web", SCHED), create, Request::SetShare { node: path("web"), share }],
    );
    assert_eq!(tree.seq(), 1, "one record");
    let [web, s1] = plan.created() else { panic!("two") };
    assert_eq!(
        plan.batch(),
        Batch {
            seq: 1,
            ops: vec![
                Op::Create { id: *web, parent: NodeId::ROOT, kind: SCHED },
                Op::Create { id: *s1, parent: *web, kind: QUEUE },
                Op::Reweight { id: *s1, weight: share.weight },
                Op::Reweight { id: *web, weight: share.weight },
            ]
        }
    );
    // All or none: the last one is refused, so nothing of it happens.
    let before = tree.clone();
    assert!(tree.plan(&[mk("", "x", QUEUE), mk("x", "y", QUEUE)]).is_err());
    assert_eq!(tree, before);
}

#[test]
fn what_is_already_so_needs_no_plan() {
    let tree = new();
    let q0: NodeRef = NodeId::Q0.into();
    let idle = [
        Request::SetShare { node: q0.clone(), share: Share::of(Weight::DEFAULT) },
        Request::SetCap { node: q0.clone(), cap: None },
        Request::SetClass { node: q0.clone(), class: Class::Ts },
        Request::SetLimit { node: q0.clone(), members_max: 0, bytes_max: 0 },
        Request::SetGc { node: q0.clone(), gc: false },
        Request::Active { node: q0 },
        Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Sfq },
    ];
    assert!(tree.plan(&idle).unwrap().is_empty());
    assert!(tree.plan(&[]).unwrap().is_empty());
}

#[test]
fn a_name_alone_needs_no_plane() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "a", QUEUE)]);
    let plan = doit(&mut tree, &[Request::Rename { node: path("a"), name: name("b") }]);
    assert!(plan.ops().is_empty() && !plan.is_empty());
    let plan = doit(&mut tree, &[Request::SetGc { node: path("b"), gc: true }]);
    assert!(plan.ops().is_empty() && !plan.is_empty());
}

#[test]
fn the_root_is_protected() {
    let tree = new();
    let root: NodeRef = NodeId::ROOT.into();
    let share = Share::of(Weight::DEFAULT);
    let cap = Some("1cpu".parse().unwrap());
    refused(&tree, Request::SetShare { node: root.clone(), share }, Errno::EPERM, "read-only");
    refused(&tree, Request::SetCap { node: root.clone(), cap }, Errno::EPERM, "no cap");
    refused(
        &tree,
        Request::Delete { node: root.clone(), mode: DeleteMode::Flush },
        Errno::EPERM,
        "cannot",
    );
    refused(&tree, Request::Rename { node: root.clone(), name: name("x") }, Errno::EPERM, "keeps");
    refused(&tree, Request::SetGc { node: root.clone(), gc: true }, Errno::EPERM, "never");
    refused(
        &tree,
        Request::SetClass { node: root.clone(), class: Class::Rr },
        Errno::EINVAL,
        "no class",
    );
    refused(&tree, Request::ResetCounters { node: root }, Errno::EINVAL, "no backlog");
}

#[test]
fn q0_is_protected() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "web", SCHED)]);
    let q0: NodeRef = NodeId::Q0.into();
    let zero = Share::of(Weight::BACKGROUND);
    let cap = Some("1cpu".parse().unwrap());
    refused(&tree, Request::SetShare { node: q0.clone(), share: zero }, Errno::EINVAL, "positive");
    refused(&tree, Request::SetCap { node: q0.clone(), cap }, Errno::EPERM, "cannot be capped");
    refused(
        &tree,
        Request::SetLimit { node: q0.clone(), members_max: 1, bytes_max: 0 },
        Errno::EPERM,
        "without limit",
    );
    refused(&tree, Request::Rename { node: q0.clone(), name: name("x") }, Errno::EPERM, "keeps");
    for mode in [DeleteMode::Refuse, DeleteMode::Drain, DeleteMode::Flush] {
        refused(
            &tree,
            Request::Delete { node: q0.clone(), mode },
            Errno::EPERM,
            "cannot be deleted",
        );
    }
    let elsewhere = Request::Move { node: q0.clone(), parent: path("web"), name: None };
    refused(&tree, elsewhere, Errno::EPERM, "keeps");
    refused(&tree, mk("q0", "x", QUEUE), Errno::ENOTDIR, "queue");
    // The least weight is one thousandth, and its class may change.
    let least = Share::of(Weight::from_milli(1).unwrap());
    doit(&mut tree, &[Request::SetShare { node: q0.clone(), share: least }]);
    doit(&mut tree, &[Request::SetClass { node: q0, class: Class::Sfq }]);
}

#[test]
fn nothing_is_promised_of_an_unknown_capacity() {
    let tree = new();
    let share: Share = "10 250ms/s".parse().unwrap();
    refused(&tree, Request::SetShare { node: NodeId::Q0.into(), share }, Errno::ENOSPC, "250ms/s");
    let create = Request::Create {
        parent: NodeId::ROOT.into(),
        name: None,
        kind: QUEUE.into(),
        share: Some(share),
    };
    refused(&tree, create, Errno::ENOSPC, "250ms/s");
}

#[test]
fn deletion() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "web", SCHED), mk("web", "s1", QUEUE)]);
    let delete = |at: &str, mode| Request::Delete { node: path(at), mode };
    refused(&tree, delete("web", DeleteMode::Flush), Errno::ENOTEMPTY, "1 children");
    refused(&tree, delete("web/no", DeleteMode::Refuse), Errno::ENOENT, "\"no\"");
    refused(&tree, delete("web/s1/x", DeleteMode::Refuse), Errno::ENOTDIR, "cpu/web/s1");

    let drain = doit(&mut tree, &[delete("web/s1", DeleteMode::Drain)]);
    let id = tree.resolve(&"web/s1".parse().unwrap()).unwrap();
    assert!(tree.get(id).unwrap().draining);
    assert_eq!(drain.drained(&[Outcome::Draining]), []);
    assert_eq!(drain.drained(&[Outcome::Done]), [id]);
    // It keeps its place until it is gone, and serves whoever is still in it.
    refused(&tree, delete("web", DeleteMode::Refuse), Errno::ENOTEMPTY, "children");
    refused(&tree, mk("web", "s1", QUEUE), Errno::EEXIST, "draining");
    refused(&tree, Request::Active { node: id.into() }, Errno::EBUSY, "draining");
    refused(
        &tree,
        Request::SetClass { node: id.into(), class: Class::Rr },
        Errno::EBUSY,
        "draining",
    );
    refused(&tree, Request::Rename { node: id.into(), name: name("x") }, Errno::EBUSY, "draining");
    doit(&mut tree, &[Request::SetShare { node: id.into(), share: Share::of(Weight::MAX) }]);
    assert!(
        tree.plan(&[delete("web/s1", DeleteMode::Drain)]).unwrap().is_empty(),
        "it does already"
    );
    let gone = tree.plan_gone(&[id, id, NodeId::Q0]);
    assert_eq!(gone.edits(), [Edit::Gone { id }]);
    tree.commit(&gone).unwrap();
    tree.check().unwrap();
    assert!(tree.plan_gone(&[id]).is_empty());
    // A scheduler has nobody to wait for.
    let plan = doit(&mut tree, &[delete("web", DeleteMode::Drain)]);
    assert!(matches!(plan.ops()[..], [Op::Delete { mode: DeleteMode::Refuse, .. }]));
    // Draining can be cut short.
    doit(&mut tree, &[mk("", "x", QUEUE), delete("x", DeleteMode::Drain)]);
    doit(&mut tree, &[delete("x", DeleteMode::Flush)]);
    // But not in one plan: without members it is gone when the next edit of the batch comes.
    doit(&mut tree, &[mk("", "x", QUEUE)]);
    let error =
        tree.plan(&[delete("x", DeleteMode::Drain), delete("x", DeleteMode::Flush)]).unwrap_err();
    assert_eq!((error.errno(), error.context.contains("cpu/x")), (Errno::EBUSY, true));
    doit(&mut tree, &[delete("x", DeleteMode::Flush)]);
    assert_eq!(tree.len(), 2);
}

#[test]
fn moves() {
    let mut tree = new();
    doit(
        &mut tree,
        &[mk("", "a", SCHED), mk("a", "b", SCHED), mk("a/b", "q", QUEUE), mk("", "c", SCHED)],
    );
    let mv = |from: &str, to: &str, by: Option<&str>| Request::Move {
        node: path(from),
        parent: path(to),
        name: by.map(name),
    };
    refused(&tree, mv("a", "a", None), Errno::EINVAL, "cpu/a cannot");
    refused(&tree, mv("a", "a/b", None), Errno::EINVAL, "into cpu/a/b");
    refused(&tree, mv("a", "a/b/q", None), Errno::ENOTDIR, "queue");
    refused(&tree, mv("a/b", "", Some("c")), Errno::EEXIST, "cpu/c");
    refused(&tree, Request::Rename { node: path("a"), name: name("c") }, Errno::EEXIST, "cpu/c");
    let ids = ["a/b", "a/b/q"].map(|p| tree.resolve(&p.parse().unwrap()).unwrap());
    let plan = doit(&mut tree, &[mv("a/b", "c", Some("moved"))]);
    assert_eq!(plan.ops().len(), 1);
    let now = ["c/moved", "c/moved/q"].map(|p| tree.resolve(&p.parse().unwrap()).unwrap());
    assert_eq!(ids, now, "handles stay");
    assert!(tree.plan(&[mv("c/moved", "c", None)]).unwrap().is_empty());
}

#[test]
fn the_deepest_level() {
    let mut tree = new();
    let mut at = String::new();
    // The root is the first level.
    for level in 2..=DEPTH_MAX {
        assert_eq!(tree.plan(&[mk(&at, "s", SCHED)]).map(drop), Ok(()), "level {level}");
        doit(&mut tree, &[mk(&at, "s", SCHED)]);
        at = if at.is_empty() { "s".into() } else { at + "/s" };
    }
    let deepest = tree.resolve(&at.parse().unwrap()).unwrap();
    assert_eq!(tree.depth(deepest), DEPTH_MAX);
    assert_eq!(tree.height(NodeId::ROOT), DEPTH_MAX);
    let below =
        Request::Create { parent: deepest.into(), name: None, kind: QUEUE.into(), share: None };
    refused(&tree, below, Errno::EMLINK, "16 levels");
    // A subtree that fits nowhere but where it is.
    doit(&mut tree, &[mk("", "t", SCHED), mk("t", "u", SCHED)]);
    let into =
        |parent: NodeId| Request::Move { node: path("t"), parent: parent.into(), name: None };
    let up = |id: NodeId| tree.get(id).unwrap().parent.unwrap();
    refused(&tree, into(deepest), Errno::EMLINK, "16 levels");
    refused(&tree, into(up(deepest)), Errno::EMLINK, "16 levels");
    // Not even by a record.
    let id = tree.resolve(&"t".parse().unwrap()).unwrap();
    let edit = Edit::Move { id, parent: up(deepest), name: name("t") };
    let mut other = tree.clone();
    assert!(other.replay(&Record { seq: tree.seq() + 1, edits: vec![edit] }).is_err());
    assert_eq!(tree, other);
    let fits = into(up(up(deepest)));
    doit(&mut tree, &[fits]);
}

#[test]
fn the_last_slot() {
    let mut tree = new();
    let fresh = || Request::Create {
        parent: NodeId::ROOT.into(),
        name: None,
        kind: QUEUE.into(),
        share: None,
    };
    let many: Vec<_> = (2..NODES_MAX).map(|_| fresh()).collect();
    let plan = tree.plan(&many).unwrap();
    assert_eq!(plan.created().last().unwrap().index, NODES_MAX - 1);
    tree.commit(&plan).unwrap();
    assert_eq!(tree.len(), NODES_MAX as usize);
    refused(&tree, fresh(), Errno::ENOSPC, "14336 nodes");
    let victim = NodeId { index: 777, generation: 1 };
    let plan =
        tree.plan(&[Request::Delete { node: victim.into(), mode: DeleteMode::Flush }]).unwrap();
    tree.commit(&plan).unwrap();
    let plan = tree.plan(&[fresh()]).unwrap();
    assert_eq!(plan.created(), [NodeId { index: 777, generation: 2 }]);
    tree.commit(&plan).unwrap();
    assert_eq!(tree.get(plan.created()[0]).unwrap().name.as_str(), "q776");
    tree.check().unwrap();
    assert_eq!(tree.snapshot().restore(), Ok(tree));
}

#[test]
fn a_worn_out_slot_retires() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "a", QUEUE)]);
    let mut worn = tree.snapshot();
    worn.slots[2].generation = u32::MAX;
    let mut tree = worn.restore().unwrap();
    doit(&mut tree, &[Request::Delete { node: path("a"), mode: DeleteMode::Flush }]);
    assert_eq!(tree.snapshot().restore().as_ref(), Ok(&tree));
    let plan = doit(&mut tree, &[mk("", "b", QUEUE)]);
    assert_eq!(plan.created(), [NodeId { index: 3, generation: 1 }], "no handle ever fits again");
}

type Damage = fn(&mut Snapshot);

#[test]
fn snapshots_that_do_not_fit_together() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "a", SCHED), mk("a", "b", SCHED), mk("a/b", "q", QUEUE)]);
    let good = tree.snapshot();
    assert_eq!(good.clone().restore(), Ok(tree));
    let id = |index| Some(NodeId { index, generation: 1 });
    let damages: [(&str, Damage); 10] = [
        ("no root", |s| s.slots[0].node = None),
        ("nothing", |s| s.slots.clear()),
        ("no q0", |s| s.slots[1].node = None),
        ("q0 weightless", |s| s.slots[1].node.as_mut().unwrap().share = Share::default()),
        ("an orphan", |s| s.slots[3].node.as_mut().unwrap().parent = None),
        ("a stranger's child", |s| {
            s.slots[3].node.as_mut().unwrap().parent = Some(NodeId { index: 2, generation: 2 });
        }),
        ("a queue's child", |s| s.slots[2].node.as_mut().unwrap().parent = Some(NodeId::Q0)),
        ("twins", |s| s.slots[2].node.as_mut().unwrap().name = Name::new("q0").unwrap()),
        ("a draining scheduler", |s| s.slots[2].node.as_mut().unwrap().draining = true),
        ("a cap of nothing", |s| {
            s.slots[2].node.as_mut().unwrap().cap = Some(Cap { rate_ns_per_s: 0, burst_ns: 0 });
        }),
    ];
    for (what, damage) in damages {
        let mut bad = good.clone();
        damage(&mut bad);
        assert!(bad.restore().is_err(), "{what}");
    }
    // A ring that the root does not reach.
    let mut ring = good.clone();
    ring.slots[2].node.as_mut().unwrap().parent = id(3);
    assert_eq!(ring.restore().unwrap_err().kind, ErrorKind::Corrupt);
    // Records out of order.
    let mut tree = good.restore().unwrap();
    for seq in [0, 1, 3, 99] {
        assert_eq!(
            tree.replay(&Record { seq, edits: vec![] }).unwrap_err().kind,
            ErrorKind::Corrupt
        );
    }
    assert_eq!(tree.replay(&Record { seq: 2, edits: vec![] }), Ok(()));
}

/// A journal is believed only where the tree stays a tree.
#[test]
fn records_that_break_the_tree() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "a", SCHED), mk("a", "b", QUEUE)]);
    let (root, q0) = (NodeId::ROOT, NodeId::Q0);
    let id = |index| NodeId { index, generation: 1 };
    let (a, b) = (id(2), id(3));
    let zero = Share::default();
    for edit in [
        Edit::Share { id: q0, share: zero },
        Edit::Share { id: root, share: zero },
        Edit::Share { id: id(9), share: zero },
        Edit::Cap { id: a, cap: Some(Cap { rate_ns_per_s: 0, burst_ns: 0 }) },
        Edit::Class { id: a, class: Class::Rr },
        Edit::Policy { id: b, policy: Policy::Sfq },
        Edit::Rename { id: root, name: name("x") },
        Edit::Rename { id: q0, name: name("x") },
        Edit::Rename { id: a, name: name("q0") },
        Edit::Move { id: q0, parent: a, name: name("q0") },
        Edit::Move { id: a, parent: a, name: name("x") },
        Edit::Move { id: a, parent: b, name: name("x") },
        Edit::Move { id: b, parent: q0, name: name("x") },
        Edit::Drain { id: q0 },
        Edit::Drain { id: a },
        Edit::Delete { id: q0, mode: DeleteMode::Flush },
        Edit::Delete { id: root, mode: DeleteMode::Flush },
        Edit::Gone { id: a },
        Edit::Create { id: id(5), parent: root, name: name("x"), kind: QUEUE },
        Edit::Create { id: id(3), parent: root, name: name("x"), kind: QUEUE },
        Edit::Create {
            id: NodeId { index: 4, generation: 2 },
            parent: root,
            name: name("x"),
            kind: QUEUE,
        },
        Edit::Create { id: id(4), parent: b, name: name("x"), kind: QUEUE },
        Edit::Create { id: id(4), parent: a, name: name("b"), kind: QUEUE },
        Edit::Create { id: id(4), parent: id(7), name: name("x"), kind: QUEUE },
    ] {
        let mut other = tree.clone();
        let record = Record { seq: 2, edits: vec![edit.clone()] };
        assert!(other.replay(&record).is_err(), "{edit:?}");
        assert_eq!(other, tree, "{edit:?}");
    }
    let good = Edit::Create { id: id(4), parent: a, name: name("x"), kind: QUEUE };
    assert_eq!(tree.replay(&Record { seq: 2, edits: vec![good] }), Ok(()));
}
