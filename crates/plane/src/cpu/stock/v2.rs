// SPDX-License-Identifier: MIT OR Apache-2.0
//! cgroup v2 with threaded cgroups, hung directly under the hierarchy's root.
//!
//! The root is the one cgroup that may hold processes, domain children and threaded children at
//! once: made `threaded`, our tree joins the root's domain. Hence (kernel:
//! `cgroup_enable_threaded`, `cgroup_attach_permissions`):
//! * single threads move freely between the root and any cgroup of ours;
//! * a process of another domain (`/system.slice/…`) comes and goes only as a whole, through
//!   `cgroup.procs`; the kernel answers EOPNOTSUPP to a single thread;
//! * what such a process uses of other controllers (memory, io, pids) is charged to the root while
//!   it is with us.

use std::io;

use super::cg::{Flavour, keyed, malformed, put};
use super::mirror::Quota;
use crate::PlaneError;
use crate::cgroup::kernel::Kernel;
use crate::cgroup::weights::{self, Range};

pub(super) struct V2;

fn has_cpu(kernel: &dyn Kernel, path: &str) -> io::Result<bool> {
    Ok(kernel.read(path)?.split_whitespace().any(|c| c == "cpu"))
}

impl Flavour for V2 {
    fn mechanism(&self) -> &'static str {
        "cgroup v2 (threaded)"
    }

    fn range(&self) -> Range {
        weights::V2
    }

    fn weight(&self) -> &'static str {
        "cpu.weight"
    }

    fn quotas_nest(&self) -> bool {
        false
    }

    fn prepare(&self, kernel: &dyn Kernel, cpu: &str) -> Result<bool, PlaneError> {
        let control = format!("{cpu}/cgroup.subtree_control");
        if has_cpu(kernel, &control).unwrap_or(false) {
            return Ok(false);
        }
        put(kernel, &control, "+cpu")?;
        Ok(true)
    }

    fn unprepare(&self, kernel: &dyn Kernel, cpu: &str) {
        // Refused with EBUSY where somebody below has enabled it meanwhile; then it is theirs.
        let result = kernel.write(&format!("{cpu}/cgroup.subtree_control"), "-cpu");
        if let Err(error) = result {
            tracing::info!(%error, "the cpu controller stays enabled at the top");
        }
    }

    fn made(&self, kernel: &dyn Kernel, cpu: &str, scheduler: bool) -> Result<(), PlaneError> {
        let kind = format!("{cpu}/cgroup.type");
        let threaded = kernel.read(&kind).is_ok_and(|t| t.trim() == "threaded");
        if !threaded {
            put(kernel, &kind, "threaded")?;
        }
        let control = format!("{cpu}/cgroup.subtree_control");
        if scheduler && !has_cpu(kernel, &control).unwrap_or(false) {
            put(kernel, &control, "+cpu")?;
        }
        Ok(())
    }

    fn set_quota(
        &self,
        kernel: &dyn Kernel,
        cpu: &str,
        quota: Option<Quota>,
    ) -> Result<(), PlaneError> {
        let burst = format!("{cpu}/cpu.max.burst");
        let has_burst = kernel.exists(&burst);
        // The burst may not exceed the quota, so it goes first and comes last.
        if has_burst {
            put(kernel, &burst, "0")?;
        }
        let max = format!("{cpu}/cpu.max");
        let Some(quota) = quota else {
            return put(kernel, &max, "max 100000");
        };
        put(kernel, &max, &format!("{} {}", quota.quota_us, quota.period_us))?;
        if has_burst && quota.burst_us > 0 {
            put(kernel, &burst, &quota.burst_us.to_string())?;
        }
        Ok(())
    }

    fn quota(&self, kernel: &dyn Kernel, cpu: &str) -> io::Result<Option<(u64, u64)>> {
        let path = format!("{cpu}/cpu.max");
        let text = kernel.read(&path)?;
        let (quota, period) = text.trim().split_once(' ').ok_or_else(|| malformed(&path))?;
        Ok(quota.parse().ok().zip(period.parse().ok()))
    }

    fn usage_ns(&self, kernel: &dyn Kernel, acct: &str) -> io::Result<u64> {
        let path = format!("{acct}/cpu.stat");
        let text = kernel.read(&path)?;
        keyed(&text, "usage_usec").map(|us| us * 1000).ok_or_else(|| malformed(&path))
    }

    fn throttled_ns(&self, kernel: &dyn Kernel, cpu: &str) -> io::Result<u64> {
        Ok(keyed(&kernel.read(&format!("{cpu}/cpu.stat"))?, "throttled_usec").unwrap_or(0) * 1000)
    }
}
