// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tags on open files and sockets, default lists of processes, who may use a queue, and what refers
//! to a node, for all resources but the threads' own tags (`cpu`). All of it lives in the kernel
//! (`bpf/tag`), pinned, and outlives the daemon.

mod abi;
mod fds;
mod load;
mod owned;
mod packets;
mod park;
mod room;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use libbpf_rs::{MapCore as _, MapHandle};
use reserv_model::{NodeId, UseRule};

use self::abi::{RtAbove, RtCall, RtLists, RtNode, above_how, what};
pub use self::fds::DescriptorTag;
pub use self::load::Mechanism;
use self::load::os;
pub use self::owned::{Owned, Wanted, tell_owned};
pub(crate) use self::packets::compared;
use crate::{List, PlaneError, sys, uses};

/// What a resource is, to the tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The files on a device (`st_dev` of one of them, as the C library packs it), and the device's
    /// own.
    Files {
        /// The device's number.
        dev: u64,
    },
    /// What leaves by an interface.
    Interface {
        /// `if_nametoindex`
        index: u32,
        /// Its network name space: [`netns_cookie`].
        netns: u64,
    },
}

/// What a node is, to the tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// A queue: it can be tagged with.
    pub queue: bool,
    /// It takes no more tags.
    pub dying: bool,
}

/// What refers to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refs {
    /// Open files and sockets, however many descriptors each has.
    pub descriptors: u64,
    /// Default lists of processes.
    pub defaults: u64,
    /// Child default lists.
    pub child_defaults: u64,
}

/// What a counting resource has counted in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Reads and writes, or packets.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The lists of a process: `(resource, queue)` where it is not q0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// `/reserv/proc/PID/default`
    pub default: Vec<(u8, NodeId)>,
    /// `/reserv/proc/PID/cdefault`
    pub child: Vec<(u8, NodeId)>,
}

/// A tagged descriptor of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaggedFd {
    /// The process.
    pub pid: i32,
    /// Its descriptor.
    pub fd: u32,
    /// The resource for which it is tagged.
    pub resource: u8,
    /// The queue, by packed handle.
    pub queue: u64,
}

/// The cookie of the caller's network name space.
pub fn netns_cookie() -> io::Result<u64> {
    // SAFETY: a new socket; no memory is handed over.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut cookie = 0_u64;
    let mut size: libc::socklen_t = 8;
    // SAFETY: eight writable bytes, as `size` says.
    let got = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut size,
        )
    };
    if got == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// How descriptors would be tagged on this machine, and what that cannot do, one sentence each;
/// `Err` says why that cannot be known. Root only: the kernel is asked by loading a program.
pub fn survey() -> Result<(Mechanism, Vec<String>), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("only root can find out".into());
    }
    let mechanism = mechanism();
    Ok((mechanism, limits(mechanism)))
}

/// What a mechanism cannot do on this kernel, one sentence each: by the programs that run, else by
/// a try to load them.
pub fn limits(mechanism: Mechanism) -> Vec<String> {
    let folder = load::folder();
    let without = if load::loaded(&folder) == Some(mechanism) {
        load::left_out(&folder, mechanism)
    } else {
        match load::would_leave_out(mechanism) {
            Ok(without) => without,
            Err(error) => {
                let said = error.to_string();
                let first = said.lines().next().unwrap_or_default();
                return vec![format!("nothing can be tagged by this mechanism: {first}")];
            }
        }
    };
    let (always, groups) = match mechanism {
        Mechanism::Stock => (STOCK_LIMITS, SOCKETS_LOST),
        Mechanism::Full => (&[][..], OPTIONS_LOST),
    };
    let groups = (!load::options_possible()).then_some(groups);
    always.iter().copied().chain(groups).map(Into::into).chain(losses(&without)).collect()
}

