// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree's cgroups, the disk's elevator, and the file by which the next daemon finds and undoes
//! both.
//!
//! The file is written before what it tells of is changed. What is in the tree is the books'
//! business ([`crate::count`]): a daemon that died makes the cgroups what its books say, and a
//! batch that they do not have was not.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use reserv_model::NodeId;
use serde::{Deserialize, Serialize};

use super::device::Device;
use super::means::Means;
use super::shares::Groups;
use crate::PlaneError;
use crate::cgroup::kernel::Kernel;
use crate::cgroup::mounts::{self, Version};
use crate::cgroup::origin::Origins;
use crate::cgroup::places::{Place, Places, gone, os, put};
use crate::cgroup::{disk_tree, parse_component};
use crate::count::Usage;

const VERSION: u32 = 1;
/// How often a directory is emptied again because somebody in it forked.
const ROUNDS: usize = 200;
/// A process of the top cgroup, to BFQ: its I/O priority 4 of 8, times 10.
const BFQ_PROCESS: u32 = 40;

/// A directory that is about to go, with what was counted there.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Leaving {
    path: String,
    id: NodeId,
    usage: Usage,
}

/// What the file holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    version: u32,
    /// Of the resource.
    pub(super) number: u8,
    pub(super) device: Device,
    pub(super) means: Means,
    /// The elevator that was there, if it is not the same.
    pub(super) former: Option<String>,
    /// Switches of an elevator that was there before, as they were.
    pub(super) tuned: Vec<(String, String)>,
    /// iocost was off.
    pub(super) switched: bool,
    /// Controllers that we have enabled at the top.
    prepared: Vec<String>,
    /// What the disk had done before.
    base: Usage,
    /// What was counted in directories that have gone, of nodes that are there.
    carried: BTreeMap<u32, Usage>,
    /// The same, of nodes that are not.
    gone: Usage,
    leaving: Vec<Leaving>,
}

pub(super) struct Tree {
    pub(super) places: Places,
    /// The CPU's tree, which may be in the same hierarchy.
    cpu: String,
    pub(super) kept: Kept,
    file: String,
    origins: Origins,
    /// As the cgroups are.
    pub(super) now: Groups,
    written: BTreeMap<String, u32>,
    /// q0's counters are a difference and may not run backwards.
    q0: Cell<Usage>,
}

fn file(run: &Path) -> String {
    format!("{}/stock-disk", run.display())
}

fn load(kernel: &dyn Kernel, file: &str) -> Result<Option<Kept>, PlaneError> {
    let text = match kernel.read(file) {
        Ok(text) => text,
        Err(e) if gone(&e) => return Ok(None),
        Err(e) => return Err(os(format!("read {file}"))(e)),
    };
    let kept: Kept =
        serde_json::from_str(&text).map_err(|e| os(format!("read {file}"))(e.into()))?;
    if kept.version != VERSION {
        return Err(PlaneError::Invalid(format!("{file} is of another version of reservd")));
    }
    Ok(Some(kept))
}

impl Tree {
    fn new(
        kernel: Box<dyn Kernel>,
        run: &Path,
        name: &str,
        kept: Kept,
    ) -> Result<Self, PlaneError> {
        let layout = mounts::find_io(&*kernel).map_err(PlaneError::Unsupported)?;
        Ok(Self {
            places: Places { kernel, layout, name: disk_tree(name) },
            cpu: name.to_owned(),
            kept,
            file: file(run),
            origins: Origins::empty(format!("{}/stock-disk.origins", run.display())),
            now: Groups::default(),
            written: BTreeMap::new(),
            q0: Cell::new(Usage::default()),
        })
    }

