// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed shares, tunables, personalities, parameters of threads and what a queue is guaranteed.
//! (Fixed shares against an exact solver under random requests: `random.rs`.)

use reserv_model::*;

fn new() -> Tree {
    Tree::new(Name::new("cpu").unwrap())
}

fn path(text: &str) -> NodeRef {
    text.parse::<NodePath>().unwrap().into()
}

fn mk(parent: &str, child: &str, kind: NewKind, share: &str) -> Request {
    let (name, share) = (Some(Name::new(child).unwrap()), Some(share.parse().unwrap()));
    Request::Create { parent: path(parent), name, kind, share }
}

const QUEUE: NewKind = NewKind::Queue(None);
const SCHED: NewKind = NewKind::Scheduler(None);

fn doit(tree: &mut Tree, requests: &[Request]) -> Plan {
    let plan = tree.plan(requests).unwrap();
    tree.commit(&plan).unwrap();
    tree.check().unwrap();
    plan
}

fn share(node: &str, share: &str) -> Request {
    Request::SetShare { node: path(node), share: share.parse().unwrap() }
}

fn weights(tree: &Tree, nodes: &[&str]) -> Vec<String> {
    let weight =
        |n: &&str| tree.get(tree.resolve(&n.parse().unwrap()).unwrap()).unwrap().weight.to_string();
    nodes.iter().map(weight).collect()
}

#[track_caller]
fn refused(tree: &Tree, requests: &[Request], kind: ErrorKind, holds: &str) {
    let error = tree.plan(requests).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.context.contains(holds), "{error}");
}

/// The worked example of `fixed.rs`.
#[test]
fn fixed_shares_stay_when_others_come_and_go() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "a", QUEUE, "=25%"), mk("", "b", QUEUE, "=50%")]);
    assert_eq!(weights(&tree, &["q0", "a", "b"]), ["100", "100", "200"]);
    let plan = doit(&mut tree, &[mk("", "c", QUEUE, "100")]);
    assert_eq!(weights(&tree, &["q0", "a", "b", "c"]), ["100", "200", "400", "100"]);
    // The newcomer and what is solved anew are one batch.
    assert_eq!(plan.batch().ops.len(), 4);
    let id = |name: &str| tree.resolve(&name.parse().unwrap()).unwrap();
    assert_eq!(tree.get(id("a")).unwrap().share().to_string(), "=25% 0");
    assert_eq!(Shares::all(&tree).ppm(&tree, id("b")), 500_000);
    doit(&mut tree, &[share("q0", "0.5")]);
    assert_eq!(weights(&tree, &["a", "b"]), ["100.5", "201"]);
    doit(&mut tree, &[Request::Delete { node: path("c"), mode: DeleteMode::Refuse }]);
    assert_eq!(weights(&tree, &["a", "b"]), ["0.5", "1"]);
    // A weight takes the place of a fixed share, and the reverse.
    doit(&mut tree, &[share("b", "10")]);
    assert_eq!(weights(&tree, &["a", "b"]), ["3.5", "10"]);
    // Moved away, it is solved for its new siblings: alone it has all.
    doit(&mut tree, &[mk("", "s", SCHED, "1")]);
    doit(&mut tree, &[Request::Move { node: path("a"), parent: path("s"), name: None }]);
    assert_eq!(weights(&tree, &["s/a"]), ["250000"]);
    doit(&mut tree, &[mk("s", "x", QUEUE, "3")]);
    assert_eq!(weights(&tree, &["s/a", "s/x"]), ["1", "3"]);
    doit(&mut tree, &[mk("s", "y", QUEUE, "0")]);
    assert_eq!(weights(&tree, &["s/a", "s/y"]), ["1", "0"]);
}

