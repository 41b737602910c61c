// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract, and the counters.

use reserv_model::{Batch, Class, NodeId, Op, Outcome, Policy};

use super::cg::os;
use super::mirror::Carried;
use super::{Stock, outcome, sync};
use crate::cgroup::mounts::Version;
use crate::{
    Defaults, Descriptors, DriverInfo, Health, List, Lists, Packets, Plane, PlaneError, Sample,
    Target, Threads, Upgrade,
};

/// Of our directories and files; there is one so far.
const VERSION: u32 = 1;

impl Stock {
    /// Service and throttled time since the node was made.
    pub(super) fn counters(&self, id: NodeId) -> Result<Carried, PlaneError> {
        let node = self.state.mirror.get(id)?;
        let path = self.state.mirror.path(id)?;
        let read = |ns: std::io::Result<u64>, what: &str| match ns {
            Err(e) if super::cg::gone(&e) => Ok(None),
            other => other.map(Some).map_err(os(format!("{what} of {}", self.cg.cpu(&path)))),
        };
        let before = self.seen.borrow().get(&id).copied().unwrap_or_default();
        // Somebody may have removed the directory: the last reading stands.
        let Some(mut service_ns) = read(self.cg.usage_ns(&path), "usage")? else {
            return Ok(before);
        };
        let throttled_ns = read(self.cg.throttled_ns(&path), "throttled time")?.unwrap_or(0);
        if id == NodeId::ROOT || id == NodeId::Q0 {
            let machine = self.cg.machine_ns().map_err(os("CPU time of the machine"))?;
            let machine = machine.saturating_sub(self.state.machine_ns);
            if id == NodeId::ROOT {
                // The resource is the machine's CPU; q0 is what of it no other queue had.
                service_ns = machine;
            } else if let Ok(tree) = self.cg.usage_ns("") {
                service_ns += machine.saturating_sub(tree);
            }
        }
        let now = Carried {
            // The machine's own count is coarser than the cgroups', so a difference could run
            // backwards.
            service_ns: (service_ns + node.carried.service_ns).max(before.service_ns),
            throttled_ns: (throttled_ns + node.carried.throttled_ns).max(before.throttled_ns),
        };
        self.seen.borrow_mut().insert(id, now);
        Ok(now)
    }

    fn sample_node(&self, id: NodeId) -> Result<Sample, PlaneError> {
        let before = self.seen.borrow().get(&id).copied();
        let now = self.counters(id)?;
        let node = self.state.mirror.get(id)?;
        let tids =
            if node.scheduler { Vec::new() } else { self.cg.tids(&self.state.mirror.path(id)?)? };
        let runnable = tids.iter().filter(|tid| self.cg.is_runnable(**tid)).count();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(Sample {
            id: id.pack(),
            service_ns: now.service_ns,
            service_since_reset_ns: now.service_ns.saturating_sub(node.reset_service_ns),
            served: 0,
            queued: count(runnable),
            running: 0,
            members: count(tids.len()),
            throttled: before.is_some_and(|before| now.throttled_ns > before.throttled_ns),
            throttled_ns: now.throttled_ns,
            draining: node.draining,
            ..Sample::default()
        })
    }

    fn limits(&self) -> Vec<String> {
        let mut limits: Vec<String> = [
            "policy sfq stands for the kernel's fair scheduler (EEVDF or CFS); there is no other policy",
            "class ts only; per-thread weights are nice values",
            "a thread cannot change its own tag by system call, and a change takes as long as the kernel takes to move \
             a thread between cgroups (microseconds to milliseconds)",
            "one list per process: cdefault is always the same as default",
            "limits of members are checked when a thread is tagged, not when one is born",
            "service steps are not counted; threads that run are counted among those that wait",
            "real-time threads (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE) run before every reservation",
            "on several CPUs shares depend on the kernel's load balancer",
        ]
        .map(str::to_owned)
        .into();
        limits.extend(
            self.better.as_ref().map(|why| format!("the better driver cannot be used here: {why}")),
        );
        if self.cg.layout.version == Version::V2 {
            limits.push(
                "a tagged process leaves its own cgroup for the other controllers too: memory, io and pids are \
                 charged to the top cgroup meanwhile; tagging one thread of it takes the others to q0"
                    .into(),
            );
        }
        if !self.cg.has_idle() {
            limits.push("this kernel has no cpu.idle: weight 0 is only the smallest weight".into());
        }
        let range = self.cg.flavour().range();
        for id in &self.inexact {
            limits.push(format!(
                "the weights below {}.{} span more than {} : 1 and are rounded",
                id.index,
                id.generation,
                range.max / range.min
            ));
        }
        limits
    }
}

impl Plane for Stock {
    fn info(&self) -> DriverInfo {
        DriverInfo {
            name: "stock",
            mechanism: self.cg.flavour().mechanism().to_owned(),
            version: VERSION,
            limits: self.limits(),
            outside: Some(self.outside_words()),
            chcpures: false,
            cgroups: None,
        }
    }

