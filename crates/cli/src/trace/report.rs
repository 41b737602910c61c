// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace comes to: a row and a verdict for each node. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::books::{Books, Node, slot};
use super::fair::LAG_CLASS;
use super::verdict::{Outcome, Verdict, judge, judge_class};
use crate::paint::{Paint, duration, percent, table};

/// One node.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) path: String,
    pub(super) id: u64,
    pub(super) kind: &'static str,
    /// In thousandths.
    pub(super) weight_milli: u64,
    pub(super) service_ns: u64,
    /// Of `service_ns`, what kernel threads had under their floor, beside the tags.
    pub(super) floor_ns: u64,
    /// `service_ns`, without the floor, for a weight of one.
    pub(super) normalised_ns: u64,
    pub(super) steps: u64,
    pub(super) step_max_ns: u64,
    pub(super) runnable_ns: u64,
    /// From when to when it wanted service, ns from the beginning; the first thousand.
    pub(super) intervals: Vec<(u64, u64)>,
    pub(super) interval_count: u64,
    /// Farthest behind and ahead of the fluid share of its parent since it began to want, ns.
    pub(super) behind_max_ns: i64,
    pub(super) ahead_max_ns: i64,
    /// Lags just before and after each service: [from, how often], in classes of half a
    /// millisecond.
    pub(super) lag_histogram: Vec<(i64, u64)>,
    /// Service in each slice of the time.
    pub(super) series_ns: Vec<u64>,
    /// Lag (behind is positive) at the end of each slice.
    pub(super) lag_ns: Vec<i64>,
    /// Whether records and counters of the scheduler say the same.
    pub(super) counted: bool,
    pub(super) verdict: Verdict,
    /// Of its own class, where that promises something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) class_verdict: Option<Verdict>,
    #[serde(skip)]
    depth: usize,
}

/// A whole trace.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) duration_ns: u64,
    pub(super) slice_ns: u64,
    pub(super) cpus: u16,
    pub(super) quantum_ns: u64,
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) edits: u64,
    pub(super) forced: u64,
    pub(super) starved: u64,
    /// Records that contradict each other, and the first such.
    pub(super) doubts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) doubt: Option<String>,
    pub(super) nodes: Vec<Row>,
}

/// Why nothing at all can be said; `None`: it can.
fn doubtful(books: &Books, lost: u64) -> Option<String> {
    if lost > 0 {
        return Some(format!("{lost} records were lost"));
    }
    if let Some(first) = &books.doubts.first {
        return Some(format!("the records contradict each other ({first})"));
    }
    if !books.complete[0] || !books.complete[1] {
        return Some("the trace is cut off".into());
    }
    if books.resets > 0 {
        return Some("the scheduler was attached anew meanwhile".into());
    }
    None
}

fn counted(node: &Node) -> bool {
    match node.counter {
        [Some(from), Some(to)] if !node.gone => to.wrapping_sub(from) == node.work + node.floor,
        _ => node.gone,
    }
}

