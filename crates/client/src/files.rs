// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing the files, and why they refused.

use std::fs;
use std::io::{self, Write as _};

use reserv_control::plain;

use crate::calls;
use crate::error::{Error, Result, meaning};
use crate::place::Place;

/// Children that are named when one is not found.
const NAMED: usize = 5;

/// What was tried, for the words of its refusal.
pub(crate) struct Attempt<'a> {
    /// The node below the mount; or `proc/PID`.
    pub node: &'a str,
    /// What it was about: `share "x"`.
    pub about: String,
    /// What the daemon calls it in `status`: `write cpu/a share`.
    pub operation: String,
}

impl<'a> Attempt<'a> {
    pub(crate) fn reading(node: &'a str, file: &str) -> Self {
        Self { node, about: file.to_owned(), operation: String::new() }
    }

    pub(crate) fn writing(node: &'a str, file: &str, text: &str) -> Self {
        // The daemon's name for the file is one word.
        let word = if file == "cdefault" { "childdefault" } else { file };
        Self {
            node,
            about: format!("{file} {text:?}"),
            operation: format!("write {node} {word}").to_lowercase(),
        }
    }
}

impl Place {
    /// All of a file.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        self.way.read(path)
    }

    /// One command.
    pub(crate) fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.way.write(path, text)
    }

    /// Why an attempt failed, in words.
    pub(crate) fn explain(&self, attempt: &Attempt<'_>, source: &io::Error) -> Error {
        let errno = source.raw_os_error().unwrap_or(libc::EIO);
        let Attempt { node, about, operation } = attempt;
        if let Err(gone) = Self::find() {
            return gone;
        }
        if matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::ESRCH)
            && let Some(text) = self.missing(node)
        {
            return Error::new(if node.starts_with("proc/") { libc::ESRCH } else { errno }, text);
        }
        // What the mode of the file refuses, the daemon never hears of; an older refusal would be
        // somebody else's story.
        let file = written(operation);
        let known = errno != libc::ENOENT || file.is_none_or(|file| self.has(node, file));
        let daemons = known
            && !operation.is_empty()
            && (errno != libc::EACCES
                || file.is_some_and(|file| self.way.may_write(&format!("{node}/{file}"))));
        if let Some(reason) = daemons.then(|| self.refusal(operation)).flatten() {
            return Error::new(
                errno,
                if reason.starts_with(node) { reason } else { format!("{node}: {reason}") },
            );
        }
        if errno == libc::ENOENT {
            let files = self.files(node);
            return Error::new(
                errno,
                format!("{node}: {about}: it has no such file; it has {files}"),
            );
        }
        Error::new(errno, format!("{node}: {about}: {}", meaning(errno)))
    }

    /// The daemon's own words for the calling user's last refusal of this operation; `status` keeps
    /// the last ones.
    fn refusal(&self, operation: &str) -> Option<String> {
        let last =
            if self.way.asks_the_daemon() { self.way.refused()? } else { self.told(operation)? };
        Some(plain(&last).to_owned())
    }

    /// The same as `status` tells it.
    fn told(&self, operation: &str) -> Option<String> {
        let status = self.read("status").ok()?;
        let about = format!("uid {}: {operation}: ", calls::geteuid());
        let words = |line: &str| {
            Some(
                line.strip_prefix("refused ")?
                    .split_once(" ms: ")?
                    .1
                    .strip_prefix(&about)?
                    .to_owned(),
            )
        };
        status.lines().filter_map(words).next_back()
    }

    /// Why a node is not there; `None` if it is.
    fn missing(&self, node: &str) -> Option<String> {
        let mut above = String::new();
        for name in node.split('/') {
            let at = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            if self.way.is_dir(&at) {
                above = at;
                continue;
            }
            if let Some(pid) = node.strip_prefix("proc/") {
                return Some(format!("there is no process {pid}"));
            }
            let mut names: Vec<String> = self
                .children(&above)
                .unwrap_or_default()
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            names.retain(|n| {
                !above.is_empty() || !matches!(n.as_str(), "proc" | "self" | "container")
            });
            let more = if names.len() > NAMED { " …" } else { "" };
            names.truncate(NAMED);
            let there = if names.is_empty() {
                "it is a queue".to_owned()
            } else {
                format!("there is {}{more}", names.join(", "))
            };
            let above =
                if above.is_empty() { self.root.to_string_lossy().into_owned() } else { above };
            return Some(format!("there is no node {node:?}: {above} has no {name:?}; {there}"));
        }
        None
    }

    fn files(&self, node: &str) -> String {
        let mut names = self.way.files(node).unwrap_or_default();
        names.sort();
        names.join(", ")
    }

    /// Whether there is a file of a node.
    pub(crate) fn has(&self, node: &str, file: &str) -> bool {
        self.way.inode(&format!("{node}/{file}")).is_ok()
    }
}

/// The file of an operation that is a write.
fn written(operation: &str) -> Option<&str> {
    let (_, file) = operation.strip_prefix("write ")?.split_once(' ')?;
    // The daemon's name for the file is one word.
    Some(if file == "childdefault" { "cdefault" } else { file })
}

/// One command, in one write(2), to a file that is open.
pub(crate) fn command(file: &mut fs::File, text: &str) -> io::Result<()> {
    let mut line = String::with_capacity(text.len() + 1);
    line.push_str(text);
    line.push('\n');
    let written = file.write(line.as_bytes())?;
    if written == line.len() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
}

/// The name of a file of a node: `share`.
pub(crate) fn file_name(name: &str) -> Result<&str> {
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase()) {
        return Ok(name);
    }
    Err(Error::new(libc::EINVAL, format!("{name:?} is no file of a node; share and policy are")))
}