/// What is lost without these programs, and why; programs with the same sentence share it.
fn losses(without: &BTreeSet<String>) -> Vec<String> {
    let missing = load::missing();
    let mut told: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, lost) in load::LOSSES.iter().filter(|(name, _)| without.contains(*name)) {
        let why = match missing.get(name) {
            Some(function) => format!("has no {function}"),
            None if load::blind(name) => "does not tell a packet's network name space".into(),
            None => format!("refuses the program {name}"),
        };
        match told.iter_mut().find(|(other, _)| other == lost) {
            Some((_, reasons)) => reasons.push(why),
            None => told.push((lost, vec![why])),
        }
    }
    told.iter().map(|(lost, why)| format!("{lost} (this kernel {})", why.join(", "))).collect()
}

/// What the full mechanism cannot do without cgroup v2.
const OPTIONS_LOST: &str = "setsockopt does not tag sockets (cgroup v2 is not mounted); fcntl does";

/// And the stock one.
const SOCKETS_LOST: &str = "sockets cannot be tagged: cgroup v2 is not mounted";

/// What the stock mechanism cannot do.
const STOCK_LIMITS: &[&str] = &[
    "fcntl commands are unknown: this kernel refuses trampolines; sockets are tagged by setsockopt, files of a disk by 'reserv tag QUEUE PID/FD'",
    "what is done to files cannot be counted",
    "a socket takes its maker's default when it is made, not when it connects; a connection that comes in takes its listener's",
];

/// How tags are set: by the programs that run, else by those that are put by, else as this kernel
/// allows.
pub fn mechanism() -> Mechanism {
    let folder = load::folder();
    load::loaded(&folder)
        .or_else(|| park::full(&folder))
        .unwrap_or_else(|| if load::trampolines() { Mechanism::Full } else { Mechanism::Stock })
}

static TURN: Mutex<()> = Mutex::new(());

/// The programs are one for all resources, so one resource at a time takes them or lets go of them:
/// of two that end together the first would put them by while the other still asks them.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same for who must not wait for a resource that comes: the kernel's verifier takes seconds.
/// `None`: one comes or goes.
pub(crate) fn turn_now() -> Option<MutexGuard<'static, ()>> {
    match TURN.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The running programs, or new ones by the best mechanism that this kernel allows.
pub fn open() -> Result<Tags, PlaneError> {
    let mechanism = mechanism();
    match open_as(mechanism) {
        // What the full one cannot do without, the stock one does not ask for.
        Err(PlaneError::Unsupported(why)) if mechanism == Mechanism::Full => {
            tracing::warn!(%why, "tags by the stock mechanism");
            open_as(Mechanism::Stock)
        }
        other => other,
    }
}

/// The running programs, whatever their mechanism, or new ones by this one: those that are put by,
/// if there are any.
pub fn open_as(mechanism: Mechanism) -> Result<Tags, PlaneError> {
    if let Some(tags) = adopt()? {
        return Ok(tags);
    }
    let folder = load::folder();
    load::unload(&folder)?; // what somebody left who was stopped half-way
    match park::take_up(&folder, mechanism) {
        Ok(true) => return Tags::open(folder, mechanism),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(%error, "the tags' programs that were put by do not start: they are loaded anew");
            load::unload(&folder)?;
        }
    }
    if let Err(error) = load::load(&folder, mechanism) {
        let _ = load::unload(&folder);
        return Err(error);
    }
    Tags::open(folder, mechanism)
}

/// The programs that run; `None` when there are none.
pub fn adopt() -> Result<Option<Tags>, PlaneError> {
    let folder = load::folder();
    load::loaded(&folder).map(|mechanism| Tags::open(folder, mechanism)).transpose()
}

/// The tags' programs in the kernel. Dropping it leaves them running.
#[derive(Debug)]
pub struct Tags {
    folder: PathBuf,
    program: OwnedFd,
    mechanism: Mechanism,
}

/// Held while what is stacked above a disk is told: a device may be above several disks, each of
/// which has a thread that looks after it, and all of them are in the device's one entry.
static ABOVE: Mutex<()> = Mutex::new(());

