// SPDX-License-Identifier: MIT OR Apache-2.0
//! How people name nodes.
//!
//! ```text
//! path     = mounted | resource [ "/" names ] | "container" "/" names | names
//! mounted  = <mount point> "/" resource [ "/" names ]
//! names    = name *( "/" name )
//! ```
//! A path whose first name is a resource starts there; any other starts at `cpu`. A node of the CPU
//! that has a resource's name is reached as `cpu/NAME`; so is one that is called container.

use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::error::Error;
use crate::fs::Files;

/// The resource that is meant where none is named. It is always there.
const USUAL: &str = "cpu";

/// Where paths begin.
pub(crate) trait Place {
    /// The mount point, for paths that begin with it.
    fn mount(&self) -> &Path;
    /// Whether a resource of this name runs: whatever stands in the mount's root and has a share.
    fn has(&self, name: &str) -> bool;
}

/// The mount, asked itself.
#[derive(Debug)]
pub(crate) struct Mount(pub PathBuf);

impl Place for Mount {
    fn mount(&self) -> &Path {
        &self.0
    }

    fn has(&self, name: &str) -> bool {
        let found = self.0.join(name).join("share").symlink_metadata();
        found.map_or_else(|error| crate::fs::late(&error), |_| true)
    }
}

/// A node, as a path below the mount point: `cpu/web/site1`.
#[derive(Clone)]
pub(crate) struct NodePath {
    path: String,
    place: Rc<dyn Place>,
}

impl PartialEq for NodePath {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for NodePath {}

/// For programs: always with the resource's name.
impl serde::Serialize for NodePath {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.path)
    }
}

impl fmt::Debug for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// What stands before the path of a container, as a resource's name before that of a node.
pub(crate) const CONTAINERS: &str = "container";

/// Whether a path may begin with this name.
fn begins(name: &str, place: &dyn Place) -> bool {
    name == CONTAINERS || is_resource(name, place)
}

fn is_resource(name: &str, place: &dyn Place) -> bool {
    name == USUAL || place.has(name)
}

impl NodePath {
    /// Understand what was typed.
    pub(crate) fn parse(text: &str, place: &Rc<dyn Place>) -> Result<Self, Error> {
        let wrong = |why: &str| Error::usage(format!("'{text}' names no node: {why}"));
        let mut rest = text;
        if text.starts_with('/') {
            let mount = place.mount().to_string_lossy();
            // The usual place is understood wherever /reserv really is.
            let below = [mount.trim_end_matches('/'), "/reserv"]
                .into_iter()
                .filter_map(|mount| text.strip_prefix(mount))
                .find(|below| below.is_empty() || below.starts_with('/'));
            rest = below.ok_or_else(|| wrong(&format!("it is not below {mount}")))?;
        }
        let names: Vec<&str> =
            rest.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
        if names.contains(&"..") {
            return Err(wrong("'..' is not followed; write the path from the resource on"));
        }
        if text.bytes().any(|b| b == b'\n' || b == 0) {
            return Err(wrong("it contains a line feed or a zero byte"));
        }
        if names.is_empty() {
            return Err(wrong(
                "write 'cpu' for the resource itself, or a path such as 'web/site1'",
            ));
        }
        let mut path = names.join("/");
        if !begins(names[0], &**place) {
            if text.starts_with('/') {
                return Err(wrong(&format!("'{}' is no resource; there is '{USUAL}'", names[0])));
            }
            path = format!("{USUAL}/{path}");
        }
        Ok(Self { path, place: place.clone() })
    }

    /// Every resource that runs: the CPU, then the others by name.
    pub(crate) fn resources(files: &dyn Files) -> Vec<Self> {
        let place = files.place();
        let mut names = files.list("").map(|listing| listing.dirs).unwrap_or_default();
        names.retain(|name| name != USUAL && is_resource(name, &**place));
        names.insert(0, USUAL.to_owned());
        names.into_iter().map(|path| Self { path, place: place.clone() }).collect()
    }

