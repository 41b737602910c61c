// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading the programs, pinning everything, finding it again, and the place of other planes' fcntl
//! commands in the hook.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::{ErrorExt as _, MapCore as _, Object, ObjectBuilder, OpenObject, PrintLevel};
use serde::{Deserialize, Serialize};

use super::{park, room};
pub(super) use crate::libbpf::os;
use crate::libbpf::{SAID, attach_once, detach, listen, refused, refused_program, remove_pins};
use crate::settings;
use crate::{PlaneError, libbpf, sys, work};

/// The programs, built by build.rs.
pub(super) const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tag.bpf.o"));

/// What tags are set through: the link of fcntl's hook, or, where the kernel refuses trampolines,
/// the program of setsockopt, which is attached only while there is an interface.
const HOOK: &str = "rt_fcntl";
const STOCK_HOOK: &str = "rt_setsockopt";
/// The last pin shows that a mechanism is loaded: the link of fcntl's hook, or rt_call by this
/// name.
const STOCK_MARK: &str = "stock";
/// The daemon's calls.
pub(super) const CALL: &str = "rt_call";
/// The beginning of the names of links' pins.
const LINK: &str = "link-";

/// Programs that are attached whenever they are loaded. The hook comes last: nothing is tagged
/// before all is in place.
pub(super) const HOOKS: &[&str] = &[
    "rt_unmounted",
    "rt_opened",
    "rt_freed",
    "rt_connect",
    "rt_accept",
    "rt_clone",
    "rt_destruct",
    "rt_fork",
    "rt_exited",
    HOOK,
];

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
    "rt_send4",
    "rt_send6",
    "rt_bound4",
    "rt_bound6",
    "rt_created",
    SENT,
    "rt_read",
    "rt_write",
    "rt_egress",
    "rt_link",
];
const STOCK: &[&str] = &[
    STOCK_HOOK,
    "rt_getsockopt",
    "rt_sock_create",
    "rt_stock_send4",
    "rt_stock_send6",
    "rt_stored",
    ENDS,
    "rt_stock_egress",
    "rt_stock_link",
];
/// What sees who sends, bound to a container; attached while one owns a queue of an interface.
pub(super) const SENT: &str = "rt_sent";
/// What sees the end of files where the kernel refuses trampolines; attached while there is a disk.
pub(super) const ENDS: &str = "rt_stock_freed";

/// How tags are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mechanism {
    /// By fcntl, on files and sockets; all hooks are the kernel's own functions (trampolines).
    Full,
    /// By setsockopt, on sockets; cgroup hooks. By the daemon, on files of disks that are
    /// scheduled.
    Stock,
}

/// The program of which this is a copy (`HOOKED` of bpf/hook.h), or itself.
pub(super) fn original(name: &str) -> &str {
    name.strip_suffix("_2").or_else(|| name.strip_suffix("_3")).unwrap_or(name)
}

/// A program and the names that copies of it may have.
fn copies(name: &str) -> [String; 3] {
    [name.to_owned(), format!("{name}_2"), format!("{name}_3")]
}

/// Functions of the kernel to which a program is tied.
const TIES: &[(&str, &str)] = &[
    ("rt_opened", "security_file_open"),
    ("rt_freed", "security_file_free"),
    ("rt_connect", "security_socket_connect"),
    ("rt_accept", "inet_accept"),
    ("rt_clone", "inet_csk_clone_lock"),
    ("rt_destruct", "inet_sock_destruct"),
    (SENT, "security_socket_sendmsg"),
];

