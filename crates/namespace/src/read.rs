// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a read prints. Every text ends with a newline; the grammar stands in `table.rs`.
//!
//! `stat`, in this order, shares in parts per million of the whole resource:
//!
//! ```text
//! weight_share_ppm 250000       if every node wanted
//! effective_share_ppm 333333    given who wants now; 0 for a node that does not
//! service_ns 120000000          CPU time received, by all below it too; of a disk or link service_bytes
//! runnable 2                    threads that wait or run, below it too
//! queued 1
//! running 1
//! members 3                     threads tagged, below it too; of a disk or link descriptors
//! throttled 0                   1: its own cap holds it back now
//! throttled_ns 0
//! state active                  or draining
//! minimum_ns 500000000          promised, per second
//! guarantee_ns 666666666        what it has per second whoever wants, by the weights and caps on its way from the root
//! threads_short 0               threads that it lacks to be able to use its minimum: a thread uses one CPU at a time
//! request_ns 1000000            below a scheduler of policy eevdf only: its requests' length, set or estimated
//! period_ns 2000000             and how long one takes with what is guaranteed; neither before it has run
//! ```

use std::fmt::Write as _;

use reserv_model::{
    Amount, Beside, Dropper, Error, ErrorKind, Kind, Name, Node, NodeId, NodePath, Outside,
    Personality, ReceiveOthers, ReceiveSample, ResourceKind, Sample, Shares, ThreadParams, Tree,
    show_bytes, show_cap, show_tune,
};

use crate::ino::FileKind;
use crate::table::{Read, TABLE};

/// What one thread can use in a second.
const NS_PER_CPU: u64 = 1_000_000_000;

/// What stands below a node, itself included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Below {
    queued: u64,
    running: u64,
    members: u64,
}

/// All that `stat` and `backlog` need of the planes' counters, made once for all nodes by one walk
/// over the tree: then the text of one node costs no more than its depth. Tells of the tree and the
/// counters as they were then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// In order of index.
    samples: Vec<Sample>,
    all: Shares,
    now: Shares,
    /// By slot.
    below: Vec<Below>,
}

/// Which slot a sample is of.
fn slot(sample: &Sample) -> u32 {
    NodeId::unpack(sample.id).index
}

impl Survey {
    /// From the samples of all nodes, in order of index (as a plane gives them). A node without one
    /// counts as idle.
    pub fn new(tree: &Tree, samples: Vec<Sample>) -> Self {
        let slots = tree.iter().last().map_or(0, |n| n.id.index as usize + 1);
        let mut survey = Self { samples, below: vec![Below::default(); slots], ..Self::default() };
        let mut held = vec![false; slots];
        // Parents come before their children, so that a cap holds back all below it.
        let order: Vec<&Node> = tree.walk().map(|(_, node)| node).collect();
        for node in &order {
            let above = node.parent.is_some_and(|p| held[p.index as usize]);
            held[node.id.index as usize] = above || survey.sample(node.id).throttled;
        }
        // And children before their parents, so that sums go up.
        for node in order.iter().rev() {
            let at = node.id.index as usize;
            if node.kind.is_queue() {
                let sample = survey.sample(node.id);
                survey.below[at] = Below {
                    queued: sample.queued.into(),
                    running: sample.running.into(),
                    members: sample.members.into(),
                };
            }
            if let Some(parent) = node.parent {
                let (own, sum) = (survey.below[at], &mut survey.below[parent.index as usize]);
                sum.queued += own.queued;
                sum.running += own.running;
                sum.members += own.members;
            }
        }
        survey.all = Shares::all(tree);
        // A queue competes when it has threads and no cap on its way up holds it back.
        let competes = |id: NodeId| {
            let own = survey.below[id.index as usize];
            !held[id.index as usize] && own.queued + own.running > 0
        };
        survey.now = Shares::now(tree, competes);
        let q0 = survey.sample(NodeId::Q0);
        if let Some(Outside { tree: weight, wanting, all, inside }) = q0.outside {
            let beside = |outside, inside| Beside { tree: weight, outside, inside };
            survey.all = survey.all.beside(tree, beside(all, q0.members > 0));
            survey.now = survey.now.beside(tree, beside(wanting, inside > 0));
        }
        survey
    }

