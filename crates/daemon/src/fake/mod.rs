// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plane without a resource: it keeps the contract's promises in a file instead of the kernel, so
//! that everything above the contract can be tested anywhere. Chosen only by `RESERV_DRIVER=fake`.
//!
//! Like the kernel it outlives the daemon (a record per change, written at once: a batch is whole
//! or absent), checks what it is given, and knows which processes live. A test detaches it by
//! making `fake-detach` beside the file, with the reason in it; while `fake-detach-hold` exists,
//! revival fails. `fake-refuse` with a number n in it lets n batches pass and refuses the next as
//! busy; while `fake-deletions` exists, no batch has more of them than it says. While
//! `fake-refuse-use` exists, it cannot be told who may use a queue of the number in it or a higher
//! one; what it was told stands in `fake-use`. While `fake-block-N` exists, whatever is
//! asked of the plane of resource N waits ([`Blocks`]); `fake-refuse-N` refuses its next batch, and
//! goes. While `fake-panic` exists, a batch ends the
//! worker; while `fake-hold` does, it waits.

mod blocks;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use reserv_model::{
    Batch, Cap, Class, DeleteMode, Kind, NodeId, Op, Outcome, Policy, ThreadParams, Tune, UseRule,
    Weight,
};
use reserv_plane::{
    Defaults, Descriptors, DriverInfo, Health, List, Lists, Member, Packets, Plane, PlaneError,
    Sample, Target, Threads, Upgrade,
};
use serde::{Deserialize, Serialize};