/// The rows in the order of the tree: parents first, siblings by name.
pub(super) fn report(
    books: &Books,
    names: &BTreeMap<u64, String>,
    lost: u64,
    slice: u64,
) -> Report {
    let doubt = doubtful(books, lost);
    let begin = books.begin.unwrap_or(0);
    let mut rows: Vec<Row> = books
        .nodes
        .iter()
        .map(|(id, node)| {
            let (ahead, behind) = books
                .groups
                .get(&node.parent)
                .and_then(|g| g.lags.get(id))
                .copied()
                .unwrap_or((0, 0));
            let path = names.get(id).cloned().unwrap_or_else(|| match slot(*id) {
                0 => "cpu".into(),
                1 => "cpu/q0".into(),
                index => format!("cpu/#{index}"),
            });
            Row {
                depth: path.matches('/').count(),
                path,
                id: *id,
                kind: if node.queue { "queue" } else { "scheduler" },
                weight_milli: node.weight,
                service_ns: node.work + node.floor,
                floor_ns: node.floor,
                normalised_ns: u64::try_from(
                    u128::from(node.work) * 1000 / u128::from(node.weight.max(1)),
                )
                .unwrap_or(u64::MAX),
                steps: node.steps,
                step_max_ns: node.step_max,
                runnable_ns: node.runnable_ns,
                intervals: node
                    .intervals
                    .iter()
                    .map(|(a, b)| (a.saturating_sub(begin), b.saturating_sub(begin)))
                    .collect(),
                interval_count: node.interval_count,
                behind_max_ns: behind,
                ahead_max_ns: -ahead,
                lag_histogram: books.groups.get(&node.parent).map_or_else(Vec::new, |g| {
                    g.histogram
                        .range((*id, i64::MIN)..=(*id, i64::MAX))
                        .map(|((_, class), n)| (class * LAG_CLASS, *n))
                        .collect()
                }),
                series_ns: node.series.clone(),
                lag_ns: node.lag_series.clone(),
                counted: counted(node),
                verdict: judge(books, names, *id, doubt.as_deref()),
                class_verdict: judge_class(books, *id, doubt.as_deref()),
            }
        })
        .collect();
    rows.sort_by(|a, b| a.path.split('/').cmp(b.path.split('/')));
    Report {
        duration_ns: books.end.saturating_sub(begin),
        slice_ns: slice,
        cpus: books.cpus,
        quantum_ns: books.quantum,
        events: books.events,
        lost,
        edits: books.edits,
        forced: books.forced,
        starved: books.starved[1].saturating_sub(books.starved[0]),
        doubts: books.doubts.count,
        doubt,
        nodes: rows,
    }
}

impl Report {
    /// Only these nodes and what is below them.
    pub(super) fn keep(&mut self, paths: &[String]) {
        if !paths.is_empty() {
            self.nodes.retain(|row| {
                paths.iter().any(|p| {
                    row.path == *p
                        || row.path.strip_prefix(p.as_str()).is_some_and(|r| r.starts_with('/'))
                })
            });
        }
    }

    /// Some bound is broken, or counters and records differ.
    pub(super) fn broken(&self) -> bool {
        self.nodes.iter().any(|row| {
            row.verdicts().any(|v| v.outcome == Outcome::Broken)
                || (self.doubt.is_none() && !row.counted)
        })
    }

