// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of the machine's memory the limits of each resource's queues may take together
//! (`reserv_model::Backlog`): what the configuration says, kept in the file `backlog` of the
//! run-time directory for the next worker; else an eighth.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use reserv_model::Memory;

use crate::sync::lock;

/// One for all resources, as the machine's memory is; every tree is told of it by
/// [`crate::engine::Engine::measure_capacity`].
static SAID: Mutex<Option<Memory>> = Mutex::new(None);

fn file(run: &Path) -> PathBuf {
    run.join("backlog")
}

/// What an earlier worker was told.
pub fn remember(run: &Path) {
    let text = fs::read_to_string(file(run)).ok();
    let memory = text.and_then(|text| {
        text.trim_ascii().parse().map_err(|error| tracing::error!(%error, "the file backlog")).ok()
    });
    *lock(&SAID) = memory;
}

/// What the configuration said; `None`: nothing.
pub fn said() -> Option<Memory> {
    *lock(&SAID)
}

/// From now on, for the next worker too.
pub fn set(run: &Path, memory: Option<Memory>) -> io::Result<()> {
    match memory {
        Some(memory) => {
            let new = run.join("backlog.new");
            fs::write(&new, format!("{memory}\n"))?;
            fs::rename(new, file(run))?;
        }
        None => match fs::remove_file(file(run)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        },
    }
    *lock(&SAID) = memory;
    Ok(())
}

/// In bytes, for each resource.
pub fn budget() -> u64 {
    use nix::unistd::{SysconfVar, sysconf};
    let number = |of| sysconf(of).ok().flatten().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let machine = number(SysconfVar::_PHYS_PAGES) * number(SysconfVar::PAGE_SIZE);
    said().unwrap_or(Memory::DEFAULT).bytes(machine)
}
