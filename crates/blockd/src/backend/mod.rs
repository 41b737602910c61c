// SPDX-License-Identifier: MIT OR Apache-2.0
//! Backends: where dispatched requests are done.
//!
//! * [`FileBackend`]: a file or a block device.
//! * [`ModelBackend`]: the same, as slow as a modelled disk.

mod file;
mod model;

use std::io;
use std::path::Path;

pub use self::file::FileBackend;
pub use self::model::{Model, ModelBackend};
use crate::front::{Dataless, Op};
use crate::ring::Ring;

/// Requests at once, where the backend knows nothing better.
const DEPTH: u32 = 8;

/// One I/O, as a backend sees it.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// The caller's name for it.
    pub id: u64,
    /// What.
    pub op: Op,
    /// Of a write: it is on stable storage when it is done.
    pub fua: bool,
    /// Where.
    pub offset: u64,
    /// How many bytes.
    pub len: u32,
    /// A read's and a write's.
    pub data: Data,
}

/// Where data are.
#[derive(Clone, Copy, Debug)]
pub enum Data {
    /// Nowhere: the request has none.
    None,
    /// In memory of ours.
    At(*mut u8),
    /// In a registered buffer of the ring, so many bytes from its beginning: the memory of who
    /// asked.
    Registered(u16, u32),
}

/// A backend. What it does is done in the worker's ring.
pub trait Backend {
    /// Begin one, at the latest when the ring is waited for.
    ///
    /// # Safety
    /// The data stay where they are until it is done.
    unsafe fn submit(&mut self, ring: &mut Ring, io: &Io) -> io::Result<()>;
    /// These are done in the ring (the name, and bytes or a negative errno); and those are for the
    /// caller.
    fn completed(&mut self, done: &[(u64, i32)], into: &mut Vec<(u64, i32)>);
    /// When to ask again though nothing is done; 0: never.
    fn due(&self) -> u64 {
        0
    }
    /// What data in memory must be aligned to.
    fn memory_block(&self) -> u32;
    /// In bytes.
    fn size(&self) -> u64;
    /// Least unit of an I/O, in bytes.
    fn block(&self) -> u32;
    /// What it does without data. Nothing that the kernel would write zeros for: that costs what
    /// zeros cost.
    fn dataless(&self) -> Dataless;
    /// How many it should have at once, where nothing else is said.
    fn depth(&self) -> u32;
    /// Whether an arm goes to and fro.
    fn arm(&self) -> bool;
}

/// The backend of a file or block device, as slow as a model if one is said.
pub fn open(path: &Path, model: Option<Model>) -> io::Result<Box<dyn Backend>> {
    let file = FileBackend::open(path)?;
    Ok(match model {
        None => Box::new(file),
        Some(model) => Box::new(ModelBackend::new(file, model)),
    })
}
