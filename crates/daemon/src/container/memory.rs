// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of containers: what the kernel charges cgroups (v2) all of whose processes are bound in
//! one.
//!
//! The kernel charges memory to cgroups, not to threads. So a cgroup's is a container's if each
//! process in it is bound to that one, or to one below; of several their nearest common parent has
//! it. Where one process is bound to none, nobody can say whose the memory is, and it is nobody's.
//!
//! A process counts where its default list is, as for what it opens. What a thread says in its page
//! changes nothing here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::iter::successors;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reserv_model::{ContainerId, Containers, Holds, NodeId};
use reserv_namespace::Counted;
use reserv_plane::PlaneError;
use reserv_plane::cpu::full::groups;

use super::{Room, cpu_key};
use crate::refusal::Refusal;
use crate::sync::lock;

/// What was read is good for so long, and for nine times as long as reading took: it goes through
/// all cgroups and their processes, and may have a tenth of a CPU, whoever asks how often.
const KEPT: Duration = Duration::from_secs(1);
const KEPT_OF_TIME: u32 = 9;
/// And is told for so much longer, while it is read again.
const TOLD: Duration = Duration::from_secs(10);
/// How long reading may take: a user to whom systemd delegates makes as many cgroups as he likes.
const READ_MAX: Duration = Duration::from_secs(2);
/// Processes that the CPU is asked for at once: others wait for it meanwhile.
const AT_ONCE: usize = 64;

/// What is known of memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Of those that have a cgroup, and of those that these are in.
    of: BTreeMap<ContainerId, Counted>,
    /// Why nothing is known.
    pub(super) late: Option<String>,
}

impl Memory {
    pub(super) fn of(&self, id: ContainerId) -> Option<Counted> {
        self.of.get(&id).copied()
    }
}

/// A reading, when it ended, and for how long it is good.
struct Last {
    at: Instant,
    good_for: Duration,
    memory: Arc<Memory>,
}

/// What was read last. Somebody asks, and a thread of its own reads: nobody waits for it.
#[derive(Default)]
pub(super) struct Kept {
    last: Mutex<Option<Last>>,
    asked: Mutex<bool>,
    ask: Condvar,
}

impl Kept {
    fn ask(&self) {
        *lock(&self.asked) = true;
        self.ask.notify_one();
    }

