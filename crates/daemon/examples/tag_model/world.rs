// SPDX-License-Identifier: MIT OR Apache-2.0
//! Product and oracle side by side: how they begin, and what is compared.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::time::Duration;

use reserv_daemon::engine::Engine;
use reserv_model::{Caller, Name, NodeId, ResourceKind, Right, Source};
use reserv_plane::count::{self, Tagged};
use reserv_plane::cpu::full;
use reserv_plane::tag;

use crate::kernel::{GET_CPU, GET_QUEUE, Kernel};
use crate::oracle::{CPU, Oracle, Process, RESOURCES, TICK, What};
use crate::reserv::PATH;

/// The device of the mount of /reserv.
pub(crate) const MOUNT: u32 = 77;
/// The first process, root's, which never ends; the daemon borrows its place.
pub(crate) const FIRST: i32 = 100;
/// A device above both disks, and one above the first.
pub(crate) const BOTH: u32 = 9 << 20;
pub(crate) const PART: u32 = 9 << 20 | 1;

/// What was done last, for who has to find a difference.
const LAST: usize = 40;
/// Operations between two comparisons of everything.
const COMPARE: u64 = 40;

/// `splitmix64`
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 33).unwrap_or(0) % n.max(1)
    }

    pub(crate) fn of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).cloned()
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) kernel: Kernel,
    pub(crate) engines: Vec<Engine>,
    pub(crate) oracle: Oracle,
    pub(crate) pages: crate::pages::Pages,
    /// In ns, of processes' births.
    pub(crate) clock: u64,
    /// Of the collector.
    now: Duration,
    /// Of open files, requests and names.
    pub(crate) count: u64,
    /// By the daemon's handles.
    pub(crate) handles: BTreeMap<u64, (usize, u64)>,
    /// Open files that newqueue gave, with the numbers of their inodes then.
    pub(crate) fresh_files: BTreeMap<u64, u64>,
    pub(crate) devices: [u32; 2],
    /// What the tags' programs were told that containers own.
    pub(crate) told: Option<tag::Owned>,
    /// What the product is kept from doing, to see that it is missed.
    breakage: Option<String>,
    last: VecDeque<String>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

/// A difference, in words.
pub(crate) type Checked = Result<(), String>;

