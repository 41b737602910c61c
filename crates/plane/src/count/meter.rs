// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a counting plane asks about tags: counters, references, default lists. The tree is not its business.

use reserv_model::{NodeId, Source};

use super::Usage;
use crate::{Defaults, List, PlaneError, Refs};

/// A mechanism that tags descriptors and counts what is done through them.
pub trait Meter: Send {
    /// In words, for `status`.
    fn mechanism(&self) -> &'static str;

    /// What it cannot do, one sentence each.
    fn limits(&self, source: &Source) -> Vec<String>;

    /// See [`crate::Plane::set_mount`].
    fn set_mount(&mut self, dev: u64) -> Result<(), PlaneError> {
        let _ = dev;
        Ok(())
    }

    /// What has been done through a queue since it was made.
    fn usage(&self, queue: NodeId) -> Result<Usage, PlaneError>;

    /// What refers to a queue.
    fn refs(&self, queue: NodeId) -> Result<Refs, PlaneError>;

    /// A queue is gone: what refers to it falls back to q0, its counters are forgotten.
    fn removed(&mut self, queue: NodeId) -> Result<(), PlaneError>;

    /// The lists of a process.
    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError>;

    /// Change one of them.
    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError>;

    /// Give everything back.
    fn stop(&mut self) -> Result<(), PlaneError>;
}

/// Where nothing can be tagged: all counters stay 0.
#[derive(Debug)]
pub struct Unmetered;

impl Meter for Unmetered {
    fn mechanism(&self) -> &'static str {
        "no tags"
    }

    fn limits(&self, source: &Source) -> Vec<String> {
        vec![format!("{} cannot be tagged here: every counter stays 0", source.kind().tagged())]
    }

    fn usage(&self, _queue: NodeId) -> Result<Usage, PlaneError> {
        Ok(Usage::default())
    }

    fn refs(&self, _queue: NodeId) -> Result<Refs, PlaneError> {
        Ok(Refs::default())
    }

    fn removed(&mut self, _queue: NodeId) -> Result<(), PlaneError> {
        Ok(())
    }

    fn defaults(&self, _pid: i32) -> Result<Defaults, PlaneError> {
        Ok(Defaults { default: NodeId::Q0, child: NodeId::Q0 })
    }

    fn set_default(&mut self, _pid: i32, _list: List, queue: NodeId) -> Result<(), PlaneError> {
        if queue == NodeId::Q0 {
            return Ok(());
        }
        Err(PlaneError::Unsupported("nothing can be tagged here, so every list holds q0".into()))
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        Ok(())
    }
}
