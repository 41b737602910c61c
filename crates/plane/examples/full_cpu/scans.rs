// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections of the tree's lock that go through all that there is: how long they are, interrupts
//! being off, beside thousands of threads. `RESERV_TIMED` must stand in the environment.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io, process};

use reserv_facts::tree::{DEPTH_MAX, WALKED_LEVEL, WALKED_MAX, WALKED_MOVE};
use reserv_model::{Class, Kind, NodeId, Op, Policy, TuneKey};
use reserv_plane::cpu::full::Tracer;
use reserv_plane::{Plane as _, PlaneError, Target, Threads as _};

use crate::life::{detached, eject};
use crate::longest::{EDITS, many, others_go, section, within};
use crate::setup::{Answer, Setup, check, weight};

/// Threads that want the CPU until they are dropped.
struct Busy {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// One in each of `queues`, for this CPU alone where one is named.
    fn new(
        s: &mut Setup,
        queues: &[NodeId],
        cpu: Option<usize>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let (told, tids) = mpsc::channel();
        // All begin when all are there: each would wait for a turn of those before it.
        let mut all = Vec::new();
        for queue in queues {
            let (over, told) = (Arc::clone(&over), told.clone());
            let (tagged, go) = mpsc::channel::<()>();
            let spin = move || {
                // SAFETY: no preconditions.
                let _ = told.send(unsafe { libc::gettid() });
                let _ = go.recv();
                while !over.load(Ordering::Relaxed) {
                    crate::spin::straight_line();
                }
            };
            threads.push(thread::Builder::new().stack_size(64 << 10).spawn(spin)?);
            let tid = tids.recv()?;
            if let Some(cpu) = cpu {
                only(tid, cpu)?;
            }
            s.plane.0.tag(Target::Thread(tid), *queue)?;
            all.push(tagged);
        }
        for tagged in all {
            let _ = tagged.send(());
        }
        Ok(Self { over, threads })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn only(tid: i32, cpu: usize) -> io::Result<()> {
    // SAFETY: a set of CPUs is plain bits, and the call reads it.
    let answer = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A section in which a CPU finds its thread behind those of another one: 6200 behind a thousand,
/// 7200 behind 16 000. To go through a thousand takes 38 000.
const FAR_NS: u64 = 15_000;

/// All of a queue wait for one CPU, and two for the other one, which finds them behind.
fn far(s: &mut Setup, many: usize) -> Answer {
    let queue = s.queue(NodeId::ROOT, 100)?;
    let there = Busy::new(s, &vec![queue; many], Some(1))?;
    section(s);
    let here = Busy::new(s, &[queue; 2], Some(0))?;
    thread::sleep(Duration::from_millis(200));
    println!("# {many} threads of another CPU in a queue: the first search {:?}", section(s));
    let mut least = (u64::MAX, 0);
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(200));
        least = least.min(section(s));
    }
    // The least: what the other CPU did meanwhile counts in some of them.
    println!("# {many} threads of another CPU in a queue: least of 10 windows {least:?}");
    check(least.0 <= FAR_NS, "threads of another CPU are not gone through");
    drop((here, there));
    Ok(())
}

/// Among many children of policy prio usages are halved all the time; a trace of them; and policy
/// eevdf over them.
fn crowd(s: &mut Setup, many: usize) -> Answer {
    let prio = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Prio), 100)?;
    let queues = queues(s, prio, many)?;
    let busy = Busy::new(s, &queues, None)?;
    s.apply(vec![Op::Tune { id: prio, key: TuneKey::Decay, value: 10_000_000 }])?;
    within(s, &format!("{many} busy queues below policy prio"));
    thread::sleep(Duration::from_secs(2));
    within(s, "whose usages are halved each 10 ms");
    check(
        matches!(Tracer::start(1 << 23, false), Err(PlaneError::Full(_))),
        "they are too many for a trace without a pause",
    );
    within(s, "which is seen");
    let mut tracer = Tracer::start(1 << 23, true)?;
    thread::sleep(Duration::from_millis(10));
    let events = tracer.read()?.len();
    drop(tracer);
    let (pause, _) = section(s);
    println!("# a trace of them all, with a pause: {events} events, {pause} instructions");
    check(events > many && pause > 600_000, "with one they are all in it, and it is long");
    // Served in turn they become eligible all at once.
    s.apply(vec![Op::SetPolicy { id: prio, policy: Policy::Eevdf }])?;
    within(s, "their policy becomes eevdf");
    thread::sleep(Duration::from_secs(10));
    within(s, "which serves them in turn");
    drop(busy);
    within(s, "busy queues ended");
    Ok(())
}

