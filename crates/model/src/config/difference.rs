// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has to be asked of a running tree to make it what a configuration says.

use std::collections::BTreeMap;

use super::{NodeConfig, NodeKind, ResourceConfig, listed_access};
use crate::error::quoted;
use crate::{
    AccessChange, AccessEntry, Cap, DeleteMode, Error, ErrorKind, Kind, Node, NodePath, NodeRef,
    Policy, Request, ResourceKind, Tree, Tune, TuneKey, Verb,
};

/// The requests that turn `current` into `wanted`, in an order that can be planned at once; none
/// when it is already so. Queues that are deleted treat their members as `mode` says. A node that
/// stands elsewhere in `wanted` is deleted and made anew. Draining queues do not count as there:
/// wanting one back is `Busy`, and so is deleting the scheduler above one, unless `mode` is
/// `Flush`.
pub fn diff(
    current: &Tree,
    wanted: &ResourceConfig,
    mode: DeleteMode,
) -> Result<Vec<Request>, Error> {
    difference_of_trees(current, wanted, mode, false)
}

/// The same for who asks for it: with `Flush` queues that drain and are not wanted go now too.
pub fn diff_as_asked(
    current: &Tree,
    wanted: &ResourceConfig,
    mode: DeleteMode,
) -> Result<Vec<Request>, Error> {
    difference_of_trees(current, wanted, mode, mode == DeleteMode::Flush)
}

fn difference_of_trees(
    current: &Tree,
    wanted: &ResourceConfig,
    mode: DeleteMode,
    end_all: bool,
) -> Result<Vec<Request>, Error> {
    wanted.check(current.root().name.as_str())?;
    let mut requests = Vec::new();
    let now: BTreeMap<NodePath, &Node> = current
        .walk()
        .filter_map(|(_, n)| Some((current.path(n.id)?, n)))
        .filter(|(p, _)| !p.is_root())
        .collect();
    // Deepest first, so that a scheduler is empty when its turn comes.
    let is_q0 = |node: &Node| node.id == crate::NodeId::Q0;
    let mut kept = BTreeMap::new();
    for (path, node) in now.iter().rev() {
        let wanted_here = wanted.nodes.get(path);
        if node.draining {
            if wanted_here.is_none() && end_all {
                requests.push(Request::Delete { node: node.id.into(), mode });
            } else if wanted_here.is_some() {
                let why = format!("{} is draining and cannot be kept", quoted(&path.to_string()));
                return Err(Error::new(ErrorKind::Busy, why)
                    .hint("wait until its last member has left, or flush it"));
            }
        } else if is_q0(node)
            || wanted_here.is_some_and(|w| (w.kind == NodeKind::Queue) == node.kind.is_queue())
        {
            kept.insert(path.clone(), *node);
        } else {
            if !end_all {
                requests.extend(end_draining(current, node, mode)?);
            }
            if mode == DeleteMode::Drain && !node.children.is_empty() {
                let (at, count) = (current.shown(node.id), node.children.len());
                let noun = if count == 1 { "child" } else { "children" };
                let why = format!("{at} has {count} {noun}, and cannot go while they drain");
                return Err(Error::new(ErrorKind::Busy, why)
                    .hint("--flush: members go to q0, all is deleted now; or drain its queues first, with it in the configuration"));
            }
            requests.push(Request::Delete { node: node.id.into(), mode });
        }
    }
    requests.extend(difference_of_root(current, wanted));
    let q0 = NodeConfig::new(NodeKind::Queue);
    let q0_path = current.path(crate::NodeId::Q0).unwrap_or_default();
    let implied = (!wanted.nodes.contains_key(&q0_path)).then_some((&q0_path, &q0));
    for (path, node) in implied.into_iter().chain(&wanted.nodes) {
        let (kind, above) = (wanted.kind_of(path, node), wanted.policy_above(path));
        requests.extend(difference(
            wanted.resource(),
            kept.get(path).copied(),
            path,
            node,
            kind,
            above,
        ));
    }
    Ok(requests)
}

/// What makes the root, and what new nodes are, as wanted.
fn difference_of_root(current: &Tree, wanted: &ResourceConfig) -> Vec<Request> {
    let (root, node) = (current.root(), || NodeRef::from(current.root().id));
    let mut requests = Vec::new();
    let (mut kind, mut tune) = (root.kind, root.tune.clone());
    let personality = wanted.personality;
    if current.personality() != personality {
        requests.push(Request::SetPersonality { personality });
        (kind, tune) = (
            Kind::Scheduler(personality.root_policy(current.resource())),
            personality.tune(current.resource()),
        );
    }
    let policy = wanted.root_policy();
    if kind != Kind::Scheduler(policy) {
        requests.push(Request::SetPolicy { node: node(), policy });
    }
    let change =
        retune(wanted.resource(), &tune, &wanted.root_tune(), (Kind::Scheduler(policy), None));
    if !change.is_empty() {
        requests.push(Request::SetTune { node: node(), change });
    }
    requests.extend(difference_of_access(&root.access, &wanted.access, &node()));
    requests
}

