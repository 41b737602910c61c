// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things are, and what else the environment says to reservd: read here only, and for the
//! drivers in [`reserv_plane::settings`]. Every place can be set, so that tests run beside a real
//! daemon. `docs/daemon.md` has the table.

use std::ffi::OsString;
use std::path::PathBuf;

use reserv_facts::place::{self, variable};
use reserv_namespace::Resource;

/// Places and choices of one daemon. Inherited by keeper and worker through the environment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `RESERV_MOUNT`: where the name space appears.
    pub mount: PathBuf,
    /// `RESERV_RUN`: lock, journals and control socket; must be in a file system in RAM.
    pub run: PathBuf,
    /// `RESERV_BPFFS`: where the full driver pins.
    pub bpffs: PathBuf,
    /// `RESERV_CGROUP`: name of the stock driver's cgroup.
    pub cgroup: String,
    /// `RESERV_CONFIG`: the tree to set up at a first start; may be absent.
    pub config: PathBuf,
    /// `RESERV_DRIVER`: `auto`, `full`, `stock` or (for tests) `fake`; before the configuration's.
    pub driver: Option<String>,
    /// `RESERV_WATCH=scan`: look for new processes once a second instead of listening to the
    /// kernel's events.
    pub scan: bool,
}

fn told(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn or(name: &str, usual: &str) -> String {
    told(name).unwrap_or_else(|| usual.to_owned())
}

/// The filter of what is logged.
pub fn log() -> String {
    or(variable::LOG, "info")
}

/// Where the service manager listens (sd_notify(3)).
pub fn notify_socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET")
}

impl Settings {
    /// From the environment.
    pub fn from_env() -> Self {
        Self {
            mount: or(variable::MOUNT, place::MOUNT).into(),
            run: reserv_plane::settings::run(),
            bpffs: reserv_plane::settings::bpffs(),
            cgroup: or(variable::CGROUP, place::CGROUP),
            config: or(variable::CONFIG, place::CONFIG).into(),
            driver: told(variable::DRIVER),
            scan: or(variable::WATCH, "events") == "scan",
        }
    }

    /// A resource's journal.
    pub fn journal(&self, resource: Resource) -> PathBuf {
        match resource {
            Resource::CPU => self.run.join("journal"),
            other => self.run.join(format!("journal-{}", other.number())),
        }
    }

    /// What a worker is answering ([`crate::unanswered`]).
    pub fn unanswered(&self) -> PathBuf {
        self.run.join("unanswered")
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.run.join(place::CONTROL)
    }

    /// Held (flock) by keeper and worker together: it is free only when both are gone.
    pub fn lock(&self) -> PathBuf {
        self.run.join(place::LOCK)
    }
}