pub use self::blocks::Blocks;
use crate::journal::Journal;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Node {
    generation: u32,
    parent: u32,
    kind: Kind,
    weight: Weight,
    cap: Option<Cap>,
    members_max: u32,
    #[serde(default)]
    tune: Tune,
    draining: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct State {
    seq: u64,
    nodes: BTreeMap<u32, Node>,
    /// The last generation of each slot that was ever used.
    generations: BTreeMap<u32, u32>,
    /// Queue (packed) and process of each tagged thread.
    tags: BTreeMap<i32, (i32, u64)>,
    #[serde(default)]
    params: BTreeMap<i32, ThreadParams>,
    /// Default and child default list (packed).
    lists: BTreeMap<i32, (u64, u64)>,
    drained: Vec<NodeId>,
    mount: u64,
}

/// One record of the file.
#[derive(Serialize, Deserialize)]
enum Change {
    /// All of it.
    Whole(State),
    /// A batch that was accepted.
    Batch(Batch),
}

/// The plane.
#[derive(Debug)]
pub struct FakePlane {
    path: PathBuf,
    file: Journal,
    state: State,
}

fn stale(id: NodeId) -> PlaneError {
    PlaneError::NoNode(format!("{}.{}", id.index, id.generation))
}

impl State {
    fn new() -> Self {
        let node = |parent, kind| Node {
            generation: 1,
            parent,
            kind,
            weight: Weight::DEFAULT,
            cap: None,
            members_max: 0,
            tune: Tune::new(),
            draining: false,
        };
        let mut state = Self::default();
        state
            .nodes
            .insert(NodeId::ROOT.index, node(0, Kind::Scheduler(reserv_model::Policy::default())));
        state.nodes.insert(NodeId::Q0.index, node(0, Kind::Queue(Class::default())));
        state.generations = [(0, 1), (1, 1)].into();
        state
    }

    fn node(&self, id: NodeId) -> Result<&Node, PlaneError> {
        self.nodes.get(&id.index).filter(|n| n.generation == id.generation).ok_or_else(|| stale(id))
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, PlaneError> {
        self.nodes
            .get_mut(&id.index)
            .filter(|n| n.generation == id.generation)
            .ok_or_else(|| stale(id))
    }

    fn queue(&self, id: NodeId) -> Result<&Node, PlaneError> {
        let node = self.node(id)?;
        match node.kind {
            Kind::Queue(_) => Ok(node),
            Kind::Scheduler(_) => {
                Err(PlaneError::Invalid("a scheduler node has no members".into()))
            }
        }
    }

    fn members(&self, id: NodeId) -> impl Iterator<Item = (i32, i32)> + '_ {
        self.tags
            .iter()
            .filter(move |(_, (_, q))| *q == id.pack())
            .map(|(&tid, &(tgid, _))| (tgid, tid))
    }

    fn remove(&mut self, id: NodeId) {
        self.nodes.remove(&id.index);
        self.lists.retain(|_, lists| lists.0 != id.pack() && lists.1 != id.pack());
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        if batch.seq <= self.seq {
            return Err(PlaneError::Invalid(format!("batch {} after {}", batch.seq, self.seq)));
        }
        self.seq = batch.seq;
        let mut outcomes: Vec<Outcome> =
            batch.ops.iter().map(|op| self.apply_one(op)).collect::<Result<_, _>>()?;
        for (op, outcome) in batch.ops.iter().zip(&mut outcomes) {
            if let (&Op::Delete { id, mode: DeleteMode::Flush }, Outcome::Draining) = (op, &outcome)
            {
                self.tags.retain(|_, (_, q)| *q != id.pack());
                self.remove(id);
                *outcome = Outcome::Done;
            }
        }
        Ok(outcomes)
    }

    fn apply_one(&mut self, op: &Op) -> Result<Outcome, PlaneError> {
        match *op {
            Op::Create { id, parent, kind } => {
                let last = self.generations.get(&id.index).copied().unwrap_or(0);
                if self.nodes.contains_key(&id.index) || id.generation <= last {
                    return Err(PlaneError::Invalid(format!(
                        "slot {} is taken or was used later",
                        id.index
                    )));
                }
                if matches!(self.node(parent)?.kind, Kind::Queue(_)) {
                    return Err(PlaneError::Invalid("a queue has no children".into()));
                }
                let node = Node {
                    generation: id.generation,
                    parent: parent.index,
                    kind,
                    weight: Weight::BACKGROUND,
                    cap: None,
                    members_max: 0,
                    tune: Tune::new(),
                    draining: false,
                };
                self.nodes.insert(id.index, node);
                self.generations.insert(id.index, id.generation);
            }
            Op::Delete { id, mode } => {
                self.node(id)?;
                if id == NodeId::ROOT || id == NodeId::Q0 {
                    return Err(PlaneError::Invalid("root and q0 stay".into()));
                }
                if self.nodes.iter().any(|(&i, n)| n.parent == id.index && i != 0) {
                    return Err(PlaneError::Busy("it has children".into()));
                }
                if self.members(id).next().is_some() {
                    match mode {
                        DeleteMode::Refuse => {
                            return Err(PlaneError::Busy("it has members".into()));
                        }
                        // What is flushed stands until its members are moved, after the batch.
                        DeleteMode::Drain | DeleteMode::Flush => {
                            self.node_mut(id)?.draining = true;
                            return Ok(Outcome::Draining);
                        }
                    }
                }
                self.remove(id);
            }
            Op::Reweight { id, weight } => self.node_mut(id)?.weight = weight,
            Op::SetCap { id, cap } => self.node_mut(id)?.cap = cap,
            Op::SetClass { id, class } => {
                self.queue(id)?;
                self.node_mut(id)?.kind = Kind::Queue(class);
            }
            Op::SetPolicy { id, policy } => match &mut self.node_mut(id)?.kind {
                Kind::Scheduler(old) => *old = policy,
                Kind::Queue(_) => return Err(PlaneError::Invalid("a queue has no policy".into())),
            },
            Op::SetLimit { id, members_max, .. } => {
                self.queue(id)?;
                self.node_mut(id)?.members_max = members_max;
            }
            Op::Tune { id, key, value } | Op::NodeParam { id, key, value } => {
                self.node_mut(id)?.tune.insert(key, value);
            }
            Op::ResetCounters { id } => {
                self.queue(id)?;
            }
            Op::Move { id, parent } => {
                self.node(id)?;
                let mut up = parent.index;
                self.node(parent)?;
                while up != 0 {
                    if up == id.index {
                        return Err(PlaneError::Invalid("below itself".into()));
                    }
                    up = self.nodes[&up].parent;
                }
                self.node_mut(id)?.parent = parent.index;
            }
        }
        Ok(Outcome::Done)
    }
}

fn lives(tid: i32) -> bool {
    Path::new(&format!("/proc/{tid}")).exists()
}

/// The threads of a process that lives.
fn threads(pid: i32) -> Result<Vec<i32>, PlaneError> {
    let dir =
        std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| PlaneError::NoProcess(pid))?;
    Ok(dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn process_of(tid: i32) -> Result<i32, PlaneError> {
    crate::process::tgid(tid).ok_or(PlaneError::NoProcess(tid))
}

impl FakePlane {
    /// Begins with an empty tree.
    pub fn start(path: &Path) -> io::Result<Self> {
        let (mut file, _) = Journal::open(path)?;
        let state = State::new();
        file.replace(&serde_json::to_vec(&Change::Whole(state.clone()))?)?;
        Ok(Self { path: path.to_owned(), file, state })
    }

    /// Finds what an earlier daemon left.
    pub fn adopt(path: &Path) -> io::Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let (file, records) = Journal::open(path)?;
        let mut state = State::new();
        for record in records {
            match serde_json::from_slice(&record)? {
                Change::Whole(whole) => state = whole,
                Change::Batch(batch) => {
                    state.apply(&batch).map_err(io::Error::other)?;
                }
            }
        }
        Ok(Some(Self { path: path.to_owned(), file, state }))
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// `fake-hold`: waits while that is there, after as many batches as it says.
    fn wait_if_told(&self) {
        let file = self.beside("fake-hold");
        while let Ok(text) = std::fs::read_to_string(&file) {
            if let Some(left) = text.trim().parse().ok().and_then(|left: u32| left.checked_sub(1)) {
                let _ = std::fs::write(&file, left.to_string());
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    fn refuse_if_told(&self) -> Result<(), PlaneError> {
        assert!(!self.beside("fake-panic").exists(), "fake-panic exists");
        self.wait_if_told();
        let file = self.beside("fake-refuse");
        let Ok(text) = std::fs::read_to_string(&file) else { return Ok(()) };
        let left: u32 = text.trim().parse().unwrap_or(0);
        let told = left.checked_sub(1).map(|left| std::fs::write(&file, left.to_string()));
        if told.is_none() {
            std::fs::remove_file(&file).map_err(tried)?;
            return Err(PlaneError::Busy("fake-refuse".into()));
        }
        Ok(())
    }

    /// `fake-deletions`: a batch has no more of them than it says.
    fn count_deletions(&self, batch: &Batch) -> Result<(), PlaneError> {
        let Ok(text) = std::fs::read_to_string(self.beside("fake-deletions")) else {
            return Ok(());
        };
        let most: usize = text.trim().parse().unwrap_or(0);
        match batch.ops.iter().filter(|op| matches!(op, Op::Delete { .. })).count() {
            count if count > most => Err(PlaneError::TooMuch(format!("{count} deletions"))),
            _ => Ok(()),
        }
    }

    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut State) -> Result<T, PlaneError>,
    ) -> Result<T, PlaneError> {
        let mut next = self.state.clone();
        next.tags.retain(|tid, _| lives(*tid));
        next.params.retain(|tid, _| lives(*tid));
        let answer = change(&mut next)?;
        let gone: Vec<NodeId> = next
            .nodes
            .iter()
            .map(|(&index, node)| (NodeId { index, generation: node.generation }, node.draining))
            .filter(|&(id, draining)| draining && next.members(id).next().is_none())
            .map(|(id, _)| id)
            .collect();
        for id in gone {
            next.remove(id);
            next.drained.push(id);
        }
        let whole =
            serde_json::to_vec(&Change::Whole(next.clone())).map_err(|e| tried(e.into()))?;
        self.file.append(&whole).map_err(tried)?;
        self.state = next;
        Ok(answer)
    }
}

fn tried(source: io::Error) -> PlaneError {
    PlaneError::Os { context: "writing the fake plane".into(), source }
}

impl Plane for FakePlane {
    fn info(&self) -> DriverInfo {
        DriverInfo {
            name: "fake",
            mechanism: "a file".into(),
            version: 1,
            limits: vec!["schedules nothing".into()],
            outside: None,
            chcpures: false,
            cgroups: None,
        }
    }

    fn apply(&mut self, batch: &Batch) -> Result<Vec<Outcome>, PlaneError> {
        self.refuse_if_told()?;
        self.count_deletions(batch)?;
        let mut next = self.state.clone();
        next.tags.retain(|tid, _| Path::new(&format!("/proc/{tid}")).exists());
        if next.tags.len() != self.state.tags.len() {
            // Who died is in the file before a batch that depends on it.
            let whole =
                serde_json::to_vec(&Change::Whole(next.clone())).map_err(|e| tried(e.into()))?;
            self.file.append(&whole).map_err(tried)?;
        }
        let outcomes = next.apply(batch)?;
        let record =
            serde_json::to_vec(&Change::Batch(batch.clone())).map_err(|e| tried(e.into()))?;
        self.file.append(&record).map_err(tried)?;
        self.state = next;
        Ok(outcomes)
    }

    fn applied_seq(&self) -> Result<Option<u64>, PlaneError> {
        Ok(Some(self.state.seq))
    }

    fn collect_drained(&mut self) -> Result<Vec<NodeId>, PlaneError> {
        if self.state.drained.is_empty() && !self.state.nodes.values().any(|n| n.draining) {
            return Ok(Vec::new());
        }
        self.change(|state| Ok(std::mem::take(&mut state.drained)))
    }

    fn sample(&self) -> Result<Vec<Sample>, PlaneError> {
        let ids =
            self.state.nodes.iter().map(|(&index, n)| NodeId { index, generation: n.generation });
        ids.map(|id| self.sample_one(id)).collect()
    }

    fn sample_one(&self, id: NodeId) -> Result<Sample, PlaneError> {
        let node = self.state.node(id)?;
        let living = self.state.members(id).filter(|(_, tid)| lives(*tid)).count();
        let members = u32::try_from(living).unwrap_or(u32::MAX);
        Ok(Sample { id: id.pack(), members, draining: node.draining, ..Sample::default() })
    }

    fn health(&mut self) -> Result<Health, PlaneError> {
        let reason =
            |name| std::fs::read_to_string(self.beside(name)).map(|text| text.trim().to_owned());
        Ok(match (reason("fake-detach"), reason("fake-detach-other")) {
            (Ok(_), Ok(reason)) => Health::Waiting(reason),
            (Ok(reason), Err(_)) => Health::Detached(reason),
            (Err(_), _) => Health::Running,
        })
    }

    fn revive(&mut self) -> Result<(), PlaneError> {
        if self.beside("fake-detach-hold").exists() {
            return Err(PlaneError::Taken("fake-detach-hold exists".into()));
        }
        let _ = std::fs::remove_file(self.beside("fake-detach"));
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PlaneError> {
        let tried = |source| PlaneError::Os { context: "removing the fake plane".into(), source };
        std::fs::remove_file(&self.path).map_err(tried)
    }

    fn supports_class(&self, _class: Class) -> bool {
        true
    }

    fn supports_policy(&self, _policy: Policy) -> bool {
        true
    }
}

impl Threads for FakePlane {
    fn tag(&mut self, target: Target, queue: NodeId) -> Result<usize, PlaneError> {
        let (tgid, tids) = match target {
            Target::Thread(tid) => (process_of(tid)?, vec![tid]),
            Target::Process(pid) => (pid, threads(pid)?),
        };
        self.change(|state| {
            let node = state.queue(queue)?;
            if node.draining {
                return Err(PlaneError::Busy("it is draining".into()));
            }
            let after =
                state.members(queue).filter(|(_, tid)| !tids.contains(tid)).count() + tids.len();
            if node.members_max != 0 && after > node.members_max as usize {
                return Err(PlaneError::Full(format!("at most {} members", node.members_max)));
            }
            for tid in &tids {
                if queue == NodeId::Q0 {
                    state.tags.remove(tid);
                } else {
                    state.tags.insert(*tid, (tgid, queue.pack()));
                }
            }
            Ok(tids.len())
        })
    }

    fn tag_of(&self, tid: i32) -> Result<NodeId, PlaneError> {
        process_of(tid)?;
        Ok(self.state.tags.get(&tid).map_or(NodeId::Q0, |(_, q)| NodeId::unpack(*q)))
    }

    fn params_of(&self, tid: i32) -> Result<ThreadParams, PlaneError> {
        process_of(tid)?;
        Ok(self.state.params.get(&tid).copied().unwrap_or_default())
    }

    fn set_params(&mut self, tid: i32, params: &ThreadParams) -> Result<(), PlaneError> {
        process_of(tid)?;
        self.change(|state| {
            state.params.insert(tid, *params);
            Ok(())
        })
    }

    fn members(&self, queue: NodeId) -> Result<Vec<Member>, PlaneError> {
        self.state.queue(queue)?;
        let params = |tid| self.state.params.get(&tid).copied().unwrap_or_default();
        let member = |(tgid, tid)| Member { tgid, tid, params: params(tid) };
        Ok(self.state.members(queue).filter(|(_, tid)| lives(*tid)).map(member).collect())
    }
}

impl Lists for FakePlane {
    fn set_mount(&mut self, dev: u64) -> Result<(), PlaneError> {
        if self.state.mount == dev {
            return Ok(());
        }
        self.change(|state| {
            state.mount = dev;
            Ok(())
        })
    }

    fn defaults(&self, pid: i32) -> Result<Defaults, PlaneError> {
        threads(pid)?;
        let q0 = NodeId::Q0.pack();
        let (default, child) = self.state.lists.get(&pid).copied().unwrap_or((q0, q0));
        Ok(Defaults { default: NodeId::unpack(default), child: NodeId::unpack(child) })
    }

    fn set_default(&mut self, pid: i32, list: List, queue: NodeId) -> Result<(), PlaneError> {
        threads(pid)?;
        self.change(|state| {
            state.queue(queue)?;
            let q0 = NodeId::Q0.pack();
            let lists = state.lists.entry(pid).or_insert((q0, q0));
            match list {
                List::Default => lists.0 = queue.pack(),
                List::Child => lists.1 = queue.pack(),
            }
            Ok(())
        })
    }

    fn set_use(&mut self, queue: NodeId, rules: &[UseRule]) -> Result<(), PlaneError> {
        self.state.queue(queue)?;
        let refused = std::fs::read_to_string(self.beside("fake-refuse-use")).ok();
        if refused
            .is_some_and(|text| text.trim().parse().is_ok_and(|least: u32| queue.index >= least))
        {
            return Err(PlaneError::Full("fake-refuse-use".into()));
        }
        // Beside the plane, for tests: who may use which queue.
        let line = format!("{} {} {}\n", queue.index, queue.generation, rules.len());
        let file =
            std::fs::OpenOptions::new().create(true).append(true).open(self.beside("fake-use"));
        file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(tried)
    }
}

impl Descriptors for FakePlane {}

impl Packets for FakePlane {}

impl Upgrade for FakePlane {}
