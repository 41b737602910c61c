// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stock driver: HTB, as every kernel has it, with a class for each node. The tags' programs
//! name a packet's class (`bpf/tag/link.h`), what they do not name is q0's. HTB keeps the packets
//! and the counters; the tree itself is kept in a file, as a counting resource's is ([`Count`]).

mod classes;
mod shape;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reserv_model::{
    ArrivalSample, Backlog, Batch, Class, Dropper, Kind, LinkSample, NodeId, Op, Outcome,
    PacketRules, Policy, Rate, Source,
};

use self::classes::Classes;
pub(crate) use self::shape::fits;
use self::shape::{Shapes, shapes};
use super::former::{put_back, replaceable, write_former};
use super::rtnl::{self, Qdisc};
use super::{index_of, link, room, set_entries, told_apart};
use crate::count::{
    self, Books, Count, Meter, Metered, Reads, Tagged, lacks_entrance, tags_by_meter,
};
use crate::libbpf::os;
use crate::{
    DriverInfo, Health, Member, Packets, Plane, PlaneError, Refs, Sample, Threads, Upgrade, receive,
};

/// The upper half of HTB's handle, with the resource's number below.
const MAJOR: u16 = 0x5200;
/// Of one packet; the interface's `gso_max_size` is held to it (rule 4 of the note).
const PACKET_LONGEST: u64 = 64 * 1024;
/// Of Ethernet; what has less wastes a little of its quantum.
const LINK_HEADER: u32 = 14;

/// The driver. Dropping it leaves HTB running.
pub struct Htb {
    source: Source,
    interface: String,
    number: u8,
    rate: Rate,
    former: PathBuf,
    count: Count,
    classes: Shared,
    /// Why it is not the full driver, where that was wanted.
    lacks: Option<String>,
    /// The interface that carries our classes.
    index: u32,
}

type Shared = Arc<Mutex<Classes>>;

fn locked(classes: &Shared) -> MutexGuard<'_, Classes> {
    classes.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn rated(source: &Source, lacks: Option<&String>) -> Result<(String, Rate), PlaneError> {
    let (interface, rate) = link(source)?;
    let rate = rate.ok_or_else(|| {
        let why = lacks
            .map_or_else(String::new, |why| format!("; the full driver needs none, but {why}"));
        PlaneError::Unsupported(format!(
            "HTB shares only a rate that it is told (--rate, as 100mbit){why}"
        ))
    })?;
    Ok((interface.to_owned(), rate))
}

const fn major(number: u8) -> u16 {
    MAJOR | number as u16
}

fn longest(interface: &str) -> Result<u32, PlaneError> {
    Ok(rtnl::mtu(interface).map_err(os(format!("the MTU of {interface}")))? + LINK_HEADER)
}

fn meter(number: u8) -> Box<dyn Meter> {
    Box::new(Tagged::new(number).with_htb(major(number)))
}

/// Tags are the kernel's as everywhere; what was sent HTB has counted.
fn counted(classes: &Shared) -> Reads {
    let classes = Arc::clone(classes);
    Box::new(move |queue| locked(&classes).usage(queue))
}

fn counters(run: &Path, number: u8) -> PathBuf {
    run.join(format!("htb-{number}"))
}

/// `Err` says in words what is missing. Whether HTB is there tells only its first use, which loads
/// it.
pub fn probe() -> Result<(), String> {
    if Path::new("/proc/net/psched").exists() {
        Ok(())
    } else {
        Err("this kernel has no qdiscs (CONFIG_NET_SCHED)".into())
    }
}

/// Take an interface, with a tree of root and q0. `lacks`: why it is not the full driver.
pub fn start(
    run: &Path,
    number: u8,
    source: &Source,
    lacks: Option<String>,
) -> Result<Htb, PlaneError> {
    let (interface, rate) = rated(source, lacks.as_ref())?;
    let index = index_of(&interface)?;
    let ours = |q: &Qdisc| is_ours(q, number);
    let former_qdisc = replaceable(&interface, index, ours)?;
    let former = run.join(format!("qdisc-{number}"));
    fs::create_dir_all(run).map_err(os(format!("make {}", run.display())))?;
    write_former(&former, former_qdisc.as_ref())?;
    let classes =
        Arc::new(Mutex::new(Classes::new(&interface, major(number), counters(run, number), false)));
    locked(&classes).attach(index).map_err(no_htb)?;
    let give_back = |error| {
        if let Err(also) = put_back(&former, &interface, index, ours) {
            tracing::error!(error = %also, interface, "the interface was not given back");
        }
        let _ = fs::remove_file(&former);
        locked(&classes).release_segments(index);
        locked(&classes).forget();
        error
    };
    // Classes before tags: no packet names a class that is not there.
    let made = plan(&Books::default(), rate, &interface)
        .and_then(|(wanted, longest)| locked(&classes).put(&wanted, longest))
        .and_then(|()| locked(&classes).limit_segments(index, rate.bytes()))
        .and_then(|()| count::start(run, number, source, meter(number)));
    let count = made.map_err(give_back)?.counted_by(counted(&classes));
    Ok(Htb {
        source: source.clone(),
        interface,
        number,
        rate,
        former,
        count,
        classes,
        lacks,
        index,
    })
}