#[test]
fn a_drained_sibling_counts_until_it_is_gone() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "a", QUEUE, "=50%"), mk("", "b", QUEUE, "300")]);
    assert_eq!(weights(&tree, &["a"]), ["400"]);
    doit(&mut tree, &[Request::Delete { node: path("b"), mode: DeleteMode::Drain }]);
    assert_eq!(weights(&tree, &["a"]), ["400"]);
    let gone = tree.plan_gone(&[tree.resolve(&"b".parse().unwrap()).unwrap()]);
    assert_eq!(gone.batch().ops.len(), 1, "a is solved anew with it");
    tree.commit(&gone).unwrap();
    assert_eq!(weights(&tree, &["a"]), ["100"]);
    let text = serde_json::to_string(&tree.snapshot()).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap().restore().unwrap(), tree);
}

#[test]
fn what_does_not_fit_is_refused_with_the_node() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "a", QUEUE, "=60%"), mk("", "s", SCHED, "100")]);
    let before = tree.clone();
    refused(
        &tree,
        &[mk("", "b", QUEUE, "=40%")],
        ErrorKind::Overcommitted,
        "cpu/b: =40% does not fit: its siblings have 60%",
    );
    refused(
        &tree,
        &[share("a", "=60%"), share("q0", "=40%")],
        ErrorKind::Overcommitted,
        "cpu/q0: =40%",
    );
    doit(&mut tree, &[mk("s", "b", QUEUE, "=40%")]);
    let to_root = Request::Move { node: path("s/b"), parent: NodeId::ROOT.into(), name: None };
    refused(&tree, &[to_root], ErrorKind::Overcommitted, "cpu/b: =40%");
    assert_eq!(Errno::ENOSPC, ErrorKind::Overcommitted.errno());
    // In one change the order does not matter: what counts is the end.
    doit(&mut tree, &[share("q0", "=60%"), share("a", "=20%")]);
    assert_eq!(weights(&tree, &["q0", "a"]), ["300", "100"]);
    // The largest weight bounds what a fixed share can stand against.
    refused(
        &before,
        &[share("a", "=99.9999%"), share("s", "100")],
        ErrorKind::Overcommitted,
        "beyond 1000000",
    );
    refused(
        &before,
        &[share("a", "=99%"), share("s", "1000000")],
        ErrorKind::Overcommitted,
        "cpu/a: =99% would need",
    );
    let many: Vec<_> = (0..=FIXED_MAX).map(|n| mk("s", &format!("n{n}"), QUEUE, "=1%")).collect();
    refused(&before, &many, ErrorKind::Full, "64");
    doit(&mut before.clone(), &many[..FIXED_MAX]);
    refused(
        &tree,
        &[Request::SetShare { node: NodeId::ROOT.into(), share: "=5%".parse().unwrap() }],
        ErrorKind::Protected,
        "read-only",
    );
}

fn tune(node: &str, text: &str) -> Request {
    Request::SetTune { node: path(node), change: parse_tune(text).unwrap() }
}

fn shown(tree: &Tree, node: &str) -> String {
    let id = tree.resolve(&node.parse().unwrap()).unwrap();
    let node = tree.get(id).unwrap();
    show_tune(&node.tune, tree.resource(), node.kind, tree.policy_above(id))
}