const CGROUPS: &str = "/sys/fs/cgroup";
/// As many as have a place in q0, but for a few that the system may have.
const GROUPS: u32 = 2000;

/// Cgroups that have the controller of the CPU, and go with the test.
struct Groups(PathBuf);

impl Groups {
    fn new() -> io::Result<Self> {
        fs::write(format!("{CGROUPS}/cgroup.subtree_control"), "+cpu")?;
        let top = PathBuf::from(format!("{CGROUPS}/scans"));
        fs::create_dir(&top)?;
        let groups = Self(top);
        fs::write(groups.0.join("cgroup.subtree_control"), "+cpu")?;
        Ok(groups)
    }

    fn at(&self, number: u32) -> PathBuf {
        self.0.join(number.to_string())
    }

    fn remove(&self) -> io::Result<()> {
        (0..GROUPS).try_for_each(|number| match fs::remove_dir(self.at(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })?;
        fs::remove_dir(&self.0)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        if self.0.exists()
            && let Err(error) = self.remove()
        {
            println!("not ok - the cgroups go: {error}");
        }
    }
}

/// A process beside this one, which moves this one to a cgroup and back. Who moves itself is moved
/// first: it would go on with the rest from a cgroup of a small weight, beside all the others, and
/// hold up every fork.
struct Mover {
    process: process::Child,
    asks: process::ChildStdin,
    told: BufReader<process::ChildStdout>,
}

impl Mover {
    fn new(to: &Path) -> io::Result<Self> {
        let moves = r#"for to; do read -r _; echo "$0" >"$to/cgroup.procs" && echo moved; done"#;
        let mut process = process::Command::new("sh")
            .args(["-c", moves, &process::id().to_string()])
            .args([to, Path::new(CGROUPS)])
            .stdin(process::Stdio::piped())
            .stdout(process::Stdio::piped())
            .spawn()?;
        let asks = process.stdin.take().expect("a pipe");
        let told = BufReader::new(process.stdout.take().expect("a pipe"));
        Ok(Self { process, asks, told })
    }

