// SPDX-License-Identifier: MIT OR Apache-2.0
//! One resource that runs: its engine, how it is kept ours, and what `status` tells of it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use reserv_model::{Driver, Name, Personality, ResourceConfig, ResourceKind, Source, to_config};
use reserv_namespace::ResourceStatus;
use reserv_plane::Health;
use serde::Serialize;

use crate::drivers::{self, Wanted};
use crate::engine::{Beginning, Engine};
use crate::refusal::Refusal;
use crate::revive::{Action, Reviver};
use crate::settings::Settings;

/// Detachments that are kept for `status`.
const DETACHMENTS_MAX: usize = 8;
/// How often the machine is asked how much of the resource there is.
const CAPACITY_EVERY: Duration = Duration::from_secs(1);

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
    /// `running`, `detached` (being revived), `out` (given up) or `late`: it does not answer, and
    /// what stands here is what it told last.
    pub state: &'static str,
    /// What the driver cannot do.
    pub limits: Vec<String>,
    /// What q0 is weighed against outside our tree.
    pub outside: Option<String>,
    /// Whether `chcpures()` works.
    pub chcpures: bool,
    /// What becomes of the kernel's own CPU settings of cgroups inside q0; null where the kernel
    /// goes on obeying them.
    pub cgroups: Option<reserv_plane::Cgroups>,
    /// How the worker came to its tree: `empty`, `adopted` or `rebuilt`.
    pub beginning: &'static str,
    /// Whose queues take what: `cpu`, `disk` or `link`.
    pub kind: ResourceKind,
    /// What new nodes are.
    pub personality: Personality,
    /// Nodes of the tree.
    pub nodes: usize,
    /// Number of the last edit.
    pub edits: u64,
    /// What is there to be promised, in ns (of a disk or link bytes) per second.
    pub capacity_ns: u64,
    /// Nodes whose minimums are more than that, since it fell.
    pub overcommitted: Vec<String>,
    /// Queues of which the kernel could not be told who may use them: there whoever has a
    /// descriptor may.
    pub untold: Vec<String>,
    /// The last losses of the resource, newest last.
    pub detachments: Vec<Detached>,
    /// Why it is late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
    /// Times that it came back.
    pub revivals: u64,
    /// Threads' budgets that did not fit any more when it last did.
    pub budgets_lost: Vec<String>,
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

impl ResourceState {
    /// Of one that does not answer: what it told last.
    pub fn late(last: Option<Self>, on: Option<&Source>, why: &Refusal) -> Self {
        let unknown = || Self {
            driver: "unknown",
            mechanism: "not known yet".into(),
            abi: 0,
            state: "late",
            limits: Vec::new(),
            outside: None,
            chcpures: false,
            cgroups: None,
            beginning: "empty",
            kind: on.map_or(ResourceKind::Cpu, Source::kind),
            personality: Personality::default(),
            nodes: 0,
            edits: 0,
            capacity_ns: 0,
            overcommitted: Vec::new(),
            untold: Vec::new(),
            detachments: Vec::new(),
            late: None,
            revivals: 0,
            budgets_lost: Vec::new(),
        };
        Self { state: "late", late: Some(why.text.clone()), ..last.unwrap_or_else(unknown) }
    }

    /// For the file.
    pub fn shown<'a>(&'a self, name: &'a str) -> ResourceStatus<'a> {
        let last = self.late.as_deref().or(self.detachments.last().map(|d| d.reason.as_str()));
        ResourceStatus {
            resource: name,
            driver: self.driver,
            mechanism: &self.mechanism,
            abi: self.abi,
            health: match (self.state, last) {
                ("running", _) => reserv_namespace::Health::Running,
                (_, reason) => reserv_namespace::Health::Detached(reason.unwrap_or("unknown")),
            },
            revivals: self.revivals,
            last_detachment: last,
            personality: self.personality,
            nodes: self.nodes,
            edits: self.edits,
            chcpures: self.chcpures,
            outside: self.outside.as_deref(),
            limits: &self.limits,
        }
    }

    /// What else the file tells.
    pub fn more(&self, name: &str, of_nodes: bool) -> String {
        let mut out = format!(
            "{name}.kind {}\n{name}.state {}\n{name}.beginning {}\n",
            self.kind.word(),
            self.state,
            self.beginning
        );
        if !of_nodes {
            return out;
        }
        if !self.overcommitted.is_empty() {
            let _ = writeln!(out, "{name}.overcommitted {}", self.overcommitted.join(" "));
        }
        if !self.untold.is_empty() {
            let _ = writeln!(out, "{name}.untold {}", self.untold.join(" "));
        }
        if !self.budgets_lost.is_empty() {
            let _ = writeln!(out, "{name}.budgets-lost {}", self.budgets_lost.join("; "));
        }
        if let Some(cgroups) = &self.cgroups {
            let _ = writeln!(out, "{name}.cgroups {}", in_words(cgroups));
        }
        out
    }
}