pub(crate) fn agree<T: PartialEq + std::fmt::Debug>(
    what: impl FnOnce() -> String,
    got: &T,
    wanted: &T,
) -> Checked {
    if got == wanted { Ok(()) } else { Err(format!("{}: {got:?}, and not {wanted:?}", what())) }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The number of a device, as the kernel packs it.
fn device(path: &str) -> Result<u32, String> {
    use std::os::unix::fs::MetadataExt as _;
    let dev = fs::metadata(path).map_err(said)?.dev();
    Ok(libc::major(dev) << 20 | libc::minor(dev))
}

impl World {
    fn new(folder: &Path, seed: u64, breakage: Option<&str>) -> Result<Self, String> {
        let kernel = Kernel::find().ok_or("tests/lib/tagsim.c is not preloaded")?;
        kernel.k_begin(seed, tag::netns_cookie().map_err(said)?);
        // Loaded, and attached, to whoever looks for the pins.
        let pins = folder.join("tag");
        fs::create_dir_all(&pins).map_err(said)?;
        for name in [
            "link-rt_fcntl",
            "link-rt_fork",
            "rt_egress",
            "link-rt_egress",
            "rt_read",
            "link-rt_read",
            "rt_write",
            "link-rt_write",
            "rt_option",
            "link-rt_option",
            "rt_option_of",
            "link-rt_option_of",
        ] {
            fs::write(pins.join(name), "").map_err(said)?;
        }
        let sources = [("d", "/proc"), ("e", "/sys"), ("n", "lo")];
        let mut engines = Vec::new();
        for (number, (name, on)) in (1..).zip(sources) {
            let source = if name == "n" { Source::Net(on.into()) } else { Source::File(on.into()) };
            let mut plane = count::start(folder, number, &source, Box::new(Tagged::new(number)))
                .map_err(said)?;
            reserv_plane::Lists::set_mount(&mut plane, u64::from(MOUNT)).map_err(said)?;
            let name = Name::new(name).map_err(said)?;
            let journal = folder.join(format!("journal-{number}"));
            let (engine, _) = Engine::open(&journal, (name, source.kind()), Box::new(plane), false)
                .map_err(said)?;
            engines.push(engine);
        }
        // The CPU's programs have made a tree, and are attached.
        let pins = folder.join("cpu");
        fs::create_dir_all(&pins).map_err(said)?;
        for call in ["rc_call", "state"] {
            fs::write(pins.join(call), "").map_err(said)?;
        }
        let mut cpu = full::adopt().map_err(said)?.ok_or("no scheduler")?;
        reserv_plane::Lists::set_mount(&mut cpu, u64::from(MOUNT)).map_err(said)?;
        let name = Name::new("cpu").map_err(said)?;
        let (cpu, _) = Engine::open(
            &folder.join("journal-0"),
            (name, ResourceKind::Cpu),
            Box::new(cpu),
            false,
        )
        .map_err(said)?;
        engines.push(cpu);
        let tags = tag::adopt().map_err(said)?.ok_or("no tags")?;
        let (both, part) = (libc::makedev(9, 0), libc::makedev(9, 1));
        tags.set_above(1, &[(both, true), (part, false)].into()).map_err(said)?;
        tags.set_above(2, &[(both, true)].into()).map_err(said)?;
        let mut world = Self {
            random: Random(seed),
            kernel,
            engines,
            oracle: Oracle::new(),
            pages: BTreeMap::new(),
            clock: 1_000_000_000,
            now: Duration::from_secs(1),
            count: 1,
            handles: BTreeMap::new(),
            fresh_files: BTreeMap::new(),
            devices: [device("/proc")?, device("/sys")?],
            told: None,
            breakage: breakage.map(str::to_owned),
            last: VecDeque::new(),
            counts: BTreeMap::new(),
        };
        for (pid, uid) in (FIRST..).zip([0, 0, 11, 12, 13]) {
            world.first(pid, uid);
        }
        Ok(world)
    }

    /// A process that nobody forked.
    fn first(&mut self, pid: i32, uid: u32) {
        self.clock += TICK;
        let start = self.clock;
        self.kernel.k_first(pid, start, uid, 20);
        let who = Caller {
            uid,
            gid: 20,
            groups: reserv_model::Groups::default(),
            pid: pid.cast_unsigned(),
            start: start / TICK,
            unseen: false,
        };
        let lists = [[None; 2]; RESOURCES];
        let fds = BTreeMap::new();
        self.oracle.processes.insert(
            pid,
            Process {
                who,
                threads: [(pid, None)].into(),
                bound: BTreeMap::new(),
                numbers: crate::pages::Numbers::default(),
                start,
                lists,
                cwd: None,
                fds,
            },
        );
    }

    pub(crate) fn broken(&self, what: &str) -> bool {
        self.breakage.as_deref() == Some(what)
    }

    pub(crate) fn note(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        *self.counts.entry(kind).or_default() += 1;
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(format!("{kind} {}", what()));
    }

    /// A number that nothing else has had.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Open files that have ended are told to the daemon, as the kernel's RELEASE does.
    pub(crate) fn settle(&mut self) -> Checked {
        let mut ended = [0_u64; 256];
        let n = self.kernel.k_released(ended.as_mut_ptr()) as usize;
        for handle in &ended[..n] {
            if let Some((resource, _)) = self.handles.remove(handle)
                && !self.broken("closes are not told")
            {
                self.engines[resource].closed(*handle);
            }
        }
        self.oracle.end_files();
        self.fresh_files.retain(|file, _| self.oracle.files.contains_key(file));
        // A queue of the CPU that drains goes with its last thread, and not when somebody looks.
        let drained = self.oracle.trees[CPU]
            .places
            .iter()
            .filter(|p| p.draining && !self.oracle.drains(p.id));
        let drained: Vec<NodeId> = drained.map(|p| p.id).collect();
        if drained.is_empty() {
            return Ok(());
        }
        for id in drained {
            self.oracle.gone(CPU, id);
        }
        self.engines[CPU].collect().map_err(said)
    }

    /// The collector looks at all that may have become garbage.
    fn collect(&mut self) -> Checked {
        self.now += Duration::from_secs(5);
        for at in 0..RESOURCES {
            self.engines[at].collect().map_err(said)?;
            // Who is kept waiting has its turn in the second round.
            for _ in 0..2 {
                let due = self.engines[at].due(self.now);
                let weak = if self.broken("nobody stands anywhere") {
                    BTreeSet::new()
                } else {
                    self.stood_in(at)
                };
                self.engines[at].sweep(self.now, &due.nodes, &weak).map_err(said)?;
                self.now += Duration::from_secs(5);
            }
            let gone = self.oracle.collect(at);
            *self.counts.entry("collected").or_default() += gone as u64;
        }
        Ok(())
    }

    /// As `Core::sweep` finds them: nodes that somebody stands in who has a right there.
    fn stood_in(&self, at: usize) -> BTreeSet<NodeId> {
        let tree = self.engines[at].tree();
        let of = |p: &Process| {
            let (_, id) = p.cwd.filter(|(resource, _)| *resource == at)?;
            tree.concerns(&p.who, id).then_some(id)
        };
        self.oracle.processes.values().filter_map(of).collect()
    }

    /// Everything that can be asked.
    fn compare(&mut self) -> Checked {
        for at in 0..RESOURCES {
            self.compare_tree(at)?;
        }
        let pids: Vec<i32> = self.oracle.processes.keys().copied().collect();
        for pid in pids {
            self.compare_process(pid)?;
        }
        Ok(())
    }

    fn compare_tree(&mut self, at: usize) -> Checked {
        let engine = &self.engines[at];
        let there: BTreeSet<NodeId> = engine.tree().iter().map(|n| n.id).collect();
        let places = self.oracle.trees[at].places.clone();
        agree(|| format!("nodes of {at}"), &there, &places.iter().map(|p| p.id).collect())?;
        let ids: Vec<NodeId> = places.iter().filter(|p| p.queue).map(|p| p.id).collect();
        let refs = engine.plane().refs(&ids).map_err(said)?;
        if at == CPU {
            for id in ids.iter().filter(|id| **id != NodeId::Q0) {
                let got: Vec<i32> =
                    engine.plane().members(*id).map_err(said)?.iter().map(|m| m.tid).collect();
                agree(|| format!("members of {id:?}"), &got, &self.oracle.members(*id))?;
            }
        }
        for (id, refs) in ids.iter().zip(refs) {
            // q0 is what nobody is tagged with: it has none.
            let wanted = if *id == NodeId::Q0 { [0; 3] } else { self.oracle.refs(at, *id) };
            let got = [refs.tags(), refs.defaults, refs.child_defaults];
            let lists_alone = *id == NodeId::Q0 && at == CPU;
            agree(
                || format!("references of {id:?} of {at}"),
                &(if lists_alone { wanted } else { got }),
                &wanted,
            )?;
            if at == CPU {
                continue;
            }
            let sample = engine.plane().sample_one(*id).map_err(said)?;
            let place = self.oracle.trees[at].place(*id).ok_or("no place")?;
            let (got, wanted) =
                ((sample.served, sample.service_ns), (place.operations, place.bytes));
            agree(|| format!("operations and bytes of {id:?} of {at}"), &got, &wanted)?;
        }
        if let Some(id) = self.random.of(&ids) {
            // Of each tagged file and socket, who has it.
            let mut got: Vec<Vec<i32>> = engine
                .plane()
                .holders(id)
                .map_err(said)?
                .into_iter()
                .map(|held| held.pids)
                .collect();
            for pids in &mut got {
                pids.sort_unstable();
            }
            got.sort_unstable();
            agree(
                || format!("who has what is tagged with {id:?} of {at}"),
                &got,
                &self.oracle.holders(at, id),
            )?;
        }
        let tree = &self.oracle.trees[at];
        for p in self.oracle.processes.values() {
            let Some(id) = self.random.of(&ids) else { break };
            let got = engine.tree().decide(&p.who, id, Right::Use).allowed;
            agree(
                || format!("use of {id:?} of {at} by {:?}", p.who),
                &got,
                &tree.may(&p.who, id, Right::Use),
            )?;
        }
        Ok(())
    }

    fn compare_process(&mut self, pid: i32) -> Checked {
        let p = &self.oracle.processes[&pid];
        for (at, engine) in self.engines.iter().enumerate() {
            let got = engine.plane().defaults(pid).map_err(said)?;
            let [default, child] = p.lists[at].map(|list| list.unwrap_or(NodeId::Q0));
            agree(
                || format!("lists of {pid} of {at}"),
                &(got.default, got.child),
                &(default, child),
            )?;
        }
        for (tid, tag) in &p.threads {
            self.kernel.k_as(*tid);
            let got = self.engines[CPU].plane().tag_of(*tid).map_err(said)?;
            agree(|| format!("queue of thread {tid} of {pid}"), &got, &tag.unwrap_or(NodeId::Q0))?;
            for (fd, file) in &p.fds {
                let mode = match self.oracle.files[file].what {
                    What::Reserv { mode, .. } => Some(mode),
                    What::Container { .. } => Some(1),
                    _ => None,
                };
                if let Some(mode) = mode {
                    let got = self.kernel.k_fcntl(*fd, GET_CPU, 0);
                    let number = 1 + i32::try_from(tag.unwrap_or(NodeId::Q0).index).unwrap_or(0);
                    let wanted = if mode == PATH { -libc::EBADF } else { number };
                    agree(|| format!("queue that thread {tid} of {pid} is told"), &got, &wanted)?;
                }
                for at in 0..CPU {
                    let got = self.kernel.k_fcntl(*fd, GET_QUEUE, at as u64 + 1);
                    let wanted = self.oracle.told(pid, Some(*tid), *file, at);
                    agree(|| format!("queue of descriptor {fd} of {pid} of {at}"), &got, &wanted)?;
                    if matches!(self.oracle.files[file].what, What::Socket { .. }) {
                        let got = self.kernel.k_getsockopt(*fd, u32::try_from(at).unwrap_or(0) + 1);
                        let wanted = self.oracle.told(pid, None, *file, at);
                        agree(|| format!("getsockopt of {fd} of {pid} of {at}"), &got, &wanted)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Everybody ends: nothing is left of what was kept by address.
    fn end(&mut self) -> Checked {
        let pids: Vec<i32> = self.oracle.processes.keys().copied().collect();
        for pid in pids {
            self.kill(pid);
        }
        let under_way: Vec<u32> = self.oracle.under_way.keys().copied().collect();
        for at in under_way {
            self.kernel.k_forget(at);
            self.oracle.under_way.remove(&at);
        }
        self.settle()?;
        self.collect()?;
        for at in 0..RESOURCES {
            self.compare_tree(at)?;
        }
        agree(|| "entries, places and lists that are left".into(), &self.kernel.k_left(), &0)
    }
}

pub(crate) fn run(
    folder: &Path,
    seed: u64,
    operations: u64,
    breakage: Option<&str>,
) -> Result<String, String> {
    let mut world = World::new(folder, seed, breakage)?;
    for operation in 0..operations {
        let mut done = world.step();
        if done.is_ok() && operation % COMPARE == COMPARE - 1 {
            done = world.collect().and_then(|()| world.compare());
        }
        if let Err(wrong) = done {
            let last: Vec<String> = world.last.into_iter().collect();
            return Err(format!(
                "seed {seed}, operation {operation}: {wrong}\nthe last were:\n{}",
                last.join("\n")
            ));
        }
    }
    world.end().map_err(|wrong| format!("seed {seed}, at the end: {wrong}"))?;
    let counts: Vec<String> = world.counts.iter().map(|(what, n)| format!("{what} {n}")).collect();
    Ok(counts.join(", "))
}
