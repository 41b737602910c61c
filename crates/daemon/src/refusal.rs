// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why something was refused: what every layer's error becomes.

use reserv_model::{Error, ErrorKind};
use reserv_plane::PlaneError;

/// Why something was refused: an errno for the caller, words for people. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// Positive.
    pub errno: i32,
    /// What was wrong.
    pub text: String,
    /// What would be right; may be empty.
    pub hint: String,
}

impl Refusal {
    /// Without a hint.
    pub fn new(errno: i32, text: impl Into<String>) -> Self {
        Self { errno, text: text.into(), hint: String::new() }
    }

    /// What a handle stood for is gone.
    pub fn gone() -> Self {
        Error::new(ErrorKind::Stale, "it is gone").into()
    }

    /// What another worker left in a file says nothing to this one. It goes on to hold, and so does
    /// what it is about.
    pub fn unreadable(path: &std::path::Path, why: impl std::fmt::Display) -> Self {
        Self {
            errno: libc::EIO,
            text: format!("{} is of another version of Reserv, or damaged: {why}", path.display()),
            hint: "start the version that wrote it; nothing was changed".into(),
        }
    }

    /// A journal that cannot be opened.
    pub fn unread(path: &std::path::Path, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::InvalidData => Self::unreadable(path, error),
            _ => error.into(),
        }
    }

    /// The kernel gives no thread to do `what` on.
    pub fn no_thread(what: &str, error: &std::io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
        Self::new(errno, format!("no thread to {what}: {error}"))
    }

    /// A request was not answered in time, because a resource's plane waits.
    pub fn no_answer() -> Self {
        Self {
            errno: libc::ETIMEDOUT,
            text: "no answer in time: the driver waits for somebody".into(),
            hint: "what was asked for may still happen".into(),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { errno: error.errno().code(), text: error.context, hint: error.hint }
    }
}

impl From<PlaneError> for Refusal {
    fn from(error: PlaneError) -> Self {
        let errno = match &error {
            PlaneError::NoNode(_) => libc::ESTALE,
            PlaneError::Busy(_) | PlaneError::Taken(_) => libc::EBUSY,
            PlaneError::TooMuch(_) => libc::E2BIG,
            PlaneError::Full(_) | PlaneError::Overtaken => libc::EAGAIN,
            PlaneError::Unsupported(_) | PlaneError::NotLoaded(_) => libc::EOPNOTSUPP,
            PlaneError::Invalid(_) => libc::EINVAL,
            PlaneError::NoProcess(_) => libc::ESRCH,
            PlaneError::Os { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        };
        Self::new(errno, error.to_string())
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), format!("journal: {error}"))
    }
}
