// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inode numbers: deterministic, and readable by the kernel's programs.
//!
//! ```text
//! bit   63 … 56   55 … 48     47 … 16       15 … 0
//!       area      file kind   generation    index      area 1…16: a resource's node and its files
//!       62        file kind   (bits 31…0: pid)         /reserv/proc/PID and its files
//!       63        (bits 55…0: serial)                  a fresh lookup of newqueue or newsched
//!       0         file kind   0                        files of the mount's root; its root is 1, as FUSE wants
//! ```
//!
//! A queue directory's number and its [`NodeId`] follow from each other: a program in the kernel that is handed
//! a descriptor compares `ino >> 48` with [`QUEUE_DIR_WORD`] (after it has compared the device) and has index and
//! generation in the low 48 bits. A handle outlives its node safely: the generation no longer fits.

use reserv_model::{NODES_MAX, NodeId};

/// Something scheduled, by its number; the number plus one is the area of its inodes. Its name is that of its tree's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(u8);

/// Most resources at once. The kernel's lists of default queues have that many places.
pub const RESOURCES_MAX: u8 = 16;

impl Resource {
    /// `/reserv/cpu`: the one that is always there.
    pub const CPU: Self = Self(0);

    /// By its number.
    pub const fn new(number: u8) -> Option<Self> {
        if number < RESOURCES_MAX { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All numbers, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..RESOURCES_MAX).map(Self)
    }
}

/// What a file is. The numbers stand in inode numbers and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names of the files; see the table")]
pub enum FileKind {
    MountDir = 0,
    SchedulerDir = 1,
    QueueDir = 2,
    ProcDir = 3,
    ProcessDir = 4,
    SelfLink = 5,
    Status = 6,
    Share = 16,
    Policy = 17,
    NewQueue = 18,
    NewSched = 19,
    Stat = 20,
    Cap = 21,
    Gc = 22,
    Backlog = 23,
    Class = 24,
    Members = 25,
    State = 26,
    Mk = 27,
    Tune = 28,
    Shares = 29,
    Access = 30,
    Default = 48,
    ChildDefault = 49,
    Domain = 50,
    Fds = 51,
}

impl FileKind {
    /// All kinds.
    pub const ALL: &[Self] = &[
        Self::MountDir,
        Self::SchedulerDir,
        Self::QueueDir,
        Self::ProcDir,
        Self::ProcessDir,
        Self::SelfLink,
        Self::Status,
        Self::Share,
        Self::Policy,
        Self::NewQueue,
        Self::NewSched,
        Self::Stat,
        Self::Cap,
        Self::Gc,
        Self::Backlog,
        Self::Class,
        Self::Members,
        Self::State,
        Self::Mk,
        Self::Tune,
        Self::Shares,
        Self::Access,
        Self::Default,
        Self::ChildDefault,
        Self::Domain,
        Self::Fds,
    ];

    fn from_code(code: u64) -> Option<Self> {
        Self::ALL.iter().copied().find(|k| *k as u64 == code)
    }

    /// Whether its inode carries a node's id.
    pub const fn is_of_node(self) -> bool {
        matches!(self, Self::SchedulerDir | Self::QueueDir) || (self as u8 >= 16 && (self as u8) < 48)
    }

    /// Whether its inode carries a pid.
    pub const fn is_of_process(self) -> bool {
        matches!(self, Self::ProcessDir | Self::Default | Self::ChildDefault | Self::Domain | Self::Fds)
    }

    /// Whether it exists once in the mount.
    pub const fn is_of_mount(self) -> bool {
        !self.is_of_node() && !self.is_of_process()
    }
}

/// What an inode number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// A file of the mount's root (or the root itself, `proc`, and `proc`'s `self`).
    Mount(FileKind),
    /// A reservation directory or a file in it.
    Node {
        /// Whose tree.
        resource: Resource,
        /// Which node. The handle may be stale.
        id: NodeId,
        /// Which file of it.
        file: FileKind,
    },
    /// `proc/PID` or a file in it.
    Process {
        /// The process, in the daemon's pid name space.
        pid: u32,
        /// Which file of it.
        file: FileKind,
    },
    /// What a lookup of `newqueue` or `newsched` returned; the daemon knows what for.
    Fresh(u64),
}

