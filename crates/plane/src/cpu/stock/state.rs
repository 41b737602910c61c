// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cgroupfs cannot keep: exact weights, limits, carried counters, the number of the last
//! batch.
//!
//! The file is a whole state in its first line and a step in every further one; now and then it is
//! written anew, by rename. A torn last line is a step that did not happen.
//!
//! Written after the cgroups: a daemon that died between the two finds the tree before the batch
//! here, makes the cgroups match it again and has its caller send the batch anew. So a batch is
//! whole or absent.

use reserv_model::{Batch, NodeId};
use serde::{Deserialize, Serialize};

use super::cg::os;
use super::mirror::{Carried, Change, Mirror};
use crate::PlaneError;
use crate::cgroup::kernel::Kernel;

/// Version of the format.
const VERSION: u32 = 1;

/// A directory that a move is about to remove, with the counters that go with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Leaving {
    pub(super) id: NodeId,
    pub(super) path: String,
    pub(super) carried: Carried,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    version: u32,
    pub(super) mirror: Mirror,
    /// `None` when the tree was read back from cgroupfs and nobody knows.
    pub(super) seq: Option<u64>,
    /// The batch of that number, to know a replay of it, with which of its ops were answered
    /// `Draining`.
    pub(super) last: Option<(Batch, Vec<bool>)>,
    pub(super) leaving: Vec<Leaving>,
    /// We enabled the cpu controller at the top.
    pub(super) prepared: bool,
    /// CPU time of the machine, and of our tree, when the driver started.
    pub(super) machine_ns: u64,
    /// Kernel's name for this boot: a state of another boot is worthless.
    pub(super) boot: String,
}

/// What one batch, or one collection, changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) change: Option<Change>,
    pub(super) last: Option<(Batch, Vec<bool>)>,
    pub(super) leaving: Vec<Leaving>,
}

impl Step {
    pub(super) fn append(&self, kernel: &dyn Kernel, file: &str) -> Result<(), PlaneError> {
        let context = || os(format!("append to {file}"));
        let text = serde_json::to_string(self).map_err(|e| context()(e.into()))? + "\n";
        kernel.append(file, &text).map_err(context())
    }
}

impl State {
    pub(super) fn new(mirror: Mirror, prepared: bool, machine_ns: u64, boot: String) -> Self {
        Self {
            version: VERSION,
            mirror,
            seq: Some(0),
            last: None,
            leaving: Vec::new(),
            prepared,
            machine_ns,
            boot,
        }
    }

    /// `None` when there is none, or none that is of use now.
    pub(super) fn load(kernel: &dyn Kernel, file: &str, boot: &str) -> Option<Self> {
        let text = kernel.read(file).ok()?;
        let mut lines = text.lines();
        match serde_json::from_str::<Self>(lines.next().unwrap_or_default()) {
            Ok(mut state) if state.version == VERSION && state.boot == boot => {
                for line in lines {
                    match serde_json::from_str(line) {
                        Ok(step) => state.take(step),
                        Err(_) => break,
                    }
                }
                Some(state)
            }
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(file, %error, "unreadable state is ignored");
                None
            }
        }
    }

    fn take(&mut self, step: Step) {
        if let Some(change) = step.change {
            self.mirror.catch_up(change);
        }
        if let Some(last) = step.last {
            self.seq = Some(last.0.seq);
            self.last = Some(last);
        }
        self.leaving = step.leaving;
    }

    pub(super) fn save(&self, kernel: &dyn Kernel, file: &str) -> Result<(), PlaneError> {
        let context = || os(format!("write {file}"));
        let mut text = serde_json::to_vec(self).map_err(|e| context()(e.into()))?;
        text.push(b'\n');
        kernel.store(file, &text).map_err(context())
    }
}
