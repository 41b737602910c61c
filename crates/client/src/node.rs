// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making, changing and deleting nodes.

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{Attempt, file_name};
use crate::place::Place;

/// What becomes of members when a node is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// Refused while there are members or children.
    Refuse,
    /// The queue takes no new members, and goes with the last one.
    Drain,
    /// Members go to `q0`, and the queue goes at once.
    Flush,
}

/// The node above, and the last name.
fn split(node: &str) -> Result<(&str, &str)> {
    node.rsplit_once('/').ok_or_else(|| {
        Error::new(
            libc::EINVAL,
            format!("{node:?} is a resource, which is there from the start; name a node below it"),
        )
    })
}

fn fresh(parent: &Path, file: &str) -> Result<(OwnedFd, String)> {
    let place = Place::find()?;
    let parent = place.node(parent)?;
    let attempt =
        Attempt { node: &parent, about: file.to_owned(), operation: "open newqueue".to_owned() };
    let made =
        OpenOptions::new().read(true).write(true).open(place.full(&format!("{parent}/{file}")));
    let fd = OwnedFd::from(made.map_err(|e| {
        if e.raw_os_error() == Some(libc::ENOENT) && place.has(&parent, "class") {
            return Error::new(libc::ENOTDIR, format!("{parent} is a queue and has no children"));
        }
        place.explain(&attempt, &e)
    })?);
    let id = place.handle(fd.as_raw_fd())?.id;
    let children = place.children(&parent).map_err(|e| place.explain(&attempt, &e))?;
    let name =
        children.into_iter().find(|(_, ino)| ino & 0xffff_ffff_ffff == id).map(|(name, _)| name);
    let name = name.ok_or_else(|| {
        Error::new(libc::ESTALE, format!("{parent}: the new node is gone already"))
    })?;
    Ok((fd, place.shown(&format!("{parent}/{name}"))))
}

/// Makes a numbered queue, `q0`, `q1` …, with weight 0: a descriptor of its `share` file, and its
/// path.
pub fn newqueue(parent: impl AsRef<Path>) -> Result<(OwnedFd, String)> {
    fresh(parent.as_ref(), "newqueue")
}

/// Makes a numbered scheduler node, `r0`, `r1` …, as [`newqueue`] does a queue.
pub fn newsched(parent: impl AsRef<Path>) -> Result<(OwnedFd, String)> {
    fresh(parent.as_ref(), "newsched")
}

fn mk(node: &Path, kind: &str, share: Option<&str>) -> Result<()> {
    let place = Place::find()?;
    let node = place.node(node)?;
    let (parent, name) = split(&node)?;
    let text =
        share.map_or_else(|| format!("{kind} {name}"), |share| format!("{kind} {name} {share}"));
    place.write(&format!("{parent}/mk"), &text).map_err(|e| {
        if e.raw_os_error() == Some(libc::ENOENT) && place.has(parent, "class") {
            return Error::new(libc::ENOTDIR, format!("{parent} is a queue and has no children"));
        }
        place.explain(&Attempt::writing(parent, "mk", &text), &e)
    })
}

/// Makes a queue by name; `share` is as in its file, and 100 where none is given.
pub fn mkqueue(node: impl AsRef<Path>, share: Option<&str>) -> Result<()> {
    mk(node.as_ref(), "queue", share)
}

/// Makes a scheduler node by name, as [`mkqueue`] does a queue.
pub fn mksched(node: impl AsRef<Path>, share: Option<&str>) -> Result<()> {
    mk(node.as_ref(), "scheduler", share)
}

/// Deletes a node.
pub fn delete(node: impl AsRef<Path>, how: Delete) -> Result<()> {
    let place = Place::find()?;
    let node = place.node(node)?;
    let (parent, name) = split(&node)?;
    let word = match how {
        Delete::Refuse => {
            let operation = format!("rmdir {name} {parent} schedulerdir");
            return place.way.rmdir(&node).map_err(|e| {
                let about = match e.raw_os_error() {
                    Some(libc::ENOTEMPTY) => "it has children; delete them first",
                    Some(libc::EBUSY) => "it has members, or drains; drain or flush it",
                    _ => "it is not deleted",
                };
                place.explain(&Attempt { node: &node, about: about.to_owned(), operation }, &e)
            });
        }
        Delete::Drain => "drain",
        Delete::Flush => "flush",
    };
    place.write(&format!("{node}/state"), word).map_err(|e| {
        if e.raw_os_error() == Some(libc::ENOENT) && place.has(&node, "newqueue") {
            let text = format!(
                "{node} is a scheduler node, which has no members to {word}; delete what is below it first"
            );
            return Error::new(libc::EINVAL, text);
        }
        place.explain(&Attempt::writing(&node, "state", word), &e)
    })
}

/// Renames a node, or moves it with what is below it; `to` is its new path. A node that is there is
/// never replaced.
pub fn move_node(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let place = Place::find()?;
    let (from, to) = (place.node(from)?, place.node(to)?);
    let (parent, name) = split(&from)?;
    let (into, _) = split(&to)?;
    place.way.rename(&from, &to).map_err(|e| {
        // The place it should go to may be what is missing.
        let missing = matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
            && place.way.is_dir(&from);
        let node = if missing { into } else { &from };
        let operation =
            if missing { String::new() } else { format!("mv {name} {parent} schedulerdir") };
        place.explain(&Attempt { node, about: format!("it cannot become {to:?}"), operation }, &e)
    })
}

/// Writes a value to a file of a node: `share`, `policy`, `class`, `cap`, `tune` and the others of
/// reserv(7).
pub fn set(node: impl AsRef<Path>, file: &str, value: &str) -> Result<()> {
    let place = Place::find()?;
    let (node, file) = (place.node(node)?, file_name(file)?);
    place
        .write(&format!("{node}/{file}"), value)
        .map_err(|e| place.explain(&Attempt::writing(&node, file, value), &e))
}

/// What a file of a node says, without the newline at the end.
pub fn get(node: impl AsRef<Path>, file: &str) -> Result<String> {
    let place = Place::find()?;
    let (node, file) = (place.node(node)?, file_name(file)?);
    let text = place
        .read(&format!("{node}/{file}"))
        .map_err(|e| place.explain(&Attempt::reading(&node, file), &e))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// Sets the share of a node: `24`, `=25%`, `10 250ms/s`.
pub fn reweight(node: impl AsRef<Path>, share: &str) -> Result<()> {
    set(node, "share", share)
}

/// Says whether a node is to be collected when nothing refers to it.
pub fn set_collect(node: impl AsRef<Path>, on: bool) -> Result<()> {
    set(node, "gc", if on { "1" } else { "0" })
}

/// Whether a node is collected when nothing refers to it.
pub fn get_collect(node: impl AsRef<Path>) -> Result<bool> {
    let node = node.as_ref();
    let text = get(node, "gc")?;
    match text.split_whitespace().next() {
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        _ => Err(Error::new(
            libc::EPROTO,
            format!("{}: gc says {text:?}, which is neither 0 nor 1", node.display()),
        )),
    }
}
