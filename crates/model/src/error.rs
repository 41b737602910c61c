// SPDX-License-Identifier: MIT OR Apache-2.0
//! One error type: a kind to match, a context to print, a hint for the command line.

/// The numbers that a system call answers with (Linux, all architectures that we build for).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names of errno(3)")]
#[repr(i32)]
pub enum Errno {
    EPERM = 1,
    ENOENT = 2,
    ESRCH = 3,
    EAGAIN = 11,
    EACCES = 13,
    EBUSY = 16,
    EEXIST = 17,
    ENOTDIR = 20,
    EISDIR = 21,
    EINVAL = 22,
    ENOSPC = 28,
    EMLINK = 31,
    ENAMETOOLONG = 36,
    ENOTEMPTY = 39,
    ELOOP = 40,
    EILSEQ = 84,
    EMSGSIZE = 90,
    EOPNOTSUPP = 95,
    ESTALE = 116,
}

impl Errno {
    /// As the kernel wants it, positive.
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// What went wrong, for a program to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// A word, number or combination that makes no sense here.
    Invalid,
    /// The text is not UTF-8 or holds a NUL.
    NotText,
    /// The text is longer than [`crate::TEXT_MAX`].
    TooLong,
    /// A name of more than [`crate::NAME_MAX`] bytes.
    NameTooLong,
    /// No node of this path.
    NotFound,
    /// The handle's node is gone; the slot may serve another one now.
    Stale,
    /// The name is taken.
    Exists,
    /// A scheduler node that still has children.
    NotEmpty,
    /// A queue stands where a scheduler node is needed.
    NotScheduler,
    /// A scheduler node stands where a queue is needed.
    NotQueue,
    /// The root and q0 allow less than other nodes.
    Protected,
    /// The file is only read, or only written.
    NotPermitted,
    /// The node drains, or has members.
    Busy,
    /// [`crate::NODES_MAX`] nodes exist, or [`crate::PACKET_RULES_MAX`] rules.
    Full,
    /// More is promised than there is.
    Overcommitted,
    /// Something would be above itself.
    Loop,
    /// More than [`crate::DEPTH_MAX`] levels.
    TooDeep,
    /// The mechanism does not exist (yet).
    Unsupported,
    /// The tree changed between plan and commit: plan again.
    Conflict,
    /// No such process or thread.
    NoProcess,
    /// A journal or snapshot that does not fit together.
    Corrupt,
}

impl ErrorKind {
    /// What the system call answers.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Invalid | Self::NotQueue | Self::Corrupt => Errno::EINVAL,
            Self::NotText => Errno::EILSEQ,
            Self::TooLong => Errno::EMSGSIZE,
            Self::NameTooLong => Errno::ENAMETOOLONG,
            Self::NotFound => Errno::ENOENT,
            Self::Stale => Errno::ESTALE,
            Self::Exists => Errno::EEXIST,
            Self::NotEmpty => Errno::ENOTEMPTY,
            Self::NotScheduler => Errno::ENOTDIR,
            Self::Protected => Errno::EPERM,
            Self::NotPermitted => Errno::EACCES,
            Self::Busy => Errno::EBUSY,
            Self::Full | Self::Overcommitted => Errno::ENOSPC,
            Self::Loop => Errno::ELOOP,
            Self::TooDeep => Errno::EMLINK,
            Self::Unsupported => Errno::EOPNOTSUPP,
            Self::Conflict => Errno::EAGAIN,
            Self::NoProcess => Errno::ESRCH,
        }
    }
}

/// Why a request was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    /// To match.
    pub kind: ErrorKind,
    /// What was wrong, with the wrong word in quotes; one line, no full stop.
    pub context: String,
    /// What would be right; printed by the command line and the log. May be empty.
    pub hint: String,
}

impl Error {
    /// An error without a hint.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), hint: String::new() }
    }

    /// The same with a hint: what would be right.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same with `where: ` before the context.
    #[must_use]
    pub fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.context = format!("{place}: {}", self.context);
        self
    }

    /// What the system call answers.
    pub const fn errno(&self) -> Errno {
        self.kind.errno()
    }
}

/// A word as it can stand in a message: quoted, control characters escaped, at most 64 characters
/// of it.
pub fn quoted(word: &str) -> String {
    let mut out = String::from("\"");
    for (i, c) in word.chars().enumerate() {
        if i == 64 {
            out.push('…');
            break;
        }
        out.extend(c.escape_debug());
    }
    out.push('"');
    out
}