/// What is lost without a program that is not essential. A program of the object stands here or in
/// `essential`; a test compares.
pub(super) const LOSSES: &[(&str, &str)] = &[
    ("rt_opened", "open() does not tag from default lists"),
    ("rt_connect", "connect() does not tag from default lists"),
    ("rt_accept", "accept() does not tag from default lists"),
    ("rt_clone", "a listener's tag is not handed to its connections"),
    ("rt_fork", "a child does not have its parent's lists"),
    ("rt_exited", "a process that has ended still counts where its lists had a queue"),
    ("rt_option", "setsockopt does not tag sockets; fcntl does"),
    ("rt_option_of", "getsockopt does not tell a socket's queue; fcntl does"),
    ("rt_send4", LATE_LOST),
    ("rt_send6", LATE_LOST),
    ("rt_stock_send4", LATE_LOST),
    ("rt_stock_send6", LATE_LOST),
    ("rt_bound4", BOUND_LOST),
    ("rt_bound6", BOUND_LOST),
    ("rt_created", "a raw socket does not take its maker's default"),
    (SENT, "what a thread sends for its container over a socket of others does not go by that"),
    ("rt_read", "what is done to files cannot be counted"),
    ("rt_write", "what is done to files cannot be counted"),
    ("rt_egress", PACKETS_LOST),
    ("rt_stock_egress", PACKETS_LOST),
    ("rt_link", LINK_LOST),
    ("rt_stock_link", LINK_LOST),
    (STOCK_HOOK, "sockets cannot be tagged"),
    ("rt_getsockopt", "the queue of a socket cannot be asked for"),
    ("rt_sock_create", "a socket does not take its maker's default"),
    ("rt_stored", "how many sockets are tagged is not known"),
    (ENDS, "files of disks cannot be tagged"),
    ("rt_fds", FDS_LOST),
    ("rt_io_start", OWNERS_LOST),
    ("rt_io_issue", OWNERS_LOST),
    ("rt_dirtied", "what the page cache writes to a disk is q0's"),
    (STACKED[0], STACKED_LOST),
    (STACKED[1], STACKED_LOST),
];
const FDS_LOST: &str = "which descriptors are tagged is not known, nor by whom; they keep their tags \
                        where a right is withdrawn";
const LATE_LOST: &str = "datagrams of an unconnected socket do not take their sender's default";
const BOUND_LOST: &str = "what comes in for a socket that never sent is q0's, unless it is tagged";
const PACKETS_LOST: &str = "packets cannot be counted";
const LINK_LOST: &str = "a link's packets do not go by their tags";
const OWNERS_LOST: &str = "who owns the requests of a disk is not known";
const STACKED_LOST: &str = "requests by a driver stacked above a disk are q0's";

/// Without this one there are no tags at all, by this mechanism: a tag must not outlive its file,
/// its socket or its mount.
pub(super) fn essential(mechanism: Mechanism, program: &str) -> bool {
    let of_full = [HOOK, "rt_unmounted", "rt_freed", "rt_destruct"];
    program == "rt_call" || mechanism == Mechanism::Full && of_full.contains(&program)
}

/// Programs that only counting resources need.
pub(super) const COUNT_FILES: &[&str] = &["rt_read", "rt_write"];
/// Programs that only disks that are scheduled need, and the tracepoint of each (Linux 6.5).
pub(super) const DISK: &[(&str, &str)] = &[
    ("rt_io_start", "block_io_start"),
    ("rt_io_issue", "block_rq_issue"),
    ("rt_dirtied", "writeback_dirty_folio"),
    (STACKED[0], "block_bio_queue"),
    (STACKED[1], "block_split"),
];
/// No request has an owner without these; without the others some have none.
const OWNERS: [&str; 2] = ["rt_io_start", "rt_io_issue"];
/// And these only while a driver stacked above a disk makes requests of it.
const STACKED: [&str; 2] = ["rt_bio_queued", "rt_bio_split"];
const fn count_packets(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Full => "rt_egress",
        Mechanism::Stock => "rt_stock_egress",
    }
}

