// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing the files, and why they refused.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use crate::calls;
use crate::error::{Error, Result, words};
use crate::place::Place;

/// Nearly every text in one read(2): each is a call of the daemon.
const READ: usize = 4096;
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
        let mut file = fs::File::open(self.full(path))?;
        let mut text = vec![0; READ];
        let mut length = 0;
        loop {
            match file.read(&mut text[length..]) {
                Ok(got) => length += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            if length < text.len() {
                text.truncate(length);
                return String::from_utf8(text).map_err(|_| io::Error::from_raw_os_error(libc::EILSEQ));
            }
            text.resize(2 * length, 0);
        }
    }

    /// One command, in one write(2).
    pub(crate) fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.full(path))?;
        command(&mut file, text)
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
        // What the mode of the file refuses, the daemon never hears of; an older refusal would be somebody else's story.
        let daemons = !operation.is_empty() && (errno != libc::EACCES || self.mode_allows(operation));
        if let Some(reason) = daemons.then(|| self.refusal(operation)).flatten() {
            return Error::new(
                errno,
                if reason.starts_with(node) { reason } else { format!("{node}: {reason}") },
            );
        }
        if errno == libc::ENOENT {
            let files = self.files(node);
            return Error::new(errno, format!("{node}: {about}: it has no such file; it has {files}"));
        }
        Error::new(errno, format!("{node}: {about}: {}", words(errno)))
    }

    fn mode_allows(&self, operation: &str) -> bool {
        let mut parts = operation.splitn(3, ' ');
        let (Some("write"), Some(node), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
            return false;
        };
        let file = if file == "childdefault" { "cdefault" } else { file };
        OpenOptions::new().write(true).open(self.full(&format!("{node}/{file}"))).is_ok()
    }

    /// The daemon's own words for the calling user's last refusal of this operation; `status` keeps the last ones.
    fn refusal(&self, operation: &str) -> Option<String> {
        let status = self.read("status").ok()?;
        let about = format!("uid {}: {operation}: ", calls::geteuid());
        let last = status
            .lines()
            .filter_map(|line| line.strip_prefix("refused ")?.split_once(" ms: ")?.1.strip_prefix(&about))
            .next_back()?;
        // It may put the file's name before its words twice.
        Some(match last.split_once(": ") {
            Some((first, rest)) if rest.starts_with(&format!("{first}: ")) => rest.to_owned(),
            _ => last.to_owned(),
        })
    }

    /// Why a node is not there; `None` if it is.
    fn missing(&self, node: &str) -> Option<String> {
        let mut above = String::new();
        for name in node.split('/') {
            let at = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            if self.full(&at).is_dir() {
                above = at;
                continue;
            }
            if let Some(pid) = node.strip_prefix("proc/") {
                return Some(format!("there is no process {pid}"));
            }
            let mut names: Vec<String> =
                self.children(&above).unwrap_or_default().into_iter().map(|(name, _)| name).collect();
            names.retain(|n| !above.is_empty() || (n != "proc" && n != "self"));
            let more = if names.len() > NAMED { " …" } else { "" };
            names.truncate(NAMED);
            let there = if names.is_empty() {
                "it is a queue".to_owned()
            } else {
                format!("there is {}{more}", names.join(", "))
            };
            let above = if above.is_empty() { self.root.to_string_lossy().into_owned() } else { above };
            return Some(format!("there is no node {node:?}: {above} has no {name:?}; {there}"));
        }
        None
    }

    fn files(&self, node: &str) -> String {
        let mut names: Vec<String> = fs::read_dir(self.full(node))
            .into_iter()
            .flatten()
            .filter_map(|e| {
                let e = e.ok()?;
                e.file_type().ok()?.is_file().then(|| e.file_name().to_string_lossy().into_owned())
            })
            .collect();
        names.sort();
        names.join(", ")
    }

    /// Whether there is a file of a node.
    pub(crate) fn has(&self, node: &str, file: &str) -> bool {
        fs::symlink_metadata(self.full(node).join(std::ffi::OsStr::from_bytes(file.as_bytes()))).is_ok()
    }
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
