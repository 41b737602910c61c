// SPDX-License-Identifier: MIT OR Apache-2.0
//! The full CPU driver against a real kernel, one behaviour per argument; tests/guest/full_* run it in the guest. Prints `ok - …`
//! and `not ok - …`, and exits with 1 when anything was not.

#![expect(clippy::cast_precision_loss, reason = "times and counts below 2^52")]

use std::cell::Cell;
use std::error::Error;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use reserv_model::{Batch, Cap, Class, DeleteMode, Kind, NodeId, Op, Outcome, Policy, Weight};
use reserv_plane::cpu::full::{self, Full};
use reserv_plane::{Health, List, Plane as _, PlaneError, Sample, Target};

type Answer = Result<(), Box<dyn Error>>;

thread_local! {
    static FAILED: Cell<u32> = const { Cell::new(0) };
}

fn check(good: bool, what: &str) {
    println!("{} - {what}", if good { "ok" } else { "not ok" });
    if !good {
        FAILED.with(|f| f.set(f.get() + 1));
    }
}

/// What is loaded is taken out again, also when a check gives up with an error.
struct Guard(Full);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.0.stop() {
            println!("not ok - stop: {error}");
        }
    }
}

/// Processes that end with the test.
#[derive(Default)]
struct Load(Vec<Child>);

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Load {
    /// A busy process tagged with `queue`.
    fn hog(&mut self, plane: &mut Full, queue: NodeId) -> Result<i32, Box<dyn Error>> {
        let child = Command::new(env::current_exe()?).arg("--hog").spawn()?;
        let pid = i32::try_from(child.id())?;
        self.0.push(child);
        plane.tag(Target::Process(pid), queue)?;
        Ok(pid)
    }
}

struct Setup {
    plane: Guard,
    seq: u64,
    next: u32,
}

impl Setup {
    fn new() -> Result<Self, Box<dyn Error>> {
        let mut plane = Guard(full::start()?);
        // This test itself is in q0: its part is taken out of every comparison, and it sleeps most of the time.
        plane
            .0
            .apply(&Batch { seq: 1, ops: vec![Op::Reweight { id: NodeId::Q0, weight: weight(1_000) }] })?;
        Ok(Self { plane, seq: 1, next: 2 })
    }

    fn apply(&mut self, ops: Vec<Op>) -> Result<Vec<Outcome>, PlaneError> {
        self.seq += 1;
        self.plane.0.apply(&Batch { seq: self.seq, ops })
    }

    fn make(&mut self, parent: NodeId, kind: Kind, w: u32) -> Result<NodeId, PlaneError> {
        let id = NodeId { index: self.next, generation: 1 };
        self.next += 1;
        self.apply(vec![Op::Create { id, parent, kind }, Op::Reweight { id, weight: weight(w) }])?;
        Ok(id)
    }

    fn queue(&mut self, parent: NodeId, w: u32) -> Result<NodeId, PlaneError> {
        self.make(parent, Kind::Queue(Class::Ts), w)
    }

    fn health(&mut self, what: &str) -> Answer {
        let health = self.plane.0.health()?;
        check(health == Health::Running, &format!("{what}: {health:?}"));
        Ok(())
    }
}

fn weight(w: u32) -> Weight {
    Weight::from_milli(w * 1000).unwrap_or(Weight::DEFAULT)
}

fn service(samples: &[Sample], id: NodeId) -> u64 {
    samples.iter().find(|s| s.id == id.pack()).map_or(0, |s| s.service_ns)
}

/// What part of the sum each received during `time`.
fn shares(plane: &Full, ids: &[NodeId], time: Duration) -> Result<Vec<f64>, PlaneError> {
    let before = plane.sample()?;
    thread::sleep(time);
    let after = plane.sample()?;
    let got: Vec<f64> = ids.iter().map(|id| (service(&after, *id) - service(&before, *id)) as f64).collect();
    let sum: f64 = got.iter().sum();
    Ok(got.iter().map(|g| g / sum).collect())
}

