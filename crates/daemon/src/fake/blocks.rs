// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plane that waits with every answer as long as a test's file is there: as one whose kernel, or
//! whose server, does not answer. Or it refuses one batch.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reserv_model::{
    ArrivalSample, Backlog, Batch, Class, Dropper, NodeId, Outcome, PacketRules, Policy, Rate,
    Sample, ThreadParams, TuneKey, UseRule,
};
use reserv_namespace::Resource;
use reserv_plane::{
    Defaults, DescriptorTag, Descriptors, DriverInfo, Health, Holders, List, Lists, Member,
    Packets, Plane, PlaneError, Refs, Target, Threads, Upgrade, Upgraded,
};

/// See the head of this file.
pub struct Blocks<P> {
    plane: P,
    file: PathBuf,
    /// The same for its end alone.
    stop: PathBuf,
    /// While it is there the next batch is refused.
    refuse: PathBuf,
}

impl<P> Blocks<P> {
    /// Around the plane of a resource.
    pub fn new(run: &Path, resource: Resource, plane: P) -> Self {
        let named = |what| run.join(format!("fake-{what}-{}", resource.number()));
        Self { plane, file: named("block"), stop: named("stop"), refuse: named("refuse") }
    }

    fn plane(&self) -> &P {
        while self.file.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        &self.plane
    }

    fn plane_mut(&mut self) -> &mut P {
        self.plane();
        &mut self.plane
    }
}

impl<P: Plane> Plane for Blocks<P> {
    fn capacity(&self) -> u64 {
        self.plane().capacity()
    }

    fn backlog(&self) -> Option<Backlog> {
        self.plane().backlog()
    }

    fn backlog_at(&self, rate: Option<Rate>) -> Option<Backlog> {
        self.plane().backlog_at(rate)
    }

    fn may_have_rate(&self, rate: Option<Rate>) -> Result<(), PlaneError> {
        self.plane().may_have_rate(rate)
    }

    fn set_rate(&mut self, rate: Option<Rate>) -> Result<(), PlaneError> {
        if std::fs::remove_file(&self.refuse).is_ok() {
            return Err(PlaneError::Busy("fake-refuse".into()));
        }
        self.plane_mut().set_rate(rate)
    }

    fn batch_max(&self) -> usize {
        self.plane().batch_max()
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        self.plane_mut().apply(batch)
    }

    fn grants(&self) -> Result<u32, PlaneError> {
        self.plane().grants()
    }

    fn apply_if(&mut self, batch: &Batch, grants: u32) -> Result<Vec<Outcome>, PlaneError> {
        if std::fs::remove_file(&self.refuse).is_ok() {
            return Err(PlaneError::Busy("fake-refuse".into()));
        }
        self.plane_mut().apply_if(batch, grants)
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        self.plane().applied_seq()
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        self.plane_mut().collect_drained()
    }

    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        self.plane().sample()
    }

    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        self.plane().sample_one(id)
    }

    fn refs(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        self.plane().refs(ids)
    }

    fn health(&mut self) -> Result<Health, PlaneError> {
        self.plane_mut().health()
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        self.plane_mut().revive()
    }

    fn may_stop(&self) -> Result<(), PlaneError> {
        self.plane().may_stop()
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        while self.stop.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.plane_mut().stop()
    }

    fn supports_class(&self, class: Class) -> bool {
        self.plane().supports_class(class)
    }

    fn supports_policy(&self, policy: Policy) -> bool {
        self.plane().supports_policy(policy)
    }

    fn info(&self) -> DriverInfo {
        self.plane().info()
    }
}

impl<P: Plane> Threads for Blocks<P> {
    fn tag(&mut self, target: Target, queue: NodeId) -> Result<usize, PlaneError> {
        self.plane_mut().tag(target, queue)
    }

    fn tag_of(&self, tid: i32) -> Result<NodeId, PlaneError> {
        self.plane().tag_of(tid)
    }

    fn set_params(&mut self, tid: i32, params: &ThreadParams) -> Result<(), PlaneError> {
        self.plane_mut().set_params(tid, params)
    }

    fn params_of(&self, tid: i32) -> Result<ThreadParams, PlaneError> {
        self.plane().params_of(tid)
    }

    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        self.plane().members(queue)
    }
}

impl<P: Plane> Lists for Blocks<P> {
    fn set_mount(&mut self, dev: u64) -> Result<(), PlaneError> {
        self.plane_mut().set_mount(dev)
    }

    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError> {
        self.plane().defaults(pid)
    }

    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError> {
        self.plane_mut().set_default(pid, list, queue)
    }

    fn set_use(&mut self, queue: NodeId, rules: &[UseRule]) -> Result<(), PlaneError> {
        self.plane_mut().set_use(queue, rules)
    }
}

impl<P: Plane> Descriptors for Blocks<P> {
    fn descriptors(&self, pid: i32) -> Result<Vec<(u32, NodeId)>, PlaneError> {
        self.plane().descriptors(pid)
    }

    fn descriptor_tag(&mut self, queue: NodeId) -> Result<DescriptorTag, PlaneError> {
        self.plane_mut().descriptor_tag(queue)
    }

    fn holders(&self, queue: NodeId) -> Result<Vec<Holders>, PlaneError> {
        self.plane().holders(queue)
    }

    fn untag(&mut self, queue: NodeId, keys: &[u64]) -> Result<u64, PlaneError> {
        self.plane_mut().untag(queue, keys)
    }
}

impl<P: Plane> Packets for Blocks<P> {
    fn set_packet_rules(&mut self, rules: &PacketRules) -> Result<(), PlaneError> {
        self.plane_mut().set_packet_rules(rules)
    }

    fn droppers(&self, queue: NodeId) -> Result<Vec<Dropper>, PlaneError> {
        self.plane().droppers(queue)
    }

    fn arrivals(&self) -> Vec<ArrivalSample> {
        self.plane().arrivals()
    }

    fn set_entries(&mut self, all: &[(NodeId, TuneKey, u64)]) -> Result<(), PlaneError> {
        self.plane_mut().set_entries(all)
    }
}

impl<P: Plane> Upgrade for Blocks<P> {
    fn upgrade(&mut self, tree: &[Batch]) -> Result<Option<Upgraded>, PlaneError> {
        self.plane_mut().upgrade(tree)
    }
}
