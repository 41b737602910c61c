// SPDX-License-Identifier: MIT OR Apache-2.0
//! The difference between two configurations, as `up` prints it: `+` made, `~` changed, `-`
//! deleted.

use std::collections::BTreeMap;

use reserv_model::{
    Config, ContainerConfig, Kind, Memory, Name, NodeConfig, NodeKind, NodePath, Rate,
    ResourceConfig, Rule, RulePlace, Source, Weight, same_cap, show_bytes, show_cap, tune_text,
};
use serde::Serialize;

use crate::paint::{Paint, table};

/// One line of the difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    /// `+`, `~` or `-`.
    pub(crate) mark: char,
    /// A node's path with the resource's name, `cpu` for the resource, or `rule N`.
    pub(crate) what: String,
    /// What is made or changed, in words.
    pub(crate) how: String,
}

/// What changes from `now` to `wanted`.
pub(crate) fn difference(now: &Config, wanted: &Config) -> Vec<Line> {
    let mut lines = Vec::new();
    let empty = ResourceConfig::default();
    let new_rules = wanted.rules.as_slice();
    if let Some(wanted) = &wanted.cpu {
        let now = (now.cpu.as_ref().unwrap_or(&empty), &now.containers);
        resource("cpu", now, (wanted, new_rules), &mut lines);
    }
    for (name, wanted) in &wanted.count {
        let running = now.count.get(name);
        if let (None, Some(on)) = (running, &wanted.on) {
            lines.push(Line { mark: '+', what: name.to_string(), how: on.words() });
        }
        if let (Some(Some(was)), Some(on)) = (running.map(|running| &running.on), &wanted.on)
            && was.rate().map(Rate::bits) != on.rate().map(Rate::bits)
        {
            let shown = |on: &Source| on.rate().map_or_else(|| "none".into(), |r| r.to_string());
            let how = format!("rate {} → {}", shown(was), shown(on));
            lines.push(Line { mark: '~', what: name.to_string(), how });
        }
        let new = ResourceConfig { nodes: q0(wanted), ..ResourceConfig::default() };
        let now = (running.unwrap_or(&new), &now.containers);
        resource(name.as_str(), now, (wanted, new_rules), &mut lines);
    }
    containers(&now.containers, &wanted.containers, &mut lines);
    if let Some(memory) = wanted.backlog.filter(|_| wanted.backlog != now.backlog) {
        let old = now.backlog.unwrap_or(Memory::DEFAULT);
        lines.push(Line {
            mark: '~',
            what: "limits".into(),
            how: format!("backlog {old} → {memory}"),
        });
    }
    rules(&now.rules, &wanted.rules, &mut lines);
    lines
}

type Containers = BTreeMap<NodePath, ContainerConfig>;

/// Those that are not named stay.
fn containers(now: &Containers, wanted: &Containers, lines: &mut Vec<Line>) {
    for (path, new) in wanted {
        let what = format!("container/{path}");
        let Some(old) = now.get(path) else {
            lines.push(Line { mark: '+', what, how: new.words() });
            continue;
        };
        let mut how = Vec::new();
        if old.share != new.share {
            how.push(format!("share {} → {}", old.share, new.share));
        }
        if old.gc != new.gc {
            how.push(format!("gc {} → {}", old.gc, new.gc));
        }
        let entries = |access: &Option<Vec<_>>| access.clone().unwrap_or_default();
        if new.access.is_some() && entries(&old.access) != entries(&new.access) {
            how.push("access".to_owned());
        }
        if !how.is_empty() {
            lines.push(Line { mark: '~', what, how: how.join(", ") });
        }
    }
}

/// The q0 of a new tree, as far as the wanted one names it.
fn q0(wanted: &ResourceConfig) -> BTreeMap<NodePath, NodeConfig> {
    let q0 = wanted.nodes.keys().filter(|path| path.to_string() == "q0");
    q0.map(|path| (path.clone(), NodeConfig::new(NodeKind::Queue))).collect()
}