/// What only sockets need, attached to the cgroups while a resource is an interface: every
/// setsockopt, getsockopt, socket() and datagram of an unconnected socket pays for it.
const fn options(mechanism: Mechanism) -> &'static [(&'static str, libbpf_sys::bpf_attach_type)] {
    match mechanism {
        Mechanism::Full => &[
            ("rt_option", libbpf_sys::BPF_CGROUP_SETSOCKOPT),
            ("rt_option_of", libbpf_sys::BPF_CGROUP_GETSOCKOPT),
            ("rt_send4", libbpf_sys::BPF_CGROUP_UDP4_SENDMSG),
            ("rt_send6", libbpf_sys::BPF_CGROUP_UDP6_SENDMSG),
            ("rt_bound4", libbpf_sys::BPF_CGROUP_INET4_POST_BIND),
            ("rt_bound6", libbpf_sys::BPF_CGROUP_INET6_POST_BIND),
            ("rt_created", libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE),
        ],
        Mechanism::Stock => &[
            (STOCK_HOOK, libbpf_sys::BPF_CGROUP_SETSOCKOPT),
            ("rt_getsockopt", libbpf_sys::BPF_CGROUP_GETSOCKOPT),
            ("rt_sock_create", libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE),
            ("rt_stock_send4", libbpf_sys::BPF_CGROUP_UDP4_SENDMSG),
            ("rt_stock_send6", libbpf_sys::BPF_CGROUP_UDP6_SENDMSG),
        ],
    }
}

/// The folder of pins.
pub(super) fn folder() -> PathBuf {
    libbpf::folder("tag")
}

/// Programs whose function this kernel does not have, with its name.
pub(super) fn missing() -> BTreeMap<&'static str, &'static str> {
    let Ok(btf) = Btf::from_vmlinux() else { return BTreeMap::new() };
    let functions =
        TIES.iter().filter(|(_, function)| btf.type_by_name::<Func<'_>>(function).is_none());
    let points = DISK.iter().filter(|(_, point)| {
        btf.type_by_name::<Typedef<'_>>(format!("btf_trace_{point}").as_str()).is_none()
    });
    functions.chain(points).copied().collect()
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
    match (folder.join(format!("link-{HOOK}")).exists(), folder.join(STOCK_MARK).exists()) {
        (true, _) => Some(Mechanism::Full),
        (_, true) => Some(Mechanism::Stock),
        _ => None,
    }
}

/// Programs of the other mechanism, and what the kernel cannot have by what it says of itself.
fn unfit(mechanism: Mechanism) -> BTreeSet<String> {
    let others = if mechanism == Mechanism::Full { STOCK } else { FULL };
    let blind = (!sys::packets_tell_netns()).then_some(count_packets(mechanism));
    others.iter().copied().chain(missing().into_keys()).chain(blind).map(str::to_owned).collect()
}

/// Whether it is left out because this kernel does not say whose network name space a packet is in.
pub(super) fn blind(name: &str) -> bool {
    let counts = [Mechanism::Full, Mechanism::Stock].map(count_packets).contains(&name);
    counts && !sys::packets_tell_netns()
}

/// What stands in the pinned folder neither as a program nor as a link, of those that may be left
/// out: whoever adopts the programs has only the folder to know by.
pub(super) fn left_out(folder: &Path, mechanism: Mechanism) -> BTreeSet<String> {
    let others = if mechanism == Mechanism::Full { STOCK } else { FULL };
    LOSSES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !others.contains(name))
        .filter(|name| !folder.join(name).exists())
        .filter(|name| !folder.join(format!("link-{name}")).exists())
        .map(str::to_owned)
        .collect()
}

/// The same where nothing is loaded: the kernel is asked, by loading.
pub(super) fn would_leave_out(mechanism: Mechanism) -> Result<BTreeSet<String>, PlaneError> {
    let (loaded, without) = choose(mechanism, false);
    loaded.map(|_| without.told())
}

/// Programs that a mechanism may do without: those that this kernel refuses, and what it cannot
/// have.
struct Without {
    programs: BTreeSet<String>,
    /// Those that are of no use here whatever the kernel says.
    unfit: BTreeSet<String>,
    mechanism: Mechanism,
}

impl Without {
    fn new(mechanism: Mechanism) -> Self {
        let unfit = unfit(mechanism);
        Self { programs: unfit.clone(), unfit, mechanism }
    }

    /// Those of this mechanism.
    fn told(self) -> BTreeSet<String> {
        let others = if self.mechanism == Mechanism::Full { STOCK } else { FULL };
        self.programs.into_iter().filter(|name| !others.contains(&name.as_str())).collect()
    }

    /// Whether the kernel has refused any.
    fn any_refused(&self) -> bool {
        self.programs != self.unfit
    }