    /// What a node was served.
    pub fn service(&self, id: NodeId) -> u64 {
        self.sample(id).service_ns
    }

    fn sample(&self, id: NodeId) -> Sample {
        let found = self.samples.binary_search_by_key(&id.index, slot).ok();
        found.map(|i| self.samples[i]).filter(|s| s.id == id.pack()).unwrap_or(Sample::new(id))
    }
}

/// A thread that is tagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What it asks of its queue's class.
    pub params: ThreadParams,
}

/// What a file of a node is printed from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The resource's tree.
    pub tree: &'a Tree,
    /// Whose file.
    pub node: NodeId,
    /// Of all nodes. Needed by `stat` and `backlog` only; for the other files an empty one will do.
    pub survey: &'a Survey,
    /// Of this node. Needed by `members` only.
    pub members: &'a [Member],
    /// Of this node. Needed by `dropped` only.
    pub dropped: &'a [Dropper],
    /// What the resource is: the unit of its service.
    pub kind: ResourceKind,
    /// All of it, in its unit per second; what the root's `share` shows as its minimum.
    pub capacity: u64,
}

impl View<'_> {
    fn node(&self) -> Result<&Node, Error> {
        self.tree.node(self.node)
    }
}

/// The text of a file of a node. `Stale` when the node is gone, `NotPermitted` for files that are
/// not read, or not through this function.
pub fn render_read(file: FileKind, view: &View<'_>) -> Result<String, Error> {
    match TABLE.iter().find(|e| e.file == file).map(|e| (e.name, e.read)) {
        Some((_, Read::Node(render))) => render(view),
        Some((name, _)) => Err(Error::new(ErrorKind::NotPermitted, format!("{name} is not read"))),
        None => Err(Error::new(ErrorKind::NotPermitted, "a directory is not read")),
    }
}

pub(crate) fn share(view: &View<'_>) -> Result<String, Error> {
    let node = view.node()?;
    if node.parent.is_none() {
        return Ok(format!("{} {}\n", node.weight, Amount::of(view.kind, view.capacity)));
    }
    Ok(format!("{}\n", node.share()))
}

/// Of all children, in order of their names; `shares` takes such lines.
pub(crate) fn shares(view: &View<'_>) -> Result<String, Error> {
    let mut out = String::new();
    for child in view.node()?.children.values().filter_map(|&c| view.tree.get(c)) {
        let _ = writeln!(out, "{} {}", child.name, child.share());
    }
    Ok(out)
}

pub(crate) fn cap(view: &View<'_>) -> Result<String, Error> {
    Ok(show_cap(view.node()?.cap) + "\n")
}

pub(crate) fn policy(view: &View<'_>) -> Result<String, Error> {
    match view.node()?.kind {
        Kind::Scheduler(policy) => Ok(format!("{policy}\n")),
        Kind::Queue(_) => Err(Error::new(ErrorKind::NotScheduler, "a queue has no policy")),
    }
}

pub(crate) fn tune(view: &View<'_>) -> Result<String, Error> {
    let node = view.node()?;
    Ok(show_tune(&node.tune, view.kind, node.kind, view.tree.policy_above(node.id)) + "\n")
}

pub(crate) fn class(view: &View<'_>) -> Result<String, Error> {
    match view.node()?.kind {
        Kind::Queue(class) => Ok(format!("{class}\n")),
        Kind::Scheduler(_) => Err(Error::new(ErrorKind::NotQueue, "a scheduler node has no class")),
    }
}

/// A line for each entry.
pub(crate) fn access(view: &View<'_>) -> Result<String, Error> {
    let mut out = String::new();
    for entry in &view.node()?.access {
        let _ = writeln!(out, "{entry}");
    }
    Ok(out)
}

pub(crate) fn gc(view: &View<'_>) -> Result<String, Error> {
    Ok(format!("{}\n", u8::from(view.node()?.gc)))
}

