// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds of every text that is written to a file of a node, or names something: for the
//! fuzzer's target `files`, and for the random texts of `crates/namespace/tests/fuzz.rs`.

use reserv_model::{
    Edit, Error, ErrorKind, Name, NodeId, NodePath, Ports, Prefix, Protocol, Request, ResourceKind,
    Tree,
};
use reserv_namespace::{
    Command, Entry, Named, Read, Resource, Survey, View, parse_defaults, parse_write, render_read,
    resource_named,
};

/// What became of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    Refused,
    Accepted,
    /// Accepted, and the tree was changed.
    Planned,
}

/// A refusal is one line that a person can read.
pub(crate) fn says_why(error: &Error) {
    assert!(!error.context.is_empty() && error.context.len() < 2000, "{error:?}");
    assert!(!error.context.chars().chain(error.hint.chars()).any(char::is_control), "{error:?}");
}

/// A word of a rule about packets: what is taken is taken again as it is shown, and means the same.
fn read_again<T>(text: &str)
where
    T: std::str::FromStr<Err = Error> + std::fmt::Display + PartialEq + std::fmt::Debug,
{
    match text.parse::<T>() {
        Ok(value) => assert_eq!(value.to_string().parse::<T>(), Ok(value), "{text:?}"),
        Err(e) => says_why(&e),
    }
}

/// Writes a text into one file of one node, and reads it back.
pub(crate) fn written(tree: &mut Tree, row: &Entry, id: NodeId, text: &[u8]) -> Became {
    let refused = |e: &Error, became| {
        says_why(e);
        became
    };
    let command = match parse_write(row.file, id, text) {
        Ok(command) => command,
        Err(e) => return refused(&e, Became::Refused),
    };
    let requests = match command {
        Command::Edit(requests) => requests,
        Command::Access { node, change, .. } => {
            vec![Request::SetAccess { node: node.into(), change }]
        }
        Command::Tag { .. } => return Became::Accepted,
    };
    let plan = match tree.plan(&requests) {
        Ok(plan) => plan,
        Err(e) => return refused(&e, Became::Accepted),
    };
    assert!(tree.commit(&plan).is_ok(), "what was planned is done");
    if let Err(why) = tree.check() {
        panic!("{why:?}");
    }
    if !matches!(row.read, Read::Node(_)) {
        return Became::Planned;
    }
    let survey = Survey::default();
    let view = View {
        tree,
        node: id,
        survey: &survey,
        members: &[],
        dropped: &[],
        kind: ResourceKind::Cpu,
        capacity: 0,
    };
    let Ok(read) = render_read(row.file, &view) else { panic!("what was written is read") };
    // A list without entries has no line.
    let Some(line) = read.lines().last() else { return Became::Planned };
    match parse_write(row.file, id, line.as_bytes()) {
        Ok(Command::Edit(again)) => match tree.plan(&again) {
            Ok(plan) => {
                assert!(plan.edits().iter().all(|e| matches!(e, Edit::Reset { .. })), "{read:?}");
            }
            Err(e) => assert_eq!(e.kind, ErrorKind::Busy, "{read:?}: {e}"),
        },
        Ok(Command::Tag { .. } | Command::Access { .. }) => {}
        Err(e) => panic!("{read:?}: {e}"),
    }
    Became::Planned
}

/// The same text as a list of queues, a name, and the words of rules.
pub(crate) fn said(tree: &Tree, text: &[u8]) {
    let trees = |r| (r == Resource::CPU).then_some(tree);
    let find = |name: &str, path: &NodePath| -> Result<Named, Error> {
        Ok(resource_named(name, trees).and_then(|r| Some((r, trees(r)?.resolve(path)))))
    };
    match parse_defaults(text, "/reserv", find) {
        Ok(tags) => assert!(tags.iter().all(|(_, id)| tree.get(*id).is_some())),
        Err(e) => says_why(&e),
    }
    if let Ok(name) = std::str::from_utf8(text) {
        let _ = (Name::new(name), name.parse::<NodePath>(), resource_named(name, trees));
        read_again::<Ports>(name);
        read_again::<Prefix>(name);
        read_again::<Protocol>(name);
    }
}
