// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entrance of a link (`bpf/receive`): packets that come in are told apart before the protocol,
//! counted for their queue, and dropped where their receiver has no room for them or their queue a
//! rate. It stands beside the link's driver, whichever that is, and shares the maps of the tags.
//! The programs are pinned under `RESERV_BPFFS`/receive-N and do not need us.

mod abi;
mod rules;
#[cfg(test)]
mod tests;

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libbpf_rs::{ErrorExt as _, MapCore as _, Object, ObjectBuilder, PrintLevel};
use reserv_facts::receive::tune;
use reserv_facts::tag::SLOTS_OF_NODES;
use reserv_model::{Dropper, NodeId, Op, Receive, ReceiveOthers, ReceiveSample, TuneKey};

use self::abi::{RvCall, RvDropper, RvDroppers, RvNode, RvOthers, what};
use crate::count::Told;
use crate::libbpf::{SAID, attach_once, detach, listen, os, refused, remove_pins};
use crate::tag::{self, Mechanism, Tags};
use crate::{PlaneError, libbpf, sys, work};

/// The programs, built by build.rs.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/receive.bpf.o"));

/// The daemon's calls.
const CALL: &str = "rv_call";
/// Maps of the tags that the programs share; and those that the tags share with the CPU's
/// (crate::work).
const SHARED: [&str; 4] = ["nodes", "socks", "stored_socks", "packet_rules"];
/// The queues, with what they have counted and their rates.
const QUEUES: &str = "entrances";
const OTHERS: &str = "others";
/// Whose packets were dropped.
const DROPPERS: &str = "droppers";
/// Rules about who comes, and what they let in and have counted.
const RULES: &str = "arrivals";
const LIMITS: &str = "limits";

/// What of a queue's entrance is set to what; 0: the default.
pub type Set = (NodeId, TuneKey, u64);

/// What an edit sets at an entrance, if anything.
pub(crate) const fn of(op: &Op) -> Option<Set> {
    match *op {
        Op::Tune { id, key: key @ (TuneKey::Receive | TuneKey::ReceiveBurst), value } => {
            Some((id, key, value))
        }
        _ => None,
    }
}

/// The programs at one link's entrance. Dropping it leaves them running.
#[derive(Debug)]
pub struct Entrance {
    folder: PathBuf,
    at: Receive,
    program: OwnedFd,
    queues: OwnedFd,
    others: OwnedFd,
    droppers: OwnedFd,
    rules: OwnedFd,
    limits: OwnedFd,
    /// Where each rule that was told last counts.
    counted: Vec<u32>,
}

/// Which programs these are.
fn build() -> u32 {
    static BUILD: LazyLock<u32> = LazyLock::new(|| crc32fast::hash(OBJECT));
    *BUILD
}

fn folder(number: u8) -> PathBuf {
    libbpf::folder(&format!("receive-{number}"))
}

/// Stands in the folder when all else does, and says which programs they are.
fn mark(folder: &Path) -> PathBuf {
    folder.join(format!("build-{:08x}", build()))
}

const fn program(at: Receive) -> &'static str {
    match at {
        Receive::Tcx => "rv_tcx",
        Receive::Xdp => "rv_xdp",
    }
}

/// `XDP_FLAGS_DRV_MODE`: by the driver itself. The kernel's substitute copies each packet first.
const XDP_BY_DRIVER: u32 = 1 << 2;

/// Where what comes in can be told apart on this kernel, asked by loading; root only. A driver may
/// have no XDP nevertheless.
pub fn survey() -> Vec<Receive> {
    Receive::ALL.iter().copied().filter(|at| loaded(*at, None).is_ok()).collect()
}

