// SPDX-License-Identifier: MIT OR Apache-2.0
//! The full driver: a block server of our own (`crates/blockd`), one process per disk, with the
//! core of `sched/` in it. It offers a block device over the file or device that it was given, and
//! goes on without us: the tree and its counters are the server's. Whose a request is, the tags'
//! programs write down before the server has it (`bpf/tag/disk.h`).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use reserv_blockd::book::text;
use reserv_blockd::wire::{self, Hello, delete, what};
use reserv_model::{
    Batch, Class, DeleteMode, DiskModel, DiskSample, Driver, Front, Name, NodeId, Op, Outcome,
    Policy, Rate, Source, TuneKey,
};

use super::above::{self, Above};
use super::server::{Files, Server, is_late, late};
use super::uevents::Uevents;
use crate::count::{Meter, Metered, Tagged, Told, tags_by_meter};
use crate::libbpf::os;
use crate::ops::{self, io_error, refusal};
use crate::{
    DriverInfo, Health, Member, Packets, Plane, PlaneError, Refs, Sample, Threads, Upgrade,
};
use reserv_facts::tree::RsBatch;

/// Where disks have their names: links to the devices that the servers offer.
const NAMES: &str = "/dev/reserv";

/// Of a cap, where nothing is said: what may come at once.
const CAP_BURST_NS: u64 = 20_000_000;
const CAP_BURST_MIN: u64 = 4096;

/// The driver. Dropping it leaves the server running.
#[derive(Debug)]
pub struct Disk {
    path: String,
    depth: u32,
    floor: Option<Rate>,
    front: Front,
    model: Option<DiskModel>,
    server: Server,
    link: PathBuf,
    meter: Tagged,
    /// What is stacked above our device, as the tags were told; and what says that it has changed.
    above: Option<Above>,
    changes: Option<Uevents>,
    /// Why requests have no owners; empty: they have.
    ownerless: String,
}

/// What a source says of a disk.
struct Parts<'a> {
    path: &'a str,
    depth: u32,
    floor: Option<Rate>,
    front: Front,
    model: Option<DiskModel>,
}

fn parts(source: &Source) -> Result<Parts<'_>, PlaneError> {
    match source {
        Source::Disk { path, depth, floor, front, model, .. } => {
            Ok(Parts { path, depth: *depth, floor: *floor, front: *front, model: *model })
        }
        other => Err(PlaneError::Invalid(format!("{other} is not a disk that is scheduled"))),
    }
}

/// The driver of a disk whose server is there; nothing is told to it yet.
fn new(
    number: u8,
    name: &Name,
    source: &Source,
    server: Server,
    hello: &Hello,
) -> Result<Disk, PlaneError> {
    let Parts { path, depth, floor, front, model } = parts(source)?;
    Ok(Disk {
        path: path.to_owned(),
        depth,
        floor,
        front,
        model,
        server,
        link: Path::new(NAMES).join(name.as_str()),
        meter: Tagged::new(number).with_disk(hello.dev),
        above: None,
        changes: Uevents::listen(),
        ownerless: String::new(),
    })
}

/// Take a disk, with a tree of root and q0.
pub fn start(run: &Path, number: u8, name: &Name, source: &Source) -> Result<Disk, PlaneError> {
    let Parts { path, front, model, .. } = parts(source)?;
    fs::create_dir_all(run).map_err(os(format!("make {}", run.display())))?;
    let link = Path::new(NAMES).join(name.as_str());
    if let Ok(to) = fs::read_link(&link) {
        // Who died with its server leaves a link that leads to a device which is nobody's, or
        // another's.
        tracing::warn!(link = %link.display(), to = %to.display(), "replacing a link that somebody left");
    }
    let (server, hello) = Server::start(Files::new(run, number), path, front, model)?;
    let mut plane = new(number, name, source, server, &hello)?;
    let begun = plane.begin(source, &hello);
    if begun.is_err()
        && let Err(error) = plane.stop()
    {
        tracing::error!(%error, path, "the disk was not given back");
    }
    begun.map(|()| plane)
}

/// Find what an earlier daemon left; `None` when there is nothing.
pub fn adopt(
    run: &Path,
    number: u8,
    name: &Name,
    source: &Source,
) -> Result<Option<Disk>, PlaneError> {
    let Parts { path, model, .. } = parts(source)?;
    let Some(server) = Server::find(Files::new(run, number), path, model)? else { return Ok(None) };
    let hello = server.hello()?;
    let mut plane = new(number, name, source, server, &hello)?;
    let told = plane.nodes()?.iter().map(told).collect::<Vec<_>>();
    plane.meter.begin(source, &told, false)?;
    plane.ownerless =
        plane.meter.owners().err().map_or_else(String::new, |error| error.to_string());
    plane.look_above();
    Ok(Some(plane))
}

