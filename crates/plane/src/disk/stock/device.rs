// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block device: its elevator, iocost's switch, and what it has served in all.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use serde::{Deserialize, Serialize};

use crate::PlaneError;
use crate::cgroup::kernel::Kernel;
use crate::cgroup::places::{os, put};
use crate::count::Usage;

pub(super) const BFQ: &str = "bfq";
/// Of `/sys/block/*/stat`.
const SECTOR: u64 = 512;

/// A whole disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    /// As below /sys/block.
    pub(super) name: String,
    /// As the block layer's files of cgroups name it: `8:16`.
    pub(super) number: String,
}

impl Device {
    /// The disk at a path.
    pub(super) fn find(path: &str) -> Result<Self, PlaneError> {
        let invalid = |why: String| Err(PlaneError::Invalid(format!("{path}: {why}")));
        let found = fs::metadata(path).map_err(os(path.to_owned()))?;
        if !found.file_type().is_block_device() {
            return invalid(
                "no block device: the stock driver shares a whole disk; the full driver takes files too"
                    .into(),
            );
        }
        let dev = found.rdev();
        let number = format!("{}:{}", nix::sys::stat::major(dev), nix::sys::stat::minor(dev));
        let link = format!("/sys/dev/block/{number}");
        let to = fs::canonicalize(&link).map_err(os(link))?;
        let of = |path: &std::path::Path| {
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        if to.join("partition").exists() {
            let whole = to.parent().map(of).unwrap_or_default();
            return invalid(format!(
                "a partition: the stock driver shares the whole disk, /dev/{whole}"
            ));
        }
        Ok(Self { name: of(&to), number })
    }

    fn queue(&self, file: &str) -> String {
        format!("/sys/block/{}/queue/{file}", self.name)
    }

    /// Its elevator now.
    pub(super) fn elevator(&self, kernel: &dyn Kernel) -> Option<String> {
        let text = kernel.read(&self.queue("scheduler")).ok()?;
        let chosen = text.split_once('[')?.1.split_once(']')?.0;
        Some(chosen.to_owned())
    }

    /// Chooses an elevator; the kernel loads its module. Devices without queues of requests take
    /// none, and some say nothing about it.
    pub(super) fn set_elevator(&self, kernel: &dyn Kernel, name: &str) -> Result<(), String> {
        kernel.write(&self.queue("scheduler"), name).map_err(|e| e.to_string())?;
        match self.elevator(kernel) {
            Some(now) if now == name => Ok(()),
            now => {
                Err(format!("{} has {} all the same", self.name, now.as_deref().unwrap_or("none")))
            }
        }
    }

    /// A switch of the elevator's. It is lost with the elevator, so nobody has to put it back.
    pub(super) fn tune(
        &self,
        kernel: &dyn Kernel,
        key: &str,
        value: &str,
    ) -> Result<(), PlaneError> {
        put(kernel, &self.queue(&format!("iosched/{key}")), value)
    }

    /// Whether it is there.
    pub(super) fn present(&self, kernel: &dyn Kernel) -> bool {
        kernel.read(&format!("/sys/block/{}/dev", self.name)).is_ok_and(|n| n.trim() == self.number)
    }

    /// Whether the kernel has iocost (`io.cost.qos` at the top of v2), and has it on for this disk.
    pub(super) fn iocost(&self, kernel: &dyn Kernel, top: &str) -> Option<bool> {
        let text = kernel.read(&format!("{top}/io.cost.qos")).ok()?;
        let ours = text.lines().find_map(|line| line.strip_prefix(&format!("{} ", self.number)));
        Some(ours.is_some_and(|line| line.split(' ').any(|word| word == "enable=1")))
    }

    pub(super) fn set_iocost(
        &self,
        kernel: &dyn Kernel,
        top: &str,
        on: bool,
    ) -> Result<(), PlaneError> {
        put(
            kernel,
            &format!("{top}/io.cost.qos"),
            &format!("{} enable={}", self.number, u8::from(on)),
        )
    }

    /// What it has done since the machine started, reads and writes.
    pub(super) fn total(&self, kernel: &dyn Kernel) -> Usage {
        let text = kernel.read(&format!("/sys/block/{}/stat", self.name)).unwrap_or_default();
        let words: Vec<u64> =
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let at = |n: usize| words.get(n).copied().unwrap_or(0);
        Usage {
            operations: at(0).wrapping_add(at(4)),
            bytes: at(2).wrapping_add(at(6)).wrapping_mul(SECTOR),
        }
    }
}