/// Find what an earlier daemon left; `None` when there is nothing.
pub fn adopt(run: &Path, number: u8, source: &Source) -> Result<Option<Htb>, PlaneError> {
    let file = counters(run, number);
    if !file.exists() {
        return Ok(None);
    }
    let (interface, rate) = rated(source, None)?;
    let classes = Arc::new(Mutex::new(Classes::new(&interface, major(number), file, true)));
    let Some(count) = count::adopt(run, number, source, meter(number))? else { return Ok(None) };
    let count = count.counted_by(counted(&classes));
    let former = run.join(format!("qdisc-{number}"));
    let mut plane = Htb {
        source: source.clone(),
        interface,
        number,
        rate,
        former,
        count,
        classes,
        lacks: None,
        index: 0,
    };
    if let Some(index) = rtnl::index_of(&plane.interface)
        && plane.has_ours(index)
    {
        let (wanted, longest) = plan(plane.count.books(), rate, &plane.interface)?;
        locked(&plane.classes).found(&wanted, longest)?;
        // The tree is worth more than this.
        if let Err(error) = locked(&plane.classes).limit_segments(index, rate.bytes()) {
            tracing::error!(%error, interface = plane.interface, "segments are as long as they were");
        }
        plane.index = index;
    }
    Ok(Some(plane))
}

fn no_htb(error: PlaneError) -> PlaneError {
    match error {
        PlaneError::Os { source, .. } if source.raw_os_error() == Some(libc::ENOENT) => {
            PlaneError::Unsupported("this kernel has no HTB (CONFIG_NET_SCH_HTB)".into())
        }
        other => other,
    }
}

fn is_ours(q: &Qdisc, number: u8) -> bool {
    q.kind == "htb" && q.handle == u32::from(major(number)) << 16
}

/// The classes of a tree, and the longest packet that they are made for.
fn plan(books: &Books, rate: Rate, interface: &str) -> Result<(Shapes, u32), PlaneError> {
    let longest = longest(interface)?;
    Ok((shapes(books, rate.bytes(), longest, room(rate))?, longest))
}

/// What this driver cannot do, in words.
pub(crate) fn refused(op: &Op) -> Option<String> {
    let policy = |policy: &Policy| *policy != Policy::Sfq;
    let class = |class: &Class| !matches!(class, Class::Fifo | Class::Ts);
    let why = match op {
        op if receive::of(op).is_some() => return None,
        Op::Tune { .. } | Op::NodeParam { .. } => "a link's nodes have no such tunables",
        Op::SetLimit { members_max: 1.., bytes_max: 1.., .. } => {
            "a queue of HTB's is bounded by packets or by bytes, not by both"
        }
        Op::SetPolicy { policy: p, .. } | Op::Create { kind: Kind::Scheduler(p), .. }
            if policy(p) =>
        {
            "HTB orders the children of a node in one way only (policy sfq)"
        }
        Op::SetClass { class: c, .. } | Op::Create { kind: Kind::Queue(c), .. } if class(c) => {
            "a queue of HTB's is first come, first served (class fifo); flows of one queue are told apart by the full driver only"
        }
        _ => return None,
    };
    Some(why.to_owned())
}

impl Htb {
    fn has_ours(&self, index: u32) -> bool {
        rtnl::root(index).is_ok_and(|(root, _)| root.is_some_and(|q| is_ours(&q, self.number)))
    }

    /// Classes, and what packets may be, for this rate.
    fn put_rate(&mut self) -> Result<(), PlaneError> {
        let Some(index) = rtnl::index_of(&self.interface).filter(|index| *index == self.index)
        else {
            return Ok(()); // whoever revives it tells
        };
        self.reshape()?;
        locked(&self.classes).limit_segments(index, self.rate.bytes())
    }

