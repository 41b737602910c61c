// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meter of real resources: tags and counters are the kernel's ([`crate::tag`]). Where the
//! kernel cannot tag what the resource consists of, nothing is tagged, all counters stay 0, and the
//! limits say why.

use std::collections::BTreeMap;
use std::fs;
use std::mem;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

use reserv_model::{
    ArrivalSample, Batch, Dropper, NodeId, NodePath, Op, Outcome, PacketRules, Receive,
    ReceiveOthers, ReceiveSample, Source, UseRule,
};

use super::{Meter, Told, Usage};
use crate::net::threads;
use crate::ops;
use crate::receive::{self, Entrance, Set};
use crate::tag::{self, Mechanism, NodeInfo, Object, Tags};
use crate::{Defaults, DescriptorTag, Holders, List, PlaneError, Refs};
use reserv_facts::tree::RsBatch;

/// See the head of this file.
#[derive(Debug)]
pub struct Tagged {
    number: u8,
    /// Of an interface that HTB schedules: the upper half of its handle; else 0.
    htb: u16,
    /// Of a disk that is scheduled: the device that it offers.
    dev: u64,
    /// Or why there are none.
    tags: Result<Tags, String>,
    limits: Vec<String>,
    /// Of a link whose packets are told apart as they come in.
    entrance: Option<Entrance>,
    /// Of a link whose packets are processed by threads: their queue of the CPU.
    received_in: Option<NodePath>,
}

fn invalid(why: String) -> PlaneError {
    PlaneError::Invalid(why)
}

/// What a source is, to the tags; a disk that is scheduled offers `dev`.
fn object(source: &Source, dev: u64) -> Result<Object, PlaneError> {
    match source {
        Source::Disk { .. } => Ok(Object::Files { dev }),
        Source::File(path) => {
            let found = fs::metadata(path).map_err(|e| invalid(format!("{source}: {e}")))?;
            let device = found.file_type().is_block_device();
            Ok(Object::Files { dev: if device { found.rdev() } else { found.dev() } })
        }
        Source::Net(name) | Source::Link { interface: name, .. } => {
            let index = crate::net::index_of(name)?;
            let netns = tag::netns_cookie().map_err(|source| PlaneError::Os {
                context: "the network name space".into(),
                source,
            })?;
            Ok(Object::Interface { index, netns })
        }
    }
}

const NOT_TOLD_APART: &str = "what comes in is not told apart now";

/// A limit of a link that rules about who comes name, and that has no entrance.
const NOT_ASKED: &str = "rules about who comes (from) hold at an entrance: reserv up --receive";

/// A limit of a link whose entrance is not to be had.
fn not_told_apart(error: &PlaneError) -> String {
    format!("{NOT_TOLD_APART}: {}", error.to_string().lines().next().unwrap_or_default())
}

/// A node that is not there is no error for who takes it away.
fn gone(result: Result<(), PlaneError>) -> Result<(), PlaneError> {
    match result {
        Err(PlaneError::NoNode(_)) => Ok(()),
        other => other,
    }
}

