// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that are put by: loaded and pinned, tied to nothing, with nothing in their memory. The verifier takes seconds of a CPU for them, so `down` puts
//! them by and the next `up` takes them up again.
//!
//! They stand beside the folder of the running ones, under a name that says which build they are of. The move from one folder to the other is one rename, so that whatever stands here is
//! whole and empty; whoever is stopped half-way leaves a folder of running programs that nobody runs, which the next start takes away.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::PlaneError;
use crate::libbpf::{self, os, remove_pins};

/// All that is put by: `RESERV_BPFFS` and an ending.
fn shelf() -> PathBuf {
    let running = libbpf::folder("");
    let name = running.file_name().unwrap_or_default().to_string_lossy().into_owned();
    running.with_file_name(name + "-parked")
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Where a folder of running programs is put by.
fn place(folder: &Path, build: u32) -> PathBuf {
    // Not with a dot: the kernel's file system of pins keeps such names for itself.
    shelf().join(format!("{}@{build:08x}", name_of(folder)))
}

/// Those of other builds go.
fn clear_others(folder: &Path, build: u32) -> Result<(), PlaneError> {
    let prefix = name_of(folder) + "@";
    let keep = place(folder, build);
    for entry in fs::read_dir(shelf()).into_iter().flatten().flatten() {
        let path = entry.path();
        if path != keep && name_of(&path).starts_with(&prefix) {
            remove_pins(&path)?;
        }
    }
    Ok(())
}

/// Puts a folder by, in which nothing is tied to the kernel's events any more.
pub(crate) fn park(folder: &Path, build: u32) -> Result<(), PlaneError> {
    let to = place(folder, build);
    remove_pins(&to)?;
    fs::create_dir_all(shelf()).map_err(os(format!("make {}", shelf().display())))?;
    fs::rename(folder, &to).map_err(os(format!("move {} to {}", folder.display(), to.display())))
}

/// Takes it up again, if there is one of this build. `folder` is not there.
pub(crate) fn unpark(folder: &Path, build: u32) -> Result<bool, PlaneError> {
    clear_others(folder, build)?;
    let from = place(folder, build);
    if !from.exists() {
        return Ok(false);
    }
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above).map_err(os(format!("make {}", above.display())))?;
    }
    fs::rename(&from, folder).map_err(os(format!("move {} to {}", from.display(), folder.display())))?;
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
            Err(os(format!("remove {}", shelf.display()))(error))
        }
        _ => Ok(had),
    }
}
