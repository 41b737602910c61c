// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stock driver: nothing is put before the disk. Its elevator is BFQ, or iocost is on for it,
//! and the tree is a tree of cgroups with their weights. A process is tagged by being moved; who is
//! in no queue stays where it is. Books and their file are a counting resource's ([`Count`]); the
//! counters are the cgroups' own.
//!
//! One disk at a time, because a process has one cgroup for all of them. Where the CPU's stock
//! driver has the same hierarchy a process is in one of both trees.

mod device;
mod means;
mod shares;
#[cfg(test)]
mod tests;
mod tree;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reserv_model::{Batch, Class, DeleteMode, Kind, NodeId, Op, Outcome, Policy, Source};

use self::device::Device;
use self::means::Means;
use self::shares::Groups;
use self::tree::Tree;
use crate::cgroup::kernel::{Kernel, Real};
use crate::cgroup::mounts::{self, Version};
use crate::count::{self, Books, Count, Meter, Metered, Usage, tags_by_meter};
use crate::{
    Defaults, DescriptorTag, DriverInfo, Health, List, Member, Packets, Plane, PlaneError, Refs,
    Sample, Target, Threads, Upgrade,
};

/// Of our directories and files.
const VERSION: u32 = 1;

type Shared = Arc<Mutex<Tree>>;

fn locked(tree: &Shared) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver. Dropping it leaves elevator and cgroups as they are.
pub struct Stock {
    path: String,
    one: bool,
    count: Count,
    tree: Shared,
}

/// Processes are tagged by their cgroups, which count too.
struct Groupwise(Shared);

fn whole_processes<T>() -> Result<T, PlaneError> {
    Err(PlaneError::Unsupported(
        "open files and threads have no cgroup: the stock driver places whole processes (reserv tag QUEUE PID); the full \
         driver tags open files"
            .into(),
    ))
}

impl Meter for Groupwise {
    fn mechanism(&self) -> &'static str {
        "processes by cgroup"
    }

    fn limits(&self, _source: &Source) -> Vec<String> {
        Vec::new()
    }

    fn usage(&self, queue: NodeId) -> Result<Usage, PlaneError> {
        locked(&self.0).usage(queue)
    }

    fn refs(&self, queue: NodeId) -> Result<Refs, PlaneError> {
        let processes = locked(&self.0).pids(queue)?.len() as u64;
        Ok(Refs { threads: processes, ..Refs::default() })
    }

    fn removed(&mut self, _queue: NodeId) -> Result<(), PlaneError> {
        Ok(())
    }

    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError> {
        let queue = locked(&self.0).queue_of(pid)?;
        Ok(Defaults { default: queue, child: queue })
    }

    fn descriptor_tag(&self, _queue: NodeId) -> Result<DescriptorTag, PlaneError> {
        whole_processes()
    }

    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError> {
        let mut tree = locked(&self.0);
        if tree.queue_of(pid)? == queue {
            return Ok(());
        }
        match list {
            List::Default => tree.place(pid, queue).map(drop),
            List::Child => Err(PlaneError::Unsupported(
                "children start in their parent's cgroup, so cdefault follows default: set default"
                    .into(),
            )),
        }
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        Ok(())
    }
}

/// What a source says: the path, and whether the disk gets one request at a time.
fn told(source: &Source) -> Result<(&str, bool), PlaneError> {
    match source {
        Source::Disk { path, depth, .. } => Ok((path, *depth == 1)),
        other => Err(PlaneError::Invalid(format!("{other} is not a disk that is scheduled"))),
    }
}

/// How disks could be shared here: `Err` says what is missing. Whether BFQ is there tells only its
/// first use, which loads it.
pub fn survey() -> Result<String, String> {
    survey_with(&Real)
}

fn survey_with(kernel: &dyn Kernel) -> Result<String, String> {
    let layout = mounts::find_io(kernel)?;
    let top = &layout.hierarchies[0].mount;
    let iocost = kernel.exists(&format!("{top}/io.cost.qos"));
    Ok(match (layout.version, iocost) {
        (Version::V2, true) => "BFQ or iocost, by cgroup v2".to_owned(),
        (Version::V2, false) => "BFQ, by cgroup v2".to_owned(),
        (Version::V1, _) => "BFQ, by cgroup v1".to_owned(),
    })
}

/// Take a disk, with a tree of root and q0.
pub fn start(run: &Path, number: u8, source: &Source) -> Result<Stock, PlaneError> {
    let device = Device::find(told(source)?.0)?;
    start_with(Box::new(Real), (run, &crate::settings::cgroup()?), number, source, device)
}

