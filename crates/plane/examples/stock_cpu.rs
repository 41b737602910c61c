// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries the stock CPU driver on the running kernel, as root:
//! `stock_cpu shares [SECONDS [few]] | tags | life | cap | rate`.
//!
//! Prints `ok - …` and `not ok - …`; exit status 1 when a check failed, 77 when the driver cannot
//! run here. Used by `tests/host/stock_cpu` and `tests/guest/stock_cpu_*`.

mod spin;

use std::fs;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use reserv_model::{Batch, Cap, Class, DeleteMode, Kind, NodeId, Op, Outcome, Policy, Weight};
use reserv_plane::cpu::stock::{self, Stock};
use reserv_plane::{Health, List, Lists as _, Plane, PlaneError, Target, Threads as _};

/// Largest error of a share that the stock driver may have.
const SHARE_ERROR_MAX: f64 = 0.02;
/// What the driver gives a cap, and how late the kernel may notice that it is used up.
const CAP_PERIOD_S: f64 = 0.1;
const TICK_S: f64 = 0.004;

static FAILED: AtomicU32 = AtomicU32::new(0);
static HOG: AtomicBool = AtomicBool::new(true);

fn check(good: bool, text: &str) {
    println!("{}ok - {text}", if good { "" } else { "not " });
    if !good {
        FAILED.fetch_add(1, Ordering::Relaxed);
    }
}

fn id(index: u32) -> NodeId {
    NodeId { index, generation: 1 }
}

fn weight(milli: u32) -> Weight {
    Weight::from_milli(milli).expect("in range")
}

/// A driver whose batches number themselves, stopped at the end whatever happens.
struct Rig {
    plane: Stock,
    seq: u64,
}

impl Rig {
    fn start() -> Self {
        match stock::start() {
            Ok(plane) => Self { plane, seq: 0 },
            Err(error) => {
                println!("not ok - start: {error}");
                std::process::exit(1);
            }
        }
    }

    fn apply(&mut self, ops: Vec<Op>) -> Result<Vec<Outcome>, PlaneError> {
        let batch = Batch { seq: self.seq + 1, ops };
        let outcomes = self.plane.apply(&batch)?;
        self.seq += 1;
        Ok(outcomes)
    }

    fn must(&mut self, ops: Vec<Op>) {
        if let Err(error) = self.apply(ops) {
            println!("not ok - apply: {error}");
            FAILED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn queue(&mut self, index: u32, parent: NodeId, milli: u32) -> NodeId {
        self.must(vec![
            Op::Create { id: id(index), parent, kind: Kind::Queue(Class::Ts) },
            Op::Reweight { id: id(index), weight: weight(milli) },
        ]);
        id(index)
    }

    fn scheduler(&mut self, index: u32, parent: NodeId, milli: u32) -> NodeId {
        self.must(vec![
            Op::Create { id: id(index), parent, kind: Kind::Scheduler(Policy::Sfq) },
            Op::Reweight { id: id(index), weight: weight(milli) },
        ]);
        id(index)
    }

    /// Leaves the outside little, so that what else this machine does disturbs the measurement
    /// little.
    fn first(&mut self, milli: u32) {
        self.must(vec![Op::Reweight { id: NodeId::Q0, weight: weight(milli) }]);
    }

    /// Service of queues over a time, after the kernel has had two seconds to settle.
    fn measure(&self, queues: &[NodeId], seconds: u64) -> Vec<f64> {
        let read = || -> Vec<u64> {
            queues.iter().map(|q| self.plane.sample_one(*q).map_or(0, |s| s.service_ns)).collect()
        };
        std::thread::sleep(Duration::from_secs(2));
        let before = read();
        std::thread::sleep(Duration::from_secs(seconds));
        let got: Vec<u64> =
            read().iter().zip(before).map(|(after, before)| after - before).collect();
        let all: u64 = got.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "shares")]
        got.iter().map(|g| *g as f64 / all.max(1) as f64).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Err(error) = self.plane.stop() {
            check(false, &format!("stop: {error}"));
        }
    }
}

/// Children of this program that compute, or sleep, until they are dropped.
struct Crowd(Vec<Child>);

