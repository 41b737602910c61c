// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace made by hand, right and falsified.

use super::report::Report;
use super::verdict::Outcome;
use super::*;

const ROOT: u64 = 1 << 32;
const A: u64 = 1 << 32 | 2;
const B: u64 = 1 << 32 | 3;

fn line(at: u64, kind: &str, node: u64, node2: u64, work: u64, tid: u64, flags: u8) -> String {
    format!(
        "{{\"at\":{at},\"kind\":\"{kind}\",\"node\":{node},\"node2\":{node2},\"work\":{work},\"tid\":{tid},\"unit\":{},\"flags\":{flags}}}",
        u8::from(kind == "start" || kind == "end")
    )
}

/// Two queues, weights 1 and 2, steps of 6 ms: the worked example of sched/policy_sfq.c, `rounds`
/// times. B wakes in the middle of A's first step.
fn example(rounds: u64) -> Vec<String> {
    const MS: u64 = 1_000_000;
    let mut lines = vec![
        format!("{{\"names\":{{\"{ROOT}\":\"cpu\",\"{A}\":\"cpu/a\",\"{B}\":\"cpu/b\"}}}}"),
        line(0, "start", 0, 0, 6 * MS, 0, 0),
        line(0, "node", ROOT, 0, 100, 1000, 0),
        line(0, "node", A, ROOT, 40, 1000, 1),
        line(0, "node", B, ROOT, 60, 2000, 1),
        line(0, "item", A, 0, 0, 10, 1),
        line(0, "start", 0, 0, 6 * MS, 0, 1),
        line(3 * MS, "wake", B, A, 3 * MS, 20, 0),
    ];
    let mut now = 0;
    let mut served = [0, 0];
    for _ in 0..rounds {
        for (node, tid) in [(A, 10), (B, 20), (B, 20)] {
            now += 6 * MS;
            served[usize::from(node == B)] += 6 * MS;
            lines.push(line(now, "settle", node, 0, 6 * MS, tid, 1));
        }
    }
    lines.extend([
        line(now, "end", 0, 0, 6 * MS, 0, 0),
        line(now, "node", ROOT, 0, 100 + served[0] + served[1], 1000, 0),
        line(now, "node", A, ROOT, 40 + served[0], 1000, 1),
        line(now, "node", B, ROOT, 60 + served[1], 2000, 1),
        line(now, "end", 0, 0, 6 * MS, 0, 1),
        "{\"lost\":0}".to_owned(),
    ]);
    lines
}

fn judged(lines: &[String]) -> Report {
    let taken = raw::parse(&(lines.join("\n") + "\n")).unwrap();
    report::report(&taken.books(1_000_000), &taken.names, taken.lost, 1_000_000)
}

fn outcomes(report: &Report) -> Vec<(Outcome, bool)> {
    report.nodes.iter().map(|row| (row.verdict.outcome, row.counted)).collect()
}

#[test]
fn a_right_trace_holds() {
    let report = judged(&example(10));
    assert_eq!(report.doubt, None);
    assert_eq!(
        outcomes(&report),
        [(Outcome::Unclear, true), (Outcome::Holds, true), (Outcome::Holds, true)]
    );
    assert!(!report.broken());
    let a = &report.nodes[1];
    assert_eq!(
        (a.path.as_str(), a.service_ns, a.steps, a.runnable_ns),
        ("cpu/a", 60_000_000, 10, 180_000_000)
    );
    // 6/1 + 6/2 ms, and never more than 6 ms apart.
    assert_eq!(a.verdict.bound_ns, Some(9_000_001));
    assert_eq!(a.verdict.worst_ns, Some(6_000_000));
    assert_eq!(report.nodes[2].intervals, [(3_000_000, 180_000_000)]);
}

