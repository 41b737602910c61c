// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the threads of the worker share: which resources there are, each behind a lock of its own
//! (`slot.rs` has the order of locks), and what is no resource's, behind small ones.

pub mod also;
mod counting;
pub(crate) mod fall;
mod owned;
mod polls;
mod rate;
mod refusals;
pub mod slot;
mod status;
mod stop;
mod threads;
mod up;
mod watching;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use reserv_control::Saved;
use reserv_model::{Config, Name, NodeId, NodePath, Personality, Request, Rule, Tree};
use reserv_namespace::{FileKind, Ino, Named, Object, Resource};

use self::owned::{without_of_users, without_owned};
use self::refusals::Refusals;
use self::slot::{HadEngine, Slot, is_gone};
pub use self::status::{Refused, Status};
use self::watching::Watch;
use crate::aside::Looker;
use crate::describe::describe;
use crate::engine::{Engine, Undo};
use crate::forgetter::Forgetter;
use crate::held::Held;
use crate::listen::Listening;
use crate::polled::Polled;
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::settings::Settings;
use crate::sync::lock;

/// How long a change of the configuration may be under way before others stop to wait for it. The
/// kernel's verifier takes seconds for each resource, under emulation many.
const CHANGE_MAX: Duration = Duration::from_secs(60);
/// How long a configuration waits for its resources.
const SAVE_MAX: Duration = Duration::from_secs(5);
/// How long who could do without a resource waits for it.
const SHORT: Duration = Duration::from_millis(200);

/// The resources, by number.
pub type Slots = BTreeMap<Resource, Arc<Slot>>;

/// See the head of this file.
pub struct Core {
    settings: Settings,
    /// The CPU is missing only after the daemon was stopped.
    slots: RwLock<Arc<Slots>>,
    /// Whoever enters a resource, or takes one out, has this while `slots` is changed.
    registry: Mutex<Registry>,
    /// Since when a change of the configuration is under way.
    changes: Mutex<Option<Instant>>,
    changed: Condvar,
    /// Where `/reserv` is mounted, once it is; else 0.
    mount: AtomicU64,
    /// Whether no request and no inode of an earlier worker is of use.
    new_mount: bool,
    /// The rules of the configuration, which stand in the CPU's journal.
    rules: Mutex<Arc<Vec<Rule>>>,
    watch: Watch,
    /// Names of resources that are gone and that the kernel may still have cached.
    gone: Mutex<Vec<Name>>,
    refusals: Mutex<Refusals>,
    /// What looks at who stands where.
    looker: Looker,
    /// Looks at what an exec does not hold up of a process.
    at_once: Looker,
    /// Whether all that was opened under a dead worker is known.
    caught_up: AtomicBool,
    stopping: AtomicBool,
    /// Who tells the kernel of names that went, once resources are looked after.
    forgetter: OnceLock<Arc<Forgetter>>,
    /// Nodes that a configuration leaves alone, whatever it says of their trees.
    owned: Mutex<owned::AllOwned>,
    /// What is done before one resource goes.
    before_one_goes: OnceLock<BeforeOneGoes>,
    listening: Listening,
    /// Who waits for news in a file.
    pub(crate) polled: Polled,
    start: Instant,
}

type BeforeOneGoes = Box<dyn Fn(&Arc<Slot>) + Send + Sync>;

fn stopped() -> Refusal {
    Refusal::new(libc::ENODEV, "reservd is stopping")
}

/// The trees that a request needs: at most one resource's own. Of the others their names.
pub struct Trees {
    slots: Arc<Slots>,
    own: Option<(Resource, HadEngine)>,
}

impl Trees {
    /// As the name space asks for them.
    pub fn of<'t>(&'t self) -> impl Fn(Resource) -> Option<&'t Tree> + Copy + 't {
        move |resource| match &self.own {
            Some((own, engine)) if *own == resource => Some(engine.tree()),
            _ => self.slots.get(&resource).filter(|slot| slot.is_shown()).map(|slot| slot.stub()),
        }
    }

    /// The engine of the one that is had.
    pub fn engine(&mut self) -> Result<&mut Engine, Refusal> {
        self.own.as_mut().map(|(_, engine)| &mut **engine).ok_or_else(is_gone)
    }
}

