// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong, with what would be right. Hints are written here and nowhere below the
//! command line.

use std::fmt;
use std::io;

use nix::errno::Errno;
use reserv_control::reason;

/// Chooses the exit status; the numbers are promised in reserv(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reserv or the kernel said no.
    Refused = 1,
    /// The words of the command make no sense.
    Usage = 2,
    /// No reservd, or nothing mounted.
    NotRunning = 3,
    /// The node or process does not exist.
    NotFound = 4,
    /// The caller may not.
    Denied = 5,
    /// A part of the answer is missing: a resource gave none.
    Partly = 6,
    /// `run`: the reservation could not be taken.
    RunReservation = 125,
    /// `run`: the program could not be executed.
    RunExec = 126,
    /// `run`: the program was not found.
    RunNotFound = 127,
}

impl Kind {
    /// A word for JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Usage => "usage",
            Self::NotRunning => "not-running",
            Self::NotFound => "not-found",
            Self::Denied => "denied",
            Self::Partly => "partly",
            Self::RunReservation => "reservation",
            Self::RunExec => "exec",
            Self::RunNotFound => "command-not-found",
        }
    }
}

/// An error as a person reads it.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    /// For the exit status.
    pub kind: Kind,
    /// What was wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
    /// The kernel's word for it, where there is one.
    pub errno: Option<i32>,
}

impl Error {
    /// An error of a kind.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, errno: None }
    }

    /// The command's words make no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Said no.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }

    /// Add what would be right.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Something else that went wrong with it.
    pub(crate) fn add(&mut self, more: &str) {
        self.message.push_str("; ");
        self.message.push_str(more);
    }

    /// The same error as another kind (of `run`).
    #[must_use]
    pub(crate) fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// From a system call's error; `what` says what was tried.
    pub(crate) fn io(what: impl fmt::Display, source: &io::Error) -> Self {
        let errno = source.raw_os_error();
        let kind = match errno.map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ESRCH | Errno::ENOTDIR) => Kind::NotFound,
            Some(Errno::EACCES | Errno::EPERM) => Kind::Denied,
            Some(Errno::ENOTCONN | Errno::ECONNREFUSED) => Kind::NotRunning,
            _ => Kind::Refused,
        };
        let text = errno.map_or_else(
            || source.to_string(),
            |n| reason(n).unwrap_or_else(|| Errno::from_raw(n).desc()).to_owned(),
        );
        let mut error = Self::new(kind, format!("{what}: {text}"));
        error.errno = errno;
        match kind {
            Kind::NotRunning => error.hint("reservd has gone; start it with: reserv up"),
            Kind::Denied if !nix::unistd::geteuid().is_root() => {
                error.hint("only root may, or whom root has allowed it: 'reserv why PID NODE' says what a process may do; 'reserv allow' gives rights")
            }
            _ => error,
        }
    }

    /// From a system call on a file of the user's: what an errno means there is the kernel's.
    pub(crate) fn of_file(path: &std::path::Path, source: &io::Error) -> Self {
        let mut error = Self::refused(format!("{}: {source}", path.display()));
        error.errno = source.raw_os_error();
        error
    }

    /// What is printed on standard error.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("reserv: {}\n", self.message);
        if let Some(hint) = &self.hint {
            text.push_str("  hint: ");
            text.push_str(hint);
            text.push('\n');
        }
        text
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "error": {
            "kind": self.kind.word(),
            "message": self.message,
            "hint": self.hint,
            "errno": self.errno.map(|n| format!("{:?}", Errno::from_raw(n))),
        }})
    }
}

/// A readable refusal, on one line and with its hint.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_chooses_kind_and_words() {
        for (errno, kind) in [
            (Errno::ENOENT, Kind::NotFound),
            (Errno::ESRCH, Kind::NotFound),
            (Errno::EACCES, Kind::Denied),
            (Errno::EPERM, Kind::Denied),
            (Errno::ENOTCONN, Kind::NotRunning),
            (Errno::EINVAL, Kind::Refused),
            (Errno::EBUSY, Kind::Refused),
        ] {
            let error = Error::io("x", &io::Error::from_raw_os_error(errno as i32));
            assert_eq!(error.kind, kind, "{errno}");
            assert_eq!(error.to_json()["error"]["errno"], format!("{errno:?}"));
        }
    }
}