fn state_word(node: &Node) -> &'static str {
    if node.draining { "draining" } else { "active" }
}

pub(crate) fn state(view: &View<'_>) -> Result<String, Error> {
    Ok(format!("{}\n", state_word(view.node()?)))
}

pub(crate) fn backlog(view: &View<'_>) -> Result<String, Error> {
    let (node, s) = (view.node()?, view.survey.sample(view.node));
    let (served, service) = (s.served, s.service_since_reset_ns);
    let (limit, bytes) = (node.members_max, show_bytes(node.bytes_max));
    let mut out =
        format!("served {served}\nservice_{} {service}\nlimit {limit} {bytes}\n", view.kind.unit());
    if let Some(disk) = s.disk {
        let _ = writeln!(
            out,
            "queued {}\nqueued_bytes {}\nrunning {}",
            s.queued, disk.queued_bytes, s.running
        );
    }
    if let Some(link) = s.link {
        let _ = writeln!(out, "queued {}\nqueued_bytes {}", s.queued, link.queued_bytes);
        let _ = writeln!(out, "dropped {}\ndropped_bytes {}", link.dropped, link.dropped_bytes);
        let _ =
            writeln!(out, "limit_packets {}\nlimit_bytes {}", link.limit_packets, link.limit_bytes);
    }
    Ok(out)
}

pub(crate) fn members(view: &View<'_>) -> Result<String, Error> {
    view.node()?;
    let mut members = view.members.to_vec();
    members.sort_unstable();
    let mut out = String::new();
    for member in members {
        let _ = writeln!(out, "tid {} pid {}{}", member.tid, member.pid, member.params);
    }
    Ok(out)
}

pub(crate) fn stat(view: &View<'_>) -> Result<String, Error> {
    let node = view.node()?;
    let (own, survey) = (view.survey.sample(node.id), view.survey);
    let Below { queued, running, members } =
        survey.below.get(node.id.index as usize).copied().unwrap_or_default();
    let minimum = if node.parent.is_some() { node.minimum.per_second() } else { 0 };
    let cpu = view.kind == ResourceKind::Cpu;
    let short = if cpu { minimum.div_ceil(NS_PER_CPU).saturating_sub(members) } else { 0 };
    let unit = view.kind.unit();
    let [service, promised, sure] =
        ["service", "minimum", "guarantee"].map(|what| format!("{what}_{unit}"));
    let lines: [(&str, &dyn std::fmt::Display); 13] = [
        ("weight_share_ppm", &survey.all.ppm(view.tree, node.id)),
        ("effective_share_ppm", &survey.now.ppm(view.tree, node.id)),
        (&service, &own.service_ns),
        ("runnable", &(queued + running)),
        ("queued", &queued),
        ("running", &running),
        ("members", &members),
        ("throttled", &u8::from(own.throttled)),
        ("throttled_ns", &own.throttled_ns),
        ("state", &state_word(node)),
        (&promised, &minimum),
        (&sure, &survey.all.guarantee(view.tree, node.id)),
        ("threads_short", &short),
    ];
    let mut out = String::new();
    for (key, value) in lines {
        let _ = writeln!(out, "{key} {value}");
    }
    if own.request_ns > 0 {
        let _ = writeln!(out, "request_ns {}", own.request_ns);
        // RTSS'98, 4.4: the execution time over the share.
        let sure = u128::from(survey.all.guarantee(view.tree, node.id));
        if let Some(period) =
            (u128::from(own.request_ns) * u128::from(NS_PER_CPU)).checked_div(sure)
        {
            let _ = writeln!(out, "period_ns {period}");
        }
    }
    if let Some(link) = own.link {
        let _ = writeln!(out, "dropped {}", link.dropped);
    }
    received(&mut out, &own);
    Ok(out)
}

