// SPDX-License-Identifier: MIT OR Apache-2.0
//! cgroup v1: `cpu` and `cpuacct`, in one hierarchy or two.

use std::io;

use super::cg::{Flavour, keyed, malformed, put};
use super::mirror::Quota;
use crate::PlaneError;
use crate::cgroup::kernel::Kernel;
use crate::cgroup::weights::{self, Range};

pub(super) struct V1;

impl Flavour for V1 {
    fn mechanism(&self) -> &'static str {
        "cgroup v1"
    }

    fn range(&self) -> Range {
        weights::V1
    }

    fn weight(&self) -> &'static str {
        "cpu.shares"
    }

    fn quotas_nest(&self) -> bool {
        true
    }

    fn prepare(&self, _: &dyn Kernel, _: &str) -> Result<bool, PlaneError> {
        Ok(false)
    }

    fn unprepare(&self, _: &dyn Kernel, _: &str) {}

    fn made(&self, _: &dyn Kernel, _: &str, _: bool) -> Result<(), PlaneError> {
        Ok(())
    }

    fn set_quota(
        &self,
        kernel: &dyn Kernel,
        cpu: &str,
        quota: Option<Quota>,
    ) -> Result<(), PlaneError> {
        let write = |file: &str, value: u64| {
            put(kernel, &format!("{cpu}/cpu.cfs_{file}"), &value.to_string())
        };
        let burst = kernel.exists(&format!("{cpu}/cpu.cfs_burst_us"));
        let off = || put(kernel, &format!("{cpu}/cpu.cfs_quota_us"), "-1");
        let Some(quota) = quota else {
            // The burst may not exceed the quota, so it goes first.
            if burst {
                write("burst_us", 0)?;
            }
            return off();
        };
        let now = self.quota(kernel, cpu).ok().flatten();
        if burst {
            write("burst_us", 0)?;
        }
        // One file at a time: with a quota in force a new period alone could ask for more than the
        // parent has.
        if now.is_some_and(|(_, period)| period != quota.period_us) {
            off()?;
        }
        write("period_us", quota.period_us)?;
        write("quota_us", quota.quota_us)?;
        if burst && quota.burst_us > 0 {
            write("burst_us", quota.burst_us)?;
        }
        Ok(())
    }

    fn quota(&self, kernel: &dyn Kernel, cpu: &str) -> io::Result<Option<(u64, u64)>> {
        let read = |file: &str| -> io::Result<i64> {
            let path = format!("{cpu}/cpu.cfs_{file}_us");
            kernel.read(&path)?.trim().parse().map_err(|_| malformed(&path))
        };
        let (quota, period) = (read("quota")?, read("period")?);
        Ok(u64::try_from(quota).ok().zip(u64::try_from(period).ok()))
    }

    fn usage_ns(&self, kernel: &dyn Kernel, acct: &str) -> io::Result<u64> {
        let path = format!("{acct}/cpuacct.usage");
        kernel.read(&path)?.trim().parse().map_err(|_| malformed(&path))
    }

    fn throttled_ns(&self, kernel: &dyn Kernel, cpu: &str) -> io::Result<u64> {
        Ok(keyed(&kernel.read(&format!("{cpu}/cpu.stat"))?, "throttled_time").unwrap_or(0))
    }
}