    /// The kernel has refused this one: it stays out with its copies, by EPERM with all of its
    /// kind, for then it is the kind that is refused.
    fn refused(&mut self, name: &str, errno: &str, error: PlaneError) -> Result<(), PlaneError> {
        let name = original(name).to_owned();
        tracing::debug!(%error, "the program {name}");
        if essential(self.mechanism, &name) {
            return Err(PlaneError::Unsupported(format!(
                "this kernel refuses the program {name} ({errno}), without which nothing can be tagged"
            )));
        }
        tracing::warn!("the kernel refuses the program {name} ({errno})");
        let of_kind = matches!(errno, "-1" | "-EPERM");
        if of_kind {
            let kind = of_its_kind(&name).into_iter().filter(|n| !essential(self.mechanism, n));
            self.programs.extend(kind);
        }
        if self.programs.insert(name) || of_kind { Ok(()) } else { Err(error) }
    }
}

/// The programs of a mechanism in the kernel, without those that it refuses.
///
/// libbpf gives up at the first program that is refused. What stands before it in the object was
/// taken, so each further try loads only what stands behind, and learns of the next one; to begin
/// anew would cost the verifier all of them for each that is refused.
fn choose(mechanism: Mechanism, keep: bool) -> (Result<Option<Object>, PlaneError>, Without) {
    let mut without = Without::new(mechanism);
    if let Some((name, function)) =
        missing().into_iter().find(|(name, _)| essential(mechanism, name))
    {
        let error = PlaneError::Unsupported(format!(
            "this kernel has no function {function} for the program {name}, without which nothing can be tagged"
        ));
        return (Err(error), without);
    }
    libbpf_rs::set_print(Some((PrintLevel::Info, listen)));
    let mut taken = BTreeSet::new();
    for _ in 0..=LOSSES.len() + 1 {
        if let Ok(mut said) = SAID.lock() {
            said.clear();
        }
        let error = match load_object(&without.programs, &taken) {
            Ok(object) if taken.is_empty() => return (Ok(Some(object)), without),
            Ok(_) if !keep => return (Ok(None), without),
            // All that is left is known to be taken.
            Ok(_) => {
                taken.clear();
                continue;
            }
            Err(error) => error,
        };
        let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
        let Some((name, errno)) = refused_program(&said) else {
            return (Err(error), without);
        };
        taken.extend(before(name));
        if let Err(error) = without.refused(name, errno, error) {
            return (Err(error), without);
        }
    }
    let error = PlaneError::Unsupported("this kernel refuses all tag programs".into());
    (Err(error), without)
}

/// Programs that stand before this one in the object, in whose order they are loaded.
fn before(name: &str) -> Vec<String> {
    let Ok(open) = open_object() else { return Vec::new() };
    let names = open.progs().map(|p| p.name().to_string_lossy().into_owned());
    names.take_while(|other| other != name).collect()
}

fn open_object() -> Result<OpenObject, PlaneError> {
    ObjectBuilder::default()
        .name("reserv_tag")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| refused("open the tag programs", &error))
}

/// Programs of the same type that are attached in the same way.
fn of_its_kind(name: &str) -> Vec<String> {
    let Ok(open) = open_object() else { return Vec::new() };
    let kinds: Vec<_> = open
        .progs()
        .map(|p| {
            let section = p.section().to_string_lossy().into_owned();
            let way = section.split('/').next().unwrap_or_default().to_owned();
            (original(&p.name().to_string_lossy()).to_owned(), p.prog_type(), way)
        })
        .collect();
    let Some((_, of, at)) = kinds.iter().find(|(other, ..)| other == name) else {
        return Vec::new();
    };
    kinds.iter().filter(|(_, t, a)| (t, a) == (of, at)).map(|(name, ..)| name.clone()).collect()
}

/// The programs in the kernel but these, and nothing of them pinned or attached yet. `taken`: names
/// (copies have their own) that are left out as well, because the kernel takes them.
fn load_object(without: &BTreeSet<String>, taken: &BTreeSet<String>) -> Result<Object, PlaneError> {
    let mut open = open_object()?;
    room::set(&mut open)?;
    work::reuse(&mut open)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(!without.contains(original(&name)) && !taken.contains(&name));
    }
    libbpf::show_verifier(&mut open);
    open.load().map_err(|error| refused("load the tag programs", &error))
}

