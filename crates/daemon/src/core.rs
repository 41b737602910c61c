// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the threads of the worker share, under one lock: the engine, the rules, and what `status` tells.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reserv_model::{
    Config, DeleteMode, Driver, Kind, NodeId, NodeRef, Personality, Request, Tree, diff, show_cap, to_config,
};
use reserv_namespace::{FileKind, Ino, Resource, ResourceStatus, render_status};
use reserv_plane::{Health, List, Target};
use serde::Serialize;

use crate::admission;
use crate::engine::{Beginning, Engine, Refusal};
use crate::process;
use crate::revive::{Action, Reviver};
use crate::rules::{Facts, Rules};

/// Refusals that are kept for `status`.
const REFUSALS_MAX: usize = 16;
/// Detachments that are kept for `status`.
const DETACHMENTS_MAX: usize = 8;

/// How often the machine is asked for its CPUs.
const CAPACITY_EVERY: Duration = Duration::from_secs(1);

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

/// The resource was lost, for people who ask why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Detached {
    /// The kernel's words.
    pub reason: String,
    /// Since the worker started, in ms.
    pub at_ms: u64,
}

/// What `status` tells about a resource.
#[derive(Clone, Debug, Serialize)]
pub struct ResourceState {
    /// `full` or `stock`.
    pub driver: &'static str,
    /// In words.
    pub mechanism: String,
    /// Of the data plane.
    pub abi: u32,
    /// `running`, `detached` (being revived) or `out` (given up).
    pub state: &'static str,
    /// What the driver cannot do.
    pub limits: Vec<String>,
    /// What q0 is weighed against outside our tree.
    pub outside: Option<String>,
    /// Whether `chcpures()` works.
    pub chcpures: bool,
    /// What becomes of the kernel's own CPU settings of cgroups inside q0; null where the kernel goes on obeying them.
    pub cgroups: Option<reserv_plane::Cgroups>,
    /// How the worker came to its tree: `empty`, `adopted` or `rebuilt`.
    pub beginning: &'static str,
    /// What new nodes are.
    pub personality: Personality,
    /// Nodes of the tree.
    pub nodes: usize,
    /// Number of the last edit.
    pub edits: u64,
    /// What is there to be promised, in ns per second.
    pub capacity_ns: u64,
    /// Nodes whose minimums are more than that, since it fell.
    pub overcommitted: Vec<String>,
    /// The last losses of the resource, newest last.
    pub detachments: Vec<Detached>,
    /// Times that it came back.
    pub revivals: u64,
}

/// How the settings of cgroups are followed.
fn in_words(cgroups: &reserv_plane::Cgroups) -> String {
    if cgroups.ignored {
        return "ignored inside q0 (--ignore-cgroup-weights)".into();
    }
    let mut text = format!("{} mirrored inside q0", cgroups.mirrored);
    if cgroups.without_room > 0 {
        let names = cgroups.names.join(" ").replace(char::is_control, "?");
        let _ = write!(text, ", {} without room: {names}", cgroups.without_room);
    }
    text
}

/// All that `status` tells; the file is its text, the control socket gives it as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Of reservd.
    pub version: &'static str,
    /// The worker.
    pub pid: u32,
    /// By resource.
    pub resources: BTreeMap<&'static str, ResourceState>,
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
        let resources = Resource::ALL.iter().filter_map(|&resource| {
            let state = self.resources.get(resource.name())?;
            let last = state.detachments.last().map(|d| d.reason.as_str());
            Some(ResourceStatus {
                resource,
                driver: state.driver,
                mechanism: &state.mechanism,
                abi: state.abi,
                health: match (state.state, last) {
                    ("running", _) => reserv_namespace::Health::Running,
                    (_, reason) => reserv_namespace::Health::Detached(reason.unwrap_or("unknown")),
                },
                revivals: state.revivals,
                last_detachment: last,
                personality: state.personality,
                nodes: state.nodes,
                edits: state.edits,
                chcpures: state.chcpures,
                outside: state.outside.as_deref(),
                limits: &state.limits,
            })
        });
        let mut out = render_status(self.version, &resources.collect::<Vec<_>>());
        for (name, state) in &self.resources {
            let _ = writeln!(out, "{name}.state {}\n{name}.beginning {}", state.state, state.beginning);
            if !state.overcommitted.is_empty() {
                let _ = writeln!(out, "{name}.overcommitted {}", state.overcommitted.join(" "));
            }
            if let Some(cgroups) = &state.cgroups {
                let _ = writeln!(out, "{name}.cgroups {}", in_words(cgroups));
            }
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
    /// `None` only after the daemon was stopped.
    engine: Option<Engine>,
    rules: Rules,
    /// How processes are watched.
    pub watch: &'static str,
    driver: Driver,
    beginning: Beginning,
    reviver: Reviver,
    detached: bool,
    revivals: u64,
    detachments: VecDeque<Detached>,
    refusals: VecDeque<Refused>,
    start: Instant,
    /// When the machine is asked for its CPUs again.
    capacity_at: Duration,
}

