// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is read can be written; what is wrong is refused with its errno and the wrong word.

#[path = "../../model/tests/common/mod.rs"]
mod common;

use proptest::prelude::*;
use reserv_model::*;
use reserv_namespace::*;

const Q: NodeId = NodeId::Q0;

/// A resource by its name, and what is there by a path.
fn by<'t>(
    trees: impl Fn(Resource) -> Option<&'t Tree>,
) -> impl Fn(&str, &NodePath) -> Result<Named, Error> {
    move |name, path| {
        Ok(resource_named(name, &trees).and_then(|r| Some((r, trees(r)?.resolve(path)))))
    }
}

/// A node's view without counters.
fn plain(tree: &Tree, node: NodeId) -> View<'_> {
    static NOTHING: std::sync::LazyLock<Survey> = std::sync::LazyLock::new(Survey::default);
    View {
        tree,
        node,
        survey: &NOTHING,
        members: &[],
        dropped: &[],
        kind: ResourceKind::Cpu,
        capacity: 2_000_000_000,
    }
}

/// The files of a node that are read and written by this crate.
fn both_ways(node: &Node) -> impl Iterator<Item = &'static Entry> {
    let both = |e: &&Entry| matches!((e.read, e.write), (Read::Node(_), Write::Node(_)));
    Place::of_node(node).files().filter(both)
}

