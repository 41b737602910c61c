// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading the programs, pinning everything, finding it again, and the place of other planes' fcntl commands in the hook.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{env, fs};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::{
    ErrorExt as _, MapCore as _, Object, ObjectBuilder, PrintLevel, ProgramAttachType, ProgramType,
};

pub(super) use crate::libbpf::os;
use crate::libbpf::{SAID, attach_once, detach, listen, refused, remove_pins};
use crate::{PlaneError, libbpf, sys};

/// The programs, built by build.rs.
pub(super) const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tag.bpf.o"));

/// What tags are set through, and what shows that a mechanism is loaded to the last pin: the link of fcntl's hook, or, where the kernel refuses trampolines, the program of
/// setsockopt, which is attached only while there is an interface.
const HOOK: &str = "rt_fcntl";
const STOCK_HOOK: &str = "rt_setsockopt";

/// Programs of the two mechanisms; the others belong to both.
const FULL: &[&str] = &[
    HOOK,
    "rt_unmounted",
    "rt_opened",
    "rt_freed",
    "rt_connect",
    "rt_accept",
    "rt_clone",
    "rt_destruct",
    "rt_option",
    "rt_option_of",
    "rt_read",
    "rt_write",
    "rt_egress",
    "rt_link",
];
const STOCK: &[&str] = &[
    STOCK_HOOK,
    "rt_getsockopt",
    "rt_sock_create",
    "rt_stored",
    "rt_stock_tag",
    ENDS,
    "rt_stock_egress",
    "rt_stock_link",
];
/// What sees the end of files where the kernel refuses trampolines; attached while there is a disk.
pub(super) const ENDS: &str = "rt_stock_freed";

/// How tags are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// By fcntl, on files and sockets; all hooks are the kernel's own functions (trampolines).
    Full,
    /// By setsockopt, on sockets; cgroup hooks. By the daemon, on files of disks that are scheduled.
    Stock,
}

/// The program of which this is a copy (`HOOKED` of bpf/hook.h), or itself.
fn original(name: &str) -> &str {
    name.strip_suffix("_2").or_else(|| name.strip_suffix("_3")).unwrap_or(name)
}

/// A program and the names that copies of it may have.
fn copies(name: &str) -> [String; 3] {
    [name.to_owned(), format!("{name}_2"), format!("{name}_3")]
}

/// Functions of the kernel to which a program is tied, and what is lost where one is missing.
pub(super) const TIES: &[(&str, &str, &str)] = &[
    ("rt_opened", "security_file_open", "open() does not tag from default lists"),
    ("rt_freed", "security_file_free", "files cannot be tagged"),
    ("rt_connect", "security_socket_connect", "connect() does not tag from default lists"),
    ("rt_accept", "inet_accept", "accept() does not tag from default lists"),
    ("rt_clone", "inet_csk_clone_lock", "a listener's tag is not handed to its connections"),
    ("rt_destruct", "inet_sock_destruct", "sockets cannot be tagged"),
];

/// Programs that only counting resources need.
pub(super) const COUNT_FILES: &[&str] = &["rt_read", "rt_write"];
/// Programs that only disks that are scheduled need, and the tracepoint of each (Linux 6.5).
const DISK: &[(&str, &str)] = &[
    ("rt_io_start", "block_io_start"),
    ("rt_io_issue", "block_rq_issue"),
    ("rt_dirtied", "writeback_dirty_folio"),
    (STACKED[0], "block_bio_queue"),
    (STACKED[1], "block_split"),
];
/// And these only while a driver stacked above a disk makes requests of it.
const STACKED: [&str; 2] = ["rt_bio_queued", "rt_bio_split"];
const fn count_packets(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Full => "rt_egress",
        Mechanism::Stock => "rt_stock_egress",
    }
}

