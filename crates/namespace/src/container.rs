// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers in the name space: `/reserv/container`, their directories, and what their files mean.
//! No other file of this crate knows more of them than that this directory is there.
//!
//! ```text
//! share      = (weight | fixed) ["0"]      24, =25%: of every resource, those that come later too
//! mk         = ("queue" | "scheduler") name [weight | fixed]     for threads, or for containers
//! members    = pid | "self"                binds a process in every tree; read: a line each
//! parent     = path | "none"               none: at the top
//! gc         = "0" | "1"
//! nodes      = {resource path share "\n"}          read only: what it owns
//! access     = as a node's                         what is said at all of them, and at those that come
//! usage      = {resource "." what " " n "\n"}      read only: own_ns, subtree_ns; of others bytes
//!              {"memory_" what "_bytes " n "\n"}
//!            | {told "\n"} {used "\n"} {memory "\n"}    of the directory: of all containers
//! told       = "resource" name kind unit ["late" why]
//! used       = "container" id ("threads" | "containers") path {resource own subtree}
//! memory     = "memory" (id own subtree | "late" why)    bytes now, where a cgroup tells
//! ```
//!
//! Opening `new` makes a container for threads; the descriptor is the new one's `share`.

use std::fmt::Write as _;

use reserv_model::{
    AccessChange, Container, ContainerId, Containers, Error, ErrorKind, Holds, Name, NodePath,
    ResourceKind, Share, Weight, quoted,
};

use crate::directory::{Attributes, DirItem, FileType};
use crate::ino::{ContainerFile, Ino, Object};
use crate::text::{line, number, single, surplus};
use crate::write::{PID_MAX, Who, access_words};

/// The directory of containers.
pub const CONTAINERS: &str = "container";
/// The same as an object.
pub(crate) const TOP: Object = Object::Container { id: ContainerId::TOP, file: ContainerFile::Dir };

/// Cookies of the directory's own files are below this, of containers above.
const CHILD_COOKIE: u64 = 1 << 10;

/// Where a file stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    Top,
    Parent,
    Leaf,
}

use ContainerFile as F;
use In::{Leaf, Parent, Top};

/// Every file: name, where, kind, mode as it is shown.
#[rustfmt::skip]
const TABLE: &[(&str, &[In], ContainerFile, u32)] = &[
    ("new",     &[Top, Parent],  F::New,     0o600),
    ("mk",      &[Top, Parent],  F::Mk,      0o200),
    ("share",   &[Parent, Leaf], F::Share,   0o644),
    ("members", &[Leaf],         F::Members, 0o644),
    ("parent",  &[Parent, Leaf], F::Parent,  0o644),
    ("gc",      &[Parent, Leaf], F::Gc,      0o644),
    ("access",  &[Parent, Leaf], F::Access,  0o644),
    ("nodes",   &[Parent, Leaf], F::Nodes,   0o444),
    ("usage",   &[Top, Parent, Leaf], F::Usage, 0o444),
];

fn place(held: &Container) -> In {
    match held.holds {
        _ if held.id == ContainerId::TOP => Top,
        Holds::Containers => Parent,
        Holds::Threads => Leaf,
    }
}

fn files(at: In) -> impl Iterator<Item = (&'static str, ContainerFile, u32)> {
    TABLE.iter().filter(move |row| row.1.contains(&at)).map(|row| (row.0, row.2, row.3))
}

/// What `name` is in a container's directory. `new` answers its plain inode; the daemon replaces it
/// by a fresh one.
pub fn lookup_in_container(
    all: &Containers,
    id: ContainerId,
    name: &[u8],
) -> Result<Object, Error> {
    let missing = || {
        let shown = quoted(&String::from_utf8_lossy(name));
        Error::new(ErrorKind::NotFound, format!("no {shown} here"))
    };
    let held = all.node(id)?;
    let text = std::str::from_utf8(name).map_err(|_| missing())?;
    if let Some((_, file, _)) = files(place(held)).find(|(known, ..)| *known == text) {
        return Ok(Object::Container { id, file });
    }
    let name = Name::new(text).map_err(|_| missing())?;
    let id = all.child(id, &name).ok_or_else(missing)?;
    Ok(Object::Container { id, file: F::Dir })
}

