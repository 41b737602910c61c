// SPDX-License-Identifier: MIT OR Apache-2.0
//! Backends: where dispatched requests are done.
//!
//! * [`FileBackend`]: a file or a block device.
//! * [`ModelBackend`]: the same, as slow as a modelled disk.

mod file;
mod model;

use std::io;
use std::os::fd::RawFd;
use std::path::Path;

pub use self::file::FileBackend;
pub use self::model::{Model, ModelBackend};
use crate::front::Op;

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
    /// Of the data: a read's and a write's.
    pub data: *mut u8,
}

/// A backend. The server polls its descriptor.
pub trait Backend {
    /// Readable when something is done.
    fn fd(&self) -> RawFd;
    /// Begin one, at the latest with the next [`Backend::enter`].
    ///
    /// # Safety
    /// The data stay where they are until it is done.
    unsafe fn submit(&mut self, io: &Io) -> io::Result<()>;
    /// What was to begin has begun.
    fn enter(&mut self) -> io::Result<()>;
    /// What is done: the name, and bytes or a negative errno.
    fn completed(&mut self, into: &mut Vec<(u64, i32)>);
    /// In bytes.
    fn size(&self) -> u64;
    /// Least unit of an I/O, in bytes.
    fn block(&self) -> u32;
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
        Some(model) => Box::new(ModelBackend::new(file, model)?),
    })
}
