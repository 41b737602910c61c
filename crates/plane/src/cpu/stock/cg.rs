// SPDX-License-Identifier: MIT OR Apache-2.0
//! One interface to the cgroups of either version: our directories, who is in them, where a thread
//! is.

use std::cell::Cell;
use std::io;
use std::ops::Deref;

use super::mirror::{Attr, Quota};
use super::{v1, v2};
use crate::PlaneError;
use crate::cgroup::kernel::Kernel;
use crate::cgroup::mounts::{Layout, Version};
pub(super) use crate::cgroup::places::{Place, Places, gone, keyed, malformed, os, put};
use crate::cgroup::weights::{Range, Share};

/// What differs between the versions. Directories are absolute; `cpu` is in the hierarchy that
/// schedules, `acct` in the one that counts.
pub(super) trait Flavour: Send {
    fn mechanism(&self) -> &'static str;
    fn range(&self) -> Range;
    /// The file with the weight.
    fn weight(&self) -> &'static str;
    /// A child's quota may not exceed its parent's.
    fn quotas_nest(&self) -> bool;
    /// Makes the hierarchy's top ready for our tree; answers whether it changed anything there.
    fn prepare(&self, kernel: &dyn Kernel, cpu: &str) -> Result<bool, PlaneError>;
    /// Takes that change back, if nobody else relies on it by now.
    fn unprepare(&self, kernel: &dyn Kernel, cpu: &str);
    /// Makes a new directory of ours fit to hold threads, or children if `scheduler`.
    fn made(&self, kernel: &dyn Kernel, cpu: &str, scheduler: bool) -> Result<(), PlaneError>;
    fn set_quota(
        &self,
        kernel: &dyn Kernel,
        cpu: &str,
        quota: Option<Quota>,
    ) -> Result<(), PlaneError>;
    /// Quota and period, in µs.
    fn quota(&self, kernel: &dyn Kernel, cpu: &str) -> io::Result<Option<(u64, u64)>>;
    /// CPU time received, by all below too.
    fn usage_ns(&self, kernel: &dyn Kernel, acct: &str) -> io::Result<u64>;
    /// Time held back by the quota.
    fn throttled_ns(&self, kernel: &dyn Kernel, cpu: &str) -> io::Result<u64>;
}

pub(super) struct Cg {
    places: Places,
    flavour: Box<dyn Flavour>,
    idle: Cell<Option<bool>>,
}

impl Deref for Cg {
    type Target = Places;

    fn deref(&self) -> &Places {
        &self.places
    }
}

impl Cg {
    pub(super) fn new(kernel: Box<dyn Kernel>, layout: Layout, name: String) -> Self {
        let flavour: Box<dyn Flavour> = match layout.version {
            Version::V1 => Box::new(v1::V1),
            Version::V2 => Box::new(v2::V2),
        };
        Self { places: Places { kernel, layout, name }, flavour, idle: Cell::new(None) }
    }

    pub(super) fn flavour(&self) -> &dyn Flavour {
        &*self.flavour
    }

    /// Top of the hierarchy that schedules.
    pub(super) fn top(&self) -> &str {
        &self.layout.hierarchies[0].mount
    }

    /// Directory of the hierarchy that schedules, for a path of the mirror.
    pub(super) fn cpu(&self, path: &str) -> String {
        format!("{}/{}{path}", self.top(), self.name)
    }

    /// The same in the hierarchy that counts.
    pub(super) fn acct(&self, path: &str) -> String {
        let last = self.layout.hierarchies.len() - 1;
        format!("{}/{}{path}", self.layout.hierarchies[last].mount, self.name)
    }

    pub(super) fn present(&self) -> bool {
        self.kernel.exists(&self.cpu(""))
    }

    /// The kernel has `cpu.idle`; our first directory shows it.
    pub(super) fn has_idle(&self) -> bool {
        if self.idle.get().is_none() && self.present() {
            self.idle.set(Some(self.kernel.exists(&format!("{}/cpu.idle", self.cpu("")))));
        }
        self.idle.get().unwrap_or(false)
    }

    /// Makes a node's directories; those that exist are fine.
    pub(super) fn make(&self, path: &str, scheduler: bool) -> Result<(), PlaneError> {
        self.make_dirs(path)?;
        self.flavour.made(self.kernel(), &self.cpu(path), scheduler)
    }

    pub(super) fn set_share(&self, path: &str, share: Share, idle: bool) -> Result<(), PlaneError> {
        let dir = self.cpu(path);
        // The kernel refuses a weight while the cgroup is idle, and an idle one forgets its weight.
        match share {
            Share::Idle => put(self.kernel(), &format!("{dir}/cpu.idle"), "1"),
            Share::Weight(weight) => {
                if idle {
                    put(self.kernel(), &format!("{dir}/cpu.idle"), "0")?;
                }
                put(self.kernel(), &format!("{dir}/{}", self.flavour.weight()), &weight.to_string())
            }
        }
    }

    pub(super) fn set_quota(&self, path: &str, quota: Option<Quota>) -> Result<(), PlaneError> {
        self.flavour.set_quota(self.kernel(), &self.cpu(path), quota)
    }

    /// What a cgroup is set to, as far as it can be read back.
    pub(super) fn read_attr(&self, path: &str) -> Option<Attr> {
        let dir = self.cpu(path);
        let number = |file: &str| {
            self.kernel.read(&format!("{dir}/{file}")).ok()?.trim().parse::<u32>().ok()
        };
        let share = match number("cpu.idle") {
            Some(1) => Share::Idle,
            _ => Share::Weight(number(self.flavour.weight())?),
        };
        let quota = self.flavour.quota(self.kernel(), &dir).ok()?;
        Some(Attr {
            share,
            quota: quota.map(|(quota_us, period_us)| Quota { quota_us, period_us, burst_us: 0 }),
        })
    }

    pub(super) fn usage_ns(&self, path: &str) -> io::Result<u64> {
        self.flavour.usage_ns(self.kernel(), &self.acct(path))
    }

    /// CPU time of the whole machine (of what the hierarchy sees of it).
    pub(super) fn machine_ns(&self) -> io::Result<u64> {
        let last = self.layout.hierarchies.len() - 1;
        self.flavour.usage_ns(self.kernel(), &self.layout.hierarchies[last].mount)
    }

    pub(super) fn throttled_ns(&self, path: &str) -> io::Result<u64> {
        self.flavour.throttled_ns(self.kernel(), &self.cpu(path))
    }
}