/// The change of the configuration that is under way.
pub(crate) struct Changing<'c>(&'c Core);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        *lock(&self.0.changes) = None;
        self.0.changed.notify_one();
    }
}

impl Core {
    /// Around the CPU; the other resources that are entered come up beside it. `new_mount`: there
    /// is no mount that another worker served.
    pub fn new(settings: &Settings, mut cpu: Held, new_mount: bool) -> Result<Arc<Self>, Refusal> {
        crate::backlog::remember(&settings.run);
        let rules = cpu.engine.rules().to_vec();
        if new_mount {
            cpu.engine.new_session()?;
        }
        let name = cpu.engine.tree().root().name.clone();
        let slots = Slots::from([(Resource::CPU, Slot::up(Resource::CPU, &name, None, cpu))]);
        let core = Arc::new(Self {
            settings: settings.clone(),
            slots: RwLock::new(Arc::new(slots)),
            registry: Mutex::new(Registry::open(&settings.run)?),
            changes: Mutex::default(),
            changed: Condvar::new(),
            mount: AtomicU64::new(0),
            new_mount,
            watch: Watch::new(&rules),
            rules: Mutex::new(Arc::new(rules)),
            gone: Mutex::default(),
            refusals: Mutex::default(),
            looker: Looker::default(),
            at_once: Looker::default(),
            caught_up: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            forgetter: OnceLock::new(),
            owned: Mutex::default(),
            before_one_goes: OnceLock::new(),
            listening: Listening::open(),
            polled: Polled::new(&settings.run),
            start: Instant::now(),
        });
        core.bring_up_known();
        Ok(core)
    }

