// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups, listings and attributes, as a file system asks for them.

use reserv_model::{Error, ErrorKind, Kind, Name, Node, NodeId, Tree, quoted};

use crate::container::{CONTAINERS, TOP};
use crate::ino::{FileKind, Ino, Object, Resource};
use crate::table::{Place, entry};
use crate::write::PID_MAX;

/// Of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// `S_IFDIR`, `DT_DIR`
    Directory,
    /// `S_IFREG`, `DT_REG`
    Regular,
    /// `S_IFLNK`, `DT_LNK`
    Link,
}

impl FileType {
    /// Of a file's inode.
    pub const fn of(file: FileKind) -> Self {
        match file {
            FileKind::MountDir
            | FileKind::SchedulerDir
            | FileKind::QueueDir
            | FileKind::ProcDir
            | FileKind::ProcessDir => Self::Directory,
            FileKind::SelfLink => Self::Link,
            _ => Self::Regular,
        }
    }

    /// The bits of `st_mode`.
    pub const fn mode(self) -> u32 {
        match self {
            Self::Directory => 0o040_000,
            Self::Regular => 0o100_000,
            Self::Link => 0o120_000,
        }
    }

    /// `d_type` of a directory entry.
    pub const fn d_type(self) -> u32 {
        self.mode() >> 12
    }
}

/// What `stat` shows. Owner and group are root's; sizes are 0 (files are read directly); times are
/// the mount's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type.
    pub file_type: FileType,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Links. Of a node's directory always 1, as where directories are not counted: everybody may
    /// ask, and how many nodes are in it is told to who sees them.
    pub nlink: u32,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    /// In its directory.
    pub name: String,
    /// Of the entry.
    pub ino: Ino,
    /// Of the entry.
    pub file_type: FileType,
    /// Where a listing that stopped after this entry goes on. Depends on the entry alone and grows
    /// along the listing, so that nodes made or deleted meanwhile neither hide nor repeat others.
    pub cookie: u64,
}

/// Cookies of the directory's own files are below this, of nodes and processes above.
const NODE_COOKIE: u64 = 1 << 10;

impl Place {
    /// The place that a directory is; `None` for files.
    pub fn of(object: Object) -> Option<Self> {
        Some(match object {
            Object::Mount(FileKind::MountDir) => Self::Mount,
            Object::Mount(FileKind::ProcDir) => Self::Proc,
            Object::Process { file: FileKind::ProcessDir, .. } => Self::Process,
            Object::Node { file: FileKind::QueueDir, .. } => Self::Queue,
            Object::Node { file: FileKind::SchedulerDir, id: NodeId::ROOT, .. } => Self::Resource,
            Object::Node { file: FileKind::SchedulerDir, .. } => Self::Scheduler,
            _ => return None,
        })
    }

    /// The place that a node's directory is.
    pub fn of_node(node: &Node) -> Self {
        match node.kind {
            Kind::Queue(_) => Self::Queue,
            Kind::Scheduler(_) if node.id == NodeId::ROOT => Self::Resource,
            Kind::Scheduler(_) => Self::Scheduler,
        }
    }
}

/// The directory inode of a node.
fn dir_kind(node: &Node) -> FileKind {
    if node.kind.is_queue() { FileKind::QueueDir } else { FileKind::SchedulerDir }
}

/// The object of a file of the table in a directory.
fn in_directory(dir: Object, file: FileKind) -> Object {
    match dir {
        Object::Node { resource, id, .. } => Object::Node { resource, id, file },
        Object::Process { pid, .. } => Object::Process { pid, file },
        _ => Object::Mount(file),
    }
}

/// The running resource of this name.
pub fn resource_named<'t>(
    name: &str,
    trees: impl Fn(Resource) -> Option<&'t Tree>,
) -> Option<Resource> {
    Resource::all().find(|r| trees(*r).is_some_and(|tree| tree.root().name.as_str() == name))
}

/// Why a resource may not be called so; `None` if it may. The mount's own files and the resources
/// that run have their names.
pub fn resource_name_taken<'t>(
    name: &str,
    trees: impl Fn(Resource) -> Option<&'t Tree>,
) -> Option<&'static str> {
    if Place::Mount.file(name).is_some() || name == CONTAINERS {
        return Some("a file of the name space has this name");
    }
    if matches!(name, "match" | "receive" | "receive-burst") {
        return Some("it is a word of rules");
    }
    resource_named(name, trees).map(|_| "a resource of this name runs already")
}

/// What `name` is in a directory. `trees` gives a resource's tree, or `None` where the resource is
/// not running.
///
/// `newqueue` and `newsched` answer their plain inode; the daemon replaces it by a fresh one. Of
/// `proc/PID` only the number is checked; whether the process exists is the daemon's.
///
/// `NotScheduler` (`ENOTDIR`) when `dir` is no directory, `Stale` when its node is gone, else
/// `NotFound`.
pub fn lookup<'t>(
    dir: Object,
    name: &[u8],
    trees: impl Fn(Resource) -> Option<&'t Tree>,
) -> Result<Object, Error> {
    let missing = || {
        let shown = quoted(&String::from_utf8_lossy(name));
        Error::new(ErrorKind::NotFound, format!("no {shown} here"))
    };
    let Some(place) = Place::of(dir) else {
        return Err(Error::new(ErrorKind::NotScheduler, "not a directory"));
    };
    let name = std::str::from_utf8(name).map_err(|_| missing())?;
    if let Object::Node { resource, id, .. } = dir {
        trees(resource).ok_or_else(missing)?.node(id)?;
    }
    if let Some(row) = place.file(name) {
        return Ok(in_directory(dir, row.file));
    }
    match (place, dir) {
        (Place::Mount, _) if name == CONTAINERS => Ok(TOP),
        (Place::Mount, _) => {
            let resource = resource_named(name, &trees).ok_or_else(missing)?;
            Ok(Object::Node { resource, id: NodeId::ROOT, file: FileKind::SchedulerDir })
        }
        (Place::Proc, _) => {
            let canonical = name.bytes().all(|b| b.is_ascii_digit()) && !name.starts_with('0');
            let pid = name.parse().ok().filter(|pid| canonical && (1..=PID_MAX).contains(pid));
            Ok(Object::Process { pid: pid.ok_or_else(missing)?, file: FileKind::ProcessDir })
        }
        (Place::Resource | Place::Scheduler, Object::Node { resource, id, .. }) => {
            let tree = trees(resource).ok_or_else(missing)?;
            let name = Name::new(name).map_err(|_| missing())?;
            let child = tree.child(id, &name).and_then(|c| tree.get(c)).ok_or_else(missing)?;
            Ok(Object::Node { resource, id: child.id, file: dir_kind(child) })
        }
        _ => Err(missing()),
    }
}