impl Tags {
    fn open(folder: PathBuf, mechanism: Mechanism) -> Result<Self, PlaneError> {
        let program =
            sys::open(&folder.join("rt_call")).map_err(os("open the pinned program rt_call"))?;
        let tags = Self { folder, program, mechanism };
        let version = tags.call(RtCall::new(what::STATE))?.b;
        if version != u64::from(abi::ABI_VERSION) {
            return Err(PlaneError::Invalid(format!(
                "the pinned tag programs have ABI version {version}, this daemon understands {}: \
                 take them down with the daemon that made them",
                abi::ABI_VERSION
            )));
        }
        Ok(tags)
    }

    fn map(&self, name: &str) -> Result<OwnedFd, PlaneError> {
        sys::open(&self.folder.join(name)).map_err(os(format!("open the pinned map '{name}'")))
    }

    fn call(&self, mut call: RtCall) -> Result<RtCall, PlaneError> {
        sys::run(&self.program, &mut call).map_err(os("run rt_call"))?;
        let id = NodeId::unpack(call.node);
        match -call.answer {
            0 => Ok(call),
            libc::ESRCH => Err(PlaneError::NoProcess(call.pid)),
            libc::ESTALE => {
                Err(PlaneError::NoNode(format!("{id:?} of resource {}", call.resource)))
            }
            libc::ENOSPC => Err(PlaneError::Full(format!("{id:?} of resource {}", call.resource))),
            errno => Err(os(format!("{id:?} of resource {}", call.resource))(
                io::Error::from_raw_os_error(errno),
            )),
        }
    }

    fn call_node(&self, what: u32, resource: u8, id: NodeId) -> Result<RtCall, PlaneError> {
        self.call(RtCall { resource: resource.into(), node: id.pack(), ..RtCall::new(what) })
    }

    /// How tags are set.
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The device number (as the C library packs it) of the file system at which `/reserv` is
    /// mounted; after each mount and adoption.
    pub fn set_mount(&self, dev: u64) -> Result<(), PlaneError> {
        let a = u64::from(load::left_out(&self.folder, self.mechanism).contains("rt_fork"));
        self.call(RtCall { node: kernel_dev(dev), a, ..RtCall::new(what::CONFIGURE) }).map(drop)
    }

    /// What a resource (1…15) is; its files and sockets can be tagged from now on. With `count`
    /// operations are counted per queue.
    pub fn attach_resource(
        &self,
        resource: u8,
        object: Object,
        count: bool,
    ) -> Result<(), PlaneError> {
        let packed = match object {
            Object::Files { dev } => abi::RtObject {
                kind: abi::object_kind::FILES,
                number: u32::try_from(kernel_dev(dev))
                    .map_err(|_| PlaneError::Invalid(format!("device number {dev:#x}")))?,
                netns: 0,
            },
            Object::Interface { index, netns } => {
                abi::RtObject { kind: abi::object_kind::INTERFACE, number: index, netns }
            }
        };
        for other in (1..RESOURCES).filter(|other| *other != resource) {
            let held = self.object(other)?;
            if (held.kind, held.number, held.netns) == (packed.kind, packed.number, packed.netns) {
                return Err(PlaneError::Taken(format!("{object:?} is resource {other}")));
            }
        }
        if count && self.mechanism == Mechanism::Stock && matches!(object, Object::Files { .. }) {
            return Err(PlaneError::Unsupported(STOCK_LIMITS[1].into()));
        }
        if matches!(object, Object::Interface { .. }) {
            load::attach_options(&self.folder, self.mechanism)?;
        }
        if count {
            match object {
                Object::Files { .. } => load::attach_traces(&self.folder)?,
                Object::Interface { .. } => load::attach_packets(&self.folder, self.mechanism)?,
            }
        }
        self.call(RtCall { resource: resource.into(), object: packed, ..RtCall::new(what::OBJECT) })
            .map(drop)
    }