/// One text of the trace replaced; what must be said of it.
#[test]
fn falsified_traces_are_rejected() {
    let right = example(10);
    // B's steps given to A: the shares are wrong.
    let swapped: Vec<String> = right
        .iter()
        .map(|l| {
            if l.contains("settle") {
                l.replace(&format!("\"node\":{B},"), &format!("\"node\":{A},"))
                    .replace("\"tid\":20", "\"tid\":10")
            } else {
                l.clone()
            }
        })
        .collect();
    let report = judged(&swapped);
    assert!(report.broken());
    assert_eq!(report.nodes[1].verdict.outcome, Outcome::Broken);
    assert!(!report.nodes[1].counted && !report.nodes[2].counted && report.nodes[0].counted);

    // Four steps of B moved behind all others: the sums are right, an interval is not.
    let mut late = right.clone();
    let at: Vec<usize> = (0..late.len())
        .filter(|i| late[*i].contains(&format!("settle\",\"node\":{B},")))
        .take(4)
        .collect();
    let a: Vec<usize> = (0..late.len())
        .filter(|i| late[*i].contains(&format!("settle\",\"node\":{A},")))
        .skip(6)
        .collect();
    for (x, y) in at.into_iter().zip(a) {
        let (one, two) = (late[x].clone(), late[y].clone());
        let time = |l: &str| l.split(',').next().unwrap().to_owned();
        late[x] = two.replace(&time(&two), &time(&one));
        late[y] = one.replace(&time(&one), &time(&two));
    }
    let report = judged(&late);
    assert_eq!(outcomes(&report)[1], (Outcome::Broken, true));
    assert!(report.broken());

    // A step left out, a step longer: the counters say so.
    let settle = right.iter().position(|l| l.contains("settle")).unwrap();
    let mut short = right.clone();
    short.remove(settle);
    assert!(judged(&short).broken());
    let mut long = right.clone();
    long[settle] = long[settle].replace("\"work\":6000000", "\"work\":6000001");
    assert!(judged(&long).broken());

    // A thread that nobody woke; time that goes back; a lost record; an end without its list:
    // nothing can be said.
    for (from, to) in [
        ("\"kind\":\"wake\"", "\"kind\":\"forced\""),
        ("\"at\":18000000", "\"at\":1"),
        ("{\"lost\":0}", "{\"lost\":1}"),
    ] {
        let report = judged(&right.iter().map(|l| l.replace(from, to)).collect::<Vec<_>>());
        assert!(report.doubt.is_some(), "{from}");
        assert!(report.nodes.iter().all(|row| row.verdict.outcome == Outcome::Unclear));
    }
    let cut: Vec<String> = right
        .iter()
        .filter(|l| !(l.contains("\"end\"") && l.contains("\"flags\":1")))
        .cloned()
        .collect();
    assert!(judged(&cut).doubt.is_some());
}

/// The kernel ran a thread of B that the tree had not chosen: the record is counted at both ends,
/// and what it ran lies in a later step.
#[test]
fn a_forced_service_is_counted_and_no_break() {
    let mut lines = example(10);
    let at = lines.iter().rposition(|l| l.contains("settle")).unwrap();
    lines.insert(at, line(174_000_000, "forced", B, 0, 0, 20, 0));
    let end = |l: &String| {
        l.replace("\"tid\":0,\"unit\":1,\"flags\":1}", "\"tid\":1,\"unit\":1,\"flags\":1}")
    };
    let report = judged(
        &lines
            .iter()
            .map(|l| if l.contains("\"end\"") { end(l) } else { l.clone() })
            .collect::<Vec<_>>(),
    );
    assert_eq!((report.forced, &report.doubt), (1, &None));
    assert_eq!(
        outcomes(&report),
        [(Outcome::Unclear, true), (Outcome::Holds, true), (Outcome::Holds, true)]
    );
    // Recorded, and not counted: the records cannot be trusted.
    assert!(judged(&lines).doubt.is_some());
}

#[test]
fn what_the_theorem_does_not_cover_is_not_judged() {
    let change = |from: &str, to: &str| {
        judged(&example(10).iter().map(|l| l.replace(from, to)).collect::<Vec<_>>())
    };
    assert!(change("\"unit\":1", "\"unit\":2").nodes[1].verdict.what.contains("one CPU"));
    assert!(
        change("\"tid\":1000,\"unit\":0,\"flags\":1", "\"tid\":1000,\"unit\":0,\"flags\":3").nodes
            [1]
        .verdict
        .what
        .contains("cap")
    );
    assert!(change("\"tid\":2000", "\"tid\":0").nodes[2].verdict.what.contains("background"));
}

