// SPDX-License-Identifier: MIT OR Apache-2.0
//! `RESERV_TAGS_MAX`: room for fewer tags than the programs are made for, for tests that use it up.

use libbpf_rs::OpenObject;

use crate::PlaneError;
use crate::libbpf::refused;

pub(super) use crate::settings::tags_max as told;

/// The tables of files, sockets and lists have that size, and the programs know it
/// (bpf/tag/accounts.h).
pub(super) fn set(open: &mut OpenObject) -> Result<(), PlaneError> {
    let Some(most) = told() else { return Ok(()) };
    for mut map in open.maps_mut() {
        if matches!(map.name().to_str(), Some("files" | "socks" | "lists")) {
            map.set_max_entries(most)
                .map_err(|error| refused("size the tables of tags", &error))?;
        } else if map.name() == ".rodata.tags" {
            for size in map.initial_value_mut().into_iter().flat_map(|all| all.chunks_exact_mut(4))
            {
                size.copy_from_slice(&most.to_ne_bytes());
            }
        }
    }
    Ok(())
}