proptest! {
    #![proptest_config(common::config(4))]

    #[test]
    fn what_is_read_can_be_written(all in common::steps(80)) {
        let tree = common::grown(&all);
        for node in tree.iter() {
            for row in both_ways(node) {
                let text = render_read(row.file, &plain(&tree, node.id)).unwrap();
                if matches!(row.file, FileKind::Members | FileKind::Access) {
                    prop_assert_eq!(text, "");
                    continue;
                }
                prop_assert!(text.ends_with('\n'));
                let last = text.lines().last().unwrap();
                // A resource's own share shows the capacity, and cannot be written.
                let own = node.id == NodeId::ROOT && row.file == FileKind::Share;
                let Command::Edit(requests) = parse_write(row.file, node.id, last.as_bytes()).unwrap() else {
                    panic!("an edit");
                };
                match tree.plan(&requests) {
                    Ok(plan) => {
                        // Writing back what was read changes nothing, but that `backlog` resets its
                        // counters.
                        let reset = [Edit::Reset { id: node.id }];
                        let wanted: &[Edit] = if row.file == FileKind::Backlog { &reset } else { &[] };
                        prop_assert_eq!(plan.edits(), wanted);
                        prop_assert!(!own);
                    }
                    Err(e) => prop_assert!(own || e.kind == ErrorKind::Busy && node.draining, "{e}"),
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_read(milli in 0..=1_000_000_000_u32, rate in Cap::RATE_MIN..=Cap::RATE_MAX,
                               burst in 0..=Cap::BURST_MAX, class in any::<u32>(), limit in 1..=PID_MAX) {
        let mut tree = Tree::new(Name::new("cpu").unwrap());
        let plan = tree.plan(&[Request::Create { parent: NodeId::ROOT.into(), name: None, kind: NewKind::Queue(None), share: None }]).unwrap();
        tree.commit(&plan).unwrap();
        let id = plan.created()[0];
        let share = Share::of(Weight::from_milli(milli).unwrap());
        let cap = Cap { rate_ns_per_s: rate, burst_ns: burst };
        let texts = [
            (FileKind::Share, share.to_string(), format!("{share}\n")),
            (FileKind::Cap, format!("\t{cap} \n"), format!("{cap}\n")),
            (FileKind::Class, common::class(class).to_string(), format!("{}\n", common::class(class))),
            (FileKind::Gc, "1\n".into(), "1\n".into()),
            (FileKind::Backlog, format!("{limit}"), format!("served 0\nservice_ns 0\nlimit {limit} 0\n")),
            (FileKind::State, "drain".into(), "draining\n".into()),
        ];
        for (file, write, read) in texts {
            let Command::Edit(requests) = parse_write(file, id, write.as_bytes()).unwrap() else { panic!("an edit") };
            let plan = tree.plan(&requests).unwrap();
            tree.commit(&plan).unwrap();
            prop_assert_eq!(render_read(file, &plain(&tree, id)).unwrap(), read);
        }
    }

    #[test]
    fn members_read_can_be_written(members in prop::collection::vec((1..=PID_MAX, 1..=PID_MAX), 0..20)) {
        let tree = Tree::new(Name::new("cpu").unwrap());
        let members: Vec<_> = members.iter().map(|&(pid, tid)| Member { pid, tid, params: ThreadParams::default() }).collect();
        let text = render_read(FileKind::Members, &View { members: &members, ..plain(&tree, Q) }).unwrap();
        let mut sorted = members;
        sorted.sort_unstable();
        let written: Vec<_> = text.lines().map(|l| parse_write(FileKind::Members, Q, l.as_bytes()).unwrap()).collect();
        let wanted: Vec<_> = sorted.iter().map(|m| Command::Tag {
            queue: Q,
            params: None,
            who: Who::Thread { tid: m.tid, pid: Some(m.pid) },
        }).collect();
        prop_assert_eq!(written, wanted);
    }

    #[test]
    fn a_survey_says_what_a_walk_over_the_subtree_says(all in common::steps(60), numbers in any::<u64>()) {
        let tree = common::grown(&all);
        let pick = |n: &Node, at: u32| (numbers >> ((n.id.index * 5 + at) % 61)) & 3;
        let samples: Vec<Sample> = tree.iter().filter(|n| pick(n, 0) != 3).map(|n| Sample {
            queued: if n.kind.is_queue() { u32::try_from(pick(n, 1)).unwrap() } else { 9 },
            running: u32::from(n.kind.is_queue() && pick(n, 2) == 1),
            members: u32::try_from(pick(n, 3)).unwrap(),
            throttled: pick(n, 4) == 1,
            service_ns: numbers,
            ..Sample::new(n.id)
        }).collect();
        let survey = Survey::new(&tree, samples.clone());
        let of = |id: NodeId| samples.iter().find(|s| s.id == id.pack()).copied().unwrap_or(Sample::new(id));
        let competes = |id: NodeId| {
            let held = tree.iter().any(|up| tree.is_within(id, up.id) && of(up.id).throttled);
            !held && of(id).queued + of(id).running > 0
        };
        for node in tree.iter() {
            let below = || tree.iter().filter(|n| n.kind.is_queue() && tree.is_within(n.id, node.id)).map(|n| of(n.id));
            let sum = |number: fn(&Sample) -> u32| below().map(|s| number(&s)).sum::<u32>();
            let (queued, running, own) = (sum(|s| s.queued), sum(|s| s.running), of(node.id));
            let wanted = format!(
                "weight_share_ppm {}\neffective_share_ppm {}\nservice_ns {}\nrunnable {}\nqueued {queued}\nrunning {running}\n\
                 members {}\nthrottled {}\nthrottled_ns 0\nstate {}\n\
                 minimum_ns {}\nguarantee_ns {}\nthreads_short {}\n",
                Shares::all(&tree).ppm(&tree, node.id), Shares::now(&tree, competes).ppm(&tree, node.id), own.service_ns,
                queued + running, sum(|s| s.members), u8::from(own.throttled), if node.draining { "draining" } else { "active" },
                if node.parent.is_some() { node.minimum.0 } else { 0 }, tree.guarantee(node.id, common::CAPACITY),
                u64::from(node.parent.is_some() && node.minimum.0 > 0 && sum(|s| s.members) == 0),
            );
            prop_assert_eq!(render_read(FileKind::Stat, &View { survey: &survey, ..plain(&tree, node.id) }).unwrap(), wanted);
        }
    }

    #[test]
    fn lists_read_can_be_written(all in common::steps(60)) {
        let tree = common::grown(&all);
        for node in tree.iter().filter(|n| n.kind.is_queue()) {
            let text = render_defaults("/reserv", &[(tree.root().name.clone(), tree.path(node.id).unwrap())]);
            let find = |r| (r == Resource::CPU).then_some(&tree);
            prop_assert_eq!(parse_defaults(text.as_bytes(), "/reserv", by(find)), Ok(vec![(Resource::CPU, node.id)]));
            // Where it is mounted does not matter to the short form.
            let short = text.trim_end().strip_prefix("/reserv/").unwrap();
            prop_assert_eq!(parse_defaults(short.as_bytes(), "/mnt", by(find)), Ok(vec![(Resource::CPU, node.id)]));
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what parse_write answers")]
fn edit(request: Request) -> Result<Command, Error> {
    Ok(Command::Edit(vec![request]))
}

#[test]
fn writes() {
    let id = NodeId { index: 5, generation: 2 };
    let node = || NodeRef::from(id);
    let write = |file, text: &str| parse_write(file, id, text.as_bytes());
    let weight = |w: &str| Share::of(w.parse().unwrap());
    for text in ["24", "24 0", "24\n", "  24\t0 \n", "24.000 0"] {
        assert_eq!(
            write(FileKind::Share, text),
            edit(Request::SetShare { node: node(), share: weight("24") }),
            "{text}"
        );
    }
    assert_eq!(write(FileKind::Cap, "none"), edit(Request::SetCap { node: node(), cap: None }));
    assert_eq!(
        write(FileKind::Policy, "sfq"),
        edit(Request::SetPolicy { node: node(), policy: Policy::Sfq })
    );
    assert_eq!(
        write(FileKind::Class, "fifo\n"),
        edit(Request::SetClass { node: node(), class: Class::Fifo })
    );
    assert_eq!(write(FileKind::Gc, "0"), edit(Request::SetGc { node: node(), gc: false }));
    assert_eq!(
        write(FileKind::State, "drain"),
        edit(Request::Delete { node: node(), mode: DeleteMode::Drain })
    );
    assert_eq!(
        write(FileKind::State, "flush"),
        edit(Request::Delete { node: node(), mode: DeleteMode::Flush })
    );
    assert_eq!(write(FileKind::State, "active"), edit(Request::Active { node: node() }));
    let limits = Command::Edit(vec![
        Request::SetLimit { node: node(), members_max: 16, bytes_max: 0 },
        Request::ResetCounters { node: node() },
    ]);
    for text in ["16", "16 0", "limit 16 0"] {
        assert_eq!(write(FileKind::Backlog, text), Ok(limits.clone()), "{text}");
    }
    let member = |who| Ok(Command::Tag { queue: id, who, params: None });
    assert_eq!(write(FileKind::Members, "1234\n"), member(Who::Process(1234)));
    assert_eq!(write(FileKind::Members, "tid 7"), member(Who::Thread { tid: 7, pid: None }));
    assert_eq!(
        write(FileKind::Members, "tid 7 pid 6"),
        member(Who::Thread { tid: 7, pid: Some(6) })
    );
    assert_eq!(write(FileKind::Members, "self"), member(Who::CallerProcess));
    assert_eq!(write(FileKind::Members, "tid self"), member(Who::CallerThread));
    let set = |who, params| Ok(Command::Tag { queue: id, who, params: Some(params) });
    let params = ThreadParams {
        weight: 500,
        priority: 7,
        period_ns: 33_000_000,
        budget_ns: 10_000_000,
        deadline_ns: 20_000_000,
    };
    let text = "tid 7 pid 6 weight 0.5 priority 7 period 33ms budget 10ms deadline 20ms";
    assert_eq!(write(FileKind::Members, text), set(Who::Thread { tid: 7, pid: Some(6) }, params));
    let one = ThreadParams { weight: 2000, ..ThreadParams::default() };
    assert_eq!(write(FileKind::Members, "tid self weight 2"), set(Who::CallerThread, one));
    let unset = ThreadParams::default();
    assert_eq!(
        write(FileKind::Members, "tid 7 default"),
        set(Who::Thread { tid: 7, pid: None }, unset)
    );
    let tune = |change: &[(TuneKey, Option<u64>)]| {
        edit(Request::SetTune { node: node(), change: change.to_vec() })
    };
    assert_eq!(
        write(FileKind::Tune, "quantum 4ms  lag default\n"),
        tune(&[(TuneKey::Quantum, Some(4_000_000)), (TuneKey::Lag, None)])
    );
    assert_eq!(
        write(FileKind::Tune, "turn default priority 0"),
        tune(&[(TuneKey::Turn, None), (TuneKey::Priority, Some(0))])
    );
    let fixed = Share::fixed(Fixed::from_ppm(250_000).unwrap());
    assert_eq!(
        write(FileKind::Share, "=25% 0"),
        edit(Request::SetShare { node: node(), share: fixed })
    );
    for policy in Policy::ALL {
        let wanted = edit(Request::SetPolicy { node: node(), policy: *policy });
        assert_eq!(write(FileKind::Policy, policy.word()), wanted);
    }
    let make = |kind, name: &str, share: &str| {
        let name = Some(Name::new(name).unwrap());
        edit(Request::Create { parent: node(), name, kind, share: Some(weight(share)) })
    };
    let (queue, sched) = (NewKind::Queue(None), NewKind::Scheduler(None));
    assert_eq!(write(FileKind::Mk, "queue site1"), make(queue, "site1", "100"));
    assert_eq!(write(FileKind::Mk, "scheduler \t web  0.5 0 \n"), make(sched, "web", "0.5"));
}

#[test]
fn wrong_writes() {
    use Errno::{EACCES, EILSEQ, EINVAL, EMSGSIZE, ENAMETOOLONG};
    let cases: &[(FileKind, &[u8], Errno, &str)] = &[
        (FileKind::Share, b"", EINVAL, "nothing"),
        (FileKind::Share, b"\n", EINVAL, "nothing"),
        (FileKind::Share, b" \t ", EINVAL, "nothing"),
        (FileKind::Share, b"1 0\n2 0\n", EINVAL, "more than one line"),
        (FileKind::Share, b"1\n\n", EINVAL, "more than one line"),
        (FileKind::Share, b"\n1", EINVAL, "more than one line"),
        (FileKind::Share, b"1\r\n", EINVAL, "control character"),
        (FileKind::Share, b"1\0", EILSEQ, "NUL"),
        (FileKind::Share, b"\xff", EILSEQ, "byte 0"),
        (FileKind::Share, b"1\x07", EINVAL, "control character"),
        (FileKind::Share, b"lots", EINVAL, "\"lots\" is not a weight"),
        (FileKind::Share, b"1 0 0", EINVAL, "\"0\" after a share"),
        (FileKind::Share, b"=125% 0", EINVAL, "\"=125%\""),
        (FileKind::Tune, b"quantum", EINVAL, "\"quantum\" without"),
        (FileKind::Tune, b"quantum 4", EINVAL, "no unit"),
        (FileKind::Tune, b"quantum 4ms quantum 5ms", EINVAL, "\"quantum\" stands twice"),
        (FileKind::Tune, b"quantum 1s", EINVAL, "out of range"),
        (FileKind::Tune, b"slice 4ms", EINVAL, "\"slice\" is no tunable"),
        (FileKind::Tune, b"priority 101", EINVAL, "out of range"),
        (FileKind::Tune, b"priority -1", EINVAL, "\"-1\""),
        (FileKind::Members, b"7 weight 2", EINVAL, "\"weight\" after a process"),
        (FileKind::Members, b"self weight 2", EINVAL, "\"weight\" after a process"),
        (FileKind::Members, b"tid 7 weight", EINVAL, "\"weight\" without"),
        (FileKind::Members, b"tid 7 weight 0", EINVAL, "\"0\""),
        (FileKind::Members, b"tid 7 weight 1 weight 2", EINVAL, "\"weight\" stands twice"),
        (FileKind::Members, b"tid 7 colour 1", EINVAL, "\"colour\" is no parameter"),
        (FileKind::Members, b"tid 7 period 10ms", EINVAL, "without \"budget\""),
        (FileKind::Members, b"tid 7 budget 10ms", EINVAL, "without \"period\""),
        (FileKind::Members, b"tid 7 period 10ms budget 11ms", EINVAL, "11ms does not fit"),
        (
            FileKind::Members,
            b"tid 7 period 10ms budget 5ms deadline 11ms",
            EINVAL,
            "11ms after the period",
        ),
        (
            FileKind::Members,
            b"tid 7 period 10ms budget 5ms deadline 4ms",
            EINVAL,
            "before the deadline of 4ms",
        ),
        (FileKind::Members, b"tid 7 period 11s budget 5ms", EINVAL, "\"11s\""),
        (FileKind::Members, b"tid 7 default weight 1", EINVAL, "\"weight\" after"),
        (FileKind::Cap, b"1", EINVAL, "no unit"),
        (FileKind::Cap, b"nothing", EINVAL, "\"nothing\""),
        (FileKind::Cap, b"0", EINVAL, "a cap of 0"),
        (FileKind::Policy, b"wf3q", EINVAL, "\"wf3q\" is not a policy"),
        (FileKind::Policy, b"sfq sfq", EINVAL, "\"sfq\" after"),
        (FileKind::Class, b"SFQ", EINVAL, "\"SFQ\" is not a class"),
        (FileKind::Class, b"ts rr", EINVAL, "\"rr\" after"),
        (FileKind::Gc, b"2", EINVAL, "\"2\""),
        (FileKind::Gc, b"yes", EINVAL, "\"yes\""),
        (FileKind::State, b"gone", EINVAL, "\"gone\""),
        (FileKind::Backlog, b"limit", EINVAL, "nothing"),
        (FileKind::Backlog, b"-1", EINVAL, "\"-1\""),
        (FileKind::Backlog, b"4194305", EINVAL, "\"4194305\""),
        (FileKind::Backlog, b"16 5s", EINVAL, "\"5s\""),
        (FileKind::Backlog, b"16 0 0", EINVAL, "\"0\" after"),
        (FileKind::Members, b"0", EINVAL, "\"0\""),
        (FileKind::Members, b"4194305", EINVAL, "\"4194305\""),
        (FileKind::Members, b"-1", EINVAL, "\"-1\""),
        (FileKind::Members, b"1 2", EINVAL, "\"2\" after"),
        (FileKind::Members, b"tid", EINVAL, "without a thread"),
        (FileKind::Members, b"tid x", EINVAL, "\"x\""),
        (FileKind::Members, b"tid 1 pid", EINVAL, "\"pid\""),
        (FileKind::Members, b"tid 1 pid 0", EINVAL, "\"0\""),
        (FileKind::Members, b"tid 1 pid 2 3", EINVAL, "\"3\""),
        (FileKind::Members, b"self 1", EINVAL, "\"1\""),
        (FileKind::Members, b"Self", EINVAL, "\"Self\""),
        (FileKind::Mk, b"queue", EINVAL, "empty name"),
        (FileKind::Mk, b"leaf a", EINVAL, "\"leaf\""),
        (FileKind::Mk, b"queue ../x", EINVAL, "../x"),
        (FileKind::Mk, b"queue share", EINVAL, "share"),
        (FileKind::Mk, b"queue a x", EINVAL, "\"x\""),
        (FileKind::Mk, b"queue a 1 0 0", EINVAL, "\"0\" after"),
        (FileKind::Stat, b"1", EACCES, "not written"),
        (FileKind::Status, b"1", EACCES, "not written"),
        (FileKind::NewQueue, b"1", EACCES, "not written"),
        (FileKind::Default, b"/reserv/cpu/q0", EACCES, "not written"),
        (FileKind::QueueDir, b"1", EACCES, "directory"),
    ];
    for (file, text, errno, holds) in cases {
        let error = parse_write(*file, Q, text).expect_err(&String::from_utf8_lossy(text));
        assert_eq!(error.errno(), *errno, "{error}");
        assert!(error.context.contains(holds), "{error}");
    }
    let long = |n: usize| [vec![b' '; n - 1], b"1".to_vec()].concat();
    assert!(parse_write(FileKind::Share, Q, &long(TEXT_MAX)).is_ok());
    assert_eq!(parse_write(FileKind::Share, Q, &long(TEXT_MAX + 1)).unwrap_err().errno(), EMSGSIZE);
    let name = format!("queue {}", "x".repeat(65));
    assert_eq!(parse_write(FileKind::Mk, Q, name.as_bytes()).unwrap_err().errno(), ENAMETOOLONG);
}

#[test]
fn wrong_lists() {
    let tree = Tree::new(Name::new("cpu").unwrap());
    let parse = |text: &str| {
        parse_defaults(text.as_bytes(), "/reserv", by(|r| (r == Resource::CPU).then_some(&tree)))
    };
    assert_eq!(parse("/reserv/cpu/q0\n"), Ok(vec![(Resource::CPU, Q)]));
    for (text, errno, holds) in [
        ("", Errno::EINVAL, "nothing"),
        ("/reserv/cpu/q9", Errno::ENOENT, "\"q9\""),
        ("/reserv/vda/q0", Errno::ENOENT, "/reserv/vda/q0"),
        ("/reserv", Errno::EINVAL, "not below"),
        ("/reserv/", Errno::ENOENT, "names no resource"),
        ("/reservation/cpu/q0", Errno::EINVAL, "not below"),
        ("/other/cpu/q0", Errno::EINVAL, "not below /reserv"),
        ("/reserv/cpu/q0 /reserv/cpu/q0", Errno::EINVAL, "second queue of cpu"),
        ("/reserv/cpu/q0/", Errno::EINVAL, "empty name"),
        ("/reserv/cpu/../q0", Errno::EINVAL, "dot"),
        ("/reserv/cpu/q0/x", Errno::ENOTDIR, "queue"),
        ("q0", Errno::ENOENT, "\"q0\""),
        ("/reserv/cpu/q0\n/reserv/cpu/q0", Errno::EINVAL, "line"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.errno(), errno, "{text}: {error}");
        assert!(error.context.contains(holds), "{text}: {error}");
    }
}

#[test]
fn reads() {
    let mut tree = Tree::new(Name::new("cpu").unwrap());
    let make = |parent: &str, kind, weight: &str| Request::Create {
        parent: parent.parse::<NodePath>().unwrap().into(),
        name: None,
        kind,
        share: Some(weight.parse::<Share>().unwrap()),
    };
    let (queue, sched) = (NewKind::Queue(Some(Class::Rr)), NewKind::Scheduler(None));
    let plan = tree
        .plan(&[make("", sched, "300"), make("r0", queue, "1"), make("r0", queue, "2")])
        .unwrap();
    tree.commit(&plan).unwrap();
    let [r0, a, b] = plan.created() else { panic!("three") };
    let sample = |id: NodeId, queued, running| Sample {
        queued,
        running,
        members: queued + running + 1,
        service_ns: 100 * u64::from(id.index),
        ..Sample::new(id)
    };
    let mut samples = vec![
        Sample { service_ns: 999, ..Sample::new(NodeId::ROOT) },
        sample(Q, 1, 1),
        Sample { service_ns: 700, throttled_ns: 5, ..Sample::new(*r0) },
        sample(*a, 0, 0),
        Sample { served: 9, service_since_reset_ns: 8, ..sample(*b, 3, 1) },
    ];
    let read = |file, id, samples: &[Sample]| {
        let survey = Survey::new(&tree, samples.to_vec());
        render_read(file, &View { survey: &survey, ..plain(&tree, id) }).unwrap()
    };
    assert_eq!(read(FileKind::Share, NodeId::ROOT, &samples), "100 2cpu\n");
    assert_eq!(read(FileKind::Share, *a, &samples), "1 0\n");
    assert_eq!(read(FileKind::Class, *a, &samples), "rr\n");
    assert_eq!(read(FileKind::Policy, *r0, &samples), "sfq\n");
    assert_eq!(read(FileKind::Tune, *r0, &samples), "quantum default\n");
    assert_eq!(read(FileKind::Backlog, *b, &samples), "served 9\nservice_ns 8\nlimit 0 0\n");
    assert_eq!(
        read(FileKind::Stat, *r0, &samples),
        "weight_share_ppm 750000\neffective_share_ppm 750000\nservice_ns 700\nrunnable 4\nqueued 3\nrunning 1\n\
         members 6\nthrottled 0\nthrottled_ns 5\nstate active\nminimum_ns 0\nguarantee_ns 0\nthreads_short 0\n"
    );
    assert_eq!(
        read(FileKind::Stat, *b, &samples),
        "weight_share_ppm 500000\neffective_share_ppm 750000\nservice_ns 400\nrunnable 4\nqueued 3\nrunning 1\n\
         members 5\nthrottled 0\nthrottled_ns 0\nstate active\nminimum_ns 0\nguarantee_ns 0\nthreads_short 0\n"
    );
    // What it needs for a request, and the time that this takes with what is guaranteed.
    samples[4].request_ns = 3_000_000;
    let mut three_cpus = tree.clone();
    three_cpus.set_capacity(3_000_000_000);
    let survey = Survey::new(&three_cpus, samples.clone());
    let stat =
        render_read(FileKind::Stat, &View { survey: &survey, ..plain(&three_cpus, *b) }).unwrap();
    assert!(stat.ends_with("request_ns 3000000\nperiod_ns 2000000\n"), "{stat}");
    // A throttled scheduler node takes all below it out of the competition.
    samples[2].throttled = true;
    assert!(read(FileKind::Stat, *b, &samples).contains("effective_share_ppm 0\n"));
    assert!(read(FileKind::Stat, Q, &samples).contains("effective_share_ppm 1000000\n"));
    // A sample of an older node in the same slot is nobody's.
    samples[3].id = NodeId { generation: 9, ..*a }.pack();
    assert!(read(FileKind::Stat, *a, &samples).contains("service_ns 0\n"));

    let errno = |file, id| render_read(file, &plain(&tree, id)).unwrap_err().errno();
    assert_eq!(errno(FileKind::NewQueue, *r0), Errno::EACCES);
    assert_eq!(errno(FileKind::Mk, *r0), Errno::EACCES);
    assert_eq!(errno(FileKind::SchedulerDir, *r0), Errno::EACCES);
    assert_eq!(errno(FileKind::Policy, Q), Errno::ENOTDIR);
    assert_eq!(errno(FileKind::Class, *r0), Errno::EINVAL);
    for row in TABLE.iter().filter(|e| matches!(e.read, Read::Node(_))) {
        assert_eq!(
            errno(row.file, NodeId { index: 99, generation: 1 }),
            Errno::ESTALE,
            "{}",
            row.name
        );
    }
}

#[test]
fn status() {
    let limits = vec!["no classes".to_owned(), "two\nlines".to_owned()];
    let cpu = ResourceStatus {
        resource: "cpu",
        driver: "stock",
        mechanism: "cgroup v2 (threaded)",
        abi: 1,
        health: Health::Detached("sysrq\nS"),
        revivals: 2,
        last_detachment: None,
        personality: Personality::Eclipse,
        nodes: 7,
        edits: 12,
        chcpures: false,
        outside: Some("system.slice, user.slice"),
        limits: &limits,
    };
    assert_eq!(
        render_status("0.1.0", &[cpu]),
        "version 0.1.0\ncpu.driver stock\ncpu.mechanism cgroup v2 (threaded)\ncpu.abi 1\ncpu.health detached: sysrq S\n\
         cpu.revivals 2\ncpu.last_detachment none\ncpu.personality eclipse\ncpu.nodes 7\ncpu.edits 12\ncpu.chcpures no\n\
         cpu.outside system.slice, user.slice\ncpu.limit no classes\ncpu.limit two lines\n"
    );
    assert_eq!(render_status("1", &[]), "version 1\n");
}
