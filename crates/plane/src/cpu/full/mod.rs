// SPDX-License-Identifier: MIT OR Apache-2.0
//! The full CPU driver: our scheduler on sched_ext.
//!
//! The tree lives in the kernel (an arena of BPF), with the core of `sched/` compiled into the
//! programs of `bpf/cpu`. Everything is pinned under `RESERV_BPFFS`/cpu and does not need us: this
//! module loads it, finds it again, and makes calls (runs of pinned SYSCALL programs). The design
//! note is `docs/notes/cpu-full.md`.

mod abi;
mod calls;
mod compat;
pub mod groups;
mod load;
mod probe;
mod refs;
mod trace;
mod uses;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::{fs, ptr};

use reserv_model::{Batch, Class, DeleteMode, NodeId, Op, Outcome, Policy, ThreadParams, UseRule};

use self::abi::{RcCall, RcIo, RcNode, RcParam, RcState, RsBatch, param, tag, to};
use self::calls::Calls;
use self::load::os;
use crate::ops::{self, io_error, refusal, registered};
use crate::sys::{self, Mapped};
use crate::{
    Cgroups, Defaults, Descriptors, DriverInfo, Health, List, Lists, Member, Packets, Plane,
    PlaneError, Refs, Sample, Target, Threads, Upgrade,
};

pub use self::compat::Fallback;
pub use self::probe::probe;
pub use self::trace::{Event, EventKind, Tracer};

/// The driver. Dropping it leaves the scheduler running.
#[derive(Debug)]
pub struct Full {
    folder: PathBuf,
    program: OwnedFd,
    io: Mapped<RcIo>,
    state: Mapped<RcState>,
    draining: BTreeSet<NodeId>,
    calls: Calls,
}

/// Counters of the programs; for tests, benchmarks and `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times that the kernel gave us the CPUs.
    pub attached: u64,
    /// Times that it took them back.
    pub detached: u64,
    /// Time that kernel threads had under their floor, outside the tree's shares.
    pub kernel_threads_ns: u64,
    /// Threads that ran without being chosen.
    pub forced: u64,
    /// Threads that were chosen and never arrived.
    pub lost: u64,
    /// Sections of the tree's lock.
    pub sections: u64,
    /// Threads chosen.
    pub steps: u64,
    /// Threads that got no item.
    pub refused: u64,
    /// Cgroups that are mirrored inside q0.
    pub groups: u64,
    /// Cgroups for which there was no room: their threads stand in an ancestor's queue.
    pub groups_folded: u64,
    /// The longest section of the tree's lock since this was last asked, and the line where it
    /// ended: measured with `RESERV_TIMED` in the environment only.
    pub section_ns: u64,
    /// See `section_ns`.
    pub section_line: u32,
    /// Likewise: choices while a thread waited beside a CPU that idled and that it may use.
    pub idle_waits: u64,
    /// Of those, where it waited for half a step and nobody had told that CPU.
    pub idle_late: u64,
    /// Device number, as the kernel packs it, of the mount whose queues chcpures() takes; 0 when it
    /// is gone.
    pub mount: u64,
}

/// What the driver does without on this kernel; `Err` says why it cannot run.
pub fn fallbacks() -> Result<Vec<&'static Fallback>, String> {
    compat::lacks().map(compat::Lacks::fallbacks)
}

