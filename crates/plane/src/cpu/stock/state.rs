// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cgroupfs cannot keep: exact weights, limits, carried counters, the number of the last batch.
//!
//! Written after the cgroups, by rename: a daemon that died between the two finds the tree before the batch here,
//! makes the cgroups match it again and has its caller send the batch anew. So a batch is whole or absent.

use reserv_model::{Batch, NodeId};
use serde::{Deserialize, Serialize};

use super::cg::os;
use super::kernel::Kernel;
use super::mirror::{Carried, Mirror};
use crate::PlaneError;

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
    /// The batch of that number, to know a replay of it, with which of its ops were answered `Draining`.
    pub(super) last: Option<(Batch, Vec<bool>)>,
    pub(super) leaving: Vec<Leaving>,
    /// We enabled the cpu controller at the top.
    pub(super) prepared: bool,
    /// CPU time of the machine, and of our tree, when the driver started.
    pub(super) machine_ns: u64,
    /// Kernel's name for this boot: a state of another boot is worthless.
    pub(super) boot: String,
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
        match serde_json::from_str::<Self>(&text) {
            Ok(state) if state.version == VERSION && state.boot == boot => Some(state),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(file, %error, "unreadable state is ignored");
                None
            }
        }
    }

    pub(super) fn save(&self, kernel: &dyn Kernel, file: &str) -> Result<(), PlaneError> {
        let context = || os(format!("write {file}"));
        let text = serde_json::to_vec(self).map_err(|e| context()(e.into()))?;
        kernel.store(file, &text).map_err(context())
    }
}