    fn goes(&mut self) -> io::Result<()> {
        let mut said = String::new();
        writeln!(self.asks)?;
        self.told.read_line(&mut said)?;
        if said == "moved\n" { Ok(()) } else { Err(io::Error::other("the process is not moved")) }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// This thread's own nice value.
fn nice(value: i32) {
    // SAFETY: no pointers.
    let answer = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) };
    check(answer == 0, &format!("this thread has nice {value}"));
}

/// Cgroups come into q0, where many threads wait, get weights and limits, and go.
fn cgroups(s: &mut Setup, many: usize) -> Answer {
    let busy = Busy::new(s, &vec![NodeId::Q0; many], None)?;
    // This thread is one among them: with their weight it would have a step each 8 s.
    nice(-20);
    thread::sleep(Duration::from_millis(100));
    within(s, &format!("{many} busy threads in q0"));
    let groups = Groups::new()?;
    within(s, "the first cgroup, and q0 has a scheduler over its queue");
    for number in 0..GROUPS {
        fs::create_dir(groups.at(number))?;
    }
    let there = s.plane.0.info().cgroups;
    check(there.as_ref().is_some_and(|c| c.mirrored > u64::from(GROUPS)), &format!("{there:?}"));
    within(s, &format!("{GROUPS} cgroups made"));
    for number in (0..GROUPS).step_by(20) {
        fs::write(groups.at(number).join("cpu.weight"), "7")?;
        fs::write(groups.at(number).join("cpu.max"), "50000 100000")?;
    }
    thread::sleep(Duration::from_millis(100));
    within(s, "a hundred of them with weights and limits");
    s.plane.0.sample()?;
    within(s, "sampled");
    let mut mover = Mover::new(&groups.at(0))?;
    mover.goes()?;
    within(s, "all those threads moved into one");
    mover.goes()?;
    within(s, "and back");
    eject()?;
    detached(&mut s.plane.0)?;
    s.plane.0.revive()?;
    within(s, "the scheduler came again");
    groups.remove()?;
    within(s, "cgroups gone");
    drop(busy);
    nice(0);
    Ok(())
}

/// As much as a batch may move, to and fro, at the end of the longest paths; and back, where the
/// last edit is refused.
fn moves(s: &mut Setup) -> Answer {
    let mut ends = Vec::new();
    for _ in 0..2 {
        let mut last = NodeId::ROOT;
        for _ in 0..DEPTH_MAX - 4 {
            last = s.make(last, Kind::Scheduler(Policy::Sfq), 100)?;
        }
        ends.push(last);
    }
    let group = s.make(ends[0], Kind::Scheduler(Policy::Sfq), 100)?;
    let below = 32;
    queues(s, group, below)?;
    // (Another depth, so that all below is gone through.)
    let high = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 100)?;
    within(s, "queues made");
    let bad = Op::Reweight { id: NodeId { index: 9, generation: 77 }, weight: weight(1) };
    for (what, to) in [("of another depth", [high, ends[0]]), ("of the same", [ends[1], ends[0]])] {
        let mut all = Vec::new();
        for i in 0..EDITS {
            all.push(Op::Move { id: group, parent: to[i % 2] });
            if all.len() % 2 == 0 && s.apply(all.clone()).is_err() {
                break;
            }
        }
        all.truncate(all.len() - 2);
        check((10..EDITS).contains(&all.len()), "a batch has so many moves, and no more");
        s.apply(all.clone())?;
        let many = all.len();
        within(
            s,
            &format!("a group of {below} moved {many} times between places {what}, one batch"),
        );
        let refused = s.apply(all[1..].iter().cloned().chain([bad.clone()]).collect());
        check(refused.is_err(), "a batch that ends with a wrong edit is refused");
        within(s, "and the moves before it taken back");
    }
    let low = WALKED_MOVE + WALKED_LEVEL * (DEPTH_MAX - 4 + 1);
    queues(s, group, WALKED_MAX - low - below + 1)?;
    let refused = s.apply(vec![Op::Move { id: group, parent: high }]);
    check(matches!(refused, Err(PlaneError::Busy(_))), "one queue more than may be moved");
    within(s, "which is found at the last one");
    Ok(())
}

fn queues(s: &mut Setup, parent: NodeId, many: usize) -> Result<Vec<NodeId>, PlaneError> {
    let mut made = Vec::new();
    for first in (0..many).step_by(EDITS) {
        let some = first..many.min(first + EDITS);
        let ids: Vec<NodeId> = some
            .map(|_| {
                s.next += 1;
                NodeId { index: s.next - 1, generation: 1 }
            })
            .collect();
        let queue = |id: &NodeId| Op::Create { id: *id, parent, kind: Kind::Queue(Class::Ts) };
        s.apply(ids.iter().map(queue).collect())?;
        made.extend(ids);
    }
    Ok(made)
}

/// Another CPU has to be there.
pub(crate) fn run_far() -> Answer {
    let mut s = Setup::new()?;
    far(&mut s, many()?)?;
    s.health("after that")
}

pub(crate) fn run() -> Answer {
    let mut s = Setup::new()?;
    let many = many()?;
    others_go()?;
    moves(&mut s)?;
    crowd(&mut s, many)?;
    cgroups(&mut s, many)?;
    s.health("after that")
}