/// The lock. A thread that panicked has ended the process (see `worker`), so poison is never seen.
pub fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stopped() -> Refusal {
    Refusal::new(libc::ENODEV, "reservd is stopping")
}

impl Core {
    /// Around an engine.
    pub fn new(engine: Engine, beginning: Beginning, driver: Driver) -> Self {
        let mut rules = Rules::default();
        rules.set(engine.rules());
        Self {
            engine: Some(engine),
            rules,
            watch: "none",
            driver,
            beginning,
            reviver: Reviver::default(),
            detached: false,
            revivals: 0,
            detachments: VecDeque::new(),
            refusals: VecDeque::new(),
            start: Instant::now(),
            capacity_at: Duration::ZERO,
        }
    }

    /// The engine, while the daemon is not stopped.
    pub fn engine(&mut self) -> Result<&mut Engine, Refusal> {
        self.engine.as_mut().ok_or_else(stopped)
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
        let engine = self.engine.as_ref().ok_or_else(stopped)?;
        let info = engine.plane().info();
        let cpu = ResourceState {
            driver: info.name,
            mechanism: info.mechanism,
            abi: info.version,
            state: match (self.detached, self.reviver.is_out()) {
                (false, _) => "running",
                (true, false) => "detached",
                (true, true) => "out",
            },
            limits: info.limits,
            outside: info.outside,
            chcpures: info.chcpures,
            cgroups: info.cgroups,
            beginning: match self.beginning {
                Beginning::Empty => "empty",
                Beginning::Adopted => "adopted",
                Beginning::Rebuilt => "rebuilt",
            },
            personality: engine.tree().personality(),
            nodes: engine.tree().len(),
            edits: engine.tree().seq(),
            capacity_ns: engine.tree().capacity(),
            overcommitted: engine.tree().overcommitted().iter().map(|&id| engine.tree().shown(id)).collect(),
            detachments: self.detachments.iter().cloned().collect(),
            revivals: self.revivals,
        };
        Ok(Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            resources: [(Resource::Cpu.name(), cpu)].into(),
            rules: engine.rules().len(),
            watch: self.watch,
            refusals: self.refusals.iter().cloned().collect(),
        })
    }

    /// The running tree and rules as a configuration.
    pub fn save(&self) -> Result<Config, Refusal> {
        let engine = self.engine.as_ref().ok_or_else(stopped)?;
        Ok(Config { cpu: Some(to_config(engine.tree(), self.driver)), rules: engine.rules().to_vec() })
    }

    /// Makes the tree as the configuration wants it, all or nothing; answers the differences in words.
    pub fn apply(
        &mut self,
        config: &Config,
        dry_run: bool,
        mode: DeleteMode,
    ) -> Result<Vec<String>, Refusal> {
        config.check()?;
        self.reviver = Reviver::default();
        let engine = self.engine.as_mut().ok_or_else(stopped)?;
        let requests = match &config.cpu {
            Some(cpu) => diff(engine.tree(), cpu, mode)?,
            None => Vec::new(),
        };
        let mut words: Vec<String> = requests.iter().map(|r| describe(engine.tree(), r)).collect();
        if config.rules != engine.rules() {
            words.push(format!("rules: {} instead of {}", config.rules.len(), engine.rules().len()));
        }
        if dry_run {
            engine.check(&requests)?;
            return Ok(words);
        }
        engine.edit_whole(&requests, &config.rules)?;
        if config.cpu.is_some() {
            for rule in engine.rules() {
                if engine.tree().resolve(&rule.cpu).is_err() {
                    tracing::warn!(queue = %rule.cpu, "a rule names a queue that does not exist");
                }
            }
        }
        let rules = engine.rules().to_vec();
        self.rules.set(&rules);
        self.scan();
        Ok(words)
    }

    /// Makes new nodes, and the root, those of a personality.
    pub fn set_personality(
        &mut self,
        personality: Personality,
        dry_run: bool,
    ) -> Result<Vec<String>, Refusal> {
        let engine = self.engine.as_mut().ok_or_else(stopped)?;
        let requests = [Request::SetPersonality { personality }];
        let changes = engine.tree().plan(&requests)?.edits().len();
        let words = if changes == 0 { Vec::new() } else { vec![describe(engine.tree(), &requests[0])] };
        if dry_run {
            engine.check(&requests)?;
        } else {
            engine.edit(&requests, None)?;
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
        let Some(engine) = &mut self.engine else { return };
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

    /// The regular poll: is the resource still ours; have queues drained.
    pub fn poll(&mut self) {
        let now = self.now();
        let at_ms = self.now_ms();
        let Some(engine) = &mut self.engine else { return };
        match engine.plane_mut().health() {
            Ok(Health::Running) => {
                self.detached = false;
                self.reviver.poll(now, true);
            }
            Ok(Health::Detached(reason)) => {
                if !self.detached {
                    tracing::error!(reason, "the resource was taken from us");
                    if self.detachments.len() == DETACHMENTS_MAX {
                        self.detachments.pop_front();
                    }
                    self.detachments.push_back(Detached { reason, at_ms });
                }
                self.detached = true;
                match self.reviver.poll(now, false) {
                    Action::Wait => {}
                    Action::Revive => match engine.plane_mut().revive() {
                        Ok(()) => {
                            tracing::warn!(
                                tries = self.reviver.tries(),
                                "the resource is ours again, tree and tags kept"
                            );
                            self.detached = false;
                            self.revivals += 1;
                        }
                        Err(error) => tracing::error!(%error, "revival failed"),
                    },
                    Action::GiveUp => tracing::error!("all attempts used up: staying out until `reserv up`"),
                }
            }
            Err(error) => tracing::error!(%error, "the driver does not say how it is"),
        }
        if let Err(error) = engine.collect() {
            tracing::error!(%error, "drained queues were not collected");
        }
        if now >= self.capacity_at {
            self.capacity_at = now + CAPACITY_EVERY;
            engine.set_capacity(admission::capacity());
        }
    }

    /// Names that the kernel may still have cached: directories and what was removed from them.
    pub fn take_removed(&mut self) -> Vec<(u64, Vec<u8>)> {
        let Some(engine) = &mut self.engine else { return Vec::new() };
        let removed = engine.take_removed();
        let ino = |parent| Ino::of_node(Resource::Cpu, parent, FileKind::SchedulerDir).0;
        removed.into_iter().map(|(parent, name)| (ino(parent), name.as_str().as_bytes().to_vec())).collect()
    }

    /// Gives the resource back to the kernel.
    pub fn stop(&mut self) -> Result<(), Refusal> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        engine.stop().map_err(|(engine, refusal)| {
            self.engine = Some(*engine);
            refusal
        })
    }
}