impl Tagged {
    /// Of the resource with this number.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self {
            number,
            htb: 0,
            dev: 0,
            tags: Err(String::new()),
            limits: Vec::new(),
            entrance: None,
            received_in: None,
        }
    }

    /// For planes whose tree is the core's: nodes that a batch makes are told before it, those that
    /// it takes away after it ([`Self::applied`]); so a death in between leaves one too many here.
    pub(crate) fn announce(&mut self, batch: &Batch) -> Result<(), PlaneError> {
        for op in &batch.ops {
            if let Op::Create { id, kind, .. } = *op {
                self.node(Told { id, queue: kind.is_queue(), dying: false })?;
            }
        }
        Ok(())
    }

    /// The batch is in effect, and `done` has the core's answers.
    pub(crate) fn applied(
        &mut self,
        batch: &Batch,
        done: &RsBatch,
    ) -> Result<Vec<Outcome>, PlaneError> {
        let mut outcomes = Vec::with_capacity(batch.ops.len());
        for (edit, slot) in batch.ops.iter().zip(&done.op) {
            let outcome = ops::outcome(slot);
            match *edit {
                Op::Delete { id, .. } if outcome == Outcome::Draining => {
                    self.node(Told { id, queue: true, dying: true })?;
                }
                Op::Delete { id, .. } => self.removed(id)?,
                Op::ResetCounters { id } => self.reset_received(id)?,
                _ => {}
            }
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// Of an interface that HTB schedules: `htb` is the upper half of its handle.
    #[must_use]
    pub fn with_htb(self, htb: u16) -> Self {
        let mut this = self;
        this.htb = htb;
        this
    }

    /// Of a disk that is scheduled and offers this device (number as the C library packs it).
    #[must_use]
    pub fn with_disk(self, dev: u64) -> Self {
        let mut this = self;
        this.dev = dev;
        this
    }

    /// Has the owners of the disk's requests written down. Answers the pinned table, and the first
    /// place of ours in it.
    pub fn owners(&self) -> Result<(PathBuf, u64), PlaneError> {
        match &self.tags {
            Ok(tags) => tags.attach_disk(self.number, self.dev),
            Err(why) => Err(PlaneError::Unsupported(why.clone())),
        }
    }

    /// What is stacked above the disk: [`Tags::set_above`].
    pub fn set_above(&self, devices: &BTreeMap<u64, bool>) -> Result<(), PlaneError> {
        self.tags().map_or(Ok(()), |tags| tags.set_above(self.number, devices))
    }

    /// The resource in the kernel, as these nodes say; `None`: with those that it has.
    fn attach(
        &self,
        tags: &Tags,
        source: &Source,
        nodes: Option<&[Told]>,
        fresh: bool,
    ) -> Result<(), PlaneError> {
        // What was found attached stays: the path may lead elsewhere by now.
        if fresh || !tags.is_attached(self.number)? {
            self.take(tags, source)?;
        }
        let Some(nodes) = nodes else { return Ok(()) };
        for id in tags.nodes(self.number)? {
            if fresh || nodes.iter().all(|told| told.id != id) {
                self.forget(tags, id)?;
            }
        }
        nodes.iter().try_for_each(|told| self.tell(tags, *told))
    }

    /// The entrance of a link that is to have one. One that an earlier daemon made goes on.
    fn enter(
        &self,
        tags: &Tags,
        source: &Source,
        nodes: Option<&[Told]>,
        fresh: bool,
    ) -> Result<Option<Entrance>, PlaneError> {
        let Source::Link { interface, receive: Some(at), .. } = source else {
            return receive::clear(self.number).map(|()| None);
        };
        let found = if fresh { None } else { Entrance::adopt(self.number, *at, tags)? };
        let entrance = found.map_or_else(|| Entrance::load(self.number, *at, tags, fresh), Ok)?;
        let entered = nodes.map_or(Ok(()), |nodes| entrance.only(nodes)).and_then(|()| {
            // An interface that is not there now is entered when it comes.
            crate::net::index_of(interface)
                .map_or(Ok(()), |index| entrance.attach(interface, index))
        });
        if entered.is_err() {
            let _ = receive::clear(self.number);
        }
        entered.map(|()| Some(entrance))
    }

    /// The interface is there again.
    fn enter_again(&mut self, source: &Source) -> Result<(), PlaneError> {
        let (Some(entrance), Some(interface)) = (&self.entrance, source.interface()) else {
            return Ok(());
        };
        entrance.detach()?;
        // The link goes on without: what leaves is worth as much as what comes in.
        let index = crate::net::index_of(interface)?;
        self.limits.retain(|limit| !limit.starts_with(NOT_TOLD_APART));
        if let Err(error) = entrance.attach(interface, index) {
            tracing::error!(%error, interface, "the entrance");
            self.limits.push(not_told_apart(&error));
        }
        Ok(())
    }

    /// What comes in is processed by threads from now on, or not any more. Of a link that was found
    /// it is no reason to leave it.
    fn thread(&mut self, source: &Source, fresh: bool) -> Result<(), PlaneError> {
        let Source::Link { interface, receive_in: Some(queue), .. } = source else {
            self.received_in = None;
            return threads::end(self.number);
        };
        self.received_in = Some(queue.clone());
        match threads::begin(self.number, interface) {
            Err(error) if !fresh => {
                tracing::error!(%error, interface, "what comes in is processed in softirqs");
                Ok(())
            }
            begun => begun,
        }
    }

    fn take(&self, tags: &Tags, source: &Source) -> Result<(), PlaneError> {
        let object = object(source, self.dev)?;
        tags.attach_resource(self.number, object, source.counts())?;
        match object {
            Object::Interface { index, .. } if !source.counts() => {
                tags.attach_link(self.number, index, self.htb)
            }
            _ => Ok(()),
        }
    }

    fn tell(&self, tags: &Tags, told: Told) -> Result<(), PlaneError> {
        tags.set_node(self.number, told.id, NodeInfo { queue: told.queue, dying: told.dying })
    }

    /// Takes a node away with the tags and list entries that name it: its number may come again
    /// with another resource of this number.
    fn forget(&self, tags: &Tags, id: NodeId) -> Result<(), PlaneError> {
        let refs = match tags.refs(self.number, id) {
            Err(PlaneError::NoNode(_)) => return Ok(()),
            refs => refs?,
        };
        gone(tags.drop_node(self.number, id))?;
        if refs != tag::Refs::default() {
            tags.sweep(self.number, id)?;
        }
        Ok(())
    }

    fn detach(&self, tags: Tags) -> Result<(), PlaneError> {
        tags.detach_resource(self.number)?;
        for id in tags.nodes(self.number)? {
            self.forget(&tags, id)?;
        }
        tags.release()
    }

    /// Found running, and nobody can say which nodes there are: those that the tags know stay.
    pub(crate) fn keep(&mut self, source: &Source) -> Result<(), PlaneError> {
        self.begin_with(source, None, false)
    }

    fn begin_with(
        &mut self,
        source: &Source,
        nodes: Option<&[Told]>,
        fresh: bool,
    ) -> Result<(), PlaneError> {
        self.tag_with(source, nodes, fresh)?;
        // The last: a veth has threads only when it has an entrance in its driver.
        self.thread(source, fresh).inspect_err(|_| {
            if let Err(error) = self.stop() {
                tracing::error!(%error, "the entrance was not taken back");
            }
        })
    }

    fn tag_with(
        &mut self,
        source: &Source,
        nodes: Option<&[Told]>,
        fresh: bool,
    ) -> Result<(), PlaneError> {
        let _turn = tag::turn();
        let begun = tag::open().and_then(|tags| {
            let attached = self.attach(&tags, source, nodes, fresh);
            if attached.is_err()
                && let Err(error) = self.detach(tags)
            {
                tracing::error!(%error, "tags were not taken back");
            }
            attached.map(|()| tag::adopt())?
        });
        let wants = matches!(source, Source::Link { receive: Some(_), .. });
        let entered = match &begun {
            Ok(Some(tags)) => self.enter(tags, source, nodes, fresh),
            Err(error) if wants => Err(PlaneError::Unsupported(format!(
                "what comes in cannot be told apart: {}",
                error.to_string().lines().next().unwrap_or_default()
            ))),
            _ => Ok(None),
        };
        self.tags = match begun {
            Ok(tags) => tags.ok_or_else(|| "the programs were taken away".to_owned()),
            Err(error @ (PlaneError::Taken(_) | PlaneError::Invalid(_))) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, %source, "cannot be tagged");
                Err(error.to_string().lines().next().unwrap_or_default().to_owned())
            }
        };
        self.limits = self.tags().map(|tags| tag::limits(tags.mechanism())).unwrap_or_default();
        match entered {
            Ok(entrance) => self.entrance = entrance,
            Err(error) if fresh => {
                let tags = mem::replace(&mut self.tags, Err("it was stopped".into()));
                if let Some(Err(error)) = tags.ok().map(|tags| self.detach(tags)) {
                    tracing::error!(%error, "tags were not taken back");
                }
                return Err(error);
            }
            Err(error) => {
                self.limits.push(not_told_apart(&error));
            }
        }
        Ok(())
    }

    fn tags(&self) -> Option<&Tags> {
        self.tags.as_ref().ok()
    }
}