/// What a container's directory lists, in order of cookies.
pub fn list_container(all: &Containers, id: ContainerId) -> Result<Vec<DirItem>, Error> {
    let held = all.node(id)?;
    let item = |name: String, id, file, cookie| {
        let file_type = if file == F::Dir { FileType::Directory } else { FileType::Regular };
        DirItem { name, ino: Ino::of_container(id, file), file_type, cookie }
    };
    let own = (1..)
        .zip(files(place(held)))
        .map(|(cookie, (name, file, _))| item(name.into(), id, file, cookie));
    let mut children: Vec<ContainerId> = held.children.values().copied().collect();
    children.sort_unstable();
    let of = |id: ContainerId| {
        let name = all.get(id)?.name.to_string();
        Some(item(name, id, F::Dir, CHILD_COOKIE + u64::from(id.index)))
    };
    Ok(own.chain(children.into_iter().filter_map(of)).collect())
}

/// What `stat` shows of a container's file; of a fresh one with `new`.
pub fn attributes_in_container(
    all: &Containers,
    id: ContainerId,
    file: ContainerFile,
) -> Result<Attributes, Error> {
    let at = place(all.node(id)?);
    let none = || Error::new(ErrorKind::NotFound, "no such file here");
    let (file_type, mode) = match file {
        F::Dir => (FileType::Directory, 0o755),
        _ => (FileType::Regular, files(at).find(|(_, kind, _)| *kind == file).ok_or_else(none)?.2),
    };
    Ok(Attributes { file_type, mode: file_type.mode() | mode, nlink: 1 })
}

/// What the daemon has to do for a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerCommand {
    /// One share for all resources.
    Share(Share),
    /// The flag.
    Gc(bool),
    /// Another parent; `None`: no parent.
    Parent(Option<NodePath>),
    /// A child.
    Mk(Holds, Name, Share),
    /// Bind a process.
    Bind(Who),
    /// Change the lists of its nodes; and whether what loses its queue by it goes to q0 at once.
    Access(AccessChange, bool),
}

fn share(text: &str) -> Result<Share, Error> {
    text.parse()
}

fn parent(text: &str) -> Result<Option<NodePath>, Error> {
    let hint = "the path of a container for containers, web or web/php, or none";
    match single(text, "a container", hint)? {
        "none" => Ok(None),
        path => Ok(Some(path.parse()?)),
    }
}

fn gc(text: &str) -> Result<bool, Error> {
    let hint = "1: released when nothing refers to it, 0: kept";
    match single(text, "0 or 1", hint)? {
        "0" => Ok(false),
        "1" => Ok(true),
        word => {
            Err(Error::new(ErrorKind::Invalid, format!("{} is not 0 or 1", quoted(word)))
                .hint(hint))
        }
    }
}

fn bind(text: &str) -> Result<Who, Error> {
    let hint = "1234 (a process) or self";
    match single(text, "a process", hint)? {
        "self" => Ok(Who::CallerProcess),
        word => Ok(Who::Process(number(word, 1, PID_MAX, "a process").map_err(|e| e.hint(hint))?)),
    }
}

fn mk(text: &str) -> Result<ContainerCommand, Error> {
    let hint = "queue (for threads) or scheduler (for containers), a name, and perhaps a share: queue site1 24";
    let mut words = text.split_ascii_whitespace();
    let holds = match words.next().unwrap_or_default() {
        "queue" => Holds::Threads,
        "scheduler" => Holds::Containers,
        word => {
            let why = format!("{} is neither queue nor scheduler", quoted(word));
            return Err(Error::new(ErrorKind::Invalid, why).hint(hint));
        }
    };
    let name = words.next().ok_or_else(|| Error::new(ErrorKind::Invalid, "no name").hint(hint))?;
    let name = Name::new(name)?;
    let rest: Vec<&str> = words.collect();
    if let Some(word) = rest.get(2) {
        return Err(surplus(word, "a share", hint));
    }
    let share = if rest.is_empty() { Share::of(Weight::DEFAULT) } else { share(&rest.join(" "))? };
    Ok(ContainerCommand::Mk(holds, name, share))
}

/// A write to a file of a container. Only the text is checked here.
pub fn parse_container_write(file: ContainerFile, bytes: &[u8]) -> Result<ContainerCommand, Error> {
    let name = TABLE.iter().find(|row| row.2 == file).map_or("a directory", |row| row.0);
    let parsed = |text: &str| match file {
        F::Share => share(text).map(ContainerCommand::Share),
        F::Gc => gc(text).map(ContainerCommand::Gc),
        F::Parent => parent(text).map(ContainerCommand::Parent),
        F::Members => bind(text).map(ContainerCommand::Bind),
        F::Mk => mk(text),
        F::Access => {
            access_words(text).map(|(change, fall)| ContainerCommand::Access(change, fall))
        }
        F::Dir | F::New | F::Nodes | F::Usage => {
            Err(Error::new(ErrorKind::NotPermitted, "it is not written"))
        }
    };
    line(bytes).and_then(parsed).map_err(|e| e.at(name))
}

