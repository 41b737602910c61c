// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inode numbers, and what each stands for in the name space.
//!
//! [`reserv_facts::ino`] has the layout. A queue directory's number and its [`NodeId`] follow from
//! each other: a program in the kernel that is handed a descriptor compares `ino >> 48` with
//! [`QUEUE_DIR_WORD`] (after it has compared the device) and has index and generation in the low 48
//! bits. A handle outlives its node safely: the generation no longer fits.

use reserv_facts::ino::{
    AREA_SHIFT, CONTAINER_AREA, FIRST_AREA, FRESH_AREA, FRESH_CONTAINER_AREA, GENERATION_SHIFT,
    ID_MASK, INDEX_MASK, KIND_SHIFT, PROC_AREA, ROOT, SERIAL_MAX,
};
pub use reserv_facts::ino::{ContainerFile, FileKind, QUEUE_DIR_WORD, RESOURCES_MAX};
use reserv_model::{ContainerId, NodeId};

/// Something scheduled, by its number; the number plus one is the area of its inodes. Its name is
/// that of its tree's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(u8);

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
    /// A container's directory or a file in it.
    Container {
        /// Which container. The handle may be stale.
        id: ContainerId,
        /// Which file of it.
        file: ContainerFile,
    },
    /// What a lookup of a container's `new` returned.
    FreshContainer(u64),
}

/// An inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

/// The node that the low bits name.
#[expect(clippy::cast_possible_truncation, reason = "the fields are that wide")]
const fn node_id(ino: u64) -> NodeId {
    NodeId { index: (ino & INDEX_MASK) as u32, generation: (ino >> GENERATION_SHIFT) as u32 }
}

impl Ino {
    /// The mount's root.
    pub const ROOT: Self = Self(ROOT);

    /// A node's directory or file.
    pub const fn of_node(resource: Resource, id: NodeId, file: FileKind) -> Self {
        let id = (id.generation as u64) << GENERATION_SHIFT | (id.index as u64 & INDEX_MASK);
        Self((resource.0 as u64 + FIRST_AREA) << AREA_SHIFT | (file as u64) << KIND_SHIFT | id)
    }

    /// The directory of a queue of the CPU: what `chcpures` is handed.
    pub const fn of_queue(id: NodeId) -> Self {
        Self::of_node(Resource::CPU, id, FileKind::QueueDir)
    }

    /// The reverse of [`Ino::of_queue`]; `None` for all other inodes.
    pub const fn queue_id(self) -> Option<NodeId> {
        if self.0 >> KIND_SHIFT != QUEUE_DIR_WORD {
            return None;
        }
        Some(node_id(self.0))
    }

    /// `proc/PID` or a file of it.
    pub const fn of_process(pid: u32, file: FileKind) -> Self {
        Self(PROC_AREA << AREA_SHIFT | (file as u64) << KIND_SHIFT | pid as u64)
    }

    /// The number of one lookup of `newqueue` or `newsched`; serials are never used twice in a
    /// session.
    pub const fn fresh(serial: u64) -> Self {
        Self(FRESH_AREA << AREA_SHIFT | (serial & SERIAL_MAX))
    }

    /// A container's directory or file.
    pub const fn of_container(id: ContainerId, file: ContainerFile) -> Self {
        let id = (id.generation as u64) << GENERATION_SHIFT | (id.index as u64 & INDEX_MASK);
        Self(CONTAINER_AREA << AREA_SHIFT | (file as u64) << KIND_SHIFT | id)
    }

    /// The number of one lookup of a container's `new`.
    pub const fn fresh_container(serial: u64) -> Self {
        Self(FRESH_CONTAINER_AREA << AREA_SHIFT | (serial & SERIAL_MAX))
    }

    /// What it stands for; `None` for numbers that none of these functions makes.
    #[expect(clippy::cast_possible_truncation, reason = "the fields are that wide")]
    pub fn object(self) -> Option<Object> {
        if self == Self::ROOT {
            return Some(Object::Mount(FileKind::MountDir));
        }
        let area = self.0 >> AREA_SHIFT;
        if area == FRESH_AREA {
            return Some(Object::Fresh(self.0 & SERIAL_MAX));
        }
        if area == FRESH_CONTAINER_AREA {
            return Some(Object::FreshContainer(self.0 & SERIAL_MAX));
        }
        if area == CONTAINER_AREA {
            let file = ContainerFile::from_code(self.0 >> KIND_SHIFT & 0xff)?;
            let NodeId { index, generation } = node_id(self.0 & ID_MASK);
            return Some(Object::Container { id: ContainerId { index, generation }, file });
        }
        let file = FileKind::from_code(self.0 >> KIND_SHIFT & 0xff)?;
        let low = self.0 & ID_MASK;
        match area {
            0 if file.is_of_mount() && file != FileKind::MountDir && low == 0 => {
                Some(Object::Mount(file))
            }
            PROC_AREA if file.is_of_process() && low >> 32 == 0 => {
                Some(Object::Process { pid: low as u32, file })
            }
            FIRST_AREA..PROC_AREA if file.is_of_node() => {
                let resource = Resource::new((area - FIRST_AREA) as u8)?;
                Some(Object::Node { resource, id: node_id(low), file })
            }
            _ => None,
        }
    }
}

impl From<Object> for Ino {
    fn from(object: Object) -> Self {
        match object {
            Object::Mount(FileKind::MountDir) => Self::ROOT,
            Object::Mount(file) => Self((file as u64) << KIND_SHIFT),
            Object::Node { resource, id, file } => Self::of_node(resource, id, file),
            Object::Process { pid, file } => Self::of_process(pid, file),
            Object::Fresh(serial) => Self::fresh(serial),
            Object::Container { id, file } => Self::of_container(id, file),
            Object::FreshContainer(serial) => Self::fresh_container(serial),
        }
    }
}
