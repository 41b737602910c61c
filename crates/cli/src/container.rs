// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers: `mk --container`, `run --in`, `rm`, `tree container` and `stat` of one. A
//! container's path begins with `container`, which these commands understand and may be left out
//! after `--container` and `--in`.

use std::fmt::Write as _;

use serde::Serialize;

use crate::args::{Mk, Rm};
use crate::error::Error;
use crate::fs::{Files, explain, missing, writing};
use crate::path::{CONTAINERS, NodePath};

/// A container's path, with or without what stands before it.
pub(crate) fn path(files: &dyn Files, text: &str) -> Result<NodePath, Error> {
    let mount = files.place().mount().to_string_lossy().into_owned();
    let below = text.strip_prefix(&mount).unwrap_or(text).trim_start_matches('/');
    let names =
        below.strip_prefix(CONTAINERS).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let names = names.unwrap_or(below).trim_matches('/');
    if names.is_empty() {
        return Err(Error::usage(format!(
            "'{text}' names no container: write a path such as web/site1"
        )));
    }
    NodePath::parse(&format!("{CONTAINERS}/{names}"), files.place())
}

pub(crate) fn there(files: &dyn Files, path: &NodePath) -> Result<(), Error> {
    let absent = |mut error: Error| {
        error.message = format!("there is no '{path}'");
        Err(error)
    };
    missing(files, path).map_or(Ok(()), absent)
}

/// The same of one that has files: not of what holds those without a parent.
pub(crate) fn has_files(files: &dyn Files, path: &NodePath) -> Result<(), Error> {
    if path.is_resource() {
        return Err(Error::usage(format!("'{path}' is no container, but where they are"))
            .hint("name one, container/web; or a resource, cpu"));
    }
    there(files, path)
}

/// The nodes that one owns, as far as they are there.
pub(crate) fn nodes(files: &dyn Files, path: &NodePath) -> Result<Vec<NodePath>, Error> {
    let text = files
        .read(&path.file("nodes"))
        .map_err(|e| explain(files, path, "its nodes cannot be read", "", &e))?;
    let node = |line: &str| {
        let mut words = line.split(' ');
        let (resource, names) = (words.next()?, words.next().filter(|names| *names != "-")?);
        NodePath::parse(&format!("{resource}/{names}"), files.place()).ok()
    };
    Ok(text.lines().filter_map(node).collect())
}

/// Make one, in the tree of every resource or in none.
pub(crate) fn mk(files: &dyn Files, args: &Mk, named: &str) -> Result<NodePath, Error> {
    let path = path(files, named)?;
    if args.cap.is_some() || args.class.is_some() || args.policy.is_some() {
        let error = Error::usage("cap, class and policy are one resource's: set them at a node");
        return Err(error.hint(format!("reserv set cpu/{} cap=1cpu", below(&path))));
    }
    let parent = path.parent().ok_or_else(|| Error::usage("a container's path has a name"))?;
    there(files, &parent)?;
    let kind = if args.sched { "scheduler" } else { "queue" };
    files.write(&parent.file("mk"), &format!("{kind} {} {}", path.name(), args.share)).map_err(
        |e| {
            let holds_threads =
                matches!(e.raw_os_error(), Some(libc::ENOENT)) && files.is_dir(parent.as_str());
            if holds_threads {
                let error = Error::refused(format!("'{parent}' holds threads, not containers"));
                return error.hint(format!(
                    "make one for containers: reserv mk --container --sched {parent}"
                ));
            }
            explain(files, &path, "cannot be made", &writing(&parent, "mk"), &e)
        },
    )?;
    Ok(path)
}

/// The path in a resource's tree.
pub(crate) fn below(path: &NodePath) -> &str {
    path.as_str().split_once('/').map_or("", |(_, names)| names)
}

/// Bind the calling process, with all that it will start.
pub(crate) fn enter(files: &dyn Files, text: &str) -> Result<(), Error> {
    let path = path(files, text)?;
    there(files, &path)?;
    files.write(&path.file("members"), "self").map_err(|e| {
        if e.raw_os_error() == Some(libc::ENOENT) {
            return Error::refused(format!("'{path}' holds containers, not threads"))
                .hint(format!("run in one of those in it: reserv tree {path}"));
        }
        explain(files, &path, "nothing can be run in it", &writing(&path, "members"), &e)
    })
}

