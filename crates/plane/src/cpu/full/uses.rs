// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may use a queue, as the programs ask it at each `chcpures`: the map `uses`, by packed
//! handle.

use std::collections::BTreeSet;

use libbpf_rs::{MapCore as _, MapHandle};
use reserv_model::{NodeId, UseRule};

use super::Full;
use super::abi::{RcCall, RcNode, to};
use super::load::os;
use crate::{PlaneError, sys, uses};

const MAP: &str = "uses";

impl Full {
    /// The entry comes after the bit that says that there may be one: nobody is let in between.
    pub(super) fn tell_use(&self, queue: NodeId, rules: &[UseRule]) -> Result<(), PlaneError> {
        let packed = uses::pack(rules)?;
        self.call(to::CONFIGURE, &mut RcCall { node: queue.pack(), what: 4, ..RcCall::default() })?;
        let map = sys::open(&self.folder.join(MAP)).map_err(os("open the pinned map 'uses'"))?;
        sys::put(&map, &queue.pack(), &packed).map_err(os("tell who may use a queue"))
    }

    /// Of nodes that go. An entry that stays takes room and means nothing: a handle does not come
    /// again.
    pub(super) fn forget_use(&self, nodes: &[NodeId]) {
        if nodes.is_empty() {
            return;
        }
        let Ok(map) = sys::open(&self.folder.join(MAP)) else { return };
        for id in nodes {
            if let Err(error) = sys::remove(&map, &id.pack()) {
                tracing::warn!(%error, ?id, "who may use it is not forgotten");
            }
        }
    }

    /// Of nodes that a dead daemon took away.
    pub(super) fn forget_use_of_gone(&self, living: &[RcNode]) {
        let Ok(map) = MapHandle::from_pinned_path(self.folder.join(MAP)) else { return };
        let living: BTreeSet<u64> = living.iter().map(|n| n.id).collect();
        let told = map.keys().filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)));
        let gone: Vec<NodeId> =
            told.filter(|id| !living.contains(id)).map(NodeId::unpack).collect();
        self.forget_use(&gone);
    }
}