    /// The classes as the tree is now.
    fn reshape(&mut self) -> Result<(), PlaneError> {
        let (wanted, longest) = plan(self.count.books(), self.rate, &self.interface)?;
        let mut classes = locked(&self.classes);
        classes.put(&wanted, longest)?;
        classes.prune(&wanted)
    }

    fn with_link(&self, mut sample: Sample) -> Sample {
        let id = NodeId::unpack(sample.id);
        let classes = locked(&self.classes);
        if self.count.books().queue(id).is_ok() {
            let ((waiting, queued_bytes, dropped), (limit_packets, limit_bytes)) =
                (classes.backlog(id), classes.limit(id));
            sample.queued = waiting;
            sample.link = Some(LinkSample {
                queued_bytes,
                dropped,
                dropped_bytes: 0,
                limit_packets,
                limit_bytes,
            });
            sample.receive = self.count.meter().received(id);
        } else if id == NodeId::ROOT {
            sample.others = self.count.meter().received_else();
        }
        sample
    }
}

/// Whether it can order a queue so.
pub(crate) fn has_class(class: Class) -> bool {
    matches!(class, Class::Fifo | Class::Ts)
}

/// Whether it can order the children of a node so.
pub(crate) fn has_policy(policy: Policy) -> bool {
    policy == Policy::Sfq
}