#[test]
fn tunables_are_those_of_the_place() {
    let mut tree = new();
    doit(&mut tree, &[mk("", "s", SCHED, "1"), mk("s", "q", QUEUE, "1")]);
    assert_eq!(shown(&tree, "s"), "quantum default");
    refused(
        &tree,
        &[tune("s", "lag 5ms")],
        ErrorKind::Invalid,
        "cpu/s: \"lag\" is no tunable here",
    );
    let policy = |policy| Request::SetPolicy { node: path("s"), policy };
    let plan = doit(
        &mut tree,
        &[policy(Policy::Eevdf), tune("s", "lag 5ms quantum 2ms"), tune("s/q", "request 3ms")],
    );
    let (s, q) = (
        tree.resolve(&"s".parse().unwrap()).unwrap(),
        tree.resolve(&"s/q".parse().unwrap()).unwrap(),
    );
    assert_eq!(
        plan.batch().ops,
        [
            Op::SetPolicy { id: s, policy: Policy::Eevdf },
            Op::Tune { id: s, key: TuneKey::Lag, value: 5_000_000 },
            Op::Tune { id: s, key: TuneKey::Quantum, value: 2_000_000 },
            Op::NodeParam { id: q, key: TuneKey::Request, value: 3_000_000 },
        ]
    );
    assert_eq!(shown(&tree, "s"), "quantum 2ms lag 5ms");
    assert_eq!(shown(&tree, "s/q"), "quantum default request 3ms");
    // What is read can be written, and changes nothing.
    assert!(
        tree.plan(&[tune("s", &shown(&tree, "s")), tune("s/q", &shown(&tree, "s/q"))])
            .unwrap()
            .is_empty()
    );
    doit(&mut tree, &[policy(Policy::Prio)]);
    assert_eq!(
        (shown(&tree, "s"), shown(&tree, "s/q")),
        ("quantum 2ms decay default".into(), "quantum default priority default".into())
    );
    refused(&tree, &[tune("s/q", "request 3ms")], ErrorKind::Invalid, "\"request\"");
    doit(&mut tree, &[tune("s/q", "priority 0")]);
    let plan = doit(&mut tree, &[tune("s/q", "priority default")]);
    assert_eq!(plan.ops(), [Op::NodeParam { id: q, key: TuneKey::Priority, value: 50 }]);
    // Back again, what was set for that policy counts again.
    doit(&mut tree, &[policy(Policy::Eevdf)]);
    assert_eq!(shown(&tree, "s"), "quantum 2ms lag 5ms");
    let text = serde_json::to_string(&tree.snapshot()).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap().restore().unwrap(), tree);
}

#[test]
fn a_personality_is_another_policy_on_another_resource() {
    let on = |resource, personality| {
        let mut tree = Tree::new(Name::new("eth0").unwrap());
        tree.set_resource(resource);
        doit(&mut tree, &[Request::SetPersonality { personality }]);
        let id = doit(&mut tree, &[mk("", "s", SCHED, "1")]).created()[0];
        assert_eq!(tree.get(id).unwrap().kind, Kind::Scheduler(personality.policy(resource)));
        let config = to_config(&tree, Driver::Auto);
        assert!(tree.root().tune.is_empty(), "{config:?}");
        tree.root().kind
    };
    for (personality, link, disk) in [
        (Personality::Eclipse, Policy::Wf2q, Policy::Yfq),
        (Personality::Rtss98, Policy::Sfq, Policy::Sfq),
        // Cello has one queue for the whole disk.
        (Personality::Qlinux, Policy::Sfq, Policy::Cello),
    ] {
        assert_eq!(on(ResourceKind::Link, personality), Kind::Scheduler(link));
        assert_eq!(on(ResourceKind::Disk, personality), Kind::Scheduler(disk));
    }
}

#[test]
fn a_personality_is_the_root_and_what_is_made() {
    let mut tree = new();
    for (personality, policy, class, root) in [
        (Personality::Eclipse, Policy::Mtrls, Class::Rr, "quantum default turn 100ms"),
        (Personality::Rtss98, Policy::Eevdf, Class::Rr, "quantum 1ms lag default"),
        (Personality::Qlinux, Policy::Sfq, Class::Sfq, "quantum 100ms"),
        (Personality::Containers, Policy::Sfq, Class::Ts, "quantum default"),
        (Personality::Default, Policy::Sfq, Class::Ts, "quantum default"),
    ] {
        doit(&mut tree, &[Request::SetPersonality { personality }]);
        assert_eq!((tree.personality(), shown(&tree, "")), (personality, root.to_owned()));
        let plan = doit(&mut tree, &[mk("", "s", SCHED, "1"), mk("s", "q", QUEUE, "1")]);
        let kinds: Vec<Kind> =
            plan.created().iter().map(|id| tree.get(*id).unwrap().kind).collect();
        assert_eq!(kinds, [Kind::Scheduler(policy), Kind::Queue(class)]);
        assert_eq!(tree.root().kind, Kind::Scheduler(policy));
        assert_eq!(tree.get(NodeId::Q0).unwrap().kind, Kind::Queue(Class::Ts));
        // As a configuration it says the same.
        let config = to_config(&tree, Driver::Auto);
        assert!(diff(&tree, &config, DeleteMode::Refuse).unwrap().is_empty());
        let text =
            toml::to_string(&Config { cpu: Some(config.clone()), ..Config::default() }).unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap().cpu, Some(config.clone()), "{text}");
        let mut fresh = new();
        let plan = diff(&fresh, &config, DeleteMode::Refuse).unwrap();
        doit(&mut fresh, &plan);
        assert_eq!(to_config(&fresh, Driver::Auto), config);
        assert!(tree.plan(&[Request::SetPersonality { personality }]).unwrap().is_empty());
        doit(
            &mut tree,
            &[
                Request::Delete { node: path("s/q"), mode: DeleteMode::Refuse },
                Request::Delete { node: path("s"), mode: DeleteMode::Refuse },
            ],
        );
    }
}

