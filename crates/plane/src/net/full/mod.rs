// SPDX-License-Identifier: MIT OR Apache-2.0
//! The full driver: our own qdisc in BPF (`bpf/net`), with the core of `sched/` in it. The tree,
//! its counters and the packets live in the kernel, pinned under `RESERV_BPFFS`/net-N, and do not
//! need us.

mod abi;
mod load;
#[cfg(test)]
mod tests;
mod upgrade;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, ptr, thread};

use reserv_facts::net::PACKETS_MAX;
use reserv_facts::tree::kind::QUEUE;
use reserv_model::{
    ArrivalSample, Backlog, Batch, Class, DeleteMode, Dropper, LinkSample, NodeId, Op, Outcome,
    PacketRules, Policy, Rate, Source,
};

use self::abi::{RnCall, RnIo, RnNode, RnState, RsBatch, what};
use self::load::Programs;
pub use self::load::{probe, try_load};
use self::upgrade::Foreign;
use super::former::{put_back, replaceable, write_former};
use super::{
    entrances, index_of, link, netns, room, rtnl, set_entries, told_apart, with_entrances,
};
use crate::count::{Meter, Metered, Tagged, Told, lacks_entrance, tags_by_meter};
use crate::libbpf::os;
use crate::ops::{self, io_error, refusal};
use crate::sys::{self, Mapped};
use crate::{
    DriverInfo, Health, Member, Packets, Plane, PlaneError, Refs, Sample, Threads, Upgrade,
    Upgraded, receive,
};

/// Most packets that wait in a queue, where nothing else is said.
const LIMIT_PACKETS: u64 = 1000;
/// Most bytes, without a rate; with one it is `room`.
const LIMIT_UNLIMITED: u64 = 2 * 1024 * 1024;

/// Of one packet: what the kernel lets a packet of many segments be (`GSO_MAX_SIZE`).
const PACKET_LONGEST: u64 = 512 * 1024;

/// What a cap lets be saved up where it does not say: this long at its rate, at least a packet.
const CAP_BURST_NS: u64 = 20_000_000;
const CAP_BURST_MIN: u64 = 2000;

/// The kernel gives an arena pages without waiting for any (7.2), so that now and then it has none;
/// a batch that was refused for that is whole.
const MEMORY_TRIES: u32 = 20;
const MEMORY_PAUSE: Duration = Duration::from_millis(5);

/// The driver. Dropping it leaves the qdisc running.
pub struct Link {
    source: Source,
    interface: String,
    number: u8,
    folder: PathBuf,
    former: PathBuf,
    programs: Programs,
    io: Mapped<RnIo>,
    state: Mapped<RnState>,
    meter: Tagged,
    /// The programs are of another version.
    foreign: Option<Foreign>,
}

/// Take an interface, with a tree of root and q0. `run` is where the former qdisc is written down.
pub fn start(run: &Path, number: u8, source: &Source) -> Result<Link, PlaneError> {
    probe().map_err(PlaneError::Unsupported)?;
    let (interface, rate) = link(source)?;
    let index = index_of(interface)?;
    let [folder, _] = load::folders(number);
    let former_qdisc = replaceable(interface, index, |q| q.kind == load::kind(&folder))?;
    let former = run.join(format!("qdisc-{number}"));
    fs::create_dir_all(run).map_err(os(format!("make {}", run.display())))?;
    write_former(&former, former_qdisc.as_ref())?;
    load::folders(number).iter().try_for_each(|folder| load::unload(folder))?;
    if let Err(error) = load::load_or_take_up(&folder) {
        let _ = fs::remove_file(&former);
        return Err(error);
    }
    let mut plane = open(folder, former, number, source)?;
    let begun = plane.begin(index, rate);
    if begun.is_err()
        && let Err(error) = plane.stop()
    {
        tracing::error!(%error, interface, "the interface was not given back");
    }
    begun.map(|()| plane)
}

/// Find what an earlier daemon left; `None` when there is nothing.
pub fn adopt(run: &Path, number: u8, source: &Source) -> Result<Option<Link>, PlaneError> {
    let former = run.join(format!("qdisc-{number}"));
    let Some(mut plane) = upgrade::find(&former, number, source)? else { return Ok(None) };
    if plane.state().attached == 0 {
        return Ok(None);
    }
    if plane.sampled() {
        let told = plane.nodes()?.iter().map(told).collect::<Vec<_>>();
        plane.meter.begin(source, &told, false)?;
    } else {
        plane.meter.keep(source)?;
    }
    // Of who died between the word and the deed. The tree is worth more than the rate.
    if plane.understood().is_ok()
        && let Err(error) = plane.tell_rate(source.rate())
    {
        tracing::error!(%error, interface = plane.interface, "the rate is as it was");
    }
    Ok(Some(plane))
}