    /// What leaves by an attached interface is given its queue just before the qdisc sees it
    /// (`bpf/tag/link.h`); with `htb`, its class of the HTB of that handle (its upper half).
    /// Instead of an interface that the resource had before.
    pub fn attach_link(&self, resource: u8, index: u32, htb: u16) -> Result<(), PlaneError> {
        self.call(RtCall { resource: resource.into(), a: htb.into(), ..RtCall::new(what::LINK) })?;
        load::attach_link(&self.folder, self.mechanism, resource, index)
    }

    /// The requests of this block device (number as the C library packs it) have owners: queues of
    /// the resource. Answers the pinned table in which they stand and the resource's first place
    /// there.
    pub fn attach_disk(&self, resource: u8, dev: u64) -> Result<(PathBuf, u64), PlaneError> {
        load::attach_disk(&self.folder)?;
        if self.mechanism == Mechanism::Stock {
            load::attach_ends(&self.folder)?;
        }
        self.call(RtCall {
            resource: resource.into(),
            a: kernel_dev(dev),
            ..RtCall::new(what::DISK)
        })?;
        Ok((self.folder.join("slots"), u64::from(resource) * abi::SLOTS as u64))
    }

    /// What is stacked above the resource, a disk that is scheduled, whatever was before: numbers
    /// of devices (as the C library packs them), and whether a driver makes requests of its own out
    /// of theirs.
    pub fn set_above(&self, resource: u8, wanted: &BTreeMap<u64, bool>) -> Result<(), PlaneError> {
        let _alone = ABOVE.lock().unwrap_or_else(PoisonError::into_inner);
        let bit = 1u32.checked_shl(resource.into()).unwrap_or(0);
        let tell = |dev: u64, b: u64| {
            self.call(RtCall { resource: resource.into(), a: dev, b, ..RtCall::new(what::ABOVE) })
                .map(drop)
        };
        let known = self.above()?;
        let wanted: BTreeMap<u64, bool> =
            wanted.iter().map(|(dev, passes)| (kernel_dev(*dev), *passes)).collect();
        for (dev, there) in &known {
            if there.lives & bit != 0 && !wanted.contains_key(&u64::from(*dev)) {
                tell((*dev).into(), above_how::NOT_ABOVE)?;
            }
        }
        for (dev, passes) in wanted {
            let there = u32::try_from(dev)
                .ok()
                .and_then(|dev| known.get(&dev))
                .copied()
                .unwrap_or_default();
            if (there.lives & bit != 0, there.passes & bit != 0) != (true, passes) {
                tell(dev, if passes { above_how::PASSES } else { above_how::LIVES })?;
            }
        }
        load::attach_stacked(&self.folder, self.above()?.values().any(|there| there.passes != 0))
    }

    fn above(&self) -> Result<BTreeMap<u32, RtAbove>, PlaneError> {
        let all = MapHandle::from_pinned_path(self.folder.join("above"))
            .map_err(|error| PlaneError::Invalid(format!("the pinned map 'above': {error}")))?;
        let map = self.map("above")?;
        let mut found = BTreeMap::new();
        for key in all.keys() {
            let Ok(dev) = key.try_into().map(u32::from_ne_bytes) else { continue };
            // One that has gone meanwhile is not there.
            if let Some(there) =
                sys::get::<u32, RtAbove>(&map, &dev).map_err(os("look a device up"))?
            {
                found.insert(dev, there);
            }
        }
        Ok(found)
    }