fn near(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
    check(worst <= tolerance, &format!("{what}: {got:.4?}, wanted {want:.4?}, error {:.2} %", worst * 100.0));
}

fn settle() {
    thread::sleep(Duration::from_millis(500));
}

#[expect(clippy::many_single_char_names, reason = "queues of the tree in the text")]
fn run_shares(seconds: u64, hogs: u32, tolerance: f64) -> Answer {
    let time = Duration::from_secs(seconds);
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    for _ in 0..hogs {
        load.hog(&mut s.plane.0, a)?;
        load.hog(&mut s.plane.0, b)?;
    }
    for w in [1, 2, 4] {
        s.apply(vec![Op::Reweight { id: b, weight: weight(100 * w) }])?;
        settle();
        let w = f64::from(w);
        near(
            &shares(&s.plane.0, &[a, b], time)?,
            &[1.0 / (1.0 + w), w / (1.0 + w)],
            tolerance,
            &format!("1:{w}"),
        );
    }
    drop(load);
    let inner = s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 500)?;
    let (x, y) = (s.queue(inner, 100)?, s.queue(inner, 400)?);
    s.apply(vec![
        Op::Reweight { id: a, weight: weight(500) },
        Op::Delete { id: b, mode: DeleteMode::Drain },
    ])?;
    let mut load = Load::default();
    for id in [a, x, y] {
        for _ in 0..hogs {
            load.hog(&mut s.plane.0, id)?;
        }
    }
    settle();
    near(&shares(&s.plane.0, &[a, x, y], time)?, &[0.5, 0.1, 0.4], tolerance, "two levels, .5 / .1 / .4");
    // The sibling sleeps: what it leaves goes to its sibling.
    for child in load.0.iter().skip(2 * hogs as usize) {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(i32::try_from(child.id())?, libc::SIGSTOP) };
    }
    settle();
    near(
        &shares(&s.plane.0, &[a, x, y], time)?,
        &[0.5, 0.5, 0.0],
        tolerance,
        "the sibling absorbs a sleeper's share",
    );
    s.health("still ours")?;
    println!("# {:?}", s.plane.0.counters());
    Ok(())
}

