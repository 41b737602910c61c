// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the threads of the worker share, under one lock: the resources that run, the rules, and what `status` tells.

mod counting;
mod quiet;
mod status;
mod up;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reserv_model::{Config, Name, NodeId, Personality, Request, Rule, Tree};
use reserv_namespace::{FileKind, Ino, Object, Resource};
use reserv_plane::{List, Target};

use self::quiet::Quiet;
pub use self::status::{Refused, Status};
use crate::aside::Looker;
use crate::collect::Due;
use crate::describe::describe;
use crate::engine::{Engine, Refusal};
use crate::events::Subscription;
use crate::held::Held;
use crate::process;
use crate::registry::Registry;
use crate::rights;
use crate::rules::{Facts, Names, Rules};
use crate::settings::Settings;

/// Refusals that are kept for `status`.
const REFUSALS_MAX: usize = 16;

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
    /// Where process events are asked for, if they come.
    pub events: Option<Subscription>,
    /// Names of resources that are gone and that the kernel may still have cached.
    gone: Vec<Name>,
    refusals: VecDeque<Refused>,
    quiet: Quiet,
    /// Where somebody may have gone since the last sweep began.
    entered: BTreeSet<(Resource, NodeId)>,
    eyes: Arc<Eyes>,
    start: Instant,
}

/// What looks at processes for the rules.
#[derive(Default)]
struct Eyes {
    /// At those of others, which may block.
    looker: Looker,
    names: Arc<Names>,
}

/// What a lock guards. A thread that panicked has ended the process (see `worker`), so poison is never seen.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stopped() -> Refusal {
    Refusal::new(libc::ENODEV, "reservd is stopping")
}

