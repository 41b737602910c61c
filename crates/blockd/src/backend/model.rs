// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file or block device that takes as long as a modelled disk (`crates/disk-model`): an arm and
//! turning platters, or channels of flash. The data are the file's. What is submitted is done there
//! at once, and told when the model would be done with it; a slower file is told when it is done.
//!
//! The model's disk ends where the file ends: a seek from one end of the file to the other takes as
//! long as one over the whole disk. It serves in the order of submission, so what is in its queue
//! is not put in order any more: an arm gets one request at a time where nothing else is said.

use std::collections::BTreeMap;
use std::io;
use std::str::FromStr;

use reserv_disk_model::{Disk, Flash, Kind, Request, Spinning};

use super::{Backend, DEPTH, FileBackend, Io};
use crate::front::{Dataless, Op};
use crate::ring::Ring;
use crate::serve::now;

const SECTOR: u64 = 512;

/// Which disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// 7200 revolutions a minute, 15 ms from end to end, 123 MB/s.
    Spinning,
    /// 8 channels, 550 MB/s.
    Flash,
}

impl FromStr for Model {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "spinning" => Ok(Self::Spinning),
            "flash" => Ok(Self::Flash),
            _ => Err(format!("{word}: a model is spinning or flash")),
        }
    }
}

impl Model {
    /// Of so many sectors.
    pub const fn kind(self, sectors: u64) -> Kind {
        match self {
            Self::Spinning => Kind::Spinning(Spinning { sectors, ..Spinning::DESKTOP }),
            Self::Flash => Kind::Flash(Flash { sectors, ..Flash::SATA }),
        }
    }
}

/// See the head of this file.
pub struct ModelBackend {
    below: FileBackend,
    model: Model,
    disk: Disk,
    /// When the model is done with what was submitted.
    due: BTreeMap<u64, u64>,
    /// What is done below and not by the model: by that time.
    early: BTreeMap<(u64, u64), i32>,
}

impl ModelBackend {
    /// This file, as slow as that disk.
    pub fn new(below: FileBackend, model: Model) -> Self {
        let disk = Disk::new(model.kind(below.size() / SECTOR));
        Self { below, model, disk, due: BTreeMap::new(), early: BTreeMap::new() }
    }
}

impl Backend for ModelBackend {
    unsafe fn submit(&mut self, ring: &mut Ring, io: &Io) -> io::Result<()> {
        let sectors = match io.op {
            Op::Read | Op::Write => io.len.div_ceil(512),
            Op::Flush | Op::Discard | Op::Unmap | Op::Zero => 0,
        };
        let request = Request { sector: io.offset / SECTOR, sectors, write: io.op != Op::Read };
        let served = self.disk.submit(now(), request).map_err(io::Error::other)?;
        self.due.insert(io.id, served.done);
        // SAFETY: the caller's promise.
        unsafe { self.below.submit(ring, io) }
    }

    fn completed(&mut self, done: &[(u64, i32)], into: &mut Vec<(u64, i32)>) {
        for &(id, result) in done {
            let due = self.due.remove(&id).unwrap_or(0);
            self.early.insert((due, id), result);
        }
        let later = self.early.split_off(&(now() + 1, 0));
        into.extend(
            std::mem::replace(&mut self.early, later)
                .into_iter()
                .map(|((_, id), result)| (id, result)),
        );
    }

    fn due(&self) -> u64 {
        self.early.keys().next().map_or(0, |&(due, _)| due.max(1))
    }

    fn memory_block(&self) -> u32 {
        self.below.memory_block()
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn block(&self) -> u32 {
        self.below.block()
    }

    fn dataless(&self) -> Dataless {
        self.below.dataless()
    }

    fn depth(&self) -> u32 {
        match self.model {
            Model::Spinning => 1,
            Model::Flash => DEPTH,
        }
    }

    fn arm(&self) -> bool {
        self.model == Model::Spinning
    }
}
