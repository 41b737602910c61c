// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU driver for kernels without sched_ext: a tree of cgroups beside everybody else's.
//!
//! The problem: a kernel that cannot load our scheduler still has one that divides CPU time by
//! weight among cgroups. The idea: mirror the tree of reservations in cgroups and let the kernel do
//! the rest. The rules: one cgroup (`reserv`, or what `RESERV_CGROUP` names) at the top of the
//! hierarchy, below it a directory per node; sibling weights scaled as a set (`weights`); a thread
//! is tagged by being moved; a thread that nobody tagged stays where it is, and the weight of our
//! tree is set so that it is served about as q0 would be.
//!
//! Where members came from, and weights in the kernel's numbers, are common to drivers by cgroups
//! ([`crate::cgroup`]). What it cannot do stands in [`DriverInfo::limits`]; the design note is
//! `docs/stock-driver.md`.

mod cg;
mod mirror;
mod outside;
mod plane;
mod state;
mod sync;
mod tags;
mod v1;
mod v2;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Instant;

use reserv_model::{Batch, Class, NodeId, Outcome, Policy, Weight};

use self::cg::{Cg, os};
pub(crate) use self::mirror::refused;
use self::mirror::{Attr, Carried, Facts, Mirror, Scope, Shape};
use self::outside::Crowd;
use self::state::{Leaving, State, Step};
use self::sync::{Actual, Log};
use crate::cgroup::kernel::{Kernel, Real};
use crate::cgroup::mounts;
use crate::cgroup::origin::Origins;
use crate::cgroup::weights::Share;
use crate::{PlaneError, Target};

/// Whether it can order a queue so.
pub(crate) fn has_class(class: Class) -> bool {
    mirror::class_refused(class).is_none()
}

/// Whether it can order the children of a node so.
pub(crate) fn has_policy(policy: Policy) -> bool {
    mirror::policy_refused(policy).is_none()
}

/// The state file is written anew after so many steps.
const STEPS_MAX: usize = if cfg!(test) { 8 } else { 512 };

/// Names and places that the environment sets.
#[derive(Clone, Debug)]
struct Config {
    cgroup: String,
    run: String,
}

impl Config {
    fn from_env() -> Result<Self, PlaneError> {
        Ok(Self {
            cgroup: crate::settings::cgroup()?,
            run: crate::settings::run().display().to_string(),
        })
    }

    fn state(&self) -> String {
        format!("{}/stock-cpu.state", self.run)
    }

    fn origins(&self) -> String {
        format!("{}/stock-cpu.origins", self.run)
    }
}

/// The driver.
pub struct Stock {
    cg: Cg,
    config: Config,
    state: State,
    origins: Origins,
    /// What the cgroups are set to.
    written: BTreeMap<NodeId, Attr>,
    /// Scheduler nodes whose children's ratios do not fit the kernel's range.
    inexact: Vec<NodeId>,
    /// Steps in the state file since it was last written whole.
    steps: usize,
    /// Weight of everything beside our tree, as last looked at.
    outside: Cell<u32>,
    /// What of it wanted the CPU, and until when that is not looked at again.
    crowd: Cell<Option<(Crowd, Instant)>>,
    /// Counters as last read: outside time never runs backwards, a throttled node shows as such,
    /// and what a foreign hand removes is not forgotten.
    seen: RefCell<BTreeMap<NodeId, Carried>>,
    /// Why the full driver cannot be used here, where that was tried.
    better: Option<String>,
}

/// Whether the driver can run here; the error says what is missing.
pub fn probe() -> Result<(), String> {
    probe_with(&Real)
}

