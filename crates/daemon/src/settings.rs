// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things are. Every place can be set by an environment variable, so that tests run beside a real daemon.

use std::path::PathBuf;

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
    /// `RESERV_WATCH=scan`: look for new processes once a second instead of listening to the kernel's events.
    pub scan: bool,
}

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
}

impl Settings {
    /// From the environment.
    pub fn from_env() -> Self {
        Self {
            mount: variable("RESERV_MOUNT", "/reserv").into(),
            run: variable("RESERV_RUN", "/run/reserv").into(),
            bpffs: variable("RESERV_BPFFS", "/sys/fs/bpf/reserv").into(),
            cgroup: variable("RESERV_CGROUP", "reserv"),
            config: variable("RESERV_CONFIG", "/etc/reserv/reserv.toml").into(),
            driver: std::env::var("RESERV_DRIVER").ok().filter(|value| !value.is_empty()),
            scan: variable("RESERV_WATCH", "events") == "scan",
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
        self.run.join("control.sock")
    }

    /// Held (flock) by keeper and worker together: it is free only when both are gone.
    pub fn lock(&self) -> PathBuf {
        self.run.join("lock")
    }
}