#[test]
fn a_file_that_is_no_trace_is_refused_by_line() {
    assert_eq!(raw::parse("{}").map(|_| ()).unwrap_err().0, 1);
    let mut lines = example(1);
    assert_eq!(
        raw::parse(&lines[..lines.len() - 1].join("\n")).map(|_| ()).unwrap_err().1,
        "its last line is missing"
    );
    lines[3] = lines[3].replace("node\"", "nodes\"");
    assert_eq!(raw::parse(&lines.join("\n")).map(|_| ()).unwrap_err().0, 4);
}

#[test]
fn inodes_are_ids() {
    assert_eq!(id_of(0x0102_0000_0007_0003), 7 << 32 | 3);
}

const MS: u64 = 1_000_000;
const Q0: u64 = 1 << 32 | 1;

fn node(id: u64, parent: u64, service: u64, weight: u64, flags: u8, alg: u8) -> String {
    line(0, "node", id, parent, service, weight, flags)
        .replace("\"unit\":0", &format!("\"unit\":{alg}"))
}

fn number(id: u64) -> u64 {
    id & 0xff
}

/// What happens: a step of so many ms in a queue, after which it goes on wanting or not; a wake-up
/// (of another than who is served, which has run so many ms of its step).
#[derive(Clone, Copy)]
enum Do {
    Step(u64, u64, bool),
    Wake(u64),
}

/// A trace of children (id, weight, priority, wants at the beginning) of a root with a policy; a
/// thread in each, whose number is the node's index.
fn story(
    policy: u8,
    own: u64,
    children: &[(u64, u64, u64, bool)],
    class: u8,
    params: &[String],
    told: &[Do],
) -> Vec<String> {
    let mut lines =
        vec![format!("{{\"names\":{{\"{ROOT}\":\"cpu\",\"{A}\":\"cpu/a\",\"{B}\":\"cpu/b\"}}}}")];
    let list = |served: &std::collections::BTreeMap<u64, u64>| {
        let total: u64 = served.values().sum();
        let mut lines = vec![node(ROOT, 0, total, 1000, 0, policy)];
        if policy != 0 {
            lines.push(line(0, "tune", ROOT, own, 4 * MS, 0, 0));
        }
        for (id, weight, priority, _) in children {
            let had = served.get(id).copied().unwrap_or(0);
            lines.push(node(*id, ROOT, had, *weight, 1, class));
            if policy != 0 {
                lines.push(line(0, "child", *id, 0, 0, *priority, 0));
            }
        }
        lines
    };
    let mut served = std::collections::BTreeMap::new();
    lines.push(line(0, "start", 0, 0, 4 * MS, 0, 0));
    lines.extend(list(&served));
    lines.extend_from_slice(params);
    for (id, .., wants) in children {
        if *wants {
            lines.push(line(0, "item", *id, 0, 0, number(*id), 0));
        }
    }
    lines.push(line(0, "start", 0, 0, 4 * MS, 0, 1));
    let mut now = 0;
    for event in told {
        match *event {
            Do::Step(id, ms, more) => {
                now += ms * MS;
                *served.entry(id).or_default() += ms * MS;
                lines.push(line(now, "settle", id, 0, ms * MS, number(id), u8::from(more)));
            }
            Do::Wake(id) => lines.push(line(now, "wake", id, 0, 0, number(id), 0)),
        }
    }
    let end: Vec<String> = std::iter::once(line(0, "end", 0, 0, 4 * MS, 0, 0))
        .chain(list(&served))
        .chain([line(0, "end", 0, 0, 4 * MS, 0, 1)])
        .map(|l| l.replace("\"at\":0,", &format!("\"at\":{now},")))
        .collect();
    lines.extend(end);
    lines.push("{\"lost\":0}".to_owned());
    lines
}

/// The verdict of `id` in a story, and whether anything is broken.
fn said(lines: &[String], path: &str) -> (Outcome, String, bool) {
    let report = judged(lines);
    assert_eq!(report.doubt, None);
    assert!(report.nodes.iter().all(|row| row.counted));
    let row = report.nodes.iter().find(|row| row.path == path).unwrap();
    let verdict = row.class_verdict.as_ref().unwrap_or(&row.verdict);
    (verdict.outcome, verdict.what.clone(), report.broken())
}