impl Core {
    /// Around the CPU; the other resources that are entered are brought up too.
    pub fn new(settings: &Settings, cpu: Held) -> Result<Self, Refusal> {
        crate::backlog::remember(&settings.run);
        let mut rules = Rules::default();
        rules.set(cpu.engine.rules());
        let mut core = Self {
            settings: settings.clone(),
            resources: [(Resource::CPU, cpu)].into(),
            registry: Registry::open(&settings.run)?,
            mount: None,
            rules,
            watch: "none",
            events: None,
            gone: Vec::new(),
            refusals: VecDeque::new(),
            quiet: Quiet::default(),
            entered: BTreeSet::new(),
            eyes: Arc::default(),
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

    /// The mount point.
    pub fn mount(&self) -> &Path {
        &self.settings.mount
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

    /// Keeps a refusal for those who ask why. No user drives out those of others.
    pub fn refused(&mut self, uid: u32, what: String, refusal: &Refusal) {
        let at_ms = self.now_ms();
        if let Some(unsaid) = self.quiet.says(uid, at_ms) {
            let Refusal { errno, text, hint } = refusal;
            tracing::info!(uid, what, errno, hint, unsaid, "refused: {text}");
        }
        if self.refusals.len() == REFUSALS_MAX {
            let of = |uid: u32| self.refusals.iter().filter(|one| one.uid == uid).count();
            let most = self.refusals.iter().map(|one| of(one.uid)).max();
            let oldest = self.refusals.iter().position(|one| Some(of(one.uid)) == most);
            self.refusals.remove(oldest.unwrap_or(0));
        }
        let Refusal { errno, text, hint } = refusal.clone();
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
        let rules = cpu.engine.rules().to_vec();
        Ok(Config { backlog: crate::backlog::said(), cpu: Some(cpu.config()), count, rules })
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
        (!self.rules.is_empty(), self.events.is_none() || self.rules.need_scan())
    }

    /// Applies the rules to processes, of which all is asked before the lock is taken.
    pub fn consider(core: &Mutex<Self>, pids: &[i32]) {
        let eyes = {
            let core = lock(core);
            if core.rules.is_empty() {
                return;
            }
            core.eyes.clone()
        };
        let names = eyes.names.clone();
        for (pid, facts) in eyes.looker.each(pids, move |pid| Facts::of(pid, &names)) {
            lock(core).consider_one(pid, &facts);
        }
    }

    fn consider_one(&mut self, pid: i32, facts: &Facts) {
        if pid == std::process::id().cast_signed() {
            return;
        }
        // What was asked was asked of this one.
        if facts.held.as_ref().is_some_and(|held| process::require_alive(held.as_fd(), pid).is_err()) {
            return;
        }
        let Some(Held { engine, .. }) = self.resources.get_mut(&Resource::CPU) else { return };
        let Ok(now) = engine.plane().tag_of(pid) else { return };
        let Some((number, rule)) = self.rules.consider(pid, facts, now.pack(), NodeId::Q0.pack()) else {
            return;
        };
        match self.apply_rule(pid, &rule) {
            Ok(queue) => self.rules.applied(pid, facts, number, queue.unwrap_or(now).pack()),
            Err(error) => tracing::debug!(pid, %error, "a rule was not applied"),
        }
    }

    /// Both lists, as `reserv run` does: what the process starts stays with it; and the tag of its threads, which is answered.
    fn apply_rule(&mut self, pid: i32, rule: &Rule) -> Result<Option<NodeId>, Refusal> {
        let mut tagged = None;
        for (resource, engine) in self.engines() {
            let name = engine.tree().root().name.clone();
            let Some(path) = rule.queue(name.as_str()) else { continue };
            let queue = engine.tree().resolve(path)?;
            if resource == Resource::CPU {
                engine.tag(Target::Process(pid), queue, None)?;
                tagged = Some(queue);
            }
            engine.plane_mut().set_default(pid, List::Default, queue)?;
            engine.plane_mut().set_default(pid, List::Child, queue)?;
        }
        Ok(tagged)
    }

    /// Process events come as long as there are rules. A scan afterwards sees what happened before.
    pub fn listen(&mut self) {
        let on = !self.rules.is_empty();
        if let Some(events) = &mut self.events
            && let Err(error) = events.listen(on)
        {
            tracing::warn!(%error, "process events cannot be asked for; scanning");
            self.events = None;
            self.watch = "scan";
        }
    }

    /// Applies the rules to all processes.
    pub fn scan(core: &Mutex<Self>) {
        if lock(core).rules.is_empty() {
            return;
        }
        let living = process::all();
        lock(core).rules.retain(&living);
        Self::consider(core, &living);
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

    /// Collects what nobody refers to. Who stands where is looked up without the lock; where
    /// somebody went meanwhile is not collected.
    pub fn sweep(core: &Mutex<Self>, looker: &Looker) {
        let (due, dev, now) = {
            let mut core = lock(core);
            let now = core.now();
            let due: Vec<(Resource, Due)> = core
                .engines()
                .map(|(resource, engine)| (resource, engine.due(now)))
                .filter(|(_, due)| !due.nodes.is_empty())
                .collect();
            core.entered.clear();
            (due, core.mount, now)
        };
        if due.is_empty() {
            return;
        }
        let names: BTreeSet<String> =
            due.iter().flat_map(|(_, due)| due.names.iter().map(Name::to_string)).collect();
        let uncertain = due.iter().any(|(_, due)| due.uncertain);
        let look = move |pid| {
            let inodes = process::inodes_in_use(dev?, pid, uncertain, &names);
            let who = if inodes.is_empty() { None } else { rights::process_as_caller(pid) };
            who.map(|who| (inodes, who))
        };
        let pids = if dev.is_some() { process::all() } else { Vec::new() };
        let found = looker.each(&pids, look);
        let mut core = lock(core);
        let mut weak: BTreeMap<Resource, BTreeSet<NodeId>> = BTreeMap::new();
        for (resource, node) in std::mem::take(&mut core.entered) {
            weak.entry(resource).or_default().insert(node);
        }
        for (_, (inodes, who)) in found {
            for ino in inodes {
                if let Ok(Object::Node { resource, id, .. }) = crate::fs::object(&mut core, ino)
                    && core.engine(resource).is_ok_and(|engine| engine.tree().concerns(&who, id))
                {
                    weak.entry(resource).or_default().insert(id);
                }
            }
        }
        for (resource, due) in due {
            let weak = weak.remove(&resource).unwrap_or_default();
            if let Ok(engine) = core.engine(resource)
                && let Err(error) = engine.sweep(now, &due.nodes, &weak)
            {
                tracing::error!(%error, "nodes that nobody refers to were not collected");
            }
        }
    }

    /// Somebody may go to a node now, as `chdir(2)` asks: he is not yet where a sweep that is under
    /// way looks.
    pub fn enters(&mut self, resource: Resource, node: NodeId) {
        self.entered.insert((resource, node));
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

    /// Gives the resources back to the kernel. A disk that is in use stays: either that is an error, and so does everything else, or (`leave`) it is left with its
    /// server, which goes on, and its journal: the next start adopts it.
    pub fn stop(&mut self, leave: bool) -> Result<(), Refusal> {
        let mut others = Vec::new();
        for (&resource, held) in &self.resources {
            match held.engine.plane().may_stop() {
                Ok(()) if resource == Resource::CPU => {}
                Ok(()) => others.push(resource),
                Err(why) if leave && resource != Resource::CPU => self.leaves(resource, &why.to_string()),
                Err(why) => return Err(why.into()),
            }
        }
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
            match self.stop_one(other) {
                // Somebody began to use it just now.
                Err(refusal) if leave && refusal.errno == libc::EBUSY => {
                    self.registry.going(other, false)?;
                    self.leaves(other, &refusal.text);
                }
                done => done?,
            }
        }
        // What is left goes on without us.
        self.resources.clear();
        if self.registry.known().is_empty() {
            self.registry.end()?;
        }
        Ok(())
    }

    fn leaves(&self, resource: Resource, why: &str) {
        let name = self.resources.get(&resource).map(|held| held.engine.tree().root().name.as_str());
        tracing::warn!(name, why, "left as it is: its server goes on, and the next start finds it");
    }
}
