// SPDX-License-Identifier: MIT OR Apache-2.0
//! Front ends: a block device of the kernel whose requests come here.

pub mod fuse;
pub mod loopdev;
pub mod offer;
pub mod ublk;

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use crate::buffer::{Buffer, Pool};
use crate::ring::Ring;

/// Which front end is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// ublk where this kernel has it, else FUSE.
    Auto,
    /// ublk.
    Ublk,
    /// FUSE and a loop device.
    Fuse,
}

impl Choice {
    /// By its name.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "ublk" => Some(Self::Ublk),
            "fuse" => Some(Self::Fuse),
            _ => None,
        }
    }
}

/// The front end that was chosen, with what must not be lost of it when a worker dies.
#[derive(Debug)]
pub enum Held {
    /// The open file of /dev/fuse. The kernel ends a session that nobody has.
    Fuse(OwnedFd),
    /// Nothing: the kernel keeps the device and its requests.
    Ublk,
}

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
    /// They read as zeros from now on, and are not needed any more.
    Unmap,
    /// They read as zeros from now on, and keep their place.
    Zero,
}

/// Which of the requests without data a disk has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dataless {
    /// [`Op::Discard`]
    pub discard: bool,
    /// [`Op::Unmap`]
    pub unmap: bool,
    /// [`Op::Zero`]
    pub zero: bool,
}

/// A request, as it came.
#[derive(Debug)]
pub struct Arrived {
    /// The front end's name for it, to be given back with the answer.
    pub handle: u64,
    /// What it wants.
    pub op: Op,
    /// Of a write: it is on stable storage when this is answered.
    pub fua: bool,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes; 0 for a flush.
    pub len: u32,
    /// Who made it; `None`: nobody wrote one down.
    pub owner: Option<crate::owners::Owner>,
    /// A write's data, where they came with it; a read's place for them, once it is dispatched.
    pub buffer: Option<Buffer>,
}

/// What a device is like that a front end offers.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// In bytes.
    pub size: u64,
    /// Least unit of an I/O, in bytes.
    pub block: u32,
    /// What the disk below writes at once.
    pub physical: u32,
    /// It has a head that moves.
    pub rotational: bool,
    /// What it does without data.
    pub dataless: Dataless,
    /// What data in memory must be aligned to, where they are not copied.
    pub memory: u32,
    /// Where data in memory may have gaps: at multiples of this and one (0: anywhere), where they
    /// are not copied.
    pub boundary: u64,
    /// Why data are to be copied by us, in words.
    pub copied: Option<&'static str>,
    /// Registered buffers that there may be.
    pub buffers: u32,
}

/// A front end.
pub trait Front {
    /// Its name: `loop`, `ublk`.
    fn kind(&self) -> &'static str;
    /// Readable when requests have come; `None`: they come as completions of the ring.
    fn fd(&self) -> Option<RawFd>;
    /// Requests that have come: the descriptor is readable, or these are done in the ring.
    fn receive(
        &mut self,
        ring: &mut Ring,
        done: &[(u64, i32)],
        pool: &mut Pool,
        into: &mut Vec<Arrived>,
    ) -> io::Result<()>;
    /// Buffers that are kept, from the beginning.
    fn buffers(&self) -> usize;
    /// Why all data are copied, in words; `None`: they are not.
    fn copies(&self) -> Option<&'static str>;
    /// The registered buffer of the ring that a request's data are in, if they are in one.
    fn registered(&self, request: &Arrived) -> Option<u16>;
    /// The data of a write that came without them.
    fn load(&mut self, request: &Arrived, buffer: &mut Buffer) -> io::Result<()>;
    /// The request was done, or failed with this positive errno. A read's data are in its buffer,
    /// if it has one. It is told at the latest when the ring is waited for.
    fn answer(
        &mut self,
        ring: &mut Ring,
        request: &Arrived,
        result: Result<(), i32>,
    ) -> io::Result<()>;
    /// The owners are in this table from now on.
    fn set_owners(&mut self, owners: crate::owners::Owners);
}