fn named(tree: &Tree, node: &NodeRef) -> String {
    let root = &tree.root().name;
    match node {
        NodeRef::Id(id) => tree.shown(*id),
        NodeRef::Path(path) if path.is_root() => root.to_string(),
        NodeRef::Path(path) => format!("{root}/{path}"),
        NodeRef::Child(parent, name) => format!("{}/{name}", tree.shown(*parent)),
    }
}

/// A request in words, for `up` to print.
fn describe(tree: &Tree, request: &Request) -> String {
    let at = |node: &NodeRef| named(tree, node);
    let old = |node: &NodeRef| match node {
        NodeRef::Id(id) => tree.get(*id),
        NodeRef::Path(path) => tree.resolve(path).ok().and_then(|id| tree.get(id)),
        NodeRef::Child(parent, name) => tree.child(*parent, name).and_then(|id| tree.get(id)),
    };
    match request {
        Request::Create { parent, name, kind, share } => {
            let name = name.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
            let kind = match kind.or(tree.personality()) {
                Kind::Scheduler(policy) => format!("scheduler {policy}"),
                Kind::Queue(class) => format!("queue {class}"),
            };
            let share = share.map_or_else(String::new, |s| format!(", share {s}"));
            format!("create {}/{name}: {kind}{share}", at(parent))
        }
        Request::Delete { node, .. } => format!("delete {}", at(node)),
        Request::Active { node } => format!("keep {}", at(node)),
        Request::SetShare { node, share } => {
            let before = old(node).map_or_else(String::new, |n| format!(" (was {})", n.share()));
            format!("set {} share {share}{before}", at(node))
        }
        Request::SetCap { node, cap } => {
            let before = old(node).map_or_else(String::new, |n| format!(" (was {})", show_cap(n.cap)));
            format!("set {} cap {}{before}", at(node), show_cap(*cap))
        }
        Request::SetClass { node, class } => format!("set {} class {class}", at(node)),
        Request::SetPolicy { node, policy } => format!("set {} policy {policy}", at(node)),
        Request::SetPersonality { personality } => {
            format!("set {} personality {personality} (was {})", tree.root().name, tree.personality())
        }
        Request::SetTune { node, change } => {
            let words: Vec<String> = change
                .iter()
                .map(|(key, value)| {
                    format!("{} {}", key.word(), value.map_or_else(|| "default".into(), |v| key.show(v)))
                })
                .collect();
            format!("set {} tune {}", at(node), words.join(" "))
        }
        Request::SetLimit { node, members_max } => format!("set {} members_max {members_max}", at(node)),
        Request::ResetCounters { node } => format!("reset {}", at(node)),
        Request::SetGc { node, gc } => format!("set {} gc {}", at(node), u8::from(*gc)),
        Request::Rename { node, name } => format!("rename {} to {name}", at(node)),
        Request::Move { node, parent, name } => {
            let name = name.as_ref().map_or_else(String::new, |n| format!(" as {n}"));
            format!("move {} into {}{name}", at(node), at(parent))
        }
    }
}
