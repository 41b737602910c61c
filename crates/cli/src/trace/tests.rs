// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace made by hand, right and falsified.

use super::report::{Outcome, Report};
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

/// Two queues, weights 1 and 2, steps of 6 ms: the worked example of sched/policy_sfq.c, `rounds` times. B wakes in the middle of A's
/// first step.
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
    let mut books = Books::new(1_000_000);
    for event in &taken.events {
        books.event(event);
    }
    report::report(&books, &taken.names, taken.lost, 1_000_000)
}

fn outcomes(report: &Report) -> Vec<(Outcome, bool)> {
    report.nodes.iter().map(|row| (row.verdict.outcome, row.counted)).collect()
}

#[test]
fn a_right_trace_holds() {
    let report = judged(&example(10));
    assert_eq!(report.doubt, None);
    assert_eq!(outcomes(&report), [(Outcome::Unclear, true), (Outcome::Holds, true), (Outcome::Holds, true)]);
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
    let at: Vec<usize> =
        (0..late.len()).filter(|i| late[*i].contains(&format!("settle\",\"node\":{B},"))).take(4).collect();
    let a: Vec<usize> =
        (0..late.len()).filter(|i| late[*i].contains(&format!("settle\",\"node\":{A},"))).skip(6).collect();
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

    // A thread that nobody woke; time that goes back; a lost record; an end without its list: nothing can be said.
    for (from, to) in [
        ("\"kind\":\"wake\"", "\"kind\":\"forced\""),
        ("\"at\":18000000", "\"at\":1"),
        ("{\"lost\":0}", "{\"lost\":1}"),
    ] {
        let report = judged(&right.iter().map(|l| l.replace(from, to)).collect::<Vec<_>>());
        assert!(report.doubt.is_some(), "{from}");
        assert!(report.nodes.iter().all(|row| row.verdict.outcome == Outcome::Unclear));
    }
    let cut: Vec<String> =
        right.iter().filter(|l| !(l.contains("\"end\"") && l.contains("\"flags\":1"))).cloned().collect();
    assert!(judged(&cut).doubt.is_some());
}

/// The kernel ran a thread of B that the tree had not chosen: the record is counted at both ends, and what it ran lies in a later step.
#[test]
fn a_forced_service_is_counted_and_no_break() {
    let mut lines = example(10);
    let at = lines.iter().rposition(|l| l.contains("settle")).unwrap();
    lines.insert(at, line(174_000_000, "forced", B, 0, 0, 20, 0));
    let end =
        |l: &String| l.replace("\"tid\":0,\"unit\":1,\"flags\":1}", "\"tid\":1,\"unit\":1,\"flags\":1}");
    let report = judged(
        &lines.iter().map(|l| if l.contains("\"end\"") { end(l) } else { l.clone() }).collect::<Vec<_>>(),
    );
    assert_eq!((report.forced, &report.doubt), (1, &None));
    assert_eq!(outcomes(&report), [(Outcome::Unclear, true), (Outcome::Holds, true), (Outcome::Holds, true)]);
    // Recorded, and not counted: the records cannot be trusted.
    assert!(judged(&lines).doubt.is_some());
}

#[test]
fn what_the_theorem_does_not_cover_is_not_judged() {
    let change =
        |from: &str, to: &str| judged(&example(10).iter().map(|l| l.replace(from, to)).collect::<Vec<_>>());
    assert!(change("\"unit\":1", "\"unit\":2").nodes[1].verdict.what.contains("one CPU"));
    assert!(
        change("\"tid\":1000,\"unit\":0,\"flags\":1", "\"tid\":1000,\"unit\":0,\"flags\":3").nodes[1]
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
