// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rm` and `mv`: nodes go, or stand somewhere else.

use super::is_scheduler;
use crate::args::Rm;
use crate::error::Error;
use crate::fs::{Files, explain, missing, writing};
use crate::path::NodePath;

/// What became of a node that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Removed {
    /// It is gone.
    Deleted,
    /// It goes when its last member has left.
    Draining,
}

/// Delete one node.
pub(crate) fn rm(files: &dyn Files, text: &str, args: &Rm) -> Result<(NodePath, Removed), Error> {
    let path = NodePath::parse(text, files.place())?;
    if path.is_container() && !path.is_resource() {
        return crate::container::rm(files, path, args).map(|path| (path, Removed::Deleted));
    }
    if path.is_container() {
        return Err(Error::refused("what holds all containers stays")
            .hint("one of them goes with: reserv rm container/NAME"));
    }
    if path.is_resource() {
        return Err(Error::refused(format!("'{path}' is a resource and cannot be deleted"))
            .hint("'reserv down' gives it back to the kernel"));
    }
    if let Some(error) = missing(files, &path) {
        return Err(error);
    }
    // Only queues have members; each way is one edit.
    if (args.drain || args.flush) && files.read(&path.file("class")).is_ok() {
        files.write(&path.file("state"), if args.flush { "flush" } else { "drain" }).map_err(
            |e| explain(files, &path, "cannot be deleted", &writing(&path, "state"), &e),
        )?;
        let how = if files.is_dir(path.as_str()) { Removed::Draining } else { Removed::Deleted };
        return Ok((path, how));
    }
    match files.rmdir(path.as_str()) {
        Ok(()) => Ok((path, Removed::Deleted)),
        Err(e) => {
            let parent = path.parent().unwrap_or_else(|| path.clone());
            let operation =
                format!("rmdir {} {} schedulerdir", path.name(), parent.as_str().to_lowercase());
            let mut error = explain(files, &path, "cannot be deleted", &operation, &e);
            match e.raw_os_error() {
                Some(libc::ENOTEMPTY) => {
                    error = error.hint(format!(
                        "delete its children first; 'reserv tree {path}' shows them"
                    ));
                }
                Some(libc::EBUSY) => {
                    let members = members(files, &path);
                    error.message = if members > 0 {
                        format!(
                            "'{path}' has {members} member{}",
                            if members == 1 { "" } else { "s" }
                        )
                    } else {
                        format!("'{path}' is in use and stays")
                    };
                    error = error
                        .hint("--drain deletes it when they have left, --flush moves them to q0");
                }
                _ => {}
            }
            Err(error)
        }
    }
}

fn members(files: &dyn Files, path: &NodePath) -> usize {
    files
        .read(&path.file("members"))
        .map_or(0, |text| text.lines().filter(|line| !line.is_empty()).count())
}

/// Rename or move a node; answers its new path.
pub(crate) fn mv(files: &dyn Files, from: &str, to: &str) -> Result<(NodePath, NodePath), Error> {
    let from = NodePath::parse(from, files.place())?;
    let mut to = NodePath::parse(to, files.place())?;
    if let Some(error) = missing(files, &from) {
        return Err(error);
    }
    if from.is_resource() {
        return Err(Error::refused(format!("'{from}' is a resource and keeps its place")));
    }
    if files.is_dir(to.as_str()) && is_scheduler(files, &to) && to != from {
        to = to.join(from.name());
    }
    if to.as_str().starts_with(&format!("{from}/", from = from.as_str())) {
        return Err(Error::refused(format!("'{from}' cannot be moved below itself")));
    }
    if files.is_dir(to.as_str()) {
        return Err(Error::refused(format!("there is a node '{to}' already")));
    }
    files.rename(from.as_str(), to.as_str()).map_err(|e| {
        if let Some(error) = to.parent().and_then(|parent| missing(files, &parent)) {
            return error;
        }
        let parent = from.parent().unwrap_or_else(|| from.clone());
        let operation =
            format!("mv {} {} schedulerdir", from.name(), parent.as_str().to_lowercase());
        explain(files, &from, &format!("cannot become '{to}'"), &operation, &e)
    })?;
    Ok((from, to))
}