/// Removes what runs, if anything does.
fn stop_plane(settings: &Settings, wanted: &Wanted) -> Result<(), Refusal> {
    if let Some(mut opened) = drivers::adopt(settings, wanted)? {
        opened.plane.stop()?;
    }
    Ok(())
}

/// See the head of this file.
pub struct Held {
    /// Tree, journal and plane.
    pub engine: Engine,
    /// What a counting resource counts.
    pub on: Option<Source>,
    beginning: Beginning,
    driver: Driver,
    reviver: Reviver,
    detached: bool,
    revivals: u64,
    budgets_lost: Vec<String>,
    detachments: VecDeque<Detached>,
    /// When the machine is asked again how much of it there is.
    capacity_at: Duration,
    /// The mount that its plane knows.
    mount: u64,
}

impl Held {
    /// Around an engine.
    pub fn new(engine: Engine, beginning: Beginning, driver: Driver, on: Option<Source>) -> Self {
        Self {
            engine,
            on,
            beginning,
            driver,
            reviver: Reviver::default(),
            detached: false,
            revivals: 0,
            budgets_lost: Vec::new(),
            detachments: VecDeque::new(),
            capacity_at: Duration::ZERO,
            mount: 0,
        }
    }

    /// Tells the plane where `/reserv` is mounted, if it does not know.
    pub fn tell_mount(&mut self, dev: u64) -> Result<(), Refusal> {
        if self.mount != dev {
            self.engine.plane_mut().set_mount(dev)?;
            self.engine.tell_personality()?;
            self.mount = dev;
        }
        Ok(())
    }

    /// Takes over what runs, or starts a driver with an empty tree, or with the journal's. On error
    /// nothing is left running that was not running before.
    pub fn begin(
        settings: &Settings,
        wanted: &Wanted,
        name: &Name,
        driver: Driver,
    ) -> Result<Self, Refusal> {
        let journal = settings.journal(wanted.resource());
        let mut opened = drivers::open(settings, wanted)?;
        if opened.adopted && !journal.exists() {
            // Its names are lost with the journal: nobody could tell one node from another.
            tracing::error!(%name, "a tree runs whose journal is gone: removing it and beginning anew");
            opened.plane.stop()?;
            opened = drivers::open(settings, wanted)?;
        }
        let adopted = opened.adopted;
        let identity = || (name.clone(), wanted.kind());
        let (engine, beginning) = match Engine::open(&journal, identity(), opened.plane, adopted) {
            Ok(both) => both,
            Err(refusal) if adopted && refusal.errno == libc::ESTALE => {
                tracing::error!(%refusal, %name, "the tree is not the journal's: setting it up again; tags are lost");
                stop_plane(settings, wanted)?;
                let opened = drivers::open(settings, wanted)?;
                Engine::open(&journal, identity(), opened.plane, opened.adopted)?
            }
            Err(refusal) => {
                // An adopted plane goes on; a new one is of no use without its engine.
                if !adopted && let Err(error) = stop_plane(settings, wanted) {
                    tracing::error!(%error, "the plane was not stopped");
                }
                return Err(refusal);
            }
        };
        Ok(Self::new(engine, beginning, driver, wanted.on()))
    }

    /// Ends what a dead daemon left of a resource.
    pub fn end_what_is_left(settings: &Settings, wanted: &Wanted) -> Result<(), Refusal> {
        stop_plane(settings, wanted)?;
        let _ = std::fs::remove_file(settings.journal(wanted.resource()));
        Ok(())
    }

    /// Gives the resource back.
    pub fn stop(mut self) -> Result<(), (Box<Self>, Refusal)> {
        match self.engine.stop() {
            Ok(()) => Ok(()),
            Err(refusal) => Err((Box::new(self), refusal)),
        }
    }

    /// Whether there was no tree before this worker.
    pub fn is_fresh(&self) -> bool {
        self.beginning == Beginning::Empty
    }

    /// Its tree as a configuration.
    pub fn config(&self) -> ResourceConfig {
        ResourceConfig { on: self.on.clone(), ..to_config(self.engine.tree(), self.driver) }
    }

