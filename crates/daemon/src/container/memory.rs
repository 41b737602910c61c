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
use std::fs::Metadata;
use std::iter::successors;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reserv_model::{ContainerId, Containers, Holds, NodeId};
use reserv_namespace::Counted;
use reserv_plane::PlaneError;
use reserv_plane::cpu::full::groups;

use super::{Room, charged, cpu_key};
use crate::refusal::Refusal;
use crate::sync::lock;

/// What was read is good for so long, and for nine times as long as reading took: it goes through
/// all cgroups and their processes, and may have a tenth of a CPU, whoever asks how often.
const KEPT: Duration = Duration::from_secs(1);
const KEPT_OF_TIME: u32 = 9;
/// And is told for so much longer, while it is read again.
const TOLD: Duration = Duration::from_secs(10);
/// How long reading may take.
const READ_MAX: Duration = Duration::from_secs(2);

/// What is known of memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Of those that have a cgroup, and of those that these are in.
    of: BTreeMap<ContainerId, Counted>,
    /// Why nothing is known, or whose cgroups are not in it.
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

/// Users whose cgroups could not be read to the end, in words.
fn late(users: &BTreeSet<u32>) -> Option<String> {
    if users.contains(&0) {
        return Some(format!("the cgroups were not read within {READ_MAX:?}"));
    }
    let names: Vec<String> = users.iter().map(u32::to_string).collect();
    let user = if names.len() > 1 { "users" } else { "user" };
    let who = groups::few(&names);
    let text = format!(
        "the cgroups of {user} {who} were not read within {READ_MAX:?}, and are not counted"
    );
    (!names.is_empty()).then_some(text)
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
        let user = |_: &Path, folder: &Metadata| folder.uid();
        let read = charged::read(&root, until, user, |pids| self.all_of(pids, &containers))?;
        let of = read.charged.into_iter().filter_map(|one| Some((one.bytes, one.of?)));
        let of = of.filter(|(_, ids)| !ids.is_empty());
        Ok(Memory { of: self.look(|all| sums(all, of)), late: late(&read.late) })
    }

    /// The containers of these processes; `None`, where one of them is in none.
    fn all_of(
        &self,
        pids: &[i32],
        containers: &HashMap<NodeId, ContainerId>,
    ) -> Result<Option<BTreeSet<ContainerId>>, Refusal> {
        let mut found = BTreeSet::new();
        let engine = self.core.cpu()?;
        let node = |id: NodeId| engine.tree().get(id);
        for pid in pids {
            let lists = match engine.plane().defaults(*pid) {
                Ok(lists) if *pid > 0 => lists,
                // It has ended meanwhile.
                Err(PlaneError::NoProcess(_)) if *pid > 0 => continue,
                _ => return Ok(None),
            };
            // Or below a container's node, in a node that is no container's.
            let mut up = successors(node(lists.default), |at| node(at.parent?));
            match up.find_map(|at| containers.get(&at.id)) {
                Some(id) => _ = found.insert(*id),
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use reserv_model::{ContainerLimits, Name, NewContainer, Share, Weight};

    use super::*;

    #[test]
    fn whose_cgroups_are_not_known_is_said() {
        let said = |users: &[u32]| late(&users.iter().copied().collect());
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[0, 7]).unwrap(), "the cgroups were not read within 2s");
        let one = "the cgroups of user 7 were not read within 2s, and are not counted";
        assert_eq!(said(&[7]).unwrap(), one);
        let many = said(&(1..30).collect::<Vec<_>>()).unwrap();
        let wanted = "the cgroups of users 1, 2, 3, 4, 5, 6, 7, 8 and 21 more \
                      were not read within 2s, and are not counted";
        assert_eq!(many, wanted);
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
