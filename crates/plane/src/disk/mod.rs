// SPDX-License-Identifier: MIT OR Apache-2.0
//! The drivers of a disk. Full: its requests wait in the tree's queues, in a block server of our
//! own, and are dispatched by the tree's shares. Stock: the kernel's own means, told the tree's
//! weights through cgroups; shares are inexact. The design note is `docs/notes/disk.md`.

mod above;
pub mod full;
mod server;
pub mod stock;
#[cfg(test)]
mod tests;
mod uevents;
mod unit;

#[doc(hidden)]
pub use uevents::understand;

use std::path::Path;

use reserv_model::{Driver, Name, Source};

use crate::{Plane, PlaneError};

/// What makes the devices of disks here: ublk, or why it is not that.
pub fn survey() -> Result<(), String> {
    reserv_blockd::front::ublk::control::Control::usable()
}

/// Take a disk, with a tree of root and q0, by the driver that the source names; where it names
/// none by the full one, which works everywhere. `run` is where what must survive us is written
/// down.
pub fn start(
    run: &Path,
    number: u8,
    name: &Name,
    source: &Source,
) -> Result<Box<dyn Plane>, PlaneError> {
    if is_stock(source) {
        return Ok(Box::new(stock::start(run, number, source)?));
    }
    Ok(Box::new(full::start(run, number, name, source)?))
}

/// Find what an earlier daemon left; `None` when there is nothing.
pub fn adopt(
    run: &Path,
    number: u8,
    name: &Name,
    source: &Source,
) -> Result<Option<Box<dyn Plane>>, PlaneError> {
    if is_stock(source) {
        return Ok(
            stock::adopt(run, number, source)?.map(|plane| Box::new(plane) as Box<dyn Plane>)
        );
    }
    Ok(full::adopt(run, number, name, source)?.map(|plane| Box::new(plane) as Box<dyn Plane>))
}

const fn is_stock(source: &Source) -> bool {
    matches!(source, Source::Disk { driver: Driver::Stock, .. })
}
