// SPDX-License-Identifier: MIT OR Apache-2.0
//! What takes bytes from others, one function each. Nothing panics, and what is said below holds.
//! `crates/daemon/tests/corpora.rs` gives them every input that is kept in `corpus/`.

#[path = "written.rs"]
mod written;

use reserv_daemon::fuse::proto;
use reserv_daemon::{control, engine, events};
use reserv_model::{Name, Tree};
use reserv_namespace::{FileKind, Ino, Place, Resource, lookup, parse_listen};

use written::{said, says_why, written};

/// What is done with an input.
pub(crate) type Target = fn(&[u8]);

/// By name.
pub(crate) const ALL: &[(&str, Target)] = &[
    ("files", files),
    ("config", config),
    ("control", control_line),
    ("listen", listen),
    ("netlink", netlink),
    ("requests", requests),
    ("journal", journal),
];

/// Texts that are written to files of nodes, one after another: two bytes choose the node and the
/// file, a NUL ends the text. What is accepted leaves a tree that is sound and is accepted again as
/// it reads.
pub(crate) fn files(data: &[u8]) {
    let Ok(name) = Name::new("cpu") else { return };
    let mut tree = Tree::new(name);
    for part in data.split(|byte| *byte == 0).take(40) {
        let [of, what, text @ ..] = part else { continue };
        let nodes: Vec<_> = tree.iter().map(|node| node.id).collect();
        let id = nodes[usize::from(*of) % nodes.len()];
        let Some(place) = tree.get(id).map(Place::of_node) else { continue };
        let rows: Vec<_> = place.files().collect();
        written(&mut tree, rows[usize::from(*what) % rows.len()], id, text);
        said(&tree, text);
        let trees = |r| (r == Resource::CPU).then_some(&tree);
        let directory = Ino::of_node(Resource::CPU, id, FileKind::SchedulerDir).object();
        if let Some(Err(e)) = directory.map(|directory| lookup(directory, text, trees)) {
            says_why(&e);
        }
    }
}

/// What is written to a process's `listen`. What is accepted is accepted again as it reads.
pub(crate) fn listen(data: &[u8]) {
    match parse_listen(data) {
        Ok((fd, listen)) => {
            let said = format!("{fd} {listen}");
            match parse_listen(said.as_bytes()) {
                Ok(again) => assert_eq!(again, (fd, listen), "{said}"),
                Err(why) => panic!("{said}: {why}"),
            }
        }
        Err(why) => says_why(&why),
    }
}

/// The configuration's file. What is accepted is accepted again as it is saved.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match control::parse_config(text) {
        Ok(config) => {
            let Ok(saved) = toml::to_string(&reserv_model::Written::from(&config)) else {
                panic!("it is saved: {config:?}")
            };
            match control::parse_config(&saved) {
                Ok(again) => assert_eq!(again, config, "{saved}"),
                Err(why) => panic!("{saved}: {why}"),
            }
        }
        Err(why) => assert!(!why.text.is_empty()),
    }
}

/// A line of the control socket.
pub(crate) fn control_line(data: &[u8]) {
    if let Err(why) = control::understands(data) {
        assert!(!why.text.is_empty());
    }
}

/// What the kernel answers and tells: rtnetlink, events of processes, events of devices.
pub(crate) fn netlink(data: &[u8]) {
    reserv_plane::net::understand(data);
    reserv_plane::disk::understand(data);
    let _ = events::split(data);
}

/// Requests of the kernel's for the name space.
pub(crate) fn requests(data: &[u8]) {
    if let Some(request) = proto::decode(data)
        && let proto::Op::BatchForget { pairs } = request.op
    {
        assert!(proto::forgets(pairs).count() * 16 <= data.len());
    }
}

/// A journal: frames, and what stands in them. The first byte chooses: the bytes as they stand, or
/// in good frames, for nothing finds the checksums of texts by chance.
pub(crate) fn journal(data: &[u8]) {
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