/// `owned`: containers, whose nodes stay where they are not named; so do queues that the wanted
/// rules make for users.
fn resource(
    name: &str,
    (now, owned): (&ResourceConfig, &Containers),
    (wanted, rules): (&ResourceConfig, &[Rule]),
    lines: &mut Vec<Line>,
) {
    let called = |path: &NodePath| format!("{name}/{path}");
    let mut line = |mark, what: String, how: String| lines.push(Line { mark, what, how });
    let pairs = [
        ("personality", now.personality.to_string(), wanted.personality.to_string()),
        ("policy", now.root_policy().to_string(), wanted.root_policy().to_string()),
        ("tune", tuned(&now.root_tune()), tuned(&wanted.root_tune())),
    ];
    for (what, old, new) in pairs.into_iter().filter(|(_, old, new)| old != new) {
        line('~', name.to_owned(), format!("{what} {old} → {new}"));
    }
    for (path, node) in now.nodes.iter().rev() {
        // q0 is always there: left out of a configuration, it keeps its defaults.
        let stays = path.to_string() == "q0" || path.is_within(owned);
        let goes_alone = Rule::any_makes(rules, name, (path, node));
        if !wanted.nodes.contains_key(path) && !stays && !goes_alone {
            line('-', called(path), String::new());
        }
    }
    for (path, node) in &wanted.nodes {
        match now.nodes.get(path) {
            None => line('+', called(path), describe(node, wanted.kind_of(path, node))),
            Some(old) => {
                let how = changes(old, node, [now.kind_of(path, old), wanted.kind_of(path, node)]);
                if !how.is_empty() {
                    line('~', called(path), how);
                }
            }
        }
    }
    let q0 = now.nodes.iter().find(|(path, _)| path.to_string() == "q0");
    if let Some((path, old)) = q0.filter(|(path, _)| !wanted.nodes.contains_key(*path)) {
        let new = NodeConfig::new(old.kind);
        let how = changes(old, &new, [now.kind_of(path, old), wanted.kind_of(path, &new)]);
        if !how.is_empty() {
            line('~', called(path), how);
        }
    }
}

fn tuned(tune: &reserv_model::Tune) -> String {
    if tune.is_empty() { "default".to_owned() } else { tune_text(tune) }
}

fn discipline(kind: Kind) -> String {
    match kind {
        Kind::Scheduler(policy) => format!("policy {policy}"),
        Kind::Queue(class) => format!("class {class}"),
    }
}

fn share(node: &NodeConfig) -> String {
    let share = node.share;
    if share.minimum.0 == 0 { share.part() } else { share.to_string() }
}

fn describe(node: &NodeConfig, kind: Kind) -> String {
    let mut words = vec![format!("share {}", share(node))];
    if node.share.fixed.is_none() && node.share.weight == Weight::BACKGROUND {
        words.push("(background)".to_owned());
    }
    words.push(discipline(kind));
    if !node.tune.is_empty() {
        words.push(format!("tune {}", tune_text(&node.tune)));
    }
    if node.cap.is_some() {
        words.push(format!("cap {}", show_cap(node.cap)));
    }
    if node.members_max > 0 {
        words.push(format!("members_max {}", node.members_max));
    }
    if node.bytes_max > 0 {
        words.push(format!("bytes_max {}", show_bytes(node.bytes_max)));
    }
    if !node.access.is_empty() {
        words.push(format!("access of {}", node.access.len()));
    }
    if node.gc {
        words.push("gc".to_owned());
    }
    words.join(" ")
}