    /// Takes a disk: its elevator, and an empty tree.
    pub(super) fn take(
        kernel: Box<dyn Kernel>,
        (run, name): (&Path, &str),
        number: u8,
        device: Device,
        one: bool,
    ) -> Result<Self, PlaneError> {
        if let Some(other) = load(&*kernel, &file(run))? {
            return Err(PlaneError::Taken(format!(
                "{} has the stock driver already, and a process has one cgroup for all disks: only one disk has it at a \
                 time; the others take the full driver",
                other.device.name
            )));
        }
        let kept = Kept {
            version: VERSION,
            number,
            base: device.total(&*kernel),
            device,
            means: Means::Bfq,
            former: None,
            tuned: Vec::new(),
            switched: false,
            prepared: Vec::new(),
            carried: BTreeMap::new(),
            gone: Usage::default(),
            leaving: Vec::new(),
        };
        let mut tree = Self::new(kernel, run, name, kept)?;
        let inhabited = tree
            .places
            .dirs("")
            .iter()
            .any(|dir| tree.places.kernel().list(dir).is_ok_and(|names| !names.is_empty()))
            || !tree.places.pids("")?.is_empty();
        if inhabited {
            return Err(PlaneError::Taken(format!(
                "the cgroup {} is somebody else's",
                tree.dir("")
            )));
        }
        let begun = tree.choose(one).and_then(|()| tree.prepare());
        if let Err(error) = begun {
            if let Err(also) = tree.give_back() {
                tracing::error!(error = %also, "the disk was not given back");
            }
            return Err(error);
        }
        Ok(tree)
    }

    /// What an earlier daemon left of this resource.
    pub(super) fn find(
        kernel: Box<dyn Kernel>,
        (run, name): (&Path, &str),
        number: u8,
    ) -> Result<Option<Self>, PlaneError> {
        let Some(kept) = load(&*kernel, &file(run))?.filter(|kept| kept.number == number) else {
            return Ok(None);
        };
        let mut tree = Self::new(kernel, run, name, kept)?;
        for leaving in std::mem::take(&mut tree.kept.leaving) {
            if !tree.places.kernel().exists(&tree.dir(&leaving.path)) {
                tree.carry(leaving.id, leaving.usage);
            }
        }
        tree.origins = Origins::load(&tree.places, format!("{}.origins", tree.file))?;
        Ok(Some(tree))
    }

    pub(super) fn save(&self) -> Result<(), PlaneError> {
        let text = serde_json::to_vec(&self.kept)
            .map_err(|e| os(format!("write {}", self.file))(e.into()))?;
        self.places.kernel().store(&self.file, &text).map_err(os(format!("write {}", self.file)))
    }

    pub(super) fn v2(&self) -> bool {
        self.places.layout.version == Version::V2
    }

    pub(super) fn top(&self) -> &str {
        &self.places.layout.hierarchies[0].mount
    }

    /// The directory of a path of the tree.
    fn dir(&self, path: &str) -> String {
        self.places.dirs(path).swap_remove(0)
    }

    /// Enables the controllers at the top, and makes the tree's own directory. Memory is there so
    /// that what is written back has an owner.
    fn prepare(&mut self) -> Result<(), PlaneError> {
        if self.v2() {
            let control = format!("{}/cgroup.subtree_control", self.top());
            for controller in ["io", "memory"] {
                let now =
                    self.places.kernel().read(&control).map_err(os(format!("read {control}")))?;
                if now.split_whitespace().any(|c| c == controller) {
                    continue;
                }
                self.kept.prepared.push(controller.to_owned());
                self.save()?;
                let done = put(self.places.kernel(), &control, &format!("+{controller}"));
                if let Err(error) = done {
                    self.kept.prepared.pop();
                    if controller == "io" {
                        return Err(error);
                    }
                    tracing::warn!(%error, "what is written back later is q0's");
                }
            }
        }
        self.make("", true)
    }

    fn make(&self, path: &str, scheduler: bool) -> Result<(), PlaneError> {
        self.places.make_dirs(path)?;
        if !self.v2() || !scheduler {
            return Ok(());
        }
        let control = format!("{}/cgroup.subtree_control", self.dir(path));
        let now = self.places.kernel().read(&control).map_err(os(format!("read {control}")))?;
        let has = |controller: &str| now.split_whitespace().any(|c| c == controller);
        if !has("io") {
            put(self.places.kernel(), &control, "+io")?;
        }
        if !has("memory") {
            let _ = self.places.kernel().write(&control, "+memory");
        }
        Ok(())
    }