impl Plane for Htb {
    fn info(&self) -> DriverInfo {
        let mut limits: Vec<String> =
            self.lacks.iter().map(|why| format!("the full driver cannot be used: {why}")).collect();
        limits.extend([
            "no bound on delays and no policies: HTB shares by rates, and what queues leave by rounds".to_owned(),
            "what a whole branch leaves is shared by its neighbours' queues that want, not by the weights of the branches".into(),
            format!("weights of siblings differ by {} to 1 at most, and a tree has 8 levels", shape::WEIGHT_RANGE),
            "a queue that is deleted, moved, or given weight 0 drops what waits in it; bytes dropped are not counted".into(),
        ]);
        limits.extend(self.count.meter().limits(&self.source));
        DriverInfo {
            name: "stock",
            mechanism: format!(
                "HTB on {}, {}, {}",
                self.interface,
                self.rate,
                told_apart(self.count.meter())
            ),
            version: 1,
            limits,
            outside: None,
            chcpures: false,
            cgroups: None,
        }
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        if let Some(why) = batch.ops.iter().find_map(refused) {
            return Err(PlaneError::Unsupported(why));
        }
        for op in &batch.ops {
            if let Op::Delete { id, .. } | Op::ResetCounters { id } = op {
                locked(&self.classes).read_one(*id);
            }
        }
        let after = self.count.after(batch)?;
        let present = rtnl::index_of(&self.interface) == Some(self.index);
        let made = if present { Some(plan(&after, self.rate, &self.interface)?) } else { None };
        // New classes come before the tags that name them, and old ones go after them.
        let put = made
            .as_ref()
            .map_or(Ok(()), |(wanted, longest)| locked(&self.classes).put(wanted, *longest));
        let outcomes = match put.and_then(|()| self.count.enter(batch)) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                if let Err(also) = self.reshape() {
                    tracing::error!(error = %also, interface = self.interface, "the classes are not as before");
                }
                return Err(error);
            }
        };
        for op in &batch.ops {
            if let Op::ResetCounters { id } = op {
                locked(&self.classes).reset(*id)?;
                self.count.meter_mut().reset_received(*id)?;
            }
        }
        if let Some((wanted, _)) = &made
            && let Err(error) = locked(&self.classes).prune(wanted)
        {
            tracing::error!(%error, interface = self.interface, "classes that nobody names stay");
        }
        Ok(outcomes)
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        self.count.applied_seq()
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        for id in self.count.books().draining() {
            locked(&self.classes).read_one(id);
        }
        let gone = self.count.collect_drained()?;
        if !gone.is_empty() && rtnl::index_of(&self.interface) == Some(self.index) {
            self.reshape()?;
        }
        Ok(gone)
    }

    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        locked(&self.classes).read()?;
        Ok(self.count.sample()?.into_iter().map(|sample| self.with_link(sample)).collect())
    }

    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        if self.count.books().queue(id).is_err() {
            // What a scheduler has served is what all below it have.
            let all = self.sample()?;
            let found = all.into_iter().find(|sample| sample.id == id.pack());
            return found.ok_or_else(|| PlaneError::NoNode(format!("{id:?}")));
        }
        locked(&self.classes).read_one(id);
        Ok(self.with_link(self.count.sample_one(id)?))
    }

    fn refs(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        self.references(ids)
    }

    fn health(&mut self) -> Result<Health, PlaneError> {
        let Some(index) = rtnl::index_of(&self.interface) else {
            return Ok(Health::Waiting(format!("there is no interface {} now", self.interface)));
        };
        let (root, _) =
            rtnl::root(index).map_err(os(format!("the qdisc of {}", self.interface)))?;
        match root {
            Some(q) if is_ours(&q, self.number) && index == self.index => {}
            Some(q) if q.handle != 0 && index == self.index => {
                return Ok(Health::Waiting(format!(
                    "somebody put a qdisc {} in the place of ours",
                    q.kind
                )));
            }
            _ => return Ok(Health::Detached(format!("{} was without our qdisc", self.interface))),
        }
        if longest(&self.interface)? != locked(&self.classes).longest() {
            self.reshape()?;
        }
        Ok(Health::Running)
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        let index = index_of(&self.interface)?;
        // It may be another interface of that name, with another qdisc.
        let ours = |q: &Qdisc| is_ours(q, self.number);
        write_former(&self.former, replaceable(&self.interface, index, ours)?.as_ref())?;
        let (wanted, longest) = plan(self.count.books(), self.rate, &self.interface)?;
        let mut classes = locked(&self.classes);
        classes.attach(index)?;
        classes.put(&wanted, longest)?;
        classes.limit_segments(index, self.rate.bytes())?;
        drop(classes);
        self.index = index;
        self.count.meter_mut().again(&self.source)
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        if let Some(index) = rtnl::index_of(&self.interface) {
            put_back(&self.former, &self.interface, index, |q| is_ours(q, self.number))?;
            if index == self.index {
                locked(&self.classes).release_segments(index);
            }
        }
        let _ = fs::remove_file(&self.former);
        self.count.stop()?;
        // The last, for by this file the next daemon knows that there is something to stop.
        locked(&self.classes).forget();
        Ok(())
    }

    fn backlog(&self) -> Option<Backlog> {
        // A queue counts packets (`pfifo`), or bytes (`bfifo`), never both.
        let most = u64::MAX;
        Some(Backlog {
            budget: 0,
            each: super::PACKET_EACH,
            longest: PACKET_LONGEST,
            most,
            usual: u64::MAX,
            units: u64::MAX,
        })
    }

    fn capacity(&self) -> u64 {
        self.source.promised()
    }

    fn may_have_rate(&self, rate: Option<Rate>) -> Result<(), PlaneError> {
        let mut source = self.source.clone();
        source.set_rate(rate);
        rated(&source, self.lacks.as_ref()).map(drop)
    }

    fn set_rate(&mut self, rate: Option<Rate>) -> Result<(), PlaneError> {
        let mut source = self.source.clone();
        source.set_rate(rate);
        let (_, new) = rated(&source, self.lacks.as_ref())?;
        let was = std::mem::replace(&mut self.rate, new);
        if let Err(error) = self.put_rate() {
            self.rate = was;
            if let Err(also) = self.put_rate() {
                tracing::error!(error = %also, interface = self.interface, "the classes are not as before");
            }
            return Err(error);
        }
        self.source = source;
        Ok(())
    }

    fn lacks(&self, op: &Op) -> Option<String> {
        refused(op).or_else(|| lacks_entrance(op, self.count.meter().entrance().is_some()))
    }

    fn supports_class(&self, class: Class) -> bool {
        has_class(class)
    }

    fn supports_policy(&self, policy: Policy) -> bool {
        has_policy(policy)
    }
}

impl Threads for Htb {
    fn tagged_instead(&self) -> String {
        self.count.tagged_instead()
    }

    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        self.there(queue).map(|()| Vec::new())
    }
}

impl Metered for Htb {
    fn meter(&self) -> &dyn Meter {
        self.count.meter()
    }

    fn meter_mut(&mut self) -> &mut dyn Meter {
        self.count.meter_mut()
    }

    fn there(&self, queue: NodeId) -> Result<(), PlaneError> {
        self.count.there(queue)
    }
}

tags_by_meter!(Htb);

impl Packets for Htb {
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

impl Upgrade for Htb {}
