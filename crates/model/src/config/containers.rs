// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers in a configuration: what is to be made or changed. Those that it does not name stay.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::words::{read_share, read_some_access, write_share, write_some_access};
use super::{default_share, is_default};
use crate::{
    AccessChange, ContainerEdit, Containers, DeleteMode, Driver, Error, ErrorKind, Holds,
    NewContainer, NodeConfig, NodePath, NodeRef, Request, ResourceConfig, ResourceKind, Share,
    Source, Tree, diff_as_asked, difference_of_access, to_config,
};

/// `[container."web/site1"]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerConfig {
    /// Threads, unless it says containers.
    #[serde(default = "threads")]
    pub holds: Holds,
    /// Of all resources, as in a share file.
    #[serde(
        default = "default_share",
        serialize_with = "write_share",
        deserialize_with = "read_share"
    )]
    pub share: Share,
    /// Released when nothing refers to it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gc: bool,
    /// Root's entries at all its nodes. Left out: those that are there stay.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "write_some_access",
        deserialize_with = "read_some_access"
    )]
    pub access: Option<Vec<AccessChange>>,
}

const fn threads() -> Holds {
    Holds::Threads
}

impl ContainerConfig {
    /// What it is, for people.
    pub fn words(&self) -> String {
        let holds = match self.holds {
            Holds::Threads => "threads",
            Holds::Containers => "containers",
        };
        let access = self.access.as_ref().filter(|access| !access.is_empty());
        let access = access.map_or_else(String::new, |list| format!(", access of {}", list.len()));
        format!("for {holds}, share {}{access}", self.share.part())
    }
}

/// What makes their nodes in a tree that has none of them, each with its container.
pub fn nodes_of(
    wanted: &BTreeMap<NodePath, ContainerConfig>,
) -> Result<Vec<(NodePath, Request)>, Error> {
    // What cannot be among themselves.
    Containers::default().difference(wanted)?;
    let mut all = Vec::new();
    for (path, container) in wanted {
        let Some((above, name)) = path.split_last() else { continue };
        let (parent, name) = (NodeRef::Path(above), Some(name.clone()));
        let (kind, share) = (container.holds.new_kind(), Some(container.share));
        all.push((path.clone(), Request::Create { parent, name, kind, share }));
        let node = NodeRef::Path(path.clone());
        let access = container.access.as_deref().unwrap_or_default();
        let access = difference_of_access(&[], access, &node);
        all.extend(access.into_iter().map(|request| (path.clone(), request)));
    }
    Ok(all)
}

/// What a configuration says of nodes that containers own, and of what is below them: it is done
/// when they are there.
pub type OfContainers = BTreeMap<NodePath, NodeConfig>;

/// What is wanted of a tree first, and what when containers have their nodes.
pub fn split(
    mut wanted: ResourceConfig,
    containers: &BTreeMap<NodePath, ContainerConfig>,
) -> (ResourceConfig, OfContainers) {
    let nodes = std::mem::take(&mut wanted.nodes);
    let (later, first) = nodes.into_iter().partition(|(path, _)| path.is_within(containers));
    wanted.nodes = first;
    (wanted, later)
}

/// What makes containers' nodes so, all else being as it is; their access lists are the
/// containers'.
pub fn requests_of(
    tree: &Tree,
    later: &OfContainers,
    mode: DeleteMode,
) -> Result<Vec<Request>, Error> {
    let mut wanted = to_config(tree, Driver::Auto);
    // Of what it stands on its kind alone is asked: the words that nodes have.
    wanted.on = match tree.resource() {
        ResourceKind::Cpu => None,
        ResourceKind::Link => Some(Source::Net(String::new())),
        ResourceKind::Disk => Some(Source::File(String::new())),
    };
    for (path, node) in later {
        let mut node = node.clone();
        if let Some(there) = wanted.nodes.get(path).filter(|_| node.access.is_empty()) {
            node.access.clone_from(&there.access);
        }
        wanted.nodes.insert(path.clone(), node);
    }
    diff_as_asked(tree, &wanted, mode)
}

impl Containers {
    /// All of them, as a configuration has them, but for their nodes' access lists.
    pub fn to_config(&self) -> BTreeMap<NodePath, ContainerConfig> {
        let one = |id| {
            let held = self.get(id)?;
            let (holds, share, gc) = (held.holds, held.share, held.gc);
            Some((self.path(id)?, ContainerConfig { holds, share, gc, access: None }))
        };
        self.iter().filter_map(|held| one(held.id)).collect()
    }

    /// What makes one of them as it is wanted, whose parent is there; in order.
    pub fn plan_config(
        &self,
        path: &NodePath,
        wanted: &ContainerConfig,
    ) -> Result<Vec<ContainerEdit>, Error> {
        let named = |e: Error| e.at(format_args!("container {path}"));
        let ContainerConfig { holds, share, gc, .. } = *wanted;
        let Ok(id) = self.resolve(path) else {
            let (above, name) = path
                .split_last()
                .ok_or_else(|| named(Error::new(ErrorKind::Invalid, "a container has a name")))?;
            let parent = self.resolve(&above).map_err(named)?;
            let new = NewContainer { name: Some(name.clone()), holds, share, gc, maker: 0 };
            return Ok(vec![self.plan_create(parent, new).map_err(named)?]);
        };
        let there = self.node(id).map_err(named)?;
        if there.holds != holds {
            let why = "what it holds is said when it is made, and is something else";
            return Err(named(
                Error::new(ErrorKind::Invalid, why).hint("remove it first: reserv rm"),
            ));
        }
        let mut edits = Vec::new();
        if there.share != share {
            edits.push(self.plan_share(id, share).map_err(named)?);
        }
        if there.gc != gc {
            edits.push(self.plan_gc(id, gc).map_err(named)?);
        }
        Ok(edits)
    }

    /// The difference, in words; an error if these cannot be so.
    pub fn difference(
        &self,
        wanted: &BTreeMap<NodePath, ContainerConfig>,
    ) -> Result<Vec<String>, Error> {
        let mut all = self.clone();
        let mut words = Vec::new();
        // A parent's path is before those of what it holds.
        for (path, wanted) in wanted {
            for edit in all.plan_config(path, wanted)? {
                words.push(match &edit {
                    ContainerEdit::Share { id, share } => {
                        let was = all.node(*id)?.share.part();
                        format!("container {path}: share {} instead of {was}", share.part())
                    }
                    ContainerEdit::Gc { gc, .. } => {
                        format!("container {path}: gc {}", u8::from(*gc))
                    }
                    _ => format!("make container {path} {}", wanted.words()),
                });
                all.apply(&edit)?;
            }
        }
        Ok(words)
    }
}