impl Crowd {
    fn spawn(what: &str, count: usize) -> Self {
        let me = std::env::current_exe().expect("own path");
        let one =
            || Command::new(&me).arg(what).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self((0..count).map(|_| one().expect("spawn")).collect())
    }

    fn hogs(count: usize) -> Self {
        Self::spawn("hog", count)
    }

    fn pids(&self) -> Vec<i32> {
        self.0.iter().map(|c| i32::try_from(c.id()).expect("a pid")).collect()
    }

    fn tag(&self, rig: &mut Rig, queue: NodeId) {
        for pid in self.pids() {
            if let Err(error) = rig.plane.tag(Target::Process(pid), queue) {
                check(false, &format!("tag {pid}: {error}"));
            }
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn hog() {
    // Ends with its parent: then nobody holds the other end of its standard input.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        HOG.store(false, Ordering::Relaxed);
    });
    while HOG.load(Ordering::Relaxed) {
        spin::straight_line();
    }
}

fn judge(what: &str, got: &[f64], want: &[f64]) {
    let error = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
    let list = |v: &[f64]| v.iter().map(|x| format!("{x:.4}")).collect::<Vec<_>>().join(" ");
    check(
        error <= SHARE_ERROR_MAX,
        &format!("{what}: {} (wanted {}, error {:.2} %)", list(got), list(want), error * 100.0),
    );
}

/// The trees of the papers' first figures, with two hogs in each queue.
fn shares(seconds: u64, few: bool) {
    let per_queue = std::env::var("HOGS").ok().and_then(|v| v.parse().ok()).unwrap_or(2);
    let pairs: &[(u32, u32)] = if few { &[] } else { &[(1, 1), (1, 2), (1, 4)] };
    for &(a, b) in pairs {
        let mut rig = Rig::start();
        let queues =
            [rig.queue(2, NodeId::ROOT, a * 100_000), rig.queue(3, NodeId::ROOT, b * 100_000)];
        rig.first(a * 1_000);
        let crowds = [Crowd::hogs(per_queue), Crowd::hogs(per_queue)];
        for (crowd, queue) in crowds.iter().zip(queues) {
            crowd.tag(&mut rig, queue);
        }
        let want = [f64::from(a) / f64::from(a + b), f64::from(b) / f64::from(a + b)];
        judge(&format!("{a}:{b}"), &rig.measure(&queues, seconds), &want);
    }
    let mut rig = Rig::start();
    rig.first(10);
    let left = rig.scheduler(2, NodeId::ROOT, 500);
    let right = rig.scheduler(3, NodeId::ROOT, 500);
    let (a, sleeper) = (rig.queue(4, left, 500), rig.queue(5, left, 500));
    let (b, c) = (rig.queue(6, right, 100), rig.queue(7, right, 400));
    let crowds =
        [(a, Crowd::hogs(per_queue)), (b, Crowd::hogs(per_queue)), (c, Crowd::hogs(per_queue))];
    let sleepers = Crowd::spawn("sleep", 1);
    sleepers.tag(&mut rig, sleeper);
    for (queue, crowd) in &crowds {
        crowd.tag(&mut rig, *queue);
    }
    judge(
        "two levels .5 (its sibling sleeps) / .1 / .4",
        &rig.measure(&[a, b, c], seconds),
        &[0.5, 0.1, 0.4],
    );
    if few {
        return;
    }
    rig.must(vec![Op::Reweight { id: b, weight: weight(400) }, Op::Move { id: c, parent: left }]);
    judge(
        "after reweight and move: .2 / .5 / .3",
        &rig.measure(&[a, b, c], seconds),
        &moved_shares(),
    );
}

/// Left holds a (.5) and c (.4) and the sleeper, right holds b alone.
fn moved_shares() -> [f64; 3] {
    [0.5 * 0.5 / 0.9, 0.5, 0.5 * 0.4 / 0.9]
}

fn cgroup_of(tid: i32) -> String {
    fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap_or_default()
}

fn threads_of(pid: i32) -> Vec<i32> {
    let names = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    names.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// A child has started all its threads.
fn await_threads(pid: i32, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while threads_of(pid).len() < count && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Threads, processes and what becomes of them.
fn tags() {
    let mut rig = Rig::start();
    let q = rig.queue(2, NodeId::ROOT, 100_000);
    let r = rig.queue(3, NodeId::ROOT, 100_000);
    let crowd = Crowd::spawn("threads", 1);
    let pid = crowd.pids()[0];
    let threads = || threads_of(pid);
    await_threads(pid, 4);
    let home = cgroup_of(pid);
    let tid = threads().into_iter().find(|t| *t != pid).expect("a second thread");
    check(matches!(rig.plane.tag(Target::Thread(tid), q), Ok(1)), "a single thread is tagged");
    check(rig.plane.tag_of(tid).ok() == Some(q), "and found in its queue");
    check(rig.plane.tag_of(pid).ok() == Some(NodeId::Q0), "the process's first thread is not");
    check(
        rig.plane.members(q).is_ok_and(|m| m.len() == 1 && m[0].tid == tid && m[0].tgid == pid),
        "members",
    );
    check(
        matches!(rig.plane.tag(Target::Thread(tid), NodeId::Q0), Ok(1)),
        "the thread is given back",
    );
    check(cgroup_of(tid) == home && cgroup_of(pid) == home, "to the cgroup it came from");
    check(
        matches!(rig.plane.tag(Target::Process(pid), q), Ok(4)),
        "the process is tagged, four threads",
    );
    check(
        rig.plane.defaults(pid).is_ok_and(|d| d.default == q && d.child == q),
        "its lists follow",
    );
    check(
        matches!(rig.plane.set_default(pid, List::Child, r), Err(PlaneError::Unsupported(_))),
        "cdefault alone: refused",
    );
    check(rig.plane.set_default(pid, List::Default, r).is_ok(), "default is changed");
    check(rig.plane.sample_one(r).is_ok_and(|s| s.members == 4), "the queue counts its members");
    rig.must(vec![Op::SetLimit { id: q, members_max: 3, bytes_max: 0 }]);
    check(
        matches!(rig.plane.tag(Target::Process(pid), q), Err(PlaneError::Full(_))),
        "a full queue refuses",
    );
    check(
        matches!(
            rig.apply(vec![Op::Delete { id: r, mode: DeleteMode::Refuse }]),
            Err(PlaneError::Busy(_))
        ),
        "a queue with members is not deleted",
    );
    check(
        rig.apply(vec![Op::Delete { id: r, mode: DeleteMode::Drain }])
            .is_ok_and(|o| o == [Outcome::Draining]),
        "it is drained",
    );
    check(
        matches!(rig.plane.tag(Target::Process(pid), r), Err(PlaneError::Busy(_))),
        "and takes nobody",
    );
    check(
        rig.plane.collect_drained().is_ok_and(|g| g.is_empty()),
        "while somebody is in it, it stays",
    );
    check(
        matches!(rig.plane.tag(Target::Process(pid), NodeId::Q0), Ok(4)),
        "the process is given back",
    );
    check(cgroup_of(pid) == home, "to its own cgroup");
    check(rig.plane.collect_drained().is_ok_and(|g| g == [r]), "and the drained queue is gone");
    check(
        matches!(rig.plane.tag(Target::Process(pid), r), Err(PlaneError::NoNode(_))),
        "a stale handle is an error",
    );
    check(
        matches!(rig.plane.tag(Target::Process(i32::MAX), q), Err(PlaneError::NoProcess(_))),
        "a process that is not",
    );
    let s = rig.queue(4, NodeId::ROOT, 100_000);
    check(rig.plane.tag(Target::Process(pid), s).is_ok(), "tagged once more");
    check(
        rig.apply(vec![Op::Delete { id: s, mode: DeleteMode::Flush }])
            .is_ok_and(|o| o == [Outcome::Done]),
        "flushed",
    );
    check(cgroup_of(pid) == home, "and home again");
    println!("# outside: {}", rig.plane.info().outside.unwrap_or_default());
    for limit in rig.plane.info().limits {
        println!("# limit: {limit}");
    }
}

/// Crash, adoption, loss of the cgroup, stop.
fn life() {
    let mut rig = Rig::start();
    let s = rig.scheduler(2, NodeId::ROOT, 333);
    let q = rig.queue(3, s, 7);
    let crowd = Crowd::hogs(2);
    let home = cgroup_of(crowd.pids()[0]);
    for pid in crowd.pids() {
        await_threads(pid, 2);
    }
    crowd.tag(&mut rig, q);
    check(matches!(stock::start(), Err(PlaneError::Taken(_))), "a second start is refused");
    // The child adopts, edits and is killed in the middle of its work, again and again.
    for round in 0..8u64 {
        let me = std::env::current_exe().expect("own path");
        let mut child =
            Command::new(me).arg("churn").stdout(Stdio::piped()).spawn().expect("spawn");
        let mut ready = [0u8; 1];
        let started = child
            .stdout
            .as_mut()
            .is_some_and(|out| std::io::Read::read_exact(out, &mut ready).is_ok());
        std::thread::sleep(Duration::from_millis(37 + 13 * round));
        let _ = child.kill();
        let _ = child.wait();
        let service = rig.plane.sample_one(q).map_or(0, |s| s.service_ns);
        match stock::adopt() {
            Ok(Some(plane)) => {
                let seq = plane.applied_seq().ok().flatten();
                rig.seq = seq.unwrap_or(0);
                // The dropped driver leaves its tree running.
                rig.plane = plane;
                let now = rig.plane.sample_one(q).map_or(0, |s| s.service_ns);
                let members = rig.plane.members(q).map_or(0, |m| m.len());
                check(
                    started && seq.is_some() && members == 4 && now >= service,
                    &format!(
                        "killed after batch {seq:?}: {members} members and the service are kept"
                    ),
                );
            }
            Ok(None) => check(false, "nothing to adopt"),
            Err(error) => check(false, &format!("adopt: {error}")),
        }
    }
    check(rig.plane.health().is_ok_and(|h| h == Health::Running), "running");
    let name = std::env::var("RESERV_CGROUP").unwrap_or_else(|_| "reserv".into());
    for top in ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"] {
        let _ = fs::remove_dir(format!("{top}/{name}/q1.1"));
    }
    check(matches!(rig.plane.health(), Ok(Health::Detached(_))), "a removed cgroup is noticed");
    check(
        rig.plane.revive().is_ok() && rig.plane.health().is_ok_and(|h| h == Health::Running),
        "and made again",
    );
    check(rig.plane.members(q).is_ok_and(|m| m.len() == 4), "with the members as they were");
    check(rig.plane.stop().is_ok(), "stop");
    check(
        crowd.pids().iter().all(|p| cgroup_of(*p) == home),
        "everybody is back where they came from",
    );
    check(matches!(stock::adopt(), Ok(None)), "and nothing is left to adopt");
    // Drop stops once more: there is nothing to do, which is no error.
}

/// Adopts and edits until it is killed.
fn churn() {
    let mut plane = match stock::adopt() {
        Ok(Some(plane)) => plane,
        other => panic!("adopt: {:?}", other.err()),
    };
    println!("ready");
    let mut seq = plane.applied_seq().ok().flatten().expect("a state");
    let root = NodeId::ROOT;
    let s = id(2);
    loop {
        for under in [root, s] {
            seq += 1;
            let generation = u32::try_from(seq).expect("few");
            let x = NodeId { index: 9, generation };
            let ops = vec![
                Op::Move { id: id(3), parent: under },
                Op::Create { id: x, parent: under, kind: Kind::Queue(Class::Ts) },
                Op::Reweight { id: x, weight: weight(generation) },
                Op::Delete { id: x, mode: DeleteMode::Flush },
            ];
            plane.apply(&Batch { seq, ops }).expect("apply");
        }
    }
}

/// A cap holds whatever the weights say.
/// `alone`: nobody else wants the machine, so the queue gets all that it may have.
fn cap(seconds: u64, alone: bool) {
    let mut rig = Rig::start();
    let q = rig.queue(2, NodeId::ROOT, 100_000);
    let crowd = Crowd::hogs(2);
    crowd.tag(&mut rig, q);
    rig.must(vec![Op::SetCap {
        id: q,
        cap: Some(Cap { rate_ns_per_s: 300_000_000, burst_ns: 0 }),
    }]);
    let before = rig.plane.sample_one(q).expect("sample");
    let begin = Instant::now();
    let mut throttled = false;
    let mut after = before;
    // Beside others it may take a while until the queue could have more than it may.
    while begin.elapsed() < Duration::from_secs(60) && (after == before || !throttled) {
        std::thread::sleep(Duration::from_secs(seconds));
        after = rig.plane.sample_one(q).expect("sample");
        throttled = after.throttled && after.throttled_ns > before.throttled_ns;
    }
    let wall = begin.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = (after.service_ns - before.service_ns) as f64 / 1e9 / wall;
    // At either end it may have the whole of a period, and is stopped at the next tick. Beside others
    // a machine that is not real stands still while its clock goes on; uncapped it would have 2.
    let most = if alone { 0.3 * (wall + 2.0 * CAP_PERIOD_S) / wall + TICK_S } else { 0.6 };
    let text = format!("capped at 0.3 CPU, got {rate:.3} of at most {most:.3} in {wall:.2} s");
    check(rate < most && (rate > 0.27 || !alone), &text);
    check(throttled, "and reported as throttled");
}

/// Edits per second in a tree of some size, one edit a batch.
fn rate(nodes: u32) {
    let mut rig = Rig::start();
    let mut ops = Vec::new();
    for index in 2..nodes {
        let parent = if index < 12 { NodeId::ROOT } else { id(2 + index % 10) };
        let kind = if index < 12 { Kind::Scheduler(Policy::Sfq) } else { Kind::Queue(Class::Ts) };
        ops.push(Op::Create { id: id(index), parent, kind });
        ops.push(Op::Reweight { id: id(index), weight: weight(1_000 * (1 + index % 7)) });
    }
    rig.must(ops);
    let begin = Instant::now();
    let mut edits = 0u32;
    while begin.elapsed() < Duration::from_secs(3) {
        let x = NodeId { index: nodes + 1, generation: edits / 4 + 1 };
        let op = match edits % 4 {
            0 => Op::Create { id: x, parent: id(2), kind: Kind::Queue(Class::Ts) },
            1 => Op::Reweight { id: x, weight: weight(1_000 + edits % 9) },
            2 => Op::Move { id: x, parent: id(3) },
            _ => Op::Delete { id: x, mode: DeleteMode::Flush },
        };
        rig.must(vec![op]);
        edits += 1;
    }
    let per_second = f64::from(edits) / begin.elapsed().as_secs_f64();
    check(
        per_second >= 200.0,
        &format!("{nodes} nodes: {per_second:.0} edits/s (create, reweight, move, delete)"),
    );
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seconds = args.get(1).and_then(|s| s.parse().ok()).unwrap_or(8);
    let what = args.first().map_or("", String::as_str);
    match what {
        "hog" => {
            hog();
            return ExitCode::SUCCESS;
        }
        "sleep" => {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            return ExitCode::SUCCESS;
        }
        "threads" => {
            for _ in 0..3 {
                std::thread::spawn(|| {
                    loop {
                        std::thread::park();
                    }
                });
            }
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            return ExitCode::SUCCESS;
        }
        "churn" => churn(),
        _ => {}
    }
    if let Err(missing) = stock::probe() {
        println!("# skip: {missing}");
        return ExitCode::from(77);
    }
    match what {
        "shares" => shares(seconds, args.get(2).is_some_and(|few| few == "few")),
        "tags" => tags(),
        "life" => life(),
        "cap" => cap(seconds, args.get(2).is_some_and(|alone| alone == "alone")),
        "rate" => rate(args.get(1).and_then(|n| n.parse().ok()).unwrap_or(100)),
        _ => {
            eprintln!(
                "stock_cpu shares [SECONDS [few]], stock_cpu cap [SECONDS [alone]], stock_cpu tags|life, stock_cpu rate [NODES]"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::from(u8::from(FAILED.load(Ordering::Relaxed) > 0))
}