#[test]
fn a_configuration_has_it_all() {
    let text = "
[cpu]
personality = \"rtss98\"
tune = \"lag 8ms\"
[cpu.nodes.a]
kind = \"queue\"
share = \"=25%\"
tune = \"request 2ms\"
[cpu.nodes.p]
kind = \"scheduler\"
policy = \"prio\"
[cpu.nodes.\"p/x\"]
kind = \"queue\"
class = \"edf\"
tune = \"priority 80\"
";
    let config: Config = toml::from_str(text).unwrap();
    config.check().unwrap();
    let wanted = config.cpu.unwrap();
    let mut tree = new();
    let requests = diff(&tree, &wanted, DeleteMode::Refuse).unwrap();
    doit(&mut tree, &requests);
    assert_eq!(shown(&tree, ""), "quantum default lag 8ms");
    assert_eq!(
        (shown(&tree, "a"), shown(&tree, "p/x")),
        ("quantum default request 2ms".into(), "quantum default priority 80".into())
    );
    assert!(diff(&tree, &wanted, DeleteMode::Refuse).unwrap().is_empty());
    assert_eq!(weights(&tree, &["q0", "p", "a"]), ["100", "100", "66.667"]);
}

#[test]
fn guarantees() {
    const S: u64 = 1_000_000_000;
    let mut tree = new();
    doit(
        &mut tree,
        &[
            mk("", "a", SCHED, "300"),
            mk("a", "x", QUEUE, "1"),
            mk("a", "y", QUEUE, "2"),
            mk("", "bg", QUEUE, "0"),
        ],
    );
    let sure = |tree: &Tree, node: &str| {
        tree.guarantee(tree.resolve(&node.parse().unwrap()).unwrap(), 2 * S)
    };
    assert_eq!(["", "a", "a/y", "bg"].map(|n| sure(&tree, n)), [2 * S, 3 * S / 2, S, 0]);
    doit(&mut tree, &[Request::SetCap { node: path("a"), cap: Some("750ms/s".parse().unwrap()) }]);
    assert_eq!(["a", "a/x"].map(|n| sure(&tree, n)), [3 * S / 4, S / 4]);
    doit(&mut tree, &[Request::SetPolicy { node: path("a"), policy: Policy::Prio }]);
    assert_eq!(["a/x", "a/y"].map(|n| sure(&tree, n)), [0, 0]);
    doit(&mut tree, &[tune("a/x", "priority 52")]);
    assert_eq!(sure(&tree, "a/x"), 0);
    doit(&mut tree, &[tune("a/x", "priority 53")]);
    assert_eq!(["a/x", "a/y"].map(|n| sure(&tree, n)), [3 * S / 4, 0]);
    assert_eq!(tree.guarantee(NodeId { index: 99, generation: 1 }, S), 0);
    let p = |text: &str| ThreadParams::parse(text.split(' ')).unwrap();
    assert_eq!(
        promised(&[p("period 3ms budget 1ms"), p("period 10ms budget 5ms"), p("weight 2")]),
        833_333_334
    );
}

/// One queue for the whole disk has no place below others, and promises no minimums: what has no
/// class goes before all.
fn cello_is_a_disks_own() {
    let mut disk = Tree::new(Name::new("vda").unwrap());
    disk.set_resource(ResourceKind::Disk);
    disk.set_capacity(8_000_000);
    doit(
        &mut disk,
        &[mk("", "s", SCHED, "1"), mk("", "film", NewKind::Queue(Some(Class::RealTime)), "300")],
    );
    let of = |node: &str| Request::SetPolicy { node: path(node), policy: Policy::Cello };
    refused(&disk, &[of("s")], ErrorKind::Unsupported, "disk's own");
    refused(
        &disk,
        &[mk("", "c", NewKind::Scheduler(Some(Policy::Cello)), "1")],
        ErrorKind::Unsupported,
        "disk's own",
    );
    refused(&disk, &[tune("", "round 1s")], ErrorKind::Invalid, "round");
    let root = Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Cello };
    doit(&mut disk, &[root.clone(), tune("", "round 500ms"), tune("film", "deadline 1s")]);
    refused(&disk, &[tune("film", "round 1s")], ErrorKind::Invalid, "round");
    refused(&disk, &[share("film", "300 8kbit")], ErrorKind::Overcommitted, "cello");
    let cap = |text| Request::SetCap { node: path("film"), cap: parse_cap(text).unwrap() };
    refused(
        &disk,
        &[cap("8mbit")],
        ErrorKind::Unsupported,
        "no cap below vda, whose policy is cello",
    );
    let sfq = Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Sfq };
    doit(&mut disk, &[sfq.clone(), cap("8mbit")]);
    refused(&disk, std::slice::from_ref(&root), ErrorKind::Unsupported, "film: no cap");
    // Together it is neither of the two states.
    doit(&mut disk, &[root.clone(), cap("none")]);
    refused(&disk, &[cap("8mbit"), sfq.clone(), root.clone()], ErrorKind::Unsupported, "no cap");
    assert_eq!(shown(&disk, ""), "quantum default round 500ms");
    assert_eq!(shown(&disk, "film"), "quantum default deadline 1s");
    for (text, word) in [("round 9ms", "9ms"), ("round 61s", "61s"), ("round often", "often")] {
        let error = parse_tune(text).unwrap_err();
        assert!(error.to_string().contains(word) && !error.hint.is_empty(), "{error}");
    }
    // Who has a minimum cannot come under it.
    doit(
        &mut disk,
        &[
            Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Sfq },
            share("film", "300 8kbit"),
        ],
    );
    refused(&disk, &[root], ErrorKind::Overcommitted, "film");
}