/// What makes the tunables that a node of this kind and place has as wanted.
fn retune(
    of: ResourceKind,
    now: &Tune,
    wanted: &Tune,
    (kind, above): (Kind, Option<Policy>),
) -> crate::TuneChange {
    let keys = TuneKey::ALL.into_iter().filter(|key| key.fits(of, kind, above));
    keys.filter(|key| now.get(key) != wanted.get(key))
        .map(|key| (key, wanted.get(&key).copied()))
        .collect()
}

/// What empties a scheduler that is to be deleted of queues that drain in it.
fn end_draining(tree: &Tree, node: &Node, mode: DeleteMode) -> Result<Vec<Request>, Error> {
    let children = node.children.values().filter_map(|&c| tree.get(c));
    let draining: Vec<_> = children.filter(|c| c.draining).map(|c| c.id).collect();
    match draining.first() {
        Some(&id) if mode != DeleteMode::Flush => {
            let why = format!(
                "{} is still draining, so {} cannot go",
                tree.shown(id),
                tree.shown(node.id)
            );
            Err(Error::new(ErrorKind::Busy, why)
                .hint("wait until its last member has left, or flush it"))
        }
        _ => Ok(draining.into_iter().map(|id| Request::Delete { node: id.into(), mode }).collect()),
    }
}

/// What makes one node as wanted.
fn difference(
    of: ResourceKind,
    now: Option<&Node>,
    path: &NodePath,
    wanted: &NodeConfig,
    kind: Kind,
    above: Policy,
) -> Vec<Request> {
    let at = || path.clone().into();
    let mut requests = Vec::new();
    let fresh = NodeConfig { share: wanted.share, ..NodeConfig::new(wanted.kind) };
    let current = now.map_or(fresh, |node| NodeConfig::of(of, node, None));
    match now {
        None => {
            if let Some((parent, name)) = path.split_last() {
                let (parent, name) = (parent.into(), Some(name.clone()));
                let (kind, share) = (kind.into(), Some(wanted.share));
                requests.push(Request::Create { parent, name, kind, share });
            }
        }
        Some(node) if node.kind != kind => requests.push(match kind {
            Kind::Queue(class) => Request::SetClass { node: at(), class },
            Kind::Scheduler(policy) => Request::SetPolicy { node: at(), policy },
        }),
        Some(_) => {}
    }
    if !current.share.is_as(&wanted.share) {
        requests.push(Request::SetShare { node: at(), share: wanted.share });
    }
    let empty = Tune::new();
    let change =
        retune(of, now.map_or(&empty, |node| &node.tune), &wanted.tune, (kind, Some(above)));
    if !change.is_empty() {
        requests.push(Request::SetTune { node: at(), change });
    }
    if !same_cap(current.cap, wanted.cap) {
        requests.push(Request::SetCap { node: at(), cap: wanted.cap });
    }
    if (current.members_max, current.bytes_max) != (wanted.members_max, wanted.bytes_max) {
        let NodeConfig { members_max, bytes_max, .. } = *wanted;
        requests.push(Request::SetLimit { node: at(), members_max, bytes_max });
    }
    if current.gc != wanted.gc {
        requests.push(Request::SetGc { node: at(), gc: wanted.gc });
    }
    let listed = now.map_or(&[][..], |node| &node.access);
    requests.extend(difference_of_access(listed, &wanted.access, &at()));
    requests
}

/// Whether there is one limit, or none, in both.
pub fn same_cap(one: Option<Cap>, other: Option<Cap>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_as(other),
        (one, other) => one == other,
    }
}

/// What makes root's entries as wanted; others stand as long as what they hang on.
pub fn difference_of_access(
    now: &[AccessEntry],
    wanted: &[AccessChange],
    node: &NodeRef,
) -> Vec<Request> {
    let before = listed_access(now);
    let set = |change: AccessChange| Request::SetAccess { node: node.clone(), change };
    let gone = before.iter().filter(|b| !wanted.contains(b));
    let gone = gone.map(|b| set(AccessChange { verb: Verb::Remove, quota: None, ..b.clone() }));
    let new = wanted.iter().filter(|w| !before.contains(w)).map(|w| set(w.clone()));
    gone.chain(new).collect()
}
