// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that are put by: loaded and pinned, tied to nothing, with nothing in their memory. The
//! verifier takes seconds of a CPU for them, so `down` puts them by and the next `up` takes them up
//! again.
//!
//! They stand beside the folder of the running ones, under a name that says which build they are
//! of. The move from one folder to the other is one rename, so that whatever stands here is whole
//! and empty; whoever is stopped half-way leaves a folder of running programs that nobody runs,
//! which the next start takes away.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::libbpf::{self, os, remove_pins};
use crate::{PlaneError, work};

/// A folder beside all that runs: `RESERV_BPFFS`, a line and this name. Where that is the root of a
/// file system, what is beside it is none of pins: the folder is in it.
pub(crate) fn beside(name: &str) -> PathBuf {
    beside_of(&libbpf::folder(""), name)
}

fn beside_of(running: &Path, name: &str) -> PathBuf {
    let own = running.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if own.is_empty() || is_mount_point(running) {
        return running.join(name);
    }
    running.with_file_name(format!("{own}-{name}"))
}

/// Whether it is the root of what is mounted there.
fn is_mount_point(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let dev = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let above = folder.parent().and_then(dev);
    dev(folder).is_some_and(|here| above.is_some_and(|above| above != here))
}

/// All folders beside all that runs whose names begin so.
pub(crate) fn all_beside(prefix: &str) -> Vec<PathBuf> {
    let first = beside(prefix);
    let Some(above) = first.parent() else { return Vec::new() };
    let prefix = name_of(&first);
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| name_of(path).starts_with(&prefix)).collect()
}

/// All that is put by.
fn shelf() -> PathBuf {
    beside("parked")
}

#[test]
fn what_is_beside_a_root_of_pins_is_in_it() {
    let of = |running: &str| beside_of(Path::new(running), "parked");
    assert_eq!(of("/proc/self/reserv/"), Path::new("/proc/self/reserv-parked"));
    assert_eq!(of("/proc"), Path::new("/proc/parked"));
    assert_eq!(of("/proc/"), Path::new("/proc/parked"));
    assert_eq!(of("/no/such/place"), Path::new("/no/such/place-parked"));
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Where a folder of running programs is put by: with the number of its pins, by which what is
/// whole is known.
fn place(folder: &Path, build: u32, pins: usize) -> PathBuf {
    // Not with a dot: the kernel's file system of pins keeps such names for itself.
    shelf().join(format!("{}@{build:08x}-{pins}", name_of(folder)))
}

fn pins_of(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, |entries| entries.flatten().count())
}

/// All that is put by of the programs that run in this folder, whole or not.
fn all_of(folder: &Path) -> Vec<PathBuf> {
    let prefix = name_of(folder) + "@";
    let entries = fs::read_dir(shelf()).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| name_of(path).starts_with(&prefix)).collect()
}

/// Whether it is whole, and of this build.
fn is_whole(path: &Path, folder: &Path, build: u32) -> bool {
    path == place(folder, build, pins_of(path))
}

/// Whether there is one of this build.
pub(crate) fn is_there(folder: &Path, build: u32) -> bool {
    all_of(folder).iter().any(|path| is_whole(path, folder, build))
}

/// Puts a folder by, in which nothing is tied to the kernel's events any more.
pub(crate) fn park(folder: &Path, build: u32) -> Result<(), PlaneError> {
    all_of(folder).iter().try_for_each(|path| remove_pins(path))?;
    let to = place(folder, build, pins_of(folder));
    fs::create_dir_all(shelf()).map_err(os(format!("make {}", shelf().display())))?;
    fs::rename(folder, &to).map_err(os(format!("move {} to {}", folder.display(), to.display())))
}

/// Takes it up again, if there is one of this build; those of others go, and what is not whole.
/// `folder` is not there.
pub(crate) fn unpark(folder: &Path, build: u32) -> Result<bool, PlaneError> {
    let mut found = None;
    for path in all_of(folder) {
        if is_whole(&path, folder, build) {
            found = Some(path);
        } else {
            remove_pins(&path)?;
        }
    }
    let Some(from) = found else { return Ok(false) };
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above).map_err(os(format!("make {}", above.display())))?;
    }
    fs::rename(&from, folder).map_err(os(format!(
        "move {} to {}",
        from.display(),
        folder.display()
    )))?;
    Ok(true)
}

/// Takes all of them out of the kernel. Answers whether there were any.
pub fn clear() -> Result<bool, PlaneError> {
    let shelf = shelf();
    let mut had = false;
    for entry in fs::read_dir(&shelf).into_iter().flatten().flatten() {
        remove_pins(&entry.path())?;
        had = true;
    }
    match fs::remove_dir(&shelf) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(os(format!("remove {}", shelf.display()))(error));
        }
        _ => {}
    }
    // Objects that run share these maps with what is loaded later.
    if !["cpu", "tag"].iter().any(|object| libbpf::folder(object).exists()) {
        work::clear()?;
    }
    Ok(had)
}