    /// The weight of everything beside our tree, and who that is.
    pub(super) fn outside(&self) -> (u32, Vec<String>) {
        // iocost lets whatever is in the top cgroup itself pass.
        let mut total = if self.kept.means == Means::Bfq { BFQ_PROCESS } else { 0 };
        let mut who = match self.kept.means {
            Means::Bfq => {
                vec![format!("each process of the top cgroup itself counts {BFQ_PROCESS}")]
            }
            Means::Iocost => {
                vec!["processes of the top cgroup itself are never held back".to_owned()]
            }
        };
        for name in self.places.kernel().list(self.top()).unwrap_or_default() {
            if name == self.places.name {
                continue;
            }
            let read =
                self.places.kernel().read(&format!("{}/{name}/{}", self.top(), self.weight_file()));
            let weight = read.ok().and_then(|text| {
                text.lines().next()?.trim_start_matches("default ").trim().parse::<u32>().ok()
            });
            if let Some(weight) = weight {
                total = total.saturating_add(weight);
                who.push(format!("{name} {weight}"));
            }
        }
        (total, who)
    }

    /// Directories of ours, parents first; names that are not ours are left alone.
    fn scan(&self) -> Result<Vec<(NodeId, String)>, PlaneError> {
        let mut found = vec![(NodeId::ROOT, String::new())];
        let mut at = 0;
        while let Some((_, path)) = found.get(at).cloned() {
            at += 1;
            let dir = self.dir(&path);
            let names = match self.places.kernel().list(&dir) {
                Ok(names) => names,
                Err(e) if gone(&e) => continue,
                Err(e) => return Err(os(format!("list {dir}"))(e)),
            };
            found.extend(
                names
                    .iter()
                    .filter_map(|name| Some((parse_component(name)?.0, format!("{path}/{name}")))),
            );
        }
        Ok(found)
    }

    /// Makes what is wanted: directories, weights, and processes of nodes that hang elsewhere now.
    pub(super) fn put(&mut self, wanted: &Groups) -> Result<(), PlaneError> {
        for group in &wanted.all {
            let there = self.places.kernel().exists(&self.dir(&group.path));
            if !there || !self.written.contains_key(&group.path) {
                self.make(&group.path, group.scheduler)?;
                self.written.remove(&group.path);
            }
            if self.written.get(&group.path) != Some(&group.weight) {
                let path = format!("{}/{}", self.dir(&group.path), self.weight_file());
                put(self.places.kernel(), &path, &group.weight.to_string())?;
                self.written.insert(group.path.clone(), group.weight);
            }
        }
        for (id, path) in self.scan()? {
            if let Some(to) = wanted.path(id).filter(|to| *to != path) {
                self.migrate(&path, &self.places.dirs(to))?;
            }
        }
        Ok(())
    }

    fn migrate(&self, from: &str, to: &[String]) -> Result<(), PlaneError> {
        for _ in 0..ROUNDS {
            let pids = self.places.pids(from)?;
            if pids.is_empty() {
                return Ok(());
            }
            for pid in pids {
                match self.places.put_process(to, pid) {
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => self.places.kernel().pause(),
                    Err(e) => {
                        return Err(os(format!("move process {pid} from {from} to {}", to[0]))(e));
                    }
                    Ok(()) => {}
                }
            }
        }
        Err(PlaneError::Busy(format!("{from} does not become empty")))
    }

    /// Gives a process back to where it came from, or to the top.
    fn release(&mut self, pid: i32) -> Result<(), PlaneError> {
        let tops = self.places.tops();
        let released = self.origins.release_process(&self.places, pid, &tops);
        match self.places.locate(pid) {
            Ok(place) if self.places.ours(&place) => match self.places.put_process(&tops, pid) {
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
                done => done.map_err(os(format!("move process {pid} to the top cgroup"))),
            },
            Ok(_) | Err(PlaneError::NoProcess(_)) => Ok(()),
            Err(error) => released.and(Err(error)),
        }
    }

    fn flush(&mut self, path: &str) -> Result<(), PlaneError> {
        for _ in 0..ROUNDS {
            let pids = self.places.pids(path)?;
            if pids.is_empty() {
                return Ok(());
            }
            for pid in pids {
                self.release(pid)?;
            }
            self.places.kernel().pause();
        }
        Err(PlaneError::Busy(format!("{path} does not become empty")))
    }

    fn carry(&mut self, id: NodeId, usage: Usage) {
        let entry = self.kept.carried.entry(id.index).or_default();
        *entry = entry.plus(usage);
    }

