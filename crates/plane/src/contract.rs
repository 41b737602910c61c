// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract between the control plane and a resource's driver: the papers' resource scheduler
//! interface (Eclipse/BSD §2.2) in today's words.
//!
//! Life of a driver: `probe` (can it run here, and if not, what is missing) → `start` (take the
//! resource over, with an empty tree of root and q0) or `adopt` (find a tree that a previous daemon
//! left running) → `apply`, `tag`, `sample` … → `stop` (give the resource back to the kernel) or
//! drop (leave it running).

use std::collections::BTreeMap;

use reserv_model::{
    ArrivalSample, Backlog, Batch, Class, Dropper, NodeId, Op, Outcome, PacketRules, Policy, Rate,
    ThreadParams, TuneKey, UseRule,
};

pub use reserv_model::Sample;

use crate::tag::DescriptorTag;

/// Which driver, what it can do, and what is lost with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// `full`, `stock` or `count`.
    pub name: &'static str,
    /// The mechanism in words: `sched_ext`, `cgroup v2 (threaded)`, `cgroup v1`.
    pub mechanism: String,
    /// ABI version of the data plane that runs.
    pub version: u32,
    /// What this driver cannot do, one sentence each; empty for a full driver.
    pub limits: Vec<String>,
    /// What q0 is weighed against outside our tree (stock drivers), in words.
    pub outside: Option<String>,
    /// Whether a thread can change its own tag by system call (`chcpures`).
    pub chcpures: bool,
    /// What becomes of the kernel's own CPU settings of cgroups inside q0; `None` where the kernel
    /// goes on obeying them.
    pub cgroups: Option<Cgroups>,
}

/// How a driver that replaces the kernel's scheduler follows `cpu.weight`, `cpu.idle` and
/// `cpu.max`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Cgroups {
    /// It was told to ignore them (`reserv up --ignore-cgroup-weights`).
    pub ignored: bool,
    /// Cgroups that are mirrored.
    pub mirrored: u64,
    /// Cgroups for which there was no room: their settings have no effect.
    pub without_room: u64,
    /// A few of those, by path.
    pub names: Vec<String>,
}

/// A thread that is tagged with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Process.
    pub tgid: i32,
    /// Thread, in the daemon's pid name space.
    pub tid: i32,
    /// What it asks of its queue's class.
    pub params: ThreadParams,
}

/// Whom a tag is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One thread, by tid.
    Thread(i32),
    /// All present threads of a process, by pid.
    Process(i32),
}

/// The two lists of a process for this resource (Eclipse/BSD §2.5). Both start as q0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The queue of what the process opens; for a CPU, of its first thread.
    pub default: NodeId,
    /// What its children inherit, as both lists.
    pub child: NodeId,
}

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `/reserv/proc/PID/default`
    Default,
    /// `/reserv/proc/PID/cdefault`
    Child,
}

/// What refers to a node in the kernel, whatever its descriptors of `/reserv` and current
/// directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refs {
    /// Tagged descriptors.
    pub descriptors: u64,
    /// Default lists that name it.
    pub defaults: u64,
    /// Child default lists that name it.
    pub child_defaults: u64,
    /// Tagged threads.
    pub threads: u64,
}

impl Refs {
    /// What is tagged itself, whatever processes' lists say.
    pub const fn tags(&self) -> u64 {
        self.descriptors + self.threads
    }

    /// How many together.
    pub const fn sum(&self) -> u64 {
        self.descriptors + self.defaults + self.child_defaults + self.threads
    }
}

/// Whether the driver holds the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Running,
    /// It lost it, with the kernel's reason in words; tree and tags are kept, `revive` brings it
    /// back.
    Detached(String),
    /// It lost it, and what it schedules is not there to be taken: an interface that was removed,
    /// CPUs that another scheduler has. `revive` is of no use until it is (then this says
    /// [`Health::Detached`]).
    Waiting(String),
}