    /// All resources that are up, coming or going.
    pub fn slots(&self) -> Arc<Slots> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change_slots(&self, change: impl FnOnce(&mut Slots)) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Slots::clone(&slots);
        change(&mut next);
        *slots = Arc::new(next);
    }

    /// A resource.
    pub fn slot(&self, resource: Resource) -> Result<Arc<Slot>, Refusal> {
        if self.stopping.load(Ordering::SeqCst) && self.slots().is_empty() {
            return Err(stopped());
        }
        self.slots().get(&resource).cloned().ok_or_else(is_gone)
    }

    fn named(&self, name: &Name) -> Option<Arc<Slot>> {
        self.slots().values().find(|slot| slot.name == *name).cloned()
    }

    /// A resource's engine, when nobody else has it.
    pub fn engine(&self, resource: Resource) -> Result<HadEngine, Refusal> {
        self.slot(resource)?.engine()
    }

    /// The CPU's engine.
    pub fn cpu(&self) -> Result<HadEngine, Refusal> {
        self.engine(Resource::CPU)
    }

    /// The names of the resources.
    pub fn names(&self) -> Trees {
        Trees { slots: self.slots(), own: None }
    }

    /// The same with a resource's own tree.
    pub fn trees(&self, resource: Resource) -> Result<Trees, Refusal> {
        Ok(Trees { own: Some((resource, self.engine(resource)?)), slots: self.slots() })
    }

    /// The trees that it takes to say what an object is: its resource's, but of a resource's own
    /// directory, which is there as long as the resource is.
    pub fn trees_of(&self, object: Object) -> Result<Trees, Refusal> {
        match object {
            Object::Node { id: NodeId::ROOT, .. } => Ok(self.names()),
            Object::Node { resource, .. } => self.trees(resource),
            _ => Ok(self.names()),
        }
    }

    /// A resource by its name, and what is there by a path.
    pub fn resolve(&self, name: &str, path: &NodePath) -> Result<Named, Refusal> {
        let slots = self.slots();
        let Some(slot) = slots.values().find(|slot| slot.is_shown() && slot.name.as_str() == name)
        else {
            return Ok(None);
        };
        Ok(Some((slot.resource, slot.engine()?.tree().resolve(path))))
    }

    /// If the edit of this request happened before its answer was given: the node that it made, if
    /// any. By all resources that can be asked.
    pub fn answered(&self, unique: u64) -> Option<Option<(Resource, NodeId)>> {
        self.slots().keys().find_map(|resource| self.answered_by(*resource, unique))
    }

    /// The same of a request that can only have been about one.
    pub fn answered_by(
        &self,
        resource: Resource,
        unique: u64,
    ) -> Option<Option<(Resource, NodeId)>> {
        let made = self.engine(resource).ok()?.answered(unique)?;
        Some(made.map(|id| (resource, id)))
    }

    /// A node in words, for `status` and the log. Nobody waits long for that.
    pub fn shown(&self, resource: Resource, id: NodeId) -> String {
        let Ok(slot) = self.slot(resource) else { return "?".to_owned() };
        match slot.held_within(SHORT) {
            Ok(held) => held.engine.tree().shown(id),
            Err(_) => format!("{}/?", slot.name),
        }
    }

    /// Where `/reserv` is mounted. What cannot be told now is told when it is looked after next.
    pub fn set_mount(&self, dev: u64) {
        self.mount.store(dev, Ordering::SeqCst);
        for slot in self.slots().values().filter(|slot| slot.is_up()) {
            let told = slot.ask(SHORT * 10, move |held| held.tell_mount(dev));
            if let Err(refusal) = told.and_then(|told| told) {
                tracing::warn!(%refusal, name = %slot.name, "it was not told where /reserv is mounted");
            }
        }
    }

    /// Device number of `/reserv`; 0: it is not mounted yet.
    pub fn mounted(&self) -> u64 {
        self.mount.load(Ordering::SeqCst)
    }

    /// To be done before one resource goes, as long as it can be asked.
    pub fn before_one_goes(&self, does: impl Fn(&Arc<Slot>) + Send + Sync + 'static) {
        let _ = self.before_one_goes.set(Box::new(does));
    }

    /// Whether all that was opened under a dead worker is known.
    pub fn has_caught_up(&self) -> bool {
        self.caught_up.load(Ordering::SeqCst)
    }

    /// Sockets that are for some clients.
    pub const fn listening(&self) -> &Listening {
        &self.listening
    }

    /// The mount point.
    pub fn mount(&self) -> &Path {
        &self.settings.mount
    }

    /// Whether nothing was there before this worker.
    pub fn is_fresh(&self) -> bool {
        self.slots().values().all(|slot| slot.held_within(SHORT).is_ok_and(|held| held.is_fresh()))
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    /// Keeps a refusal for those who ask why.
    pub fn refused(&self, uid: u32, what: &str, refusal: &Refusal) {
        let at_ms = self.now_ms();
        let said = lock(&self.refusals).add(uid, what, refusal, at_ms);
        if let Some(unsaid) = said {
            let Refusal { errno, text, hint } = refusal;
            tracing::info!(uid, what, errno, hint, unsaid, "refused: {text}");
        }
    }

    /// One change of the configuration at a time.
    fn change(&self) -> Result<Changing<'_>, Refusal> {
        let mut since = lock(&self.changes);
        while let Some(begun) = *since {
            let left = (begun + CHANGE_MAX).saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text =
                    format!("another change is under way, since {} s", begun.elapsed().as_secs());
                return Err(Refusal::new(libc::EBUSY, text));
            }
            since =
                self.changed.wait_timeout(since, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *since = Some(Instant::now());
        Ok(Changing(self))
    }

    /// The rules of the configuration.
    pub fn rules(&self) -> Arc<Vec<Rule>> {
        lock(&self.rules).clone()
    }

    /// The running trees and rules as a configuration. A resource that gives no answer costs its
    /// own part; all are asked at once.
    pub fn save(&self) -> Saved {
        let (mut count, mut missing) = (BTreeMap::new(), BTreeMap::new());
        let slots = self.slots();
        let shown: Vec<&Arc<Slot>> = slots.values().filter(|slot| slot.is_shown()).collect();
        let ask = |slot: &&Arc<Slot>| {
            let owned = self.owned_in(slot.resource);
            let rules = self.rules();
            slot.begin(SAVE_MAX, move |held| {
                let tree = held.engine.tree();
                without_of_users(&rules, tree, without_owned(owned, tree, held.config()))
            })
        };
        let asked: Vec<_> = shown.iter().map(ask).collect();
        let until = Instant::now() + SAVE_MAX;
        let mut cpu = None;
        for (slot, asked) in shown.into_iter().zip(asked) {
            let left = until.saturating_duration_since(Instant::now()).max(SHORT);
            match asked.and_then(|asked| asked.answer(left)) {
                Ok(config) if !slot.is_counting() => cpu = Some(config),
                Ok(config) => drop(count.insert(slot.name.clone(), config)),
                Err(refusal) => drop(missing.insert(slot.name.clone(), refusal.text)),
            }
        }
        let rules = self.rules().to_vec();
        let config =
            Config { backlog: crate::backlog::said(), cpu, count, rules, ..Config::default() };
        Saved { config, missing }
    }

    /// Makes new nodes, and the roots, those of a personality.
    pub fn set_personality(
        &self,
        personality: Personality,
        dry_run: bool,
    ) -> Result<Vec<String>, Refusal> {
        let _changing = self.change()?;
        let requests = [Request::SetPersonality { personality }];
        let mut words = Vec::new();
        let slots = self.slots();
        let shown = || slots.values().filter(|slot| slot.is_shown());
        for slot in shown() {
            let engine = slot.engine()?;
            engine.check(&requests)?;
            if !engine.tree().plan(&requests)?.edits().is_empty() {
                words.push(describe(engine.tree(), &requests[0]));
            }
        }
        if dry_run {
            return Ok(words);
        }
        let mut done: Vec<(&Arc<Slot>, Undo)> = Vec::new();
        for slot in shown() {
            let edited = slot.engine().and_then(|mut engine| {
                let undo = Undo::new(&engine, &requests)?;
                engine.edit(&requests, None).map(|_| undo)
            });
            match edited {
                Ok(undo) => done.push((slot, undo)),
                Err(mut refusal) => {
                    for (slot, undo) in done.iter().rev() {
                        let undone = slot.held().and_then(|mut held| held.engine.take_back(undo));
                        if let Err(why) = undone {
                            let _ =
                                write!(refusal.text, "; and {} was not put back: {why}", slot.name);
                        }
                    }
                    return Err(refusal);
                }
            }
        }
        Ok(words)
    }

    /// Names that the kernel may still have cached: directories and what was removed from them.
    pub fn take_removed(&self) -> Vec<(u64, Vec<u8>)> {
        let mut removed = self.take_gone();
        for slot in self.slots().values() {
            removed.extend(Self::take_removed_of(slot));
        }
        removed
    }

    fn take_gone(&self) -> Vec<(u64, Vec<u8>)> {
        let bytes = |name: Name| name.as_str().as_bytes().to_vec();
        std::mem::take(&mut *lock(&self.gone))
            .into_iter()
            .map(|name| (Ino::ROOT.0, bytes(name)))
            .collect()
    }

    /// The same of one resource; of one that somebody has for long, whoever looks after it says it.
    fn take_removed_of(slot: &Arc<Slot>) -> Vec<(u64, Vec<u8>)> {
        let Ok(mut held) = slot.held_within(SHORT) else { return Vec::new() };
        let ino = |parent| Ino::of_node(slot.resource, parent, FileKind::SchedulerDir).0;
        let removed = held.engine.take_removed();
        removed
            .into_iter()
            .map(|(parent, name)| (ino(parent), name.as_str().as_bytes().to_vec()))
            .collect()
    }
}