/// The programs in the kernel, with the maps of the tags if they are to be of use.
fn loaded(at: Receive, tags: Option<&Tags>) -> Result<Object, PlaneError> {
    libbpf_rs::set_print(Some((PrintLevel::Info, listen)));
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    let mut open = ObjectBuilder::default()
        .name("reserv_receive")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| refused("open the entrance's programs", &error))?;
    work::reuse(&mut open)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(tags) = tags
            && SHARED.contains(&name.as_str())
        {
            map.reuse_pinned_map(tags.folder().join(&name))
                .map_err(|error| refused(&format!("share the map {name}"), &error))?;
        }
    }
    for mut program_ in open.progs_mut() {
        let name = program_.name().to_string_lossy().into_owned();
        program_.set_autoload(name == CALL || name == program(at));
    }
    libbpf::show_verifier(&mut open);
    open.load().map_err(|error| {
        let error = refused("load the entrance's programs", &error);
        tracing::debug!(%error, "the entrance's programs");
        PlaneError::Unsupported(format!(
            "this kernel refuses the program {} at a link's entrance",
            program(at)
        ))
    })
}

/// As it stands in a packet: IPv4 in its form of IPv6.
fn dropper(RvDropper { from, count, over }: RvDropper) -> Dropper {
    let bytes: Vec<u8> = from.iter().flat_map(|half| half.to_ne_bytes()).collect();
    let whole = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default());
    let (address, length) = match whole.to_ipv4_mapped() {
        Some(address) => (address.into(), 24),
        None => (whole.into(), 64),
    };
    Dropper { address, length, packets: count, over }
}

/// Pins all but the mark.
fn pin(folder: &Path, mut object: Object) -> Result<(), PlaneError> {
    libbpf::make_folder(folder)?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(name) = libbpf::pin_name(&name)
            && !SHARED.contains(&name)
            && !work::is_shared(name)
        {
            map.pin(folder.join(name)).map_err(|error| refused(name, &error))?;
        }
    }
    for mut program in object.progs_mut().filter(|p| p.autoload()) {
        let name = program.name().to_string_lossy().into_owned();
        program.pin(folder.join(&name)).context("pin").map_err(|error| refused(&name, &error))?;
    }
    Ok(())
}

/// Nothing is there for a resource that has no entrance any more.
pub fn clear(number: u8) -> Result<(), PlaneError> {
    let folder = folder(number);
    if !folder.exists() {
        return Ok(());
    }
    for at in Receive::ALL {
        detach(&folder, program(*at))?;
    }
    remove_pins(&folder)
}

/// The queues of programs that understand them as these do; none where there are no others.
fn former(folder: &Path) -> Vec<(u32, RvNode)> {
    let mut call = RvCall { what: what::STATE, ..RvCall::default() };
    let asked = sys::open(&folder.join(CALL)).and_then(|program| sys::run(&program, &mut call));
    let Ok(map) = sys::open(&folder.join(QUEUES)) else { return Vec::new() };
    if asked.is_err() || call.a != u64::from(abi::ABI_VERSION) {
        return Vec::new();
    }
    let found = (0..SLOTS_OF_NODES)
        .filter_map(|index| Some((index, sys::get::<u32, RvNode>(&map, &index).ok()??)));
    found.filter(|(_, node)| node.generation > 0).collect()
}

impl Entrance {
    /// Load the programs; nothing comes through them yet. `fresh`: nothing of those that are there
    /// goes on; else counters and rates do, where they are of another build. A kernel that refuses
    /// them leaves those that are there; on another error nothing is left.
    pub fn load(number: u8, at: Receive, tags: &Tags, fresh: bool) -> Result<Self, PlaneError> {
        let object = loaded(at, Some(tags))?;
        let folder = folder(number);
        let former = if fresh { Vec::new() } else { former(&folder) };
        clear(number)?;
        let made = pin(&folder, object).and_then(|()| Self::open(folder.clone(), at));
        let made = made.and_then(|entrance| {
            entrance.begin(number, tags)?;
            for (index, node) in &former {
                sys::put(&entrance.queues, index, node).map_err(os("carry a queue's rate over"))?;
            }
            // The last: who finds it finds all.
            let mark = mark(&folder);
            sys::pin(&entrance.program, &mark).map_err(os(format!("pin {}", mark.display())))?;
            Ok(entrance)
        });
        if made.is_err() {
            let _ = clear(number);
        }
        made
    }

