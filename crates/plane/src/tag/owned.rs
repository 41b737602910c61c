// SPDX-License-Identifier: MIT OR Apache-2.0
//! What containers own (`bpf/tag/works.h`): by it a thread that is bound to one opens, accepts,
//! connects and sends in the container's queues.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use reserv_model::NodeId;

use super::abi::{self, RtCall, RtOwned, object_kind, what};
use super::load::{self, os};
use super::{RESOURCES, Tags, adopt, turn_now};
use crate::{PlaneError, sys};

/// By a container's queue in the CPU's tree, what it owns in the other resources.
pub type Owned = BTreeMap<NodeId, BTreeMap<u8, NodeId>>;

/// What the programs are to know.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of every container that holds threads.
    pub owned: Owned,
    /// Resources that are on their way, up or down, of which what is known stays: their programs
    /// may run all the while.
    pub moving: BTreeSet<u8>,
}

impl Wanted {
    /// The same for programs that know `told`.
    fn after(self, told: &Owned) -> Owned {
        let Self { mut owned, moving } = self;
        for (queue, nodes) in &mut owned {
            let known = told.get(queue).into_iter().flatten();
            let kept = known.filter(|(resource, _)| moving.contains(resource));
            for (resource, node) in kept {
                nodes.entry(*resource).or_insert(*node);
            }
        }
        owned.retain(|_, nodes| !nodes.is_empty());
        owned
    }
}

/// The programs are told what containers own. `known`: what they were told last, if that is known;
/// afterwards what they know. Where none run there is nobody to tell, and nothing that they know.
///
/// `wanted` is asked while no resource comes or goes, so it is of those that are there. While one
/// does, this waits for none, for who tells has others waiting: it answers EAGAIN at once.
pub fn tell_owned(
    known: &mut Option<Owned>,
    wanted: impl FnOnce() -> Wanted,
) -> Result<(), PlaneError> {
    let Some(_turn) = turn_now() else {
        let why = io::Error::from_raw_os_error(libc::EAGAIN);
        return Err(os("another resource comes or goes")(why));
    };
    let wanted = wanted();
    if known.as_ref().is_some_and(|known| wanted.clone().after(known) == *known) {
        return Ok(());
    }
    let Some(tags) = adopt()? else {
        *known = None;
        return Ok(());
    };
    let mut told = match known.take() {
        Some(told) => told,
        None => tags.owned()?,
    };
    let mut wanted = wanted.after(&told);
    let links = tags.known_alone(&mut wanted)?;
    // What was told before one that failed stands: it is read again then.
    tags.set_owned(&told, &wanted)?;
    load::attach_sent(&tags.folder, tags.mechanism, links)?;
    told = wanted;
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
        Ok(())
    }

    /// Leaves what the programs know nothing of: where nothing can be tagged, or not any more.
    /// Answers whether a link is among the others.
    fn known_alone(&self, wanted: &mut Owned) -> Result<bool, PlaneError> {
        let resources: BTreeSet<u8> = wanted.values().flat_map(BTreeMap::keys).copied().collect();
        let mut links = false;
        for resource in resources {
            match self.object(resource)?.kind {
                object_kind::NOTHING => {
                    for nodes in wanted.values_mut() {
                        nodes.remove(&resource);
                    }
                }
                kind => links |= kind == object_kind::INTERFACE,
            }
        }
        wanted.retain(|_, nodes| !nodes.is_empty());
        Ok(links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32) -> NodeId {
        NodeId { index, generation: 1 }
    }

    #[test]
    fn who_tells_waits_for_no_resource_that_comes() {
        let coming = super::super::turn();
        let mut known = None;
        let told = tell_owned(&mut known, || unreachable!("nobody is asked meanwhile"));
        let error = told.unwrap_err().to_string();
        assert!(error.contains("another resource comes or goes"), "{error}");
        drop(coming);
    }

    #[test]
    fn of_a_resource_that_is_on_its_way_what_is_known_stays() {
        let nodes = |all: &[(u8, u32)]| all.iter().map(|(r, n)| (*r, id(*n))).collect();
        // The link (2) is slow to come again; one of the containers has gone meanwhile.
        let told = Owned::from([
            (id(10), nodes(&[(1, 5), (2, 6)])),
            (id(11), nodes(&[(2, 7)])),
            (id(12), nodes(&[(2, 8)])),
        ]);
        let owned =
            Owned::from([(id(10), nodes(&[(1, 5)])), (id(11), nodes(&[])), (id(13), nodes(&[]))]);
        let wanted = Wanted { owned, moving: [2].into() };
        let after = Owned::from([(id(10), nodes(&[(1, 5), (2, 6)])), (id(11), nodes(&[(2, 7)]))]);
        assert_eq!(wanted.clone().after(&told), after);
        // One that is up is as it is said to be.
        let up = Wanted { moving: BTreeSet::new(), ..wanted };
        assert_eq!(up.after(&told), Owned::from([(id(10), nodes(&[(1, 5)]))]));
    }
}
