// SPDX-License-Identifier: MIT OR Apache-2.0
//! `complete`: what a shell offers behind the words that are there, of what runs: names of nodes,
//! resources and containers. It says nothing where Reserv does not run, or does not answer soon.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::fs::Files;
use crate::path::{CONTAINERS, NodePath};

/// Who waits for a key to do something waits no longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// More names help nobody.
const NAMES_MAX: usize = 1000;

/// What is named at a place of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// A node of any resource, or a container.
    Node,
    /// A node of a resource of this kind; `None`: of any.
    Of(Option<&'static str>),
    /// What a node may be made in.
    Parent,
    /// A resource itself: of this kind, or any but the CPU.
    Resource(Option<&'static str>),
    Container,
    /// A network interface of this machine.
    Interface,
}

/// What the last of these words is the name of, if of anything that runs. They are those behind
/// `reserv`.
fn named(words: &[String]) -> Option<Named> {
    let (last, before) = words.split_last()?;
    let plain: Vec<&str> =
        before.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let (command, at) = (*plain.first()?, plain.len() - 1);
    if last.starts_with('-') || before.iter().any(|word| word == "--") {
        return None;
    }
    let option = before.last().map(String::as_str).filter(|word| word.starts_with('-'));
    match (command, option) {
        ("run", Some("--cpu")) => return Some(Named::Of(Some("cpu"))),
        ("run", Some("--net")) => return Some(Named::Of(Some("link"))),
        ("run", Some("--disk")) => return Some(Named::Of(Some("disk"))),
        ("run", Some("--on")) => return Some(Named::Of(None)),
        ("run", Some("--in")) => return Some(Named::Container),
        ("up", Some("--net")) => return Some(Named::Interface),
        // The value of another option; of those that have none, more names follow.
        (_, Some(word)) => {
            let alone = [
                "--json",
                "--drain",
                "--flush",
                "--fall",
                "--take-back",
                "--unload",
                "--sched",
                "--queue",
                "--csv",
                "--total",
                "--all",
                "-a",
                "--raw",
                "--container",
            ];
            if !alone.contains(&word) {
                return None;
            }
        }
        _ => {}
    }
    match (command, plain.get(1).copied(), at) {
        ("set", ..) if last.contains('=') => None,
        ("tree" | "top" | "stat" | "access", _, 0)
        | ("mv", _, 0 | 1)
        | ("set" | "rm" | "ps" | "trace", ..)
        | ("why", _, 1)
        | ("allow" | "deny", _, 2) => Some(Named::Node),
        ("tag", _, 0) => Some(Named::Of(None)),
        ("mk", ..) => Some(Named::Parent),
        ("usage", _, 0) => Some(Named::Container),
        ("down", ..) => Some(Named::Resource(None)),
        ("upgrade", ..) => Some(Named::Resource(Some("link"))),
        ("disk", Some("detach"), 1) => Some(Named::Resource(Some("disk"))),
        _ => None,
    }
}

/// Resources of a kind, by what `status` says of them.
fn resources(files: &dyn Files, kind: Option<&str>) -> Vec<NodePath> {
    let status = files.read("status").unwrap_or_default();
    let mut all = NodePath::resources(files);
    all.retain(|resource| {
        let line = |kind: &str| format!("{}.kind {kind}", resource.as_str());
        kind.is_none_or(|kind| status.lines().any(|told| told == line(kind)))
    });
    all
}

/// A node and all below it that begin like what is typed.
fn gather(files: &dyn Files, node: &str, typed: &str, found: &mut BTreeSet<String>) {
    let Ok(listing) = files.list(node) else { return };
    for name in listing.dirs {
        if found.len() >= NAMES_MAX {
            return;
        }
        let path = format!("{node}/{name}");
        // A node of the CPU is called without it, where that is no other resource.
        let short = path.strip_prefix("cpu/").unwrap_or(&path);
        let called = if typed.starts_with("cpu/") { path.as_str() } else { short };
        if called.starts_with(typed) {
            found.insert(called.to_owned());
        }
        if called.starts_with(typed) || typed.starts_with(&format!("{called}/")) {
            gather(files, &path, typed, found);
        }
    }
}

fn names(files: &dyn Files, what: Named, typed: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let of = match what {
        Named::Of(kind) => kind,
        _ => None,
    };
    if what != Named::Container {
        for resource in resources(files, of) {
            if resource.as_str().starts_with(typed) {
                found.insert(resource.as_str().to_owned());
            }
            gather(files, resource.as_str(), typed, &mut found);
        }
    }
    if matches!(what, Named::Node | Named::Container | Named::Parent) {
        found.insert(CONTAINERS.to_owned());
        gather(files, CONTAINERS, typed, &mut found);
    }
    match what {
        Named::Parent => {
            let scheduler = |name: &String| {
                let path = NodePath::parse(name, files.place());
                path.is_ok_and(|path| {
                    files.list(path.as_str()).is_ok_and(|all| {
                        path.as_str() == CONTAINERS || all.files.iter().any(|file| file == "mk")
                    })
                })
            };
            found = found.iter().filter(|name| scheduler(name)).map(|n| format!("{n}/")).collect();
        }
        // Of a resource itself nothing is tagged.
        Named::Of(_) => found.retain(|name| {
            let path = NodePath::parse(name, files.place());
            path.is_ok_and(|path| path.as_str().contains('/'))
        }),
        _ => {}
    }
    found
}

/// Those whose names a shell takes as they are: the kernel lets whoever may make an interface call
/// it `$(reboot)`, and bash puts what is offered into the line without quotes.
fn interfaces() -> BTreeSet<String> {
    let all = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    all.filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_plain(name))
        .collect()
}

fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn offered(words: &[String]) -> BTreeSet<String> {
    let Some(what) = named(words) else { return BTreeSet::new() };
    let typed = words.last().map(String::as_str).unwrap_or_default();
    let mut all = match what {
        Named::Interface => interfaces(),
        what => {
            let Ok(files) = crate::fs::open() else { return BTreeSet::new() };
            match what {
                Named::Resource(kind) => {
                    let mut all = resources(&*files, kind);
                    all.retain(|resource| resource.as_str() != "cpu");
                    all.iter().map(|resource| resource.as_str().to_owned()).collect()
                }
                what => names(&*files, what, typed),
            }
        }
    };
    all.retain(|name| name.starts_with(typed));
    all
}

/// A name on each line.
pub(crate) fn complete(words: Vec<String>) -> String {
    let (tell, hear) = channel();
    // Who waits for the driver of a resource is left behind.
    std::thread::spawn(move || tell.send(offered(&words)));
    let found = hear.recv_timeout(PATIENCE).unwrap_or_default();
    found.into_iter().map(|name| name + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str) -> Option<Named> {
        named(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_shell_takes_what_is_offered_as_it_is() {
        for name in ["eth0", "enp1s0.7", "br-1a", "wg_0"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["$(reboot)", "`id`", "a;id", "a&b", "a\u{1b}[2J", "é", "a'b"] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn names_stand_where_commands_take_them() {
        for (line, what) in [
            ("set ", Some(Named::Node)),
            ("--json set we", Some(Named::Node)),
            ("set web site2", Some(Named::Node)),
            ("set web share=3", None),
            ("set --thread ", None),
            ("rm --flush ", Some(Named::Node)),
            ("allow alice ", None),
            ("allow alice use we", Some(Named::Node)),
            ("why ", None),
            ("why 1 ", Some(Named::Node)),
            ("mk --share ", None),
            ("mk ", Some(Named::Parent)),
            ("run --net ", Some(Named::Of(Some("link")))),
            ("run --cpu web -- ", None),
            ("run --in ", Some(Named::Container)),
            ("up --net ", Some(Named::Interface)),
            ("down ", Some(Named::Resource(None))),
            ("disk ", None),
            ("disk detach ", Some(Named::Resource(Some("disk")))),
            ("tag web ", None),
            ("tag ", Some(Named::Of(None))),
            ("tree web ", None),
            ("s", None),
            ("save ", None),
        ] {
            assert_eq!(at(line), what, "{line:?}");
        }
    }
}