/// What is read of a container that needs nothing but it; `None`: the daemon has to look.
pub fn render_container(
    all: &Containers,
    id: ContainerId,
    file: ContainerFile,
) -> Result<Option<String>, Error> {
    let held = all.node(id)?;
    Ok(Some(match file {
        F::Share => format!("{}\n", held.share.part()),
        F::Gc => format!("{}\n", u8::from(held.gc)),
        F::Parent => match held.parent.filter(|parent| *parent != ContainerId::TOP) {
            Some(parent) => format!("{}\n", all.path(parent).unwrap_or_default()),
            None => "none\n".to_owned(),
        },
        F::Members | F::Nodes | F::Usage | F::Access => return Ok(None),
        F::Dir | F::New | F::Mk => {
            return Err(Error::new(ErrorKind::NotPermitted, "it is not read"));
        }
    }))
}

/// A node that a container owns in one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The tree.
    pub resource: Name,
    /// Where it stands, and its share there; or why there is none.
    pub node: Result<(NodePath, Share), String>,
}

/// The text of `nodes`.
pub fn render_nodes(nodes: &[Owned]) -> String {
    let mut out = String::new();
    for Owned { resource, node } in nodes {
        let _ = match node {
            Ok((path, share)) => writeln!(out, "{resource} {path} {share}"),
            Err(why) => writeln!(out, "{resource} - {why}"),
        };
    }
    out
}

/// What a container has used of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Which.
    pub resource: Name,
    /// What its numbers are of.
    pub kind: ResourceKind,
    /// How much; or why that is not known now.
    pub amount: Result<Counted, String>,
}

/// Of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// By threads that were bound to it.
    pub own: u64,
    /// And to those below it, also those that are no more.
    pub subtree: u64,
}

/// A resource, in the `usage` of all containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Which.
    pub resource: Name,
    /// What it is; `None`: it was, and what was used of it is known still.
    pub kind: Option<ResourceKind>,
    /// Why it is not known what was used of it.
    pub late: Option<String>,
}

/// A container there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedBy {
    /// Which: never used again.
    pub id: ContainerId,
    /// What for.
    pub holds: Holds,
    /// Where it stands now.
    pub path: NodePath,
    /// How much, by resource.
    pub used: Vec<(Name, Counted)>,
    /// What its cgroups are charged now; `None`: no cgroup is its own.
    pub memory: Option<Counted>,
}

/// Words of others, in a line of ours.
fn in_line(why: &str) -> String {
    why.replace(char::is_control, " ")
}

/// Its text. `late`: why nothing is known of memory, or not of all.
pub fn render_usage_of_all(resources: &[Told], all: &[UsedBy], late: Option<&str>) -> String {
    let mut out = String::new();
    for Told { resource, kind, late } in resources {
        let (word, unit) = match kind {
            Some(kind) => (kind.word(), kind.unit()),
            // The CPU does not go alone.
            None => ("gone", ResourceKind::Link.unit()),
        };
        let _ = write!(out, "resource {resource} {word} {unit}");
        if let Some(why) = late {
            let _ = write!(out, " late {}", in_line(why));
        }
        out.push('\n');
    }
    for UsedBy { id, holds, path, used, .. } in all {
        let holds = match holds {
            Holds::Threads => "threads",
            Holds::Containers => "containers",
        };
        let _ = write!(out, "container {}.{} {holds} {path}", id.index, id.generation);
        for (resource, Counted { own, subtree }) in used {
            let _ = write!(out, " {resource} {own} {subtree}");
        }
        out.push('\n');
    }
    // By lines of their own: a resource may have any name.
    for UsedBy { id, memory, .. } in all {
        if let Some(Counted { own, subtree }) = memory {
            let _ = writeln!(out, "memory {}.{} {own} {subtree}", id.index, id.generation);
        }
    }
    if let Some(why) = late {
        let _ = writeln!(out, "memory late {}", in_line(why));
    }
    out
}

/// The text of `usage`, with what is known of memory.
pub fn render_usage(all: &[Used], memory: Option<Counted>) -> String {
    let mut out = String::new();
    for Used { resource, kind, amount } in all {
        let unit = if *kind == ResourceKind::Cpu { "ns" } else { "bytes" };
        let _ = match amount {
            Ok(Counted { own, subtree }) => {
                writeln!(out, "{resource}.own_{unit} {own}\n{resource}.subtree_{unit} {subtree}")
            }
            Err(why) => writeln!(out, "{resource}.late {}", in_line(why)),
        };
    }
    if let Some(Counted { own, subtree }) = memory {
        let _ = writeln!(out, "memory_own_bytes {own}\nmemory_subtree_bytes {subtree}");
    }
    out
}
