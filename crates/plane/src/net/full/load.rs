// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading the qdisc's programs for one interface, pinning everything, and finding it again.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;
use std::{fs, io, thread};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Struct};
use libbpf_rs::{ErrorExt as _, MapCore as _, MapType, ObjectBuilder, PrintLevel, ProgramType};

use super::abi::{RnCall, what};
use crate::libbpf::{SAID, listen, os, refused, remove_pins};
use crate::{PlaneError, libbpf, parked, settings, sys};

/// The programs, built by build.rs.
pub(super) const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/net.bpf.o"));

/// The pin of the qdisc's registration: comes last, so that all else is there when it is.
pub(super) const LINK: &str = "link-reserv";

/// `RESERV_TIMED`: the longest section of the lock is measured, for tests.
const TIMED: &str = ".rodata.timed";

/// And of its description, from which it is registered.
const OPS: &str = "qdisc";
/// Functions of the kernel that the programs call and that are not there before 6.16.
const KFUNCS: &[&str] = &[
    "bpf_qdisc_skb_drop",
    "bpf_skb_get_hash",
    "bpf_qdisc_watchdog_schedule",
    "bpf_qdisc_bstats_update",
    "bpf_kfree_skb",
    "bpf_arena_alloc_pages",
    "bpf_local_irq_save",
];

/// `Err` says in words what is missing.
pub fn probe() -> Result<(), String> {
    libbpf::not_realtime()?;
    let btf = Btf::from_vmlinux()
        .map_err(|error| format!("the kernel's type information (BTF): {error:#}"))?;
    if btf.type_by_name::<Struct<'_>>("bpf_struct_ops_Qdisc_ops").is_none() {
        return Err("this kernel has no qdiscs in BPF (Linux 6.16, CONFIG_NET_SCH_BPF)".into());
    }
    let missing: Vec<&str> = KFUNCS
        .iter()
        .copied()
        .filter(|name| btf.type_by_name::<Func<'_>>(name).is_none())
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("this kernel lacks (in its type information): {}", missing.join(", ")))
    }
}

/// Making an arena allocates without being allowed to wait (7.2), and now and then there is nothing
/// at hand.
const NO_ARENA: &str = "'arena': failed to create: -ENOMEM";

const ARENA_TRIES: u32 = 20;
const ARENA_PAUSE: Duration = Duration::from_millis(50);

/// What the verifier says, asked by loading the programs and letting go of them: the type
/// information does not tell whether they are understood. Root only.
pub fn try_load() -> Result<(), String> {
    probe()?;
    listen_from_now();
    let open =
        ObjectBuilder::default().name("reserv_net").and_then(|builder| builder.open_memory(OBJECT));
    open.and_then(libbpf_rs::OpenObject::load).map(drop).map_err(|_| not_loaded())
}

/// A kernel that has all that is asked for and refuses the programs nevertheless.
fn not_loaded() -> String {
    let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
    // The verifier's reason is the last line before its statistics.
    let reason = said.lines().map(str::trim).rfind(|line| {
        !line.is_empty()
            && !line.starts_with("libbpf:")
            && !line.starts_with("processed ")
            && !line.starts_with("--")
    });
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    format!(
        "this kernel's verifier refuses the qdisc's programs{reason}; Linux 7.2 and 7.3 take them"
    )
}

fn listen_from_now() {
    libbpf_rs::set_print(Some((PrintLevel::Info, listen)));
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
}

/// The folders of pins of a resource: an upgrade goes from one to the other, and then back.
pub(super) fn folders(number: u8) -> [PathBuf; 2] {
    [format!("net-{number}"), format!("net-{number}-b")].map(|name| crate::libbpf::folder(&name))
}

/// Which programs these are.
pub(super) fn build() -> u32 {
    static BUILD: LazyLock<u32> = LazyLock::new(|| {
        let timed: &[u8] = if settings::timed() { b"timed" } else { b"" };
        crc32fast::hash(&[OBJECT, timed].concat())
    });
    *BUILD
}

/// What the kernel knows the qdisc by; one per resource of one `RESERV_BPFFS`, 15 bytes at most.
pub(super) fn kind(folder: &Path) -> String {
    format!("rsv{:08x}", crc32fast::hash(folder.as_os_str().as_encoded_bytes()))
}

/// Take up what was put by, or load it: [`load`].
pub(super) fn load_or_take_up(folder: &Path) -> Result<(), PlaneError> {
    match take_up(folder) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(%error, "the qdisc that was put by does not start: it is loaded anew");
            unload(folder)?;
        }
    }
    load(folder)
}

/// `false` where there is nothing of this build.
fn take_up(folder: &Path) -> Result<bool, PlaneError> {
    if !parked::unpark(folder, build())? {
        return Ok(false);
    }
    set_up(folder)?;
    let ops = sys::open(&folder.join(OPS)).map_err(os("open the pinned qdisc"))?;
    let link = sys::attach_struct_ops(&ops).map_err(os("register the qdisc"))?;
    sys::pin(&link, &folder.join(LINK)).map_err(os("pin the qdisc's link"))?;
    Ok(true)
}