    /// Removes what is not wanted; what is in it goes home. The tree is this one from now on.
    pub(super) fn prune(&mut self, wanted: Groups) -> Result<(), PlaneError> {
        let surplus: Vec<(NodeId, String)> = self
            .scan()?
            .into_iter()
            .filter(|(id, path)| wanted.path(*id) != Some(path.as_str()))
            .collect();
        for (id, path) in &surplus {
            match wanted.path(*id) {
                Some(to) => self.migrate(path, &self.places.dirs(to))?,
                None => self.flush(path)?,
            }
        }
        if !surplus.is_empty() {
            self.kept.leaving = surplus
                .iter()
                .map(|(id, path)| {
                    Ok(Leaving { id: *id, path: path.clone(), usage: self.read(path)? })
                })
                .collect::<Result<_, PlaneError>>()?;
            self.save()?;
            for (_, path) in surplus.iter().rev() {
                if !self.places.unmake(path)? {
                    return Err(PlaneError::Busy(format!("{path} does not become empty")));
                }
                self.written.remove(path);
            }
            for leaving in std::mem::take(&mut self.kept.leaving) {
                self.carry(leaving.id, leaving.usage);
            }
        }
        let there = |index: &u32| wanted.all.iter().any(|group| group.id.index == *index);
        // A slot is used again only after its node has gone.
        let dead: Vec<u32> =
            self.kept.carried.keys().filter(|index| !there(index)).copied().collect();
        for index in &dead {
            let usage = self.kept.carried.remove(index).unwrap_or_default();
            self.kept.gone = self.kept.gone.plus(usage);
        }
        self.now = wanted;
        if surplus.is_empty() && dead.is_empty() { Ok(()) } else { self.save() }
    }

    /// What was counted in a directory; nothing in one that somebody has removed.
    fn read(&self, path: &str) -> Result<Usage, PlaneError> {
        let text = |file: &str| {
            let file = format!("{}/{file}", self.dir(path));
            match self.places.kernel().read(&file) {
                Err(e) if gone(&e) => Ok(String::new()),
                other => other.map_err(os(format!("read {file}"))),
            }
        };
        let number = format!("{} ", self.kept.device.number);
        if self.v2() {
            let text = text("io.stat")?;
            let line = text.lines().find_map(|line| line.strip_prefix(&number)).unwrap_or_default();
            let of = |key: &str| {
                line.split(' ')
                    .find_map(|word| word.strip_prefix(key)?.parse::<u64>().ok())
                    .unwrap_or(0)
            };
            return Ok(Usage {
                operations: of("rios=").wrapping_add(of("wios=")),
                bytes: of("rbytes=").wrapping_add(of("wbytes=")),
            });
        }
        let both = |file: &str| -> Result<u64, PlaneError> {
            Ok(text(file)?
                .lines()
                .filter_map(|line| line.strip_prefix(&number)?.split_once(' '))
                .filter(|(what, _)| matches!(*what, "Read" | "Write"))
                .filter_map(|(_, n)| n.trim().parse::<u64>().ok())
                .sum())
        };
        Ok(Usage {
            operations: both("blkio.bfq.io_serviced")?,
            bytes: both("blkio.bfq.io_service_bytes")?,
        })
    }

    /// What a queue has been served. q0 has what no other queue had of the disk's.
    pub(super) fn usage(&self, id: NodeId) -> Result<Usage, PlaneError> {
        let of = |id: NodeId, path: &str| {
            let carried = self.kept.carried.get(&id.index).copied().unwrap_or_default();
            self.read(path).map(|now| now.plus(carried))
        };
        if id != NodeId::Q0 {
            return self.now.path(id).map_or_else(|| Ok(Usage::default()), |path| of(id, path));
        }
        let mut others = self.kept.gone;
        for group in self.now.all.iter().filter(|group| !group.scheduler) {
            others = others.plus(of(group.id, &group.path)?);
        }
        let all = self.kept.device.total(self.places.kernel()).since(self.kept.base);
        let (now, before) = (all.since(others), self.q0.get());
        let now = Usage {
            operations: now.operations.max(before.operations),
            bytes: now.bytes.max(before.bytes),
        };
        self.q0.set(now);
        Ok(now)
    }

    /// The processes in a queue.
    pub(super) fn pids(&self, id: NodeId) -> Result<Vec<i32>, PlaneError> {
        self.now.path(id).map_or_else(|| Ok(Vec::new()), |path| self.places.pids(path))
    }

