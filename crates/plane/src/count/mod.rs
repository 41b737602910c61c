// SPDX-License-Identifier: MIT OR Apache-2.0
//! A resource that is counted and not scheduled: it keeps a tree of queues, and per queue the
//! operations and bytes that its [`Meter`] reports. It promises nothing, and says so in its status.
//!
//! The tree outlives the daemon in a file of the run-time directory (a record per batch, written at
//! once: whole or absent); counters, default lists and references are the meter's, which outlives
//! it in the kernel.

mod books;
mod fake;
mod meter;
mod metered;
mod tagged;

use std::io;
use std::mem;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use reserv_model::{
    ArrivalSample, Batch, Class, Driver, Dropper, NodeId, Op, Outcome, PacketRules, Policy, Source,
};
use serde::{Deserialize, Serialize};

use crate::journal::{Compaction, Journal};
use crate::{
    DriverInfo, Health, Member, Packets, Plane, PlaneError, Refs, Sample, Threads, Upgrade, receive,
};

use books::{Before, Entry};
pub use books::{Books, Seen, Usage};
pub use fake::Fake;
pub(crate) use meter::lacks_entrance;
pub use meter::{Meter, Told};
pub(crate) use metered::{Metered, tags_by_meter};
pub use tagged::Tagged;

/// One record of the file.
#[derive(Serialize, Deserialize)]
enum Change {
    /// All of it.
    Whole(Books),
    /// A batch that was accepted, with what was seen of the queues that it depends on.
    Batch { batch: Batch, seen: Vec<(NodeId, Seen)> },
    /// Draining queues that have gone.
    Gone { ids: Vec<(NodeId, Usage)> },
}

/// What was done through a queue since it was made.
pub(crate) type Reads = Box<dyn Fn(NodeId) -> Usage + Send>;

/// See the head of this file.
pub struct Count {
    source: Source,
    file: Journal,
    books: Books,
    meter: Box<dyn Meter>,
    /// What knows how much was done, where the meter does not.
    reads: Option<Reads>,
    /// When the file is written anew.
    compaction: Compaction,
}

fn tried(source: io::Error) -> PlaneError {
    PlaneError::Os { context: "the counting plane's file".into(), source }
}

fn told(id: NodeId, node: &Entry) -> Told {
    Told { id, queue: node.kind.is_queue(), dying: node.draining }
}

fn place(run: &Path, number: u8) -> PathBuf {
    run.join(format!("count-{number}"))
}

/// Whether what is to be counted is there.
pub fn probe(source: &Source) -> Result<(), PlaneError> {
    match source {
        Source::File(path) if Path::new(path).exists() => Ok(()),
        Source::File(_) => Err(PlaneError::Invalid(format!("{source}: no such path"))),
        Source::Disk { path, .. } => match std::fs::metadata(path) {
            Ok(found) if found.is_file() || found.file_type().is_block_device() => Ok(()),
            Ok(_) => {
                Err(PlaneError::Invalid(format!("{source}: neither a file nor a block device")))
            }
            Err(why) => Err(PlaneError::Invalid(format!("{source}: {why}"))),
        },
        Source::Net(name) | Source::Link { interface: name, .. } => crate::net::index_of(name)
            .map(drop)
            .map_err(|_| PlaneError::Invalid(format!("{source}: no such interface")))
            .and_then(|()| match source {
                Source::Link { driver: Driver::Stock, .. } => {
                    crate::net::stock::rated(source, None).map(drop)
                }
                _ => Ok(()),
            }),
    }
}

/// Why it does not carry an op out.
pub(crate) fn refused(op: &Op) -> Option<String> {
    let what = match op {
        Op::SetCap { cap: Some(_), .. } => "caps",
        Op::SetLimit { members_max: 1.., .. } | Op::SetLimit { bytes_max: 1.., .. } => "limits",
        _ => return None,
    };
    Some(format!("a counting resource schedules nothing, so it has no {what}"))
}

/// Begins with root and q0.
pub fn start(
    run: &Path,
    number: u8,
    source: &Source,
    meter: Box<dyn Meter>,
) -> Result<Count, PlaneError> {
    probe(source)?;
    let (file, _) = Journal::open(&place(run, number)).map_err(tried)?;
    let mut plane = Count::over(source, file, Books::default(), meter);
    // The file first: what the meter holds is found by it.
    plane.compact()?;
    if let Err(error) = plane.begin(true) {
        let _ = plane.file.remove();
        return Err(error);
    }
    Ok(plane)
}