/// Reweight, create, move and delete while everything is loaded.
fn run_edits() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    load.hog(&mut s.plane.0, a)?;
    load.hog(&mut s.plane.0, b)?;
    let start = Instant::now();
    let mut edits = 0_u32;
    let mut made = Vec::new();
    while start.elapsed() < Duration::from_secs(5) {
        let parent = if edits.is_multiple_of(3) {
            s.make(NodeId::ROOT, Kind::Scheduler(Policy::Sfq), 1)?
        } else {
            NodeId::ROOT
        };
        let q = s.queue(parent, 1 + edits % 7)?;
        let hog_home = if parent == NodeId::ROOT { a } else { q };
        s.apply(vec![Op::Move { id: q, parent: NodeId::ROOT }, Op::Reweight { id: q, weight: weight(3) }])?;
        if edits.is_multiple_of(5) {
            s.plane.0.tag(Target::Process(i32::try_from(load.0[0].id())?), hog_home)?;
            s.apply(vec![Op::SetClass { id: hog_home, class: Class::ALL[(edits as usize / 5) % 4] }])?;
            s.plane.0.tag(Target::Process(i32::try_from(load.0[0].id())?), a)?;
        }
        made.push(q);
        if parent != NodeId::ROOT {
            made.push(parent);
        }
        if made.len() > 100 {
            let ops = made.drain(..).map(|id| Op::Delete { id, mode: DeleteMode::Refuse }).collect();
            s.apply(ops)?;
        }
        edits += 1;
        if s.next > 16_000 {
            break;
        }
    }
    println!("# {edits} rounds of 3 to 6 edits in {:.1} s", start.elapsed().as_secs_f64());
    s.health("after edits under load")?;
    s.apply(vec![Op::SetClass { id: a, class: Class::Ts }])?;
    settle();
    near(
        &shares(&s.plane.0, &[a, b], Duration::from_secs(5))?,
        &[0.5, 0.5],
        0.01,
        "shares hold after the edits",
    );

    // What must be refused, and changes nothing.
    let refused = |answer: Result<Vec<Outcome>, PlaneError>, what: &str| check(answer.is_err(), what);
    let before = s.plane.0.sample()?.len();
    let fresh = NodeId { index: s.next, generation: 1 };
    refused(s.apply(vec![Op::Reweight { id: fresh, weight: weight(1) }]), "an unknown node is refused");
    refused(
        s.apply(vec![Op::Delete { id: a, mode: DeleteMode::Refuse }]),
        "a queue with members is not deleted",
    );
    refused(
        s.apply(vec![
            Op::Create { id: fresh, parent: NodeId::ROOT, kind: Kind::Queue(Class::Ts) },
            Op::Delete { id: NodeId::Q0, mode: DeleteMode::Drain },
        ]),
        "a batch with a bad edit is refused",
    );
    check(s.plane.0.sample()?.len() == before, "and nothing of it is in effect");
    let seq = s.seq;
    check(s.plane.0.applied_seq()?.is_some_and(|n| n < seq), "nor is its number");
    let old = s.plane.0.apply(&Batch { seq: 1, ops: Vec::new() });
    check(old.is_err(), "an old number is refused");
    // Draining and flushing.
    let outcome = s.apply(vec![Op::Delete { id: b, mode: DeleteMode::Drain }])?;
    check(outcome == [Outcome::Draining], "a queue with a member drains");
    let pid = i32::try_from(load.0[1].id())?;
    check(s.plane.0.tag(Target::Thread(pid), b).is_ok(), "its member may be tagged with it again");
    load.0[1].kill()?;
    load.0[1].wait()?;
    let mut gone = Vec::new();
    for _ in 0..200 {
        gone = s.plane.0.collect_drained()?;
        if !gone.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    check(gone == [b], "and is gone with it");
    check(s.plane.0.tag(Target::Thread(pid), b).is_err(), "a stale handle is an error");
    let outcome = s.apply(vec![Op::Delete { id: a, mode: DeleteMode::Flush }])?;
    check(outcome == [Outcome::Done], "a flushed queue goes at once");
    let pid = i32::try_from(load.0[0].id())?;
    check(s.plane.0.tag_of(pid)? == NodeId::Q0, "its member is in q0");
    Ok(())
}

fn run_caps() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    let cap = |rate| Some(Cap { rate_ns_per_s: rate, burst_ns: 0 });
    load.hog(&mut s.plane.0, a)?;
    s.apply(vec![Op::SetCap { id: a, cap: cap(200_000_000) }])?;
    thread::sleep(Duration::from_secs(1));
    let measure = |plane: &Full, id: NodeId| -> Result<f64, PlaneError> {
        let (t, before) = (Instant::now(), service(&plane.sample()?, id));
        thread::sleep(Duration::from_secs(5));
        Ok((service(&plane.sample()?, id) - before) as f64 / t.elapsed().as_nanos() as f64)
    };
    let rate = measure(&s.plane.0, a)?;
    check(
        (0.19..=0.205).contains(&rate),
        &format!("a cap of 200ms/s holds on an otherwise idle CPU: {rate:.4}"),
    );
    load.hog(&mut s.plane.0, b)?;
    settle();
    let rate = measure(&s.plane.0, a)?;
    check((0.19..=0.205).contains(&rate), &format!("and beside another queue: {rate:.4}"));
    check(s.plane.0.sample_one(a)?.throttled_ns > 0, "the time held back is counted");
    s.apply(vec![Op::SetCap { id: a, cap: None }])?;
    settle();
    near(
        &shares(&s.plane.0, &[a, b], Duration::from_secs(4))?,
        &[0.5, 0.5],
        0.01,
        "without the cap the weights rule again",
    );
    // So low that a thread would wait for longer than the kernel tolerates: it is served all the same.
    s.apply(vec![Op::SetCap { id: a, cap: cap(1_000_000) }])?;
    thread::sleep(Duration::from_secs(40));
    s.health("a cap of 1ms/s for 40 s")
}