/// Take the CPUs, with a tree of root and q0.
pub fn start() -> Result<Full, PlaneError> {
    probe().map_err(PlaneError::Unsupported)?;
    let flat = groups::ignored();
    if !flat {
        groups::check()?;
    }
    if let Some(other) = load::scx_root()
        && other != "reserv"
    {
        return Err(PlaneError::Taken(format!("the sched_ext scheduler '{other}' is loaded")));
    }
    let folder = load::folder();
    load::unload(&folder)?;
    match load::load_again(&folder, flat) {
        Ok(true) => return Full::open(folder),
        Ok(false) => {}
        Err(error) => {
            load::unload(&folder)?;
            if matches!(error, PlaneError::Taken(_)) {
                return Err(error);
            }
            tracing::warn!(%error, "the scheduler that was put by does not start: it is loaded anew");
        }
    }
    let mut tries = 0;
    while let Err(error) = load::load(&folder, flat) {
        let _ = load::unload(&folder);
        // Making an arena allocates without being allowed to wait (7.2), and now and then there is
        // nothing at hand.
        if tries == 20 || !error.to_string().contains("'arena': failed to create: -ENOMEM") {
            return Err(error);
        }
        tries += 1;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Full::open(folder)
}

/// Find the tree that was left running; `None` when there is none.
pub fn adopt() -> Result<Option<Full>, PlaneError> {
    let folder = load::folder();
    if !folder.join("state").exists() {
        return Ok(None);
    }
    let full = Full::open(folder)?;
    // Whoever made the pins was stopped before the kernel had the scheduler: start() clears that
    // away.
    Ok((full.state().attached > 0).then_some(full))
}

impl Full {
    fn open(folder: PathBuf) -> Result<Self, PlaneError> {
        let program = load::open_program(&folder)?;
        let map = |name: &str| {
            sys::open(&folder.join(name)).map_err(os(format!("open the pinned map '{name}'")))
        };
        let io = Mapped::new(&map("io")?).map_err(os("map 'io'"))?;
        let state = Mapped::new(&map("state")?).map_err(os("map 'state'"))?;
        let calls = Calls::default();
        let mut full = Self { folder, program, io, state, draining: BTreeSet::new(), calls };
        let state = full.state();
        if state.magic != abi::MAGIC || state.abi != abi::ABI_VERSION {
            return Err(PlaneError::Invalid(format!(
                "the pinned scheduler has magic {:#x} and ABI version {}, this daemon understands {:#x} and {}: \
                 take it down with the daemon that made it",
                state.magic,
                state.abi,
                abi::MAGIC,
                abi::ABI_VERSION
            )));
        }
        let nodes = full.nodes()?;
        full.draining =
            nodes.iter().filter(|n| n.dying != 0).map(|n| NodeId::unpack(n.id)).collect();
        full.calls = Calls::of(&full.folder, &nodes);
        full.forget_use_of_gone(&nodes);
        Ok(full)
    }

    fn state(&self) -> RcState {
        // SAFETY: the mapping is as large as the structure, which is plain numbers; a torn read of
        // a counter is possible and harmless.
        unsafe { ptr::read_volatile(self.state.at()) }
    }

    /// What the programs count, beside the tree's own counters.
    pub fn counters(&self) -> Counters {
        // Those that live in the tree are copied first. The call cannot fail while there is a tree,
        // and there is one.
        if let Err(error) = self.call(to::REFRESH, &mut RcCall::default()) {
            tracing::warn!(%error, "counters may be old");
        }
        let s = self.state();
        Counters {
            attached: s.attached,
            detached: s.detached,
            kernel_threads_ns: s.kthread_ns,
            forced: s.forced,
            lost: s.lost,
            sections: s.sections,
            steps: s.steps,
            refused: s.refused,
            section_ns: s.section_ns,
            section_line: s.section_line,
            idle_waits: s.idle_waits,
            idle_late: s.idle_late,
            groups: s.groups,
            groups_folded: s.groups_folded,
            mount: s.mount_dev,
        }
    }

    /// What becomes of the cgroups' own settings.
    fn cgroups(&self) -> Cgroups {
        let state = self.state();
        let mut found = Cgroups {
            ignored: state.mirror == 0,
            mirrored: state.groups,
            without_room: state.groups_folded,
            names: Vec::new(),
        };
        if found.without_room > 0 {
            let ids = load::folded(&self.folder).unwrap_or_default();
            found.names = groups::paths(&ids);
            found.names.truncate(groups::NAMED_MAX);
        }
        found
    }

    fn call(&self, what: u32, call: &mut RcCall) -> Result<i32, PlaneError> {
        load::call(&self.program, what, call)
    }

    /// A call that must answer 0, or an error about a node.
    fn call_node(&self, what: u32, call: &mut RcCall, id: NodeId) -> Result<(), PlaneError> {
        match -self.call(what, call)? {
            0 => Ok(()),
            libc::ESRCH => Err(PlaneError::NoProcess(call.tid)),
            errno => Err(refusal(errno, format!("{id:?}"))),
        }
    }

    fn nodes(&self) -> Result<Vec<RcNode>, PlaneError> {
        let mut nodes: Vec<RcNode> = Vec::new();
        let mut runs = Vec::new();
        let mut first = 0;
        loop {
            let mut call = RcCall { first, ..RcCall::default() };
            if let errno @ 1.. = -self.call(to::SAMPLE, &mut call)? {
                return Err(os("sample the tree")(io_error(errno)));
            }
            let from = nodes.len();
            for i in 0..(call.count as usize).min(abi::SAMPLES_MAX) {
                // SAFETY: the program has just written `count` nodes there; it is done.
                nodes.push(unsafe {
                    ptr::read_volatile(&raw const (*self.io.at()).samples.node[i])
                });
            }
            for i in 0..(call.runs as usize).min(abi::UNITS_MAX) {
                // SAFETY: as above, `runs` of them.
                runs.push((from, unsafe {
                    ptr::read_volatile(&raw const (*self.io.at()).samples.run[i])
                }));
            }
            if call.first >= call.what || call.first <= first {
                break;
            }
            first = call.first;
        }
        // Steps in service count as far as they have come. Each call read its own nodes and all
        // steps at one instant.
        let place =
            |nodes: &[RcNode], id: u64| nodes.binary_search_by_key(&id32(id), |n| id32(n.id)).ok();
        for (i, &(from, run)) in runs.iter().enumerate() {
            let to = runs[i..].iter().map(|r| r.0).find(|f| *f > from).unwrap_or(nodes.len());
            let mut at = place(&nodes, run.node);
            while let Some(found) = at {
                if (from..to).contains(&found) {
                    nodes[found].service += run.ran;
                }
                at = if nodes[found].parent == 0 {
                    None
                } else {
                    place(&nodes, nodes[found].parent)
                };
            }
        }
        Ok(nodes)
    }

    fn one(&self, id: NodeId) -> Result<RcNode, PlaneError> {
        let mut call = RcCall { node: id.pack(), ..RcCall::default() };
        self.call_node(to::SAMPLE_ONE, &mut call, id)?;
        // SAFETY: the program has just written the node there.
        Ok(unsafe { ptr::read_volatile(&raw const (*self.io.at()).samples.node[0]) })
    }

    fn threads_of(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        let mut members = Vec::new();
        let mut first = 0;
        loop {
            let mut call = RcCall { node: queue.pack(), first, ..RcCall::default() };
            self.call_node(to::MEMBERS, &mut call, queue)?;
            for i in 0..(call.count as usize).min(abi::MEMBERS_MAX) {
                // SAFETY: the program has just written `count` members there.
                let m = unsafe { ptr::read_volatile(&raw const (*self.io.at()).member[i]) };
                members.push(Member { tgid: m.tgid, tid: m.tid, params: m.param.into() });
            }
            if call.what != 0 || call.first <= first {
                members.sort_unstable();
                return Ok(members);
            }
            first = call.first;
        }
    }

    fn tag_thread(&self, tid: i32, queue: NodeId) -> Result<(), PlaneError> {
        let mut call = RcCall { node: queue.pack(), tid, what: tag::SET, ..RcCall::default() };
        self.call_node(to::TAG, &mut call, queue)
    }

    /// A thread leaves its queue: for q0, or, where it is there because it was bound to a
    /// container, for where it was before.
    fn send_away(&self, tid: i32) -> Result<(), PlaneError> {
        let mut call =
            RcCall { node: NodeId::Q0.pack(), tid, what: tag::LEAVE, ..RcCall::default() };
        self.call_node(to::TAG, &mut call, NodeId::Q0)
    }

    /// What a thread asks for.
    pub fn params(&self, tid: i32) -> Result<ThreadParams, PlaneError> {
        let mut call = RcCall { tid, what: param::GET, ..RcCall::default() };
        match -self.call(to::PARAM, &mut call)? {
            // SAFETY: the program has just written it.
            0 => Ok(unsafe { ptr::read_volatile(&raw const (*self.io.at()).param) }.into()),
            libc::ESRCH => Err(PlaneError::NoProcess(tid)),
            errno => Err(refusal(errno, format!("parameters of thread {tid}"))),
        }
    }

    /// Everybody in a queue that drains is sent away, so that it is gone. Answers whether it is.
    fn flush(&self, queue: NodeId) -> Result<bool, PlaneError> {
        for _ in 0..100 {
            match self.threads_of(queue) {
                Ok(members) => {
                    // One who cannot be sent keeps none of the others.
                    let sent = members.iter().map(|member| self.send_away(member.tid));
                    let stays = sent.fold(None, |stays, sent| match sent {
                        Ok(()) | Err(PlaneError::NoProcess(_)) => stays,
                        Err(error) => Some(error),
                    });
                    if let Some(error) = stays {
                        return Err(error);
                    }
                }
                Err(PlaneError::NoNode(_)) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl From<ThreadParams> for RcParam {
    fn from(p: ThreadParams) -> Self {
        let (weight, prio) = (p.weight, p.priority);
        Self {
            weight,
            prio,
            period_ns: p.period_ns,
            budget_ns: p.budget_ns,
            deadline_ns: p.deadline_ns,
        }
    }
}

impl From<RcParam> for ThreadParams {
    fn from(p: RcParam) -> Self {
        let (weight, priority) = (p.weight, p.prio);
        Self {
            weight,
            priority,
            period_ns: p.period_ns,
            budget_ns: p.budget_ns,
            deadline_ns: p.deadline_ns,
        }
    }
}

/// The index in a packed handle.
fn id32(id: u64) -> u64 {
    id & 0xffff_ffff
}

fn sample_of(n: &RcNode, queued: u32) -> Sample {
    Sample {
        id: n.id,
        service_ns: n.service,
        service_since_reset_ns: n.service.wrapping_sub(n.service_base),
        served: n.served,
        queued,
        running: n.running,
        members: n.members,
        throttled: n.throttled != 0,
        throttled_ns: n.throttled_ns,
        request_ns: n.request,
        draining: n.dying != 0,
        ..Sample::default()
    }
}

/// Whether it can order a queue so.
pub(crate) fn has_class(class: Class) -> bool {
    registered("RS_CLASSES", class as u8)
}

/// Whether it can order the children of a node so.
pub(crate) fn has_policy(policy: Policy) -> bool {
    registered("RS_POLICIES", policy as u8)
}

impl Plane for Full {
    fn info(&self) -> DriverInfo {
        DriverInfo {
            name: "full",
            mechanism: "sched_ext".into(),
            version: abi::ABI_VERSION,
            limits: load::lost(&self.folder),
            outside: None,
            chcpures: load::hops(&self.folder),
            cgroups: Some(self.cgroups()),
        }
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        self.apply_if(batch, 0)
    }

    fn grants(&self) -> Result<u32, PlaneError> {
        self.call(to::REFRESH, &mut RcCall::default())?;
        Ok(self.state().grants)
    }

    fn apply_if(&mut self, batch: &Batch, grants: u32) -> Result<Vec<Outcome>, PlaneError> {
        let mut done = ops::encoded(batch)?;
        done.grants = grants;
        let at = self.io.at().cast::<RsBatch>();
        // SAFETY: `io` is ours between two calls, and as large as the batch.
        unsafe { done.put(at) };
        let answer = self.call(to::EDIT, &mut RcCall::default())?;
        // SAFETY: the program is done with it.
        unsafe { done.take(at) };
        if answer == -libc::EAGAIN && grants != 0 {
            return Err(PlaneError::Overtaken);
        }
        if answer < 0 {
            return Err(ops::refused(&done, batch, answer, || self.applied_seq()));
        }
        self.calls.saw(batch);
        let mut outcomes = Vec::with_capacity(batch.ops.len());
        for (edit, slot) in batch.ops.iter().zip(&done.op) {
            let mut outcome = ops::outcome(slot);
            if let Op::Delete { id, mode } = *edit
                && outcome == Outcome::Draining
            {
                // The batch is in effect: whoever could not be moved is no reason to refuse it.
                let flushed = || {
                    self.flush(id).unwrap_or_else(|error| {
                        tracing::warn!(%error, ?id, "a deleted queue still has members");
                        false
                    })
                };
                if mode == DeleteMode::Flush && flushed() {
                    outcome = Outcome::Done;
                } else {
                    self.draining.insert(id);
                }
            }
            outcomes.push(outcome);
        }
        let gone = batch
            .ops
            .iter()
            .filter_map(|edit| if let Op::Delete { id, .. } = edit { Some(*id) } else { None });
        self.forget_use(&gone.collect::<Vec<_>>());
        Ok(outcomes)
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        self.call(to::REFRESH, &mut RcCall::default())?;
        Ok(Some(self.state().seq))
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        let mut gone = Vec::new();
        for id in self.draining.iter().copied().collect::<Vec<_>>() {
            match self.one(id) {
                Ok(_) => {}
                Err(PlaneError::NoNode(_)) => {
                    self.draining.remove(&id);
                    gone.push(id);
                }
                Err(error) => return Err(error),
            }
        }
        // Told while it drained, perhaps.
        self.forget_use(&gone);
        Ok(gone)
    }

    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        let nodes = self.nodes()?;
        let mut queued: Vec<u32> = nodes.iter().map(|n| n.queued).collect();
        let place = |id: u64| nodes.binary_search_by_key(&id32(id), |n| id32(n.id)).ok();
        for n in &nodes {
            let mut parent = n.parent;
            while n.queued > 0
                && parent != 0
                && let Some(at) = place(parent)
            {
                queued[at] += n.queued;
                parent = nodes[at].parent;
            }
        }
        Ok(nodes.iter().zip(queued).map(|(n, queued)| sample_of(n, queued)).collect())
    }

    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        self.one(id)?;
        let all = self.sample()?;
        all.into_iter()
            .find(|s| s.id == id.pack())
            .ok_or_else(|| PlaneError::NoNode(format!("{id:?}")))
    }

    fn refs(&self, ids: &[NodeId]) -> Result<Vec<Refs>, PlaneError> {
        self.references(ids)
    }

    fn health(&mut self) -> Result<Health, PlaneError> {
        let state = self.state();
        if state.attached > state.detached {
            return Ok(Health::Running);
        }
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
        };
        let (reason, message) = (text(&state.exit_reason), text(&state.exit_msg));
        let mut why = format!("the kernel took the CPUs back: {reason} (kind {})", state.exit_kind);
        if !message.is_empty() {
            why = format!("{why}: {message}");
        }
        // Its owner's choice: nothing is tried meanwhile.
        if let Some(other) = load::another() {
            return Ok(Health::Waiting(format!(
                "the sched_ext scheduler '{other}' has the CPUs, and Reserv comes back when it has gone ({why})"
            )));
        }
        Ok(Health::Detached(why))
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        if self.state().attached > self.state().detached {
            return Ok(());
        }
        load::attach_again(&self.folder)
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        load::put_by(&self.folder)
    }

    fn supports_class(&self, class: Class) -> bool {
        has_class(class)
    }

    fn supports_policy(&self, policy: Policy) -> bool {
        has_policy(policy)
    }
}

impl Threads for Full {
    fn tag(&mut self, target: Target, queue: NodeId) -> Result<usize, PlaneError> {
        let pid = match target {
            Target::Thread(tid) => return self.tag_thread(tid, queue).map(|()| 1),
            Target::Process(pid) => pid,
        };
        let mut done = BTreeSet::new();
        loop {
            let before = done.len();
            let threads = fs::read_dir(format!("/proc/{pid}/task"))
                .map_err(|_| PlaneError::NoProcess(pid))?;
            for tid in threads
                .flatten()
                .filter_map(|e| e.file_name().to_string_lossy().parse::<i32>().ok())
            {
                if done.contains(&tid) {
                    continue;
                }
                match self.tag_thread(tid, queue) {
                    Ok(()) => {
                        done.insert(tid);
                    }
                    Err(PlaneError::NoProcess(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            // A thread made meanwhile inherited the tag of one that we may not have reached yet:
            // look again.
            if done.len() == before {
                break;
            }
        }
        if done.is_empty() { Err(PlaneError::NoProcess(pid)) } else { Ok(done.len()) }
    }

    fn tag_of(&self, tid: i32) -> Result<NodeId, PlaneError> {
        let mut call = RcCall { tid, ..RcCall::default() };
        self.call_node(to::TAG_GET, &mut call, NodeId::Q0)?;
        Ok(NodeId::unpack(call.node))
    }

    fn params_of(&self, tid: i32) -> Result<ThreadParams, PlaneError> {
        self.params(tid)
    }

    fn set_params(&mut self, tid: i32, params: &ThreadParams) -> Result<(), PlaneError> {
        // SAFETY: the map is ours between two calls, and nobody else writes this part of it.
        unsafe { ptr::write_volatile(&raw mut (*self.io.at()).param, (*params).into()) };
        let mut call = RcCall { tid, what: param::SET, ..RcCall::default() };
        match -self.call(to::PARAM, &mut call)? {
            0 => Ok(()),
            libc::ESRCH => Err(PlaneError::NoProcess(tid)),
            libc::ENOSPC => Err(PlaneError::Full(
                "its queue is not guaranteed what the budgets of all its threads need".into(),
            )),
            errno => Err(refusal(errno, format!("parameters{params} of thread {tid}"))),
        }
    }

    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        if queue == NodeId::Q0 {
            return Ok(Vec::new());
        }
        self.threads_of(queue)
    }
}

impl Lists for Full {
    fn set_mount(&mut self, dev: u64) -> Result<(), PlaneError> {
        // st_dev as the C library packs it, to the kernel's own form.
        let dev = u64::from(libc::major(dev)) << 20 | u64::from(libc::minor(dev));
        let mut call = RcCall { node: dev, what: 1, ..RcCall::default() };
        self.call(to::CONFIGURE, &mut call).map(drop)
    }

    fn set_binds_children(&mut self, yes: bool) -> Result<(), PlaneError> {
        let mut call = RcCall { node: yes.into(), what: 8, ..RcCall::default() };
        self.call(to::CONFIGURE, &mut call).map(drop)
    }

    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError> {
        let mut call = RcCall { tid: pid, ..RcCall::default() };
        self.call_node(to::LISTS_GET, &mut call, NodeId::Q0)?;
        Ok(Defaults { default: NodeId::unpack(call.node), child: NodeId::unpack(call.node2) })
    }

    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError> {
        let what = u32::from(list == List::Child);
        let mut call = RcCall { tid: pid, node: queue.pack(), what, ..RcCall::default() };
        self.call_node(to::LISTS_SET, &mut call, queue)
    }

    fn set_use(&mut self, queue: NodeId, rules: &[UseRule]) -> Result<(), PlaneError> {
        self.tell_use(queue, rules)
    }
}

impl Descriptors for Full {}

impl Packets for Full {}

impl Upgrade for Full {}
