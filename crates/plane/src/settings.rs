// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the environment says to drivers: read here only. `docs/daemon.md` has the table.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use reserv_facts::place::{self, variable};

use crate::PlaneError;

/// A variable that is empty is as one that is not there.
fn told(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn path(name: &str, usual: &str) -> PathBuf {
    told(name).map_or_else(|| usual.into(), PathBuf::from)
}

/// The run-time directory.
pub fn run() -> PathBuf {
    path(variable::RUN, place::RUN)
}

/// Where the full drivers pin.
pub fn bpffs() -> PathBuf {
    path(variable::BPFFS, place::BPFFS)
}

/// What the stock drivers' cgroups are called by, at the top of a hierarchy.
pub(crate) fn cgroup() -> Result<String, PlaneError> {
    let name = told(variable::CGROUP).unwrap_or_else(|| place::CGROUP.into());
    let good = |name: &str| {
        !name.contains('/') && !name.starts_with('.') && !name.chars().any(char::is_whitespace)
    };
    match name.into_string() {
        Ok(name) if good(&name) => Ok(name),
        Ok(name) => Err(one_name(&name)),
        Err(name) => Err(one_name(&name.to_string_lossy())),
    }
}

fn one_name(name: &str) -> PlaneError {
    PlaneError::Invalid(format!("{}={name:?} is not one directory's name", variable::CGROUP))
}

/// The block server, where it is not beside ourselves.
pub(crate) fn block_server() -> Option<PathBuf> {
    told(variable::BLOCKD).map(PathBuf::from)
}

/// The cgroup whose sockets are seen, where it is not the root.
pub(crate) fn tag_cgroup() -> Option<PathBuf> {
    told(variable::TAG_CGROUP).map(PathBuf::from)
}

/// Whether the user said that q0 shall be one queue.
pub fn ignores_cgroup_weights() -> bool {
    told(variable::IGNORE_CGROUP_WEIGHTS).is_some_and(|value| value != "0")
}

/// Room for fewer tags than the programs are made for: for tests that use it up.
pub(crate) fn tags_max() -> Option<u32> {
    told(variable::TAGS_MAX)?.to_str()?.parse().ok()
}

/// Room for fewer threads than the tree has, as it was said: for tests.
pub(crate) fn threads_max() -> Option<String> {
    told(variable::THREADS_MAX).map(|text| text.to_string_lossy().into_owned())
}

/// How often in a row, for each CPU, who is first in a queue may be passed over for a thread that
/// was on the CPU last, as it was said.
pub(crate) fn near() -> Option<String> {
    told(variable::NEAR).map(|text| text.to_string_lossy().into_owned())
}

/// Whether the longest section of the lock is measured, for tests.
pub(crate) fn timed() -> bool {
    env::var_os(variable::TIMED).is_some()
}

/// Whether programs are loaded without the tracer, to measure what it costs.
pub(crate) fn untraced() -> bool {
    env::var_os(variable::UNTRACED).is_some()
}

/// What the kernel is to be taken as lacking, as it was said: for tests.
pub(crate) fn fallbacks() -> Option<String> {
    told(variable::FALLBACKS).map(|text| text.to_string_lossy().into_owned())
}

/// Whether the kernel's verifier says what each program costs it.
pub(crate) fn shows_verifier() -> bool {
    env::var_os(variable::VERIFIER).is_some()
}