    /// A lost resource is tried again, however often that failed before.
    pub fn try_again(&mut self) {
        self.reviver = Reviver::default();
    }

    /// Refused while somebody else has what is scheduled here: trying is of no use then.
    pub fn require_ours(&mut self) -> Result<(), Refusal> {
        let name = self.engine.tree().root().name.clone();
        match self.engine.plane_mut().health()? {
            Health::Waiting(why) => Err(Refusal::new(libc::EBUSY, format!("{name}: {why}"))),
            Health::Running | Health::Detached(_) => Ok(()),
        }
    }

    /// A link's other rate: on error it has the old one.
    pub fn set_rate(&mut self, on: &Source) -> Result<(), Refusal> {
        self.engine.plane_mut().set_rate(on.rate())?;
        self.on = Some(on.clone());
        self.engine.measure_capacity();
        Ok(())
    }

    /// For `status`.
    pub fn state(&self) -> ResourceState {
        let (engine, info) = (&self.engine, self.engine.plane().info());
        ResourceState {
            driver: info.name,
            mechanism: info.mechanism,
            abi: info.version,
            state: match (self.detached, self.reviver.is_out()) {
                (false, _) => "running",
                (true, false) => "detached",
                (true, true) => "out",
            },
            // Drivers know numbers; who reads this knows names.
            limits: info.limits.iter().map(|limit| engine.with_names(limit)).collect(),
            outside: info.outside,
            chcpures: info.chcpures,
            cgroups: info.cgroups,
            beginning: match self.beginning {
                Beginning::Empty => "empty",
                Beginning::Adopted => "adopted",
                Beginning::Rebuilt => "rebuilt",
            },
            kind: self.on.as_ref().map_or(ResourceKind::Cpu, Source::kind),
            personality: engine.tree().personality(),
            nodes: engine.tree().len(),
            edits: engine.tree().seq(),
            capacity_ns: engine.tree().capacity(),
            overcommitted: engine
                .tree()
                .overcommitted()
                .iter()
                .map(|&id| engine.tree().shown(id))
                .collect(),
            untold: engine.untold().iter().map(|&id| engine.tree().shown(id)).collect(),
            detachments: self.detachments.iter().cloned().collect(),
            late: None,
            revivals: self.revivals,
            budgets_lost: self.budgets_lost.clone(),
        }
    }

    /// The regular poll: is the resource still ours; have queues drained.
    pub fn poll(&mut self, now: Duration) {
        let resource = self.engine.tree().root().name.clone();
        match self.engine.plane_mut().health() {
            Ok(Health::Running) => {
                self.detached = false;
                self.reviver.poll(now, true);
            }
            Ok(Health::Detached(reason)) => self.lost(now, &resource, reason, true),
            Ok(Health::Waiting(reason)) => self.lost(now, &resource, reason, false),
            Err(error) => tracing::error!(%resource, %error, "the driver does not say how it is"),
        }
        if let Err(error) = self.engine.collect() {
            tracing::error!(%resource, %error, "drained queues were not collected");
        }
        if now >= self.capacity_at {
            self.capacity_at = now + CAPACITY_EVERY;
            self.engine.measure_capacity();
        }
    }

    /// The resource is not ours now: says so once, and tries to take it again where that can be of
    /// use.
    fn lost(&mut self, now: Duration, resource: &Name, reason: String, revive: bool) {
        // Why it stays away may be another reason than why it went.
        if !self.detached || self.detachments.back().is_none_or(|last| last.reason != reason) {
            tracing::error!(%resource, reason, "the resource is not ours");
            if self.detachments.len() == DETACHMENTS_MAX {
                self.detachments.pop_front();
            }
            let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            self.detachments.push_back(Detached { reason, at_ms });
        }
        self.detached = true;
        if !revive {
            return;
        }
        match self.reviver.poll(now, false) {
            Action::Wait => {}
            Action::Revive => match self.engine.plane_mut().revive() {
                Ok(()) => {
                    tracing::warn!(
                        %resource,
                        tries = self.reviver.tries(),
                        "the resource is ours again, tree and tags kept"
                    );
                    self.detached = false;
                    self.revivals += 1;
                    self.budgets_lost = self.engine.take_back_unkept();
                    if !self.budgets_lost.is_empty() {
                        tracing::warn!(%resource, lost = self.budgets_lost.join("; "), "budgets that do not fit any more were taken back");
                    }
                }
                Err(error) => tracing::error!(%resource, %error, "revival failed"),
            },
            Action::GiveUp => {
                tracing::error!(%resource, "all attempts used up: staying out until `reserv up`");
            }
        }
    }
}
