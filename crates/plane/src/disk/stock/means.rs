// SPDX-License-Identifier: MIT OR Apache-2.0
//! What divides the disk: BFQ or iocost, how it is switched on, and that it is as it was.

use serde::{Deserialize, Serialize};

use super::device;
use super::shares;
use super::tree::Tree;
use crate::PlaneError;
use crate::cgroup::places::os;
use crate::cgroup::weights::Range;

/// What divides the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Means {
    Bfq,
    Iocost,
}

impl Tree {
    /// BFQ, but for a disk for which somebody has iocost on already; iocost where there is no BFQ.
    pub(super) fn choose(&mut self, one: bool) -> Result<(), PlaneError> {
        let (device, v2) = (self.kept.device.clone(), self.v2());
        let iocost = if v2 { device.iocost(self.places.kernel(), self.top()) } else { None };
        let only_bfq = || {
            PlaneError::Unsupported(
                "one request at a time (a depth of 1) is BFQ's, and this disk has iocost".into(),
            )
        };
        if iocost == Some(true) {
            self.kept.means = Means::Iocost;
            return if one { Err(only_bfq()) } else { self.save() };
        }
        let elevator = device.elevator(self.places.kernel());
        let no_bfq = match elevator {
            None => "it takes no elevator: device mapper and RAID are shared by the disks below"
                .to_owned(),
            Some(elevator) => {
                let switch = elevator != device::BFQ;
                self.kept.former = switch.then_some(elevator);
                self.save()?;
                let chosen = if switch {
                    device.set_elevator(self.places.kernel(), device::BFQ)
                } else {
                    Ok(())
                };
                match chosen {
                    Ok(()) => return self.tune(one),
                    Err(why) => why,
                }
            }
        };
        match iocost {
            Some(_) if one => Err(only_bfq()),
            Some(_) => {
                self.undo_elevator();
                (self.kept.means, self.kept.former, self.kept.switched) =
                    (Means::Iocost, None, true);
                self.save()?;
                device.set_iocost(self.places.kernel(), self.top(), true)
            }
            None => Err(PlaneError::Unsupported(format!(
                "{} gets no BFQ ({no_bfq}), and {}",
                device.name,
                if v2 { "this kernel has no iocost" } else { "cgroup v1 has no iocost" }
            ))),
        }
    }

    /// `low_latency` raises the weights of whom it takes for interactive, for seconds.
    fn tune(&mut self, one: bool) -> Result<(), PlaneError> {
        let device = self.kept.device.clone();
        let wanted = [("low_latency", false), ("strict_guarantees", one)];
        if self.kept.former.is_none() {
            for (key, _) in wanted {
                let path = format!("/sys/block/{}/queue/iosched/{key}", device.name);
                let was = self.places.kernel().read(&path).map_err(os(format!("read {path}")))?;
                self.kept.tuned.push((key.to_owned(), was.trim().to_owned()));
            }
            self.save()?;
        }
        for (key, on) in wanted {
            device.tune(self.places.kernel(), key, if on { "1" } else { "0" })?;
        }
        Ok(())
    }

    /// The file with the weight.
    pub(super) fn weight_file(&self) -> &'static str {
        match (self.kept.means, self.v2()) {
            (Means::Iocost, _) => "io.weight",
            (Means::Bfq, true) => "io.bfq.weight",
            (Means::Bfq, false) => "blkio.bfq.weight",
        }
    }

    pub(super) fn range(&self) -> Range {
        match self.kept.means {
            Means::Bfq => shares::BFQ,
            Means::Iocost => shares::IOCOST,
        }
    }

    /// Why the weights have no effect now; empty: they have.
    pub(super) fn idle(&self) -> String {
        let (device, kernel) = (&self.kept.device, self.places.kernel());
        if !device.present(kernel) {
            return format!("there is no disk {} now", device.name);
        }
        match self.kept.means {
            Means::Bfq => match device.elevator(kernel) {
                Some(now) if now == device::BFQ => String::new(),
                now => format!(
                    "somebody chose the elevator {} for {}: without {} weights have no effect",
                    now.as_deref().unwrap_or("none"),
                    device.name,
                    device::BFQ
                ),
            },
            Means::Iocost if device.iocost(kernel, self.top()) != Some(true) => {
                format!("somebody switched iocost off for {}", device.name)
            }
            Means::Iocost => String::new(),
        }
    }

    fn undo_elevator(&self) {
        let (device, kernel) = (&self.kept.device, self.places.kernel());
        if device.elevator(kernel).as_deref() != Some(device::BFQ) {
            return;
        }
        let done = match &self.kept.former {
            Some(former) => device.set_elevator(kernel, former),
            None => self
                .kept
                .tuned
                .iter()
                .try_for_each(|(key, was)| device.tune(kernel, key, was))
                .map_err(|e| e.to_string()),
        };
        if let Err(error) = done {
            tracing::error!(error, disk = device.name, "the elevator is not as it was");
        }
    }

    /// Elevator and iocost as they were.
    pub(super) fn undo_means(&self) -> Result<(), PlaneError> {
        let (device, kernel) = (&self.kept.device, self.places.kernel());
        match self.kept.means {
            Means::Bfq => self.undo_elevator(),
            Means::Iocost if self.kept.switched && device.present(kernel) => {
                device.set_iocost(kernel, self.top(), false)?;
            }
            Means::Iocost => {}
        }
        Ok(())
    }
}
