// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests in words, for `up` to print.

use reserv_model::{Kind, NodeRef, Request, Tree, show_bytes, show_cap};

fn named(tree: &Tree, node: &NodeRef) -> String {
    let root = &tree.root().name;
    match node {
        NodeRef::Id(id) => tree.shown(*id),
        NodeRef::Path(path) if path.is_root() => root.to_string(),
        NodeRef::Path(path) => format!("{root}/{path}"),
        NodeRef::Child(parent, name) => format!("{}/{name}", tree.shown(*parent)),
    }
}

/// A request in words, for `up` to print.
pub(crate) fn describe(tree: &Tree, request: &Request) -> String {
    let at = |node: &NodeRef| named(tree, node);
    let old = |node: &NodeRef| match node {
        NodeRef::Id(id) => tree.get(*id),
        NodeRef::Path(path) => tree.resolve(path).ok().and_then(|id| tree.get(id)),
        NodeRef::Child(parent, name) => tree.child(*parent, name).and_then(|id| tree.get(id)),
    };
    match request {
        Request::Create { parent, name, kind, share } => {
            let name = name.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
            let kind = match kind.or(tree.personality(), tree.resource()) {
                Kind::Scheduler(policy) => format!("scheduler {policy}"),
                Kind::Queue(class) => format!("queue {class}"),
            };
            let share = share.map_or_else(String::new, |s| format!(", share {s}"));
            format!("create {}/{name}: {kind}{share}", at(parent))
        }
        Request::Delete { node, .. } => format!("delete {}", at(node)),
        Request::Active { node } => format!("keep {}", at(node)),
        Request::SetShare { node, share } => {
            let before = old(node).map_or_else(String::new, |n| format!(" (was {})", n.share()));
            format!("set {} share {share}{before}", at(node))
        }
        Request::SetCap { node, cap } => {
            let before =
                old(node).map_or_else(String::new, |n| format!(" (was {})", show_cap(n.cap)));
            format!("set {} cap {}{before}", at(node), show_cap(*cap))
        }
        Request::SetClass { node, class } => format!("set {} class {class}", at(node)),
        Request::SetPolicy { node, policy } => format!("set {} policy {policy}", at(node)),
        Request::SetPersonality { personality } => {
            format!(
                "set {} personality {personality} (was {})",
                tree.root().name,
                tree.personality()
            )
        }
        Request::SetTune { node, change } => {
            let words: Vec<String> = change
                .iter()
                .map(|(key, value)| {
                    format!(
                        "{} {}",
                        key.word(),
                        value.map_or_else(|| "default".into(), |v| key.show(v))
                    )
                })
                .collect();
            format!("set {} tune {}", at(node), words.join(" "))
        }
        Request::SetLimit { node, members_max, bytes_max: 0 } => {
            format!("set {} members_max {members_max}", at(node))
        }
        Request::SetLimit { node, members_max, bytes_max } => {
            let bytes_max = show_bytes(*bytes_max);
            format!("set {} members_max {members_max} bytes_max {bytes_max}", at(node))
        }
        Request::ResetCounters { node } => format!("reset {}", at(node)),
        Request::SetGc { node, gc } => format!("set {} gc {}", at(node), u8::from(*gc)),
        Request::SetAccess { node, change } => format!("set {} access: {change}", at(node)),
        Request::PutBackAccess { lists } => format!("put back {} access lists", lists.len()),
        Request::Rename { node, name } => format!("rename {} to {name}", at(node)),
        Request::Move { node, parent, name } => {
            let name = name.as_ref().map_or_else(String::new, |n| format!(" as {n}"));
            format!("move {} into {}{name}", at(node), at(parent))
        }
    }
}