/// What goes by lengths is for links; the CPU says so, and nothing changes.
#[test]
fn a_policy_by_length_is_not_for_the_cpu() {
    let mut cpu = new();
    let kind = NewKind::Scheduler(Some(Policy::Wf2qPlus));
    let make = Request::Create {
        parent: NodeId::ROOT.into(),
        name: Some(Name::new("w").unwrap()),
        kind,
        share: None,
    };
    let set = Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Wf2qPlus };
    for request in [&make, &set] {
        refused(&cpu, std::slice::from_ref(request), ErrorKind::Unsupported, "wf2q+");
    }
    let flows = Request::SetClass { node: NodeId::Q0.into(), class: Class::Drr };
    refused(&cpu, std::slice::from_ref(&flows), ErrorKind::Unsupported, "drr");
    refused(
        &cpu,
        &[mk("", "q", NewKind::Queue(Some(Class::Drr)), "1")],
        ErrorKind::Unsupported,
        "drr",
    );
    // What goes by places is for disks; a link says so too.
    let yfq = Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Yfq };
    let scan = |class| Request::SetClass { node: NodeId::Q0.into(), class };
    let eth = Tree::new(Name::new("eth0").unwrap());
    for tree in [&cpu, &eth] {
        refused(tree, std::slice::from_ref(&yfq), ErrorKind::Unsupported, "yfq");
        refused(tree, &[scan(Class::Scan)], ErrorKind::Unsupported, "scan");
        refused(tree, &[scan(Class::ScanEdf)], ErrorKind::Unsupported, "scan-edf");
    }
    for tree in [&cpu, &eth] {
        let cello = Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Cello };
        refused(tree, &[cello], ErrorKind::Unsupported, "cello");
        for class in [Class::Interactive, Class::Throughput, Class::RealTime] {
            refused(tree, &[scan(class)], ErrorKind::Unsupported, class.word());
        }
    }
    let mut disk = Tree::new(Name::new("vda").unwrap());
    disk.set_resource(ResourceKind::Disk);
    let refused_tune = |disk: &Tree, node: &str, text: &str, word: &str| {
        refused(disk, &[tune(node, text)], ErrorKind::Invalid, word);
    };
    refused_tune(&disk, "", "batch 4", "batch");
    doit(&mut disk, &[yfq, scan(Class::ScanEdf), tune("", "batch 16 anticipate 0ms cost time")]);
    doit(&mut disk, &[tune("q0", "deadline 20ms")]);
    let shown = |id: NodeId| {
        let node = disk.get(id).unwrap();
        show_tune(&node.tune, disk.resource(), node.kind, disk.policy_above(id))
    };
    assert_eq!(shown(NodeId::ROOT), "quantum default batch 16 anticipate 0ms cost time");
    assert_eq!(shown(NodeId::Q0), "quantum default deadline 20ms");
    for (node, text) in [("", "deadline 1ms"), ("q0", "batch 4")] {
        refused_tune(&disk, node, text, text.split(' ').next().unwrap());
    }
    for (text, word) in [
        ("cost seconds", "seconds"),
        ("batch many", "many"),
        ("batch 257", "257"),
        ("anticipate 2", "2"),
        ("anticipate 1s", "1s"),
        ("deadline 0ms", "0ms"),
    ] {
        let error = parse_tune(text).unwrap_err();
        assert!(error.to_string().contains(word) && !error.hint.is_empty(), "{error}");
    }
    cello_is_a_disks_own();
    doit(&mut cpu, &[Request::SetPolicy { node: NodeId::ROOT.into(), policy: Policy::Eevdf }]);
    let mut link = Tree::new(Name::new("eth0").unwrap());
    let plan = doit(&mut link, &[set, make, flows]);
    let id = plan.created()[0];
    assert_eq!(link.get(id).unwrap().kind, Kind::Scheduler(Policy::Wf2qPlus));
    assert_eq!(link.root().kind, Kind::Scheduler(Policy::Wf2qPlus));
    let text = serde_json::to_string(&link.snapshot()).unwrap();
    assert!(text.contains("wf2q+"), "{text}");
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap().restore().unwrap(), link);
}