/// Load the programs, pin them with their maps, and attach those that are always attached.
pub(super) fn load(folder: &Path, mechanism: Mechanism) -> Result<(), PlaneError> {
    libbpf::make_folder(folder)?;
    let none = || PlaneError::Unsupported("no tag programs".into());
    let (chosen, mut without) = choose(mechanism, true);
    let mut object = chosen?.ok_or_else(none)?;
    while !work::pin(&mut object)? {
        let chosen;
        (chosen, without) = choose(mechanism, true);
        object = chosen?.ok_or_else(none)?;
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(name) = libbpf::pin_name(&name).filter(|name| !work::is_shared(name)) {
            map.pin(folder.join(name)).map_err(|error| refused(name, &error))?;
        }
    }
    for mut program in object.progs_mut().filter(|p| p.autoload()) {
        let name = program.name().to_string_lossy().into_owned();
        program.pin(folder.join(&name)).context("pin").map_err(|error| refused(&name, &error))?;
    }
    if !without.any_refused() {
        park::allow(folder, mechanism)?;
    }
    attach_hooks(folder, mechanism)
}

/// Attach the pinned programs that are always attached. What is not essential and cannot be goes.
pub(super) fn attach_hooks(folder: &Path, mechanism: Mechanism) -> Result<(), PlaneError> {
    for name in HOOKS.iter().flat_map(|name| copies(name)) {
        if !folder.join(&name).exists() {
            continue;
        }
        match attach_once(folder, &name, sys::attach_trace) {
            Err(error) if !essential(mechanism, original(&name)) => {
                tracing::warn!(%error, "the kernel refuses to attach the program {name}");
                park::forbid(folder, mechanism);
                let pin = folder.join(&name);
                fs::remove_file(&pin).map_err(os(format!("remove {}", pin.display())))?;
            }
            attached => attached?,
        }
    }
    if mechanism == Mechanism::Stock {
        let program =
            sys::open(&folder.join(CALL)).map_err(os("open the pinned program rt_call"))?;
        sys::pin(&program, &folder.join(STOCK_MARK)).map_err(os("pin rt_call by another name"))?;
    }
    Ok(())
}

/// Remove the mark that a mechanism is loaded, and then all links.
pub(super) fn unhook(folder: &Path) -> Result<(), PlaneError> {
    for mark in [&format!("{LINK}{HOOK}"), STOCK_MARK] {
        let _ = fs::remove_file(folder.join(mark));
    }
    for entry in fs::read_dir(folder).map_err(os(format!("read {}", folder.display())))?.flatten() {
        if let Some(name) = entry.file_name().to_string_lossy().strip_prefix(LINK) {
            detach(folder, name)?;
        }
    }
    Ok(())
}

/// Remove all pins, the hook's first.
pub(super) fn unload(folder: &Path) -> Result<(), PlaneError> {
    for mark in [&format!("{LINK}{HOOK}"), STOCK_MARK] {
        let _ = fs::remove_file(folder.join(mark));
    }
    remove_pins(folder)
}

/// Attach what counts reads and writes, unless it is.
pub(super) fn attach_traces(folder: &Path) -> Result<(), PlaneError> {
    for name in COUNT_FILES {
        if !folder.join(name).exists() {
            return Err(PlaneError::Unsupported(format!(
                "what is done to files cannot be counted: this kernel refuses the program {name}"
            )));
        }
        attach_once(folder, name, sys::attach_trace)?;
    }
    Ok(())
}

