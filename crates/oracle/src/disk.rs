// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies and classes for disks.

pub mod bounds;
pub mod cello;
pub mod fair;
pub mod scan;
pub mod sim;
pub mod window;