    /// For people: a line and a picture for each node, then the verdicts.
    pub(super) fn draw(&self, paint: Paint) -> String {
        let mut rows = vec![
            [
                "NODE",
                "WEIGHT",
                "SERVICE",
                "OF ALL",
                "OVER TIME",
                "WANTED",
                "STEPS",
                "LONGEST",
                "BEHIND",
                "AHEAD",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for row in &self.nodes {
            let name = if row.depth == 0 {
                row.path.as_str()
            } else {
                row.path.rsplit('/').next().unwrap_or("")
            };
            #[expect(clippy::cast_precision_loss, reason = "printed with three digits")]
            let part = |x: u64| x as f64 / self.duration_ns.max(1) as f64;
            rows.push(vec![
                format!("{}{name}", "  ".repeat(row.depth)),
                format!("{}", row.weight_milli / 1000),
                duration(row.service_ns),
                percent(part(row.service_ns)),
                spark(&row.series_ns, self.slice_ns * u64::from(self.cpus), self.slices()),
                percent(part(row.runnable_ns)),
                row.steps.to_string(),
                milliseconds(row.step_max_ns),
                milliseconds(u64::try_from(row.behind_max_ns).unwrap_or(0)),
                milliseconds(u64::try_from(row.ahead_max_ns).unwrap_or(0)),
            ]);
        }
        let lines = table(&[false, true, true, true, false, true, true, true, true, true], &rows);
        let mut text = String::new();
        for (at, line) in lines.iter().enumerate() {
            text.push_str(&if at == 0 { paint.bold(line) } else { line.clone() });
            text.push('\n');
        }
        text.push('\n');
        for row in &self.nodes {
            for verdict in row.verdicts() {
                text.push_str(&row.sentence(verdict, paint));
                text.push('\n');
            }
        }
        for row in self.nodes.iter().filter(|row| self.doubt.is_none() && !row.counted) {
            let _ = writeln!(
                text,
                "{} {}: its counter and its records differ",
                paint.red("BROKEN"),
                row.path
            );
        }
        let _ = writeln!(
            text,
            "\n{} events in {}, {} lost; {} edits, {} services not chosen by the tree, {} for having waited too long; steps of {}",
            self.events,
            duration(self.duration_ns),
            self.lost,
            self.edits,
            self.forced,
            self.starved,
            milliseconds(self.quantum_ns),
        );
        text
    }

    fn slices(&self) -> usize {
        usize::try_from(self.duration_ns / self.slice_ns.max(1)).unwrap_or(0).max(1)
    }

    /// One line for each slice and node.
    pub(super) fn csv(&self) -> String {
        let mut text = String::from("time_ns,path,service_ns,normalised_ns,lag_ns\n");
        for row in &self.nodes {
            for at in 0..self.slices() {
                let service = row.series_ns.get(at).copied().unwrap_or(0);
                let _ = writeln!(
                    text,
                    "{},{},{service},{},{}",
                    u64::try_from(at).unwrap_or(0) * self.slice_ns,
                    row.path,
                    u128::from(service) * 1000 / u128::from(row.weight_milli.max(1)),
                    row.lag_ns.get(at).copied().unwrap_or(0),
                );
            }
        }
        text
    }
}

impl Row {
    fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        std::iter::once(&self.verdict).chain(&self.class_verdict)
    }

    fn sentence(&self, v: &Verdict, paint: Paint) -> String {
        let word = match v.outcome {
            Outcome::Holds => paint.green("HOLDS "),
            Outcome::Broken => paint.red("BROKEN"),
            Outcome::Unclear => paint.yellow("-     "),
        };
        match (&v.with, v.worst_ns, v.bound_ns) {
            (Some(with), Some(worst), Some(bound)) => format!(
                "{word} {}: {}: at most {} apart per weight, {} allowed (with {with}; {} compared)",
                self.path,
                v.what,
                fine(worst),
                fine(bound),
                v.compared
            ),
            (None, Some(worst), Some(bound)) => {
                format!(
                    "{word} {}: {}: at most {}, {} allowed",
                    self.path,
                    v.what,
                    fine(worst),
                    fine(bound)
                )
            }
            _ => format!("{word} {}: {}", self.path, v.what),
        }
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{:02}ms", ns / 1_000_000, ns / 10_000 % 100)
}

fn fine(ns: u64) -> String {
    if ns < 1_000_000 { format!("{}.{:03}us", ns / 1000, ns % 1000) } else { milliseconds(ns) }
}

/// A value for each slice as a bar of eight heights.
fn spark(series: &[u64], full: u64, slices: usize) -> String {
    const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const WIDTH: usize = 30;
    let width = slices.min(WIDTH);
    (0..width)
        .map(|at| {
            let (from, to) =
                (at * slices / width, ((at + 1) * slices / width).max(at * slices / width + 1));
            let sum: u64 = (from..to).map(|i| series.get(i).copied().unwrap_or(0)).sum();
            let all = full.saturating_mul(u64::try_from(to - from).unwrap_or(1)).max(1);
            HEIGHTS[usize::try_from((sum.saturating_mul(8)).div_ceil(all)).unwrap_or(8).min(8)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_values() {
        assert_eq!(spark(&[0, 1, 50, 100, 200], 100, 5), " ▁▄██");
        assert_eq!(spark(&[], 100, 3), "   ");
        assert_eq!(spark(&[100; 60], 100, 60).chars().count(), 30);
    }

    #[test]
    fn small_times_keep_their_digits() {
        assert_eq!(fine(1_234), "1.234us");
        assert_eq!(fine(12_340_000), "12.34ms");
    }
}