fn changes(old: &NodeConfig, new: &NodeConfig, kinds: [Kind; 2]) -> String {
    let mut words = Vec::new();
    let mut change = |what: &str, old: String, new: String| {
        if old != new {
            words.push(format!("{what} {old} → {new}"));
        }
    };
    change("kind", kinds[0].word().to_owned(), kinds[1].word().to_owned());
    // As many bits as bytes are no change.
    let told = |node: &NodeConfig, same: bool| if same { String::new() } else { share(node) };
    let same = old.share.is_as(&new.share);
    change("share", told(old, same), told(new, same));
    if old.kind == new.kind {
        let (old, new) = (discipline(kinds[0]), discipline(kinds[1]));
        let what = old.split(' ').next().unwrap_or_default().to_owned();
        let value = |text: &str| text.rsplit(' ').next().unwrap_or_default().to_owned();
        change(&what, value(&old), value(&new));
    }
    change("tune", tuned(&old.tune), tuned(&new.tune));
    if !same_cap(old.cap, new.cap) {
        change("cap", show_cap(old.cap), show_cap(new.cap));
    }
    change("members_max", old.members_max.to_string(), new.members_max.to_string());
    change("bytes_max", show_bytes(old.bytes_max), show_bytes(new.bytes_max));
    let list = |node: &NodeConfig| {
        node.access.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    change("access", format!("[{}]", list(old)), format!("[{}]", list(new)));
    change("gc", u8::from(old.gc).to_string(), u8::from(new.gc).to_string());
    words.join(", ")
}

fn rules(now: &[Rule], wanted: &[Rule], lines: &mut Vec<Line>) {
    for number in 0..now.len().max(wanted.len()) {
        let what = format!("rule {}", number + 1);
        let line = match (now.get(number), wanted.get(number)) {
            (None, Some(rule)) => Line { mark: '+', what, how: words(rule) },
            (Some(_), None) => Line { mark: '-', what, how: String::new() },
            (Some(old), Some(new)) if old != new => {
                Line { mark: '~', what, how: format!("{} → {}", words(old), words(new)) }
            }
            _ => continue,
        };
        lines.push(line);
    }
}

fn words(rule: &Rule) -> String {
    let json = serde_json::to_value(&rule.conditions).unwrap_or_default();
    let conditions: Vec<String> = json
        .as_object()
        .map(|map| {
            map.iter()
                .map(|(key, value)| {
                    format!(
                        "{key}={}",
                        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                    )
                })
                .collect()
        })
        .unwrap_or_default();
    let queue = |(name, place): (&Name, &RulePlace)| {
        if name.as_str() == "cpu" { place.to_string() } else { format!("{name}/{place}") }
    };
    let queues: Vec<String> = rule.queues.iter().map(queue).collect();
    format!("{} in {}", conditions.join(" "), queues.join(", "))
}

/// For people; empty when nothing changes. Nodes of the CPU are called by their paths alone, as
/// everywhere.
pub(crate) fn render(lines: &[Line], paint: Paint) -> String {
    let called = |what: &str| what.strip_prefix("cpu/").unwrap_or(what).to_owned();
    let rows: Vec<Vec<String>> =
        lines.iter().map(|line| vec![called(&line.what), line.how.clone()]).collect();
    let mut text = String::new();
    for (line, row) in lines.iter().zip(table(&[false, false], &rows)) {
        let whole = format!("{} {row}", line.mark);
        text.push_str(&match line.mark {
            '+' => paint.green(&whole),
            '-' => paint.red(&whole),
            _ => paint.yellow(&whole),
        });
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let config: Config = toml::from_str(text).unwrap();
        config.check().unwrap();
        config
    }

    const NOW: &str = r#"
        [cpu.nodes.q0]
        kind = "queue"
        share = 4
        [cpu.nodes.web]
        kind = "scheduler"
        [cpu.nodes."web/site1"]
        kind = "queue"
        [cpu.nodes."web/site2"]
        kind = "queue"
    "#;

    #[test]
    fn made_changed_and_deleted_nodes_are_printed() {
        let wanted = config(
            r#"
            [cpu.nodes.web]
            kind = "scheduler"
            share = 50
            [cpu.nodes."web/site1"]
            kind = "queue"
            class = "rr"
            cap = "1.5cpu"
            [cpu.nodes.backup]
            kind = "queue"
            share = 0
            [[rule]]
            match = { uid = "www-data", command = "php*" }
            cpu = "web/site1"
        "#,
        );
        let lines = difference(&config(NOW), &wanted);
        assert!(lines.iter().any(|line| line.what == "cpu/web/site1"), "{lines:?}");
        assert_eq!(
            render(&lines, Paint::stdout()),
            "\
- web/site2
+ backup     share 0 (background) class ts
~ web        share 100 → 50
~ web/site1  class ts → rr, cap none → 1.5cpu
~ q0         share 4 → 100
+ rule 1     command=php* uid=www-data in web/site1
"
        );
    }

    #[test]
    fn bits_and_bytes_of_one_amount_are_no_difference() {
        let of = |share: &str, cap: &str| {
            config(&format!(
                "[count.e0]\non = \"link:e0@100mbit\"\n[count.e0.nodes.a]\nkind = \"queue\"\nshare = \"{share}\"\ncap = \"{cap}\"\n"
            ))
        };
        let now = of("3 2MB/s", "4MB/s");
        assert_eq!(difference(&now, &of("3 16mbit", "32mbit")), []);
        assert_eq!(
            difference(&now, &of("3 17mbit", "33mbit"))[0].how,
            "share 3 2MB/s → 3 17mbit, cap 4MB/s → 33mbit"
        );
    }

    #[test]
    fn bytes_are_told_in_units() {
        let of = |limit: &str| {
            config(&format!(
                "[count.e0]\non = \"link:e0@100mbit\"\n[count.e0.nodes.a]\nkind = \"queue\"\n{limit}"
            ))
        };
        let [none, some] = [of(""), of("bytes_max = 300000\n")];
        assert_eq!(difference(&none, &some)[0].how, "bytes_max 0 → 300kB");
        assert_eq!(
            difference(&some, &of("bytes_max = \"1MiB\"\n"))[0].how,
            "bytes_max 300kB → 1MiB"
        );
        let made = difference(&config("[count.e0]\non = \"link:e0@100mbit\"\n"), &some);
        assert!(made[0].how.ends_with("bytes_max 300kB"), "{made:?}");
        let saved = toml::to_string(&some).unwrap();
        assert!(saved.contains("bytes_max = \"300kB\"\n"), "{saved}");
        for (bad, why) in [
            ("\"3q\"", "is not a number of bytes"),
            ("-1", "-1"),
            ("\"5000MiB\"", "less than 4GiB"),
        ] {
            let text = format!(
                "[count.e0]\non = \"link:e0@100mbit\"\n[count.e0.nodes.a]\nkind = \"queue\"\nbytes_max = {bad}\n"
            );
            let error = toml::from_str::<Config>(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn equal_configurations_differ_in_nothing() {
        assert!(difference(&config(NOW), &config(NOW)).is_empty());
        assert!(difference(&Config::default(), &Config::default()).is_empty());
        assert!(
            difference(&config(NOW), &Config::default()).is_empty(),
            "an absent cpu is not touched"
        );
    }
}
