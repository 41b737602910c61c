// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things are, unless the environment says otherwise; and by which variables it says so.

/// Where the name space appears.
pub const MOUNT: &str = "/reserv";
/// The run-time directory.
pub const RUN: &str = "/run/reserv";
/// The tree to set up at a first start.
pub const CONFIG: &str = "/etc/reserv/reserv.toml";
/// Where the full drivers pin their programs and maps.
pub const BPFFS: &str = "/sys/fs/bpf/reserv";
/// What the stock drivers' cgroups are called by.
pub const CGROUP: &str = "reserv";

/// In the run-time directory: the control socket.
pub const CONTROL: &str = "control.sock";
/// In the run-time directory: held by keeper and worker together.
pub const LOCK: &str = "lock";
/// In the run-time directory: behind a block server's prefix, its socket.
pub const BLOCK_SOCKET: &str = ".socket";

/// Variables of the environment. `docs/daemon.md` has the table of what each means.
#[expect(missing_docs, reason = "said in docs/daemon.md")]
pub mod variable {
    pub const MOUNT: &str = "RESERV_MOUNT";
    pub const RUN: &str = "RESERV_RUN";
    pub const CONFIG: &str = "RESERV_CONFIG";
    pub const DRIVER: &str = "RESERV_DRIVER";
    pub const BPFFS: &str = "RESERV_BPFFS";
    pub const CGROUP: &str = "RESERV_CGROUP";
    pub const WATCH: &str = "RESERV_WATCH";
    pub const LOG: &str = "RESERV_LOG";
    pub const VIA: &str = "RESERV_VIA";
    pub const IGNORE_CGROUP_WEIGHTS: &str = "RESERV_IGNORE_CGROUP_WEIGHTS";
    pub const BLOCKD: &str = "RESERV_BLOCKD";
    pub const BLOCKD_HELD: &str = "RESERV_BLOCKD_HELD";
    pub const TAG_CGROUP: &str = "RESERV_TAG_CGROUP";
    pub const TAGS_MAX: &str = "RESERV_TAGS_MAX";
    pub const NEAR: &str = "RESERV_NEAR";
    pub const THREADS_MAX: &str = "RESERV_THREADS_MAX";
    pub const TIMED: &str = "RESERV_TIMED";
    pub const UNTRACED: &str = "RESERV_UNTRACED";
    pub const FALLBACKS: &str = "RESERV_FALLBACKS";
    pub const VERIFIER: &str = "RESERV_VERIFIER";
}