/// Finds what an earlier daemon left.
pub fn adopt(
    run: &Path,
    number: u8,
    source: &Source,
    meter: Box<dyn Meter>,
) -> Result<Option<Count>, PlaneError> {
    let path = place(run, number);
    if !path.exists() {
        return Ok(None);
    }
    let (file, records) = Journal::open(&path).map_err(tried)?;
    let mut books = Books::default();
    for record in records {
        match serde_json::from_slice(&record).map_err(|e| tried(e.into()))? {
            Change::Whole(whole) => books = whole,
            Change::Batch { batch, seen } => {
                let mut see = |id| {
                    let found = seen.iter().find(|(seen, _)| *seen == id);
                    found
                        .map(|(_, seen)| *seen)
                        .ok_or_else(|| PlaneError::NoNode("not seen".into()))
                };
                books.apply(&batch, &mut see).map(drop)?;
            }
            Change::Gone { ids } => ids.into_iter().for_each(|(id, usage)| books.gone(id, usage)),
        }
    }
    let mut plane = Count::over(source, file, books, meter);
    plane.compact()?;
    plane.begin(false)?;
    Ok(Some(plane))
}

impl Count {
    fn over(source: &Source, file: Journal, books: Books, meter: Box<dyn Meter>) -> Self {
        let (source, compaction) = (source.clone(), Compaction::default());
        Self { source, file, books, meter, reads: None, compaction }
    }

    fn begin(&mut self, fresh: bool) -> Result<(), PlaneError> {
        let nodes: Vec<Told> = self.books.iter().map(|(id, node)| told(id, node)).collect();
        self.meter.begin(&self.source, &nodes, fresh)
    }

    /// It is asked for usage instead of the meter.
    pub(crate) fn counted_by(self, reads: Reads) -> Self {
        Self { reads: Some(reads), ..self }
    }

    fn usage(&self, queue: NodeId) -> Result<Usage, PlaneError> {
        self.reads.as_ref().map_or_else(|| self.meter.usage(queue), |reads| Ok(reads(queue)))
    }

    /// Tells the meter of the nodes that these ops have made, or will not have made when the batch
    /// is put back.
    fn tell(&mut self, made: &[NodeId]) -> Result<(), PlaneError> {
        for id in made {
            match self.books.get(*id).map(|node| told(*id, node)) {
                Ok(told) => self.meter.node(told)?,
                Err(_) => self.meter.removed(*id)?,
            }
        }
        Ok(())
    }

    fn put_back(&mut self, before: Before, made: &[NodeId]) {
        self.books.put_back(before);
        if let Err(error) = self.tell(made) {
            tracing::error!(%error, "the meter still knows nodes that were not made");
        }
    }

    fn append(&mut self, change: &Change) -> Result<(), PlaneError> {
        let bytes = serde_json::to_vec(change).map_err(|e| tried(e.into()))?;
        self.file.append(&bytes).map_err(tried)
    }

    fn compact(&mut self) -> Result<(), PlaneError> {
        let whole =
            serde_json::to_vec(&Change::Whole(self.books.clone())).map_err(|e| tried(e.into()))?;
        self.file.replace(&whole).map_err(tried)?;
        self.compaction.done(self.file.len());
        Ok(())
    }

    fn compact_when_long(&mut self) {
        let now = Instant::now();
        if self.compaction.is_due(self.file.len(), now)
            && let Err(error) = self.compact()
        {
            self.compaction.failed(now);
            tracing::error!(%error, "the counting plane's file was not written anew");
        }
    }

    /// The tree.
    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    /// The tree as it will be after a batch.
    pub(crate) fn after(&self, batch: &Batch) -> Result<Books, PlaneError> {
        let mut books = self.books.clone();
        let mut see =
            |id| Ok(Seen { busy: self.meter.refs(id)?.tags() > 0, usage: Usage::default() });
        books.apply(batch, &mut see)?;
        Ok(books)
    }

    /// A batch into books, file and meter, whole or not at all.
    pub(crate) fn enter(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        let mut seen = Vec::new();
        let mut books = mem::take(&mut self.books);
        let mut see = |id| {
            let now = Seen { busy: self.meter.refs(id)?.tags() > 0, usage: self.usage(id)? };
            seen.push((id, now));
            Ok(now)
        };
        let applied = books.apply(batch, &mut see);
        self.books = books;
        let (outcomes, before) = applied?;
        let touched = |made: bool| -> Vec<NodeId> {
            let of = |op: &Op| match *op {
                Op::Create { id, .. } if made => Some(id),
                Op::Delete { id, .. } if !made => Some(id),
                _ => None,
            };
            batch.ops.iter().filter_map(of).collect()
        };
        // New nodes can be tagged with before the file knows them, and old ones until it knows of
        // their end: whenever the daemon dies, no tag that was answered for is lost.
        let made = touched(true);
        if let Err(error) = self.tell(&made) {
            self.put_back(before, &made);
            return Err(error);
        }
        let entries: Vec<_> = batch.ops.iter().filter_map(receive::of).collect();
        let former = match self.meter.let_in(&entries) {
            Ok(former) => former,
            Err(error) => {
                self.put_back(before, &made);
                return Err(error);
            }
        };
        if let Err(error) = self.append(&Change::Batch { batch: batch.clone(), seen }) {
            // What the file does not know never happened.
            self.meter.let_back(&former);
            self.put_back(before, &made);
            return Err(error);
        }
        self.tell(&touched(false))?;
        self.compact_when_long();
        Ok(outcomes)
    }