fn open(folder: PathBuf, former: PathBuf, number: u8, source: &Source) -> Result<Link, PlaneError> {
    let programs = load::open_programs(&folder)?;
    let map = |name: &str| {
        sys::open(&folder.join(name)).map_err(os(format!("open the pinned map '{name}'")))
    };
    let io = Mapped::new(&map("io")?).map_err(os("map 'io'"))?;
    let state = Mapped::new(&map("state")?).map_err(os("map 'state'"))?;
    let interface = link(source)?.0.to_owned();
    let meter = Tagged::new(number);
    let mut plane = Link {
        source: source.clone(),
        interface,
        number,
        folder,
        former,
        programs,
        io,
        state,
        meter,
        foreign: None,
    };
    let state = plane.state();
    if state.magic != abi::MAGIC {
        return Err(PlaneError::Invalid(format!(
            "what is pinned in {} is no qdisc of Reserv's: magic {:#x} instead of {:#x}",
            plane.folder.display(),
            state.magic,
            abi::MAGIC
        )));
    }
    plane.foreign = Foreign::of(&state);
    Ok(plane)
}

/// Most bytes that wait in a queue.
fn limit_bytes(rate: Option<Rate>) -> u64 {
    rate.map_or(LIMIT_UNLIMITED, |rate| room(rate).into())
}

fn told(node: &RnNode) -> Told {
    Told { id: NodeId::unpack(node.id), queue: node.kind == QUEUE, dying: node.dying != 0 }
}

impl Link {
    fn begin(&mut self, index: u32, rate: Option<Rate>) -> Result<(), PlaneError> {
        self.tell_rate(rate)?;
        let told = self.nodes()?.iter().map(told).collect::<Vec<_>>();
        self.meter.begin(&self.source, &told, true)?;
        self.attach(index)
    }

    fn tell_rate(&self, rate: Option<Rate>) -> Result<(), PlaneError> {
        self.set(what::RATE, rate.map_or(0, Rate::bytes), 0)?;
        self.set(what::LIMIT, LIMIT_PACKETS, limit_bytes(rate))
    }

    /// The qdisc at the interface's root.
    fn attach(&self, index: u32) -> Result<(), PlaneError> {
        self.set(what::DEVICE, index.into(), netns()?)?;
        rtnl::replace(index, 0, &load::kind(&self.folder), &[])
            .map_err(os(format!("put our qdisc at the root of {}", self.interface)))
    }

    /// The interface is not ours now, and is to be: it may be another one of that name, with
    /// another qdisc.
    fn take_note(&self) -> Result<u32, PlaneError> {
        let index = index_of(&self.interface)?;
        write_former(
            &self.former,
            replaceable(&self.interface, index, |q| q.kind == load::kind(&self.folder))?.as_ref(),
        )?;
        Ok(index)
    }

    fn state(&self) -> RnState {
        // SAFETY: the mapping is as large as the structure, which is plain numbers; a torn read of
        // a counter is harmless.
        unsafe { ptr::read_volatile(self.state.at()) }
    }

    /// The longest section of the tree's lock since this was last asked, in ns, and the line where
    /// it ended: measured with `RESERV_TIMED` in the environment of `start` only.
    pub fn section(&self) -> Result<(u64, u32), PlaneError> {
        self.set(what::SECTION, 0, 0)?;
        let state = self.state();
        Ok((state.section_ns, state.section_line))
    }

    /// The volatile half of the tree is made anew, as [`Plane::revive`] does where it is
    /// inconsistent.
    pub fn remake(&self) -> Result<(), PlaneError> {
        self.set(what::REVIVE, 0, 0)
    }

    fn call(&self, name: &str, call: &mut RnCall) -> Result<i32, PlaneError> {
        if !(name.starts_with("rn_sample") && self.sampled()) {
            self.understood()?;
        }
        load::call(&self.programs, name, call)
    }

    fn set(&self, what: u32, a: u64, b: u64) -> Result<(), PlaneError> {
        match -self.call("rn_do", &mut RnCall { a, b, what, ..RnCall::default() })? {
            0 => Ok(()),
            errno => Err(refusal(errno, format!("a setting of {}", self.interface))),
        }
    }

