// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may do what in a tree.

use serde::{Deserialize, Serialize};

/// Most rules about the use of one queue, after all that is inherited was written out: the kernel's check walks them.
pub const USE_RULES_MAX: usize = 16;

/// One rule about the use of a queue as a tag, for the check where the tag is set. Rules are tried in order: the first whose named
/// conditions all hold decides; where none does, only root may use the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseRule {
    /// The file system uid of who sets the tag.
    pub uid: Option<u32>,
    /// The file system gid or one of the supplementary groups.
    pub gid: Option<u32>,
    /// The process, in the daemon's pid name space, with its start time as in `/proc/PID/stat` (field 22: the boot-time start of
    /// its first thread in units of 10 ms), so that a pid that is used again is somebody else.
    pub process: Option<(u32, u64)>,
    /// Whether they may.
    pub allow: bool,
}
