// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/reserv` over the kernel's FUSE protocol; why the protocol is spoken directly:
//! `docs/notes/fuse.md`.

pub mod fair;
pub mod proto;
pub mod seen;
pub mod serve;
pub mod session;
