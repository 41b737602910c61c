// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that are somebody's whom a tree's part of a configuration need not know: where it does not
//! name them it neither removes nor changes them. `save` names those that are not as their owner
//! makes them, and what is below them.

use std::collections::{BTreeMap, BTreeSet};

use reserv_model::{
    DeleteMode, NodeConfig, NodeId, NodeKind, NodePath, OfContainers, Request, ResourceConfig,
    Rule, Share, Tree, requests_of, to_config,
};
use reserv_namespace::Resource;

use super::also::Of;
use super::{Core, Refusal, lock};
use crate::describe::describe;

/// Of each tree, nodes with the shares that their owners give them.
pub(crate) type AllOwned = BTreeMap<Resource, BTreeMap<NodeId, Share>>;

impl Core {
    /// These nodes are somebody's.
    pub(crate) fn set_owned(&self, owned: AllOwned) {
        *lock(&self.owned) = owned;
    }

    pub(super) fn owned_in(&self, resource: Resource) -> BTreeMap<NodeId, Share> {
        lock(&self.owned).get(&resource).cloned().unwrap_or_default()
    }

    /// What is wanted of a tree, and what is owned there as it is; and what stands where somebody
    /// is to own a node, for that is refused and not deleted.
    pub(super) fn with_owned(
        &self,
        resource: Resource,
        tree: &Tree,
        mut wanted: ResourceConfig,
        later: &OfContainers,
    ) -> ResourceConfig {
        let owned = by_path(self.owned_in(resource), tree);
        if !owned.is_empty() || !later.is_empty() {
            for (path, node) in to_config(tree, wanted.driver).nodes {
                if path.is_within(&owned) || later.contains_key(&path) {
                    wanted.nodes.entry(path).or_insert(node);
                }
            }
        }
        wanted
    }
}

fn by_path(owned: BTreeMap<NodeId, Share>, tree: &Tree) -> BTreeMap<NodePath, Share> {
    owned.into_iter().filter_map(|(id, share)| Some((tree.path(id)?, share))).collect()
}

/// A tree's configuration without these nodes, as far as they are as their owners make them.
pub(super) fn without_owned(
    owned: BTreeMap<NodeId, Share>,
    tree: &Tree,
    mut config: ResourceConfig,
) -> ResourceConfig {
    let owned = by_path(owned, tree);
    let as_made = |path: &NodePath, node: &NodeConfig, share: Share| {
        let made = NodeConfig { share, ..NodeConfig::new(node.kind) };
        let own = NodeConfig { class: None, policy: None, access: Vec::new(), ..node.clone() };
        own == made && config.kind_of(path, node) == config.kind_of(path, &made)
    };
    let named = |(path, node): (&NodePath, &NodeConfig)| {
        let of_its_own = match owned.get(path) {
            Some(share) => !as_made(path, node, *share),
            None => path.is_within(&owned),
        };
        of_its_own.then(|| path.clone())
    };
    // With the nodes above: a configuration names them too.
    let mut kept = BTreeSet::new();
    for path in config.nodes.iter().filter_map(named) {
        let mut at = Some(path);
        while let Some(here) = at {
            at = here.split_last().map(|(above, _)| above);
            kept.insert(here);
        }
    }
    config.nodes.retain(|path, _| !path.is_within(&owned) || kept.contains(path));
    for (path, node) in &mut config.nodes {
        if owned.contains_key(path) {
            node.access.clear(); // the container's, where it stands
        }
    }
    config
}

/// What is wanted of a tree, and the queues there that rules have made for users, as they are: they
/// go by themselves ([`Rule::any_makes`]).
pub(super) fn with_of_users(
    rules: &[Rule],
    tree: &Tree,
    mut wanted: ResourceConfig,
) -> ResourceConfig {
    if rules.iter().any(Rule::is_by_user) {
        let name = tree.root().name.as_str();
        for (path, node) in to_config(tree, wanted.driver).nodes {
            if Rule::any_makes(rules, name, (&path, &node)) {
                wanted.nodes.entry(path).or_insert(node);
            }
        }
    }
    wanted
}

/// A tree's configuration without them, as far as they are as they were made.
pub(super) fn without_of_users(
    rules: &[Rule],
    tree: &Tree,
    mut config: ResourceConfig,
) -> ResourceConfig {
    let name = tree.root().name.as_str();
    let made = NodeConfig { gc: true, ..NodeConfig::new(NodeKind::Queue) };
    let mut nodes = std::mem::take(&mut config.nodes);
    nodes.retain(|path, node| {
        let own = NodeConfig { class: None, ..node.clone() };
        let as_made = own == made && config.kind_of(path, node) == config.kind_of(path, &made);
        !(as_made && Rule::any_makes(rules, name, (path, node)))
    });
    config.nodes = nodes;
    config
}

/// What will make containers' nodes so in a tree to which this has been done, and in words. Nothing
/// where it cannot be: then that is said.
pub(super) fn requests_after(
    tree: &Tree,
    (first, then): (&[Request], &[Of]),
    later: &OfContainers,
    mode: DeleteMode,
) -> Result<(Vec<Request>, Vec<String>), Refusal> {
    if later.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut after = tree.clone();
    let all = [first.to_vec(), then.iter().map(|(_, request)| request.clone()).collect()];
    for requests in all {
        let Ok(plan) = after.plan_part(&requests) else { return Ok((Vec::new(), Vec::new())) };
        after.commit(&plan)?;
    }
    let requests = requests_of(&after, later, mode)?;
    let words = requests.iter().map(|request| describe(&after, request)).collect();
    Ok((requests, words))
}