/// Why a driver refused.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    /// The batch names a node that does not exist (or no longer does).
    #[error("no such node: {0}")]
    NoNode(String),
    /// There are children or members.
    #[error("busy: {0}")]
    Busy(String),
    /// The batch is more than the driver changes at once: each of its parts may not be.
    #[error("too much at once: {0}")]
    TooMuch(String),
    /// A limit on nodes, members or threads is reached: try again when some are gone.
    #[error("full: {0}")]
    Full(String),
    /// This driver has no such mechanism.
    #[error("not supported by this driver: {0}")]
    Unsupported(String),
    /// The kernel refuses programs that the driver cannot do without.
    #[error("not to be had on this kernel: {0}")]
    NotLoaded(String),
    /// The words of the edit do not make sense for the node.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The thread or process is gone.
    #[error("no such process or thread: {0}")]
    NoProcess(i32),
    /// Threads were promised budgets after the batch was thought out: look again.
    #[error("threads were promised budgets at the same instant")]
    Overtaken,
    /// Somebody else holds the resource.
    #[error("taken: {0}")]
    Taken(String),
    /// The kernel refused; with what we tried.
    #[error("{context}: {source}")]
    Os {
        /// What was tried.
        context: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

impl PlaneError {
    /// Whether somebody gave no answer in time.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Os { source, .. } if source.raw_os_error() == Some(libc::ETIMEDOUT))
    }
}

/// An open file or socket that is tagged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders {
    /// What the kernel knows it by, while it is open.
    pub key: u64,
    /// Processes that have a descriptor of it.
    pub pids: Vec<i32>,
}

/// What [`Upgrade::upgrade`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Upgraded {
    /// ABI version of the programs that ran.
    pub from: u32,
    /// Of those that run now.
    pub to: u32,
    /// What waited in the queues and is lost.
    pub packets: u64,
    /// Its bytes; 0 where the programs that ran did not count them.
    pub bytes: u64,
    /// Packets that came, and were dropped, while neither had the interface.
    pub meanwhile: u64,
    /// Whether the nodes' counters go on. Else they begin anew: this version does not understand
    /// the other's.
    pub counters: bool,
}

/// A driver that holds a resource: its tree, its counters and its life. Calls come from one thread
/// at a time. What some drivers can besides is in traits of their own, whose defaults say that a
/// driver cannot; a driver writes down what it can.
pub trait Plane: Threads + Lists + Descriptors + Packets + Upgrade + Send {
    /// See [`DriverInfo`]. Cheap; called for `status`.
    fn info(&self) -> DriverInfo;

    /// How much there is to be promised, in bytes per second; 0: nobody knows. (The CPU's is the
    /// machine's.)
    fn capacity(&self) -> u64 {
        0
    }

    /// What waits in its queues by their limits, with a budget of 0: that is the machine's. `None`:
    /// its limits are of something else.
    fn backlog(&self) -> Option<Backlog> {
        None
    }

    /// What [`Plane::backlog`] will be with another rate.
    fn backlog_at(&self, rate: Option<Rate>) -> Option<Backlog> {
        let _ = rate;
        self.backlog()
    }

    /// Whether [`Plane::set_rate`] would be refused whatever the kernel says.
    fn may_have_rate(&self, rate: Option<Rate>) -> Result<(), PlaneError> {
        let _ = rate;
        Err(PlaneError::Unsupported("there is no rate here that could be another one".into()))
    }

    /// Another rate of a link that runs; `None`: as fast as the device takes packets. Nothing that
    /// waits is lost, and what has begun is over at the old rate. On error it is as before. The
    /// source that the plane is adopted with names the rate that is to hold: who died before the
    /// kernel was told is caught up with then.
    fn set_rate(&mut self, rate: Option<Rate>) -> Result<(), PlaneError> {
        self.may_have_rate(rate)
    }

    /// Most ops that [`Plane::apply`] takes at once.
    fn batch_max(&self) -> usize {
        128
    }

    /// Apply edits, all or none. One outcome per op. On error nothing has changed. A deletion that
    /// flushes is `Draining` when members could not be moved at once; the caller moves them by
    /// [`Threads::tag`].
    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError>;

    /// A number that is another one after each budget that a thread was promised, for
    /// [`Plane::apply_if`]; 0 where threads ask nobody but the caller.
    fn grants(&self) -> Result<u32, PlaneError> {
        Ok(0)
    }

    /// As [`Plane::apply`], and `Overtaken` where [`Plane::grants`] is not `grants` any more;
    /// looked at together, so that of an edit and a thread's own call one is first. 0: it is not
    /// looked at.
    fn apply_if(&mut self, batch: &Batch, grants: u32) -> Result<Vec<Outcome>, PlaneError> {
        let _ = grants;
        self.apply(batch)
    }

