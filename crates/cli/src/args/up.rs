// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of `up`, and the drivers that it chooses among.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::words::{counting, disk, queue_of_cpu, rate, word};

/// Arguments of `up`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch of the command line")]
pub struct Up {
    /// Apply this configuration; the difference that it makes is printed
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Which driver of the CPU: full is Reserv's own scheduler (sched_ext), stock the kernel's with
    /// cgroups; auto takes the full one where this kernel can run it
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    pub driver: Driver,
    /// Which policy the root and new scheduler nodes have: default (SFQ), qlinux (SFQ; on disks
    /// Cello), eclipse (MTR-LS; on links WF2Q, on disks YFQ), rtss98 (EEVDF) or containers
    /// (SFQ, and what a bound thread starts is bound as it is)
    #[arg(long, short, value_name = "NAME", value_parser = word::<reserv_model::Personality>)]
    pub personality: Option<reserv_model::Personality>,
    /// Bring up /reserv/NAME, which counts and schedules nothing: operations and bytes of tagged
    /// open files on PATH's file system (file:PATH), or of tagged sockets over an interface
    /// (net:IFACE)
    #[arg(long, value_name = "NAME=file:PATH|NAME=net:IFACE", value_parser = counting)]
    pub count: Vec<(reserv_model::Name, reserv_model::Source)>,
    /// Bring up /reserv/IFACE, which schedules the packets that leave by this network interface
    #[arg(long, value_name = "IFACE")]
    pub net: Vec<String>,
    /// Let those interfaces send this much, as 100mbit; from now on, if they run at another rate,
    /// which loses nothing. Without --rate shares hold only on devices whose driver has byte queue
    /// limits (BQL; virtio has, veth has not)
    #[arg(long, value_name = "RATE", requires = "net", value_parser = rate)]
    pub rate: Option<reserv_model::Rate>,
    /// Tell apart what comes in by those interfaces too, before any protocol: count it for its
    /// receiver's queue, and drop it there if the receiver has no room or the queue a rate. xdp does
    /// so in the driver, where that can
    #[arg(long, value_name = "PLACE", requires = "net", num_args = 0..=1, require_equals = true,
          default_missing_value = "tcx", value_parser = word::<reserv_model::Receive>)]
    pub receive: Option<reserv_model::Receive>,
    /// Have what comes in by those interfaces processed by kernel threads in this queue of the CPU,
    /// as web/site1, scheduled and charged as that; else it is done in softirqs, in the time of
    /// whoever is interrupted
    #[arg(long, value_name = "QUEUE", requires = "net", value_parser = queue_of_cpu)]
    pub receive_in: Option<reserv_model::NodePath>,
    /// Which driver of those interfaces: full is Reserv's own qdisc, stock the kernel's HTB; auto
    /// takes the full one where this kernel can run it
    #[arg(long, value_enum, requires = "net", default_value_t = Driver::Auto)]
    pub net_driver: Driver,
    /// Bring up /reserv/NAME, which schedules the requests of this file or block device. 'vdb'
    /// means /dev/vdb if no such file is here; NAME is the path's last part if it is not given.
    /// From then on programs use /dev/reserv/NAME; under the stock driver the device itself
    #[arg(long, value_name = "[NAME=]FILE|DEVICE", value_parser = disk)]
    pub disk: Vec<(reserv_model::Name, String)>,
    /// Most requests that those disks are given at once (1 to 256): few for exact shares, more for
    /// throughput
    #[arg(long, value_name = "N", requires = "disk", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub depth: Option<u32>,
    /// What those disks serve per second under any load, as 3MB/s: the minimums of their queues may
    /// add up to it
    #[arg(long, value_name = "RATE", requires = "disk", value_parser = rate)]
    pub floor: Option<reserv_model::Rate>,
    /// How /dev/reserv/NAME is made; auto takes ublk where this kernel has it, else FUSE with a
    /// loop device
    #[arg(long, value_enum, requires = "disk", default_value_t = Front::Auto)]
    pub front: Front,
    /// For trials: make those disks as slow as a model of a disk, spinning or flash
    #[arg(long, value_name = "DISK", requires = "disk", value_parser = word::<reserv_model::DiskModel>)]
    pub model: Option<reserv_model::DiskModel>,
    /// Which driver of those disks: full is Reserv's block server, stock the kernel's BFQ or iocost
    /// with cgroups, whose shares are inexact; auto takes the full one
    #[arg(long, value_enum, requires = "disk", default_value_t = Driver::Auto)]
    pub disk_driver: Driver,
    /// How those disks order their queues: sfq, wf2q+, yfq or cello; by --personality if absent
    #[arg(long, value_name = "POLICY", requires = "disk", conflicts_with = "dry_run", value_parser = word::<reserv_model::Policy>)]
    pub policy: Option<reserv_model::Policy>,
    /// Print what would change; change and start nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// If the configuration leaves out a queue that has members: let it drain. It accepts no new
    /// ones, and is deleted when the last has left
    #[arg(long, requires = "config", conflicts_with = "flush")]
    pub drain: bool,
    /// If the configuration leaves out a queue that has members: move them to q0 and delete it now
    #[arg(long, requires = "config")]
    pub flush: bool,
    /// Ignore the CPU settings of cgroups (systemd's CPUWeight= and CPUQuota=, those of
    /// containers). Without this the full driver keeps them among the threads in q0, and does not
    /// start where it cannot
    #[arg(long)]
    pub ignore_cgroup_weights: bool,
    /// Stay in the foreground until Reserv is stopped
    #[arg(long, short)]
    pub foreground: bool,
}

/// The drivers of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// The full driver where it can run, else the stock driver
    Auto,
    /// Reserv's own
    Full,
    /// What the kernel has
    Stock,
}

/// What makes the device of a scheduled disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Front {
    /// ublk where this kernel has it, else FUSE
    Auto,
    /// The kernel's block devices whose server is a program
    Ublk,
    /// A file on FUSE with a loop device over it
    Fuse,
}
