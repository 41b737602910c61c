// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that are somebody's whom a configuration does not know: it neither removes nor changes
//! them, unless it names them, and `save` leaves them out.

use std::collections::{BTreeMap, BTreeSet};

use reserv_model::{NodeId, NodePath, ResourceConfig, Tree, to_config};
use reserv_namespace::Resource;

use super::{Core, lock};

/// Whether a path is one of these, or below one.
fn is_in(owned: &BTreeSet<NodePath>, path: &NodePath) -> bool {
    let mut at = Some(path.clone());
    while let Some(here) = at {
        if owned.contains(&here) {
            return true;
        }
        at = here.split_last().map(|(above, _)| above);
    }
    false
}

impl Core {
    /// These nodes are somebody's.
    pub fn set_owned(&self, owned: BTreeMap<Resource, BTreeSet<NodeId>>) {
        *lock(&self.owned) = owned;
    }

    pub(super) fn owned_ids(&self, resource: Resource) -> BTreeSet<NodeId> {
        lock(&self.owned).get(&resource).cloned().unwrap_or_default()
    }

    fn owned_in(&self, resource: Resource, tree: &Tree) -> BTreeSet<NodePath> {
        self.owned_ids(resource).into_iter().filter_map(|id| tree.path(id)).collect()
    }

    /// What is wanted of a tree, and what is owned there as it is.
    pub(super) fn with_owned(
        &self,
        resource: Resource,
        tree: &Tree,
        mut wanted: ResourceConfig,
    ) -> ResourceConfig {
        let owned = self.owned_in(resource, tree);
        if !owned.is_empty() {
            for (path, node) in to_config(tree, wanted.driver).nodes {
                if is_in(&owned, &path) {
                    wanted.nodes.entry(path).or_insert(node);
                }
            }
        }
        wanted
    }
}

/// A tree's configuration without these nodes.
pub(super) fn without_owned(
    owned: BTreeSet<NodeId>,
    tree: &Tree,
    mut config: ResourceConfig,
) -> ResourceConfig {
    let owned = owned.into_iter().filter_map(|id| tree.path(id)).collect();
    config.nodes.retain(|path, _| !is_in(&owned, path));
    config
}