    fn wait_until_asked(&self) {
        let asked = self.ask.wait_while(lock(&self.asked), |asked| !*asked);
        *asked.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// What a cgroup is charged, and whose processes that is for.
#[derive(Debug, PartialEq, Eq)]
struct Charged {
    bytes: u64,
    pids: Vec<i32>,
}

/// All cgroups that memory is charged to, but for the root, to which none is. The processes of one
/// below that has no memory controller are those of the one above. `None`: it took too long.
fn charged(root: &Path, until: Instant) -> Option<Vec<Charged>> {
    let mut found: Vec<Charged> = Vec::new();
    let mut left: Vec<(PathBuf, Option<usize>)> = vec![(root.to_owned(), None)];
    while let Some((at, above)) = left.pop() {
        if Instant::now() > until {
            return None;
        }
        // One that has gone meanwhile has no files.
        let read = |name: &str| fs::read_to_string(at.join(name)).unwrap_or_default();
        let of = match read("memory.current").trim().parse() {
            Ok(bytes) => {
                found.push(Charged { bytes, pids: Vec::new() });
                Some(found.len() - 1)
            }
            Err(_) => above,
        };
        if let Some(of) = of {
            let procs = read("cgroup.procs");
            // 0: a process of a name space that we are not in.
            found[of].pids.extend(procs.lines().map(|line| line.parse().unwrap_or(0)));
        }
        // Two names are its own; what has no others is not listed, which takes most of the time.
        if fs::metadata(&at).is_ok_and(|folder| folder.nlink() == 2) {
            continue;
        }
        let entries = fs::read_dir(&at).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(folders.map(|entry| (entry.path(), of)));
    }
    Some(found)
}

fn late() -> Refusal {
    Refusal::new(libc::ETIMEDOUT, format!("the cgroups were not read within {READ_MAX:?}"))
}

/// The nearest that all of these are, or are in; the top if it is no container.
fn common(all: &Containers, ids: &BTreeSet<ContainerId>) -> ContainerId {
    let path = |id: ContainerId| {
        let mut ids: Vec<ContainerId> = all.up(id).map(|held| held.id).collect();
        ids.reverse();
        ids
    };
    let shared = |a: Vec<ContainerId>, b: Vec<ContainerId>| -> Vec<ContainerId> {
        a.into_iter().zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    };
    let paths = ids.iter().map(|id| path(*id));
    paths.reduce(shared).and_then(|path| path.last().copied()).unwrap_or(ContainerId::TOP)
}

/// Sums by container; `of` has for each cgroup the containers of its processes.
fn sums(
    all: &Containers,
    of: impl Iterator<Item = (u64, BTreeSet<ContainerId>)>,
) -> BTreeMap<ContainerId, Counted> {
    let mut found: BTreeMap<ContainerId, Counted> = BTreeMap::new();
    for (bytes, ids) in of {
        let owner = common(all, &ids);
        for held in all.up(owner).filter(|held| held.id != ContainerId::TOP) {
            let sum = found.entry(held.id).or_insert(Counted { own: 0, subtree: 0 });
            sum.subtree += bytes;
            if held.holds == Holds::Threads {
                sum.own += bytes;
            }
        }
    }
    found
}

impl Room {
    /// Memory of all containers, as it was a moment ago.
    pub(super) fn memory(&self) -> Arc<Memory> {
        let last = lock(&self.memory.last);
        let known = last.as_ref().map(|last| {
            let over = last.at.elapsed().saturating_sub(last.good_for);
            (over, Arc::clone(&last.memory))
        });
        drop(last);
        match known {
            Some((Duration::ZERO, memory)) => return memory,
            // There is nothing to be known.
            None if self.look(|all| all.iter().next().is_none()) => return Arc::default(),
            _ => self.memory.ask(),
        }
        let known = known.filter(|(over, _)| *over < TOLD).map(|(_, memory)| memory);
        known.unwrap_or_else(|| {
            let late = Some("the cgroups are being read".to_owned());
            Arc::new(Memory { late, ..Memory::default() })
        })
    }

    /// Reads what is asked for, for as long as the worker lives.
    pub fn read_memory_when_asked(&self) {
        loop {
            self.memory.wait_until_asked();
            let begun = Instant::now();
            let memory = self.read_memory().unwrap_or_else(|why| {
                let late = Some(why.text);
                Memory { late, ..Memory::default() }
            });
            let good_for = KEPT.max(begun.elapsed() * KEPT_OF_TIME);
            let last = Last { at: Instant::now(), good_for, memory: Arc::new(memory) };
            *lock(&self.memory.last) = Some(last);
            // Who asked meanwhile has it.
            *lock(&self.memory.asked) = false;
        }
    }

    fn read_memory(&self) -> Result<Memory, Refusal> {
        let cpu = cpu_key(&self.core);
        let containers: HashMap<NodeId, ContainerId> = {
            let book = self.book();
            book.all.iter().filter_map(|held| Some((book.node(held.id, &cpu)?, held.id))).collect()
        };
        let root = groups::hierarchy(Path::new("/"), "memory");
        let (Some(root), false) = (root, containers.is_empty()) else {
            return Ok(Memory::default());
        };
        let until = Instant::now() + READ_MAX;
        let mut owned = Vec::new();
        for Charged { bytes, pids } in charged(&root, until).ok_or_else(late)? {
            let ids = self.all_of(&pids, &containers, until)?;
            if !ids.is_empty() {
                owned.push((bytes, ids));
            }
        }
        Ok(Memory { of: self.look(|all| sums(all, owned.into_iter())), late: None })
    }

    /// The containers of these processes; none, where one of them is in none.
    fn all_of(
        &self,
        pids: &[i32],
        containers: &HashMap<NodeId, ContainerId>,
        until: Instant,
    ) -> Result<BTreeSet<ContainerId>, Refusal> {
        let mut found = BTreeSet::new();
        for some in pids.chunks(AT_ONCE) {
            if Instant::now() > until {
                return Err(late());
            }
            let engine = self.core.cpu()?;
            let node = |id: NodeId| engine.tree().get(id);
            for pid in some {
                let lists = match engine.plane().defaults(*pid) {
                    Ok(lists) if *pid > 0 => lists,
                    // It has ended meanwhile.
                    Err(PlaneError::NoProcess(_)) if *pid > 0 => continue,
                    _ => return Ok(BTreeSet::new()),
                };
                // Or below a container's node, in a node that is no container's.
                let mut up = successors(node(lists.default), |at| node(at.parent?));
                match up.find_map(|at| containers.get(&at.id)) {
                    Some(id) => _ = found.insert(*id),
                    None => return Ok(BTreeSet::new()),
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use reserv_model::{ContainerLimits, Name, NewContainer, Share, Weight};

    use super::*;

    fn cgroup(root: &Path, path: &str, bytes: Option<&str>, pids: &str) {
        let at = root.join(path);
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("cgroup.procs"), pids).unwrap();
        if let Some(bytes) = bytes {
            fs::write(at.join("memory.current"), bytes).unwrap();
        }
    }

    #[test]
    fn processes_are_those_of_the_cgroup_that_pays_for_them() {
        let root = tempfile::tempdir().unwrap();
        cgroup(root.path(), "", None, "1\n2\n");
        cgroup(root.path(), "a.slice", Some("700\n"), "");
        cgroup(root.path(), "a.slice/x.service", Some("500\n"), "10\n");
        // No memory controller here.
        cgroup(root.path(), "a.slice/x.service/inner", None, "11\n0\n");
        cgroup(root.path(), "b.slice/y.service", None, "12\n");
        let far = Instant::now() + Duration::from_secs(60);
        let mut found = charged(root.path(), far).unwrap();
        found.sort_by_key(|one| one.bytes);
        let service = Charged { bytes: 500, pids: vec![10, 11, 0] };
        assert_eq!(found, [service, Charged { bytes: 700, pids: Vec::new() }]);
        assert_eq!(charged(root.path(), Instant::now()), None, "in no time");
    }

    #[test]
    fn a_cgroup_of_several_is_their_parents() {
        let mut all = Containers::new(ContainerLimits::USUAL);
        let mut make = |parent: ContainerId, name: &str, holds: Holds| {
            let new = NewContainer {
                name: Some(Name::new(name).unwrap()),
                holds,
                share: Share::of(Weight::DEFAULT),
                gc: false,
                maker: 0,
            };
            let edit = all.plan_create(parent, new).unwrap();
            all.apply(&edit).unwrap();
            edit.id()
        };
        let web = make(ContainerId::TOP, "web", Holds::Containers);
        let a = make(web, "a", Holds::Threads);
        let b = make(web, "b", Holds::Threads);
        let solo = make(ContainerId::TOP, "solo", Holds::Threads);
        let of = [(1, vec![a]), (10, vec![a, b]), (100, vec![a, b, solo]), (1000, vec![solo])];
        let of = of.map(|(bytes, ids)| (bytes, BTreeSet::from_iter(ids)));
        let sums = sums(&all, of.into_iter());
        let counted = |own, subtree| Counted { own, subtree };
        let wanted = [(web, counted(0, 11)), (a, counted(1, 1)), (solo, counted(1000, 1000))];
        assert_eq!(sums, BTreeMap::from(wanted), "what three have is nobody's, and b has none");
    }
}