fn told(node: &wire::Node) -> Told {
    Told { id: NodeId::unpack(node.id), queue: node.kind == wire::QUEUE, dying: node.dying != 0 }
}

/// The nodes in an answer.
fn nodes_of(body: &[u8]) -> Vec<wire::Node> {
    // SAFETY: plain numbers.
    body.chunks_exact(size_of::<wire::Node>())
        .filter_map(|part| unsafe { wire::of_bytes(part) })
        .collect()
}

impl Disk {
    fn begin(&mut self, source: &Source, hello: &Hello) -> Result<(), PlaneError> {
        if self.depth != 0 {
            self.simple(what::DEPTH, self.depth.into(), &[], "the depth")?;
        }
        let told = self.nodes()?.iter().map(told).collect::<Vec<_>>();
        self.meter.begin(source, &told, true)?;
        match self.meter.owners() {
            Ok((path, first)) => {
                self.simple(what::OWNERS, first, path.as_os_str().as_bytes(), "the owners")?;
            }
            Err(error) => {
                tracing::warn!(%error, "every request is q0's");
                self.ownerless = error.to_string();
            }
        }
        self.look_above();
        fs::create_dir_all(NAMES).map_err(os(format!("make {NAMES}")))?;
        let _ = fs::remove_file(&self.link);
        let to = format!("../{}", text(&hello.name));
        std::os::unix::fs::symlink(to, &self.link)
            .map_err(os(format!("make {}", self.link.display())))
    }

    /// Tells the tags what is stacked above our device by now. What they cannot be told is said
    /// once, in the log: those files have no tags.
    fn look_above(&mut self) {
        if !self.ownerless.is_empty() {
            return;
        }
        let Ok(hello) = self.server.is_there() else { return };
        let found = above::find(Path::new("/sys"), text(&hello.name).as_str(), &above::backing);
        if self.above.as_ref() == Some(&found) {
            return;
        }
        if let Err(error) = self.meter.set_above(&found) {
            tracing::warn!(%error, disk = %self.link.display(), "what is stacked above is not known to the tags");
        }
        self.above = Some(found);
    }

    /// The same, where the kernel has said that block devices have come, gone or changed.
    fn follow_above(&mut self) {
        if self.changes.as_ref().is_some_and(Uevents::any) {
            self.look_above();
        }
    }

    /// A question without structures in its answer.
    fn simple(&self, what: u32, a: u64, body: &[u8], words: &str) -> Result<(), PlaneError> {
        let (answer, said) = self.server.ask(what, a, body)?;
        match -answer.answer {
            0 => Ok(()),
            libc::EBUSY => Err(PlaneError::Busy(String::from_utf8_lossy(&said).into_owned())),
            errno => Err(refusal(errno, words.to_owned())),
        }
    }

    fn nodes(&self) -> Result<Vec<wire::Node>, PlaneError> {
        let mut nodes = Vec::new();
        let mut first = 0;
        loop {
            let (answer, body) = self.server.ask(what::SAMPLE, first, &[])?;
            if answer.answer != 0 {
                return Err(os("sample the tree")(io_error(answer.answer)));
            }
            nodes.extend(nodes_of(&body));
            if answer.a <= first {
                return Ok(nodes);
            }
            first = answer.a;
        }
    }

    fn one(&self, id: NodeId) -> Result<wire::Node, PlaneError> {
        let (answer, body) = self.server.ask(what::SAMPLE_ONE, id.pack(), &[])?;
        match (answer.answer, nodes_of(&body).first()) {
            (0, Some(node)) => Ok(*node),
            (0, None) => {
                Err(PlaneError::Invalid("the block server gave no sensible answer".into()))
            }
            (errno, _) => Err(refusal(-errno, format!("{id:?}"))),
        }
    }

    fn queue(&self, id: NodeId) -> Result<wire::Node, PlaneError> {
        let node = self.one(id)?;
        if node.kind == wire::QUEUE {
            Ok(node)
        } else {
            Err(PlaneError::Invalid("a scheduler node is no queue".into()))
        }
    }

    fn sample_of(&self, node: &wire::Node) -> Sample {
        let id = NodeId::unpack(node.id);
        let queue = node.kind == wire::QUEUE;
        let members =
            if queue { self.meter.refs(id).map_or(0, |refs| refs.descriptors) } else { 0 };
        Sample {
            service_ns: node.service,
            service_since_reset_ns: node.service.wrapping_sub(node.service_base),
            served: node.served,
            queued: node.queued,
            running: node.running,
            members: u32::try_from(members).unwrap_or(u32::MAX),
            draining: node.dying != 0,
            disk: queue.then_some(DiskSample { queued_bytes: node.bytes }),
            ..Sample::new(id)
        }
    }