/// All entries of a directory but `.` and `..`, in order of their cookies. Of `proc` only its own
/// files: the processes come from [`list_processes`].
pub fn list<'t>(
    dir: Object,
    trees: impl Fn(Resource) -> Option<&'t Tree>,
) -> Result<Vec<DirItem>, Error> {
    let Some(place) = Place::of(dir) else {
        return Err(Error::new(ErrorKind::NotScheduler, "not a directory"));
    };
    let mut items = Vec::new();
    for (cookie, row) in (1..).zip(place.files()) {
        let ino = in_directory(dir, row.file).into();
        items.push(DirItem {
            name: row.name.into(),
            ino,
            file_type: FileType::of(row.file),
            cookie,
        });
    }
    if place == Place::Mount {
        let cookie = NODE_COOKIE - 1;
        items.push(DirItem {
            name: CONTAINERS.into(),
            ino: TOP.into(),
            file_type: FileType::Directory,
            cookie,
        });
        for resource in Resource::all() {
            let Some(tree) = trees(resource) else { continue };
            let ino = Ino::of_node(resource, NodeId::ROOT, FileKind::SchedulerDir);
            let cookie = NODE_COOKIE + u64::from(resource.number());
            let name = tree.root().name.to_string();
            items.push(DirItem { name, ino, file_type: FileType::Directory, cookie });
        }
    }
    if let Object::Node { resource, id, .. } = dir {
        let tree = trees(resource).ok_or_else(|| Error::new(ErrorKind::NotFound, "not running"))?;
        let mut children: Vec<&Node> =
            tree.node(id)?.children.values().filter_map(|&c| tree.get(c)).collect();
        children.sort_unstable_by_key(|n| n.id.index);
        items.extend(children.into_iter().map(|n| DirItem {
            name: n.name.to_string(),
            ino: Ino::of_node(resource, n.id, dir_kind(n)),
            file_type: FileType::Directory,
            cookie: NODE_COOKIE + u64::from(n.id.index),
        }));
    }
    Ok(items)
}

/// The entries of `proc` for these processes, in order of pid.
pub fn list_processes(pids: &[u32]) -> Vec<DirItem> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    let item = |pid: u32| DirItem {
        name: pid.to_string(),
        ino: Ino::of_process(pid, FileKind::ProcessDir),
        file_type: FileType::Directory,
        cookie: NODE_COOKIE + u64::from(pid),
    };
    pids.into_iter().map(item).collect()
}

/// What `stat` shows of an object; `Stale` when its node is gone. A fresh `newqueue` shows what the
/// table says.
pub fn attributes<'t>(
    object: Object,
    trees: impl Fn(Resource) -> Option<&'t Tree>,
) -> Result<Attributes, Error> {
    let (file, nlink, place) = match object {
        TOP => {
            let file_type = FileType::Directory;
            return Ok(Attributes { file_type, mode: file_type.mode() | 0o755, nlink: 1 });
        }
        Object::Container { .. } | Object::FreshContainer(_) => {
            return Err(Error::new(ErrorKind::NotFound, "containers have attributes of their own"));
        }
        Object::Fresh(_) => (FileKind::NewQueue, 1, Place::Resource),
        Object::Mount(FileKind::MountDir) => {
            let resources = Resource::all().filter(|r| trees(*r).is_some()).count();
            (FileKind::MountDir, 4 + u32::try_from(resources).unwrap_or(0), Place::Mount)
        }
        Object::Mount(FileKind::ProcDir) => (FileKind::ProcDir, 2, Place::Mount),
        Object::Mount(file) => (file, 1, Place::Mount),
        Object::Process { file: FileKind::ProcessDir, .. } => {
            (FileKind::ProcessDir, 2, Place::Process)
        }
        Object::Process { file, .. } => (file, 1, Place::Process),
        Object::Node { resource, id, file } => {
            let tree =
                trees(resource).ok_or_else(|| Error::new(ErrorKind::Stale, "not running"))?;
            (file, 1, Place::of_node(tree.node(id)?))
        }
    };
    let permissions = match file {
        // `mkdir`, `rmdir` and `mv` are root's.
        FileKind::MountDir | FileKind::ProcDir | FileKind::ProcessDir => 0o555,
        FileKind::SchedulerDir | FileKind::QueueDir => 0o755,
        _ => {
            let row = entry(file, place)
                .ok_or_else(|| Error::new(ErrorKind::NotFound, "no such file here"))?;
            u32::from(row.mode)
        }
    };
    let file_type = FileType::of(file);
    Ok(Attributes { file_type, mode: file_type.mode() | permissions, nlink })
}