/// Put the programs by, empty. No interface has them. Where that cannot be they go.
pub(super) fn put_by(folder: &Path) -> Result<(), PlaneError> {
    let put = empty(folder).and_then(|()| parked::park(folder, build()));
    if let Err(error) = put {
        tracing::warn!(%error, "the qdisc's programs are not put by: the next start loads them anew");
        return unload(folder);
    }
    Ok(())
}

fn empty(folder: &Path) -> Result<(), PlaneError> {
    let link = sys::open(&folder.join(LINK)).map_err(os("open the qdisc's link"))?;
    sys::detach(&link).map_err(os("unregister the qdisc"))?;
    fs::remove_file(folder.join(LINK)).map_err(os("remove the pin of the qdisc's link"))?;
    let mut call_empty = RnCall { what: what::EMPTY, ..RnCall::default() };
    match call(&open_programs(folder)?, "rn_do", &mut call_empty)? {
        0 => {}
        errno => return Err(os("forget the tree")(io::Error::from_raw_os_error(-errno))),
    }
    for name in ["state", libbpf::VARIABLES] {
        sys::zero(&folder.join(name)).map_err(os(format!("empty the pinned map '{name}'")))?;
    }
    Ok(())
}

fn set_up(folder: &Path) -> Result<(), PlaneError> {
    let mut made = RnCall { a: build().into(), ..RnCall::default() };
    match call(&open_programs(folder)?, "rn_setup", &mut made)? {
        0 => Ok(()),
        errno => Err(os("make the tree")(io::Error::from_raw_os_error(-errno))),
    }
}

/// Load the programs, make an empty tree, and register the qdisc: it is on no interface yet. On
/// error nothing is left.
pub(super) fn load(folder: &Path) -> Result<(), PlaneError> {
    let mut tries = 0;
    while let Err(error) = load_once(folder) {
        let _ = unload(folder);
        if tries == ARENA_TRIES || !error.to_string().contains(NO_ARENA) {
            return Err(error);
        }
        tries += 1;
        thread::sleep(ARENA_PAUSE);
    }
    Ok(())
}

fn load_once(folder: &Path) -> Result<(), PlaneError> {
    listen_from_now();
    libbpf::make_folder(folder)?;
    let mut open = ObjectBuilder::default()
        .name("reserv_net")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| refused("open the link's programs", &error))?;
    for mut map in open.maps_mut() {
        if map.name() == TIMED
            && settings::timed()
            && let Some(value) = map.initial_value_mut()
        {
            value[..4].copy_from_slice(&1_u32.to_ne_bytes());
        }
    }
    for mut map in open.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
        // The name is the first member of our own description of the structure (bpf/kernel.h).
        if let Some(value) = map.initial_value_mut() {
            let name = kind(folder);
            value[..16].fill(0);
            value[..name.len()].copy_from_slice(name.as_bytes());
        }
    }
    libbpf::show_verifier(&mut open);
    let mut object = open.load().map_err(|error| {
        let error = refused("load the link's programs", &error);
        if error.to_string().contains(NO_ARENA) {
            error
        } else {
            PlaneError::Unsupported(not_loaded())
        }
    })?;
    for mut program in object.progs_mut().filter(|p| p.prog_type() == ProgramType::Syscall) {
        let name = program.name().to_string_lossy().into_owned();
        program.pin(folder.join(&name)).context("pin").map_err(|error| refused(&name, &error))?;
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(name) = libbpf::pin_name(&name)
            && map.map_type() != MapType::StructOps
        {
            map.pin(folder.join(name)).map_err(|error| refused(name, &error))?;
        }
    }
    set_up(folder)?;
    for mut map in object.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
        map.pin(folder.join(OPS))
            .map_err(|error| refused("pin the qdisc's description", &error))?;
        let mut link =
            map.attach_struct_ops().map_err(|error| refused("register the qdisc", &error))?;
        link.pin(folder.join(LINK)).map_err(|error| refused("pin the qdisc", &error))?;
    }
    Ok(())
}

/// Remove all pins; the qdisc's name is free when no interface has it.
pub(super) fn unload(folder: &Path) -> Result<(), PlaneError> {
    let _ = fs::remove_file(folder.join(LINK));
    remove_pins(folder)
}

/// The pinned SYSCALL programs, by name.
pub(super) type Programs = BTreeMap<String, OwnedFd>;

pub(super) fn open_programs(folder: &Path) -> Result<Programs, PlaneError> {
    let mut programs = Programs::new();
    for entry in fs::read_dir(folder).map_err(os(format!("read {}", folder.display())))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("rn_") {
            let fd =
                sys::open(&entry.path()).map_err(os(format!("open {}", entry.path().display())))?;
            programs.insert(name, fd);
        }
    }
    Ok(programs)
}

/// One call: `Err` when it could not be made; what it answered stands in `call.answer`.
pub(super) fn call(programs: &Programs, name: &str, call: &mut RnCall) -> Result<i32, PlaneError> {
    let program = programs
        .get(name)
        .ok_or_else(|| os(format!("program {name}"))(io::Error::from_raw_os_error(libc::ENOENT)))?;
    sys::run(program, call).map_err(os(format!("run {name}")))?;
    Ok(call.answer)
}
