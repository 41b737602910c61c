// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this kernel can run the full driver, and if not, what is missing.

use std::path::Path;
use std::{fs, io};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Struct};

use super::abi::UNITS_MAX;
use crate::libbpf;

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Kernel functions that the programs call. A twin with `_impl` is what the kernel itself looks for since it hands such functions an
/// argument that programs do not see; some builds lack it.
const KFUNCS: &[&str] = &[
    "scx_bpf_dsq_insert___v2_impl",
    "scx_bpf_dispatch_cancel_impl",
    "scx_bpf_kick_cpu_impl",
    "scx_bpf_select_cpu_dfl_impl",
    "scx_bpf_pick_idle_cpu_impl",
    "scx_bpf_task_set_slice_impl",
    "scx_bpf_task_set_dsq_vtime_impl",
    "scx_bpf_error_bstr_impl",
    "scx_bpf_task_cpu",
    "scx_bpf_nr_cpu_ids",
    "scx_bpf_now",
    "bpf_task_from_pid",
    "bpf_task_acquire",
    "bpf_task_release",
    "bpf_cpumask_test_cpu",
    "bpf_cpumask_weight",
    "bpf_local_irq_save",
    "bpf_arena_alloc_pages",
];

/// Whether the kernel has a function to which programs can be tied.
pub(super) fn has_function(name: &str) -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<Func<'_>>(name).is_some())
}

/// As many numbers as CPUs can have on this machine, those that are not there included.
pub(super) fn possible_cpus() -> io::Result<u32> {
    let text = fs::read_to_string(POSSIBLE)?;
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    let last: u32 = last.parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("no last CPU in {text:?} of {POSSIBLE}"))
    })?;
    Ok(last.saturating_add(1))
}

/// What machines the programs are not made for. They number CPUs below `UNITS_MAX`, and an unknown
/// one would be taken for another.
fn beyond(cpus: u32) -> Result<(), String> {
    if cpus as usize <= UNITS_MAX {
        return Ok(());
    }
    Err(format!(
        "this machine can have {cpus} CPUs, and the full driver knows {UNITS_MAX} \
         (fewer can be had by the kernel's parameter nr_cpus={UNITS_MAX})"
    ))
}

/// `Err` says in words what is missing.
pub fn probe() -> Result<(), String> {
    libbpf::not_realtime()?;
    beyond(possible_cpus().map_err(|error| format!("{POSSIBLE}: {error}"))?)?;
    if !Path::new("/sys/kernel/sched_ext/state").exists() {
        return Err("this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT)".into());
    }
    let btf =
        Btf::from_vmlinux().map_err(|error| format!("the kernel's type information (BTF): {error:#}"))?;
    let missing: Vec<&str> =
        KFUNCS.iter().copied().filter(|name| btf.type_by_name::<Func<'_>>(name).is_none()).collect();
    if !missing.is_empty() {
        return Err(format!(
            "sched_ext of this kernel lacks (in its type information): {}",
            missing.join(", ")
        ));
    }
    let Some(ops) = btf.type_by_name::<Struct<'_>>("sched_ext_ops") else {
        return Err("the kernel's type information has no sched_ext_ops".into());
    };
    for op in ["cgroup_init", "cgroup_set_bandwidth", "cgroup_set_idle"] {
        if !ops.iter().any(|member| member.name.is_some_and(|name| name == op)) {
            return Err(format!(
                "sched_ext of this kernel does not tell of cgroups ({op}; CONFIG_EXT_GROUP_SCHED, 6.18)"
            ));
        }
    }
    let folder = super::load::folder();
    let bpffs = folder.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    match nix::sys::statfs::statfs(bpffs) {
        Ok(fs) if fs.filesystem_type() == nix::sys::statfs::BPF_FS_MAGIC => Ok(()),
        Ok(_) => {
            Err(format!("{} is not in a bpf file system (mount -t bpf bpf /sys/fs/bpf)", folder.display()))
        }
        Err(error) => Err(format!("{}: {error}", bpffs.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cpus_than_the_driver_knows_are_refused() {
        assert_eq!((beyond(1), beyond(256)), (Ok(()), Ok(())));
        let why = beyond(257).unwrap_err();
        assert!(why.contains("257 CPUs") && why.contains("256"), "{why}");
    }
}