/// What only sockets need, attached to the cgroups while a resource is an interface: every setsockopt, getsockopt and socket() of the machine pays for it.
const fn options(mechanism: Mechanism) -> &'static [(&'static str, libbpf_sys::bpf_attach_type)] {
    match mechanism {
        Mechanism::Full => &[
            ("rt_option", libbpf_sys::BPF_CGROUP_SETSOCKOPT),
            ("rt_option_of", libbpf_sys::BPF_CGROUP_GETSOCKOPT),
        ],
        Mechanism::Stock => &[
            (STOCK_HOOK, libbpf_sys::BPF_CGROUP_SETSOCKOPT),
            ("rt_getsockopt", libbpf_sys::BPF_CGROUP_GETSOCKOPT),
            ("rt_sock_create", libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE),
        ],
    }
}

/// The folder of pins.
pub(super) fn folder() -> PathBuf {
    libbpf::folder("tag")
}

/// Programs whose function this kernel does not have.
pub(super) fn missing() -> BTreeSet<&'static str> {
    let Ok(btf) = Btf::from_vmlinux() else { return BTreeSet::new() };
    let functions = TIES
        .iter()
        .filter(|(_, function, _)| btf.type_by_name::<Func<'_>>(function).is_none())
        .map(|(program, _, _)| *program);
    let points = DISK.iter().filter(|(_, point)| {
        btf.type_by_name::<Typedef<'_>>(format!("btf_trace_{point}").as_str()).is_none()
    });
    functions.chain(points.map(|(program, _)| *program)).collect()
}

/// Whether this kernel lets programs be called from its functions: some refuse it to everybody.
pub(super) fn trampolines() -> bool {
    libbpf_rs::set_print(None);
    let Ok(mut open) = ObjectBuilder::default().open_memory(OBJECT) else { return false };
    for mut program in open.progs_mut() {
        let chosen = program.name() == "rt_unmounted";
        program.set_autoload(chosen);
    }
    open.load().is_ok()
}

/// The mechanism that is loaded.
pub(super) fn loaded(folder: &Path) -> Option<Mechanism> {
    match (folder.join(format!("link-{HOOK}")).exists(), folder.join(STOCK_HOOK).exists()) {
        (true, _) => Some(Mechanism::Full),
        (_, true) => Some(Mechanism::Stock),
        _ => None,
    }
}

/// The programs of a mechanism in the kernel, and nothing of them pinned or attached yet.
fn load_object(mechanism: Mechanism, without: &[&str]) -> Result<Object, PlaneError> {
    let mut open = ObjectBuilder::default()
        .name("reserv_tag")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| refused("open the tag programs", &error))?;
    let missing = missing();
    let others = if mechanism == Mechanism::Full { STOCK } else { FULL };
    let blind = !sys::packets_tell_netns();
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let of = original(&name);
        let unfit = missing.contains(of)
            || others.contains(&of)
            || without.contains(&of)
            || blind && name == count_packets(mechanism);
        program.set_autoload(!unfit);
    }
    if env::var_os("RESERV_VERIFIER").is_some() {
        // For whoever works on the programs: what each costs the verifier.
        libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| eprint!("{text}"))));
        for mut program in open.progs_mut() {
            program.set_log_level(4);
        }
    }
    open.load().map_err(|error| refused("load the tag programs", &error))
}

