// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the environment says to the commands: read here only. `docs/daemon.md` has the table.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use reserv_facts::place::{self, variable};

use crate::error::Error;

fn told(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The mount point.
pub(crate) fn mount() -> PathBuf {
    told(variable::MOUNT).map_or_else(|| place::MOUNT.into(), PathBuf::from)
}

/// The run-time directory.
pub(crate) fn run() -> PathBuf {
    told(variable::RUN).map_or_else(|| place::RUN.into(), PathBuf::from)
}

/// What reservd sets up when it starts and finds no tree.
pub(crate) fn boot_file() -> PathBuf {
    told(variable::CONFIG).map_or_else(|| place::CONFIG.into(), PathBuf::from)
}

/// The CPU's driver with which reservd will start, as far as the command does not say.
pub(crate) fn driver() -> Option<String> {
    told(variable::DRIVER).map(|value| value.to_string_lossy().into_owned())
}

/// Which way to the files is to be taken; nothing: the caller's own.
pub(crate) enum Via {
    /// Through the mount.
    Files,
    /// Through the control socket.
    Socket,
}

/// See [`Via`].
pub(crate) fn via() -> Result<Option<Via>, Error> {
    match told(variable::VIA).unwrap_or_default().to_string_lossy().as_ref() {
        "" => Ok(None),
        "files" => Ok(Some(Via::Files)),
        "socket" => Ok(Some(Via::Socket)),
        other => {
            let error = Error::usage(format!("{} is '{other}'", variable::VIA));
            Err(error.hint("files: through the mount; socket: through reservd's control socket"))
        }
    }
}

/// Folders of programs.
pub(crate) fn folders() -> Vec<PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect()
}

/// Whether a terminal is to be shown colours (<https://no-color.org>: present and not empty).
pub(crate) fn colours() -> bool {
    told("NO_COLOR").is_none() && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}
