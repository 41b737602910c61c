// SPDX-License-Identifier: MIT OR Apache-2.0
//! The maps of `bpf/work.h`, which the programs of the CPU and those of tags share: what a thread
//! works for. Whichever is loaded first makes them. They are pinned beside the folders of both, and
//! stay when either is unloaded, for the other may run; they go with what is put by.

use std::io;
use std::path::PathBuf;

use libbpf_rs::{ErrorExt as _, MapCore as _, Object, OpenObject};
use reserv_facts::tag::WORK_VERSION;

use crate::libbpf::{make_folder, refused, remove_pins};
use crate::{PlaneError, parked, sys};

/// The maps.
const SHARED: [&str; 3] = ["work", "works", "worklists"];

/// `struct rt_work`, of which we know the layout alone: who changes it counts [`WORK_VERSION`] on.
#[cfg(test)]
#[repr(C)]
pub(crate) struct RtWork {
    pub(crate) queue: u64,
    pub(crate) back: u64,
    pub(crate) epoch: u64,
    pub(crate) listed: u32,
    pub(crate) times: u32,
    pub(crate) page: u64,
    pub(crate) head: u64,
    pub(crate) execs: u64,
}

/// `struct rt_slots`
#[cfg(test)]
#[repr(C)]
pub(crate) struct RtSlots {
    pub(crate) epoch: u64,
    pub(crate) execs: u64,
    pub(crate) generation: [u32; 1024],
    pub(crate) index: [u16; 1024],
}

/// `struct rt_works`
#[cfg(test)]
#[repr(C)]
pub(crate) struct RtWorks {
    pub(crate) epoch: u64,
    pub(crate) used: u64,
}

/// Where they are pinned; the number is their layout's.
fn folder() -> PathBuf {
    parked::beside(&format!("{NAME}{WORK_VERSION}"))
}

const NAME: &str = "work-";

/// They go, those of other builds too, if they are there; programs that run keep theirs.
pub(crate) fn clear() -> Result<(), PlaneError> {
    parked::all_beside(NAME).iter().try_for_each(|folder| remove_pins(folder))
}

/// Whether a map is one of them: not to be pinned with the others.
pub(crate) fn is_shared(map: &str) -> bool {
    SHARED.contains(&map)
}

/// An object that is to be loaded has them, if they are there.
pub(crate) fn reuse(open: &mut OpenObject) -> Result<(), PlaneError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let pin = folder().join(&name);
        if is_shared(&name) && pin.exists() {
            map.reuse_pinned_map(&pin)
                .map_err(|error| refused(&format!("share the map {name}"), &error))?;
        }
    }
    Ok(())
}

/// Pins those of an object that was loaded. `false`: another object has pinned its own meanwhile;
/// this one is to be loaded again.
pub(crate) fn pin(object: &mut Object) -> Result<bool, PlaneError> {
    let folder = folder();
    make_folder(&folder)?;
    for map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if !is_shared(&name) {
            continue;
        }
        let pin = folder.join(&name);
        let id = map.info().context("look a map up").map_err(|e| refused(&name, &e))?.info.id;
        let pinned = sys::pin(&map, &pin);
        match pinned {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(crate::libbpf::os(format!("pin {}", pin.display())))?,
        }
        let there = libbpf_rs::MapHandle::from_pinned_path(&pin)
            .and_then(|map| map.info())
            .map_err(|error| refused(&name, &error))?;
        if there.info.id != id {
            return Ok(false);
        }
    }
    Ok(true)
}