/// An inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

const PROC_AREA: u64 = 62;
const FRESH_AREA: u64 = 63;
const SERIAL_MAX: u64 = (1 << 56) - 1;

/// `ino >> 48` of every queue directory of the CPU, and of nothing else.
pub const QUEUE_DIR_WORD: u64 = (Resource::CPU.0 as u64 + 1) << 8 | FileKind::QueueDir as u64;

const _: () = assert!(NODES_MAX <= 1 << 16, "an index fits its bits");

impl Ino {
    /// The mount's root: FUSE_ROOT_ID.
    pub const ROOT: Self = Self(1);

    /// A node's directory or file.
    pub const fn of_node(resource: Resource, id: NodeId, file: FileKind) -> Self {
        let id = (id.generation as u64) << 16 | (id.index as u64 & 0xffff);
        Self((resource.0 as u64 + 1) << 56 | (file as u64) << 48 | id)
    }

    /// The directory of a queue of the CPU: what `chcpures` is handed.
    pub const fn of_queue(id: NodeId) -> Self {
        Self::of_node(Resource::CPU, id, FileKind::QueueDir)
    }

    /// The reverse of [`Ino::of_queue`]; `None` for all other inodes.
    #[expect(clippy::cast_possible_truncation, reason = "the fields are that wide")]
    pub const fn queue_id(self) -> Option<NodeId> {
        if self.0 >> 48 != QUEUE_DIR_WORD {
            return None;
        }
        Some(NodeId { index: (self.0 & 0xffff) as u32, generation: (self.0 >> 16) as u32 })
    }

    /// `proc/PID` or a file of it.
    pub const fn of_process(pid: u32, file: FileKind) -> Self {
        Self(PROC_AREA << 56 | (file as u64) << 48 | pid as u64)
    }

    /// The number of one lookup of `newqueue` or `newsched`; serials are never used twice in a session.
    pub const fn fresh(serial: u64) -> Self {
        Self(FRESH_AREA << 56 | (serial & SERIAL_MAX))
    }

    /// What it stands for; `None` for numbers that none of these functions makes.
    #[expect(clippy::cast_possible_truncation, reason = "the fields are that wide")]
    pub fn object(self) -> Option<Object> {
        if self == Self::ROOT {
            return Some(Object::Mount(FileKind::MountDir));
        }
        let area = self.0 >> 56;
        if area == FRESH_AREA {
            return Some(Object::Fresh(self.0 & SERIAL_MAX));
        }
        let file = FileKind::from_code(self.0 >> 48 & 0xff)?;
        let low = self.0 & 0xffff_ffff_ffff;
        match area {
            0 if file.is_of_mount() && file != FileKind::MountDir && low == 0 => Some(Object::Mount(file)),
            PROC_AREA if file.is_of_process() && low >> 32 == 0 => {
                Some(Object::Process { pid: low as u32, file })
            }
            1..PROC_AREA if file.is_of_node() => {
                let resource = Resource::new(area as u8 - 1)?;
                let id = NodeId { index: (low & 0xffff) as u32, generation: (low >> 16) as u32 };
                Some(Object::Node { resource, id, file })
            }
            _ => None,
        }
    }
}

impl From<Object> for Ino {
    fn from(object: Object) -> Self {
        match object {
            Object::Mount(FileKind::MountDir) => Self::ROOT,
            Object::Mount(file) => Self((file as u64) << 48),
            Object::Node { resource, id, file } => Self::of_node(resource, id, file),
            Object::Process { pid, file } => Self::of_process(pid, file),
            Object::Fresh(serial) => Self::fresh(serial),
        }
    }
}