/// Who is tagged with what, over threads, processes and programs.
fn run_inherit() -> Answer {
    let mut s = Setup::new()?;
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    let me = i32::try_from(process::id())?;
    let plane = &mut s.plane.0;
    check(plane.tag_of(me)? == NodeId::Q0, "an untagged thread is in q0");
    let lists = plane.defaults(me)?;
    check((lists.default, lists.child) == (NodeId::Q0, NodeId::Q0), "and so are its process' lists");
    let child_tag = |plane: &Full| -> Result<(NodeId, NodeId), Box<dyn Error>> {
        let mut child = Command::new("sleep").arg("100").spawn()?;
        let pid = i32::try_from(child.id())?;
        let got = (plane.tag_of(pid)?, plane.defaults(pid)?.child);
        child.kill()?;
        child.wait()?;
        Ok(got)
    };
    plane.tag(Target::Thread(me), a)?;
    check(plane.tag_of(me)? == a, "a thread is tagged");
    let tid = thread::scope(|scope| {
        // SAFETY: no argument, no memory.
        scope.spawn(|| unsafe { libc::gettid() }).join().unwrap_or(0)
    });
    check(tid != 0, "a thread was made");
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let other = thread::spawn(move || {
        // SAFETY: no argument, no memory.
        let _ = tell.send(unsafe { libc::gettid() });
        let _ = receive.recv();
    });
    let tid = told.recv()?;
    check(plane.tag_of(tid)? == a, "a new thread has its creator's tag");
    check(plane.members(a)?.iter().any(|m| m.tid == tid && m.tgid == me), "and is a member");
    check(plane.members(a)?.len() == 2, "beside its creator");
    drop(send);
    let _ = other.join();
    check(
        child_tag(plane)? == (NodeId::Q0, NodeId::Q0),
        "a new process does not: its parent's child list is q0",
    );
    plane.set_default(me, List::Child, b)?;
    check(
        child_tag(plane)? == (b, b),
        "with a child list, a new process starts there, exec included, and its children will",
    );
    plane.set_default(me, List::Default, a)?;
    let lists = plane.defaults(me)?;
    check((lists.default, lists.child) == (a, b), "the lists read as set");
    // A grandchild, through a shell.
    let mut shell =
        Command::new("sh").args(["-c", "sleep 100 & echo $!; wait"]).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(out) = shell.stdout.take() {
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    }
    let grandchild: i32 = line.trim().parse()?;
    check(plane.tag_of(grandchild)? == b, "a grandchild too");
    // A thread that is not the first execs: the process goes on under its number with its tag.
    check(
        plane.tag(Target::Process(i32::try_from(shell.id())?), a)? == 1,
        "a process is tagged by its threads",
    );
    check(plane.tag_of(grandchild)? == b, "which does not touch its children");
    shell.kill()?;
    shell.wait()?;
    // SAFETY: a signal to a process that we know.
    unsafe { libc::kill(grandchild, libc::SIGKILL) };
    check(
        matches!(plane.tag_of(0x3fff_fff0), Err(PlaneError::NoProcess(_))),
        "an unknown thread is an error",
    );
    check(
        plane.tag(Target::Thread(me), NodeId { index: 99, generation: 1 }).is_err(),
        "an unknown queue is an error",
    );
    check(plane.tag(Target::Thread(me), NodeId::ROOT).is_err(), "a scheduler node is not a queue");
    check(plane.set_default(me, List::Child, NodeId::ROOT).is_err(), "nor is it for a list");
    // A limit: forks fail with EAGAIN, and nothing else is lost.
    s.apply(vec![Op::SetLimit { id: b, members_max: 2 }])?;
    let mut kept = Vec::new();
    let mut failed = None;
    for _ in 0..4 {
        match Command::new("sleep").arg("100").spawn() {
            Ok(child) => kept.push(child),
            Err(error) => failed = Some(error.raw_os_error()),
        }
    }
    check(
        kept.len() <= 2 && failed == Some(Some(libc::EAGAIN)),
        &format!("a full queue refuses new processes: {} {failed:?}", kept.len()),
    );
    for mut child in kept {
        child.kill()?;
        child.wait()?;
    }
    s.apply(vec![Op::SetLimit { id: b, members_max: 0 }])?;
    check(Command::new("true").status()?.success(), "and takes them again without the limit");
    // The queue of a child list goes away: children are in q0 then.
    s.apply(vec![Op::Delete { id: b, mode: DeleteMode::Flush }])?;
    check(child_tag(&s.plane.0)?.0 == NodeId::Q0, "a list with a queue that is gone means q0");
    s.health("still ours")
}

