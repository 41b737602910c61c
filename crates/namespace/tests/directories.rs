// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listings, lookups and attributes agree with each other, with the table and with the tree.

#[path = "../../model/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;

use proptest::prelude::*;
use reserv_model::*;
use reserv_namespace::*;

const MOUNT: Object = Object::Mount(FileKind::MountDir);

/// A resource by its name, and what is there by a path.
fn by<'t>(
    trees: impl Fn(Resource) -> Option<&'t Tree>,
) -> impl Fn(&str, &NodePath) -> Result<Named, Error> {
    move |name, path| {
        Ok(resource_named(name, &trees).and_then(|r| Some((r, trees(r)?.resolve(path)))))
    }
}

fn node_dir(tree: &Tree, id: NodeId) -> Object {
    let queue = tree.get(id).unwrap().kind.is_queue();
    let file = if queue { FileKind::QueueDir } else { FileKind::SchedulerDir };
    Object::Node { resource: Resource::CPU, id, file }
}

/// All directories that there are.
fn directories(tree: &Tree) -> Vec<Object> {
    let fixed = [
        MOUNT,
        Object::Mount(FileKind::ProcDir),
        Object::Process { pid: 1, file: FileKind::ProcessDir },
    ];
    fixed.into_iter().chain(tree.iter().map(|n| node_dir(tree, n.id))).collect()
}

proptest! {
    #![proptest_config(common::config(4))]

    #[test]
    fn what_is_listed_is_found(all in common::steps(60)) {
        let tree = common::grown(&all);
        let trees = |r| (r == Resource::CPU).then_some(&tree);
        for dir in directories(&tree) {
            let items = list(dir, trees).unwrap();
            let names: BTreeSet<_> = items.iter().map(|i| &i.name).collect();
            prop_assert_eq!(names.len(), items.len(), "no name twice");
            prop_assert!(items.is_sorted_by(|a, b| a.cookie < b.cookie), "cookies grow");
            prop_assert!(items[0].cookie > 0);
            let mut directories = 0;
            let of_node = matches!(dir, Object::Node { .. });
            for item in &items {
                let found = lookup(dir, item.name.as_bytes(), trees).unwrap();
                prop_assert_eq!(Ino::from(found), item.ino);
                let attributes = attributes(found, trees).unwrap();
                prop_assert_eq!(attributes.file_type, item.file_type);
                prop_assert_eq!(attributes.mode & 0o170_000, item.file_type.mode());
                prop_assert!(attributes.nlink > 0);
                directories += u32::from(item.file_type == FileType::Directory);
            }
            let links = if of_node { 1 } else { 2 + directories };
            prop_assert_eq!(attributes(dir, trees).unwrap().nlink, links);
            // And nothing else is found.
            for name in common::NAMES.iter().chain(&RESERVED_NAMES).chain(&["", ".", "..", "cpu", "x y"]) {
                let found = lookup(dir, name.as_bytes(), trees).is_ok();
                prop_assert_eq!(found, items.iter().any(|i| i.name == **name), "{} in {:?}", name, dir);
            }
        }
    }

    #[test]
    fn a_listing_in_pieces_survives_changes(all in common::steps(60), more in common::steps(30), stop in 0..40_usize) {
        let mut tree = common::grown(&all);
        let dir = node_dir(&tree, NodeId::ROOT);
        let before = list(dir, |r| (r == Resource::CPU).then_some(&tree)).unwrap();
        let stop = stop.min(before.len());
        let seen = &before[..stop];
        for step in more {
            if let Ok(plan) = tree.plan(&[common::request(&tree, step)]) {
                tree.commit(&plan).unwrap();
            }
        }
        let after = list(dir, |r| (r == Resource::CPU).then_some(&tree)).unwrap();
        let cookie = seen.last().map_or(0, |i| i.cookie);
        let rest: Vec<_> = after.iter().filter(|i| i.cookie > cookie).collect();
        // Whatever was there all the time is seen exactly once.
        for item in before.iter().filter(|i| after.iter().any(|a| a.ino == i.ino)) {
            let times = seen.iter().filter(|i| i.ino == item.ino).count()
                + rest.iter().filter(|i| i.ino == item.ino).count();
            prop_assert_eq!(times, 1, "{}", item.name);
        }
    }
}