    /// Of programs whose counters this version does not understand: none.
    fn nodes(&self) -> Result<Vec<RnNode>, PlaneError> {
        let mut nodes = Vec::new();
        if !self.sampled() {
            return Ok(nodes);
        }
        let mut next = Some(0);
        while let Some(first) = next {
            (_, next) = self.some_nodes(first, &mut nodes)?;
        }
        Ok(nodes)
    }

    /// Those from index `first` on, as many as come at once. Answers where they end, and where to
    /// go on.
    fn some_nodes(
        &self,
        first: u32,
        nodes: &mut Vec<RnNode>,
    ) -> Result<(u32, Option<u32>), PlaneError> {
        let mut call = RnCall { first, ..RnCall::default() };
        if let errno @ 1.. = -self.call("rn_sample", &mut call)? {
            return Err(os("sample the tree")(io_error(errno)));
        }
        for i in 0..(call.count as usize).min(abi::SAMPLES_MAX) {
            // SAFETY: the program has just written `count` nodes there; it is done.
            nodes.push(unsafe { ptr::read_volatile(&raw const (*self.io.at()).node[i]) });
        }
        let more = call.first < call.what && call.first > first;
        Ok((call.first, more.then_some(call.first)))
    }

    fn one(&self, id: NodeId) -> Result<RnNode, PlaneError> {
        let mut call = RnCall { node: id.pack(), ..RnCall::default() };
        match -self.call("rn_sample_one", &mut call)? {
            // SAFETY: the program has just written the node there.
            0 => Ok(unsafe { ptr::read_volatile(&raw const (*self.io.at()).node[0]) }),
            errno => Err(refusal(errno, format!("{id:?}"))),
        }
    }

    fn queue(&self, id: NodeId) -> Result<RnNode, PlaneError> {
        let node = self.one(id)?;
        if node.kind == QUEUE {
            Ok(node)
        } else {
            Err(PlaneError::Invalid("a scheduler node is no queue".into()))
        }
    }

    fn sample_of(&self, node: &RnNode) -> Sample {
        let id = NodeId::unpack(node.id);
        let queue = node.kind == QUEUE;
        let members =
            if queue { self.meter.refs(id).map_or(0, |refs| refs.descriptors) } else { 0 };
        Sample {
            id: node.id,
            service_ns: node.service,
            service_since_reset_ns: node.service.wrapping_sub(node.service_base),
            served: node.served,
            queued: node.packets,
            running: 0,
            members: u32::try_from(members).unwrap_or(u32::MAX),
            throttled: node.throttled != 0,
            throttled_ns: node.throttled_ns,
            draining: node.dying != 0,
            request_ns: 0,
            disk: None,
            receive: if queue { self.meter.received(id) } else { None },
            others: if id == NodeId::ROOT { self.meter.received_else() } else { None },
            outside: None,
            link: queue.then_some(LinkSample {
                queued_bytes: node.bytes,
                dropped: node.dropped,
                dropped_bytes: node.dropped_bytes,
                limit_packets: node.limit_packets,
                limit_bytes: node.limit_bytes,
            }),
        }
    }

    /// Has the core apply a batch; its answer.
    fn edit(&self, batch: &mut RsBatch) -> Result<i32, PlaneError> {
        let at = self.io.at().cast::<RsBatch>();
        let mut tries = 0;
        loop {
            // SAFETY: `io` is ours between two calls, and as large as the batch.
            unsafe { batch.put(at) };
            let answer = self.call("rn_edit", &mut RnCall::default())?;
            // SAFETY: the program is done with it.
            unsafe { batch.take(at) };
            if answer != -libc::ENOMEM || tries == MEMORY_TRIES {
                return Ok(answer);
            }
            tries += 1;
            thread::sleep(MEMORY_PAUSE);
        }
    }

    /// The batch as the core reads it. What a link cannot do is refused before anything happens.
    fn encode(&self, batch: &Batch) -> Result<RsBatch, PlaneError> {
        let mut encoded = ops::encoded(batch)?;
        for (slot, edit) in encoded.op.iter_mut().zip(&batch.ops) {
            match *edit {
                // In time at its rate, as everywhere; the core counts in bytes. A late timer may
                // not lose what it allows.
                Op::SetCap { cap: Some(cap), .. } => {
                    let ns = if cap.burst_ns > 0 { cap.burst_ns } else { CAP_BURST_NS };
                    let burst = u128::from(cap.per_second()) * u128::from(ns) / 1_000_000_000;
                    slot.b = u64::try_from(burst).unwrap_or(u64::MAX).max(CAP_BURST_MIN);
                }
                Op::Tune { .. } | Op::NodeParam { .. } => {
                    return Err(PlaneError::Unsupported(NO_TUNABLES.into()));
                }
                // A queue with sockets is kept (drain), or refused; packets go to q0 with the node.
                Op::Delete { id, mode } => {
                    let tagged = self.meter.refs(id).map_or(0, |refs| refs.descriptors);
                    if mode == DeleteMode::Refuse && tagged > 0 {
                        return Err(PlaneError::Busy(format!(
                            "{tagged} sockets are tagged with it"
                        )));
                    }
                    slot.a = u64::from(mode == DeleteMode::Drain && tagged > 0);
                }
                _ => {}
            }
        }
        Ok(encoded)
    }
}