    /// The batch as the core reads it. What a disk cannot do is refused before anything happens.
    fn encode(&self, batch: &Batch) -> Result<RsBatch, PlaneError> {
        if let Some(why) = batch.ops.iter().find_map(refused) {
            return Err(PlaneError::Unsupported(why));
        }
        let mut encoded = ops::encoded(batch)?;
        for (slot, edit) in encoded.op.iter_mut().zip(&batch.ops) {
            match *edit {
                // In time at its rate, as everywhere; the core counts in bytes. A request is let go
                // whole.
                Op::SetCap { cap: Some(cap), .. } => {
                    let ns = if cap.burst_ns > 0 { cap.burst_ns } else { CAP_BURST_NS };
                    let burst = u128::from(cap.per_second()) * u128::from(ns) / 1_000_000_000;
                    slot.b = u64::try_from(burst).unwrap_or(u64::MAX).max(CAP_BURST_MIN);
                }
                // A queue with descriptors is kept (drain), or refused; requests go to q0 with the
                // node.
                Op::Delete { id, mode } => {
                    let tagged = self.meter.refs(id).map_or(0, |refs| refs.descriptors);
                    if mode == DeleteMode::Refuse && tagged > 0 {
                        return Err(PlaneError::Busy(format!(
                            "{tagged} open files are tagged with it"
                        )));
                    }
                    let drains = mode == DeleteMode::Drain && tagged > 0;
                    slot.a = if drains { delete::DRAIN } else { delete::NOW };
                }
                _ => {}
            }
        }
        Ok(encoded)
    }

    /// The batch is told once: if the worker dies over it, its successor says whether it is in
    /// effect.
    fn tell(&self, batch: &Batch, encoded: &RsBatch) -> Result<(i32, RsBatch), PlaneError> {
        for _ in 0..3 {
            match self.server.ask_once(what::EDIT, 0, encoded.bytes()) {
                Ok((answer, body)) => {
                    let done = RsBatch::from_bytes(&body);
                    return done.map(|done| (answer.answer, done)).ok_or_else(|| {
                        PlaneError::Invalid("the block server gave no sensible answer".into())
                    });
                }
                // It reads it too late to do it.
                Err(error) if is_late(&error) => return Err(late()),
                Err(_) => {}
            }
            if batch.seq != 0 && self.server.hello()?.seq == batch.seq {
                let mut done = ops::encoded(batch)?;
                for (slot, edit) in done.op.iter_mut().zip(&batch.ops) {
                    if let Op::Delete { id, .. } = *edit
                        && self.one(id).is_ok()
                    {
                        slot.answer = wire::DRAINING;
                    }
                }
                return Ok((0, done));
            }
        }
        Err(os("tell the block server")(io::ErrorKind::NotConnected.into()))
    }
}

/// What is to be said of data that are copied, if there are any.
fn copied(copies: &wire::Copies, why: &str) -> Option<String> {
    if !why.is_empty() {
        return Some(format!("data are copied: {why}"));
    }
    (copies.copied > 0).then(|| {
        format!(
            "data of {} of {} requests were copied: {} could not be registered, of {} the disk below refused the memory",
            copies.copied, copies.moved, copies.unregistered, copies.refused
        )
    })
}

/// Why it does not carry an op out.
pub(crate) fn refused(op: &Op) -> Option<String> {
    match op {
        Op::Tune {
            key:
                TuneKey::Batch
                | TuneKey::Anticipate
                | TuneKey::Cost
                | TuneKey::Deadline
                | TuneKey::Round,
            ..
        } => None,
        Op::Tune { key, .. } | Op::NodeParam { key, .. } => {
            Some(format!("a disk's nodes have no {}: what is served is not cut up", key.word()))
        }
        Op::SetLimit { members_max: 1.., .. } | Op::SetLimit { bytes_max: 1.., .. } => {
            Some("a disk's queue has no limit: requests wait".into())
        }
        _ => None,
    }
}

/// Whether it can order a queue so.
pub(crate) fn has_class(class: Class) -> bool {
    // First come, first served, whatever threads would do there; or by place.
    class.of_disks() || matches!(class, Class::Fifo | Class::Ts)
}

/// Whether it can order the children of a node so.
pub(crate) fn has_policy(policy: Policy) -> bool {
    // The others' tunables are times, and work here is bytes.
    matches!(policy, Policy::Sfq | Policy::Wf2qPlus | Policy::Yfq | Policy::Cello)
}

impl Plane for Disk {
    fn capacity(&self) -> u64 {
        self.floor.map_or(0, Rate::bytes)
    }