    /// The queue that a place is in; q0 outside.
    fn queue_at(&self, place: &Place) -> NodeId {
        let inside = self.places.inside(place).unwrap_or_default();
        // The deepest name that is ours: somebody may have made a cgroup below.
        let mut names = inside.split('/').rev().filter_map(parse_component);
        names
            .find_map(|(id, scheduler)| (!scheduler && self.now.path(id).is_some()).then_some(id))
            .unwrap_or(NodeId::Q0)
    }

    /// A process's queue.
    pub(super) fn queue_of(&self, pid: i32) -> Result<NodeId, PlaneError> {
        Ok(self.queue_at(&self.places.locate(pid)?))
    }

    /// Puts a whole process into a queue. Answers how many threads that moved.
    pub(super) fn place(&mut self, pid: i32, queue: NodeId) -> Result<usize, PlaneError> {
        if pid <= 0 || self.places.tgid(pid)? != pid {
            return Err(PlaneError::NoProcess(pid));
        }
        let mut moving = Vec::new();
        for tid in self.places.threads(pid)? {
            let Ok(place) = self.places.locate(tid) else { continue };
            // A thread in no queue that is ours all the same is in a directory that goes.
            if self.queue_at(&place) != queue || (queue == NodeId::Q0 && self.places.ours(&place)) {
                moving.push((tid, place));
            }
        }
        if moving.is_empty() {
            return Ok(0);
        }
        if queue == NodeId::Q0 {
            self.release(pid)?;
            return Ok(moving.len());
        }
        if moving.iter().any(|(_, place)| self.places.lies(place, &self.cpu)) {
            return Err(PlaneError::Unsupported(format!(
                "process {pid} is in a cgroup of the CPU's stock driver, and has one cgroup for both: take it from the \
                 CPU's queue first (reserv tag cpu/q0 {pid}), or give the disk the full driver"
            )));
        }
        let Some(path) = self.now.path(queue) else {
            return Err(PlaneError::NoNode(format!("{}.{}", queue.index, queue.generation)));
        };
        let dirs = self.places.dirs(path);
        let entering: Vec<_> =
            moving.iter().filter(|(_, place)| !self.places.ours(place)).cloned().collect();
        self.origins.add(&self.places, &entering)?;
        match self.places.put_process(&dirs, pid) {
            Ok(()) => Ok(moving.len()),
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Err(PlaneError::NoProcess(pid)),
            Err(e) => Err(os(format!("move process {pid} to {}", dirs[0]))(e)),
        }
    }

    /// Whether our cgroups are there, by the first and the last of them: it is asked often.
    pub(super) fn present(&self) -> bool {
        let mut ends = self.now.all.first().into_iter().chain(self.now.all.last());
        ends.all(|group| self.places.kernel().exists(&self.dir(&group.path)))
    }

    /// The directories that somebody removed are made anew; what was counted there is lost.
    pub(super) fn forget_written(&mut self) {
        self.written.clear();
    }

    /// Removes everything of ours; processes go home, the elevator is as it was.
    pub(super) fn give_back(&mut self) -> Result<(), PlaneError> {
        let mut paths = vec![String::new()];
        let mut at = 0;
        // Also what others have made there.
        while let Some(path) = paths.get(at).cloned() {
            let names = self.places.kernel().list(&self.dir(&path)).unwrap_or_default();
            paths.extend(names.iter().map(|name| format!("{path}/{name}")));
            at += 1;
        }
        for path in &paths {
            self.flush(path)?;
        }
        for path in paths.iter().rev() {
            if self.places.kernel().exists(&self.dir(path)) && !self.places.unmake(path)? {
                return Err(PlaneError::Busy(format!("{} does not become empty", self.dir(path))));
            }
        }
        self.undo_means()?;
        for controller in self.kept.prepared.iter().rev() {
            let control = format!("{}/cgroup.subtree_control", self.top());
            // Refused where somebody below has enabled it meanwhile; then it is theirs.
            if let Err(error) = self.places.kernel().write(&control, &format!("-{controller}")) {
                tracing::info!(%error, controller, "a controller stays enabled at the top");
            }
        }
        self.origins.delete(self.places.kernel());
        self.places.kernel().remove(&self.file);
        Ok(())
    }
}