/// Attach what writes down who owns a disk's requests, unless it is.
pub(super) fn attach_disk(folder: &Path) -> Result<(), PlaneError> {
    for (name, point) in DISK {
        if OWNERS.contains(name) && !folder.join(name).exists() {
            return Err(PlaneError::Unsupported(format!(
                "{OWNERS_LOST}: this kernel has no tracepoint {point} (Linux 6.5), or refuses our program there"
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

/// Attach what sees the end of files, unless it is; where this kernel's programs have none, files
/// have no tags.
pub(super) fn attach_ends(folder: &Path) -> Result<(), PlaneError> {
    if folder.join(ENDS).exists() { attach_once(folder, ENDS, sys::attach_trace) } else { Ok(()) }
}

/// Attach what sees who sends, unless it is; or detach it. A kernel that refuses to attach it is
/// one without it, from then on.
pub(super) fn attach_sent(
    folder: &Path,
    mechanism: Mechanism,
    wanted: bool,
) -> Result<(), PlaneError> {
    let pin = folder.join(SENT);
    if !wanted {
        return detach(folder, SENT);
    }
    if !pin.exists() {
        return Ok(());
    }
    if let Err(error) = attach_once(folder, SENT, sys::attach_trace) {
        tracing::warn!(%error, "the kernel refuses to attach the program {SENT}");
        park::forbid(folder, mechanism);
        fs::remove_file(&pin).map_err(os(format!("remove {}", pin.display())))?;
    }
    Ok(())
}

/// Whether it is attached.
pub(super) fn ends_attached(folder: &Path) -> bool {
    folder.join(format!("link-{ENDS}")).exists()
}

/// Attach what counts packets to the root of the cgroups, unless it is.
pub(super) fn attach_packets(folder: &Path, mechanism: Mechanism) -> Result<(), PlaneError> {
    if !folder.join(count_packets(mechanism)).exists() {
        return Err(PlaneError::Unsupported(
            "packets cannot be counted: this kernel does not say whose network name space one is in \
             (Linux 6.15 does), or refuses our program"
                .into(),
        ));
    }
    let root: OwnedFd = open_root()?.into();
    attach_once(folder, count_packets(mechanism), |program| {
        sys::attach_cgroup(program, &root, libbpf_sys::BPF_CGROUP_INET_EGRESS)
    })
}

/// Attach what tags sockets by an option, unless it is. Where there are no cgroups, fcntl alone
/// tags them, or nothing.
pub(super) fn attach_options(folder: &Path, mechanism: Mechanism) -> Result<(), PlaneError> {
    let root: OwnedFd = match open_root() {
        Ok(root) => root.into(),
        Err(error) if mechanism == Mechanism::Full => {
            tracing::warn!(%error, "fcntl alone tags sockets, not setsockopt, and {LATE_LOST}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut there = options(mechanism).iter().filter(|(name, _)| folder.join(name).exists());
    there.try_for_each(|(name, at)| {
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
    let program =
        sys::open(&folder.join(name)).map_err(os(format!("open the pinned program {name}")))?;
    let link = sys::attach_interface(&program, index, libbpf_sys::BPF_TCX_EGRESS, 0)
        .map_err(os(format!("attach {name} (Linux 6.6)")))?;
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

/// The cgroup whose sockets the cgroup hooks see: the root of cgroup v2, or what
/// `RESERV_TAG_CGROUP` names.
fn open_root() -> Result<fs::File, PlaneError> {
    let root = settings::tag_cgroup().or_else(cgroup_root).ok_or_else(|| {
        PlaneError::Unsupported(
            "tags of sockets need the root of cgroup v2, which is not mounted".into(),
        )
    })?;
    fs::File::open(&root).map_err(os(format!("open {}", root.display())))
}

/// Where cgroup v2 is mounted.
fn cgroup_root() -> Option<PathBuf> {
    // Users may mount (fusermount) on names of any bytes.
    String::from_utf8_lossy(&fs::read("/proc/self/mounts").ok()?).lines().find_map(|line| {
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
    let disk =
        DISK.iter().flat_map(|(name, _)| copies(name)).chain([ENDS.to_owned()]).filter(|_| !disks);
    let of_sockets =
        options(mechanism).iter().map(|(name, _)| *name).chain([count_packets(mechanism), SENT]);
    let of_sockets = of_sockets.filter(|_| !interfaces).map(str::to_owned);
    for name in traces.map(str::to_owned).chain(disk).chain(of_sockets) {
        detach(folder, &name)?;
    }
    Ok(())
}
