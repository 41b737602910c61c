// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this kernel can run the full driver, and if not, what is missing.

use std::path::Path;
use std::{fs, io};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;

use super::abi::UNITS_MAX;
use super::compat;
use crate::libbpf;

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

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
    compat::lacks()?;
    let folder = super::load::folder();
    match libbpf::in_bpffs(&folder) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "{} is not in a bpf file system (mount -t bpf bpf /sys/fs/bpf)",
            folder.display()
        )),
        Err(error) => Err(format!("{}: {error}", folder.display())),
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