/// One goes.
pub(crate) fn rm(files: &dyn Files, path: NodePath, args: &Rm) -> Result<NodePath, Error> {
    if args.drain || args.flush {
        return Err(Error::usage("--drain and --flush are of nodes")
            .hint("a container with gc=1 goes when nothing refers to it"));
    }
    there(files, &path)?;
    files.rmdir(path.as_str()).map_err(|e| {
        let above = path.parent().map_or_else(String::new, |above| above.as_str().to_lowercase());
        let operation = format!("rmdir {} {above} dir", path.name());
        let mut error = explain(files, &path, "cannot be removed", &operation, &e);
        if e.raw_os_error() == Some(libc::ENOTEMPTY) {
            error =
                error.hint(format!("remove those in it first; 'reserv tree {path}' shows them"));
        }
        error
    })?;
    Ok(path)
}

/// What is shown of one.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    /// Below all containers; for programs as commands take it.
    #[serde(serialize_with = "as_commands_take_it")]
    path: String,
    share: String,
    /// Lines of `nodes`.
    nodes: Vec<String>,
    members: usize,
}

fn as_commands_take_it<S: serde::Serializer>(path: &str, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{CONTAINERS}/{path}"))
}

/// A container and those in it, in order of names.
pub(crate) fn load(files: &dyn Files, path: &NodePath) -> Result<Vec<Shown>, Error> {
    if path.as_str() != CONTAINERS {
        there(files, path)?;
    }
    let mut all = Vec::new();
    let mut open = vec![path.clone()];
    while let Some(at) = open.pop() {
        let unread = |e: &std::io::Error| explain(files, &at, "cannot be read", "", e);
        if at.as_str() != CONTAINERS {
            let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
            let nodes = files.read(&at.file("nodes")).map(lines).map_err(|e| unread(&e))?;
            let share =
                files.read(&at.file("share")).map_err(|e| unread(&e))?.trim_end().to_owned();
            let members = files.read(&at.file("members")).map_or(0, |text| text.lines().count());
            all.push(Shown { path: below(&at).to_owned(), share, nodes, members });
        }
        let children = files.list(at.as_str()).map_err(|e| unread(&e))?.dirs;
        open.extend(children.iter().rev().map(|name| at.join(name)));
    }
    Ok(all)
}

/// A line for each, and where its nodes are not as it says.
pub(crate) fn draw(all: &[Shown]) -> String {
    let wide = all.iter().map(|shown| shown.path.len()).max().unwrap_or(0).max("CONTAINER".len());
    let mut out = format!("{:wide$}  SHARE  BOUND  IN\n", "CONTAINER");
    for shown in all {
        let usual = format!(" {} {} 0", shown.path, shown.share);
        let of = |line: &String| match line.strip_suffix(&usual) {
            Some(resource) => resource.to_owned(),
            None => line.clone(),
        };
        let nodes: Vec<String> = shown.nodes.iter().map(of).collect();
        let (share, members) = (&shown.share, shown.members);
        let _ =
            writeln!(out, "{:wide$}  {share:>5}  {members:>5}  {}", shown.path, nodes.join(", "));
    }
    out
}

/// What one has used: the lines of the file, and the same as an object.
pub(crate) fn usage(
    files: &dyn Files,
    path: &NodePath,
) -> Result<(String, serde_json::Value), Error> {
    there(files, path)?;
    let text = files
        .read(&path.file("usage"))
        .map_err(|e| explain(files, path, "cannot be read", "", &e))?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    // Of a resource that does not answer it is words.
    let value =
        |text: &str| text.parse::<u64>().map_or_else(|_| text.into(), serde_json::Value::from);
    let object = pairs.map(|(key, text)| (key.to_owned(), value(text)));
    Ok((text.clone(), serde_json::Value::Object(object.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::fake::Fake;

    #[test]
    fn a_path_is_the_same_with_and_without_the_word() {
        let fake = Fake::new();
        let mount = fake.place().mount().to_string_lossy().into_owned();
        for text in [
            "web/site1",
            "container/web/site1",
            &format!("{mount}/container/web/site1"),
            "web/site1/",
        ] {
            assert_eq!(path(&fake, text).unwrap().as_str(), "container/web/site1", "{text}");
        }
        assert_eq!(path(&fake, "containers").unwrap().as_str(), "container/containers");
        for text in ["", "/", "container", "container/"] {
            assert!(path(&fake, text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_differs_from_the_share_is_shown() {
        let shown = Shown {
            path: "web/site1".into(),
            share: "24".into(),
            nodes: vec![
                "cpu web/site1 24 0".into(),
                "net0 web/site1 5 0".into(),
                "vda - taken".into(),
            ],
            members: 2,
        };
        let text = draw(&[shown]);
        assert!(
            text.ends_with("web/site1     24      2  cpu, net0 web/site1 5 0, vda - taken\n"),
            "{text}"
        );
    }
}