fn eject() -> Answer {
    fs::write("/proc/sysrq-trigger", "S")?;
    Ok(())
}

fn detached(plane: &mut Full) -> Result<Option<String>, Box<dyn Error>> {
    for _ in 0..500 {
        if let Health::Detached(why) = plane.health()? {
            return Ok(Some(why));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}

/// Ejection and revival, adoption after SIGKILL, another scheduler.
fn run_life() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 300)?);
    let first = load.hog(&mut s.plane.0, a)?;
    load.hog(&mut s.plane.0, b)?;
    let me = i32::try_from(process::id())?;
    s.plane.0.set_default(me, List::Child, b)?;
    settle();
    for round in 1..=3 {
        let before = s.plane.0.sample()?;
        eject()?;
        let why = detached(&mut s.plane.0)?;
        check(
            why.as_ref().is_some_and(|w| w.contains("sysrq") || w.contains("SysRq")),
            &format!("ejection {round} is noticed, with its reason: {why:?}"),
        );
        check(s.plane.0.tag_of(first)? == a, "tags are kept while out");
        let mut child = Command::new("sleep").arg("100").spawn()?;
        let born_out = i32::try_from(child.id())?;
        check(s.plane.0.tag_of(born_out)? == b, "and inherited");
        s.plane.0.revive()?;
        check(s.plane.0.health()? == Health::Running, "it comes back");
        check(s.plane.0.tag_of(first)? == a && s.plane.0.tag_of(born_out)? == b, "with all tags");
        check(s.plane.0.members(b)?.len() == 2, "and members");
        child.kill()?;
        child.wait()?;
        let after = s.plane.0.sample()?;
        check(
            service(&after, b) >= service(&before, b) && after.len() == before.len(),
            "and counters and nodes",
        );
        settle();
        near(&shares(&s.plane.0, &[a, b], Duration::from_secs(5))?, &[0.25, 0.75], 0.01, "and shares");
    }
    // A second driver, as another daemon would be.
    let other = Command::new(env::current_exe()?)
        .arg("--other")
        .env("RESERV_BPFFS", "/sys/fs/bpf/reserv-other")
        .output()?;
    let said = String::from_utf8_lossy(&other.stdout).into_owned();
    check(
        said.contains("Taken"),
        &format!("another scheduler that is loaded is a clear error: {}", said.trim()),
    );
    s.health("which changes nothing")?;
    // Adoption: the process that loaded it is gone.
    drop(load);
    drop(s);
    let mut loader = Command::new(env::current_exe()?).arg("--loader").stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(out) = loader.stdout.take() {
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    }
    loader.kill()?;
    loader.wait()?;
    check(
        fs::read_to_string("/sys/kernel/sched_ext/state")?.trim() == "enabled",
        "killed, it goes on scheduling",
    );
    let adopted = full::adopt()?;
    check(adopted.is_some(), "a new daemon finds it");
    if let Some(plane) = adopted {
        let mut guard = Guard(plane);
        check(guard.0.applied_seq()? == Some(7), "with the number of its last batch");
        check(guard.0.sample()?.len() == 3, "with its tree");
        check(guard.0.health()? == Health::Running, "and its health");
        let bad = guard.0.apply(&Batch { seq: 7, ops: Vec::new() });
        check(bad.is_err(), "and goes on from there");
        let id = NodeId { index: 9, generation: 1 };
        let ok = guard.0.apply(&Batch {
            seq: 8,
            ops: vec![Op::Create { id, parent: NodeId::ROOT, kind: Kind::Queue(Class::Ts) }],
        });
        check(ok.is_ok(), "with edits");
    }
    check(
        fs::read_to_string("/sys/kernel/sched_ext/state")?.trim() == "disabled",
        "stopped, the kernel has the CPUs back",
    );
    check(full::adopt()?.is_none(), "and there is nothing to adopt");
    Ok(())
}

