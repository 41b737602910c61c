// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tree` and `stat`: what there is, on paper.

use crate::error::Error;
use crate::fs::{Files, explain, gone};
use crate::node::{Node, Stat};
use crate::paint::{BITS, Paint, amount, bar, cut, percent, rate_in, table};
use crate::path::NodePath;

const BAR: usize = 12;

/// Read a node for showing.
pub(crate) fn load(files: &dyn Files, path: &str) -> Result<Node, Error> {
    read(files, &NodePath::parse(path, files.place())?)
}

/// The same of a path that is understood already.
pub(crate) fn read(files: &dyn Files, path: &NodePath) -> Result<Node, Error> {
    Node::read(files, path).map_err(|e| explain(files, path, "cannot be read", "", &e))
}

/// Read every resource's tree, the CPU's first.
pub(crate) fn load_all(files: &dyn Files) -> Result<Vec<Node>, Error> {
    let mut found = Vec::new();
    for path in NodePath::resources(files) {
        match Node::read(files, &path) {
            Ok(node) => found.push(node),
            // It was taken down between the listing and the reading.
            Err(e) if gone(&e) && path.resource() != "cpu" => {}
            Err(e) => return Err(explain(files, &path, "cannot be read", "", &e)),
        }
    }
    Ok(found)
}

/// What goes first where a terminal is too narrow: the bar, which says what SHARE says, then what
/// `top` shows too.
const NARROW: [usize; 3] = [3, 5, 6];

