// SPDX-License-Identifier: MIT OR Apache-2.0
//! A resource before it is brought up: what it will be made of and what it will promise are known,
//! so a tree for it is refused before anything is loaded, by who only asks (`up --dry-run`) too.

use nix::unistd::{SysconfVar, sysconf};
use reserv_model::{Name, Source, Tree};

use crate::{PlaneError, count};

/// The machine's CPU time, in ns per second.
pub fn cpu_capacity() -> u64 {
    // All CPUs that are online, whichever of them this process may use.
    let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    cpus.and_then(|n| u64::try_from(n).ok()).unwrap_or(1).max(1) * 1_000_000_000
}

/// The tree that a resource begins with; `on` is none for the CPU. Refused where there is nothing
/// to bring up.
pub fn tree(name: &Name, on: Option<&Source>) -> Result<Tree, PlaneError> {
    let mut tree = Tree::new(name.clone());
    if let Some(on) = on {
        count::probe(on)?;
        tree.set_resource(on.kind());
    }
    tree.set_capacity(on.map_or_else(cpu_capacity, Source::promised));
    Ok(tree)
}