fn start_with(
    kernel: Box<dyn Kernel>,
    (run, name): (&Path, &str),
    number: u8,
    source: &Source,
    device: Device,
) -> Result<Stock, PlaneError> {
    let (path, one) = told(source)?;
    let tree = Arc::new(Mutex::new(Tree::take(kernel, (run, name), number, device, one)?));
    let made = plan(&Books::default(), &tree)
        .and_then(|wanted| {
            let mut tree = locked(&tree);
            tree.put(&wanted)?;
            tree.prune(wanted)
        })
        .and_then(|()| count::start(run, number, source, Box::new(Groupwise(Arc::clone(&tree)))));
    let count = made.inspect_err(|_| {
        if let Err(error) = locked(&tree).give_back() {
            tracing::error!(%error, path, "the disk was not given back");
        }
    })?;
    Ok(Stock { path: path.to_owned(), one, count, tree })
}

/// Find what an earlier daemon left; `None` when there is nothing.
pub fn adopt(run: &Path, number: u8, source: &Source) -> Result<Option<Stock>, PlaneError> {
    adopt_with(Box::new(Real), (run, &crate::settings::cgroup()?), number, source)
}

fn adopt_with(
    kernel: Box<dyn Kernel>,
    (run, name): (&Path, &str),
    number: u8,
    source: &Source,
) -> Result<Option<Stock>, PlaneError> {
    let (path, one) = told(source)?;
    let Some(found) = Tree::find(kernel, (run, name), number)? else { return Ok(None) };
    let tree = Arc::new(Mutex::new(found));
    let Some(count) = count::adopt(run, number, source, Box::new(Groupwise(Arc::clone(&tree))))?
    else {
        // A start that died before it had books, or an end after it had none.
        locked(&tree).give_back()?;
        return Ok(None);
    };
    let mut plane = Stock { path: path.to_owned(), one, count, tree };
    plane.reshape()?;
    Ok(Some(plane))
}

fn plan(books: &Books, tree: &Shared) -> Result<Groups, PlaneError> {
    let tree = locked(tree);
    shares::groups(books, tree.range(), tree.weight_file(), tree.outside().0)
}

/// Whether it can share what is at a path.
pub(crate) fn probe(path: &str) -> Result<(), PlaneError> {
    Device::find(path).map(drop)
}

/// What this driver cannot do, by name and with what would be right.
pub(crate) fn refused(op: &Op) -> Option<String> {
    const FULL: &str = "the full driver has them (reserv disk attach)";
    match op {
        Op::Tune { key, .. } | Op::NodeParam { key, .. } => {
            Some(format!("{}: a disk's stock driver has no tunables; {FULL}", key.word()))
        }
        Op::SetCap { cap: Some(_), .. } => {
            Some(format!("a disk's stock driver has no caps; {FULL}"))
        }
        Op::SetLimit { members_max: 1.., .. } | Op::SetLimit { bytes_max: 1.., .. } => {
            Some("a disk's queue has no limit: requests wait".into())
        }
        Op::SetPolicy { policy, .. } | Op::Create { kind: Kind::Scheduler(policy), .. }
            if *policy != Policy::Sfq =>
        {
            Some(format!(
                "policy {policy}: the kernel orders the children of a node in one way only (sfq); {FULL}"
            ))
        }
        Op::SetClass { class, .. } | Op::Create { kind: Kind::Queue(class), .. }
            if !matches!(class, Class::Fifo | Class::Ts) =>
        {
            Some(format!("class {class}: the kernel orders a queue in its own way (fifo); {FULL}"))
        }
        _ => None,
    }
}

impl Stock {
    /// The cgroups as the tree is now.
    fn reshape(&mut self) -> Result<(), PlaneError> {
        let wanted = plan(self.count.books(), &self.tree)?;
        let mut tree = locked(&self.tree);
        tree.put(&wanted)?;
        tree.prune(wanted)
    }

