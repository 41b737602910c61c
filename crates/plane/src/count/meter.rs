// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a counting plane asks about tags: counters, references, default lists. The tree is not its
//! business.

use reserv_model::{
    ArrivalSample, Dropper, NodeId, NodePath, Op, PacketRules, Receive, ReceiveOthers,
    ReceiveSample, Source, UseRule,
};

use super::Usage;
use crate::receive::{self, Set};
use crate::{Defaults, DescriptorTag, Holders, List, PlaneError, Refs};

/// A node, to a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its number.
    pub id: NodeId,
    /// A queue: it can be tagged with.
    pub queue: bool,
    /// It takes no more tags.
    pub dying: bool,
}

const NO_ENTRANCE: &str =
    "what comes in is not told apart here: `reserv up --net IFACE --receive` has it";

/// Why an op about what comes in has no effect, where nothing tells that apart.
pub(crate) fn lacks_entrance(op: &Op, entrance: bool) -> Option<String> {
    let wants = receive::of(op).is_some_and(|(_, _, value)| value != 0);
    (wants && !entrance).then(|| NO_ENTRANCE.to_owned())
}

/// Where nothing tells apart what comes in: defaults can be set, which change nothing.
pub(super) fn no_entrance(wanted: &[Set]) -> Result<Vec<Set>, PlaneError> {
    if wanted.iter().all(|(_, _, value)| *value == 0) {
        return Ok(Vec::new());
    }
    Err(PlaneError::Unsupported(NO_ENTRANCE.into()))
}

/// A mechanism that tags descriptors and counts what is done through them.
pub trait Meter: Send {
    /// In words, for `status`.
    fn mechanism(&self) -> &'static str;

    /// What it cannot do, one sentence each.
    fn limits(&self, source: &Source) -> Vec<String>;

    /// See [`crate::Lists::set_mount`].
    fn set_mount(&mut self, dev: u64) -> Result<(), PlaneError> {
        let _ = dev;
        Ok(())
    }

    /// Comes before everything else: what is counted, and the nodes that there are. One that an
    /// earlier daemon began goes on (`fresh` is false): what it knows beyond these nodes is gone.
    fn begin(&mut self, source: &Source, nodes: &[Told], fresh: bool) -> Result<(), PlaneError> {
        let _ = (source, nodes, fresh);
        Ok(())
    }

    /// What is counted has come again, perhaps elsewhere: an interface that was removed.
    fn again(&mut self, source: &Source) -> Result<(), PlaneError> {
        let _ = source;
        Ok(())
    }

    /// A node was made, or has changed.
    fn node(&mut self, told: Told) -> Result<(), PlaneError> {
        let _ = told;
        Ok(())
    }

    /// See [`crate::Lists::set_use`].
    fn set_use(&mut self, queue: NodeId, rules: &[UseRule]) -> Result<(), PlaneError> {
        let _ = (queue, rules);
        Ok(())
    }

    /// See [`crate::Packets::set_packet_rules`].
    fn set_packet_rules(&mut self, rules: &PacketRules) -> Result<(), PlaneError> {
        let _ = rules;
        Ok(())
    }

    /// See [`crate::Packets::arrivals`].
    fn arrivals(&self) -> Vec<ArrivalSample> {
        Vec::new()
    }

    /// Where what comes in is told apart, if it is.
    fn entrance(&self) -> Option<Receive> {
        None
    }

    /// The queue of the CPU for the threads that process what comes in, if there are any.
    fn received_in(&self) -> Option<&NodePath> {
        None
    }

    /// What comes in for queues is let in as this says: all of it, or nothing has changed. Answers
    /// what [`Meter::let_back`] wants.
    fn let_in(&mut self, wanted: &[Set]) -> Result<Vec<Set>, PlaneError> {
        no_entrance(wanted)
    }

    /// And as it was.
    fn let_back(&self, former: &[Set]) {
        let _ = former;
    }

    /// What has come in for a queue; `None`: that is not told apart.
    fn received(&self, queue: NodeId) -> Option<ReceiveSample> {
        let _ = queue;
        None
    }

    /// See [`crate::Packets::droppers`].
    fn droppers(&self, queue: NodeId) -> Result<Vec<Dropper>, PlaneError> {
        let _ = queue;
        Ok(Vec::new())
    }

    /// What no queue is asked for.
    fn received_else(&self) -> Option<ReceiveOthers> {
        None
    }

    /// What comes in for a queue is counted from 0.
    fn reset_received(&mut self, queue: NodeId) -> Result<(), PlaneError> {
        let _ = queue;
        Ok(())
    }

    /// What has been done through a queue since it was made.
    fn usage(&self, queue: NodeId) -> Result<Usage, PlaneError>;

    /// What refers to a queue.
    fn refs(&self, queue: NodeId) -> Result<Refs, PlaneError>;

    /// A node is gone: what refers to it falls back to q0, its counters are forgotten.
    fn removed(&mut self, queue: NodeId) -> Result<(), PlaneError>;

    /// The lists of a process.
    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError>;

    /// See [`crate::Descriptors::descriptors`].
    fn descriptors(&self, pid: i32) -> Result<Vec<(u32, NodeId)>, PlaneError> {
        let _ = pid;
        Ok(Vec::new())
    }

    /// See [`crate::Descriptors::descriptor_tag`].
    fn descriptor_tag(&self, queue: NodeId) -> Result<DescriptorTag, PlaneError> {
        let _ = queue;
        Err(PlaneError::Unsupported("descriptors are not tagged here".into()))
    }

    /// See [`crate::Descriptors::holders`].
    fn holders(&self, queue: NodeId) -> Result<Vec<Holders>, PlaneError> {
        let _ = queue;
        Ok(Vec::new())
    }

    /// See [`crate::Descriptors::untag`].
    fn untag(&mut self, queue: NodeId, keys: &[u64]) -> Result<u64, PlaneError> {
        let _ = (queue, keys);
        Ok(0)
    }

    /// Change one of the lists.
    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError>;

    /// Give everything back.
    fn stop(&mut self) -> Result<(), PlaneError>;
}
