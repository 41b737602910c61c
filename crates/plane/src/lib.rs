// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drivers of resources behind one contract. Not here: FUSE, text, other planes' mechanisms.

pub mod ahead;
mod cgroup;
mod contract;
pub mod count;
pub mod cpu;
pub mod disk;
pub mod journal;
#[cfg(test)]
mod layout;
mod libbpf;
pub mod listen;
pub mod net;
mod ops;
pub mod parked;
pub mod receive;
pub mod settings;
mod sys;
pub mod tag;
mod uses;
mod work;

pub use reserv_blockd::private;

pub use tag::DescriptorTag;

pub use contract::{
    Cgroups, Defaults, Descriptors, DriverInfo, Health, Holders, List, Lists, Member, Packets,
    Plane, PlaneError, Refs, Sample, Target, Threads, Upgrade, Upgraded,
};