    fn sample_of(&self, id: NodeId) -> Result<Sample, PlaneError> {
        let node = self.books.get(id)?;
        let mut sample = Sample { draining: node.draining, ..Sample::new(id) };
        if node.kind.is_queue() {
            let usage = self.usage(id)?;
            let since = usage.since(node.usage);
            sample.service_ns = usage.bytes;
            sample.served = since.operations;
            sample.service_since_reset_ns = since.bytes;
            sample.members = u32::try_from(self.meter.refs(id)?.tags()).unwrap_or(u32::MAX);
        } else {
            sample.service_ns = node.usage.bytes;
        }
        Ok(sample)
    }
}

impl Plane for Count {
    /// Of what is counted nothing; what stands for a link in tests promises what the link would.
    fn capacity(&self) -> u64 {
        self.source.promised()
    }

    /// Likewise.
    fn may_have_rate(&self, _: Option<reserv_model::Rate>) -> Result<(), PlaneError> {
        Ok(())
    }

    fn set_rate(&mut self, rate: Option<reserv_model::Rate>) -> Result<(), PlaneError> {
        self.source.set_rate(rate);
        Ok(())
    }

    fn info(&self) -> DriverInfo {
        let mut limits =
            vec!["it counts and schedules nothing: shares and minimums promise nothing".to_owned()];
        limits.extend(self.meter.limits(&self.source));
        DriverInfo {
            name: "count",
            mechanism: format!("{}, {}", self.source, self.meter.mechanism()),
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
        self.enter(batch)
    }

    fn lacks(&self, op: &Op) -> Option<String> {
        refused(op).or_else(|| lacks_entrance(op, self.meter.entrance().is_some()))
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        Ok(Some(self.books.seq))
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        let mut ids = Vec::new();
        for id in self.books.draining() {
            if self.meter.refs(id)?.tags() == 0 {
                ids.push((id, self.usage(id)?));
            }
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.append(&Change::Gone { ids: ids.clone() })?;
        for (id, usage) in &ids {
            self.books.gone(*id, *usage);
            self.meter.removed(*id)?;
        }
        Ok(ids.into_iter().map(|(id, _)| id).collect())
    }

    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        let mut samples =
            self.books.iter().map(|(id, _)| self.sample_of(id)).collect::<Result<Vec<_>, _>>()?;
        // Children before parents, whatever their indices: by what is left above each.
        let at: std::collections::BTreeMap<u32, usize> =
            samples.iter().enumerate().map(|(i, s)| (NodeId::unpack(s.id).index, i)).collect();
        for (id, node) in self.books.iter().filter(|(id, _)| *id != NodeId::ROOT) {
            // A queue's own bytes, or what queues that are gone have counted below a scheduler.
            let own = if node.kind.is_queue() {
                samples[at[&id.index]].service_ns
            } else {
                node.usage.bytes
            };
            let mut up = node.parent;
            loop {
                samples[at[&up]].service_ns = samples[at[&up]].service_ns.wrapping_add(own);
                if up == NodeId::ROOT.index {
                    break;
                }
                up = self.books.parent(up);
            }
        }
        Ok(samples)
    }

    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        self.sample_of(id)
    }

    fn refs(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        self.references(ids)
    }

    fn health(&mut self) -> Result<Health, PlaneError> {
        Ok(Health::Running)
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        self.meter.stop()?;
        self.file.remove().map_err(tried)
    }

    fn supports_class(&self, _class: Class) -> bool {
        true
    }

    fn supports_policy(&self, _policy: Policy) -> bool {
        true
    }
}

impl Threads for Count {
    fn tagged_instead(&self) -> String {
        format!("{} are tagged", self.source.kind().tagged())
    }

    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        self.there(queue).map(|()| Vec::new())
    }
}

impl Metered for Count {
    fn meter(&self) -> &dyn Meter {
        &*self.meter
    }

    fn meter_mut(&mut self) -> &mut dyn Meter {
        &mut *self.meter
    }

    fn there(&self, queue: NodeId) -> Result<(), PlaneError> {
        self.books.queue(queue).map(drop)
    }
}

tags_by_meter!(Count);

impl Packets for Count {
    fn set_packet_rules(&mut self, rules: &PacketRules) -> Result<(), PlaneError> {
        self.meter_mut().set_packet_rules(rules)
    }

    fn droppers(&self, queue: NodeId) -> Result<Vec<Dropper>, PlaneError> {
        self.meter().droppers(queue)
    }

    fn arrivals(&self) -> Vec<ArrivalSample> {
        self.meter().arrivals()
    }
}

impl Upgrade for Count {}
