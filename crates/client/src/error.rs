// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors: a number for programs, words for people.

use std::fmt;

/// Why a call failed. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    errno: i32,
    text: String,
}

/// Of every call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// What the system says, about something.
    pub(crate) fn of(about: impl fmt::Display, source: &std::io::Error) -> Self {
        let errno = source.raw_os_error().unwrap_or(libc::EIO);
        Self::new(errno, format!("{about}: {}", words(errno)))
    }

    /// As in errno(3).
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// One line without a full stop.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The system's words for an errno.
pub(crate) fn words(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// What it means when it comes from /reserv: the words of the commands.
pub(crate) fn meaning(errno: i32) -> String {
    reserv_control::reason(errno).map_or_else(|| words(errno), str::to_owned)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        // The kind of the errno, with our words.
        Self::new(Self::from_raw_os_error(error.errno).kind(), error)
    }
}
