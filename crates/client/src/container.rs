// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers: the calling thread says for which one it works.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use reserv_facts::place::MOUNT;

use crate::calls::{self, BIND, BOUND, UNBIND};
use crate::descriptor::open_at;
use crate::error::{Error, Result};
use crate::page::told_by_call;
use crate::place::{Place, or_hidden, utf8};

/// The directory of all containers.
const TOP: &str = "container";

/// As people write it, `container/web/site1` or `web/site1` → its path below the mount.
fn named(place: &Place, text: &str) -> Result<String> {
    let mount = place.root.to_string_lossy();
    let places = [mount.trim_end_matches('/'), MOUNT];
    let below = places
        .into_iter()
        .find_map(|at| text.strip_prefix(at)?.strip_prefix('/')?.strip_prefix(TOP));
    let rest = match below {
        Some(rest) => rest,
        None if text.starts_with('/') => "",
        None => text.strip_prefix("container/").unwrap_or(text),
    };
    let names: Vec<&str> =
        rest.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.is_empty() || names.contains(&"..") || text == TOP {
        let text =
            format!("{text:?} names no container (as in web/site1 or /reserv/container/web/site1)");
        return Err(Error::new(libc::EINVAL, text));
    }
    Ok(format!("{TOP}/{}", names.join("/")))
}

/// The same, or the directory of all, for what has no parent: `""`.
pub(crate) fn top_or_named(place: &Place, path: &Path) -> Result<String> {
    let text = utf8(path)?;
    if text.is_empty() || text == TOP { Ok(TOP.to_owned()) } else { named(place, text) }
}

/// A descriptor of a container's directory, opened for reading: what [`bind`] wants.
pub fn open_container(container: impl AsRef<Path>) -> Result<OwnedFd> {
    let place = Place::find()?;
    open_at(&place, &named(&place, utf8(container.as_ref())?)?)
}

/// As borrowed.rs says.
pub(crate) fn bind(container: RawFd) -> Result<()> {
    calls::number(container, BIND, 0).map_err(|e| why_not(container, &e))?;
    told_by_call();
    Ok(())
}

/// As [`bind`](crate::bind), by the container's path.
pub fn bind_path(container: impl AsRef<Path>) -> Result<()> {
    bind(open_container(container)?.as_raw_fd())
}

/// The calling thread goes back to the queue that it had before it was bound first.
pub fn unbind() -> Result<()> {
    let place = Place::find()?;
    match calls::number(root(&place)?.as_raw_fd(), UNBIND, 0) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Err(unknown()),
        Err(e) => Err(Error::of("the thread's former queue", &e)),
        Ok(_) => {
            told_by_call();
            Ok(())
        }
    }
}

/// The container to which the calling thread is bound; `None`: to none.
pub fn bound() -> Result<Option<String>> {
    let place = Place::find()?;
    let index = match calls::number(root(&place)?.as_raw_fd(), BOUND, 0) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Err(unknown()),
        Err(e) => return Err(Error::of("the thread's container", &e)),
        Ok(index) => u64::try_from(index - 1).unwrap_or(0),
    };
    let node = place.path_of(0, |h| h.is_queue_dir() && h.index() == index);
    let found = node.and_then(|node| owner(&place, &node));
    let gone =
        || Error::new(libc::ESTALE, format!("the thread's container is gone{}", or_hidden()));
    found.map(|container| Some(place.shown(&container))).ok_or_else(gone)
}

/// The container that owns a node of the CPU: it has the node's path, unless somebody moved that.
fn owner(place: &Place, node: &str) -> Option<String> {
    let (resource, path) = node.split_once('/')?;
    let owns = |container: &str| {
        let nodes = place.read(&format!("{container}/nodes")).unwrap_or_default();
        nodes.lines().any(|line| line.split(' ').take(2).eq([resource, path]))
    };
    let likely = format!("{TOP}/{path}");
    if owns(&likely) {
        return Some(likely);
    }
    let mut todo = vec![TOP.to_owned()];
    while let Some(dir) = todo.pop() {
        for (name, _) in place.children(&dir).unwrap_or_default() {
            let container = format!("{dir}/{name}");
            if owns(&container) {
                return Some(container);
            }
            todo.push(container);
        }
    }
    None
}

pub(crate) fn root(place: &Place) -> Result<File> {
    File::open(&place.root).map_err(|e| Error::of(place.root.display(), &e))
}

pub(crate) fn unknown() -> Error {
    let text = "a thread's binding needs Reserv's full driver of the CPU, with its hook of fcntl ('reserv doctor' says why it is missing); \
                'reserv run --in' and a container's members bind whole processes";
    Error::new(libc::EOPNOTSUPP, text)
}

pub(crate) fn why_not(container: RawFd, e: &io::Error) -> Error {
    let errno = e.raw_os_error().unwrap_or(libc::EIO);
    if !calls::is_open(container) {
        return Error::new(libc::EBADF, format!("descriptor {container} is not open"));
    }
    let text = match errno {
        libc::EBADF => "was opened with O_PATH or for writing alone; open it for reading",
        libc::EACCES => "no right to use this container",
        libc::ESTALE => "the container is gone, or its node was made anew since this was opened",
        libc::EAGAIN => "the container's queue drains, or has as many members as it may have",
        libc::EINVAL => {
            match Place::find()
                .and_then(|place| Ok(calls::number(root(&place)?.as_raw_fd(), BOUND, 0)))
            {
                Err(error) => return error,
                Ok(Err(e)) if e.raw_os_error() == Some(libc::EINVAL) => return unknown(),
                Ok(_) => "neither the directory nor the share of a container that holds threads",
            }
        }
        _ => return Error::of(format!("descriptor {container}"), e),
    };
    Error::new(errno, format!("descriptor {container}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::way::Way;

    #[test]
    fn names_of_containers() {
        let place = Place { root: "/mnt/x".into(), dev: 0, way: Way::Mount("/mnt/x".into()) };
        for text in [
            "web/a",
            "container/web/a",
            "/mnt/x/container/web/a",
            "/reserv/container/web//a",
            "./web/a",
        ] {
            assert_eq!(named(&place, text).unwrap(), "container/web/a", "{text}");
        }
        for text in ["", "container", "/etc/passwd", "web/../a", "/mnt/x/container", "/"] {
            let error = named(&place, text).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL);
            assert!(error.text().contains(&format!("{text:?}")), "{error}");
        }
    }
}
