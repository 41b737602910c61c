// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node as the commands see it: its files, read.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use crate::fs::Files;
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

    /// A fraction, when there.
    pub(crate) fn fraction(&self, key: &str) -> Option<f64> {
        self.0.get(key).and_then(serde_json::Value::as_f64)
    }

    /// CPU time received.
    pub(crate) fn service_ns(&self) -> u64 {
        self.number("service_ns")
    }

    /// Threads that wait or run.
    pub(crate) fn runnable(&self) -> u64 {
        self.number("queued") + self.number("running")
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
        let mut node = Self::read_below(files, path)?;
        let whole = place_of(files, path);
        node.entitle(whole);
        Ok(node)
    }

    fn read_below(files: &dyn Files, path: &NodePath) -> io::Result<Self> {
        let listing = files.list(path.as_str())?;
        let has = |name: &str| listing.files.iter().any(|file| file == name);
        let read = |name: &str| files.read(&path.file(name)).map(|text| text.trim_end().to_owned());
        let share = read("share")?;
        let mut words = share.split_whitespace();
        let scheduler = has("policy");
        let mut children = Vec::new();
        for name in &listing.dirs {
            match Self::read_below(files, &path.join(name)) {
                Ok(child) => children.push(child),
                // It went between the listing and the reading.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Self {
            path: path.as_str().to_owned(),
            name: path.name().to_owned(),
            kind: if scheduler { "scheduler" } else { "queue" },
            weight: words.next().unwrap_or("0").to_owned(),
            minimum: words.next().unwrap_or("0").to_owned(),
            discipline: read(if scheduler { "policy" } else { "class" }).unwrap_or_default(),
            cap: read("cap").unwrap_or_else(|_| "none".to_owned()),
            entitled: 0.0,
            stat: Stat::parse(&read("stat").unwrap_or_default()),
            children,
        })
    }

    /// Divide `whole` by the weights of the children, downwards.
    fn entitle(&mut self, whole: f64) {
        self.entitled = whole;
        let total: f64 = self.children.iter().map(|child| weight_of(&child.weight)).sum();
        for child in &mut self.children {
            let part = if total > 0.0 { weight_of(&child.weight) / total } else { 0.0 };
            child.entitle(whole * part);
        }
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
        if weight_of(&self.weight) == 0.0 {
            notes.push("background".to_owned());
        }
        if self.stat.throttled() {
            notes.push("throttled".to_owned());
        }
        if self.stat.draining() {
            notes.push("draining".to_owned());
        }
        notes.retain(|note| !note.is_empty());
        notes.join(", ")
    }
}

/// The part of the resource that the node is entitled to by the weights above it.
fn place_of(files: &dyn Files, path: &NodePath) -> f64 {
    let Some(parent) = path.parent() else { return 1.0 };
    let siblings = files.list(parent.as_str()).map(|l| l.dirs).unwrap_or_default();
    let mut total = 0.0;
    let mut own = 0.0;
    for name in siblings {
        let share = files.read(&parent.join(&name).file("share")).unwrap_or_default();
        let weight = weight_of(share.split_whitespace().next().unwrap_or("0"));
        total += weight;
        if name == path.name() {
            own = weight;
        }
    }
    let above = place_of(files, &parent);
    if total > 0.0 { above * own / total } else { 0.0 }
}

fn weight_of(word: &str) -> f64 {
    word.parse().ok().filter(|w: &f64| w.is_finite()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::fake::Fake;
    use std::path::Path;

    fn path(text: &str) -> NodePath {
        NodePath::parse(text, Path::new("/reserv")).unwrap()
    }

    pub(crate) fn hosting() -> Fake {
        let fake = Fake::new();
        fake.put("cpu/q0/share", "4 0");
        fake.node("cpu/web", true);
        fake.put("cpu/web/share", "12 0");
        for (name, weight) in [("site1", "1 0"), ("site2", "3 0"), ("logs", "0 0")] {
            fake.node(&format!("cpu/web/{name}"), false);
            fake.put(&format!("cpu/web/{name}/share"), weight);
        }
        fake
    }

    #[test]
    fn entitlement_is_the_product_of_shares_on_the_way() {
        let fake = hosting();
        let root = Node::read(&fake, &path("cpu")).unwrap();
        let mut found = Vec::new();
        root.each(&mut |node, depth| found.push((node.name.clone(), depth, node.entitled)));
        assert_eq!(
            found,
            [
                ("cpu".to_owned(), 0, 1.0),
                ("q0".to_owned(), 1, 0.25),
                ("web".to_owned(), 1, 0.75),
                ("logs".to_owned(), 2, 0.0),
                ("site1".to_owned(), 2, 0.1875),
                ("site2".to_owned(), 2, 0.5625),
            ]
        );
        let alone = Node::read(&fake, &path("web/site2")).unwrap();
        assert!((alone.entitled - 0.5625).abs() < 1e-9);
        assert!(alone.children.is_empty());
        assert!(root.children[1].children[0].notes().contains("background"));
    }

    #[test]
    fn stat_lines_keep_their_types() {
        let stat = Stat::parse("service_ns 12\nshare 0.25\nthrottled 1\nstate draining\nodd\n\n");
        assert_eq!(stat.service_ns(), 12);
        assert_eq!(stat.fraction("share"), Some(0.25));
        assert!(stat.throttled() && stat.draining());
        assert_eq!(stat.0.len(), 4);
    }

    #[test]
    fn a_missing_node_is_an_error() {
        assert_eq!(Node::read(&hosting(), &path("nix")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