    fn info(&self) -> DriverInfo {
        let mut limits = self.meter.limits(&Source::Disk {
            path: self.path.clone(),
            depth: self.depth,
            floor: self.floor,
            front: self.front,
            model: self.model,
            driver: Driver::Full,
        });
        if !self.ownerless.is_empty() {
            limits.push(format!("requests have no owners, all are q0's: {}", self.ownerless));
        }
        let server = match self.server.is_there() {
            Ok(hello) => {
                if hello.restarts > 0 {
                    limits.push(format!("the server was started again {} times", hello.restarts));
                }
                if hello.strays > 0 {
                    limits.push(format!(
                        "{} requests came without an owner and were q0's",
                        hello.strays
                    ));
                }
                limits.extend(self.server.copies().and_then(|(copies, why)| copied(&copies, &why)));
                let (device, front) = (text(&hello.name), text(&hello.front));
                format!(
                    "{} is /dev/{device} ({front}){}, {} requests at once",
                    self.link.display(),
                    self.model
                        .map_or_else(String::new, |model| format!(", as slow as a {model} disk")),
                    hello.depth
                )
            }
            Err(_) => "which does not answer".to_owned(),
        };
        DriverInfo {
            name: "full",
            mechanism: format!(
                "block server on {}, {server}, {}",
                self.path,
                self.meter.mechanism()
            ),
            version: wire::VERSION,
            limits,
            outside: None,
            chcpures: false,
            cgroups: None,
        }
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        let encoded = self.encode(batch)?;
        self.meter.announce(batch)?;
        let (answer, done) = match self.tell(batch, &encoded) {
            Err(error) if error.is_late() => {
                for op in &batch.ops {
                    if let Op::Create { id, .. } = *op {
                        self.meter.removed(id)?;
                    }
                }
                return Err(error);
            }
            told => told?,
        };
        if answer < 0 {
            for op in &batch.ops {
                if let Op::Create { id, .. } = *op
                    && self.one(id).is_err()
                {
                    self.meter.removed(id)?;
                }
            }
            return Err(ops::refused(&done, batch, answer, || self.applied_seq()));
        }
        self.meter.applied(batch, &done)
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        Ok(Some(self.server.hello()?.seq))
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        let mut gone = Vec::new();
        // The supervisor asks often: without a server there is nothing to collect.
        if self.server.is_there().is_err() {
            return Ok(gone);
        }
        for node in self.nodes()?.iter().filter(|node| node.dying != 0 && node.queued == 0) {
            let id = NodeId::unpack(node.id);
            if self.meter.refs(id)?.descriptors > 0 {
                continue;
            }
            let (answer, _) = self.server.ask(what::COLLECT, id.pack(), &[])?;
            match -answer.answer {
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
        self.follow_above();
        let ended = self.server.has_ended();
        Ok(match self.server.is_there() {
            Ok(hello) if hello.poison == 0 => Health::Running,
            Ok(hello) => Health::Detached(format!(
                "the tree is inconsistent: reason {} at line {}",
                hello.poison >> 32,
                hello.poison & 0xffff_ffff
            )),
            Err(_) if !ended && self.server.is_kept() => Health::Running,
            Err(_) if self.server.may_recover() => Health::Detached(
                "the block server and its keeper were killed; requests wait".into(),
            ),
            Err(error) => Health::Waiting(format!(
                "the block server is gone ({error}): take the disk down and bring it up again"
            )),
        })
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        if self.server.may_recover() {
            return self.server.recover(&self.path, self.model);
        }
        // A worker whose tree is inconsistent ends by itself, and its successor plants the tree
        // anew.
        self.server.hello().map(drop)
    }

    fn may_stop(&self) -> Result<(), PlaneError> {
        if self.server.is_there().is_err() && !self.server.is_kept() {
            return Ok(());
        }
        self.simple(what::STOP, 1, &[], &self.path)
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        if self.server.is_there().is_ok() || self.server.is_kept() {
            self.simple(what::STOP, 0, &[], &self.path)?;
            self.server.wait();
        } else {
            self.server.clean();
        }
        let _ = fs::remove_file(&self.link);
        let _ = fs::remove_dir(NAMES);
        self.meter.stop()
    }

    fn lacks(&self, op: &Op) -> Option<String> {
        refused(op)
    }

    fn supports_class(&self, class: Class) -> bool {
        has_class(class)
    }

    fn supports_policy(&self, policy: Policy) -> bool {
        has_policy(policy)
    }
}

impl Threads for Disk {
    fn tagged_instead(&self) -> String {
        "open files are tagged, and processes by their lists".into()
    }

    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        self.there(queue).map(|()| Vec::new())
    }
}

impl Metered for Disk {
    fn meter(&self) -> &dyn Meter {
        &self.meter
    }

    fn meter_mut(&mut self) -> &mut dyn Meter {
        &mut self.meter
    }

    fn there(&self, queue: NodeId) -> Result<(), PlaneError> {
        self.queue(queue).map(drop)
    }

    fn about_to_tag(&mut self) {
        self.follow_above();
    }
}

tags_by_meter!(Disk);

impl Packets for Disk {}

impl Upgrade for Disk {}
