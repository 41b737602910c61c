// SPDX-License-Identifier: MIT OR Apache-2.0
//! What takes bytes from others, one function each. Nothing panics, and what is said below holds.
//! `crates/daemon/tests/corpora.rs` gives them every input that is kept in `corpus/`.

use reserv_daemon::fuse::proto;
use reserv_daemon::{control, engine, events};
use reserv_model::{
    Edit, Error, ErrorKind, Name, NodeId, NodePath, Ports, Prefix, Protocol, Request, ResourceKind, Tree,
};
use reserv_namespace::{
    Command, Named, Place, Read, Resource, Survey, View, lookup, parse_defaults, parse_write, render_read,
    resource_named,
};

/// What is done with an input.
pub(crate) type Target = fn(&[u8]);

/// By name.
pub(crate) const ALL: &[(&str, Target)] = &[
    ("files", files),
    ("config", config),
    ("control", control_line),
    ("netlink", netlink),
    ("requests", requests),
    ("journal", journal),
];

/// A refusal is one line that a person can read.
fn says_why(error: &Error) {
    assert!(!error.context.is_empty() && error.context.len() < 2000, "{error:?}");
    assert!(!error.context.chars().chain(error.hint.chars()).any(char::is_control), "{error:?}");
}

/// What is taken is taken again as it is shown, and means the same.
fn read_again<T>(text: &str)
where
    T: std::str::FromStr<Err = Error> + std::fmt::Display + PartialEq + std::fmt::Debug,
{
    match text.parse::<T>() {
        Ok(value) => assert_eq!(value.to_string().parse::<T>(), Ok(value), "{text:?}"),
        Err(e) => says_why(&e),
    }
}

/// Texts that are written to files of nodes, one after another: two bytes choose the node and the file,
/// a NUL ends the text. What is accepted leaves a tree that is sound and is accepted again as it reads.
fn files(data: &[u8]) {
    let Ok(name) = Name::new("cpu") else { return };
    let mut tree = Tree::new(name);
    for part in data.split(|byte| *byte == 0).take(40) {
        let [of, what, text @ ..] = part else { continue };
        let nodes: Vec<_> = tree.iter().map(|node| node.id).collect();
        let id = nodes[usize::from(*of) % nodes.len()];
        written(&mut tree, id, usize::from(*what), text);
        let trees = |r| (r == Resource::CPU).then_some(&tree);
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
        let directory = tree.get(id).map(Place::of_node).and_then(|_| {
            reserv_namespace::Ino::of_node(Resource::CPU, id, reserv_namespace::FileKind::SchedulerDir)
                .object()
        });
        if let Some(Err(e)) = directory.map(|directory| lookup(directory, text, trees)) {
            says_why(&e);
        }
    }
}

fn written(tree: &mut Tree, id: NodeId, what: usize, text: &[u8]) {
    let Some(node) = tree.get(id) else { return };
    let rows: Vec<_> = Place::of_node(node).files().collect();
    let row = rows[what % rows.len()];
    let command = match parse_write(row.file, id, text) {
        Ok(command) => command,
        Err(e) => return says_why(&e),
    };
    let requests = match command {
        Command::Edit(requests) => requests,
        Command::Access { node, change, .. } => vec![Request::SetAccess { node: node.into(), change }],
        Command::Tag { .. } => return,
    };
    let plan = match tree.plan(&requests) {
        Ok(plan) => plan,
        Err(e) => return says_why(&e),
    };
    assert!(tree.commit(&plan).is_ok(), "what was planned is done");
    if let Err(why) = tree.check() {
        panic!("{why:?}");
    }
    if !matches!(row.read, Read::Node(_)) {
        return;
    }
    let survey = Survey::default();
    let view = View { tree, node: id, survey: &survey, members: &[], kind: ResourceKind::Cpu, capacity: 0 };
    let Ok(read) = render_read(row.file, &view) else { panic!("what was written is read") };
    let Some(line) = read.lines().last() else { return };
    match parse_write(row.file, id, line.as_bytes()) {
        Ok(Command::Edit(again)) => match tree.plan(&again) {
            Ok(plan) => assert!(plan.edits().iter().all(|e| matches!(e, Edit::Reset { .. })), "{read:?}"),
            Err(e) => assert_eq!(e.kind, ErrorKind::Busy, "{read:?}: {e}"),
        },
        Ok(Command::Tag { .. } | Command::Access { .. }) => {}
        Err(e) => panic!("{read:?}: {e}"),
    }
}

/// The configuration's file. What is accepted is accepted again as it is saved.
fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match control::parse_config(text) {
        Ok(config) => {
            let Ok(saved) = toml::to_string(&config) else { panic!("it is saved: {config:?}") };
            match control::parse_config(&saved) {
                Ok(again) => assert_eq!(again, config, "{saved}"),
                Err(why) => panic!("{saved}: {why}"),
            }
        }
        Err(why) => assert!(!why.text.is_empty()),
    }
}

/// A line of the control socket.
fn control_line(data: &[u8]) {
    if let Err(why) = control::understands(data) {
        assert!(!why.text.is_empty());
    }
}

/// What the kernel answers and tells: rtnetlink, events of processes, events of devices.
fn netlink(data: &[u8]) {
    reserv_plane::net::understand(data);
    reserv_plane::disk::understand(data);
    let _ = events::split(data);
}

/// Requests of the kernel's for the name space.
fn requests(data: &[u8]) {
    if let Some(request) = proto::decode(data)
        && let proto::Op::BatchForget { pairs } = request.op
    {
        assert!(proto::forgets(pairs).count() * 16 <= data.len());
    }
}

/// A journal: frames, and what stands in them. The first byte chooses: the bytes as they stand, or in
/// good frames, for nothing finds the checksums of texts by chance.
fn journal(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let payloads = if first & 1 == 0 {
        let (payloads, end) = reserv_plane::journal::records(data);
        assert!(end <= data.len());
        payloads
    } else {
        data.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    };
    if let Err(why) = engine::understands(&payloads) {
        assert!(!why.text.is_empty());
    }
}