/// What has come in, of a link with an entrance.
fn received(out: &mut String, own: &Sample) {
    if let Some(ReceiveSample { packets, bytes, full, over }) = own.receive {
        let _ = writeln!(out, "received {packets}\nreceived_bytes {bytes}");
        let _ = writeln!(out, "receive_dropped_full {full}\nreceive_dropped_rate {over}");
    }
    if let Some(ReceiveOthers { shared, forwarded, nobody, elsewhere }) = own.others {
        let _ = writeln!(out, "received_shared {shared}\nreceived_forwarded {forwarded}");
        let _ = writeln!(out, "received_nobody {nobody}\nreceived_elsewhere {elsewhere}");
    }
}

/// Whose packets the queue lost on their way in: `PREFIX PACKETS ERROR`, the heaviest first.
pub(crate) fn dropped(view: &View<'_>) -> Result<String, Error> {
    view.node()?;
    let mut out = String::new();
    for Dropper { address, length, packets, over } in view.dropped {
        let _ = writeln!(out, "{address}/{length} {packets} {over}");
    }
    Ok(out)
}

/// The text of a process's `default` or `cdefault`, in the paper's form: paths with a blank between
/// two.
pub fn render_defaults(mount: &str, queues: &[(Name, NodePath)]) -> String {
    let words: Vec<String> =
        queues.iter().map(|(resource, path)| format!("{mount}/{resource}/{path}")).collect();
    words.join(" ") + "\n"
}

/// The text of a process's `fds`: a line `FD RESOURCE PATH` for each tag, in order.
pub fn render_descriptors(mount: &str, tags: &[(u32, Name, NodePath)]) -> String {
    let lines = tags
        .iter()
        .map(|(fd, resource, path)| format!("{fd} {resource} {mount}/{resource}/{path}\n"));
    lines.collect()
}

/// In the text of a process's files: a resource gave no answer, so its part is missing.
pub fn render_missing(resource: &Name, why: &str) -> String {
    format!("# {resource}: {why}\n")
}

/// How a driver is, for `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health<'a> {
    /// It holds the resource.
    Running,
    /// It lost it, for this reason.
    Detached(&'a str),
}

/// What `status` says about one resource.
#[derive(Clone, Copy, Debug)]
pub struct ResourceStatus<'a> {
    /// Its name.
    pub resource: &'a str,
    /// `full`, `stock` or `count`.
    pub driver: &'a str,
    /// In words: `sched_ext`, `cgroup v2 (threaded)`.
    pub mechanism: &'a str,
    /// Of the data plane's interface.
    pub abi: u32,
    /// Whether it holds.
    pub health: Health<'a>,
    /// Times that the driver was brought back.
    pub revivals: u64,
    /// Why it was detached last, if ever.
    pub last_detachment: Option<&'a str>,
    /// What new nodes are.
    pub personality: Personality,
    /// Nodes in the tree.
    pub nodes: usize,
    /// Number of the last edit in effect.
    pub edits: u64,
    /// Whether a thread can change its own tag by system call.
    pub chcpures: bool,
    /// What q0 is weighed against outside our tree, if anything.
    pub outside: Option<&'a str>,
    /// What the driver cannot do, one sentence each.
    pub limits: &'a [String],
}

/// The text of `status`: `key value` lines in a fixed order, keys `version`, then
/// `<resource>.<what>`.
pub fn render_status(version: &str, resources: &[ResourceStatus<'_>]) -> String {
    let mut out = format!("version {version}\n");
    for status in resources {
        let mut put = |key: &str, value: &dyn std::fmt::Display| {
            // A value is one line, whatever a kernel or driver said.
            let value: String =
                value.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let _ = writeln!(out, "{}.{key} {value}", status.resource);
        };
        put("driver", &status.driver);
        put("mechanism", &status.mechanism);
        put("abi", &status.abi);
        match status.health {
            Health::Running => put("health", &"running"),
            Health::Detached(why) => put("health", &format_args!("detached: {why}")),
        }
        put("revivals", &status.revivals);
        put("last_detachment", &status.last_detachment.unwrap_or("none"));
        put("personality", &status.personality);
        put("nodes", &status.nodes);
        put("edits", &status.edits);
        put("chcpures", &if status.chcpures { "yes" } else { "no" });
        put("outside", &status.outside.unwrap_or("nothing"));
        for limit in status.limits {
            put("limit", limit);
        }
    }
    out
}