/// The tree with weights and entitlements, one line per node; in a terminal of so many columns.
pub(crate) fn draw(root: &Node, paint: Paint, width: Option<usize>) -> String {
    let mut labels = Vec::new();
    label(root, "", "", "", &mut labels);
    let mut rows = vec![
        ["NODE", "WEIGHT", "SHARE", "", "NOW", "SERVICE", "RUNNABLE", "NOTES"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut nodes = Vec::new();
    root.each(&mut |node, _| nodes.push(node));
    for (label, node) in labels.iter().zip(&nodes) {
        rows.push(vec![
            label.clone(),
            node.weight.clone(),
            percent(node.entitled),
            bar(node.entitled, BAR),
            if node.effective > 0.0 { percent(node.effective) } else { "-".to_owned() },
            amount(node.stat.service()),
            node.stat.runnable().to_string(),
            node.notes(),
        ]);
    }
    let mut right = vec![false, true, true, false, true, true, true, false];
    let mut lines = table(&right, &rows);
    let wide = |lines: &[String]| lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    for (gone, column) in NARROW.into_iter().enumerate() {
        if width.is_none_or(|width| wide(&lines) <= width) {
            break;
        }
        right.remove(column - gone);
        for row in &mut rows {
            row.remove(column - gone);
        }
        lines = table(&right, &rows);
    }
    // Then the end of the notes.
    let lines: Vec<String> = lines.iter().map(|line| cut(line, width)).collect();
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let node = at.checked_sub(1).map(|at| nodes[at]);
        text.push_str(&match node {
            None => paint.bold(line),
            Some(node) => colour(line, node, paint),
        });
        text.push('\n');
    }
    text
}

/// Colours go on after the columns are aligned: escapes have no width.
fn colour(line: &str, node: &Node, paint: Paint) -> String {
    let bar = bar(node.entitled, BAR);
    let line = if bar.trim().is_empty() {
        line.to_owned()
    } else {
        line.replacen(&bar, &paint.bar(&bar), 1)
    };
    for word in ["throttled", "draining"] {
        if let Some(head) = line.strip_suffix(word) {
            return format!("{head}{}", paint.yellow(word));
        }
    }
    line
}

fn label(node: &Node, lead: &str, elbow: &str, below: &str, labels: &mut Vec<String>) {
    let name = if elbow.is_empty() { &node.path } else { &node.name };
    let slash = if node.kind == "scheduler" && !elbow.is_empty() { "/" } else { "" };
    labels.push(format!("{lead}{elbow}{name}{slash}"));
    let lead = format!("{lead}{below}");
    for (at, child) in node.children.iter().enumerate() {
        let last = at + 1 == node.children.len();
        let (elbow, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        label(child, &lead, elbow, below, labels);
    }
}

/// The counters of a node as `key value` lines, the way the file has them.
pub(crate) fn stat(files: &dyn Files, path: &str) -> Result<(String, Stat), Error> {
    let path = NodePath::parse(path, files.place())?;
    let text = files
        .read(&path.file("stat"))
        .map_err(|e| explain(files, &path, "its counters cannot be read", "", &e))?;
    let stat = Stat::parse(&text);
    Ok((text, stat))
}

/// The same lines, with what a number means behind it: parts as percentages, times and bytes in
/// units. Key and value stay the first two words, for programs.
pub(crate) fn readable(text: &str, stat: &Stat) -> String {
    let mut rows = Vec::new();
    for line in text.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let number = value.parse::<u64>();
        let unit = if stat.rate_unit() == BITS { BITS } else { "bytes" };
        #[expect(clippy::cast_precision_loss, reason = "printed with three digits")]
        let words = match (key.rsplit_once('_'), number) {
            (None, _) | (_, Ok(0) | Err(_)) => String::new(),
            (Some((_, "ppm")), Ok(n)) => percent(n as f64 / 1e6).trim_start().to_owned(),
            (Some(("minimum" | "guarantee", "ns")), Ok(n)) => rate_in(n as f64, "ns"),
            (Some(("minimum" | "guarantee", "bytes")), Ok(n)) => rate_in(n as f64, unit),
            (Some((_, "ns")), Ok(n)) => amount((n, "ns")),
            (Some((_, "bytes")), Ok(n)) => amount((n, "bytes")),
            _ => String::new(),
        };
        rows.push(vec![line.to_owned(), words]);
    }
    table(&[false, false], &rows).join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::fake::Fake;

    #[test]
    fn counters_are_readable() {
        let said = |text: &str| readable(text, &Stat::parse(text));
        assert_eq!(
            said(
                "weight_share_ppm 250000\nservice_ns 1500000000\nqueued 0\nminimum_ns 250000000\nthrottled_ns 0\n"
            ),
            "\
weight_share_ppm 250000  25.0%
service_ns 1500000000    1.50s
queued 0
minimum_ns 250000000     250ms/s
throttled_ns 0
"
        );
        let link = said("service_bytes 30020908\nguarantee_bytes 1250000\ndropped 0\n");
        assert!(link.contains("30.0MB") && link.contains("10.0mbit"), "{link}");
        assert!(said("guarantee_bytes 1250000\n").contains("1.25MB/s"));
    }

    #[test]
    fn a_tree_is_drawn_aligned() {
        let fake = Fake::new();
        fake.put("cpu/stat", "weight_share_ppm 1000000\neffective_share_ppm 1000000");
        fake.put("cpu/q0/share", "25 0");
        fake.put("cpu/q0/stat", "weight_share_ppm 250000");
        fake.node("cpu/web", true);
        fake.put("cpu/web/share", "75 0");
        fake.put("cpu/web/stat", "weight_share_ppm 750000\neffective_share_ppm 1000000");
        fake.node("cpu/web/site1", false);
        fake.put("cpu/web/site1/share", "1 0");
        fake.put("cpu/web/site1/cap", "250ms/s");
        fake.put(
            "cpu/web/site1/stat",
            "weight_share_ppm 750000\neffective_share_ppm 1000000\nservice_ns 1500000000\nrunnable 3\nthrottled 1",
        );
        let node = load(&fake, "cpu").unwrap();
        let text = draw(&node, Paint::none(), Some(84));
        assert!(text.lines().all(|line| line.chars().count() <= 84), "{text}");
        for word in ["NOW", "SERVICE", "cap 250ms/s, throttled"] {
            assert!(text.contains(word) && !text.contains('█'), "{text}");
        }
        let text = draw(&node, Paint::none(), Some(40));
        assert!(text.contains("SHARE") && !text.contains("SERVICE"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 40) && text.contains('…'),
            "{text}"
        );
        let text = draw(&node, Paint::none(), None);
        assert_eq!(
            text,
            "\
NODE         WEIGHT   SHARE                   NOW  SERVICE  RUNNABLE  NOTES
cpu               1  100.0%  ████████████  100.0%        0         0  sfq
├─ q0            25   25.0%  ███                -        0         0  ts
└─ web/          75   75.0%  █████████     100.0%        0         0  sfq
   └─ site1       1   75.0%  █████████     100.0%    1.50s         3  ts, cap 250ms/s, throttled
"
        );
    }
}