    /// The number of the last batch that is in effect; `None` where the mechanism cannot keep one
    /// (then the caller rolls its last intent forward: `apply` must be idempotent for such a
    /// driver).
    fn applied_seq(&self) -> Result<Option<u64>, PlaneError>;

    /// Drained nodes that have gone since the last call, so that the caller can forget their names.
    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError>;

    /// Counters of all nodes, in order of index.
    fn sample(&self) -> Result<Vec<Sample>, PlaneError>;

    /// Counters of one node (`NoNode` when stale).
    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError>;

    /// What refers to nodes in the kernel, in their order; nothing for nodes that are gone. Where
    /// the mechanism does not count its lists, they are looked up process by process.
    fn refs(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        let at: BTreeMap<NodeId, usize> =
            ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let mut refs = vec![Refs::default(); ids.len()];
        for sample in self.sample()? {
            if let Some(&at) = at.get(&NodeId::unpack(sample.id)) {
                refs[at].threads = sample.members.into();
            }
        }
        for pid in processes() {
            let Ok(lists) = self.defaults(pid) else { continue };
            if let Some(&at) = at.get(&lists.default) {
                refs[at].defaults += 1;
            }
            if let Some(&at) = at.get(&lists.child) {
                refs[at].child_defaults += 1;
            }
        }
        Ok(refs)
    }

    /// Polled by the supervisor, about once per 100 ms; must be cheap.
    fn health(&mut self) -> Result<Health, PlaneError>;

    /// Take the resource again after a detachment, with the tree and tags as they were.
    fn revive(&mut self) -> Result<(), PlaneError>;

    /// Whether [`Plane::stop`] would be refused now because somebody uses what the driver offers.
    /// Changes nothing.
    fn may_stop(&self) -> Result<(), PlaneError> {
        Ok(())
    }

    /// Give the resource back to the kernel and remove everything that was made for it.
    fn stop(&mut self) -> Result<(), PlaneError>;

    /// Why this driver has no mechanism for an op, where that is known before [`Plane::apply`],
    /// which refuses it for the same.
    fn lacks(&self, op: &Op) -> Option<String> {
        let _ = op;
        None
    }

    /// Whether this driver can order a queue by `class`.
    fn supports_class(&self, class: Class) -> bool;

    /// Whether this driver can order the children of a scheduler node by `policy`.
    fn supports_policy(&self, policy: Policy) -> bool;
}

/// Threads that are tagged: the CPU's. By default there are none.
pub trait Threads {
    /// Tag threads with a queue, moving them at once, running or queued. Answers how many were
    /// moved.
    fn tag(&mut self, target: Target, queue: NodeId) -> Result<usize, PlaneError> {
        let _ = (target, queue);
        Err(PlaneError::Unsupported(format!(
            "threads have no place here: {}",
            self.tagged_instead()
        )))
    }

    /// What is tagged where threads are not, in words.
    fn tagged_instead(&self) -> String {
        "nothing is tagged".into()
    }

    /// A thread's queue.
    fn tag_of(&self, tid: i32) -> Result<NodeId, PlaneError> {
        let _ = tid;
        Ok(NodeId::Q0)
    }

    /// Set what a thread asks of its queue's class, all of it; the defaults take it back. Kept
    /// while it lives, whatever its queue. `Unsupported` where the mechanism has no such thing.
    fn set_params(&mut self, tid: i32, params: &ThreadParams) -> Result<(), PlaneError> {
        let _ = (tid, params);
        Err(PlaneError::Unsupported("threads have no parameters but their nice values".into()))
    }

    /// What a thread asks of its queue's class.
    fn params_of(&self, tid: i32) -> Result<ThreadParams, PlaneError> {
        let _ = tid;
        Ok(ThreadParams::default())
    }

    /// Who is tagged with a queue. q0 lists nobody: it is everyone else.
    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError>;
}

/// Processes' lists for this resource, and who may tag with its queues.
pub trait Lists {
    /// The device number of the file system at which `/reserv` is mounted, told after each mount
    /// and adoption. A driver that recognises descriptors of `/reserv` in the kernel compares it;
    /// others ignore it.
    fn set_mount(&mut self, dev: u64) -> Result<(), PlaneError> {
        let _ = dev;
        Ok(())
    }

