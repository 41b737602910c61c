// SPDX-License-Identifier: MIT OR Apache-2.0
//! Front ends: a block device of the kernel whose requests come here.

pub mod fuse;
pub mod loopdev;

use std::io;
use std::os::fd::RawFd;

use crate::buffer::{Buffer, Pool};

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Data from the disk.
    Read,
    /// Data to it.
    Write,
    /// What was written before is on stable storage when this is answered.
    Flush,
    /// These bytes are not needed any more.
    Discard,
    /// They read as zeros from now on.
    Zero,
}

/// A request, as it came.
#[derive(Debug)]
pub struct Arrived {
    /// The front end's name for it, to be given back with the answer.
    pub handle: u64,
    /// What it wants.
    pub op: Op,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes; 0 for a flush.
    pub len: u32,
    /// The queue of who made it; `None`: nobody wrote one down.
    pub owner: Option<u64>,
    /// A write's data, where they came with it; a read's place for them, once it is dispatched.
    pub buffer: Option<Buffer>,
}

/// A front end. The server polls its descriptor, and asks it when that is readable.
pub trait Front {
    /// Readable when requests have come.
    fn fd(&self) -> RawFd;
    /// Requests that have come.
    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Arrived>) -> io::Result<()>;
    /// The request was done, or failed with this positive errno. A read's data are in its buffer.
    fn answer(&mut self, request: &Arrived, result: Result<(), i32>) -> io::Result<()>;
    /// The owners are in this table from now on.
    fn set_owners(&mut self, owners: crate::owners::Owners);
}
