// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the threads of the worker share, under one lock: the resources that run, the rules, and what `status` tells.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reserv_model::{Config, DeleteMode, Name, NodeId, Personality, Request, Source, Tree, diff};
use reserv_namespace::{FileKind, Ino, Object, Resource, render_status, resource_name_taken};
use reserv_plane::{List, Target};
use serde::Serialize;

use crate::collect::Due;
use crate::describe::describe;
use crate::drivers::Wanted;
use crate::engine::{Engine, Refusal};
use crate::held::{Held, ResourceState};
use crate::process;
use crate::registry::Registry;
use crate::rules::{Facts, Rules};
use crate::settings::Settings;

/// Refusals that are kept for `status`.
const REFUSALS_MAX: usize = 16;

/// Something refused, for people who ask why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Who asked.
    pub uid: u32,
    /// What was asked, as a path below the mount.
    pub what: String,
    /// Name of the errno.
    pub errno: i32,
    /// Why.
    pub text: String,
    /// What would be right.
    pub hint: String,
    /// Since the worker started, in ms.
    pub at_ms: u64,
}

/// All that `status` tells; the file is its text, the control socket gives it as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Of reservd.
    pub version: &'static str,
    /// The worker.
    pub pid: u32,
    /// By name.
    pub resources: BTreeMap<Name, ResourceState>,
    /// Rules in force.
    pub rules: usize,
    /// How processes are watched for them: `events`, `scan`, `none`.
    pub watch: &'static str,
    /// The last refusals, newest last.
    pub refusals: Vec<Refused>,
}

impl Status {
    /// The text of the `status` file: the name space's lines, then what only the daemon knows.
    pub fn text(&self) -> String {
        let shown: Vec<_> = self.resources.iter().map(|(name, state)| state.shown(name.as_str())).collect();
        let mut out = render_status(self.version, &shown);
        for (name, state) in &self.resources {
            out.push_str(&state.more(name.as_str()));
        }
        let _ = writeln!(out, "rules {}\nwatch {}", self.rules, self.watch);
        for r in &self.refusals {
            // One line each, whatever names and words hold.
            let mut line = format!("{} ms: uid {}: {}: {}", r.at_ms, r.uid, r.what, r.text);
            if !r.hint.is_empty() {
                let _ = write!(line, " ({})", r.hint);
            }
            let _ = writeln!(out, "refused {}", line.replace(char::is_control, " "));
        }
        out
    }
}

/// See the head of this file.
pub struct Core {
    settings: Settings,
    /// The CPU is missing only after the daemon was stopped.
    resources: BTreeMap<Resource, Held>,
    registry: Registry,
    /// Where `/reserv` is mounted, once it is.
    mount: Option<u64>,
    rules: Rules,
    /// How processes are watched.
    pub watch: &'static str,
    /// Names of resources that are gone and that the kernel may still have cached.
    gone: Vec<Name>,
    refusals: VecDeque<Refused>,
    start: Instant,
}

/// The lock. A thread that panicked has ended the process (see `worker`), so poison is never seen.
pub fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stopped() -> Refusal {
    Refusal::new(libc::ENODEV, "reservd is stopping")
}

/// What `up` does to one resource.
struct Job {
    /// `None`: it is brought up first, and counts that.
    resource: Option<Resource>,
    name: Name,
    on: Option<Source>,
    requests: Vec<Request>,
    words: Vec<String>,
}

impl Core {
    /// Around the CPU; the other resources that are entered are brought up too.
    pub fn new(settings: &Settings, cpu: Held) -> Result<Self, Refusal> {
        let mut rules = Rules::default();
        rules.set(cpu.engine.rules());
        let mut core = Self {
            settings: settings.clone(),
            resources: [(Resource::CPU, cpu)].into(),
            registry: Registry::open(&settings.run)?,
            mount: None,
            rules,
            watch: "none",
            gone: Vec::new(),
            refusals: VecDeque::new(),
            start: Instant::now(),
        };
        core.bring_up_known()?;
        Ok(core)
    }

    /// A resource's engine.
    pub fn engine(&mut self, resource: Resource) -> Result<&mut Engine, Refusal> {
        if !self.resources.contains_key(&Resource::CPU) {
            return Err(stopped());
        }
        let held = self.resources.get_mut(&resource);
        held.map(|held| &mut held.engine).ok_or_else(|| Refusal::new(libc::ESTALE, "this resource is gone"))
    }

    /// The CPU's engine.
    pub fn cpu(&mut self) -> Result<&mut Engine, Refusal> {
        self.engine(Resource::CPU)
    }

