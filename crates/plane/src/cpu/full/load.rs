// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading the programs, pinning everything, finding it again, and putting it by.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

use libbpf_rs::{
    AsRawLibbpf as _, ErrorExt as _, MapCore as _, MapFlags, MapHandle, MapType, Object,
    ObjectBuilder, PrintLevel, ProgramType,
};

use super::abi::{self, RcCall, to};
use super::calls::RECEIVED;
use super::compat::{self, Lacks};
use super::probe;
pub(super) use crate::libbpf::os;
use crate::libbpf::{SAID, listen, refused, refused_program, remove_pins};
use crate::settings;
use crate::{PlaneError, libbpf, parked, sys, work};

/// The programs, built by build.rs.
pub(super) const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cpu.bpf.o"));
/// The same for a machine that has one CPU and can have no other.
pub(super) const OBJECT_OF_ONE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cpu1.bpf.o"));

/// The most that `RESERV_NEAR` may say.
const NEAR_MOST: u32 = 64;

/// The daemon's calls.
const CALL: &str = "rc_call";
/// The beginning of the names of links' pins.
const LINK: &str = "link-";

/// The struct_ops map, and its link's pin.
const OPS: &str = "reserv";
const OPS_LINK: &str = "link-reserv";

/// Programs without which the rest goes on, and what is lost: one may be refused by the kernel, or
/// be tied to what it does not have.
const LOSSES: &[(&str, &str)] = &[
    (FCNTL, CHCPURES_LOST),
    (FCNTL_LOCKED, CHCPURES_LOST),
    (UNMOUNTED, CHCPURES_LOST),
    (RECEIVED, "below policy eevdf the request of a thread ends only when it sleeps"),
    ("rc_fork", "what is born while the scheduler is out of the kernel begins in q0"),
    ("rc_exited", "lists of processes that end while the scheduler is out of the kernel stay"),
    ("rc_execed", "'members' may show a thread that called exec by its former number"),
];
const CHCPURES_LOST: &str =
    "threads cannot change their queue or their parameters by fcntl (chcpures)";
const FCNTL: &str = "rc_fcntl";
const FCNTL_LOCKED: &str = "rc_fcntl_locked";
/// Without it a number of /reserv's device could come to mean another mount, whose files anybody
/// may number: then nothing is taken by number.
const UNMOUNTED: &str = "rc_unmounted";

/// The program of which this is a copy (`HOOKED` of bpf/hook.h), or itself.
fn original(name: &str) -> &str {
    name.strip_suffix("_2").or_else(|| name.strip_suffix("_3")).unwrap_or(name)
}

/// What is lost of the running driver, one sentence each: whoever adopts it has only its pins to
/// know by.
pub(super) fn lost(folder: &Path) -> Vec<String> {
    let other = if may_write_user() { FCNTL_LOCKED } else { FCNTL };
    let mut lost = Vec::new();
    for (name, sentence) in LOSSES {
        if *name != other
            && !folder.join(name).exists()
            && !lost.iter().any(|said| said == sentence)
        {
            lost.push((*sentence).to_owned());
        }
    }
    lost
}

/// Whether threads can change their own queue.
pub(super) fn hops(folder: &Path) -> bool {
    [FCNTL, FCNTL_LOCKED].iter().any(|name| folder.join(name).exists())
}

/// The folder of pins.
pub(super) fn folder() -> PathBuf {
    libbpf::folder("cpu")
}

/// Whether a scheduler of sched_ext runs, and its name.
pub(super) fn scx_root() -> Option<String> {
    let state = fs::read_to_string("/sys/kernel/sched_ext/state").ok()?;
    if state.trim() == "disabled" {
        return None;
    }
    Some(
        fs::read_to_string("/sys/kernel/sched_ext/root/ops")
            .map_or_else(|_| "?".into(), |ops| ops.trim().into()),
    )
}

/// The scheduler of somebody else's that runs; ours may be on its way in or out.
pub(super) fn another() -> Option<String> {
    scx_root().filter(|name| name != OPS && name != "?")
}

/// Whether the kernel lets programs write to user memory: not under lockdown.
fn may_write_user() -> bool {
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    !lockdown.contains("[integrity]") && !lockdown.contains("[confidentiality]")
}