    fn batch_max(&self) -> usize {
        usize::MAX
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        if let Some((last, draining)) = &self.state.last
            && last == batch
        {
            // The caller died, or did not hear us, after we had done it.
            return Ok(draining.iter().map(|d| outcome(*d)).collect());
        }
        if let Some(seq) = self.state.seq
            && batch.seq <= seq
        {
            return Err(PlaneError::Invalid(format!("batch {} after batch {seq}", batch.seq)));
        }
        let replay = self.state.seq.is_none();
        let mut new = self.state.mirror.clone();
        let facts = self.facts();
        let outcomes: Vec<Outcome> =
            batch.ops.iter().map(|op| new.edit(op, &facts, replay)).collect::<Result<_, _>>()?;
        let draining = outcomes.iter().map(|o| *o == Outcome::Draining).collect();
        self.transition(new, Some((batch.clone(), draining)))?;
        Ok(outcomes)
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        Ok(self.state.seq)
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        let mut new = self.state.mirror.clone();
        let mut gone = Vec::new();
        for node in self.state.mirror.nodes().filter(|n| n.draining) {
            if self.cg.tids(&self.state.mirror.path(node.id)?)?.is_empty() {
                new.forget(node.id);
                gone.push(node.id);
            }
        }
        if !gone.is_empty() {
            self.transition(new, None)?;
        }
        Ok(gone)
    }

    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        // Before the counters, which others read elsewhere at the same moment: this takes long.
        self.crowd(self.runnable_outside(0));
        let nodes = self.state.mirror.nodes().map(|n| self.sample_node(n.id));
        let mut samples: Vec<Sample> = nodes.collect::<Result<_, _>>()?;
        let inside: u32 = samples.iter().map(|sample| sample.queued).sum();
        if let Some(q0) = samples.iter_mut().find(|sample| sample.id == NodeId::Q0.pack()) {
            let running = self.runnable_outside(inside);
            q0.outside = Some(self.outside(running, q0.queued));
            q0.queued = q0.queued.saturating_add(running);
        }
        Ok(samples)
    }

    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        if id == NodeId::Q0 {
            let q0 = self.sample()?.into_iter().find(|sample| sample.id == id.pack());
            return q0.ok_or_else(|| PlaneError::NoNode(format!("{}.{}", id.index, id.generation)));
        }
        self.sample_node(id)
    }

    fn health(&mut self) -> Result<Health, PlaneError> {
        // q0 is the first directory made and the last removed but the root.
        let q0 = self.cg.cpu(&self.state.mirror.path(NodeId::Q0)?);
        if self.cg.kernel().exists(&q0) {
            Ok(Health::Running)
        } else {
            Ok(Health::Detached(format!("the cgroup {q0} was removed by somebody else")))
        }
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        let found = sync::scan(&self.cg)?;
        let seen = self.seen.borrow().clone();
        for (id, path) in self.state.mirror.paths() {
            if let Some(seen) = seen.get(&id)
                && id != NodeId::ROOT
                && id != NodeId::Q0
                && !self.cg.kernel().exists(&self.cg.cpu(&path))
            {
                self.state.mirror.get_mut(id)?.carried = *seen;
            }
        }
        self.make_all(&found)?;
        self.save()
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        self.dismantle().map_or(Ok(()), Err)
    }

    fn lacks(&self, op: &Op) -> Option<String> {
        super::refused(op)
    }

    fn supports_class(&self, class: Class) -> bool {
        super::has_class(class)
    }

    fn supports_policy(&self, policy: Policy) -> bool {
        super::has_policy(policy)
    }
}

impl Threads for Stock {
    fn tag(&mut self, target: Target, queue: NodeId) -> Result<usize, PlaneError> {
        self.retag(target, queue)
    }

    fn tag_of(&self, tid: i32) -> Result<NodeId, PlaneError> {
        Ok(self.node_at(&self.cg.locate(tid)?))
    }

    fn members(&self, queue: NodeId) -> Result<Vec<crate::Member>, PlaneError> {
        self.members_of(queue)
    }
}

impl Lists for Stock {
    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError> {
        let queue = self.tag_of(pid)?;
        Ok(Defaults { default: queue, child: queue })
    }

    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError> {
        let now = self.tag_of(pid)?;
        self.state.mirror.get(queue)?;
        if now == queue {
            return Ok(());
        }
        match list {
            List::Default => self.tag(Target::Process(pid), queue).map(drop),
            List::Child => Err(PlaneError::Unsupported(
                "children start in their parent's cgroup, so cdefault follows default: set default"
                    .into(),
            )),
        }
    }
}

impl Descriptors for Stock {}

impl Packets for Stock {}

impl Upgrade for Stock {}