    /// The resource is nothing any more: no tag of it counts.
    pub fn detach_resource(&self, resource: u8) -> Result<(), PlaneError> {
        load::detach_link(&self.folder, resource)?;
        self.set_packet_rules(resource, &[])?;
        self.set_above(resource, &BTreeMap::new())?;
        self.call(RtCall { resource: resource.into(), ..RtCall::new(what::DISK) })?;
        self.call(RtCall { resource: resource.into(), ..RtCall::new(what::OBJECT) })?;
        let kinds: Vec<u32> =
            (1..RESOURCES).map(|r| self.object(r).map(|o| o.kind)).collect::<Result<_, _>>()?;
        load::detach_unused(
            &self.folder,
            self.mechanism,
            kinds.contains(&abi::object_kind::FILES),
            kinds.contains(&abi::object_kind::INTERFACE),
            kinds.contains(&abi::object_kind::FILES),
        )
    }

    fn object(&self, resource: u8) -> Result<abi::RtObject, PlaneError> {
        Ok(self.call(RtCall { resource: resource.into(), ..RtCall::new(what::OBJECT_GET) })?.object)
    }

    /// Where the maps are pinned that other programs share.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// How words of a resource begin, in sockets' storage and in notes of who sent or bound.
    pub(crate) fn era(&self, resource: u8) -> Result<u16, PlaneError> {
        let call = RtCall { resource: resource.into(), ..RtCall::new(what::OBJECT_GET) };
        Ok(u16::try_from(self.call(call)?.b).unwrap_or_default())
    }

    /// A node of a resource exists, or has changed. q0 too: what nobody tagged is counted there.
    pub fn set_node(&self, resource: u8, id: NodeId, info: NodeInfo) -> Result<(), PlaneError> {
        let call = RtCall {
            resource: resource.into(),
            node: id.pack(),
            a: if info.queue { abi::kind::QUEUE } else { abi::kind::SCHEDULER },
            b: if info.dying { abi::DYING } else { 0 },
            ..RtCall::new(what::NODE)
        };
        self.call(call).map(drop)
    }

    /// It no longer does: whatever is tagged with it is q0's, and who may use it is forgotten.
    pub fn drop_node(&self, resource: u8, id: NodeId) -> Result<(), PlaneError> {
        self.call_node(what::DROP, resource, id).map(drop)
    }

    /// Who may tag with a queue, whole and in order; `None`: whoever could open it.
    pub fn set_use(
        &self,
        resource: u8,
        id: NodeId,
        rules: Option<&[UseRule]>,
    ) -> Result<(), PlaneError> {
        let map = self.map("uses")?;
        let node = id.pack();
        let key = abi::use_key(resource, node);
        let know = |told: u64| {
            let call =
                RtCall { resource: resource.into(), node, a: told, ..RtCall::new(what::RULED) };
            self.call(call).map(drop)
        };
        let value = rules.map(uses::pack).transpose()?;
        know(0)?; // from here on the node itself knows of nobody
        match &value {
            None => sys::remove(&map, &key).map(drop).map_err(os("forget who may use a queue")),
            Some(value) => {
                sys::put(&map, &key, value).map_err(os("tell who may use a queue"))?;
                know(1)
            }
        }
    }

    fn node(&self, resource: u8, id: NodeId) -> Result<RtNode, PlaneError> {
        let key = u32::from(resource) * abi::NODES_MAX + id.index.min(abi::NODES_MAX - 1);
        sys::get::<u32, RtNode>(&self.map("nodes")?, &key)
            .map_err(os("look a node up"))?
            .filter(|node| {
                node.generation == id.generation && id.generation != 0 && id.index < abi::NODES_MAX
            })
            .ok_or_else(|| PlaneError::NoNode(format!("{id:?} of resource {resource}")))
    }

    /// The nodes of a resource that were set and not dropped.
    pub fn nodes(&self, resource: u8) -> Result<Vec<NodeId>, PlaneError> {
        let map = self.map("nodes")?;
        let mut found = Vec::new();
        for index in 0..abi::NODES_MAX {
            let key = u32::from(resource) * abi::NODES_MAX + index;
            let node = sys::get::<u32, RtNode>(&map, &key).map_err(os("look a node up"))?;
            if let Some(RtNode { generation: generation @ 1.., .. }) = node {
                found.push(NodeId { index, generation });
            }
        }
        Ok(found)
    }