#[test]
fn eevdf_right_and_falsified() {
    let children = [(A, 1000, 50, true), (B, 2000, 50, true)];
    let right: Vec<Do> = [B, A, B].map(|id| Do::Step(id, 4, true)).repeat(20);
    let (outcome, what, broken) = said(&story(1, 0, &children, 0, &[], &right), "cpu/a");
    assert!(outcome == Outcome::Holds && what.starts_with("EV-1") && !broken, "{what}");
    // Six steps of B change places with six of A much later: all sums stay.
    let mut wrong = right.clone();
    let (mut early, mut late) = (0, wrong.len() - 1);
    for _ in 0..6 {
        while !matches!(wrong[early], Do::Step(B, ..)) {
            early += 1;
        }
        while !matches!(wrong[late], Do::Step(A, ..)) {
            late -= 1;
        }
        wrong.swap(early, late);
    }
    let (outcome, what, broken) = said(&story(1, 0, &children, 0, &[], &wrong), "cpu/a");
    assert!(outcome == Outcome::Broken && broken, "{what}");
    // Lags that cannot be; a scheduler that does not tell what is tuned.
    let lied: Vec<String> = story(1, 0, &children, 0, &[], &right)
        .iter()
        .map(|l| {
            if l.contains("child") {
                l.replace("\"work\":0", "\"work\":9000000").replace("\"flags\":0", "\"flags\":1")
            } else {
                l.clone()
            }
        })
        .collect();
    assert!(judged(&lied).doubt.is_some());
    let silent: Vec<String> = story(1, 0, &children, 0, &[], &right)
        .into_iter()
        .filter(|l| !l.contains("tune"))
        .collect();
    assert_eq!(judged(&silent).nodes[1].verdict.outcome, Outcome::Unclear);
}

#[test]
fn mtrls_right_and_falsified() {
    // Quotas of 10 and 30 of 40 ms. A sleeps in the middle of its quota, wakes, and is ahead.
    let children = [(A, 1000, 50, true), (B, 3000, 50, true)];
    let turn = |a: [u64; 2]| {
        let mut turn = vec![Do::Step(A, a[0], false)];
        turn.extend([Do::Step(B, 4, true), Do::Wake(A), Do::Step(A, a[1], true)]);
        turn.extend([4; 6].map(|ms| Do::Step(B, ms, true)));
        turn.push(Do::Step(B, 2, true));
        turn
    };
    let right: Vec<Do> = (0..10).flat_map(|_| turn([6, 4])).collect();
    let (outcome, what, broken) = said(&story(2, 40 * MS, &children, 0, &[], &right), "cpu/a");
    assert!(outcome == Outcome::Holds && what.starts_with("MTR-") && !broken, "{what}");
    // A is put to the rear when it wakes (weighted round robin): it waits for all of B's quota each
    // time, twice as long as it may.
    let wrr: Vec<Do> = (0..10)
        .flat_map(|_| {
            let mut turn = vec![Do::Step(A, 6, false), Do::Step(B, 4, true), Do::Wake(A)];
            turn.extend([4; 14].map(|ms| Do::Step(B, ms, true)));
            turn
        })
        .collect();
    let (outcome, what, broken) = said(&story(2, 40 * MS, &children, 0, &[], &wrr), "cpu/a");
    assert!(outcome == Outcome::Broken && broken, "{what}");
    // A loses a millisecond of each turn: cumulative, so MTR-1 or MTR-2 sees it, and no single wait
    // does.
    let thin: Vec<Do> = (0..100).flat_map(|_| turn([5, 2])).collect();
    let (outcome, what, broken) = said(&story(2, 40 * MS, &children, 0, &[], &thin), "cpu/a");
    assert!(outcome == Outcome::Broken && broken && what.starts_with("MTR-1"), "{what}");
}