fn pin(pid: i32, cpu: usize) {
    // SAFETY: the set is a plain bit array on our stack.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Threads that may use one CPU only, changed all the time, and no CPU idle meanwhile.
fn run_affinity() -> Answer {
    let cpus = thread::available_parallelism()?.get();
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let (a, b) = (s.queue(NodeId::ROOT, 100)?, s.queue(NodeId::ROOT, 100)?);
    let mut pids = Vec::new();
    for i in 0..2 * cpus {
        pids.push(load.hog(&mut s.plane.0, if i % 2 == 0 { a } else { b })?);
    }
    let start = Instant::now();
    let mut changes = 0;
    while start.elapsed() < Duration::from_secs(5) {
        for (i, pid) in pids.iter().enumerate() {
            pin(*pid, (i + changes) % cpus);
        }
        changes += 1;
        thread::sleep(Duration::from_millis(3));
    }
    s.health(&format!("{changes} rounds of sched_setaffinity on busy threads"))?;
    for pid in &pids {
        pin(*pid, 0);
    }
    settle();
    near(
        &shares(&s.plane.0, &[a, b], Duration::from_secs(5))?,
        &[0.5, 0.5],
        0.02,
        "all pinned to one CPU, half each",
    );
    let where_now = |pid: i32| -> Result<usize, Box<dyn Error>> {
        let line = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Ok(line.rsplit(')').next().unwrap_or("").split_whitespace().nth(36).unwrap_or("").parse()?)
    };
    for pid in &pids {
        check(where_now(*pid)? == 0, "a pinned thread is where it may be");
    }
    s.health("affinity")
}

/// Kernel threads under user load: their own floor, and nothing waits for ever.
fn run_kthreads() -> Answer {
    let mut s = Setup::new()?;
    let mut load = Load::default();
    let a = s.queue(NodeId::ROOT, 10_000)?;
    s.apply(vec![Op::Reweight { id: NodeId::Q0, weight: weight(1) }])?;
    for _ in 0..4 {
        load.hog(&mut s.plane.0, a)?;
    }
    settle();
    let before = s.plane.0.counters();
    let start = Instant::now();
    // Work that kernel threads do.
    for i in 0..20 {
        let path = format!("/dev/shm/full-kthreads-{i}");
        fs::write(&path, vec![0_u8; 100_000])?;
        fs::remove_file(&path)?;
    }
    // SAFETY: no argument.
    unsafe { libc::sync() };
    println!("# kernel work done after {:.2} s", start.elapsed().as_secs_f64());
    thread::sleep(Duration::from_secs(3));
    let after = s.plane.0.counters();
    check(
        after.kernel_threads_ns > before.kernel_threads_ns,
        &format!(
            "kernel threads run under their floor: {} us",
            (after.kernel_threads_ns - before.kernel_threads_ns) / 1000
        ),
    );
    thread::sleep(Duration::from_secs(37));
    s.health("40 s of load beside a q0 of weight 1 in 10000")?;
    // Weight 0 is background, and stays alive.
    let z = s.queue(NodeId::ROOT, 0)?;
    let before = s.plane.0.sample()?;
    load.hog(&mut s.plane.0, z)?;
    thread::sleep(Duration::from_secs(40));
    let got = service(&s.plane.0.sample()?, z) - service(&before, z);
    check(got > 0, &format!("a background thread gets its floor: {} ms in 40 s", got / 1_000_000));
    s.health("and does not cost us the CPUs")
}

const CHCPURES: i32 = 0x5253_0001;
const GETCPURES: i32 = 0x5253_0002;

/// `chcpures DIR DIR`: two queue directories of a mounted /reserv. What they answer is checked by the test that starts this; here
/// is what a change costs beside a null system call.
fn run_chcpures() -> Answer {
    let open = |n| -> Result<fs::File, Box<dyn Error>> {
        Ok(fs::File::open(env::args().nth(n).ok_or("two directories")?)?)
    };
    let (a, b) = (open(2)?, open(3)?);
    let (a, b) = (std::os::fd::AsRawFd::as_raw_fd(&a), std::os::fd::AsRawFd::as_raw_fd(&b));
    // SAFETY: the option takes a descriptor number and no memory.
    let change = |fd: i32| unsafe { libc::prctl(CHCPURES, fd, 0, 0, 0) };
    // SAFETY: no memory.
    let mine = || unsafe { libc::prctl(GETCPURES, 0, 0, 0, 0) };
    check(change(a) == 1, "chcpures answers 1");
    let first = mine();
    check(change(b) == 1 && mine() != first, "and the thread is in the other queue");
    let n = 20_000_u32;
    let time = |f: &dyn Fn(u32)| {
        let start = Instant::now();
        for i in 0..n {
            f(i);
        }
        start.elapsed().as_nanos() as f64 / f64::from(n)
    };
    let mut best = [f64::MAX; 4];
    for _ in 0..5 {
        best[0] = best[0].min(time(&|_| {
            // SAFETY: a system call without arguments.
            let _ = unsafe { libc::syscall(libc::SYS_getppid) };
        }));
        best[1] = best[1].min(time(&|_| assert_eq!(change(a), 1)));
        best[2] = best[2].min(time(&|i| assert_eq!(change(if i % 2 == 0 { a } else { b }), 1)));
        best[3] = best[3].min(time(&|_| {
            // SAFETY: PR_GET_DUMPABLE takes nothing.
            let _ = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
        }));
    }
    let [null, same, changed, another] = best;
    println!(
        "# getppid {null:.0} ns, another prctl {:.2}, chcpures to the same queue {:.2}, to another {:.2} times that",
        another / null,
        same / null,
        changed / null
    );
    // The goal is 2; 2.21 was measured. What is asserted keeps it from getting worse unseen.
    check(
        changed / null <= 2.5,
        &format!("chcpures costs at most 2.5 null system calls (goal: 2): {:.2}", changed / null),
    );
    Ok(())
}

fn main() {
    let what = env::args().nth(1).unwrap_or_default();
    let done = match what.as_str() {
        "--hog" => loop {
            std::hint::black_box(0);
        },
        "--other" => {
            match full::start() {
                Ok(plane) => {
                    println!("loaded");
                    drop(Guard(plane));
                }
                Err(error) => println!("{error:?}"),
            }
            return;
        }
        "--loader" => {
            let run = || -> Answer {
                let mut plane = full::start()?;
                let id = NodeId { index: 2, generation: 1 };
                plane.apply(&Batch {
                    seq: 7,
                    ops: vec![Op::Create { id, parent: NodeId::ROOT, kind: Kind::Queue(Class::Rr) }],
                })?;
                println!("ready");
                thread::sleep(Duration::from_secs(1000));
                Ok(())
            };
            if let Err(error) = run() {
                println!("{error}");
            }
            return;
        }
        "shares" => run_shares(10, 1, 0.005),
        "smp" => run_shares(40, 2, 0.005),
        "edits" => run_edits(),
        "caps" => run_caps(),
        "inherit" => run_inherit(),
        "life" => run_life(),
        "affinity" => run_affinity(),
        "kthreads" => run_kthreads(),
        "chcpures" => run_chcpures(),
        other => Err(format!("no check named '{other}'").into()),
    };
    if let Err(error) = done {
        check(false, &format!("{what}: {error}"));
    }
    process::exit(i32::from(FAILED.with(Cell::get) > 0));
}
