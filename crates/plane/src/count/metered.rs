// SPDX-License-Identifier: MIT OR Apache-2.0
//! Planes whose tags are a [`Meter`]'s: links, disks, and what is counted only. What they can do
//! with lists and descriptors is the meter's, once it is known that there is such a queue.

use reserv_model::NodeId;

use super::Meter;
use crate::{Defaults, PlaneError, Refs};

/// A plane with a meter.
pub(crate) trait Metered {
    /// It.
    fn meter(&self) -> &dyn Meter;

    /// It.
    fn meter_mut(&mut self) -> &mut dyn Meter;

    /// Whether there is such a queue (`NoNode` where not).
    fn there(&self, queue: NodeId) -> Result<(), PlaneError>;

    /// Called just before something is tagged.
    fn about_to_tag(&mut self) {}

    /// A process' lists: q0 for what is gone.
    fn lists(&self, pid: i32) -> Result<Defaults, PlaneError> {
        let living = |queue| if self.there(queue).is_ok() { queue } else { NodeId::Q0 };
        let Defaults { default, child } = self.meter().defaults(pid)?;
        Ok(Defaults { default: living(default), child: living(child) })
    }

    /// What refers to nodes: nothing to those that are gone.
    fn references(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        let of = |id: &NodeId| {
            if self.there(*id).is_ok() { self.meter().refs(*id) } else { Ok(Refs::default()) }
        };
        ids.iter().map(of).collect()
    }
}

/// The traits of the contract that a [`Metered`] plane has by its meter. A macro, for an
/// implementation for all of them would collide with those of planes in other crates.
macro_rules! tags_by_meter {
    ($plane:ty) => {
        impl $crate::Lists for $plane {
            fn set_mount(&mut self, dev: u64) -> Result<(), $crate::PlaneError> {
                self.meter_mut().set_mount(dev)
            }

            fn defaults(&self, pid: i32) -> Result<$crate::Defaults, $crate::PlaneError> {
                self.lists(pid)
            }

            fn set_default(
                &mut self,
                pid: i32,
                list: $crate::List,
                queue: reserv_model::NodeId,
            ) -> Result<(), $crate::PlaneError> {
                self.there(queue)?;
                self.about_to_tag();
                self.meter_mut().set_default(pid, list, queue)
            }

            fn set_use(
                &mut self,
                queue: reserv_model::NodeId,
                rules: &[reserv_model::UseRule],
            ) -> Result<(), $crate::PlaneError> {
                self.there(queue)?;
                self.meter_mut().set_use(queue, rules)
            }
        }

        impl $crate::Descriptors for $plane {
            fn descriptors(
                &self,
                pid: i32,
            ) -> Result<Vec<(u32, reserv_model::NodeId)>, $crate::PlaneError> {
                self.meter().descriptors(pid)
            }

            fn descriptor_tag(
                &mut self,
                queue: reserv_model::NodeId,
            ) -> Result<$crate::DescriptorTag, $crate::PlaneError> {
                self.there(queue)?;
                self.about_to_tag();
                self.meter().descriptor_tag(queue)
            }

            fn holders(
                &self,
                queue: reserv_model::NodeId,
            ) -> Result<Vec<$crate::Holders>, $crate::PlaneError> {
                self.meter().holders(queue)
            }

            fn untag(
                &mut self,
                queue: reserv_model::NodeId,
                keys: &[u64],
            ) -> Result<u64, $crate::PlaneError> {
                self.meter_mut().untag(queue, keys)
            }
        }
    };
}

pub(crate) use tags_by_meter;
