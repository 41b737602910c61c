// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inode numbers: deterministic, and readable by the kernel's programs and by client libraries.
//!
//! ```text
//! bit   63 … 56   55 … 48     47 … 16       15 … 0
//!       area      file kind   generation    index      area 1…16: a resource's node and its files
//!       62        file kind   (bits 31…0: pid)         /reserv/proc/PID and its files
//!       63        (bits 55…0: serial)                  a fresh lookup of newqueue or newsched
//!       0         file kind   0                        files of the mount's root; its root is 1, as FUSE wants
//!       17        file kind   generation    index      a container and its files
//!       18        (bits 55…0: serial)                  a fresh lookup of a container's new
//! ```
//!
//! What they mean to the name space is crates/namespace's (`ino.rs`).

/// Most resources at once. The kernel's lists of default queues have that many places.
pub const RESOURCES_MAX: u8 = 16;

/// Where the area begins.
pub const AREA_SHIFT: u32 = 56;
/// Where the kind of file begins.
pub const KIND_SHIFT: u32 = 48;
/// Where a node's generation begins.
pub const GENERATION_SHIFT: u32 = 16;
/// Generation and index.
pub const ID_MASK: u64 = (1 << KIND_SHIFT) - 1;
/// The index of a node.
pub const INDEX_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
/// A resource's area is its number and this.
pub const FIRST_AREA: u64 = 1;
/// The area of containers: no resource's, so the kernel's programs take none of its inodes for a
/// queue.
pub const CONTAINER_AREA: u64 = FIRST_AREA + RESOURCES_MAX as u64;
/// The area of fresh lookups in containers.
pub const FRESH_CONTAINER_AREA: u64 = CONTAINER_AREA + 1;
/// The area of processes; those of resources are below it.
pub const PROC_AREA: u64 = 62;
/// The area of fresh lookups.
pub const FRESH_AREA: u64 = 63;
/// The greatest number of a fresh lookup.
pub const SERIAL_MAX: u64 = (1 << AREA_SHIFT) - 1;
/// Of the mount's root: `FUSE_ROOT_ID`.
pub const ROOT: u64 = 1;

const _: () = assert!(crate::tree::SLOTS <= 1 << GENERATION_SHIFT, "an index fits its bits");
const _: () = assert!(FRESH_CONTAINER_AREA < PROC_AREA, "each resource has an area");

/// What a file is. The numbers stand in inode numbers and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names of the files; see the table of crates/namespace")]
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
    Dropped = 31,
    Default = 48,
    ChildDefault = 49,
    Domain = 50,
    Fds = 51,
    Listen = 52,
}

/// What a file of a container is. The numbers stand in inode numbers and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names of the files; see crates/namespace/src/container.rs")]
pub enum ContainerFile {
    Dir = 1,
    Share = 2,
    Members = 3,
    Gc = 4,
    Parent = 5,
    Nodes = 6,
    Usage = 7,
    New = 8,
    Mk = 9,
    Access = 10,
}

impl ContainerFile {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Dir,
        Self::Share,
        Self::Members,
        Self::Gc,
        Self::Parent,
        Self::Nodes,
        Self::Usage,
        Self::New,
        Self::Mk,
        Self::Access,
    ];

    /// The one with this number.
    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.iter().copied().find(|k| *k as u64 == code)
    }
}

/// Files of nodes are below this, from [`FileKind::Share`] on; those of processes begin with it.
const NODE_FILES_END: u8 = FileKind::Default as u8;

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
        Self::Dropped,
        Self::Default,
        Self::ChildDefault,
        Self::Domain,
        Self::Fds,
        Self::Listen,
    ];

    /// The one with this number.
    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.iter().copied().find(|k| *k as u64 == code)
    }

    /// Whether its inode carries a node's id.
    pub const fn is_of_node(self) -> bool {
        is_of_node(self as u64)
    }

    /// Whether its inode carries a pid.
    pub const fn is_of_process(self) -> bool {
        matches!(
            self,
            Self::ProcessDir
                | Self::Default
                | Self::ChildDefault
                | Self::Domain
                | Self::Fds
                | Self::Listen
        )
    }

    /// Whether it exists once in the mount.
    pub const fn is_of_mount(self) -> bool {
        !self.is_of_node() && !self.is_of_process()
    }
}

/// Whether a file with this number is a node's, also where this build does not know the file: a
/// client library is older or younger than the daemon.
pub const fn is_of_node(code: u64) -> bool {
    code == FileKind::SchedulerDir as u64
        || code == FileKind::QueueDir as u64
        || (code >= FileKind::Share as u64 && code < NODE_FILES_END as u64)
}

/// `ino >> KIND_SHIFT` of every queue directory of the CPU, resource 0, and of nothing else.
pub const QUEUE_DIR_WORD: u64 = FIRST_AREA << (AREA_SHIFT - KIND_SHIFT) | FileKind::QueueDir as u64;

/// `ino >> KIND_SHIFT` of such a file of any container.
#[cfg(test)]
const fn container_word(file: ContainerFile) -> u64 {
    CONTAINER_AREA << (AREA_SHIFT - KIND_SHIFT) | file as u64
}

/// As many of these first ones are known to the programs of the CPU.
#[cfg(test)]
pub(crate) const OF_CPU: usize = 4;

/// What the programs in the kernel know of all this.
#[cfg(test)]
pub(crate) const IN_C: &[(&str, i128)] = &[
    ("RC_QUEUE_DIR_WORD", QUEUE_DIR_WORD as i128),
    ("RC_CONTAINER_DIR_WORD", container_word(ContainerFile::Dir) as i128),
    ("RC_CONTAINER_SHARE_WORD", container_word(ContainerFile::Share) as i128),
    ("RC_CONTAINER_FRESH_AREA", FRESH_CONTAINER_AREA as i128),
    ("RT_INO_SCHEDULER_DIR", FileKind::SchedulerDir as i128),
    ("RT_INO_QUEUE_DIR", FileKind::QueueDir as i128),
    ("RT_INO_SHARE", FileKind::Share as i128),
    ("RT_INO_OF_NODES", FileKind::Share as i128),
    ("RT_INO_OF_PROCESSES", NODE_FILES_END as i128),
];
