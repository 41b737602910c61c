// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block server: the requests of one disk, served by the shares of a tree.
//!
//! ```text
//!  programs ─► block device ─► front end ─► scheduler (sched/) ─► backend ─► the file or device below
//!              (ublk, loop)    ublk/, fuse.rs  scheduler.rs        backend/
//! ```
//!
//! One process per disk, in two halves: a keeper that holds what must not be lost (a FUSE session,
//! the socket) and starts the worker anew, and the worker, which does everything else. The tree's
//! structure and its counters stand in a mapped file ([`book`]), so that a worker that is killed is
//! followed by one that knows them. reservd tells edits and asks over a socket ([`wire`]); it is
//! not on a request's way.

pub mod backend;
pub mod book;
pub mod buffer;
pub mod front;
pub mod keeper;
pub mod log;
pub mod owners;
pub mod private;
pub mod ring;
pub mod scheduler;
pub mod serve;
mod settings;
pub mod shape;
pub mod sysfs;
pub mod tree;
pub mod wire;
