// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon: `/reserv` over FUSE, journal, adoption, supervision. Not here: policy, mechanisms of planes.

pub mod fuse;
pub mod journal;