    fn at(&self, path: String) -> Self {
        Self { path, place: self.place.clone() }
    }

    /// Below the mount point.
    pub(crate) fn as_str(&self) -> &str {
        &self.path
    }

    /// The node above; `None` for a resource.
    pub(crate) fn parent(&self) -> Option<Self> {
        self.path.rsplit_once('/').map(|(parent, _)| self.at(parent.to_owned()))
    }

    /// The last name.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }

    /// A child.
    pub(crate) fn join(&self, name: &str) -> Self {
        self.at(format!("{}/{name}", self.path))
    }

    /// A file of this node.
    pub(crate) fn file(&self, file: &str) -> String {
        format!("{}/{file}", self.path)
    }

    /// The name of its resource.
    pub(crate) fn resource(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// Whether this is a container, or what holds those without a parent.
    pub(crate) fn is_container(&self) -> bool {
        self.resource() == CONTAINERS
    }

    /// Whether this is a resource and not a node of one.
    pub(crate) fn is_resource(&self) -> bool {
        !self.path.contains('/')
    }
}

/// As people write it: without the resource where that is clear.
impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.strip_prefix(USUAL).and_then(|rest| rest.strip_prefix('/')) {
            Some(rest) if !begins(rest.split('/').next().unwrap_or(""), &*self.place) => {
                f.write_str(rest)
            }
            _ => f.write_str(&self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mount: impl Into<PathBuf>) -> Rc<dyn Place> {
        Rc::new(Mount(mount.into()))
    }

    fn parse(text: &str) -> Result<NodePath, Error> {
        NodePath::parse(text, &at("/reserv"))
    }

    #[test]
    fn three_forms_are_one_node() {
        for text in
            ["web/site1", "cpu/web/site1", "/reserv/cpu/web/site1", "web/site1/", "./web//site1"]
        {
            let path = parse(text).unwrap();
            assert_eq!(path.as_str(), "cpu/web/site1", "{text}");
            assert_eq!(path.to_string(), "web/site1");
            assert_eq!(path.name(), "site1");
            assert_eq!(path.parent().unwrap().to_string(), "web");
        }
        assert_eq!(parse("cpu").unwrap().as_str(), "cpu");
        assert!(parse("/reserv/cpu/").unwrap().is_resource());
        assert_eq!(parse("cpu/cpu").unwrap().to_string(), "cpu/cpu");
        for text in ["/reserv/cpu/a", "/mnt/x/cpu/a"] {
            assert_eq!(NodePath::parse(text, &at("/mnt/x/")).unwrap().to_string(), "a");
        }
    }

    #[test]
    fn what_prints_parses_back() {
        for text in
            ["cpu", "cpu/cpu", "cpu/cpu/a", "a", "a/cpu", "container/web", "cpu/container/web"]
        {
            let path = parse(text).unwrap();
            assert_eq!(parse(&path.to_string()).unwrap(), path);
        }
    }

    #[test]
    fn a_resource_is_what_runs_at_the_mount() {
        let dir = tempfile::tempdir().unwrap();
        let parse = |text: &str| NodePath::parse(text, &at(dir.path())).unwrap();
        assert_eq!(parse("disk/web").as_str(), "cpu/disk/web");
        assert_eq!(parse("disk/web").to_string(), "disk/web");
        std::fs::create_dir(dir.path().join("disk")).unwrap();
        std::fs::write(dir.path().join("disk/share"), "100 0").unwrap();
        assert!(parse("disk").is_resource());
        assert_eq!(parse("disk/web").as_str(), "disk/web");
        assert_eq!(parse("disk/web").to_string(), "disk/web");
        assert_eq!(parse("cpu/disk").to_string(), "cpu/disk", "the CPU's node of that name");
    }

    #[test]
    fn other_paths_are_refused() {
        for text in [
            "",
            "/",
            "/etc/passwd",
            "/reservcpu/a",
            "/reserv",
            "../cpu",
            "web/../x",
            "a\nb",
            "/reserv/web",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