#[test]
fn the_table_is_consistent() {
    for row in TABLE {
        for place in row.places {
            let twins =
                TABLE.iter().filter(|e| e.name == row.name && e.places.contains(place)).count();
            assert_eq!(twins, 1, "{} at {place:?}", row.name);
            assert_eq!(place.file(row.name).unwrap().file, row.file);
            assert_eq!(entry(row.file, *place).unwrap().name, row.name);
        }
        // A file that nodes carry must not be a node's name.
        if row.file.is_of_node() {
            assert!(RESERVED_NAMES.contains(&row.name), "{} is reserved", row.name);
        }
        assert_eq!(row.mode & !0o777, 0);
        let opens = matches!(row.file, FileKind::NewQueue | FileKind::NewSched);
        let file = FileType::of(row.file) == FileType::Regular;
        if file && !opens {
            assert_eq!(row.mode & 0o400 != 0, !matches!(row.read, Read::No), "{}", row.name);
        }
        // What may be written is root's to write, and what nobody can write is not writable.
        assert_eq!(row.mode & 0o022 & if file { 0o777 } else { 0 }, 0, "{}", row.name);
        if row.mode & 0o200 != 0 && file && !opens {
            assert!(!matches!(row.write, Write::No), "{}", row.name);
        }
    }
    for kind in FileKind::ALL {
        let directory = FileType::of(*kind) == FileType::Directory;
        let rows = TABLE.iter().filter(|e| e.file == *kind).count();
        assert!(rows > 0 || directory, "{kind:?} has a row");
    }
}