    fn limits(&self) -> Vec<String> {
        let tree = locked(&self.tree);
        let mut limits = vec![match tree.kept.means {
            Means::Bfq => {
                "inexact: shares are what BFQ makes of weights, ten points off and more, and not kept \
                 at all among programs with few requests at once, nor always between equal weights"
            }
            Means::Iocost => {
                "inexact: iocost holds back by its model of the disk (io.cost.model, io.cost.qos), which is the machine's \
                 administrator's; while the disk does more than the model says nobody is held back"
            }
        }
        .to_owned()];
        limits.push(
            "whole processes are members: open files and threads are not tagged, cdefault is always the same as default"
                .into(),
        );
        limits.push(if tree.v2() {
            "what is written back from the page cache is its writer's on ext4, btrfs and xfs only, elsewhere it is q0's"
                .into()
        } else {
            "cgroup v1: what is written back from the page cache is q0's, and so is what goes through other kernel threads"
                .into()
        });
        if tree.v2() {
            limits.push(
                "a process is in one cgroup: who has a queue of the CPU's stock driver cannot have one of the disk's; and \
                 memory and pids of a member are charged to the disk's tree meanwhile, not to its service"
                    .into(),
            );
        }
        limits.push(
            "no minimums, caps, limits, tunables and draining; no policy but sfq, no class but fifo; requests that wait are \
             not counted"
                .into(),
        );
        for (id, thousandths) in &tree.now.rounded {
            limits.push(format!(
                "the weights below {}.{} are rounded to {} of 1 to {}: shares are off by up to {}.{} %",
                id.index,
                id.generation,
                tree.weight_file(),
                tree.range().max,
                thousandths / 10,
                thousandths % 10
            ));
        }
        if tree.now.background {
            limits.push(format!(
                "weight 0 is only the smallest {}, {}",
                tree.weight_file(),
                tree.range().min
            ));
        }
        limits
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

impl Plane for Stock {
    fn info(&self) -> DriverInfo {
        let tree = locked(&self.tree);
        let means = match tree.kept.means {
            Means::Bfq => "bfq",
            Means::Iocost => "iocost",
        };
        let one = if self.one { ", one request at a time" } else { "" };
        let version = if tree.v2() { "v2" } else { "v1" };
        let (total, who) = tree.outside();
        let ours = tree.now.all.first().map_or(0, |root| root.weight);
        let mechanism = format!(
            "{means} on {}{one}, by {} of cgroup {version}, inexact",
            self.path,
            tree.weight_file()
        );
        let outside = format!(
            "our tree has {} {ours} against {total} outside ({})",
            tree.weight_file(),
            who.join(", ")
        );
        drop(tree);
        DriverInfo {
            name: "stock",
            mechanism,
            version: VERSION,
            limits: self.limits(),
            outside: Some(outside),
            chcpures: false,
            cgroups: None,
        }
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        if let Some(why) = batch.ops.iter().find_map(refused) {
            return Err(PlaneError::Unsupported(why));
        }
        for op in &batch.ops {
            if let Op::Delete { id, mode } = *op {
                let inside = locked(&self.tree).pids(id)?.len();
                match mode {
                    _ if inside == 0 => {}
                    DeleteMode::Refuse => {
                        return Err(PlaneError::Busy(format!("{inside} processes are in it")));
                    }
                    DeleteMode::Drain => {
                        return Err(PlaneError::Unsupported(format!(
                            "drain: {inside} processes are in it, and a disk's stock driver does not wait for them; flush \
                             takes them back to where they came from"
                        )));
                    }
                    DeleteMode::Flush => {}
                }
            }
        }
        let after = self.count.after(batch)?;
        let wanted = plan(&after, &self.tree)?;
        let put = locked(&self.tree).put(&wanted);
        let outcomes = match put.and_then(|()| self.count.enter(batch)) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                if let Err(also) = self.reshape() {
                    tracing::error!(error = %also, disk = self.path, "the cgroups are not as before");
                }
                return Err(error);
            }
        };
        if let Err(error) = locked(&self.tree).prune(wanted) {
            tracing::error!(%error, disk = self.path, "cgroups that nobody names stay");
        }
        Ok(outcomes)
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        self.count.applied_seq()
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        self.count.collect_drained()
    }

    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        self.count.sample()
    }

    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        if self.count.books().queue(id).is_err() {
            // What a scheduler has served is what all below it have.
            let found = self.sample()?.into_iter().find(|sample| sample.id == id.pack());
            return found.ok_or_else(|| PlaneError::NoNode(format!("{id:?}")));
        }
        self.count.sample_one(id)
    }

    fn refs(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        self.references(ids)
    }

    fn health(&mut self) -> Result<Health, PlaneError> {
        let tree = locked(&self.tree);
        let why = tree.idle();
        Ok(match (why.is_empty(), tree.present()) {
            (false, _) => Health::Waiting(why),
            (true, true) => Health::Running,
            (true, false) => Health::Detached("somebody removed cgroups of the tree".into()),
        })
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        locked(&self.tree).forget_written();
        self.reshape()
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        locked(&self.tree).give_back()?;
        self.count.stop()
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

impl Threads for Stock {
    fn tag(&mut self, target: Target, queue: NodeId) -> Result<usize, PlaneError> {
        self.count.books().queue(queue)?;
        let mut tree = locked(&self.tree);
        let pid = match target {
            Target::Process(pid) => pid,
            // A process that is one thread is moved whole by either name.
            Target::Thread(tid) => {
                let pid = tree.places.tgid(tid)?;
                if tree.places.threads(pid)?.len() > 1 {
                    return whole_processes();
                }
                pid
            }
        };
        tree.place(pid, queue)
    }

    fn tag_of(&self, tid: i32) -> Result<NodeId, PlaneError> {
        locked(&self.tree).queue_of(tid)
    }

    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        self.count.books().queue(queue)?;
        let pids = locked(&self.tree).pids(queue)?;
        let member =
            |pid| Member { tgid: pid, tid: pid, params: reserv_model::ThreadParams::default() };
        Ok(pids.into_iter().map(member).collect())
    }
}

impl Metered for Stock {
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

tags_by_meter!(Stock);

impl Packets for Stock {}

impl Upgrade for Stock {}