    /// Whether a resource is attached.
    pub fn is_attached(&self, resource: u8) -> Result<bool, PlaneError> {
        Ok(self.object(resource)?.kind != abi::object_kind::NOTHING)
    }

    /// What refers to a node.
    pub fn refs(&self, resource: u8, id: NodeId) -> Result<Refs, PlaneError> {
        let RtNode { descriptors, defaults, child_defaults, .. } = self.node(resource, id)?;
        let stored =
            if self.mechanism == Mechanism::Stock { self.stored(resource, id)? } else { 0 };
        Ok(Refs {
            descriptors: u64::from(descriptors) + stored,
            defaults: defaults.into(),
            child_defaults: child_defaults.into(),
        })
    }

    /// What a counting resource has counted in a queue.
    pub fn counted(&self, resource: u8, id: NodeId) -> Result<Counted, PlaneError> {
        let RtNode { operations, bytes, .. } = self.node(resource, id)?;
        Ok(Counted { operations, bytes })
    }

    /// Count from 0.
    pub fn reset_counted(&self, resource: u8, id: NodeId) -> Result<(), PlaneError> {
        self.call_node(what::RESET, resource, id).map(drop)
    }

    /// The lists of a process, for all resources but cpu.
    pub fn defaults(&self, pid: i32) -> Result<Lists, PlaneError> {
        let call = self.call(RtCall { pid, ..RtCall::new(what::LISTS) })?;
        let lists: RtLists = sys::get(&self.map("lists")?, &call.b)
            .map_err(os("look lists up"))?
            .unwrap_or_default();
        let of = |list: &[u64; abi::RESOURCES]| {
            (0..RESOURCES)
                .zip(list)
                .filter(|(_, n)| **n != 0)
                .map(|(r, n)| (r, NodeId::unpack(*n)))
                .collect()
        };
        Ok(Lists { default: of(&lists.list[0]), child: of(&lists.list[1]) })
    }

    /// Change one entry of one of them. The caller has checked that the process may use the queue.
    pub fn set_default(
        &self,
        pid: i32,
        list: List,
        resource: u8,
        queue: NodeId,
    ) -> Result<(), PlaneError> {
        let call = RtCall {
            pid,
            resource: resource.into(),
            node: queue.pack(),
            a: u64::from(list == List::Child),
            ..RtCall::new(what::LIST_SET)
        };
        self.call(call).map(drop)
    }

    /// Every tag and every list entry of a queue becomes q0's. Answers how many. Set the node
    /// dying, or its rules, first, or new ones may come meanwhile. What sockets hold in their own
    /// storage (stock) stays, and means q0 once the node is dropped.
    pub fn sweep(&self, resource: u8, id: NodeId) -> Result<u64, PlaneError> {
        Ok(self.call_node(what::SWEEP, resource, id)?.a)
    }

    /// Tags and lists that the kernel had no room for, since it was loaded.
    pub fn lost(&self) -> Result<u64, PlaneError> {
        Ok(self.call(RtCall::new(what::STATE))?.a)
    }

    /// Take the programs from the kernel's events, and put them by, unless some resource needs
    /// them.
    pub fn release(self) -> Result<(), PlaneError> {
        for resource in 1..RESOURCES {
            if self.object(resource)?.kind != abi::object_kind::NOTHING {
                return Ok(());
            }
        }
        park::put_by(&self.folder, &self.program, self.mechanism)
    }
}

/// `RT_RESOURCES`
#[expect(clippy::cast_possible_truncation, reason = "16")]
const RESOURCES: u8 = abi::RESOURCES as u8;

/// `st_dev` as the C library packs it, to the kernel's own form.
fn kernel_dev(dev: u64) -> u64 {
    u64::from(libc::major(dev)) << 20 | u64::from(libc::minor(dev))
}