    /// Those that an earlier daemon of this build left; `None`: there are none.
    pub fn adopt(number: u8, at: Receive, tags: &Tags) -> Result<Option<Self>, PlaneError> {
        let folder = folder(number);
        if !mark(&folder).exists() || !folder.join(program(at)).exists() {
            return Ok(None);
        }
        let entrance = Self::open(folder, at)?;
        entrance.begin(number, tags)?;
        Ok(Some(entrance))
    }

    fn open(folder: PathBuf, at: Receive) -> Result<Self, PlaneError> {
        let program =
            sys::open(&folder.join(CALL)).map_err(os("open the pinned program rv_call"))?;
        let map = |name: &str| {
            sys::open(&folder.join(name)).map_err(os(format!("open the pinned map '{name}'")))
        };
        let (queues, others, droppers) = (map(QUEUES)?, map(OTHERS)?, map(DROPPERS)?);
        let (rules, limits) = (map(RULES)?, map(LIMITS)?);
        let counted = Vec::new();
        Ok(Self { folder, at, program, queues, others, droppers, rules, limits, counted })
    }

    /// Where it is.
    pub const fn place(&self) -> Receive {
        self.at
    }

    fn begin(&self, number: u8, tags: &Tags) -> Result<(), PlaneError> {
        let stored = tags.mechanism() == Mechanism::Stock;
        let b = u64::from(tags.era(number)?) << 16 | u64::from(stored);
        let c = tag::netns_cookie().map_err(os("the network name space"))?;
        self.call(RvCall { what: what::BEGIN, a: number.into(), b, c, ..RvCall::default() })
            .map(drop)
    }

    fn call(&self, mut call: RvCall) -> Result<RvCall, PlaneError> {
        sys::run(&self.program, &mut call).map_err(os("run rv_call"))?;
        match -call.answer {
            0 => Ok(call),
            libc::ESTALE => Err(PlaneError::NoNode(format!("{:?}", NodeId::unpack(call.node)))),
            errno => Err(os("a call of the entrance")(io::Error::from_raw_os_error(errno))),
        }
    }

    fn call_node(&self, what: u32, id: NodeId, a: u64, b: u64) -> Result<(), PlaneError> {
        self.call(RvCall { what, node: id.pack(), a, b, ..RvCall::default() }).map(drop)
    }

    /// Packets of this interface come through it from now on, unless they do.
    pub fn attach(&self, interface: &str, index: u32) -> Result<(), PlaneError> {
        let name = program(self.at);
        if !self.folder.join(format!("link-{name}")).exists() {
            crate::net::own_packets(interface, index)?;
        }
        let (place, flags) = match self.at {
            Receive::Tcx => (libbpf_sys::BPF_TCX_INGRESS, 0),
            Receive::Xdp => (libbpf_sys::BPF_XDP, XDP_BY_DRIVER),
        };
        let attached = attach_once(&self.folder, name, |program| {
            sys::attach_interface(program, index, place, flags)
        });
        attached.map_err(|error| self.why(interface, error))
    }