    /// Whether new processes of threads that are bound to a container are bound as those are. Told
    /// after each start and adoption, and when it changes; not at first. Where no thread binds
    /// itself it means nothing.
    fn set_binds_children(&mut self, yes: bool) -> Result<(), PlaneError> {
        let _ = yes;
        Ok(())
    }

    /// The lists of a process.
    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError>;

    /// Change one of them.
    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError>;

    /// Who may tag with this queue, whole and in order (at most [`reserv_model::USE_RULES_MAX`]);
    /// none: root only. Told for every queue after start and adoption, and whenever it changes. A
    /// driver that sets tags in the kernel checks it there; others need nothing, because the daemon
    /// checks before [`Threads::tag`].
    fn set_use(&mut self, queue: NodeId, rules: &[UseRule]) -> Result<(), PlaneError> {
        let _ = (queue, rules);
        Ok(())
    }
}

/// Open files and sockets that are tagged: those of disks and links.
pub trait Descriptors {
    /// The tagged descriptors of a process, with their queues. None where descriptors are not
    /// tagged.
    fn descriptors(&self, pid: i32) -> Result<Vec<(u32, NodeId)>, PlaneError> {
        let _ = pid;
        Ok(Vec::new())
    }

    /// What tags the open file or socket behind a descriptor with a queue, by whoever has a copy of
    /// it.
    fn descriptor_tag(&mut self, queue: NodeId) -> Result<DescriptorTag, PlaneError> {
        let _ = queue;
        Err(PlaneError::Unsupported("descriptors are not tagged here".into()))
    }

    /// The open files and sockets that are tagged with a queue, and who has them.
    fn holders(&self, queue: NodeId) -> Result<Vec<Holders>, PlaneError> {
        let _ = queue;
        Ok(Vec::new())
    }

    /// These of them fall back to q0. Answers how many did.
    fn untag(&mut self, queue: NodeId, keys: &[u64]) -> Result<u64, PlaneError> {
        let _ = (queue, keys);
        Ok(0)
    }
}

/// Packets that are told apart: those of links.
pub trait Packets {
    /// Which queues untagged packets go to, of a link: whole and in order, the first rule that
    /// fits, else q0. Told after start and adoption and whenever it changes; they stand in the
    /// kernel.
    fn set_packet_rules(&mut self, rules: &PacketRules) -> Result<(), PlaneError> {
        if *rules == PacketRules::default() {
            return Ok(());
        }
        Err(PlaneError::Unsupported("there are no packets here that rules could tell apart".into()))
    }

    /// What has come in by each rule about who comes, in the order in which they were told last;
    /// none where nothing is told apart.
    fn arrivals(&self) -> Vec<ArrivalSample> {
        Vec::new()
    }

    /// Whose packets a queue lost on their way in, the heaviest first; none where nothing is told
    /// apart.
    fn droppers(&self, queue: NodeId) -> Result<Vec<Dropper>, PlaneError> {
        let _ = queue;
        Ok(Vec::new())
    }

    /// What queues let in of what comes in, all of it (0: the default): told after adoption, for
    /// who died in the middle of an edit may have left another rate.
    fn set_entries(&mut self, all: &[(NodeId, TuneKey, u64)]) -> Result<(), PlaneError> {
        let _ = all;
        Ok(())
    }
}

/// Programs that can be replaced while they run.
pub trait Upgrade {
    /// Put the programs of this version in the place of those that an earlier daemon loaded;
    /// `None`: they are these already. `tree` is what makes the tree as it is out of root and q0,
    /// its last batch with the tree's number; tags stay. On error the old ones go on as they were.
    /// Whoever is killed in the middle leaves the old ones or the new.
    fn upgrade(&mut self, tree: &[Batch]) -> Result<Option<Upgraded>, PlaneError> {
        let _ = tree;
        Err(PlaneError::Unsupported(
            "there are no programs here that could be upgraded while they run".into(),
        ))
    }
}

/// The processes that live now.
fn processes() -> Vec<i32> {
    let Ok(dir) = std::fs::read_dir("/proc") else { return Vec::new() };
    dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect()
}