const NO_TUNABLES: &str = "a link's nodes have no such tunables";

/// Why it does not carry an op out.
pub(crate) fn refused(op: &Op) -> Option<String> {
    let tunes = matches!(op, Op::Tune { .. } | Op::NodeParam { .. });
    (tunes && receive::of(op).is_none()).then(|| NO_TUNABLES.to_owned())
}

/// Whether it can order a queue so.
pub(crate) fn has_class(class: Class) -> bool {
    // First come, first served, whatever threads would do there; or by flows.
    matches!(class, Class::Fifo | Class::Ts | Class::Drr)
}

/// Whether it can order the children of a node so.
pub(crate) fn has_policy(policy: Policy) -> bool {
    // The others' tunables are times, and work here is bytes.
    matches!(policy, Policy::Sfq | Policy::Wf2qPlus | Policy::Wf2q)
}

impl Plane for Link {
    fn info(&self) -> DriverInfo {
        let rate = match self.source {
            Source::Link { rate: Some(rate), .. } => format!("{rate}"),
            _ => "no rate of its own".into(),
        };
        let mut limits = self.meter.limits(&self.source);
        limits.extend(self.understood().err().map(|why| why.to_string()));
        let RnState { flushed, no_room, .. } = self.state();
        if flushed + no_room > 0 {
            limits.push(format!(
                "{flushed} packets were dropped when the interface gave its queue up, {no_room} because too many waited in all"
            ));
        }
        DriverInfo {
            name: "full",
            mechanism: format!(
                "qdisc in BPF on {}, {rate}, {}",
                self.interface,
                told_apart(&self.meter)
            ),
            version: self.state().abi,
            limits,
            outside: None,
            chcpures: false,
            cgroups: None,
        }
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        self.understood()?;
        let (entries, tree) = entrances(batch);
        let mut done = self.encode(&tree)?;
        self.meter.announce(&tree)?;
        // Before the tree has the batch's number. Of who dies in between the next daemon tells all
        // rates again, as they are then.
        let former = self.meter.let_in(&entries);
        let answer = match &former {
            Ok(former) => self.edit(&mut done).inspect_err(|_| self.meter.let_back(former))?,
            Err(_) => -libc::EOPNOTSUPP,
        };
        if answer < 0 {
            if let Ok(former) = &former {
                self.meter.let_back(former);
            }
            for op in &batch.ops {
                if let Op::Create { id, .. } = *op
                    && self.one(id).is_err()
                {
                    self.meter.removed(id)?;
                }
            }
            former?;
            return Err(ops::refused(&done, &tree, answer, || self.applied_seq()));
        }
        let outcomes = self.meter.applied(&tree, &done)?;
        Ok(with_entrances(batch, outcomes))
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        if self.sampled() {
            self.one(NodeId::ROOT)?;
        }
        Ok(Some(self.state().seq))
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        let mut gone = Vec::new();
        if self.foreign.is_some() {
            return Ok(gone); // they wait for the upgrade
        }
        for node in self.nodes()?.iter().filter(|node| node.dying != 0 && node.packets == 0) {
            let id = NodeId::unpack(node.id);
            if self.meter.refs(id)?.descriptors > 0 {
                continue;
            }
            let mut call = RnCall { what: what::COLLECT, node: id.pack(), ..RnCall::default() };
            match -self.call("rn_do", &mut call)? {
                0 => {
                    self.meter.removed(id)?;
                    gone.push(id);
                }
                libc::EBUSY => {}
                errno => return Err(refusal(errno, format!("{id:?}"))),
            }
        }
        Ok(gone)
    }

    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        Ok(self.nodes()?.iter().map(|node| self.sample_of(node)).collect())
    }

    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        Ok(self.sample_of(&self.one(id)?))
    }

    fn refs(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        self.references(ids)
    }

    fn health(&mut self) -> Result<Health, PlaneError> {
        if self.sampled() {
            self.one(NodeId::ROOT)?; // brings `state` up to date
        }
        let state = self.state();
        if state.poison != 0 {
            let (why, line) = (state.poison, state.poison_line);
            return Ok(Health::Detached(format!(
                "the tree is inconsistent: reason {why} at line {line}"
            )));
        }
        if state.attached > state.detached {
            return Ok(Health::Running);
        }
        Ok(match rtnl::index_of(&self.interface) {
            None => Health::Waiting(format!("there is no interface {} now", self.interface)),
            Some(index) => match rtnl::root(index) {
                Ok((Some(q), _)) if q.handle != 0 => {
                    Health::Waiting(format!("somebody put a qdisc {} in the place of ours", q.kind))
                }
                _ => Health::Detached(format!("{} was without our qdisc", self.interface)),
            },
        })
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        self.understood()?;
        if self.state().poison != 0 {
            self.remake()?;
        }
        if self.state().attached > self.state().detached {
            return Ok(());
        }
        let index = self.take_note()?;
        self.meter.again(&self.source)?;
        self.attach(index)
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        if let Some(index) = rtnl::index_of(&self.interface) {
            put_back(&self.former, &self.interface, index, |q| q.kind == load::kind(&self.folder))?;
        }
        let _ = fs::remove_file(&self.former);
        self.meter.stop()?;
        tracing::debug!(number = self.number, "the link's programs go");
        if self.foreign.is_none()
            && self.state().build == load::build()
            && self.folder.join(load::LINK).exists()
        {
            load::put_by(&self.folder)?;
        }
        load::folders(self.number).iter().try_for_each(|folder| load::unload(folder))
    }

    fn backlog(&self) -> Option<Backlog> {
        self.backlog_at(self.source.rate())
    }

    fn backlog_at(&self, rate: Option<Rate>) -> Option<Backlog> {
        let units = PACKETS_MAX - LIMIT_PACKETS; // as many as q0 may always have
        Some(Backlog {
            budget: 0,
            each: super::PACKET_EACH,
            longest: PACKET_LONGEST,
            most: limit_bytes(rate),
            usual: LIMIT_PACKETS,
            units,
        })
    }

    fn capacity(&self) -> u64 {
        self.source.promised()
    }

    fn may_have_rate(&self, _: Option<Rate>) -> Result<(), PlaneError> {
        self.understood()
    }

    fn set_rate(&mut self, rate: Option<Rate>) -> Result<(), PlaneError> {
        if let Err(error) = self.tell_rate(rate) {
            if let Err(also) = self.tell_rate(self.source.rate()) {
                tracing::error!(error = %also, interface = self.interface, "the rate is not as before");
            }
            return Err(error);
        }
        self.source.set_rate(rate);
        Ok(())
    }

    fn lacks(&self, op: &Op) -> Option<String> {
        refused(op).or_else(|| lacks_entrance(op, self.meter.entrance().is_some()))
    }

    fn supports_class(&self, class: Class) -> bool {
        has_class(class)
    }

    fn supports_policy(&self, policy: Policy) -> bool {
        has_policy(policy)
    }
}

