// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node as the commands see it: its files, read.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use crate::fs::{Files, gone};
use crate::path::NodePath;

/// A node and what is below it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Node {
    /// Path without the mount point: `cpu/web/site1`.
    pub path: String,
    /// Last name.
    pub name: String,
    /// `scheduler` or `queue`.
    pub kind: &'static str,
    /// Its weight as written: `24`, `=25%`.
    pub weight: String,
    /// Its minimum as written; `0` if none.
    pub minimum: String,
    /// Policy or class.
    pub discipline: String,
    /// `none` or the cap as written.
    pub cap: String,
    /// The part of the resource that it is entitled to while everyone competes, 0 to 1.
    pub entitled: f64,
    /// The part that it is entitled to now, given who wants; 0 when it does not want itself.
    pub effective: f64,
    /// Counters: every `key value` line of `stat`.
    pub stat: Stat,
    /// In the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Node>,
}

/// The lines of a `stat` file.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Stat(pub BTreeMap<String, serde_json::Value>);

impl Stat {
    /// From `key value` lines; numbers stay numbers.
    pub(crate) fn parse(text: &str) -> Self {
        Self(
            text.lines()
                .filter_map(|line| line.split_once(char::is_whitespace))
                .map(|(key, value)| {
                    let value = value.trim();
                    let json = match (value.parse::<u64>(), value.parse::<f64>()) {
                        (Ok(n), _) => n.into(),
                        (_, Ok(x)) if x.is_finite() => x.into(),
                        _ => value.into(),
                    };
                    (key.to_owned(), json)
                })
                .collect(),
        )
    }

    /// A counter; 0 when the driver does not have it.
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.0.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    /// Parts per million as a fraction.
    fn ppm(&self, key: &str) -> f64 {
        u32::try_from(self.number(key)).map_or(1.0, f64::from) / 1e6
    }

    /// Service received, and its unit: `ns` of CPU time, or `bytes`.
    pub(crate) fn service(&self) -> (u64, &str) {
        let found = self.0.keys().find_map(|key| Some((key, key.strip_prefix("service_")?)));
        found.map_or((0, "ns"), |(key, unit)| (self.number(key), unit))
    }

    /// The unit in which people write its rates.
    pub(crate) fn rate_unit(&self) -> &str {
        // Links alone drop.
        if self.0.contains_key("dropped") { crate::paint::BITS } else { self.service().1 }
    }

    /// Threads that wait or run.
    pub(crate) fn runnable(&self) -> u64 {
        self.number("runnable")
    }

    /// Whether a cap holds the node back now.
    pub(crate) fn throttled(&self) -> bool {
        self.number("throttled") == 1
    }

    /// Whether the node is being drained.
    pub(crate) fn draining(&self) -> bool {
        self.0.get("state").and_then(|v| v.as_str()) == Some("draining")
    }
}

impl Node {
    /// Read a node and everything below it.
    pub(crate) fn read(files: &dyn Files, path: &NodePath) -> io::Result<Self> {
        let read = |name: &str| files.read(&path.file(name)).map(|text| text.trim_end().to_owned());
        let share = read("share")?;
        let mut words = share.split_whitespace();
        // Most nodes are queues; only scheduler nodes have something to list.
        let class = match read("class") {
            Ok(class) => Some(class),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => None,
            Err(e) => return Err(e),
        };
        let mut children = Vec::new();
        if class.is_none() {
            for name in files.list(path.as_str())?.dirs {
                match Self::read(files, &path.join(&name)) {
                    Ok(child) => children.push(child),
                    // Between the listing and the reading it went, or the right to see it.
                    Err(e) if gone(&e) || e.raw_os_error() == Some(libc::EACCES) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        let stat = Stat::parse(&read("stat").unwrap_or_default());
        Ok(Self {
            path: path.as_str().to_owned(),
            name: path.name().to_owned(),
            kind: if class.is_some() { "queue" } else { "scheduler" },
            weight: words.next().unwrap_or("0").to_owned(),
            minimum: words.next().unwrap_or("0").to_owned(),
            discipline: class.or_else(|| read("policy").ok()).unwrap_or_default(),
            cap: read("cap").unwrap_or_else(|_| "none".to_owned()),
            entitled: stat.ppm("weight_share_ppm"),
            effective: stat.ppm("effective_share_ppm"),
            stat,
            children,
        })
    }

    /// This node and everything below it, parents first, with the depth.
    pub(crate) fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a Self, usize)) {
        fn go<'a>(node: &'a Node, depth: usize, visit: &mut dyn FnMut(&'a Node, usize)) {
            visit(node, depth);
            for child in &node.children {
                go(child, depth + 1, visit);
            }
        }
        go(self, 0, visit);
    }

    /// What distinguishes it, in words: class or policy, cap, background, draining.
    pub(crate) fn notes(&self) -> String {
        let mut notes = vec![self.discipline.clone()];
        if self.cap != "none" && !self.cap.is_empty() {
            notes.push(format!("cap {}", self.cap));
        }
        if self.minimum != "0" {
            // A resource's is what there is of it.
            notes.push(if self.path.contains('/') {
                format!("min {}", self.minimum)
            } else {
                format!("{} in all", self.minimum)
            });
        }
        // A fixed share is no weight.
        if self.weight == "0" {
            notes.push("background".to_owned());
        }
        if self.stat.throttled() {
            notes.push("throttled".to_owned());
        }
        if self.stat.number("dropped") > 0 {
            notes.push(format!("{} dropped", self.stat.number("dropped")));
        }
        if self.stat.draining() {
            notes.push("draining".to_owned());
        }
        notes.retain(|note| !note.is_empty());
        notes.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::fake::Fake;

    fn path(text: &str) -> NodePath {
        NodePath::parse(text, &crate::fs::fake::place()).unwrap()
    }

    #[test]
    fn a_node_is_its_files() {
        let fake = Fake::new();
        fake.put("cpu/q0/share", "4 0");
        fake.put("cpu/q0/stat", "weight_share_ppm 250000\neffective_share_ppm 1000000\nrunnable 2");
        fake.node("cpu/web", true);
        fake.node("cpu/web/logs", false);
        let root = Node::read(&fake, &path("cpu")).unwrap();
        let mut found = Vec::new();
        root.each(&mut |node, depth| found.push((node.name.clone(), depth, node.kind)));
        assert_eq!(
            found,
            [
                ("cpu".to_owned(), 0, "scheduler"),
                ("q0".to_owned(), 1, "queue"),
                ("web".to_owned(), 1, "scheduler"),
                ("logs".to_owned(), 2, "queue"),
            ]
        );
        let q0 = &root.children[0];
        assert_eq!((q0.weight.as_str(), q0.stat.runnable()), ("4", 2));
        assert!((q0.entitled - 0.25).abs() < 1e-9 && (q0.effective - 1.0).abs() < 1e-9);
        assert_eq!(root.children[1].children[0].notes(), "ts, background");
    }

    #[test]
    fn stat_lines_keep_their_types() {
        let stat = Stat::parse("service_ns 12\nshare 0.25\nthrottled 1\nstate draining\nodd\n\n");
        assert_eq!(stat.service(), (12, "ns"));
        assert_eq!(Stat::parse("service_bytes 7\n").service(), (7, "bytes"));
        assert_eq!(stat.0["share"], 0.25);
        assert!(stat.throttled() && stat.draining());
        assert_eq!(stat.0.len(), 4);
    }

    #[test]
    fn a_missing_node_is_an_error() {
        let error = Node::read(&Fake::new(), &path("nix")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }
}
