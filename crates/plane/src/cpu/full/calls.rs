// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where threads ask for more to do (`bpf/cpu/calls.h`): the program is attached while a scheduler
//! has policy eevdf, so that nobody else's threads pay for it when they receive.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use reserv_facts::tree::kind::SCHED;
use reserv_model::{Batch, Kind, NodeId, Op, Policy};

use super::abi::RcNode;
use crate::{PlaneError, libbpf, sys};

/// The program, and the end of its link's name.
pub(super) const RECEIVED: &str = "rc_received";

/// The schedulers that want to know.
#[derive(Debug, Default)]
pub(super) struct Calls {
    folder: PathBuf,
    eevdf: BTreeSet<NodeId>,
}

impl Calls {
    /// Of the tree that was found. What the last daemon had attached is put right.
    pub(super) fn of(folder: &Path, nodes: &[RcNode]) -> Self {
        let wants = |n: &&RcNode| n.kind == SCHED && n.alg == Policy::Eevdf as u8;
        let eevdf = nodes.iter().filter(wants).map(|n| NodeId::unpack(n.id)).collect();
        let calls = Self { folder: folder.to_owned(), eevdf };
        calls.settle();
        calls
    }

    /// A batch is in effect.
    pub(super) fn saw(&mut self, batch: &Batch) {
        let before = self.eevdf.is_empty();
        for op in &batch.ops {
            match *op {
                Op::Create { id, kind: Kind::Scheduler(Policy::Eevdf), .. }
                | Op::SetPolicy { id, policy: Policy::Eevdf } => {
                    self.eevdf.insert(id);
                }
                Op::SetPolicy { id, .. } | Op::Delete { id, .. } => {
                    self.eevdf.remove(&id);
                }
                _ => {}
            }
        }
        if self.eevdf.is_empty() != before {
            self.settle();
        }
    }

    fn set(&self) -> Result<(), PlaneError> {
        if self.eevdf.is_empty() {
            libbpf::detach(&self.folder, RECEIVED)
        } else {
            libbpf::attach_once(&self.folder, RECEIVED, sys::attach_trace)
        }
    }

    /// Estimates are worse without it; nothing else is.
    fn settle(&self) {
        if let Err(error) = self.set() {
            tracing::warn!(%error, "requests of policy eevdf end only when their node is idle");
        }
    }
}