impl Meter for Tagged {
    fn mechanism(&self) -> &'static str {
        match self.tags().map(Tags::mechanism) {
            Some(Mechanism::Full) => "tags by fcntl",
            Some(Mechanism::Stock) if self.dev != 0 => "tags by reservd",
            Some(Mechanism::Stock) => "tags by setsockopt",
            None => "no tags",
        }
    }

    fn limits(&self, source: &Source) -> Vec<String> {
        match &self.tags {
            Ok(_) => self.limits.clone(),
            Err(why) => {
                let tagged = source.kind().tagged();
                vec![format!("{tagged} cannot be tagged here, every counter stays 0: {why}")]
            }
        }
    }

    fn begin(&mut self, source: &Source, nodes: &[Told], fresh: bool) -> Result<(), PlaneError> {
        self.begin_with(source, Some(nodes), fresh)
    }

    fn again(&mut self, source: &Source) -> Result<(), PlaneError> {
        self.tags().map_or(Ok(()), |tags| self.take(tags, source))?;
        self.enter_again(source)?;
        self.thread(source, false)
    }

    fn set_mount(&mut self, dev: u64) -> Result<(), PlaneError> {
        self.tags().map_or(Ok(()), |tags| tags.set_mount(dev))
    }

    fn node(&mut self, told: Told) -> Result<(), PlaneError> {
        self.tags().map_or(Ok(()), |tags| self.tell(tags, told))?;
        self.entrance.as_ref().map_or(Ok(()), |entrance| entrance.node(told))
    }

    fn entrance(&self) -> Option<Receive> {
        self.entrance.as_ref().map(Entrance::place)
    }

    fn received_in(&self) -> Option<&NodePath> {
        self.received_in.as_ref()
    }

    fn let_in(&mut self, wanted: &[Set]) -> Result<Vec<Set>, PlaneError> {
        match &self.entrance {
            Some(entrance) => entrance.set_all(wanted),
            None => super::meter::no_entrance(wanted),
        }
    }

    fn let_back(&self, former: &[Set]) {
        if let Some(entrance) = &self.entrance {
            entrance.set_back(former);
        }
    }

    fn received(&self, queue: NodeId) -> Option<ReceiveSample> {
        self.entrance.as_ref()?.sample(queue).ok()
    }

    fn droppers(&self, queue: NodeId) -> Result<Vec<Dropper>, PlaneError> {
        self.entrance.as_ref().map_or_else(|| Ok(Vec::new()), |entrance| entrance.droppers(queue))
    }

    fn received_else(&self) -> Option<ReceiveOthers> {
        self.entrance.as_ref()?.others().ok()
    }

    fn reset_received(&mut self, queue: NodeId) -> Result<(), PlaneError> {
        self.entrance.as_ref().map_or(Ok(()), |entrance| gone(entrance.reset(queue)))
    }

    fn set_use(&mut self, queue: NodeId, rules: &[UseRule]) -> Result<(), PlaneError> {
        self.tags().map_or(Ok(()), |tags| tags.set_use(self.number, queue, Some(rules)))
    }

    fn set_packet_rules(&mut self, rules: &PacketRules) -> Result<(), PlaneError> {
        match &self.tags {
            Ok(tags) => tags.set_packet_rules(self.number, &rules.packets)?,
            Err(_) if rules.packets.is_empty() => {}
            Err(why) => {
                let why = format!("packets cannot be told apart here: {why}");
                return Err(PlaneError::Unsupported(why));
            }
        }
        self.limits.retain(|limit| limit != NOT_ASKED);
        match &mut self.entrance {
            Some(entrance) => entrance.set_rules(&rules.arrivals)?,
            // The configuration may be that of a link with one.
            None if rules.arrivals.iter().any(|rule| rule.queue.is_some()) => {
                self.limits.push(NOT_ASKED.into());
            }
            None => {}
        }
        Ok(())
    }

    fn arrivals(&self) -> Vec<ArrivalSample> {
        self.entrance.as_ref().map(Entrance::arrivals).unwrap_or_default()
    }

    fn usage(&self, queue: NodeId) -> Result<Usage, PlaneError> {
        let Some(tags) = self.tags() else { return Ok(Usage::default()) };
        let tag::Counted { operations, bytes } = tags.counted(self.number, queue)?;
        Ok(Usage { operations, bytes })
    }

    fn refs(&self, queue: NodeId) -> Result<Refs, PlaneError> {
        let Some(tags) = self.tags() else { return Ok(Refs::default()) };
        let tag::Refs { descriptors, defaults, child_defaults } = tags.refs(self.number, queue)?;
        Ok(Refs { descriptors, defaults, child_defaults, ..Refs::default() })
    }

    fn removed(&mut self, node: NodeId) -> Result<(), PlaneError> {
        self.entrance.as_ref().map_or(Ok(()), |entrance| entrance.removed(node))?;
        self.tags().map_or(Ok(()), |tags| self.forget(tags, node))
    }

    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError> {
        let mut both = Defaults { default: NodeId::Q0, child: NodeId::Q0 };
        let Some(tags) = self.tags() else { return Ok(both) };
        let lists = tags.defaults(pid)?;
        for (list, queue) in [(&lists.default, &mut both.default), (&lists.child, &mut both.child)]
        {
            if let Some((_, named)) = list.iter().find(|(resource, _)| *resource == self.number) {
                *queue = *named;
            }
        }
        Ok(both)
    }

    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError> {
        match &self.tags {
            Ok(tags) => tags.set_default(pid, list, self.number, queue),
            Err(_) if queue == NodeId::Q0 => Ok(()),
            Err(why) => Err(PlaneError::Unsupported(format!(
                "every list holds q0, for nothing can be tagged here: {why}"
            ))),
        }
    }

    fn descriptors(&self, pid: i32) -> Result<Vec<(u32, NodeId)>, PlaneError> {
        let Some(tags) = self.tags() else { return Ok(Vec::new()) };
        let ours = tags.tagged(pid)?.into_iter().filter(|t| t.resource == self.number);
        Ok(ours.map(|t| (t.fd, NodeId::unpack(t.queue))).collect())
    }

    fn descriptor_tag(&self, queue: NodeId) -> Result<DescriptorTag, PlaneError> {
        match &self.tags {
            Ok(tags) => Ok(tags.descriptor_tag(self.number, queue)),
            Err(why) => Err(PlaneError::Unsupported(format!("nothing can be tagged here: {why}"))),
        }
    }

    fn holders(&self, queue: NodeId) -> Result<Vec<Holders>, PlaneError> {
        self.tags().map_or(Ok(Vec::new()), |tags| tags.holders(self.number, queue))
    }

    fn untag(&mut self, queue: NodeId, keys: &[u64]) -> Result<u64, PlaneError> {
        self.tags().map_or(Ok(0), |tags| tags.untag(self.number, queue, keys))
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        // Also where none is known: a daemon that could not adopt it has left it attached.
        threads::end(self.number)?; // while there is something that they poll
        self.received_in = None;
        receive::clear(self.number)?;
        self.entrance = None;
        match mem::replace(&mut self.tags, Err("it was stopped".into())) {
            Ok(tags) => {
                let _turn = tag::turn();
                self.detach(tags)
            }
            Err(_) => Ok(()),
        }
    }
}