#[test]
fn the_layout_of_the_design() {
    let tree = Tree::new(Name::new("cpu").unwrap());
    let names = |dir| {
        list(dir, |r| (r == Resource::CPU).then_some(&tree))
            .unwrap()
            .into_iter()
            .map(|i| i.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(MOUNT), ["proc", "self", "status", "container", "cpu"]);
    let root = node_dir(&tree, NodeId::ROOT);
    assert_eq!(
        names(root),
        [
            "share", "shares", "policy", "newqueue", "newsched", "mk", "stat", "cap", "tune", "gc",
            "access", "q0"
        ]
    );
    let q0 = node_dir(&tree, NodeId::Q0);
    assert_eq!(
        names(q0),
        [
            "share", "stat", "cap", "tune", "gc", "access", "backlog", "dropped", "class",
            "members", "state"
        ]
    );
    assert_eq!(
        names(Object::Process { pid: 7, file: FileKind::ProcessDir }),
        ["default", "cdefault", "fds", "listen", "domain"]
    );
    let mode = |dir, name: &str| {
        attributes(
            lookup(dir, name.as_bytes(), |r| (r == Resource::CPU).then_some(&tree)).unwrap(),
            |r| (r == Resource::CPU).then_some(&tree),
        )
        .unwrap()
        .mode
    };
    assert_eq!(mode(root, "share"), 0o100_444, "a resource's own share is read-only");
    assert_eq!(mode(q0, "share"), 0o100_644);
    assert_eq!(mode(root, "newqueue"), 0o100_600);
    assert_eq!(mode(root, "q0"), 0o040_755);
    assert_eq!(mode(MOUNT, "self"), 0o120_777);
    assert_eq!(FileType::Link.d_type(), 10);
}

#[test]
fn what_is_not_there() {
    let tree = Tree::new(Name::new("cpu").unwrap());
    let trees = |r| (r == Resource::CPU).then_some(&tree);
    let errno = |dir, name: &[u8]| lookup(dir, name, trees).unwrap_err().errno();
    let root = node_dir(&tree, NodeId::ROOT);
    let q0 = node_dir(&tree, NodeId::Q0);
    assert_eq!(errno(root, b"q1"), Errno::ENOENT);
    assert_eq!(errno(root, b"\xff\xfe"), Errno::ENOENT);
    assert_eq!(errno(root, &[b'x'; 300]), Errno::ENOENT);
    assert_eq!(errno(root, b"backlog"), Errno::ENOENT);
    assert_eq!(errno(q0, b"policy"), Errno::ENOENT);
    assert_eq!(errno(q0, b"q0"), Errno::ENOENT);
    let share = lookup(q0, b"share", trees).unwrap();
    assert_eq!(errno(share, b"x"), Errno::ENOTDIR);
    assert!(list(share, trees).is_err());
    let stale = Object::Node {
        resource: Resource::CPU,
        id: NodeId { index: 1, generation: 2 },
        file: FileKind::QueueDir,
    };
    assert_eq!(errno(stale, b"share"), Errno::ESTALE);
    assert_eq!(list(stale, trees).unwrap_err().errno(), Errno::ESTALE);
    assert_eq!(attributes(stale, trees).unwrap_err().errno(), Errno::ESTALE);
    // An inode number that no lookup gives: a class of a scheduler node.
    let strange = Object::Node { resource: Resource::CPU, id: NodeId::ROOT, file: FileKind::Class };
    assert_eq!(attributes(strange, trees).unwrap_err().errno(), Errno::ENOENT);
    // A resource that is not running.
    assert_eq!(lookup(MOUNT, b"cpu", |_| None).unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(list(MOUNT, |_| None).unwrap().len(), 4);
    // Processes are numbers.
    let proc = Object::Mount(FileKind::ProcDir);
    for bad in ["0", "01", "-1", "+1", "x", "4194305", "99999999999999999999", "1 "] {
        assert_eq!(errno(proc, bad.as_bytes()), Errno::ENOENT, "{bad}");
    }
    for pid in [1, PID_MAX] {
        let object = Object::Process { pid, file: FileKind::ProcessDir };
        assert_eq!(lookup(proc, pid.to_string().as_bytes(), trees), Ok(object));
    }
    let processes: Vec<_> = list_processes(&[10, 9, 10]).into_iter().map(|i| i.name).collect();
    assert_eq!(processes, ["9", "10"]);
    assert!(list(proc, trees).unwrap().iter().all(|i| i.cookie < list_processes(&[1])[0].cookie));
}

#[test]
fn several_resources_stand_side_by_side() {
    let (cpu, disk) = (Tree::new(Name::new("cpu").unwrap()), Tree::new(Name::new("disk").unwrap()));
    let three = Resource::new(3).unwrap();
    let trees = |r: Resource| {
        [(Resource::CPU, &cpu), (three, &disk)].into_iter().find(|(n, _)| *n == r).map(|(_, t)| t)
    };
    let names: Vec<String> = list(MOUNT, trees).unwrap().into_iter().map(|i| i.name).collect();
    assert_eq!(names, ["proc", "self", "status", "container", "cpu", "disk"]);
    assert_eq!(attributes(MOUNT, trees).unwrap().nlink, 6);
    let root = lookup(MOUNT, b"disk", trees).unwrap();
    assert_eq!(
        root,
        Object::Node { resource: three, id: NodeId::ROOT, file: FileKind::SchedulerDir }
    );
    assert_eq!(
        lookup(root, b"q0", trees).unwrap(),
        Object::Node { resource: three, id: NodeId::Q0, file: FileKind::QueueDir }
    );
    assert_eq!((resource_named("disk", trees), resource_named("vda", trees)), (Some(three), None));
    for (name, taken) in [
        ("cpu", true),
        ("disk", true),
        ("proc", true),
        ("self", true),
        ("container", true),
        ("vda", false),
    ] {
        assert_eq!(resource_name_taken(name, trees).is_some(), taken, "{name}");
    }
    // One queue of each in a list, in any order; what is read can be written.
    let text = render_defaults(
        "/reserv",
        &[
            (cpu.root().name.clone(), "q0".parse().unwrap()),
            (disk.root().name.clone(), "q0".parse().unwrap()),
        ],
    );
    assert_eq!(text, "/reserv/cpu/q0 /reserv/disk/q0\n");
    let wanted = vec![(Resource::CPU, NodeId::Q0), (three, NodeId::Q0)];
    assert_eq!(parse_defaults(text.as_bytes(), "/reserv", by(trees)), Ok(wanted));
    assert_eq!(parse_defaults(b"disk/q0", "/reserv", by(trees)), Ok(vec![(three, NodeId::Q0)]));
    assert!(parse_defaults(b"disk/q0 disk/q0", "/reserv", by(trees)).is_err());
}