/// What is decided before the programs are loaded, and stands in them.
struct Shape {
    cpus: u32,
    /// `RESERV_UNTRACED`: for whoever measures what the tracer costs while nobody traces.
    untraced: bool,
    /// `RESERV_TIMED`: the longest section of the lock is measured, for tests.
    timed: bool,
    /// `RESERV_THREADS_MAX`: fewer than the tree has room for, for tests.
    threads: Option<u32>,
    /// `RESERV_NEAR`: how often in a row, for each CPU, who is first in a queue is passed over for a
    /// thread that was on the CPU last; 0 turns off all that keeps threads near.
    near: Option<u32>,
    may_write_user: bool,
    /// What the kernel does not have.
    lacks: Lacks,
}

impl Shape {
    fn here() -> Result<Self, PlaneError> {
        let cpus = probe::possible_cpus().map_err(os("count the CPUs"))?;
        let threads = match settings::threads_max() {
            Some(text) => {
                Some(text.parse().ok().filter(|n| (64..=abi::ITEMS_MAX).contains(n)).ok_or_else(
                    || {
                        PlaneError::Unsupported(format!(
                            "RESERV_THREADS_MAX={text}: 64 to {}",
                            abi::ITEMS_MAX
                        ))
                    },
                )?)
            }
            None => None,
        };
        let near = match settings::near() {
            Some(text) => Some(text.parse().ok().filter(|n| *n <= NEAR_MOST).ok_or_else(|| {
                PlaneError::Unsupported(format!("RESERV_NEAR={text}: 0 to {NEAR_MOST}"))
            })?),
            None => None,
        };
        let (timed, untraced) = (settings::timed(), settings::untraced());
        let lacks = compat::here()?;
        Ok(Self { cpus, untraced, timed, threads, near, may_write_user: may_write_user(), lacks })
    }

    const fn object(&self) -> &'static [u8] {
        if self.cpus == 1 { OBJECT_OF_ONE } else { OBJECT }
    }

    /// Which programs these are, as loaded.
    fn build(&self) -> u32 {
        let Self { cpus, untraced, timed, threads, near, may_write_user, lacks: Lacks(lacks) } =
            self;
        let decided =
            format!("{cpus} {untraced} {timed} {threads:?} {near:?} {may_write_user} {lacks}");
        crc32fast::hash(&[self.object(), decided.as_bytes()].concat())
    }
}

/// Take up what was put by; `false` where there is nothing of this build. On error whatever is in
/// `folder` is of no use.
pub(super) fn load_again(folder: &Path, flat: bool) -> Result<bool, PlaneError> {
    if !parked::unpark(folder, Shape::here()?.build())? {
        return Ok(false);
    }
    set_up(folder, flat)?;
    for entry in fs::read_dir(folder).map_err(os(format!("read {}", folder.display())))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("rc_") && name != CALL && name != RECEIVED {
            libbpf::attach_once(folder, &name, sys::attach_trace)?;
        }
    }
    attach_again(folder)?;
    Ok(true)
}

/// Take the scheduler out of the kernel and put its programs by, empty. Where that cannot be they
/// go.
pub(super) fn put_by(folder: &Path) -> Result<(), PlaneError> {
    // Where the kernel refused a program it is asked again.
    if !lost(folder).is_empty() {
        return unload(folder);
    }
    let put = untie(folder)
        .and_then(|()| empty(folder))
        .and_then(|()| parked::park(folder, Shape::here()?.build()));
    if let Err(error) = put {
        tracing::warn!(%error, "the scheduler's programs are not put by: the next start loads them anew");
        return unload(folder);
    }
    Ok(())
}

/// Nothing of the kernel's calls the programs any more.
fn untie(folder: &Path) -> Result<(), PlaneError> {
    if let Ok(link) = sys::open(&folder.join(OPS_LINK)) {
        let _ = sys::detach(&link);
    }
    for entry in fs::read_dir(folder).map_err(os(format!("read {}", folder.display())))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(LINK) {
            fs::remove_file(entry.path())
                .map_err(os(format!("remove {}", entry.path().display())))?;
        }
    }
    Ok(())
}

/// Whatever the programs know is forgotten.
fn empty(folder: &Path) -> Result<(), PlaneError> {
    let program = open_program(folder)?;
    match call(&program, to::FORGET, &mut RcCall::default())? {
        0 => {}
        errno => return Err(os("forget the tree")(io::Error::from_raw_os_error(-errno))),
    }
    for name in ["lists", "uses", "groups", "accounts"] {
        sys::clear(&folder.join(name)).map_err(os(format!("empty the pinned map '{name}'")))?;
    }
    // A tracer that was killed has left its ring.
    let _ = sys::clear(&folder.join("trace"));
    for name in ["state", libbpf::VARIABLES] {
        sys::zero(&folder.join(name)).map_err(os(format!("empty the pinned map '{name}'")))?;
    }
    Ok(())
}

