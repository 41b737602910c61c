// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's threads that process what comes in by a link are in the queue of the CPU that the
//! link names. They are others when the interface comes again or has another number of queues, and
//! the queue may go and come: so it is looked at again and again, and what differs is put right.
//! Where there is no such queue they are in q0, and `status` says so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reserv_model::{Kind, NodeId, NodePath, Source};
use reserv_plane::net::threads;
use reserv_plane::{PlaneError, Target};

use super::slot::Slot;
use super::{Core, Refusal, lock};

/// How often it is looked.
const EVERY: Duration = Duration::from_millis(500);

/// Of a link.
#[derive(Default)]
pub(super) struct Placed {
    tids: Vec<i32>,
    looked: Option<Instant>,
    /// Why they are not where they should be.
    trouble: Option<String>,
}

impl Slot {
    /// For `status`: why what comes in is not processed in the queue that was named.
    pub(super) fn out_of_place(&self) -> Option<String> {
        lock(&self.placed).trouble.clone()
    }
}

impl Core {
    /// Once in a while; the caller has no resource.
    pub(super) fn place_threads(&self, slot: &Arc<Slot>) {
        let Some(Source::Link { interface, receive_in: Some(queue), .. }) = slot.on() else {
            return;
        };
        let due = |at: Instant| at.elapsed() >= EVERY;
        if !slot.is_up() || !lock(&slot.placed).looked.is_none_or(due) {
            return;
        }
        let before = lock(&slot.placed).tids.clone();
        let again = {
            let Ok(_held) = slot.held() else { return };
            threads::again(slot.resource.number(), &interface)
        };
        let placed = match again {
            Ok(()) => self.place(&interface, &queue, &before),
            Err(error) => Err(error.into()),
        };
        let (tids, trouble) = match placed {
            Ok(placed) => placed,
            Err(refusal) => (before, Some(refusal.text)),
        };
        let mut placed = lock(&slot.placed);
        if trouble.is_some() && placed.trouble != trouble {
            tracing::warn!(name = %slot.name, ?trouble, "threads of what comes in");
        }
        *placed = Placed { tids, trouble, looked: Some(Instant::now()) };
    }

    fn place(
        &self,
        interface: &str,
        queue: &NodePath,
        before: &[i32],
    ) -> Result<(Vec<i32>, Option<String>), Refusal> {
        let tids = threads::find(interface)?;
        let wanted = {
            let engine = self.cpu()?;
            let tree = engine.tree();
            tree.resolve(queue).ok().filter(|id| {
                let there = tree.get(*id);
                there.is_some_and(|n| matches!(n.kind, Kind::Queue(_)) && !n.draining)
            })
        };
        self.put(before.iter().filter(|tid| !tids.contains(tid)), NodeId::Q0)?;
        self.put(tids.iter(), wanted.unwrap_or(NodeId::Q0))?;
        let trouble = match (wanted, tids.is_empty()) {
            (None, _) => Some(format!(
                "what comes in is processed in q0: the CPU has no queue {queue} that takes somebody"
            )),
            (_, true) => {
                Some(format!("nothing processes what comes in: {interface} has no threads"))
            }
            _ => None,
        };
        Ok((tids, trouble))
    }

    /// Those that are elsewhere.
    fn put<'t>(&self, tids: impl Iterator<Item = &'t i32>, queue: NodeId) -> Result<(), Refusal> {
        for tid in tids.filter(|tid| threads::is_one(**tid)) {
            let mut engine = self.cpu()?;
            match engine.plane().tag_of(*tid) {
                Ok(there) if there == queue => {}
                Ok(_) => engine.tag(Target::Thread(*tid), queue, None)?,
                Err(PlaneError::NoProcess(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The link has gone: threads that an older kernel keeps are nobody's.
    pub(super) fn leave_threads(&self, slot: &Slot) {
        let tids = std::mem::take(&mut lock(&slot.placed).tids);
        if let Err(refusal) = self.put(tids.iter(), NodeId::Q0) {
            tracing::debug!(%refusal, name = %slot.name, "threads of what came in");
        }
    }
}
