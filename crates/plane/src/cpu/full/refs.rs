// SPDX-License-Identifier: MIT OR Apache-2.0
//! What refers to queues: threads, which the tree counts, and lists of processes, which are looked
//! at where they stand. Asking process by process would miss those of another pid name space.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use reserv_model::NodeId;

use super::Full;
use crate::{Plane as _, PlaneError, Refs};

/// `struct rc_lists` by process: default and child default.
const MAP: &str = "lists";
/// As many at a time: buffers for all that there can be would stay with the daemon.
const BATCH: u32 = 1024;

impl Full {
    pub(super) fn references(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        let at: BTreeMap<u64, usize> =
            ids.iter().enumerate().map(|(at, id)| (id.pack(), at)).collect();
        let mut refs = vec![Refs::default(); ids.len()];
        for sample in self.sample()? {
            if let Some(&at) = at.get(&sample.id) {
                refs[at].threads = sample.members.into();
            }
        }
        for [default, child] in self.lists()? {
            if let Some(&at) = at.get(&default) {
                refs[at].defaults += 1;
            }
            if let Some(&at) = at.get(&child) {
                refs[at].child_defaults += 1;
            }
        }
        Ok(refs)
    }

    fn lists(&self) -> Result<Vec<[u64; 2]>, PlaneError> {
        let wrong = |error| PlaneError::Invalid(format!("the pinned map '{MAP}': {error}"));
        let map = MapHandle::from_pinned_path(self.folder.join(MAP)).map_err(wrong)?;
        let all = map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(wrong)?;
        let word = |value: &[u8], at: usize| {
            Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?))
        };
        Ok(all.filter_map(|(_, value)| Some([word(&value, 0)?, word(&value, 8)?])).collect())
    }
}