/// The tree must be there before the scheduler is.
fn set_up(folder: &Path, flat: bool) -> Result<(), PlaneError> {
    let what = if flat { abi::SETUP_FLAT } else { 0 };
    match call(&open_program(folder)?, to::SETUP, &mut RcCall { what, ..RcCall::default() })? {
        0 => Ok(()),
        errno => Err(os("make the tree")(io::Error::from_raw_os_error(-errno))),
    }
}

/// The programs in the kernel, without those that it refuses and that are not essential. Each try
/// leaves out one more.
fn load_object(shape: &Shape) -> Result<Object, PlaneError> {
    let mut without =
        BTreeSet::from([if shape.may_write_user { FCNTL_LOCKED } else { FCNTL }.to_owned()]);
    // A kernel without security hooks of sockets: what is asked there does without.
    if !probe::has_function("security_socket_recvmsg") {
        without.insert(RECEIVED.to_owned());
    }
    for _ in 0..=LOSSES.len() {
        if let Ok(mut said) = SAID.lock() {
            said.clear();
        }
        let error = match try_object(shape, &without) {
            Ok(object) => return Ok(object),
            Err(error) => error,
        };
        let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
        let Some((name, errno)) = refused_program(&said) else { return Err(error) };
        let name = original(name);
        tracing::debug!(%error, "the program {name}");
        if !LOSSES.iter().any(|(program, _)| *program == name) {
            return Err(PlaneError::NotLoaded(format!(
                "the kernel refuses the program {name} ({errno})"
            )));
        }
        tracing::warn!("the kernel refuses the program {name} ({errno})");
        if name == UNMOUNTED {
            without.extend([FCNTL, FCNTL_LOCKED].map(str::to_owned));
        }
        if !without.insert(name.to_owned()) {
            return Err(error);
        }
    }
    Err(PlaneError::NotLoaded("the kernel refuses the CPU's programs".into()))
}

fn try_object(shape: &Shape, without: &BTreeSet<String>) -> Result<Object, PlaneError> {
    let mut open = ObjectBuilder::default()
        .name("reserv_cpu")
        .and_then(|builder| builder.open_memory(shape.object()))
        .map_err(|error| refused("open the CPU's programs", &error))?;
    let operations: Vec<String> =
        shape.lacks.operations().iter().map(|name| format!("rc_{name}")).collect();
    let mut unset = Vec::new();
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if operations.contains(&name) {
            // Which the operations' structure has where the kernel will have the program.
            unset.push((program.as_libbpf_object().as_ptr() as usize).to_ne_bytes());
        }
        if without.contains(original(&name)) || operations.contains(&name) {
            program.set_autoload(false);
        }
    }
    // Constants of the programs, and what they are here.
    let mut constants = vec![(".rodata.cpus", shape.cpus), (".rodata.timed", shape.timed.into())];
    constants.push((".rodata.lacks", shape.lacks.0));
    constants.extend(shape.untraced.then_some((".rodata.trace", 0)));
    constants.extend(shape.threads.map(|threads| (".rodata.threads", threads)));
    constants.extend(shape.near.map(|near| (".rodata.near", near)));
    for mut map in open.maps_mut() {
        // One more than there are items: bpf/cpu/pool.h.
        if let (true, Some(threads)) = (map.name() == "accounts", shape.threads) {
            map.set_max_entries(threads + 1)
                .map_err(|error| refused("size the CPU's accounts", &error))?;
        }
        if map.map_type() == MapType::StructOps {
            let places =
                map.initial_value_mut().into_iter().flat_map(|ops| ops.chunks_exact_mut(8));
            places
                .filter(|place| unset.iter().any(|it| *it == **place))
                .for_each(|place| place.fill(0));
            continue;
        }
        let found = constants.iter().find(|(name, _)| map.name() == *name);
        let Some(value) = found.map(|(_, value)| value.to_ne_bytes()) else { continue };
        map.initial_value_mut().into_iter().for_each(|to| to.copy_from_slice(&value));
    }
    work::reuse(&mut open)?;
    libbpf::show_verifier(&mut open);
    open.load().map_err(|error| refused("load the CPU's programs", &error))
}