impl Threads for Link {
    fn tagged_instead(&self) -> String {
        "sockets are tagged".into()
    }

    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        self.there(queue).map(|()| Vec::new())
    }
}

impl Metered for Link {
    fn meter(&self) -> &dyn Meter {
        &self.meter
    }

    fn meter_mut(&mut self) -> &mut dyn Meter {
        &mut self.meter
    }

    fn there(&self, queue: NodeId) -> Result<(), PlaneError> {
        self.queue(queue).map(drop)
    }
}

tags_by_meter!(Link);

impl Packets for Link {
    fn set_packet_rules(&mut self, rules: &PacketRules) -> Result<(), PlaneError> {
        self.meter_mut().set_packet_rules(rules)
    }

    fn droppers(&self, queue: NodeId) -> Result<Vec<Dropper>, PlaneError> {
        self.meter().droppers(queue)
    }

    fn arrivals(&self) -> Vec<ArrivalSample> {
        self.meter().arrivals()
    }

    fn set_entries(&mut self, all: &[receive::Set]) -> Result<(), PlaneError> {
        set_entries(self.meter_mut(), all)
    }
}

impl Upgrade for Link {
    fn upgrade(&mut self, tree: &[Batch]) -> Result<Option<Upgraded>, PlaneError> {
        self.upgrade_to(tree)
    }
}