    /// All engines, in order of number.
    pub fn engines(&mut self) -> impl Iterator<Item = (Resource, &mut Engine)> {
        self.resources.iter_mut().map(|(resource, held)| (*resource, &mut held.engine))
    }

    /// The trees of the resources that run.
    pub fn trees<'t>(&'t self) -> impl Fn(Resource) -> Option<&'t Tree> + Copy + 't {
        |resource| self.resources.get(&resource).map(|held| held.engine.tree())
    }

    /// If the edit of this request happened before its answer was given: the node that it made, if any.
    pub fn answered(&self, unique: u64) -> Option<Option<(Resource, NodeId)>> {
        self.resources.iter().find_map(|(resource, held)| {
            held.engine.answered(unique).map(|made| made.map(|id| (*resource, id)))
        })
    }

    /// A new mount: what requests and inodes of an earlier one meant is void.
    pub fn new_session(&mut self) -> Result<(), Refusal> {
        self.engines().try_for_each(|(_, engine)| engine.new_session())
    }

    /// Where `/reserv` is mounted.
    pub fn set_mount(&mut self, dev: u64) -> Result<(), Refusal> {
        self.mount = Some(dev);
        for (_, engine) in self.engines() {
            engine.plane_mut().set_mount(dev)?;
        }
        Ok(())
    }

    /// Whether nothing was there before this worker.
    pub fn is_fresh(&self) -> bool {
        self.resources.values().all(Held::is_fresh)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    /// Keeps a refusal for those who ask why.
    pub fn refused(&mut self, uid: u32, what: String, refusal: &Refusal) {
        tracing::info!(uid, what, errno = refusal.errno, hint = refusal.hint, "refused: {}", refusal.text);
        if self.refusals.len() == REFUSALS_MAX {
            self.refusals.pop_front();
        }
        let Refusal { errno, text, hint } = refusal.clone();
        let at_ms = self.now_ms();
        self.refusals.push_back(Refused { uid, what, errno, text, hint, at_ms });
    }

    /// For the file and the control socket.
    pub fn status(&self) -> Result<Status, Refusal> {
        let cpu = self.resources.get(&Resource::CPU).ok_or_else(stopped)?;
        let state = |held: &Held| (held.engine.tree().root().name.clone(), held.state());
        Ok(Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            resources: self.resources.values().map(state).collect(),
            rules: cpu.engine.rules().len(),
            watch: self.watch,
            refusals: self.refusals.iter().cloned().collect(),
        })
    }

    /// The running trees and rules as a configuration.
    pub fn save(&self) -> Result<Config, Refusal> {
        let cpu = self.resources.get(&Resource::CPU).ok_or_else(stopped)?;
        let counting = self.resources.values().filter(|held| held.on.is_some());
        let count = counting.map(|held| (held.engine.tree().root().name.clone(), held.config())).collect();
        Ok(Config { cpu: Some(cpu.config()), count, rules: cpu.engine.rules().to_vec() })
    }

    /// What runs under this name, if it counts `on`; `None` if nothing is called so.
    fn counting(&self, name: &Name, on: &Source) -> Result<Option<Resource>, Refusal> {
        let found = self.resources.iter().find(|(_, held)| held.engine.tree().root().name == *name);
        match found {
            Some((resource, held)) if held.on.as_ref() == Some(on) => Ok(Some(*resource)),
            Some((_, held)) => {
                let counts = held.on.as_ref().map_or_else(
                    || "is no counting resource".to_owned(),
                    |on| format!("runs already, on {on}"),
                );
                let hint = "another name, or take it down first: reserv down NAME".to_owned();
                Err(Refusal { errno: libc::EBUSY, text: format!("{name} {counts}"), hint })
            }
            None => match resource_name_taken(name.as_str(), self.trees()) {
                Some(why) => Err(Refusal::new(libc::EEXIST, format!("{name}: {why}"))),
                None => Ok(None),
            },
        }
    }

    /// Brings a counting resource up, with root and q0. One that runs and counts the same stays as it is. Answers whether it came.
    pub fn bring_up(&mut self, name: &Name, on: &Source) -> Result<bool, Refusal> {
        if self.counting(name, on)?.is_some() {
            return Ok(false);
        }
        reserv_plane::count::probe(on)?;
        let known = self.registry.enter(name, on)?.and_then(|known| known.resource());
        let full = || Refusal::new(libc::ENOSPC, "there are as many resources as there can be");
        let resource = known.ok_or_else(full)?;
        let brought = self.begin_counting(resource, name, on);
        if brought.is_err()
            && let Err(error) = self.registry.remove(resource)
        {
            tracing::error!(%error, %name, "a resource that did not come up stays entered");
        }
        brought.map(|()| true)
    }

    /// Brings counting resources up, all or none; answers which, in words.
    pub fn bring_up_all(
        &mut self,
        count: &BTreeMap<Name, Source>,
        dry_run: bool,
    ) -> Result<Vec<String>, Refusal> {
        let mut new = Vec::new();
        for (name, on) in count {
            if self.counting(name, on)?.is_none() {
                new.push((name, on));
            }
        }
        for (at, (name, on)) in new.iter().enumerate() {
            if dry_run {
                reserv_plane::count::probe(on)?;
            } else if let Err(refusal) = self.bring_up(name, on) {
                for (name, _) in &new[..at] {
                    self.take_down(name)?;
                }
                return Err(refusal);
            }
        }
        Ok(new.iter().map(|(name, on)| format!("bring up {name}, counting {on}")).collect())
    }

    fn begin_counting(&mut self, resource: Resource, name: &Name, on: &Source) -> Result<(), Refusal> {
        let wanted = Wanted::Count { resource, on: on.clone() };
        let mut held = Held::begin(&self.settings, &wanted, name, reserv_model::Driver::Auto)?;
        if let Some(dev) = self.mount {
            held.engine.plane_mut().set_mount(dev)?;
        }
        self.resources.insert(resource, held);
        Ok(())
    }

    /// What a dead daemon had, or was about to have or to end.
    fn bring_up_known(&mut self) -> Result<(), Refusal> {
        for known in self.registry.known().to_vec() {
            let Some(resource) = known.resource() else { continue };
            let name = &known.name;
            let wanted = Wanted::Count { resource, on: known.on.clone() };
            let brought = if known.going {
                Held::end_what_is_left(&self.settings, &wanted).map(|()| false)
            } else {
                self.begin_counting(resource, name, &known.on).map(|()| true)
            };
            match brought {
                Ok(true) => {}
                Ok(false) => self.registry.remove(resource)?,
                Err(refusal) => {
                    tracing::error!(%refusal, %name, "a resource did not come up again; its tree is lost");
                    Held::end_what_is_left(&self.settings, &wanted)?;
                    self.registry.remove(resource)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a counting resource down, with all that refers to it.
    pub fn take_down(&mut self, name: &Name) -> Result<(), Refusal> {
        let found = self.resources.iter().find(|(_, held)| held.engine.tree().root().name == *name);
        let resource = match found {
            Some((resource, held)) if held.on.is_some() => *resource,
            Some(_) => {
                let text = format!("{name} goes with everything else");
                return Err(Refusal {
                    errno: libc::EINVAL,
                    text,
                    hint: "reserv down, without a name".into(),
                });
            }
            None => return Err(Refusal::new(libc::ENOENT, format!("no resource {name} runs"))),
        };
        self.stop_one(resource)
    }

    fn stop_one(&mut self, resource: Resource) -> Result<(), Refusal> {
        if resource != Resource::CPU {
            self.registry.going(resource, true)?;
        }
        let Some(held) = self.resources.remove(&resource) else { return Ok(()) };
        let name = held.engine.tree().root().name.clone();
        held.stop().map_err(|(held, refusal)| {
            self.resources.insert(resource, *held);
            refusal
        })?;
        if resource != Resource::CPU {
            self.registry.remove(resource)?;
        }
        self.gone.push(name);
        Ok(())
    }

    fn jobs(&self, config: &Config, mode: DeleteMode) -> Result<Vec<Job>, Refusal> {
        let mut jobs = Vec::new();
        let cpu = self.resources.get(&Resource::CPU).ok_or_else(stopped)?.engine.tree();
        let described = |tree: &Tree, requests: &[Request]| -> Vec<String> {
            requests.iter().map(|request| describe(tree, request)).collect()
        };
        if let Some(wanted) = &config.cpu {
            let requests = diff(cpu, wanted, mode)?;
            let words = described(cpu, &requests);
            let name = cpu.root().name.clone();
            jobs.push(Job { resource: Some(Resource::CPU), name, on: None, requests, words });
        }
        for (name, wanted) in &config.count {
            let Some(on) = &wanted.on else { continue };
            let resource = self.counting(name, on)?;
            let held = resource.and_then(|resource| self.resources.get(&resource));
            let (requests, words) = if let Some(held) = held {
                let requests = diff(held.engine.tree(), wanted, mode)?;
                let words = described(held.engine.tree(), &requests);
                (requests, words)
            } else {
                reserv_plane::count::probe(on)?;
                let new = Tree::new(name.clone());
                let requests = diff(&new, wanted, mode)?;
                new.plan(&requests)?;
                let mut words = vec![format!("bring up {name}, counting {on}")];
                words.extend(described(&new, &requests));
                (requests, words)
            };
            jobs.push(Job { resource, name: name.clone(), on: Some(on.clone()), requests, words });
        }
        Ok(jobs)
    }

    /// Makes the trees as the configuration wants them, all or nothing; answers the differences in words.
    pub fn apply(
        &mut self,
        config: &Config,
        dry_run: bool,
        mode: DeleteMode,
    ) -> Result<Vec<String>, Refusal> {
        config.check()?;
        self.resources.values_mut().for_each(Held::try_again);
        let jobs = self.jobs(config, mode)?;
        for job in &jobs {
            if let Some(resource) = job.resource {
                self.engine(resource)?.check(&job.requests)?;
            }
        }
        let mut words: Vec<String> = jobs.iter().flat_map(|job| job.words.iter().cloned()).collect();
        let rules = self.cpu()?.rules();
        if config.rules != rules {
            words.push(format!("rules: {} instead of {}", config.rules.len(), rules.len()));
        }
        if dry_run {
            return Ok(words);
        }
        let before = self.save()?;
        for (at, job) in jobs.iter().enumerate() {
            if let Err(refusal) = self.carry_out(job, config) {
                return Err(self.undo(&jobs[..at], &before, refusal));
            }
        }
        if config.cpu.is_none() {
            self.cpu()?.set_rules(config.rules.clone())?;
        }
        let rules = self.cpu()?.rules().to_vec();
        self.rules.set(&rules);
        self.warn_of_rules(config);
        self.scan();
        Ok(words)
    }

    fn carry_out(&mut self, job: &Job, config: &Config) -> Result<(), Refusal> {
        let (resource, new) = match (job.resource, &job.on) {
            (Some(resource), _) => (resource, false),
            (None, Some(on)) => {
                self.bring_up(&job.name, on)?;
                (self.counting(&job.name, on)?.ok_or_else(stopped)?, true)
            }
            (None, None) => return Ok(()),
        };
        // The rules stand with the tree that they name queues of.
        let rules = if resource == Resource::CPU { config.rules.clone() } else { Vec::new() };
        let done = self.engine(resource)?.edit_whole(&job.requests, &rules);
        if new && done.is_err() {
            self.take_down(&job.name)?;
        }
        done
    }

    /// Undoes what was done to other resources before one refused.
    fn undo(&mut self, done: &[Job], before: &Config, refusal: Refusal) -> Refusal {
        let mut also = Vec::new();
        for job in done.iter().rev() {
            let undone = match job.resource {
                None => self.take_down(&job.name),
                Some(resource) => {
                    let was = if resource == Resource::CPU {
                        before.cpu.as_ref()
                    } else {
                        before.count.get(&job.name)
                    };
                    self.put_back(resource, was, before)
                }
            };
            also.extend(undone.err().map(|why| format!("; and {} was not put back: {why}", job.name)));
        }
        Refusal { text: format!("{refusal}{}", also.concat()), ..refusal }
    }

    fn put_back(
        &mut self,
        resource: Resource,
        was: Option<&reserv_model::ResourceConfig>,
        before: &Config,
    ) -> Result<(), Refusal> {
        let engine = self.engine(resource)?;
        let Some(was) = was else { return Ok(()) };
        let requests = diff(engine.tree(), was, DeleteMode::Flush)?;
        let rules = if resource == Resource::CPU { before.rules.clone() } else { Vec::new() };
        engine.edit_whole(&requests, &rules)
    }

    fn warn_of_rules(&mut self, config: &Config) {
        let Ok(engine) = self.cpu() else { return };
        if config.cpu.is_some() {
            for rule in engine.rules() {
                if engine.tree().resolve(&rule.cpu).is_err() {
                    tracing::warn!(queue = %rule.cpu, "a rule names a queue that does not exist");
                }
            }
        }
    }

    /// Makes new nodes, and the roots, those of a personality.
    pub fn set_personality(
        &mut self,
        personality: Personality,
        dry_run: bool,
    ) -> Result<Vec<String>, Refusal> {
        let requests = [Request::SetPersonality { personality }];
        let mut words = Vec::new();
        for (_, engine) in self.engines() {
            engine.check(&requests)?;
            if !engine.tree().plan(&requests)?.edits().is_empty() {
                words.push(describe(engine.tree(), &requests[0]));
            }
        }
        if !dry_run {
            for (_, engine) in self.engines() {
                engine.edit(&requests, None)?;
            }
        }
        Ok(words)
    }

    /// Whether there are rules, and whether they need scans beside events.
    pub fn has_rules(&self) -> (bool, bool) {
        (!self.rules.is_empty(), self.rules.need_scan())
    }

    /// Applies the rules to one process.
    pub fn consider(&mut self, pid: i32) {
        if self.rules.is_empty() || pid == std::process::id().cast_signed() {
            return;
        }
        let Some(facts) = Facts::of(pid) else { return };
        let Some(Held { engine, .. }) = self.resources.get_mut(&Resource::CPU) else { return };
        let Ok(now) = engine.plane().tag_of(pid) else { return };
        let Some((rule, path)) = self.rules.consider(pid, &facts, now.pack(), NodeId::Q0.pack()) else {
            return;
        };
        let Ok(queue) = engine.tree().resolve(&path) else { return };
        let tagged = engine.tag(Target::Process(pid), queue, None).and_then(|()| {
            // Both lists, as `reserv run` does: what the process starts stays with it.
            engine.plane_mut().set_default(pid, List::Default, queue)?;
            Ok(engine.plane_mut().set_default(pid, List::Child, queue)?)
        });
        match tagged {
            Ok(()) => self.rules.applied(pid, &facts, rule, queue.pack()),
            Err(error) => tracing::debug!(pid, %error, "a rule was not applied"),
        }
    }

    /// Applies the rules to all processes.
    pub fn scan(&mut self) {
        if self.rules.is_empty() {
            return;
        }
        let living = process::all();
        self.rules.retain(&living);
        for pid in living {
            self.consider(pid);
        }
    }

    /// The regular poll: are the resources still ours; have queues drained.
    pub fn poll(&mut self) {
        let now = self.now();
        self.resources.values_mut().for_each(|held| held.poll(now));
    }

    /// An open file of the name space was closed. Answers whether there is something to collect.
    pub fn closed(&mut self, resource: Resource, handle: u64) -> bool {
        self.engine(resource).is_ok_and(|engine| engine.closed(handle))
    }

    /// Collects what nobody refers to.
    pub fn sweep(&mut self) {
        let now = self.now();
        let due: Vec<(Resource, Due)> = self
            .engines()
            .map(|(resource, engine)| (resource, engine.due(now)))
            .filter(|(_, due)| !due.nodes.is_empty())
            .collect();
        if due.is_empty() {
            return;
        }
        let names: BTreeSet<&str> =
            due.iter().flat_map(|(_, due)| due.names.iter().map(Name::as_str)).collect();
        let mut inodes = BTreeSet::new();
        if let Some(dev) = self.mount {
            inodes.extend(process::inodes_in_use(dev, "cwd", &names));
            if due.iter().any(|(_, due)| due.uncertain) {
                inodes.extend(process::inodes_in_use(dev, "fd", &names));
            }
        }
        let mut weak: BTreeMap<Resource, BTreeSet<NodeId>> = BTreeMap::new();
        for ino in inodes {
            if let Ok(Object::Node { resource, id, .. }) = crate::fs::object(self, ino) {
                weak.entry(resource).or_default().insert(id);
            }
        }
        for (resource, due) in due {
            let weak = weak.remove(&resource).unwrap_or_default();
            if let Ok(engine) = self.engine(resource)
                && let Err(error) = engine.sweep(now, &due.nodes, &weak)
            {
                tracing::error!(%error, "nodes that nobody refers to were not collected");
            }
        }
    }

    /// Names that the kernel may still have cached: directories and what was removed from them.
    pub fn take_removed(&mut self) -> Vec<(u64, Vec<u8>)> {
        let bytes = |name: &Name| name.as_str().as_bytes().to_vec();
        let mut removed: Vec<_> =
            std::mem::take(&mut self.gone).iter().map(|name| (Ino::ROOT.0, bytes(name))).collect();
        for (resource, engine) in self.engines() {
            let ino = |parent| Ino::of_node(resource, parent, FileKind::SchedulerDir).0;
            removed.extend(engine.take_removed().iter().map(|(parent, name)| (ino(*parent), bytes(name))));
        }
        removed
    }

    /// Gives the resources back to the kernel.
    pub fn stop(&mut self) -> Result<(), Refusal> {
        let others: Vec<Resource> = self.resources.keys().copied().filter(|r| *r != Resource::CPU).collect();
        for &other in &others {
            self.registry.going(other, true)?;
        }
        // The CPU first: where it does not go, nothing does.
        if let Err(refusal) = self.stop_one(Resource::CPU) {
            for &other in &others {
                self.registry.going(other, false)?;
            }
            return Err(refusal);
        }
        for other in others {
            self.stop_one(other)?;
        }
        self.registry.end()?;
        Ok(())
    }
}
