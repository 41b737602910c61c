// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups of either version, for the drivers that share by them: which hierarchies there are, our directories and who is in them, where members came from,
//! and weights in the kernel's numbers.

pub(crate) mod kernel;
pub(crate) mod mounts;
pub(crate) mod origin;
pub(crate) mod places;
pub(crate) mod weights;

#[cfg(test)]
pub(crate) mod fake;
