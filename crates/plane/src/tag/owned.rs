// SPDX-License-Identifier: MIT OR Apache-2.0
//! What containers own (`bpf/tag/works.h`): by it a thread that is bound to one opens, accepts,
//! connects and sends in the container's queues.

use std::collections::{BTreeMap, BTreeSet};

use reserv_model::NodeId;

use super::abi::{self, RtCall, RtOwned, object_kind, what};
use super::load::{self, os};
use super::{RESOURCES, Tags, adopt, turn};
use crate::{PlaneError, sys};

/// By a container's queue in the CPU's tree, what it owns in the other resources.
pub type Owned = BTreeMap<NodeId, BTreeMap<u8, NodeId>>;

/// The programs are told what containers own. `known`: what they were told last, if that is known;
/// afterwards what they know. Where none run there is nobody to tell, and nothing that they know.
pub fn tell_owned(known: &mut Option<Owned>, wanted: &Owned) -> Result<(), PlaneError> {
    if known.as_ref() == Some(wanted) {
        return Ok(());
    }
    let _turn = turn();
    let Some(tags) = adopt()? else {
        *known = None;
        return Ok(());
    };
    let mut told = match known.take() {
        Some(told) => told,
        None => tags.owned()?,
    };
    // What was told before one that failed stands: it is read again then.
    tags.set_owned(&told, wanted)?;
    told.clone_from(wanted);
    *known = Some(told);
    Ok(())
}

impl Tags {
    /// What the programs know.
    fn owned(&self) -> Result<Owned, PlaneError> {
        let map = self.map("owned")?;
        let mut all = Owned::new();
        for index in 0..abi::NODES_MAX {
            let there =
                sys::get::<u32, RtOwned>(&map, &index).map_err(os("look a container up"))?;
            let Some(RtOwned { queue: queue @ 1.., node }) = there else { continue };
            let nodes = (0..RESOURCES).zip(node).filter(|(_, node)| *node != 0);
            all.insert(
                NodeId::unpack(queue),
                nodes.map(|(resource, node)| (resource, NodeId::unpack(node))).collect(),
            );
        }
        Ok(all)
    }

    fn set_owned(&self, told: &Owned, wanted: &Owned) -> Result<(), PlaneError> {
        let none = BTreeMap::new();
        let tell = |queue: &NodeId, resource: u8, node: u64| {
            self.call(RtCall {
                resource: resource.into(),
                node: queue.pack(),
                a: node,
                ..RtCall::new(what::OWNED)
            })
            .map(drop)
        };
        for queue in told.keys().filter(|queue| !wanted.contains_key(queue)) {
            tell(queue, 0, 0)?;
        }
        for (queue, now) in wanted {
            let before = told.get(queue).unwrap_or(&none);
            for resource in before.keys().filter(|resource| !now.contains_key(resource)) {
                tell(queue, *resource, 0)?;
            }
            for (resource, node) in now {
                if before.get(resource) != Some(node) {
                    tell(queue, *resource, node.pack())?;
                }
            }
        }
        let resources: BTreeSet<u8> = wanted.values().flat_map(BTreeMap::keys).copied().collect();
        let mut kinds = resources.iter().map(|resource| Ok(self.object(*resource)?.kind));
        let of_links = kinds.try_fold(false, |any, kind: Result<u32, PlaneError>| {
            Ok::<_, PlaneError>(any || kind? == object_kind::INTERFACE)
        })?;
        load::attach_sent(&self.folder, self.mechanism, of_links)
    }
}