fn probe_with(kernel: &dyn Kernel) -> Result<(), String> {
    let layout = mounts::find(kernel)?;
    for hierarchy in &layout.hierarchies {
        // Opening for writing is refused without the right, and writing nothing changes nothing.
        let procs = format!("{}/cgroup.procs", hierarchy.mount);
        match kernel.write(&procs, "") {
            Err(e)
                if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS)) =>
            {
                return Err(format!(
                    "{procs} cannot be written ({e}): the driver needs root and a writable mount"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes the CPU over with an empty tree. `Taken` when our cgroup is in use already.
pub fn start() -> Result<Stock, PlaneError> {
    start_instead(None)
}

/// The same, with why the better driver cannot be used here, for whoever looks at the limits.
pub fn start_instead(better: Option<String>) -> Result<Stock, PlaneError> {
    let mut stock = Stock::start_with(Box::new(Real), Config::from_env()?)?;
    stock.better = better;
    Ok(stock)
}

/// Finds the tree that a previous daemon left; `None` when there is none.
pub fn adopt() -> Result<Option<Stock>, PlaneError> {
    Stock::adopt_with(Box::new(Real), Config::from_env()?)
}

fn boot_id(kernel: &dyn Kernel) -> String {
    kernel.read("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Stock {
    fn open(kernel: Box<dyn Kernel>, config: &Config) -> Result<Cg, PlaneError> {
        let layout = mounts::find(&*kernel).map_err(PlaneError::Unsupported)?;
        Ok(Cg::new(kernel, layout, config.cgroup.clone()))
    }

    fn start_with(kernel: Box<dyn Kernel>, config: Config) -> Result<Self, PlaneError> {
        let cg = Self::open(kernel, &config)?;
        if let Some(someone) = sync::scan(&cg)?.get(1) {
            return Err(PlaneError::Taken(format!(
                "the cgroup {} is in use ({}): another daemon runs, or its tree is to be adopted",
                cg.cpu(""),
                someone.path
            )));
        }
        let inhabited = || !cg.tids("").is_ok_and(|t| t.is_empty()) || !sync::empty(&cg);
        if cg.present() && inhabited() {
            return Err(PlaneError::Taken(format!("the cgroup {} is somebody else's", cg.cpu(""))));
        }
        let prepared = cg.flavour().prepare(cg.kernel(), cg.top())?;
        let machine_ns = cg.machine_ns().map_err(os("CPU time of the machine"))?;
        let boot = boot_id(cg.kernel());
        let origins = Origins::empty(config.origins());
        let state = State::new(Mirror::new(), prepared, machine_ns, boot);
        let mut driver = Self::assemble(cg, config, state, origins);
        driver.origins.delete(driver.cg.kernel());
        let made = driver.save().and_then(|()| driver.make_all(&[]));
        if let Err(error) = made {
            driver.dismantle();
            return Err(error);
        }
        Ok(driver)
    }

    fn assemble(cg: Cg, config: Config, state: State, origins: Origins) -> Self {
        Self {
            cg,
            config,
            state,
            origins,
            written: BTreeMap::new(),
            inexact: Vec::new(),
            steps: 0,
            outside: Cell::new(0),
            crowd: Cell::new(None),
            seen: RefCell::default(),
            better: None,
        }
    }

    fn adopt_with(kernel: Box<dyn Kernel>, config: Config) -> Result<Option<Self>, PlaneError> {
        let cg = Self::open(kernel, &config)?;
        let found = sync::scan(&cg)?;
        // A start that died before it had made q0 has nothing to adopt.
        if found.len() < 2 {
            return Ok(None);
        }
        let boot = boot_id(cg.kernel());
        let mut state = if let Some(state) = State::load(cg.kernel(), &config.state(), &boot) {
            state
        } else {
            let machine_ns = cg.machine_ns().map_err(os("CPU time of the machine"))?;
            let mut state = State::new(read_back(&found), false, machine_ns, boot);
            state.seq = None;
            state
        };
        let leaving = std::mem::take(&mut state.leaving);
        absorb(&cg, &mut state.mirror, &leaving);
        let origins = Origins::load(&cg, config.origins())?;
        let mut driver = Self::assemble(cg, config, state, origins);
        driver.make_all(&found)?;
        driver.mend()?;
        driver.save()?;
        Ok(Some(driver))
    }

    /// What the mechanism asks of attributes, now.
    fn shape(&self) -> Shape {
        Shape {
            range: self.cg.flavour().range(),
            idle: self.cg.has_idle(),
            quotas_nest: self.cg.flavour().quotas_nest(),
            outside: self.outside.get(),
        }
    }

    /// Makes the cgroups match the mirror, whatever they are.
    fn make_all(&mut self, found: &[Actual]) -> Result<(), PlaneError> {
        self.cg.flavour().prepare(self.cg.kernel(), self.cg.top())?;
        // The first directory shows what the kernel has (cpu.idle).
        self.cg.make("", true)?;
        self.look_outside();
        let mut log = Log::default();
        let desired = self.state.mirror.clone();
        let result = self.settle(found, &desired, None, &mut log);
        absorb(&self.cg, &mut self.state.mirror, &log.leaving);
        (self.written, self.inexact) = result?;
        Ok(())
    }

    /// Makes the cgroups match `desired`: all of them, or those that `scope` names. Answers what
    /// they are set to.
    fn settle(
        &mut self,
        actual: &[Actual],
        desired: &Mirror,
        scope: Option<&Scope>,
        log: &mut Log,
    ) -> Result<(BTreeMap<NodeId, Attr>, Vec<NodeId>), PlaneError> {
        let (attrs, inexact) = desired.attributes(&self.shape(), scope.map(|s| &s.sets));
        let paths = scope.map_or_else(|| desired.paths(), |s| desired.paths_of(&s.nodes));
        let (kernel, file) = (self.cg.kernel(), self.config.state());
        let mut before_removal = |log: &Log| {
            // Most of what goes was never used.
            let leaving: Vec<_> =
                log.leaving.iter().filter(|l| l.carried != Carried::default()).cloned().collect();
            if leaving.is_empty() {
                return Ok(());
            }
            Step { change: None, last: None, leaving }.append(kernel, &file)
        };
        let (cg, origins) = (&self.cg, &mut self.origins);
        sync::sync(cg, origins, actual, desired, &paths, &attrs, log, &mut before_removal)?;
        Ok((attrs, inexact))
    }

    /// Goes over to another tree, or stays with the present one and says why.
    fn transition(
        &mut self,
        new: Mirror,
        last: Option<(Batch, Vec<bool>)>,
    ) -> Result<(), PlaneError> {
        let now = &self.state.mirror;
        if (new.q0_weight(), new.others_milli()) != (now.q0_weight(), now.others_milli()) {
            self.look_outside();
        }
        let now = &self.state.mirror;
        let scope = now.scope(&new, &self.shape());
        let paths = now.paths_of(&scope.nodes).into_iter();
        let actual: Vec<Actual> = paths
            .map(|(id, path)| Actual {
                id,
                scheduler: now.get(id).is_ok_and(|n| n.scheduler),
                path,
                attr: self.written.get(&id).copied(),
            })
            .collect();
        let mut log = Log::default();
        let result = self.settle(&actual, &new, Some(&scope), &mut log);
        let old = std::mem::replace(&mut self.state.mirror, new);
        let (old_seq, old_last) = (self.state.seq, self.state.last.take());
        let result = result.and_then(|settled| {
            absorb(&self.cg, &mut self.state.mirror, &log.leaving);
            self.state.last.clone_from(&old_last);
            if let Some(last) = last.clone() {
                self.state.seq = Some(last.0.seq);
                self.state.last = Some(last);
            }
            self.steps += 1;
            if self.steps > STEPS_MAX {
                self.save()?;
            } else {
                let change = Some(self.state.mirror.since(&old));
                Step { change, last, leaving: Vec::new() }
                    .append(self.cg.kernel(), &self.config.state())?;
            }
            Ok(settled)
        });
        match result {
            Ok((attrs, inexact)) => {
                self.written.retain(|id, _| !scope.nodes.contains(id));
                self.written.extend(attrs);
                self.inexact.retain(|id| !scope.sets.contains(id));
                self.inexact.extend(inexact);
                Ok(())
            }
            Err(error) => {
                self.state.mirror = old;
                (self.state.seq, self.state.last) = (old_seq, old_last);
                absorb(&self.cg, &mut self.state.mirror, &log.leaving);
                if let Err(error) = self.roll_back(&log) {
                    tracing::error!(%error, "cgroups could not be rolled back; health will say so");
                }
                Err(error)
            }
        }
    }

    fn roll_back(&mut self, log: &Log) -> Result<(), PlaneError> {
        let found = sync::scan(&self.cg)?;
        self.make_all(&found)?;
        for (tid, queue) in &log.flushed {
            let dirs = self.cg.dirs(&self.state.mirror.path(*queue)?);
            let Ok(place) = self.cg.locate(*tid) else { continue };
            self.enter(&[(*tid, place)], Target::Thread(*tid), &dirs)?;
        }
        self.save()
    }

    fn save(&mut self) -> Result<(), PlaneError> {
        self.steps = 0;
        self.state.save(self.cg.kernel(), &self.config.state())
    }

    /// After a death between two hierarchies: the one that counts follows the one that schedules.
    fn mend(&mut self) -> Result<(), PlaneError> {
        if self.cg.layout.hierarchies.len() < 2 {
            return Ok(());
        }
        for (_, path) in self.state.mirror.paths() {
            for tid in self.cg.tids(&path)? {
                let Ok(place) = self.cg.locate(tid) else { continue };
                match self.cg.inside(&place).map(|inside| self.cg.dirs(inside)) {
                    Some(dirs) if self.cg.dirs_of(&place).as_ref() != Some(&dirs) => {
                        let _ = self.cg.put_thread(&dirs, tid);
                    }
                    Some(_) => {}
                    None => {
                        self.origins.release_thread(&self.cg, tid, &self.cg.tops())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn facts(&self) -> Now<'_> {
        Now(self)
    }

    /// Removes everything of ours. Threads go home, or to the top. Answers the first failure, but
    /// goes on.
    fn dismantle(&mut self) -> Option<PlaneError> {
        let mut first = None;
        let tops = self.cg.tops();
        let mut paths = vec![String::new()];
        let mut at = 0;
        // Everything below our root, also what others have made there.
        while let Some(path) = paths.get(at).cloned() {
            for dir in self.cg.dirs(&path) {
                for name in self.cg.kernel().list(&dir).unwrap_or_default() {
                    let child = format!("{path}/{name}");
                    if !paths.contains(&child) {
                        paths.push(child);
                    }
                }
            }
            at += 1;
        }
        for _ in 0..100 {
            let mut left = 0;
            for path in &paths {
                for tid in self.cg.tids(path).unwrap_or_default() {
                    left += 1;
                    let moved = match self.cg.tgid(tid) {
                        Ok(pid) => self.origins.release_process(&self.cg, pid, &tops),
                        Err(_) => Ok(0),
                    };
                    if let Err(error) = moved {
                        first.get_or_insert(error);
                    }
                }
            }
            if left == 0 {
                break;
            }
            self.cg.kernel().pause();
        }
        for path in paths.iter().rev() {
            match self.cg.unmake(path) {
                Ok(true) => {}
                Ok(false) => {
                    first.get_or_insert(PlaneError::Busy(format!(
                        "{} does not become empty",
                        self.cg.cpu(path)
                    )));
                }
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        if first.is_none() {
            if self.state.prepared {
                self.cg.flavour().unprepare(self.cg.kernel(), self.cg.top());
            }
            self.origins.delete(self.cg.kernel());
            self.cg.kernel().remove(&self.config.state());
        }
        first
    }
}

/// A tree out of directories alone: handles, kinds and ratios; the rest is lost.
fn read_back(found: &[Actual]) -> Mirror {
    let mut mirror = Mirror::new();
    for actual in found {
        let parent = actual.path.rsplit_once('/').map(|(above, _)| above);
        let parent = parent.and_then(|above| found.iter().find(|a| a.path == above));
        let weight = match actual.attr.map(|a| a.share) {
            Some(Share::Weight(weight)) => Weight::from_milli(weight.saturating_mul(1000)),
            _ => Some(Weight::BACKGROUND),
        };
        let weight = weight.unwrap_or(Weight::MAX);
        if actual.id == NodeId::Q0 {
            if let Ok(q0) = mirror.get_mut(NodeId::Q0) {
                q0.weight = weight;
            }
        } else if let Some(parent) = parent
            && mirror.get(actual.id).is_err()
        {
            let cap = actual.attr.and_then(|a| a.quota).map(|q| reserv_model::Cap {
                rate_ns_per_s: q.quota_us.saturating_mul(1_000_000_000) / q.period_us.max(1),
                burst_ns: 0,
            });
            mirror.insert(actual.id, parent.id, actual.scheduler, weight).cap = cap;
        }
    }
    mirror
}

/// Adds the counters of directories that a move has removed.
fn absorb(cg: &Cg, mirror: &mut Mirror, leaving: &[Leaving]) {
    for l in leaving {
        let Ok(node) = mirror.get_mut(l.id) else { continue };
        // v1 may keep the two counters in directories of two hierarchies, and a death may come
        // between them.
        if !cg.kernel().exists(&cg.acct(&l.path)) {
            node.carried.service_ns += l.carried.service_ns;
        }
        if !cg.kernel().exists(&cg.cpu(&l.path)) {
            node.carried.throttled_ns += l.carried.throttled_ns;
        }
    }
}

/// The world as it is, for judging edits.
struct Now<'a>(&'a Stock);

impl Facts for Now<'_> {
    fn members(&self, id: NodeId) -> Result<usize, PlaneError> {
        match self.0.state.mirror.path(id) {
            Ok(path) => Ok(self.0.cg.tids(&path)?.len()),
            // Made by an earlier op of the same batch.
            Err(_) => Ok(0),
        }
    }

    fn service_ns(&self, id: NodeId) -> Result<u64, PlaneError> {
        match self.0.state.mirror.get(id) {
            Ok(_) => Ok(self.0.counters(id)?.service_ns),
            Err(_) => Ok(0),
        }
    }
}

fn outcome(draining: bool) -> Outcome {
    if draining { Outcome::Draining } else { Outcome::Done }
}