/// Load the programs and pin them with their maps and links. What only counting resources need is loaded and pinned, not attached.
pub(super) fn load(folder: &Path, mechanism: Mechanism) -> Result<(), PlaneError> {
    libbpf_rs::set_print(Some((PrintLevel::Info, listen)));
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    fs::create_dir_all(folder).map_err(os(format!("make {}", folder.display())))?;
    // What looks into the requests of disks, and at the end of files, depends on more of the kernel than all else.
    let disks: Vec<&str> = DISK.iter().map(|(program, _)| *program).chain([ENDS]).collect();
    let mut object = load_object(mechanism, &[])
        .or_else(|error| {
            let without = load_object(mechanism, &[ENDS])?;
            tracing::warn!(%error, "the kernel refuses the program that sees the end of files");
            Ok(without)
        })
        .or_else(|error: PlaneError| {
            let without = load_object(mechanism, &disks)?;
            tracing::warn!(%error, "the kernel refuses the programs that say who owns a disk's requests");
            Ok(without)
        })?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if !name.contains('.') {
            map.pin(folder.join(&name)).map_err(|error| refused(&name, &error))?;
        }
    }
    // The hook comes last: nothing is tagged before all is in place.
    let hook = if mechanism == Mechanism::Full { HOOK } else { STOCK_HOOK };
    let mut programs: Vec<_> = object.progs_mut().filter(|p| p.autoload()).collect();
    programs.sort_by_key(|p| p.name() == hook);
    for program in &mut programs {
        let name = program.name().to_string_lossy().into_owned();
        let pinned_only = COUNT_FILES.contains(&name.as_str())
            || DISK.iter().any(|(program, _)| *program == original(&name))
            || name == ENDS
            || name == count_packets(mechanism)
            || options(mechanism).iter().any(|(program, _)| *program == name)
            || matches!(program.prog_type(), ProgramType::Syscall | ProgramType::SchedCls)
            || matches!(program.attach_type(), ProgramAttachType::TraceIter);
        if pinned_only {
            program.pin(folder.join(&name)).context("pin").map_err(|error| refused(&name, &error))?;
            continue;
        }
        let mut link = program.attach().map_err(|error| refused(&format!("attach {name}"), &error))?;
        link.pin(folder.join(format!("link-{name}"))).map_err(|error| refused(&name, &error))?;
    }
    Ok(())
}

/// Remove all pins, the hook's first.
pub(super) fn unload(folder: &Path) -> Result<(), PlaneError> {
    for mark in [&format!("link-{HOOK}"), STOCK_HOOK] {
        let _ = fs::remove_file(folder.join(mark));
    }
    remove_pins(folder)
}

/// Attach what counts reads and writes, unless it is.
pub(super) fn attach_traces(folder: &Path) -> Result<(), PlaneError> {
    for name in COUNT_FILES {
        attach_once(folder, name, sys::attach_trace)?;
    }
    Ok(())
}

/// Attach what writes down who owns a disk's requests, unless it is.
pub(super) fn attach_disk(folder: &Path) -> Result<(), PlaneError> {
    for (name, point) in DISK {
        if !folder.join(name).exists() {
            return Err(PlaneError::Unsupported(format!(
                "this kernel has no tracepoint {point} (Linux 6.5), or refuses our program there"
            )));
        }
        if !STACKED.contains(name) {
            attach_copies(folder, name)?;
        }
    }
    Ok(())
}

/// Attach what hands owners down through the drivers above disks, unless it is; or detach it.
pub(super) fn attach_stacked(folder: &Path, wanted: bool) -> Result<(), PlaneError> {
    if wanted {
        return STACKED.iter().try_for_each(|name| attach_copies(folder, name));
    }
    STACKED.iter().flat_map(|name| copies(name)).try_for_each(|copy| detach(folder, &copy))
}

fn attach_copies(folder: &Path, name: &str) -> Result<(), PlaneError> {
    let there = copies(name);
    let mut there = there.iter().filter(|copy| folder.join(copy).exists());
    there.try_for_each(|copy| attach_once(folder, copy, sys::attach_trace))
}

/// Attach what sees the end of files, unless it is; where this kernel's programs have none, files have no tags.
pub(super) fn attach_ends(folder: &Path) -> Result<(), PlaneError> {
    if folder.join(ENDS).exists() { attach_once(folder, ENDS, sys::attach_trace) } else { Ok(()) }
}

/// Whether it is attached.
pub(super) fn ends_attached(folder: &Path) -> bool {
    folder.join(format!("link-{ENDS}")).exists()
}