    /// The kernel's word for what it does not do here.
    fn why(&self, interface: &str, error: PlaneError) -> PlaneError {
        let PlaneError::Os { source, .. } = &error else { return error };
        let why = match (self.at, source.raw_os_error()) {
            (Receive::Xdp, Some(libc::EBUSY | libc::EEXIST)) => {
                "another XDP program is there; --receive=tcx works beside it"
            }
            (Receive::Xdp, Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE)) => {
                "its driver has no XDP, or not with this MTU and these offloads; --receive=tcx \
                 works with any"
            }
            (Receive::Tcx, Some(libc::EINVAL)) => {
                "this kernel has no tcx (Linux 6.6, CONFIG_NET_XGRESS)"
            }
            _ => return error,
        };
        PlaneError::Unsupported(format!("the entrance of {interface}: {why}"))
    }

    /// And no longer.
    pub fn detach(&self) -> Result<(), PlaneError> {
        detach(&self.folder, program(self.at))
    }

    /// A node is there. A scheduler has no entrance: its queues have.
    pub fn node(&self, told: Told) -> Result<(), PlaneError> {
        if told.queue { self.call_node(what::NODE, told.id, 0, 0) } else { Ok(()) }
    }

    /// It is gone: what comes for it is q0's.
    pub fn removed(&self, id: NodeId) -> Result<(), PlaneError> {
        match self.call_node(what::DROP, id, 0, 0) {
            Err(PlaneError::NoNode(_)) => Ok(()),
            done => done,
        }
    }

    /// Exactly these nodes are there.
    pub fn only(&self, nodes: &[Told]) -> Result<(), PlaneError> {
        for index in 0..SLOTS_OF_NODES {
            let found =
                sys::get::<u32, RvNode>(&self.queues, &index).map_err(os("look a queue up"))?;
            let Some(RvNode { generation: generation @ 1.., .. }) = found else { continue };
            let id = NodeId { index, generation };
            if nodes.iter().all(|told| told.id != id || !told.queue) {
                self.removed(id)?;
            }
        }
        nodes.iter().try_for_each(|told| self.node(*told))
    }

    fn queue(&self, id: NodeId) -> Result<RvNode, PlaneError> {
        sys::get::<u32, RvNode>(&self.queues, &id.index)
            .map_err(os("look a queue up"))?
            .filter(|node| node.generation == id.generation)
            .ok_or_else(|| PlaneError::NoNode(format!("{id:?}")))
    }

    /// What a queue lets in from now on; answers what takes it back.
    fn set(&self, (id, key, value): Set) -> Result<Set, PlaneError> {
        let a = if key == TuneKey::Receive { tune::RATE } else { tune::BURST };
        let call = RvCall { what: what::TUNE, node: id.pack(), a, b: value, ..RvCall::default() };
        Ok((id, key, self.call(call)?.b))
    }

    /// All of them, or none. Answers what takes them back, in the order in which that is done.
    pub fn set_all(&self, wanted: &[Set]) -> Result<Vec<Set>, PlaneError> {
        let mut former = Vec::new();
        for set in wanted {
            match self.set(*set) {
                Ok(was) => former.insert(0, was),
                Err(error) => {
                    self.set_back(&former);
                    return Err(error);
                }
            }
        }
        Ok(former)
    }

    /// As it was. A queue that is gone needs nothing.
    pub fn set_back(&self, former: &[Set]) {
        for set in former {
            if let Err(error) = self.set(*set) {
                tracing::debug!(%error, "an entrance is not set back");
            }
        }
    }

    /// Its counters from 0.
    pub fn reset(&self, id: NodeId) -> Result<(), PlaneError> {
        self.call_node(what::RESET, id, 0, 0)
    }

    /// What has come in for a queue.
    pub fn sample(&self, id: NodeId) -> Result<ReceiveSample, PlaneError> {
        let RvNode { packets, bytes, full, over, .. } = self.queue(id)?;
        Ok(ReceiveSample { packets, bytes, full, over })
    }

    /// Whose packets a queue lost, the heaviest first.
    pub fn droppers(&self, id: NodeId) -> Result<Vec<Dropper>, PlaneError> {
        self.queue(id)?;
        let found = sys::get_locked::<u64, RvDroppers>(&self.droppers, &id.pack())
            .map_err(os("look up whose packets were dropped"))?;
        let some = found.unwrap_or_default().of.into_iter().filter(|of| of.count > 0);
        let mut all: Vec<Dropper> = some.map(dropper).collect();
        all.sort_by_key(|of| (std::cmp::Reverse(of.packets), of.address));
        Ok(all)
    }

    /// What no queue is asked for.
    pub fn others(&self) -> Result<ReceiveOthers, PlaneError> {
        let found =
            sys::get::<u32, RvOthers>(&self.others, &0).map_err(os("look others' packets up"))?;
        let RvOthers { shared, forwarded, nobody, elsewhere } = found.unwrap_or_default();
        Ok(ReceiveOthers { shared, forwarded, nobody, elsewhere })
    }
}