#[test]
fn what_comes_in_has_a_rate_at_a_links_queues() {
    let mut eth = Tree::new(Name::new("eth0").unwrap());
    doit(&mut eth, &[tune("q0", "receive 20000/s receive-burst 64")]);
    assert_eq!(shown(&eth, "q0"), "quantum default receive 20000/s receive-burst 64");
    doit(&mut eth, &[tune("q0", "receive 100 receive-burst default")]);
    assert_eq!(shown(&eth, "q0"), "quantum default receive 100/s receive-burst default");
    refused(&eth, &[tune("", "receive 1")], ErrorKind::Invalid, "receive");
    let mut disk = Tree::new(Name::new("vda").unwrap());
    disk.set_resource(ResourceKind::Disk);
    for tree in [&new(), &disk] {
        refused(tree, &[tune("q0", "receive-burst 1")], ErrorKind::Invalid, "receive-burst");
    }
    let most = "receive 100000000/s receive-burst 65536";
    assert_eq!(parse_tune(most).unwrap().len(), 2);
    for (text, word) in [
        ("receive 0/s", "0/s"),
        ("receive 100000001", "100000001"),
        ("receive 5/m", "5/m"),
        ("receive /s", "/s"),
        ("receive -1/s", "-1/s"),
        ("receive 20kbit", "20kbit"),
        ("receive-burst 0", "0"),
        ("receive-burst 5/s", "5/s"),
    ] {
        let error = parse_tune(text).unwrap_err();
        assert!(error.to_string().contains(word) && !error.hint.is_empty(), "{error}");
    }
}