/// Attach what counts packets to the root of the cgroups, unless it is.
pub(super) fn attach_packets(folder: &Path, mechanism: Mechanism) -> Result<(), PlaneError> {
    if !folder.join(count_packets(mechanism)).exists() {
        return Err(PlaneError::Unsupported(
            "packets cannot be counted: this kernel does not say whose network name space one is in (Linux 6.15 does)".into(),
        ));
    }
    let root: OwnedFd = open_root()?.into();
    attach_once(folder, count_packets(mechanism), |program| {
        sys::attach_cgroup(program, &root, libbpf_sys::BPF_CGROUP_INET_EGRESS)
    })
}

/// Attach what tags sockets by an option, unless it is. Where there are no cgroups, fcntl alone tags them, or nothing.
pub(super) fn attach_options(folder: &Path, mechanism: Mechanism) -> Result<(), PlaneError> {
    let root: OwnedFd = match open_root() {
        Ok(root) => root.into(),
        Err(error) if mechanism == Mechanism::Full => {
            tracing::warn!(%error, "fcntl alone tags sockets, not setsockopt");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    options(mechanism).iter().try_for_each(|(name, at)| {
        attach_once(folder, name, |program| sys::attach_cgroup(program, &root, *at))
    })
}

fn link_pin(folder: &Path, resource: u8) -> PathBuf {
    folder.join(format!("link-tcx-{resource}"))
}

/// Attach what gives each packet of an interface its queue.
pub(super) fn attach_link(
    folder: &Path,
    mechanism: Mechanism,
    resource: u8,
    index: u32,
) -> Result<(), PlaneError> {
    let name = if mechanism == Mechanism::Full { "rt_link" } else { "rt_stock_link" };
    detach_link(folder, resource)?;
    let program = sys::open(&folder.join(name)).map_err(os(format!("open the pinned program {name}")))?;
    let link = sys::attach_tcx(&program, index).map_err(os(format!("attach {name} (Linux 6.6)")))?;
    sys::pin(&link, &link_pin(folder, resource)).map_err(os(format!("pin the link of {name}")))
}

/// And detach it, if it is attached.
pub(super) fn detach_link(folder: &Path, resource: u8) -> Result<(), PlaneError> {
    detach(folder, &format!("tcx-{resource}"))
}

/// Whether setsockopt tags sockets beside fcntl, where there is fcntl: it needs the cgroups.
pub(super) fn options_possible() -> bool {
    open_root().is_ok()
}

/// The cgroup whose sockets the cgroup hooks see: the root of cgroup v2, or what `RESERV_TAG_CGROUP` names.
fn open_root() -> Result<fs::File, PlaneError> {
    let root = env::var_os("RESERV_TAG_CGROUP").map(PathBuf::from).or_else(cgroup_root).ok_or_else(|| {
        PlaneError::Unsupported("tags of sockets need the root of cgroup v2, which is not mounted".into())
    })?;
    fs::File::open(&root).map_err(os(format!("open {}", root.display())))
}

/// Where cgroup v2 is mounted.
fn cgroup_root() -> Option<PathBuf> {
    fs::read_to_string("/proc/self/mounts").ok()?.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let path = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(path))
    })
}

/// Detach what counts, where no resource is left for it.
pub(super) fn detach_unused(
    folder: &Path,
    mechanism: Mechanism,
    files: bool,
    interfaces: bool,
    disks: bool,
) -> Result<(), PlaneError> {
    let traces = COUNT_FILES.iter().filter(|_| !files).copied();
    let disk = DISK.iter().flat_map(|(name, _)| copies(name)).chain([ENDS.to_owned()]).filter(|_| !disks);
    let of_sockets = options(mechanism).iter().map(|(name, _)| *name).chain([count_packets(mechanism)]);
    let of_sockets = of_sockets.filter(|_| !interfaces).map(str::to_owned);
    for name in traces.map(str::to_owned).chain(disk).chain(of_sockets) {
        detach(folder, &name)?;
    }
    Ok(())
}