/// Load the programs and pin them with their maps; the tracepoints and the hook are attached, the
/// scheduler is not.
pub(super) fn load(folder: &Path, flat: bool) -> Result<(), PlaneError> {
    libbpf_rs::set_print(Some((PrintLevel::Info, listen)));
    let shape = Shape::here()?;
    libbpf::make_folder(folder)?;
    let mut object = load_object(&shape)?;
    while !work::pin(&mut object)? {
        object = load_object(&shape)?;
    }
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        match program.prog_type() {
            ProgramType::Syscall => {
                program
                    .pin(folder.join(&name))
                    .context("pin")
                    .map_err(|error| refused(&name, &error))?;
            }
            _ if !program.autoload() => {}
            ProgramType::Tracing if name == RECEIVED => {
                program
                    .pin(folder.join(&name))
                    .context("pin")
                    .map_err(|error| refused(&name, &error))?;
            }
            ProgramType::Tracing => {
                // Its link is another pin, and goes first (put_by).
                program
                    .pin(folder.join(&name))
                    .context("pin")
                    .map_err(|error| refused(&name, &error))?;
                let mut link =
                    program.attach().map_err(|error| refused(&format!("attach {name}"), &error))?;
                link.pin(folder.join(format!("link-{name}")))
                    .map_err(|error| refused(&name, &error))?;
            }
            _ => {}
        }
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let Some(name) = libbpf::pin_name(&name) else { continue };
        if work::is_shared(name) {
            continue;
        }
        if map.map_type() == MapType::StructOps {
            // libbpf fills the kernel's structure in when it attaches, so the first link is made
            // here and given up again.
            continue;
        }
        map.pin(folder.join(name)).map_err(|error| refused(name, &error))?;
    }
    set_up(folder, flat)?;
    for mut map in object.maps_mut() {
        if map.map_type() != MapType::StructOps {
            continue;
        }
        if let Some(other) = scx_root() {
            return Err(PlaneError::Taken(format!("the sched_ext scheduler '{other}' is loaded")));
        }
        map.pin(folder.join(OPS)).map_err(|error| refused("pin", &error))?;
        let mut link = map.attach_struct_ops().map_err(|error| match scx_root() {
            Some(other) => {
                PlaneError::Taken(format!("the sched_ext scheduler '{other}' is loaded"))
            }
            None => refused("attach the scheduler", &error),
        })?;
        link.pin(folder.join(OPS_LINK))
            .map_err(|error| refused("pin the scheduler's link", &error))?;
    }
    Ok(())
}

/// Attach the pinned scheduler anew, after the kernel has taken it out.
pub(super) fn attach_again(folder: &Path) -> Result<(), PlaneError> {
    let path = folder.join(OPS_LINK);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(os(format!("{}", path.display()))(error));
        }
        _ => {}
    }
    let map = sys::open(&folder.join(OPS)).map_err(os("open the pinned scheduler"))?;
    // The old link goes a moment after its pin, and the kernel holds one scheduler at a time.
    let mut tries = 0;
    let link = loop {
        match sys::attach_struct_ops(&map) {
            Ok(link) => break link,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if let Some(other) = another() {
                    return Err(PlaneError::Taken(format!(
                        "the sched_ext scheduler '{other}' is loaded"
                    )));
                }
                if tries >= 100 {
                    return Err(os("attach the scheduler again")(error));
                }
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(error) => return Err(os("attach the scheduler again")(error)),
        }
    };
    sys::pin(&link, &path).map_err(os("pin the scheduler's link"))
}

/// Take the scheduler out of the kernel and remove all pins.
pub(super) fn unload(folder: &Path) -> Result<(), PlaneError> {
    if let Ok(link) = sys::open(&folder.join(OPS_LINK)) {
        let _ = sys::detach(&link);
    }
    remove_pins(folder)
}

/// Ids of the cgroups for which the mirror has no room.
pub(super) fn folded(folder: &Path) -> Option<BTreeSet<u64>> {
    let map = MapHandle::from_pinned_path(folder.join("groups")).ok()?;
    let at = std::mem::offset_of!(abi::RcGroup, folded);
    let is_folded = |key: &Vec<u8>| {
        map.lookup(key, MapFlags::ANY).ok().flatten().and_then(|value| value.get(at).copied())
            == Some(1)
    };
    Some(
        map.keys()
            .filter(is_folded)
            .filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)))
            .collect(),
    )
}

/// The pinned program of the daemon's calls.
pub(super) fn open_program(folder: &Path) -> Result<OwnedFd, PlaneError> {
    sys::open(&folder.join(CALL)).map_err(os(format!("open the pinned program {CALL}")))
}

/// One call ([`to`]): `Err` when it could not be made; what it answered stands in `call.answer`.
pub(super) fn call(program: &OwnedFd, what: u32, call: &mut RcCall) -> Result<i32, PlaneError> {
    call.call = what;
    sys::run(program, call).map_err(os(format!("run {CALL} ({what})")))?;
    Ok(call.answer)
}