#[test]
fn prio_right_and_falsified() {
    let children = [(A, 1000, 20, false), (B, 1000, 10, true)];
    let mut right = Vec::new();
    for _ in 0..5 {
        right.extend([
            Do::Step(B, 4, true),
            Do::Wake(A),
            Do::Step(A, 4, true),
            Do::Step(A, 3, false),
        ]);
    }
    let (outcome, what, broken) = said(&story(3, 0, &children, 0, &[], &right), "cpu/a");
    assert!(outcome == Outcome::Holds && what.starts_with("prio") && !broken, "{what}");
    assert_eq!(said(&story(3, 0, &children, 0, &[], &right), "cpu/b").0, Outcome::Unclear);
    // B goes on for three steps.
    let mut wrong = right.clone();
    wrong.splice(2..2, [4, 4, 4].map(|ms| Do::Step(B, ms, true)));
    let (outcome, what, broken) = said(&story(3, 0, &children, 0, &[], &wrong), "cpu/a");
    assert!(outcome == Outcome::Broken && broken, "{what}");
    // Two levels apart usage may do that.
    let near = [(A, 1000, 12, false), (B, 1000, 10, true)];
    assert_eq!(said(&story(3, 0, &near, 0, &[], &wrong), "cpu/a").0, Outcome::Unclear);
}

#[test]
fn edf_right_and_falsified() {
    // One queue of class edf (4): a thread of 10 ms each 40 ms, and a hog beside it in the queue.
    let children = [(Q0, 0, 50, false), (A, 1000, 50, true)];
    let params = [line(0, "param", 40 * MS, 0, 10 * MS, 7, 0), line(0, "server", 0, 0, 0, 7, 0)];
    // Each job waits for so many steps of the hog, which has the rest.
    let make = |waits: [u64; 8]| {
        let mut lines = story(0, 0, &children, 4, &params, &[]);
        let tail = lines.split_off(lines.iter().position(|l| l.contains("\"end\"")).unwrap());
        let mut now = 0;
        let step = |lines: &mut Vec<String>, now: u64, work: u64, tid: u64, more: u8| {
            lines.push(line(now, "settle", A, 0, work, tid, more));
            now
        };
        for (next, wait) in (1..).map(|k| k * 40 * MS).zip(waits) {
            lines.push(line(now, "wake", A, 0, 0, 7, 0));
            for _ in 0..wait {
                now = step(&mut lines, now + 4 * MS, 4 * MS, number(A), 1);
            }
            now = step(&mut lines, now + 10 * MS, 10 * MS, 7, 0);
            while now < next {
                let work = (4 * MS).min(next - now);
                now = step(&mut lines, now + work, work, number(A), 1);
            }
        }
        lines.extend(tail.iter().map(|l| {
            let l = l.replace("\"at\":0,", &format!("\"at\":{now},"));
            let counts = l.contains("\"kind\":\"node\"") && !l.contains(&format!("\"node\":{Q0},"));
            if counts { l.replace("\"work\":0", &format!("\"work\":{now}")) } else { l }
        }));
        lines
    };
    let (outcome, what, broken) = said(&make([0; 8]), "cpu/a");
    assert!(outcome == Outcome::Holds && !broken && what.contains("0 of"), "{what}");
    // Up to its deadline it may wait.
    let (outcome, what, _) = said(&make([0, 0, 0, 7, 0, 0, 0, 0]), "cpu/a");
    assert!(outcome == Outcome::Holds && what.contains("0 of"), "{what}");
    // 90 ms late although the queue is served all the time: the order's fault.
    let (outcome, what, broken) = said(&make([0, 0, 0, 0, 0, 0, 0, 30]), "cpu/a");
    assert!(outcome == Outcome::Broken && broken && what.contains("1 of"), "{what}");
}

#[test]
fn a_wake_up_says_no_more_than_is_charged() {
    // In the middle of each step of B, by the clock 0.1 ms more than it is charged.
    let mut wakes = example(20);
    let mut tid = 100;
    for at in (0..wakes.len()).rev() {
        let text = &wakes[at];
        if text.contains("\"settle\"") && text.contains(&format!("\"node\":{B},")) {
            let end: u64 = text[6..].split(',').next().unwrap().parse().unwrap();
            tid += 1;
            wakes.insert(at, line(end - 50_000, "wake", A, B, 6_100_000, tid, 0));
        }
    }
    let (with, without) = (judged(&wakes), judged(&example(20)));
    let verdict = |report: &Report| {
        let node = report.nodes.iter().find(|n| n.path == "cpu/b").unwrap();
        (node.verdict.outcome, node.verdict.worst_ns, node.verdict.bound_ns)
    };
    assert_eq!(verdict(&with), verdict(&without));
    assert_eq!(verdict(&with).0, Outcome::Holds);
}
